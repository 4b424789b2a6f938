//! What is done to a store, chosen by a seed and by what the model holds, never by a clock: a plan can be made again.

use bytes::Bytes;
use whimbrel_storage::{
    BlobInfo, BlobName, Commit, Cut, Hash, LogEntry, LogPosition, Mutation, Origin, PartitionId,
    UploadId,
};
use whimbrel_testkit::Rng;

use super::model::{Model, content};
use crate::trees::TREES;

const PARTITIONS: u64 = 3;
const ORIGINS: u64 = 2;
/// Few, so that most writes replace or remove something.
const KEYS: u64 = 12;
/// More than a journal takes before the next is begun.
const BULK_BYTES: usize = 66 << 20;

/// Done at once, and waited for.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    /// In this order; the last ones may be missing after a crash.
    pub(super) commits: Vec<Commit>,
    /// Blobs that nothing names.
    pub(super) deletions: Vec<BlobName>,
    /// Beside the commits, and beside each other.
    pub(super) uploads: Vec<Upload>,
    /// Then.
    pub(super) tree: Option<(usize, Work)>,
}

#[derive(Clone, Debug)]
pub(super) struct Upload {
    pub(super) id: UploadId,
    pub(super) bytes: usize,
    pub(super) piece: usize,
    pub(super) end: End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Finish,
    Abort,
    Drop,
}

/// What the tree does in its own time, done now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    Flush,
    Merge,
}

/// What is mostly done for a while: trees fall silent, and what was said last in them must stay known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    All,
    Records,
    Remove,
    Logs,
    Blobs,
    Bulk,
}

pub(super) struct Plan {
    pub(super) random: Rng,
    pub(super) model: Model,
    uploads: u64,
    mood: Mood,
    mood_lasts: u64,
}

impl Upload {
    pub(super) fn info(&self) -> BlobInfo {
        let hash = Hash::of(&content(self.id, self.bytes));
        BlobInfo {
            name: BlobName {
                upload: self.id,
                hash,
            },
            size: self.bytes as u64,
        }
    }
}

impl Plan {
    pub(super) fn new(seed: u64) -> Plan {
        Plan {
            random: Rng::new(seed),
            model: Model::default(),
            uploads: 0,
            mood: Mood::All,
            mood_lasts: 0,
        }
    }

    /// The next step. The model does not follow by itself: see [`Plan::done`].
    pub(super) fn step(&mut self, bulk: bool) -> Step {
        if self.mood_lasts == 0 {
            let moods = [
                Mood::All,
                Mood::Records,
                Mood::Remove,
                Mood::Logs,
                Mood::Blobs,
                Mood::Bulk,
            ];
            self.mood = *self.random.pick(&moods[..if bulk { 6 } else { 5 }]);
            self.mood_lasts = match self.mood {
                Mood::Bulk => 1,
                _ => 1 + self.random.below(12),
            };
        }
        self.mood_lasts -= 1;
        let mut step = Step::default();
        if !matches!(self.mood, Mood::Blobs | Mood::Bulk) {
            // As the commits before it in the step leave it.
            let mut model = self.model.clone();
            for _ in 0..1 + self.random.below(6) {
                let commit = self.commit(&mut model);
                step.commits.push(commit);
            }
        }
        if matches!(self.mood, Mood::All | Mood::Blobs) {
            for _ in 0..self.random.below(3) {
                let upload = self.upload();
                step.uploads.push(upload);
            }
            let model = &self.model;
            let named = |name: &BlobName| {
                step.commits
                    .iter()
                    .flat_map(|commit| &commit.mutations)
                    .any(|of| matches!(of, Mutation::Reference { blob, .. } if blob == name))
            };
            let free = model.blobs.keys().find(|name| model.is_free(**name));
            step.deletions = free
                .filter(|name| !named(name))
                .into_iter()
                .copied()
                .collect();
        }
        if self.mood == Mood::Bulk {
            let upload = self.upload();
            step.uploads.push(Upload {
                bytes: BULK_BYTES,
                piece: 1 << 20,
                end: End::Abort,
                ..upload
            });
        }
        if self.random.one_in(4) {
            let work = *self.random.pick(&[Work::Flush, Work::Flush, Work::Merge]);
            step.tree = Some((self.random.below(TREES as u64) as usize, work));
        }
        step
    }

    /// A step was done, of its commits so many.
    pub(super) fn done(&mut self, step: &Step, commits: usize) {
        for commit in &step.commits[..commits] {
            self.model.commit(commit);
        }
        for name in &step.deletions {
            self.model.blobs.remove(name);
        }
        for upload in &step.uploads {
            if upload.end == End::Finish {
                self.model.finished(upload.info());
            }
        }
    }

    fn upload(&mut self) -> Upload {
        self.uploads += 1;
        let bytes = *self
            .random
            .pick(&[0, 1, 500, 4_096, 20_000, 70_000, 200_000]);
        Upload {
            id: UploadId(
                (u128::from(self.random.number()) << 64 | u128::from(self.uploads)).to_be_bytes(),
            ),
            bytes: bytes + self.random.below(100) as usize,
            piece: *self.random.pick(&[1_000, 30_000, 1 << 20]),
            end: *self
                .random
                .pick(&[End::Finish, End::Finish, End::Finish, End::Abort, End::Drop]),
        }
    }

    fn commit(&mut self, model: &mut Model) -> Commit {
        let partition = PartitionId(self.random.below(PARTITIONS));
        let mut commit = Commit::new(partition);
        commit.lazy = self.random.one_in(4);
        let origin = Origin(self.random.below(ORIGINS));
        let log = model.logs.get(&(partition, origin));
        let position = log.map_or(LogPosition::EMPTY, |log| log.position);
        let mut next = position.next;
        if matches!(self.mood, Mood::All | Mood::Logs) && !self.random.one_in(3) {
            let bytes = *self.random.pick(&[10, 100, 1_000, 10_000]);
            let mut batch = self.random.number().to_be_bytes().to_vec();
            batch.resize(bytes, 7);
            let entry = LogEntry {
                origin,
                first: next,
                count: 1 + self.random.below(3) as u32,
                previous: position.hash,
                bytes: batch.into(),
            };
            next = entry.end();
            commit.entry = Some(entry);
        }
        if matches!(self.mood, Mood::All | Mood::Logs | Mood::Remove) && self.random.one_in(4) {
            let below = next - self.random.below(next.min(12));
            commit.cuts.push(Cut { origin, below });
        }
        if self.mood != Mood::Logs {
            for _ in 0..1 + self.random.below(4) {
                let mutation = self.mutation(model, &commit);
                commit.mutations.extend(mutation);
            }
        }
        model.commit(&commit);
        commit
    }

    fn mutation(&mut self, model: &Model, commit: &Commit) -> Option<Mutation> {
        let partition = commit.partition;
        let key = Bytes::from(format!("key {}", self.random.below(KEYS)));
        let removes = match self.mood {
            Mood::Remove => true,
            _ => self.random.one_in(2),
        };
        if self.mood == Mood::Records || self.random.one_in(2) {
            return Some(if removes {
                Mutation::Delete { key }
            } else {
                let bytes = *self.random.pick(&[0, 1, 50, 300, 5_000]);
                let value = vec![self.random.number() as u8; bytes].into();
                Mutation::Put { key, value }
            });
        }
        let names: Vec<BlobName> = model.blobs.keys().copied().collect();
        if names.is_empty() {
            return None;
        }
        let blob = *self.random.pick(&names);
        let holders = &model.blobs[&blob].holders;
        if removes {
            let (_, holder) = holders.iter().find(|(of, _)| *of == partition)?.clone();
            return Some(Mutation::Release { blob, holder });
        }
        // Not what this commit itself may have let go of: it is there at the end of the commit, not on the way.
        let is_let_go = commit
            .mutations
            .iter()
            .any(|of| matches!(of, Mutation::Release { blob: of, .. } if *of == blob));
        (!is_let_go).then_some(Mutation::Reference { blob, holder: key })
    }
}
