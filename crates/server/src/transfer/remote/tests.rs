//! What another server says, and what is made of it.

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::*;

const PART: usize = MEMORY_BYTES_MAX;

/// Does something with a server that answers each command with the next of these, up to its OK. Then what it was asked.
fn with<T>(
    capabilities: &[&str],
    answers: Vec<Vec<u8>>,
    work: impl AsyncFnOnce(&mut Connection) -> T,
) -> (T, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.unwrap().block_on(async move {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let server = tokio::spawn(async move {
            let (read, mut write) = tokio::io::split(theirs);
            write.write_all(b"* OK hello\r\n").await.unwrap();
            let mut lines = BufReader::new(read).lines();
            let mut answers = answers.into_iter();
            let mut asked = Vec::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                let (tag, command) = line.split_once(' ').unwrap();
                write.write_all(&answers.next().unwrap()).await.unwrap();
                let end = format!("{tag} OK done\r\n");
                write.write_all(end.as_bytes()).await.unwrap();
                asked.push(command.to_owned());
            }
            asked
        });
        let mut connection = Connection {
            wire: greeted(Box::new(ours)).await.unwrap(),
            server: "there:993".to_owned(),
            user: "anne".to_owned(),
            capabilities: capabilities.iter().map(|&of| of.to_owned()).collect(),
            utf8: false,
        };
        let done = work(&mut connection).await;
        drop(connection);
        (done, server.await.unwrap())
    })
}

fn part(data: Option<&[u8]>) -> Vec<u8> {
    let data = match data {
        Some(data) => [format!("{{{}}}\r\n", data.len()).as_bytes(), data].concat(),
        None => b"NIL".to_vec(),
    };
    [b"* 1 FETCH (UID 5 BODY[]<0> ", &data[..], b")\r\n"].concat()
}

/// Fetches one message of which the server says that it has `said` bytes: how many it has, if it is given, and where its parts began.
fn large(said: usize, answers: Vec<Vec<u8>>) -> (Option<u64>, Vec<usize>) {
    let count = answers.len();
    let (given, asked) = with(&[], answers, async |connection| {
        let found = MessageInfo {
            uid: 5,
            bytes: said as u64,
            ..MessageInfo::default()
        };
        connection.large(&found, u64::MAX).await.unwrap()
    });
    assert!(given.1.is_none());
    assert_eq!(asked.len(), count);
    let begins = asked.iter().map(|line| {
        let (_, rest) = line.split_once('<').unwrap();
        rest.split_once('.').unwrap().0.parse().unwrap()
    });
    (given.0.get(&5).map(Body::len), begins.collect())
}

#[test]
fn a_large_message_in_parts() {
    let full = vec![b'x'; PART];
    let full = || part(Some(&full));
    let short = |bytes: usize| part(Some(&vec![b'x'; bytes]));
    let check = |said: usize, answers: Vec<Vec<u8>>, bytes: Option<usize>, begins: &[usize]| {
        let (given, begun) = large(said, answers);
        assert_eq!((given, &begun[..]), (bytes.map(|of| of as u64), begins));
    };
    let size = PART + 7;
    check(size, vec![full(), short(7)], Some(size), &[0, PART]);
    // It has more bytes than were said, and fewer.
    let parts = vec![full(), full(), short(7)];
    check(size, parts, Some(2 * PART + 7), &[0, PART, 2 * PART]);
    let parts = vec![full(), short(7), short(0)];
    check(3 * PART, parts, Some(size), &[0, PART, size]);
    // As many as two parts hold.
    for end in [short(0), part(None)] {
        let parts = vec![full(), full(), end];
        check(2 * PART, parts, Some(2 * PART), &[0, PART, 2 * PART]);
    }
    // The server gives less at once than it is asked for.
    let parts = vec![short(PART / 2), short(PART / 2), short(7)];
    check(size, parts, Some(size), &[0, PART / 2, PART]);
}

/// A server says OK and gives nothing (RFC 9051, 6.4.9), or NIL: what came until then is no message.
#[test]
fn a_large_message_that_vanishes() {
    let full = part(Some(&vec![b'x'; PART]));
    for nothing in [Vec::new(), part(None), b"* 1 EXPUNGE\r\n".to_vec()] {
        let answers = vec![full.clone(), nothing.clone()];
        assert_eq!(large(PART + 7, answers), (None, vec![0, PART]));
        assert_eq!(large(PART + 7, vec![nothing]), (None, vec![0]));
    }
}

/// A server that gives some bytes at a time is asked for a while, and not for as many parts as there are bytes.
#[test]
fn a_large_message_in_very_small_parts() {
    let give = |bytes: usize, parts: u64| {
        let answers = (0..parts).map(|_| part(Some(&vec![b'x'; bytes])));
        let (given, asked) = with(&[], answers.collect(), async |connection| {
            let found = MessageInfo {
                uid: 5,
                bytes: bytes as u64 * parts,
                ..MessageInfo::default()
            };
            connection.large(&found, u64::MAX).await.unwrap()
        });
        (given.0.len(), given.1.is_some(), asked.len() as u64)
    };
    assert_eq!(give(8192, 100), (1, false, 100));
    assert_eq!(give(1, 2 * PARTS_FREE), (0, true, PARTS_FREE + 1));
}

/// Without it, or with one that is no number of one, nobody could say later what is here already.
#[test]
fn a_mailbox_without_uidvalidity() {
    let uids = |code: &str| {
        let opened = format!("* 2 EXISTS\r\n{code}");
        let answers = vec![opened.into_bytes(), b"* SEARCH 4 7\r\n".to_vec()];
        with(&[], answers, async |connection| {
            connection.uids("INBOX", "ALL").await.unwrap()
        })
        .0
    };
    for code in [
        "",
        "* OK [UIDVALIDITY 0] x\r\n",
        "* OK [UIDVALIDITY 4294967296] x\r\n",
    ] {
        assert!(uids(code).is_err(), "{code:?}");
    }
    let known = uids("* OK [UIDVALIDITY 9] x\r\n");
    assert_eq!(known, Ok((9, vec![4, 7])));
}

const LISTED: &[u8] = b"* LIST () \"/\" INBOX\r\n* LIST (\\All) \"/\" \"[Gmail]/All Mail\"\r\n\
    * LIST (\\Flagged) \"/\" \"[Gmail]/Starred\"\r\n* LIST (\\Important) \"/\" \"[Gmail]/Important\"\r\n";

/// The folders of a server that lists [`LISTED`] and then says this: name, use, and messages. And how many could not be read.
#[allow(clippy::type_complexity)]
fn folders(
    capabilities: &[&str],
    said: &[&str],
) -> (Vec<(String, Option<String>, u64)>, u64, Vec<String>) {
    let said = said.iter().map(|said| said.as_bytes().to_vec());
    let answers = [LISTED.to_vec(), Vec::new()].into_iter().chain(said);
    let mut report = Report::default();
    let (folders, asked) = with(capabilities, answers.collect(), async |connection| {
        connection.folders(&mut report).await.unwrap()
    });
    let folders = folders.into_iter();
    let folders = folders.map(|of| (of.levels.join("/"), of.special_use, of.weight));
    let asked = asked.into_iter().skip(2).collect();
    (folders.collect(), report.others_skipped, asked)
}

/// A server that does not say which messages lie in no other folder: what it does not give is told.
#[test]
fn a_folder_of_all_mail() {
    let status = |count: u32| format!("* STATUS x (MESSAGES {count})\r\n");
    let inbox = || ("INBOX".to_owned(), None, 2);
    let important = || {
        let name = "[Gmail]/Important".to_owned();
        (name, Some("\\Important".to_owned()), 1)
    };
    for (count, failed) in [(3, 1), (0, 0)] {
        let said = [status(2), status(count), status(1)];
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        let (folders, told, _) = folders(&[], &said);
        assert_eq!(folders, [inbox(), important()]);
        assert_eq!(told, failed);
    }
}

/// Gmail says which: these are brought, and into the folder for archived mail.
#[test]
fn archived_mail_of_gmail() {
    let inbox = ("INBOX".to_owned(), None, 2);
    let archive = |count| {
        let name = "[Gmail]/All Mail".to_owned();
        (name, Some("\\Archive".to_owned()), count)
    };
    let status = "* STATUS x (MESSAGES 2)\r\n";
    let open = "* 9 EXISTS\r\n* OK [UIDVALIDITY 7] valid\r\n";
    let said = [status, open, "* SEARCH 4 7 5\r\n"];
    let (found, failed, asked) = folders(&["X-GM-EXT-1"], &said);
    assert_eq!((found, failed), (vec![inbox.clone(), archive(3)], 0));
    assert_eq!(
        asked[1..],
        [
            "EXAMINE \"[Gmail]/All Mail\"",
            "UID SEARCH X-GM-RAW \"has:nouserlabels -in:inbox -in:sent -in:drafts\""
        ]
    );
    let (found, failed, _) = folders(&["X-GM-EXT-1"], &[status, "* 0 EXISTS\r\n"]);
    assert_eq!((found, failed), (vec![inbox, archive(0)], 0));
}

/// A server may tell of one message bit by bit, and of changes in between.
#[test]
fn items_of_one_message_in_several_responses() {
    let said = b"* 1 FETCH (UID 5 RFC822.SIZE 7)\r\n* 1 FETCH (FLAGS (a))\r\n* 2 FETCH (UID 6 RFC822.SIZE 8)\r\n\
        * 1 FETCH (UID 5 FLAGS (\\Seen))\r\n* 1 FETCH (UID 5 INTERNALDATE \"01-Jan-2024 00:00:00 +0000\")\r\n";
    let wanted = BTreeMap::from([(5, [0; 16])]);
    let (found, asked) = with(&[], vec![said.to_vec()], async |connection| {
        connection.described(&wanted).await.unwrap().0
    });
    assert_eq!(asked, ["UID FETCH 5 (UID FLAGS INTERNALDATE RFC822.SIZE)"]);
    assert_eq!(found.len(), 1);
    let found = &found[&5];
    assert_eq!((found.uid, found.bytes), (5, 7));
    assert_eq!(found.flags, ["\\Seen"]);
    assert!(found.date.is_some());
}
