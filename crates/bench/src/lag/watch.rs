//! What is seen of it: sizes of some accounts on all nodes, and how long a message takes from its OK to another node's clients.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use super::{
    load::{Ledger, lag_bytes},
    nodes::Nodes,
};
use crate::{
    error::{Result, expect_equal, wrong},
    imap::Imap,
    mail,
    random::Random,
    scenario::SIXTEEN,
    target::{Target, WRITERS, threads},
};

/// Accounts whose sizes are looked at, of those that are written to.
pub const SAMPLED: [usize; 4] = [7, 37, 67, 97];
/// Between two looks at them.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// Between two messages whose way is watched, of one region.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// For those who watch to be in IDLE.
const PROBE_AFTER: Duration = Duration::from_secs(1);
/// Of which so many bytes.
const PROBE_BYTES: usize = 2_000;
/// For all nodes to hold the same when the load is over. Dovecot's replicator tries what failed again after minutes.
pub const AGREE_WAIT_MAX: Duration = Duration::from_secs(400);
/// Between two looks whether they do.
const AGREE_PAUSE: Duration = Duration::from_millis(100);

/// A look at one account on one node.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    node: usize,
    user: usize,
    asked: Instant,
    answered: Instant,
    bytes: i64,
}

/// Bytes of all mailboxes.
fn account_bytes(imap: &mut Imap) -> Result<i64> {
    let mut bytes = 0;
    imap.run_with("LIST \"\" \"*\" RETURN (STATUS (SIZE))", |untagged| {
        if untagged.says("* STATUS ") {
            bytes += untagged.number_after("SIZE ").unwrap_or(0) as i64;
        }
        Ok(())
    })?;
    Ok(bytes)
}

/// Looks until told to stop.
pub fn sample(nodes: &Nodes, stop: &AtomicBool) -> Result<Vec<Sample>> {
    let all = threads(nodes.targets.len(), |node, _| {
        let mut sessions = Vec::new();
        for user in SAMPLED {
            sessions.push((user, nodes.targets[node].login(user)?));
        }
        let mut samples = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let next = Instant::now() + SAMPLE_EVERY;
            for (user, imap) in &mut sessions {
                let asked = Instant::now();
                let bytes = account_bytes(imap)?;
                samples.push(Sample {
                    node,
                    user: *user,
                    asked,
                    answered: Instant::now(),
                    bytes,
                });
            }
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(samples)
    })?;
    Ok(all.into_iter().flatten().collect())
}

/// A curve of one node: seconds, MB that it shows, MB that it lacks or has too much.
pub struct Curve {
    /// Which node.
    pub node: usize,
    /// Its points, in order.
    pub points: Vec<(f64, f64, f64)>,
}

/// The samples of all nodes as curves, one point for each look at all sampled accounts.
pub fn curves(samples: &[Sample], ledger: &Ledger, nodes: usize, started: Instant) -> Vec<Curve> {
    let changes: Vec<_> = SAMPLED.iter().map(|user| ledger.changes(*user)).collect();
    let of_node = |node: usize| {
        let own: Vec<&Sample> = samples.iter().filter(|one| one.node == node).collect();
        let points = own.chunks_exact(SAMPLED.len()).map(|look| {
            let at = look[0].asked.saturating_duration_since(started);
            let shown: i64 = look.iter().map(|one| one.bytes).sum();
            let lag: u64 = look
                .iter()
                .filter_map(|one| {
                    let user = SAMPLED.iter().position(|user| *user == one.user)?;
                    Some(lag_bytes(
                        &changes[user],
                        one.asked,
                        one.answered,
                        one.bytes,
                    ))
                })
                .sum();
            (at.as_secs_f64(), shown as f64 / 1e6, lag as f64 / 1e6)
        });
        Curve {
            node,
            points: points.collect(),
        }
    };
    (0..nodes).map(of_node).collect()
}

/// How long each message took from its OK to each other node, in microseconds, sorted.
pub fn probe(nodes: &Nodes, regions: &[usize], time: Duration, seed: u64) -> Result<Vec<u32>> {
    let count = u32::try_from(time.as_millis() / PROBE_EVERY.as_millis()).unwrap_or(1);
    let user = |region: usize| SIXTEEN.start + region;
    // From whom; and at whom, if it is not the sender.
    let mut parts: Vec<(usize, Option<usize>)> = Vec::new();
    let mut already = Vec::new();
    for &region in regions {
        already.push(same_count(nodes, user(region))?);
        parts.push((region, None));
        let others = (0..nodes.targets.len()).filter(|node| *node != region);
        parts.extend(others.map(|node| (region, Some(node))));
    }
    let seen = threads(parts.len(), |part, _| {
        let (region, at) = parts[part];
        let place = regions.iter().position(|one| *one == region).unwrap_or(0);
        let (user, before) = (user(region), already[place]);
        match at {
            None => send(&nodes.targets[region], user, count, seed),
            Some(node) => see(&nodes.targets[node], user, before, count),
        }
    })?;
    let mut micros = Vec::new();
    for ((region, at), there) in parts.iter().zip(&seen) {
        if at.is_none() {
            continue;
        }
        let from = parts.iter().position(|part| *part == (*region, None));
        let sent = &seen[from.unwrap_or(0)];
        expect_equal("messages seen", there.len(), sent.len())?;
        for (sent, there) in sent.iter().zip(there) {
            let took = there.saturating_duration_since(*sent).as_micros();
            micros.push(u32::try_from(took).unwrap_or(u32::MAX));
        }
    }
    micros.sort_unstable();
    Ok(micros)
}

/// How many messages a user's INBOX has, on all nodes.
fn same_count(nodes: &Nodes, user: usize) -> Result<u32> {
    let started = Instant::now();
    loop {
        let counts: Vec<u32> = nodes
            .targets
            .iter()
            .map(|target| Ok(target.login(user)?.messages("INBOX")?.unwrap_or(0)))
            .collect::<Result<_>>()?;
        if counts.iter().all(|count| *count == counts[0]) {
            return Ok(counts[0]);
        }
        if started.elapsed() > AGREE_WAIT_MAX {
            return wrong(format!("user {user}: INBOX has {counts:?} messages"));
        }
        std::thread::sleep(AGREE_PAUSE);
    }
}

fn send(target: &Target, user: usize, count: u32, seed: u64) -> Result<Vec<Instant>> {
    let mut random = Random::part(seed, user as u64);
    let message = mail::uniform(PROBE_BYTES);
    let mut imap = target.login(user)?;
    let mut sent = Vec::new();
    let mut next = Instant::now() + PROBE_AFTER;
    for _ in 0..count {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        // Not in step with anything: half to one and a half times the pause.
        next += PROBE_EVERY.mul_f64(0.5 + random.unit());
        imap.append("INBOX", &message)?;
        sent.push(Instant::now());
    }
    imap.logout()?;
    Ok(sent)
}

fn see(target: &Target, user: usize, before: u32, count: u32) -> Result<Vec<Instant>> {
    let mut imap = target.login(user)?;
    let mut exists = imap.select("INBOX")?;
    let mut seen = vec![Instant::now(); exists.saturating_sub(before) as usize];
    imap.idle()?;
    while seen.len() < count as usize {
        exists = imap.await_exists(exists + 1)?;
        seen.resize((exists - before) as usize, Instant::now());
    }
    imap.done()?;
    imap.logout()?;
    Ok(seen)
}

/// Waits until all accounts hold on all nodes what was acknowledged; how long that took, and how many never did.
pub fn agree(nodes: &Nodes, ledger: &Ledger) -> Result<(Duration, usize)> {
    let started = Instant::now();
    let mut last = started;
    // One account after the other: nobody writes any more, so what was once right stays so, and looking takes little from the servers, which are to catch up.
    let unlike = threads(nodes.targets.len(), |node, _| {
        let mut left = Vec::new();
        for user in 1..=WRITERS {
            let mut imap = nodes.targets[node].login(user)?;
            while account_bytes(&mut imap)? != ledger.bytes(user) {
                if started.elapsed() > AGREE_WAIT_MAX {
                    left.push(user);
                    break;
                }
                std::thread::sleep(AGREE_PAUSE);
            }
            imap.logout()?;
        }
        Ok((left, Instant::now()))
    })?;
    let mut accounts = std::collections::BTreeSet::new();
    for (left, at) in unlike {
        accounts.extend(left);
        last = last.max(at);
    }
    Ok((last - started, accounts.len()))
}
