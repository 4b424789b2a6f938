//! Big mailboxes and big messages: chunk borders, and that memory does not follow what is asked.

use super::world::{Cut, World};

fn selected(fill: impl FnOnce(&mut World)) -> World {
    let mut world = World::new(Cut::AtOnce);
    fill(&mut world);
    world.connect("1", true);
    world.send("1", b"a LOGIN anne secret\r\nb SELECT INBOX\r\n");
    assert!(said(&mut world).contains("b OK"));
    world
}

fn said(world: &mut World) -> String {
    String::from_utf8(std::mem::take(&mut world.get("1").outbox)).unwrap()
}

fn command(world: &mut World, text: &str) -> String {
    world.send("1", format!("x {text}\r\n").as_bytes());
    let said = said(world);
    assert!(
        said.lines()
            .last()
            .is_some_and(|line| line.starts_with("x ")),
        "{text}: {said}"
    );
    said
}

const SEND_BYTES_MAX: usize = 200 * 1024;

#[test]
fn chunks_of_rows() {
    for count in [1, 63, 64, 65, 1023, 1024, 1025, 2049] {
        let mut world = selected(|world| {
            world.fake.fill("INBOX", count, |n| {
                format!("Subject: s{n}\r\n\r\nt{n}\r\n").into_bytes()
            })
        });
        let flags = command(&mut world, "FETCH 1:* FLAGS");
        assert_eq!(flags.matches("FLAGS ()").count(), count as usize);
        let envelopes = command(&mut world, "FETCH 1:* (ENVELOPE)");
        for n in 1..=count {
            assert!(
                envelopes.contains(&format!("* {n} FETCH (ENVELOPE (NIL \"s{n}\" ")),
                "{n} of {count}"
            );
        }
        let seen = command(&mut world, "FETCH 1:* (BODY[TEXT])");
        assert_eq!(
            seen.matches("FLAGS (\\Seen) BODY[TEXT]").count(),
            count as usize
        );
        let again = command(&mut world, "NOOP");
        assert_eq!(
            again.lines().count(),
            1,
            "own changes are told once: {again}"
        );
        let stored = command(&mut world, "STORE 1:* -FLAGS (\\Seen)");
        assert_eq!(stored.lines().count(), count as usize + 1);
        let silent = command(&mut world, "STORE 1:* +FLAGS.SILENT (\\Deleted)");
        assert_eq!(silent.lines().count(), 1, "{silent}");
        let found = command(&mut world, &format!("SEARCH TEXT t{count}"));
        assert!(
            found.starts_with(&format!("* SEARCH {count}\r\n")),
            "{found}"
        );
        let expunged = command(&mut world, "EXPUNGE");
        assert_eq!(expunged.matches("EXPUNGE\r\n").count(), count as usize);
        assert!(world.get("1").largest_send <= SEND_BYTES_MAX);
    }
}

/// When memory is short: what a client does not take is dropped, and read again when it goes on.
#[test]
fn answers_are_the_same_when_what_was_read_is_dropped() {
    let answers = |sheds: bool| {
        let mut world = selected(|world| {
            world.fake.fill("INBOX", 1100, |n| {
                let text = "word\r\n".repeat(n as usize % 300 * if n % 100 == 0 { 300 } else { 1 });
                format!("Subject: s{n}\r\n\r\n{text}end {n}\r\n").into_bytes()
            });
        });
        world.sheds = sheds;
        let said = [
            "FETCH 1:* (FLAGS)",
            "FETCH 1:* (ENVELOPE BODYSTRUCTURE)",
            "FETCH 1:* (BODY.PEEK[] BODY.PEEK[HEADER.FIELDS (SUBJECT)])",
            "FETCH 1:* (UID BODY[TEXT])",
            "UID FETCH 1:* (FLAGS PREVIEW)",
            "SEARCH BODY \"end 7\"",
            "SORT (REVERSE SUBJECT) UTF-8 TEXT \"end 9\"",
            "UID THREAD REFERENCES UTF-8 BODY \"end 11\"",
            "FETCH 1:* (FLAGS)",
        ]
        .map(|text| command(&mut world, text));
        let calls = world.get("1").calls.clone();
        (said, calls)
    };
    let ((said, calls), (said_again, calls_again)) = (answers(false), answers(true));
    for (said, again) in said.iter().zip(&said_again) {
        assert!(said == again, "{said}\n--\n{again}");
    }
    for call in ["Rows", "Contents"] {
        assert!(calls[call] < calls_again[call], "{call} was not read again");
    }
}

#[test]
fn another_sessions_changes_come_in_chunks() {
    let mut world = selected(|world| world.fake.fill("INBOX", 3000, |_| b"x".to_vec()));
    world.connect("2", true);
    world.send(
        "2",
        b"a LOGIN anne secret\r\nb SELECT INBOX\r\nc STORE 1:* +FLAGS.SILENT (\\Seen)\r\n",
    );
    let told = command(&mut world, "NOOP");
    assert_eq!(told.matches("FETCH (FLAGS (\\Seen))").count(), 3000);
    assert_eq!(command(&mut world, "NOOP").lines().count(), 1);
}

#[test]
fn copyuid_and_modified_of_many() {
    let mut world = selected(|world| world.fake.fill("INBOX", 20_000, |_| b"x".to_vec()));
    let copied = command(&mut world, "COPY 1:* Sent");
    let code = copied
        .split_once("COPYUID 7 ")
        .unwrap()
        .1
        .split_once(']')
        .unwrap()
        .0;
    let (from, to) = code.split_once(' ').unwrap();
    assert_eq!(
        (from.split(',').count(), to.split(',').count()),
        (20_000, 20_000)
    );
    let modified = command(
        &mut world,
        "UID STORE 1:* (UNCHANGEDSINCE 1) +FLAGS (\\Seen)",
    );
    let code = modified
        .split_once("MODIFIED ")
        .unwrap()
        .1
        .split_once(']')
        .unwrap()
        .0;
    assert_eq!(code.split(',').count(), 20_000);
    let moved = command(&mut world, "MOVE 1:* Trash");
    assert_eq!(moved.matches(" EXPUNGE\r\n").count(), 20_000);
    assert!(moved.contains("* OK [COPYUID 7 ") && moved.find("COPYUID") < moved.find("EXPUNGE"));
    assert!(world.get("1").largest_send <= SEND_BYTES_MAX);
}

/// RFC 9394: "this also helps servers to optimize resource usage when performing searches".
#[test]
fn a_part_of_the_results_does_not_cost_all_of_them() {
    let mut world = selected(|world| world.fake.fill("INBOX", 9_000, |_| b"x".to_vec()));
    let mut check = |returns: &str, expected: &str| {
        world.get("1").calls.clear();
        let found = command(&mut world, &format!("SEARCH RETURN ({returns}) UNSEEN"));
        assert!(
            found.starts_with(&format!("* ESEARCH (TAG \"x\") {expected}\r\n")),
            "{found}"
        );
        world.get("1").calls.get("Flagged").copied()
    };
    assert_eq!(check("PARTIAL 1:3", "PARTIAL (1:3 1:3)"), Some(1));
    assert_eq!(
        check("PARTIAL -1:-3 MAX", "MAX 9000 PARTIAL (-1:-3 8998:9000)"),
        Some(1)
    );
    assert_eq!(
        check("PARTIAL -3000:-2999", "PARTIAL (-3000:-2999 6001:6002)"),
        Some(3)
    );
    assert_eq!(check("MAX", "MAX 9000"), Some(1));
    assert_eq!(
        check("PARTIAL -1:-3 MIN", "MIN 1 PARTIAL (-1:-3 8998:9000)"),
        Some(9)
    );
}

#[test]
fn search_results_of_many() {
    let mut world = selected(|world| world.fake.fill("INBOX", 30_000, |_| b"x".to_vec()));
    let found = command(&mut world, "SEARCH ALL");
    assert_eq!(found.lines().next().unwrap().split(' ').count(), 30_002);
    let found = command(&mut world, "UID SEARCH RETURN (ALL COUNT) ALL");
    assert!(found.contains(" COUNT 30000 ALL "));
    assert_eq!(
        found
            .lines()
            .next()
            .unwrap()
            .rsplit(' ')
            .next()
            .unwrap()
            .split(',')
            .count(),
        30_000
    );
    assert!(command(&mut world, "SEARCH RETURN (ALL) ALL").contains("ALL 1:30000\r\n"));
    assert!(
        !world.get("1").calls.contains_key("Rows"),
        "numbers alone need no rows"
    );
    // What bounds the search is used: one window of rows at most.
    command(&mut world, "SEARCH 5:7 UNSEEN");
    assert_eq!(world.get("1").calls["Flagged"], 1);
    assert!(world.get("1").largest_send <= SEND_BYTES_MAX);
}

/// Of a message that was stored without, a preview is made of its text when it is asked for, unless the client is in a hurry.
#[test]
fn previews_made_late() {
    let text = "Subject: s\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<style>x</style><p>Hello, <b>w\u{f6}rld</b>!</p>\r\n";
    let mut world = selected(|world| {
        world.fake.no_previews = true;
        world.fake.fill("INBOX", 2, |_| text.as_bytes().to_vec());
        world
            .fake
            .deliver("INBOX", b"X-Trace: a\r\n", text.as_bytes());
        world
            .fake
            .deliver("INBOX", b"", b"Content-Type: image/png\r\n\r\nx");
        // A long way to the text.
        let hidden = format!(
            "Content-Type: text/html\r\n\r\n<!--{}-->found",
            "x".repeat(50_000)
        );
        world.fake.deliver("INBOX", b"", hidden.as_bytes());
        let lost = format!(
            "Content-Type: text/html\r\n\r\n<!--{}-->lost",
            "x".repeat(70_000)
        );
        world.fake.deliver("INBOX", b"", lost.as_bytes());
        world.fake.no_previews = false;
        world.fake.fill("INBOX", 1, |_| text.as_bytes().to_vec());
    });
    let literal = "PREVIEW {14}\r\nHello, w\u{f6}rld!";
    let lazily = command(&mut world, "FETCH 1:* (UID PREVIEW (LAZY))");
    assert_eq!(lazily.matches(" PREVIEW NIL)\r\n").count(), 6, "{lazily}");
    assert_eq!(lazily.matches(literal).count(), 1, "{lazily}");
    assert!(!world.get("1").calls.contains_key("BlobRead"));
    let made = command(&mut world, "FETCH 1:* (PREVIEW UID)");
    assert_eq!(made.matches(literal).count(), 4, "{made}");
    assert_eq!(made.matches("PREVIEW \"\" UID").count(), 2, "{made}");
    assert_eq!(made.matches("PREVIEW \"found\" UID").count(), 1, "{made}");
    assert!(!made.contains("NIL"));
    // One short message is one read; none is read further than its preview needs.
    world.get("1").calls.clear();
    command(&mut world, "FETCH 1 PREVIEW");
    assert_eq!(world.get("1").calls["BlobRead"], 1);
    world.get("1").calls.clear();
    command(&mut world, "FETCH 6 PREVIEW");
    assert_eq!(world.get("1").calls["BlobRead"], 64 / 4);
}

/// What stands in rows decides these keys: not one content row is read for them, nor for an order by what stands there.
#[test]
fn rows_need_no_contents() {
    let mut world = selected(|world| {
        world.fake.fill("INBOX", 3_000, |n| {
            format!("Subject: s{n}\r\n\r\nt\r\n").into_bytes()
        })
    });
    for keys in [
        "UNSEEN",
        "OR SEEN KEYWORD $Junk",
        "NOT (FLAGGED DRAFT) 5:2000",
        "UID 1:* SINCE 1-Jan-1990 NOT BEFORE 1-Jan-1990",
        "OLDER 1",
        "LARGER 1 SMALLER 100000 MODSEQ 1",
        // What the row says no to is not asked for.
        "SEEN TEXT never",
    ] {
        command(&mut world, &format!("SEARCH {keys}"));
        command(
            &mut world,
            &format!("SORT (ARRIVAL REVERSE SIZE) UTF-8 {keys}"),
        );
    }
    assert!(!world.get("1").calls.contains_key("Contents"));
    command(&mut world, "SORT (SIZE SUBJECT) UTF-8 1");
    assert_eq!(world.get("1").calls["Contents"], 1);
}

/// Sorting and threading a large mailbox is cut into slices, between which other sessions go on; a number a message is what an answer holds.
#[test]
fn sorts_and_threads_of_many() {
    let count = 30_000;
    let mut world = selected(|world| {
        world.fake.fill("INBOX", count, |n| {
            let parent = n / 3;
            format!(
                "Subject: s{}\r\nMessage-ID: <{n}@x>\r\nReferences: <{parent}@x>\r\n\r\n",
                n % 1000
            )
            .into_bytes()
        })
    });
    let mut expected: Vec<u32> = (1..=count).collect();
    let numbers = |said: &str| -> Vec<u32> {
        let line = said.lines().next().unwrap();
        let numbers = line.split(|c: char| !c.is_ascii_digit());
        numbers.filter_map(|n| n.parse().ok()).collect()
    };
    for text in [
        "SORT (SUBJECT) UTF-8 ALL",
        "SORT (REVERSE SIZE DATE) UTF-8 ALL",
        "THREAD ORDEREDSUBJECT UTF-8 ALL",
        "THREAD REFERENCES UTF-8 ALL",
    ] {
        world.get("1").yields = 0;
        let mut found = numbers(&command(&mut world, text));
        found.sort_unstable();
        assert_eq!(found, expected, "{text}");
        assert!(
            world.get("1").yields >= 8,
            "{text}: {}",
            world.get("1").yields
        );
    }
    let found = numbers(&command(&mut world, "SORT (SUBJECT) UTF-8 ALL"));
    expected.sort_by_key(|n| (format!("s{}", n % 1000), *n));
    assert_eq!(found, expected);
    assert!(world.get("1").largest_send <= SEND_BYTES_MAX);
}

#[test]
fn metadata_opens_no_body() {
    let mut world = selected(|world| {
        world.fake.fill("INBOX", 3, |n| {
            format!("Subject: s{n}\r\n\r\nt\r\n").into_bytes()
        })
    });
    command(&mut world, "FETCH 1:* (FULL)");
    command(
        &mut world,
        "FETCH 1:* (UID BODYSTRUCTURE BODY.PEEK[HEADER.FIELDS (From To Subject Date)])",
    );
    command(&mut world, "SEARCH SUBJECT s2 SENTSINCE 1-Jan-1990 FROM x");
    assert!(!world.get("1").calls.contains_key("BlobRead"));
    command(
        &mut world,
        "FETCH 1 (FLAGS UID INTERNALDATE RFC822.SIZE MODSEQ)",
    );
    let contents = world.get("1").calls["Contents"];
    command(
        &mut world,
        "FETCH 1 (FLAGS UID INTERNALDATE RFC822.SIZE MODSEQ)",
    );
    assert_eq!(world.get("1").calls["Contents"], contents);
}

fn long_message() -> Vec<u8> {
    let mut text = b"Subject: long\r\nX-First: 1\r\n".to_vec();
    for n in 0..9000 {
        text.extend_from_slice(format!("X-Number: {n} is a number among many\r\n").as_bytes());
    }
    text.extend_from_slice(b"X-Last: 1\r\n\r\n");
    for n in 0..20_000 {
        text.extend_from_slice(format!("Line {n} of the body.\r\n").as_bytes());
    }
    text.extend_from_slice(b"needle\r\n");
    text
}

#[test]
fn long_bodies_and_headers() {
    let text = long_message();
    let header_len = text.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    let mut world = selected(|world| {
        let text = text.clone();
        world.fake.fill("INBOX", 1, move |_| text.clone());
    });
    let literal = |said: &str, name: &str| -> Vec<u8> {
        let rest = said
            .split_once(&format!("{name} {{"))
            .unwrap_or_else(|| panic!("{name}"))
            .1;
        let (len, rest) = rest.split_once("}\r\n").unwrap();
        rest.as_bytes()[..len.parse().unwrap()].to_vec()
    };
    let whole = command(&mut world, "FETCH 1 BODY.PEEK[]");
    assert!(literal(&whole, "BODY[]") == text);
    let header = command(&mut world, "FETCH 1 BODY.PEEK[HEADER]");
    assert!(literal(&header, "BODY[HEADER]") == text[..header_len]);
    let part = command(&mut world, "FETCH 1 BODY.PEEK[]<100000.200000>");
    assert!(literal(&part, "BODY[]<100000>") == text[100_000..300_000]);
    let mut others = b"X-First: 1\r\n".to_vec();
    others.extend_from_slice(&text[b"Subject: long\r\nX-First: 1\r\n".len()..header_len]);
    let filtered = command(&mut world, "FETCH 1 BODY.PEEK[HEADER.FIELDS.NOT (Subject)]");
    assert!(literal(&filtered, "BODY[HEADER.FIELDS.NOT (Subject)]") == others);
    let part = command(
        &mut world,
        "FETCH 1 BODY.PEEK[HEADER.FIELDS.NOT (Subject)]<70000.150000>",
    );
    assert!(literal(&part, "BODY[HEADER.FIELDS.NOT (Subject)]<70000>") == others[70_000..220_000]);
    let odd = command(&mut world, "FETCH 1 BODY.PEEK[HEADER.FIELDS (X-Last)]");
    assert_eq!(
        literal(&odd, "BODY[HEADER.FIELDS (X-Last)]"),
        b"X-Last: 1\r\n\r\n"
    );
    assert!(command(&mut world, "SEARCH HEADER X-Last 1").starts_with("* SEARCH 1\r\n"));
    assert!(command(&mut world, "SEARCH BODY needle").starts_with("* SEARCH 1\r\n"));
    assert!(world.get("1").largest_send <= SEND_BYTES_MAX);
}

#[test]
fn a_search_reads_no_further_than_needed() {
    let text = long_message();
    let mut world = selected(|world| {
        let text = text.clone();
        world.fake.fill("INBOX", 1, move |_| text.clone());
    });
    command(&mut world, "SEARCH BODY {6+}\r\nneedle");
    let all = world.get("1").calls["BlobRead"];
    command(&mut world, "SEARCH BODY \"Line 3 of\"");
    let few = world.get("1").calls["BlobRead"] - all;
    assert!(few * 4 < all, "{few} reads, {all} for the whole");
    command(&mut world, "SEARCH SEEN BODY needle");
    assert_eq!(
        world.get("1").calls["BlobRead"],
        all + few,
        "what is cheap decides first"
    );
}

/// Many short messages cost few calls, whatever is asked of them, and long ones between them are read by themselves.
#[test]
fn short_messages_are_read_together() {
    let size = |n: u32| {
        if n % 10 == 3 {
            100_000
        } else {
            700 * (n as usize % 7)
        }
    };
    let text = move |n| {
        format!(
            "Subject: s{n}\r\nX-Odd: {n}\r\n\r\n{}t{n}\r\n",
            "x".repeat(size(n))
        )
    };
    let mut world = selected(|world| world.fake.fill("INBOX", 100, |n| text(n).into_bytes()));
    let said = command(
        &mut world,
        "FETCH 1:* (BODY.PEEK[] BODY.PEEK[HEADER] PREVIEW)",
    );
    for n in 1..=100 {
        let text = text(n);
        assert!(
            said.contains(&format!(
                "* {n} FETCH (BODY[] {{{}}}\r\n{text} BODY[HEADER] {{",
                text.len()
            )),
            "{n}"
        );
    }
    let calls = &world.get("1").calls;
    assert!(calls["BlobReadMany"] <= 13, "{calls:?}");
    assert!(calls["BlobRead"] <= 40, "{calls:?}");
    world.get("1").calls.clear();
    let found = command(&mut world, "SEARCH BODY t77");
    assert!(found.starts_with("* SEARCH 77\r\n"), "{found}");
    let calls = &world.get("1").calls;
    assert!(calls["BlobReadMany"] <= 13, "{calls:?}");
    assert!(calls["BlobRead"] <= 40, "{calls:?}");
}

/// What cannot be read is no reason to withhold the others.
#[test]
fn a_body_that_is_lost_among_others() {
    let mut world = selected(|world| {
        world.fake.fill("INBOX", 5, |n| {
            format!("Subject: s{n}\r\n\r\nt{n}\r\n").into_bytes()
        })
    });
    world.fake.lose_blob(3);
    let found = command(&mut world, "SEARCH BODY t");
    assert!(found.starts_with("* SEARCH 1 2 4 5\r\n"), "{found}");
    assert!(found.contains("some messages could not be read"), "{found}");
    let said = command(&mut world, "FETCH 4:5 BODY.PEEK[]");
    assert!(
        said.contains("t4\r\n)") && said.contains("t5\r\n)"),
        "{said}"
    );
}

#[test]
fn a_short_message_is_read_once() {
    let mut world = selected(|world| {
        world.fake.fill("INBOX", 10, |n| {
            format!("Subject: s{n}\r\nX-Odd: {n}\r\n\r\nt{n}\r\n").into_bytes()
        });
    });
    let found = command(&mut world, "SEARCH HEADER X-Odd 7 BODY t7 TEXT t7");
    assert!(found.starts_with("* SEARCH 7\r\n"), "{found}");
    assert_eq!(world.get("1").calls["BlobReadMany"], 1);
    assert!(!world.get("1").calls.contains_key("BlobRead"));
}

#[test]
fn a_long_append_is_streamed() {
    let text = long_message();
    let mut world = World::new(Cut::Sizes(vec![7000, 1, 64 * 1024, 333]));
    world.connect("1", true);
    world.send("1", b"a LOGIN anne secret\r\nb SELECT INBOX\r\n");
    said(&mut world);
    world.send(
        "1",
        format!("c APPEND INBOX {{{}+}}\r\n", text.len()).as_bytes(),
    );
    world.send("1", &text);
    world.send("1", b"\r\n");
    assert!(said(&mut world).contains("c OK [APPENDUID"));
    assert!(world.get("1").calls["BlobWrite"] <= text.len() / (64 * 1024) + 1);
    let whole = command(&mut world, "FETCH 1 BODY.PEEK[]");
    assert!(whole.contains(std::str::from_utf8(&text).unwrap()));
    assert!(command(&mut world, "FETCH 1 ENVELOPE").contains("\"long\""));
}

/// The octets that URLs name go from the store to the store, a chunk at a time, those of a prefix included.
#[test]
fn a_long_catenate_is_streamed() {
    let text = long_message();
    let prefix = b"Return-Path: <carl@example.com>\r\n";
    let mut world = selected(|world| world.fake.deliver("INBOX", prefix, &text));
    let uid = command(&mut world, "FETCH 1 UID");
    let uid: String = uid
        .chars()
        .skip_while(|c| *c != '(')
        .filter(char::is_ascii_digit)
        .collect();
    let calls =
        |world: &mut World, name: &str| world.get("1").calls.get(name).copied().unwrap_or(0);
    let answer = command(
        &mut world,
        &format!(
            "APPEND INBOX CATENATE (URL ;UID={uid} TEXT {{3+}}\r\nEND URL ;UID={uid}/;SECTION=TEXT)"
        ),
    );
    assert!(answer.contains("OK [APPENDUID"), "{answer}");
    let whole = [&prefix[..], &text].concat();
    let body = text.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    let expected = [&whole[..], b"END", &text[body..]].concat();
    let (reads, writes) = (
        calls(&mut world, "BlobRead"),
        calls(&mut world, "BlobWrite"),
    );
    // The store of this test gives 40,000 bytes at a time.
    assert!(reads <= 2 * text.len() / 40_000 + 2, "{reads}");
    assert!(writes <= expected.len() / (64 * 1024) + 1, "{writes}");
    let answer = command(&mut world, "FETCH 2 BODY.PEEK[]");
    assert!(answer.contains(std::str::from_utf8(&expected).unwrap()));
}

#[test]
fn a_prefix_is_part_of_the_message() {
    let mut world = selected(|world| {
        world.fake.deliver(
            "INBOX",
            b"Return-Path: <carl@example.com>\r\nDelivered-To: anne@example.org\r\n",
            b"Subject: hi\r\n\r\nbody\r\n",
        );
    });
    let whole = "Return-Path: <carl@example.com>\r\nDelivered-To: anne@example.org\r\nSubject: hi\r\n\r\nbody\r\n";
    let len = whole.len();
    assert!(
        command(&mut world, "FETCH 1 (RFC822.SIZE BODY.PEEK[])")
            .contains(&format!("RFC822.SIZE {len} BODY[] {{{len}}}\r\n{whole})"))
    );
    assert!(
        command(&mut world, "FETCH 1 BODY.PEEK[]<25.50>")
            .contains(&format!("{{50}}\r\n{})", &whole[25..75]))
    );
    assert!(command(&mut world, "FETCH 1 BODY.PEEK[TEXT]").contains("{6}\r\nbody\r\n)"));
    assert!(
        command(
            &mut world,
            "FETCH 1 BODY.PEEK[HEADER.FIELDS (Return-Path X)]"
        )
        .contains("Return-Path: <carl@example.com>\r\n\r\n)")
    );
    assert!(
        command(&mut world, "FETCH 1 BODY.PEEK[HEADER.FIELDS.NOT (Subject)]")
            .contains("Delivered-To: anne@example.org\r\n\r\n)")
    );
    assert!(command(&mut world, "SEARCH HEADER Delivered-To anne").starts_with("* SEARCH 1\r\n"));
    assert!(command(&mut world, "SEARCH TEXT carl@example").starts_with("* SEARCH 1\r\n"));
}

#[test]
fn a_body_that_cannot_be_read_withholds_no_other() {
    let mut world = selected(|world| {
        world.fake.fill("INBOX", 3, |n| {
            format!("Subject: {n}\r\n\r\ntext").into_bytes()
        })
    });
    world.fake.lose_blob(2);
    let said = command(&mut world, "FETCH 1:3 (UID BODY[])");
    let told: Vec<bool> = (1..=3)
        .map(|n| said.contains(&format!("* {n} FETCH (FLAGS (\\Seen) UID ")))
        .collect();
    assert_eq!(told, [true, false, true], "{said}");
    assert!(said.contains("x NO [UNAVAILABLE]"), "{said}");
    // It is seen all the same, and that is told.
    assert!(said.contains("* 2 FETCH (FLAGS (\\Seen))"), "{said}");
    assert!(command(&mut world, "FETCH 2 BODY.PEEK[]").starts_with("x NO [UNAVAILABLE]"));
}

#[test]
fn damage_is_told_and_not_guessed_at() {
    let mut world = selected(|world| {
        world
            .fake
            .fill("INBOX", 2, |_| b"Subject: s\r\n\r\nt".to_vec())
    });
    world.fake.spoil_contents();
    assert!(command(&mut world, "FETCH 1:2 ENVELOPE").starts_with("x NO [CORRUPTION]"));
    assert!(
        command(&mut world, "SEARCH SUBJECT s")
            .contains("x OK Completed, but some messages could not be read")
    );
    assert!(command(&mut world, "FETCH 1:2 FLAGS").contains("* 2 FETCH (FLAGS ())"));
    // It is seen all the same, and that is told.
    let said = command(&mut world, "FETCH 1 BODY[]") + &command(&mut world, "NOOP");
    assert!(said.contains("x NO [CORRUPTION]"), "{said}");
    assert!(said.contains("* 1 FETCH (FLAGS (\\Seen))"), "{said}");
    world.fake.lose_contents();
    assert!(command(&mut world, "FETCH 1:2 ENVELOPE").starts_with("x NO [EXPUNGEISSUED]"));
}

#[test]
fn nul_is_not_sent() {
    let mut world = selected(|world| {
        world
            .fake
            .fill("INBOX", 1, |_| b"Subject: a\0b\r\n\r\nc\0\0d\r\n".to_vec())
    });
    let said = command(&mut world, "FETCH 1 (ENVELOPE BODY.PEEK[])");
    assert!(
        !said.contains('\0') && said.contains("c??d\r\n)"),
        "{said:?}"
    );
}
