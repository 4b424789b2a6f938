//! States of the directory: what is asked of the store to give them, and what is kept of one that comes until it is joined.
//!
//! Rows that come are kept beside the partition's own, under the name of their state, as those of accounts are ([`crate::owner::keys`]). A directory is in
//! memory anyway, so nothing is read again to join it or to remove what is held: its keys are known. What a crash leaves of rows that are of no use is
//! found at the next start, since no row says that it is wanted.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use whimbrel_crdt::PartitionId;
use whimbrel_replication::partition::Ticket as Asked;
use whimbrel_storage::{Commit, Mutation};

use super::{Page, PeerOutput, Rows, Shipping, Snapshot, SnapshotProgress, snapshot};
use crate::{
    log::{OWN_ROWS_END, TAKEN_KEY, TAKING_KEY},
    machine::{Now, Output, Ticket},
    owner::keys::{coming_key, is_coming, key_of_coming, state_of_coming},
};

/// Bytes of rows that are written, or removed, with one commit: others wait for no more than this.
const PAGE_BYTES: usize = 1 << 20;

/// Whether a row may go with a state at all: those of the partition itself, and those of another state, do not.
pub(crate) fn may_travel(key: &[u8]) -> bool {
    key >= OWN_ROWS_END && !is_coming(key)
}

/// Divides what is written among commits.
pub(crate) fn pages(mutations: impl IntoIterator<Item = Mutation>) -> Vec<Vec<Mutation>> {
    let mut pages: Vec<Vec<Mutation>> = vec![Vec::new()];
    let mut bytes = 0;
    for mutation in mutations {
        bytes += mutation.bytes();
        if bytes > PAGE_BYTES {
            bytes = mutation.bytes();
            pages.push(Vec::new());
        }
        if let Some(page) = pages.last_mut() {
            page.push(mutation);
        }
    }
    pages
}

/// What was asked of the store to give states of one partition.
pub(crate) struct Giving {
    partition: PartitionId,
    snapshots: BTreeMap<Ticket, Asked>,
    pages: BTreeMap<Ticket, (Asked, Vec<u8>)>,
    /// What is fixed.
    open: BTreeSet<u64>,
    /// How many were given since the start.
    pub(crate) given: u64,
}

impl Giving {
    pub(crate) fn new(partition: PartitionId) -> Self {
        Giving {
            partition,
            snapshots: BTreeMap::new(),
            pages: BTreeMap::new(),
            open: BTreeSet::new(),
            given: 0,
        }
    }

    /// Asks the store for rows to be fixed.
    pub(crate) fn fix(&mut self, ticket: Ticket, asked: Asked) -> Output {
        self.snapshots.insert(ticket, asked);
        let partition = self.partition;
        Output::Peer(PeerOutput::Snapshot { ticket, partition })
    }

    /// They were, or could not be.
    pub(crate) fn fixed(
        &mut self,
        now: Now,
        shipping: Option<&mut Shipping>,
        ticket: Ticket,
        snapshot: Option<Snapshot>,
    ) -> Option<Output> {
        match (self.snapshots.remove(&ticket), shipping) {
            (Some(asked), Some(shipping)) => {
                self.given += u64::from(snapshot.is_some());
                self.open.extend(snapshot.iter().map(|of| of.state));
                shipping.fixed(now, asked, snapshot);
                None
            }
            _ => snapshot.map(|of| Output::Peer(PeerOutput::Release(of.state))),
        }
    }

    /// Asks the store for rows that were fixed.
    pub(crate) fn read(
        &mut self,
        ticket: Ticket,
        asked: Asked,
        state: u64,
        after: Vec<u8>,
        bytes_max: usize,
    ) -> Output {
        let from = match after.is_empty() {
            true => OWN_ROWS_END.to_vec(),
            false => [&after[..], &[0]].concat(),
        };
        self.pages.insert(ticket, (asked, after));
        Output::Peer(PeerOutput::ReadRows {
            ticket,
            partition: self.partition,
            state: Some(state),
            from,
            to: vec![0xff],
            bytes_max,
        })
    }

    /// They were read; `travels`: which of them go with the state.
    pub(crate) fn rows(
        &mut self,
        now: Now,
        shipping: Option<&mut Shipping>,
        ticket: Ticket,
        page: Page,
        travels: impl Fn(&[u8], &Bytes) -> bool,
    ) {
        let (Some((asked, after)), Some(shipping)) = (self.pages.remove(&ticket), shipping) else {
            return;
        };
        let last = page.rows.last().map_or(after, |(key, _)| key.clone());
        let rows = page.rows.iter();
        let rows = rows.filter(|(key, row)| may_travel(key) && travels(key, row));
        let rows = snapshot::encode_rows(rows.map(|(key, value)| (&key[..], &value[..])));
        let end = page.end;
        shipping.rows(now, asked, Rows { rows, last, end });
    }

    /// Whether rows that could not be read were those of a state: who wants them asks again.
    pub(crate) fn lost(
        &mut self,
        now: Now,
        shipping: Option<&mut Shipping>,
        ticket: Ticket,
    ) -> bool {
        let Some((asked, _)) = self.pages.remove(&ticket) else {
            return false;
        };
        if let Some(shipping) = shipping {
            shipping.rows_lost(now, asked);
        }
        true
    }

    /// Nobody needs what was fixed under this name any more.
    pub(crate) fn release(&mut self, state: u64) -> Output {
        self.open.remove(&state);
        Output::Peer(PeerOutput::Release(state))
    }

    /// The machine for which it was is gone.
    pub(crate) fn end(&mut self) -> impl Iterator<Item = Output> + use<> {
        self.snapshots.clear();
        self.pages.clear();
        let open = std::mem::take(&mut self.open).into_iter();
        open.map(|state| Output::Peer(PeerOutput::Release(state)))
    }
}

/// A state that comes, and the keys of its rows that are kept.
#[derive(Default)]
pub(crate) struct Coming {
    held: Option<SnapshotProgress>,
    keys: BTreeSet<Vec<u8>>,
}

/// What the rows of a partition say of states at the start.
#[derive(Default)]
pub(crate) struct StoredSnapshots {
    taking: Option<Bytes>,
    taken: Vec<u8>,
    /// States, and keys at their donors.
    rows: Vec<(u64, Vec<u8>)>,
}

impl StoredSnapshots {
    /// Looks at a row; `false`: it says nothing of states.
    pub(crate) fn look(&mut self, key: &[u8], row: &Bytes) -> bool {
        if key == TAKING_KEY {
            self.taking = Some(row.clone());
        } else if key == TAKEN_KEY {
            self.taken = row.to_vec();
        } else if is_coming(key) {
            let of = (state_of_coming(key), key_of_coming(key).to_vec());
            self.rows.push(of);
        } else {
            return false;
        }
        true
    }

    /// What is coming, and what goes, since it belongs to nothing. `joining`: a state that was taken over, and is not joined yet.
    ///
    /// # Errors
    /// When the row that says what is coming is damaged.
    pub(crate) fn settle(self, joining: Option<u64>) -> Result<(Coming, Vec<Mutation>), String> {
        let held = self.taking.as_deref();
        let held = held.map(|row| snapshot::decode_held(row, self.taken));
        let held = held.transpose()?;
        let name = held.as_ref().map(|held| held.snapshot.state).or(joining);
        let (mine, gone): (Vec<_>, Vec<_>) =
            self.rows.into_iter().partition(|(of, _)| Some(*of) == name);
        let keys = mine.into_iter().map(|(_, key)| key).collect();
        let gone = gone.iter().map(|(state, key)| delete(*state, key));
        Ok((Coming { held, keys }, gone.collect()))
    }
}

impl Coming {
    /// The one that comes.
    pub(crate) fn held(&self) -> Option<&SnapshotProgress> {
        self.held.as_ref()
    }

    /// Whether a row with this key has come.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.keys.contains(key)
    }

    /// A state begins to come. Gives what is to be removed of the one before, behind this commit.
    pub(crate) fn begin(&mut self, held: SnapshotProgress, commit: &mut Commit) -> Vec<Mutation> {
        let gone = self.drain();
        commit.mutations.push(Mutation::Put {
            key: TAKING_KEY.into(),
            value: snapshot::encode_held(&held),
        });
        commit.mutations.push(Mutation::Delete {
            key: TAKEN_KEY.into(),
        });
        self.held = Some(held);
        gone
    }

    /// Keeps rows, or that they have come; `last` is how far the state is here. Gives what is to be written for it.
    ///
    /// # Errors
    /// When nothing is coming.
    pub(crate) fn keep(
        &mut self,
        last: &[u8],
        rows: impl IntoIterator<Item = (Bytes, Bytes)>,
    ) -> Result<Vec<Mutation>, String> {
        let held = self.held.as_mut().ok_or("no state is being taken")?;
        let state = held.snapshot.state;
        held.last = last.to_vec();
        let mut kept = Vec::new();
        for (key, value) in rows {
            self.keys.insert(key.to_vec());
            let key = coming_key(state, &key).into();
            kept.push(Mutation::Put { key, value });
        }
        let (key, value) = (TAKEN_KEY.into(), last.to_vec().into());
        kept.push(Mutation::Put { key, value });
        Ok(kept)
    }

    /// Nothing is coming any more. Gives what is to be removed behind this commit.
    pub(crate) fn end(&mut self, commit: &mut Commit) -> Vec<Mutation> {
        let gone = self.drain();
        for key in [TAKING_KEY, TAKEN_KEY] {
            commit.mutations.push(Mutation::Delete { key: key.into() });
        }
        self.held = None;
        gone
    }

    fn drain(&mut self) -> Vec<Mutation> {
        let keys = std::mem::take(&mut self.keys);
        let Some(held) = &self.held else {
            return Vec::new();
        };
        let state = held.snapshot.state;
        keys.iter().map(|key| delete(state, key)).collect()
    }

    /// Removes what was kept of a state that is joined.
    pub(crate) fn joined(&mut self, state: u64) -> Vec<Mutation> {
        let keys = std::mem::take(&mut self.keys);
        keys.iter().map(|key| delete(state, key)).collect()
    }
}

fn delete(state: u64, key: &[u8]) -> Mutation {
    let key = coming_key(state, key).into();
    Mutation::Delete { key }
}
