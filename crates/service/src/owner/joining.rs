//! A state was taken over: each account becomes the join of its rows and those that came.
//!
//! It is done when an account is loaded, before anything else is done to it, and for all others one after the other in the background. The content rows of
//! the state are copied first, page by page, with a hold of their bodies; then the joined rows are written, and the commit with the last of them
//! removes the state's *account row*: while that is there, the account is to be joined. A crash before it leaves rows of which some are joined;
//! joining them again with the same two vectors gives the same.
//!
//! Nothing is made of rows of an account that the directory has removed: they go.
//!
//! Steps: the rows of one account are handled at once, as when it is loaded; of all else at most a page.

use std::collections::BTreeMap;

use whimbrel_crdt::{PartitionId, mutants::broken};
use whimbrel_mailbox::{AccountId, BlobName, Content, MessageId, Replica, RowKey};
use whimbrel_storage::{Mutation, Room, StoreError};

use super::{
    Mail, Partition, Phase, blob_arrivals, confirming, deferred_loads, keys, loading,
    missing_blobs::unnamed_by,
    pending_merge::PendingMerge,
    rows::{blob_name, drop_coming, holder, push_row},
    snapshot::{self, PAGE_BYTES, Paging as Pages},
    syncing,
};
use crate::{
    api::Failure,
    machine::{AccountStatus, Now, Output, Ticket},
    peers::{Page, PeerOutput, snapshot::Joined},
};

/// A state that was taken over.
pub(super) struct Joining {
    joined: Joined,
    /// The commit that says so, until it is durable.
    after: Option<Ticket>,
    /// Accounts below this key of a coming row have been seen to.
    cursor: Vec<u8>,
    /// What the background does.
    busy: Busy,
    /// Some account cannot be joined: until the next start.
    left: bool,
}

enum Busy {
    Idle,
    /// It reads which account is next; another page is of an earlier attempt.
    Looking(Ticket),
    Account(AccountId),
    /// Rows of an account that was joined, or is removed, go: a page of them is read.
    Finding(Ticket),
    /// The commit that has to be durable before the next page.
    Dropping(AccountId, Ticket),
    /// All are joined but those that cannot be: it reads which bodies these may name.
    Naming(Ticket, PendingMerge),
    /// That is done, too; `None`: it is not known.
    Ended(Option<PendingMerge>),
}

/// An account that is being joined.
pub(super) struct Coming {
    /// As it is here; `None`: nothing is.
    own: Option<Box<Replica>>,
    theirs: Vec<(RowKey, Vec<u8>)>,
    /// The page that is being read: another is of an earlier attempt.
    reading: Ticket,
    /// Content rows that messages here name, with the bodies in them.
    known: BTreeMap<MessageId, BlobName>,
    /// The commit with the last copied contents.
    after: Option<Ticket>,
    /// Bodies that it holds, and that may not be here. Asked for when it is durable: one that is here for another's sake may go until then.
    wanted: Vec<BlobName>,
    /// All contents are copied.
    copied: bool,
    /// The directory was asked for it.
    asked: bool,
}

/// What is read.
pub(super) enum Paging {
    /// The first coming row from the cursor on.
    Next,
    /// Rows of the account that came, but contents; those read so far are in its phase.
    Rows(AccountId),
    Contents(AccountId),
    /// Rows of an account that are of no use.
    Drop(AccountId),
    /// All rows that are left.
    Names,
}

impl Joining {
    /// Only accounts that cannot be joined are left.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.busy, Busy::Naming(..) | Busy::Ended(_))
    }

    /// As it was at the start.
    pub(super) fn of(joined: Joined) -> Self {
        let (cursor, _) = keys::coming_range(joined.state);
        Joining {
            joined,
            after: None,
            cursor,
            busy: Busy::Idle,
            left: false,
        }
    }

    /// It is taken over with this commit.
    pub(super) fn begun(joined: Joined, ticket: Ticket) -> Self {
        let mut joining = Joining::of(joined);
        joining.after = Some(ticket);
        joining
    }

    /// Whether accounts can be read: before, the rows that came may not be there.
    pub(super) fn is_durable(&self) -> bool {
        self.after.is_none()
    }

    /// Whether it is known of this body whether it is missing: all accounts that may name it are joined.
    pub(super) fn knows(&self, blob: &BlobName) -> bool {
        matches!(&self.busy, Busy::Ended(Some(pending_merge)) if !pending_merge.may_name(blob))
    }
}

// --- One account ----------------------------------------------------------------------------------------------------

/// The rows of an account were read (`None`: there are none). If the partition is being joined, so is the account, perhaps; else `own` comes back.
pub(super) fn join_loaded(
    mail: &mut Mail,
    account: AccountId,
    own: Option<Box<Replica>>,
) -> Result<(), Option<Box<Replica>>> {
    let partition = keys::partition_of(account);
    let Some(joining) = mail.partitions.joining(partition) else {
        return Err(own);
    };
    let range = keys::coming_of(joining.joined.state, keys::loaded_range(account));
    let known = own.iter().flat_map(|replica| replica.contents());
    let coming = Coming {
        known: known.collect(),
        own,
        theirs: Vec::new(),
        reading: Ticket(0),
        after: None,
        wanted: Vec::new(),
        copied: false,
        asked: false,
    };
    let Some(entry) = mail.accounts.get_mut(&account) else {
        return Ok(());
    };
    entry.phase = Phase::Joining(Box::new(coming));
    read_of(mail, account, Paging::Rows(account), range);
    Ok(())
}

/// Reads the next page of what came of an account.
fn read_of(mail: &mut Mail, account: AccountId, of: Paging, range: (Vec<u8>, Vec<u8>)) {
    let partition = keys::partition_of(account);
    let reading = snapshot::read_page(mail, partition, Pages::Join(of), None, range, PAGE_BYTES);
    if let Some(coming) = mail.accounts.coming(account) {
        coming.reading = reading;
    }
}

pub(super) fn join_page(
    mail: &mut Mail,
    now: Now,
    partition: PartitionId,
    ticket: Ticket,
    of: Paging,
    page: Page,
) {
    if let Paging::Rows(account) | Paging::Contents(account) = &of {
        let coming = mail.accounts.coming(*account);
        if coming.is_none_or(|coming| coming.reading != ticket) {
            return;
        }
        if mail.partitions.joining(partition).is_none() {
            // The last row went while it was looked for.
            return joined_already(mail, now, *account);
        }
    }
    let busy = mail
        .partitions
        .joining(partition)
        .map(|joining| &joining.busy);
    match (&of, busy) {
        (Paging::Next, Some(Busy::Looking(reading))) if *reading == ticket => {}
        (Paging::Drop(_), Some(Busy::Finding(reading))) if *reading == ticket => {}
        (Paging::Names, Some(Busy::Naming(reading, _))) if *reading == ticket => {}
        (Paging::Next | Paging::Drop(_) | Paging::Names, _) => return,
        (Paging::Rows(_) | Paging::Contents(_), _) => {}
    }
    match of {
        Paging::Next => next_found(mail, partition, page),
        Paging::Rows(account) => rows_came(mail, now, account, page),
        Paging::Contents(account) => contents_came(mail, now, account, page),
        Paging::Drop(account) => drop_page(mail, partition, account, page),
        Paging::Names => names_page(mail, partition, page),
    }
}

/// A page of what came of an account.
fn rows_came(mail: &mut Mail, now: Now, account: AccountId, page: Page) {
    let partition = keys::partition_of(account);
    let Some(state) = joined_state(mail, partition) else {
        return;
    };
    let Some(coming) = mail.accounts.coming(account) else {
        return;
    };
    let last = page.rows.last().map(|(key, _)| key.clone());
    for (key, value) in page.rows {
        match keys::row_of_key(keys::key_of_coming(&key)) {
            Ok(row) => coming.theirs.push((row, value.to_vec())),
            Err(error) => return cannot_join(mail, account, &error.to_string()),
        }
    }
    if let (false, Some(last)) = (page.end, last) {
        let (_, to) = keys::coming_of(state, keys::loaded_range(account));
        let from = [&last[..], &[0]].concat();
        return read_of(mail, account, Paging::Rows(account), (from, to));
    }
    let is_complete = matches!(coming.theirs.first(), Some((RowKey::Account, _)));
    if !is_complete {
        // It is joined, or nothing came of it. What is left of it goes in the background.
        return joined_already(mail, now, account);
    }
    if coming.own.is_none() && !broken("removed-comes-back-by-state") {
        coming.asked = true;
        return mail.out.push(Output::AskBirth(account));
    }
    copy_contents(mail, account);
}

/// The directory has said what it knows of an account of which rows came and none are here.
pub(super) fn born_joining(
    mail: &mut Mail,
    _now: Now,
    account: AccountId,
    account_status: AccountStatus,
) -> bool {
    let next = mail.partitions.is_next(account);
    let Some(coming) = mail.accounts.coming(account) else {
        return false;
    };
    if !std::mem::take(&mut coming.asked) {
        return true;
    }
    if account_status != AccountStatus::Removed {
        copy_contents(mail, account);
    } else if next {
        // The batch is passed over; the rows go in the background.
        mail.unopened(account, false);
    } else {
        mail.drop_account(account, Failure::NoSuchAccount);
        drop_rows(mail, account);
    }
    join_on(mail, keys::partition_of(account));
    true
}

/// The name of the state that is joined.
fn joined_state(mail: &mut Mail, partition: PartitionId) -> Option<u64> {
    let joining = mail.partitions.joining(partition)?;
    Some(joining.joined.state)
}

/// Copies the next page of content rows.
fn copy_contents(mail: &mut Mail, account: AccountId) {
    let partition = keys::partition_of(account);
    let Some(state) = joined_state(mail, partition) else {
        return;
    };
    let range = keys::coming_of(state, keys::content_range(account));
    read_of(mail, account, Paging::Contents(account), range);
}

fn contents_came(mail: &mut Mail, now: Now, account: AccountId, page: Page) {
    let ticket = mail.out.ticket();
    // All are read before anything is done: what would be known to be missing by the good ones would be in no row.
    let read = page.rows.into_iter().map(|(key, value)| {
        match keys::row_of_key(keys::key_of_coming(&key)) {
            Ok(RowKey::Content(origin)) => {
                let blob = Content::decode(&value).ok()?.blob;
                Some((key, origin, blob, value))
            }
            _ => None,
        }
    });
    let Some(rows) = read.collect::<Option<Vec<_>>>() else {
        return cannot_join(mail, account, "a content row that came cannot be read");
    };
    let Some(entry) = mail.accounts.get_mut(&account) else {
        return;
    };
    let (Phase::Joining(coming), Some(Partition::Running(own))) =
        (&mut entry.phase, mail.partitions.get_mut(&entry.partition))
    else {
        return;
    };
    coming.copied = page.end;
    let mut mutations = Vec::with_capacity(rows.len() * 4);
    for (key, origin, blob, value) in rows {
        // One that was imported may have another body there: the join takes the greater one.
        let known = coming.known.get(&origin);
        if known.is_none_or(|known| *known < blob) {
            mutations.extend(known.map(|known| Mutation::Release {
                blob: blob_name(known),
                holder: holder(account, origin),
            }));
            mail.bodies.miss(blob, entry.partition);
            mutations.extend(own.missing_blobs.lack(blob, &[account].into(), ticket));
            coming.wanted.push(blob);
            let row = RowKey::Content(origin);
            push_row(&mut mutations, account, &row, Some(value.to_vec()));
        }
        drop_coming(&mut mutations, key.into(), &value);
    }
    let partition = entry.partition;
    if !mutations.is_empty() {
        coming.after = Some(ticket);
        entry.newest = Some(ticket);
        let mut commit = own.log.commit_of_others();
        commit.mutations.extend(mutations);
        mail.hand_out_for(partition, ticket, commit);
        // Goes on when this is durable: so nothing piles up, and no page has the same rows.
        return;
    }
    join_account(mail, now, account);
}

/// All that is needed is in memory, and the contents are copied.
fn join_account(mail: &mut Mail, now: Now, account: AccountId) {
    let planned = mail.at(now, account);
    let Some(entry) = mail.accounts.get_mut(&account) else {
        return;
    };
    let Some(Partition::Running(own)) = mail.partitions.get_mut(&entry.partition) else {
        return;
    };
    let Some(joined) = own.states.joining().map(|joining| &joining.joined) else {
        return;
    };
    if !matches!(entry.phase, Phase::Joining(_)) {
        return;
    }
    let Phase::Joining(coming) = std::mem::replace(&mut entry.phase, Phase::Absent) else {
        return;
    };
    let Coming {
        own: mine, theirs, ..
    } = *coming;
    let gone_rows: Vec<RowKey> = theirs.iter().map(|(row, _)| row.clone()).collect();
    let mut theirs = theirs;
    if broken("state-without-hidden") {
        let whole = Replica::load(account, mail.config.slot, theirs.clone(), &joined.theirs);
        let living = whole.map(|replica| replica.replicated_rows(false));
        theirs = living.unwrap_or_default();
    }
    let other = match Replica::load(account, mail.config.slot, theirs, &joined.theirs) {
        Ok(other) => other,
        Err(error) => {
            let cause = format!("what came of it cannot be loaded: {error}");
            return cannot_join(mail, account, &cause);
        }
    };
    let mut replica = mine.map_or_else(
        || {
            let mut replica = Replica::new(account, mail.config.slot);
            own.begin(&mut replica, &mail.config.renewal());
            replica
        },
        |replica| *replica,
    );
    // Bodies may have come since it was read.
    replica.lack_all(&own.missing_blobs);
    let mut missing_blobs: Vec<BlobName> = other.contents().map(|(_, blob)| blob).collect();
    missing_blobs.retain(|blob| own.missing_blobs.contains_key(blob));
    missing_blobs.iter().for_each(|blob| replica.lack(*blob));
    let mine = replica.contents().map(|(_, blob)| blob);
    missing_blobs.extend(mine.filter(|blob| own.missing_blobs.contains_key(blob)));
    let epoch = replica.epoch();
    let peers = own.peers(now, account, &mail.config.peers);
    let at = own.log.hlc().last();
    replica.lead(&planned, &mail.config.renewal(), Some(&other));
    let effects = replica.join(&joined.mine, &other, &joined.theirs, at, &peers);
    let risen = (replica.epoch() > epoch).then(|| replica.uidvalidity());
    if !mail.config.peers.is_empty() {
        // Whoever has our next operation knows what is here now.
        let shown = own.announced.all_visible(account.0);
        replica.note_claims(None, own.log.origin(), own.log.next(), &shown);
    }
    mail.sessions
        .changed(&mut mail.out, account, &mut entry.watchers, &effects, risen);
    if risen.is_some() {
        mail.agenda.watched(account);
    }
    // Mailboxes before messages, what vanished before what is no longer shown: half of it can be loaded, and tells too much rather than too little.
    let mut rows = replica.take_dirty();
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut units: Vec<Vec<Mutation>> = Vec::with_capacity(rows.len());
    for (row, value) in rows {
        let mut unit = Vec::with_capacity(1);
        push_row(&mut unit, account, &row, value);
        units.push(unit);
    }
    let (state, partition) = (joined.state, entry.partition);
    // As of one that was loaded: some may be named by the rows of other accounts alone.
    own.missing_blobs
        .hold_back(account, replica.missing_blobs());
    // Not all messages stay: what is gone at one of the two is gone.
    let unnamed = unnamed_by(&replica, missing_blobs);
    units.push(
        own.missing_blobs
            .names_no_more(account, unnamed.iter().copied()),
    );
    // The account row is the first, and says that the account is to be joined.
    let gone = |row: &RowKey| Mutation::Delete {
        key: keys::coming_key(state, &keys::row_key(account, row)).into(),
    };
    units.extend(gone_rows.iter().map(|row| vec![gone(row)]));
    let stalled = own.stalled.contains_key(&account);
    // It is in memory from now on, so that commits are its own.
    let measured = mail.limits.measure(&mut entry.measured, &mut replica);
    mail.out.extend(measured);
    mail.counted.accounts_joined += 1;
    mail.write_rows(account, Room::Ordinary, units);
    blob_arrivals::missed_no_more(mail, partition, unnamed);
    if stalled {
        mail.resume(account, replica);
    } else {
        loading::run(mail, now, account, replica, Vec::new());
    }
}

/// Nothing is to be joined any more: the account goes on as it was loaded.
fn joined_already(mail: &mut Mail, now: Now, account: AccountId) {
    let Some(entry) = mail.accounts.get_mut(&account) else {
        return;
    };
    let Phase::Joining(coming) = std::mem::replace(&mut entry.phase, Phase::Absent) else {
        return;
    };
    loading::loaded(mail, now, account, coming.own);
}

/// What came cannot be joined: the account stalls, and what came of it stays.
fn cannot_join(mail: &mut Mail, account: AccountId, cause: &str) {
    if let Some(joining) = mail.partitions.joining(keys::partition_of(account)) {
        joining.left = true;
    }
    mail.stall(account, &format!("it cannot be joined: {cause}"));
}

/// An account is removed: if others are joined but those that cannot be, it may have been the last of these. What came of it goes.
pub(super) fn join_anew(mail: &mut Mail, partition: PartitionId) {
    if let Some(joining) = mail.partitions.joining(partition)
        && joining.left
    {
        let (first, _) = keys::coming_range(joining.joined.state);
        (joining.cursor, joining.busy, joining.left) = (first, Busy::Idle, false);
        mail.agenda.join(partition);
    }
}

// --- All accounts ---------------------------------------------------------------------------------------------------

/// A commit is durable: what waited for it goes on. Gives accounts of which contents are copied, and whether these were all
/// ([`copy_on`]).
pub(super) fn join_committed(
    mail: &mut Mail,
    partition: PartitionId,
    ticket: Ticket,
) -> Vec<(AccountId, bool)> {
    let Some(joining) = mail.partitions.joining(partition) else {
        return Vec::new();
    };
    if joining.after.is_some_and(|after| after <= ticket) {
        joining.after = None;
        deferred_loads::load_wanted(mail, partition);
    }
    let mut copying = Vec::new();
    if let Some(joining) = mail.partitions.joining(partition)
        && let Busy::Dropping(account, after) = joining.busy
        && after <= ticket
    {
        drop_next(mail, account);
    }
    for (account, entry) in mail.accounts.of_mut(partition) {
        if let Phase::Joining(coming) = &mut entry.phase
            && coming.after.is_some_and(|after| after <= ticket)
        {
            coming.after = None;
            let wanted = coming.wanted.drain(..).map(PeerOutput::Request);
            mail.out.extend(wanted.map(Output::Peer));
            copying.push((account, coming.copied));
        }
    }
    copying
}

/// A page of the contents of an account is copied: the next one follows, or the account is joined.
pub(super) fn copy_on(mail: &mut Mail, now: Now, account: AccountId, copied: bool) {
    if copied {
        join_account(mail, now, account);
    } else {
        copy_contents(mail, account);
    }
}

/// Goes on with the next account, when the one before is done.
pub(super) fn join_on(mail: &mut Mail, partition: PartitionId) {
    let Some(Partition::Running(own)) = mail.partitions.get(&partition) else {
        return;
    };
    let Some(joining) = own.states.joining() else {
        return;
    };
    if !joining.is_durable() || own.failed || own.retry_at.is_some() {
        return;
    }
    match joining.busy {
        Busy::Looking(_)
        | Busy::Finding(_)
        | Busy::Dropping(..)
        | Busy::Naming(..)
        | Busy::Ended(_) => return,
        Busy::Idle => {}
        Busy::Account(account) => {
            let entry = mail.accounts.get(&account);
            let writing = entry.is_some_and(|entry| entry.under_way(&mail.out).is_some());
            match entry.map(|entry| &entry.phase) {
                // It waits for something that comes.
                Some(
                    Phase::Loading { .. }
                    | Phase::Asking
                    | Phase::Joining(_)
                    | Phase::Resuming(_)
                    | Phase::Purging,
                ) => return,
                // Reading it has failed, or its rows were read before the state was there.
                Some(Phase::Absent) => return mail.load(account),
                Some(Phase::Running(_) | Phase::Unopened | Phase::Removed) if writing => return,
                Some(Phase::Running(_) | Phase::Unopened | Phase::Removed) | None => {}
            }
        }
    }
    let (_, to) = keys::coming_range(joining.joined.state);
    let from = joining.cursor.clone();
    let of = Pages::Join(Paging::Next);
    let reading = snapshot::read_page(mail, partition, of, None, (from, to), 1);
    if let Some(joining) = mail.partitions.joining(partition) {
        joining.busy = Busy::Looking(reading);
    }
}

/// The next row that came, and is not joined.
fn next_found(mail: &mut Mail, partition: PartitionId, page: Page) {
    let ticket = mail.out.ticket();
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    let Some(joining) = own.states.joining_mut() else {
        return;
    };
    joining.busy = Busy::Idle;
    let state = joining.joined.state;
    let Some((key, _)) = page.rows.first() else {
        if !joining.left {
            let mut commit = own.log.commit();
            commit.room = Room::Frees;
            own.states.joined(&mut commit);
            mail.hand_out_for(partition, ticket, commit);
            confirming::answer_of_bodies(mail, partition);
        } else {
            let all = keys::coming_range(state);
            read_names(mail, partition, PendingMerge::default(), all);
        }
        // Who cannot be joined is not served: the others need not wait for that.
        return syncing::all_joined(mail, partition);
    };
    let theirs = keys::key_of_coming(key);
    let Some(account) = keys::account_of_key(theirs) else {
        return;
    };
    let is_complete = matches!(keys::row_of_key(theirs), Ok(RowKey::Account));
    // Looked at again when it is done: then nothing of it is there, or rows that are of no use.
    joining.cursor = keys::coming_key(state, theirs);
    let stalled = own.stalled.get(&account).is_some_and(|of| of.tried);
    if stalled && is_complete {
        let joining = own.states.joining_mut();
        if let Some(joining) = joining {
            joining.left = true;
            let (_, end) = keys::whole_range(account);
            joining.cursor = keys::coming_key(state, &end);
        }
        mail.agenda.work(partition);
        mail.agenda.join(partition);
        return;
    }
    if !is_complete {
        return drop_rows(mail, account);
    }
    if let Some(joining) = own.states.joining_mut() {
        joining.busy = Busy::Account(account);
    }
    mail.accounts.used(account);
    mail.load(account);
    mail.agenda.join(partition);
}

/// Removes all that came of an account.
fn drop_rows(mail: &mut Mail, account: AccountId) {
    if let Some(joining) = mail.partitions.joining(keys::partition_of(account)) {
        // Whatever the background does: it looks again from where it was.
        joining.busy = Busy::Idle;
        drop_next(mail, account);
    }
}

fn drop_next(mail: &mut Mail, account: AccountId) {
    let partition = keys::partition_of(account);
    let Some(state) = joined_state(mail, partition) else {
        return;
    };
    let range = keys::coming_of(state, keys::whole_range(account));
    let of = Pages::Join(Paging::Drop(account));
    let reading = snapshot::read_page(mail, partition, of, None, range, PAGE_BYTES);
    if let Some(joining) = mail.partitions.joining(partition) {
        joining.busy = Busy::Finding(reading);
    }
}

fn drop_page(mail: &mut Mail, partition: PartitionId, account: AccountId, page: Page) {
    let ticket = mail.out.ticket();
    let Some(own) = mail.partitions.running(partition) else {
        return;
    };
    let Some(joining) = own.states.joining_mut() else {
        return;
    };
    if page.rows.is_empty() {
        joining.busy = Busy::Idle;
        mail.agenda.join(partition);
        return;
    }
    joining.busy = Busy::Dropping(account, ticket);
    let mut commit = own.log.commit();
    commit.room = Room::Frees;
    for (key, value) in page.rows {
        drop_coming(&mut commit.mutations, key.into(), &value);
    }
    mail.hand_out_for(partition, ticket, commit);
}

/// Reads the next page of what is left of accounts that cannot be joined.
fn read_names(
    mail: &mut Mail,
    partition: PartitionId,
    so_far: PendingMerge,
    rest: (Vec<u8>, Vec<u8>),
) {
    let of = Pages::Join(Paging::Names);
    let reading = snapshot::read_page(mail, partition, of, None, rest, PAGE_BYTES);
    if let Some(joining) = mail.partitions.joining(partition) {
        joining.busy = Busy::Naming(reading, so_far);
    }
}

fn names_page(mail: &mut Mail, partition: PartitionId, page: Page) {
    let Some(joining) = mail.partitions.joining(partition) else {
        return;
    };
    let Busy::Naming(_, mut pending_merge) =
        std::mem::replace(&mut joining.busy, Busy::Ended(None))
    else {
        return;
    };
    let last = page.rows.last().map(|(key, _)| key.clone());
    for (key, value) in page.rows {
        // By no other rows bodies are named that are not known here.
        let row = keys::row_of_key(keys::key_of_coming(&key));
        if let Ok(RowKey::Content(_)) = row
            && !Content::decode(&value).is_ok_and(|of| pending_merge.note(&of.blob))
        {
            // Then nothing is said of any.
            return;
        }
    }
    if let (false, Some(last)) = (page.end, last) {
        let (_, to) = keys::coming_range(joining.joined.state);
        let from = [&last[..], &[0]].concat();
        return read_names(mail, partition, pending_merge, (from, to));
    }
    joining.busy = Busy::Ended(Some(pending_merge.all_noted()));
    confirming::answer_of_bodies(mail, partition);
}

/// Reading has failed.
pub(super) fn join_page_failed(
    mail: &mut Mail,
    partition: PartitionId,
    of: &Paging,
    cause: &StoreError,
) {
    match of {
        Paging::Rows(account) | Paging::Contents(account) if !cause.is_temporary() => {
            cannot_join(mail, *account, &cause.to_string());
        }
        Paging::Rows(account) | Paging::Contents(account) => {
            mail.drop_account(*account, Failure::Temporary);
        }
        Paging::Next | Paging::Drop(_) | Paging::Names => {
            if let Some(joining) = mail.partitions.joining(partition)
                && matches!(
                    joining.busy,
                    Busy::Looking(_) | Busy::Finding(_) | Busy::Naming(..)
                )
            {
                joining.busy = Busy::Idle;
            }
        }
    }
}

/// Looks whether the background can go on.
pub(super) fn join_all(mail: &mut Mail) {
    for partition in mail.agenda.take_joins() {
        join_on(mail, partition);
        if mail.partitions.joining(partition).is_some() {
            mail.agenda.join(partition);
        }
    }
}
