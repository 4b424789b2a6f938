//! What nodes ask each other beside their links: to be let in, and what a peer remembers.

use std::collections::BTreeSet;

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Dot, Incarnation, PartitionId};
use whimbrel_replication::roster::{Holding, Roster};
use whimbrel_service::cluster::startup::RememberedLog;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) enum Question {
    /// Let this incarnation of the node in; answered with the members.
    #[n(0)]
    Join {
        #[n(0)]
        incarnation: Incarnation,
    },
    /// Take no more sessions, or some again; for members. Answered with how far that is, as JSON, since the administrator's socket says the same.
    #[n(3)]
    Drain {
        #[n(0)]
        cancel: bool,
        /// Only answer. An earlier version does not know it; none is asked so that has not said whether it is drained ([`super::Drain`]).
        #[n(1)]
        look: Option<bool>,
    },
    /// How much of what you were sent is not in its place: operations that are not applied, bodies that are not there? Answered with a number.
    #[n(2)]
    Unfinished,
    /// How much of the logs of these do you hold in these partitions, as far as you hold them? Answered with [`LogHeld`]s. For members. Of no more
    /// than [`LOGS_MAX`].
    #[n(4)]
    Holdings {
        #[n(0)]
        partitions: Vec<PartitionId>,
        #[n(1)]
        of: Vec<Incarnation>,
        /// Also in those to which you have come back, and of which you have not all.
        #[n(2)]
        syncing: Option<bool>,
    },
    /// What do you have of its logs? Answered with [`Remembered`].
    #[n(1)]
    Remember {
        #[n(0)]
        incarnation: Incarnation,
    },
}

/// Logs that are asked about at once, partitions times incarnations: each takes some 60 bytes of the answer, which may have 256 KiB.
pub(super) const LOGS_MAX: usize = 2048;

/// Questions that together ask about all of these.
pub(super) fn pages(
    partitions: &BTreeSet<PartitionId>,
    of: &[Incarnation],
    syncing: bool,
) -> Vec<Question> {
    let partitions: Vec<PartitionId> = partitions.iter().copied().collect();
    let mut pages = Vec::new();
    for of in of.chunks(LOGS_MAX) {
        for partitions in partitions.chunks(LOGS_MAX / of.len()) {
            pages.push(Question::Holdings {
                partitions: partitions.to_vec(),
                of: of.to_vec(),
                syncing: Some(syncing),
            });
        }
    }
    pages
}

/// What a peer has of the logs of one incarnation, and what it knows of the members.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct Remembered {
    #[n(0)]
    pub(super) roster: Roster,
    #[n(1)]
    pub(super) logs: Vec<RememberedLog>,
    /// The time there; `None`: an earlier version.
    #[n(2)]
    pub(super) wall_micros: Option<u64>,
    /// How many pings a node of that incarnation has answered there over the link that is up; `None`: it is not linked, or an earlier version, which
    /// does not say it.
    #[n(3)]
    pub(super) answered: Option<u64>,
}

/// How much of a log there is where its partition is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct LogHeld {
    #[n(0)]
    pub(super) partition: PartitionId,
    #[n(1)]
    pub(super) of: Incarnation,
    #[n(2)]
    pub(super) taken: u64,
    #[n(3)]
    pub(super) stored: u64,
    #[n(4)]
    pub(super) applied: u64,
    /// As in [`Holding`]; an earlier version does not say it.
    #[n(5)]
    pub(super) lacks: Option<Dot>,
    /// As in [`Holding`]; an earlier version says nothing of what it lacks where that is so.
    #[n(6)]
    pub(super) syncing: Option<bool>,
}

impl LogHeld {
    pub(super) fn new(partition: PartitionId, of: Incarnation, log: Holding) -> Self {
        let Holding {
            taken,
            stored,
            applied,
            lacks,
            syncing,
        } = log;
        LogHeld {
            partition,
            of,
            taken,
            stored,
            applied,
            lacks,
            syncing: syncing.then_some(true),
        }
    }

    pub(super) fn holding(self) -> Holding {
        Holding {
            taken: self.taken,
            stored: self.stored,
            applied: self.applied,
            lacks: self.lacks,
            syncing: self.syncing == Some(true),
        }
    }
}

/// A question to a member, and who asks: a node that was removed may run on under a name that is another's now. Earlier versions do not read what is behind
/// the question.
pub(super) fn asked(question: &Question, by: Incarnation) -> Vec<u8> {
    let mut detail = encoded(question);
    detail.extend(encoded(&by));
    detail
}

/// Who asks; `None`: an earlier version, which does not say it.
pub(super) fn asked_by(detail: &[u8]) -> Option<Incarnation> {
    let mut decoder = minicbor::Decoder::new(detail);
    decoder.skip().ok()?;
    decoder.decode().ok()
}

pub(super) fn encoded<T: Encode<()>>(value: &T) -> Vec<u8> {
    match minicbor::to_vec(value) {
        Ok(bytes) => bytes,
        Err(error) => unreachable!("writing to memory cannot fail: {error}"),
    }
}

/// Holds what is written now against what the first version wrote, kept in `fixtures`: that is read, and written again as it was.
#[cfg(test)]
pub(super) fn is_kept<T: Encode<()> + for<'b> Decode<'b, ()>>(file: &str, now: &[T]) {
    let path = format!("{}/fixtures/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("WHIMBREL_WRITE_FIXTURES").is_some() {
        std::fs::write(&path, encoded(&now)).expect("the fixture is written");
    }
    let kept = std::fs::read(&path).expect("the fixture is there");
    assert_eq!(encoded(&now), kept, "{file}");
    let read: Vec<T> = minicbor::decode(&kept).expect("it is read");
    assert_eq!(encoded(&read), kept, "{file}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_of_version_1_are_kept() {
        let node = Incarnation::from_hash;
        is_kept(
            "questions-v1.cbor",
            &[
                Question::Join {
                    incarnation: node(7),
                },
                Question::Remember {
                    incarnation: node(8),
                },
                Question::Unfinished,
                Question::Drain {
                    cancel: true,
                    look: Some(false),
                },
                Question::Holdings {
                    partitions: vec![PartitionId::accounts(3), PartitionId::FORMER_QUEUE],
                    of: vec![node(7), node(8)],
                    syncing: Some(true),
                },
            ],
        );
        let log = RememberedLog {
            partition: PartitionId::DIRECTORY,
            last: 9,
            hash: [5; 32],
        };
        let remembered = Remembered {
            roster: Roster::found(node(7), "a", 0, !1),
            logs: vec![log],
            wall_micros: Some(1_700_000_000_000_000),
            answered: Some(3),
        };
        is_kept("remembered-v1.cbor", &[remembered]);
        let log = Holding {
            taken: 4,
            stored: 3,
            applied: 2,
            lacks: Some(Dot::new(node(8), 1)),
            syncing: false,
        };
        let held = LogHeld::new(PartitionId::accounts(3), node(7), log);
        is_kept("held-v1.cbor", &[held]);
        let syncing = Holding {
            syncing: true,
            ..log
        };
        let held = LogHeld::new(PartitionId::accounts(3), node(7), syncing);
        is_kept("held-syncing-v1.cbor", &[held]);
    }

    /// The question is read as earlier versions do, whoever asks.
    #[test]
    fn a_question_says_who_asks() {
        let by = Incarnation::from_hash(9);
        for question in [Question::Unfinished, Question::Remember { incarnation: by }] {
            let detail = asked(&question, by);
            assert_eq!(minicbor::decode::<Question>(&detail).unwrap(), question);
            assert_eq!(asked_by(&detail), Some(by));
            assert_eq!(asked_by(&encoded(&question)), None);
        }
    }

    /// As the version before this one has it.
    #[derive(PartialEq, Debug, Encode, Decode)]
    enum Before {
        #[n(3)]
        Drain {
            #[n(0)]
            cancel: bool,
        },
    }

    #[test]
    fn versions_understand_each_other_about_drains() {
        let (cancel, look) = (true, Some(false));
        let new = encoded(&Question::Drain { cancel, look });
        let before = Before::Drain { cancel };
        assert_eq!(minicbor::decode::<Before>(&new).unwrap(), before);
        let old = minicbor::decode(&encoded(&before)).unwrap();
        assert_eq!(Question::Drain { cancel, look: None }, old);
    }

    /// As the version has it that does not say who is linked.
    #[derive(PartialEq, Debug, Encode, Decode)]
    struct RememberedBefore {
        #[n(0)]
        roster: Roster,
        #[n(1)]
        logs: Vec<RememberedLog>,
        #[n(2)]
        wall_micros: Option<u64>,
    }

    #[test]
    fn versions_understand_each_other_about_who_is_linked() {
        let roster = || Roster::found(Incarnation::from_hash(1), "a", 0, !1);
        let said = |answered| Remembered {
            roster: roster(),
            logs: Vec::new(),
            wall_micros: Some(7),
            answered,
        };
        let before = RememberedBefore {
            roster: roster(),
            logs: Vec::new(),
            wall_micros: Some(7),
        };
        for answered in [None, Some(0), Some(9)] {
            let new = encoded(&said(answered));
            assert_eq!(
                minicbor::decode::<Remembered>(&new).unwrap(),
                said(answered)
            );
            assert_eq!(minicbor::decode::<RememberedBefore>(&new).unwrap(), before);
        }
        // Nobody is waited for who does not say it.
        let old = encoded(&before);
        assert_eq!(minicbor::decode::<Remembered>(&old).unwrap(), said(None));
    }

    #[test]
    fn each_log_is_asked_about_once_and_the_answers_fit() {
        let node = |id: u64| Incarnation::new(id).expect("not zero");
        // All partitions of accounts, and as many nodes as were ever removed.
        for nodes in [1, 3, 50, LOGS_MAX as u64, LOGS_MAX as u64 + 7] {
            let partitions: BTreeSet<PartitionId> =
                (0..=u8::MAX).map(PartitionId::accounts).collect();
            let of: Vec<Incarnation> = (1..=nodes).map(|id| node(u64::MAX - id)).collect();
            let mut asked = BTreeSet::new();
            for page in pages(&partitions, &of, false) {
                assert!(encoded(&page).len() < 256 << 10);
                let Question::Holdings { partitions, of, .. } = page else {
                    panic!("it is no question of that kind");
                };
                let most = Holding {
                    taken: u64::MAX,
                    stored: u64::MAX,
                    applied: u64::MAX,
                    lacks: Some(Dot::new(node(u64::MAX), u64::MAX)),
                    syncing: false,
                };
                let mut answer = Vec::new();
                for partition in partitions {
                    answer.extend(of.iter().map(|of| LogHeld::new(partition, *of, most)));
                }
                assert!(encoded(&answer).len() < 256 << 10);
                assert!(answer.len() <= LOGS_MAX);
                for log in answer {
                    assert!(asked.insert((log.partition, log.of)), "asked twice");
                }
            }
            assert_eq!(asked.len(), 256 * nodes as usize);
        }
        assert_eq!(pages(&BTreeSet::new(), &[node(1)], true), []);
        assert_eq!(pages(&[PartitionId::QUEUE].into(), &[], true), []);
    }
}
