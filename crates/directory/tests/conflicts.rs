//! One address on two nodes at once, and one after the other.

#![allow(clippy::unwrap_used, missing_docs)]

mod node;

use node::{Node, named};
use whimbrel_directory::{Op, Refusal};

#[test]
fn two_nodes_create_one_address_at_once() {
    // Who is earlier, by the clock and then by the node, holds it; in whatever order the news comes.
    for (wall_a, wall_b, first) in [(10, 20, 1), (20, 10, 2), (10, 10, 1)] {
        let (mut a, mut b) = (Node::new(1), Node::new(2));
        let from_a = a.add(wall_a, "anne@x.org", 1);
        let from_b = b.add(wall_b, "anne@x.org", 2);
        a.take(&from_b);
        b.take(&from_a);
        assert_eq!(a.directory, b.directory);
        let second = 3 - first;
        assert_eq!(a.holder("anne@x.org"), Some(first));
        assert_eq!(a.accounts(), [(first, false), (second, true)]);
        assert!(
            a.directory.account(&[second; 16]).is_some(),
            "it keeps its mail"
        );
        assert_eq!(
            a.directory
                .plan_add_account("anne@x.org", [3; 16], 30, String::new()),
            Err(Refusal::AccountExists(named("anne@x.org")))
        );
        // A new password is the holder's.
        let set = a
            .directory
            .plan_set_credential("anne@x.org", "new")
            .unwrap();
        assert!(matches!(&set[..], [Op::SetCredential { account, .. }] if *account == [first; 16]));
        // The holder goes: the other comes forward.
        let gone = a.remove("anne@x.org");
        b.take(&gone);
        for node in [&a, &b] {
            assert_eq!(node.holder("anne@x.org"), Some(second));
            assert_eq!(node.accounts(), [(second, false)]);
            assert_eq!(node.directory.removed().collect::<Vec<_>>(), [[first; 16]]);
        }
        let gone = b.remove("anne@x.org");
        a.take(&gone);
        assert_eq!((a.holder("anne@x.org"), a.accounts().len()), (None, 0));
    }
}

#[test]
fn uid_validity_rises_with_each_account_of_an_address() {
    let mut node = Node::new(1);
    let again = |node: &mut Node, wall: u64, key: u8| {
        node.add(wall, "anne@x.org", key);
        let value = node.uid_validity("anne@x.org");
        node.remove("anne@x.org");
        value
    };
    assert_eq!(again(&mut node, 100, 1), 100, "the second of its creation");
    assert_eq!(again(&mut node, 100, 2), 101, "the same second");
    assert_eq!(again(&mut node, 50, 3), 102, "a clock that went back");
    assert_eq!(again(&mut node, 500, 4), 500);
    node.add(60, "bob@x.org", 5);
    assert_eq!(node.uid_validity("bob@x.org"), 60, "addresses apart");
    assert_eq!(again(&mut node, u64::MAX, 6), u32::MAX - 1);
    assert_eq!(again(&mut node, u64::MAX, 7), u32::MAX);

    // Never zero, and the floor travels with a joined state.
    let mut other = Node::new(2);
    assert_eq!(again(&mut other, 0, 8), 1);
    let (mine, theirs) = (other.vector.clone(), node.vector.clone());
    other.directory.join(&mine, &node.directory, &theirs);
    assert_eq!(other.directory.uid_validity_floor("anne@x.org"), u32::MAX);
    assert_eq!(other.directory.uid_validity_floor("nobody@x.org"), 0);
}
