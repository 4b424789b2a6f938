//! What was asked of the store and is not answered yet, by ticket: rows of a partition or an account, logs, pages of rows, snapshots.
//!
//! What a partition has asked is forgotten with it: an answer that comes later is of no use to anybody.

use std::collections::BTreeMap;

use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::AccountId;
use whimbrel_replication::partition::Ticket as Asked;

use super::{keys::partition_of, outbox::Outbox, snapshot::Paging};
use crate::{
    machine::{Output, Ticket},
    peers::{PeerOutput, log_reads::LogReads},
};

/// What a scan of rows is for.
#[derive(Clone, Copy)]
pub(super) enum Load {
    /// The rows of the partition itself.
    Position(PartitionId),
    /// Where its logs stand.
    Logs(PartitionId),
    Rows(AccountId),
    /// What is held for a stalled account.
    Held(AccountId),
    Purge(AccountId),
    /// Of what may be a second copy of sent mail.
    Twin,
}

impl Load {
    /// Whether it is forgotten with the partition. The search for a second copy looks its account up again, and finds it or not.
    fn is_of(&self, partition: PartitionId) -> bool {
        match self {
            Load::Position(id) | Load::Logs(id) => *id == partition,
            Load::Rows(account) | Load::Held(account) | Load::Purge(account) => {
                partition_of(*account) == partition
            }
            Load::Twin => false,
        }
    }
}

/// Rows that are read page by page.
pub(super) struct Page {
    pub(super) partition: PartitionId,
    pub(super) of: Paging,
}

/// Rows of a partition that are fixed for a peer.
pub(super) struct Fix {
    pub(super) partition: PartitionId,
    pub(super) asked: Asked,
}

/// What cannot be read.
pub(super) enum Failed {
    Load(Load),
    Fix(Fix),
    Page(Page),
    /// It is kept, to be asked again ([`LogReads::again`]).
    Log(PartitionId),
}

#[derive(Default)]
pub(super) struct StoreReads {
    loads: BTreeMap<Ticket, Load>,
    logs: LogReads,
    pages: BTreeMap<Ticket, Page>,
    fixes: BTreeMap<Ticket, Fix>,
}

impl StoreReads {
    // --- Asking --------------------------------------------------------------------------------------------------------

    /// Scans rows from a first key to the first one that is not wanted.
    pub(super) fn rows(
        &mut self,
        out: &mut Outbox,
        load: Load,
        partition: PartitionId,
        (from, to): (Vec<u8>, Vec<u8>),
    ) -> Ticket {
        let ticket = out.ticket();
        self.loads.insert(ticket, load);
        out.push(Output::Load {
            ticket,
            partition,
            from,
            to,
        });
        ticket
    }

    /// Asks where the logs of a partition stand.
    pub(super) fn log_ends(&mut self, out: &mut Outbox, partition: PartitionId) {
        let ticket = out.ticket();
        self.loads.insert(ticket, Load::Logs(partition));
        out.peer(PeerOutput::LoadLogs { ticket, partition });
    }

    /// Logs that are read for machines of partitions.
    pub(super) fn logs(&mut self) -> &mut LogReads {
        &mut self.logs
    }

    /// Reads one page of rows, of those that were fixed under a name or as they are.
    pub(super) fn page(
        &mut self,
        out: &mut Outbox,
        page: Page,
        state: Option<u64>,
        (from, to): (Vec<u8>, Vec<u8>),
        bytes_max: usize,
    ) -> Ticket {
        let ticket = out.ticket();
        let partition = page.partition;
        self.pages.insert(ticket, page);
        out.peer(PeerOutput::ReadRows {
            ticket,
            partition,
            state,
            from,
            to,
            bytes_max,
        });
        ticket
    }

    /// Has the rows of a partition fixed.
    pub(super) fn fix(&mut self, out: &mut Outbox, fix: Fix) {
        let ticket = out.ticket();
        let partition = fix.partition;
        self.fixes.insert(ticket, fix);
        out.peer(PeerOutput::Snapshot { ticket, partition });
    }

    // --- Answers -------------------------------------------------------------------------------------------------------

    /// What came is of this scan; the last of it, if `done`.
    pub(super) fn loaded(&mut self, ticket: Ticket, done: bool) -> Option<Load> {
        // Where logs stand is answered otherwise.
        let load = *self.loads.get(&ticket)?;
        if done && !matches!(load, Load::Logs(_)) {
            self.loads.remove(&ticket);
        }
        Some(load)
    }

    /// A scan is answered, or nothing more of it is wanted.
    pub(super) fn end(&mut self, ticket: Ticket) {
        self.loads.remove(&ticket);
    }

    /// Where the logs stand is known.
    pub(super) fn log_ends_found(&mut self, ticket: Ticket) -> Option<PartitionId> {
        match self.loads.remove(&ticket) {
            Some(Load::Logs(partition)) => Some(partition),
            _ => None,
        }
    }

    pub(super) fn page_came(&mut self, ticket: Ticket) -> Option<Page> {
        self.pages.remove(&ticket)
    }

    pub(super) fn fixed(&mut self, ticket: Ticket) -> Option<Fix> {
        self.fixes.remove(&ticket)
    }

    /// Reading has failed. `None`: what was asked is forgotten.
    pub(super) fn failed(&mut self, ticket: Ticket) -> Option<Failed> {
        if let Some(load) = self.loads.remove(&ticket) {
            return Some(Failed::Load(load));
        }
        if let Some(fix) = self.fixes.remove(&ticket) {
            return Some(Failed::Fix(fix));
        }
        if let Some(page) = self.pages.remove(&ticket) {
            return Some(Failed::Page(page));
        }
        self.logs.failed(ticket).map(Failed::Log)
    }

    // --- Forgetting ----------------------------------------------------------------------------------------------------

    /// The partition is read anew, or gone.
    pub(super) fn forget(&mut self, partition: PartitionId) {
        self.pages.retain(|_, page| page.partition != partition);
        self.fixes.retain(|_, fix| fix.partition != partition);
        self.logs.forget(partition);
        self.loads.retain(|_, load| !load.is_of(partition));
    }

    /// What is being read to load accounts of the partition is of before.
    pub(super) fn forget_accounts(&mut self, partition: PartitionId) {
        self.loads.retain(|_, load| {
            !matches!(load, Load::Rows(_) | Load::Held(_)) || !load.is_of(partition)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::joining;

    const HERE: PartitionId = PartitionId::accounts(7);
    const ELSEWHERE: PartitionId = PartitionId::accounts(8);

    fn page(partition: PartitionId) -> Page {
        let of = Paging::Join(joining::Paging::Next);
        Page { partition, of }
    }

    fn range() -> (Vec<u8>, Vec<u8>) {
        (vec![0], vec![1])
    }

    #[test]
    fn what_a_partition_asked_is_forgotten_with_it() {
        let (mut reads, mut out) = (StoreReads::default(), Outbox::default());
        let tickets = [HERE, ELSEWHERE].map(|partition| {
            let rows = reads.rows(&mut out, Load::Position(partition), partition, range());
            let page = reads.page(&mut out, page(partition), None, range(), 1);
            (rows, page)
        });
        reads.forget(HERE);
        let [(rows, page), (others_rows, others_page)] = tickets;
        assert!(reads.loaded(rows, true).is_none() && reads.page_came(page).is_none());
        assert!(reads.loaded(others_rows, true).is_some());
        assert!(matches!(reads.failed(others_page), Some(Failed::Page(_))));
        assert!(reads.failed(others_page).is_none());
    }
}
