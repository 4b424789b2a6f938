//! Commands that change messages: APPEND, STORE, COPY, MOVE, EXPUNGE, CLOSE, and connections cut amid them.

use std::collections::BTreeSet;

use whimbrel_e2e::{
    imap::{Reply, Response, Status, append_command, parse::set, quoted},
    model::{Allowed, Mail},
};

use super::driver::Driver;

const FLAGS: &[&str] = &[
    "\\Seen",
    "\\Flagged",
    "\\Answered",
    "\\Deleted",
    "\\Draft",
    "kw-a",
    "kw-b",
];

/// Above this many messages a mailbox gets no more: a run's length must not decide how slow it is.
const MESSAGES_MAX: usize = 40;

/// The size that stands in a name: `m-12-1500`.
pub(crate) fn size_in(name: &str) -> usize {
    name.rsplit('-')
        .next()
        .and_then(|size| size.parse().ok())
        .unwrap_or(0)
}

impl Driver<'_> {
    fn new_mail(&mut self) -> Mail {
        let size = if self.random.one_in(30) {
            20_000 + self.random.below(200_000)
        } else {
            250 + self.random.below(2500)
        };
        let name = format!("{}-{size}", self.name());
        Mail {
            name,
            size,
            flags: self.flags(),
        }
    }

    fn flags(&mut self) -> BTreeSet<String> {
        FLAGS
            .iter()
            .filter(|_| self.random.one_in(5))
            .map(|flag| (*flag).to_owned())
            .collect()
    }

    pub(crate) fn append(&mut self, session: usize) {
        if self.random.one_in(15) {
            let reply = self.must_not(session, "APPEND \"not there\" {3+}\r\nabc");
            // RFC 9051, 6.3.12: "a server ... MUST send the response code TRYCREATE".
            if reply.code != "TRYCREATE" {
                self.wrong("APPEND to what is not there", &format!("{reply:?}"));
            }
            return;
        }
        let mailbox = self.any_mailbox();
        self.append_to(session, &mailbox);
    }

    pub(crate) fn append_to(&mut self, session: usize, mailbox: &str) {
        let mail = self.new_mail();
        let flags: Vec<&str> = mail.flags.iter().map(String::as_str).collect();
        let command = append_command(mailbox, &flags, &mail.bytes());
        let shown = format!("APPEND {mailbox} {} {flags:?}", mail.name);
        self.note(session, &shown);
        let reply = self.sessions[session].imap.raw_command(&command);
        let reply = reply.unwrap_or_else(|trouble| self.wrong(&shown, &format!("{trouble:?}")));
        let code = reply.code("APPENDUID").and_then(|code| {
            let (validity, uid) = code.split_once(' ')?;
            Some((validity.parse().ok()?, uid.parse().ok()?))
        });
        let Some((validity, uid)) = code.filter(|_| reply.status == Status::Ok) else {
            self.wrong(&shown, &format!("{reply:?}"))
        };
        if let Err(what) = self.account.add(mailbox, validity, uid, mail) {
            self.wrong(&shown, &what);
        }
        self.hear(session, &shown, &reply, &Allowed::default());
        if self.account.mailbox(mailbox).mails.len() > MESSAGES_MAX {
            self.thin_out(session, mailbox);
        }
    }

    /// Removes half of a mailbox that has grown large.
    fn thin_out(&mut self, session: usize, mailbox: &str) {
        let _ = self.must_select(session, mailbox);
        let view = self.sessions[session].view.clone().unwrap();
        let half = view.uids[..view.uids.len() / 2].to_vec();
        for uid in &half {
            self.account
                .mailbox_mut(mailbox)
                .mails
                .get_mut(uid)
                .unwrap()
                .flags
                .insert("\\Deleted".to_owned());
        }
        let set = format!("{}:{}", half[0], half[half.len() - 1]);
        let _ = self.must(
            session,
            &format!("UID STORE {set} +FLAGS.SILENT (\\Deleted)"),
            &Allowed::default(),
        );
        self.account
            .mailbox_mut(mailbox)
            .mails
            .retain(|uid, _| !half.contains(uid));
        let _ = self.must(session, &format!("UID EXPUNGE {set}"), &Allowed::default());
        self.noop(session);
    }

    fn must_select(&mut self, session: usize, mailbox: &str) -> Reply {
        self.sessions[session].view = None;
        let reply = self.must(
            session,
            &format!("SELECT {}", quoted(mailbox)),
            &Allowed::default(),
        );
        self.sessions[session].view = Some(whimbrel_e2e::model::View::new(
            &self.account,
            mailbox,
            false,
            self.sessions[session].qresync,
        ));
        reply
    }

    pub(crate) fn store(&mut self, session: usize) {
        let by_uid = self.random.one_in(2);
        let Some(view) = self.sessions[session].view.clone() else {
            let _ = self.must_not(session, "STORE 1 +FLAGS (\\Seen)");
            return;
        };
        if view.uids.is_empty() {
            return self.noop(session);
        }
        let (chosen, set) = self.choose(session, by_uid);
        let (kind, flags, silent) = (self.random.below(3), self.flags(), self.random.one_in(3));
        let words: Vec<&str> = flags.iter().map(String::as_str).collect();
        let item = format!(
            "{}FLAGS{}",
            ["+", "-", ""][kind],
            if silent { ".SILENT" } else { "" }
        );
        let command = format!(
            "{} {set} {item} ({})",
            if by_uid { "UID STORE" } else { "STORE" },
            words.join(" ")
        );
        if view.read_only {
            let _ = self.must_not(session, &command);
            return;
        }
        let mut allowed = Allowed {
            no_expunge: !by_uid,
            ..Allowed::default()
        };
        let mut here = Vec::new();
        for uid in &chosen {
            let Some(mail) = self.account.mailbox_mut(&view.mailbox).mails.get_mut(uid) else {
                continue;
            };
            here.push(*uid);
            allowed.before.insert(*uid, mail.flags.clone());
            match kind {
                0 => mail.flags.extend(flags.iter().cloned()),
                1 => mail.flags.retain(|flag| !flags.contains(flag)),
                _ => mail.flags = flags.clone(),
            }
        }
        let reply = self.command(session, &command, &allowed);
        // RFC 2180, 4.2: NO tells that some were expunged elsewhere.
        if reply.status == Status::Bad || (reply.status == Status::No && here.len() == chosen.len())
        {
            self.wrong(&command, &format!("{reply:?}"));
        }
        let Some(mut now) = self.sessions[session].view.take() else {
            return;
        };
        for uid in here {
            let flags = self.account.mailbox(&view.mailbox).mails[&uid]
                .flags
                .clone();
            if silent {
                // A client that asked for silence computes the flags itself, from what it knew.
                if now.told.get(&uid) == allowed.before.get(&uid) || kind == 2 {
                    now.told.insert(uid, flags);
                }
            } else if now.told.get(&uid) != Some(&flags) {
                self.wrong(
                    &command,
                    &format!("flags of UID {uid} were not told: {reply:?}"),
                );
            }
        }
        self.sessions[session].view = Some(now);
    }

    pub(crate) fn copy(&mut self, session: usize) {
        if self.sessions[session].view.is_none() {
            let _ = self.must_not(session, "COPY 1 INBOX");
            return;
        }
        // Of messages that are gone the whole command may be refused: here none are.
        self.noop(session);
        let view = self.sessions[session].view.clone().unwrap();
        if view.uids.is_empty() {
            return;
        }
        let (by_uid, moves) = (self.random.one_in(2), self.random.one_in(2));
        let (chosen, set_text) = self.choose(session, by_uid);
        let to = self.any_mailbox();
        let verb = format!(
            "{}{}",
            if by_uid { "UID " } else { "" },
            if moves { "MOVE" } else { "COPY" }
        );
        if self.random.one_in(12) {
            let reply = self.must_not(session, &format!("{verb} {set_text} \"not there\""));
            if reply.code != "TRYCREATE" && !(moves && view.read_only) {
                self.wrong(&verb, &format!("{reply:?}"));
            }
            return;
        }
        let command = format!("{verb} {set_text} {}", quoted(&to));
        if moves && view.read_only {
            let _ = self.must_not(session, &command);
            return;
        }
        if to == view.mailbox || self.account.mailbox(&to).mails.len() > 2 * MESSAGES_MAX {
            return;
        }
        let taken: Vec<Mail> = chosen
            .iter()
            .map(|uid| self.account.mailbox(&view.mailbox).mails[uid].clone())
            .collect();
        if moves {
            self.account
                .mailbox_mut(&view.mailbox)
                .mails
                .retain(|uid, _| !chosen.contains(uid));
        }
        let reply = self.must(session, &command, &Allowed::default());
        let code = reply
            .code("COPYUID")
            .unwrap_or_else(|| self.wrong(&command, &format!("no COPYUID: {reply:?}")));
        let words: Vec<&str> = code.split(' ').collect();
        let [validity, from, into] = words.as_slice() else {
            self.wrong(&command, &code)
        };
        let (from, into) = (set(from), set(into));
        if from != chosen || into.len() != chosen.len() {
            self.wrong(&command, &format!("COPYUID {code} for {chosen:?}"));
        }
        for (uid, mail) in into.into_iter().zip(taken) {
            if let Err(what) = self
                .account
                .add(&to, validity.parse().unwrap_or(0), uid, mail)
            {
                self.wrong(&command, &what);
            }
        }
        if moves {
            let gone: usize = reply.untagged.iter().map(count_gone).sum();
            if gone != chosen.len() {
                self.wrong(&command, &format!("{gone} EXPUNGE of {}", chosen.len()));
            }
        }
        if self.account.mailbox(&to).mails.len() > MESSAGES_MAX {
            self.thin_out(session, &to);
        }
    }

    pub(crate) fn expunge(&mut self, session: usize) {
        let Some(view) = self.sessions[session].view.clone() else {
            let _ = self.must_not(session, "EXPUNGE");
            return;
        };
        let by_uid = self.random.one_in(2) && !view.uids.is_empty();
        let (chosen, text) = if by_uid {
            self.choose(session, true)
        } else {
            (view.uids.clone(), String::new())
        };
        let command = if by_uid {
            format!("UID EXPUNGE {text}")
        } else {
            "EXPUNGE".to_owned()
        };
        if view.read_only {
            let _ = self.must_not(session, &command);
            return;
        }
        self.remove_deleted(&view.mailbox, &chosen);
        let _ = self.must(session, &command, &Allowed::default());
        // What this session removed it has been told of.
        let left = self.sessions[session]
            .view
            .as_ref()
            .map(|view| view.uids.clone())
            .unwrap_or_default();
        let mails = &self.account.mailbox(&view.mailbox).mails;
        if let Some(uid) = left
            .iter()
            .find(|uid| chosen.contains(uid) && view.uids.contains(uid) && !mails.contains_key(uid))
        {
            self.wrong(
                &command,
                &format!("UID {uid} is gone, and no EXPUNGE told so"),
            );
        }
    }

    fn remove_deleted(&mut self, mailbox: &str, of: &[u32]) {
        self.account
            .mailbox_mut(mailbox)
            .mails
            .retain(|uid, mail| !of.contains(uid) || !mail.flags.contains("\\Deleted"));
    }

    pub(crate) fn close(&mut self, session: usize) {
        let Some(view) = self.sessions[session].view.clone() else {
            let _ = self.must_not(session, "CLOSE");
            return;
        };
        let close = self.random.one_in(2);
        if close && !view.read_only {
            self.remove_deleted(&view.mailbox, &view.uids);
        }
        let command = if close { "CLOSE" } else { "UNSELECT" };
        let reply = self.must(session, command, &Allowed::default());
        if close
            && reply
                .untagged
                .iter()
                .any(|response| count_gone(response) > 0)
        {
            // RFC 9051, 6.4.1: "No untagged EXPUNGE responses are sent" for what it removes.
            self.wrong(command, &format!("{reply:?}"));
        }
        self.sessions[session].view = None;
    }

    /// Cuts the connection: amid a command, which must have no effect, or behind one, which has its whole effect or none.
    pub(crate) fn cut(&mut self, session: usize) {
        match self.random.below(4) {
            0 => {
                let reply = self.command(
                    session,
                    "LOGOUT",
                    &Allowed {
                        bye: true,
                        ..Allowed::default()
                    },
                );
                if reply.status != Status::Ok
                    || !reply
                        .untagged
                        .iter()
                        .any(|response| matches!(response, Response::State(Status::Bye, ..)))
                {
                    self.wrong("LOGOUT", &format!("{reply:?}"));
                }
            }
            1 => {
                let mail = self.new_mail();
                let command = append_command("INBOX", &[], &mail.bytes());
                // The last byte of the message is never sent.
                let end = 1 + self.random.below(command.len() - 1);
                self.note(session, "APPEND INBOX, cut");
                let _ = self.sessions[session].imap.wire.send(b"t ");
                let _ = self.sessions[session].imap.wire.send(&command[..end]);
            }
            2 => {
                self.note(session, "FETCH, cut and not read");
                let _ = self.sessions[session]
                    .imap
                    .send(b"UID FETCH 1:* (BODY.PEEK[])");
            }
            _ => self.append_and_cut(session),
        }
        self.reconnect(session);
    }

    fn append_and_cut(&mut self, session: usize) {
        let mailbox = self.any_mailbox();
        let mail = self.new_mail();
        let words: Vec<&str> = mail.flags.iter().map(String::as_str).collect();
        let command = append_command(&mailbox, &words, &mail.bytes());
        self.note(session, &format!("APPEND {mailbox} {}, and cut", mail.name));
        let _ = self.sessions[session].imap.send(&command);
        self.sessions[session].imap.wire.half_close();
        self.drain(session);
        // What was under way is over when a later write to the account is; a session that watches nothing makes it.
        let barrier = self.connect().imap.command("SUBSCRIBE INBOX");
        if !matches!(
            barrier,
            Ok(Reply {
                status: Status::Ok,
                ..
            })
        ) {
            self.wrong("SUBSCRIBE INBOX", &format!("{barrier:?}"));
        }
        let seen = self.look(&mailbox);
        if seen.len() > self.account.mailbox(&mailbox).mails.len() {
            let (uid, new) = seen
                .iter()
                .next_back()
                .map(|(uid, mail)| (*uid, mail.clone()))
                .unwrap();
            if new != mail {
                self.wrong("APPEND and cut", &format!("{new:?} instead of {mail:?}"));
            }
            self.account.mailbox_mut(&mailbox).mails.insert(uid, mail);
        }
        if seen != self.account.mailbox(&mailbox).mails {
            self.wrong(
                "APPEND and cut",
                &format!(
                    "{mailbox}: {seen:?} instead of {:?}",
                    self.account.mailbox(&mailbox).mails
                ),
            );
        }
    }
}

/// How many messages a response says are gone.
fn count_gone(response: &Response) -> usize {
    match response {
        Response::Expunge(_) => 1,
        Response::Data(name, nodes) if name == "VANISHED" => match nodes.as_slice() {
            [uids] => set(&uids.text()).len(),
            _ => 0,
        },
        _ => 0,
    }
}
