//! Rows 9, 10, 11 and 22: headers that cost much, and headers that say two things.
//!
//! That work is bounded is counted in `crates/mime/src/parser/hostile.rs`. Here the messages go their whole way: they are accepted, and what is
//! told of them is cut where the limits of `[mime]` say, at a size that does not follow from the message's.

use whimbrel_e2e::{
    imap::{Fetched, Node, Status},
    mail::Mail,
    server::{ACCOUNTS, Server},
};

use super::{Watch, lean};

/// A summary (`mime.summary_bytes_max`) as text, where an octet may become two.
const TOLD_BYTES_MAX: usize = 2 * (256 << 10) + 1024;

/// How many lists, strings and words there are in it, and how many bytes they have.
fn weigh(node: &Node) -> (usize, usize) {
    match node {
        Node::Nil => (1, 0),
        Node::Atom(bytes) | Node::Text(bytes) => (1, bytes.len()),
        Node::List(list) => list
            .iter()
            .map(weigh)
            .fold((1, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)),
    }
}

fn member(items: &Fetched, at: usize) -> &[Node] {
    match items.get("ENVELOPE") {
        Some(Node::List(envelope)) => match &envelope[at] {
            Node::List(list) => list,
            _ => &[],
        },
        other => panic!("no envelope: {other:?}"),
    }
}

const FROM: usize = 2;
const TO: usize = 5;

/// What each of them is, and its text. The lines of the second half are too long for SMTP.
fn messages() -> Vec<(&'static str, String)> {
    let many = |piece: &str, count: usize| piece.repeat(count);
    let parameters = |piece: &str| -> String {
        (0..100_000)
            .map(|n| piece.replace('#', &n.to_string()))
            .collect()
    };
    vec![
        (
            "500,000 addresses in folded lines",
            format!(
                "From: c@d\r\nTo: x@y{}\r\n\r\nbody\r\n",
                many(",\r\n a@b", 500_000)
            ),
        ),
        (
            "500,000 fields with an address each",
            format!("From: c@d\r\n{}\r\nbody\r\n", many("To: a@b\r\n", 500_000)),
        ),
        (
            "groups in groups",
            format!(
                "From: c@d\r\nTo: {}\r\n\r\nbody\r\n",
                many("g:\r\n ", 500_000)
            ),
        ),
        (
            "comments in comments",
            format!(
                "From: c@d\r\nTo: {}\r\n\r\nbody\r\n",
                many("(\r\n ", 500_000)
            ),
        ),
        (
            "400,000 fields of no meaning",
            format!("From: c@d\r\n{}\r\nbody\r\n", many("X: y\r\n", 400_000)),
        ),
        (
            "one field of twenty megabytes",
            format!(
                "From: c@d\r\nSubject: x{}\r\n\r\nbody\r\n",
                many("\r\n 0123456789", 1_600_000)
            ),
        ),
        (
            "100,000 pieces of a parameter",
            format!(
                "From: c@d\r\nContent-Type: text/plain{}\r\n\r\nbody\r\n",
                parameters(";\r\n a*#=b")
            ),
        ),
        (
            "100,000 pieces, percent-encoded",
            format!(
                "From: c@d\r\nContent-Disposition: x{}\r\n\r\nbody\r\n",
                parameters(";\r\n a*#*=%41")
            ),
        ),
        (
            "100,000 parameters",
            format!(
                "From: c@d\r\nContent-Type: text/plain{}\r\n\r\nbody\r\n",
                parameters(";\r\n p#=v")
            ),
        ),
        (
            "500,000 addresses in one line",
            format!(
                "From: c@d\r\nTo: x@y{}\r\n\r\nbody\r\n",
                many(", a@b", 500_000)
            ),
        ),
        (
            "one line of forty megabytes",
            format!(
                "From: c@d\r\nSubject: {}\r\n\r\nbody\r\n",
                many("x", 40 << 20)
            ),
        ),
        (
            "an address without end",
            format!(
                "From: c@d\r\nTo: <{}\r\n\r\nbody\r\n",
                many("@a,", 3_000_000)
            ),
        ),
    ]
}

#[test]
#[ignore = "long: hostile clients"]
fn rows_9_10_and_11_costly_headers() {
    let server = lean().start();
    let watch = Watch::start(&server);
    let mut imap = server.anne();
    let mut lmtp = Mail::lmtp(server.ports.lmtp).unwrap();
    for (at, (what, text)) in messages().into_iter().enumerate() {
        if at < 9 {
            let replies = lmtp
                .deliver("carl@example.net", &[ACCOUNTS[0].0], text.as_bytes(), true)
                .unwrap();
            assert!(replies[0].is(2), "{what}: {replies:?}");
        } else {
            let _ = imap.append("INBOX", &[], text.as_bytes()).unwrap().ok(what);
        }
        server.wait_count(&mut imap, "INBOX", at as u64 + 1);
        let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
        let fetched = imap
            .command("FETCH * (ENVELOPE BODYSTRUCTURE RFC822.SIZE)")
            .unwrap()
            .ok(what);
        let (_, items) = fetched.fetched().next().unwrap();
        assert_eq!(member(items, FROM).len(), 1, "{what}: what is honest in it");
        assert!(member(items, TO).len() <= 2000, "{what}: addresses_max");
        for name in ["ENVELOPE", "BODYSTRUCTURE"] {
            let (count, bytes) = weigh(items.get(name).unwrap());
            assert!(bytes <= TOLD_BYTES_MAX, "{what}: {name} has {bytes} bytes");
            let count_max = if name == "ENVELOPE" {
                5 * 2000 + 100
            } else {
                2 * 100 + 100
            };
            assert!(count <= count_max, "{what}: {name} has {count} members");
        }
        // What is not in the summary is read from the message, whole.
        let field = imap
            .command("FETCH * BODY.PEEK[HEADER.FIELDS (TO SUBJECT)]")
            .unwrap()
            .ok(what);
        let (_, items) = field.fetched().next().unwrap();
        let told = items.bytes("BODY[HEADER.FIELDS (TO SUBJECT)]").unwrap();
        let expected = if what.contains("meaning") || text.contains("Content-") {
            2
        } else {
            text.len() - "From: c@d\r\nbody\r\n".len()
        };
        assert_eq!(told.len(), expected, "{what}");
        for keys in [
            "TO a@b",
            "SUBJECT xx",
            "HEADER X y",
            "FROM c@d",
            "TEXT body",
            "BODY body",
        ] {
            let found = imap
                .command(&format!("SEARCH {keys}"))
                .unwrap()
                .ok(keys)
                .found();
            let has = |part: &str| text.contains(part);
            let expected = match keys {
                "TO a@b" => has("To: x@y") || has("To: a@b"),
                "HEADER X y" => has("X: y"),
                "SUBJECT xx" => has("Subject: xx"),
                _ => true,
            };
            assert_eq!(found.contains(&(at as u32 + 1)), expected, "{what}: {keys}");
        }
    }
    watch.end();
}

fn fetch_one(server: &Server, text: &str) -> Fetched {
    let mut imap = server.anne();
    let _ = imap
        .append("INBOX", &[], text.as_bytes())
        .unwrap()
        .ok("APPEND");
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    let fetched = imap.command("FETCH * (ENVELOPE)").unwrap().ok("FETCH");
    let (_, items) = fetched.fetched().next().unwrap();
    items.clone()
}

/// `mailbox@host` of each address; a group begins with `name:` and ends with `;`.
fn addresses(list: &[Node]) -> Vec<String> {
    list.iter()
        .map(|address| match address {
            Node::List(parts) => match (&parts[2], &parts[3]) {
                (Node::Nil, Node::Nil) => ";".to_owned(),
                (group, Node::Nil) => format!("{}:", group.text()),
                (mailbox, host) => format!("{}@{}", mailbox.text(), host.text()),
            },
            other => panic!("no address: {other:?}"),
        })
        .collect()
}

/// A filter that looks at one From and a reader that shows another were deceived elsewhere: here every sender there is, is told and found.
#[test]
#[ignore = "long: hostile clients"]
fn row_22_several_senders() {
    let server = lean().start();
    let watch = Watch::start(&server);
    for (text, expected) in [
        (
            "From: first@example.net\r\nFrom: second@example.net\r\n",
            &["first@example.net", "second@example.net"][..],
        ),
        (
            "From : first@example.net\r\nfrom:second@example.net\r\nFROM: third@example.net\r\n",
            &[
                "first@example.net",
                "second@example.net",
                "third@example.net",
            ],
        ),
        (
            "From: first@example.net, \"second@example.net\" <third@example.net>\r\n",
            &["first@example.net", "third@example.net"],
        ),
        (
            "From: group: first@example.net, second@example.net;, third@example.net\r\n",
            &[
                "group:",
                "first@example.net",
                "second@example.net",
                ";",
                "third@example.net",
            ],
        ),
        ("From: empty:;\r\n", &["empty:", ";"]),
        (
            "From: <first@example.net>(second@example.net)\r\n",
            &["first@example.net"],
        ),
        ("Sender: x@example.net\r\n", &[]),
    ] {
        let items = fetch_one(&server, &format!("{text}Subject: s\r\n\r\nbody\r\n"));
        assert_eq!(addresses(member(&items, FROM)), expected, "{text:?}");
        let mut imap = server.anne();
        let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
        for name in ["first", "second", "third"] {
            let found = imap
                .command(&format!("SEARCH * FROM {name}@example.net"))
                .unwrap()
                .ok("SEARCH")
                .found();
            // What is found is what ENVELOPE tells: a comment is nobody's name or address.
            let is_told = text.contains(name) && !text.contains(&format!("({name}"));
            assert_eq!(!found.is_empty(), is_told, "{text:?}: {name}");
        }
    }
    watch.end();
}

/// NUL and line ends that come out of an encoded word cut names short elsewhere, or began new lines.
#[test]
#[ignore = "long: hostile clients"]
fn row_22_nul_in_encoded_words() {
    let server = lean().start();
    let watch = Watch::start(&server);
    let text = "From: =?utf-8?q?potus=40whitehouse.example=00?= <evil@example.net>\r\n\
                To: =?utf-8?b?YQBiDQpjOiBk?= <anne@example.org>\r\n\
                Subject: =?utf-8?q?one=00two=0D=0AX-Injected=3A_three?=\r\n\r\nbody\r\n";
    let items = fetch_one(&server, text);
    assert_eq!(addresses(member(&items, FROM)), ["evil@example.net"]);
    // ENVELOPE tells encoded words as they are; what is decoded is what is searched.
    let mut imap = server.anne();
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    for (keys, expected) in [
        ("SUBJECT \"one two  X-Injected: three\"", true),
        ("FROM \"whitehouse.example <evil\"", true),
        ("TO \"a b  c: d\"", true),
        ("HEADER X-Injected three", false),
        ("SUBJECT \"X-Injected: three\"", true),
    ] {
        let reply = imap.command(&format!("SEARCH {keys}")).unwrap();
        assert_eq!(reply.status, Status::Ok, "{keys}");
        assert_eq!(!reply.found().is_empty(), expected, "{keys}");
    }
    watch.end();
}
