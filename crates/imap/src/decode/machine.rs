//! The state machine around the collected command: what the next byte belongs to.

use super::collect::{Collected, IDLE_BYTES_MAX, LineEnd, LiteralHeader, Refusal, TOO_LONG};
use super::cursor::Cursor;
use super::{AppendLiteral, Event, SaslReply};
use crate::command::append::{AppendToken, Progress};
use crate::command::{self, Command, CommandBody, Parsed};
use crate::core::{Secret, Tag};
use crate::limits::Limits;
use base64::Engine as _;
use std::ops::Range;
use zeroize::Zeroize as _;

/// The resumable decoder of one connection.
///
/// ```
/// use whimbrel_imap::{CommandBody, Decoder, Event, Limits};
///
/// let mut decoder = Decoder::new(Limits::default());
/// decoder.push(b"a1 NO");
/// assert!(decoder.next().is_none());
/// decoder.push(b"OP\r\n");
/// let Some(Event::Command(command)) = decoder.next() else { panic!() };
/// assert_eq!((command.tag.as_str(), command.body), ("a1", CommandBody::Noop));
/// ```
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    authenticated: bool,
    utf8: bool,
    input: Vec<u8>,
    at: usize,
    collected: Collected,
    state: State,
    expected: Expected,
    refused: Option<Refused>,
    /// Of the APPEND or REPLACE in hand.
    append: Option<Progress>,
    /// Bytes dropped since the command was refused.
    skipped: u64,
    /// Of the command in hand; of the last one in AUTHENTICATE and IDLE.
    tag: Option<Tag>,
}

/// What the next byte of the input is.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// A byte of a line.
    Line,
    /// A byte of a literal held in memory. `announced`: nothing of it was read since [`Event::Continue`].
    Literal { left: u64, announced: bool },
    /// A byte of a literal that is dropped.
    Skip { left: u64 },
    /// None: the text of an APPEND is whole up to this literal, or to its end, and is read.
    Append(Option<LiteralHeader>),
    /// Nothing until the session has decided about a literal of an APPEND.
    Undecided { size: u64, synchronising: bool },
    /// A byte of a literal of an APPEND.
    Message { left: u64 },
    /// Nothing: the client sends more than will be dropped for its sake.
    Doomed,
    /// Nothing any more.
    Dead,
}

/// What a line means when it is whole.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Command,
    /// Text of an APPEND behind a literal.
    Append,
    Sasl,
    Done,
}

/// A command that is being read to its end after it was found bad or was refused.
#[derive(Debug)]
struct Refused {
    /// What is still to be told; `None` when the session knows.
    report: Option<Report>,
}

/// The refusal of a literal over its limit.
const TOO_LARGE: Refusal = "literal is too large";

/// What is told of a command whose text was not kept.
#[derive(Clone, Copy, Debug)]
enum Report {
    /// It is bad.
    Bad(Refusal),
    /// It is an ID that is longer than what a stranger may have held here. RFC 2971, 3.3 allows thirty fields of a kilobyte each, and what they
    /// say is not used.
    LongId,
}

/// What a stranger may send of an ID beyond what is held: as much as the longest has (thirty names of 30 octets and values of 1024, each octet
/// behind a backslash).
const ID_REST_BYTES_MAX: u64 = 64 << 10;

enum Step {
    Event(Event<'static>),
    Chunk(Range<usize>),
}

impl Decoder {
    /// A decoder at the begin of a connection.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            authenticated: false,
            utf8: false,
            input: Vec::new(),
            at: 0,
            collected: Collected::default(),
            state: State::Line,
            expected: Expected::Command,
            refused: None,
            append: None,
            skipped: 0,
            tag: None,
        }
    }

    /// The limits it works under.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// From now on the limits after login hold.
    pub fn set_authenticated(&mut self, authenticated: bool) {
        self.authenticated = authenticated;
    }

    /// From now on names are UTF-8 and quoted strings may hold it (ENABLE IMAP4rev2 or UTF8=ACCEPT).
    pub fn set_utf8(&mut self, utf8: bool) {
        self.utf8 = utf8;
    }

    /// Takes what was read. To be called when [`Decoder::next`] has returned `None`; what is pushed is copied.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.state == State::Dead {
            return;
        }
        self.forget_consumed();
        self.input.extend_from_slice(bytes);
    }

    /// The next event, or `None` when more bytes (or an answer to the last event) are needed.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Event<'_>> {
        match self.step() {
            Some(Step::Event(event)) => Some(event),
            Some(Step::Chunk(range)) => Some(Event::AppendChunk(&self.input[range])),
            None => {
                if self.at == self.input.len() {
                    self.forget_consumed();
                }
                None
            }
        }
    }

    /// Lets the literal of an APPEND come.
    pub fn accept_literal(&mut self) {
        if let State::Undecided { size, .. } = self.state {
            self.state = State::Message { left: size };
        }
    }

    /// Drops the command that is being read: one whose literal was announced, or an APPEND at any time. A synchronising client will
    /// not send the literal that it has announced; what others still send of the command is skipped. Does nothing when the command
    /// is whole.
    pub fn refuse_literal(&mut self) {
        let left = match self.state {
            State::Undecided {
                synchronising: true,
                ..
            }
            | State::Literal {
                announced: true, ..
            }
            | State::Append(
                None
                | Some(LiteralHeader {
                    synchronising: true,
                    ..
                }),
            ) => return self.begin_command(),
            // Announced, too: nothing else is told of such an ID.
            State::Skip { .. } if self.is_long_id() => return self.begin_command(),
            State::Undecided { size, .. } => size,
            State::Append(Some(LiteralHeader { size, .. })) => size,
            State::Literal { left, .. } | State::Message { left } => left,
            State::Line if self.expected == Expected::Append => 0,
            _ => return,
        };
        self.collected.discard(!self.authenticated);
        self.append = None;
        self.refused = Some(Refused { report: None });
        self.state = if self.count_skipped(left) {
            State::Skip { left }
        } else {
            State::Doomed
        };
    }

    /// The next line is an answer to a continuation of AUTHENTICATE.
    pub fn expect_sasl(&mut self) {
        if self.state == State::Line && self.refused.is_none() && self.expected == Expected::Command
        {
            self.expected = Expected::Sasl;
        }
    }

    /// The next line is the DONE of IDLE.
    pub fn expect_done(&mut self) {
        if self.state == State::Line && self.refused.is_none() && self.expected == Expected::Command
        {
            self.expected = Expected::Done;
        }
    }

    /// Whether no byte is held that was not given out as an event. After STARTTLS anything that is held was sent in the clear,
    /// by whomever: the session must close.
    pub fn is_empty(&self) -> bool {
        self.at == self.input.len()
            && self.collected.is_empty()
            && self.state == State::Line
            && self.refused.is_none()
    }

    /// What was read behind the last command: for who goes on in this one's place, which gives out nothing more.
    pub fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.input.split_off(self.at);
        self.forget_consumed();
        self.state = State::Dead;
        rest
    }

    /// Bytes held, all buffers together, unused room included.
    pub fn buffered_bytes(&self) -> usize {
        self.input.capacity() + self.collected.memory_bytes()
    }

    /// After [`Event::Fatal`].
    pub fn is_dead(&self) -> bool {
        self.state == State::Dead
    }

    fn step(&mut self) -> Option<Step> {
        loop {
            let available = (self.input.len() - self.at) as u64;
            match self.state {
                State::Dead | State::Undecided { .. } => return None,
                State::Doomed => return Some(Step::Event(self.die(TOO_LARGE))),
                State::Append(literal) => {
                    if let Some(event) = self.append(literal) {
                        return Some(Step::Event(event));
                    }
                }
                State::Literal { left: 0, .. }
                | State::Message { left: 0 }
                | State::Skip { left: 0 } => self.state = State::Line,
                _ if available == 0 => return None,
                State::Message { left } => {
                    let range = self.take(left.min(available));
                    self.state = State::Message {
                        left: left - range.len() as u64,
                    };
                    return Some(Step::Chunk(range));
                }
                State::Literal { left, .. } => {
                    let range = self.take(left.min(available));
                    self.state = State::Literal {
                        left: left - range.len() as u64,
                        announced: false,
                    };
                    self.collected.push_literal(&self.input[range]);
                }
                State::Skip { left } => {
                    let range = self.take(left.min(available));
                    self.state = State::Skip {
                        left: left - range.len() as u64,
                    };
                }
                State::Line => {
                    if let Some(event) = self.line() {
                        return Some(Step::Event(event));
                    }
                }
            }
        }
    }

    fn take(&mut self, bytes: u64) -> Range<usize> {
        let start = self.at;
        // At most what is there, so it fits.
        self.at += bytes as usize;
        start..self.at
    }

    /// Reads on in a line, at most to its end.
    fn line(&mut self) -> Option<Event<'static>> {
        let (taken, result) =
            self.collected
                .push_line(&self.input[self.at..], &self.limits, self.authenticated);
        self.at += taken;
        if self.refused.is_some() && !self.count_skipped(taken as u64) {
            return Some(self.die("command is too long"));
        }
        match result {
            Ok(false) => None,
            Ok(true) => self.line_end(),
            Err(TOO_LONG) if self.is_strangers_id() => {
                self.refuse(Report::LongId);
                None
            }
            Err(TOO_LONG) if !self.authenticated => Some(self.die(TOO_LONG)),
            Err(refusal) => {
                self.refuse(Report::Bad(refusal));
                None
            }
        }
    }

    /// An ID is in hand whose text is not kept.
    fn is_long_id(&self) -> bool {
        let report = self.refused.as_ref().and_then(|refused| refused.report);
        matches!(report, Some(Report::LongId))
    }

    fn is_strangers_id(&self) -> bool {
        !self.authenticated
            && self.expected == Expected::Command
            && command::is_id(self.collected.text())
    }

    fn line_end(&mut self) -> Option<Event<'static>> {
        // Lines of SASL and DONE have no literals.
        let end = match self.expected {
            Expected::Sasl | Expected::Done => LineEnd::Command,
            Expected::Command | Expected::Append => self.collected.line_end(),
        };
        match end {
            LineEnd::Literal(header) if self.refused.is_some() => self.literal_of_refused(header),
            LineEnd::Literal(header) => self.literal(header),
            LineEnd::Command => match self.refused.take() {
                Some(Refused { report }) => {
                    let event = report.map(|report| self.report(report));
                    self.begin_command();
                    event
                }
                None => self.whole_line(),
            },
        }
    }

    /// A line without a literal at its end, nothing wrong with its bytes.
    fn whole_line(&mut self) -> Option<Event<'static>> {
        let event = match self.expected {
            Expected::Command => match command::parse(&mut self.collected, &self.limits, self.utf8)
            {
                Ok(Parsed::Command(command)) => {
                    self.tag = Some(command.tag.clone());
                    Event::Command(command)
                }
                Ok(Parsed::Append(tag)) => {
                    self.tag = Some(tag);
                    self.append = Some(Progress::new());
                    self.state = State::Append(None);
                    return None;
                }
                Err((tag, text)) => Event::Bad { tag, text },
            },
            Expected::Append => {
                self.state = State::Append(None);
                return None;
            }
            Expected::Done if self.collected.text().eq_ignore_ascii_case(b"DONE") => Event::Done,
            Expected::Done => Event::Bad {
                tag: self.tag(),
                text: "expected DONE",
            },
            Expected::Sasl => match self.collected.text() {
                b"*" => Event::Sasl(SaslReply::Cancel),
                text => match base64::engine::general_purpose::STANDARD.decode(text) {
                    Ok(bytes) => Event::Sasl(SaslReply::Data(Secret::new(bytes))),
                    Err(_) => Event::Bad {
                        tag: self.tag(),
                        text: "invalid base64",
                    },
                },
            },
        };
        self.begin_command();
        Some(event)
    }

    /// Reads on in the text of an APPEND, behind which `literal` stands.
    fn append(&mut self, literal: Option<LiteralHeader>) -> Option<Event<'static>> {
        let (Some(tag), Some(progress)) = (self.tag(), self.append.as_mut()) else {
            self.begin_command();
            return None;
        };
        self.expected = Expected::Append;
        let at = progress.at();
        let mut cursor = Cursor::resume(&mut self.collected, &self.limits, self.utf8, at);
        let found = progress.read(&mut cursor, &tag, literal);
        match (found, literal) {
            (Ok(AppendToken::Event(event)), _) => Some(event),
            (Ok(AppendToken::Octets { utf8 }), Some(header)) => {
                progress.forget_text();
                self.collected.reset(!self.authenticated);
                self.state = State::Undecided {
                    size: header.size,
                    synchronising: header.synchronising,
                };
                Some(Event::AppendLiteral(AppendLiteral {
                    size: header.size,
                    too_big: header.size > self.limits.append_bytes_max,
                    synchronising: header.synchronising,
                    utf8,
                    binary: header.binary && !utf8,
                }))
            }
            (Ok(AppendToken::Hold), Some(header)) => match self.hold(tag, header) {
                Ok(event) => event,
                Err(refusal) => {
                    self.refuse(Report::Bad(refusal));
                    self.literal_of_refused(header)
                }
            },
            (Ok(AppendToken::End), _) => {
                self.begin_command();
                Some(Event::AppendEnd)
            }
            (Err(refusal), Some(header)) => {
                self.state = State::Line;
                self.refuse(Report::Bad(refusal));
                self.literal_of_refused(header)
            }
            (Err(text), None) => {
                self.begin_command();
                Some(Event::Bad {
                    tag: Some(tag),
                    text,
                })
            }
            (Ok(AppendToken::Octets { .. } | AppendToken::Hold), None) => {
                // There is no literal that they could stand for.
                self.begin_command();
                None
            }
        }
    }

    /// A literal in a command that is good so far.
    fn literal(&mut self, header: LiteralHeader) -> Option<Event<'static>> {
        if self.expected == Expected::Append {
            self.state = State::Append(Some(header));
            return None;
        }
        match self.try_literal(header) {
            Ok(event) => event,
            Err(refusal) => {
                let fits = header.size <= self.limits.literal_bytes_max_before_login as u64;
                let report = match refusal {
                    TOO_LARGE if fits && self.is_strangers_id() => Report::LongId,
                    _ => Report::Bad(refusal),
                };
                self.refuse(report);
                self.literal_of_refused(header)
            }
        }
    }

    fn try_literal(&mut self, header: LiteralHeader) -> Result<Option<Event<'static>>, Refusal> {
        let (tag, is_append) = command::first_look(self.collected.text())?;
        self.tag = Some(tag.clone());
        if is_append {
            self.append = Some(Progress::new());
            self.state = State::Append(Some(header));
            return Ok(None);
        }
        self.hold(tag, header)
    }

    /// Begins a literal that is held in memory.
    fn hold(&mut self, tag: Tag, header: LiteralHeader) -> Result<Option<Event<'static>>, Refusal> {
        if header.binary {
            // RFC 9051, section 9: no argument of a command is a literal8 but the message of APPEND.
            return Err("a literal of the form ~{n} is not allowed here");
        }
        if self.collected.literals() == self.limits.literal_count_max {
            return Err("too many literals");
        }
        let (one, all) = if self.authenticated {
            (self.limits.literal_bytes_max, self.limits.command_bytes_max)
        } else {
            (
                self.limits.literal_bytes_max_before_login,
                self.limits.command_bytes_max_before_login,
            )
        };
        let left = all.saturating_sub(self.collected.counted_bytes()).min(one);
        if header.size > left as u64 {
            return Err(TOO_LARGE);
        }
        self.collected.begin_literal();
        self.state = State::Literal {
            left: header.size,
            announced: header.synchronising,
        };
        Ok(header.synchronising.then_some(Event::Continue {
            tag,
            size: header.size,
        }))
    }

    /// A literal in a command that is read to its end only: a synchronising client waits and will not send it, but if the command is not bad.
    fn literal_of_refused(&mut self, header: LiteralHeader) -> Option<Event<'static>> {
        let report = self.refused.as_ref().and_then(|refused| refused.report);
        let awaited = self.is_long_id() && !header.binary;
        if header.synchronising && !awaited {
            let event = report.map(|report| self.report(report));
            self.begin_command();
            return event;
        }
        if !self.count_skipped(header.size) {
            return Some(self.die(TOO_LARGE));
        }
        self.state = State::Skip { left: header.size };
        let tag = self.tag().filter(|_| header.synchronising);
        tag.map(|tag| Event::Continue {
            tag,
            size: header.size,
        })
    }

    fn report(&self, report: Report) -> Event<'static> {
        match (report, self.tag()) {
            (Report::Bad(text), tag) => Event::Bad { tag, text },
            (Report::LongId, Some(tag)) => Event::Command(Command {
                tag,
                body: CommandBody::Id(None),
            }),
            (Report::LongId, None) => Event::Bad {
                tag: None,
                text: "invalid tag",
            },
        }
    }

    /// The command is bad: its rest is read and dropped, then it is reported.
    fn refuse(&mut self, report: Report) {
        if self.refused.is_none() {
            if self.expected == Expected::Command {
                self.tag = command::tag_of(self.collected.text());
            }
            self.refused = Some(Refused {
                report: Some(report),
            });
        }
        self.append = None;
        self.collected.discard(!self.authenticated);
    }

    /// Whether so many bytes more may be dropped.
    fn count_skipped(&mut self, bytes: u64) -> bool {
        let limit = if self.authenticated {
            self.limits.skip_bytes_max
        } else if self.is_long_id() {
            ID_REST_BYTES_MAX
        } else {
            self.limits.command_bytes_max_before_login as u64
        };
        self.skipped = self.skipped.saturating_add(bytes);
        self.skipped <= limit
    }

    fn die(&mut self, text: Refusal) -> Event<'static> {
        self.begin_command();
        self.state = State::Dead;
        self.input.zeroize();
        self.input = Vec::new();
        self.at = 0;
        Event::Fatal { text }
    }

    fn begin_command(&mut self) {
        self.collected.reset(!self.authenticated);
        self.state = State::Line;
        self.expected = Expected::Command;
        self.refused = None;
        self.append = None;
        self.skipped = 0;
    }

    fn tag(&self) -> Option<Tag> {
        self.tag.clone()
    }

    /// Drops what was read of the input; of an idle connection the buffer, too.
    fn forget_consumed(&mut self) {
        if !self.authenticated {
            self.input[..self.at].zeroize();
        }
        self.input.drain(..self.at);
        self.at = 0;
        if self.input.is_empty() && self.input.capacity() > IDLE_BYTES_MAX {
            self.input = Vec::new();
        }
    }
}
