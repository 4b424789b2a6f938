//! Answers the questions of members, and of nodes that want to join.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::mpsc;
use whimbrel_cluster::{MemberRequest, NodeName, PeerIdentity, Refused, TokenError};
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_replication::{
    members::Member,
    roster::{Roster, RosterError},
};

use super::{
    roster_store::{ChangeError, State},
    rpc::{LOGS_MAX, LogHeld, Question, Remembered, asked_by, encoded},
    status::DrainAsk,
};
use crate::{clock::wall_micros, store_calls::Store};

/// Time between two lines in the log about invalid tokens.
const VAIN_AFTER: Duration = Duration::from_secs(60);

/// Invalid tokens: logged, but not once for each that a stranger makes up.
#[derive(Default)]
struct Vain {
    said: Option<Instant>,
    since: u64,
}

impl Vain {
    fn say(&mut self, name: &NodeName) {
        self.since += 1;
        if self.said.is_some_and(|said| said.elapsed() < VAIN_AFTER) {
            return;
        }
        tracing::warn!(node = %name, tokens = self.since, "a node asked to join with an invalid token");
        *self = Vain {
            said: Some(Instant::now()),
            since: 0,
        };
    }
}

impl<S: Store> State<S> {
    /// Answers until the transport is gone.
    pub(super) async fn answer_all(self: Arc<Self>, mut asked: mpsc::Receiver<MemberRequest>) {
        let mut vain = Vain::default();
        while let Some(asked) = asked.recv().await {
            // The node does not wait any more, and will ask again: the work would be done twice.
            if asked.answer.is_closed() {
                continue;
            }
            if let PeerIdentity::Token { id, secret } = asked.shown
                && let Err(refused) = self.judge_token(id, secret).await
            {
                vain.say(&asked.name);
                let _ = asked.answer.send(Err(refused));
                continue;
            }
            // A node that is let in must hear it, since its token is used up.
            if let Some(place) = &asked.place {
                place.is_known();
            }
            // A removed node asks what is remembered of it, and hears that it was removed.
            if asked.shown == PeerIdentity::Certificate
                && let Ok(Question::Drain { .. } | Question::Holdings { .. } | Question::Unfinished) =
                    minicbor::decode(&asked.detail)
                && !self.is_member(&asked.name, asked_by(&asked.detail))
            {
                tracing::warn!(node = %asked.name, "refused a request of a node that is not a member");
                let _ = asked
                    .answer
                    .send(Err(Refused("only members may ask that".into())));
                continue;
            }
            if let Ok(Question::Drain { cancel, look }) = minicbor::decode(&asked.detail) {
                let ask = DrainAsk::new(cancel, look == Some(true));
                tokio::spawn(Arc::clone(&self).answer_drain(asked, ask));
                continue;
            }
            let answer = match minicbor::decode(&asked.detail) {
                Ok(Question::Remember { incarnation }) => match asked.shown {
                    PeerIdentity::Certificate => self.remember(incarnation).await,
                    PeerIdentity::Token { .. } => Err(Refused("only members may ask that".into())),
                },
                Ok(Question::Holdings {
                    partitions,
                    of,
                    syncing,
                }) => match asked.shown {
                    PeerIdentity::Certificate => {
                        self.held(&partitions, &of, syncing == Some(true)).await
                    }
                    PeerIdentity::Token { .. } => Err(Refused("only members may ask that".into())),
                },
                Ok(Question::Unfinished) => match asked.shown {
                    PeerIdentity::Certificate => self.unfinished().await,
                    PeerIdentity::Token { .. } => Err(Refused("only members may ask that".into())),
                },
                Ok(Question::Drain { .. }) => unreachable!("it was answered above"),
                Ok(Question::Join { incarnation }) => {
                    self.let_in(&asked.shown, &asked.name, incarnation).await
                }
                Err(_) => Err(Refused("this node does not understand the question".into())),
            };
            if let Err(Refused(why)) = &answer {
                tracing::warn!(node = %asked.name, why, "refused a request of a node");
            }
            // The node may have stopped waiting.
            let _ = asked.answer.send(answer);
        }
    }

    /// Checks a token, before anything else is done for the node that shows it.
    async fn judge_token(&self, id: u64, secret: [u8; 32]) -> Result<(), Refused> {
        let files = self.files.clone();
        let judged =
            tokio::task::spawn_blocking(move || files.is_token(wall_micros(), id, &secret));
        match judged.await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(Refused(TokenError::Invalid.to_string())),
            Ok(Err(error)) => Err(Refused(error.to_string())),
            Err(_) => Err(Refused("the node is stopping".into())),
        }
    }

    /// How much of what this node has received is not in its place: ops that are not applied, blobs that are missing.
    async fn unfinished(&self) -> Result<Vec<u8>, Refused> {
        let here = match self.served.get() {
            Some((board, _)) => board.reports().await,
            None => None,
        };
        let starting = || Refused("this node is starting; try again".into());
        let mut unfinished = 0;
        for report in here.ok_or_else(starting)? {
            let open = report.open.ok_or_else(starting)?;
            let waiting = open.logs.values().map(|log| log.taken - log.applied);
            unfinished += waiting.sum::<u64>() + report.blobs_missing;
        }
        Ok(encoded(&unfinished))
    }

    /// How much of these members' logs is here, in the partitions that this node holds.
    async fn held(
        &self,
        partitions: &[PartitionId],
        of: &[Incarnation],
        syncing: bool,
    ) -> Result<Vec<u8>, Refused> {
        if partitions.len().saturating_mul(of.len()) > LOGS_MAX {
            return Err(Refused("that is more than may be asked at once".into()));
        }
        let roster = self.roster();
        let reports = match self.served.get() {
            Some((board, _)) => board.reports().await,
            None => None,
        };
        let mut held = Vec::new();
        for report in reports.unwrap_or_default() {
            let partition = report.partition;
            let serves = self.serves(&roster, partition);
            let holds = serves || syncing && roster.holds(self.me(), partition);
            let asked = partitions.contains(&partition) && holds;
            let Some(logs) = report.logs_of(of).filter(|_| asked) else {
                continue;
            };
            let logs = logs.into_iter();
            held.extend(logs.map(|(of, log)| LogHeld::new(partition, of, log)));
        }
        Ok(encoded(&held))
    }

    /// A member asks this node to drain. That takes a while, in which other questions are answered.
    async fn answer_drain(self: Arc<Self>, asked: MemberRequest, ask: DrainAsk) {
        let answer = match &asked.shown {
            PeerIdentity::Certificate => {
                if ask != DrainAsk::Look {
                    tracing::info!(node = %asked.name, ?ask, "another member drains this node");
                }
                let drain = self.drain(ask).await;
                drain
                    .and_then(|drain| serde_json::to_vec(&drain).map_err(|error| error.to_string()))
                    .map_err(Refused)
            }
            PeerIdentity::Token { .. } => Err(Refused("only members may ask that".into())),
        };
        // The node may have stopped waiting.
        let _ = asked.answer.send(answer);
    }

    async fn let_in(
        &self,
        shown: &PeerIdentity,
        name: &NodeName,
        incarnation: Incarnation,
    ) -> Result<Vec<u8>, Refused> {
        let Some(me) = self.me.get().copied() else {
            return Err(Refused("this node is starting; try again".into()));
        };
        if *shown == PeerIdentity::Certificate && self.lives_elsewhere(name, incarnation) {
            return Err(Refused(format!(
                "a node {name} is linked under another incarnation: it runs twice, and one of the two is a copy. Stop the one that is not to go on"
            )));
        }
        let let_in = self.change(|roster| {
            let members = roster.members();
            // A removed incarnation is not let in, only a new one: it gets no answer with the authority's key.
            if members.is_out(incarnation) {
                return Err(ChangeError::Removed);
            }
            // The node's own earlier question, whose answer was lost, is not another node's.
            let is_other = |id: Incarnation, member: &Member| {
                id != incarnation && member.name == name.as_str() && !members.is_out(id)
            };
            let named = members.iter().any(|(id, member)| is_other(id, member));
            let known = members.get(incarnation).is_some();
            if !named && !known && matches!(shown, PeerIdentity::Certificate) {
                return Err(ChangeError::Removed);
            }
            if let PeerIdentity::Token { id, secret } = shown {
                if named {
                    return Err(ChangeError::Name(name.clone()));
                }
                // A file is synced here, on a thread that should not wait; but only once for each valid token (`judge_token`).
                self.files.tokens(|tokens| {
                    let taken = tokens.take(wall_micros(), *id, secret, incarnation.get());
                    taken.map_err(ChangeError::from)
                })?;
            }
            roster.sponsor(me, incarnation, name.as_str())?;
            Ok(())
        });
        let_in.await.map_err(|error| {
            let more = match error {
                ChangeError::Roster(RosterError::NoSlot) => where_slots_are(&self.roster()),
                _ => String::new(),
            };
            Refused(format!("{error}{more}"))
        })?;
        let roster = self.roster();
        let slot = roster.members().get(incarnation).map(|member| member.slot);
        tracing::info!(
            node = %name,
            incarnation = format!("{:016x}", incarnation.get()),
            slot,
            "admitted a node"
        );
        Ok(encoded(&*roster))
    }

    /// Whether another node runs under this name. A node that begins anew has ended before: its former links are down when silence has ended them,
    /// and it asks until then.
    fn lives_elsewhere(&self, name: &NodeName, incarnation: Incarnation) -> bool {
        let links = self.transport.links();
        let mut of_that_name = links.iter().filter(|link| link.name == *name);
        of_that_name.any(|link| link.incarnation != incarnation)
    }

    async fn remember(&self, incarnation: Incarnation) -> Result<Vec<u8>, Refused> {
        let logs = self.logs_of(incarnation).await.map_err(|error| {
            tracing::warn!(%error, "cannot tell a peer what is here of its logs");
            Refused("reading failed on this node; try again".into())
        })?;
        let roster = Roster::clone(&self.roster());
        let wall_micros = Some(wall_micros());
        // A node that asks this at its start has no link yet: the link is another node's, or of its own last process.
        let links = self.transport.links();
        let linked = links.iter().find(|link| link.incarnation == incarnation);
        Ok(encoded(&Remembered {
            roster,
            logs,
            wall_micros,
            answered: linked.map(|link| link.pongs),
        }))
    }
}

/// The members that have a slot to give, and the advice if none has.
fn where_slots_are(roster: &Roster) -> String {
    let free = roster.members().free_of_all();
    let present = roster.present();
    let present: Vec<(&str, u32)> = present
        .filter_map(|(name, place)| Some((name, free.get(&place.incarnation)?.count_ones())))
        .filter(|(_, count)| *count > 0)
        .collect();
    if !present.is_empty() {
        let each: Vec<String> = present
            .iter()
            .map(|(name, count)| format!("{name} ({count} free)"))
            .collect();
        return format!("; use a token of {} instead", each.join(" or "));
    }
    let all: u32 = free.values().map(|slots| slots.count_ones()).sum();
    format!(
        ". No reachable member has one; {all} belong to nodes that are gone. Remove those (`whimbrel cluster remove NAME`, and \
         `whimbrel cluster remove NAME --earlier` for earlier incarnations), let all members meet, and try again when \
         `whimbrel cluster status` shows free slots"
    )
}

#[cfg(test)]
mod tests {
    use whimbrel_replication::roster::Place;

    use super::*;

    #[test]
    fn who_is_refused_for_want_of_slots_hears_where_there_are_some() {
        let [one, two] = [1, 2].map(Incarnation::from_hash);
        let mut roster = Roster::found(one, "a", 0, 0b1110);
        let _ = roster.sponsor(one, two, "b").unwrap();
        let mut place = Place {
            version: 1,
            incarnation: one,
            address: "a.example.org:10700".into(),
            region: String::new(),
            role: None,
            shares: None,
        };
        roster.announce("a", place.clone()).unwrap();
        let told = where_slots_are(&roster);
        assert!(
            told.ends_with("use a token of a (2 free) instead"),
            "{told}"
        );
        // Its disk was put back: the former incarnation has them.
        place.version = 2;
        place.incarnation = two;
        roster.announce("a", place).unwrap();
        let told = where_slots_are(&roster);
        assert!(told.contains("2 belong to nodes that are gone"), "{told}");
    }
}
