//! Nodes that stop for a while and go on, disks that hang or fail to sync, and bursts of mail and commands.
//!
//! A node that is stopped (SIGSTOP, a hypervisor that moves it) does nothing: its timers come late, frames to it wait in the kernel's buffers, and a
//! peer that has heard nothing for up to three seconds ends the link, as `cluster`'s does. Its clocks go on. A disk that hangs finishes no sync and
//! no read that begins; the node itself goes on, and answers pings. A sync that fails stops the node, as it stops the server: what was not durable is
//! lost as in a crash.

use std::collections::BTreeSet;

use whimbrel_service::api::Call;

use super::{MS, Plan, SECOND, World, clients::Asked, network::Event};
use crate::client::NAMES;
use whimbrel_testkit::Rng;

/// For so long a node or a disk stands still.
const STALL_MICROS: (u64, u64) = (SECOND, 60 * SECOND);

/// A link on which nothing was heard for so long ends.
const SILENCE_MICROS_MAX: u64 = 3 * SECOND;

/// Mail and commands in one moment.
const BURST: (u64, u64) = (20, 60);

/// What a seed draws of it, from a generator of its own. Once in how many calls; 0: never.
pub(super) struct Stalls {
    rng: Rng,
    stop: u64,
    hang: u64,
    fail: u64,
    burst: u64,
}

impl Stalls {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut rng = Rng::new(plan.seed ^ 0x005b_a115_0000);
        // Where turns are not drawn nothing of this is.
        let mut often = |seeds: u64, turns: u64| match rng.one_in(seeds) {
            true if plan.calls > 0 => rng.between(turns, turns * 4),
            _ => 0,
        };
        let (stop, hang, fail, burst) = (often(3, 40), often(3, 40), often(3, 40), often(4, 80));
        Stalls {
            rng,
            stop,
            hang,
            fail,
            burst,
        }
    }

    fn hits(&mut self, often: u64) -> bool {
        often > 0 && self.rng.one_in(often)
    }
}

impl World {
    /// Perhaps something stands still, or all comes at once.
    pub(super) fn maybe_stall(&mut self) {
        let stalls = &mut self.stalls;
        let (stop, hang, fail, burst) = (stalls.stop, stalls.hang, stalls.fail, stalls.burst);
        if self.stalls.hits(stop) {
            self.stop_a_node();
        }
        if self.stalls.hits(hang) {
            let (index, until) = self.one_and_until();
            let member = &mut self.members[index];
            if member.is_up() {
                member.node.hang_until(until);
                self.note("cluster: disk hangs");
                self.say(|| format!("the disk of {index} hangs until {until}"));
            }
        }
        if self.stalls.hits(fail) {
            let (index, _) = self.one_and_until();
            // It is noted when it has.
            if self.members[index].is_up() {
                self.members[index].node.disk.faults.sync_fails = true;
            }
        }
        if self.stalls.hits(burst) {
            self.burst();
        }
    }

    fn one_and_until(&mut self) -> (usize, u64) {
        let there = self.there();
        let stalls = &mut self.stalls;
        let index = *stalls.rng.pick(&there);
        let longest = *stalls.rng.pick(&[2 * SECOND, 10 * SECOND, STALL_MICROS.1]);
        let until = self.now + stalls.rng.between(STALL_MICROS.0, longest);
        (index, until)
    }

    fn stop_a_node(&mut self) {
        let (index, until) = self.one_and_until();
        if !self.members[index].is_up() {
            return;
        }
        self.note("cluster: a node is stopped");
        self.say(|| format!("node {index} is stopped until {until}"));
        self.bring(index);
        self.members[index].stopped_until = Some(until);
        for other in self.there() {
            let silence = self.stalls.rng.between(SECOND, SILENCE_MICROS_MAX);
            if other != index && self.now + silence < until {
                self.network.fall_silent(self.now + silence, index, other);
            }
        }
        for number in self.protocol_clients_at(index) {
            let patience = self.stalls.rng.between(MS, 2 * (until - self.now));
            if self.now + patience < until {
                self.protocol_client_times_out(self.now + patience, number);
            }
        }
    }

    /// It goes on where it was, later.
    pub(super) fn go_on(&mut self, index: usize) {
        self.say(|| format!("node {index} goes on"));
        let now = self.now;
        let member = &mut self.members[index];
        if let Some(until) = member.stopped_until.take()
            && until > now
        {
            // Sooner than it was to: what came meanwhile must not come behind what comes from now on.
            self.network.bring_forward(until + 1, now + 1);
        }
        member.node.sleep_until(now);
        self.clock_slept(index);
        for other in self.there() {
            if other != index {
                self.network.connect_at(now + 1, index, other);
            }
        }
    }

    /// Whether it stands still; what is to happen at it happens later then.
    pub(super) fn is_put_off(&mut self, event: Event) -> Option<Event> {
        let stopped = |index: usize| self.members[index].stopped_until;
        let until = match &event {
            Event::Arrive { to, .. } => stopped(*to),
            Event::Ready { from, .. } => stopped(*from),
            Event::Gone { at, .. } => stopped(*at),
            Event::Look(at) | Event::Place(at) | Event::Clock(at) => stopped(*at),
            Event::Connect(a, b) | Event::Mend(a, b) => stopped(*a).max(stopped(*b)),
            Event::ProtocolClient(happening) => {
                self.protocol_client_happens_at(happening).and_then(stopped)
            }
            Event::Silent { .. } => None,
        };
        let Some(until) = until else {
            return Some(event);
        };
        // Behind whatever lets it go on.
        self.network.at(until + 1, event);
        None
    }

    /// The disk failed to sync: the node has stopped itself.
    pub(super) fn sync_failed(&mut self, index: usize) {
        self.note("cluster: failed sync");
        let down = self.stalls.rng.below(5 * SECOND);
        self.crash(index, self.now + 1 + down);
    }

    /// Mail and APPENDs of many clients come to one node in one moment.
    fn burst(&mut self) {
        let (node, _) = self.one_and_until();
        if !self.members[node].is_up() {
            return;
        }
        self.note("cluster: burst");
        self.say(|| format!("all comes to {node}"));
        for _ in 0..self.stalls.rng.between(BURST.0, BURST.1) {
            if self.stalls.rng.one_in(2) {
                self.deliver_at(node);
                continue;
            }
            let account = *self.stalls.rng.pick(&self.accounts);
            let name = *self.stalls.rng.pick(&NAMES[..4]);
            let session = self.session();
            self.bring(node);
            if !self.serves(node, account) {
                continue;
            }
            let Some((call, body)) = self.appended(node, account, session, name) else {
                continue;
            };
            let request = self.request();
            let call = Call::Mailbox {
                account,
                call,
                uid_validity: None,
                other_nodes: self.plan.other_nodes,
            };
            self.members[node].node.call(request, call);
            let asked = Asked::append(node, account, body, self.now);
            self.asked.insert(request, asked);
        }
    }

    /// A client whose node is stopped waits, or goes elsewhere.
    pub(super) fn stands_still(&mut self, index: usize) -> bool {
        let Some(until) = self.members[self.clients[index].node].stopped_until else {
            return false;
        };
        self.clients[index].due = Some(until + 1);
        if self.stalls.rng.one_in(2) {
            self.wander(index);
        }
        true
    }

    /// Nothing stands still any more.
    pub(super) fn mend_stalls(&mut self) {
        let stopped: BTreeSet<usize> = self
            .there()
            .into_iter()
            .filter(|index| self.members[*index].stopped_until.is_some())
            .collect();
        stopped.into_iter().for_each(|index| self.go_on(index));
        for index in self.there() {
            let now = self.now;
            let member = &mut self.members[index];
            member.node.disk.faults.sync_fails = false;
            member.node.hang_until(now + MS);
        }
    }
}
