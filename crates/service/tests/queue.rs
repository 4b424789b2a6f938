//! The queue's owner: by itself, and among other nodes, with stores, bodies and streams that a test holds back or loses.
//!
//! size: a world of its own and the scenarios in it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_mailbox::Order;
use whimbrel_service::{
    api::{
        AccountId, BlobName, Call, Date, Delivery, Entry, EntryId, Failure, MailboxName, QueueCall,
        QueueState, Reply,
    },
    figures::Figures,
    machine::{Input, Machine, Note, Now, Output, RequestId, RequiredCopies, Ticket},
    peers::{Frame, PeerInput, PeerOutput, Stream},
    queue::{Config, Limits, QueueOwner, entry_id},
    verify,
};
use whimbrel_storage::{Commit, Mutation, StoreError};

const SECOND: u64 = 1_000_000;

fn incarnation(node: usize) -> Incarnation {
    Incarnation::from_hash(node as u64 + 1)
}

fn entry(number: u8, recipients: u8) -> Entry {
    let delivery = |n| Delivery {
        account: AccountId([n; 16]),
        target: MailboxName::new(if n == 0 { "INBOX" } else { "Lists/x" }).unwrap(),
        content: Bytes::from(vec![n; 100]),
        size: 1000 + u32::from(n),
        open_end: false,
        sent: n == 2,
    };
    Entry {
        id: EntryId([number; 16]),
        sender: "carl@elsewhere.example".into(),
        deliveries: (0..recipients).map(delivery).collect(),
        blob: BlobName {
            hash: [number; 32],
            upload: [number; 16],
        },
        date: Date {
            seconds: 1_700_000_000,
            zone_minutes: 60,
        },
    }
}

/// One of many, for this account.
fn numbered(number: u32, account: u32) -> Entry {
    let mut entry = entry(0, 1);
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    entry.id = EntryId(id);
    entry.blob.upload = id;
    let mut name = [0; 16];
    name[..4].copy_from_slice(&account.to_be_bytes());
    entry.deliveries[0].account = AccountId(name);
    entry
}

/// A delivery that an owner of accounts was asked for.
struct Asked {
    ticket: Ticket,
    entry: Arc<Entry>,
    index: usize,
    others: RequiredCopies,
}

/// A node without owners of accounts.
struct Site {
    queue: QueueOwner,
    rows: BTreeMap<Vec<u8>, Bytes>,
    /// Who holds which body.
    held: BTreeMap<Vec<u8>, BlobName>,
    bodies: BTreeSet<BlobName>,
    commits: VecDeque<(Ticket, Commit)>,
    /// How many were made durable.
    durable: usize,
    asked: Vec<Asked>,
    /// Owners that are asked whether a delivery is under way, and have not answered.
    closing: Vec<EntryId>,
    awake: BTreeSet<usize>,
    words: Vec<String>,
    sweeps: Vec<Option<Order>>,
    replies: Vec<(RequestId, Reply)>,
}

/// Nodes with two owners each.
struct World {
    sites: Vec<Site>,
    config: Config,
    now: u64,
    requests: u64,
    /// Both are linked, if the first is below the second.
    links: BTreeSet<(usize, usize)>,
    /// Commits wait for [`World::commit`].
    holds_commits: BTreeSet<usize>,
    /// Bodies do not travel.
    holds_bodies: bool,
    /// Owners do not say that no delivery is under way.
    holds_closing: bool,
}

impl World {
    fn new(count: usize) -> World {
        World::with(count, |_| {})
    }

    fn with(count: usize, change: impl Fn(&mut Config)) -> World {
        let mut config = Config {
            owners: 2,
            ..Config::alone(incarnation(0), 0, Limits::default())
        };
        change(&mut config);
        let mut world = World {
            sites: Vec::new(),
            config,
            now: 100 * SECOND,
            requests: 0,
            links: BTreeSet::new(),
            holds_commits: BTreeSet::new(),
            holds_bodies: false,
            holds_closing: false,
        };
        for node in 0..count {
            let config = world.config_of(node, count);
            world.sites.push(Site::new(config, BTreeMap::new()));
        }
        world.settle();
        for one in 0..count {
            for other in one + 1..count {
                world.link(one, other);
            }
        }
        world.settle();
        world
    }

    fn config_of(&self, node: usize, count: usize) -> Config {
        let peers = (0..count).filter(|peer| *peer != node);
        Config {
            origin: incarnation(node),
            slot: node as u8,
            peers: peers.map(|peer| (incarnation(peer), peer as u8)).collect(),
            ..self.config.clone()
        }
    }

    fn times(&self) -> Now {
        Now {
            wall_micros: 1_700_000_000 * SECOND + self.now,
            mono_micros: self.now,
        }
    }

    fn input(&mut self, node: usize, input: Input) {
        let now = self.times();
        self.sites[node].queue.handle(now, input);
        self.settle();
    }

    fn link(&mut self, one: usize, other: usize) {
        self.links.insert((one, other));
        for (at, peer) in [(one, other), (other, one)] {
            let now = self.times();
            let linked = PeerInput::Linked(incarnation(peer), 0);
            self.sites[at].queue.handle(now, Input::Peer(linked));
        }
        self.settle();
    }

    fn unlink(&mut self, one: usize, other: usize) {
        let pair = (one.min(other), one.max(other));
        if self.links.remove(&pair) {
            for (at, peer) in [(one, other), (other, one)] {
                self.sites[at].awake.remove(&peer);
                let now = self.times();
                let gone = PeerInput::Unlinked(incarnation(peer));
                self.sites[at].queue.handle(now, Input::Peer(gone));
            }
            self.settle();
        }
    }

    fn isolate(&mut self, node: usize) {
        for peer in 0..self.sites.len() {
            self.unlink(node, peer);
        }
    }

    fn is_linked(&self, one: usize, other: usize) -> bool {
        self.links.contains(&(one.min(other), one.max(other)))
    }

    /// All that can be done is done.
    fn settle(&mut self) {
        loop {
            let mut idle = true;
            for node in 0..self.sites.len() {
                while let Some(output) = self.sites[node].queue.poll() {
                    idle = false;
                    self.carry_out(node, output);
                }
                if !self.holds_commits.contains(&node) && !self.sites[node].commits.is_empty() {
                    idle = false;
                    self.commit_one(node, true);
                }
                while !self.holds_closing
                    && let Some(id) = self.sites[node].closing.pop()
                {
                    idle = false;
                    let now = self.times();
                    self.sites[node].queue.handle(now, Input::Closed(id));
                }
                if let Some(peer) = self.sites[node].awake.pop_first() {
                    idle = false;
                    let ready =
                        PeerInput::Ready(PartitionId::QUEUE, Stream::open(incarnation(peer)));
                    let now = self.times();
                    self.sites[node].queue.handle(now, Input::Peer(ready));
                }
            }
            if idle {
                return;
            }
        }
    }

    fn carry_out(&mut self, node: usize, output: Output) {
        let now = self.times();
        let count = self.sites.len();
        let index_of = |peer: Incarnation| (0..count).find(|at| incarnation(*at) == peer).unwrap();
        let site = &mut self.sites[node];
        match output {
            Output::Commit(ticket, commit) => site.commits.push_back((ticket, commit)),
            Output::Load {
                ticket,
                partition,
                from,
                to,
            } => site.load(now, ticket, partition, &from, &to),
            Output::Deliver {
                ticket,
                entry,
                index,
                others,
            } => site.asked.push(Asked {
                ticket,
                entry,
                index,
                others,
            }),
            Output::Reply(request, reply) => site.replies.push((request, reply)),
            Output::Closing(id) => site.closing.extend([id, id]),
            Output::Swept { least, .. } => site.sweeps.push(least),
            Output::Log(Note::DeliveryTook(_)) => {}
            Output::Log(note) => site.words.push(format!("{note:?}")),
            Output::Fatal(cause) => site.words.push(cause),
            Output::Peer(PeerOutput::Wake(_, peer)) => {
                let peer = index_of(peer);
                if self.is_linked(node, peer) {
                    self.sites[node].awake.insert(peer);
                }
            }
            Output::Peer(PeerOutput::Send(peer, frame)) => {
                let peer = index_of(peer);
                if self.is_linked(node, peer) {
                    self.sites[node].awake.insert(peer);
                    let frame = PeerInput::Frame(incarnation(node), round(frame));
                    self.sites[peer].queue.handle(now, Input::Peer(frame));
                }
            }
            Output::Peer(PeerOutput::Push(peer, bodies)) => {
                let peer = index_of(peer);
                for body in bodies {
                    self.bring(node, peer, body);
                }
            }
            Output::Peer(PeerOutput::Coming(body) | PeerOutput::Request(body)) => {
                if site.bodies.contains(&body) {
                    let here = PeerInput::Body(body, now.mono_micros);
                    site.queue.handle(now, Input::Peer(here));
                } else {
                    for peer in 0..count {
                        self.bring(peer, node, body);
                    }
                }
            }
            Output::Peer(PeerOutput::Unlink(peer)) => self.unlink(node, index_of(peer)),
            other => panic!("{other:?}"),
        }
    }

    /// A body goes from one node to another.
    fn bring(&mut self, from: usize, to: usize, body: BlobName) {
        let may = self.is_linked(from, to) && !self.holds_bodies;
        if may && self.sites[from].bodies.contains(&body) {
            self.sites[to].bodies.insert(body);
            let here = PeerInput::Body(body, self.now);
            let now = self.times();
            self.sites[to].queue.handle(now, Input::Peer(here));
        }
    }

    /// The oldest commit is made durable, or refused.
    fn commit_one(&mut self, node: usize, done: bool) {
        let now = self.times();
        let site = &mut self.sites[node];
        let (ticket, commit) = site.commits.pop_front().expect("a commit");
        let input = match done && site.keep(commit) {
            true => Input::Committed(ticket),
            false => Input::CommitFailed(ticket),
        };
        site.queue.handle(now, input);
    }

    fn commit(&mut self, node: usize) {
        self.commit_one(node, true);
        self.settle();
    }

    fn refuse(&mut self, node: usize) {
        self.commit_one(node, false);
        self.settle();
    }

    /// Time passes.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds * 2 {
            self.now += SECOND / 2;
            for node in 0..self.sites.len() {
                if self.sites[node]
                    .queue
                    .deadline()
                    .is_some_and(|at| at <= self.now)
                {
                    self.input(node, Input::Time);
                }
            }
        }
    }

    /// A client gives a message to a node.
    fn accept(&mut self, node: usize, entry: &Entry) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.sites[node].bodies.insert(entry.blob);
        self.input(node, Input::Call(request, Call::Accept(entry.clone())));
        request
    }

    fn reply(&mut self, node: usize, request: RequestId) -> Option<Result<(), Failure>> {
        let replies = &mut self.sites[node].replies;
        let at = replies.iter().position(|(of, _)| *of == request)?;
        Some(match replies.remove(at).1 {
            Reply::Done => Ok(()),
            Reply::Failed(failure) => Err(failure),
            other => panic!("{other:?}"),
        })
    }

    /// All that owners were asked for is made. Which deliveries: what was handed out again counts once.
    fn deliver_all(&mut self, node: usize) -> Vec<(u8, usize)> {
        let asked = std::mem::take(&mut self.sites[node].asked);
        let made = asked.iter().map(|of| (of.entry.id.0[0], of.index));
        let made: BTreeSet<_> = made.collect();
        for of in asked {
            self.input(node, Input::Delivered(of.ticket));
        }
        made.into_iter().collect()
    }

    /// The node stops at once, and starts on what was durable.
    fn restart(&mut self, node: usize, change: impl Fn(&mut Config)) {
        self.isolate(node);
        let mut config = self.config_of(node, self.sites.len());
        change(&mut config);
        let before = &self.sites[node];
        let (rows, held, bodies) = (
            before.rows.clone(),
            before.held.clone(),
            before.bodies.clone(),
        );
        self.sites[node] = Site {
            held,
            bodies,
            ..Site::new(config, rows)
        };
        self.settle();
    }

    fn is_quiet(&self) -> bool {
        self.sites
            .iter()
            .all(|site| site.queue.is_quiet() && site.entries() == 0)
    }
}

/// Over the wire and back.
fn round(frame: Frame) -> Frame {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    let mut decoder = whimbrel_replication::wire::Decoder::default();
    decoder.push(&bytes);
    decoder.frame().unwrap().unwrap()
}

impl Site {
    fn new(config: Config, rows: BTreeMap<Vec<u8>, Bytes>) -> Site {
        Site {
            queue: QueueOwner::new(config),
            rows,
            held: BTreeMap::new(),
            bodies: BTreeSet::new(),
            commits: VecDeque::new(),
            durable: 0,
            asked: Vec::new(),
            closing: Vec::new(),
            awake: BTreeSet::new(),
            words: Vec::new(),
            sweeps: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// Pages of two rows.
    fn load(&mut self, now: Now, ticket: Ticket, partition: PartitionId, from: &[u8], to: &[u8]) {
        let rows = self.rows.range(from.to_vec()..to.to_vec());
        let rows = rows.filter(|_| partition == PartitionId::QUEUE);
        let rows: Vec<_> = rows
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let mut pages: Vec<_> = rows.chunks(2).map(<[_]>::to_vec).collect();
        pages.push(Vec::new());
        let last = pages.len() - 1;
        for (index, rows) in pages.into_iter().enumerate() {
            let done = index == last;
            self.queue.handle(now, Input::Loaded { ticket, rows, done });
        }
    }

    /// As a store does it; whether it takes the commit.
    fn keep(&mut self, commit: Commit) -> bool {
        let name = |blob: whimbrel_storage::BlobName| BlobName {
            hash: blob.hash.0,
            upload: blob.upload.0,
        };
        let comes = commit.mutations.iter().all(|mutation| match mutation {
            Mutation::Reference { blob, .. } => self.bodies.contains(&name(*blob)),
            _ => true,
        });
        if !comes {
            return false;
        }
        self.durable += 1;
        for mutation in commit.mutations {
            match mutation {
                Mutation::Put { key, value } => drop(self.rows.insert(key.to_vec(), value)),
                Mutation::Delete { key } => drop(self.rows.remove(&key[..])),
                Mutation::Reference { blob, holder } => {
                    self.held.insert(holder.to_vec(), name(blob));
                }
                Mutation::Release { blob, holder } => {
                    let held = self.held.remove(&holder[..]);
                    assert_eq!(held, Some(name(blob)), "what is let go was held");
                }
            }
        }
        true
    }

    /// Rows of entries, payloads and holds.
    fn entries(&self) -> usize {
        let rows = self.rows.keys();
        rows.filter(|key| matches!(key[0], b'e' | b'f' | b'p'))
            .count()
    }

    fn figures(&self, now: Now) -> Figures {
        self.queue.figures(now)
    }
}

#[test]
fn an_entry_from_acceptance_to_its_end() {
    let mut world = World::new(1);
    world.holds_commits.insert(0);
    let request = world.accept(0, &entry(1, 2));
    assert_eq!(world.reply(0, request), None);
    assert!(
        world.sites[0].asked.is_empty(),
        "nothing is delivered before it is on disk"
    );
    world.commit(0);
    assert_eq!(world.reply(0, request), Some(Ok(())));
    assert_eq!(
        (world.sites[0].entries(), world.sites[0].held.len()),
        (2, 1)
    );
    assert_eq!(world.deliver_all(0), [(1, 0), (1, 1)]);
    assert_eq!(world.sites[0].commits.len(), 1);
    world.commit(0);
    assert!(world.is_quiet() && world.sites[0].held.is_empty());
    let (_, _, faults) =
        verify::queue(&world.sites[0].rows.clone().into_iter().collect::<Vec<_>>());
    assert!(faults.is_empty(), "{faults:?}");
}

#[test]
fn what_is_too_much_is_refused_and_takes_no_room() {
    let limits = Limits {
        entries_max: 3,
        bytes_max: 1000,
        retry_after_seconds: 10,
    };
    let mut world = World::with(1, |config| config.limits = limits.clone());
    world.holds_commits.insert(0);
    let first = world.accept(0, &entry(1, 5));
    let second = world.accept(0, &entry(2, 5));
    assert_eq!(
        world.reply(0, second),
        Some(Err(Failure::Storage)),
        "their bytes"
    );
    world.refuse(0);
    assert_eq!(world.reply(0, first), Some(Err(Failure::Storage)));
    assert!(world.is_quiet(), "what was refused is not there");
    for number in 3..=5 {
        let request = world.accept(0, &entry(number, 1));
        world.commit(0);
        assert_eq!(world.reply(0, request), Some(Ok(())));
    }
    let fourth = world.accept(0, &entry(6, 1));
    assert_eq!(
        world.reply(0, fourth),
        Some(Err(Failure::Storage)),
        "three are there"
    );
    world.deliver_all(0);
    world.holds_commits.clear();
    world.settle();
    assert!(world.is_quiet());
    let mut many = entry(7, 1);
    many.deliveries[0].content = Bytes::from(vec![0; 7 << 20]);
    let request = world.accept(0, &many);
    assert_eq!(
        world.reply(0, request),
        Some(Err(Failure::TooManyRecipients))
    );
}

#[test]
fn what_was_accepted_is_found_again() {
    let mut world = World::new(1);
    for number in 1..=5 {
        world.accept(0, &entry(number, 2));
    }
    world.restart(0, |config| config.limits.entries_max = 3);
    let request = world.accept(0, &entry(6, 1));
    assert_eq!(world.reply(0, request), Some(Err(Failure::Storage)));
    let expected: Vec<_> = (1..=5)
        .flat_map(|number| [(number, 0), (number, 1)])
        .collect();
    let found = &world.sites[0].asked[3].entry;
    assert_eq!(format!("{found:?}"), format!("{:?}", entry(2, 2)));
    assert_eq!(world.deliver_all(0), expected);
    assert!(world.is_quiet());
}

/// However many were found at a start: their rows are read at once, and not all are kept.
#[test]
fn what_is_delivered_has_bounded_memory() {
    let mut world = World::new(1);
    for number in 1..=5 {
        world.accept(0, &entry(number, 2));
    }
    // Less than one entry takes: one alone always has room.
    world.restart(0, |config| config.limits.bytes_max = 300);
    let mut made = Vec::new();
    for _ in 0..5 {
        assert_eq!(world.sites[0].asked.len(), 2, "one entry");
        made.extend(world.deliver_all(0));
        world.pass(2);
    }
    made.sort_unstable();
    let all: Vec<_> = (1..=5)
        .flat_map(|number| [(number, 0), (number, 1)])
        .collect();
    assert_eq!(made, all);
    assert!(world.is_quiet());
}

#[test]
fn a_row_that_cannot_be_read_stops_the_node() {
    let mut world = World::new(1);
    world.accept(0, &entry(1, 1));
    let rows = world.sites[0].rows.clone();
    for (key, row) in rows.iter().filter(|(key, _)| key[0] == b'e') {
        let mut cut = rows.clone();
        cut.insert(key.clone(), row.slice(..row.len() - 1));
        world.sites[0] = Site::new(world.config_of(0, 1), cut);
        world.settle();
        assert!(world.sites[0].words[0].contains("cannot be read"));
        assert!(world.sites[0].asked.is_empty());
    }
    let mut queue = QueueOwner::new(world.config_of(0, 1));
    let Some(Output::Load { ticket, .. }) = queue.poll() else {
        panic!("it reads what is there first");
    };
    let error = StoreError::Read("no disk".into());
    queue.handle(Now::default(), Input::LoadFailed(ticket, error));
    queue.poll();
    assert!(matches!(queue.poll(), Some(Output::Fatal(cause)) if cause.contains("no disk")));
}

#[test]
fn entries_of_a_version_before_are_delivered_by_that() {
    let mut queue = QueueOwner::new(Config::alone(incarnation(0), 0, Limits::default()));
    let mut loads = Vec::new();
    while let Some(output) = queue.poll() {
        if let Output::Load {
            ticket, partition, ..
        } = output
        {
            loads.push((ticket, partition));
        }
    }
    let former = loads
        .iter()
        .find(|(_, of)| *of == PartitionId::FORMER_QUEUE);
    let rows = vec![(b"e1234".to_vec(), Bytes::from_static(b"row"))];
    let ticket = former.expect("it is looked at").0;
    let done = true;
    queue.handle(Now::default(), Input::Loaded { ticket, rows, done });
    let told = queue.poll();
    assert!(matches!(told, Some(Output::Fatal(text)) if text.contains("start that version")));
}

#[test]
fn what_was_not_delivered_is_handed_out_again() {
    let mut world = World::new(1);
    world.accept(0, &entry(1, 3));
    let tickets: Vec<Ticket> = world.sites[0].asked.drain(..).map(|of| of.ticket).collect();
    world.input(0, Input::Delivered(tickets[0]));
    world.input(0, Input::NotDelivered(tickets[1]));
    // The third says nothing.
    world.pass(9);
    assert!(world.sites[0].asked.is_empty());
    world.pass(2);
    assert_eq!(world.sites[0].words.len(), 1, "a warning");
    // A late answer to the first attempt is nobody's.
    world.input(0, Input::Delivered(tickets[2]));
    // What was made is known after a crash, too.
    world.restart(0, |_| {});
    assert_eq!(world.deliver_all(0), [(1, 1), (1, 2)]);
    assert!(world.is_quiet());
}

/// An account that takes nothing leaves hands for others. What is parked for it goes on as soon as it takes something.
#[test]
pub(crate) fn one_account_leaves_hands_to_others() {
    const STUCK: u32 = 2000;
    let mut world = World::new(1);
    for number in 0..STUCK {
        world.accept(0, &numbered(number, 1));
    }
    let begun = world.sites[0].asked.len();
    assert!((400..600).contains(&begun), "about half: {begun}");
    for (number, account) in (STUCK..).zip(2..500) {
        world.accept(0, &numbered(number, account));
    }
    let others = world.sites[0].asked.split_off(begun);
    assert_eq!(others.len(), 498, "each at once");
    // The account takes one after the other. No time passes.
    let mut made = 0;
    while let Some(of) = world.sites[0].asked.pop() {
        world.input(0, Input::Delivered(of.ticket));
        made += 1;
    }
    assert_eq!(made, STUCK);
    for of in others {
        world.input(0, Input::Delivered(of.ticket));
    }
    assert!(world.is_quiet());
}

/// What cannot be delivered is tried again later, and keeps nothing from others meanwhile, whosever it is.
#[test]
pub(crate) fn what_fails_makes_room_at_once() {
    const FAIL: u32 = 3000;
    let mut world = World::new(1);
    for number in 0..FAIL {
        world.accept(0, &numbered(number, number));
        for of in std::mem::take(&mut world.sites[0].asked) {
            world.input(0, Input::NotDelivered(of.ticket));
        }
    }
    world.accept(0, &numbered(FAIL, FAIL));
    assert_eq!(world.sites[0].asked.len(), 1, "there is room");
    world.deliver_all(0);
    world.pass(9);
    assert!(world.sites[0].asked.is_empty());
    // They come back at a bounded rate, and in the end they are taken.
    let mut made = BTreeSet::new();
    for second in 10..40 {
        world.pass(1);
        for of in std::mem::take(&mut world.sites[0].asked) {
            made.insert(of.entry.id);
            world.input(0, Input::Delivered(of.ticket));
        }
        let due = 1000 * (second / 10);
        assert_eq!(made.len(), due, "after {second} s");
    }
    assert!(world.is_quiet());
}

#[test]
fn a_removal_that_fails_is_tried_again_without_a_delivery() {
    let mut world = World::new(1);
    world.accept(0, &entry(1, 1));
    world.holds_commits.insert(0);
    world.deliver_all(0);
    world.refuse(0);
    assert!(!world.is_quiet());
    world.pass(2);
    assert!(world.sites[0].asked.is_empty());
    world.commit(0);
    assert!(world.sites[0].rows.keys().all(|key| key[0] != b'e'));
}

#[test]
fn an_entry_without_recipients_ends_at_once() {
    let mut world = World::new(1);
    let request = world.accept(0, &entry(1, 0));
    assert_eq!(world.reply(0, request), Some(Ok(())));
    assert!(world.is_quiet());
}

#[test]
fn ids_follow_from_uploads_and_do_not_show_them() {
    assert_eq!(entry_id(&[1; 16]), entry_id(&[1; 16]));
    assert_ne!(entry_id(&[1; 16]), entry_id(&[2; 16]));
    assert_ne!(entry_id(&[1; 16]).0, [1; 16]);
}

/// Which nodes have something of an entry on their disks.
fn holders(world: &World) -> Vec<usize> {
    let sites = world.sites.iter().enumerate();
    let with = sites.filter(|(_, site)| site.entries() > 0);
    with.map(|(node, _)| node).collect()
}

#[test]
fn mail_is_accepted_when_f_others_have_it() {
    for f in 1..=2 {
        let mut world = World::with(4, |config| config.other_nodes = f);
        let before: usize = world.sites.iter().map(|site| site.durable).sum();
        world.holds_bodies = true;
        let first = entry(1, 1);
        let request = world.accept(0, &first);
        assert_eq!(world.reply(0, request), None, "nobody has its body");
        assert_eq!(holders(&world), [0]);
        world.holds_bodies = false;
        for node in 1..4 {
            // Those that were chosen have asked for it.
            world.bring(0, node, first.blob);
        }
        world.settle();
        assert_eq!(world.reply(0, request), Some(Ok(())));
        let with = holders(&world);
        assert_eq!(with.len(), 1 + f, "nobody else stores anything of it");
        let accepted: usize = world.sites.iter().map(|site| site.durable).sum();
        assert_eq!(accepted - before, 1 + f);
        let mut named: Vec<usize> = vec![0];
        let others = &world.sites[0].asked[0].others;
        assert_eq!((others.needed, others.asks), (f, false));
        named.extend((1..4).filter(|node| others.nodes.contains(&incarnation(*node))));
        assert_eq!(named, with, "they have the body");
        world.deliver_all(0);
        assert!(world.is_quiet());
        let all: usize = world.sites.iter().map(|site| site.durable).sum();
        assert_eq!(all - before, 2 + 2 * f);
    }
}

#[test]
fn without_other_nodes_mail_is_refused_at_once() {
    let mut world = World::new(2);
    world.isolate(0);
    let request = world.accept(0, &entry(1, 1));
    assert_eq!(world.reply(0, request), Some(Err(Failure::TooFewNodes)));
    assert!(world.is_quiet());
}

#[test]
fn mail_that_others_do_not_confirm_is_given_up_everywhere() {
    let mut world = World::new(2);
    world.holds_commits.insert(1);
    let request = world.accept(0, &entry(1, 1));
    world.pass(11);
    assert_eq!(world.reply(0, request), Some(Err(Failure::NotConfirmed)));
    assert!(world.sites[0].asked.is_empty());
    world.holds_commits.clear();
    world.settle();
    world.pass(5);
    assert!(world.is_quiet());
}

#[test]
fn what_another_node_cannot_read_it_refuses() {
    let mut world = World::new(2);
    let mut odd = entry(1, 1);
    // A body that never was: the store refuses what names it.
    odd.blob.upload = [9; 16];
    let request = world.accept(0, &odd);
    world.sites[1].bodies.clear();
    assert_eq!(world.reply(0, request), Some(Ok(())));
    world.deliver_all(0);
    assert!(world.is_quiet());
}

#[test]
fn who_is_away_is_replaced_before_acceptance() {
    let mut world = World::new(3);
    // Node 1 takes no writes; node 0 asks it or node 2.
    world.holds_commits.insert(1);
    for number in 1..=4 {
        let request = world.accept(0, &entry(number, 1));
        world.pass(1);
        assert_eq!(world.reply(0, request), Some(Ok(())), "entry {number}");
    }
    let replaced = world.sites[0].figures(world.times()).queue_replaced;
    assert!(replaced > 0);
}

#[test]
fn mail_of_a_node_that_is_away_is_delivered_by_another() {
    let mut world = World::new(3);
    for number in 1..=3 {
        world.accept(0, &entry(number, 1));
    }
    world.isolate(0);
    world.sites[0].asked.clear();
    world.pass(50);
    assert!((1..3).all(|node| world.sites[node].asked.is_empty()));
    world.pass(20);
    let mut made = world.deliver_all(1);
    made.extend(world.deliver_all(2));
    made.sort_unstable();
    assert_eq!(made, [(1, 0), (2, 0), (3, 0)]);
    // It comes back, and delivers nothing once more.
    world.restart(0, |_| {});
    world.link(0, 1);
    world.link(0, 2);
    world.pass(15);
    assert!(world.sites[0].asked.is_empty());
    assert!(world.is_quiet());
}

#[test]
fn who_says_goodbye_is_waited_for() {
    let mut world = World::new(2);
    world.accept(0, &entry(1, 1));
    world.input(0, Input::Leaving(300 * SECOND));
    let refused = world.accept(0, &entry(2, 1));
    assert_eq!(world.reply(0, refused), Some(Err(Failure::TooFewNodes)));
    world.isolate(0);
    world.pass(200);
    assert!(world.sites[1].asked.is_empty());
    // After a restart anew.
    world.restart(1, |_| {});
    world.pass(200);
    assert!(world.sites[1].asked.is_empty());
    world.pass(120);
    assert_eq!(world.deliver_all(1), [(1, 0)]);
}

#[test]
fn an_older_disk_delivers_only_what_others_know() {
    let mut world = World::new(2);
    world.accept(0, &entry(1, 1));
    world.accept(0, &entry(2, 1));
    let (rows, held) = (world.sites[0].rows.clone(), world.sites[0].held.clone());
    let first = world.sites[0].asked.remove(0);
    world.input(0, Input::Delivered(first.ticket));
    // The copy of before is put back: the node has another incarnation since.
    world.isolate(0);
    world.sites[0].rows = rows;
    world.sites[0].held = held;
    world.restart(0, |config| config.origin = incarnation(9));
    assert!(
        world.sites[0]
            .words
            .iter()
            .any(|word| word.contains("earlier life"))
    );
    world.pass(5);
    assert!(world.sites[0].asked.is_empty(), "it asks first");
    world.link(0, 1);
    world.pass(15);
    assert_eq!(world.deliver_all(0), [(2, 0)], "the other one is done");
    world.pass(3);
    assert!(world.is_quiet());
}

/// An account's partition is not at node 0: node 1 is asked, and has nothing of the entry where node 2 was chosen.
#[test]
fn deliveries_are_made_by_who_has_the_account() {
    let mut world = World::with(3, |config| config.other_nodes = 0);
    world.accept(0, &entry(1, 2));
    let asked = std::mem::take(&mut world.sites[0].asked);
    for of in &asked {
        world.input(0, Input::NotHere(of.ticket));
    }
    let makers: Vec<usize> = (1..3)
        .filter(|node| !world.sites[*node].asked.is_empty())
        .collect();
    assert!(!makers.is_empty());
    for node in makers {
        let site = &world.sites[node];
        assert!(
            site.held.len() == site.asked.len(),
            "the body is held meanwhile"
        );
        for of in &site.asked {
            assert_eq!(of.entry.deliveries.len(), 1);
        }
        let asked = std::mem::take(&mut world.sites[node].asked);
        for of in asked {
            world.input(node, Input::Delivered(of.ticket));
        }
        assert!(world.sites[node].held.is_empty());
    }
    assert!(world.is_quiet());
    assert_eq!(
        world.sites[0].figures(world.times()).deliveries_forwarded,
        2
    );
}

#[test]
fn peers_are_asked_until_one_has_made_it() {
    let mut world = World::with(3, |config| config.other_nodes = 0);
    world.accept(0, &entry(1, 1));
    let not_here = |world: &mut World, node: usize| {
        for of in std::mem::take(&mut world.sites[node].asked) {
            world.input(node, Input::NotHere(of.ticket));
        }
    };
    not_here(&mut world, 0);
    let first = (1..3)
        .find(|node| !world.sites[*node].asked.is_empty())
        .unwrap();
    let second = 3 - first;
    not_here(&mut world, first);
    assert_eq!(world.sites[second].asked.len(), 1, "the other one is asked");
    // It goes, and with it what it was asked: in the queue's own time all begins anew.
    world.isolate(second);
    assert!(world.sites[0].asked.is_empty() && world.sites[first].asked.is_empty());
    world.pass(11);
    not_here(&mut world, 0);
    assert_eq!(world.deliver_all(first), [(1, 0)]);
    // The one that went may still make it: nobody forgets the entry before it is back.
    assert!(!world.is_quiet());
    world.sites[second].asked.clear();
    world.restart(second, |_| {});
    world.link(0, second);
    world.link(first, second);
    world.pass(3);
    assert!(world.is_quiet());
}

#[test]
fn one_peer_is_asked_for_64_at_once() {
    let mut world = World::with(2, |config| config.other_nodes = 0);
    for number in 1..=100 {
        world.accept(0, &entry(number, 1));
    }
    for of in std::mem::take(&mut world.sites[0].asked) {
        world.input(0, Input::NotHere(of.ticket));
    }
    assert_eq!(world.sites[1].asked.len(), 64);
    let of = world.sites[1].asked.remove(0);
    world.input(1, Input::Delivered(of.ticket));
    assert_eq!(
        world.sites[1].asked.len(),
        64,
        "there is room for another one"
    );
    while !world.sites[1].asked.is_empty() {
        world.deliver_all(1);
    }
    assert!(world.is_quiet());
}

/// A delivery still waits at an owner of a node, while another node has finished the entry: no sweep is past the entry before the owner has let go.
pub(crate) fn nothing_is_forgotten_while_a_delivery_waits() {
    let mut world = World::new(2);
    world.accept(0, &entry(7, 1));
    world.holds_closing = true;
    // Node 1 takes over; node 0 has its delivery waiting at an owner, and hears that all is done.
    world.isolate(0);
    world.pass(70);
    world.deliver_all(1);
    world.link(0, 1);
    for site in &mut world.sites {
        site.sweeps.clear();
    }
    world.pass(10);
    let least = Some(Order::of(&[7; 16]));
    let is_past = |sweep: &Option<Order>| *sweep > least || sweep.is_none();
    let past = world
        .sites
        .iter()
        .any(|site| site.sweeps.iter().any(is_past));
    assert!(!past, "the delivery may still be made");
    world.holds_closing = false;
    world.settle();
    world.pass(10);
    assert!(
        world
            .sites
            .iter()
            .all(|site| site.sweeps.last().is_some_and(is_past))
    );
    assert!(world.is_quiet());
}

#[test]
fn sweeps_wait_for_owners() {
    nothing_is_forgotten_while_a_delivery_waits();
}

#[test]
fn the_administrator_sees_what_is_queued() {
    let mut world = World::new(2);
    for number in 1..=120 {
        world.accept(0, &entry(number, 2));
    }
    let page = |world: &mut World, node: usize, call: QueueCall| {
        world.requests += 1;
        let request = RequestId(world.requests);
        world.input(node, Input::Call(request, Call::Queue(call)));
        match world.sites[node].replies.pop() {
            Some((of, Reply::Queue(page))) if of == request => page,
            other => panic!("{other:?}"),
        }
    };
    let list = |from| QueueCall::List { from, limit: 1000 };
    let first = page(&mut world, 0, list(None));
    assert_eq!(first.entries.len(), 100);
    let rest = page(&mut world, 0, list(first.next));
    assert_eq!((rest.entries.len(), rest.next), (20, None));
    let of = &first.entries[0];
    assert_eq!(
        (of.id, of.size, of.deliveries.len()),
        (EntryId([1; 16]), 1001, 2)
    );
    assert_eq!(of.owners, [incarnation(0), incarnation(1)]);
    assert_eq!(of.state, QueueState::Delivering { open: vec![0, 1] });
    let copy = page(&mut world, 1, QueueCall::Show(EntryId([1; 16])));
    assert_eq!(copy.entries[0].state, QueueState::Copy);
    let none = page(&mut world, 1, QueueCall::Show(EntryId([200; 16])));
    assert!(none.entries.is_empty());
}

#[test]
fn damage_is_found() {
    let mut world = World::new(1);
    world.accept(0, &entry(1, 1));
    let rows: Vec<_> = world.sites[0].rows.clone().into_iter().collect();
    let (entries, needed, faults) = verify::queue(&rows);
    assert_eq!((entries, needed.len(), faults.len()), (1, 1, 0));
    for (at, expected) in [(b'e', "belongs to no entry"), (b'p', "has no payload")] {
        let rows: Vec<_> = rows
            .iter()
            .filter(|(key, _)| key[0] != at)
            .cloned()
            .collect();
        let (_, _, faults) = verify::queue(&rows);
        assert!(
            faults.len() == 1 && faults[0].what.contains(expected),
            "{faults:?}"
        );
    }
}
