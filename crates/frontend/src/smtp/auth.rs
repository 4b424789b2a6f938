//! AUTH (RFC 4954): the mechanisms are in [`crate::sasl`].

use whimbrel_service::{
    api::{AccountId, Failure, Reply},
    machine::Now,
};
use whimbrel_smtp::{Enhanced, Refusal, session::AuthAnswer};

use super::{Pending, SmtpSession, time};
use crate::{
    sasl::{Channel, Exchange, Refused, Step},
    session::{Action, Note, Peer},
};

/// Who the client is, as far as that is known.
pub(super) struct Client {
    pub(super) peer: Peer,
    /// The exchange under way.
    exchange: Option<Exchange>,
    /// Who has logged in.
    pub(super) account: Option<AccountId>,
}

impl Client {
    pub(super) fn new(peer: Peer, account: Option<AccountId>) -> Self {
        Client {
            peer,
            exchange: None,
            account,
        }
    }

    fn channel(&self, scram: bool) -> Channel<'_> {
        Channel::of(&self.peer, scram)
    }
}

impl SmtpSession {
    /// Tells the machine what to offer.
    pub(super) fn offer_auth(&mut self) {
        if self.role != whimbrel_smtp::Role::Submission {
            return;
        }
        let channel = self.client.channel(self.limits.scram);
        self.machine.offer_auth(channel.mechanism_names());
    }

    pub(super) fn auth_begin(
        &mut self,
        now: Now,
        mechanism: &str,
        initial: Option<&[u8]>,
    ) -> Option<Action> {
        self.answering = Some(("AUTH", now.mono_micros));
        let channel = self.client.channel(self.limits.scram);
        match Exchange::begin(mechanism, initial, &channel) {
            Some((exchange, step)) => {
                self.client.exchange = Some(exchange);
                self.auth_step(now, step)
            }
            None => {
                let refusal = Refusal::new(504, Enhanced(5, 4), "Mechanism not supported");
                self.machine
                    .answer_auth(time(now), AuthAnswer::Broken(refusal));
                None
            }
        }
    }

    pub(super) fn auth_respond(&mut self, now: Now, message: &[u8]) -> Option<Action> {
        let step = match &mut self.client.exchange {
            Some(exchange) => exchange.respond(message),
            None => Step::Refused(Refused::Malformed("No exchange is under way")),
        };
        self.auth_step(now, step)
    }

    pub(super) fn auth_reply(&mut self, now: Now, reply: Reply) -> Option<Action> {
        let step = match &mut self.client.exchange {
            Some(exchange) => exchange.reply(reply),
            None => Step::Refused(Refused::Failed(Failure::Temporary)),
        };
        self.auth_step(now, step)
    }

    fn auth_step(&mut self, now: Now, step: Step) -> Option<Action> {
        let mechanism = self.client.exchange.as_ref();
        let mechanism = mechanism.map_or("", Exchange::mechanism);
        if let Step::Refused(why) = &step {
            let why = why.word();
            self.notes.push_back(Note::NotLoggedIn { mechanism, why });
        }
        let answer = match step {
            Step::Ask(call) => return self.call(Pending::Auth, call),
            Step::Challenge(challenge) => AuthAnswer::Challenge(challenge),
            Step::Accepted { account, login } => {
                self.client.account = Some(account);
                self.notes.push_back(Note::LoggedIn { login, mechanism });
                AuthAnswer::Accepted
            }
            Step::Refused(Refused::Malformed(text)) => {
                AuthAnswer::Broken(Refusal::new(501, Enhanced(5, 2), text))
            }
            // Acting for others is nobody's right: no more is told than of a wrong password.
            Step::Refused(
                Refused::ActsForAnother | Refused::Binding | Refused::Failed(Failure::Credentials),
            ) => AuthAnswer::Rejected,
            Step::Refused(Refused::Failed(_)) => AuthAnswer::Unavailable,
        };
        if !matches!(answer, AuthAnswer::Challenge(_)) {
            self.client.exchange = None;
            self.answered(now);
        }
        self.machine.answer_auth(time(now), answer);
        None
    }
}
