use super::*;
use crate::{Limits, Parser};

fn summary_of(message: &[u8]) -> Summary {
    let mut parser = Parser::new(&Limits::default());
    parser.push(message);
    parser.finish()
}

/// Searches in pieces of `step`; gives what was found, and the bytes asked for.
fn search(message: &[u8], scope: Scope, needles: &[Needle], step: usize) -> (Vec<bool>, u64) {
    let mut searcher = TextSearcher::new(&summary_of(message), scope, needles);
    let mut read = 0;
    while let Some(span) = searcher.next_range() {
        let bytes = &message[span.start as usize..span.end() as usize];
        bytes.chunks(step).for_each(|piece| searcher.push(piece));
        read += span.len;
    }
    (searcher.matched().to_vec(), read)
}

fn check(message: &[u8], scope: Scope, needle: &str, expected: bool) {
    for step in [1, 2, 3, 7, 100_000] {
        assert_eq!(
            search(message, scope, &[Needle::new(needle)], step).0,
            [expected],
            "{needle:?} {scope:?} by {step}"
        );
    }
}

const MIXED: &str = "From: Ann <a@x>\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n top fold\r\nContent-Type: multipart/mixed; boundary=B\r\n\r\npreamble\r\n\
    --B\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\nw4RwZmVsIHVuZCBC\r\naXJuZW4=\r\n\
    --B\r\nContent-Type: text/html; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nKa=\r\nffee =E9t=C9\r\n\
    --B\r\nContent-Type: image/png; name=picture.png\r\n\r\nhidden bytes\r\n\
    --B\r\nContent-Type: message/rfc822\r\n\r\nSubject: inner =?iso-8859-1?q?=DCber?=\r\n\r\nletter\r\n\
    --B\r\nContent-Type: message/delivery-status\r\n\r\nAction: failed\r\n--B--\r\nepilogue\r\n";

#[test]
fn text_and_body() {
    let message = MIXED.as_bytes();
    for (needle, text, body) in [
        ("grüße", true, false),
        ("GRÜßE TOP FOLD", true, false),
        ("subject: grü", true, false),
        ("from: ann <a@x>", true, false),
        ("äpfel UND birnen", true, true),
        ("kaffee ÉTé", true, true),
        ("picture.PNG", true, true),
        ("hidden", false, false),
        ("inner über", true, true),
        ("letter", true, true),
        ("action: FAILED", true, true),
        ("preamble", false, false),
        ("epilogue", false, false),
        ("birnenka", false, false),
        ("", true, true),
    ] {
        check(message, Scope::Text, needle, text);
        check(message, Scope::Body, needle, body);
    }
}

#[test]
fn charsets_and_encodings() {
    let message = |charset: &str, encoding: &str, body: &[u8]| {
        let header = format!(
            "Content-Type: text/plain; charset={charset}\nContent-Transfer-Encoding: {encoding}\n\n"
        );
        [header.as_bytes(), body].concat()
    };
    check(
        &message("utf-16le", "8bit", b"a\0\xe9\0b\0"),
        Scope::Body,
        "AÉB",
        true,
    );
    check(
        &message("iso-2022-jp", "7bit", b"\x1b$B$3$K\x1b(B"),
        Scope::Body,
        "こに",
        true,
    );
    check(
        &message("koi8-r", "8bit", b"\xd0\xd2\xc9\xd7\xc5\xd4"),
        Scope::Body,
        "ПРИВЕТ",
        true,
    );
    check(
        &message("utf-7", "7bit", b"caf+AOk-"),
        Scope::Body,
        "CAFÉ",
        true,
    );
    check(
        &message("nonsense", "8bit", b"caf\xe9 caf\xc3\xa9s"),
        Scope::Body,
        "café cafés",
        true,
    );
    check(
        &message("gb18030", "base64", b"xOO6ww=="),
        Scope::Body,
        "你好",
        true,
    );
    check(
        &message("utf-8", "x-uuencode", b"begin 644 f\n#0V%T\n`\nend\n"),
        Scope::Body,
        "cat",
        true,
    );
    check(
        &message("utf-8", "x-unknown", b"=41"),
        Scope::Body,
        "=41",
        true,
    );
}

#[test]
fn images_are_not_read() {
    let picture = "x".repeat(100_000);
    let message = format!(
        "Content-Type: multipart/mixed; boundary=B\n\n--B\n\nhello\n--B\nContent-Type: image/png\n\n{picture}\n--B\n\nworld\n--B--\n"
    );
    let needles = [Needle::new("world"), Needle::new("absent")];
    let (found, read) = search(message.as_bytes(), Scope::Text, &needles, 4096);
    assert_eq!(found, [true, false]);
    assert!(read < 2 * GAP_BYTES_MAX, "{read}");
}

#[test]
fn reading_ends_when_all_is_found() {
    let message = format!("Subject: x\n\nneedle{}", " hay".repeat(100_000));
    let mut searcher = TextSearcher::new(
        &summary_of(message.as_bytes()),
        Scope::Body,
        &[Needle::new("NEEDLE")],
    );
    let span = searcher.next_range().unwrap();
    searcher.push(&message.as_bytes()[span.start as usize..][..50_000]);
    assert_eq!(searcher.matched(), [true]);
    assert_eq!(searcher.next_range(), None);
}

#[test]
fn single_fields() {
    let header = b"X-A: one =?utf-8?q?=C3=84?=\r\nx-b : two\r\n three\r\nX-A: four\r\nX-Empty:\r\nbad x-c line\r\n\r\n";
    let check = |name: &str, needle: &str, expected: bool| {
        for step in [1, 3, 1000] {
            let mut searcher =
                FieldSearcher::new(&[(name, Needle::new(needle)), ("none", Needle::new(""))]);
            header.chunks(step).for_each(|piece| searcher.push(piece));
            assert_eq!(searcher.finish(), [expected, false], "{name} {needle}");
        }
    };
    check("X-A", "ONE ä", true);
    check("x-a", "four", true);
    check("X-B", "two three", true);
    check("X-A", "two", false);
    check("X-A", "x-a", false);
    check("X-Empty", "", true);
    check("X-C", "", false);
    check("X-D", "", false);
    check("", "bad", false);
}

#[test]
fn needles_in_short_texts() {
    assert!(Needle::new("ÉT").in_text("café été"));
    assert!(Needle::new("").in_text(""));
    assert!(Needle::new("grüße").in_header(b" =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"));
    assert!(!Needle::new("gruesse").in_header(b" =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"));
}

proptest::proptest! {
    /// A needle is found in a raw value as in its decoded text, whether that has to be decoded or not.
    #[test]
    fn raw_values_are_searched_as_what_they_say(
        raw in "[ \t\r\n]{0,3}[aAbBkéÉ\u{212a}=?_ \t\r\n\u{0}\u{1b}]{0,8}(=\\?utf-8\\?q\\?a=C3=A9\\?=)?[ \t\r\n]{0,3}", needle in "[aABbKéÉ= \t]{0,3}"
    ) {
        let decoded = decode(raw.as_bytes());
        let mut matcher = Matcher::new(&[Needle::new(&needle)]);
        matcher.push(&decoded);
        matcher.end_unit();
        let expected = matcher.is_done();
        proptest::prop_assert_eq!(Needle::new(&needle).in_header(raw.as_bytes()), expected);
        proptest::prop_assert_eq!(Needle::new(&needle).in_text(&decoded), expected);
        if let Some(text) = plain(raw.as_bytes()) {
            proptest::prop_assert_eq!(text, decoded.as_bytes());
        }
    }
}
