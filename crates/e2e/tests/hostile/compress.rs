//! Row 21: a few compressed bytes that stand for a thousand times as many.

use miniz_oxide::{deflate::compress_to_vec, inflate::decompress_to_vec};
use whimbrel_e2e::server::Server;

use super::{Watch, lean, unless_closed};

/// 3.2 MB, of which `inflate_slack_bytes` and the ratio let about half pass.
const COMMANDS: usize = 400_000;

/// Sends so many commands, compressed as well as can be; all that was answered until the server closed.
fn bomb(server: &Server) -> String {
    let mut imap = server.anne();
    let _ = imap.command("COMPRESS DEFLATE").unwrap().ok("COMPRESS");
    let said = "a NOOP\r\n".repeat(COMMANDS) + "a LOGOUT\r\n";
    let said = compress_to_vec(said.as_bytes(), 9);
    assert!(said.len() < 16 << 10, "{} bytes", said.len());
    let _ = unless_closed(imap.wire.send(&said));
    // The answers' stream has no end of its own.
    let answered = match decompress_to_vec(&imap.wire.drain().unwrap()) {
        Ok(all) => all,
        Err(cut) => cut.output,
    };
    String::from_utf8(answered).unwrap()
}

fn noops(answered: &str) -> usize {
    answered.matches("a OK ").count()
}

#[test]
#[ignore = "long: hostile clients"]
fn row_21_a_compression_bomb() {
    let server = lean().start();
    let watch = Watch::start(&server);
    for _ in 0..2 {
        let answered = bomb(&server);
        assert!(noops(&answered) < COMMANDS * 3 / 4, "{}", noops(&answered));
        assert!(answered.contains("* BYE "), "nobody said why");
    }
    watch.end();
    // With the limit raised it is carried out: nothing else stands in its way.
    let server = lean().set("imap", "inflate_ratio_max = 2000").start();
    assert_eq!(noops(&bomb(&server)), COMMANDS + 1);
}
