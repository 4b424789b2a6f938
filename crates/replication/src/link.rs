//! A stream between two nodes: checks who is at the other end, which version both speak, and whether the peer is alive.
//!
//! Both sides send their handshake at once, and nothing else before the other's handshake has come. The driver has checked the certificate; this
//! module checks that the certificate has the name in the handshake.

use whimbrel_crdt::Incarnation;

use crate::{
    Now,
    wire::{Frame, Handshake, Ping, Pong},
};

/// Times of a link.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The time between two pings.
    pub ping_after_micros: u64,
    /// A peer that was not heard for so long is not live (docs/design.md#glossary).
    pub silence_micros_max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ping_after_micros: 1_000_000,
            silence_micros_max: 3_000_000,
        }
    }
}

/// What both ends agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The other node's name.
    pub name: String,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The version spoken.
    pub wire: u16,
    /// What both can do.
    pub features: u64,
}

/// Why the stream is closed. This goes to the log file; all but `Silent` need an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The node belongs to another cluster.
    #[error("the node {0} belongs to another cluster")]
    Cluster(String),
    /// The certificate has another name than the handshake.
    #[error("the node calls itself {said}, its certificate says {certified}")]
    Name {
        /// In the handshake.
        said: String,
        /// In the certificate.
        certified: String,
    },
    /// The peer is this node.
    #[error("this is a stream to ourselves")]
    Oneself,
    /// No version is spoken by both.
    #[error("the node speaks versions {min} to {max} of the wire format")]
    Version {
        /// Its oldest.
        min: u16,
        /// Its newest.
        max: u16,
    },
    /// A frame came before the handshake, or a second handshake.
    #[error("a frame out of order")]
    Order,
    /// Nothing was heard for too long.
    #[error("nothing was heard for too long")]
    Silent,
}

/// What to do with a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The link is up.
    Up(Agreed),
    /// The frame is for a partition, or for blobs.
    Pass(Frame),
    /// Send this answer.
    Answer(Frame),
    /// Nothing more to do.
    Nothing,
}

/// One end of a stream.
#[derive(Debug)]
pub struct Link {
    config: Config,
    ours: Handshake,
    certified: String,
    agreed: Option<Agreed>,
    heard_at: u64,
    /// The number of the last ping and when it was sent, until it is answered.
    asked: Option<(u64, u64)>,
    pings: u64,
    pinged_at: u64,
    round_trip_micros: Option<u64>,
    /// How far the peer's wall clock is ahead of our monotonic clock, which nobody sets.
    ahead_of_mono_micros: Option<i64>,
    pongs: u64,
}

impl Link {
    /// A new stream to the node whose certificate has this name. Send [`Link::handshake`] first.
    pub fn new(config: Config, ours: Handshake, certified: String, now: Now) -> Self {
        Self {
            config,
            ours,
            certified,
            agreed: None,
            heard_at: now.mono_micros,
            asked: None,
            pings: 0,
            pinged_at: now.mono_micros,
            round_trip_micros: None,
            ahead_of_mono_micros: None,
            pongs: 0,
        }
    }

    /// The first frame to send.
    pub fn handshake(&self) -> Frame {
        Frame::Handshake(self.ours.clone())
    }

    /// What was agreed on, once the link is up.
    pub fn agreed(&self) -> Option<&Agreed> {
        self.agreed.as_ref()
    }

    /// The last round trip, in microseconds.
    pub fn round_trip_micros(&self) -> Option<u64> {
        self.round_trip_micros
    }

    /// How far the peer's wall clock was ahead of our monotonic clock at the last round trip, to within half of that round trip. Added to the
    /// difference of our own two clocks it compares the two wall clocks, also when ours was set since ([`crate::clocks::Clocks`]).
    pub fn ahead_of_mono_micros(&self) -> Option<i64> {
        self.ahead_of_mono_micros
    }

    /// How many round trips were measured.
    pub fn pongs(&self) -> u64 {
        self.pongs
    }

    /// Bytes of a frame came: a peer that sends a long frame is not silent meanwhile.
    pub fn heard(&mut self, now: Now) {
        self.heard_at = now.mono_micros;
    }

    /// Takes a frame.
    ///
    /// The driver has to close the stream.
    pub fn arrive(&mut self, now: Now, frame: Frame) -> Result<Arrived, LinkError> {
        self.heard_at = now.mono_micros;
        match (frame, &self.agreed) {
            (Frame::Handshake(theirs), None) => {
                let agreed = agree(&self.ours, theirs, &self.certified)?;
                self.agreed = Some(agreed.clone());
                Ok(Arrived::Up(agreed))
            }
            (Frame::Handshake(_), Some(_)) | (_, None) => Err(LinkError::Order),
            (Frame::Ping(ping), Some(_)) => Ok(Arrived::Answer(Frame::Pong(Pong {
                id: ping.id,
                wall_micros: Some(now.wall_micros),
            }))),
            (Frame::Pong(pong), Some(_)) => {
                if let Some((_, at)) = self.asked.filter(|(id, _)| *id == pong.id) {
                    self.asked = None;
                    let trip = now.mono_micros.saturating_sub(at);
                    self.round_trip_micros = Some(trip);
                    self.pongs += 1;
                    self.ahead_of_mono_micros = pong.wall_micros.map(|wall| {
                        let ours = now.mono_micros.saturating_sub(trip / 2);
                        i64::try_from(i128::from(wall) - i128::from(ours)).unwrap_or(i64::MAX)
                    });
                }
                Ok(Arrived::Nothing)
            }
            (frame, Some(_)) => Ok(Arrived::Pass(frame)),
        }
    }

    /// Time has passed: a ping to send, if one is due.
    ///
    /// # Errors
    /// The peer is silent: close the stream.
    pub fn time(&mut self, now: Now) -> Result<Option<Frame>, LinkError> {
        let since = |then: u64| now.mono_micros.saturating_sub(then);
        if since(self.heard_at) >= self.config.silence_micros_max {
            return Err(LinkError::Silent);
        }
        let due = since(self.pinged_at) >= self.config.ping_after_micros;
        if self.agreed.is_none() || self.asked.is_some() || !due {
            return Ok(None);
        }
        self.pings += 1;
        self.pinged_at = now.mono_micros;
        self.asked = Some((self.pings, now.mono_micros));
        Ok(Some(Frame::Ping(Ping { id: self.pings })))
    }

    /// This node reads no frames at present, so it sees no answers. Returns a ping to send, if one is due, so that the peer knows that this node is
    /// alive.
    pub fn busy(&mut self, now: Now) -> Option<Frame> {
        let due = now.mono_micros.saturating_sub(self.pinged_at) >= self.config.ping_after_micros;
        if self.agreed.is_none() || !due {
            return None;
        }
        self.asked = None;
        self.heard(now);
        self.time(now).ok().flatten()
    }

    /// When [`Link::busy`] wants to be called, on the monotonic clock.
    pub fn busy_deadline(&self) -> u64 {
        self.pinged_at.saturating_add(self.config.ping_after_micros)
    }

    /// When [`Link::time`] wants to be called, on the monotonic clock.
    pub fn deadline(&self) -> u64 {
        let silent = self.heard_at.saturating_add(self.config.silence_micros_max);
        if self.agreed.is_some() && self.asked.is_none() {
            silent.min(self.pinged_at.saturating_add(self.config.ping_after_micros))
        } else {
            silent
        }
    }
}

fn agree(ours: &Handshake, theirs: Handshake, certified: &str) -> Result<Agreed, LinkError> {
    if theirs.cluster != ours.cluster {
        return Err(LinkError::Cluster(theirs.name));
    }
    if theirs.name != certified {
        return Err(LinkError::Name {
            said: theirs.name,
            certified: certified.to_owned(),
        });
    }
    if theirs.name == ours.name || theirs.incarnation == ours.incarnation {
        return Err(LinkError::Oneself);
    }
    let wire = theirs.wire_max.min(ours.wire_max);
    if wire < theirs.wire_min.max(ours.wire_min) {
        return Err(LinkError::Version {
            min: theirs.wire_min,
            max: theirs.wire_max,
        });
    }
    Ok(Agreed {
        name: theirs.name,
        incarnation: theirs.incarnation,
        wire,
        features: theirs.features & ours.features,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake(name: &str, id: u64, wire: (u16, u16)) -> Handshake {
        Handshake {
            cluster: [1; 16],
            name: name.into(),
            incarnation: Incarnation::new(id).unwrap(),
            wire_min: wire.0,
            wire_max: wire.1,
            features: 0b0110,
        }
    }

    #[test]
    fn handshakes_are_judged() {
        let check = |theirs: Handshake, expected: Result<(u16, u64), LinkError>| {
            let ours = Handshake {
                features: 0b0011,
                ..handshake("a", 1, (2, 4))
            };
            let mut link = Link::new(Config::default(), ours, "b".into(), Now::default());
            let found = match link.arrive(Now::default(), Frame::Handshake(theirs)) {
                Ok(Arrived::Up(agreed)) => Ok((agreed.wire, agreed.features)),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error),
            };
            assert_eq!(found, expected);
        };
        check(handshake("b", 2, (1, 3)), Ok((3, 0b0010)));
        check(handshake("b", 2, (4, 9)), Ok((4, 0b0010)));
        check(
            handshake("b", 2, (5, 9)),
            Err(LinkError::Version { min: 5, max: 9 }),
        );
        check(
            handshake("b", 2, (1, 1)),
            Err(LinkError::Version { min: 1, max: 1 }),
        );
        check(handshake("b", 1, (1, 3)), Err(LinkError::Oneself));
        let stranger = Handshake {
            cluster: [2; 16],
            ..handshake("b", 2, (1, 3))
        };
        check(stranger, Err(LinkError::Cluster("b".into())));
        let said = "c".to_owned();
        let certified = "b".to_owned();
        check(
            handshake("c", 2, (1, 3)),
            Err(LinkError::Name { said, certified }),
        );
    }

    #[test]
    fn silence_ends_a_link_and_pings_measure_it() {
        let at = |seconds: u64| Now {
            wall_micros: 0,
            mono_micros: seconds * 1_000_000,
        };
        let ours = handshake("a", 1, (1, 1));
        let mut link = Link::new(Config::default(), ours, "b".into(), at(0));
        let early = link.arrive(at(0), Frame::Ping(Ping { id: 1 }));
        assert_eq!(early, Err(LinkError::Order));
        let theirs = Frame::Handshake(handshake("b", 2, (1, 1)));
        assert!(link.arrive(at(0), theirs.clone()).is_ok());
        assert_eq!(link.arrive(at(0), theirs), Err(LinkError::Order));
        assert_eq!(link.deadline(), 1_000_000);
        let ping = link.time(at(1)).unwrap().unwrap();
        assert_eq!(link.time(at(2)), Ok(None));
        let Frame::Ping(ping) = ping else { panic!() };
        let pong = Frame::Pong(Pong {
            id: ping.id,
            wall_micros: Some(7_000_000),
        });
        let now = Now {
            wall_micros: 5_000_000,
            ..at(2)
        };
        assert_eq!(link.arrive(now, pong), Ok(Arrived::Nothing));
        // The peer read its clock half a round trip ago.
        assert_eq!(link.ahead_of_mono_micros(), Some(5_500_000));
        assert_eq!(link.pongs(), 1);
        assert_eq!(link.round_trip_micros(), Some(1_000_000));
        link.heard(at(4));
        assert!(link.time(at(5)).is_ok());
        // A node that reads nothing goes on to send pings, and does not count the peer as silent.
        assert_eq!(link.busy_deadline(), 6_000_000);
        assert_eq!(link.busy(at(5)), None);
        assert_eq!(link.busy(at(9)), Some(Frame::Ping(Ping { id: 3 })));
        assert_eq!(link.busy(at(10)), Some(Frame::Ping(Ping { id: 4 })));
        assert_eq!(link.time(at(12)), Ok(None));
        link.heard(at(4));
        assert_eq!(link.time(at(7)), Err(LinkError::Silent));
    }
}
