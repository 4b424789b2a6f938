//! What each member has made visible to its clients (docs/design.md#rule-6; docs/decisions/0020).
//!
//! Purpose: when a client comes from another node, this node claims again what lies below the UIDs that the client names, unless the other node had
//! made it visible before. So each member reports up to where it has made visible all that is applied there: one vector for a whole partition, with
//! its own number, and the few accounts in which something is hidden there.
//!
//! Invariants:
//! - A report counts when all is applied here that was applied at its member then. What the member had not made visible was claimed again by then, by
//!   itself or by another node before it heard of either, and that claim is here.
//! - For an account that a report excepts, the earlier report goes on to count.
//! - A member that has reported nothing is not known to have made anything visible. The same holds for a member that dropped the partition and came
//!   back, before it reports again.
//! - A new member hears from the others what those nodes have made visible that it cannot hear itself, because they died or were removed before:
//!   their clients come to it.
//!
//! The caller stores [`Announced::row`] beside the partition now and then. So a member's last report is known after a restart when the member is
//! gone. An older row says less, never more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Incarnation, PartitionId, VersionVector};

use crate::{
    broken,
    wire::{Account, Announced as Announcement, Excepted, Frame, VisibleVector},
};

/// Accounts that one report may except: usually those whose blobs are on the way. A control frame holds them with room to spare. A node that would
/// have to except more reports nothing for a while.
pub const EXCEPTED_MAX: usize = 32;

/// The number of former members whose reports are kept in each partition. Clients of a lost node come within days; of a client that comes later all
/// messages are claimed again, and it overlooks nothing.
pub const FORMER_MAX: usize = 16;

/// Entries of vectors in a report about one other member: the frame is within its bounds with fewer. A longer report is not sent.
pub const SHOWN_ENTRIES_MAX: usize = 8192;

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// There is something to send: [`Announced::transmit`].
    Wake(Incarnation),
}

/// What a member is known to have made visible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MemberView {
    vector: VersionVector,
    /// Accounts of which the member has made less visible.
    except: BTreeMap<Account, VersionVector>,
}

impl MemberView {
    /// Whether another report of the same member covers this one.
    fn is_within(&self, other: &MemberView) -> bool {
        other.vector.covers_all(&self.vector)
    }

    fn entries(&self) -> usize {
        let all = self.except.values().chain([&self.vector]);
        all.map(|vector| vector.iter().count() + 2).sum()
    }

    fn visible_vector_frame(&self, partition: PartitionId, member: Incarnation) -> VisibleVector {
        let except = self.except.iter().map(|(account, of)| Excepted {
            account: *account,
            vector: of.clone(),
        });
        VisibleVector {
            partition,
            member,
            vector: self.vector.clone(),
            except: except.collect(),
        }
    }
}

#[derive(Default)]
struct Peer {
    linked: bool,
    awake: bool,
    /// Our newest report was not sent to the peer yet.
    due: bool,
    counted: Option<MemberView>,
    /// Reports that wait for the peer's log: the first, and the newest.
    candidate: Option<Announcement>,
    latest: Option<Announcement>,
    /// A waiting report about the peer that came from another member.
    by_others: Option<MemberView>,
    /// Members whose reports are still to be sent to this peer, because it is new.
    tell: BTreeSet<Incarnation>,
    /// The generation of the peer: all of this is of that generation.
    generation: u32,
}

impl Peer {
    fn has_news(&self) -> bool {
        self.due || !self.tell.is_empty()
    }
}

/// What one member is known to have made visible, as stored.
#[derive(Encode, Decode)]
struct Row {
    #[n(0)]
    member: Incarnation,
    #[n(1)]
    vector: VersionVector,
    #[n(2)]
    except: Vec<(minicbor::bytes::ByteArray<16>, VersionVector)>,
    /// The generation of which the report is; `None`: the first.
    #[n(3)]
    generation: Option<u32>,
}

/// The reports of all members of one partition.
pub struct Announced {
    partition: PartitionId,
    ours: Option<Announcement>,
    peers: BTreeMap<Incarnation, Peer>,
    /// Something counts that is not in the last row.
    changed: bool,
    out: VecDeque<Output>,
}

impl Announced {
    /// Begins with a stored row, as far as it still counts; `applied` is what is applied here. [`Self::set_generation`] then gives the members'
    /// present generations.
    ///
    /// # Errors
    /// When the row is damaged.
    pub fn resume(
        partition: PartitionId,
        row: Option<&[u8]>,
        applied: &VersionVector,
    ) -> Result<Self, minicbor::decode::Error> {
        let rows: Vec<Row> = row.map_or(Ok(Vec::new()), minicbor::decode)?;
        let here = |row: &Row| applied.covers_all(&row.vector);
        let known = rows.into_iter().filter(here).map(|row| {
            let except = row.except.into_iter();
            let counted = MemberView {
                vector: row.vector,
                except: except.map(|(account, of)| (*account, of)).collect(),
            };
            let peer = Peer {
                counted: Some(counted),
                generation: row.generation.unwrap_or(0),
                ..Peer::default()
            };
            (row.member, peer)
        });
        Ok(Self {
            partition,
            ours: None,
            peers: known.collect(),
            changed: false,
            out: VecDeque::new(),
        })
    }

    /// The row to store, if anything has changed since the last one.
    pub fn row(&mut self) -> Option<Vec<u8>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let counted = self
            .peers
            .iter()
            .filter_map(|(id, peer)| Some((*id, peer.generation, peer.counted.as_ref()?)));
        let rows = counted.map(|(member, generation, known)| Row {
            member,
            generation: (generation > 0).then_some(generation),
            vector: known.vector.clone(),
            except: known
                .except
                .iter()
                .map(|(account, of)| ((*account).into(), of.clone()))
                .collect(),
        });
        let rows: Vec<Row> = rows.collect();
        let mut out = Vec::new();
        let written = minicbor::encode(&rows, &mut out);
        debug_assert!(written.is_ok(), "writing to memory cannot fail");
        Some(out)
    }

    /// These are members no more: the reports of the last [`FORMER_MAX`] of them go on to count.
    pub fn former(&mut self, former: &BTreeSet<Incarnation>) {
        let counted = self.peers.iter().filter(|(id, _)| former.contains(id));
        // A member that was heard later has usually made more visible.
        let extent = |peer: &Peer| -> u64 {
            let known = peer.counted.iter().flat_map(|known| known.vector.iter());
            known.fold(0, |sum, (_, number)| sum.saturating_add(number))
        };
        let mut by_extent: Vec<(u64, Incarnation)> =
            counted.map(|(id, peer)| (extent(peer), *id)).collect();
        by_extent.sort_unstable();
        let beyond = by_extent.len().saturating_sub(FORMER_MAX);
        for (_, id) in by_extent.drain(..beyond) {
            self.peers.remove(&id);
            self.changed = true;
        }
    }

    /// A member has come back to the partition so often. Its earlier reports do not count any more: it may lack now what it had made visible then,
    /// above all blobs, and its clients with it. A report that it makes once everything is visible there again is true of its earlier generations,
    /// too.
    pub fn set_generation(&mut self, id: Incarnation, generation: u32) {
        if generation == 0 {
            return;
        }
        let peer = self.peers.entry(id).or_default();
        if peer.generation < generation {
            peer.generation = generation;
            self.changed |= peer.counted.take().is_some();
            peer.candidate = None;
            peer.latest = None;
            peer.by_others = None;
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// There is a link to this peer now; an older one is gone.
    pub fn linked(&mut self, id: Incarnation) {
        let due = self.ours.is_some();
        let peer = self.peers.entry(id).or_default();
        peer.linked = true;
        peer.awake = false;
        peer.due = due;
        peer.tell.clear();
        self.wake(id);
    }

    /// A peer is new, or came back: it gets the reports of all members.
    pub fn is_new(&mut self, id: Incarnation) {
        let counts = self.peers.iter().filter(|(_, of)| of.counted.is_some());
        let others: BTreeSet<Incarnation> = counts.map(|(of, _)| *of).collect();
        if let Some(peer) = self.peers.get_mut(&id).filter(|peer| peer.linked) {
            peer.tell = others;
            self.wake(id);
        }
    }

    /// The link is gone. What the peer reported stays true.
    pub fn unlinked(&mut self, id: Incarnation) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.linked = false;
            peer.due = false;
            peer.tell.clear();
        }
    }

    /// This node's report: all that the vector covers, this node's own log included, is durable, and visible here or claimed again in our log. The
    /// accounts in `except` are exceptions, at most [`EXCEPTED_MAX`].
    pub fn say(&mut self, vector: VersionVector, except: Vec<Account>) {
        assert!(except.len() <= EXCEPTED_MAX, "a report has its bounds");
        let told = Announcement {
            partition: self.partition,
            vector,
            except,
        };
        if self.ours.as_ref() == Some(&told) {
            return;
        }
        self.ours = Some(told);
        let ids: Vec<Incarnation> = self.peers.keys().copied().collect();
        for id in ids {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.due = peer.linked;
            }
            self.wake(id);
        }
    }

    /// This is applied here.
    pub fn applied(&mut self, applied: &VersionVector) {
        let waits = |peer: &Peer| {
            let told = peer.candidate.is_some() || peer.latest.is_some();
            told || peer.by_others.is_some()
        };
        let waiting = self.peers.iter().filter(|(_, peer)| waits(peer));
        for id in waiting.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.look_at(id, applied);
        }
    }

    fn look_at(&mut self, id: Incarnation, applied: &VersionVector) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        while let Some(told) = peer.candidate.take().or_else(|| peer.latest.take()) {
            if !applied.covers_all(&told.vector) && !broken("announced-without-number") {
                peer.candidate = Some(told);
                return;
            }
            peer.counted = Some(counted(peer.counted.take(), told));
            self.changed = true;
        }
        let here = |known: &mut MemberView| applied.covers_all(&known.vector);
        if let Some(known) = peer.by_others.take_if(here)
            && peer.counted.as_ref().is_none_or(|of| of.is_within(&known))
        {
            peer.counted = Some(known);
            self.changed = true;
        }
    }

    /// A peer passes on the report of another member that cannot report itself; `applied` is what is applied here. The caller has checked that it is
    /// or was a member, so that no more reports are kept than there are members.
    pub fn received_of(&mut self, told: VisibleVector, applied: &VersionVector) {
        let VisibleVector {
            member,
            vector,
            except,
            ..
        } = told;
        let peer = self.peers.entry(member).or_default();
        // The frame does not name the generation, so it does not count for a member that came back.
        if peer.linked || peer.generation > 0 || except.len() > EXCEPTED_MAX {
            return;
        }
        let except = except.into_iter();
        let told = MemberView {
            vector,
            except: except.map(|of| (of.account, of.vector)).collect(),
        };
        let known = [&peer.counted, &peer.by_others].into_iter().flatten();
        if known.into_iter().all(|known| known.is_within(&told)) {
            peer.by_others = Some(told);
            self.look_at(member, applied);
        }
    }

    /// A peer's report; `applied` is what is applied here.
    pub fn received(&mut self, id: Incarnation, mut told: Announcement, applied: &VersionVector) {
        let Some(peer) = self.peers.get_mut(&id).filter(|peer| peer.linked) else {
            return;
        };
        let known = peer.counted.as_ref();
        // A report with too many exceptions is ignored.
        let readable = told.except.len() <= EXCEPTED_MAX;
        let newer = known.is_none_or(|known| known.vector.get(id) <= told.vector.get(id));
        if !readable || !newer {
            return;
        }
        told.except.sort_unstable();
        peer.latest = Some(told);
        self.look_at(id, applied);
    }

    /// The next frame for a peer whose stream takes bytes; `None`: nothing until [`Output::Wake`].
    pub fn transmit(&mut self, id: Incarnation) -> Option<Frame> {
        let peer = self.peers.get_mut(&id).filter(|peer| peer.linked)?;
        if std::mem::take(&mut peer.due)
            && let Some(ours) = &self.ours
        {
            return Some(Frame::Announced(ours.clone()));
        }
        while let Some(member) = self.peers.get_mut(&id)?.tell.pop_first() {
            let known = self.peers.get(&member).and_then(|of| of.counted.as_ref());
            if let Some(known) = known.filter(|known| known.entries() <= SHOWN_ENTRIES_MAX) {
                return Some(Frame::VisibleVector(
                    known.visible_vector_frame(self.partition, member),
                ));
            }
        }
        self.peers.get_mut(&id)?.awake = false;
        None
    }

    /// All that this member has made visible of the account, or claimed again in the part of its log that is here. `None`: it has not reported.
    pub fn visible_vector(&self, member: Incarnation, account: Account) -> Option<&VersionVector> {
        let known = self.peers.get(&member)?.counted.as_ref()?;
        let except = known.except.get(&account);
        Some(
            except
                .filter(|_| !broken("excepted-counts"))
                .unwrap_or(&known.vector),
        )
    }

    /// The visible vectors of the account at all members that have reported, also those that do not count yet, since they will.
    pub fn all_visible(&self, account: Account) -> Vec<&VersionVector> {
        let members = self.peers.iter();
        let shown = members.flat_map(|(of, peer)| {
            let later = peer.by_others.as_ref();
            let later = later.map(|known| known.except.get(&account).unwrap_or(&known.vector));
            self.visible_vector(*of, account).into_iter().chain(later)
        });
        shown.collect()
    }

    /// How many of these ops a member is not known to have made visible, or claimed again, in some account: the greatest number of all members.
    pub fn hidden_ops(
        &self,
        applied: &VersionVector,
        members: impl Iterator<Item = Incarnation>,
    ) -> u64 {
        let lacks = |member: Incarnation| {
            let known = self.peers.get(&member).and_then(|of| of.counted.as_ref());
            let shown = |origin| {
                let vectors = known.map(|known| known.except.values().chain([&known.vector]));
                let shown = vectors.into_iter().flatten().map(|of| of.get(origin));
                shown.min().unwrap_or(0)
            };
            let of = applied.iter();
            of.map(|(origin, number)| number.saturating_sub(shown(origin)))
                .sum()
        };
        members.map(lacks).max().unwrap_or(0)
    }

    fn wake(&mut self, id: Incarnation) {
        if let Some(peer) = self.peers.get_mut(&id)
            && peer.linked
            && peer.has_news()
            && !peer.awake
        {
            peer.awake = true;
            self.out.push_back(Output::Wake(id));
        }
    }
}

/// The view after one more report.
fn counted(before: Option<MemberView>, told: Announcement) -> MemberView {
    let before = before.unwrap_or_default();
    let of = |account: &Account| before.except.get(account).unwrap_or(&before.vector).clone();
    let except = told.except.iter().map(|account| (*account, of(account)));
    MemberView {
        except: except.collect(),
        vector: told.vector,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64) -> Incarnation {
        Incarnation::from_hash(id)
    }

    #[test]
    fn the_reports_of_the_last_former_members_are_kept() {
        let applied = [(node(100), 1000)].into_iter().collect();
        let mut announced =
            Announced::resume(PartitionId(1), None, &applied).expect("nothing was kept");
        let members = 1..=2 * FORMER_MAX as u64;
        for id in members.clone() {
            announced.linked(node(id));
            let told = Announcement {
                partition: PartitionId(1),
                vector: [(node(100), id)].into_iter().collect(),
                except: Vec::new(),
            };
            announced.received(node(id), told, &applied);
        }
        let gone: BTreeSet<Incarnation> = members.clone().skip(1).map(node).collect();
        announced.former(&gone);
        let known = |of: &Announced| -> Vec<u64> {
            let shown = |id: &u64| of.visible_vector(node(*id), [0; 16]).is_some();
            members.clone().filter(shown).collect()
        };
        let first = FORMER_MAX as u64 + 1;
        let expected: Vec<u64> = [1]
            .into_iter()
            .chain(first..=2 * FORMER_MAX as u64)
            .collect();
        assert_eq!(known(&announced), expected);
        let row = announced.row().expect("something was heard");
        let kept = Announced::resume(PartitionId(1), Some(&row), &applied);
        assert_eq!(known(&kept.expect("a row")), expected);
    }
    /// A member's report from before it dropped the partition does not count when it has come back, until it reports again; at whatever moment that
    /// is heard.
    #[test]
    fn reports_of_an_earlier_generation_do_not_count() {
        let applied = [(node(100), 7)].into_iter().collect();
        let begin = |row: Option<&[u8]>, generation: u32| {
            let announced = Announced::resume(PartitionId(1), row, &applied);
            let mut announced = announced.expect("a row");
            announced.set_generation(node(2), generation);
            announced
        };
        let told = || Announcement {
            partition: PartitionId(1),
            vector: [(node(100), 7)].into_iter().collect(),
            except: Vec::new(),
        };
        let shows = |of: &Announced| of.visible_vector(node(2), [0; 16]).is_some();
        let mut announced = begin(None, 0);
        announced.linked(node(2));
        announced.received(node(2), told(), &applied);
        assert!(shows(&announced));
        let row = announced.row().expect("something was heard");
        assert!(shows(&begin(Some(&row), 0)) && !shows(&begin(Some(&row), 1)));
        announced.set_generation(node(2), 0);
        assert!(shows(&announced));
        announced.set_generation(node(2), 1);
        assert!(!shows(&announced));
        // Nor does another node's report about it.
        announced.unlinked(node(2));
        let Announcement { vector, .. } = told();
        announced.received_of(
            VisibleVector {
                partition: PartitionId(1),
                member: node(2),
                vector,
                except: Vec::new(),
            },
            &applied,
        );
        assert!(!shows(&announced));
        announced.linked(node(2));
        announced.received(node(2), told(), &applied);
        assert!(shows(&announced));
        let row = announced.row().expect("something was heard");
        assert!(shows(&begin(Some(&row), 1)) && !shows(&begin(Some(&row), 2)));
    }
}
