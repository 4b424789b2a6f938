//! Laws of the directory on random histories of two to four replicas.

#![allow(missing_docs)]

mod world;

use proptest::prelude::*;
use world::{World, join, steps};

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// After each step every replica shows what the oracle says and has it on disk; in the end all are equal.
    #[test]
    fn replicas_converge_to_what_the_definition_says(count in 2..=4usize, history in steps(60)) {
        let mut world = World::new(count);
        world.run(&history);
        world.settle();
        for replica in &world.replicas[1..] {
            prop_assert_eq!(&replica.directory, &world.replicas[0].directory);
        }
    }

    #[test]
    fn concurrent_operations_commute(count in 2..=4usize, history in steps(40), orders in any::<[u64; 3]>()) {
        let mut world = World::new(count);
        world.run(&history);
        let all = (0..world.made.len()).collect();
        let [first, second, third] = orders.map(|order| world.replay(&all, order));
        prop_assert_eq!(&first, &second);
        prop_assert_eq!(&second, &third);
    }

    #[test]
    fn joining_is_applying_what_is_missing(count in 2..=4usize, history in steps(60), order in any::<u64>()) {
        let mut world = World::new(count);
        world.run(&history);
        let mut states = world.replicas.clone();
        states.append(&mut world.kept);
        for a in &states {
            for b in &states {
                let mut joined = a.clone();
                join(&mut joined, b);
                prop_assert_eq!(&joined.directory, &world.replay(&joined.applied, order));
            }
        }
    }

    #[test]
    fn join_is_idempotent_commutative_and_associative(count in 2..=4usize, history in steps(60)) {
        let mut world = World::new(count);
        world.run(&history);
        let mut states = world.replicas.clone();
        states.append(&mut world.kept);
        states.truncate(6);
        let joined = |a: &world::Replica, b: &world::Replica| {
            let mut joined = a.clone();
            join(&mut joined, b);
            joined
        };
        for a in &states {
            prop_assert_eq!(&joined(a, a).directory, &a.directory);
            for b in &states {
                let ab = joined(a, b);
                prop_assert_eq!(&ab.directory, &joined(b, a).directory);
                prop_assert_eq!(&joined(&ab, b).directory, &ab.directory);
                for c in &states {
                    prop_assert_eq!(&joined(&ab, c).directory, &joined(a, &joined(b, c)).directory);
                }
            }
        }
    }
}
