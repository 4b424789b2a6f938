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
use whimbrel_storage::{Commit, Mutation, Room};

use super::{
    Mail, Partition, keys,
    rows::{blob_name, drop_coming, holder},
    snapshot::{self, PAGE_BYTES, Paging},
    stalled_accounts::released,
};
use crate::{
    log::{self, AWAY_KEY},
    machine::{Now, Output, Ticket},
    peers::{LogEnd, Page, Phase, READ_AGAIN_MICROS},
};

/// A partition of which nothing is served, nor written.
pub(super) struct Released {
    /// The last number of this node's log.
    pub(super) end: u64,
    pub(super) step: Step,
}

/// How far it is gone.
pub(super) enum Step {
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

impl Released {
    /// Whether nothing is left.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.step, Step::Gone)
    }
}

/// Those who stay have all of it.
pub(super) fn closed_at(mail: &mut Mail, now: Now, partition: PartitionId, end: u64) {
    let step = Step::Whole;
    let left = Partition::Released(Box::new(Released { end, step }));
    mail.partitions.insert(partition, left);
    left_on(mail, now, partition);
}

/// What has been heard of who holds the partition may concern what this node has left.
pub(super) fn left_on(mail: &mut Mail, now: Now, partition: PartitionId) {
    let holder_state = mail
        .config
        .holders
        .holder_state(mail.config.origin, partition);
    let Some(Partition::Released(left)) = mail.partitions.get(&partition) else {
        return;
    };
    match (&left.step, holder_state.phase) {
        (Step::Whole, Phase::Away) => mail.look_at_left(partition),
        (Step::Again(at), Phase::Away) if *at <= now.mono_micros => {
            mail.look_at_left(partition);
        }
        (Step::Again(at), _) if *at <= now.mono_micros => {
            mail.partitions.remove(&partition);
            mail.open(partition);
        }
        // It stays, or is back.
        (Step::Whole, Phase::Holds) | (Step::Gone, Phase::Holds | Phase::Leaves) => {
            mail.partitions.remove(&partition);
            mail.open(partition);
            // What came on the streams meanwhile was not taken.
            if let Some(Partition::Loading(opening)) = mail.partitions.get_mut(&partition) {
                opening.anew = true;
            }
        }
        _ => {}
    }
}

/// What another incarnation left, or came back to, is not all gone, or not all here: all of it goes, and this one begins with nothing.
pub(super) fn drop_of_another(
    mail: &mut Mail,
    partition: PartitionId,
    rows: Vec<(Vec<u8>, Bytes)>,
    logs: BTreeMap<Incarnation, LogEnd>,
) {
    let end = logs.get(&mail.config.origin).map_or(0, |own| own.last);
    let step = Step::Looking {
        rows,
        read: true,
        logs: Some(logs),
    };
    let left = Partition::Released(Box::new(Released { end, step }));
    mail.partitions.insert(partition, left);
    looked_at_left(mail, partition);
}

/// A page of the partition's own rows.
pub(super) fn left_rows(
    mail: &mut Mail,
    partition: PartitionId,
    page: Vec<(Vec<u8>, Bytes)>,
    done: bool,
) {
    if let Some(Released {
        step: Step::Looking { rows, read, .. },
        ..
    }) = mail.partitions.released(partition)
    {
        rows.extend(page);
        *read = done;
    }
    looked_at_left(mail, partition);
}

/// Where the logs stand.
pub(super) fn left_logs(mail: &mut Mail, partition: PartitionId, ends: Vec<(Incarnation, LogEnd)>) {
    if let Some(Released {
        step: Step::Looking { logs, .. },
        ..
    }) = mail.partitions.released(partition)
    {
        *logs = Some(ends.into_iter().collect());
    }
    looked_at_left(mail, partition);
}

fn looked_at_left(mail: &mut Mail, partition: PartitionId) {
    let (me, ticket) = (mail.config.origin, mail.out.ticket());
    let Some(left) = mail.partitions.released(partition) else {
        return;
    };
    let Released {
        end,
        step:
            Step::Looking {
                rows,
                read: true,
                logs: Some(logs),
            },
    } = left
    else {
        return;
    };
    let others = logs.keys().copied().filter(|origin| *origin != me);
    let others: Vec<Incarnation> = others.collect();
    let own = logs.get(&me);
    let last = own.map_or(0, |own| own.last);
    if last != *end {
        let cause = format!(
            "partition {} was left when its log had {end} operations, and it has {last}",
            partition.0
        );
        return mail.out.push(Output::Fatal(cause));
    }
    if rows.iter().any(|(key, _)| key == AWAY_KEY) {
        left.step = Step::Dropping(others);
        return drop_next_of_left(mail, partition);
    }
    let position = rows.iter().find(|(key, _)| key == log::POSITION_KEY);
    let position = position.map(|(_, record)| &record[..]);
    let away = match log::away(partition, me, own, position) {
        Ok(away) => away,
        Err(error) => return mail.out.push(Output::Fatal(error.to_string())),
    };
    let mut commit = Commit::new(log::store_partition(partition));
    commit.room = Room::Frees;
    commit.mutations.push(away);
    commit.mutations.push(Mutation::Delete {
        key: Bytes::from_static(log::POSITION_KEY),
    });
    commit.cuts = log::cuts_at_ends(logs);
    left.step = Step::Committing(ticket, others);
    mail.out.commit(ticket, partition, commit);
}

fn drop_next_of_left(mail: &mut Mail, partition: PartitionId) {
    let (from, to) = (vec![0], vec![0xff; 64]);
    snapshot::read_page(mail, partition, Paging::Leave, None, (from, to), PAGE_BYTES);
}

/// Some of what is left is to go.
pub(super) fn left_page(mail: &mut Mail, now: Now, partition: PartitionId, page: Page) {
    let ticket = mail.out.ticket();
    let Some(left) = mail.partitions.released(partition) else {
        return;
    };
    let Step::Dropping(logs) = &mut left.step else {
        return;
    };
    let logs = std::mem::take(logs);
    let mut commit = Commit::new(log::store_partition(partition));
    commit.room = Room::Frees;
    for (key, value) in page.rows.into_iter().filter(|(key, _)| key != AWAY_KEY) {
        let key = Bytes::from(key);
        if let Some(account) = keys::account_of_key(&key) {
            if let Ok(RowKey::Content(origin)) = keys::row_of_key(&key)
                && let Ok(content) = Content::decode(&value)
            {
                commit.mutations.push(Mutation::Release {
                    blob: blob_name(&content.blob),
                    holder: holder(account, origin),
                });
            }
            if keys::is_held(&key) {
                commit.mutations.extend(released(&key, &value));
            }
        }
        if keys::is_coming(&key) {
            drop_coming(&mut commit.mutations, key, &value);
        } else {
            commit.mutations.push(Mutation::Delete { key });
        }
    }
    let is_last = page.end && commit.mutations.is_empty();
    if is_last && logs.is_empty() {
        left.step = Step::Gone;
        return left_on(mail, now, partition);
    }
    left.step = match is_last {
        true => {
            let logs = logs.into_iter().map(|origin| origin.get());
            commit.forgets = logs.map(whimbrel_storage::Origin).collect();
            Step::Ending(ticket)
        }
        false => Step::Committing(ticket, logs),
    };
    mail.out.commit(ticket, partition, commit);
}

/// A commit of what was left is durable, or was refused.
pub(super) fn left_committed(
    mail: &mut Mail,
    now: Now,
    partition: PartitionId,
    ticket: Ticket,
    done: bool,
) {
    let Some(left) = mail.partitions.released(partition) else {
        return;
    };
    match &mut left.step {
        Step::Committing(of, _) | Step::Ending(of) if *of == ticket && !done => {
            left_failed(mail, now, partition);
        }
        Step::Committing(of, logs) if *of == ticket => {
            left.step = Step::Dropping(std::mem::take(logs));
            drop_next_of_left(mail, partition);
        }
        Step::Ending(of) if *of == ticket => {
            left.step = Step::Gone;
            left_on(mail, now, partition);
        }
        _ => {}
    }
}

/// It is tried again after a while.
pub(super) fn left_failed(mail: &mut Mail, now: Now, partition: PartitionId) {
    let at = now.mono_micros + READ_AGAIN_MICROS;
    if let Some(left) = mail.partitions.released(partition) {
        left.step = Step::Again(at);
        mail.agenda.look_at(at, partition);
    }
}
