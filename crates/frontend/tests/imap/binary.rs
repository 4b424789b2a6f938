//! BINARY against what was encoded, read by the strict client; and the history of vanished messages that is too short.

use proptest::prelude::*;
use whimbrel_imap::client::{Client, FetchData, Response};

use super::world::{Cut, World};

/// How the test encodes a part.
#[derive(Clone, Copy, Debug)]
enum Encoding {
    Base64,
    QuotedPrintable,
    EightBit,
}

fn encode(encoding: Encoding, bytes: &[u8]) -> (&'static str, Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    match encoding {
        Encoding::EightBit => return ("8bit", bytes.to_vec()),
        Encoding::QuotedPrintable => {
            for (n, byte) in bytes.iter().enumerate() {
                if n % 20 == 19 {
                    out.extend_from_slice(b"=\r\n");
                }
                out.extend_from_slice(format!("={byte:02X}").as_bytes());
            }
            return ("Quoted-Printable", out);
        }
        Encoding::Base64 => {}
    }
    for (n, group) in bytes.chunks(3).enumerate() {
        if n % 19 == 18 {
            out.extend_from_slice(b"\r\n");
        }
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            out.push(if digit <= group.len() {
                DIGITS[(bits >> (18 - 6 * digit)) as usize & 63]
            } else {
                b'='
            });
        }
    }
    ("BASE64", out)
}

/// A message whose part 1 and part 2 hold these bytes.
fn message(kind: &str, encoding: Encoding, bytes: &[u8]) -> Vec<u8> {
    let (name, text) = encode(encoding, bytes);
    let head = format!(
        "Subject: s\r\nContent-Type: multipart/mixed; boundary=XX\r\n\r\n--XX\r\nContent-Type: {kind}\r\n\
         Content-Transfer-Encoding: {name}\r\n\r\n"
    );
    [head.as_bytes(), &text, b"\r\n--XX--\r\n"].concat()
}

fn selected(text: &[u8]) -> World {
    let mut world = World::new(Cut::AtOnce);
    world.fake.deliver("INBOX", b"", text);
    world.connect("1", true);
    world.send("1", b"a LOGIN anne secret\r\nb SELECT INBOX\r\n");
    world.get("1").outbox.clear();
    world
}

/// What the client makes of the answer to a FETCH.
fn fetch(world: &mut World, items: &str) -> (Vec<FetchData>, String) {
    let mut client = Client::new();
    client.push(b"* OK hello\r\n");
    client.next().unwrap();
    client.raw(format!("FETCH 1 {items}").as_bytes());
    world.send("1", &client.take_output());
    client.push(&std::mem::take(&mut world.get("1").outbox));
    let mut data = Vec::new();
    loop {
        match client.next().unwrap() {
            Some(Response::Fetch { items, .. }) => data = items,
            Some(Response::Tagged { kind, code, .. }) => {
                return (data, format!("{kind:?} {code:?}"));
            }
            other => panic!("{other:?}"),
        }
    }
}

fn with_crlf(bytes: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    for &byte in bytes {
        if byte == b'\n' && out.last() != Some(&b'\r') {
            out.push(b'\r');
        }
        out.push(byte);
    }
    out
}

#[track_caller]
fn check(kind: &str, encoding: Encoding, bytes: &[u8], partial: Option<(u64, u64)>) {
    let mut world = selected(&message(kind, encoding, bytes));
    let whole = if kind.starts_with("text/") {
        with_crlf(bytes)
    } else {
        bytes.to_vec()
    };
    let expected = match partial {
        None => &whole[..],
        Some((offset, length)) => {
            let from = whole.len().min(offset as usize);
            &whole[from..whole.len().min(from + length as usize)]
        }
    };
    let cut = partial.map_or(String::new(), |(offset, length)| {
        format!("<{offset}.{length}>")
    });
    let (data, end) = fetch(
        &mut world,
        &format!("(BINARY.SIZE[1] BINARY.PEEK[1]{cut} UID)"),
    );
    assert_eq!(end, "Ok None");
    let [
        FetchData::BinarySize { size, .. },
        FetchData::Binary {
            part,
            origin,
            data: Some(found),
            literal8,
        },
        FetchData::Uid(_),
    ] = &data[..]
    else {
        panic!("{data:?}");
    };
    assert_eq!(*size, whole.len() as u64, "BINARY.SIZE");
    assert_eq!(
        (&part[..], *origin),
        (&[1][..], partial.map(|(offset, _)| offset))
    );
    assert!(
        found == expected,
        "{} octets instead of {}",
        found.len(),
        expected.len()
    );
    assert_eq!(*literal8, expected.contains(&0), "literal8 is for NUL");
    assert!(world.get("1").largest_send <= 200 * 1024);
}

#[test]
fn long_parts_are_read_twice_and_not_held() {
    let noise: Vec<u8> = (0..400_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let text: Vec<u8> = noise
        .iter()
        .map(|byte| byte % 26 + b'a')
        .flat_map(|byte| if byte < b'e' { b"\n\n" } else { b"ab" })
        .copied()
        .collect();
    for partial in [
        None,
        Some((0, 70_000)),
        Some((390_000, 70_000)),
        Some((100_000, 5)),
    ] {
        for encoding in [Encoding::Base64, Encoding::QuotedPrintable] {
            check("application/octet-stream", encoding, &noise, partial);
            check("text/plain", encoding, &text, partial);
        }
        check("text/plain", Encoding::EightBit, &text, partial);
        check("image/x-text", Encoding::EightBit, &text, partial);
    }
    check(
        "text/plain",
        Encoding::EightBit,
        &vec![b'\n'; 300_000],
        None,
    );
    // The last octet alone makes it binary.
    let mut almost = vec![b'x'; 200_000];
    almost.push(0);
    check("image/png", Encoding::Base64, &almost, None);
    check("image/png", Encoding::Base64, &almost, Some((0, 200_000)));
}

#[test]
fn what_is_not_asked_for_is_not_read() {
    let mut world = selected(&message("image/png", Encoding::Base64, &[7; 900_000]));
    let before = world.get("1").calls.get("BlobRead").copied().unwrap_or(0);
    fetch(&mut world, "BINARY.PEEK[1]<10.20>");
    let reads = world.get("1").calls["BlobRead"] - before;
    assert!(reads <= 1, "{reads} reads for 20 octets");
    // A part that is not encoded needs no reading to know its size, and no reading of what stands before.
    let mut world = selected(&message("image/x-raw", Encoding::EightBit, &[7; 900_000]));
    fetch(&mut world, "(BINARY.SIZE[1] BINARY.PEEK[1]<800000.20>)");
    assert!(world.get("1").calls["BlobRead"] <= 1);
}

/// What is no leaf has octets, too: an empty string would say that there is nothing.
#[test]
fn messages_and_multiparts_are_given() {
    let inner = "Subject: in\r\n\r\ntext\r\n";
    let parts = "--YY\r\n\r\none\r\n--YY--";
    let encoded = encode(Encoding::Base64, inner.as_bytes()).1;
    let encoded = String::from_utf8(encoded).unwrap();
    let text = format!(
        "Content-Type: multipart/mixed; boundary=XX\r\n\r\n\
         --XX\r\nContent-Type: message/rfc822\r\n\r\n{inner}\r\n\
         --XX\r\nContent-Type: multipart/mixed; boundary=YY\r\nContent-Transfer-Encoding: base64\r\n\r\n{parts}\r\n\
         --XX\r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\n{encoded}\r\n--XX--\r\n"
    );
    let mut world = selected(text.as_bytes());
    for (part, octets) in [(1, inner), (2, parts), (3, inner)] {
        let items = format!("(BINARY.PEEK[{part}] BINARY.SIZE[{part}])");
        let (data, end) = fetch(&mut world, &items);
        assert_eq!(end, "Ok None");
        let [
            FetchData::Binary {
                data: Some(found), ..
            },
            FetchData::BinarySize { size, .. },
        ] = &data[..]
        else {
            panic!("{data:?}");
        };
        assert_eq!(String::from_utf8_lossy(found), octets, "{part}");
        assert_eq!(*size, octets.len() as u64, "{part}");
    }
}

/// A message under an encoding shows what is in it, of any length, through all that FETCH knows.
#[test]
fn messages_under_an_encoding_are_looked_into() {
    let picture: Vec<u8> = (0..300_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let (_, base64) = encode(Encoding::Base64, &picture);
    let inner = [
        b"Subject: inner\r\nContent-Type: multipart/mixed; boundary=YY\r\n\r\n\
          --YY\r\nContent-Type: text/plain\r\n\r\nHello\r\n\
          --YY\r\nContent-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\n",
        &base64[..],
        b"\r\n--YY--\r\n",
    ]
    .concat();
    let header = &inner[..inner.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4];
    for encoding in [Encoding::Base64, Encoding::QuotedPrintable] {
        let mut world = selected(&message("message/rfc822", encoding, &inner));
        let cases: [(&str, &[u8]); 9] = [
            ("BODY.PEEK[1.HEADER]", header),
            ("BODY.PEEK[1.TEXT]", &inner[header.len()..]),
            (
                "BODY.PEEK[1.HEADER.FIELDS (SUBJECT)]",
                b"Subject: inner\r\n\r\n",
            ),
            ("BODY.PEEK[1.1]", b"Hello"),
            ("BODY.PEEK[1.1.MIME]", b"Content-Type: text/plain\r\n\r\n"),
            ("BODY.PEEK[1.1]<2.2>", b"ll"),
            ("BODY.PEEK[1.2]", &base64),
            ("BODY.PEEK[1.2]<200000.70000>", &base64[200_000..270_000]),
            ("BODY.PEEK[1.3]", b""),
        ];
        for (item, octets) in cases {
            let (data, end) = fetch(&mut world, item);
            assert_eq!(end, "Ok None");
            let [FetchData::Section { data: found, .. }] = &data[..] else {
                panic!("{data:?}");
            };
            assert!(found.as_deref().unwrap_or_default() == octets, "{item}");
        }
        for (part, octets) in [("1.1", &b"Hello"[..]), ("1.2", &picture), ("1", &inner)] {
            let items = format!("(BINARY.PEEK[{part}] BINARY.SIZE[{part}])");
            let (data, _) = fetch(&mut world, &items);
            let [
                FetchData::Binary {
                    data: Some(found), ..
                },
                FetchData::BinarySize { size, .. },
            ] = &data[..]
            else {
                panic!("{data:?}");
            };
            assert!(found == octets, "{part}");
            assert_eq!(*size, octets.len() as u64, "{part}");
        }
        assert!(world.get("1").largest_send <= 200 * 1024);
        world.get("1").outbox.clear();
        world.send("1", b"s1 SEARCH BODY hello\r\ns2 SEARCH TEXT \"subject: inner\"\r\ns3 SEARCH BODY inner\r\n");
        let told = String::from_utf8_lossy(&world.get("1").outbox).into_owned();
        let found: Vec<&str> = told
            .lines()
            .filter(|line| line.starts_with("* SEARCH"))
            .collect();
        assert_eq!(found, ["* SEARCH 1", "* SEARCH 1", "* SEARCH"]);
        world.get("1").outbox.clear();
        world.send("1", b"f FETCH 1 (BODYSTRUCTURE)\r\n");
        let told = String::from_utf8_lossy(&world.get("1").outbox).into_owned();
        assert!(
            told.contains("\"inner\"") && told.contains("\"png\""),
            "{told}"
        );
        world.get("1").outbox.clear();
        let (data, _) = fetch(&mut world, "(UID)");
        let [FetchData::Uid(uid)] = data[..] else {
            panic!("{data:?}");
        };
        // CATENATE takes a part of it.
        let url = format!("/INBOX/;UID={uid}/;section=1.1");
        let append = format!("c APPEND Sent CATENATE (URL \"{url}\")\r\nd EXAMINE Sent\r\n");
        world.send("1", append.as_bytes());
        let told = String::from_utf8_lossy(&world.get("1").outbox).into_owned();
        assert!(told.contains("c OK") && told.contains("d OK"), "{told}");
        world.get("1").outbox.clear();
        let (data, _) = fetch(&mut world, "BODY.PEEK[]");
        assert!(
            matches!(&data[..], [FetchData::Section { data: Some(found), .. }] if found == b"Hello"),
            "{data:?}"
        );
    }
}

#[test]
fn encodings_that_are_not_known() {
    let text = b"Content-Type: multipart/mixed; boundary=XX\r\n\r\n--XX\r\n\
        Content-Transfer-Encoding: x-rot13\r\n\r\nuryyb\r\n--XX\r\n\r\nhello\r\n--XX--\r\n";
    let mut world = selected(text);
    for item in ["BINARY.PEEK[1]", "BINARY.SIZE[1]"] {
        let (data, end) = fetch(&mut world, item);
        assert!(data.is_empty(), "{data:?}");
        assert_eq!(end, "No Some(Plain(\"UNKNOWN-CTE\"))");
        let (data, end) = fetch(&mut world, &format!("({item} BINARY.SIZE[2] UID)"));
        assert!(
            matches!(
                data[..],
                [FetchData::BinarySize { size: 5, .. }, FetchData::Uid(_)]
            ),
            "{data:?}"
        );
        assert_eq!(end, "No Some(Plain(\"UNKNOWN-CTE\"))");
    }
    // What was read is seen, and told.
    let (data, _) = fetch(&mut world, "BINARY[2]");
    assert!(matches!(&data[0], FetchData::Flags(flags) if *flags == ["\\Seen"]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn binary_is_what_was_encoded(
        encoding in prop_oneof![Just(Encoding::Base64), Just(Encoding::QuotedPrintable)],
        kind in prop_oneof![Just("text/plain"), Just("application/x-y")],
        bytes in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(0u8), any::<u8>()], 0..600),
        partial in proptest::option::of((0u64..700, 1u64..700)),
    ) {
        check(kind, encoding, &bytes, partial);
    }
}
