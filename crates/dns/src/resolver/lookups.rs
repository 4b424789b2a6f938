//! Lookups: from alias to alias, until something is known of the last name.

use core::time::Duration;
use std::sync::Arc;

use super::{QuestionId, Resolver};
use crate::{
    api::{ALIASES_MAX, Answer, Failure, Found, Kind, Output, Ticket},
    cache::Known,
    message::{End, Reading},
    mutants::broken,
    name::Name,
};

/// What somebody wants to know.
#[derive(Clone, Debug)]
pub(super) struct Lookup {
    name: Name,
    kind: Kind,
    /// Where the name leads, so far.
    aliases: Vec<Name>,
    authentic: bool,
    ttl: Duration,
    until: Duration,
    /// What it waits for.
    question: Option<QuestionId>,
}

impl Lookup {
    /// The name of which something must be learnt.
    fn at(&self) -> &Name {
        self.aliases.last().unwrap_or(&self.name)
    }
}

impl Resolver {
    pub(super) fn on_ask(&mut self, ticket: Ticket, name: Name, kind: Kind) {
        self.on_cancel(ticket);
        self.counters.lookups += 1;
        let refusal = if self.config.servers.is_empty() {
            Some(Failure::NoServers)
        } else if self.lookups.len() >= self.config.lookups_max {
            Some(Failure::Busy)
        } else {
            None
        };
        if let Some(failure) = refusal {
            return self.answer(ticket, Err(failure));
        }
        let until = self.now.saturating_add(self.config.patience);
        let lookup = Lookup {
            name,
            kind,
            aliases: Vec::new(),
            authentic: true,
            ttl: Duration::MAX,
            until,
            question: None,
        };
        self.lookups.insert(ticket, lookup);
        self.patience.insert((until, ticket));
        self.go_on(ticket);
    }

    pub(super) fn on_cancel(&mut self, ticket: Ticket) {
        if let Some(lookup) = self.lookups.remove(&ticket) {
            self.patience.remove(&(lookup.until, ticket));
            if let Some(question) = lookup.question {
                self.leave(question, ticket);
            }
        }
    }

    pub(super) fn end_lookups_in_time(&mut self) {
        while let Some((until, ticket)) = self.patience.first().copied() {
            if until > self.now {
                return;
            }
            self.end(ticket, Err(Failure::Timeout));
        }
    }

    /// Takes what the cache has, alias by alias, then waits for a question.
    fn go_on(&mut self, ticket: Ticket) {
        while let Some(lookup) = self.lookups.get(&ticket) {
            let key = (lookup.at().clone(), lookup.kind);
            match self.cache.get(&key, self.now) {
                Some(Known::Reading(reading, left)) => {
                    self.counters.cached += 1;
                    if !self.take(ticket, &reading, left) {
                        return;
                    }
                }
                Some(Known::Failure(failure)) => {
                    self.counters.cached += 1;
                    return self.end(ticket, Err(failure));
                }
                None => {
                    let question = self.wait_for(key, ticket);
                    if let Some(lookup) = self.lookups.get_mut(&ticket) {
                        lookup.question = Some(question);
                    }
                    return;
                }
            }
        }
    }

    /// The question of a lookup has come to its end.
    pub(super) fn learn(
        &mut self,
        ticket: Ticket,
        result: &Result<(Arc<Reading>, Duration), Failure>,
    ) {
        let Some(lookup) = self.lookups.get_mut(&ticket) else {
            return;
        };
        lookup.question = None;
        match result {
            Ok((reading, ttl)) => {
                if self.take(ticket, reading, *ttl) {
                    self.go_on(ticket);
                }
            }
            Err(failure) => self.end(ticket, Err(*failure)),
        }
    }

    /// Adds what is known of a name. True: there is one more to be asked for.
    fn take(&mut self, ticket: Ticket, reading: &Reading, left: Duration) -> bool {
        let Some(lookup) = self.lookups.get_mut(&ticket) else {
            return false;
        };
        for alias in &reading.aliases {
            let is_known = *alias == lookup.name || lookup.aliases.contains(alias);
            let failure = if is_known && !broken("alias-loops-followed") {
                Failure::AliasLoop
            } else if lookup.aliases.len() == ALIASES_MAX && !broken("aliases-unbounded") {
                Failure::TooManyAliases
            } else {
                lookup.aliases.push(alias.clone());
                continue;
            };
            self.end(ticket, Err(failure));
            return false;
        }
        lookup.authentic &= reading.authentic;
        lookup.ttl = lookup.ttl.min(left);
        let found = match &reading.end {
            End::Open => return true,
            End::Records(records) => Found::Records(records.clone()),
            End::NoName => Found::NoName,
            End::NoData => Found::NoData,
        };
        let answer = Answer {
            found,
            aliases: core::mem::take(&mut lookup.aliases),
            authentic: lookup.authentic,
            ttl: lookup.ttl,
        };
        self.end(ticket, Ok(answer));
        false
    }

    fn end(&mut self, ticket: Ticket, result: Result<Answer, Failure>) {
        self.on_cancel(ticket);
        self.answer(ticket, result);
    }

    fn answer(&mut self, ticket: Ticket, result: Result<Answer, Failure>) {
        self.counters.failed += u64::from(result.is_err());
        self.out.push_back(Output::Answer { ticket, result });
    }
}
