//! The selected mailbox becomes one with another of its name: the session goes on under the MAILBOXID that it was told until its next SELECT.

use super::world::{Cut, World};

fn say(world: &mut World, name: &str, line: &str) -> String {
    world.send(name, format!("{line}\r\n").as_bytes());
    String::from_utf8(std::mem::take(&mut world.get(name).outbox)).unwrap()
}

fn mailbox_id(answer: &str) -> &str {
    let (_, id) = answer.split_once("MAILBOXID (").expect("a MAILBOXID");
    id.split(')').next().unwrap()
}

#[test]
fn a_session_goes_on_in_a_union() {
    let mut world = World::new(Cut::AtOnce);
    for name in ["A", "B"] {
        world.connect(name, true);
        say(&mut world, name, "l LOGIN anne secret");
    }
    world.fake.fill("Archive", 2, |_| b"A:\r\n\r\n".to_vec());
    let first = say(&mut world, "A", "s SELECT Archive");
    world.fake.unite("Archive");
    world.fake.fill("Archive", 1, |_| b"B:\r\n\r\n".to_vec());
    let told = say(&mut world, "A", "n NOOP");
    assert!(
        told.contains("* 3 EXISTS\r\n") && told.contains("n OK"),
        "{told}"
    );
    let told = say(&mut world, "A", "f FETCH 3 (BODY.PEEK[])");
    assert!(told.contains("B:") && told.contains("f OK"), "{told}");
    let status = say(&mut world, "A", "t STATUS Archive (MAILBOXID)");
    assert_ne!(mailbox_id(&first), mailbox_id(&status));
    let again = say(&mut world, "A", "s SELECT Archive");
    assert_eq!(mailbox_id(&again), mailbox_id(&status));

    // What was made since under the name is another mailbox.
    say(&mut world, "B", "d DELETE Archive");
    say(&mut world, "B", "c CREATE Archive");
    let told = say(&mut world, "A", "n NOOP");
    assert!(told.contains("* BYE"), "{told}");
}
