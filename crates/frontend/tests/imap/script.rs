//! Scripts: what clients send and what they are answered.
//!
//! A line is `[NAME] VERB text`; without a name it is about connection `1`. Verbs:
//! - `C:` sends the text and CRLF, `C|` the text alone; `\r`, `\n`, `\0`, `\\` and `\xNN` are bytes.
//! - `S:` is the next line of the server: `...` stands for any text, `$x` for a number, the same one wherever `$x` stands; `$idx`
//!   for hexadecimal digits, which no other id has.
//! - `connect tls`, `connect plain`, `tls`, `eof`, `shutdown`, `closed` (the server has closed), `stop CALL` (the next call of this name is
//!   not carried out until `go`; `next` carries it out and stops at the next of its name; `late` carries it out, and `answer` gives the answer).
//! - `few COUNT`, at the beginning: one call moves or removes so many messages.
//! - `wait SECONDS`, `fill MAILBOX COUNT`, `fail CALL` (it fails with Storage), `forget` (the history of vanished messages is cut; the
//!   real owner keeps it).
//!
//! The line of SELECT that tells MAILBOXID is passed over where it is not expected.
//!
//! Whatever the server has said must be expected before the next line of the same client.

use std::collections::BTreeMap;

use whimbrel_service::api::{Ended, Event, Failure};

use super::world::{Cut, World};

/// Runs a script; panics where it does not hold.
pub(crate) fn run(file: &str, text: &str, cut: &Cut) {
    run_in(World::new(cut.clone()), file, text, cut);
}

/// Runs a script in a world that was just made.
pub(crate) fn run_in(mut world: World, file: &str, text: &str, cut: &Cut) {
    let mut numbers: BTreeMap<String, String> = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let place = format!("{file}:{}, {cut:?}\n  {line}", at + 1);
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, rest) = match line.split_once(' ') {
            Some((name, rest))
                if name.len() == 1 && name.chars().all(|c| c.is_ascii_uppercase()) =>
            {
                (name, rest)
            }
            _ => ("1", line),
        };
        let (verb, text) = rest.split_once(' ').unwrap_or((rest, ""));
        if !matches!(verb, "S:" | "wait" | "fill" | "fail" | "forget" | "connect") {
            assert_quiet(&mut world, &place);
        }
        match verb {
            "C:" => world.send(
                name,
                &[bytes(&fill_in(text, &numbers)), b"\r\n".to_vec()].concat(),
            ),
            "C|" => world.send(name, &bytes(&fill_in(text, &numbers))),
            "S:" => expect(&mut world, name, text, &mut numbers, &place),
            "connect" => world.connect(name, text == "tls"),
            "tls" => world.tls(name),
            "eof" => world.eof(name),
            "shutdown" => world.event(name, Event::Shutdown),
            "ended" => world.event(name, Event::Ended(Ended::PasswordChanged)),
            "closed" => assert!(world.get(name).closed, "{place}: not closed"),
            "stop" => world.get(name).stop_at = Some(text.to_owned()),
            "go" => world.go_on(name, false),
            "next" => world.go_on(name, true),
            "late" => world.carry_out_late(name),
            "answer" => world.answer(name),
            "few" => world.fake.few(text.parse().unwrap()),
            "wait" => world.pass(text.parse().unwrap()),
            "fill" => {
                let (mailbox, count) = text.split_once(' ').unwrap();
                world.fake.fill(mailbox, count.parse().unwrap(), |n| {
                    format!(
                        "Subject: message {n}\r\nFrom: Anne <anne@example.org>\r\n\r\nText {n}.\r\n"
                    )
                    .into_bytes()
                });
            }
            "forget" => world.fake.forgets = true,
            "fail" => world.fake.fail = Some((text.to_owned().leak(), Failure::Storage)),
            _ => panic!("{place}: no such verb"),
        }
    }
    assert_quiet(&mut world, &format!("{file}: at the end"));
    assert_eq!(
        world.fake.open_uploads(),
        0,
        "{file}: an upload was left open"
    );
    assert_eq!(world.fake.turns, 0, "{file}: a turn was kept");
}

fn assert_quiet(world: &mut World, place: &str) {
    for (name, connection) in &world.connections {
        let said = String::from_utf8_lossy(&connection.outbox);
        assert!(
            said.is_empty(),
            "{place}\nbefore it, {name} was told:\n{said}"
        );
    }
}

fn expect(
    world: &mut World,
    name: &str,
    pattern: &str,
    numbers: &mut BTreeMap<String, String>,
    place: &str,
) {
    let outbox = &mut world.get(name).outbox;
    let Some(end) = outbox.windows(2).position(|w| w == b"\r\n") else {
        let said = String::from_utf8_lossy(outbox).into_owned();
        let connection = world.get(name);
        panic!(
            "{place}\nbut there is only: {said:?}; closed: {}; {:?}",
            connection.closed, connection.notes
        );
    };
    let line: Vec<u8> = outbox.drain(..end + 2).collect();
    let line = String::from_utf8_lossy(&line[..end]).into_owned();
    if line.starts_with("* OK [MAILBOXID ") && !pattern.contains("MAILBOXID") {
        return expect(world, name, pattern, numbers, place);
    }
    assert!(
        matches(&line, pattern, numbers),
        "{place}\nbut it is:\n  S: {line}\n{numbers:?}"
    );
}

/// Whether a line is as expected. New numbers are learnt.
fn matches(line: &str, pattern: &str, numbers: &mut BTreeMap<String, String>) -> bool {
    if let Some((head, tail)) = pattern.split_once("...") {
        let learnt = numbers.clone();
        // The shortest rest first; `tail` has no further `...` in scripts.
        let ends = (0..=line.len())
            .rev()
            .filter(|&at| line.is_char_boundary(at));
        for start in (0..=line.len()).filter(|&at| line.is_char_boundary(at)) {
            if !matches(&line[..start], head, numbers) {
                numbers.clone_from(&learnt);
                continue;
            }
            let after_head = numbers.clone();
            for end in ends.clone().filter(|&end| end >= start) {
                if matches(&line[end..], tail, numbers) {
                    return true;
                }
                numbers.clone_from(&after_head);
            }
        }
        return false;
    }
    let Some((head, tail)) = pattern.split_once('$') else {
        return line == pattern;
    };
    let Some(line) = line.strip_prefix(head) else {
        return false;
    };
    let name: String = tail
        .chars()
        .take_while(char::is_ascii_alphanumeric)
        .collect();
    let is_id = name.starts_with("id");
    let digit = |c: &char| c.is_ascii_digit() || (is_id && c.is_ascii_hexdigit());
    let number: String = line.chars().take_while(digit).collect();
    // Two ids that have different names are different.
    let taken = |(other, known): (&String, &String)| *other != name && *known == number;
    if is_id && numbers.iter().any(taken) {
        return false;
    }
    if name.is_empty() {
        // A keyword such as `$Junk` is written `$$Junk`.
        let Some(rest) = line.strip_prefix('$') else {
            return false;
        };
        return matches(rest, &tail[1..], numbers);
    }
    if number.is_empty() || numbers.get(&name).is_some_and(|known| *known != number) {
        return false;
    }
    numbers.insert(name.clone(), number.clone());
    matches(&line[number.len()..], &tail[name.len()..], numbers)
}

fn fill_in(text: &str, numbers: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((head, tail)) = rest.split_once('$') {
        out.push_str(head);
        let name: String = tail
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        if name.is_empty() {
            out.push('$');
            rest = tail.strip_prefix('$').unwrap_or(tail);
        } else {
            out.push_str(
                numbers
                    .get(&name)
                    .unwrap_or_else(|| panic!("${name} is not known")),
            );
            rest = &tail[name.len()..];
        }
    }
    out + rest
}

fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'\\' {
            out.push(first);
            continue;
        }
        match tail.first() {
            Some(b'r') => out.push(b'\r'),
            Some(b'n') => out.push(b'\n'),
            Some(b'0') => out.push(0),
            Some(b'x') => {
                out.push(
                    u8::from_str_radix(std::str::from_utf8(&tail[1..3]).unwrap(), 16).unwrap(),
                );
                rest = &tail[3..];
                continue;
            }
            // All others stand for themselves: \Seen needs no second backslash.
            _ => {
                out.push(b'\\');
                continue;
            }
        }
        rest = &tail[1..];
    }
    out
}
