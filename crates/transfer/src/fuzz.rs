//! Entry points for fuzzers, also used by a property test: each takes arbitrary bytes and panics when an invariant is broken.

use std::collections::BTreeSet;

use whimbrel_imap::core::{DateTime, Flag};

use crate::{
    courier,
    lines::ToCrlf,
    maildir::{self, Keywords},
    mbox::{AHEAD_BYTES, Event, FLAGS_MAX, NotMbox, Quoting, Reader, Writer},
    names::{self, Mapper},
};

/// What makes any bytes behind it an mbox.
const FIRST: &[u8] = b"From a Thu Jan  1 00:00:00 1970\n";

/// A message of an mbox.
#[derive(Debug, Default, PartialEq, Eq)]
struct Message {
    seconds: i64,
    bytes: Vec<u8>,
    flags: Vec<String>,
}

/// An mbox of others, whole and in pieces: the same messages, each of which is written and read as the same. The first byte chooses the
/// quoting, the pieces, and whether a line is put before the rest.
pub fn mbox(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else {
        return;
    };
    let quoting = [Quoting::Rd, Quoting::O, Quoting::None][usize::from(choice % 3)];
    let piece = usize::from(choice % 128 / 3) + 1;
    let first = if choice < 128 { FIRST } else { b"" };
    let file = [first, rest].concat();
    let found = read(&file, quoting, file.len().max(1));
    assert_eq!(found, read(&file, quoting, piece), "cut otherwise");
    let found = found.unwrap_or_default();
    let bytes: usize = found.iter().map(|message| message.bytes.len()).sum();
    assert!(
        bytes <= 2 * file.len(),
        "more than the line ends was added to the messages"
    );
    for message in found {
        assert!(message.flags.is_sorted() && message.flags.len() <= FLAGS_MAX);
        written(message, piece);
    }
}

/// A message that is exported: seconds, and its bytes, which are anything.
pub fn message(data: &[u8]) {
    let Some((seconds, bytes)) = data.split_first_chunk() else {
        return;
    };
    let message = Message {
        // Beyond the years that a date can say, too.
        seconds: i64::from_le_bytes(*seconds) >> 16,
        bytes: bytes.to_vec(),
        flags: vec!["\\Seen".to_owned(), "later".to_owned()],
    };
    written(message, usize::from(seconds[0]) + 1);
}

fn read(file: &[u8], quoting: Quoting, piece: usize) -> Result<Vec<Message>, NotMbox> {
    let (mut found, mut lines) = (Vec::<Message>::new(), None);
    let mut reader = Reader::new(quoting);
    let ahead = |at: u64| {
        let rest = usize::try_from(at).ok().and_then(|at| file.get(at..));
        rest.unwrap_or_default()
            .iter()
            .copied()
            .take(AHEAD_BYTES)
            .collect()
    };
    let mut tell = |event: Event<'_>| match event {
        Event::Begin => {
            assert!(lines.is_none(), "a message within another");
            lines = Some(ToCrlf::new());
            found.push(Message::default());
        }
        Event::Bytes(bytes) => {
            let (Some(lines), Some(message)) = (&mut lines, found.last_mut()) else {
                panic!("bytes of no message");
            };
            lines.push(bytes, &mut message.bytes);
        }
        Event::End(kept) => {
            let (Some(_), Some(message)) = (lines.take(), found.last_mut()) else {
                panic!("the end of no message");
            };
            message.seconds = kept.seconds.unwrap_or_default();
            message.flags = kept.flags;
        }
    };
    let mut done = Ok(());
    for part in file.chunks(piece) {
        done = done.and_then(|()| reader.push(part, &ahead, &mut tell));
    }
    done = done.and_then(|()| reader.finish(&mut tell));
    assert!(lines.is_none(), "a message without an end");
    assert!(
        done.is_ok() || found.is_empty(),
        "whether it is an mbox, its first lines say"
    );
    done.map(|()| found)
}

/// What is written is the same however it comes, and is read as one message with this date and these flags; with these bytes if the writer says
/// so.
fn written(message: Message, piece: usize) {
    // As an account can hold them.
    let seconds = DateTime::utc(message.seconds).unix_seconds();
    let flags = message.flags.iter();
    let flags = flags.filter_map(|flag| Flag::new(flag.as_bytes()));
    let mut flags: Vec<String> = flags.map(|flag| flag.to_string()).collect();
    flags.sort();
    flags.dedup();
    let write = |piece: usize| {
        let mut file = Vec::new();
        let mut writer = Writer::new(seconds, &flags, &mut file);
        for part in message.bytes.chunks(piece) {
            writer.push(part, &mut file);
        }
        let exact = writer.finish(&mut file);
        (file, exact)
    };
    let (file, exact) = write(piece);
    assert_eq!(write(usize::MAX), (file.clone(), exact), "cut otherwise");
    let again = read(&file, Quoting::Rd, piece).unwrap_or_default();
    let [again] = &again[..] else {
        panic!("one message is read as {again:?}");
    };
    assert_eq!((again.seconds, &again.flags), (seconds, &flags));
    assert!(
        !exact || again.bytes == message.bytes,
        "kept to the byte, it was said"
    );
}

/// Line ends: the same whatever the cut, and once they are right they stay.
pub fn lines(data: &[u8]) {
    let Some((&choice, text)) = data.split_first() else {
        return;
    };
    let run = |text: &[u8], piece: usize| {
        let (mut lines, mut out) = (ToCrlf::new(), Vec::new());
        for part in text.chunks(piece) {
            lines.push(part, &mut out);
        }
        out
    };
    let out = run(text, usize::MAX);
    assert_eq!(run(text, usize::from(choice) + 1), out, "cut otherwise");
    assert_eq!(run(&out, usize::MAX), out);
    let kept = |bytes: &[u8]| -> Vec<u8> {
        let kept = bytes.iter().copied();
        kept.filter(|byte| !b"\r\n".contains(byte)).collect()
    };
    assert_eq!(kept(&out), kept(text));
}

/// Names in a Maildir, divided by NUL: `dovecot-keywords`, a file, a directory, Courier's list of keywords; the rest is `subscriptions`. Gives the
/// names that its folders would have here, within the limits of `mapper`.
pub fn names(data: &[u8], mut mapper: Mapper) -> Vec<String> {
    let mut parts = data.splitn(5, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let keywords = Keywords::parse(&String::from_utf8_lossy(part()));
    assert_eq!(Keywords::parse(&keywords.to_text()), keywords);
    file(part(), &keywords);
    let mut folders: Vec<Vec<String>> = maildir::levels(&names::text(part())).into_iter().collect();
    let kept = courier::Keywords::parse(part());
    assert!(kept.of(b"1.a.host").all(|keyword| !keyword.is_empty()));
    let list = String::from_utf8_lossy(part());
    for (separator, is_courier) in [('.', true), ('/', false)] {
        for meanings in maildir::subscriptions(&list, separator, is_courier) {
            assert!(!meanings.is_empty() && meanings.len() <= 4);
            folders.extend(meanings);
        }
    }
    let mapped: Vec<String> = folders.iter().map(|of| mapper.map(of).name).collect();
    for levels in &folders {
        assert!(!levels.is_empty());
        let words: Vec<&str> = levels.iter().map(String::as_str).collect();
        let directory = maildir::directory(&words);
        assert!(directory.is_ascii());
        if directory != "." {
            assert_eq!(maildir::levels(&directory).as_ref(), Some(levels));
        }
        let line = maildir::subscription(&words, '/');
        let again = maildir::subscriptions(&line, '/', false);
        assert!(line.is_empty() || again[0][0] == *levels);
    }
    let all: BTreeSet<&String> = mapped.iter().collect();
    assert_eq!(all.len(), mapped.len(), "two folders with one name");
    mapped
}

/// A file's name: what it says can be written, and is read as the same.
fn file(name: &[u8], keywords: &Keywords) {
    let Some(found) = maildir::parse_name(name, keywords) else {
        assert!(name.starts_with(b"."));
        return;
    };
    assert!(name.starts_with(found.base));
    assert!(found.flags.is_sorted());
    let flags = found.flags.iter();
    let flags = flags.filter_map(|flag| Flag::new(flag.as_bytes()));
    let flags: Vec<String> = flags.map(|flag| flag.to_string()).collect();
    let mut ours = Keywords::default();
    let seconds = i64::from(found.seconds());
    let (again, left) = maildir::file_name(seconds, "id", 7, &flags, &mut ours);
    let ours = Keywords::parse(&ours.to_text());
    let Some(again) = maildir::parse_name(again.as_bytes(), &ours) else {
        panic!("a name of ours that is none");
    };
    assert!(again.as_it_is && again.unknown.is_empty());
    assert_eq!(again.seconds(), found.seconds());
    // Keywords that differ in case alone are one.
    let folded = |flags: &[&[String]]| {
        let mut flags: Vec<String> = flags.concat();
        flags
            .iter_mut()
            .for_each(|flag| flag.make_ascii_lowercase());
        flags.sort();
        flags.dedup();
        flags
    };
    assert_eq!(folded(&[&again.flags, &left]), folded(&[&flags]));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_survived(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            mbox(&data);
            message(&data);
            lines(&data);
            names(&data, Mapper::new(20, 3, 50));
        }
    }
}
