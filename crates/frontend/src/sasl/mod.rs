//! SASL (RFC 4422): the mechanisms, as one machine that every protocol with logins drives.
//!
//! The protocol brings the client's messages, decoded, to an [`Exchange`] and carries out what it wants: a challenge for the client, a call of the
//! service, or the end. How messages are framed (base64 in lines of IMAP, POP3 or SMTP), how an exchange is cancelled and what a refusal looks like is
//! the protocol's affair.
//!
//! Invariants: nothing is offered and nothing begins outside TLS; who is let in proved it to the service, never to this module; what is refused
//! for its channel binding never reaches the service.
//!
//! Reading order: this file, [`plain`] (PLAIN and LOGIN), [`scram`].

mod plain;
mod scram;

use std::net::IpAddr;

use whimbrel_service::api::{AccountId, Call, Failure, Reply};

use crate::session::{Peer, Tls};

/// A message of a client, decoded: names, nonces and a proof or a password fit many times over. Longer ones are refused.
pub const MESSAGE_BYTES_MAX: usize = 4096;

/// A mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// RFC 7677, bound to the connection.
    ScramSha256Plus,
    /// RFC 7677.
    ScramSha256,
    /// RFC 4616.
    Plain,
    /// No RFC.
    Login,
}

impl Mechanism {
    /// Its registered name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.capability().trim_start_matches("AUTH=")
    }

    /// As IMAP announces it (RFC 9051, 6.1.1).
    #[must_use]
    pub fn capability(self) -> &'static str {
        match self {
            Mechanism::ScramSha256Plus => "AUTH=SCRAM-SHA-256-PLUS",
            Mechanism::ScramSha256 => "AUTH=SCRAM-SHA-256",
            Mechanism::Plain => "AUTH=PLAIN",
            Mechanism::Login => "AUTH=LOGIN",
        }
    }
}

/// The connection, as far as mechanisms care.
#[derive(Clone, Copy, Debug)]
pub struct Channel<'a> {
    /// Where the client connects from.
    pub peer: IpAddr,
    /// TLS, if so.
    pub tls: Option<&'a Tls>,
    /// Whether SCRAM is offered at all: `auth.scram_iterations` is not 0.
    pub scram: bool,
}

impl<'a> Channel<'a> {
    /// Of a connection.
    #[must_use]
    pub fn of(peer: &'a Peer, scram: bool) -> Self {
        Channel {
            peer: peer.address,
            tls: peer.tls.as_ref(),
            scram,
        }
    }

    /// The mechanisms to announce, the best first. None in the clear: a password that was sent once is known to who listens.
    #[must_use]
    pub fn mechanisms(&self) -> &'static [Mechanism] {
        use Mechanism::{Login, Plain, ScramSha256, ScramSha256Plus};
        match self.tls {
            None => &[],
            Some(_) if !self.scram => &[Plain, Login],
            Some(tls) if tls.binding.exporter.is_some() => {
                &[ScramSha256Plus, ScramSha256, Plain, Login]
            }
            // TLS 1.2 has no binding that clients use and rustls gives: "tls-unique", which RFC 5802, 6.1 makes the default there, is not to be had.
            Some(_) => &[ScramSha256, Plain, Login],
        }
    }

    /// Their names, divided by spaces, as SMTP and POP3 announce them.
    #[must_use]
    pub fn mechanism_names(&self) -> String {
        let names: Vec<&str> = self.mechanisms().iter().map(|m| m.name()).collect();
        names.join(" ")
    }
}

/// What comes next.
#[derive(Debug)]
pub enum Step {
    /// Send this to the client, and bring the answer to [`Exchange::respond`].
    Challenge(Vec<u8>),
    /// Ask the service, and bring the answer to [`Exchange::reply`].
    Ask(Call),
    /// The client is in.
    Accepted {
        /// As whom.
        account: AccountId,
        /// The account's address.
        login: String,
    },
    /// It is not.
    Refused(Refused),
}

/// Why a client is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The message breaks the syntax of the mechanism.
    Malformed(&'static str),
    /// The client wants to act as somebody else.
    ActsForAnother,
    /// The channel binding is not that of this connection, or was left out although it was offered: somebody may sit between. To be counted
    /// as a wrong login.
    Binding,
    /// What the service said.
    Failed(Failure),
}

impl Refused {
    /// For the metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Refused::Malformed(_) => "malformed",
            Refused::ActsForAnother => "acts for another",
            Refused::Binding => "binding",
            Refused::Failed(Failure::Credentials) => "credentials",
            Refused::Failed(Failure::Throttled) => "throttled",
            Refused::Failed(Failure::InUse) => "in use",
            Refused::Failed(_) => "failure",
        }
    }
}

/// Stands for the mechanism where a command of the protocol's own brings name and password: LOGIN of IMAP, USER and PASS of POP3.
pub const PASSWORD: &str = "PASSWORD";

/// One authentication under way. Holds no password: it goes into the call as soon as it comes.
#[derive(Debug)]
pub struct Exchange {
    mechanism: Mechanism,
    peer: IpAddr,
    state: ExchangeState,
}

#[derive(Debug)]
enum ExchangeState {
    Plain,
    LoginUser,
    LoginPassword(String),
    /// The service checks a password.
    Checking,
    Scram(Box<scram::Scram>),
    Over,
}

impl Exchange {
    /// Begins with a mechanism, named in capitals, and the client's first message if it came along; `None`: it is not among those offered.
    #[must_use]
    pub fn begin(
        mechanism: &str,
        initial: Option<&[u8]>,
        channel: &Channel<'_>,
    ) -> Option<(Self, Step)> {
        let mut offered = channel.mechanisms().iter().copied();
        let mechanism = offered.find(|offered| offered.name() == mechanism)?;
        let state = match mechanism {
            Mechanism::Plain => ExchangeState::Plain,
            Mechanism::Login => ExchangeState::LoginUser,
            Mechanism::ScramSha256 => {
                ExchangeState::Scram(Box::new(scram::Scram::new(false, channel)))
            }
            Mechanism::ScramSha256Plus => {
                ExchangeState::Scram(Box::new(scram::Scram::new(true, channel)))
            }
        };
        let mut exchange = Exchange {
            mechanism,
            peer: channel.peer,
            state,
        };
        let step = match initial {
            Some(initial) => exchange.respond(initial),
            None if matches!(exchange.state, ExchangeState::LoginUser) => {
                Step::Challenge(plain::ASK_USER.to_vec())
            }
            // "If the client does not send an initial response, the server issues an empty challenge" (RFC 4422, 5.1).
            None => Step::Challenge(Vec::new()),
        };
        Some((exchange, step))
    }

    /// By which mechanism.
    #[must_use]
    pub fn mechanism(&self) -> &'static str {
        self.mechanism.name()
    }

    /// A message of the client.
    pub fn respond(&mut self, message: &[u8]) -> Step {
        if message.len() > MESSAGE_BYTES_MAX {
            self.state = ExchangeState::Over;
            return Step::Refused(Refused::Malformed("Message too long"));
        }
        let (state, step) = match std::mem::replace(&mut self.state, ExchangeState::Over) {
            ExchangeState::Plain => match plain::plain(message, self.peer) {
                Ok(call) => (ExchangeState::Checking, Step::Ask(call)),
                Err(refused) => (ExchangeState::Over, Step::Refused(refused)),
            },
            ExchangeState::LoginUser => match plain::name(message) {
                Ok(user) => (
                    ExchangeState::LoginPassword(user),
                    Step::Challenge(plain::ASK_PASSWORD.to_vec()),
                ),
                Err(refused) => (ExchangeState::Over, Step::Refused(refused)),
            },
            ExchangeState::LoginPassword(user) => (
                ExchangeState::Checking,
                Step::Ask(plain::check(user, message, self.peer)),
            ),
            ExchangeState::Scram(mut scram) => {
                let step = scram.respond(message, self.peer);
                (ExchangeState::Scram(scram), step)
            }
            ExchangeState::Checking | ExchangeState::Over => (
                ExchangeState::Over,
                Step::Refused(Refused::Malformed("Unexpected message")),
            ),
        };
        self.state = match step {
            Step::Refused(_) | Step::Accepted { .. } => ExchangeState::Over,
            _ => state,
        };
        step
    }

    /// The answer to [`Step::Ask`].
    pub fn reply(&mut self, reply: Reply) -> Step {
        let step = match (&mut self.state, reply) {
            (_, Reply::Failed(failure)) => Step::Refused(Refused::Failed(failure)),
            (ExchangeState::Checking, Reply::Authenticated { account, login }) => {
                Step::Accepted { account, login }
            }
            (ExchangeState::Scram(scram), reply) => scram.reply(reply),
            _ => Step::Refused(Refused::Failed(Failure::Temporary)),
        };
        if matches!(step, Step::Refused(_) | Step::Accepted { .. }) {
            self.state = ExchangeState::Over;
        }
        step
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
