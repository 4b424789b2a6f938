//! What is read at the start: all rows but the payloads, into the machine.
//!
//! The first row says in which life of the disk the others were written. If this node has another incarnation since, an older copy of its disk was
//! put back, or the disk lost something: what is found is in doubt until other nodes know of it.

use bytes::Bytes;
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_queue::{self as machine, Choice, Node, Nodes};
use whimbrel_storage::{Commit, Mutation, Room};

use super::{
    Loads, Phase, QueueOwner, Waiting, join,
    rows::{self, Row},
    times,
};
use crate::{
    log,
    machine::{Note, Now, Output},
};

/// Frames of one peer that are kept until all rows are read. A peer that sends more is linked anew.
const EARLY_MAX: usize = 4096;

/// A peer of whom nothing is heard for so long is cut off, if its entries are not taken over before.
const SILENT_MICROS: u64 = 15_000_000;

/// The rows are being read; calls and frames wait.
#[derive(Default)]
pub(super) struct Loading {
    /// Once the first row is read.
    machine: Option<Box<machine::Queue>>,
    life: u32,
    /// Numbers that this node has had.
    numbers: Nodes,
    /// What peers sent meanwhile.
    pub(super) frames: Vec<(Incarnation, machine::Frame)>,
    /// Rows that are of no use any more.
    gone: Vec<Mutation>,
    away: Vec<(Node, u64)>,
    /// What is read that has to be: all, and what a version before left.
    read: u8,
}

impl Loading {
    pub(super) fn keep(&mut self, peer: Incarnation, frame: machine::Frame) -> bool {
        let of_peer = self.frames.iter().filter(|(from, _)| *from == peer);
        let has_room = of_peer.count() < EARLY_MAX;
        if has_room {
            self.frames.push((peer, frame));
        }
        has_room
    }

    pub(super) fn forget(&mut self, peer: Incarnation) {
        self.frames.retain(|(from, _)| *from != peer);
    }
}

impl QueueOwner {
    pub(super) fn load(&mut self) {
        let all = (
            Loads::All,
            PartitionId::QUEUE,
            vec![0],
            rows::PAYLOADS.to_vec(),
        );
        // The rows of entries there.
        let former = (
            Loads::Former,
            PartitionId::FORMER_QUEUE,
            b"e".to_vec(),
            b"f".to_vec(),
        );
        for (of, partition, from, to) in [all, former] {
            let ticket = self.ticket();
            self.loads.insert(ticket, of);
            let load = Output::Load {
                ticket,
                partition,
                from,
                to,
            };
            self.out.push_back(load);
        }
    }

    fn machine(&self, now: Now, life: u32, former: Nodes) -> machine::Queue {
        let config = &self.config;
        let takeover_after = config.takeover_after_seconds * 1_000_000;
        let rules = machine::Config {
            copies: config.other_nodes.min(machine::OWNERS_MAX - 1),
            choice: match config.min_round_trip_micros {
                Some(micros) => Choice::Nearest(micros),
                None => Choice::Random,
            },
            silent_after: SILENT_MICROS.min(takeover_after / 2),
            takeover_after,
            repair_after: config.repair_after_seconds * 1_000_000,
            waiting_bytes_max: config.limits.bytes_max,
            handed_max: super::deliveries::HANDS_MAX,
            join,
            ..machine::Config::default()
        };
        let start = machine::Start {
            me: self.me(),
            members: self.members(),
            life,
            former,
            seed: config.seed,
        };
        machine::Queue::new(rules, start, times(now))
    }

    /// This node, by its number.
    pub(super) fn me(&self) -> Node {
        Node::new(self.config.slot).unwrap_or_default()
    }

    /// All members, by their numbers.
    pub(super) fn members(&self) -> Nodes {
        let others = self.nodes.keys().copied();
        others.chain([self.me()]).collect()
    }

    pub(super) fn loaded_page(&mut self, now: Now, page: Vec<(Vec<u8>, Bytes)>, done: bool) {
        for (key, value) in page {
            let Some(row) = rows::row_of(&key, &value) else {
                // It was accepted, so it must not be dropped: someone has to look at it.
                return self.out.push_back(Output::Fatal(format!(
                    "queue entry {key:02x?} cannot be read"
                )));
            };
            self.found(now, row);
        }
        if done {
            self.has_read(now);
        }
    }

    fn found(&mut self, now: Now, row: Row) {
        let Phase::Loading(loading) = &mut self.phase else {
            return;
        };
        match row {
            Row::Life(origin, life, numbers) => {
                loading.numbers = numbers;
                let is_older = origin != self.config.origin.get();
                loading.life = life.saturating_add(is_older.into());
            }
            Row::Away(node, micros) => loading.away.push((node, micros)),
            Row::Hold(delivery, blob) => {
                // Whoever had asked for it asks again.
                loading.gone.extend(rows::let_go(delivery, &blob));
            }
            Row::Entry(id, blob, record) => {
                if loading.machine.is_none() {
                    let (life, numbers) = (loading.life.max(1), loading.numbers);
                    let machine = Box::new(self.machine(now, life, numbers));
                    if let Phase::Loading(loading) = &mut self.phase {
                        loading.machine = Some(machine);
                    }
                }
                if let Phase::Loading(Loading {
                    machine: Some(machine),
                    ..
                }) = &mut self.phase
                {
                    machine.load(machine::Id(id.0), record);
                }
                if let Some(blob) = blob {
                    self.bodies.insert(id, blob);
                }
            }
            Row::Payload(_) => {}
        }
    }

    /// A version before kept entries of another form: it is to deliver them.
    pub(super) fn former_page(&mut self, now: Now, page: &[(Vec<u8>, Bytes)], done: bool) {
        if !page.is_empty() {
            return self.out.push_back(Output::Fatal(
                "the queue holds messages that an earlier version has accepted: start that version on all nodes, wait until the metric \
                 whimbrel_queue_entries is 0 on each, stop all nodes, and start this version"
                    .into(),
            ));
        }
        if done {
            self.has_read(now);
        }
    }

    /// Goes on if everything was read.
    fn has_read(&mut self, now: Now) {
        let Phase::Loading(loading) = &mut self.phase else {
            return;
        };
        loading.read += 1;
        if loading.read < 2 {
            return;
        }
        let loading = std::mem::take(loading);
        let life = loading.life.max(1);
        let mut machine = match loading.machine {
            Some(machine) => machine,
            None => Box::new(self.machine(now, life, loading.numbers)),
        };
        for (node, micros) in loading.away {
            machine.load_away(node, micros);
        }
        // Before anything is written in this life.
        let numbers = loading.numbers.with(self.me());
        let life_row = rows::life(self.config.origin, life, numbers);
        self.begin_life(std::iter::once(life_row).chain(loading.gone).collect());
        machine.begin();
        let found = machine.len();
        self.phase = Phase::Running(machine);
        if found > 0 && life > 1 {
            self.out.push_back(Output::Log(Note::Warning(format!(
                "the queue has {found} entries that an earlier life of this disk may have written: those that other nodes know are gone on with"
            ))));
        }
        for peer in self.links.clone() {
            if let Some(node) = self.node_of(peer) {
                self.tell(now, machine::Input::Linked(node));
            }
        }
        for (peer, frame) in loading.frames {
            if let Some(node) = self.node_of(peer) {
                self.tell(now, machine::Input::Frame(node, frame));
            }
        }
        self.carry_out(now);
        for (request, call) in std::mem::take(&mut self.calls) {
            self.call(now, request, call);
        }
    }

    /// Says on the disk whose life it is. What the disk has refused is tried again with time.
    pub(super) fn begin_life(&mut self, mutations: Vec<Mutation>) {
        let mut commit = Commit::new(log::store_partition(PartitionId::QUEUE));
        commit.room = Room::Frees;
        commit.mutations.clone_from(&mutations);
        self.commit(commit, Waiting::Life(mutations));
    }
}
