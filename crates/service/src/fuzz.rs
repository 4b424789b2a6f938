//! Entry points for fuzzers, also used by tests: rows as they are read from the store, damage included. Each takes any bytes and panics
//! when an invariant is broken.

use bytes::Bytes;
use whimbrel_crdt::{Incarnation, PartitionId};

use crate::{content::Content, log::Log, queue};

/// A content row: what can be read is written and read as the same.
pub fn content(data: &[u8]) {
    let row = Bytes::copy_from_slice(data);
    if let Ok(content) = Content::decode(&row) {
        assert!(content.prefix.len() + content.summary.len() <= data.len());
        assert_eq!(Content::decode(&content.encode()), Ok(content));
    }
}

/// An entry of the queue.
pub fn queue_entry(data: &[u8]) {
    queue::fuzz_row(&Bytes::copy_from_slice(data));
}

/// The position record of a log: it is read, or named as damaged, and what was read can be gone on from.
pub fn position(data: &[u8]) {
    let origin = Incarnation::new(1).expect("not zero");
    if let Ok(log) = Log::load(PartitionId(1), origin, data) {
        let _ = (log.next(), log.applied().len(), log.hlc());
    }
}
