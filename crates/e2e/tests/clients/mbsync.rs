//! mbsync: two-way synchronization of 1,000 messages, changes on both sides, and a run that finds nothing to do.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use whimbrel_e2e::{
    imap::{Imap, Status, append_command, set_of},
    message,
    process::run,
    server::Server,
};

use super::{ANNE, PASSWORD, maildir_flags, program};

const AT_SERVER: usize = 700;
const HERE: usize = 300;

fn configure(server: &Server) {
    let text = format!(
        "IMAPAccount server\nHost localhost\nPort {}\nUser {ANNE}\nPass \"{PASSWORD}\"\nSSLType IMAPS\nSystemCertificates no\n\
         CertificateFile {}\n\nIMAPStore far\nAccount server\n\nMaildirStore near\nPath {}/\nInbox {}\nSubFolders Verbatim\n\n\
         Channel all\nFar :far:\nNear :near:\nPatterns *\nCreate Both\nExpunge Both\nSyncState *\n",
        server.ports.imaps,
        server.path("authority.pem").display(),
        server.path("mail").display(),
        server.path("mail/INBOX").display(),
    );
    fs::write(server.path("mbsyncrc"), text).unwrap();
}

fn mbsync(server: &Server) -> String {
    let mut command = program(server, "mbsync");
    command
        .arg("--config")
        .arg(server.path("mbsyncrc"))
        .args(["--all", "--verbose"]);
    let done = run(&mut command, b"");
    assert!(done.success, "mbsync: {}\n{}", done.stdout, done.stderr);
    done.stdout
}

/// Name of a message to the flags that both sides know: what a synchronized mailbox must agree on.
type Side = BTreeMap<String, String>;

/// A maildir: names, and flags from the file names (`:2,FS`). Messages must have the right bytes.
fn near(directory: &Path) -> Side {
    let mut side = Side::new();
    for sub in ["cur", "new"] {
        for entry in fs::read_dir(directory.join(sub)).unwrap().flatten() {
            let file = entry.file_name().into_string().unwrap();
            let flags = file.split_once(":2,").map_or("", |(_, flags)| flags);
            let bytes = fs::read(entry.path()).unwrap();
            // A maildir has the line ends of its system; mbsync converts.
            let text = String::from_utf8(bytes).unwrap().replace('\n', "\r\n");
            let name = judge(text.as_bytes());
            assert!(
                side.insert(name.clone(), flags.to_owned()).is_none(),
                "{name} twice in {}",
                directory.display()
            );
        }
    }
    side
}

/// The same from the server.
fn far(server: &Server, imap: &mut Imap, mailbox: &str) -> Side {
    let mut side = Side::new();
    for message in server.contents(imap, mailbox).unwrap().messages {
        let flags = maildir_flags(&message.flags);
        let name = judge(&message.bytes);
        assert!(
            side.insert(name.clone(), flags).is_none(),
            "{name} twice in {mailbox}"
        );
    }
    side
}

/// The name of a message, which must have all of its bytes; mbsync may have added its X-TUID while it carried it.
fn judge(bytes: &[u8]) -> String {
    let name = message::name_of(bytes).expect("a message of ours");
    let expected = message::bytes(&name, size_of(&name));
    let lines = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes)
            .lines()
            .filter(|line| !line.starts_with("X-TUID: "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(bytes), lines(&expected), "{name}");
    name
}

fn size_of(name: &str) -> usize {
    500 + name.len() * name.bytes().map(usize::from).sum::<usize>() % 3000
}

fn put_near(directory: &Path, name: &str, flags: &str) {
    for sub in ["cur", "new", "tmp"] {
        fs::create_dir_all(directory.join(sub)).unwrap();
    }
    let text = String::from_utf8(message::bytes(name, size_of(name)))
        .unwrap()
        .replace("\r\n", "\n");
    let place = if flags.is_empty() {
        format!("new/1.{name}.host")
    } else {
        format!("cur/1.{name}.host:2,{flags}")
    };
    fs::write(directory.join(place), text).unwrap();
}

/// The file of a message in a maildir.
fn file_of(directory: &Path, name: &str) -> PathBuf {
    let needle = format!("{}: {name}\n", message::NAME_FIELD);
    ["cur", "new"]
        .iter()
        .flat_map(|sub| fs::read_dir(directory.join(sub)).unwrap().flatten())
        .map(|entry| entry.path())
        .find(|path| fs::read_to_string(path).unwrap().contains(&needle))
        .unwrap_or_else(|| panic!("{name} is not here"))
}

fn set_near_flags(directory: &Path, name: &str, flags: &str) {
    let old = file_of(directory, name);
    let file = old
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .split(":2,")
        .next()
        .unwrap()
        .to_owned();
    fs::rename(&old, directory.join(format!("cur/{file}:2,{flags}"))).unwrap();
}

/// Everything below a directory that says what a run did: file names and bytes, times apart.
fn snapshot(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut left = vec![directory.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
            } else {
                files.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

fn uids(server: &Server, imap: &mut Imap, mailbox: &str) -> BTreeMap<String, u32> {
    server
        .contents(imap, mailbox)
        .unwrap()
        .messages
        .iter()
        .map(|message| (judge(&message.bytes), message.uid))
        .collect()
}

#[test]
fn both_ways() {
    let server = Server::start_plain();
    configure(&server);
    let inbox = server.path("mail/INBOX");
    let mut imap = server.anne();
    // Pipelined: all commands, then all answers.
    let mut tags = Vec::new();
    for n in 0..AT_SERVER {
        let name = format!("far-{n}");
        let flags: &[&str] = if n % 3 == 0 { &["\\Seen"] } else { &[] };
        tags.push(
            imap.send(&append_command(
                "INBOX",
                flags,
                &message::bytes(&name, size_of(&name)),
            ))
            .unwrap(),
        );
    }
    for tag in tags {
        assert_eq!(imap.reply(&tag).unwrap().status, Status::Ok);
    }
    for n in 0..HERE {
        put_near(
            &inbox,
            &format!("near-{n}"),
            if n % 4 == 0 { "S" } else { "" },
        );
    }

    // First run: both sides have all.
    let _ = mbsync(&server);
    let both = far(&server, &mut imap, "INBOX");
    assert_eq!(both.len(), AT_SERVER + HERE);
    assert_eq!(both, near(&inbox));
    assert_eq!(
        (
            both["far-3"].as_str(),
            both["far-4"].as_str(),
            both["near-4"].as_str(),
            both["near-5"].as_str()
        ),
        ("S", "", "S", "")
    );
    for name in ["Drafts", "Sent", "Archive", "Junk", "Trash"] {
        assert!(
            server.path("mail").join(name).join("cur").is_dir(),
            "{name} was created here"
        );
    }

    // Changes on both sides: flags, deletions, new messages, a new mailbox each.
    let uid_of = uids(&server, &mut imap, "INBOX");
    let set = |names: &mut dyn Iterator<Item = String>| {
        let mut numbers: Vec<u32> = names.map(|name| uid_of[&name]).collect();
        numbers.sort_unstable();
        set_of(&numbers)
    };
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    let flagged = set(&mut (0..50).map(|n| format!("far-{n}")));
    let _ = imap
        .command(&format!("UID STORE {flagged} +FLAGS.SILENT (\\Flagged)"))
        .unwrap()
        .ok("STORE");
    let gone = set(&mut (50..80).map(|n| format!("near-{n}")));
    let _ = imap
        .command(&format!("UID STORE {gone} +FLAGS.SILENT (\\Deleted)"))
        .unwrap()
        .ok("STORE");
    let _ = imap
        .command(&format!("UID EXPUNGE {gone}"))
        .unwrap()
        .ok("UID EXPUNGE");
    let _ = imap
        .command("CREATE \"from the server\"")
        .unwrap()
        .ok("CREATE");
    for n in 0..20 {
        let name = format!("later-far-{n}");
        let _ = imap
            .append("INBOX", &[], &message::bytes(&name, size_of(&name)))
            .unwrap()
            .ok("APPEND");
        let name = format!("other-far-{n}");
        let _ = imap
            .append(
                "from the server",
                &["\\Answered"],
                &message::bytes(&name, size_of(&name)),
            )
            .unwrap()
            .ok("APPEND");
    }
    for n in 100..150 {
        set_near_flags(&inbox, &format!("far-{n}"), "RS");
    }
    for n in 200..230 {
        fs::remove_file(file_of(&inbox, &format!("far-{n}"))).unwrap();
    }
    for n in 0..20 {
        put_near(&inbox, &format!("later-near-{n}"), "F");
        put_near(
            &server.path("mail/from here"),
            &format!("other-near-{n}"),
            "",
        );
    }

    // Second run: each side has the other's changes.
    let _ = mbsync(&server);
    let both = far(&server, &mut imap, "INBOX");
    assert_eq!(both.len(), AT_SERVER + HERE - 30 - 30 + 40);
    assert_eq!(both, near(&inbox));
    for n in 0..50 {
        assert!(both[&format!("far-{n}")].contains('F'), "far-{n}");
    }
    for n in 100..150 {
        assert_eq!(both[&format!("far-{n}")], "RS", "far-{n}");
    }
    for n in 0..30 {
        assert!(
            !both.contains_key(&format!("near-{}", 50 + n))
                && !both.contains_key(&format!("far-{}", 200 + n))
        );
    }
    assert_eq!(both["later-near-7"], "F");
    for (mailbox, name) in [
        ("from the server", "other-far"),
        ("from here", "other-near"),
    ] {
        let both = far(&server, &mut imap, mailbox);
        assert_eq!(both.len(), 20, "{mailbox}");
        assert_eq!(both, near(&server.path("mail").join(mailbox)), "{mailbox}");
        assert!(
            (0..20).all(|n| both.contains_key(&format!("{name}-{n}"))),
            "{mailbox}"
        );
    }

    // Third run: nothing to do, nothing done. What mbsync pushed in the second lies above the UIDs that it had pulled; it knows those messages
    // by their pairs and now counts them as pulled, unless their UIDs follow one another without a gap, which no server owes it.
    let third = unchanged_by_a_run(&server, &mut imap);
    assert!(
        third.iter().all(|line| line.starts_with("MaxPulledUid ")),
        "changed by the third run: {third:?}"
    );
    // Fourth run: not even that.
    assert_eq!(unchanged_by_a_run(&server, &mut imap), Vec::<String>::new());
    server.assert_no_panic();
}

/// Runs mbsync, which must change nothing at the server and no file here, its own notes apart; the lines of those that are new.
fn unchanged_by_a_run(server: &Server, imap: &mut Imap) -> Vec<String> {
    let notes = |path: &PathBuf| path.ends_with(".mbsyncstate");
    let before = (snapshot(&server.path("mail")), everything(server, imap));
    assert!(
        before.0.keys().any(notes),
        "where mbsync keeps what it knows"
    );
    let _ = mbsync(server);
    let after = (snapshot(&server.path("mail")), everything(server, imap));
    assert!(before.1 == after.1, "changed at the server");
    assert!(before.0.keys().eq(after.0.keys()), "files came or went");
    let mut lines = Vec::new();
    for (path, bytes) in &after.0 {
        let old = &before.0[path];
        if notes(path) {
            let known: Vec<&str> = std::str::from_utf8(old).unwrap().lines().collect();
            let text = std::str::from_utf8(bytes).unwrap();
            lines.extend(
                text.lines()
                    .filter(|line| !known.contains(line))
                    .map(str::to_owned),
            );
        } else {
            assert!(old == bytes, "changed here: {}", path.display());
        }
    }
    lines
}

/// All mailboxes with UIDVALIDITY, UIDNEXT, UIDs, flags and bytes.
fn everything(
    server: &Server,
    imap: &mut Imap,
) -> BTreeMap<String, whimbrel_e2e::server::Contents> {
    let listed = imap.command("LIST \"\" *").unwrap().ok("LIST");
    let names: Vec<String> = listed
        .data("LIST")
        .iter()
        .filter_map(|nodes| nodes.get(2))
        .map(whimbrel_e2e::imap::Node::text)
        .collect();
    names
        .into_iter()
        .map(|name| (name.clone(), server.contents(imap, &name).unwrap()))
        .collect()
}
