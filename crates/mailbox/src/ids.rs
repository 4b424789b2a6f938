//! Identities that never change: accounts, mailboxes, messages, blobs, queue entries.
//!
//! Mailbox and message ids are opaque: drawn from the dot of the operation that makes them, or derived from what must
//! never exist twice (the default folders of an account; a queue entry's delivery).
//!
//! Ids of uploads, entries and messages begin with an [`Order`], so that rows that have them as keys lie in the order in which the
//! messages came, and a mailbox is read by walking along (docs/decisions/0015). Nothing else may hang on it: it is
//! taken from a clock.

use std::hash::Hasher;
use std::num::NonZeroU64;

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Dot, Incarnation, Stamp};

use crate::MailboxName;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
        #[cbor(transparent)]
        pub struct $name(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        /// 32 hexadecimal digits.
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    };
}

id!(
    /// A user and all of his mailboxes. Random, never the address.
    AccountId
);
id!(
    /// One mailbox, whatever its name.
    MailboxId
);
id!(
    /// One message in one account, whatever its mailbox and UID. A copy is another message.
    MessageId
);
id!(
    /// One accepted transaction in the queue.
    EntryId
);

fn derive(label: &str, parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_derive_key(label);
    for part in parts {
        // Lengths make the parts unambiguous.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    id
}

/// What an id begins with: ids of what came one after the other lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order(pub [u8; Self::BYTES]);

impl Order {
    /// Its length: milliseconds for nine thousand years. Ten bytes of an id are left to tell it from all others.
    pub const BYTES: usize = 6;

    /// Of what comes at this time, in microseconds since the epoch.
    pub fn at(wall_micros: u64) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(&(wall_micros / 1_000).to_be_bytes()[8 - Self::BYTES..]);
        Self(bytes)
    }

    /// The time of [`Order::at`], in milliseconds since the epoch.
    #[must_use]
    pub fn millis(self) -> u64 {
        let bytes = self.0.iter();
        bytes.fold(0, |millis, byte| millis << 8 | u64::from(*byte))
    }

    /// Of what is the `number`-th of a group and came at no known time; `group` is any number that few others have.
    pub fn within(group: u16, number: u32) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&group.to_be_bytes());
        bytes[2..].copy_from_slice(&number.to_be_bytes());
        Self(bytes)
    }

    /// That of an id.
    pub fn of(id: &[u8; 16]) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(&id[..Self::BYTES]);
        Self(bytes)
    }

    /// An id that begins with it and goes on as `rest` does.
    pub fn before(self, mut rest: [u8; 16]) -> [u8; 16] {
        rest[..Self::BYTES].copy_from_slice(&self.0);
        rest
    }
}

fn dot_bytes(dot: Dot) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&dot.origin.get().to_le_bytes());
    bytes[8..].copy_from_slice(&dot.seq.to_le_bytes());
    bytes
}

impl MailboxId {
    /// The INBOX, the same id in every account and on every node.
    pub fn inbox() -> Self {
        Self::default_folder("INBOX")
    }

    /// A folder that every account is born with; `label` is fixed for ever, the name may change.
    pub fn default_folder(label: &str) -> Self {
        Self(derive("whimbrel default folder v1", &[label.as_bytes()]))
    }

    /// The mailbox that the operation `dot` creates.
    pub fn from_dot(dot: Dot) -> Self {
        Self(derive("whimbrel mailbox v1", &[&dot_bytes(dot)]))
    }
}

impl MessageId {
    /// The `index`-th message that the operation `dot` makes, beside what has this order: the upload of its bytes, or the message it is a
    /// copy of.
    pub fn from_dot(dot: Dot, index: u32, order: Order) -> Self {
        Self(order.before(derive(
            "whimbrel message v1",
            &[&dot_bytes(dot), &index.to_le_bytes()],
        )))
    }

    /// The message that a queue entry becomes for one account and one target, on whatever node it is delivered.
    ///
    /// `target` is the name that the recipient's address asked for, fixed at acceptance, not where it ended up.
    pub fn delivered(entry: EntryId, account: AccountId, target: &MailboxName) -> Self {
        Self(Order::of(&entry.0).before(derive(
            "whimbrel delivery v1",
            &[&entry.0, &account.0, target.as_str().as_bytes()],
        )))
    }

    /// The message that something of elsewhere becomes in an account, whoever brings it, and how often.
    pub fn imported(entry: EntryId, account: AccountId) -> Self {
        let id = derive("whimbrel import v1", &[&entry.0, &account.0]);
        Self(Order::of(&entry.0).before(id))
    }

    /// What the upload of these bytes is called that become such a message, whoever brings them. Other bytes of the same message have another one: a store
    /// has one blob of a name.
    pub fn imported_upload(entry: EntryId, account: AccountId, hash: &[u8; 32]) -> [u8; 16] {
        let parts: [&[u8]; 3] = [&entry.0, &account.0, hash];
        Order::of(&entry.0).before(derive("whimbrel import upload v1", &parts))
    }
}

/// Hashes ids, which end in a hash already: the last eight bytes are as good as any hash of them. The first ones are an [`Order`], which
/// neighbours share.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk::<8>() {
            self.0 ^= u64::from_le_bytes(*last);
        }
    }

    fn write_usize(&mut self, _: usize) {}
}

/// The last eight bytes of a queue entry's id, which say nothing of when it came: enough to ask whether the entry is finished, small enough to keep with
/// each delivered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct EntryTag(#[n(0)] NonZeroU64);

impl EntryTag {
    /// Of all messages that were imported: no queue entry made them, and whoever has the source may import them again at any time. The tag of
    /// a queue entry is a hash, which is this by a chance of one in 2^64.
    pub const IMPORT: Self = Self(NonZeroU64::MAX);
}

impl EntryId {
    /// Its tag.
    pub fn tag(self) -> EntryTag {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[8..]);
        EntryTag(NonZeroU64::new(u64::from_le_bytes(bytes)).unwrap_or(NonZeroU64::MIN))
    }

    /// The placement stamp of a delivery into `mailbox`: lower than every real stamp, and the same wherever it is made.
    ///
    /// It depends on the mailbox, so that a placement stamp names one mailbox.
    pub fn placement(self, mailbox: MailboxId) -> Stamp {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(
            &derive("whimbrel delivery placement v1", &[&self.0, &mailbox.0])[..8],
        );
        Stamp {
            hlc: 0,
            origin: Incarnation::from_hash(u64::from_le_bytes(bytes)),
        }
    }
}

/// The name of a blob: what it contains, and which upload brought it.
///
/// The upload is part of the name so that nobody learns from a hash whether another account has the same mail, and so
/// that no counting across accounts is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct BlobName {
    /// BLAKE3 of the stored bytes.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub hash: [u8; 32],
    /// The upload, unique in the cluster.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub upload: [u8; 16],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_sort_as_what_they_stand_for() {
        let ascending = [
            Order::at(0),
            Order::at(1_000),
            Order::at(1_700_000_000_000_000),
            Order::at(1_700_000_000_001_000),
            // Beyond what clocks of the next centuries say.
            Order::at(20_000_000_000_000_000),
        ];
        assert!(ascending.is_sorted_by(|a, b| a < b), "{ascending:?}");
        assert_eq!(Order::at(1_000), Order::at(1_999), "milliseconds");
        let folder = [(7, 0), (7, 1), (7, 256), (7, u32::MAX), (8, 0)];
        let folder = folder.map(|(group, number)| Order::within(group, number));
        assert!(folder.is_sorted_by(|a, b| a < b), "{folder:?}");
    }

    #[test]
    fn ids_begin_with_the_order() {
        let order = Order::at(1_700_000_000_000_000);
        let entry = EntryId(order.before([9; 16]));
        let (account, other) = (AccountId([1; 16]), AccountId([2; 16]));
        let dot = Dot::new(Incarnation::from_hash(5), 17);
        let inbox = MailboxName::new("INBOX").unwrap();
        let ids = [
            MessageId::from_dot(dot, 0, order),
            MessageId::from_dot(dot, 1, order),
            MessageId::delivered(entry, account, &inbox),
            MessageId::delivered(entry, other, &inbox),
            MessageId::imported(entry, account),
        ];
        for (at, id) in ids.iter().enumerate() {
            assert_eq!(Order::of(&id.0), order);
            let rest = |id: &MessageId| id.0[Order::BYTES..].to_vec();
            // What is no order tells them apart by itself.
            assert!(ids[..at].iter().all(|before| rest(before) != rest(id)));
        }
        let later = EntryId(Order::at(1_800_000_000_000_000).before([9; 16]));
        assert_eq!(entry.tag(), later.tag(), "a tag says nothing of the order");
    }

    /// A table of hashes looks at their low bits for a place, at the upper seven for what is there.
    #[test]
    fn ids_of_neighbours_have_hashes_far_apart() {
        use std::collections::BTreeSet;
        use std::hash::{BuildHasher as _, BuildHasherDefault};

        #[track_caller]
        fn check(what: &str, id: impl Fn(u64) -> MessageId) {
            let table = BuildHasherDefault::<IdHasher>::default();
            let hashes: Vec<u64> = (0..4096).map(|n| table.hash_one(id(n))).collect();
            let places: BTreeSet<u64> = hashes.iter().map(|hash| hash % 4096).collect();
            // By chance 63 in 100 places are taken.
            assert!(places.len() > 2048, "{what}: {} places", places.len());
            let tags: BTreeSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            assert_eq!(tags.len(), 128, "{what}");
        }
        let (account, node) = (AccountId([1; 16]), Incarnation::from_hash(5));
        let now = |n: u64| Order::at(1_700_000_000_000_000 + 1_000 * n);
        check("APPEND", |n| {
            MessageId::from_dot(Dot::new(node, n), 0, now(n))
        });
        check("COPY of one group", |n| {
            MessageId::from_dot(Dot::new(node, 9), n as u32, now(0))
        });
        check("import", |n| {
            MessageId::imported(EntryId(Order::within(7, n as u32).before([9; 16])), account)
        });
    }
}
