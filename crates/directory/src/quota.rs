//! Quotas of single accounts.

use minicbor::{Decode, Encode};

/// The quota of an account, where it differs from the default. For each limit, `None` is the default, and [`u64::MAX`] is no limit.
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

/// A change of a quota. `None`: the limit stays; else as in [`OwnQuota`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaChange {
    /// The change of the bytes.
    pub bytes: Option<Option<u64>>,
    /// The change of the messages.
    pub messages: Option<Option<u64>>,
    /// The change of the mailboxes.
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
