//! Seals: what every atomic write of this engine carries, so that the journals can be judged without trusting the tree.
//!
//! A seal has the write's number (1, 2, 3, ... over the life of the store, no gap), the greatest number that was known to be
//! synced when this was written, and how far each tree had been written before. It is the last item of its write, stored
//! uncompressed, with a checksum keyed by the store's own random id: nobody who sends mail can make one.
//!
//! What follows for a reader of journals: a seal anywhere, even behind garbage, proves that all writes up to its `synced`
//! were on disk once. So if a journal breaks off at number n and a seal behind the break says `synced > n`, acknowledged
//! data is damaged; if none does, the break is the torn end of what nobody was told about.

use crate::trees::TREES;

pub(crate) const SEAL_MAGIC: &[u8; 8] = b"\xf1WhSeal\x01";
pub(crate) const SEAL_BYTES: usize = 8 + 8 + 8 + 8 + 8 * TREES + 16;
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
