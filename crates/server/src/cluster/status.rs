//! The cluster as commands show it: members, links, lag, and what a removal or a drain would mean.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use whimbrel_cluster::{ClusterId, Linked};
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_replication::{
    holders::Phase,
    roster::{Holding, Roster},
};
use whimbrel_service::peers::{PartitionReport, PeerReport};

/// How many partitions of accounts the node has in this phase.
fn of_phase(roster: &Roster, node: Incarnation, phase: Phase) -> u64 {
    let all = (0..=u8::MAX).map(PartitionId::accounts);
    let of = all.filter(|partition| roster.holder_state(node, *partition).phase == phase);
    of.count() as u64
}

/// Members that have this phase in a partition, by name, with their present incarnations.
fn members(
    roster: &Roster,
    partition: PartitionId,
    phase: Phase,
) -> impl Iterator<Item = (&str, Incarnation)> {
    let all = roster.present();
    let all = all.map(|(name, place)| (name, place.incarnation));
    all.filter(move |(_, id)| roster.holder_state(*id, partition).phase == phase)
}

/// The names alone.
fn names<'m>(of: impl Iterator<Item = (&'m str, Incarnation)>) -> Vec<String> {
    of.map(|(name, _)| name.to_owned()).collect()
}

/// Members that left a partition, hold it again, and are not known to have all of it.
fn come_back(roster: &Roster, me: Option<Incarnation>, report: &PartitionReport) -> Vec<String> {
    let partition = report.partition;
    let peers = report.open.as_ref().map(|open| &open.peers);
    let of = members(roster, partition, Phase::Holds);
    names(of.filter(|(_, id)| {
        let syncing = match me == Some(*id) {
            true => report.syncing,
            false => peers
                .and_then(|of| of.get(id))
                .is_some_and(|peer| peer.syncing > 0),
        };
        syncing && roster.holder_state(*id, partition).generation > 0
    }))
}

/// The question of `whimbrel cluster remove`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    /// The node's name, or one of its incarnations.
    pub node: String,
    /// Only the incarnations before the present one.
    pub earlier: bool,
    /// Whether to remove it; otherwise the answer only says what that would mean.
    pub really: bool,
}

impl Remove {
    pub(super) fn incarnations(&self, roster: &Roster) -> Result<Vec<Incarnation>, String> {
        let members = roster.members();
        let present = roster
            .places()
            .get(&self.node)
            .map(|place| place.incarnation);
        let named = members.iter().filter(|(id, member)| {
            let named = member.name == self.node || format!("{:016x}", id.get()) == self.node;
            named && !(self.earlier && Some(*id) == present)
        });
        let named: Vec<Incarnation> = named.map(|(id, _)| id).collect();
        let lives: Vec<Incarnation> = named
            .iter()
            .copied()
            .filter(|id| !members.is_out(*id))
            .collect();
        match (lives.is_empty(), named.is_empty()) {
            (false, _) => Ok(lives),
            // The node does it by itself.
            (true, false) if self.earlier => Ok(Vec::new()),
            (true, false) => Err(format!("{} was removed already", self.node)),
            (true, true) if self.earlier => Err(format!("{} has no earlier lives", self.node)),
            (true, true) => Err(format!("there is no node {} in the cluster", self.node)),
        }
    }
}

/// The progress of a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Sessions that have not ended yet.
    pub sessions: u64,
    /// Accepted messages that are not in their mailboxes yet.
    pub queue_entries: u64,
    /// The other members, and what they hold of what is here.
    pub others: Vec<DrainLine>,
    /// How many of them hold all of a partition of this node: the least number over all partitions, since a node need not hold all. `None`: an
    /// earlier version, which does not say, and holds all.
    #[serde(default)]
    pub least: Option<u64>,
    /// Whether the node accepts no sessions; `None`: an earlier version, which does not say, and whose progress cannot be seen without draining it.
    #[serde(default)]
    pub draining: Option<bool>,
}

/// The question of `whimbrel cluster drain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainAsk {
    /// Accept no sessions from now on.
    Begin,
    /// Only report the progress: another command may have cancelled the drain.
    Look,
    /// Accept sessions again.
    Cancel,
}

impl DrainAsk {
    /// From the two flags on the wire, of which earlier versions know only the first.
    pub(crate) fn new(cancel: bool, look: bool) -> Self {
        match (cancel, look) {
            (true, _) => DrainAsk::Cancel,
            (false, true) => DrainAsk::Look,
            (false, false) => DrainAsk::Begin,
        }
    }

    /// The two flags.
    pub(crate) fn words(self) -> (bool, bool) {
        (self == DrainAsk::Cancel, self == DrainAsk::Look)
    }
}

/// What one other member holds of what is here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainLine {
    /// Its name.
    pub name: String,
    /// Whether there is a link to it.
    pub linked: bool,
    /// Ops that it has not reported as stored. Nodes of other versions read and write it by this name.
    // Nodes of other versions read and write it by this name.
    #[serde(rename = "lacks")]
    pub lag_operations: Option<u64>,
    /// What it has received and not put in its place: ops that are not applied, blobs that are missing. `None`: it does not answer.
    pub unfinished: Option<u64>,
}

impl DrainLine {
    /// Whether it has all that is here.
    #[must_use]
    pub fn holds_all(&self) -> bool {
        self.linked && self.lag_operations == Some(0) && self.unfinished == Some(0)
    }
}

/// What a removal means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// The incarnations to be removed.
    pub lives: Vec<RemovalLine>,
    /// The remaining members, without this node.
    pub others: Vec<RemovalLine>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalLine {
    /// Its name.
    pub name: String,
    /// Hexadecimal.
    pub incarnation: String,
    /// Whether there is a link to it.
    pub linked: bool,
}

/// The cluster as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its id, hexadecimal.
    pub cluster: String,
    /// All incarnations that belong to it, or did.
    pub nodes: Vec<NodeLine>,
    /// Why the node that was asked makes no ops, if its clock is wrong.
    #[serde(default)]
    pub clock: Option<String>,
    /// The node that was asked; `None`: no server runs there.
    #[serde(default)]
    pub here: Option<Here>,
    /// Its partitions.
    #[serde(default)]
    pub partitions: Vec<PartitionLine>,
}

impl Status {
    /// The status, from what is known.
    pub(crate) fn of(
        cluster: ClusterId,
        roster: &Roster,
        me: Option<Incarnation>,
        links: &[Linked],
    ) -> Self {
        let free = roster.members().free_of_all();
        let lines = roster.members().iter().map(|(incarnation, member)| {
            let place = roster.places().get(&member.name);
            let place = place.filter(|place| place.incarnation == incarnation);
            let link = links.iter().find(|link| link.incarnation == incarnation);
            NodeLine {
                name: member.name.clone(),
                incarnation: format!("{:016x}", incarnation.get()),
                slot: member.slot,
                slots_free: free.get(&incarnation).map(|slots| slots.count_ones()),
                removed: roster.members().is_out(incarnation),
                closed: member.closed().is_some(),
                region: place.map(|place| place.region.clone()),
                role: place.map(|place| place.role().name().to_owned()),
                address: place.map(|place| place.address.clone()),
                this: me == Some(incarnation),
                linked: link.is_some(),
                round_trip_micros: link.and_then(|link| link.round_trip_micros),
                clock_ahead_micros: link.and_then(|link| link.ahead_micros),
                received: link.map_or(0, |link| link.received),
                sent: link.map_or(0, |link| link.sent),
                seconds: None,
                holds: of_phase(roster, incarnation, Phase::Holds),
                leaves: of_phase(roster, incarnation, Phase::Leaves),
                lag_operations: None,
                lag_bytes: 0,
                lag_seconds: 0,
                lag_at_least: false,
                drained: false,
                has_more: None,
                queued_bytes: 0,
                syncing: 0,
            }
        });
        Status {
            cluster: cluster.iter().map(|byte| format!("{byte:02x}")).collect(),
            nodes: lines.collect(),
            clock: None,
            here: None,
            partitions: Vec::new(),
        }
    }

    /// Adds the reports of the machines. `now_micros`: of the machines' monotonic clock. `served`: the nodes that serve a partition, as
    /// [`PartitionLine::served_by`].
    pub(super) fn add(
        &mut self,
        (roster, me): (&Roster, Option<Incarnation>),
        reports: &[PartitionReport],
        now_micros: u64,
        served: impl Fn(PartitionId) -> Vec<String>,
    ) {
        let mut here = Here::default();
        let mut peers: BTreeMap<Incarnation, PeerReport> = BTreeMap::new();
        let mut without_size = BTreeSet::new();
        for report in reports {
            let open = report.open.as_ref();
            let logs = || open.iter().flat_map(|open| open.logs.values());
            let of_peers = open.iter().flat_map(|open| &open.peers);
            let line = PartitionLine {
                partition: report.partition.0,
                held_by: names(members(roster, report.partition, Phase::Holds)),
                comes_back: come_back(roster, me, report),
                leaves: names(members(roster, report.partition, Phase::Leaves)),
                served_by: served(report.partition),
                open: open.is_some(),
                operations: logs().map(|log| log.stored).sum(),
                applied: logs().map(|log| log.applied).sum(),
                stable: open.map_or(0, |open| open.stable),
                lag: of_peers
                    .clone()
                    .filter(|(_, peer)| peer.lacks > 0)
                    .map(|(id, peer)| (format!("{:016x}", id.get()), Lag::of(peer, now_micros)))
                    .collect(),
                uids_reassigned: report.uids_reassigned,
                blobs_missing: report.blobs_missing,
                accounts_stalled: report.accounts_stalled,
                syncing: report.syncing,
                logs: open
                    .iter()
                    .flat_map(|open| &open.logs)
                    // A member that has written nothing yet has no log.
                    .filter(|(_, log)| log.stored > 0)
                    .map(|(id, log)| (format!("{:016x}", id.get()), LogLine::of(log)))
                    .collect(),
            };
            for (id, peer) in of_peers {
                let sum = peers.entry(*id).or_default();
                *sum = sum.plus(*peer);
                if Lag::of(peer, now_micros).has_no_size() {
                    without_size.insert(*id);
                }
            }
            here.partitions += 1;
            here.opening += u64::from(!line.open);
            here.operations += line.operations;
            here.applied += line.applied;
            here.stable += line.stable;
            here.uids_reassigned += line.uids_reassigned;
            here.blobs_missing += line.blobs_missing;
            here.accounts_stalled += line.accounts_stalled;
            here.syncing += u64::from(line.syncing);
            self.partitions.push(line);
        }
        self.partitions.sort_by_key(|line| line.partition);
        for node in &mut self.nodes {
            let mut known = peers.iter();
            let known = known.find(|(id, _)| format!("{:016x}", id.get()) == node.incarnation);
            if let Some((id, peer)) = known {
                node.lag_operations = Some(peer.lacks);
                let lag = Lag::of(peer, now_micros);
                (node.lag_bytes, node.lag_seconds) = (lag.bytes, lag.seconds);
                node.lag_at_least = without_size.contains(id);
                node.has_more = Some(peer.has_more);
                node.queued_bytes = peer.queued_bytes;
                node.syncing = peer.syncing;
            }
            if node.this {
                node.syncing = here.syncing;
            }
        }
        self.here = Some(here);
    }
}

/// The totals of the node that was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Here {
    /// Partitions with a log.
    pub partitions: u64,
    /// How many of these are being opened; nothing is known of them yet.
    pub opening: u64,
    /// Ops on disk, of all nodes: the sum of the last numbers of all logs.
    pub operations: u64,
    /// Of these, applied.
    pub applied: u64,
    /// Of these, stable: hidden records of before can be dropped.
    pub stable: u64,
    /// Reassigned UIDs, since the start.
    #[serde(default)]
    pub uids_reassigned: u64,
    /// Blobs that are named and missing here.
    pub blobs_missing: u64,
    /// Stalled accounts.
    pub accounts_stalled: u64,
    /// Partitions in which this node is syncing.
    #[serde(default)]
    pub syncing: u64,
}

/// A partition at the node that was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionLine {
    /// Its number: below 256 for partitions of accounts, 256 for the directory.
    pub partition: u16,
    /// Names of the members that hold it, or have come back to it.
    #[serde(default)]
    pub held_by: Vec<String>,
    /// Members that have come back to it and are not known to have all of it: nothing is known of a peer that was not linked since the start.
    #[serde(default)]
    pub comes_back: Vec<String>,
    /// Members that are about to leave it, and do not count as holders any more.
    #[serde(default)]
    pub leaves: Vec<String>,
    /// The nodes that serve its sessions in the region of the node that was asked, the first one first, linked or not. Empty: each holder serves the
    /// clients that reach it.
    #[serde(default)]
    pub served_by: Vec<String>,
    /// Whether it is open; otherwise the further fields are empty.
    pub open: bool,
    /// As of [`Here`].
    pub operations: u64,
    /// As of [`Here`].
    pub applied: u64,
    /// As of [`Here`].
    pub stable: u64,
    /// Peers that have not reported all that is here, and what they lack.
    pub lag: BTreeMap<String, Lag>,
    /// As of [`Here`].
    #[serde(default)]
    pub uids_reassigned: u64,
    /// As of [`Here`].
    pub blobs_missing: u64,
    /// As of [`Here`].
    pub accounts_stalled: u64,
    /// As of [`Here`].
    #[serde(default)]
    pub syncing: bool,
    /// The end of each writer's log here, by its incarnation: of all that ever wrote.
    #[serde(default)]
    pub logs: BTreeMap<String, LogLine>,
}

/// How much of one writer's log the node that was asked has. Its ops are numbered from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// The last number that is on disk.
    pub stored: u64,
    /// The last number that is applied: later ops wait for those of others.
    pub applied: u64,
}

impl LogLine {
    fn of(log: &Holding) -> Self {
        LogLine {
            stored: log.stored,
            applied: log.applied,
        }
    }
}

/// What a peer has not reported as stored of what is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lag {
    /// How many operations.
    pub operations: u64,
    /// Their bytes, as far as known: not of ops that were here before this node started, or before its first link to the peer.
    pub bytes: u64,
    /// How long the oldest of them has been here, counted from the start at most.
    pub seconds: u64,
}

impl Lag {
    fn of(peer: &PeerReport, now_micros: u64) -> Self {
        let since = peer.lag_since_micros.unwrap_or(now_micros);
        Lag {
            operations: peer.lacks,
            bytes: peer.lag_bytes,
            seconds: now_micros.saturating_sub(since) / 1_000_000,
        }
    }

    /// Whether the bytes of all of them are unknown, and `seconds` is a lower bound. If that holds for some only, it cannot be told.
    #[must_use]
    pub fn has_no_size(&self) -> bool {
        self.operations > 0 && self.bytes == 0
    }
}

impl NodeLine {
    /// Whether it is the present incarnation of its node, and not removed: an earlier incarnation has no address.
    #[must_use]
    pub fn is_member(&self) -> bool {
        self.address.is_some() && !self.removed
    }
}

/// One incarnation of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLine {
    /// Of the node.
    pub name: String,
    /// Hexadecimal.
    pub incarnation: String,
    /// The slot of its UIDs.
    pub slot: u8,
    /// How many free slots it owns; `None`: its logs are closed, or an earlier version, which does not say.
    #[serde(default)]
    pub slots_free: Option<u32>,
    /// Whether it was removed.
    #[serde(default)]
    pub removed: bool,
    /// Whether its logs are closed: it does not count any more, and its slot is free.
    #[serde(default)]
    pub closed: bool,
    /// Its region; `None`: the node has another incarnation now, or was never heard.
    pub region: Option<String>,
    /// Its role.
    #[serde(default)]
    pub role: Option<String>,
    /// Its address.
    pub address: Option<String>,
    /// Whether it is the node that was asked.
    pub this: bool,
    /// Whether there is a link to it.
    pub linked: bool,
    /// The last round trip.
    pub round_trip_micros: Option<u64>,
    /// How far its clock is ahead of that of the node that was asked; negative: behind.
    #[serde(default)]
    pub clock_ahead_micros: Option<i64>,
    /// Bytes received on the link.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// For how long the link is up, or down; `None`: it was never up since the start.
    #[serde(default)]
    pub seconds: Option<u64>,
    /// Ops that are on disk here and that it has not reported as stored.
    #[serde(default)]
    pub lag_operations: Option<u64>,
    /// As of [`Lag`].
    #[serde(default)]
    pub lag_bytes: u64,
    /// As of [`Lag`].
    #[serde(default)]
    pub lag_seconds: u64,
    /// Whether bytes and seconds are lower bounds, because one partition [`Lag::has_no_size`].
    #[serde(default)]
    pub lag_at_least: bool,
    /// Partitions of accounts that it holds, or has come back to.
    #[serde(default)]
    pub holds: u64,
    /// Partitions of accounts that it is about to leave.
    #[serde(default)]
    pub leaves: u64,
    /// Whether it is drained; known of the node that was asked.
    #[serde(default)]
    pub drained: bool,
    /// Ops that it has reported as stored and that are not on disk here.
    #[serde(default)]
    pub has_more: Option<u64>,
    /// Bytes that wait to be sent to it, or to be acknowledged by it.
    #[serde(default)]
    pub queued_bytes: u64,
    /// Partitions in which it is syncing: others serve its clients. For other nodes than the one that was asked, this covers ops only.
    #[serde(default)]
    pub syncing: u64,
}

#[cfg(test)]
mod tests {
    use whimbrel_cluster::NodeName;
    use whimbrel_replication::roster::Place;
    use whimbrel_service::peers::Report;

    use super::*;

    const A: u64 = 0xa;
    const B: u64 = 0xb;
    const C: u64 = 0xc;
    /// The monotonic clock, when it is asked.
    const NOW: u64 = 100_000_000;

    fn id(number: u64) -> Incarnation {
        Incarnation::new(number).unwrap()
    }

    fn hex(number: u64) -> String {
        format!("{number:016x}")
    }

    /// Three nodes. `c` holds a replica.
    fn roster() -> Roster {
        let mut roster = Roster::found(id(A), "a", 0, !1);
        for (number, name, role) in [(A, "a", None), (B, "b", None), (C, "c", Some(1))] {
            let _ = roster.sponsor(id(A), id(number), name).unwrap();
            let place = Place {
                shares: None,
                version: 1,
                incarnation: id(number),
                address: format!("{name}.example.org:10700"),
                region: "eu".into(),
                role,
            };
            roster.announce(name, place).unwrap();
        }
        roster
    }

    /// `a` is asked, and has a link to `b`.
    fn status() -> Status {
        let linked = Linked {
            name: NodeName::new("b").unwrap(),
            incarnation: id(B),
            wire: 1,
            features: 0,
            round_trip_micros: Some(41_210),
            ahead_micros: Some(12_000),
            pongs: 1,
            received: 10,
            sent: 20,
        };
        Status::of([7; 16], &roster(), Some(id(A)), &[linked])
    }

    fn lacks(operations: u64, bytes: u64, since_micros: u64) -> PeerReport {
        PeerReport {
            lacks: operations,
            lag_bytes: bytes,
            lag_since_micros: Some(since_micros),
            ..PeerReport::default()
        }
    }

    fn report(partition: u16, logs: &[(u64, u64, u64)], peers: &[(u64, PeerReport)]) -> Report {
        let log = |&(of, stored, applied): &(u64, u64, u64)| {
            let log = Holding {
                taken: stored + 1,
                stored,
                applied,
                ..Holding::default()
            };
            (id(of), log)
        };
        Report {
            logs: logs.iter().map(log).collect(),
            stable: u64::from(partition),
            peers: peers.iter().map(|(of, peer)| (id(*of), *peer)).collect(),
            ..Report::default()
        }
    }

    fn partition(partition: u16, open: Option<Report>) -> PartitionReport {
        PartitionReport {
            partition: PartitionId(partition),
            open,
            blobs_missing: 0,
            accounts_stalled: 0,
            uids_reassigned: 0,
            syncing: false,
            complete_at: BTreeSet::new(),
            left: None,
        }
    }

    #[test]
    fn nodes_are_shown_as_they_are_placed_and_linked() {
        let status = status();
        let shown = status.nodes.iter().map(|node| {
            let role = node.role.as_deref().unwrap();
            let trip = node.round_trip_micros;
            (&node.name[..], role, node.this, node.linked, trip)
        });
        let expected = [
            ("a", "worker", true, false, None),
            ("b", "worker", false, true, Some(41_210)),
            ("c", "storage", false, false, None),
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        assert_eq!(status.nodes[1].clock_ahead_micros, Some(12_000));
        assert_eq!((status.nodes[1].received, status.nodes[1].sent), (10, 20));
        assert!(status.nodes.iter().all(|node| node.holds == 256));
    }

    #[test]
    fn what_partitions_tell_is_added_up() {
        let more = PeerReport {
            has_more: 5,
            queued_bytes: 70,
            syncing: 1,
            ..lacks(2, 300, NOW - 9_500_000)
        };
        let first = report(
            2,
            &[(A, 10, 10), (B, 7, 4), (C, 0, 0)],
            &[(B, lacks(3, 200, NOW - 4_000_000)), (C, lacks(17, 0, 0))],
        );
        let second = report(
            1,
            &[(A, 100, 100)],
            &[(B, more), (C, PeerReport::default())],
        );
        let reports = [
            PartitionReport {
                uids_reassigned: 6,
                blobs_missing: 2,
                ..partition(2, Some(first))
            },
            PartitionReport {
                accounts_stalled: 1,
                syncing: true,
                ..partition(1, Some(second))
            },
            partition(3, None),
        ];
        let mut status = status();
        status.add((&roster(), Some(id(A))), &reports, NOW, |_| Vec::new());
        let here = Here {
            partitions: 3,
            opening: 1,
            operations: 117,
            applied: 114,
            stable: 3,
            uids_reassigned: 6,
            blobs_missing: 2,
            accounts_stalled: 1,
            syncing: 1,
        };
        assert_eq!(status.here, Some(here));

        // Of all partitions together, with the oldest.
        let lag = |node: &NodeLine| (node.lag_operations, node.lag_bytes, node.lag_seconds);
        let lags: Vec<_> = status.nodes.iter().map(lag).collect();
        let of_peers = [(Some(5), 500, 9), (Some(17), 0, 100)];
        assert_eq!(lags, [&[(None, 0, 0)], &of_peers[..]].concat());
        let at_least = status.nodes.iter().map(|node| node.lag_at_least);
        assert_eq!(at_least.collect::<Vec<_>>(), [false, false, true]);
        let b = &status.nodes[1];
        assert_eq!((b.has_more, b.queued_bytes, b.syncing), (Some(5), 70, 1));
        assert_eq!(status.nodes[2].has_more, Some(0));
        assert_eq!(status.nodes[0].syncing, 1, "this node's own");

        let numbers: Vec<u16> = status.partitions.iter().map(|of| of.partition).collect();
        assert_eq!(numbers, [1, 2, 3]);
        let [first, second, third] = &status.partitions[..] else {
            unreachable!("three were told");
        };
        let lag = |operations, bytes, seconds| Lag {
            operations,
            bytes,
            seconds,
        };
        let log = |stored, applied| LogLine { stored, applied };
        // A peer that lacks nothing is not listed.
        assert_eq!(first.lag, [(hex(B), lag(2, 300, 9))].into());
        assert_eq!(
            second.lag,
            [(hex(B), lag(3, 200, 4)), (hex(C), lag(17, 0, 100))].into()
        );
        assert_eq!(first.logs, [(hex(A), log(100, 100))].into());
        assert_eq!(
            second.logs,
            [(hex(A), log(10, 10)), (hex(B), log(7, 4))].into()
        );
        assert_eq!((second.operations, second.applied), (17, 14));
        assert_eq!((second.uids_reassigned, second.blobs_missing), (6, 2));
        assert!(first.syncing && first.accounts_stalled == 1 && first.open);
        assert!(!third.open && third.logs.is_empty() && third.lag.is_empty());
    }

    #[test]
    fn who_holds_a_partition_and_who_serves_it() {
        let mut roster = roster();
        let of = PartitionId::accounts;
        for (node, partition) in [(C, of(1)), (C, of(2)), (A, of(4))] {
            roster.leave(id(node), partition).unwrap();
            roster.left(id(node), partition, 9).unwrap();
            roster.come(id(node), partition).unwrap();
        }
        roster.leave(id(B), of(2)).unwrap();
        roster.leave(id(B), of(3)).unwrap();
        roster.left(id(B), of(3), 9).unwrap();
        let syncing = |syncing| PeerReport {
            syncing,
            ..PeerReport::default()
        };
        let told = |number, b, c| {
            let peers = [(B, syncing(b)), (C, syncing(c))];
            partition(number, Some(report(number, &[], &peers)))
        };
        let reports = [
            // It has all of the partition again.
            told(1, 0, 0),
            told(2, 0, 1),
            // It is new there, and has not come back.
            told(3, 0, 1),
            PartitionReport {
                syncing: true,
                ..told(4, 1, 0)
            },
            partition(0x100, None),
        ];
        let shown = |roster: &Roster| {
            let mut status = status();
            status.add((roster, Some(id(A))), &reports, NOW, |of| {
                vec![format!("the first of {}", of.0)]
            });
            let lines = status.partitions.iter().map(|line| {
                assert_eq!(line.served_by, [format!("the first of {}", line.partition)]);
                [&line.held_by, &line.comes_back, &line.leaves].map(|of| of.join(" "))
            });
            lines.collect::<Vec<_>>()
        };
        let expected = [
            ["a b c", "", ""],
            ["a c", "c", "b"],
            ["a c", "", ""],
            ["a b c", "a", ""],
            ["a b c", "", ""],
        ];
        assert_eq!(shown(&roster), expected);
        assert!(roster.remove(id(A), id(C), 1).unwrap());
        let expected = [
            ["a b", "", ""],
            ["a", "", "b"],
            ["a", "", ""],
            ["a b", "a", ""],
            ["a b", "", ""],
        ];
        assert_eq!(shown(&roster), expected);
    }

    /// After a restart the size of each op is unknown.
    #[test]
    fn a_lag_of_before_the_start_has_no_size() {
        let lag = |operations, bytes| Lag::of(&lacks(operations, bytes, 0), NOW);
        assert!(lag(3, 0).has_no_size());
        assert!(!lag(3, 1).has_no_size() && !lag(0, 0).has_no_size());
    }

    /// The ops that a peer lacks were here before the clock of the node that is asked began to count.
    #[test]
    fn a_lag_is_never_of_the_future() {
        let peer = lacks(1, 1, NOW + 1);
        assert_eq!(Lag::of(&peer, NOW).seconds, 0);
        assert_eq!(Lag::of(&PeerReport::default(), NOW), Lag::default());
    }
}
