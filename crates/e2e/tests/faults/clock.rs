//! Somebody sets the clock: hours forward, then back behind where it was. Clients notice nothing but dates.

use std::collections::BTreeSet;

use whimbrel_e2e::{
    imap::Imap,
    message,
    server::{Builder, Server},
};

use super::{names, preloaded, tell, writing_works};

const SIZE: usize = 3000;
const HOUR: i64 = 3600;

/// A server whose clock can be set.
fn server() -> Server {
    let builder = Builder::default();
    preloaded(builder, "clockshift", "CLOCK_SHIFT")
}

/// UIDs, MODSEQs and the times of arrival of all messages, as the mailbox has them.
struct Seen {
    uids: Vec<u32>,
    mod_seqs: Vec<u64>,
    dates: Vec<String>,
    highest: u64,
    validity: u32,
}

fn look(imap: &mut Imap) -> Seen {
    let selected = imap.command("SELECT INBOX (CONDSTORE)").unwrap();
    let selected = selected.ok("SELECT");
    let fetched = imap.command("FETCH 1:* (UID MODSEQ INTERNALDATE)").unwrap();
    let fetched = fetched.ok("FETCH");
    let items: Vec<_> = fetched.fetched().map(|(_, items)| items).collect();
    let mod_seq = |node: &whimbrel_e2e::imap::Node| match node {
        whimbrel_e2e::imap::Node::List(list) => list[0].text().parse().unwrap(),
        other => panic!("{other:?}"),
    };
    Seen {
        uids: items.iter().map(|items| items.uid().unwrap()).collect(),
        mod_seqs: items
            .iter()
            .map(|items| mod_seq(items.get("MODSEQ").unwrap()))
            .collect(),
        dates: items
            .iter()
            .map(|items| items.get("INTERNALDATE").unwrap().text())
            .collect(),
        highest: selected.code("HIGHESTMODSEQ").unwrap().parse().unwrap(),
        validity: selected.code_number("UIDVALIDITY").unwrap(),
    }
}

/// Gives a mailbox another name, changes its subscription there and back, and a flag; each change must be seen. The new name.
fn latest(imap: &mut Imap, name: &str, turn: usize) -> String {
    let new = format!("box-{turn}");
    let mut done = |command: &str| imap.command(command).unwrap().ok(command);
    let _ = done(&format!("RENAME {name} {new}"));
    let names = |reply: whimbrel_e2e::imap::Reply, data: &str| -> Vec<String> {
        let all = reply.data(data);
        all.iter().map(|nodes| nodes[2].text()).collect()
    };
    assert_eq!(names(done("LIST \"\" box*"), "LIST"), [new.as_str()]);
    for (command, subscribed) in [("SUBSCRIBE", 1), ("UNSUBSCRIBE", 0), ("SUBSCRIBE", 1)] {
        let _ = done(&format!("{command} {new}"));
        let listed = names(done(&format!("LSUB \"\" {new}")), "LSUB");
        assert_eq!(listed.len(), subscribed, "{command}, turn {turn}");
    }
    for (change, flagged) in [("-", false), ("+", true), ("-", false)] {
        let _ = done(&format!("STORE 1 {change}FLAGS.SILENT (\\Flagged)"));
        let reply = done("FETCH 1 (FLAGS)");
        let (_, items) = reply.fetched().next().unwrap();
        let flags = items.flags().unwrap();
        assert_eq!(
            flags.contains(&"\\Flagged".to_owned()),
            flagged,
            "turn {turn}"
        );
    }
    new
}

#[test]
#[ignore = "long: faults of the machine"]
fn a_clock_that_is_set_forward_and_back() {
    let mut server = server();
    // One that stays, and must not be thrown out by a jump.
    let mut old = server.anne();
    let mut imap = server.anne();
    let mut all = writing_works(&server, &mut imap, "before", SIZE);
    let mut seen = look(&mut imap);
    let validity = seen.validity;
    let _ = imap.command("CREATE box-start").unwrap().ok("CREATE");
    let mut name = "box-start".to_owned();
    for (turn, hours) in [7, 0, -26, 3].into_iter().enumerate() {
        tell(&server, hours * HOUR);
        let highest = seen.highest;
        all.append(&mut writing_works(
            &server,
            &mut imap,
            &format!("turn-{turn}"),
            SIZE,
        ));
        assert_eq!(names(&server, &mut old, SIZE), all);
        // An old message changed after the jump: who asks for what is new since before is told.
        let flag = format!("STORE 2 +FLAGS (turn-{turn})");
        let _ = old.command("SELECT INBOX").unwrap().ok("SELECT");
        let _ = old.command(&flag).unwrap().ok("STORE");
        let fetch = format!("FETCH 1:* (FLAGS) (CHANGEDSINCE {highest})");
        let changed = imap.command(&fetch).unwrap().ok("FETCH");
        let changed: BTreeSet<u32> = changed.fetched().map(|(number, _)| number).collect();
        let new = all.len() as u32 - 2..=all.len() as u32;
        assert!(changed.contains(&2), "turn {turn}: {changed:?}");
        assert!(new.clone().all(|number| changed.contains(&number)));
        // What is decided by who was last: the present is last, whatever the clock says.
        name = latest(&mut old, &name, turn);
        seen = look(&mut imap);
        assert!(seen.uids.is_sorted_by(|a, b| a < b), "{:?}", seen.uids);
        assert!(seen.highest > highest, "HIGHESTMODSEQ went back");
        assert_eq!(seen.mod_seqs.iter().max(), Some(&seen.highest));
        assert_eq!(seen.validity, validity);
        if turn == 2 {
            // A start on a disk that knows of a later time than the clock.
            server.kill();
            server.start(&[]);
            old = server.anne();
            imap = server.anne();
            assert_eq!(names(&server, &mut imap, SIZE), all);
            assert_eq!(look(&mut imap).highest, seen.highest);
            let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
        }
    }
    // The jumps were seen: what was appended before them and after has dates of different days.
    let days: BTreeSet<&str> = seen.dates.iter().map(|date| &date[..11]).collect();
    assert!(days.len() > 1, "{:?}", seen.dates);
    // A guess too many is not forgotten, nor held against anyone for hours, by a jump.
    assert!(server.login(("anne@example.org", "wrong")).is_err());
    tell(&server, -48 * HOUR);
    let _ = server.anne();
    let mut late = server.anne();
    let _ = late
        .append("INBOX", &[], &message::bytes("last", SIZE))
        .unwrap()
        .ok("APPEND");
    all.push("last".to_owned());
    assert_eq!(names(&server, &mut late, SIZE), all);
    server.stop();
}
