//! Bodies, beside the batches that name them: wanted by priority, several at once, verified by their hash.
//!
//! A small body is given unasked, behind the batch that names it: asked for it would be here two ways later, and what can be fetched at once would bound how
//! many messages a second a node gets over a long way. Who is given one that it does not want yet keeps it for a while, in bounded memory.
//!
//! A batch is never held back by a body: frames from here are sent when no partition has one, and are small. What a peer sends beyond what was asked
//! for is dropped; of a body under way only what is being written is in memory.
//!
//! Reading order: `fetch`, `unrequested`, `serve`.

mod fetch;
mod serve;
mod unrequested;

pub use fetch::{Fetches, Output as FetchOutput};
pub use serve::{Output as ServeOutput, ReadId, Serves};

/// A bit of the handshake's features: gives small blobs unasked, and takes them. 1 is of the crate `cluster`.
pub const FEATURE_PUSH: u64 = 2;

/// Another one: says of each body that batches of accounts name, when it is asked, that it is on its disk, at once or when it is.
pub const FEATURE_CONFIRM: u64 = 4;

/// Bounds and times.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Blobs that are known to be wanted. The driver knows more, on its disk.
    pub wanted_max: usize,
    /// Blobs that no peer has, beside those: beyond it the first are asked for again sooner. Two hundred bytes each, as the driver has for each that
    /// it knows; a node that was cut off hears of some for each message that came and went meanwhile.
    pub resting_max: usize,
    /// Blobs fetched at once, from all peers. A small one takes two ways: with 32 at once and 50 ms a way a node got 320 messages a second.
    pub fetches_max: usize,
    /// Bytes of one blob that may be on the way.
    pub window_bytes: u64,
    /// Bytes of one chunk: a batch waits for no more than this.
    pub chunk_bytes: usize,
    /// Blobs read at once for one peer that asks.
    pub serves_max: usize,
    /// A larger blob is not given unasked: what has no use for it yet holds that much of memory there.
    pub push_bytes_max: usize,
    /// Blobs that are to be given unasked to one peer: it asks for what is beyond. So many are remembered, too, of what was given and of what came.
    pub pushes_max: usize,
    /// Of these, read and not sent.
    pub pushing_max: usize,
    /// Bytes of blobs that were given before they were wanted, from all peers, each with the same share; and of those that are wanted and are being
    /// written. What has no place is asked for.
    pub ahead_bytes_max: u64,
    /// How long such a one is kept.
    pub ahead_micros_max: u64,
    /// How long a blob that is given unasked is waited for before it is asked for.
    pub coming_micros_max: u64,
    /// A peer that sends nothing of a blob for so long is left for another.
    pub stall_micros_max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            wanted_max: 4096,
            resting_max: 262_144,
            fetches_max: 128,
            window_bytes: 256 << 10,
            chunk_bytes: 64 << 10,
            serves_max: 128,
            push_bytes_max: 64 << 10,
            pushes_max: 4096,
            pushing_max: 16,
            ahead_bytes_max: 16 << 20,
            ahead_micros_max: 10_000_000,
            coming_micros_max: 1_000_000,
            stall_micros_max: 5_000_000,
        }
    }
}
