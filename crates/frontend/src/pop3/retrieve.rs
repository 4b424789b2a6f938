//! RETR and TOP (RFC 1939, 5 and 7): the octets of a message, piece by piece as the client takes them.
//!
//! A client that does not wait for each answer has the next messages looked up together ([`Ahead`]), and what fits of their octets is read
//! together, too; what was looked up or read is dropped as soon as it waits.

use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_pop3::{
    Body,
    encode::{self, Code},
};
use whimbrel_service::{
    api::{
        BLOB_CHUNK_BYTES_MAX, BLOB_READS_BYTES_MAX, BLOB_READS_PER_CALL_MAX, BlobName, BlobRange,
        Call, Reply, Row,
    },
    content::Content,
};

use super::{
    context::Context,
    limits::AHEAD_MESSAGES_MAX,
    maildrop::octets,
    task::{Step, failed, gone},
};

/// Read first for TOP: a header and some lines are mostly shorter.
const TOP_BYTES: u32 = 16 * 1024;

/// Messages that were looked up and not yet sent.
pub(super) struct Ahead {
    /// Ascending by place.
    found: VecDeque<(u32, Looked)>,
    /// Places below this were looked up; what is not among `found` is gone.
    up_to: u32,
    from: u32,
}

/// What is known of a message that was looked up.
enum Looked {
    /// It was removed after its row was read.
    Gone,
    /// Its content row is damaged.
    Damaged,
    Found {
        octets: u64,
        /// The header fields in front of the blob.
        prefix: Bytes,
        blob: BlobName,
        left: u64,
        /// The begin of the blob, if it was read.
        read: Option<Bytes>,
    },
}

impl Looked {
    fn new(row: &Row, content: Option<&Bytes>) -> Looked {
        let Some(content) = content else {
            return Looked::Gone;
        };
        let Ok(content) = Content::decode(content) else {
            return Looked::Damaged;
        };
        let Some(left) = u64::from(row.size).checked_sub(content.prefix.len() as u64) else {
            return Looked::Damaged;
        };
        Looked::Found {
            octets: octets(row),
            // Of its own: the summary beside it is not wanted, and may be long.
            prefix: Bytes::copy_from_slice(&content.prefix),
            blob: row.blob,
            left,
            read: None,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Looked::Found { prefix, read, .. } => {
                prefix.len() + read.as_ref().map_or(0, Bytes::len)
            }
            Looked::Gone | Looked::Damaged => 0,
        }
    }
}

impl Ahead {
    /// Memory.
    pub(super) fn bytes(&self) -> usize {
        let found: usize = self.found.iter().map(|(_, looked)| looked.bytes()).sum();
        self.found.capacity() * size_of::<(u32, Looked)>() + found
    }

    /// What else to read with the begin of a message, so that many short ones cost few calls: the next messages, as many as there is room for.
    /// Of each as much as of the first would be read, `most`.
    fn with(&self, first: BlobRange, most: u32) -> Vec<BlobRange> {
        let mut room = BLOB_READS_BYTES_MAX.saturating_sub(first.len as usize);
        let mut ranges = vec![first];
        for (_, looked) in &self.found {
            let Looked::Found { blob, left, .. } = looked else {
                continue;
            };
            let len = piece(*left, most);
            let Some(rest) = room.checked_sub(len as usize) else {
                break;
            };
            if ranges.len() == BLOB_READS_PER_CALL_MAX {
                break;
            }
            room = rest;
            ranges.push(BlobRange {
                blob: *blob,
                offset: 0,
                len,
            });
        }
        ranges
    }

    /// What was read with the begin of a message, in the order of [`Ahead::with`].
    fn take(&mut self, mut bytes: impl Iterator<Item = Bytes>) {
        for (_, looked) in &mut self.found {
            if let Looked::Found { read, .. } = looked {
                // What is gone is asked for once more, and told then.
                *read = bytes.next().filter(|bytes| !bytes.is_empty());
            }
        }
    }
}

/// How much is read at once of so much.
fn piece(left: u64, most: u32) -> u32 {
    u32::try_from(left).map_or(most, |left| left.min(most))
}

/// A message that is being sent.
pub(super) struct Retrieve {
    place: u32,
    body: Body,
    is_top: bool,
    state: State,
}

enum State {
    Begin,
    /// Rows of these places were asked for, up to where.
    Rows(Vec<u32>, u32),
    Contents(Vec<(u32, Row)>, u32),
    /// The header fields in front of the blob, and what is still to be read of it.
    Octets {
        octets: u64,
        prefix: Bytes,
        blob: BlobName,
        offset: u64,
        left: u64,
        /// The status line is written.
        began: bool,
    },
}

impl Retrieve {
    pub(super) fn new(place: u32, body: Body, is_top: bool) -> Retrieve {
        Retrieve {
            place,
            body,
            is_top,
            state: State::Begin,
        }
    }

    pub(super) fn step(&mut self, cx: &mut Context, reply: Option<Reply>) -> Step {
        match (&mut self.state, reply) {
            (State::Begin, None) => self.begin(cx),
            (State::Rows(places, up_to), Some(Reply::Rows(rows))) => {
                let maildrop = cx.maildrop();
                let mut places = std::mem::take(places).into_iter();
                let found: Vec<(u32, Row)> = rows
                    .into_iter()
                    .filter_map(|row| {
                        Some((places.find(|place| maildrop.uid(*place) == row.uid)?, row))
                    })
                    .collect();
                if found.first().map(|(place, _)| *place) != Some(self.place) {
                    return gone(cx);
                }
                let call = Call::Contents {
                    account: maildrop.account,
                    origins: found.iter().map(|(_, row)| row.origin).collect(),
                };
                self.state = State::Contents(found, *up_to);
                Step::Call(call)
            }
            (State::Contents(rows, up_to), Some(Reply::Contents(contents)))
                if !contents.is_empty() =>
            {
                // There may be fewer than were asked for: the others are looked up when their turn comes.
                let end = rows.get(contents.len()).map(|(place, _)| *place);
                let up_to = end.unwrap_or(*up_to);
                let rows = std::mem::take(rows).into_iter().zip(&contents);
                cx.ahead = Some(Box::new(Ahead {
                    found: rows
                        .map(|((place, row), content)| (place, Looked::new(&row, content.as_ref())))
                        .collect(),
                    from: self.place,
                    up_to,
                }));
                self.begin(cx)
            }
            (State::Octets { .. }, reply) => self.octets(cx, reply),
            (_, Some(reply)) => failed(cx, &reply),
            (_, None) => Step::Abort("a message without its call"),
        }
    }

    /// Takes what was looked up, or asks for it.
    fn begin(&mut self, cx: &mut Context) -> Step {
        let Some(ahead) = &mut cx.ahead else {
            return self.ask(cx);
        };
        if self.place < ahead.from || self.place >= ahead.up_to {
            cx.ahead = None;
            return self.ask(cx);
        }
        // What lies before it was passed over by the client.
        while ahead
            .found
            .front()
            .is_some_and(|(place, ..)| *place < self.place)
        {
            ahead.found.pop_front();
        }
        ahead.from = self.place + 1;
        let looked = ahead.found.pop_front_if(|found| found.0 == self.place);
        if ahead.found.is_empty() {
            cx.ahead = None;
        }
        match looked {
            None | Some((_, Looked::Gone)) => gone(cx),
            Some((_, Looked::Damaged)) => {
                encode::err(&mut cx.out, Some(Code::SysPerm), "Message cannot be read");
                Step::Done
            }
            Some((
                _,
                Looked::Found {
                    octets,
                    prefix,
                    blob,
                    left,
                    read,
                },
            )) => {
                self.state = State::Octets {
                    octets,
                    prefix,
                    blob,
                    offset: 0,
                    left,
                    began: false,
                };
                self.octets(cx, read.map(Reply::Bytes))
            }
        }
    }

    fn ask(&mut self, cx: &mut Context) -> Step {
        let most = if cx.pipelined { AHEAD_MESSAGES_MAX } else { 1 };
        let maildrop = cx.maildrop();
        let (places, up_to) = maildrop.places(self.place, false, most);
        let call = maildrop.rows(&places);
        self.state = State::Rows(places, up_to);
        Step::Call(cx.call(call))
    }

    /// Reads and writes. The status line waits for the first octets: until then there can be an error.
    fn octets(&mut self, cx: &mut Context, reply: Option<Reply>) -> Step {
        let State::Octets {
            octets,
            prefix,
            blob,
            offset,
            left,
            began,
        } = &mut self.state
        else {
            return Step::Abort("a message without its row");
        };
        let reply = match (reply, &mut cx.ahead) {
            // What was read with it is for the next ones.
            (Some(Reply::Blobs(blobs)), ahead) => {
                let mut blobs = blobs.into_iter();
                let first = blobs.next().unwrap_or_default();
                if let Some(ahead) = ahead {
                    ahead.take(blobs);
                }
                Some(Reply::Bytes(first))
            }
            (reply, _) => reply,
        };
        let bytes = match reply {
            None => Bytes::new(),
            Some(Reply::Bytes(bytes)) if !bytes.is_empty() && bytes.len() as u64 <= *left => bytes,
            Some(_) if *began => return Step::Abort("a body could not be read"),
            Some(Reply::Failed(failure)) => return failed(cx, &Reply::Failed(failure)),
            // The blob is gone, or not what its row says.
            Some(_) => return gone(cx),
        };
        *offset += bytes.len() as u64;
        *left -= bytes.len() as u64;
        let mut wanted = true;
        if !*began && (!bytes.is_empty() || *left == 0) {
            *began = true;
            encode::ok_begin(&mut cx.out);
            cx.out.extend_from_slice(rest_of_status(*octets).as_bytes());
            wanted = self.body.push(prefix, &mut cx.out);
        }
        if wanted && !bytes.is_empty() {
            wanted = self.body.push(&bytes, &mut cx.out);
        }
        if wanted && *left > 0 {
            if cx.is_full() {
                return Step::Again;
            }
            let most = if self.is_top && !*began {
                TOP_BYTES
            } else {
                BLOB_CHUNK_BYTES_MAX as u32
            };
            let (blob, offset, len) = (*blob, *offset, piece(*left, most));
            let first = BlobRange { blob, offset, len };
            let ranges = match &cx.ahead {
                Some(ahead) if !*began => ahead.with(first, most),
                _ => Vec::new(),
            };
            return Step::Call(if ranges.len() > 1 {
                Call::BlobReadMany(ranges)
            } else {
                Call::BlobRead { blob, offset, len }
            });
        }
        std::mem::replace(&mut self.body, Body::whole()).finish(&mut cx.out);
        Step::Done
    }
}

/// The rest of the status line: "the octets" of the examples of RFC 1939.
fn rest_of_status(octets: u64) -> String {
    format!("{octets} octets\r\n")
}
