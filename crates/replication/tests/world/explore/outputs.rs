//! What a driver does with what the machine wants.

use whimbrel_crdt::Incarnation;
use whimbrel_replication::partition::{Input, Output, Rows, StateInput, StateOutput, Ticket};

use super::space::{Asked, Space};
use crate::world::{
    disk::{Io, StateIo, page, unpage},
    node::Node,
};

impl Space<'_> {
    pub(super) fn input(&mut self, node: usize, input: Input) -> Result<(), String> {
        let now = self.clock();
        let Some(machine) = self.site(node).node.machine.as_mut() else {
            return Ok(());
        };
        machine.handle(now, input);
        self.outputs(node)
    }

    pub(super) fn outputs(&mut self, node: usize) -> Result<(), String> {
        while let Some(output) = self.site(node).node.machine.as_mut().and_then(|m| m.poll()) {
            self.output(node, output)?;
        }
        while !self.bounds.slow_reads && !self.sites[node].asked.is_empty() {
            self.answer(node)?;
        }
        self.pump(node)
    }

    fn output(&mut self, node: usize, output: Output) -> Result<(), String> {
        let wall = self.clock().wall_micros;
        let ahead = self.config.ahead_micros_max;
        match output {
            Output::Store {
                ticket,
                foreign,
                apply,
            } => {
                let it = &mut self.site(node).node;
                it.commit_foreign(ticket, &foreign, apply, (wall, ahead))?;
            }
            Output::Apply { ticket, batch } => {
                let it = &mut self.site(node).node;
                it.commit_applied(ticket, &batch, (wall, ahead))?;
            }
            Output::Read {
                ticket,
                origin,
                from,
                bytes_max,
            } => {
                let asked = Asked::Log(origin, from, bytes_max);
                self.site(node).asked.insert(ticket, asked);
            }
            Output::State(output) => self.state_output(node, output)?,
            Output::Behind { .. } => {}
            Output::Grown => self.site(node).node.syncing = false,
            Output::Wake(peer) => {
                let to = self.sites.iter().position(|site| site.node.id == peer);
                self.site(node).awake.extend(to);
            }
            Output::Cut { origin, below } => {
                self.check_cut(node, origin, below)?;
                self.log_cuts += 1;
                self.site(node).node.disk.cut(origin, below);
            }
            Output::Stable(stable) => {
                let it = &self.sites[node].node;
                self.made.check_stable(it, self.members(), &stable)?;
                // What was hidden before is collected at once.
                self.site(node).node.collected.merge(&stable);
            }
            Output::Alarm(_) | Output::Stop(_) | Output::Fatal(_) => {
                return Err(format!("{output:?}"));
            }
        }
        Ok(())
    }

    fn state_output(&mut self, node: usize, output: StateOutput) -> Result<(), String> {
        match output {
            StateOutput::Snapshot { ticket } => {
                let made = self.made.clone();
                let site = self.site(node);
                site.snapshots += 1;
                let snapshot = site.node.snapshot(&made, site.snapshots)?;
                site.asked.insert(ticket, Asked::Snapshot(snapshot));
            }
            StateOutput::Read {
                ticket,
                state,
                after,
                bytes_max,
            } => {
                let asked = Asked::Rows(state, after, bytes_max);
                self.site(node).asked.insert(ticket, asked);
            }
            StateOutput::Drop { state } => {
                let dropped = self.site(node).node.snapshots.remove(&state);
                dropped.ok_or("dropped twice")?;
            }
            StateOutput::Begin { held } => self.commit(node, None, StateIo::Begin(*held)),
            StateOutput::Store { ticket, last, rows } => {
                self.commit(node, Some(ticket), StateIo::Store(last, unpage(&rows)));
            }
            StateOutput::Join {
                ticket,
                held,
                jumps,
            } => {
                let it = &self.sites[node].node;
                self.made.check_join(it, &held)?;
                if !held.snapshot.applied.covers_all(&it.collected) {
                    return Err("a state is joined that lacks what was collected".into());
                }
                self.joins += 1;
                self.site(node).node.join(&held);
                self.commit(node, Some(ticket), StateIo::Join(*held, jumps));
            }
            StateOutput::Forget => self.commit(node, None, StateIo::Forget),
        }
        Ok(())
    }

    fn commit(&mut self, node: usize, ticket: Option<Ticket>, state: StateIo) {
        self.site(node).node.disk.waiting.push_back(Io {
            ticket,
            state: Some(state),
            ..Io::default()
        });
    }

    /// The first of what was asked for.
    pub(super) fn answer(&mut self, node: usize) -> Result<(), String> {
        let site = self.site(node);
        let Some((ticket, asked)) = site.asked.pop_first() else {
            return Ok(());
        };
        let input = match asked {
            Asked::Log(origin, from, bytes_max) => {
                Input::Log(ticket, site.node.disk.read(origin, from, bytes_max))
            }
            Asked::Snapshot(snapshot) => Input::State(StateInput::Snapshot(ticket, Some(snapshot))),
            Asked::Rows(state, after, bytes_max) => match site.node.snapshots.get(&state) {
                Some(rows) => {
                    let (rows, last, end) = page(rows, &after, bytes_max);
                    let rows = rows.into();
                    Input::State(StateInput::Rows(ticket, Rows { rows, last, end }))
                }
                None => Input::State(StateInput::Lost(ticket)),
            },
        };
        self.input(node, input)
    }

    /// A log is cut where every member has applied it, or where it was given up and all that are linked have it.
    fn check_cut(&self, node: usize, origin: Incarnation, below: u64) -> Result<(), String> {
        let cuts = |what: &str, other: &Node| {
            let id = other.id;
            Err(format!(
                "node {node} cuts {origin:?} below {below}, {what} {id:?}"
            ))
        };
        if below <= self.sites[node].given_up.get(origin) + 1 {
            let mut linked = (0..self.sites.len()).filter(|other| self.are_linked(node, *other));
            let lacks =
                |other: &usize| self.sites[*other].node.disk.durable.get(origin) + 1 < below;
            return match linked.find(lacks) {
                Some(other) => cuts("not yet at the linked", &self.sites[other].node),
                None => Ok(()),
            };
        }
        let lacks = |other: &&Node| other.disk.applied.get(origin) + 1 < below;
        match self.members().find(lacks) {
            Some(other) => cuts("not applied at", other),
            None => Ok(()),
        }
    }
}
