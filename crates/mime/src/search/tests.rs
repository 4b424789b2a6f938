use super::*;
use crate::header::decode;
use crate::{Limits, Parser};

/// Keys of HEADER.
fn header_keys<N: AsRef<[u8]>>(wanted: &[(N, Needle)]) -> FieldKeys {
    let key = |(name, needle): &(N, Needle)| (name.as_ref().to_vec(), Look::Value, needle.clone());
    FieldKeys::new(&wanted.iter().map(key).collect::<Vec<_>>())
}

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
        ("picture.PNG", true, false),
        ("hidden", false, false),
        ("inner über", true, false),
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

/// What is in a message under an encoding is text as elsewhere.
#[test]
fn messages_under_an_encoding() {
    let inner = "Subject: =?utf-8?q?=C3=9Cber?=\r\nContent-Type: multipart/mixed; boundary=C\r\n\r\npreamble\r\n\
        --C\r\nContent-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nKa=\r\nffee =E9\r\n\
        --C\r\nContent-Type: image/png\r\n\r\nhidden\r\n--C--\r\n";
    let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, inner);
    let message = format!(
        "Content-Type: multipart/mixed; boundary=B\r\n\r\n--B\r\nContent-Type: message/rfc822\r\n\
         Content-Transfer-Encoding: base64\r\n\r\n{base64}\r\n--B\r\n\r\nlast\r\n--B--\r\n"
    );
    for (needle, text, body) in [
        ("über", true, false),
        ("kaffee É", true, true),
        ("last", true, true),
        ("hidden", false, false),
        ("preamble", false, false),
        (&base64[..10], false, false),
    ] {
        check(message.as_bytes(), Scope::Text, needle, text);
        check(message.as_bytes(), Scope::Body, needle, body);
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
            let keys = header_keys(&[(name, Needle::new(needle)), ("none", Needle::new(""))]);
            let mut searcher = FieldSearcher::new(&keys);
            for piece in header.chunks(step) {
                searcher.push_slice(piece, &mut Slice::endless());
            }
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

/// FROM searches the addresses and HEADER FROM the field, at once.
#[test]
fn addresses_of_fields() {
    let raw = " Ann (the boss)\r\n\t<ann (home)@\r\n example.org>\r\n";
    let found = |needle: &str| {
        let keys = [Look::Value, Look::Addresses].map(|look| ("From", look, Needle::new(needle)));
        let mut searcher = FieldSearcher::new(&FieldKeys::new(&keys));
        searcher.field(b"FROM", raw.as_bytes());
        searcher.field(b"To", b"bob@example.org");
        let found = searcher.finish();
        (found[0], found[1])
    };
    assert_eq!(found("ann <ann@example.org>"), (false, true));
    assert_eq!(found("home"), (true, false));
    assert_eq!(found("ann"), (true, true));
    assert_eq!(found(""), (true, true));
    assert_eq!(found("bob"), (false, false));
}

/// Text is found in either normalization form, in bodies and fields, however it is cut.
#[test]
fn normalization_forms_are_one() {
    let nfd = "Subject: =?utf-8?Q?Gru=CC=88=C3=9Fe?=\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nU\u{308}bersicht: e\u{316}\u{301}";
    let nfc = "Subject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?=\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n\u{dc}bersicht: \u{e9}\u{316}";
    for message in [nfd, nfc] {
        for needle in [
            "gr\u{fc}\u{df}e",
            "gru\u{308}\u{df}e",
            "\u{fc}bersicht",
            "u\u{308}BERSICHT",
        ] {
            check(message.as_bytes(), Scope::Text, needle, true);
        }
        for needle in ["e\u{316}\u{301}", "e\u{301}\u{316}", "\u{e9}\u{316}"] {
            check(message.as_bytes(), Scope::Body, needle, true);
        }
        check(message.as_bytes(), Scope::Text, "gr\u{fa}\u{df}e", false);
    }
}

#[test]
fn many_keys_of_many_names() {
    let key = |n: u32| (format!("X-{}", n % 7), Needle::new(&format!("<{n}>")));
    let list: Vec<_> = (0..100).map(key).collect();
    let header = "x-3: <3> <10>\n <4>\nX-4: <4\nX-4:><11>\nX-9: <9>\nX-3: <17>\n\n";
    let mut searcher = FieldSearcher::new(&header_keys(&list));
    for (work, step) in [(1, 1), (1, 1000), (100, 7), (usize::MAX, 1000)] {
        searcher.clear();
        for mut piece in header.as_bytes().chunks(step) {
            while !piece.is_empty() {
                piece = &piece[searcher.push_slice(piece, &mut Slice::new(work))..];
            }
        }
        searcher.end();
        while !searcher.settle(&mut Slice::new(work)) {}
        let found = searcher.finish();
        let found: Vec<usize> = (0..100).filter(|n| found[*n]).collect();
        assert_eq!(found, [3, 10, 11, 17], "{work}");
    }
    assert_eq!(
        header_keys(&list).by_name(|name| name == b"x-2")[..9]
            .iter()
            .position(|&two| two),
        Some(2)
    );
}

/// However many keys there are, and however long the fields, little text is held.
#[test]
fn keys_hold_no_windows_of_their_own() {
    use matcher::WINDOW_BYTES;
    for (names, keys, fields) in [(1, 64, 20), (4096, 4096, 200)] {
        let key = |n: usize| (format!("X-{}", n % names), Needle::new(&format!("<{n}>")));
        let list: Vec<_> = (0..keys).map(key).collect();
        let mut searcher = FieldSearcher::new(&header_keys(&list));
        let mut most = 0;
        for n in 0..fields {
            let header = format!("X-{}: {}<{n}>\r\n", n % names, "a ".repeat(WINDOW_BYTES));
            for piece in header.as_bytes().chunks(PIECE_BYTES) {
                searcher.push_slice(piece, &mut Slice::endless());
                most = most.max(searcher.held_bytes());
            }
        }
        assert!(most <= 4 * WINDOW_BYTES, "{names} names: {most} bytes");
        let found = searcher.finish();
        assert_eq!(found.iter().filter(|&&found| found).count(), fields);
    }
}

/// A text is looked through in slices, and what is found is the same.
#[test]
fn many_needles_are_looked_for_in_slices() {
    let hay = "hay 17 ".repeat(10_000);
    let message = format!("Subject: x\n\n{hay}<3>{hay}<999>");
    let needles: Vec<Needle> = (0..1000).map(|n| Needle::new(&format!("<{n}>"))).collect();
    let work = 100_000;
    let mut searcher = TextSearcher::new(&summary_of(message.as_bytes()), Scope::Body, &needles);
    let mut slices = 0;
    while let Some(span) = searcher.next_range() {
        let mut bytes = &message.as_bytes()[span.start as usize..span.end() as usize];
        while !bytes.is_empty() {
            bytes = &bytes[searcher.push_slice(bytes, &mut Slice::new(work))..];
            slices += 1;
        }
        while !searcher.settle(&mut Slice::new(work)) {
            slices += 1;
        }
    }
    let found: Vec<usize> = (0..1000).filter(|n| searcher.matched()[*n]).collect();
    assert_eq!(found, [3, 999]);
    assert_eq!(searcher.found(), 2);
    // Every byte for every needle; a slice may be passed by a window.
    let most = work + matcher::WINDOW_BYTES + 2 * PIECE_BYTES;
    assert!(slices >= message.len() * needles.len() / most, "{slices}");
}

#[test]
fn needles_in_short_texts() {
    let in_field = |needle: &str, raw: &str| {
        let keys = header_keys(&[("Subject", Needle::new(needle))]);
        let mut searcher = FieldSearcher::new(&keys);
        searcher.field(b"subject", raw.as_bytes());
        searcher.finish()[0]
    };
    assert!(Needle::new("ÉT").in_text("café été"));
    assert!(Needle::new("").in_text(""));
    assert!(in_field("grüße", " =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"));
    assert!(!in_field("gruesse", " =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"));
    assert!(in_field("", "\r\n"));
}

proptest::proptest! {
    /// A needle is found in a raw value as in its decoded text, whether that has to be decoded or not.
    #[test]
    fn raw_values_are_searched_as_what_they_say(
        raw in "[ \t\r\n]{0,3}[aAbBkéÉ\u{212a}=?_ \t\r\n\u{0}\u{1b}]{0,8}(=\\?utf-8\\?q\\?a=C3=A9\\?=)?[ \t\r\n]{0,3}", needle in "[aABbKéÉ= \t]{0,3}"
    ) {
        let decoded = decode(raw.as_bytes());
        let needle = Needle::new(&needle);
        let expected = needle.in_text(&decoded);
        let mut searcher = FieldSearcher::new(&header_keys(&[("a", needle)]));
        searcher.field(b"A", raw.as_bytes());
        proptest::prop_assert_eq!(searcher.finish(), [expected]);
        if let Some(text) = plain(raw.as_bytes()) {
            proptest::prop_assert_eq!(text, decoded.as_bytes());
        }
    }
}
