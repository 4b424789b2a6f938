//! USER and PASS (RFC 1939, 7), AUTH (RFC 5034), and the opening of the maildrop. The mechanisms are in [`crate::sasl`].
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
    step::{Step, failed},
};
use crate::{
    sasl::{self, Exchange, Refused},
    session::Note,
};

/// A login under way.
pub(super) struct Login {
    how: How,
    /// The mailbox that the user name carried.
    mailbox: String,
}

enum How {
    /// USER and PASS, until the directory is asked.
    Password(Option<(String, Secret)>),
    /// AUTH, and what it wants first.
    Sasl(Exchange, Option<sasl::Step>),
}

impl Login {
    /// PASS after USER.
    pub(super) fn user_pass(user: String, password: Secret) -> Login {
        Login {
            how: How::Password(Some((user, password))),
            mailbox: String::new(),
        }
    }

    /// AUTH; `None` after the refusal was written.
    pub(super) fn auth(cx: &mut Context, auth: &Auth) -> Option<Login> {
        let initial = auth.initial.as_ref().map(Secret::expose);
        match Exchange::begin(&auth.mechanism, initial, &cx.channel()) {
            Some((exchange, first)) => Some(Login {
                how: How::Sasl(exchange, Some(first)),
                mailbox: String::new(),
            }),
            None => {
                encode::err(&mut cx.out, None, "No such authentication mechanism");
                None
            }
        }
    }

    /// A line of the client within AUTH.
    pub(super) fn sasl(&mut self, cx: &mut Context, reply: SaslReply) -> Step {
        let text = match (reply, &mut self.how) {
            (SaslReply::Data(message), How::Sasl(exchange, _)) => {
                let step = exchange.respond(message.expose());
                return self.go_on(cx, step);
            }
            // RFC 5034, 4: an AUTH that the client cancels is rejected.
            (SaslReply::Cancel, _) => "Authentication cancelled",
            _ => "Invalid authentication message",
        };
        encode::err(&mut cx.out, None, text);
        Step::Done
    }

    pub(super) fn step(&mut self, cx: &mut Context, reply: Option<Reply>) -> Step {
        let step = match (&mut self.how, reply) {
            (How::Password(asked), None) => match asked.take() {
                Some((login, password)) => sasl::Step::Ask(Call::Authenticate(Authenticate {
                    login,
                    password: password.into_inner(),
                    peer: cx.peer.address,
                })),
                None => return Step::Abort("a login without a name"),
            },
            (How::Password(_), Some(Reply::Authenticated { account, login })) => {
                sasl::Step::Accepted { account, login }
            }
            (How::Password(_), Some(Reply::Failed(failure))) => {
                sasl::Step::Refused(Refused::Failed(failure))
            }
            (How::Password(_), Some(reply)) => return failed(cx, &reply),
            (How::Sasl(_, first), None) => match first.take() {
                Some(first) => first,
                None => return Step::Abort("an exchange without a message"),
            },
            (How::Sasl(exchange, _), Some(reply)) => exchange.reply(reply),
        };
        self.go_on(cx, step)
    }

    fn mechanism(&self) -> &'static str {
        match &self.how {
            How::Password(_) => sasl::PASSWORD,
            How::Sasl(exchange, _) => exchange.mechanism(),
        }
    }

    fn go_on(&mut self, cx: &mut Context, step: sasl::Step) -> Step {
        let mechanism = self.mechanism();
        if let sasl::Step::Refused(why) = &step {
            let why = why.word();
            cx.notes.push_back(Note::NotLoggedIn { mechanism, why });
        }
        match step {
            sasl::Step::Challenge(challenge) => {
                encode::challenge(&mut cx.out, &challenge);
                Step::Sasl
            }
            sasl::Step::Ask(call) => Step::Call(self.without_mailbox(call)),
            sasl::Step::Accepted { account, login } => {
                cx.notes.push_back(Note::LoggedIn { login, mechanism });
                match mailbox_named(&self.mailbox) {
                    Some(_) if cx.relays => {
                        Step::HandOver(account, std::mem::take(&mut self.mailbox))
                    }
                    Some(mailbox) => Step::Open(account, mailbox),
                    None => refuse(cx, &Reply::Failed(Failure::NoSuchMailbox)),
                }
            }
            sasl::Step::Refused(Refused::Failed(failure)) => refuse(cx, &Reply::Failed(failure)),
            sasl::Step::Refused(Refused::Malformed(text)) => {
                encode::err(&mut cx.out, None, text);
                Step::Done
            }
            sasl::Step::Refused(Refused::ActsForAnother) => {
                let text = "Acting for others is not possible";
                encode::err(&mut cx.out, Some(Code::Auth), text);
                Step::Done
            }
            sasl::Step::Refused(Refused::Binding) => {
                let text = "The channel binding does not match";
                encode::err(&mut cx.out, Some(Code::Auth), text);
                count(cx)
            }
        }
    }

    /// Takes the mailbox off the name that the service is asked about. What SCRAM proves is the name as the client said it.
    fn without_mailbox(&mut self, mut call: Call) -> Call {
        let login = match &mut call {
            Call::Authenticate(ask) => &mut ask.login,
            Call::ScramBegin { login, .. } => login,
            Call::ScramFinish(finish) => &mut finish.login,
            _ => return call,
        };
        let (name, mailbox) = split(login);
        mailbox.clone_into(&mut self.mailbox);
        login.truncate(name.len());
        call
    }
}

/// A login that failed; the client may try again.
fn refuse(cx: &mut Context, reply: &Reply) -> Step {
    let step = failed(cx, reply);
    match reply {
        Reply::Failed(Failure::Credentials | Failure::NoSuchMailbox) => count(cx),
        _ => step,
    }
}

/// It may try so many times.
fn count(cx: &mut Context) -> Step {
    cx.login_failures += 1;
    if cx.login_failures >= cx.limits.login_failures_max {
        return Step::Close("too many wrong logins");
    }
    Step::Done
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
    pub(super) fn new(account: AccountId, mailbox: MailboxName) -> Open {
        Open {
            account,
            mailbox,
            maildrop: None,
        }
    }

    pub(super) fn step(&mut self, cx: &mut Context, reply: Option<Reply>) -> Step {
        let session = cx.peer.session;
        let account = self.account;
        let call = |call| Step::Call(Call::mailbox(account, call));
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

/// The mailbox that is the maildrop; an empty name: INBOX. `None`: that is no name.
pub(super) fn mailbox_named(name: &str) -> Option<MailboxName> {
    match name {
        "" => Some(MailboxName::inbox()),
        name => MailboxName::new(name).ok(),
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
}
