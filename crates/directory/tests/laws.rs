//! Laws of the directory on random histories of two to four replicas.

use crate::world;

use proptest::prelude::*;
use world::{laws, steps};

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replicas_converge_to_what_the_definition_says(count in 2..=4usize, history in steps(60)) {
        laws::replicas_converge(count, &history)?;
    }

    #[test]
    fn concurrent_operations_commute(count in 2..=4usize, history in steps(40), orders in any::<[u64; 3]>()) {
        laws::concurrent_operations_commute(count, &history, orders)?;
    }

    #[test]
    fn joining_is_applying_what_is_missing(count in 2..=4usize, history in steps(60), order in any::<u64>()) {
        laws::joining_is_applying(count, &history, order)?;
    }

    #[test]
    fn join_is_idempotent_commutative_and_associative(count in 2..=4usize, history in steps(60)) {
        laws::join_is_a_union(count, &history)?;
    }
}
