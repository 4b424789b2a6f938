//! COMPRESS=DEFLATE (RFC 4978), with a client that compresses by itself.

use miniz_oxide::deflate::core::TDEFLFlush;
use whimbrel_frontend::session::Note;

use super::{
    layer::COMMAND,
    world::{Cut, World},
};

fn said(world: &mut World) -> String {
    String::from_utf8(std::mem::take(&mut world.get("1").outbox)).unwrap()
}

fn logged_in(cut: Cut) -> World {
    let mut world = World::new(cut);
    world.connect("1", true);
    world.send("1", b"a LOGIN anne secret\r\n");
    said(&mut world);
    world
}

fn compressed(cut: Cut) -> World {
    let mut world = logged_in(cut);
    world.send("1", COMMAND);
    assert!(world.get("1").layer.is_some());
    world
}

fn closed(world: &mut World, reason: &'static str) -> bool {
    world.get("1").closed && world.get("1").notes.contains(&Note::Closed(reason))
}

#[test]
fn where_it_is_offered() {
    let mut world = World::new(Cut::AtOnce);
    world.connect("1", true);
    world.send("1", b"a COMPRESS DEFLATE\r\nb CAPABILITY\r\n");
    let told = said(&mut world);
    assert!(
        told.contains("a BAD") && !told.contains("COMPRESS="),
        "{told}"
    );
    world.send("1", b"a LOGIN anne secret\r\nb COMPRESS LZ4\r\n");
    let told = said(&mut world);
    assert!(
        told.contains(" COMPRESS=DEFLATE") && told.contains("b BAD"),
        "{told}"
    );
    world.send("1", COMMAND);
    world.send("1", b"b CAPABILITY\r\nc COMPRESS DEFLATE\r\nd NOOP\r\n");
    let told = said(&mut world);
    assert!(!told.contains("COMPRESS="), "{told}");
    assert!(
        told.contains("c BAD [COMPRESSIONACTIVE]") && told.contains("d OK"),
        "{told}"
    );

    let mut world = World::new(Cut::AtOnce);
    world.limits.compress = false;
    world.connect("1", true);
    world.send("1", b"a LOGIN anne secret\r\nb COMPRESS DEFLATE\r\n");
    let told = said(&mut world);
    assert!(
        told.contains("b BAD") && !told.contains("COMPRESS="),
        "{told}"
    );
}

/// "The client MUST NOT send any further commands until it has seen the result of COMPRESS."
#[test]
fn what_follows_in_the_clear_is_not_taken_for_compressed() {
    let mut world = logged_in(Cut::AtOnce);
    world.send("1", b"a COMPRESS DEFLATE\r\nb NOOP\r\n");
    let told = said(&mut world);
    assert!(told.contains("a BAD") && told.contains("b OK"), "{told}");
    assert!(!world.get("1").closed);
}

#[test]
fn large_answers_and_messages() {
    for cut in [Cut::AtOnce, Cut::Sizes(vec![700, 16_000])] {
        let mut world = compressed(cut);
        world.fake.fill("INBOX", 2000, |n| {
            format!("Subject: number {n}\r\n\r\nText of number {n}\r\n").into_bytes()
        });
        world.send("1", b"b SELECT INBOX\r\n");
        said(&mut world);
        let before = world.get("1").wire_bytes;
        world.send("1", b"c FETCH 1:* (FLAGS ENVELOPE BODY.PEEK[])\r\n");
        let wire = world.get("1").wire_bytes - before;
        let told = said(&mut world);
        for n in 1..=2000 {
            assert!(told.contains(&format!("Text of number {n}\r\n")), "{n}");
        }
        assert!(wire * 5 < told.len(), "{wire} of {}", told.len());
        assert!(world.get("1").largest_send <= 200 * 1024);
        // A message of which a thousandth is sent is a message still.
        let message = vec![b'A'; 5_000_000];
        let append = [&b"d APPEND INBOX {5000000+}\r\n"[..], &message, b"\r\n"].concat();
        world.send("1", &append);
        assert!(said(&mut world).contains("d OK [APPENDUID"));
        world.send("1", b"e FETCH 2001 RFC822.SIZE\r\n");
        assert!(said(&mut world).contains("RFC822.SIZE 5000000"));
    }
}

#[test]
fn an_idle_session_holds_only_what_its_client_may_refer_to() {
    let mut world = compressed(Cut::AtOnce);
    world.fake.fill("INBOX", 50, |_| vec![b'x'; 3000]);
    world.send("1", b"b SELECT INBOX\r\nc FETCH 1:* BODY.PEEK[]\r\nd SEARCH TEXT y\r\ne APPEND INBOX {4+}\r\na\r\nb\r\n");
    world.send("1", b"f IDLE\r\n");
    let held = world.get("1").session.buffered_bytes();
    assert!(held <= 4096 + 1024, "{held}");
    // Whatever it has said before, 32 KiB.
    world.send(
        "1",
        &[b"DONE\r\n".to_vec(), b"g NOOP\r\n".repeat(50_000)].concat(),
    );
    world.send("1", b"h IDLE\r\n");
    let held = world.get("1").session.buffered_bytes();
    assert!(held <= 4096 + 32 * 1024, "{held}");
    let size = std::mem::size_of_val(&world.get("1").session);
    assert!(size <= 4096, "{size}");
}

/// BAD_INPUTS, row 21. 10 KB that stand for 10 MB: in a line, in lines, in literals that are refused.
#[test]
fn a_compression_bomb() {
    let big = 10_000_000;
    let bombs: [(&str, bool, Vec<u8>); 4] = [
        ("a line", true, vec![b'('; big]),
        ("lines", true, b"b NOOP\r\n".repeat(big / 8)),
        ("what is no command", false, vec![b'\n'; big]),
        (
            "a literal",
            true,
            [&b"b LIST {60000000+}\r\n"[..], &vec![b'a'; big]].concat(),
        ),
    ];
    for (what, seen_as_bomb, bomb) in bombs {
        let mut world = compressed(Cut::Sizes(vec![16 * 1024]));
        let bytes = world
            .get("1")
            .layer
            .as_mut()
            .unwrap()
            .deflate(&bomb, TDEFLFlush::Sync);
        assert!(bytes.len() < 200_000, "{what}: {}", bytes.len());
        let mut largest = 0;
        for piece in bytes.chunks(1000) {
            if world.get("1").closed {
                break;
            }
            world.send_raw("1", piece);
            said(&mut world);
            largest = largest.max(world.get("1").session.buffered_bytes());
        }
        assert!(world.get("1").closed, "{what}");
        let bomb = Note::ProtocolError("Input is compressed too well");
        assert!(
            !seen_as_bomb || world.get("1").notes.contains(&bomb),
            "{what}"
        );
        assert!(largest < 512 * 1024, "{what}: {largest}");
        let commands = world
            .get("1")
            .notes
            .iter()
            .filter(|note| matches!(note, Note::Command("NOOP", _)));
        assert!(commands.count() < 500_000, "{what}");
    }
}

#[test]
fn input_that_is_not_compressed_ends_the_connection() {
    let mut world = compressed(Cut::AtOnce);
    world.send_raw("1", b"a1 NOOP\r\n");
    assert!(said(&mut world).starts_with("* BYE Input is not compressed"));
    assert!(closed(&mut world, "protocol error"));
}

/// A text that nothing but the same text makes shorter.
fn noise(mut seed: u64) -> Vec<u8> {
    let mut letter = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        b"abcdefghijklmnopqrstuvwxyz012345"[(seed >> 59) as usize]
    };
    let mut line = || (0..60).map(|_| letter()).chain(*b"\r\n").collect();
    (0..50).flat_map(|_| -> Vec<u8> { line() }).collect()
}

/// What lengths betray (docs/hostile.md): what goes out in one piece is compressed together, so a stranger whose mail lies beside a secret there
/// can see from outside whether his guess was right. What goes out by itself tells nothing of what went before, nor does anything without
/// COMPRESS.
#[test]
fn lengths_tell_of_what_goes_out_together_and_of_nothing_else() {
    let bytes = |guess: u64, compresses: bool, commands: &[&str]| {
        let mut world = match compresses {
            true => compressed(Cut::AtOnce),
            false => logged_in(Cut::AtOnce),
        };
        world
            .fake
            .fill("INBOX", 2, |n| noise(if n == 1 { 1 } else { guess }));
        world.send("1", b"b SELECT INBOX\r\n");
        let mut each = Vec::new();
        for command in commands {
            let before = world.get("1").wire_bytes;
            world.send("1", format!("c {command}\r\n").as_bytes());
            assert!(said(&mut world).contains("c OK"));
            each.push(world.get("1").wire_bytes - before);
        }
        each
    };
    let together = ["FETCH 1:2 BODY.PEEK[]"];
    let apart = ["FETCH 1 BODY.PEEK[]", "FETCH 2 BODY.PEEK[]"];
    let (right, wrong) = (1, 2);
    assert!(bytes(right, true, &together)[0] + 1000 < bytes(wrong, true, &together)[0]);
    let alone = bytes(right, true, &apart);
    assert_eq!(alone[0], alone[1], "the second is as long as the first");
    for guess in [right, wrong] {
        let plain = bytes(guess, false, &together)[0];
        assert_eq!(plain, bytes(3, false, &together)[0]);
        assert!(plain > bytes(guess, true, &together)[0]);
    }
}

/// RFC 8437, 4.1: after UNAUTHENTICATE neither side compresses, and the next login can; a client that flushes only, instead of ending its
/// stream, is understood, too.
#[test]
fn unauthenticate_ends_it() {
    let cuts = [None, Some(1), Some(7), Some(20)];
    for (ends, cut) in cuts.into_iter().flat_map(|cut| [(true, cut), (false, cut)]) {
        let mut world = compressed(cut.map_or(Cut::AtOnce, |size| Cut::Sizes(vec![size])));
        if ends {
            world.send("1", b"b UNAUTHENTICATE\r\nc LOGIN anne secret\r\n");
        } else {
            let command = b"b UNAUTHENTICATE\r\n";
            let bytes = world
                .get("1")
                .layer
                .as_mut()
                .unwrap()
                .deflate(command, TDEFLFlush::Sync);
            world.send_raw("1", &bytes);
            assert!(world.get("1").layer.is_none());
            world.send("1", b"c LOGIN anne secret\r\n");
        }
        let told = said(&mut world);
        assert!(told.contains("b OK") && told.contains("c OK"), "{told}");
        assert!(world.get("1").layer.is_none());
        world.send("1", COMMAND);
        world.send("1", b"d NOOP\r\n");
        assert!(said(&mut world).contains("d OK"));
        assert!(world.get("1").layer.is_some());
    }
}
