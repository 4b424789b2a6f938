//! Sessions that go on at another node than the client came to, as `server::cluster::relay` carries them: from the login on, over the link between the two.
//!
//! Such a session ends with either node, and when the link does. Who is told what a node has told must go by the node that serves.

use std::sync::Arc;

use whimbrel_frontend::{
    imap::ImapSession,
    session::{Handover, Resume},
};
use whimbrel_service::api::AccountId;

use super::{super::World, Happening, connection::Connection, event};

/// On its way to the node that serves.
pub(in super::super) struct Passage {
    to: usize,
    handover: Handover,
}

impl Passage {
    pub(super) fn to(&self) -> usize {
        self.to
    }
}

impl World {
    /// Whether the node takes those who log in there to another one: as it must where it does not serve the account, and as a drained node does.
    pub(super) fn protocol_client_relays(&mut self, node: usize, account: AccountId) -> bool {
        let drained = self.protocol_clients.rng.one_in(5);
        !self.serves(node, account) || drained
    }

    /// One that is linked and serves.
    fn protocol_client_served_by(&mut self, from: usize, account: AccountId) -> Option<usize> {
        let mut there = self.there();
        there.retain(|to| {
            *to != from
                && self.members[from].linked.contains_key(to)
                && self.network.has_stream(from, *to)
                && self.members[*to].is_up()
                && self.serves(*to, account)
        });
        (!there.is_empty()).then(|| *self.protocol_clients.rng.pick(&there))
    }

    /// A session has logged somebody in for another one; whether there is such a one. If not the client is told so.
    pub(super) fn protocol_client_hands_over(
        &mut self,
        number: u64,
        connection: &mut Connection,
        handover: Handover,
    ) -> bool {
        let account = self.protocol_clients.protocol_clients[connection.protocol_client].account;
        let Some(to) = self.protocol_client_served_by(connection.node, account) else {
            self.note("client: nobody to relay to");
            let last_words = b"* BYE [UNAVAILABLE] No node serves this account now\r\n";
            self.protocol_client_sends_back(number, connection, last_words.to_vec());
            return false;
        };
        let way = self.network.latency(connection.node, to);
        connection.latency_micros += way;
        let at = self.now + 1 + self.protocol_clients.rng.between(way / 4, way);
        let passage = Box::new(Passage { to, handover });
        self.network
            .at(at, event(Happening::Passes(number, passage)));
        true
    }

    /// It goes on where it was brought to, if the link is still there.
    pub(super) fn protocol_client_passes(
        &mut self,
        number: u64,
        passage: Passage,
    ) -> Result<(), String> {
        let Some(mut connection) = self.protocol_clients.connections.remove(&number) else {
            return Ok(());
        };
        let Passage { to, handover } = passage;
        let from = connection.node;
        let is_there = self.members[to].down.is_none() && !self.members[to].out;
        let (Resume::Imap { tag }, Some(account)) = (&handover.at, handover.account) else {
            return Err("what is handed over is no IMAP session".into());
        };
        if !is_there || !self.network.has_stream(from, to) {
            self.protocol_client_relay_ends(number, connection);
            return Ok(());
        }
        self.note("client: relayed");
        self.say(|| {
            format!(
                "protocol_client {}: goes on at {to}",
                connection.protocol_client
            )
        });
        self.bring(to);
        let now = self.members[to].node.now();
        let limits = Arc::new(self.protocol_client_limits());
        let session = ImapSession::resumed(handover.peer, limits, account, tag, now);
        connection.session = Box::new(session.ok_or("a tag that is no tag is handed over")?);
        connection.via = Some(from);
        connection.node = to;
        connection.relays = false;
        if !handover.rest.is_empty() {
            connection.inbox.push_front(handover.rest);
        }
        let protocol_client = connection.protocol_client;
        if self.protocol_client_of(number) == Some(protocol_client) {
            self.protocol_clients.protocol_clients[protocol_client].node = to;
            self.protocol_clients.protocol_clients[protocol_client].served_by =
                Some(self.members[to].id);
        }
        self.protocol_clients.connections.insert(number, connection);
        self.with_session(number, |_, _| Ok(()))
    }

    /// One of the nodes is dead, or the link is: whoever is left hears of it.
    pub(super) fn protocol_client_relay_ends(&mut self, number: u64, connection: Connection) {
        self.note("client: relay ended");
        let at = connection.back_at.max(self.now) + connection.latency_micros;
        self.network.at(at, event(Happening::Ended(number)));
        if self.members[connection.node].stopped_until.is_some() {
            let hangs_up = Happening::HangsUp(Box::new(connection));
            self.network.at(self.now, event(hangs_up));
        } else {
            self.protocol_client_hangs_up_at_once(connection);
        }
    }

    pub(super) fn protocol_client_hangs_up_at_once(&mut self, connection: Connection) {
        let node = connection.node;
        if self.members[node].down.is_none() && !self.members[node].out {
            self.bring(node);
            self.protocol_client_hangs_up(connection);
        }
    }

    /// The link between two nodes is gone.
    pub(in super::super) fn protocol_client_link_gone(&mut self, a: usize, b: usize) {
        let all = self.protocol_clients.connections.iter();
        let over = all.filter(|(_, of)| {
            of.via
                .is_some_and(|via| (via, of.node) == (a, b) || (via, of.node) == (b, a))
        });
        let over: Vec<u64> = over.map(|(number, _)| *number).collect();
        for number in over {
            if let Some(connection) = self.protocol_clients.connections.remove(&number) {
                self.protocol_client_relay_ends(number, connection);
            }
        }
    }
}
