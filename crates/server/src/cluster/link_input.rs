//! Passes frames from links to the machines, link by link.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{
        Notify, mpsc,
        oneshot::{self, error::TryRecvError},
    },
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use whimbrel_cluster::{Event, Handle, Linked};
use whimbrel_crdt::Incarnation;
use whimbrel_replication::{
    link::Agreed,
    roster::{MergeOutcome, Roster},
    wire::Hello,
};
use whimbrel_service::peers::{Frame, PeerInput};

use super::{blobs, roster_store::State, startup_identity};
use crate::{router::Router, store_calls::Store};

/// Time for a removed node to read that it was removed, before its link is ended here.
const FAREWELL: Duration = Duration::from_secs(5);

/// How often the round trip to each peer is reported to the owners: as often as links are measured (`replication::link`).
const MEASURED_EVERY: Duration = Duration::from_secs(1);

/// The receivers of frames.
struct Ways<S> {
    state: Arc<State<S>>,
    board: Arc<Router>,
    bodies: mpsc::Sender<blobs::Told>,
}

impl<S> Clone for Ways<S> {
    fn clone(&self) -> Self {
        Ways {
            state: Arc::clone(&self.state),
            board: Arc::clone(&self.board),
            bodies: self.bodies.clone(),
        }
    }
}

/// Runs until the transport is gone.
pub(super) async fn drive<S: Store>(
    state: Arc<State<S>>,
    board: Arc<Router>,
    mut events: mpsc::Receiver<Event>,
    bodies: mpsc::Sender<blobs::Told>,
    room_for_bodies: Arc<Notify>,
) {
    let ways = Ways {
        state,
        board,
        bodies,
    };
    let mut links = JoinSet::new();
    // When the task of a node's last link has ended. A removed node does not wait for the node that has its name now.
    let mut over: BTreeMap<Incarnation, oneshot::Receiver<()>> = BTreeMap::new();
    while let Some(event) = events.recv().await {
        match event {
            Event::Up {
                agreed,
                handle,
                frames,
                ..
            } => {
                let (ends, ended) = oneshot::channel::<()>();
                over.retain(|_, ended| ended.try_recv() == Err(TryRecvError::Empty));
                let before = over.insert(agreed.incarnation, ended);
                let ways = ways.clone();
                links.spawn(async move {
                    if let Some(before) = before {
                        // Nothing is ever sent: the receiver ends when the sender is gone.
                        let _ = before.await;
                    }
                    ways.link(agreed, handle, frames).await;
                    drop(ends);
                });
            }
            Event::Room { .. } => {
                ways.board.room_for_peers();
                room_for_bodies.notify_one();
            }
            // The link's task sees the end of its frames.
            Event::Down { .. } => {}
        }
        while links.try_join_next().is_some() {}
    }
}

/// Reports, for ever, the round trip to each linked peer to the machines: readers there are waited for three round trips. A machine that does not
/// know the link yet ignores the report, and gets the next one.
pub(super) async fn measure<S: Store>(state: Arc<State<S>>, board: Arc<Router>) {
    let mut ticks = interval(MEASURED_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        tell_round_trips(&board, &state.transport.links()).await;
    }
}

/// Whether this name belongs to this incarnation of a member.
fn is_named(roster: &Roster, peer: Incarnation, name: &str) -> bool {
    let member = roster.members().get(peer);
    member.is_none_or(|member| member.name == name)
}

async fn tell_round_trips(board: &Router, links: &[Linked]) {
    for link in links {
        if let Some(micros) = link.round_trip_micros {
            board
                .tell_of_peers(|| PeerInput::RoundTrip(link.incarnation, micros))
                .await;
        }
    }
}

impl<S: Store> Ways<S> {
    async fn link(&self, agreed: Agreed, handle: Handle, mut frames: mpsc::Receiver<Frame>) {
        let _guard = self.state.guard("link");
        let peer = agreed.incarnation;
        self.state
            .links
            .up(peer, handle.clone(), || self.state.roster());
        if self.is_member(&agreed, &mut frames).await {
            // First, since batches on this link are followed by blobs.
            let up = blobs::Told::Up(peer, handle.clone(), agreed.features);
            self.to_bodies(up).await;
            self.board.link_up(peer, &handle, agreed.features).await;
            let mut removed = self.state.removed.subscribe();
            loop {
                let frame = tokio::select! {
                    // First: nothing more is accepted from then on.
                    biased;
                    _ = removed.wait_for(|removed| removed.contains(&peer)) => {
                        let incarnation = format!("{:016x}", peer.get());
                        tracing::warn!(peer = agreed.name, incarnation, "a peer was removed from the cluster: closing the link");
                        break;
                    }
                    frame = frames.recv() => frame,
                };
                let Some(frame) = frame else { break };
                if !self.frame(&agreed, frame).await {
                    break;
                }
            }
            self.board.tell_of_peers(|| PeerInput::Unlinked(peer)).await;
            self.to_bodies(blobs::Told::Down(peer)).await;
        }
        self.state.links.down(peer);
        if self.state.removed.borrow().contains(&peer) {
            // The peer has got the roster, and ends the link when it has read that it is no member.
            let ends = async { while frames.recv().await.is_some() {} };
            let _ = tokio::time::timeout(FAREWELL, ends).await;
        }
        handle.close();
    }

    /// The peer sends its roster first: that may say more about the peer than was known here.
    async fn is_member(&self, agreed: &Agreed, frames: &mut mpsc::Receiver<Frame>) -> bool {
        let (name, peer) = (&agreed.name, agreed.incarnation);
        match frames.recv().await {
            Some(Frame::Roster(theirs)) => {
                // If the peer is known already, this is checked before it is heard; otherwise after its roster.
                if !self.is_named(agreed)
                    || !self.hear(agreed, &theirs).await
                    || !self.is_named(agreed)
                {
                    return false;
                }
            }
            Some(_) => {
                tracing::error!(peer = name, "a peer did not send its roster first");
                return false;
            }
            None => return false,
        }
        let roster = self.state.roster();
        for id in [peer, self.state.me()] {
            if let Some(other) = roster.clash(id) {
                tracing::error!(
                    peer = name,
                    incarnation = format!("{:016x}", id.get()),
                    other = format!("{:016x}", other.get()),
                    "two members have one slot, since one was let in by a node that went on from an older disk: they are not linked. Run `whimbrel \
                     node renew` on the one that joined later"
                );
                return false;
            }
        }
        true
    }

    /// The name is that of the certificate. Acknowledgements count for the incarnation, which must be no other member's.
    fn is_named(&self, agreed: &Agreed) -> bool {
        let named = is_named(&self.state.roster(), agreed.incarnation, &agreed.name);
        if !named {
            tracing::error!(
                peer = agreed.name,
                incarnation = format!("{:016x}", agreed.incarnation.get()),
                "a peer claims the incarnation of another member: not linked"
            );
        }
        named
    }

    /// Merges the peer's roster; whether the peer is a member.
    async fn hear(&self, agreed: &Agreed, theirs: &Roster) -> bool {
        let (peer, incarnation) = (&agreed.name, format!("{:016x}", agreed.incarnation.get()));
        match self.state.heard(agreed.incarnation, theirs).await {
            Ok(MergeOutcome::Taken { .. }) => true,
            Ok(MergeOutcome::Removed) if theirs.members().is_out(self.state.me()) => {
                tracing::error!(
                    peer,
                    incarnation,
                    "a peer and this node have removed each other: they are two clusters now, and not linked"
                );
                false
            }
            Ok(MergeOutcome::Removed) => {
                tracing::warn!(
                    peer,
                    incarnation,
                    "a node that was removed from the cluster connected: it is told so, and not linked"
                );
                false
            }
            Ok(MergeOutcome::Stranger) => {
                tracing::error!(
                    peer,
                    incarnation,
                    "no member has admitted this node: not linked"
                );
                false
            }
            Err(error) => {
                tracing::error!(peer, %error, "cannot merge the roster of a peer");
                false
            }
        }
    }

    /// Passes a frame on; whether more are wanted.
    async fn frame(&self, agreed: &Agreed, frame: Frame) -> bool {
        let peer = agreed.incarnation;
        match frame {
            Frame::Roster(theirs) => self.hear(agreed, &theirs).await,
            Frame::Hello(hello) => {
                if !self.judge(peer, &hello).await {
                    return false;
                }
                self.to_machine(peer, Frame::Hello(hello)).await;
                true
            }
            frame => {
                self.to_machine(peer, frame).await;
                true
            }
        }
    }

    async fn to_machine(&self, peer: Incarnation, frame: Frame) {
        match frame.partition() {
            Some(partition) => self.board.frame_of_peer(partition, peer, frame).await,
            None => self.to_bodies(blobs::Told::Frame(peer, frame)).await,
        }
    }

    async fn to_bodies(&self, told: blobs::Told) {
        // The receiver ends with the node.
        let _ = self.bodies.send(told).await;
    }

    /// Checks, once for each partition, what the peer remembers of this node: a peer that could not be asked at the start may know more than the
    /// disk.
    async fn judge(&self, peer: Incarnation, hello: &Hello) -> bool {
        if !self.state.to_be_judged(peer, hello.partition) {
            return true;
        }
        match startup_identity::judge(&self.state, self.state.me(), peer, hello).await {
            Ok(None) => true,
            Ok(Some(because)) => {
                self.state.is_older(&startup_identity::describe(&because));
                false
            }
            Err(error) => {
                self.state.not_judged(peer, hello.partition);
                tracing::warn!(%error, "a log cannot be read");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_cluster::NodeName;

    use super::*;
    use crate::router::FromPeer;

    #[test]
    fn an_incarnation_has_one_name() {
        let (eu, other) = (Incarnation::from_hash(1), Incarnation::from_hash(2));
        let roster = Roster::found(eu, "eu-1", 0, 0);
        let check = |peer, name, expected| assert_eq!(is_named(&roster, peer, name), expected);
        check(eu, "eu-1", true);
        check(eu, "us-1", false);
        check(other, "us-1", true);
    }

    #[tokio::test]
    async fn owners_are_told_of_round_trips() {
        let link = |name, incarnation, round_trip_micros| Linked {
            name: NodeName::new(name).unwrap(),
            incarnation: Incarnation::from_hash(incarnation),
            wire: 1,
            features: 0,
            round_trip_micros,
            ahead_micros: None,
            pongs: 0,
            received: 0,
            sent: 0,
        };
        let (board, mut inboxes) = Router::new(2);
        let links = [
            link("eu-1", 1, Some(20_000)),
            link("us-1", 2, None),
            link("us-2", 3, Some(90_000)),
        ];
        tell_round_trips(&board, &links).await;
        for owner in &mut inboxes.owners {
            let mut told = Vec::new();
            while let Ok(from) = owner.peers.try_recv() {
                if let FromPeer::Told(PeerInput::RoundTrip(peer, micros), _) = from {
                    told.push((peer, micros));
                }
            }
            let expected = [(1, 20_000), (3, 90_000)];
            assert_eq!(
                told,
                expected.map(|(id, m)| (Incarnation::from_hash(id), m))
            );
        }
    }
}
