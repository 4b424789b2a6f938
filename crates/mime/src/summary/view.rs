//! An encoded summary, looked into where it lies: nothing is allocated and nothing is copied, and what is not asked for is stepped over.
//!
//! What is asked for is checked as it is read: [`View::new`] checks the frame, [`View::envelope`] and [`View::fields`] all that they give,
//! [`PartView::told`] one part; who goes through all parts has checked all. [`Summary::decode`] does nothing else.

use super::fields::RULE;
use super::format::{DecodeError, VERSION, damaged};
use super::reader::{Element, List, Read, Reader};
#[cfg(doc)]
use super::{Address, Content, Disposition, Envelope, Fields, Part, Summary};
use super::{Field, Span, is_usual};
use crate::Limits;

/// A placeholder stands below the deepest part that is looked into.
pub(super) const DEPTH_MAX: usize = Limits::NESTING_MAX + 1;

/// An encoded summary.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// As [`Summary::prefix_len`].
    pub prefix_len: u64,
    /// As [`Summary::size`].
    pub size: u64,
    /// As [`Summary::lines`].
    pub lines: u64,
    /// As [`Summary::preview`].
    pub preview: Option<&'a str>,
    message: MessageView<'a>,
    fields: &'a [u8],
    /// The fields were kept by the rule that is known here.
    rule_is_known: bool,
}

/// A message: the whole one, or one embedded as message/rfc822.
#[derive(Clone, Debug)]
pub struct MessageView<'a> {
    envelope: &'a [u8],
    /// Its outermost part.
    pub body: PartView<'a>,
}

/// As [`Envelope`].
#[derive(Clone, Debug)]
pub struct EnvelopeView<'a> {
    /// Date.
    pub date: Option<&'a [u8]>,
    /// Subject.
    pub subject: Option<&'a [u8]>,
    /// From.
    pub from: List<'a, AddressView<'a>>,
    /// Sender as the message has it.
    pub given_sender: List<'a, AddressView<'a>>,
    /// Reply-To as the message has it.
    pub given_reply_to: List<'a, AddressView<'a>>,
    /// To.
    pub to: List<'a, AddressView<'a>>,
    /// Cc.
    pub cc: List<'a, AddressView<'a>>,
    /// Bcc.
    pub bcc: List<'a, AddressView<'a>>,
    /// In-Reply-To.
    pub in_reply_to: Option<&'a [u8]>,
    /// Message-ID.
    pub message_id: Option<&'a [u8]>,
}

/// As [`Address`].
#[derive(Clone, Copy, Debug)]
pub struct AddressView<'a> {
    /// Display name, not decoded.
    pub name: Option<&'a [u8]>,
    /// Source route.
    pub route: Option<&'a [u8]>,
    /// Local part, or the name of a group.
    pub mailbox: Option<&'a [u8]>,
    /// Domain.
    pub host: Option<&'a [u8]>,
}

/// Where a part lies; what it is [`PartView::told`] says.
#[derive(Clone, Copy, Debug)]
pub struct PartView<'a> {
    /// As [`Part::header`].
    pub header: Span,
    /// As [`Part::body`].
    pub body: Span,
    /// As [`Part::lines`].
    pub lines: u64,
    told: &'a [u8],
    depth: usize,
}

/// What a part is: as [`Part`].
#[derive(Clone, Debug)]
pub struct PartSummary<'a> {
    /// Media type.
    pub media_type: &'a [u8],
    /// Media subtype.
    pub subtype: &'a [u8],
    /// Parameters of Content-Type.
    pub params: List<'a, ParamView<'a>>,
    /// Content-ID.
    pub id: Option<&'a [u8]>,
    /// Content-Description.
    pub description: Option<&'a [u8]>,
    /// Content-Transfer-Encoding.
    pub encoding: &'a [u8],
    /// Content-MD5.
    pub md5: Option<&'a [u8]>,
    /// Content-Disposition.
    pub disposition: Option<DispositionView<'a>>,
    /// Content-Language.
    pub language: List<'a, &'a [u8]>,
    /// Content-Location.
    pub location: Option<&'a [u8]>,
    /// What is inside.
    pub content: ContentView<'a>,
}

/// As [`Content`].
#[derive(Clone, Debug)]
pub enum ContentView<'a> {
    /// Neither text nor anything to look into.
    Basic,
    /// text/*.
    Text,
    /// multipart/*: one part at least.
    Multipart(Parts<'a>),
    /// message/rfc822 or message/global.
    Message(MessageView<'a>),
}

/// The parts of a multipart.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    list: List<'a, Place<'a>>,
    /// Where they have to lie.
    within: Span,
    depth: usize,
}

/// A parameter: name and value.
#[derive(Clone, Copy, Debug)]
pub struct ParamView<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

/// As [`Disposition`].
#[derive(Clone, Debug)]
pub struct DispositionView<'a> {
    /// Its type.
    pub kind: &'a [u8],
    /// Its parameters.
    pub params: List<'a, ParamView<'a>>,
}

/// As [`Fields`].
#[derive(Clone, Debug)]
pub struct FieldsView<'a> {
    /// The fields kept.
    pub list: List<'a, FieldView<'a>>,
    /// Names of which not every field was kept.
    pub dropped: List<'a, &'a [u8]>,
    /// False when no answer is complete.
    pub complete: bool,
    /// The empty line behind the header.
    pub end: &'a [u8],
}

/// As [`Field`].
#[derive(Clone, Copy, Debug)]
pub struct FieldView<'a> {
    /// Bytes of `raw` that are the name.
    pub name_len: usize,
    /// The field with its name, folds and line end.
    pub raw: &'a [u8],
}

impl<'a> View<'a> {
    /// Of the encoding of a summary.
    ///
    /// # Errors
    /// When its frame is damaged or of a later version.
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, DecodeError> {
        let r = &mut Reader::new(bytes);
        let mut array = r.array(7)?;
        let version = r.short()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let rule = r.short()?;
        let (prefix_len, size, lines) = (r.number()?, r.number()?, r.number()?);
        if prefix_len > size {
            return Err(damaged("a prefix longer than the message"));
        }
        let message = MessageView::read(
            r,
            0,
            Span {
                start: 0,
                len: size,
            },
        )?;
        let fields = r.bytes()?;
        let preview = if array.takes_one() {
            Some(r.text()?)
        } else {
            None
        };
        r.close(array)?;
        r.end()?;
        Ok(View {
            prefix_len,
            size,
            lines,
            preview,
            message,
            fields,
            rule_is_known: rule == RULE,
        })
    }

    /// Its envelope.
    ///
    /// # Errors
    /// When that is damaged.
    pub fn envelope(&self) -> Result<EnvelopeView<'a>, DecodeError> {
        self.message.envelope()
    }

    /// Its outermost part.
    pub fn body(&self) -> PartView<'a> {
        self.message.body
    }

    /// The usual header fields.
    ///
    /// # Errors
    /// When they are damaged.
    pub fn fields(&self) -> Result<FieldsView<'a>, DecodeError> {
        let r = &mut Reader::new(self.fields);
        let array = r.array(4)?;
        let count = r.pairs()?;
        let list = List::over(r, count)?;
        let dropped = r.count()?;
        let dropped = List::over(r, dropped)?;
        let (complete, end) = (r.boolean()?, r.bytes()?);
        r.close(array)?;
        r.end()?;
        Ok(FieldsView {
            list,
            dropped,
            complete: complete && self.rule_is_known,
            end,
        })
    }
}

impl<'a> MessageView<'a> {
    fn read(r: &mut Reader<'a>, depth: usize, within: Span) -> Read<MessageView<'a>> {
        let array = r.array(2)?;
        let envelope = r.bytes()?;
        let body = Place::read(r)?.at(depth + 1, within)?;
        r.close(array)?;
        Ok(MessageView { envelope, body })
    }

    /// Its envelope.
    ///
    /// # Errors
    /// When that is damaged.
    pub fn envelope(&self) -> Result<EnvelopeView<'a>, DecodeError> {
        let r = &mut Reader::new(self.envelope);
        let array = r.array(10)?;
        let envelope = EnvelopeView {
            date: r.optional()?,
            subject: r.optional()?,
            from: list(r)?,
            given_sender: list(r)?,
            given_reply_to: list(r)?,
            to: list(r)?,
            cc: list(r)?,
            bcc: list(r)?,
            in_reply_to: r.optional()?,
            message_id: r.optional()?,
        };
        r.close(array)?;
        r.end()?;
        Ok(envelope)
    }
}

impl<'a> EnvelopeView<'a> {
    /// As [`Envelope::sender`].
    pub fn sender(&self) -> List<'a, AddressView<'a>> {
        self.or_from(&self.given_sender)
    }

    /// As [`Envelope::reply_to`].
    pub fn reply_to(&self) -> List<'a, AddressView<'a>> {
        self.or_from(&self.given_reply_to)
    }

    fn or_from(&self, given: &List<'a, AddressView<'a>>) -> List<'a, AddressView<'a>> {
        let list = if given.is_empty() { &self.from } else { given };
        list.clone()
    }
}

#[inline]
fn list<'a, T: Element<'a>>(r: &mut Reader<'a>) -> Read<List<'a, T>> {
    let count = r.count()?;
    List::over(r, count)
}

fn params<'a>(r: &mut Reader<'a>) -> Read<List<'a, ParamView<'a>>> {
    let count = r.pairs()?;
    List::over(r, count)
}

impl<'a> Element<'a> for AddressView<'a> {
    #[inline]
    fn read(r: &mut Reader<'a>) -> Read<Self> {
        let array = r.array(4)?;
        let address = AddressView {
            name: r.optional()?,
            route: r.optional()?,
            mailbox: r.optional()?,
            host: r.optional()?,
        };
        r.close(array)?;
        Ok(address)
    }
}

impl<'a> Element<'a> for ParamView<'a> {
    #[inline]
    fn read(r: &mut Reader<'a>) -> Read<Self> {
        Ok(ParamView {
            name: r.bytes()?,
            value: r.bytes()?,
        })
    }
}

impl<'a> Element<'a> for FieldView<'a> {
    #[inline]
    fn read(r: &mut Reader<'a>) -> Read<Self> {
        let name_len = usize::try_from(r.number()?).unwrap_or(usize::MAX);
        let raw = r.bytes()?;
        if name_len > raw.len() {
            return Err(damaged("name longer than its field"));
        }
        Ok(FieldView { name_len, raw })
    }
}

impl<'a> FieldView<'a> {
    /// As [`Field::name`].
    pub fn name(&self) -> &'a [u8] {
        &self.raw[..self.name_len.min(self.raw.len())]
    }

    /// As [`Field::value`].
    pub fn value(&self) -> &'a [u8] {
        Field::value_in(self.raw, self.name_len)
    }
}

impl FieldsView<'_> {
    /// As [`Fields::is_complete`].
    pub fn is_complete(&self, name: &[u8]) -> bool {
        let mut dropped = self.dropped.clone();
        self.complete
            && is_usual(name)
            && !dropped.any(|dropped| dropped.eq_ignore_ascii_case(name))
    }
}

/// A part whose place in the tree is not yet looked at.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    header: Span,
    body: Span,
    lines: u64,
    told: &'a [u8],
}

impl<'a> Element<'a> for Place<'a> {
    #[inline]
    fn read(r: &mut Reader<'a>) -> Read<Self> {
        let array = r.array(6)?;
        let header = Span {
            start: r.number()?,
            len: r.number()?,
        };
        let body = Span {
            start: r.number()?,
            len: r.number()?,
        };
        let place = Place {
            header,
            body,
            lines: r.number()?,
            told: r.bytes()?,
        };
        r.close(array)?;
        Ok(place)
    }
}

impl<'a> Place<'a> {
    /// Its ranges have to lie in `within`, and their ends can be computed.
    fn at(self, depth: usize, within: Span) -> Read<PartView<'a>> {
        if depth > DEPTH_MAX {
            return Err(damaged("nested too deep"));
        }
        let lies = |span: Span| {
            let end = span.start.checked_add(span.len);
            span.start >= within.start && end.is_some_and(|end| end <= within.end())
        };
        if !lies(self.header) || !lies(self.body) {
            return Err(damaged("a range beyond the message"));
        }
        Ok(PartView {
            header: self.header,
            body: self.body,
            lines: self.lines,
            told: self.told,
            depth,
        })
    }
}

impl PartSummary<'_> {
    /// As [`Part::is`].
    pub fn is(&self, media_type: &str, subtype: &str) -> bool {
        self.media_type.eq_ignore_ascii_case(media_type.as_bytes())
            && self.subtype.eq_ignore_ascii_case(subtype.as_bytes())
    }
}

impl<'a> PartView<'a> {
    /// What the part is.
    ///
    /// # Errors
    /// When that is damaged.
    pub fn summary(&self) -> Result<PartSummary<'a>, DecodeError> {
        let r = &mut Reader::new(self.told);
        let array = r.array(12)?;
        let told = PartSummary {
            media_type: r.bytes()?,
            subtype: r.bytes()?,
            params: params(r)?,
            id: r.optional()?,
            description: r.optional()?,
            encoding: r.bytes()?,
            md5: r.optional()?,
            disposition: if r.null() {
                None
            } else {
                Some(disposition(r)?)
            },
            language: list(r)?,
            location: r.optional()?,
            content: self.content(r)?,
        };
        r.close(array)?;
        r.end()?;
        Ok(told)
    }

    fn content(&self, r: &mut Reader<'a>) -> Read<ContentView<'a>> {
        match r.number()? {
            0 => {
                r.skip()?;
                Ok(ContentView::Basic)
            }
            1 => {
                r.skip()?;
                Ok(ContentView::Text)
            }
            2 => {
                let list = list(r)?;
                if list.is_empty() {
                    return Err(damaged("multipart without parts"));
                }
                Ok(ContentView::Multipart(Parts {
                    list,
                    within: self.body,
                    depth: self.depth + 1,
                }))
            }
            3 => MessageView::read(r, self.depth, self.body).map(ContentView::Message),
            _ => Err(damaged("unknown kind of part")),
        }
    }
}

fn disposition<'a>(r: &mut Reader<'a>) -> Read<DispositionView<'a>> {
    let array = r.array(2)?;
    let disposition = DispositionView {
        kind: r.bytes()?,
        params: params(r)?,
    };
    r.close(array)?;
    Ok(disposition)
}

impl<'a> Iterator for Parts<'a> {
    type Item = Result<PartView<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let place = self.list.next()?;
        Some(place.at(self.depth, self.within))
    }
}
