//! A node that came for one whose disk was lost.

use whimbrel_service::api::{Asker, Resolution};
use whimbrel_sim::node::Identity;
use whimbrel_storage::memory::DiskCopy;

use super::*;

fn is_refused(reply: &Reply) -> bool {
    matches!(reply, Reply::Failed(Failure::Temporary))
}

impl Cluster {
    /// Another node comes with an empty disk, among the members that were.
    fn replace(&mut self, node: usize) {
        self.renew(node, 9, DiskCopy::default());
    }

    /// A node goes on under this incarnation and slot, with what is on this disk.
    fn renew(&mut self, node: usize, slot: u8, copy: DiskCopy) {
        let identity = Identity {
            incarnation: Incarnation::from_hash(slot.into()),
            slot,
            round: 0,
        };
        let mut copy = Some(copy);
        let all = self.nodes.iter().map(|(id, _)| *id);
        let mut slots: std::collections::BTreeMap<_, _> = all
            .map(|id| (id, u8::try_from(id.get()).unwrap()))
            .collect();
        slots.insert(identity.incarnation, identity.slot);
        self.nodes[node].0 = identity.incarnation;
        for (index, (id, other)) in self.nodes.iter_mut().enumerate() {
            if index == node {
                let mut peers = slots.clone();
                peers.remove(id);
                let time = other.time();
                other.renew(copy.take().unwrap_or_default(), identity, peers, time);
            } else {
                other.members(slots.clone(), std::collections::BTreeMap::new());
            }
        }
    }

    /// Whether nobody gets an answer that he would take for the last word.
    fn turns_away(&mut self, node: usize) -> bool {
        let ask = Authenticate {
            login: "anne@example.org".into(),
            password: b"x".to_vec().into(),
            peer: [192, 0, 2, 1].into(),
        };
        let resolve = Call::Resolve {
            local: "anne".into(),
            domain: Some("example.org".into()),
            asker: Asker::Front,
        };
        is_refused(&self.ask(node, Call::Authenticate(ask)))
            && is_refused(&self.ask(node, resolve))
            && is_refused(&self.call(node, MailboxCall::list()))
    }
}

#[test]
fn a_new_node_refuses_until_it_has_what_another_had() {
    let mut cluster = Cluster::new(3);
    cluster.link(true);
    for body in 1..=3 {
        cluster.append(0, body);
    }
    cluster.pass(5);
    cluster.link(false);
    let before = cluster.select(1, inbox());
    assert_eq!(before.uids.len(), 3);
    cluster.replace(2);
    assert!(cluster.turns_away(2), "nobody was met");
    cluster.bodies_withheld = true;
    cluster.link(true);
    let resolve = Call::Resolve {
        local: "anne".into(),
        domain: Some("example.org".into()),
        asker: Asker::Front,
    };
    let resolved = cluster.ask(2, resolve);
    let known = matches!(resolved, Reply::Resolved(Resolution::Local(_)));
    assert!(known, "the directory is here: {resolved:?}");
    let list = cluster.call(2, MailboxCall::list());
    assert!(is_refused(&list), "the bodies are not: {list:?}");
    cluster.bodies_withheld = false;
    cluster.withhold(None);
    cluster.pass(5);
    let now = cluster.select(2, inbox());
    assert_eq!(now.uids.to_vec(), before.uids.to_vec());
    assert_eq!(now.status.uid_validity, before.status.uid_validity);
    cluster.link(false);
    cluster.nodes[2].1.reopen();
    let now = cluster.select(2, inbox());
    assert_eq!(
        now.uids.to_vec(),
        before.uids.to_vec(),
        "and needs nobody later"
    );
    assert_eq!(cluster.logs_in(2, "anne@example.org", "x"), Some(ANNE));
}

/// A node that was new once and has all has kept that; then an older copy of its disk is put back, in which that stands, too.
#[test]
fn a_node_with_an_older_disk_refuses_until_it_has_what_another_had() {
    let mut cluster = with_the_last_replaced();
    cluster.link(true);
    cluster.pass(5);
    assert_eq!(cluster.bodies_of(2), [1], "it has grown");
    let copy = cluster.nodes[2].1.disk.copy();
    cluster.append(2, 2);
    cluster.append(0, 3);
    cluster.pass(5);
    let before = cluster.select(1, inbox());
    assert_eq!(before.uids.len(), 3);
    cluster.link(false);
    cluster.renew(2, 10, copy);
    assert!(cluster.turns_away(2), "nobody was met");
    cluster.bodies_withheld = true;
    cluster.link(true);
    let list = cluster.call(2, MailboxCall::list());
    assert!(is_refused(&list), "the bodies are not here: {list:?}");
    cluster.bodies_withheld = false;
    cluster.withhold(None);
    cluster.pass(5);
    // What came after the copy has new UIDs: the node leads, since it cannot know what it told (decisions/0011).
    assert_eq!(cluster.bodies_of(2), [1, 2, 3]);
    let now = cluster.select(2, inbox());
    assert_eq!(now.uids.to_vec()[0], before.uids.to_vec()[0]);
    assert_eq!(now.status.uid_validity, before.status.uid_validity);
    let (shown, elsewhere) = (now.uids.to_vec(), cluster.select(1, inbox()));
    assert_eq!(
        elsewhere.uids.to_vec(),
        shown,
        "claims are the same everywhere"
    );
    cluster.link(false);
    cluster.nodes[2].1.reopen();
    let now = cluster.select(2, inbox());
    assert_eq!(now.uids.to_vec(), shown, "and needs nobody later");
}

/// A message of the copy was moved since: under its new name it is late, as the node leads. What removed it comes behind that. Elsewhere it is
/// collected: to claim it in between would name what nobody knows, and the account would stall there.
#[test]
pub(crate) fn a_node_with_an_older_disk_claims_nothing_until_it_has_what_removes_it() {
    // Logs are not cut.
    let mut cluster = Cluster::with(3, peers::Config::default());
    cluster.link(true);
    cluster.append(0, 1);
    let uid = cluster.append(0, 2);
    cluster.pass(5);
    assert_eq!(cluster.bodies_of(2), [1, 2]);
    let copy = cluster.nodes[2].1.disk.copy();
    let moves = |from: &str, uid: u32, to: &str| MailboxCall::Copy {
        session: SESSION,
        name: MailboxName::new(from).unwrap(),
        uids: vec![uid],
        to: MailboxName::new(to).unwrap(),
        remove: true,
    };
    cluster.call(0, moves("INBOX", uid, "Archive"));
    cluster.pass(5);
    let archived = cluster.select(0, MailboxName::new("Archive").unwrap());
    cluster.call(0, moves("Archive", archived.uids.to_vec()[0], "INBOX"));
    let uid = cluster.shown(0)[1].1;
    cluster.remove(0, uid);
    cluster.pass(100);
    let stored: Vec<usize> = (0..3).map(|node| cluster.stored(node)).collect();
    assert_eq!(stored, [1, 1, 1], "it is collected everywhere");
    cluster.link(false);
    cluster.renew(2, 10, copy);
    cluster.link(true);
    cluster.pass(5);
    cluster.append(2, 3);
    cluster.pass(5);
    for node in 0..3 {
        assert_eq!(cluster.bodies_of(node), [1, 3], "node {node}");
        let reports = cluster.nodes[node].1.reports();
        let stalled: u64 = reports.iter().map(|report| report.accounts_stalled).sum();
        assert_eq!(stalled, 0, "node {node}");
    }
}

/// Three nodes with a message, not linked, of which the last is another one with an empty disk.
fn with_the_last_replaced() -> Cluster {
    let mut cluster = Cluster::new(3);
    cluster.link(true);
    cluster.append(0, 1);
    cluster.pass(5);
    cluster.link(false);
    cluster.replace(2);
    cluster
}

/// Three nodes, of which the last is new and hears nothing of the account's partition.
fn with_a_new_one() -> Cluster {
    let mut cluster = with_the_last_replaced();
    cluster.withheld = Some(owner::keys::partition_of(ANNE));
    cluster.withheld_from = Some(2);
    cluster.link(true);
    let list = cluster.call(2, MailboxCall::list());
    assert!(is_refused(&list), "{list:?}");
    cluster
}

impl Cluster {
    fn queue_lens(&self) -> Vec<usize> {
        let nodes = self.nodes.iter().enumerate();
        let there = nodes.filter(|(index, _)| !self.lost.contains(index));
        there.map(|(_, (_, node))| node.queue_len()).collect()
    }

    fn handed(&self, node: usize) -> u64 {
        self.nodes[node].1.figures().deliveries_forwarded
    }
}

/// Mail that a new node takes is delivered by one that has the account.
#[test]
fn a_new_node_has_its_mail_delivered() {
    let mut cluster = with_a_new_one();
    for body in 2..200 {
        let request = cluster.mail(2, body);
        let reply = cluster.await_answer(request);
        assert!(matches!(reply, Reply::Done), "{reply:?}");
    }
    cluster.pass(5);
    let all: Vec<u32> = (1..200).collect();
    assert_eq!(cluster.bodies_of(0), all);
    assert_eq!(cluster.queue_lens(), [0, 0, 0], "it waits for nothing");
    assert_eq!(cluster.handed(2), 198);
    let list = cluster.call(2, MailboxCall::list());
    assert!(is_refused(&list), "it is new still: {list:?}");
    cluster.withhold(None);
    cluster.pass(10);
    for node in 0..3 {
        assert_eq!(cluster.bodies_of(node), all, "node {node}");
    }
}

/// Who made it is lost before another one has it.
#[test]
fn mail_made_elsewhere_survives_the_loss_of_the_node_that_did() {
    let mut cluster = with_a_new_one();
    cluster.withheld_from = None;
    let request = cluster.mail(2, 2);
    let reply = cluster.await_answer(request);
    assert!(matches!(reply, Reply::Done), "{reply:?}");
    cluster.pass(5);
    let made: Vec<usize> = (0..2)
        .filter(|node| cluster.bodies_of(*node) == [1, 2])
        .collect();
    assert_eq!(made.len(), 1, "one was asked");
    let copies: usize = cluster.queue_lens().iter().sum();
    assert_eq!(copies, 2, "the other has not got it");
    cluster.lose(made[0]);
    cluster.withheld_from = Some(2);
    cluster.withhold(cluster.withheld);
    cluster.pass(60);
    let left = 1 - made[0];
    assert_eq!(cluster.bodies_of(left), [1, 2]);
    cluster.withhold(None);
    cluster.pass(200);
    assert_eq!(cluster.bodies_of(2), [1, 2]);
}

/// Streams end at any moment, and come again.
#[test]
fn mail_made_elsewhere_is_there_once() {
    for moment in 0..40 {
        let mut cluster = with_a_new_one();
        let request = cluster.mail(2, 2);
        let reply = cluster.await_answer(request);
        assert!(matches!(reply, Reply::Done), "{reply:?}");
        for _ in 0..moment {
            cluster.carry();
            let next = cluster.nodes.iter().enumerate();
            let next = next.filter_map(|(index, (_, node))| Some((node.next_time()?, index)));
            let (_, index) = next.min().unwrap();
            cluster.nodes[index].1.step();
        }
        cluster.link(false);
        cluster.pass(5);
        cluster.held.clear();
        cluster.link(true);
        cluster.pass(30);
        assert_eq!(cluster.bodies_of(0), [1, 2], "after {moment} steps");
        assert_eq!(cluster.queue_lens(), [0, 0, 0], "after {moment} steps");
    }
}
