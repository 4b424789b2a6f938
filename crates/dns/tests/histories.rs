//! Random zones, servers, losses and forgeries. Whatever is answered is true, and each lookup is answered in time.

use std::time::Duration;

use hickory_proto::{
    op::ResponseCode,
    rr::{RData, RecordType},
};
use whimbrel_dns::{ALIASES_MAX, Config, Failure, Found, Kind, Name, Records};
use whimbrel_testkit::Rng;

use crate::world::{MILLI, Sent, Server, Tcp, World, Zone, address, config, name, record};

const NAMES: u64 = 14;
const LOOKUPS: u64 = 60;
const PATIENCE: Duration = Duration::from_secs(20);

fn zone(rng: &mut Rng) -> String {
    let mut text = String::from(
        "example.org 40 SOA ns.example.org host.example.org 1 1 1 1 40
        mx.example.net 30 A 198.51.100.200
        example.net 40 SOA ns.example.net host.example.net 1 1 1 1 20\n",
    );
    for at in 0..NAMES {
        let ttl = *rng.pick(&[0, 5, 30, 100_000]);
        let data = match rng.below(8) {
            0 => continue,
            // Mostly to the next one: chains grow long.
            1..=4 => format!("CNAME n{}.example.org", (at + 1) % NAMES),
            5 => format!("CNAME n{}.example.org", rng.below(NAMES + 1)),
            6 => "CNAME mx.example.net".to_owned(),
            _ => format!("A 198.51.100.{at}"),
        };
        text += &format!("n{at}.example.org {ttl} {data}\n");
    }
    text
}

/// What a lookup must find.
fn truth(zone: &Zone, asked: &str) -> Result<(Found, Vec<Name>), Failure> {
    let mut aliases = Vec::new();
    let mut at = asked.to_owned();
    while let Some((_, RData::CNAME(target))) = zone.of(&at, RecordType::CNAME).pop() {
        at = target.0.to_ascii();
        let alias = name(&at);
        at = alias.to_string();
        if at == asked || aliases.contains(&alias) {
            return Err(Failure::AliasLoop);
        }
        if aliases.len() == ALIASES_MAX {
            return Err(Failure::TooManyAliases);
        }
        aliases.push(alias);
    }
    let addresses = zone.of(&at, RecordType::A).into_iter();
    let addresses: Vec<_> = addresses
        .filter_map(|(_, data)| match data {
            RData::A(address) => Some(address.0),
            _ => None,
        })
        .collect();
    let found = match addresses.is_empty() {
        true if zone.exists(&at) => Found::NoData,
        true => Found::NoName,
        false => Found::Records(Records::A(addresses).into()),
    };
    Ok((found, aliases))
}

fn server(rng: &mut Rng) -> Server {
    let truncate: fn(&mut Vec<u8>) = |bytes| bytes[2] |= u8::from(bytes[1] % 3 == 0) << 1;
    Server {
        delay: u32::try_from(rng.between(1, 900)).unwrap() * MILLI,
        jitter: u32::try_from(rng.below(900)).unwrap() * MILLI,
        lost: rng.below(5),
        doubled: rng.below(5),
        silent: rng.one_in(4),
        unreachable: rng.one_in(8),
        edns: !rng.one_in(4),
        keeps_case: !rng.one_in(4),
        authentic: rng.one_in(2),
        hops: usize::try_from(rng.between(1, 4)).unwrap(),
        code: rng
            .one_in(6)
            .then(|| *rng.pick(&[ResponseCode::ServFail, ResponseCode::Refused])),
        tcp: *rng.pick(&[
            Tcp::Works,
            Tcp::Works,
            Tcp::Trickles,
            Tcp::Refuses,
            Tcp::Silent,
            Tcp::Ends,
        ]),
        // By TCP, the bit spoils the answer.
        raw: rng.one_in(3).then_some(truncate),
        twist: None,
    }
}

/// Something like an answer, with a wrong address: from elsewhere, with a wrong id, to another question, in another case of letters.
fn forge(rng: &mut Rng, sent: &Sent) -> Option<(std::net::SocketAddr, Vec<u8>)> {
    let mut answer = sent.message.clone().into_response();
    let name = sent.name().to_lowercase();
    answer.add_answer(record(&format!("{name} 1000 A 203.0.113.66")));
    let mut from = sent.server;
    match rng.below(6) {
        0 => from = address(99),
        1 => answer.metadata.id = answer.id.wrapping_add(1),
        2 => {
            answer.queries[0].set_query_type(RecordType::MX);
        }
        3 if sent.name() != name => answer.queries[0].name = answer.queries[0].name.to_lowercase(),
        4 => answer.metadata.message_type = hickory_proto::op::MessageType::Query,
        _ => return None,
    }
    Some((from, answer.to_vec().unwrap()))
}

/// Panics at what is wrong, or returns how many lookups found what they should.
pub fn history(seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let zone = zone(&mut rng);
    let faulty = !rng.one_in(4);
    let servers = u8::try_from(rng.between(1, 3)).unwrap();
    let config = Config {
        patience: PATIENCE,
        questions_max: usize::try_from(rng.between(1, 5)).unwrap(),
        streams_max: usize::try_from(rng.between(1, 3)).unwrap(),
        cache_entries_max: usize::try_from(rng.between(0, 20)).unwrap(),
        lookups_max: if faulty { 20 } else { 100 },
        ..config(servers)
    };
    let mut world = World::new(config, &zone, seed);
    if faulty {
        for number in 1..=servers {
            *world.server(number) = server(&mut rng);
        }
        world.forger = Some(forge);
    }
    let mut lookups = Vec::new();
    for _ in 0..LOOKUPS {
        let then = world.now + u32::try_from(rng.below(2000)).unwrap() * MILLI;
        world.run_until(then);
        let asked = format!("n{}.example.org", rng.below(NAMES + 1));
        let ticket = world.ask(&asked, Kind::A);
        lookups.push((ticket, world.now, asked));
        if rng.one_in(8) {
            let (ticket, ..) = rng.pick(&lookups);
            world.cancel(*ticket);
        }
    }
    world.run();
    let mut right = 0;
    for (ticket, begun, asked) in lookups {
        let Some(result) = world.answers.get(&ticket) else {
            continue;
        };
        assert!(world.answered[&ticket] <= begun + PATIENCE, "too late");
        let truth = truth(&world.zone, &asked);
        match result {
            Err(failure) if truth.as_ref().err() != Some(failure) => {
                assert!(faulty, "{asked} fails: {failure}");
            }
            result => {
                let found = result.clone().map(|answer| (answer.found, answer.aliases));
                assert_eq!(found, truth, "{asked}");
                right += 1;
            }
        }
    }
    right
}

#[test]
fn whatever_is_answered_is_true() {
    let right: u64 = (1..=300).map(history).sum();
    // Most servers of these worlds are bad.
    assert!(right > 300 * LOOKUPS / 3, "{right}");
}
