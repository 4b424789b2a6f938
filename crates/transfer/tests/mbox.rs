//! mbox: what is written is read, and a cut changes nothing.

use proptest::prelude::*;
use whimbrel_transfer::{
    lines::ToCrlf,
    mbox::{Event, FLAGS_MAX, NotMbox, Quoting, Reader, Writer},
};

type Message = (i64, Vec<u8>, Vec<String>);

/// Reads a file in pieces of these sizes.
fn read(file: &[u8], quoting: Quoting, sizes: &[usize]) -> Result<Vec<Message>, NotMbox> {
    let mut found: Vec<Message> = Vec::new();
    let mut lines = ToCrlf::new();
    let mut tell = |event: Event<'_>| match event {
        Event::Begin { seconds } => {
            found.push((seconds, Vec::new(), Vec::new()));
            lines = ToCrlf::new();
        }
        Event::Bytes(bytes) => lines.push(bytes, &mut found.last_mut().unwrap().1),
        Event::End(flags) => found.last_mut().unwrap().2 = flags,
    };
    let mut reader = Reader::new(quoting);
    let mut rest = file;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let (part, after) = rest.split_at((*sizes.next().unwrap()).clamp(1, rest.len()));
        reader.push(part, &mut tell)?;
        rest = after;
    }
    reader.finish(&mut tell)?;
    Ok(found)
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
    // No empty line before it: a line of the message.
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
            "Content-Length: 0\r\nX-UID: 1\r\nX-IMAP: 1 2\r\nX-IMAPbase: 1 2\r\n\r\nx\r\n",
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
    let mut reader = Reader::new(Quoting::Rd);
    let mut told = 0;
    let mut tell = |event: Event<'_>| {
        if let Event::End(flags) = event {
            told = flags.len();
        }
    };
    reader
        .push(b"From a Thu Jan  1 00:00:00 1970\n", &mut tell)
        .unwrap();
    for n in 0..2 * FLAGS_MAX {
        let field = format!("X-Status: A\nX-Keywords: k{n}\n");
        reader.push(field.as_bytes(), &mut tell).unwrap();
    }
    reader.finish(&mut tell).unwrap();
    // Each second one is the same.
    assert_eq!(told, FLAGS_MAX / 2 + 1);
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
        "[>F:rom \\r\\n]{0,9}",
        "y{4000,4200}\n?",
    ], 0..20), sizes in prop::collection::vec(1..3000_usize, 1..4)) {
        let file = format!("From a Thu Jan  1 00:00:00 1970\n{}", parts.concat());
        let whole = read(file.as_bytes(), Quoting::Rd, &[usize::MAX]);
        prop_assert_eq!(read(file.as_bytes(), Quoting::Rd, &sizes), whole);
    }
}
