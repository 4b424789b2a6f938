//! What a partition's machine wants is carried out, and what follows from what peers said.
//!
//! The machine (`crate::peers`) says in which order batches are stored and applied. What it wants of the disk is noted in the agenda and done when the
//! present input is handled ([`super::remote_batches`]).

use std::{collections::BTreeSet, ops::ControlFlow};

use whimbrel_crdt::{PartitionId, mutants::broken};
use whimbrel_mailbox::AccountId;
use whimbrel_replication::{partition::Entry, readers};
use whimbrel_storage::Room;

use super::{Mail, Partition, failover, snapshot, syncing};
use crate::{
    machine::{Now, Output, Ticket},
    peers::{PeerOutput, Wanted, log_retention::GivenUp},
};

/// Does what follows from what was heard.
pub(super) fn hear(mail: &mut Mail, now: Now, partition: PartitionId) {
    while let Some(output) = mail
        .partitions
        .running(partition)
        .and_then(|own| own.readers.poll())
    {
        match output {
            readers::Output::Wake(peer) => {
                let wake = PeerOutput::Wake(partition, peer);
                mail.out.push(Output::Peer(wake));
            }
            readers::Output::RemoteReaders(account) if !broken("heard-not-released") => {
                mail.release(now, AccountId(account));
            }
            readers::Output::Passes => {
                if let Some(own) = mail.partitions.running(partition) {
                    let passes = own.readers.passes().clone();
                    own.shipping.pass_on(now, passes);
                    ship(mail, now, partition);
                }
            }
            readers::Output::RemoteReaders(_) | readers::Output::Reads { .. } => {}
        }
    }
}

// --- The machine ---------------------------------------------------------------------------------------------------

/// Carries out what the partition's machine wants at once.
pub(super) fn ship(mail: &mut Mail, now: Now, partition: PartitionId) {
    loop {
        let ticket = mail.out.ticket();
        let Some(Partition::Running(own)) = mail.partitions.get_mut(&partition) else {
            return;
        };
        let Some(want) = own.shipping.poll() else {
            break;
        };
        match want.carry_out(partition, ticket, &mut own.log, mail.reads.logs()) {
            ControlFlow::Break(told) => mail.out.extend(told),
            ControlFlow::Continue(Wanted::Grown) => syncing::grown(mail, partition),
            ControlFlow::Continue(Wanted::Alone { own_lost, warning }) => {
                own.log.go_on_alone(mail.stamps.stamp(now), own_lost);
                mail.out.warn(warning);
            }
            ControlFlow::Continue(Wanted::Snapshot { asked }) => {
                snapshot::fix(mail, now, partition, asked);
            }
            ControlFlow::Continue(Wanted::ReadState {
                asked,
                state,
                after,
                bytes_max,
            }) => snapshot::read_state(mail, partition, asked, state, after, bytes_max),
            ControlFlow::Continue(Wanted::DropState(state)) => {
                own.states.give_no_more(state);
                mail.out.peer(PeerOutput::Release(state));
            }
        }
    }
    failover::report(mail, now, partition);
    failover::wake_for_reports(mail, partition);
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    let waits = own.shipping.next_work().is_some();
    let before = own.deadline();
    let after = own.reckon(now);
    if before != after {
        mail.agenda.move_look(before, after, partition);
    }
    if waits {
        mail.agenda.work(partition);
    }
    hear(mail, now, partition);
}

pub(super) fn log_read(mail: &mut Mail, now: Now, ticket: Ticket, entries: Vec<Entry>) {
    let Some(read) = mail.reads.logs().came(ticket) else {
        return;
    };
    if let Some(own) = mail.partitions.running(read.partition) {
        own.shipping.read(now, read.asked, read.origin, entries);
    }
    ship(mail, now, read.partition);
}

/// Logs are too long. What is cut for it goes now: perhaps nothing else is written for long.
pub(super) fn shorten(mail: &mut Mail, now: Now, logs: &GivenUp) {
    let partitions: BTreeSet<PartitionId> = logs.keys().map(|(of, _)| *of).collect();
    for partition in partitions {
        let Some(own) = mail.partitions.running(partition) else {
            continue;
        };
        own.shipping.give_up_logs(now, logs);
        cut_now(mail, now, partition);
    }
}

/// An import was forgotten that may come again. A node that heard of both, and of the removal between them, would keep it dead: should this one
/// be made a cluster, the others are given a state (docs/decisions/0042).
pub(super) fn is_forgotten(mail: &mut Mail, now: Now, partition: PartitionId) {
    if let Some(own) = mail.partitions.running(partition) {
        let upto = own.shipping.stable().clone();
        own.shipping.forgotten(now, &upto);
        cut_now(mail, now, partition);
    }
}

/// What the machine has cut of logs does not wait for the next commit.
fn cut_now(mail: &mut Mail, now: Now, partition: PartitionId) {
    ship(mail, now, partition);
    let ticket = mail.out.ticket();
    if let Some(own) = mail
        .partitions
        .running(partition)
        .filter(|own| own.log.cuts())
    {
        let mut commit = own.log.commit();
        commit.room = Room::Frees;
        mail.hand_out_for(partition, ticket, commit);
    }
}
