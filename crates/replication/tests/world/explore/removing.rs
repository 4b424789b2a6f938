//! A member that is removed, at any moment (`docs/decisions/0024`). A node that knows of it has no link to that member any more, and reports what it
//! holds of its log. The log is closed when all others have reported the same. Rosters are those of the product; a roster is on disk before it is
//! sent, and is sent before any frame that was made with its knowledge.

use std::rc::Rc;

use whimbrel_crdt::Incarnation;
use whimbrel_replication::members::{Ends, ends_in};
use whimbrel_replication::partition::Input;
use whimbrel_replication::roster::{Holdings, MergeOutcome, Roster};

use super::{
    Bounds,
    space::{Space, Step},
};
use crate::world::node::{Node, PARTITION};

/// All founders know each other.
pub(super) fn founded(bounds: &Bounds, ids: &[Incarnation]) -> Option<Rc<Roster>> {
    let first = *ids.first().filter(|_| bounds.removes)?;
    let mut roster = Roster::found(first, "", 0, !1);
    for id in &ids[1..] {
        roster.sponsor(first, *id, "").expect("there are slots");
    }
    Some(Rc::new(roster))
}

/// So that states differ.
pub(super) fn bytes_of(roster: Option<&Rc<Roster>>) -> Vec<u8> {
    roster.map_or(Vec::new(), |roster| {
        minicbor::to_vec(&**roster).expect("into memory")
    })
}

impl Space<'_> {
    /// Who is removed.
    fn victim(&self) -> usize {
        self.sites.len() - 1
    }

    pub(super) fn may_remove(&self) -> bool {
        self.left.removals > 0 && self.is_up(0)
    }

    /// Whether `other` is none of the cluster, by what `node` knows.
    pub(super) fn is_out_at(&self, node: usize, other: usize) -> bool {
        let roster = self.sites[node].roster.as_ref();
        roster.is_some_and(|roster| roster.members().is_out(self.id(other)))
    }

    /// Whether all others know that it was removed: nothing comes from it any more.
    pub(super) fn is_gone(&self, node: usize) -> bool {
        let mut others = (0..self.sites.len()).filter(|other| *other != node);
        self.bounds.removes && others.all(|other| self.is_out_at(other, node))
    }

    pub(super) fn remove(&mut self) -> Result<(), String> {
        let (by, victim) = (self.id(0), self.id(self.victim()));
        let Some(mut roster) = self.sites[0].roster.as_deref().cloned() else {
            return Ok(());
        };
        let removed = roster.remove(by, victim, 0);
        removed.map_err(|error| error.to_string())?;
        self.keep_roster(0, roster)
    }

    /// Whether a node would learn something.
    pub(super) fn is_news(&self, from: usize, to: usize) -> bool {
        self.heard(from, to, self.sites[from].roster.as_ref())
            .is_some()
    }

    fn heard(&self, from: usize, to: usize, theirs: Option<&Rc<Roster>>) -> Option<Roster> {
        let (theirs, ours) = (theirs?, self.sites[to].roster.as_ref()?);
        if Rc::ptr_eq(theirs, ours) || theirs == ours {
            return None;
        }
        let mut roster = (**ours).clone();
        let heard = roster.hear(self.id(from), theirs);
        matches!(heard, Ok(MergeOutcome::Taken { new: true })).then_some(roster)
    }

    /// A node is shown what another one knew.
    pub(super) fn hear_roster(
        &mut self,
        from: usize,
        to: usize,
        theirs: Option<&Rc<Roster>>,
    ) -> Result<(), String> {
        match self.heard(from, to, theirs) {
            Some(roster) => self.keep_roster(to, roster),
            None => Ok(()),
        }
    }

    fn keep_roster(&mut self, node: usize, roster: Roster) -> Result<(), String> {
        self.site(node).roster = Some(Rc::new(roster));
        let victim = self.victim();
        if self.is_out_at(node, victim) && self.are_linked(node, victim) {
            self.unlink(node, victim)?;
        }
        if self.is_gone(victim) {
            // Whatever it does, nobody sees it.
            let id = self.id(victim);
            let site = self.site(victim);
            site.node = Node::new(id, false);
            site.forget_what_is_under_way();
        }
        self.know(node)
    }

    /// What a node knows when it has looked at what it holds of the removed one's log, and which logs it then has as a whole; if that is new.
    fn settled(&self, node: usize) -> Option<(Roster, Ends)> {
        let site = &self.sites[node];
        let (roster, machine) = (site.roster.as_deref()?, site.node.machine.as_ref()?);
        let victim = self.id(self.victim());
        if node == self.victim() || !self.is_out_at(node, self.victim()) {
            return None;
        }
        let logs = machine.holder_state().logs;
        let holding = logs.get(&victim).copied().unwrap_or_default();
        let holdings = Holdings::from([(victim, [(PARTITION, holding)].into())]);
        let mut settled = roster.clone();
        settled.settle(site.node.id, &holdings).ok()?;
        let whole = settled.complete(&holdings);
        let new = whole.keys().any(|id| !site.closed.contains_key(id));
        (settled != *roster || new).then_some((settled, whole))
    }

    /// Who could look.
    pub(super) fn settlings(&self) -> Vec<Step> {
        if !self.bounds.removes {
            return Vec::new();
        }
        let all = 0..self.sites.len();
        let news = all.filter(|node| self.settled(*node).is_some());
        news.map(Step::Settle).collect()
    }

    pub(super) fn settle(&mut self, node: usize) -> Result<(), String> {
        let Some((roster, whole)) = self.settled(node) else {
            return Ok(());
        };
        let victim = self.id(self.victim());
        let closed = roster.members().get(victim).and_then(|of| of.closed());
        if closed.is_some() && self.end.is_none() {
            // Who closes it has all of it: what it made beyond nobody has, nor ever will.
            let end = self.sites[node].node.disk.durable.get(victim);
            self.end = Some(end);
            Rc::make_mut(&mut self.made).survived(victim, end);
        }
        self.keep_roster(node, roster)?;
        let before = &self.sites[node].closed;
        if whole.keys().any(|id| !before.contains_key(id)) {
            self.site(node).closed.extend(whole);
            let closed = ends_in(&self.sites[node].closed, PARTITION);
            self.input(node, Input::Closed(closed))?;
        }
        self.check_end_of_log()
    }

    /// Nobody has more of a closed log than its end, be it on its way to the disk.
    pub(super) fn check_end_of_log(&self) -> Result<(), String> {
        let Some(end) = self.end else {
            return Ok(());
        };
        let victim = self.id(self.victim());
        for site in &self.sites {
            let has = site.node.disk.next(victim) - 1;
            if has > end {
                let id = site.node.id;
                return Err(format!("{id:?} has {has} of a log that ends with {end}"));
            }
        }
        Ok(())
    }

    /// Whether all is closed that was to be.
    pub(super) fn are_closed(&self) -> bool {
        let rosters = self.sites.iter().filter(|site| site.node.machine.is_some());
        let mut rosters = rosters.filter_map(|site| site.roster.as_ref());
        rosters.all(|roster| roster.members().closing().is_empty())
    }
}
