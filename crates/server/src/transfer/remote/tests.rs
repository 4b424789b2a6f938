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
        let found = Found {
            uid: 5,
            bytes: said as u64,
            ..Found::default()
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
