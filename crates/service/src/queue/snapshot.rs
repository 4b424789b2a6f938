//! The queue's state in place of its logs: `docs/decisions/0035`.
//!
//! A row says where its entry was taken, so two states are joined entry by entry: what one of the two does not have is finished if that one has heard
//! of it, else it is there. An entry that comes is therefore written to its place at once, unless this node has heard of it: then it is finished, or
//! here. That it has come is kept, for when the last row is here what did not come and was heard of by the donor is finished.
//!
//! Invariants:
//! - An entry that came and of which this node has not heard by a log, nor joined the state, is delivered by nobody here.
//! - What was accepted alone is a node's own: it does not travel.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_crdt::{Hash, Incarnation, PartitionId, VersionVector, mutants::broken};
use whimbrel_mailbox::EntryId;
use whimbrel_replication::partition::Ticket as Asked;
use whimbrel_storage::{Commit, Mutation, Room};

use super::{
    Phase, QueueOwner, Waiting,
    rows::{entry_key, entry_of_row, without},
};
use crate::{
    machine::{Note, Now, Output, Ticket},
    peers::{
        OnDurable, PeerOutput, SnapshotProgress, StateWork,
        log_retention::GivenUp,
        singleton_snapshot::{may_travel, pages},
        snapshot::decode_rows,
    },
};

/// Whether a row goes with a state.
pub(super) fn travels(key: &[u8], row: &Bytes) -> bool {
    entry_of_row(key, row).is_some_and(|(_, taken)| taken.is_some())
}

impl QueueOwner {
    /// Logs are too long. What is cut for it goes now: perhaps nothing else is written for long.
    pub(super) fn give_up_logs(&mut self, now: Now, logs: &GivenUp) {
        let ticket = self.ticket();
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        for ((_, origin), number) in logs.iter().filter(|((of, _), _)| *of == PartitionId::QUEUE) {
            running.shipping.give_up(now, *origin, *number);
        }
        self.ship(now);
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        if running.log.cuts() && !running.failed {
            let mut commit = running.log.commit();
            commit.room = Room::Frees;
            let waiting = Waiting::Foreign(Vec::new(), Vec::new());
            self.hand_out_commit(ticket, commit, None, waiting);
        }
    }

    /// Does a piece of work that is of a state.
    pub(super) fn work_on_state(&mut self, now: Now, ticket: Ticket, work: StateWork) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let mut gone = Vec::new();
        let (mut then, mut came) = (None, Vec::new());
        let commit = match work {
            StateWork::Begin(held) => {
                let mut commit = running.log.commit();
                gone = running.coming.begin(*held, &mut commit);
                commit
            }
            StateWork::Rows { asked, last, rows } => match self.keep(now, &last, &rows) {
                Ok((commit, entries)) => {
                    (then, came) = (Some(OnDurable::Done(asked)), entries);
                    commit
                }
                Err(cause) => {
                    // Nothing is durable, so nothing is joined; another donor is asked in time.
                    let text = format!("rows of a state of the queue cannot be kept: {cause}");
                    return self.out.push_back(Output::Log(Note::Warning(text)));
                }
            },
            StateWork::Forget if running.coming.held().is_none() => return,
            StateWork::Forget => {
                let mut commit = running.log.commit();
                gone = running.coming.end(&mut commit);
                commit.room = Room::Frees;
                commit
            }
            StateWork::Join { asked, held, jumps } => {
                return self.adopt(now, asked, &held, &jumps);
            }
        };
        self.hand_out_commit(ticket, commit, then, Waiting::Foreign(Vec::new(), came));
        self.hand_out_pages(gone);
    }

    /// Keeps rows of the state that comes. Gives the entries that are new here.
    fn keep(
        &mut self,
        now: Now,
        last: &[u8],
        rows: &Bytes,
    ) -> Result<(Commit, Vec<EntryId>), String> {
        let mut entries = Vec::new();
        for (key, row) in decode_rows(rows)? {
            let entry = entry_of_row(&key, &row).filter(|_| may_travel(&key));
            let Some((entry, Some(taken))) = entry else {
                return Err("a row that is no entry of the queue's log".into());
            };
            entries.push((key, row, entry, taken));
        }
        let Phase::Running(running) = &mut self.phase else {
            return Err("the queue is being read".into());
        };
        let applied = running.log.applied().clone();
        let marks = entries.iter().map(|(key, ..)| (key.clone(), Bytes::new()));
        let kept = running.coming.keep(last, marks)?;
        let mut commit = running.log.commit_of_others();
        commit.mutations.extend(kept);
        let mut new = Vec::new();
        for (_, row, entry, taken) in entries {
            let heard_of = taken.is_in(&applied) == Some(true);
            if heard_of || self.knows(entry.id) {
                continue;
            }
            if self.hear_of(now, entry.id, taken, entry.blob, row, &mut commit) {
                self.out
                    .push_back(Output::Peer(PeerOutput::Request(entry.blob)));
            }
            new.push(entry.id);
        }
        Ok((commit, new))
    }

    fn knows(&self, id: EntryId) -> bool {
        let mut provisional = self.provisional.values();
        self.entries.contains_key(&id)
            || self.others.contains_key(&id)
            || provisional.any(|of| of.entry.id == id)
    }

    /// All of it is here: what did not come, and its donor had heard of, is finished. Position and logs are those of both from now on.
    fn adopt(
        &mut self,
        now: Now,
        asked: Asked,
        held: &SnapshotProgress,
        jumps: &BTreeMap<Incarnation, (u64, Hash)>,
    ) {
        let finished = match broken("finished-entry-stays") {
            true => Vec::new(),
            false => self.finished_in(&held.snapshot.applied),
        };
        let mut rows = Vec::new();
        for id in &finished {
            let blob = self.close(now, *id);
            rows.extend(blob.into_iter().flat_map(|blob| without(*id, &blob)));
        }
        // They are finished whether or not the position says so: what does not fit into the commit of the position goes before it.
        let mut pages = pages(rows);
        let last = pages.pop().unwrap_or_default();
        self.hand_out_pages(pages.into_iter().flatten().collect());
        let ticket = self.ticket();
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let mut commit = running.log.join(held, jumps);
        let gone = running.coming.end(&mut commit);
        commit.mutations.extend(last);
        self.snapshots_received += 1;
        let then = Some(OnDurable::Done(asked));
        self.hand_out_commit(ticket, commit, then, Waiting::Foreign(finished, Vec::new()));
        self.hand_out_pages(gone);
        // What came with it may be what peers have asked for.
        self.make_idle();
        self.look_later(now);
    }

    /// Entries that are here, that whoever has applied this has heard of, and that are not in its state.
    fn finished_in(&self, applied: &VersionVector) -> Vec<EntryId> {
        let Phase::Running(running) = &self.phase else {
            return Vec::new();
        };
        let own = self.entries.iter();
        let own = own.filter_map(|(id, of)| Some((*id, of.taken?)));
        let others = self.others.iter().map(|(id, of)| (*id, of.taken));
        let provisional = self.provisional.iter();
        let provisional = provisional.map(|(number, of)| (of.entry.id, self.taken_here(*number)));
        let all = own.chain(others).chain(provisional);
        let finished = all.filter(|(id, taken)| {
            taken.is_in(applied) == Some(true) && !running.coming.has(&entry_key(*id))
        });
        finished.map(|(id, _)| id).collect()
    }

    fn hand_out_commit(
        &mut self,
        ticket: Ticket,
        commit: Commit,
        then: Option<OnDurable>,
        waiting: Waiting,
    ) {
        if let Phase::Running(running) = &mut self.phase {
            running.under_way.insert(ticket);
            running.shipping.committing(ticket, then);
            self.commits.insert(ticket, waiting);
            self.out.push_back(Output::Commit(ticket, commit));
        }
    }

    /// Removes rows that are of no use.
    pub(super) fn hand_out_pages(&mut self, gone: Vec<Mutation>) {
        if gone.is_empty() {
            return;
        }
        for page in pages(gone) {
            let ticket = self.ticket();
            let Phase::Running(running) = &mut self.phase else {
                return;
            };
            let mut commit = running.log.commit();
            commit.room = Room::Frees;
            commit.mutations.extend(page);
            let waiting = Waiting::Foreign(Vec::new(), Vec::new());
            self.hand_out_commit(ticket, commit, None, waiting);
        }
    }
}
