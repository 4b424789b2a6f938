//! What is refused leaves nothing behind: a full disk, a full queue, a cut connection, a message that is too large.

use whimbrel_smtp::Role;

use super::world::{ANNE, BOB, Cut, World};

const BEGUN: &str = "C: MAIL FROM:<a@b.example>
    S: 250 2.1.0 Sender OK
    C: RCPT TO:<anne@example.org>
    S: 250 2.1.5 Recipient OK
";

/// Runs a script after a transaction was begun; nothing is delivered or left behind.
fn nothing(script: &str) -> World {
    let mut world = World::new(Cut::AtOnce);
    world.script(&format!("smtp\n{BEGUN}{script}"));
    assert_eq!(world.bodies(ANNE, "INBOX"), [""; 0], "{script}");
    assert_eq!(world.node.queue_len(), 0);
    assert_eq!(world.left_over(), (0, 0), "{script}");
    world
}

/// And the same connection delivers the next message.
fn nothing_and_go_on(script: &str) {
    let mut world = nothing(script);
    world.script(&format!(
        "{BEGUN}C: DATA\nS: 354 ...\nC| \\r\\nnext\\r\\n.\\r\\n\nS: 250 2.0.0 ..."
    ));
    assert_eq!(world.bodies(ANNE, "INBOX"), ["\r\nnext\r\n"]);
    assert_eq!(world.left_over(), (0, 1));
}

#[test]
fn a_full_disk() {
    // Before the message, in the middle, before the end.
    nothing_and_go_on("full\nC: DATA\nS: 452 4.3.1 ...\nroom");
    nothing_and_go_on("C: DATA\nS: 354 ...\nC: one\nfull\nC: two\nC: .\nS: 452 4.3.1 ...\nroom");
    nothing_and_go_on(
        "C: DATA\nS: 354 ...\nC: one\nfull\nC: two\nroom\nC: three\nC: .\nS: 452 4.3.1 ...",
    );
    nothing_and_go_on("C: DATA\nS: 354 ...\nC: one\nfull\nC: .\nS: 452 4.3.1 ...\nroom");
    nothing_and_go_on("full\nC| BDAT 3 LAST\\r\\nab\\n\nS: 452 4.3.1 ...\nroom");
    nothing_and_go_on(
        "C| BDAT 3\\r\\nabc\nS: 250 ...\nfull\nC| BDAT 2 LAST\\r\\n\\r\\n\nS: 452 4.3.1 ...\nroom",
    );
    nothing_and_go_on(
        "C| BDAT 3\\r\\nabc\nS: 250 ...\nfull\nC: BDAT 0 LAST\nS: 452 4.3.1 ...\nroom",
    );
}

/// The disk fills up in the instant between the end of the upload and the queue's write.
#[test]
fn a_full_disk_at_the_last_moment() {
    let mut world = World::new(Cut::AtOnce);
    world.script(&format!("smtp\n{BEGUN}C: DATA\nS: 354 ...\nC: text"));
    world.push(b".\r\n");
    while !world.client().calls.contains_key("Accept") {
        world.step();
    }
    world.node.disk.faults.full = true;
    world.run();
    world.script("S: 452 4.3.1 ...\nroom\nC: NOOP\nS: 250 ...");
    assert_eq!(world.left_over(), (0, 0));
    assert_eq!(world.bodies(ANNE, "INBOX"), [""; 0]);
}

#[test]
fn a_full_queue() {
    let mut world = World::new(Cut::AtOnce);
    // The first fills the disk when it is accepted, so that nothing can be delivered.
    for number in 0..3usize {
        world.node.disk.faults.full = false;
        world.script(&format!("smtp\n{BEGUN}C: DATA\nS: 354 ..."));
        world.push(format!("\r\n{number}\r\n.\r\n").as_bytes());
        while !world.client().outbox.starts_with(b"250") {
            world.step();
            assert!(!world.client().outbox.starts_with(b"4"));
            world.node.disk.faults.full = world.node.queue_len() > number;
        }
        world.run();
        world.told();
    }
    assert_eq!(world.node.queue_len(), 3);
    world.node.disk.faults.full = false;
    world.script(&format!(
        "smtp\n{BEGUN}C: DATA\nS: 354 ...\nC| .\\r\\n\nS: 452 4.3.1 ..."
    ));
    assert_eq!(world.left_over(), (0, 3));
    // In the end all that was accepted is there.
    world.wait(30);
    world.wait(30);
    assert_eq!(world.node.queue_len(), 0);
    let mut bodies = world.bodies(ANNE, "INBOX");
    bodies.sort();
    assert_eq!(bodies, ["\r\n0\r\n", "\r\n1\r\n", "\r\n2\r\n"]);
}

#[test]
fn a_connection_that_is_cut() {
    // Also TLS that ends in the middle of a chunk: what comes behind is read by nobody.
    for script in [
        "eof\nclosed",
        "C: DATA\nS: 354 ...\neof\nclosed",
        "C: DATA\nS: 354 ...\nC: text\neof\nclosed",
        "C: DATA\nS: 354 ...\nC| text\\r\\n.\\r\neof\nclosed",
        "C| BDAT 100 LAST\\r\\ntext\neof\nclosed",
        "C| BDAT 4\\r\\ntext\nS: 250 ...\neof\nclosed",
        "C| BDAT 4\\r\\ntext\nS: 250 ...\nC| BDAT 100 LAST\\r\\nmore\neof\nclosed",
    ] {
        nothing(script);
    }
    // At every byte, with each call answered, and with the last one still open.
    let client = b"DATA\r\nSubject: x\r\n\r\ntext\r\n.\r\n";
    for end in 0..client.len() {
        for answered in [true, false] {
            let mut world = World::new(Cut::Sizes(vec![3]));
            world.script(&format!("smtp\n{BEGUN}"));
            world.push(&client[..end]);
            if answered {
                world.run();
            }
            world.eof();
            assert!(world.client().closed);
            assert_eq!(world.bodies(ANNE, "INBOX"), [""; 0], "{end}");
            assert_eq!(world.left_over(), (0, 0), "{end}");
        }
    }
}

#[test]
fn reset_and_its_like() {
    nothing_and_go_on("C: RSET\nS: 250 2.0.0 OK");
    nothing_and_go_on("C| BDAT 4\\r\\ntext\nS: 250 ...\nC: RSET\nS: 250 2.0.0 OK");
    nothing_and_go_on("C| BDAT 4\\r\\ntext\nS: 250 ...\nC: HELO x\nS: 250 ...");
    nothing("C| BDAT 4\\r\\ntext\nS: 250 ...\nC: QUIT\nS: 221 ...\nclosed");
    // Who was named before is not named after.
    let mut world = World::new(Cut::AtOnce);
    world.script(
        "smtp
         C: MAIL FROM:<a@b.example>
         S: 250 2.1.0 Sender OK
         C: RCPT TO:<bob@example.org>
         S: 250 2.1.5 Recipient OK
         C: RSET
         S: 250 2.0.0 OK
         C: RCPT TO:<bob@example.org>
         S: 503 5.5.1 MAIL first",
    );
    world.script(&format!(
        "{BEGUN}C: DATA\nS: 354 ...\nC: .\nS: 250 2.0.0 ..."
    ));
    assert_eq!(
        (
            world.bodies(ANNE, "INBOX").len(),
            world.bodies(BOB, "INBOX").len()
        ),
        (1, 0)
    );
}

#[test]
fn too_large() {
    let line = format!("C: {}\n", "x".repeat(9998));
    let many = line.repeat(31);
    nothing_and_go_on(&format!(
        "C: DATA\nS: 354 ...\n{many}C: .\nS: 552 5.3.4 ..."
    ));
    nothing_and_go_on(
        "C: RSET\nS: 250 ...\nC: MAIL FROM:<a@b.example> SIZE=300001\nS: 552 5.3.4 ...",
    );
    let mut world = World::new(Cut::AtOnce);
    world.script(&format!(
        "lmtp\n{BEGUN}C: RCPT TO:<bob@example.org>\nS: 250 ...\nC: BDAT 300001 LAST"
    ));
    world.send(&vec![b'x'; 300_001]);
    world.script("S: 552 5.3.4 ...\nS: 552 5.3.4 ...\nC: NOOP\nS: 250 ...");
    assert_eq!(world.left_over(), (0, 0));
    // One byte less than too much.
    let mut world = World::new(Cut::AtOnce);
    world.script(&format!("smtp\n{BEGUN}C: BDAT 300000 LAST"));
    world.send(&vec![b'x'; 300_000]);
    let told = world.told();
    // A line as long as that is refused for its own sake.
    assert!(told.starts_with("554 5.6.0"), "{told}");
    world.script(&format!("{BEGUN}C: BDAT 300000 LAST"));
    world.send(&b"123456\r\n".repeat(37_500));
    world.script("S: 250 2.0.0 ...");
    assert_eq!(world.arrived(ANNE, "INBOX")[0].body.len(), 300_000);
}

#[test]
fn a_shutdown() {
    let mut world = World::new(Cut::AtOnce);
    world.script("smtp\nshutdown\nS: 421 4.3.2 ...\nclosed");
    world.script(&format!("smtp\n{BEGUN}shutdown\nS: 421 4.3.2 ...\nclosed"));
    // A message whose bytes are coming is taken to its end.
    world.script(&format!("smtp\n{BEGUN}C: DATA\nS: 354 ...\nC: text\nshutdown\nopen\nC: .\nS: 250 2.0.0 ...\nS: 421 4.3.2 ...\nclosed"));
    assert_eq!(world.bodies(ANNE, "INBOX"), ["text\r\n"]);
    nothing("C| BDAT 4\\r\\ntext\nS: 250 ...\nshutdown\nS: 421 4.3.2 ...\nclosed");
}

#[test]
fn a_silent_client() {
    nothing("wait 301\nS: 421 4.4.2 ...\nclosed");
    nothing("C: DATA\nS: 354 ...\nC: text\nwait 181\nS: 421 4.4.2 ...\nclosed");
    let mut world = World::new(Cut::AtOnce);
    world.connect(Role::Submission);
    world.script("S: 220 ...\nC: EHLO x\nS: 250-...\nS: 250-...\nS: 250-...\nS: 250-...\nS: 250-...\nS: 250-...\nS: 250 ...");
    world.script("C: MAIL FROM:<a@b.example>\nS: 530 5.7.0 Authentication required");
}
