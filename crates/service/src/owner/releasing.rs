//! Partitions that this node has left: what [`Released`] wants is carried out.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_crdt::{Incarnation, PartitionId};

use super::{
    Mail, Partition,
    released::{Released, Want},
    snapshot::{self, PAGE_BYTES, Paging},
};
use crate::{
    machine::{Now, Output, Ticket},
    peers::{LogEnd, Page},
};

/// Those who stay have all of it.
pub(super) fn closed_at(mail: &mut Mail, now: Now, partition: PartitionId, end: u64) {
    let left = Released::new(partition, mail.config.origin, end);
    let left = Partition::Released(Box::new(left));
    mail.partitions.insert(partition, left);
    look_at_holder(mail, now, partition);
}

/// What has been heard of who holds the partition may concern what this node has left.
pub(super) fn look_at_holder(mail: &mut Mail, now: Now, partition: PartitionId) {
    let (holders, me) = (&mail.config.holders, mail.config.origin);
    let phase = holders.holder_state(me, partition).phase;
    let left = mail.partitions.released(partition);
    match left.and_then(|left| left.held_as(now, phase)) {
        Some(Want::Look) => mail.look_at_released(partition),
        Some(Want::Open { anew }) => {
            mail.partitions.remove(&partition);
            mail.open(partition);
            if let (true, Some(Partition::Loading(opening))) =
                (anew, mail.partitions.get_mut(&partition))
            {
                opening.anew = true;
            }
        }
        _ => {}
    }
}

/// What another incarnation left, or came back to, goes.
pub(super) fn drop_of_another(
    mail: &mut Mail,
    partition: PartitionId,
    rows: Vec<(Vec<u8>, Bytes)>,
    logs: BTreeMap<Incarnation, LogEnd>,
) {
    let left = Released::of_another(partition, mail.config.origin, rows, logs);
    let left = Partition::Released(Box::new(left));
    mail.partitions.insert(partition, left);
    carry_out(mail, partition, Released::looked);
}

/// A page of the partition's own rows.
pub(super) fn rows_came(
    mail: &mut Mail,
    partition: PartitionId,
    page: Vec<(Vec<u8>, Bytes)>,
    done: bool,
) {
    carry_out(mail, partition, |left, ticket| {
        left.rows(ticket, page, done)
    });
}

/// Where the logs stand.
pub(super) fn logs_came(mail: &mut Mail, partition: PartitionId, ends: Vec<(Incarnation, LogEnd)>) {
    carry_out(mail, partition, |left, ticket| left.logs(ticket, ends));
}

/// Some of what is left is to go.
pub(super) fn page_came(mail: &mut Mail, now: Now, partition: PartitionId, page: Page) {
    if carry_out(mail, partition, |left, ticket| left.page(ticket, page)) {
        look_at_holder(mail, now, partition);
    }
}

/// A commit of what was left is durable, or was refused.
pub(super) fn committed(
    mail: &mut Mail,
    now: Now,
    partition: PartitionId,
    ticket: Ticket,
    done: bool,
) {
    let Some(left) = mail.partitions.released(partition) else {
        return;
    };
    if !done && left.waits_for(ticket) {
        return failed(mail, now, partition);
    }
    match left.committed(ticket) {
        Some(Want::Page) => read_next(mail, partition),
        Some(Want::Gone) => look_at_holder(mail, now, partition),
        _ => {}
    }
}

/// It is tried again after a while.
pub(super) fn failed(mail: &mut Mail, now: Now, partition: PartitionId) {
    if let Some(left) = mail.partitions.released(partition) {
        let at = left.failed(now);
        mail.agenda.look_at(at, partition);
    }
}

/// Takes a step, and does what is wanted for it; whether nothing is left.
fn carry_out(
    mail: &mut Mail,
    partition: PartitionId,
    step: impl FnOnce(&mut Released, Ticket) -> Option<Want>,
) -> bool {
    let ticket = mail.out.ticket();
    let left = mail.partitions.released(partition);
    match left.and_then(|left| step(left, ticket)) {
        Some(Want::Commit(commit)) => mail.out.commit(ticket, partition, commit),
        Some(Want::Page) => read_next(mail, partition),
        Some(Want::Stop(cause)) => mail.out.push(Output::Fatal(cause)),
        Some(Want::Gone) => return true,
        Some(Want::Look | Want::Open { .. }) | None => {}
    }
    false
}

fn read_next(mail: &mut Mail, partition: PartitionId) {
    let (from, to) = (vec![0], vec![0xff; 64]);
    snapshot::read_page(mail, partition, Paging::Leave, None, (from, to), PAGE_BYTES);
}
