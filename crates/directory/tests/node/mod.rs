//! A node without a disk: plans against what it sees, and hands on what it made.

#![allow(dead_code)] // Each test takes what it needs.

use whimbrel_crdt::{Context, Dot, Hlc, Incarnation, Stamp, VersionVector};
use whimbrel_directory::{Address, Directory, Op, Refusal};

/// A node: plans against what it sees, and hands on what it made.
pub(crate) struct Node {
    origin: Incarnation,
    pub(crate) directory: Directory,
    pub(crate) vector: VersionVector,
    clock: Hlc,
}

/// Operations as they travel.
pub(crate) struct Batch {
    first: Dot,
    hlc: u64,
    deps: VersionVector,
    ops: Vec<Op>,
}

impl Node {
    pub(crate) fn new(number: u64) -> Node {
        Node {
            origin: Incarnation::from_hash(number),
            directory: Directory::default(),
            vector: VersionVector::new(),
            clock: Hlc::default(),
        }
    }

    pub(crate) fn make(&mut self, wall: u64, ops: Vec<Op>) -> Batch {
        let batch = Batch {
            first: Dot::new(self.origin, self.vector.get(self.origin) + 1),
            hlc: self.clock.tick_many(wall, ops.len() as u32),
            deps: self.vector.clone(),
            ops,
        };
        self.take(&batch);
        batch
    }

    pub(crate) fn take(&mut self, batch: &Batch) {
        for (index, op) in (0..).zip(&batch.ops) {
            let dot = Dot::new(batch.first.origin, batch.first.seq + index);
            let stamp = Stamp {
                hlc: batch.hlc + index,
                origin: dot.origin,
            };
            self.directory.apply(
                &Context {
                    dot,
                    stamp,
                    deps: &batch.deps,
                },
                op,
            );
            self.vector.advance(dot.origin, dot.seq);
            self.clock.observe(stamp.hlc);
        }
    }

    pub(crate) fn add(&mut self, wall: u64, address: &str, key: u8) -> Batch {
        let slot = u8::try_from(self.origin.get() % 64).unwrap();
        let ops =
            self.directory
                .plan_add_account(address, [key; 16], wall, slot, format!("of {key}"));
        self.make(wall, ops.unwrap())
    }

    pub(crate) fn alias(&mut self, from: &str, to: &str) -> Result<(), Refusal> {
        let ops = self.directory.plan_add_alias(from, to, true)?;
        self.make(1, ops);
        Ok(())
    }

    pub(crate) fn remove(&mut self, address: &str) -> Batch {
        let (ops, _) = self.directory.plan_remove_account(address).unwrap();
        self.make(1, ops)
    }

    /// Who holds an address.
    pub(crate) fn holder(&self, address: &str) -> Option<u8> {
        Some(self.directory.holder(&named(address))?.0[0])
    }

    pub(crate) fn uid_validity(&self, address: &str) -> u32 {
        self.directory
            .holder(&named(address))
            .unwrap()
            .1
            .uid_validity
    }

    /// Key and whether set aside.
    pub(crate) fn accounts(&self) -> Vec<(u8, bool)> {
        self.directory
            .accounts()
            .map(|(key, _, aside)| (key[0], aside))
            .collect()
    }
}

pub(crate) fn named(text: &str) -> Address {
    Address::parse_alias(text).unwrap()
}
