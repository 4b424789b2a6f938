//! One header block: cuts it into fields and makes of them a part, an envelope and the usual fields.

use super::budget::{Members, Shares, Texts};
use super::text::{is_wsp, unfold};
use super::{address, content};
use crate::Limits;
use crate::summary::{Content, Disposition, Envelope, Field, Fields, Octets, Part, Span, is_usual};

/// Names longer than this are none that is asked for by name here.
const DROPPED_NAME_BYTES_MAX: usize = 64;
/// Names of dropped fields that are remembered.
const DROPPED_NAMES_MAX: usize = 32;

/// A header block that is being taken in: fields come line by line, lines come in pieces.
pub(super) struct Block {
    /// Bytes of the block that were looked at.
    seen: usize,
    fields: usize,
    /// The field that is being read, raw.
    field: Vec<u8>,
    /// Length of `field` where the present line begins.
    line_at: usize,
    /// Whether a limit cut the field or the block.
    cut: bool,
    /// Bytes that were parsed.
    pub(super) work: u64,
    head: Head,
}

/// What the fields told so far.
struct Head {
    part: Part,
    type_given: bool,
    boundary: Option<Octets>,
    envelope: Option<(Envelope, Members)>,
    usual: Option<(Fields, Texts)>,
}

/// A block that is read.
pub(super) struct Done {
    pub(super) part: Part,
    pub(super) boundary: Option<Octets>,
    pub(super) envelope: Option<Envelope>,
    pub(super) usual: Option<Fields>,
}

/// Whose header it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The message itself.
    Top,
    /// An embedded message.
    Embedded,
    /// A part of a multipart.
    Part,
    /// A part of a multipart/digest, whose default type is message/rfc822 (RFC 2046 5.1.5).
    DigestPart,
}

impl Block {
    /// A block that begins at the offset `start`. Texts of parts and of embedded envelopes are paid from `texts`.
    pub(super) fn new(role: Role, start: u64, shares: &Shares, texts: &mut Texts) -> Block {
        let mut part = empty_part(start);
        if role == Role::DigestPart {
            part.media_type = "message".into();
            part.subtype = "rfc822".into();
            part.params.clear();
        }
        let envelope_share = match role {
            Role::Top => Some(Texts::new(shares.envelope)),
            Role::Embedded => Some(texts.quarter()),
            Role::Part | Role::DigestPart => None,
        };
        let head = Head {
            part,
            type_given: false,
            boundary: None,
            envelope: envelope_share.map(|share| (Envelope::default(), Members::new(share))),
            usual: (role == Role::Top).then(|| {
                (
                    Fields {
                        complete: true,
                        ..Fields::default()
                    },
                    Texts::new(shares.fields),
                )
            }),
        };
        Block {
            seen: 0,
            fields: 0,
            field: Vec::new(),
            line_at: 0,
            cut: false,
            work: 0,
            head,
        }
    }

    /// Whether this is the header of a message, not of a part.
    pub(super) fn is_of_message(&self) -> bool {
        self.head.envelope.is_some()
    }

    /// The first byte of a line: unless it is white space, the field before is at its end.
    pub(super) fn line_starts(&mut self, first: u8, limits: &Limits, texts: &mut Texts) {
        if !is_wsp(first) {
            self.end_field(limits, texts);
        }
        self.line_at = self.field.len();
    }

    /// Bytes of the present line, its line end included.
    pub(super) fn line_bytes(&mut self, bytes: &[u8], limits: &Limits) {
        let room = if self.fields < limits.header_fields_max {
            limits.header_bytes_max - self.seen
        } else {
            0
        };
        let taken = &bytes[..bytes.len().min(room)];
        self.seen += taken.len();
        self.field.extend_from_slice(taken);
        self.cut |= taken.len() < bytes.len();
    }

    /// The present line is none of this block.
    pub(super) fn forget_line(&mut self) {
        self.field.truncate(self.line_at);
    }

    /// The block ends; `end` is the empty line behind it, or nothing where there is none.
    pub(super) fn finish(&mut self, end: &[u8], limits: &Limits, texts: &mut Texts) -> Done {
        self.end_field(limits, texts);
        let head = std::mem::replace(
            &mut self.head,
            Head {
                part: empty_part(0),
                type_given: false,
                boundary: None,
                envelope: None,
                usual: None,
            },
        );
        let envelope = head.envelope.map(|(envelope, members)| {
            if head.usual.is_none() {
                texts.give_back(members.rest());
            }
            envelope
        });
        Done {
            part: head.part,
            boundary: head.boundary,
            envelope,
            usual: head.usual.map(|(mut usual, _)| {
                usual.end = end.into();
                usual.complete &= !self.cut;
                usual
            }),
        }
    }

    fn end_field(&mut self, limits: &Limits, texts: &mut Texts) {
        if self.field.is_empty() {
            return;
        }
        self.fields += 1;
        self.work += self.field.len() as u64;
        self.head.field(&self.field, self.cut, limits, texts);
        self.field.clear();
        self.line_at = 0;
    }
}

impl Head {
    fn field(&mut self, raw: &[u8], cut: bool, limits: &Limits, texts: &mut Texts) {
        let Some((name, value)) = split(raw) else {
            return;
        };
        if name.len() >= 8 && name[..8].eq_ignore_ascii_case(b"content-") {
            // One field takes a quarter of what is left at most, so that it cannot starve those behind it.
            let mut own = texts.quarter();
            self.content_field(&name[8..], value, limits, &mut own);
            texts.give_back(own);
        } else if let Some((envelope, members)) = &mut self.envelope {
            envelope_field(envelope, members, name, value, cut, limits);
        }
        if let Some((usual, left)) = &mut self.usual
            && !cut
            && is_usual(name)
        {
            keep(
                usual,
                Field {
                    name_len: name.len(),
                    raw: raw.into(),
                },
                left,
            );
        }
    }

    fn content_field(&mut self, name: &[u8], value: &[u8], limits: &Limits, texts: &mut Texts) {
        let part = &mut self.part;
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        // Of several the first counts, as in Dovecot: so what a scanner saw cannot be replaced by a later field.
        if is("type") && !self.type_given {
            self.type_given = true;
            self.boundary = content_type(part, &unfold(value), limits, texts);
        } else if is("transfer-encoding") && *part.encoding == *DEFAULT_ENCODING.as_bytes() {
            if let Some((token, _)) = content::leading_token(&unfold(value))
                && texts.reserve(token.len())
            {
                part.encoding = token.into();
            }
        } else if is("id") && part.id.is_none() {
            part.id = texts.text(unfold(value));
        } else if is("description") && part.description.is_none() {
            part.description = texts.text(unfold(value));
        } else if is("md5") && part.md5.is_none() {
            part.md5 = texts.text(unfold(value));
        } else if is("location") && part.location.is_none() {
            part.location = texts.text(unfold(value));
        } else if is("language") && part.language.is_empty() {
            let tags = content::languages(&unfold(value), limits.params_max);
            part.language = tags.into_iter().filter_map(|tag| texts.text(tag)).collect();
        } else if is("disposition") && part.disposition.is_none() {
            let value = unfold(value);
            if let Some((kind, rest)) = content::leading_token(&value)
                && let Some(kind) = texts.text(kind.to_vec())
            {
                let params = texts.params(content::params(rest, limits.params_max));
                part.disposition = Some(Disposition { kind, params });
            }
        }
    }
}

/// A colon is looked for in so many bytes of a field's first line: what is longer has no name. A line of mail has at most
/// 998 (RFC 5322 2.1.1).
pub(crate) const NAME_BYTES_MAX: usize = 1000;

/// Name (without the white space that obsolete syntax allows behind it) and value of a raw field. `None`: no colon, so it
/// has no name.
pub(crate) fn split(raw: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr2(b':', b'\n', &raw[..raw.len().min(NAME_BYTES_MAX)])?;
    if raw[colon] == b'\n' {
        return None;
    }
    let name_len = raw[..colon]
        .iter()
        .rposition(|&b| !is_wsp(b))
        .map_or(0, |last| last + 1);
    Some((&raw[..name_len], &raw[colon + 1..]))
}

const DEFAULT_ENCODING: &str = "7bit";

/// Takes in a Content-Type; gives the boundary, which is needed whether it can be kept or not.
fn content_type(
    part: &mut Part,
    value: &[u8],
    limits: &Limits,
    texts: &mut Texts,
) -> Option<Octets> {
    let default = empty_part(0);
    let Some((media_type, subtype, rest)) = content::content_type(value) else {
        // RFC 2045 5.2: "It is also recommend that this default be assumed when a syntactically invalid Content-Type
        // header field is encountered."
        (part.media_type, part.subtype, part.params) =
            (default.media_type, default.subtype, default.params);
        return None;
    };
    let params = content::params(rest, limits.params_max);
    let boundary = params
        .iter()
        .find(|p| p.name.eq_ignore_ascii_case(b"boundary"))
        .map(|p| p.value.clone());
    if !texts.reserve(media_type.len() + subtype.len()) {
        part.media_type = "application".into();
        part.subtype = "octet-stream".into();
        part.params.clear();
        return None;
    }
    part.media_type = media_type.into();
    part.subtype = subtype.into();
    part.params = texts.params(params);
    if media_type.eq_ignore_ascii_case(b"text") && part.param("charset").is_none() {
        // The default is told, as in Dovecot. Its bytes are part of what a node may cost.
        part.params.extend(default.params);
    }
    boundary
}

/// `cut`: the end of `value` is missing.
fn envelope_field(
    envelope: &mut Envelope,
    members: &mut Members,
    name: &[u8],
    value: &[u8],
    cut: bool,
    limits: &Limits,
) {
    let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
    // Of several the last counts, as in Dovecot.
    match name.len() {
        4 if is("date") => return members.date.replace(&mut envelope.date, unfold(value)),
        7 if is("subject") => {
            return members
                .subject
                .replace(&mut envelope.subject, unfold(value));
        }
        10 if is("message-id") => {
            return members
                .message_id
                .replace_ids(&mut envelope.message_id, unfold(value), cut);
        }
        11 if is("in-reply-to") => {
            return members
                .in_reply_to
                .replace_ids(&mut envelope.in_reply_to, unfold(value), cut);
        }
        _ => {}
    }
    // All fields of a name make one list, as in Dovecot: so no program can check the first From while another shows the
    // second.
    let (list, texts) = match name.len() {
        2 if is("to") => (&mut envelope.to, &mut members.to),
        2 if is("cc") => (&mut envelope.cc, &mut members.cc),
        3 if is("bcc") => (&mut envelope.bcc, &mut members.bcc),
        4 if is("from") => (&mut envelope.from, &mut members.from),
        6 if is("sender") => (&mut envelope.given_sender, &mut members.sender),
        8 if is("reply-to") => (&mut envelope.given_reply_to, &mut members.reply_to),
        _ => return,
    };
    address::parse(&unfold(value), cut, limits.addresses_max, texts, list);
}

/// Keeps a usual field, or remembers that it was not kept.
pub(crate) fn keep(usual: &mut Fields, field: Field, left: &mut Texts) {
    if left.reserve(Texts::field_cost(field.raw.len())) {
        usual.list.push(field);
        return;
    }
    let name = field.name();
    if usual.dropped.iter().any(|d| d.eq_ignore_ascii_case(name)) {
        return;
    }
    let fits = name.len() <= DROPPED_NAME_BYTES_MAX && usual.dropped.len() < DROPPED_NAMES_MAX;
    if fits && left.reserve(Texts::field_cost(name.len())) {
        usual.dropped.push(name.to_ascii_lowercase().into());
    } else {
        usual.complete = false;
    }
}

/// Makes text/plain of a multipart that has no part.
pub(super) fn make_text(part: &mut Part) {
    let Part {
        media_type,
        subtype,
        params: default,
        ..
    } = empty_part(0);
    (part.media_type, part.subtype) = (media_type, subtype);
    part.params
        .retain(|param| param.name.eq_ignore_ascii_case(b"charset"));
    if part.params.is_empty() {
        part.params = default;
    }
}

/// A part as it is when nothing is said: RFC 2045 5.2, "text/plain; charset=us-ascii".
pub(super) fn empty_part(start: u64) -> Part {
    Part {
        media_type: "text".into(),
        subtype: "plain".into(),
        params: vec![crate::summary::Param {
            name: "charset".into(),
            value: "us-ascii".into(),
        }],
        id: None,
        description: None,
        encoding: DEFAULT_ENCODING.into(),
        md5: None,
        disposition: None,
        language: Vec::new(),
        location: None,
        header: Span { start, len: 0 },
        body: Span { start, len: 0 },
        lines: 0,
        content: Content::Text,
    }
}
