//! Rows in place of a log: a partition's state is given to a peer, or taken from one (docs/replication.md, "State in place of a log").
//!
//! A donor has its rows fixed by the store and reads them page by page. A receiver keeps what comes beside its own rows, under the name of the state, and when
//! the last row is there takes position and logs over in one small commit. From then on each account is the join of two: see [`super::joining`]. What a
//! partition remembers of this is in [`super::states`].
//!
//! Invariants:
//! - No state is given or taken over while the rows of an account stand for less than the position says: while one is stalled, or still to be joined.
//! - What comes holds the bodies that it names, here or not: from the commit that takes it over on others may rely on that (see [`super::deliveries`]).
//! - In memory there is one page.

use bytes::Bytes;
use whimbrel_crdt::PartitionId;
use whimbrel_replication::partition::Ticket as Asked;
use whimbrel_storage::{Commit, Mutation, Room};

use super::{
    Mail, Own, Phase, joining, keys,
    store_reads::{self, Fix},
};
use crate::{
    log::Log,
    machine::{Note, Now, Output, Ticket},
    peers::{
        Page, PeerOutput, Rows, Snapshot, SnapshotProgress, StateWork, Work,
        snapshot::{Joined, encode_rows},
        taking::{Takes, take},
    },
};

/// Bytes of rows that are removed, or copied, with one commit.
pub(super) const PAGE_BYTES: usize = 128 << 10;

/// What is read of rows for, page by page.
pub(super) enum Paging {
    /// For a peer that is given a state: what its machine asked for, and after which key.
    Give { asked: Asked, after: Vec<u8> },
    /// All that is left of the partition goes.
    Leave,
    /// What is held of this state goes.
    Sweep { state: u64 },
    /// Of the joining of accounts.
    Join(joining::Paging),
}

/// What is read of a state that is given.
pub(super) struct PageOfState {
    pub(super) partition: PartitionId,
    pub(super) asked: Asked,
    pub(super) after: Vec<u8>,
}

// --- Giving --------------------------------------------------------------------------------------------------------

/// The rows are to be fixed. While an account stands for less than the position they are not: whoever asked asks again, or another.
pub(super) fn fix(mail: &mut Mail, now: Now, partition: PartitionId, asked: Asked) {
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    if !own.may_give() {
        own.shipping.fixed(now, asked, None);
        return;
    }
    mail.reads.fix(&mut mail.out, Fix { partition, asked });
}

/// They were, or could not be. `fix`: what was asked, if it is still known.
pub(super) fn fixed(mail: &mut Mail, now: Now, fix: Option<Fix>, snapshot: Option<Snapshot>) {
    let Some(Fix { partition, asked }) = fix else {
        return release_state(mail, snapshot);
    };
    match mail.partitions.running(partition) {
        Some(own) if own.may_give() => {
            let given = u64::from(snapshot.is_some());
            if let Some(snapshot) = &snapshot {
                own.states.give(snapshot.state);
            }
            own.shipping.fixed(now, asked, snapshot);
            mail.counted.snapshots_sent += given;
        }
        Some(own) => {
            own.shipping.fixed(now, asked, None);
            release_state(mail, snapshot);
        }
        None => release_state(mail, snapshot),
    }
}

fn release_state(mail: &mut Mail, snapshot: Option<Snapshot>) {
    let release = snapshot.map(|snapshot| PeerOutput::Release(snapshot.state));
    mail.out.extend(release.map(Output::Peer));
}

/// The rows of a state behind a key.
pub(super) fn read_state(
    mail: &mut Mail,
    partition: PartitionId,
    asked: Asked,
    state: u64,
    after: Vec<u8>,
    bytes_max: usize,
) {
    let (mut from, to) = keys::state_range();
    if !after.is_empty() {
        from = [&after[..], &[0]].concat();
    }
    let of = Paging::Give { asked, after };
    read_page(mail, partition, of, Some(state), (from, to), bytes_max);
}

// --- Pages ---------------------------------------------------------------------------------------------------------

/// Reads one page of rows.
pub(super) fn read_page(
    mail: &mut Mail,
    partition: PartitionId,
    of: Paging,
    state: Option<u64>,
    range: (Vec<u8>, Vec<u8>),
    bytes_max: usize,
) -> Ticket {
    let page = store_reads::Page { partition, of };
    mail.reads
        .page(&mut mail.out, page, state, range, bytes_max)
}

/// Rows of a state were read, for a peer.
pub(super) fn given(mail: &mut Mail, now: Now, asked: PageOfState, page: Page) {
    let PageOfState {
        partition,
        asked,
        after,
    } = asked;
    let last = page.rows.last().map_or(after, |(key, _)| key.clone());
    let rows = page.rows.iter().filter(|(key, _)| keys::is_of_state(key));
    let rows = encode_rows(rows.map(|(key, value)| (&key[..], &value[..])));
    let end = page.end;
    if let Some(own) = mail.partitions.running(partition) {
        own.shipping.rows(now, asked, Rows { rows, last, end });
    }
}

// --- Taking --------------------------------------------------------------------------------------------------------

/// Does the next piece of work, which is of a state, if it can be done now.
pub(super) fn carry_on_state(mail: &mut Mail, partition: PartitionId) -> bool {
    let Some(own) = mail.partitions.running(partition) else {
        return false;
    };
    let next = own.shipping.next_work();
    let is_join = matches!(next, Some(Work::State(StateWork::Join { .. })));
    if is_join && !own.may_take_over() {
        tell_of_waiting_state(mail, partition);
        return false;
    }
    if let Some(Work::State(work)) = own.shipping.take_work() {
        work_on_state(mail, partition, work);
    }
    true
}

/// A state is here and waits for an account that cannot go on: whoever looks after the node is told once.
fn tell_of_waiting_state(mail: &mut Mail, partition: PartitionId) {
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    if own.stalled.is_empty() || !own.states.is_to_be_told() {
        return;
    }
    let text = format!(
        "a state of partition {} is here, and waits until no account of it is stalled",
        partition.0
    );
    mail.out.push(Output::Log(Note::Warning(text)));
}

fn work_on_state(mail: &mut Mail, partition: PartitionId, work: StateWork) {
    let ticket = mail.out.ticket();
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    let taken = match take(own, ticket, work) {
        Ok(Some(taken)) => taken,
        Ok(None) => return,
        Err(cause) => {
            return mail.out.warn(format!(
                "rows of a state of partition {} cannot be kept: {cause}",
                partition.0
            ));
        }
    };
    own.gate.submitted(ticket);
    own.shipping.committing(ticket, taken.then);
    if taken.joined.is_some() {
        taken_over(mail, partition);
    }
    mail.out.commit(ticket, partition, taken.commit);
}

/// Position, clock and logs are those of both. Accounts are read again when that is durable, and joined.
fn taken_over(mail: &mut Mail, partition: PartitionId) {
    mail.counted.snapshots_received += 1;
    // What is being read of them is of before.
    mail.reads.forget_accounts(partition);
    for (_, entry) in mail.accounts.of_mut(partition) {
        if !matches!(entry.phase, Phase::Purging) {
            mail.limits.forget(&mut entry.measured);
            entry.wait_until = None;
            entry.phase = Phase::Absent;
        }
    }
}

impl Takes for Own {
    fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    fn is_taking(&self) -> bool {
        self.states.taking().is_some()
    }

    fn begin(&mut self, held: SnapshotProgress, ticket: Ticket, commit: &mut Commit) {
        self.states.begin(held, ticket, commit);
    }

    fn keep(&mut self, last: Vec<u8>, rows: &Bytes) -> Result<Vec<Mutation>, String> {
        self.states.keep(self.log.partition(), last, rows)
    }

    fn commit_of_rows(&mut self) -> Commit {
        self.log.commit_of_others()
    }

    fn forget(&mut self, ticket: Ticket, commit: &mut Commit) {
        self.states.forget(ticket, commit);
    }

    fn take_over(
        &mut self,
        held: &SnapshotProgress,
        joined: Joined,
        ticket: Ticket,
        commit: &mut Commit,
    ) {
        for (origin, number) in held.snapshot.applied.iter() {
            self.readers.applied(origin, number, &[]);
        }
        self.announced.applied(self.log.applied());
        self.states.take_over(joined, ticket, commit);
        self.parting.lacks_anew();
    }
}

/// A commit is durable: what is of no use goes on going.
pub(super) fn swept_to(mail: &mut Mail, partition: PartitionId, ticket: Ticket) {
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    own.states.durable(ticket);
    sweep_on(mail, partition);
}

// --- What is of no use ----------------------------------------------------------------------------------------------

/// Removes the next page of what is held in vain, if there is any.
pub(super) fn sweep_on(mail: &mut Mail, partition: PartitionId) {
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    if own.retry_at.is_some() {
        return;
    }
    let Some(state) = own.states.next_sweep() else {
        return;
    };
    let range = keys::coming_range(state);
    read_page(
        mail,
        partition,
        Paging::Sweep { state },
        None,
        range,
        PAGE_BYTES,
    );
}

pub(super) fn sweep_page(mail: &mut Mail, partition: PartitionId, state: u64, page: Page) {
    let ticket = mail.out.ticket();
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    let mut commit = own.log.commit();
    commit.room = Room::Frees;
    own.states.sweep(state, page, ticket, &mut commit);
    mail.hand_out_for(partition, ticket, commit);
}

impl Own {
    /// Whether each account's rows stand for what the position says.
    fn may_give(&self) -> bool {
        self.stalled.is_empty() && self.states.joining().is_none()
    }

    /// Whether a state is here as a whole and waits for a stalled account.
    pub(super) fn has_waiting_state(&self) -> bool {
        let next = self.shipping.next_work();
        let is_join = matches!(next, Some(Work::State(StateWork::Join { .. })));
        is_join && !self.stalled.is_empty()
    }

    /// One after the other, and not while parts of batches are held: they would have to be applied before.
    fn may_take_over(&self) -> bool {
        self.stalled.is_empty() && self.states.joining().is_none()
    }
}
