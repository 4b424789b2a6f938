//! Holds answers back until what they saw is on disk.
//!
//! Commits of one partition become durable in the order in which they were submitted. An answer may leave when the newest commit
//! that it saw is durable; if that one or one before it fails, so does the answer: it told of something that is not so.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_crdt::mutants::broken;

use crate::{
    admin::AdminReply,
    api::{Failure, Reply},
    machine::{Output, Ticket},
};

/// Answers waiting for commits of one partition.
#[derive(Debug, Default)]
pub struct Gate {
    /// Commits under way, oldest first.
    pending: VecDeque<Ticket>,
    /// Answers by the commit they wait for, in the order in which they came.
    held: BTreeMap<(Ticket, u64), Output>,
    count: u64,
}

impl Gate {
    /// A commit was handed out.
    pub fn submitted(&mut self, ticket: Ticket) {
        debug_assert!(self.pending.back().is_none_or(|last| *last < ticket));
        self.pending.push_back(ticket);
    }

    /// Lets out an answer that saw everything submitted so far, now or when it is durable.
    pub fn reply(&mut self, answer: Output, out: &mut impl Extend<Output>) {
        self.reply_after(self.newest(), answer, out);
    }

    /// Lets out an answer that saw commits up to `newest`.
    pub fn reply_after(
        &mut self,
        newest: Option<Ticket>,
        answer: Output,
        out: &mut impl Extend<Output>,
    ) {
        let under_way = |newest: &Ticket| {
            let oldest = self.pending.front();
            oldest.is_some_and(|oldest| oldest <= newest) && !broken("answered-before-sync")
        };
        match newest.filter(under_way) {
            Some(newest) => {
                self.count += 1;
                self.held.insert((newest, self.count), answer);
            }
            None => out.extend([answer]),
        }
    }

    /// A commit is durable, and with it all before it.
    pub fn committed(&mut self, ticket: Ticket, out: &mut impl Extend<Output>) {
        while self.pending.front().is_some_and(|first| *first <= ticket) {
            self.pending.pop_front();
        }
        let later = self.held.split_off(&(Ticket(ticket.0 + 1), 0));
        out.extend(std::mem::replace(&mut self.held, later).into_values());
    }

    /// A commit left nothing behind; answers that saw it turn into a temporary failure.
    pub fn failed(&mut self, ticket: Ticket, out: &mut impl Extend<Output>) {
        self.pending.retain(|pending| *pending != ticket);
        out.extend(
            self.held
                .split_off(&(ticket, 0))
                .into_values()
                .filter_map(refuse),
        );
    }

    /// The newest commit that is under way.
    #[must_use]
    pub fn newest(&self) -> Option<Ticket> {
        self.pending.back().copied()
    }

    /// Whether no commit is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }
}

/// What is told in the place of an answer that saw a commit which failed.
pub(crate) fn refuse(answer: Output) -> Option<Output> {
    Some(match answer {
        Output::Reply(request, _) => Output::Reply(request, Reply::Failed(Failure::Storage)),
        Output::AdminReply(request, _) => Output::AdminReply(
            request,
            AdminReply::Refused("the disk takes no writes, try again later".into()),
        ),
        Output::Delivered(ticket) => Output::NotDelivered(ticket),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::RequestId;

    fn answer(number: u64) -> Output {
        Output::Reply(RequestId(number), Reply::Done)
    }

    /// What came out: request numbers, negative if refused.
    fn drain(out: &mut VecDeque<Output>) -> Vec<i64> {
        out.drain(..)
            .map(|output| match output {
                Output::Reply(RequestId(number), Reply::Done) => i64::try_from(number).unwrap(),
                Output::Reply(RequestId(number), Reply::Failed(Failure::Storage)) => {
                    -i64::try_from(number).unwrap()
                }
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn answers_wait_for_what_they_saw() {
        let (mut gate, mut out) = (Gate::default(), VecDeque::new());
        gate.reply(answer(1), &mut out);
        gate.submitted(Ticket(1));
        gate.reply(answer(2), &mut out);
        gate.reply_after(None, answer(3), &mut out);
        gate.submitted(Ticket(2));
        gate.reply(answer(4), &mut out);
        gate.reply_after(Some(Ticket(1)), answer(5), &mut out);
        assert_eq!(drain(&mut out), [1, 3]);
        gate.committed(Ticket(1), &mut out);
        assert_eq!(drain(&mut out), [2, 5]);
        gate.reply_after(Some(Ticket(1)), answer(6), &mut out);
        assert_eq!(drain(&mut out), [6]);
        gate.committed(Ticket(2), &mut out);
        assert_eq!(drain(&mut out), [4]);
        assert!(gate.is_idle());
    }

    #[test]
    fn answers_fail_with_what_they_saw() {
        let (mut gate, mut out) = (Gate::default(), VecDeque::new());
        for ticket in 1..=3 {
            gate.submitted(Ticket(ticket));
            gate.reply(answer(ticket), &mut out);
        }
        gate.committed(Ticket(1), &mut out);
        gate.failed(Ticket(2), &mut out);
        assert_eq!(drain(&mut out), [1, -2, -3]);
        assert!(!gate.is_idle());
        gate.failed(Ticket(3), &mut out);
        assert!(gate.is_idle());
    }
}
