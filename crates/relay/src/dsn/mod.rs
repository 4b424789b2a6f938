//! Delivery status notifications: messages that tell a sender what became of a message (RFC 3461, 3464, 6522, 6533).
//!
//! A notification is a multipart/report of three parts: a text for people, the fields of message/delivery-status for programs, and the original or its
//! header. The original is not copied: a [`Notification`] has the bytes before and behind it, and the caller streams it between.
//!
//! Invariants: nobody is told about a message with a null sender, and nobody is told what NOTIFY excludes. Two nodes that report the same recipients of
//! one entry make notifications of one Message-ID, with one boundary: whoever gets both sees one. Nothing that another server said ends a line or a field.
//! Lines have at most 998 octets, but those of the original.
//!
//! Reading order: [`params`] (what the sender asked for), [`Report`], [`Report::notifications`].
//!
//! Deviation from Postfix, whose fields are otherwise the same: without ORCPT there is no Original-Recipient (RFC 3461 6.3: "MUST NOT appear").

mod fields;
pub mod params;
mod quoted;
mod text;

pub use params::{EnvelopeId, Notify, OriginalRecipient, ParamError, Return};
pub use quoted::QuotedPrintable;

use core::fmt;
use core::ops::Range;

use ring::digest;
use whimbrel_smtp::trace::WallTime;
use whimbrel_smtp::{Domain, Mailbox, Reply, ReversePath};

use crate::{Status, mutants::broken};
use fields::{Field, sanitized};

/// Recipients of one notification; more are told by further ones.
pub const RECIPIENTS_MAX: usize = 100;
/// Octets of what a server said, as a notification quotes it.
pub const DIAGNOSTIC_BYTES_MAX: usize = 1_000;
/// Octets of the original's subject, as a notification quotes it.
pub const SUBJECT_BYTES_MAX: usize = 200;

/// Sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Octets of an original that is returned whole. Of a larger one the header is: its sender has it, and it once failed for its size.
    pub whole_bytes_max: u64,
    /// Octets of a header that is returned. A longer one is cut there.
    pub header_bytes_max: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            whole_bytes_max: 1 << 20,
            header_bytes_max: 64 << 10,
        }
    }
}

/// What was done for a recipient (RFC 3464 2.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Given up.
    Failed,
    /// Not yet, and it is attempted further.
    Delayed,
    /// In the mailbox.
    Delivered,
    /// With a server that sends no notifications of success.
    Relayed,
    /// Sent on to the several addresses of an alias.
    Expanded,
}

/// What a notification is about. One has recipients of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Failed.
    Failure,
    /// Delayed.
    Delay,
    /// Delivered, relayed, expanded.
    Success,
}

impl Action {
    /// The kind of notification that tells of it.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Action::Failed => Kind::Failure,
            Action::Delayed => Kind::Delay,
            Action::Delivered | Action::Relayed | Action::Expanded => Kind::Success,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Action::Failed => "failed",
            Action::Delayed => "delayed",
            Action::Delivered => "delivered",
            Action::Relayed => "relayed",
            Action::Expanded => "expanded",
        }
    }
}

/// Whether a sender is told of something (RFC 3461 5.2). A *relayed* is told only where the next server does not offer DSN: else that one has the duty.
#[must_use]
pub fn is_told(sender: &ReversePath, notify: Notify, action: Action) -> bool {
    if *sender == ReversePath::Null && !broken("null-senders-told") {
        return false;
    }
    match (notify, action.kind()) {
        // RFC 3461 5.2.5 (b): "MAY be issued"; 5.2.6 (c): "MUST be issued"; 5.2.2 (e), 5.2.3 (c): "MUST NOT".
        (Notify::Default, kind) => kind != Kind::Success || broken("success-told-unasked"),
        (Notify::Never, _) => broken("never-ignored"),
        (Notify::On { failure, .. }, Kind::Failure) => failure,
        (Notify::On { delay, .. }, Kind::Delay) => delay,
        (Notify::On { success, .. }, Kind::Success) => success,
    }
}

/// Why, in the words of whoever said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Diagnostic<'a> {
    /// A reply of the server [`Recipient::remote`].
    Reply(&'a Reply),
    /// This server: it could not connect, or gave up. Any text.
    Own(&'a str),
}

/// A recipient, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipient<'a> {
    /// As it was accepted.
    pub address: &'a Mailbox,
    /// ORCPT.
    pub original: Option<&'a OriginalRecipient>,
    /// NOTIFY.
    pub notify: Notify,
    /// What was done.
    pub action: Action,
    /// How.
    pub status: Status,
    /// The name of the host that gave the reply; told with a [`Diagnostic::Reply`] alone (RFC 3464 2.3.5).
    pub remote: Option<&'a str>,
    /// Why.
    pub diagnostic: Option<Diagnostic<'a>>,
    /// When it was last attempted.
    pub last_attempt: Option<WallTime>,
    /// When it will be given up; told of delayed ones alone (RFC 3464 2.3.9).
    pub retry_until: Option<WallTime>,
}

/// What is known of the message that is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Original<'a> {
    /// Its octets.
    pub bytes: u64,
    /// Those of its header, without the empty line behind it.
    pub header_bytes: u64,
    /// It came with SMTPUTF8: its header may have UTF-8.
    pub utf8: bool,
    /// All octets of the header are ASCII.
    pub header_is_ascii: bool,
    /// All octets are ASCII.
    pub is_ascii: bool,
    /// Its Subject, decoded: by it people know the message.
    pub subject: Option<&'a str>,
}

/// In which octets a notification is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// ASCII.
    SevenBit,
    /// UTF-8 in bodies: needs 8BITMIME.
    EightBit,
    /// UTF-8 everywhere: needs SMTPUTF8, and 8BITMIME, which it implies.
    Utf8,
}

impl Form {
    /// The form in which nothing is lost. Who is sent a message with SMTPUTF8 back has sent one.
    #[must_use]
    pub fn of(sender: &ReversePath, original: &Original<'_>) -> Form {
        if original.utf8 || needs_utf8(sender) {
            Form::Utf8
        } else if original.is_ascii && original.subject.is_none_or(str::is_ascii) {
            Form::SevenBit
        } else {
            Form::EightBit
        }
    }
}

fn needs_utf8(sender: &ReversePath) -> bool {
    sender.mailbox().is_some_and(|mailbox| !mailbox.is_ascii())
}

/// What is to be told of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// The id of the entry in the queue.
    pub entry: [u8; 16],
    /// The name of this server.
    pub reporting: &'a Domain,
    /// Who writes: `MAILER-DAEMON@` a domain of ours, the same at all nodes.
    pub from: &'a Mailbox,
    /// Who helps: `postmaster@` that domain.
    pub help: &'a Mailbox,
    /// Who is told.
    pub sender: &'a ReversePath,
    /// ENVID.
    pub envelope_id: Option<&'a EnvelopeId>,
    /// RET. Without it the whole message is returned, as Postfix does: it may be the only copy.
    pub returns: Option<Return>,
    /// When the message was accepted.
    pub arrived: WallTime,
    /// Now.
    pub now: WallTime,
    /// The message.
    pub original: Original<'a>,
    /// What became of its recipients.
    pub recipients: &'a [Recipient<'a>],
}

/// How the returned bytes are to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Not at all.
    AsIs,
    /// By [`QuotedPrintable`].
    QuotedPrintable,
}

/// A notification: `prefix`, the bytes `returned` of the original in their `encoding`, `suffix`. It is sent with a null sender, without RET, and with
/// NOTIFY=NEVER or none (RFC 3461 6.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// What it is about.
    pub kind: Kind,
    /// To whom it goes: the sender.
    pub to: Mailbox,
    /// Its Message-ID, in angle brackets.
    pub message_id: String,
    /// The bytes before the original.
    pub prefix: Vec<u8>,
    /// The bytes of the original that are returned.
    pub returned: Range<u64>,
    /// See there.
    pub encoding: Encoding,
    /// The bytes behind it.
    pub suffix: Vec<u8>,
    /// It needs SMTPUTF8.
    pub utf8: bool,
    /// It has octets that are not ASCII: it needs 8BITMIME.
    pub eight_bit: bool,
}

/// Type and encoding of the third part.
struct Third {
    media_type: &'static str,
    encoding: &'static str,
    returned: Range<u64>,
}

impl Report<'_> {
    /// The notifications of this kind, in this form: none if nobody is to be told, several for more than [`RECIPIENTS_MAX`] recipients. A sender's address
    /// that is not ASCII makes every form UTF-8: nothing else can name it.
    ///
    /// # Panics
    /// If `from` or `help` is not ASCII: they are of the configuration.
    #[must_use]
    pub fn notifications(&self, kind: Kind, form: Form, config: &Config) -> Vec<Notification> {
        assert!(
            self.from.is_ascii() && self.help.is_ascii(),
            "an address of this server is not ASCII"
        );
        let told = |recipient: &&Recipient<'_>| {
            recipient.action.kind() == kind
                && is_told(self.sender, recipient.notify, recipient.action)
        };
        let mut told: Vec<&Recipient<'_>> = self.recipients.iter().filter(told).collect();
        // In one order, whatever order a node has met them in.
        told.sort_by(|one, other| one.address.cmp(other.address));
        let Some(to) = self.sender.mailbox() else {
            return Vec::new();
        };
        let form = if to.is_ascii() { form } else { Form::Utf8 };
        told.chunks(RECIPIENTS_MAX)
            .map(|chunk| self.notification(to, kind, form, config, chunk))
            .collect()
    }

    fn notification(
        &self,
        to: &Mailbox,
        kind: Kind,
        form: Form,
        config: &Config,
        told: &[&Recipient<'_>],
    ) -> Notification {
        let utf8 = form == Form::Utf8;
        let name = self.name(kind, told);
        let message_id = format!("<{}@{}>", hex(&name[..16]), self.from.domain());
        // With a character that no encoding makes, so that it is in no encoded part.
        let boundary = format!("=_{}", hex(&name[16..]));
        let text = text::text(self, kind, told, utf8);
        let third = self.third(kind, form, config);
        let text_encoding = match (text.is_ascii(), form) {
            (true, _) => "7bit",
            (false, Form::SevenBit) => "quoted-printable",
            (false, _) => "8bit",
        };
        let status = self.status(told, utf8);
        let eight_bit = utf8 || text_encoding == "8bit" || third.encoding == "8bit";
        let mut head = Field::new(utf8);
        head.line("Date", &self.now);
        head.line(
            "From",
            &format_args!("Mail Delivery System <{}>", self.from),
        );
        head.line("To", &format_args!("<{to}>"));
        head.line("Subject", &text::subject(kind));
        head.line("Message-ID", &message_id);
        // RFC 3834 5: so that no robot answers.
        head.line("Auto-Submitted", &"auto-replied");
        head.line("MIME-Version", &"1.0");
        head.line(
            "Content-Type",
            &format_args!("multipart/report; report-type=delivery-status; boundary=\"{boundary}\""),
        );
        head.line(
            "Content-Transfer-Encoding",
            &if eight_bit { "8bit" } else { "7bit" },
        );
        let mut out = head.finish();
        let mut part = |media_type: &str, encoding: &str, body: &[u8]| {
            out.extend_from_slice(
                format!("\r\n--{boundary}\r\nContent-Type: {media_type}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n")
                    .as_bytes(),
            );
            out.extend_from_slice(body);
        };
        let body = match text_encoding {
            "quoted-printable" => QuotedPrintable::whole(text.as_bytes()),
            _ => text.into_bytes(),
        };
        part("text/plain; charset=utf-8", text_encoding, &body);
        match utf8 {
            true => part("message/global-delivery-status", "8bit", &status),
            false => part("message/delivery-status", "7bit", &status),
        }
        part(third.media_type, third.encoding, b"");
        Notification {
            kind,
            to: to.clone(),
            message_id,
            prefix: out,
            returned: third.returned,
            encoding: match third.encoding {
                "quoted-printable" => Encoding::QuotedPrintable,
                _ => Encoding::AsIs,
            },
            suffix: format!("\r\n--{boundary}--\r\n").into_bytes(),
            utf8,
            eight_bit,
        }
    }

    /// What is returned of the original, and as what (RFC 3461 6.2, RFC 6533 4).
    fn third(&self, kind: Kind, form: Form, config: &Config) -> Third {
        let original = &self.original;
        let wanted = self.returns != Some(Return::Headers);
        // RFC 3461 6.2: "If a DSN contains no notifications of delivery failure, the MTA SHOULD return only the headers."
        let whole = wanted && (kind == Kind::Failure || broken("success-returns-all"));
        let whole = whole && original.bytes <= config.whole_bytes_max;
        // RFC 2046 5.2.1 allows no encoding of message/rfc822 but 7bit, 8bit and binary.
        let whole = whole && (original.is_ascii || original.utf8 || form >= Form::EightBit);
        let is_ascii = if whole {
            original.is_ascii
        } else {
            original.header_is_ascii
        };
        // RFC 6533 4.5: without SMTPUTF8 "the undeliverable body part and headers MUST be encoded using a 7-bit Content-Transfer-Encoding".
        let may_be_eight_bit = match original.utf8 {
            true => form == Form::Utf8,
            false => form >= Form::EightBit,
        };
        Third {
            media_type: match (whole, original.utf8) {
                (true, true) => "message/global",
                (true, false) => "message/rfc822",
                (false, true) => "message/global-headers",
                (false, false) => "text/rfc822-headers",
            },
            encoding: match (is_ascii, may_be_eight_bit) {
                (true, _) => "7bit",
                (false, true) => "8bit",
                (false, false) => "quoted-printable",
            },
            returned: match whole {
                true => 0..original.bytes,
                false => {
                    0..original
                        .header_bytes
                        .min(original.bytes)
                        .min(config.header_bytes_max)
                }
            },
        }
    }

    /// 32 bytes that name a notification: of the entry, the kind and the recipients, nothing else.
    fn name(&self, kind: Kind, told: &[&Recipient<'_>]) -> [u8; 32] {
        let mut hash = digest::Context::new(&digest::SHA256);
        hash.update(b"notification\n");
        hash.update(&self.entry);
        hash.update(&[kind as u8]);
        if broken("named-by-time") {
            hash.update(self.now.to_string().as_bytes());
        }
        for recipient in told {
            // No address has a line end.
            hash.update(recipient.address.to_string().as_bytes());
            hash.update(b"\n");
        }
        let mut name = [0; 32];
        name.copy_from_slice(hash.finish().as_ref());
        name
    }

    /// The fields of message/delivery-status (RFC 3464 2.2, 2.3) in the order of its grammar.
    fn status(&self, told: &[&Recipient<'_>], utf8: bool) -> Vec<u8> {
        let mut out = Field::new(utf8);
        if let Some(id) = self.envelope_id {
            out.line("Original-Envelope-Id", &id.decoded());
        }
        out.line("Reporting-MTA", &format_args!("dns; {}", self.reporting));
        out.line("Arrival-Date", &self.arrived);
        for recipient in told {
            out.empty();
            if let Some(original) = recipient.original {
                out.line("Original-Recipient", &original.field(utf8));
            }
            out.line("Final-Recipient", &params::address(recipient.address, utf8));
            out.line("Action", &recipient.action.text());
            out.line("Status", &recipient.status);
            match recipient.diagnostic {
                Some(Diagnostic::Reply(reply)) => {
                    if let Some(remote) = recipient.remote {
                        out.line(
                            "Remote-MTA",
                            &format_args!("dns; {}", sanitized(remote, false, 255)),
                        );
                    }
                    out.lines("Diagnostic-Code", "smtp; ", &transcript(reply));
                }
                Some(Diagnostic::Own(text)) => {
                    let text = sanitized(text, utf8, DIAGNOSTIC_BYTES_MAX);
                    out.line("Diagnostic-Code", &format_args!("x-whimbrel; {text}"));
                }
                None => {}
            }
            if let Some(time) = recipient.last_attempt {
                out.line("Last-Attempt-Date", &time);
            }
            if let Some(time) = recipient
                .retry_until
                .filter(|_| recipient.action == Action::Delayed)
            {
                out.line("Will-Retry-Until", &time);
            }
        }
        out.finish()
    }
}

/// The lines of a reply as they came, up to [`DIAGNOSTIC_BYTES_MAX`] in all (RFC 3461 9.2).
fn transcript(reply: &Reply) -> Vec<String> {
    let code = reply.code();
    let enhanced = reply
        .enhanced()
        .map(|enhanced| format!("{}.{}.{} ", code / 100, enhanced.0, enhanced.1));
    let enhanced = enhanced.unwrap_or_default();
    let mut left = DIAGNOSTIC_BYTES_MAX;
    let mut lines = Vec::new();
    for text in reply.lines() {
        let line = sanitized(&format!("{code}-{enhanced}{text}"), true, left);
        left -= line.len();
        lines.push(line);
        // Less is no line.
        if left < 20 {
            break;
        }
    }
    // Also where the rest is left out.
    if let Some(last) = lines.last_mut() {
        last.replace_range(3..4, " ");
    }
    lines
}

fn hex(bytes: &[u8]) -> impl fmt::Display + '_ {
    struct Hex<'a>(&'a [u8]);
    impl fmt::Display for Hex<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        }
    }
    Hex(bytes)
}
