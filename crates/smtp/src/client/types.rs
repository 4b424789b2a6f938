//! What goes in and out of the client machine.

use core::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::{Offers, Timeouts};
use crate::address::{ForwardPath, HostName, ReversePath};
use crate::dsn::{EnvelopeId, Ret};
use crate::session::{Body, RcptTo, Secret};
use crate::{Refusal, Reply};

/// Whether a client uses STARTTLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartTls {
    /// Never.
    Never,
    /// When the server offers it. If it is then refused, the session goes on in clear text, after [`ClientOutput::StartTlsRefused`].
    IfOffered,
    /// Or else the session fails.
    Require,
}

/// What becomes of a body with octets above 127 when the server does not offer 8BITMIME (RFC 6152 3). It is never converted: that would
/// break its signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EightBit {
    /// It is sent as it is, without BODY.
    Send,
    /// The message fails with 5.6.3 before MAIL.
    Refuse,
}

/// How a client behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// LHLO instead of EHLO, one reply a recipient.
    pub lmtp: bool,
    /// Its name.
    pub name: HostName,
    /// TLS from the first octet: STARTTLS is not used.
    pub tls: bool,
    /// STARTTLS.
    pub starttls: StartTls,
    /// Use PIPELINING where offered.
    pub pipelining: bool,
    /// Use BDAT where CHUNKING and PIPELINING are offered.
    pub chunking: bool,
    /// Logs in with AUTH PLAIN or LOGIN, inside TLS alone, or else the session fails.
    pub login: Option<Login>,
    /// Eight-bit bodies without 8BITMIME.
    pub eight_bit: EightBit,
    /// How long to wait for the server.
    pub timeouts: Timeouts,
}

impl ClientConfig {
    /// STARTTLS if offered, PIPELINING if offered, DATA; eight-bit bodies are sent.
    #[must_use]
    pub fn new(name: HostName) -> Self {
        ClientConfig {
            lmtp: false,
            name,
            tls: false,
            starttls: StartTls::IfOffered,
            pipelining: true,
            chunking: false,
            login: None,
            eight_bit: EightBit::Send,
            timeouts: Timeouts::default(),
        }
    }
}

/// Name and password for AUTH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    name: String,
    password: Secret,
}

impl Login {
    /// `None`: one of them has a NUL, which AUTH PLAIN cannot carry (RFC 4616 2).
    #[must_use]
    pub fn new(name: &str, password: &str) -> Option<Self> {
        let nul = name.contains('\0') || password.contains('\0');
        (!nul).then(|| Login {
            name: name.to_owned(),
            password: Secret(Zeroizing::new(password.as_bytes().to_vec())),
        })
    }

    pub(super) fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    pub(super) fn password(&self) -> &[u8] {
        &self.password.0
    }

    /// The one message of PLAIN: `NUL name NUL password`.
    pub(super) fn plain(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new([b"\0", self.name(), b"\0", self.password()].concat())
    }
}

/// A message to send, without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The reverse-path.
    pub from: ReversePath,
    /// Recipients, at least one. NOTIFY and ORCPT go out where DSN is offered (RFC 3461); ORCPT only if it fits there.
    pub recipients: Vec<RcptTo>,
    /// Octets. Declared as SIZE where offered; above the server's limit the message fails with 5.3.4 before MAIL (RFC 1870 6.1).
    pub size: Option<u64>,
    /// The header, or an address of the envelope, needs SMTPUTF8; without the server's offer the message fails with 5.6.7 before MAIL.
    pub utf8: bool,
    /// `EightBitMime`: the body has octets above 127. See [`EightBit`].
    pub body: Body,
    /// RET, where DSN is offered.
    pub ret: Option<Ret>,
    /// ENVID, where DSN is offered.
    pub envid: Option<EnvelopeId>,
    /// REQUIRETLS: without TLS the message fails with 5.7.10, without the server's offer with 5.7.30, both before MAIL (RFC 8689 4.2.1).
    /// Whether the server's name and certificate were checked is the caller's to know. A notification (`<>`) is sent all the same:
    /// RFC 8689 5: "the REQUIRETLS parameter SHOULD NOT cause a bounce message to be discarded even if the next-hop relay does not
    /// advertise REQUIRETLS".
    pub require_tls: bool,
}

impl Outgoing {
    /// Seven bits, without parameters.
    #[must_use]
    pub fn new(from: ReversePath, recipients: Vec<ForwardPath>) -> Self {
        Outgoing {
            from,
            recipients: recipients.into_iter().map(RcptTo::from).collect(),
            size: None,
            utf8: false,
            body: Body::SevenBit,
            ret: None,
            envid: None,
            require_tls: false,
        }
    }
}

/// What became of a recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The server has the message: its reply to the end of the message.
    Accepted(Reply),
    /// The server refused: its reply to MAIL, RCPT, DATA or the end of the message.
    Refused(Refusal),
    /// Not in this transaction, which had recipients enough: to be sent in the next. With the server's reply, 452 or 552 (RFC 5321
    /// 4.5.3.1.10); without one the server's LIMITS said so (RFC 9422). At least one other recipient went before.
    Deferred(Option<Refusal>),
    /// The server's offers do not allow it, and nothing of it was sent: what to tell the sender. Another server may allow it.
    Unsendable(Refusal),
}

impl fmt::Display for Decision {
    /// As in a log: one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Accepted(reply) => reply.fmt(f),
            Decision::Refused(refusal) | Decision::Deferred(Some(refusal)) => refusal.fmt(f),
            Decision::Deferred(None) => f.write_str("left for the next transaction"),
            Decision::Unsendable(refusal) => write!(f, "not sent: {refusal}"),
        }
    }
}

/// How a message fared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// For each recipient, in order.
    pub recipients: Vec<Decision>,
}

impl Outcome {
    /// Whether all recipients were accepted.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.recipients
            .iter()
            .all(|decision| matches!(decision, Decision::Accepted(_)))
    }
}

/// How far a session had come when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Before the greeting's end.
    Greeting,
    /// EHLO, HELO or LHLO.
    Hello,
    /// STARTTLS.
    StartTls,
    /// The TLS handshake.
    Handshake,
    /// AUTH.
    Auth,
    /// Nothing was asked of the server. A message may have been given, of which nothing had gone out.
    Idle,
    /// MAIL.
    Mail,
    /// RCPT.
    Rcpt,
    /// DATA, up to its 354.
    Data,
    /// The body, or a chunk of it, before its end was sent.
    Body,
    /// After the end of the message was sent.
    End,
    /// RSET. The message before it had been decided.
    Reset,
    /// QUIT.
    Quit,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Greeting => "greeting",
            Stage::Hello => "EHLO",
            Stage::StartTls => "STARTTLS",
            Stage::Handshake => "TLS handshake",
            Stage::Auth => "AUTH",
            Stage::Idle => "idle",
            Stage::Mail => "MAIL",
            Stage::Rcpt => "RCPT",
            Stage::Data => "DATA",
            Stage::Body => "message body",
            Stage::End => "end of message",
            Stage::Reset => "RSET",
            Stage::Quit => "QUIT",
        })
    }
}

/// Why a client's session ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The greeting, EHLO, STARTTLS, AUTH or RSET was refused, or 421 came. Never an answer to a message, but for 421.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// What came is no SMTP reply, or not one to what was asked.
    #[error("invalid reply from the server: {0}")]
    InvalidReply(&'static str),
    /// A login was asked for, and TLS, or PLAIN and LOGIN, are missing.
    #[error("server does not take a login here")]
    NoAuth,
    /// STARTTLS was required but not offered.
    #[error("server does not offer STARTTLS")]
    NoStartTls,
    /// The connection ended.
    #[error("connection lost")]
    ConnectionLost,
    /// The server took longer than [`Timeouts`] allow.
    #[error("timeout")]
    Timeout,
}

/// What is known of a recipient when the session ends in the midst of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Its RCPT was not answered.
    Unanswered,
    /// Its RCPT was accepted; the end of the message was not sent.
    Recipient,
    /// All was sent, and the end was not answered: the message may have been accepted. Whoever sends it again soon makes a second copy.
    Uncertain,
    /// Nothing more would have come.
    Decided(Decision),
}

/// How a session failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error} ({stage})")]
pub struct Failure {
    /// Why.
    pub error: ClientError,
    /// Where.
    pub stage: Stage,
    /// It says nothing about a message: the session was idle, or had been used before and ended before anything of the next message was
    /// answered. To be tried again on a fresh connection, without counting it as a try.
    pub stale: bool,
    /// Of the message on its way, for each recipient. `None`: there was none, or [`ClientOutput::Done`] told all.
    pub unfinished: Option<Vec<Fate>>,
}

impl Failure {
    /// Whether some recipient may have the message.
    #[must_use]
    pub fn may_be_accepted(&self) -> bool {
        self.unfinished
            .iter()
            .flatten()
            .any(|fate| *fate == Fate::Uncertain)
    }
}

/// What the client machine wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientOutput {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Do the TLS handshake, then call `tls_started`; if it fails, `on_eof`.
    StartTls,
    /// STARTTLS was offered and then refused. The session goes on in clear text: whoever cannot have that closes the connection.
    StartTlsRefused(Refusal),
    /// A message may be sent now.
    Ready(Arc<Offers>),
    /// Give the body by `body` and `body_end`.
    WantBody,
    /// All recipients of the message are decided. Next comes `Ready`, or the end: an error, or QUIT after as many messages as the
    /// server's LIMITS allow.
    Done(Outcome),
    /// Close the connection; `Ok` after QUIT. The last output.
    Close(Result<(), Box<Failure>>),
}
