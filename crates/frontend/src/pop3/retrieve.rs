//! RETR and TOP (RFC 1939, 5 and 7): the octets of a message, piece by piece as the client takes them.
//!
//! A client that does not wait for each answer has the next messages looked up together ([`Ahead`]); what was looked up is dropped as soon as
//! it waits.

use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_pop3::{
    Body,
    encode::{self, Code},
};
use whimbrel_service::{
    api::{BLOB_CHUNK_BYTES_MAX, BlobName, Call, Reply, Row},
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

/// Messages that were looked up and not yet sent: ascending by place, each with its content row.
pub(super) struct Ahead {
    found: VecDeque<(u32, Row, Option<Bytes>)>,
    /// Places below this were looked up; what is not among `found` is gone.
    up_to: u32,
    from: u32,
}

impl Ahead {
    /// Memory.
    pub(super) fn bytes(&self) -> usize {
        let content = |found: &(u32, Row, Option<Bytes>)| found.2.as_ref().map_or(0, Bytes::len);
        let rows = self.found.capacity() * size_of::<(u32, Row, Option<Bytes>)>();
        rows + self.found.iter().map(content).sum::<usize>()
    }
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
            (State::Contents(rows, up_to), Some(Reply::Contents(contents))) => {
                let rows = std::mem::take(rows).into_iter().zip(contents);
                cx.ahead = Some(Box::new(Ahead {
                    found: rows
                        .map(|((place, row), bytes)| (place, row, bytes))
                        .collect(),
                    from: self.place,
                    up_to: *up_to,
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
        let Some((_, row, content)) = ahead.found.pop_front_if(|found| found.0 == self.place)
        else {
            return gone(cx);
        };
        if ahead.found.is_empty() {
            cx.ahead = None;
        }
        // It was removed after its row was read.
        let Some(content) = content else {
            return gone(cx);
        };
        let content = Content::decode(&content).ok();
        let left = |content: &Content| u64::from(row.size).checked_sub(content.prefix.len() as u64);
        let Some((left, content)) = content.and_then(|content| Some((left(&content)?, content)))
        else {
            encode::err(&mut cx.out, Some(Code::SysPerm), "Message cannot be read");
            return Step::Done;
        };
        self.state = State::Octets {
            octets: octets(&row),
            prefix: content.prefix,
            blob: row.blob,
            offset: 0,
            left,
            began: false,
        };
        self.octets(cx, None)
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
            let len = u32::try_from(*left).map_or(most, |left| left.min(most));
            return Step::Call(Call::BlobRead {
                blob: *blob,
                offset: *offset,
                len,
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
