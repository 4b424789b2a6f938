//! The writer.

use whimbrel_imap::core::Date;

use super::{FIELDS, FROM, LINE_HEAD_BYTES_MAX};

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
