//! A connection between two nodes: frames behind their length, and pings that say how long the way is.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use whimbrel_queue::Frame;

use crate::error::{Result, Trouble, io_at};

/// Length and kind.
const HEAD_BYTES: usize = 4 + 1;
/// No frame of the queue with payloads of this benchmark comes near.
const LENGTH_MAX: usize = 16 << 20;
/// Read at once.
const READ_BYTES: usize = 64 << 10;

const FRAME: u8 = 0;
const PING: u8 = 1;
const PONG: u8 = 2;

/// What comes over a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    Frame(Frame),
    /// When it was sent, by the sender's clock.
    Ping(u64),
    /// The same number, as the answer.
    Pong(u64),
}

impl Message {
    /// Appends its bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u8, body: &[u8]| {
            out.put_u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
            out.put_u8(kind);
            out.put_slice(body);
        };
        match self {
            Message::Frame(frame) => put(FRAME, &frame.encode()),
            Message::Ping(at) => put(PING, &at.to_be_bytes()),
            Message::Pong(at) => put(PONG, &at.to_be_bytes()),
        }
    }

    fn decode(kind: u8, body: Bytes) -> Result<Message> {
        let trouble = |what: String| Trouble::Wrong(format!("a frame of the queue: {what}"));
        if kind == FRAME {
            let frame = Frame::decode(body).map_err(|error| trouble(error.to_string()))?;
            return Ok(Message::Frame(frame));
        }
        let at = body[..].try_into().map(u64::from_be_bytes);
        let at = at.map_err(|_| trouble(format!("{} bytes", body.len())))?;
        match kind {
            PING => Ok(Message::Ping(at)),
            PONG => Ok(Message::Pong(at)),
            _ => Err(trouble(format!("kind {kind}"))),
        }
    }
}

/// Takes whole messages out of a buffer.
pub(super) fn split(buffer: &mut BytesMut) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    while let Some(head) = buffer.get(..HEAD_BYTES) {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let kind = head[4];
        if length > LENGTH_MAX {
            return Err(Trouble::Wrong(format!("a frame of {length} bytes")));
        }
        if buffer.len() < HEAD_BYTES + length {
            break;
        }
        buffer.advance(HEAD_BYTES);
        let body = buffer.split_to(length).freeze();
        messages.push(Message::decode(kind, body)?);
    }
    Ok(messages)
}

/// Reads until the end, or until `take` wants no more.
pub(super) fn read_all(
    mut stream: TcpStream,
    mut take: impl FnMut(Vec<Message>) -> bool,
) -> Result<()> {
    let mut buffer = BytesMut::new();
    let mut chunk = vec![0; READ_BYTES];
    loop {
        let length = stream.read(&mut chunk).map_err(io_at("read a link"))?;
        if length == 0 {
            return Ok(());
        }
        buffer.extend_from_slice(&chunk[..length]);
        let messages = split(&mut buffer)?;
        if !messages.is_empty() && !take(messages) {
            return Ok(());
        }
    }
}

/// The node that connects says who it is.
pub(super) fn introduce(stream: &mut TcpStream, me: u8) -> Result<()> {
    stream
        .set_nodelay(true)
        .and_then(|()| stream.write_all(&[me]))
        .map_err(io_at("a link"))
}

/// Who has connected.
pub(super) fn introduced(stream: &mut TcpStream) -> Result<u8> {
    let mut who = [0];
    stream
        .set_nodelay(true)
        .and_then(|()| stream.read_exact(&mut who))
        .map_err(io_at("a link"))?;
    Ok(who[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_however_they_are_cut() {
        let messages = [
            Message::Ping(7),
            Message::Frame(Frame::Wave(9)),
            Message::Frame(Frame::Goodbye(1)),
            Message::Pong(8),
        ];
        let mut bytes = Vec::new();
        messages
            .iter()
            .for_each(|message| message.encode(&mut bytes));
        for size in 1..bytes.len() {
            let mut buffer = BytesMut::new();
            let mut seen = Vec::new();
            for part in bytes.chunks(size) {
                buffer.extend_from_slice(part);
                seen.extend(split(&mut buffer).unwrap());
            }
            assert_eq!(seen, messages, "{size} at a time");
        }
        for wrong in [&[0xff, 0, 0, 0, 0][..], &[0, 0, 0, 0, 1], &[0, 0, 0, 0, 0]] {
            assert!(split(&mut BytesMut::from(wrong)).is_err(), "{wrong:?}");
        }
    }
}
