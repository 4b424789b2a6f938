//! From what was read of a partition to the partition that runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_mailbox::AccountId;
use whimbrel_replication::{announced::Announced, partition::Resume, readers::Readers};

use super::{
    Mail, Own, Partition,
    collect::StableBefore,
    confirming::Confirming,
    failover::Reporting,
    missing_blobs::{MissingBlob, MissingBlobs},
    parting::Parting,
    releasing,
    stalled_accounts::stalled_of_row,
    states::States,
    syncing::SyncState,
};
use crate::{
    gate::Gate,
    log::{self, Log},
    machine::{Now, Output},
    peers::{self, Frame, LogEnd, Shipping},
};

/// What is read when a partition is opened.
#[derive(Default)]
pub(super) struct Opening {
    /// The rows of the partition itself.
    pub(super) rows: Vec<(Vec<u8>, Bytes)>,
    /// Whether these are all.
    pub(super) read: bool,
    /// Where the logs stand; nothing is asked where there are no peers.
    pub(super) logs: Option<Option<BTreeMap<Incarnation, LogEnd>>>,
    /// What peers sent meanwhile.
    pub(super) frames: Vec<(Incarnation, Frame)>,
    /// It was open before, until something failed: on the streams that are there all is said again.
    pub(super) anew: bool,
    /// A commit was refused: it does nothing of itself before this time.
    pub(super) wait_until: Option<u64>,
    /// Accounts in which messages may be late.
    pub(super) late: BTreeSet<AccountId>,
}

/// A partition that runs from now on.
pub(super) struct Opened {
    /// What peers sent while it was read.
    pub(super) frames: Vec<(Incarnation, Frame)>,
    /// On the streams that are there all is said again.
    pub(super) anew: bool,
    pub(super) is_syncing: bool,
    /// It does nothing of itself for a while.
    pub(super) waits: bool,
}

/// The partition runs, if all was read of it that says where it stands.
pub(super) fn open_read(mail: &mut Mail, now: Now, partition: PartitionId) -> Option<Opened> {
    let Some(Partition::Loading(opening)) = mail.partitions.get_mut(&partition) else {
        return None;
    };
    let (true, Some(logs)) = (opening.read, &opening.logs) else {
        return None;
    };
    let mut rows = opening.rows.iter();
    let position = rows.find(|(key, _)| key == log::POSITION_KEY);
    let mut rows = opening.rows.iter();
    let kept = rows.find(|(key, _)| key == log::ANNOUNCED_KEY);
    let rows = opening.rows.iter();
    let missing_blobs: MissingBlobs = rows
        .filter_map(|(key, value)| {
            let missing_blobs = MissingBlob::read(log::accounts_of(value), now.mono_micros);
            Some((log::missing_blob_of_key(key)?, missing_blobs))
        })
        .collect();
    let rows = opening.rows.iter();
    let stalled = rows
        .filter_map(|(key, value)| stalled_of_row(key, value))
        .collect();
    let states = match States::of_rows(&opening.rows) {
        Ok(states) => states,
        Err(error) => {
            let text = format!("what partition {} takes: {error}", partition.0);
            mail.out.push(Output::Fatal(text));
            return None;
        }
    };
    let origin = mail.config.origin;
    // All that is left of an earlier life.
    let mut rows = opening.rows.iter();
    let away = rows.find(|(key, _)| key == log::AWAY_KEY);
    let mut known = logs.iter().flatten();
    let is_alone = opening.rows.len() == 1 && known.all(|(of, _)| *of == origin);
    let end = |of: Incarnation| logs.as_ref().and_then(|logs| logs.get(&of));
    let last = |of| end(of).map_or(0, |end| end.last);
    let lacks = log::lacks_own_of_before(origin, &opening.rows, last);
    // An older copy of the disk was put back, with a partition that it had left under another incarnation; or had come back to, and nothing had
    // come yet of what that one wrote before.
    if away.is_some() && !is_alone || lacks {
        let (rows, logs) = (std::mem::take(&mut opening.rows), opening.logs.take());
        releasing::drop_of_another(mail, partition, rows, logs.flatten().unwrap_or_default());
        return None;
    }
    let comes_back = away.is_some();
    let wait = opening.wait_until.filter(|at| *at > now.mono_micros);
    if let Some(at) = wait.filter(|_| comes_back) {
        // It begins with a commit.
        mail.agenda.look_at(at, partition);
        return None;
    }
    let mut log = match position.or(away) {
        None => Log::new(partition, origin),
        Some((_, record)) => match Log::load(partition, origin, record) {
            Ok(log) => log,
            Err(error) => {
                mail.out.push(Output::Fatal(error.to_string()));
                return None;
            }
        },
    };
    let generation = mail
        .config
        .holders
        .holder_state(origin, partition)
        .generation;
    let dropped = opening.rows.iter().any(|(key, _)| key == log::DROPPED_KEY);
    let syncing = mail.config.syncing || generation > 0 || comes_back || dropped;
    let mut rows = opening.rows.iter();
    let grown = rows.find(|(key, _)| key == log::GROWN_KEY);
    let syncing = syncing && !grown.is_some_and(|(_, value)| log::has_grown(origin, value));
    let ends = logs.clone().unwrap_or_else(|| log.ends());
    let members = mail.config.members_of(partition);
    let config = mail.config.shipping;
    let mut shipping = match Shipping::resume(
        config,
        partition,
        origin,
        members.clone(),
        Resume {
            logs: ends,
            applied: log.applied().clone(),
            stable: log.collected(),
            syncing,
            ..Resume::default()
        },
    ) {
        Ok(shipping) => shipping,
        Err(error) => {
            mail.out.push(Output::Fatal(error.to_string()));
            return None;
        }
    };
    let kept = kept.map(|(_, row)| &row[..]);
    let announced = match Announced::resume(partition, kept, log.applied()) {
        Ok(mut announced) => {
            let others = members.keys().filter(|member| **member != origin);
            for member in others {
                let state = mail.config.holders.holder_state(*member, partition);
                announced.set_generation(*member, state.generation);
            }
            announced.former(&mail.config.former.keys().copied().collect());
            announced
        }
        Err(error) => {
            let cause = format!("what others announced in {partition:?}: {error}");
            mail.out.push(Output::Fatal(cause));
            return None;
        }
    };
    if let Some(held) = states.taking() {
        shipping.hold(now, held.clone());
    }
    let (frames, anew) = (std::mem::take(&mut opening.frames), opening.anew);
    let late = std::mem::take(&mut opening.late);
    let durable = shipping.durable(origin);
    let mut readers = Readers::new(
        peers::readers::Config::default(),
        partition,
        origin,
        durable,
    );
    for (other, number) in log.applied().iter() {
        readers.applied(other, number, &[]);
    }
    let lacked: Vec<_> = missing_blobs.keys().copied().collect();
    for blob in lacked {
        mail.bodies.miss(blob, partition);
    }
    let back = comes_back.then(|| log.come_back());
    let own = Own {
        log,
        shipping,
        members,
        readers,
        announced,
        reporting: Reporting::default(),
        nobody_waits: false,
        counters: VecDeque::new(),
        deadline: None,
        missing_blobs,
        parting: Parting::default(),
        generation,
        confirming: Confirming::new(partition, mail.config.waits),
        gate: Gate::default(),
        retry_at: wait,
        looks_late: wait.is_some(),
        late,
        claiming: BTreeSet::new(),
        stalled,
        states,
        age: if syncing {
            SyncState::Syncing
        } else {
            SyncState::Grown
        },
        settled: StableBefore::default(),
        failed: false,
        first_failed: None,
    };
    let is_syncing = own.is_syncing();
    mail.partitions
        .insert(partition, Partition::Running(Box::new(own)));
    if let Some(at) = wait {
        mail.agenda.look_at(at, partition);
    }
    if let Some(commit) = back {
        let ticket = mail.out.ticket();
        mail.hand_out_for(partition, ticket, commit);
    }
    Some(Opened {
        frames,
        anew,
        is_syncing,
        waits: wait.is_some(),
    })
}
