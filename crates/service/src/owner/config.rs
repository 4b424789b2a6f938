//! What an owner is told at the start, and of its peers since.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_mailbox::RestoreRecovery;
use whimbrel_replication::{partition::Membership, waits};

use super::split_commits;
use crate::{
    api::{MESSAGES_PER_CALL_MAX, Quota},
    peers::{self, Holders, Phase},
};

/// What an owner is told at the start.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node's incarnation.
    pub origin: Incarnation,
    /// Its slot: the low bits of the UIDs it claims.
    pub slot: u8,
    /// Accounts in memory, in bytes, of all owners of the node: beyond it those that nobody watches are evicted. `storage.accounts_bytes_max`.
    pub accounts_bytes_max: usize,
    /// How many owners the node has. `server.owners`.
    pub owners: usize,
    /// What each account may hold.
    pub quota: Quota,
    /// Calls that wait for one account to be loaded: beyond, a client is told to try later. A limit of memory against a store that
    /// hangs. `limits.waiting_calls_max`.
    pub waiting_calls_max: usize,
    /// How often this node's slots have been used up: see [`whimbrel_mailbox::RestoreRecovery`].
    pub round: u32,
    /// How far an account's UIDs leap ahead when an older copy of the disk was put back. Not a key: smaller ones are for tests of what
    /// follows when it was not enough.
    pub lead: u32,
    /// Messages that one call moves or removes: [`MESSAGES_PER_CALL_MAX`]. Not a key: smaller ones are for tests of what is cut.
    pub messages_per_call_max: usize,
    /// Bytes of rows that another node's batch changes in one commit. Not a key: smaller ones are for tests of what is cut.
    pub foreign_bytes_max: usize,
    /// How long a removed message's bytes stay, in seconds, so that a session which is reading them can end. `storage.collect_after`.
    pub collect_after_seconds: u64,
    /// The other members of its partitions, and their slots: nothing is forgotten before all of them have it. Empty: this node is alone.
    pub peers: BTreeMap<Incarnation, u8>,
    /// Which partitions the members hold.
    pub holders: Holders,
    /// This node leaves a partition only if so many others hold it: more than have to have what is accepted.
    pub holders_min: usize,
    /// Those that were members until their logs were closed, and the slots they had: clients that were at them may come at any time.
    pub former: BTreeMap<Incarnation, u8>,
    /// Whether it belongs to a cluster, perhaps as the only one: the store says then where the logs stand, those of nodes that were members among them.
    pub in_cluster: bool,
    /// Whether it came to its cluster with an empty disk, or goes on under a new incarnation, since it has lost something: then it serves of each
    /// partition nothing before it has what another node had.
    pub syncing: bool,
    /// Bounds and times of what goes to and comes from them.
    pub shipping: peers::Config,
    /// How much of it waits at once, of all partitions. `cluster.replication_buffer_bytes_max`.
    pub windows: peers::budget::Config,
    /// How long answers wait for other nodes, where calls ask for that (`cluster.write_timeout`), and how many of a partition at once.
    pub waits: waits::Config,
}

impl Config {
    /// The slot of which a member makes its claims, or made them when it was one: no other that it may be taken for has it now.
    pub(super) fn slot_of(&self, member: Incarnation) -> Option<u8> {
        let has_it = |slot: &u8| *slot == self.slot || self.peers.values().any(|of| of == slot);
        let gone = || self.former.get(&member).filter(|slot| !has_it(slot));
        self.peers.get(&member).or_else(gone).copied()
    }

    /// Slots of all that are members beside this node, or were.
    pub(super) fn slots_of_others(&self) -> BTreeSet<u8> {
        let all = self.peers.values().chain(self.former.values());
        all.copied().collect()
    }

    /// Whether nobody else has, or may have, what is here.
    pub(super) fn is_alone(&self) -> bool {
        self.peers.is_empty() && !self.in_cluster
    }

    pub(super) fn renewal(&self) -> RestoreRecovery {
        RestoreRecovery {
            incarnation: self.origin,
            round: self.round,
            lead: self.lead,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            // Replaced by every driver; an incarnation is never zero.
            origin: Incarnation::from_hash(1),
            slot: 0,
            accounts_bytes_max: 64 << 20,
            owners: 1,
            quota: Quota::default(),
            waiting_calls_max: 1024,
            round: 0,
            lead: LEAD,
            messages_per_call_max: MESSAGES_PER_CALL_MAX,
            foreign_bytes_max: split_commits::BATCH_BYTES_MAX,
            collect_after_seconds: 60,
            peers: BTreeMap::new(),
            holders: Holders::default(),
            holders_min: 1,
            former: BTreeMap::new(),
            in_cluster: false,
            syncing: false,
            shipping: peers::Config::default(),
            windows: peers::budget::Config::default(),
            waits: waits::Config::default(),
        }
    }
}

/// 2^18 counters, 0.4 % of all: more than an account is given, beyond one in 32 s, between a backup and the loss. It grows with the age of
/// the copy, to 1.2 % at most.
const LEAD: u32 = 1 << 18;

impl Config {
    /// The members, this node included, as the machine of a partition is told of them.
    pub(super) fn members_of(&self, partition: PartitionId) -> BTreeMap<Incarnation, Membership> {
        let members = self.peers.keys().copied().chain([self.origin]);
        let holder_state = self.holders.of(partition, members).into_iter();
        holder_state.map(|(id, of)| (id, of.membership())).collect()
    }

    /// Whether a member has something of a partition.
    pub(super) fn has(&self, member: Incarnation, partition: PartitionId) -> bool {
        self.holders.holder_state(member, partition).phase != Phase::Away
    }

    /// Whether a member goes on holding a partition.
    pub(super) fn holds(&self, member: Incarnation, partition: PartitionId) -> bool {
        self.holders.holds(member, partition)
    }
}
