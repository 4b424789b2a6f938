//! Who a node is when it starts: what its peers remember of its logs, held against its disk, and what follows (`docs/decisions/0011`).
//!
//! A disk that is older than what other nodes got from it must not go on under its incarnation: it would give numbers, and UIDs, a second time. A
//! copy of the data directory shows by itself. A snapshot below the file system does not, but the peers have what was written since.
//!
//! Invariants:
//! - A node that was removed does not serve: nobody takes what it writes.
//! - An older disk goes on under a new incarnation, unless it was written to since a start at which not all peers could be asked. Peers may then
//!   have other operations under the same numbers, so it does not start at all ([`UnverifiedPeers`]).
//! - Nobody has two slots: a node asks another member for one only under another incarnation ([`Sponsors`]).
//!
//! Reading order: [`Startup`], [`Verdict`]; [`judge`]; [`Sponsors`].

use std::collections::{BTreeMap, BTreeSet};

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Hash, Incarnation, PartitionId, VersionVector, mutants::broken};
use whimbrel_replication::{
    Now,
    identity::{Because, Identity, IdentityAnswer, Own},
    roster::Roster,
    wire::{Head, Hello, Room},
};
use whimbrel_storage::{LogPosition, Origin};

/// A member may have given a slot though its answer was lost. It is asked so often under one incarnation, which leaves time for one other member.
const SLOT_TRIES_MAX: u32 = 2;

/// The log of one incarnation in one partition, as it stands on a disk.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct RememberedLog {
    /// Where.
    #[n(0)]
    pub partition: PartitionId,
    /// The last number.
    #[n(1)]
    pub last: u64,
    /// Of the batch that ends with it.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub hash: [u8; 32],
}

impl RememberedLog {
    /// The log of `of` among the logs of a partition; `None`: nothing was written to it.
    #[must_use]
    pub fn of(
        partition: PartitionId,
        of: Incarnation,
        positions: &[(Origin, LogPosition)],
    ) -> Option<Self> {
        let mut own = positions.iter().filter(|(origin, _)| origin.0 == of.get());
        let (_, LogPosition { next, hash, .. }) = own.next()?;
        (*next > 1).then(|| RememberedLog {
            partition,
            last: next - 1,
            hash: hash.0,
        })
    }

    /// What the node that has this log would say of it in its hello for the partition.
    #[must_use]
    pub fn hello(&self, of: Incarnation) -> Hello {
        Hello {
            partition: self.partition,
            durable: [(of, self.last)].into_iter().collect(),
            applied: VersionVector::default(),
            heads: vec![Head {
                origin: of,
                hash: self.hash,
            }],
            room: Room {
                bytes: 0,
                batches: 0,
            },
            yours: None,
            anew: None,
            syncing: None,
            lives: None,
        }
    }
}

/// What is on this disk of one partition.
#[must_use]
pub fn own(me: Incarnation, positions: &[(Origin, LogPosition)]) -> Own {
    let last = positions.iter().map(|(origin, position)| {
        let origin = Incarnation::from_hash(origin.0);
        (origin, position.next - 1)
    });
    let hash = positions.iter().find(|(origin, _)| origin.0 == me.get());
    Own {
        durable: last.collect(),
        hash: hash.map_or(Hash::default(), |(_, position)| Hash(position.hash.0)),
    }
}

/// Whether what a peer has of this node's log fits to this disk.
pub enum Judged {
    /// It does.
    Fits,
    /// This disk is older.
    Older(Because),
    /// This depends on a batch of the own log.
    Look(Look),
}

/// A batch of the own log that decides.
pub struct Look {
    identity: Identity,
    peer: Incarnation,
    /// The last number of the batch.
    pub number: u64,
}

impl Look {
    /// The hash of that batch; `None`: it was deleted, and all members had it then. Why this disk is older, if it is.
    #[must_use]
    pub fn found(mut self, hash: Option<Hash>) -> Option<Because> {
        match self.identity.looked(self.peer, self.number, hash) {
            Some(IdentityAnswer::Renew(because)) => Some(because),
            _ => None,
        }
    }
}

/// Holds a peer's hello for a partition against what is on this disk.
#[must_use]
pub fn judge(me: Incarnation, peer: Incarnation, hello: &Hello, own: &Own) -> Judged {
    let mut identity = Identity::new(me, BTreeSet::from([peer]), Now::default(), u64::MAX);
    match identity.hello(peer, hello, own) {
        Some(IdentityAnswer::Renew(because)) => Judged::Older(because),
        Some(IdentityAnswer::Look { peer, number }) => Judged::Look(Look {
            identity,
            peer,
            number,
        }),
        _ => Judged::Fits,
    }
}

/// Where the logs of an incarnation ended when it was started and not all peers could be asked.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct UnverifiedPeers {
    /// Whose logs.
    #[n(0)]
    pub incarnation: Incarnation,
    /// The last number in each partition; those that are missing were empty.
    #[n(1)]
    pub ends: BTreeMap<PartitionId, u64>,
}

impl UnverifiedPeers {
    /// As the logs are now.
    #[must_use]
    pub fn new(incarnation: Incarnation, logs: &[RememberedLog]) -> UnverifiedPeers {
        let ends = logs.iter().map(|log| (log.partition, log.last));
        UnverifiedPeers {
            incarnation,
            ends: ends.collect(),
        }
    }

    /// Operations that were written since.
    #[must_use]
    pub fn written(&self, logs: &[RememberedLog]) -> u64 {
        let end = |log: &RememberedLog| self.ends.get(&log.partition).copied().unwrap_or(0);
        logs.iter()
            .map(|log| log.last.saturating_sub(end(log)))
            .sum()
    }
}

/// Why a node does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It was removed from the cluster. `alone`: operations of this disk that no peer has which was asked, and in how many partitions; `None`: no
    /// peer was asked.
    Removed {
        /// See above.
        alone: Option<(u64, usize)>,
    },
    /// Its disk is older than what its peers remember, and so many operations were written to it since a start at which not all could be asked.
    WrittenSince(u64),
}

/// What follows from the answers of the peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<P> {
    /// The node goes on under its incarnation.
    Keep,
    /// A peer knows more of the node than is on its disk, for this reason. The node goes on under a new incarnation, or not at all ([`written_since`]).
    Older(P),
    /// The node was removed, and does not start ([`Startup::removed`]).
    Removed,
}

/// The answers of the peers to a node that starts under one incarnation. `P`: the reason that a driver keeps for its log.
#[derive(Debug)]
pub struct Startup<P> {
    me: Incarnation,
    older: Option<P>,
    asked: bool,
    /// The last number of this node's log that any peer has.
    most: BTreeMap<PartitionId, u64>,
}

impl<P> Startup<P> {
    /// Nobody has answered yet.
    #[must_use]
    pub fn new(me: Incarnation) -> Self {
        Startup {
            me,
            older: None,
            asked: false,
            most: BTreeMap::new(),
        }
    }

    /// A peer has answered with its logs of this node; `older`: why this disk is older than those ([`judge`]), or than the peer's roster
    /// ([`Roster::has_forgotten`]).
    pub fn answered(&mut self, logs: &[RememberedLog], older: Option<P>) {
        self.asked = true;
        for log in logs {
            let most = self.most.entry(log.partition).or_default();
            *most = log.last.max(*most);
        }
        self.older = self.older.take().or(older);
    }

    /// What follows, once. `roster`: with what the peers know of the members.
    pub fn verdict(&mut self, roster: &Roster) -> Verdict<P> {
        if roster.members().is_out(self.me) {
            return Verdict::Removed;
        }
        match self.older.take() {
            Some(older) if !broken("older-disks-go-on") => Verdict::Older(older),
            _ => Verdict::Keep,
        }
    }

    /// Why a removed node is refused. `logs`: of this node, on its disk.
    #[must_use]
    pub fn removed(&self, logs: &[RememberedLog]) -> Refusal {
        let alone = logs.iter().map(|log| {
            let most = self.most.get(&log.partition).copied().unwrap_or(0);
            log.last.saturating_sub(most)
        });
        let alone: Vec<u64> = alone.filter(|count| *count > 0).collect();
        Refusal::Removed {
            alone: self.asked.then(|| (alone.iter().sum(), alone.len())),
        }
    }
}

/// Why an older disk does not go on even under a new incarnation, if it does not.
#[must_use]
pub fn written_since(
    me: Incarnation,
    logs: &[RememberedLog],
    unverified: &UnverifiedPeers,
) -> Option<Refusal> {
    let written = match unverified.incarnation == me {
        true => unverified.written(logs),
        false => 0,
    };
    (written > 0).then_some(Refusal::WrittenSince(written))
}

/// Which member is asked for a slot. One that did not answer may have given a slot all the same: it is asked again, which takes no second one, and
/// only then another member, under another incarnation.
#[derive(Debug)]
pub struct Sponsors {
    /// Peers that have answered at this start: they are asked first.
    answered: BTreeSet<String>,
    /// The peer that may have given a slot, and how often it was asked.
    given: Option<(String, u32)>,
    /// Peers that were given up so: they are asked last.
    slow: BTreeSet<String>,
}

impl Sponsors {
    /// Nobody has been asked for a slot.
    #[must_use]
    pub fn new(answered: BTreeSet<String>) -> Self {
        Sponsors {
            answered,
            given: None,
            slow: BTreeSet::new(),
        }
    }

    /// The peers that are asked in this round, in order. `true`: under another incarnation than in the round before.
    pub fn round<'a>(&mut self, mut peers: Vec<&'a str>) -> (Vec<&'a str>, bool) {
        let mut anew = false;
        if let Some((name, tries)) = &mut self.given
            && *tries < SLOT_TRIES_MAX
            && peers.contains(&name.as_str())
        {
            *tries += 1;
            peers.retain(|peer| peer == name);
        } else if let Some((name, _)) = self.given.take() {
            self.slow.insert(name);
            anew = true;
        }
        peers.sort_by_key(|peer| (self.slow.contains(*peer), !self.answered.contains(*peer)));
        (peers, anew)
    }

    /// This peer was asked and has not refused: it may have given a slot. The round is over.
    pub fn may_have_given(&mut self, peer: &str) {
        self.given.get_or_insert_with(|| (peer.to_owned(), 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: u64 = 1;

    fn node(id: u64) -> Incarnation {
        Incarnation::from_hash(id)
    }

    fn log(partition: u16, last: u64) -> RememberedLog {
        RememberedLog {
            partition: PartitionId(partition),
            last,
            hash: [0; 32],
        }
    }

    fn two() -> Roster {
        let mut roster = Roster::found(node(9), "a", 0, !1);
        roster
            .sponsor(node(9), node(ME), "b")
            .expect("there are slots");
        roster
    }

    #[test]
    fn written_since_is_counted() {
        let unverified = UnverifiedPeers::new(node(ME), &[log(1, 5), log(2, 7)]);
        let check =
            |logs: &[RememberedLog], expected| assert_eq!(unverified.written(logs), expected);
        check(&[log(1, 5), log(2, 7)], 0);
        check(&[log(1, 5), log(2, 9), log(3, 1)], 3);
        check(&[], 0);
    }

    #[test]
    fn verdicts() {
        let logs = [log(1, 5), log(2, 7)];
        let check =
            |is_older: bool, end: Option<(u64, u64)>, expected: Result<Verdict<&str>, u64>| {
                let mut startup = Startup::new(node(ME));
                startup.answered(&[log(1, 9)], None);
                startup.answered(&[log(2, 7)], is_older.then_some("b has more"));
                let unverified =
                    end.map(|(of, end)| UnverifiedPeers::new(node(of), &[log(1, end), log(2, 7)]));
                let verdict = match startup.verdict(&two()) {
                    Verdict::Older(because) => match unverified
                        .as_ref()
                        .and_then(|of| written_since(node(ME), &logs, of))
                    {
                        None => Ok(Verdict::Older(because)),
                        Some(Refusal::WrittenSince(written)) => Err(written),
                        Some(refusal) => panic!("{refusal:?}"),
                    },
                    verdict => Ok(verdict),
                };
                assert_eq!(verdict, expected, "{is_older} {end:?}");
            };
        check(false, None, Ok(Verdict::Keep));
        check(false, Some((ME, 3)), Ok(Verdict::Keep));
        check(true, None, Ok(Verdict::Older("b has more")));
        check(true, Some((ME, 5)), Ok(Verdict::Older("b has more")));
        check(true, Some((ME, 3)), Err(2));
        // It was kept for another incarnation.
        check(true, Some((2, 3)), Ok(Verdict::Older("b has more")));
    }

    #[test]
    fn a_removed_node_is_refused_whatever_its_disk_has() {
        let mut roster = two();
        roster.remove(node(9), node(ME), 1).expect("it is a member");
        let check = |answers: &[&[RememberedLog]], alone| {
            let mut startup = Startup::new(node(ME));
            for answer in answers {
                startup.answered(answer, Some(()));
            }
            assert_eq!(startup.verdict(&roster), Verdict::Removed);
            let refusal = startup.removed(&[log(1, 5), log(2, 7)]);
            assert_eq!(refusal, Refusal::Removed { alone });
        };
        check(&[], None);
        check(&[&[]], Some((12, 2)));
        check(&[&[log(1, 5), log(2, 6)], &[log(1, 2)]], Some((1, 1)));
        check(&[&[log(1, 5)], &[log(2, 8)]], Some((0, 0)));
    }

    #[test]
    fn another_member_is_asked_under_another_incarnation() {
        let mut sponsors = Sponsors::new(["b".to_owned()].into());
        let all = || vec!["a", "b", "c"];
        assert_eq!(sponsors.round(all()), (vec!["b", "a", "c"], false));
        sponsors.may_have_given("b");
        assert_eq!(sponsors.round(all()), (vec!["b"], false));
        sponsors.may_have_given("b");
        assert_eq!(sponsors.round(all()), (vec!["a", "c", "b"], true));
        assert_eq!(sponsors.round(all()), (vec!["a", "c", "b"], false));
        // It was removed meanwhile.
        sponsors.may_have_given("a");
        assert_eq!(sponsors.round(vec!["b", "c"]), (vec!["c", "b"], true));
    }
}
