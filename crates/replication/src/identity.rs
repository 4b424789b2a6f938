//! Whether this disk is what it was: asked of the peers at the start, before anything is written.
//!
//! A node that lost what it had acknowledged, by an older disk put back or a write that was not kept, would give its numbers a second time. Peers
//! know better: their hellos say how much of our log they have, under which hash, and what we once told them to have. If they know more
//! or other, the node takes a new incarnation.
//!
//! A peer that has less of our log is asked nothing back: its hash is looked up in our own log ([`IdentityAnswer::Look`]).
//!
//! A disk that was copied below the file system while the node lives is not older, and is seen otherwise ([`Elsewheres`]).

mod duplicate_node;

use std::collections::BTreeSet;

use whimbrel_crdt::{Hash, Incarnation, VersionVector};

pub use self::duplicate_node::{DuplicateNode, Elsewheres};
use crate::{Now, broken, wire::Hello};

/// What this node has, at the moment at which a hello comes.
#[derive(Clone, Debug)]
pub struct Own {
    /// What is on its disk.
    pub durable: VersionVector,
    /// The hash of the last batch of its own log.
    pub hash: Hash,
}

/// Why the incarnation cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// A peer has more of our log than we.
    TheyHaveMore {
        /// Who.
        peer: Incarnation,
        /// Up to which number.
        number: u64,
    },
    /// A peer has another batch under one of our numbers.
    TheyHaveOther {
        /// Who.
        peer: Incarnation,
        /// Which number.
        number: u64,
    },
    /// We once told a peer to have more of someone's log.
    WeHadMore {
        /// Who.
        peer: Incarnation,
    },
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityAnswer {
    /// Tell [`Identity::looked`] the hash of the batch in our own log that ends with this number.
    Look {
        /// For whom.
        peer: Incarnation,
        /// Which number.
        number: u64,
    },
    /// Take a new incarnation, and with it a free slot; what the disk has is another replica's closed log.
    Renew(Because),
    /// Go on. `all`: every peer was asked; else those who did not answer may know better later, which is an alarm of the partition.
    Keep {
        /// Whether all have answered.
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
    /// Asks these members whether this node is `me`, as it believes; those who do not answer in time are unreachable, and a node that is alone goes on.
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

    /// When [`Identity::time`] is wanted.
    pub fn deadline(&self) -> u64 {
        self.until
    }

    /// A peer's hello. Also after the decision: who answers late can still know more. What was written since is ours, so it is held against `own` as
    /// it is now.
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

    /// What our own log has there; `None` if that was cut, which all had by then.
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
    fn what_was_written_meanwhile_is_ours() {
        let mut identity = identity();
        let late = Now {
            wall_micros: 0,
            mono_micros: 100,
        };
        assert_eq!(
            identity.time(late),
            Some(IdentityAnswer::Keep { all: false })
        );
        // The peer has two batches that were written since the start, by way of another, and remembers what it was told of a third node then.
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
