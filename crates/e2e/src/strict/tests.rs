//! What a strict client objects to, and what not.

use std::{collections::BTreeMap, sync::Arc};

use super::{Session, Strict};
use crate::imap::{
    Reply, Response,
    parse::{Piece, response},
};

/// One session, with the answer that it is reading.
struct One {
    session: Session,
    untagged: Vec<Response>,
    /// What was answered to CHANGEDSINCE.
    changed: Option<Reply>,
    listing: bool,
}

impl One {
    fn sends(&mut self, command: &str) {
        self.untagged.clear();
        self.listing = command == "all" || command == "changed";
        let command = match command {
            "all" | "changed" => "FETCH 1:* (UID)",
            other => other,
        };
        self.session.sent("t", command.as_bytes());
    }

    fn hears(&mut self, line: &str) -> Result<(), String> {
        let told = response(&[Piece::Text(line.into())]).expect("a response");
        self.session.heard(&told)?;
        if let Response::Tagged(_, status, code, text) = told {
            let untagged = std::mem::take(&mut self.untagged);
            let reply = Reply {
                status,
                code,
                text,
                untagged,
            };
            if !self.listing {
                let _ = self.session.questions();
            } else if reply.text == "changed" {
                self.changed = Some(reply);
            } else {
                let changed = self.changed.take();
                self.session.listed(changed.as_ref(), &reply)?;
            }
        } else {
            self.untagged.push(told);
        }
        Ok(())
    }
}

/// Lines: `a SELECT INBOX` is sent by session `a`, all others are told to who sent last; `a changed` and `a all` are what it asks behind a SELECT.
fn play(script: &str) -> Result<(), String> {
    let strict = Arc::new(Strict::default());
    let mut sessions: BTreeMap<String, One> = BTreeMap::new();
    let mut last = String::new();
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        match line.split_once(' ') {
            Some((name, command)) if name.len() == 1 && name != "*" && name != "t" => {
                last = name.to_owned();
                let one = sessions.entry(last.clone()).or_insert_with(|| {
                    let mut one = One {
                        session: Session::new(Arc::clone(&strict)),
                        untagged: Vec::new(),
                        changed: None,
                        listing: false,
                    };
                    one.sends("LOGIN anne \"a secret\"");
                    one.hears("t OK x").expect("LOGIN");
                    one
                });
                one.sends(command);
            }
            _ => sessions.get_mut(&last).expect("who").hears(line)?,
        }
    }
    Ok(())
}

#[track_caller]
fn check(script: &str, expected: Result<(), &str>) {
    assert_eq!(play(script), expected.map_err(str::to_owned), "{script}");
}

/// A node of slot 1 that shows this: UIDNEXT, HIGHESTMODSEQ without slot, and number, UID, MODSEQ, flag.
fn look(session: &str, next: u32, modseq: u64, messages: &[(u32, u64, &str)]) -> String {
    look_at(session, 1, next, modseq, messages)
}

fn look_at(who: &str, slot: u64, next: u32, modseq: u64, messages: &[(u32, u64, &str)]) -> String {
    let mut script = open(who, slot, next, modseq, messages.len());
    script.push_str(&format!("{who} all\n"));
    for (at, (uid, under, flag)) in messages.iter().enumerate() {
        let under = under * 64 + slot;
        script.push_str(&format!(
            "* {} FETCH (UID {uid} FLAGS ({flag}) MODSEQ ({under}) EMAILID (M{uid}))\n",
            at + 1
        ));
    }
    script.push_str("t OK x\n");
    script
}

fn open(who: &str, slot: u64, next: u32, modseq: u64, count: usize) -> String {
    let highest = modseq * 64 + slot;
    format!(
        "{who} SELECT inbox\n* {count} EXISTS\n* OK [UIDVALIDITY 7] x\n* OK [UIDNEXT {next}] x\n* OK [HIGHESTMODSEQ {highest}] x\nt OK x\n"
    )
}

#[test]
fn who_looks_twice_is_told_the_same() {
    let two = &[(3, 1, "a"), (5, 2, "b")];
    check(&(look("a", 6, 2, two) + &look("b", 6, 2, two)), Ok(()));
    // At another node: fewer messages, a lower UIDNEXT, another order of MODSEQs.
    check(
        &(look("a", 6, 2, two) + &look_at("b", 2, 4, 1, &[(3, 1, "a")])),
        Ok(()),
    );
    check(
        &(look("a", 6, 2, two) + &look("b", 5, 2, &[])),
        Err("INBOX: UIDNEXT went back from 6 to 5"),
    );
    check(
        &(look("a", 6, 2, two) + &look("b", 6, 1, two)),
        Err("INBOX: HIGHESTMODSEQ went back from 129 to 65"),
    );
    check(
        &(look("a", 6, 2, two) + &look("b", 7, 3, &[(3, 1, "a"), (4, 3, ""), (5, 2, "b")])),
        Err("INBOX: U2: UID 4 is new after UIDNEXT 6 was told"),
    );
    check(
        &(look("a", 6, 2, two) + &look("b", 6, 2, &[(3, 1, "a"), (5, 2, "c")])),
        Err("INBOX: UID 5 had {\"b\"} under MODSEQ 129, and has {\"c\"}"),
    );
    let other = look("b", 6, 2, two).replace("UIDVALIDITY 7", "UIDVALIDITY 8");
    check(
        &(look("a", 6, 2, two) + &other),
        Err("INBOX: UIDVALIDITY 8, was 7"),
    );
    let other = look("b", 6, 2, two).replace("EMAILID (M3)", "EMAILID (M4)");
    let judged = play(&(look("a", 6, 2, two) + &other));
    assert!(judged.is_err_and(|breach| breach.starts_with("INBOX: U1: UID 3 was")));
}

/// What a cut between two nodes hides from neither: it is asked for by CHANGEDSINCE, whoever gave the MODSEQ.
#[test]
fn who_asks_for_changes_misses_none() {
    let before = look("a", 6, 2, &[(3, 1, "a"), (5, 2, "b")]);
    let after = |changed: &str| {
        let now = look_at("b", 2, 7, 9, &[(3, 8, "z"), (5, 2, "b"), (6, 9, "")]);
        let list = format!("b changed\n{changed}t OK changed\nb all");
        before.clone() + &now.replace("b all", &list)
    };
    let three = "* 1 FETCH (UID 3 FLAGS (z) MODSEQ (514))\n";
    let six = "* 3 FETCH (UID 6 FLAGS () MODSEQ (578))\n";
    check(&after(&format!("{three}{six}")), Ok(()));
    check(
        &after(six),
        Err(
            "INBOX: UID 3 has {\"z\"}; who asked for what has changed since 129 believes Some({\"a\"})",
        ),
    );
    check(
        &after(three),
        Err("INBOX: UID 6 has {}; who asked for what has changed since 129 believes None"),
    );
}

#[test]
fn numbers_add_up() {
    let open = look("a", 6, 2, &[(3, 1, "a"), (5, 2, "b")]);
    let check = |told: &str, expected: Result<(), &str>| check(&(open.clone() + told), expected);
    check("a NOOP\n* 1 EXPUNGE\n* 2 EXISTS\nt OK x", Ok(()));
    check("a NOOP\n* 3 EXPUNGE\nt OK x", Err("number 3 of 2"));
    check(
        "a NOOP\n* 1 EXISTS\nt OK x",
        Err("EXISTS went from 2 to 1 without EXPUNGE"),
    );
    check(
        "a FETCH 1 FLAGS\n* 1 EXPUNGE\nt OK x",
        Err("EXPUNGE 1 within a command by sequence numbers"),
    );
    check(
        "a NOOP\n* VANISHED 3\nt OK x",
        Err("VANISHED 3, and QRESYNC is not enabled"),
    );
    check(
        "a ENABLE QRESYNC\nt OK x\na NOOP\n* VANISHED 4\nt OK x",
        Err("VANISHED 4, and UID 4 was not seen"),
    );
    check(
        "a ENABLE QRESYNC\nt OK x\na NOOP\n* VANISHED 3\n* 1 FETCH (UID 5)\nt OK x",
        Ok(()),
    );
    check(
        "a ENABLE QRESYNC\nt OK x\na NOOP\n* 1 EXPUNGE\nt OK x",
        Err("EXPUNGE 1, and QRESYNC is enabled"),
    );
    check(
        "a FETCH 3 UID\n* 3 EXISTS\n* 3 FETCH (UID 6)\nt OK x",
        Ok(()),
    );
    check(
        "a NOOP\n* 3 EXISTS\n* 3 FETCH (UID 4)\nt OK x",
        Err("U2: UID 4 came after UIDNEXT 6 was told"),
    );
    check(
        "a FETCH 1 UID\n* 1 FETCH (UID 4)\nt OK x",
        Err("number 1 was Place { uid: Some(3), floor: 0 } and is UID 4"),
    );
    check(
        "a APPEND INBOX {3}\nt OK [APPENDUID 7 9] x\na STATUS INBOX (UIDNEXT)\n* STATUS INBOX (UIDNEXT 9)\nt OK x",
        Err("INBOX: UIDNEXT 9, and 10 is the least it can be"),
    );
    check(
        "a UID COPY 3 \"Other one\"\nt OK [COPYUID 6 3 9] x\na UID MOVE 3 \"Other one\"\n* OK [COPYUID 7 3 10] x\nt OK x",
        Err("Other one: UIDVALIDITY 7, was 6"),
    );
}

/// The UID of a message that came is known later than that it came, and what two sessions hear at once has no order.
#[test]
fn what_was_sent_earlier_owes_less() {
    let one = [(3, 1, "a")];
    let late = open("b", 1, 4, 1, 1) + "b all\n";
    let (select, rest) = late.split_once('\n').expect("lines");
    // The second was sent before the first was answered.
    let script = format!(
        "{select}\n{}b! {rest}",
        look("a", 6, 2, &[(3, 1, "a"), (5, 2, "b")])
    );
    let rest = "* 1 FETCH (UID 3 FLAGS (a) MODSEQ (65) EMAILID (M3))\nt OK x\n";
    let script = script.replace("b! ", "b NOOP\n") + rest;
    // NOOP waits behind SELECT, which is answered first.
    assert_eq!(play(&script), Ok(()));
    check(
        &(look("a", 6, 2, &[(3, 1, "a"), (5, 2, "b")]) + &look("b", 4, 1, &one)),
        Err("INBOX: UIDNEXT went back from 6 to 4"),
    );
}

#[test]
fn another_mailbox_may_have_the_name_of_one_that_is_gone() {
    let two = &[(3, 1, "a"), (5, 2, "b")];
    let again = look("a", 6, 2, two) + "a DELETE INBOX\n{}\n" + &look("b", 5, 1, &[]);
    check(&again.replace("{}", "t OK x"), Ok(()));
    check(
        &again.replace("{}", "t NO x"),
        Err("INBOX: UIDNEXT went back from 6 to 5"),
    );
}

#[test]
fn a_select_that_is_not_understood_leaves_the_mailbox_selected() {
    let opened = look("a", 6, 2, &[(3, 1, "a"), (5, 2, "b")]);
    let told = "a SELECT what is this\n{}\na NOOP\n* 2 EXPUNGE\nt OK x\n";
    check(&(opened.clone() + &told.replace("{}", "t BAD x")), Ok(()));
    let refused = play(&(opened + &told.replace("{}", "t NO x")));
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn what_vanishes_untold_was_between_its_neighbours() {
    let script = "a ENABLE QRESYNC\nt OK x\n".to_owned()
        + &look("a", 6, 2, &[(3, 1, "a"), (5, 2, "b")])
        + "a NOOP\n* 5 EXISTS\nt OK x\na UID FETCH 7 (FLAGS)\n* 4 FETCH (UID 7 FLAGS ())\nt OK x\n";
    let then = "a NOOP\n* VANISHED 8\nt OK x\na FETCH 3 (UID)\n* 3 FETCH (UID 6)\nt OK x\n";
    check(&(script.clone() + then), Ok(()));
    let twice = then.to_owned() + "a NOOP\n* VANISHED 9\nt OK x\n";
    check(
        &(script + &twice),
        Err("VANISHED 9, and UID 9 was not seen"),
    );
}
