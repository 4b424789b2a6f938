//! mbox: messages one after the other in one file, each after a line `From sender date`.
//!
//! Where a message begins: programs quote lines of a message that begin with `From ` ([`Quoting`]), but not all do, and not all write the same line.
//! So a line that begins with `From ` begins a message
//!
//! - at the begin of the file and after an empty line, if it ends in a date; that empty line is the file's, not the message's;
//! - likewise without such a date, as Thunderbird writes it, if the next line is one of a header that programs write;
//! - after any other line, if it ends in a date and the next line is one of a header.
//!
//! Within the length that `Content-Length` names none does, if a message begins, or the file ends, behind it: then it is the length that the
//! program which wrote the file has counted. Otherwise it counts for nothing.
//!
//! What programs keep of a message in fields of its header (`Status`, `X-Status`, `X-Keywords`, `X-UID`, `X-Mozilla-Status` and others) is
//! read from there, and is no part of the message. Google Takeout's labels are a part of it, and say which flags it has.

//!
//! Reading order: this file (the reader), `begin`, `date`, `write`, `name`.

mod begin;
mod date;
mod name;
mod write;

use self::{
    begin::{Next, begins},
    date::{date, loose_date},
};
pub use self::{
    name::{file_name, level},
    write::Writer,
};

/// What is held of a line's beginning, to know what line it is. A field of flags that is longer is a field as any other.
pub const LINE_HEAD_BYTES_MAX: usize = 4096;

/// What is looked at behind the length that a message says it has: a few line ends, the line of the next message, and the one behind that.
pub const AHEAD_BYTES: usize = 2 * LINE_HEAD_BYTES_MAX;

/// Flags and keywords of a message that are looked at: a header may name them in any number of fields.
pub const FLAGS_MAX: usize = 1000;

/// How `From ` at the begin of a message's line was hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quoting {
    /// One `>` before `From ` and before any number of `>` and `From ` (mboxrd).
    Rd,
    /// One `>` before `From ` only (mboxo).
    O,
    /// Not at all (mboxcl2), or nobody knows.
    None,
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A message begins.
    Begin,
    /// Bytes of the message, line ends as in the file.
    Bytes(&'a [u8]),
    /// The message is whole.
    End(Kept),
}

/// What the file says of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Flags and keywords.
    pub flags: Vec<String>,
    /// The date of its line, or, if that has none, of its header; in seconds since 1970.
    pub seconds: Option<i64>,
    /// Its owner has deleted it: it is in the file until Thunderbird compacts that.
    pub is_expunged: bool,
    /// Lines with a date that could have begun a message, but behind which no header follows: they are lines of this one.
    pub doubtful: u64,
}

/// The file does not begin as it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotMbox;

/// Reads [`AHEAD_BYTES`] of the file from a place on, or all there are. Nothing where the file cannot be read: a `Content-Length` then counts for
/// nothing.
pub type Ahead<'a> = &'a dyn Fn(u64) -> Vec<u8>;

/// Fields of the header that are the file's.
const FIELDS: [&str; 10] = [
    "status",
    "x-status",
    "x-keywords",
    "x-uid",
    "x-imap",
    "x-imapbase",
    "content-length",
    "x-mozilla-status",
    "x-mozilla-status2",
    "x-mozilla-keys",
];

const FROM: &[u8] = b"From ";

/// Reads an mbox in chunks.
#[derive(Debug)]
pub struct Reader {
    quoting: Quoting,
    /// The beginning of the line in hand, while it is not known what it is.
    head: Vec<u8>,
    line: Line,
    /// Of the file, so far.
    bytes: u64,
    /// A message has begun.
    open: bool,
    /// Nothing of it has come yet.
    fresh: bool,
    in_header: bool,
    /// The line before was of a field that is the file's: lines that begin with white space go on with it.
    field: Option<&'static str>,
    /// The line before was of Google's labels.
    in_labels: bool,
    /// The line before was empty: how it ends. It belongs to the message if another line of it follows.
    empty: Option<&'static [u8]>,
    /// The line before may begin a message: the next one says it.
    doubtful: Option<Doubtful>,
    /// Of the body, as the header says.
    length: Option<u64>,
    /// Where in the file the body ends, if that is sure.
    body_end: u64,
    kept: Kept,
    /// The date of the header.
    sent: Option<i64>,
    takeout: Option<Labels>,
}

/// A line that may begin a message.
#[derive(Debug)]
struct Doubtful {
    line: Vec<u8>,
    seconds: Option<i64>,
    next: Next,
}

/// What Google Takeout says of a message.
#[derive(Clone, Copy, Debug, Default)]
struct Labels {
    is_opened: bool,
    is_unread: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Its beginning is being gathered.
    Unknown,
    /// Of the message.
    Content,
    /// The rest of a line that is the file's.
    Dropped,
}

impl Reader {
    /// Before the file.
    #[must_use]
    pub fn new(quoting: Quoting) -> Self {
        Reader {
            quoting,
            head: Vec::new(),
            line: Line::Unknown,
            bytes: 0,
            open: false,
            fresh: false,
            in_header: false,
            field: None,
            in_labels: false,
            empty: None,
            doubtful: None,
            length: None,
            body_end: 0,
            kept: Kept::default(),
            sent: None,
            takeout: None,
        }
    }

    /// Reads on.
    ///
    /// # Errors
    /// When the file is no mbox; whether it is, its first lines say.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        ahead: Ahead<'_>,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), NotMbox> {
        while !bytes.is_empty() {
            let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |lf| lf + 1);
            let room = match self.line {
                Line::Unknown => LINE_HEAD_BYTES_MAX - self.head.len(),
                _ => end,
            };
            let (part, rest) = bytes.split_at(end.min(room));
            bytes = rest;
            self.bytes += part.len() as u64;
            let ends = part.last() == Some(&b'\n');
            match self.line {
                Line::Unknown => {
                    self.head.extend_from_slice(part);
                    if ends || self.head.len() >= LINE_HEAD_BYTES_MAX {
                        self.line(ends, ahead, tell)?;
                    }
                }
                Line::Content => tell(Event::Bytes(part)),
                Line::Dropped => {}
            }
            if ends {
                self.line = Line::Unknown;
            }
        }
        Ok(())
    }

    /// The file ends.
    ///
    /// # Errors
    /// As [`Reader::push`].
    pub fn finish(mut self, tell: &mut dyn FnMut(Event<'_>)) -> Result<(), NotMbox> {
        if !self.head.is_empty() {
            self.line(false, &|_| Vec::new(), tell)?;
        }
        self.no_message(tell)?;
        self.end(tell);
        Ok(())
    }

    fn begin(&mut self, line: &[u8], seconds: Option<i64>, tell: &mut dyn FnMut(Event<'_>)) {
        self.end(tell);
        self.open = true;
        self.fresh = true;
        self.in_header = true;
        self.field = None;
        self.in_labels = false;
        self.length = None;
        self.sent = None;
        self.kept = Kept {
            seconds,
            ..Kept::default()
        };
        let sender = line.split(u8::is_ascii_whitespace).nth(1);
        let is_takeout = sender.is_some_and(|sender| sender.ends_with(b"@xxx"));
        self.takeout = is_takeout.then(Labels::default);
        tell(Event::Begin);
    }

    fn end(&mut self, tell: &mut dyn FnMut(Event<'_>)) {
        self.empty = None;
        if std::mem::take(&mut self.open) {
            let mut kept = std::mem::take(&mut self.kept);
            if self.takeout.is_some_and(|of| of.is_opened && !of.is_unread) {
                kept.flags.push("\\Seen".to_owned());
            }
            kept.flags.sort();
            kept.flags.dedup();
            kept.seconds = kept.seconds.or(self.sent);
            tell(Event::End(kept));
        }
    }

    /// The line that might have begun a message is one of the message before.
    fn no_message(&mut self, tell: &mut dyn FnMut(Event<'_>)) -> Result<(), NotMbox> {
        let Some(doubtful) = self.doubtful.take() else {
            return Ok(());
        };
        if !self.open {
            return Err(NotMbox);
        }
        if let Some(empty) = self.empty.take() {
            tell(Event::Bytes(empty));
        }
        self.kept.doubtful += u64::from(doubtful.seconds.is_some());
        tell(Event::Bytes(&doubtful.line));
        Ok(())
    }

    /// Decides what the line is of which `head` is the beginning, or all.
    fn line(
        &mut self,
        whole: bool,
        ahead: Ahead<'_>,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), NotMbox> {
        let head = std::mem::take(&mut self.head);
        let in_body = self.bytes - (head.len() as u64) < self.body_end;
        if let Some(Doubtful { seconds, next, .. }) = self.doubtful {
            if next.is(&head) {
                let line = self.doubtful.take().map(|of| of.line);
                self.begin(&line.unwrap_or_default(), seconds, tell);
            } else {
                self.no_message(tell)?;
            }
        }
        let text = head.trim_ascii_end();
        // Where no line end follows, the rest of the line is what this one was.
        let dropped = if whole { Line::Unknown } else { Line::Dropped };
        let content = if whole { Line::Unknown } else { Line::Content };
        if !in_body && let Some(rest) = head.strip_prefix(FROM) {
            let is_free = !self.open || self.empty.is_some();
            match date(rest) {
                Some(seconds) if is_free => {
                    self.begin(&head, Some(seconds), tell);
                    self.line = dropped;
                    return Ok(());
                }
                // A second such line: some program has put its own before that of another.
                Some(_) if self.fresh => {
                    self.line = dropped;
                    return Ok(());
                }
                seconds if whole && (is_free || seconds.is_some()) => {
                    let is_bare = rest.trim_ascii().is_empty();
                    self.doubtful = Some(Doubtful {
                        seconds: seconds.or_else(|| loose_date(rest)),
                        next: match seconds {
                            Some(_) => Next::Field,
                            None if is_bare => Next::Field,
                            None => Next::UsualField,
                        },
                        line: head,
                    });
                    self.field = None;
                    self.in_labels = false;
                    return Ok(());
                }
                _ => {}
            }
        }
        if !self.open {
            // Empty lines before the first message are nothing.
            return if text.is_empty() {
                Ok(())
            } else {
                Err(NotMbox)
            };
        }
        self.fresh = false;
        if let Some(empty) = self.empty.take() {
            tell(Event::Bytes(empty));
        }
        match &head[..] {
            b"\n" | b"\r\n" => {
                self.empty = Some(if head.len() == 1 { b"\n" } else { b"\r\n" });
                if std::mem::take(&mut self.in_header) {
                    self.body(ahead);
                }
                return Ok(());
            }
            _ => {}
        }
        if self.in_header && self.is_kept(&head, whole) {
            self.line = dropped;
            return Ok(());
        }
        self.line = content;
        let quoted = head.iter().take_while(|byte| **byte == b'>').count();
        let is_quoted = head[quoted..].starts_with(FROM)
            && match self.quoting {
                Quoting::Rd => quoted > 0,
                Quoting::O => quoted == 1,
                Quoting::None => false,
            };
        tell(Event::Bytes(&head[usize::from(is_quoted)..]));
        Ok(())
    }

    /// Takes what a line of the header says. Whether it is the file's.
    fn is_kept(&mut self, head: &[u8], whole: bool) -> bool {
        let text = str::from_utf8(head.trim_ascii_end()).ok();
        let text = text.filter(|_| whole);
        let goes_on = matches!(head.first(), Some(b' ' | b'\t'));
        let (field, value) = match self.field {
            Some(field) if goes_on => (Some(field), text),
            _ => text.and_then(field).unzip(),
        };
        self.field = field;
        if let Some(field) = field {
            self.in_labels = false;
            self.take_flags(field, value.unwrap_or_default());
            return true;
        }
        let labels = match text {
            Some(text) if goes_on && self.in_labels => Some(text),
            Some(text) => value_of(text, "x-gmail-labels"),
            None => None,
        };
        self.in_labels = labels.is_some();
        if let Some(labels) = labels {
            self.take_labels(labels);
        }
        if let Some(sent) = text.and_then(|text| value_of(text, "date")) {
            self.sent = self.sent.or_else(|| loose_date(sent.as_bytes()));
        }
        false
    }

    /// The header has ended: the body is as long as the header says, if a message begins, or the file ends, behind it.
    fn body(&mut self, ahead: Ahead<'_>) {
        let Some(end) = self.length.and_then(|of| self.bytes.checked_add(of)) else {
            return;
        };
        let bytes = ahead(end - 1);
        let Some((last, rest)) = bytes.split_first() else {
            return;
        };
        let line_end = |bytes: &[u8]| match bytes {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => 0,
        };
        // A body without a line end has got one.
        let own = if *last == b'\n' { 0 } else { line_end(rest) };
        let mut rest = &rest[own..];
        if *last != b'\n' && own == 0 && !rest.is_empty() {
            return;
        }
        for _ in 0..3 {
            rest = &rest[line_end(rest)..];
        }
        if rest.is_empty() || begins(rest) {
            self.body_end = end + own as u64;
        }
    }

    /// Takes what a line of a field that is the file's says.
    fn take_flags(&mut self, field: &str, value: &str) {
        let of_letter = |letter| {
            Some(match letter {
                'R' => "\\Seen",
                'A' => "\\Answered",
                'F' => "\\Flagged",
                'D' => "\\Deleted",
                'T' => "\\Draft",
                _ => return None,
            })
        };
        let flags = &mut self.kept.flags;
        let room = FLAGS_MAX - flags.len();
        let mut add = |found: &mut dyn Iterator<Item = &str>| {
            flags.extend(found.take(room).map(str::to_owned));
        };
        let hexadecimal = || u32::from_str_radix(value.trim(), 16).unwrap_or(0);
        match field {
            // mutt writes `r` for answered.
            "status" => add(&mut value.chars().filter_map(|letter| match letter {
                'R' => Some("\\Seen"),
                'r' => Some("\\Answered"),
                _ => None,
            })),
            "x-status" => add(&mut value.chars().filter_map(of_letter)),
            "x-keywords" | "x-mozilla-keys" => add(&mut value.split_ascii_whitespace()),
            "x-mozilla-status" => {
                let bits = hexadecimal();
                let has = |(bit, flag): &(u32, &'static str)| (bits & bit != 0).then_some(*flag);
                add(&mut MOZILLA.iter().filter_map(has));
                self.kept.is_expunged |= bits & MOZILLA_EXPUNGED != 0;
            }
            "x-mozilla-status2" => {
                let bits = hexadecimal();
                let has = |(bit, flag): &(u32, &'static str)| (bits & bit != 0).then_some(*flag);
                let label = match bits >> 25 & 7 {
                    1 => Some("$label1"),
                    2 => Some("$label2"),
                    3 => Some("$label3"),
                    4 => Some("$label4"),
                    5 => Some("$label5"),
                    _ => None,
                };
                add(&mut MOZILLA_2.iter().filter_map(has).chain(label));
            }
            "content-length" => self.length = value.trim().parse().ok().or(self.length),
            _ => {}
        }
    }

    /// Takes Google's labels, of a message that Takeout has written. They are in the user's language: only the English ones are known here.
    fn take_labels(&mut self, value: &str) {
        let Some(takeout) = &mut self.takeout else {
            return;
        };
        // An encoded word (RFC 2047) begins with `=?UTF-8?Q?` and ends with `?=`; its commas are as they are.
        for label in value.split([',', '?']).map(str::trim) {
            let flag = match label {
                "Opened" | "Sent" => {
                    takeout.is_opened = true;
                    continue;
                }
                "Unread" => {
                    takeout.is_unread = true;
                    continue;
                }
                "Starred" => "\\Flagged",
                "Drafts" => "\\Draft",
                "Important" => "$Important",
                _ => continue,
            };
            if self.kept.flags.len() < FLAGS_MAX {
                self.kept.flags.push(flag.to_owned());
            }
        }
    }
}

/// Bits of `X-Mozilla-Status` (Thunderbird's nsMsgMessageFlags).
const MOZILLA: [(u32, &str); 4] = [
    (0x0001, "\\Seen"),
    (0x0002, "\\Answered"),
    (0x0004, "\\Flagged"),
    (0x1000, "$Forwarded"),
];
const MOZILLA_EXPUNGED: u32 = 0x0008;
/// Bits of `X-Mozilla-Status2`. Three more are the number of a label, as old versions kept it.
const MOZILLA_2: [(u32, &str); 2] = [(0x0020_0000, "\\Deleted"), (0x0080_0000, "$MDNSent")];

/// A field that is the file's, and the value in its first line.
fn field(line: &str) -> Option<(&'static str, &str)> {
    let (name, value) = line.split_once(':')?;
    let field = FIELDS.iter().find(|of| name.eq_ignore_ascii_case(of))?;
    Some((field, value))
}

fn value_of<'a>(line: &'a str, field: &str) -> Option<&'a str> {
    let (name, value) = line.split_once(':')?;
    name.eq_ignore_ascii_case(field).then_some(value)
}
