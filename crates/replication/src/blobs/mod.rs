//! Blobs, which travel beside the batches that name them: fetched by priority, several at once, checked by their hash.
//!
//! A small blob is pushed: sent unasked after the batch that names it. If the receiver had to ask, the blob would come one round trip later, and the
//! number of fetches at once would bound the messages that a node gets in a second over a long way. A receiver keeps a pushed blob that it does not
//! want yet for a while, in bounded memory.
//!
//! A blob never holds back a batch: frames from here are sent when no partition has one, and are small. Bytes that nobody asked for are dropped,
//! except pushed blobs. Of a blob that is being received, only what is being written is in memory.
//!
//! Reading order: `fetch`, `unrequested`, `serve`.

mod fetch;
mod serve;
mod unrequested;

pub use fetch::{Fetches, Output as FetchOutput};
pub use serve::{Output as ServeOutput, ReadId, Serves};

/// A feature of the handshake: the node pushes small blobs and accepts pushed ones. Bit 1 belongs to the crate `cluster`.
pub const FEATURE_PUSH: u64 = 2;

/// A feature of the handshake: asked about a blob that a batch of an account names, the node confirms that it is on its disk, at once or as soon as
/// it is.
pub const FEATURE_CONFIRM: u64 = 4;

/// Bounds and times.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Blobs that are wanted and known here. The driver knows more, on its disk.
    pub wanted_max: usize,
    /// Blobs that no peer has, beside those. Beyond the bound the first ones are asked for again sooner. Each takes two hundred bytes, as it does at
    /// the driver. A node that was cut off hears of one for each message that came and went in the meantime.
    pub resting_max: usize,
    /// Blobs fetched at once, from all peers. A small one takes a round trip: with 32 at once and 50 ms each way a node got 320 messages a second.
    pub fetches_max: usize,
    /// Bytes of one blob that may be on the way.
    pub window_bytes: u64,
    /// Bytes of one chunk: a batch waits for one chunk at most.
    pub chunk_bytes: usize,
    /// Blobs sent at once to one peer that asks.
    pub serves_max: usize,
    /// A larger blob is not pushed: the receiver may have to keep it in memory.
    pub push_bytes_max: usize,
    /// Blobs queued to be pushed to one peer: it asks for the others. As many names are remembered of blobs that were pushed and that came.
    pub pushes_max: usize,
    /// Blobs of the queue that were read and not sent.
    pub pushing_max: usize,
    /// Bytes of blobs that were pushed before they were wanted, from all peers, each with the same share. The same bound holds for wanted blobs that
    /// were pushed and are being written. A blob without room is asked for.
    pub ahead_bytes_max: u64,
    /// How long a blob that was pushed too early is kept.
    pub ahead_micros_max: u64,
    /// How long a node waits for a pushed blob before it asks for it.
    pub coming_micros_max: u64,
    /// A fetch leaves a peer that sends nothing for so long.
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
