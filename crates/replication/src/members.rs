//! Who belongs to a partition, as a CRDT: joining, eviction, closing of logs, slots.
//!
//! Invariants:
//! - A member is announced by an operation of its sponsor, which the sponsor has applied before it gives the newcomer its state. So whoever
//!   still cuts logs without knowing of the newcomer cuts only what that state holds (see `partition::stable`).
//! - Members own disjoint shares of the slots and give slots from their own only: no two members whose logs are not closed have one slot.
//! - A closed log is the same everywhere, and stays closed.
//!
//! A node asks a second sponsor only under a new incarnation, so each is joined once.

use std::collections::{BTreeMap, BTreeSet};

use minicbor::{Decode, Encode};
use whimbrel_crdt::{Context, Dot, Incarnation, VersionVector};

use crate::broken;

/// Slots, one bit each.
pub type Slots = u64;

/// An operation. Who makes it is said by its dot.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum MemberOp {
    /// The maker sponsors a node, and gives it a slot and a share of its free ones.
    #[n(0)]
    Join {
        /// Who joins.
        #[n(0)]
        member: Incarnation,
        /// Its name.
        #[n(1)]
        name: String,
        /// Its slot, 0..=63.
        #[n(2)]
        slot: u8,
        /// What it may give away.
        #[n(3)]
        share: Slots,
    },
    /// The member is gone. From now on nobody takes its batches from itself.
    #[n(1)]
    Evict {
        /// Who.
        #[n(0)]
        member: Incarnation,
    },
    /// The maker knows of the eviction, and holds the log up to this number. Made again when others hold more.
    #[n(2)]
    Close {
        /// Whose log.
        #[n(0)]
        member: Incarnation,
        /// The last number.
        #[n(1)]
        last: u64,
    },
}

/// One member, or one that was.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Member {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// Its slot.
    #[cbor(n(1), decode_with = "a_slot")]
    pub slot: u8,
    #[n(2)]
    sponsor: Option<Dot>,
    #[n(3)]
    share: Slots,
    /// Who has evicted it.
    #[n(4)]
    evictions: BTreeSet<Dot>,
    /// Up to which number each other holds its log.
    #[n(5)]
    held: BTreeMap<Incarnation, u64>,
    /// Nodes whose sponsor knew of the eviction: they have nothing to say to it.
    #[n(6)]
    excused: BTreeSet<Incarnation>,
    #[n(7)]
    closed: Option<u64>,
}

/// A slot as it came: beyond 63 there is none.
fn a_slot<C>(d: &mut minicbor::Decoder<'_>, _: &mut C) -> Result<u8, minicbor::decode::Error> {
    let slot = d.u8()?;
    if slot < 64 {
        Ok(slot)
    } else {
        Err(minicbor::decode::Error::message("no slot"))
    }
}

impl Member {
    /// The operation by which it joined; `None`: it founded the cluster.
    pub fn sponsor(&self) -> Option<Dot> {
        self.sponsor
    }
}

/// The membership of one partition, or of a whole node ([`crate::roster`]).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Members(#[n(0)] BTreeMap<Incarnation, Member>);

impl Members {
    /// The first node: it has slot 0 and owns all others.
    pub fn found(founder: Incarnation, name: &str) -> Self {
        Self::found_with(founder, name, 0, !1)
    }

    /// The first node, which was alone before, under this slot, and owns these others: those that no incarnation of it has had.
    pub fn found_with(founder: Incarnation, name: &str, slot: u8, share: Slots) -> Self {
        let slot = slot & 63;
        let member = Member {
            name: name.to_owned(),
            slot,
            sponsor: None,
            share: share & !(1 << slot),
            evictions: BTreeSet::new(),
            held: BTreeMap::new(),
            excused: BTreeSet::new(),
            closed: None,
        };
        Self([(founder, member)].into())
    }

    /// Applies an operation.
    pub fn apply(&mut self, context: &Context<'_>, op: &MemberOp) {
        let maker = context.dot.origin;
        match op {
            MemberOp::Join {
                member,
                name,
                slot,
                share,
            } => {
                for other in self.0.values_mut() {
                    if other.evictions.iter().any(|dot| context.saw(*dot)) {
                        other.excused.insert(*member);
                    }
                }
                self.0.entry(*member).or_insert_with(|| Member {
                    name: name.clone(),
                    slot: *slot & 63,
                    sponsor: Some(context.dot),
                    share: *share,
                    evictions: BTreeSet::new(),
                    held: BTreeMap::new(),
                    excused: BTreeSet::new(),
                    closed: None,
                });
            }
            MemberOp::Evict { member } => {
                if let Some(member) = self.0.get_mut(member) {
                    member.evictions.insert(context.dot);
                }
            }
            MemberOp::Close { member, last } => {
                if let Some(member) = self.0.get_mut(member) {
                    let held = member.held.entry(maker).or_insert(0);
                    *held = (*held).max(*last);
                }
            }
        }
    }

    /// Joins another replica's state.
    pub fn join(&mut self, other: &Self) {
        for (id, theirs) in &other.0 {
            let ours = self.0.entry(*id).or_insert_with(|| theirs.clone());
            ours.evictions.extend(theirs.evictions.iter().copied());
            ours.excused.extend(theirs.excused.iter().copied());
            for (holder, last) in &theirs.held {
                let held = ours.held.entry(*holder).or_insert(0);
                *held = (*held).max(*last);
            }
            ours.closed = ours.closed.max(theirs.closed);
        }
    }

    /// Closes what can be closed, given what is applied here: the logs closed now, with their last numbers.
    ///
    /// Two that are evicted at once do not wait for each other; but either may have sponsored someone the rest does not know of, so
    /// all evicted logs must be agreed on.
    pub fn close(&mut self, applied: &VersionVector) -> Vec<(Incarnation, u64)> {
        let open: Vec<Incarnation> = self.iter_evicted().collect();
        let agreed: Vec<(Incarnation, Option<u64>)> = open
            .into_iter()
            .map(|id| (id, self.agreed(id).filter(|last| applied.get(id) >= *last)))
            .collect();
        if agreed.iter().any(|(_, last)| last.is_none()) && !broken("closed-too-early") {
            return Vec::new();
        }
        let mut closed = Vec::new();
        for (id, last) in agreed {
            if let (Some(member), Some(last)) = (self.0.get_mut(&id), last) {
                member.closed = Some(last);
                closed.push((id, last));
            }
        }
        closed
    }

    fn iter_evicted(&self) -> impl Iterator<Item = Incarnation> {
        let evicted = self.0.iter().filter(|(_, m)| !m.evictions.is_empty());
        evicted
            .filter(|(_, m)| m.closed.is_none())
            .map(|(id, _)| *id)
    }

    /// The last number of an evicted log, if all others say the same.
    fn agreed(&self, id: Incarnation) -> Option<u64> {
        let member = self.0.get(&id)?;
        let others = self.0.iter().filter(|(other, state)| {
            **other != id && state.evictions.is_empty() && !member.excused.contains(other)
        });
        let mut held = others.map(|(other, _)| member.held.get(other).copied());
        let first = held.next()??;
        if broken("closed-too-early") {
            return Some(first);
        }
        held.all(|last| last == Some(first)).then_some(first)
    }

    /// Members whose logs are open: stability counts them.
    pub fn open(&self) -> BTreeSet<Incarnation> {
        let open = self.0.iter().filter(|(_, member)| member.closed.is_none());
        open.map(|(id, _)| *id).collect()
    }

    /// Whether it was evicted: it must write no more, and nobody takes its batches from it.
    pub fn is_evicted(&self, id: Incarnation) -> bool {
        self.0.get(&id).is_some_and(|m| !m.evictions.is_empty())
    }

    /// The last number of a closed log: nothing above is taken.
    pub fn closed(&self, id: Incarnation) -> Option<u64> {
        self.0.get(&id).and_then(|member| member.closed)
    }

    /// All members, and those that were.
    pub fn iter(&self) -> impl Iterator<Item = (Incarnation, &Member)> {
        self.0.iter().map(|(id, member)| (*id, member))
    }

    /// One member.
    pub fn get(&self, id: Incarnation) -> Option<&Member> {
        self.0.get(&id)
    }

    /// The evicted logs about which this node has to say something: it holds this much of them.
    pub fn plan_close(&self, me: Incarnation, durable: &VersionVector) -> Vec<MemberOp> {
        let mut ops = Vec::new();
        for id in self.iter_evicted().filter(|id| *id != me) {
            let last = durable.get(id);
            let said = self.0.get(&id).and_then(|member| member.held.get(&me));
            if said.is_none_or(|said| *said < last) {
                ops.push(MemberOp::Close { member: id, last });
            }
        }
        ops
    }

    /// The slots a member may give away: its share and what it inherits of closed logs, less what those who come after hold.
    pub fn free(&self, id: Incarnation) -> Slots {
        let inherits = |other: Incarnation| self.heir(other) == Some(id);
        let mut free = 0;
        for (other, member) in self.0.iter().filter(|(other, _)| inherits(**other)) {
            free |= member.share;
            if *other != id {
                free |= 1 << member.slot;
            }
        }
        for (other, member) in &self.0 {
            let below = self.sponsors(*other).any(&inherits);
            if *other == id {
                free &= !(1 << member.slot);
            } else if below && !inherits(*other) {
                free &= !(member.share | 1 << member.slot);
            }
        }
        free
    }

    /// Who sponsored it, who sponsored that one, and so on.
    fn sponsors(&self, id: Incarnation) -> impl Iterator<Item = Incarnation> {
        let above = |id: &Incarnation| Some(self.0.get(id)?.sponsor?.origin);
        // A tree: no longer than there are members.
        std::iter::successors(above(&id), move |id| above(id)).take(self.0.len())
    }

    fn is_over(&self, id: Incarnation) -> bool {
        let over = |m: &Member| {
            m.closed.is_some() || (broken("slot-given-twice") && !m.evictions.is_empty())
        };
        self.0.get(&id).is_some_and(over)
    }

    /// Who owns what a member had: itself; when its log is closed its nearest sponsor whose log is open; when there is none the first open one in
    /// the order of joining. Only closed members are looked below, and whom these sponsored does not change any more: so
    /// all who know of the closing find the same heir.
    fn heir(&self, id: Incarnation) -> Option<Incarnation> {
        let mut line = std::iter::once(id).chain(self.sponsors(id));
        if let Some(open) = line.find(|id| !self.is_over(*id)) {
            return Some(open);
        }
        let mut left: Vec<Incarnation> =
            self.sponsors(id).last().or(Some(id)).into_iter().collect();
        while let Some(at) = left.pop() {
            if !self.is_over(at) {
                return Some(at);
            }
            let of = |member: &Member| member.sponsor.filter(|dot| dot.origin == at);
            let sponsored = self.0.iter().filter_map(|(id, m)| Some((of(m)?.seq, *id)));
            let mut sponsored: Vec<(u64, Incarnation)> = sponsored.collect();
            sponsored.sort_unstable_by(|a, b| b.cmp(a));
            left.extend(sponsored.into_iter().map(|(_, id)| id));
        }
        None
    }

    /// Sponsors a node: it gets a free slot and half of the rest. `None` if there is no free slot, or the sponsor is evicted.
    pub fn plan_join(
        &self,
        sponsor: Incarnation,
        member: Incarnation,
        name: &str,
    ) -> Option<MemberOp> {
        if self.is_evicted(sponsor) || self.0.contains_key(&member) {
            return None;
        }
        let free = self.free(sponsor);
        let slots: Vec<u8> = (0..64u8).filter(|slot| free >> slot & 1 == 1).collect();
        let (slot, rest) = slots.split_first()?;
        let given = rest.iter().take(rest.len() / 2);
        Some(MemberOp::Join {
            member,
            name: name.to_owned(),
            slot: *slot,
            share: given.fold(0, |share, slot| share | 1 << slot),
        })
    }
}
