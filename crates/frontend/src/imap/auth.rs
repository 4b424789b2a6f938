//! LOGIN and AUTHENTICATE (RFC 9051, 6.2.2 and 6.2.3; RFC 4959). The mechanisms are in [`crate::sasl`].
//!
//! Neither is accepted in the clear, over loopback neither: a password that was sent once is known to who listens.

use whimbrel_imap::{
    SaslReply,
    core::Secret,
    encode::{self, Code},
};
use whimbrel_service::api::{AccountId, Authenticate, Call, Failure, Reply};
use zeroize::Zeroizing;

use super::{
    context::Context,
    outcome::{EndCode, Outcome},
    task::{Expect, Step, Task, Wake},
};
use crate::{
    sasl::{self, Exchange, Refused},
    session::Note,
};

/// LOGIN.
pub(super) struct Login(Option<(String, Secret)>);

/// Begins LOGIN.
pub(super) fn login(user: String, password: Secret) -> Login {
    Login(Some((user, password)))
}

impl Task for Login {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match (self.0.take(), wake) {
            (Some((login, password)), Wake::Go) => Step::Call(Call::Authenticate(Authenticate {
                login,
                password: Zeroizing::new(password.expose().to_vec()),
                peer: cx.peer.address,
            })),
            (None, Wake::Reply(Reply::Authenticated { account, login })) => {
                accepted(cx, sasl::PASSWORD, account, login)
            }
            (None, Wake::Reply(Reply::Failed(failure))) => {
                Step::Done(refused(cx, sasl::PASSWORD, Refused::Failed(failure)))
            }
            (None, Wake::Reply(reply)) => Step::Done(Outcome::of_reply(reply)),
            _ => Step::Done(Outcome::bug()),
        }
    }
}

/// AUTHENTICATE.
pub(super) struct Authentication {
    exchange: Exchange,
    /// What it wants first.
    first: Option<sasl::Step>,
}

/// Begins AUTHENTICATE.
pub(super) fn authenticate(
    cx: &Context,
    mechanism: &str,
    initial: Option<Secret>,
) -> Result<Authentication, Outcome> {
    let initial = initial.as_ref().map(Secret::expose);
    match Exchange::begin(mechanism, initial, &cx.channel()) {
        Some((exchange, first)) => Ok(Authentication {
            exchange,
            first: Some(first),
        }),
        None => Err(Outcome::no(
            Code::Cannot,
            "No such authentication mechanism",
        )),
    }
}

impl Task for Authentication {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        let step = match wake {
            Wake::Go => self.first.take(),
            Wake::Sasl(SaslReply::Data(message)) => Some(self.exchange.respond(message.expose())),
            // "If the server receives such a response, or if it receives an invalid base64 string [...], it MUST reject the AUTHENTICATE
            // command by sending a tagged BAD response" (RFC 9051, 6.2.2).
            Wake::Sasl(SaslReply::Cancel) => {
                return Step::Done(Outcome::bad("Authentication cancelled"));
            }
            Wake::Broken(text) => return Step::Done(Outcome::bad(text)),
            Wake::Reply(reply) => Some(self.exchange.reply(reply)),
            _ => None,
        };
        match step {
            Some(sasl::Step::Challenge(challenge)) => {
                encode::sasl_continuation(&mut cx.out, &challenge);
                Step::Input(Expect::Sasl)
            }
            Some(sasl::Step::Ask(call)) => Step::Call(call),
            Some(sasl::Step::Accepted { account, login }) => {
                accepted(cx, self.exchange.mechanism(), account, login)
            }
            Some(sasl::Step::Refused(why)) => {
                Step::Done(refused(cx, self.exchange.mechanism(), why))
            }
            None => Step::Done(Outcome::bug()),
        }
    }
}

fn accepted(cx: &mut Context, mechanism: &'static str, account: AccountId, login: String) -> Step {
    cx.notes.push_back(Note::LoggedIn { login, mechanism });
    if cx.relays {
        return Step::HandOver(account);
    }
    cx.account = Some(account);
    Step::Done(logged_in())
}

/// How a login is answered.
pub(super) fn logged_in() -> Outcome {
    Outcome::ok_code(EndCode::Capability, "Logged in")
}

fn refused(cx: &mut Context, mechanism: &'static str, why: Refused) -> Outcome {
    cx.notes.push_back(Note::NotLoggedIn {
        mechanism,
        why: why.word(),
    });
    let mut outcome = match why {
        Refused::Malformed(text) => return Outcome::bad(text),
        Refused::ActsForAnother => {
            return Outcome::no(
                Code::AuthorizationFailed,
                "Acting for others is not possible",
            );
        }
        Refused::Binding => Outcome::no(
            Code::AuthenticationFailed,
            "The channel binding does not match",
        ),
        Refused::Failed(failure) => Outcome::failed(failure),
    };
    if matches!(
        why,
        Refused::Binding | Refused::Failed(Failure::Credentials)
    ) {
        cx.login_failures += 1;
        if cx.login_failures >= cx.limits.login_failures_max {
            outcome.close = Some("too many wrong logins");
        }
    }
    outcome
}
