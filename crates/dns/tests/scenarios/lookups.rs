//! What is learnt of names.

use std::{net::Ipv4Addr, time::Duration};

use hickory_proto::op::Message;
use whimbrel_dns::{ALIASES_MAX, Config, Failure, Found, Kind, Mx, Name, Records, Tlsa};

use super::ZONE;
use crate::world::{MILLI, SECOND, World, config, name};

fn world() -> World {
    World::new(config(1), ZONE, 1)
}

pub fn every_kind_of_records_is_read() {
    let long = format!("\"{}\" \"{}\"", "a".repeat(200), "b".repeat(200));
    let more = format!(
        "example.org 300 TXT \"v=spf1 -all\"
        key.example.org 300 TXT {long}
        none.example.org 300 MX 0 .
        1.100.51.198.in-addr.arpa 300 PTR mx1.example.org"
    );
    let mut world = World::new(config(1), &format!("{ZONE}{more}"), 1);
    let mut check = |name: &str, kind, expected: Records| {
        assert_eq!(world.records(name, kind), expected, "{name} {kind:?}");
    };
    let mx = |preference, exchange| Mx {
        preference,
        exchange: name(exchange),
    };
    let servers = vec![mx(10, "mx1.example.org"), mx(20, "mx2.example.org")];
    check("example.org", Kind::Mx, Records::Mx(servers.clone()));
    check("EXAMPLE.Org.", Kind::Mx, Records::Mx(servers));
    let addresses = [1, 2].map(|last| Ipv4Addr::new(198, 51, 100, last));
    check("mx1.example.org", Kind::A, Records::A(addresses.into()));
    let address = "2001:db8::1".parse().unwrap();
    check("mx1.example.org", Kind::Aaaa, Records::Aaaa(vec![address]));
    let tlsa = Tlsa {
        usage: 3,
        selector: 1,
        matching: 1,
        data: vec![0, 0x11, 0x22, 0x33].into(),
    };
    check(
        "_25._tcp.mx1.example.org",
        Kind::Tlsa,
        Records::Tlsa(vec![tlsa]),
    );
    let spf = b"v=spf1 -all".as_slice().into();
    check("example.org", Kind::Txt, Records::Txt(vec![spf]));
    let joined = format!("{}{}", "a".repeat(200), "b".repeat(200));
    let joined = joined.into_bytes().into();
    check("key.example.org", Kind::Txt, Records::Txt(vec![joined]));
    let null = Mx {
        preference: 0,
        exchange: Name::root(),
    };
    check("none.example.org", Kind::Mx, Records::Mx(vec![null]));
    let host = vec![name("mx1.example.org")];
    let address = Name::reverse("198.51.100.1".parse().unwrap()).to_string();
    check(&address, Kind::Ptr, Records::Ptr(host));
}

pub fn what_is_not_there_is_told_apart() {
    let mut world = world();
    let mut check = |name: &str, kind, expected| {
        assert_eq!(world.found(name, kind), Ok(expected), "{name} {kind:?}");
    };
    check("absent.example.org", Kind::A, Found::NoName);
    check("mx2.example.org", Kind::A, Found::NoName);
    check("example.org", Kind::A, Found::NoData);
    // There is nothing but names below it.
    check("_tcp.mx1.example.org", Kind::Tlsa, Found::NoData);
    check("www.example.org", Kind::Mx, Found::NoData);
    check("nowhere.example.org", Kind::A, Found::NoName);
}

const HOST: &str = "198.51.100.3";

pub fn aliases_are_followed_within_an_answer() {
    let mut world = world();
    let answer = world.lookup("www.example.org", Kind::A).unwrap();
    let aliases = [name("web.example.org"), name("host.example.net")];
    assert_eq!(answer.aliases, aliases);
    assert_eq!(answer.ttl, 100 * SECOND);
    assert_eq!(
        world.records("www.example.org", Kind::A),
        Records::A(vec![HOST.parse().unwrap()])
    );
    assert_eq!(world.sent.len(), 1);
}

pub fn aliases_are_asked_for() {
    let mut world = world();
    world.server(1).hops = 1;
    let answer = world.lookup("www.example.org", Kind::A).unwrap();
    let aliases = [name("web.example.org"), name("host.example.net")];
    assert_eq!(answer.aliases, aliases);
    assert_eq!(answer.ttl, 100 * SECOND);
    let asked: Vec<String> = world
        .sent
        .iter()
        .map(|sent| sent.name().to_lowercase())
        .collect();
    assert_eq!(
        asked,
        ["www.example.org.", "web.example.org.", "host.example.net."]
    );
    // Parts of it are known now.
    assert_eq!(
        world.found("nowhere.example.org", Kind::A),
        Ok(Found::NoName)
    );
    world.lookup("web.example.org", Kind::A).unwrap();
    assert_eq!(world.sent.len(), 5);
}

pub fn an_alias_itself_can_be_asked_for() {
    let mut world = world();
    let answer = world.lookup("www.example.org", Kind::Cname).unwrap();
    assert!(answer.aliases.is_empty());
    let target = Records::Cname(vec![name("web.example.org")]);
    assert_eq!(answer.found, Found::Records(target.into()));
    assert_eq!(world.found("example.org", Kind::Cname), Ok(Found::NoData));
}

/// Aliases a0 to a1 and so on, and after so many of them an address.
fn chain(aliases: usize) -> String {
    let mut zone = String::from(ZONE);
    for at in 0..aliases {
        zone += &format!("a{at}.example.org 300 CNAME a{}.example.org\n", at + 1);
    }
    zone + &format!("a{aliases}.example.org 300 A {HOST}\n")
}

pub fn aliases_that_lead_in_a_circle_end() {
    let circle = "one.example.org 300 CNAME two.example.org
        two.example.org 300 CNAME one.example.org
        self.example.org 300 CNAME self.example.org
        into.example.org 300 CNAME one.example.org";
    for hops in [1, 2, 3, 100] {
        let mut world = World::new(config(1), &format!("{ZONE}{circle}"), 1);
        world.server(1).hops = hops;
        for name in ["one.example.org", "self.example.org", "into.example.org"] {
            assert_eq!(
                world.found(name, Kind::A),
                Err(Failure::AliasLoop),
                "{hops}"
            );
        }
        assert!(world.sent.len() < 10);
    }
}

pub fn at_most_eight_aliases_are_followed() {
    for hops in [1, 3, 100] {
        let mut world = World::new(config(1), &chain(ALIASES_MAX), 1);
        world.server(1).hops = hops;
        let answer = world.lookup("a0.example.org", Kind::A).unwrap();
        assert_eq!(answer.aliases.len(), ALIASES_MAX);
        let mut world = World::new(config(1), &chain(ALIASES_MAX + 1), 1);
        world.server(1).hops = hops;
        let failure = Err(Failure::TooManyAliases);
        assert_eq!(world.found("a0.example.org", Kind::A), failure);
        assert!(world.sent.len() <= ALIASES_MAX + 1);
    }
}

pub fn authenticity_is_that_of_all_answers() {
    let mut world = world();
    world.server(1).authentic = true;
    assert!(world.lookup("www.example.org", Kind::A).unwrap().authentic);
    assert!(world.lookup("example.org", Kind::Txt).unwrap().authentic);
    // The second zone is not signed.
    let mut world = self::world();
    world.server(1).authentic = true;
    world.server(1).hops = 1;
    world.server(1).twist = Some(|answer: &mut Message| {
        let name = answer.queries[0].name.to_ascii().to_lowercase();
        answer.metadata.authentic_data &= !name.contains("example.net");
    });
    let answer = world.lookup("www.example.org", Kind::A).unwrap();
    assert!(!answer.authentic);
    let alias = world.lookup("web.example.org", Kind::Cname).unwrap();
    assert!(alias.authentic);
}

pub fn authenticity_is_asked_for_if_wanted() {
    for authentic in [true, false] {
        let config = Config {
            authentic,
            ..config(1)
        };
        let mut world = World::new(config, ZONE, 1);
        world.server(1).authentic = true;
        let answer = world.lookup("example.org", Kind::Mx).unwrap();
        assert_eq!(answer.authentic, authentic);
        let message = &world.sent[0].message;
        assert_eq!(message.metadata.authentic_data, authentic);
        assert!(message.metadata.recursion_desired);
        assert_eq!(message.max_payload(), 1232);
    }
}

pub fn what_nobody_waits_for_is_given_up() {
    let mut world = world();
    world.server(1).silent = true;
    let one = world.ask("example.org", Kind::Mx);
    let two = world.ask("example.org", Kind::Mx);
    world.cancel(one);
    world.run_until(100 * MILLI);
    world.socket();
    world.cancel(two);
    world.cancel(two);
    // It also looks for sockets that are left open.
    world.run();
    assert_eq!(world.sent.len(), 1);
    assert!(world.answers.is_empty());
    assert_eq!(world.resolver.deadline(), None);
}

pub fn a_ticket_that_is_used_again_begins_anew() {
    let mut world = world();
    let ask = |text| whimbrel_dns::Input::Ask {
        ticket: 1,
        name: name(text),
        kind: Kind::A,
    };
    assert_eq!(world.ask("example.org", Kind::A), 1);
    world.input(ask("mx1.example.org"));
    world.run();
    let answer = world.answers[&1].clone().unwrap();
    assert!(matches!(answer.found, Found::Records(_)));
}

pub fn a_lookup_ends_in_time() {
    let config = Config {
        patience: 1500 * MILLI,
        ..config(3)
    };
    let mut world = World::new(config, ZONE, 1);
    world.all_servers(|server| server.silent = true);
    let ticket = world.ask("example.org", Kind::Mx);
    world.run_until(1499 * MILLI);
    assert!(world.answers.is_empty());
    world.run_until(1500 * MILLI);
    assert_eq!(world.answers[&ticket], Err(Failure::Timeout));
    world.run();
}

pub fn nobody_can_be_asked() {
    let mut world = World::new(Config::new(Vec::new()), ZONE, 1);
    let failure = Err(Failure::NoServers);
    assert_eq!(world.found("example.org", Kind::Mx), failure);
    assert_eq!(world.now, Duration::ZERO);
}
