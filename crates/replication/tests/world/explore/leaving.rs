//! Nodes that leave the partition and come back, at any moment. A node hears the holders before any frame that was made with that knowledge, and
//! otherwise whenever there is a stream.

use whimbrel_replication::{
    holders::{HolderState, Holders, Phase},
    partition::{Input, Taking},
};

use super::space::{Space, Step};
use crate::world::node::PARTITION;

impl Space<'_> {
    fn holder_state(&self, at: usize, of: usize) -> HolderState {
        self.sites[at].holders.holder_state(self.id(of), PARTITION)
    }

    fn phase(&self, node: usize) -> Phase {
        self.holder_state(node, node).phase
    }

    pub(super) fn is_away(&self, node: usize) -> bool {
        self.phase(node) == Phase::Away
    }

    /// Whether it makes operations.
    pub(super) fn writes(&self, node: usize) -> bool {
        self.takes_part(node) && self.phase(node) == Phase::Holds
    }

    /// What may be done about leaving.
    pub(super) fn leaving(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for node in 0..self.sites.len() {
            match self.phase(node) {
                _ if self.bounds.leaves.is_empty() => {}
                Phase::Away => steps.push(Step::Return(node)),
                _ if !self.is_up(node) => {}
                Phase::Leaves if self.all_have_its_own(node) => steps.push(Step::Away(node)),
                Phase::Leaves => {
                    let others = (0..self.sites.len()).filter(|other| {
                        *other != node && self.are_linked(node, *other) && self.is_up(*other)
                    });
                    steps.extend(others.map(|other| Step::Ask(node, other)));
                }
                Phase::Holds if self.left.leaves[node] > 0 && self.writes(node) => {
                    steps.push(Step::Leave(node));
                }
                Phase::Holds => {}
            }
        }
        steps
    }

    /// Who could hear something new.
    pub(super) fn tellings(&self) -> Vec<Step> {
        if self.bounds.leaves.is_empty() && !self.bounds.removes {
            return Vec::new();
        }
        let nodes = 0..self.sites.len();
        let pairs = nodes
            .clone()
            .flat_map(|a| nodes.clone().map(move |b| (a, b)));
        let news = |(a, b): &(usize, usize)| {
            let mut known = self.sites[*b].holders.clone();
            let linked = a != b && self.are_linked(*a, *b);
            linked && (known.join(&self.sites[*a].holders) || self.is_news(*a, *b))
        };
        pairs.filter(news).map(|(a, b)| Step::Tell(a, b)).collect()
    }

    /// A node hears who holds the partition.
    pub(super) fn hear(&mut self, node: usize, holders: &Holders) -> Result<(), String> {
        match self.site(node).holders.join(holders) {
            true => self.know(node),
            false => Ok(()),
        }
    }

    pub(super) fn tell(&mut self, from: usize, to: usize) -> Result<(), String> {
        let holders = self.sites[from].holders.clone();
        self.hear(to, &holders)?;
        let roster = self.sites[from].roster.clone();
        self.hear_roster(from, to, roster.as_ref())
    }

    pub(super) fn know(&mut self, node: usize) -> Result<(), String> {
        let members = self.members_at(node);
        if members == self.sites[node].node.members {
            return Ok(());
        }
        self.site(node).node.members.clone_from(&members);
        self.input(node, Input::Members(members))
    }

    fn say<E: ToString>(
        &mut self,
        node: usize,
        say: impl FnOnce(&mut Holders) -> Result<(), E>,
    ) -> Result<(), String> {
        say(&mut self.site(node).holders).map_err(|error| error.to_string())?;
        self.know(node)
    }

    /// A leaving node accepts nothing.
    pub(super) fn take_as_it_stands(&mut self, node: usize) -> Result<(), String> {
        let taking = match self.phase(node) {
            Phase::Leaves => Taking::Nothing,
            _ => Taking::All,
        };
        if let Some(machine) = self.site(node).node.machine.as_mut() {
            machine.take_of_peers(taking);
        }
        self.outputs(node)
    }

    pub(super) fn leave(&mut self, node: usize) -> Result<(), String> {
        let me = self.id(node);
        self.say(node, |holders| holders.leave(me, PARTITION))?;
        self.take_as_it_stands(node)
    }

    /// Whether it has asked all who stay, by its own knowledge, since it got the last of what it has.
    fn all_have_its_own(&self, node: usize) -> bool {
        let site = &self.sites[node];
        let has = &site.node.disk.durable;
        let stays = |other: &usize| {
            let known = site.node.members.contains_key(&self.id(*other));
            *other != node && known && self.holder_state(node, *other).phase == Phase::Holds
        };
        let mut stay = (0..self.sites.len()).filter(stays).peekable();
        site.node.disk.waiting.is_empty()
            && stay.peek().is_some()
            && stay.all(|other| site.confirmed.get(&other) == Some(has))
    }

    /// A node that leaves asks another one whether it has all, and holds it.
    pub(super) fn ask(&mut self, node: usize, other: usize) -> Result<(), String> {
        self.tell(node, other)?;
        self.tell(other, node)?;
        let has = self.sites[node].node.disk.durable.clone();
        let there = &self.sites[other].node.disk;
        if self.writes(other) && there.applied.covers_all(&has) {
            self.site(node).confirmed.insert(other, has);
        }
        Ok(())
    }

    /// It drops what it has, but for the end of its own log. Its streams stay.
    pub(super) fn go_away(&mut self, node: usize) -> Result<(), String> {
        let me = self.id(node);
        let site = self.site(node);
        let end = site.node.disk.durable.get(me);
        site.node.machine = None;
        site.node.snapshots.clear();
        site.node.collected = Default::default();
        site.node.disk.leave(me);
        site.forget_what_is_under_way();
        site.confirmed.clear();
        self.say(node, |holders| holders.left(me, PARTITION, end))
    }

    pub(super) fn come_back(&mut self, node: usize) -> Result<(), String> {
        let me = self.id(node);
        self.site(node).node.syncing = true;
        self.say(node, |holders| holders.come(me, PARTITION))?;
        self.start(node)?;
        for other in 0..self.sites.len() {
            if self.are_linked(node, other) {
                let peer = self.id(other);
                self.input(node, Input::LinkedAnew(peer))?;
            }
        }
        Ok(())
    }

    /// Who is about to leave stays.
    pub(super) fn stay_all(&mut self) -> Result<(), String> {
        for node in 0..self.sites.len() {
            if self.phase(node) == Phase::Leaves {
                let me = self.id(node);
                self.site(node).confirmed.clear();
                self.say(node, |holders| holders.stay(me, PARTITION))?;
                self.take_as_it_stands(node)?;
            }
        }
        Ok(())
    }

    /// Who is away comes back; whether anybody was.
    pub(super) fn return_all(&mut self) -> Result<bool, String> {
        let away: Vec<usize> = (0..self.sites.len())
            .filter(|node| self.is_away(*node))
            .collect();
        away.iter().try_for_each(|node| self.come_back(*node))?;
        Ok(!away.is_empty())
    }
}
