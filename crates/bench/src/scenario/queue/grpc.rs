//! A client of gRPC for one kind of use: many small calls at once over one connection (HTTP/2, RFC 9113; HPACK, RFC 7541).
//!
//! It reads no header that comes back: a call that went well has a message, one that did not has none.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use crate::error::{Result, Trouble, io_at, wrong};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What RFC 9113 gives each connection and stream at its begin.
const WINDOW: i64 = 65_535;
const WINDOW_MAX: u32 = (1 << 31) - 1;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

const INITIAL_WINDOW_SIZE: u16 = 4;
const ENABLE_PUSH: u16 = 2;

/// A connection.
pub(super) struct Grpc {
    stream: TcpStream,
    authority: String,
    paths: Vec<&'static str>,
    /// Which of the paths the server's table knows, the newest last. All other fields came with the first.
    known: Vec<usize>,
    out: Vec<u8>,
    input: Vec<u8>,
    next_stream: u32,
    /// Bytes of messages that the server takes.
    window: i64,
    /// Calls that wait for the window.
    held: VecDeque<(u64, usize, Vec<u8>)>,
    /// Calls under way: what the caller calls them, and what came.
    open: BTreeMap<u32, (u64, Option<Vec<u8>>)>,
}

/// The end of a call: its name, and the message or nothing.
pub(super) type Answer = (u64, Option<Vec<u8>>);

fn put_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, body: &[u8]) {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(body);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    // Below 127 bytes, not Huffman.
    out.push(u8::try_from(text.len()).unwrap_or(126));
    out.extend_from_slice(text.as_bytes());
}

impl Grpc {
    /// A connection to a server that speaks HTTP/2 without TLS.
    pub(super) fn connect(port: u16, paths: &[&'static str]) -> Result<Grpc> {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(io_at("gRPC"))?;
        stream.set_nodelay(true).map_err(io_at("gRPC"))?;
        let mut out = PREFACE.to_vec();
        let mut settings = Vec::new();
        for (name, value) in [(ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, WINDOW_MAX)] {
            settings.extend_from_slice(&name.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        put_frame(&mut out, SETTINGS, 0, 0, &settings);
        let more = WINDOW_MAX - WINDOW as u32;
        put_frame(&mut out, WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        Ok(Grpc {
            stream,
            authority: format!("127.0.0.1:{port}"),
            paths: paths.to_vec(),
            known: Vec::new(),
            out,
            input: Vec::new(),
            next_stream: 1,
            window: WINDOW,
            held: VecDeque::new(),
            open: BTreeMap::new(),
        })
    }

    /// Fields of a request. Fields that were sent before are numbers into the server's table: the newest is 62.
    fn header_block(&mut self, path: usize) -> Vec<u8> {
        // :method POST, :scheme http.
        let mut block = vec![0x83, 0x86];
        let first = self.known.is_empty();
        // Behind the first path came authority, content-type and te.
        let behind = |known: &[usize], place: usize| {
            let newer = known.len() - 1 - place;
            62 + newer + if place == 0 { 3 } else { 0 }
        };
        let numbered = |index: usize| 0x80 | u8::try_from(index).unwrap_or(0x7f);
        match self.known.iter().position(|known| *known == path) {
            Some(place) => block.push(numbered(behind(&self.known, place))),
            None => {
                block.push(0x44);
                put_text(&mut block, self.paths[path]);
                self.known.push(path);
            }
        }
        if first {
            block.push(0x41);
            put_text(&mut block, &self.authority);
            block.push(0x5f);
            put_text(&mut block, "application/grpc");
            block.push(0x40);
            put_text(&mut block, "te");
            put_text(&mut block, "trailers");
        } else {
            let newest = 62 + self.known.len() - 1;
            block.extend([newest + 2, newest + 1, newest].map(numbered));
        }
        block
    }

    /// Calls one of the paths; the answer has this name. It goes out with [`Grpc::flush`].
    pub(super) fn call(&mut self, name: u64, path: usize, message: Vec<u8>) {
        if self.held.is_empty() && self.fits(&message) {
            self.begin(name, path, &message);
        } else {
            self.held.push_back((name, path, message));
        }
    }

    fn fits(&self, message: &[u8]) -> bool {
        self.window >= message.len() as i64 + 5
    }

    fn begin(&mut self, name: u64, path: usize, message: &[u8]) {
        let stream = self.next_stream;
        self.next_stream += 2;
        let block = self.header_block(path);
        put_frame(&mut self.out, HEADERS, END_HEADERS, stream, &block);
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let mut body = vec![0];
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(message);
        put_frame(&mut self.out, DATA, END_STREAM, stream, &body);
        self.window -= body.len() as i64;
        self.open.insert(stream, (name, None));
    }

    /// Calls that are not answered.
    pub(super) fn under_way(&self) -> usize {
        self.open.len() + self.held.len()
    }

    /// Sends what there is.
    pub(super) fn flush(&mut self) -> Result<()> {
        while let Some((name, path, message)) = self
            .held
            .pop_front_if(|(_, _, message)| self.window >= message.len() as i64 + 5)
        {
            self.begin(name, path, &message);
        }
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent.map_err(io_at("write to gRPC"))
    }

    /// Waits for something, no longer than this; what is answered.
    pub(super) fn answers(&mut self, at_most: Duration) -> Result<Vec<Answer>> {
        self.stream
            .set_read_timeout(Some(at_most))
            .map_err(io_at("gRPC"))?;
        let mut chunk = [0; 64 << 10];
        let length = match self.stream.read(&mut chunk) {
            Ok(0) => return wrong("the server has closed the connection"),
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => 0,
            Err(error) => return Err(io_at("read from gRPC")(error)),
        };
        self.input.extend_from_slice(&chunk[..length]);
        let mut answers = Vec::new();
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while let Some((head, behind)) = rest.split_at_checked(9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let Some((body, behind)) = behind.split_at_checked(length) else {
                break;
            };
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            self.frame(head[3], head[4], stream, body, &mut answers)?;
            rest = behind;
        }
        self.input = rest.to_vec();
        Ok(answers)
    }

    fn frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        body: &[u8],
        answers: &mut Vec<Answer>,
    ) -> Result<()> {
        match kind {
            // None of ours is padded, and no server pads.
            DATA => {
                if let Some((_, message)) = self.open.get_mut(&stream) {
                    message.get_or_insert_default().extend_from_slice(body);
                }
            }
            RST_STREAM => {
                if let Some((name, _)) = self.open.remove(&stream) {
                    answers.push((name, None));
                }
            }
            SETTINGS if flags & ACK == 0 => put_frame(&mut self.out, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => put_frame(&mut self.out, PING, ACK, 0, body),
            GOAWAY => return wrong("the server ends the connection"),
            WINDOW_UPDATE if stream == 0 => {
                let more: [u8; 4] = body
                    .try_into()
                    .map_err(|_| Trouble::Wrong("a window of HTTP/2".into()))?;
                self.window += i64::from(u32::from_be_bytes(more));
            }
            _ => {}
        }
        if matches!(kind, DATA | HEADERS)
            && flags & END_STREAM != 0
            && let Some((name, message)) = self.open.remove(&stream)
        {
            // Without the flag for compression and the length.
            let message = message.and_then(|message| message.get(5..).map(<[u8]>::to_vec));
            answers.push((name, message));
        }
        Ok(())
    }
}

/// A field of a protocol-buffer message: bytes.
pub(super) fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    let mut length = bytes.len();
    while length > 0x7f {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
}

/// The first number, or first length, of a field of a message.
pub(super) fn number(mut message: &[u8], wanted: u64) -> Option<u64> {
    let varint = |message: &mut &[u8]| {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = message.split_first()?;
            *message = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    };
    while !message.is_empty() {
        let head = varint(&mut message)?;
        let value = match head & 7 {
            0 | 2 => varint(&mut message)?,
            _ => return None,
        };
        if head >> 3 == wanted {
            return Some(value);
        }
        if head & 7 == 2 {
            message = message.get(usize::try_from(value).ok()?..)?;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn fields_of_messages() {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, &[7; 300]);
        message.extend([2 << 3, 0x81, 0x01]);
        assert_eq!(number(&message, 1), Some(300));
        assert_eq!(number(&message, 2), Some(129));
        assert_eq!(number(&message, 3), None);
        assert_eq!(number(&message[..200], 2), None);
    }

    #[test]
    fn later_calls_name_their_fields_by_number() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut grpc = Grpc::connect(port, &["/a/Put", "/a/Delete"]).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let first = grpc.header_block(0);
        assert!(first.windows(6).any(|part| part == b"/a/Put"));
        assert_eq!(
            grpc.header_block(0),
            [0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62]
        );
        let second = grpc.header_block(1);
        assert_eq!(second[..2], [0x83, 0x86]);
        assert_eq!(
            second[second.len() - 3..],
            [0x80 | 65, 0x80 | 64, 0x80 | 63]
        );
        assert_eq!(grpc.header_block(0)[2], 0x80 | 66);
        assert_eq!(grpc.header_block(1)[2], 0x80 | 62);
        // A call waits until the window has room; its answer is the message without its head.
        grpc.window = 5;
        grpc.call(9, 0, vec![1]);
        assert_eq!(grpc.under_way(), 1);
        grpc.flush().unwrap();
        assert!(grpc.open.is_empty());
        let mut frames = Vec::new();
        put_frame(&mut frames, WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes());
        server.write_all(&frames).unwrap();
        let long = Duration::from_secs(5);
        assert_eq!(grpc.answers(long).unwrap(), []);
        grpc.flush().unwrap();
        assert_eq!(grpc.open.len(), 1);
        let mut frames = Vec::new();
        put_frame(&mut frames, HEADERS, END_HEADERS, 1, &[0x88]);
        put_frame(&mut frames, DATA, 0, 1, &[0, 0, 0, 0, 1, 77]);
        put_frame(&mut frames, HEADERS, END_HEADERS | END_STREAM, 1, &[]);
        server.write_all(&frames).unwrap();
        assert_eq!(grpc.answers(long).unwrap(), [(9, Some(vec![77]))]);
    }
}
