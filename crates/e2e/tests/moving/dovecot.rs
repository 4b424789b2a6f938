//! Dovecot as source by IMAP, its Maildir as source, and as reader of what is exported. The steps are those of docs/moving.md.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use whimbrel_e2e::{
    imap::{Imap, append_command},
    message,
    process::{self, run, wait_for},
    server::{Server, free_port},
};

use super::{ANNE, BOB, account};

struct Dovecot {
    child: Child,
    imap: u16,
    imaps: u16,
    root: PathBuf,
}

impl Drop for Dovecot {
    fn drop(&mut self) {
        process::signal(self.child.id(), "TERM");
        let _ = self.child.wait();
    }
}

impl Dovecot {
    /// Dovecot as Debian has it, with Maildirs; started by root, mail belongs to nobody.
    fn start(server: &Server) -> Dovecot {
        let root = server.path("dovecot");
        fs::create_dir_all(root.join("mail")).unwrap();
        let (imap, imaps) = (free_port(), free_port());
        for path in [server.path(""), root.clone(), server.path("key.pem")] {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let (at, tls) = (root.display(), server.path(""));
        let text = format!(
            "base_dir = {at}/run\nstate_dir = {at}/state\nlog_path = {at}/log\nprotocols = imap\nlisten = 127.0.0.1\n\
             ssl = yes\nssl_cert = <{tls}/certificate.pem\nssl_key = <{tls}/key.pem\ndisable_plaintext_auth = no\n\
             mail_location = maildir:{at}/mail/%u\nmail_uid = nobody\nmail_gid = nogroup\nfirst_valid_uid = 1\n\
             passdb {{\n  driver = static\n  args = password=secret\n}}\n\
             userdb {{\n  driver = static\n  args = uid=nobody gid=nogroup home={at}/mail/%u\n}}\n\
             namespace inbox {{\n  inbox = yes\n  separator = .\n  prefix = INBOX.\n\
             \x20 mailbox Gesendet {{\n    auto = create\n    special_use = \\Sent\n  }}\n}}\n\
             service imap-login {{\n  inet_listener imap {{\n    port = {imap}\n  }}\n\
             \x20 inet_listener imaps {{\n    port = {imaps}\n    ssl = yes\n  }}\n}}\n",
            tls = tls.display()
        );
        fs::write(root.join("dovecot.conf"), text).unwrap();
        let log = File::create(root.join("out")).unwrap();
        let mut command = Command::new("dovecot");
        command.arg("-F").arg("-c").arg(root.join("dovecot.conf"));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        own(&root.join("mail"));
        let dovecot = Dovecot {
            child: command.spawn().unwrap(),
            imap,
            imaps,
            root,
        };
        wait_for("Dovecot", || Imap::connect_clear(imap).ok());
        dovecot
    }

    fn login(&self, user: &str) -> Imap {
        let mut imap = Imap::connect_clear(self.imap).unwrap();
        let _ = imap
            .command(&format!("LOGIN {user} secret"))
            .unwrap()
            .ok("LOGIN");
        imap
    }
}

/// Gives files to who reads mail there.
fn own(path: &Path) {
    let _ = run(
        Command::new("chown")
            .args(["-R", "nobody:nogroup"])
            .arg(path),
        b"",
    )
    .expect("chown");
}

fn command(imap: &mut Imap, line: &str) {
    let _ = imap.command(line).unwrap().ok(line);
}

#[test]
#[ignore = "long: Dovecot"]
fn from_dovecot_and_back() {
    let server = Server::start_plain();
    let dovecot = Dovecot::start(&server);
    let mut old = dovecot.login("anne");
    for name in [
        "INBOX.Work",
        "INBOX.Work.Entw&APw-rfe",
        "INBOX.Empty",
        "INBOX.a_b",
    ] {
        command(&mut old, &format!("CREATE {name}"));
    }
    for name in ["INBOX.Work", "INBOX.Work.Entw&APw-rfe"] {
        command(&mut old, &format!("SUBSCRIBE {name}"));
    }
    let add = |old: &mut Imap, folder: &str, flags: &[&str], name: &str, size: usize| {
        let text =
            String::from_utf8(append_command(folder, flags, &message::bytes(name, size))).unwrap();
        let dated = text.replacen(") {", ") \"01-Feb-2003 04:05:06 +0200\" {", 1);
        let _ = old.raw_command(dated.as_bytes()).unwrap().ok("APPEND");
    };
    for number in 0..700 {
        add(&mut old, "INBOX", &["\\Seen"], &format!("i{number}"), 300);
    }
    add(
        &mut old,
        "INBOX.Work",
        &["$Forwarded", "Blue", "\\Flagged"],
        "words",
        900,
    );
    add(&mut old, "INBOX.Work", &[], "large", 2_500_000);
    add(
        &mut old,
        "INBOX.Work.Entw&APw-rfe",
        &["\\Draft"],
        "deep",
        900,
    );
    add(&mut old, "INBOX.Gesendet", &["\\Answered"], "sent", 900);
    let (port, tls_port) = (dovecot.imap.to_string(), dovecot.imaps.to_string());
    let ca = server.path("authority.pem");
    let ca = ca.to_str().unwrap();

    // A certificate that nobody vouches for, and a wrong password.
    let by_tls = [
        "import",
        "imap",
        ANNE,
        "localhost",
        "anne",
        "--port",
        &tls_port,
        "--password-stdin",
    ];
    let refused = server.admin(&by_tls, "secret");
    assert!(
        refused.code == 1 && refused.stderr.contains("TLS"),
        "{refused:?}"
    );
    let refused = server.admin(&[&by_tls[..], &["--ca", ca]].concat(), "wrong");
    assert!(
        refused.code == 1 && refused.stderr.contains("refused the login of anne"),
        "{refused:?}"
    );

    let done = server.admin(&[&by_tls[..], &["--ca", ca]].concat(), "secret");
    assert!(
        done.success && done.stdout.contains("704 messages imported, 0 already"),
        "{done:?}"
    );
    assert!(done.stderr.contains("Gesendet goes into Sent"), "{done:?}");
    let mut anne = server.anne();
    let found = account(&mut anne);
    let expected = account(&mut old);
    let theirs = |name: &str| &expected.folders[name];
    for (ours, name) in [
        ("INBOX", "INBOX"),
        ("Work", "INBOX.Work"),
        ("Work/Entw&APw-rfe", "INBOX.Work.Entw&APw-rfe"),
        ("Empty", "INBOX.Empty"),
        ("Sent", "INBOX.Gesendet"),
    ] {
        assert_eq!(&found.folders[ours], theirs(name), "{name}");
    }
    assert!(!found.folders.contains_key("Gesendet"));
    assert!(
        found.subscribed.contains("Work/Entw&APw-rfe"),
        "{:?}",
        found.subscribed
    );

    // By the other port, and what came since.
    let again = [
        "import",
        "imap",
        ANNE,
        "localhost",
        "anne",
        "--port",
        &tls_port,
        "--password-stdin",
        "--ca",
        ca,
    ];
    add(&mut old, "INBOX", &[], "late", 300);
    let done = server.admin(&again, "secret");
    assert!(
        done.success && done.stdout.contains("1 message imported, 704 already here"),
        "{done:?}"
    );
    for (way, who) in [
        ("--starttls", "1@example.org"),
        ("--clear", "2@example.org"),
    ] {
        let _ = server
            .admin(&["account", "add", who, "--password-stdin"], "secret")
            .expect("account add");
        let words = [
            "import",
            "imap",
            who,
            "localhost",
            "anne",
            "--port",
            &port,
            way,
            "--password-stdin",
            "--ca",
            ca,
        ];
        let done = server.admin(&words, "secret");
        assert!(
            done.success && done.stdout.contains("705 messages imported"),
            "{done:?}"
        );
    }

    // Its Maildir.
    let maildir = dovecot.root.join("mail/anne");
    let done = server.admin(&["import", "maildir", BOB, maildir.to_str().unwrap()], "");
    assert!(
        done.success && done.stdout.contains("705 messages imported"),
        "{done:?}"
    );
    let mut bob = server.login(whimbrel_e2e::server::ACCOUNTS[1]).unwrap();
    let found = account(&mut bob);
    let expected = account(&mut old);
    for (ours, name) in [
        ("INBOX", "INBOX"),
        ("Work", "INBOX.Work"),
        ("Gesendet", "INBOX.Gesendet"),
    ] {
        assert_eq!(found.folders[ours], expected.folders[name], "{name}");
    }

    // Back: Dovecot reads what is exported.
    let out = dovecot.root.join("mail/back");
    let done = server.admin(&["export", ANNE, "maildir", out.to_str().unwrap()], "");
    assert!(done.success, "{done:?}");
    own(&out);
    let back = account(&mut dovecot.login("back"));
    let found = account(&mut anne);
    for (ours, name) in [
        ("INBOX", "INBOX"),
        ("Work", "INBOX.Work"),
        ("Work/Entw&APw-rfe", "INBOX.Work.Entw&APw-rfe"),
        ("Sent", "INBOX.Sent"),
    ] {
        assert_eq!(back.folders[name], found.folders[ours], "{name}");
    }
    assert!(
        back.subscribed.contains("INBOX.Work.Entw&APw-rfe"),
        "{:?}",
        back.subscribed
    );
}
