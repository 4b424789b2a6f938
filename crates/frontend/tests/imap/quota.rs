//! OVERQUOTA (RFC 9208, 4.3).

use whimbrel_service::api::Quota;

use super::world::{Cut, World};

#[test]
fn what_goes_beyond_is_refused_with_overquota() {
    let mut world = World::new(Cut::AtOnce);
    world.fake.quota = Quota {
        bytes_max: Some(1 << 20),
        messages_max: Some(2),
        mailboxes_max: None,
    };
    world.connect("1", true);
    let mut ask = |line: &str| {
        world.send("1", line.as_bytes());
        String::from_utf8(std::mem::take(&mut world.get("1").outbox)).unwrap()
    };
    assert!(ask("a LOGIN anne secret\r\n").contains("a OK"));
    assert!(ask("b APPEND INBOX {1+}\r\nb {1+}\r\nc\r\n").contains("b OK"));
    let refused = ask("c APPEND INBOX {1+}\r\nd\r\n");
    assert!(refused.contains("c NO [OVERQUOTA] "), "{refused}");
    let told = ask("d GETQUOTA \"\"\r\n");
    assert!(
        told.contains("* QUOTA \"\" (STORAGE 1 1024 MESSAGE 2 2)\r\n"),
        "{told}"
    );
}
