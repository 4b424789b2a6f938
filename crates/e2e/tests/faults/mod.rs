//! Faults of the machine below a server: a full disk, one that can only be read, no more descriptors, a clock that jumps. Clients hear their
//! protocol's temporary error, reading goes on where it can, nothing that was acknowledged is lost, nothing half-written is seen, and when
//! the fault is over the server takes writes again, by itself or (where `docs/operations.md` says so) after a start.
//!
//! These tests mount small file systems of their own, as root or by sudo.

mod clock;
mod descriptors;
mod full;
mod read_only;
mod refused;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;
use whimbrel_e2e::{
    imap::{Imap, Reply, Status},
    mail::{Mail, MailReply},
    message,
    pop3::Pop3,
    process::{run, wait_for},
    server::{ACCOUNTS, Builder, Server},
    wire::{Trouble, Wire},
};

/// A server into which a library is loaded: [`Server::preload`].
fn preloaded(builder: Builder, script: &str, variable: &'static str) -> Server {
    let mut server = builder.build();
    server.preload(script, variable);
    server.start(&[]);
    server
}

/// From now on the library finds this in its file.
fn tell(server: &Server, number: i64) {
    server.tell_preloaded(number);
}

/// Runs a program as root.
fn root(words: &[&str]) {
    let am_root = run(Command::new("id").arg("-u"), b"").stdout.trim() == "0";
    let mut all: Vec<&str> = if am_root {
        Vec::new()
    } else {
        vec!["sudo", "--non-interactive"]
    };
    all.extend_from_slice(words);
    let _ = run(Command::new(all[0]).args(&all[1..]), b"").expect(&words.join(" "));
}

/// A small file system, for a data directory that may suffer. Declare it before the server, which then goes first.
struct Disk {
    directory: TempDir,
    mounted: bool,
}

impl Disk {
    fn new() -> Disk {
        let directory = tempfile::Builder::new()
            .prefix("whimbrel-disk-")
            .tempdir()
            .unwrap();
        fs::create_dir(directory.path().join("at")).unwrap();
        Disk {
            directory,
            mounted: false,
        }
    }

    /// In memory, so large.
    fn memory(mib: u32) -> Disk {
        let mut disk = Disk::new();
        let at = disk.at();
        let size = format!("size={mib}m,mode=777");
        root(&["mount", "-t", "tmpfs", "-o", &size, "tmpfs", path(&at)]);
        disk.mounted = true;
        disk
    }

    /// In a file, with a file system that becomes read-only when it meets an error.
    fn file(mib: u64) -> Disk {
        let mut disk = Disk::new();
        let image = disk.directory.path().join("image");
        let file = fs::File::create(&image).unwrap();
        file.set_len(mib << 20).unwrap();
        let _ = run(
            Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0", path(&image)]),
            b"",
        )
        .expect("mkfs.ext4");
        disk.mount_file();
        let at = disk.at();
        root(&["chmod", "777", path(&at)]);
        disk
    }

    fn mount_file(&mut self) {
        let (image, at) = (self.directory.path().join("image"), self.at());
        let options = "loop,errors=remount-ro";
        root(&["mount", "-o", options, path(&image), path(&at)]);
        self.mounted = true;
    }

    fn unmount(&mut self) {
        root(&["umount", path(&self.at())]);
        self.mounted = false;
    }

    fn at(&self) -> PathBuf {
        self.directory.path().join("at")
    }

    /// The line of the configuration that puts a data directory there.
    fn data_dir(&self) -> String {
        format!("data_dir = \"{}\"", self.at().join("data").display())
    }

    /// How much room it has.
    fn free(&self) -> u64 {
        let mut stat = Command::new("stat");
        stat.args(["-f", "-c", "%a %S"]).arg(self.at());
        let text = run(&mut stat, b"").expect("stat");
        let figures: Vec<u64> = text
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        figures[0] * figures[1]
    }

    /// Leaves only so much room: somebody else has written something large.
    fn fill(&self, leave: u64) {
        let filler = self.at().join("filler");
        let mut file = fs::File::create(&filler).unwrap();
        // Pieces, as what a file costs beyond its length is the file system's affair.
        let zeros = vec![0; 64 << 10];
        while self.free() > leave {
            use std::io::Write as _;
            let want = usize::try_from(self.free() - leave).unwrap();
            let pieces = (want / zeros.len()).max(1);
            for _ in 0..pieces {
                if file.write_all(&zeros[..want.min(zeros.len())]).is_err() {
                    return;
                }
            }
        }
    }

    /// There is room again.
    fn clear(&self) {
        fs::remove_file(self.at().join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            // A server that was only just killed may still hold it.
            root(&["umount", "--lazy", path(&self.at())]);
        }
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Names of the messages of INBOX in the order of their UIDs, each whole, with its size as it was sent.
fn names(server: &Server, imap: &mut Imap, size: usize) -> Vec<String> {
    let contents = server.contents(imap, "INBOX").unwrap();
    contents
        .messages
        .iter()
        .map(|message| {
            let name = message::name_of(&message.bytes).expect("a whole header");
            assert!(
                message.bytes.ends_with(&message::bytes(&name, size)),
                "{name} is not whole"
            );
            name
        })
        .collect()
}

/// IMAP's temporary error: "NO" with UNAVAILABLE (RFC 5530).
fn assert_unavailable(reply: &Reply, what: &str) {
    assert!(
        reply.status == Status::No && reply.code == "UNAVAILABLE",
        "{what}: {reply:?}"
    );
}

fn by_mail(server: &Server, lmtp: bool, name: &str, size: usize) -> Vec<MailReply> {
    let mut mail = if lmtp {
        Mail::lmtp(server.ports.lmtp)
    } else {
        Mail::smtp(server.ports.smtp)
    }
    .unwrap();
    let to = [ACCOUNTS[0].0, ACCOUNTS[1].0];
    mail.deliver("carl@example.net", &to, &message::bytes(name, size), lmtp)
        .unwrap()
}

/// Whatever can be read can be read: by IMAP in a session that was there and in a new one, by POP3.
fn reading_works(server: &Server, old: &mut Imap, expected: &[String], size: usize) {
    assert_eq!(names(server, old, size), expected);
    let mut new = server.anne();
    assert_eq!(names(server, &mut new, size), expected);
    // Not only by looking: SELECT, and a FETCH that would set \Seen, which is no reason to withhold the text.
    let _ = new.command("SELECT INBOX").unwrap().ok("SELECT");
    let fetched = new.command("FETCH 1 BODY[]").unwrap().ok("FETCH");
    let body = fetched
        .fetched()
        .find_map(|(_, items)| items.bytes("BODY[]"));
    assert!(body.unwrap().ends_with(&message::bytes(&expected[0], size)));
    let mut pop3: Pop3 = server.anne_pop3();
    assert_eq!(pop3.lines("UIDL").unwrap().len(), expected.len());
    let text = pop3.fetch("RETR 1").unwrap();
    assert!(text.ends_with(&message::bytes(&expected[0], size)));
}

/// Waits until nothing is on its way into a mailbox.
fn wait_until_delivered(server: &Server) {
    wait_for("the delivery", || {
        let page = server.http("/metrics");
        page.lines()
            .any(|line| line == "whimbrel_queue_entries 0")
            .then_some(())
    });
}

/// Appends until the disk takes no more: a journal may have some room laid out already.
fn until_refused(imap: &mut Imap, all: &mut Vec<String>, size: usize) {
    loop {
        let name = format!("filling-{}", all.len());
        let reply = imap.append("INBOX", &[], &message::bytes(&name, size));
        let reply = reply.unwrap();
        if reply.status != Status::Ok {
            return assert_unavailable(&reply, "APPEND");
        }
        all.push(name);
    }
}

/// Appends until the disk takes it again, which nobody has to ask for.
fn until_taken(imap: &mut Imap, all: &mut Vec<String>, size: usize) {
    let name = format!("taken-{}", all.len());
    wait_for("writes to be taken again", || {
        let reply = imap.append("INBOX", &[], &message::bytes(&name, size));
        let reply = reply.unwrap();
        if reply.status != Status::Ok {
            assert_unavailable(&reply, "APPEND");
            return None;
        }
        Some(())
    });
    all.push(name);
}

/// How often the store took writes again after a time in which it did not.
fn times_opened_again(server: &Server) -> usize {
    let log = server.log();
    let refused = log.matches("storage takes no writes").count();
    let again = log.matches("storage takes writes again").count();
    assert!(again <= refused, "{log}");
    again
}

/// Whoever writes hears the temporary error of his protocol.
fn writing_is_refused(server: &Server, imap: &mut Imap, size: usize) {
    let _ = imap.command("EXAMINE Archive").unwrap().ok("EXAMINE");
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    for command in [
        "STORE 1 +FLAGS (\\Answered)",
        "STORE 1 +FLAGS (\\Deleted)",
        "CREATE new",
        "COPY 1 Archive",
    ] {
        assert_unavailable(&imap.command(command).unwrap(), command);
    }
    let large = imap.append("INBOX", &[], &message::bytes("refused", 1 << 20));
    assert_unavailable(&large.unwrap(), "APPEND of a large message");
    let replies = by_mail(server, true, "refused", size);
    assert_eq!(replies.len(), 2, "one for each recipient");
    for reply in replies
        .iter()
        .chain(&by_mail(server, false, "refused", size))
    {
        assert!(matches!(reply.code, 451 | 452), "{reply:?}");
        assert!(reply.lines[0].starts_with("4.3."), "{reply:?}");
    }
    let mut pop3 = server.anne_pop3();
    pop3.command("DELE 1").unwrap().expect("DELE");
    let quit = pop3.command("QUIT").unwrap();
    assert!(!quit.ok && quit.text.starts_with("[SYS/TEMP] "), "{quit:?}");
}

/// A start waits for its disk: the log says so with these words, and clients hear the temporary error of their protocol in place of a greeting.
fn waits_for_its_disk(server: &mut Server, words: &[&str]) {
    let earlier = server.log().lines().count();
    server.launch(&[]);
    wait_for("the log to say so", || {
        let log = server.log();
        let says = |line: &str| {
            line.contains("nothing is served until the disk takes writes")
                && words.iter().all(|word| line.contains(word))
        };
        log.lines().skip(earlier).any(says).then_some(())
    });
    let hears = |wire: whimbrel_e2e::wire::Result<Wire>, start: &str| {
        let mut wire = wire.unwrap();
        let line = String::from_utf8(wire.line().unwrap()).unwrap();
        assert!(line.starts_with(start), "{line}");
        assert!(matches!(wire.line(), Err(Trouble::Closed)), "{start}");
    };
    let ports = server.ports;
    for (clear, by_tls, start) in [
        (ports.imap, Some(ports.imaps), "* BYE [UNAVAILABLE] "),
        (ports.pop3, Some(ports.pop3s), "-ERR [SYS/TEMP] "),
        (ports.submission, Some(ports.submissions), "421 4.3.2 "),
        (ports.smtp, None, "421 4.3.2 "),
        (ports.lmtp, None, "421 4.3.2 "),
    ] {
        hears(Wire::clear(clear), start);
        if let Some(port) = by_tls {
            hears(Wire::tls(port, &server.tls), start);
        }
    }
    assert!(server.http("/healthz").starts_with("HTTP/1.1 200 "));
    assert!(server.http("/readyz").starts_with("HTTP/1.1 503 "));
    // The directory is this process's; an administrator who writes into it is told.
    assert!(!server.admin(&["account", "list"], "").success);
}

/// A start fails, and its last line holds all these words.
fn does_not_start(server: &mut Server, words: &[&str]) {
    server.launch(&[]);
    assert_eq!(server.wait_end(), 1);
    wait_for("the reason", || {
        let log = server.tail();
        let last = log.lines().next_back()?;
        words.iter().all(|word| last.contains(word)).then_some(())
    });
}

/// Each way of writing is acknowledged; the names that INBOX then has more.
fn writing_works(server: &Server, imap: &mut Imap, mark: &str, size: usize) -> Vec<String> {
    let names: Vec<String> = ["lmtp", "smtp", "append"]
        .iter()
        .map(|way| format!("{mark}-{way}"))
        .collect();
    for (name, lmtp) in names.iter().zip([true, false]) {
        // One after the other, so that their order is known.
        let mut watch = server.anne();
        let status = watch.command("STATUS INBOX (MESSAGES)").unwrap();
        let before = status.status_figures()["MESSAGES"];
        let replies = by_mail(server, lmtp, name, size);
        assert!(replies.iter().all(|reply| reply.is(2)), "{replies:?}");
        server.wait_count(&mut watch, "INBOX", before + 1);
    }
    let message = message::bytes(&names[2], size);
    let _ = imap.append("INBOX", &[], &message).unwrap().ok("APPEND");
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    let store = "STORE 1 +FLAGS (\\Flagged)";
    let _ = imap.command(store).unwrap().ok("STORE");
    names
}
