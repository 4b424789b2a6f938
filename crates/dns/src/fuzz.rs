//! Entry points for fuzzers, also used by tests: each takes arbitrary bytes and panics when an invariant is broken.

use core::time::Duration;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use bytes::Bytes;

use crate::{
    api::{Config, Failure, Input, Kind, Output, Socket, Stream, Ticket},
    message::{self, Head},
    name::Name,
    resolv_conf::ResolvConf,
    resolver::Resolver,
};

const KINDS: [Kind; 7] = [
    Kind::A,
    Kind::Aaaa,
    Kind::Cname,
    Kind::Mx,
    Kind::Ptr,
    Kind::Tlsa,
    Kind::Txt,
];

/// Any octets as an answer, whatever the question was. *Law*: names that are read are names.
pub fn message(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    let kind = KINDS[usize::from(*choice) % KINDS.len()];
    let Some(head) = Head::read(data) else {
        return;
    };
    let asked = Name::new("example.org").expect("a name");
    if let Ok(reading) = message::read(data, &head, &asked, kind) {
        for name in &reading.aliases {
            let again = Name::from_labels(name.labels());
            assert_eq!(again.as_ref(), Ok(name));
            assert!(name.is_within(name) && name.is_within(&Name::root()));
        }
    }
}

/// Any text as a name and as resolv.conf. *Law*: a name that is shown is read as the same.
pub fn text(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(name) = Name::new(&text) {
        assert_eq!(Name::new(&name.to_string()), Ok(name));
    }
    let servers = ResolvConf::read(&text).servers.len();
    assert!((1..=3).contains(&servers));
}

/// What is open, as a driver sees it.
#[derive(Default)]
struct Driver {
    sockets: BTreeMap<Socket, (SocketAddr, Bytes)>,
    streams: BTreeMap<Stream, Option<Bytes>>,
    waiting: BTreeSet<Ticket>,
}

const LIMIT: usize = 3;

/// A machine that is driven by any inputs; an answer is made of its question and of any octets. *Laws*: each lookup is answered once; no socket is used twice;
/// bounds hold; in the end nothing is left open.
pub fn machine(data: &[u8]) {
    let mut config = Config::new(vec![
        ([192, 0, 2, 1], 53).into(),
        ([192, 0, 2, 2], 53).into(),
    ]);
    config.lookups_max = 2 * LIMIT;
    config.questions_max = LIMIT;
    config.streams_max = LIMIT;
    config.cache_entries_max = LIMIT;
    config.cache_bytes_max = 1 << 14;
    let (cache_entries_max, cache_bytes_max) = (config.cache_entries_max, config.cache_bytes_max);
    let mut resolver = Resolver::new(config, [0; 32]);
    let mut driver = Driver::default();
    let mut now = Duration::ZERO;
    let mut rest = data;
    while let [choice, which, behind @ ..] = rest {
        rest = behind;
        let mut octets = |count: usize| {
            let (octets, behind) = rest.split_at(count.min(rest.len()));
            rest = behind;
            octets.to_vec()
        };
        let input = match choice % 9 {
            0 | 1 => {
                let ticket = u64::from(*which) % 16;
                driver.waiting.insert(ticket);
                Input::Ask {
                    ticket,
                    name: Name::new(["a", "b.a", "example.org"][usize::from(*which) % 3])
                        .expect("a name"),
                    kind: KINDS[usize::from(*which / 8) % KINDS.len()],
                }
            }
            2 => {
                let ticket = u64::from(*which) % 16;
                driver.waiting.remove(&ticket);
                Input::Cancel(ticket)
            }
            3 => {
                now += Duration::from_millis(100 * u64::from(*which));
                Input::Time
            }
            4 | 5 => {
                let Some((socket, (server, asked))) = nth(&driver.sockets, *which) else {
                    continue;
                };
                let bytes = answer(&asked, octets(usize::from(*which)));
                Input::Datagram {
                    socket,
                    from: server,
                    bytes,
                }
            }
            6 => match nth(&driver.streams, *which) {
                Some((stream, None)) => Input::Connected(stream),
                Some((stream, Some(asked))) => {
                    let message = answer(&asked.slice(2..), octets(usize::from(*which)));
                    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
                    let bytes = [&length.to_be_bytes()[..], &message].concat();
                    Input::Bytes(stream, bytes.into())
                }
                None => continue,
            },
            7 => match nth(&driver.streams, *which) {
                Some((stream, _)) => {
                    driver.streams.remove(&stream);
                    Input::Closed(stream)
                }
                None => continue,
            },
            _ => match nth(&driver.sockets, *which) {
                Some((socket, _)) => Input::Unreachable(socket),
                None => continue,
            },
        };
        resolver.handle(now, input);
        driver.carry_out(&mut resolver);
        assert!(resolver.cache_entries() <= cache_entries_max);
        assert!(resolver.cache_bytes() <= cache_bytes_max);
    }
    while let Some(at) = resolver.deadline() {
        now = now.max(at);
        resolver.handle(now, Input::Time);
        driver.carry_out(&mut resolver);
    }
    assert!(driver.waiting.is_empty(), "a lookup without an answer");
    assert!(
        driver.sockets.is_empty() && driver.streams.is_empty(),
        "something is left open"
    );
    assert_eq!(resolver.lookups(), 0);
}

fn nth<K: Copy, V: Clone>(map: &BTreeMap<K, V>, which: u8) -> Option<(K, V)> {
    let (key, value) = map.iter().nth(usize::from(which) % map.len().max(1))?;
    Some((*key, value.clone()))
}

/// The question as the beginning of its answer: flags and counts of records are the first octets, what follows are records.
fn answer(asked: &[u8], octets: Vec<u8>) -> Bytes {
    let mut bytes = asked.to_vec();
    let mut octets = octets.into_iter();
    for at in [3, 7, 9, 11] {
        if let (Some(octet), Some(chosen)) = (bytes.get_mut(at), octets.next()) {
            *octet = chosen;
        }
    }
    if let Some(flags) = bytes.get_mut(2) {
        *flags |= 0x80 | (octets.next().unwrap_or(0) & 2);
    }
    // The OPT record at the end of the question has 11 octets.
    let end = bytes.len().saturating_sub(11);
    bytes.truncate(end);
    bytes.extend(octets);
    bytes.into()
}

impl Driver {
    fn carry_out(&mut self, resolver: &mut Resolver) {
        while let Some(output) = resolver.poll() {
            match output {
                Output::Send {
                    socket,
                    server,
                    bytes,
                } => {
                    let is_new = self.sockets.insert(socket, (server, bytes)).is_none();
                    assert!(is_new, "a socket is used twice");
                }
                Output::Shut(socket) => {
                    assert!(self.sockets.remove(&socket).is_some(), "it is not open");
                }
                Output::Connect { stream, .. } => {
                    let is_new = self.streams.insert(stream, None).is_none();
                    assert!(is_new, "a connection is used twice");
                }
                Output::Write(stream, bytes) => {
                    let before = self.streams.insert(stream, Some(bytes));
                    assert!(before == Some(None), "it is not open, or was written to");
                }
                Output::Close(stream) => {
                    assert!(self.streams.remove(&stream).is_some(), "it is not open");
                }
                Output::Answer { ticket, result } => {
                    assert!(self.waiting.remove(&ticket), "nobody waits");
                    assert_ne!(result, Err(Failure::NoServers));
                }
            }
        }
        assert!(self.sockets.len() <= LIMIT && self.streams.len() <= LIMIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_testkit::Rng;

    #[test]
    fn any_octets() {
        let mut rng = Rng::new(1);
        for _ in 0..2000 {
            let length = rng.below(400);
            let octets: Vec<u8> = (0..length)
                .map(|_| u8::try_from(rng.below(256)).unwrap())
                .collect();
            machine(&octets);
            message(&octets);
            text(&octets);
        }
    }

    #[test]
    fn a_question_is_answered() {
        // It asks for the addresses of "a", and is answered by one record: A, IN, a TTL, an address.
        let records = [0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 1];
        let mut octets = vec![0, 0, 4, 21, 0, 1, 0, 0, 0];
        octets.extend(records);
        machine(&octets);
        let bytes = answer(&[0; 30], octets[4..].to_vec());
        assert_eq!(bytes.len(), 30 - 11 + records.len());
    }
}
