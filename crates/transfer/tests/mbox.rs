//! mbox: what is written is read, and a cut changes nothing.

use proptest::prelude::*;
use whimbrel_transfer::{
    lines::ToCrlf,
    mbox::{
        AHEAD_BYTES, Event, FLAGS_MAX, Kept, NotMbox, Quoting, Reader, Writer, file_name, level,
    },
};

type Message = (i64, Vec<u8>, Vec<String>);

/// Reads a file in pieces of these sizes; messages, and all that it says of each.
fn read_all(
    file: &[u8],
    quoting: Quoting,
    sizes: &[usize],
) -> Result<Vec<(Vec<u8>, Kept)>, NotMbox> {
    let mut found: Vec<(Vec<u8>, Kept)> = Vec::new();
    let mut lines = ToCrlf::new();
    let ahead = |at: u64| {
        let rest = file.iter().skip(usize::try_from(at).unwrap());
        rest.take(AHEAD_BYTES).copied().collect()
    };
    let mut tell = |event: Event<'_>| match event {
        Event::Begin => {
            found.push(Default::default());
            lines = ToCrlf::new();
        }
        Event::Bytes(bytes) => lines.push(bytes, &mut found.last_mut().unwrap().0),
        Event::End(kept) => found.last_mut().unwrap().1 = kept,
    };
    let mut reader = Reader::new(quoting);
    let mut rest = file;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let (part, after) = rest.split_at((*sizes.next().unwrap()).clamp(1, rest.len()));
        reader.push(part, &ahead, &mut tell)?;
        rest = after;
    }
    reader.finish(&mut tell)?;
    Ok(found)
}

/// As [`read_all`], of a file in which each message has a date.
fn read(file: &[u8], quoting: Quoting, sizes: &[usize]) -> Result<Vec<Message>, NotMbox> {
    let found = read_all(file, quoting, sizes)?.into_iter();
    Ok(found
        .map(|(bytes, kept)| (kept.seconds.unwrap(), bytes, kept.flags))
        .collect())
}

fn write(messages: &[Message]) -> (Vec<u8>, Vec<bool>) {
    let mut out = Vec::new();
    let exact = messages.iter().map(|(seconds, bytes, flags)| {
        let mut writer = Writer::new(*seconds, flags, &mut out);
        writer.push(bytes, &mut out);
        writer.finish(&mut out)
    });
    let exact = exact.collect();
    (out, exact)
}

fn flags(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn files_of_others() {
    let check = |file: &str, quoting, expected: &[(i64, &str, &[&str])]| {
        let expected: Vec<Message> = expected
            .iter()
            .map(|(seconds, text, words)| (*seconds, text.as_bytes().to_vec(), flags(words)))
            .collect();
        for size in [1, 2, 7, 10_000] {
            assert_eq!(
                read(file.as_bytes(), quoting, &[size]).unwrap(),
                expected,
                "{file}"
            );
        }
    };
    check("", Quoting::Rd, &[]);
    check("\n\n", Quoting::Rd, &[]);
    check(
        "From a@b Thu Jan  1 00:00:07 1970\nSubject: x\nStatus: RO\nX-Status: AF\nX-Keywords: b a\nX-UID: 7\n\nStatus: R\n>From x\n>>From y\n\n\
         From a b Fri Jan 02 00:00 1970\n\nc\n\nFrom here on\n",
        Quoting::Rd,
        &[
            (
                7,
                "Subject: x\r\n\r\nStatus: R\r\nFrom x\r\n>From y\r\n",
                &["\\Answered", "\\Flagged", "\\Seen", "a", "b"],
            ),
            (86_400, "\r\nc\r\n\r\nFrom here on\r\n", &[]),
        ],
    );
    let zones =
        "From a Thu Jan  1 02:00:00 1970 +0200\nA: b\n\nFrom a Thu Jan  1 02:00:00 EST 1970\nA: c";
    check(
        zones,
        Quoting::Rd,
        &[(0, "A: b\r\n", &[]), (7200, "A: c", &[])],
    );
    let quoted = "From a Thu Jan  1 00:00:00 1970\n\n>From x\n>>From y\n";
    check(
        quoted,
        Quoting::O,
        &[(0, "\r\nFrom x\r\n>>From y\r\n", &[])],
    );
    check(
        quoted,
        Quoting::None,
        &[(0, "\r\n>From x\r\n>>From y\r\n", &[])],
    );
    // No empty line before it, and no header behind: a line of the message.
    let unquoted = "From a Thu Jan  1 00:00:00 1970\n\nx\nFrom a Thu Jan  1 00:00:00 1970\n";
    check(
        unquoted,
        Quoting::Rd,
        &[(0, "\r\nx\r\nFrom a Thu Jan  1 00:00:00 1970\r\n", &[])],
    );
    let crlf = "From a Thu Jan  1 00:00:00 1970\r\nA: b\r\n\r\nx\n\r\n\r\nFrom a Thu Jan  1 00:00:00 1970\r\n\r\n";
    check(
        crlf,
        Quoting::Rd,
        &[(0, "A: b\r\n\r\nx\n\r\n", &[]), (0, "", &[])],
    );
    // Fields of the file have lines that go on with them; others keep theirs.
    let long = " y".repeat(3000);
    let folded = format!(
        "From a Thu Jan  1 00:00:00 1970\nX-Keywords: a\n\tb\n c\nSubject: x\n y\nX-UID: 7\n{long}\n z\nB: c\n\n d\n"
    );
    check(
        &folded,
        Quoting::Rd,
        &[(
            0,
            "Subject: x\r\n y\r\nB: c\r\n\r\n d\r\n",
            &["a", "b", "c"],
        )],
    );
    let next =
        "From a Thu Jan  1 00:00:00 1970\nX-UID: 7\n\nx\n\nFrom a Thu Jan  1 00:00:00 1970\n y\n";
    check(
        next,
        Quoting::Rd,
        &[(0, "\r\nx\r\n", &[]), (0, " y\r\n", &[])],
    );
    for other in ["Subject: x\n", "From here\n", "x"] {
        assert_eq!(
            read(other.as_bytes(), Quoting::Rd, &[3]),
            Err(NotMbox),
            "{other}"
        );
    }
}

const FROM: &str = "From a@b Thu Jan  1 00:00:00 1970\n";

/// The messages of a file, however it is cut.
fn check_messages(file: &str, quoting: Quoting, expected: &[&str]) {
    for size in [1, 2, 7, 100, 10_000] {
        let found = read_all(file.as_bytes(), quoting, &[size]).unwrap();
        let found = found
            .iter()
            .map(|(bytes, _)| str::from_utf8(bytes).unwrap());
        let expected = expected.iter().map(|text| text.replace('\n', "\r\n"));
        let (found, expected): (Vec<_>, Vec<_>) = (found.collect(), expected.collect());
        assert_eq!(found, expected, "{file} by {size}");
    }
}

/// Not all programs write an empty line between messages.
#[test]
fn messages_without_an_empty_line_between() {
    let check = |file: &str, expected: &[&str]| {
        check_messages(&file.replace("FROM\n", FROM), Quoting::Rd, expected);
    };
    check(
        "FROM\nA: 1\n\nx\nFROM\nA: 2\n\ny\n\nFROM\nB: 3\n",
        &["A: 1\n\nx\n", "A: 2\n\ny\n", "B: 3\n"],
    );
    // A header without a body, and a message without a line end.
    check("FROM\nA: 1\nFROM\nA: 2\n", &["A: 1\n", "A: 2\n"]);
    check("FROM\nA: 1\n\nFROM\nA: 2", &["A: 1\n", "A: 2"]);
    check(
        "FROM\nA: 1\n\nx\nFROM\nA : 2\n",
        &["A: 1\n\nx\n", "A : 2\n"],
    );
    // No header behind it: a line of a text.
    for line in ["", "text\n", "\n", "two words: x\n", "http://x\n", ": x\n"] {
        let text = format!("A: 1\n\nx\n{FROM}{line}");
        let expected = text.strip_suffix("\n\n").map(|text| format!("{text}\n"));
        check(&format!("FROM\n{text}"), &[&expected.unwrap_or(text)]);
    }
    // Nor is one without a date, nor one that is quoted.
    check(
        "FROM\nA: 1\n\nx\nFrom you\nSubject: x\n",
        &["A: 1\n\nx\nFrom you\nSubject: x\n"],
    );
    check(
        "FROM\nA: 1\n\nx\n>FROM\nA: 2\n",
        &[&format!("A: 1\n\nx\n{FROM}A: 2\n")],
    );
    // Two programs have put such a line in front of one message.
    check("FROM\nFROM\nA: 1\n", &["A: 1\n"]);
    check("FROM\n>From x y\nA: 1\n", &["From x y\nA: 1\n"]);
}

/// What looks like the begin of a message, and is taken for text, is counted.
#[test]
fn lines_in_doubt() {
    let check = |text: &str, expected: &[u64]| {
        let file = format!("{FROM}A: 1\n\n{text}").replace("FROM\n", FROM);
        let found = read_all(file.as_bytes(), Quoting::Rd, &[9]).unwrap();
        let found: Vec<u64> = found.iter().map(|(_, kept)| kept.doubtful).collect();
        assert_eq!(found, expected, "{file}");
    };
    check("x\nFROM\nA: 2\n", &[0, 0]);
    check("x\nFROM\nno header\nFROM\n\n\nFROM\nA: 3\n", &[2, 0]);
    check("x\nFROM\n", &[1]);
    check(
        "\n\nFrom you on 2015-01-01 12:00:00\nall: x\nFrom you\n",
        &[1],
    );
    check("x\nFrom you\nSubject: x\n\nFrom \n", &[0]);
}

/// Not all programs write a date, or one of ctime(3). Thunderbird writes nothing behind `From `.
#[test]
fn lines_without_the_usual_date() {
    for from in [
        "From ",
        "From \t",
        "From - ",
        "From a@b",
        "From a@b Thu, 1 Jan 2015 12:00:00 +0000",
        "From a@b 2015-01-01 12:00:00",
        "From MAILER-DAEMON remote from host",
    ] {
        let file = format!(
            "{from}\nSubject: 1\n\nx\n\n{from}\r\nX-Mozilla-Status: 0000\nSubject: 2\n\ny\n\n{FROM}A: 3\n"
        );
        let expected = ["Subject: 1\n\nx\n", "Subject: 2\n\ny\n", "A: 3\n"];
        check_messages(&file, Quoting::Rd, &expected);
    }
    // A text that begins so.
    for text in [
        "From you I hear\nnothing\n",
        "From you\nreason: none\n",
        "From you",
        "From ",
        "From \n",
        "From \n\n\n",
        "From 1 Jan 2015 12:00:00 on\nwe: all\n",
    ] {
        let text = format!("A: 1\n\nx\n\n{text}");
        let expected = text.strip_suffix("\n\n").map(|text| format!("{text}\n"));
        check_messages(
            &format!("{FROM}{text}"),
            Quoting::Rd,
            &[&expected.unwrap_or(text)],
        );
    }
    for other in [
        "From ",
        "From you\n",
        "From you\nreason: none\n",
        "From \n\nSubject: x\n",
    ] {
        let found = read_all(other.as_bytes(), Quoting::Rd, &[3]);
        assert_eq!(found, Err(NotMbox), "{other}");
    }
    let check = |from: &str, header: &str, expected: Option<i64>| {
        let file = format!("{from}\n{header}\n\n");
        let found = read_all(file.as_bytes(), Quoting::Rd, &[5]).unwrap();
        assert_eq!(found[0].1.seconds, expected, "{file}");
    };
    check("From x Thu, 1 Jan 1970 00:00:07 +0000", "To: x", Some(7));
    check("From x 1 Jan 1970 01:00 +0100", "To: x", Some(0));
    check("From x 1970-01-01 00:00:08", "To: x", Some(8));
    check("From x 1970-01-01T01:00:09.5+01:00", "To: x", Some(9));
    check("From x 1970-01-01T00:00:09Z", "To: x", Some(9));
    // That of the header, if the line has none.
    let sent = "date: Thu, 1 Jan 1970 00:00:07 +0000 (none)\nDate: Thu, 2 Jan 1970 00:00:00 +0000";
    check("From ", sent, Some(7));
    check("From x", sent, Some(7));
    check("From x Thu Jan  1 00:00:00 1970", sent, Some(0));
    check("From ", "Date: today", None);
    check("From ", "To: x", None);
}

/// A body is as long as its header says if that can be: in the form mboxcl2 lines of bodies are not quoted.
#[test]
fn lengths_of_bodies() {
    let body = format!("text\n\n{FROM}Subject: none\n\n>From x\n");
    let check = |length: usize, between: &str, expected: &[&str]| {
        let file = format!(
            "{FROM}A: 1\nContent-Length: {length}\n\n{body}{between}{FROM}Content-Length: 2\n\ny\n{between}"
        );
        check_messages(&file, Quoting::None, expected);
    };
    let whole = format!("A: 1\n\n{body}");
    for between in ["", "\n"] {
        check(body.len(), between, &[&whole, "\ny\n"]);
        // Without the line end that is there in any case.
        check(body.len() - 1, between, &[&whole, "\ny\n"]);
        // Where no message begins behind it, it counts for nothing.
        for length in [0, body.len() - 3, body.len() + 4, 9999, usize::MAX] {
            let parts = ["A: 1\n\ntext\n", "Subject: none\n\n>From x\n", "\ny\n"];
            check(length, between, &parts);
        }
    }
    // The last one, with and without line ends; more than is looked at ahead.
    for end in ["", "\n", "\n\n"] {
        let body = "text\n\n".repeat(5000) + FROM + "Subject: none";
        let text = format!("A: 1\nContent-Length: {}\n\n{body}{end}", body.len());
        let expected = format!("A: 1\n\n{body}{}", if end.is_empty() { "" } else { "\n" });
        check_messages(&format!("{FROM}{text}"), Quoting::Rd, &[&expected]);
    }
    // Of the next message nothing but the line is as usual.
    let next = format!("{FROM}Content-Length: 4\n\nx\ny\n\nFrom \nSubject: 2\n");
    check_messages(&next, Quoting::Rd, &["\nx\ny\n", "Subject: 2\n"]);
    // None at all.
    let empty = format!("{FROM}A: 1\nContent-Length: 0\n\n{FROM}A: 2\n");
    check_messages(&empty, Quoting::Rd, &["A: 1\n", "A: 2\n"]);
}

/// Flags of Thunderbird, of mutt and of Google Takeout.
#[test]
fn flags_of_others() {
    let check = |header: &str, text: &str, words: &[&str], is_expunged: bool| {
        let file = format!("{header}A: 1\n\nx\n\n{FROM}A: 2\n");
        let found = read_all(file.as_bytes(), Quoting::Rd, &[9]).unwrap();
        let (bytes, kept) = &found[0];
        assert_eq!(
            str::from_utf8(bytes).unwrap(),
            text.replace('\n', "\r\n") + "A: 1\r\n\r\nx\r\n"
        );
        assert_eq!(
            (&kept.flags, kept.is_expunged),
            (&flags(words), is_expunged),
            "{header}"
        );
        // Nothing of it is of the next one.
        assert_eq!(
            (&found[1].1.flags, found[1].1.is_expunged),
            (&flags(&[]), false)
        );
    };
    let mozilla = |status: &str, status_2: &str, words: &[&str], is_expunged: bool| {
        let header = format!(
            "From - Thu Jan  1 00:00:00 1970\nX-Mozilla-Status: {status}\nX-Mozilla-Status2: {status_2}\n"
        );
        check(&header, "", words, is_expunged);
    };
    mozilla("0000", "00000000", &[], false);
    mozilla("0001", "00000000", &["\\Seen"], false);
    mozilla(
        "0007",
        "10000000",
        &["\\Answered", "\\Flagged", "\\Seen"],
        false,
    );
    mozilla(
        "1081",
        "02800000",
        &["$Forwarded", "$MDNSent", "$label1", "\\Seen"],
        false,
    );
    mozilla(
        "9FFF",
        "0a200000",
        &[
            "$Forwarded",
            "$label5",
            "\\Answered",
            "\\Deleted",
            "\\Flagged",
            "\\Seen",
        ],
        true,
    );
    mozilla("0009", "00000000", &["\\Seen"], true);
    mozilla("none", "", &[], false);
    check(
        "From \nX-Mozilla-Keys: $label1 NonJunk          \n",
        "",
        &["$label1", "NonJunk"],
        false,
    );
    check(
        &format!("{FROM}Status: rO\nX-Status: F\n"),
        "",
        &["\\Answered", "\\Flagged"],
        false,
    );
    let takeout = |labels: &str, words: &[&str]| {
        let labels = format!("X-Gmail-Labels: {labels}\n");
        let header =
            format!("From 1712345678901234567@xxx Thu Jan  1 00:00:00 +0000 1970\n{labels}");
        check(&header, &labels, words, false);
        // Of a message that comes from elsewhere they say nothing.
        check(&format!("{FROM}{labels}"), &labels, &[], false);
    };
    takeout("Inbox,Opened,Starred", &["\\Flagged", "\\Seen"]);
    takeout(
        "=?UTF-8?Q?Opened,Important,Caf=C3=A9?=",
        &["$Important", "\\Seen"],
    );
    takeout("Inbox,Unread,\n Category Updates,\n Drafts", &["\\Draft"]);
    takeout("Posteingang,Gesendet", &[]);
}

#[test]
fn what_cannot_be_kept_is_said() {
    let check = |text: &str, exact: bool| {
        let message = (0, text.as_bytes().to_vec(), Vec::new());
        let (file, said) = write(std::slice::from_ref(&message));
        assert_eq!(said, [exact], "{text:?}");
        let found = read(&file, Quoting::Rd, &[9]).unwrap();
        assert_eq!(found[0] == message, exact, "{text:?}");
    };
    check("A: b\r\n\r\nc\r\n", true);
    check("A: b\r\n\r\nStatus: x\r\n", true);
    check("A: b\r\n\r\nc", false);
    check("A: b\n\nc\n", false);
    check("Status: x\r\n\r\nc\r\n", false);
    check(" x\r\nA: b\r\n\r\nc\r\n", false);
    check("A: b\r\n x\r\n\r\n c\r\n", true);
    check("A: b\r\n\r\nc\r\r\n", false);
    check("A: b\r\n\r\nc\rd\r\n", true);
}

/// What a sender wrote into fields of flags is not what the receiver did: it is left out, and taken for nothing.
#[test]
fn a_senders_own_fields_of_flags() {
    let check = |text: &str, expected: &str, words: &[&str]| {
        let message = (7, text.as_bytes().to_vec(), flags(words));
        for size in [1, 2, 5, 1000] {
            let mut file = Vec::new();
            let mut writer = Writer::new(message.0, &message.2, &mut file);
            for piece in message.1.chunks(size) {
                writer.push(piece, &mut file);
            }
            let exact = writer.finish(&mut file);
            assert_eq!(exact, text == expected, "{text:?}");
            let found = read(&file, Quoting::Rd, &[9]).unwrap();
            let expected = (7, expected.as_bytes().to_vec(), flags(words));
            assert_eq!(found, [expected], "{text:?} by {size}");
        }
    };
    for words in [&[][..], &["\\Flagged", "later"]] {
        check(
            "A: 1\r\nStatus: RO\r\nx-status: AFTD\r\nX-KEYWORDS: evil\r\n worse\r\n\tworst\r\nB: 2\r\n more\r\n\r\nStatus: R\r\n",
            "A: 1\r\nB: 2\r\n more\r\n\r\nStatus: R\r\n",
            words,
        );
        check(
            "Content-Length: 0\r\nX-UID: 1\r\nX-IMAP: 1 2\r\nX-IMAPbase: 1 2\r\nX-Mozilla-Status: 0009\r\n\r\nx\r\n",
            "\r\nx\r\n",
            words,
        );
        // Names that only begin so, or go on, are others.
        let others = "Statu: 1\r\nStatuses: 1\r\nStatus : R\r\nX-Statu\r\nX-IMAPb: 1\r\n Status: R\r\n\r\nx\r\n";
        check(others, others, words);
    }
    // A header, or a line of it, without an end.
    check("A: 1\r\nStatus: R", "A: 1\r\n", &[]);
    check("A: 1\r\nStat", "A: 1\r\nStat\r\n", &[]);
}

/// A header that names flags without end is looked at so far and no further; the message is whole.
#[test]
fn flags_are_bounded() {
    let check = |field: &str, words: usize, expected: usize| {
        let fields = format!("{field}\n").repeat(words);
        let file = format!("From a Thu Jan  1 00:00:00 1970\n{fields}A: b\n\nc\n");
        let found = read(file.as_bytes(), Quoting::Rd, &[1000]).unwrap();
        let [(0, bytes, flags)] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(bytes, b"A: b\r\n\r\nc\r\n");
        assert_eq!(flags.len(), expected, "{field}");
    };
    check("X-Keywords: a b c", 1, 3);
    let many = |count: usize| (0..count).map(|n| format!(" {n}")).collect::<String>();
    check(&format!("X-Keywords:{}", many(900)), 1, 900);
    check(&format!("X-Keywords:{}", many(FLAGS_MAX)), 1, FLAGS_MAX);
    check(&format!("X-Keywords:{}", many(FLAGS_MAX + 1)), 1, FLAGS_MAX);
    // Many fields of few flags are as many flags.
    let fields: String = (0..2 * FLAGS_MAX)
        .map(|n| format!("X-Status: A\nX-Keywords: k{n}\n"))
        .collect();
    let file = format!("From a Thu Jan  1 00:00:00 1970\n{fields}");
    let found = read(file.as_bytes(), Quoting::Rd, &[1000]).unwrap();
    // Each second one is the same.
    assert_eq!(found[0].2.len(), FLAGS_MAX / 2 + 1);
    let takeout = "X-Gmail-Labels: Starred\n".repeat(2 * FLAGS_MAX);
    let file = format!("From 1@xxx Thu Jan  1 00:00:00 1970\n{takeout}X-Keywords: a\n");
    let found = read(file.as_bytes(), Quoting::Rd, &[1000]).unwrap();
    assert_eq!(found[0].2, ["\\Flagged"]);
}

/// What is called so here is called so again.
#[test]
fn names_of_files() {
    let check = |name: &str, file: &str| {
        assert_eq!((&*file_name(name), &*level(file)), (file, name));
    };
    check("Sent", "Sent");
    check("a.b", "a.b");
    check("R&D", "R&D");
    check(".hidden", "%2Ehidden");
    check("Work.sbd", "Work%2Esbd");
    check(".mbox", "%2Embox");
    check("x.mbox.mbox", "x.mbox%2Embox");
    check("&APw-", "%26APw-");
    check("a&-b", "a%26-b");
    check("a&-b & c", "a&-b & c");
    // As Dovecot and Thunderbird call them.
    assert_eq!(level("Entw&APw-rfe"), "Entw\u{fc}rfe");
    assert_eq!(level("100%25"), "100%25");
}

fn message() -> impl Strategy<Value = Message> {
    let line = prop_oneof![
        "[a-zA-Z: >]{0,30}",
        "(Statu|X-IMAPbas|X-Key)[a-z ]{0,3}",
        Just("From a Thu Jan  1 00:00:00 1970".to_owned()),
        Just(">>From x".to_owned()),
        Just(String::new()),
        "x{4090,4100}",
        ">{4085,4099}From x",
    ];
    let words = prop::sample::subsequence(
        vec![
            "$Forwarded",
            "\\Answered",
            "\\Deleted",
            "\\Draft",
            "\\Flagged",
            "\\Seen",
            "later",
        ],
        0..=7,
    );
    (
        0..4_000_000_000_i64,
        prop::collection::vec(line, 0..12),
        words,
    )
        .prop_map(|(seconds, lines, words)| {
            let text: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
            (
                seconds,
                format!("A: b\r\n{text}").into_bytes(),
                flags(&words),
            )
        })
}

proptest! {
    /// What is written is read, and however the file is cut the same is read.
    #[test]
    fn there_and_back(messages in prop::collection::vec(message(), 0..6), sizes in prop::collection::vec(1..5000_usize, 1..5)) {
        let (file, exact) = write(&messages);
        let found = read(&file, Quoting::Rd, &sizes).unwrap();
        prop_assert_eq!(found.len(), messages.len());
        for ((found, message), exact) in found.iter().zip(&messages).zip(exact) {
            prop_assert_eq!((found.0, &found.2), (message.0, &message.2));
            prop_assert!(!exact || found.1 == message.1);
            // Lines in CRLF without fields of ours are always kept, but for one number of quotes beyond all measure.
            let text = String::from_utf8_lossy(&message.1);
            let measured = !text.contains(&">".repeat(4000));
            prop_assert!(exact || !measured);
        }
    }

    /// Any bytes: a cut changes nothing.
    #[test]
    fn cuts_change_nothing(parts in prop::collection::vec(prop_oneof![
        Just("From a Thu Jan  1 00:00:00 1970\n".to_owned()),
        Just("\n".to_owned()),
        Just("\r\n".to_owned()),
        Just("X-Keywords: a b\n".to_owned()),
        (0..40_usize).prop_map(|bytes| format!("Content-Length: {bytes}\n\n")),
        Just("Subject: x\n".to_owned()),
        Just("From \n".to_owned()),
        "[>F:rom \\r\\n]{0,9}",
        "y{4000,4200}\n?",
    ], 0..20), sizes in prop::collection::vec(1..3000_usize, 1..4)) {
        let file = format!("From a Thu Jan  1 00:00:00 1970\n{}", parts.concat());
        let whole = read_all(file.as_bytes(), Quoting::Rd, &[usize::MAX]);
        prop_assert_eq!(read_all(file.as_bytes(), Quoting::Rd, &sizes), whole);
    }
}
