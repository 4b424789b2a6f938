//! What is kept of a message: envelope, part tree with byte ranges, usual header fields.
//!
//! Texts are as the message has them, not decoded, but fit to be sent as an IMAP string: unfolded, without CR, LF and NUL.

mod fields;
mod format;
mod reader;
mod sort_keys;
mod view;
mod wire;

pub(crate) use fields::is_usual;
pub use fields::{Field, Fields};
pub use format::DecodeError;
pub use reader::List;
pub use sort_keys::{FirstAddress, SortKeys};
pub use view::{
    AddressView, ContentView, DispositionView, EnvelopeView, FieldView, FieldsView, MessageView,
    ParamView, PartSummary, PartView, Parts, View,
};

use bytes::Bytes;

#[cfg(doc)]
use crate::Limits;

/// A text of a message: bytes in no known charset.
///
/// In a summary from [`Summary::decode_shared`] it is a part of the encoded bytes, which stay as long as it does.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Octets(Bytes);

impl std::ops::Deref for Octets {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Octets {
    fn from(bytes: &[u8]) -> Octets {
        Octets(Bytes::copy_from_slice(bytes))
    }
}

impl From<Vec<u8>> for Octets {
    fn from(bytes: Vec<u8>) -> Octets {
        Octets(Bytes::from(bytes.into_boxed_slice()))
    }
}

impl From<&str> for Octets {
    fn from(text: &str) -> Octets {
        Octets::from(text.as_bytes())
    }
}

impl std::fmt::Debug for Octets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// A range of bytes of the whole message, prefix included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Span {
    /// The range from `start` up to but without `end`.
    pub fn between(start: u64, end: u64) -> Span {
        debug_assert!(start <= end);
        Span {
            start,
            len: end.saturating_sub(start),
        }
    }

    /// Offset of the first byte behind the range.
    pub fn end(&self) -> u64 {
        self.start + self.len
    }

    /// What an IMAP `<offset.count>` takes of the range: nothing when the offset lies beyond its end (RFC 9051 6.4.5).
    pub fn partial(&self, offset: u64, count: u64) -> Span {
        let offset = offset.min(self.len);
        Span {
            start: self.start + offset,
            len: count.min(self.len - offset),
        }
    }
}

/// What is kept of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of the message that are stored apart from its blob, before it (trace fields of a delivery).
    pub prefix_len: u64,
    /// Bytes of the message, prefix included: RFC822.SIZE.
    pub size: u64,
    /// Line ends (LF) in the message, prefix included.
    pub lines: u64,
    /// Envelope and part tree. The header of its `body` is the message's header.
    pub message: Message,
    /// The usual header fields of the message, as they are.
    pub fields: Fields,
    /// What a list of messages shows of its text ([`crate::preview`]); `None`: written before there were previews, or without.
    pub preview: Option<String>,
}

/// What is wanted of a summary beside its sizes and the ranges of its outermost part: most of the work of decoding one is for what few
/// commands need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The envelope of the whole message; else it is empty.
    pub envelope: bool,
    /// The usual header fields; else there are none, and none is complete.
    pub fields: bool,
    /// What the parts are, and those inside the outermost; else that is [`Part::default`] but for its ranges.
    pub parts: bool,
}

impl Wanted {
    /// All of it.
    pub const ALL: Wanted = Wanted {
        envelope: true,
        fields: true,
        parts: true,
    };
}

/// A message: the whole one, or one embedded as message/rfc822.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its envelope.
    pub envelope: Envelope,
    /// Its outermost part: `body.header` is the header of the message, `body.body` its text.
    pub body: Part,
}

/// RFC 9051 7.5.2 ENVELOPE. A string is `None` when the field is absent.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Envelope {
    /// Date, as written.
    pub date: Option<Octets>,
    /// Subject, not decoded.
    pub subject: Option<Octets>,
    /// From.
    pub from: Vec<Address>,
    /// Sender as the message has it; an ENVELOPE wants [`Envelope::sender`].
    pub given_sender: Vec<Address>,
    /// Reply-To as the message has it; an ENVELOPE wants [`Envelope::reply_to`].
    pub given_reply_to: Vec<Address>,
    /// To.
    pub to: Vec<Address>,
    /// Cc.
    pub cc: Vec<Address>,
    /// Bcc.
    pub bcc: Vec<Address>,
    /// In-Reply-To.
    pub in_reply_to: Option<Octets>,
    /// Message-ID.
    pub message_id: Option<Octets>,
}

impl Envelope {
    /// "If the Sender or Reply-To header fields are absent in the [RFC5322] header, or are present but empty, the server sets the
    /// corresponding member of the envelope to be the same value as the from member" (RFC 9051 7.5.2).
    pub fn sender(&self) -> &[Address] {
        if self.given_sender.is_empty() {
            &self.from
        } else {
            &self.given_sender
        }
    }

    /// Reply-To, or From: see [`Envelope::sender`].
    pub fn reply_to(&self) -> &[Address] {
        if self.given_reply_to.is_empty() {
            &self.from
        } else {
            &self.given_reply_to
        }
    }
}

/// An address structure of RFC 9051 7.5.2: an address, or the start or the end of a group. Groups are always closed.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Address {
    /// Display name, not decoded.
    pub name: Option<Octets>,
    /// Source route (obs-route), as written.
    pub route: Option<Octets>,
    /// Local part; at the start of a group its name; `None` at the end of a group.
    pub mailbox: Option<Octets>,
    /// Domain; `None` for the start and the end of a group.
    pub host: Option<Octets>,
}

/// A part of a message: what BODYSTRUCTURE says about it, and where it lies. By default one of which nothing is known.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Part {
    /// Media type as written, `TEXT` by default.
    pub media_type: Octets,
    /// Media subtype as written.
    pub subtype: Octets,
    /// Parameters of Content-Type, RFC 2231 pieces put together.
    pub params: Vec<Param>,
    /// Content-ID.
    pub id: Option<Octets>,
    /// Content-Description, not decoded.
    pub description: Option<Octets>,
    /// Content-Transfer-Encoding as written, `7BIT` by default.
    pub encoding: Octets,
    /// Content-MD5.
    pub md5: Option<Octets>,
    /// Content-Disposition.
    pub disposition: Option<Disposition>,
    /// Content-Language.
    pub language: Vec<Octets>,
    /// Content-Location.
    pub location: Option<Octets>,
    /// Header of the part with the empty line behind it. For the outermost part of a message: the message's header.
    pub header: Span,
    /// The bytes behind the header. Its `len` is the size in octets of BODYSTRUCTURE.
    pub body: Span,
    /// Line ends (LF) in `body`.
    pub lines: u64,
    /// What is inside.
    pub content: Content,
}

/// What a part holds.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Content {
    /// No text and nothing to look into.
    #[default]
    Basic,
    /// text/*: its BODYSTRUCTURE has lines.
    Text,
    /// multipart/*: one part at least (RFC 9051 `1*body`; one that has none is given an empty text/plain part).
    Multipart(Vec<Part>),
    /// message/rfc822 or message/global: its BODYSTRUCTURE has envelope, body and lines.
    Message(Box<Message>),
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name as written, without RFC 2231 piece numbers.
    pub name: Octets,
    /// Value: unquoted.
    pub value: Octets,
}

/// Content-Disposition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// Disposition type as written.
    pub kind: Octets,
    /// Its parameters.
    pub params: Vec<Param>,
}

impl Part {
    /// Whether this is `media_type/subtype`, whatever the case.
    pub fn is(&self, media_type: &str, subtype: &str) -> bool {
        self.media_type.eq_ignore_ascii_case(media_type.as_bytes())
            && self.subtype.eq_ignore_ascii_case(subtype.as_bytes())
    }

    /// The value of a Content-Type parameter, the first of that name.
    pub fn param(&self, name: &str) -> Option<&[u8]> {
        self.params
            .iter()
            .find(|p| p.name.eq_ignore_ascii_case(name.as_bytes()))
            .map(|p| &*p.value)
    }
}

impl Summary {
    /// Bytes of the header, the empty line behind it included.
    pub fn header_len(&self) -> u64 {
        self.message.body.header.len
    }

    /// Where `span` lies: the range of the prefix and the range of the blob, each relative to its own start, each possibly
    /// empty.
    pub fn split(&self, span: Span) -> (Span, Span) {
        let cut = span.end().min(self.prefix_len).max(span.start);
        let prefix = Span::between(span.start.min(self.prefix_len), cut.min(self.prefix_len));
        let blob_start = cut.max(self.prefix_len);
        let blob = Span::between(
            blob_start - self.prefix_len,
            span.end().max(blob_start) - self.prefix_len,
        );
        (prefix, blob)
    }

    /// The answer to HEADER.FIELDS with these names, if the summary has it: the fields as they are, in their order, and the
    /// empty line. `None`: read the header and use [`crate::HeaderFilter`].
    pub fn header_fields<N: AsRef<[u8]>>(&self, names: &[N]) -> Option<Vec<u8>> {
        self.fields.answer(names)
    }

    /// The encoding that is stored: CBOR, a version first.
    pub fn encode(&self) -> Vec<u8> {
        wire::encode(self)
    }

    /// The inverse of [`Summary::encode`]. Never panics, uses memory in proportion to `bytes`, and refuses nesting beyond
    /// [`Limits::NESTING_MAX`].
    pub fn decode(bytes: &[u8]) -> Result<Summary, DecodeError> {
        wire::decode(&Bytes::copy_from_slice(bytes), Wanted::ALL)
    }

    /// As [`Summary::decode`], but nothing is copied (what it holds are parts of `bytes`), and what is not wanted is stepped over.
    ///
    /// # Errors
    /// As there.
    pub fn decode_shared(bytes: &Bytes, wanted: Wanted) -> Result<Summary, DecodeError> {
        wire::decode(bytes, wanted)
    }
}
