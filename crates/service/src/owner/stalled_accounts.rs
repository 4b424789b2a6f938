//! Accounts that cannot go on here: a row that cannot be read, an operation that a later version made, one that names what is not here.
//!
//! Nothing of such an account is half done, and nothing else waits for it: its part of each batch is *held*, in rows of its own, in the commit by
//! which the batch counts as applied. The account is not served until a start at which all that is held can be applied, in its order; so it makes no
//! operation meanwhile that would not rest on what is held, and to other nodes the batches are applied: whatever names a record that they have
//! collected was made before that, and is held here with all that it rests on.
//!
//! What is held lies on disk, however much it is; of the account a number is in memory.
//!
//! What another node's batch changes may be more than one commit has room for: rows are greater here than where it was made, by keywords of which its
//! maker had not heard. Then its part is held, too, and applied at once in as many commits as it needs. Each has the rows of some messages and, in
//! the held row, the operations that are left: a crash between two of them leaves an account that goes on with these (docs/decisions/0091).

use bytes::Bytes;
use minicbor::{Decode, Encode};
use whimbrel_crdt::{Batch, Incarnation, VersionVector, mutants::broken};
use whimbrel_mailbox::{AccountId, Cut, Op, Peers, Step};
use whimbrel_storage::{Mutation, Room};

use super::{
    Mail, Own, Partition, Phase, blob_arrivals, keys, loading,
    missing_blobs::unnamed_by,
    rows::{blob_name, blob_of_batch, free_room, of_slot, take_state, take_visible},
    split_commits::BATCH_BYTES_MAX,
};
use crate::{
    log,
    machine::{Note, Now, Output},
};

/// Bytes of a held row beside its operations and the names of bodies: the key, numbers, and a version vector.
const HELD_BYTES: usize = 64 << 10;

/// Bytes that a body's name takes in a held row beside the name, and its hold or release.
const BLOB_BYTES: usize = 256;

/// An account that cannot go on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stalled {
    /// The number of the next part of a batch that is held; 0: none was.
    next: u64,
    /// It was tried since the start.
    pub(super) tried: bool,
    /// Nothing is wrong with it: what is held needs more than one commit.
    is_cut: bool,
}

/// A part of a batch that is held.
#[derive(Encode, Decode)]
struct HeldPart {
    #[n(0)]
    origin: Incarnation,
    /// Number and time of the first operation.
    #[n(1)]
    first: u64,
    #[n(2)]
    hlc: u64,
    #[n(3)]
    deps: VersionVector,
    #[n(4)]
    count: u32,
    #[cbor(n(5), with = "minicbor::bytes")]
    ops: Vec<u8>,
    /// Bodies that the batch names. They are held, too: nobody else may have them later.
    #[n(6)]
    blobs: Vec<minicbor::bytes::ByteVec>,
}

impl HeldPart {
    fn decode(bytes: &[u8]) -> Result<HeldPart, String> {
        minicbor::decode(bytes).map_err(|error| format!("what is held cannot be read: {error}"))
    }

    fn row(&self, key: Bytes) -> Mutation {
        Mutation::Put {
            key,
            value: log::encode(self).into(),
        }
    }

    /// A hold of its bodies under this key, or its end.
    fn references(
        &self,
        key: &Bytes,
        mutation: impl Fn(whimbrel_storage::BlobName, Bytes) -> Mutation,
    ) -> Vec<Mutation> {
        let blobs = self.blobs.iter().filter_map(|name| blob_of_batch(name));
        blobs
            .map(|blob| mutation(blob_name(&blob), key.clone()))
            .collect()
    }
}

/// The account's stalled row of a partition, read.
pub(super) fn stalled_of_row(key: &[u8], value: &[u8]) -> Option<(AccountId, Stalled)> {
    let account = log::stalled_of_key(key)?;
    let next = u64::from_be_bytes(value.try_into().ok()?);
    let stalled = Stalled {
        next,
        ..Stalled::default()
    };
    Some((account, stalled))
}

/// The bodies that a held row holds, under its key.
///
/// # Errors
/// When the row is damaged.
pub(crate) fn held_blobs(value: &[u8]) -> Result<Vec<whimbrel_storage::BlobName>, String> {
    let held = HeldPart::decode(value)?;
    let blobs = held.blobs.iter().filter_map(|name| blob_of_batch(name));
    Ok(blobs.map(|blob| blob_name(&blob)).collect())
}

/// Ends that.
pub(super) fn released(key: &Bytes, value: &[u8]) -> Vec<Mutation> {
    let held = HeldPart::decode(value);
    let release = |blob, holder| Mutation::Release { blob, holder };
    held.map_or(Vec::new(), |held| held.references(key, release))
}

impl Own {
    /// Keeps the section of the batch whose first operation has this index, for later. From now on the account is stalled.
    pub(super) fn hold(&mut self, account: AccountId, batch: &Batch, index: u32) -> Vec<Mutation> {
        let mutations = self.keep(account, batch, index);
        self.stalled.entry(account).or_default().tried = true;
        mutations
    }

    /// The same, until the commit is durable: then it is applied ([`resume_on`](super::deferred_loads::resume_on)).
    pub(super) fn hold_for_now(
        &mut self,
        account: AccountId,
        batch: &Batch,
        index: u32,
    ) -> Vec<Mutation> {
        let mutations = self.keep(account, batch, index);
        self.stalled.entry(account).or_default().is_cut = true;
        mutations
    }

    fn keep(&mut self, account: AccountId, batch: &Batch, index: u32) -> Vec<Mutation> {
        let stalled = self.stalled.entry(account).or_default();
        let mut sections = batch.indexed_sections();
        let Some((_, section)) = sections.find(|(first, _)| *first == index) else {
            return Vec::new();
        };
        let held = HeldPart {
            origin: batch.origin,
            first: batch.first + u64::from(index),
            hlc: batch.stamp.hlc + u64::from(index),
            deps: batch.deps.clone(),
            count: section.count,
            ops: section.ops.to_vec(),
            blobs: batch
                .blobs
                .iter()
                .map(|name| name.to_vec().into())
                .collect(),
        };
        let key = keys::held_key(account, stalled.next);
        stalled.next += 1;
        let mut mutations =
            held.references(&key, |blob, holder| Mutation::Reference { blob, holder });
        mutations.push(held.row(key));
        mutations.push(Mutation::Put {
            key: log::stalled_key(account),
            value: Bytes::copy_from_slice(&stalled.next.to_be_bytes()),
        });
        mutations
    }
}

pub(super) fn held_page(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    page: Vec<(Vec<u8>, Bytes)>,
    done: bool,
) {
    for (key, value) in page {
        // It failed at an earlier one.
        if !matches!(mail.accounts.get(&account), Some(entry) if matches!(entry.phase, Phase::Resuming(_)))
        {
            return;
        }
        if let Err(cause) = apply_held(mail, account, key.into(), &value) {
            return mail.stall(account, &cause);
        }
    }
    if done {
        resumed(mail, now, account);
    }
}

/// Applies what one row holds, in as many commits as it needs; it goes in the last of them.
fn apply_held(mail: &mut Mail, account: AccountId, key: Bytes, value: &[u8]) -> Result<(), String> {
    let mut held = HeldPart::decode(value)?;
    let ops = Op::decode_all(&held.ops).map_err(|error| error.to_string())?;
    let mut ops = of_slot(ops, mail.config.slot_of(held.origin))?;
    while !ops.is_empty() {
        ops = apply_some(mail, account, &key, &mut held, ops)?;
    }
    Ok(())
}

/// One commit of what a row holds. Gives what is left, which the row then holds.
fn apply_some(
    mail: &mut Mail,
    account: AccountId,
    key: &Bytes,
    held: &mut HeldPart,
    ops: Vec<Op>,
) -> Result<Vec<Op>, String> {
    let Some(entry) = mail.accounts.get_mut(&account) else {
        return Ok(Vec::new());
    };
    let (Phase::Resuming(replica), Some(Partition::Running(own))) =
        (&mut entry.phase, mail.partitions.get_mut(&entry.partition))
    else {
        return Ok(Vec::new());
    };
    // What is left is written beside it.
    let blobs = held.blobs.iter().map(|name| name.len() + BLOB_BYTES);
    let besides = HELD_BYTES + held.ops.len() + blobs.sum::<usize>();
    let bytes_max = mail.config.foreign_bytes_max.saturating_sub(besides);
    let Cut { ops, done, rest } = replica.cut(ops, bytes_max);
    let rest = if broken("rest-is-lost") {
        Vec::new()
    } else {
        rest
    };
    let room = match free_room(&ops) {
        true => Room::Frees,
        false => Room::Ordinary,
    };
    replica.follow_epoch(Op::epoch_of_all(&ops));
    let blobs = held.blobs.iter().filter_map(|name| blob_of_batch(name));
    blobs
        .filter(|blob| own.missing_blobs.contains_key(blob))
        .for_each(|blob| replica.lack(blob));
    let peers = Peers::none();
    let step = Step {
        origin: held.origin,
        first: held.first,
        hlc: held.hlc,
        deps: &held.deps,
        applied: own.log.applied(),
        now_micros: own.log.hlc().last(),
        peers: &peers,
    };
    replica
        .apply(&step, ops)
        .map_err(|error| error.to_string())?;
    // As of one that was loaded: rows may say so of other accounts alone.
    own.missing_blobs
        .hold_back(account, replica.missing_blobs());
    let mut mutations = take_state(replica, account);
    if rest.is_empty() {
        // Not before the rows hold the bodies.
        let release = |blob, holder| Mutation::Release { blob, holder };
        mutations.extend(held.references(key, release));
        mutations.push(Mutation::Delete { key: key.clone() });
    } else {
        // One that was cut is in both parts, under its number.
        held.first += done as u64;
        held.hlc += done as u64;
        held.count -= done as u32;
        held.ops = Op::encode_all(&rest);
        mutations.push(held.row(key.clone()));
    }
    if mutations.iter().map(Mutation::bytes).sum::<usize>() > BATCH_BYTES_MAX {
        return Err("what it changes is more than a commit has room for".into());
    }
    let shown = take_visible(replica, account);
    mail.write_rows(account, room, [mutations]);
    mail.write_rows(account, room, shown.into_iter().map(Some));
    Ok(rest)
}

/// Nothing is held any more.
fn resumed(mail: &mut Mail, now: Now, account: AccountId) {
    let Some(entry) = mail.accounts.get_mut(&account) else {
        return;
    };
    let partition = entry.partition;
    let Some(Partition::Running(own)) = mail.partitions.get_mut(&partition) else {
        return;
    };
    let Phase::Resuming(replica) = std::mem::replace(&mut entry.phase, Phase::Absent) else {
        return;
    };
    let was = own.stalled.remove(&account).unwrap_or_default();
    let gone = Mutation::Delete {
        key: log::stalled_key(account),
    };
    if !was.is_cut {
        mail.out.push(Output::Log(Note::Warning(format!(
            "account {account} goes on: all that was held for it is applied"
        ))));
    }
    // What was held might have named more.
    let unnamed = unnamed_by(&replica, own.missing_blobs.named_by(account));
    let rows = own
        .missing_blobs
        .names_no_more(account, unnamed.iter().copied());
    mail.write_rows(account, Room::Ordinary, [vec![gone], rows]);
    blob_arrivals::missed_no_more(mail, partition, unnamed);
    loading::run(mail, now, account, *replica, Vec::new());
}
