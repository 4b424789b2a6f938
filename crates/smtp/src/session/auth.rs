//! AUTH (RFC 4954) in submission: PLAIN (RFC 4616) and LOGIN, one exchange at a time.
//!
//! Lines with a password are wiped from the buffer as soon as they are read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::{
    AbortReason, AuthAnswer, CloseReason, Credentials, Mode, Output, Question, Role, Session,
};
use crate::Time;
use crate::reply::{Enhanced, Refusal, Reply};

/// RFC 4616 2: names and password each of 1 to 255 octets.
const NAME_BYTES_MAX: usize = 255;

/// What the client's next line is.
#[derive(Debug)]
pub(super) enum Exchange {
    Plain,
    LoginUser,
    LoginPassword(String),
}

impl Session {
    pub(super) fn auth_offered(&self) -> bool {
        self.role == Role::Submission
            && !self.authenticated
            && (self.peer.tls.is_some() || self.config.auth_without_tls)
    }

    pub(super) fn auth(&mut self, mechanism: &str, initial: Option<String>) {
        let initial = initial.map(Zeroizing::new);
        let extended = matches!(&self.hello, Some((_, false)));
        let refusal = if self.role != Role::Submission {
            Refusal::new(502, Enhanced(5, 1), "AUTH not available")
        } else if !extended || self.authenticated || self.transaction.is_some() {
            // RFC 4954 4: not before EHLO, not twice, not within a transaction.
            Refusal::new(503, Enhanced(5, 1), "AUTH not allowed now")
        } else if !self.auth_offered() {
            Refusal::new(
                538,
                Enhanced(7, 11),
                "Encryption required for authentication",
            )
        } else {
            let exchange = match mechanism {
                "PLAIN" => Exchange::Plain,
                "LOGIN" => Exchange::LoginUser,
                _ => {
                    self.fail(&Refusal::new(
                        504,
                        Enhanced(5, 4),
                        "Mechanism not supported",
                    ));
                    return;
                }
            };
            match (initial.as_deref().map(String::as_str), exchange) {
                (Some("="), exchange) => self.auth_response(exchange, b""),
                (Some(initial), exchange) => self.auth_response(exchange, initial.as_bytes()),
                (None, Exchange::Plain) => self.challenge(Exchange::Plain, ""),
                (None, exchange) => self.challenge(exchange, "Username:"),
            }
            return;
        };
        self.fail(&refusal);
    }

    fn challenge(&mut self, next: Exchange, text: &str) {
        self.reply(&Reply::new(334, None, &STANDARD.encode(text)));
        self.mode = Mode::Auth(next);
    }

    /// A line of an exchange is at the head of the buffer.
    pub(super) fn auth_line(&mut self, exchange: Exchange, length: usize) {
        self.count_command();
        let line = Zeroizing::new(self.buffer.unread()[..length].to_vec());
        self.buffer.wipe(length + 2);
        // RFC 4954 4: a line with nothing but an asterisk cancels the exchange, and is answered by 501.
        if line.as_slice() == b"*" {
            self.fail(&Refusal::new(
                501,
                Enhanced(0, 0),
                "Authentication cancelled",
            ));
        } else {
            self.auth_response(exchange, &line);
        }
    }

    fn auth_response(&mut self, exchange: Exchange, line: &[u8]) {
        let Ok(response) = STANDARD.decode(line).map(Zeroizing::new) else {
            self.fail(&Refusal::new(501, Enhanced(5, 2), "Invalid base64"));
            return;
        };
        let credentials = match exchange {
            Exchange::Plain => plain(&response),
            Exchange::LoginUser => match name(&response) {
                Some(user) => {
                    self.challenge(Exchange::LoginPassword(user.to_owned()), "Password:");
                    return;
                }
                None => None,
            },
            Exchange::LoginPassword(user) => name(&response).map(|password| Credentials {
                authorization: None,
                user,
                password: Zeroizing::new(password.to_owned()),
            }),
        };
        match credentials {
            Some(credentials) => self.ask(Question::Auth, Output::Auth(credentials)),
            None => self.fail(&Refusal::new(501, Enhanced(5, 2), "Malformed credentials")),
        }
    }

    /// Answer to [`Output::Auth`].
    pub fn answer_auth(&mut self, now: Time, answer: AuthAnswer) {
        self.advance(now);
        if self
            .take_question(|q| matches!(q, Question::Auth))
            .is_none()
        {
            return;
        }
        match answer {
            AuthAnswer::Accepted => {
                self.authenticated = true;
                self.say(235, Enhanced(7, 0), "Authentication succeeded");
            }
            AuthAnswer::Rejected => {
                self.say(535, Enhanced(7, 8), "Authentication credentials invalid");
                self.counters.auth_failures += 1;
                if self.counters.auth_failures >= self.config.limits.auth_failures_max {
                    let refusal =
                        Refusal::new(421, Enhanced(7, 0), "Too many failed authentications");
                    self.close_with(
                        &refusal,
                        CloseReason::TooManyAuthFailures,
                        AbortReason::Protocol,
                    );
                }
            }
            AuthAnswer::Unavailable => {
                self.say(454, Enhanced(7, 0), "Temporary authentication failure")
            }
        }
        self.go_on();
    }
}

fn name(bytes: &[u8]) -> Option<&str> {
    let text = core::str::from_utf8(bytes).ok()?;
    (!text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.contains('\0')).then_some(text)
}

/// `message = [authzid] UTF8NUL authcid UTF8NUL passwd`
fn plain(response: &[u8]) -> Option<Credentials> {
    let mut parts = response.splitn(3, |&b| b == 0);
    let (authorization, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    let authorization = match authorization {
        b"" => None,
        given => Some(name(given)?.to_owned()),
    };
    Some(Credentials {
        authorization,
        user: name(user)?.to_owned(),
        password: Zeroizing::new(name(password)?.to_owned()),
    })
}
