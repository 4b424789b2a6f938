//! D1 when a node is lost with its disk: mail that was accepted is at the others, once.
//!
//! Mail comes at all nodes while streams break, nodes die and disks are full. In the end one of them is lost for good, most often in the moment in which it
//! has told a sender that mail is accepted, or a client that a message is appended, or that flags are set, for which one other node was waited for.

use super::{Disks, HEALING_MICROS_MAX, MS, Plan, SECOND, World};
use whimbrel_testkit::Rng;

use crate::world::{Breach, Report};

/// Runs one seed.
///
/// # Errors
/// The first breach.
pub fn run(seed: u64, trace: bool) -> Result<Report, Breach> {
    let plan = Plan {
        accounts: 1,
        clients: 0,
        calls: 0,
        wander: 0,
        delivery: 0,
        administer: 0,
        membership: 0,
        leaves: 0,
        protocol_clients: 0,
        disks: Disks::Own,
        small_windows: false,
        ..Plan::new(seed ^ 0x0010_57d1_5c00)
    };
    let mut world = World::new(plan, trace);
    match world.lose_a_disk() {
        Ok(()) => {
            world.sum_up();
            Ok(world.report)
        }
        Err(cause) => Err(Breach(format!("at {} us: {cause}", world.now))),
    }
}

impl World {
    fn lose_a_disk(&mut self) -> Result<(), String> {
        self.begin()?;
        // The account is known everywhere.
        self.run_until(2 * SECOND)?;
        match self.rng.below(9) {
            0..3 => self.give_up()?,
            3 => self.is_not_confirmed()?,
            _ => {}
        }
        for _ in 0..self.rng.between(0, 20) {
            let node = self.any_member();
            self.mail(node);
            self.maybe_fault()?;
            let pause = self.rng.between(MS, SECOND);
            self.run_until(self.now + pause)?;
        }
        let lost = self.any_member();
        if self.members[lost].down.is_some() {
            self.come_back(lost)?;
        }
        if self.rng.one_in(2) {
            self.network.heal(self.now);
            self.run_until(self.now + SECOND)?;
        }
        // A full disk does not take what SELECT tells.
        let shown = match self.members[lost].node.disk.faults.full {
            true => Vec::new(),
            false => self.inbox(lost, self.accounts[0])?.1,
        };
        let before = self.kept.count();
        let mut what = Rng::new(self.plan.seed ^ 0x0010_57d1_5c01);
        match what.below(3) {
            0 => (0..3).for_each(|_| self.mail(lost)),
            1 => (0..3).for_each(|_| self.write(lost, None)),
            _ => self.write(lost, Some(shown)),
        }
        let until = self.now + 3 * SECOND;
        while self.kept.count() == before && self.next_time().is_some_and(|next| next < until) {
            self.step()?;
        }
        if self.kept.count() > before {
            self.note("lost: acknowledged in the last moment");
        }
        self.crash(lost, self.now);
        self.members[lost].out = true;
        self.asked.retain(|_, asked| asked.node != lost);
        self.survivors_have_all()
    }

    /// A node takes mail and is cut off, for longer than the sender waits, and not for so long that another takes over: if the sender is told to come back the
    /// message is nowhere, whatever happens then.
    fn give_up(&mut self) -> Result<(), String> {
        let node = self.any_member();
        self.mail(node);
        self.write(node, None);
        let pause = self.rng.below(300 * MS);
        self.run_until(self.now + pause)?;
        let until = self.now + 8 * SECOND;
        for other in 0..self.members.len() {
            if other != node {
                self.network.cut(self.now, node, other, until, MS);
            }
        }
        self.run_until(self.now + 20 * SECOND)?;
        self.crash(node, self.now + MS);
        // Long enough for others to take over what its node does not finish.
        self.run_until(self.now + 200 * SECOND)?;
        if self.kept.has_refused() {
            self.note("lost: given up");
        }
        for index in self.there() {
            self.nothing_refused(index)?;
        }
        Ok(())
    }

    /// A node takes mail and hears nothing any more, while what it sends arrives for a while: others have what it cannot confirm, its sender is told to come
    /// back, and others take over before they hear of that (`docs/replication.md`, "A refusal is not always the end of a message").
    fn is_not_confirmed(&mut self) -> Result<(), String> {
        let node = self.any_member();
        let until = self.now + 120 * SECOND;
        for other in (0..self.members.len()).filter(|other| *other != node) {
            self.network.lose(self.now, other, node, until, 3 * SECOND);
        }
        self.mail(node);
        self.run_until(until)?;
        let body = self.kept.last_refused();
        let shown = self.all_visible(self.accounts[0])?;
        if body.is_some_and(|body| shown.iter().any(|(_, of)| *of == body)) {
            self.note("lost: told to come back, and taken over");
        }
        Ok(())
    }

    fn mail(&mut self, node: usize) {
        if self.members[node].down.is_none() {
            self.accept(node, vec![self.accounts[0]]);
        }
    }

    /// All that is left is mended, and shows the same.
    fn survivors_have_all(&mut self) -> Result<(), String> {
        self.mend_nodes()?;
        self.network.heal(self.now);
        let end = self.now + HEALING_MICROS_MAX;
        // What was on its way to be accepted comes to an end.
        let mut wait = 20 * SECOND;
        loop {
            self.run_until(self.now + wait)?;
            let apart = self.differences()?;
            match (apart, self.nothing_lost()) {
                (None, Ok(())) => return Ok(()),
                (_, Err(breach)) if self.now > end => return Err(breach),
                (Some(apart), _) if self.now > end => {
                    return Err(format!("nodes that are left do not become alike: {apart}"));
                }
                _ => {}
            }
            wait *= 2;
        }
    }
}
