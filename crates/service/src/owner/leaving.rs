//! A partition that this node leaves: nothing is served of it, until all who stay have what is here (`docs/decisions/0040`).
//!
//! First it goes on taking what others write, until all is stable that its clients may have been told of. Whatever it does not know then was made by
//! who had applied that, and has a greater UID than any that was told here; what it knows was shown, or has such a UID, too. So its clients overlook
//! nothing, wherever they go, and what it announces in its next life is true of them as well.
//!
//! From then on it takes nothing new. Each other member that holds the partition is asked, again and again, whether it has applied all that is on
//! disk here, with the bodies. An answer counts for what was asked: when more has come to this disk since, it is asked anew. When all have said so,
//! and they are enough, nothing is written here any more, whatever happens: the partition is [closed](super::released), and the driver is told so.
//!
//! What they ask and tell each other is remembered in [`super::parting`].
//!
//! Invariants:
//! - Who leaves answers nobody that leaves: two cannot rely on each other.
//! - Who answers knows that the other one leaves, so that it will not ask that one when it leaves itself.
//! - Nothing is under way to the disk when the partition is closed, and nothing is forwarded to it afterwards.
//! - No account is here in part when it is closed, and of no message has another holder the body, but not this node.

use std::collections::BTreeSet;

use whimbrel_crdt::{Incarnation, PartitionId, VersionVector, mutants::broken};
use whimbrel_mailbox::AccountId;
use whimbrel_replication::wire::{Covered, Leaving as Ask};

use super::{Mail, Own, Partition, parting::Takes, releasing, replication};
use crate::{
    machine::{Input, Now, Output},
    peers::{PeerOutput, Phase, off_wire},
};

impl Own {
    /// Whether accounts are here in part, or were not looked at: what is below the UIDs that were told of them is not claimed again. Who is syncing
    /// has told none.
    fn overlooks(&self) -> bool {
        let in_part =
            self.states.joining().is_some() || !self.stalled.is_empty() || !self.late.is_empty();
        in_part && !self.is_syncing() && !broken("left-in-part")
    }

    /// All that is on disk; `None`: something is under way to it.
    fn on_disk(&self) -> Option<VersionVector> {
        let durable = self.shipping.durable_vector();
        let whole = durable.get(self.log.origin()) + 1 == self.log.next();
        (self.gate.is_idle() && whole && !self.failed).then_some(durable)
    }
}

/// This node leaves a partition: from now on it serves nobody.
pub(super) fn begin_to_leave(mail: &mut Mail, now: Now, partition: PartitionId) {
    let own = mail.partitions.running(partition);
    let Some(own) = own.filter(|own| !own.parting.is_leaving()) else {
        return;
    };
    own.parting.leave();
    turn_out(mail, partition);
    leave_on(mail, now, partition);
}

/// It goes on holding it, after all.
pub(super) fn stay(mail: &mut Mail, now: Now, partition: PartitionId) {
    if let Some(own) = mail.partitions.running(partition)
        && own.parting.stay()
    {
        own.shipping.close(false);
        replication::ship(mail, now, partition);
    }
}

/// Sessions end and come again elsewhere, and deliveries are made by others.
fn turn_out(mail: &mut Mail, partition: PartitionId) {
    let mut waiting: Vec<(AccountId, Input)> = Vec::new();
    for (account, entry) in mail.accounts.of_mut(partition) {
        for session in std::mem::take(&mut entry.watchers) {
            mail.sessions.shut_down(&mut mail.out, session);
            mail.agenda.watched(account);
        }
        let inputs = std::mem::take(&mut entry.waiting);
        waiting.extend(inputs.into_iter().map(|input| (account, input)));
    }
    for (account, input) in waiting {
        mail.turn_away(account, input);
    }
    // Those who take the body of an entry may not be those who hold the account.
    let not_here = mail.deliveries.forget(partition).into_iter();
    mail.out.extend(not_here.map(Output::NotHere));
}

/// Whether clients are still to be answered, perhaps with UIDs that are yet to be claimed.
fn owes(mail: &Mail, partition: PartitionId) -> bool {
    let Some(Partition::Running(own)) = mail.partitions.get(&partition) else {
        return false;
    };
    own.confirming.waiting() > 0 || mail.agenda.owes_answers(partition)
}

/// Whether nobody who was a client here can overlook what is not here; then nothing new is taken.
fn has_parted(mail: &mut Mail, now: Now, partition: PartitionId) -> bool {
    let owes = owes(mail, partition);
    let Some(own) = mail.partitions.running(partition) else {
        return false;
    };
    if owes || !own.parting.is_leaving() {
        return false;
    }
    let syncing = own.is_syncing();
    let told = || match syncing {
        true => VersionVector::new(),
        false => own.log.applied().clone(),
    };
    match own.parting.takes(told, own.shipping.stable()) {
        Takes::All => return false,
        Takes::Nothing => {}
        Takes::NothingNow => {
            own.shipping.close(true);
            replication::ship(mail, now, partition);
        }
    }
    true
}

/// Asks those who stay, or closes the partition when all have answered.
pub(super) fn leave_on(mail: &mut Mail, now: Now, partition: PartitionId) {
    let own = mail.partitions.running(partition);
    if own.is_none_or(|own| !own.parting.is_leaving()) {
        return;
    }
    let has_parted = has_parted(mail, now, partition);
    let config = &mail.config;
    let Some(Partition::Running(own)) = mail.partitions.get_mut(&partition) else {
        return;
    };
    let is_due = own.parting.is_due(now);
    let Some(has) = own.on_disk().filter(|_| has_parted && !own.overlooks()) else {
        return;
    };
    let members = config.peers.keys().copied();
    let staying = members.filter(|peer| config.holds(*peer, partition));
    let generation = |peer| config.holders.holder_state(peer, partition).generation;
    let staying: Vec<_> = staying.map(|peer| (peer, generation(peer))).collect();
    let to_ask = own.parting.lack(&staying, &has);
    if to_ask.is_empty() || broken("left-unasked") {
        if staying.len() >= config.holders_min.max(1) {
            close(mail, now, partition);
        }
        return;
    }
    if !is_due {
        return;
    }
    for peer in to_ask {
        if mail.links.has(peer) {
            own.parting.ask(peer, partition, has.clone());
            mail.out.peer(PeerOutput::Wake(partition, peer));
        }
    }
}

/// A peer leaves, and asks whether all that it has is here.
pub(super) fn asked_to_cover(mail: &mut Mail, peer: Incarnation, ask: Ask) {
    let partition = ask.partition;
    let (me, config) = (mail.config.origin, &mail.config);
    let knows = config.holders.holder_state(peer, partition).phase == Phase::Leaves;
    if !knows || !config.holds(me, partition) {
        return;
    }
    let holders = config.peers.keys().copied().chain([me]);
    let holders = holders.filter(|node| config.holds(*node, partition));
    let holders = holders.collect();
    let Some(Partition::Running(own)) = mail.partitions.get_mut(&partition) else {
        return;
    };
    // Parts that are held, and accounts that are yet to be joined, are here and cannot be served; which bodies they lack is not known.
    let whole = !own.is_syncing() && own.states.joining().is_none() && own.stalled.is_empty();
    let has_all = own.shipping.applied_all(&ask.has) || broken("answers-without-all");
    if !whole || !has_all {
        return;
    }
    let holder_state = |of| config.holders.holder_state(of, partition).phase;
    let leaves = |peer| holder_state(peer) == Phase::Leaves;
    own.parting.retain(leaves);
    if own.parting.cover(peer, ask, holders, &own.missing_blobs) {
        mail.out.peer(PeerOutput::Wake(partition, peer));
    }
}

/// A peer has all that was on this disk when it was asked.
pub(super) fn covered(mail: &mut Mail, now: Now, peer: Incarnation, answer: Covered) {
    let partition = answer.partition;
    let config = &mail.config;
    // Of one that is no member here it is not known what it holds.
    let is_member = |node: &Incarnation| config.peers.contains_key(node);
    let is_known = |node: &Incarnation| {
        *node == config.origin || is_member(node) && config.holds(*node, partition)
    };
    // Who is found so is asked, when this node has heard of it, too.
    if !answer.holders.iter().all(is_known) {
        return;
    }
    let generation = config.holders.holder_state(peer, partition).generation;
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    let lacks: BTreeSet<_> = answer.lacks.iter().map(off_wire).collect();
    // What is hidden here for want of a body must be hidden there, too.
    let nowhere = lacks.iter().eq(own.missing_blobs.keys());
    if nowhere && own.parting.covered(peer, generation, answer.has) {
        leave_on(mail, now, partition);
    }
}

/// Nothing is written here from now on.
fn close(mail: &mut Mail, now: Now, partition: PartitionId) {
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    let end = own.log.next() - 1;
    mail.forget(partition);
    for account in mail.accounts.find(partition, |_| true) {
        mail.drop_account(account, crate::api::Failure::Temporary);
    }
    releasing::closed_at(mail, now, partition, end);
}
