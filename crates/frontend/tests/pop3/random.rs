//! Random sessions against a model: several at once on one maildrop, arrivals and removals beside them, ends of all kinds.
//!
//! The model knows what each session was shown and what it marked; it shares no code with the session.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::world::{Cut, World};

#[derive(Clone, Debug)]
enum Do {
    Login(u8),
    List(u8),
    Uidl(u8),
    Stat(u8),
    Retr(u8, u32),
    Top(u8, u32),
    Dele(u8, u32),
    Rset(u8),
    Quit(u8),
    Cut(u8),
    Arrive,
    /// Another session expunges the n-th message there is.
    Expunge(usize),
    Crash,
}

fn action() -> impl Strategy<Value = Do> {
    let who = || 0u8..3;
    prop_oneof![
        6 => who().prop_map(Do::Login),
        3 => who().prop_map(Do::List),
        3 => who().prop_map(Do::Uidl),
        3 => who().prop_map(Do::Stat),
        6 => (who(), 0u32..9).prop_map(|(who, n)| Do::Retr(who, n)),
        2 => (who(), 0u32..9).prop_map(|(who, n)| Do::Top(who, n)),
        8 => (who(), 0u32..9).prop_map(|(who, n)| Do::Dele(who, n)),
        2 => who().prop_map(Do::Rset),
        4 => who().prop_map(Do::Quit),
        1 => who().prop_map(Do::Cut),
        8 => Just(Do::Arrive),
        2 => (0usize..9).prop_map(Do::Expunge),
        1 => Just(Do::Crash),
    ]
}

/// What a session knows: the messages it was shown, by number, and its marks.
#[derive(Default)]
struct Shown {
    messages: Vec<u32>,
    marked: BTreeSet<usize>,
}

/// What is sent of a message.
fn body(message: u32) -> String {
    format!(
        "X: {message}\r\n\r\n.{}\r\n",
        "y".repeat(message as usize % 50)
    )
}

#[derive(Default)]
struct Model {
    /// Messages that are there, oldest first.
    there: Vec<u32>,
    next: u32,
    sessions: BTreeMap<u8, Shown>,
}

impl Model {
    /// What is to be answered to a command about one message; the last word is what follows.
    fn one(&self, who: u8, number: u32, answer: impl Fn(u32) -> String) -> String {
        let shown = &self.sessions[&who];
        let place = (number as usize).wrapping_sub(1);
        match shown.messages.get(place) {
            None => "-ERR No such message\r\n".into(),
            Some(_) if shown.marked.contains(&place) => {
                "-ERR Message is marked as deleted\r\n".into()
            }
            Some(message) if self.there.contains(message) => answer(*message),
            Some(_) => "-ERR [SYS/TEMP] Message was removed by another session\r\n".into(),
        }
    }

    /// Number and message of what a list shows.
    fn listed(&self, who: u8) -> impl Iterator<Item = (usize, u32)> + '_ {
        let shown = &self.sessions[&who];
        let there = |(at, message): &(usize, u32)| {
            !shown.marked.contains(at) && self.there.contains(message)
        };
        let all = shown.messages.iter().copied().enumerate();
        all.filter(move |found| there(found))
            .map(|(at, message)| (at + 1, message))
    }
}

fn list(lines: impl Iterator<Item = String>) -> String {
    let lines: String = lines.map(|line| line + "\r\n").collect();
    format!("+OK The list follows\r\n{lines}.\r\n")
}

fn run(actions: &[Do], cut: Cut) {
    let mut world = World::new(cut);
    let mut model = Model::default();
    let mut ids: BTreeMap<u32, String> = BTreeMap::new();
    for action in actions {
        let speaks = match action {
            Do::List(who) | Do::Uidl(who) | Do::Stat(who) | Do::Rset(who) => Some(who),
            Do::Retr(who, _) | Do::Top(who, _) | Do::Dele(who, _) => Some(who),
            Do::Quit(who) | Do::Cut(who) => Some(who),
            _ => None,
        };
        if let Some(who) = speaks {
            if !model.sessions.contains_key(who) {
                continue;
            }
            world.current = who.to_string();
        }
        match action {
            Do::Arrive => {
                let sent = body(model.next);
                // One in three has no line end of its own.
                let stored = match model.next % 3 {
                    0 => sent.strip_suffix("\r\n").unwrap_or(&sent),
                    _ => &sent,
                };
                world.put("INBOX", b"", stored.as_bytes());
                let id = world.ids("INBOX").last().unwrap().to_string();
                assert!(ids.values().all(|other| *other != id), "an id twice");
                ids.insert(model.next, id);
                model.there.push(model.next);
                model.next += 1;
            }
            Do::Expunge(at) => {
                if *at < model.there.len() {
                    let uid = world.rows("INBOX")[*at].uid;
                    world.remove("INBOX", vec![uid]);
                    model.there.remove(*at);
                }
            }
            Do::Crash => {
                world.crash(u64::from(model.next));
                model.sessions.clear();
            }
            Do::Login(who) => {
                world.login(&who.to_string());
                let messages = model.there.clone();
                let marked = BTreeSet::new();
                model.sessions.insert(*who, Shown { messages, marked });
            }
            Do::List(who) => {
                let line = |(n, message): (usize, u32)| format!("{n} {}", body(message).len());
                assert_eq!(world.ask("LIST"), list(model.listed(*who).map(line)));
            }
            Do::Uidl(who) => {
                let line = |(n, message): (usize, u32)| format!("{n} {}", ids[&message]);
                assert_eq!(world.ask("UIDL"), list(model.listed(*who).map(line)));
            }
            Do::Stat(who) => {
                let shown = &model.sessions[who];
                let count = shown.messages.len() - shown.marked.len();
                let told = world.ask("STAT");
                assert!(told.starts_with(&format!("+OK {count} ")), "{told}");
                if shown.messages.iter().all(|m| model.there.contains(m)) {
                    let octets: usize = model.listed(*who).map(|(_, m)| body(m).len()).sum();
                    assert_eq!(told, format!("+OK {count} {octets}\r\n"));
                }
            }
            Do::Retr(who, n) => {
                let answer = |m| {
                    let body = body(m);
                    let sent = body.replace("\r\n.", "\r\n..");
                    format!("+OK {} octets\r\n{sent}.\r\n", body.len())
                };
                let expected = model.one(*who, *n, answer);
                assert_eq!(world.ask(&format!("RETR {n}")), expected);
            }
            Do::Top(who, n) => {
                let answer = |m| format!("+OK {} octets\r\nX: {m}\r\n\r\n.\r\n", body(m).len());
                let expected = model.one(*who, *n, answer);
                assert_eq!(world.ask(&format!("TOP {n} 0")), expected);
            }
            Do::Dele(who, n) => {
                let told = world.ask(&format!("DELE {n}"));
                let shown = model.sessions.get_mut(who).unwrap();
                let place = (*n as usize).wrapping_sub(1);
                let fits = place < shown.messages.len() && shown.marked.insert(place);
                assert_eq!(told.starts_with("+OK"), fits, "{told}");
            }
            Do::Rset(who) => {
                assert!(world.ask("RSET").starts_with("+OK"));
                model.sessions.get_mut(who).unwrap().marked.clear();
            }
            Do::Quit(who) => {
                assert!(world.ask("QUIT").starts_with("+OK"));
                assert!(world.client().closed);
                let shown = model.sessions.remove(who).unwrap();
                for place in shown.marked {
                    model.there.retain(|there| *there != shown.messages[place]);
                }
            }
            Do::Cut(who) => {
                world.eof();
                assert!(world.client().closed);
                model.sessions.remove(who);
            }
        }
        // Nothing but what QUIT and the others remove goes.
        let found: Vec<String> = world.ids("INBOX").iter().map(ToString::to_string).collect();
        let expected: Vec<String> = model.there.iter().map(|m| ids[m].clone()).collect();
        assert_eq!(found, expected, "after {action:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn sessions_do_as_the_model(
        actions in proptest::collection::vec(action(), 1..80),
        sizes in proptest::collection::vec(1usize..20, 1..4),
    ) {
        run(&actions, Cut::Sizes(sizes));
    }
}
