//! What goes wrong while clients go on: links, nodes, disks and clocks, by what the seed has drawn of them.

use whimbrel_service::cluster::closing::Closing;
use whimbrel_storage::memory::Faults;

use super::{MS, SECOND, World, coverage::MOVED};
use crate::node::EPOCH_MICROS;

impl World {
    pub(super) fn maybe_fault(&mut self) -> Result<(), String> {
        let mut hits = |often: u64| often > 0 && self.rng.one_in(often);
        let (cut, lose, flap, crash, full, clock, membership, wander, delivery, administer) = (
            hits(self.plan.cut),
            hits(self.plan.lose),
            hits(self.plan.flap),
            hits(self.plan.crash),
            hits(self.plan.full),
            hits(self.plan.clock),
            hits(self.plan.membership),
            hits(self.plan.wander),
            hits(self.plan.delivery),
            hits(self.plan.administer),
        );
        if administer {
            self.administer();
        }
        if membership {
            self.change_members()?;
        }
        if delivery {
            self.deliver();
        }
        if cut {
            let mut ended = false;
            // Longer where logs are cut early: who comes back gets a state.
            let longest = if self.plan.kept > 0 { 120 } else { 20 };
            let until = self.now + self.rng.between(100 * MS, longest * SECOND);
            // One link, or a part of the nodes from the rest.
            let (a, b) = self.pair();
            let part = self.rng.between(1, self.members.len() as u64 - 1);
            let alone = self.rng.one_in(2);
            for x in 0..self.members.len() {
                for y in 0..x {
                    let apart = (x < usize::try_from(part).unwrap_or(1))
                        != (y < usize::try_from(part).unwrap_or(1));
                    if (alone && (x, y) == (a.max(b), a.min(b))) || (!alone && apart) {
                        self.say(|| format!("cut between {x} and {y} until {until}"));
                        let silence = self.rng.below(3 * SECOND);
                        ended |= self.network.has_stream(x, y);
                        self.network.cut(self.now, x, y, until, silence);
                    }
                }
            }
            if ended {
                self.note("cluster: cut");
                self.note(match alone {
                    true => "cluster: cut, one link",
                    false => "cluster: cut, a group",
                });
            }
        }
        if lose {
            let (from, to) = self.pair();
            self.note_if(self.network.has_stream(from, to), "cluster: one way lost");
            let until = self.now + self.rng.between(100 * MS, 20 * SECOND);
            self.say(|| format!("what {from} sends {to} is lost until {until}"));
            let silence = self.rng.between(SECOND, 3 * SECOND);
            self.network.lose(self.now, from, to, until, silence);
        }
        if clock {
            let index = self.any_member();
            // Within what a node takes for a clock that is right: those of others are at most a minute off, and this one twice that.
            let jump = self.rng.below(60 * SECOND);
            let forward = self.rng.one_in(2);
            let offset = self.members[index].node.wall_offset_micros;
            let offset = if forward {
                (offset + jump).min(EPOCH_MICROS + 120 * SECOND)
            } else {
                (offset - jump).max(EPOCH_MICROS - 60 * SECOND)
            };
            let jumps = offset != self.members[index].node.wall_offset_micros;
            self.note_if(jumps, "cluster: clock jump");
            self.set_clock(index, offset);
        }
        self.maybe_set_a_clock();
        if flap {
            let (a, b) = self.pair();
            self.note_if(self.network.has_stream(a, b), "cluster: flap");
            let pause = self.rng.below(500 * MS);
            self.network.flap(self.now, a, b, pause);
        }
        if full {
            let index = self.any_member();
            let until = self.now + self.rng.between(MS, 3 * SECOND);
            let member = &mut self.members[index];
            if member.down.is_none() && member.full_until.is_none() {
                member.full_until = Some(until);
                member.node.disk.faults.full = true;
                self.note("cluster: full disk");
                self.say(|| format!("the disk of {index} is full until {until}"));
            }
        }
        if wander && !self.clients.is_empty() {
            self.note(MOVED);
            let index = self.rng.below(self.clients.len() as u64);
            self.wander(usize::try_from(index).unwrap_or(0));
        }
        if crash {
            let index = self.any_member();
            let down = if self.rng.one_in(2) {
                self.rng.below(200 * MS)
            } else {
                self.rng.below(15 * SECOND)
            };
            if self.members[index].down.is_none() {
                self.note("cluster: crash");
                self.crash(index, self.now + 1 + down);
            }
        }
        Ok(())
    }

    pub(super) fn any_member(&mut self) -> usize {
        let there = self.there();
        *self.rng.pick(&there)
    }

    pub(super) fn pair(&mut self) -> (usize, usize) {
        let (a, nodes) = (self.any_member(), self.members.len() as u64);
        let step = self.rng.between(1, nodes - 1);
        let b = (a as u64 + step) % nodes;
        (a, usize::try_from(b).unwrap_or(0))
    }

    pub(super) fn crash(&mut self, index: usize, until: u64) {
        self.say(|| format!("node {index} dies, until {until}"));
        let member = &mut self.members[index];
        member.down = Some(until);
        member.full_until = None;
        member.stopped_until = None;
        member.node.disk.faults = Faults::default();
        self.network.die(self.now, index);
        self.lose_clients_of(index);
    }

    pub(super) fn come_back(&mut self, index: usize) -> Result<(), String> {
        self.say(|| format!("node {index} comes back"));
        let is_its_own = !self.has_lost_its_disk(index);
        if !is_its_own && !self.starts_with_another_disk(index)? {
            return Ok(());
        }
        let seed = self.rng.number();
        let member = &mut self.members[index];
        member.down = None;
        member.linked.clear();
        member.closing = Closing::default();
        member.placing.begin_anew();
        member.node.crash_until(seed, self.now);
        let mut heard = false;
        if is_its_own {
            match self.asks_who_it_is(index)? {
                Some(new) => heard = new,
                None => return Ok(()),
            }
        }
        self.network.come_back(self.now, index);
        self.network.look_at(self.now, index);
        self.clock_begins(index)?;
        self.outcomes(index)?;
        if heard {
            self.changed(index)?;
        }
        Ok(())
    }

    /// Those that are down come back, and all disks have room.
    pub(super) fn mend_nodes(&mut self) -> Result<(), String> {
        self.mend_clocks();
        self.mend_stalls();
        for index in self.there() {
            if self.members[index].down.is_some() {
                self.come_back(index)?;
            }
            let member = &mut self.members[index];
            member.full_until = None;
            member.node.disk.faults.full = false;
        }
        Ok(())
    }
}
