//! CREATE, DELETE, RENAME, SUBSCRIBE.

use super::*;

impl Replica {
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

    pub(super) fn removal(&self, index: u32) -> Removal {
        let record = &self.records[index];
        Removal {
            message: record.id,
            dots: record.exist.as_slice().to_vec(),
        }
    }

    /// RENAME, with the children; of a name that was deleted and has children, these alone. RENAME INBOX makes a new mailbox and moves the messages
    /// (RFC 9051, 6.3.6).
    ///
    /// What would be late under a name that was announced before is claimed again in the same plan.
    pub fn plan_rename(
        &self,
        at: &At,
        from: &MailboxName,
        to: &MailboxName,
    ) -> Result<Plan<Renamed>, PlanError> {
        let names = self.new_names(from, to)?;
        if from.is_inbox() {
            return self.plan_rename_inbox(at, to);
        }
        let mut ops = self.create_with_parents(to, None)?;
        for (old, new) in &names {
            let mailboxes = self.members(old).map(|(_, record)| record.id).collect();
            ops.push(Op::RenameMailbox {
                mailboxes,
                to: new.clone(),
            });
        }
        let slots = self.late_under(&names);
        ops.extend(self.claim_again(&mut self.claims(at), slots.into_iter())?);
        Ok(Plan {
            ops,
            outcome: Renamed { names },
        })
    }

    /// Before a RENAME by which more messages would be late than one write has room for: claims for the first of them, under the names they
    /// have now. Nothing else changes by it, and when it was done often enough the plan of the RENAME itself is small.
    pub fn plan_claims_for_rename(
        &self,
        at: &At,
        from: &MailboxName,
        to: &MailboxName,
    ) -> Result<Plan<()>, PlanError> {
        let mut slots = self.late_under(&self.new_names(from, to)?);
        slots.truncate(CLAIMS_PER_OP_MAX);
        slots.truncate(self.first_within(&slots, CLAIMS_BYTES_MAX));
        let claims = self.claim_again(&mut self.claims(at), slots.into_iter())?;
        Ok(Plan {
            ops: claims.into_iter().collect(),
            outcome: (),
        })
    }

    /// Which names a RENAME changes, and to what, if it is possible.
    fn new_names(
        &self,
        from: &MailboxName,
        to: &MailboxName,
    ) -> Result<Vec<(MailboxName, MailboxName)>, PlanError> {
        self.is_open()?;
        let mut names = Vec::new();
        if self.exists(from) {
            names.push((from.clone(), to.clone()));
        } else if !self.names.keys().any(|name| name.is_below(from)) {
            return Err(PlanError::NoMailbox);
        }
        if self.exists(to) {
            return Err(PlanError::Exists);
        }
        if from.is_inbox() {
            return Ok(names);
        }
        if to.is_below(from) {
            return Err(PlanError::IntoItself);
        }
        // Names below one name are not neighbours in the order (`a`, `a-b`, `a/b`), but they begin with it and `/`.
        for name in self.names.keys().filter(|name| name.is_below(from)) {
            let new = name.rebased(from, to)?;
            if self.exists(&new) {
                return Err(PlanError::Exists);
            }
            names.push((name.clone(), new));
        }
        Ok(names)
    }

    /// The messages that would be late under their new names, in the order of their UIDs.
    fn late_under(&self, names: &[(MailboxName, MailboxName)]) -> Vec<u32> {
        let mut late = Vec::new();
        for (old, new) in names {
            let mark = self.gone_marks.get(new).copied().unwrap_or(self.floor);
            for (_, record) in self.members(old) {
                // Those that were claimed again above the mark, and wait for other nodes, will be above it.
                let below = record.uids.range(..mark);
                let below = below.filter(|(_, slot)| self.records[**slot].uid < mark);
                late.extend(below.map(|(uid, slot)| (*uid, *slot)));
            }
        }
        late.sort_unstable();
        late.into_iter().map(|(_, slot)| slot).collect()
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

    pub(super) fn move_entry(
        &self,
        index: u32,
        claims: &mut Claims,
    ) -> Result<MoveEntry, PlanError> {
        let record = &self.records[index];
        let undelete = !record.has(crate::keywords::DELETED);
        Ok(MoveEntry {
            message: record.id,
            uid: claims.take()?,
            undelete,
        })
    }

    pub(super) fn claim_again(
        &self,
        claims: &mut Claims,
        indices: impl Iterator<Item = u32>,
    ) -> Result<Option<Op>, PlanError> {
        let mut again = Vec::new();
        for index in indices {
            let record = &self.records[index];
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

    /// SUBSCRIBE; the name need not exist. Where it is subscribed the operation says so again: an UNSUBSCRIBE that was not heard of here must not undo what is
    /// answered now.
    pub fn plan_subscribe(&self, name: &MailboxName) -> Result<Plan<()>, PlanError> {
        let new = !self.subscriptions.contains(name);
        if new && self.subscriptions.iter().count() >= MAILBOXES_MAX {
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
}
