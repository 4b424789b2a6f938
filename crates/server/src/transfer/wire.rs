//! An IMAP connection as a client: to our own server by its admin socket, or to another server, which may send anything for ever: [`Bounds`] limit
//! how much of it is accepted.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::{Instant, timeout, timeout_at},
};
use whimbrel_imap::{
    CommandBody,
    client::{BadResponse, Client, Limits, ReplyCode, Response},
    encode::Kind,
};

/// Read at once.
const READ_BYTES: usize = 64 * 1024;
/// Limits on what a server sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Limits of one response.
    pub(super) limits: Limits,
    /// Bytes of all responses to one command.
    pub(super) answer_bytes_max: usize,
    /// Responses to one command.
    pub(super) answer_responses_max: usize,
    /// Longest silence of a server: after that it counts as gone.
    pub(super) silence_max: Duration,
    /// Time limit for the answer to one command, from its first byte to its last: a server that sends too slowly counts as gone.
    pub(super) answer_wait_max: Duration,
}

impl Bounds {
    /// Our own server, by its admin socket: it answers for mailboxes of any size.
    pub(super) fn own() -> Bounds {
        Bounds {
            limits: Limits::default(),
            answer_bytes_max: usize::MAX,
            answer_responses_max: usize::MAX,
            silence_max: Duration::from_secs(300),
            answer_wait_max: Duration::from_secs(24 * 3600),
        }
    }

    /// Another server. No command asks for more than 2 MiB of messages, or for the UIDs of a mailbox; the part of an answer in memory stays below 100
    /// MiB.
    pub(super) fn others() -> Bounds {
        Bounds {
            limits: Limits {
                line_bytes_max: 16 << 20,
                literal_bytes_max: 16 << 20,
                response_bytes_max: 20 << 20,
                elements_max: 10_000,
                numbers_max: MAILBOX_MESSAGES_MAX,
                lenient: true,
            },
            answer_bytes_max: 24 << 20,
            answer_responses_max: 100_000,
            silence_max: Duration::from_secs(300),
            answer_wait_max: Duration::from_secs(1800),
        }
    }
}

/// Messages of one mailbox of another server: their UIDs are held, and named in one line of SEARCH.
pub(super) const MAILBOX_MESSAGES_MAX: usize = 2_000_000;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("the server closed the connection")]
    Closed,
    #[error("the server said nothing for {} seconds", .0.as_secs())]
    Silent(Duration),
    #[error("the server took more than {} seconds to answer", .0.as_secs())]
    Slow(Duration),
    #[error("the server's answer to one command has no end")]
    Endless,
    #[error("the server's answer cannot be read: {0}")]
    Bad(#[from] BadResponse),
    /// NO or BAD.
    #[error("{text}")]
    Refused {
        code: Option<ReplyCode>,
        text: String,
    },
    #[error("the server ended the session: {0}")]
    Bye(String),
}

pub(super) struct Wire {
    stream: Box<dyn Stream>,
    machine: Client,
    buffer: Vec<u8>,
    bounds: Bounds,
    /// Bytes and responses that may still come before the command is complete, and until when.
    bytes_left: usize,
    responses_left: usize,
    until: Option<Instant>,
}

impl Wire {
    /// Reads the greeting, and returns it.
    pub(super) async fn open(
        stream: Box<dyn Stream>,
        bounds: Bounds,
    ) -> Result<(Wire, Response), WireError> {
        let mut wire = Wire::on(stream, bounds);
        let greeting = wire.next().await?;
        Ok((wire, greeting))
    }

    fn on(stream: Box<dyn Stream>, bounds: Bounds) -> Wire {
        Wire {
            stream,
            machine: Client::with_limits(bounds.limits),
            buffer: vec![0; READ_BYTES],
            bounds,
            bytes_left: bounds.answer_bytes_max,
            responses_left: bounds.answer_responses_max,
            until: None,
        }
    }

    /// The stream, for TLS on it. Nothing that came in the clear is kept.
    pub(super) fn into_stream(self) -> Box<dyn Stream> {
        self.stream
    }

    /// As [`Wire::open`], after STARTTLS: there is no second greeting.
    pub(super) fn resume(stream: Box<dyn Stream>, bounds: Bounds) -> Result<Wire, WireError> {
        let mut wire = Wire::on(stream, bounds);
        wire.machine.push(b"* OK ready\r\n");
        wire.machine.next()?;
        Ok(wire)
    }

    pub(super) fn set_utf8(&mut self) {
        self.machine.set_utf8(true);
    }

    /// Sends a line; passes the responses up to its tagged OK to `take`.
    pub(super) async fn each(
        &mut self,
        line: &str,
        mut take: impl FnMut(Response),
    ) -> Result<(), WireError> {
        self.begin(line.as_bytes()).await?;
        self.end(&mut take).await
    }

    /// Sends a line; returns the responses up to its tagged OK.
    pub(super) async fn command(&mut self, line: &str) -> Result<Vec<Response>, WireError> {
        let mut responses = Vec::new();
        self.each(line, |response| responses.push(response)).await?;
        Ok(responses)
    }

    /// As [`Wire::command`].
    pub(super) async fn body(&mut self, body: &CommandBody) -> Result<Vec<Response>, WireError> {
        self.machine.command(body);
        self.asked();
        let mut responses = Vec::new();
        self.end(&mut |response| responses.push(response)).await?;
        Ok(responses)
    }

    /// Begins a command.
    pub(super) async fn begin(&mut self, line: &[u8]) -> Result<(), WireError> {
        self.machine.raw(line);
        self.asked();
        self.send().await
    }

    /// Resets the limits for an answer.
    fn asked(&mut self) {
        self.bytes_left = self.bounds.answer_bytes_max;
        self.responses_left = self.bounds.answer_responses_max;
        self.until = None;
    }

    /// Sends one more line of a command.
    pub(super) async fn line(&mut self, line: &[u8]) -> Result<(), WireError> {
        self.machine.line(line);
        self.send().await
    }

    /// Sends bytes of a literal.
    pub(super) async fn bytes(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        self.send().await?;
        Ok(self.stream.write_all(bytes).await?)
    }

    /// Passes the responses up to the tagged one to `take`.
    pub(super) async fn end(&mut self, take: &mut dyn FnMut(Response)) -> Result<(), WireError> {
        loop {
            match self.next().await? {
                Response::Tagged {
                    kind: Kind::Ok,
                    code,
                    text,
                    ..
                } => {
                    // Its response code may be the answer.
                    take(Response::Status {
                        kind: Kind::Ok,
                        code,
                        text,
                    });
                    return Ok(());
                }
                Response::Tagged { code, text, .. } => {
                    return Err(WireError::Refused { code, text });
                }
                Response::Status {
                    kind: Kind::Bye,
                    text,
                    ..
                } => {
                    return Err(WireError::Bye(text));
                }
                other => take(other),
            }
        }
    }

    pub(super) async fn next(&mut self) -> Result<Response, WireError> {
        loop {
            if let Some(response) = self.machine.next()? {
                let left = self.responses_left.checked_sub(1);
                self.responses_left = left.ok_or(WireError::Endless)?;
                return Ok(response);
            }
            self.send().await?;
            let Bounds {
                silence_max,
                answer_wait_max,
                ..
            } = self.bounds;
            // An upload may take long: the time for the answer begins when it is waited for.
            let until = *self
                .until
                .get_or_insert_with(|| Instant::now() + answer_wait_max);
            let read = timeout(silence_max, self.stream.read(&mut self.buffer));
            let Ok(read) = timeout_at(until, read).await else {
                return Err(WireError::Slow(answer_wait_max));
            };
            let read = read.map_err(|_| WireError::Silent(silence_max))??;
            if read == 0 {
                return Err(WireError::Closed);
            }
            let left = self.bytes_left.checked_sub(read);
            self.bytes_left = left.ok_or(WireError::Endless)?;
            self.machine.push(&self.buffer[..read]);
        }
    }

    async fn send(&mut self) -> Result<(), WireError> {
        let bytes = self.machine.take_output();
        if !bytes.is_empty() {
            self.stream.write_all(&bytes).await?;
        }
        Ok(self.stream.flush().await?)
    }
}

/// A quoted string. Names hold neither NUL nor line ends.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        limits: Limits {
            line_bytes_max: 1000,
            literal_bytes_max: 1000,
            response_bytes_max: 2000,
            elements_max: 100,
            numbers_max: 100,
            lenient: false,
        },
        answer_bytes_max: 100_000,
        answer_responses_max: 1000,
        silence_max: Duration::from_secs(600),
        answer_wait_max: Duration::from_secs(600),
    };

    /// The end of a command with a server that sends `once`, then `then` for ever. Without `then` the server closes, or is silent.
    fn answer(bounds: Bounds, once: &'static [u8], then: &'static [u8], closes: bool) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(async move {
            let (ours, mut theirs) = tokio::io::duplex(4096);
            let server = tokio::spawn(async move {
                let mut sent = theirs.write_all(b"* OK hello\r\n").await;
                let mut asked = [0; 9];
                theirs.read_exact(&mut asked).await.unwrap();
                assert_eq!(&asked, b"c1 NOOP\r\n");
                theirs.write_all(once).await.unwrap();
                while sent.is_ok() && !then.is_empty() {
                    sent = theirs.write_all(then).await;
                }
                if closes {
                    drop(theirs);
                } else {
                    // Until the client goes.
                    let _ = theirs.read(&mut asked).await;
                }
            });
            let (mut wire, _) = Wire::open(Box::new(ours), bounds).await.unwrap();
            let done = wire.each("NOOP", |_| {}).await;
            drop(wire);
            server.await.unwrap();
            done.map_or_else(|error| error.to_string(), |()| "OK".to_owned())
        })
    }

    #[test]
    fn a_server_that_does_not_answer_as_it_should() {
        let check = |once: &'static str, then: &'static str, expected: &str| {
            let told = answer(BOUNDS, once.as_bytes(), then.as_bytes(), true);
            assert!(told.contains(expected), "{once:?} {then:?}: {told}");
        };
        check("c1 OK done\r\n", "", "OK");
        check("c1 NO not now\r\n", "", "not now");
        check("", "", "closed the connection");
        check("* OK half of", "", "closed the connection");
        check("", "* 5 EXISTS\r\n", "has no end");
        check("", "* OK still here\r\n", "has no end");
        check("", "* OK [COPYUID 1 1:100 1:100] x\r\n", "has no end");
        check("* OK ", "x", "a line longer than is taken");
        check(
            "* 1 FETCH (BODY[] {1001}\r\n",
            "x",
            "a literal longer than is taken",
        );
        check(
            "* BYE enough\r\n",
            "",
            "the server ended the session: enough",
        );
        check("* 1 ENIGMA\r\n", "", "cannot be read");
        check("c2 OK done\r\n", "", "tag of no command");
        check("+ go on\r\n", "+ go on\r\n", "has no end");
        // Few responses, and many bytes.
        let bounds = Bounds {
            answer_responses_max: usize::MAX,
            ..BOUNDS
        };
        let told = answer(bounds, b"", b"* 5 EXISTS\r\n", true);
        assert!(told.contains("has no end"), "{told}");
    }

    #[test]
    fn a_server_that_says_nothing_or_drips() {
        let silent = Bounds {
            silence_max: Duration::from_millis(1),
            ..BOUNDS
        };
        let told = answer(silent, b"* 5 EXISTS\r\n", b"", false);
        assert_eq!(told, "the server said nothing for 0 seconds");
        let slow = Bounds {
            answer_wait_max: Duration::from_millis(1),
            ..BOUNDS
        };
        let told = answer(slow, b"* 5 EXISTS\r\n", b"", false);
        assert_eq!(told, "the server took more than 0 seconds to answer");
    }
}
