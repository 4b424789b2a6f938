//! Inputs that broke other mail servers, sent to the real process: a clear answer or an end of the connection, memory within bounds,
//! nothing lost, no effect on other connections.
//!
//! Where a limit is what defends, a second run with the limit raised shows that the same test then objects. Where the defence is
//! the shape of the code (streaming, strict line ends), the comment says what was taken out to see it fail.

mod answers;
mod compress;
mod flood;
mod headers;
mod lines;
mod lists;
mod literals;
mod logins;
mod mime;
mod pop3;
mod scram;
mod slow;
mod smuggling;
mod starttls;

use whimbrel_e2e::{
    imap::Imap,
    memory, message,
    server::{Builder, Server},
    wire::{Result, Trouble, Wire},
};

/// What any command of any client may cost in memory, whatever the mailbox.
const COMMAND_KIB_MAX: u64 = 64 << 10;

/// A server whose caches are small, so that what grows is what the client made grow.
fn lean() -> Builder {
    Builder::default()
        .set("storage", "cache_bytes = \"1MiB\"")
        .set("storage", "accounts_bytes_max = \"16MiB\"")
        .set("storage", "write_buffer_bytes = \"1MiB\"")
}

/// Memory and service while something hostile goes on.
struct Watch<'a> {
    server: &'a Server,
    before: u64,
    other: Imap,
}

impl<'a> Watch<'a> {
    fn start(server: &'a Server) -> Watch<'a> {
        let mut other = server.anne();
        let _ = other.command("SELECT Sent").unwrap().ok("SELECT");
        memory::forget_peak(server.pid());
        Watch {
            server,
            before: memory::resident_kib(server.pid()),
            other,
        }
    }

    /// How much the process has grown at its largest, in KiB.
    fn grown(&self) -> u64 {
        memory::peak_kib(self.server.pid()).saturating_sub(self.before)
    }

    /// A connection that was there before still works, and so does a new one.
    fn others_work(&mut self) {
        let name = "written-meanwhile";
        let _ = self
            .other
            .append("Sent", &[], &message::bytes(name, 2000))
            .unwrap()
            .ok("APPEND");
        let seen = self
            .other
            .command("UID SEARCH HEADER X-Name written-meanwhile")
            .unwrap()
            .ok("SEARCH")
            .found();
        assert!(!seen.is_empty(), "another connection sees its own write");
        let _ = self.server.anne().command("NOOP").unwrap().ok("NOOP");
    }

    /// All that must hold.
    fn end(self) {
        self.end_within(COMMAND_KIB_MAX);
    }

    fn end_within(mut self, kib_max: u64) {
        self.others_work();
        let grown = self.grown();
        assert!(grown <= kib_max, "the process grew by {grown} KiB");
        self.server.assert_no_panic();
    }
}

/// Sends a chunk again and again until so much was sent or the server has had enough.
fn pump(wire: &mut Wire, chunk: &[u8], total: usize) -> Result<()> {
    let mut sent = 0;
    while sent < total {
        wire.send(chunk)?;
        sent += chunk.len();
    }
    Ok(())
}

/// What a server may do with what it does not want: close, or say so. Not: be silent, or break the protocol.
fn unless_closed<T>(outcome: Result<T>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(Trouble::Closed) => None,
        Err(other) => panic!("{other:?}"),
    }
}
