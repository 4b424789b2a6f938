//! What nodes say to each other, and its bytes.
//!
//! A frame is one byte for its kind, and its fields: numbers most significant byte first, lists behind their length. The transport keeps frames apart
//! and in order. What cannot be read is an error; the link it came on is to be closed.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::types::{Id, Node, Nodes, OWNERS_MAX, Owners, Ownership, PROGRESS_BYTES_MAX, Version};

/// Ids in one question.
pub const ASK_IDS_MAX: usize = 1000;

/// Bytes after which a frame takes nothing more. One tuple may be larger.
pub const FRAME_BYTES: usize = 64 << 10;

/// One message from a node to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// Tuples that the receiver is to hold.
    Store(Vec<Store>),
    /// The sender holds these, durably, at these versions.
    Stored(Vec<(Id, Version)>),
    /// The sender's disk has refused these.
    NotStored(Vec<Id>),
    /// What was done of tuples.
    Progress(Vec<(Id, Bytes)>),
    /// Copies that are to go.
    Delete(Vec<Delete>),
    /// Copies that are gone, durably.
    Deleted(Vec<Deleted>),
    /// What does the receiver know of these? Answered by `Know` with the same round, or by `Delete`.
    Ask {
        /// Above 0.
        round: u32,
        /// At most [`ASK_IDS_MAX`].
        ids: Vec<Id>,
    },
    /// What the sender knows of tuples.
    Know(Vec<Know>),
    /// The sender stops and expects to be back after so many microseconds.
    Goodbye(u64),
    /// The sender's wave with this number begins, or is repeated.
    Wave(u64),
    /// The answer: the least tracked id that the sender held at any time since its answer to the wave before.
    Low {
        /// The wave's number.
        wave: u64,
        /// None: there was none.
        least: Option<Id>,
    },
    /// What the sender holds that the receiver may hold, in sums.
    Compare(Vec<Split>),
    /// The answer: the same for the parts that differ.
    Compared(Vec<Split>),
    /// All of a range that differs.
    Ids {
        /// The first id of the range.
        from: Id,
        /// The last.
        to: Id,
        /// What the sender holds.
        shown: Vec<(Id, Shown)>,
        /// Whether the receiver is to answer with its own.
        answer: bool,
    },
    /// The comparison is over at the sender.
    Compares,
}

/// A tuple, or only its list of owners for a node that has the rest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    /// Which tuple.
    pub id: Id,
    /// Who is to hold it.
    pub ownership: Ownership,
    /// None for a node that has it.
    pub payload: Option<Bytes>,
}

/// A copy is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Delete {
    /// Which tuple.
    pub id: Id,
    /// Whether all copies go, since the tuple is done; else the receiver's alone, since it is no owner any more.
    pub finished: bool,
    /// The version of the sender's list.
    pub version: Version,
    /// All that the sender knows as holders.
    pub holders: Nodes,
}

/// A copy is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deleted {
    /// Which tuple.
    pub id: Id,
    /// As it was asked for.
    pub finished: bool,
    /// As it was asked for.
    pub version: Version,
}

/// What a node knows of a tuple.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Know {
    /// Which tuple.
    pub id: Id,
    /// Which question this answers: 0 for none.
    pub round: u32,
    /// The answer.
    pub knowledge: Knowledge,
}

/// What a node knows of a tuple.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Knowledge {
    /// It holds it, durably.
    Holds(Ownership),
    /// It has a copy from an older disk.
    Doubt,
    /// It has none.
    Unknown,
}

/// A range of ids in parts, and what the sender holds in each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Split {
    /// The first id of the first part.
    pub from: Id,
    /// Each begins behind the one before.
    pub parts: Vec<Part>,
}

/// What a node holds in a part of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The last id of the part.
    pub to: Id,
    /// Tuples and tombstones.
    pub count: u32,
    /// Their sum.
    pub sum: u64,
}

/// What is said of a tuple in a range that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shown {
    /// The sender holds it.
    Tuple {
        /// The version of its list.
        version: Version,
        /// Whether it is in doubt.
        doubt: bool,
        /// A sum of its progress: 0 for none.
        progress: u64,
    },
    /// It is done, and the sender does not know whether the receiver knows.
    Tombstone {
        /// The version of the list it had.
        version: Version,
        /// All that the sender knew as holders.
        holders: Nodes,
    },
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// They end too early.
    #[error("the frame ends within a field")]
    Short,
    /// A kind, a node, a number of owners or a length that there is not.
    #[error("the frame has a field of a value that is not allowed")]
    Value,
    /// There are more than the frame needs.
    #[error("the frame has bytes behind its end")]
    Long,
}

struct Reader(Bytes);

impl Reader {
    fn need(&self, bytes: usize) -> Result<(), FrameError> {
        if self.0.remaining() < bytes {
            Err(FrameError::Short)
        } else {
            Ok(())
        }
    }

    fn u8(&mut self) -> Result<u8, FrameError> {
        self.need(1)?;
        Ok(self.0.get_u8())
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        self.need(4)?;
        Ok(self.0.get_u32())
    }

    fn u64(&mut self) -> Result<u64, FrameError> {
        self.need(8)?;
        Ok(self.0.get_u64())
    }

    fn id(&mut self) -> Result<Id, FrameError> {
        self.need(16)?;
        Ok(Id(self.0.get_u128().to_be_bytes()))
    }

    fn flag(&mut self) -> Result<bool, FrameError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FrameError::Value),
        }
    }

    fn node(&mut self) -> Result<Node, FrameError> {
        Node::new(self.u8()?).ok_or(FrameError::Value)
    }

    fn nodes(&mut self) -> Result<Nodes, FrameError> {
        self.u64().map(Nodes::from_bits)
    }

    fn version(&mut self) -> Result<Version, FrameError> {
        Ok(Version {
            term: self.u32()?,
            first: self.node()?,
        })
    }

    fn bytes(&mut self) -> Result<Bytes, FrameError> {
        let len = self.u32()? as usize;
        self.need(len)?;
        Ok(self.0.split_to(len))
    }

    fn ownership(&mut self) -> Result<Ownership, FrameError> {
        let count = usize::from(self.u8()?);
        let mut owners = Owners::default();
        for _ in 0..count {
            owners.push(self.node()?);
        }
        // One that is named twice is missing.
        if count == 0 || count > OWNERS_MAX || owners.len() != count {
            return Err(FrameError::Value);
        }
        let ownership = Ownership {
            owners,
            term: self.u32()?,
            holders: self.nodes()?,
            tracked: self.flag()?,
            priority: self.u8()?,
            not_before: self.u64()?,
            progress: self.bytes()?,
        };
        if ownership.progress.len() > PROGRESS_BYTES_MAX {
            return Err(FrameError::Value);
        }
        Ok(ownership)
    }

    /// A list, whose items take at least so many bytes each: its memory is in proportion to its bytes.
    fn list<T>(
        &mut self,
        least: usize,
        mut item: impl FnMut(&mut Reader) -> Result<T, FrameError>,
    ) -> Result<Vec<T>, FrameError> {
        let count = self.u32()? as usize;
        self.need(count.saturating_mul(least))?;
        (0..count).map(|_| item(self)).collect()
    }

    fn end(&self) -> Result<(), FrameError> {
        if self.0.has_remaining() {
            Err(FrameError::Long)
        } else {
            Ok(())
        }
    }

    fn split(&mut self) -> Result<Split, FrameError> {
        Ok(Split {
            from: self.id()?,
            parts: self.list(28, |reader| {
                Ok(Part {
                    to: reader.id()?,
                    count: reader.u32()?,
                    sum: reader.u64()?,
                })
            })?,
        })
    }
}

fn put_version(out: &mut BytesMut, version: Version) {
    out.put_u32(version.term);
    out.put_u8(version.first.number());
}

#[allow(clippy::cast_possible_truncation)] // Payloads and lists are far below 4 GiB: frames end at 64 KiB and one tuple.
fn put_len(out: &mut BytesMut, len: usize) {
    out.put_u32(len as u32);
}

fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.put_slice(bytes);
}

fn put_ownership(out: &mut BytesMut, ownership: &Ownership) {
    let owners = ownership.owners.as_slice();
    #[allow(clippy::cast_possible_truncation)] // At most 7.
    out.put_u8(owners.len() as u8);
    for owner in owners {
        out.put_u8(owner.number());
    }
    out.put_u32(ownership.term);
    out.put_u64(ownership.holders.bits());
    out.put_u8(ownership.tracked.into());
    out.put_u8(ownership.priority);
    out.put_u64(ownership.not_before);
    put_bytes(out, &ownership.progress);
}

fn put_list<T>(out: &mut BytesMut, items: &[T], mut item: impl FnMut(&mut BytesMut, &T)) {
    put_len(out, items.len());
    for one in items {
        item(out, one);
    }
}

fn put_splits(out: &mut BytesMut, splits: &[Split]) {
    put_list(out, splits, |out, split| {
        out.put_slice(&split.from.0);
        put_list(out, &split.parts, |out, part| {
            out.put_slice(&part.to.0);
            out.put_u32(part.count);
            out.put_u64(part.sum);
        });
    });
}

impl Frame {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Frame::Store(tuples) => {
                out.put_u8(0);
                put_list(&mut out, tuples, |out, tuple| {
                    out.put_slice(&tuple.id.0);
                    put_ownership(out, &tuple.ownership);
                    out.put_u8(tuple.payload.is_some().into());
                    if let Some(payload) = &tuple.payload {
                        put_bytes(out, payload);
                    }
                });
            }
            Frame::Stored(stored) => {
                out.put_u8(1);
                put_list(&mut out, stored, |out, (id, version)| {
                    out.put_slice(&id.0);
                    put_version(out, *version);
                });
            }
            Frame::NotStored(ids) => {
                out.put_u8(2);
                put_list(&mut out, ids, |out, id| out.put_slice(&id.0));
            }
            Frame::Progress(list) => {
                out.put_u8(3);
                put_list(&mut out, list, |out, (id, progress)| {
                    out.put_slice(&id.0);
                    put_bytes(out, progress);
                });
            }
            Frame::Delete(deletes) => {
                out.put_u8(4);
                put_list(&mut out, deletes, |out, delete| {
                    out.put_slice(&delete.id.0);
                    out.put_u8(delete.finished.into());
                    put_version(out, delete.version);
                    out.put_u64(delete.holders.bits());
                });
            }
            Frame::Deleted(deleted) => {
                out.put_u8(5);
                put_list(&mut out, deleted, |out, deleted| {
                    out.put_slice(&deleted.id.0);
                    out.put_u8(deleted.finished.into());
                    put_version(out, deleted.version);
                });
            }
            Frame::Ask { round, ids } => {
                out.put_u8(6);
                out.put_u32(*round);
                put_list(&mut out, ids, |out, id| out.put_slice(&id.0));
            }
            Frame::Know(list) => {
                out.put_u8(7);
                put_list(&mut out, list, |out, know| {
                    out.put_slice(&know.id.0);
                    out.put_u32(know.round);
                    match &know.knowledge {
                        Knowledge::Unknown => out.put_u8(0),
                        Knowledge::Doubt => out.put_u8(1),
                        Knowledge::Holds(ownership) => {
                            out.put_u8(2);
                            put_ownership(out, ownership);
                        }
                    }
                });
            }
            Frame::Goodbye(micros) => {
                out.put_u8(8);
                out.put_u64(*micros);
            }
            Frame::Wave(wave) => {
                out.put_u8(9);
                out.put_u64(*wave);
            }
            Frame::Low { wave, least } => {
                out.put_u8(10);
                out.put_u64(*wave);
                out.put_u8(least.is_some().into());
                if let Some(least) = least {
                    out.put_slice(&least.0);
                }
            }
            Frame::Compare(splits) => {
                out.put_u8(11);
                put_splits(&mut out, splits);
            }
            Frame::Compared(splits) => {
                out.put_u8(12);
                put_splits(&mut out, splits);
            }
            Frame::Ids {
                from,
                to,
                shown,
                answer,
            } => {
                out.put_u8(13);
                out.put_slice(&from.0);
                out.put_slice(&to.0);
                out.put_u8((*answer).into());
                put_list(&mut out, shown, |out, (id, shown)| {
                    out.put_slice(&id.0);
                    match shown {
                        Shown::Tuple {
                            version,
                            doubt,
                            progress,
                        } => {
                            out.put_u8(if *doubt { 1 } else { 0 });
                            put_version(out, *version);
                            out.put_u64(*progress);
                        }
                        Shown::Tombstone { version, holders } => {
                            out.put_u8(2);
                            put_version(out, *version);
                            out.put_u64(holders.bits());
                        }
                    }
                });
            }
            Frame::Compares => out.put_u8(14),
        }
        out.freeze()
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// When the bytes are none, or more than one.
    pub fn decode(bytes: Bytes) -> Result<Frame, FrameError> {
        let mut reader = Reader(bytes);
        let frame = match reader.u8()? {
            0 => Frame::Store(reader.list(45, |reader| {
                Ok(Store {
                    id: reader.id()?,
                    ownership: reader.ownership()?,
                    payload: if reader.flag()? {
                        Some(reader.bytes()?)
                    } else {
                        None
                    },
                })
            })?),
            1 => Frame::Stored(reader.list(21, |reader| Ok((reader.id()?, reader.version()?)))?),
            2 => Frame::NotStored(reader.list(16, Reader::id)?),
            3 => Frame::Progress(reader.list(20, |reader| {
                let (id, progress) = (reader.id()?, reader.bytes()?);
                if progress.len() > PROGRESS_BYTES_MAX {
                    return Err(FrameError::Value);
                }
                Ok((id, progress))
            })?),
            4 => Frame::Delete(reader.list(30, |reader| {
                Ok(Delete {
                    id: reader.id()?,
                    finished: reader.flag()?,
                    version: reader.version()?,
                    holders: reader.nodes()?,
                })
            })?),
            5 => Frame::Deleted(reader.list(22, |reader| {
                Ok(Deleted {
                    id: reader.id()?,
                    finished: reader.flag()?,
                    version: reader.version()?,
                })
            })?),
            6 => {
                let (round, ids) = (reader.u32()?, reader.list(16, Reader::id)?);
                if round == 0 || ids.len() > ASK_IDS_MAX {
                    return Err(FrameError::Value);
                }
                Frame::Ask { round, ids }
            }
            7 => Frame::Know(reader.list(21, |reader| {
                Ok(Know {
                    id: reader.id()?,
                    round: reader.u32()?,
                    knowledge: match reader.u8()? {
                        0 => Knowledge::Unknown,
                        1 => Knowledge::Doubt,
                        2 => Knowledge::Holds(reader.ownership()?),
                        _ => return Err(FrameError::Value),
                    },
                })
            })?),
            8 => Frame::Goodbye(reader.u64()?),
            9 => Frame::Wave(reader.u64()?),
            10 => Frame::Low {
                wave: reader.u64()?,
                least: if reader.flag()? {
                    Some(reader.id()?)
                } else {
                    None
                },
            },
            11 => Frame::Compare(reader.list(20, Reader::split)?),
            12 => Frame::Compared(reader.list(20, Reader::split)?),
            13 => {
                let (from, to, answer) = (reader.id()?, reader.id()?, reader.flag()?);
                let shown = reader.list(30, |reader| {
                    let (id, kind, version) = (reader.id()?, reader.u8()?, reader.version()?);
                    let shown = match kind {
                        0 | 1 => Shown::Tuple {
                            version,
                            doubt: kind == 1,
                            progress: reader.u64()?,
                        },
                        2 => Shown::Tombstone {
                            version,
                            holders: reader.nodes()?,
                        },
                        _ => return Err(FrameError::Value),
                    };
                    Ok((id, shown))
                })?;
                Frame::Ids {
                    from,
                    to,
                    shown,
                    answer,
                }
            }
            14 => Frame::Compares,
            _ => return Err(FrameError::Value),
        };
        reader.end()?;
        Ok(frame)
    }
}

/// What the disk holds of a tuple, beside its payload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// The tuple is here.
    Tuple {
        /// To whom it is entrusted.
        ownership: Ownership,
        /// To whom this node ever sent it.
        sent: Nodes,
        /// The life of the disk (see [`crate::Start::life`]) in which the tuple was last known to be needed.
        life: u32,
    },
    /// It is done, and some nodes have not said yet that their copies are gone.
    Tombstone {
        /// The version of the list it had.
        version: Version,
        /// All that may have held a copy.
        holders: Nodes,
        /// Those that have not said so.
        unconfirmed: Nodes,
        /// Whether waves count it.
        tracked: bool,
    },
}

impl Record {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Record::Tuple {
                ownership,
                sent,
                life,
            } => {
                out.put_u8(0);
                put_ownership(&mut out, ownership);
                out.put_u64(sent.bits());
                out.put_u32(*life);
            }
            Record::Tombstone {
                version,
                holders,
                unconfirmed,
                tracked,
            } => {
                out.put_u8(1);
                put_version(&mut out, *version);
                out.put_u64(holders.bits());
                out.put_u64(unconfirmed.bits());
                out.put_u8((*tracked).into());
            }
        }
        out.freeze()
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn decode(bytes: Bytes) -> Result<Record, FrameError> {
        let mut reader = Reader(bytes);
        let record = match reader.u8()? {
            0 => Record::Tuple {
                ownership: reader.ownership()?,
                sent: reader.nodes()?,
                life: reader.u32()?,
            },
            1 => Record::Tombstone {
                version: reader.version()?,
                holders: reader.nodes()?,
                unconfirmed: reader.nodes()?,
                tracked: reader.flag()?,
            },
            _ => return Err(FrameError::Value),
        };
        reader.end()?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ownership() -> Ownership {
        Ownership {
            owners: (1..4).filter_map(Node::new).collect(),
            term: 7,
            holders: Nodes::from_bits(0b11110),
            tracked: true,
            priority: 2,
            not_before: 99,
            progress: Bytes::from_static(b"half"),
        }
    }

    fn frames() -> Vec<Frame> {
        let (id, version) = (Id::new(5, 6), ownership().version());
        let know = |knowledge| Know {
            id,
            round: 3,
            knowledge,
        };
        let split = Split {
            from: Id::MIN,
            parts: vec![Part {
                to: Id::MAX,
                count: 4,
                sum: 5,
            }],
        };
        vec![
            Frame::Store(vec![
                Store {
                    id,
                    ownership: ownership(),
                    payload: Some(Bytes::from_static(b"text")),
                },
                Store {
                    id,
                    ownership: ownership(),
                    payload: None,
                },
            ]),
            Frame::Stored(vec![(id, version)]),
            Frame::NotStored(vec![id]),
            Frame::Progress(vec![(id, Bytes::from_static(b"x"))]),
            Frame::Delete(vec![Delete {
                id,
                finished: true,
                version,
                holders: Nodes::from_bits(7),
            }]),
            Frame::Deleted(vec![Deleted {
                id,
                finished: false,
                version,
            }]),
            Frame::Ask {
                round: 1,
                ids: vec![id],
            },
            Frame::Know(vec![
                know(Knowledge::Holds(ownership())),
                know(Knowledge::Doubt),
                know(Knowledge::Unknown),
            ]),
            Frame::Goodbye(8),
            Frame::Wave(9),
            Frame::Low {
                wave: 9,
                least: Some(id),
            },
            Frame::Compare(vec![split.clone()]),
            Frame::Compared(vec![split]),
            Frame::Ids {
                from: Id::MIN,
                to: id,
                shown: vec![
                    (
                        id,
                        Shown::Tuple {
                            version,
                            doubt: true,
                            progress: 1,
                        },
                    ),
                    (
                        id,
                        Shown::Tombstone {
                            version,
                            holders: Nodes::from_bits(3),
                        },
                    ),
                ],
                answer: true,
            },
            Frame::Compares,
        ]
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        for frame in frames() {
            let bytes = frame.encode();
            assert_eq!(Frame::decode(bytes.clone()), Ok(frame.clone()));
            for end in 0..bytes.len() {
                assert!(
                    Frame::decode(bytes.slice(..end)).is_err(),
                    "{frame:?} cut at {end}"
                );
            }
            let longer = [&bytes[..], b"x"].concat();
            assert_eq!(Frame::decode(longer.into()), Err(FrameError::Long));
        }
    }

    #[test]
    fn a_length_that_is_a_lie_takes_no_memory() {
        for kind in [0, 1, 2, 3, 4, 5, 7, 11] {
            let bytes = [&[kind][..], &[0xff; 4], &[0; 40]].concat();
            assert_eq!(
                Frame::decode(bytes.into()),
                Err(FrameError::Short),
                "kind {kind}"
            );
        }
    }

    #[test]
    fn values_that_there_are_not() {
        let mut twice = BytesMut::new();
        twice.put_u8(0);
        put_len(&mut twice, 1);
        twice.put_slice(&Id::MIN.0);
        twice.put_slice(&[2, 1, 1]);
        twice.put_slice(&[0; 60]);
        assert_eq!(Frame::decode(twice.freeze()), Err(FrameError::Value));
        assert_eq!(
            Frame::decode(Bytes::from_static(&[99])),
            Err(FrameError::Value)
        );
        let bytes = Bytes::from_static(&[
            1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64,
        ]);
        assert_eq!(Frame::decode(bytes), Err(FrameError::Value));
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let records = [
            Record::Tuple {
                ownership: ownership(),
                sent: Nodes::from_bits(2),
                life: 4,
            },
            Record::Tombstone {
                version: ownership().version(),
                holders: Nodes::from_bits(7),
                unconfirmed: Nodes::from_bits(1),
                tracked: false,
            },
        ];
        for record in records {
            assert_eq!(Record::decode(record.encode()), Ok(record));
        }
    }
}
