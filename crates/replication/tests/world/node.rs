//! One node: a machine, its disk, and an owner that applies in the order in which it is handed batches.

use std::{
    collections::BTreeMap,
    hash::{Hash as _, Hasher},
};

use whimbrel_crdt::{Batch, Hash, Hlc, Incarnation, PartitionId, Section, Stamp, VersionVector};
use whimbrel_replication::Now;
use whimbrel_replication::partition::{
    Config, Entry, Foreign, Membership, Partition, Resume, Snapshot, SnapshotProgress, Ticket,
};

use super::{
    checks::Made,
    disk::{Disk, Io, Rows},
};

pub const PARTITION: PartitionId = PartitionId::accounts(7);

#[derive(Clone)]
pub struct Node {
    pub id: Incarnation,
    pub disk: Disk,
    /// Counts starts: what was asked in an older life is of no use.
    pub generation: u64,
    pub machine: Option<Partition>,
    /// How far its wall clock is ahead.
    pub skew: u64,
    /// What its memory stands for: what was handed, and own batches that are not durable yet.
    pub memory: VersionVector,
    hlc: Hlc,
    own_hash: Hash,
    /// Rows as they were, by the name of the snapshot.
    pub snapshots: BTreeMap<u64, Rows>,
    /// Who belongs, as the machine was told.
    pub members: BTreeMap<Incarnation, Membership>,
    /// It came back, and has not what others have.
    pub syncing: bool,
    /// What was stable when something was forgotten for it.
    pub collected: VersionVector,
    /// When the machine wants to be called.
    pub timer: Option<u64>,
}

impl Node {
    pub fn new(id: Incarnation, syncing: bool) -> Self {
        Self {
            id,
            disk: Disk::default(),
            generation: 0,
            machine: None,
            skew: 0,
            memory: VersionVector::new(),
            hlc: Hlc::default(),
            own_hash: Hash::default(),
            snapshots: BTreeMap::new(),
            members: BTreeMap::new(),
            syncing,
            collected: VersionVector::new(),
            timer: None,
        }
    }

    /// All that decides how it goes on.
    pub fn fingerprint(&self, into: &mut impl Hasher) {
        (self.id, &self.disk, &self.memory, self.hlc.last()).hash(into);
        (&self.own_hash, &self.snapshots).hash(into);
        (&self.members, &self.collected).hash(into);
        self.machine.is_some().hash(into);
        if let Some(machine) = &self.machine {
            machine.fingerprint(into);
        }
    }

    pub fn start(
        &mut self,
        config: Config,
        now: Now,
        members: BTreeMap<Incarnation, Membership>,
    ) -> Result<(), String> {
        self.members = members;
        let resume = Resume {
            logs: self.disk.ends(),
            applied: self.disk.applied.clone(),
            members: self.members.clone(),
            stable: self.collected.clone(),
            syncing: self.syncing,
        };
        self.generation += 1;
        self.memory = self.disk.applied.clone();
        self.own_hash = resume
            .logs
            .get(&self.id)
            .map_or(Hash::default(), |e| e.hash);
        let machine = Partition::resume(config, PARTITION, self.id, resume);
        let mut machine = machine.map_err(|error| error.to_string())?;
        if let Some(held) = self.disk.held.clone() {
            machine.hold(now, held);
        }
        self.machine = Some(machine);
        Ok(())
    }

    /// The owner makes a batch; it is handed to the disk.
    pub fn write(&mut self, wall_micros: u64, count: u32, bytes: usize) {
        let first = self.memory.get(self.id) + 1;
        let others = self.memory.iter().filter(|(origin, _)| *origin != self.id);
        let batch = Batch {
            partition: PARTITION,
            origin: self.id,
            first,
            count,
            previous: self.own_hash,
            deps: others.collect(),
            stamp: Stamp {
                hlc: self.hlc.tick_many(wall_micros + self.skew, count),
                origin: self.id,
            },
            sections: vec![Section {
                subject: [1; 16],
                counter: 0,
                count,
                ops: vec![0; bytes],
            }],
            blobs: Vec::new(),
        };
        let sealed = batch.seal();
        self.own_hash = sealed.hash;
        self.memory.advance(self.id, batch.last());
        let entry = Entry {
            first,
            last: batch.last(),
            bytes: sealed.bytes.into(),
        };
        self.disk.waiting.push_back(Io {
            applied: Some((self.id, entry.last)),
            entry: Some((self.id, entry, sealed.hash)),
            ..Io::default()
        });
    }

    /// The owner applies a batch of another node: nothing early, nothing twice, nothing from the future.
    pub fn apply(&mut self, batch: &Batch, wall_micros: u64, ahead_max: u64) -> Result<(), String> {
        if batch.first != self.memory.get(batch.origin) + 1 {
            return Err(format!(
                "applied out of order: {} of {:?} after {}",
                batch.first,
                batch.origin,
                self.memory.get(batch.origin)
            ));
        }
        if !self.memory.covers_all(&batch.deps) {
            return Err(format!("applied early: {:?} {}", batch.origin, batch.first));
        }
        let above = batch.stamp.hlc.saturating_sub(self.hlc.last());
        if batch.stamp.hlc > wall_micros + self.skew + ahead_max && above > 1_000_000 {
            return Err(format!("applied before its time: {}", batch.first));
        }
        self.memory.advance(batch.origin, batch.last());
        self.hlc.observe(batch.stamp.hlc);
        Ok(())
    }

    /// The owner joins a state to its own: all rows of it are here.
    pub fn join(&mut self, held: &SnapshotProgress) {
        self.memory.merge(&held.snapshot.applied);
        self.hlc.observe(held.snapshot.hlc);
    }

    /// The greatest time given or observed.
    pub fn hlc(&self) -> u64 {
        self.hlc.last()
    }

    /// A batch is on its way to the disk, and applied with it if the machine says so. With the wall clock, and how far ahead of it a batch may be.
    pub fn commit_foreign(
        &mut self,
        ticket: Ticket,
        foreign: &Foreign,
        apply: bool,
        (wall_micros, ahead_max): (u64, u64),
    ) -> Result<(), String> {
        let entry = self.store(foreign)?;
        if apply {
            self.apply(&foreign.batch, wall_micros, ahead_max)?;
        }
        self.disk.waiting.push_back(Io {
            applied: apply.then_some((entry.0, entry.1.last)),
            entry: Some(entry),
            ticket: Some(ticket),
            ..Io::default()
        });
        Ok(())
    }

    /// The same of one that was stored before.
    pub fn commit_applied(
        &mut self,
        ticket: Ticket,
        batch: &Batch,
        (wall_micros, ahead_max): (u64, u64),
    ) -> Result<(), String> {
        self.apply(batch, wall_micros, ahead_max)?;
        self.disk.waiting.push_back(Io {
            applied: Some((batch.origin, batch.last())),
            ticket: Some(ticket),
            ..Io::default()
        });
        Ok(())
    }

    /// Keeps what is there, under this name. Rows may be there before they are durable.
    pub fn snapshot(&mut self, made: &Made, state: u64) -> Result<Snapshot, String> {
        let (rows, applied) = self.disk.view();
        made.check_rows(&rows, &applied)?;
        self.snapshots.insert(state, rows);
        let heads = applied.iter().map(|(o, last)| (o, made.hash(o, last)));
        Ok(Snapshot {
            state,
            heads: heads.collect(),
            applied,
            hlc: self.hlc(),
        })
    }

    /// A foreign batch goes to the disk.
    pub fn store(&mut self, foreign: &Foreign) -> Result<(Incarnation, Entry, Hash), String> {
        let batch = &foreign.batch;
        let next = self.disk.next(batch.origin);
        if batch.first != next {
            return Err(format!(
                "stored {} of {:?} where {next} follows",
                batch.first, batch.origin
            ));
        }
        let entry = Entry {
            first: batch.first,
            last: batch.last(),
            bytes: foreign.bytes.clone(),
        };
        Ok((batch.origin, entry, foreign.hash))
    }
}
