//! Members come and go while all else goes on: nodes are let in, and removed, whether they are dead, cut off or alive; removed ones come back and are told.
//!
//! Checked whenever anybody's list of members changes: no slot has two holders, and no node two slots. In the end all logs of removed members are
//! closed, alike everywhere. What a node that is removed has acknowledged may be lost with it, unless one that stays has it
//! ([`super::acceptable_loss`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_replication::{
    members::Ends,
    roster::{Holdings, MergeOutcome, Roster},
    wire::Frame,
};
use whimbrel_service::{
    cluster::closing::{self, Closing, HolderReports},
    peers::blobs,
    queue,
};
use whimbrel_storage::memory::DiskCopy;

use super::{Member, World, placing};
use crate::node::{Identity, Node};

/// Between two looks at what is held of removed members' logs.
pub(super) const LOOK_MICROS: u64 = closing::LOOK_EVERY.as_micros() as u64;

/// Nodes in one world, those that were removed among them.
const NODES_MAX: usize = 8;

/// The members of a world that begins, all let in by the first.
pub(super) fn founded(ids: &[Incarnation]) -> Roster {
    let mut roster = Roster::found(ids[0], "0", 1, !0b11);
    for (number, id) in ids.iter().enumerate().skip(1) {
        let sponsored = roster.sponsor(ids[0], *id, &number.to_string());
        sponsored.expect("there are 64 slots");
    }
    for (number, id) in ids.iter().enumerate() {
        placing::announce(&mut roster, number, *id).expect("it is short");
    }
    roster
}

/// What a batch of one operation has, about.
const OPERATION_BYTES: u64 = 300;

impl super::Plan {
    /// With small windows there is room for few bodies that come unasked, and some are larger than those.
    pub(super) fn bodies(&self) -> blobs::Config {
        match self.small_windows {
            true => blobs::Config {
                // Of stubs some are smaller, of real messages, too.
                push_bytes_max: 10 + self.first_body() as usize,
                pushes_max: 8,
                pushing_max: 2,
                ahead_bytes_max: 1000 + 10 * u64::from(self.first_body()),
                // Of those that are asked for most come in several pieces.
                window_bytes: 128,
                chunk_bytes: 64,
                ..blobs::Config::default()
            },
            false => blobs::Config::default(),
        }
    }

    /// Bytes that the logs of a node may have.
    pub(super) fn log_retention_bytes(&self) -> Option<u64> {
        (self.kept > 0).then_some(self.kept * OPERATION_BYTES)
    }
}

impl World {
    pub(super) fn change_members(&mut self) -> Result<(), String> {
        let at = self.any_member();
        if !self.members[at].is_up() {
            return Ok(());
        }
        if self.rng.one_in(2) && self.members.len() < NODES_MAX {
            self.let_in(at)
        } else {
            self.remove(at)
        }
    }

    fn let_in(&mut self, at: usize) -> Result<(), String> {
        let number = self.members.len();
        let id = Incarnation::from_hash(self.plan.seed << 8 | (number as u64 + 1));
        let sponsor = self.members[at].id;
        let roster = &mut self.members[at].roster;
        if roster.sponsor(sponsor, id, &number.to_string()).is_err() {
            return Ok(());
        }
        self.note("cluster: a node is let in");
        self.say(|| format!("{at} lets {number} in"));
        self.changed(at)?;
        let mut roster = self.members[at].roster.clone();
        placing::announce(&mut roster, number, id).map_err(|error| error.to_string())?;
        let mut config = self.config.clone();
        config.origin = id;
        config.peers = roster.slots();
        config.former = roster.former();
        config.holders = roster.holders();
        config.syncing = true;
        config.slot = config.peers.remove(&id).unwrap_or(0);
        let limits = queue::Limits {
            retry_after_seconds: 2,
            ..queue::Limits::default()
        };
        let seed = self.plan.seed << 8 | number as u64;
        let mut node = Node::among(seed, config, limits, &self.partitions);
        node.log_retention_bytes = self.plan.log_retention_bytes();
        node.set_bodies(self.plan.bodies());
        node.advance_to(self.now);
        let doubtful = self.members[at].doubtful;
        self.members.push(Member {
            doubtful,
            ..Member::new(id, node, roster, self.plan.placing())
        });
        self.network
            .add(number, self.plan.latency_micros, self.plan.seed);
        self.begin_placing_at(number);
        for other in 0..number {
            self.network.connect_at(self.now + 1, number, other);
        }
        // As `server` does from its start on: it may hear nothing new, and has its word to say all the same.
        self.network.look_at(self.now + LOOK_MICROS, number);
        self.check_slots(number)
    }

    /// One that has a slot to give to a node that comes for `index`.
    pub(super) fn any_sponsor(&mut self, index: usize, id: Incarnation) -> Option<usize> {
        let mut sponsors = self.there();
        sponsors.retain(|at| {
            let member = &self.members[*at];
            let mut roster = member.roster.clone();
            *at != index && roster.sponsor(member.id, id, "").is_ok()
        });
        (!sponsors.is_empty()).then(|| *self.rng.pick(&sponsors))
    }

    /// Another incarnation comes for a node whose disk was lost, with an empty one. The old one is removed where members change; else it stays a member.
    pub(super) fn join_again(
        &mut self,
        index: usize,
        id: Incarnation,
        at: usize,
    ) -> Result<(), String> {
        let removes = self.plan.membership > 0;
        self.join_with(index, id, at, DiskCopy::default(), removes)
    }

    /// The same, with what is on this disk; `removes`: whoever lets it in removes the old one, and others that lost their disks before.
    pub(super) fn join_with(
        &mut self,
        index: usize,
        id: Incarnation,
        at: usize,
        copy: DiskCopy,
        removes: bool,
    ) -> Result<(), String> {
        let by = self.members[at].id;
        let others = self.members.iter().enumerate();
        let others = others.filter(|(other, _)| *other != index);
        let living: Vec<Incarnation> = others.map(|(_, member)| member.id).collect();
        let roster = &mut self.members[at].roster;
        let sponsored = roster.sponsor(by, id, &index.to_string());
        sponsored.map_err(|error| error.to_string())?;
        if removes {
            // All that are dead for good: of the log of a removed one each member has its word to say, and these never do.
            let living = living.iter();
            let dead = roster.slots().into_keys();
            for dead in dead.filter(|of| *of != id && !living.clone().any(|living| living == of)) {
                let removed = roster.remove(by, dead, self.now);
                removed.map_err(|error| error.to_string())?;
            }
        }
        self.changed(at)?;
        let mut roster = self.members[at].roster.clone();
        placing::announce(&mut roster, index, id).map_err(|error| error.to_string())?;
        let mut peers = roster.slots();
        let slot = peers.remove(&id).ok_or("who was let in has no slot")?;
        let identity = Identity {
            incarnation: id,
            slot,
            round: 0,
        };
        let member = &mut self.members[index];
        member.id = id;
        member.renewed = true;
        member.closing = Closing::default();
        member.placing = self.plan.placing();
        member.roster = roster;
        member.node.set_holders(member.roster.holders());
        member.node.renew(copy, identity, peers, self.now);
        let roster = &member.roster;
        member.node.members(roster.slots(), roster.former());
        self.network.look_at(self.now + LOOK_MICROS, index);
        self.lose_clients_of(index);
        self.check_slots(index)
    }

    fn remove(&mut self, at: usize) -> Result<(), String> {
        let others: Vec<usize> = (0..self.members.len())
            .filter(|other| {
                *other != at && !self.members[*other].out && !self.members[*other].doubtful
            })
            .collect();
        // Somebody must be left that knows all.
        let syncing = self.there().into_iter().any(|of| self.is_syncing(of));
        // Whoever was let in by the removed one, and is not known, goes with it.
        let knows = |of: &usize| {
            let members = self.members[at].roster.members();
            members.get(self.members[*of].id).is_some()
        };
        let all_known = self.there().iter().all(knows);
        let unrest = syncing || self.directories_differ().is_some();
        if others.len() < 2 || self.members[at].doubtful || unrest || !all_known {
            return Ok(());
        }
        let victim = *self.rng.pick(&others);
        if !self.is_complete_without(&[victim].into()) {
            return Ok(());
        }
        let (by, id) = (self.members[at].id, self.members[victim].id);
        let roster = &mut self.members[at].roster;
        if !roster.remove(by, id, self.now).map_err(|e| e.to_string())? {
            return Ok(());
        }
        self.note(match self.members[victim].down {
            Some(_) => "cluster: a dead node is removed",
            None => "cluster: a living node is removed",
        });
        self.say(|| format!("{at} removes {victim}"));
        self.members[victim].doubtful = true;
        self.doubt_what_only_these_have();
        self.changed(at)
    }

    /// Some have stopped because somebody removed them who was removed in turn, and of that nobody else heard: they are waited for until they are
    /// removed again.
    pub(super) fn remove_again(&mut self) -> Result<(), String> {
        let at = self.first_there();
        let by = self.members[at].id;
        let out = self.members.iter().filter(|member| member.out);
        let known = |id| self.members[at].roster.members().get(id).is_some();
        let out: Vec<Incarnation> = out
            .map(|member| member.id)
            .filter(|id| known(*id))
            .collect();
        let mut again = false;
        for id in out {
            let removed = self.members[at].roster.remove(by, id, self.now);
            again |= removed.map_err(|error| error.to_string())?;
        }
        if again {
            self.note("cluster: a removed node is removed again");
            self.changed(at)?;
        }
        Ok(())
    }

    /// Whether all that still waits in queues is of older disks, and a member that may know whether it is done is gone for good and was not removed.
    pub(super) fn waits_for_the_gone(&self) -> bool {
        let there = self.there();
        let living: BTreeSet<Incarnation> =
            there.iter().map(|index| self.members[*index].id).collect();
        let nodes = there.iter().map(|index| &self.members[*index]);
        let mut members = self.members[there[0]].roster.slots().into_keys();
        let is_anybody_gone = members.any(|member| !living.contains(&member));
        is_anybody_gone
            && nodes
                .into_iter()
                .all(|of| of.node.queue_len() == of.node.queue_doubts())
    }

    /// A node's list of members has changed: its machines and peers are told, and who was removed is not listened to.
    pub(super) fn changed(&mut self, at: usize) -> Result<(), String> {
        self.bring(at);
        let roster = self.members[at].roster.clone();
        self.members[at]
            .node
            .members(roster.slots(), roster.former());
        self.tell_holders(at);
        self.outcomes(at)?;
        if roster.members().is_out(self.members[at].id) {
            self.leave(at);
            return Ok(());
        }
        self.check_slots(at)?;
        for other in 0..self.members.len() {
            if other == at {
                continue;
            }
            if roster.members().is_out(self.members[other].id) {
                // It hears why when it comes again.
                let pause = self.rng.below(2 * super::SECOND);
                self.network.flap(self.now, at, other, pause);
            } else {
                self.send(at, other, &Frame::Roster(roster.clone()));
            }
        }
        self.network.look_at(self.now + LOOK_MICROS, at);
        self.share_out(at)
    }

    /// A node gives free slots to those with which it is linked, as `server::cluster::slots` does.
    pub(super) fn share_out(&mut self, at: usize) -> Result<(), String> {
        let member = &mut self.members[at];
        let linked = member.linked.values().copied().collect();
        let given = member.roster.share_out(member.id, &linked);
        if given.map_err(|error| error.to_string())? {
            self.note("cluster: free slots are given on");
            self.changed(at)?;
        }
        Ok(())
    }

    /// One node is shown what another knows; whether that is a member.
    pub(super) fn hear(&mut self, at: usize, from: usize, theirs: &Roster) -> Result<bool, String> {
        let id = self.members[from].id;
        let heard = self.members[at].roster.hear(id, theirs);
        match heard.map_err(|error| error.to_string())? {
            MergeOutcome::Taken { new } => {
                if new {
                    self.changed(at)?;
                }
                Ok(!self.members[at].out)
            }
            MergeOutcome::Removed => {
                self.note("cluster: a removed node comes back");
                Ok(false)
            }
            MergeOutcome::Stranger => Ok(false),
        }
    }

    /// Each shows the other its members, before anything else; whether both are some.
    pub(super) fn greet(&mut self, a: usize, b: usize) -> Result<bool, String> {
        if self.members[a].out || self.members[b].out {
            return Ok(false);
        }
        let (of_a, of_b) = (
            self.members[a].roster.clone(),
            self.members[b].roster.clone(),
        );
        // Each says its word, whatever the other thinks of it.
        let (a_hears, b_hears) = (self.hear(a, b, &of_b)?, self.hear(b, a, &of_a)?);
        Ok(a_hears && b_hears)
    }

    /// It was removed: it serves nobody any more.
    pub(super) fn leave(&mut self, index: usize) {
        self.note("cluster: a removed node hears of it");
        self.say(|| format!("node {index} was removed"));
        let member = &mut self.members[index];
        member.out = true;
        member.down = None;
        member.full_until = None;
        self.network.die(self.now, index);
        self.lose_clients_of(index);
    }

    /// Looks what is held of removed members' logs, says it, and tells the machines of those that are closed and here completely: what is decided as in
    /// the server ([`closing`]).
    pub(super) fn look(&mut self, at: usize) -> Result<(), String> {
        let member = &self.members[at];
        if member.out || !self.has_to_look(at) {
            return Ok(());
        }
        let linked: Vec<Incarnation> = member.linked.values().copied().collect();
        let now = Duration::from_micros(self.now);
        let member = &mut self.members[at];
        let of = match member.down {
            None => member
                .closing
                .due(&member.roster, |id| linked.contains(&id), now),
            Some(_) => Vec::new(),
        };
        if !of.is_empty()
            && let Some(holdings) = self.holdings(at, &of)
        {
            let member = &mut self.members[at];
            let me = member.id;
            let settled = member.roster.settle(me, &holdings);
            let settled = settled.map_err(|error| error.to_string())?;
            let roster = member.roster.clone();
            let new = member.closing.said(&roster, &holdings);
            let complete = member.closing.complete().clone();
            if settled && roster.members().closing().is_empty() {
                self.note("cluster: the logs of a removed node are closed");
            }
            if settled {
                self.changed(at)?;
            }
            let beyond = |of: &Incarnation| {
                let end = |partition| complete[of].get(partition).copied().unwrap_or(0);
                (holdings[of].iter()).any(|(partition, log)| log.stored > end(partition))
            };
            if new.iter().any(|log| beyond(&log.of)) {
                self.note("cluster: what rests on what nobody has is given up");
            }
            if !new.is_empty() {
                self.bring(at);
                self.members[at].node.closed(&complete);
                self.outcomes(at)?;
            }
        }
        self.network.look_at(self.now + LOOK_MICROS, at);
        Ok(())
    }

    /// What is here of these logs, and at the holders of partitions that are not here; `None`: that is not known now.
    fn holdings(&mut self, at: usize, of: &[Incarnation]) -> Option<Holdings> {
        let member = &self.members[at];
        let reports = member.node.reports();
        let mut holdings = closing::holdings(&reports, of)?;
        let left = closing::left(&reports);
        let closed = member.roster.former().into_keys().collect();
        let mut said = HolderReports::new(of);
        for (peer, other) in self.members.iter().enumerate() {
            let holds = |partition: &&PartitionId| member.roster.holds(other.id, **partition);
            let held: BTreeSet<PartitionId> = left.iter().filter(holds).copied().collect();
            if peer == at || held.is_empty() {
                continue;
            }
            if member.linked.get(&peer) != Some(&other.id) || !other.is_up() {
                return None;
            }
            let mut missing = held;
            for report in other.node.reports() {
                let partition = report.partition;
                let Some(logs) = report.logs_of(of).filter(|_| missing.contains(&partition)) else {
                    continue;
                };
                let syncing = !other.placing.serves(&other.roster, other.id, partition);
                if syncing && !other.roster.holds(other.id, partition) {
                    continue;
                }
                if said.said(partition, syncing, logs) {
                    missing.remove(&partition);
                }
            }
            if !missing.is_empty() {
                return None;
            }
        }
        for (of, logs) in said.agreed(&left, &closed)? {
            holdings.entry(of).or_default().extend(logs);
        }
        self.note_if(
            !left.is_empty(),
            "cluster: holders are asked for the logs of a removed node",
        );
        Some(holdings)
    }

    /// Whether there are logs that are not closed, or not completely here.
    fn has_to_look(&self, at: usize) -> bool {
        let member = &self.members[at];
        let complete = member.closing.complete();
        let mut former = member.roster.former().into_keys();
        !member.roster.members().closing().is_empty()
            || former.any(|id| !complete.contains_key(&id))
    }

    /// No slot has two holders, by what this node knows and by what each says of itself; and nobody ever has another one.
    fn check_slots(&mut self, at: usize) -> Result<(), String> {
        let slots = self.members[at].roster.slots();
        let different: BTreeSet<u8> = slots.values().copied().collect();
        if different.len() != slots.len() {
            return Err(format!("two members have one slot: {slots:?}"));
        }
        for (id, slot) in slots {
            let first = *self.slots.entry(id).or_insert(slot);
            if first != slot {
                return Err(format!("{id:?} had slot {first} and has {slot}"));
            }
        }
        let mut taken = BTreeMap::new();
        for member in self.members.iter().filter(|member| !member.doubtful) {
            let own = member.roster.members().get(member.id);
            let slot = own.ok_or("a node does not know itself")?.slot;
            if let Some(other) = taken.insert(slot, member.id) {
                return Err(format!("{other:?} and {:?} have slot {slot}", member.id));
            }
        }
        Ok(())
    }

    /// Whether somebody was let in, or has come for a lost disk.
    pub(super) fn nodes_were_let_in(&self) -> bool {
        let more = self.members.len() as u64 != self.plan.nodes;
        more || self.nodes_were_renewed()
    }

    /// Whether another incarnation has come for a lost disk.
    pub(super) fn nodes_were_renewed(&self) -> bool {
        self.members.iter().any(|member| member.renewed)
    }

    /// Whether a node has not all that clients may know.
    pub(super) fn is_syncing(&self, index: usize) -> bool {
        self.members[index].node.figures().partitions_syncing > 0
    }

    /// Whether somebody was removed.
    pub(super) fn nodes_were_removed(&self) -> bool {
        self.members.iter().any(|member| member.doubtful)
    }

    /// The first node that was not removed: there is one, since a node is removed only if two others are left.
    pub(super) fn first_there(&self) -> usize {
        let first = self.members.iter().position(|member| !member.out);
        first.unwrap_or(0)
    }

    /// Of closed logs all have the same: all of them, but of those of which some went with others that were removed.
    pub(super) fn ends_differ(&self) -> Option<String> {
        let complete = |index: usize| -> Option<Ends> {
            let member = &self.members[index];
            let former: Vec<Incarnation> = member.roster.former().into_keys().collect();
            Some(
                member
                    .roster
                    .complete(&closing::holdings(&member.node.reports(), &former)?),
            )
        };
        let first = complete(self.first_there())?;
        let mut there = self.there().into_iter();
        let other = there.find(|index| complete(*index).as_ref() != Some(&first))?;
        let of = complete(other);
        Some(format!(
            "of closed logs node {} has {first:?} completely, node {other} {of:?}",
            self.first_there()
        ))
    }

    /// Members whose removal is not over yet, anywhere.
    pub(super) fn unclosed(&self) -> Option<String> {
        let members = self.members.iter().filter(|member| !member.out);
        let mut open = members.map(|member| (member.id, member.roster.members().closing()));
        let (id, closing) = open.find(|(_, closing)| !closing.is_empty())?;
        let held = self.there().into_iter().map(|index| {
            let member = &self.members[index];
            (
                member.id,
                closing::holdings(&member.node.reports(), &closing),
            )
        });
        let held: Vec<_> = held.collect();
        Some(format!(
            "{id:?} does not close the logs of {closing:?}: {held:?}"
        ))
    }
}
