//! How an owner writes: operations become a batch and a commit, rows become commits of their own, and answers wait for the newest of them.

use whimbrel_crdt::{Dot, PartitionId, Section, mutants::broken};
use whimbrel_mailbox::{AccountId, At, MailboxName, Op, Step};
use whimbrel_storage::{Commit, Mutation, Room};

use super::{
    Mail, Partition, Phase, keys,
    rows::{free_room, named_blob, push_row, take_state, take_visible},
    split_commits::{BATCH_BYTES_MAX, ROWS_PER_COMMIT_MAX},
};
use crate::{
    machine::{Note, Now, Output, Ticket},
    peers::OnDurable,
};

impl Mail {
    /// [`Mail::write_for`] somebody who waits.
    pub(super) fn write(
        &mut self,
        now: Now,
        account: AccountId,
        ops: Vec<Op>,
        announce: &[&MailboxName],
    ) {
        self.write_for(now, account, ops, announce, false, None);
    }

    /// Applies operations of our own and hands out the commits that hold them: one for these and one for each round of claims made again that
    /// they cause. Names in `announce` are about to be told.
    /// `lazy` if nobody waits for it, unless a session watches the account, which asks at once. `room`: what of the disk it may take; `None`: by what the
    /// operations do.
    pub(super) fn write_for(
        &mut self,
        now: Now,
        account: AccountId,
        mut ops: Vec<Op>,
        announce: &[&MailboxName],
        lazy: bool,
        room: Option<Room>,
    ) {
        let stamp = self.stamps.stamp(now);
        let mut left = usize::MAX;
        loop {
            let Some(entry) = self.accounts.get_mut(&account) else {
                return;
            };
            let Phase::Running(replica) = &mut entry.phase else {
                return;
            };
            let Some(Partition::Running(own)) = self.partitions.get_mut(&entry.partition) else {
                return;
            };
            let peers = own.peers(now, account, &self.config.peers);
            let mut sealed = None;
            let mut late = false;
            let room = room.unwrap_or(match ops.is_empty() {
                // Marks alone: looking works on a full disk.
                true => Room::Vital,
                false if free_room(&ops) => Room::Frees,
                false => Room::Ordinary,
            });
            let epoch = ops.iter().any(|op| matches!(op, Op::Epoch { .. }));
            if !ops.is_empty() {
                let count = u32::try_from(ops.len()).unwrap_or(u32::MAX);
                let encoded = Op::encode_all(&ops);
                let blobs = ops.iter().filter_map(named_blob).collect();
                for op in &ops {
                    if let Op::Claim { claims, .. } = op {
                        let count = claims.len() as u64;
                        self.counted.uids_reassigned += count;
                        own.claiming.insert(account);
                        *self.claims.entry(entry.partition).or_default() += count;
                    }
                }
                let reserved = own.log.reserve(stamp, count);
                let step = Step {
                    origin: own.log.origin(),
                    first: reserved.first,
                    hlc: reserved.hlc,
                    deps: &reserved.deps,
                    applied: own.log.applied(),
                    now_micros: own.log.hlc().last(),
                    peers: &peers,
                };
                let effects = match replica.apply(&step, std::mem::take(&mut ops)) {
                    Ok(effects) => effects,
                    Err(error) => {
                        // Own operations are planned from this very state: a defect; going on could lose mail.
                        return self
                            .out
                            .push(Output::Fatal(format!("account {account}: {error}")));
                    }
                };
                // In a syncing partition that waits (`claim_late`).
                late = effects.late && (!own.is_syncing() || broken("syncing-claims"));
                if !self.config.peers.is_empty() {
                    let last = reserved.first + u64::from(count) - 1;
                    let shown = own.announced.all_visible(account.0);
                    replica.note_claims(None, own.log.origin(), last, &shown);
                }
                entry.wait_until = effects.wait_until;
                self.agenda.show_at(effects.wait_until, account);
                let risen = epoch.then(|| replica.uidvalidity());
                self.sessions
                    .changed(&mut self.out, account, &mut entry.watchers, &effects, risen);
                // Nobody looks at it any more: what others were told of its counter is of the old epoch.
                if risen.is_some() {
                    self.agenda.watched(account);
                }
                let section = Section {
                    subject: account.0,
                    counter: replica.counter(),
                    count,
                    ops: encoded,
                };
                sealed = Some(own.log.seal(&reserved, vec![section], blobs).1);
            }
            let mut mutations = take_state(replica, account);
            let shown = take_visible(replica, account);
            let bytes = |rows: &[Mutation]| rows.iter().map(Mutation::bytes).sum::<usize>();
            let entry_bytes = sealed.as_ref().map_or(0, Commit::bytes);
            // What is announced must not be on disk before what is shown.
            let apart = entry_bytes + bytes(&mutations) + bytes(&shown) > BATCH_BYTES_MAX;
            let later = match apart {
                true => shown,
                false => {
                    mutations.extend(shown);
                    Vec::new()
                }
            };
            if !late && !apart {
                for name in announce {
                    replica.announce(name);
                }
                for (row, value) in replica.take_dirty_state() {
                    push_row(&mut mutations, account, &row, value);
                }
            }
            let measured = self.limits.measure(&mut entry.measured, replica);
            self.out.extend(measured);
            let mut commit = None;
            if sealed.is_some() || !mutations.is_empty() {
                let mut made = sealed.unwrap_or_else(|| own.log.commit());
                made.room = room;
                made.mutations.extend(mutations);
                made.lazy = lazy && entry.watchers.is_empty();
                commit = Some(made);
            }
            if late {
                if replica.late() < left {
                    left = replica.late();
                    let at = At {
                        now_micros: stamp.wall_micros,
                        next: Dot::new(own.log.origin(), own.log.next()),
                    };
                    ops = replica.plan_late(&at, &peers).ops;
                } else {
                    // Else it would never end, and memory would. A defect: what is late stays hidden, and all else goes on.
                    let text = format!("account {account}: claims made again are late at once");
                    self.out.push(Output::Log(Note::Warning(text)));
                }
            }
            if let Some(commit) = commit {
                self.hand_out(account, commit);
            }
            self.write_rows(account, room, later.into_iter().map(Some));
            if !late && !apart {
                return;
            }
            if ops.is_empty() {
                // Late, and nothing can be done: tell all the same. Or it could not be announced before.
                if announce.is_empty() {
                    return;
                }
                return self.write_for(now, account, Vec::new(), announce, lazy, None);
            }
        }
    }

    /// Hands out commits of rows alone, in their order, as many as they need. What is one unit is written at once.
    pub(super) fn write_rows<Unit: IntoIterator<Item = Mutation>>(
        &mut self,
        account: AccountId,
        room: Room,
        units: impl IntoIterator<Item = Unit>,
    ) {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        for unit in units {
            let before = rows.len();
            rows.extend(unit);
            let added: usize = rows[before..].iter().map(Mutation::bytes).sum();
            bytes += added;
            if bytes > BATCH_BYTES_MAX && before > 0 {
                // The last one has no room with those before.
                let unit = rows.split_off(before);
                self.hand_out_rows(account, room, std::mem::replace(&mut rows, unit));
                bytes = added;
            }
            if rows.len() >= ROWS_PER_COMMIT_MAX {
                self.hand_out_rows(account, room, std::mem::take(&mut rows));
                bytes = 0;
            }
        }
        self.hand_out_rows(account, room, rows);
    }

    pub(super) fn hand_out_rows(&mut self, account: AccountId, room: Room, rows: Vec<Mutation>) {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        let Some(Partition::Running(own)) = self.partitions.get_mut(&entry.partition) else {
            return;
        };
        if rows.is_empty() {
            return;
        }
        let mut commit = own.log.commit();
        commit.mutations.extend(rows);
        commit.room = room;
        self.hand_out(account, commit);
    }

    /// Hands out a commit of an account: what is answered from now on waits for it.
    pub(super) fn hand_out(&mut self, account: AccountId, commit: Commit) {
        let ticket = self.out.ticket();
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        let Some(Partition::Running(own)) = self.partitions.get_mut(&entry.partition) else {
            return;
        };
        entry.newest = Some(ticket);
        own.gate.submitted(ticket);
        let then = OnDurable::own(&commit, own.log.hash());
        own.shipping.committing(ticket, then);
        if let (Phase::Running(replica), false) = (&entry.phase, entry.watchers.is_empty()) {
            own.counters.push_back((ticket, account, replica.counter()));
        }
        self.out.commit(ticket, entry.partition, commit);
    }

    /// Hands out a commit of no account.
    pub(super) fn hand_out_for(&mut self, partition: PartitionId, ticket: Ticket, commit: Commit) {
        if let Some(own) = self.partitions.running(partition) {
            own.gate.submitted(ticket);
            self.out.commit(ticket, partition, commit);
        }
    }

    /// Late messages are claimed again before they are shown; in a syncing partition when it has grown: what removes them may be still to come, and
    /// be forgotten elsewhere.
    pub(super) fn claim_late(&mut self, now: Now, account: AccountId) {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        let (Phase::Running(replica), Some(Partition::Running(own))) =
            (&mut entry.phase, self.partitions.get(&entry.partition))
        else {
            return;
        };
        if own.is_syncing() && !broken("syncing-claims") {
            if replica.late() > 0
                && let Some(own) = self.partitions.running(keys::partition_of(account))
            {
                own.late.insert(account);
            }
            return;
        }
        let at = At {
            now_micros: self.stamps.stamp(now).wall_micros,
            next: Dot::new(own.log.origin(), own.log.next()),
        };
        let peers = own.peers(now, account, &self.config.peers);
        let ops = replica.plan_late(&at, &peers).ops;
        self.write(now, account, ops, &[]);
    }

    /// Lets an answer out when what it saw of the account is durable.
    pub(super) fn answer(&mut self, account: AccountId, answer: Output) {
        let newest = self.accounts.get(&account).and_then(|entry| entry.newest);
        match self.partitions.get_mut(&keys::partition_of(account)) {
            Some(Partition::Running(own)) => own.gate.reply_after(newest, answer, &mut self.out),
            _ => self.out.push(answer),
        }
    }

    /// UIDVALIDITY rises when UIDs may run out within this call, or because the directory asks for it (docs/design.md#rule-7).
    pub(super) fn epoch_if_due(&mut self, now: Now, account: AccountId, least: u32) {
        let at = self.at(now, account);
        let Ok(replica) = self.accounts.replica(account) else {
            return;
        };
        let known = replica.uidvalidity();
        let lost = match self.partitions.get(&keys::partition_of(account)) {
            Some(Partition::Running(own)) => own.log.least_found(known),
            _ => None,
        };
        let least = lost.unwrap_or(0).max(least);
        if replica.needs_epoch(&at) || known < least {
            let plan = replica.plan_epoch(&at, least);
            self.write(now, account, plan.ops, &[]);
        }
    }

    pub(super) fn at(&self, now: Now, account: AccountId) -> At {
        let (next, last) = match self.partitions.get(&keys::partition_of(account)) {
            Some(Partition::Running(own)) => {
                let log = &own.log;
                (Dot::new(log.origin(), log.next()), log.hlc().last())
            }
            _ => (Dot::new(self.config.origin, 1), 0),
        };
        let wall_micros = self.stamps.stamp(now).wall_micros;
        At {
            // Not less than what others have written, where this node does not know the time.
            now_micros: match self.stamps.is_right(now) {
                true => wall_micros,
                false => wall_micros.max(last),
            },
            next,
        }
    }
}
