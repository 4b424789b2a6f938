//! Putting tuples: chosen peers, acceptance, and peers that are late.

use bytes::Bytes;

use super::{Queue, peers::Statement, say::Say};
use crate::{
    api::{Output, Refusal, Ticket, Tuple},
    frame::Store,
    mutants::broken,
    table::{Flag, Row},
    types::{Id, Node, Nodes, Owners, Ownership},
};

/// What a peer's disk has refused is sent to it again after so long, if there is nobody else.
const RESEND_MICROS: u64 = 10_000_000;

/// So many are remembered; others are found when that peer is linked again.
const RESEND_MAX: usize = 10_000;

/// A tuple that is not accepted yet.
#[derive(Clone, Debug, Hash)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) payload: Bytes,
    /// It is durable here.
    written: bool,
    /// When it was sent to its owners.
    sent_at: u64,
    /// When those that have not answered are replaced.
    late_at: u64,
    /// What is attached takes so much longer.
    attached_micros: u64,
    /// When it was put.
    put_at: u64,
    /// Nodes that have said of any list that they hold it.
    have: Nodes,
}

/// Tuples that are put together.
#[derive(Clone, Debug, Hash)]
pub(super) struct Put {
    ids: Vec<Id>,
    /// How many are not accepted yet.
    left: usize,
}

impl Queue {
    pub(super) fn on_put(&mut self, ticket: Ticket, tuples: Vec<Tuple>) {
        let refusal = self.refusal(ticket, &tuples);
        let count = self.others_needed();
        let peers = match refusal {
            Some(_) => Vec::new(),
            None => self.choose(count, Nodes::NONE),
        };
        let few = peers.len() < count && !broken("takes-with-fewer-peers");
        if let Some(refusal) = refusal.or(few.then_some(Refusal::Peers)) {
            self.counters.refused += 1;
            self.out.push_back(Output::Refused(ticket, refusal));
            return;
        }
        let owners: Owners = std::iter::once(self.me).chain(peers).collect();
        let ids: Vec<Id> = tuples.iter().map(|tuple| tuple.id).collect();
        let left = ids.len();
        self.puts.insert(ticket, Put { ids, left });
        for tuple in tuples {
            self.put(ticket, owners, tuple);
        }
    }

    fn refusal(&self, ticket: Ticket, tuples: &[Tuple]) -> Option<Refusal> {
        let bytes: usize = tuples.iter().map(|tuple| tuple.payload.len()).sum();
        let known = |id: Id| {
            self.row(id).is_some() || self.tombs.contains_key(&id) || self.busy.contains_key(&id)
        };
        let mut ids: Vec<Id> = tuples.iter().map(|tuple| tuple.id).collect();
        ids.sort_unstable();
        let twice = ids.windows(2).any(|pair| pair[0] == pair[1]);
        if ids.is_empty()
            || twice
            || ids.iter().any(|id| known(*id))
            || self.puts.contains_key(&ticket)
        {
            Some(Refusal::Ids)
        } else if self.leaving.is_some() {
            Some(Refusal::Peers)
        } else if self.waiting.len() + tuples.len() > self.config.waiting_max
            || self.waiting_bytes + bytes > self.config.waiting_bytes_max
        {
            Some(Refusal::Busy)
        } else {
            None
        }
    }

    fn put(&mut self, ticket: Ticket, owners: Owners, tuple: Tuple) {
        let (id, now) = (tuple.id, self.now.monotonic);
        let ownership = Ownership {
            owners,
            term: 1,
            holders: owners.set(),
            tracked: tuple.tracked,
            priority: tuple.priority,
            not_before: tuple.not_before,
            progress: Bytes::new(),
        };
        let mut row = Row::new(id, &ownership);
        row.sent = owners.set().without(self.me);
        row.set(Flag::WAITING, true);
        self.insert_row(row, tuple.tracked);
        let attached_micros =
            tuple.attached.saturating_mul(1_000_000) / self.config.repair_rate.max(1);
        let late_at = now + self.late_after(row.sent) + attached_micros;
        self.late.insert((late_at, id));
        self.waiting_bytes += tuple.payload.len();
        let waiting = Waiting {
            ticket,
            payload: tuple.payload.clone(),
            written: false,
            sent_at: now,
            late_at,
            attached_micros,
            put_at: now,
            have: Nodes::NONE,
        };
        self.waiting.insert(id, waiting);
        self.touch_new(id, tuple.payload.clone(), None);
        // The only Store that does not wait for the disk: its receivers and the record that names them are written at the same time.
        for node in row.sent.iter() {
            let store = Store {
                id,
                ownership: ownership.clone(),
                payload: Some(tuple.payload.clone()),
            };
            self.open_store(node, id);
            self.send(node, Statement::Store(Box::new(store)));
        }
    }

    /// The record of a tuple is durable here.
    pub(super) fn waiting_written(&mut self, id: Id) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.written = true;
            self.accept(id);
        }
    }

    /// Accepts a tuple that all its owners hold.
    pub(super) fn accept(&mut self, id: Id) {
        let Some(waiting) = self.waiting.get(&id) else {
            return;
        };
        let Some(row) = self.row(id) else {
            return;
        };
        let mut missing = row.owners.as_slice()[1..]
            .iter()
            .filter(|node| !row.is_confirmed(**node));
        let allowed = usize::from(broken("accepted-by-f-minus-one"));
        let all = missing.by_ref().nth(allowed).is_none();
        let written = waiting.written || broken("accepted-before-the-own-disk");
        if !all || !written || self.is_busy(id) && !broken("accepted-before-the-own-disk") {
            return;
        }
        let ticket = waiting.ticket;
        self.forget_waiting(id);
        let done = self.puts.get_mut(&ticket).is_some_and(|put| {
            put.left -= 1;
            put.left == 0 || broken("ticket-accepted-in-part")
        });
        // Until all of the ticket are safe none is acted on: it may be refused yet.
        if done && let Some(put) = self.puts.remove(&ticket) {
            self.out.push_back(Output::Accepted(ticket));
            put.ids.into_iter().for_each(|id| self.release(id));
        }
    }

    /// A tuple of an accepted ticket is like any other from now on.
    fn release(&mut self, id: Id) {
        let Some(row) = self.row_mut(id).filter(|row| row.has(Flag::WAITING)) else {
            return;
        };
        row.set(Flag::WAITING, false);
        self.counters.accepted += 1;
        self.plan_new(id);
        self.leave_all(id);
    }

    fn forget_waiting(&mut self, id: Id) {
        if let Some(waiting) = self.waiting.remove(&id) {
            self.waiting_bytes = self.waiting_bytes.saturating_sub(waiting.payload.len());
            self.late.remove(&(waiting.late_at, id));
        }
    }

    /// Refuses a ticket: what was put for it goes, wherever it is.
    pub(super) fn refuse(&mut self, ticket: Ticket, why: Refusal, but: Option<Id>) {
        let Some(put) = self.puts.remove(&ticket) else {
            return;
        };
        self.counters.refused += 1;
        self.out.push_back(Output::Refused(ticket, why));
        for id in put.ids {
            if Some(id) == but {
                continue;
            }
            // Those that were accepted before the others go, too: the ticket is one.
            let mine = self
                .row(id)
                .is_some_and(|row| row.owners.first() == self.me);
            self.forget_waiting(id);
            if mine && !broken("given-up-and-kept") {
                self.finish(id);
            }
        }
    }

    /// Another node acts on a tuple that was never accepted here.
    pub(super) fn lost_to_another(&mut self, id: Id) {
        if let Some(waiting) = self.waiting.get(&id) {
            let ticket = waiting.ticket;
            self.forget_waiting(id);
            self.refuse(ticket, Refusal::Adopted, Some(id));
        }
        if let Some(row) = self.row_mut(id) {
            row.set(Flag::WAITING, false);
        }
    }

    /// An owner has answered.
    pub(super) fn waiting_stored(&mut self, node: Node, id: Id) {
        if let Some(waiting) = self.waiting.get(&id) {
            let micros = self.now.monotonic.saturating_sub(waiting.sent_at);
            self.note_answer(node, micros);
            self.accept(id);
        }
    }

    /// A node has said of an older list that it holds a tuple: it was late, and was replaced. Where one that has said nothing yet stands in its place
    /// it is an owner again, so that the first that answer are those that count, however slow all are.
    pub(super) fn waiting_stored_before(&mut self, node: Node, id: Id) {
        let now = self.now.monotonic;
        let Some(waiting) = self.waiting.get_mut(&id) else {
            return;
        };
        waiting.have.insert(node);
        let (have, micros) = (waiting.have, now.saturating_sub(waiting.put_at));
        self.note_answer(node, micros);
        let Some(row) = self.row(id).copied() else {
            return;
        };
        let owners = row.owners.as_slice();
        if owners[0] != self.me || owners.contains(&node) || !self.members.contains(node) {
            return;
        }
        let mut silent = owners[1..].iter().rev();
        let silent = silent.find(|owner| !row.is_confirmed(**owner) && !have.contains(**owner));
        if let Some(silent) = silent {
            let keep = row.owners.set().without(*silent);
            self.rewrite(id, keep, &[node]);
            self.wait_anew(id, keep.with(node), true);
        }
    }

    /// Replaces owners that are late.
    pub(super) fn replace_late(&mut self) {
        while let Some((at, id)) = self.late.first().copied() {
            if at > self.now.monotonic {
                break;
            }
            self.late.remove(&(at, id));
            if !broken("slow-peer-kept") {
                self.replace(id);
            }
        }
    }

    /// A peer is gone: what waits for it goes to another one.
    pub(super) fn replace_in_waiting(&mut self, node: Node) {
        for waiting in self.waiting.values_mut() {
            waiting.have.remove(node);
        }
        let waits = |id: &&Id| {
            let row = self.row(**id);
            row.is_some_and(|row| row.owners.set().contains(node) && !row.is_confirmed(node))
        };
        let ids: Vec<Id> = self.waiting.keys().filter(waits).copied().collect();
        for id in ids {
            self.replace(id);
        }
    }

    /// A peer takes nothing at present: another one gets it, or the same one later.
    pub(super) fn on_not_stored(&mut self, node: Node, id: Id) {
        self.store_over(node, id);
        self.note_refused(node);
        if self.waiting.contains_key(&id) {
            self.replace(id);
            return;
        }
        let Some(row) = self.row(id).copied() else {
            return;
        };
        let owners = row.owners.set();
        if row.owners.first() != self.me || !owners.contains(node) {
            return;
        }
        let others = self.choose(1, owners);
        if others.is_empty() {
            if self.resend.len() < RESEND_MAX {
                let at = self.now.monotonic + RESEND_MICROS;
                self.resend.insert((at, id, node));
            }
        } else {
            self.counters.replaced += 1;
            self.rewrite(id, owners.without(node), &others);
        }
    }

    /// Sends once more what a peer has refused.
    pub(super) fn send_again(&mut self) {
        while let Some((at, id, node)) = self.resend.first().copied() {
            if at > self.now.monotonic {
                break;
            }
            self.resend.remove(&(at, id, node));
            self.say(node, id, Say::Load);
        }
    }

    /// Entrusts a tuple that is not accepted yet to others, in place of those that have not answered.
    fn replace(&mut self, id: Id) {
        let me = self.me;
        let Some(row) = self.row(id).copied() else {
            return;
        };
        if row.owners.first() != me {
            return;
        }
        let owners = row.owners.as_slice().iter().copied();
        let keep: Nodes = owners.filter(|node| row.is_confirmed(*node)).collect();
        let all = row.owners.set().without(me).minus(keep);
        let have = self.waiting.get(&id).map_or(Nodes::NONE, |of| of.have);
        // Those that hold it have only the list to write. If they do not, they are replaced the next time.
        let missing = all.minus(have.both(self.members));
        if missing.is_empty()
            && let Some(waiting) = self.waiting.get_mut(&id)
        {
            waiting.have = Nodes::NONE;
        }
        let keep = row.owners.set().without(me).minus(missing);
        let others = self.choose(missing.len(), row.owners.set());
        let new: Nodes = others.iter().copied().collect();
        if !missing.minus(self.members).is_empty() {
            // There may be fewer members than owners are wanted.
            let stay = keep.union(missing.both(self.members));
            self.rewrite(id, stay, &others);
        } else if !missing.is_empty() && !others.is_empty() {
            self.counters.replaced += 1;
            self.rewrite(id, keep, &others);
        } else {
            // Nobody else is there: one that has refused it may take it now.
            let open = self.stores.get(&id).copied().unwrap_or_default();
            for node in all.minus(open).iter() {
                self.say(node, id, Say::Store);
            }
        }
        self.wait_anew(id, new.union(keep), !new.is_empty());
    }

    /// Owners of a tuple that is not accepted yet are waited for anew; whether some of them are new.
    fn wait_anew(&mut self, id: Id, owners: Nodes, are_new: bool) {
        let now = self.now.monotonic;
        let late = now + self.late_after(owners).max(1);
        let Some(waiting) = self.waiting.get_mut(&id) else {
            return;
        };
        self.late.remove(&(waiting.late_at, id));
        let late = late + waiting.attached_micros;
        waiting.late_at = late;
        if are_new {
            waiting.sent_at = now;
        }
        self.late.insert((late, id));
    }

    /// Writes a new list of owners: this node, those that are kept in their order, these new ones, and of the former ones as many as there is room for.
    pub(super) fn rewrite(&mut self, id: Id, keep: Nodes, new: &[Node]) {
        let (me, count) = (self.me, self.others_needed() + 1);
        let members = self.members;
        let Some(row) = self.row_mut(id) else {
            return;
        };
        let former: Vec<Node> = row.owners.as_slice().to_vec();
        let kept = former.iter().copied().filter(|node| keep.contains(*node));
        let mut owners: Owners = std::iter::once(me)
            .chain(kept)
            .chain(new.iter().copied())
            .take(count)
            .collect();
        for node in former {
            if owners.len() < count && members.contains(node) {
                owners.push(node);
            }
        }
        row.owners = owners;
        if !broken("rewritten-with-the-same-term") {
            row.term += 1;
        }
        row.stored = 0;
        if !broken("new-owners-are-no-holders") {
            row.holders = row.holders.union(owners.set());
        }
        self.act_and_store(id);
    }
}
