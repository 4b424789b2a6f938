//! From a client's wish to operations: what is visible here decides; nothing is changed.

use std::collections::BTreeMap;

use whimbrel_crdt::Dot;
use whimbrel_crdt::mutants::broken;

use crate::op::{Append, BoxRemoval, Claim, CopyEntry, CreateMailbox, Deliver, MoveEntry, Removal};
use crate::{
    BlobName, Date, EntryId, Flag, Flags, KEYWORDS_MAX, MailboxId, MailboxName, Message, MessageId,
    NameError, NewId, Op, Peers, Replica, SpecialUse,
};

/// Most mailboxes of an account: LIST and RENAME go through all of them.
pub const MAILBOXES_MAX: usize = 10_000;

/// Seconds of one tick of the UID counter: 2^26 ticks last 68 years.
const TICK_SECONDS: u64 = 32;

/// The counter ends here: a UID has 32 bits, six of them the slot.
const COUNTER_MAX: u32 = (1 << 26) - 1;

/// A UID that a client names is believed up to this far ahead of the counter (rule 6).
const NAMED_AHEAD_MAX: u32 = 1 << 20;

/// When, and under which number, the planned operations will be applied.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Wall clock, microseconds since the epoch.
    pub now_micros: u64,
    /// The dot of the first planned operation. The plan holds only if they get exactly this dot and those after it.
    pub next: Dot,
}

/// Operations to apply, and what to tell when they are on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<T> {
    /// Empty if there is nothing to do.
    pub ops: Vec<Op>,
    /// What to tell.
    pub outcome: T,
}

/// Why a wish cannot be granted. Permanent unless said otherwise; the text may be told to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// NONEXISTENT, or TRYCREATE.
    #[error("no such mailbox")]
    NoMailbox,
    /// ALREADYEXISTS
    #[error("mailbox exists")]
    Exists,
    /// CANNOT: INBOX cannot be deleted.
    #[error("INBOX cannot be deleted")]
    Inbox,
    /// CANNOT: a name cannot be made.
    #[error(transparent)]
    Name(#[from] NameError),
    /// CANNOT: RENAME into itself.
    #[error("a mailbox cannot be moved below itself")]
    IntoItself,
    /// LIMIT
    #[error("too many mailboxes")]
    TooManyMailboxes,
    /// LIMIT
    #[error("too many keywords")]
    TooManyKeywords,
    /// The account is not open yet.
    #[error("the account is not open")]
    NotOpen,
    /// LIMIT: the counter is at its end; an epoch is due.
    #[error("no UIDs are left")]
    NoUids,
}

/// A message to append or deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// Initial flags (ignored for a delivery).
    pub flags: Flags,
    /// Where the bytes are.
    pub blob: BlobName,
    /// RFC822.SIZE
    pub size: u32,
    /// INTERNALDATE
    pub date: Date,
    /// The summary, opaque.
    pub content: Vec<u8>,
}

/// CREATE
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// MAILBOXID
    pub id: MailboxId,
}

/// RENAME
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// Old and new names, the children's too.
    pub names: Vec<(MailboxName, MailboxName)>,
}

/// A delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The message.
    pub message: MessageId,
    /// The UID it gets; `None` if it was delivered before.
    pub uid: Option<u32>,
}

/// COPY: COPYUID in the order of the sources' UIDs. Call [`Replica::announce`] on the target before it is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Source UID (as it is at present) and target UID.
    pub uids: Vec<(u32, u32)>,
    /// UIDs that name nothing shown.
    pub missing: Vec<u32>,
}

/// MOVE: as for COPY.
pub type Moved = Copied;

/// How STORE names flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// `+FLAGS`
    Add,
    /// `-FLAGS`
    Remove,
    /// `FLAGS`
    Replace,
}

/// STORE
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The present UIDs of the messages found, ascending.
    pub uids: Vec<u32>,
    /// UIDs that name nothing shown.
    pub missing: Vec<u32>,
}

/// What a client that may come from another node names (rule 6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Takeover {
    /// For each name the greatest UID or UIDNEXT - 1 that the client named.
    pub named: Vec<(MailboxName, u32)>,
    /// For each slot the greatest counter that every other node which served the account has announced: the least over
    /// those nodes. A claim not covered by it may be unknown to the client.
    pub announced: Vec<(u8, u32)>,
}

/// UIDs in ascending order, above every counter seen.
struct Claims {
    next: u32,
    slot: u8,
    epoch: u32,
}

impl Claims {
    fn take(&mut self) -> Result<u32, PlanError> {
        if self.next > COUNTER_MAX {
            return Err(PlanError::NoUids);
        }
        let uid = self.next * 64 + u32::from(self.slot);
        self.next += 1;
        Ok(uid)
    }
}

impl Replica {
    /// Rule 1: above every counter seen, and following the account's age.
    fn claims(&self, at: &At) -> Claims {
        let base = if self.epoch > 0 {
            self.epoch
        } else {
            self.created
        };
        let age = (at.now_micros / 1_000_000).saturating_sub(u64::from(base));
        let tick = u32::try_from(age / TICK_SECONDS)
            .unwrap_or(u32::MAX)
            .min(COUNTER_MAX);
        Claims {
            next: (self.counter + 1).max(tick),
            slot: self.slot,
            epoch: self.epoch,
        }
    }

    fn is_open(&self) -> Result<(), PlanError> {
        if self.created == 0 {
            Err(PlanError::NotOpen)
        } else {
            Ok(())
        }
    }

    /// The mailbox that takes what is put into a name.
    fn target(&self, name: &MailboxName) -> Result<MailboxId, PlanError> {
        self.is_open()?;
        self.first_box(name)
            .map(|number| self.boxes[number].id)
            .ok_or(PlanError::NoMailbox)
    }

    /// The shown records that the UIDs name, by present UID, and the UIDs that name nothing.
    fn select(&self, name: &MailboxName, uids: &[u32]) -> (Vec<(u32, u32)>, Vec<u32>) {
        let mut found = Vec::with_capacity(uids.len());
        let mut missing = Vec::new();
        for uid in uids {
            match self.resolve_slot(name, *uid) {
                Some(slot) => found.push((self.records[slot].shown, slot)),
                None => missing.push(*uid),
            }
        }
        found.sort_unstable();
        found.dedup();
        (found, missing)
    }

    /// The account begins: INBOX and the default folders, each once in the cluster.
    pub fn plan_open(
        &self,
        created: u32,
        uidvalidity_floor: u32,
        folders: &[(MailboxName, Option<SpecialUse>)],
    ) -> Plan<()> {
        if self.created != 0 {
            return Plan {
                ops: Vec::new(),
                outcome: (),
            };
        }
        let mut ops = vec![Op::Open {
            created: created.max(1),
            uidvalidity_floor,
        }];
        ops.extend(folders.iter().map(|(name, special_use)| {
            let id = NewId::Derived(MailboxId::default_folder(name.as_str()));
            Op::CreateMailbox(CreateMailbox {
                id,
                name: name.clone(),
                special_use: *special_use,
            })
        }));
        Plan { ops, outcome: () }
    }

    /// Creations of the superior names that do not exist (RFC 9051, 6.3.4: "the server SHOULD create any superior
    /// hierarchical names that are needed"), and of the name itself if asked for.
    fn create_with_parents(
        &self,
        name: &MailboxName,
        itself: Option<Option<SpecialUse>>,
    ) -> Result<Vec<Op>, PlanError> {
        let create = |name: MailboxName, special_use| {
            Op::CreateMailbox(CreateMailbox {
                id: NewId::Fresh,
                name,
                special_use,
            })
        };
        let mut ops: Vec<Op> = itself
            .map(|special_use| create(name.clone(), special_use))
            .into_iter()
            .collect();
        let mut above = name.parent();
        while let Some(parent) = above {
            if !self.exists(&parent) {
                ops.push(create(parent.clone(), None));
            }
            above = parent.parent();
        }
        ops.reverse();
        if self.boxes.len() + ops.len() > MAILBOXES_MAX {
            return Err(PlanError::TooManyMailboxes);
        }
        Ok(ops)
    }

    /// CREATE. Superior names are created too (RFC 9051, 6.3.4).
    pub fn plan_create(
        &self,
        at: &At,
        name: &MailboxName,
        special_use: Option<SpecialUse>,
    ) -> Result<Plan<Created>, PlanError> {
        self.is_open()?;
        if self.exists(name) {
            return Err(PlanError::Exists);
        }
        let ops = self.create_with_parents(name, Some(special_use))?;
        let id = MailboxId::from_dot(nth(at, ops.len() - 1));
        Ok(Plan {
            ops,
            outcome: Created { id },
        })
    }

    /// DELETE. Children stay.
    pub fn plan_delete(&self, name: &MailboxName) -> Result<Plan<()>, PlanError> {
        if name.is_inbox() {
            return Err(PlanError::Inbox);
        }
        if !self.exists(name) {
            return Err(PlanError::NoMailbox);
        }
        let mut mailboxes = Vec::new();
        let mut messages = Vec::new();
        for (_, record) in self.members(name) {
            mailboxes.push(BoxRemoval {
                mailbox: record.id,
                dots: record.exist.as_slice().to_vec(),
            });
            messages.extend(record.uids.values().map(|slot| self.removal(*slot)));
        }
        Ok(Plan {
            ops: vec![Op::DeleteMailbox {
                mailboxes,
                messages,
            }],
            outcome: (),
        })
    }

    fn removal(&self, slot: u32) -> Removal {
        let record = &self.records[slot];
        Removal {
            message: record.id,
            dots: record.exist.as_slice().to_vec(),
        }
    }

    /// RENAME, with the children. RENAME INBOX makes a new mailbox and moves the messages (RFC 9051, 6.3.6).
    ///
    /// What would be late under a name that was announced before is claimed again in the same plan.
    pub fn plan_rename(
        &self,
        at: &At,
        from: &MailboxName,
        to: &MailboxName,
    ) -> Result<Plan<Renamed>, PlanError> {
        self.is_open()?;
        if !self.exists(from) {
            return Err(PlanError::NoMailbox);
        }
        if self.exists(to) {
            return Err(PlanError::Exists);
        }
        if from.is_inbox() {
            return self.plan_rename_inbox(at, to);
        }
        if to.is_below(from) {
            return Err(PlanError::IntoItself);
        }
        let mut names = vec![(from.clone(), to.clone())];
        // Names below one name are not neighbours in the order (`a`, `a-b`, `a/b`), but they begin with it and `/`.
        for name in self.names.keys().filter(|name| name.is_below(from)) {
            let new = name.rebased(from, to)?;
            if self.exists(&new) {
                return Err(PlanError::Exists);
            }
            names.push((name.clone(), new));
        }
        let mut ops = self.create_with_parents(to, None)?;
        let mut late = Vec::new();
        for (old, new) in &names {
            let mailboxes = self.members(old).map(|(_, record)| record.id).collect();
            ops.push(Op::RenameMailbox {
                mailboxes,
                to: new.clone(),
            });
            let mark = self.gone_marks.get(new).copied().unwrap_or(self.floor);
            for (_, record) in self.members(old) {
                late.extend(record.uids.range(..mark).map(|(uid, slot)| (*uid, *slot)));
            }
        }
        late.sort_unstable();
        let slots = late.into_iter().map(|(_, slot)| slot);
        ops.extend(self.claim_again(&mut self.claims(at), slots)?);
        Ok(Plan {
            ops,
            outcome: Renamed { names },
        })
    }

    fn plan_rename_inbox(&self, at: &At, to: &MailboxName) -> Result<Plan<Renamed>, PlanError> {
        let mut ops = self.create_with_parents(to, Some(None))?;
        let mailbox = MailboxId::from_dot(nth(at, ops.len() - 1));
        let inbox = MailboxName::inbox();
        let mut claims = self.claims(at);
        let (found, _) = self.select(&inbox, &self.uids(&inbox));
        let entries: Result<Vec<_>, _> = found
            .iter()
            .map(|(_, slot)| self.move_entry(*slot, &mut claims))
            .collect();
        let entries = entries?;
        if !entries.is_empty() {
            ops.push(Op::Move {
                mailbox,
                entries,
                epoch: self.epoch,
            });
        }
        Ok(Plan {
            ops,
            outcome: Renamed {
                names: vec![(inbox, to.clone())],
            },
        })
    }

    fn move_entry(&self, slot: u32, claims: &mut Claims) -> Result<MoveEntry, PlanError> {
        let record = &self.records[slot];
        let undelete = !record.has(crate::record::DELETED);
        Ok(MoveEntry {
            message: record.id,
            uid: claims.take()?,
            undelete,
        })
    }

    fn claim_again(
        &self,
        claims: &mut Claims,
        slots: impl Iterator<Item = u32>,
    ) -> Result<Option<Op>, PlanError> {
        let mut again = Vec::new();
        for slot in slots {
            let record = &self.records[slot];
            again.push(Claim {
                message: record.id,
                placement: record.placed,
                uid: claims.take()?,
            });
        }
        Ok((!again.is_empty()).then_some(Op::Claim {
            claims: again,
            epoch: claims.epoch,
        }))
    }

    /// SUBSCRIBE; the name need not exist.
    pub fn plan_subscribe(&self, name: &MailboxName) -> Result<Plan<()>, PlanError> {
        if self.subscriptions.contains(name) {
            return Ok(Plan {
                ops: Vec::new(),
                outcome: (),
            });
        }
        if self.subscriptions.iter().count() >= MAILBOXES_MAX {
            return Err(PlanError::TooManyMailboxes);
        }
        Ok(Plan {
            ops: vec![Op::Subscribe { name: name.clone() }],
            outcome: (),
        })
    }

    /// UNSUBSCRIBE
    pub fn plan_unsubscribe(&self, name: &MailboxName) -> Plan<()> {
        let dots = self
            .subscriptions
            .dots(name)
            .map(|dots| dots.as_slice().to_vec());
        let ops = dots
            .map(|dots| Op::Unsubscribe {
                name: name.clone(),
                dots,
            })
            .into_iter()
            .collect();
        Plan { ops, outcome: () }
    }

    /// APPEND and MULTIAPPEND; the outcome is the UIDs for APPENDUID.
    pub fn plan_append(
        &self,
        at: &At,
        name: &MailboxName,
        messages: Vec<NewMessage>,
    ) -> Result<Plan<Vec<u32>>, PlanError> {
        let mailbox = self.target(name)?;
        let mut claims = self.claims(at);
        let mut plan = Plan {
            ops: Vec::with_capacity(messages.len()),
            outcome: Vec::new(),
        };
        for NewMessage {
            flags,
            blob,
            size,
            date,
            content,
        } in messages
        {
            check_keywords(&flags)?;
            let uid = claims.take()?;
            let message = Message { blob, size, date };
            plan.ops.push(Op::Append(Append {
                mailbox,
                uid,
                flags,
                message,
                content,
                epoch: self.epoch,
            }));
            plan.outcome.push(uid);
        }
        Ok(plan)
    }

    /// A delivery of a queue entry into `name`. `target` is the name that the recipient's address asked for, fixed at
    /// acceptance: it and not `name` decides the id.
    pub fn plan_deliver(
        &self,
        at: &At,
        entry: EntryId,
        target: &MailboxName,
        name: &MailboxName,
        message: NewMessage,
    ) -> Result<Plan<Delivered>, PlanError> {
        let mailbox = self.target(name)?;
        let id = MessageId::delivered(entry, self.account, target);
        if self.by_id.contains_key(&id) {
            return Ok(Plan {
                ops: Vec::new(),
                outcome: Delivered {
                    message: id,
                    uid: None,
                },
            });
        }
        let uid = self.claims(at).take()?;
        let NewMessage {
            blob,
            size,
            date,
            content,
            ..
        } = message;
        let op = Op::Deliver(Deliver {
            id,
            entry: entry.tag(),
            placement: entry.placement(mailbox),
            mailbox,
            uid,
            message: Message { blob, size, date },
            content,
            epoch: self.epoch,
        });
        Ok(Plan {
            ops: vec![op],
            outcome: Delivered {
                message: id,
                uid: Some(uid),
            },
        })
    }

    /// COPY
    pub fn plan_copy(
        &self,
        at: &At,
        from: &MailboxName,
        uids: &[u32],
        to: &MailboxName,
    ) -> Result<Plan<Copied>, PlanError> {
        let mailbox = self.target(to)?;
        let mut claims = self.claims(at);
        let (found, missing) = self.select(from, uids);
        let mut outcome = Copied {
            uids: Vec::with_capacity(found.len()),
            missing,
        };
        let mut entries = Vec::with_capacity(found.len());
        for (shown, slot) in found {
            let record = &self.records[slot];
            let uid = claims.take()?;
            entries.push(CopyEntry {
                source: record.id,
                uid,
                flags: self.flags_of(record),
            });
            outcome.uids.push((shown, uid));
        }
        let epoch = self.epoch;
        let op = (!entries.is_empty()).then_some(Op::Copy {
            mailbox,
            entries,
            epoch,
        });
        Ok(Plan {
            ops: op.into_iter().collect(),
            outcome,
        })
    }

    /// MOVE
    pub fn plan_move(
        &self,
        at: &At,
        from: &MailboxName,
        uids: &[u32],
        to: &MailboxName,
    ) -> Result<Plan<Moved>, PlanError> {
        let mailbox = self.target(to)?;
        let mut claims = self.claims(at);
        let (found, missing) = self.select(from, uids);
        let mut outcome = Moved {
            uids: Vec::with_capacity(found.len()),
            missing,
        };
        let mut entries = Vec::with_capacity(found.len());
        for (shown, slot) in found {
            let entry = self.move_entry(slot, &mut claims)?;
            outcome.uids.push((shown, entry.uid));
            entries.push(entry);
        }
        let epoch = self.epoch;
        let op = (!entries.is_empty()).then_some(Op::Move {
            mailbox,
            entries,
            epoch,
        });
        Ok(Plan {
            ops: op.into_iter().collect(),
            outcome,
        })
    }

    /// STORE. `shown` gives, for a replacing STORE, the flags that the session was shown for a UID; `None` means as
    /// they are now.
    ///
    /// `+FLAGS` and `-FLAGS` write each flag that is named, changed here or not: elsewhere it may be otherwise.
    pub fn plan_store(
        &self,
        name: &MailboxName,
        uids: &[u32],
        mode: StoreMode,
        flags: &Flags,
        shown: &dyn Fn(u32) -> Option<Flags>,
    ) -> Result<Plan<Stored>, PlanError> {
        check_keywords(flags)?;
        if !self.exists(name) {
            return Err(PlanError::NoMailbox);
        }
        let (found, missing) = self.select(name, uids);
        let mut groups: BTreeMap<(Flags, Flags), Vec<MessageId>> = BTreeMap::new();
        for (uid, slot) in &found {
            let record = &self.records[*slot];
            let change = match mode {
                StoreMode::Add => {
                    if !flags.keywords().is_empty() {
                        check_keywords(&self.flags_of(record).union(flags))?;
                    }
                    (flags.clone(), Flags::none())
                }
                StoreMode::Remove => (Flags::none(), flags.clone()),
                StoreMode::Replace => {
                    let before = shown(*uid).unwrap_or_else(|| self.flags_of(record));
                    (flags.without(&before), before.without(flags))
                }
            };
            groups.entry(change).or_default().push(record.id);
        }
        let groups = groups
            .into_iter()
            .filter(|((set, clear), _)| !set.is_empty() || !clear.is_empty());
        let ops = groups.map(|((set, clear), messages)| {
            let rescue = clear.contains(&Flag::Deleted);
            Op::Store {
                messages,
                set,
                clear,
                rescue,
            }
        });
        let ops = ops.collect();
        Ok(Plan {
            ops,
            outcome: Stored {
                uids: found.into_iter().map(|(uid, _)| uid).collect(),
                missing,
            },
        })
    }

    /// EXPUNGE of exactly these UIDs; the caller has selected those with `\Deleted`.
    pub fn plan_expunge(
        &self,
        name: &MailboxName,
        uids: &[u32],
    ) -> Result<Plan<Stored>, PlanError> {
        if !self.exists(name) {
            return Err(PlanError::NoMailbox);
        }
        let (found, missing) = self.select(name, uids);
        let messages: Vec<Removal> = found.iter().map(|(_, slot)| self.removal(*slot)).collect();
        let op = (!messages.is_empty()).then_some(Op::Expunge { messages });
        let uids = found.into_iter().map(|(uid, _)| uid).collect();
        Ok(Plan {
            ops: op.into_iter().collect(),
            outcome: Stored { uids, missing },
        })
    }

    /// Late messages claimed again (rule 4). `peers` are those who will do the same at once: they give the rank.
    ///
    /// The blocks of replicas that claim the same messages again do not interleave: block `rank` begins `rank` times the
    /// number of messages further on. So one replica's claims win for all messages, and nothing is late again.
    ///
    /// Without UIDs to give, it is empty while [`Replica::is_clean`] is not: an epoch is due.
    pub fn plan_late(&self, at: &At, peers: &Peers) -> Plan<()> {
        if broken("late-not-claimed") {
            return Plan {
                ops: Vec::new(),
                outcome: (),
            };
        }
        let rank = peers.0.iter().filter(|peer| peer.slot < self.slot).count() as u32;
        let mut claims = self.claims(at);
        claims.next = claims
            .next
            .saturating_add((self.late.len() as u32).saturating_mul(rank));
        let ops = self
            .claim_again(&mut claims, self.late.values().copied())
            .unwrap_or_default();
        Plan {
            ops: ops.into_iter().collect(),
            outcome: (),
        }
    }

    /// The UIDs that a client named, as far as they are plausible: at most 2^20 ahead of the counter.
    fn plausible<'a>(
        &'a self,
        at: &At,
        takeover: &'a Takeover,
    ) -> impl Iterator<Item = &'a (MailboxName, u32)> {
        let ahead = self
            .claims(at)
            .next
            .saturating_add(NAMED_AHEAD_MAX)
            .min(COUNTER_MAX);
        takeover
            .named
            .iter()
            .filter(move |(_, uid)| uid / 64 <= ahead)
    }

    /// What must be done before a client that may come from another node is answered (rule 6).
    ///
    /// In this order, all without peers, for a takeover waits for nobody: [`Self::release`], [`Self::plan_late`], this, and
    /// [`Self::raise_marks`] with the same argument before anything is told.
    pub fn plan_takeover(&self, at: &At, takeover: &Takeover) -> Plan<()> {
        let counter = self
            .plausible(at, takeover)
            .map(|(_, uid)| uid / 64)
            .max()
            .unwrap_or(0);
        let mut ops = Vec::new();
        if counter > self.counter {
            // Whatever raises the counter is an operation: on disk before it is shown.
            ops.push(Op::Bump {
                counter,
                epoch: self.epoch,
            });
        }
        let mut claims = self.claims(at);
        claims.next = claims.next.max(counter.saturating_add(1));
        let known = |uid: u32| {
            let announced = takeover
                .announced
                .iter()
                .find(|(slot, _)| u32::from(*slot) == uid % 64);
            announced.is_some_and(|(_, counter)| uid / 64 <= *counter)
        };
        let mut again = Vec::new();
        for (name, named) in self.plausible(at, takeover) {
            for (_, record) in self.members(name) {
                let below = record
                    .uids
                    .range(..=*named)
                    .filter(|(uid, _)| !known(**uid));
                again.extend(below.map(|(uid, slot)| (*uid, *slot)));
            }
        }
        again.sort_unstable();
        again.dedup();
        if broken("takeover-claims-nothing") {
            again.clear();
        }
        let again = self.claim_again(&mut claims, again.into_iter().map(|(_, slot)| slot));
        ops.extend(again.unwrap_or_default());
        Plan { ops, outcome: () }
    }

    /// Raises the marks of the names to what a client named (rule 6), which counts as announced.
    pub fn raise_marks(&mut self, at: &At, takeover: &Takeover) {
        let named: Vec<(MailboxName, u32)> = self.plausible(at, takeover).cloned().collect();
        for (name, uid) in named {
            self.raise_mark(&name, uid.saturating_add(1));
        }
    }

    /// A new epoch: UIDVALIDITY rises, and every claim is made again. The last resort. After applying it,
    /// [`Self::plan_late`] is due.
    pub fn plan_epoch(&self, at: &At) -> Plan<()> {
        let now = u32::try_from(at.now_micros / 1_000_000).unwrap_or(u32::MAX);
        let uidvalidity = now.max(self.uidvalidity().saturating_add(1));
        Plan {
            ops: vec![Op::Epoch { uidvalidity }],
            outcome: (),
        }
    }
}

/// The dot of the `index`-th planned operation.
fn nth(at: &At, index: usize) -> Dot {
    Dot::new(at.next.origin, at.next.seq + index as u64)
}

fn check_keywords(flags: &Flags) -> Result<(), PlanError> {
    if flags.keywords().len() > KEYWORDS_MAX {
        Err(PlanError::TooManyKeywords)
    } else {
        Ok(())
    }
}
