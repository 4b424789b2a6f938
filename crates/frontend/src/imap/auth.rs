//! LOGIN and AUTHENTICATE PLAIN and LOGIN (RFC 9051, 6.2.2 and 6.2.3; RFC 4616; RFC 4959).
//!
//! None of them is accepted in the clear, over loopback neither: a password that was sent once is known to who listens.

use whimbrel_imap::{
    SaslReply,
    core::Secret,
    encode::{self, Code},
};
use whimbrel_service::api::{Authenticate, Call, Failure, Reply};
use zeroize::Zeroizing;

use super::{
    context::Context,
    task::{EndCode, Expect, Outcome, Step, Task, Wake},
};
use crate::session::Note;

/// A login under way.
pub(super) enum Login {
    /// AUTHENTICATE PLAIN waits for its one message.
    Plain,
    /// AUTHENTICATE LOGIN waits for the name.
    User,
    /// AUTHENTICATE LOGIN waits for the password.
    Password(String),
    /// All is known.
    Ready(String, Secret),
    /// The directory is asked.
    Asked,
}

/// Begins AUTHENTICATE.
pub(super) fn authenticate(mechanism: &str, initial: Option<Secret>) -> Result<Login, Outcome> {
    let login = match mechanism {
        "PLAIN" => Login::Plain,
        "LOGIN" => Login::User,
        _ => {
            return Err(Outcome::no(
                Code::Cannot,
                "No such authentication mechanism",
            ));
        }
    };
    match initial {
        None => Ok(login),
        Some(initial) => login.take(initial),
    }
}

impl Login {
    /// Takes a message of the client.
    fn take(self, message: Secret) -> Result<Login, Outcome> {
        match self {
            Login::Plain => plain(&message),
            Login::User => Ok(Login::Password(text(message.expose())?)),
            Login::Password(user) => Ok(Login::Ready(user, message)),
            Login::Ready(..) | Login::Asked => Err(Outcome::bad("Unexpected line")),
        }
    }

    /// Asks for what is missing, or the directory.
    fn next(&mut self, cx: &mut Context) -> Step {
        match std::mem::replace(self, Login::Asked) {
            Login::Ready(login, password) => {
                let password = Zeroizing::new(password.expose().to_vec());
                Step::Call(Call::Authenticate(Authenticate {
                    login,
                    password,
                    peer: cx.address,
                }))
            }
            waiting => {
                let challenge: &[u8] = match &waiting {
                    Login::User => b"User Name\0",
                    Login::Password(_) => b"Password\0",
                    _ => b"",
                };
                encode::sasl_continuation(&mut cx.out, challenge);
                *self = waiting;
                Step::Input(Expect::Sasl)
            }
        }
    }
}

impl Task for Login {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match wake {
            Wake::Go => self.next(cx),
            Wake::Sasl(SaslReply::Data(message)) => {
                match std::mem::replace(self, Login::Asked).take(message) {
                    Ok(login) => {
                        *self = login;
                        self.next(cx)
                    }
                    Err(outcome) => Step::Done(outcome),
                }
            }
            // "If the server receives such a response, or if it receives an invalid base64 string [...], it MUST reject the AUTHENTICATE
            // command by sending a tagged BAD response" (RFC 9051, 6.2.2).
            Wake::Sasl(SaslReply::Cancel) => Step::Done(Outcome::bad("Authentication cancelled")),
            Wake::Broken(text) => Step::Done(Outcome::bad(text)),
            Wake::Reply(reply) => Step::Done(finish(cx, reply)),
            _ => Step::Done(Outcome::bug()),
        }
    }
}

fn finish(cx: &mut Context, reply: Reply) -> Outcome {
    match reply {
        Reply::Authenticated { account, login } => {
            cx.account = Some(account);
            cx.notes.push_back(Note::LoggedIn(login));
            Outcome::ok_code(EndCode::Capability, "Logged in")
        }
        Reply::Failed(failure) => {
            let mut outcome = Outcome::failed(failure);
            if failure == Failure::Credentials {
                cx.login_failures += 1;
                if cx.login_failures >= cx.limits.login_failures_max {
                    outcome.close = Some("too many wrong logins");
                }
            }
            outcome
        }
        reply => Outcome::of_reply(reply),
    }
}

/// `[authzid] NUL authcid NUL passwd` (RFC 4616, 2).
fn plain(message: &Secret) -> Result<Login, Outcome> {
    let mut parts = message.expose().split(|&b| b == 0);
    let (Some(acts_for), Some(user), Some(password), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Outcome::bad("Invalid PLAIN message"));
    };
    let user = text(user)?;
    // Nobody may act for another one.
    if !acts_for.is_empty() && !acts_for.eq_ignore_ascii_case(user.as_bytes()) {
        return Err(Outcome::no(
            Code::AuthorizationFailed,
            "Acting for others is not possible",
        ));
    }
    Ok(Login::Ready(user, Secret::new(password.to_vec())))
}

fn text(bytes: &[u8]) -> Result<String, Outcome> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && !text.contains('\0') => Ok(text.to_owned()),
        _ => Err(Outcome::bad("Invalid login name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(message: &[u8], expected: Option<(&str, &[u8])>) {
        let login = plain(&Secret::new(message.to_vec())).ok();
        let found = login.as_ref().map(|login| match login {
            Login::Ready(user, password) => (user.as_str(), password.expose()),
            _ => panic!("not ready"),
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn plain_messages() {
        check(b"\0anne\0secret", Some(("anne", b"secret")));
        check(b"anne\0anne\0secret", Some(("anne", b"secret")));
        check(b"bob\0anne\0secret", None);
        check(b"\0anne", None);
        check(b"\0anne\0a\0b", None);
        check(b"\0\0secret", None);
        check(b"\0\xff\0secret", None);
        check(b"", None);
        check(b"\0anne\0", Some(("anne", b"")));
    }
}
