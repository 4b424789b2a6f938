//! `whimbrel import` and `whimbrel export`: what comes from elsewhere is here once and unchanged, however often it is brought, and what is written
//! can be read again.

mod dovecot;
mod hostile;
mod identity;
mod kill;
mod trees;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use whimbrel_e2e::{
    imap::{Imap, parse::Node, quoted},
    message,
    server::{ACCOUNTS, Builder, Server},
};

const ANNE: &str = ACCOUNTS[0].0;
const BOB: &str = ACCOUNTS[1].0;

/// A message: its flags, its date, its bytes.
type Seen = (Vec<String>, String, Vec<u8>);

/// Everything that an account shows: the messages of each folder, sorted, and the subscriptions.
#[derive(Debug, Default, PartialEq, Eq)]
struct Account {
    folders: BTreeMap<String, Vec<Seen>>,
    subscribed: BTreeSet<String>,
}

fn names(imap: &mut Imap, command: &str, of: &str) -> Vec<String> {
    let listed = imap.command(command).unwrap().ok(command);
    let lines = listed.data(of);
    let has_messages = |nodes: &&[Node]| match &nodes[0] {
        Node::List(attributes) => !attributes.iter().any(|of| of.is("\\Noselect")),
        _ => true,
    };
    let selectable = lines.into_iter().filter(has_messages);
    selectable
        .map(|nodes| nodes.last().unwrap().text())
        .collect()
}

fn account(imap: &mut Imap) -> Account {
    let mut account = Account::default();
    for name in names(imap, "LIST \"\" \"*\"", "LIST") {
        let examined = imap.command(&format!("EXAMINE {}", quoted(&name))).unwrap();
        let mut seen = Vec::new();
        if examined.ok("EXAMINE").exists() != Some(0) {
            let fetched = imap.command("FETCH 1:* (FLAGS INTERNALDATE BODY.PEEK[])");
            for (_, items) in fetched.unwrap().ok("FETCH").fetched() {
                let date = items.get("INTERNALDATE").unwrap().text();
                let bytes = items.bytes("BODY[]").unwrap().to_vec();
                seen.push((items.flags().unwrap(), date, bytes));
            }
        }
        seen.sort();
        account.folders.insert(name, seen);
    }
    account.subscribed = names(imap, "LSUB \"\" \"*\"", "LSUB").into_iter().collect();
    account
}

fn write(path: &Path, bytes: &[u8], seconds: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(time)
        .unwrap();
}

fn lf(bytes: &[u8]) -> Vec<u8> {
    String::from_utf8(bytes.to_vec())
        .unwrap()
        .replace("\r\n", "\n")
        .into_bytes()
}

/// A Maildir as Dovecot makes them.
fn maildir(root: &Path) {
    for folder in ["", ".Work", ".Work.Entw&APw-rfe", ".Empty"] {
        for part in ["cur", "new", "tmp"] {
            fs::create_dir_all(root.join(folder).join(part)).unwrap();
        }
    }
    let text = |name: &str| lf(&message::bytes(name, 500));
    write(
        &root.join("new/1000000001.a.host"),
        &text("new"),
        1_000_000_001,
    );
    write(
        &root.join("cur/1000000002.b.host,S=9:2,RS"),
        &text("seen"),
        1_000_000_002,
    );
    write(
        &root.join("cur/1000000003.c.host:2,FSab"),
        &text("words"),
        1_000_000_003,
    );
    // A line that is no text costs no other.
    let keywords = b"0 $Label1\n2 W\xfcrde\n1 NonJunk\n";
    write(&root.join("dovecot-keywords"), keywords, 1);
    write(
        &root.join("cur/1000000004.d.host:2,S"),
        b"Subject: crlf\r\n\r\nx\ny\r\n",
        1_000_000_004,
    );
    write(&root.join("cur/.hidden"), b"no message", 1);
    write(&root.join("cur/1000000005.empty:2,"), b"", 1);
    write(&root.join("cur/1000000006.nul:2,"), b"a\0b\n", 1);
    write(
        &root.join(".Work/cur/1000000007.e:2,DT"),
        &text("draft"),
        1_000_000_007,
    );
    write(
        &root.join(".Work.Entw&APw-rfe/new/1000000008.f"),
        &text("deep"),
        1_000_000_008,
    );
    let large = lf(&message::bytes("large", 3_000_000));
    write(&root.join(".Work/new/1000000009.g"), &large, 1_000_000_009);
    write(
        &root.join("subscriptions"),
        b"V\t2\n\nWork\tEntw&APw-rfe\nGone\n",
        1,
    );
}

fn import(server: &Server, words: &[&str], code: i32) -> String {
    let done = server.admin(&[&["import"][..], words].concat(), "");
    assert_eq!(done.code, code, "{words:?}: {done:?}");
    done.stdout + &done.stderr
}

#[test]
fn a_maildir_comes_once_and_goes_out_again() {
    let server = Server::start_plain();
    let root = server.path("Maildir");
    maildir(&root);
    let path = root.to_str().unwrap();
    let dry = import(&server, &["maildir", ANNE, path, "--dry-run"], 0);
    assert!(
        dry.contains("Work/Entwürfe -> Work/Entwürfe: 1 message"),
        "{dry}"
    );
    let mut anne = server.anne();
    assert_eq!(account(&mut anne).folders["INBOX"], []);

    let told = import(&server, &["maildir", ANNE, path], 4);
    assert!(
        told.contains("7 messages imported, 0 already here, 3 skipped; 4 folders;"),
        "{told}"
    );
    assert!(told.contains("empty") && told.contains("NUL"), "{told}");
    let found = account(&mut anne);
    let seen = |flags: &[&str], second: u32, bytes: Vec<u8>| -> Seen {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        (
            flags,
            format!("09-Sep-2001 01:46:{:02} +0000", 40 + second),
            bytes,
        )
    };
    let mut inbox = vec![
        seen(&[], 1, message::bytes("new", 500)),
        seen(&["\\Answered", "\\Seen"], 2, message::bytes("seen", 500)),
        seen(
            &["$Label1", "NonJunk", "\\Flagged", "\\Seen"],
            3,
            message::bytes("words", 500),
        ),
        seen(&["\\Seen"], 4, b"Subject: crlf\r\n\r\nx\ny\r\n".to_vec()),
    ];
    inbox.sort();
    assert_eq!(found.folders["INBOX"], inbox);
    let mut work = vec![
        seen(&["\\Deleted", "\\Draft"], 7, message::bytes("draft", 500)),
        seen(&[], 9, message::bytes("large", 3_000_000)),
    ];
    work.sort();
    assert_eq!(found.folders["Work"], work);
    assert_eq!(
        found.folders["Work/Entw&APw-rfe"],
        [seen(&[], 8, message::bytes("deep", 500))]
    );
    assert_eq!(found.folders["Empty"], []);
    for name in ["Work/Entw&APw-rfe", "Gone"] {
        assert!(found.subscribed.contains(name), "{found:?}");
    }

    // Again: nothing changes, whatever became of the messages here.
    let _ = anne.command("SELECT INBOX").unwrap().ok("SELECT");
    let _ = anne.command("MOVE 1 Empty").unwrap().ok("MOVE");
    let before = account(&mut anne);
    let told = import(&server, &["maildir", ANNE, path], 4);
    assert!(
        told.contains("0 messages imported, 7 already here, 3 skipped"),
        "{told}"
    );
    assert_eq!(account(&mut anne), before);

    // Out and in again.
    for form in ["maildir", "mbox"] {
        let out = server.path(form);
        let out = out.to_str().unwrap();
        let to = format!("{form}@example.org");
        let _ = server
            .admin(&["account", "add", &to, "--password-stdin"], "secret")
            .expect("account add");
        let told = server.admin(&["export", ANNE, form, out], "");
        assert!(
            told.success && told.stdout.contains("7 messages written"),
            "{told:?}"
        );
        let _ = import(&server, &[form, &to, out], 0);
        let mut other = server.login((&to, "secret")).unwrap();
        let mut found = account(&mut other);
        let mut expected = account(&mut anne);
        if form == "mbox" {
            // The one with a line of its own kind.
            assert!(told.stderr.contains("1 message of line ends"), "{told:?}");
            for account in [&mut found, &mut expected] {
                account.folders.values_mut().flatten().for_each(|seen| {
                    seen.2 = String::from_utf8(std::mem::take(&mut seen.2))
                        .unwrap()
                        .replace("\r\n", "\n")
                        .into_bytes();
                });
            }
        }
        assert_eq!(found, expected, "{form}");
        let again = server.admin(&["export", ANNE, form, out], "");
        let there = if form == "maildir" {
            "0 messages written, 7 already there"
        } else {
            "7 messages written"
        };
        assert!(again.stdout.contains(there), "{again:?}");
    }
}

/// While no server runs; with names that are not possible here, or clash.
#[test]
fn without_a_server() {
    let mut server = Builder::default().build();
    let root = server.path("mail");
    let text = "From a@b Sun Sep  9 01:46:41 2001\nSubject: x\nStatus: RO\nX-Keywords: later\n\n>From here\n\n";
    for name in ["a*b", "a_b", "lists/rust.mbox", "inbox"] {
        write(&root.join(name), text.as_bytes(), 1);
    }
    write(&root.join("notes.txt"), b"no mbox", 1);
    write(&root.join(".subscriptions"), b"lists/rust\n", 1);
    let path = root.to_str().unwrap();
    let told = import(&server, &["mbox", BOB, path], 4);
    assert!(
        told.contains(
            "4 messages imported, 0 already here, 0 skipped; 4 folders; other files and folders: 1 skipped, 0 ignored"
        ),
        "{told}"
    );
    assert!(
        told.contains("a*b becomes a_b") && told.contains("a_b becomes a_b (2)"),
        "{told}"
    );
    let told = import(&server, &["mbox", BOB, path, "--into", "old"], 4);
    assert!(
        told.contains("0 messages imported, 4 already here"),
        "{told}"
    );
    let refused = server.admin(&["import", "mbox", "nobody@example.org", path], "");
    assert!(
        refused.code == 1 && refused.stderr.contains("no account"),
        "{refused:?}"
    );
    server.start(&[]);
    let mut bob = server.login(ACCOUNTS[1]).unwrap();
    let found = account(&mut bob);
    assert!(!found.folders.contains_key("notes.txt"), "{found:?}");
    for name in ["a_b", "a_b (2)", "lists/rust", "INBOX"] {
        let expected: Seen = (
            vec!["\\Seen".to_owned(), "later".to_owned()],
            "09-Sep-2001 01:46:41 +0000".to_owned(),
            b"Subject: x\r\n\r\nFrom here\r\n".to_vec(),
        );
        assert_eq!(found.folders[name], [expected], "{name}");
    }
    assert!(found.subscribed.contains("lists/rust"));
}

/// Who is no administrator cannot choose ids.
#[test]
fn clients_cannot_import() {
    let server = Server::start_plain();
    let mut anne = server.anne();
    let id = "0".repeat(32);
    let reply = anne.raw_command(
        format!("APPEND INBOX X-WHIMBREL-IMPORT {id} {id}{id} {{3+}}\r\nx\r\n").as_bytes(),
    );
    assert_eq!(reply.unwrap().status, whimbrel_e2e::imap::Status::Bad);
    assert_eq!(account(&mut anne).folders["INBOX"], []);
}

/// The administrator may read and write more than who owns the directory: links in it lead nowhere.
#[test]
fn links_are_not_followed() {
    let server = Server::start_plain();
    let text = lf(&message::bytes("other", 500));
    let other = server.path("other");
    write(&other.join("cur/1000000001.a.host:2,"), &text, 1);
    let root = server.path("mail");
    write(&root.join("cur/1000000002.b.host:2,"), &text, 1);
    let link = |to: &Path, at: &Path| std::os::unix::fs::symlink(to, at).unwrap();
    link(
        &other.join("cur/1000000001.a.host:2,"),
        &root.join("cur/1000000001.a.host:2,"),
    );
    link(&other, &root.join(".Other"));
    let path = root.to_str().unwrap();
    for layout in [
        &["maildir", ANNE, path][..],
        &["maildir", ANNE, path, "--nested"],
    ] {
        let told = import(&server, layout, 4);
        assert!(
            told.contains("1000000001.a.host:2,: it is a symbolic link"),
            "{told}"
        );
        assert!(told.contains(".Other: it is a symbolic link"), "{told}");
    }
    let found = account(&mut server.anne());
    assert_eq!(found.folders["INBOX"].len(), 1);
    assert!(!found.folders.contains_key("Other"), "{found:?}");

    // And out again, where somebody has prepared the place.
    let precious = server.path("precious");
    write(&precious, b"not to be lost", 1);
    let to = server.path("out");
    fs::create_dir_all(to.join(".Sent")).unwrap();
    link(&precious, &to.join(".Sent/maildirfolder"));
    let told = server.admin(&["export", ANNE, "maildir", to.to_str().unwrap()], "");
    assert_eq!(told.code, 0, "{told:?}");
    assert_eq!(fs::read(&precious).unwrap(), b"not to be lost");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let exported = fs::read_dir(to.join("cur")).unwrap().next().unwrap();
    let exported = name(exported.unwrap());
    let base = exported.split_once(":2,").unwrap().0;
    fs::remove_file(to.join("cur").join(&exported)).unwrap();
    link(&precious, &to.join("tmp").join(base));
    let told = server.admin(&["export", ANNE, "maildir", to.to_str().unwrap()], "");
    assert_eq!(told.code, 0, "{told:?}");
    assert_eq!(fs::read(&precious).unwrap(), b"not to be lost");
    assert_eq!(lf(&fs::read(to.join("cur").join(&exported)).unwrap()), text);
    fs::remove_dir_all(to.join(".Sent")).unwrap();
    link(&other, &to.join(".Sent"));
    let told = server.admin(&["export", ANNE, "maildir", to.to_str().unwrap()], "");
    assert!(
        told.code == 1 && told.stderr.contains(".Sent is a symbolic link"),
        "{told:?}"
    );
}
