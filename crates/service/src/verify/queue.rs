//! The queue's entries, held against its logs.
//!
//! A row says under which number of which log its entry was taken. A batch that is here and takes the entry says the same; if the batch of that
//! number is here, it is one that takes it. What an applied batch has finished or given up has no row. What this node took and nobody has finished
//! has one, as far as the logs say all: none was cut, and all can be read.
//!
//! Nothing is held against rows without a number (accepted alone, or from before it was kept). That rows of other nodes' entries are missing is no
//! fault: what nobody can deliver is forgotten without a word in the logs.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use whimbrel_crdt::{Batch, Incarnation, VersionVector};
use whimbrel_mailbox::EntryId;
use whimbrel_storage::{LogPosition, Origin};

use super::{Fault, Needed};
use crate::{
    log::{OWN_ROWS_END, POSITION_KEY, Position},
    owner::{self, keys},
    queue::{Done, Taken, entry_key, entry_of_row, holder, read, row_of_entry},
};

/// What its rows say; of the logs no more is kept than they leave open.
#[derive(Default)]
pub struct Queue {
    own: Option<Incarnation>,
    applied: VersionVector,
    entries: BTreeMap<EntryId, Entry>,
    logs: Vec<(Origin, LogPosition)>,
    /// Of entries that are not here, if no log was cut: by whom they were taken, as long as nothing that was read finishes them.
    open: BTreeMap<EntryId, Incarnation>,
    /// And what is finished, as long as nothing that was read takes it.
    closed: BTreeSet<EntryId>,
    faults: Vec<Fault>,
}

struct Entry {
    taken: Option<Taken>,
    row: Bytes,
    /// A batch takes it.
    is_taken: bool,
}

impl Queue {
    /// From the rows of the partition, and where its logs stand. Gives also what the entries name.
    #[must_use]
    pub fn new(rows: &[(Vec<u8>, Bytes)], logs: Vec<(Origin, LogPosition)>) -> (Self, Vec<Needed>) {
        let mut needed = Vec::new();
        let mut queue = Queue {
            logs,
            ..Queue::default()
        };
        for (key, row) in rows {
            if key == POSITION_KEY
                && let Ok(position) = minicbor::decode::<Position>(row)
            {
                queue.own = position.origin.map(|own| Incarnation::from_hash(own.get()));
                queue.applied = position.applied;
            }
            if &key[..] < OWN_ROWS_END || keys::is_coming(key) {
                continue;
            }
            let Some((entry, taken)) = entry_of_row(key, row) else {
                let fault = Fault::damage(key.as_slice(), "the entry cannot be read");
                queue.faults.push(fault);
                continue;
            };
            needed.push(Needed {
                key: key.clone(),
                blob: owner::blob_name(&entry.blob),
                holder: holder(entry.id),
            });
            let found = Entry {
                taken: taken.filter(|taken| taken.number.is_some()),
                // As this program writes it.
                row: row_of_entry(&entry, taken),
                is_taken: false,
            };
            queue.entries.insert(entry.id, found);
        }
        (queue, needed)
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A batch that is here, and that [`batch`](super::batch) could read.
    pub fn take(&mut self, batch: &Batch) {
        let is_applied = batch.last() <= self.applied.get(batch.origin);
        let follows = is_applied && self.is_complete();
        for done in read(batch).unwrap_or_default() {
            match done {
                Done::Taken(id, taken, _, row) => {
                    if let Some(found) = self.entries.get_mut(&id) {
                        found.is_taken = true;
                        if found.taken.is_some() && found.row != row {
                            self.fault(id, "the row is not what the log says");
                        }
                    } else if follows && !self.closed.remove(&id) {
                        self.open.insert(id, taken.by);
                    }
                }
                Done::Closed(id) => {
                    if let Some(found) = self.entries.get(&id) {
                        if is_applied && found.taken.is_some() {
                            self.fault(id, "by the log it is finished");
                        }
                    } else if follows && self.open.remove(&id).is_none() {
                        self.closed.insert(id);
                    }
                }
            }
        }
    }

    /// All batches were given that are here; `all`: each could be read.
    #[must_use]
    pub fn end(mut self, all: bool) -> Vec<Fault> {
        if !all {
            return self.faults;
        }
        let is_here = |taken: Taken| {
            let mut logs = self.logs.iter();
            let log = logs.find(|(origin, _)| origin.0 == taken.by.get());
            let number = taken.number.unwrap_or(0);
            log.is_some_and(|(_, log)| (log.low..log.next).contains(&number))
        };
        let entries = self.entries.iter();
        let unannounced = entries.filter(|(_, of)| !of.is_taken && of.taken.is_some_and(is_here));
        for id in unannounced.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.fault(id, "by the log there is no such row");
        }
        for (id, by) in std::mem::take(&mut self.open) {
            if self.own == Some(by) {
                self.fault(id, "by the log there is such a row");
            }
        }
        self.faults
    }

    /// Whether no log was cut.
    fn is_complete(&self) -> bool {
        self.logs.iter().all(|(_, log)| log.low <= 1)
    }

    fn fault(&mut self, id: EntryId, what: &str) {
        self.faults.push(Fault::damage(entry_key(id), what));
    }
}
