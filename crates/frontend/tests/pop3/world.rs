//! Connections and a node: carries bytes, calls and answers between them, in any cut of the bytes.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use whimbrel_frontend::{
    pop3::{Limits, Pop3Session},
    session::{Action, Note, Peer, Session, Tls},
};
use whimbrel_service::{
    admin::{AdminCall, AdminReply},
    api::{
        AccountId, Call, Date, Event, Flags, MailboxCall, MailboxName, MessageId, NewMail, Reply,
        Row, SessionId,
    },
    content::Content,
    machine::RequestId,
    owner, queue,
};
use whimbrel_sim::node::{Node, Outcome, Speed, VERIFIER_PREFIX};

pub(crate) const ANNE: AccountId = AccountId([1; 16]);

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
    pub(crate) session: Pop3Session,
    inbox: Vec<u8>,
    pub(crate) outbox: Vec<u8>,
    pub(crate) notes: Vec<Note>,
    pub(crate) calls: BTreeMap<&'static str, usize>,
    pub(crate) closed: bool,
    wants_tls: bool,
    waits_for: Option<RequestId>,
    /// Does not read: after this many sends no more is taken.
    pub(crate) takes: usize,
    pub(crate) largest_send: usize,
    pieces: usize,
}

/// All of it.
pub(crate) struct World {
    pub(crate) node: Node,
    pub(crate) clients: BTreeMap<String, Client>,
    /// The client that a script speaks as.
    pub(crate) current: String,
    pub(crate) limits: Limits,
    answers: BTreeMap<RequestId, Reply>,
    admin: BTreeMap<RequestId, AdminReply>,
    cut: Cut,
    /// Sessions drop what they have read whenever that may be asked of them.
    pub(crate) sheds: bool,
    requests: u64,
}

pub(crate) fn name(text: &str) -> MailboxName {
    MailboxName::new(text).unwrap()
}

impl World {
    /// Anne, whose password is `secret`.
    pub(crate) fn new(cut: Cut) -> World {
        let mut node = Node::with(1, owner::Config::default(), queue::Limits::default());
        node.speed = Speed {
            sync_micros: (0, 0),
            lazy_micros: (0, 0),
            read_micros: (0, 0),
            verify_micros: (0, 0),
        };
        let mut world = World {
            node,
            clients: BTreeMap::new(),
            current: String::new(),
            limits: Limits::default(),
            answers: BTreeMap::new(),
            admin: BTreeMap::new(),
            cut,
            sheds: false,
            requests: 0,
        };
        world.account("anne@example.org", ANNE);
        world
    }

    pub(crate) fn account(&mut self, address: &str, account: AccountId) {
        self.requests += 1;
        let request = RequestId(self.requests);
        let call = AdminCall::AddAccount {
            address: address.into(),
            verifier: format!("{VERIFIER_PREFIX}secret"),
            scram: None,
            account,
        };
        self.node.admin(request, call);
        self.run();
        assert_eq!(self.admin.remove(&request), Some(AdminReply::Done));
    }

    /// Asks the service, beside all clients.
    pub(crate) fn call(&mut self, call: Call) -> Reply {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.node.call(request, call);
        self.run();
        self.answers.remove(&request).expect("an answer")
    }

    pub(crate) fn mailbox(&mut self, call: MailboxCall) -> Reply {
        self.call(Call::mailbox(ANNE, call))
    }

    /// Puts a message into a mailbox.
    pub(crate) fn put(&mut self, mailbox: &str, prefix: &[u8], body: &[u8]) -> u32 {
        self.put_sized(mailbox, prefix, body, prefix.len() + body.len())
    }

    /// One that is said to be so large.
    pub(crate) fn put_sized(
        &mut self,
        mailbox: &str,
        prefix: &[u8],
        body: &[u8],
        size: usize,
    ) -> u32 {
        let Reply::Upload(upload) = self.call(Call::BlobCreate(None)) else {
            panic!("no upload");
        };
        for bytes in body.chunks(60_000) {
            let bytes = bytes.to_vec().into();
            assert!(matches!(
                self.call(Call::BlobWrite { upload, bytes }),
                Reply::Done
            ));
        }
        let Reply::Blob(blob) = self.call(Call::BlobFinish { upload }) else {
            panic!("no blob");
        };
        let content = Content {
            prefix: prefix.to_vec().into(),
            summary: "none".into(),
        }
        .encode();
        let appended = self.mailbox(MailboxCall::Append {
            session: SessionId(0),
            name: name(mailbox),
            messages: vec![NewMail {
                flags: Flags::none(),
                date: Date {
                    seconds: 0,
                    zone_minutes: 0,
                },
                size: size as u32,
                open_end: !body.is_empty() && !body.ends_with(b"\r\n"),
                blob,
                content,
            }],
            replaces: None,
        });
        match appended {
            Reply::Appended { uids, .. } => uids[0],
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn rows(&mut self, mailbox: &str) -> Vec<Row> {
        let select = MailboxCall::Select {
            session: SessionId(1 << 40),
            name: name(mailbox),
            read_only: true,
        };
        let Reply::Selected(selected) = self.mailbox(select) else {
            panic!("{mailbox}");
        };
        let mut all = Vec::new();
        for uids in selected.uids.to_vec().chunks(1000) {
            let call = MailboxCall::Rows {
                name: name(mailbox),
                uids: uids.to_vec(),
            };
            let Reply::Rows(rows) = self.mailbox(call) else {
                panic!("{mailbox}");
            };
            all.extend(rows);
        }
        all
    }

    pub(crate) fn ids(&mut self, mailbox: &str) -> Vec<MessageId> {
        self.rows(mailbox).iter().map(|row| row.id).collect()
    }

    pub(crate) fn copy(&mut self, from: &str, uids: Vec<u32>, to: &str, remove: bool) {
        let copied = self.mailbox(MailboxCall::Copy {
            session: SessionId(0),
            name: name(from),
            uids,
            to: name(to),
            remove,
        });
        assert!(matches!(copied, Reply::Copied { .. }), "{copied:?}");
    }

    /// Another session removes messages.
    pub(crate) fn remove(&mut self, mailbox: &str, uids: Vec<u32>) {
        let removed = self.mailbox(MailboxCall::Remove {
            name: name(mailbox),
            uids,
        });
        assert!(matches!(removed, Reply::Done), "{removed:?}");
    }

    pub(crate) fn uid_validity(&mut self, mailbox: &str) -> u32 {
        match self.mailbox(MailboxCall::Status {
            name: name(mailbox),
        }) {
            Reply::Status(status) => status.uid_validity,
            other => panic!("{other:?}"),
        }
    }

    /// A new connection, which is then the current one.
    pub(crate) fn connect(&mut self, name: &str, tls: bool) {
        let peer = Peer {
            session: SessionId(self.clients.len() as u64 + 7),
            address: IpAddr::from([192, 0, 2, 7]),
            tls: tls.then(negotiated),
        };
        let client = Client {
            session: Pop3Session::new(peer, Arc::new(self.limits.clone()), self.node.now()),
            inbox: Vec::new(),
            outbox: Vec::new(),
            notes: Vec::new(),
            calls: BTreeMap::new(),
            closed: false,
            wants_tls: false,
            waits_for: None,
            takes: usize::MAX,
            largest_send: 0,
            pieces: 0,
        };
        self.clients.insert(name.to_owned(), client);
        name.clone_into(&mut self.current);
        self.run();
    }

    /// A new connection over TLS that has logged in.
    pub(crate) fn login(&mut self, name: &str) {
        self.connect(name, true);
        self.send(b"USER anne@example.org\r\nPASS secret\r\n");
        assert_eq!(
            self.told(),
            "+OK Whimbrel is ready\r\n+OK Now the password\r\n+OK Logged in\r\n"
        );
    }

    pub(crate) fn client(&mut self) -> &mut Client {
        self.clients.get_mut(&self.current).expect("a connection")
    }

    /// The current client sends, and everything happens that follows.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.client().inbox.extend_from_slice(bytes);
        self.run();
    }

    pub(crate) fn eof(&mut self) {
        let now = self.node.now();
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
        assert!(
            std::mem::take(&mut self.client().wants_tls),
            "TLS was not begun"
        );
        self.client().session.on_tls(now, negotiated());
        self.run();
    }

    /// Time goes on, and whoever has a deadline by then is told.
    pub(crate) fn wait(&mut self, seconds: u64) {
        let until = self.node.time() + seconds * 1_000_000;
        self.node.advance_to(until);
        let now = self.node.now();
        for client in self.clients.values_mut() {
            if client.session.deadline().is_some_and(|at| at <= until) {
                client.session.on_time(now);
            }
        }
        self.run();
    }

    /// The node loses what was not synced, and all connections.
    pub(crate) fn crash(&mut self, seed: u64) {
        self.node.crash(seed);
        self.clients.clear();
        self.run();
    }

    /// What the current client has been told since it was asked last.
    pub(crate) fn told(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.client().outbox)).unwrap()
    }

    /// Sends a line and gives the answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        assert_eq!(self.told(), "", "before {line}");
        self.send(format!("{line}\r\n").as_bytes());
        self.told()
    }

    /// Until nobody has anything to do.
    pub(crate) fn run(&mut self) {
        loop {
            self.turns();
            if self.node.is_quiet() || !self.node.step() {
                return;
            }
            self.carry();
        }
    }

    fn carry(&mut self) {
        while let Some(outcome) = self.node.outcome() {
            match outcome {
                Outcome::Reply(request, reply) => {
                    let now = self.node.now();
                    let waiting = |client: &&mut Client| client.waits_for == Some(request);
                    match self.clients.values_mut().find(waiting) {
                        Some(client) => {
                            client.waits_for = None;
                            client.session.on_reply(now, reply);
                        }
                        None => drop(self.answers.insert(request, reply)),
                    }
                }
                Outcome::Admin(request, reply) => drop(self.admin.insert(request, reply)),
                Outcome::Stopped(cause) => panic!("the node stopped: {cause}"),
                _ => {}
            }
        }
    }

    fn turns(&mut self) {
        let names: Vec<String> = self.clients.keys().cloned().collect();
        for name in names {
            while self.turn(&name) {}
        }
    }

    fn turn(&mut self, name: &str) -> bool {
        let now = self.node.now();
        let client = self.clients.get_mut(name).expect("a connection");
        if client.takes == 0 {
            return false;
        }
        match client.session.poll(now) {
            Some(Action::Send(bytes)) => {
                assert!(!client.closed && !bytes.is_empty());
                client.takes -= 1;
                client.largest_send = client.largest_send.max(bytes.len());
                client.outbox.extend_from_slice(&bytes);
                if self.sheds {
                    client.session.shed();
                }
            }
            Some(Action::Call(call)) => {
                assert!(client.waits_for.is_none(), "two calls at a time");
                *client.calls.entry(name_of(&call)).or_default() += 1;
                if self.sheds && !matches!(call, Call::Contents { .. }) {
                    client.session.shed();
                }
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
}

fn negotiated() -> Tls {
    Tls {
        version: "TLSv1.3",
        cipher: "TLS_AES_256_GCM_SHA384".into(),
        binding: Default::default(),
    }
}

fn name_of(call: &Call) -> &'static str {
    match call {
        Call::Authenticate(_) => "Authenticate",
        Call::Contents { .. } => "Contents",
        Call::BlobRead { .. } => "BlobRead",
        Call::BlobReadMany(_) => "BlobReadMany",
        Call::Mailbox { call, .. } => match call {
            MailboxCall::Select { .. } => "Select",
            MailboxCall::Unselect { .. } => "Unselect",
            MailboxCall::Rows { .. } => "Rows",
            MailboxCall::Flagged { .. } => "Flagged",
            MailboxCall::Remove { .. } => "Remove",
            other => panic!("not a call of POP3: {other:?}"),
        },
        other => panic!("not a call of POP3: {other:?}"),
    }
}
