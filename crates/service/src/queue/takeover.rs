//! Entries that other nodes took, and that are delivered here.
//!
//! **Who delivers.** The node that took an entry, at once. When there has been no stream to it for [`takeover_after`](super::Config), the
//! first of the others that are linked with each other, by their ids, takes over what it has the body of; the second after twice the time, and so on.
//! So in a whole network nobody does another's work. An entry that its node does not finish, although it is linked (its disk takes no writes, its
//! copy of the account stalls), is taken over after [`OLD_TIMES`] times as long.
//!
//! **What nobody can deliver.** The node that took an entry is gone for good, with the only copy of its body: no other confirmed it, so none was
//! waited for or its sender was not told that it is accepted. Whoever lacks the body forgets the entry, when it has been linked with all members for
//! longer than any of them would have taken to take over. That is no operation: if one has the body after all, it delivers.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use whimbrel_crdt::{PartitionId, mutants::broken};
use whimbrel_mailbox::EntryId;
use whimbrel_replication::members::ends_in;
use whimbrel_storage::Room;

use super::{
    Phase, QueueOwner, Waiting,
    remote_batches::Other,
    rows::{Taken, entry_key, entry_of_row, without},
};
use crate::machine::{Note, Now, Output, Ticket};

/// Entries of other nodes that are taken over at once: a node that dies may leave thousands.
const ADOPTED_MAX: usize = 64;

/// An entry that its node does not finish is taken over after so many times the usual time.
const OLD_TIMES: u64 = 10;

impl QueueOwner {
    pub(super) fn takeover_micros(&self) -> u64 {
        self.config.takeover_after_seconds * 1_000_000
    }

    pub(super) fn look_later(&mut self, now: Now) {
        if !self.others.is_empty() && self.look_at.is_none() {
            let pause = (self.takeover_micros() / 4).max(1_000_000);
            self.look_at = Some(now.mono_micros + pause);
        }
    }

    /// Takes over entries of nodes that have been away for long enough.
    pub(super) fn look(&mut self, now: Now) {
        // After a start, too, at which nobody else may be left.
        self.look_around(now);
        let mut room = self.room(now);
        let (mut due, mut given_up) = (Vec::new(), Vec::new());
        let Phase::Running(running) = &self.phase else {
            return;
        };
        let applied = running.log.applied();
        let under_way: BTreeSet<EntryId> = self.adopting.values().copied().collect();
        let after = self.takeover_micros();
        // Of who took it only a part of a state had come when its log was closed below that: nobody has the operation.
        let ends = ends_in(&self.closed, PartitionId::QUEUE);
        let is_beyond = |taken: Taken| {
            let end = ends.get(&taken.by).zip(taken.number);
            end.is_some_and(|(end, number)| *end < number)
        };
        for (id, other) in &self.others {
            // A state brought it that is not joined: *finish* would go out before *take* has come in.
            let is_ahead = other.taken.is_in(applied) == Some(false);
            if under_way.contains(id) || is_ahead && !is_beyond(other.taken) {
                continue;
            }
            if self.missing_blobs.contains_key(&other.blob) {
                if given_up.len() < ADOPTED_MAX && self.is_hopeless(now, other) {
                    given_up.push(*id);
                }
                continue;
            }
            // How many come before us.
            let before = self.links.iter();
            let before = before.filter(|peer| **peer != other.taken.by);
            let before = before.filter(|peer| **peer < self.config.origin).count() as u64;
            let since = |at: u64| now.mono_micros.saturating_sub(at);
            let away = match self.links.contains(&other.taken.by) {
                true => 0,
                // Of before the start nothing is known.
                false => since(
                    self.gone
                        .get(&other.taken.by)
                        .copied()
                        .unwrap_or(0)
                        .max(other.since),
                ),
            };
            let waited = away.max(since(other.since) / OLD_TIMES);
            if room > 0 && waited >= after * (before + 1) && !broken("nobody-takes-over") {
                due.push(*id);
                room -= 1;
            }
        }
        for id in given_up {
            self.forget(id);
        }
        for id in due {
            let (ticket, key) = (self.ticket(), entry_key(id));
            self.adopting.insert(ticket, id);
            self.out.push_back(Output::Load {
                ticket,
                partition: PartitionId::QUEUE,
                to: [&key[..], &[0]].concat(),
                from: key.into(),
            });
        }
        self.look_later(now);
    }

    /// How many more may be taken over now.
    ///
    /// Those that have been tried for [`Limits::retry_after_seconds`](super::Limits) are not waited for: of two nodes the one that is left delivers
    /// all, and none is finished before the other is back, or removed. They wait in memory as what is accepted here does, in half of its room.
    fn room(&self, now: Now) -> usize {
        let limits = &self.config.limits;
        let patience = limits.retry_after_seconds * 1_000_000;
        let (mut count, mut bytes, mut new) = (0, 0, self.adopting.len());
        for of in self.entries.values().filter(|of| of.accepted.is_none()) {
            count += 1;
            bytes += of.bytes;
            let tried = of.first_handed_out;
            new += usize::from(now.mono_micros.saturating_sub(tried) < patience);
        }
        if bytes > limits.bytes_max / 2 {
            return 0;
        }
        let at_all = (limits.entries_max / 2).saturating_sub(count + self.adopting.len());
        ADOPTED_MAX.saturating_sub(new).min(at_all)
    }

    /// Looks whether all members are linked.
    pub(super) fn look_around(&mut self, now: Now) {
        self.complete_since = match self.config.peers.is_subset(&self.links) {
            true => self.complete_since.or(Some(now.mono_micros)),
            false => None,
        };
    }

    /// Whether an entry whose body is not here will never be delivered, by anybody.
    fn is_hopeless(&self, now: Now, other: &Other) -> bool {
        let Some(complete_since) = self.complete_since else {
            return false;
        };
        // All of them in turn might have taken it over.
        let turns = OLD_TIMES + self.config.peers.len() as u64;
        let waited = now
            .mono_micros
            .saturating_sub(complete_since.max(other.since));
        // No member any more: of its log there is no more than is here.
        let is_lost = !self.config.peers.contains(&other.taken.by);
        is_lost && other.durable && waited >= self.takeover_micros() * turns
    }

    fn forget(&mut self, id: EntryId) {
        let ticket = self.ticket();
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        if running.failed {
            return;
        }
        let Some(other) = self.others.remove(&id) else {
            return;
        };
        self.missing_blobs.remove(&other.blob);
        self.forwarding.close(id);
        let mut commit = running.log.commit();
        commit.room = Room::Frees;
        commit.mutations.extend(without(id, &other.blob));
        running.under_way.insert(ticket);
        self.commits.insert(ticket, Waiting::Forget(id));
        self.out.push_back(Output::Commit(ticket, commit));
        self.out.push_back(Output::Log(Note::Warning(format!(
            "queue entry {id} is given up: the node that took it is gone for good, and no other has its body"
        ))));
    }

    /// The row of an entry that is taken over was read.
    pub(super) fn adopted(&mut self, now: Now, ticket: Ticket, rows: Vec<(Vec<u8>, Bytes)>) {
        if self.read_to_make(ticket, &rows) {
            return;
        }
        let Some(id) = self.adopting.remove(&ticket) else {
            return;
        };
        let Some((key, row)) = rows.into_iter().next() else {
            return;
        };
        // It may have been finished meanwhile.
        if !self.others.contains_key(&id) {
            return;
        }
        if let Some((entry, taken)) = entry_of_row(&key, &row) {
            self.others.remove(&id);
            self.out.push_back(Output::Log(Note::Warning(format!(
                "queue entry {id} was taken by a node that is away: it is delivered here"
            ))));
            let blob = entry.blob;
            self.insert(Arc::new(entry), row.len(), None, taken);
            self.hand_out(now, id);
            for peer in self.links.clone() {
                self.tell_of(peer, blob, true);
            }
        }
    }
}
