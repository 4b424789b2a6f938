//! RETR and TOP: octets, sizes, pipelines, damage.

use proptest::prelude::*;
use whimbrel_frontend::session::Note;

use super::world::{Cut, World};

/// What a client that is strict about CRLF reads, and the rest of the answer.
fn unstuffed(answer: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut message = Vec::new();
    let mut rest = answer;
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n").unwrap() + 2;
        let (line, after) = rest.split_at(end);
        rest = after;
        match line {
            b".\r\n" => return (message, rest),
            [b'.', line @ ..] | line => message.extend_from_slice(line),
        }
    }
}

fn text(lines: usize) -> Vec<u8> {
    let mut text = b"Subject: x\r\n\r\n".to_vec();
    for n in 0..lines {
        text.extend(format!("{}line {n} of a message\r\n", ".".repeat(n % 4)).bytes());
    }
    text
}

#[test]
fn large_messages_in_pieces() {
    let mut world = World::new(Cut::AtOnce);
    let body = text(40_000);
    world.put("INBOX", b"X-Prefix: 1\r\n", &body);
    world.login("a");
    let size = body.len() + 13;
    assert_eq!(world.ask("LIST 1"), format!("+OK 1 {size}\r\n"));
    world.send(b"RETR 1\r\nNOOP\r\n");
    let told = world.told().into_bytes();
    let rest = told
        .strip_prefix(format!("+OK {size} octets\r\n").as_bytes())
        .unwrap();
    let (message, rest) = unstuffed(rest);
    assert_eq!(message, [b"X-Prefix: 1\r\n", &body[..]].concat());
    assert_eq!(rest, b"+OK NOOP completed\r\n");
    // A chunk is at most doubled by its dots.
    assert!(world.client().largest_send < 3 * 64 * 1024);
    // TOP reads as far as it must.
    world.client().calls.clear();
    let top = world.ask("TOP 1 3");
    assert_eq!(top.lines().count(), 1 + 3 + 3 + 1);
    assert_eq!(world.client().calls.get("BlobRead"), Some(&1));
    let all = world.ask(&format!("TOP 1 {}", u64::MAX));
    assert_eq!(all.len(), told.len() - b"+OK NOOP completed\r\n".len());
}

/// A client that does not wait: the same answers, with far fewer questions to the owner.
#[test]
fn pipelines() {
    let mut world = World::new(Cut::AtOnce);
    let mut expected = String::new();
    for n in 0..100 {
        let body = format!("{n}\r\n.dot\r\n");
        world.put("INBOX", b"", body.as_bytes());
        if n % 10 != 3 {
            expected += &format!("+OK {} octets\r\n{n}\r\n..dot\r\n.\r\n", body.len());
        }
    }
    world.login("a");
    let mut commands = String::new();
    for n in 0..100 {
        let verb = if n % 10 == 3 { "DELE" } else { "RETR" };
        commands += &format!("{verb} {}\r\n", n + 1);
    }
    world.client().calls.clear();
    world.send(commands.as_bytes());
    let told = world.told().replace("+OK Marked as deleted\r\n", "");
    assert_eq!(told, expected);
    let calls = &world.client().calls;
    assert!(calls["Rows"] <= 10 && calls["Contents"] <= 10, "{calls:?}");
    assert!(calls["BlobReadMany"] <= 10, "{calls:?}");
    assert_eq!(calls.get("BlobRead"), None, "{calls:?}");
    // The same without a pipeline holds nothing between two commands.
    world.connect("b", true);
    world.send(b"USER anne\r\nPASS secret\r\n");
    world.told();
    let before = {
        use whimbrel_frontend::session::Session as _;
        assert!(world.client().session.wants_input());
        world.client().session.buffered_bytes()
    };
    world.ask("RETR 1");
    assert_eq!(world.client().session.buffered_bytes(), before);
    // Backwards and again.
    world.send(b"RETR 3\r\nRETR 1\r\nRETR 1\r\nRETR 2\r\nNOOP\r\n");
    let told = world.told();
    let bodies: Vec<&str> = told
        .lines()
        .filter(|line| line.parse::<u32>().is_ok())
        .collect();
    assert_eq!(bodies, ["2", "0", "0", "1"]);
}

/// What is read together has a bound, whatever the messages are: those that do not fit are read when their turn comes.
#[test]
fn pipelines_of_messages_of_all_sizes() {
    for sheds in [false, true] {
        all_sizes(sheds);
    }
}

fn all_sizes(sheds: bool) {
    let mut world = World::new(Cut::AtOnce);
    world.sheds = sheds;
    let sizes = [10, 3000, 5, 1, 7000, 2000, 40_000, 3, 0, 2, 900];
    let bodies = sizes.map(text);
    for body in &bodies {
        world.put("INBOX", b"A: 1\r\n", body);
    }
    world.login("a");
    let count = bodies.len();
    let all: String = (1..=count).map(|n| format!("RETR {n}\r\n")).collect();
    world.send(all.as_bytes());
    let told = world.told().into_bytes();
    let mut rest = &told[..];
    for body in &bodies {
        let whole = [b"A: 1\r\n", &body[..]].concat();
        let status = format!("+OK {} octets\r\n", whole.len());
        let (message, after) = unstuffed(rest.strip_prefix(status.as_bytes()).unwrap());
        assert!(message == whole, "{status}");
        rest = after;
    }
    assert!(rest.is_empty());
    // TOP reads less of each, and a RETR behind it goes on from there.
    let mixed: String = (1..=count)
        .map(|n| match n % 2 {
            0 => format!("RETR {n}\r\n"),
            _ => format!("TOP {n} 1\r\n"),
        })
        .collect();
    world.send(mixed.as_bytes());
    let told = world.told().into_bytes();
    let mut rest = &told[..];
    for (n, body) in (1..).zip(&bodies) {
        let end = rest.windows(2).position(|pair| pair == b"\r\n").unwrap() + 2;
        let (message, after) = unstuffed(&rest[end..]);
        let whole = [b"A: 1\r\n", &body[..]].concat();
        let expected = match n % 2 {
            0 => whole.len(),
            _ => whole
                .len()
                .min("A: 1\r\nSubject: x\r\n\r\nline 0 of a message\r\n".len()),
        };
        assert!(whole[..expected] == message, "{n}");
        rest = after;
    }
    assert!(rest.is_empty());
}

/// An answer with content rows has a bound: the messages of which it has none are there all the same, also to a client that passes over the last of
/// those of which it has one.
#[test]
fn pipelines_of_messages_with_long_rows() {
    let mut world = World::new(Cut::AtOnce);
    let prefix = b"X-Long: 1\r\n".repeat(10_000);
    for n in 0..8 {
        world.put("INBOX", &prefix, format!("{n}\r\n").as_bytes());
    }
    world.login("a");
    for wanted in [&[1, 2, 3, 4, 5, 6, 7, 8][..], &[1, 6, 7], &[2, 4, 8]] {
        let all: String = wanted.iter().map(|n| format!("RETR {n}\r\n")).collect();
        world.send(all.as_bytes());
        let told = world.told();
        let bodies = told.lines().filter_map(|line| line.parse::<u32>().ok());
        assert!(bodies.eq(wanted.iter().map(|n| n - 1)), "{wanted:?}");
    }
}

/// While nothing is taken, nothing more is read than has its bound.
#[test]
fn a_pipeline_that_is_not_read_is_small() {
    let mut world = World::new(Cut::AtOnce);
    let body = text(1300);
    for _ in 0..16 {
        world.put("INBOX", b"", &body);
    }
    world.login("a");
    world.client().takes = 1;
    let all: String = (1..=16).map(|n| format!("RETR {n}\r\n")).collect();
    world.send(all.as_bytes());
    let held = world.client().session.buffered_bytes();
    // The output, with a message that begins where it is full, and what was read; all of them are 500 KiB.
    assert!(held < (64 + 64 + 128 + 16) * 1024, "{held} bytes are held");
    assert!(held > body.len());
    world.client().takes = usize::MAX;
    world.run();
    assert_eq!(world.told().matches("+OK").count(), 16);
}

/// Whatever cannot be read is told before a message begins, or cuts the connection: a client must not take a piece for the whole.
#[test]
fn bodies_that_are_not_what_they_should_be() {
    let mut world = World::new(Cut::AtOnce);
    world.put_sized("INBOX", b"", b"", 5);
    world.put_sized("INBOX", b"A: 1\r\n", b"", 5);
    world.put("INBOX", b"A: 1\r\n", b"");
    world.put_sized("INBOX", b"", b"two\r\n", 10);
    world.login("a");
    world.send(b"RETR 1\r\nRETR 2\r\nRETR 3\r\nRETR 4\r\nNOOP\r\n");
    assert_eq!(
        world.told(),
        "-ERR [SYS/TEMP] Message was removed by another session\r\n-ERR [SYS/PERM] Message cannot be read\r\n\
         +OK 6 octets\r\nA: 1\r\n.\r\n+OK 10 octets\r\ntwo\r\n"
    );
    assert!(world.client().closed);
    assert!(
        world
            .client()
            .notes
            .contains(&Note::Closed("a body could not be read"))
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn sizes_are_the_octets_that_are_sent(
        bodies in proptest::collection::vec("([.a: ]{0,5}\r\n){0,8}[.a]{0,2}", 1..5),
        prefix in "(B: 1\r\n)?",
        sizes in proptest::collection::vec(1usize..30, 1..4),
    ) {
        let mut world = World::new(Cut::Sizes(sizes));
        for body in &bodies {
            world.put("INBOX", prefix.as_bytes(), body.as_bytes());
        }
        world.login("a");
        let mut octets = 0;
        for (n, body) in (1..).zip(&bodies) {
            let listed = world.ask(&format!("LIST {n}"));
            let told = world.ask(&format!("RETR {n}"));
            let (first, rest) = told.split_once("\r\n").unwrap();
            let (message, rest) = unstuffed(rest.as_bytes());
            let mut whole = format!("{prefix}{body}");
            if !body.is_empty() && !body.ends_with("\r\n") {
                whole += "\r\n";
            }
            octets += whole.len();
            prop_assert_eq!(&message, whole.as_bytes());
            prop_assert_eq!(rest, b"");
            prop_assert_eq!(listed, format!("+OK {n} {}\r\n", message.len()));
            prop_assert_eq!(first, format!("+OK {} octets", message.len()));
        }
        let count = bodies.len();
        prop_assert_eq!(world.ask("STAT"), format!("+OK {count} {octets}\r\n"));
        world.ask("DELE 1");
        let told = world.ask("RSET\r\nRETR 1");
        let of_first = told.lines().nth(1).and_then(|line| line.split(' ').nth(1)).unwrap();
        world.ask("DELE 1");
        let left = octets - of_first.parse::<usize>().unwrap();
        prop_assert_eq!(world.ask("STAT"), format!("+OK {} {left}\r\n", count - 1));
    }
}
