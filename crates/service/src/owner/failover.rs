//! Clients that come from other nodes (docs/design.md#rule-6; docs/decisions/0020).
//!
//! A client that names a UID which another node may have told it asks only for what lies above. What lies below, and was not shown there before it was told,
//! is claimed again before it is answered. So each member tells the others, for a whole partition, up to where it has shown all that is applied at it
//! ([`whimbrel_replication::announced`]); of what is missing in that a client may not know.
//!
//! Invariants:
//! - What is told is durable, and so is what was claimed again for it.
//! - Whatever clients name, an account's counter does not rise faster for it than [`ROOM_PER_SECOND`], but for [`ROOM_MAX`] at once.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use whimbrel_crdt::{Incarnation, PartitionId, VersionVector, mutants::broken};
use whimbrel_mailbox::{AccountId, MailboxName, Replica, Takeover};
use whimbrel_replication::announced::{self, EXCEPTED_MAX};
use whimbrel_storage::{Mutation, Room};

use super::{Account, Mail, Own, Phase, keys::partition_of};
use crate::{
    api::Failure,
    log,
    machine::{Now, Output, Ticket},
    peers::PeerOutput,
};

/// A report is sent at most so often for a partition. A client that moves within that time of a message costs a claim of it.
const REPORT_EVERY_MICROS: u64 = 200_000;

/// What others have shown is kept so often, with whatever is written then, and when a peer goes.
const KEEP_EVERY_MICROS: u64 = 10_000_000;

/// Claims that takeovers of one account may make at once, and numbers by which they may raise its counter: once as far as a client is believed.
const ROOM_MAX: u32 = 1 << 20;

/// So many of them come back in a second. All 2^26 take 77 days.
const ROOM_PER_SECOND: u64 = 10;

/// MODSEQs of one command of which it is looked up who told them: an owner works for no session longer.
const MODSEQS_MAX: usize = 256;

/// What takeovers of an account may still cost.
#[derive(Clone, Copy)]
pub(super) struct TakeoverRoom {
    left: u32,
    at: u64,
}

impl Default for TakeoverRoom {
    fn default() -> Self {
        TakeoverRoom {
            left: ROOM_MAX,
            at: 0,
        }
    }
}

impl TakeoverRoom {
    fn left(&mut self, now: Now) -> u32 {
        let seconds = now.mono_micros.saturating_sub(self.at) / 1_000_000;
        self.at += seconds * 1_000_000;
        let back = u32::try_from(seconds * ROOM_PER_SECOND).unwrap_or(ROOM_MAX);
        self.left = self.left.saturating_add(back).min(ROOM_MAX);
        self.left
    }

    fn take(&mut self, cost: u32) {
        self.left = self.left.saturating_sub(cost);
    }
}

/// What this node has shown of a partition, and when it is told.
#[derive(Default)]
pub(super) struct Reporting {
    /// A report that is true when the commit is durable.
    pending: Option<(Ticket, VersionVector, Vec<[u8; 16]>)>,
    /// The last one.
    vector: VersionVector,
    excepts: bool,
    /// None is made before.
    at: u64,
    /// What others have shown is not kept before.
    keep_at: u64,
}

/// What a client named, and where it says that it was.
pub(super) struct Names<'a> {
    pub(super) name: &'a MailboxName,
    /// UIDs, or UIDNEXTs.
    pub(super) numbers: &'a [u32],
    /// The UIDNEXT that was told here before the client came; `None`: that which is told now.
    pub(super) told: Option<u32>,
    /// The MODSEQ that it knows.
    pub(super) modseq: Option<u64>,
}

impl Own {
    /// Whether there is something to report.
    fn reports(&self) -> bool {
        self.shipping.has_peers()
            // What came with a state is not shown before it is joined. What cannot be joined is excepted, as all that cannot be opened.
            && self.states.has_joined()
            && self.reporting.pending.is_none()
            && (self.reporting.excepts || self.log.applied() != &self.reporting.vector)
    }

    /// When a report is due.
    pub(super) fn report_at(&self) -> Option<u64> {
        self.reports().then_some(self.reporting.at)
    }

    /// A commit is durable.
    pub(super) fn report_durable(&mut self, ticket: Ticket) {
        let pending = &mut self.reporting.pending;
        if let Some((_, vector, except)) = pending.take_if(|(of, ..)| *of <= ticket) {
            self.announced.say(vector, except);
        }
    }

    /// Keeps what others have shown, with the next commit.
    pub(super) fn keep_announced(&mut self, now: Now) {
        if now.mono_micros < self.reporting.keep_at {
            return;
        }
        if let Some(row) = self.announced_row() {
            self.reporting.keep_at = now.mono_micros + KEEP_EVERY_MICROS;
            self.log.keep(row);
        }
    }

    /// What others have shown, if there is more than what was kept last.
    pub(super) fn announced_row(&mut self) -> Option<Mutation> {
        let row = self.announced.row()?;
        Some(Mutation::Put {
            key: Bytes::from_static(log::ANNOUNCED_KEY),
            value: row.into(),
        })
    }

    /// A peer is gone: what it said last is kept at once.
    pub(super) fn keep_announced_soon(&mut self) {
        self.reporting.keep_at = 0;
    }
}

/// Reports what is shown here, if that is due.
pub(super) fn report(mail: &mut Mail, now: Now, partition: PartitionId) {
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    own.keep_announced(now);
    if !own.reports() || now.mono_micros < own.reporting.at {
        return;
    }
    own.reporting.at = now.mono_micros + REPORT_EVERY_MICROS;
    let waits = mail.agenda.hiding().filter(|account| {
        let entry = mail.accounts.get(account);
        entry.is_some_and(|of| of.partition == partition && of.wait_until.is_some())
    });
    let mut except: BTreeSet<[u8; 16]> = waits.map(|account| account.0).collect();
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    // Of bodies that were missing at the start it is perhaps not known whose they are.
    let missing_blobs = own.missing_blobs.accounts();
    let known = missing_blobs.is_some();
    except.extend(missing_blobs.into_iter().flatten().map(|account| account.0));
    except.extend(own.stalled.keys().map(|account| account.0));
    except.extend(own.late.iter().map(|account| account.0));
    own.reporting.excepts = !except.is_empty();
    if broken("hidden-is-reported") {
        except.clear();
    } else if !known || except.len() > EXCEPTED_MAX {
        own.reporting.excepts = true;
        return;
    }
    let (vector, except) = (own.log.applied().clone(), except.into_iter().collect());
    own.reporting.vector = vector.clone();
    match own
        .gate
        .newest()
        .filter(|_| !broken("reported-before-sync"))
    {
        Some(newest) => own.reporting.pending = Some((newest, vector, except)),
        None => own.announced.say(vector, except),
    }
}

/// The logs of these are closed.
pub(super) fn former(mail: &mut Mail, slots: BTreeMap<Incarnation, u8>) {
    let former: BTreeSet<Incarnation> = slots.keys().copied().collect();
    mail.config.former = slots;
    for (_, partition) in mail.partitions.iter_mut() {
        if let super::Partition::Running(own) = partition {
            own.announced.former(&former);
        }
    }
}

/// Whether this is another member, or was.
pub(super) fn is_of_members(mail: &Mail, node: Incarnation) -> bool {
    mail.config.peers.contains_key(&node) || mail.config.former.contains_key(&node)
}

/// Wakes those to whom something is to be reported.
pub(super) fn wake_for_reports(mail: &mut Mail, partition: PartitionId) {
    while let Some(announced::Output::Wake(peer)) = mail
        .partitions
        .running(partition)
        .and_then(|own| own.announced.poll())
    {
        let wake = PeerOutput::Wake(partition, peer);
        mail.out.push(Output::Peer(wake));
    }
}

/// Takes over from another node, or from an incarnation whose last time was lost, by what the client says that it was told. Says whether it has
/// something of that from there.
pub(super) fn named(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    names: &Names<'_>,
) -> Result<bool, Failure> {
    let lost = mail
        .accounts
        .replica(account)?
        .lost(names.name, names.numbers);
    let moved = moved(mail, now, account, names)?;
    let takeover = match (lost, moved) {
        (None, None) => return Ok(false),
        (Some(takeover), None) | (None, Some(takeover)) => takeover,
        (Some(mut lost), Some(moved)) => {
            lost.named.extend(moved.named);
            lost.announced = least(lost.announced, &moved.announced);
            lost
        }
    };
    let at = mail.at(now, account);
    let replica = mail.accounts.replica(account)?;
    let greatest = takeover.named.iter().map(|(_, uid)| uid / 64).max();
    let raise = greatest.unwrap_or(0).saturating_sub(replica.counter());
    let due = !replica.plan_takeover(&at, &takeover).ops.is_empty();
    let Some(entry) = mail.accounts.get_mut(&account) else {
        return Ok(true);
    };
    let left = entry.takeover_room.left(now);
    if due && (left == 0 || left < raise) {
        mail.counted.takeovers_refused += 1;
        return Ok(true);
    }
    entry.takeover_room.take(raise);
    mail.counted.takeovers += u64::from(due);
    mail.nobody_waits(account, true);
    let done = claim_below(mail, now, account, &takeover);
    mail.nobody_waits(account, false);
    done.map(|()| true)
}

fn claim_below(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    takeover: &Takeover,
) -> Result<(), Failure> {
    // What waits would be late when the marks have risen.
    mail.show_anew(now, account, Room::Vital, Replica::release);
    loop {
        let at = mail.at(now, account);
        let before = mail.accounts.replica(account)?.counter();
        let plan = mail.accounts.replica(account)?.plan_takeover(&at, takeover);
        if plan.ops.is_empty() {
            break;
        }
        let claims = mail.counted.uids_reassigned;
        mail.write(now, account, plan.ops, &[]);
        let claims = mail.counted.uids_reassigned - claims;
        mail.counted.takeover_uids += claims;
        if mail.accounts.replica(account)?.counter() == before {
            // It was refused: nothing more comes of it.
            break;
        }
        if let Some(entry) = mail.accounts.get_mut(&account) {
            let cost = u32::try_from(claims).unwrap_or(u32::MAX);
            entry.takeover_room.take(cost);
        }
    }
    let at = mail.at(now, account);
    if let Some(Account {
        phase: Phase::Running(replica),
        ..
    }) = mail.accounts.get_mut(&account)
    {
        replica.raise_marks(&at, takeover);
    }
    let names: Vec<&MailboxName> = takeover.named.iter().map(|(name, _)| name).collect();
    mail.write(now, account, Vec::new(), &names);
    Ok(())
}

/// [`MailboxCall::Believed`].
pub(super) fn believed(
    mail: &Mail,
    now: Now,
    account: AccountId,
    mut modseqs: Vec<u64>,
) -> Result<Vec<u64>, Failure> {
    // Beyond that none is believed: what is asked for has changed since, as far as anybody knows.
    modseqs.truncate(MODSEQS_MAX);
    let others = mail.config.slots_of_others();
    let replica = mail.accounts.replica(account)?;
    modseqs.retain(|modseq| replica.may_have_announced(*modseq, &others, now.wall_micros));
    Ok(modseqs)
}

/// What follows from numbers that other members may have told.
///
/// A MODSEQ of another member says where the client was: its slot is that of who gave it. With one of ours, or without, it may have been
/// anywhere, if it names what was not told here.
fn moved(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    names: &Names<'_>,
) -> Result<Option<Takeover>, Failure> {
    let (peers, former) = (mail.config.peers.clone(), mail.config.former.clone());
    if (peers.is_empty() && former.is_empty()) || broken("nobody-comes-from-elsewhere") {
        return Ok(None);
    }
    let at = mail.at(now, account);
    let partition = partition_of(account);
    // What it was told in an earlier life of this node it may rely on (`leaving`), though nothing of that is known here.
    let came_back = mail.partitions.generation(partition) > 0;
    let replica = mail.accounts.replica(account)?;
    let slot = names.modseq.map(|known| (known % 64) as u8);
    let was_here = came_back && slot == Some(replica.slot());
    // One that was here last may have from elsewhere what it has put there meanwhile (APPENDUID, COPYUID): then it names what was not told here.
    let slot = slot.filter(|slot| *slot != replica.slot());
    let told = names
        .told
        .unwrap_or_else(|| replica.announced_uidnext(names.name));
    let told = slot.is_none().then_some(told);
    let all = || peers.iter().chain(&former);
    let is_from_elsewhere = was_here || slot.is_some();
    let others = (!is_from_elsewhere).then(|| mail.config.slots_of_others());
    let Some(named) = replica.elsewhere(&at, told, names.numbers, others.as_ref()) else {
        return Ok(None);
    };
    if was_here {
        // It was shown all of that; UIDNEXT does not fall below what it was told.
        return Ok(Some(Takeover {
            named: vec![(names.name.clone(), named)],
            announced: replica.claimed(),
        }));
    }
    let with = |slots: &BTreeSet<u8>| -> Vec<Incarnation> {
        let with = all().filter(|(_, slot)| slots.contains(slot));
        with.map(|(member, _)| *member).collect()
    };
    let Some(super::Partition::Running(own)) = mail.partitions.get(&partition) else {
        return Ok(None);
    };
    // A slot comes back when all have been had: then it may have been given by either.
    let mut from = with(&slot.into_iter().collect());
    if from.is_empty() {
        // Who is away has shown nothing since, as who is no member any more.
        let serves = |member: &Incarnation| {
            peers.contains_key(member) && mail.config.has(*member, partition)
        };
        from = with(&replica.unknown_slots(names.name, told, names.numbers));
        from.retain(|member| !serves(member));
        let all: Vec<Incarnation> = peers.keys().copied().filter(serves).collect();
        // Who is new serves nobody yet, and has reported nothing: the whole mailbox would be claimed again at each move while it takes its state.
        let grown = all
            .iter()
            .filter(|member| !own.shipping.is_syncing_at(**member));
        let grown: Vec<Incarnation> = grown.copied().collect();
        from.extend(if grown.is_empty() { all } else { grown });
    }
    let shown = from.iter().map(|member| {
        let shown = own.announced.visible_vector(*member, account.0);
        shown.map_or(Vec::new(), |shown| replica.shown_by(shown))
    });
    let announced = shown.reduce(|all, shown| least(all, &shown));
    Ok(Some(Takeover {
        named: vec![(names.name.clone(), named)],
        announced: match broken("all-was-shown") {
            true => replica.claimed(),
            false => announced.unwrap_or_default(),
        },
    }))
}

/// For each slot the lesser of two counters.
fn least(all: Vec<(u8, u32)>, other: &[(u8, u32)]) -> Vec<(u8, u32)> {
    let lesser = |(slot, counter): (u8, u32)| {
        let (_, of) = other.iter().find(|(of, _)| *of == slot)?;
        Some((slot, counter.min(*of)))
    };
    all.into_iter().filter_map(lesser).collect()
}
