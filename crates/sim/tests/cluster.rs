//! Nodes linked to each other, step by step: what the random clusters find becomes a scenario here.

use std::collections::BTreeSet;

use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_service::{
    admin::{AccountLine, AdminCall, AdminReply},
    api::{
        AccountId, Authenticate, Call, Changes, Date, Event, Failure, FlagChange, Flags,
        MailboxCall, MailboxName, NewMail, Reply, Row, Selected, SessionId,
    },
    content::Content,
    machine::{Note, RequestId},
    owner, peers, queue,
};
use whimbrel_sim::{
    client,
    node::{Node, Outcome, VERIFIER_PREFIX},
};

const ANNE: AccountId = AccountId([1; 16]);
const BOB: AccountId = AccountId([2; 16]);
const SESSION: SessionId = SessionId(1);

/// Nodes that are all linked, or not at all. Frames arrive at once.
struct Cluster {
    nodes: Vec<(Incarnation, Node)>,
    linked: bool,
    /// What is to be sent: from, to, what of.
    awake: BTreeSet<(usize, usize, Option<PartitionId>)>,
    replies: Vec<(RequestId, Reply)>,
    events: Vec<(usize, Event)>,
    requests: u64,
    /// Frames of this partition are not taken from one node to another.
    withheld: Option<PartitionId>,
    /// Only if they are for this node.
    withheld_from: Option<usize>,
    held: BTreeSet<(usize, usize, Option<PartitionId>)>,
    /// Bodies are not taken either.
    bodies_withheld: bool,
    /// Nodes that are gone for good, disks included.
    lost: BTreeSet<usize>,
    notes: Vec<(usize, Note)>,
    lists: Vec<Vec<AccountLine>>,
}

fn inbox() -> MailboxName {
    MailboxName::inbox()
}

impl Cluster {
    fn new(count: u64) -> Cluster {
        let shipping = peers::Config {
            kept: 4,
            cut_step: 2,
            ..peers::Config::default()
        };
        Cluster::with(count, shipping)
    }

    fn with(count: u64, shipping: peers::Config) -> Cluster {
        let ids: Vec<Incarnation> = (1..=count).map(Incarnation::from_hash).collect();
        let node = |id: &Incarnation| {
            let config = owner::Config {
                origin: *id,
                slot: u8::try_from(id.get()).unwrap(),
                peers: ids
                    .iter()
                    .filter(|other| *other != id)
                    .map(|other| (*other, u8::try_from(other.get()).unwrap()))
                    .collect(),
                shipping,
                collect_after_seconds: 1,
                ..owner::Config::default()
            };
            let node = Node::with(id.get() << 8, config, queue::Limits::default());
            (*id, node)
        };
        let mut cluster = Cluster {
            nodes: ids.iter().map(node).collect(),
            linked: false,
            awake: BTreeSet::new(),
            replies: Vec::new(),
            events: Vec::new(),
            requests: 0,
            withheld: None,
            withheld_from: None,
            held: BTreeSet::new(),
            bodies_withheld: false,
            lost: BTreeSet::new(),
            notes: Vec::new(),
            lists: Vec::new(),
        };
        cluster.link(true);
        cluster.add(0, "anne@example.org", ANNE);
        cluster.link(false);
        cluster
    }

    fn add(&mut self, node: usize, address: &str, account: AccountId) {
        let call = AdminCall::AddAccount {
            address: address.into(),
            verifier: format!("{VERIFIER_PREFIX}x"),
            scram: None,
            account,
        };
        self.admin(node, call);
    }

    fn admin(&mut self, node: usize, call: AdminCall) {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.nodes[node].1.admin(request, call);
        self.pass(1);
    }

    fn list(&mut self, node: usize) -> Vec<AccountLine> {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.nodes[node].1.admin(request, AdminCall::ListAccounts);
        self.lists.clear();
        self.pass(1);
        self.lists.pop().unwrap()
    }

    /// Whether somebody comes in.
    fn logs_in(&mut self, node: usize, login: &str, password: &str) -> Option<AccountId> {
        let ask = Authenticate {
            login: login.into(),
            password: password.as_bytes().to_vec().into(),
            peer: [192, 0, 2, 1].into(),
        };
        match self.ask(node, Call::Authenticate(ask)) {
            Reply::Authenticated { account, .. } => Some(account),
            Reply::Failed(Failure::Credentials) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Frames of the partition are held back from now on; `None`: they go.
    fn withhold(&mut self, partition: Option<PartitionId>) {
        self.withheld = partition;
        self.awake.append(&mut self.held);
        self.pass(3);
    }

    /// Rows of the account in the store, of any kind.
    fn rows_of(&self, node: usize, account: AccountId) -> usize {
        let partition = owner::keys::partition_of(account);
        let partition = whimbrel_service::log::store_partition(partition);
        let range = whimbrel_storage::KeyRange::prefix([b"a", &account.0[..]].concat());
        let disk = &self.nodes[node].1.disk;
        let page = disk.scan(partition, &range, whimbrel_storage::ScanLimit::default());
        page.rows.len()
    }

    fn link(&mut self, up: bool) {
        self.linked = up;
        self.awake.clear();
        for a in 0..self.nodes.len() {
            for b in 0..self.nodes.len() {
                let id = self.nodes[b].0;
                if a != b && !self.lost.contains(&a) && !self.lost.contains(&b) {
                    self.nodes[a].1.link(id, up);
                }
            }
        }
        self.pass(3);
    }

    /// Lets so many seconds pass everywhere.
    fn pass(&mut self, seconds: u64) {
        let now = self.nodes.iter().map(|(_, node)| node.time()).max();
        let end = now.unwrap() + seconds * 1_000_000;
        loop {
            self.carry();
            let next = self.nodes.iter().enumerate();
            let next = next.filter(|(index, _)| !self.lost.contains(index));
            let next = next.filter_map(|(index, (_, node))| Some((node.next_time()?, index)));
            match next.min().filter(|(time, _)| *time <= end) {
                Some((_, index)) => _ = self.nodes[index].1.step(),
                None => break,
            }
        }
        for (index, (_, node)) in self.nodes.iter_mut().enumerate() {
            if !self.lost.contains(&index) {
                node.advance_to(end);
            }
        }
        self.carry();
    }

    /// Takes what the nodes give, and frames from one to the other.
    fn carry(&mut self) {
        loop {
            for from in 0..self.nodes.len() {
                if self.lost.contains(&from) {
                    continue;
                }
                while let Some(outcome) = self.nodes[from].1.outcome() {
                    match outcome {
                        Outcome::Reply(request, reply) => self.replies.push((request, reply)),
                        Outcome::Notify(_, event) => self.events.push((from, event)),
                        Outcome::Note(note) => self.notes.push((from, note)),
                        Outcome::Admin(_, AdminReply::Accounts(list)) => self.lists.push(list),
                        Outcome::Admin(_, reply) => assert_eq!(reply, AdminReply::Done),
                        Outcome::Wake(partition, peer) => {
                            let to = self.nodes.iter().position(|(id, _)| *id == peer);
                            self.awake.insert((from, to.unwrap(), partition));
                        }
                        Outcome::Stopped(cause) => panic!("{from} stopped: {cause}"),
                        // The queue hears nothing, since its frames are withheld.
                        Outcome::Unlink(peer) if self.withheld == Some(QUEUE) => {
                            self.link_anew(from, peer);
                        }
                        Outcome::Unlink(peer) => panic!("{from} ends the stream to {peer:?}"),
                        _ => {}
                    }
                }
            }
            let Some((from, to, partition)) = self.awake.pop_first() else {
                return;
            };
            if self.lost.contains(&from) || self.lost.contains(&to) {
                continue;
            }
            let is_body = partition.is_none() && self.bodies_withheld;
            let is_for = self.withheld_from.is_none_or(|node| node == to);
            if is_body || partition.is_some() && partition == self.withheld && is_for {
                self.held.insert((from, to, partition));
                continue;
            }
            let (id, peer) = (self.nodes[from].0, self.nodes[to].0);
            while let Some(frame) = self.nodes[from].1.ready(partition, peer) {
                if !self.linked {
                    continue;
                }
                self.nodes[to].1.receive(id, frame);
            }
        }
    }

    fn link_anew(&mut self, from: usize, peer: Incarnation) {
        let (id, to) = (
            self.nodes[from].0,
            self.nodes.iter().position(|(id, _)| *id == peer),
        );
        let to = to.unwrap();
        if !self.linked || self.lost.contains(&to) {
            return;
        }
        for up in [false, true] {
            self.nodes[from].1.link(peer, up);
            self.nodes[to].1.link(id, up);
        }
    }

    fn call(&mut self, node: usize, call: MailboxCall) -> Reply {
        let account = ANNE;
        self.ask(node, Call::mailbox(account, call))
    }

    fn ask(&mut self, node: usize, call: Call) -> Reply {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.nodes[node].1.call(request, call);
        for _ in 0..60 {
            let found = self.replies.iter().position(|(of, _)| *of == request);
            if let Some(at) = found {
                return self.replies.remove(at).1;
            }
            self.pass(1);
        }
        panic!("no answer");
    }

    fn select(&mut self, node: usize, mailbox: MailboxName) -> Selected {
        let call = MailboxCall::Select {
            session: SESSION,
            name: mailbox,
            read_only: false,
        };
        match self.call(node, call) {
            Reply::Selected(selected) => selected,
            other => panic!("{other:?}"),
        }
    }

    fn changes(&mut self, node: usize, since: u64) -> Changes {
        let call = MailboxCall::Changes {
            session: SESSION,
            since,
            expunges: true,
        };
        match self.call(node, call) {
            Reply::Changes(changes) => changes,
            other => panic!("{other:?}"),
        }
    }

    fn append(&mut self, node: usize, body: u32) -> u32 {
        let text = format!("message {body}");
        let blob = self.nodes[node].1.upload(text.clone().into()).unwrap();
        let content = Content {
            prefix: bytes::Bytes::new(),
            summary: text.into(),
        };
        let call = MailboxCall::Append {
            session: SESSION,
            name: inbox(),
            messages: vec![NewMail {
                flags: Flags::none(),
                date: Date {
                    seconds: 1,
                    zone_minutes: 0,
                },
                size: body,
                open_end: false,
                blob,
                content: content.encode(),
            }],
            replaces: None,
        };
        match self.call(node, call) {
            Reply::Appended { uids, .. } => uids[0],
            other => panic!("{other:?}"),
        }
    }

    fn rows(&mut self, node: usize) -> Vec<Row> {
        let uids = self.select(node, inbox()).uids.to_vec();
        let call = MailboxCall::Rows {
            name: inbox(),
            uids,
        };
        match self.call(node, call) {
            Reply::Rows(rows) => rows,
            other => panic!("{other:?}"),
        }
    }

    fn remove(&mut self, node: usize, uid: u32) {
        let flags = client::flags(&[0].into());
        let store = MailboxCall::Store {
            session: SESSION,
            name: inbox(),
            uids: vec![uid],
            change: FlagChange::Add,
            flags,
            unchanged_since: None,
        };
        self.call(node, store);
        let expunge = MailboxCall::Expunge {
            session: SESSION,
            name: inbox(),
            uids: None,
            up_to: u32::MAX,
        };
        self.call(node, expunge);
    }

    /// Bodies and UIDs in INBOX.
    fn shown(&mut self, node: usize) -> Vec<(u32, u32)> {
        let rows = self.rows(node);
        rows.iter().map(|row| (row.size, row.uid)).collect()
    }

    /// Rows of messages in the store, those of removed ones among them.
    fn stored(&self, node: usize) -> usize {
        let partition = owner::keys::partition_of(ANNE);
        let partition = whimbrel_service::log::store_partition(partition);
        let range = whimbrel_storage::KeyRange::prefix([b"a", &ANNE.0[..], &[6]].concat());
        let disk = &self.nodes[node].1.disk;
        let page = disk.scan(partition, &range, whimbrel_storage::ScanLimit::default());
        page.rows.len()
    }

    /// Where the logs of the account's partition begin.
    fn lows(&self, node: usize) -> Vec<u64> {
        let partition = owner::keys::partition_of(ANNE);
        let partition = whimbrel_service::log::store_partition(partition);
        let logs = self.nodes[node].1.disk.log_positions(partition);
        logs.iter().map(|(_, position)| position.low).collect()
    }
}

mod leaving;
pub(crate) mod queued;
mod snapshots;
pub(crate) mod syncing;

#[test]
fn who_watches_is_told_of_what_came_elsewhere() {
    let mut cluster = Cluster::new(2);
    cluster.link(true);
    let before = cluster.select(1, inbox());
    cluster.events.clear();
    let uid = cluster.append(0, 7);
    cluster.pass(2);
    assert_eq!(cluster.events, [(1, Event::Changed)]);
    let changes = cluster.changes(1, before.as_of);
    assert_eq!(changes.arrived, [uid]);
    // MODSEQs are the node's own: its slot is in them.
    assert_eq!(changes.highest_modseq % 64, 2);
    assert!(changes.highest_modseq > before.status.highest_modseq);
    assert_eq!(cluster.rows(1)[0].size, 7);
}

/// Both have told a UIDNEXT when they meet: what each brings is claimed again before the other shows it, and they end with the same UIDs.
#[test]
fn what_is_late_is_claimed_again() {
    let mut cluster = Cluster::new(2);
    let before = cluster.append(1, 1);
    for body in 2..5 {
        cluster.append(0, body);
    }
    let told = cluster.select(0, inbox()).status.uid_next;
    cluster.link(true);
    cluster.pass(5);
    let shown = cluster.shown(0);
    assert_eq!(shown.len(), 4);
    assert_eq!(shown, cluster.shown(1));
    let (_, after) = shown.iter().find(|(body, _)| *body == 1).unwrap();
    assert!(*after >= told && *after > before, "{shown:?}, {told}");
}

/// Nothing is forgotten while one member lacks it, and a node that comes back brings nothing back.
#[test]
fn the_removed_stay_until_all_have_removed_them() {
    let mut cluster = Cluster::new(3);
    cluster.link(true);
    let uid = cluster.append(0, 1);
    cluster.pass(3);
    assert_eq!(cluster.shown(2).len(), 1);
    cluster.link(false);
    cluster.remove(0, uid);
    cluster.pass(60);
    assert_eq!(cluster.shown(0), []);
    assert_eq!(cluster.stored(0), 1);
    cluster.link(true);
    cluster.pass(100);
    for node in 0..3 {
        assert_eq!(cluster.shown(node), []);
        assert_eq!(cluster.stored(node), 0, "node {node}");
    }
}

/// Alone a node cuts its log as it goes; with others no sooner than they have it.
#[test]
fn logs_are_cut_when_all_have_them() {
    let mut alone = Cluster::new(1);
    for body in 1..20 {
        alone.append(0, body);
    }
    let low = alone.lows(0)[0];
    assert!(low > 15, "{low}");

    let mut two = Cluster::new(2);
    for body in 1..20 {
        two.append(0, body);
    }
    assert_eq!(two.lows(0), [1]);
    two.link(true);
    two.pass(5);
    // Cuts go with the next commit.
    two.append(0, 20);
    two.pass(5);
    two.append(0, 21);
    two.append(1, 22);
    for node in 0..2 {
        let lows = two.lows(node);
        assert!(lows.iter().any(|low| *low > 15), "node {node}: {lows:?}");
    }
    assert_eq!(two.shown(0), two.shown(1));
}

/// A full disk at the receiver: the batch is refused, the partition read again, and the sender gives it again on the stream that is there;
/// the directory's likewise.
#[test]
fn what_a_full_disk_refused_comes_again() {
    let mut cluster = Cluster::new(2);
    cluster.link(true);
    cluster.append(0, 1);
    cluster.pass(3);
    cluster.nodes[1].1.disk.faults.full = true;
    cluster.append(0, 2);
    cluster.add(0, "bob@example.org", BOB);
    cluster.pass(5);
    assert_eq!(cluster.shown(1).len(), 1);
    cluster.nodes[1].1.disk.faults.full = false;
    cluster.pass(5);
    assert_eq!(cluster.logs_in(1, "bob@example.org", "x"), Some(BOB));
    assert_eq!(cluster.shown(0).len(), 2);
    assert_eq!(cluster.shown(0), cluster.shown(1));
}

const DIRECTORY: PartitionId = PartitionId::DIRECTORY;
const QUEUE: PartitionId = PartitionId::QUEUE;

#[test]
fn an_account_is_known_at_every_node() {
    let mut cluster = Cluster::new(3);
    cluster.link(true);
    cluster.add(1, "bob@example.org", BOB);
    cluster.pass(1);
    for node in 0..3 {
        assert_eq!(cluster.logs_in(node, "bob@example.org", "x"), Some(BOB));
        assert_eq!(cluster.list(node).len(), 2);
    }
    // And after a start from what is on the disk.
    cluster.link(false);
    cluster.nodes[2].1.crash(7);
    cluster.pass(1);
    assert_eq!(cluster.logs_in(2, "bob@example.org", "x"), Some(BOB));
}

/// A login that was verified is remembered; a new password, wherever it was set, ends that, and so does a removal.
#[test]
fn what_changes_elsewhere_ends_remembered_logins() {
    let mut cluster = Cluster::new(2);
    cluster.link(true);
    let cached = |cluster: &Cluster| {
        let found = cluster.notes.iter();
        let found = found.filter(|(node, note)| {
            *node == 1 && matches!(note, Note::LoggedIn { cached: true, .. })
        });
        found.count()
    };
    for _ in 0..2 {
        assert_eq!(cluster.logs_in(1, "anne@example.org", "x"), Some(ANNE));
    }
    assert_eq!(cached(&cluster), 1, "the second was remembered");
    let call = AdminCall::SetVerifier {
        address: "anne@example.org".into(),
        verifier: format!("{VERIFIER_PREFIX}y"),
        scram: None,
        keeps_sessions: false,
    };
    cluster.admin(0, call);
    assert_eq!(cluster.logs_in(1, "anne@example.org", "x"), None);
    for _ in 0..2 {
        assert_eq!(cluster.logs_in(1, "anne@example.org", "y"), Some(ANNE));
    }
    assert_eq!(cached(&cluster), 2);
    let address = "anne@example.org".into();
    cluster.admin(0, AdminCall::RemoveAccount { address });
    assert_eq!(cluster.logs_in(1, "anne@example.org", "y"), None);
}

/// Partitions are not ordered among each other: mail may be here before whose it is.
#[test]
fn mail_may_come_before_its_account() {
    let mut cluster = Cluster::new(2);
    cluster.withhold(Some(DIRECTORY));
    cluster.link(true);
    cluster.add(0, "bob@example.org", BOB);
    let list = Call::mailbox(BOB, MailboxCall::list());
    assert!(matches!(cluster.ask(0, list), Reply::Mailboxes { .. }));
    cluster.pass(3);
    assert!(cluster.rows_of(1, BOB) > 0);
    assert_eq!(cluster.rows_of(1, BOB), cluster.rows_of(0, BOB));
    assert_eq!(cluster.logs_in(1, "bob@example.org", "x"), None);
    cluster.withhold(None);
    assert_eq!(cluster.logs_in(1, "bob@example.org", "x"), Some(BOB));
}

/// The removal of an account takes its mail everywhere, and mail that comes after it does not stay, though it opens the account.
#[test]
pub(crate) fn a_removed_account_does_not_come_back() {
    for opened_before in [false, true] {
        let mut cluster = Cluster::new(2);
        cluster.link(true);
        cluster.add(0, "bob@example.org", BOB);
        let list = |cluster: &mut Cluster, node| {
            let (account, call) = (BOB, MailboxCall::list());
            cluster.ask(node, Call::mailbox(account, call))
        };
        if opened_before {
            list(&mut cluster, 1);
            cluster.pass(3);
        }
        cluster.withhold(Some(owner::keys::partition_of(BOB)));
        assert!(matches!(list(&mut cluster, 0), Reply::Mailboxes { .. }));
        let create = MailboxCall::Create {
            name: MailboxName::new("new").unwrap(),
            special_use: None,
        };
        let (account, call) = (BOB, create);
        cluster.ask(0, Call::mailbox(account, call));
        let select = MailboxCall::Select {
            session: SESSION,
            name: inbox(),
            read_only: false,
        };
        let (account, call) = (BOB, select);
        cluster.ask(0, Call::mailbox(account, call));
        cluster.events.clear();
        let address = "bob@example.org".into();
        cluster.admin(1, AdminCall::RemoveAccount { address });
        cluster.pass(3);
        assert_eq!(cluster.events, [(0, Event::Shutdown)]);
        assert_eq!(cluster.rows_of(0, BOB), 0);
        cluster.withhold(None);
        for node in 0..2 {
            assert_eq!(cluster.rows_of(node, BOB), 0, "node {node}");
            let reply = list(&mut cluster, node);
            assert!(matches!(reply, Reply::Failed(Failure::NoSuchAccount)));
            assert_eq!(cluster.list(node).len(), 1);
        }
    }
}

#[test]
fn of_two_accounts_with_one_address_the_earlier_keeps_it() {
    let mut cluster = Cluster::new(2);
    cluster.add(1, "bob@example.org", BOB);
    cluster.add(0, "bob@example.org", AccountId([3; 16]));
    assert_eq!(
        cluster.logs_in(0, "bob@example.org", "x"),
        Some(AccountId([3; 16]))
    );
    cluster.notes.clear();
    cluster.link(true);
    for node in 0..2 {
        assert_eq!(cluster.logs_in(node, "bob@example.org", "x"), Some(BOB));
        let list = cluster.list(node);
        let aside: Vec<_> = list.iter().filter(|line| line.set_aside).collect();
        assert_eq!(aside.len(), 1);
        assert_eq!(aside[0].account, AccountId([3; 16]));
        let told = |(at, note): &(usize, Note)| {
            *at == node && matches!(note, Note::Warning(text) if text.contains("bob@example.org"))
        };
        assert!(cluster.notes.iter().any(told), "node {node}");
    }
}
