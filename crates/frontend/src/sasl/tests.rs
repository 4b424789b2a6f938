//! Exchanges against the real authenticator, by a client of the tests' own.

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroU32,
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{digest, hmac, pbkdf2};
use whimbrel_service::{
    auth::{Authenticator, Credentials, Limits, Looked, MadeUp},
    machine::{Now, Output, RequestId, Ticket},
    scram::derive,
};

use super::*;
use crate::session::Binding;

const EXPORTED: [u8; 32] = [7; 32];
const END_POINT: &[u8] = b"hash of the certificate";

fn tls(exporter: bool) -> Tls {
    Tls {
        version: "TLS",
        cipher: "X".into(),
        binding: Binding {
            exporter: exporter.then(|| Box::new(EXPORTED)),
            end_point: Some(Arc::from(END_POINT)),
        },
    }
}

/// The service: one account, anne, whose password is `secret`, and bob, who has no keys.
struct Service {
    authenticator: Authenticator,
    known: BTreeMap<&'static str, Credentials>,
    calls: usize,
}

impl Service {
    fn new() -> Self {
        let scram = derive("secret", [5; 16], NonZeroU32::new(4096).unwrap()).unwrap();
        let known = |number, login: &str, scram| Credentials {
            account: AccountId([number; 16]),
            login: login.to_owned(),
            verifier: "v".to_owned(),
            scram,
        };
        Service {
            authenticator: Authenticator::new(Limits::default(), [9; 32], "decoy".to_owned()),
            known: [
                ("anne", known(1, "anne", Some(scram.clone()))),
                ("bob", known(2, "bob", None)),
                ("a,b=c", known(3, "a,b=c", Some(scram))),
            ]
            .into(),
            calls: 0,
        }
    }

    fn answer(&mut self, call: Call) -> Reply {
        self.calls += 1;
        let (now, request) = (Now::default(), RequestId(1));
        let mut out = VecDeque::new();
        match call {
            Call::ScramBegin { login, peer } => {
                let made_up = MadeUp {
                    name: login.clone(),
                    secret: None,
                    iterations: None,
                };
                let known = self.known.get(login.as_str()).cloned();
                let output = self
                    .authenticator
                    .scram_begin(now, request, peer, known, &made_up);
                out.push_back(output);
            }
            Call::ScramFinish(ask) => {
                let known = self.known.get(ask.login.as_str()).cloned();
                self.authenticator
                    .scram_finish(now, request, &ask, known, &mut out);
            }
            Call::Authenticate(ask) => {
                let known = self.known.get(ask.login.as_str()).cloned();
                let right = ask.password.as_slice() == b"secret";
                let mut ticket = || Ticket(1);
                let looked = Looked {
                    known: known.clone(),
                    decoy: None,
                };
                self.authenticator
                    .begin(now, request, ask, looked, &mut ticket, &mut out);
                if matches!(out.front(), Some(Output::Verify { .. })) {
                    out.clear();
                    let still = |_: &str| known;
                    self.authenticator.verified(
                        now,
                        Ticket(1),
                        right,
                        still,
                        &mut ticket,
                        &mut out,
                    );
                }
            }
            other => panic!("{other:?}"),
        }
        let reply = out.into_iter().find_map(|output| match output {
            Output::Reply(_, reply) => Some(reply),
            _ => None,
        });
        reply.unwrap()
    }
}

fn mac(key: &[u8], data: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data)
        .as_ref()
        .to_vec()
}

/// What a client says, with the places where it can go wrong.
#[derive(Clone)]
struct Client {
    mechanism: &'static str,
    /// Before the name: flag and `a=`.
    header: String,
    name: &'static str,
    password: &'static str,
    nonce: &'static str,
    /// What it is bound to.
    data: Vec<u8>,
    /// Does something to its last message before the proof is made.
    twist: fn(String) -> String,
    extensions: &'static str,
}

fn client() -> Client {
    Client {
        mechanism: "SCRAM-SHA-256",
        header: "n,,".to_owned(),
        name: "anne",
        password: "secret",
        nonce: "rOprNGfwEbeRWgbNEkqO",
        data: Vec::new(),
        twist: |message| message,
        extensions: "",
    }
}

fn plus(binding: &str, data: &[u8]) -> Client {
    Client {
        mechanism: "SCRAM-SHA-256-PLUS",
        header: format!("p={binding},,"),
        data: data.to_vec(),
        ..client()
    }
}

/// Until the client has something to say, or all is over.
fn until_challenged(exchange: &mut Exchange, mut step: Step, service: &mut Service) -> Step {
    while let Step::Ask(call) = step {
        step = exchange.reply(service.answer(call));
    }
    step
}

impl Client {
    /// Ends as the account's first byte, or a refusal; the client checks the server's signature.
    fn run(&self, tls: &Tls, service: &mut Service) -> Result<u8, Refused> {
        let channel = Channel {
            peer: IpAddr::from([192, 0, 2, 1]),
            tls: Some(tls),
            scram: true,
        };
        let bare = format!("n={},r={}{}", self.name, self.nonce, self.extensions);
        let first = format!("{}{bare}", self.header);
        let (mut exchange, step) =
            Exchange::begin(self.mechanism, Some(first.as_bytes()), &channel).unwrap();
        let challenge = match until_challenged(&mut exchange, step, service) {
            Step::Challenge(challenge) => String::from_utf8(challenge).unwrap(),
            Step::Refused(why) => return Err(why),
            other => panic!("{other:?}"),
        };
        let [nonce, salt, iterations] = ["r=", "s=", "i="].map(|name| {
            let mut attributes = challenge.split(',');
            attributes.find_map(|text| text.strip_prefix(name)).unwrap()
        });
        assert!(nonce.starts_with(self.nonce) && nonce.len() >= self.nonce.len() + 18);
        let bound = STANDARD.encode([self.header.as_bytes(), &self.data].concat());
        let message = (self.twist)(format!("c={bound},r={nonce}{}", self.extensions));
        let mut salted = [0; 32];
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            iterations.parse().unwrap(),
            &STANDARD.decode(salt).unwrap(),
            self.password.as_bytes(),
            &mut salted,
        );
        let proved = format!("{bare},{challenge},{message}");
        let client_key = mac(&salted, b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        let signature = mac(stored_key.as_ref(), proved.as_bytes());
        let proof: Vec<u8> = client_key
            .iter()
            .zip(signature)
            .map(|(a, b)| a ^ b)
            .collect();
        let last = format!("{message},p={}", STANDARD.encode(proof));
        let step = exchange.respond(last.as_bytes());
        match until_challenged(&mut exchange, step, service) {
            Step::Challenge(proof) => {
                let own = mac(&mac(&salted, b"Server Key"), proved.as_bytes());
                assert_eq!(proof, format!("v={}", STANDARD.encode(own)).into_bytes());
            }
            Step::Refused(why) => return Err(why),
            other => panic!("{other:?}"),
        }
        match exchange.respond(b"") {
            Step::Accepted { account, .. } => Ok(account.0[0]),
            other => panic!("{other:?}"),
        }
    }
}

#[track_caller]
fn check(client: &Client, exporter: bool, expected: Result<u8, Refused>) {
    let mut service = Service::new();
    assert_eq!(client.run(&tls(exporter), &mut service), expected);
    if expected == Err(Refused::Binding) {
        assert!(
            service.calls <= 1,
            "the service is not even asked for a check"
        );
    }
}

const WRONG: Result<u8, Refused> = Err(Refused::Failed(Failure::Credentials));
const BINDING: Result<u8, Refused> = Err(Refused::Binding);

#[test]
fn who_has_the_password_comes_in() {
    check(&client(), true, Ok(1));
    check(&client(), false, Ok(1));
    check(&plus("tls-exporter", &EXPORTED), true, Ok(1));
    check(&plus("tls-server-end-point", END_POINT), true, Ok(1));
    let acts_for_himself = Client {
        header: "n,a=ANNE,".to_owned(),
        ..client()
    };
    check(&acts_for_himself, true, Ok(1));
    let escaped = Client {
        name: "a=2Cb=3Dc",
        ..client()
    };
    check(&escaped, true, Ok(3));
    let extended = Client {
        extensions: ",x=1,Y=a=b",
        ..client()
    };
    check(&extended, true, Ok(1));
}

#[test]
fn who_has_not_does_not() {
    for (name, password) in [
        ("anne", "Secret"),
        ("anne", ""),
        ("carl", "secret"),
        ("bob", "secret"),
        ("Anne", "secret"),
    ] {
        let client = Client {
            name,
            password,
            ..client()
        };
        check(&client, true, WRONG);
        // Row 20: nor who binds the right connection.
        let bound = Client {
            name,
            password,
            ..plus("tls-exporter", &EXPORTED)
        };
        check(&bound, true, WRONG);
    }
}

/// BAD_INPUTS 20: whoever sits between has another connection to us than the client has to him.
#[test]
fn a_binding_to_another_connection_is_refused() {
    check(&plus("tls-exporter", &[8; 32]), true, BINDING);
    check(&plus("tls-exporter", b""), true, BINDING);
    check(&plus("tls-exporter", END_POINT), true, BINDING);
    check(&plus("tls-exporter", &EXPORTED[..31]), true, BINDING);
    check(&plus("tls-server-end-point", &EXPORTED), true, BINDING);
    check(&plus("tls-server-end-point", b""), true, BINDING);
    // Bindings that this connection does not have.
    check(&plus("tls-unique", b""), true, BINDING);
    check(&plus("tls-unique", &EXPORTED), true, BINDING);
    check(&plus("", b""), true, BINDING);
    // The header is bound, too: "y" cannot be made of "p" on the way.
    let changed = Client {
        twist: |message| {
            let bound = STANDARD.encode([b"y,,".as_slice(), &EXPORTED].concat());
            let (_, rest) = message.split_once(",r=").unwrap();
            format!("c={bound},r={rest}")
        },
        ..plus("tls-exporter", &EXPORTED)
    };
    check(&changed, true, BINDING);
    // Nor may it be left out.
    let unbound = Client {
        twist: |message| format!("c=biws,r={}", message.split_once(",r=").unwrap().1),
        ..plus("tls-exporter", &EXPORTED)
    };
    check(&unbound, true, BINDING);
}

/// BAD_INPUTS 20: somebody takes -PLUS off the list of mechanisms, and the client takes what is left.
#[test]
fn a_downgrade_is_refused() {
    let flagged = |mechanism, header: &str| Client {
        mechanism,
        header: header.to_owned(),
        ..client()
    };
    // "I could bind, but you do not": it was offered.
    check(&flagged("SCRAM-SHA-256", "y,,"), true, BINDING);
    // Where it was not, "y" is the truth.
    check(&flagged("SCRAM-SHA-256", "y,,"), false, Ok(1));
    // -PLUS without a binding is none.
    check(&flagged("SCRAM-SHA-256-PLUS", "n,,"), true, BINDING);
    check(&flagged("SCRAM-SHA-256-PLUS", "y,,"), true, BINDING);
    // A binding without -PLUS.
    let named = Client {
        mechanism: "SCRAM-SHA-256",
        ..plus("tls-exporter", &EXPORTED)
    };
    check(&named, true, BINDING);
    check(&named, false, BINDING);
    // Where there is no exporter, -PLUS is not offered, and cannot be had all the same.
    let tls = tls(false);
    let channel = Channel {
        peer: IpAddr::from([192, 0, 2, 1]),
        tls: Some(&tls),
        scram: true,
    };
    assert!(Exchange::begin("SCRAM-SHA-256-PLUS", None, &channel).is_none());
}

#[test]
fn an_exchange_that_was_seen_is_of_no_use() {
    // The nonce of another exchange, one that is cut, one that is longer.
    for twist in [
        |message: String| {
            message.split_once(",r=").unwrap().0.to_owned() + ",r=rOprNGfwEbeRWgbNEkqOx"
        },
        |mut message: String| {
            message.pop();
            message
        },
        |message: String| message + "x",
    ] {
        check(&Client { twist, ..client() }, true, WRONG);
    }
    // No two exchanges have one nonce, though the client's is the same.
    let (mut service, mut seen) = (Service::new(), Vec::new());
    for _ in 0..20 {
        let begin = Call::ScramBegin {
            login: "anne".to_owned(),
            peer: IpAddr::from([192, 0, 2, 1]),
        };
        let Reply::ScramChallenge { nonce, .. } = service.answer(begin) else {
            panic!()
        };
        assert!(nonce.len() >= 24 && nonce.bytes().all(|b| b.is_ascii_graphic() && b != b','));
        seen.push(nonce);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 20);
}

/// Nobody learns from the answers which names there are.
#[test]
fn names_that_do_not_exist_look_like_others() {
    let mut service = Service::new();
    let mut ask = |login: &str| {
        let begin = Call::ScramBegin {
            login: login.to_owned(),
            peer: IpAddr::from([192, 0, 2, 1]),
        };
        match service.answer(begin) {
            Reply::ScramChallenge {
                salt, iterations, ..
            } => (salt, iterations),
            other => panic!("{other:?}"),
        }
    };
    let (carl, again, dora, bob) = (ask("carl"), ask("carl"), ask("dora"), ask("bob"));
    assert_eq!(carl, again, "always the same");
    assert_ne!(carl.0, dora.0);
    assert_ne!(bob.0, dora.0);
    let new = Limits::default().scram_iterations;
    assert_eq!((carl.1, bob.1), (new, new), "as of a new password");
}

#[test]
fn messages_that_are_none() {
    let channel_tls = tls(true);
    let channel = Channel {
        peer: IpAddr::from([192, 0, 2, 1]),
        tls: Some(&channel_tls),
        scram: true,
    };
    let check = |mechanism: &str, message: &[u8], expected: Refused| {
        let (mut exchange, step) = Exchange::begin(mechanism, Some(message), &channel).unwrap();
        match step {
            Step::Refused(why) => assert_eq!(why, expected, "{}", message.escape_ascii()),
            other => panic!("{}: {other:?}", message.escape_ascii()),
        }
        // It is over, whatever comes.
        assert!(matches!(exchange.respond(b""), Step::Refused(_)));
    };
    let scram = Refused::Malformed("Invalid SCRAM message");
    for message in [
        &b""[..],
        b"n",
        b"n,",
        b"n,,",
        b"n,,n=anne",
        b"n,,n=anne,",
        b"n,,n=anne,r=",
        b"n,,r=abc,n=anne",
        b"n,,n=,r=abc",
        b"n,,n=a=2cb,r=abc",
        b"n,,n=a=,r=abc",
        b"n,,n=a=3,r=abc",
        b"n,,n=anne,r=a\x7fc",
        b"n,,n=anne,r=a c",
        b"n,,n=anne,r=\xc3\xa4",
        b"n,,n=\xff,r=abc",
        // A mandatory extension, which we do not know.
        b"n,,m=x,n=anne,r=abc",
        b"n,,n=anne,r=abc,m=x",
        b"n,,n=anne,r=abc,",
        b"n,,n=anne,r=abc,x",
        b"n,,n=anne,r=abc,x=",
        b"n,anne,n=anne,r=abc",
        b"n,a=,n=anne,r=abc",
        b"x,,n=anne,r=abc",
        b"N,,n=anne,r=abc",
        b",,n=anne,r=abc",
    ] {
        check("SCRAM-SHA-256", message, scram);
    }
    let name = Refused::Malformed("Invalid login name");
    check("SCRAM-SHA-256", b"n,,n=a\0b,r=abc", name);
    let long = format!("n,,n={},r=abc", "a".repeat(256));
    check("SCRAM-SHA-256", long.as_bytes(), name);
    check(
        "SCRAM-SHA-256",
        b"n,a=bob,n=anne,r=abc",
        Refused::ActsForAnother,
    );
    let endless = vec![b'n'; MESSAGE_BYTES_MAX + 1];
    for mechanism in ["SCRAM-SHA-256", "PLAIN", "LOGIN"] {
        check(mechanism, &endless, Refused::Malformed("Message too long"));
    }
    let plain = Refused::Malformed("Invalid PLAIN message");
    for message in [&b""[..], b"\0anne", b"\0anne\0a\0b"] {
        check("PLAIN", message, plain);
    }
    for message in [&b"\0\0secret"[..], b"\0\xff\0secret"] {
        check("PLAIN", message, name);
    }
    check("PLAIN", b"bob\0anne\0secret", Refused::ActsForAnother);
    check("LOGIN", b"", name);
    check("LOGIN", b"a\0b", name);
}

#[test]
fn last_messages_that_are_none() {
    let twists: [fn(String) -> String; 5] = [
        |message| message.replacen("c=", "d=", 1),
        |message| message.replacen(",r=", ",s=", 1),
        |message| message + ",m=x",
        |message| message + ",",
        |message| format!("x=1,{message}"),
    ];
    for twist in twists {
        let client = Client { twist, ..client() };
        check(
            &client,
            true,
            Err(Refused::Malformed("Invalid SCRAM message")),
        );
    }
}

#[test]
fn passwords_as_they_are() {
    let tls = tls(true);
    let channel = Channel {
        peer: IpAddr::from([192, 0, 2, 1]),
        tls: Some(&tls),
        scram: true,
    };
    let check = |mechanism: &str, messages: &[&str], expected: Result<u8, Refused>| {
        let mut service = Service::new();
        let mut messages = messages.iter();
        let (mut exchange, mut step) = Exchange::begin(mechanism, None, &channel).unwrap();
        let found = loop {
            step = match until_challenged(&mut exchange, step, &mut service) {
                Step::Challenge(_) => exchange.respond(messages.next().unwrap().as_bytes()),
                Step::Accepted { account, .. } => break Ok(account.0[0]),
                Step::Refused(why) => break Err(why),
                Step::Ask(_) => unreachable!(),
            };
        };
        assert_eq!((found, messages.next()), (expected, None), "{mechanism}");
    };
    check("PLAIN", &["\0anne\0secret"], Ok(1));
    check("PLAIN", &["anne\0anne\0secret"], Ok(1));
    check("PLAIN", &["\0anne\0"], WRONG);
    check("LOGIN", &["bob", "secret"], Ok(2));
    check("LOGIN", &["bob", "x"], WRONG);
}

#[test]
fn what_is_offered() {
    let check = |tls: Option<&Tls>, scram, expected: &str| {
        let channel = Channel {
            peer: IpAddr::from([192, 0, 2, 1]),
            tls,
            scram,
        };
        assert_eq!(channel.mechanism_names(), expected);
        for name in [
            "SCRAM-SHA-256-PLUS",
            "SCRAM-SHA-256",
            "PLAIN",
            "LOGIN",
            "CRAM-MD5",
            "",
        ] {
            let offered = expected
                .split(' ')
                .any(|offered| !name.is_empty() && offered == name);
            assert_eq!(
                Exchange::begin(name, None, &channel).is_some(),
                offered,
                "{name}"
            );
        }
    };
    check(None, true, "");
    check(
        Some(&tls(true)),
        true,
        "SCRAM-SHA-256-PLUS SCRAM-SHA-256 PLAIN LOGIN",
    );
    check(Some(&tls(false)), true, "SCRAM-SHA-256 PLAIN LOGIN");
    check(Some(&tls(true)), false, "PLAIN LOGIN");
}
