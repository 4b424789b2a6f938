//! Row 20: an exchange that was overheard, said again; and SCRAM-SHA-256-PLUS bound to another connection, or talked out of its binding.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{digest, hmac, pbkdf2};
use whimbrel_e2e::{
    server::{ACCOUNTS, Server},
    wire::{Result, Wire},
};

use super::{Watch, lean, unless_closed};

/// One connection of IMAP by TLS, and what its last tag was answered.
struct Talk {
    wire: Wire,
}

/// What a client says in an exchange.
#[derive(Clone)]
struct Said {
    mechanism: &'static str,
    first: String,
    last: String,
}

impl Talk {
    fn new(server: &Server) -> Talk {
        let mut wire = Wire::tls(server.ports.imaps, &server.tls).unwrap();
        let _ = wire.line().unwrap();
        Talk { wire }
    }

    fn line(&mut self) -> Result<String> {
        Ok(String::from_utf8(self.wire.line()?).unwrap())
    }

    /// AUTHENTICATE with the client's first message; the server's, unless it has refused.
    fn begin(&mut self, mechanism: &str, first: &str) -> Option<String> {
        let line = format!(
            "a AUTHENTICATE {mechanism} {}\r\n",
            encode(first.as_bytes())
        );
        unless_closed(self.wire.send(line.as_bytes()))?;
        let line = unless_closed(self.line())?;
        let challenge = line.strip_prefix("+ ")?;
        Some(String::from_utf8(decode(challenge)).unwrap())
    }

    /// The client's last message; whether it is let in, and then for whom.
    fn finish(&mut self, last: &str) -> bool {
        let line = format!("{}\r\n", encode(last.as_bytes()));
        if unless_closed(self.wire.send(line.as_bytes())).is_none() {
            return false;
        }
        let Some(line) = unless_closed(self.line()) else {
            return false;
        };
        if !line.starts_with("+ ") {
            assert!(
                line.starts_with("a NO ") || line.starts_with("a BAD "),
                "{line}"
            );
            return false;
        }
        self.wire.send(b"\r\n").unwrap();
        let line = self.line().unwrap();
        line.starts_with("a OK ")
    }

    /// An exchange by who knows the password: flag, what `c=` is to be, and the mechanism are what a test varies.
    fn exchange(
        &mut self,
        mechanism: &'static str,
        flag: &str,
        binding: &[u8],
        nonce: &str,
    ) -> (bool, Option<Said>) {
        let (name, password) = ACCOUNTS[0];
        let header = format!("{flag},,");
        let bare = format!("n={name},r={nonce}");
        let first = format!("{header}{bare}");
        let Some(challenge) = self.begin(mechanism, &first) else {
            return (false, None);
        };
        let field = |key: &str| {
            let part = challenge.split(',').find_map(|part| part.strip_prefix(key));
            part.unwrap().to_owned()
        };
        let rounds = field("i=").parse().unwrap();
        let mut salted = [0; 32];
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            rounds,
            &decode(&field("s=")),
            password.as_bytes(),
            &mut salted,
        );
        let proved = format!(
            "c={},r={}",
            encode(&[header.as_bytes(), binding].concat()),
            field("r=")
        );
        let key = mac(&salted, b"Client Key");
        let stored = digest::digest(&digest::SHA256, &key);
        let message = format!("{bare},{challenge},{proved}");
        let signature = mac(stored.as_ref(), message.as_bytes());
        let proof: Vec<u8> = key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        let last = format!("{proved},p={}", encode(&proof));
        let said = Said {
            mechanism,
            first,
            last: last.clone(),
        };
        (self.finish(&last), Some(said))
    }

    fn exporter(&mut self) -> Vec<u8> {
        self.wire.export(b"EXPORTER-Channel-Binding")
    }
}

fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn decode(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap()
}

fn mac(key: &[u8], data: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, data).as_ref().to_vec()
}

#[test]
#[ignore = "long: hostile clients"]
fn row_20_an_exchange_said_again() {
    let server = lean().set("auth", "failures_max = 1000").start();
    let watch = Watch::start(&server);
    for (mechanism, bound) in [("SCRAM-SHA-256", false), ("SCRAM-SHA-256-PLUS", true)] {
        let mut talk = Talk::new(&server);
        let (flag, data) = match bound {
            false => ("n", Vec::new()),
            true => ("p=tls-exporter", talk.exporter()),
        };
        let (let_in, said) = talk.exchange(mechanism, flag, &data, "overheard");
        assert!(let_in, "{mechanism}");
        let said = said.unwrap();
        for _ in 0..20 {
            let mut again = Talk::new(&server);
            assert!(again.begin(said.mechanism, &said.first).is_some());
            assert!(!again.finish(&said.last), "{mechanism} said again");
        }
        // Nor in the middle of a fresh exchange of the same connection.
        let mut again = Talk::new(&server);
        assert!(again.begin(said.mechanism, &said.first).is_some());
        assert!(!again.finish(&said.last));
        assert!(again.begin(said.mechanism, &said.first).is_some());
        assert!(!again.finish(&said.last));
    }
    watch.end();
}

#[test]
#[ignore = "long: hostile clients"]
fn row_20_a_binding_that_is_not_this_connections() {
    let server = lean().set("auth", "failures_max = 1000").start();
    let watch = Watch::start(&server);
    let mut other = Talk::new(&server);
    let foreign = other.exporter();
    let plus = "SCRAM-SHA-256-PLUS";
    // Somebody in the middle has one connection to the client and another to the server.
    let refused: &[(&'static str, &str, &[u8])] = &[
        (plus, "p=tls-exporter", &foreign),
        (plus, "p=tls-exporter", b""),
        (plus, "p=tls-exporter", &[0; 32]),
        (plus, "p=tls-unique", &foreign),
        (plus, "p=", b""),
        // Binding is taken out of the message, or of the list that the client was shown.
        (plus, "n", b""),
        (plus, "y", b""),
        ("SCRAM-SHA-256", "y", b""),
        ("SCRAM-SHA-256", "p=tls-exporter", &foreign),
        ("SCRAM-SHA-256", "n", &foreign),
    ];
    for (mechanism, flag, data) in refused {
        let (let_in, _) = Talk::new(&server).exchange(mechanism, flag, data, "fresh");
        assert!(!let_in, "{mechanism} with {flag}");
    }
    // The one whose binding it is comes in by it.
    let (let_in, _) = other.exchange(plus, "p=tls-exporter", &foreign, "fresh");
    assert!(let_in);
    watch.end();
}
