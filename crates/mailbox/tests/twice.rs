//! UIDs that are given twice: two nodes have one slot, against the rules.

use whimbrel_mailbox::*;

use crate::{
    message::{BLOB, message},
    node::{NOW, Node},
};

fn visible(node: &Node) -> usize {
    node.replica.uids(&MailboxName::inbox()).len()
}

/// Two nodes that both have slot 1, and know of no other message than their own; what the second one did.
fn two() -> (Node, Node, Vec<Op>) {
    let (mut one, mut two) = (Node::new(1), Node::new(2));
    let open = one.replica.plan_open(1_700_000_000, 3, &[]).ops;
    one.apply(one.origin, open.clone()).expect("the first");
    two.apply(one.origin, open).expect("the first");
    one.append(vec![message(BLOB)]);
    let ops = two.append(vec![message(BLOB)]);
    (one, two, ops)
}

#[test]
fn an_operation_that_gives_a_uid_again_is_refused() {
    let (mut one, two, ops) = two();
    let refused = one.apply(two.origin, ops);
    assert!(
        matches!(refused, Err(ApplyError::ClaimedTwice(_))),
        "{refused:?}"
    );
}

/// The one that comes is claimed again.
#[test]
fn joined_snapshots_that_give_a_uid_twice_show_both() {
    let (mut one, two, _) = two();
    let mine = one.applied.clone();
    let effects = one
        .replica
        .join(&mine, &two.replica, &two.applied, NOW, &Peers::none());
    one.applied.merge(&two.applied);
    assert!(effects.late);
    assert_eq!(visible(&one), 1);
    let ops = one.replica.plan_late(&one.at(), &Peers::none()).ops;
    one.apply(one.origin, ops).expect("its own");
    assert_eq!((visible(&one), one.replica.is_clean()), (2, true));
}
