//! The records of messages and mailboxes: replicated registers, and beside them what is shown of them here.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;
use whimbrel_crdt::mutants::broken;
use whimbrel_crdt::{Context, Dot, DotSet, Lww, Stamp, VersionVector};

use crate::keywords::{DELETED, FIRST_KEYWORD, Register, Spelling};
use crate::{
    BlobName, Date, EntryTag, MailboxId, MailboxName, Message, MessageId, SpecialUse, Uids,
};

/// Superseded claims kept for one placement. A client that names an older one hits nothing, as after an EXPUNGE.
/// The greatest are kept, so that the choice does not depend on the order of arrival.
pub const CLAIMS_KEPT_MAX: usize = 8;

/// Keywords that SELECT tells of one mailbox: far more than clients use, and no more than a session wants to hold. Of others it learns when it
/// is told of a message that has them.
pub(crate) const KEYWORDS_LISTED_MAX: usize = 1024;

/// One dot of one flag register: a set, or for `\Deleted` an unset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlagDot {
    pub(crate) flag: u32,
    pub(crate) dot: Dot,
    /// How its operation spells a keyword.
    pub(crate) spelling: Spelling,
}

impl FlagDot {
    fn place(&self) -> (u32, Dot) {
        (self.flag, self.dot)
    }
}

/// See [`Record::heap_words`].
pub(crate) const HEAP_WORD: usize = 8;

/// What few messages have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rare {
    /// Superseded claims of the present placement, descending.
    pub(crate) older: Vec<u32>,
    /// The message it is a copy of.
    pub(crate) origin: Option<MessageId>,
}

/// One message.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) id: MessageId,
    pub(crate) exist: DotSet,
    /// The stamp of the present placement.
    pub(crate) placed: Stamp,
    /// The mailbox of the present placement, by number.
    pub(crate) mailbox: u32,
    /// The epoch of the claims.
    pub(crate) epoch: u32,
    /// The greatest claim.
    pub(crate) uid: u32,
    pub(crate) flags: SmallVec<[FlagDot; 1]>,
    /// The queue entry it was delivered from.
    pub(crate) entry: Option<EntryTag>,
    /// Whether someone who had seen a delivery removed it.
    pub(crate) killed: bool,
    /// Whether `\Deleted` was ever set.
    pub(crate) deleted_ever: bool,
    // What never changes, as single fields: together they would cost eight bytes of padding.
    pub(crate) blob: BlobName,
    pub(crate) size: u32,
    pub(crate) zone_minutes: i16,
    pub(crate) open_end: bool,
    pub(crate) seconds: i64,
    pub(crate) rare: Option<Box<Rare>>,

    // What this replica shows.
    pub(crate) modseq: u64,
    /// The UID it is shown under, 0 if it is not.
    pub(crate) shown: u32,
    /// The mailbox in which it is counted and shown, by number.
    pub(crate) view_box: u32,
    pub(crate) bits: Bits,
}

/// Marks on a record for bookkeeping.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bits {
    /// Counted among the living of `view_box`.
    pub(crate) living: bool,
    /// Among the unseen of `view_box`.
    pub(crate) unseen: bool,
    /// Among the `\Deleted` of `view_box`.
    pub(crate) deleted: bool,
    /// Among the `\Flagged` of `view_box`.
    pub(crate) flagged: bool,
    /// In the map of late messages under its claim.
    pub(crate) late: bool,
    /// In the map of messages that wait for peers under its claim.
    pub(crate) pending: bool,
    /// In the list of records touched by this step.
    pub(crate) touched: bool,
    /// Some flag changed its value in this step.
    pub(crate) flags_changed: bool,
    /// It was shown with other bytes, or another date, before this step.
    pub(crate) replaced: bool,
    /// In the list of rows to write.
    pub(crate) dirty: bool,
    /// In the list of rows to write for nothing but what is shown.
    pub(crate) dirty_visible: bool,
    /// What it was last counted to have on the heap, in words.
    pub(crate) heap_words: u16,
}

impl Record {
    pub(crate) fn alive(&self) -> bool {
        !self.exist.is_empty() || (self.entry.is_some() && !self.killed)
    }

    /// What it has on the heap, in words of [`HEAP_WORD`] bytes: 16 bits hold what many nodes may add to a message at the same time.
    pub(crate) fn heap_words(&self) -> u16 {
        let flags = match self.flags.spilled() {
            true => self.flags.capacity() * size_of::<FlagDot>(),
            false => 0,
        };
        let rare = self.rare.as_ref().map_or(0, |rare| {
            size_of::<Rare>() + rare.older.capacity() * size_of::<u32>()
        });
        let bytes = self.exist.heap_bytes() + flags + rare;
        u16::try_from(bytes.div_ceil(HEAP_WORD)).unwrap_or(u16::MAX)
    }

    /// What never changes.
    pub(crate) fn message(&self) -> Message {
        let date = Date {
            seconds: self.seconds,
            zone_minutes: self.zone_minutes,
        };
        Message {
            blob: self.blob,
            size: self.size,
            date,
            open_end: self.open_end,
        }
    }

    pub(crate) fn set_message(&mut self, message: Message) {
        self.blob = message.blob;
        self.size = message.size;
        self.open_end = message.open_end;
        self.seconds = message.date.seconds;
        self.zone_minutes = message.date.zone_minutes;
    }

    /// The message it is a copy of, if it is one.
    pub(crate) fn copy_of(&self) -> Option<MessageId> {
        self.rare.as_ref()?.origin
    }

    pub(crate) fn origin(&self) -> MessageId {
        self.copy_of().unwrap_or(self.id)
    }

    pub(crate) fn older(&self) -> &[u32] {
        self.rare.as_ref().map_or(&[], |rare| &rare.older)
    }

    /// Adds a claim for the present placement.
    pub(crate) fn claim(&mut self, epoch: u32, uid: u32) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.set_claims(uid, Vec::new());
        } else if epoch == self.epoch && uid != self.uid && !self.older().contains(&uid) {
            let mut claims = self.older().to_vec();
            if !broken("superseded-claim-forgotten") {
                claims.push(uid.min(self.uid));
            }
            let greatest = if broken("claim-last-wins") {
                uid
            } else {
                uid.max(self.uid)
            };
            claims.sort_unstable_by(|a, b| b.cmp(a));
            claims.truncate(CLAIMS_KEPT_MAX);
            self.set_claims(greatest, claims);
        }
    }

    pub(crate) fn set_claims(&mut self, uid: u32, older: Vec<u32>) {
        self.uid = uid;
        if !older.is_empty() || self.rare.is_some() {
            self.rare.get_or_insert_default().older = older;
            if self.rare.as_deref() == Some(&Rare::default()) {
                self.rare = None;
            }
        }
    }

    /// Places the message; says whether this placement is now the present one.
    pub(crate) fn place(&mut self, stamp: Stamp, mailbox: u32, epoch: u32, uid: u32) {
        if stamp > self.placed || (stamp != self.placed && broken("move-last-arrival-wins")) {
            self.placed = stamp;
            self.mailbox = mailbox;
            self.epoch = epoch;
            self.set_claims(uid, Vec::new());
        } else if stamp == self.placed {
            self.claim(epoch, uid);
        }
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        let dots = self.flags.iter().any(|entry| entry.flag == flag);
        if flag == DELETED {
            self.deleted_ever && (!dots || broken("deleted-set-wins"))
        } else {
            dots
        }
    }

    /// How a keyword that it has is shown: as its least dot spells it.
    pub(crate) fn spelling(&self, flag: u32) -> Option<Spelling> {
        let mut dots = self.flags.iter().filter(|entry| entry.flag == flag);
        let shown = match broken("last-spelling-wins") {
            true => dots.next_back(),
            false => dots.next(),
        };
        shown.map(|entry| entry.spelling)
    }

    /// Whether a row of an earlier version has said how a keyword is spelled.
    pub(crate) fn is_spelled_as_heard(&self) -> bool {
        self.flags.iter().any(|entry| !entry.spelling.is_exact())
    }

    pub(crate) fn set_flag(&mut self, register: Register, context: &Context<'_>) {
        let flag = register.flag;
        let before = self.shown_flag(flag);
        if flag == DELETED {
            self.deleted_ever = true;
            self.remove_seen(flag, context);
        } else {
            self.add_flag_dot(register, context);
        }
        self.bits.flags_changed |= before != self.shown_flag(flag);
    }

    pub(crate) fn clear_flag(&mut self, flag: u32, context: &Context<'_>) {
        let before = self.shown_flag(flag);
        if flag == DELETED {
            let spelling = Spelling::NONE;
            self.add_flag_dot(Register { flag, spelling }, context);
        } else if broken("set-loses") {
            self.flags.retain(|entry| entry.flag != flag);
        } else {
            self.remove_seen(flag, context);
        }
        self.bits.flags_changed |= before != self.shown_flag(flag);
    }

    /// What clients are shown of a flag: whether it is there, and the text of a keyword.
    fn shown_flag(&self, flag: u32) -> (bool, Option<u32>) {
        let is_keyword = flag >= FIRST_KEYWORD;
        let spelling = self.spelling(flag).filter(|_| is_keyword);
        (self.has(flag), spelling.map(Spelling::text))
    }

    fn remove_seen(&mut self, flag: u32, context: &Context<'_>) {
        self.flags
            .retain(|entry| entry.flag != flag || !context.saw(entry.dot));
    }

    fn add_flag_dot(&mut self, register: Register, context: &Context<'_>) {
        self.remove_seen(register.flag, context);
        self.insert_flag_dot(FlagDot {
            flag: register.flag,
            dot: context.dot,
            spelling: register.spelling,
        });
    }

    fn insert_flag_dot(&mut self, entry: FlagDot) {
        let place = self
            .flags
            .binary_search_by_key(&entry.place(), FlagDot::place);
        if let Err(at) = place {
            self.flags.insert(at, entry);
        }
    }

    fn flag_dot(flags: &[FlagDot], entry: &FlagDot) -> Option<FlagDot> {
        let place = flags.binary_search_by_key(&entry.place(), FlagDot::place);
        place.ok().map(|at| flags[at])
    }

    /// Joins the replicated registers of `other`, whose mailbox and keyword numbers are already ours.
    pub(crate) fn join(&mut self, mine: &VersionVector, other: &Self, theirs: &VersionVector) {
        self.exist.join(mine, &other.exist, theirs);
        self.join_flags(mine, &other.flags, theirs);
        self.bits.flags_changed |= self.deleted_ever != other.deleted_ever;
        self.deleted_ever |= other.deleted_ever;
        self.killed |= other.killed && !broken("join-forgets-killed");
        self.entry = self.entry.max(other.entry);
        if other.placed > self.placed {
            self.placed = other.placed;
            self.mailbox = other.mailbox;
            self.epoch = other.epoch;
            self.set_claims(other.uid, other.older().to_vec());
        } else if other.placed == self.placed {
            // The older ones first: a later epoch then clears them.
            for uid in other.older().iter().chain([&other.uid]) {
                self.claim(other.epoch, *uid);
            }
        }
    }

    /// Joins flag dots; an absent record has none.
    pub(crate) fn join_flags(
        &mut self,
        mine: &VersionVector,
        other: &[FlagDot],
        theirs: &VersionVector,
    ) {
        let before = self.flags.clone();
        self.flags.retain(|entry| {
            let of_other = Self::flag_dot(other, entry);
            if let Some(of_other) = of_other
                && !entry.spelling.is_exact()
            {
                // It knows how the operation spelled it, or has heard it otherwise: then one of us sets it anew.
                *entry = of_other;
            }
            of_other.is_some() || !theirs.covers(entry.dot)
        });
        for entry in other {
            if !mine.covers(entry.dot) {
                self.insert_flag_dot(*entry);
            }
        }
        self.bits.flags_changed |= before != self.flags;
    }
}

/// One mailbox.
#[derive(Clone, Debug)]
pub(crate) struct BoxRecord {
    pub(crate) id: MailboxId,
    pub(crate) exist: DotSet,
    pub(crate) name: Lww<MailboxName>,
    pub(crate) special_use: Lww<Option<SpecialUse>>,
    /// INBOX.
    pub(crate) permanent: bool,
    /// Living messages placed in it.
    pub(crate) living: u32,
    /// All records placed in it, the hidden ones too.
    pub(crate) records: u32,

    // What this replica shows.
    /// The name it is listed under, if it is.
    pub(crate) listed: Option<MailboxName>,
    /// Whatever is shown in it counts as changed at this MODSEQ: when it came under its name.
    pub(crate) base_modseq: u64,
    /// The epoch and the mark of the name under which it came: what its rows say was shown below that is not shown under it.
    pub(crate) visible_from: Option<(u32, u32)>,
    /// Shown messages.
    pub(crate) uids: BTreeMap<u32, u32>,
    /// Shown messages by MODSEQ, ascending; entries whose record has another MODSEQ by now are stale.
    pub(crate) changed: Vec<(u64, u32)>,
    /// Their UIDs, as sessions get them.
    pub(crate) list: Uids,
    /// UIDs of shown messages without `\Seen`: SELECT tells the first, and a search of them looks at no other.
    pub(crate) unseen: Uids,
    /// UIDs of shown messages with `\Deleted`: EXPUNGE looks at no other.
    pub(crate) deleted: Uids,
    /// The sizes of these, in bytes.
    pub(crate) deleted_size: u64,
    /// UIDs of shown messages with `\Flagged`.
    pub(crate) flagged: Uids,
    /// Registers of keywords that a message shown in it has, or has had since the account was loaded, with the spellings that are or were shown; not more than
    /// [`KEYWORDS_LISTED_MAX`].
    pub(crate) keywords: BTreeSet<(u32, Spelling)>,
    pub(crate) size: u64,
    /// Shown messages that do not end with CRLF.
    pub(crate) open_ends: u32,
    pub(crate) touched: bool,
    pub(crate) dirty: bool,
}

impl BoxRecord {
    pub(crate) fn new(
        id: MailboxId,
        stamp: Stamp,
        name: MailboxName,
        special_use: Option<SpecialUse>,
    ) -> Self {
        Self {
            id,
            exist: DotSet::new(),
            name: Lww::new(stamp, name),
            special_use: Lww::new(stamp, special_use),
            permanent: id == MailboxId::inbox(),
            living: 0,
            records: 0,
            listed: None,
            base_modseq: 0,
            visible_from: None,
            uids: BTreeMap::new(),
            changed: Vec::new(),
            list: Uids::default(),
            unseen: Uids::default(),
            deleted: Uids::default(),
            deleted_size: 0,
            flagged: Uids::default(),
            keywords: BTreeSet::new(),
            size: 0,
            open_ends: 0,
            touched: false,
            dirty: false,
        }
    }

    /// Whether what a row says was shown under this UID is not shown since the mailbox came under its name. Whatever was shown in it after that has a
    /// greater UID, since marks only rise within an epoch.
    pub(crate) fn hides(&self, epoch: u32, uid: u32) -> bool {
        let from = self.visible_from.filter(|(since, _)| *since == epoch);
        from.is_some_and(|(_, mark)| uid < mark) && !broken("rename-shows-again")
    }

    /// "A mailbox exists while it has an existence dot or a living message is placed in it"; INBOX always.
    pub(crate) fn visible(&self) -> bool {
        let living = self.living > 0 && !broken("living-message-without-mailbox");
        !self.exist.is_empty() || living || self.permanent
    }
}
