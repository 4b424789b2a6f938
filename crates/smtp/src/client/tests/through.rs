//! Both machines against each other; any server.

use proptest::prelude::*;

use super::script::{client_config, message};
use crate::Time;
use crate::client::*;
use crate::session::tests::script::{Owner, config as server_config};
use crate::session::{Config, Role};

fn is_ok(decision: &Decision) -> bool {
    matches!(decision, Decision::Accepted(_))
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
    let mut client = Client::new(config, Time::ZERO);
    let mut left = bodies.iter();
    let mut body: &[u8] = b"";
    let mut outcomes = Vec::new();
    loop {
        owner.run();
        for bytes in core::mem::take(&mut owner.sent).chunks(piece) {
            client.input(Time::ZERO, bytes);
        }
        let Some(output) = client.poll() else {
            panic!("both wait; {:?}", owner.events)
        };
        match output {
            ClientOutput::Send(bytes) => owner.feed(&bytes, piece),
            ClientOutput::StartTls => client.tls_started(Time::ZERO),
            ClientOutput::StartTlsRefused(refusal) => panic!("{refusal}"),
            ClientOutput::Ready(_) => match left.next() {
                Some(next) => {
                    body = next;
                    client.send(Time::ZERO, message(to));
                }
                None => client.quit(Time::ZERO),
            },
            ClientOutput::WantBody => {
                body.chunks(piece)
                    .for_each(|bytes| client.body(Time::ZERO, bytes));
                client.body_end(Time::ZERO);
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
            prop_assert_eq!(is_ok(&outcome.recipients[0]), fine, "{:?} {:?}", body, outcome);
            prop_assert!(!is_ok(&outcome.recipients[1]));
            prop_assert_eq!(is_ok(&outcome.recipients[2]), fine && !lmtp);
            if fine {
                let bdat = chunking && pipelining;
                let end = if bdat || body.is_empty() || body.ends_with("\r\n") { "" } else { "\r\n" };
                expected.push(format!("{body}{end}").into_bytes());
            }
        }
        prop_assert_eq!(outcomes.len(), bodies.len());
        prop_assert_eq!(messages, expected);
    }

    /// No server can make the client panic, hold without bound, or lose a message without a word.
    #[test]
    fn any_replies_are_survived(
        choice: [u8; 2],
        replies in proptest::collection::vec(
            "220 a\r\n|250 b\r\n|250-c\r\n250-(PIPELINING|SIZE [0-9]{1,2}|CHUNKING|DSN|REQUIRETLS|AUTH=LOGIN|AUTH PLAIN|STARTTLS)\r\n250 (8BITMIME|LIMITS RCPTMAX=[12] MAILMAX=2|SMTPUTF8)\r\n|354 d\r\n|334 \r\n|235 \r\n|(421|452|502|552|[245][0-9]{2}) e\r\n|[245]..|\r|\n|\\PC",
            0..40,
        ),
    ) {
        let mut data = choice.to_vec();
        data.extend(replies.concat().into_bytes());
        crate::fuzz::client(&data);
    }
}
