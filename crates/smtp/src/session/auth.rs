//! AUTH (RFC 4954) in submission: the frame of an exchange. The mechanisms are the owner's affair, one exchange at a time.
//!
//! Lines of an exchange may hold a password: they are wiped from the buffer as soon as they are read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::{AbortReason, AuthAnswer, CloseReason, Mode, Output, Question, Role, Secret, Session};
use crate::Time;
use crate::reply::{Enhanced, Refusal, Reply};

impl Session {
    /// Which mechanisms are offered from now on, as names divided by spaces; none of them: no AUTH. To be told at the start and after the
    /// handshake.
    pub fn offer_auth(&mut self, mechanisms: String) {
        self.mechanisms = mechanisms;
    }

    pub(super) fn auth_offered(&self) -> bool {
        self.role == Role::Submission
            && !self.authenticated
            && !self.mechanisms.is_empty()
            && (self.peer.tls.is_some() || self.config.auth_without_tls)
    }

    pub(super) fn auth(&mut self, mechanism: String, initial: Option<String>) {
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
            let initial = match initial.as_deref().map(String::as_str) {
                None => None,
                // RFC 4954 4: "If the client is transmitting an initial response of zero length, it MUST instead transmit [...] a single equals sign".
                Some("=") => Some(Secret(Zeroizing::default())),
                Some(text) => match decode(text.as_bytes()) {
                    Some(message) => Some(message),
                    None => return self.fail(&invalid_base64()),
                },
            };
            return self.ask(Question::Auth, Output::AuthBegin { mechanism, initial });
        };
        self.fail(&refusal);
    }

    /// A line of an exchange is at the head of the buffer.
    pub(super) fn auth_line(&mut self, length: usize) {
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
            match decode(&line) {
                Some(message) => self.ask(Question::Auth, Output::AuthResponse(message)),
                None => self.fail(&invalid_base64()),
            }
        }
    }

    /// Answer to [`Output::AuthBegin`] and [`Output::AuthResponse`].
    pub fn answer_auth(&mut self, now: Time, answer: AuthAnswer) {
        self.advance(now);
        if self
            .take_question(|q| matches!(q, Question::Auth))
            .is_none()
        {
            return;
        }
        match answer {
            AuthAnswer::Challenge(challenge) => {
                self.reply(&Reply::new(334, None, &STANDARD.encode(challenge)));
                self.mode = Mode::Auth;
            }
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
            AuthAnswer::Broken(refusal) => self.fail(&refusal),
        }
        self.go_on();
    }
}

fn invalid_base64() -> Refusal {
    Refusal::new(501, Enhanced(5, 2), "Invalid base64")
}

fn decode(text: &[u8]) -> Option<Secret> {
    // Of its final size at once: what a growing buffer leaves behind would not be wiped.
    let mut message = Zeroizing::new(vec![0; base64::decoded_len_estimate(text.len())]);
    let length = STANDARD.decode_slice(text, &mut message).ok()?;
    message.truncate(length);
    Some(Secret(message))
}
