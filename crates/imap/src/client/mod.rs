//! A client: builds commands, waits where it must, and takes nothing from a server that the RFCs do not let it say, unless it is told to be lenient
//! ([`Limits::lenient`]).
//!
//! It drives the tests, the simulator and the benchmarks, so a malformed answer of our own server is an error here; imports from other servers are
//! lenient. It holds one response at a time, whole, and no more of it than [`Limits`] allow.
//!
//! Reading order: [`Client`], [`Limits`], `command` (what is sent), [`response`] (what comes back), `cursor`, `parse`, `structure`.

mod command;
mod cursor;
mod limits;
mod parse;
pub mod response;
mod structure;

pub use command::{Append, append_message_head};
pub use limits::Limits;
pub use response::{BadName, FetchData, ListItem, ReplyCode, Response, ThreadNode};

use crate::CommandBody;
use crate::core::Tag;
use std::collections::VecDeque;

/// When literals are sent without waiting for `+` (RFC 7888).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NonSynchronising {
    /// The server has neither extension.
    #[default]
    Never,
    /// LITERAL-: up to 4096 bytes.
    Small,
    /// LITERAL+
    Always,
}

/// What a server did wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at} of {response:?}")]
pub struct BadResponse {
    /// What is wrong.
    pub what: &'static str,
    /// Where.
    pub at: usize,
    /// The begin of the response.
    pub response: String,
}

/// The client's side of one connection.
///
/// ```
/// use whimbrel_imap::{CommandBody, client::{Client, Response}};
///
/// let mut client = Client::new();
/// client.push(b"* OK hello\r\n");
/// assert!(matches!(client.next(), Ok(Some(Response::Status { .. }))));
/// let tag = client.command(&CommandBody::Noop);
/// assert_eq!(client.take_output(), b"c1 NOOP\r\n");
/// client.push(b"c1 OK done\r\n");
/// assert!(matches!(client.next(), Ok(Some(Response::Tagged { tag: t, .. })) if t == tag));
/// ```
#[derive(Debug, Default)]
pub struct Client {
    limits: Limits,
    literals: NonSynchronising,
    utf8: bool,
    tags_used: u64,
    output: Vec<u8>,
    /// What is sent when its turn comes; `true`: after a continuation.
    queue: VecDeque<(Tag, bool, Vec<u8>)>,
    outstanding: VecDeque<Tag>,
    /// Commands that may get a continuation beside those for literals: AUTHENTICATE and IDLE.
    dialogue: Option<Tag>,
    greeted: bool,
    input: Vec<u8>,
    /// Everything before was looked at for the end of the response.
    looked_at: usize,
    /// Where the line in hand begins: behind the last literal.
    line_start: usize,
}

impl Client {
    /// A client that waits for the greeting.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that takes no more than this of a response.
    pub fn with_limits(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// How literals are sent from now on.
    pub fn set_literals(&mut self, literals: NonSynchronising) {
        self.literals = literals;
    }

    /// From now on names are UTF-8 and quoted strings may hold it.
    pub fn set_utf8(&mut self, utf8: bool) {
        self.utf8 = utf8;
    }

    /// Queues a command.
    pub fn command(&mut self, body: &CommandBody) -> Tag {
        let tag = self.new_tag();
        if matches!(body, CommandBody::Authenticate { .. } | CommandBody::Idle) {
            self.dialogue = Some(tag.clone());
        }
        let parts = command::encode(body, self.writer(&tag));
        self.send(tag, parts)
    }

    /// Queues an APPEND.
    pub fn append(&mut self, append: &Append<'_>) -> Tag {
        let tag = self.new_tag();
        let parts = command::encode_append(append, self.writer(&tag));
        self.send(tag, parts)
    }

    /// Queues a line as it is, with a tag in front and CRLF behind. It may hold anything, so it may be answered by continuations,
    /// which are shown.
    pub fn raw(&mut self, line: &[u8]) -> Tag {
        let tag = self.new_tag();
        self.raw_as(tag, line)
    }

    /// As [`Client::raw`], with a tag of one's own.
    pub fn raw_as(&mut self, tag: Tag, line: &[u8]) -> Tag {
        self.dialogue = Some(tag.clone());
        let bytes = [tag.as_str().as_bytes(), b" ", line, b"\r\n"].concat();
        self.send(tag, vec![bytes])
    }

    /// Queues a line without tag: an answer to a continuation of AUTHENTICATE, or DONE.
    pub fn line(&mut self, line: &[u8]) {
        self.output.extend_from_slice(line);
        self.output.extend_from_slice(b"\r\n");
    }

    /// What is to be sent now.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Commands without a tagged response yet.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Takes what was received.
    pub fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The next response. Continuations for literals are answered, not shown.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Response>, BadResponse> {
        loop {
            let end = match self.response_end() {
                Ok(Some(end)) => end,
                Ok(None) => return Ok(None),
                Err(what) => return Err(self.bad((what, self.line_start), self.input.len())),
            };
            let limits = self.limits;
            let result = parse::response(&self.input[..end], self.utf8, self.greeted, &limits)
                .and_then(|response| self.in_its_place(response).map_err(|what| (what, 0)));
            let result = result.map_err(|fault| self.bad(fault, end));
            self.input.drain(..end);
            self.looked_at = 0;
            self.line_start = 0;
            if let Some(response) = result? {
                return Ok(Some(response));
            }
        }
    }

    fn bad(&self, (what, at): (&'static str, usize), end: usize) -> BadResponse {
        BadResponse {
            what,
            at,
            response: self.input[..end.min(200)].escape_ascii().to_string(),
        }
    }

    /// Where the first response ends, when it is whole.
    fn response_end(&mut self) -> Result<Option<usize>, &'static str> {
        let limits = self.limits;
        loop {
            let from = self.looked_at.min(self.input.len());
            let Some(lf) = memchr::memchr(b'\n', &self.input[from..]).map(|n| from + n) else {
                // A literal that is not there yet lies beyond the input.
                self.looked_at = self.looked_at.max(self.input.len());
                if self.input.len().saturating_sub(self.line_start) > limits.line_bytes_max {
                    return Err("a line longer than is taken");
                }
                return Ok(None);
            };
            self.looked_at = lf + 1;
            if lf.saturating_sub(self.line_start) > limits.line_bytes_max {
                return Err("a line longer than is taken");
            }
            let Some(bytes) = parse::literal_at_end(&self.input[..=lf]) else {
                return Ok(Some(lf + 1));
            };
            // Beyond usize is beyond any limit.
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            if bytes > limits.literal_bytes_max {
                return Err("a literal longer than is taken");
            }
            if self.looked_at.saturating_add(bytes) > limits.response_bytes_max {
                return Err("a response longer than is taken");
            }
            self.looked_at += bytes;
            self.line_start = self.looked_at;
        }
    }

    fn in_its_place(&mut self, response: Response) -> Result<Option<Response>, &'static str> {
        match &response {
            Response::Status { .. } if !self.greeted => self.greeted = true,
            _ if !self.greeted => return Err("expected a greeting"),
            Response::Tagged { tag, .. } => {
                let at = self
                    .outstanding
                    .iter()
                    .position(|t| t == tag)
                    .ok_or("tag of no command")?;
                self.outstanding.remove(at);
                self.queue.retain(|(t, ..)| t != tag);
                if self.dialogue.as_ref() == Some(tag) {
                    self.dialogue = None;
                }
                self.flush();
            }
            Response::Continuation { .. } => {
                if let Some((_, after_continuation @ true, _)) = self.queue.front_mut() {
                    *after_continuation = false;
                    self.flush();
                    return Ok(None);
                }
                if self.dialogue.is_none() {
                    return Err("continuation that nothing waits for");
                }
            }
            _ => {}
        }
        Ok(Some(response))
    }

    fn new_tag(&mut self) -> Tag {
        self.tags_used += 1;
        Tag::new(format!("c{}", self.tags_used).as_bytes()).expect("letters and digits are a tag")
    }

    fn writer(&self, tag: &Tag) -> command::Writer {
        command::Writer::new(tag, self.literals, self.utf8)
    }

    fn send(&mut self, tag: Tag, parts: Vec<Vec<u8>>) -> Tag {
        self.outstanding.push_back(tag.clone());
        for (n, part) in parts.into_iter().enumerate() {
            self.queue.push_back((tag.clone(), n > 0, part));
        }
        self.flush();
        tag
    }

    fn flush(&mut self) {
        while let Some((_, _, part)) = self.queue.pop_front_if(|(_, after, _)| !*after) {
            self.output.extend_from_slice(&part);
        }
    }
}
