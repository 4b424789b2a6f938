//! From the greeting to the first `Ready`: EHLO, STARTTLS, AUTH.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::{Awaited, Client, ClientError, ClientOutput, ClientState, Offers, Stage, StartTls};
use crate::Time;
use crate::reply::{Refusal, Reply};

/// RFC 5321 4.5.3.1.4, without CRLF. RFC 4954 4: an initial response that makes the line longer is not sent with the command.
const COMMAND_BYTES_MAX: usize = 510;

/// What of AUTH was sent last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoginStep {
    /// `AUTH PLAIN` alone.
    Plain,
    /// `AUTH LOGIN`.
    Login,
    /// The name for LOGIN.
    Name,
    /// All.
    Last,
}

impl Client {
    /// Answer to [`ClientOutput::StartTls`].
    ///
    /// # Panics
    /// If it was not asked for.
    pub fn tls_started(&mut self, now: Time) {
        if self.state == ClientState::Closed {
            return;
        }
        assert_eq!(
            self.state,
            ClientState::Handshake,
            "no handshake was asked for"
        );
        self.since = self.since.max(now);
        self.tls = true;
        // RFC 3207 4.2: "The client MUST discard any knowledge obtained from the server, such as the list of SMTP service extensions".
        self.offers = Arc::default();
        self.state = ClientState::Opening;
        self.hello();
    }

    pub(super) fn opening_reply(
        &mut self,
        stage: Stage,
        awaited: Awaited,
        result: Result<Reply, Refusal>,
    ) {
        match (awaited, result) {
            (Awaited::Greeting, Ok(_)) => self.hello(),
            (Awaited::Hello, Ok(reply)) => {
                self.offers = Arc::new(Offers::parse(&reply));
                self.greeted();
            }
            // RFC 5321 3.2: "the client SHOULD be able to fall back and send HELO". LMTP has none (RFC 2033 4.1).
            (Awaited::Hello, Err(refusal)) if !refusal.is_temporary() && !self.config.lmtp => {
                let line = format!("HELO {}", self.config.name);
                self.command(&line, Awaited::BasicHello);
            }
            (Awaited::BasicHello, Ok(_)) => self.greeted(),
            (Awaited::StartTls, Ok(_)) => {
                self.state = ClientState::Handshake;
                self.outputs.push_back(ClientOutput::StartTls);
            }
            (Awaited::StartTls, Err(refusal)) if self.config.starttls != StartTls::Require => {
                self.outputs
                    .push_back(ClientOutput::StartTlsRefused(refusal));
                self.log_in();
            }
            (Awaited::Auth(step), Ok(reply)) if !reply.is_positive() => self.log_in_on(stage, step),
            (Awaited::Auth(LoginStep::Last), Ok(_)) => self.ready(),
            (Awaited::Auth(_), Ok(_)) => {
                let error = "AUTH is accepted before the password";
                self.fail(stage, ClientError::InvalidReply(error));
            }
            (_, Ok(_)) => unreachable!("the caller takes the other replies"),
            (_, Err(refusal)) => self.fail(stage, ClientError::Refused(refusal)),
        }
    }

    fn hello(&mut self) {
        let verb = if self.config.lmtp { "LHLO" } else { "EHLO" };
        let line = format!("{verb} {}", self.config.name);
        self.command(&line, Awaited::Hello);
    }

    fn greeted(&mut self) {
        let wanted = !self.tls && self.config.starttls != StartTls::Never;
        if wanted && self.offers.starttls {
            self.command("STARTTLS", Awaited::StartTls);
        } else if wanted && self.config.starttls == StartTls::Require {
            self.fail(Stage::StartTls, ClientError::NoStartTls);
        } else {
            self.log_in();
        }
    }

    fn log_in(&mut self) {
        let Some(login) = &self.config.login else {
            return self.ready();
        };
        let offered = |name: &str| self.tls && self.offers.auth.iter().any(|known| known == name);
        if offered("PLAIN") {
            let message = Zeroizing::new(STANDARD.encode(login.plain()));
            let line = Zeroizing::new(format!("AUTH PLAIN {}", *message));
            if line.len() <= COMMAND_BYTES_MAX {
                self.command(&line, Awaited::Auth(LoginStep::Last));
            } else {
                self.command("AUTH PLAIN", Awaited::Auth(LoginStep::Plain));
            }
        } else if offered("LOGIN") {
            self.command("AUTH LOGIN", Awaited::Auth(LoginStep::Login));
        } else {
            self.fail(Stage::Auth, ClientError::NoAuth);
        }
    }

    /// 334. What it asks is not looked at: servers word the questions of LOGIN as they like, always in this order.
    fn log_in_on(&mut self, stage: Stage, step: LoginStep) {
        let Some(login) = &self.config.login else {
            unreachable!("AUTH was sent");
        };
        let (message, next) = match step {
            LoginStep::Plain => (STANDARD.encode(login.plain()), LoginStep::Last),
            LoginStep::Login => (STANDARD.encode(login.name()), LoginStep::Name),
            LoginStep::Name => (STANDARD.encode(login.password()), LoginStep::Last),
            LoginStep::Last => {
                let error = "AUTH goes on after the password";
                return self.fail(stage, ClientError::InvalidReply(error));
            }
        };
        let message = Zeroizing::new(message);
        self.command(&message, Awaited::Auth(next));
    }
}
