//! Who this node is, settled at its start before anything is written: what its peers remember of it, and its slot.
//!
//! A disk that is older than what was told from it must not go on under its incarnation. A copy of the directory is noticed by itself
//! ([`crate::node`]); a snapshot below the file system is not, but the peers have what was written since. Each is asked once at the start, and whoever
//! could not be asked is looked at when its first words for a partition come ([`judge`]).

use std::{collections::BTreeSet, time::Duration};

use tokio::time::{Instant, sleep, timeout_at};
use whimbrel_cluster::{JoinError, NodeName, Peer, ask_member};
use whimbrel_crdt::{Hash, Incarnation};
use whimbrel_replication::{
    Now,
    identity::{Because, Identity, IdentityAnswer, Own},
    roster::Roster,
    wire::Hello,
};
use whimbrel_service::log::store_partition;
use whimbrel_storage::{Origin, StoreError};

use super::{
    clocks::PeerTimes,
    duplicate_node,
    roster_store::{State, was_removed},
    rpc::{Question, Remembered, RememberedLog, asked, encoded},
    unverified_peers::{self, refuse_written},
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
/// And for one that has said so to give a slot: it syncs a file. If the answer is lost the slot may be given in vain, so it has more time,
const SLOT_TIME_MAX: Duration = Duration::from_secs(10);
/// and is asked so often under one incarnation, which leaves time for one other.
const SLOT_TRIES_MAX: u32 = 2;
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
    let kept = me;
    let (mut forgotten, mut told, mut asked) = (None, Vec::new(), PeerTimes::new());
    let mut answered = BTreeSet::new();
    let answers = ask_all(state, me, patience, clock).await;
    // First: whatever the disk lacks, another one may be writing under its numbers.
    let answers = duplicate_node::refuse(state, me, answers, clock).await?;
    for answer in answers {
        let Answer {
            peer,
            remembered,
            mono_micros,
        } = answer;
        let roster = &remembered.roster;
        if forgotten.is_none() {
            forgotten = forgotten_by(state, me, &peer, &remembered).await?;
        }
        let from = roster.places().get(peer.name.as_str());
        if let (Some(place), Some(wall_micros)) = (from, remembered.wall_micros) {
            let ahead = i128::from(wall_micros) - i128::from(mono_micros);
            let ahead = i64::try_from(ahead).unwrap_or(i64::MAX);
            asked.insert(place.incarnation, ahead);
        }
        hear(state, me, &peer, roster).await?;
        told.push(remembered);
        answered.insert(peer.name);
    }
    // Those, too, of whom the answers told first.
    let peers = state.peers(&state.roster()).into_iter();
    let unverified = peers.map(|peer| peer.name);
    let unverified: BTreeSet<NodeName> =
        unverified.filter(|name| !answered.contains(name)).collect();
    refuse_removed(state, me, &told).await?;
    if let Some(because) = forgotten {
        tracing::error!(
            because,
            "this disk is older than what its peers remember of it"
        );
        refuse_written(state, me).await?;
        data.renew(Copy::Peers);
    }
    let roster = state.roster();
    if roster.members().get(incarnation(data)).is_none() {
        let former = Former { was, clock };
        former.refuse_removed(state).await?;
        // Those that an earlier start made up are nowhere any more; the one that is kept may have been given a slot by who does not answer now.
        if incarnation(data) == kept {
            if state.files.may_have_slot(kept)? {
                data.renew(Copy::Peers);
            } else {
                state.files.asks_for_slot(kept)?;
            }
        }
        be_sponsored(state, data, &former, &answered).await?;
    }
    let me = incarnation(data);
    // An earlier start may have been given the slot, and come no further. Before it is kept that it takes part so: then nothing shows any more that it is new.
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
    /// As [`refuse_removed`], once it is known.
    async fn refuse_removed<S: Store>(&self, state: &State<S>) -> Result<(), StartError> {
        if !state.roster().members().is_out(self.was) {
            return Ok(());
        }
        let told = ask_all(state, self.was, REMOVED_TIMEOUT, self.clock).await;
        let told: Vec<Remembered> = told.into_iter().map(|told| told.remembered).collect();
        refuse_removed(state, self.was, &told).await
    }
}

/// A node that was removed does not serve: what it wrote since nobody takes, and its clients would lose it.
async fn refuse_removed<S: Store>(
    state: &State<S>,
    me: Incarnation,
    told: &[Remembered],
) -> Result<(), StartError> {
    let roster = state.roster();
    if !roster.members().is_out(me) {
        return Ok(());
    }
    let ours = state.logs_of(me).await;
    let ours = ours.map_err(|error| StartError::Store(error.to_string()))?;
    let refused = match told {
        [] => " No member could be asked how much of it they lack.".to_owned(),
        told => {
            let lacks = |held: &RememberedLog| {
                let theirs = told.iter().flat_map(|told| &told.logs);
                let theirs = theirs.filter(|theirs| theirs.partition == held.partition);
                let most = theirs.map(|theirs| theirs.last).max().unwrap_or(0);
                held.last.saturating_sub(most)
            };
            let missing_blobs: Vec<u64> =
                ours.iter().map(lacks).filter(|lacks| *lacks > 0).collect();
            match missing_blobs.iter().sum::<u64>() {
                0 => " Those members that were asked have all that was written here.".to_owned(),
                sum => format!(
                    " {sum} operations in {} partitions were written here that no member has which could be asked: they are on this disk alone, \
                     and are kept.",
                    missing_blobs.len()
                ),
            }
        }
    };
    let why = was_removed(&roster, me);
    Err(StartError::Cluster(format!("{why}.{refused}")))
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
pub(super) async fn forgotten_by<S: Store>(
    state: &State<S>,
    me: Incarnation,
    peer: &Peer,
    remembered: &Remembered,
) -> Result<Option<String>, StartError> {
    let ours = state.roster();
    let name = &peer.name;
    if ours.has_forgotten(me, &remembered.roster) {
        return Ok(Some(format!("{name} knows of a node that was let in here")));
    }
    let place = remembered.roster.places().get(name.as_str());
    let id = place.map_or(me, |place| place.incarnation);
    for held in &remembered.logs {
        let judged = judge(state, me, id, &held.hello(me)).await;
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
    let last = positions.iter().map(|(origin, position)| {
        let origin = Incarnation::from_hash(origin.0);
        (origin, position.next - 1)
    });
    let hash = positions.iter().find(|(origin, _)| origin.0 == me.get());
    let own = Own {
        durable: last.collect(),
        hash: hash.map_or(Hash::default(), |(_, position)| Hash(position.hash.0)),
    };
    let mut identity = Identity::new(me, BTreeSet::from([peer]), Now::default(), u64::MAX);
    let mut asked = identity.hello(peer, hello, &own);
    if let Some(IdentityAnswer::Look { peer, number }) = asked {
        let page = state
            .store
            .read_log(partition, Origin(me.get()), number, 1)
            .await?;
        let entry = page.entries.first().filter(|entry| entry.first <= number);
        let hash = entry.map(|entry| Hash(entry.hash().0));
        asked = identity.looked(peer, number, hash);
    }
    Ok(match asked {
        Some(IdentityAnswer::Renew(because)) => Some(because),
        _ => None,
    })
}

/// Gets a slot for the new incarnation from one member, at first from those that have `answered` before. Who did not answer may have given one all the
/// same: it is asked again, which takes no second one, and only then another, under yet another incarnation.
async fn be_sponsored<S: Store>(
    state: &State<S>,
    data: &mut DataDir,
    former: &Former,
    answered: &BTreeSet<NodeName>,
) -> Result<(), StartError> {
    let until = Instant::now() + SPONSOR_TIME_MAX;
    let mut refused = None;
    // Who may have given one, how often it was asked, and who was given up so.
    let mut given: Option<(NodeName, u32)> = None;
    let mut slow = BTreeSet::new();
    while Instant::now() < until {
        let mut peers = state.peers(&state.roster());
        if peers.is_empty() {
            break;
        }
        if let Some((name, tries)) = &mut given
            && *tries < SLOT_TRIES_MAX
            && peers.iter().any(|peer| peer.name == *name)
        {
            *tries += 1;
            peers.retain(|peer| peer.name == *name);
        } else if let Some((name, _)) = given.take() {
            data.renew(Copy::Peers);
            slow.insert(name);
        }
        peers.sort_by_key(|peer| (slow.contains(&peer.name), !answered.contains(&peer.name)));
        let mut pause = PAUSE;
        for peer in peers {
            let me = incarnation(data);
            let within = |most: Duration| until.min(Instant::now() + most);
            // It may have been reached by nobody before, and be the first to know of a removal.
            let asking = remembered_by(state, former.was, &peer, former.clock);
            let answer = timeout_at(within(ANSWER_TIME_MAX), asking).await;
            let remembered = match answer.unwrap_or_else(|late| Err(late.to_string())) {
                Ok(answer) => answer.remembered,
                Err(failed) => {
                    tracing::warn!(peer = %peer.name, failed, "no slot: a peer could not be asked");
                    continue;
                }
            };
            hear(state, me, &peer, &remembered.roster).await?;
            former.refuse_removed(state).await?;
            let Peer { name, address } = peer;
            let question = encoded(&Question::Join { incarnation: me });
            let asked = timeout_at(
                within(SLOT_TIME_MAX),
                ask_member(&state.credentials, &name, &address, question),
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
            given.get_or_insert((name, 1));
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
