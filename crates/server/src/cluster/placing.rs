//! Which partitions this node leaves, and to which it comes back: each node decides for itself, by what all know (`docs/decisions/0040`).
//!
//! Who is to hold a partition follows from the members and the configuration alone ([`placement::holders`]). A node comes when it is to; one that is to hold it no
//! more begins to leave when those who are to have all that clients may know, and has left when they have said that they have all that is on its disk. So there are never
//! fewer than there are to be. A member that is not linked, or does not know of holders, keeps all where they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::{MissedTickBehavior, interval};
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_replication::{
    holders::Phase,
    placement::{self, Node},
    roster::{Roster, RosterError},
    wire::FEATURE_HOLDERS,
};
use whimbrel_service::peers::PartitionReport;

use super::state::State;
use crate::{config::Config, store_calls::Store, switchboard::Switchboard};

/// How often it is looked: as long as nothing is to be moved, this is a look at the roster and at what machines say.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Partitions to which this node comes back at once: each is a state, with the bodies.
const COMING_MAX: usize = 4;

/// Partitions that it leaves at once: each costs questions, and what is here of it goes page by page.
const LEAVING_MAX: usize = 16;

/// How many nodes are to hold each partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Workers of each region; 0: all.
    per_region: usize,
    /// In all regions together.
    least: usize,
}

impl Wanted {
    pub(super) fn of(config: &Config) -> Self {
        Wanted {
            per_region: config.cluster.holders_per_region,
            least: least(config),
        }
    }
}

/// So many members hold each partition, at least: what is written must be at one more than has to confirm it.
pub(crate) fn least(config: &Config) -> usize {
    let others = [
        config.queue.other_nodes,
        config.imap.other_nodes,
        config.pop3.other_nodes,
    ];
    1 + others.into_iter().max().unwrap_or(0)
}

/// Runs as long as the node.
pub(super) async fn watch<S: Store>(state: Arc<State<S>>, board: Arc<Switchboard>, wanted: Wanted) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = look(&state, &board, wanted).await {
            tracing::warn!(%error, "what this node holds cannot be said");
        }
    }
}

/// A partition as it stands here.
struct Here<'r> {
    partition: PartitionId,
    phase: Phase,
    report: Option<&'r PartitionReport>,
    /// Those who are to hold it.
    wanted: BTreeSet<Incarnation>,
}

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// Its machine is to look at it.
    Open,
    Leave,
    Stay,
    /// It has left; the end of its log.
    Left(u64),
    Come,
}

impl Here<'_> {
    fn next(&self, me: Incarnation, others: &Others, room: &Room) -> Option<Move> {
        let Some(report) = self.report else {
            return (self.phase != Phase::Holds).then_some(Move::Open);
        };
        let is_wanted = self.wanted.contains(&me);
        match (self.phase, report.left) {
            (Phase::Leaves, Some(left)) => Some(Move::Left(left.end)),
            // Whoever is out of reach may be for long, and this node serves nothing meanwhile.
            (Phase::Leaves, None) if is_wanted || !others.all_linked => Some(Move::Stay),
            (Phase::Away, Some(left)) => {
                (left.is_gone && is_wanted && room.coming > 0).then_some(Move::Come)
            }
            (Phase::Holds, None) => {
                let is_whole = !self.comes();
                let they_are = self.wanted.is_subset(&report.whole_at);
                let may_leave = is_whole && they_are && others.may_leave(self.partition);
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
        let is_whole = self.report.is_some_and(|of| of.open.is_some() && !of.young);
        self.phase == Phase::Holds && !is_whole
    }
}

/// How many more may be under way.
struct Room {
    leaving: usize,
    coming: usize,
}

/// What has to be known of others before anything is left.
struct Others {
    /// All members, and all of them know of holders.
    all_linked: bool,
    /// Somebody is being removed.
    closing: bool,
    /// Partitions with mail that nobody else has; `None`: not known yet.
    keeps: Option<BTreeSet<PartitionId>>,
    /// This node is new itself, or is to hold everything.
    stays: bool,
}

impl Others {
    fn may_leave(&self, partition: PartitionId) -> bool {
        let kept = self.keeps.as_ref();
        let free = kept.is_some_and(|keeps| !keeps.contains(&partition));
        self.all_linked && !self.closing && !self.stays && free
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
    let places = roster.places().iter();
    let members = places.filter(|(_, place)| !roster.members().is_out(place.incarnation));
    let node = members.map(|(name, place)| Node {
        name: name.clone(),
        region: place.region.clone(),
        role: place.role(),
        distance: 0,
        holds: true,
    });
    node.collect()
}

async fn look<S: Store>(
    state: &State<S>,
    board: &Switchboard,
    of: Wanted,
) -> Result<(), super::state::ChangeError> {
    let roster = state.roster.lock().await.clone();
    let me = state.me();
    let holds = |bucket| roster.holds(me, PartitionId::accounts(bucket));
    if of.per_region == 0 && (0..=u8::MAX).all(holds) {
        // It holds all and is to: nothing is asked of anybody.
        return Ok(());
    }
    let Some(reports) = board.all_reports().await else {
        return Ok(());
    };
    let queue = reports
        .iter()
        .find(|report| report.partition == PartitionId::QUEUE && report.open.is_some());
    let able: BTreeSet<Incarnation> = state
        .transport
        .links()
        .into_iter()
        .filter(|link| link.features & FEATURE_HOLDERS != 0)
        .map(|link| link.incarnation)
        .collect();
    let open = roster.members().open();
    let others = Others {
        all_linked: open.iter().all(|id| *id == me || able.contains(id)),
        closing: !roster.members().closing().is_empty(),
        keeps: queue.map(|queue| queue.keeps.clone()),
        stays: state.is_young() || of.per_region == 0,
    };
    let nodes = nodes(&roster);
    let reports: BTreeMap<PartitionId, &PartitionReport> =
        reports.iter().map(|of| (of.partition, of)).collect();
    let here = (0..=u8::MAX).map(|bucket| {
        let partition = PartitionId::accounts(bucket);
        Here {
            partition,
            phase: roster.standing(me, partition).phase,
            report: reports.get(&partition).copied(),
            wanted: wanted(&roster, partition, &nodes, of),
        }
    });
    let here: Vec<Here<'_>> = here.collect();
    let whole = here
        .iter()
        .filter(|here| here.phase == Phase::Holds && !here.comes());
    state.are_whole(whole.map(|here| here.partition).collect());
    let going = here.iter().filter(|here| here.goes()).count();
    let coming = here
        .iter()
        .filter(|here| here.report.is_some() && here.comes())
        .count();
    let mut room = Room {
        leaving: LEAVING_MAX.saturating_sub(going),
        coming: COMING_MAX.saturating_sub(coming),
    };
    for here in &here {
        let partition = here.partition;
        let Some(step) = here.next(me, &others, &room) else {
            continue;
        };
        let number = partition.0;
        match step {
            Move::Open => {}
            Move::Leave => {
                room.leaving -= 1;
                match state.change(|roster| roster.leave(me, partition)).await {
                    // What members say of partitions has no room left: it stays.
                    Err(super::state::ChangeError::Roster(RosterError::TooLong)) => continue,
                    done => done?,
                }
                tracing::info!(partition = number, "is left: others hold it");
            }
            Move::Stay => {
                state.change(|roster| roster.stay(me, partition)).await?;
                tracing::info!(partition = number, "is not left now");
            }
            Move::Left(end) => {
                state
                    .change(|roster| roster.left(me, partition, end))
                    .await?;
                tracing::info!(partition = number, "was left: what is here of it goes");
            }
            Move::Come => {
                room.coming -= 1;
                state.change(|roster| roster.come(me, partition)).await?;
                tracing::info!(partition = number, "is held again, when all of it is here");
            }
        }
        board.open_partition(partition);
    }
    Ok(())
}
