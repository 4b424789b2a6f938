//! Entry points for fuzzers, also used by tests: each takes any bytes and panics when an invariant is broken.

use whimbrel_crdt::{Batch, Incarnation, VersionVector};

use crate::{AccountId, Content, Op, Peers, Replica, RowKey, Step};

/// Who made the operations.
const ORIGIN: u64 = 7;
const NOW_MICROS: u64 = 1_700_000_000_000_000;

fn origin() -> Incarnation {
    Incarnation::new(ORIGIN).expect("not zero")
}

fn vector(origin: Incarnation, last: u64) -> VersionVector {
    let mut vector = VersionVector::new();
    vector.advance(origin, last);
    vector
}

/// Operations as another node sends them: what can be read is written and read as the same, and applying it either works or says what is
/// missing. What follows from it can be stored, and read again as the same.
pub fn operations(data: &[u8]) {
    let Ok(ops) = Op::decode_all(data) else {
        return;
    };
    assert_eq!(
        Op::decode_all(&Op::encode_all(&ops)).as_ref(),
        Ok(&ops),
        "what was read can be written"
    );
    let mut replica = Replica::new(AccountId([1; 16]), 3);
    let applied = vector(origin(), ops.len() as u64 + 1);
    let step = Step {
        origin: origin(),
        first: 1,
        hlc: NOW_MICROS,
        deps: &VersionVector::new(),
        applied: &applied,
        now_micros: NOW_MICROS,
        peers: &Peers::none(),
    };
    if replica.apply(&step, ops).is_ok() {
        is_kept(&replica, &applied);
    }
}

/// A batch as another node sends it: as [`operations`], with numbers and times that it says itself.
pub fn batch(data: &[u8]) {
    let Ok(batch) = Batch::decode(data) else {
        return;
    };
    let sealed = batch.seal();
    assert_eq!(
        Batch::decode(&sealed.bytes).as_ref(),
        Ok(&batch),
        "what was read can be written"
    );
    let mut applied = batch.deps.clone();
    applied.advance(batch.origin, batch.last());
    for (index, section) in batch.indexed_sections() {
        let Ok(ops) = Op::decode_all(&section.ops) else {
            continue;
        };
        if ops.len() as u64 != u64::from(section.count) {
            continue;
        }
        let mut replica = Replica::new(AccountId([1; 16]), 3);
        let peers = Peers::none();
        let step = Step::of(&batch, index, &applied, NOW_MICROS, &peers);
        if replica.apply(&step, ops).is_ok() {
            is_kept(&replica, &applied);
        }
    }
}

/// Rows as they are read from the store, damage included: the account is loaded, or the row is named that cannot be read. Rows are pairs
/// of a key and a value, each with its length in one byte before it.
pub fn rows(data: &[u8]) {
    let mut rest = data;
    let mut next = || {
        let (&length, more) = rest.split_first()?;
        let (piece, more) = more.split_at_checked(usize::from(length))?;
        rest = more;
        Some(piece)
    };
    let mut rows = Vec::new();
    while let (Some(key), Some(value)) = (next(), next()) {
        let Ok(key) = RowKey::from_bytes(key) else {
            continue;
        };
        assert_eq!(RowKey::from_bytes(&key.to_bytes()), Ok(key.clone()));
        let _ = Content::decode(value);
        rows.push((key, value.to_vec()));
    }
    let applied = vector(origin(), 1_000);
    if let Ok(mut replica) = Replica::load(AccountId([1; 16]), 3, rows, &applied) {
        replica.release(NOW_MICROS, &Peers::none());
        is_read(&mut replica);
    }
}

/// Stored, and read again: the same.
fn is_kept(replica: &Replica, applied: &VersionVector) {
    let rows = replica.all_rows();
    let again = Replica::load(replica.account(), replica.slot(), rows.clone(), applied)
        .expect("what was stored can be read");
    assert_eq!(again.all_rows(), rows, "stored and read again");
    is_read(&mut replica.clone());
}

/// Whatever is asked of it is answered.
fn is_read(replica: &mut Replica) {
    for info in replica.names() {
        let status = replica.status(&info.name);
        assert_eq!(status.is_some(), replica.exists(&info.name));
        for uid in replica.uids(&info.name) {
            assert!(replica.row(&info.name, uid).is_some(), "a UID has a row");
        }
        let _ = replica.changed_since(&info.name, 0);
        let _ = replica.vanished_since(&info.name, 0);
    }
    let _ = (replica.uidvalidity(), replica.memory_bytes());
    let words = replica.records.iter();
    let words = words.map(|(_, record)| usize::from(record.heap_words()));
    assert_eq!(
        replica.heap_words,
        words.sum::<usize>(),
        "what records have on the heap"
    );
}
