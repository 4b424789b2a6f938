//! USER and PASS (RFC 1939, 7), AUTH PLAIN and LOGIN (RFC 5034, RFC 4616), and the opening of the maildrop.
//!
//! None of them is accepted in the clear, over loopback neither: a password that was sent once is known to who listens.

use whimbrel_pop3::{
    SaslReply, Secret,
    command::Auth,
    encode::{self, Code},
};
use whimbrel_service::api::{
    AccountId, Authenticate, Call, Failure, MailboxCall, MailboxName, Reply,
};

use super::{
    context::Context,
    maildrop::Maildrop,
    task::{Step, failed},
};
use crate::session::Note;

/// The mechanisms of AUTH, as CAPA tells them.
pub(super) const MECHANISMS: &[&str] = &["PLAIN", "LOGIN"];

/// A login under way.
pub(super) struct Login {
    state: State,
    /// The mailbox that the user name carried.
    mailbox: String,
}

enum State {
    /// AUTH PLAIN waits for its one message.
    Plain,
    /// AUTH LOGIN waits for the name.
    User,
    /// AUTH LOGIN waits for the password.
    Password(String),
    /// All is known.
    Ready(String, Secret),
    /// The directory is asked.
    Asked,
}

/// Why an exchange ends: what the client is told.
struct Refused(Option<Code>, &'static str);

const INVALID: Refused = Refused(None, "Invalid authentication message");

impl Login {
    /// PASS after USER.
    pub(super) fn user_pass(user: String, password: Secret) -> Login {
        Login {
            state: State::Ready(user, password),
            mailbox: String::new(),
        }
    }

    /// AUTH; `None` after the refusal was written.
    pub(super) fn auth(cx: &mut Context, auth: Auth) -> Option<Login> {
        let state = match auth.mechanism.as_str() {
            "PLAIN" => State::Plain,
            "LOGIN" => State::User,
            _ => {
                encode::err(&mut cx.out, None, "No such authentication mechanism");
                return None;
            }
        };
        let mut login = Login {
            state,
            mailbox: String::new(),
        };
        match auth.initial.map(|initial| login.take(initial)) {
            None | Some(Ok(())) => Some(login),
            Some(Err(Refused(code, text))) => {
                encode::err(&mut cx.out, code, text);
                None
            }
        }
    }

    /// Takes a message of the client.
    fn take(&mut self, message: Secret) -> Result<(), Refused> {
        self.state = match std::mem::replace(&mut self.state, State::Asked) {
            State::Plain => plain(&message)?,
            State::User => State::Password(text(message.expose())?),
            State::Password(user) => State::Ready(user, message),
            State::Ready(..) | State::Asked => return Err(INVALID),
        };
        Ok(())
    }

    /// A line of the client within AUTH.
    pub(super) fn sasl(&mut self, cx: &mut Context, reply: SaslReply) -> Step {
        let taken = match reply {
            SaslReply::Data(message) => self.take(message),
            // RFC 5034, 4: an AUTH that the client cancels is rejected.
            SaslReply::Cancel => Err(Refused(None, "Authentication cancelled")),
            SaslReply::Invalid => Err(INVALID),
        };
        match taken {
            Ok(()) => self.step(cx, None),
            Err(Refused(code, text)) => {
                encode::err(&mut cx.out, code, text);
                Step::Done
            }
        }
    }

    pub(super) fn step(&mut self, cx: &mut Context, reply: Option<Reply>) -> Step {
        if let Some(reply) = reply {
            return self.answered(cx, reply);
        }
        match std::mem::replace(&mut self.state, State::Asked) {
            State::Ready(user, password) => {
                let (login, mailbox) = split(&user);
                self.mailbox = mailbox.to_owned();
                Step::Call(Call::Authenticate(Authenticate {
                    login: login.to_owned(),
                    password: password.into_inner(),
                    peer: cx.address,
                }))
            }
            waiting => {
                let challenge: &[u8] = match &waiting {
                    State::User => b"User Name\0",
                    State::Password(_) => b"Password\0",
                    _ => b"",
                };
                encode::challenge(&mut cx.out, challenge);
                self.state = waiting;
                Step::Sasl
            }
        }
    }

    fn answered(&mut self, cx: &mut Context, reply: Reply) -> Step {
        match reply {
            Reply::Authenticated { account, login } => {
                cx.notes.push_back(Note::LoggedIn(login));
                let mailbox = if self.mailbox.is_empty() {
                    Some(MailboxName::inbox())
                } else {
                    MailboxName::new(&self.mailbox).ok()
                };
                match mailbox {
                    Some(mailbox) => Step::Open(Box::new(Open::new(account, mailbox))),
                    None => refuse(cx, &Reply::Failed(Failure::NoSuchMailbox)),
                }
            }
            reply => refuse(cx, &reply),
        }
    }
}

/// A login that failed; the client may try again, so many times.
fn refuse(cx: &mut Context, reply: &Reply) -> Step {
    let step = failed(cx, reply);
    if matches!(
        reply,
        Reply::Failed(Failure::Credentials | Failure::NoSuchMailbox)
    ) {
        cx.login_failures += 1;
        if cx.login_failures >= cx.limits.login_failures_max {
            return Step::Close("too many wrong logins");
        }
    }
    step
}

/// Opens the maildrop: from the AUTHORIZATION to the TRANSACTION state.
///
/// The mailbox is looked at once and not watched: who asks by POP3 sees what there was, and holds nothing of the account in memory.
pub(super) struct Open {
    account: AccountId,
    mailbox: MailboxName,
    maildrop: Option<Box<Maildrop>>,
}

impl Open {
    fn new(account: AccountId, mailbox: MailboxName) -> Open {
        Open {
            account,
            mailbox,
            maildrop: None,
        }
    }

    pub(super) fn step(&mut self, cx: &mut Context, reply: Option<Reply>) -> Step {
        let session = cx.session;
        let account = self.account;
        let call = |call| Step::Call(Call::Mailbox { account, call });
        match (reply, self.maildrop.take()) {
            (None, _) => call(MailboxCall::Select {
                session,
                name: self.mailbox.clone(),
                read_only: false,
            }),
            (Some(Reply::Selected(selected)), None) => {
                let name = self.mailbox.clone();
                self.maildrop = Some(Box::new(Maildrop::new(account, name, selected)));
                call(MailboxCall::Unselect { session })
            }
            (Some(Reply::Done), Some(maildrop)) => {
                cx.maildrop = Some(maildrop);
                encode::ok(&mut cx.out, "Logged in");
                Step::Done
            }
            (Some(reply), _) => refuse(cx, &reply),
        }
    }
}

/// `anne@example.org|Archive`: who logs in, and which mailbox is the maildrop (none: INBOX). The mailbox begins behind the first `|` after
/// the `@`, since a local part may have one of its own; without an `@`, behind the first `|`.
fn split(user: &str) -> (&str, &str) {
    let from = user.find('@').unwrap_or(0);
    match user[from..].find('|') {
        Some(bar) => (&user[..from + bar], &user[from + bar + 1..]),
        None => (user, ""),
    }
}

/// `[authzid] NUL authcid NUL passwd` (RFC 4616, 2).
fn plain(message: &Secret) -> Result<State, Refused> {
    let mut parts = message.expose().split(|&b| b == 0);
    let (Some(acts_for), Some(user), Some(password), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(INVALID);
    };
    let user = text(user)?;
    // Nobody may act for another one.
    if !acts_for.is_empty() && !acts_for.eq_ignore_ascii_case(user.as_bytes()) {
        return Err(Refused(
            Some(Code::Auth),
            "Acting for others is not possible",
        ));
    }
    Ok(State::Ready(user, Secret::new(password.to_vec())))
}

fn text(bytes: &[u8]) -> Result<String, Refused> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && !text.contains('\0') => Ok(text.to_owned()),
        _ => Err(INVALID),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_carry_a_mailbox() {
        let check = |user, expected| assert_eq!(split(user), expected);
        check("anne", ("anne", ""));
        check("anne|Archive", ("anne", "Archive"));
        check("anne@example.org", ("anne@example.org", ""));
        check("anne@example.org|Archive", ("anne@example.org", "Archive"));
        check("anne@example.org|a|b@c", ("anne@example.org", "a|b@c"));
        check("a|b@example.org", ("a|b@example.org", ""));
        check("a|b@example.org|Sent", ("a|b@example.org", "Sent"));
        check("änne@ö.example|Ü", ("änne@ö.example", "Ü"));
        check("anne@example.org|", ("anne@example.org", ""));
        check("|x", ("", "x"));
        check("", ("", ""));
    }

    #[test]
    fn plain_messages() {
        let check = |message: &[u8], expected: Option<(&str, &[u8])>| {
            let login = plain(&Secret::new(message.to_vec())).ok();
            let found = login.as_ref().map(|state| match state {
                State::Ready(user, password) => (user.as_str(), password.expose()),
                _ => panic!("not ready"),
            });
            assert_eq!(found, expected);
        };
        check(b"\0anne\0secret", Some(("anne", b"secret")));
        check(b"anne\0anne\0secret", Some(("anne", b"secret")));
        check(b"bob\0anne\0secret", None);
        check(b"\0anne", None);
        check(b"\0anne\0a\0b", None);
        check(b"\0\0secret", None);
        check(b"\0\xff\0secret", None);
        check(b"", None);
    }
}
