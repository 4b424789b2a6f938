//! Who receives for an address: a table. The directory is what a line of words says, made without asking whether it is wise.

use whimbrel_crdt::{Context, Dot, Incarnation, Stamp, VersionVector};
use whimbrel_directory::{Address, Directory, Op, Resolution, resolve::ALIAS_TARGETS_MAX};

/// `a@x` makes an account, `a@x>b@x` an alias, `:x` a domain; every domain named is ours.
fn directory(text: &str) -> Directory {
    let origin = Incarnation::from_hash(1);
    let mut directory = Directory::default();
    let mut seq = 0;
    let mut apply = |op: Op| {
        seq += 1;
        let context = Context {
            dot: Dot::new(origin, seq),
            stamp: Stamp { hlc: seq, origin },
            deps: &VersionVector::new(),
        };
        directory.apply(&context, &op);
    };
    for word in text.split_whitespace() {
        let (from, to) = match word.split_once('>') {
            Some((from, to)) => (from, Some(to)),
            None => (word, None),
        };
        let domain = match from.strip_prefix(':') {
            Some(domain) => domain.to_owned(),
            None => Address::parse_alias(from).unwrap().domain().to_string(),
        };
        apply(Op::AddDomain { domain });
        if from.starts_with(':') {
            continue;
        }
        apply(match to {
            Some(to) => Op::AddAlias {
                from: from.into(),
                to: to.into(),
            },
            None => Op::AddAccount {
                account: key_of(from),
                address: from.into(),
                created: 1,
                uid_validity: 1,
                credential: "".into(),
            },
        });
    }
    directory
}

/// A key that follows from the address.
fn key_of(address: &str) -> [u8; 16] {
    let mut key = [0; 16];
    for (index, byte) in address.bytes().enumerate() {
        key[index % 16] ^= byte.rotate_left(index as u32 / 16);
    }
    key
}

fn check(text: &str, asked: &[(&str, &str)]) {
    let directory = directory(text);
    for (address, expected) in asked {
        let (local, domain) = address.rsplit_once('@').unwrap();
        let found = match directory.resolve(local, domain) {
            Resolution::Local(targets) => {
                let line = |target: &whimbrel_directory::Target| {
                    assert_eq!(target.account, key_of(&target.address));
                    match &target.detail {
                        Some(detail) => format!("{}/{detail}", target.address),
                        None => target.address.clone(),
                    }
                };
                targets.iter().map(line).collect::<Vec<_>>().join(" ")
            }
            other => format!("{other:?}"),
        };
        assert_eq!(found, *expected, "{address} in {text}");
    }
}

#[test]
fn accounts_and_details() {
    check(
        "anne@x.org a+b@x.org bob@y.org :z.org",
        &[
            ("anne@x.org", "anne@x.org"),
            ("ANNE@X.Org", "anne@x.org"),
            ("anne@x.org.", "anne@x.org"),
            ("anne+Lists@x.org", "anne@x.org/Lists"),
            ("ANNE+a+B@x.org", "anne@x.org/a+B"),
            ("anne+@x.org", "NoSuchUser"),
            ("+anne@x.org", "NoSuchUser"),
            // An account with a separator in its name is asked first.
            ("a+b@x.org", "a+b@x.org"),
            ("a+c@x.org", "NoSuchUser"),
            ("a+b+c@x.org", "NoSuchUser"),
            ("anne@y.org", "NoSuchUser"),
            ("bob@x.org", "NoSuchUser"),
            ("bob@z.org", "NoSuchUser"),
            ("bob@w.org", "NotOurs"),
            ("bob@sub.x.org", "NotOurs"),
            ("bob@[127.0.0.1]", "NotOurs"),
            ("bob@", "NotOurs"),
        ],
    );
}

#[test]
fn what_no_account_may_be_called_goes_to_the_catch_all_only() {
    let odd = [
        "@x.org",
        "an ne@x.org",
        "\"anne\"@x.org",
        "anne@x.org@x.org",
        "an\0ne@x.org",
        "anne\r\nbob@x.org",
        "(anne)@x.org",
    ];
    let long = format!("{}@x.org", "a".repeat(65));
    for address in odd.iter().copied().chain([long.as_str()]) {
        check("anne@x.org bob@x.org", &[(address, "NoSuchUser")]);
        check(
            "anne@x.org bob@x.org @x.org>bob@x.org",
            &[(address, "bob@x.org")],
        );
    }
    // Quotes are off already when an address is resolved: dots in odd places are only dots.
    check(
        "a..b@x.org",
        &[("a..b@x.org", "a..b@x.org"), ("A..B@x.org", "a..b@x.org")],
    );
}

#[test]
fn aliases() {
    check(
        "anne@x.org bob@x.org info@x.org>anne@x.org info@x.org>bob@x.org help@x.org>info@x.org sales@y.org>anne@x.org",
        &[
            ("info@x.org", "anne@x.org bob@x.org"),
            ("INFO+Q@x.org", "anne@x.org/Q bob@x.org/Q"),
            ("help@x.org", "anne@x.org bob@x.org"),
            ("sales@y.org", "anne@x.org"),
            ("sales+a@y.org", "anne@x.org/a"),
            ("info@y.org", "NoSuchUser"),
        ],
    );
    // An alias comes before the account of its name; one to itself means that account.
    check(
        "anne@x.org bob@x.org anne@x.org>bob@x.org",
        &[("anne@x.org", "bob@x.org"), ("anne+d@x.org", "bob@x.org/d")],
    );
    check(
        "anne@x.org bob@x.org anne@x.org>anne@x.org anne@x.org>bob@x.org",
        &[
            ("anne@x.org", "anne@x.org bob@x.org"),
            ("anne+d@x.org", "anne@x.org/d bob@x.org/d"),
        ],
    );
    // Twice the same account by two ways is once.
    check(
        "anne@x.org a@x.org>b@x.org a@x.org>c@x.org b@x.org>anne@x.org c@x.org>anne@x.org",
        &[("a@x.org", "anne@x.org")],
    );
    // An alias to an account that is gone, and the catch-all.
    check(
        "bob@x.org info@x.org>anne@x.org",
        &[("info@x.org", "NoSuchUser")],
    );
    check(
        "bob@x.org info@x.org>anne@x.org @x.org>bob@x.org",
        &[("info@x.org", "bob@x.org")],
    );
}

#[test]
fn details_of_aliases_and_of_their_targets() {
    check(
        "anne@x.org info@x.org>anne+info@x.org",
        &[
            ("info@x.org", "anne@x.org/info"),
            ("info+else@x.org", "anne@x.org/info"),
            ("anne+else@x.org", "anne@x.org/else"),
        ],
    );
    // An exact alias with a detail comes before the account without.
    check(
        "anne@x.org bob@x.org anne+jobs@x.org>bob@x.org",
        &[
            ("anne+jobs@x.org", "bob@x.org"),
            ("anne+other@x.org", "anne@x.org/other"),
        ],
    );
    check(
        "anne@x.org bob@x.org anne+jobs@x.org>bob@x.org info@x.org>anne+jobs@x.org",
        &[("info@x.org", "bob@x.org")],
    );
    check(
        "anne@x.org anne@x.org>anne+all@x.org",
        &[
            ("anne@x.org", "anne@x.org/all"),
            ("anne+x@x.org", "anne@x.org/all"),
        ],
    );
    check(
        "info@x.org>anne+info@x.org",
        &[("info@x.org", "NoSuchUser")],
    );
}

#[test]
fn catch_alls() {
    check(
        "anne@x.org bob@x.org @x.org>anne@x.org @y.org>info@x.org info@x.org>bob@x.org",
        &[
            ("anyone@x.org", "anne@x.org"),
            ("anyone+d@x.org", "anne@x.org"),
            ("bob@x.org", "bob@x.org"),
            ("bob+d@x.org", "bob@x.org/d"),
            ("info@x.org", "bob@x.org"),
            ("anyone@y.org", "bob@x.org"),
            ("anyone@z.org", "NotOurs"),
        ],
    );
    check(
        "anne@x.org @x.org>nobody@x.org",
        &[("anyone@x.org", "NoSuchUser")],
    );
    check(
        "anne@x.org @x.org>anne@x.org :y.org",
        &[("anyone@y.org", "NoSuchUser")],
    );
}

#[test]
fn loops_end() {
    // Two that name each other reach no account. (Only concurrent changes can make them: see the table of plans.)
    check(
        "a@x.org>b@x.org b@x.org>a@x.org",
        &[("a@x.org", "NoSuchUser"), ("b@x.org", "NoSuchUser")],
    );
    check(
        "c@x.org a@x.org>b@x.org b@x.org>a@x.org @x.org>c@x.org",
        &[("a@x.org", "c@x.org")],
    );
    check(
        "c@x.org a@x.org>b@x.org b@x.org>a@x.org b@x.org>c@x.org",
        &[("a@x.org", "c@x.org"), ("b@x.org", "c@x.org")],
    );
    check("@x.org>@x.org", &[("a@x.org", "NoSuchUser")]);
    check("a@x.org>a@x.org", &[("a@x.org", "NoSuchUser")]);
    check("a@x.org>a+b@x.org", &[("a@x.org", "NoSuchUser")]);
}

/// `a0 > a1 > … > a{links}`, the last an account.
fn chain(links: usize) -> String {
    let mut text = format!("a{links}@x.org ");
    for link in 0..links {
        text += &format!("a{link}@x.org>a{}@x.org ", link + 1);
    }
    text
}

#[test]
fn chains_have_an_end() {
    for links in 1..=8 {
        check(&chain(links), &[("a0@x.org", &format!("a{links}@x.org"))]);
    }
    check(&chain(9), &[("a0@x.org", "Loop"), ("a1@x.org", "a9@x.org")]);
    check(
        &(chain(9) + "b@x.org @x.org>b@x.org"),
        &[("a0@x.org", "Loop")],
    );
}

#[test]
fn targets_have_a_limit() {
    let many = |count: usize| {
        (0..count)
            .map(|n| format!("u{n}@x.org all@x.org>u{n}@x.org "))
            .collect::<String>()
    };
    let Resolution::Local(targets) = directory(&many(ALIAS_TARGETS_MAX)).resolve("all", "x.org")
    else {
        panic!();
    };
    assert_eq!(targets.len(), ALIAS_TARGETS_MAX);
    assert!(targets.is_sorted());
    check(
        &many(ALIAS_TARGETS_MAX + 1),
        &[("all@x.org", "Loop"), ("u7@x.org", "u7@x.org")],
    );
}

/// `b@x` is made before `a@x` in the text, so it is the earlier one.
#[test]
fn every_domain_has_a_postmaster() {
    // RFC 5321, 4.5.1.
    check(
        "b@x.org a@x.org c@y.org :z.org",
        &[
            ("postmaster@x.org", "b@x.org"),
            ("PostMaster@X.org", "b@x.org"),
            ("postmaster@y.org", "c@y.org"),
            // A domain without accounts: whoever came first of all.
            ("postmaster@z.org", "b@x.org"),
            ("postmaster@w.org", "NotOurs"),
            // Nothing else is made up.
            ("postmaster+x@x.org", "NoSuchUser"),
            ("postmasters@x.org", "NoSuchUser"),
            ("abuse@x.org", "NoSuchUser"),
        ],
    );
    // Who is named comes first: an account, an alias, the catch-all.
    check(
        "b@x.org postmaster@x.org",
        &[
            ("postmaster@x.org", "postmaster@x.org"),
            ("postmaster+d@x.org", "postmaster@x.org/d"),
        ],
    );
    check(
        "b@x.org a@x.org postmaster@x.org>a@x.org",
        &[("postmaster@x.org", "a@x.org")],
    );
    check(
        "b@x.org a@x.org @x.org>a@x.org",
        &[("postmaster@x.org", "a@x.org")],
    );
    // One who is named, and gone or going in circles, is none.
    check(
        "b@x.org postmaster@x.org>gone@x.org",
        &[("postmaster@x.org", "b@x.org")],
    );
    check(
        &(chain(9) + "postmaster@x.org>a0@x.org"),
        &[("a0@x.org", "Loop"), ("postmaster@x.org", "a9@x.org")],
    );
    check(":x.org", &[("postmaster@x.org", "NoSuchUser")]);
}

#[test]
fn postmaster_without_a_domain() {
    let check = |text: &str, expected: Option<&str>| {
        let found = match directory(text).resolve_postmaster() {
            Resolution::Local(targets) => Some(targets[0].address.clone()),
            Resolution::NoSuchUser => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(found.as_deref(), expected, "{text}");
    };
    check("b@y.org a@x.org", Some("b@y.org"));
    check("b@y.org a@x.org postmaster@x.org>a@x.org", Some("a@x.org"));
    check("b@y.org a@x.org postmaster@y.org>a@x.org", Some("a@x.org"));
    check(":x.org", None);
    check("", None);
}

#[test]
fn who_may_send_from_what() {
    let check = |text: &str, account: &str, table: &[(&str, bool)]| {
        let directory = directory(text);
        for (address, expected) in table {
            let (local, domain) = address.rsplit_once('@').unwrap();
            let found = directory.may_send(&key_of(account), local, domain);
            assert_eq!(found, *expected, "{account} from {address} in {text}");
        }
    };
    check(
        "anne@x.org bob@x.org sales@x.org>anne@x.org team@x.org>anne@x.org team@x.org>bob@x.org help@y.org>sales@x.org",
        "anne@x.org",
        &[
            ("anne@x.org", true),
            ("ANNE@X.org", true),
            ("anne+lists@x.org", true),
            ("sales@x.org", true),
            ("sales+x@x.org", true),
            ("help@y.org", true),
            // Shared with Bob, Bob's, nobody's, somewhere else.
            ("team@x.org", false),
            ("bob@x.org", false),
            ("bob+anne@x.org", false),
            ("nobody@x.org", false),
            ("anne@y.org", false),
            ("anne@elsewhere.org", false),
            ("anne@[192.0.2.1]", false),
            ("anne@", false),
            ("@x.org", false),
            // Postmaster by default is an office, not a name.
            ("postmaster@x.org", false),
        ],
    );
    check(
        "anne@x.org postmaster@x.org>anne@x.org",
        "anne@x.org",
        &[("postmaster@x.org", true)],
    );
    // Her mail goes to Bob: she still is who she is; the detail that is his is his.
    check(
        "anne@x.org bob@x.org anne@x.org>bob@x.org anne+jobs@x.org>bob@x.org",
        "anne@x.org",
        &[
            ("anne@x.org", true),
            ("anne+x@x.org", true),
            ("anne+jobs@x.org", false),
        ],
    );
    check(
        "anne@x.org bob@x.org anne@x.org>bob@x.org anne+jobs@x.org>bob@x.org",
        "bob@x.org",
        &[
            ("bob@x.org", true),
            ("anne@x.org", true),
            ("anne+jobs@x.org", true),
        ],
    );
    // Who receives all that has no other receiver may answer it.
    check(
        "anne@x.org bob@x.org @x.org>anne@x.org",
        "anne@x.org",
        &[
            ("whoever@x.org", true),
            ("an ne@x.org", true),
            ("bob@x.org", false),
        ],
    );
    check(
        &chain(9),
        "a9@x.org",
        &[("a0@x.org", false), ("a1@x.org", true)],
    );
    check(
        "anne@x.org",
        "gone@x.org",
        &[("gone@x.org", false), ("anne@x.org", false)],
    );
}
