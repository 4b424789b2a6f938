//! Deliveries by LMTP or SMTP over ten connections: fixed sizes, both ranges of CassMail, and sizes of a real inbox.

use std::time::{Duration, Instant};

use super::Context;
use crate::{
    error::{Result, wrong},
    facts::{PERSONAL, size_at},
    mail,
    measure::Samples,
    random::Random,
    smtp::Kind,
    target::{Target, WRITERS, threads},
};

/// Connections.
const CONNECTIONS: usize = 10;

/// Texts made before the clock runs; each is sent several times, with a field in front that makes it another message.
const POOL_BYTES: usize = 48 << 20;

/// What was accepted must be in the mailboxes within this.
const ARRIVAL_MAX: Duration = Duration::from_secs(60);

/// How large the messages are.
enum Size {
    Fixed(usize),
    /// Uniformly from to.
    Range(usize, usize),
    /// As in a real inbox.
    Real,
}

/// Name, sizes, and by how much fewer messages there are than of 10 KB.
const LOADS: &[(&str, Size, usize)] = &[
    ("10 KB", Size::Fixed(10_240), 1),
    ("200 KB", Size::Fixed(204_800), 5),
    ("2 MB", Size::Fixed(2 << 20), 25),
    ("50 KB to 500 KB", Size::Range(50_000, 500_000), 5),
    ("200 KB to 2 MB", Size::Range(200_000, 2_000_000), 20),
    ("sizes of an inbox", Size::Real, 4),
];

pub(super) fn run(context: &mut Context, kind: Kind) -> Result<()> {
    let name = match kind {
        Kind::Smtp => "SMTP",
        Kind::Lmtp => "LMTP",
    };
    let before = total(&context.target)?;
    let mut sent = 0;
    for (label, size, fewer) in LOADS {
        let count = (context.sizes.deliveries / fewer).max(CONNECTIONS);
        let row = load(context, kind, &format!("{name} {label}"), size, count)?;
        context.add(row);
        sent += count as u64;
    }
    arrived(&context.target, before + sent)
}

fn load(
    context: &Context,
    kind: Kind,
    name: &str,
    size: &Size,
    count: usize,
) -> Result<crate::measure::Row> {
    let (target, progress, seed) = (&context.target, &context.progress, context.seed);
    progress.begin(name, count);
    let mut pool = Vec::new();
    let mut random = Random::part(seed, count as u64);
    let mut bytes = 0;
    while pool.len() < count && bytes < POOL_BYTES {
        let size = match size {
            Size::Fixed(size) => *size,
            Size::Range(low, high) => random.between(*low, *high),
            Size::Real => size_at(PERSONAL, random.unit()),
        };
        pool.push(mail::sized(&mut random, pool.len(), size));
        bytes += size;
    }
    context.meter.measure(name, "message", || {
        let samples = threads(CONNECTIONS, |thread, threads| {
            let mut samples = Samples::default();
            let mut random = Random::part(seed, 2_000 + thread as u64);
            let mut smtp = target.smtp(kind)?;
            for number in (thread..count).step_by(threads) {
                let mut message = format!("X-Number: {seed}.{number}\r\n").into_bytes();
                message.extend_from_slice(&pool[number % pool.len()]);
                let recipient = target.user(random.between(1, WRITERS));
                samples.time(|| smtp.deliver(&recipient, &message))?;
                samples.bytes += message.len() as u64;
                progress.step(1);
            }
            smtp.quit()?;
            Ok(samples)
        })?;
        Ok(Samples::joined(samples))
    })
}

/// Messages in all INBOXes that are delivered to.
fn total(target: &Target) -> Result<u64> {
    let counts = threads(8, |thread, threads| {
        let mut sum = 0;
        for user in (thread + 1..=WRITERS).step_by(threads) {
            let mut imap = target.login(user)?;
            sum += u64::from(imap.messages("INBOX")?.unwrap_or(0));
            imap.logout()?;
        }
        Ok(sum)
    })?;
    Ok(counts.into_iter().sum())
}

fn arrived(target: &Target, expected: u64) -> Result<()> {
    let started = Instant::now();
    loop {
        let there = total(target)?;
        if there == expected {
            return Ok(());
        }
        if there > expected || started.elapsed() > ARRIVAL_MAX {
            return wrong(format!(
                "{there} messages in the mailboxes, {expected} were accepted"
            ));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
