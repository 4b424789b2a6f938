//! What is said about a tuple waits until it is durable.
//!
//! Memory runs ahead of the disk. For each tuple one write is under way at most; whatever is to be said of a tuple that differs from its record on the
//! disk waits here, and is made from what is durable then.

use bytes::Bytes;

use super::{Queue, peers::Statement};
use crate::{
    api::{Change, Output, Refusal},
    frame::{Delete, Deleted, Know, Knowledge, Record, Store},
    mutants::broken,
    table::{Flag, Row},
    types::{Id, Node, Nodes, Ownership, Version},
};

/// A write that the disk has refused is tried again after so long.
const RETRY_MICROS: u64 = 1_000_000;

/// Payloads that are read at a time, to be sent again.
const READS_MAX: usize = 64;

/// Something to be said to a node, or done, about a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Say {
    /// It is held.
    Stored,
    /// What is known of it; the number of the question.
    Know(u32),
    /// The node is to hold it; what it lacks it says.
    Store,
    /// The node is to have it with its payload.
    Load,
    /// The node is no owner any more and may drop it.
    Leave,
    /// It is finished.
    Finish,
    /// The copy is gone.
    Deleted(bool, Version),
    /// What was done of it.
    Progress,
    /// This node acts on it from now on.
    Act,
}

/// What is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Writing {
    /// A tuple; with its payload, or not.
    Tuple(bool),
    Tombstone,
    Remove,
}

/// A tuple that differs from its record on the disk, or is being written.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Busy {
    writing: Option<Writing>,
    dirty: bool,
    /// The disk has refused it and is asked again then.
    retry_at: Option<u64>,
    /// Of a tuple that is no longer here: its record is still on the disk.
    leftover: bool,
    pub(super) tracked: bool,
    /// The payload of a tuple that is new here, and from whom it came.
    new: Option<(Bytes, Option<Node>)>,
    pub(super) say: Vec<(Node, Say)>,
}

impl Busy {
    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }
}

impl Queue {
    /// The record on the disk is to become what memory holds.
    pub(super) fn touch(&mut self, id: Id) {
        let tracked = self.is_tracked(id);
        let busy = self.busy.entry(id).or_default();
        busy.tracked |= tracked;
        if !busy.dirty {
            busy.dirty = true;
            self.touched.push(id);
        }
    }

    /// A tuple is new here.
    pub(super) fn touch_new(&mut self, id: Id, payload: Bytes, from: Option<Node>) {
        self.touch(id);
        if let Some(busy) = self.busy.get_mut(&id) {
            busy.new = Some((payload, from));
        }
    }

    /// A tuple is no longer here; its record goes.
    pub(super) fn touch_gone(&mut self, id: Id, row: &Row, tracked: bool) {
        self.touch(id);
        let on_disk = row.has(Flag::ON_DISK);
        if let Some(busy) = self.busy.get_mut(&id) {
            busy.tracked |= tracked;
            busy.leftover |= on_disk;
            busy.new = None;
        }
    }

    pub(super) fn is_busy(&self, id: Id) -> bool {
        self.busy.contains_key(&id)
    }

    /// Says something as soon as what is in memory is durable.
    pub(super) fn say(&mut self, to: Node, id: Id, say: Say) {
        if to != self.me && !self.is_linked(to) {
            return;
        }
        let held = matches!(say, Say::Deleted(..)) && self.is_held(id);
        if held && !self.is_busy(id) {
            self.busy.entry(id).or_default();
        }
        let early = match say {
            Say::Stored => broken("stored-before-the-disk"),
            Say::Deleted(..) => broken("deleted-before-the-disk"),
            Say::Store | Say::Act => broken("rewritten-list-sent-before-the-disk"),
            Say::Leave => broken("leave-before-the-disk"),
            Say::Know(_) => broken("known-before-the-disk"),
            _ => false,
        };
        match self.busy.get_mut(&id).filter(|_| !early) {
            Some(busy) if busy.say.contains(&(to, say)) => {}
            Some(busy) => busy.say.push((to, say)),
            None => self.emit(to, id, say),
        }
    }

    /// Has written what differs from the disk.
    pub(super) fn write_touched(&mut self) {
        while let Some(id) = self.touched.pop() {
            self.write(id);
        }
    }

    fn write(&mut self, id: Id) {
        let waits = |busy: &Busy| busy.is_writing() || busy.retry_at.is_some() || !busy.dirty;
        let Some(busy) = self.busy.get(&id).filter(|busy| !waits(busy)) else {
            return;
        };
        let (leftover, new) = (busy.leftover, busy.new.clone());
        let change = if let Some(row) = self.row(id) {
            let in_doubt = row.has(Flag::DOUBT) && !broken("doubt-only-in-memory");
            let record = Record::Tuple {
                ownership: self.ownership(row),
                sent: if broken("sent-only-in-memory") {
                    Nodes::NONE
                } else {
                    row.sent
                },
                life: if in_doubt { 0 } else { self.life },
            };
            let payload = new.as_ref().map(|(payload, _)| payload.clone());
            Some(Change::Tuple(record, payload))
        } else if let Some(tomb) = self.tombs.get(&id) {
            if tomb.unconfirmed.is_empty() {
                tomb.on_disk.then_some(Change::Remove)
            } else if tomb.kept {
                Some(Change::Tombstone(Record::Tombstone {
                    version: tomb.version,
                    holders: tomb.holders,
                    unconfirmed: tomb.unconfirmed,
                    tracked: tomb.tracked,
                }))
            } else {
                None
            }
        } else {
            leftover.then_some(Change::Remove)
        };
        let Some(busy) = self.busy.get_mut(&id) else {
            return;
        };
        busy.dirty = false;
        match change {
            Some(change) => {
                busy.writing = Some(match &change {
                    Change::Tuple(_, payload) => Writing::Tuple(payload.is_some()),
                    Change::Tombstone(_) => Writing::Tombstone,
                    Change::Remove => Writing::Remove,
                });
                let from = new.and_then(|(_, from)| from);
                self.out.push_back(Output::Write { id, change, from });
            }
            None => self.clean(id),
        }
    }

    pub(super) fn on_written(&mut self, id: Id) {
        let Some(busy) = self.busy.get_mut(&id) else {
            return;
        };
        let Some(writing) = busy.writing.take() else {
            return;
        };
        if writing == Writing::Tuple(true) {
            busy.new = None;
        }
        let on_disk = writing != Writing::Remove;
        busy.leftover = on_disk;
        // What was written may have changed meanwhile; then it is written once more.
        let dirty = busy.dirty;
        if let Some(row) = self.row_mut(id) {
            row.set(Flag::ON_DISK, on_disk);
        } else if let Some(tomb) = self.tombs.get_mut(&id) {
            tomb.on_disk = on_disk;
        }
        if dirty {
            self.touched.push(id);
        } else {
            self.clean(id);
        }
    }

    /// Memory and disk are the same: what waited is said.
    fn clean(&mut self, id: Id) {
        if self
            .tombs
            .get(&id)
            .is_some_and(|tomb| tomb.unconfirmed.is_empty())
        {
            self.tombs.remove(&id);
        }
        if self.is_held(id)
            && let Some(busy) = self.busy.get_mut(&id)
            && busy
                .say
                .iter()
                .any(|(_, say)| matches!(say, Say::Deleted(..)))
        {
            // The application still works on it; see `on_released`.
            return;
        }
        let Some(busy) = self.busy.remove(&id) else {
            return;
        };
        self.waiting_written(id);
        for (to, say) in busy.say {
            self.say(to, id, say);
        }
    }

    /// The application works on it for another node.
    fn is_held(&self, id: Id) -> bool {
        self.holding.contains_key(&id) && !broken("deleted-while-delivering")
    }

    /// The application holds a tuple no longer.
    pub(super) fn settled(&mut self, id: Id) {
        let idle = |busy: &Busy| !busy.is_writing() && !busy.dirty && busy.retry_at.is_none();
        if self.busy.get(&id).is_some_and(idle) {
            self.clean(id);
        }
    }

    pub(super) fn on_not_written(&mut self, id: Id) {
        let Some(busy) = self.busy.get_mut(&id).filter(|busy| busy.is_writing()) else {
            return;
        };
        busy.writing = None;
        busy.dirty = true;
        let is_new = self.row(id).is_some_and(|row| !row.has(Flag::ON_DISK));
        if let Some(waiting) = self.waiting.get(&id) {
            self.refuse(waiting.ticket, Refusal::Disk, None);
            self.touched.push(id);
        } else if is_new {
            let says = self.busy.remove(&id).map(|busy| busy.say);
            let _ = self.take_row(id);
            for (to, say) in says.unwrap_or_default() {
                if say == Say::Stored {
                    self.send(to, Statement::NotStored(id));
                } else if to != self.me {
                    self.emit(to, id, say);
                }
            }
        } else if let Some(busy) = self.busy.get_mut(&id) {
            let at = self.now.monotonic + RETRY_MICROS;
            busy.retry_at = Some(at);
            self.retries.insert((at, id));
        }
    }

    pub(super) fn retry_writes(&mut self) {
        while let Some((at, id)) = self.retries.first().copied() {
            if at > self.now.monotonic {
                break;
            }
            self.retries.remove(&(at, id));
            if let Some(busy) = self.busy.get_mut(&id) {
                busy.retry_at = None;
                self.touched.push(id);
            }
        }
    }

    /// What this node says of a tuple that it holds.
    pub(super) fn ownership(&self, row: &Row) -> Ownership {
        Ownership {
            owners: row.owners,
            term: row.term,
            holders: row.holders,
            tracked: self.is_tracked(row.id),
            priority: row.priority,
            not_before: row.not_before,
            progress: self.progress.get(&row.id).cloned().unwrap_or_default(),
        }
    }

    /// Says something now, if it still holds.
    fn emit(&mut self, to: Node, id: Id, say: Say) {
        match say {
            Say::Act => self.plan(id),
            Say::Load => self.load_for(to, id),
            Say::Deleted(finished, version) => {
                let deleted = Deleted {
                    id,
                    finished,
                    version,
                };
                self.send(to, Statement::Deleted(deleted));
            }
            Say::Stored => {
                if let Some(row) = self.row(id)
                    && (!row.has(Flag::DOUBT) || broken("doubt-vouches"))
                {
                    let statement = Statement::Stored(id, row.version());
                    self.send(to, statement);
                }
            }
            Say::Know(round) => self.emit_knowledge(to, id, round),
            Say::Store => {
                let wanted = self.row(id).is_some_and(|row| {
                    row.owners.first() == self.me
                        && row.owners.set().contains(to)
                        && !row.is_confirmed(to)
                        && !row.has(Flag::DOUBT)
                });
                if wanted {
                    // Those that have it already go without its payload; who has not says so.
                    let payload = self.waiting.get(&id).map(|waiting| waiting.payload.clone());
                    self.send_store(to, id, payload);
                }
            }
            Say::Leave => {
                let Some(row) = self.row(id) else {
                    return;
                };
                let all = row.all_confirmed(self.me) || broken("leave-before-all-have-stored");
                let goes = row.owners.first() == self.me
                    && !row.owners.set().contains(to)
                    && row.holders.contains(to)
                    && all;
                if goes && !row.has(Flag::WAITING) {
                    let delete = Delete {
                        id,
                        finished: false,
                        version: row.version(),
                        holders: row.holders,
                    };
                    self.send(to, Statement::Delete(delete));
                }
            }
            Say::Finish => {
                if let Some(tomb) = self.tombs.get(&id) {
                    let delete = Delete {
                        id,
                        finished: true,
                        version: tomb.version,
                        holders: tomb.holders,
                    };
                    self.send(to, Statement::Delete(delete));
                }
            }
            Say::Progress => {
                if self.row(id).is_some()
                    && let Some(progress) = self.progress.get(&id).cloned()
                {
                    self.send(to, Statement::Progress(id, progress));
                }
            }
        }
    }

    fn emit_knowledge(&mut self, to: Node, id: Id, round: u32) {
        if self.tombs.contains_key(&id) {
            self.emit(to, id, Say::Finish);
            return;
        }
        let knowledge = match self.row(id) {
            None => Knowledge::Unknown,
            Some(row) if row.has(Flag::DOUBT) && !broken("doubt-vouches") => Knowledge::Doubt,
            Some(row) => Knowledge::Holds(self.ownership(row)),
        };
        let know = Know {
            id,
            round,
            knowledge,
        };
        self.send(to, Statement::Know(Box::new(know)));
    }

    /// Sends a tuple, or only its list.
    pub(super) fn send_store(&mut self, to: Node, id: Id, payload: Option<Bytes>) {
        if let Some(row) = self.row(id) {
            let store = Store {
                id,
                ownership: self.ownership(row),
                payload,
            };
            self.open_store(to, id);
            self.send(to, Statement::Store(Box::new(store)));
        }
    }

    /// A node is to get the payload of a tuple that is on the disk.
    fn load_for(&mut self, to: Node, id: Id) {
        if let Some(waiting) = self.waiting.get(&id) {
            let payload = waiting.payload.clone();
            self.send_store(to, id, Some(payload));
        } else {
            self.loads.insert((id, to));
        }
    }

    /// Has payloads read, as many as there is room and rate for.
    pub(super) fn read_payloads(&mut self) {
        self.refill_rate();
        while self.reading.len() < READS_MAX
            && self.rate_left > 0
            && let Some((id, to)) = self.loads.pop_first()
        {
            let nodes = self.reading.entry(id).or_default();
            if nodes.is_empty() {
                self.out.push_back(Output::Read(id));
            }
            nodes.insert(to);
        }
    }

    pub(super) fn refill_rate(&mut self) {
        let now = self.now.monotonic;
        let passed = now.saturating_sub(self.rate_at).min(1_000_000);
        let rate = i64::try_from(self.config.repair_rate).unwrap_or(i64::MAX);
        let more = rate.saturating_mul(i64::try_from(passed).unwrap_or(0)) / 1_000_000;
        if more > 0 || passed == 1_000_000 {
            self.rate_at = now;
            self.rate_left = self.rate_left.saturating_add(more).min(rate);
        }
    }

    pub(super) fn on_payload(&mut self, id: Id, payload: Option<&Bytes>) {
        let nodes = self.reading.remove(&id).unwrap_or_default();
        let Some(payload) = payload else {
            return;
        };
        for to in nodes.iter() {
            let wanted = self.row(id).is_some_and(|row| {
                row.owners.first() == self.me
                    && row.owners.set().contains(to)
                    && !row.is_confirmed(to)
            });
            if !wanted || !self.is_linked(to) {
                continue;
            }
            if self.is_busy(id) {
                // Its list is being written: once more, with that.
                self.say(to, id, Say::Load);
                continue;
            }
            let bytes = i64::try_from(payload.len() + 100).unwrap_or(i64::MAX);
            self.rate_left = self.rate_left.saturating_sub(bytes);
            self.send_store(to, id, Some(payload.clone()));
        }
    }

    /// When payloads can be read again, or a refused write is tried again.
    pub(super) fn say_deadline(&self) -> Option<u64> {
        let loads = !self.loads.is_empty() && self.reading.len() < READS_MAX;
        let loads = loads.then(|| {
            let rate = self.config.repair_rate.max(1);
            let missing = u64::try_from(1 - self.rate_left.min(1)).unwrap_or(0);
            self.rate_at + (missing.saturating_mul(1_000_000) / rate).max(1000)
        });
        let retry = self.retries.first().map(|(at, _)| *at);
        [loads, retry].into_iter().flatten().min()
    }
}
