//! Whether a new node has caught up: it has everything that some other member has, in every partition (`docs/decisions/0028`).

use std::collections::BTreeSet;

use whimbrel_crdt::PartitionId;

use crate::peers::PartitionReport;

/// What a look at a syncing node's partitions says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Everything is here: the node serves clients.
    CaughtUp,
    /// Something is missing.
    Syncing {
        /// Partitions of which nothing is known, since they could not be read: nobody else may ever ask for them, so they are opened again.
        unopened: Vec<PartitionId>,
        /// Whether some open partition is being synced. The others have not been opened yet.
        open: bool,
    },
}

/// Looks at the reports of the machines; `all`: partitions that have to be here, or left.
#[must_use]
pub fn look(all: impl IntoIterator<Item = PartitionId>, reports: &[PartitionReport]) -> Progress {
    let known: BTreeSet<PartitionId> = reports.iter().map(|of| of.partition).collect();
    // This node lacks nothing of the partitions that it has left.
    let is_here = |of: &PartitionReport| of.left.is_some() || of.open.is_some() && !of.syncing;
    let here = reports.iter().filter(|of| is_here(of));
    let here: BTreeSet<PartitionId> = here.map(|of| of.partition).collect();
    let missing: Vec<PartitionId> = all.into_iter().filter(|of| !here.contains(of)).collect();
    if missing.is_empty() {
        return Progress::CaughtUp;
    }
    let unopened = missing.into_iter().filter(|of| !known.contains(of));
    Progress::Syncing {
        unopened: unopened.collect(),
        open: reports.iter().any(|of| of.syncing && of.open.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::LeftReport;

    fn report(partition: PartitionId) -> PartitionReport {
        PartitionReport {
            partition,
            open: None,
            blobs_missing: 0,
            accounts_stalled: 0,
            uids_reassigned: 0,
            syncing: true,
            complete_at: BTreeSet::new(),
            left: None,
        }
    }

    fn accounts() -> impl Iterator<Item = PartitionId> {
        (0..4).map(PartitionId::accounts)
    }

    #[test]
    fn partitions_that_could_not_be_read_are_opened_again() {
        let mut reports: Vec<PartitionReport> = accounts().map(report).collect();
        let syncing = |unopened: &[u8]| Progress::Syncing {
            unopened: unopened
                .iter()
                .map(|of| PartitionId::accounts(*of))
                .collect(),
            open: false,
        };
        assert_eq!(look(accounts(), &reports), syncing(&[]));
        reports.retain(|of| of.partition == PartitionId::accounts(3));
        assert_eq!(look(accounts(), &reports), syncing(&[0, 1, 2]));
    }

    #[test]
    fn a_node_lacks_nothing_of_partitions_that_it_has_left() {
        let left = LeftReport {
            end: 7,
            is_gone: true,
        };
        let mut reports: Vec<PartitionReport> = accounts().map(report).collect();
        assert_ne!(look(accounts(), &reports), Progress::CaughtUp);
        for report in &mut reports {
            report.left = Some(left);
        }
        assert_eq!(look(accounts(), &reports), Progress::CaughtUp);
    }
}
