//! The server's session machine for SMTP, LMTP and submission.
//!
//! `input(now, bytes)` in any split, `poll()` until `None`, answers by `answer_*`. While a question is open no further command
//! is read: pipelined bytes wait in a bounded buffer and [`Session::wants_input`] is false.

mod types;

pub use types::*;

use std::sync::Arc;

use crate::{Refusal, Time};

/// One connection's session.
#[derive(Debug)]
pub struct Session {
    role: Role,
    config: Arc<Config>,
    peer: Peer,
    now: Time,
}

impl Session {
    /// A session on a fresh connection. With `peer.tls` set (implicit TLS) STARTTLS is not offered.
    #[must_use]
    pub fn new(role: Role, config: Arc<Config>, peer: Peer, now: Time) -> Self {
        Session {
            role,
            config,
            peer,
            now,
        }
    }

    /// Next output; `None`: nothing to do before the next call. Questions come before held replies, so that an owner who answers at
    /// once gets one `Send` for many commands; an owner who cannot answer yet polls again, which gives the replies so far.
    pub fn poll(&mut self) -> Option<Output> {
        None
    }

    /// Takes bytes from the connection; returns how many were taken: at most [`Session::input_room`].
    #[must_use = "bytes that were not taken must be offered again"]
    pub fn input(&mut self, now: Time, bytes: &[u8]) -> usize {
        self.now = now;
        bytes.len()
    }

    /// How many bytes [`Session::input`] would take now. 0: do not read the connection.
    #[must_use]
    pub fn input_room(&self) -> usize {
        self.config.limits.input_buffer_bytes_max
    }

    /// Whether the driver should read the connection.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.input_room() > 0
    }

    /// The client closed its side, TLS was shut down, or the connection broke. What was begun is aborted; bytes not yet read by
    /// the machine are thrown away.
    pub fn on_eof(&mut self, now: Time) {
        self.now = now;
    }

    /// The server is going down: 421 when no message is in transfer, else when it is done.
    pub fn shut_down(&mut self, now: Time) {
        self.now = now;
    }

    /// Answer to [`Output::StartTls`]: the handshake is done.
    pub fn tls_started(&mut self, now: Time, tls: TlsInfo) {
        self.now = now;
        self.peer.tls = Some(tls);
    }

    /// Answer to [`Output::Mail`].
    pub fn answer_mail(&mut self, now: Time, answer: Result<(), Refusal>) {
        let _ = answer;
        self.now = now;
    }

    /// Answer to [`Output::Rcpt`].
    pub fn answer_rcpt(&mut self, now: Time, answer: Result<(), Refusal>) {
        let _ = answer;
        self.now = now;
    }

    /// Answer to [`Output::DataBegin`].
    pub fn answer_data_begin(&mut self, now: Time, answer: Result<(), Refusal>) {
        let _ = answer;
        self.now = now;
    }

    /// `bytes` of the chunks given so far have been dealt with.
    pub fn acknowledge(&mut self, now: Time, bytes: usize) {
        let _ = bytes;
        self.now = now;
    }

    /// Answer to [`Output::DataEnd`].
    pub fn answer_data_end(&mut self, now: Time, answer: DataAnswer) {
        let _ = answer;
        self.now = now;
    }

    /// Answer to [`Output::Auth`].
    pub fn answer_auth(&mut self, now: Time, answer: AuthAnswer) {
        let _ = answer;
        self.now = now;
    }

    /// When [`Session::on_time`] wants to be called, if nothing else happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        None
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: Time) {
        self.now = now;
    }

    /// What this session was created as.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }
}
