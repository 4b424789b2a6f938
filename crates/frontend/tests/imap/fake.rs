//! A small mail store that answers calls at once: ordered maps, no rules but IMAP's. It shares no code with the owners.
//!
//! size: one stand-in for the whole service; its calls share the state of one account.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use whimbrel_service::api::{
    AccountId, BLOB_CHUNK_BYTES_MAX, BLOB_READS_BYTES_MAX, BLOB_READS_PER_CALL_MAX, Below,
    BlobName, BlobRange, CHANGES_PER_CALL_MAX, CONTENTS_PER_CALL_MAX, Call, Changes, Date, Event,
    Failure, Flag, FlagChange, Flags, MESSAGES_PER_CALL_MAX, Mailbox, MailboxCall, MailboxId,
    MailboxName, MessageId, NewMail, Quota, ROWS_PER_CALL_MAX, Reply, Row, STATUSES_PER_CALL_MAX,
    Selected, SessionId, Since, SpecialUse, Status, Uids, Usage,
};

/// Messages that one [`MailboxCall::Flagged`] looks at: a search of a large mailbox has to ask again.
const FLAGGED_LOOKS_MAX: usize = ROWS_PER_CALL_MAX;

/// Names in one answer to [`MailboxCall::List`].
const NAMES_AT_ONCE: usize = 3;

/// The store of one account.
pub(crate) struct Fake {
    /// The real owner answers what is about mailboxes.
    pub(crate) real: Option<Box<super::real::Real>>,
    boxes: BTreeMap<MailboxName, Store>,
    subscribed: BTreeSet<MailboxName>,
    watches: BTreeMap<SessionId, Watch>,
    events: Vec<(SessionId, Event)>,
    uploads: BTreeMap<[u8; 16], Vec<u8>>,
    blobs: BTreeMap<[u8; 16], Vec<u8>>,
    contents: BTreeMap<MessageId, Bytes>,
    counter: u64,
    modseq: u64,
    /// The next answer that may tell vanished messages finds their history cut.
    pub(crate) forgets: bool,
    /// The next call of this name fails.
    pub(crate) fail: Option<(&'static str, Failure)>,
    pub(crate) uid_validity: u32,
    /// The next answer to an APPEND tells these UIDs.
    pub(crate) appended_as: Option<Vec<u32>>,
    /// It believes no MODSEQ in a condition.
    pub(crate) disbelieves: bool,
    /// Messages that one call moves or removes.
    per_call: usize,
    /// Messages are stored as before there were previews.
    pub(crate) no_previews: bool,
    /// What the account may hold.
    pub(crate) quota: Quota,
    /// Turns that were begun and not ended.
    pub(crate) turns: i32,
    /// Calls that write, and how many other nodes must have that.
    pub(crate) writes: Vec<(String, usize)>,
}

#[derive(Default)]
struct Store {
    /// Of its MAILBOXID.
    number: u64,
    /// Of others that were made under its name on other nodes.
    others: BTreeSet<u64>,
    special_use: Option<SpecialUse>,
    messages: BTreeMap<u32, Row>,
    /// UIDs that are gone, and since when.
    vanished: BTreeMap<u32, u64>,
    /// Highest MODSEQ, that of an expunge included.
    modseq: u64,
}

struct Watch {
    name: MailboxName,
    /// Of the MAILBOXID that was told.
    number: u64,
    /// What the session was told of.
    shown: BTreeSet<u32>,
    /// Up to which MODSEQ it was told everything.
    knows: u64,
}

/// The real owner's world has this time, too.
const NOW_SECONDS: i64 = 1_700_000_000;

/// MODSEQs are 64 apart, as those of one replica: any other was not given out here.
const MODSEQ_STEP: u64 = 64;

fn id_of(number: u64) -> MailboxId {
    MailboxId(u128::from(number).to_be_bytes())
}

/// What a call is called in scripts.
fn bytes<const N: usize>(text: &str) -> [u8; N] {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    STANDARD.decode(text).unwrap().try_into().unwrap()
}

pub(crate) fn name_of(call: &Call) -> String {
    let text = match call {
        Call::Mailbox { call, .. } => format!("{call:?}"),
        call => format!("{call:?}"),
    };
    text.chars()
        .take_while(char::is_ascii_alphanumeric)
        .collect()
}

impl Fake {
    pub(crate) fn new() -> Fake {
        let mut boxes = BTreeMap::new();
        for (number, (name, special_use)) in (100..).zip([
            ("INBOX", None),
            ("Drafts", Some(SpecialUse::Drafts)),
            ("Sent", Some(SpecialUse::Sent)),
            ("Archive", Some(SpecialUse::Archive)),
            ("Junk", Some(SpecialUse::Junk)),
            ("Trash", Some(SpecialUse::Trash)),
        ]) {
            boxes.insert(
                MailboxName::new(name).unwrap(),
                Store {
                    number,
                    special_use,
                    ..Store::default()
                },
            );
        }
        Fake {
            real: None,
            subscribed: boxes.keys().cloned().collect(),
            boxes,
            watches: BTreeMap::new(),
            events: Vec::new(),
            uploads: BTreeMap::new(),
            blobs: BTreeMap::new(),
            contents: BTreeMap::new(),
            counter: 1,
            modseq: MODSEQ_STEP,
            forgets: false,
            fail: None,
            uid_validity: 7,
            appended_as: None,
            disbelieves: false,
            per_call: MESSAGES_PER_CALL_MAX,
            no_previews: false,
            quota: Quota::default(),
            turns: 0,
            writes: Vec::new(),
        }
    }

    pub(crate) fn few(&mut self, count: usize) {
        self.per_call = count;
        if let Some(real) = &mut self.real {
            real.few(count);
        }
    }

    /// Another node has made a mailbox of this name, which stands for both from now on.
    pub(crate) fn unite(&mut self, name: &str) {
        let number = 1000 + self.next();
        let store = self.boxes.get_mut(&MailboxName::new(name).unwrap());
        let store = store.expect("it is there");
        store
            .others
            .insert(std::mem::replace(&mut store.number, number));
    }

    pub(crate) fn events(&mut self) -> Vec<(SessionId, Event)> {
        std::mem::take(&mut self.events)
    }

    /// Uploads that were neither finished nor aborted.
    pub(crate) fn open_uploads(&self) -> usize {
        self.uploads.len()
    }

    /// Loses a content row: damage.
    pub(crate) fn lose_contents(&mut self) {
        self.contents.clear();
    }

    /// Loses the n-th blob.
    pub(crate) fn lose_blob(&mut self, n: usize) {
        let upload = *self.blobs.keys().nth(n - 1).expect("so many");
        self.blobs.remove(&upload);
    }

    /// Spoils all content rows.
    pub(crate) fn spoil_contents(&mut self) {
        self.contents
            .values_mut()
            .for_each(|content| *content = Bytes::from_static(b"?"));
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn create_above(&mut self, name: &MailboxName) {
        let mut above = name.parent();
        while let Some(parent) = above {
            above = parent.parent();
            if !self.boxes.contains_key(&parent) {
                let store = self.new_store(None);
                self.boxes.insert(parent, store);
            }
        }
    }

    fn new_store(&mut self, special_use: Option<SpecialUse>) -> Store {
        Store {
            number: 1000 + self.next(),
            special_use,
            ..Store::default()
        }
    }

    fn id(&mut self) -> [u8; 16] {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.next().to_be_bytes());
        id
    }

    fn touch(&mut self, name: &MailboxName) -> u64 {
        self.modseq += MODSEQ_STEP;
        if let Some(store) = self.boxes.get_mut(name) {
            store.modseq = self.modseq;
        }
        for (&session, watch) in &self.watches {
            if watch.name == *name {
                self.events.push((session, Event::Changed));
            }
        }
        self.modseq
    }

    fn vanish(&mut self, name: &MailboxName, uids: &[u32]) {
        let modseq = self.touch(name);
        let store = self.boxes.get_mut(name).expect("it is there");
        store.vanished.extend(uids.iter().map(|uid| (*uid, modseq)));
    }

    pub(crate) fn call(&mut self, call: Call) -> Reply {
        if let Call::Mailbox {
            call: of,
            other_nodes,
            uid_validity,
            ..
        } = &call
        {
            assert!(uid_validity.is_none() || of.names_uids());
            if uid_validity.is_some_and(|told| told != self.uid_validity) {
                return Reply::Failed(Failure::Gone);
            }
            if of.writes() {
                self.writes.push((name_of(&call), *other_nodes));
            }
        }
        if let Some((name, failure)) = self.fail
            && name_of(&call) == name
        {
            self.fail = None;
            return Reply::Failed(failure);
        }
        match self.answer(call) {
            Ok(reply) => reply,
            Err(failure) => Reply::Failed(failure),
        }
    }

    fn answer(&mut self, call: Call) -> Result<Reply, Failure> {
        Ok(match call {
            Call::Authenticate(who) => {
                if who.login != "anne" || who.password.as_slice() != b"secret" {
                    return Err(Failure::Credentials);
                }
                Reply::Authenticated {
                    account: AccountId([1; 16]),
                    login: "anne@example.org".into(),
                }
            }
            call @ Call::Mailbox { .. } if self.real.is_some() => {
                let real = self.real.as_mut().expect("just seen");
                return Ok(real.call(call, &mut self.events));
            }
            Call::Mailbox { call, .. } => return self.mailbox(call),
            Call::Contents { account, origins } => {
                assert!(!origins.is_empty() && origins.len() <= CONTENTS_PER_CALL_MAX);
                let mut contents: Vec<Option<Bytes>> = match &self.real {
                    Some(real) => real.contents(account, &origins),
                    None => {
                        let contents = origins.iter().map(|origin| self.contents.get(origin));
                        contents.map(Option::<&Bytes>::cloned).collect()
                    }
                };
                // A store may answer with fewer than were asked for.
                let mut bytes = 0;
                let enough = contents.iter().position(|content| {
                    bytes += content.as_ref().map_or(0, Bytes::len);
                    bytes >= 20_000
                });
                contents.truncate(enough.map_or(contents.len(), |last| last + 1));
                Reply::Contents(contents)
            }
            Call::TurnBegin => {
                self.turns += 1;
                Reply::Done
            }
            Call::TurnEnd => {
                self.turns -= 1;
                Reply::Done
            }
            Call::BlobCreate(upload) => {
                let upload = upload.unwrap_or_else(|| self.id());
                self.uploads.insert(upload, Vec::new());
                Reply::Upload(upload)
            }
            Call::BlobWrite { upload, bytes } => {
                assert!(!bytes.is_empty() && bytes.len() <= BLOB_CHUNK_BYTES_MAX);
                self.uploads
                    .get_mut(&upload)
                    .expect("an upload")
                    .extend_from_slice(&bytes);
                Reply::Done
            }
            Call::BlobFinish { upload } => {
                let bytes = self.uploads.remove(&upload).expect("an upload");
                self.blobs.insert(upload, bytes);
                Reply::Blob(BlobName {
                    hash: [0; 32],
                    upload,
                })
            }
            Call::BlobAbort { upload } => {
                // One that was finished, but that nothing names, may be given up, too.
                let unfinished = self.uploads.remove(&upload);
                unfinished
                    .or_else(|| self.blobs.remove(&upload))
                    .expect("an upload");
                Reply::Done
            }
            Call::BlobReadMany(ranges) => {
                let bytes: u32 = ranges.iter().map(|range| range.len).sum();
                assert!(ranges.len() <= BLOB_READS_PER_CALL_MAX);
                assert!(bytes as usize <= BLOB_READS_BYTES_MAX);
                let read = |range: &BlobRange| {
                    let bytes = self.blobs.get(&range.blob.upload).map_or(&[][..], |b| b);
                    let rest = &bytes[(range.offset as usize).min(bytes.len())..];
                    Bytes::copy_from_slice(&rest[..rest.len().min(range.len as usize)])
                };
                if !self.blobs.contains_key(&ranges[0].blob.upload) {
                    return Err(Failure::Temporary);
                }
                Reply::Blobs(ranges.iter().map(read).collect())
            }
            Call::BlobRead { blob, offset, len } => {
                assert!(len > 0 && len as usize <= BLOB_CHUNK_BYTES_MAX);
                let bytes = self.blobs.get(&blob.upload).ok_or(Failure::Temporary)?;
                let start = (offset as usize).min(bytes.len());
                // A store may answer with less than was asked.
                let end = bytes.len().min(start + (len as usize).min(40_000));
                Reply::Bytes(Bytes::copy_from_slice(&bytes[start..end]))
            }
            // The example of RFC 7677, 3.
            Call::ScramBegin { .. } => Reply::ScramChallenge {
                salt: bytes("W22ZaJ0SNY7soEsUEjb6gQ=="),
                iterations: 4096,
                nonce: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".into(),
            },
            Call::ScramFinish(who) => {
                let proof = bytes("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
                if who.login != "user" || who.proof != proof {
                    return Err(Failure::Credentials);
                }
                Reply::ScramAuthenticated {
                    account: AccountId([1; 16]),
                    login: "anne@example.org".into(),
                    signature: bytes("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
                }
            }
            Call::MaySend { .. } | Call::Resolve { .. } | Call::Accept(_) | Call::Queue(_) => {
                unreachable!("not a call of IMAP")
            }
        })
    }

    fn store(&mut self, name: &MailboxName) -> Result<&mut Store, Failure> {
        self.boxes.get_mut(name).ok_or(Failure::NoSuchMailbox)
    }

    fn status(&mut self, name: &MailboxName) -> Result<Status, Failure> {
        let (counter, uid_validity) = (self.counter, self.uid_validity);
        let store = self.store(name)?;
        let has = |row: &Row, flag: &Flag| row.flags.contains(flag);
        Ok(Status {
            id: id_of(store.number),
            uid_validity,
            uid_next: (counter as u32 + 1) * 64,
            messages: store.messages.len() as u32,
            unseen: store
                .messages
                .values()
                .filter(|row| !has(row, &Flag::Seen))
                .count() as u32,
            deleted: store
                .messages
                .values()
                .filter(|row| has(row, &Flag::Deleted))
                .count() as u32,
            size: store.messages.values().map(|row| u64::from(row.size)).sum(),
            deleted_size: store
                .messages
                .values()
                .filter(|row| has(row, &Flag::Deleted))
                .map(|row| u64::from(row.size))
                .sum(),
            open_ends: 0,
            highest_modseq: store.modseq.max(MODSEQ_STEP),
        })
    }

    fn add(&mut self, name: &MailboxName, mut row: Row) -> u32 {
        let uid = self.next() as u32 * 64;
        row.uid = uid;
        row.modseq = self.touch(name);
        self.boxes
            .get_mut(name)
            .expect("checked")
            .messages
            .insert(uid, row);
        uid
    }

    /// All names with those above them, and of these a few: sessions are to ask for more.
    fn list(&self, top: Option<&MailboxName>, after: Option<&MailboxName>, uses: bool) -> Reply {
        let listed: BTreeSet<&MailboxName> = self.boxes.keys().chain(&self.subscribed).collect();
        let use_of = |name: &MailboxName| self.boxes.get(name).and_then(|store| store.special_use);
        let mailbox = |name: &MailboxName| {
            let any = |has: &dyn Fn(&MailboxName) -> bool| {
                listed
                    .iter()
                    .any(|other| other.is_below(name) && has(other))
            };
            let subscribed = |name: &MailboxName| self.subscribed.contains(name);
            let special = |name: &MailboxName| uses && use_of(name).is_some();
            Mailbox {
                name: name.clone(),
                exists: self.boxes.contains_key(name),
                special_use: use_of(name),
                subscribed: subscribed(name),
                below: Below {
                    exists: any(&|name| self.boxes.contains_key(name)),
                    subscribed: any(&subscribed),
                    special_use: any(&special),
                    both: any(&|name| special(name) && subscribed(name)),
                },
            }
        };
        let mut above = BTreeSet::new();
        let (mut names, mut told, mut more) = (Vec::new(), 0, false);
        for name in &listed {
            let parents: Vec<MailboxName> = name.parents().collect();
            let new = parents.into_iter().filter(|of| above.insert(of.clone()));
            let new: Vec<MailboxName> = new.filter(|of| !listed.contains(of)).collect();
            if after.is_some_and(|after| *name <= after)
                || top.is_some_and(|top| !name.is_below(top))
            {
                continue;
            }
            if told == NAMES_AT_ONCE {
                more = true;
                break;
            }
            told += 1;
            names.extend(new.iter().map(mailbox));
            names.push(mailbox(name));
        }
        Reply::Mailboxes { names, more }
    }

    fn mailbox(&mut self, call: MailboxCall) -> Result<Reply, Failure> {
        Ok(match call {
            MailboxCall::List { top, after, uses } => self.list(top.as_ref(), after.as_ref(), uses),
            MailboxCall::Usage => {
                let messages = self
                    .boxes
                    .values()
                    .flat_map(|store| store.messages.values());
                Reply::Usage(Usage {
                    bytes: messages.clone().map(|row| u64::from(row.size)).sum(),
                    messages: messages.count() as u64,
                    mailboxes: self.boxes.len() as u64,
                    quota: self.quota.clone(),
                })
            }
            MailboxCall::Status { name } => Reply::Status(self.status(&name)?),
            MailboxCall::Statuses { names } => {
                assert!(names.len() <= STATUSES_PER_CALL_MAX);
                Reply::Statuses(names.iter().map(|name| self.status(name)).collect())
            }
            MailboxCall::Select { session, name, .. } => {
                let status = self.status(&name)?;
                let as_of = self.modseq;
                let store = self.store(&name)?;
                let uids: Vec<u32> = store.messages.keys().copied().collect();
                let keywords: BTreeSet<_> = store
                    .messages
                    .values()
                    .flat_map(|row| row.flags.keywords().to_vec())
                    .collect();
                let unseen = store
                    .messages
                    .values()
                    .position(|row| !row.flags.contains(&Flag::Seen));
                let watch = Watch {
                    name,
                    number: store.number,
                    shown: uids.iter().copied().collect(),
                    knows: as_of,
                };
                self.watches.insert(session, watch);
                Reply::Selected(Selected {
                    status,
                    uids: Uids::from(&*uids),
                    first_unseen: unseen.map(|place| place as u32),
                    keywords: keywords.into_iter().collect(),
                    as_of,
                    told: u32::MAX,
                })
            }
            MailboxCall::Unselect { session } => {
                self.watches.remove(&session);
                Reply::Done
            }
            MailboxCall::Changes {
                session,
                since,
                expunges,
            } => return self.changes(session, since, expunges),
            MailboxCall::Known { session } => {
                let watch = self.watches.get(&session).ok_or(Failure::Gone)?;
                if !self.boxes.contains_key(&watch.name) {
                    return Err(Failure::Gone);
                }
                let mut shown: Vec<u32> = watch.shown.iter().copied().collect();
                shown.sort_unstable();
                Reply::Known((!self.forgets).then_some(shown))
            }
            MailboxCall::Since {
                name,
                modseq,
                vanished,
            } => {
                let believed = modseq % MODSEQ_STEP == 0 && modseq <= self.modseq;
                let forgets = vanished && std::mem::take(&mut self.forgets);
                let store = self.store(&name)?;
                if !believed {
                    return Ok(Reply::Since(Since::default()));
                }
                let changed = |row: &&Row| row.modseq > modseq;
                let gone = store.vanished.iter().filter(|gone| *gone.1 > modseq);
                Reply::Since(Since {
                    believed,
                    changed: store
                        .messages
                        .values()
                        .filter(changed)
                        .map(|row| row.uid)
                        .collect(),
                    vanished: (vanished && !forgets).then(|| gone.map(|gone| *gone.0).collect()),
                })
            }
            MailboxCall::Believed { modseqs, .. } => Reply::Believed(match self.disbelieves {
                true => Vec::new(),
                false => modseqs,
            }),
            MailboxCall::Rows { name, uids } => {
                assert!(!uids.is_empty() && uids.len() <= ROWS_PER_CALL_MAX && uids.is_sorted());
                let store = self.store(&name)?;
                Reply::Rows(
                    uids.iter()
                        .filter_map(|uid| store.messages.get(uid).cloned())
                        .collect(),
                )
            }
            MailboxCall::Flagged {
                name,
                from,
                to,
                set,
                unset,
            } => {
                assert!(from <= to && !(set.is_empty() && unset.is_empty()));
                let store = self.store(&name)?;
                // Few at a time, so that a search has to ask again.
                let looked = || store.messages.range(from..=to).take(FLAGGED_LOOKS_MAX);
                let is_part = store
                    .messages
                    .range(from..=to)
                    .nth(FLAGGED_LOOKS_MAX)
                    .is_some();
                let up_to = looked()
                    .last()
                    .filter(|_| is_part)
                    .map_or(to, |(uid, _)| *uid);
                let rows = looked().map(|(_, row)| row);
                let meets = |row: &&Row| {
                    set.iter().all(|flag| row.flags.contains(&flag))
                        && !unset.iter().any(|flag| row.flags.contains(&flag))
                };
                let rows = rows.filter(meets).cloned().collect();
                Reply::Flagged { rows, up_to }
            }
            MailboxCall::Append {
                name,
                messages,
                replaces,
                ..
            } => {
                self.store(&name)?;
                assert!(!messages.is_empty());
                let used: usize = self.boxes.values().map(|store| store.messages.len()).sum();
                let max = self.quota.messages_max;
                if max.is_some_and(|max| (used + messages.len()) as u64 > max) {
                    return Err(Failure::OverQuota("No more messages"));
                }
                if let Some(replaced) = replaces {
                    let store = self.store(&replaced.name)?;
                    if store.messages.remove(&replaced.uid).is_none() {
                        return Err(Failure::NoSuchMessage);
                    }
                    self.vanish(&replaced.name, &[replaced.uid]);
                }
                let mut uids = Vec::new();
                for new in messages {
                    let bytes = &self.blobs[&new.blob.upload];
                    assert!(bytes.len() <= new.size as usize);
                    if bytes.len() == new.size as usize {
                        assert_eq!(new.open_end, !bytes.ends_with(b"\r\n"));
                    }
                    let id = MessageId(self.id());
                    self.contents.insert(id, new.content);
                    uids.push(self.add(
                        &name,
                        Row {
                            uid: 0,
                            id,
                            origin: id,
                            flags: new.flags,
                            modseq: 0,
                            size: new.size,
                            open_end: new.open_end,
                            date: new.date,
                            saved: NOW_SECONDS,
                            blob: new.blob,
                        },
                    ));
                }
                Reply::Appended {
                    uid_validity: self.uid_validity,
                    uids: self.appended_as.take().unwrap_or(uids),
                }
            }
            MailboxCall::Copy {
                name,
                uids,
                to,
                remove,
                ..
            } => {
                assert!(uids.is_sorted());
                assert!(!remove || uids.len() <= MESSAGES_PER_CALL_MAX);
                self.store(&to)?;
                let mut done = Vec::new();
                let most = if remove { self.per_call } else { usize::MAX };
                let asked = uids.len().min(most);
                for uid in uids.into_iter().take(most) {
                    let store = self.store(&name)?;
                    let Some(mut row) = store.messages.get(&uid).cloned() else {
                        continue;
                    };
                    if remove {
                        store.messages.remove(&uid);
                        self.vanish(&name, &[uid]);
                    }
                    row.id = MessageId(self.id());
                    row.saved = NOW_SECONDS;
                    done.push((uid, self.add(&to, row)));
                }
                Reply::Copied {
                    uid_validity: self.uid_validity,
                    uids: done,
                    done: asked,
                }
            }
            MailboxCall::Store {
                name,
                uids,
                change,
                flags,
                unchanged_since,
                ..
            } => {
                assert!(!uids.is_empty() && uids.len() <= ROWS_PER_CALL_MAX && uids.is_sorted());
                let (mut rows, mut modified) = (Vec::new(), Vec::new());
                let modseq = self.modseq;
                for uid in uids {
                    let Some(row) = self.store(&name)?.messages.get(&uid) else {
                        continue;
                    };
                    let believed = |since| since % MODSEQ_STEP == 0 && since <= modseq;
                    if unchanged_since.is_some_and(|since| row.modseq > since || !believed(since)) {
                        modified.push(uid);
                        continue;
                    }
                    let new = match change {
                        FlagChange::Add => row.flags.union(&flags),
                        FlagChange::Remove => row.flags.without(&flags),
                        FlagChange::Replace => flags.clone(),
                    };
                    let changed = new != row.flags;
                    let modseq = if changed {
                        Some(self.touch(&name))
                    } else {
                        None
                    };
                    let row = self
                        .store(&name)?
                        .messages
                        .get_mut(&uid)
                        .expect("it is there");
                    row.flags = new;
                    row.modseq = modseq.unwrap_or(row.modseq);
                    rows.push(row.clone());
                }
                Reply::Stored { rows, modified }
            }
            MailboxCall::Expunge {
                name, uids, up_to, ..
            } => {
                let per_call = self.per_call;
                let count = uids.as_ref().map_or(0, Vec::len);
                assert!(count <= MESSAGES_PER_CALL_MAX);
                let store = self.store(&name)?;
                let mut gone: Vec<u32> = store
                    .messages
                    .values()
                    .filter(|row| row.flags.contains(&Flag::Deleted) && row.uid <= up_to)
                    .map(|row| row.uid)
                    .filter(|uid| uids.as_ref().is_none_or(|uids| uids.contains(uid)))
                    .collect();
                let more = gone.len() > per_call;
                gone.truncate(per_call);
                for uid in &gone {
                    store.messages.remove(uid);
                }
                if !gone.is_empty() {
                    self.vanish(&name, &gone);
                }
                Reply::Expunged {
                    uids: gone,
                    more,
                    highest_modseq: self.modseq,
                }
            }
            MailboxCall::Remove { name, uids, .. } => {
                let store = self.store(&name)?;
                store.messages.retain(|uid, _| !uids.contains(uid));
                self.touch(&name);
                Reply::Done
            }
            MailboxCall::Create { name, special_use } => {
                if self.boxes.contains_key(&name) {
                    return Err(Failure::Exists);
                }
                self.create_above(&name);
                let store = self.new_store(special_use);
                let id = id_of(store.number);
                self.boxes.insert(name, store);
                Reply::Created(id)
            }
            MailboxCall::Delete { name } => {
                if name.is_inbox() {
                    return Err(Failure::Inbox);
                }
                let has_children = self.boxes.keys().any(|other| other.is_below(&name));
                if !self.boxes.contains_key(&name) && has_children {
                    return Err(Failure::HasChildren);
                }
                let per_call = self.per_call;
                let store = self.store(&name)?;
                if store.messages.len() > per_call {
                    let gone: Vec<u32> = store.messages.keys().take(per_call).copied().collect();
                    store.messages.retain(|uid, _| !gone.contains(uid));
                    self.vanish(&name, &gone);
                    return Ok(Reply::Partly { rest: None });
                }
                self.boxes.remove(&name);
                self.lose(&name);
                Reply::Done
            }
            MailboxCall::Rename { from, to, rest } => {
                if rest.is_none() && self.boxes.contains_key(&to) {
                    return Err(Failure::Exists);
                }
                if !self.boxes.keys().any(|name| name.is_below(&from)) {
                    self.store(&from)?;
                }
                if from.is_inbox() {
                    if rest.is_none() {
                        let store = self.new_store(None);
                        self.boxes.insert(to.clone(), store);
                    }
                    let per_call = self.per_call;
                    let inbox = self.store(&from)?;
                    let last = inbox.messages.keys().last().copied();
                    let rest = rest.or(last).unwrap_or(0);
                    let all = inbox.messages.range(..=rest).count();
                    let first = inbox.messages.keys().copied();
                    let gone: Vec<u32> = first.take(all.min(per_call)).collect();
                    let mut moved = Vec::new();
                    for uid in &gone {
                        moved.extend(inbox.messages.remove(uid).map(|row| (*uid, row)));
                    }
                    self.vanish(&from, &gone);
                    self.store(&to)?.messages.extend(moved);
                    return Ok(match all > per_call {
                        true => Reply::Partly { rest: Some(rest) },
                        false => Reply::Done,
                    });
                }
                if to.is_below(&from) {
                    return Err(Failure::BadName);
                }
                self.create_above(&to);
                let names: Vec<MailboxName> = self
                    .boxes
                    .keys()
                    .filter(|name| **name == from || name.is_below(&from))
                    .cloned()
                    .collect();
                for name in names {
                    let store = self.boxes.remove(&name).expect("it is there");
                    self.lose(&name);
                    self.boxes.insert(
                        name.rebased(&from, &to).map_err(|_| Failure::BadName)?,
                        store,
                    );
                }
                Reply::Done
            }
            // Nothing is ever lost here.
            MailboxCall::Named { .. } => Reply::Named { elsewhere: false },
            // No client can ask for it.
            MailboxCall::Import { .. } => return Err(Failure::Temporary),
            MailboxCall::Subscribe { name, subscribed } => {
                if subscribed {
                    self.subscribed.insert(name);
                } else {
                    self.subscribed.remove(&name);
                }
                Reply::Done
            }
        })
    }

    /// Tells those who watch a name that is gone.
    fn lose(&mut self, name: &MailboxName) {
        for (&session, watch) in &self.watches {
            if watch.name == *name {
                self.events.push((session, Event::Changed));
            }
        }
    }

    fn changes(
        &mut self,
        session: SessionId,
        since: u64,
        expunges: bool,
    ) -> Result<Reply, Failure> {
        let modseq = self.modseq;
        let watch = self.watches.get_mut(&session).ok_or(Failure::Gone)?;
        let Some(store) = self.boxes.get(&watch.name) else {
            return Ok(Reply::Changes(Changes::default()));
        };
        let is_there = store.others.contains(&watch.number);
        let mut changes = Changes {
            id: Some(id_of(if is_there { watch.number } else { store.number })),
            highest_modseq: store.modseq,
            as_of: modseq,
            ..Changes::default()
        };
        let gone: Vec<u32> = watch
            .shown
            .iter()
            .copied()
            .filter(|uid| !store.messages.contains_key(uid))
            .collect();
        let mut rows: Vec<&Row> = store
            .messages
            .values()
            .filter(|row| row.modseq > since && watch.shown.contains(&row.uid))
            .collect();
        if expunges {
            watch.shown.retain(|uid| !gone.contains(uid));
        }
        if expunges || gone.is_empty() {
            changes.arrived = store
                .messages
                .keys()
                .copied()
                .filter(|uid| !watch.shown.contains(uid))
                .collect();
            watch.shown.extend(&changes.arrived);
        }
        if expunges || gone.is_empty() {
            watch.knows = modseq;
        } else {
            changes.held_back = Some(watch.knows);
        }
        if expunges && std::mem::take(&mut self.forgets) {
            changes.present = Some(store.messages.keys().copied().collect());
        } else if expunges {
            changes.vanished = gone;
        }
        rows.sort_by_key(|row| row.modseq);
        if rows.len() > CHANGES_PER_CALL_MAX {
            rows.truncate(CHANGES_PER_CALL_MAX);
            changes.more = true;
            changes.as_of = rows.last().expect("not empty").modseq;
        }
        rows.sort_by_key(|row| row.uid);
        changes.changed = rows.into_iter().cloned().collect();
        let name = watch.name.clone();
        changes.uid_next = self.status(&name)?.uid_next;
        Ok(Reply::Changes(changes))
    }

    /// Fills a mailbox without a session: `count` messages with this text, number 1 first.
    pub(crate) fn fill(&mut self, name: &str, count: u32, text: impl Fn(u32) -> Vec<u8>) {
        (1..=count).for_each(|number| self.deliver(name, b"", &text(number)));
    }

    /// Delivers a message that has a prefix.
    pub(crate) fn deliver(&mut self, name: &str, prefix: &'static [u8], text: &[u8]) {
        let mut limits = whimbrel_mime::Limits::default();
        if self.no_previews {
            limits.preview_bytes_max = 0;
        }
        let mut parser = whimbrel_mime::Parser::new(&limits);
        parser.push(text);
        let summary = parser.finish().with_prefix(prefix, &limits).encode().into();
        let upload = self.id();
        self.blobs.insert(upload, text.to_vec());
        let prefix = Bytes::from_static(prefix);
        let size = (prefix.len() + text.len()) as u32;
        let call = MailboxCall::Append {
            session: SessionId(0),
            name: MailboxName::new(name).unwrap(),
            messages: vec![NewMail {
                flags: Flags::none(),
                date: Date {
                    seconds: 1_700_000_000,
                    zone_minutes: 0,
                },
                size,
                open_end: !text.ends_with(b"\r\n"),
                blob: BlobName {
                    hash: [0; 32],
                    upload,
                },
                content: whimbrel_service::content::Content { prefix, summary }.encode(),
            }],
            replaces: None,
        };
        let account = AccountId([1; 16]);
        let reply = self.answer(Call::mailbox(account, call));
        assert!(matches!(reply, Ok(Reply::Appended { .. })), "{reply:?}");
    }
}
