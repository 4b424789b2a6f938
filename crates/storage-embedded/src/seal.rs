//! Seals: what every atomic write of this engine carries, so that the journals can be judged without trusting the tree.
//!
//! A seal has the write's number (1, 2, 3, ... over the life of the store, no gap), the greatest number that was known to be
//! synced when this was written, and how far each tree had been written before. It is the last item of its write, stored
//! uncompressed, with a checksum keyed by the store's own random id: nobody who sends mail can make one.
//!
//! What follows for a reader of journals: a seal anywhere, even behind garbage, proves that all writes up to its `synced`
//! were on disk once. So if a journal breaks off at number n and a seal behind the break says `synced > n`, acknowledged
//! data is damaged; if none does, the break is the torn end of what nobody was told about.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fjall::{Database, Keyspace, OwnedWriteBatch, PersistMode};
use whimbrel_storage::StoreError;

use crate::keys::{MARK_KEY, SEAL_KEY};

pub(crate) const SEAL_MAGIC: &[u8; 8] = b"\xf1WhSeal\x01";
pub(crate) const SEAL_BYTES: usize = 8 + 8 + 8 + 8 + 8 * TREES + 16;
/// Trees that a write may touch.
pub(crate) const TREES: usize = 4;
/// In the order in which they are made.
pub(crate) const TREE_NAMES: [&str; TREES] = ["log", "records", "blobs", "meta"];

/// The store's random id; keys the checksum of its seals.
pub(crate) type StoreId = [u8; 32];

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seal {
    /// Of this write.
    pub(crate) number: u64,
    /// All writes up to this one were synced when this one was made.
    pub(crate) synced: u64,
    /// A lower bound, close by, of the sequence number the tree gave this write: its journal has that number unprotected.
    pub(crate) sequence: u64,
    /// For each tree (log, records, blobs, meta): a sequence number of the tree that its last write before this one had or
    /// surpassed. What it covers is either still in a journal or must be in the tree's files.
    pub(crate) touched: [u64; TREES],
}

impl Seal {
    pub(crate) fn encode(&self, id: &StoreId) -> [u8; SEAL_BYTES] {
        let mut bytes = [0; SEAL_BYTES];
        bytes[..8].copy_from_slice(SEAL_MAGIC);
        bytes[8..16].copy_from_slice(&self.number.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.synced.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_be_bytes());
        for (index, touched) in self.touched.iter().enumerate() {
            bytes[32 + index * 8..40 + index * 8].copy_from_slice(&touched.to_be_bytes());
        }
        let checksum = blake3::keyed_hash(id, &bytes[..SEAL_BYTES - 16]);
        bytes[SEAL_BYTES - 16..].copy_from_slice(&checksum.as_bytes()[..16]);
        bytes
    }

    /// `None` if these are not the bytes of a seal of this store.
    pub(crate) fn decode(id: &StoreId, bytes: &[u8]) -> Option<Seal> {
        if bytes.len() != SEAL_BYTES || !bytes.starts_with(SEAL_MAGIC) {
            return None;
        }
        let checksum = blake3::keyed_hash(id, &bytes[..SEAL_BYTES - 16]);
        if checksum.as_bytes()[..16] != bytes[SEAL_BYTES - 16..] {
            return None;
        }
        let number = |at: usize| {
            bytes
                .get(at..at + 8)?
                .try_into()
                .ok()
                .map(u64::from_be_bytes)
        };
        let mut touched = [0; TREES];
        for (index, touched) in touched.iter_mut().enumerate() {
            *touched = number(32 + index * 8)?;
        }
        Some(Seal {
            number: number(8)?,
            synced: number(16)?,
            sequence: number(24)?,
            touched,
        })
    }
}

/// The four trees.
#[derive(Clone)]
pub(crate) struct Trees {
    pub(crate) log: Keyspace,
    pub(crate) records: Keyspace,
    pub(crate) blobs: Keyspace,
    pub(crate) meta: Keyspace,
}

impl Trees {
    /// In the order of [`Seal::touched`].
    pub(crate) fn all(&self) -> [&Keyspace; TREES] {
        [&self.log, &self.records, &self.blobs, &self.meta]
    }
}

/// A write being put together; remembers what it does to which tree.
pub(crate) struct Write {
    batch: OwnedWriteBatch,
    touches: [bool; TREES],
    removes: [bool; TREES],
}

/// Index into [`Seal::touched`].
#[derive(Clone, Copy)]
pub(crate) enum Tree {
    Log = 0,
    Records = 1,
    Blobs = 2,
    Meta = 3,
}

/// Makes every write of the engine: numbers it, seals it, and hands it to the tree in the order of the numbers.
pub(crate) struct Sealer {
    db: Database,
    pub(crate) trees: Trees,
    id: StoreId,
    last: Mutex<Seal>,
    synced: AtomicU64,
    failure: Mutex<Option<Arc<str>>>,
}

impl Sealer {
    /// Goes on after `last`, which is all on disk.
    pub(crate) fn new(db: Database, trees: Trees, id: StoreId, last: Seal) -> Self {
        let synced = AtomicU64::new(last.number);
        Sealer {
            db,
            trees,
            id,
            last: Mutex::new(last),
            synced,
            failure: Mutex::new(None),
        }
    }

    pub(crate) fn begin(&self) -> Write {
        Write {
            batch: self.db.batch(),
            touches: [false; TREES],
            removes: [false; TREES],
        }
    }

    /// Writes, without a sync. With `flush` all writes so far are handed to the system, so that a sync of the journal covers
    /// them. Gives the write's number.
    ///
    /// # Errors
    /// `Poisoned`: the journal is in an unknown state, nothing may be written any more.
    pub(crate) fn write(&self, write: Write, flush: bool) -> Result<u64, StoreError> {
        let Write {
            batch,
            touches,
            removes,
        } = write;
        // Held over the tree's own write: numbers must have the order of the journal.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = self.failure() {
            return Err(StoreError::Poisoned(reason));
        }
        // No other write can come between, but the tree takes sequence numbers of its own: this one is a lower bound.
        let sequence = self.db.seqno();
        let synced = self.synced.load(Ordering::Acquire);
        let mut seal = Seal {
            number: last.number + 1,
            synced,
            sequence,
            ..*last
        };
        let mut batch = batch.durability(flush.then_some(PersistMode::Buffer));
        for (tree, removes) in self.trees.all().into_iter().zip(removes) {
            if removes {
                batch.insert(tree, MARK_KEY, &seal.number.to_be_bytes()[..]);
            }
        }
        batch.insert(&self.trees.meta, SEAL_KEY, &seal.encode(&self.id)[..]);
        if let Err(error) = batch.commit() {
            return Err(self.fail(&format!("writing to the journal: {error:?}")));
        }
        for (touched, touches) in seal.touched.iter_mut().zip(touches) {
            if touches {
                *touched = sequence;
            }
        }
        seal.touched[Tree::Meta as usize] = sequence;
        let number = seal.number;
        *last = seal;
        Ok(number)
    }

    /// Hands all writes so far to the system. Gives the last one's number if not all of them were synced.
    ///
    /// # Errors
    /// As [`Sealer::write`].
    pub(crate) fn flush(&self) -> Result<Option<u64>, StoreError> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = self.failure() {
            return Err(StoreError::Poisoned(reason));
        }
        if last.number <= self.synced.load(Ordering::Acquire) {
            return Ok(None);
        }
        match self.db.persist(PersistMode::Buffer) {
            Ok(()) => Ok(Some(last.number)),
            Err(error) => Err(self.fail(&format!("writing to the journal: {error:?}"))),
        }
    }

    /// All writes up to `number` are on disk.
    pub(crate) fn set_synced(&self, number: u64) {
        self.synced.fetch_max(number, Ordering::AcqRel);
    }

    /// Refuses all further writes. Gives the first failure, as everyone is told it.
    pub(crate) fn fail(&self, reason: &str) -> StoreError {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        StoreError::Poisoned(failure.get_or_insert_with(|| reason.into()).clone())
    }

    pub(crate) fn failure(&self) -> Option<Arc<str>> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn db(&self) -> &Database {
        &self.db
    }
}

impl Write {
    pub(crate) fn put(
        &mut self,
        trees: &Trees,
        tree: Tree,
        key: Vec<u8>,
        value: impl Into<fjall::UserValue>,
    ) {
        self.touches[tree as usize] = true;
        self.batch.insert(trees.all()[tree as usize], key, value);
    }

    pub(crate) fn remove(&mut self, trees: &Trees, tree: Tree, key: impl Into<fjall::UserKey>) {
        self.touches[tree as usize] = true;
        self.removes[tree as usize] = true;
        self.batch.remove(trees.all()[tree as usize], key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_belongs_to_its_store_and_cannot_be_changed() {
        let id = [7; 32];
        let seal = Seal {
            number: 9,
            synced: 8,
            sequence: 5,
            touched: [1, 2, 3, 4],
        };
        let bytes = seal.encode(&id);
        assert_eq!(Seal::decode(&id, &bytes), Some(seal));
        assert_eq!(Seal::decode(&[8; 32], &bytes), None, "another store's");
        for at in 0..SEAL_BYTES {
            let mut changed = bytes;
            changed[at] ^= 0x10;
            assert_eq!(Seal::decode(&id, &changed), None, "byte {at} changed");
        }
        assert_eq!(Seal::decode(&id, &bytes[..SEAL_BYTES - 1]), None);
    }
}
