//! STORE, COPY, MOVE, EXPUNGE.

use crate::core::{Flag, MessageSet, ModSeq, StoreOperation};

/// STORE and UID STORE (RFC 9051, section 6.4.6; RFC 7162, section 3.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Numbers are UIDs.
    pub uid: bool,
    /// Which messages.
    pub set: MessageSet,
    /// `(UNCHANGEDSINCE n)`; 0 is permitted and means that all fail.
    pub unchanged_since: Option<ModSeq>,
    /// What is done with the flags.
    pub operation: StoreOperation,
    /// `.SILENT`
    pub silent: bool,
    /// Without repetitions, may be empty. `\Recent` is left out: no client can set it (RFC 3501, section 2.3.2).
    pub flags: Vec<Flag>,
}
