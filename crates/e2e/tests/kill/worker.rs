//! One client that writes until the server is gone. It touches its own messages only, so what others do at the same time changes nothing of
//! what it may expect.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use whimbrel_e2e::{
    imap::{Imap, Reply, Status, append_command, parse::set, quoted, set_of},
    mail::Mail,
    message,
    random::Random,
    server::{ACCOUNTS, Ports},
    wire::{Result, Trouble},
};

use super::ledger::{Ledger, Place, State};

/// Above this many messages a worker removes more than it adds, so that a long run does not become a slow one.
const MESSAGES_MAX: usize = 100;

const FLAGS: &[&str] = &[
    "\\Seen",
    "\\Flagged",
    "\\Answered",
    "keyword-a",
    "keyword-b",
];

/// Name, UID and place of a message of ours.
type Known = (String, u32, Place);

struct Worker<'a> {
    ledger: Ledger,
    random: Random,
    imap: Imap,
    smtp: Mail,
    lmtp: Mail,
    selected: Option<String>,
    acks: &'a AtomicUsize,
}

/// Writes until the connection is gone.
///
/// # Panics
/// When the server breaks the protocol, is silent, or refuses what it must not.
pub(crate) fn work(
    mut ledger: Ledger,
    random: Random,
    ports: Ports,
    tls: &Arc<rustls::ClientConfig>,
    acks: &AtomicUsize,
) -> Ledger {
    let (user, password) = ACCOUNTS[ledger.account];
    let connected = Imap::login(ports.imaps, tls, user, password)
        .and_then(|imap| Ok((imap, Mail::smtp(ports.smtp)?, Mail::lmtp(ports.lmtp)?)));
    match connected {
        Ok((imap, smtp, lmtp)) => {
            let mut worker = Worker {
                ledger,
                random,
                imap,
                smtp,
                lmtp,
                selected: None,
                acks,
            };
            let trouble = loop {
                if let Err(trouble) = worker.step() {
                    break trouble;
                }
            };
            ledger = worker.ledger;
            assert!(matches!(trouble, Trouble::Closed), "{trouble:?}");
        }
        // Killed before it came so far.
        Err(Trouble::Closed) => {}
        Err(other) => panic!("{other:?}"),
    }
    ledger
}

impl Worker<'_> {
    fn step(&mut self) -> Result<()> {
        if self.ledger.messages() > MESSAGES_MAX && !self.random.one_in(3) {
            return self.remove();
        }
        match self.random.below(12) {
            0..=2 => self.append(),
            3 => self.deliver(true),
            4 => self.deliver(false),
            5..=7 => self.store(),
            8..=9 => self.relocate(),
            10 => self.mailboxes(),
            _ => self.remove(),
        }
    }

    fn acknowledged(&self, count: usize) {
        self.acks.fetch_add(count, Ordering::Relaxed);
    }

    fn size(&mut self) -> usize {
        // Some bodies take many chunks: half of one must never be seen.
        if self.random.one_in(20) {
            50_000 + self.random.below(250_000)
        } else {
            300 + self.random.below(6000)
        }
    }

    fn mailbox(&mut self) -> String {
        (*self.random.pick(&["INBOX", "Archive", "Sent"]).unwrap()).to_owned()
    }

    /// One to four APPENDs at once; each is acknowledged by itself.
    fn append(&mut self) -> Result<()> {
        let mut sent = Vec::new();
        for _ in 0..=self.random.below(4) {
            let (name, size, mailbox) = (self.ledger.name("append"), self.size(), self.mailbox());
            let flags: BTreeSet<String> = FLAGS
                .iter()
                .filter(|_| self.random.one_in(4))
                .map(|flag| (*flag).to_owned())
                .collect();
            let words: Vec<&str> = flags.iter().map(String::as_str).collect();
            let command = append_command(&mailbox, &words, &message::bytes(&name, size));
            self.ledger
                .begin(&name, size, false, (mailbox.clone(), flags));
            sent.push((self.imap.send(&command)?, name, mailbox));
        }
        for (tag, name, mailbox) in sent {
            let reply = self.imap.reply(&tag)?;
            assert_eq!(reply.status, Status::Ok, "APPEND: {reply:?}");
            self.ledger.settle(&name, true);
            let code = reply.code("APPENDUID").expect("APPENDUID");
            let (validity, uid) = code.split_once(' ').expect("two numbers");
            self.known(&mailbox, validity, uid.parse().unwrap(), &name);
            self.acknowledged(1);
        }
        Ok(())
    }

    fn known(&mut self, mailbox: &str, validity: &str, uid: u32, name: &str) {
        if let Err(wrong) = self
            .ledger
            .witness
            .told(mailbox, validity.parse().unwrap(), uid, name)
        {
            panic!("{wrong}");
        }
        if let Some(fate) = self.ledger.fates.get_mut(name) {
            fate.uid = Some(uid);
        }
    }

    fn deliver(&mut self, lmtp: bool) -> Result<()> {
        let (name, size) = (
            self.ledger.name(if lmtp { "lmtp" } else { "smtp" }),
            self.size(),
        );
        self.ledger
            .begin(&name, size, true, ("INBOX".to_owned(), BTreeSet::new()));
        let mail = if lmtp { &mut self.lmtp } else { &mut self.smtp };
        let replies = mail.deliver(
            "carl@example.net",
            &[ACCOUNTS[self.ledger.account].0],
            &message::bytes(&name, size),
            lmtp,
        )?;
        assert!(replies.len() == 1 && replies[0].is(2), "{replies:?}");
        self.ledger.settle(&name, true);
        self.acknowledged(1);
        Ok(())
    }

    /// Selects the mailbox of some messages whose place is known; gives them with their UIDs and states.
    fn some(&mut self, count: usize) -> Result<Vec<Known>> {
        let certain = |fate: &super::ledger::Fate| match (fate.uid, fate.possible.as_slice()) {
            (Some(uid), [Some(state)]) => Some((uid, state.clone())),
            _ => None,
        };
        let known: Vec<Known> = self
            .ledger
            .fates
            .iter()
            .filter_map(|(name, fate)| certain(fate).map(|(uid, state)| (name.clone(), uid, state)))
            .collect();
        let Some((_, _, (mailbox, _))) = self.random.pick(&known).cloned() else {
            return Ok(Vec::new());
        };
        let mut chosen: Vec<_> = known
            .into_iter()
            .filter(|(_, _, (of, _))| *of == mailbox)
            .collect();
        while chosen.len() > count {
            let at = self.random.below(chosen.len());
            chosen.swap_remove(at);
        }
        chosen.sort_by_key(|(_, uid, _)| *uid);
        if self.selected.as_ref() != Some(&mailbox) {
            let reply = self.imap.command(&format!("SELECT {}", quoted(&mailbox)))?;
            assert_eq!(reply.status, Status::Ok, "SELECT: {reply:?}");
            self.selected = Some(mailbox);
        }
        Ok(chosen)
    }

    /// Sends a command that brings these messages into new states, and keeps the ledger.
    fn change(&mut self, command: &str, after: Vec<(String, State)>) -> Result<Reply> {
        for (name, state) in &after {
            self.ledger.intend(name, state.clone());
        }
        let reply = self.imap.command(command)?;
        assert_eq!(reply.status, Status::Ok, "{command}: {reply:?}");
        for (name, _) in &after {
            self.ledger.settle(name, true);
        }
        self.acknowledged(1);
        Ok(reply)
    }

    fn store(&mut self) -> Result<()> {
        let count = 1 + self.random.below(8);
        let chosen = self.some(count)?;
        if chosen.is_empty() {
            return Ok(());
        }
        let flag = (*self.random.pick(FLAGS).unwrap()).to_owned();
        let add = self.random.one_in(2);
        let uids: Vec<u32> = chosen.iter().map(|(_, uid, _)| *uid).collect();
        let after = chosen.into_iter().map(|(name, _, (mailbox, mut flags))| {
            let _ = if add {
                flags.insert(flag.clone())
            } else {
                flags.remove(&flag)
            };
            (name, Some((mailbox, flags)))
        });
        let after = after.collect();
        let sign = if add { '+' } else { '-' };
        let _ = self.change(
            &format!("UID STORE {} {sign}FLAGS ({flag})", set_of(&uids)),
            after,
        )?;
        Ok(())
    }

    fn relocate(&mut self) -> Result<()> {
        let (count, to) = (1 + self.random.below(5), self.mailbox());
        let chosen = self.some(count)?;
        if chosen.is_empty() || self.selected.as_ref() == Some(&to) {
            return Ok(());
        }
        let uids: Vec<u32> = chosen.iter().map(|(_, uid, _)| *uid).collect();
        let after = chosen
            .iter()
            .map(|(name, _, (_, flags))| (name.clone(), Some((to.clone(), flags.clone()))))
            .collect();
        let reply = self.change(
            &format!("UID MOVE {} {}", set_of(&uids), quoted(&to)),
            after,
        )?;
        let code = reply.code("COPYUID").expect("COPYUID");
        let words: Vec<&str> = code.split(' ').collect();
        let pairs = set(words[1]).into_iter().zip(set(words[2]));
        let moved: Vec<(u32, u32)> = pairs.collect();
        assert_eq!(
            moved.iter().map(|(old, _)| *old).collect::<Vec<_>>(),
            uids,
            "COPYUID names what was moved"
        );
        for (old, new) in moved {
            let name = chosen
                .iter()
                .find(|(_, uid, _)| *uid == old)
                .map(|(name, _, _)| name.clone())
                .unwrap();
            self.known(&to, words[0], new, &name);
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        let count = 1 + self.random.below(6);
        let chosen = self.some(count)?;
        if chosen.is_empty() {
            return Ok(());
        }
        let uids: Vec<u32> = chosen.iter().map(|(_, uid, _)| *uid).collect();
        let marked = chosen.iter().map(|(name, _, (mailbox, flags))| {
            let mut flags = flags.clone();
            flags.insert("\\Deleted".to_owned());
            (name.clone(), Some((mailbox.clone(), flags)))
        });
        let marked = marked.collect();
        let _ = self.change(
            &format!("UID STORE {} +FLAGS.SILENT (\\Deleted)", set_of(&uids)),
            marked,
        )?;
        let gone = chosen
            .iter()
            .map(|(name, _, _)| (name.clone(), None))
            .collect();
        let _ = self.change(&format!("UID EXPUNGE {}", set_of(&uids)), gone)?;
        Ok(())
    }

    /// Makes, renames or removes an empty mailbox of our own.
    fn mailboxes(&mut self) -> Result<()> {
        let existing: Vec<String> = self
            .ledger
            .mailboxes
            .iter()
            .filter(|(_, possible)| **possible == [true])
            .map(|(name, _)| name.clone())
            .collect();
        let (command, changes): (String, Vec<(String, bool)>) =
            match (self.random.below(3), self.random.pick(&existing).cloned()) {
                (1, Some(old)) => {
                    let new = self.ledger.name("renamed");
                    self.ledger.renaming.push((old.clone(), new.clone()));
                    (
                        format!("RENAME {old} {new}"),
                        vec![(old, false), (new, true)],
                    )
                }
                (2, Some(name)) => (format!("DELETE {name}"), vec![(name, false)]),
                _ => {
                    let name = self.ledger.name("mailbox");
                    (format!("CREATE {name}"), vec![(name, true)])
                }
            };
        for (name, _) in &changes {
            self.ledger
                .mailboxes
                .insert(name.clone(), vec![true, false]);
        }
        let reply = self.imap.command(&command)?;
        assert_eq!(reply.status, Status::Ok, "{command}: {reply:?}");
        for (name, exists) in changes {
            self.ledger.mailboxes.insert(name, vec![exists]);
        }
        self.ledger.renaming.clear();
        self.acknowledged(1);
        Ok(())
    }
}
