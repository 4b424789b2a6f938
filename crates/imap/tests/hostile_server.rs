//! What a client takes of a server, and no more: each limit, and the number at which an answer is refused.

use whimbrel_imap::client::{Client, FetchData, Limits, ReplyCode, Response};
use whimbrel_imap::encode::Kind;

const LIMITS: Limits = Limits {
    line_bytes_max: 100,
    literal_bytes_max: 50,
    response_bytes_max: 300,
    elements_max: 8,
    numbers_max: 10,
    lenient: false,
};

/// What a lenient client makes of one response, and whether a strict one takes it as well.
#[track_caller]
fn leniently(bytes: &[u8]) -> (Result<Response, &'static str>, bool) {
    let of = |lenient| {
        let mut client = Client::with_limits(Limits { lenient, ..LIMITS });
        client.push(b"* OK hello\r\n");
        client.next().unwrap();
        client.raw(b"NOOP");
        client.push(bytes);
        let response = client.next().map_err(|bad| bad.what);
        response.map(|response| response.unwrap_or_else(|| panic!("{}", bytes.escape_ascii())))
    };
    (of(true), of(false).is_ok())
}

/// What a client with these limits says to `bytes`, in pieces of `size`: how many responses, or what is wrong.
fn hear(bytes: &[u8], size: usize) -> Result<usize, &'static str> {
    let mut client = Client::with_limits(LIMITS);
    client.push(b"* OK hello\r\n");
    client.next().unwrap();
    let mut heard = 0;
    for piece in bytes.chunks(size) {
        client.push(piece);
        while let Some(response) = client.next().map_err(|bad| bad.what)? {
            assert!(!matches!(response, Response::Tagged { .. }));
            heard += 1;
        }
    }
    Ok(heard)
}

#[track_caller]
fn check(text: &str, expected: Result<usize, &'static str>) {
    for size in [1, 7, usize::MAX] {
        assert_eq!(
            hear(text.as_bytes(), size),
            expected,
            "{text:.60} by {size}"
        );
    }
}

#[test]
fn lines() {
    let long = Err("a line longer than is taken");
    let line = |bytes: usize| format!("* OK {}", "x".repeat(bytes - 5));
    check(&format!("{}\r\n", line(99)), Ok(1));
    check(&format!("{}\r\n", line(200)), long);
    // It never ends.
    check(&line(200), long);
    check(&"\0".repeat(200), long);
    // Behind a literal, too.
    let behind = |bytes: usize| format!("* 1 FETCH (BODY[] {{3}}\r\nabc{}\r\n", " ".repeat(bytes));
    check(&behind(200), long);
    // Many short ones.
    check(&"* 1 EXISTS\r\n".repeat(1000), Ok(1000));
}

#[test]
fn literals() {
    let long = Err("a literal longer than is taken");
    let literal = |bytes: &str| format!("* 1 FETCH (BODY[] {{{bytes}}}\r\n");
    check(&format!("{}{})\r\n", literal("50"), "x".repeat(50)), Ok(1));
    // It is refused before it comes.
    check(&literal("51"), long);
    check(&literal("4294967296"), long);
    check(&literal("18446744073709551615"), long);
    check(&literal("18446744073709551616"), long);
    check(&literal("99999999999999999999"), long);
    // Each is short, all together are not.
    let item = format!("BODY[] {{40}}\r\n{}", "x".repeat(40));
    let response =
        |items: usize| format!("* 1 FETCH ({})\r\n", vec![item.as_str(); items].join(" "));
    check(&response(4), Ok(1));
    check(&response(8), Err("a response longer than is taken"));
    let empty = "BODY[] {0}\r\n ".repeat(100);
    check(
        &format!("* 1 FETCH ({empty}"),
        Err("a response longer than is taken"),
    );
}

#[test]
fn elements() {
    let many = Err("more elements than are taken");
    let flags = |count: usize| format!("* FLAGS ({})\r\n", vec!["a"; count].join(" "));
    check(&flags(8), Ok(1));
    check(&flags(9), many);
    check(
        &format!("* CAPABILITY IMAP4rev1{}\r\n", " A".repeat(8)),
        many,
    );
    check(&format!("* 1 FETCH ({})\r\n", ["UID 1"; 9].join(" ")), many);
    check(
        &format!("* NAMESPACE ({}) NIL NIL\r\n", "(\"\" NIL)".repeat(9)),
        many,
    );
    check(&format!("* THREAD {}\r\n", "(1)".repeat(9)), many);
    check(&format!("* 1 FETCH (BODY {}", "(".repeat(9)), Ok(0));
    check(&format!("* 1 FETCH (BODY {}\r\n", "(".repeat(9)), many);
    let addresses = "(NIL NIL NIL NIL)".repeat(4);
    let envelope = |from: &str, to: &str| {
        format!("* 1 FETCH (ENVELOPE (NIL NIL {from} NIL NIL {to} NIL NIL NIL NIL))\r\n")
    };
    let limits = Limits {
        line_bytes_max: 1000,
        ..LIMITS
    };
    for (lists, good) in [(1, true), (2, false)] {
        let mut client = Client::with_limits(limits);
        client.push(b"* OK hello\r\n");
        client.next().unwrap();
        let of = format!("({addresses})");
        client.push(envelope(&of, if lists == 2 { &of } else { "NIL" }).as_bytes());
        assert_eq!(client.next().is_ok(), good, "{lists} lists of four");
    }
}

#[test]
fn numbers() {
    let search = |count: usize| format!("* SEARCH{}\r\n", " 1".repeat(count));
    check(&search(10), Ok(1));
    check(&search(11), Err("more numbers than are taken"));
    let copied = |from: &str, to: &str| format!("* OK [COPYUID 1 {from} {to}] done\r\n");
    check(&copied("1:10", "11:20"), Ok(1));
    let many = Err("more UIDs than are taken");
    check(&copied("1:11", "1:11"), many);
    check(&copied("1:4294967295", "1:4294967295"), many);
    check(&copied("4294967295:1", "1"), many);
    check(&copied("1:6,7:12", "1"), many);
    // A set is as large as it is written.
    check("* VANISHED 1:4294967295\r\n", Ok(1));
    check("* ESEARCH UID ALL 1:4294967295\r\n", Ok(1));
    let ranges = |count: u32| {
        (1..=count)
            .map(|n| (2 * n).to_string())
            .collect::<Vec<_>>()
            .join(",")
    };
    check(&format!("* VANISHED {}\r\n", ranges(10)), Ok(1));
    assert!(hear(format!("* VANISHED {}\r\n", ranges(11)).as_bytes(), 1).is_err());
}

/// What Cyrus, Dovecot, Gmail, Yandex and others say, and no RFC that is known here.
#[test]
fn what_a_lenient_client_takes() {
    let status = |bytes: &[u8], code: Option<&str>, text: &str| {
        let (response, is_strict) = leniently(bytes);
        let (kind, code) = (Kind::Ok, code.map(|code| ReplyCode::Plain(code.to_owned())));
        let text = text.to_owned();
        assert_eq!(response, Ok(Response::Status { kind, code, text }));
        assert!(!is_strict, "{}", bytes.escape_ascii());
    };
    status(
        b"* OK [URLMECH INTERNAL] x\r\n",
        Some("URLMECH INTERNAL"),
        "x",
    );
    status(
        b"* OK [ANNOTATIONS 65536]\r\n",
        Some("ANNOTATIONS 65536"),
        "",
    );
    status(
        b"* OK [INPROGRESS (\"a\" 1 NIL)] x\r\n",
        Some("INPROGRESS (\"a\" 1 NIL)"),
        "x",
    );
    status(b"* OK [THROTTLED] x\r\n", Some("THROTTLED"), "x");
    status(b"* OK [UNSEEN 0] x\r\n", Some("UNSEEN 0"), "x");
    status(
        b"* OK [COPYUID 1 1:4294967295 1:4294967295] x\r\n",
        Some("COPYUID 1 1:4294967295 1:4294967295"),
        "x",
    );
    status(b"* OK [ALERT]\r\n", Some("ALERT"), "");
    status(b"* OK [caf\xe9 x\r\n", None, "[caf\u{FFFD} x");
    status(b"* OK\r\n", None, "");
    status(b"* OK \xe9\0\r\n", None, "\u{FFFD}\0");

    let check = |bytes: &[u8], expected: Result<Response, &'static str>| {
        let (response, is_strict) = leniently(bytes);
        assert_eq!(response, expected, "{}", bytes.escape_ascii());
        assert!(!is_strict, "{}", bytes.escape_ascii());
    };
    check(b"* ENIGMA\r\n", Ok(Response::Unknown));
    check(
        b"* ENIGMA (a {3}\r\n\r\n\0 \xe9)\r\n",
        Ok(Response::Unknown),
    );
    check(b"* 5 ENIGMA x\r\n", Ok(Response::Unknown));
    check(b"+\r\n", Ok(Response::Continuation { text: Vec::new() }));
    let fetch = |items| Ok(Response::Fetch { sequence: 1, items });
    let date = |date: &str| format!("* 1 FETCH (UID 5 internaldate {date} RFC822.SIZE 7)\r\n");
    let rest = || fetch(vec![FetchData::Uid(5), FetchData::Size(7)]);
    check(date("NIL").as_bytes(), rest());
    check(date("\"31-Feb-2024 00:00:00 +0000\"").as_bytes(), rest());
    check(date("{3}\r\n)\r\n").as_bytes(), rest());
    check(b"* 1 FETCH (INTERNALDATE \"\")\r\n", fetch(Vec::new()));
    let (response, _) = leniently(b"* 1 FETCH (BODY[] {3}\r\na\0b)\r\n");
    let Ok(Response::Fetch { items, .. }) = response else {
        panic!("{response:?}");
    };
    assert!(matches!(&items[..], [FetchData::Section { data: Some(data), .. }] if data == b"a\0b"));
}

/// What counts is read as strictly as ever, and no more of it is held.
#[test]
fn what_a_lenient_client_does_not_take() {
    let code = |text: &str| match leniently(text.as_bytes()) {
        (Ok(Response::Status { code, .. }), true) => code,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        code("* OK [UIDVALIDITY 9] x\r\n"),
        Some(ReplyCode::UidValidity(9))
    );
    assert_eq!(
        code("* OK [read-only] x\r\n"),
        Some(ReplyCode::Plain("READ-ONLY".to_owned()))
    );
    let date = "* 1 FETCH (INTERNALDATE \"01-Jan-2024 00:00:00 +0000\")\r\n";
    let (response, is_strict) = leniently(date.as_bytes());
    assert!(
        is_strict && matches!(&response, Ok(Response::Fetch { items, .. }) if items.len() == 1),
        "{response:?}"
    );
    let check = |text: &str, expected: &'static str| {
        assert_eq!(
            leniently(text.as_bytes()),
            (Err(expected), false),
            "{text:?}"
        );
    };
    check("* SEARCH 0\r\n", "number must not be zero");
    check("* 1 FETCH (ENIGMA 1)\r\n", "unknown FETCH data");
    check("* 1 FETCH ()\r\n", "FETCH of nothing");
    check("* 1 FETCH (INTERNALDATE (x))\r\n", "expected a string");
    check("* ENIGMA {51}\r\n", "a literal longer than is taken");
    check(
        &format!("* ENIGMA {}\r\n", "x".repeat(200)),
        "a line longer than is taken",
    );
    check(
        &format!("* 1 FETCH ({})\r\n", ["INTERNALDATE NIL"; 9].join(" ")),
        "a line longer than is taken",
    );
    check(
        &format!("* FLAGS ({})\r\n", ["a"; 9].join(" ")),
        "more elements than are taken",
    );
}
