//! A whole IMAP session on the stand-in store of the frontend's tests, or on the real owner of a partition: any bytes, in any pieces.
//!
//! First byte: bit 0 real owner, bit 1 logged in, bit 2 a mailbox is selected, the rest the length of the pieces. A NUL, which no command
//! holds, lets another session change the mailbox.

#[path = "../../crates/frontend/tests/imap/fake.rs"]
#[allow(dead_code)]
mod fake;
#[path = "../../crates/frontend/tests/imap/layer.rs"]
#[allow(dead_code)]
mod layer;
#[path = "../../crates/frontend/tests/imap/real.rs"]
#[allow(dead_code)]
mod real;
#[path = "../../crates/frontend/tests/imap/world.rs"]
#[allow(dead_code)]
mod world;

use whimbrel_frontend::session::Session;
use world::{Cut, World};

/// What a session may hold, whatever it is sent here.
const HELD_BYTES_MAX: usize = 4 << 20;

/// Any input.
pub fn run(data: &[u8]) {
    let Some((&choice, input)) = data.split_first() else {
        return;
    };
    let whole = session(choice, input, Cut::AtOnce);
    let pieces = session(
        choice,
        input,
        Cut::Sizes(vec![usize::from(choice >> 3) + 1]),
    );
    assert_eq!(
        String::from_utf8_lossy(&whole),
        String::from_utf8_lossy(&pieces),
        "cut otherwise"
    );
}

/// What the server says.
fn session(choice: u8, input: &[u8], cut: Cut) -> Vec<u8> {
    let mut world = if choice & 1 == 0 {
        World::new(cut)
    } else {
        World::real(cut)
    };
    world.fake.fill("INBOX", 3, |n| {
        format!(
            "Subject: {n}\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\ntext {n}\r\n--b\r\n\
             Content-Transfer-Encoding: base64\r\n\r\ndGV4dA==\r\n--b--\r\n"
        )
        .into_bytes()
    });
    world.connect("1", true);
    if choice & 2 != 0 {
        world.send("1", b"a LOGIN anne secret\r\n");
    }
    if choice & 4 != 0 {
        world.send("1", b"b SELECT INBOX\r\n");
    }
    world.connect("2", true);
    world.send("2", b"a LOGIN anne secret\r\nb SELECT INBOX\r\n");
    let changes: [&[u8]; 4] = [
        b"c APPEND INBOX {4+}\r\nx: y\r\n",
        b"c STORE 1 +FLAGS (\\Deleted key)\r\n",
        b"c EXPUNGE\r\n",
        b"c MOVE 1 Trash\r\n",
    ];
    for (at, piece) in input.split(|byte| *byte == 0).enumerate() {
        if at > 0 {
            world.send("2", changes[(at - 1) % changes.len()]);
        }
        world.send("1", piece);
    }
    let connection = world.get("1");
    assert!(
        connection.closed || connection.session.wants_input(),
        "it hangs"
    );
    assert!(connection.session.buffered_bytes() < HELD_BYTES_MAX);
    let said = std::mem::take(&mut connection.outbox);
    world.eof("1");
    assert!(world.get("1").closed, "the client has gone");
    world.eof("2");
    assert_eq!(world.fake.open_uploads(), 0);
    said
}
