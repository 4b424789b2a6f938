//! mbox: messages one after the other in one file, each after a line `From sender date`.
//!
//! A line that begins with `From ` and ends in a date begins a message at the begin of the file and after an empty line; that empty line is
//! the file's, not the message's. Lines of a message that would look so were quoted with `>` by whoever wrote the file ([`Quoting`]).
//! What programs keep of a message in fields of its header (`Status`, `X-Status`, `X-Keywords`, `X-UID` and others) is
//! read from there, and is no part of the message.

use whimbrel_imap::core::Date;

/// What is held of a line's beginning, to know what line it is. A field of flags that is longer is a field as any other.
pub const LINE_HEAD_BYTES_MAX: usize = 4096;

/// Flags and keywords of a message that are looked at: a header may name them in any number of fields.
pub const FLAGS_MAX: usize = 1000;

/// How `From ` at the begin of a message's line was hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quoting {
    /// One `>` before `From ` and before any number of `>` and `From ` (mboxrd).
    Rd,
    /// One `>` before `From ` only (mboxo).
    O,
    /// Not at all, or nobody knows.
    None,
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A message begins.
    Begin {
        /// The date of its line, in seconds since 1970.
        seconds: i64,
    },
    /// Bytes of the message, line ends as in the file.
    Bytes(&'a [u8]),
    /// The message is whole; its flags and keywords.
    End(Vec<String>),
}

/// The file does not begin as it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotMbox;

/// Fields of the header that are the file's.
const FIELDS: [&str; 7] = [
    "status",
    "x-status",
    "x-keywords",
    "x-uid",
    "x-imap",
    "x-imapbase",
    "content-length",
];

/// Reads an mbox in chunks.
#[derive(Debug)]
pub struct Reader {
    quoting: Quoting,
    /// The beginning of the line in hand, while it is not known what it is.
    head: Vec<u8>,
    line: Line,
    /// A message has begun.
    open: bool,
    in_header: bool,
    /// The line before was of a field that is the file's: lines that begin with white space go on with it.
    field: Option<&'static str>,
    /// The line before was empty: how it ends. It belongs to the message if another line of it follows.
    empty: Option<&'static [u8]>,
    flags: Vec<String>,
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
            open: false,
            in_header: false,
            field: None,
            empty: None,
            flags: Vec::new(),
        }
    }

    /// Reads on.
    ///
    /// # Errors
    /// When the file is no mbox; whether it is, its first line says.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
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
            let ends = part.last() == Some(&b'\n');
            match self.line {
                Line::Unknown => {
                    self.head.extend_from_slice(part);
                    if ends || self.head.len() >= LINE_HEAD_BYTES_MAX {
                        self.line(ends, tell)?;
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
            self.line(false, tell)?;
        }
        self.end(tell);
        Ok(())
    }

    fn end(&mut self, tell: &mut dyn FnMut(Event<'_>)) {
        self.empty = None;
        if std::mem::take(&mut self.open) {
            let mut flags = std::mem::take(&mut self.flags);
            flags.sort();
            flags.dedup();
            tell(Event::End(flags));
        }
    }

    /// Decides what the line is of which `head` is the beginning, or all.
    fn line(&mut self, whole: bool, tell: &mut dyn FnMut(Event<'_>)) -> Result<(), NotMbox> {
        let head = std::mem::take(&mut self.head);
        let text = head.trim_ascii_end();
        // Where no line end follows, the rest of the line is what this one was.
        let dropped = if whole { Line::Unknown } else { Line::Dropped };
        let content = if whole { Line::Unknown } else { Line::Content };
        if (!self.open || self.empty.is_some())
            && let Some(rest) = text.strip_prefix(b"From ")
            && let Some(seconds) = date(rest)
        {
            self.end(tell);
            self.open = true;
            self.in_header = true;
            self.field = None;
            self.line = dropped;
            tell(Event::Begin { seconds });
            return Ok(());
        }
        if !self.open {
            // Empty lines before the first message are nothing.
            return if text.is_empty() {
                Ok(())
            } else {
                Err(NotMbox)
            };
        }
        if let Some(empty) = self.empty.take() {
            tell(Event::Bytes(empty));
        }
        match &head[..] {
            b"\n" | b"\r\n" => {
                self.empty = Some(if head.len() == 1 { b"\n" } else { b"\r\n" });
                self.in_header = false;
                return Ok(());
            }
            _ => {}
        }
        if self.in_header {
            let text = std::str::from_utf8(text).ok().filter(|_| whole);
            let (field, value) = match self.field {
                Some(field) if matches!(head.first(), Some(b' ' | b'\t')) => (Some(field), text),
                _ => text.and_then(field).unzip(),
            };
            self.field = field;
            if let Some(field) = field {
                self.take_flags(field, value.unwrap_or_default());
                self.line = dropped;
                return Ok(());
            }
        }
        self.line = content;
        let quoted = head.iter().take_while(|byte| **byte == b'>').count();
        let is_quoted = head[quoted..].starts_with(b"From ")
            && match self.quoting {
                Quoting::Rd => quoted > 0,
                Quoting::O => quoted == 1,
                Quoting::None => false,
            };
        tell(Event::Bytes(&head[usize::from(is_quoted)..]));
        Ok(())
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
        let room = FLAGS_MAX - self.flags.len();
        let mut add = |flags: &mut dyn Iterator<Item = &str>| {
            self.flags.extend(flags.take(room).map(str::to_owned));
        };
        match field {
            "status" if value.contains('R') => add(&mut std::iter::once("\\Seen")),
            "x-status" => add(&mut value.chars().filter_map(of_letter)),
            "x-keywords" => add(&mut value.split_ascii_whitespace()),
            _ => {}
        }
    }
}

/// A field that is the file's, and the value in its first line.
fn field(line: &str) -> Option<(&'static str, &str)> {
    let (name, value) = line.split_once(':')?;
    let field = FIELDS.iter().find(|of| name.eq_ignore_ascii_case(of))?;
    Some((field, value))
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The date behind the sender: `Thu Jan  1 00:00[:00] 1970`, with a zone before or after the year. Zones in letters are taken as UTC.
fn date(rest: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(rest).ok()?;
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    // From the end: a sender may hold anything.
    (0..words.len().saturating_sub(3))
        .rev()
        .find_map(|at| date_at(&words[at..]))
}

fn date_at(words: &[&str]) -> Option<i64> {
    let [month, day, time, rest @ ..] = words else {
        return None;
    };
    let month = MONTHS
        .iter()
        .position(|of| month.eq_ignore_ascii_case(of))?;
    let day = day.parse().ok()?;
    let mut parts = time.split(':').map(str::parse::<u32>);
    let (hour, minute) = (parts.next()?.ok()?, parts.next()?.ok()?);
    let second = parts.next().unwrap_or(Ok(0)).ok()?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let year = |word: &str| {
        (word.len() == 4)
            .then(|| word.parse::<u16>().ok())
            .flatten()
    };
    let (year, zone) = match rest {
        [of, zone, ..] if year(of).is_some() => (year(of)?, Some(*zone)),
        [of] => (year(of)?, None),
        [zone, of, ..] => (year(of)?, Some(*zone)),
        [] => return None,
    };
    let days = Date::new(year, u8::try_from(month + 1).ok()?, day)?.days_since_epoch();
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
