//! Which partitions this node leaves, and to which it comes back: each node decides for itself, by what all know (`docs/decisions/0040`).
//!
//! Who is to hold a partition follows from the members and the configuration alone ([`placement::holders`]). A node comes when it is to; one that is
//! to hold it no more begins to leave when those who are to have all that clients may know, and has left when they have said that they have all that
//! is on its disk. So there are never fewer than there are to be. A member that is not linked, or does not know of holders, keeps all where they are.
//! If those who stay cannot say it, the partition is held again ([`super::backoff`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use whimbrel_crdt::{Incarnation, PartitionId, mutants::broken};
use whimbrel_replication::{
    holders::Phase,
    placement::{self, Node},
    roster::{Roster, RosterError},
};

use super::backoff::{Far, Tries};
use crate::peers::PartitionReport;

/// How often a node looks: as long as nothing is to be moved, this is a look at the roster and at what machines say.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Partitions to which this node comes back at once: each is a state, with the bodies. Those of which nothing comes for long do not count.
const COMING_MAX: usize = 4;

/// Partitions that it leaves at once: each costs questions, and what is here of it goes page by page.
const LEAVING_MAX: usize = 16;

/// How many nodes are to hold each partition.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Workers of each region; 0: all. `cluster.holders_per_region`.
    pub per_region: usize,
    /// In all regions together.
    pub least: usize,
}

/// What a node knows when it looks.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// This node.
    pub me: Incarnation,
    /// The members.
    pub roster: &'a Roster,
    /// How all its partitions stand, those that it has left among them.
    pub reports: &'a [PartitionReport],
    /// The members that are linked and know of holders.
    pub linked: &'a BTreeSet<Incarnation>,
    /// Whether it is new, and has not all that another one had.
    pub syncing: bool,
}

/// The partitions of one node.
#[derive(Debug)]
pub struct Placing {
    wanted: Wanted,
    tries: Tries,
    /// Of these it has all.
    complete: BTreeSet<PartitionId>,
}

/// A partition as it stands here.
struct Here<'r> {
    partition: PartitionId,
    phase: Phase,
    report: Option<&'r PartitionReport>,
    /// This node had left it once: it serves it when its machine says that all is here.
    came_back: bool,
    /// Those who are to hold it.
    wanted: BTreeSet<Incarnation>,
    /// It was tried to leave it, not long ago and in vain.
    rests: bool,
    /// It is being left, for too long.
    is_vain: bool,
}

/// What is done next with a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Its machine is to look at it.
    Open,
    /// It is to be left: from now on it serves nothing of it.
    Leave,
    /// It is held again, since it is to hold it, or somebody is out of reach.
    Stay,
    /// Those who stay cannot say that they have all: it stays, and tries it again later.
    GiveUp,
    /// It has left; the end of its log.
    Left(u64),
    /// It comes back.
    Come,
}

impl Move {
    /// What the members are told of it.
    ///
    /// # Errors
    /// [`RosterError`]; nothing has changed then. With [`RosterError::TooLong`] what members say of partitions has no room left: the partition stays.
    pub fn tell(
        self,
        roster: &mut Roster,
        me: Incarnation,
        partition: PartitionId,
    ) -> Result<(), RosterError> {
        match self {
            Move::Open => Ok(()),
            Move::Leave => roster.leave(me, partition),
            Move::Stay | Move::GiveUp => roster.stay(me, partition),
            Move::Left(end) => roster.left(me, partition, end),
            Move::Come => roster.come(me, partition),
        }
    }
}

impl Here<'_> {
    fn next(&self, me: Incarnation, others: &PeerState, room: &Room) -> Option<Move> {
        let Some(report) = self.report else {
            // Where nobody ever wrote, a start opens nothing.
            let is_asked = self.phase != Phase::Holds || self.came_back;
            return is_asked.then_some(Move::Open);
        };
        let is_wanted = self.wanted.contains(&me);
        match (self.phase, report.left) {
            (Phase::Leaves, Some(left)) => Some(Move::Left(left.end)),
            // Whoever is out of reach may be for long, and this node serves nothing meanwhile.
            (Phase::Leaves, None) if is_wanted || !others.all_linked => Some(Move::Stay),
            (Phase::Leaves, None) => self.is_vain.then_some(Move::GiveUp),
            (Phase::Away, Some(left)) => {
                let may_come = left.is_gone && room.coming > 0 && !broken("nobody-comes-back");
                (is_wanted && may_come).then_some(Move::Come)
            }
            (Phase::Holds, None) => {
                let is_complete = !self.comes();
                let they_are = self.wanted.is_subset(&report.complete_at);
                let may_leave = is_complete && they_are && others.may_leave();
                let may_leave = may_leave && !self.rests;
                (!is_wanted && room.leaving > 0 && may_leave).then_some(Move::Leave)
            }
            _ => None,
        }
    }

    /// Whether it is being left, or dropped.
    fn goes(&self) -> bool {
        let left = self.report.and_then(|report| report.left);
        match self.phase {
            Phase::Leaves => true,
            Phase::Holds => false,
            Phase::Away => left.is_some_and(|of| !of.is_gone),
        }
    }

    /// Whether it is held, and not all of it is here.
    fn comes(&self) -> bool {
        let is_complete = self
            .report
            .is_some_and(|of| of.open.is_some() && !of.syncing);
        self.phase == Phase::Holds && !is_complete
    }

    /// How much of it came.
    fn far(&self) -> Far {
        let Some(report) = self.report else {
            return Far::default();
        };
        let open = report.open.iter();
        let came = open.map(|open| {
            let logs = open.logs.values();
            let operations = logs.map(|log| log.taken + log.stored + log.applied);
            open.state_bytes + operations.sum::<u64>()
        });
        (came.sum(), report.blobs_missing)
    }

    /// Whether it is being left, and those who stay have not all.
    fn waits(&self) -> bool {
        self.phase == Phase::Leaves && self.report.is_some_and(|of| of.left.is_none())
    }
}

/// How many more may be under way.
struct Room {
    leaving: usize,
    coming: usize,
}

/// What has to be known of others before anything is left.
struct PeerState {
    /// All members, and all of them know of holders.
    all_linked: bool,
    /// Somebody is being removed.
    closing: bool,
    /// This node is new itself, or is to hold everything.
    stays: bool,
}

impl PeerState {
    fn may_leave(&self) -> bool {
        self.all_linked && !self.closing && !self.stays
    }
}

/// Those who are to hold a partition.
fn wanted(
    roster: &Roster,
    partition: PartitionId,
    nodes: &[Node],
    wanted: Wanted,
) -> BTreeSet<Incarnation> {
    let names = placement::holders(partition, nodes, wanted.per_region, wanted.least);
    let places = roster.places();
    let of = names.into_iter().filter_map(|name| places.get(name));
    of.map(|place| place.incarnation).collect()
}

/// The members as they are placed.
fn nodes(roster: &Roster) -> Vec<Node> {
    let node = roster.present().map(|(name, place)| Node {
        name: name.to_owned(),
        region: place.region.clone(),
        role: place.role(),
        distance: 0,
        holds: true,
    });
    node.collect()
}

impl Placing {
    /// Nothing was looked at yet.
    #[must_use]
    pub fn new(wanted: Wanted) -> Placing {
        Placing {
            wanted,
            tries: Tries::default(),
            complete: BTreeSet::new(),
        }
    }

    /// The configuration is another one.
    pub fn set_wanted(&mut self, wanted: Wanted) {
        self.wanted = wanted;
    }

    /// The node starts again.
    pub fn begin_anew(&mut self) {
        *self = Placing::new(self.wanted);
    }

    /// Whether this node holds a partition, has all of it that clients may know, as far as its own returns go, and goes on with it.
    #[must_use]
    pub fn serves(&self, roster: &Roster, me: Incarnation, partition: PartitionId) -> bool {
        let came_back = roster.holder_state(me, partition).generation > 0;
        roster.holds(me, partition) && (!came_back || self.complete.contains(&partition))
    }

    /// Whether it holds all and is to, and what it had left once is known to be here: nothing is asked of anybody.
    #[must_use]
    pub fn is_idle(&self, roster: &Roster, me: Incarnation) -> bool {
        let serves = |bucket| self.serves(roster, me, PartitionId::accounts(bucket));
        self.wanted.per_region == 0 && (0..=u8::MAX).all(serves)
    }

    /// What is to be done, partition by partition; [`Placing::done`] is called for each that was. `now`: since the start of the process.
    pub fn look(&mut self, seen: &Seen<'_>, now: Duration) -> Vec<(PartitionId, Move)> {
        let Seen {
            me,
            roster,
            linked,
            syncing,
            ..
        } = *seen;
        let open = roster.members().open();
        let others = PeerState {
            all_linked: open.iter().all(|id| *id == me || linked.contains(id)),
            closing: !roster.members().closing().is_empty(),
            stays: syncing || self.wanted.per_region == 0,
        };
        let mut here = self.here(seen, now);
        let waiting = here.iter().filter(|here| here.waits());
        let waiting = waiting.map(|here| here.partition).collect();
        let vain = self.tries.leaving(&waiting, now);
        for here in &mut here {
            here.is_vain = vain.contains(&here.partition);
        }
        let complete = here
            .iter()
            .filter(|here| here.phase == Phase::Holds && !here.comes());
        self.complete = complete.map(|here| here.partition).collect();
        let going = here.iter().filter(|here| here.goes()).count();
        let coming = here
            .iter()
            .filter(|here| here.report.is_some() && here.comes());
        let coming = coming.map(|of| (of.partition, of.far())).collect();
        let coming = self.tries.coming(&coming, now);
        let mut room = Room {
            leaving: LEAVING_MAX.saturating_sub(going),
            coming: COMING_MAX.saturating_sub(coming),
        };
        let mut moves = Vec::new();
        for here in &here {
            let next = here.next(me, &others, &room);
            match next {
                Some(Move::Leave) => room.leaving -= 1,
                Some(Move::Come) => room.coming -= 1,
                _ => {}
            }
            moves.extend(next.map(|next| (here.partition, next)));
        }
        moves
    }

    /// It was done, and the members are told.
    pub fn done(&mut self, partition: PartitionId, what: Move, now: Duration) {
        match what {
            Move::GiveUp => self.tries.in_vain(partition, now),
            Move::Left(_) => self.tries.left(partition),
            Move::Open | Move::Leave | Move::Stay | Move::Come => {}
        }
    }

    /// The partitions of accounts with which there is anything to do.
    fn here<'r>(&self, seen: &Seen<'r>, now: Duration) -> Vec<Here<'r>> {
        let reports: BTreeMap<PartitionId, &PartitionReport> =
            seen.reports.iter().map(|of| (of.partition, of)).collect();
        let nodes = nodes(seen.roster);
        let here = (0..=u8::MAX)
            .map(PartitionId::accounts)
            .filter_map(|partition| {
                let report = reports.get(&partition).copied();
                let holder_state = seen.roster.holder_state(seen.me, partition);
                let came_back = holder_state.generation > 0;
                let is_asked = report.is_some() || holder_state.phase != Phase::Holds || came_back;
                is_asked.then(|| Here {
                    partition,
                    phase: holder_state.phase,
                    came_back,
                    report,
                    wanted: wanted(seen.roster, partition, &nodes, self.wanted),
                    rests: !self.tries.may_leave(partition, now),
                    is_vain: false,
                })
            });
        here.collect()
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_replication::partition::Report;

    use super::*;
    use crate::peers::LeftReport;

    fn node(id: u64) -> Incarnation {
        Incarnation::new(id).expect("not zero")
    }

    const PARTITION: PartitionId = PartitionId::accounts(3);

    fn report(left: Option<LeftReport>) -> PartitionReport {
        PartitionReport {
            partition: PARTITION,
            open: Some(Report::default()),
            blobs_missing: 0,
            accounts_stalled: 0,
            uids_reassigned: 0,
            syncing: false,
            complete_at: BTreeSet::from([node(2), node(3)]),
            left,
        }
    }

    #[test]
    fn what_is_done_next() {
        let me = node(1);
        let held = report(None);
        let left = |is_gone| report(Some(LeftReport { end: 7, is_gone }));
        let (closed, gone) = (left(false), left(true));
        let rest = |here: &mut Here<'_>| here.rests = true;
        let vain = |here: &mut Here<'_>| here.is_vain = true;
        let wanted = |here: &mut Here<'_>| _ = here.wanted.insert(node(1));
        let incomplete = |here: &mut Here<'_>| _ = here.wanted.insert(node(4));
        let nothing = |_: &mut Here<'_>| {};
        type Change<'c> = &'c dyn Fn(&mut Here<'_>);
        let table: &[(Phase, &PartitionReport, Change<'_>, Option<Move>)] = &[
            (Phase::Holds, &held, &nothing, Some(Move::Leave)),
            (Phase::Holds, &held, &wanted, None),
            (Phase::Holds, &held, &incomplete, None),
            (Phase::Holds, &held, &rest, None),
            (Phase::Leaves, &held, &nothing, None),
            (Phase::Leaves, &held, &wanted, Some(Move::Stay)),
            (Phase::Leaves, &held, &vain, Some(Move::GiveUp)),
            (Phase::Leaves, &closed, &vain, Some(Move::Left(7))),
            (Phase::Away, &closed, &wanted, None),
            (Phase::Away, &gone, &nothing, None),
            (Phase::Away, &gone, &wanted, Some(Move::Come)),
        ];
        for (index, (phase, report, change, expected)) in table.iter().enumerate() {
            let mut here = Here {
                partition: PARTITION,
                phase: *phase,
                came_back: false,
                report: Some(*report),
                wanted: BTreeSet::from([node(2), node(3)]),
                rests: false,
                is_vain: false,
            };
            change(&mut here);
            let mut others = PeerState {
                all_linked: true,
                closing: false,
                stays: false,
            };
            let room = Room {
                leaving: 1,
                coming: 1,
            };
            assert_eq!(here.next(me, &others, &room), *expected, "{index}");
            let none = Room {
                leaving: 0,
                coming: 0,
            };
            let begins = matches!(expected, Some(Move::Leave | Move::Come));
            let next = here.next(me, &others, &none);
            assert_eq!(next, expected.filter(|_| !begins), "{index}");
            others.all_linked = false;
            let next = here.next(me, &others, &room);
            let stays = *phase == Phase::Leaves && report.left.is_none();
            let expected = match expected {
                Some(Move::Leave) => None,
                _ if stays => Some(Move::Stay),
                expected => *expected,
            };
            assert_eq!(next, expected, "{index}");
        }
    }

    #[test]
    fn what_is_not_open_is_opened_where_it_matters() {
        let table = [
            (Phase::Holds, false, None),
            (Phase::Holds, true, Some(Move::Open)),
            (Phase::Leaves, false, Some(Move::Open)),
            (Phase::Away, false, Some(Move::Open)),
        ];
        for (phase, came_back, expected) in table {
            let here = Here {
                partition: PARTITION,
                phase,
                came_back,
                report: None,
                wanted: BTreeSet::from([node(1)]),
                rests: false,
                is_vain: false,
            };
            let others = PeerState {
                all_linked: true,
                closing: false,
                stays: true,
            };
            let room = Room {
                leaving: 1,
                coming: 1,
            };
            let next = here.next(node(1), &others, &room);
            assert_eq!(next, expected, "{phase:?}, {came_back}");
        }
    }
}
