//! Bodies that accounts may name which cannot be joined to a state: whether these are here nobody knows, and of all others it is known.

use whimbrel_mailbox::BlobName;

/// So many are remembered, which is 1 MiB. With more no body of the partition is known to be here, until the next start tries these accounts again.
const NAMES_MAX: usize = 128 * 1024;

/// Numbers made of names, in order. Two names may have one number: then of one that is here it is not said.
#[derive(Default)]
pub(super) struct PendingMerge(Vec<u64>);

impl PendingMerge {
    /// One of the accounts may name this body. `false`: there is no room for more.
    pub(super) fn note(&mut self, blob: &BlobName) -> bool {
        let has_room = self.0.len() < NAMES_MAX;
        if has_room {
            self.0.push(number(blob));
        }
        has_room
    }

    /// All were noted.
    pub(super) fn all_noted(mut self) -> Self {
        self.0.sort_unstable();
        self.0.dedup();
        self.0.shrink_to_fit();
        self
    }

    pub(super) fn may_name(&self, blob: &BlobName) -> bool {
        self.0.binary_search(&number(blob)).is_ok()
    }
}

fn number(blob: &BlobName) -> u64 {
    let first = |bytes: &[u8]| {
        let first = bytes.first_chunk();
        u64::from_be_bytes(first.copied().unwrap_or_default())
    };
    first(&blob.hash) ^ first(&blob.upload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(n: usize) -> BlobName {
        let mut hash = [7; 32];
        hash[..8].copy_from_slice(&(n as u64).to_be_bytes());
        BlobName {
            hash,
            upload: [3; 16],
        }
    }

    #[test]
    fn those_that_were_noted_may_be_named_and_they_are_bounded() {
        let mut pending_merge = PendingMerge::default();
        for n in (0..NAMES_MAX).rev() {
            assert!(pending_merge.note(&blob(n)));
        }
        assert!(!pending_merge.note(&blob(NAMES_MAX)));
        let pending_merge = pending_merge.all_noted();
        assert!((0..NAMES_MAX).all(|n| pending_merge.may_name(&blob(n))));
        assert!(!pending_merge.may_name(&blob(NAMES_MAX)));
    }
}
