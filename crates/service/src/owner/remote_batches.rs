//! Batches of other nodes become part of what is here.
//!
//! A partition's machine (`crate::peers`) says in which order batches are stored and applied; here each becomes one commit: the
//! batch, the rows it changed and the position, which says that it is applied. A batch waits until the accounts that it names are loaded, and what comes
//! behind it in the partition waits with it. Sessions are told as of local changes: MODSEQs are given when something is shown, and what is late
//! is claimed again at once (docs/design.md#rule-4).
//!
//! Who reads elsewhere: [`super::reading`]. What the partition's machine wants beside: [`super::replication`].

use whimbrel_crdt::{PartitionId, mutants::broken};
use whimbrel_mailbox::{AccountId, BlobName, Op, Replica, SpecialUse, Step};
use whimbrel_storage::{Mutation, Room};

use super::{
    Mail, Partition, Phase, blob_arrivals,
    missing_blobs::{Naming, brought, unnamed_by},
    replication,
    rows::{blob_of_batch, free_room, of_slot, released_body, take_state, take_visible},
    sent_copies::{SentMessage, USUAL_NAME},
    snapshot,
    split_commits::BATCH_BYTES_MAX,
};
use crate::{
    machine::{Now, Output},
    peers::{BatchWork, OnDurable, PeerOutput, Work},
};

// --- Batches of other nodes ----------------------------------------------------------------------------------------

/// Does the next piece of work, if it can be done now.
pub(super) fn carry_on(mail: &mut Mail, now: Now, partition: PartitionId) -> Option<Done> {
    let own = mail.partitions.running(partition)?;
    if own.retry_at.is_some() {
        return None;
    }
    let work = own.shipping.next_work()?;
    if matches!(work, Work::State(_)) {
        return snapshot::carry_on_state(mail, partition).then_some(Done::State);
    }
    let mut sections = Vec::new();
    if let Some(batch) = work.applies() {
        let named: Vec<AccountId> = batch
            .sections
            .iter()
            .map(|section| AccountId(section.subject))
            .collect();
        sections = batch.indexed_sections().map(Section::decode).collect();
        if !all_here(mail, &named) {
            return None;
        }
    }
    let own = mail.partitions.running(partition)?;
    let work = own.shipping.take_work()?;
    hand_over(mail, now, partition, work, sections)
}

/// Whether all of these accounts are in memory, or stalled; else they are being loaded.
fn all_here(mail: &mut Mail, accounts: &[AccountId]) -> bool {
    let mut all = true;
    for account in accounts {
        if mail.partitions.is_stalled(*account) {
            continue;
        }
        let here = matches!(
            mail.accounts.used(*account).phase,
            Phase::Running(_) | Phase::Unopened | Phase::Removed
        );
        if !here {
            all = false;
            mail.load(*account);
        }
    }
    all
}

/// One commit of a batch, and what follows from it.
fn hand_over(
    mail: &mut Mail,
    now: Now,
    partition: PartitionId,
    work: Work,
    mut sections: Vec<Section>,
) -> Option<Done> {
    let (earlier, ticket) = (mail.out.ticket(), mail.out.ticket());
    let Some(Partition::Running(own)) = mail.partitions.get_mut(&partition) else {
        return None;
    };
    let applies = work.applies().is_some();
    let BatchWork {
        asked,
        batch,
        foreign,
    } = work.of_batch()?;
    let (mut mutations, mut late, mut woken) = (Vec::new(), Vec::new(), Vec::new());
    let mut sent = Vec::new();
    let (mut shown, mut stalled, mut missed) = (Vec::new(), Vec::new(), Vec::new());
    // Mail that was removed elsewhere makes room here.
    let frees = |section: &Section| section.ops.as_ref().is_ok_and(|ops| free_room(ops));
    let room = match applies && sections.iter().all(frees) {
        true => Room::Frees,
        false => Room::Ordinary,
    };
    if applies {
        own.log.take(batch);
    }
    // What a part that is held names is not known.
    let all = || batch.blobs.iter().filter_map(|name| blob_of_batch(name));
    let mut naming = Naming::default();
    if applies {
        own.applied(batch);
    }
    if broken("foreign-not-applied") {
        sections.clear();
    }
    for Section {
        account,
        index,
        ops,
    } in sections
    {
        if own.stalled.contains_key(&account) {
            mutations.extend(own.hold(account, batch, index));
            naming.all(account, all());
            continue;
        }
        let Some(entry) = mail.accounts.get_mut(&account) else {
            continue;
        };
        if matches!(entry.phase, Phase::Removed) && !broken("removed-comes-back") {
            woken.push(account);
            continue;
        }
        let slot = mail.config.slot_of(batch.origin);
        let ops = match ops.and_then(|ops| of_slot(ops, slot)) {
            Ok(ops) => ops,
            // A later version made it: half of it must not be applied, and what comes after it rests on it.
            Err(cause) => {
                mutations.extend(own.hold(account, batch, index));
                naming.all(account, all());
                stalled.push((account, cause));
                continue;
            }
        };
        if matches!(entry.phase, Phase::Unopened | Phase::Removed) {
            woken.push(account);
            // Whoever writes to an account has seen it opened. If it is not open here, it was, and has been purged.
            if !ops.iter().any(|op| matches!(op, Op::Open { .. })) {
                continue;
            }
            let mut replica = Replica::new(account, mail.config.slot);
            own.begin(&mut replica, &mail.config.renewal());
            entry.phase = Phase::Running(Box::new(replica));
        }
        let Phase::Running(replica) = &mut entry.phase else {
            continue;
        };
        let brought = brought(&ops);
        brought.iter().for_each(|blob| replica.lack(*blob));
        let epoch = replica.epoch();
        replica.follow_epoch(Op::epoch_of_all(&ops));
        let peers = own.peers(now, account, &mail.config.peers);
        let step = Step::of(
            batch,
            index,
            own.log.applied(),
            own.log.hlc().last(),
            &peers,
        );
        let put = replica.put_into(&step, &ops, SpecialUse::Sent, USUAL_NAME);
        let applied = replica.apply(&step, ops);
        if slot.is_some() {
            let known = own.announced.all_visible(account.0);
            replica.note_claims(slot, batch.origin, batch.last(), &known);
        }
        let risen = (replica.epoch() > epoch).then(|| replica.uidvalidity());
        let mut rows = take_state(replica, account);
        let released = rows.iter().filter_map(released_body);
        let released: Vec<BlobName> = released
            .filter(|blob| own.missing_blobs.contains_key(blob))
            .collect();
        let bytes = mutations.iter().chain(&rows).map(Mutation::bytes);
        let fits = bytes.sum::<usize>() <= mail.config.foreign_bytes_max;
        let effects = match applied {
            Ok(effects) if fits => effects,
            Ok(_) => {
                // It is read again, without this, and takes it in as many commits as it needs. Who looks at it is told then.
                entry.phase = Phase::Absent;
                mail.limits.forget(&mut entry.measured);
                entry.newest = Some(ticket);
                entry.wait_until = None;
                mutations.extend(own.hold_for_now(account, batch, index));
                woken.retain(|of| *of != account);
                naming.all(account, all());
                continue;
            }
            Err(error) => {
                // Causal order was kept, so that something was lost, here or there. The state is half changed: it is read again at the next start.
                entry.phase = Phase::Absent;
                mutations.extend(own.hold(account, batch, index));
                naming.all(account, all());
                let (number, origin) = (batch.first, batch.origin.get());
                stalled.push((account, format!("batch {number} of {origin:016x}: {error}")));
                continue;
            }
        };
        naming.applied(account, brought, replica, &rows);
        let unnamed = unnamed_by(replica, released);
        rows.extend(
            own.missing_blobs
                .names_no_more(account, unnamed.iter().copied()),
        );
        missed.extend(unnamed);
        mutations.extend(rows);
        sent.extend(put.into_iter().map(|(message, content)| SentMessage {
            account,
            message,
            content: content.into(),
        }));
        shown.push((account, take_visible(replica, account)));
        let measured = mail.limits.measure(&mut entry.measured, replica);
        mail.out.extend(measured);
        entry.newest = Some(ticket);
        entry.wait_until = effects.wait_until;
        mail.agenda.show_at(effects.wait_until, account);
        if !entry.watchers.is_empty() {
            own.counters.push_back((ticket, account, replica.counter()));
        }
        late.push((account, effects.late, replica.hidden() > 0));
        mail.sessions
            .changed(&mut mail.out, account, &mut entry.watchers, &effects, risen);
        if risen.is_some() {
            mail.agenda.watched(account);
        }
    }
    for (blob, accounts) in naming.0 {
        mail.bodies.miss(blob, partition);
        mutations.extend(own.missing_blobs.lack(blob, &accounts, ticket));
        mail.out.push(Output::Peer(PeerOutput::Coming(blob)));
    }
    // A great batch and the rows that it changed may be two commits: after a crash in between it is in the log, and not applied.
    let bytes: usize = mutations.iter().map(Mutation::bytes).sum();
    let mut foreign = foreign;
    if applies && foreign.is_some_and(|of| of.bytes.len() + bytes > BATCH_BYTES_MAX) {
        let commit = own.log.foreign(foreign.take(), false);
        own.gate.submitted(earlier);
        mail.out.commit(earlier, partition, commit);
    }
    let mut commit = own.log.foreign(foreign, applies);
    commit.room = room;
    commit.mutations.extend(mutations);
    let rows = shown.iter().flat_map(|(_, rows)| rows);
    let bytes: usize = rows.map(Mutation::bytes).sum();
    if commit.bytes() + bytes <= BATCH_BYTES_MAX {
        let rows = shown.iter_mut().flat_map(|(_, rows)| rows.drain(..));
        commit.mutations.extend(rows);
    }
    own.gate.submitted(ticket);
    own.shipping.committing(ticket, OnDurable::Done(asked));
    mail.out.commit(ticket, partition, commit);
    for (account, rows) in shown {
        mail.write_rows(account, Room::Ordinary, rows.into_iter().map(Some));
    }
    for (account, cause) in stalled {
        mail.stall(account, &cause);
    }
    blob_arrivals::missed_no_more(mail, partition, missed);
    // Before anything is told that was not there a moment ago: what others were heard of now is below it.
    replication::hear(mail, now, partition);
    for (account, late, hidden) in late {
        if late {
            mail.claim_late(now, account);
        }
        if hidden {
            mail.collect_soon(now, account);
        }
    }
    Some(Done::Batch { woken, sent })
}

/// A piece of work that was done.
pub(super) enum Done {
    /// Of a state.
    State,
    /// A batch was stored, or applied.
    Batch {
        /// Accounts of which nothing was stored, and that are open now, or gone.
        woken: Vec<AccountId>,
        /// Copies of sent mail that it brought.
        sent: Vec<SentMessage>,
    },
}

/// The operations of a batch on one account.
struct Section {
    account: AccountId,
    /// Of the first of them, in the batch.
    index: u32,
    /// Or why they cannot be read.
    ops: Result<Vec<Op>, String>,
}

impl Section {
    fn decode((index, section): (u32, &whimbrel_crdt::Section)) -> Self {
        let ops = Op::decode_all(&section.ops).map_err(|error| error.to_string());
        let all = |ops: Vec<Op>| match ops.len() == section.count as usize {
            true => Ok(ops),
            false => Err("a section has not as many operations as it says".into()),
        };
        Section {
            account: AccountId(section.subject),
            index,
            ops: ops.and_then(all),
        }
    }
}
