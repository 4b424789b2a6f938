//! Clients that come in by the front door: bytes to a production session at a node, and the session's answers back by bytes, all in virtual time.
//!
//! A client is a strict IMAP client with a cache of its own, which goes from node to node and says with QRESYNC what it knows. It takes nothing that
//! the RFCs do not let a server say, holds what it is told against what it was told before (U1, U2, U4, MODSEQ), and what a resynchronisation told
//! against `FETCH 1:*`. When all is healed each comes once more, and knows then what the node shows.
//!
//! Doors draw from a generator of their own, in every second seed.
//!
//! Reading order: this file (who connects when), [`connection`] (the session's end), [`relay`] (sessions that go on elsewhere), [`client`],
//! [`workload`] and [`cache`] (the client's), [`announced`] (what all were told).

mod announced;
mod cache;
mod client;
mod connection;
mod relay;
mod workload;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use whimbrel_crdt::Incarnation;
use whimbrel_frontend::{
    imap::{ImapSession, Limits},
    session::{Binding, Peer, Tls},
};
use whimbrel_service::{api::AccountId, machine::RequestId, owner::keys::partition_of};

use self::{
    announced::Told,
    cache::Place,
    client::{Ability, Effect, Hearing, Mind},
    connection::Connection,
    relay::Passage,
    workload::Workload,
};
use super::{MS, Plan, SECOND, World, blobs::REAL_FROM, is_keeping, losses::Acked, network::Event};
use whimbrel_testkit::Rng;

/// All is healed: a client must know all after so long, and after so many visits.
const AGREEING_MICROS_MAX: u64 = 300 * SECOND;
const AGREEING_TRIES_MAX: u32 = 5;

/// What happens at a client.
pub(super) enum Happening {
    /// Bytes of the client arrive at the node.
    There(u64, Vec<u8>),
    /// The client's end does.
    Closed(u64),
    /// Bytes of the session arrive at the client.
    Back(u64, Vec<u8>),
    /// The session's end does, or the client finds that the node is dead.
    Ended(u64),
    /// The session's deadline.
    Rings(u64),
    /// A session arrives at the node where it goes on.
    Passes(u64, Box<Passage>),
    /// A node that stood still finds that a session which was brought to it is over.
    HangsUp(Box<Connection>),
    /// A client does something.
    Turn(usize),
    /// The client's network goes, in the middle of whatever it does.
    Breaks(u64),
}

fn event(happening: Happening) -> Event {
    Event::ProtocolClient(happening)
}

/// A client, over all its connections.
struct ProtocolClient {
    account: AccountId,
    mind: Mind,
    /// Its connection.
    current: Option<u64>,
    /// Where that is.
    node: usize,
    /// Who that was then: with another disk it is another one.
    served_by: Option<Incarnation>,
    /// A turn is under way.
    turns: bool,
    /// The message that it appends.
    sends: Option<u32>,
}

/// All of them.
pub(super) struct ProtocolClients {
    rng: Rng,
    protocol_clients: Vec<ProtocolClient>,
    connections: BTreeMap<u64, Connection>,
    /// Which connection asked; 0: one that is gone.
    calls: BTreeMap<RequestId, u64>,
    told: Told,
    next: u64,
    /// Nothing new is begun.
    rests: bool,
}

impl ProtocolClients {
    pub(super) fn new(seed: u64) -> ProtocolClients {
        ProtocolClients {
            rng: Rng::new(seed ^ 0x00d0_0125_eed0),
            protocol_clients: Vec::new(),
            connections: BTreeMap::new(),
            calls: BTreeMap::new(),
            told: Told::default(),
            next: 0,
            rests: false,
        }
    }

    /// Whether a session asked this.
    pub(super) fn asked(&self, request: RequestId) -> bool {
        self.calls.contains_key(&request)
    }
}

impl Plan {
    /// In every second seed some clients come by bytes.
    pub(super) fn with_protocol_clients(mut self) -> Self {
        let mut rng = Rng::new(self.seed ^ 0x00d0_0125_0000);
        if rng.one_in(2) {
            self.protocol_clients = rng.between(1, 3);
        }
        self
    }

    /// What number the first message has.
    pub(super) fn first_body(&self) -> u32 {
        if self.protocol_clients > 0 {
            REAL_FROM
        } else {
            0
        }
    }
}

impl World {
    pub(super) fn begin_protocol_clients(&mut self) {
        for index in 0..self.plan.protocol_clients {
            let number = index % self.plan.accounts;
            let account = self.accounts[usize::try_from(number).unwrap_or(0)];
            let login = format!("user{number}@example.org");
            let password = self.password_of(&login);
            let rng = self.protocol_clients.rng.fork();
            let ability = *self.protocol_clients.rng.pick(&[
                Ability::Plain,
                Ability::Condstore,
                Ability::Qresync,
                Ability::Qresync,
                Ability::Qresync,
            ]);
            let mind = Mind::new(rng, ability, is_keeping(account), login, password);
            self.protocol_clients.protocol_clients.push(ProtocolClient {
                account,
                mind,
                current: None,
                node: 0,
                served_by: None,
                turns: false,
                sends: None,
            });
            self.protocol_client_turns(self.protocol_clients.protocol_clients.len() - 1, SECOND);
        }
    }

    /// A client does something within this time.
    fn protocol_client_turns(&mut self, protocol_client: usize, pause: u64) {
        if std::mem::replace(
            &mut self.protocol_clients.protocol_clients[protocol_client].turns,
            true,
        ) {
            return;
        }
        let at = self.now + 1 + self.protocol_clients.rng.below(pause);
        self.network.at(at, event(Happening::Turn(protocol_client)));
    }

    pub(super) fn protocol_client_happens(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::There(number, bytes) => self.protocol_client_arrived(number, bytes),
            Happening::Closed(number) => self.protocol_client_closed(number),
            Happening::Rings(number) => self.protocol_client_rings(number),
            Happening::Passes(number, passage) => self.protocol_client_passes(number, *passage),
            Happening::HangsUp(connection) => {
                self.protocol_client_hangs_up_at_once(*connection);
                Ok(())
            }
            Happening::Turn(protocol_client) => self.protocol_client_turn(protocol_client),
            Happening::Back(number, bytes) => match self.protocol_client_of(number) {
                Some(protocol_client) => self.protocol_client_hears(protocol_client, &bytes),
                None => Ok(()),
            },
            Happening::Ended(number) | Happening::Breaks(number) => {
                if let Some(protocol_client) = self.protocol_client_of(number) {
                    self.protocol_client_breaks(protocol_client);
                }
                Ok(())
            }
        }
    }

    /// The node at which something happens; `None`: at the client's end, or nowhere any more.
    pub(super) fn protocol_client_happens_at(&self, happening: &Happening) -> Option<usize> {
        match happening {
            Happening::There(number, _) | Happening::Closed(number) | Happening::Rings(number) => {
                let connection = self.protocol_clients.connections.get(number);
                connection.map(|connection| connection.node)
            }
            Happening::Passes(_, passage) => Some(passage.to()),
            Happening::HangsUp(connection) => Some(connection.node),
            _ => None,
        }
    }

    /// Connections of clients to a node.
    pub(super) fn protocol_clients_at(&self, node: usize) -> Vec<u64> {
        let of = self
            .protocol_clients
            .protocol_clients
            .iter()
            .filter(|protocol_client| protocol_client.node == node);
        of.filter_map(|protocol_client| protocol_client.current)
            .collect()
    }

    /// A client does not wait any longer for a node that stands still.
    pub(super) fn protocol_client_times_out(&mut self, time: u64, number: u64) {
        self.network.at(time, event(Happening::Breaks(number)));
    }

    /// Whose connection that is, if he has not given it up.
    fn protocol_client_of(&self, number: u64) -> Option<usize> {
        let mut protocol_clients = self.protocol_clients.protocol_clients.iter();
        protocol_clients.position(|protocol_client| protocol_client.current == Some(number))
    }

    /// Who tells a client.
    fn protocol_client_place(&self, protocol_client: usize) -> Place {
        let protocol_client = &self.protocol_clients.protocol_clients[protocol_client];
        let member = &self.members[protocol_client.node];
        let holder_state = member
            .roster
            .holder_state(member.id, partition_of(protocol_client.account));
        (member.id, u64::from(holder_state.generation))
    }

    /// The client's end of a connection is gone; the node hears of it later, or never.
    fn protocol_client_breaks(&mut self, protocol_client: usize) {
        let Some(number) = self.protocol_clients.protocol_clients[protocol_client]
            .current
            .take()
        else {
            return;
        };
        self.say(|| format!("protocol_client {protocol_client}: its connection is gone"));
        if let Some(connection) = self.protocol_clients.connections.get(&number) {
            let at = connection.there_at.max(self.now) + 1;
            self.network.at(at, event(Happening::Closed(number)));
        }
        self.protocol_clients.protocol_clients[protocol_client].sends = None;
        self.protocol_client_turns(protocol_client, SECOND);
    }

    fn protocol_client_connects(&mut self, protocol_client: usize) -> Result<(), String> {
        let account = self.protocol_clients.protocol_clients[protocol_client].account;
        let node = match self.protocol_clients.protocol_clients[protocol_client]
            .mind
            .rng
            .one_in(3)
        {
            true => self.protocol_clients.protocol_clients[protocol_client].node,
            false if self.protocol_clients.rng.one_in(3) => self.protocol_client_anywhere(),
            false => self.protocol_client_any(account),
        };
        if !self.members[node].is_up() {
            self.protocol_client_turns(protocol_client, SECOND);
            return Ok(());
        }
        let id = self.session();
        self.bring(node);
        let now = self.members[node].node.now();
        let peer = Peer {
            session: id,
            address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
            tls: Some(Tls {
                version: "TLSv1.3",
                cipher: "TLS_AES_128_GCM_SHA256".into(),
                binding: Binding::default(),
            }),
        };
        let limits = Arc::new(self.protocol_client_limits());
        let session = Box::new(ImapSession::new(peer, limits, now));
        let latency = self.protocol_clients.rng.between(MS / 5, 20 * MS);
        self.protocol_clients.next += 1;
        let number = self.protocol_clients.next;
        let mut connection = Connection::new(protocol_client, node, session, id, latency);
        connection.relays = self.protocol_client_relays(node, account);
        self.protocol_clients.connections.insert(number, connection);
        self.say(|| format!("protocol_client {protocol_client}: connects to {node}"));
        let of = &mut self.protocol_clients.protocol_clients[protocol_client];
        of.current = Some(number);
        of.node = node;
        of.served_by = Some(self.members[node].id);
        of.mind.connected();
        self.with_session(number, |_, _| Ok(()))
    }

    fn protocol_client_limits(&self) -> Limits {
        Limits {
            other_nodes: self.plan.other_nodes,
            ..Limits::default()
        }
    }

    /// A node, whether it serves anybody or not.
    fn protocol_client_anywhere(&mut self) -> usize {
        let there = self.there();
        *self.protocol_clients.rng.pick(&there)
    }

    /// A node that serves the account.
    fn protocol_client_any(&mut self, account: AccountId) -> usize {
        let mut there = self.there();
        there.retain(|index| self.serves(*index, account));
        match there.is_empty() {
            true => self.first_there(),
            false => *self.protocol_clients.rng.pick(&there),
        }
    }

    fn protocol_client_turn(&mut self, protocol_client: usize) -> Result<(), String> {
        self.protocol_clients.protocol_clients[protocol_client].turns = false;
        let rests = self.protocol_clients.rests
            && self.protocol_clients.protocol_clients[protocol_client]
                .mind
                .rounds
                .is_empty();
        let Some(number) = self.protocol_clients.protocol_clients[protocol_client].current else {
            return match rests {
                true => Ok(()),
                false => self.protocol_client_connects(protocol_client),
            };
        };
        let (node, account) = (
            self.protocol_clients.protocol_clients[protocol_client].node,
            self.protocol_clients.protocol_clients[protocol_client].account,
        );
        let wanders = !rests && self.protocol_clients.rng.one_in(30);
        let is_in = self.protocol_clients.protocol_clients[protocol_client]
            .mind
            .logged_in;
        if wanders || (is_in && !self.serves(node, account)) {
            self.note("client: client goes to another node");
            self.protocol_client_breaks(protocol_client);
            return Ok(());
        }
        let mut effects = Vec::new();
        let mut wish = Workload {
            now: self.now,
            place: self.protocol_client_place(protocol_client),
            body: self.next_body + 1,
            takes_body: false,
            rests: self.protocol_clients.rests,
            effects: &mut effects,
        };
        let of = &mut self.protocol_clients.protocol_clients[protocol_client];
        let asks = of.mind.turn(&mut wish);
        if wish.takes_body {
            self.next_body += 1;
            of.sends = Some(self.next_body);
            self.kept.made(account, self.next_body);
        }
        if asks && self.trace {
            let doing = of.mind.doing.as_ref().map(|(_, doing)| doing.clone());
            self.say(|| format!("protocol_client {protocol_client} at {node}: {doing:?}"));
        }
        self.protocol_client_effects(protocol_client, effects)?;
        let bytes = self.protocol_clients.protocol_clients[protocol_client]
            .mind
            .wire
            .take_output();
        self.protocol_client_sends(number, &bytes);
        if asks && !self.protocol_clients.rests && self.protocol_clients.rng.one_in(40) {
            self.note("client: connection broken");
            let at = self.now + self.protocol_clients.rng.below(200 * MS);
            self.network.at(at, event(Happening::Breaks(number)));
        }
        Ok(())
    }

    fn protocol_client_hears(
        &mut self,
        protocol_client: usize,
        bytes: &[u8],
    ) -> Result<(), String> {
        let place = self.protocol_client_place(protocol_client);
        let (now, mut effects) = (self.now, Vec::new());
        let ProtocolClients {
            protocol_clients,
            told,
            ..
        } = &mut self.protocol_clients;
        let of = &mut protocol_clients[protocol_client];
        let mut hearing = Hearing {
            account: of.account,
            place,
            now,
            told,
            effects: &mut effects,
        };
        let (node, ability) = (of.node, of.mind.ability);
        let heard = of.mind.hear(bytes, &mut hearing);
        if self.trace {
            self.say(|| {
                format!(
                    "protocol_client {protocol_client}: {}",
                    bytes.escape_ascii()
                )
            });
        }
        heard.map_err(|cause| {
            format!("protocol_client {protocol_client} ({ability:?}) at {node}: {cause}")
        })?;
        self.protocol_client_effects(protocol_client, effects)?;
        // Literals that waited to be asked for.
        let bytes = self.protocol_clients.protocol_clients[protocol_client]
            .mind
            .wire
            .take_output();
        if let Some(number) = self.protocol_clients.protocol_clients[protocol_client].current {
            self.protocol_client_sends(number, &bytes);
        }
        Ok(())
    }

    fn protocol_client_effects(
        &mut self,
        protocol_client: usize,
        effects: Vec<Effect>,
    ) -> Result<(), String> {
        let (node, account) = (
            self.protocol_clients.protocol_clients[protocol_client].node,
            self.protocol_clients.protocol_clients[protocol_client].account,
        );
        let is_who_it_was = self.protocol_clients.protocol_clients[protocol_client].served_by
            == Some(self.members[node].id);
        let counts = !self.members[node].doubtful && is_who_it_was && !self.has_lost_its_disk(node);
        for effect in effects {
            match effect {
                Effect::Rest => {
                    self.protocol_client_left(protocol_client);
                    self.protocol_client_turns(protocol_client, self.plan.pause_micros);
                }
                Effect::Idling => {
                    self.protocol_client_turns(protocol_client, 2 * self.plan.pause_micros + SECOND)
                }
                Effect::Note(what) => self.note(what),
                Effect::Appended(body) if counts => {
                    self.kept.acknowledged(account, body);
                    self.acked(node, account, Acked::Body(body));
                }
                Effect::Flagged(uids, set) if counts => {
                    for uid in uids {
                        if let Some(id) = self.looks.owner(account, uid) {
                            self.kept.flagged(account, id, &set);
                            self.acked(node, account, Acked::Flags(id));
                        }
                    }
                }
                Effect::Appended(_) | Effect::Flagged(..) => {}
                Effect::Overlooked(mut missed) => {
                    // As of other clients.
                    missed.retain(|(uid, size)| {
                        let body = u32::try_from(*size).unwrap_or(0);
                        let id = self.looks.owner(account, *uid);
                        let left = id.is_some_and(|id| self.removals.may_have_left(account, id));
                        !self.kept.was_refused(body) && !left
                    });
                    if let Some((uid, size)) = missed.first() {
                        let cause = format!(
                            "protocol_client {protocol_client} overlooks message {size}, UID {uid} of INBOX, at {node}"
                        );
                        return Err(cause);
                    }
                }
            }
        }
        Ok(())
    }

    /// What had left INBOX where the client looked it takes for gone elsewhere, too.
    fn protocol_client_left(&mut self, protocol_client: usize) {
        let of = &self.protocol_clients.protocol_clients[protocol_client];
        let Some(cache) = of.mind.caches.get("INBOX") else {
            return;
        };
        let selected = of.mind.view.as_ref();
        if selected.is_none_or(|view| view.name != "INBOX" || !view.is_read || view.lacks()) {
            return;
        }
        let uids = cache.messages.keys().copied().collect();
        let left = self.looks.left(of.node, of.account, &uids, cache.uid_next);
        let mind = &mut self.protocol_clients.protocol_clients[protocol_client].mind;
        mind.left_inbox(&left);
    }

    /// Nothing new is begun, and what was is ended; or it goes on.
    pub(super) fn protocol_clients_rest(&mut self, rests: bool) {
        self.protocol_clients.rests = rests;
        for protocol_client in 0..self.protocol_clients.protocol_clients.len() {
            self.protocol_client_turns(protocol_client, self.plan.pause_micros);
        }
    }

    /// All clients go, and nobody comes any more.
    pub(super) fn protocol_clients_go(&mut self) {
        (0..self.protocol_clients.protocol_clients.len())
            .for_each(|protocol_client| self.protocol_client_breaks(protocol_client));
    }

    /// Whether a client waits for an answer.
    pub(super) fn protocol_clients_wait(&self) -> bool {
        let waits = |protocol_client: &ProtocolClient| {
            protocol_client.current.is_some() && protocol_client.mind.waits()
        };
        let calls = self.protocol_clients.connections.values();
        self.protocol_clients.protocol_clients.iter().any(waits)
            || calls.into_iter().any(Connection::calls)
    }

    /// All is healed: each client comes once more, and knows what the node shows then. What it names may be new there, and claims that follow from
    /// that reach who came before it later: he comes again.
    pub(super) fn protocol_clients_agree(&mut self) -> Result<(), String> {
        for protocol_client in 0..self.protocol_clients.protocol_clients.len() {
            let mut tries = 0;
            while let Some(cause) = self.protocol_client_differs(protocol_client)? {
                tries += 1;
                if tries > AGREEING_TRIES_MAX {
                    return Err(cause);
                }
                self.run_until(self.now + 5 * SECOND)?;
            }
        }
        Ok(())
    }

    /// What a client that has just resynchronised all does not know as the node shows it.
    fn protocol_client_differs(
        &mut self,
        protocol_client: usize,
    ) -> Result<Option<String>, String> {
        self.protocol_client_breaks(protocol_client);
        self.protocol_clients.protocol_clients[protocol_client]
            .mind
            .comes_again();
        self.protocol_client_turns(protocol_client, SECOND);
        let end = self.now + AGREEING_MICROS_MAX;
        while !self.protocol_clients.protocol_clients[protocol_client]
            .mind
            .is_done()
        {
            if self.now > end {
                let doing = &self.protocol_clients.protocol_clients[protocol_client]
                    .mind
                    .doing;
                return Err(format!(
                    "protocol_client {protocol_client} does not come to its end: {doing:?}"
                ));
            }
            self.run_until(self.now + 100 * MS)?;
        }
        // Who knows of no mailbox has nothing to come for, and the node where he was may be gone.
        if self.protocol_clients.protocol_clients[protocol_client]
            .mind
            .caches
            .is_empty()
        {
            return Ok(None);
        }
        let (node, account) = (
            self.protocol_clients.protocol_clients[protocol_client].node,
            self.protocol_clients.protocol_clients[protocol_client].account,
        );
        let picture = self.picture(node, account)?;
        for (name, cache) in &self.protocol_clients.protocol_clients[protocol_client]
            .mind
            .caches
        {
            let known = cache.messages.iter();
            let known = known.map(|(uid, of)| (*uid, client::numbers(&of.flags), of.size));
            let known: Vec<_> = known.collect();
            let shown = picture.flags_of(name);
            if shown.as_ref() != Some(&known) {
                return Ok(Some(format!(
                    "protocol_client {protocol_client} believes of {name}\n  {known:?}\nnode {node} shows\n  {shown:?}"
                )));
            }
            let count = self
                .report
                .coverage
                .entry("client: mailboxes known in the end");
            *count.or_default() += 1;
        }
        Ok(None)
    }
}
