//! Whatever is sent, in whatever state: no panic, no call that nobody answers, and every whole line is answered or the connection ends.

use proptest::prelude::*;
use whimbrel_frontend::session::Session;

use super::world::{Cut, World};

const WORDS: &[&str] = &[
    "a ",
    "b ",
    "NOOP",
    "LOGIN anne secret",
    "SELECT INBOX",
    "EXAMINE Sent",
    "FETCH ",
    "UID ",
    "STORE ",
    "COPY ",
    "MOVE ",
    "SEARCH ",
    "EXPUNGE",
    "CLOSE",
    "UNSELECT",
    "IDLE",
    "DONE",
    "APPEND INBOX ",
    "CATENATE (",
    "URL \"/INBOX/;UID=64\"",
    "URL ;UID=128/;SECTION=HEADER",
    "TEXT {3+}\r\nabc",
    "REPLACE 1 Sent {1+}\r\nx",
    " {2+}\r\nhi",
    "{3}",
    "{3+}",
    "{4294967296}",
    "~{3+}",
    "\r\n",
    "\r\n",
    "\r\n",
    "\n",
    " ",
    "1:*",
    "*",
    "1,3",
    "$",
    "64:*",
    "0",
    "FLAGS",
    "(FLAGS UID MODSEQ)",
    "FULL",
    "BODY[]",
    "BODY.PEEK[1.2.HEADER.FIELDS (A)]<0.5>",
    "BINARY[1]<2.3>",
    "BINARY.SIZE[]",
    "RFC822",
    "+FLAGS.SILENT (\\Seen)",
    "-FLAGS (x $Junk)",
    "(UNCHANGEDSINCE 3) FLAGS (\\Deleted)",
    "(CHANGEDSINCE 1)",
    "ALL",
    "OR SEEN NOT TEXT x",
    "RETURN (SAVE MIN) ",
    "RETURN (ALL) ",
    "MODSEQ 1",
    "BODY text",
    "Trash",
    "nowhere",
    "ENABLE IMAP4rev2",
    "ENABLE CONDSTORE",
    "LIST \"\" *",
    "LIST (SUBSCRIBED) \"\" (% *) RETURN (STATUS (MESSAGES))",
    "LSUB \"\" %",
    "CREATE x/y",
    "DELETE x",
    "RENAME x z",
    "STATUS INBOX (MESSAGES HIGHESTMODSEQ)",
    "AUTHENTICATE PLAIN",
    "AUTHENTICATE LOGIN =",
    "AGFubmUAc2VjcmV0",
    "STARTTLS",
    "LOGOUT",
    "(((",
    "\"",
    "\\",
    "\0",
    "abc",
    "ID NIL",
    "CAPABILITY",
    "NAMESPACE",
    "GETQUOTA \"\"",
    "GETQUOTAROOT INBOX",
    "SETQUOTA \"\" (STORAGE 512)",
    "CHECK",
    "SUBSCRIBE x",
];

/// Commands that are mostly valid; `#` is a set.
const LINES: &[&str] = &[
    "NOOP",
    "SELECT INBOX",
    "EXAMINE INBOX",
    "SELECT Trash",
    "FETCH # (FLAGS UID)",
    "UID FETCH # (BODY[] MODSEQ)",
    "FETCH # FULL",
    "FETCH # BODY.PEEK[HEADER.FIELDS (Subject X)]<1.9>",
    "UID FETCH # (BINARY.SIZE[1] BINARY[1] BINARY.PEEK[2] BINARY[]<3.9>)",
    "STORE # +FLAGS (\\Deleted)",
    "UID STORE # -FLAGS.SILENT (\\Seen x)",
    "STORE # (UNCHANGEDSINCE 3) FLAGS ()",
    "COPY # Trash",
    "UID COPY # INBOX",
    "MOVE # Trash",
    "UID MOVE # INBOX",
    "EXPUNGE",
    "UID EXPUNGE #",
    "SEARCH # UNSEEN",
    "SEARCH RETURN (SAVE) #",
    "UID SEARCH RETURN (MIN ALL COUNT) TEXT text",
    "SEARCH BODY 2 SUBJECT 2",
    "CLOSE",
    "UNSELECT",
    "IDLE\r\nDONE",
    "APPEND INBOX (\\Deleted) {4+}\r\na\r\nb",
    "APPEND nowhere {3+}\r\nabc",
    "APPEND Sent {2+}\r\na: {2+}\r\nb:",
    "APPEND Sent CATENATE (TEXT {2+}\r\na: URL ;UID=64)",
    "REPLACE 1 Sent {2+}\r\na:",
    "UID REPLACE * INBOX {2+}\r\na:",
    "CHECK",
    "ENABLE IMAP4rev2 CONDSTORE",
    "LIST \"\" * RETURN (STATUS (MESSAGES))",
    "DELETE Trash",
    "CREATE Trash",
    "RENAME INBOX old",
    "RENAME Trash INBOX/a",
    "STATUS INBOX (HIGHESTMODSEQ)",
    "LOGIN anne secret",
    "SEARCH $ MODSEQ 1",
    "FETCH $ (RFC822.SIZE INTERNALDATE)",
];

const SETS: &[&str] = &["1", "2", "1:*", "*", "3,1", "64:200", "$", "1:3", "99"];

fn lines() -> impl Strategy<Value = Vec<u8>> {
    let line = (
        proptest::sample::select(LINES),
        proptest::sample::select(SETS),
    )
        .prop_map(|(line, set)| format!("t {}\r\n", line.replace('#', set)).into_bytes());
    proptest::collection::vec(line, 0..30).prop_map(|lines| lines.concat())
}

fn words() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        20 => proptest::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(word, 0..60).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn nothing_harms_a_session(
        tls in prop::bool::weighted(0.9),
        start in 0usize..3,
        lines in lines(),
        words in words(),
        sizes in proptest::collection::vec(1usize..40, 1..5),
        real in any::<bool>(),
    ) {
        let mut said = Vec::new();
        for cut in [Cut::AtOnce, Cut::Sizes(sizes)] {
            let mut world = if real { World::real(cut) } else { World::new(cut) };
            world.fake.fill("INBOX", 3, |n| format!("Subject: {n}\r\n\r\ntext {n}\r\n").into_bytes());
            world.connect("1", tls);
            let begin = ["", "a LOGIN anne secret\r\n", "a LOGIN anne secret\r\nb SELECT INBOX\r\n"][if tls { start } else { 0 }];
            world.send("1", begin.as_bytes());
            world.send("1", &lines);
            world.send("1", &words);
            let connection = world.get("1");
            if connection.wants_tls {
                // How much was read with STARTTLS depends on the cut, and so does what comes of it.
                return Ok(());
            }
            prop_assert!(connection.closed || connection.session.wants_input(), "it hangs");
            prop_assert!(connection.session.buffered_bytes() < 1 << 20);
            said.push(std::mem::take(&mut connection.outbox));
            world.eof("1");
            prop_assert!(world.get("1").closed);
            prop_assert_eq!(world.fake.open_uploads(), 0);
        }
        // Property: any cut of the client's bytes gives the same bytes of the server.
        let text = |said: &[u8]| String::from_utf8_lossy(said).into_owned();
        if !text(&said[0]).contains("STARTTLS") || tls {
            prop_assert_eq!(text(&said[0]), text(&said[1]));
        }
    }
}
