//! Mail that is accepted when other nodes have it.

use whimbrel_service::{
    api::{Delivery, Entry},
    queue::entry_id,
};

use super::*;

impl Cluster {
    pub(super) fn lose(&mut self, node: usize) {
        self.lost.insert(node);
        let id = self.nodes[node].0;
        for (index, (_, other)) in self.nodes.iter_mut().enumerate() {
            if index != node && !self.lost.contains(&index) {
                other.link(id, false);
            }
        }
    }

    /// Nodes that are lost are no members any more.
    pub(super) fn remove_the_lost(&mut self) {
        let all = self.nodes.iter().enumerate();
        let all = all.map(|(node, (id, _))| (node, (*id, u8::try_from(id.get()).unwrap())));
        let (gone, left): (Vec<_>, Vec<_>) = all.partition(|(node, _)| self.lost.contains(node));
        let members = |of: &[(usize, (Incarnation, u8))]| of.iter().map(|(_, of)| *of).collect();
        for (node, _) in &left {
            self.nodes[*node].1.members(members(&left), members(&gone));
        }
    }

    /// Mail for Anne comes at a node. Nothing is waited for.
    pub(super) fn mail(&mut self, node: usize, body: u32) -> RequestId {
        let text = format!("message {body}");
        let blob = self.nodes[node].1.upload(text.clone().into()).unwrap();
        let content = Content {
            prefix: bytes::Bytes::new(),
            summary: text.into(),
        };
        let delivery = Delivery {
            account: ANNE,
            target: inbox(),
            content: content.encode(),
            size: body,
            open_end: false,
            sent: false,
        };
        let entry = Entry {
            id: entry_id(&blob.upload),
            sender: "a@example.com".into(),
            deliveries: vec![delivery],
            blob,
            date: Date {
                seconds: 2,
                zone_minutes: 0,
            },
        };
        self.requests += 1;
        let request = RequestId(self.requests);
        self.nodes[node].1.call(request, Call::Accept(entry));
        request
    }

    /// What the sender was told so far.
    fn answer(&mut self, request: RequestId) -> Option<Reply> {
        let at = self.replies.iter().position(|(of, _)| *of == request);
        at.map(|at| self.replies.remove(at).1)
    }

    /// Lets things happen, a moment at a time, until the sender is told something.
    pub(super) fn await_answer(&mut self, request: RequestId) -> Reply {
        for _ in 0..100_000 {
            self.carry();
            if let Some(reply) = self.answer(request) {
                return reply;
            }
            let next = self.nodes.iter().enumerate();
            let next = next.filter(|(index, _)| !self.lost.contains(index));
            let next = next.filter_map(|(index, (_, node))| Some((node.next_time()?, index)));
            let (_, index) = next.min().expect("something is under way");
            self.nodes[index].1.step();
        }
        panic!("no answer");
    }

    pub(super) fn bodies_of(&mut self, node: usize) -> Vec<u32> {
        let mut bodies: Vec<u32> = self.shown(node).iter().map(|(body, _)| *body).collect();
        bodies.sort_unstable();
        bodies
    }
}

fn linked(count: u64) -> Cluster {
    let mut cluster = Cluster::new(count);
    cluster.link(true);
    cluster
}

#[test]
fn mail_is_accepted_when_another_node_has_it() {
    let mut cluster = linked(2);
    cluster.withhold(Some(QUEUE));
    let request = cluster.mail(0, 1);
    cluster.pass(1);
    assert!(cluster.answer(request).is_none());
    assert_eq!(cluster.stored(0), 0, "what is provisional is not delivered");
    cluster.withhold(None);
    assert!(matches!(cluster.answer(request), Some(Reply::Done)));
    for node in 0..2 {
        assert_eq!(cluster.bodies_of(node), [1]);
        cluster.pass(1);
        assert_eq!(cluster.nodes[node].1.queue_len(), 0, "node {node}");
    }
}

#[test]
fn mail_is_accepted_when_another_node_has_its_body() {
    let mut cluster = linked(2);
    cluster.bodies_withheld = true;
    let request = cluster.mail(0, 1);
    cluster.pass(1);
    assert!(cluster.answer(request).is_none());
    assert_eq!(cluster.stored(0), 0);
    cluster.bodies_withheld = false;
    cluster.withhold(None);
    assert!(matches!(cluster.answer(request), Some(Reply::Done)));
}

#[test]
fn without_other_nodes_mail_is_refused_at_once() {
    let mut cluster = Cluster::new(2);
    let request = cluster.mail(0, 1);
    cluster.carry();
    cluster.nodes[0].1.step();
    cluster.carry();
    let answer = cluster.answer(request);
    assert!(
        matches!(answer, Some(Reply::Failed(Failure::TooFewNodes))),
        "{answer:?}"
    );
    cluster.pass(20);
    assert_eq!(cluster.nodes[0].1.queue_len(), 0);
}

#[test]
fn mail_that_others_do_not_confirm_is_given_up_everywhere() {
    for bodies in [false, true] {
        let mut cluster = linked(2);
        match bodies {
            true => cluster.bodies_withheld = true,
            false => cluster.withhold(Some(QUEUE)),
        }
        let request = cluster.mail(0, 1);
        cluster.pass(10);
        let answer = cluster.answer(request);
        assert!(
            matches!(answer, Some(Reply::Failed(Failure::NotConfirmed))),
            "{answer:?}"
        );
        cluster.bodies_withheld = false;
        cluster.withhold(None);
        cluster.pass(200);
        for node in 0..2 {
            assert_eq!(cluster.bodies_of(node), []);
            assert_eq!(cluster.nodes[node].1.queue_len(), 0, "node {node}");
        }
    }
}

/// The one that took it is lost with its disk as soon as the sender was told that it is accepted.
#[test]
pub(crate) fn accepted_mail_survives_the_loss_of_the_node_that_took_it() {
    for count in [2, 3] {
        let mut cluster = linked(count);
        for body in 1..5 {
            let request = cluster.mail(0, body);
            let reply = cluster.await_answer(request);
            assert!(matches!(reply, Reply::Done), "{reply:?}");
        }
        cluster.lose(0);
        cluster.pass(100);
        for node in 1..usize::try_from(count).unwrap() {
            assert_eq!(cluster.bodies_of(node), [1, 2, 3, 4], "node {node}");
        }
        // Of two the last one waits for another, until it is none.
        cluster.remove_the_lost();
        cluster.pass(20);
        for node in 1..usize::try_from(count).unwrap() {
            assert_eq!(cluster.nodes[node].1.queue_len(), 0, "node {node}");
        }
    }
}

/// That an entry is finished may be heard before its delivery is: partitions are not ordered among each other.
#[test]
fn delivered_mail_survives_the_loss_of_the_node_that_delivered_it() {
    let accounts = owner::keys::partition_of(ANNE);
    let mut cluster = linked(2);
    cluster.withhold(Some(accounts));
    let request = cluster.mail(0, 1);
    let reply = cluster.await_answer(request);
    assert!(matches!(reply, Reply::Done), "{reply:?}");
    cluster.pass(30);
    assert_eq!(cluster.bodies_of(0), [1]);
    cluster.lose(0);
    cluster.withhold(None);
    cluster.pass(100);
    assert_eq!(cluster.bodies_of(1), [1]);
}

/// More than are taken over at once, of which none can be finished: nobody else is left who could have what is delivered.
#[test]
fn all_mail_of_a_node_that_is_away_is_delivered_by_the_only_other_one() {
    let bodies = || 1..=150;
    let mut cluster = linked(2);
    cluster.withhold(Some(owner::keys::partition_of(ANNE)));
    let requests: Vec<RequestId> = bodies().map(|body| cluster.mail(0, body)).collect();
    for request in requests {
        let reply = cluster.await_answer(request);
        assert!(matches!(reply, Reply::Done), "{reply:?}");
    }
    cluster.lose(0);
    cluster.withhold(None);
    cluster.pass(200);
    assert_eq!(cluster.bodies_of(1), bodies().collect::<Vec<u32>>());
}

/// Who took the entry over is lost before anybody has what it delivered. Meanwhile the entry was given to the third one.
#[test]
fn mail_that_was_taken_over_survives_the_loss_of_the_node_that_did() {
    let accounts = owner::keys::partition_of(ANNE);
    let mut cluster = linked(3);
    let request = cluster.mail(0, 1);
    let reply = cluster.await_answer(request);
    assert!(matches!(reply, Reply::Done), "{reply:?}");
    // What the first node delivered reaches nobody.
    cluster.lose(0);
    cluster.withheld = Some(accounts);
    cluster.pass(60);
    let (by, third) = match cluster.bodies_of(1).is_empty() {
        true => (2, 1),
        false => (1, 2),
    };
    assert_eq!(cluster.bodies_of(by), [1]);
    assert_eq!(cluster.bodies_of(third), []);
    assert_eq!(cluster.nodes[third].1.queue_len(), 1, "it has a copy");
    cluster.lose(by);
    cluster.withhold(None);
    cluster.pass(200);
    assert_eq!(cluster.bodies_of(third), [1]);
}

/// Each delivers the same entry, since it does not hear of the other.
#[test]
fn mail_delivered_by_two_nodes_is_there_once() {
    let mut cluster = linked(2);
    let request = cluster.mail(0, 1);
    let reply = cluster.await_answer(request);
    assert!(matches!(reply, Reply::Done));
    cluster.link(false);
    cluster.pass(60);
    for node in 0..2 {
        assert_eq!(cluster.bodies_of(node), [1], "node {node}");
    }
    cluster.link(true);
    cluster.pass(60);
    let shown = cluster.shown(0);
    assert_eq!(shown.len(), 1);
    assert_eq!(shown, cluster.shown(1));
    for node in 0..2 {
        assert_eq!(cluster.nodes[node].1.queue_len(), 0, "node {node}");
    }
}

/// What was read and removed is not delivered again by a node that had not heard that it was.
#[test]
pub(crate) fn removed_mail_is_not_delivered_again_elsewhere() {
    let mut cluster = linked(2);
    let request = cluster.mail(0, 1);
    let reply = cluster.await_answer(request);
    assert!(matches!(reply, Reply::Done));
    // That it was delivered is not heard, its delivery and removal are.
    cluster.withhold(Some(QUEUE));
    cluster.pass(3);
    let (_, uid) = cluster.shown(0)[0];
    cluster.remove(0, uid);
    cluster.pass(30);
    assert_eq!(cluster.bodies_of(1), []);
    cluster.lose(0);
    cluster.pass(100);
    assert_eq!(cluster.bodies_of(1), []);
    cluster.remove_the_lost();
    cluster.pass(20);
    assert_eq!(cluster.nodes[1].1.queue_len(), 0, "it was taken over");
}

/// A crash of the one that took it, at any moment: what it finds counts, and is delivered once.
#[test]
fn a_crash_of_the_node_that_took_it_loses_nothing() {
    for moment in 0..60 {
        let mut cluster = linked(2);
        let request = cluster.mail(0, 1);
        let mut accepted = false;
        for _ in 0..moment {
            cluster.carry();
            accepted |= matches!(cluster.answer(request), Some(Reply::Done));
            let next = cluster.nodes.iter().enumerate();
            let next = next.filter_map(|(index, (_, node))| Some((node.next_time()?, index)));
            let (_, index) = next.min().unwrap();
            cluster.nodes[index].1.step();
        }
        cluster.carry();
        accepted |= matches!(cluster.answer(request), Some(Reply::Done));
        let id = cluster.nodes[0].0;
        cluster.nodes[1].1.link(id, false);
        cluster.awake.clear();
        cluster.nodes[0].1.crash(moment);
        cluster.link(true);
        cluster.pass(100);
        let bodies = cluster.bodies_of(0);
        assert!(bodies.len() <= 1);
        assert!(!accepted || bodies == [1], "crash after {moment} steps");
        assert_eq!(bodies, cluster.bodies_of(1));
        for node in 0..2 {
            assert_eq!(cluster.nodes[node].1.queue_len(), 0, "node {node}");
        }
    }
}
