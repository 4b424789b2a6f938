//! The family of APPEND against the real process: MULTIAPPEND (RFC 3502), CATENATE (4469), BINARY (3516), UTF8 (6855), REPLACE (8508) and
//! APPENDLIMIT (7889). After each OK the process is killed: what was acknowledged is there, octet for octet.

use whimbrel_e2e::{
    imap::{Imap, Reply, Status},
    message,
    server::{Builder, Server},
};

/// A literal that waits for nobody (LITERAL+).
fn literal(text: &[u8]) -> Vec<u8> {
    [format!("{{{}+}}\r\n", text.len()).as_bytes(), text].concat()
}

/// The same as a literal8.
fn literal8(text: &[u8]) -> Vec<u8> {
    [b"~", &literal(text)[..]].concat()
}

/// What a mailbox holds after a kill and a restart.
fn after_kill(server: &mut Server, mailbox: &str) -> Vec<Vec<u8>> {
    server.kill();
    server.start(&[]);
    let mut imap = server.anne();
    let messages = server.contents(&mut imap, mailbox).unwrap().messages;
    messages.into_iter().map(|message| message.bytes).collect()
}

fn send(imap: &mut Imap, parts: &[&[u8]]) -> Reply {
    imap.raw_command(&parts.concat()).unwrap()
}

/// UIDVALIDITY and the UIDs of an APPENDUID.
fn appended(reply: &Reply) -> (u32, String) {
    let code = reply.code("APPENDUID").expect("APPENDUID");
    let (validity, uids) = code.split_once(' ').expect("two arguments");
    (validity.parse().unwrap(), uids.to_owned())
}

#[test]
fn several_messages_at_once() {
    let mut server = Server::start_plain();
    let texts: Vec<Vec<u8>> = (0..3)
        .map(|n| message::bytes(&format!("multi-{n}"), 1000 + n * 30_000))
        .collect();
    let reply = send(
        &mut server.anne(),
        &[
            b"APPEND Archive (\\Seen) ",
            &literal(&texts[0]),
            b" \"17-Jul-1996 02:44:25 -0700\" ",
            &literal(&texts[1]),
            b" ",
            &literal(&texts[2]),
        ],
    )
    .ok("MULTIAPPEND");
    assert_eq!(appended(&reply).1.split([',', ':']).count(), 3, "{reply:?}");
    assert_eq!(after_kill(&mut server, "Archive"), texts);
    server.assert_no_panic();
}

#[test]
fn a_message_of_parts_of_others() {
    let mut server = Server::start_plain();
    let head =
        b"Subject: draft\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n";
    let draft = [
        &head[..],
        b"--b\r\n\r\nFirst part.\r\n--b\r\nContent-Type: application/zip; name=z\r\n\r\nZIP\r\n--b--\r\n",
    ]
    .concat();
    let mut imap = server.anne();
    let (validity, uid) = appended(&imap.append("Drafts", &[], &draft).unwrap().ok("APPEND"));
    let url = |section: &str| {
        format!("URL \"/Drafts;UIDVALIDITY={validity}/;UID={uid}/;section={section}\"")
    };
    // The second part and the header of the draft, with another first part.
    let reply = send(
        &mut imap,
        &[
            b"APPEND Drafts (\\Draft) CATENATE (",
            url("HEADER").as_bytes(),
            b" TEXT ",
            &literal(b"--b\r\n\r\nAnother.\r\n--b\r\n"),
            b" ",
            url("2.MIME").as_bytes(),
            b" ",
            url("2").as_bytes(),
            b" TEXT ",
            &literal(b"\r\n--b--\r\n"),
            b")",
        ],
    );
    let _ = reply.ok("CATENATE");
    let whole = [
        &head[..],
        b"--b\r\n\r\nAnother.\r\n--b\r\nContent-Type: application/zip; name=z\r\n\r\nZIP\r\n--b--\r\n",
    ]
    .concat();
    let missing = send(
        &mut imap,
        &[b"APPEND Drafts CATENATE (URL \"/Drafts/;UID=4000000\")"],
    );
    assert_eq!(missing.status, Status::No);
    assert!(missing.code.starts_with("BADURL"), "{missing:?}");
    assert_eq!(after_kill(&mut server, "Drafts"), [draft, whole]);
    server.assert_no_panic();
}

#[test]
fn a_message_in_place_of_another() {
    let mut server = Server::start_plain();
    let (old, new) = (message::bytes("old", 900), message::bytes("new", 5000));
    let mut imap = server.anne();
    let (_, uid) = appended(&imap.append("Drafts", &[], &old).unwrap().ok("APPEND"));
    let _ = imap.command("SELECT Drafts").unwrap().ok("SELECT");
    let command = format!("UID REPLACE {uid} Drafts (\\Draft) ");
    let reply = send(&mut imap, &[command.as_bytes(), &literal(&new)]).ok("REPLACE");
    let code = reply.code("APPENDUID").expect("APPENDUID");
    assert!(!code.ends_with(&format!(" {uid}")), "{code}");
    assert_eq!(after_kill(&mut server, "Drafts"), [new]);
    server.assert_no_panic();
}

#[test]
fn octets_of_eight_bits() {
    let mut server = Server::start_plain();
    // Every octet but NUL, CR and LF.
    let mut binary = b"Subject: binary\r\nContent-Transfer-Encoding: binary\r\n\r\n".to_vec();
    binary.extend((1..=255u8).filter(|byte| !matches!(byte, b'\r' | b'\n')));
    binary.extend(b"\r\n");
    let utf8 = "Subject: Gr\u{fc}\u{df}e \u{20ac}\r\nFrom: \u{e4}nne@ex\u{e4}mple.org\r\n\r\n\u{1f426}\r\n";
    let mut imap = server.anne();
    let _ = send(&mut imap, &[b"APPEND INBOX ", &literal8(&binary)]).ok("literal8");
    let refused = send(
        &mut imap,
        &[b"APPEND INBOX ", &literal8(b"Subject: s\r\n\r\na\0b\r\n")],
    );
    assert_eq!(
        (refused.status, refused.code.as_str()),
        (Status::No, "UNKNOWN-CTE")
    );
    let _ = imap.command("ENABLE UTF8=ACCEPT").unwrap().ok("ENABLE");
    let reply = send(
        &mut imap,
        &[b"APPEND INBOX UTF8 (", &literal8(utf8.as_bytes()), b")"],
    );
    let _ = reply.ok("UTF8");
    assert_eq!(
        after_kill(&mut server, "INBOX"),
        [binary, utf8.as_bytes().to_vec()]
    );
    server.assert_no_panic();
}

#[test]
fn the_limit_that_is_announced() {
    let mut server = Builder::default()
        .set("imap", "append_bytes_max = \"1MiB\"")
        .start();
    let mut imap = server.anne();
    let capabilities = imap.command("CAPABILITY").unwrap().ok("CAPABILITY");
    let capabilities: Vec<String> = capabilities
        .data("CAPABILITY")
        .concat()
        .iter()
        .map(whimbrel_e2e::imap::Node::text)
        .collect();
    let limit: usize = capabilities
        .iter()
        .find_map(|word| word.strip_prefix("APPENDLIMIT="))
        .and_then(|limit| limit.parse().ok())
        .unwrap_or_else(|| panic!("{capabilities:?}"));
    let of_size = |size: usize| {
        let mut text = b"Subject: s\r\n\r\n".to_vec();
        text.resize(size - 2, b'x');
        text.extend(b"\r\n");
        text
    };
    let _ = imap
        .append("INBOX", &[], &of_size(limit))
        .unwrap()
        .ok("the largest");
    // A synchronizing literal: the refusal comes before the octets.
    let refused = send(
        &mut imap,
        &[format!("APPEND INBOX {{{}}}", limit + 1).as_bytes()],
    );
    assert_eq!(
        (refused.status, refused.code.as_str()),
        (Status::No, "TOOBIG")
    );
    assert_eq!(after_kill(&mut server, "INBOX"), [of_size(limit)]);
    server.assert_no_panic();
}
