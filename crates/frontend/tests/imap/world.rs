//! Connections and a store: carries bytes, calls and events between them, in any cut of the bytes.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use whimbrel_frontend::{
    imap::{ImapSession, Limits},
    session::{Action, Binding, Note, Peer, Session, Tls},
};
use whimbrel_service::{
    api::{Call, Event, Reply, SessionId},
    machine::Now,
};

use super::{
    fake::{Fake, name_of},
    layer::Layer,
};

fn binding() -> Binding {
    Binding {
        exporter: Some(Box::new([7; 32])),
        end_point: None,
    }
}

/// How client bytes are cut.
#[derive(Clone, Debug)]
pub(crate) enum Cut {
    /// Not at all.
    AtOnce,
    /// Into pieces of these sizes, over and over.
    Sizes(Vec<usize>),
}

/// One connection.
pub(crate) struct Connection {
    pub(crate) session: ImapSession,
    id: SessionId,
    inbox: Vec<u8>,
    pub(crate) outbox: Vec<u8>,
    /// The client's side of COMPRESS.
    pub(crate) layer: Option<Layer>,
    /// Bytes as they came.
    pub(crate) wire_bytes: usize,
    pub(crate) notes: Vec<Note>,
    pub(crate) closed: bool,
    pub(crate) wants_tls: bool,
    /// A call of this name is not carried out until told.
    pub(crate) stop_at: Option<String>,
    held: Option<Call>,
    /// An answer that has not come yet.
    late: Option<Reply>,
    /// Does not read: output is not taken.
    pub(crate) stuck: bool,
    pub(crate) sends: usize,
    pub(crate) yields: usize,
    pub(crate) log_outs: usize,
    pub(crate) largest_send: usize,
    pub(crate) calls: BTreeMap<String, usize>,
    pieces: usize,
}

impl Connection {
    /// The server says this.
    fn hear(&mut self, mut bytes: Vec<u8>) {
        if let Some(layer) = &mut self.layer {
            let (said, rest) = layer.hear(&bytes);
            self.outbox.extend_from_slice(&said);
            let Some(rest) = rest else { return };
            self.layer = None;
            bytes = rest;
        }
        self.outbox.extend_from_slice(&bytes);
        if let Some(layer) = Layer::begun(&mut self.outbox) {
            self.layer = Some(layer);
        }
    }

    /// Whether a call is held up.
    pub(crate) fn holds(&self) -> bool {
        self.held.is_some()
    }
}

/// All of it.
pub(crate) struct World {
    pub(crate) fake: Fake,
    pub(crate) connections: BTreeMap<String, Connection>,
    pub(crate) now: Now,
    pub(crate) limits: Limits,
    /// Every client compresses as soon as it has logged in.
    pub(crate) compresses: bool,
    /// Sessions drop what they have read whenever that may be asked of them.
    pub(crate) sheds: bool,
    cut: Cut,
    next_session: u64,
}

impl World {
    pub(crate) fn new(cut: Cut) -> World {
        World::on(Fake::new(), cut)
    }

    /// On the real owner.
    pub(crate) fn real(cut: Cut) -> World {
        let mut fake = Fake::new();
        fake.real = Some(Box::new(super::real::Real::new()));
        World::on(fake, cut)
    }

    fn on(fake: Fake, cut: Cut) -> World {
        World {
            fake,
            connections: BTreeMap::new(),
            now: Now {
                wall_micros: 1_700_000_000_000_000,
                mono_micros: 1_000_000,
            },
            limits: Limits::default(),
            compresses: false,
            sheds: false,
            cut,
            next_session: 1,
        }
    }

    pub(crate) fn connect(&mut self, name: &str, tls: bool) {
        let id = SessionId(self.next_session);
        self.next_session += 1;
        let tls = tls.then(|| Tls {
            version: "TLSv1.3",
            cipher: "TLS_AES_256_GCM_SHA384".into(),
            binding: binding(),
        });
        let peer = Peer {
            session: id,
            address: IpAddr::from([127, 0, 0, 1]),
            tls,
        };
        let connection = Connection {
            session: ImapSession::new(peer, Arc::new(self.limits.clone()), self.now),
            id,
            inbox: Vec::new(),
            outbox: Vec::new(),
            layer: None,
            wire_bytes: 0,
            notes: Vec::new(),
            closed: false,
            wants_tls: false,
            stop_at: None,
            held: None,
            late: None,
            stuck: false,
            sends: 0,
            yields: 0,
            log_outs: 0,
            largest_send: 0,
            calls: BTreeMap::new(),
            pieces: 0,
        };
        self.connections.insert(name.to_owned(), connection);
        self.run();
    }

    pub(crate) fn get(&mut self, name: &str) -> &mut Connection {
        self.connections
            .get_mut(name)
            .unwrap_or_else(|| panic!("no connection {name}"))
    }

    /// The client sends.
    pub(crate) fn send(&mut self, name: &str, bytes: &[u8]) {
        let connection = self.get(name);
        match connection.layer.take() {
            Some(layer) => layer.send(bytes, &mut connection.inbox, &mut connection.layer),
            None => connection.inbox.extend_from_slice(bytes),
        }
        self.run();
    }

    /// The client sends these bytes as they are.
    pub(crate) fn send_raw(&mut self, name: &str, bytes: &[u8]) {
        self.get(name).inbox.extend_from_slice(bytes);
        self.run();
    }

    /// A call that was stopped is carried out.
    /// Carries out the call that is held; `stops`: and holds the next of its name.
    pub(crate) fn go_on(&mut self, name: &str, stops: bool) {
        let connection = self.get(name);
        let call = connection.held.take().expect("a call is held");
        connection.stop_at = connection.stop_at.take().filter(|_| stops);
        self.carry_out(name, call);
        self.run();
    }

    /// A call that was stopped is carried out; its answer waits, as for the disk.
    pub(crate) fn carry_out_late(&mut self, name: &str) {
        let connection = self.get(name);
        let call = connection.held.take().expect("a call is held");
        connection.stop_at = None;
        let reply = self.call(call);
        self.get(name).late = Some(reply);
    }

    pub(crate) fn answer(&mut self, name: &str) {
        let now = self.now;
        let connection = self.get(name);
        let reply = connection.late.take().expect("an answer waits");
        connection.session.on_reply(now, reply);
        self.run();
    }

    fn carry_out(&mut self, name: &str, call: Call) {
        let reply = self.call(call);
        let now = self.now;
        self.get(name).session.on_reply(now, reply);
    }

    fn call(&mut self, call: Call) -> Reply {
        let reply = self.fake.call(call);
        // Events reach a session before any reply that was made after them.
        for (id, event) in self.fake.events() {
            for connection in self
                .connections
                .values_mut()
                .filter(|connection| connection.id == id)
            {
                connection.session.on_event(self.now, event);
            }
        }
        reply
    }

    /// Until nobody has anything to do.
    pub(crate) fn run(&mut self) {
        let names: Vec<String> = self.connections.keys().cloned().collect();
        loop {
            let mut idle = true;
            for name in &names {
                while self.turn(name) {
                    idle = false;
                }
            }
            if idle {
                return;
            }
        }
    }

    fn turn(&mut self, name: &str) -> bool {
        let (now, cut, compresses) = (self.now, self.cut.clone(), self.compresses);
        let sheds = self.sheds;
        let connection = self.get(name);
        if connection.stuck && connection.sends > 0 {
            return false;
        }
        match connection.session.poll(now) {
            Some(Action::Send(bytes)) => {
                assert!(!connection.closed && !bytes.is_empty());
                connection.sends += 1;
                connection.largest_send = connection.largest_send.max(bytes.len());
                connection.wire_bytes += bytes.len();
                connection.hear(bytes);
                if sheds {
                    connection.session.shed();
                }
                if compresses && connection.layer.is_none() && connection.inbox.is_empty() {
                    Layer::begin(&connection.outbox, &mut connection.inbox);
                }
            }
            Some(Action::Call(call)) => {
                let called = name_of(&call);
                if sheds && !matches!(call, Call::Contents { .. }) {
                    connection.session.shed();
                }
                assert!(connection.held.is_none(), "two calls at a time");
                *connection.calls.entry(called.clone()).or_default() += 1;
                if connection.stop_at.as_deref() == Some(&called) {
                    connection.held = Some(call);
                    return false;
                }
                self.carry_out(name, call);
            }
            Some(Action::Yield) => connection.yields += 1,
            Some(Action::HandOver(_)) => unreachable!("nobody relays"),
            Some(Action::LoggedOut) => connection.log_outs += 1,
            Some(Action::StartTls) => connection.wants_tls = true,
            Some(Action::Note(note)) => connection.notes.push(note),
            Some(Action::Close) => connection.closed = true,
            None => {
                if !connection.session.wants_input() || connection.inbox.is_empty() {
                    return false;
                }
                let len = match cut {
                    Cut::AtOnce => connection.inbox.len(),
                    Cut::Sizes(sizes) => {
                        connection.pieces += 1;
                        sizes[connection.pieces % sizes.len()].clamp(1, connection.inbox.len())
                    }
                };
                let piece: Vec<u8> = connection.inbox.drain(..len).collect();
                connection.session.on_bytes(now, &piece);
            }
        }
        true
    }

    pub(crate) fn event(&mut self, name: &str, event: Event) {
        let now = self.now;
        self.get(name).session.on_event(now, event);
        self.run();
    }

    pub(crate) fn eof(&mut self, name: &str) {
        let now = self.now;
        self.get(name).session.on_eof(now);
        self.run();
    }

    pub(crate) fn tls(&mut self, name: &str) {
        let now = self.now;
        let connection = self.get(name);
        assert!(
            std::mem::take(&mut connection.wants_tls),
            "TLS was not begun"
        );
        connection.session.on_tls(
            now,
            Tls {
                version: "TLSv1.3",
                cipher: "x".into(),
                binding: binding(),
            },
        );
        self.run();
    }

    /// Time goes on, and whoever has a deadline by then is told.
    pub(crate) fn pass(&mut self, seconds: u64) {
        self.now.mono_micros += seconds * 1_000_000;
        self.now.wall_micros += seconds * 1_000_000;
        let now = self.now;
        for connection in self.connections.values_mut() {
            if connection
                .session
                .deadline()
                .is_some_and(|deadline| deadline <= now.mono_micros)
            {
                connection.session.on_time(now);
            }
        }
        self.run();
    }
}
