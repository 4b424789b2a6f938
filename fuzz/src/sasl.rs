//! SASL: an exchange with a client that says anything, and a service that agrees to everything it is asked.
//!
//! First byte: the mechanism, whether there is TLS, what it binds to, whether the first message comes along. The messages are divided by
//! 0xFF, which stands in no UTF-8. Laws: nobody is in unless the service said so, and then as whom it said; nothing begins outside TLS; what is
//! over stays over.

use whimbrel_frontend::{
    sasl::{Channel, Exchange, Mechanism, Step},
    session::{Binding, Tls},
};
use whimbrel_service::api::{AccountId, Call, Reply};

/// Any input.
pub fn run(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    let tls = Tls {
        version: "TLSv1.3",
        cipher: String::new(),
        binding: Binding {
            exporter: (choice & 4 != 0).then(|| Box::new([7; 32])),
            end_point: (choice & 8 != 0).then(|| [8; 32].as_slice().into()),
        },
    };
    let channel = Channel {
        peer: [192, 0, 2, 1].into(),
        tls: (choice & 16 == 0).then_some(&tls),
        scram: choice & 32 == 0,
    };
    let mechanism = [
        Mechanism::ScramSha256Plus,
        Mechanism::ScramSha256,
        Mechanism::Plain,
        Mechanism::Login,
    ][usize::from(choice & 3)];
    let mut messages = data.split(|byte| *byte == 0xFF);
    let initial = if choice & 64 == 0 {
        messages.next()
    } else {
        None
    };
    let Some((mut exchange, mut step)) = Exchange::begin(mechanism.name(), initial, &channel)
    else {
        assert!(!channel.mechanisms().contains(&mechanism));
        return;
    };
    assert!(channel.tls.is_some(), "an exchange in the clear");
    let mut proved = None;
    loop {
        step = match step {
            Step::Challenge(text) => {
                assert!(text.len() <= 3 * whimbrel_frontend::sasl::MESSAGE_BYTES_MAX);
                match messages.next() {
                    Some(message) => exchange.respond(message),
                    None => return,
                }
            }
            Step::Ask(call) => exchange.reply(agree(call, &mut proved)),
            Step::Accepted { login, .. } => {
                assert_eq!(Some(login), proved, "who is in is whom the service knows");
                break;
            }
            Step::Refused(_) => break,
        };
    }
    assert!(
        matches!(exchange.respond(b""), Step::Refused(_)),
        "what is over stays over"
    );
}

/// The service knows everybody, by whatever proof.
fn agree(call: Call, proved: &mut Option<String>) -> Reply {
    let account = AccountId([1; 16]);
    match call {
        Call::Authenticate(ask) => {
            *proved = Some(ask.login.clone());
            Reply::Authenticated {
                account,
                login: ask.login,
            }
        }
        Call::ScramBegin { .. } => Reply::ScramChallenge {
            salt: [5; 16],
            iterations: 4096,
            nonce: "server".to_owned(),
        },
        Call::ScramFinish(ask) => {
            *proved = Some(ask.login.clone());
            Reply::ScramAuthenticated {
                account,
                login: ask.login,
                signature: [9; 32],
            }
        }
        other => panic!("an exchange asks for {other:?}"),
    }
}
