//! APPENDUID of several messages (RFC 4315, 3) whose UIDs do not ascend: one was replaced by another before the answer went out.

use super::world::{Cut, World};

#[test]
fn uids_are_told_in_the_order_of_the_messages() {
    for (uids, told) in [
        (vec![300, 128], "300,128"),
        (vec![64, 65, 3, 66, 67], "64:65,3,66:67"),
        (vec![129, 128], "129,128"),
    ] {
        let mut world = World::new(Cut::AtOnce);
        world.connect("A", true);
        world.send("A", b"l LOGIN anne secret\r\n");
        world.get("A").outbox.clear();
        let messages = " {2+}\r\nA:".repeat(uids.len());
        world.fake.appended_as = Some(uids);
        world.send("A", format!("a APPEND INBOX{messages}\r\n").as_bytes());
        let answer = String::from_utf8_lossy(&world.get("A").outbox).into_owned();
        let expected = format!("a OK [APPENDUID 7 {told}] ");
        assert!(answer.starts_with(&expected), "{answer}");
    }
}
