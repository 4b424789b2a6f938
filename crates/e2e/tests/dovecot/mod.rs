//! ENVELOPE, BODY, BODYSTRUCTURE and sections of odd messages, compared with what Dovecot makes of the same octets.
//!
//! Both servers' answers are taken apart and compared value by value. A difference must stand in [`explained`] with the reason why ours is
//! right; one that does not, and a line of the table that explains nothing any more, fails the test.
//!
//! Reading order: [`messages`], [`view`], [`explained`]; [`server`] starts the other server.

mod explained;
mod messages;
mod server;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use explained::EXPLAINED;
use server::Dovecot;
use whimbrel_e2e::{
    imap::{Imap, Status},
    server::Server,
};

/// Appends; the number that the message has now, unless it was refused.
fn append(imap: &mut Imap, count: &mut u32, text: &[u8]) -> Option<u32> {
    let reply = imap.append("INBOX", &[], text).unwrap();
    (reply.status == Status::Ok).then(|| {
        *count += 1;
        *count
    })
}

/// Message and item to both answers, where they differ.
fn differences(ours: &mut Imap, theirs: &mut Imap) -> BTreeMap<(String, String), (String, String)> {
    let messages = messages::all();
    assert!(messages.len() >= 100);
    let names: BTreeSet<&str> = messages.iter().map(|odd| odd.name.as_str()).collect();
    assert_eq!(names.len(), messages.len(), "names are given once");
    for imap in [&mut *ours, &mut *theirs] {
        let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    }
    let (mut our_count, mut their_count) = (0, 0);
    let mut found = BTreeMap::new();
    for odd in messages {
        let we = append(ours, &mut our_count, &odd.text);
        let they = append(theirs, &mut their_count, &odd.text);
        let (we, they) = match (we, they) {
            (Some(we), Some(they)) => (we, they),
            (we, they) => {
                let say = |taken: Option<u32>| taken.map_or("refused", |_| "taken").to_owned();
                let _ = found.insert((odd.name, "APPEND".to_owned()), (say(we), say(they)));
                continue;
            }
        };
        let (we, they) = (view::of(ours, we), view::of(theirs, they));
        let items: BTreeSet<&String> = we.keys().chain(they.keys()).collect();
        for item in items {
            let say =
                |view: &view::View| view.get(item).map_or("nothing", |value| value).to_owned();
            if we.get(item) != they.get(item) {
                let _ = found.insert((odd.name.clone(), item.clone()), (say(&we), say(&they)));
            }
        }
    }
    found
}

#[test]
#[ignore = "long: Dovecot"]
fn odd_messages_are_what_dovecot_says_or_explained() {
    let server = Server::start_plain();
    let mut ours = server.anne();
    let (dovecot, mut theirs) = Dovecot::start();
    let mut found = differences(&mut ours, &mut theirs);
    let mut stale = Vec::new();
    for line in EXPLAINED {
        assert!(!line.why.is_empty(), "a reason for {}", line.message);
        let before = found.len();
        found.retain(|(message, item), (we, they)| {
            let same = match line.item.strip_suffix('*') {
                Some(prefix) => item.starts_with(prefix),
                None => item == line.item && we == line.ours && they == line.theirs,
            };
            message != line.message || !same
        });
        if found.len() == before {
            stale.push(format!("{}: {}", line.message, line.item));
        }
    }
    let unexplained: Vec<String> = found
        .iter()
        .map(|((message, item), (we, they))| {
            format!("{message}\n    {item}\n      ours   {we}\n      theirs {they}")
        })
        .collect();
    assert!(
        unexplained.is_empty() && stale.is_empty(),
        "{} differences without an explanation:\n{}\n{} explanations without a difference:\n{}",
        unexplained.len(),
        unexplained.join("\n"),
        stale.len(),
        stale.join("\n")
    );
    drop(theirs);
    dovecot.ended();
    server.assert_no_panic();
}
