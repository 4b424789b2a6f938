//! How an entry is accepted: when this node and f others have it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use whimbrel_mailbox::EntryId;
use whimbrel_queue::{self as machine, Refusal, Tuple};
use whimbrel_storage::COMMIT_BYTES_MAX;

use super::{QueueOwner, payload_of_entry};
use crate::{
    api::{Entry, Failure, Reply},
    machine::{Now, Output, RequestId},
};

/// The row of an entry is at most so long: two of them fit into a commit, and one into a frame.
const PAYLOAD_BYTES_MAX: usize = COMMIT_BYTES_MAX * 3 / 8;

/// Entries whose clients wait.
#[derive(Default)]
pub(super) struct Accepting {
    next: machine::Ticket,
    waiting: BTreeMap<machine::Ticket, Waiting>,
    /// When clients are not kept waiting any longer.
    untils: BTreeSet<(u64, machine::Ticket)>,
    /// Bytes of their payloads.
    pub(super) bytes: usize,
    /// Entries that were accepted by the present input, and when they came: they are delivered without being read again.
    pub(super) ready: BTreeMap<EntryId, (Arc<Entry>, u64)>,
}

struct Waiting {
    request: RequestId,
    entry: Arc<Entry>,
    bytes: usize,
    until: u64,
}

impl Accepting {
    pub(super) fn deadline(&self) -> Option<u64> {
        self.untils.first().map(|(until, _)| *until)
    }

    fn take(&mut self, ticket: machine::Ticket) -> Option<Waiting> {
        let of = self.waiting.remove(&ticket)?;
        self.untils.remove(&(of.until, ticket));
        self.bytes -= of.bytes;
        Some(of)
    }
}

impl QueueOwner {
    pub(super) fn accept(
        &mut self,
        now: Now,
        request: RequestId,
        entry: Entry,
    ) -> Result<(), Failure> {
        if !self.stamps.is_right(now) {
            return Err(Failure::Clock);
        }
        let payload = payload_of_entry(&entry);
        let bytes = payload.len();
        if bytes > PAYLOAD_BYTES_MAX {
            return Err(Failure::TooManyRecipients);
        }
        let limits = &self.config.limits;
        // One alone always has room.
        let used = self.accepting.bytes;
        let is_full = used + bytes > limits.bytes_max && used > 0;
        if is_full || self.len() >= limits.entries_max {
            return Err(Failure::Storage);
        }
        let sizes = entry.deliveries.iter().map(|of| u64::from(of.size));
        let id = machine::Id(entry.id.0);
        let tuple = Tuple {
            tracked: true,
            attached: sizes.max().unwrap_or(0),
            ..Tuple::new(id, payload)
        };
        let accepting = &mut self.accepting;
        accepting.next += 1;
        let (ticket, until) = (accepting.next, now.mono_micros + self.config.confirm_micros);
        accepting.bytes += bytes;
        accepting.untils.insert((until, ticket));
        self.bodies.insert(entry.id, entry.blob);
        let waiting = Waiting {
            request,
            entry: Arc::new(entry),
            bytes,
            until,
        };
        accepting.waiting.insert(ticket, waiting);
        let tuples = vec![tuple];
        self.tell(now, machine::Input::Put { ticket, tuples });
        Ok(())
    }

    /// It counts.
    pub(super) fn accepted(&mut self, now: Now, ticket: machine::Ticket) {
        if let Some(of) = self.accepting.take(ticket) {
            self.out.push_back(Output::Reply(of.request, Reply::Done));
            let id = of.entry.id;
            self.accepting.ready.insert(id, (of.entry, now.mono_micros));
        }
    }

    pub(super) fn refused(&mut self, ticket: machine::Ticket, why: Refusal) {
        let Some(of) = self.accepting.take(ticket) else {
            return;
        };
        let id = of.entry.id;
        // What is here, or is about to go, lets go of its body with its row.
        let is_here = self
            .running()
            .is_some_and(|of| of.get(machine::Id(id.0)).is_some());
        let is_nowhere = match why {
            Refusal::Peers | Refusal::Busy | Refusal::Disk => true,
            Refusal::Ids => !is_here,
            Refusal::GivenUp | Refusal::Adopted => false,
        };
        if is_nowhere {
            self.bodies.remove(&id);
        }
        let failure = match why {
            Refusal::Peers => Failure::TooFewNodes,
            Refusal::Busy | Refusal::Disk => Failure::Storage,
            Refusal::GivenUp | Refusal::Adopted => Failure::NotConfirmed,
            Refusal::Ids => Failure::Temporary,
        };
        let reply = Reply::Failed(failure);
        self.out.push_back(Output::Reply(of.request, reply));
    }

    /// Clients that have waited for too long.
    pub(super) fn give_up_late(&mut self, now: Now) {
        while let Some((until, ticket)) = self.accepting.untils.first().copied() {
            if until > now.mono_micros {
                break;
            }
            self.accepting.untils.remove(&(until, ticket));
            self.tell(now, machine::Input::GiveUp(ticket));
        }
    }
}
