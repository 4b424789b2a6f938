//! The mailbox CRDT: operations, apply, join, collection, UID claims and what clients are shown
//!
//! Purpose: all mail state of one account, as a replicated data type that needs no coordination.
//! Beside it is kept what this replica has told its clients, so that UIDs keep IMAP's promises on every replica.
//!
//! Invariants:
//! - `Replica::apply` is the only way by which operations change state: own and foreign ones take the same. `Replica::join` takes whole states.
//! - Planning (`plan_*`) reads only what is visible here and changes nothing: no operation names a hidden record.
//! - U1: a (name, UIDVALIDITY, UID) never denotes two messages. U2: what is shown as new has a UID of at least every UIDNEXT announced before.
//!   U4: a UID changes only after concurrent writes, a takeover, or a RENAME onto a name that was announced.
//!
//! An owner takes each call so: `plan_*` gives operations, numbered from `At::next`, and the outcome. It seals a batch, calls `apply`,
//! and puts `take_dirty` into the same atomic write. It answers when that is on disk.
//! Before a UID or UIDNEXT is told: `announce`. After foreign batches: `plan_late` until nothing comes.
//!
//! Reading order: `ids`, `name`, `flags`, `keywords`, `op`; `slab`, `record`, `replica`, `apply`, `view` (what is shown or late), `announced`,
//! `spellings`.
//! Planning: `plan/mod` (claims), `plan/messages`, `plan/mailboxes`, `plan/reassign`, `plan/size`. Other copies: `rollback`, `failover`,
//! `missing_blobs`, `merge`. Reading: `uid_list`, `read`, `listing`, `by_uid`, `changes_since`, `recent`. Storing: `rows`, `load`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod announced;
mod apply;
mod by_uid;
mod changes_since;
mod failover;
mod flags;
#[doc(hidden)]
pub mod fuzz;
mod ids;
mod keywords;
mod listing;
mod load;
mod merge;
mod missing_blobs;
mod name;
mod op;
mod plan;
mod read;
mod recent;
mod record;
mod replica;
mod rollback;
mod rows;
mod slab;
mod spellings;
pub mod steps;
mod uid_list;
mod view;

pub use by_uid::{Flagged, VisibleMessage};
pub use changes_since::ChangedPart;
pub use flags::{Flag, Flags, KEYWORD_BYTES_MAX, KEYWORDS_MAX, Keyword};
pub use ids::{AccountId, BlobName, EntryId, EntryTag, MailboxId, MessageId, Order};
pub use keywords::KEYWORDS_OF_ACCOUNT_MAX;
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
pub use read::{NameInfo, Row, Status, Usage, Visibility};
pub use recent::Recent;
pub use record::CLAIMS_KEPT_MAX;
pub use replica::{
    ApplyError, Collected, Dropped, Effects, Peer, Peers, Replica, Step, TIMEOUT_MICROS_MAX,
    Tombstones,
};
pub use rollback::{Renewed, RestoreRecovery};
pub use rows::{Content, LoadError, RowKey};
pub use uid_list::Uids;
