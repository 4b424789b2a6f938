//! Memory of idle sessions: many TLS connections in IDLE on sixteen accounts.

use std::{thread::sleep, time::Duration};

use super::{Context, SIXTEEN};
use crate::{
    error::{Result, expect_equal},
    imap::Imap,
    mail,
    measure::Samples,
    process::Tree,
    random::Random,
    target::{Target, threads},
};

/// Threads that open sessions.
const OPENERS: usize = 8;

/// Until a server has put idle sessions to rest: Dovecot's hibernation is set to 5 s, Whimbrel's threads for the disk end after 10 s.
const REST: Duration = Duration::from_secs(12);

/// Until it has given memory back, it is looked at again; at most so often.
const LOOKS_MAX: usize = 20;

/// Sessions that come and go before the base is taken, at a time; and how often at most.
const STIR_SESSIONS: usize = 200;
const STIRS_MAX: usize = 10;

/// When so many bring back less than this, so many times one after the other, it is over.
const STIRRED_KIB: u64 = 256;
const STIRS_IN_VAIN: u32 = 2;

/// Less than this between two looks is no change.
const STEADY_KIB: u64 = 64;

pub(super) fn run(context: &mut Context) -> Result<()> {
    let count = context.sizes.idle_sessions;
    let (target, progress, seed) = (&context.target, &context.progress, context.seed);
    progress.begin("idle: warm up", SIXTEEN.len());
    // Before the base is taken every account is known to the server, and it has done once what it is to do a thousand times. These
    // sessions stay, so that none of the measured ones gets what was theirs.
    let mut first = Vec::new();
    for user in SIXTEEN {
        let mut imap = target.login(user)?;
        imap.append(
            "INBOX",
            &mail::sized(&mut Random::part(seed, user as u64), user, 4_000),
        )?;
        imap.select("INBOX")?;
        imap.idle()?;
        first.push(imap);
    }
    let tree = target.tree();
    stir(target, tree)?;
    let base = rested(tree);
    progress.begin("idle: open", count);
    let mut held: Vec<(usize, u32, Imap)> = Vec::new();
    let mut row = context
        .meter
        .measure(&format!("{count} idle sessions"), "session", || {
            let opened = threads(OPENERS, |thread, threads| {
                let mut samples = Samples::default();
                let mut held = Vec::new();
                for number in (thread..count).step_by(threads) {
                    let user = SIXTEEN.start + number % SIXTEEN.len();
                    let (imap, exists) = samples.time(|| {
                        let mut imap = target.login(user)?;
                        let exists = imap.select("INBOX")?;
                        imap.idle()?;
                        Ok((imap, exists))
                    })?;
                    held.push((user, exists, imap));
                    progress.step(1);
                }
                Ok((samples, held))
            })?;
            let mut all = Vec::new();
            for (samples, mut some) in opened {
                all.push(samples);
                held.append(&mut some);
            }
            Ok(Samples::joined(all))
        })?;
    let each = |now: Option<u64>| {
        let (base, now) = base.zip(now)?;
        Some((now as f64 - base as f64) / count as f64)
    };
    if let Some(kib) = each(rested(tree)) {
        row.more.insert("kib_each".to_owned(), kib);
    }
    // They are awake: each is told of a new message.
    for user in SIXTEEN {
        let mut imap = target.login(user)?;
        imap.append(
            "INBOX",
            &mail::sized(&mut Random::part(seed, 77), user, 4_000),
        )?;
        imap.logout()?;
    }
    for (_, exists, imap) in &mut held {
        let told = imap.await_exists(*exists + 1)?;
        expect_equal("EXISTS in IDLE", told, *exists + 1)?;
    }
    if let Some(kib) = each(rested(tree)) {
        row.more.insert("kib_each_after_news".to_owned(), kib);
    }
    if let Some(base) = base {
        row.more.insert("base_mib".to_owned(), base as f64 / 1024.0);
    }
    progress.begin("idle: close", count);
    for mut imap in held.into_iter().map(|(_, _, imap)| imap).chain(first) {
        imap.done()?;
        imap.logout()?;
        progress.step(1);
    }
    context.add(row);
    Ok(())
}

/// What logins leave with an allocator (argon2: 19 MiB) it may give back only while something happens, and what a thread leaves that ended, when
/// another takes it over: sessions come and go, one at a time, and threads end, until that is over. Otherwise it would count in the base, and be given back
/// while the measured sessions come.
fn stir(target: &Target, tree: Option<Tree>) -> Result<()> {
    let mut least = u64::MAX;
    let mut in_vain = 0;
    for _ in 0..STIRS_MAX {
        let Some(now) = rested(tree) else {
            return Ok(());
        };
        in_vain = if now + STIRRED_KIB > least {
            in_vain + 1
        } else {
            0
        };
        if in_vain == STIRS_IN_VAIN {
            break;
        }
        least = least.min(now);
        for number in 0..STIR_SESSIONS {
            let mut imap = target.login(SIXTEEN.start + number % SIXTEEN.len())?;
            imap.select("INBOX")?;
            imap.logout()?;
        }
    }
    Ok(())
}

/// Memory once it no longer changes, in KiB (PSS).
fn rested(tree: Option<Tree>) -> Option<u64> {
    sleep(REST);
    let tree = tree?;
    let mut before = tree.pss_kib();
    for _ in 0..LOOKS_MAX {
        sleep(Duration::from_secs(1));
        let now = tree.pss_kib();
        if now.abs_diff(before) < STEADY_KIB {
            return Some(now);
        }
        before = now;
    }
    Some(before)
}
