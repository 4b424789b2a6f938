//! SELECT and EXAMINE (RFC 9051, sections 6.3.2 and 6.3.3; RFC 7162, sections 3.1.8 and 3.2.5).

use crate::core::{MailboxName, ModSeq, SequenceSet};

/// Arguments of SELECT and EXAMINE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    /// Which mailbox.
    pub mailbox: MailboxName,
    /// `(CONDSTORE)`
    pub condstore: bool,
    /// `(QRESYNC (...))`
    pub qresync: Option<Qresync>,
}

/// What a client knows of a mailbox (RFC 7162, section 3.2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qresync {
    /// The last known UIDVALIDITY, at least 1.
    pub uid_validity: u32,
    /// The last known modification sequence, at least 1.
    pub mod_seq: ModSeq,
    /// The known UIDs, without `*`.
    pub known_uids: Option<SequenceSet>,
    /// Sequence numbers and the UIDs they have, both without `*` and ascending.
    pub sequence_match: Option<(SequenceSet, SequenceSet)>,
}
