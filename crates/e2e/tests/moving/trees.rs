//! Trees of files, drawn at random: each entry of them is imported, or named with the reason. What is true is written down while a tree is made: the
//! import's own idea of it counts for nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _, net::UnixListener},
    path::{Path, PathBuf},
    process::Command,
};

use whimbrel_e2e::{message, process, server::Server};
use whimbrel_testkit::Rng;

use super::{Account, account, import, lf};

/// Trees of each layout; `WHIMBREL_TREES` draws others.
const TREES: usize = 4;

/// What must be found of a message, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Expected {
    folder: String,
    flags: BTreeSet<String>,
    date: String,
    bytes: Vec<u8>,
}

/// What is true of a tree.
#[derive(Default)]
struct Truth {
    messages: BTreeMap<String, Expected>,
    folders: BTreeSet<String>,
    /// Files that must be named as skipped messages, as other skipped entries, and as ignored.
    refused: BTreeSet<String>,
    skipped: BTreeSet<String>,
    ignored: BTreeSet<String>,
    /// Messages that Thunderbird had deleted.
    expunged: u64,
}

/// One level of a folder's name: as it is on disk, and here.
type Level = (&'static [u8], &'static str);

struct Tree {
    rng: Rng,
    root: PathBuf,
    truth: Truth,
    number: u64,
    /// They must live as long as the tree.
    sockets: Vec<UnixListener>,
}

/// A path as it is shown: on one line, without what drives terminals.
fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

impl Tree {
    fn new(seed: u64, root: PathBuf) -> Tree {
        fs::create_dir_all(&root).unwrap();
        let mut truth = Truth::default();
        // Each account has it.
        truth.folders.insert("INBOX".to_owned());
        Tree {
            rng: Rng::new(seed),
            root,
            truth,
            number: 0,
            sockets: Vec::new(),
        }
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn skip(&mut self, path: &Path) {
        self.truth.skipped.insert(shown(path));
    }

    /// Levels of a folder; the last one is like no other.
    fn levels(&mut self, odd: &[Level]) -> Vec<(Vec<u8>, String)> {
        let mut levels: Vec<(Vec<u8>, String)> = Vec::new();
        for _ in 0..self.rng.below(3) {
            let (disk, here) = *self.rng.pick(odd);
            levels.push((disk.to_vec(), here.to_owned()));
        }
        let (disk, here) = *self.rng.pick(odd);
        let number = self.next();
        levels.push((
            [disk, format!("F{number}").as_bytes()].concat(),
            format!("{here}F{number}"),
        ));
        levels
    }

    /// Something that is no file and no directory, at a path.
    fn no_file(&mut self, path: &Path) {
        match self.rng.below(3) {
            0 => {
                let made = Command::new("mkfifo").arg(path).status();
                assert!(made.unwrap().success());
            }
            // A socket's path is short.
            1 if path.as_os_str().len() < 100 => {
                self.sockets.push(UnixListener::bind(path).unwrap());
            }
            _ => {
                let to = ["/etc/passwd", "/etc", "nowhere", "."];
                std::os::unix::fs::symlink(self.rng.pick(&to), path).unwrap();
            }
        }
    }

    fn text(&mut self, name: &str) -> Vec<u8> {
        let size = *self.rng.pick(&[10, 700, 5000, 300_000]);
        message::bytes(name, size)
    }

    fn seconds(&mut self) -> u64 {
        self.rng.between(0, 2_000_000_000)
    }

    /// A Maildir's folder at a path, with its mail and all that may lie there besides.
    fn maildir(&mut self, path: &Path, folder: &str) {
        self.truth.folders.insert(folder.to_owned());
        fs::create_dir_all(path.join("cur")).unwrap();
        for part in ["new", "tmp"] {
            if !self.rng.one_in(5) {
                fs::create_dir_all(path.join(part)).unwrap();
            }
        }
        let words = ["$Label1", "NonJunk", "later"];
        let dovecots = self.rng.one_in(2);
        if dovecots {
            fs::write(
                path.join("dovecot-keywords"),
                "0 $Label1\n1 NonJunk\n25 later\n",
            )
            .unwrap();
        }
        let mut courier = String::new();
        for _ in 0..self.rng.below(6) {
            let number = self.next();
            let name = format!("m{number}");
            let seconds = self.seconds();
            let mut flags = BTreeSet::new();
            let mut letters = String::new();
            for (letter, flag) in [
                ("F", "\\Flagged"),
                ("R", "\\Answered"),
                ("S", "\\Seen"),
                ("T", "\\Deleted"),
            ] {
                if self.rng.one_in(3) {
                    flags.insert(flag.to_owned());
                    letters += letter;
                }
            }
            for (letter, word) in ["a", "b", "z"].iter().zip(words) {
                if dovecots && self.rng.one_in(3) {
                    flags.insert(word.to_owned());
                    letters += letter;
                }
            }
            let host = *self
                .rng
                .pick(&[&b"host"[..], b"h\xf6st", b"a,S=7", b"sp ace", b"x!y"]);
            let base = [format!("{seconds}.M{number}.").as_bytes(), host].concat();
            if host.is_ascii() && self.rng.one_in(3) {
                courier += &format!("{}:1\n", str::from_utf8(&base).unwrap());
                flags.insert("work".to_owned());
            }
            let part = *self.rng.pick(&["cur", "new"]);
            let info = match letters.is_empty() && part == "new" {
                true => String::new(),
                false => format!("{}2,{letters}", self.rng.pick(&[":", ":", "!"])),
            };
            let file = OsString::from(OsStr::from_bytes(&[&base[..], info.as_bytes()].concat()));
            let bytes = self.text(&name);
            let on_disk = if self.rng.one_in(4) {
                bytes.clone()
            } else {
                lf(&bytes)
            };
            let file = path.join(part).join(file);
            super::write(&file, &on_disk, seconds);
            let expected = Expected {
                folder: folder.to_owned(),
                flags,
                date: date(seconds),
                bytes,
            };
            self.truth.messages.insert(name, expected);
        }
        if !courier.is_empty() {
            fs::create_dir(path.join("courierimapkeywords")).unwrap();
            fs::write(
                path.join("courierimapkeywords/:list"),
                format!("home\nwork\n\n{courier}"),
            )
            .unwrap();
        }
        for _ in 0..self.rng.below(4) {
            self.beside(path);
        }
    }

    /// Something that is no message, in a Maildir's folder.
    fn beside(&mut self, path: &Path) {
        let number = self.next();
        let cur = path.join("cur");
        let (refused, bytes): (PathBuf, &[u8]) = match self.rng.below(10) {
            0 => (cur.join(format!("{number}.empty")), b""),
            1 => (cur.join(format!("{number}.nul")), b"a: b\n\n\0\n"),
            2 => (cur.join(format!("{number}.gz:2,S")), b"\x1f\x8b\x08text"),
            3 => (cur.join(format!(".{number}.hidden")), b"a: b\n\nx\n"),
            4 => {
                let at = cur.join(format!("{number}.no"));
                self.no_file(&at);
                self.truth.refused.insert(shown(&at));
                return;
            }
            5 => {
                let at = path.join(format!("no{number}"));
                self.no_file(&at);
                return self.skip(&at);
            }
            6 => {
                // A directory where files are expected.
                let at = cur.join(format!("{number}.dir"));
                fs::create_dir(&at).unwrap();
                self.skip(&at);
                fs::write(at.join("file"), "x").unwrap();
                return self.skip(&at.join("file"));
            }
            7 => {
                let at = path.join(*self.rng.pick(&["notes", "maildir", "a\nb", ".x"]));
                fs::write(&at, "x").unwrap();
                return self.skip(&at);
            }
            8 => {
                let name = *self
                    .rng
                    .pick(&["dovecot-uidlist", "dovecot.index.log", "maildirsize"]);
                fs::write(path.join(name), "x").unwrap();
                self.truth.ignored.insert(shown(&path.join(name)));
                return;
            }
            _ => {
                let tmp = path.join("tmp");
                if tmp.is_dir() {
                    fs::write(tmp.join(format!("{number}.part")), "x").unwrap();
                    self.skip(&tmp.join(format!("{number}.part")));
                }
                return;
            }
        };
        fs::write(&refused, bytes).unwrap();
        self.truth.refused.insert(shown(&refused));
    }

    /// A directory that is no folder, or that may not be read.
    fn no_folder(&mut self, path: &Path, name: &str) {
        let number = self.next();
        let at = path.join(format!("{name}{number}"));
        match self.rng.below(3) {
            0 => fs::create_dir(&at).unwrap(),
            1 => {
                fs::create_dir(&at).unwrap();
                fs::write(at.join("x"), "x").unwrap();
                self.skip(&at.join("x"));
            }
            _ => {
                fs::create_dir(&at).unwrap();
                fs::set_permissions(&at, fs::Permissions::from_mode(0o000)).unwrap();
            }
        }
        self.skip(&at);
    }

    fn plus_plus(&mut self) {
        let root = self.root.clone();
        self.maildir(&root, "INBOX");
        for _ in 0..self.rng.below(6) {
            let levels = self.levels(&[
                (b"Work", "Work"),
                (b"Entw&APw-rfe", "Entw\u{fc}rfe"),
                (b"F\xfcr", "F\u{fc}r"),
                (b"a*b", "a_b"),
                (b"a\\2eb", "a.b"),
                (b"a\nb", "a_b"),
                (b"cur", "cur"),
                (b"INBOX", "INBOX"),
                (b"sp ace", "sp ace"),
            ]);
            let mut disk: Vec<u8> = Vec::new();
            let mut here: Vec<String> = Vec::new();
            for (level, name) in levels {
                if self.rng.one_in(6) {
                    disk.push(b'.');
                    here.push("_".to_owned());
                }
                disk.push(b'.');
                disk.extend(level);
                here.push(name);
            }
            if self.rng.one_in(6) {
                disk.push(b'.');
                here.push("_".to_owned());
            }
            let path = root.join(OsStr::from_bytes(&disk));
            fs::create_dir(&path).unwrap();
            self.maildir(&path, &here.join("/"));
        }
        for _ in 0..self.rng.below(3) {
            let name = *self.rng.pick(&[".none", "none"]);
            self.no_folder(&root, name);
        }
    }

    fn nested(&mut self, of: &[Level]) -> (PathBuf, String) {
        let levels = self.levels(of);
        let path = levels.iter().fold(self.root.clone(), |path, (disk, _)| {
            path.join(OsStr::from_bytes(disk))
        });
        let here: Vec<String> = levels.into_iter().map(|(_, here)| here).collect();
        (path, here.join("/"))
    }

    fn fs(&mut self) {
        let root = self.root.clone();
        self.maildir(&root, "INBOX");
        for part in ["new", "tmp"] {
            fs::create_dir_all(root.join(part)).unwrap();
        }
        for _ in 0..self.rng.below(6) {
            let (path, here) = self.nested(&[
                (b"Work", "Work"),
                (b"Entw&APw-rfe", "Entw\u{fc}rfe"),
                (b"F\xfcr", "F\u{fc}r"),
                (b"a.b", "a.b"),
                (b"a%b", "a_b"),
                (b"cur", "cur"),
                (b"new", "new"),
                (b"tmp", "tmp"),
            ]);
            fs::create_dir_all(&path).unwrap();
            self.maildir(&path, &here);
        }
        for _ in 0..self.rng.below(3) {
            self.no_folder(&root, "none");
        }
    }

    /// An mbox, as several programs write them.
    fn mbox(&mut self, path: &Path, folder: &str) {
        self.truth.folders.insert(folder.to_owned());
        let line_end = if self.rng.one_in(4) { "\r\n" } else { "\n" };
        let mut file = String::new();
        let mut messages = 0;
        for _ in 0..self.rng.below(6) {
            messages += 1;
            let (text, needs_empty_line) = self.mbox_message(folder, line_end.len() - 1);
            let has_empty_line = |file: &str| file.is_empty() || file.ends_with("\n\n");
            if needs_empty_line && !has_empty_line(&file) {
                file.push('\n');
            }
            file += &text;
            if !self.rng.one_in(3) {
                file.push('\n');
            }
            if self.rng.one_in(8) {
                // A message of nothing.
                messages += 1;
                if !has_empty_line(&file) {
                    file.push('\n');
                }
                file += &format!("From a@b {}\n\n", asctime(self.seconds()));
                let label = format!("{}: message {messages}", shown(path));
                self.truth.refused.insert(label);
            }
        }
        fs::write(path, file.replace('\n', line_end)).unwrap();
    }

    /// A message with its line, and whether that needs an empty one before it. `more`: bytes of a line end beyond one.
    fn mbox_message(&mut self, folder: &str, more: usize) -> (String, bool) {
        let number = self.next();
        let name = format!("m{number}");
        let seconds = self.seconds();
        let text = String::from_utf8(lf(&self.text(&name))).unwrap();
        let (header, body) = text.split_once("\n\n").unwrap();
        let mut flags = BTreeSet::new();
        let mut fields = String::new();
        let mut is_expunged = false;
        let is_thunderbirds = self.rng.one_in(3);
        if is_thunderbirds {
            let bound = *self.rng.pick(&[8, 16]);
            let bits = self.rng.below(bound);
            for (bit, flag) in [(1, "\\Seen"), (2, "\\Answered"), (4, "\\Flagged")] {
                if bits & bit != 0 {
                    flags.insert(flag.to_owned());
                }
            }
            is_expunged = bits & 8 != 0;
            fields += &format!("X-Mozilla-Status: {bits:04x}\nX-Mozilla-Status2: 00000000\n");
            if self.rng.one_in(2) {
                fields += "X-Mozilla-Keys: $label1 NonJunk                  \n";
                flags.extend(["$label1".to_owned(), "NonJunk".to_owned()]);
            }
        } else if self.rng.one_in(2) {
            fields += "Status: RO\nX-Status: F\nX-Keywords: later\n";
            flags.extend(["\\Seen", "\\Flagged", "later"].map(str::to_owned));
        }
        // At the end of the body, a line that would begin a message, if it were not quoted, or within the length.
        let inner = format!(
            "\nFrom x@y {}\nSubject: no message\n\nmore\n",
            asctime(seconds)
        );
        let (stored, read) = match self.rng.below(4) {
            0 => (inner.replacen("From", ">From", 1), inner),
            1 => {
                let bytes = body.len() + inner.len();
                let lines = body.matches('\n').count() + inner.matches('\n').count();
                fields += &format!("Content-Length: {}\n", bytes + more * lines);
                (inner.clone(), inner)
            }
            // The length of something else.
            2 => {
                fields += &format!("Content-Length: {}\n", self.rng.pick(&[3_u64, 1 << 40]));
                Default::default()
            }
            _ => Default::default(),
        };
        // The newer Thunderbirds write no date: that of the header counts.
        let (from, date) = match is_thunderbirds {
            true => (String::new(), "02-Nov-2026 10:00:00 +0000".to_owned()),
            false => {
                let sender = *self.rng.pick(&["a@b", "-", "two words"]);
                (format!("{sender} {}", asctime(seconds)), date(seconds))
            }
        };
        if is_expunged {
            self.truth.expunged += 1;
        } else {
            let bytes = format!("{header}\n\n{body}{read}").replace('\n', "\r\n");
            let expected = Expected {
                folder: folder.to_owned(),
                flags,
                date,
                bytes: bytes.into_bytes(),
            };
            self.truth.messages.insert(name, expected);
        }
        let text = format!("From {from}\n{fields}{header}\n\n{body}{stored}");
        (text, is_thunderbirds)
    }

    fn mboxes(&mut self) {
        let root = self.root.clone();
        for _ in 0..self.rng.between(1, 6) {
            let (path, here) = self.nested(&[
                (b"Work", "Work"),
                (b"lists.sbd", "lists"),
                (b"Old.mbox", "Old"),
                (b"Entw&APw-rfe", "Entw\u{fc}rfe"),
                (b"F\xfcr", "F\u{fc}r"),
                (b"a*b", "a_b"),
                (b".hidden", ".hidden"),
            ]);
            // The endings are of directories.
            let mut levels: Vec<String> = here.split('/').map(str::to_owned).collect();
            let number = self.number;
            let last = format!("F{number}");
            levels.pop();
            let directory = path.parent().unwrap().to_owned();
            fs::create_dir_all(&directory).unwrap();
            levels.push(last.clone());
            let here = levels.join("/");
            let path = match self.rng.below(4) {
                0 => directory.join(format!("{last}.mbox")),
                1 => {
                    let apples = directory.join(format!("{last}.mbox"));
                    fs::create_dir(&apples).unwrap();
                    fs::write(apples.join("table_of_contents"), "x").unwrap();
                    self.truth
                        .ignored
                        .insert(shown(&apples.join("table_of_contents")));
                    apples.join("mbox")
                }
                2 => {
                    fs::write(directory.join(format!("{last}.msf")), "// <!-- <mdb:mork").unwrap();
                    let msf = directory.join(format!("{last}.msf"));
                    self.truth.ignored.insert(shown(&msf));
                    directory.join(&last)
                }
                _ => directory.join(&last),
            };
            self.mbox(&path, &here);
            let number = self.next();
            match self.rng.below(6) {
                0 => {
                    let at = directory.join(format!("no{number}"));
                    self.no_file(&at);
                    self.skip(&at);
                }
                1 => {
                    let at = directory.join(format!("notes{number}.txt"));
                    let text = *self
                        .rng
                        .pick(&["text", "Subject: x\n\ny\n", "From you\n\nx\n"]);
                    fs::write(&at, text).unwrap();
                    self.skip(&at);
                }
                2 => self.no_folder(&root, "none"),
                _ => {}
            }
        }
    }

    /// Imports the tree, twice, and looks at what is there.
    fn check(self, server: &Server, kind: &str, options: &[&str], what: &str) {
        let address = format!("{}@example.org", what.replace(' ', "-"));
        let _ = server
            .admin(&["account", "add", &address, "--password-stdin"], "secret")
            .expect("account add");
        let skips = !self.truth.refused.is_empty() || !self.truth.skipped.is_empty();
        let code = if skips { 4 } else { 0 };
        let path = self.root.to_str().unwrap();
        let words = [&[kind, &address, path][..], options].concat();
        for again in [false, true] {
            let told = import(server, &words, code);
            self.told(&told, again, what);
            let mut imap = server.login((&address, "secret")).unwrap();
            let _ = imap.command("ENABLE UTF8=ACCEPT").unwrap().ok("ENABLE");
            self.found(account(&mut imap), what);
        }
    }

    fn told(&self, told: &str, again: bool, what: &str) {
        let named = |begin: &str| -> BTreeSet<String> {
            let lines = told.lines().filter_map(|line| line.strip_prefix(begin));
            lines
                .filter(|line| !line.contains("of its messages were deleted there"))
                .map(|line| line.rsplit_once(": ").unwrap().0.to_owned())
                .collect()
        };
        let skipped: BTreeSet<String> = &self.truth.skipped | &self.truth.refused;
        // Reasons may hold a colon themselves: a path is what a line begins with.
        let is_named = |lines: &BTreeSet<String>, path: &String| {
            lines
                .iter()
                .any(|line| line == path || line.starts_with(&format!("{path}: ")))
        };
        for (begin, paths) in [("skipped: ", &skipped), ("ignored: ", &self.truth.ignored)] {
            let lines = named(begin);
            for path in paths {
                assert!(
                    is_named(&lines, path),
                    "{what}: {path:?} is not {begin}\n{told}"
                );
            }
            assert_eq!(
                lines.len(),
                paths.len(),
                "{what}: {begin}{paths:#?}\n{told}"
            );
        }
        let messages = self.truth.messages.len();
        let (new, known) = if again { (0, messages) } else { (messages, 0) };
        let new = match new {
            1 => "1 message".to_owned(),
            number => format!("{number} messages"),
        };
        let expunged = match self.truth.expunged {
            0 => String::new(),
            number => format!(", {number} deleted there already"),
        };
        let sums = format!(
            "{new} imported, {known} already here, {} skipped{expunged}; ",
            self.truth.refused.len()
        );
        let others = format!(
            "; other files and folders: {} skipped, {} ignored",
            self.truth.skipped.len(),
            self.truth.ignored.len()
        );
        assert!(
            told.contains(&sums) && told.contains(&others),
            "{what}: {sums}{others}\n{told}"
        );
    }

    fn found(&self, account: Account, what: &str) {
        let mut messages = BTreeMap::new();
        for (folder, seen) in &account.folders {
            for (flags, date, bytes) in seen {
                let name = message::name_of(bytes).unwrap_or_default();
                let found = Expected {
                    folder: folder.clone(),
                    flags: flags.iter().cloned().collect(),
                    date: date.clone(),
                    bytes: bytes.clone(),
                };
                assert_eq!(
                    messages.insert(name.clone(), found),
                    None,
                    "{what}: {name} twice"
                );
            }
        }
        for (name, expected) in &self.truth.messages {
            let found = messages.remove(name);
            let found =
                found.unwrap_or_else(|| panic!("{what}: {name} of {} is lost", expected.folder));
            let heads = |of: &Expected| (of.folder.clone(), of.flags.clone(), of.date.clone());
            assert_eq!(heads(&found), heads(expected), "{what}: {name}");
            assert!(
                found.bytes == expected.bytes,
                "{what}: {name} is\n{}\nnot\n{}",
                String::from_utf8_lossy(&found.bytes),
                String::from_utf8_lossy(&expected.bytes)
            );
        }
        assert!(
            messages.is_empty(),
            "{what}: nobody wrote {:?}",
            messages.keys()
        );
        let folders: BTreeSet<String> = account.folders.into_keys().collect();
        let lost: Vec<&String> = self.truth.folders.difference(&folders).collect();
        assert!(
            lost.is_empty(),
            "{what}: {lost:?} are not among {folders:?}"
        );
    }
}

/// Year, month (from 0) and day of a number of days since 1970.
fn civil(days: u64) -> (u64, usize, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut days) = (1970, days);
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= months[month] {
        days -= months[month];
        month += 1;
    }
    (year, month, days + 1)
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

fn clock(seconds: u64) -> String {
    let of_day = seconds % 86_400;
    format!(
        "{:02}:{:02}:{:02}",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}

/// As INTERNALDATE says it.
fn date(seconds: u64) -> String {
    let (year, month, day) = civil(seconds / 86_400);
    format!("{day:02}-{}-{year} {} +0000", MONTHS[month], clock(seconds))
}

/// As lines of an mbox say it (ctime(3)).
fn asctime(seconds: u64) -> String {
    let days = seconds / 86_400;
    let (year, month, day) = civil(days);
    let week = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let week = week[usize::try_from(days % 7).unwrap()];
    format!("{week} {} {day:2} {} {year}", MONTHS[month], clock(seconds))
}

#[test]
fn nothing_is_lost_silently() {
    let server = Server::start_plain();
    let seed = process::number("WHIMBREL_TREES", 1);
    for number in 0..TREES {
        let tree = |layout: &str| {
            let what = format!("{layout} {seed} {number}");
            let of_layout = layout.bytes().map(u64::from).sum::<u64>();
            let number = (seed * 1000 + number) as u64;
            let root = server.path(&what.replace(' ', "-"));
            (Tree::new(number * 1000 + of_layout, root), what)
        };
        let (mut of, what) = tree("plusplus");
        of.plus_plus();
        of.check(&server, "maildir", &[], &what);
        for (layout, options) in [("fs", &[][..]), ("nested", &["--nested"])] {
            let (mut of, what) = tree(layout);
            of.fs();
            of.check(&server, "maildir", options, &what);
        }
        let (mut of, what) = tree("mboxes");
        of.mboxes();
        of.check(&server, "mbox", &[], &what);
        let (mut of, what) = tree("mbox");
        let file = of.root.join("all.mbox");
        of.mbox(&file, "all");
        of.root = file;
        of.check(&server, "mbox", &[], &what);
    }
}
