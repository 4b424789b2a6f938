//! A partition takes a state of another node: what is the same whatever its rows are.
//!
//! What comes is kept beside the partition's own rows. When all is here one small commit takes position, clock and logs over, and says that the two
//! are to be joined.

use bytes::Bytes;
use whimbrel_storage::{Commit, Mutation, Room};

use super::{OnDurable, SnapshotProgress, StateWork, snapshot::Joined};
use crate::{
    log::{self, Log},
    machine::Ticket,
};

/// What differs: the rows, and what is remembered of them.
pub(crate) trait Takes {
    fn log(&mut self) -> &mut Log;

    /// Whether a state is coming.
    fn is_taking(&self) -> bool;

    /// A state begins to come, in this commit; what is held of the one before is of no use.
    fn begin(&mut self, held: SnapshotProgress, ticket: Ticket, commit: &mut Commit);

    /// Rows of it are kept, and that all up to `last` are here. Gives what is to be written.
    ///
    /// # Errors
    /// Why they cannot be kept.
    fn keep(&mut self, last: Vec<u8>, rows: &Bytes) -> Result<Vec<Mutation>, String>;

    /// The commit with rows of it.
    fn commit_of_rows(&mut self) -> Commit {
        self.log().commit()
    }

    /// Nothing of what is coming is wanted any more.
    fn forget(&mut self, ticket: Ticket, commit: &mut Commit);

    /// All of it is here, and is taken over with this commit, which has the position already.
    fn take_over(
        &mut self,
        held: &SnapshotProgress,
        joined: Joined,
        ticket: Ticket,
        commit: &mut Commit,
    );
}

/// What has to be written for a state.
pub(crate) struct Taken {
    pub(crate) commit: Commit,
    /// What the machine is told when that is durable.
    pub(crate) then: Option<OnDurable>,
    /// The state that is taken over with it.
    pub(crate) joined: Option<Joined>,
}

/// Does a piece of work that is of a state. `None`: there is nothing to be done.
///
/// # Errors
/// Why rows cannot be kept. Nothing is durable then, so nothing is joined; another donor is asked in time.
pub(crate) fn take(
    of: &mut impl Takes,
    ticket: Ticket,
    work: StateWork,
) -> Result<Option<Taken>, String> {
    let (mut then, mut joins) = (None, None);
    let commit = match work {
        StateWork::Begin(held) => {
            let mut commit = of.log().commit();
            of.begin(*held, ticket, &mut commit);
            commit
        }
        StateWork::Rows { asked, last, rows } => {
            let kept = of.keep(last, &rows)?;
            then = Some(OnDurable::Done(asked));
            let mut commit = of.commit_of_rows();
            commit.mutations.extend(kept);
            commit
        }
        StateWork::Forget if !of.is_taking() => return Ok(None),
        StateWork::Forget => {
            let mut commit = of.log().commit();
            of.forget(ticket, &mut commit);
            commit.room = Room::Frees;
            commit
        }
        StateWork::Join { asked, held, jumps } => {
            then = Some(OnDurable::Done(asked));
            let joined = Joined {
                state: held.snapshot.state,
                mine: of.log().applied().clone(),
                theirs: held.snapshot.applied.clone(),
            };
            let mut commit = of.log().join(&held, &jumps);
            of.take_over(&held, joined.clone(), ticket, &mut commit);
            joins = Some(joined);
            commit
        }
    };
    Ok(Some(Taken {
        commit,
        then,
        joined: joins,
    }))
}

/// The row that says that a state was taken over, and is to be joined.
pub(crate) fn joining_row(joined: &Joined) -> Mutation {
    Mutation::Put {
        key: log::JOINING_KEY.into(),
        value: log::encode(joined).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use whimbrel_crdt::{Incarnation, PartitionId, VersionVector};

    use super::*;
    use crate::peers::Snapshot;

    /// Knows no rows but `good`.
    struct Partition {
        log: Log,
        taking: Option<SnapshotProgress>,
        joined: Option<Joined>,
    }

    impl Takes for Partition {
        fn log(&mut self) -> &mut Log {
            &mut self.log
        }

        fn is_taking(&self) -> bool {
            self.taking.is_some()
        }

        fn begin(&mut self, held: SnapshotProgress, _: Ticket, _: &mut Commit) {
            self.taking = Some(held);
        }

        fn keep(&mut self, _: Vec<u8>, rows: &Bytes) -> Result<Vec<Mutation>, String> {
            match &rows[..] {
                b"good" => Ok(vec![Mutation::Delete { key: rows.clone() }]),
                _ => Err("bad".into()),
            }
        }

        fn forget(&mut self, _: Ticket, _: &mut Commit) {
            self.taking = None;
        }

        fn take_over(&mut self, _: &SnapshotProgress, joined: Joined, _: Ticket, _: &mut Commit) {
            self.taking = None;
            self.joined = Some(joined);
        }
    }

    #[test]
    fn what_is_taken_is_told_when_it_is_durable() {
        let [me, donor] = [1, 2].map(Incarnation::from_hash);
        let mut partition = Partition {
            log: Log::new(PartitionId::DIRECTORY, me),
            taking: None,
            joined: None,
        };
        let held = SnapshotProgress {
            donor,
            snapshot: Snapshot {
                state: 9,
                applied: VersionVector::new(),
                heads: BTreeMap::new(),
                hlc: 0,
            },
            last: Vec::new(),
        };
        let asked = whimbrel_replication::partition::Ticket(1);
        let rows = |rows: &'static [u8]| StateWork::Rows {
            asked,
            last: Vec::new(),
            rows: Bytes::from_static(rows),
        };
        let mut work = |work| take(&mut partition, Ticket(1), work);
        assert!(work(StateWork::Forget).unwrap().is_none());
        let begun = work(StateWork::Begin(Box::new(held.clone()))).unwrap();
        assert!(begun.is_some_and(|of| of.then.is_none()));
        assert_eq!(work(rows(b"bad")).err().as_deref(), Some("bad"));
        let kept = work(rows(b"good")).unwrap().unwrap();
        assert!(kept.then.is_some() && kept.commit.mutations.len() == 1);
        let forgotten = work(StateWork::Forget).unwrap().unwrap();
        assert_eq!(forgotten.commit.room, Room::Frees);
        let join = StateWork::Join {
            asked,
            held: Box::new(held),
            jumps: BTreeMap::new(),
        };
        let taken = work(join).unwrap().unwrap();
        assert!(taken.then.is_some());
        assert_eq!(taken.joined.as_ref().map(|of| of.state), Some(9));
        assert_eq!(partition.joined, taken.joined);
    }
}
