//! Row 2: what is pipelined behind STARTTLS must not be carried over into the protected session (RFC 9051, 6.2.1; RFC 3207, 4.2).
//!
//! Fails when the input buffer is kept across the handshake.

use whimbrel_e2e::{
    imap::{Imap, Response},
    mail::Mail,
    server::ACCOUNTS,
};

use super::{Watch, lean, unless_closed};

#[test]
#[ignore = "long: hostile clients"]
fn row_2_imap() {
    let server = lean().start();
    let watch = Watch::start(&server);
    let (user, password) = ACCOUNTS[0];
    for injected in [
        "x NOOP\r\n".to_owned(),
        format!("x LOGIN {user} \"{password}\"\r\n"),
        "x LOGOUT\r\n".to_owned(),
        "x LO".to_owned(),
    ] {
        let imap = Imap::connect_clear(server.ports.imap).unwrap();
        let mut imap = imap.unwatched();
        imap.wire
            .send(format!("a STARTTLS\r\n{injected}").as_bytes())
            .unwrap();
        let response = loop {
            match imap.response().unwrap() {
                Response::Tagged(tag, status, ..) => break (tag, status.name()),
                Response::Data(..) | Response::State(..) => {}
                other => panic!("{other:?}"),
            }
        };
        // Refusing is one right answer, going on without what was injected the other.
        if response == ("a".to_owned(), "OK") && imap.wire.start_tls(&server.tls).is_ok() {
            // An answer to anything else would be an error of the protocol.
            if let Some(reply) = unless_closed(imap.command("SELECT INBOX")) {
                assert_ne!(reply.status.name(), "OK", "{injected:?} had its effect");
                assert!(
                    reply.text.contains("log in"),
                    "{injected:?} had its effect: {reply:?}"
                );
            }
        } else {
            assert!(response.0 == "a", "{response:?}");
        }
    }
    // Without an injection it works.
    let mut imap = Imap::connect_clear(server.ports.imap).unwrap();
    let _ = imap.command("STARTTLS").unwrap().ok("STARTTLS");
    imap.wire.start_tls(&server.tls).unwrap();
    let _ = imap
        .command(&format!("LOGIN {user} \"{password}\""))
        .unwrap()
        .ok("LOGIN");
    watch.end();
}

#[test]
#[ignore = "long: hostile clients"]
fn row_2_smtp() {
    let server = lean().start();
    let watch = Watch::start(&server);
    for injected in [
        "RSET\r\n",
        "MAIL FROM:<evil@example.net>\r\n",
        "QUIT\r\n",
        "MAI",
    ] {
        let mut mail = Mail::smtp(server.ports.smtp).unwrap();
        mail.wire
            .send(format!("STARTTLS\r\n{injected}").as_bytes())
            .unwrap();
        let reply = mail.reply().unwrap();
        if reply.code == 220 && mail.wire.start_tls(&server.tls).is_ok() {
            // The first answer within TLS must be that to EHLO, and nothing of before may be known.
            if let Ok(reply) = mail.command("EHLO client.example.net") {
                assert!(
                    reply.code == 250 && reply.lines.len() > 1,
                    "{injected:?}: {reply:?}"
                );
                assert_eq!(
                    mail.command(&format!("RCPT TO:<{}>", ACCOUNTS[0].0))
                        .unwrap()
                        .code,
                    503,
                    "{injected:?} had its effect"
                );
            }
        } else {
            assert!(reply.code == 220 || reply.is(5) || reply.is(4), "{reply:?}");
        }
    }
    let mut mail = Mail::smtp(server.ports.smtp).unwrap();
    mail.start_tls(&server.tls, "EHLO client.example.net")
        .unwrap();
    assert_eq!(mail.command("NOOP").unwrap().code, 250);
    watch.end();
}
