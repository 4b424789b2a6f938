//! Which folders a tree has, what they are called here, and what is told of the rest.

use std::{
    fs,
    path::{Path, PathBuf},
};

use whimbrel_transfer::mbox::Quoting;

use super::{super::names, *};

fn flat(path: PathBuf) -> Origin {
    Origin::Maildir {
        path,
        nested: false,
    }
}

fn nested(path: PathBuf) -> Origin {
    Origin::Maildir { path, nested: true }
}

fn files(path: PathBuf) -> Origin {
    Origin::Mbox {
        path,
        quoting: Quoting::Rd,
    }
}

/// An mbox of no message is one, too.
const EMPTY: &str = "\n";

/// Makes these files; a name that ends in `/` is of a directory.
fn make(root: &Path, files: &[&str]) {
    for file in files {
        let path = root.join(file);
        if file.ends_with('/') {
            fs::create_dir_all(path).unwrap();
            continue;
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, EMPTY).unwrap();
    }
}

/// What a folder is named in ids.
type Row<'a> = (&'a str, &'a str, u64, &'a [&'a str]);

/// The folders of a directory in which these files are: where they are, what they are called here, how much is in them, and what is told
/// of the others: how many are skipped, how many ignored.
fn check(
    files: &[&str],
    origin: impl Fn(PathBuf) -> Origin,
    expected: &[Row<'_>],
    told: (u64, u64),
) {
    let root = tempfile::tempdir().unwrap();
    make(root.path(), files);
    let mut report = Report::default();
    let mut local = Local::new(origin(root.path().to_owned()));
    let mut folders = local.folders(&mut report).unwrap();
    folders.sort_by(|a, b| a.levels.cmp(&b.levels));
    let named = names(&folders, None, None, &report);
    let found: Vec<(String, &str, u64, &[String])> = folders
        .iter()
        .zip(&named)
        .map(|(folder, name)| {
            let (Place::Directory(path) | Place::File(path)) = &folder.place else {
                panic!("{name} is nowhere")
            };
            let inner = path.strip_prefix(root.path()).unwrap();
            (
                inner.display().to_string(),
                name.as_str(),
                folder.weight,
                &folder.key[..],
            )
        })
        .collect();
    let found: Vec<_> = found
        .iter()
        .map(|(place, name, weight, key)| (place.as_str(), *name, *weight, key.to_vec()))
        .collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(place, name, weight, key)| {
            let key = key.iter().map(|of| (*of).to_owned());
            (*place, *name, *weight, key.collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(found, expected);
    assert_eq!((report.others_skipped, report.others_ignored), told);
}

/// Whoever may not read a directory, or finds it gone, is told, and goes on with the others.
#[test]
fn what_cannot_be_read_costs_no_other() {
    let root = tempfile::tempdir().unwrap();
    let mut report = Report::default();
    assert!(mbox::one_file(&root.path().join("gone"), &mut report).is_empty());
    assert_eq!(report.others_skipped, 1);
    // Without the root there is nothing to go on with.
    for origin in [flat, nested, files] {
        let mut local = Local::new(origin(root.path().join("gone")));
        let error = local.folders(&mut report).err().unwrap().to_string();
        assert!(error.ends_with("gone does not exist"), "{error}");
    }
    fs::write(root.path().join("file"), "x").unwrap();
    let check = |origin: fn(PathBuf) -> Origin, of: &str, expected: &str| {
        let mut local = Local::new(origin(root.path().join(of)));
        let error = local.folders(&mut Report::default()).err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(flat, "file", "is a file, not a Maildir");
    check(nested, "file", "is a file, not a Maildir");
    check(flat, "", "add --nested");
    check(nested, "", "holds no mail");
    check(files, "file", "holds no mail");
}

#[test]
fn what_lies_too_deep_is_told() {
    for origin in [nested, files] {
        let root = tempfile::tempdir().unwrap();
        let levels = |depth: usize| {
            (0..depth)
                .map(|level| format!("{level}/"))
                .collect::<String>()
        };
        let (cur, top) = (format!("{}x/cur/1", levels(DEPTH_MAX)), "top/cur/x");
        make(root.path(), &[&cur, top]);
        let mut report = Report::default();
        let mut local = Local::new(origin(root.path().to_owned()));
        assert_eq!(local.folders(&mut report).unwrap().len(), 1);
        // It, and each directory above it, which holds nothing else.
        assert_eq!(report.others_skipped, 1 + DEPTH_MAX as u64);
    }
}

/// The deepest folder has its messages below it, and they come.
#[test]
fn what_is_just_not_too_deep() {
    let levels: Vec<String> = (0..DEPTH_MAX).map(|level| level.to_string()).collect();
    let names: Vec<&str> = levels.iter().map(String::as_str).collect();
    let path = levels.join("/");
    let (cur, tmp) = (format!("{path}/cur/1"), format!("{path}/tmp/"));
    check(&[&cur, &tmp], nested, &[(&path, &path, 1, &names)], (0, 0));
}

/// What is two folders there is two here: none takes the other's place. Nor do their messages, which have the folder's key in their ids.
#[test]
fn two_folders_with_one_name() {
    check(
        &[
            "cur/1",
            ".INBOX/cur/2",
            ".A/cur/3",
            ".INBOX.A/cur/4",
            "A/cur/5",
            ".&APw-/cur/5",
            ".\u{fc}/cur/6",
        ],
        flat,
        &[
            (".A", "A", 1, &["A"]),
            ("A", "A (2)", 1, &["A", "", ""]),
            ("", "INBOX", 1, &["INBOX"]),
            (".INBOX", "INBOX (2)", 1, &["INBOX", ""]),
            (".INBOX.A", "INBOX/A", 1, &["A", ""]),
            (".&APw-", "\u{fc}", 1, &["\u{fc}"]),
            (".\u{fc}", "\u{fc} (2)", 1, &["\u{fc}", ""]),
        ],
        (0, 0),
    );
    check(
        &["cur/1", "INBOX/cur/2", "a.b/cur/3", "a\\2eb/cur/4"],
        nested,
        &[
            ("", "INBOX", 1, &["INBOX"]),
            ("INBOX", "INBOX (2)", 1, &["INBOX", ""]),
            ("a.b", "a.b", 1, &["a.b"]),
            ("a\\2eb", "a.b (2)", 1, &["a.b", ""]),
        ],
        (0, 0),
    );
    check(
        &["a", "a.mbox", "b/c.mbox"],
        files,
        &[
            ("a", "a", 1, &["a"]),
            ("a.mbox", "a (2)", 1, &["a", ""]),
            ("b/c.mbox", "b/c", 1, &["b", "c"]),
        ],
        (0, 0),
    );
}

/// Folders of all layouts are found in whatever layout they are looked for.
#[test]
fn layouts_of_maildirs() {
    for origin in [flat, nested] {
        check(
            &[
                "cur/1",
                "new/2",
                "tmp/",
                ".a..d/cur/",
                ".Trail./new/1",
                "Work/2020/cur/1",
                "Work/.x.y/cur/1",
                "Only/marked/maildirfolder",
                "Mail.sbd/of Thunderbird/cur/1",
                ".KMail.directory/below/cur/1",
            ],
            origin,
            &[
                ("", "INBOX", 2, &["INBOX"]),
                (
                    ".KMail.directory/below",
                    "KMail/below",
                    1,
                    &["KMail", "below"],
                ),
                (
                    "Mail.sbd/of Thunderbird",
                    "Mail/of Thunderbird",
                    1,
                    &["Mail", "of Thunderbird"],
                ),
                ("Only/marked", "Only/marked", 0, &["Only", "marked"]),
                (".Trail.", "Trail/_", 1, &["Trail", ""]),
                ("Work/2020", "Work/2020", 1, &["Work", "2020"]),
                ("Work/.x.y", "Work/x/y", 1, &["Work", "x", "y"]),
                (".a..d", "a/_/d", 0, &["a", "", "d"]),
            ],
            // The mark.
            (0, 1),
        );
    }
    // What `cur`, `new` and `tmp` are depends on what is in them.
    check(
        &[
            "cur/1",
            "cur/cur/2",
            "cur/new/",
            "new/cur/3",
            "new/4",
            "new/dovecot-uidlist",
            "new/dovecot-keywords",
            "tmp/new/5",
            "tmp/6",
            "tmp/x/cur/7",
            "tmp/y/8",
            ".new/cur/9",
            "cur/dir/",
        ],
        flat,
        &[
            ("", "INBOX", 2, &["INBOX"]),
            ("cur", "cur", 1, &["cur"]),
            (".new", "new", 1, &["new"]),
            ("new", "new (2)", 1, &["new", ""]),
            ("tmp", "tmp", 1, &["tmp"]),
            ("tmp/x", "tmp/x", 1, &["tmp", "x"]),
        ],
        // tmp/6, tmp/y, tmp/y/8, cur/dir.
        (4, 1),
    );
}

#[test]
fn what_is_no_mail_is_told() {
    check(
        &[
            "cur/1",
            "dovecot-uidlist",
            "subscriptions",
            "dovecot-keywords",
            "notes.txt",
            ".empty/",
            ".imap/x",
            ".notmuch/xapian/y",
            "courierimapkeywords/:list",
            "lucene-indexes/mail/cur/2",
        ],
        flat,
        &[
            ("", "INBOX", 1, &["INBOX"]),
            (
                "lucene-indexes/mail",
                "lucene-indexes/mail",
                1,
                &["lucene-indexes", "mail"],
            ),
        ],
        (2, 6),
    );
    let root = tempfile::tempdir().unwrap();
    make(
        root.path(),
        &[
            "Inbox",
            "Inbox.msf",
            "popstate.dat",
            ".imap/dovecot.index",
            "sub/",
        ],
    );
    fs::write(root.path().join("Inbox.msf"), "// <!-- <mdb:mork").unwrap();
    fs::write(root.path().join("notes.txt"), "text").unwrap();
    fs::write(root.path().join(".subscriptions"), "Inbox\nGone\n").unwrap();
    let mut report = Report::default();
    let mut local = Local::new(files(root.path().to_owned()));
    let found = local.folders(&mut report).unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|of| (of.levels.join("/"), of.subscribed))
        .collect();
    assert_eq!(
        found,
        [("Inbox".to_owned(), true), ("Gone".to_owned(), true)]
    );
    // notes.txt and sub; the rest but the mbox and the list.
    assert_eq!((report.others_skipped, report.others_ignored), (2, 4));
}

/// Directories that are called as files are: each is told once.
#[test]
fn directories_in_place_of_lists() {
    check(
        &[
            "cur/1",
            "dovecot-keywords/",
            "subscriptions/",
            "courierimapsubscribed/",
            ".A/maildirfolder/",
        ],
        flat,
        &[("", "INBOX", 1, &["INBOX"])],
        (5, 0),
    );
    check(
        &["a", ".subscriptions/"],
        files,
        &[("a", "a", 1, &["a"])],
        (1, 0),
    );
}

/// Trees of Thunderbird and Apple Mail.
#[test]
fn trees_of_clients() {
    check(
        &[
            "Work",
            "Work.sbd/2020",
            "Work.sbd/2020.sbd/May",
            "Sent.mbox/mbox",
            "Sent.mbox/table_of_contents",
            "Work/x.mbox",
        ]
        .map(|name| name.replace("Work/", "Play/"))
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>(),
        files,
        &[
            ("Play/x.mbox", "Play/x", 1, &["Play", "x"]),
            ("Sent.mbox/mbox", "Sent", 1, &["Sent.mbox", "mbox"]),
            ("Work", "Work", 1, &["Work"]),
            ("Work.sbd/2020", "Work/2020", 1, &["Work.sbd", "2020"]),
            (
                "Work.sbd/2020.sbd/May",
                "Work/2020/May",
                1,
                &["Work.sbd", "2020.sbd", "May"],
            ),
        ],
        (0, 1),
    );
    // Apple's directory itself.
    let root = tempfile::tempdir().unwrap();
    make(root.path(), &["Sent.mbox/mbox"]);
    let mut local = Local::new(files(root.path().join("Sent.mbox")));
    let found = local.folders(&mut Report::default()).unwrap();
    assert_eq!(found[0].levels, ["Sent"]);
    let mut local = Local::new(files(root.path().join("Sent.mbox/mbox")));
    let found = local.folders(&mut Report::default()).unwrap();
    assert_eq!(found[0].levels, ["Sent"]);
}

/// The newest change of a message's keywords counts, whatever the order of the files.
#[test]
fn keywords_of_courier() {
    let root = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
    write(":list", "one\ntwo\n\n1.a:0\n2.b:1\n3.c:0\n4.d:0 1\n");
    for (name, text) in [
        (".9.1.a", "three\n"),
        (".10.1.a", "four\ntwo\n"),
        (".7.2.b", "old\n"),
        ("2.b", "new\n"),
        ("3.c", ""),
        (".tmp.12.x", "none\n"),
    ] {
        write(name, text);
    }
    fs::create_dir(root.path().join("5.e")).unwrap();
    let mut report = Report::default();
    let keywords = maildir::couriers(root.path(), &mut report);
    let check = |base: &str, expected: &[&str]| {
        let found: Vec<&str> = keywords.of(base.as_bytes()).collect();
        assert_eq!(found, expected, "{base}");
    };
    check("1.a", &["four", "two"]);
    check("2.b", &["new"]);
    check("3.c", &[]);
    check("4.d", &["one", "two"]);
    assert_eq!((report.others_skipped, report.others_ignored), (1, 1));
    // There is none.
    let keywords = maildir::couriers(&root.path().join("none"), &mut report);
    assert!(keywords.is_empty() && report.others_skipped == 1);
}

/// A list does not say what separates levels, nor whether INBOX is one of them.
#[test]
fn subscriptions_mean_folders_that_exist() {
    let root = tempfile::tempdir().unwrap();
    make(
        root.path(),
        &[
            "cur/",
            "Work/2020/cur/",
            ".INBOX.A/cur/",
            ".B/cur/",
            "c.d/cur/",
        ],
    );
    let list = "Work/2020\nINBOX.A\nINBOX.B\nc.d\nGone.x\nINBOX\n..\n";
    fs::write(root.path().join("subscriptions"), list).unwrap();
    let mut local = Local::new(flat(root.path().to_owned()));
    let found = local.folders(&mut Report::default()).unwrap();
    let subscribed = found.iter().filter(|folder| folder.subscribed);
    let mut subscribed: Vec<String> = subscribed.map(|of| of.levels.join("/")).collect();
    subscribed.sort();
    assert_eq!(
        subscribed,
        ["B", "Gone/x", "INBOX", "INBOX/A", "Work/2020", "c.d"]
    );
}
