//! Commands that change nothing: SELECT, FETCH, SEARCH, LIST, STATUS, IDLE, and several at once.

use whimbrel_e2e::{
    cache::Cache,
    imap::{Response, Status, quoted},
    model::{Account, Allowed, Mail, View},
};

use super::driver::Driver;

const ITEMS: &[&str] = &[
    "UID",
    "FLAGS",
    "RFC822.SIZE",
    "ENVELOPE",
    "BODYSTRUCTURE",
    "BODY",
    "INTERNALDATE",
    "BODY.PEEK[]",
    "BODY.PEEK[HEADER]",
    "BODY.PEEK[TEXT]",
    "BODY.PEEK[1]",
    "BODY.PEEK[]<0.10>",
    "BODY.PEEK[]<100.5000>",
    "BODY.PEEK[]<9999999.10>",
    "BODY.PEEK[HEADER.FIELDS (SUBJECT)]",
];

/// Of sequence number, UID and message.
type Test = Box<dyn Fn(u32, u32, &Mail) -> bool>;

/// A key of SEARCH and what it means.
struct Key {
    text: String,
    holds: Test,
}

impl Driver<'_> {
    pub(crate) fn select(&mut self, session: usize) {
        let read_only = self.random.one_in(4);
        let verb = if read_only { "EXAMINE" } else { "SELECT" };
        // Whatever becomes of it, what was selected before is not any more (RFC 9051, 6.3.2).
        self.sessions[session].view = None;
        if self.random.one_in(12) {
            let _ = self.must_not(session, &format!("{verb} \"not there\""));
            return;
        }
        let mailbox = self.any_mailbox();
        let mut command = format!("{verb} {}", quoted(&mailbox));
        let qresync = self.sessions[session].qresync;
        let cache = self.take_cache(&mailbox).filter(|_| qresync);
        if let Some(cache) = &cache {
            let known = self.random.one_in(2);
            command = format!("{command} {}", cache.parameter(known));
        }
        let reply = self.must(session, &command, &Allowed::default());
        if let Some(Err(what)) = cache.map(|cache| cache.resync(&reply, &self.account)) {
            self.wrong(&command, &format!("{what}\n{reply:?}"));
        }
        let view = View::new(&self.account, &mailbox, read_only, qresync);
        if reply.exists() != u32::try_from(view.uids.len()).ok() {
            self.wrong(
                &command,
                &format!("{} messages are there: {reply:?}", view.uids.len()),
            );
        }
        let (Some(validity), Some(next)) = (
            reply.code_number("UIDVALIDITY"),
            reply.code_number("UIDNEXT"),
        ) else {
            self.wrong(&command, &format!("no UIDVALIDITY or UIDNEXT: {reply:?}"));
        };
        let last = view.uids.last().copied().unwrap_or(0);
        let told_before = self.account.mailbox(&mailbox).next;
        if next <= last || next < told_before {
            self.wrong(
                &command,
                &format!("UIDNEXT {next}, told was {told_before}, the last UID is {last}"),
            );
        }
        if let Err(what) = self.account.check_validity(&mailbox, validity) {
            self.wrong(&command, &what);
        }
        if reply.code != if read_only { "READ-ONLY" } else { "READ-WRITE" } {
            self.wrong(&command, &format!("{reply:?}"));
        }
        self.account.mailbox_mut(&mailbox).next = next;
        self.sessions[session].view = Some(view);
        // A client keeps what it was told, and comes back to it when much has happened.
        let modseq = reply.code("HIGHESTMODSEQ");
        match modseq.and_then(|modseq| modseq.parse().ok()) {
            Some(modseq) if self.random.one_in(2) => {
                let cache = Cache::of(&self.account, &mailbox, validity, modseq);
                self.caches.push(cache);
            }
            Some(_) => {}
            None => self.wrong(&command, &format!("no HIGHESTMODSEQ: {reply:?}")),
        }
    }

    /// One of the caches of a mailbox; it is kept or not.
    fn take_cache(&mut self, mailbox: &str) -> Option<Cache> {
        const CACHES_MAX: usize = 30;
        if self.caches.len() > CACHES_MAX {
            let at = self.random.below(self.caches.len());
            self.caches.swap_remove(at);
        }
        let of: Vec<Cache> = self
            .caches
            .iter()
            .filter(|cache| cache.mailbox == mailbox)
            .cloned()
            .collect();
        self.random.pick(&of).cloned()
    }

    pub(crate) fn fetch(&mut self, session: usize) {
        let by_uid = self.random.one_in(2);
        let Some(view) = self.sessions[session].view.clone() else {
            let _ = self.must_not(session, "FETCH 1 FLAGS");
            return;
        };
        if view.uids.is_empty() {
            return self.noop(session);
        }
        let (chosen, set) = self.choose(session, by_uid);
        let mut items: Vec<&str> = (0..=self.random.below(3))
            .map(|_| *self.random.pick(ITEMS).unwrap())
            .collect();
        items.dedup();
        let mut allowed = Allowed {
            no_expunge: !by_uid,
            ..Allowed::default()
        };
        // A body that is not peeked at becomes \Seen (RFC 9051, 6.4.5).
        if self.random.one_in(6) {
            items.push("BODY[]");
            let mails = &mut self.account.mailbox_mut(&view.mailbox).mails;
            for uid in &chosen {
                if let Some(mail) = mails.get_mut(uid) {
                    allowed.before.insert(*uid, mail.flags.clone());
                    if !view.read_only {
                        mail.flags.insert("\\Seen".to_owned());
                    }
                }
            }
        }
        let verb = if by_uid { "UID FETCH" } else { "FETCH" };
        let command = format!("{verb} {set} ({})", items.join(" "));
        let reply = self.command(session, &command, &allowed);
        let mails = &self.account.mailbox(&view.mailbox).mails;
        let here: Vec<u32> = chosen
            .iter()
            .copied()
            .filter(|uid| mails.contains_key(uid))
            .collect();
        // RFC 2180, 4.1: of messages expunged elsewhere NO is a way to tell.
        if reply.status == Status::Bad || (reply.status == Status::No && here.len() == chosen.len())
        {
            self.wrong(&command, &format!("{reply:?}"));
        }
        self.must_have(&command, &view, &reply.untagged, &here, &items, by_uid);
    }

    /// Every message asked for was told, with every item.
    fn must_have(
        &self,
        command: &str,
        view: &View,
        untagged: &[Response],
        here: &[u32],
        items: &[&str],
        by_uid: bool,
    ) {
        for uid in here {
            // Only UID commands may tell EXPUNGE, which moves numbers; their answers have the UID.
            let number = view
                .uids
                .iter()
                .position(|of| of == uid)
                .map_or(0, |at| at + 1);
            let told: Vec<&str> = untagged
                .iter()
                .filter_map(|response| match response {
                    Response::Fetch(_, fetched) if by_uid => {
                        (fetched.uid() == Some(*uid)).then_some(fetched)
                    }
                    Response::Fetch(of, fetched) => (*of as usize == number).then_some(fetched),
                    _ => None,
                })
                .flat_map(|fetched| fetched.items.iter().map(|(name, _)| name.as_str()))
                .collect();
            for item in items {
                let mut name = item.replace(".PEEK", "");
                // BODY[]<0.10> is answered as BODY[]<0>.
                if let Some((start, _)) = name.rsplit_once('.').filter(|_| name.ends_with('>')) {
                    name = format!("{start}>");
                }
                if !told.contains(&name.as_str()) {
                    self.wrong(command, &format!("no {name} of UID {uid}: {untagged:?}"));
                }
            }
        }
    }

    pub(crate) fn search(&mut self, session: usize) {
        if self.sessions[session].view.is_none() {
            let _ = self.must_not(session, "SEARCH ALL");
            return;
        }
        // What it finds is certain when the session knows everything.
        self.noop(session);
        let view = self.sessions[session].view.clone().unwrap();
        let by_uid = self.random.one_in(2);
        let mut keys: Vec<Key> = (0..=self.random.below(2))
            .map(|_| self.key(session, &view, 0))
            .collect();
        let text: Vec<String> = keys.iter().map(|key| key.text.clone()).collect();
        let returned = *self
            .random
            .pick(&[
                "",
                "",
                "RETURN () ",
                "RETURN (ALL) ",
                "RETURN (COUNT ALL) ",
                "RETURN (MIN MAX) ",
            ])
            .unwrap();
        let verb = if by_uid { "UID SEARCH" } else { "SEARCH" };
        let command = format!("{verb} {returned}{}", text.join(" "));
        let allowed = Allowed {
            no_expunge: !by_uid,
            ..Allowed::default()
        };
        let reply = self.must(session, &command, &allowed);
        let mails = &self.account.mailbox(&view.mailbox).mails;
        let mut expected = Vec::new();
        for (at, uid) in view.uids.iter().enumerate() {
            let number = u32::try_from(at + 1).unwrap();
            let mail = &mails[uid];
            if keys.iter_mut().all(|key| (key.holds)(number, *uid, mail)) {
                expected.push(if by_uid { *uid } else { number });
            }
        }
        if returned.contains("MIN") {
            let told = |name: &str| {
                let nodes = reply
                    .data("ESEARCH")
                    .first()
                    .map(|nodes| nodes.to_vec())
                    .unwrap_or_default();
                let at = nodes.iter().position(|node| node.is(name))?;
                nodes.get(at + 1)?.text().parse::<u32>().ok()
            };
            if (told("MIN"), told("MAX")) != (expected.first().copied(), expected.last().copied()) {
                self.wrong(
                    &command,
                    &format!("{reply:?} instead of MIN and MAX of {expected:?}"),
                );
            }
        } else if reply.found() != expected {
            self.wrong(
                &command,
                &format!("{:?} instead of {expected:?}", reply.found()),
            );
        }
    }

    fn key(&mut self, session: usize, view: &View, depth: usize) -> Key {
        let flag = |text: &str, flag: &'static str, set: bool| Key {
            text: text.to_owned(),
            holds: Box::new(move |_, _, mail| mail.flags.contains(flag) == set),
        };
        match self.random.below(if depth < 3 { 14 } else { 11 }) {
            0 => Key {
                text: "ALL".to_owned(),
                holds: Box::new(|_, _, _| true),
            },
            1 => flag("SEEN", "\\Seen", true),
            2 => flag("UNSEEN", "\\Seen", false),
            3 => flag("FLAGGED", "\\Flagged", true),
            4 => flag("KEYWORD kw-a", "kw-a", true),
            5 => flag("UNKEYWORD kw-b", "kw-b", false),
            6 => {
                let size = self.random.below(3000);
                if self.random.one_in(2) {
                    Key {
                        text: format!("LARGER {size}"),
                        holds: Box::new(move |_, _, mail| mail.bytes().len() > size),
                    }
                } else {
                    Key {
                        text: format!("SMALLER {size}"),
                        holds: Box::new(move |_, _, mail| mail.bytes().len() < size),
                    }
                }
            }
            7 => {
                let (chosen, set) = self.choose(session, true);
                if view.uids.is_empty() {
                    return Key {
                        text: "UNDELETED".to_owned(),
                        holds: Box::new(|_, _, mail| !mail.flags.contains("\\Deleted")),
                    };
                }
                Key {
                    text: format!("UID {set}"),
                    holds: Box::new(move |_, uid, _| chosen.contains(&uid)),
                }
            }
            8 => {
                if view.uids.is_empty() {
                    return Key {
                        text: "DELETED".to_owned(),
                        holds: Box::new(|_, _, mail| mail.flags.contains("\\Deleted")),
                    };
                }
                let (chosen, set) = self.choose(session, false);
                Key {
                    text: set,
                    holds: Box::new(move |_, uid, _| chosen.contains(&uid)),
                }
            }
            9 | 10 => {
                let names: Vec<String> = self
                    .account
                    .mailbox(&view.mailbox)
                    .mails
                    .values()
                    .map(|mail| mail.name.clone())
                    .collect();
                let name = self
                    .random
                    .pick(&names)
                    .cloned()
                    .unwrap_or_else(|| "m-0-0".to_owned());
                // A substring, as IMAP asks for: m-1 is in m-12, too.
                let (wanted, whole) = (name.clone(), self.random.one_in(2));
                let fields = [
                    "SUBJECT",
                    "HEADER X-Name",
                    "HEADER Message-ID",
                    "TEXT",
                    "BODY",
                ];
                let field = *self.random.pick(&fields).unwrap();
                let wanted = if whole && field == "TEXT" {
                    format!("end of {wanted}")
                } else {
                    wanted
                };
                let inside = wanted.clone();
                let holds = move |_: u32, _: u32, mail: &Mail| {
                    let bytes = mail.bytes();
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
                    match field {
                        "TEXT" => text.contains(&inside),
                        "BODY" => body.contains(&inside),
                        _ => head.lines().any(|line| line.contains(&inside)),
                    }
                };
                Key {
                    text: format!("{field} {}", quoted(&wanted)),
                    holds: Box::new(holds),
                }
            }
            11 => {
                let key = self.key(session, view, depth + 1);
                Key {
                    text: format!("NOT {}", key.text),
                    holds: Box::new(move |number, uid, mail| !(key.holds)(number, uid, mail)),
                }
            }
            12 => {
                let (a, b) = (
                    self.key(session, view, depth + 1),
                    self.key(session, view, depth + 1),
                );
                let text = format!("OR {} {}", a.text, b.text);
                Key {
                    text,
                    holds: Box::new(move |number, uid, mail| {
                        (a.holds)(number, uid, mail) || (b.holds)(number, uid, mail)
                    }),
                }
            }
            _ => {
                let (a, b) = (
                    self.key(session, view, depth + 1),
                    self.key(session, view, depth + 1),
                );
                let text = format!("({} {})", a.text, b.text);
                Key {
                    text,
                    holds: Box::new(move |number, uid, mail| {
                        (a.holds)(number, uid, mail) && (b.holds)(number, uid, mail)
                    }),
                }
            }
        }
    }

    pub(crate) fn list_and_status(&mut self, session: usize) {
        let names = self.list();
        if !names.iter().eq(self.account.mailboxes.keys()) {
            self.wrong(
                "LIST",
                &format!("{names:?} instead of {:?}", self.account.mailboxes.keys()),
            );
        }
        let mailbox = self.any_mailbox();
        let command = format!(
            "STATUS {} (MESSAGES UNSEEN DELETED SIZE UIDNEXT UIDVALIDITY)",
            quoted(&mailbox)
        );
        let reply = self.must(session, &command, &Allowed::default());
        let figures = reply.status_figures();
        if let Err(what) = figures_hold(&mut self.account, &mailbox, &figures) {
            self.wrong(&command, &format!("{what}: {figures:?}"));
        }
    }

    /// IDLE in one session, APPEND in another: the first is told without having asked (RFC 9051, 6.3.13).
    pub(crate) fn idle(&mut self, session: usize) {
        self.noop(session);
        let tag = {
            self.note(session, "IDLE");
            self.sessions[session]
                .imap
                .send(b"IDLE")
                .unwrap_or_else(|trouble| self.wrong("IDLE", &format!("{trouble:?}")))
        };
        let watched = self.sessions[session]
            .view
            .as_ref()
            .map(|view| view.mailbox.clone());
        let mut told = Vec::new();
        self.read_until(session, &mut told, |response| {
            matches!(response, Response::Continue(_))
        });
        if let Some(mailbox) = watched {
            let other = (session + 1) % self.sessions.len();
            self.append_to(other, &mailbox);
            self.read_until(session, &mut told, |response| {
                matches!(response, Response::Exists(_))
            });
        }
        let sent = self.sessions[session].imap.wire.send(b"DONE\r\n");
        sent.unwrap_or_else(|trouble| self.wrong("DONE", &format!("{trouble:?}")));
        let reply = self.sessions[session].imap.reply(&tag);
        let reply = self.judge(session, "IDLE", reply, &Allowed::default());
        if reply.status != Status::Ok {
            self.wrong("IDLE", &format!("{reply:?}"));
        }
    }

    fn read_until(
        &mut self,
        session: usize,
        told: &mut Vec<Response>,
        last: impl Fn(&Response) -> bool,
    ) {
        loop {
            let response = self.sessions[session].imap.response();
            let response = response.unwrap_or_else(|trouble| {
                self.wrong("IDLE", &format!("{trouble:?} after {told:?}"))
            });
            let is_last = last(&response);
            if !matches!(response, Response::Continue(_))
                && let Some(mut view) = self.sessions[session].view.take()
            {
                if let Err(what) = view.hear(&response, &self.account, &Allowed::default()) {
                    self.wrong("IDLE", &what);
                }
                self.sessions[session].view = Some(view);
            }
            told.push(response);
            if is_last {
                return;
            }
        }
    }

    /// Several commands at once: each gets its answer, in order.
    pub(crate) fn pipeline(&mut self, session: usize) {
        let mut sent = Vec::new();
        for _ in 0..=self.random.below(8) {
            let selected = self.sessions[session]
                .view
                .as_ref()
                .is_some_and(|view| !view.uids.is_empty());
            let command = match self.random.below(if selected { 5 } else { 3 }) {
                0 => "NOOP",
                1 => "CAPABILITY",
                2 => "STATUS Sent (MESSAGES)",
                // By UID: an answer before it may tell EXPUNGE.
                3 => "UID FETCH 1:* (FLAGS BODY.PEEK[HEADER])",
                _ => "UID SEARCH ALL",
            };
            self.note(session, command);
            let tag = self.sessions[session].imap.send(command.as_bytes());
            let tag = tag.unwrap_or_else(|trouble| self.wrong(command, &format!("{trouble:?}")));
            sent.push((tag, command));
        }
        for (tag, command) in sent {
            let reply = self.sessions[session].imap.reply(&tag);
            let reply = self.judge(session, command, reply, &Allowed::default());
            if reply.status != Status::Ok {
                self.wrong(command, &format!("{reply:?}"));
            }
        }
    }
}

fn figures_hold(
    account: &mut Account,
    name: &str,
    figures: &std::collections::BTreeMap<String, u64>,
) -> Result<(), String> {
    let mailbox = account.mailbox(name);
    let mails: Vec<&Mail> = mailbox.mails.values().collect();
    let with = |flag: &str| {
        mails
            .iter()
            .filter(|mail| mail.flags.contains(flag))
            .count() as u64
    };
    let expected = [
        ("MESSAGES", mails.len() as u64),
        ("UNSEEN", mails.len() as u64 - with("\\Seen")),
        ("DELETED", with("\\Deleted")),
        (
            "SIZE",
            mails.iter().map(|mail| mail.bytes().len() as u64).sum(),
        ),
    ];
    for (figure, value) in expected {
        if figures.get(figure) != Some(&value) {
            return Err(format!("{figure} of {name} is {value}"));
        }
    }
    let last = mailbox.mails.keys().next_back().copied().unwrap_or(0);
    let next = figures
        .get("UIDNEXT")
        .and_then(|next| u32::try_from(*next).ok())
        .unwrap_or(0);
    if next <= last || next < mailbox.next {
        return Err(format!(
            "UIDNEXT of {name} was {}, the last UID is {last}",
            mailbox.next
        ));
    }
    account.mailbox_mut(name).next = next;
    let validity = figures
        .get("UIDVALIDITY")
        .and_then(|validity| u32::try_from(*validity).ok())
        .unwrap_or(0);
    account.check_validity(name, validity)
}
