//! The scenarios of Aerogramme's study of its memory, with the server's memory and CPU over time.

use super::{Context, SIXTEEN};
use crate::{
    error::{Result, expect_equal},
    facts::{MIXED, size_at},
    imap::Imap,
    mail,
    measure::Samples,
    random::Random,
    series::Sampler,
    smtp::Kind,
    target::{Target, threads},
};

/// The account that has the thousand messages.
const BIG: usize = SIXTEEN.start;

/// The study's data set has so many messages; the larger mailbox holds it ten times.
const SETS: usize = 10;

/// What a scenario does: it marks its steps and times its commands.
type Work<'a> = dyn Fn(&Target, &Option<Sampler>, &mut Samples) -> Result<()> + 'a;

pub(super) fn run(context: &mut Context) -> Result<()> {
    let set = (context.sizes.study_messages / SETS).max(1);
    let all = (set * SETS) as u32;
    prepare(context)?;
    fill(context, set)?;
    let mut imap = context.target.login(BIG)?;
    imap.select("Study")?;
    for _ in 0..SETS {
        imap.run("COPY 1:* Thousand")?;
    }
    imap.logout()?;
    changes(context, all)?;
    scene(context, "idle", &idle)?;
    reads(context, all)
}

/// All sixteen accounts are filled, one after the other and at the same time.
fn fill(context: &mut Context, set: usize) -> Result<()> {
    let message = |number: usize| {
        // The largest come last, as in the study.
        let size = size_at(MIXED, (number as f64 + 0.5) / set as f64);
        mail::sized(&mut Random::part(8, number as u64), number, size)
    };
    let messages: Vec<Vec<u8>> = (0..set).map(message).collect();
    let append_all = |target: &Target, user: usize, mailbox: &str| -> Result<Samples> {
        let mut samples = Samples::default();
        let mut imap = target.login(user)?;
        for message in &messages {
            samples.time(|| imap.append(mailbox, message))?;
            samples.bytes += message.len() as u64;
        }
        expect_equal("filled", imap.messages(mailbox)?, Some(set as u32))?;
        imap.logout()?;
        Ok(samples)
    };
    scene(context, "fill in turn", &|target, sampler, samples| {
        for user in SIXTEEN {
            mark(sampler, &format!("{}", user - SIXTEEN.start + 1));
            *samples = Samples::joined(vec![
                std::mem::take(samples),
                append_all(target, user, "Study")?,
            ]);
        }
        Ok(())
    })?;
    scene(context, "fill in parallel", &|target, _, samples| {
        let done = threads(SIXTEEN.len(), |thread, _| {
            append_all(target, SIXTEEN.start + thread, "Parallel")
        })?;
        *samples = Samples::joined(done);
        Ok(())
    })?;
    Ok(())
}

/// Commands that change the larger mailbox, or look whether it has changed.
fn changes(context: &mut Context, all: u32) -> Result<()> {
    scene(context, "copy and move", &|target, sampler, samples| {
        let mut imap = big(target, sampler, "Thousand", all)?;
        mark(sampler, "COPY");
        samples.time(|| imap.run("COPY 1:* Copied"))?;
        imap.select("Copied")?;
        mark(sampler, "MOVE");
        let answer = samples.time(|| imap.run("MOVE 1:* Moved"))?;
        expect_equal("moved", answer.expunges, all)?;
        expect_equal("in Moved", imap.messages("Moved")?, Some(all))?;
        imap.logout()
    })?;
    scene(context, "flags", &|target, sampler, samples| {
        let mut imap = big(target, sampler, "Thousand", all)?;
        let keywords: Vec<String> = (1..=16).map(|number| format!("study{number}")).collect();
        mark(sampler, "one on one");
        samples.time(|| imap.fetch("STORE 1 +FLAGS (\\Answered)", 1))?;
        mark(sampler, "16 on one");
        let command = format!("STORE 2 +FLAGS ({})", keywords.join(" "));
        samples.time(|| imap.fetch(&command, 1))?;
        mark(sampler, "one on all");
        samples.time(|| imap.fetch("STORE 1:* +FLAGS (\\Flagged)", all))?;
        imap.run("CLOSE")?;
        imap.logout()
    })?;
    scene(context, "refresh", &|target, sampler, samples| {
        let mut imap = big(target, sampler, "Thousand", all)?;
        for command in ["NOOP", "CHECK", "STATUS Moved (MESSAGES UNSEEN)"] {
            mark(sampler, command);
            samples.time(|| imap.run(command))?;
        }
        imap.logout()
    })?;
    Ok(())
}

/// Commands that read the larger mailbox.
fn reads(context: &mut Context, all: u32) -> Result<()> {
    for (name, command) in [
        ("fetch all", "FETCH 1:* ALL"),
        ("fetch full", "FETCH 1:* FULL"),
    ] {
        scene(context, name, &|target, sampler, samples| {
            let mut imap = big(target, sampler, "Thousand", all)?;
            mark(sampler, command);
            samples.bytes += samples.time(|| imap.fetch(command, all))?.bytes;
            imap.logout()
        })?;
    }
    for (name, command, expected) in [
        (
            "search metadata",
            "UID SEARCH SINCE 1-Jan-2020 NOT DELETED OR FROM \"sender\" FLAGGED",
            all,
        ),
        ("search text", "UID SEARCH TEXT \"surely nowhere\"", 0),
    ] {
        scene(context, name, &|target, sampler, samples| {
            let mut imap = big(target, sampler, "Thousand", all)?;
            mark(sampler, "SEARCH");
            samples.time(|| imap.search(command, expected)).map(drop)?;
            imap.logout()
        })?;
    }
    scene(context, "list", &|target, sampler, samples| {
        let mut imap = target.login(BIG)?;
        mark(sampler, "LIST");
        let answer = samples.time(|| imap.run("LIST \"\" \"*\""))?;
        expect_equal("at least five mailboxes", answer.lists >= 5, true)?;
        imap.logout()
    })
}

/// The mailboxes as they are at the beginning: empty.
fn prepare(context: &Context) -> Result<()> {
    context.progress.begin("study: prepare", SIXTEEN.len());
    for user in SIXTEEN {
        let mut imap = context.target.login(user)?;
        for mailbox in ["Study", "Parallel", "Thousand", "Copied", "Moved"] {
            if imap.messages(mailbox)?.is_some() {
                imap.run(&format!("DELETE {mailbox}"))?;
            }
            imap.run(&format!("CREATE {mailbox}"))?;
        }
        imap.logout()?;
        context.progress.step(1);
    }
    Ok(())
}

fn mark(sampler: &Option<Sampler>, what: &str) {
    if let Some(sampler) = sampler {
        sampler.mark(what);
    }
}

fn big(target: &Target, sampler: &Option<Sampler>, mailbox: &str, expected: u32) -> Result<Imap> {
    mark(sampler, "LOGIN, SELECT");
    let mut imap = target.login(BIG)?;
    expect_equal("SELECT", imap.select(mailbox)?, expected)?;
    Ok(imap)
}

/// All sixteen wait, then each in turn gets a message and is told.
fn idle(target: &Target, sampler: &Option<Sampler>, samples: &mut Samples) -> Result<()> {
    mark(sampler, "LOGIN, SELECT, IDLE");
    let mut waiting = Vec::new();
    for user in SIXTEEN {
        let mut imap = target.login(user)?;
        let exists = imap.select("INBOX")?;
        imap.idle()?;
        waiting.push((user, exists, imap));
    }
    mark(sampler, "messages");
    let message = mail::sized(&mut Random::new(4), 1, 4_000);
    for (user, exists, imap) in &mut waiting {
        if target.address.lmtp.is_some() {
            let mut lmtp = target.smtp(Kind::Lmtp)?;
            samples.time(|| {
                lmtp.deliver(&target.user(*user), &message)?;
                imap.await_exists(*exists + 1)
            })?;
            lmtp.quit()?;
        } else {
            let mut other = target.login(*user)?;
            samples.time(|| {
                other.append("INBOX", &message)?;
                imap.await_exists(*exists + 1)
            })?;
            other.logout()?;
        }
    }
    mark(sampler, "LOGOUT");
    for (_, _, mut imap) in waiting {
        imap.done()?;
        imap.logout()?;
    }
    Ok(())
}

fn scene(context: &mut Context, name: &str, work: &Work<'_>) -> Result<()> {
    let full = format!("study: {name}");
    context.progress.begin(&full, 0);
    let target = context.target.clone();
    let base = target.tree().map(|tree| tree.pss_kib() as f64 / 1024.0);
    let sampler = target.tree().map(Sampler::start);
    let row = context.meter.measure(&full, "command", || {
        let mut samples = Samples::default();
        work(&target, &sampler, &mut samples)?;
        Ok(samples)
    });
    let series = sampler.map(|sampler| sampler.end(name, &target.address.label));
    let mut row = row?;
    if let Some(base) = base {
        row.more.insert("base_mib".to_owned(), base);
    }
    if let Some(series) = series {
        row.more.insert("peak_mib".to_owned(), series.peak_mib());
        context.series.push(series);
    }
    context.add(row);
    Ok(())
}
