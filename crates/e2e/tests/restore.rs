//! An older copy of the data directory is put back, in every way that an administrator may do it: a client that caches by UID is not deceived.
//!
//! A strict client ([`Witness`]) looks before the copy is made, after more has been done, and after the copy was put back and still more was
//! done: no UID may denote two messages, and what is new may not lie below a UIDNEXT that it was told, also in the time that is lost.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use whimbrel_e2e::{
    imap::Imap,
    mail::Mail,
    message,
    server::{ACCOUNTS, Server},
    uid_history::Witness,
};

const MAILBOXES: [&str; 3] = ["INBOX", "Archive", "Trash"];

/// A server, what its client has cached, and a number for the next message.
struct Scene {
    server: Server,
    witness: Witness,
    next: u64,
}

impl Scene {
    fn new() -> Scene {
        Scene {
            server: Server::start_plain(),
            witness: Witness::default(),
            next: 0,
        }
    }

    fn data(&self) -> PathBuf {
        self.server.path("data")
    }

    /// Everything that gives UIDs; nothing is repeated, so that no two times give the same ones to the same messages.
    fn work(&mut self) {
        let mut imap = self.server.anne();
        for mailbox in MAILBOXES {
            for _ in 0..5 {
                let bytes = self.message();
                let _ = imap.append(mailbox, &[], &bytes).unwrap().ok("APPEND");
            }
        }
        let mut lmtp = Mail::lmtp(self.server.ports.lmtp).unwrap();
        let _ = lmtp.command("LHLO client.example.net").unwrap();
        let before = self
            .server
            .contents(&mut imap, "INBOX")
            .unwrap()
            .messages
            .len();
        for _ in 0..3 {
            let bytes = self.message();
            let replies = lmtp.deliver("carl@example.net", &[ACCOUNTS[0].0], &bytes, true);
            assert!(replies.unwrap().iter().all(|reply| reply.is(2)));
        }
        self.server
            .wait_count(&mut imap, "INBOX", before as u64 + 3);
        let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
        for command in [
            "COPY 1:2 Archive",
            "MOVE 3 Trash",
            "STORE 1 +FLAGS (\\Deleted)",
            "EXPUNGE",
        ] {
            let _ = imap.command(command).unwrap().ok(command);
        }
        self.look(&mut imap).unwrap();
    }

    fn message(&mut self) -> Vec<u8> {
        self.next += 1;
        message::bytes(&format!("m{}", self.next), 200)
    }

    /// What a client that caches finds.
    fn look(&mut self, imap: &mut Imap) -> Result<(), String> {
        for mailbox in MAILBOXES {
            let found = self.server.contents(imap, mailbox).unwrap();
            let messages: Vec<(u32, String)> = found
                .messages
                .iter()
                .map(|message| (message.uid, message::name_of(&message.bytes).unwrap()))
                .collect();
            self.witness
                .look(mailbox, found.validity, found.next, &messages)?;
        }
        Ok(())
    }

    /// Lets it be renewed, or not, and looks.
    fn after(&mut self, renewed: bool) {
        let log = self.server.log();
        self.server.start(&[]);
        let said = self.server.log()[log.len()..].contains("new incarnation");
        assert_eq!(said, renewed, "{}", self.server.tail());
        let mut imap = self.server.anne();
        self.look(&mut imap).unwrap();
        self.work();
        self.server.stop();
        // Once is enough.
        let log = self.server.log();
        self.server.start(&[]);
        assert!(!self.server.log()[log.len()..].contains("new incarnation"));
        self.work();
    }
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Makes a copy with `copy`, goes on, puts it back with `put_back` (both are given from and to), goes on.
fn check(copy: impl Fn(&str, &str), put_back: impl Fn(&str, &str)) -> Scene {
    let mut scene = Scene::new();
    scene.work();
    scene.server.stop();
    let (data, backup) = (scene.data(), scene.server.path("backup"));
    copy(text(&data), text(&backup));
    scene.server.start(&[]);
    scene.work();
    scene.server.stop();
    put_back(text(&backup), text(&data));
    scene.after(true);
    scene
}

fn cp(from: &str, to: &str) {
    run("cp", &["-a", from, to]);
}

#[test]
fn a_copy_in_place_of_the_directory() {
    let mut scene = check(cp, |backup, data| {
        fs::remove_dir_all(data).unwrap();
        cp(backup, data);
    });
    // The same once more, on a server that was killed.
    scene.server.kill();
    let (data, backup) = (scene.data(), scene.server.path("backup"));
    fs::remove_dir_all(&data).unwrap();
    cp(text(&backup), text(&data));
    // Whoever goes on from one copy a second time knows nothing of the first: only a client that names a UID of that time raises UIDNEXT
    // (docs/decisions). That no UID denotes two messages holds all the same.
    scene.witness.forget_next();
    scene.after(true);
}

#[test]
fn a_copy_over_the_directory() {
    let over = |backup: &str, data: &str| {
        // What came since goes; what is in both is overwritten where it is.
        fs::remove_dir_all(format!("{data}/store")).unwrap();
        cp(&format!("{backup}/."), data);
    };
    check(cp, over);
}

#[test]
fn a_copy_of_the_store_alone() {
    check(cp, |backup, data| {
        fs::remove_dir_all(format!("{data}/store")).unwrap();
        cp(&format!("{backup}/store"), data);
    });
}

#[test]
fn an_archive() {
    check(
        |data, archive| run("tar", &["-C", data, "-cf", archive, "."]),
        |archive, data| {
            fs::remove_dir_all(data).unwrap();
            fs::create_dir(data).unwrap();
            run("tar", &["-C", data, "-xf", archive]);
        },
    );
}

/// A directory that is moved is no copy: nothing changes.
#[test]
fn a_directory_that_was_moved_and_moved_back() {
    let mut scene = Scene::new();
    scene.work();
    scene.server.stop();
    let (data, elsewhere) = (scene.data(), scene.server.path("elsewhere"));
    fs::rename(&data, &elsewhere).unwrap();
    fs::rename(&elsewhere, &data).unwrap();
    scene.after(false);
}

/// A snapshot below the file system: the very same files with their old contents. Nothing shows it.
fn snapshot() -> Scene {
    let mut scene = Scene::new();
    scene.work();
    scene.server.stop();
    let (data, backup) = (scene.data(), scene.server.path("backup"));
    cp(text(&data), text(&backup));
    // It keeps its place: the start makes a new node.toml beside it.
    let (own, kept) = (data.join("node.toml"), scene.server.path("node.toml"));
    fs::hard_link(&own, &kept).unwrap();
    scene.server.start(&[]);
    scene.work();
    scene.server.stop();
    fs::remove_dir_all(data.join("store")).unwrap();
    cp(text(&backup.join("store")), text(&data));
    fs::rename(&kept, &own).unwrap();
    scene
}

#[test]
fn a_snapshot_and_the_command_for_it() {
    let mut scene = snapshot();
    let before = scene
        .server
        .admin(&["node", "show"], "")
        .expect("node show");
    let renewed = scene
        .server
        .admin(&["node", "renew"], "")
        .expect("node renew");
    assert_ne!(before, renewed);
    assert_eq!(
        renewed,
        scene
            .server
            .admin(&["node", "show"], "")
            .expect("node show")
    );
    scene.after(false);
    let refused = scene.server.admin(&["node", "renew"], "");
    assert!(!refused.success, "while the server runs: {refused:?}");
}

/// That this is what the command is for: without it the client is deceived, so these tests can fail.
#[test]
fn a_snapshot_without_the_command_deceives() {
    let mut scene = snapshot();
    scene.server.start(&[]);
    let mut imap = scene.server.anne().unwatched();
    let looked = scene.look(&mut imap);
    let bytes = scene.message();
    let _ = imap.append("Archive", &[], &bytes).unwrap().ok("APPEND");
    let looked = looked.and_then(|()| scene.look(&mut imap));
    assert!(looked.is_err(), "{looked:?}");
}
