//! Who serves which partition: alike everywhere, spread evenly, and moved only where a node comes or goes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use whimbrel_crdt::PartitionId;
use whimbrel_replication::placement::{Node, Role, holders, serve};

fn node(name: &str, region: &str, role: Role) -> Node {
    Node {
        name: name.to_owned(),
        region: region.to_owned(),
        role,
        distance: 0,
        holds: true,
    }
}

fn partitions() -> impl Iterator<Item = PartitionId> {
    (0..256).map(PartitionId)
}

fn names(of: &[Node], partition: PartitionId, workers: usize) -> Vec<String> {
    let served = serve(partition, of, "here", workers);
    let first = served.order.iter().take(served.first);
    first.map(|node| node.name.clone()).collect()
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let role = prop_oneof![3 => Just(Role::Worker), 1 => Just(Role::Storage)];
    let region = prop_oneof![Just("here"), Just("there"), Just("far")];
    let one = ("[a-z]{1,12}", region, role, 0..4_u64);
    let some = prop::collection::btree_map("[a-z]{1,12}", one, 1..16);
    some.prop_map(|nodes| {
        let nodes = nodes.into_iter();
        let node = |(name, (_, region, role, distance)): (String, _)| Node {
            name,
            region: String::from(region),
            role,
            distance,
            holds: true,
        };
        nodes.map(node).collect()
    })
}

proptest! {
    #[test]
    fn all_nodes_find_the_same(mut nodes in nodes(), partition in 0..256_u16, workers in 0..4_usize) {
        let partition = PartitionId(partition);
        let served = names(&nodes, partition, workers);
        nodes.reverse();
        prop_assert_eq!(&names(&nodes, partition, workers), &served);
        // Distance is one node's own: it moves nobody of the region.
        if nodes.iter().any(|node| node.region == "here") {
            nodes.iter_mut().for_each(|node| node.distance = node.name.len() as u64);
            prop_assert_eq!(&names(&nodes, partition, workers), &served);
        }
        let order = serve(partition, &nodes, "here", workers).order;
        prop_assert_eq!(order.len(), nodes.len());
        let kinds: Vec<(bool, Role)> = order.iter().map(|node| (node.region != "here", node.role)).collect();
        prop_assert!(kinds.is_sorted());
    }

    #[test]
    fn who_goes_moves_only_what_it_served(nodes in nodes(), gone in any::<prop::sample::Index>(), workers in 1..4_usize) {
        let gone = gone.get(&nodes).name.clone();
        let left: Vec<Node> = nodes.iter().filter(|node| node.name != gone).cloned().collect();
        for partition in partitions() {
            let order = |of: &[Node]| -> Vec<String> {
                let served = serve(partition, of, "here", workers);
                served.order.iter().map(|node| node.name.clone()).collect()
            };
            // The others are asked in the order in which they were asked before: read backwards, so is it when one comes.
            let before: Vec<String> = order(&nodes).into_iter().filter(|name| *name != gone).collect();
            prop_assert_eq!(order(&left), before);
            // One that does not hold it is as one that is not there, and moves no other.
            let mut lacking = nodes.clone();
            lacking.iter_mut().for_each(|node| node.holds = node.name != gone);
            prop_assert_eq!(order(&lacking), order(&left));
        }
    }

    #[test]
    fn enough_hold_each_partition(mut nodes in nodes(), partition in 0..256_u16, workers in 0..4_usize, least in 0..6_usize) {
        let partition = PartitionId(partition);
        let named = |of: &[Node]| -> BTreeSet<String> {
            let held = holders(partition, of, workers, least);
            held.into_iter().map(str::to_owned).collect()
        };
        let held = named(&nodes);
        let least_there = least.min(nodes.len());
        prop_assert!(held.len() >= least_there);
        for region in ["here", "there", "far"] {
            let of = nodes.iter().filter(|node| node.region == region);
            let (storage, all): (Vec<&Node>, Vec<&Node>) = of.partition(|node| node.role == Role::Storage);
            prop_assert!(storage.iter().all(|node| held.contains(&node.name)));
            let wanted = if workers == 0 { all.len() } else { workers.min(all.len()) };
            let first = serve(partition, &nodes, region, workers).order.into_iter().take(wanted);
            prop_assert!(first.clone().all(|node| held.contains(&node.name)), "those who serve it");
            let holding = all.iter().filter(|node| held.contains(&node.name)).count();
            prop_assert!(holding >= wanted);
            prop_assert!(holding == wanted || held.len() == least_there, "no more than have to");
        }
        // Alike everywhere, whoever holds it now and however far the nodes are.
        nodes.reverse();
        nodes.iter_mut().for_each(|node| (node.holds, node.distance) = (false, 7));
        prop_assert_eq!(named(&nodes), held);
    }
}

/// When one of ten workers comes or goes, each partition is moved by one holder at most, and only those that it holds are.
#[test]
fn holders_move_only_where_one_comes_or_goes() {
    let all: Vec<Node> = (0..10)
        .map(|index| node(&format!("eu-{index}"), "here", Role::Worker))
        .collect();
    let mut moved = 0;
    for partition in partitions() {
        let (before, after) = (
            holders(partition, &all[1..], 2, 2),
            holders(partition, &all, 2, 2),
        );
        assert_eq!((before.len(), after.len()), (2, 2));
        let went = before.difference(&after).count();
        assert_eq!(went, usize::from(after.contains("eu-0")));
        moved += went;
    }
    assert!((256 / 10..256 * 3 / 10).contains(&moved), "{moved}");
}

/// 256 partitions over n workers: each serves between half and one and a half times its share, for these names, up to 8 workers. (With hashing alone the
/// share of one of n is binomial: its deviation is the root of 256 / n, 16 at worst and a quarter of the share at 16.)
#[test]
fn partitions_are_spread() {
    for count in 1..=8 {
        let nodes: Vec<Node> = (0..count)
            .map(|index| node(&format!("eu-{index}"), "here", Role::Worker))
            .collect();
        let mut shares: BTreeMap<String, usize> = BTreeMap::new();
        for partition in partitions() {
            let served = names(&nodes, partition, 1);
            assert_eq!(served.len(), 1);
            *shares.entry(served[0].clone()).or_default() += 1;
        }
        let share = 256 / count;
        assert_eq!(shares.len(), count);
        for (name, partitions) in shares {
            let bounds = share / 2..=share * 3 / 2 + 1;
            assert!(
                bounds.contains(&partitions),
                "{name} of {count}: {partitions}"
            );
        }
    }
}

#[test]
fn workers_of_the_region_come_first() {
    let nodes = [
        node("s", "here", Role::Storage),
        node("w", "there", Role::Worker),
        node("a", "here", Role::Worker),
        node("b", "here", Role::Worker),
    ];
    let partition = PartitionId(7);
    let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let all: BTreeSet<String> = names(&nodes, partition, 0).into_iter().collect();
    assert_eq!(all, of(&["a", "b"]));
    let served = serve(partition, &nodes, "here", 0);
    assert!(served.by("a") && served.by("b") && !served.by("s") && !served.by("w"));
    let order: Vec<&str> = served.order.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(order[2..], ["s", "w"]);
    assert_eq!(names(&nodes, partition, 1).len(), 1);
    // Without a worker in the region its storage serves.
    let storage = [nodes[0].clone(), nodes[1].clone()];
    assert_eq!(names(&storage, partition, 1), ["s"]);
    // Of a region of which nobody is left, others are asked.
    assert_eq!(names(&nodes[1..2], partition, 1), ["w"]);
}
