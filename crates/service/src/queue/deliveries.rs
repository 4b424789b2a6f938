//! Deliveries of entries on which this node acts: handed to the owners of the accounts, until all are made.
//!
//! From the first of them until every owner has said that none is under way any more, the machine is told that the entry is held. Without that, a
//! delivery that waits at an owner could bring back a message that all nodes have forgotten.
//!
//! A delivery counts when it is durable here and applied at as many other nodes as had to have the entry, which have the body, too. An entry of which
//! nothing is under way any more is put off at once; one that does not come to an end is given back after some time. Both are handed out again behind the
//! others.
//!
//! *Hands* are the entries that are delivered at a time ([`HANDS_MAX`]). An account has at most as many of them as are left: mail that an account cannot
//! take does not keep mail from others. What is beyond is parked, and goes on when the account has taken something.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use whimbrel_crdt::{Incarnation, PartitionId, mutants::broken};
use whimbrel_mailbox::{AccountId, EntryId};
use whimbrel_queue as machine;

use super::{Loads, QueueOwner, entry_of_payload};
use crate::{
    api::Entry,
    machine::{Note, Now, Output, RequiredCopies, Ticket},
    owner::keys::partition_of,
};

/// Entries that are delivered at a time: many, since a delivery waits for disks and for other nodes.
pub(super) const HANDS_MAX: usize = 1000;

/// Parked entries that are remembered, some three megabytes. Others are looked at again with time alone.
const PARKED_MAX: usize = 50_000;

/// Entries that this node delivers, and what is under way of them.
#[derive(Default)]
pub(super) struct Acting {
    pub(super) entries: BTreeMap<EntryId, Pending>,
    /// Bytes of their rows.
    pub(super) bytes: usize,
    /// Deliveries handed out.
    deliveries: BTreeMap<Ticket, (EntryId, usize)>,
    /// Open deliveries of each account.
    of_account: BTreeMap<AccountId, usize>,
    /// Entries for which an account had no hands left.
    parked: BTreeMap<AccountId, BTreeSet<EntryId>>,
    parked_count: usize,
    /// Entries that were put off or parked since it was last told, and the first of them.
    put_off: usize,
    first_put_off: Option<EntryId>,
    /// When entries that have not come to an end are given back, on the monotonic clock.
    pub(super) retry_at: Option<u64>,
    /// How often the machine was told of each entry that it is held.
    held: BTreeMap<EntryId, u32>,
    /// Owners are asked whether deliveries of these are under way: answers that are due, and how often the entry is to be let go then.
    closing: BTreeMap<EntryId, (usize, u32)>,
}

pub(super) struct Pending {
    pub(super) entry: Arc<Entry>,
    bytes: usize,
    /// Deliveries not confirmed yet.
    pub(super) open: BTreeSet<usize>,
    /// Those of them that an owner or another node works on.
    under_way: BTreeSet<usize>,
    /// When it was accepted, on the monotonic clock; `None`: before the start, or by another node.
    accepted: Option<u64>,
    /// When they were handed out, on the monotonic clock.
    handed_out: u64,
    tickets: Vec<Ticket>,
}

impl Acting {
    /// Whether an account has as many hands as are left, when there are so many entries.
    fn has_its_share(&self, account: AccountId, entries: usize) -> bool {
        let own = self.of_account.get(&account).copied().unwrap_or(0);
        own > HANDS_MAX.saturating_sub(entries)
    }

    /// An account whose share keeps the entry from going on, if those of all its open deliveries do.
    fn keeps_back(
        &self,
        entry: &Entry,
        open: &BTreeSet<usize>,
        entries: usize,
    ) -> Option<AccountId> {
        let account = |index: &usize| entry.deliveries.get(*index).map(|of| of.account);
        let mut accounts = open.iter().filter_map(account);
        let first = accounts.clone().next()?;
        let all = accounts.all(|account| self.has_its_share(account, entries));
        (all && !broken("one-account-takes-all-hands")).then_some(first)
    }

    fn count(&mut self, pending: &Pending) {
        for index in &pending.open {
            if let Some(of) = pending.entry.deliveries.get(*index) {
                *self.of_account.entry(of.account).or_default() += 1;
                self.unpark(of.account, pending.entry.id);
            }
        }
    }

    fn count_no_more(&mut self, account: AccountId) {
        if let Some(count) = self.of_account.get_mut(&account) {
            *count -= 1;
            if *count == 0 {
                self.of_account.remove(&account);
            }
        }
    }

    fn park(&mut self, account: AccountId, id: EntryId) {
        let has_room = self.parked_count < PARKED_MAX;
        if has_room && self.parked.entry(account).or_default().insert(id) {
            self.parked_count += 1;
        }
    }

    /// The next entry that waits for hands of an account.
    fn next_parked(&mut self, account: AccountId) -> Option<EntryId> {
        let next = self.parked.get(&account)?.first().copied()?;
        self.unpark(account, next);
        Some(next)
    }

    fn unpark(&mut self, account: AccountId, id: EntryId) {
        if let Some(parked) = self.parked.get_mut(&account) {
            self.parked_count -= usize::from(parked.remove(&id));
            if parked.is_empty() {
                self.parked.remove(&account);
            }
        }
    }
}

impl QueueOwner {
    /// This node is to deliver an entry, with what was done of it already.
    pub(super) fn act(&mut self, now: Now, id: machine::Id, progress: Bytes) {
        let id = super::entry_id_of(id);
        match self.accepting.ready.remove(&id) {
            Some((entry, accepted)) => self.begin(now, entry, &progress, Some(accepted)),
            None if self.is_full() => self.give_back(now, id),
            None => self.load_payload(id, Loads::Act(id, progress)),
        }
    }

    /// Whether what is delivered has as much memory as it may. What is read meanwhile is looked at again when it comes.
    fn is_full(&self) -> bool {
        self.acting.bytes > self.config.limits.bytes_max
    }

    pub(super) fn read_to_act(
        &mut self,
        now: Now,
        id: EntryId,
        progress: &Bytes,
        payload: Option<Bytes>,
    ) {
        let acts = self
            .running()
            .is_some_and(|of| of.acts_on(machine::Id(id.0)));
        if !acts || self.acting.entries.contains_key(&id) {
            return;
        }
        if self.is_full() {
            return self.give_back(now, id);
        }
        match payload.and_then(|payload| entry_of_payload(id, &payload)) {
            Some(entry) => self.begin(now, entry.into(), progress, None),
            None => self.out.push_back(Output::Fatal(format!(
                "the payload of queue entry {id} cannot be read"
            ))),
        }
    }

    fn begin(&mut self, now: Now, entry: Arc<Entry>, progress: &Bytes, accepted: Option<u64>) {
        let id = entry.id;
        let is_made = |index: &usize| {
            let byte = progress.get(index / 8).copied().unwrap_or(0);
            byte & 1 << (index % 8) != 0
        };
        let open = (0..entry.deliveries.len()).filter(|index| !is_made(index));
        let open: BTreeSet<usize> = open.collect();
        if let Some(account) = self
            .acting
            .keeps_back(&entry, &open, self.acting.entries.len() + 1)
        {
            return self.park(now, id, account);
        }
        let contents = entry.deliveries.iter().map(|of| of.content.len() + 128);
        let bytes = contents.sum();
        self.acting.bytes += bytes;
        let pending = Pending {
            under_way: BTreeSet::new(),
            open,
            entry,
            bytes,
            accepted,
            handed_out: now.mono_micros,
            tickets: Vec::new(),
        };
        self.acting.count(&pending);
        self.acting.entries.insert(id, pending);
        self.hold(now, id);
        self.hand_out(now, id);
    }

    fn hand_out(&mut self, now: Now, id: EntryId) {
        let Some(pending) = self.acting.entries.get(&id) else {
            return;
        };
        let (entry, open) = (pending.entry.clone(), pending.open.clone());
        if open.is_empty() {
            return self.done(now, id);
        }
        let mut tickets = Vec::with_capacity(open.len());
        for index in open.iter().copied() {
            let ticket = self.ticket();
            tickets.push(ticket);
            let others = self.others_of(id, partition_of(entry.deliveries[index].account), None);
            self.acting.deliveries.insert(ticket, (id, index));
            self.out.push_back(Output::Deliver {
                ticket,
                entry: entry.clone(),
                index,
                others,
            });
        }
        if let Some(pending) = self.acting.entries.get_mut(&id) {
            pending.tickets = tickets;
            pending.under_way = open;
        }
        self.retry_later(now);
    }

    /// Who else must have a delivery in this partition, which this node makes, or the one that is asked.
    pub(super) fn others_of(
        &self,
        id: EntryId,
        partition: PartitionId,
        asked: Option<Incarnation>,
    ) -> RequiredCopies {
        let holders = &self.config.holders;
        let holds = |peer: &Incarnation| holders.holds(*peer, partition) && Some(*peer) != asked;
        let super::Phase::Running(queue) = &self.phase else {
            return RequiredCopies::default();
        };
        let count = self.config.peers.keys().filter(|peer| holds(peer)).count();
        let stored = queue.stored_at(machine::Id(id.0));
        let stored = stored.iter().filter_map(|node| self.nodes.get(&node));
        let mut nodes: BTreeSet<Incarnation> = stored.copied().filter(holds).collect();
        if asked.is_some() && holders.holds(self.config.origin, partition) {
            // This node has the body, and may take part in the account's partition without having all of it.
            nodes.insert(self.config.origin);
        }
        let needed = self.needed().min(count.max(nodes.len()));
        // Some of them may not get on with the partition: whoever has the delivery counts, if it is not made at once.
        let pending = self.acting.entries.get(&id);
        let is_new = pending.is_some_and(|of| of.accepted.is_some());
        RequiredCopies {
            needed,
            asks: nodes.len() < needed || asked.is_some() || !is_new,
            nodes,
        }
    }

    fn retry_later(&mut self, now: Now) {
        let retry_at = now.mono_micros + self.config.limits.retry_after_seconds * 1_000_000;
        self.acting.retry_at.get_or_insert(retry_at);
    }

    pub(super) fn delivered(&mut self, now: Now, ticket: Ticket) {
        match self.acting.deliveries.remove(&ticket) {
            Some((id, index)) => self.delivery_done(now, id, index),
            None => self.made(ticket, true),
        }
    }

    /// It stays open, and is handed out again.
    pub(super) fn not_delivered(&mut self, now: Now, ticket: Ticket) {
        match self.acting.deliveries.remove(&ticket) {
            Some((id, index)) => self.nobody_delivers(now, id, index),
            None => self.made(ticket, false),
        }
    }

    /// Nothing is done for a delivery at present. When that is so for all that are left of its entry, others have its place.
    pub(super) fn nobody_delivers(&mut self, now: Now, id: EntryId, index: usize) {
        let Some(pending) = self.acting.entries.get_mut(&id) else {
            return;
        };
        pending.under_way.remove(&index);
        if pending.under_way.is_empty() && !broken("failed-deliveries-keep-their-hands") {
            let pause = self.pause(now, id);
            self.put_off(now, id, pause);
        }
    }

    /// For how long an entry is put off, in microseconds: the longer the more there are, so that looking at them again is no load.
    fn pause(&mut self, now: Now, id: EntryId) -> u64 {
        self.retry_later(now);
        let times = 1 + self.acting.put_off / HANDS_MAX;
        self.acting.put_off += 1;
        self.acting.first_put_off.get_or_insert(id);
        let pause = self.config.limits.retry_after_seconds * 1_000_000;
        pause.saturating_mul(u64::try_from(times).unwrap_or(u64::MAX))
    }

    /// An account has too much under way: an entry waits until it has taken something, or until it is time to look again.
    fn park(&mut self, now: Now, id: EntryId, account: AccountId) {
        self.acting.park(account, id);
        let pause = self.pause(now, id);
        self.put_off(now, id, pause);
    }

    /// A delivery cannot be made here: which, if this node acts on its entry.
    pub(super) fn take_delivery(&mut self, ticket: Ticket) -> Option<(EntryId, usize)> {
        self.acting.deliveries.remove(&ticket)
    }

    pub(super) fn delivery_done(&mut self, now: Now, id: EntryId, index: usize) {
        let Some(pending) = self.acting.entries.get_mut(&id) else {
            return;
        };
        pending.under_way.remove(&index);
        let account = pending.entry.deliveries.get(index).map(|of| of.account);
        let was_open = pending.open.remove(&index);
        if was_open && let Some(accepted) = pending.accepted {
            let took = now.mono_micros.saturating_sub(accepted);
            self.out.push_back(Output::Log(Note::DeliveryTook(took)));
        }
        let (is_over, is_idle) = (pending.open.is_empty(), pending.under_way.is_empty());
        if was_open && let Some(account) = account {
            self.acting.count_no_more(account);
        }
        if is_over {
            self.done(now, id);
        } else if is_idle {
            let pause = self.pause(now, id);
            self.put_off(now, id, pause);
        } else {
            self.park_if_kept_back(now, id);
        }
        if was_open && let Some(account) = account {
            self.go_on_with_parked(now, account);
        }
    }

    /// An account has taken something: what was parked for it may go on.
    fn go_on_with_parked(&mut self, now: Now, account: AccountId) {
        while let Some(next) = self.acting.next_parked(account) {
            let id = machine::Id(next.0);
            // Another node may act on it by now.
            if self.running().is_some_and(|queue| queue.acts_on(id)) {
                return self.tell(now, machine::Input::Later(id, now.wall_micros));
            }
        }
    }

    /// What is left of an entry may wait for accounts alone that have their share of the hands.
    fn park_if_kept_back(&mut self, now: Now, id: EntryId) {
        let entries = self.acting.entries.len();
        let pending = self.acting.entries.get(&id);
        let account = pending.and_then(|of| self.acting.keeps_back(&of.entry, &of.open, entries));
        if let Some(account) = account {
            self.park(now, id, account);
        }
    }

    fn done(&mut self, now: Now, id: EntryId) {
        self.drop_pending(id);
        self.tell(now, machine::Input::Done(machine::Id(id.0)));
        self.close(id);
    }

    fn drop_pending(&mut self, id: EntryId) -> Option<Pending> {
        let pending = self.acting.entries.remove(&id)?;
        self.acting.bytes -= pending.bytes;
        for index in &pending.open {
            if let Some(of) = pending.entry.deliveries.get(*index) {
                self.acting.count_no_more(of.account);
            }
        }
        for ticket in &pending.tickets {
            self.acting.deliveries.remove(ticket);
        }
        self.forwarding.take_back(id);
        Some(pending)
    }

    /// Another node acts on it now, or it is done.
    pub(super) fn act_no_more(&mut self, id: machine::Id) {
        let id = super::entry_id_of(id);
        if self.drop_pending(id).is_some() {
            self.close(id);
        }
    }

    /// Gives an entry back that was not delivered for lack of room, or could not be read.
    pub(super) fn give_back(&mut self, now: Now, id: EntryId) {
        self.put_off(now, id, 1_000_000);
    }

    /// Gives an entry back that was not, or not wholly, delivered: after so many microseconds it is handed out again, behind the others.
    fn put_off(&mut self, now: Now, id: EntryId, pause: u64) {
        let pending = self.drop_pending(id);
        let tuple = machine::Id(id.0);
        if let Some(pending) = &pending {
            let count = pending.entry.deliveries.len();
            let made = (0..count).filter(|index| !pending.open.contains(index));
            let mut progress = vec![0_u8; count.div_ceil(8).min(machine::PROGRESS_BYTES_MAX)];
            let mut is_some = false;
            for index in made {
                if let Some(byte) = progress.get_mut(index / 8) {
                    *byte |= 1 << (index % 8);
                    is_some = true;
                }
            }
            if is_some {
                self.tell(now, machine::Input::Progress(tuple, progress.into()));
            }
            self.close(id);
        }
        let at = now.wall_micros + pause;
        self.tell(now, machine::Input::Later(tuple, at));
    }

    /// Gives back what was not confirmed in time.
    pub(super) fn retry(&mut self, now: Now) {
        if self.acting.retry_at.is_none_or(|at| at > now.mono_micros) {
            return;
        }
        self.acting.retry_at = None;
        let patience = self.config.limits.retry_after_seconds * 1_000_000;
        let before = now.mono_micros.saturating_sub(patience);
        let waiting = self.acting.entries.iter();
        let due: Vec<EntryId> = waiting
            .filter(|(_, pending)| pending.handed_out <= before)
            .map(|(id, _)| *id)
            .collect();
        let count = due.len() + std::mem::take(&mut self.acting.put_off);
        let first_put_off = self.acting.first_put_off.take();
        if let Some(first) = due.first().copied().into_iter().chain(first_put_off).min() {
            self.warn(format!(
                "{count} entries of the queue are not delivered yet, here or at as many other nodes as have to have them, trying again; one is {first}"
            ));
        }
        for id in &due {
            self.put_off(now, *id, 0);
        }
        if !self.acting.entries.is_empty() || !due.is_empty() {
            self.retry_later(now);
        }
    }

    // --- What may still be made here -----------------------------------------------------------------------------------

    /// Deliveries of the entry may be made here from now on.
    pub(super) fn hold(&mut self, now: Now, id: EntryId) {
        *self.acting.held.entry(id).or_default() += 1;
        if !broken("deliveries-are-not-held") {
            self.tell(now, machine::Input::Holding(machine::Id(id.0)));
        }
    }

    /// No further delivery of the entry is handed out, unless it is held again. When no owner has one under way, it is let go.
    pub(super) fn close(&mut self, id: EntryId) {
        if self.acting.entries.contains_key(&id) || self.makes(id) {
            return;
        }
        let Some(held) = self.acting.held.remove(&id) else {
            return;
        };
        let closing = self.acting.closing.entry(id).or_default();
        closing.0 += self.config.owners;
        closing.1 += held;
        self.out.push_back(Output::Closing(id));
    }

    /// An owner has none under way.
    pub(super) fn closed(&mut self, now: Now, id: EntryId) {
        let Some(closing) = self.acting.closing.get_mut(&id) else {
            return;
        };
        closing.0 = closing.0.saturating_sub(1);
        if closing.0 > 0 {
            return;
        }
        let count = closing.1;
        self.acting.closing.remove(&id);
        if broken("deliveries-are-not-held") {
            return;
        }
        for _ in 0..count {
            self.tell(now, machine::Input::Released(machine::Id(id.0)));
        }
    }
}
