//! A client that keeps a cache by QRESYNC (RFC 7162, section 6) and loses its connection wherever it pleases: after the next resynchronization
//! its cache is the mailbox.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::world::{Cut, World};

/// What the client keeps from one connection to the next.
#[derive(Debug, Default)]
struct Cache {
    validity: u32,
    modseq: u64,
    /// Messages up to here were asked for.
    complete_to: u32,
    flags: BTreeMap<u32, BTreeSet<String>>,
}

/// What it keeps as long as it is connected.
#[derive(Debug, Default)]
struct Seen {
    /// UIDs by sequence number, as far as they are known.
    uids: Vec<Option<u32>>,
    /// Of the command in hand.
    greatest: u64,
    code: Option<u64>,
    /// EXPUNGE may not be told now.
    by_number: bool,
}

fn number_after<T: std::str::FromStr>(line: &str, word: &str) -> Option<T> {
    let (_, rest) = line.split_once(word)?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

fn set(text: &str) -> Vec<(u32, u32)> {
    text.split(',')
        .map(|part| {
            let (first, last) = part.split_once(':').unwrap_or((part, part));
            (first.parse().unwrap(), last.parse().unwrap())
        })
        .collect()
}

impl Cache {
    fn hear(&mut self, seen: &mut Seen, line: &str) {
        if let Some(uids) = line.strip_prefix("* VANISHED (EARLIER) ") {
            for (first, last) in set(uids) {
                let gone: Vec<u32> = self
                    .flags
                    .range(first..=last)
                    .map(|(uid, _)| *uid)
                    .collect();
                assert!(
                    !seen.uids.iter().flatten().any(|uid| gone.contains(uid)),
                    "{line}: it is still seen"
                );
                gone.iter().for_each(|uid| drop(self.flags.remove(uid)));
            }
            return;
        }
        if let Some(uids) = line.strip_prefix("* VANISHED ") {
            assert!(!seen.by_number, "{line} during a command by number");
            for uid in set(uids).into_iter().flat_map(|(a, b)| a..=b) {
                self.flags.remove(&uid);
                // One that is not known is one of those behind the last that is known to be lower.
                let below = |known: &Option<u32>| known.is_some_and(|known| known < uid);
                let behind = seen.uids.iter().rposition(below).map_or(0, |at| at + 1);
                let known = seen.uids.iter().position(|known| *known == Some(uid));
                let place = known.unwrap_or(behind);
                assert!(
                    known.is_some() || seen.uids.get(behind) == Some(&None),
                    "{line}: it was not seen"
                );
                seen.uids.remove(place);
            }
            return;
        }
        assert!(
            !line.ends_with(" EXPUNGE"),
            "{line} although QRESYNC is enabled"
        );
        if let Some(count) = line.strip_suffix(" EXISTS") {
            seen.uids.resize(count[2..].parse().unwrap(), None);
        }
        if let Some(modseq) = number_after(line, "[HIGHESTMODSEQ ") {
            seen.code = Some(modseq);
        }
        if let Some(validity) = number_after(line, "[UIDVALIDITY ") {
            self.validity = validity;
        }
        if line.contains(" FETCH (") {
            let number: usize = number_after(line, "* ").unwrap();
            let uid: u32 = number_after(line, "UID ").expect("RFC 7162, 3.2.4");
            let modseq: u64 = number_after(line, "MODSEQ (").expect("RFC 7162, 3.2.4");
            let known = seen.uids[number - 1].replace(uid);
            assert!(known.is_none_or(|known| known == uid), "{line}");
            seen.greatest = seen.greatest.max(modseq);
            if let Some((_, flags)) = line.split_once("FLAGS (") {
                let flags = flags.split(')').next().unwrap().split(' ');
                let flags = flags.filter(|flag| !flag.is_empty()).map(str::to_owned);
                self.flags.insert(uid, flags.collect());
            }
        }
        if line.starts_with("x ") {
            assert!(
                line.starts_with("x OK") || line.starts_with("x NO"),
                "{line}"
            );
            // "If the HIGHESTMODSEQ response code is received, the client MUST use it even if it has seen higher mod-sequences."
            self.modseq = match seen.code.take() {
                Some(code) => code,
                None => self.modseq.max(seen.greatest),
            };
            seen.greatest = 0;
        }
    }

    /// Reads what the server said, the first `lines` of it.
    fn listen(&mut self, world: &mut World, name: &str, seen: &mut Seen, lines: usize) {
        let said = std::mem::take(&mut world.get(name).outbox);
        let said = String::from_utf8(said).unwrap();
        said.lines()
            .take(lines)
            .for_each(|line| self.hear(seen, line));
        // What lies beyond is not of the cache yet.
        self.flags.retain(|uid, _| *uid <= self.complete_to);
    }

    fn command(&mut self, world: &mut World, name: &str, seen: &mut Seen, text: &str) {
        seen.by_number = false;
        world.send(name, format!("x {text}\r\n").as_bytes());
        self.listen(world, name, seen, usize::MAX);
    }

    /// Comes back. The first time, or now and then, it remembers nothing.
    fn connect(&mut self, world: &mut World, name: &str) -> Seen {
        world.connect(name, true);
        world.send(name, b"l LOGIN anne secret\r\nl ENABLE QRESYNC\r\n");
        world.get(name).outbox.clear();
        let mut seen = Seen::default();
        if self.modseq == 0 {
            self.command(world, name, &mut seen, "SELECT INBOX");
        } else {
            let (validity, modseq) = (self.validity, self.modseq);
            let known = match self.complete_to {
                0 => String::new(),
                to => format!(" 1:{to}"),
            };
            let select = format!("SELECT INBOX (QRESYNC ({validity} {modseq}{known}))");
            self.command(world, name, &mut seen, &select);
            for (known, uid) in seen.uids.iter_mut().zip(self.flags.keys()) {
                assert!(
                    known.is_none_or(|known| known == *uid),
                    "{known:?}, but {uid}"
                );
                *known = Some(*uid);
            }
        }
        self.ask_new(world, name, &mut seen);
        seen
    }

    /// Asks for what came since.
    fn ask_new(&mut self, world: &mut World, name: &str, seen: &mut Seen) {
        let from = std::mem::replace(&mut self.complete_to, u32::MAX) + 1;
        let before = self.modseq;
        self.command(
            world,
            name,
            seen,
            &format!("UID FETCH {from}:* (FLAGS MODSEQ)"),
        );
        // It is no answer about the messages before.
        self.modseq = before;
        let last = self.flags.last_key_value().map_or(0, |(uid, _)| *uid);
        self.complete_to = last.max(from - 1);
    }
}

const FLAGS: [&str; 3] = ["\\Seen", "\\Flagged", "\\Deleted"];

/// Who, what, and two numbers that say which.
type Deed = (u8, usize, usize);

fn history(mut world: World, deeds: &[Deed]) {
    world
        .fake
        .fill("INBOX", 4, |n| format!("Subject: {n}\r\n\r\n").into_bytes());
    world.connect("B", true);
    world.send("B", b"l LOGIN anne secret\r\nl SELECT INBOX\r\n");
    let mut cache = Cache::default();
    let mut connections = 0;
    let mut name = "R0".to_owned();
    let mut seen = cache.connect(&mut world, &name);
    for &(deed, a, b) in deeds {
        let flag = FLAGS[b % FLAGS.len()];
        let sign = if a % 3 == 0 { '-' } else { '+' };
        let count = seen.uids.len();
        let first = a % count.max(1) + 1;
        let last = (first + b % 3).min(count);
        let others = |world: &mut World, text: &str| {
            world.send("B", format!("x NOOP\r\nx {text}\r\n").as_bytes());
            world.get("B").outbox.clear();
        };
        let mine = match deed {
            0 => Some(("NOOP".to_owned(), false)),
            1 => Some(("EXPUNGE".to_owned(), false)),
            2 if count > 0 => Some((format!("FETCH {first}:{last} (FLAGS UID MODSEQ)"), true)),
            3 if count > 0 => Some((format!("STORE {first}:{last} {sign}FLAGS ({flag})"), true)),
            4 if count > 0 => Some((format!("UID STORE 1:* {sign}FLAGS ({flag})"), false)),
            5 => {
                others(
                    &mut world,
                    &format!("STORE {first}:{last} {sign}FLAGS ({flag})"),
                );
                None
            }
            6 => {
                others(&mut world, "EXPUNGE");
                None
            }
            7 => {
                others(&mut world, "APPEND INBOX {2+}\r\nab");
                None
            }
            8 => {
                others(&mut world, &format!("MOVE {first} Trash"));
                None
            }
            9 => {
                cache.ask_new(&mut world, &name, &mut seen);
                None
            }
            _ => {
                // It reads a part of the answer, and is gone.
                let text = match b % 3 {
                    0 => "NOOP".to_owned(),
                    1 => format!("UID STORE 1:* {sign}FLAGS ({flag})"),
                    _ => "UID FETCH 1:* (FLAGS MODSEQ)".to_owned(),
                };
                seen.by_number = false;
                world.send(&name, format!("x {text}\r\n").as_bytes());
                cache.listen(&mut world, &name, &mut seen, a % 4);
                world.eof(&name);
                world.get(&name).outbox.clear();
                connections += 1;
                name = format!("R{connections}");
                seen = cache.connect(&mut world, &name);
                check(&mut world, &cache);
                None
            }
        };
        if let Some((text, by_number)) = mine {
            seen.by_number = by_number;
            world.send(&name, format!("x {text}\r\n").as_bytes());
            cache.listen(&mut world, &name, &mut seen, usize::MAX);
        }
    }
    world.eof(&name);
    world.get(&name).outbox.clear();
    cache.connect(&mut world, "R");
    check(&mut world, &cache);
}

fn check(world: &mut World, cache: &Cache) {
    world.send("B", b"x NOOP\r\n");
    world.get("B").outbox.clear();
    world.send("B", b"x UID FETCH 1:* (FLAGS MODSEQ)\r\n");
    let said = String::from_utf8(std::mem::take(&mut world.get("B").outbox)).unwrap();
    let mut truth = Cache {
        complete_to: u32::MAX,
        ..Cache::default()
    };
    let mut seen = Seen {
        uids: vec![None; said.lines().count()],
        ..Seen::default()
    };
    said.lines()
        .filter(|line| line.contains(" FETCH "))
        .for_each(|line| truth.hear(&mut seen, line));
    assert_eq!(cache.flags, truth.flags);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_cache_is_the_mailbox(deeds in proptest::collection::vec((0u8..12, 0usize..20, 0usize..20), 1..60)) {
        history(World::new(Cut::AtOnce), &deeds);
    }

    #[test]
    fn and_on_the_real_owner(deeds in proptest::collection::vec((0u8..12, 0usize..20, 0usize..20), 1..60)) {
        history(World::real(Cut::AtOnce), &deeds);
    }
}

fn said(world: &mut World) -> String {
    String::from_utf8(std::mem::take(&mut world.get("1").outbox)).unwrap()
}

fn selected(mut world: World, count: u32) -> (World, Vec<u32>, u64) {
    world.fake.fill("INBOX", count, |_| b"x".to_vec());
    world.connect("1", true);
    world.send(
        "1",
        b"x LOGIN anne secret\r\nx ENABLE QRESYNC\r\nx SELECT INBOX\r\n",
    );
    let modseq = number_after(&said(&mut world), "[HIGHESTMODSEQ ").unwrap();
    world.send("1", b"x UID FETCH 1:* (UID)\r\n");
    let uids = said(&mut world);
    let uids = uids.lines().filter_map(|line| number_after(line, "UID "));
    (world, uids.collect(), modseq)
}

/// RFC 7162, 3.2.5.2: when the history is cut, what the client tells of its sequence numbers keeps the answer short.
#[test]
fn sequence_numbers_stand_in_for_a_history_that_is_cut() {
    let (mut world, uids, modseq) = selected(World::new(Cut::AtOnce), 9);
    let (fifth, seventh) = (uids[4], uids[6]);
    world.send("1", b"x STORE 7 +FLAGS.SILENT (\\Deleted)\r\nx EXPUNGE\r\n");
    said(&mut world);
    let ask = |world: &mut World, matched: &str| {
        world.fake.forgets = true;
        let select = format!(
            "x SELECT INBOX (QRESYNC (7 {modseq} 1:{}{matched}))\r\n",
            uids[8]
        );
        world.send("1", select.as_bytes());
        let said = said(world);
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix("* VANISHED (EARLIER) "));
        line.unwrap_or_default().to_owned()
    };
    let between = |from: usize| {
        let gaps = (from..9).map(|at| {
            let first = if at == 0 { 1 } else { uids[at - 1] + 1 };
            (first, uids[at] - 1, at)
        });
        let mut parts = Vec::new();
        let mut pending = None;
        for (first, last, at) in gaps {
            let first = pending.take().unwrap_or(first);
            if uids[at] == seventh {
                pending = Some(first);
            } else {
                parts.push(format!("{first}:{last}"));
            }
        }
        parts.join(",")
    };
    assert_eq!(ask(&mut world, ""), between(0));
    assert_eq!(
        ask(&mut world, &format!(" (1,5 {},{fifth})", uids[0])),
        between(5)
    );
    // The seventh is another message by now: only what was right before it counts.
    assert_eq!(
        ask(&mut world, &format!(" (5,7 {fifth},{seventh})")),
        between(5)
    );
    assert_eq!(ask(&mut world, &format!(" (7 {seventh})")), between(0));
}

/// The history of the real owner is bounded: a client that was away while more went than it holds is told all that it knows and is not there.
#[test]
fn more_has_vanished_than_the_history_holds() {
    let (mut world, uids, modseq) = selected(World::real(Cut::AtOnce), 18_000);
    let last = uids.len();
    world.send(
        "1",
        format!(
            "x STORE 2:{} +FLAGS.SILENT (\\Deleted)\r\nx EXPUNGE\r\n",
            last - 1
        )
        .as_bytes(),
    );
    let told = said(&mut world);
    let lines: Vec<&str> = told
        .lines()
        .filter_map(|line| line.strip_prefix("* VANISHED "))
        .collect();
    assert!(
        lines.len() > 10 && lines.iter().all(|line| line.len() < 9_000),
        "{} lines",
        lines.len()
    );
    let told: Vec<u32> = lines
        .iter()
        .flat_map(|line| set(line))
        .flat_map(|(a, b)| a..=b)
        .collect();
    assert_eq!(told, uids[1..last - 1]);
    world.send(
        "1",
        format!("x UID FETCH 1:* (FLAGS) (CHANGEDSINCE {modseq} VANISHED)\r\n").as_bytes(),
    );
    let first = (uids[0], uids[last - 1]);
    let expected = format!(
        "* VANISHED (EARLIER) 1:{},{}:{}\r\nx OK",
        first.0 - 1,
        first.0 + 1,
        first.1 - 1
    );
    let answer = said(&mut world);
    assert!(answer.starts_with(&expected), "{answer}");
    assert!(world.get("1").largest_send <= 200 * 1024);
}

/// What is asked for is what has changed, not the mailbox.
#[test]
fn a_resynchronization_asks_for_what_has_changed() {
    let (mut world, _, modseq) = selected(World::new(Cut::AtOnce), 5_000);
    world.send("1", b"x STORE 7,4000 +FLAGS.SILENT (\\Seen)\r\n");
    said(&mut world);
    world.get("1").calls.clear();
    world.send(
        "1",
        format!("x SELECT INBOX (QRESYNC (7 {modseq}))\r\n").as_bytes(),
    );
    assert_eq!(said(&mut world).matches(" FETCH (").count(), 2);
    world.send(
        "1",
        format!("x UID FETCH 1:* (FLAGS) (CHANGEDSINCE {modseq})\r\n").as_bytes(),
    );
    assert_eq!(said(&mut world).matches(" FETCH (").count(), 2);
    assert_eq!(world.get("1").calls.get("Rows"), Some(&2));
}

/// Another node may have given a message that the client knows a UID of which nothing is known here: that one has vanished, and the one that it
/// has here is told, though the client does not name it.
#[test]
fn a_client_from_elsewhere_is_told_of_what_it_does_not_name() {
    let (mut world, uids, modseq) = selected(World::real(Cut::AtOnce), 4);
    let of_another = modseq - modseq % 64 + (modseq + 1) % 64;
    for (modseq, expected) in [(modseq, &uids[..0]), (of_another, &uids[..])] {
        let (first, third) = (uids[0], uids[2]);
        let gone = third - 1;
        world.send(
            "1",
            format!("x SELECT INBOX (QRESYNC (7 {modseq} {first},{gone},{third}))\r\n").as_bytes(),
        );
        let answer = said(&mut world);
        let fetched = answer.lines().filter(|line| line.contains(" FETCH ("));
        let fetched: Vec<u32> = fetched
            .filter_map(|line| number_after(line, "UID "))
            .collect();
        assert_eq!(fetched, expected, "{answer}");
        let vanished = format!("* VANISHED (EARLIER) {gone}\r\n");
        let is_told = answer.contains(&vanished);
        assert_eq!(is_told, !expected.is_empty(), "{answer}");
    }
}
