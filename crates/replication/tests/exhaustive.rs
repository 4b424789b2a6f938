//! All orders of events of a few nodes with a few batches.

use crate::world;

/// Of none of them are there so many states.
const STATES_MAX: u64 = 1_000_000;

#[test]
fn every_order() {
    for bounds in world::explore::SMALL {
        let figures = world::explore::search(bounds, STATES_MAX)
            .unwrap_or_else(|found| panic!("{}: {found:#?}", bounds.name));
        assert!(figures.whole, "{}: {figures:?}", bounds.name);
        assert!(figures.ends > 0, "{}: {figures:?}", bounds.name);
    }
}
