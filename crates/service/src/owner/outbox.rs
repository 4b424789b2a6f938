//! What an owner gives its driver: outputs in their order, tickets for what is asked, and commits under way.
//!
//! Invariants:
//! - Tickets ascend, and none is given twice.
//! - A commit is under way from the moment at which it is given out until the driver says how it ended.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_crdt::PartitionId;
use whimbrel_storage::Commit;

use crate::{
    machine::{Note, Output, Ticket},
    peers::PeerOutput,
};

#[derive(Default)]
pub(super) struct Outbox {
    outputs: VecDeque<Output>,
    commits: BTreeMap<Ticket, PartitionId>,
    last_ticket: u64,
}

impl Outbox {
    /// A ticket greater than all before.
    pub(super) fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    pub(super) fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub(super) fn peer(&mut self, output: PeerOutput) {
        self.push(Output::Peer(output));
    }

    pub(super) fn warn(&mut self, text: String) {
        self.push(Output::Log(Note::Warning(text)));
    }

    pub(super) fn commit(&mut self, ticket: Ticket, partition: PartitionId, commit: Commit) {
        self.commits.insert(ticket, partition);
        self.push(Output::Commit(ticket, commit));
    }

    /// A commit ended, durable or not. Gives its partition; `None`: no such commit is under way.
    pub(super) fn committed(&mut self, ticket: Ticket) -> Option<PartitionId> {
        self.commits.remove(&ticket)
    }

    pub(super) fn is_under_way(&self, commit: Ticket) -> bool {
        self.commits.contains_key(&commit)
    }

    pub(super) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

impl Extend<Output> for Outbox {
    fn extend<T: IntoIterator<Item = Output>>(&mut self, outputs: T) {
        self.outputs.extend(outputs);
    }
}
