//! An older disk was put back with a lead that is too short: a client that asks from the UIDNEXT it was told gets all that is new (docs/design.md#rule-6).

use super::world::{Cut, World};

/// One line, and what comes back.
fn say(world: &mut World, name: &str, line: &str) -> String {
    world.send(name, format!("{line}\r\n").as_bytes());
    world.run();
    String::from_utf8(std::mem::take(&mut world.get(name).outbox)).unwrap()
}

fn connect(world: &mut World, name: &str) {
    world.connect(name, true);
    world.run();
    let greeting = say(world, name, "l LOGIN anne secret");
    assert!(greeting.contains("l OK"), "{greeting}");
}

fn append(world: &mut World, name: &str, text: &str) -> u32 {
    let line = format!("a APPEND INBOX {{{}+}}\r\n{text}", text.len());
    let answer = say(world, name, &line);
    let (_, uid) = answer.split_once("APPENDUID ").unwrap();
    let uid = uid.split([' ', ']']).nth(1).unwrap();
    uid.parse().unwrap()
}

/// The UIDs of FETCH responses.
fn fetched(answer: &str) -> Vec<u32> {
    let lines = answer.lines().filter(|line| line.contains(" FETCH ("));
    lines
        .map(|line| {
            let (_, rest) = line.split_once("UID ").unwrap();
            rest.split([' ', ')']).next().unwrap().parse().unwrap()
        })
        .collect()
}

/// A world in which one message is kept, many are lost, and one has come since; what was told last in the lost time; and the UID that the new
/// one has at first.
fn world() -> (World, u32, u32) {
    let mut world = World::real(Cut::AtOnce);
    connect(&mut world, "A");
    append(&mut world, "A", "Subject: kept\r\n\r\n");
    assert!(say(&mut world, "A", "s SELECT INBOX").contains("s OK"));
    let copy = world.fake.real.as_ref().unwrap().copy();
    let lost = (0..20).map(|_| append(&mut world, "A", "Subject: lost\r\n\r\n"));
    let told = lost.last().unwrap() + 1;
    world.fake.real.as_mut().unwrap().put_back(copy);
    connect(&mut world, "B");
    let new = append(&mut world, "B", "Subject: new\r\n\r\n");
    assert!(new < told, "the lead is too short");
    assert!(say(&mut world, "B", "s SELECT INBOX").contains("* 2 EXISTS"));
    (world, told, new)
}

#[test]
fn what_a_client_names_beyond_uidnext_is_believed() {
    for (command, expected) in [
        ("UID FETCH %:* (UID FLAGS)", true),
        ("UID SEARCH UNSEEN UID %:*", true),
        ("UID COPY %:* Trash", true),
        // Numbers beside it would mean other messages after an EXPUNGE.
        ("UID SEARCH 1:2 UID %:*", false),
        ("SEARCH UID %:*", false),
        // Too far to be true.
        ("UID FETCH 4294967290:* (UID FLAGS)", false),
    ] {
        let (mut world, told, new) = world();
        let line = format!("f {}", command.replace('%', &told.to_string()));
        let answer = say(&mut world, "B", &line);
        assert!(answer.contains("f OK"), "{answer}");
        assert_eq!(
            answer.contains("* 2 EXPUNGE") && answer.contains("* 2 EXISTS"),
            expected,
            "{line}: {answer}"
        );
        let all = fetched(&say(&mut world, "B", "f UID FETCH 1:* (UID FLAGS)"));
        assert_eq!(all.len(), 2);
        assert_eq!(
            all[1] >= told,
            expected,
            "{line}: {all:?}, was {new}, told {told}"
        );
        if expected && line.contains("FETCH") {
            assert_eq!(fetched(&answer), all[1..], "{answer}");
        }
        if expected && line.contains("SEARCH") {
            assert!(answer.contains(&all[1].to_string()), "{answer}");
        }
    }
}

#[test]
fn a_star_is_the_last_message_that_the_client_was_told_of() {
    for command in [
        "UID STORE %:* +FLAGS (\\Flagged)",
        "UID STORE % +FLAGS (\\Flagged)",
        "UID STORE *,% +FLAGS (\\Flagged)",
        "UID FETCH %,* (BODY[])",
        "UID COPY %:* Trash",
        "UID SEARCH RETURN (SAVE) UID % NOT UID *",
        "UID SEARCH RETURN (SAVE) UID %:*",
    ] {
        let mut world = World::real(Cut::AtOnce);
        connect(&mut world, "A");
        connect(&mut world, "B");
        assert!(say(&mut world, "B", "s SELECT INBOX").contains("s OK"));
        // To the session nothing was told but that there is one more.
        let first = append(&mut world, "A", "Subject: first\r\n\r\n");
        assert!(say(&mut world, "B", "n NOOP").contains("* 1 EXISTS"));
        append(&mut world, "A", "Subject: second\r\n\r\n");
        let line = format!("f {}", command.replace('%', &first.to_string()));
        let answer = say(&mut world, "B", &line);
        assert!(answer.contains("f OK"), "{answer}");
        let touched = |answer: &str| {
            let flags = answer.lines().filter(|line| {
                line.contains("\\Flagged") || line.contains("\\Seen") && !line.contains("BODY[]")
            });
            flags.count()
        };
        let all = say(&mut world, "B", "g UID FETCH 1:* (FLAGS)");
        let status = say(&mut world, "B", "h STATUS Trash (MESSAGES)");
        let saved = say(&mut world, "B", "i UID SEARCH UID $");
        println!("{line}\n{answer}{all}{status}{saved}");
        let saved = saved.lines().next().unwrap().split(' ').skip(2).count();
        let expected = usize::from(!line.contains("NOT"));
        let found = touched(&all) + saved + usize::from(!status.contains("MESSAGES 0"));
        assert_eq!(found, expected, "{line}\n{answer}{all}{status}");
        assert!(!status.contains("MESSAGES 2"), "{status}");
    }
}

#[test]
fn what_a_session_may_have_been_told_here_is_no_sign() {
    for (before, command, sign) in [
        ("NOOP", "UID FETCH % (INTERNALDATE)", true),
        ("NOOP", "UID FETCH 1:% (INTERNALDATE)", false),
        ("UID SEARCH ALL", "UID FETCH % (INTERNALDATE)", false),
        // These tell no UID.
        ("SEARCH ALL", "UID FETCH % (INTERNALDATE)", true),
        (
            "NOOP\r\nc FETCH 1 (FLAGS)",
            "UID FETCH % (INTERNALDATE)",
            true,
        ),
        // CHANGEDSINCE with a MODSEQ that is not of here: it was elsewhere, whatever it names.
        (
            "UID SEARCH ALL",
            "UID FETCH % (INTERNALDATE) (CHANGEDSINCE 65)",
            true,
        ),
        (
            "NOOP\r\nc FETCH 1 (UID)",
            "UID FETCH % (INTERNALDATE)",
            false,
        ),
        (
            "APPEND INBOX {2+}\r\nA:",
            "UID FETCH % (INTERNALDATE)",
            false,
        ),
    ] {
        let mut world = World::real(Cut::AtOnce);
        connect(&mut world, "A");
        connect(&mut world, "B");
        assert!(say(&mut world, "B", "s SELECT INBOX").contains("s OK"));
        let first = append(&mut world, "A", "Subject: first\r\n\r\n");
        assert!(say(&mut world, "B", &format!("b {before}")).contains("b OK"));
        append(&mut world, "A", "Subject: second\r\n\r\n");
        let line = format!("f {}", command.replace('%', &first.to_string()));
        let answer = say(&mut world, "B", &line);
        let fetch = answer.find(" FETCH (").expect("it is there");
        let exists = answer.find(" EXISTS").expect("it is told");
        // Where something may follow from what is named, all is told first.
        assert_eq!(exists < fetch, sign, "{before}, {line}: {answer}");
    }
}

#[test]
fn what_qresync_names_is_believed_under_the_same_uidvalidity() {
    for (validity, expected) in [(7, true), (8, false)] {
        let (mut world, told, _) = world();
        connect(&mut world, "C");
        assert!(say(&mut world, "C", "e ENABLE QRESYNC").contains("e OK"));
        let line = format!(
            "s SELECT INBOX (QRESYNC ({validity} 90060115194045001 1:{}))",
            told - 1
        );
        let answer = say(&mut world, "C", &line);
        assert!(answer.contains("s OK"), "{answer}");
        let all = fetched(&say(&mut world, "C", "f UID FETCH 1:* (UID FLAGS)"));
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!(all[1] >= told, expected, "{line}: {answer}");
        let next = answer.split("UIDNEXT ").nth(1).unwrap();
        let next: u32 = next.split(']').next().unwrap().parse().unwrap();
        assert_eq!(next >= told, expected, "{answer}");
    }
}
