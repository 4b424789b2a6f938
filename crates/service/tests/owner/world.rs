//! The world of these tests: an owner, a map for its store, and a session that asks it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use whimbrel_mailbox::RowKey;
use whimbrel_service::{
    api::{
        AccountId, BlobName, Call, Date, Delivery, Entry, EntryId, FlagChange, Flags, MailboxCall,
        MailboxName, NewMail, ROWS_PER_CALL_MAX, Reply, SessionId,
    },
    content::Content,
    machine::{
        AccountOrigin, AccountStatus, Input, Machine, MinUidValidity, Now, Output, RequestId,
        RequiredCopies, Ticket,
    },
    owner::{Config, PartitionOwner, keys},
};
use whimbrel_storage::{COMMIT_BYTES_MAX, Commit, Mutation, StoreError};

pub(crate) const ANNE: AccountId = AccountId([1; 16]);

/// An account in the partition of ANNE.
pub(crate) fn bea() -> AccountId {
    let ids = (2..=u64::MAX).map(|n| AccountId(u128::from(n).to_be_bytes()));
    let mut beside = ids.filter(|id| keys::partition_of(*id) == keys::partition_of(ANNE));
    beside.next().expect("a partition has many accounts")
}

/// An owner on a map; it stands still, or loses power, when it has had so many commits.
pub(crate) struct World {
    pub(crate) owner: PartitionOwner,
    config: Config,
    pub(crate) rows: BTreeMap<Vec<u8>, Bytes>,
    /// Sizes of the commits with operations in them.
    pub(crate) batches: Vec<usize>,
    /// The largest commit of any kind.
    pub(crate) largest: usize,
    /// Whether commits that nobody waits for are held back, until one comes that somebody waits for or [`World::let_go`].
    pub(crate) holds_lazy: bool,
    held_back: Vec<(Ticket, Commit)>,
    /// Which blobs are held by whom.
    pub(crate) held: BTreeSet<(whimbrel_storage::BlobName, Bytes)>,
    /// After how many more batches the power fails.
    pub(crate) power: usize,
    /// After how many more commits without operations it fails.
    pub(crate) power_for_rows: usize,
    /// So many commits are refused from now on.
    pub(crate) refuses: usize,
    /// So many loads fail from now on.
    pub(crate) fails_loads: usize,
    requests: u64,
    pub(crate) now: Now,
}

pub(crate) fn name(text: &str) -> MailboxName {
    MailboxName::new(text).unwrap()
}

impl World {
    pub(crate) fn new() -> World {
        World::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> World {
        World {
            owner: PartitionOwner::new(config.clone()),
            config,
            rows: BTreeMap::new(),
            batches: Vec::new(),
            largest: 0,
            holds_lazy: false,
            held_back: Vec::new(),
            held: BTreeSet::new(),
            power: usize::MAX,
            power_for_rows: usize::MAX,
            refuses: 0,
            fails_loads: 0,
            requests: 0,
            now: Now {
                wall_micros: 1_700_000_000_000_000,
                mono_micros: 1,
            },
        }
    }

    /// Writes what was held back. `None`: the power failed.
    fn write_held_back(&mut self) -> Option<()> {
        for (ticket, commit) in std::mem::take(&mut self.held_back) {
            if self.refuses > 0 {
                self.refuses -= 1;
                self.owner.handle(self.now, Input::CommitFailed(ticket));
                continue;
            }
            let bytes = commit.bytes();
            assert!(bytes <= COMMIT_BYTES_MAX, "a commit of {bytes} bytes");
            self.largest = self.largest.max(bytes);
            let power = match commit.entry {
                Some(_) => &mut self.power,
                None => &mut self.power_for_rows,
            };
            *power = power.checked_sub(1)?;
            if commit.entry.is_some() {
                self.batches.push(bytes);
            }
            for mutation in commit.mutations {
                match mutation {
                    Mutation::Put { key, value } => {
                        self.rows.insert(key.to_vec(), value);
                    }
                    Mutation::Delete { key } => {
                        self.rows.remove(&key[..]);
                    }
                    Mutation::Reference { blob, holder } => {
                        self.held.insert((blob, holder));
                    }
                    Mutation::Release { blob, holder } => {
                        assert!(self.held.remove(&(blob, holder)));
                    }
                }
            }
            self.owner.handle(self.now, Input::Committed(ticket));
        }
        Some(())
    }

    /// The store holds commits back no longer.
    pub(crate) fn let_go(&mut self) {
        self.holds_lazy = false;
        self.write_held_back();
        // What follows from it.
        self.input(Input::Time, RequestId(0));
    }

    /// Asks until all is done, as a session does. `None`: the power failed.
    pub(crate) fn try_call(&mut self, mut call: MailboxCall) -> Option<Reply> {
        let (mut moved, mut expunged, mut stored) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let mut rest = Vec::new();
            if let MailboxCall::Store { uids, .. } | MailboxCall::Remove { uids, .. } = &mut call {
                rest = uids.split_off(uids.len().min(ROWS_PER_CALL_MAX));
            }
            match (self.one_call(call.clone())?, &mut call) {
                (
                    Reply::Copied {
                        uids: told,
                        done,
                        uid_validity,
                    },
                    MailboxCall::Copy { uids, .. },
                ) => {
                    moved.extend(told);
                    uids.drain(..done);
                    if uids.is_empty() {
                        let (uids, done) = (moved, 0);
                        return Some(Reply::Copied {
                            uid_validity,
                            uids,
                            done,
                        });
                    }
                }
                (
                    Reply::Expunged {
                        uids,
                        more,
                        highest_modseq,
                    },
                    _,
                ) => {
                    expunged.extend(uids);
                    if !more {
                        let uids = expunged;
                        return Some(Reply::Expunged {
                            uids,
                            more,
                            highest_modseq,
                        });
                    }
                }
                (Reply::Partly { rest: goes_on }, MailboxCall::Rename { rest, .. }) => {
                    *rest = goes_on;
                }
                (Reply::Partly { .. }, _) => {}
                (Reply::Stored { rows, modified }, MailboxCall::Store { uids, .. }) => {
                    stored.extend(rows);
                    if rest.is_empty() {
                        let rows = stored;
                        return Some(Reply::Stored { rows, modified });
                    }
                    *uids = rest;
                }
                (Reply::Done, MailboxCall::Remove { uids, .. }) if !rest.is_empty() => {
                    *uids = rest;
                }
                (reply, _) => return Some(reply),
            }
        }
    }

    /// `None`: the power failed.
    pub(crate) fn one_call(&mut self, call: MailboxCall) -> Option<Reply> {
        self.requests += 1;
        self.now.wall_micros += 1000;
        self.now.mono_micros += 1000;
        let request = RequestId(self.requests);
        let account = ANNE;
        let call = Call::mailbox(account, call);
        self.input(Input::Call(request, call), request)
    }

    /// The answer to `request`, if one comes.
    pub(crate) fn input(&mut self, input: Input, request: RequestId) -> Option<Reply> {
        self.owner.handle(self.now, input);
        let mut answer = None;
        while let Some(output) = self.owner.poll() {
            match output {
                Output::Reply(to, reply) if to == request => answer = Some(reply),
                Output::Commit(ticket, commit) => {
                    self.held_back.push((ticket, commit));
                    let is_lazy = |(_, commit): &(Ticket, Commit)| commit.lazy;
                    if !self.holds_lazy || !self.held_back.iter().all(is_lazy) {
                        self.write_held_back()?;
                    }
                }
                Output::Load { ticket, .. } if self.fails_loads > 0 => {
                    self.fails_loads -= 1;
                    let failed = Input::LoadFailed(ticket, StoreError::Read("no".into()));
                    self.owner.handle(self.now, failed);
                }
                Output::Load {
                    ticket, from, to, ..
                } => {
                    let rows = self.rows.range(from..to);
                    let rows = rows.map(|(k, v)| (k.clone(), v.clone())).collect();
                    let done = true;
                    self.owner
                        .handle(self.now, Input::Loaded { ticket, rows, done });
                }
                Output::Build(ticket, building) => {
                    self.owner
                        .handle(self.now, Input::Built(ticket, building.run()));
                }
                Output::AskBirth(account) => {
                    let birth = AccountOrigin {
                        created: 7,
                        uid_validity: 7,
                        risen: 7,
                    };
                    self.owner.handle(
                        self.now,
                        Input::AccountOrigin(account, AccountStatus::Living(birth)),
                    );
                }
                Output::Fatal(cause) => panic!("{cause}"),
                _ => {}
            }
        }
        answer
    }

    pub(crate) fn call(&mut self, call: MailboxCall) -> Reply {
        self.try_call(call).expect("every call is answered")
    }

    /// A start on what was written.
    pub(crate) fn restart(&mut self) {
        self.owner = PartitionOwner::new(self.config.clone());
        self.held_back.clear();
        self.power = usize::MAX;
        self.power_for_rows = usize::MAX;
    }

    pub(crate) fn create(&mut self, mailbox: &str) {
        let call = MailboxCall::Create {
            name: name(mailbox),
            special_use: None,
        };
        let reply = self.call(call);
        assert!(!matches!(reply, Reply::Failed(_)), "{reply:?}");
    }

    pub(crate) fn append(
        &mut self,
        mailbox: &str,
        count: usize,
        summary: usize,
        flags: &Flags,
    ) -> Reply {
        let content = Content {
            prefix: Bytes::new(),
            summary: vec![b's'; summary].into(),
        };
        let message = NewMail {
            flags: flags.clone(),
            date: Date {
                seconds: 1,
                zone_minutes: 0,
            },
            size: 1,
            open_end: false,
            blob: BlobName {
                hash: [9; 32],
                upload: [9; 16],
            },
            content: content.encode(),
        };
        self.call(MailboxCall::Append {
            session: SessionId(1),
            name: name(mailbox),
            messages: vec![message; count],
            replaces: None,
        })
    }

    /// Mail comes from the queue to INBOX, and tells its UID to nobody.
    pub(crate) fn deliver(&mut self, entry: u8) {
        let content = Content {
            prefix: Bytes::new(),
            summary: Bytes::new(),
        };
        let delivery = Delivery {
            account: ANNE,
            target: name("INBOX"),
            content: content.encode(),
            size: 1,
            open_end: false,
            sent: false,
        };
        let entry = Entry {
            id: EntryId([entry; 16]),
            sender: String::new(),
            deliveries: vec![delivery],
            blob: BlobName {
                hash: [8; 32],
                upload: [8; 16],
            },
            date: Date {
                seconds: 1,
                zone_minutes: 0,
            },
        };
        let deliver = Input::Deliver {
            ticket: Ticket(1),
            entry: Arc::new(entry),
            index: 0,
            others: RequiredCopies::default(),
        };
        self.input(deliver, RequestId(0));
    }

    pub(crate) fn fill(&mut self, mailbox: &str, count: usize) {
        for _ in 0..count.div_ceil(1000) {
            let reply = self.append(mailbox, count.min(1000), 1, &Flags::none());
            assert!(matches!(reply, Reply::Appended { .. }), "{reply:?}");
        }
    }

    pub(crate) fn uids(&mut self, mailbox: &str) -> Vec<u32> {
        let select = MailboxCall::Select {
            session: SessionId(2),
            name: name(mailbox),
            read_only: true,
        };
        match self.call(select) {
            Reply::Selected(selected) => selected.uids.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn transfer(
        &mut self,
        from: &str,
        uids: Vec<u32>,
        to: &str,
        remove: bool,
    ) -> Option<Reply> {
        self.try_call(MailboxCall::Copy {
            session: SessionId(1),
            name: name(from),
            uids,
            to: name(to),
            remove,
        })
    }

    /// UIDVALIDITY has to be at least this.
    pub(crate) fn raise_uid_validity(&mut self, least: u32) {
        let least = MinUidValidity { least, next: least };
        self.input(Input::LeastUidValidity(ANNE, least), RequestId(0));
    }

    /// What was hidden long enough is dropped, until nothing is due or the power fails.
    pub(crate) fn collect(&mut self) {
        self.owner.handle(
            self.now,
            Input::Swept {
                began: u64::MAX,
                least: None,
            },
        );
        while let Some(at) = self.owner.deadline() {
            self.now.mono_micros = self.now.mono_micros.max(at);
            self.input(Input::Time, RequestId(0));
            if self.power_for_rows == 0 {
                return;
            }
        }
    }

    /// How many rows of an account there are of this kind.
    pub(crate) fn rows_of(&self, kind: impl Fn(&RowKey) -> bool) -> usize {
        let keys = self.rows.keys().filter_map(|key| key.get(17..));
        keys.filter_map(|key| RowKey::from_bytes(key).ok())
            .filter(kind)
            .count()
    }

    pub(crate) fn change(&mut self, mailbox: &str, uids: &[u32], flags: Flags) {
        let reply = self.call(MailboxCall::Store {
            session: SessionId(1),
            name: name(mailbox),
            uids: uids.to_vec(),
            change: FlagChange::Add,
            flags,
            unchanged_since: None,
        });
        assert!(matches!(reply, Reply::Stored { rows, .. } if rows.len() == uids.len()));
    }

    /// The largest commit that was made since the last look.
    pub(crate) fn largest(&mut self) -> usize {
        std::mem::take(&mut self.largest)
    }

    /// How many batches were written since the last look.
    pub(crate) fn batches(&mut self) -> usize {
        std::mem::take(&mut self.batches).len()
    }
}
