//! Operations on large mailboxes: what each costs must follow what it changes or returns, not what is there.

use std::collections::BTreeMap;

use super::{Context, LARGE_USER};
use crate::{
    error::{Result, Trouble, expect_equal},
    imap::Imap,
    mail::{self, NEEDLE, NEEDLE_EVERY},
    measure::Samples,
    random::Random,
    target::Target,
};

/// Each message of a large mailbox.
const MESSAGE_BYTES: usize = 4_096;

/// Distinct messages; larger mailboxes hold copies of them.
const DISTINCT_MAX: usize = 10_000;

/// One in so many is flagged.
const FLAGGED_EVERY: usize = 100;

/// Changes between two looks of a client that synchronises.
const CHANGES: usize = 100;

/// How often something that changes the mailbox is done.
const TIMES: usize = 30;

/// Bodies that are read whole: so many of 10 KB.
const BODIES: usize = 1_000;

pub(super) fn run(context: &mut Context) -> Result<()> {
    for size in context.sizes.large.clone() {
        let mailbox = fill(&context.target, context, size)?;
        let label = |what: &str| format!("{size}: {what}");
        reads(context, &mailbox, size, &label)?;
        resync(context, &mailbox, &label)?;
        writes(context, &mailbox, size, &label)?;
    }
    bodies(context)
}

/// Makes the mailbox unless it is there from a run before; its name.
pub(super) fn fill(target: &Target, context: &Context, size: usize) -> Result<String> {
    let distinct = size.min(DISTINCT_MAX);
    let name = |size: usize| format!("Large{size}");
    context.progress.begin(&format!("fill {size}"), size);
    let make =
        |number: usize| mail::sized(&mut Random::part(5, number as u64), number, MESSAGE_BYTES);
    let step = |steps| context.progress.step(steps);
    target.fill(LARGE_USER, &name(distinct), distinct, &make, &step)?;
    let mailbox = name(size);
    let mut imap = target.login(LARGE_USER)?;
    let mut there = match imap.messages(&mailbox)? {
        Some(there) => there as usize,
        None => {
            imap.run(&format!("CREATE {mailbox}"))?;
            0
        }
    };
    if there < size {
        imap.select(&name(distinct))?;
        while there < size {
            let more = distinct.min(size - there);
            imap.run(&format!("COPY 1:{more} {mailbox}"))?;
            there += more;
            step(more);
        }
    }
    expect_equal("messages", imap.select(&mailbox)? as usize, size)?;
    if imap.run("SEARCH FLAGGED")?.found as usize != size.div_ceil(FLAGGED_EVERY) {
        imap.run("STORE 1:* -FLAGS.SILENT (\\Flagged)")?;
        let numbers: Vec<String> = (1..=size)
            .step_by(FLAGGED_EVERY)
            .map(|number| number.to_string())
            .collect();
        for some in numbers.chunks(500) {
            imap.run(&format!(
                "STORE {} +FLAGS.SILENT (\\Flagged)",
                some.join(",")
            ))?;
        }
    }
    imap.logout()?;
    Ok(mailbox)
}

/// How many have the word that is searched for, wherever in the order each came to lie.
pub(super) fn with_needle(size: usize) -> u32 {
    let distinct = size.min(DISTINCT_MAX);
    let of_first = |count: usize| {
        (0..count)
            .filter(|number| mail::has_needle(*number))
            .count()
    };
    // Copies are whole multiples of the distinct ones for the sizes in use.
    (of_first(distinct) * (size / distinct)) as u32
}

fn reads(
    context: &mut Context,
    mailbox: &str,
    size: usize,
    label: &dyn Fn(&str) -> String,
) -> Result<()> {
    let all = size as u32;
    context.progress.begin(&label("reads"), 0);
    let target = context.target.clone();
    let row = context.meter.repeat(
        &label("LOGIN, SELECT, FETCH FLAGS, LOGOUT"),
        "session",
        || {
            let mut imap = target.login(LARGE_USER)?;
            expect_equal("SELECT", imap.select(mailbox)?, all)?;
            imap.fetch("UID FETCH 1:* (FLAGS)", all)?;
            let bytes = imap.received();
            imap.logout()?;
            Ok(bytes)
        },
    )?;
    context.add(row);
    let mut imap = target.login(LARGE_USER)?;
    let row = context
        .meter
        .repeat(&label("SELECT, UNSELECT"), "command", || {
            expect_equal("SELECT", imap.select(mailbox)?, all)?;
            imap.run("UNSELECT")?;
            Ok(0)
        })?;
    context.add(row);
    imap.select(mailbox)?;
    for (items, what) in [
        ("FLAGS", "FETCH FLAGS"),
        ("ENVELOPE", "FETCH ENVELOPE"),
        ("BODYSTRUCTURE", "FETCH BODYSTRUCTURE"),
        (
            "FLAGS UID RFC822.SIZE ENVELOPE",
            "FETCH FLAGS UID SIZE ENVELOPE",
        ),
    ] {
        let command = format!("FETCH 1:* ({items})");
        let row = context.meter.repeat(&label(what), "command", || {
            Ok(imap.fetch(&command, all)?.bytes)
        })?;
        context.add(row);
    }
    // A screen of messages: what is returned is the same whatever the mailbox.
    let first = size.saturating_sub(19).max(1);
    let command = format!("FETCH {first}:{size} (FLAGS UID RFC822.SIZE ENVELOPE)");
    let screen = (size - first + 1) as u32;
    let row = context.meter.repeat(
        &label("FETCH FLAGS UID SIZE ENVELOPE of 20"),
        "command",
        || Ok(imap.fetch(&command, screen)?.bytes),
    )?;
    context.add(row);
    let flagged = size.div_ceil(FLAGGED_EVERY) as u32;
    let mut searches = vec![
        (
            "UID SEARCH FLAGGED".to_owned(),
            "UID SEARCH FLAGGED",
            flagged,
        ),
        ("UID SEARCH ALL".to_owned(), "UID SEARCH ALL", all),
        (
            "UID SEARCH SUBJECT \"surely nowhere\"".to_owned(),
            "UID SEARCH SUBJECT",
            0,
        ),
    ];
    if size.is_multiple_of(NEEDLE_EVERY) {
        searches.push((
            format!("UID SEARCH TEXT {NEEDLE}"),
            "UID SEARCH TEXT",
            with_needle(size),
        ));
    }
    for (command, what, expected) in searches {
        let row = context.meter.repeat(&label(what), "command", || {
            Ok(imap.search(&command, expected)?.bytes)
        })?;
        context.add(row);
    }
    imap.logout()
}

/// A client that knows the mailbox as it was 100 changes ago.
fn resync(context: &mut Context, mailbox: &str, label: &dyn Fn(&str) -> String) -> Result<()> {
    let target = context.target.clone();
    let mut imap = target.login(LARGE_USER)?;
    imap.run("ENABLE CONDSTORE")?;
    let (mut validity, mut mod_seq) = (None, None);
    let answer = imap.run_with(&format!("SELECT {mailbox} (CONDSTORE)"), |untagged| {
        validity = validity.or(untagged.number_after("UIDVALIDITY "));
        mod_seq = mod_seq.or(untagged.number_after("HIGHESTMODSEQ "));
        Ok(())
    })?;
    let exists = answer.exists.unwrap_or(0) as usize;
    let (Some(validity), Some(mod_seq)) = (validity, mod_seq) else {
        return Err(Trouble::Wrong(
            "no UIDVALIDITY or HIGHESTMODSEQ with SELECT (CONDSTORE)".to_owned(),
        ));
    };
    let changes = CHANGES.min(exists);
    let numbers: Vec<String> = (0..changes)
        .map(|change| (change * exists / changes + 1).to_string())
        .collect();
    let keyword = format!("bench{:x}", context.seed & 0xffff);
    imap.run(&format!(
        "STORE {} +FLAGS.SILENT ({keyword})",
        numbers.join(",")
    ))?;
    let row = context.meter.repeat(
        &label("SELECT, FETCH CHANGEDSINCE, after 100 changes"),
        "command",
        || {
            imap.run(&format!("SELECT {mailbox} (CONDSTORE)"))?;
            let command = format!("UID FETCH 1:* (FLAGS) (CHANGEDSINCE {mod_seq})");
            Ok(imap.fetch(&command, changes as u32)?.bytes)
        },
    )?;
    context.add(row);
    if imap.capabilities()?.contains(" QRESYNC ") {
        imap.run("ENABLE QRESYNC")?;
        let row = context.meter.repeat(
            &label("SELECT QRESYNC after 100 changes"),
            "command",
            || {
                let command = format!("SELECT {mailbox} (QRESYNC ({validity} {mod_seq}))");
                Ok(imap.fetch(&command, changes as u32)?.bytes)
            },
        )?;
        context.add(row);
    }
    imap.run(&format!(
        "STORE {} -FLAGS.SILENT ({keyword})",
        numbers.join(",")
    ))?;
    imap.logout()
}

fn writes(
    context: &mut Context,
    mailbox: &str,
    size: usize,
    label: &dyn Fn(&str) -> String,
) -> Result<()> {
    let target = context.target.clone();
    let mut imap = target.login(LARGE_USER)?;
    imap.select(mailbox)?;
    let mut random = Random::part(context.seed, 9);
    let row = context.meter.measure(&label("APPEND"), "command", || {
        let mut samples = Samples::default();
        for number in 0..TIMES {
            let message = mail::sized(&mut random, number * 7, MESSAGE_BYTES);
            let answer = samples.time(|| imap.append(mailbox, &message))?;
            expect_equal("EXISTS", answer.exists, Some((size + number + 1) as u32))?;
        }
        Ok(samples)
    })?;
    context.add(row);
    let mut uids = BTreeMap::new();
    let command = format!("FETCH {}:{} (UID)", size + 1, size + TIMES);
    imap.run_with(&command, |untagged| {
        if let (Some((number, b"FETCH")), Some(uid)) =
            (untagged.numbered(), untagged.number_after("UID "))
        {
            uids.insert(number, uid);
        }
        Ok(())
    })?;
    expect_equal("UIDs of what was appended", uids.len(), TIMES)?;
    let row = context
        .meter
        .measure(&label("STORE of one"), "command", || {
            let mut samples = Samples::default();
            for uid in uids.values() {
                let command = format!("UID STORE {uid} +FLAGS (\\Deleted)");
                samples.time(|| imap.fetch(&command, 1))?;
            }
            Ok(samples)
        })?;
    context.add(row);
    let row = context
        .meter
        .measure(&label("EXPUNGE of one"), "command", || {
            let mut samples = Samples::default();
            for uid in uids.values() {
                let answer = samples.time(|| imap.run(&format!("UID EXPUNGE {uid}")))?;
                expect_equal("expunged", answer.expunges, 1)?;
            }
            Ok(samples)
        })?;
    context.add(row);
    // Whatever a run before left.
    imap.run("STORE 1:* -FLAGS.SILENT (\\Answered)")?;
    let mut on = false;
    let row = context
        .meter
        .repeat(&label("STORE of one flag on all"), "command", || {
            on = !on;
            let sign = if on { '+' } else { '-' };
            let command = format!("STORE 1:* {sign}FLAGS (\\Answered)");
            Ok(imap.fetch(&command, size as u32)?.bytes)
        })?;
    context.add(row);
    copies(context, &mut imap, size, label)?;
    imap.logout()
}

fn copies(
    context: &mut Context,
    imap: &mut Imap,
    size: usize,
    label: &dyn Fn(&str) -> String,
) -> Result<()> {
    let some = size.min(100);
    let mut kinds = vec![(some, TIMES, "COPY of 100".to_owned())];
    if size <= DISTINCT_MAX {
        kinds.push((size, 3, "COPY of all".to_owned()));
    }
    for (count, times, what) in kinds {
        if imap.messages("Copies")?.is_some() {
            imap.run("DELETE Copies")?;
        }
        imap.run("CREATE Copies")?;
        let row = context.meter.measure(&label(&what), "command", || {
            let mut samples = Samples::default();
            for _ in 0..times {
                samples.time(|| imap.run(&format!("COPY 1:{count} Copies")))?;
            }
            Ok(samples)
        })?;
        expect_equal(
            "messages copied",
            imap.messages("Copies")?,
            Some((count * times) as u32),
        )?;
        imap.run("DELETE Copies")?;
        context.add(row);
    }
    Ok(())
}

fn bodies(context: &mut Context) -> Result<()> {
    let count = context.sizes.pop3_messages.min(BODIES);
    let make = |number| mail::sized(&mut Random::part(6, number as u64), number, 10_240);
    let target = context.target.clone();
    context.progress.begin("bodies: fill", count);
    target.fill(LARGE_USER, "Bodies", count, &make, &|steps| {
        context.progress.step(steps);
    })?;
    let mut imap = target.login(LARGE_USER)?;
    imap.select("Bodies")?;
    let mut sizes = 0;
    imap.run_with("FETCH 1:* (RFC822.SIZE)", |untagged| {
        sizes += untagged.number_after("RFC822.SIZE ").unwrap_or(0);
        Ok(())
    })?;
    let all = count as u32;
    let row = context
        .meter
        .repeat("FETCH BODY.PEEK[] of 1,000 x 10 KB", "command", || {
            let answer = imap.fetch("FETCH 1:* (BODY.PEEK[])", all)?;
            expect_equal("bytes of bodies", answer.literal_bytes, sizes)?;
            Ok(answer.bytes)
        })?;
    context.add(row);
    let command = "FETCH 1:* (UID FLAGS BODY.PEEK[HEADER.FIELDS (DATE FROM SUBJECT MESSAGE-ID)])";
    let row = context
        .meter
        .repeat("FETCH four header fields of 1,000", "command", || {
            let answer = imap.fetch(command, all)?;
            expect_equal("headers", answer.literals, count)?;
            Ok(answer.bytes)
        })?;
    context.add(row);
    imap.logout()
}
