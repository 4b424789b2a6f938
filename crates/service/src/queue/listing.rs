//! What the administrator sees of the queue: page by page, so that a long queue keeps nobody waiting.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::EntryId;
use whimbrel_queue as machine;

use super::{Loads, Phase, QueueOwner, entry_of_payload, rows};
use crate::{
    api::{Failure, QueueCall, QueueEntry, QueuePage, QueueState, Reply},
    machine::{Output, RequestId},
};

/// Entries of one page.
const PAGE_MAX: usize = 100;

/// Pages that are being read.
const PAGES_MAX: usize = 16;

#[derive(Default)]
pub(super) struct Listing {
    pages: BTreeMap<RequestId, QueuePage>,
}

impl QueueOwner {
    pub(super) fn list(&mut self, request: RequestId, call: QueueCall) -> Result<(), Failure> {
        let Phase::Running(queue) = &self.phase else {
            return Err(Failure::Temporary);
        };
        if self.listing.pages.len() >= PAGES_MAX {
            return Err(Failure::Throttled);
        }
        let (ids, next) = match call {
            QueueCall::List { from, limit } => {
                let from = from.map_or(machine::Id::MIN, |from| machine::Id(from.0));
                queue.list(from, limit.clamp(1, PAGE_MAX))
            }
            QueueCall::Show(id) => {
                let id = machine::Id(id.0);
                (queue.get(id).map(|_| id).into_iter().collect(), None)
            }
        };
        let next = next.map(super::entry_id_of);
        let page = QueuePage {
            entries: Vec::new(),
            next,
        };
        let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
            self.out
                .push_back(Output::Reply(request, Reply::Queue(page)));
            return Ok(());
        };
        let from = rows::payload_key(super::entry_id_of(*first)).into();
        let last = rows::payload_key(super::entry_id_of(*last));
        self.listing.pages.insert(request, page);
        let ticket = self.ticket();
        self.loads.insert(ticket, Loads::List(request));
        self.out.push_back(Output::Load {
            ticket,
            partition: PartitionId::QUEUE,
            from,
            to: [&last[..], &[0]].concat(),
        });
        Ok(())
    }

    pub(super) fn listed(&mut self, request: RequestId, rows: Vec<(Vec<u8>, Bytes)>, done: bool) {
        let entries = rows.iter().filter_map(|(key, value)| {
            let Some(rows::Row::Payload(id)) = rows::row_of(key, value) else {
                return None;
            };
            self.listed_entry(id, value)
        });
        let entries: Vec<QueueEntry> = entries.collect();
        if let Some(page) = self.listing.pages.get_mut(&request) {
            page.entries.extend(entries);
        }
        if done && let Some(page) = self.listing.pages.remove(&request) {
            self.out
                .push_back(Output::Reply(request, Reply::Queue(page)));
        }
    }

    pub(super) fn list_failed(&mut self, request: RequestId) {
        if self.listing.pages.remove(&request).is_some() {
            let reply = Reply::Failed(Failure::Temporary);
            self.out.push_back(Output::Reply(request, reply));
        }
    }

    fn listed_entry(&self, id: EntryId, payload: &Bytes) -> Option<QueueEntry> {
        let Phase::Running(queue) = &self.phase else {
            return None;
        };
        let tuple = machine::Id(id.0);
        let ownership = queue.get(tuple)?;
        let entry = entry_of_payload(id, payload)?;
        let name = |node: &machine::Node| match *node == self.me() {
            true => Some(self.config.origin),
            false => self.nodes.get(node).copied(),
        };
        let state = if let Some(pending) = self.acting.entries.get(&id) {
            QueueState::Delivering {
                open: pending.open.iter().copied().collect(),
            }
        } else if queue.acts_on(tuple) {
            QueueState::Waiting {
                not_before_micros: ownership.not_before,
            }
        } else if ownership.owners.first() == self.me() {
            QueueState::Accepting
        } else {
            QueueState::Copy
        };
        Some(QueueEntry {
            id,
            sender: entry.sender,
            size: entry.deliveries.iter().map(|of| of.size).max().unwrap_or(0),
            date: entry.date,
            deliveries: entry
                .deliveries
                .into_iter()
                .map(|of| (of.account, of.target))
                .collect(),
            owners: ownership
                .owners
                .as_slice()
                .iter()
                .filter_map(name)
                .collect(),
            state,
        })
    }
}
