//! Finds out at the start who this node is, before anything is written: asks the peers what they remember of it, and a member for a slot. What
//! follows from the answers is decided in [`whimbrel_service::cluster::startup`].
//!
//! Each peer is asked once at the start. A peer that did not answer is judged by its first hello for a partition ([`judge`]), and asked again
//! ([`super::unverified_peers`]).

use std::{collections::BTreeSet, time::Duration};

use tokio::time::{Instant, sleep, timeout_at};
use whimbrel_cluster::{JoinError, NodeName, Peer, ask_member};
use whimbrel_crdt::{Hash, Incarnation};
use whimbrel_replication::{identity::Because, roster::Roster, wire::Hello};
use whimbrel_service::{
    cluster::startup::{self, Judged, Refusal, Sponsors, Startup, Verdict},
    log::store_partition,
};
use whimbrel_storage::{Origin, StoreError};

use super::{
    clocks::PeerTimes,
    duplicate_node,
    roster_store::{State, was_removed},
    rpc::{Question, Remembered, asked, encoded},
    unverified_peers,
};
use crate::{
    clock::Clock,
    node::{Copy, DataDir},
    serve::StartError,
    store_calls::Store,
};

/// Before a peer that could not be asked is asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// The same behind a refusal, which is logged at both.
const PAUSE_REFUSED: Duration = Duration::from_secs(1);
/// For a slot: without one the node cannot serve, so it waits longer than for what is remembered.
const SPONSOR_TIME_MAX: Duration = Duration::from_secs(30);
/// Of that for one member to say what it remembers, which takes some milliseconds: one that is cut off must leave time for the others.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(4);
/// And for one that has said so to give a slot: it syncs a file. If the answer is lost the slot may be given in vain, so it has more time.
const SLOT_TIME_MAX: Duration = Duration::from_secs(10);
/// For what members lack of a node that they have removed: it does not serve anyway.
const REMOVED_TIMEOUT: Duration = Duration::from_secs(2);

/// Who the node is.
pub(super) struct StartupIdentity {
    pub(super) me: Incarnation,
    pub(super) slot: u8,
    /// The clocks of the peers that answered.
    pub(super) asked: PeerTimes,
    /// Those that did not.
    pub(super) unverified: BTreeSet<NodeName>,
}

pub(super) async fn settle<S: Store>(
    state: &State<S>,
    data: &mut DataDir,
    patience: Duration,
    clock: Clock,
) -> Result<StartupIdentity, StartError> {
    // Who this disk was: a former incarnation may be known to be removed when the present one is known to nobody.
    let was = match state.files.life()? {
        Some(life) => life,
        None => {
            let roster = state.roster();
            let place = roster.places().get(state.credentials.name().as_str());
            place.map_or_else(|| incarnation(data), |place| place.incarnation)
        }
    };
    if state.files.must_renew() {
        refuse_written(state, incarnation(data)).await?;
        data.renew(Copy::Peers);
    }
    let me = incarnation(data);
    let mut asked = PeerTimes::new();
    let mut answered = BTreeSet::new();
    let answers = ask_all(state, me, patience, clock).await;
    // First: whatever the disk lacks, another one may be writing under its numbers.
    let answers = duplicate_node::refuse(state, me, answers, clock).await?;
    let mut startup = Startup::new(me);
    for answer in answers {
        let Answer {
            peer,
            remembered,
            mono_micros,
        } = answer;
        let roster = &remembered.roster;
        let older = older_than(state, me, &peer, &remembered).await?;
        startup.answered(&remembered.logs, older);
        let from = roster.places().get(peer.name.as_str());
        if let (Some(place), Some(wall_micros)) = (from, remembered.wall_micros) {
            let ahead = i128::from(wall_micros) - i128::from(mono_micros);
            let ahead = i64::try_from(ahead).unwrap_or(i64::MAX);
            asked.insert(place.incarnation, ahead);
        }
        hear(state, me, &peer, roster).await?;
        answered.insert(peer.name);
    }
    // Those, too, of which the answers told first.
    let peers = state.peers(&state.roster()).into_iter();
    let unverified = peers.map(|peer| peer.name);
    let unverified: BTreeSet<NodeName> =
        unverified.filter(|name| !answered.contains(name)).collect();
    match startup.verdict(&state.roster()) {
        Verdict::Keep => {}
        Verdict::Removed => return Err(removed(state, me, &startup).await?),
        Verdict::Older(because) => {
            tracing::error!(
                because,
                "this disk is older than what its peers remember of it"
            );
            refuse_written(state, me).await?;
            data.renew(Copy::Peers);
        }
    }
    let roster = state.roster();
    if roster.members().get(incarnation(data)).is_none() {
        let former = Former { was, clock };
        former.refuse_removed(state).await?;
        // A peer that does not answer now may have given a slot to this incarnation at an earlier start.
        if incarnation(data) == me {
            if state.files.may_have_slot(me)? {
                data.renew(Copy::Peers);
            } else {
                state.files.asks_for_slot(me)?;
            }
        }
        be_sponsored(state, data, &former, &answered).await?;
    }
    let me = incarnation(data);
    // An earlier start may have got the slot and ended before this point. The node records that it is syncing before it records its incarnation:
    // afterwards nothing shows that it is new.
    if was != me {
        state.keep_syncing()?;
    }
    let roster = state.roster();
    let member = roster.members().get(me).ok_or_else(nobody)?;
    if unverified.is_empty() {
        state.files.all_asked()?;
    } else {
        unverified_peers::keep(&state.files, &state.store, me).await?;
    }
    state.files.keep_life(me)?;
    data.assign(member.slot);
    data.write()?;
    state.files.renewed()?;
    Ok(StartupIdentity {
        me,
        slot: member.slot,
        asked,
        unverified,
    })
}

/// A peer has told whom it knows.
async fn hear<S: Store>(
    state: &State<S>,
    me: Incarnation,
    peer: &Peer,
    roster: &Roster,
) -> Result<(), StartError> {
    let from = roster.places().get(peer.name.as_str());
    let from = from.map_or(me, |place| place.incarnation);
    let heard = state.heard(from, roster).await;
    heard.map_err(|error| StartError::Cluster(format!("{}: {error}", peer.name)))?;
    Ok(())
}

/// Under which incarnation the disk took part before it goes on under one that nobody knows. A new node may have its name: its certificate says nothing then.
struct Former {
    was: Incarnation,
    clock: Clock,
}

impl Former {
    /// Refuses to go on if it was removed, once that is known.
    async fn refuse_removed<S: Store>(&self, state: &State<S>) -> Result<(), StartError> {
        if !state.roster().members().is_out(self.was) {
            return Ok(());
        }
        let mut startup = Startup::<()>::new(self.was);
        for answer in ask_all(state, self.was, REMOVED_TIMEOUT, self.clock).await {
            startup.answered(&answer.remembered.logs, None);
        }
        Err(removed(state, self.was, &startup).await?)
    }
}

async fn own_logs<S: Store>(
    state: &State<S>,
    me: Incarnation,
) -> Result<Vec<startup::RememberedLog>, StartError> {
    let logs = state.logs_of(me).await;
    logs.map_err(|error| StartError::Store(error.to_string()))
}

/// Why a node that was removed does not start.
async fn removed<S: Store, P>(
    state: &State<S>,
    me: Incarnation,
    startup: &Startup<P>,
) -> Result<StartError, StartError> {
    let logs = own_logs(state, me).await?;
    Ok(refused(state, me, &startup.removed(&logs)))
}

/// Refuses a disk that is known to be older, if it was written to since a start at which not all peers could be asked.
async fn refuse_written<S: Store>(state: &State<S>, me: Incarnation) -> Result<(), StartError> {
    let Some(record) = state.files.unverified()? else {
        return Ok(());
    };
    let logs = own_logs(state, me).await?;
    match startup::written_since(me, &logs, &record) {
        None => Ok(()),
        Some(refusal) => Err(refused(state, me, &refusal)),
    }
}

/// For people.
fn refused<S: Store>(state: &State<S>, me: Incarnation, refusal: &Refusal) -> StartError {
    StartError::Cluster(match refusal {
        Refusal::Removed { alone } => {
            let alone = match alone {
                None => "No member could be asked how much of it they lack.".to_owned(),
                Some((0, _)) => {
                    "Those members that were asked have all that was written here.".to_owned()
                }
                Some((operations, partitions)) => format!(
                    "{operations} operations in {partitions} partitions were written here that no member has which could be asked: they are on this \
                     disk alone, and are kept."
                ),
            };
            format!("{}. {alone}", was_removed(&state.roster(), me))
        }
        Refusal::WrittenSince(written) => format!(
            "this disk is older than what other nodes got from it, and {written} operations were written to it after a start at which not all other \
             nodes could be asked. Other nodes may have different operations under these numbers, so the two cannot be joined. Move DATA/store away \
             and start again: the node then gets everything from the others. What was written here is in the store that you moved (docs/cluster.md, \
             \"A snapshot that was put back\")"
        ),
    })
}

fn incarnation(data: &DataDir) -> Incarnation {
    Incarnation::from_hash(data.identity().incarnation)
}

fn nobody() -> StartError {
    StartError::Cluster(
        "this node goes on under a new incarnation, since its directory is a copy or older than what its peers remember, and needs a slot from a \
         member: none could be asked. Start it when one is reachable. If it is the only node there ever was, remove DATA/cluster and found the \
         cluster anew (`whimbrel cluster init`)"
            .into(),
    )
}

/// What one peer has said.
pub(super) struct Answer {
    pub(super) peer: Peer,
    pub(super) remembered: Remembered,
    /// When it was asked, by the monotonic clock.
    mono_micros: u64,
}

/// Asks one peer what it remembers; else why that cannot be known.
pub(super) async fn remembered_by<S: Store>(
    state: &State<S>,
    me: Incarnation,
    peer: &Peer,
    clock: Clock,
) -> Result<Answer, String> {
    let began = clock.now().mono_micros;
    let question = asked(&Question::Remember { incarnation: me }, me);
    let asking = ask_member(&state.credentials, &peer.name, &peer.address, question);
    let answer = asking.await.map_err(|error| error.to_string())?;
    Ok(Answer {
        peer: peer.clone(),
        remembered: minicbor::decode(&answer).map_err(|error| error.to_string())?,
        mono_micros: began.midpoint(clock.now().mono_micros),
    })
}

/// Asks all peers at once what they remember; who does not answer in time is left.
async fn ask_all<S: Store>(
    state: &State<S>,
    me: Incarnation,
    patience: Duration,
    clock: Clock,
) -> Vec<Answer> {
    let until = Instant::now() + patience;
    let peers = state.peers(&state.roster());
    let asked = peers.into_iter().map(|peer| async move {
        loop {
            let asking = remembered_by(state, me, &peer, clock);
            let failed = match timeout_at(until, asking).await {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(error)) => error,
                Err(late) => late.to_string(),
            };
            if Instant::now() + PAUSE >= until {
                tracing::warn!(peer = %peer.name, failed, "a peer could not be asked what it remembers of this node");
                return None;
            }
            sleep(PAUSE).await;
        }
    });
    let mut answers = Vec::new();
    // Each has the same end, so that waiting for one after the other waits no longer.
    let running: Vec<_> = asked.map(Box::pin).collect();
    for answer in all(running).await {
        answers.extend(answer);
    }
    answers
}

/// Runs them together.
pub(super) async fn all<F: Future + Unpin>(mut running: Vec<F>) -> Vec<F::Output> {
    let mut done: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in running.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(output) = std::pin::Pin::new(future).poll(context)
            {
                *done = Some(output);
            }
        }
        if done.iter().all(Option::is_some) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// Why this disk is older than what the peer remembers, if it is.
pub(super) async fn older_than<S: Store>(
    state: &State<S>,
    me: Incarnation,
    peer: &Peer,
    remembered: &Remembered,
) -> Result<Option<String>, StartError> {
    let name = &peer.name;
    if state.roster().has_forgotten(me, &remembered.roster) {
        return Ok(Some(format!("{name} knows of a node that was let in here")));
    }
    let place = remembered.roster.places().get(name.as_str());
    let id = place.map_or(me, |place| place.incarnation);
    for log in &remembered.logs {
        let judged = judge(state, me, id, &log.hello(me)).await;
        let judged = judged.map_err(|error| StartError::Store(error.to_string()))?;
        if let Some(because) = judged {
            return Ok(Some(describe(&because)));
        }
    }
    Ok(None)
}

/// For the log.
pub(super) fn describe(because: &Because) -> String {
    match because {
        Because::TheyHaveMore { peer, number } => {
            format!(
                "node {:016x} has {number} operations of this node",
                peer.get()
            )
        }
        Because::TheyHaveOther { peer, number } => format!(
            "node {:016x} has a different batch of this node under the number {number}",
            peer.get()
        ),
        Because::WeHadMore { peer } => format!(
            "node {:016x} knows of more on this disk than there is",
            peer.get()
        ),
    }
}

/// Whether what a peer has of our logs, and was told by us, fits to what is on this disk now.
pub(super) async fn judge<S: Store>(
    state: &State<S>,
    me: Incarnation,
    peer: Incarnation,
    hello: &Hello,
) -> Result<Option<Because>, StoreError> {
    let partition = store_partition(hello.partition);
    let positions = state.store.log_positions(partition).await?;
    let look = match startup::judge(me, peer, hello, &startup::own(me, &positions)) {
        Judged::Fits => return Ok(None),
        Judged::Older(because) => return Ok(Some(because)),
        Judged::Look(look) => look,
    };
    let number = look.number;
    let page = state
        .store
        .read_log(partition, Origin(me.get()), number, 1)
        .await?;
    let entry = page.entries.first().filter(|entry| entry.first <= number);
    Ok(look.found(entry.map(|entry| Hash(entry.hash().0))))
}

/// Gets a slot for the new incarnation from one member, in the order of [`Sponsors`]: at first from those that have `answered` before.
async fn be_sponsored<S: Store>(
    state: &State<S>,
    data: &mut DataDir,
    former: &Former,
    answered: &BTreeSet<NodeName>,
) -> Result<(), StartError> {
    let until = Instant::now() + SPONSOR_TIME_MAX;
    let mut refused = None;
    let mut sponsors = Sponsors::new(answered.iter().map(NodeName::to_string).collect());
    while Instant::now() < until {
        let peers = state.peers(&state.roster());
        if peers.is_empty() {
            break;
        }
        let (round, anew) = sponsors.round(peers.iter().map(|peer| peer.name.as_str()).collect());
        if anew {
            data.renew(Copy::Peers);
        }
        let round = round.into_iter();
        let round = round.filter_map(|name| peers.iter().find(|peer| peer.name.as_str() == name));
        let mut pause = PAUSE;
        for peer in round {
            let me = incarnation(data);
            let within = |most: Duration| until.min(Instant::now() + most);
            // It may have been reached by nobody before, and be the first to know of a removal.
            let asking = remembered_by(state, former.was, peer, former.clock);
            let answer = timeout_at(within(ANSWER_TIME_MAX), asking).await;
            let remembered = match answer.unwrap_or_else(|late| Err(late.to_string())) {
                Ok(answer) => answer.remembered,
                Err(failed) => {
                    tracing::warn!(peer = %peer.name, failed, "no slot: a peer could not be asked");
                    continue;
                }
            };
            hear(state, me, peer, &remembered.roster).await?;
            former.refuse_removed(state).await?;
            let Peer { name, address } = peer;
            let question = encoded(&Question::Join { incarnation: me });
            let asked = timeout_at(
                within(SLOT_TIME_MAX),
                ask_member(&state.credentials, name, address, question),
            );
            match asked.await {
                Ok(Ok(answer)) => {
                    if let Ok(roster) = minicbor::decode::<Roster>(&answer)
                        && let Some(sponsor) = roster.members().get(me).and_then(|m| m.sponsor())
                        && state.heard(sponsor.origin, &roster).await.is_ok()
                    {
                        tracing::info!(sponsor = %name, "a member has given this node a slot");
                        return Ok(());
                    }
                }
                // It has said so: nothing was given.
                Ok(Err(JoinError::Refused(why))) => {
                    tracing::warn!(sponsor = %name, why, "no slot");
                    refused = Some(why);
                    pause = PAUSE_REFUSED;
                    continue;
                }
                Ok(Err(JoinError::Io { cause, .. }))
                    if cause.kind() == std::io::ErrorKind::ConnectionRefused =>
                {
                    continue;
                }
                Ok(Err(error)) => tracing::warn!(sponsor = %name, %error, "no slot"),
                Err(late) => tracing::warn!(sponsor = %name, %late, "no slot"),
            }
            sponsors.may_have_given(name.as_str());
            break;
        }
        sleep(pause).await;
    }
    Err(match refused {
        Some(why) => StartError::Cluster(format!(
            "this node goes on under a new incarnation, since its directory is a copy or older than what its peers remember, and no member gives it a \
             slot: {why}"
        )),
        None => nobody(),
    })
}

#[cfg(test)]
#[path = "startup_identity_tests.rs"]
mod tests;
