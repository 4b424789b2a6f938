//! One seed's world: a node, clients that use it at random, faults, and the checkers that watch.
//!
//! Every step the node takes is followed by the checks that its outcomes allow: U1, U2, U4 and the answers themselves at each answer; D1 and D2
//! (the whole state against the model) after each crash, after each full disk, and at the end. What a seed does is drawn from the seed
//! alone ("swarm": each seed has its own mix of faults and speeds), so a failing seed fails again.
//!
//! size: one world of a node, clients and faults, whose parts share the state that each step changes.

mod checks;

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::Incarnation;
use whimbrel_service::{
    admin::AdminCall,
    api::{
        AccountId, BlobName, Call, Date, Delivery, Entry, Failure, MailboxCall, MailboxName,
        NewMail, Reply, SessionId,
    },
    content::Content,
    machine::{RequestId, Ticket},
    owner, queue,
};
use whimbrel_storage::memory::DiskCopy;

use whimbrel_testkit::Rng;

use crate::{
    checkers::uid_history::Uids,
    client::{self, Client, Planned},
    model::{Fate, History, Message, Model, Number, Op, Verdict},
    node::{Identity, Node, Outcome, Speed, VERIFIER_PREFIX},
};

/// What a seed draws for itself.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Accounts and clients.
    pub accounts: u64,
    /// Clients, spread over the accounts.
    pub clients: u64,
    /// Calls of all clients together.
    pub calls: u64,
    /// Once in how many calls each fault happens; 0: never in this seed.
    pub crash: u64,
    /// The disk is full for a while.
    pub full: u64,
    /// A sync fails: the node stops and is started again.
    pub sync_failure: u64,
    /// The wall clock jumps.
    pub clock: u64,
    /// A client's connection breaks.
    pub hangup: u64,
    /// A message comes for an account.
    pub delivery: u64,
    /// An older copy of the disk is put back.
    pub old_disk: u64,
    /// [`owner::Config::lead`]: as in production, or too short.
    pub lead: u32,
    /// The disk is slow all the time.
    pub slow: bool,
    /// Accounts are evicted all the time.
    pub tiny_memory: bool,
}

impl Plan {
    /// What this seed draws.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut fault = |often: u64| {
            if rng.one_in(2) {
                rng.between(often, often * 4)
            } else {
                0
            }
        };
        let (crash, full, sync_failure, clock, hangup, delivery) = (
            fault(20),
            fault(40),
            fault(60),
            fault(20),
            fault(15),
            fault(4),
        );
        let old_disk = fault(60);
        Plan {
            seed,
            accounts: rng.between(1, 3),
            clients: rng.between(1, 5),
            calls: rng.between(60, 300),
            crash,
            full,
            sync_failure,
            clock,
            hangup,
            delivery,
            slow: rng.one_in(4),
            tiny_memory: rng.one_in(3),
            old_disk,
            lead: match rng.below(6) {
                0 => 0,
                1 => u32::try_from(rng.below(20)).unwrap_or(0),
                _ => owner::Config::default().lead,
            },
        }
    }
}

/// What a run did, for the report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Steps of the node.
    pub steps: u64,
    /// Virtual microseconds.
    pub virtual_micros: u64,
    /// How often each thing was done: operations, faults.
    pub coverage: BTreeMap<&'static str, u64>,
}

/// A run that ended badly: what broke, and when.
#[derive(Clone, Debug)]
pub struct Breach(pub String);

struct Asked {
    client: Option<usize>,
    account: AccountId,
    planned: Planned,
    /// From when it reached the owner.
    reached: Option<Reached>,
}

struct Reached {
    number: Number,
    verdict: Verdict,
    /// The mailbox it tells of, as it then was.
    about: Option<Vec<Message>>,
    /// Until an operation fails, what the model says is certain.
    certain: u64,
}

struct World {
    plan: Plan,
    rng: Rng,
    node: Node,
    clients: Vec<Client>,
    asked: BTreeMap<RequestId, Asked>,
    /// Answers to the world itself.
    answers: BTreeMap<RequestId, Reply>,
    histories: BTreeMap<AccountId, History>,
    uids: BTreeMap<AccountId, Uids>,
    /// Entries that were handed to the service, by id; whether they were acknowledged; and each delivery's number in its account's history.
    entries: BTreeMap<[u8; 16], Sent>,
    next_request: u64,
    next_session: u64,
    next_number: Number,
    next_body: u32,
    /// Grows with each failure that makes the model uncertain.
    uncertain: u64,
    /// Something failed since the state was last known.
    blurred: bool,
    full_until: Option<u64>,
    /// What `node.toml` would hold.
    slots_free: Vec<u8>,
    round: u32,
    backup: Option<Backup>,
    report: Report,
    trace: bool,
}

/// A copy of the disk, made when nothing was under way.
struct Backup {
    disk: DiskCopy,
    models: BTreeMap<AccountId, Model>,
    entries: BTreeSet<[u8; 16]>,
    slots_free: Vec<u8>,
    round: u32,
    /// Slots drawn by those for whom it was put back.
    drawn: BTreeSet<u8>,
}

struct Sent {
    account: AccountId,
    target: String,
    body: u32,
    acknowledged: bool,
    /// The deliveries that reached its account's owner since the last crash.
    numbers: BTreeMap<Ticket, Number>,
    reached: bool,
}

/// Runs one seed.
///
/// # Errors
/// The first breach.
pub fn run(plan: &Plan, trace: bool) -> Result<Report, Breach> {
    let mut world = World::new(plan.clone(), trace);
    match world.play() {
        Ok(()) => {
            world.report.steps = world.node.steps;
            world.report.virtual_micros = world.node.time();
            let overlooked = world.uids.values().map(Uids::overlooked).sum::<u64>();
            if overlooked > 0 {
                world.report.coverage.insert(
                    "overlooked after an old disk with too short a lead",
                    overlooked,
                );
            }
            Ok(world.report)
        }
        Err(cause) => Err(Breach(format!(
            "at {} us, step {}: {cause}",
            world.node.time(),
            world.node.steps
        ))),
    }
}

impl World {
    fn new(plan: Plan, trace: bool) -> Self {
        let mut rng = Rng::new(plan.seed ^ 0x5157_4d42);
        let mut config = owner::Config {
            origin: Incarnation::from_hash(plan.seed | 1),
            slot: u8::try_from(rng.below(64)).unwrap_or(0),
            lead: plan.lead,
            collect_after_seconds: rng.between(1, 3),
            ..owner::Config::default()
        };
        if plan.tiny_memory {
            config.accounts_bytes_max = 1;
        }
        let slot = config.slot;
        // In some worlds few are left, so that they are used up.
        let free = if rng.one_in(4) { rng.below(3) } else { 63 };
        let slots_free = (0..64)
            .filter(|other| *other != slot)
            .take(usize::try_from(free).unwrap_or(63))
            .collect();
        let limits = queue::Limits {
            retry_after_seconds: 2,
            ..queue::Limits::default()
        };
        let mut node = Node::with(plan.seed, config, limits);
        if plan.slow {
            node.speed = Speed {
                sync_micros: (50_000, 400_000),
                read_micros: (1_000, 50_000),
                ..Speed::default()
            };
        }
        World {
            plan,
            rng,
            node,
            clients: Vec::new(),
            asked: BTreeMap::new(),
            answers: BTreeMap::new(),
            histories: BTreeMap::new(),
            uids: BTreeMap::new(),
            entries: BTreeMap::new(),
            next_request: 0,
            next_session: 0,
            next_number: 0,
            next_body: 0,
            uncertain: 0,
            blurred: false,
            full_until: None,
            slots_free,
            round: 0,
            backup: None,
            report: Report::default(),
            trace,
        }
    }

    fn note(&mut self, what: &'static str) {
        *self.report.coverage.entry(what).or_default() += 1;
    }

    fn say(&self, text: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>12} us  {}", self.node.time(), text());
        }
    }

    fn play(&mut self) -> Result<(), String> {
        for index in 0..self.plan.accounts {
            let mut id = [0; 16];
            id[0] = u8::try_from(index + 1).unwrap_or(1);
            let account = AccountId(id);
            let address = format!("user{index}@example.org");
            self.next_request += 1;
            let call = AdminCall::AddAccount {
                address,
                verifier: format!("{VERIFIER_PREFIX}x"),
                scram: None,
                account,
            };
            self.node.admin(RequestId(self.next_request), call);
            self.histories.insert(account, History::default());
            self.uids.insert(account, Uids::default());
        }
        self.until_quiet()?;
        let accounts: Vec<AccountId> = self.histories.keys().copied().collect();
        for index in 0..self.plan.clients {
            let account = accounts[usize::try_from(index % self.plan.accounts).unwrap_or(0)];
            let session = self.session();
            let due = Some(self.node.time() + self.rng.below(10_000));
            self.clients.push(Client {
                session,
                account,
                view: None,
                due,
            });
        }
        for _ in 0..self.plan.calls {
            self.next_call()?;
            self.maybe_fault()?;
        }
        self.heal_disk();
        self.node.disk.faults.sync_fails = false;
        self.until_quiet()?;
        self.compare(None)?;
        for account in accounts {
            if crate::stored::account(&self.node.disk, account)? {
                self.note("checked against the whole log");
            }
        }
        self.all_delivered()
    }

    fn session(&mut self) -> SessionId {
        self.next_session += 1;
        SessionId(self.next_session)
    }

    /// Lets time pass until a client is due, and lets it do something.
    fn next_call(&mut self) -> Result<(), String> {
        loop {
            let due = self
                .clients
                .iter()
                .enumerate()
                .filter_map(|(index, client)| Some((client.due?, index)))
                .min();
            match (due, self.node.next_time()) {
                (Some((due, index)), next) if next.is_none_or(|next| due <= next) => {
                    self.node.advance_to(due);
                    self.outcomes()?;
                    return self.act(index);
                }
                (_, Some(_)) => self.step()?,
                (_, None) => return Err("nothing is under way, and a client waits".into()),
            }
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.node.step();
        if self
            .full_until
            .is_some_and(|until| until <= self.node.time())
        {
            self.heal_disk();
        }
        self.outcomes()
    }

    fn act(&mut self, index: usize) -> Result<(), String> {
        let mut rng = self.rng.fork();
        let account = self.clients[index].account;
        if rng.one_in(12) {
            return self.append(index, &mut rng);
        }
        if let Some(view) = &self.clients[index].view
            && let Some(told) = self
                .uids
                .get(&account)
                .and_then(|uids| uids.to_be_said(&view.name))
        {
            let name = view.name.clone();
            self.note("named");
            let call = MailboxCall::Named {
                told: None,
                modseq: None,
                name: MailboxName::new(&name).map_err(|error| error.to_string())?,
                uid_validity: self
                    .uids
                    .get(&account)
                    .and_then(Uids::uid_validity)
                    .unwrap_or(0),
                numbers: vec![told],
            };
            self.say(|| format!("client {index} {call:?}"));
            self.clients[index].due = None;
            let op = Op::Named(name);
            let planned = Planned {
                call,
                op,
                about: None,
            };
            self.ask(Some(index), account, planned);
            return Ok(());
        }
        self.next_body += 1;
        let fresh = format!("fresh{}", self.next_body);
        let Some(history) = self.histories.get(&account) else {
            return Ok(());
        };
        let mut planned = self.clients[index].plan(&mut rng, history.present(), &fresh);
        if self.uids.get(&account).is_some_and(Uids::may_be_taken_over)
            && let MailboxCall::Expunge { up_to: uid, .. } = &mut planned.call
            && let Op::Expunge { up_to, .. } = &mut planned.op
        {
            // Which messages get new UIDs meanwhile, the model does not know.
            (*uid, *up_to) = (u32::MAX, Number::MAX);
        }
        self.note(kind(&planned.call));
        self.say(|| format!("client {index} {:?}", planned.call));
        self.clients[index].due = None;
        self.ask(Some(index), account, planned);
        Ok(())
    }

    /// Uploads a body and appends it: the upload may be cut short by whatever happens meanwhile.
    fn append(&mut self, index: usize, rng: &mut Rng) -> Result<(), String> {
        let account = self.clients[index].account;
        let name = self
            .histories
            .get(&account)
            .map_or_else(String::new, |history| {
                client::a_name(rng, history.present())
            });
        self.note("APPEND");
        let Some((blob, body)) = self.upload()? else {
            self.clients[index].due = Some(self.node.time() + 1000);
            return Ok(());
        };
        let flags: BTreeSet<u8> = (0..client::FLAGS_COUNT).filter(|_| rng.one_in(4)).collect();
        let call = MailboxCall::Append {
            session: self.clients[index].session,
            name: MailboxName::new(&name).map_err(|error| error.to_string())?,
            messages: vec![NewMail {
                flags: client::flags(&flags),
                date: Date {
                    seconds: 1,
                    zone_minutes: 0,
                },
                size: body,
                open_end: false,
                blob,
                content: content(body),
            }],
            replaces: None,
        };
        self.say(|| format!("client {index} appends {body} to {name}"));
        self.clients[index].due = None;
        self.ask(
            Some(index),
            account,
            Planned {
                call,
                op: Op::Append {
                    name: name.clone(),
                    body,
                    flags,
                },
                about: Some(name),
            },
        );
        Ok(())
    }

    fn upload(&mut self) -> Result<Option<(BlobName, u32)>, String> {
        self.next_body += 1;
        let body = self.next_body;
        let Reply::Upload(upload) = self.ask_and_wait(Call::BlobCreate(None))? else {
            return Ok(None);
        };
        let bytes = text(body).into();
        if !matches!(
            self.ask_and_wait(Call::BlobWrite { upload, bytes })?,
            Reply::Done
        ) {
            return Ok(None);
        }
        match self.ask_and_wait(Call::BlobFinish { upload })? {
            Reply::Blob(blob) => Ok(Some((blob, body))),
            _ => Ok(None),
        }
    }

    fn ask(&mut self, client: Option<usize>, account: AccountId, planned: Planned) {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.node
            .call(request, Call::mailbox(account, planned.call.clone()));
        self.asked.insert(
            request,
            Asked {
                client,
                account,
                planned,
                reached: None,
            },
        );
    }

    /// Asks for the world's own purposes.
    fn ask_and_wait(&mut self, call: Call) -> Result<Reply, String> {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.node.call(request, call);
        let runs = self.node.runs();
        loop {
            if let Some(reply) = self.answers.remove(&request) {
                return Ok(reply);
            }
            // What was asked before a crash is never answered.
            let is_lost = self.node.runs() != runs && self.node.is_quiet();
            if is_lost || self.node.next_time().is_none() {
                return Ok(Reply::Failed(Failure::Temporary));
            }
            self.step()?;
        }
    }

    fn deliver(&mut self) -> Result<(), String> {
        let accounts: Vec<AccountId> = self.histories.keys().copied().collect();
        let account = *self.rng.pick(&accounts);
        let target = (*self.rng.pick(&client::NAMES)).to_owned();
        let Some((blob, body)) = self.upload()? else {
            return Ok(());
        };
        let id = queue::entry_id(&blob.upload);
        let delivery = Delivery {
            account,
            target: MailboxName::new(&target).map_err(|error| error.to_string())?,
            content: content(body),
            size: body,
            open_end: false,
            sent: false,
        };
        let date = Date {
            seconds: 2,
            zone_minutes: 0,
        };
        let entry = Entry {
            id,
            sender: "a@example.com".into(),
            deliveries: vec![delivery],
            blob,
            date,
        };
        self.entries.insert(
            id.0,
            Sent {
                account,
                target,
                body,
                acknowledged: false,
                numbers: BTreeMap::new(),
                reached: false,
            },
        );
        self.say(|| format!("message {body} comes for {account}"));
        let reply = self.ask_and_wait(Call::Accept(entry))?;
        if let (Reply::Done, Some(sent)) = (reply, self.entries.get_mut(&id.0)) {
            sent.acknowledged = true;
        }
        Ok(())
    }

    fn outcomes(&mut self) -> Result<(), String> {
        // One node has no network.
        self.node.wrote.clear();
        while let Some(outcome) = self.node.outcome() {
            self.say(|| format!("    {outcome:?}"));
            match outcome {
                Outcome::Reached(request) => self.reached(request),
                Outcome::DeliveryReached(entry, ticket) => self.delivery_reached(entry.0, ticket),
                Outcome::DeliveryDone(entry, ticket) => {
                    self.delivery_settled(entry.0, ticket, Fate::Acknowledged)
                }
                Outcome::DeliveryFailed(entry, ticket) => {
                    self.delivery_settled(entry.0, ticket, Fate::Failed)
                }
                Outcome::Reply(request, reply) => self.replied(request, reply)?,
                Outcome::CommitFailed => {
                    self.blurred = true;
                    self.uncertain += 1;
                }
                Outcome::Notify(session, _) => {
                    if let Some(client) = self
                        .clients
                        .iter_mut()
                        .find(|client| client.session == session)
                        && client.due.is_some()
                    {
                        client.due = Some(self.node.time());
                    }
                }
                Outcome::Stopped(cause) if self.node.disk.faults.sync_fails => {
                    self.say(|| format!("stopped: {cause}"));
                    self.node.disk.faults.sync_fails = false;
                    return self.crash();
                }
                Outcome::Stopped(cause) => return Err(format!("the node stopped: {cause}")),
                Outcome::Wake(..) | Outcome::Unlink(_) => {
                    return Err("a node without peers wants to send".into());
                }
                Outcome::Admin(..) | Outcome::Note(_) => {}
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Number {
        self.next_number += 1;
        self.next_number
    }

    fn reached(&mut self, request: RequestId) {
        let number = self.number();
        let certain = self.uncertain;
        let Some(asked) = self.asked.get_mut(&request) else {
            return;
        };
        let Some(history) = self.histories.get_mut(&asked.account) else {
            return;
        };
        let Some(uids) = self.uids.get_mut(&asked.account) else {
            return;
        };
        let mut op = asked.planned.op.clone();
        if let Op::Rename(from, to, shuffles) = &mut op {
            *shuffles = client::shuffles(history.present(), from, to, |name| uids.was_told(name));
        }
        if let Some(name) = &asked.planned.about {
            uids.asked(name);
        }
        let verdict = history.reached(number, op);
        let about = client::about(history.present(), asked.planned.about.as_deref())
            .map(<[Message]>::to_vec);
        asked.reached = Some(Reached {
            number,
            verdict,
            about,
            certain,
        });
    }

    fn delivery_reached(&mut self, entry: [u8; 16], ticket: Ticket) {
        let number = self.number();
        let Some(sent) = self.entries.get_mut(&entry) else {
            return;
        };
        let Some(history) = self.histories.get_mut(&sent.account) else {
            return;
        };
        sent.numbers.insert(ticket, number);
        sent.reached = true;
        history.reached(
            number,
            Op::Deliver {
                entry,
                target: sent.target.clone(),
                body: sent.body,
            },
        );
    }

    fn delivery_settled(&mut self, entry: [u8; 16], ticket: Ticket, fate: Fate) {
        let Some(sent) = self.entries.get(&entry) else {
            return;
        };
        let (Some(history), Some(number)) = (
            self.histories.get_mut(&sent.account),
            sent.numbers.get(&ticket),
        ) else {
            return;
        };
        history.settle(*number, fate);
    }

    fn replied(&mut self, request: RequestId, reply: Reply) -> Result<(), String> {
        let Some(asked) = self.asked.remove(&request) else {
            self.answers.insert(request, reply);
            return Ok(());
        };
        if let Some(index) = asked.client {
            self.clients[index].due = Some(self.node.time() + self.rng.below(20_000));
        }
        let Some(reached) = &asked.reached else {
            return Err(format!(
                "{:?} was answered before it reached its owner",
                asked.planned.call
            ));
        };
        let fate = if client::is_done(&reply) {
            Fate::Acknowledged
        } else {
            Fate::Failed
        };
        if let Some(history) = self.histories.get_mut(&asked.account) {
            history.settle(reached.number, fate);
        }
        if let Reply::Failed(Failure::Storage | Failure::Temporary) = reply {
            self.note("refused for the disk");
            self.blurred = true;
            self.uncertain += 1;
            if let Some(view) = asked
                .client
                .and_then(|index| self.clients[index].view.as_mut())
            {
                view.gone = true;
            }
            return Ok(());
        }
        let certain = !self.blurred && reached.certain == self.uncertain;
        if let Reply::Failed(Failure::Gone) = reply {
            if let Some(index) = asked.client {
                self.clients[index].view = None;
            }
            return Ok(());
        }
        if certain
            && !matches!(asked.planned.op, Op::Nothing)
            && (reached.verdict == Verdict::Done) != client::is_done(&reply)
        {
            return Err(format!(
                "{:?} should be {:?}, was answered by {reply:?}",
                asked.planned, reached.verdict
            ));
        }
        self.told(&asked, reached, &reply, certain)
    }

    fn maybe_fault(&mut self) -> Result<(), String> {
        let mut hits = |often: u64| often > 0 && self.rng.one_in(often);
        let (crash, full, sync_failure) = (
            hits(self.plan.crash),
            hits(self.plan.full),
            hits(self.plan.sync_failure),
        );
        let (clock, hangup, delivery, old_disk) = (
            hits(self.plan.clock),
            hits(self.plan.hangup),
            hits(self.plan.delivery),
            hits(self.plan.old_disk),
        );
        if delivery {
            self.note("delivery");
            self.deliver()?;
        }
        if clock {
            self.note("clock jump");
            let jump = self.rng.below(7_200_000_000);
            let offset = &mut self.node.wall_offset_micros;
            *offset = if self.rng.one_in(2) {
                *offset + jump
            } else {
                offset.saturating_sub(jump)
            };
        }
        if hangup && !self.clients.is_empty() {
            self.note("hangup");
            let index = usize::try_from(self.rng.below(self.clients.len() as u64)).unwrap_or(0);
            self.disconnect(index);
        }
        if full && self.full_until.is_none() {
            self.note("full disk");
            self.say(|| "the disk is full".into());
            // Below the reserve, or below what the engine needs, too.
            self.node.disk.faults.below_reserve = true;
            self.node.disk.faults.full = self.rng.one_in(2);
            self.full_until = Some(self.node.time() + self.rng.between(1_000, 2_000_000));
        }
        if sync_failure {
            self.note("failed sync");
            self.say(|| "the next sync fails".into());
            self.node.disk.faults.sync_fails = true;
        }
        if crash {
            self.note("crash");
            self.crash()?;
        }
        if old_disk {
            self.old_disk()?;
        }
        Ok(())
    }

    fn disconnect(&mut self, index: usize) {
        let session = self.session();
        let client = &mut self.clients[index];
        self.node.hangup(client.session);
        client.session = session;
        client.view = None;
        client.due = Some(self.node.time() + 1_000);
        // What it had asked is still carried out, and nobody hears the answer.
        for asked in self
            .asked
            .values_mut()
            .filter(|asked| asked.client == Some(index))
        {
            asked.client = None;
        }
    }

    fn heal_disk(&mut self) {
        if self.full_until.take().is_some() {
            self.say(|| "the disk has room again".into());
            self.node.disk.faults.full = false;
            self.node.disk.faults.below_reserve = false;
        }
    }

    fn crash(&mut self) -> Result<(), String> {
        self.say(|| "crash".into());
        self.heal_disk();
        self.node.disk.faults.sync_fails = false;
        let before: BTreeMap<AccountId, usize> = self
            .histories
            .iter()
            .map(|(id, history)| (*id, history.len()))
            .collect();
        let seed = self.rng.number();
        self.node.crash(seed);
        self.began_again();
        self.until_quiet()?;
        self.compare(Some(&before))
    }

    /// The node has lost all that was under way.
    fn began_again(&mut self) {
        self.asked.clear();
        self.answers.clear();
        for sent in self.entries.values_mut() {
            // The queue counts its tickets anew.
            sent.numbers.clear();
        }
        for index in 0..self.clients.len() {
            self.disconnect(index);
        }
    }

    /// The node is stopped. The first time its disk is copied; later the copy is put back, and what came since is lost.
    fn old_disk(&mut self) -> Result<(), String> {
        let Some(mut backup) = self.backup.take() else {
            self.note("backup");
            self.crash()?;
            self.say(|| "a copy of the disk is made".into());
            // What was read to compare has been announced.
            self.until_quiet()?;
            let models = self.histories.iter();
            self.backup = Some(Backup {
                disk: self.node.disk.copy(),
                models: models
                    .map(|(account, history)| (*account, history.present().clone()))
                    .collect(),
                entries: self.entries.keys().copied().collect(),
                slots_free: self.slots_free.clone(),
                round: self.round,
                drawn: BTreeSet::new(),
            });
            return Ok(());
        };
        self.note("old disk");
        self.heal_disk();
        self.node.disk.faults.sync_fails = false;
        (self.slots_free, self.round) = (backup.slots_free.clone(), backup.round);
        if self.slots_free.is_empty() {
            self.note("slots used up");
            self.round += 1;
            self.slots_free = (0..64).collect();
        }
        // That one copy which is put back twice draws one slot twice is the chance that is left (docs/decisions/0011); here it is not taken.
        let fresh = self
            .slots_free
            .iter()
            .filter(|slot| !backup.drawn.contains(slot));
        let fresh: Vec<u8> = fresh.copied().collect();
        let slot = *self.rng.pick(&fresh);
        self.slots_free.retain(|free| *free != slot);
        backup.drawn.insert(slot);
        let first = backup.drawn.len() == 1;
        let lead = owner::Config::default().lead;
        let identity = Identity {
            incarnation: Incarnation::from_hash(self.rng.number() | 1),
            slot,
            round: self.round,
        };
        self.say(|| format!("the copy of the disk is put back: {identity:?}"));
        self.node.put_back(backup.disk.clone(), identity);
        self.entries.retain(|id, _| backup.entries.contains(id));
        self.began_again();
        for (account, model) in &backup.models {
            if let Some(history) = self.histories.get_mut(account) {
                history.settled(model.clone());
            }
            if let Some(uids) = self.uids.get_mut(account) {
                uids.put_back(first && self.plan.lead == lead, self.round > backup.round);
            }
        }
        self.until_quiet()?;
        self.compare(None)?;
        let left = self.round == backup.round && backup.drawn.len() < backup.slots_free.len();
        if left && self.rng.one_in(2) {
            self.backup = Some(backup);
        }
        Ok(())
    }

    /// Lets the node finish what is under way, deliveries included.
    fn until_quiet(&mut self) -> Result<(), String> {
        let end = self.node.time() + 600_000_000;
        while !(self.node.is_quiet() && self.node.queue_len() == 0) {
            if self.node.time() > end {
                return Err("the node does not come to rest".into());
            }
            if self.node.next_time().is_none() {
                return Ok(());
            }
            self.step()?;
        }
        Ok(())
    }
}

fn text(body: u32) -> String {
    format!("message {body}")
}

fn content(body: u32) -> bytes::Bytes {
    Content {
        prefix: bytes::Bytes::new(),
        summary: text(body).into(),
    }
    .encode()
}

fn kind(call: &MailboxCall) -> &'static str {
    match call {
        MailboxCall::List { .. } => "LIST",
        MailboxCall::Usage => "GETQUOTA",
        MailboxCall::Status { .. } | MailboxCall::Statuses { .. } => "STATUS",
        MailboxCall::Select { .. } => "SELECT",
        MailboxCall::Unselect { .. } => "UNSELECT",
        MailboxCall::Changes { .. } => "NOOP",
        MailboxCall::Known { .. } => "IDLE",
        MailboxCall::Since { .. } => "UID FETCH (CHANGEDSINCE)",
        MailboxCall::Believed { .. } => "SEARCH (MODSEQ)",
        MailboxCall::Rows { .. } | MailboxCall::Flagged { .. } => "FETCH",
        MailboxCall::Append { .. } => "APPEND",
        MailboxCall::Import { .. } => "import",
        MailboxCall::Copy { remove: false, .. } => "COPY",
        MailboxCall::Copy { remove: true, .. } => "MOVE",
        MailboxCall::Store { .. } => "STORE",
        MailboxCall::Expunge { .. } => "EXPUNGE",
        MailboxCall::Remove { .. } => "REMOVE",
        MailboxCall::Create { .. } => "CREATE",
        MailboxCall::Delete { .. } => "DELETE",
        MailboxCall::Rename { .. } => "RENAME",
        MailboxCall::Subscribe { .. } => "SUBSCRIBE",
        MailboxCall::Named { .. } => "named",
    }
}

/// So many seeds must have drawn all of it.
pub const COVERED_AFTER_SEEDS: u64 = 100;

/// Everything that a run of many seeds must have drawn; one that never was means that the simulator does not test it.
pub const COVERAGE: [&str; 25] = [
    "APPEND",
    "COPY",
    "CREATE",
    "DELETE",
    "EXPUNGE",
    "FETCH",
    "LIST",
    "MOVE",
    "NOOP",
    "RENAME",
    "SELECT",
    "STATUS",
    "STORE",
    "SUBSCRIBE",
    "UNSELECT",
    "backup",
    "clock jump",
    "crash",
    "delivery",
    "failed sync",
    "full disk",
    "hangup",
    "named",
    "old disk",
    "slots used up",
];
