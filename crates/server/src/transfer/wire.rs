//! One IMAP connection of a client: to the own server by its admin socket, or to another server.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};
use whimbrel_imap::{
    CommandBody,
    client::{BadResponse, Client, ReplyCode, Response},
    encode::Kind,
};

/// Read at once.
const READ_BYTES: usize = 64 * 1024;
/// For a server to say something: one that is silent for longer is gone.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(300);

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("the connection: {0}")]
    Io(#[from] io::Error),
    #[error("the server's answer cannot be read: {0}")]
    Bad(#[from] BadResponse),
    /// NO or BAD.
    #[error("{text}")]
    Refused {
        code: Option<ReplyCode>,
        text: String,
    },
    #[error("the server says goodbye: {0}")]
    Bye(String),
}

pub(super) struct Wire {
    stream: Box<dyn Stream>,
    machine: Client,
    buffer: Vec<u8>,
}

impl Wire {
    /// Hears the greeting; gives it back.
    pub(super) async fn open(stream: Box<dyn Stream>) -> Result<(Wire, Response), WireError> {
        let mut wire = Wire {
            stream,
            machine: Client::new(),
            buffer: vec![0; READ_BYTES],
        };
        let greeting = wire.next().await?;
        Ok((wire, greeting))
    }

    /// The stream, for TLS on it. Nothing that came in the clear is kept.
    pub(super) fn into_stream(self) -> Box<dyn Stream> {
        self.stream
    }

    /// As [`Wire::open`], after STARTTLS: there is no second greeting.
    pub(super) fn resume(stream: Box<dyn Stream>) -> Result<Wire, WireError> {
        let mut machine = Client::new();
        machine.push(b"* OK ready\r\n");
        machine.next()?;
        Ok(Wire {
            stream,
            machine,
            buffer: vec![0; READ_BYTES],
        })
    }

    pub(super) fn set_utf8(&mut self) {
        self.machine.set_utf8(true);
    }

    /// Sends a line; what comes up to its tagged OK is given to `take`.
    pub(super) async fn each(
        &mut self,
        line: &str,
        mut take: impl FnMut(Response),
    ) -> Result<(), WireError> {
        self.begin(line.as_bytes()).await?;
        self.end(&mut take).await
    }

    /// Sends a line; gives what comes up to its tagged OK.
    pub(super) async fn command(&mut self, line: &str) -> Result<Vec<Response>, WireError> {
        let mut responses = Vec::new();
        self.each(line, |response| responses.push(response)).await?;
        Ok(responses)
    }

    /// As [`Wire::command`].
    pub(super) async fn body(&mut self, body: &CommandBody) -> Result<Vec<Response>, WireError> {
        self.machine.command(body);
        let mut responses = Vec::new();
        self.end(&mut |response| responses.push(response)).await?;
        Ok(responses)
    }

    /// Begins a command.
    pub(super) async fn begin(&mut self, line: &[u8]) -> Result<(), WireError> {
        self.machine.raw(line);
        self.send().await
    }

    /// Goes on with a line.
    pub(super) async fn line(&mut self, line: &[u8]) -> Result<(), WireError> {
        self.machine.line(line);
        self.send().await
    }

    /// Bytes of a literal.
    pub(super) async fn bytes(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        self.send().await?;
        Ok(self.stream.write_all(bytes).await?)
    }

    /// Hears what is said up to the tagged answer.
    pub(super) async fn end(&mut self, take: &mut dyn FnMut(Response)) -> Result<(), WireError> {
        loop {
            match self.next().await? {
                Response::Tagged {
                    kind: Kind::Ok,
                    code,
                    text,
                    ..
                } => {
                    // Its code may be what is asked for.
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
                return Ok(response);
            }
            self.send().await?;
            let read = timeout(ANSWER_WAIT_MAX, self.stream.read(&mut self.buffer)).await;
            let read = read.map_err(io::Error::from)??;
            if read == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
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
