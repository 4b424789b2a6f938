//! The mailbox CRDT: operations, apply, join, collection, UID claims and what clients are shown
//!
//! Purpose: all mail state of one account, as a replicated data type that needs no coordination, and beside it what
//! this replica has told its clients, so that UIDs keep IMAP's promises on every replica.
//!
//! Invariants:
//! - [`Replica::apply`] is the only writer of replicated state: own and foreign operations take the same way.
//! - Planning (`plan_*`) reads only what is visible here and changes nothing: no operation names a hidden record.
//! - U1: a (name, UIDVALIDITY, UID) never denotes two messages. U2: what is shown as new has a UID of at least every
//!   UIDNEXT announced before. U4: a UID changes only after concurrent writes, a takeover, or a RENAME onto a name
//!   that was announced.
//!
//! How an owner uses it, for each call of a client:
//! `plan_*` gives operations and the outcome to tell; the owner numbers them ([`At::next`] is the dot of the first), seals a
//! batch, calls `apply`, takes `take_dirty` into the same atomic write as the batch, and answers when that is on disk.
//! Before any UID or UIDNEXT of a name is told: [`Replica::announce`], whose row is in the next `take_dirty`.
//! After foreign batches: [`Replica::plan_late`] until it gives nothing.
//!
//! Reading order: `ids`, `name`, `flags`, `op`; `keywords`, `record`, `replica`, `apply`, `view`, `lacking`, `told`, `lineage`, `elsewhere`, `merge`; `uids`, `read`, `walk`, `since`, `recent`, `plan`;
//! `rows`, `load`.
//!
//! Changes of the interface since it was first published:
//! - `Op::Bump` has an `epoch`; `raise_marks` takes `At`, for it believes what `plan_takeover` believes;
//! - new: `all_rows`, `replicated_rows`, `records`, `hidden`, `MAILBOXES_MAX`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod apply;
mod elsewhere;
mod flags;
#[doc(hidden)]
pub mod fuzz;
mod ids;
mod keywords;
mod lacking;
mod lineage;
mod listing;
mod load;
mod merge;
mod name;
mod op;
mod plan;
mod read;
mod recent;
mod record;
mod replica;
mod rows;
mod since;
mod slab;
pub mod steps;
mod told;
mod uids;
mod view;
mod walk;

pub use flags::{Flag, Flags, KEYWORD_BYTES_MAX, KEYWORDS_MAX, Keyword};
pub use ids::{AccountId, BlobName, EntryId, EntryTag, MailboxId, MessageId, Order};
pub use keywords::KEYWORDS_OF_ACCOUNT_MAX;
pub use lineage::{Renewal, Renewed};
pub use listing::{Below, ListedName, PageSize};
pub use name::{MailboxName, NAME_BYTES_MAX, NAME_DEPTH_MAX, NameError};
pub use op::{
    Append, BoxRemoval, Claim, CopyEntry, CreateMailbox, Date, DecodeError, Deliver, Message,
    MoveEntry, NewId, OPS_VERSION, Op, Removal, SpecialUse,
};
pub use plan::{
    At, CLAIMS_PER_OP_MAX, Copied, Created, Cut, Delivered, MAILBOXES_MAX, Moved, NewMessage, Plan,
    PlanError, Renamed, StoreMode, Stored, Takeover,
};
pub use read::{NameInfo, Row, Standing, Status, Usage};
pub use recent::Recent;
pub use record::CLAIMS_KEPT_MAX;
pub use replica::{
    ApplyError, Collected, Dropped, Effects, PATIENCE_MICROS_MAX, Peer, Peers, Replica, Step,
    Tombstones,
};
pub use rows::{Content, LoadError, RowKey};
pub use since::ChangedPart;
pub use uids::Uids;
pub use walk::{Flagged, Shown};
