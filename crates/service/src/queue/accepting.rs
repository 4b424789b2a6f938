//! How an entry is accepted: alone when it is on this disk, in a cluster when enough others have it.

use std::{collections::BTreeSet, sync::Arc};

use whimbrel_crdt::{Incarnation, PartitionId, mutants::broken};
use whimbrel_mailbox::BlobName;
use whimbrel_replication::waits::{self, Refused};
use whimbrel_storage::{COMMIT_BYTES_MAX, Commit, Mutation, Room};

use super::{
    Phase, Provisional, QueueOwner, Waiting,
    rows::{Op, Taken, named, row_of_entry, section, with, without},
};
use crate::{
    api::{Call, Entry, Failure, Reply},
    log,
    machine::{Now, Output, RequestId},
    peers::{OnDurable, clocks, on_wire},
};

/// What is left of a commit for what stands beside an entry: its row is in it twice, in the log and by itself.
const COMMIT_SPARE_BYTES: usize = 64 << 10;

impl QueueOwner {
    pub(super) fn call(&mut self, now: Now, request: RequestId, call: Call) {
        match &self.phase {
            Phase::Running(running) if !running.failed => {}
            Phase::Loading(loading) if loading.failed => {
                let reply = Reply::Failed(Failure::Temporary);
                return self.out.push_back(Output::Reply(request, reply));
            }
            _ => return self.calls.push_back((request, call)),
        }
        let Call::Accept(entry) = call else {
            return self.out.push_back(Output::Fatal(
                "a call that is not the queue's was routed to it".into(),
            ));
        };
        let answer = if self.config.peers.is_empty() {
            self.accept(request, entry)
        } else {
            self.take(now, request, entry)
        };
        if let Err(failure) = answer {
            self.out
                .push_back(Output::Reply(request, Reply::Failed(failure)));
        }
    }

    fn has_room(&self, bytes: usize) -> Result<(), Failure> {
        let limits = &self.config.limits;
        let full = self.entries.len() + self.accepting >= limits.entries_max
            || self.bytes + bytes > limits.bytes_max;
        match full {
            true => Err(Failure::Storage),
            false => Ok(()),
        }
    }

    /// Alone.
    fn accept(&mut self, request: RequestId, entry: Entry) -> Result<(), Failure> {
        let row = row_of_entry(&entry, None);
        let bytes = row.len();
        self.has_room(bytes)?;
        self.bytes += bytes;
        let mut commit = Commit::new(log::store_partition(PartitionId::QUEUE));
        commit.follows = self.has_commits_under_way();
        commit.mutations.extend(with(entry.id, &entry.blob, row));
        let ticket = self.ticket();
        self.accepting += 1;
        self.commits
            .insert(ticket, Waiting::Accept(request, Arc::new(entry), bytes));
        self.out.push_back(Output::Commit(ticket, commit));
        Ok(())
    }

    /// In a cluster.
    fn take(&mut self, now: Now, request: RequestId, entry: Entry) -> Result<(), Failure> {
        if !self.stamps.is_right(now) {
            return Err(Failure::Clock);
        }
        let needed = self.needed();
        let Phase::Running(running) = &mut self.phase else {
            return Err(Failure::Temporary);
        };
        if running.shipping.is_held_back(now, &running.log) {
            return Err(Failure::Clock);
        }
        if needed > 0 {
            let greeted = |peer: &&Incarnation| running.shipping.is_greeted(**peer);
            let reachable = self.links.iter().filter(greeted).count();
            let may = self.waits.check(needed, reachable);
            may.map_err(|refused| match refused {
                Refused::TooFew { .. } => Failure::TooFewNodes,
                Refused::TooMany => Failure::Storage,
            })?;
        }
        let by = self.config.origin;
        let row = row_of_entry(&entry, Some(Taken { by, number: None }));
        let number = Some(running.log.next());
        let kept = row_of_entry(&entry, Some(Taken { by, number }));
        let bytes = row.len();
        self.has_room(bytes)?;
        if 2 * bytes + COMMIT_SPARE_BYTES > COMMIT_BYTES_MAX {
            return Err(Failure::Limit("too many recipients for one message"));
        }
        let op = Op::Take {
            id: entry.id,
            row: row.to_vec(),
        };
        let mutations = with(entry.id, &entry.blob, kept).into();
        // Before anything of it can be delivered, here or elsewhere.
        self.out.push_back(Output::Unfinished(entry.id));
        let number = self.say(now, &op, Some(&entry.blob), mutations, false, Waiting::Take);
        if needed > 0 {
            let blobs = BTreeSet::from([on_wire(&entry.blob)]);
            self.waits.begin(clocks(now), number, needed, blobs);
        }
        self.bytes += bytes;
        self.accepting += 1;
        self.holders.insert(entry.id, BTreeSet::new());
        self.provisional.insert(
            number,
            Provisional {
                request,
                entry: Arc::new(entry),
                bytes,
                needed,
                durable: false,
            },
        );
        Ok(())
    }

    /// Writes an operation into our log, with what it changes here. Gives its number.
    pub(super) fn say(
        &mut self,
        now: Now,
        op: &Op,
        blob: Option<&BlobName>,
        mutations: Vec<Mutation>,
        lazy: bool,
        waiting: impl FnOnce(u64) -> Waiting,
    ) -> u64 {
        let ticket = self.ticket();
        let Phase::Running(running) = &mut self.phase else {
            unreachable!("nothing is said before the rows are read");
        };
        let reserved = running.log.reserve(self.stamps.stamp(now), 1);
        let blobs = blob.map(named).into_iter().collect();
        let (_, mut commit) = running.log.seal(&reserved, vec![section(op)], blobs);
        commit.mutations.extend(mutations);
        commit.lazy = lazy;
        if !matches!(op, Op::Take { .. }) {
            commit.room = Room::Frees;
        }
        let then = OnDurable::own(&commit, running.log.hash());
        running.shipping.committing(ticket, then);
        running.under_way.insert(ticket);
        self.commits.insert(ticket, waiting(reserved.first));
        self.out.push_back(Output::Commit(ticket, commit));
        reserved.first
    }

    /// What other nodes have by now.
    pub(super) fn resolve(&mut self, now: Now, outcomes: Vec<waits::Outcome>) {
        for outcome in outcomes {
            match outcome {
                waits::Outcome::Enough(number) => self.count(now, number),
                waits::Outcome::Abort(number) => self.give_up(now, number),
            }
        }
    }

    /// A provisional entry counts.
    pub(super) fn count(&mut self, now: Now, number: u64) {
        let Some(of) = self.provisional.remove(&number) else {
            return;
        };
        self.accepting -= 1;
        self.bytes -= of.bytes;
        self.out.push_back(Output::Reply(of.request, Reply::Done));
        let id = of.entry.id;
        let taken = self.taken_here(number);
        self.insert(of.entry, of.bytes, Some(now.mono_micros), Some(taken));
        self.hand_out(now, id);
    }

    pub(super) fn taken_here(&self, number: u64) -> Taken {
        Taken {
            by: self.config.origin,
            number: Some(number),
        }
    }

    /// Too few nodes have it in time.
    fn give_up(&mut self, now: Now, number: u64) {
        let is_writable = matches!(&self.phase, Phase::Running(running) if !running.failed);
        let Some(of) = self.provisional.remove(&number) else {
            return;
        };
        self.accepting -= 1;
        self.bytes -= of.bytes;
        if !is_writable || broken("abort-not-logged") {
            // The disk is full, so no abort can be logged. The entry stays and is delivered: its row is on disk, and is read again, or was.
            let taken = self.taken_here(number);
            self.insert(of.entry, of.bytes, None, Some(taken));
            let reply = Reply::Failed(Failure::NotConfirmed);
            return self.out.push_back(Output::Reply(of.request, reply));
        }
        let id = of.entry.id;
        let mutations = without(id, &of.entry.blob).into();
        let waiting = |_| Waiting::Close(id, Some(of.request));
        self.say(now, &Op::Abort { id }, None, mutations, false, waiting);
    }
}
