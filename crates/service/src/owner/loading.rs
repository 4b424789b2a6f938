//! An account was read, or there is none: it comes into memory, is opened if the directory knows it, and makes the operations that are due. What waited
//! for it goes to the agenda, to be handled by the owner.

use whimbrel_crdt::{Dot, mutants::broken};
use whimbrel_mailbox::{AccountId, At, MailboxName, Op, Peers, Replica, SpecialUse};
use whimbrel_storage::Room;

use super::{Mail, Partition, Phase, deferred_loads, keys, rows::push_row};
use crate::{
    api::{Event, Failure},
    machine::{AccountStatus, Now, Output},
};

/// What every account is born with (RFC 6154), besides INBOX.
const DEFAULT_FOLDERS: [(&str, SpecialUse); 5] = [
    ("Drafts", SpecialUse::Drafts),
    ("Sent", SpecialUse::Sent),
    ("Archive", SpecialUse::Archive),
    ("Junk", SpecialUse::Junk),
    ("Trash", SpecialUse::Trash),
];

/// The account was read, and nothing is to be joined to it (any more). `None`: nothing is stored.
pub(super) fn loaded(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    mut replica: Option<Box<Replica>>,
) {
    let at = mail.at(now, account);
    let Some(entry) = mail.accounts.get_mut(&account) else {
        return;
    };
    let Some(Partition::Running(own)) = mail.partitions.get_mut(&entry.partition) else {
        return;
    };
    let stalled = own.stalled.contains_key(&account);
    if let Some(replica) = &mut replica {
        replica.lack_all(&own.missing_blobs);
        own.missing_blobs
            .hold_back(account, replica.missing_blobs());
        if !mail.config.peers.is_empty() {
            // What was claimed before it had peers: whoever has our next operation knows it.
            let shown = own.announced.all_visible(account.0);
            replica.note_claims(None, own.log.origin(), own.log.next(), &shown);
        }
    }
    match replica {
        Some(mut replica) if stalled => {
            replica.lead(&at, &mail.config.renewal(), None);
            mail.resume(account, *replica);
        }
        Some(replica) => run(mail, now, account, *replica, Vec::new()),
        None if stalled => {
            let mut replica = Replica::new(account, mail.config.slot);
            own.begin(&mut replica, &mail.config.renewal());
            mail.resume(account, replica);
        }
        None => {
            entry.phase = Phase::Asking;
            mail.out.push(Output::AskBirth(account));
        }
    }
}

pub(super) fn born(mail: &mut Mail, now: Now, account: AccountId, account_status: AccountStatus) {
    match mail.accounts.get(&account) {
        Some(entry) if matches!(entry.phase, Phase::Asking) => {}
        _ => return,
    }
    if mail.partitions.is_next(account) {
        // The batch opens it, here as where it was made; whether it is served the directory says at each login. One that was removed must not come back.
        return mail.unopened(account, account_status != AccountStatus::Removed);
    }
    let birth = match account_status {
        AccountStatus::Living(birth) => birth,
        AccountStatus::Removed => return mail.gone(account),
        AccountStatus::Unknown => {
            mail.keep_back_mail(account);
            return mail.gone(account);
        }
    };
    if mail.partitions.is_syncing(keys::partition_of(account)) {
        // Nobody but a batch opens it, and that one was done away with meanwhile.
        return mail.drop_account(account, Failure::Temporary);
    }
    let mut replica = Replica::new(account, mail.config.slot);
    let Some(Partition::Running(own)) = mail.partitions.get(&keys::partition_of(account)) else {
        return;
    };
    own.begin(&mut replica, &mail.config.renewal());
    // These are valid names: a test opens an account.
    let folders: Vec<_> = DEFAULT_FOLDERS
        .iter()
        .filter_map(|(name, special_use)| Some((MailboxName::new(name).ok()?, Some(*special_use))))
        .collect();
    let mut ops = replica
        .plan_open(birth.created, birth.uid_validity, &folders)
        .ops;
    // Many clients show nothing but what is subscribed, and would not find the copies in Sent. A node that opens the account before it has heard of
    // the others subscribes again what a user of theirs has unsubscribed meanwhile.
    let inbox = (MailboxName::inbox(), None);
    for (name, _) in std::iter::once(&inbox).chain(&folders) {
        let plan = replica.plan_subscribe(name);
        ops.extend(plan.map(|plan| plan.ops).unwrap_or_default());
    }
    let told = birth.risen.max(birth.uid_validity).max(birth.created);
    if let Some(least) = own.log.least_opened(told) {
        // What was told of it is lost: no UID can be vouched for (docs/design.md#rule-7).
        let at = mail.at(now, account);
        ops.extend(replica.plan_epoch(&at, least).ops);
    } else if birth.risen > birth.uid_validity.max(birth.created) {
        // Whoever has raised it is in an epoch of which the operation has not come. Under one UIDVALIDITY there is one epoch (`proofs/spec/Epochs.v`).
        ops.push(Op::Epoch {
            uidvalidity: birth.risen,
        });
    }
    run(mail, now, account, replica, ops);
}

/// The account is in memory: makes the operations due, then takes up what waits.
pub(super) fn run(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    mut replica: Replica,
    mut ops: Vec<Op>,
) {
    let Some(entry) = mail.accounts.get_mut(&account) else {
        return;
    };
    let Some(Partition::Running(own)) = mail.partitions.get(&entry.partition) else {
        return;
    };
    // What waited for other replicas when it was stored has waited long enough: accounts that wait are not evicted.
    replica.release(own.log.hlc().last(), &Peers::none());
    let at = At {
        now_micros: mail.stamps.stamp(now).wall_micros,
        next: Dot::new(own.log.origin(), own.log.next()),
    };
    let renewal = mail.config.renewal();
    let mut first = Vec::new();
    if replica.needs_renewal(&renewal) {
        // An older copy of the disk was put back. What is late is claimed again after this, in the same call.
        let plan = replica.plan_renewal(&at, &renewal);
        replica.renew(
            &renewal,
            plan.outcome,
            own.log.hlc().last().max(at.now_micros),
        );
        ops = plan.ops;
        for (row, value) in replica.take_first_rows(plan.outcome) {
            push_row(&mut first, account, &row, value);
        }
    } else if ops.is_empty() && (!own.is_syncing() || broken("syncing-claims")) {
        // A syncing one makes operations when it has grown (`claim_what_is_known`).
        ops = match own.log.least_found(replica.uidvalidity()) {
            Some(least) => replica.plan_epoch(&at, least).ops,
            // A crash may have come between a RENAME and the claims that follow from it.
            None => {
                let peers = own.peers(now, account, &mail.config.peers);
                replica.plan_late(&at, &peers).ops
            }
        };
        // Alone, this node's spelling is the only one.
        if ops.is_empty() && !mail.config.peers.is_empty() {
            ops = replica.plan_spellings().ops;
        }
    }
    if replica.epoch() > 0 {
        // The directory may have missed it.
        mail.out
            .push(Output::UidValidity(account, replica.uidvalidity()));
    }
    let is_syncing = own.is_syncing();
    mail.counted.accounts_loads += 1;
    let spells = replica.spells_as_heard();
    let hidden = replica.hidden() > 0;
    let counter = replica.counter();
    entry.phase = Phase::Running(Box::new(replica));
    let waiting = std::mem::take(&mut entry.waiting);
    if !entry.watchers.is_empty() {
        // They have stayed through a failed commit, and what waited then is shown now.
        mail.agenda.watched(account);
        let told = entry.watchers.iter();
        let told = told.map(|session| Output::Notify(*session, Event::Changed));
        mail.out.extend(told);
        // What was read may be newer than what was told of it.
        let partition = entry.partition;
        if let Some(own) = mail.partitions.running(partition)
            && !broken("read-again-counter-not-told")
        {
            own.rose(account, counter);
        }
    }
    if hidden {
        // Removed before the last stop, and not yet collected.
        mail.collect_soon(now, account);
    }
    if spells {
        mail.spell_soon(now, account);
    }
    mail.write_rows(account, Room::Ordinary, first.into_iter().map(Some));
    mail.write(now, account, ops, &[]);
    if is_syncing {
        mail.claim_late(now, account);
    }
    deferred_loads::is_looked_at(mail, now, account);
    mail.agenda.handle_again(waiting);
}
