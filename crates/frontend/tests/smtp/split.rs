//! However the client's bytes are cut, the server says and does the same.

use proptest::prelude::*;
use whimbrel_smtp::Role;

use super::world::{ANNE, BOB, Cut, World};

/// All at once, with no answer awaited: commands, faults, three messages.
fn transcript(hello: &str) -> Vec<u8> {
    let long = "0123456789 \u{e4}\r\n".repeat(9000);
    let mut bytes = format!(
        "{hello} client.example\r\nNOOP\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<anne@example.org>\r\nRCPT TO:<nobody@example.org>\r\n\
         RCPT TO:<bob@example.org>\r\nDATA\r\nSubject: one\r\n\r\n..\r\n.x\r\n.\r\n\
         BAD\r\nMAIL FROM:<>\r\nRCPT TO:<anne+Lists@example.org>\r\nBDAT {}\r\n{long}BDAT 0 LAST\r\n\
         MAIL FROM:<>\r\nRCPT TO:<bob@example.org>\r\nDATA\r\nbare\nline\r\n.\r\nRSET\r\n\
         MAIL FROM:<>\r\nRCPT TO:<bob@example.org>\r\nRCPT TO:<a@elsewhere.example>\r\nBDAT 4\r\ntextRSET\r\n\
         MAIL FROM:<>\r\nDATA\r\nMAIL FROM:<>\r\nRSET\r\nMAIL FROM:<c@d.example>\r\nRCPT TO:<bob@example.org>\r\nDATA\r\nlast\r\n.\r\nQUIT\r\nNOOP\r\n",
        long.len()
    )
    .into_bytes();
    bytes.truncate(bytes.len());
    bytes
}

/// What the server says, and what is delivered.
fn run(role: Role, cut: Cut) -> (String, [Vec<String>; 3], usize) {
    let mut world = World::new(cut);
    world.connect(role);
    let hello = if role == Role::Lmtp { "LHLO" } else { "EHLO" };
    world.send(&transcript(hello));
    assert!(world.client().closed);
    let said = world.told();
    let delivered = [(ANNE, "INBOX"), (ANNE, "Lists"), (BOB, "INBOX")].map(|(account, mailbox)| {
        let arrived = world.arrived(account, mailbox);
        arrived
            .iter()
            .map(|one| one.prefix.clone() + one.text())
            .collect()
    });
    let (open, blobs) = world.left_over();
    assert_eq!(open, 0);
    (said, delivered, blobs)
}

#[test]
fn the_whole_at_once() {
    for role in [Role::Smtp, Role::Lmtp] {
        let (said, delivered, blobs) = run(role, Cut::AtOnce);
        assert_eq!(delivered.each_ref().map(Vec::len), [1, 1, 2], "{said}");
        assert_eq!(blobs, 3);
        assert!(said.ends_with("221 2.0.0 Bye\r\n"));
        for sizes in [vec![1], vec![2, 3], vec![4096], vec![65_536], vec![100_000]] {
            assert!(
                run(role, Cut::Sizes(sizes.clone())) == run(role, Cut::AtOnce),
                "{sizes:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn and_in_any_pieces(sizes in proptest::collection::vec(prop_oneof![1usize..40, 1usize..3000], 1..9), lmtp in any::<bool>()) {
        let role = if lmtp { Role::Lmtp } else { Role::Smtp };
        prop_assert_eq!(run(role, Cut::Sizes(sizes)), run(role, Cut::AtOnce));
    }
}
