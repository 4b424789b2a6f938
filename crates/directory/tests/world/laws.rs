//! What must hold of any history.

use proptest::prelude::*;

use super::{Replica, Step, World, join};

type Held = Result<(), TestCaseError>;

/// After each step every replica shows what the oracle says and has it on disk; in the end all are equal.
pub(crate) fn replicas_converge(count: usize, history: &[Step]) -> Held {
    let mut world = World::new(count);
    world.run(history);
    world.settle();
    world.validities_differ();
    for replica in &world.replicas[1..] {
        prop_assert_eq!(&replica.directory, &world.replicas[0].directory);
    }
    Ok(())
}

pub(crate) fn concurrent_operations_commute(
    count: usize,
    history: &[Step],
    orders: [u64; 3],
) -> Held {
    let mut world = World::new(count);
    world.run(history);
    let all = (0..world.made.len()).collect();
    let [first, second, third] = orders.map(|order| world.replay(&all, order));
    prop_assert_eq!(&first, &second);
    prop_assert_eq!(&second, &third);
    Ok(())
}

pub(crate) fn joining_is_applying(count: usize, history: &[Step], order: u64) -> Held {
    let mut world = World::new(count);
    world.run(history);
    let mut states = world.replicas.clone();
    states.append(&mut world.kept);
    for a in &states {
        for b in &states {
            let mut joined = a.clone();
            join(&mut joined, b);
            prop_assert_eq!(&joined.directory, &world.replay(&joined.applied, order));
        }
    }
    Ok(())
}

pub(crate) fn join_is_a_union(count: usize, history: &[Step]) -> Held {
    let mut world = World::new(count);
    world.run(history);
    let mut states = world.replicas.clone();
    states.append(&mut world.kept);
    states.truncate(6);
    let joined = |a: &Replica, b: &Replica| {
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
                prop_assert_eq!(
                    &joined(&ab, c).directory,
                    &joined(a, &joined(b, c)).directory
                );
            }
        }
    }
    Ok(())
}
