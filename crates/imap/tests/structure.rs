//! What is written of an encoded summary as it is read, against what is written of the decoded one; of a damaged one nothing is.
use crate::reference;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use whimbrel_imap::encode::structure;
use whimbrel_mime::{Limits, Parser, Summary, View};

/// Lines of which messages are made.
const LINES: &[&str] = &[
    "",
    "",
    "text",
    "--A",
    "--A",
    "--A--",
    "--B",
    "--B--",
    "Content-Type: multipart/mixed; boundary=A",
    "Content-Type: multipart/alternative; boundary=B; x=\"y z\"",
    "Content-Type: message/rfc822",
    "Content-Type: message/global",
    "Content-Type: image/png; name*=utf-8''%C3%A9",
    "Content-Disposition: attachment; filename=\"a \\\" b\"",
    "Content-Language: de, en",
    "Content-Language: fr",
    "Content-ID: <a@b>",
    "Content-MD5: x",
    "Content-Location: y",
    "Content-Description: \u{e9}",
    "Content-Transfer-Encoding: base64",
    "Date: today",
    "Subject: s\u{e9}",
    "From: A <a@b>",
    "Sender:",
    "Reply-To: friends: c@d, e@f;",
    "To: <@r:g@h>",
    "Cc: i",
    "Bcc: j@k",
    "In-Reply-To: <l@m>",
    "Message-ID: <n@o>",
];

/// Heads of items that mean something in a summary, or are refused.
const HEADS: &[u8] = &[
    0, 1, 2, 3, 0x18, 0x1b, 0x1f, 0x20, 0x40, 0x41, 0x58, 0x5f, 0x60, 0x80, 0x82, 0x84, 0x86, 0x8c,
    0x98, 0x9f, 0xf4, 0xf6, 0xff,
];

fn encoded() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(select(LINES), 0..40).prop_map(|lines| {
        let mut parser = Parser::new(&Limits::default());
        parser.push(b"Content-Type: multipart/mixed; boundary=A\r\n");
        for line in lines {
            parser.push(line.as_bytes());
            parser.push(b"\r\n");
        }
        parser.finish().encode()
    })
}

/// What is done to an encoding, and where.
fn damage() -> impl Strategy<Value = Vec<(Index, u8, u8)>> {
    prop::collection::vec((any::<Index>(), 0..3u8, select(HEADS)), 0..3)
}

fn do_damage(bytes: &mut Vec<u8>, damage: &[(Index, u8, u8)]) {
    for (at, kind, head) in damage {
        let at = at.index(bytes.len());
        match kind {
            0 => bytes[at] = *head,
            1 => bytes.insert(at, *head),
            _ => bytes[at] = bytes[at].wrapping_add(1),
        }
    }
}

/// ENVELOPE, BODY and BODYSTRUCTURE; `None`: they cannot be written.
fn from_view(bytes: &[u8], utf8: bool) -> Option<[Vec<u8>; 3]> {
    let view = View::new(bytes).ok()?;
    view.fields().ok()?;
    let mut made = [(); 3].map(|()| b"before".to_vec());
    structure::envelope(&mut made[0], &view.envelope().ok()?, utf8);
    for (extended, out) in [false, true].into_iter().zip(&mut made[1..]) {
        if structure::body(out, &view.body(), extended, utf8).is_err() {
            assert_eq!(out, b"before", "some of what is damaged was written");
            return None;
        }
    }
    Some(made)
}

fn from_tree(bytes: &[u8], utf8: bool) -> Option<[Vec<u8>; 3]> {
    let message = Summary::decode(bytes).ok()?.message;
    let mut made = [(); 3].map(|()| b"before".to_vec());
    reference::envelope(&mut made[0], &message.envelope, utf8);
    reference::body(&mut made[1], &message.body, false, utf8);
    reference::body(&mut made[2], &message.body, true, utf8);
    Some(made)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_written_is_that_of_the_tree(mut bytes in encoded(), damage in damage(), utf8: bool) {
        do_damage(&mut bytes, &damage);
        let expected = from_tree(&bytes, utf8);
        prop_assert!(expected.is_some() || !damage.is_empty());
        prop_assert_eq!(from_view(&bytes, utf8), expected);
    }
}
