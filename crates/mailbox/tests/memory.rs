//! What an account says of its memory: what bounds it rests on that.

use whimbrel_mailbox::*;

use crate::{
    message::{BLOB, message},
    node::Node,
};

const SOME: usize = 1_000;

fn node() -> Node {
    let mut node = Node::new(1);
    node.make(node.replica.plan_open(1, 0, &[]).ops);
    node
}

fn append_some(node: &mut Node) {
    node.append((0..SOME).map(|_| message(BLOB)).collect());
    node.replica.take_dirty();
}

fn copy_some(node: &mut Node) {
    let inbox = MailboxName::inbox();
    let uids = &node.replica.uids(&inbox)[..SOME];
    let plan = node.replica.plan_copy(&node.at(), &inbox, uids, &inbox);
    node.make(plan.expect("INBOX is there").ops);
    node.replica.take_dirty();
}

/// A copy remembers what it is a copy of.
#[test]
fn copies_take_more_than_other_messages() {
    let (mut appended, mut copied) = (node(), node());
    append_some(&mut appended);
    append_some(&mut copied);
    for _ in 0..3 {
        append_some(&mut appended);
        copy_some(&mut copied);
    }
    let (appended, copied) = (
        appended.replica.memory_bytes(),
        copied.replica.memory_bytes(),
    );
    let more = 3 * SOME * size_of::<MessageId>();
    assert!(copied >= appended + more, "{copied} and {appended}");
}

/// An account that was loaded is asked once.
#[test]
fn what_mailboxes_list_is_counted_at_once() {
    let mut node = node();
    for _ in 0..4 {
        append_some(&mut node);
    }
    let rows = node.replica.all_rows();
    let loaded = Replica::load(AccountId([9; 16]), 1, rows, &node.applied);
    let mut loaded = loaded.expect("its own rows");
    let first = loaded.memory_bytes();
    let later: Vec<usize> = (0..10).map(|_| loaded.memory_bytes()).collect();
    assert_eq!(later, [first; 10]);
}
