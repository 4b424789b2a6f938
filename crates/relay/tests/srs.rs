//! Rewritten senders, against what postsrsd 1.10 (Debian 12, package `postsrsd` 1.10-2+b1) makes and reads.
//!
//! The vectors come from `postsrsd -4 -dfwd.example -ssecret -a= -n8 -N4 -Xours.example` on the days given (by libfaketime), with the two keys below in
//! `secret`, asked by its tcp table protocol.

use whimbrel_relay::srs::{
    Config, HASH_CHARS_MAX, HASH_CHARS_MIN, KEY_BYTES_MAX, KEY_BYTES_MIN, KEYS_MAX, Separator, Srs,
    SrsError,
};
use whimbrel_smtp::{Domain, LocalPart, Mailbox, ReversePath};
use whimbrel_testkit::Rng;

use crate::Case;

pub const ALL: &[Case] = &[
    ("vectors", addresses_are_those_of_postsrsd),
    ("reading", addresses_are_read),
    ("expiry", addresses_expire),
    ("keys", keys_can_be_changed),
    ("own senders", own_and_null_senders_stay),
    ("there and back", what_is_rewritten_comes_back),
    ("forgery", nothing_else_is_taken),
];

const KEY: &str = "whimbrel-srs-test-secret-1";
const OLDER: &str = "whimbrel-srs-test-secret-0";

/// 2026-11-30.
const DAY: u64 = 20_787;

fn domain(text: &str) -> Domain {
    Domain::new(text).unwrap()
}

fn srs_with(config: Config, keys: &[&str]) -> Srs {
    Srs::new(config, domain("fwd.example"), keys).unwrap()
}

fn srs() -> Srs {
    srs_with(Config::default(), &[KEY, OLDER])
}

fn forward(srs: &Srs, sender: &str, day: u64) -> Result<Option<String>, SrsError> {
    let sender = match sender {
        "" => ReversePath::Null,
        sender => ReversePath::Mailbox(Mailbox::parse(sender).unwrap()),
    };
    let rewritten = srs.forward(&sender, day, |domain| domain.as_str() == "ours.example")?;
    Ok(rewritten.map(|mailbox| mailbox.to_string()))
}

fn reverse(srs: &Srs, local: &str, day: u64) -> Result<String, SrsError> {
    srs.reverse(&LocalPart::new(local).unwrap(), day)
        .map(|mailbox| mailbox.to_string())
}

#[test]
fn addresses_are_those_of_postsrsd() {
    let check = |srs: &Srs, sender: &str, day, expected: &str| {
        let expected = format!("{expected}@fwd.example");
        assert_eq!(forward(srs, sender, day), Ok(Some(expected)), "{sender}");
    };
    for (sender, expected) in [
        ("alice@example.com", "SRS0=sg6n6sYy=JT=example.com=alice"),
        // Our domains are in lower case; the hash is the same.
        ("Alice@Example.COM", "SRS0=sg6n6sYy=JT=example.com=Alice"),
        (
            "bob+tag=x@sub.example.net",
            "SRS0=O4gsvDHo=JT=sub.example.net=bob+tag=x",
        ),
        (
            "SRS0=HHHH=TT=orig.example=alice@hop1.example",
            "SRS1=SKUykNUn=hop1.example==HHHH=TT=orig.example=alice",
        ),
        (
            "SRS0+HHHH=TT=orig.example=alice@hop1.example",
            "SRS1=syI6TskI=hop1.example=+HHHH=TT=orig.example=alice",
        ),
        (
            "srs0-hhhh=tt=orig.example=alice@hop1.example",
            "SRS1=iW9hYJQt=hop1.example=-hhhh=tt=orig.example=alice",
        ),
        (
            "SRS1+XXXX=hop1.example=+HHHH=TT=orig.example=alice@hop2.example",
            "SRS1=syI6TskI=hop1.example=+HHHH=TT=orig.example=alice",
        ),
        ("SRS2=x@example.com", "SRS0=xfzC8HUl=JT=example.com=SRS2=x"),
        ("SRS0x@example.com", "SRS0=ufJZMeAA=JT=example.com=SRS0x"),
    ] {
        check(&srs(), sender, DAY, expected);
    }
    for (day, expected) in [
        (20_788, "SRS0=OVgY5LHC=JU=example.com=alice"),
        (20_089, "SRS0=mnS9OFPP=TZ=example.com=alice"),
        (19_782, "SRS0=jmskYFjI=KG=example.com=alice"),
        (2, "SRS0=gLvtjqaW=AC=example.com=alice"),
    ] {
        check(&srs(), "alice@example.com", day, expected);
    }
    let other = |separator, hash_chars| {
        srs_with(
            Config {
                separator,
                hash_chars,
                hash_chars_min: 4,
                ..Config::default()
            },
            &[KEY],
        )
    };
    check(
        &other(Separator::Plus, 4),
        "alice@example.com",
        DAY,
        "SRS0+sg6n=JT=example.com=alice",
    );
    check(
        &other(Separator::Minus, 10),
        "alice@example.com",
        DAY,
        "SRS0-sg6n6sYyvm=JT=example.com=alice",
    );
    check(
        &other(Separator::Minus, 10),
        "SRS0+HHHH=TT=orig.example=alice@hop1.example",
        DAY,
        "SRS1-syI6TskI+b=hop1.example=+HHHH=TT=orig.example=alice",
    );
}

#[test]
fn addresses_are_read() {
    let check = |local: &str, expected: Result<&str, SrsError>| {
        let got = reverse(&srs(), local, DAY);
        assert_eq!(got, expected.map(str::to_owned), "{local}");
    };
    check(
        "SRS0=sg6n6sYy=JT=example.com=alice",
        Ok("alice@example.com"),
    );
    check(
        "SRS0=sg6n6sYyvm=JT=example.com=alice",
        Ok("alice@example.com"),
    );
    check(
        "srs0-SG6N6SYY=jt=EXAMPLE.com=ALICE",
        Ok("ALICE@example.com"),
    );
    check(
        "SRS0+O4gsvDHo=JT=sub.example.net=bob+tag=x",
        Ok("bob+tag=x@sub.example.net"),
    );
    check(
        "SRS1=SKUykNUn=hop1.example==HHHH=TT=orig.example=alice",
        Ok("SRS0=HHHH=TT=orig.example=alice@hop1.example"),
    );
    check(
        "SRS1-syI6TskI=hop1.example=+HHHH=TT=orig.example=alice",
        Ok("SRS0+HHHH=TT=orig.example=alice@hop1.example"),
    );
    check("alice", Err(SrsError::NotSrs));
    check("SRS0x", Err(SrsError::NotSrs));
    check("SRS", Err(SrsError::NotSrs));
    check("SRS0=", Err(SrsError::Malformed));
    check("SRS0=sg6n6sYy=JT=example.com", Err(SrsError::Malformed));
    check(
        "SRS0=sg6n6sYy+JT=example.com=alice",
        Err(SrsError::Malformed),
    );
    check(
        "SRS1=SKUykNUn=hop1.example=HHHH=TT=orig.example=alice",
        Err(SrsError::Malformed),
    );
    check("SRS0=sg6n6sYx=JT=example.com=alice", Err(SrsError::Hash));
    check("SRS0=sg6n6sY=JT=example.com=alice", Err(SrsError::Hash));
    check("SRS0==JT=example.com=alice", Err(SrsError::Hash));
    check("SRS0=sg6n6sYy=JU=example.com=alice", Err(SrsError::Hash));
    check(
        &format!("SRS0={}=JT=example.com=alice", "a".repeat(40)),
        Err(SrsError::Hash),
    );
}

#[test]
fn addresses_expire() {
    let local = "SRS0=sg6n6sYy=JT=example.com=alice";
    let read = |day| reverse(&srs(), local, day).err();
    // A node whose clock is behind reads what another one made after midnight.
    for day in [DAY - 1, DAY, DAY + 7, DAY + 1_024] {
        assert_eq!(read(day), None, "{day}");
    }
    for day in [DAY - 2, DAY + 8, DAY + 500, DAY + 1_022] {
        assert_eq!(read(day), Some(SrsError::Expired), "{day}");
    }
}

#[test]
fn keys_can_be_changed() {
    let old = srs_with(Config::default(), &[OLDER]);
    let (zero, one) = (
        "SRS0=bKQoJujI=JT=example.com=alice",
        "SRS1=W5fZLbXZ=hop1.example==HHHH=TT=orig.example=alice",
    );
    assert_eq!(
        forward(&old, "alice@example.com", DAY),
        Ok(Some(format!("{zero}@fwd.example")))
    );
    // Two keys read both; the new one alone reads its own.
    for local in [zero, one] {
        assert!(reverse(&srs(), local, DAY).is_ok());
        assert_eq!(
            reverse(&srs_with(Config::default(), &[KEY]), local, DAY),
            Err(SrsError::Hash)
        );
    }
    assert!(!format!("{:?}", srs()).contains(KEY));
    let new = |keys: &[&[u8]]| Srs::new(Config::default(), domain("x"), keys).err();
    let key = |len| vec![7; len];
    assert_eq!(new(&[]), Some(SrsError::Keys));
    assert_eq!(new(&[&key(KEY_BYTES_MIN - 1)]), Some(SrsError::Keys));
    assert_eq!(new(&[&key(KEY_BYTES_MAX + 1)]), Some(SrsError::Keys));
    let keys = vec![key(KEY_BYTES_MAX); KEYS_MAX + 1];
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    assert_eq!(new(&keys), Some(SrsError::Keys));
    assert_eq!(new(&keys[1..]), None);
    let config = |change: fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        Srs::new(config, domain("x"), &[KEY]).err()
    };
    assert_eq!(config(|config| config.hash_chars = HASH_CHARS_MAX), None);
    assert_eq!(
        config(|config| config.hash_chars = HASH_CHARS_MAX + 1),
        Some(SrsError::Config)
    );
    assert_eq!(
        config(|config| config.hash_chars_min = HASH_CHARS_MIN - 1),
        Some(SrsError::Config)
    );
    assert_eq!(
        config(|config| config.hash_chars_min = 9),
        Some(SrsError::Config)
    );
    assert_eq!(
        config(|config| config.valid_days = 512),
        Some(SrsError::Config)
    );
    assert_eq!(
        config(|config| config.local_bytes_max = 129),
        Some(SrsError::Config)
    );
}

#[test]
fn own_and_null_senders_stay() {
    assert_eq!(forward(&srs(), "", DAY), Ok(None));
    assert_eq!(forward(&srs(), "x@ours.example", DAY), Ok(None));
    assert!(
        forward(&srs(), "x@sub.ours.example", DAY)
            .unwrap()
            .is_some()
    );
    // RFC 5321 has 64 octets: 18 of them are ours.
    let strict = srs_with(
        Config {
            local_bytes_max: 64,
            ..Config::default()
        },
        &[KEY],
    );
    let sender = |len| format!("{}@example.com", "a".repeat(len));
    assert!(
        forward(&strict, &sender(64 - 18 - 11), DAY)
            .unwrap()
            .unwrap()
            .starts_with("SRS0=")
    );
    assert_eq!(
        forward(&strict, &sender(64 - 18 - 11 + 1), DAY),
        Err(SrsError::TooLong)
    );
    assert!(forward(&srs(), &sender(64 - 18 - 11 + 1), DAY).is_ok());
    assert_eq!(
        forward(&srs(), &sender(128 - 18 - 11 + 1), DAY),
        Err(SrsError::TooLong)
    );
    assert_eq!(
        forward(&srs(), "x@[tag:a=b]", DAY),
        Err(SrsError::Unsuitable)
    );
}

#[test]
fn what_is_rewritten_comes_back() {
    for sender in [
        "alice@example.com",
        "\"a b\"@example.com",
        "a=b+c-d@example.com",
        "x@[192.0.2.1]",
        "x@[ipv6:2001:db8::1]",
        "é@bücher.example",
        "SRS0=HHHH=TT=orig.example=alice@hop1.example",
        "SRS0=@hop1.example",
        "SRS1=no@hop1.example",
    ] {
        let rewritten = forward(&srs(), sender, DAY).unwrap().unwrap();
        let rewritten = Mailbox::parse(&rewritten).unwrap();
        let back = srs().reverse(rewritten.local(), DAY).unwrap().to_string();
        assert_eq!(back, sender, "{rewritten}");
    }
    // Three servers in a row: the bounce goes from the last to the first, and from there to the sender.
    let (first, third) = (
        srs(),
        srs_with(Config::default(), &["another key of another server"]),
    );
    let one = forward(&first, "alice@example.com", DAY).unwrap().unwrap();
    let two = forward(&third, &one, DAY).unwrap().unwrap();
    let three = forward(&third, &two, DAY).unwrap().unwrap();
    assert_eq!(two, three);
    let local = Mailbox::parse(&three).unwrap().local().clone();
    assert_eq!(third.reverse(&local, DAY).unwrap().to_string(), one);
}

/// Any change of a good address but one of case is noticed, or gives the same address.
#[test]
fn nothing_else_is_taken() {
    let mut rng = Rng::new(1);
    let good = "SRS0=sg6n6sYy=JT=example.com=alice";
    let mut refused = 0;
    for _ in 0..5_000 {
        let mut bytes = good.as_bytes().to_vec();
        let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
        bytes[at] = u8::try_from(rng.between(0x21, 0x7e)).unwrap();
        let changed = String::from_utf8(bytes).unwrap();
        match reverse(&srs(), &changed, DAY) {
            Ok(back) => assert!(back.eq_ignore_ascii_case("alice@example.com"), "{changed}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 4_500, "{refused}");
}
