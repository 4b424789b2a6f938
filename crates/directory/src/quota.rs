//! What single accounts may hold.

use minicbor::{Decode, Encode};

/// What an account may hold, where that is not what every account may. Of each: `None`: what every account may; [`u64::MAX`]: as much as there is room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct OwnQuota {
    /// Bytes of messages, copies too.
    #[n(0)]
    pub bytes: Option<u64>,
    /// Messages.
    #[n(1)]
    pub messages: Option<u64>,
    /// Mailboxes.
    #[n(2)]
    pub mailboxes: Option<u64>,
}

/// A change of it. `None`: it stays as it is; else as in [`OwnQuota`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaChange {
    /// Of the bytes.
    pub bytes: Option<Option<u64>>,
    /// Of the messages.
    pub messages: Option<Option<u64>>,
    /// Of the mailboxes.
    pub mailboxes: Option<Option<u64>>,
}

impl QuotaChange {
    pub(crate) fn of(self, before: OwnQuota) -> OwnQuota {
        OwnQuota {
            bytes: self.bytes.unwrap_or(before.bytes),
            messages: self.messages.unwrap_or(before.messages),
            mailboxes: self.mailboxes.unwrap_or(before.mailboxes),
        }
    }
}
