//! What goes in and out of a session: configuration, outputs, answers.

use core::time::Duration;
use std::net::IpAddr;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::address::{Domain, ForwardPath, HostName, ReversePath};
use crate::dsn::{EnvelopeId, Notify, OriginalRecipient, Ret};
use crate::trace::WallTime;
use crate::{Limits, Refusal};

/// Which protocol a listener speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Mail from other servers (RFC 5321).
    Smtp,
    /// Mail from a trusted queue, one reply a recipient (RFC 2033).
    Lmtp,
    /// Mail from users, who must authenticate (RFC 6409, 4954).
    Submission,
}

/// What all sessions of a listener share.
#[derive(Debug, Clone)]
pub struct Config {
    /// The server's own name: greeting, EHLO, Received.
    pub host: Domain,
    /// The limits.
    pub limits: Limits,
    /// Whether STARTTLS is offered on a connection in clear text (a certificate is there).
    pub starttls: bool,
    /// Whether MAIL is refused (530 5.7.0) before TLS.
    pub require_tls: bool,
    /// Whether AUTH is offered without TLS. For tests; passwords travel in the clear.
    pub auth_without_tls: bool,
    /// The greeting waits so long; whoever talks before it is no mail server. Zero: at once.
    pub greeting_delay: Duration,
    /// Whether a client that talks before the greeting is refused (554 and close).
    pub refuse_early_talkers: bool,
    /// Whether DSN is offered (RFC 3461). Whoever offers it sends the notifications, and passes the parameters on.
    pub offer_dsn: bool,
    /// Whether REQUIRETLS is offered, inside TLS alone (RFC 8689 2: "The session itself MUST employ TLS transmission").
    pub offer_requiretls: bool,
    /// The longest hold in seconds, at most 999,999,999, that FUTURERELEASE offers in submission (RFC 4865). It is offered once
    /// [`Session::set_wall_time`](super::Session::set_wall_time) was called. `None`: not offered.
    pub offer_future_release: Option<u32>,
}

impl Config {
    /// Defaults for a server of this name: no TLS, no greeting delay.
    #[must_use]
    pub fn new(host: Domain) -> Self {
        Config {
            host,
            limits: Limits::default(),
            starttls: false,
            require_tls: false,
            auth_without_tls: false,
            greeting_delay: Duration::ZERO,
            refuse_early_talkers: true,
            offer_dsn: false,
            offer_requiretls: false,
            offer_future_release: None,
        }
    }
}

/// What is known of the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub ip: IpAddr,
    /// TLS from the first byte, if so.
    pub tls: Option<TlsInfo>,
}

/// What a TLS handshake came to; printable text for the Received field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsInfo {
    /// For example `TLS1.3`.
    pub version: String,
    /// For example `TLS_AES_256_GCM_SHA384`.
    pub cipher: String,
}

/// The BODY parameter of MAIL (RFC 6152).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Body {
    /// 7BIT, also when nothing was said. Eight-bit octets are let through all the same.
    #[default]
    SevenBit,
    /// 8BITMIME.
    EightBitMime,
}

/// An accepted or proposed MAIL command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailFrom {
    /// The reverse-path.
    pub from: ReversePath,
    /// SIZE as declared (RFC 1870); already known to be within the limit.
    pub size: Option<u64>,
    /// SMTPUTF8 was asked for (RFC 6531).
    pub utf8: bool,
    /// BODY.
    pub body: Body,
    /// RET (RFC 3461 4.3).
    pub ret: Option<Ret>,
    /// ENVID (RFC 3461 4.4).
    pub envid: Option<EnvelopeId>,
    /// REQUIRETLS (RFC 8689): the message goes on over authenticated TLS, or not at all.
    pub require_tls: bool,
    /// HOLDFOR or HOLDUNTIL (RFC 4865).
    pub hold: Option<Hold>,
}

impl MailFrom {
    /// MAIL without parameters.
    #[must_use]
    pub fn new(from: ReversePath) -> Self {
        MailFrom {
            from,
            size: None,
            utf8: false,
            body: Body::SevenBit,
            ret: None,
            envid: None,
            require_tls: false,
            hold: None,
        }
    }
}

/// Until when a message is held before it is sent (RFC 4865).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// HOLDFOR: so many seconds from its acceptance, 1 to 999,999,999.
    For(u32),
    /// HOLDUNTIL.
    Until(WallTime),
}

/// An accepted or proposed RCPT command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RcptTo {
    /// The forward-path.
    pub path: ForwardPath,
    /// NOTIFY (RFC 3461 4.1).
    pub notify: Option<Notify>,
    /// ORCPT (RFC 3461 4.2).
    pub orcpt: Option<OriginalRecipient>,
}

/// RCPT without parameters.
impl From<ForwardPath> for RcptTo {
    fn from(path: ForwardPath) -> Self {
        RcptTo {
            path,
            notify: None,
            orcpt: None,
        }
    }
}

/// What the client said and what holds of the connection, as the Received field wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The name in HELO, EHLO or LHLO.
    pub helo: HostName,
    /// Whether it was HELO: no extensions.
    pub basic: bool,
    /// Its address.
    pub ip: IpAddr,
    /// TLS, if so.
    pub tls: Option<TlsInfo>,
    /// Whether it has authenticated.
    pub authenticated: bool,
}

/// A transaction as it stands when the message begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Which protocol.
    pub role: Role,
    /// Who the client is.
    pub origin: Origin,
    /// MAIL.
    pub mail: MailFrom,
    /// The accepted recipients in the order they were named. Never empty.
    pub recipients: Vec<RcptTo>,
}

/// Why a message that had begun will not be completed. The client's reply, if it still gets one, is the machine's affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortReason {
    /// The connection, or TLS on it, ended.
    ConnectionLost,
    /// RSET, EHLO, QUIT or another command between BDAT chunks.
    Reset,
    /// More than `message_bytes_max`.
    TooLarge,
    /// A bare CR or a bare LF.
    BareLineEnd,
    /// A NUL octet.
    Nul,
    /// A line longer than `text_line_bytes_max`.
    LineTooLong,
    /// More Received fields than `received_hops_max`.
    Loop,
    /// The client was too slow.
    Timeout,
    /// Another rule of the protocol or a limit of the session ended it.
    Protocol,
}

/// Why the machine wants the connection closed (after what it has given to send is sent).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// QUIT.
    Quit,
    /// The client closed, or the connection broke.
    ConnectionLost,
    /// A deadline passed.
    Timeout,
    /// The client talked before the greeting.
    EarlyTalker,
    /// Bytes in clear text behind STARTTLS: an injection or a broken client.
    BytesBehindStartTls,
    /// `errors_max`.
    TooManyErrors,
    /// `commands_max` or `idle_commands_max`.
    TooManyCommands,
    /// `transactions_max`.
    TooManyTransactions,
    /// `recipients_refused_max` or `unknown_recipients_max`.
    TooManyRefusedRecipients,
    /// `auth_failures_max`.
    TooManyAuthFailures,
    /// Far more data than the limit, or a BDAT that cannot be skipped.
    TooMuchData,
    /// The server goes down.
    ShuttingDown,
    /// [`Session::log_out`](super::Session::log_out).
    LoggedOut,
}

/// What is known of a message when all of it has been read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DataSummary {
    /// Octets given in chunks.
    pub bytes: u64,
    /// Received fields in its header.
    pub received: usize,
    /// The values of its Delivered-To fields, trimmed; at most 100, only such as could be an address.
    pub delivered_to: Vec<String>,
}

/// A message of an AUTH exchange, decoded: wiped when dropped, and not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Zeroizing<Vec<u8>>);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What the machine wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send these bytes, all of them, before the next input is offered.
    Send(Vec<u8>),
    /// Question: do the TLS handshake now (the 220 has been given to send); then [`tls_started`](crate::Session::tls_started). If it
    /// fails, [`on_eof`](crate::Session::on_eof).
    StartTls,
    /// Question: the client begins to authenticate; [`answer_auth`](crate::Session::answer_auth).
    AuthBegin {
        /// A mechanism's name in capitals, known to the owner or not.
        mechanism: String,
        /// The client's first message, if it came along.
        initial: Option<Secret>,
    },
    /// Question: the client's answer to a challenge; [`answer_auth`](crate::Session::answer_auth).
    AuthResponse(Secret),
    /// Question: [`answer_mail`](crate::Session::answer_mail).
    Mail(MailFrom),
    /// Question: [`answer_rcpt`](crate::Session::answer_rcpt).
    Rcpt(RcptTo),
    /// Question: [`answer_data_begin`](crate::Session::answer_data_begin).
    DataBegin(Arc<Envelope>),
    /// Next bytes of the message, as they are to be stored. Never empty. [`acknowledge`](crate::Session::acknowledge) them.
    DataChunk(Vec<u8>),
    /// Question: the message is complete; [`answer_data_end`](crate::Session::answer_data_end).
    DataEnd(DataSummary),
    /// Forget the message (and whatever question was open about it). Comes only after an accepted DataBegin, or while one is open.
    DataAbort(AbortReason),
    /// Close the connection. The last output.
    Close(CloseReason),
}

/// A sender, a recipient or a message was refused: what an administrator is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// "sender", "recipient" or "message".
    pub what: &'static str,
    /// The reverse-path.
    pub from: String,
    /// The recipient; of a message that several would have got, how many.
    pub to: String,
    /// What the client was told, on one line.
    pub reply: String,
}

/// How a message fared.
pub type Verdict = Result<Accepted, Refusal>;

/// The server has taken responsibility for the message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accepted {
    /// Text for the reply, such as a queue id.
    pub note: String,
}

/// Answer to the end of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataAnswer {
    /// The same for all recipients.
    All(Verdict),
    /// One for each accepted recipient, in their order (LMTP). In SMTP, where there is one reply, any acceptance gives 250 (RFC
    /// 5321 4.4: "the response to the DATA command MUST be an OK reply"), else the first temporary refusal, else the first.
    Each(Vec<Verdict>),
}

/// Answer to AUTH and to each message of its exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthAnswer {
    /// 334: the exchange goes on.
    Challenge(Vec<u8>),
    /// The exchange is over: the message is no message of the mechanism (501), or there is no such mechanism (504). Counted as an error.
    Broken(Refusal),
    /// 235.
    Accepted,
    /// 535: wrong name or password. Counted.
    Rejected,
    /// 454: could not be found out now.
    Unavailable,
}

/// Counters of a session, for logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Complete command lines.
    pub commands: u32,
    /// Commands since the last accepted message that bring none nearer.
    pub idle_commands: u32,
    /// Protocol errors.
    pub errors: u32,
    /// Accepted MAIL commands.
    pub transactions: u32,
    /// Messages accepted for at least one recipient.
    pub messages: u32,
    /// Recipients refused as unknown.
    pub unknown_recipients: u32,
    /// Failed AUTH attempts.
    pub auth_failures: u32,
    /// Bytes in clear text thrown away behind STARTTLS.
    pub bytes_behind_starttls: u64,
}
