//! Logs that are read for the machines of partitions. A read that has failed is kept, to be asked again.

use std::collections::BTreeMap;

use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_replication::partition::Ticket as Asked;

use super::PeerOutput;
use crate::machine::{Output, Ticket};

/// What a partition's machine wants of a log.
pub(crate) struct LogRead {
    pub(crate) partition: PartitionId,
    pub(crate) asked: Asked,
    pub(crate) origin: Incarnation,
    pub(crate) from: u64,
    pub(crate) bytes_max: usize,
}

impl LogRead {
    fn output(&self, ticket: Ticket) -> Output {
        Output::Peer(PeerOutput::ReadLog {
            ticket,
            partition: self.partition,
            origin: self.origin,
            from: self.from,
            bytes_max: self.bytes_max,
        })
    }
}

/// Those under way, and whether each has failed.
#[derive(Default)]
pub(crate) struct LogReads(BTreeMap<Ticket, (LogRead, bool)>);

impl LogReads {
    pub(crate) fn ask(&mut self, ticket: Ticket, read: LogRead) -> Output {
        let output = read.output(ticket);
        self.0.insert(ticket, (read, false));
        output
    }

    /// It was read. `None`: nobody wants it any more.
    pub(crate) fn came(&mut self, ticket: Ticket) -> Option<LogRead> {
        self.0.remove(&ticket).map(|(read, _)| read)
    }

    /// It could not be read. Gives whose it is.
    pub(crate) fn failed(&mut self, ticket: Ticket) -> Option<PartitionId> {
        let (read, failed) = self.0.get_mut(&ticket)?;
        *failed = true;
        Some(read.partition)
    }

    /// What could not be read of a partition is asked for again.
    pub(crate) fn again(&mut self, partition: PartitionId) -> Vec<Output> {
        let of_it = self.0.iter_mut();
        let of_it = of_it.filter(|(_, (read, _))| read.partition == partition);
        let failed = of_it.filter_map(|(ticket, (read, failed))| {
            std::mem::take(failed).then(|| read.output(*ticket))
        });
        failed.collect()
    }

    /// The machine of a partition is gone.
    pub(crate) fn forget(&mut self, partition: PartitionId) {
        self.0.retain(|_, (read, _)| read.partition != partition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_could_not_be_read_is_asked_for_once_more() {
        let here = PartitionId::accounts(7);
        let mut reads = LogReads::default();
        let read = LogRead {
            partition: here,
            asked: Asked(1),
            origin: Incarnation::from_hash(1),
            from: 1,
            bytes_max: 1,
        };
        reads.ask(Ticket(1), read);
        assert!(reads.again(here).is_empty());
        assert_eq!(reads.failed(Ticket(1)), Some(here));
        assert!(reads.again(PartitionId::accounts(8)).is_empty());
        assert_eq!((reads.again(here).len(), reads.again(here).len()), (1, 0));
        assert!(reads.came(Ticket(1)).is_some() && reads.came(Ticket(1)).is_none());
        assert_eq!(reads.failed(Ticket(1)), None);
    }
}
