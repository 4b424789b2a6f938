//! Password checks: who is verified, who waits, who is refused unheard, and what the cache answers.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_service::{
    api::{AccountId, Authenticate, Failure, Reply, ScramFinish},
    auth::{Authenticator, Credentials, Limits, Looked, MadeUp},
    machine::{Now, Output, RequestId, Ticket},
    scram::{ScramKeys, derive},
};

/// A driver whose directory is a map.
struct Bench {
    auth: Authenticator,
    known: BTreeMap<String, Credentials>,
    seconds: u64,
    requests: u64,
    tickets: u64,
    out: VecDeque<Output>,
    /// Verifications asked for: ticket, verifier, password.
    asked: VecDeque<(Ticket, String, String)>,
}

fn account(login: &str, number: u8, verifier: &str) -> (String, Credentials) {
    let known = Credentials {
        account: AccountId([number; 16]),
        login: login.into(),
        verifier: verifier.into(),
        scram: None,
    };
    (login.into(), known)
}

impl Bench {
    fn new(change: impl FnOnce(&mut Limits)) -> Bench {
        let mut limits = Limits {
            verifications_max: 2,
            waiting_max: 3,
            waiting_per_peer_max: 2,
            failures_max: 3,
            failure_window_seconds: 60,
            peers_max: 4,
            cache_entries_max: 3,
            cache_seconds: 300,
            scram_iterations: 5000,
        };
        change(&mut limits);
        Bench {
            auth: Authenticator::new(limits, [7; 32], "decoy".into()),
            known: [account("anne", 1, "v1"), account("bob", 2, "v2")].into(),
            seconds: 1000,
            requests: 0,
            tickets: 0,
            out: VecDeque::new(),
            asked: VecDeque::new(),
        }
    }

    fn now(&self) -> Now {
        Now {
            wall_micros: 0,
            mono_micros: self.seconds * 1_000_000,
        }
    }

    /// What came out: `?verifier password` for a verification, else number and answer.
    fn drain(&mut self) -> String {
        let mut words = Vec::new();
        while let Some(output) = self.out.pop_front() {
            words.push(match output {
                Output::Verify {
                    ticket,
                    verifier,
                    password,
                } => {
                    let password = String::from_utf8(password.to_vec()).unwrap();
                    let word = format!("?{verifier} {password}");
                    self.asked.push_back((ticket, verifier, password));
                    word
                }
                Output::Reply(RequestId(n), Reply::Authenticated { account, login }) => {
                    format!("{n}:{login}={}", account.0[0])
                }
                Output::Reply(
                    RequestId(n),
                    Reply::ScramAuthenticated {
                        account,
                        login,
                        signature,
                    },
                ) => {
                    assert_eq!(signature, bytes(SIGNATURE));
                    format!("{n}:{login}={}", account.0[0])
                }
                Output::Reply(RequestId(n), Reply::ScramChallenge { iterations, .. }) => {
                    format!("{n}:i={iterations}")
                }
                Output::Reply(RequestId(n), Reply::Failed(Failure::Credentials)) => {
                    format!("{n}:wrong")
                }
                Output::Reply(RequestId(n), Reply::Failed(Failure::Throttled)) => {
                    format!("{n}:later")
                }
                Output::Log(note) => {
                    let text = format!("{note:?}").replace("annesecret", "");
                    assert!(!text.contains("secret"), "{text}");
                    continue;
                }
                other => panic!("{other:?}"),
            });
        }
        words.join(", ")
    }

    fn begin(&mut self, login: &str, password: &str, peer: &str) -> String {
        self.requests += 1;
        let ask = Authenticate {
            login: login.into(),
            password: password.as_bytes().to_vec().into(),
            peer: peer.parse().unwrap(),
        };
        let known = self.known.get(login).cloned();
        let (now, looked) = (self.now(), Looked { known, decoy: None });
        let mut next = || {
            self.tickets += 1;
            Ticket(self.tickets)
        };
        let request = RequestId(self.requests);
        self.auth
            .begin(now, request, ask, looked, &mut next, &mut self.out);
        self.drain()
    }

    fn scram_begin(&mut self, login: &str, peer: &str) -> String {
        self.requests += 1;
        let made_up = MadeUp {
            name: login.into(),
            secret: None,
            iterations: None,
        };
        let known = self.known.get(login).cloned();
        let (now, request) = (self.now(), RequestId(self.requests));
        let output = self
            .auth
            .scram_begin(now, request, peer.parse().unwrap(), known, &made_up);
        self.out.push_back(output);
        self.drain()
    }

    fn scram_finish(&mut self, login: &str, right: bool, peer: &str) -> String {
        self.requests += 1;
        let mut proof: [u8; 32] = bytes(PROOF);
        proof[31] ^= u8::from(!right);
        let ask = ScramFinish {
            login: login.into(),
            peer: peer.parse().unwrap(),
            auth_message: AUTH_MESSAGE.to_vec(),
            proof,
        };
        let (now, known) = (self.now(), self.known.get(login).cloned());
        self.auth
            .scram_finish(now, RequestId(self.requests), &ask, known, &mut self.out);
        self.drain()
    }

    /// The oldest verification under way comes to this.
    fn verified(&mut self, matches: bool) -> String {
        let (ticket, ..) = self.asked.pop_front().expect("one is under way");
        let (now, known) = (self.now(), &self.known);
        let mut next = || {
            self.tickets += 1;
            Ticket(self.tickets)
        };
        let still = |login: &str| known.get(login).cloned();
        let ours = self
            .auth
            .verified(now, ticket, matches, still, &mut next, &mut self.out);
        assert!(ours);
        self.drain()
    }

    /// A whole login: the password of everyone is `secret`. `+` in front: from the cache.
    fn login(&mut self, login: &str, password: &str, peer: &str) -> String {
        let said = self.begin(login, password, peer);
        let number = format!("{}:", self.requests);
        let (mark, said) = if said.starts_with('?') {
            let (_, verifier, password) = self.asked.back().unwrap();
            let right = password == "secret" && verifier != "decoy";
            ("", self.verified(right))
        } else {
            (if said.contains('=') { "+" } else { "" }, said)
        };
        format!("{mark}{}", said.strip_prefix(&number).unwrap())
    }
}

const HERE: &str = "192.0.2.1";

/// RFC 7677, 3, where the password is `pencil`.
const AUTH_MESSAGE: &[u8] = b"n=user,r=rOprNGfwEbeRWgbNEkqO,\
    r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
    c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
const SALT: &str = "W22ZaJ0SNY7soEsUEjb6gQ==";
const PROOF: &str = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const SIGNATURE: &str = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

fn bytes<const N: usize>(text: &str) -> [u8; N] {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    STANDARD.decode(text).unwrap().try_into().unwrap()
}

fn keys() -> ScramKeys {
    derive("pencil", bytes(SALT), 4096.try_into().unwrap()).unwrap()
}

#[test]
fn a_login_is_verified_once_and_answered_from_the_cache_then() {
    let mut bench = Bench::new(|_| ());
    assert_eq!(bench.login("anne", "secret", HERE), "anne=1");
    assert_eq!(bench.login("anne", "secret", HERE), "+anne=1");
    assert_eq!(bench.login("anne", "wrong", HERE), "wrong");
    assert_eq!(bench.login("anne", "secret", HERE), "+anne=1");
    // Nobody's name costs a verification, too, and never succeeds, whatever the decoy's password is.
    assert_eq!(bench.begin("carl", "x", HERE), "?decoy x");
    assert_eq!(bench.verified(true), "5:wrong");
}

/// BAD_INPUTS 17: another user's answer out of the cache.
#[test]
fn the_cache_answers_for_no_other_name_password_or_peer() {
    let mut bench = Bench::new(|limits| limits.failures_max = 1000);
    for (login, verifier) in [("annes", "v3"), ("ann", "v4"), ("", "v5")] {
        bench.known.extend([account(login, 3, verifier)]);
    }
    assert_eq!(bench.login("anne", "secret", HERE), "anne=1");
    for (login, password, peer) in [
        ("anne", "secret", "192.0.2.2"),
        ("anne", "secret", "2001:db8::1"),
        ("anne", "secret", "::ffff:192.0.2.1"),
        ("bob", "secret", HERE),
        ("anne", "Secret", HERE),
        ("anne", "", HERE),
        ("anne", "secret\0", HERE),
        // The same bytes in a row, cut elsewhere.
        ("annes", "ecret", HERE),
        ("ann", "esecret", HERE),
        ("", "annesecret", HERE),
        ("anne", "secret192.0.2.1", "0.0.0.0"),
        ("annesecret", "", HERE),
        ("anne", "secret1", "92.0.2.1"),
    ] {
        let said = bench.begin(login, password, peer);
        assert!(
            said.starts_with('?'),
            "{login:?} {password:?} {peer}: {said}"
        );
        bench.verified(false);
    }
    assert_eq!(bench.login("anne", "secret", HERE), "+anne=1");
    // Two spellings of one name, as a domain with and without its last dot.
    bench.known.extend([account("anne.", 1, "v1")]);
    bench.begin("anne", ".secret", HERE);
    bench.verified(true);
    assert_eq!(bench.begin("anne.", "secret", HERE), "?v1 secret");
}

#[test]
fn the_cache_ends_with_the_account_and_its_password() {
    let mut bench = Bench::new(|_| ());
    bench.login("anne", "secret", HERE);
    bench.known.extend([account("anne", 1, "new")]);
    assert_eq!(bench.begin("anne", "secret", HERE), "?new secret");
    assert_eq!(bench.verified(false), "2:wrong");
    // The name leads to another account now, with the same verifier.
    bench.known.extend([account("anne", 9, "v1")]);
    assert_eq!(bench.begin("anne", "secret", HERE), "?v1 secret");
    assert_eq!(bench.verified(true), "3:anne=9");
    bench.known.remove("anne");
    assert_eq!(bench.begin("anne", "secret", HERE), "?decoy secret");
    assert_eq!(bench.verified(true), "4:wrong");
}

#[test]
fn an_account_that_goes_during_the_verification_does_not_come_in() {
    for change in [
        None,
        Some(account("anne", 1, "new")),
        Some(account("anne", 9, "v1")),
    ] {
        let mut bench = Bench::new(|_| ());
        assert_eq!(bench.begin("anne", "secret", HERE), "?v1 secret");
        bench.known.remove("anne");
        bench.known.extend(change);
        assert_eq!(bench.verified(true), "1:wrong");
        assert!(
            bench.begin("anne", "secret", HERE).starts_with('?'),
            "nor into the cache"
        );
    }
}

#[test]
fn the_cache_expires_and_is_bounded() {
    let mut bench = Bench::new(|_| ());
    bench.login("anne", "secret", HERE);
    bench.seconds += 299;
    assert_eq!(bench.login("anne", "secret", HERE), "+anne=1");
    bench.seconds += 1;
    assert_eq!(
        bench.login("anne", "secret", HERE),
        "anne=1",
        "a hit makes it no younger"
    );
    // Three fit; the oldest goes.
    for peer in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        assert_eq!(bench.login("bob", "secret", peer), "bob=2");
    }
    assert_eq!(bench.login("bob", "secret", "10.0.0.1"), "+bob=2");
    assert_eq!(bench.login("anne", "secret", HERE), "anne=1");
    assert_eq!(bench.login("bob", "secret", "10.0.0.1"), "bob=2");
    // Two at once that both had to pay are one entry that lives as long as the later.
    let mut bench = Bench::new(|_| ());
    bench.begin("anne", "secret", HERE);
    bench.begin("anne", "secret", HERE);
    bench.verified(true);
    bench.seconds += 10;
    bench.verified(true);
    bench.seconds += 295;
    assert_eq!(bench.login("anne", "secret", HERE), "+anne=1");
    bench.seconds += 5;
    assert_eq!(bench.login("anne", "secret", HERE), "anne=1");
    for off in [
        |limits: &mut Limits| limits.cache_seconds = 0,
        |limits: &mut Limits| limits.cache_entries_max = 0,
    ] {
        let mut bench = Bench::new(off);
        for _ in 0..3 {
            assert_eq!(bench.login("anne", "secret", HERE), "anne=1");
        }
    }
}

#[test]
fn too_many_failures_are_refused_unheard_until_the_window_ends() {
    let mut bench = Bench::new(|_| ());
    for _ in 0..3 {
        assert_eq!(bench.login("anne", "wrong", HERE), "wrong");
        bench.seconds += 10;
    }
    assert_eq!(bench.login("anne", "secret", HERE), "later");
    assert_eq!(
        bench.login("bob", "secret", HERE),
        "later",
        "whatever the name"
    );
    assert_eq!(
        bench.login("anne", "secret", "192.0.2.2"),
        "anne=1",
        "others come in"
    );
    // The window begins with the first failure.
    bench.seconds += 29;
    assert_eq!(bench.login("anne", "secret", HERE), "later");
    bench.seconds += 1;
    assert_eq!(bench.login("anne", "secret", HERE), "anne=1");
    // A success takes no failure back, but whose password was right from there comes in all the same.
    for _ in 0..3 {
        assert_eq!(bench.login("anne", "secret", HERE), "+anne=1");
        assert_eq!(bench.login("anne", "wrong", HERE), "wrong");
    }
    assert_eq!(bench.login("bob", "secret", HERE), "later");
    assert_eq!(bench.login("anne", "secret", HERE), "+anne=1");
    // The cache is no place to guess in: there is an end to that, too.
    for _ in 0..150 {
        assert_eq!(bench.login("anne", "wrong", HERE), "later");
    }
    assert_eq!(bench.login("anne", "secret", HERE), "later");
}

#[test]
fn peers_are_networks() {
    let check = |failing: &str, then: &str, expected: &str| {
        let mut bench = Bench::new(|_| ());
        for _ in 0..3 {
            assert_eq!(bench.login("anne", "wrong", failing), "wrong");
        }
        assert_eq!(
            bench.login("anne", "secret", then),
            expected,
            "{failing}, then {then}"
        );
    };
    check("192.0.2.1", "192.0.2.2", "anne=1");
    check("192.0.2.1", "::ffff:192.0.2.1", "later");
    check("::ffff:192.0.2.1", "192.0.2.1", "later");
    check("::ffff:192.0.2.1", "::ffff:192.0.2.2", "anne=1");
    check(
        "2001:db8:0:1::1",
        "2001:db8:0:1:ffff:ffff:ffff:ffff",
        "later",
    );
    check("2001:db8:0:1::1", "2001:db8:0:2::1", "anne=1");
    check("::1", "::2", "later");
}

#[test]
fn so_many_peers_are_remembered() {
    let mut bench = Bench::new(|limits| limits.failures_max = 2);
    let fail =
        |bench: &mut Bench, peer: u8| bench.login("anne", "wrong", &format!("10.0.0.{peer}"));
    for peer in 1..=4 {
        assert_eq!(fail(&mut bench, peer), "wrong");
    }
    // A second failure of one who is known pushes nobody out.
    assert_eq!(fail(&mut bench, 4), "wrong");
    assert_eq!(fail(&mut bench, 4), "later");
    assert_eq!(fail(&mut bench, 1), "wrong");
    assert_eq!(fail(&mut bench, 1), "later");
    // A fifth takes the place of the oldest.
    assert_eq!(fail(&mut bench, 5), "wrong");
    assert_eq!(fail(&mut bench, 1), "wrong");
    assert_eq!(fail(&mut bench, 4), "later");
    // With room for one, that one is throttled; with none, nobody is, and nothing hangs.
    for (peers_max, expected) in [(1, "later"), (0, "wrong")] {
        let mut bench =
            Bench::new(|limits| (limits.peers_max, limits.failures_max) = (peers_max, 2));
        for _ in 0..2 {
            assert_eq!(fail(&mut bench, 1), "wrong");
        }
        assert_eq!(fail(&mut bench, 1), expected);
    }
}

#[test]
fn who_comes_first_is_verified_first_and_too_many_are_sent_away() {
    let mut bench = Bench::new(|_| ());
    assert_eq!(bench.begin("anne", "1", "10.0.0.1"), "?v1 1");
    assert_eq!(bench.begin("bob", "2", "10.0.0.2"), "?v2 2");
    for (number, login) in [(3, "anne"), (4, "carl"), (5, "bob")] {
        assert_eq!(
            bench.begin(login, &number.to_string(), &format!("10.0.0.{number}")),
            ""
        );
    }
    assert_eq!(bench.begin("anne", "6", "10.0.0.6"), "6:later");
    assert_eq!(bench.verified(false), "1:wrong, ?v1 3");
    assert_eq!(
        bench.begin("anne", "7", "10.0.0.7"),
        "",
        "there is room again"
    );
    assert_eq!(bench.verified(true), "2:bob=2, ?decoy 4");
    assert_eq!(bench.verified(true), "3:anne=1, ?v2 5");
    assert_eq!(bench.verified(false), "4:wrong, ?v1 7");
    assert_eq!(bench.verified(true), "5:bob=2");
    assert_eq!(bench.verified(true), "7:anne=1");
    // What was never asked for is not ours.
    let (now, mut none) = (bench.now(), || unreachable!());
    assert!(
        !bench
            .auth
            .verified(now, Ticket(77), true, |_| None, &mut none, &mut bench.out)
    );
}

#[test]
fn who_waits_is_sent_away_when_his_peer_has_used_up_its_failures() {
    let mut bench = Bench::new(|limits| (limits.verifications_max, limits.failures_max) = (1, 2));
    for _ in 0..3 {
        bench.begin("anne", "wrong", HERE);
    }
    assert_eq!(bench.begin("bob", "secret", "10.0.0.1"), "");
    assert_eq!(bench.verified(false), "1:wrong, ?v1 wrong");
    // Another network's turn comes first.
    assert_eq!(bench.verified(false), "2:wrong, ?v2 secret");
    assert_eq!(bench.verified(true), "4:bob=2, 3:later");
}

#[test]
fn one_peer_does_not_take_all_places_to_wait() {
    let mut bench = Bench::new(|limits| limits.verifications_max = 1);
    assert_eq!(bench.begin("anne", "1", "2001:db8::1"), "?v1 1");
    for number in 2..=3 {
        let peer = format!("2001:db8::{number}");
        assert_eq!(bench.begin("anne", &number.to_string(), &peer), "");
    }
    // A network is one peer.
    assert_eq!(bench.begin("anne", "4", "2001:db8::4"), "4:later");
    assert_eq!(bench.begin("bob", "5", HERE), "", "others have places");
    assert_eq!(
        bench.begin("bob", "6", HERE),
        "6:later",
        "as many as there are"
    );
    assert_eq!(bench.verified(true), "1:anne=1, ?v1 2");
    assert_eq!(bench.begin("anne", "7", "2001:db8::7"), "", "one has gone");
    assert_eq!(bench.begin("anne", "8", "2001:db8::8"), "8:later");
    for number in [2, 3] {
        bench.verified(true);
        let peer = format!("2001:db8:0:1::{number}");
        assert_eq!(bench.begin("anne", "x", &peer), "");
    }
    while !bench.asked.is_empty() {
        bench.verified(true);
    }
    // All have gone: each peer has all of its places again.
    assert_eq!(bench.begin("anne", "1", HERE), "?v1 1");
    assert_eq!(bench.begin("anne", "2", HERE), "");
    assert_eq!(bench.begin("anne", "3", HERE), "");
    assert_eq!(bench.begin("anne", "4", HERE), "14:later");
}

#[test]
fn proofs_are_throttled_as_passwords_are() {
    let mut bench = Bench::new(|_| ());
    bench.known.get_mut("anne").unwrap().scram = Some(keys());
    assert_eq!(bench.scram_begin("anne", HERE), "1:i=4096");
    assert_eq!(bench.scram_finish("anne", true, HERE), "2:anne=1");
    assert_eq!(bench.scram_finish("anne", false, HERE), "3:wrong");
    // Names that do not exist or have no keys: asked and refused like others, and counted.
    assert_eq!(bench.scram_begin("carl", HERE), "4:i=5000");
    assert_eq!(bench.scram_finish("carl", true, HERE), "5:wrong");
    assert_eq!(bench.scram_begin("bob", HERE), "6:i=5000");
    assert_eq!(bench.scram_finish("bob", true, HERE), "7:wrong");
    assert_eq!(bench.scram_begin("anne", HERE), "8:later");
    assert_eq!(
        bench.scram_finish("anne", true, HERE),
        "9:later",
        "however right"
    );
    assert_eq!(
        bench.begin("anne", "secret", HERE),
        "10:later",
        "and passwords"
    );
    assert_eq!(bench.scram_finish("anne", true, "192.0.2.2"), "11:anne=1");
    bench.seconds += 60;
    assert_eq!(bench.scram_finish("anne", true, HERE), "12:anne=1");
    // Wrong passwords count for proofs.
    for _ in 0..3 {
        assert_eq!(bench.login("anne", "wrong", HERE), "wrong");
    }
    assert_eq!(bench.scram_finish("anne", true, HERE), "16:later");
}

#[test]
fn keys_of_nobody_prove_nothing() {
    // What is computed with for names without keys is no account's, even if somebody finds a proof for it.
    let mut bench = Bench::new(|limits| limits.failures_max = 1000);
    for _ in 0..2 {
        assert!(bench.scram_finish("carl", true, HERE).ends_with("wrong"));
        bench.known.get_mut("anne").unwrap().scram = Some(keys());
    }
    assert_eq!(bench.scram_finish("anne", true, HERE), "3:anne=1");
    bench.known.get_mut("anne").unwrap().scram = None;
    assert_eq!(bench.scram_finish("anne", true, HERE), "4:wrong");
    bench.known.remove("anne");
    assert_eq!(bench.scram_finish("anne", true, HERE), "5:wrong");
}

/// A hundred and fifty addresses had all places to wait, and with them all time for verifications.
#[test]
fn those_who_wait_are_served_in_turns_and_who_was_here_before_comes_first() {
    let mut bench = Bench::new(|limits| {
        (limits.verifications_max, limits.waiting_max) = (1, 6);
        (limits.failures_max, limits.waiting_per_peer_max) = (1000, 4);
    });
    assert_eq!(bench.login("bob", "secret", "203.0.113.1"), "bob=2");
    bench.begin("anne", "busy", "192.0.2.1");
    // Of one network, by three addresses of it.
    for (number, peer) in [1, 1, 2, 3, 3, 3].into_iter().enumerate() {
        let said = bench.begin("anne", &format!("x{number}"), &format!("192.0.2.{peer}"));
        assert_eq!(said, "");
    }
    // All places are taken: the last of whoever has most has to go.
    assert_eq!(bench.begin("bob", "fresh", "198.51.100.1"), "8:later");
    // From there he has logged in before. To another account he has not.
    assert_eq!(bench.begin("bob", "again", "203.0.113.1"), "7:later");
    assert_eq!(bench.begin("anne", "new", "203.0.113.1"), "4:later");
    // Nobody has to go for one of the network that has most.
    assert_eq!(bench.begin("anne", "more", "192.0.2.9"), "12:later");
    let mut order = Vec::new();
    for _ in 0..7 {
        let (_, _, password) = bench.asked.front().unwrap().clone();
        order.push(password);
        bench.verified(false);
    }
    let expected = ["busy", "again", "x0", "fresh", "new", "x2", "x3"];
    assert_eq!(order, expected);
}
