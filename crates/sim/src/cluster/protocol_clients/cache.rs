//! What a strict client keeps of a mailbox, and what it takes from nobody.
//!
//! A [`Cache`] is what the client knows when a command has ended and it has read all that it was told of; it outlives connections. A [`View`] is the
//! mailbox that is selected: a copy of the cache that is being changed, and the sequence numbers. It becomes the cache when the client knows all
//! again, so what breaks in the middle was never heard.
//!
//! MODSEQs are a node's own (and of one life of it, [`Place`]): two of different nodes are not held against each other.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::Incarnation;
use whimbrel_imap::client::FetchData;

/// Who tells: a node, and how often it has come back to the partition.
pub(super) type Place = (Incarnation, u64);

/// Flags, [`folded`].
pub(super) type Flags = BTreeSet<String>;

/// However they are spelled they are the same (RFC 9051, 2.3.2).
pub(super) fn folded(flag: &str) -> String {
    flag.to_ascii_lowercase()
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CachedMessage {
    pub(super) flags: Flags,
    /// As told last; 0: never.
    pub(super) modseq: u64,
    /// Who told it.
    pub(super) place: Place,
    pub(super) size: u64,
    pub(super) email: String,
}

/// A mailbox.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    /// Where it was selected last.
    pub(super) place: Place,
    pub(super) validity: u32,
    /// MAILBOXID.
    pub(super) id: String,
    /// All below is known.
    pub(super) uid_next: u32,
    /// All up to it is known, as far as `place` is concerned; 0: none was told.
    pub(super) modseq: u64,
    pub(super) messages: BTreeMap<u32, CachedMessage>,
    /// UIDs that had left INBOX where the client was. A node that has not heard of that still shows them.
    pub(super) left: BTreeSet<u32>,
}

/// Within a command more may go; so often in a row it does not.
const LEFT_OUT_MAX: u32 = 4;

impl Cache {
    /// Nothing is known.
    pub(super) fn empty(place: Place) -> Cache {
        Cache {
            place,
            validity: 0,
            id: String::new(),
            uid_next: 1,
            modseq: 0,
            messages: BTreeMap::new(),
            left: BTreeSet::new(),
        }
    }
}

/// What the server promised with a SELECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resync {
    /// Nothing: all is read anew.
    None,
    /// Flags that changed since what the client knows are told (CHANGEDSINCE).
    Flags,
    /// All is (QRESYNC).
    All,
}

/// What was told of one message.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) uid: Option<u32>,
    pub(super) flags: Option<Flags>,
    pub(super) modseq: Option<u64>,
    pub(super) size: Option<u64>,
    pub(super) email: Option<String>,
    pub(super) body: Option<Vec<u8>>,
}

impl Told {
    pub(super) fn of(items: Vec<FetchData>) -> Result<Told, String> {
        let mut told = Told::default();
        for item in items {
            let twice = match item {
                FetchData::Uid(uid) => told.uid.replace(uid).is_some(),
                FetchData::Flags(flags) => {
                    let count = flags.len();
                    let flags: Flags = flags.iter().map(|flag| folded(flag)).collect();
                    if flags.len() != count {
                        return Err(format!("a flag is told twice: {flags:?}"));
                    }
                    told.flags.replace(flags).is_some()
                }
                FetchData::ModSeq(modseq) => told.modseq.replace(modseq).is_some(),
                FetchData::Size(size) => told.size.replace(size).is_some(),
                FetchData::EmailId(id) => told.email.replace(id.as_str().to_owned()).is_some(),
                FetchData::Section { data, .. } => {
                    told.body.replace(data.unwrap_or_default()).is_some()
                }
                other => return Err(format!("nobody asked for {other:?}")),
            };
            if twice {
                return Err("an item is told twice".into());
            }
        }
        Ok(told)
    }
}

/// The mailbox that is selected.
#[derive(Debug)]
pub(super) struct View {
    pub(super) name: String,
    pub(super) read_only: bool,
    pub(super) condstore: bool,
    pub(super) qresync: bool,
    pub(super) resync: Resync,
    /// What is known by now.
    pub(super) cache: Cache,
    /// By sequence number; `None`: not read yet.
    pub(super) uids: Vec<Option<u32>>,
    /// The greatest UID that was given to a message here, or the greatest below UIDNEXT: what is new is above.
    pub(super) below: u32,
    /// What the client knew before it selected.
    pub(super) before: Option<Cache>,
    /// All UIDs below that it knows were named by it with QRESYNC; 0: none.
    pub(super) named: u32,
    /// HIGHESTMODSEQ as SELECT told it.
    pub(super) selected_modseq: u64,
    /// What changed since has been told, if it is asked for.
    pub(super) is_since: bool,
    /// How often `FETCH 1:*` has left something out.
    pub(super) left_out: u32,
    /// How often NOOP was asked for that.
    pub(super) noops: u32,
    /// All that there was has been read once.
    pub(super) is_read: bool,
    /// SELECT has not been answered: what is told is no news.
    pub(super) opening: bool,
    /// The greatest MODSEQ told within this command, and what HIGHESTMODSEQ said last.
    pub(super) told_modseq: u64,
    pub(super) told_highest: Option<u64>,
    /// Flags that a silent STORE changes: which messages, and to what by what they were.
    pub(super) silent: Option<(BTreeSet<u32>, whimbrel_imap::core::StoreOperation, Flags)>,
    /// EXISTS as SELECT told it.
    pub(super) selected_count: usize,
    /// Who was told of within SELECT.
    pub(super) heard: BTreeSet<u32>,
    /// Messages below what was known that the client was never told of, and their sizes.
    pub(super) overlooked: Vec<(u32, u64)>,
}

impl View {
    fn index(&self, number: u32) -> Result<usize, String> {
        let count = self.uids.len();
        match usize::try_from(number) {
            Ok(number) if (1..=count).contains(&number) => Ok(number - 1),
            _ => Err(format!("message number {number} of {count}")),
        }
    }

    /// The greatest UID that it has read.
    pub(super) fn last(&self) -> u32 {
        self.uids.iter().rev().find_map(|uid| *uid).unwrap_or(0)
    }

    /// Whether there is something that it has not read.
    pub(super) fn lacks(&self) -> bool {
        self.uids.contains(&None) || self.uids.len() != self.cache.messages.len()
    }

    pub(super) fn exists(&mut self, count: u32) -> Result<(), String> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count < self.uids.len() {
            return Err(format!(
                "EXISTS went from {} to {count} without EXPUNGE",
                self.uids.len()
            ));
        }
        self.uids.resize(count, None);
        Ok(())
    }

    pub(super) fn expunge(&mut self, number: u32, by_numbers: bool) -> Result<(), String> {
        if self.qresync {
            return Err(format!("EXPUNGE {number}, and QRESYNC is enabled"));
        }
        if self.opening || by_numbers {
            return Err(format!("EXPUNGE {number} where it may not be"));
        }
        let at = self.index(number)?;
        if let Some(uid) = self.uids.remove(at) {
            self.leaves(uid);
        }
        Ok(())
    }

    /// VANISHED: "MUST refer only to messages that are visible to the client in the current session" (RFC 7162, 3.2.10.2).
    pub(super) fn vanished(&mut self, uids: &[(u32, u32)], by_numbers: bool) -> Result<(), String> {
        if !self.qresync || self.opening || by_numbers {
            return Err(format!("VANISHED {uids:?} where it may not be"));
        }
        for uid in uids.iter().flat_map(|(first, last)| *first..=*last) {
            let at = match self.uids.iter().position(|known| *known == Some(uid)) {
                Some(at) => at,
                // One that it was told of and has not read.
                None => {
                    let place = self.uids.iter().enumerate().position(|(at, known)| {
                        let before = self.uids[..at].iter().rev().find_map(|uid| *uid);
                        let after = self.uids[at..].iter().find_map(|uid| *uid);
                        known.is_none()
                            && before.is_none_or(|before| before < uid)
                            && after.is_none_or(|after| after > uid)
                    });
                    place.ok_or_else(|| format!("VANISHED {uid}, which was not there"))?
                }
            };
            self.uids.remove(at);
            self.leaves(uid);
        }
        Ok(())
    }

    /// VANISHED (EARLIER)
    pub(super) fn vanished_earlier(&mut self, uids: &[(u32, u32)]) -> Result<(), String> {
        if !self.opening || self.resync != Resync::All {
            return Err(format!("nobody asked for VANISHED (EARLIER) {uids:?}"));
        }
        let is_there = |uid: &u32| uids.iter().any(|range| (range.0..=range.1).contains(uid));
        if let Some(uid) = self.uids.iter().flatten().find(|uid| is_there(uid)) {
            return Err(format!("UID {uid} is said to have vanished, and is there"));
        }
        let known = self.cache.messages.keys().copied();
        let gone: Vec<u32> = known.filter(is_there).collect();
        gone.into_iter().for_each(|uid| self.leaves(uid));
        Ok(())
    }

    fn leaves(&mut self, uid: u32) {
        self.cache.messages.remove(&uid);
        self.cache.left.insert(uid);
    }

    /// One FETCH; the UID that it is about.
    pub(super) fn fetch(&mut self, number: u32, told: &Told) -> Result<Option<u32>, String> {
        let at = self.index(number)?;
        if self.condstore && told.flags.is_some() && (told.modseq.is_none() || told.uid.is_none()) {
            // "the server MUST include the MODSEQ [...] in all subsequent untagged FETCH responses" (RFC 7162, 3.2), and the UID (3.2.4).
            return Err(format!("FETCH {number} without MODSEQ or UID: {told:?}"));
        }
        let uid = match (self.uids[at], told.uid) {
            (Some(known), Some(uid)) if known != uid => {
                return Err(format!("message {number} is UID {known}, told was {uid}"));
            }
            (None, Some(uid)) => {
                self.learn(at, uid)?;
                uid
            }
            (Some(known), _) => known,
            (None, None) => return Ok(None),
        };
        if let Some(modseq) = told.modseq {
            self.told_modseq = self.told_modseq.max(modseq);
        }
        if self.opening {
            self.heard.insert(uid);
        }
        self.update(uid, told)?;
        Ok(Some(uid))
    }

    /// A message has this UID.
    fn learn(&mut self, at: usize, uid: u32) -> Result<(), String> {
        let before = self.uids[..at].iter().rev().find_map(|uid| *uid);
        let after = self.uids[at + 1..].iter().find_map(|uid| *uid);
        if before.is_some_and(|before| before >= uid) || after.is_some_and(|after| after <= uid) {
            return Err(format!(
                "UID {uid} between {before:?} and {after:?}: UIDs do not ascend"
            ));
        }
        if self.is_read && uid <= self.below {
            return Err(format!(
                "U2: the new message {uid} of {} is not above {}, which was known or below UIDNEXT",
                self.name, self.below
            ));
        }
        self.uids[at] = Some(uid);
        Ok(())
    }

    fn update(&mut self, uid: u32, told: &Told) -> Result<(), String> {
        let place = self.cache.place;
        let Some(known) = self.cache.messages.get_mut(&uid) else {
            return self.add(uid, told);
        };
        let told_here = known.place == place && known.modseq > 0;
        if let Some(modseq) = told.modseq {
            let name = &self.name;
            if told_here && modseq < known.modseq {
                return Err(format!(
                    "MODSEQ of UID {uid} in {name} was {} and is {modseq}",
                    known.modseq
                ));
            }
            let same = told
                .flags
                .as_ref()
                .is_none_or(|flags| *flags == known.flags);
            if told_here && modseq == known.modseq && !same {
                return Err(format!(
                    "UID {uid} in {name} has MODSEQ {modseq} as before, with flags {:?} instead of {:?}",
                    told.flags, known.flags
                ));
            }
            // What had changed before SELECT was answered has been told then.
            let late = !self.opening && !self.is_read && modseq <= self.selected_modseq;
            let promised = self.resync == Resync::All || self.is_since;
            if late && promised && (!told_here || modseq != known.modseq) {
                return Err(format!(
                    "UID {uid} in {name} has MODSEQ {modseq}, which a resynchronisation up to {} did not tell: {:?} before",
                    self.selected_modseq, known
                ));
            }
            // With QRESYNC a client knows all up to what it was told last, or is told up to where it does (RFC 7162, 3.2).
            let hidden = self.is_read && self.qresync && modseq <= self.cache.modseq;
            if hidden && told_here && modseq != known.modseq {
                return Err(format!(
                    "UID {uid} in {name} has MODSEQ {modseq}, and that was not told when all up to {} was: {known:?} before",
                    self.cache.modseq
                ));
            }
            known.modseq = modseq;
            known.place = place;
        }
        match (&told.flags, &self.silent) {
            (Some(flags), _) => {
                known.flags.clone_from(flags);
                // Told aloud: nothing is to be concluded any more.
                if let Some((uids, ..)) = &mut self.silent {
                    uids.remove(&uid);
                }
            }
            (None, Some(_)) if told.modseq.is_some() => self.conclude(uid),
            _ => {}
        }
        let known = self.cache.messages.get_mut(&uid);
        if let Some(known) = known {
            if let Some(size) = told.size.filter(|size| *size != known.size) {
                return Err(format!(
                    "U1: UID {uid} had size {}, told is {size}",
                    known.size
                ));
            }
            if let Some(email) = &told.email
                && known.email != *email
            {
                return Err(format!(
                    "U1: UID {uid} was {}, told is {email}",
                    known.email
                ));
            }
        }
        Ok(())
    }

    /// A message that was not known, with all that the client wants to know.
    fn add(&mut self, uid: u32, told: &Told) -> Result<(), String> {
        let (Some(flags), Some(size), Some(email)) = (&told.flags, told.size, &told.email) else {
            // Told by itself: it is asked for. A message without what was asked for is found when the command ends.
            return Ok(());
        };
        if let Some(before) = self.before.as_ref().filter(|_| !self.is_read) {
            let same = before.validity == self.cache.validity;
            if same && uid < before.uid_next && before.place == self.cache.place {
                return Err(format!(
                    "U2: UID {uid} of {} was not there, and UIDNEXT {} told by the same node",
                    self.name, before.uid_next
                ));
            }
            let unknown = same && uid < self.named && !before.left.contains(&uid);
            let unknown = unknown && !self.heard.contains(&uid);
            if unknown && !self.opening && self.resync == Resync::All {
                self.overlooked.push((uid, size));
            }
        }
        let known = CachedMessage {
            flags: flags.clone(),
            modseq: told.modseq.unwrap_or(0),
            place: self.cache.place,
            size,
            email: email.clone(),
        };
        self.cache.messages.insert(uid, known);
        Ok(())
    }

    /// A silent STORE has been carried out on a message.
    fn conclude(&mut self, uid: u32) {
        let Some((uids, operation, flags)) = &mut self.silent else {
            return;
        };
        if !uids.remove(&uid) {
            return;
        }
        let Some(known) = self.cache.messages.get_mut(&uid) else {
            return;
        };
        match operation {
            whimbrel_imap::core::StoreOperation::Add => known.flags.extend(flags.iter().cloned()),
            whimbrel_imap::core::StoreOperation::Remove => {
                known.flags.retain(|flag| !flags.contains(flag));
            }
            whimbrel_imap::core::StoreOperation::Replace => known.flags.clone_from(flags),
        }
    }

    /// A silent STORE has ended: of these it was not told.
    pub(super) fn conclude_all(&mut self, modified: &BTreeSet<u32>) {
        let Some((uids, ..)) = &self.silent else {
            return;
        };
        // With CONDSTORE each message that was changed is told of.
        let uids: Vec<u32> = match self.condstore {
            true => Vec::new(),
            false => uids.difference(modified).copied().collect(),
        };
        uids.into_iter().for_each(|uid| self.conclude(uid));
        self.silent = None;
    }

    /// `FETCH 1:*` has ended: what is known is what is there.
    pub(super) fn read(&mut self) -> Result<(), String> {
        let tail = self.uids.iter().rposition(Option::is_some);
        let tail = tail.map_or(0, |last| last + 1);
        let there: BTreeSet<u32> = self.uids.iter().flatten().copied().collect();
        let known: BTreeSet<u32> = self.cache.messages.keys().copied().collect();
        // Of some it was told by itself, and no more when it asked.
        let unannounced: Vec<u32> = there.difference(&known).copied().collect();
        if self.uids[..tail].contains(&None) || !unannounced.is_empty() {
            // They are gone, and that may be told with the next command (RFC 2180, 4.1); not later.
            self.left_out += 1;
            if self.left_out > LEFT_OUT_MAX {
                return Err(format!(
                    "FETCH 1:* of {} left messages out, UIDs {unannounced:?} among them",
                    self.name
                ));
            }
            return Ok(());
        }
        let gone: Vec<u32> = known.difference(&there).copied().collect();
        if !self.is_read && self.resync == Resync::All && !gone.is_empty() {
            return Err(format!(
                "UIDs {gone:?} of {} are not there, and QRESYNC did not tell it",
                self.name
            ));
        }
        if self.is_read && !gone.is_empty() {
            return Err(format!(
                "UIDs {gone:?} of {} have no number any more",
                self.name
            ));
        }
        gone.into_iter().for_each(|uid| self.leaves(uid));
        let old = there.range(..=self.below).count();
        if !self.is_read && old > self.selected_count {
            return Err(format!(
                "U2: {old} messages of {} are not above {}, and SELECT told of {}",
                self.name, self.below, self.selected_count
            ));
        }
        self.is_read = true;
        self.below = self.below.max(self.last());
        Ok(())
    }

    /// A command has ended: up to which MODSEQ all is known.
    pub(super) fn ended(&mut self) {
        let told = std::mem::take(&mut self.told_modseq);
        match self.told_highest.take() {
            Some(highest) => self.cache.modseq = highest,
            None if self.condstore => self.cache.modseq = self.cache.modseq.max(told),
            None => {}
        }
    }

    /// What the client keeps, if it knows all.
    pub(super) fn kept(&mut self) -> Option<Cache> {
        if !self.is_read || self.lacks() {
            return None;
        }
        self.below = self.below.max(self.last());
        self.cache.uid_next = self.below.saturating_add(1);
        Some(self.cache.clone())
    }
}
