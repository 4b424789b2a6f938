//! Inputs that broke other servers: smuggling, injection behind STARTTLS, loops.

use super::world::{ANNE, BOB, Cut, World};

const BEGUN: &str = "smtp
    C: MAIL FROM:<a@b.example>
    S: 250 2.1.0 Sender OK
    C: RCPT TO:<anne@example.org>
    S: 250 2.1.5 Recipient OK
";

/// The second message is Bob's, if the first can be made to end early.
#[test]
fn no_line_end_but_crlf_ends_a_message() {
    let second = "MAIL FROM:<admin@example.org>\\r\\nRCPT TO:<bob@example.org>\\r\\nDATA\\r\\n\\r\\nsmuggled\\r\\n.\\r\\n";
    for end in [
        "\\n.\\n",
        "\\n.\\r\\n",
        "\\r.\\r",
        "\\r.\\r\\n",
        "\\r\\n.\\n",
        "\\r\\n.\\r",
        "\\r\\n\\0.\\r\\n",
        "\\n.\\r\\r\\n",
    ] {
        for size in [1, 2, 3, 1000] {
            let mut world = World::new(Cut::Sizes(vec![size]));
            world.script(&format!(
                "{BEGUN}C: DATA\nS: 354 ...\nC| Subject: x\\r\\n\\r\\ntext{end}{second}\nS: 554 5.6.0 ..."
            ));
            assert_eq!(world.bodies(ANNE, "INBOX"), [""; 0], "{end}");
            assert_eq!(world.bodies(BOB, "INBOX"), [""; 0], "{end}");
            assert_eq!(world.left_over(), (0, 0), "{end}");
            world.script("C: NOOP\nS: 250 2.0.0 OK");
        }
    }
    // In a chunk there are no ends to be smuggled, and the rule is the same.
    for (chunk, len) in [
        ("a\\nb\\r\\n", 5),
        ("a\\rb\\r\\n", 5),
        ("a\\0b\\r\\n", 5),
        ("a\\r", 2),
    ] {
        let mut world = World::new(Cut::AtOnce);
        world.script(&format!(
            "{BEGUN}C| BDAT {len} LAST\\r\\n{chunk}\nS: 554 5.6.0 ...\nC: NOOP\nS: 250 2.0.0 OK"
        ));
        assert_eq!(world.left_over(), (0, 0));
    }
    let mut world = World::new(Cut::AtOnce);
    world.script(&format!(
        "{BEGUN}C| BDAT 12 LAST\\r\\nx\\r\\n.\\r\\nMAIL\\r\\n\nS: 250 2.0.0 ..."
    ));
    assert_eq!(world.bodies(ANNE, "INBOX"), ["x\r\n.\r\nMAIL\r\n"]);
}

#[test]
fn commands_with_bare_line_ends_are_refused() {
    let mut world = World::new(Cut::AtOnce);
    world.script(
        "smtp
         C: MAIL FROM:<a@b.example>\\nRCPT TO:<anne@example.org>
         S: 500 5.5.2 ...
         C: MAIL FROM:<a@b.example>\\rRCPT TO:<anne@example.org>
         S: 500 5.5.2 ...
         C: NOOP\\0
         S: 500 5.5.2 ...
         C: RCPT TO:<anne@example.org>
         S: 503 5.5.1 MAIL first",
    );
}

#[test]
fn nothing_is_read_from_behind_starttls() {
    let mut world = World::new(Cut::AtOnce);
    world.config.starttls = true;
    world.script("smtp");
    world.send(b"STARTTLS\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<anne@example.org>\r\nDATA\r\n");
    let told = world.told();
    assert!(
        told.starts_with("554 5.5.1 Nothing may be sent behind STARTTLS\r\n")
            && told.lines().count() == 1,
        "{told}"
    );
    assert!(world.client().closed);
    assert!(world.client().calls.is_empty());
    // Also when the machine had no room for it: the bytes before fill its buffer.
    let mut world = World::new(Cut::AtOnce);
    world.config.starttls = true;
    world.script("smtp");
    let noop = |len: usize| format!("NOOP {}\r\n", "x".repeat(len - 7));
    let before = noop(2000).repeat(32) + &noop(1526) + "STARTTLS\r\n";
    assert_eq!(before.len(), world.config.limits.input_buffer_bytes_max);
    world.send((before + "MAIL FROM:<a@b.example>\r\n").as_bytes());
    assert!(world.told().ends_with("220 2.0.0 Ready to start TLS\r\n"));
    assert!(world.client().closed);
    // The handshake forgets what was said in clear.
    let mut world = World::new(Cut::AtOnce);
    world.config.starttls = true;
    world.script(BEGUN);
    world.script(
        "C: STARTTLS
         S: 220 2.0.0 Ready to start TLS
         tls
         C: DATA
         S: 503 5.5.1 ...",
    );
    world.send(b"EHLO client.example\r\n");
    assert!(!world.told().contains("STARTTLS"));
    world.script("C: RCPT TO:<anne@example.org>\nS: 503 5.5.1 MAIL first");
}

fn data(world: &mut World, body: &str, expected: &str) {
    world.script(&format!("{BEGUN}C: DATA\nS: 354 ..."));
    world.send(body.as_bytes());
    world.script(&format!("C: .\nS: {expected}"));
}

#[test]
fn loops() {
    let mut world = World::new(Cut::AtOnce);
    let hops = |count: usize| "Received: from a by b\r\n".repeat(count);
    data(&mut world, &hops(50), "250 2.0.0 ...");
    data(&mut world, &hops(51), "554 5.4.6 ...");
    data(&mut world, &format!("\r\n{}", hops(51)), "250 2.0.0 ...");
    assert_eq!(world.bodies(ANNE, "INBOX").len(), 2);
    let mut world = World::new(Cut::AtOnce);
    for own in ["anne@example.org", "ANNE@Example.ORG", " anne@example.org "] {
        data(
            &mut world,
            &format!("Subject: x\r\nDelivered-To: {own}\r\n\r\n"),
            "554 5.4.6 ...",
        );
    }
    assert_eq!(
        world.left_over(),
        (0, 0),
        "a finished upload is given up, too"
    );
    data(
        &mut world,
        "Delivered-To: bob@example.org\r\n\r\n",
        "250 2.0.0 ...",
    );
    data(
        &mut world,
        "\r\nDelivered-To: anne@example.org\r\n",
        "250 2.0.0 ...",
    );
    // What is delivered here and comes back is known.
    let whole = world.arrived(ANNE, "INBOX").pop().unwrap();
    data(
        &mut world,
        &(whole.prefix.clone() + whole.text()),
        "554 5.4.6 ...",
    );
    assert_eq!(world.bodies(ANNE, "INBOX").len(), 2);
}

const TWO: &str = "C: MAIL FROM:<carl@elsewhere.example>
S: 250 2.1.0 Sender OK
C: RCPT TO:<anne@example.org>
S: 250 2.1.5 Recipient OK
C: RCPT TO:<bob@example.org>
S: 250 2.1.5 Recipient OK
C: RCPT TO:<team@example.org>
S: 250 2.1.5 Recipient OK
C: RCPT TO:<ANNE@example.org>
S: 250 2.1.5 Recipient OK
C: DATA
S: 354 ...
";

/// One recipient of several to whom the message has come back.
#[test]
fn loops_among_others() {
    let mut world = World::new(Cut::AtOnce);
    world.alias("team@example.org", "bob@example.org");
    world.alias("team@example.org", "anne@example.org");
    let looping = "C: Delivered-To: Anne@Example.org\nC: \nC: .\n";
    let counts = |world: &mut World| {
        (
            world.bodies(ANNE, "INBOX").len(),
            world.bodies(BOB, "INBOX").len(),
        )
    };
    // SMTP has one reply for all: nobody is accepted, nothing is kept.
    world.script(&format!("smtp\n{TWO}{looping}S: 554 5.4.6 ..."));
    assert_eq!((counts(&mut world), world.left_over()), ((0, 0), (0, 0)));
    // LMTP has one for each, an alias with her in it included.
    world.script(&format!(
        "lmtp\n{TWO}{looping}S: 554 5.4.6 ...\nS: 250 2.0.0 ...\nS: 554 5.4.6 ...\nS: 554 5.4.6 ..."
    ));
    assert_eq!(counts(&mut world), (0, 1));
    // By the alias alone.
    world.script(&format!(
        "C: MAIL FROM:<>
         S: 250 2.1.0 Sender OK
         C: RCPT TO:<team@example.org>
         S: 250 2.1.5 Recipient OK
         C: DATA
         S: 354 ...
         {looping}S: 554 5.4.6 ..."
    ));
    assert_eq!(counts(&mut world), (0, 1));
    // A full disk refuses all of them, whatever else would have been said.
    world.script(&format!(
        "{TWO}full\n{looping}S: 452 4.3.1 ...\nS: 452 4.3.1 ...\nS: 452 4.3.1 ...\nS: 452 4.3.1 ...\nroom"
    ));
    // And nothing of it concerns who never had the message.
    world.script(&format!(
        "{TWO}C: Delivered-To: carl@example.org\nC: \nC: .\n{}",
        "S: 250 2.0.0 ...\n".repeat(4)
    ));
    assert_eq!(counts(&mut world), (1, 2));
}

/// An address whose local part is written with quotes has a trace of its own.
#[test]
fn loops_of_odd_addresses() {
    let mut world = World::new(Cut::AtOnce);
    world.account(
        "a..b@example.org",
        whimbrel_service::api::AccountId([3; 16]),
    );
    let begun = BEGUN.replace("anne", "\"a..b\"");
    world.script(&format!(
        "{begun}C: DATA\nS: 354 ...\nC: .\nS: 250 2.0.0 ..."
    ));
    let whole = world
        .arrived(whimbrel_service::api::AccountId([3; 16]), "INBOX")
        .pop()
        .unwrap();
    assert!(
        whole
            .prefix
            .contains("\r\nDelivered-To: \"a..b\"@example.org\r\n"),
        "{}",
        whole.prefix
    );
    world.script(&format!("{begun}C: DATA\nS: 354 ..."));
    world.send(whole.prefix.as_bytes());
    world.script("C: .\nS: 554 5.4.6 ...");
}

#[test]
fn harvesting_ends() {
    let mut world = World::new(Cut::AtOnce);
    world.script("smtp\nC: MAIL FROM:<a@b.example>\nS: 250 2.1.0 Sender OK");
    for _ in 0..50 {
        world.script("C: RCPT TO:<nobody@example.org>\nS: 550 5.1.1 No such mailbox here");
    }
    world.script("C: RCPT TO:<nobody@example.org>\nS: 550 5.1.1 No such mailbox here\nS: 421 4.7.0 ...\nclosed");
}
