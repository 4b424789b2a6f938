//! Several clients that believe what they are told: whatever they and the others do, and wherever a call is held up, their idea of the
//! mailbox is the mailbox.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::world::{Cut, World};

const NAMES: [&str; 3] = ["A", "B", "C"];
const FLAGS: [&str; 3] = ["\\Seen", "\\Flagged", "\\Deleted"];

/// A message as a client knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    uid: Option<u32>,
    flags: Option<BTreeSet<String>>,
}

/// A client.
#[derive(Default)]
struct Client {
    messages: Vec<Known>,
    /// A command whose answer has not yet come: its text, and what it does silently.
    waits: Option<Sent>,
}

struct Sent {
    /// FETCH, STORE and SEARCH by number: no EXPUNGE may be told.
    by_number: bool,
    /// `.SILENT`: the numbers, whether the flag is set, the flag.
    silent: Option<(usize, usize, bool, String)>,
    /// Numbers whose flags were told meanwhile.
    told: BTreeSet<usize>,
}

impl Client {
    /// Takes what the server said.
    fn hear(&mut self, said: &str) {
        for line in said.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["*", number, "EXPUNGE"] => {
                    let by_number = self.waits.as_ref().is_some_and(|sent| sent.by_number);
                    assert!(!by_number, "EXPUNGE during a command by number");
                    assert!(
                        self.waits.is_some(),
                        "EXPUNGE while no command is in progress"
                    );
                    let number: usize = number.parse().unwrap();
                    assert!((1..=self.messages.len()).contains(&number), "{line}");
                    self.messages.remove(number - 1);
                }
                ["*", number, "EXISTS"] => {
                    let count: usize = number.parse().unwrap();
                    assert!(count >= self.messages.len(), "{line}");
                    self.messages.resize(count, Known::default());
                }
                ["*", number, "FETCH", ..] => self.fetched(number.parse().unwrap(), line),
                ["x", result, ..] => {
                    let sent = self.waits.take().expect("an answer to a command");
                    assert_ne!(*result, "BAD", "{line}");
                    let Some((first, last, set, flag)) = sent.silent else {
                        continue;
                    };
                    for number in (first..=last).filter(|number| !sent.told.contains(number)) {
                        if let Some(flags) = &mut self.messages[number - 1].flags {
                            if set {
                                flags.insert(flag.clone());
                            } else {
                                flags.remove(&flag);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn fetched(&mut self, number: usize, line: &str) {
        let known = &mut self.messages[number - 1];
        if let Some((_, rest)) = line.split_once("UID ") {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            let uid = digits.parse().unwrap();
            assert!(
                known.uid.is_none_or(|known| known == uid),
                "{line}, but it is {known:?}"
            );
            known.uid = Some(uid);
        }
        if let Some((_, rest)) = line.split_once("FLAGS (") {
            let list = rest.split(')').next().unwrap();
            known.flags = Some(
                list.split(' ')
                    .filter(|f| !f.is_empty())
                    .map(str::to_owned)
                    .collect(),
            );
            if let Some(sent) = &mut self.waits {
                sent.told.insert(number);
            }
        }
    }
}

fn listen(world: &mut World, clients: &mut [Client]) {
    for (name, client) in NAMES.iter().zip(clients) {
        let said = std::mem::take(&mut world.get(name).outbox);
        client.hear(&String::from_utf8(said).unwrap());
    }
}

fn send(
    world: &mut World,
    clients: &mut [Client],
    who: usize,
    text: &str,
    by_number: bool,
    silent: Option<(usize, usize, bool, String)>,
) {
    clients[who].waits = Some(Sent {
        by_number,
        silent,
        told: BTreeSet::new(),
    });
    world.send(NAMES[who], format!("x {text}\r\n").as_bytes());
    listen(world, clients);
}

fn history(mut world: World, steps: &[(usize, u8, usize, usize)]) {
    let mut clients: Vec<Client> = NAMES.iter().map(|_| Client::default()).collect();
    world
        .fake
        .fill("INBOX", 5, |n| format!("Subject: {n}\r\n\r\n").into_bytes());
    NAMES.iter().for_each(|name| world.connect(name, true));
    for who in 0..NAMES.len() {
        send(
            &mut world,
            &mut clients,
            who,
            "LOGIN anne secret",
            false,
            None,
        );
        send(&mut world, &mut clients, who, "SELECT INBOX", false, None);
        send(
            &mut world,
            &mut clients,
            who,
            "UID FETCH 1:* (UID FLAGS)",
            false,
            None,
        );
    }
    for &(who, step, a, b) in steps {
        if clients[who].waits.is_some() {
            if world.get(NAMES[who]).holds() {
                world.go_on(NAMES[who], false);
                listen(&mut world, &mut clients);
            }
            continue;
        }
        let count = clients[who].messages.len();
        let flag = FLAGS[b % FLAGS.len()];
        let (first, last) = match count {
            0 => (0, 0),
            _ => ((a % count) + 1, ((a % count) + 1 + b % 3).min(count)),
        };
        let set = b % 2 == 0;
        let sign = if set { '+' } else { '-' };
        match step {
            0 => send(&mut world, &mut clients, who, "NOOP", false, None),
            1 => send(
                &mut world,
                &mut clients,
                who,
                "APPEND INBOX {2+}\r\nab",
                false,
                None,
            ),
            2 => send(&mut world, &mut clients, who, "EXPUNGE", false, None),
            3 => send(
                &mut world,
                &mut clients,
                who,
                "UID FETCH 1:* (UID FLAGS)",
                false,
                None,
            ),
            4 => {
                let call = ["Rows", "Store", "Changes", "Expunge", "Copy"][b % 5];
                world.get(NAMES[who]).stop_at = Some(call.to_owned());
            }
            _ if count == 0 => {}
            5 => send(
                &mut world,
                &mut clients,
                who,
                &format!("FETCH {first}:{last} (UID)"),
                true,
                None,
            ),
            6 => send(
                &mut world,
                &mut clients,
                who,
                &format!("STORE {first}:{last} {sign}FLAGS ({flag})"),
                true,
                None,
            ),
            7 | 8 => {
                let text = format!("STORE {first}:{last} {sign}FLAGS.SILENT ({flag})");
                send(
                    &mut world,
                    &mut clients,
                    who,
                    &text,
                    true,
                    Some((first, last, set, flag.to_owned())),
                );
            }
            9 => send(
                &mut world,
                &mut clients,
                who,
                &format!("SEARCH {first}:{last} UNSEEN"),
                true,
                None,
            ),
            10 => send(
                &mut world,
                &mut clients,
                who,
                &format!("MOVE {first} Trash"),
                false,
                None,
            ),
            _ => send(
                &mut world,
                &mut clients,
                who,
                &format!("COPY {first}:{last} INBOX"),
                false,
                None,
            ),
        }
    }
    for (who, name) in NAMES.iter().enumerate() {
        world.get(name).stop_at = None;
        if world.get(name).holds() {
            world.go_on(name, false);
            listen(&mut world, &mut clients);
        }
        assert!(clients[who].waits.is_none(), "{name} waits for ever");
    }
    let mut all = Vec::new();
    for who in 0..NAMES.len() {
        send(&mut world, &mut clients, who, "NOOP", false, None);
        let believed = clients[who].messages.clone();
        send(
            &mut world,
            &mut clients,
            who,
            "UID FETCH 1:* (UID FLAGS)",
            false,
            None,
        );
        let real = clients[who].messages.clone();
        assert_eq!(believed.len(), real.len());
        for (believed, real) in believed.iter().zip(&real) {
            assert!(believed.uid.is_none() || believed.uid == real.uid);
            assert!(
                believed.flags.is_none() || believed.flags == real.flags,
                "{believed:?}, but it is {real:?}"
            );
        }
        all.push(real);
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn clients_know_the_mailbox(steps in proptest::collection::vec((0usize..3, 0u8..12, 0usize..20, 0usize..20), 1..60)) {
        history(World::new(Cut::AtOnce), &steps);
    }

    #[test]
    fn clients_know_the_mailbox_of_the_real_owner(steps in proptest::collection::vec((0usize..3, 0u8..12, 0usize..20, 0usize..20), 1..60)) {
        history(World::real(Cut::AtOnce), &steps);
    }
}
