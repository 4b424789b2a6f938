//! Row 1: ends of data that are none, and line ends that are none (RFC 5321, 2.3.8: "SMTP client implementations MUST NOT transmit
//! these characters except when they are intended as line terminators and then MUST, as indicated above, transmit them only as a
//! <CRLF> sequence").
//!
//! Fails when the data scanner takes a bare LF for a line end.

use whimbrel_e2e::{
    mail::Mail,
    server::{ACCOUNTS, Server},
};

use super::{Watch, lean};

const FALSE_ENDS: &[&str] = &[
    "\n.\n",
    "\n.\r\n",
    "\r.\r",
    "\r\n.\n",
    "\r\n.\r",
    "\r.\r\n",
    "\r\n\n.\r\n",
    "\n\r.\r\n",
    "\r\n.\r\r\n",
    "\0\n.\r\n",
];

/// The codes that come for what is sent.
fn talk(port: u16, hello: &str, data: &str) -> Vec<u16> {
    let mut mail = Mail::connect(port).unwrap();
    let said = mail.command(hello).unwrap();
    assert!(said.is(2), "{said:?}");
    let _ = mail.command("MAIL FROM:<carl@example.net>").unwrap();
    let _ = mail
        .command(&format!("RCPT TO:<{}>", ACCOUNTS[0].0))
        .unwrap();
    assert_eq!(mail.command("DATA").unwrap().code, 354);
    mail.wire.send(data.as_bytes()).unwrap();
    let mut codes = Vec::new();
    while let Ok(reply) = mail.reply() {
        codes.push(reply.code);
    }
    codes
}

fn smuggle(server: &Server, port: u16, hello: &str) {
    for end in FALSE_ENDS {
        let data = format!(
            "Subject: outer\r\n\r\nfirst{end}MAIL FROM:<evil@example.net>\r\nRCPT TO:<{}>\r\nDATA\r\nSubject: smuggled\r\n\r\nsecond\r\n.\r\nNOOP\r\nQUIT\r\n",
            ACCOUNTS[0].0
        );
        let codes = talk(port, hello, &data);
        // One answer to one message, and it is no; then NOOP and QUIT, unless the connection ended.
        assert!(
            matches!(
                codes.as_slice(),
                [500..=599] | [421 | 500..=599, 221] | [500..=599, 250, 221]
            ),
            "{end:?}: {codes:?}"
        );
    }
    let mut imap = server.anne();
    assert_eq!(
        server.contents(&mut imap, "INBOX").unwrap().messages.len(),
        0,
        "nothing of it was accepted"
    );
}

#[test]
#[ignore = "long: hostile clients"]
fn row_1_smuggling() {
    let server = lean().start();
    let watch = Watch::start(&server);
    smuggle(&server, server.ports.smtp, "EHLO client.example.net");
    smuggle(&server, server.ports.lmtp, "LHLO client.example.net");
    // The same message with true line ends is accepted: what was refused is what we think.
    let codes = talk(
        server.ports.smtp,
        "EHLO client.example.net",
        "Subject: outer\r\n\r\nfirst\r\n..\r\nMAIL FROM:<evil@example.net>\r\n.\r\nNOOP\r\nQUIT\r\n",
    );
    assert_eq!(codes, [250, 250, 221]);
    let mut imap = server.anne();
    server.wait_count(&mut imap, "INBOX", 1);
    let inbox = server.contents(&mut imap, "INBOX").unwrap();
    assert!(
        inbox.messages[0]
            .bytes
            .ends_with(b"\r\n\r\nfirst\r\n.\r\nMAIL FROM:<evil@example.net>\r\n")
    );
    watch.end();
}

#[test]
#[ignore = "long: hostile clients"]
fn row_1_bare_line_ends_in_commands() {
    let server = lean().start();
    let watch = Watch::start(&server);
    for line in [
        "NOOP\n",
        "NOOP\r",
        "NO\rOP\r\n",
        "NOOP\nNOOP\r\n",
        "MAIL FROM:<a@example.net>\nRCPT TO:<anne@example.org>\r\n",
    ] {
        let mut mail = Mail::smtp(server.ports.smtp).unwrap();
        mail.wire
            .send(format!("{line}\r\nQUIT\r\n").as_bytes())
            .unwrap();
        let mut codes = Vec::new();
        while let Ok(reply) = mail.reply() {
            codes.push(reply.code);
        }
        assert!(
            codes
                .first()
                .is_some_and(|code| (500..600).contains(code) || *code == 421),
            "{line:?}: {codes:?}"
        );
        assert!(
            codes.iter().filter(|code| **code == 250).count() == 0,
            "{line:?}: {codes:?}"
        );
    }
    watch.end();
}
