//! A read load in the proportions in which real clients sent their commands.
//!
//! Known is how often each command came, not with which arguments. The forms of FETCH and SEARCH here are those that clients commonly
//! use when they synchronise, list, show and search.

use super::{Context, READERS, read_plan};
use crate::{
    error::{Result, expect_equal},
    facts::{PERSONAL, size_at},
    imap::Imap,
    mail,
    measure::Samples,
    random::Random,
    target::threads,
};

/// Larger messages are left out, so that a mailbox of a thousand stays below 40 MB.
const SIZE_QUANTILE_MAX: f64 = 0.88;

/// Messages of one screen of a client.
const SCREEN: u32 = 20;

/// The fields a client asks for to list messages.
const FIELDS: &str = "DATE FROM TO CC SUBJECT MESSAGE-ID REFERENCES IN-REPLY-TO CONTENT-TYPE";

pub(super) fn run(context: &mut Context) -> Result<()> {
    let messages = context.sizes.read_messages;
    let seed = context.seed;
    let (target, progress) = (&context.target, &context.progress);
    progress.begin("read: fill", messages * READERS.len());
    for user in READERS {
        let make = |number: usize| {
            let mut random = Random::part(user as u64, number as u64);
            let size = size_at(PERSONAL, random.unit() * SIZE_QUANTILE_MAX);
            mail::sized(&mut random, number, size)
        };
        target.fill(user, "INBOX", messages, &make, &|steps| {
            progress.step(steps)
        })?;
        let mut imap = target.login(user)?;
        for name in ["Sent", "Archive"] {
            if imap.messages(name)?.is_none() {
                imap.run(&format!("CREATE {name}"))?;
            }
        }
        imap.logout()?;
    }
    let whole = context.sizes.read_decks.ceil() as u64;
    let mut sessions = Vec::new();
    for deck in 0..whole {
        sessions.append(&mut read_plan::sessions(&mut Random::part(seed, deck)));
    }
    let wanted = sessions.len() as f64 * context.sizes.read_decks / whole as f64;
    sessions.truncate(wanted.ceil() as usize);
    progress.begin("read", sessions.len());
    let row = context.meter.measure("read", "command", || {
        let samples = threads(READERS.len(), |thread, threads| {
            let mut samples = Samples::default();
            let mut reader = Reader {
                user: READERS.start + thread,
                random: Random::part(seed, 1_000 + thread as u64),
                exists: messages as u32,
                made: 0,
            };
            for session in sessions.iter().skip(thread).step_by(threads) {
                let mut imap = samples.time(|| target.login(reader.user))?;
                for command in session {
                    reader.take(&mut imap, command, &mut samples)?;
                }
                samples.bytes += imap.received();
                imap.logout()?;
                progress.step(1);
            }
            Ok(samples)
        })?;
        Ok(Samples::joined(samples))
    })?;
    context.add(row);
    Ok(())
}

struct Reader {
    user: usize,
    random: Random,
    /// Messages in INBOX.
    exists: u32,
    made: u32,
}

impl Reader {
    fn take(&mut self, imap: &mut Imap, command: &str, samples: &mut Samples) -> Result<()> {
        match command {
            "FETCH" => {
                let (command, expected) = self.fetch();
                samples.time(|| imap.fetch(&command, expected)).map(drop)
            }
            "SEARCH" => {
                let (command, expected) = self.search();
                let answer = samples.time(|| imap.run(&command))?;
                expected.map_or(Ok(()), |expected| {
                    expect_equal(&command, answer.found, expected)
                })
            }
            "SELECT" | "EXAMINE" => {
                let answer = samples.time(|| imap.run(&format!("{command} INBOX")))?;
                expect_equal(command, answer.exists, Some(self.exists))
            }
            "STATUS" => {
                let answer = samples.time(|| imap.messages("INBOX"))?;
                expect_equal(command, answer, Some(self.exists))
            }
            "IDLE" => {
                samples.time(|| imap.idle())?;
                samples.time(|| imap.done()).map(drop)
            }
            "LIST" => {
                let answer = samples.time(|| imap.run("LIST \"\" \"*\""))?;
                expect_equal("LIST has INBOX", answer.lists >= 3, true)
            }
            "LSUB" => samples.time(|| imap.run("LSUB \"\" \"*\"")).map(drop),
            "ENABLE" => samples.time(|| imap.run("ENABLE CONDSTORE")).map(drop),
            "APPEND" => {
                let message = mail::sized(&mut self.random, 0, 3_000);
                samples.time(|| imap.append("Sent", &message)).map(drop)
            }
            "CREATE" | "SUBSCRIBE" => {
                self.made += 1;
                let name = format!("made{}-{:x}", self.made, self.random.bits());
                if command == "SUBSCRIBE" {
                    imap.run(&format!("CREATE {name}"))?;
                }
                samples
                    .time(|| imap.run(&format!("{command} {name}")))
                    .map(drop)
            }
            "STORE" => {
                let number = self.random.between(1, self.exists as usize);
                let answer =
                    samples.time(|| imap.run(&format!("STORE {number} FLAGS (\\Seen)")))?;
                // If it was seen before, Dovecot tells nothing.
                expect_equal("one message changed at most", answer.fetches <= 1, true)
            }
            "MOVE" => {
                let answer = samples.time(|| imap.run("MOVE 1 Archive"))?;
                self.exists -= 1;
                expect_equal(command, answer.expunges, 1)
            }
            "EXPUNGE" => {
                let answer = samples.time(|| imap.run("EXPUNGE"))?;
                expect_equal(command, answer.expunges, 0)
            }
            // CAPABILITY, CHECK, CLOSE, NOOP, UNSELECT.
            command => samples.time(|| imap.run(command)).map(drop),
        }
    }

    fn fetch(&mut self) -> (String, u32) {
        let one = self.random.between(1, self.exists as usize) as u32;
        let first = one.min((self.exists + 1).saturating_sub(SCREEN).max(1));
        let last = (first + SCREEN - 1).min(self.exists);
        let screen = last - first + 1;
        match self
            .random
            .weighted(&[15.0, 25.0, 15.0, 15.0, 15.0, 10.0, 5.0])
        {
            0 => ("UID FETCH 1:* (UID FLAGS)".to_owned(), self.exists),
            1 => (
                format!(
                    "FETCH {first}:{last} (UID RFC822.SIZE FLAGS INTERNALDATE BODY.PEEK[HEADER.FIELDS ({FIELDS})])"
                ),
                screen,
            ),
            2 => (
                format!("FETCH {first}:{last} (UID ENVELOPE FLAGS INTERNALDATE)"),
                screen,
            ),
            3 => (format!("FETCH {one} (UID BODYSTRUCTURE)"), 1),
            4 => (format!("FETCH {one} (UID BODY.PEEK[])"), 1),
            5 => (format!("FETCH {one} (UID BODY.PEEK[1])"), 1),
            _ => (format!("FETCH {one} (UID BODY.PEEK[TEXT]<0.2048>)"), 1),
        }
    }

    fn search(&mut self) -> (String, Option<u32>) {
        match self.random.weighted(&[25.0, 20.0, 20.0, 15.0, 15.0, 5.0]) {
            0 => ("UID SEARCH ALL".to_owned(), Some(self.exists)),
            1 => ("UID SEARCH UNSEEN".to_owned(), None),
            2 => ("UID SEARCH NOT DELETED".to_owned(), Some(self.exists)),
            3 => (
                "SEARCH SINCE 1-Jan-2020 NOT DELETED".to_owned(),
                Some(self.exists),
            ),
            4 => (
                "UID SEARCH HEADER Message-ID \"nowhere@example\"".to_owned(),
                Some(0),
            ),
            _ => ("SEARCH SUBJECT \"meeting\"".to_owned(), None),
        }
    }
}
