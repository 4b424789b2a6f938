//! Goes through the hosts of a plan, and says when it is final that nobody takes the mail.
//!
//! Mail fails for good only if every host that could answer has refused it. A host has refused when an address of it has, in each family in which it can
//! be reached: many hosts refuse IPv6 from servers without a PTR record there, and take the same mail by IPv4.

use std::net::IpAddr;

use super::{Plan, PlannedHost};
use crate::mutants::broken;

/// What became of a connection to an address before a recipient was named. `R` is what the caller keeps of it, for the notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure<R> {
    /// No connection, or it was lost.
    Unreachable(R),
    /// The host answered with a temporary failure.
    Temporary(R),
    /// The host refused the session for good: by its greeting or to EHLO.
    Refused(R),
    /// The host refused the sender for good: to MAIL. Other hosts are not asked: they know the domain's mind no better.
    SenderRefused(R),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<R> {
    /// Connect to the first of these addresses that answers, in this order, each [`Plan::CONNECT_DELAY`] after the one before. All are of this host.
    Connect {
        /// The host's name.
        host: String,
        /// Its addresses that are left.
        addresses: Vec<IpAddr>,
    },
    /// Nobody takes it, now or later.
    Refused(R),
    /// Nobody takes it now.
    Deferred(Option<R>),
}

#[derive(Clone, Debug)]
struct Verdicts<R> {
    refused: Option<R>,
    sender_refused: Option<R>,
    temporary: Option<R>,
}

impl<R> Verdicts<R> {
    fn none() -> Verdicts<R> {
        Verdicts {
            refused: None,
            sender_refused: None,
            temporary: None,
        }
    }
}

/// One attempt's way through a plan.
#[derive(Clone, Debug)]
pub struct Walk<R> {
    /// Hosts to come; the first is the present one.
    hosts: std::vec::IntoIter<PlannedHost>,
    present: Option<PlannedHost>,
    /// Of the present host.
    verdicts: Verdicts<R>,
    /// The first refusal, as long as all hosts so far have refused.
    refused: Option<R>,
    /// The last reason to hope.
    temporary: Option<R>,
    is_final: bool,
}

impl<R: Clone> Walk<R> {
    /// Begins with the best host.
    #[must_use]
    pub fn new(plan: &Plan) -> Walk<R> {
        let mut hosts = plan.hosts.clone().into_iter();
        let present = hosts.next();
        Walk {
            hosts,
            present,
            verdicts: Verdicts::none(),
            refused: None,
            temporary: None,
            is_final: !plan.unresolved,
        }
    }

    /// What to do now. Asked again without a failure in between it says the same.
    #[must_use]
    pub fn step(&mut self) -> Step<R> {
        while let Some(present) = &self.present {
            if !present.addresses.is_empty() {
                return Step::Connect {
                    host: present.name.clone(),
                    addresses: present.addresses.clone(),
                };
            }
            self.leave();
        }
        match self.refused.clone() {
            Some(refused) if self.is_final => Step::Refused(refused),
            refused => Step::Deferred(self.temporary.clone().or(refused)),
        }
    }

    /// An address of the present host has failed.
    pub fn failed(&mut self, address: IpAddr, failure: Failure<R>) {
        let Some(present) = &mut self.present else {
            return;
        };
        // Whoever answered speaks for its family; the other may fare better.
        let family = |other: &IpAddr| other.is_ipv4() == address.is_ipv4();
        match failure {
            Failure::Unreachable(reason) => {
                present.addresses.retain(|other| *other != address);
                self.temporary = Some(reason);
            }
            Failure::Temporary(reason) => {
                present.addresses.retain(|other| !family(other));
                self.verdicts.temporary = Some(reason);
            }
            Failure::Refused(reason) => {
                present.addresses.retain(|other| !family(other));
                self.verdicts.refused.get_or_insert(reason);
            }
            Failure::SenderRefused(reason) => {
                present.addresses.retain(|other| !family(other));
                self.verdicts.sender_refused.get_or_insert(reason);
            }
        }
        if broken("one-family-is-all") && self.verdicts.temporary.is_none() {
            present.addresses.clear();
        }
    }

    /// The present host has no address left: what it said counts, and the next one is up.
    fn leave(&mut self) {
        let verdicts = core::mem::replace(&mut self.verdicts, Verdicts::none());
        self.present = self.hosts.next();
        match (
            verdicts.temporary,
            verdicts.sender_refused,
            verdicts.refused,
        ) {
            (Some(temporary), _, _) => {
                self.temporary = Some(temporary);
                self.is_final = broken("one-host-is-all");
            }
            (None, Some(refused), _) => {
                self.refused = Some(refused);
                self.is_final = true;
                self.present = None;
            }
            (None, None, Some(refused)) => {
                self.refused.get_or_insert(refused);
            }
            // Silent: it may be back tomorrow.
            (None, None, None) => self.is_final = broken("one-host-is-all"),
        }
    }
}
