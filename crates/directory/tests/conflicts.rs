//! One address on two nodes at once, and one after the other.

use crate::node;

use node::{Node, named};
use whimbrel_directory::{Op, Refusal, Resolution};

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
                .plan_add_account("anne@x.org", [3; 16], 30, 0, String::new()),
            Err(Refusal::AccountExists(named("anne@x.org")))
        );
        // A new password is the holder's.
        let set = a
            .directory
            .plan_set_credential("anne@x.org", "new", false)
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
    // Its slot is 1: of each 64 seconds the second is its.
    assert_eq!(again(&mut node, 65, 1), 65, "the second of its creation");
    assert_eq!(again(&mut node, 66, 2), 129, "about the second");
    assert_eq!(again(&mut node, 65, 3), 193, "a clock that went back");
    assert_eq!(again(&mut node, 500, 4), 513);
    node.add(60, "bob@x.org", 5);
    assert_eq!(node.uid_validity("bob@x.org"), 65, "addresses apart");
    assert_eq!(again(&mut node, u64::MAX, 6), u32::MAX);
    assert_eq!(again(&mut node, u64::MAX, 7), u32::MAX);

    // Never zero, and the floor travels with a joined state.
    let mut other = Node::new(64);
    assert_eq!(again(&mut other, 0, 8), 64);
    let (mine, theirs) = (other.vector.clone(), node.vector.clone());
    other.directory.join(&mine, &node.directory, &theirs);
    assert_eq!(other.directory.uid_validity_floor("anne@x.org"), u32::MAX);
    assert_eq!(other.directory.uid_validity_floor("nobody@x.org"), 0);
}

#[test]
fn one_address_in_two_regions_has_two_uid_validities() {
    let (mut a, mut b) = (Node::new(1), Node::new(2));
    let mut given = Vec::new();
    for round in 0..3 {
        // In the same second, by nodes that have not met since the last removal.
        let from_a = a.add(1000, "anne@x.org", 2 * round);
        let from_b = b.add(1000, "anne@x.org", 2 * round + 1);
        given.extend([a.uid_validity("anne@x.org"), b.uid_validity("anne@x.org")]);
        a.take(&from_b);
        b.take(&from_a);
        while !a.accounts().is_empty() {
            let gone = a.remove("anne@x.org");
            b.take(&gone);
        }
    }
    assert_eq!(given, [1025, 1026, 1089, 1090, 1153, 1154]);
}

#[test]
fn what_was_removed_stays_removed_whatever_was_changed_meanwhile() {
    let (mut a, mut b) = (Node::new(1), Node::new(2));
    let made = a.add(10, "anne@x.org", 1);
    b.take(&made);
    let change = b.directory.plan_set_credential("anne@x.org", "new", false);
    let change = b.make(99, change.unwrap());
    let raised = Op::RaiseUidValidity {
        account: [1; 16],
        uid_validity: 777,
    };
    let raised = b.make(99, vec![raised]);
    let removal = a.remove("anne@x.org");
    b.take(&removal);
    a.take(&change);
    a.take(&raised);
    assert_eq!(a.directory, b.directory);
    for node in [&a, &b] {
        assert_eq!(node.accounts(), []);
        assert!(node.directory.was_removed(&[1; 16]));
        // Whoever comes next is above what the one before was given elsewhere.
        assert_eq!(node.directory.uid_validity_floor("anne@x.org"), 777);
    }
}

#[test]
fn the_later_password_holds_on_both_sides() {
    for (wall_a, wall_b, holds) in [(50, 60, "b"), (60, 50, "a")] {
        let (mut a, mut b) = (Node::new(1), Node::new(2));
        let made = a.add(10, "anne@x.org", 1);
        b.take(&made);
        let set = |node: &Node, to: &str| {
            let planned = node.directory.plan_set_credential("anne@x.org", to, false);
            planned.unwrap()
        };
        let ops = set(&a, "a");
        let from_a = a.make(wall_a, ops);
        let ops = set(&b, "b");
        let from_b = b.make(wall_b, ops);
        a.take(&from_b);
        b.take(&from_a);
        assert_eq!(a.directory, b.directory);
        let (_, entry) = a.directory.holder(&named("anne@x.org")).unwrap();
        assert_eq!(entry.credential.value, holds.into());
    }
}

/// Each side refuses a circle, and two sides make one.
#[test]
fn aliases_of_two_sides_may_make_a_circle() {
    let (mut a, mut b) = (Node::new(1), Node::new(2));
    let made = a.add(10, "anne@x.org", 1);
    b.take(&made);
    let link = |node: &mut Node, from: &str, to: &str| {
        let ops = node.directory.plan_add_alias(from, to, true);
        node.make(1, ops.unwrap())
    };
    for name in ["one@x.org", "two@x.org"] {
        let both = link(&mut a, name, "anne@x.org");
        b.take(&both);
    }
    let from_a = link(&mut a, "one@x.org", "two@x.org");
    let from_b = link(&mut b, "two@x.org", "one@x.org");
    a.take(&from_b);
    b.take(&from_a);
    assert_eq!(a.directory, b.directory);
    // Whoever is reached from the circle is reached from all of it.
    for local in ["one", "two"] {
        let Resolution::Local(found) = a.directory.resolve(local, "x.org") else {
            panic!("{local} leads nowhere");
        };
        assert_eq!(found.len(), 1);
        assert!(a.directory.may_send(&[1; 16], local, "x.org"));
    }
    // One that leads to nobody is nobody, and can be taken apart.
    let removed = a
        .directory
        .plan_remove_alias("one@x.org", Some("anne@x.org"));
    a.make(2, removed.unwrap());
    let removed = a
        .directory
        .plan_remove_alias("two@x.org", Some("anne@x.org"));
    a.make(3, removed.unwrap());
    assert_eq!(a.directory.resolve("one", "x.org"), Resolution::NoSuchUser);
    assert!(!a.directory.may_send(&[1; 16], "one", "x.org"));
    let removed = a.directory.plan_remove_alias("one@x.org", None);
    a.make(4, removed.unwrap());
    assert_eq!(
        a.directory
            .plan_add_alias("two@x.org", "anne@x.org", true)
            .map(|ops| ops.len()),
        Ok(1)
    );
}

/// Every node opens an account alike, whether it has heard that UIDVALIDITY has risen or not.
#[test]
fn an_account_stays_as_it_was_born() {
    let (mut a, mut b) = (Node::new(1), Node::new(2));
    let made = a.add(10, "anne@x.org", 1);
    b.take(&made);
    let born = a.uid_validity("anne@x.org");
    let raised = Op::RaiseUidValidity {
        account: [1; 16],
        uid_validity: 777,
    };
    a.make(99, vec![raised]);
    let of = |node: &Node| {
        let entry = node.directory.account(&[1; 16]).unwrap();
        (entry.born(), entry.uid_validity)
    };
    assert_eq!([of(&a), of(&b)], [(born, 777), (born, born)]);
}
