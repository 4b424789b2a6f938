//! What was looked up and read of the messages after the one that is being sent, for a client that does not wait for each answer.

use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_service::{
    api::{BLOB_READS_BYTES_MAX, BLOB_READS_PER_CALL_MAX, BlobName, BlobRange, Row},
    content::Content,
};

use super::maildrop::octets;

/// Messages that were looked up and not yet sent.
pub(super) struct Ahead {
    /// Ascending by place.
    found: VecDeque<(u32, Looked)>,
    /// Places below this were looked up; what is not among `found` is gone.
    up_to: u32,
    /// Places below this were sent or passed over.
    from: u32,
}

/// What is known of a message that was looked up.
pub(super) enum Looked {
    /// It was removed after its row was read.
    Gone,
    /// Its content row is damaged.
    Damaged,
    Found {
        octets: u64,
        /// The header fields in front of the blob.
        prefix: Bytes,
        blob: BlobName,
        left: u64,
        /// The begin of the blob, if it was read.
        read: Option<Bytes>,
    },
}

impl Looked {
    pub(super) fn new(row: &Row, content: Option<&Bytes>) -> Looked {
        let Some(content) = content else {
            return Looked::Gone;
        };
        let Ok(content) = Content::decode(content) else {
            return Looked::Damaged;
        };
        let Some(left) = u64::from(row.size).checked_sub(content.prefix.len() as u64) else {
            return Looked::Damaged;
        };
        Looked::Found {
            octets: octets(row),
            // Of its own: the summary beside it is not wanted, and may be long.
            prefix: Bytes::copy_from_slice(&content.prefix),
            blob: row.blob,
            left,
            read: None,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Looked::Found { prefix, read, .. } => {
                prefix.len() + read.as_ref().map_or(0, Bytes::len)
            }
            Looked::Gone | Looked::Damaged => 0,
        }
    }
}

impl Ahead {
    /// What was looked up of the places from `from` to `up_to`, ascending by place.
    pub(super) fn new(found: impl Iterator<Item = (u32, Looked)>, from: u32, up_to: u32) -> Ahead {
        Ahead {
            found: found.collect(),
            up_to,
            from,
        }
    }

    /// Whether this place was looked up.
    pub(super) fn covers(&self, place: u32) -> bool {
        (self.from..self.up_to).contains(&place)
    }

    /// Nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Takes what was looked up of this place. What lies before it was passed over by the client, and is dropped.
    pub(super) fn pop(&mut self, place: u32) -> Looked {
        while self.found.front().is_some_and(|(at, ..)| *at < place) {
            self.found.pop_front();
        }
        self.from = place + 1;
        let looked = self.found.pop_front_if(|(at, _)| *at == place);
        looked.map_or(Looked::Gone, |(_, looked)| looked)
    }

    /// Memory.
    pub(super) fn bytes(&self) -> usize {
        let found: usize = self.found.iter().map(|(_, looked)| looked.bytes()).sum();
        self.found.capacity() * size_of::<(u32, Looked)>() + found
    }

    /// What else to read with the begin of a message, so that many short ones cost few calls: the next messages, as many as there is room for.
    /// Of each as much as of the first would be read, `most`.
    pub(super) fn with(&self, first: BlobRange, most: u32) -> Vec<BlobRange> {
        let mut room = BLOB_READS_BYTES_MAX.saturating_sub(first.len as usize);
        let mut ranges = vec![first];
        for (_, looked) in &self.found {
            let Looked::Found { blob, left, .. } = looked else {
                continue;
            };
            let len = piece(*left, most);
            let Some(rest) = room.checked_sub(len as usize) else {
                break;
            };
            if ranges.len() == BLOB_READS_PER_CALL_MAX {
                break;
            }
            room = rest;
            ranges.push(BlobRange {
                blob: *blob,
                offset: 0,
                len,
            });
        }
        ranges
    }

    /// What was read with the begin of a message, in the order of [`Ahead::with`].
    pub(super) fn take(&mut self, mut bytes: impl Iterator<Item = Bytes>) {
        for (_, looked) in &mut self.found {
            if let Looked::Found { read, .. } = looked {
                // What is gone is asked for once more, and told then.
                *read = bytes.next().filter(|bytes| !bytes.is_empty());
            }
        }
    }
}

/// How much is read at once of so much.
pub(super) fn piece(left: u64, most: u32) -> u32 {
    u32::try_from(left).map_or(most, |left| left.min(most))
}
