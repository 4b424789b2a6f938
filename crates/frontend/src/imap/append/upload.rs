//! One message on its way into the blob store, and through the parser.
//!
//! No message with NUL is stored: "The ASCII NUL character, %x00, MUST NOT be used anywhere, with the exception of the OCTET production"
//! (RFC 9051, 9), and BODY[] could not show it as it was sent. In a literal it is an error of syntax. A literal8 may hold it, but "If the
//! destination mailbox does not support the storage of binary content, the server MUST fail the request and issue a "NO" response that
//! contains the "UNKNOWN-CTE" extended response code" (RFC 3516, 4.4). A literal8 without NUL is as good as a literal.
//!
//! "If an IMAP server supports "UTF8=ACCEPT" and the IMAP client has not issued the "ENABLE UTF8=ACCEPT" command, the server MUST reject,
//! with a "NO" response, an "APPEND" command that includes any 8-bit character in message header fields" (RFC 6855, 4): only if the
//! configuration says so. Old mail is full of such fields, none of them UTF-8 by any standard; it comes in by SMTP as it is, and a client that
//! copies mailboxes (a backup put back, a move between servers) must be able to store what it was given.

use bytes::Bytes;
use whimbrel_imap::{AppendLiteral, AppendMessage, encode::Code};
use whimbrel_mime::Parser;
use whimbrel_service::{
    api::{BLOB_CHUNK_BYTES_MAX, BlobName, Call, Date, EntryId, NewMail, UploadId},
    content::Content,
    owner::import_upload,
};

use super::super::{context::Context, outcome::Outcome, view::service_flags};

/// One message.
pub(super) struct Upload {
    message: AppendMessage,
    pub(super) id: Option<UploadId>,
    parser: Parser,
    /// Octets not yet given to the store.
    buffer: Vec<u8>,
    received: u64,
    bytes_max: u64,
    /// The literal in hand is a literal8.
    binary: bool,
    /// The header goes on, and must be ASCII.
    header: Option<Header>,
    /// The whole does not end with CRLF.
    open_end: bool,
}

/// Where in a header the next octet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Header {
    /// At the begin of a line, or behind a CR there.
    LineStart,
    /// In a line.
    Line,
}

/// Why a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    TooBig,
    Empty,
    Nul,
    NulInLiteral8,
    EightBitHeader,
}

impl Refused {
    pub(super) fn outcome(self) -> Outcome {
        match self {
            Refused::TooBig => Outcome::no(Code::TooBig, "Message is too big"),
            // "A zero-length message literal argument is an error, and MUST return a NO. This can be used to cancel the append" (RFC 3502).
            Refused::Empty => Outcome::no(Code::Cannot, "A message has one octet at least"),
            Refused::Nul => Outcome::bad("NUL in literal"),
            Refused::NulInLiteral8 => Outcome::no(
                Code::UnknownCte,
                "Messages that hold NUL cannot be stored: encode them",
            ),
            Refused::EightBitHeader => Outcome::no(
                Code::Cannot,
                "Header fields that are not ASCII want ENABLE UTF8=ACCEPT",
            ),
        }
    }
}

impl Upload {
    pub(super) fn new(cx: &Context, message: AppendMessage) -> Upload {
        Upload {
            message,
            id: None,
            parser: Parser::new(&cx.limits.mime),
            buffer: Vec::new(),
            received: 0,
            bytes_max: cx.limits.syntax.append_bytes_max,
            binary: false,
            header: (cx.limits.ascii_headers && !cx.utf8_accept).then_some(Header::LineStart),
            open_end: false,
        }
    }

    /// What it is to be called in the store, if that is not to be a name of its own.
    pub(super) fn called(&self, cx: &Context) -> Option<UploadId> {
        let import = self.message.import?;
        Some(import_upload(EntryId(import.id), cx.account?, &import.hash))
    }

    /// Whether its octets are what was announced.
    pub(super) fn is_as_announced(&self, blob: &BlobName) -> bool {
        self.message
            .import
            .is_none_or(|import| import.hash == blob.hash)
    }

    /// A literal is announced.
    pub(super) fn announce(&mut self, literal: &AppendLiteral) -> Result<(), Refused> {
        if self.received.saturating_add(literal.size) > self.bytes_max {
            return Err(Refused::TooBig);
        }
        if literal.size == 0 && !self.message.catenate {
            return Err(Refused::Empty);
        }
        self.binary = literal.binary || literal.utf8;
        Ok(())
    }

    /// Octets have come.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        self.received += bytes.len() as u64;
        if self.received > self.bytes_max {
            return Err(Refused::TooBig);
        }
        if memchr::memchr(0, bytes).is_some() {
            return Err(if self.binary {
                Refused::NulInLiteral8
            } else {
                Refused::Nul
            });
        }
        self.check_header(bytes)?;
        self.parser.push(bytes);
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn check_header(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        let Some(mut header) = self.header else {
            return Ok(());
        };
        for &byte in bytes {
            header = match (header, byte) {
                (Header::LineStart, b'\n') => {
                    self.header = None;
                    return Ok(());
                }
                (_, b'\n') | (Header::LineStart, b'\r') => Header::LineStart,
                (_, 0x80..) => return Err(Refused::EightBitHeader),
                _ => Header::Line,
            };
        }
        self.header = Some(header);
        Ok(())
    }

    /// Gives the next chunk to the store, if there is a whole one, or if nothing more comes.
    pub(super) fn write(&mut self, ended: bool) -> Option<Call> {
        let upload = self.id?;
        let len = self.buffer.len().min(BLOB_CHUNK_BYTES_MAX);
        if len == 0 || (len < BLOB_CHUNK_BYTES_MAX && !ended) {
            return None;
        }
        let rest = self.buffer.split_off(len);
        let bytes = Bytes::from(std::mem::replace(&mut self.buffer, rest));
        Some(Call::BlobWrite { upload, bytes })
    }

    /// The message is whole: its content row.
    pub(super) fn end(&mut self) -> Result<Bytes, Refused> {
        if self.received == 0 {
            return Err(Refused::Empty);
        }
        self.open_end = self.parser.has_open_end();
        let done = Parser::new(&whimbrel_mime::Limits::default());
        let summary = std::mem::replace(&mut self.parser, done).finish();
        let content = Content {
            prefix: Bytes::new(),
            summary: summary.encode().into(),
        };
        Ok(content.encode())
    }

    /// The message as the service takes it.
    pub(super) fn named(self, cx: &Context, blob: BlobName, content: Bytes) -> NewMail {
        let date = match self.message.date {
            Some(date) => Date {
                seconds: date.unix_seconds(),
                zone_minutes: date.zone_minutes(),
            },
            None => Date {
                seconds: cx.now.wall_seconds() as i64,
                zone_minutes: 0,
            },
        };
        NewMail {
            flags: service_flags(&self.message.flags),
            date,
            // Limited before (`append_bytes_max`).
            size: u32::try_from(self.received).unwrap_or(u32::MAX),
            open_end: self.open_end,
            blob,
            content,
        }
    }
}
