//! Nodes that leave the partition and come back, as a server would do it: the holders are exchanged before any other frame, and a leaving node asks
//! each other node by itself.

use whimbrel_crdt::Incarnation;
use whimbrel_replication::{
    holders::{HolderState, Holders, Phase},
    partition::{Input, Taking},
};

use super::{Event, MS, PARTITION, SECOND, World};

impl World {
    fn holder_state(&self, at: usize, of: usize) -> HolderState {
        self.holders[at].holder_state(self.members[of], PARTITION)
    }

    pub(super) fn is_away(&self, node: usize) -> bool {
        self.holder_state(node, node).phase == Phase::Away
    }

    /// Whether a node makes operations.
    pub(super) fn writes(&self, node: usize) -> bool {
        self.takes_part(node) && self.holder_state(node, node).phase == Phase::Holds
    }

    /// A node hears who holds the partition.
    pub(super) fn hear(&mut self, node: usize, holders: &Holders) -> Result<(), String> {
        match self.holders[node].join(holders) {
            true => self.know(node),
            false => Ok(()),
        }
    }

    fn know(&mut self, node: usize) -> Result<(), String> {
        let members = self.members_at(node);
        if members == self.nodes[node].members {
            return Ok(());
        }
        self.nodes[node].members.clone_from(&members);
        self.input(node, Input::Members(members))
    }

    /// A leaving node accepts nothing.
    pub(super) fn take_as_it_stands(&mut self, node: usize) {
        let taking = match self.holder_state(node, node).phase {
            Phase::Leaves => Taking::Nothing,
            _ => Taking::All,
        };
        if let Some(machine) = self.nodes[node].machine.as_mut() {
            machine.take_of_peers(taking);
        }
    }

    pub(super) fn leave(&mut self, node: usize) -> Result<(), String> {
        let up = self.nodes[node].machine.is_some();
        if self.quiet || !up || !self.writes(node) {
            return Ok(());
        }
        self.say(node, Holders::leave)?;
        self.confirmed.remove(&node);
        self.take_as_it_stands(node);
        self.outputs(node)?;
        self.at(self.now + 100 * MS, Event::GoOnLeaving(node));
        Ok(())
    }

    fn say<E: ToString>(
        &mut self,
        node: usize,
        say: impl Fn(&mut Holders, Incarnation, whimbrel_crdt::PartitionId) -> Result<(), E>,
    ) -> Result<(), String> {
        let me = self.members[node];
        say(&mut self.holders[node], me, PARTITION).map_err(|error| error.to_string())?;
        self.know(node)
    }

    /// A leaving node asks one node that it has not asked; when all remaining holders have what it has, it is away.
    pub(super) fn go_on_leaving(&mut self, node: usize) -> Result<(), String> {
        let site = &self.nodes[node];
        let leaves = self.holder_state(node, node).phase == Phase::Leaves;
        if !leaves || site.machine.is_none() || self.quiet {
            return Ok(());
        }
        let has = site.disk.durable.clone();
        let idle = site.disk.waiting.is_empty();
        let stay = |world: &Self, other: usize| {
            let known = world.nodes[node]
                .members
                .contains_key(&world.members[other]);
            other != node && known && world.holder_state(node, other).phase == Phase::Holds
        };
        let staying: Vec<usize> = (0..self.setting.nodes)
            .filter(|other| stay(self, *other))
            .collect();
        let confirmed = self.confirmed.entry(node).or_default();
        let asked = |other: &usize| confirmed.get(other) == Some(&has);
        let to_ask: Vec<usize> = staying.iter().copied().filter(|o| !asked(o)).collect();
        // A node that dies for good is not enough; nor is a newcomer, of which a node that comes back with nothing has not heard here.
        let enough = |o: &usize| self.setting.dead != Some(*o) && *o < self.founders();
        let enough = staying.iter().any(enough);
        if to_ask.is_empty() && enough && idle {
            return self.be_away(node);
        }
        self.at(self.now + 100 * MS, Event::GoOnLeaving(node));
        if to_ask.is_empty() {
            return Ok(());
        }
        let other = to_ask[self.rng.below(to_ask.len() as u64) as usize];
        let cut = |a: usize, b: usize| self.cuts.get(&(a, b)).is_some_and(|count| *count > 0);
        if self.nodes[other].machine.is_none() || cut(node, other) || cut(other, node) {
            return Ok(());
        }
        let ours = self.holders[node].clone();
        self.hear(other, &ours)?;
        let theirs = self.holders[other].clone();
        self.hear(node, &theirs)?;
        let there = &self.nodes[other];
        let holds = self.holder_state(other, other).phase == Phase::Holds;
        if holds && self.takes_part(other) && there.disk.applied.covers_all(&has) {
            self.confirmed.entry(node).or_default().insert(other, has);
        }
        Ok(())
    }

    fn be_away(&mut self, node: usize) -> Result<(), String> {
        let me = self.members[node];
        let it = &mut self.nodes[node];
        let end = it.disk.durable.get(me);
        it.machine = None;
        it.generation += 1;
        it.timer = None;
        it.snapshots.clear();
        it.collected = Default::default();
        it.disk.leave(me);
        self.confirmed.remove(&node);
        self.left += 1;
        self.say(node, |holders, me, partition| {
            holders.left(me, partition, end)
        })
    }

    /// On the streams that are there.
    pub(super) fn come_back(&mut self, node: usize) -> Result<(), String> {
        if !self.is_away(node) {
            return Ok(());
        }
        self.returned += 1;
        self.nodes[node].syncing = true;
        self.say(node, Holders::come)?;
        let (now, members) = (self.clock(node), self.members_at(node));
        self.nodes[node].start(self.config, now, members)?;
        self.outputs(node)?;
        for other in 0..self.setting.nodes {
            let up = self.nodes[other].machine.is_some() || self.is_away(other);
            if other != node && up {
                self.input(node, Input::LinkedAnew(self.members[other]))?;
            }
        }
        Ok(())
    }

    /// Everything heals: leaving nodes stay, and some come back.
    pub(super) fn end_leaving(&mut self, node: usize) -> Result<(), String> {
        if self.holder_state(node, node).phase == Phase::Leaves {
            self.say(node, Holders::stay)?;
            self.take_as_it_stands(node);
            return self.outputs(node);
        }
        match self.rng.one_in(2) {
            true => self.come_back(node),
            false => Ok(()),
        }
    }

    /// A node shows another one who holds the partition.
    pub(super) fn tell(&mut self, node: usize) -> Result<(), String> {
        let (from, to) = (node, self.rng.below(self.setting.nodes as u64) as usize);
        let cut = self.cuts.get(&(from, to)).is_some_and(|count| *count > 0);
        let up = |node: usize| self.nodes[node].machine.is_some() || self.is_away(node);
        if from != to && !cut && up(from) && up(to) {
            let holders = self.holders[from].clone();
            self.hear(to, &holders)?;
        }
        self.at(self.now + SECOND / 2, Event::Tell(node));
        Ok(())
    }
}
