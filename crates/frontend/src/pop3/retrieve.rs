//! RETR and TOP (RFC 1939, 5 and 7): the octets of a message, piece by piece as the client takes them.
//!
//! A client that does not wait for each answer has the next messages looked up together ([`Ahead`]), and what fits of their octets is read
//! together, too; what was looked up or read is dropped as soon as it waits.

use bytes::Bytes;
use whimbrel_pop3::{
    Body,
    encode::{self, Code},
};
use whimbrel_service::api::{BLOB_CHUNK_BYTES_MAX, BlobName, BlobRange, Call, Reply, Row};

use super::{
    ahead::{Ahead, Looked, piece},
    context::Context,
    limits::AHEAD_MESSAGES_MAX,
    step::{Step, failed, gone},
};

/// Read first for TOP: a header and some lines are mostly shorter.
const TOP_BYTES: u32 = 16 * 1024;

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
                let looked = rows
                    .map(|((place, row), content)| (place, Looked::new(&row, content.as_ref())));
                cx.ahead = Some(Box::new(Ahead::new(looked, self.place, up_to)));
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
        if !ahead.covers(self.place) {
            cx.ahead = None;
            return self.ask(cx);
        }
        let looked = ahead.pop(self.place);
        if ahead.is_empty() {
            cx.ahead = None;
        }
        match looked {
            Looked::Gone => gone(cx),
            Looked::Damaged => {
                encode::err(&mut cx.out, Some(Code::SysPerm), "Message cannot be read");
                Step::Done
            }
            Looked::Found {
                octets,
                prefix,
                blob,
                left,
                read,
            } => {
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
