//! Memory under load: whatever clients do, the server stays below a bound.
//!
//! Each load is followed by a row with the greatest resident memory since it began; the first above the bound fails the run, after all
//! have been measured.

use std::{thread::sleep, time::Duration};

use super::{BOUNDS_USER, Bounds, Context, LARGE_USER, hostile, large, neighbour};
use crate::{
    error::{Result, Trouble, expect_equal, wrong},
    imap::Imap,
    mail,
    measure::{Row, Samples},
    process::Tree,
    random::Random,
    target::threads,
};

/// One message of the bulk.
const BULK_BYTES: usize = 1 << 20;

/// Distinct messages of the bulk; the rest are copies.
const BULK_DISTINCT: usize = 128;

/// Messages whose headers are fetched by many at once.
const HEADER_MESSAGES: usize = 100;

/// How long those who do not read are left alone.
const UNREAD_FOR: Duration = Duration::from_secs(5);

/// Runs them all.
///
/// # Errors
/// When an answer is wrong, or the bound is exceeded.
pub fn run(context: &mut Context, bounds: &Bounds) -> Result<()> {
    let Some(tree) = context.target.tree() else {
        return wrong("memory is read from /proc: --pid is needed");
    };
    context.sizes.idle_sessions = bounds.idle;
    super::idle::run(context)?;
    let mut peaks = Vec::new();
    if let Some(row) = context.rows.last_mut() {
        let peak = tree.peak_kib() / 1024;
        row.more.insert("peak_mib".to_owned(), peak as f64);
        peaks.push((row.name.clone(), peak));
    }
    type Load = fn(&Context, &Bounds) -> Result<Samples>;
    let loads: &[(&str, Load)] = &[
        ("a large message in and out", large_message),
        ("fill the bulk", bulk),
        ("FETCH 1:* BODY[] of the bulk", read_bulk),
        ("fill 200 KB messages", fill_headers),
        ("headers of 200 KB messages by all", headers),
        ("fill the large mailbox", fill_large),
        ("large mailbox selected by all", selected),
        ("clients at the large mailbox", clients),
        ("clients that never read", unread),
        ("lines without end", hostile::lines),
        ("literals without end", hostile::literals),
        ("compression bombs", hostile::bomb),
    ];
    for (name, load) in loads {
        let row = measured(context, tree, name, |context| load(context, bounds))?;
        peaks.push((row.name.clone(), peak_of(&row)));
        context.add(row);
    }
    let neighbours = of_one_account(context, bounds, tree)?;
    judge(&peaks, bounds.resident_mib_max, tree)?;
    neighbours
}

/// One account against another: the bound of memory is another one, for these are the largest accounts there are.
fn of_one_account(context: &mut Context, bounds: &Bounds, tree: Tree) -> Result<Result<()>> {
    let prepared = measured(context, tree, "fill one account", |context| {
        neighbour::prepare(context, bounds)
    })?;
    context.add(prepared);
    let (mut seen, mut peaks) = (Vec::new(), Vec::new());
    for load in neighbour::LOADS {
        let name = format!("beside an account with {}", load.name);
        let row = measured(context, tree, &name, |context| {
            neighbour::run(context, bounds, *load)
        })?;
        seen.push((row.name.clone(), row.p99_ms));
        peaks.push((row.name.clone(), peak_of(&row)));
        context.add(row);
    }
    let late = neighbour::judge(&seen, bounds.neighbour_ms_max as f64);
    Ok(late.and_then(|()| judge(&peaks, 2 * bounds.resident_mib_max, tree)))
}

/// A row with the greatest resident memory meanwhile.
fn measured(
    context: &Context,
    tree: Tree,
    name: &str,
    load: impl FnOnce(&Context) -> Result<Samples>,
) -> Result<Row> {
    let name = format!("bounds: {name}");
    context.progress.begin(&name, 0);
    if !tree.forget_peak() {
        return wrong("the peak of the server's memory cannot be reset");
    }
    let mut row = context.meter.measure(&name, "command", || load(context))?;
    let (peak, after) = (tree.peak_kib() / 1024, tree.resident_kib() / 1024);
    row.more.insert("peak_mib".to_owned(), peak as f64);
    row.more.insert("after_mib".to_owned(), after as f64);
    Ok(row)
}

fn peak_of(row: &Row) -> u64 {
    row.more.get("peak_mib").map_or(0, |peak| *peak as u64)
}

fn judge(peaks: &[(String, u64)], max: u64, tree: Tree) -> Result<()> {
    let above: Vec<String> = peaks
        .iter()
        .filter(|(_, peak)| max > 0 && *peak > max)
        .map(|(name, peak)| format!("{name}: {peak} MiB"))
        .collect();
    if above.is_empty() {
        Ok(())
    } else {
        wrong(format!(
            "resident memory above {max} MiB ({} now): {}",
            tree.resident_kib() / 1024,
            above.join("; ")
        ))
    }
}

fn own(context: &Context) -> Result<Imap> {
    context.target.login(BOUNDS_USER)
}

/// A session in a mailbox of the user.
fn inside(context: &Context, user: usize, mailbox: &str) -> Result<Imap> {
    let mut imap = context.target.login(user)?;
    imap.select(mailbox)?;
    Ok(imap)
}

fn large_message(context: &Context, bounds: &Bounds) -> Result<Samples> {
    let message = mail::sized(&mut Random::new(context.seed), 1, bounds.message_mib << 20);
    let mut samples = Samples::default();
    let mut imap = own(context)?;
    if imap.messages("Huge")?.is_some() {
        imap.run("DELETE Huge")?;
    }
    imap.run("CREATE Huge")?;
    samples.time(|| imap.append("Huge", &message))?;
    imap.select("Huge")?;
    let answer = samples.time(|| imap.fetch("FETCH 1 (BODY.PEEK[])", 1))?;
    expect_equal("its bytes", answer.literal_bytes, message.len() as u64)?;
    imap.logout()?;
    Ok(samples)
}

fn bulk(context: &Context, bounds: &Bounds) -> Result<Samples> {
    let count = (bounds.bulk_mib << 20) / BULK_BYTES;
    let distinct = count.min(BULK_DISTINCT);
    let make = |number| mail::sized(&mut Random::part(12, number as u64), number, BULK_BYTES);
    context.progress.begin("bounds: bulk", distinct);
    let step = |steps| context.progress.step(steps);
    context
        .target
        .fill(BOUNDS_USER, "Distinct", distinct, &make, &step)?;
    let mut imap = own(context)?;
    if imap.messages("Bulk")? != Some(count as u32) {
        if imap.messages("Bulk")?.is_some() {
            imap.run("DELETE Bulk")?;
        }
        imap.run("CREATE Bulk")?;
        imap.select("Distinct")?;
        let mut left = count;
        while left > 0 {
            let more = left.min(distinct);
            imap.run(&format!("COPY 1:{more} Bulk"))?;
            left -= more;
        }
    }
    imap.logout()?;
    Ok(Samples::default())
}

fn read_bulk(context: &Context, bounds: &Bounds) -> Result<Samples> {
    let count = ((bounds.bulk_mib << 20) / BULK_BYTES) as u32;
    let mut samples = Samples::default();
    let mut imap = inside(context, BOUNDS_USER, "Bulk")?;
    let answer = samples.time(|| imap.fetch("FETCH 1:* (BODY.PEEK[])", count))?;
    samples.bytes = answer.literal_bytes;
    let expected = u64::from(count) * BULK_BYTES as u64;
    expect_equal(
        "about as many bytes as there are",
        answer.literal_bytes.abs_diff(expected) < u64::from(count) * 8,
        true,
    )?;
    imap.logout()?;
    Ok(samples)
}

fn fill_headers(context: &Context, _: &Bounds) -> Result<Samples> {
    let make = |number| mail::sized(&mut Random::part(13, number as u64), number, 204_800);
    let step = |steps| context.progress.step(steps);
    context
        .target
        .fill(BOUNDS_USER, "Headers", HEADER_MESSAGES, &make, &step)?;
    Ok(Samples::default())
}

fn headers(context: &Context, bounds: &Bounds) -> Result<Samples> {
    let done = threads(bounds.sessions, |_, _| {
        let mut samples = Samples::default();
        let mut imap = inside(context, BOUNDS_USER, "Headers")?;
        for items in [
            "BODY.PEEK[HEADER]",
            "BODY.PEEK[]",
            "BODY.PEEK[1]",
            "BODY.PEEK[2]<0.64>",
        ] {
            let command = format!("FETCH 1:* ({items})");
            samples.time(|| imap.fetch(&command, HEADER_MESSAGES as u32))?;
        }
        imap.logout()?;
        Ok(samples)
    })?;
    Ok(Samples::joined(done))
}

fn fill_large(context: &Context, bounds: &Bounds) -> Result<Samples> {
    large::fill(&context.target, context, bounds.messages)?;
    Ok(Samples::default())
}

fn selected(context: &Context, bounds: &Bounds) -> Result<Samples> {
    let mailbox = format!("Large{}", bounds.messages);
    let all = bounds.messages as u32;
    let done = threads(bounds.sessions, |_, _| {
        let mut samples = Samples::default();
        let mut imap = context.target.login(LARGE_USER)?;
        let exists = samples.time(|| imap.select(&mailbox))?;
        expect_equal("SELECT", exists, all)?;
        samples.time(|| imap.fetch("UID FETCH 1:* (FLAGS)", all))?;
        Ok((samples, imap))
    })?;
    // All stay selected until the last is there.
    let mut all_samples = Vec::new();
    for (samples, imap) in done {
        imap.logout()?;
        all_samples.push(samples);
    }
    Ok(Samples::joined(all_samples))
}

fn clients(context: &Context, bounds: &Bounds) -> Result<Samples> {
    let mailbox = format!("Large{}", bounds.messages);
    let all = bounds.messages as u32;
    let seed = context.seed;
    let done = threads(bounds.clients, |thread, _| {
        let mut samples = Samples::default();
        let mut random = Random::part(seed, 500 + thread as u64);
        let mut imap = inside(context, LARGE_USER, &mailbox)?;
        let first = random.between(1, bounds.messages.saturating_sub(999).max(1));
        let last = (first + 999).min(bounds.messages);
        let some = (last - first + 1) as u32;
        for (command, expected) in [
            ("UID FETCH 1:* (UID FLAGS)".to_owned(), all),
            (
                format!("FETCH {first}:{last} (ENVELOPE BODYSTRUCTURE)"),
                some,
            ),
            (format!("FETCH {first}:{last} (BODY.PEEK[])"), some),
            (format!("STORE {first} +FLAGS (\\Seen)"), 1),
        ] {
            // Others change flags meanwhile, of which this session is told, too.
            let answer = samples.time(|| imap.run(&command))?;
            expect_equal("enough FETCH responses", answer.fetches >= expected, true)?;
        }
        let flagged = samples.time(|| imap.run("UID SEARCH FLAGGED"))?;
        expect_equal(
            "SEARCH",
            flagged.found as usize,
            bounds.messages.div_ceil(100),
        )?;
        imap.logout()?;
        Ok(samples)
    })?;
    Ok(Samples::joined(done))
}

fn unread(context: &Context, bounds: &Bounds) -> Result<Samples> {
    let mailbox = format!("Large{}", bounds.messages);
    let held = threads(bounds.sessions, |thread, _| {
        let (user, mailbox, command) = match thread % 3 {
            0 => (BOUNDS_USER, "Bulk", "FETCH 1:* (BODY.PEEK[])"),
            1 => (LARGE_USER, mailbox.as_str(), "FETCH 1:* (FLAGS ENVELOPE)"),
            _ => (LARGE_USER, mailbox.as_str(), "UID SEARCH ALL"),
        };
        let mut imap = inside(context, user, mailbox)?;
        for _ in 0..4 {
            imap.send_command(command)?;
        }
        Ok(imap)
    })?;
    sleep(UNREAD_FOR);
    if held.len() == bounds.sessions {
        Ok(Samples::default())
    } else {
        Err(Trouble::Wrong("sessions were lost".to_owned()))
    }
}
