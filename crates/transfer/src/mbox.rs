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

use whimbrel_imap::core::{Date, utf7};

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

/// What must follow a line, so that it begins a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// A line of any header.
    Field,
    /// One of a field that programs write into messages.
    UsualField,
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

/// The name of the field with which a line begins, if it is one of a header.
fn field_name(line: &[u8]) -> Option<&[u8]> {
    let colon = memchr::memchr(b':', &line[..line.len().min(FIELD_NAME_BYTES_MAX)])?;
    let (name, value) = line.split_at(colon);
    // No address of a page.
    let is_name = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    (is_name && !value.starts_with(b"://")).then_some(name)
}

const FIELD_NAME_BYTES_MAX: usize = 100;

/// Fields with which headers begin, whatever program wrote them, or that all have.
const USUAL_FIELDS: [&str; 20] = [
    "return-path",
    "delivered-to",
    "envelope-to",
    "received",
    "authentication-results",
    "dkim-signature",
    "status",
    "from",
    "sender",
    "reply-to",
    "to",
    "cc",
    "bcc",
    "date",
    "subject",
    "message-id",
    "in-reply-to",
    "mime-version",
    "content-type",
    "content-length",
];

impl Next {
    fn is(self, line: &[u8]) -> bool {
        // A line that another program had put there, and a third one has quoted.
        if line.starts_with(b">From ") {
            return true;
        }
        let Some(name) = field_name(line) else {
            return false;
        };
        let is = |of: &&str| name.eq_ignore_ascii_case(of.as_bytes());
        let begin = name.get(..2).unwrap_or_default();
        self == Next::Field || begin.eq_ignore_ascii_case(b"x-") || USUAL_FIELDS.iter().any(is)
    }
}

/// Whether a message begins here, behind the length of the one before.
fn begins(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(FROM) else {
        return false;
    };
    let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    let (line, next) = rest.split_at(end);
    date(line).is_some() || Next::UsualField.is(next.get(1..).unwrap_or_default())
}

/// What stands in names of files for what would mean something there. No level has a `%` of its own.
const ESCAPES: [(char, &str); 2] = [('.', "%2E"), ('&', "%26")];

/// The name, without `.mbox`, of the file or directory of one level of a mailbox's name, such that [`level`] reads it.
#[must_use]
pub fn file_name(level: &str) -> String {
    let [(dot, escaped_dot), (and, escaped_and)] = ESCAPES;
    let mut name = level.to_owned();
    // It would be hidden.
    if let Some(rest) = name.strip_prefix(dot) {
        name = format!("{escaped_dot}{rest}");
    }
    // It would be read as a directory of a mail program's.
    for end in [".sbd", ".mbox", ".mozmsgs"] {
        if let Some(begin) = name.strip_suffix(end) {
            name = format!("{begin}{escaped_dot}{}", &end[1..]);
        }
    }
    if utf7::decode(name.as_bytes()).is_some_and(|read| read != name) {
        name = name.replace(and, escaped_and);
    }
    name
}

/// One level of a mailbox's name, from that of a file or directory without its ending: modified UTF-7, as Dovecot writes it, or UTF-8.
#[must_use]
pub fn level(name: &str) -> String {
    let mut level = utf7::decode(name.as_bytes()).unwrap_or_else(|| name.to_owned());
    for (character, escaped) in ESCAPES {
        level = level.replace(escaped, &character.to_string());
    }
    level
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The date behind the sender: `Thu Jan  1 00:00[:00] 1970`, with a zone before or after the year. Zones in letters are taken as UTC.
fn date(rest: &[u8]) -> Option<i64> {
    dates(rest).find_map(|words| date_at(&words))
}

/// A date in one of the other forms that programs write: as in a header (RFC 5322, 3.3), and as in ISO 8601.
fn loose_date(rest: &[u8]) -> Option<i64> {
    date(rest).or_else(|| {
        dates(rest).find_map(|words| header_date_at(&words).or_else(|| iso_date_at(&words)))
    })
}

/// Where in a line a date may be, from the end: a sender may hold anything.
fn dates(rest: &[u8]) -> impl Iterator<Item = Vec<&str>> {
    let text = str::from_utf8(rest).unwrap_or_default();
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    (0..words.len())
        .rev()
        .map(move |at| words[at..words.len().min(at + DATE_WORDS)].to_vec())
}

/// Of the longest form.
const DATE_WORDS: usize = 6;

fn date_at(words: &[&str]) -> Option<i64> {
    let [name, day, time, rest @ ..] = words else {
        return None;
    };
    let (year, zone) = match rest {
        [of, zone, ..] if is_year(of) => (of, Some(*zone)),
        [of] => (of, None),
        [zone, of, ..] => (of, Some(*zone)),
        [] => return None,
    };
    seconds(year, month(name)?, day, time, zone)
}

fn header_date_at(words: &[&str]) -> Option<i64> {
    let [day, name, year, time, rest @ ..] = words else {
        return None;
    };
    seconds(year, month(name)?, day, time, rest.first().copied())
}

fn iso_date_at(words: &[&str]) -> Option<i64> {
    let [date, rest @ ..] = words else {
        return None;
    };
    let (date, time, zone) = match date.split_once('T') {
        Some((date, time)) => (date, time, None),
        None => (*date, *rest.first()?, rest.get(1).copied()),
    };
    // `12:00:00.123Z`, `12:00:00+01:00`.
    let end = time.find(|c: char| !c.is_ascii_digit() && c != ':');
    let (time, after) = time.split_at(end.unwrap_or(time.len()));
    let zone = match after.find(['+', '-']) {
        Some(at) => Some(after[at..].replace(':', "")),
        None => zone.map(str::to_owned),
    };
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    seconds(year, month.parse().ok()?, day, time, zone.as_deref())
}

fn month(name: &str) -> Option<u8> {
    let at = MONTHS.iter().position(|of| name.eq_ignore_ascii_case(of))?;
    u8::try_from(at + 1).ok()
}

fn is_year(word: &str) -> bool {
    word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn seconds(year: &str, month: u8, day: &str, time: &str, zone: Option<&str>) -> Option<i64> {
    if !is_year(year) {
        return None;
    }
    let mut parts = time.split(':').map(str::parse::<u32>);
    let (hour, minute) = (parts.next()?.ok()?, parts.next()?.ok()?);
    let second = parts.next().unwrap_or(Ok(0)).ok()?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = Date::new(year.parse().ok()?, month, day.parse().ok()?)?.days_since_epoch();
    let seconds = days * 86_400 + i64::from(hour * 3600 + minute * 60 + second);
    Some(seconds - zone.and_then(offset).unwrap_or(0))
}

/// `+0130` in seconds.
fn offset(zone: &str) -> Option<i64> {
    let (sign, digits) = match zone.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    if digits.len() != 4 {
        return None;
    }
    let number: i64 = digits.parse().ok()?;
    Some(sign * (number / 100 * 3600 + number % 100 * 60))
}

const FROM: &[u8] = b"From ";

/// Writes one message, in chunks: mboxrd, lines with LF.
#[derive(Debug)]
pub struct Writer {
    /// Nothing but `>` and the begin of `From ` came in this line.
    at_line_start: bool,
    quotes: usize,
    /// How much of `From ` came after them: not written yet.
    held: usize,
    after_cr: bool,
    in_header: bool,
    /// The message can be read back to the byte.
    exact: bool,
    /// Where in a line of the header.
    field: Field,
    /// The begin of the line in hand while it may be a field that would be taken for one of ours: not written yet.
    name: Vec<u8>,
}

/// What a line of the header is, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// It begins; `after_dropped`: it may go on with a field that was left out.
    Begin { after_dropped: bool },
    /// Its name, as far as it came, is the begin of one of [`FIELDS`].
    Name,
    /// It is written.
    Kept,
    /// It is left out.
    Dropped,
}

impl Writer {
    /// Begins a message: its line, and the fields of its flags.
    pub fn new(seconds: i64, flags: &[String], out: &mut Vec<u8>) -> Self {
        let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let date = Date::from_days_since_epoch(days);
        let week = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        let line = format!(
            "From whimbrel@localhost {} {} {:2} {:02}:{:02}:{:02} {:04}\n",
            week[usize::try_from(days.rem_euclid(7)).unwrap_or(0)],
            date.month_name(),
            date.day(),
            rest / 3600,
            rest / 60 % 60,
            rest % 60,
            date.year(),
        );
        out.extend_from_slice(line.as_bytes());
        let has = |flag: &str| flags.iter().any(|of| of.eq_ignore_ascii_case(flag));
        out.extend_from_slice(if has("\\Seen") {
            b"Status: RO\n"
        } else {
            b"Status: O\n"
        });
        let letters = [
            ("\\Answered", 'A'),
            ("\\Flagged", 'F'),
            ("\\Deleted", 'D'),
            ("\\Draft", 'T'),
        ];
        let letters: String = letters
            .iter()
            .filter(|(flag, _)| has(flag))
            .map(|(_, letter)| letter)
            .collect();
        if !letters.is_empty() {
            out.extend_from_slice(format!("X-Status: {letters}\n").as_bytes());
        }
        let mut line = String::new();
        for keyword in flags.iter().filter(|flag| !flag.starts_with('\\')) {
            // A reader holds no longer line.
            if line.len() + keyword.len() > LINE_HEAD_BYTES_MAX / 2 {
                out.extend_from_slice(format!("X-Keywords:{line}\n").as_bytes());
                line.clear();
            }
            line = format!("{line} {keyword}");
        }
        if !line.is_empty() {
            out.extend_from_slice(format!("X-Keywords:{line}\n").as_bytes());
        }
        Writer {
            at_line_start: true,
            quotes: 0,
            held: 0,
            after_cr: false,
            in_header: true,
            exact: true,
            // A message that begins with white space would go on with the fields above.
            field: Field::Begin {
                after_dropped: true,
            },
            name: Vec::new(),
        }
    }

    /// Writes on.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for &byte in bytes {
            if self.in_header {
                self.header_byte(byte, out);
            } else {
                self.byte(byte, out);
            }
        }
    }

    /// A sender's own fields of flags would be taken for what the receiver did with the message: they are left out, as Dovecot and mutt leave
    /// them out.
    fn header_byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        match self.field {
            Field::Begin { after_dropped } if after_dropped && matches!(byte, b' ' | b'\t') => {
                self.field = Field::Dropped;
                self.exact = false;
            }
            Field::Begin { .. } | Field::Name => self.name_byte(byte, out),
            Field::Dropped if byte == b'\n' => {
                self.field = Field::Begin {
                    after_dropped: true,
                };
            }
            Field::Dropped => {}
            Field::Kept => self.kept(byte, out),
        }
    }

    fn name_byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.name.push(byte);
        let length = self.name.len();
        let is_begin = |field: &&str| {
            let begin = field.as_bytes().get(..length);
            begin.is_some_and(|begin| begin.eq_ignore_ascii_case(&self.name))
        };
        let is_whole = |field: &&str| {
            let name = self.name.strip_suffix(b":");
            name.is_some_and(|name| name.eq_ignore_ascii_case(field.as_bytes()))
        };
        if FIELDS.iter().any(is_whole) {
            self.name.clear();
            self.field = Field::Dropped;
            self.exact = false;
        } else if FIELDS.iter().any(is_begin) {
            self.field = Field::Name;
        } else {
            for byte in std::mem::take(&mut self.name) {
                self.kept(byte, out);
            }
        }
    }

    fn kept(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.byte(byte, out);
        self.field = match byte {
            b'\n' => Field::Begin {
                after_dropped: false,
            },
            _ => Field::Kept,
        };
    }

    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.after_cr) {
            if byte == b'\n' {
                self.line_end(out);
                return;
            }
            self.at_line_start = false;
            self.flush(out);
            // A CR alone stays, but before a line end it would be taken for one of CRLF.
            self.exact &= byte != b'\r';
            out.push(b'\r');
        }
        match byte {
            b'\r' => self.after_cr = true,
            b'\n' => {
                self.exact = false;
                self.line_end(out);
            }
            _ if self.at_line_start => self.line_start(byte, out),
            _ => out.push(byte),
        }
    }

    fn line_start(&mut self, byte: u8, out: &mut Vec<u8>) {
        if byte == b'>' && self.held == 0 {
            self.quotes += 1;
            out.push(byte);
            return;
        }
        if byte == FROM[self.held] {
            self.held += 1;
            if self.held < FROM.len() {
                return;
            }
            // A reader sees so much of a line. What it would not see needs no quoting.
            let length = self.quotes + FROM.len();
            if length < LINE_HEAD_BYTES_MAX {
                out.push(b'>');
            }
            self.exact &= length != LINE_HEAD_BYTES_MAX;
            self.at_line_start = false;
            self.flush(out);
            return;
        }
        self.at_line_start = false;
        self.flush(out);
        out.push(byte);
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&FROM[..self.held]);
        self.held = 0;
    }

    fn line_end(&mut self, out: &mut Vec<u8>) {
        let is_empty = self.at_line_start && self.held + self.quotes == 0;
        self.flush(out);
        out.push(b'\n');
        self.in_header &= !is_empty;
        self.at_line_start = true;
        self.quotes = 0;
    }

    /// Ends the message; whether it can be read back to the byte. What cannot: line ends other than CRLF, no line end at the end, and fields
    /// of its own with the names of those that hold flags here.
    pub fn finish(mut self, out: &mut Vec<u8>) -> bool {
        for byte in std::mem::take(&mut self.name) {
            self.byte(byte, out);
        }
        if self.after_cr || !self.at_line_start || self.held + self.quotes > 0 {
            self.exact = false;
            self.flush(out);
            out.push(b'\n');
        }
        out.push(b'\n');
        self.exact
    }
}
