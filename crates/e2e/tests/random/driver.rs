//! The sessions of one account, and the judgement of every reply.

use std::collections::BTreeMap;

use whimbrel_e2e::{
    cache::Cache,
    imap::{Imap, Node, Reply, Status, quoted},
    message,
    model::{Account, Allowed, Mail, Mailbox, View},
    random::Random,
    server::Server,
    wire::{Result, Trouble},
};

const SESSIONS: usize = 3;

/// How many commands of the past a failure tells.
const PAST_MAX: usize = 40;

/// One session.
pub(crate) struct Session {
    pub(crate) imap: Imap,
    pub(crate) view: Option<View>,
    /// ENABLE QRESYNC was given.
    pub(crate) qresync: bool,
}

/// All sessions of an account.
pub(crate) struct Driver<'a> {
    server: &'a Server,
    credentials: (&'static str, &'static str),
    pub(crate) random: Random,
    pub(crate) account: Account,
    pub(crate) sessions: Vec<Session>,
    /// What clients have kept of mailboxes.
    pub(crate) caches: Vec<Cache>,
    past: Vec<String>,
    next_name: usize,
}

impl<'a> Driver<'a> {
    /// Sessions on an account that has nothing but its default mailboxes.
    pub(crate) fn new(
        server: &'a Server,
        credentials: (&'static str, &'static str),
        random: Random,
    ) -> Driver<'a> {
        let mut driver = Driver::with(server, credentials, random, Account::default());
        for name in driver.list() {
            driver.account.mailboxes.insert(name, Mailbox::default());
        }
        assert!(driver.account.mailboxes.contains_key("INBOX"));
        driver.compare_all();
        driver
    }

    /// Sessions on an account of which this is true.
    pub(crate) fn with(
        server: &'a Server,
        credentials: (&'static str, &'static str),
        random: Random,
        account: Account,
    ) -> Driver<'a> {
        let mut driver = Driver {
            server,
            credentials,
            random,
            account,
            sessions: Vec::new(),
            caches: Vec::new(),
            past: Vec::new(),
            next_name: 0,
        };
        for _ in 0..SESSIONS {
            let session = driver.connect();
            driver.sessions.push(session);
        }
        driver
    }

    pub(crate) fn into_account(self) -> Account {
        self.account
    }

    /// Carries out that many commands, and compares everything now and then.
    pub(crate) fn run(&mut self, commands: usize) {
        const COMPARE_EVERY: usize = 1000;
        for n in 1..=commands {
            let session = self.random.below(SESSIONS);
            self.step(session);
            if n % COMPARE_EVERY == 0 || n == commands {
                self.compare_all();
            }
        }
    }

    fn step(&mut self, session: usize) {
        match self.random.below(40) {
            0..=4 => self.noop(session),
            5..=9 => self.append(session),
            10..=13 => self.select(session),
            14..=18 => self.fetch(session),
            19..=22 => self.search(session),
            23..=26 => self.store(session),
            27..=28 => self.copy(session),
            29..=30 => self.expunge(session),
            31 => self.close(session),
            32 => self.change_mailboxes(session),
            33 => self.list_and_status(session),
            34..=36 => self.invalid(session),
            37 => self.idle(session),
            38 => self.cut(session),
            _ => self.pipeline(session),
        }
    }

    /// A session that is logged in.
    pub(crate) fn connect(&mut self) -> Session {
        let mut imap = self
            .server
            .login(self.credentials)
            .unwrap_or_else(|trouble| self.wrong("login", &format!("{trouble:?}")));
        if self.random.one_in(3) {
            let reply = imap.command("ENABLE IMAP4rev2");
            let reply =
                reply.unwrap_or_else(|trouble| self.wrong("ENABLE", &format!("{trouble:?}")));
            assert_eq!(reply.status, Status::Ok, "{reply:?}");
        }
        let qresync = self.random.one_in(2);
        if qresync {
            let reply = imap.command("ENABLE QRESYNC");
            let reply =
                reply.unwrap_or_else(|trouble| self.wrong("ENABLE", &format!("{trouble:?}")));
            assert_eq!(reply.data("ENABLED").len(), 1, "{reply:?}");
        }
        Session {
            imap,
            view: None,
            qresync,
        }
    }

    /// Ends a session and begins another in its place.
    pub(crate) fn reconnect(&mut self, session: usize) {
        self.sessions[session] = self.connect();
    }

    /// Ends the test, and says how it came to this.
    pub(crate) fn wrong(&self, command: &str, what: &str) -> ! {
        panic!(
            "{}: {command}: {what}\nbefore it:\n  {}",
            self.credentials.0,
            self.past.join("\n  ")
        );
    }

    pub(crate) fn note(&mut self, session: usize, command: &str) {
        let mut shown: String = command
            .chars()
            .take(200)
            .map(|c| if c.is_control() { '.' } else { c })
            .collect();
        shown.insert_str(0, &format!("{session}: "));
        self.past.push(shown);
        if self.past.len() > PAST_MAX {
            self.past.remove(0);
        }
    }

    /// A name that was not used yet.
    pub(crate) fn name(&mut self) -> String {
        self.next_name += 1;
        format!("m-{}", self.next_name)
    }

    /// Carries out a command whose effect is already in the account; judges all it brings.
    pub(crate) fn command(&mut self, session: usize, command: &str, allowed: &Allowed) -> Reply {
        self.raw_command(session, command.as_bytes(), allowed)
    }

    pub(crate) fn raw_command(
        &mut self,
        session: usize,
        command: &[u8],
        allowed: &Allowed,
    ) -> Reply {
        let shown = String::from_utf8_lossy(command).into_owned();
        self.note(session, &shown);
        let reply = self.sessions[session].imap.raw_command(command);
        self.judge(session, &shown, reply, allowed)
    }

    pub(crate) fn judge(
        &mut self,
        session: usize,
        command: &str,
        reply: Result<Reply>,
        allowed: &Allowed,
    ) -> Reply {
        let reply = reply.unwrap_or_else(|trouble| self.wrong(command, &format!("{trouble:?}")));
        self.hear(session, command, &reply, allowed);
        reply
    }

    pub(crate) fn hear(&mut self, session: usize, command: &str, reply: &Reply, allowed: &Allowed) {
        let Some(mut view) = self.sessions[session].view.take() else {
            return;
        };
        for response in &reply.untagged {
            if let Err(what) = view.hear(response, &self.account, allowed) {
                self.wrong(command, &format!("{what}\n{reply:?}"));
            }
        }
        self.sessions[session].view = Some(view);
    }

    /// The same, of a command that must be carried out.
    pub(crate) fn must(&mut self, session: usize, command: &str, allowed: &Allowed) -> Reply {
        let reply = self.command(session, command, allowed);
        if reply.status != Status::Ok {
            self.wrong(command, &format!("{reply:?}"));
        }
        reply
    }

    /// The same, of a command that must be refused.
    pub(crate) fn must_not(&mut self, session: usize, command: &str) -> Reply {
        let reply = self.command(session, command, &Allowed::default());
        if reply.status == Status::Ok {
            self.wrong(command, &format!("{reply:?}"));
        }
        reply
    }

    /// Lets a session know everything.
    pub(crate) fn noop(&mut self, session: usize) {
        let _ = self.must(session, "NOOP", &Allowed::default());
        if let Some(view) = &self.sessions[session].view
            && let Err(what) = view.knows_all(&self.account)
        {
            self.wrong("NOOP", &what);
        }
    }

    /// The names that exist.
    pub(crate) fn list(&mut self) -> Vec<String> {
        let reply = self.must(0, "LIST \"\" *", &Allowed::default());
        let mut names = Vec::new();
        for nodes in reply.data("LIST") {
            let (Some(Node::List(attributes)), Some(name)) = (nodes.first(), nodes.get(2)) else {
                self.wrong("LIST", &format!("{nodes:?}"))
            };
            if !attributes
                .iter()
                .any(|attribute| attribute.is("\\NonExistent") || attribute.is("\\Noselect"))
            {
                names.push(name.text());
            }
        }
        names.sort();
        names
    }

    /// Another session looks at everything; what is true must be there, byte for byte.
    pub(crate) fn compare_all(&mut self) {
        let names = self.list();
        if !names.iter().eq(self.account.mailboxes.keys()) {
            self.wrong(
                "LIST",
                &format!("{names:?} instead of {:?}", self.account.mailboxes.keys()),
            );
        }
        for name in names {
            let seen = self.look(&name);
            if seen != self.account.mailbox(&name).mails {
                self.wrong(
                    "compare",
                    &format!(
                        "{name}: {seen:#?}\ninstead of {:#?}",
                        self.account.mailbox(&name).mails
                    ),
                );
            }
        }
        for session in 0..SESSIONS {
            self.noop(session);
        }
    }

    /// What is in a mailbox, seen by a session of its own.
    pub(crate) fn look(&mut self, name: &str) -> BTreeMap<u32, Mail> {
        let looked = self
            .server
            .login(self.credentials)
            .and_then(|mut imap| self.server.contents(&mut imap, name));
        let contents = looked.unwrap_or_else(|trouble| {
            self.wrong(
                &format!("EXAMINE {}", quoted(name)),
                &format!("{trouble:?}"),
            )
        });
        let mut mails = BTreeMap::new();
        let mut cached = Vec::new();
        for at in contents.messages {
            let Some(of) = message::name_of(&at.bytes) else {
                self.wrong(
                    "FETCH",
                    &format!("{name}: UID {}: no message of ours", at.uid),
                )
            };
            // The size a message was made with is not its length; both follow from one another by trying what we know.
            let size = self.size_of(&of, &at.bytes);
            cached.push((at.uid, of.clone()));
            mails.insert(
                at.uid,
                Mail {
                    name: of,
                    size,
                    flags: at.flags.into_iter().collect(),
                },
            );
        }
        let judged = self.account.check_validity(name, contents.validity);
        if let Err(what) = judged.and_then(|()| {
            self.account
                .witness
                .look(name, contents.validity, contents.next, &cached)
        }) {
            self.wrong(&format!("look at {name}"), &what);
        }
        if let Some(mailbox) = self.account.mailboxes.get_mut(name) {
            mailbox.next = mailbox.next.max(contents.next);
        }
        mails
    }

    /// The size behind a name; it is part of it (see [`super::writes`]).
    fn size_of(&self, name: &str, bytes: &[u8]) -> usize {
        let size = super::writes::size_in(name);
        if message::bytes(name, size) != bytes {
            self.wrong("FETCH", &format!("{name}: other bytes than were written"));
        }
        size
    }

    /// Some UIDs that a session knows, those of messages that are gone included; and as a set, by sequence number or by UID.
    pub(crate) fn choose(&mut self, session: usize, by_uid: bool) -> (Vec<u32>, String) {
        let uids = self.sessions[session]
            .view
            .as_ref()
            .map(|view| view.uids.clone())
            .unwrap_or_default();
        if uids.is_empty() {
            return (
                Vec::new(),
                if by_uid {
                    "1:5".to_owned()
                } else {
                    "1".to_owned()
                },
            );
        }
        let mut parts = Vec::new();
        let mut chosen = std::collections::BTreeSet::new();
        for _ in 0..=self.random.below(3) {
            let (a, b) = (self.random.below(uids.len()), self.random.below(uids.len()));
            let number = |at: usize| {
                if by_uid {
                    uids[at].to_string()
                } else {
                    (at + 1).to_string()
                }
            };
            match self.random.below(4) {
                0 => {
                    parts.push(number(a));
                    chosen.insert(uids[a]);
                }
                1 => {
                    parts.push(format!("{}:*", number(a)));
                    chosen.extend(&uids[a..]);
                }
                2 => {
                    parts.push("*".to_owned());
                    chosen.insert(uids[uids.len() - 1]);
                }
                // Also the wrong way round: "2:4" and "4:2" are equivalent (RFC 9051, 9, seq-range).
                _ => {
                    parts.push(format!("{}:{}", number(a), number(b)));
                    chosen.extend(&uids[a.min(b)..=a.max(b)]);
                }
            }
        }
        (chosen.into_iter().collect(), parts.join(","))
    }

    /// Whether a session other than this one has a mailbox, or one below it, selected.
    pub(crate) fn is_watched(&self, mailbox: &str) -> bool {
        let below = format!("{mailbox}/");
        self.sessions
            .iter()
            .filter_map(|session| session.view.as_ref())
            .any(|view| view.mailbox == mailbox || view.mailbox.starts_with(&below))
    }

    /// A mailbox that exists.
    pub(crate) fn any_mailbox(&mut self) -> String {
        // Mostly the same few, so that sessions meet.
        if self.random.one_in(2) {
            return "INBOX".to_owned();
        }
        let names: Vec<String> = self.account.mailboxes.keys().cloned().collect();
        self.random.pick(&names).cloned().unwrap_or_default()
    }

    /// Reads until the end of a session, which may have been cut by either side.
    pub(crate) fn drain(&mut self, session: usize) {
        if let Err(trouble @ (Trouble::Silent | Trouble::Protocol(_))) =
            self.sessions[session].imap.wire.drain()
        {
            self.wrong("a cut connection", &format!("{trouble:?}"));
        }
    }
}
