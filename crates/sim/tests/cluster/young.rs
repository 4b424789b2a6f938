//! A node that came for one whose disk was lost.

use whimbrel_service::api::Resolution;
use whimbrel_sim::node::Identity;

use super::*;

fn is_refused(reply: &Reply) -> bool {
    matches!(reply, Reply::Failed(Failure::Temporary))
}

impl Cluster {
    /// Another node comes with an empty disk, among the members that were.
    fn replace(&mut self, node: usize) {
        let identity = Identity {
            incarnation: Incarnation::from_hash(9),
            slot: 9,
            round: 0,
        };
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
                other.lose(identity, peers, time);
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
        };
        is_refused(&self.ask(node, Call::Authenticate(ask)))
            && is_refused(&self.ask(node, resolve))
            && is_refused(&self.call(node, MailboxCall::List))
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
    };
    let resolved = cluster.ask(2, resolve);
    let known = matches!(resolved, Reply::Resolved(Resolution::Local(_)));
    assert!(known, "the directory is here: {resolved:?}");
    let list = cluster.call(2, MailboxCall::List);
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
