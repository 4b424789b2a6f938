//! An export that is imported is the account that was exported: names, messages, flags, keywords, dates and subscriptions.

use whimbrel_e2e::{
    imap::{Imap, Status, quoted},
    message,
    server::Server,
};
use whimbrel_testkit::Rng;

use super::{ANNE, Account, account, import};

/// Names that mean something in a Maildir, in an mbox, or in a file system.
const NAMES: [&str; 30] = [
    "Sub",
    "INBOX/Sub",
    "INBOX/INBOX",
    "A/b.c",
    "A.b/c",
    "A",
    "c\\d",
    "e\\2ef",
    "R&D",
    "&APw-",
    "Entw\u{fc}rfe/\u{65e5}\u{672c}",
    ".hidden",
    ".hidden/.too",
    "Work.sbd/2020",
    "Work/2020",
    "X",
    "X.mbox",
    "X.mbox/mbox",
    "X.mbox/c",
    "cur",
    "new/cur",
    "tmp",
    "maildirfolder",
    "dovecot-keywords",
    "popstate.dat",
    "Inbox.msf",
    "x.mozmsgs/y",
    ".imap/y",
    "sp ace (2)",
    "q\"uote ~ #1 {2}",
];

/// What names are drawn from.
const LETTERS: [&str; 20] = [
    "a", "B", ".", "&", "-", "\\", "/", "\u{fc}", "\u{65e5}", "~", " x", "'", "+", ",", ";", "=",
    "!", "(2)", ".sbd", ".mbox",
];

fn create(imap: &mut Imap, name: &str) -> bool {
    let created = imap.command(&format!("CREATE {}", quoted(name))).unwrap();
    created.status == Status::Ok
}

fn append(imap: &mut Imap, name: &str, flags: &str, date: &str, bytes: &[u8]) {
    let head = format!(
        "APPEND {} ({flags}) \"{date}\" {{{}+}}\r\n",
        quoted(name),
        bytes.len()
    );
    let line = [head.as_bytes(), bytes].concat();
    let _ = imap.raw_command(&line).unwrap().ok("APPEND");
}

fn utf8(mut imap: Imap) -> Imap {
    let _ = imap.command("ENABLE UTF8=ACCEPT").unwrap().ok("ENABLE");
    imap
}

#[test]
fn an_export_that_is_imported_is_the_account() {
    let server = Server::start_plain();
    let mut anne = utf8(server.anne());
    let mut rng = Rng::new(7);
    let mut names: Vec<String> = NAMES.map(str::to_owned).to_vec();
    for _ in 0..40 {
        let letters = (0..rng.between(1, 8)).map(|_| *rng.pick(&LETTERS));
        let name: String = letters.collect();
        // CREATE takes a separator at the end, and leaves it off.
        names.push(name.trim_end_matches('/').to_owned());
    }
    // Too long for a directory of a Maildir, which has all levels in its name.
    let level = "\u{65e5}".repeat(40);
    names.push(format!("{level}/{level}/a"));
    names.push(format!("{level}/{level}/b"));
    names.push(vec!["x"; 32].join("/"));
    names.retain(|name| name.split('/').all(|level| level != "INBOX") || name.starts_with("INBOX"));
    let dates = [
        "01-Feb-2003 04:05:06 +0000",
        "31-Dec-1969 23:59:58 +0000",
        "09-Sep-2150 01:46:40 +0000",
    ];
    let mut made = 0;
    names.insert(0, "INBOX".to_owned());
    for (number, name) in names.iter().enumerate() {
        // Not all that is drawn is a name.
        if number > 0 && !create(&mut anne, name) {
            continue;
        }
        made += 1;
        for at in 0..rng.below(3) {
            let text = message::bytes(&format!("n{number}-{at}"), 300);
            let flags = *rng.pick(&[
                "",
                "\\Seen",
                "\\Flagged \\Answered $Forwarded",
                "\\Deleted later $label1",
            ]);
            let date = *rng.pick(&dates);
            append(&mut anne, name, flags, date, &text);
        }
        if rng.one_in(2) {
            let _ = anne
                .command(&format!("SUBSCRIBE {}", quoted(name)))
                .unwrap()
                .ok("SUBSCRIBE");
        }
    }
    assert!(made > NAMES.len() + 20, "{made}");
    // More keywords than a Maildir has letters for.
    for number in 0..40 {
        let text = message::bytes(&format!("k{number}"), 300);
        append(
            &mut anne,
            "A",
            &format!("k{number} $many k{}", number + 1),
            dates[0],
            &text,
        );
    }
    let expected = account(&mut anne);
    for form in ["maildir", "mbox"] {
        let out = server.path(form);
        let path = out.to_str().unwrap();
        let to = format!("{form}@example.org");
        let _ = server
            .admin(&["account", "add", &to, "--password-stdin"], "secret")
            .expect("account add");
        let mut other = utf8(server.login((&to, "secret")).unwrap());
        let fresh = account(&mut other);
        // The second time into what is there.
        for _ in 0..2 {
            let told = server.admin(&["export", ANNE, form, path], "");
            assert_eq!(told.code, 0, "{told:?}");
        }
        let told = import(&server, &[form, &to, path], 0);
        assert!(!told.contains("becomes"), "{told}");
        let found = account(&mut other);
        compare(&expected, &found, &fresh, form);
    }
}

fn compare(expected: &Account, found: &Account, fresh: &Account, form: &str) {
    let names = |account: &Account| account.folders.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "{form}");
    for (name, messages) in &expected.folders {
        assert_eq!(&found.folders[name], messages, "{form}: {name}");
    }
    // An account begins with some.
    let expected = &expected.subscribed | &fresh.subscribed;
    assert_eq!(found.subscribed, expected, "{form}");
}
