//! An import from a server that is broken, or hostile: it ends with an error that says why, in bounded memory, and can be begun again.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use whimbrel_e2e::{
    message,
    process::{Done, wait_for},
    server::{Builder, Server, binary},
};

use super::{ANNE, account};

/// Peak of an import, whatever it is sent. One line of 16 MiB and one literal as large are read, a buffer grows by doubling, and the answer is held beside it.
const PEAK_KIB_MAX: u64 = 160 << 10;

/// Only where this is expected does the server close the connection of itself.
const CLOSED: &str = "closed the connection";

/// What the server does wrong.
#[derive(Clone, Default)]
struct Evil {
    /// In answer to the commands that begin so; to none if empty.
    at: String,
    /// Once.
    once: Vec<u8>,
    /// Then, until the client goes.
    then: Vec<u8>,
    /// Whether it then goes on as it should, or closes the connection.
    goes_on: bool,
    /// Whether it goes on by saying NO.
    refuses: bool,
    /// Nothing: it is Gmail, and the last folder is that of all mail. One message of it lies in no other.
    is_gmail: bool,
}

/// A server with two messages in each folder. What is wrong is wrong in the last folder, or before there is one.
struct Source {
    port: u16,
    evil: Arc<Mutex<Evil>>,
}

const FOLDERS: [&str; 3] = ["INBOX", "Fu&Awg-r", "Last"];
const UIDS: [u32; 2] = [5, 6];

fn body(folder: &str, uid: u32) -> Vec<u8> {
    message::bytes(&format!("{}-{uid}", folder.replace('&', "")), 600)
}

impl Source {
    fn start() -> Source {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let evil = Arc::new(Mutex::new(Evil::default()));
        let of = Arc::clone(&evil);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let evil = of.lock().unwrap().clone();
                // The client goes when it has had enough.
                thread::spawn(move || stream.and_then(|stream| serve(stream, &evil)));
            }
        });
        Source { port, evil }
    }

    fn be(&self, evil: Evil) {
        *self.evil.lock().unwrap() = evil;
    }
}

fn serve(mut stream: TcpStream, evil: &Evil) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    stream.write_all(b"* OK hello\r\n")?;
    let mut folder = String::new();
    while let Some(line) = lines.next().transpose()? {
        let mut end = "OK done";
        let (tag, command) = line.split_once(' ').unwrap_or((&line, ""));
        let quoted = command.split('"').nth(1).unwrap_or_default();
        let is_last = match command.starts_with("EXAMINE") {
            true => quoted == "Last",
            false => folder.is_empty() || folder == "Last",
        };
        if is_last && !evil.at.is_empty() && command.starts_with(&evil.at) {
            stream.write_all(&evil.once)?;
            while !evil.then.is_empty() {
                stream.write_all(&evil.then)?;
            }
            if !evil.goes_on {
                return Ok(());
            }
            if evil.refuses {
                end = "NO damaged";
            }
        } else if command == "CAPABILITY" {
            let more = if evil.is_gmail { " X-GM-EXT-1" } else { "" };
            stream.write_all(format!("* CAPABILITY IMAP4rev1{more}\r\n").as_bytes())?;
        } else if command.starts_with("LIST") {
            for name in FOLDERS {
                let is_all = evil.is_gmail && name == "Last";
                let is = if is_all { "\\All" } else { "" };
                stream.write_all(format!("* LIST ({is}) \"/\" {name}\r\n").as_bytes())?;
            }
        } else if command.starts_with("STATUS") {
            stream.write_all(format!("* STATUS \"{quoted}\" (MESSAGES 2)\r\n").as_bytes())?;
        } else if command.starts_with("EXAMINE") {
            quoted.clone_into(&mut folder);
            stream.write_all(b"* 2 EXISTS\r\n* OK [UIDVALIDITY 9] valid\r\n")?;
        } else if command.starts_with("UID SEARCH X-GM-RAW") {
            stream.write_all(b"* SEARCH 6\r\n")?;
        } else if command.starts_with("UID SEARCH") {
            stream.write_all(b"* SEARCH 5 6\r\n")?;
        } else if command.starts_with("UID FETCH") {
            for (n, uid) in (1..).zip(UIDS) {
                let bytes = body(&folder, uid);
                let size = bytes.len();
                if command.contains("RFC822.SIZE") {
                    let date = "INTERNALDATE \"01-Jan-2024 00:00:00 +0000\"";
                    let line = format!(
                        "* {n} FETCH (UID {uid} FLAGS (\\Seen) {date} RFC822.SIZE {size})\r\n"
                    );
                    stream.write_all(line.as_bytes())?;
                } else {
                    let head = format!("* {n} FETCH (UID {uid} BODY[] {{{size}}}\r\n");
                    stream.write_all(&[head.as_bytes(), &bytes, b")\r\n"].concat())?;
                }
            }
        }
        stream.write_all(format!("{tag} {end}\r\n").as_bytes())?;
    }
    Ok(())
}

/// Imports; what it says, and the most memory that it had.
fn begin(server: &Server, source: &Source) -> (Done, u64) {
    let port = source.port.to_string();
    let out = server.path("said");
    let said = fs::File::create(&out).unwrap();
    let mut command = Command::new(binary());
    command
        .args(["import", "imap", ANNE, "127.0.0.1", "anne", "--clear"])
        .args(["--port", &port, "--password-stdin", "--config"])
        .arg(server.path("whimbrel.toml"))
        .stdin(Stdio::piped())
        .stdout(said.try_clone().unwrap())
        .stderr(said);
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"secret\n").unwrap();
    let mut peak = 0;
    let status = wait_for("the import", || {
        // Once it has ended it has none.
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = kib.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
        peak = peak.max(kib.unwrap_or(0));
        child.try_wait().unwrap()
    });
    let said = fs::read_to_string(&out).unwrap();
    let done = Done {
        success: status.success(),
        code: status.code().unwrap_or(-1),
        stdout: said.clone(),
        stderr: said,
    };
    (done, peak)
}

/// The names of the messages that Anne has, by folder.
fn there(server: &Server) -> Vec<(String, Vec<String>)> {
    let found = account(&mut server.anne()).folders.into_iter();
    let name = |seen: &super::Seen| message::name_of(&seen.2).unwrap();
    let mut found: Vec<_> = found
        .map(|(folder, all)| (folder, all.iter().map(name).collect::<Vec<_>>()))
        .filter(|(_, all)| !all.is_empty())
        .collect();
    found.iter_mut().for_each(|(_, all)| all.sort());
    found
}

fn names(folder: &str, of: &str) -> (String, Vec<String>) {
    (
        folder.to_owned(),
        UIDS.map(|uid| format!("{of}-{uid}")).to_vec(),
    )
}

#[test]
#[ignore = "long: hostile servers"]
fn a_server_that_never_ends_or_lies() {
    let server = Builder::default()
        .set("imap", "append_bytes_max = \"1MiB\"")
        .start();
    let source = Source::start();
    let check = |at: &str, once: &str, then: &str, code: i32, expected: &str| {
        source.be(Evil {
            at: at.to_owned(),
            once: once.as_bytes().to_vec(),
            then: then.as_bytes().to_vec(),
            goes_on: expected != CLOSED,
            ..Evil::default()
        });
        let (done, peak) = begin(&server, &source);
        let said = &done.stderr;
        assert!(
            done.code == code && said.contains(expected),
            "{at} {once:.60}: {done:?}"
        );
        assert!(peak < PEAK_KIB_MAX, "{at} {once:.60}: {peak} KiB");
    };
    let filler = |text: &str| text.repeat(4096);
    let long = "a line longer than is taken";
    check("CAPABILITY", "* CAPABILITY ", &filler("x"), 1, long);
    check("LOGIN", "* OK ", &filler("x "), 1, long);
    check(
        "LIST",
        "",
        &filler("* LIST () \"/\" a\r\n"),
        1,
        "has no end",
    );
    let nested = format!("* LIST () \"/\" {}\r\n", "a/".repeat(400));
    check("LIST", "", &nested.repeat(100), 1, "has no end");
    check(
        "LIST",
        &filler("* LIST () \"/\" a\r\n").repeat(3),
        "",
        1,
        "more than 10000 folders",
    );
    check("STATUS", "* 7 FETCH (", &filler("UID 7 "), 1, long);
    check("EXAMINE", "* 2 EXI", "", 1, CLOSED);
    // What came before is here.
    assert_eq!(
        there(&server),
        [names("F&APw-r", "FuAwg-r"), names("INBOX", "INBOX")]
    );
    check("EXAMINE", "* BYE no more\r\n", "", 1, "no more");
    check("UID SEARCH", "* SEARCH", &filler(" 1234567"), 1, long);
    check(
        "UID SEARCH",
        "",
        &filler("* SEARCH 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9\r\n"),
        1,
        "has no end",
    );
    let copied = "* OK [COPYUID 1 1:4294967295 1:4294967295] copied\r\n";
    // A code that cannot be read is none, and takes no memory.
    check("UID SEARCH", copied, "", 0, "4 already here");
    check("UID SEARCH", "* SEARCH 0\r\n", "", 1, "must not be zero");
    check(
        "UID SEARCH",
        "* SEARCH 18446744073709551617\r\n",
        "",
        1,
        "expected a number",
    );
    let literal = |bytes: &str| format!("* 1 FETCH (UID 5 BODY[] {{{bytes}}}\r\n");
    for bytes in [
        "17000000",
        "4294967297",
        "18446744073709551615",
        "99999999999999999999",
    ] {
        check(
            "UID FETCH",
            &literal(bytes),
            &filler("x"),
            1,
            "a literal longer than is taken",
        );
    }
    check(
        "UID FETCH",
        &literal("16000000"),
        &filler("x"),
        1,
        "has no end",
    );
    check("UID FETCH", "* 1 FETCH (FLAGS (a", &filler(" a"), 1, long);
    check(
        "UID FETCH",
        "",
        &filler("* 1 FETCH (UID 5 FLAGS ())\r\n"),
        1,
        "has no end",
    );
    check(
        "UID FETCH",
        "",
        &filler("* 1 FETCH (UID 5 BODY[] {3}\r\nabc)\r\n"),
        1,
        "has no end",
    );
    check(
        "UID FETCH",
        &format!("* 1 FETCH (BODY {}", "(".repeat(100_000)),
        "\r\n",
        1,
        "cannot be read",
    );
    check("UID FETCH", &literal("600"), "", 1, CLOSED);
    // Others than were asked for, and none of those.
    let others =
        "* 1 FETCH (UID 99 FLAGS () RFC822.SIZE 3)\r\n* 2 FETCH (UID 1 FLAGS () RFC822.SIZE 3)\r\n";
    check(
        "UID FETCH",
        others,
        "",
        4,
        "UID 5: the server did not give it",
    );
    // A message without end: its parts never are the last.
    let large = "* 1 FETCH (UID 5 FLAGS () RFC822.SIZE 3000000000)\r\n* 2 FETCH (UID 6 FLAGS () RFC822.SIZE 18446744073709551615)\r\n";
    let part = format!(
        "* 1 FETCH (BODY[] {{1048576}}\r\n{})\r\n",
        "y".repeat(1 << 20)
    );
    check(
        "UID FETCH",
        &(large.to_owned() + &part),
        "",
        4,
        "it has 2097152 bytes (imap.append_bytes_max: 1048576)",
    );

    source.be(Evil::default());
    let (done, _) = begin(&server, &source);
    assert!(
        done.success && done.stdout.contains("2 messages imported, 4 already here"),
        "{done:?}"
    );
    let all = [
        names("F&APw-r", "FuAwg-r"),
        names("INBOX", "INBOX"),
        names("Last", "Last"),
    ];
    assert_eq!(there(&server), all);
    let (done, _) = begin(&server, &source);
    assert!(
        done.success && done.stdout.contains("0 messages imported, 6 already here"),
        "{done:?}"
    );
    assert_eq!(there(&server), all);
}

/// A folder whose name is too long gets a shorter one, one whose name is none costs no other; and what another server says drives no terminal.
#[test]
#[ignore = "long: hostile servers"]
fn folders_that_are_not_possible() {
    let server = Server::start_plain();
    let source = Source::start();
    // Each level is short enough, the name is not: each gets its share.
    let long = vec!["n".repeat(200); 5].join("/");
    let short = vec!["n".repeat(199); 5].join("/");
    let cut = format!("{long} becomes {short}: it is too long");
    // And names that are none: text that is no UTF-7, 8-bit text, controls.
    let line = |name: &[u8]| [b"* LIST () \"/\" ", name, b"\r\n"].concat();
    let names_listed: [&[u8]; 6] = [
        long.as_bytes(),
        b"\"a & b\"",
        b"INBOX",
        b"F\xfcr",
        b"{4}\r\na\x1b\r\n",
        b"Fu&Awg-r",
    ];
    source.be(Evil {
        at: "LIST".to_owned(),
        once: names_listed.map(line).concat(),
        goes_on: true,
        ..Evil::default()
    });
    let (done, _) = begin(&server, &source);
    assert_eq!(done.code, 4, "{done:?}");
    for expected in [
        "Fu\u{308}r becomes F\u{fc}r",
        cut.as_str(),
        "skipped: a & b: mailbox name is not valid modified UTF-7",
        "skipped: F\\xfcr: mailbox name is not valid modified UTF-7",
        "skipped: a\\x1b\\r\\n: mailbox name is not valid modified UTF-7",
        "6 messages imported, 0 already here, 0 skipped; 3 folders; other files and folders: 3 skipped, 0 ignored",
    ] {
        assert!(done.stderr.contains(expected), "{done:?}");
    }
    assert_eq!(
        there(&server),
        [
            names("F&APw-r", "FuAwg-r"),
            names("INBOX", "INBOX"),
            names(&short, &long)
        ]
    );

    source.be(Evil {
        at: "LOGIN".to_owned(),
        once: b"c2 NO \x1b]0;title\x07\x1b[2J go away\r\n".to_vec(),
        ..Evil::default()
    });
    let (done, _) = begin(&server, &source);
    assert!(
        done.code == 1 && done.stderr.contains("]0;title"),
        "{done:?}"
    );
    assert!(!done.stderr.contains(['\x1b', '\x07', '\r']), "{done:?}");
}

/// What a server says NO to costs what it was asked for, and no more.
#[test]
#[ignore = "long: hostile servers"]
fn a_server_that_cannot_read_its_own_mail() {
    let server = Server::start_plain();
    let source = Source::start();
    let check = |at: &str, once: &[u8], expected: &str| {
        source.be(Evil {
            at: at.to_owned(),
            once: once.to_vec(),
            goes_on: true,
            refuses: true,
            ..Evil::default()
        });
        let (done, _) = begin(&server, &source);
        assert!(
            done.code == 4 && done.stderr.contains(expected),
            "{at}: {done:?}"
        );
    };
    check("UID SEARCH", b"", "skipped: Last: damaged");
    // The folders before it are whole.
    assert_eq!(
        there(&server),
        [names("F&APw-r", "FuAwg-r"), names("INBOX", "INBOX")]
    );
    let not_given = "Last: UID 6: the server did not give it: damaged";
    check("UID FETCH 5:6 (UID FLAGS", b"", not_given);
    // One of two is given.
    let text = body("Last", 5);
    let head = format!("* 1 FETCH (UID 5 BODY[] {{{}}}\r\n", text.len());
    let given = [head.as_bytes(), &text, b")\r\n"].concat();
    check("UID FETCH 5:6 (UID BODY", &given, not_given);
    let all = there(&server);
    assert_eq!(
        all.last(),
        Some(&("Last".to_owned(), vec!["Last-5".to_owned()]))
    );
    // It is repaired, and the other one comes.
    source.be(Evil::default());
    let (done, _) = begin(&server, &source);
    assert!(
        done.success && done.stdout.contains("1 message imported, 5 already here"),
        "{done:?}"
    );
}

/// What is archived on Gmail lies in its folder of all mail only. It comes once; what lies elsewhere, too, comes from there.
#[test]
#[ignore = "long: hostile servers"]
fn archived_mail_of_gmail() {
    let server = Server::start_plain();
    let source = Source::start();
    source.be(Evil {
        is_gmail: true,
        ..Evil::default()
    });
    for expected in [
        "5 messages imported, 0 already",
        "0 messages imported, 5 already",
    ] {
        let (done, _) = begin(&server, &source);
        assert!(done.success && done.stdout.contains(expected), "{done:?}");
        // What lies nowhere else goes into the archive folder that is here.
        let all = [
            ("Archive".to_owned(), vec!["Last-6".to_owned()]),
            names("F&APw-r", "FuAwg-r"),
            names("INBOX", "INBOX"),
        ];
        assert_eq!(there(&server), all);
    }
}
