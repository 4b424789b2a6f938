//! offlineimap: synchronization in both directions with a maildir (messages, flags, deletions), and a run that finds nothing to do.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use whimbrel_e2e::{message, process::run, server::Server};

use super::{ANNE, PASSWORD, maildir_flags, program};

/// Name of a message to its flags, as maildirs write them.
type Side = BTreeMap<String, String>;

const SIZE: usize = 1500;

/// One run; what it said.
fn sync(server: &Server) -> String {
    let at = server.path("");
    let at = at.display();
    let rc = server.path("offlineimaprc");
    // A percent sign would be an interpolation: there is none in the password.
    let text = format!(
        "[general]\naccounts = test\nmetadata = {at}/metadata\nui = basic\n\n\
         [Account test]\nlocalrepository = near\nremoterepository = far\n\n\
         [Repository near]\ntype = Maildir\nlocalfolders = {at}/mail\n\n\
         [Repository far]\ntype = IMAP\nremotehost = localhost\nremoteport = {}\nremoteuser = {ANNE}\nremotepass = {PASSWORD}\n\
         ssl = yes\nssl_version = tls1_2\nstarttls = no\nsslcacertfile = {at}/authority.pem\nmaxconnections = 1\n",
        server.ports.imaps
    );
    fs::write(&rc, text).unwrap();
    let mut command = program(server, "offlineimap");
    command.args(["-o", "-c"]).arg(&rc);
    let done = run(&mut command, b"");
    assert!(
        done.success && !done.stderr.contains("ERROR") && !done.stdout.contains("ERROR"),
        "{}\n{}",
        done.stdout,
        done.stderr
    );
    done.stdout + &done.stderr
}

/// The files of a maildir, by the name of the message, which must be whole.
fn files(directory: &Path) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    for sub in ["cur", "new"] {
        for entry in fs::read_dir(directory.join(sub)).unwrap().flatten() {
            let text = String::from_utf8(fs::read(entry.path()).unwrap()).unwrap();
            let text = text.replace('\n', "\r\n");
            let name = message::name_of(text.as_bytes()).expect("a name");
            assert_eq!(text.as_bytes(), message::bytes(&name, SIZE), "{name}");
            assert!(files.insert(name, entry.path()).is_none(), "twice");
        }
    }
    files
}

fn near(directory: &Path) -> Side {
    let flags = |path: &Path| {
        let file = path.file_name().unwrap().to_str().unwrap();
        let flags = file.split_once(":2,").map_or("", |(_, flags)| flags);
        flags.to_owned()
    };
    files(directory)
        .into_iter()
        .map(|(name, path)| (name, flags(&path)))
        .collect()
}

fn far(server: &Server) -> Side {
    let mut imap = server.anne();
    let mut side = Side::new();
    for found in server.contents(&mut imap, "INBOX").unwrap().messages {
        let name = message::name_of(&found.bytes).expect("a name");
        assert_eq!(found.bytes, message::bytes(&name, SIZE), "{name}");
        let flags = maildir_flags(&found.flags);
        assert!(side.insert(name, flags).is_none());
    }
    side
}

#[test]
#[ignore = "long: offlineimap"]
fn both_ways() {
    let server = Server::start_plain();
    let inbox = server.path("mail/INBOX");
    let mut imap = server.anne();
    for n in 0..6 {
        let flags: &[&str] = if n == 1 { &["\\Seen"] } else { &[] };
        let text = message::bytes(&format!("far-{n}"), SIZE);
        let _ = imap.append("INBOX", flags, &text).unwrap().ok("APPEND");
    }
    let first = sync(&server);
    assert_eq!(first.matches("Copy message").count(), 6, "{first}");
    assert_eq!(near(&inbox), far(&server));
    assert_eq!(near(&inbox)["far-1"], "S");

    // A flag, a deletion and a message on each side.
    let here = files(&inbox);
    let seen = here["far-2"].file_name().unwrap().to_str().unwrap();
    let seen = seen.split(":2,").next().unwrap();
    fs::rename(&here["far-2"], inbox.join(format!("cur/{seen}:2,RS"))).unwrap();
    fs::remove_file(&here["far-3"]).unwrap();
    let text = String::from_utf8(message::bytes("near-1", SIZE)).unwrap();
    fs::write(inbox.join("new/1.near.host"), text.replace("\r\n", "\n")).unwrap();
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    let _ = imap
        .command("STORE 5 +FLAGS (\\Flagged)")
        .unwrap()
        .ok("STORE");
    let _ = imap
        .command("STORE 6 +FLAGS (\\Deleted)")
        .unwrap()
        .ok("STORE");
    let _ = imap.command("EXPUNGE").unwrap().ok("EXPUNGE");
    let text = message::bytes("far-new", SIZE);
    let _ = imap.append("INBOX", &[], &text).unwrap().ok("APPEND");
    let _ = sync(&server);
    let expected: Side = [
        ("far-0", ""),
        ("far-1", "S"),
        ("far-2", "RS"),
        ("far-4", "F"),
        ("far-new", ""),
        ("near-1", ""),
    ]
    .into_iter()
    .map(|(name, flags)| (name.to_owned(), flags.to_owned()))
    .collect();
    // A deletion there reaches here in a run, and one here there.
    assert_eq!(near(&inbox), expected, "here");
    assert_eq!(far(&server), expected, "there");

    let before: Vec<PathBuf> = files(&inbox).into_values().collect();
    let second = sync(&server);
    for word in ["Copy", "Delet", "flag"] {
        assert!(!second.contains(word), "nothing is left to do: {second}");
    }
    assert_eq!(files(&inbox).into_values().collect::<Vec<_>>(), before);
    assert_eq!(far(&server), expected);
    server.assert_no_panic();
}
