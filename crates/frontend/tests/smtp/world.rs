//! Connections and a node: carries bytes, calls and answers between them, in any cut of the bytes.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use whimbrel_frontend::{
    session::{Action, Binding, Note, Peer, Session, Tls},
    smtp::{Limits, SmtpSession},
};
use whimbrel_service::{
    admin::{AdminCall, AdminReply},
    api::{AccountId, BlobName, Call, Event, MailboxCall, MailboxName, Reply, SessionId},
    machine::RequestId,
    owner, queue,
};
use whimbrel_sim::node::{Node, Outcome, Speed, VERIFIER_PREFIX};
use whimbrel_smtp::{Config, Domain, Role};
use whimbrel_storage::UploadId;

pub(crate) const ANNE: AccountId = AccountId([1; 16]);
pub(crate) const BOB: AccountId = AccountId([2; 16]);

/// How client bytes are cut.
#[derive(Clone, Debug)]
pub(crate) enum Cut {
    /// Not at all.
    AtOnce,
    /// Into pieces of these sizes, over and over.
    Sizes(Vec<usize>),
}

/// One connection.
pub(crate) struct Client {
    session: SmtpSession,
    inbox: Vec<u8>,
    pub(crate) outbox: Vec<u8>,
    pub(crate) notes: Vec<Note>,
    pub(crate) calls: BTreeMap<&'static str, usize>,
    pub(crate) closed: bool,
    wants_tls: bool,
    waits_for: Option<RequestId>,
    pieces: usize,
}

/// All of it.
pub(crate) struct World {
    pub(crate) node: Node,
    pub(crate) clients: Vec<Client>,
    pub(crate) config: Config,
    pub(crate) limits: Limits,
    /// What the node did for no client.
    answers: BTreeMap<RequestId, Reply>,
    admin: BTreeMap<RequestId, AdminReply>,
    uploads: Vec<UploadId>,
    stopped: bool,
    cut: Cut,
    requests: u64,
}

impl World {
    /// Anne and Bob, Anne's mailbox `Lists`, and no time passes but where it is waited for.
    pub(crate) fn new(cut: Cut) -> World {
        let mut node = Node::with(
            1,
            owner::Config::default(),
            queue::Limits {
                entries_max: 3,
                ..queue::Limits::default()
            },
        );
        node.speed = Speed {
            sync_micros: (0, 0),
            lazy_micros: (0, 0),
            read_micros: (0, 0),
            verify_micros: (0, 0),
        };
        let mut config = Config::new(Domain::new("mx.example.org").unwrap());
        config.limits.message_bytes_max = 300_000;
        let mut world = World {
            node,
            clients: Vec::new(),
            config,
            limits: Limits::default(),
            answers: BTreeMap::new(),
            admin: BTreeMap::new(),
            uploads: Vec::new(),
            stopped: false,
            cut,
            requests: 0,
        };
        world.account("anne@example.org", ANNE);
        world.account("bob@example.org", BOB);
        let create = MailboxCall::Create {
            name: MailboxName::new("Lists").unwrap(),
            special_use: None,
        };
        assert!(matches!(world.mailbox(ANNE, create), Reply::Created(_)));
        world
    }

    fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    pub(crate) fn account(&mut self, address: &str, account: AccountId) {
        let verifier = format!("{VERIFIER_PREFIX}secret");
        self.administrate(AdminCall::AddAccount {
            address: address.into(),
            verifier,
            scram: None,
            account,
        });
    }

    pub(crate) fn alias(&mut self, from: &str, to: &str) {
        self.administrate(AdminCall::AddAlias {
            from: from.into(),
            to: to.into(),
            instead: true,
        });
    }

    fn administrate(&mut self, call: AdminCall) {
        let request = self.request();
        self.node.admin(request, call);
        self.run();
        assert_eq!(self.admin.remove(&request), Some(AdminReply::Done));
    }

    /// Asks the service, beside all clients.
    pub(crate) fn call(&mut self, call: Call) -> Reply {
        let request = self.request();
        self.node.call(request, call);
        self.run();
        self.answers.remove(&request).expect("an answer")
    }

    /// Asks all of this at once.
    pub(crate) fn calls(&mut self, calls: Vec<Call>) -> Vec<Reply> {
        let requests: Vec<RequestId> = calls
            .into_iter()
            .map(|call| {
                let request = self.request();
                self.node.call(request, call);
                request
            })
            .collect();
        self.run();
        let answer = |request| self.answers.remove(&request).expect("an answer");
        requests.into_iter().map(answer).collect()
    }

    pub(crate) fn mailbox(&mut self, account: AccountId, call: MailboxCall) -> Reply {
        self.call(Call::mailbox(account, call))
    }

    /// A new connection is the last of `clients`.
    pub(crate) fn connect(&mut self, role: Role) {
        self.connect_by(role, None);
    }

    /// With TLS from the first byte.
    pub(crate) fn connect_tls(&mut self, role: Role) {
        self.connect_by(role, Some(tls()));
    }

    fn connect_by(&mut self, role: Role, tls: Option<Tls>) {
        let peer = Peer {
            session: SessionId(self.clients.len() as u64),
            address: IpAddr::from([192, 0, 2, 7]),
            tls,
        };
        let config = Arc::new(self.config.clone());
        let limits = Arc::new(self.limits.clone());
        self.clients.push(Client {
            session: SmtpSession::new(role, config, limits, &peer, self.node.now()),
            inbox: Vec::new(),
            outbox: Vec::new(),
            notes: Vec::new(),
            calls: BTreeMap::new(),
            closed: false,
            wants_tls: false,
            waits_for: None,
            pieces: 0,
        });
        self.run();
    }

    pub(crate) fn client(&mut self) -> &mut Client {
        self.clients.last_mut().expect("a connection")
    }

    /// The last client sends, and everything happens that follows.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.push(bytes);
        self.run();
    }

    /// The last client sends, and the node does nothing yet.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.client().inbox.extend_from_slice(bytes);
        self.turns();
    }

    pub(crate) fn eof(&mut self) {
        let now = self.node.now();
        self.client().inbox.clear();
        self.client().session.on_eof(now);
        self.run();
    }

    pub(crate) fn event(&mut self, event: Event) {
        let now = self.node.now();
        self.client().session.on_event(now, event);
        self.run();
    }

    pub(crate) fn tls(&mut self) {
        let now = self.node.now();
        assert!(std::mem::take(&mut self.client().wants_tls));
        self.client().session.on_tls(now, tls());
        self.run();
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        let until = self.node.time() + seconds * 1_000_000;
        self.node.advance_to(until);
        let now = self.node.now();
        for client in &mut self.clients {
            if client.session.deadline().is_some_and(|at| at <= until) {
                client.session.on_time(now);
            }
        }
        self.run();
    }

    /// The node loses what was not synced, and all connections.
    pub(crate) fn crash(&mut self, seed: u64) {
        self.node.crash(seed);
        self.stopped = false;
        self.clients.clear();
        self.run();
    }

    /// What the last client has been told since it was asked last.
    pub(crate) fn told(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.client().outbox)).unwrap()
    }

    /// Until nobody has anything to do.
    pub(crate) fn run(&mut self) {
        loop {
            self.turns();
            if self.node.is_quiet() || !self.step() {
                return;
            }
        }
    }

    /// One step of the node, and what the clients do upon it.
    pub(crate) fn step(&mut self) -> bool {
        let stepped = self.node.step();
        self.carry();
        assert!(!self.stopped, "the node stopped");
        stepped
    }

    /// What has left the node reaches those it is for.
    pub(crate) fn carry(&mut self) {
        while let Some(outcome) = self.node.outcome() {
            match outcome {
                Outcome::Reply(request, reply) => {
                    if let Reply::Upload(upload) = &reply {
                        self.uploads.push(UploadId(*upload));
                    }
                    let now = self.node.now();
                    let waiting = |client: &&mut Client| client.waits_for == Some(request);
                    match self.clients.iter_mut().find(waiting) {
                        Some(client) => {
                            client.waits_for = None;
                            client.session.on_reply(now, reply);
                        }
                        None => drop(self.answers.insert(request, reply)),
                    }
                }
                Outcome::Admin(request, reply) => drop(self.admin.insert(request, reply)),
                Outcome::Stopped(_) => self.stopped = true,
                _ => {}
            }
        }
        self.turns();
    }

    fn turns(&mut self) {
        for index in 0..self.clients.len() {
            while self.turn(index) {}
        }
    }

    fn turn(&mut self, index: usize) -> bool {
        let now = self.node.now();
        let client = &mut self.clients[index];
        match client.session.poll(now) {
            Some(Action::Send(bytes)) => {
                assert!(!client.closed && !bytes.is_empty());
                client.outbox.extend_from_slice(&bytes);
            }
            Some(Action::Call(call)) => {
                assert!(client.waits_for.is_none(), "two calls at a time");
                *client.calls.entry(name_of(&call)).or_default() += 1;
                self.requests += 1;
                let request = RequestId(self.requests);
                client.waits_for = Some(request);
                self.node.call(request, call);
            }
            Some(Action::Yield | Action::LoggedOut) => {}
            Some(Action::HandOver(_)) => unreachable!("nobody relays"),
            Some(Action::StartTls) => client.wants_tls = true,
            Some(Action::Note(note)) => client.notes.push(note),
            Some(Action::Close) => {
                assert!(!client.closed);
                client.closed = true;
            }
            None => {
                if !client.session.wants_input() || client.inbox.is_empty() {
                    return false;
                }
                let len = match &self.cut {
                    Cut::AtOnce => client.inbox.len(),
                    Cut::Sizes(sizes) => {
                        client.pieces += 1;
                        sizes[client.pieces % sizes.len()].clamp(1, client.inbox.len())
                    }
                };
                let piece: Vec<u8> = client.inbox.drain(..len).collect();
                client.session.on_bytes(now, &piece);
            }
        }
        true
    }

    /// Uploads that were neither finished nor given up, and blobs on the disk.
    pub(crate) fn left_over(&mut self) -> (usize, usize) {
        let disk = &mut self.node.disk;
        let blobs = disk.blob_list(None, 1000);
        // What cannot be aborted is not being written.
        let open = self.uploads.iter().filter(|upload| {
            blobs.iter().all(|blob| blob.name.upload != **upload)
                && disk.blob_abort(**upload).is_ok()
        });
        (open.count(), blobs.len())
    }

    /// The whole of a blob.
    pub(crate) fn blob(&mut self, blob: BlobName) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let read = Call::BlobRead {
                blob,
                offset: body.len() as u64,
                len: 1000,
            };
            match self.call(read) {
                Reply::Bytes(bytes) if bytes.is_empty() => return body,
                Reply::Bytes(bytes) => body.extend_from_slice(&bytes),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn tls() -> Tls {
    Tls {
        version: "TLSv1.3",
        cipher: "TLS_AES_256_GCM_SHA384".into(),
        binding: Binding::default(),
    }
}

fn name_of(call: &Call) -> &'static str {
    match call {
        Call::Authenticate(_) => "Authenticate",
        Call::MaySend { .. } => "MaySend",
        Call::Resolve { .. } => "Resolve",
        Call::BlobCreate(_) => "BlobCreate",
        Call::BlobWrite { .. } => "BlobWrite",
        Call::BlobFinish { .. } => "BlobFinish",
        Call::BlobAbort { .. } => "BlobAbort",
        Call::Accept(_) => "Accept",
        other => panic!("not a call of SMTP: {other:?}"),
    }
}
