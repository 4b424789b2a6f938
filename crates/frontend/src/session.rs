//! The shape that all protocol sessions share.
//!
//! A session is a state machine for one connection. The driver gives it bytes, replies, events and time; then it polls
//! until there is no more [`Action`], carrying each out before it polls again. Because output is made only when it is
//! polled for, a client that does not read holds one chunk of memory and no more.

use std::{net::IpAddr, sync::Arc};

use whimbrel_service::{
    api::{AccountId, Call, Event, Reply, SessionId},
    machine::Now,
};
use whimbrel_smtp::{HostName, Role, session::Refused};

/// So long a command goes on whose session ends because nobody may be logged in any more ([`Event::Ended`]): most are done by then, and their client hears why.
pub(crate) const ENDED_MICROS: u64 = 2_000_000;

/// What a session wants done.
#[derive(Debug)]
pub enum Action {
    /// Write these bytes to the client; poll again when the transport has taken them.
    Send(Vec<u8>),
    /// Carry this to the service; the reply comes by [`Session::on_reply`]. One at a time: no other `Call` comes before that.
    Call(Call),
    /// Let others go on first: a slice of long work is done. Then poll again.
    Yield,
    /// Nobody is logged in any more: the connection is a stranger's again.
    LoggedOut,
    /// Start the TLS handshake, after all bytes sent before have gone out in clear; then [`Session::on_tls`].
    StartTls,
    /// Another session goes on in this one's place, which has nothing more to say: as [`Session::relay`] wants it.
    HandOver(Box<Handover>),
    /// Write a line to the log and count it.
    Note(Note),
    /// Flush what was sent, then close.
    Close,
}

/// A line for the log. Holds no secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A command was carried out: its name, for the metrics, and how many microseconds it took from when it was whole to when its answer was.
    Command(&'static str, u64),
    /// The client logged in.
    LoggedIn {
        /// The account's address.
        login: String,
        /// By which mechanism, as [`crate::sasl::Mechanism::name`]; `PASSWORD` for a command of the protocol's own.
        mechanism: &'static str,
    },
    /// The client did not: by which mechanism, and why, in a word for the metrics.
    NotLoggedIn {
        /// As in [`Note::LoggedIn`].
        mechanism: &'static str,
        /// As [`crate::sasl::Refused::word`].
        why: &'static str,
    },
    /// The client broke the protocol in this way.
    ProtocolError(&'static str),
    /// A transaction was accepted: entry id in hexadecimal, bytes, recipients.
    Accepted {
        /// Hexadecimal entry id.
        entry: String,
        /// Size of the body as received.
        bytes: u64,
        /// How many accounts receive it.
        deliveries: usize,
    },
    /// A sender, a recipient or a message was refused.
    Refused(Refused),
    /// Why the session ended.
    Closed(&'static str),
}

/// A session in which somebody has just logged in, or is about to send a message, for who goes on with it.
#[derive(Debug)]
pub struct Handover {
    /// Who logged in; nobody, where mail comes from strangers.
    pub account: Option<AccountId>,
    /// What is known of the connection.
    pub peer: Peer,
    /// What the next session has to know.
    pub at: Resume,
    /// What the client has sent behind its login; its MAIL, and what is behind that.
    pub rest: Vec<u8>,
}

/// Where a session goes on. Of IMAP and POP3 the login was verified, and is still to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// IMAP.
    Imap {
        /// Of the command that logged in.
        tag: String,
    },
    /// POP3.
    Pop3 {
        /// That the user name carried; empty: INBOX.
        mailbox: String,
        /// UTF8 was given (RFC 6856).
        utf8: bool,
    },
    /// SMTP, LMTP or submission: the client's MAIL comes next.
    Mail {
        /// Which of them.
        role: Role,
        /// The name in HELO, EHLO or LHLO.
        helo: HostName,
        /// Whether it was HELO.
        basic: bool,
    },
}

/// What is known of the connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The driver's name for the session.
    pub session: SessionId,
    /// The client's address.
    pub address: IpAddr,
    /// TLS from the first byte, if any.
    pub tls: Option<Tls>,
}

/// What was negotiated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// `TLSv1.3`
    pub version: &'static str,
    /// `TLS_AES_256_GCM_SHA384`
    pub cipher: String,
    /// What a login can be bound to.
    pub binding: Binding,
}

/// Channel bindings (RFC 5056) of a TLS connection: what both ends know of it and nobody between them can have, too.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Binding {
    /// "tls-exporter" (RFC 9266): of TLS 1.3 only.
    pub exporter: Option<Box<[u8; 32]>>,
    /// "tls-server-end-point" (RFC 5929, 4): a hash of our certificate. Absent where the RFC defines none.
    pub end_point: Option<Arc<[u8]>>,
}

impl std::fmt::Debug for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Binding").finish_non_exhaustive()
    }
}

/// One connection's machine.
pub trait Session {
    /// Bytes from the client. Only while [`Session::wants_input`].
    fn on_bytes(&mut self, now: Now, bytes: &[u8]);
    /// The client has closed its side, cleanly or not. Also when TLS was cut without a close alert.
    fn on_eof(&mut self, now: Now);
    /// The reply to the last [`Action::Call`].
    fn on_reply(&mut self, now: Now, reply: Reply);
    /// Something happened elsewhere.
    fn on_event(&mut self, now: Now, event: Event);
    /// The handshake asked for by [`Action::StartTls`] is done.
    fn on_tls(&mut self, now: Now, tls: Tls);
    /// [`Session::deadline`] has come.
    fn on_time(&mut self, now: Now);
    /// When the session wants [`Session::on_time`], in microseconds of the monotonic clock.
    fn deadline(&self) -> Option<u64>;
    /// Whether bytes may be given now. While it is false the driver leaves them in the socket.
    fn wants_input(&self) -> bool;
    /// Another node may have to serve who logs in, or take the mail: the login is not answered, or MAIL, but given out as [`Action::HandOver`]. Where a
    /// session does not do that, it goes on.
    fn relay(&mut self) {}
    /// Whether the client can be told something now that it has not asked for, by bytes that nothing was done to.
    fn may_be_told(&self) -> bool {
        false
    }
    /// Memory is short: drops what was read for its client and not yet used; it asks for that again. Not while content rows are asked for.
    fn shed(&mut self) {}
    /// The next thing to do.
    fn poll(&mut self, now: Now) -> Option<Action>;
}
