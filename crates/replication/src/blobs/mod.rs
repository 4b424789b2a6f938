//! Bodies, beside the batches that name them: wanted by priority, several at once, verified by their hash.
//!
//! A batch is never held back by a body: frames from here are sent when no partition has one, and are small. What a peer sends beyond what was asked
//! for is dropped; of a body under way only what is being written is in memory.
//!
//! Reading order: `fetch`, `serve`.

mod fetch;
mod serve;

pub use fetch::{Fetches, Output as FetchOutput};
pub use serve::{Output as ServeOutput, Serves};

/// Bounds and times.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Blobs that are known to be wanted. The driver knows more, on its disk.
    pub wanted_max: usize,
    /// Blobs fetched at once, from all peers. A small one takes two ways: with eight at once and 120 ms a way a node got 33 messages a second.
    pub fetches_max: usize,
    /// Bytes of one blob that may be on the way.
    pub window_bytes: u64,
    /// Bytes of one chunk: a batch waits for no more than this.
    pub chunk_bytes: usize,
    /// Blobs read at once for one peer.
    pub serves_max: usize,
    /// A peer that sends nothing of a blob for so long is left for another.
    pub stall_micros_max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            wanted_max: 4096,
            fetches_max: 32,
            window_bytes: 512 << 10,
            chunk_bytes: 64 << 10,
            serves_max: 32,
            stall_micros_max: 5_000_000,
        }
    }
}
