//! How sessions end: replies that are none, lost connections, 421, timeouts.

use core::time::Duration;

use super::script::{check, check_all, client_config, message};
use crate::client::*;

const HELLO: &str = "S: 220 mx\nC: EHLO client\nS: 250 mx\n= ready\n";
const ENVELOPE: &str =
    "C: MAIL FROM:<>\nS: 250 ok\nC: RCPT TO:<a@x>\nS: 250 ok\nC: RCPT TO:<b@x>\nS: 550 no\n";
const BODY: &str = "C: DATA\nS: 354 go\nC: x\nC: .\n";

#[test]
fn invalid_replies() {
    for (script, error) in [
        ("S: hello", "no reply code (greeting)"),
        (
            "S: 354 go",
            "an intermediate reply where none is due (greeting)",
        ),
        ("S: 220 mx\\n", "line without CRLF (greeting)"),
        (
            &format!("{HELLO}C: MAIL FROM:<>\nS: 354 go"),
            "an intermediate reply where none is due (MAIL): unanswered, unanswered",
        ),
        (
            &format!("{HELLO}{ENVELOPE}C: DATA\nS: 250 ok"),
            "DATA is answered by 354 (DATA): recipient, 550 no",
        ),
        (
            &format!("{HELLO}{ENVELOPE}C: DATA\nS: 334 ok"),
            "an intermediate reply where none is due (DATA): recipient, 550 no",
        ),
        (
            &format!("{HELLO}{ENVELOPE}{BODY}S: 354 go"),
            "an intermediate reply where none is due (end of message): uncertain, 550 no",
        ),
        (
            &format!("{HELLO}{ENVELOPE}{BODY}S: huh"),
            "no reply code (end of message): uncertain, 550 no",
        ),
    ] {
        check(
            &client_config(),
            &["a@x", "b@x"],
            &format!("{script}\n= failed: invalid reply from the server: {error}"),
        );
    }
}

/// Replies that come in the same piece as the one that lets the client speak, or when it has nothing to say.
#[test]
fn replies_to_nothing() {
    let ready = || {
        let mut client = Client::new(client_config(), crate::Time::ZERO);
        for input in ["220 mx\r\n", "250 mx\r\n"] {
            client.input(crate::Time::ZERO, input.as_bytes());
            while client.poll().is_some() {}
        }
        client
    };
    let ended = |client: &mut Client| {
        let last = core::iter::from_fn(|| client.poll()).last();
        let Some(ClientOutput::Close(Err(failure))) = last else {
            panic!("{last:?}")
        };
        *failure
    };
    let nothing = ClientError::InvalidReply("a reply to nothing");
    let mut client = Client::new(client_config(), crate::Time::ZERO);
    client.input(crate::Time::ZERO, b"220 mx\r\n250 mx\r\n250 sender\r\n");
    assert_eq!(ended(&mut client).error, nothing);

    let mut client = ready();
    client.input(crate::Time::ZERO, b"250 ok\r\n");
    let failure = ended(&mut client);
    assert_eq!(
        (failure.error, failure.stage),
        (nothing.clone(), Stage::Idle)
    );

    // The message was given and is not on its way.
    let mut client = ready();
    client.send(crate::Time::ZERO, message(&["a@x"]));
    client.input(crate::Time::ZERO, b"250 ok\r\n");
    let failure = ended(&mut client);
    assert_eq!((failure.error, failure.stage), (nothing, Stage::Idle));
    assert_eq!(failure.unfinished, Some(vec![Fate::Unanswered]));

    let mut client = ready();
    client.send(crate::Time::ZERO, message(&["a@x"]));
    client.on_eof();
    let failure = ended(&mut client);
    assert_eq!((failure.stage, failure.stale), (Stage::Idle, true));
    assert_eq!(failure.unfinished, Some(vec![Fate::Unanswered]));

    // Endless.
    let mut client = ready();
    client.send(crate::Time::ZERO, message(&["a@x"]));
    while client.poll().is_some() {}
    let mut given = 0;
    while client.poll().is_none() {
        client.input(crate::Time::ZERO, b"250-more\r\n");
        given += 1;
        assert!(given < 1_000);
    }
}

/// The end of the message was given to send, or only to the machine.
#[test]
fn the_end_counts_when_it_is_given_out() {
    for given_out in [false, true] {
        let mut client = Client::new(client_config(), crate::Time::ZERO);
        for input in [
            "220 mx\r\n",
            "250 mx\r\n",
            "250 ok\r\n",
            "250 ok\r\n",
            "354 go\r\n",
        ] {
            client.input(crate::Time::ZERO, input.as_bytes());
            while let Some(output) = client.poll() {
                if let ClientOutput::Ready(_) = output {
                    client.send(crate::Time::ZERO, message(&["a@x"]));
                }
            }
        }
        client.body(crate::Time::ZERO, b"x");
        client.body_end(crate::Time::ZERO);
        if given_out {
            let sent = Some(ClientOutput::Send(b"x\r\n.\r\n".to_vec()));
            assert_eq!(client.poll(), sent);
        }
        client.on_eof();
        let Some(ClientOutput::Close(Err(failure))) = client.poll() else {
            panic!("{client:?}")
        };
        let (stage, fate) = match given_out {
            true => (Stage::End, Fate::Uncertain),
            false => (Stage::Body, Fate::Recipient),
        };
        assert_eq!((failure.stage, failure.stale), (stage, false));
        assert_eq!(failure.may_be_accepted(), given_out);
        assert_eq!(failure.unfinished, Some(vec![fate]));
    }
}

/// At each stage of the first message. A connection that was not used before is never stale.
#[test]
fn lost() {
    let error = "connection lost";
    for (script, told) in [
        ("C: MAIL FROM:<>\n", "(MAIL): unanswered, unanswered"),
        (
            "C: MAIL FROM:<>\nS: 250 ok\nC: RCPT TO:<a@x>\n",
            "(RCPT): unanswered, unanswered",
        ),
        (
            "C: MAIL FROM:<>\nS: 250 ok\nC: RCPT TO:<a@x>\nS: 250 ok\nC: RCPT TO:<b@x>\n",
            "(RCPT): recipient, unanswered",
        ),
        (&format!("{ENVELOPE}C: DATA\n"), "(DATA): recipient, 550 no"),
        (
            &format!("{ENVELOPE}{BODY}"),
            "(end of message): uncertain, 550 no",
        ),
    ] {
        check(
            &client_config(),
            &["a@x", "b@x"],
            &format!("{HELLO}{script}S: eof\n= failed: {error} {told}"),
        );
    }
    // All was decided before.
    check(
        &client_config(),
        &["a@x"],
        &format!(
            "{HELLO}C: MAIL FROM:<>\nS: 550 no\n= done 550 no\nC: RSET\nS: eof\n= failed: {error} (RSET)"
        ),
    );
    let pipelining = HELLO.replace("S: 250 mx", "S: 250-mx\nS: 250 PIPELINING");
    check(
        &client_config(),
        &["a@x"],
        &format!(
            "{pipelining}C: MAIL FROM:<>\nC: RCPT TO:<a@x>\nC: DATA\nS: 550 no\nS: eof\n= done 550 no\n= failed: {error} (RCPT)"
        ),
    );
    check(
        &client_config(),
        &["a@x"],
        &format!(
            "{pipelining}C: MAIL FROM:<>\nC: RCPT TO:<a@x>\nC: DATA\nS: 250 ok\nS: 250 ok\nS: eof\n= failed: {error} (DATA): recipient"
        ),
    );
    // After QUIT nothing is lost.
    check_all(
        &client_config(),
        &[],
        true,
        &format!("{HELLO}C: QUIT\nS: eof\n= closed"),
    );
    check_all(
        &client_config(),
        &[],
        true,
        &format!("{HELLO}C: QUIT\nS: 421 bye\n= closed"),
    );
    check_all(
        &client_config(),
        &[],
        true,
        &format!("{HELLO}C: QUIT\nS: wait 5\n= closed"),
    );
}

/// In LMTP some recipients have their reply, and others may have the message.
#[test]
fn lost_in_lmtp() {
    let mut config = client_config();
    config.lmtp = true;
    let script = (format!("{HELLO}{ENVELOPE}C: RCPT TO:<c@x>\nS: 250 ok\n{BODY}")
        + "S: 250 a has it\nS: eof\n= failed: connection lost (end of message): 250 a has it, 550 no, uncertain")
        .replace("EHLO", "LHLO");
    check(&config, &["a@x", "b@x", "c@x"], &script);
    let refused = script.replace("S: eof", "S: 421 4.3.2 down").replace(
        "connection lost (end of message): 250 a has it, 550 no, uncertain",
        "refused: 421 4.3.2 down (end of message)",
    );
    let refused = refused.replace(
        "= failed",
        "= done 250 a has it, 550 no, 421 4.3.2 down\n= failed",
    );
    check(&config, &["a@x", "b@x", "c@x"], &refused);
}

/// With BDAT the end goes out before the replies to the chunks have come.
#[test]
fn lost_in_chunks() {
    let mut config = client_config();
    config.chunking = true;
    let hello = HELLO.replace("S: 250 mx", "S: 250-mx\nS: 250-CHUNKING\nS: 250 PIPELINING");
    let script = format!(
        "{hello}C: MAIL FROM:<>\nC: RCPT TO:<a@x>\nS: 250 ok\nS: 250 ok\nC: BDAT 1\nC: xBDAT 0 LAST
         S: eof\n= failed: connection lost (end of message): uncertain"
    );
    check(&config, &["a@x"], &script);
}

/// RFC 5321 3.8: 421 in answer to anything. After the end of the message it is the answer to it.
#[test]
fn closing() {
    let told = "= failed: refused: 421 down";
    check(
        &client_config(),
        &["a@x", "b@x"],
        &format!("{HELLO}C: MAIL FROM:<>\nS: 421 down\n{told} (MAIL): unanswered, unanswered"),
    );
    check(
        &client_config(),
        &["a@x", "b@x"],
        &format!(
            "{HELLO}{ENVELOPE}{BODY}S: 421 down\n= done 421 down, 550 no\n{told} (end of message)"
        ),
    );
    // Idle, and not asked anything.
    check_all(
        &client_config(),
        &[],
        false,
        &format!("{HELLO}S: 421 down\n{told} (idle) stale"),
    );
    check_all(
        &client_config(),
        &[],
        false,
        &format!("{HELLO}S: eof\n= failed: connection lost (idle) stale"),
    );
}

/// A connection that has carried a message and ends before it answers anything of the next says nothing about that one.
#[test]
fn stale() {
    let first = format!(
        "{HELLO}C: MAIL FROM:<>\nS: 250 ok\nC: RCPT TO:<a@x>\nS: 250 ok\n{BODY}S: 250 taken\n= done 250 taken\n= ready\n"
    );
    let messages = [message(&["a@x"]), message(&["b@x"])];
    let check = |rest: &str| {
        check_all(&client_config(), &messages, true, &format!("{first}{rest}"));
    };
    check("C: MAIL FROM:<>\nS: 421 idle\n= failed: refused: 421 idle (MAIL) stale: unanswered");
    check("C: MAIL FROM:<>\nS: eof\n= failed: connection lost (MAIL) stale: unanswered");
    check("C: MAIL FROM:<>\nS: wait 300\n= failed: timeout (MAIL) stale: unanswered");
    // These are answers to the message, or mistakes.
    let answered = "C: MAIL FROM:<>\nS: 250 ok\nC: RCPT TO:<b@x>\n";
    check(&format!(
        "{answered}S: 421 down\n= failed: refused: 421 down (RCPT): unanswered"
    ));
    check(&format!(
        "{answered}S: eof\n= failed: connection lost (RCPT): unanswered"
    ));
    check(
        "C: MAIL FROM:<>\nS: huh\n= failed: invalid reply from the server: no reply code (MAIL): unanswered",
    );
    check(
        "C: MAIL FROM:<>\nS: 450 later\n= done 450 later\nC: RSET\nS: 250 ok\n= ready\nC: QUIT\nS: 221 bye\n= closed",
    );
}

/// RFC 5321 4.5.3.2: a second before each timeout nothing happens; half a reply does not prolong it.
#[test]
fn timeouts() {
    let tls = ClientConfig {
        starttls: StartTls::Require,
        ..client_config()
    };
    let login = ClientConfig {
        tls: true,
        login: Login::new("anne", "secret"),
        ..client_config()
    };
    let offers = "S: 220 mx\nC: EHLO client\nS: 250-mx\nS: 250 STARTTLS\nC: STARTTLS\n";
    let auth =
        "S: 220 mx\nC: EHLO client\nS: 250-mx\nS: 250 AUTH PLAIN\nC: AUTH PLAIN AGFubmUAc2VjcmV0\n";
    for (config, script, seconds, told) in [
        (&client_config(), "", 300, "greeting"),
        (&client_config(), "S: 220 mx\nC: EHLO client\n", 300, "EHLO"),
        (
            &client_config(),
            "S: 220 mx\nC: EHLO client\nS: 502 what\nC: HELO client\n",
            300,
            "EHLO",
        ),
        (&tls, offers, 60, "STARTTLS"),
        (
            &tls,
            &format!("{offers}S: 220 go\n= starttls\n"),
            60,
            "TLS handshake",
        ),
        (&login, auth, 120, "AUTH"),
        (
            &client_config(),
            &format!("{HELLO}C: MAIL FROM:<>\n"),
            300,
            "MAIL",
        ),
        (
            &client_config(),
            &format!("{HELLO}C: MAIL FROM:<>\nS: 250 ok\nC: RCPT TO:<a@x>\n"),
            300,
            "RCPT",
        ),
        (
            &client_config(),
            &format!("{HELLO}{ENVELOPE}C: DATA\n"),
            120,
            "DATA",
        ),
        (
            &client_config(),
            &format!("{HELLO}{ENVELOPE}{BODY}"),
            600,
            "end of message",
        ),
        (
            &client_config(),
            &format!("{HELLO}C: MAIL FROM:<>\nS: 550 no\n= done 550 no, 550 no\nC: RSET\n"),
            60,
            "RSET",
        ),
    ] {
        let half = if told == "TLS handshake" {
            ""
        } else {
            "S: 250-half\n"
        };
        let fates = match told {
            "MAIL" | "RCPT" => ": unanswered, unanswered",
            "DATA" => ": recipient, 550 no",
            "end of message" => ": uncertain, 550 no",
            _ => "",
        };
        check(
            config,
            &["a@x", "b@x"],
            &format!(
                "{script}S: wait {}\n{half}S: wait 1\n= failed: timeout ({told}){fates}",
                seconds - 1
            ),
        );
    }
    // A ready client is not waited for, whatever has passed.
    check_all(
        &client_config(),
        &[],
        false,
        &format!("{HELLO}S: wait 86400\n"),
    );
}

/// While the body is sent, each piece has its time.
#[test]
fn timeout_of_a_block() {
    let at = crate::Time::from_secs;
    let mut config = client_config();
    config.timeouts.block = Duration::from_secs(7);
    let mut client = Client::new(config, at(0));
    for input in [
        "220 mx\r\n",
        "250 mx\r\n",
        "250 ok\r\n",
        "250 ok\r\n",
        "354 go\r\n",
    ] {
        client.input(at(1), input.as_bytes());
        while let Some(output) = client.poll() {
            if let ClientOutput::Ready(_) = output {
                assert_eq!(client.deadline(), None);
                client.send(at(1), message(&["a@x"]));
            }
        }
    }
    assert_eq!(client.deadline(), Some(at(8)));
    client.body(at(100), b"x");
    assert_eq!(client.deadline(), Some(at(107)));
    client.on_time(at(106));
    assert!(matches!(client.poll(), Some(ClientOutput::Send(_))));
    client.on_time(at(107));
    let Some(ClientOutput::Close(Err(failure))) = client.poll() else {
        panic!("{client:?}")
    };
    assert_eq!(
        (failure.error, failure.stage),
        (ClientError::Timeout, Stage::Body)
    );
    assert_eq!(failure.unfinished, Some(vec![Fate::Recipient]));
    assert_eq!(client.deadline(), None);
}
