//! A client that keeps a cache by QRESYNC over COMPRESS: `scripts/qresync_session.py` asserts as it goes.

use whimbrel_e2e::{process::run, server::Server};

use super::{ANNE, PASSWORD, program, script};

#[test]
#[ignore = "long: python3"]
fn a_cache_over_a_compressed_connection() {
    let server = Server::start_plain();
    let mut python = program(&server, "python3");
    python
        .arg(script("qresync_session.py"))
        .arg(server.ports.imaps.to_string())
        .arg(server.path("authority.pem"))
        .args([ANNE, PASSWORD]);
    assert_eq!(run(&mut python, b"").expect("qresync"), "done\n");

    // What the script left, seen by a client of another make.
    let mut imap = server.anne();
    let cache = server.contents(&mut imap, "Cache").unwrap();
    let bodies = cache.messages.iter().map(|message| message.bytes.len());
    assert_eq!(cache.messages.len(), 301 - 101 - 1 + 5 - 3);
    assert_eq!(bodies.max(), Some(3_000_000 + "Subject: big\r\n\r\n".len()));
    server.assert_no_panic();
}
