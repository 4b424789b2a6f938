//! Finds out at the start whether another node runs under this incarnation: the node asks its peers for their links.
//!
//! A disk that was copied below the file system carries nothing by which the copy could be told from the original. Neither disk is older than what
//! its node has reported, before one of them is written to. A link tells them apart: this node has no link yet, so a peer's link with its incarnation
//! belongs to another node.
//!
//! A link may outlast its node. If the node's machine loses its power, the link looks alive until silence ends it
//! ([`crate::link::Config::silence_micros_max`]), and longer if the peer does not get to read. So a link alone proves nothing; answers to pings do.
//! At the first question, an answer that was sent long ago may still arrive. The next ping is sent after that question: only another node can answer
//! it.

use crate::{Now, link::Config};

/// So many answers to pings after the first question prove that another node runs: the second one answers a ping that was sent after the question.
const ANSWERS: u64 = 2;

/// Time before the peer is asked again. Usually the link of a killed process is about to end. A question costs some reads.
const AGAIN_MICROS: u64 = 200_000;

/// How long a peer is asked after its first answer. By then a silent link is down. On a live link two answers have come: each takes less than the
/// longest silence, and so does the rest of the answer before. The added second is for the questions themselves.
fn timeout_micros() -> u64 {
    3 * Config::default().silence_micros_max + 1_000_000
}

/// What follows from a peer's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateNode {
    /// The peer has no link with this incarnation, or is of a version that does not say: go on.
    Nobody,
    /// The peer has a link with this incarnation, which this node's own last process may have left. Ask again at this moment of the monotonic clock,
    /// and write nothing before.
    Ask {
        /// When.
        at_micros: u64,
    },
    /// Another node lives under this incarnation: this one must not start.
    Alive,
    /// The link still exists, but no answers come over it: go on as if the peer could not be reached.
    Unknown,
}

/// The questions to one peer at one start.
#[derive(Debug, Default)]
pub struct Elsewheres {
    /// When the questions end, and how many pings had been answered at the first one. `None`: the peer has reported no link yet.
    asked: Option<(u64, u64)>,
}

impl Elsewheres {
    /// The peer's answer: so many pings were answered over its link with this incarnation. `None`: the peer has no such link, or is of an earlier
    /// version.
    pub fn answered(&mut self, now: Now, answered: Option<u64>) -> DuplicateNode {
        let Some(answered) = answered else {
            return DuplicateNode::Nobody;
        };
        let (until, before) = match self.asked {
            // A smaller number is that of a new link, whose pings were all sent after the first question.
            Some((until, before)) => (until, before.min(answered)),
            None => (now.mono_micros.saturating_add(timeout_micros()), answered),
        };
        self.asked = Some((until, before));
        if answered - before >= ANSWERS {
            return DuplicateNode::Alive;
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

    /// The peer's answers in turn, and the result of the last one.
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
    fn answers_of_a_peer_are_judged() {
        check(&[None], DuplicateNode::Nobody);
        check(&[Some(9)], ask(AGAIN_MICROS));
        // The link ends.
        check(&[Some(9), None], DuplicateNode::Nobody);
        // One answer was under way.
        check(&[Some(9), Some(10)], ask(2 * AGAIN_MICROS));
        check(&[Some(9), Some(10), None], DuplicateNode::Nobody);
        check(&[Some(9), Some(10), Some(11)], DuplicateNode::Alive);
        check(&[Some(9), Some(11)], DuplicateNode::Alive);
        // A new link replaced the first one.
        check(&[Some(9), Some(0), Some(1)], ask(3 * AGAIN_MICROS));
        check(&[Some(9), Some(0), Some(2)], DuplicateNode::Alive);
    }

    #[test]
    fn a_silent_link_is_not_waited_for_for_ever() {
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
        // A late answer is a proof as well.
        assert_eq!(question.answered(at(until), Some(11)), DuplicateNode::Alive);
    }

    /// A peer's end of a link with the other node, which runs from second zero; this node asks later.
    struct Peer {
        link: Link,
        /// The round trip between the peer and the other node.
        trip_micros: u64,
        /// When the next frame was sent, and the frame.
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

        /// Runs to this moment; false when the link is down. A node that is dead answers no ping any more, but one answer may be on its way.
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

    /// For each round trip and each moment of the question: a live node is detected, and a node that died before the first question is not taken for
    /// alive.
    #[test]
    fn a_live_node_is_told_from_a_dead_one() {
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
                        true => DuplicateNode::Alive,
                        false => DuplicateNode::Nobody,
                    };
                    assert_eq!(ended, expected, "{trip} {asked_at} {lives}");
                }
            }
        }
    }
}
