//! Whether another node lives under this incarnation: asked of a peer at the start, beside what it remembers.
//!
//! Who copies a disk below the file system copies all that could tell the copy. Neither of the two disks is older than what was told from it before
//! one of them is written to. What tells is a link: this node has none yet, so one that a peer has with its incarnation is another's.
//!
//! A link may outlast its node. One whose machine lost its power looks linked until silence ends the link
//! ([`crate::link::Config::silence_micros_max`]), and for longer at a
//! peer that does not come to read. So a link alone proves nothing, and answers to pings do: at the first question one may be under way that was sent long ago,
//! but the ping behind it was sent after that question, when this node was dead for all that is its own.

use crate::{Now, link::Config};

/// Answers to pings since the first question, by which the other lives: the second one is to a ping that was sent after it.
const ANSWERS: u64 = 2;

/// Before the peer is asked again. Usually the end of a process that was killed is just on its way; a question costs some reads.
const AGAIN_MICROS: u64 = 200_000;

/// The peer is asked for no longer than this after its first word. A link on which nothing is heard is down by then, and on one that holds two
/// answers have come: each takes less than silence may, as does what was left of the one before. The second is for the questions themselves.
fn timeout_micros() -> u64 {
    3 * Config::default().silence_micros_max + 1_000_000
}

/// What follows from a peer's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateNode {
    /// Nobody of this incarnation is linked to it, or it does not say: go on.
    Nobody,
    /// Somebody is linked, who may be this node's own last life: ask again at this moment of the monotonic clock, and write nothing before.
    Ask {
        /// When.
        at_micros: u64,
    },
    /// Another node lives under this incarnation: this one must not start.
    Generations,
    /// The link is there still, and nothing has come over it: go on, as if that peer could not be asked.
    Unknown,
}

/// The questions to one peer at one start.
#[derive(Debug, Default)]
pub struct Elsewheres {
    /// When it is asked no more, and how many pings had been answered when it was asked first; `None` before somebody is linked.
    asked: Option<(u64, u64)>,
}

impl Elsewheres {
    /// The peer answers: so many pings were answered over the link that it has with a node of this incarnation. `None`: it has none, or it is of an
    /// earlier version.
    pub fn answered(&mut self, now: Now, answered: Option<u64>) -> DuplicateNode {
        let Some(answered) = answered else {
            return DuplicateNode::Nobody;
        };
        let (until, before) = match self.asked {
            // Another link, which counts from its begin: all its pings are sent after the first question.
            Some((until, before)) => (until, before.min(answered)),
            None => (now.mono_micros.saturating_add(timeout_micros()), answered),
        };
        self.asked = Some((until, before));
        if answered - before >= ANSWERS {
            return DuplicateNode::Generations;
        }
        self.unanswered(now)
    }

    /// The peer could not be asked again.
    pub fn unanswered(&self, now: Now) -> DuplicateNode {
        match self.asked {
            Some((until, _)) if now.mono_micros < until => DuplicateNode::Ask {
                at_micros: until.min(now.mono_micros.saturating_add(AGAIN_MICROS)),
            },
            _ => DuplicateNode::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_crdt::Incarnation;

    use super::*;
    use crate::{
        link::{Arrived, Link},
        wire::{Frame, Handshake},
    };

    fn at(mono_micros: u64) -> Now {
        Now {
            wall_micros: 0,
            mono_micros,
        }
    }

    fn ask(at_micros: u64) -> DuplicateNode {
        DuplicateNode::Ask { at_micros }
    }

    /// What a peer says, each time that it is asked, and what follows in the end.
    fn check(said: &[Option<u64>], expected: DuplicateNode) {
        let (mut question, mut now) = (Elsewheres::default(), 0);
        for (index, answered) in said.iter().enumerate() {
            let follows = question.answered(at(now), *answered);
            if index + 1 == said.len() {
                assert_eq!(follows, expected, "{said:?}");
            } else {
                let DuplicateNode::Ask { at_micros } = follows else {
                    panic!("{said:?}: {follows:?} after {index}");
                };
                now = at_micros;
            }
        }
    }

    #[test]
    fn words_of_a_peer_are_judged() {
        check(&[None], DuplicateNode::Nobody);
        check(&[Some(9)], ask(AGAIN_MICROS));
        // The end of the link was on its way.
        check(&[Some(9), None], DuplicateNode::Nobody);
        // One answer was under way.
        check(&[Some(9), Some(10)], ask(2 * AGAIN_MICROS));
        check(&[Some(9), Some(10), None], DuplicateNode::Nobody);
        check(&[Some(9), Some(10), Some(11)], DuplicateNode::Generations);
        check(&[Some(9), Some(11)], DuplicateNode::Generations);
        // Another link, by which the first one was ended.
        check(&[Some(9), Some(0), Some(1)], ask(3 * AGAIN_MICROS));
        check(&[Some(9), Some(0), Some(2)], DuplicateNode::Generations);
    }

    #[test]
    fn a_link_of_which_nothing_is_heard_is_not_waited_for_for_ever() {
        let mut question = Elsewheres::default();
        let until = 7 + timeout_micros();
        assert_eq!(question.answered(at(7), Some(9)), ask(7 + AGAIN_MICROS));
        assert_eq!(question.answered(at(until - 1), Some(10)), ask(until));
        assert_eq!(question.unanswered(at(until - 1)), ask(until));
        assert_eq!(
            question.answered(at(until), Some(10)),
            DuplicateNode::Unknown
        );
        assert_eq!(question.unanswered(at(until)), DuplicateNode::Unknown);
        // Late, and a proof all the same.
        assert_eq!(
            question.answered(at(until), Some(11)),
            DuplicateNode::Generations
        );
    }

    /// A peer's end of a link with the other node, as it goes on from second zero, at which this node asks first.
    struct Peer {
        link: Link,
        /// How long the way to the other is, there and back.
        trip_micros: u64,
        /// When what comes next was sent off, and what.
        coming: Option<(u64, Frame)>,
    }

    impl Peer {
        /// Some pings were answered before; the last one is under way.
        fn new(trip_micros: u64) -> Peer {
            let handshake = |name: &str, id| Handshake {
                cluster: [1; 16],
                name: name.into(),
                incarnation: Incarnation::from_hash(id),
                wire_min: 1,
                wire_max: 1,
                features: 0,
            };
            let ours = handshake("a", 1);
            let mut link = Link::new(Config::default(), ours, "b".into(), at(0));
            let theirs = Frame::Handshake(handshake("b", 2));
            let up = link.arrive(at(0), theirs).unwrap();
            assert!(matches!(up, Arrived::Up(_)), "{up:?}");
            Peer {
                link,
                trip_micros,
                coming: None,
            }
        }

        /// Goes on to this moment; false when the link is down. Who is dead answers no ping any more, but one answer may be on its way.
        fn goes_on(&mut self, now: Now, lives: bool) -> bool {
            if let Some((sent, frame)) = self.coming.take() {
                if now.mono_micros < sent + self.trip_micros {
                    self.coming = Some((sent, frame));
                } else {
                    self.link.arrive(now, frame).unwrap();
                }
            }
            match self.link.time(now) {
                Ok(Some(Frame::Ping(ping))) if lives => {
                    let pong = crate::wire::Pong {
                        id: ping.id,
                        wall_micros: None,
                    };
                    self.coming = Some((now.mono_micros, Frame::Pong(pong)));
                    true
                }
                Ok(_) => true,
                Err(_) => false,
            }
        }
    }

    /// Whatever the way, and at whatever moment it is asked: who lives is seen, and who died at the first question is not taken for alive.
    #[test]
    fn who_lives_is_told_from_who_is_dead() {
        const TICK: u64 = 10_000;
        let silence = Config::default().silence_micros_max;
        for trip in [1_000, 300_000, 1_200_000, silence - 2 * TICK] {
            for asked_at in (5_000_000..9_000_000).step_by(130_000) {
                for lives in [true, false] {
                    let mut peer = Peer::new(trip);
                    let (mut question, mut next) = (Elsewheres::default(), asked_at);
                    let mut now = 0;
                    let ended = loop {
                        now += TICK;
                        let up = peer.goes_on(at(now), lives || now < asked_at);
                        if now < next {
                            continue;
                        }
                        let answered = up.then(|| peer.link.pongs());
                        match question.answered(at(now), answered) {
                            DuplicateNode::Ask { at_micros } => next = at_micros,
                            ended => break ended,
                        }
                    };
                    let expected = match lives {
                        true => DuplicateNode::Generations,
                        false => DuplicateNode::Nobody,
                    };
                    assert_eq!(ended, expected, "{trip} {asked_at} {lives}");
                }
            }
        }
    }
}
