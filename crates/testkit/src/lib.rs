//! What tests of several crates, the simulator and the benchmark share. It knows nothing of the product, so that crates which must not import the
//! product may use it.

mod rng;

pub use rng::Rng;
