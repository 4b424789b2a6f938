//! Clients that come in by the front door: bytes to a production session at a node, and the session's answers back by bytes, all in virtual time.
//!
//! A client is a strict IMAP client with a cache of its own, which goes from node to node and says with QRESYNC what it knows. It takes nothing that the RFCs do not let a
//! server say, holds what it is told against what it was told before (U1, U2, U4, MODSEQ), and what a resynchronisation told against `FETCH 1:*`. When all is healed each
//! comes once more, and knows then what the node shows.
//!
//! Doors draw from a generator of their own, in every second seed.
//!
//! Reading order: this file (who connects when), [`connection`] (the session's end), [`relay`] (sessions that go on elsewhere), [`client`], [`wishes`] and [`cache`] (the client's), [`told`] (what all were told).

mod cache;
mod client;
mod connection;
mod relay;
mod told;
mod wishes;

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
    cache::Place,
    client::{Ability, Effect, Hearing, Mind},
    connection::Connection,
    relay::Passage,
    told::Told,
    wishes::Wish,
};
use super::{
    MS, Plan, SECOND, World, bodies::REAL_FROM, is_keeping, losses::Acked, network::Event,
};
use whimbrel_testkit::Rng;

/// All is healed: a client must know all after so long, and after so many visits.
const AGREEING_MICROS_MAX: u64 = 300 * SECOND;
const AGREEING_TRIES_MAX: u32 = 5;

/// What happens at a door.
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
    Event::Door(happening)
}

/// A client, over all its connections.
struct Door {
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
pub(super) struct Doors {
    rng: Rng,
    doors: Vec<Door>,
    connections: BTreeMap<u64, Connection>,
    /// Which connection asked; 0: one that is gone.
    calls: BTreeMap<RequestId, u64>,
    told: Told,
    next: u64,
    /// Nothing new is begun.
    rests: bool,
}

impl Doors {
    pub(super) fn new(seed: u64) -> Doors {
        Doors {
            rng: Rng::new(seed ^ 0x00d0_0125_eed0),
            doors: Vec::new(),
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
    pub(super) fn with_doors(mut self) -> Self {
        let mut rng = Rng::new(self.seed ^ 0x00d0_0125_0000);
        if rng.one_in(2) {
            self.doors = rng.between(1, 3);
        }
        self
    }

    /// What number the first message has.
    pub(super) fn first_body(&self) -> u32 {
        if self.doors > 0 { REAL_FROM } else { 0 }
    }
}

impl World {
    pub(super) fn begin_doors(&mut self) {
        for index in 0..self.plan.doors {
            let number = index % self.plan.accounts;
            let account = self.accounts[usize::try_from(number).unwrap_or(0)];
            let login = format!("user{number}@example.org");
            let password = self.password_of(&login);
            let rng = self.doors.rng.fork();
            let ability = *self.doors.rng.pick(&[
                Ability::Plain,
                Ability::Condstore,
                Ability::Qresync,
                Ability::Qresync,
                Ability::Qresync,
            ]);
            let mind = Mind::new(rng, ability, is_keeping(account), login, password);
            self.doors.doors.push(Door {
                account,
                mind,
                current: None,
                node: 0,
                served_by: None,
                turns: false,
                sends: None,
            });
            self.door_turns(self.doors.doors.len() - 1, SECOND);
        }
    }

    /// A client does something within this time.
    fn door_turns(&mut self, door: usize, pause: u64) {
        if std::mem::replace(&mut self.doors.doors[door].turns, true) {
            return;
        }
        let at = self.now + 1 + self.doors.rng.below(pause);
        self.network.at(at, event(Happening::Turn(door)));
    }

    pub(super) fn door_happens(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::There(number, bytes) => self.door_arrived(number, bytes),
            Happening::Closed(number) => self.door_closed(number),
            Happening::Rings(number) => self.door_rings(number),
            Happening::Passes(number, passage) => self.door_passes(number, *passage),
            Happening::HangsUp(connection) => {
                self.door_hangs_up_at_once(*connection);
                Ok(())
            }
            Happening::Turn(door) => self.door_turn(door),
            Happening::Back(number, bytes) => match self.door_of(number) {
                Some(door) => self.door_hears(door, &bytes),
                None => Ok(()),
            },
            Happening::Ended(number) | Happening::Breaks(number) => {
                if let Some(door) = self.door_of(number) {
                    self.door_breaks(door);
                }
                Ok(())
            }
        }
    }

    /// The node at which something happens; `None`: at the client's end, or nowhere any more.
    pub(super) fn door_happens_at(&self, happening: &Happening) -> Option<usize> {
        match happening {
            Happening::There(number, _) | Happening::Closed(number) | Happening::Rings(number) => {
                let connection = self.doors.connections.get(number);
                connection.map(|connection| connection.node)
            }
            Happening::Passes(_, passage) => Some(passage.to()),
            Happening::HangsUp(connection) => Some(connection.node),
            _ => None,
        }
    }

    /// Connections of clients to a node.
    pub(super) fn doors_at(&self, node: usize) -> Vec<u64> {
        let of = self.doors.doors.iter().filter(|door| door.node == node);
        of.filter_map(|door| door.current).collect()
    }

    /// A client does not wait any longer for a node that stands still.
    pub(super) fn door_loses_patience(&mut self, time: u64, number: u64) {
        self.network.at(time, event(Happening::Breaks(number)));
    }

    /// Whose connection that is, if he has not given it up.
    fn door_of(&self, number: u64) -> Option<usize> {
        let mut doors = self.doors.doors.iter();
        doors.position(|door| door.current == Some(number))
    }

    /// Who tells a client.
    fn door_place(&self, door: usize) -> Place {
        let door = &self.doors.doors[door];
        let member = &self.members[door.node];
        let standing = member
            .roster
            .standing(member.id, partition_of(door.account));
        (member.id, u64::from(standing.life))
    }

    /// The client's end of a connection is gone; the node hears of it later, or never.
    fn door_breaks(&mut self, door: usize) {
        let Some(number) = self.doors.doors[door].current.take() else {
            return;
        };
        self.say(|| format!("door {door}: its connection is gone"));
        if let Some(connection) = self.doors.connections.get(&number) {
            let at = connection.there_at.max(self.now) + 1;
            self.network.at(at, event(Happening::Closed(number)));
        }
        self.doors.doors[door].sends = None;
        self.door_turns(door, SECOND);
    }

    fn door_connects(&mut self, door: usize) -> Result<(), String> {
        let account = self.doors.doors[door].account;
        let node = match self.doors.doors[door].mind.rng.one_in(3) {
            true => self.doors.doors[door].node,
            false if self.doors.rng.one_in(3) => self.door_anywhere(),
            false => self.door_any(account),
        };
        if !self.members[node].is_up() {
            self.door_turns(door, SECOND);
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
        let limits = Arc::new(self.door_limits());
        let session = Box::new(ImapSession::new(peer, limits, now));
        let latency = self.doors.rng.between(MS / 5, 20 * MS);
        self.doors.next += 1;
        let number = self.doors.next;
        let mut connection = Connection::new(door, node, session, id, latency);
        connection.relays = self.door_relays(node, account);
        self.doors.connections.insert(number, connection);
        self.say(|| format!("door {door}: connects to {node}"));
        let of = &mut self.doors.doors[door];
        of.current = Some(number);
        of.node = node;
        of.served_by = Some(self.members[node].id);
        of.mind.connected();
        self.with_session(number, |_, _| Ok(()))
    }

    fn door_limits(&self) -> Limits {
        Limits {
            other_nodes: self.plan.other_nodes,
            ..Limits::default()
        }
    }

    /// A node, whether it serves anybody or not.
    fn door_anywhere(&mut self) -> usize {
        let there = self.there();
        *self.doors.rng.pick(&there)
    }

    /// A node that serves the account.
    fn door_any(&mut self, account: AccountId) -> usize {
        let mut there = self.there();
        there.retain(|index| self.serves(*index, account));
        match there.is_empty() {
            true => self.first_there(),
            false => *self.doors.rng.pick(&there),
        }
    }

    fn door_turn(&mut self, door: usize) -> Result<(), String> {
        self.doors.doors[door].turns = false;
        let rests = self.doors.rests && self.doors.doors[door].mind.rounds.is_empty();
        let Some(number) = self.doors.doors[door].current else {
            return match rests {
                true => Ok(()),
                false => self.door_connects(door),
            };
        };
        let (node, account) = (self.doors.doors[door].node, self.doors.doors[door].account);
        let wanders = !rests && self.doors.rng.one_in(30);
        let is_in = self.doors.doors[door].mind.logged_in;
        if wanders || (is_in && !self.serves(node, account)) {
            self.note("door: client goes to another node");
            self.door_breaks(door);
            return Ok(());
        }
        let mut effects = Vec::new();
        let mut wish = Wish {
            now: self.now,
            place: self.door_place(door),
            body: self.next_body + 1,
            takes_body: false,
            rests: self.doors.rests,
            effects: &mut effects,
        };
        let of = &mut self.doors.doors[door];
        let asks = of.mind.turn(&mut wish);
        if wish.takes_body {
            self.next_body += 1;
            of.sends = Some(self.next_body);
            self.kept.made(account, self.next_body);
        }
        if asks && self.trace {
            let doing = of.mind.doing.as_ref().map(|(_, doing)| doing.clone());
            self.say(|| format!("door {door} at {node}: {doing:?}"));
        }
        self.door_effects(door, effects)?;
        let bytes = self.doors.doors[door].mind.wire.take_output();
        self.door_sends(number, &bytes);
        if asks && !self.doors.rests && self.doors.rng.one_in(40) {
            self.note("door: connection broken");
            let at = self.now + self.doors.rng.below(200 * MS);
            self.network.at(at, event(Happening::Breaks(number)));
        }
        Ok(())
    }

    fn door_hears(&mut self, door: usize, bytes: &[u8]) -> Result<(), String> {
        let place = self.door_place(door);
        let (now, mut effects) = (self.now, Vec::new());
        let Doors { doors, told, .. } = &mut self.doors;
        let of = &mut doors[door];
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
            self.say(|| format!("door {door}: {}", bytes.escape_ascii()));
        }
        heard.map_err(|cause| format!("door {door} ({ability:?}) at {node}: {cause}"))?;
        self.door_effects(door, effects)?;
        // Literals that waited to be asked for.
        let bytes = self.doors.doors[door].mind.wire.take_output();
        if let Some(number) = self.doors.doors[door].current {
            self.door_sends(number, &bytes);
        }
        Ok(())
    }

    fn door_effects(&mut self, door: usize, effects: Vec<Effect>) -> Result<(), String> {
        let (node, account) = (self.doors.doors[door].node, self.doors.doors[door].account);
        let is_who_it_was = self.doors.doors[door].served_by == Some(self.members[node].id);
        let counts = !self.members[node].doubtful && is_who_it_was && !self.has_lost_its_disk(node);
        for effect in effects {
            match effect {
                Effect::Rest => {
                    self.door_left(door);
                    self.door_turns(door, self.plan.pause_micros);
                }
                Effect::Idling => self.door_turns(door, 2 * self.plan.pause_micros + SECOND),
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
                            "door {door} overlooks message {size}, UID {uid} of INBOX, at {node}"
                        );
                        return Err(cause);
                    }
                }
            }
        }
        Ok(())
    }

    /// What had left INBOX where the client looked it takes for gone elsewhere, too.
    fn door_left(&mut self, door: usize) {
        let of = &self.doors.doors[door];
        let Some(cache) = of.mind.caches.get("INBOX") else {
            return;
        };
        let selected = of.mind.view.as_ref();
        if selected.is_none_or(|view| view.name != "INBOX" || !view.is_read || view.lacks()) {
            return;
        }
        let uids = cache.messages.keys().copied().collect();
        let left = self.looks.left(of.node, of.account, &uids, cache.uid_next);
        let mind = &mut self.doors.doors[door].mind;
        mind.left_inbox(&left);
    }

    /// Nothing new is begun, and what was is ended; or it goes on.
    pub(super) fn doors_rest(&mut self, rests: bool) {
        self.doors.rests = rests;
        for door in 0..self.doors.doors.len() {
            self.door_turns(door, self.plan.pause_micros);
        }
    }

    /// All clients go, and nobody comes any more.
    pub(super) fn doors_go(&mut self) {
        (0..self.doors.doors.len()).for_each(|door| self.door_breaks(door));
    }

    /// Whether a client waits for an answer.
    pub(super) fn doors_wait(&self) -> bool {
        let waits = |door: &Door| door.current.is_some() && door.mind.waits();
        let calls = self.doors.connections.values();
        self.doors.doors.iter().any(waits) || calls.into_iter().any(Connection::calls)
    }

    /// All is healed: each client comes once more, and knows what the node shows then. What it names may be new there, and claims that follow from that reach who came before it
    /// later: he comes again.
    pub(super) fn doors_agree(&mut self) -> Result<(), String> {
        for door in 0..self.doors.doors.len() {
            let mut tries = 0;
            while let Some(cause) = self.door_differs(door)? {
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
    fn door_differs(&mut self, door: usize) -> Result<Option<String>, String> {
        self.door_breaks(door);
        self.doors.doors[door].mind.comes_again();
        self.door_turns(door, SECOND);
        let end = self.now + AGREEING_MICROS_MAX;
        while !self.doors.doors[door].mind.is_done() {
            if self.now > end {
                let doing = &self.doors.doors[door].mind.doing;
                return Err(format!("door {door} does not come to its end: {doing:?}"));
            }
            self.run_until(self.now + 100 * MS)?;
        }
        // Who knows of no mailbox has nothing to come for, and the node where he was may be gone.
        if self.doors.doors[door].mind.caches.is_empty() {
            return Ok(None);
        }
        let (node, account) = (self.doors.doors[door].node, self.doors.doors[door].account);
        let picture = self.picture(node, account)?;
        for (name, cache) in &self.doors.doors[door].mind.caches {
            let known = cache.messages.iter();
            let known = known.map(|(uid, of)| (*uid, client::numbers(&of.flags), of.size));
            let known: Vec<_> = known.collect();
            let shown = picture.flags_of(name);
            if shown.as_ref() != Some(&known) {
                return Ok(Some(format!(
                    "door {door} believes of {name}\n  {known:?}\nnode {node} shows\n  {shown:?}"
                )));
            }
            let count = self
                .report
                .coverage
                .entry("door: mailboxes known in the end");
            *count.or_default() += 1;
        }
        Ok(None)
    }
}
