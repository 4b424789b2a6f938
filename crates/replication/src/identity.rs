//! Finds out at the start, before anything is written, whether this disk has lost what the node had acknowledged: the node asks its peers.
//!
//! An older disk that was put back lacks what the node acknowledged later; so does a disk that did not keep a write. The node would then use the
//! numbers of its lost batches again. A peer's hello says how much of our log the peer has, under which hash, and what we last reported to it. If a
//! peer has more than we, or another hash, the node takes a new incarnation.
//!
//! If a peer has less of our log, its hash is compared with the hash in our own log ([`IdentityAnswer::Look`]).
//!
//! A disk that is copied below the file system while its node runs is not older; [`Elsewheres`] detects the copy.

mod duplicate_node;

use std::collections::BTreeSet;

use whimbrel_crdt::{Hash, Incarnation, VersionVector};

pub use self::duplicate_node::{DuplicateNode, Elsewheres};
use crate::{Now, broken, wire::Hello};

/// What this node has when a hello arrives.
#[derive(Clone, Debug)]
pub struct Own {
    /// What is on its disk, by origin.
    pub durable: VersionVector,
    /// The hash of the last batch of its own log.
    pub hash: Hash,
}

/// Why the incarnation must not be used any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// A peer has more of our log than we.
    TheyHaveMore {
        /// The peer.
        peer: Incarnation,
        /// The last number that the peer has.
        number: u64,
    },
    /// A peer has another batch under one of our numbers.
    TheyHaveOther {
        /// The peer.
        peer: Incarnation,
        /// The number.
        number: u64,
    },
    /// We once reported to a peer more of some log than we have now.
    WeHadMore {
        /// The peer.
        peer: Incarnation,
    },
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityAnswer {
    /// Give [`Identity::looked`] the hash of the batch in our own log that ends with this number.
    Look {
        /// The peer whose hash is compared.
        peer: Incarnation,
        /// The number.
        number: u64,
    },
    /// Take a new incarnation and a free slot. The log of the old incarnation stays on this disk as a closed log.
    Renew(Because),
    /// Keep the incarnation. If a peer that did not answer in time has more of our log, the partition raises an alarm later.
    Keep {
        /// Whether all peers have answered.
        all: bool,
    },
}

/// The check of one partition at one start.
pub struct Identity {
    me: Incarnation,
    missing: BTreeSet<Incarnation>,
    looking: BTreeSet<(Incarnation, u64, Hash)>,
    until: u64,
    decided: bool,
}

impl Identity {
    /// Begins the check with these members. Those that do not answer in time count as unreachable; a node that reaches no peer goes on.
    pub fn new(
        me: Incarnation,
        members: BTreeSet<Incarnation>,
        now: Now,
        timeout_micros: u64,
    ) -> Self {
        let mut missing = members;
        missing.remove(&me);
        Self {
            me,
            missing,
            looking: BTreeSet::new(),
            until: now.mono_micros.saturating_add(timeout_micros),
            decided: false,
        }
    }

    /// When to call [`Identity::time`], on the monotonic clock.
    pub fn deadline(&self) -> u64 {
        self.until
    }

    /// A peer's hello, also after the decision: a late peer may still have more of our log. `own` is what this node has now, since what it wrote in
    /// the meantime is its own.
    pub fn hello(&mut self, peer: Incarnation, hello: &Hello, own: &Own) -> Option<IdentityAnswer> {
        let mine = own.durable.get(self.me);
        let number = hello.durable.get(self.me);
        if number > mine && !broken("amnesia-unnoticed") {
            return self.renew(Because::TheyHaveMore { peer, number });
        }
        if let Some(told) = &hello.yours
            && !own.durable.covers_all(told)
        {
            return self.renew(Because::WeHadMore { peer });
        }
        let mut heads = hello.heads.iter();
        let head = heads.find(|head| head.origin == self.me && number > 0);
        match head {
            Some(head) if number == mine && head.hash() != own.hash => {
                return self.renew(Because::TheyHaveOther { peer, number });
            }
            Some(head) if number < mine => {
                self.looking.insert((peer, number, head.hash()));
                return Some(IdentityAnswer::Look { peer, number });
            }
            _ => {}
        }
        self.answered(peer)
    }

    /// The hash in our own log at that number. `None`: that part of the log was cut, so all members had it by then.
    pub fn looked(
        &mut self,
        peer: Incarnation,
        number: u64,
        hash: Option<Hash>,
    ) -> Option<IdentityAnswer> {
        let asked = self
            .looking
            .iter()
            .find(|(p, n, _)| (*p, *n) == (peer, number));
        let asked = *asked?;
        self.looking.remove(&asked);
        if hash.is_some_and(|hash| hash != asked.2) {
            return self.renew(Because::TheyHaveOther { peer, number });
        }
        self.answered(peer)
    }

    /// Time has passed.
    pub fn time(&mut self, now: Now) -> Option<IdentityAnswer> {
        if self.decided || now.mono_micros < self.until {
            return None;
        }
        self.decided = true;
        Some(IdentityAnswer::Keep { all: false })
    }

    fn answered(&mut self, peer: Incarnation) -> Option<IdentityAnswer> {
        self.missing.remove(&peer);
        if self.decided || !self.missing.is_empty() {
            return None;
        }
        self.decided = true;
        Some(IdentityAnswer::Keep { all: true })
    }

    fn renew(&mut self, because: Because) -> Option<IdentityAnswer> {
        self.decided = true;
        Some(IdentityAnswer::Renew(because))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Head, Room};
    use whimbrel_crdt::PartitionId;

    fn node(id: u64) -> Incarnation {
        Incarnation::new(id).unwrap()
    }

    fn vector(pairs: &[(u64, u64)]) -> VersionVector {
        pairs.iter().map(|(id, seq)| (node(*id), *seq)).collect()
    }

    fn own() -> Own {
        Own {
            durable: vector(&[(1, 10), (2, 5)]),
            hash: Hash([1; 32]),
        }
    }

    fn identity() -> Identity {
        let members = [node(1), node(2), node(3)].into();
        Identity::new(node(1), members, Now::default(), 100)
    }

    fn hello(durable: &[(u64, u64)], hash: u8, yours: Option<&[(u64, u64)]>) -> Hello {
        Hello {
            partition: PartitionId(0),
            durable: vector(durable),
            applied: vector(durable),
            heads: vec![Head {
                origin: node(1),
                hash: [hash; 32],
            }],
            room: Room {
                bytes: 0,
                batches: 0,
            },
            yours: yours.map(vector),
            anew: None,
            syncing: None,
            lives: None,
        }
    }

    #[test]
    fn hellos_are_judged() {
        let check = |said: Hello, expected: Option<IdentityAnswer>| {
            assert_eq!(
                identity().hello(node(2), &said, &own()),
                expected,
                "{said:?}"
            );
        };
        let peer = node(2);
        let renew = |because| Some(IdentityAnswer::Renew(because));
        check(hello(&[(1, 10)], 1, None), None);
        check(hello(&[(2, 9)], 1, Some(&[(2, 5)])), None);
        let more = Because::TheyHaveMore { peer, number: 11 };
        check(hello(&[(1, 11)], 1, None), renew(more));
        let other = Because::TheyHaveOther { peer, number: 10 };
        check(hello(&[(1, 10)], 2, None), renew(other));
        let had = Because::WeHadMore { peer };
        check(hello(&[(1, 10)], 1, Some(&[(2, 6)])), renew(had));
        let look = IdentityAnswer::Look { peer, number: 7 };
        check(hello(&[(1, 7)], 2, None), Some(look));
    }

    #[test]
    fn an_older_number_is_looked_up() {
        let check = |ours: Option<Hash>, expected: Option<IdentityAnswer>| {
            let mut identity = identity();
            identity.hello(node(3), &hello(&[], 0, None), &own());
            identity.hello(node(2), &hello(&[(1, 7)], 2, None), &own());
            assert_eq!(identity.looked(node(2), 7, ours), expected);
        };
        check(
            Some(Hash([2; 32])),
            Some(IdentityAnswer::Keep { all: true }),
        );
        check(None, Some(IdentityAnswer::Keep { all: true }));
        let (peer, number) = (node(2), 7);
        let because = Because::TheyHaveOther { peer, number };
        check(Some(Hash([3; 32])), Some(IdentityAnswer::Renew(because)));
    }

    #[test]
    fn a_node_that_is_alone_goes_on() {
        let mut identity = identity();
        let late = Now {
            wall_micros: 0,
            mono_micros: 100,
        };
        assert_eq!(identity.time(Now::default()), None);
        assert_eq!(
            identity.time(late),
            Some(IdentityAnswer::Keep { all: false })
        );
        assert_eq!(identity.time(late), None);
        let (peer, number) = (node(3), 11);
        let late = identity.hello(peer, &hello(&[(1, 11)], 0, None), &own());
        let because = Because::TheyHaveMore { peer, number };
        assert_eq!(late, Some(IdentityAnswer::Renew(because)));
    }

    #[test]
    fn batches_written_after_the_start_are_our_own() {
        let mut identity = identity();
        let late = Now {
            wall_micros: 0,
            mono_micros: 100,
        };
        assert_eq!(
            identity.time(late),
            Some(IdentityAnswer::Keep { all: false })
        );
        // The peer got two batches from this node since the start, through a third node, and remembers what this node has reported since.
        let now = Own {
            durable: vector(&[(1, 12), (2, 6)]),
            hash: Hash([2; 32]),
        };
        let said = hello(&[(1, 12), (2, 6)], 2, Some(&[(1, 12), (2, 6)]));
        assert_eq!(identity.hello(node(3), &said, &now), None);
        let (peer, number) = (node(3), 12);
        let because = Because::TheyHaveOther { peer, number };
        let other = hello(&[(1, 12)], 3, None);
        assert_eq!(
            identity.hello(peer, &other, &now),
            Some(IdentityAnswer::Renew(because))
        );
    }
}
