//! What the proofs assume of the network and of the nodes (`proofs/spec/Network.v`, the fields of `execution`), held against what nodes write.
//!
//! Each partition is an execution, each incarnation in it a node of the proof. A batch is *broadcast* by the commit that appends it to its maker's
//! own log, and *delivered* by the commit whose position covers it. What a crash takes back has not happened: of the proof's histories only what
//! survives counts. Who leaves a partition takes its position; if it comes back it does so as another node of the proof, to which nothing was
//! delivered (`docs/decisions/0040`).
//!
//! And one thing more, which the proofs do not speak of: of a log only that is cut which has been delivered to all members, unless the partition is
//! left with all of its logs. Who lacks it gets a state, so a cluster goes on after a fault of this kind, and nothing else tells of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_crdt::{Batch, Incarnation, VersionVector};
use whimbrel_service::log::Position;
use whimbrel_storage::{Commit, Hash, LogEntry, LogPosition, Mutation, Origin, PartitionId};

/// What is on a disk of one partition.
#[derive(Clone, Debug)]
pub struct StoredPartition {
    /// Which.
    pub partition: PartitionId,
    /// The position record.
    pub position: Option<Bytes>,
    /// Where the logs stand.
    pub logs: Vec<(Origin, LogPosition)>,
}

/// What a commit does with the position record.
#[derive(Clone, Debug)]
pub enum Place {
    /// Nothing.
    Stays,
    /// It is written.
    At(Bytes),
    /// It is taken: the node has left the partition.
    Gone,
}

/// What a commit cuts of logs.
#[derive(Clone, Debug, Default)]
pub struct Cuts {
    /// Below which numbers, where that is more than was given up.
    pub below: Vec<(Incarnation, u64)>,
    /// The other members who hold the partition and never left it, as the node knows.
    pub members: Vec<Incarnation>,
}

/// What a node has written, in its order.
#[derive(Clone, Debug)]
pub enum Wrote {
    /// A commit.
    Commit {
        /// Who it is.
        me: Incarnation,
        /// Where.
        partition: PartitionId,
        /// A batch, if there is one.
        entry: Option<LogEntry>,
        /// The position record.
        position: Place,
        /// What it cuts of logs, and who is to have that.
        cuts: Cuts,
    },
    /// It has started with this on its disk.
    Began {
        /// Who it is now.
        me: Incarnation,
        /// What there is.
        disk: Vec<StoredPartition>,
    },
}

impl Wrote {
    /// What a commit says of batches.
    #[must_use]
    pub fn of(me: Incarnation, commit: &Commit, cuts: Cuts) -> Self {
        let is_position = |key: &Bytes| key == whimbrel_service::log::POSITION_KEY;
        let mut changes = commit.mutations.iter().rev();
        let position = changes.find_map(|change| match change {
            Mutation::Put { key, value } if is_position(key) => Some(Place::At(value.clone())),
            Mutation::Delete { key } if is_position(key) => Some(Place::Gone),
            _ => None,
        });
        Wrote::Commit {
            me,
            partition: commit.partition,
            entry: commit.entry.clone(),
            position: position.unwrap_or(Place::Stays),
            cuts,
        }
    }
}

/// A batch that was broadcast.
#[derive(Debug)]
struct Made {
    last: u64,
    hash: Hash,
    deps: VersionVector,
    /// By which node. Another one may have the same place later.
    maker: usize,
}

/// All that was broadcast and delivered, by anybody.
#[derive(Debug, Default)]
pub struct Axioms {
    /// By partition, origin, and first number.
    made: BTreeMap<(PartitionId, Incarnation, u64), Made>,
    /// What is delivered at a node.
    delivered: BTreeMap<(usize, PartitionId), VersionVector>,
    /// What was ever delivered to those who were there from the begin. Who comes later gets a state first, of what was cut before.
    founders: BTreeMap<Incarnation, BTreeMap<PartitionId, VersionVector>>,
}

impl Axioms {
    /// Of a cluster that these found.
    pub fn of(founders: impl IntoIterator<Item = Incarnation>) -> Self {
        let founders = founders.into_iter().map(|id| (id, BTreeMap::new()));
        Axioms {
            founders: founders.collect(),
            ..Axioms::default()
        }
    }

    /// How many batches there are.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.made.len() as u64
    }

    /// A node has written something.
    ///
    /// # Errors
    /// Which field of `execution` does not hold.
    pub fn wrote(&mut self, node: usize, wrote: &Wrote) -> Result<(), String> {
        let what = match wrote {
            Wrote::Commit {
                me,
                partition,
                entry,
                position,
                cuts,
            } => {
                let cut = match position {
                    Place::Gone => Ok(()),
                    Place::Stays | Place::At(_) => self.cut(*partition, cuts),
                };
                cut.and_then(|()| self.commit(node, *me, *partition, entry.as_ref(), position))
            }
            Wrote::Began { me, disk } => self.began(node, *me, disk),
        };
        what.map_err(|what| format!("axiom at node {node}: {what}"))
    }

    fn commit(
        &mut self,
        node: usize,
        me: Incarnation,
        partition: PartitionId,
        entry: Option<&LogEntry>,
        place: &Place,
    ) -> Result<(), String> {
        let position = match place {
            Place::At(record) => Some(decoded(record)?),
            Place::Stays | Place::Gone => None,
        };
        if let Some(entry) = entry {
            let batch = Batch::decode(&entry.bytes).map_err(|error| error.to_string())?;
            if batch.origin == me {
                self.broadcast(node, partition, entry, &batch, position.as_ref())?;
            } else {
                self.is_made(partition, &batch, entry)?;
            }
        }
        if matches!(place, Place::Gone) {
            // What is delivered later is delivered to another life.
            self.delivered.remove(&(node, partition));
        }
        match position {
            Some(position) => {
                if let Some(ever) = self.founders.get_mut(&me) {
                    ever.entry(partition).or_default().merge(&position.applied);
                }
                self.deliver(node, partition, &position.applied)
            }
            None => Ok(()),
        }
    }

    /// Part of a log is cut.
    fn cut(&self, partition: PartitionId, cuts: &Cuts) -> Result<(), String> {
        for (origin, below) in &cuts.below {
            for member in &cuts.members {
                let Some(ever) = self.founders.get(member) else {
                    continue;
                };
                let has = ever.get(&partition).map_or(0, |ever| ever.get(*origin));
                if has + 1 < *below {
                    return Err(format!(
                        "stability: the log of {origin:?} in {partition:?} is cut below {below}, and {member:?} has applied {has}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn broadcast(
        &mut self,
        node: usize,
        partition: PartitionId,
        entry: &LogEntry,
        batch: &Batch,
        position: Option<&Position>,
    ) -> Result<(), String> {
        let (origin, last) = (batch.origin, batch.last());
        let mut log = self
            .made
            .range((partition, origin, 0)..=(partition, origin, u64::MAX));
        let newest = log.next_back().map_or(0, |(_, made)| made.last);
        if batch.first <= newest {
            return Err(format!(
                "unique_ids: {origin:?} makes {} of {partition:?} again, it had made {newest}",
                batch.first
            ));
        }
        let applied = position.map(|position| &position.applied);
        let Some(applied) = applied.filter(|applied| applied.get(origin) == last) else {
            return Err(format!(
                "local_delivery: {last} of {origin:?} in {partition:?} is not applied where it is made"
            ));
        };
        let of_others = |vector: &VersionVector| {
            let others = vector
                .iter()
                .filter(|(other, number)| *other != origin && *number > 0);
            others.collect::<VersionVector>()
        };
        let (deps, known) = (of_others(&batch.deps), of_others(applied));
        if deps != known {
            return Err(format!(
                "valid_broadcasts: {last} of {origin:?} in {partition:?} depends on {deps:?}, its maker has applied {known:?}"
            ));
        }
        let made = Made {
            last,
            hash: entry.hash(),
            deps,
            maker: node,
        };
        self.made.insert((partition, origin, batch.first), made);
        Ok(())
    }

    /// What is stored of others was broadcast by them.
    fn is_made(
        &self,
        partition: PartitionId,
        batch: &Batch,
        entry: &LogEntry,
    ) -> Result<(), String> {
        let made = self.made.get(&(partition, batch.origin, batch.first));
        if made.is_some_and(|made| made.hash == entry.hash()) {
            return Ok(());
        }
        Err(format!(
            "deliveries_have_causes: {} of {:?} in {partition:?} was not made so",
            batch.first, batch.origin
        ))
    }

    fn deliver(
        &mut self,
        node: usize,
        partition: PartitionId,
        applied: &VersionVector,
    ) -> Result<(), String> {
        let before = self.delivered.entry((node, partition)).or_default();
        if !applied.covers_all(before) {
            return Err(format!(
                "histories_distinct: {before:?} were applied in {partition:?}, now {applied:?}: some come again"
            ));
        }
        let before = std::mem::replace(before, applied.clone());
        for (origin, upto) in applied.iter() {
            let mut last = before.get(origin);
            while last < upto {
                let Some(made) = self.made.get(&(partition, origin, last + 1)) else {
                    return Err(format!(
                        "deliveries_have_causes: nobody made {} of {origin:?} in {partition:?}",
                        last + 1
                    ));
                };
                if !applied.covers_all(&made.deps) {
                    return Err(format!(
                        "causal_delivery: {} of {origin:?} in {partition:?} needs {:?}, applied is {applied:?}",
                        last + 1,
                        made.deps
                    ));
                }
                last = made.last;
            }
            if last > upto {
                return Err(format!(
                    "histories_distinct: of a batch of {origin:?} in {partition:?} up to {last} only {upto} are applied: it comes again"
                ));
            }
        }
        Ok(())
    }

    /// What is on a disk has happened; what was only written has not.
    fn began(
        &mut self,
        node: usize,
        me: Incarnation,
        disk: &[StoredPartition],
    ) -> Result<(), String> {
        self.delivered.retain(|(of, _), _| *of != node);
        let mut ends = BTreeMap::new();
        for StoredPartition {
            partition,
            position,
            logs,
        } in disk
        {
            let own = logs.iter().find(|(origin, _)| origin.0 == me.get());
            ends.insert(*partition, own.map_or(0, |(_, log)| log.next - 1));
            if let Some(position) = position {
                self.deliver(node, *partition, &decoded(position)?.applied)?;
            }
        }
        let lost = |partition: PartitionId, origin, made: &Made| {
            let end = ends.get(&partition).copied().unwrap_or(0);
            made.maker == node && origin == me && made.last > end
        };
        for ((partition, origin, first), made) in &self.made {
            if !lost(*partition, *origin, made) {
                continue;
            }
            let mut all = self.delivered.iter();
            let has = |vector: &VersionVector| vector.get(*origin) >= *first;
            if let Some(((other, _), _)) =
                all.find(|((_, of), has_it)| of == partition && has(has_it))
            {
                return Err(format!(
                    "deliveries_have_causes: {first} of {origin:?} in {partition:?} was lost with its maker, and is applied at {other}"
                ));
            }
        }
        self.made
            .retain(|(partition, origin, _), made| !lost(*partition, *origin, made));
        Ok(())
    }
}

fn decoded(record: &Bytes) -> Result<Position, String> {
    minicbor::decode(record).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use whimbrel_crdt::{Section, Stamp};

    use super::*;

    const PARTITION: PartitionId = PartitionId(7);

    fn id(number: u64) -> Incarnation {
        Incarnation::new(number).unwrap()
    }

    fn vector(numbers: &[(u64, u64)]) -> VersionVector {
        numbers
            .iter()
            .map(|(of, number)| (id(*of), *number))
            .collect()
    }

    fn batch(origin: u64, first: u64, deps: &[(u64, u64)]) -> LogEntry {
        let batch = Batch {
            partition: whimbrel_crdt::PartitionId::accounts(7),
            origin: id(origin),
            first,
            count: 1,
            previous: whimbrel_crdt::Hash::default(),
            deps: vector(deps),
            stamp: Stamp {
                hlc: first,
                origin: id(origin),
            },
            sections: vec![Section {
                subject: [1; 16],
                counter: 0,
                count: 1,
                ops: vec![0; 4],
            }],
            blobs: Vec::new(),
        };
        LogEntry {
            origin: Origin(origin),
            first,
            count: 1,
            previous: Hash::ZERO,
            bytes: batch.seal().bytes.into(),
        }
    }

    fn record(applied: &[(u64, u64)]) -> Bytes {
        let position = Position {
            next: 1,
            hash: [0; 32],
            hlc: 0,
            applied: vector(applied),
            origin: None,
            collected: None,
            alone: None,
            own_lost: None,
        };
        minicbor::to_vec(position).unwrap().into()
    }

    /// Node `n` is incarnation `n`.
    fn wrote(n: u64, entry: Option<LogEntry>, applied: Option<&[(u64, u64)]>) -> (usize, Wrote) {
        let wrote = Wrote::Commit {
            me: id(n),
            partition: PARTITION,
            entry,
            position: applied.map_or(Place::Stays, |applied| Place::At(record(applied))),
            cuts: Cuts::default(),
        };
        (usize::try_from(n).unwrap(), wrote)
    }

    fn left(n: u64) -> (usize, Wrote) {
        let commit = Commit {
            mutations: vec![
                Mutation::Put {
                    key: Bytes::from_static(b"\0away"),
                    value: record(&[]),
                },
                Mutation::Delete {
                    key: Bytes::from_static(whimbrel_service::log::POSITION_KEY),
                },
            ],
            ..Commit::new(PARTITION)
        };
        (
            usize::try_from(n).unwrap(),
            Wrote::of(id(n), &commit, Cuts::default()),
        )
    }

    fn began(n: u64, own: u64, applied: &[(u64, u64)]) -> (usize, Wrote) {
        let log = LogPosition {
            low: 1,
            next: own + 1,
            hash: Hash::ZERO,
        };
        let disk = vec![StoredPartition {
            partition: PARTITION,
            position: Some(record(applied)),
            logs: vec![(Origin(n), log)],
        }];
        (
            usize::try_from(n).unwrap(),
            Wrote::Began { me: id(n), disk },
        )
    }

    fn check(history: &[(usize, Wrote)], expected: Result<(), &str>) {
        let mut axioms = Axioms::of([id(1), id(2)]);
        let mut all = history.iter();
        let result = all.try_for_each(|(node, wrote)| axioms.wrote(*node, wrote));
        match (&result, expected) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(field)) if error.contains(&format!(": {field}: ")) => {}
            _ => panic!("{result:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn each_field_is_checked() {
        let one = || wrote(1, Some(batch(1, 1, &[])), Some(&[(1, 1)]));
        let at_two = || wrote(2, Some(batch(1, 1, &[])), Some(&[(1, 1)]));
        let answer = || wrote(2, Some(batch(2, 1, &[(1, 1)])), Some(&[(1, 1), (2, 1)]));
        // Stored first, applied later; and a state that brings both.
        let stored = wrote(3, Some(batch(2, 1, &[(1, 1)])), None);
        let joined = wrote(3, None, Some(&[(1, 1), (2, 1)]));
        check(&[one(), at_two(), answer(), stored.clone(), joined], Ok(()));

        check(&[one(), one()], Err("unique_ids"));
        check(
            &[wrote(1, Some(batch(1, 1, &[])), None)],
            Err("local_delivery"),
        );
        check(
            &[wrote(1, Some(batch(1, 1, &[])), Some(&[]))],
            Err("local_delivery"),
        );
        let other = batch(1, 1, &[(3, 0)]);
        let changed = LogEntry {
            bytes: batch(1, 1, &[(4, 1)]).bytes,
            ..other
        };
        check(
            &[one(), wrote(2, Some(changed), None)],
            Err("deliveries_have_causes"),
        );
        check(
            &[wrote(2, None, Some(&[(1, 1)]))],
            Err("deliveries_have_causes"),
        );
        let early = wrote(3, None, Some(&[(2, 1)]));
        check(
            &[one(), at_two(), answer(), stored, early],
            Err("causal_delivery"),
        );
        let again = wrote(2, None, Some(&[]));
        check(&[one(), at_two(), again], Err("histories_distinct"));
        let without = wrote(2, Some(batch(2, 1, &[])), Some(&[(1, 1), (2, 1)]));
        check(&[one(), at_two(), without], Err("valid_broadcasts"));
    }

    #[test]
    fn logs_are_cut_when_all_have_applied_them() {
        let cut = |below: u64| {
            let cuts = Cuts {
                below: vec![(id(1), below)],
                members: vec![id(2), id(3)],
            };
            (1, Wrote::of(id(1), &Commit::new(PARTITION), cuts))
        };
        let one = || wrote(1, Some(batch(1, 1, &[])), Some(&[(1, 1)]));
        let at_two = || wrote(2, None, Some(&[(1, 1)]));
        // Node 3 comes later: it gets a state.
        let all = |more: &[(usize, Wrote)]| [&[one()], more].concat();
        check(&all(&[at_two(), cut(2)]), Ok(()));
        check(&all(&[cut(1)]), Ok(()));
        check(&all(&[cut(2)]), Err("stability"));
        check(&all(&[at_two(), cut(3)]), Err("stability"));
        // Who leaves cuts all: the others have it.
        let (node, mut leaves) = left(1);
        if let Wrote::Commit { cuts, .. } = &mut leaves {
            cuts.below = vec![(id(1), 2)];
            cuts.members = vec![id(2)];
        }
        check(&all(&[(node, leaves)]), Ok(()));
    }

    #[test]
    fn who_leaves_and_comes_back_is_another_node() {
        let one = || wrote(1, Some(batch(1, 1, &[])), Some(&[(1, 1)]));
        let at_two = || wrote(2, None, Some(&[(1, 1)]));
        let back = |n| wrote(n, None, Some(&[]));
        check(&[one(), at_two(), left(2), back(2), at_two()], Ok(()));
        // Its operations are its own in each life, and their numbers go on.
        let here = || wrote(1, None, Some(&[(1, 1)]));
        let next = || wrote(1, Some(batch(1, 2, &[])), Some(&[(1, 2)]));
        check(&[one(), left(1), back(1), here(), next()], Ok(()));
        check(&[one(), left(1), back(1), one()], Err("unique_ids"));
        // What it does in a life is held against that life.
        let again = [one(), at_two(), left(2), at_two(), back(2)];
        check(&again, Err("histories_distinct"));
        check(
            &[one(), left(2), wrote(2, None, Some(&[(1, 2)]))],
            Err("deliveries_have_causes"),
        );
    }

    #[test]
    fn what_a_crash_takes_back_has_not_happened() {
        let one = || wrote(1, Some(batch(1, 1, &[])), Some(&[(1, 1)]));
        let other = || wrote(1, Some(batch(1, 1, &[])), Some(&[(1, 1)]));
        check(&[one(), began(1, 0, &[]), other()], Ok(()));
        check(&[one(), began(1, 1, &[(1, 1)]), other()], Err("unique_ids"));
        let at_two = || wrote(2, Some(batch(1, 1, &[])), Some(&[(1, 1)]));
        check(&[one(), at_two(), began(2, 0, &[]), at_two()], Ok(()));
        let gone = [one(), at_two(), began(1, 0, &[])];
        check(&gone, Err("deliveries_have_causes"));
    }
}
