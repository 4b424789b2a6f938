//! Clients at any node, and what they ask.

use std::collections::BTreeSet;

use whimbrel_service::{
    api::{
        AccountId, Asker, Call, Delivery, Entry, FlagChange, MailboxCall, MailboxName, NewMail,
        Replaced, Reply, SessionId, UploadId,
    },
    queue,
};

use super::{
    MS, SECOND, Uids, World,
    blobs::{Given, content, date, first, text},
    is_keeping,
    movers::Knows,
    queries::More,
};
use whimbrel_testkit::Rng;

use crate::client::{self, NAMES};

/// A connection to one node.
pub(super) struct Client {
    pub(super) session: SessionId,
    pub(super) account: AccountId,
    pub(super) node: usize,
    pub(super) view: Option<View>,
    /// What it knows of INBOX, wherever it was.
    pub(super) knows: Option<Knows>,
    pub(super) with_qresync: bool,
    /// It has said what it knows, and selects INBOX next.
    pub(super) has_said: bool,
    /// It has asked for something since it came here and had read all.
    has_asked: bool,
    /// When it does something next; none while it waits for an answer.
    pub(super) due: Option<u64>,
}

/// The mailbox that it looks at.
pub(super) struct View {
    pub(super) name: String,
    pub(super) uids: Uids,
    pub(super) as_of: u64,
    /// What it was told of and has not read yet.
    pub(super) unread: Vec<u32>,
    /// What it has asked for.
    pub(super) reading: Vec<u32>,
    /// What it has to name first, and whether it must look again for that.
    pub(super) names: Option<MailboxCall>,
    pub(super) looks_again: bool,
    pub(super) uid_validity: u32,
    pub(super) uid_next: u32,
    pub(super) modseq: u64,
}

/// What was asked.
pub(super) struct Asked {
    /// Who asked, if he still listens.
    pub(super) client: Option<usize>,
    pub(super) node: usize,
    pub(super) account: AccountId,
    pub(super) what: What,
    /// A client's own, which goes on with it if a part is done.
    pub(super) call: Option<MailboxCall>,
    /// When.
    pub(super) at: u64,
}

pub(super) enum What {
    Select(String),
    Changes(String),
    Status(String),
    Rows,
    Named,
    Append(Vec<u32>),
    /// Who receives for an address; who does for those before it, and how many there are behind it.
    Resolve(Vec<AccountId>, u64),
    Deliver(u32, Vec<AccountId>),
    Store(BTreeSet<u8>),
    Expunge,
    More(More),
    Other,
}

impl Asked {
    /// An APPEND of somebody who looks at nothing.
    pub(super) fn append(node: usize, account: AccountId, body: u32, at: u64) -> Self {
        Asked {
            client: None,
            node,
            account,
            what: What::Append(vec![body]),
            call: None,
            at,
        }
    }

    /// Anything of somebody who looks at nothing.
    pub(super) fn other(node: usize, account: AccountId, call: MailboxCall, at: u64) -> Self {
        Asked {
            client: None,
            node,
            account,
            what: What::Other,
            call: Some(call),
            at,
        }
    }
}

pub(super) fn mailbox(name: &str) -> MailboxName {
    MailboxName::new(name).unwrap_or_else(|_| MailboxName::inbox())
}

/// A message comes with some flags, not `\Deleted`: as it comes nobody wants to remove it.
pub(super) fn flag(mail: &mut NewMail, rng: &mut Rng) {
    let numbers = 1..client::FLAGS_COUNT;
    mail.flags = client::flags(&numbers.filter(|_| rng.one_in(6)).collect());
}

/// In these seeds half of what is asked where messages are removed marks, unmarks, moves and expunges them: what removes a message at one node meets
/// what saves it at another.
fn quarrels(seed: u64) -> bool {
    seed % 3 == 1
}

/// In these seeds a client goes to another node whenever it has read what there is and has asked for one thing.
fn moves_at_every_step(seed: u64) -> bool {
    Rng::new(seed ^ 0x0000_7a3e_11e6).one_in(12)
}

/// INBOX, or one of a few names.
fn any_name(rng: &mut Rng) -> String {
    if rng.one_in(3) {
        "INBOX".to_owned()
    } else {
        (*rng.pick(&NAMES)).to_owned()
    }
}

impl World {
    pub(super) fn new_client(&mut self, index: u64) {
        let account = self.accounts[usize::try_from(index % self.plan.accounts).unwrap_or(0)];
        let node = self.any_serving_of(account);
        let due = Some(self.now + SECOND + self.rng.below(self.plan.pause_micros));
        let session = self.session();
        self.clients.push(Client {
            session,
            account,
            node,
            view: None,
            knows: None,
            with_qresync: index.is_multiple_of(2),
            has_said: false,
            has_asked: false,
            due,
        });
    }

    pub(super) fn session(&mut self) -> SessionId {
        self.next_session += 1;
        SessionId(self.next_session)
    }

    /// The connection is gone; a new one is made, to this node.
    fn reconnect(&mut self, index: usize, node: usize) {
        let session = self.session();
        let old = self.clients[index].session;
        let from = self.clients[index].node;
        if self.members[from].down.is_none() && !self.members[from].out {
            self.bring(from);
            self.members[from].node.hangup(old);
        }
        for asked in self.asked.values_mut() {
            if asked.client == Some(index) {
                asked.client = None;
            }
        }
        let pause = self.rng.below(self.plan.pause_micros);
        let client = &mut self.clients[index];
        client.session = session;
        client.node = node;
        client.view = None;
        client.has_said = false;
        client.has_asked = false;
        client.due = Some(self.now + 1 + pause);
    }

    pub(super) fn wander(&mut self, index: usize) {
        let node = self.any_serving_of(self.clients[index].account);
        self.reconnect(index, node);
    }

    /// A node has died: what was asked of it is never answered.
    pub(super) fn lose_clients_of(&mut self, node: usize) {
        self.asked.retain(|_, asked| asked.node != node);
        self.lose_protocol_clients_of(node);
        for index in 0..self.clients.len() {
            if self.clients[index].node == node {
                let to = if self.members[node].out || self.rng.one_in(2) {
                    self.any_serving_of(self.clients[index].account)
                } else {
                    node
                };
                self.reconnect(index, to);
            }
        }
    }

    pub(super) fn ask(&mut self, index: usize, call: MailboxCall, what: What) {
        let request = self.request();
        let client = &mut self.clients[index];
        client.due = None;
        let (account, node) = (client.account, client.node);
        self.say(|| format!("client {index} at {node}: {call:?}"));
        self.removals
            .asked(request, node, account, &call, &self.looks);
        let by = self.members[node].id;
        self.flagging
            .asked(request, by, account, &call, &self.looks);
        self.bring(node);
        let other_nodes = match &call {
            // As an administrator's session asks (`frontend::imap::Context::call`).
            MailboxCall::Import { .. } => 0,
            _ => self.plan.other_nodes,
        };
        let view = self.clients[index].view.as_ref();
        let uid_validity = view.filter(|_| call.names_uids());
        let asked = Asked {
            client: Some(index),
            node,
            account,
            what,
            call: Some(call.clone()),
            at: self.now,
        };
        let call = Call::Mailbox {
            account,
            uid_validity: uid_validity.map(|view| view.uid_validity),
            call,
            other_nodes,
        };
        self.members[node].node.call(request, call);
        self.asked.insert(request, asked);
    }

    /// Somebody who does not look at anything appends a message, or sets flags on messages that a node shows, and is answered when another node has that.
    pub(super) fn write(&mut self, node: usize, uids: Option<Vec<u32>>) {
        let (request, account, session) = (self.request(), self.accounts[0], self.session());
        self.bring(node);
        let (call, what) = match uids {
            None => {
                let Some(append) = self.appending(node, account, session, "INBOX", 1, None) else {
                    return;
                };
                append
            }
            Some(uids) => {
                let set = BTreeSet::from([1, 3]);
                let call = MailboxCall::Store {
                    session,
                    name: mailbox("INBOX"),
                    uids,
                    change: FlagChange::Add,
                    flags: client::flags(&set),
                    unchanged_since: None,
                };
                (call, What::Store(set))
            }
        };
        self.say(|| format!("at {node}, for two nodes: {call:?}"));
        let call = Call::Mailbox {
            account,
            call,
            uid_validity: None,
            other_nodes: 1,
        };
        self.members[node].node.call(request, call);
        let asked = Asked {
            client: None,
            node,
            account,
            what,
            call: None,
            at: self.now,
        };
        self.asked.insert(request, asked);
    }

    /// Asks a node for somebody who is no client of this world.
    pub(super) fn ask_for(&mut self, node: usize, asked: Asked) {
        let Some(call) = asked.call.clone() else {
            return;
        };
        let request = self.request();
        self.say(|| format!("a guest at {node}: {call:?}"));
        let call = Call::Mailbox {
            account: asked.account,
            call,
            uid_validity: None,
            other_nodes: self.plan.other_nodes,
        };
        self.members[node].node.call(request, call);
        self.asked.insert(request, asked);
    }

    /// Asks a node for the world's own purposes.
    pub(super) fn ask_and_wait(
        &mut self,
        node: usize,
        account: AccountId,
        call: MailboxCall,
    ) -> Result<Reply, String> {
        self.ask_node(node, Call::mailbox(account, call))
    }

    pub(super) fn ask_node(&mut self, node: usize, call: Call) -> Result<Reply, String> {
        let request = self.request();
        self.bring(node);
        self.members[node].node.call(request, call);
        let end = self.now + 60 * SECOND;
        loop {
            if let Some(reply) = self.answers.remove(&request) {
                return Ok(reply);
            }
            if self.now > end {
                return Err(format!("node {node} does not answer"));
            }
            self.step()?;
        }
    }

    pub(super) fn act(&mut self, index: usize) -> Result<(), String> {
        let mut rng = self.rng.fork();
        let (account, node) = (self.clients[index].account, self.clients[index].node);
        if self.stands_still(index) {
            return Ok(());
        }
        if self.members[node].down.is_some() || !self.serves(node, account) {
            let to = if rng.one_in(2) {
                self.any_serving_of(account)
            } else {
                node
            };
            let pause = rng.below(SECOND);
            self.reconnect(index, to);
            self.clients[index].due = Some(self.now + 1 + pause);
            return Ok(());
        }
        if self.reads_first(index, &mut rng) {
            return Ok(());
        }
        if moves_at_every_step(self.plan.seed)
            && std::mem::replace(&mut self.clients[index].has_asked, true)
        {
            self.note("cluster: client moves at every step");
            self.wander(index);
            return Ok(());
        }
        if self.asks_more(index) || self.uses_own_names(index) {
            return Ok(());
        }
        self.asks_any(index, &mut rng)
    }

    /// A client that has not selected a mailbox does, and one that has reads what is new there; whether it asks for that.
    fn reads_first(&mut self, index: usize, rng: &mut Rng) -> bool {
        let session = self.clients[index].session;
        let Some(view) = &mut self.clients[index].view else {
            let client = &self.clients[index];
            let name = match client.has_said || (client.knows.is_some() && rng.one_in(2)) {
                true => "INBOX".to_owned(),
                false => any_name(rng),
            };
            if let Some(knows) = &client.knows
                && (name == "INBOX" && client.with_qresync && !client.has_said)
            {
                let call = knows.before_select();
                self.ask(index, call, What::Named);
                return true;
            }
            self.clients[index].has_said = false;
            let call = MailboxCall::Select {
                session,
                name: mailbox(&name),
                read_only: false,
            };
            self.note("cluster: SELECT");
            self.ask(index, call, What::Select(name));
            return true;
        };
        let name = view.name.clone();
        if let Some(call) = view.names.clone() {
            self.ask(index, call, What::Named);
            return true;
        }
        if std::mem::take(&mut view.looks_again) {
            let call = MailboxCall::Changes {
                session,
                since: view.as_of,
                expunges: true,
            };
            self.ask(index, call, What::Changes(name));
            return true;
        }
        if !view.unread.is_empty() {
            let uids = std::mem::take(&mut view.unread);
            view.reading.clone_from(&uids);
            let name = mailbox(&name);
            self.ask(index, MailboxCall::Rows { name, uids }, What::Rows);
            return true;
        }
        false
    }

    /// A client asks for anything, in the mailbox that it has selected or another one.
    fn asks_any(&mut self, index: usize, rng: &mut Rng) -> Result<(), String> {
        let client = &self.clients[index];
        let (account, session, keeping) =
            (client.account, client.session, is_keeping(client.account));
        let Some(view) = &client.view else {
            return Ok(());
        };
        let name = view.name.clone();
        let uids: Vec<u32> = view
            .uids
            .iter()
            .copied()
            .filter(|_| rng.one_in(3))
            .collect();
        let number = match quarrels(self.plan.seed) && !keeping && rng.one_in(2) {
            true => rng.between(15, 26),
            false => rng.below(40),
        };
        let (note, call, what) = match number {
            10..=14 => return self.append(index, rng),
            15..=19 => {
                let numbers = u8::from(keeping)..client::FLAGS_COUNT;
                let set: BTreeSet<u8> = numbers.filter(|_| rng.one_in(2)).collect();
                // Clients by bytes do not say what they are about to set.
                let change = if keeping && self.plan.protocol_clients > 0 {
                    FlagChange::Add
                } else {
                    *rng.pick(&[
                        FlagChange::Add,
                        FlagChange::Add,
                        FlagChange::Remove,
                        FlagChange::Replace,
                    ])
                };
                // Of each it is known which message it is.
                let mut uids = uids;
                uids.retain(|uid| !keeping || self.looks.owner(account, *uid).is_some());
                let call = MailboxCall::Store {
                    session,
                    name: mailbox(&name),
                    uids,
                    change,
                    flags: client::flags(&set),
                    unchanged_since: None,
                };
                ("cluster: STORE", call, What::Store(set))
            }
            20..=23 => {
                let call = MailboxCall::Copy {
                    session,
                    name: mailbox(&name),
                    uids,
                    to: mailbox(&any_name(rng)),
                    remove: keeping || rng.one_in(4),
                };
                ("cluster: COPY or MOVE", call, What::Other)
            }
            24..=26 if !keeping => {
                let call = MailboxCall::Expunge {
                    session,
                    name: mailbox(&name),
                    uids: None,
                    up_to: view.uids.last().copied().unwrap_or(0),
                };
                ("cluster: EXPUNGE", call, What::Expunge)
            }
            27..=28 => {
                let call = MailboxCall::Create {
                    name: mailbox(&any_name(rng)),
                    special_use: None,
                };
                ("cluster: CREATE", call, What::Other)
            }
            29 if !keeping && self.plan.deletes => {
                let call = MailboxCall::Delete {
                    name: mailbox(&any_name(rng)),
                };
                ("cluster: DELETE", call, What::Other)
            }
            30 => {
                let call = MailboxCall::Rename {
                    from: mailbox(&any_name(rng)),
                    to: mailbox(&any_name(rng)),
                    rest: None,
                };
                ("cluster: RENAME", call, What::Other)
            }
            31 => {
                let call = MailboxCall::Subscribe {
                    name: mailbox(&any_name(rng)),
                    subscribed: rng.one_in(2),
                };
                ("cluster: SUBSCRIBE", call, What::Other)
            }
            32..=33 => {
                let name = any_name(rng);
                let call = MailboxCall::Status {
                    name: mailbox(&name),
                };
                ("cluster: STATUS", call, What::Status(name))
            }
            34..=36 => {
                self.clients[index].view = None;
                self.clients[index].due = Some(self.now + 1);
                return Ok(());
            }
            _ => {
                let call = MailboxCall::Changes {
                    session,
                    since: view.as_of,
                    expunges: true,
                };
                ("cluster: NOOP", call, What::Changes(name))
            }
        };
        self.note(note);
        self.ask(index, call, what);
        Ok(())
    }

    /// APPEND of a message, of several at once, or in the place of one that is shown.
    fn append(&mut self, index: usize, rng: &mut Rng) -> Result<(), String> {
        let client = &self.clients[index];
        let (node, account, session) = (client.node, client.account, client.session);
        let view = client.view.as_ref();
        let shown = view.filter(|view| !is_keeping(account) && !view.uids.is_empty());
        let replaced = shown.map(|view| Replaced {
            name: mailbox(&view.name),
            uid: *rng.pick(&view.uids.iter().copied().collect::<Vec<_>>()),
        });
        self.bring(node);
        let name = NAMES[usize::try_from(rng.below(4)).unwrap_or(0)];
        let (note, count, replaces) = match (rng.below(6), replaced) {
            (0, _) => ("cluster: APPEND of several", rng.between(2, 4), None),
            (1 | 2, Some(replaced)) => ("cluster: REPLACE", 1, Some(replaced)),
            _ => ("cluster: APPEND", 1, None),
        };
        match self.appending(node, account, session, name, count, replaces) {
            Some((mut call, what)) => {
                if let MailboxCall::Append { messages, .. } = &mut call {
                    messages.iter_mut().for_each(|mail| flag(mail, rng));
                }
                self.note(note);
                self.ask(index, call, what);
            }
            None => self.clients[index].due = Some(self.now + MS),
        }
        Ok(())
    }

    /// APPEND of new messages, whose bodies are uploaded; `None`: the disk is full.
    fn appending(
        &mut self,
        node: usize,
        account: AccountId,
        session: SessionId,
        name: &str,
        count: u64,
        replaces: Option<Replaced>,
    ) -> Option<(MailboxCall, What)> {
        let (mut bodies, mut messages) = (Vec::new(), Vec::new());
        for _ in 0..count {
            self.next_body += 1;
            let mail = self.new_mail(node, self.next_body)?;
            self.losses.uploaded(self.next_body, mail.blob);
            bodies.push(self.next_body);
            messages.push(mail);
        }
        let call = MailboxCall::Append {
            session,
            name: mailbox(name),
            messages,
            replaces,
        };
        self.kept.made_at_once(account, &bodies);
        Some((call, What::Append(bodies)))
    }

    /// With its body uploaded.
    pub(super) fn new_mail(&mut self, node: usize, body: u32) -> Option<NewMail> {
        self.new_mail_called(node, body, None, first(body))
    }

    /// The same; its upload is called so, if that can be.
    pub(super) fn new_mail_called(
        &mut self,
        node: usize,
        body: u32,
        called: Option<UploadId>,
        (text, date, content): Given,
    ) -> Option<NewMail> {
        let node = &mut self.members[node].node;
        let blob = node.upload_as(called, text)?;
        Some(NewMail {
            flags: client::flags(&BTreeSet::new()),
            date,
            size: body,
            open_end: false,
            blob,
            content,
        })
    }

    /// The same; with the body.
    pub(super) fn appended(
        &mut self,
        node: usize,
        account: AccountId,
        session: SessionId,
        name: &str,
    ) -> Option<(MailboxCall, u32)> {
        let (call, _) = self.appending(node, account, session, name, 1, None)?;
        Some((call, self.next_body))
    }

    /// A message comes for an address, at some node.
    pub(super) fn deliver(&mut self) {
        let node = self.any_member();
        self.deliver_at(node);
    }

    /// At this one.
    pub(super) fn deliver_at(&mut self, node: usize) {
        if !self.members[node].is_up() {
            return;
        }
        // Of several recipients each is asked for.
        let more = if self.rng.one_in(4) {
            self.rng.between(1, 3)
        } else {
            0
        };
        self.resolve(node, Vec::new(), more);
    }

    /// Who receives for one more address, beside these; then for so many more.
    pub(super) fn resolve(&mut self, node: usize, targets: Vec<AccountId>, more: u64) {
        let (local, domain) = self.any_address();
        let request = self.request();
        self.bring(node);
        let domain = Some(domain);
        self.members[node].node.call(
            request,
            Call::Resolve {
                local,
                domain,
                asker: Asker::Front,
            },
        );
        let asked = Asked {
            client: None,
            node,
            account: self.accounts[0],
            what: What::Resolve(targets, more),
            call: None,
            at: self.now,
        };
        self.asked.insert(request, asked);
    }

    /// It is accepted for these.
    pub(super) fn accept(&mut self, node: usize, targets: Vec<AccountId>) {
        self.note("cluster: delivery");
        let target = *self.rng.pick(&NAMES);
        self.next_body += 1;
        let body = self.next_body;
        self.bring(node);
        let Some(blob) = self.members[node].node.upload(text(body)) else {
            return;
        };
        self.losses.uploaded(body, blob);
        let deliveries = targets.iter().map(|account| Delivery {
            account: *account,
            target: mailbox(target),
            content: content(body),
            size: body,
            open_end: false,
            sent: false,
        });
        let entry = Entry {
            id: queue::entry_id(&blob.upload),
            sender: "a@example.com".into(),
            deliveries: deliveries.collect(),
            blob,
            date: date(body),
        };
        self.say(|| format!("message {body} comes for {targets:?} at {node}"));
        let request = self.request();
        for account in &targets {
            self.kept.made(*account, body);
        }
        self.members[node].node.call(request, Call::Accept(entry));
        let asked = Asked {
            client: None,
            node,
            account: self.accounts[0],
            what: What::Deliver(body, targets),
            call: None,
            at: self.now,
        };
        self.asked.insert(request, asked);
    }
}
