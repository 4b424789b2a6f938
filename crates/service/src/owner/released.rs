//! A partition that this node has left, and coming back to it (`docs/decisions/0040`).
//!
//! It is *closed* when those who stay have all of it: from then on nothing is written. When the driver has told the others that this node is away,
//! and that is on disk, a row says where its own log ended ([`log::AWAY_KEY`]), with the commit that cuts all logs and takes the position. Then the
//! rows go, page by page, with the references of bodies, and then it is forgotten where the logs of others stood. A crash anywhere leads to the same
//! being done again.
//!
//! When it comes back, all that is left is that row: it becomes the position, with which nothing is applied.
//!
//! Invariants:
//! - Nothing goes before the driver has said that this node is away: until then it may stay.
//! - It comes back when all is gone, and only then: whatever is found then is of the new life.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_mailbox::{Content, RowKey};
use whimbrel_storage::{Commit, Mutation, Origin, Room};

use super::{
    keys,
    rows::{blob_name, drop_coming, holder},
    stalled_accounts::released,
};
use crate::{
    log::{self, AWAY_KEY},
    machine::{Now, Ticket},
    peers::{LogEnd, Page, Phase, READ_AGAIN_MICROS},
};

/// A partition of which nothing is served, nor written.
pub(super) struct Released {
    partition: PartitionId,
    /// This node.
    me: Incarnation,
    /// The last number of this node's log.
    end: u64,
    step: Step,
}

/// How far it is gone.
enum Step {
    /// All is there: the others do not know that this node is away.
    Whole,
    /// It is looked what is there: the rows of the partition itself, whether these are all, and where the logs stand.
    Looking {
        rows: Vec<(Vec<u8>, Bytes)>,
        read: bool,
        logs: Option<BTreeMap<Incarnation, LogEnd>>,
    },
    /// Rows go; where these logs stood is forgotten last.
    Dropping(Vec<Incarnation>),
    /// A commit is under way, after which rows go on going.
    Committing(Ticket, Vec<Incarnation>),
    /// The last one.
    Ending(Ticket),
    /// Something failed: it is begun again at this time.
    Again(u64),
    /// Nothing is left but the row.
    Gone,
}

/// What it wants next.
pub(super) enum Want {
    /// Read the rows of the partition itself ([`Released::rows`]), and where the logs stand ([`Released::logs`]).
    Look,
    /// Read a page of all rows ([`Released::page`]).
    Page,
    /// Make this durable ([`Released::committed`]), under the ticket that was given.
    Commit(Commit),
    /// Nothing is left: say again who holds the partition ([`Released::held_as`]).
    Gone,
    /// This node holds the partition again, or has never left it. `anew`: what came on the streams meanwhile was not taken.
    Open { anew: bool },
    /// Stop the node.
    Stop(String),
}

impl Released {
    /// Its log ended at this number, and all is there.
    pub(super) fn new(partition: PartitionId, me: Incarnation, end: u64) -> Self {
        Released {
            partition,
            me,
            end,
            step: Step::Whole,
        }
    }

    /// What another incarnation left, or came back to, is not all gone, or not all here: all of it goes, and this one begins with nothing.
    pub(super) fn of_another(
        partition: PartitionId,
        me: Incarnation,
        rows: Vec<(Vec<u8>, Bytes)>,
        logs: BTreeMap<Incarnation, LogEnd>,
    ) -> Self {
        Released {
            partition,
            me,
            end: logs.get(&me).map_or(0, |own| own.last),
            step: Step::Looking {
                rows,
                read: true,
                logs: Some(logs),
            },
        }
    }

    /// The last number of this node's log.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Whether nothing is left.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.step, Step::Gone)
    }

    /// So this node holds the partition now, as it says itself and the others know.
    pub(super) fn held_as(&self, now: Now, phase: Phase) -> Option<Want> {
        match (&self.step, phase) {
            (Step::Whole, Phase::Away) => Some(Want::Look),
            (Step::Again(at), Phase::Away) if *at <= now.mono_micros => Some(Want::Look),
            (Step::Again(at), _) if *at <= now.mono_micros => Some(Want::Open { anew: false }),
            // It stays, or is back.
            (Step::Whole, Phase::Holds) | (Step::Gone, Phase::Holds | Phase::Leaves) => {
                Some(Want::Open { anew: true })
            }
            _ => None,
        }
    }

    /// It is looked what is there, from the beginning.
    pub(super) fn look(&mut self) {
        self.step = Step::Looking {
            rows: Vec::new(),
            read: false,
            logs: None,
        };
    }

    /// A page of the partition's own rows.
    pub(super) fn rows(
        &mut self,
        ticket: Ticket,
        page: Vec<(Vec<u8>, Bytes)>,
        done: bool,
    ) -> Option<Want> {
        if let Step::Looking { rows, read, .. } = &mut self.step {
            rows.extend(page);
            *read = done;
        }
        self.looked(ticket)
    }

    /// Where the logs stand.
    pub(super) fn logs(
        &mut self,
        ticket: Ticket,
        ends: Vec<(Incarnation, LogEnd)>,
    ) -> Option<Want> {
        if let Step::Looking { logs, .. } = &mut self.step {
            *logs = Some(ends.into_iter().collect());
        }
        self.looked(ticket)
    }

    /// Goes on when all is known of what is there.
    pub(super) fn looked(&mut self, ticket: Ticket) -> Option<Want> {
        let Step::Looking {
            rows,
            read: true,
            logs: Some(logs),
        } = &self.step
        else {
            return None;
        };
        let others = logs.keys().copied().filter(|origin| *origin != self.me);
        let others: Vec<Incarnation> = others.collect();
        let own = logs.get(&self.me);
        let last = own.map_or(0, |own| own.last);
        if last != self.end {
            return Some(Want::Stop(format!(
                "partition {} was left when its log had {} operations, and it has {last}",
                self.partition.0, self.end
            )));
        }
        if rows.iter().any(|(key, _)| key == AWAY_KEY) {
            self.step = Step::Dropping(others);
            return Some(Want::Page);
        }
        let position = rows.iter().find(|(key, _)| key == log::POSITION_KEY);
        let position = position.map(|(_, record)| &record[..]);
        let away = match log::away(self.partition, self.me, own, position) {
            Ok(away) => away,
            Err(error) => return Some(Want::Stop(error.to_string())),
        };
        let mut commit = self.commit();
        commit.mutations.push(away);
        commit.mutations.push(Mutation::Delete {
            key: Bytes::from_static(log::POSITION_KEY),
        });
        commit.cuts = log::cuts_at_ends(logs);
        self.step = Step::Committing(ticket, others);
        Some(Want::Commit(commit))
    }

    /// Some of what is left is to go.
    pub(super) fn page(&mut self, ticket: Ticket, page: Page) -> Option<Want> {
        let Step::Dropping(logs) = &mut self.step else {
            return None;
        };
        let logs = std::mem::take(logs);
        let mut commit = self.commit();
        for (key, value) in page.rows.into_iter().filter(|(key, _)| key != AWAY_KEY) {
            drop_row(&mut commit.mutations, key.into(), &value);
        }
        let is_last = page.end && commit.mutations.is_empty();
        if is_last && logs.is_empty() {
            self.step = Step::Gone;
            return Some(Want::Gone);
        }
        self.step = match is_last {
            true => {
                let logs = logs.into_iter().map(|origin| origin.get());
                commit.forgets = logs.map(Origin).collect();
                Step::Ending(ticket)
            }
            false => Step::Committing(ticket, logs),
        };
        Some(Want::Commit(commit))
    }

    /// A commit is durable; `None`: it is not one of these.
    pub(super) fn committed(&mut self, ticket: Ticket) -> Option<Want> {
        match &mut self.step {
            Step::Committing(of, logs) if *of == ticket => {
                self.step = Step::Dropping(std::mem::take(logs));
                Some(Want::Page)
            }
            Step::Ending(of) if *of == ticket => {
                self.step = Step::Gone;
                Some(Want::Gone)
            }
            _ => None,
        }
    }

    /// Whether this commit is the one that is under way.
    pub(super) fn waits_for(&self, ticket: Ticket) -> bool {
        matches!(self.step, Step::Committing(of, _) | Step::Ending(of) if of == ticket)
    }

    /// The store could not read, or has refused a commit: it is begun again at the time that is given.
    pub(super) fn failed(&mut self, now: Now) -> u64 {
        let at = now.mono_micros + READ_AGAIN_MICROS;
        self.step = Step::Again(at);
        at
    }

    fn commit(&self) -> Commit {
        let mut commit = Commit::new(log::store_partition(self.partition));
        commit.room = Room::Frees;
        commit
    }
}

/// Removes a row, and what it holds.
fn drop_row(mutations: &mut Vec<Mutation>, key: Bytes, value: &[u8]) {
    if let Some(account) = keys::account_of_key(&key) {
        if let Ok(RowKey::Content(origin)) = keys::row_of_key(&key)
            && let Ok(content) = Content::decode(value)
        {
            mutations.push(Mutation::Release {
                blob: blob_name(&content.blob),
                holder: holder(account, origin),
            });
        }
        if keys::is_held(&key) {
            mutations.extend(released(&key, value));
        }
    }
    if keys::is_coming(&key) {
        drop_coming(mutations, key, value);
    } else {
        mutations.push(Mutation::Delete { key });
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_crdt::Hash;

    use super::*;

    const PARTITION: PartitionId = PartitionId::accounts(4);

    fn end(last: u64) -> LogEnd {
        let hash = Hash([0; 32]);
        LogEnd { last, hash, low: 0 }
    }

    fn page(rows: &[&[u8]], end: bool) -> Page {
        let rows = rows.iter();
        Page {
            rows: rows.map(|key| (key.to_vec(), Bytes::new())).collect(),
            end,
        }
    }

    #[test]
    fn all_goes_but_the_row_that_says_where_its_log_ended() {
        let [me, other] = [1, 2].map(Incarnation::from_hash);
        let mut left = Released::new(PARTITION, me, 7);
        assert!(left.held_as(Now::mono(0), Phase::Leaves).is_none());
        assert!(matches!(
            left.held_as(Now::mono(0), Phase::Away),
            Some(Want::Look)
        ));
        left.look();
        assert!(left.rows(Ticket(1), Vec::new(), true).is_none());
        let ends = vec![(me, end(7)), (other, end(3))];
        let Some(Want::Commit(first)) = left.logs(Ticket(2), ends) else {
            panic!("its position goes first");
        };
        assert_eq!(first.room, Room::Frees);
        assert!(left.waits_for(Ticket(2)) && left.committed(Ticket(1)).is_none());
        assert!(matches!(left.committed(Ticket(2)), Some(Want::Page)));
        let Some(Want::Commit(rows)) = left.page(Ticket(3), page(&[b"x", AWAY_KEY], true)) else {
            panic!("a row goes");
        };
        assert_eq!(rows.mutations.len(), 1);
        assert!(matches!(left.committed(Ticket(3)), Some(Want::Page)));
        let Some(Want::Commit(last)) = left.page(Ticket(4), page(&[AWAY_KEY], true)) else {
            panic!("logs are forgotten last");
        };
        assert_eq!(last.forgets, [Origin(other.get())]);
        assert!(!left.is_gone());
        assert!(matches!(left.committed(Ticket(4)), Some(Want::Gone)));
        assert!(left.is_gone() && left.held_as(Now::mono(0), Phase::Away).is_none());
        let back = left.held_as(Now::mono(0), Phase::Holds);
        assert!(matches!(back, Some(Want::Open { anew: true })));
    }

    #[test]
    fn who_wrote_after_it_was_closed_stops() {
        let me = Incarnation::from_hash(1);
        let mut left = Released::new(PARTITION, me, 7);
        left.look();
        assert!(left.rows(Ticket(1), Vec::new(), true).is_none());
        let stops = left.logs(Ticket(2), vec![(me, end(8))]);
        assert!(matches!(stops, Some(Want::Stop(_))));
    }

    #[test]
    fn what_failed_is_begun_again_after_a_while() {
        let mut left = Released::new(PARTITION, Incarnation::from_hash(1), 0);
        left.look();
        let again = left.failed(Now::mono(5));
        assert!(left.held_as(Now::mono(again - 1), Phase::Away).is_none());
        let look = left.held_as(Now::mono(again), Phase::Away);
        assert!(matches!(look, Some(Want::Look)));
        let stays = left.held_as(Now::mono(again), Phase::Holds);
        assert!(matches!(stays, Some(Want::Open { anew: false })));
    }
}
