//! The client against transcripts, and against the server machine.

use proptest::prelude::*;

use super::*;
use crate::session::tests::script::{Owner, config as server_config};
use crate::session::{Config, Role};
use crate::{ForwardPath, HostName, Mailbox, ReversePath};

fn client_config() -> ClientConfig {
    ClientConfig {
        starttls: StartTls::Never,
        ..ClientConfig::new(HostName::new("client").unwrap())
    }
}

fn message(recipients: &[&str]) -> Outgoing {
    let recipients = recipients
        .iter()
        .map(|to| ForwardPath::Mailbox(Mailbox::parse(to).unwrap()))
        .collect();
    Outgoing {
        from: ReversePath::Null,
        recipients,
        size: Some(5),
        utf8: false,
        body: Body::EightBitMime,
    }
}

/// Runs a transcript: `S:` lines are given to the client, `C:` lines are what it sends, `=` what it tells: complete in order. The body
/// is `x`, in one piece.
fn check(config: &ClientConfig, recipients: &[&str], script: &str) {
    for size in [1, 7, 1_000] {
        let mut client = Client::new(config.clone());
        let mut sent = Vec::new();
        let mut told = VecDeque::new();
        let mut messages = 1;
        for line in script
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            let (kind, text) = line.split_at(2);
            let text = text.trim_start();
            if kind == "S:" {
                assert!(
                    sent.is_empty() && told.is_empty(),
                    "before {line:?}: {:?} {told:?}",
                    String::from_utf8_lossy(&sent)
                );
                let bytes = if text == "eof" {
                    String::new()
                } else {
                    format!("{}\r\n", text.replace("\\n", "\n"))
                };
                if text == "eof" {
                    client.on_eof();
                }
                for piece in bytes.as_bytes().chunks(size) {
                    client.input(piece);
                }
            }
            while let Some(output) = client.poll() {
                match output {
                    ClientOutput::Send(bytes) => sent.extend(bytes),
                    ClientOutput::StartTls => {
                        told.push_back("starttls".to_owned());
                        client.tls_started();
                    }
                    ClientOutput::Ready(_) => {
                        told.push_back("ready".to_owned());
                        if core::mem::take(&mut messages) == 1 {
                            client.send(message(recipients));
                        } else {
                            client.quit();
                        }
                    }
                    ClientOutput::WantBody => {
                        client.body(b"x");
                        client.body_end();
                    }
                    ClientOutput::Done(outcome) => {
                        let text = |r: &Result<Reply, Refusal>| {
                            r.as_ref()
                                .map_or_else(ToString::to_string, ToString::to_string)
                        };
                        let all: Vec<_> = outcome.recipients.iter().map(text).collect();
                        told.push_back(format!("done {}", all.join(", ")));
                    }
                    ClientOutput::Close(Ok(())) => told.push_back("closed".to_owned()),
                    ClientOutput::Close(Err(error)) => told.push_back(format!("failed: {error}")),
                }
            }
            match kind {
                "C:" => {
                    let end = sent
                        .windows(2)
                        .position(|w| w == b"\r\n")
                        .unwrap_or_else(|| panic!("nothing sent at {line:?} {told:?}"));
                    let got: Vec<u8> = sent.drain(..end + 2).collect();
                    assert_eq!(String::from_utf8_lossy(&got[..end]), text, "{script}");
                }
                "= " => assert_eq!(told.pop_front().as_deref(), Some(text), "{script}"),
                "S:" => {}
                _ => panic!("{line}"),
            }
        }
        assert!(sent.is_empty() && told.is_empty(), "{sent:?} {told:?}");
    }
}

#[test]
fn one_by_one() {
    check(
        &client_config(),
        &["a@x", "b@x"],
        "S: 220 mx
         C: EHLO client
         S: 250 mx
         = ready
         C: MAIL FROM:<>
         S: 250 ok
         C: RCPT TO:<a@x>
         S: 550 5.1.1 no
         C: RCPT TO:<b@x>
         S: 250 ok
         C: DATA
         S: 354 go
         C: x
         C: .
         S: 250 2.0.0 taken
         = done 550 5.1.1 no, 250 2.0.0 taken
         = ready
         C: QUIT
         S: 221 bye
         = closed",
    );
}

#[test]
fn pipelined() {
    let hello = "S: 220 mx
         C: EHLO client
         S: 250-mx
         S: 250-SIZE
         S: 250-8bitmime
         S: 250 PIPELINING
         = ready
         C: MAIL FROM:<> SIZE=5 BODY=8BITMIME
         C: RCPT TO:<a@x>
         C: RCPT TO:<b@x>
         C: DATA
         ";
    let quit = "= ready
         C: QUIT
         S: 221 bye
         = closed";
    let all_refused = "S: 250 ok
         S: 550 no
         S: 451 later
         S: 354 go
         C: .
         S: 554 no recipients
         = done 550 no, 451 later";
    check(
        &client_config(),
        &["a@x", "b@x"],
        &format!("{hello}{all_refused}\n{quit}"),
    );
    let mail_refused = "S: 550 no
         S: 503 MAIL first
         S: 503 MAIL first
         S: 503 MAIL first
         C: RSET
         S: 250 ok
         = done 550 no, 550 no";
    check(
        &client_config(),
        &["a@x", "b@x"],
        &format!("{hello}{mail_refused}\n{quit}"),
    );
    let gone = "S: 250 ok
         S: 421 down
         = failed: refused: 421 down";
    check(&client_config(), &["a@x", "b@x"], &format!("{hello}{gone}"));
    check(
        &client_config(),
        &["a@x", "b@x"],
        &format!("{hello}S: eof\n= failed: connection lost"),
    );
}

#[test]
fn lmtp_and_chunks() {
    let mut config = client_config();
    config.lmtp = true;
    config.chunking = true;
    let hello = "S: 220 mx
         C: LHLO client
         S: 250-mx
         S: 250-CHUNKING
         S: 250 PIPELINING
         = ready
         C: MAIL FROM:<>
         C: RCPT TO:<a@x>
         C: RCPT TO:<b@x>
         C: RCPT TO:<c@x>
         S: 250 ok
         S: 250 ok
         S: 550 no
         S: 250 ok
         C: BDAT 1
         C: xBDAT 0 LAST
         ";
    let quit = "= ready
         C: QUIT
         S: 221 bye
         = closed";
    check(
        &config,
        &["a@x", "b@x", "c@x"],
        &format!("{hello}S: 250 got it\nS: 250 a\nS: 452 c\n= done 250 a, 550 no, 452 c\n{quit}"),
    );
    check(
        &config,
        &["a@x", "b@x", "c@x"],
        &format!("{hello}S: 554 bad\nS: 503 a\nS: 503 c\n= done 554 bad, 550 no, 554 bad\n{quit}"),
    );
}

#[test]
fn starttls() {
    let mut config = client_config();
    config.starttls = StartTls::Require;
    let tls = "S: 220 mx
         C: EHLO client
         S: 250-mx
         S: 250 STARTTLS
         C: STARTTLS
         S: 220 go
         = starttls
         C: EHLO client
         S: 250 mx
         = ready
         C: MAIL FROM:<>
         S: 451 later
         C: RSET
         S: 250 ok
         = done 451 later
         = ready
         C: QUIT
         S: 221 bye
         = closed";
    check(&config, &["a@x"], tls);
    check(
        &config,
        &["a@x"],
        "S: 220 mx\nC: EHLO client\nS: 250 mx\n= failed: server does not offer STARTTLS",
    );
}

/// Replies behind the one to STARTTLS, in the same piece, were put there by somebody.
#[test]
fn bytes_behind_starttls() {
    let mut config = client_config();
    config.starttls = StartTls::Require;
    let mut client = Client::new(config);
    client.input(b"220 mx\r\n250-mx\r\n250 STARTTLS\r\n220 go\r\n250 mx\r\n");
    let last = core::iter::from_fn(|| client.poll()).last();
    assert_eq!(
        last,
        Some(ClientOutput::Close(Err(ClientError::InvalidReply(
            "bytes behind the reply to STARTTLS"
        ))))
    );
}

#[test]
fn invalid_replies() {
    for (script, error) in [
        ("S: hello", "no reply code"),
        ("S: 354 go", "an intermediate reply where none is due"),
        ("S: 220 mx\\n", "line without CRLF"),
        (
            "S: 220 mx\nC: EHLO client\nS: 250 mx\n= ready\nC: MAIL FROM:<>\nS: 250 ok\nC: RCPT TO:<a@x>\nS: 250 ok\nC: DATA\nS: 250 ok",
            "DATA is answered by 354",
        ),
    ] {
        check(
            &client_config(),
            &["a@x"],
            &format!("{script}\n= failed: invalid reply from the server: {error}"),
        );
    }
}

/// Sends `bodies` through both machines, in pieces; gives the messages that the owner took, and the outcomes.
fn through(
    config: ClientConfig,
    server: Config,
    role: Role,
    bodies: &[&[u8]],
    to: &[&str],
    piece: usize,
) -> (Vec<Vec<u8>>, Vec<Outcome>) {
    let mut owner = Owner::new(role, server, false);
    let mut client = Client::new(config);
    let mut left = bodies.iter();
    let mut body: &[u8] = b"";
    let mut outcomes = Vec::new();
    loop {
        owner.run();
        for bytes in core::mem::take(&mut owner.sent).chunks(piece) {
            client.input(bytes);
        }
        let Some(output) = client.poll() else {
            panic!("both wait; {:?}", owner.events)
        };
        match output {
            ClientOutput::Send(bytes) => owner.feed(&bytes, piece),
            ClientOutput::StartTls => client.tls_started(),
            ClientOutput::Ready(_) => match left.next() {
                Some(next) => {
                    body = next;
                    client.send(message(to));
                }
                None => client.quit(),
            },
            ClientOutput::WantBody => {
                body.chunks(piece).for_each(|bytes| client.body(bytes));
                client.body_end();
            }
            ClientOutput::Done(outcome) => outcomes.push(outcome),
            ClientOutput::Close(result) => {
                result.unwrap();
                return (owner.messages, outcomes);
            }
        }
    }
}

proptest! {
    /// What the client sends is what the server's owner gets, whatever the text, the split and the way; a text with bare line ends or
    /// NUL is refused and leaves the session whole.
    #[test]
    fn bodies_arrive(
        bodies in proptest::collection::vec("(.|\r\n|\r\n\\.|\r|\n|\0|\\.|é){0,30}", 1..4),
        piece in 1usize..40,
        lmtp: bool,
        chunking: bool,
        pipelining: bool,
        tls: bool,
    ) {
        let starttls = if tls { StartTls::Require } else { StartTls::Never };
        let config = ClientConfig { lmtp, chunking, pipelining, starttls, ..client_config() };
        let role = if lmtp { Role::Lmtp } else { Role::Smtp };
        let to = ["bob@x", "unknown@x", "full@x"];
        let raw: Vec<&[u8]> = bodies.iter().map(String::as_bytes).collect();
        let (messages, outcomes) = through(config, server_config(), role, &raw, &to, piece);
        let mut expected = Vec::new();
        for (body, outcome) in bodies.iter().zip(&outcomes) {
            let fine = !body.replace("\r\n", "").contains(['\r', '\n', '\0']);
            prop_assert_eq!(outcome.recipients[0].is_ok(), fine, "{:?} {:?}", body, outcome);
            prop_assert!(outcome.recipients[1].is_err());
            prop_assert_eq!(outcome.recipients[2].is_ok(), fine && !lmtp);
            if fine {
                let bdat = chunking && pipelining;
                let end = if bdat || body.is_empty() || body.ends_with("\r\n") { "" } else { "\r\n" };
                expected.push(format!("{body}{end}").into_bytes());
            }
        }
        prop_assert_eq!(outcomes.len(), bodies.len());
        prop_assert_eq!(messages, expected);
    }

    /// No server can make the client panic.
    #[test]
    fn any_bytes_are_survived(bytes in "(220 a\r\n|250 b\r\n|250-c\r\n|354 d\r\n|[245]..|\r|\n|\\PC){0,40}", piece in 1usize..9) {
        let mut client = Client::new(client_config());
        let mut sent = 0;
        for piece in bytes.as_bytes().chunks(piece) {
            client.input(piece);
            while let Some(output) = client.poll() {
                match output {
                    ClientOutput::Ready(_) if sent < 3 => {
                        sent += 1;
                        client.send(message(&["a@x", "b@x"]));
                    }
                    ClientOutput::WantBody => {
                        client.body(b"x");
                        client.body_end();
                    }
                    _ => {}
                }
            }
        }
    }
}
