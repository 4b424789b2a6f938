//! Handing batches to the owner, in causal order.
//!
//! A batch that can be applied when it arrives is applied in the commit that stores it. All others lie in the log; only the dependencies of each
//! origin's next batch are in memory. When they are met, the batch is read from the log.

use whimbrel_crdt::{Batch, Dot, Incarnation};

use super::{
    Alarm, Entry, Output, Partition, Pending,
    origin::{PAGE_BYTES_MIN, Waiting},
};
use crate::{Now, broken};

/// How often a batch that is stamped ahead is checked again. Its stamp is a time of the wall clock, which gives no deadline on the monotonic clock.
pub(super) const AHEAD_RETRY_MICROS: u64 = 10_000_000;
/// A batch is not held back if its stamp is at most so far above the greatest stamp applied here, whatever the wall clock says: all that this node
/// makes is stamped above that anyway, for example after a snapshot of such a log was joined. A log that runs ahead of the clock goes on by a
/// microsecond for each op.
const ABOVE_MICROS_MAX: u64 = 1_000_000;

impl Partition {
    /// How far the batch is ahead of our wall clock, if too far.
    fn ahead(&self, now: Now, waiting: &Waiting) -> Option<u64> {
        let ahead = waiting.hlc.saturating_sub(now.wall_micros);
        let above = waiting.hlc.saturating_sub(self.hlc);
        let far = ahead > self.config.ahead_micros_max && above > ABOVE_MICROS_MAX;
        (far && !broken("ahead-applied")).then_some(ahead)
    }

    /// Whether this batch, the next one of its origin, can be given to the owner: its dependencies have been, and it is not stamped too far ahead.
    pub(super) fn is_ready(&self, now: Now, origin: Incarnation, waiting: &Waiting) -> bool {
        let met = self.lacks(origin, waiting).is_none();
        (met || broken("applied-early")) && self.ahead(now, waiting).is_none()
    }

    /// The first dependency of this batch that was not given to the owner yet.
    pub(super) fn lacks(&self, origin: Incarnation, waiting: &Waiting) -> Option<Dot> {
        let handed = |other| self.origins.get(&other).map_or(0, |o| o.handed);
        let mut deps = waiting.deps.iter().filter(|(other, _)| *other != origin);
        let (other, number) = deps.find(|(other, number)| handed(*other) < *number)?;
        Some(Dot::new(other, number))
    }

    /// Raises the alarm if the origin's next batch is held back for its stamp.
    pub(super) fn tell_ahead(&mut self, now: Now, id: Incarnation) {
        let Some(waiting) = self.origins.get(&id).and_then(|o| o.head.as_ref()) else {
            return;
        };
        let (first, told) = (waiting.first, waiting.told);
        let Some(micros) = self.ahead(now, waiting).filter(|_| !told) else {
            return;
        };
        if let Some(head) = self.origins.get_mut(&id).and_then(|o| o.head.as_mut()) {
            head.told = true;
        }
        self.out.push_back(Output::Alarm(Alarm::Ahead {
            origin: id,
            first,
            micros,
        }));
    }

    /// Reads on in every log whose next batch can be applied or is not known. `now` is `None` at the start, when no clock is known.
    pub(super) fn read_on(&mut self, now: Option<Now>) {
        let mut due = Vec::new();
        for (id, origin) in &self.origins {
            // A node that came back gets its own earlier batches with a snapshot.
            let waits = origin.handed < origin.stored && !origin.reading && *id != self.me;
            let ready = match (&origin.head, now) {
                (None, _) => true,
                (Some(head), Some(now)) => self.is_ready(now, *id, head),
                (Some(_), None) => false,
            };
            if waits && ready {
                due.push((*id, origin.handed + 1, origin.page_bytes));
            }
        }
        let reading = self.origins.values().filter(|origin| origin.reading);
        let mut budget = self.applying_bytes + reading.map(|o| o.page_bytes).sum::<usize>();
        for (id, from, page_bytes) in due {
            if budget >= self.config.applying_bytes_max {
                return;
            }
            budget += page_bytes;
            if let Some(origin) = self.origins.get_mut(&id) {
                origin.reading = true;
            }
            let ticket = self.ask(Pending::ReadToApply(id, from));
            self.out.push_back(Output::Read {
                ticket,
                origin: id,
                from,
                bytes_max: page_bytes.min(self.config.read_bytes_max),
            });
        }
    }

    pub(super) fn read_to_apply(
        &mut self,
        now: Now,
        id: Incarnation,
        from: u64,
        entries: Vec<Entry>,
    ) {
        let mut all = true;
        let Some(origin) = self.origins.get_mut(&id) else {
            return;
        };
        origin.reading = false;
        if from != origin.handed + 1 || origin.handed >= origin.stored {
            // A snapshot that was joined in the meantime contains these entries, or the log was closed and ends before them.
            return self.read_on(Some(now));
        }
        if entries.first().is_none_or(|e| e.first != origin.handed + 1) {
            let text = format!("the log of {id:?} lacks {}", origin.handed + 1);
            return self.out.push_back(Output::Fatal(text));
        }
        for entry in entries {
            let batch = match Batch::decode(&entry.bytes) {
                Ok(batch) if batch.first == entry.first && batch.origin == id => batch,
                Ok(_) => {
                    let text = format!("the log of {id:?} has another batch at {}", entry.first);
                    return self.out.push_back(Output::Fatal(text));
                }
                Err(error) => return self.out.push_back(Output::Fatal(error.to_string())),
            };
            let mut waiting = Waiting::of(&batch);
            let ready = self.is_ready(now, id, &waiting);
            let full = self.applying_bytes >= self.config.applying_bytes_max;
            let Some(origin) = self.origins.get_mut(&id) else {
                return;
            };
            if !ready || full {
                waiting.told = origin
                    .head
                    .as_ref()
                    .is_some_and(|head| head.first == waiting.first && head.told);
                origin.head = Some(waiting);
                all = false;
                break;
            }
            origin.handed = entry.last;
            origin.head = None;
            self.hlc = self.hlc.max(waiting.hlc);
            let bytes = entry.bytes.len();
            self.applying_bytes += bytes;
            let ticket = self.ask(Pending::Apply {
                origin: id,
                last: entry.last,
                bytes,
            });
            self.out.push_back(Output::Apply {
                ticket,
                batch: Box::new(batch),
            });
        }
        if let Some(origin) = self.origins.get_mut(&id) {
            origin.page_bytes = if all {
                (origin.page_bytes * 2).min(self.config.read_bytes_max)
            } else {
                PAGE_BYTES_MIN
            };
        }
        self.tell_ahead(now, id);
        self.read_on(Some(now));
    }

    /// Whether a batch is held back for its stamp.
    pub(super) fn waits_for_clock(&self) -> bool {
        let mut heads = self.origins.values().filter_map(|o| o.head.as_ref());
        heads.any(|head| head.told)
    }
}
