//! What the parser makes of messages, sane and odd. The odd answers were compared with Dovecot 2.3.19.

use crate::summary::{Content, Message, Part};
use crate::{Limits, Parser, Summary};
use base64::{Engine as _, engine::general_purpose::STANDARD};

pub(super) fn parse(message: &[u8]) -> Summary {
    let mut parser = Parser::new(&Limits::default());
    parser.push(message);
    parser.finish()
}

#[test]
fn open_ends() {
    let check = |message: &[u8], expected| {
        for size in 1..=message.len().max(1) {
            let mut parser = Parser::new(&Limits::default());
            message.chunks(size).for_each(|piece| parser.push(piece));
            assert_eq!(parser.has_open_end(), expected, "{message:?} by {size}");
        }
    };
    check(b"", false);
    check(b"\r\n", false);
    check(b"A: 1\r\n\r\nx\r\n", false);
    for open in [
        "A: 1",
        "A: 1\r",
        "\n",
        "\r\n\r\nx\n",
        "\r\n\r\nx\r\r",
        "\r\n\r\n\n\r",
    ] {
        check(open.as_bytes(), true);
    }
}

/// The tree as one line: type/subtype octets:lines, and what is inside in parentheses.
fn show(part: &Part) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let own = format!(
        "{}/{} {}:{}",
        text(&part.media_type),
        text(&part.subtype),
        part.body.len,
        part.lines
    );
    match &part.content {
        Content::Basic => format!("{own} basic"),
        Content::Text => own,
        Content::Multipart(parts) => format!(
            "{own} ({})",
            parts.iter().map(show).collect::<Vec<_>>().join(", ")
        ),
        Content::Message(message) => format!("{own} <{}>", show_message(message)),
    }
}

fn show_message(message: &Message) -> String {
    let subject = message
        .envelope
        .subject
        .as_ref()
        .map(|s| String::from_utf8_lossy(s).into_owned());
    format!("{}| {}", subject.unwrap_or_default(), show(&message.body))
}

fn check(message: &str, expected: &str) {
    assert_eq!(
        show_message(&parse(message.as_bytes()).message),
        expected,
        "{message:?}"
    );
}

fn mixed(body: &str) -> String {
    format!("MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=B\r\n\r\n{body}")
}

fn check_mixed(body: &str, expected: &str) {
    let whole = show(&parse(mixed(body).as_bytes()).message.body);
    let parts = whole.split_once('(').unwrap().1.strip_suffix(')').unwrap();
    assert_eq!(parts, expected, "{body:?}");
}

#[test]
fn simple_messages() {
    check("Subject: one\r\n\r\nhello", "one| text/plain 5:0");
    check("Subject: one\n\nhello\n", "one| text/plain 6:1");
    check("", "| text/plain 0:0");
    check("\r\nbody\r\n", "| text/plain 6:1");
    check("no header at all\r\nreally\r\n", "| text/plain 0:0");
    check("Subject: nobody", "nobody| text/plain 0:0");
    check(
        "Subject: \r\n folded\r\nX: y\r\n\r\nx",
        "folded| text/plain 1:0",
    );
    check("Subject: a\nSubject: two\n\n", "two| text/plain 0:0");
    check("Content-Type: image/png\n\nxy\n", "| image/png 3:1 basic");
}

#[test]
fn broken_content_types_are_text() {
    for broken in ["garbage", "text/", "", "TEXT", "/plain", "multipart"] {
        check(&format!("Content-Type: {broken}\n\nx"), "| text/plain 1:0");
    }
}

#[test]
fn parts() {
    check_mixed(
        "--B\r\n\r\nabc\r\n--B\r\nX: y\r\n\r\nl1\r\nl2\r\n\r\n--B--\r\n",
        "text/plain 3:0, text/plain 8:2",
    );
    check_mixed(
        "preamble\r\n--B\r\n\r\nx\r\n--B--\r\nepilogue\r\n--B\r\n\r\nno part\r\n",
        "text/plain 1:0",
    );
    check_mixed(
        "--B\n\nx\n--B \t\n\ny\n--B-- \n",
        "text/plain 1:0, text/plain 1:0",
    );
    check_mixed("--B\r\n\r\nabc no end", "text/plain 10:0");
    check_mixed("--B\r\n\r\nabc\r\n", "text/plain 5:1");
    check_mixed(
        "--B\r\n\r\n -B\r\n--b\r\n- -B\r\n-\r\n--\r\n\r\n--B--",
        "text/plain 23:5",
    );
}

#[test]
fn empty_parts() {
    check_mixed("--B\r\n--B--", "text/plain 0:0");
    check_mixed("--B\r\n\r\n--B--", "text/plain 0:0");
    check_mixed("--B\r\nContent-Type: text/html\r\n--B--", "text/html 0:0");
    check_mixed("--B\r\n--B\r\n--B--", "text/plain 0:0, text/plain 0:0");
    check_mixed("--B", "text/plain 3:0");
    check_mixed("--B\r\nX", "text/plain 0:0");
    check_mixed("--B\r\n\r\nx\r\n--B", "text/plain 1:0");
    check_mixed("--B\r\n\r\nx\r\n--B\r\n", "text/plain 1:0, text/plain 0:0");
}

/// What cannot be cut into parts is shown.
#[test]
fn multiparts_without_parts_are_text() {
    check_mixed("some\r\ntext", "text/plain 10:1");
    check_mixed("--B--\r\n", "text/plain 7:1");
    for parameters in [
        "",
        "; boundary=\"\"",
        "; boundary",
        "; charset=x",
        "; boundary=; x=y",
    ] {
        check(
            &format!("Content-Type: multipart/mixed{parameters}\n\n--\n\nx\n"),
            "| text/plain 6:3",
        );
    }
    let summary = parse(b"Content-Type: multipart/mixed; charset=utf-8\n\n\xc3\xa9\n");
    assert_eq!(summary.message.body.param("charset"), Some(&b"utf-8"[..]));
    assert_eq!(summary.preview.as_deref(), Some("\u{e9}"));
    let inner =
        "Content-Type: multipart/mixed\r\nContent-Transfer-Encoding: base64\r\n\r\naGVsbG8=";
    check_mixed(&format!("--B\r\n{inner}\r\n--B--"), "text/plain 8:0");
}

/// A boundary is found where the semicolon before it was forgotten.
#[test]
fn multiparts_without_semicolons() {
    for header in [
        "multipart/mixed boundary=B",
        "multipart/mixed\r\n boundary=\"B\"",
        "multipart/mixed, boundary=B",
        "multipart/mixed charset=utf-8 boundary=B",
        "multipart/mixed; charset=\"utf-8\" boundary=B",
    ] {
        let message = format!("Content-Type: {header}\r\n\r\n--B\r\n\r\nx\r\n--B--\r\n");
        check(&message, "| multipart/mixed 17:4 (text/plain 1:0)");
    }
    check(
        "Content-Type: text/html charset=utf-8\n\nx",
        "| text/html 1:0",
    );
}

#[test]
fn nested_boundaries() {
    let inner = |b: &str| format!("Content-Type: multipart/alternative; boundary={b}\n\n");
    // The inner boundary is a prefix of the outer one, and the other way round.
    let outer =
        |b: &str, body: &str| format!("Content-Type: multipart/mixed; boundary={b}\n\n{body}");
    let body = format!(
        "--outer\n{}--out\n\na\n--out\n\nb\n--outer\n\nc\n--outer--\n",
        inner("out")
    );
    check(
        &outer("outer", &body),
        &format!(
            "| multipart/mixed {}:{} (multipart/alternative 17:5 (text/plain 1:0, text/plain 1:0), text/plain 1:0)",
            body.len(),
            body.lines().count()
        ),
    );
    let body = format!(
        "--out\n{}--outer\n\na\n--outer--\n--out\n\nc\n--out--\n",
        inner("outer")
    );
    check(
        &outer("out", &body),
        &format!(
            "| multipart/mixed {}:{} (multipart/alternative 20:3 (text/plain 1:0), text/plain 1:0)",
            body.len(),
            body.lines().count()
        ),
    );
    // The inner multipart is not closed.
    check_mixed(
        "--B\r\nContent-Type: multipart/mixed; boundary=C\r\n\r\n--C\r\n\r\nin\r\n--B\r\n\r\nnext\r\n--B--\r\n",
        "multipart/mixed 9:2 (text/plain 2:0), text/plain 4:0",
    );
    // A delimiter ends a header.
    check_mixed(
        "--B\r\nContent-Type: message/rfc822\r\n\r\nSubject: cut\r\n--B\r\n\r\nnext\r\n--B--",
        "message/rfc822 14:1 <cut| text/plain 0:0>, text/plain 4:0",
    );
}

#[test]
fn embedded_messages() {
    check_mixed(
        "--B\r\nContent-Type: message/rfc822\r\n\r\nSubject: inner\r\n\r\nbody\r\n--B--",
        "message/rfc822 22:2 <inner| text/plain 4:0>",
    );
    check_mixed(
        "--B\r\nContent-Type: message/rfc822\r\n\r\n--B--",
        "message/rfc822 0:0 <| text/plain 0:0>",
    );
    check_mixed(
        "--B\r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\nRnJvbTogYQ0K\r\n--B--",
        "message/rfc822 12:0 <| text/plain 0:0>",
    );
    let encoded = |encoding: &str, body: &str| {
        format!(
            "Content-Type: message/rfc822\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n{body}"
        )
    };
    let two = "--C\n\none\n--C\nContent-Type: image/png\n\n12\n--C--\n";
    let inner = format!("Subject: in\nContent-Type: multipart/mixed; boundary=C\n\n{two}");
    let told = "<in| multipart/mixed 47:8 (text/plain 3:0, image/png 2:0 basic)>";
    let base64 = STANDARD.encode(&inner);
    let base64 = format!("{}\r\n{}\r\n", &base64[..76], &base64[76..]);
    let quoted = inner.replace('=', "=3D").replace("one", "o=\nne");
    for (encoding, body) in [("base64", &base64), ("QUOTED-Printable", &quoted)] {
        let lines = body.lines().count();
        let expected = format!("| message/rfc822 {}:{lines} {told}", body.len());
        check(&encoded(encoding, body), &expected);
        let part = format!("--B\r\n{}\r\n--B--", encoded(encoding, body));
        let expected = format!("message/rfc822 {}:{lines} {told}", body.len());
        check_mixed(&part, &expected);
    }
    // Without its line end the last line is whole, too.
    check_mixed(
        &format!(
            "--B\r\n{}\r\n--B--",
            encoded("quoted-printable", "\r\nx=3D\r\ny")
        ),
        "message/rfc822 9:2 <| text/plain 5:1>",
    );
    // One level is undone.
    let twice = STANDARD.encode(encoded("base64", &base64));
    check(
        &encoded("base64", &twice),
        &format!(
            "| message/rfc822 {}:0 <| message/rfc822 {}:2 <| text/plain 0:0>>",
            twice.len(),
            base64.len()
        ),
    );
    check(
        "Content-Type: message/global\n\nSubject: p\n\nx",
        "| message/global 13:2 <p| text/plain 1:0>",
    );
    check(
        "Content-Type: message/partial; id=x\n\nSubject: p\n\nx",
        "| message/partial 13:2 basic",
    );
    check_mixed(
        "--B\r\nContent-Type: multipart/digest; boundary=D\r\n\r\n--D\r\n\r\nSubject: d1\r\n\r\nb\r\n--D\r\nContent-Type: text/plain\r\n\r\nt\r\n--D--\r\n--B--",
        "multipart/digest 66:9 (message/rfc822 16:2 <d1| text/plain 1:0>, text/plain 1:0)",
    );
}

#[test]
fn body_structure_members() {
    let summary = parse(
        b"Content-Type: text/plain (c); charset = \"utf-8\"\r\nContent-Disposition: attachment (c); filename=\"a b\"\r\n\
        Content-Language: en, de\r\nContent-ID: <a@b> (x)\r\nContent-Description: =?x?=\r\n  y\r\nContent-MD5: xx==\r\n\
        Content-Location: http://a/\r\n b\r\nContent-Transfer-Encoding: Base64 (hm)\r\nContent-Type: text/html\r\n\r\nx",
    );
    let part = &summary.message.body;
    assert!(part.is("TEXT", "plain"));
    assert_eq!(part.param("CHARSET"), Some(&b"utf-8"[..]));
    assert_eq!(part.id, Some("<a@b> (x)".into()));
    assert_eq!(part.description, Some("=?x?=  y".into()));
    assert_eq!(part.md5, Some("xx==".into()));
    assert_eq!(part.location, Some("http://a/ b".into()));
    assert_eq!(part.language, ["en".into(), "de".into()]);
    assert_eq!(part.encoding, "Base64".into());
    let disposition = part.disposition.as_ref().unwrap();
    assert_eq!(
        (&disposition.kind, &disposition.params[0].value),
        (&"attachment".into(), &"a b".into())
    );
}

#[test]
fn text_has_a_charset() {
    let check = |message: &[u8], expected: &[u8]| {
        assert_eq!(parse(message).message.body.param("charset"), Some(expected));
    };
    check(b"\nx", b"us-ascii");
    check(b"Content-Type: text/html; a=b\n\nx", b"us-ascii");
    check(b"Content-Type: text/html; charset=x\n\nx", b"x");
    assert_eq!(
        parse(b"Content-Type: image/png\n\nx").message.body.params,
        []
    );
}

#[test]
fn envelope() {
    let summary = parse(
        b"From: a@x\r\nFROM : b@y\r\nTo: c@z\r\nSubject:\r\nDate: d\0e\r\nMessage-ID: <1@x>\r\nMessage-ID: <2@x>\r\nReply-To:\r\n\r\n",
    );
    let e = &summary.message.envelope;
    assert_eq!(e.from.len(), 2);
    assert_eq!(e.sender(), &e.from[..]);
    assert_eq!(e.reply_to(), &e.from[..]);
    assert_eq!(e.subject, Some("".into()));
    assert_eq!(e.date, Some("d\u{FFFD}e".into()));
    assert_eq!(e.message_id, Some("<2@x>".into()));
    assert_eq!(e.in_reply_to, None);
    assert!(e.cc.is_empty());
}

#[test]
fn usual_fields() {
    let summary = parse(
        b"From: a\r\nX-Odd: 1\r\nSubject: b\r\n c\r\nreceived: r\r\nfrom: d\r\n\r\nFrom: body",
    );
    let answer = |names: &[&str]| {
        summary
            .header_fields(names)
            .map(|a| String::from_utf8(a).unwrap())
    };
    assert_eq!(
        answer(&["FROM", "cc"]).as_deref(),
        Some("From: a\r\nfrom: d\r\n\r\n")
    );
    assert_eq!(
        answer(&["subject"]).as_deref(),
        Some("Subject: b\r\n c\r\n\r\n")
    );
    assert_eq!(answer(&["subject", "received"]), None);
    assert_eq!(answer(&["x-odd"]), None);
    assert_eq!(
        summary
            .fields
            .named(b"FROM")
            .map(|f| f.value().to_vec())
            .collect::<Vec<_>>(),
        [b" a\r\n".to_vec(), b" d\r\n".to_vec()]
    );
}

#[test]
fn a_prefix_moves_everything() {
    let blob =
        mixed("--B\r\nContent-Type: message/rfc822\r\n\r\nSubject: in\r\n\r\nx\r\n--B--\r\n");
    let prefix = "Return-Path: <a@b>\r\nDelivered-To: c@d\r\nReceived: from x\r\n by y\r\n";
    let whole = format!("{prefix}{blob}");
    let mut expected = parse(whole.as_bytes());
    expected.prefix_len = prefix.len() as u64;
    let summary = parse(blob.as_bytes()).with_prefix(prefix.as_bytes(), &Limits::default());
    assert_eq!(summary, expected);
    assert_eq!(
        summary.header_fields(&["delivered-to", "mime-version"]),
        Some(b"Delivered-To: c@d\r\nMIME-Version: 1.0\r\n\r\n".to_vec())
    );
    let check = |start, len, prefix, blob| {
        let show = |s: crate::Span| (s.start, s.len);
        let (p, b) = summary.split(crate::Span { start, len });
        assert_eq!((show(p), show(b)), (prefix, blob));
    };
    let n = prefix.len() as u64;
    check(0, n + 5, (0, n), (0, 5));
    check(0, n, (0, n), (0, 0));
    check(3, 4, (3, 4), (0, 0));
    check(n - 1, 2, (n - 1, 1), (0, 1));
    check(n + 2, 3, (n, 0), (2, 3));
}
