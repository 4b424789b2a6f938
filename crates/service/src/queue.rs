//! The queue: accepted transactions until every recipient's mailbox has them. One-node form of DESIGN, 5.
//!
//! An entry is accepted when its row is on disk; then its deliveries are handed to the owners of the accounts, which add the
//! message under an id derived from entry, account and target. A crash at any point leads to the deliveries being handed out again, and
//! that changes nothing where they were made. When the last one is durable the row goes; when that is durable no delivery can come
//! again, and the owners are told that the entry is finished.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use minicbor::{Decode, Encode};
use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::{AccountId, BlobName, Date, EntryId, MailboxName, Order};
use whimbrel_storage::{Commit, Mutation};

use crate::{
    api::{Call, Delivery, Entry, Failure, Reply, UploadId},
    figures::Figures,
    log,
    machine::{Input, Machine, Note, Now, Output, RequestId, Ticket},
    owner::blob_name,
};

/// Before the rows of entries.
const ENTRY_ROW: u8 = b'e';
/// Format of a row.
const ROW_VERSION: u8 = 1;

/// What bounds the queue. Keys in `[queue]`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Entries not yet delivered: beyond, senders are told to come back. `queue.entries_max`.
    pub entries_max: usize,
    /// Their envelopes and summaries in memory, in bytes. `queue.bytes_max`.
    pub bytes_max: usize,
    /// After how many seconds a delivery that was not confirmed is handed out again (its account could not be loaded, or the disk was
    /// full). `queue.retry_after`.
    pub retry_after_seconds: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            entries_max: 10_000,
            bytes_max: 64 << 20,
            retry_after_seconds: 10,
        }
    }
}

/// The queue's owner.
pub struct QueueOwner {
    limits: Limits,
    entries: BTreeMap<EntryId, Pending>,
    bytes: usize,
    /// Deliveries handed out.
    deliveries: BTreeMap<Ticket, (EntryId, usize)>,
    commits: BTreeMap<Ticket, Waiting>,
    /// How many of these accept an entry: what is being removed is still among the entries.
    accepting: usize,
    recovery: Option<Recovery>,
    /// When unconfirmed deliveries and failed removals are tried again, on the monotonic clock.
    retry_at: Option<u64>,
    next_ticket: u64,
    out: VecDeque<Output>,
}

struct Pending {
    entry: Arc<Entry>,
    bytes: usize,
    /// Deliveries not confirmed yet.
    open: BTreeSet<usize>,
    /// When it was accepted, on the monotonic clock; `None`: before the start.
    accepted: Option<u64>,
    /// When they were handed out last, on the monotonic clock.
    handed_out: u64,
    removing: bool,
}

/// What a commit was for.
enum Waiting {
    /// With the size of its row.
    Accept(RequestId, Arc<Entry>, usize),
    Remove(EntryId),
}

/// The entries that were there at the start are being read; calls wait.
struct Recovery {
    ticket: Ticket,
    calls: VecDeque<(RequestId, Call)>,
}

impl QueueOwner {
    /// Begins by reading the entries that are there.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let ticket = Ticket(1);
        let load = Output::Load {
            ticket,
            partition: PartitionId::QUEUE,
            from: vec![ENTRY_ROW],
            to: vec![ENTRY_ROW + 1],
        };
        QueueOwner {
            limits,
            entries: BTreeMap::new(),
            bytes: 0,
            deliveries: BTreeMap::new(),
            commits: BTreeMap::new(),
            accepting: 0,
            recovery: Some(Recovery {
                ticket,
                calls: VecDeque::new(),
            }),
            retry_at: None,
            next_ticket: 1,
            out: VecDeque::from([load]),
        }
    }

    /// Entries not yet delivered, each once: for the metrics, and for a shutdown that waits for them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() + self.accepting
    }

    /// Whether nothing is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn recovered(&mut self, now: Now, page: Vec<(Vec<u8>, Bytes)>, done: bool) {
        for (key, row) in page {
            let Some(entry) = entry_of_row(&key, &row) else {
                // It was accepted, so it must not be dropped: someone has to look at it.
                self.out.push_back(Output::Fatal(format!(
                    "queue entry {key:02x?} cannot be read"
                )));
                return;
            };
            self.insert(Arc::new(entry), row.len(), None);
        }
        if !done {
            return;
        }
        let Some(recovery) = self.recovery.take() else {
            return;
        };
        let ids: Vec<EntryId> = self.entries.keys().copied().collect();
        for id in ids {
            self.hand_out(now, id);
        }
        self.out.push_back(Output::QueueRecovered);
        for (request, call) in recovery.calls {
            self.call(request, call);
        }
    }

    fn insert(&mut self, entry: Arc<Entry>, bytes: usize, accepted: Option<u64>) {
        self.bytes += bytes;
        let open = (0..entry.deliveries.len()).collect();
        self.entries.insert(
            entry.id,
            Pending {
                entry,
                bytes,
                open,
                accepted,
                handed_out: 0,
                removing: false,
            },
        );
    }

    fn call(&mut self, request: RequestId, call: Call) {
        let Call::Accept(entry) = call else {
            return self.out.push_back(Output::Fatal(
                "a call that is not the queue's was routed to it".into(),
            ));
        };
        let row = row_of_entry(&entry);
        if self.len() >= self.limits.entries_max || self.bytes + row.len() > self.limits.bytes_max {
            return self
                .out
                .push_back(Output::Reply(request, Reply::Failed(Failure::Storage)));
        }
        let bytes = row.len();
        self.bytes += bytes;
        let mut commit = Commit::new(log::store_partition(PartitionId::QUEUE));
        commit.mutations.push(Mutation::Reference {
            blob: blob_name(&entry.blob),
            holder: holder(entry.id),
        });
        commit.mutations.push(Mutation::Put {
            key: entry_key(entry.id),
            value: row,
        });
        let ticket = self.ticket();
        self.accepting += 1;
        self.commits
            .insert(ticket, Waiting::Accept(request, Arc::new(entry), bytes));
        self.out.push_back(Output::Commit(ticket, commit));
    }

    fn committed(&mut self, now: Now, ticket: Ticket, done: bool) {
        match self.commits.remove(&ticket) {
            None => {}
            Some(Waiting::Accept(request, entry, bytes)) => {
                self.accepting -= 1;
                self.bytes -= bytes;
                if !done {
                    return self
                        .out
                        .push_back(Output::Reply(request, Reply::Failed(Failure::Storage)));
                }
                self.out.push_back(Output::Reply(request, Reply::Done));
                let id = entry.id;
                self.insert(entry, bytes, Some(now.mono_micros));
                self.hand_out(now, id);
            }
            Some(Waiting::Remove(id)) if done => {
                if let Some(pending) = self.entries.remove(&id) {
                    self.bytes -= pending.bytes;
                }
                self.out.push_back(Output::Finished(id));
            }
            Some(Waiting::Remove(id)) => {
                if let Some(pending) = self.entries.get_mut(&id) {
                    pending.removing = false;
                }
                self.retry_later(now);
            }
        }
    }

    fn hand_out(&mut self, now: Now, id: EntryId) {
        let Some(pending) = self.entries.get_mut(&id) else {
            return;
        };
        pending.handed_out = now.mono_micros;
        let (entry, open) = (pending.entry.clone(), pending.open.clone());
        if open.is_empty() {
            return self.remove(id);
        }
        for index in open {
            let ticket = self.ticket();
            self.deliveries.insert(ticket, (id, index));
            self.out.push_back(Output::Deliver {
                ticket,
                entry: entry.clone(),
                index,
            });
        }
        self.retry_later(now);
    }

    fn retry_later(&mut self, now: Now) {
        self.retry_at
            .get_or_insert(now.mono_micros + self.limits.retry_after_seconds * 1_000_000);
    }

    fn delivered(&mut self, now: Now, ticket: Ticket) {
        let Some((id, index)) = self.deliveries.remove(&ticket) else {
            return;
        };
        let Some(pending) = self.entries.get_mut(&id) else {
            return;
        };
        if pending.open.remove(&index)
            && let Some(accepted) = pending.accepted
        {
            let took = now.mono_micros.saturating_sub(accepted);
            self.out.push_back(Output::Log(Note::DeliveryTook(took)));
        }
        if pending.open.is_empty() {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: EntryId) {
        let ticket = self.ticket();
        let Some(pending) = self.entries.get_mut(&id) else {
            return;
        };
        if std::mem::replace(&mut pending.removing, true) {
            return;
        }
        let mut commit = Commit::new(log::store_partition(PartitionId::QUEUE));
        commit.lazy = true;
        commit
            .mutations
            .push(Mutation::Delete { key: entry_key(id) });
        commit.mutations.push(Mutation::Release {
            blob: blob_name(&pending.entry.blob),
            holder: holder(id),
        });
        self.commits.insert(ticket, Waiting::Remove(id));
        self.out.push_back(Output::Commit(ticket, commit));
    }

    /// Hands out again what was not confirmed in time. An owner that has it in hand already answers twice, which is harmless.
    fn retry(&mut self, now: Now) {
        if self.retry_at.is_none_or(|at| at > now.mono_micros) {
            return;
        }
        self.retry_at = None;
        let before = now
            .mono_micros
            .saturating_sub(self.limits.retry_after_seconds * 1_000_000);
        let waiting = self.entries.iter().filter(|(_, pending)| !pending.removing);
        let due: BTreeSet<EntryId> = waiting
            .filter(|(_, pending)| pending.handed_out <= before)
            .map(|(id, _)| *id)
            .collect();
        self.deliveries.retain(|_, (id, _)| !due.contains(id));
        for id in due {
            self.out.push_back(Output::Log(Note::Warning(format!(
                "queue entry {id} is not delivered yet, trying again"
            ))));
            self.hand_out(now, id);
        }
        if !self.entries.is_empty() {
            self.retry_later(now);
        }
    }
}

impl Machine for QueueOwner {
    fn handle(&mut self, now: Now, input: Input) {
        match input {
            Input::Call(request, call) => match &mut self.recovery {
                Some(recovery) => recovery.calls.push_back((request, call)),
                None => self.call(request, call),
            },
            Input::Loaded { ticket, rows, done }
                if self.recovery.as_ref().is_some_and(|r| r.ticket == ticket) =>
            {
                self.recovered(now, rows, done);
            }
            Input::LoadFailed(_, cause) => self
                .out
                .push_back(Output::Fatal(format!("the queue cannot be read: {cause}"))),
            Input::Committed(ticket) => self.committed(now, ticket, true),
            Input::CommitFailed(ticket) => self.committed(now, ticket, false),
            Input::Delivered(ticket) => self.delivered(now, ticket),
            // It stays open and is handed out again.
            Input::NotDelivered(ticket) => {
                self.deliveries.remove(&ticket);
            }
            Input::Time => self.retry(now),
            _ => {}
        }
    }

    fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    fn figures(&self, now: Now) -> Figures {
        let oldest = self
            .entries
            .values()
            .map(|pending| pending.entry.date.seconds);
        let now = i64::try_from(now.wall_seconds()).unwrap_or(i64::MAX);
        let age = oldest.min().map_or(0, |oldest| now.saturating_sub(oldest));
        Figures {
            queue_entries: self.len() as u64,
            queue_bytes: self.bytes as u64,
            queue_oldest_seconds: u64::try_from(age).unwrap_or(0),
            ..Figures::default()
        }
    }

    fn deadline(&self) -> Option<u64> {
        self.retry_at
    }
}

/// The id of the entry for a finished upload: random because the upload's id is, and, but for the order in which both came, unrelated to it
/// for whoever sees only one of them.
#[must_use]
pub fn entry_id(upload: &UploadId) -> EntryId {
    let mut id = [0; 16];
    let derived = blake3::derive_key("whimbrel queue entry v1", upload);
    id.copy_from_slice(&derived[..16]);
    EntryId(Order::of(upload).before(id))
}

fn entry_key(id: EntryId) -> Bytes {
    [&[ENTRY_ROW], &id.0[..]].concat().into()
}

/// The name under which an entry holds its blob.
pub(crate) fn holder(id: EntryId) -> Bytes {
    entry_key(id)
}

#[derive(Encode, Decode)]
struct EntryRow<'a> {
    #[n(0)]
    version: u8,
    #[b(1)]
    sender: &'a str,
    #[n(2)]
    blob: BlobName,
    #[n(3)]
    date: Date,
    #[b(4)]
    deliveries: Vec<DeliveryRow<'a>>,
}

#[derive(Encode, Decode)]
struct DeliveryRow<'a> {
    #[n(0)]
    account: AccountId,
    #[n(1)]
    target: MailboxName,
    #[cbor(b(2), with = "minicbor::bytes")]
    content: &'a [u8],
    #[n(3)]
    size: u32,
    /// Absent but for a sender's own copy.
    #[n(4)]
    sent: Option<bool>,
    /// Absent unless it does not end with CRLF.
    #[n(5)]
    open_end: Option<bool>,
}

fn row_of_entry(entry: &Entry) -> Bytes {
    let deliveries = entry.deliveries.iter().map(|delivery| DeliveryRow {
        account: delivery.account,
        target: delivery.target.clone(),
        content: &delivery.content,
        size: delivery.size,
        sent: delivery.sent.then_some(true),
        open_end: delivery.open_end.then_some(true),
    });
    let row = EntryRow {
        version: ROW_VERSION,
        sender: &entry.sender,
        blob: entry.blob,
        date: entry.date,
        deliveries: deliveries.collect(),
    };
    log::encode(&row).into()
}

pub(crate) fn entry_of_row(key: &[u8], row: &Bytes) -> Option<Entry> {
    let id = EntryId(key.get(1..)?.try_into().ok()?);
    let decoded: EntryRow<'_> = minicbor::decode(row).ok()?;
    if decoded.version != ROW_VERSION {
        return None;
    }
    let deliveries = decoded.deliveries.iter().map(|delivery| Delivery {
        account: delivery.account,
        target: delivery.target.clone(),
        content: row.slice_ref(delivery.content),
        size: delivery.size,
        sent: delivery.sent == Some(true),
        open_end: delivery.open_end == Some(true),
    });
    Some(Entry {
        id,
        sender: decoded.sender.to_owned(),
        blob: decoded.blob,
        date: decoded.date,
        deliveries: deliveries.collect(),
    })
}

/// For fuzzers: a row that can be read is written and read as the same.
pub(crate) fn fuzz_row(row: &Bytes) {
    let key = entry_key(EntryId([1; 16]));
    if let Some(entry) = entry_of_row(&key, row) {
        let held: usize = entry.deliveries.iter().map(|d| d.content.len()).sum();
        assert!(held <= row.len(), "contents are slices of the row");
        let again = entry_of_row(&key, &row_of_entry(&entry));
        assert!(again.is_some_and(|again| row_of_entry(&again) == row_of_entry(&entry)));
    }
}
