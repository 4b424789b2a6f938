//! A session that stops at MAIL for another one, and the one that goes on.

use std::sync::Arc;

use whimbrel_service::{api::AccountId, machine::Now};
use whimbrel_smtp::{Config, HostName, Role};

use super::{Limits, SmtpSession, auth, known, time};
use crate::session::{Handover, Peer, Resume};

impl SmtpSession {
    /// The session that goes on where another has stopped: the client's MAIL comes next. `None`: mail of a user is sent by nobody.
    #[must_use]
    pub fn resumed(
        role: Role,
        (config, limits): (Arc<Config>, Arc<Limits>),
        peer: &Peer,
        account: Option<AccountId>,
        hello: (HostName, bool),
        now: Now,
    ) -> Option<Self> {
        if (role == Role::Submission) != account.is_some() {
            return None;
        }
        let machine = whimbrel_smtp::Session::resumed(
            role,
            Arc::clone(&config),
            known(peer),
            hello,
            time(now),
        );
        let client = auth::Client::new(peer.clone(), account);
        Some(SmtpSession::with(machine, client, config, limits))
    }

    /// At MAIL: whether another session goes on from there.
    pub(super) fn hands_over(&mut self, now: Now) -> bool {
        if !self.relays {
            return false;
        }
        let Some(handed) = self.machine.hand_over(time(now)) else {
            return false;
        };
        let mut rest = handed.rest;
        rest.append(&mut self.rest);
        self.handover = Some(Box::new(Handover {
            account: self.client.account,
            peer: self.client.peer.clone(),
            at: Resume::Mail {
                role: self.role,
                helo: handed.helo,
                basic: handed.basic,
            },
            rest,
        }));
        true
    }
}
