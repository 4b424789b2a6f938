//! The write load of pluto's benchmark: many short sessions of 120 users, of which most commands change something.

use std::time::Instant;

use super::{
    Context,
    session::{FLAGS, KINDS, Session, Step, flag_list},
};
use crate::{
    error::{Result, Trouble, expect_equal},
    imap::{Imap, Untagged},
    measure::Samples,
    random::Random,
    target::{Target, WRITERS, threads},
};

/// Samples of all commands, and of each kind by itself.
#[derive(Default)]
struct Noted {
    all: Samples,
    kinds: [Vec<u32>; KINDS.len()],
}

/// Threads that log in before the load.
const LOGINS: usize = 8;

pub(super) fn run(context: &mut Context) -> Result<()> {
    let (count, sessions) = (context.sizes.write_threads, context.sizes.write_sessions);
    let (target, progress, seed) = (&context.target, &context.progress, context.seed);
    // LOGIN is no part of this load: a server that has to work for an account's first one has done so before.
    progress.begin("write: log in", WRITERS);
    threads(LOGINS, |thread, threads| {
        for user in (thread + 1..=WRITERS).step_by(threads) {
            target.login(user)?.logout()?;
            progress.step(1);
        }
        Ok(())
    })?;
    progress.begin("write", count * sessions);
    let mut kinds: [Vec<u32>; KINDS.len()] = Default::default();
    let mut last = Vec::new();
    let mut row = context.meter.measure("write", "command", || {
        let done = threads(count, |thread, _| {
            let mut noted = Noted::default();
            let mut last = None;
            for number in 0..sessions {
                let mut random = Random::part(seed, (thread * sessions + number) as u64);
                let user = random.between(1, WRITERS);
                let mut session = Session::new(thread, random);
                converse(target, user, &mut session, &mut noted)?;
                last = Some((user, session.remains()));
                progress.step(1);
            }
            Ok((noted, last))
        })?;
        let mut all = Vec::new();
        for (noted, remains) in done {
            all.push(noted.all);
            for (kind, mut micros) in kinds.iter_mut().zip(noted.kinds) {
                kind.append(&mut micros);
            }
            last.extend(remains);
        }
        Ok(Samples::joined(all))
    })?;
    for (user, remains) in last {
        let mut imap = context.target.login(user)?;
        for (mailbox, messages) in remains {
            expect_equal(&mailbox, imap.messages(&mailbox)?, Some(messages))?;
        }
        imap.logout()?;
    }
    for (name, micros) in KINDS.iter().zip(&mut kinds) {
        micros.sort_unstable();
        if let Some(median) = micros.get(micros.len() / 2) {
            row.more.insert(
                format!("{}_median_ms", name.to_ascii_lowercase()),
                f64::from(*median) / 1e3,
            );
        }
    }
    context.add(row);
    Ok(())
}

fn converse(target: &Target, user: usize, session: &mut Session, noted: &mut Noted) -> Result<()> {
    let mut imap = target.login(user)?;
    for step in session.by_ref() {
        let kind = step.kind();
        let started = Instant::now();
        take(&mut imap, step)?;
        let took = started.elapsed();
        noted.all.add(took);
        noted.kinds[kind].push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }
    noted.all.time(|| imap.select("INBOX"))?;
    imap.logout()
}

/// Does one step, and checks its answer.
pub(crate) fn take(imap: &mut Imap, step: Step) -> Result<()> {
    match step {
        Step::Create(mailbox) => imap.run(&format!("CREATE {mailbox}")).map(drop),
        Step::Delete(mailbox) => imap.run(&format!("DELETE {mailbox}")).map(drop),
        Step::Append {
            mailbox,
            message,
            exists,
        } => {
            let answer = imap.append(&mailbox, &message)?;
            match exists {
                Some(_) => expect_equal("EXISTS after APPEND", answer.exists, exists),
                None => Ok(()),
            }
        }
        Step::Select { mailbox, exists } => {
            expect_equal("EXISTS of SELECT", imap.select(&mailbox)?, exists)
        }
        Step::Store {
            number,
            flags,
            changed,
        } => {
            let mut told = None;
            let command = format!("STORE {number} FLAGS {}", flag_list(flags));
            imap.run_with(&command, |untagged| {
                if untagged.numbered() == Some((number as u32, b"FETCH")) {
                    told = Some(flags_of(untagged));
                }
                Ok(())
            })?;
            match told {
                None if !changed => Ok(()),
                told => expect_equal(&command, told, Some(flags)),
            }
        }
        Step::Expunge(expected) => {
            let answer = imap.run("EXPUNGE")?;
            expect_equal("messages expunged", answer.expunges, expected)
        }
    }
    .map_err(|error| match error {
        Trouble::Wrong(what) => Trouble::Wrong(format!("write: {what}")),
        other => other,
    })
}

/// Bits of [`FLAGS`].
fn flags_of(untagged: &Untagged<'_>) -> u8 {
    FLAGS
        .iter()
        .enumerate()
        .filter(|(_, name)| untagged.says(name))
        .fold(0, |flags, (bit, _)| flags | 1 << bit)
}
