//! What a driver does for snapshots, and what happens to one.

use whimbrel_crdt::Dot;

use super::disk::{page, unpage};
use super::*;

impl World {
    pub(super) fn answer(&mut self, node: usize, input: Input) {
        let generation = self.nodes[node].generation;
        let time = self.now + 1 + self.rng.below(5 * MS);
        self.at(
            time,
            Event::Answer {
                node,
                generation,
                input,
            },
        );
    }

    pub(super) fn state_output(&mut self, node: usize, output: StateOutput) -> Result<(), String> {
        match output {
            StateOutput::Snapshot { ticket } => {
                if self.nodes[node].snapshots.len() >= self.config.state.gives_max {
                    return Err("too many snapshots are kept".into());
                }
                self.count += 1;
                let snapshot = self.nodes[node].snapshot(&self.made, self.count)?;
                let answer = StateInput::Snapshot(ticket, Some(snapshot));
                self.answer(node, Input::State(answer));
                Ok(())
            }
            StateOutput::Read {
                ticket,
                state,
                after,
                bytes_max,
            } => {
                let rows = self.nodes[node].snapshots.get(&state);
                let rows = rows.ok_or("a snapshot is read that was dropped")?;
                let (rows, last, end) = page(rows, &after, bytes_max);
                let rows = Rows {
                    rows: rows.into(),
                    last,
                    end,
                };
                self.answer(node, Input::State(StateInput::Rows(ticket, rows)));
                Ok(())
            }
            StateOutput::Drop { state } => {
                let dropped = self.nodes[node].snapshots.remove(&state);
                dropped.map(|_| ()).ok_or("dropped twice".into())
            }
            StateOutput::Begin { held } => self.commit(node, None, StateIo::Begin(*held)),
            StateOutput::Store { ticket, last, rows } => {
                self.commit(node, Some(ticket), StateIo::Store(last, unpage(&rows)))
            }
            StateOutput::Join {
                ticket,
                held,
                jumps,
            } => {
                self.made.check_join(&self.nodes[node], &held)?;
                self.joined += 1;
                self.joined_by_members += u64::from(node < self.founders());
                self.nodes[node].join(&held);
                self.commit(node, Some(ticket), StateIo::Join(*held, jumps))
            }
            StateOutput::Forget => self.commit(node, None, StateIo::Forget),
        }
    }

    fn commit(
        &mut self,
        node: usize,
        ticket: Option<Ticket>,
        state: StateIo,
    ) -> Result<(), String> {
        self.nodes[node].disk.waiting.push_back(Io {
            ticket,
            state: Some(state),
            ..Io::default()
        });
        self.sync(node);
        Ok(())
    }

    /// A founder that lives makes a newcomer a member.
    pub(super) fn sponsor(&mut self, newcomer: usize) {
        let id = self.members[newcomer];
        if self.joins.contains_key(&id) {
            return;
        }
        let dead = self.setting.dead;
        let sponsor = (0..self.founders()).find(|node| {
            self.nodes[*node].machine.is_some() && self.writes(*node) && dead != Some(*node)
        });
        let Some(sponsor) = sponsor else {
            return self.at(self.now + SECOND, Event::Sponsor(newcomer));
        };
        self.write(sponsor);
        let last = self.nodes[sponsor].memory.get(self.members[sponsor]);
        self.joins.insert(id, Dot::new(self.members[sponsor], last));
    }

    /// After so many events of a transfer its trouble comes.
    pub(super) fn make_trouble(&mut self) -> Result<(), String> {
        let newcomer = self.setting.nodes - 1;
        let machine = self.nodes[newcomer].machine.as_ref();
        if !machine.is_some_and(|machine| machine.takes_state()) {
            return Ok(());
        }
        self.taking_steps += 1;
        let Some((_, trouble)) = self.trouble.filter(|(step, _)| *step == self.taking_steps) else {
            return Ok(());
        };
        let back = self.now + 20 * MS;
        match trouble {
            Trouble::ReceiverCrashes => {
                self.crash(newcomer)?;
                self.at(back, Event::Start(newcomer));
            }
            Trouble::DonorsCrash => {
                for node in 0..newcomer {
                    self.crash(node)?;
                    self.at(back, Event::Start(node));
                }
            }
            Trouble::LinksBreak => {
                for node in 0..newcomer {
                    self.connect(node, newcomer)?;
                }
            }
        }
        Ok(())
    }
}

/// A newcomer among two, whose logs are cut: with trouble after so many events of its transfer. How many there were.
fn transfer(trouble: Option<(u64, Trouble)>) -> Result<u64, String> {
    let mut world = World::new(7);
    world.setting = Setting {
        nodes: 3,
        newcomers: 1,
        lossy: 0,
        latency: 3 * MS,
        sync: 5 * MS,
        writes: 60,
        large: false,
        crashes: 0,
        cuts: 0,
        flaps: 0,
        skewed: false,
        leaves: 0,
        dead: None,
    };
    world.config.kept = 0;
    world.config.cut_step = 1;
    world.kept_for_absent = 1 << 20;
    world.members = (1..=3)
        .map(|id| Incarnation::new(id * 10).expect("not zero"))
        .collect();
    world.nodes = world
        .members
        .iter()
        .map(|id| Node::new(*id, false))
        .collect();
    world.trouble = trouble;
    world.events.clear();
    for node in 0..2 {
        world.at(0, Event::Start(node));
    }
    for write in 0..60 {
        let time = (1 + write * 40) * MS;
        world.at(time, Event::Write((write % 2) as usize));
    }
    world.at(2 * SECOND, Event::Sponsor(2));
    world.at(2 * SECOND + 50 * MS, Event::Start(2));
    for write in 0..20 {
        let time = 2 * SECOND + write * 40 * MS;
        world.at(time, Event::Write(2));
    }
    world.at(8 * SECOND, Event::Quiet);
    let end = world.go_on(8 * SECOND);
    end.map_err(|error| format!("{trouble:?}, {} ms: {error}", world.now / MS))?;
    if world.joined == 0 {
        return Err("no state was joined".into());
    }
    Ok(world.taking_steps)
}

pub const SCENARIOS: &[(&str, scenarios::Scenario)] = &[
    ("a newcomer among two", undisturbed),
    ("trouble at every step of a transfer", trouble_at_every_step),
];

fn undisturbed() -> Result<(), String> {
    transfer(None).map(|_| ())
}

/// The receiver, all donors, all links: at each event of a transfer.
fn trouble_at_every_step() -> Result<(), String> {
    let steps = transfer(None)?;
    if steps < 20 {
        return Err(format!("a transfer of {steps} events"));
    }
    for step in 1..=steps {
        for trouble in [
            Trouble::ReceiverCrashes,
            Trouble::DonorsCrash,
            Trouble::LinksBreak,
        ] {
            transfer(Some((step, trouble)))?;
        }
    }
    Ok(())
}

/// The random histories have what they are meant to have.
pub fn states_are_taken() -> Result<(), String> {
    let (mut joined, mut members, mut resumed, mut written) = (0, 0, 0, 0);
    let (mut left, mut returned) = (0, 0);
    for seed in 1..=200 {
        let mut world = World::new(seed);
        world.play()?;
        joined += world.joined;
        members += world.joined_by_members;
        resumed += world.resumed;
        written += world.written_meanwhile;
        left += world.left;
        returned += world.returned;
    }
    if left < 30 || returned < 20 {
        return Err(format!("{left} left, {returned} came back"));
    }
    if joined == members || members < 5 || resumed == 0 || written == 0 {
        return Err(format!(
            "{joined} states joined, {members} by members that were away, {resumed} resumed, {written} writes meanwhile"
        ));
    }
    Ok(())
}
