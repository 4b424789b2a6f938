//! What goes in and out of the client machine.

use std::sync::Arc;

use crate::address::{ForwardPath, HostName, ReversePath};
use crate::session::{Body, Secret};
use crate::{Refusal, Reply};

/// Whether a client uses STARTTLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartTls {
    /// Never.
    Never,
    /// When the server offers it.
    IfOffered,
    /// Or else the session fails.
    Require,
}

/// How a client behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// LHLO instead of EHLO, one reply a recipient.
    pub lmtp: bool,
    /// Its name.
    pub name: HostName,
    /// STARTTLS.
    pub starttls: StartTls,
    /// Use PIPELINING where offered.
    pub pipelining: bool,
    /// Use BDAT where CHUNKING and PIPELINING are offered.
    pub chunking: bool,
    /// Logs in with AUTH PLAIN, inside TLS alone, or else the session fails: `NUL name NUL password`.
    pub login: Option<Secret>,
}

impl ClientConfig {
    /// STARTTLS if offered, PIPELINING if offered, DATA.
    #[must_use]
    pub fn new(name: HostName) -> Self {
        ClientConfig {
            lmtp: false,
            name,
            starttls: StartTls::IfOffered,
            pipelining: true,
            chunking: false,
            login: None,
        }
    }
}

/// A message to send, without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The reverse-path.
    pub from: ReversePath,
    /// Recipients, at least one.
    pub recipients: Vec<ForwardPath>,
    /// Declared as SIZE where offered.
    pub size: Option<u64>,
    /// SMTPUTF8; without the server's offer the message fails.
    pub utf8: bool,
    /// BODY, where offered.
    pub body: Body,
}

/// How a message fared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// For each recipient, in order, the reply that decided: to MAIL, RCPT or DATA when refused, else to the end of the message.
    pub recipients: Vec<Result<Reply, Refusal>>,
}

impl Outcome {
    /// Whether all recipients were accepted.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.recipients.iter().all(Result::is_ok)
    }
}

/// What the server offers, from the reply to EHLO or LHLO.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offers {
    /// PIPELINING.
    pub pipelining: bool,
    /// 8BITMIME.
    pub eight_bit_mime: bool,
    /// SMTPUTF8.
    pub utf8: bool,
    /// CHUNKING.
    pub chunking: bool,
    /// STARTTLS.
    pub starttls: bool,
    /// ENHANCEDSTATUSCODES.
    pub enhanced_status_codes: bool,
    /// SIZE; `Some(0)`: offered without a figure.
    pub size: Option<u64>,
    /// Mechanisms of AUTH in upper case.
    pub auth: Vec<String>,
}

/// Why a client's session ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The greeting, EHLO or STARTTLS was refused, or 421 came.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// What came is no SMTP reply.
    #[error("invalid reply from the server: {0}")]
    InvalidReply(&'static str),
    /// A login was asked for, and TLS or AUTH PLAIN is missing.
    #[error("server does not take a login here")]
    NoAuth,
    /// STARTTLS was required but not offered.
    #[error("server does not offer STARTTLS")]
    NoStartTls,
    /// The connection ended. A message whose body had been sent whole may or may not have been accepted.
    #[error("connection lost")]
    ConnectionLost,
}

/// What the client machine wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientOutput {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Do the TLS handshake, then call `tls_started`.
    StartTls,
    /// A message may be sent now.
    Ready(Arc<Offers>),
    /// Give the body by `body` and `body_end`.
    WantBody,
    /// The message is through, one way or the other; `Ready` follows unless the connection is lost.
    Done(Outcome),
    /// Close the connection; `Ok` after QUIT. The last output.
    Close(Result<(), ClientError>),
}
