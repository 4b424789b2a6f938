//! Checks of what must hold, independent of the workload, by the world's own books.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_crdt::{Batch, Dot, Hash, Incarnation, VersionVector};
use whimbrel_replication::partition::{Alarm, SnapshotProgress};
use whimbrel_replication::wire::Frame;

use super::{
    World,
    disk::{Io, Rows, key},
    node::Node,
};

/// All batches that were made and not lost with their maker's memory: origin and last number, what each depends on.
#[derive(Clone, Default, Hash)]
pub struct Made(BTreeMap<(Incarnation, u64), (VersionVector, Hash)>);

impl Made {
    pub fn wrote(&mut self, waiting: &VecDeque<Io>) {
        if let Some((origin, entry, hash)) = waiting.back().and_then(|io| io.entry.as_ref()) {
            let batch = Batch::decode(&entry.bytes).expect("our own");
            self.0.insert((*origin, entry.last), (batch.deps, *hash));
        }
    }

    /// The hash of a batch.
    pub fn hash(&self, origin: Incarnation, last: u64) -> Hash {
        self.0[&(origin, last)].1
    }

    /// The rows in which this vector is applied.
    fn keys(&self, applied: &VersionVector) -> Vec<Vec<u8>> {
        let covered = self
            .0
            .keys()
            .filter(|(o, last)| applied.covers(Dot::new(*o, *last)));
        covered.map(|(o, last)| key(*o, *last)).collect()
    }

    /// After a crash the origin's log ends with `last`.
    pub fn survived(&mut self, origin: Incarnation, last: u64) {
        self.0
            .retain(|(o, number), _| *o != origin || *number <= last);
    }

    /// The batches that exist and are not covered by this vector.
    pub fn beyond(&self, known: &VersionVector) -> Option<(Incarnation, u64)> {
        let mut all = self.0.keys().copied();
        all.find(|(origin, last)| !known.covers(Dot::new(*origin, *last)))
    }

    /// What is stable was applied everywhere, and no unknown batch was made without it.
    pub fn check_stable<'a>(
        &self,
        node: &Node,
        mut members: impl Iterator<Item = &'a Node>,
        stable: &VersionVector,
    ) -> Result<(), String> {
        if let Some(other) = members.find(|other| !other.disk.applied.covers_all(stable)) {
            return Err(format!("stable {stable:?}, not applied at {:?}", other.id));
        }
        for ((origin, last), (deps, _)) in &self.0 {
            if node.disk.applied.covers(Dot::new(*origin, *last)) {
                continue;
            }
            let mut seen = deps.clone();
            seen.advance(*origin, last - 1);
            if !seen.covers_all(stable) {
                return Err(format!(
                    "stable {stable:?}, but {last} of {origin:?} was made without it and is not known"
                ));
            }
        }
        Ok(())
    }

    /// A snapshot is joined when all of it is there, and only if it is no older than what is stable.
    pub fn check_join(&self, node: &Node, held: &SnapshotProgress) -> Result<(), String> {
        if let Some(stable) = node.machine.as_ref().map(|machine| machine.stable())
            && !held.snapshot.applied.covers_all(stable)
        {
            return Err(format!(
                "{stable:?} is stable, not in the state that is joined"
            ));
        }
        let there: Vec<Vec<u8>> = node.disk.staged().into_keys().collect();
        let expected = self.keys(&held.snapshot.applied);
        if there != expected {
            return Err(format!(
                "joined with {} rows of {}",
                there.len(),
                expected.len()
            ));
        }
        Ok(())
    }

    /// Whether the rows are those of what is applied.
    pub fn check_rows(&self, rows: &Rows, applied: &VersionVector) -> Result<(), String> {
        if rows.keys().cloned().collect::<Vec<_>>() != self.keys(applied) {
            return Err(format!("rows are not those of {applied:?}"));
        }
        Ok(())
    }
}

impl Node {
    /// Reports to peers name only what is on disk, and only that is sent.
    pub fn check_sent(&self, to: Incarnation, frame: &Frame) -> Result<(), String> {
        let disk = &self.disk;
        let (durable, applied) = match frame {
            Frame::Hello(hello) => (&hello.durable, &hello.applied),
            Frame::Ack(ack) => (&ack.durable, &ack.applied),
            Frame::Batches(batches) => {
                for bytes in &batches.batches {
                    let batch = Batch::decode(bytes).map_err(|error| error.to_string())?;
                    if !disk.durable.covers(Dot::new(batch.origin, batch.last())) {
                        return Err("a batch left before it was durable".into());
                    }
                }
                return Ok(());
            }
            Frame::StateBegin(begin) => {
                if self.members.get(&to).is_none_or(|to| to.left.is_some()) {
                    return Err("a state goes to one that is no member".into());
                }
                (&disk.durable, &begin.applied)
            }
            _ => return Ok(()),
        };
        if !disk.durable.covers_all(durable) {
            return Err(format!("told {durable:?} durable, are {:?}", disk.durable));
        }
        if !disk.applied.covers_all(applied) {
            return Err(format!("told {applied:?} applied, are {:?}", disk.applied));
        }
        Ok(())
    }
}

impl World {
    /// A log is cut where every member has it on disk and has applied it, or is too far behind.
    pub(super) fn check_cut(
        &self,
        node: usize,
        origin: Incarnation,
        below: u64,
    ) -> Result<(), String> {
        let applied = self.nodes[node].disk.applied.get(origin);
        if below + self.kept_for_absent <= applied + 1 {
            return Ok(());
        }
        for other in self.taking_part() {
            if other.disk.applied.get(origin) + 1 < below {
                return Err(format!(
                    "node {node} cuts {origin:?} below {below}, {:?} has applied {}",
                    other.id,
                    other.disk.applied.get(origin)
                ));
            }
        }
        Ok(())
    }

    pub(super) fn check_stable(&self, node: usize, stable: &VersionVector) -> Result<(), String> {
        let members = self.taking_part();
        self.made.check_stable(&self.nodes[node], members, stable)
    }

    pub(super) fn check_alarm(&self, alarm: &Alarm) -> Result<(), String> {
        match alarm {
            Alarm::Ahead { .. } if self.setting.skewed => Ok(()),
            alarm => Err(format!("alarm {alarm:?}")),
        }
    }

    /// Windows to and from each peer, the budget of applying, and one batch beyond each.
    pub(super) fn check_memory(&self, node: usize) -> Result<(), String> {
        let Some(machine) = &self.nodes[node].machine else {
            return Ok(());
        };
        let largest = if self.setting.large {
            21 << 10
        } else {
            1 << 10
        };
        let window = self.config.window_bytes as usize + largest;
        let page = self.config.read_bytes_max + largest;
        let applying = self.config.applying_bytes_max + page * self.setting.nodes;
        let state = self.config.state.window_bytes as usize
            + (self.config.state.gives_max + 1) * (self.config.state.chunk_bytes + largest);
        let most = 2 * window * (self.setting.nodes - 1) + applying + state;
        if machine.memory_bytes() > most {
            return Err(format!("{} bytes in memory", machine.memory_bytes()));
        }
        Ok(())
    }

    /// Members that know that they are.
    fn taking_part(&self) -> impl Iterator<Item = &Node> {
        let mut nodes = self.nodes.iter().enumerate();
        std::iter::from_fn(move || nodes.find(|(node, _)| self.takes_part(*node)))
            .map(|(_, node)| node)
    }

    fn living(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.machine.is_some())
    }

    /// What is durable anywhere among the living.
    fn known(&self) -> VersionVector {
        let mut known = VersionVector::new();
        for node in self.living() {
            known.merge(&node.disk.durable);
        }
        known
    }

    /// Whether all has come to rest.
    pub(super) fn settled(&self) -> bool {
        let known = self.known();
        let whole = self.setting.dead.is_none();
        self.living().all(|node| {
            let stable = node.machine.as_ref().is_some_and(|m| *m.stable() == known);
            node.disk.waiting.is_empty()
                && node.disk.durable == known
                && node.disk.applied == known
                && (stable || !whole)
        })
    }

    pub(super) fn differences(&self) -> String {
        let known = self.known();
        let mut text = format!("known {known:?}");
        for node in self.living() {
            let stable = node.machine.as_ref().map(|m| m.stable().clone());
            for (what, vector) in [
                ("durable", &node.disk.durable),
                ("applied", &node.disk.applied),
                ("stable", &stable.unwrap_or_default()),
            ] {
                if *vector != known {
                    text.push_str(&format!("; {:?} {what} {vector:?}", node.id));
                }
            }
        }
        text.replace("Incarnation", "")
    }

    /// Nothing that a living node had on disk was lost, and logs were cut.
    pub(super) fn check_end(&self) -> Result<(), String> {
        let known = self.known();
        for (origin, last) in self.made.0.keys() {
            let dead = self
                .setting
                .dead
                .is_some_and(|n| self.members[n] == *origin);
            if !dead && !known.covers(Dot::new(*origin, *last)) {
                return Err(format!("{last} of {origin:?} was lost"));
            }
        }
        for node in self.living() {
            if node.memory != known {
                return Err(format!("memory of {:?} differs", node.id));
            }
            self.made.check_rows(&node.disk.rows, &known)?;
            let whole = self.setting.dead.is_none();
            for (origin, last) in known.iter().filter(|_| whole) {
                let low = node.disk.low.get(&origin).copied().unwrap_or(1);
                if last + 1 >= low + self.config.kept + self.config.cut_step {
                    return Err(format!("the log of {origin:?} is not cut: {low} of {last}"));
                }
            }
        }
        Ok(())
    }
}
