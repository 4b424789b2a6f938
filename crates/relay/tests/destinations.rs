//! Where mail goes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use whimbrel_relay::destinations::{
    ADDRESSES_MAX, AddressAnswer, Answer, Failure, Families, HOSTS_MAX, Hosts, Key, Mx, MxAnswer,
    NoRoute, Own, Plan, Step, Walk,
};

use crate::Case;

pub const ALL: &[Case] = &[
    ("answers about MX", answers_about_mx),
    ("own hosts", this_server_is_left_out),
    ("equals are shuffled", equals_are_shuffled),
    ("the key", the_key_is_that_of_the_set),
    ("addresses", addresses_alternate),
    ("answers about addresses", answers_about_addresses),
    ("refusals", refusals_are_final_when_all_have_refused),
];

const BOTH: Families = Families { v6: true, v4: true };

/// `10 mx.example`, and so on.
fn mx(records: &[&str]) -> MxAnswer {
    let record = |text: &&str| {
        let (preference, target) = text.split_once(' ').unwrap();
        Mx {
            preference: preference.parse().unwrap(),
            target: target.to_owned(),
        }
    };
    MxAnswer {
        canonical: None,
        records: Answer::Found(records.iter().map(record).collect()),
    }
}

fn answer(records: Answer<Mx>) -> MxAnswer {
    MxAnswer {
        canonical: None,
        records,
    }
}

fn own() -> Own {
    Own {
        names: BTreeSet::from(["mx.here.example".to_owned()]),
        addresses: BTreeSet::from(["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()]),
        loopback: true,
    }
}

fn names(hosts: &Hosts) -> Vec<String> {
    hosts
        .hosts()
        .iter()
        .map(|host| format!("{} {}", host.preference(), host.name()))
        .collect()
}

fn check(answer: &MxAnswer, expected: Result<&[&str], NoRoute>) {
    let hosts = Hosts::of_domain("There.Example", answer, &own(), 1).map(|hosts| names(&hosts));
    let expected = expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(hosts, expected, "{answer:?}");
}

#[test]
fn answers_about_mx() {
    check(
        &mx(&["20 b.example.", "10 A.example."]),
        Ok(&["10 a.example", "20 b.example"]),
    );
    check(
        &mx(&["20 a.example", "10 a.example"]),
        Ok(&["10 a.example"]),
    );
    // RFC 7505.
    check(&mx(&["0 ."]), Err(NoRoute::NullMx));
    check(&mx(&["0 .", "10 a.example."]), Ok(&["10 a.example"]));
    // No MX at all: the domain itself, or where its CNAME leads.
    check(&answer(Answer::NoData), Ok(&["0 there.example"]));
    check(&answer(Answer::Found(vec![])), Ok(&["0 there.example"]));
    let alias = MxAnswer {
        canonical: Some("Web.Example.".to_owned()),
        ..answer(Answer::NoData)
    };
    check(&alias, Ok(&["0 web.example"]));
    // A name that does not exist has no address either. A resolver that fails has said nothing.
    check(&answer(Answer::NoName), Err(NoRoute::NoDomain));
    check(&answer(Answer::Failed), Err(NoRoute::Resolver));
    // What is no host name is left out.
    check(
        &mx(&["10 192.0.2.7.", "20 a.example.", "5 [192.0.2.7]", "5 a..b"]),
        Ok(&["20 a.example"]),
    );
    check(&mx(&["10 192.0.2.7."]), Err(NoRoute::NoHost));
    let many: Vec<String> = (0..100).map(|at| format!("{at} mx{at}.example.")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let hosts = Hosts::of_domain("there.example", &mx(&many), &own(), 1).unwrap();
    assert_eq!(hosts.hosts().len(), HOSTS_MAX);
    assert_eq!(hosts.hosts()[19].name(), "mx19.example");
    for (route, text) in [
        (NoRoute::NullMx, "5.1.10"),
        (NoRoute::NoDomain, "5.1.2"),
        (NoRoute::NoHost, "5.4.4"),
        (NoRoute::Loop, "5.4.6"),
        (NoRoute::Literal, "5.1.3"),
        (NoRoute::Resolver, "4.4.3"),
        (NoRoute::Family, "4.4.4"),
    ] {
        assert_eq!(route.status().to_string(), text);
        assert_eq!(route.status().is_permanent(), text.starts_with('5'));
    }
}

#[test]
fn this_server_is_left_out() {
    check(
        &mx(&[
            "10 a.example",
            "20 MX.here.example.",
            "20 b.example",
            "30 c.example",
        ]),
        Ok(&["10 a.example"]),
    );
    check(
        &mx(&["10 mx.here.example", "20 b.example"]),
        Err(NoRoute::Loop),
    );
    let alias = MxAnswer {
        canonical: Some("mx.here.example.".to_owned()),
        ..answer(Answer::NoData)
    };
    check(&alias, Err(NoRoute::Loop));
    // The same by addresses, and by where a CNAME leads.
    let hosts = Hosts::of_domain(
        "there.example",
        &mx(&["10 a.example", "20 b.example", "30 c.example"]),
        &own(),
        1,
    );
    let hosts = hosts.unwrap();
    let plan = |answers: &[AddressAnswer]| {
        let plan = hosts.plan(answers, &own(), BOTH, 1);
        plan.map(|plan| {
            plan.hosts()
                .iter()
                .map(|host| host.name().to_owned())
                .collect::<Vec<_>>()
        })
    };
    let other = at(&["198.51.100.1"]);
    let second = at(&["198.51.100.2"]);
    assert_eq!(
        plan(&[other.clone(), at(&["192.0.2.1"]), second.clone()]),
        Ok(vec!["a.example".to_owned()])
    );
    assert_eq!(
        plan(&[
            other.clone(),
            at(&["2001:db8::1", "198.51.100.2"]),
            second.clone()
        ])
        .unwrap()
        .len(),
        1
    );
    assert_eq!(
        plan(&[other.clone(), at(&["127.0.0.1"]), second.clone()])
            .unwrap()
            .len(),
        1
    );
    let alias = AddressAnswer {
        canonical: Some("Mx.Here.Example.".to_owned()),
        ..second.clone()
    };
    assert_eq!(
        plan(&[other.clone(), alias, second.clone()]).unwrap().len(),
        1
    );
    assert_eq!(
        plan(&[at(&["192.0.2.1"]), other.clone(), second.clone()]),
        Err(NoRoute::Loop)
    );
    assert_eq!(
        plan(&[other, second, at(&["198.51.100.3"])]).unwrap().len(),
        3
    );
    assert_eq!(Hosts::of_literal("[192.0.2.1]", &own()), Err(NoRoute::Loop));
    assert_eq!(
        Hosts::of_literal("[IPv6:::ffff:192.0.2.1]", &own()),
        Err(NoRoute::Loop)
    );
    assert_eq!(
        Hosts::of_host("mx.here.example", &own()),
        Err(NoRoute::Loop)
    );
}

#[test]
fn equals_are_shuffled() {
    let order = |records: &[&str], seed| {
        let hosts = Hosts::of_domain("there.example", &mx(records), &own(), seed).unwrap();
        names(&hosts).concat()
    };
    let records = [
        "10 a.example",
        "10 b.example",
        "10 c.example",
        "5 z.example",
    ];
    let turned = [
        "10 c.example",
        "5 z.example",
        "10 b.example",
        "10 a.example",
    ];
    let mut orders = BTreeSet::new();
    for seed in 0..100 {
        assert_eq!(order(&records, seed), order(&turned, seed));
        assert!(order(&records, seed).starts_with("5 z.example"));
        orders.insert(order(&records, seed));
    }
    assert_eq!(orders.len(), 6);
}

/// bunmail #91, zotonic #993, maddy #117: "too many connections" is said by a host, not by a domain.
#[test]
fn the_key_is_that_of_the_set() {
    let key = |domain: &str, records: &[&str], seed| {
        Hosts::of_domain(domain, &mx(records), &own(), seed)
            .unwrap()
            .key()
    };
    let one = key("one.example", &["10 a.example", "20 b.example"], 1);
    assert_eq!(
        one,
        key("other.example", &["20 B.example.", "7 a.example"], 2)
    );
    assert_eq!(one, Key::of(["b.example", "a.example"]));
    assert_ne!(one, key("one.example", &["10 a.example"], 1));
    assert_ne!(Key::of(["a.example", "b"]), Key::of(["a.exampleb"]));
    // Hosts beyond the limit belong to it: the seed does not change it.
    let many: Vec<String> = (0..30).map(|at| format!("10 mx{at}.example.")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(key("one.example", &many, 1), key("one.example", &many, 2));
    let of = |hosts: Result<Hosts, NoRoute>| hosts.unwrap().key();
    assert_eq!(
        of(Hosts::of_literal("[198.51.100.1]", &own())),
        of(Hosts::of_address("198.51.100.1".parse().unwrap(), &own()))
    );
    assert_eq!(
        of(Hosts::of_host("a.example.", &own())),
        Key::of(["a.example"])
    );
}

/// An answer with these addresses.
fn at(addresses: &[&str]) -> AddressAnswer {
    let (mut v6, mut v4) = (Vec::new(), Vec::new());
    for address in addresses {
        match address.parse().unwrap() {
            IpAddr::V4(address) => v4.push(address),
            IpAddr::V6(address) => v6.push(address),
        }
    }
    AddressAnswer {
        canonical: None,
        v6: Answer::Found(v6),
        v4: Answer::Found(v4),
    }
}

fn two_hosts() -> Hosts {
    Hosts::of_domain(
        "there.example",
        &mx(&["10 a.example", "20 b.example"]),
        &own(),
        1,
    )
    .unwrap()
}

fn addresses(plan: &Plan) -> Vec<Vec<String>> {
    let hosts = plan.hosts().iter();
    hosts
        .map(|host| host.addresses().iter().map(ToString::to_string).collect())
        .collect()
}

#[test]
fn addresses_alternate() {
    let many: Vec<String> = (2..30)
        .flat_map(|n| [format!("198.51.100.{n}"), format!("2001:db8:1::{n}")])
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let mut firsts = BTreeSet::new();
    for seed in 0..200 {
        let plan = two_hosts()
            .plan(&[at(&many), at(&["198.51.100.99"])], &own(), BOTH, seed)
            .unwrap();
        let families: Vec<bool> = plan.hosts()[0]
            .addresses()
            .iter()
            .map(IpAddr::is_ipv6)
            .collect();
        assert_eq!(families, [true, false, true, false, true]);
        assert_eq!(families.len(), ADDRESSES_MAX);
        firsts.insert(plan.hosts()[0].addresses()[0]);
    }
    assert!(firsts.len() > 20);
    // One family with few leaves its turns to the other.
    let plan = two_hosts()
        .plan(&[at(&many[..3]), at(&many[..3])], &own(), BOTH, 1)
        .unwrap();
    let got = addresses(&plan);
    assert_eq!(
        got.len(),
        1,
        "addresses of the second host were tried already: {got:?}"
    );
    assert_eq!(got[0][0], "2001:db8:1::2");
    // Without IPv6 there is nothing to try by it.
    let four = Families {
        v6: false,
        v4: true,
    };
    let plan = two_hosts()
        .plan(&[at(&many), at(&many[..2])], &own(), four, 1)
        .unwrap();
    assert!(
        plan.hosts()
            .iter()
            .all(|host| host.addresses().iter().all(IpAddr::is_ipv4))
    );
    assert_eq!(
        two_hosts().plan(&[at(&["2001:db8:1::2"]), at(&[])], &own(), four, 1),
        Err(NoRoute::Family)
    );
    // Addresses of no host.
    let nobody = at(&["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"]);
    assert_eq!(
        two_hosts().plan(&[nobody.clone(), nobody], &own(), BOTH, 1),
        Err(NoRoute::NoHost)
    );
    // Mapped addresses are those that they map.
    let plan = two_hosts()
        .plan(
            &[at(&["::ffff:198.51.100.7", "198.51.100.7"]), at(&[])],
            &own(),
            BOTH,
            1,
        )
        .unwrap();
    assert_eq!(addresses(&plan), [["198.51.100.7"]]);
    let literal = Hosts::of_literal("[IPv6:2001:db8::7]", &own()).unwrap();
    assert_eq!(
        addresses(&literal.plan(&[], &own(), BOTH, 1).unwrap()),
        [["2001:db8::7"]]
    );
    assert_eq!(
        literal.hosts()[0].address(),
        Some("2001:db8::7".parse().unwrap())
    );
    for none in [
        "[x:y]",
        "[2001:db8::7]",
        "[1.2.3]",
        "1.2.3.4",
        "[ipv6:1.2.3.4]",
    ] {
        assert_eq!(
            Hosts::of_literal(none, &own()),
            Err(NoRoute::Literal),
            "{none}"
        );
    }
}

#[test]
fn answers_about_addresses() {
    let none = |v6, v4| AddressAnswer {
        canonical: None,
        v6,
        v4,
    };
    let gone = none(Answer::NoName, Answer::NoName);
    let failed = none(Answer::Failed, Answer::NoData);
    let there = at(&["198.51.100.7"]);
    let plan = |answers: &[AddressAnswer]| two_hosts().plan(answers, &own(), BOTH, 1);
    assert_eq!(plan(&[gone.clone(), gone.clone()]), Err(NoRoute::NoHost));
    assert_eq!(
        plan(&[gone.clone(), failed.clone()]),
        Err(NoRoute::Resolver)
    );
    assert_eq!(
        plan(core::slice::from_ref(&gone)),
        Err(NoRoute::Resolver),
        "one was not asked"
    );
    assert_eq!(
        addresses(&plan(&[gone.clone(), there.clone()]).unwrap()),
        [["198.51.100.7"]]
    );
    assert!(
        !plan(&[gone.clone(), there.clone()])
            .unwrap()
            .is_unresolved()
    );
    assert!(
        plan(&[failed.clone(), there.clone()])
            .unwrap()
            .is_unresolved()
    );
    // One family is enough.
    let half = AddressAnswer {
        v6: Answer::Failed,
        ..there
    };
    assert!(!plan(&[half, gone.clone()]).unwrap().is_unresolved());
    let implicit = Hosts::of_domain("there.example", &answer(Answer::NoData), &own(), 1).unwrap();
    assert!(implicit.is_implicit());
    let none = none(Answer::NoData, Answer::NoData);
    assert_eq!(
        implicit.plan(&[none], &own(), BOTH, 1),
        Err(NoRoute::NoDomain)
    );
    assert_eq!(
        implicit.plan(&[failed], &own(), BOTH, 1),
        Err(NoRoute::Resolver)
    );
}

/// What becomes of the addresses: `-` unreachable, `4` temporary, `5` refused, `m` sender refused. All end in `expected`, after these connections.
fn walk(hosts: &[&[&str]], fates: &[(&str, char)], expected: &Step<char>, order: &[&str]) {
    let answers: Vec<AddressAnswer> = hosts.iter().map(|addresses| at(addresses)).collect();
    let plan = two_hosts().plan(&answers, &own(), BOTH, 1).unwrap();
    let mut walk = Walk::new(&plan);
    let mut tried = Vec::new();
    let end = loop {
        let addresses = match walk.step() {
            Step::Connect { addresses, .. } => addresses,
            end => break end,
        };
        let first = addresses[0];
        let (text, fate) = fates
            .iter()
            .find(|(text, _)| text.parse() == Ok(first))
            .unwrap();
        tried.push(*text);
        let failure = match *fate {
            '-' => Failure::Unreachable('-'),
            '4' => Failure::Temporary('4'),
            '5' => Failure::Refused('5'),
            'm' => Failure::SenderRefused('m'),
            other => panic!("{other}"),
        };
        assert!(tried.len() <= 10);
        walk.failed(first, failure);
    };
    assert_eq!((&end, &tried[..]), (expected, order));
}

/// mox #149, stalwart #2484: no PTR record for IPv6; the other family was not tried.
#[test]
fn refusals_are_final_when_all_have_refused() {
    let (six, four, other) = ("2001:db8:1::7", "198.51.100.7", "198.51.100.8");
    let hosts: &[&[&str]] = &[&[six, four], &[other]];
    let check = |fates: &str, expected: Step<char>, order: &[&str]| {
        let mut fates = fates.chars();
        let fates: Vec<(&str, char)> = [six, four, other]
            .map(|address| (address, fates.next().unwrap()))
            .to_vec();
        walk(hosts, &fates, &expected, order);
    };
    check("555", Step::Refused('5'), &[six, four, other]);
    check("-55", Step::Refused('5'), &[six, four, other]);
    check("5-5", Step::Refused('5'), &[six, four, other]);
    check("55-", Step::Deferred(Some('-')), &[six, four, other]);
    check("554", Step::Deferred(Some('4')), &[six, four, other]);
    check("545", Step::Deferred(Some('4')), &[six, four, other]);
    check("--5", Step::Deferred(Some('-')), &[six, four, other]);
    check("---", Step::Deferred(Some('-')), &[six, four, other]);
    // To MAIL: the other family, and then no other host.
    check("mm5", Step::Refused('m'), &[six, four]);
    check("m-5", Step::Refused('m'), &[six, four]);
    check("m45", Step::Deferred(Some('4')), &[six, four, other]);
    check("5m5", Step::Refused('m'), &[six, four]);
    check("44m", Step::Refused('m'), &[six, four, other]);
    // Of one family all but the unreachable are spoken for.
    let hosts: &[&[&str]] = &[&[six, "2001:db8:1::8"], &[]];
    walk(
        hosts,
        &[(six, '5'), ("2001:db8:1::8", '5')],
        &Step::Refused('5'),
        &[first_of(hosts)],
    );
    // A host that could not be looked up might take it.
    let failed = AddressAnswer {
        canonical: None,
        v6: Answer::Failed,
        v4: Answer::Failed,
    };
    let plan = two_hosts()
        .plan(&[failed, at(&[four])], &own(), BOTH, 1)
        .unwrap();
    let mut walk = Walk::new(&plan);
    assert!(matches!(walk.step(), Step::Connect { host, .. } if host == "b.example"));
    walk.failed(four.parse().unwrap(), Failure::Refused('5'));
    assert_eq!(walk.step(), Step::Deferred(Some('5')));
}

/// The address that comes first: the seed decides.
fn first_of(hosts: &[&[&'static str]]) -> &'static str {
    let answers: Vec<AddressAnswer> = hosts.iter().map(|addresses| at(addresses)).collect();
    let plan = two_hosts().plan(&answers, &own(), BOTH, 1).unwrap();
    let first = plan.hosts()[0].addresses()[0];
    hosts[0]
        .iter()
        .find(|text| text.parse() == Ok(first))
        .unwrap()
}
