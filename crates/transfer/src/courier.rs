//! Keywords as Courier keeps them: in a directory `courierimapkeywords` beside `cur`.
//!
//! Its file `:list` has a line for each keyword, an empty line, and a line `BASE:0 2` for each message that has some, with the numbers of keywords.
//! Later changes are files: `.N.BASE` and `BASE`, a keyword in each line. The one without a number is the newest, then the greatest number.
//! (Courier's own description: README.imapkeywords.)
//!
//! An export uses it for the keywords for which a Maildir has no letters left.

use std::collections::BTreeMap;

/// The directory.
pub const DIRECTORY: &str = "courierimapkeywords";
/// The file for all messages.
pub const LIST: &str = ":list";

/// Messages with keywords of one folder that are looked at: what is held of each is some 100 bytes.
pub const MESSAGES_MAX: usize = 1 << 20;

/// Keywords of one folder that are looked at. Each takes place in memory, and an account takes fewer.
pub const KEYWORDS_MAX: usize = 10_000;

/// The keywords of the messages of one folder, by the base of a file's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keywords {
    names: Vec<String>,
    numbers: BTreeMap<String, u32>,
    messages: BTreeMap<Vec<u8>, Vec<u32>>,
    messages_max: usize,
    is_cut: bool,
}

impl Default for Keywords {
    fn default() -> Self {
        Self::of_messages(MESSAGES_MAX)
    }
}

/// What a file's name in [`DIRECTORY`] says: which message's keywords it holds, and how new it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// Of a message.
    pub base: &'a [u8],
    /// A greater one counts.
    pub age: u64,
}

impl Keywords {
    /// None, of so many messages at the most.
    fn of_messages(messages_max: usize) -> Self {
        Keywords {
            names: Vec::new(),
            numbers: BTreeMap::new(),
            messages: BTreeMap::new(),
            messages_max,
            is_cut: false,
        }
    }

    /// Reads [`LIST`]. Lines that make no sense are left out.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let mut keywords = Keywords::default();
        keywords.read(text);
        keywords
    }

    fn read(&mut self, text: &[u8]) {
        let mut lines = text.split(|byte| *byte == b'\n');
        // The numbers of the list, which count all lines, as numbers here; of one that is no text there is none.
        let mut numbers: Vec<Option<u32>> = Vec::new();
        for line in lines.by_ref() {
            let line = line.trim_ascii();
            if line.is_empty() {
                break;
            }
            if numbers.len() < KEYWORDS_MAX {
                let name = str::from_utf8(line).ok();
                numbers.push(name.and_then(|name| self.number(name)));
            } else {
                self.is_cut = true;
            }
        }
        for line in lines {
            let Some(at) = memchr::memrchr(b':', line) else {
                continue;
            };
            let words = str::from_utf8(&line[at + 1..]).unwrap_or_default();
            let words = words.split_ascii_whitespace();
            let known = words.filter_map(|of| *numbers.get(of.parse::<usize>().ok()?)?);
            self.set(&line[..at], known.collect());
        }
    }

    /// Whether some of it was too much: [`MESSAGES_MAX`], [`KEYWORDS_MAX`].
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Reads the name of a file in [`DIRECTORY`]; `None` if it is none of a message's.
    #[must_use]
    pub fn change(name: &[u8]) -> Option<Change<'_>> {
        let Some(rest) = name.strip_prefix(b".") else {
            return (!name.starts_with(b":")).then_some(Change {
                base: name,
                age: u64::MAX,
            });
        };
        let dot = memchr::memchr(b'.', rest)?;
        let age = str::from_utf8(&rest[..dot]).ok()?.parse().ok()?;
        let base = &rest[dot + 1..];
        Some(Change { base, age })
    }

    /// A message has these keywords now: a line each, up to an empty one.
    pub fn replace(&mut self, base: &[u8], text: &str) {
        let lines = text.lines().map(str::trim_ascii);
        let words = lines.take_while(|line| !line.is_empty());
        let numbers = words.filter_map(|word| self.number(word)).collect();
        self.set(base, numbers);
    }

    /// A message has this keyword, too.
    pub fn add(&mut self, base: &[u8], keyword: &str) {
        let mut numbers = self.messages.remove(base).unwrap_or_default();
        numbers.extend(self.number(keyword));
        numbers.sort_unstable();
        numbers.dedup();
        self.set(base, numbers);
    }

    fn set(&mut self, base: &[u8], mut numbers: Vec<u32>) {
        self.messages.remove(base);
        if numbers.is_empty() {
            return;
        }
        if self.messages.len() >= self.messages_max {
            self.is_cut = true;
            return;
        }
        numbers.shrink_to_fit();
        self.messages.insert(base.to_vec(), numbers);
    }

    /// The number of a keyword, given to it now if need be.
    fn number(&mut self, keyword: &str) -> Option<u32> {
        if let Some(number) = self.numbers.get(keyword) {
            return Some(*number);
        }
        if self.names.len() >= KEYWORDS_MAX {
            self.is_cut = true;
            return None;
        }
        let number = u32::try_from(self.names.len()).ok()?;
        self.names.push(keyword.to_owned());
        self.numbers.insert(keyword.to_owned(), number);
        Some(number)
    }

    /// The keywords of a message.
    pub fn of(&self, base: &[u8]) -> impl Iterator<Item = &str> {
        let numbers = self.messages.get(base).into_iter().flatten();
        numbers
            .filter_map(|number| self.names.get(*number as usize))
            .map(String::as_str)
    }

    /// Whether no message has any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// As [`LIST`] has them.
    #[must_use]
    pub fn to_text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for name in &self.names {
            text.extend_from_slice(name.as_bytes());
            text.push(b'\n');
        }
        text.push(b'\n');
        for (base, numbers) in &self.messages {
            let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
            text.extend_from_slice(base);
            text.push(b':');
            text.extend_from_slice(numbers.join(" ").as_bytes());
            text.push(b'\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(keywords: &'a Keywords, base: &str) -> Vec<&'a str> {
        keywords.of(base.as_bytes()).collect()
    }

    #[test]
    fn the_list_and_its_changes() {
        let list = b"one\nW\xfcrde\ntwo words\r\nthree\n\n1.a.host:0 3\n2.b.host:3 1 99 x\nnonsense\n3.c:d:2\n";
        let mut keywords = Keywords::parse(list);
        assert_eq!(of(&keywords, "1.a.host"), ["one", "three"]);
        assert_eq!(of(&keywords, "2.b.host"), ["three"]);
        assert_eq!(of(&keywords, "3.c:d"), ["two words"]);
        assert!(of(&keywords, "4").is_empty());
        keywords.replace(b"1.a.host", "three\nnew\n\nold\n");
        assert_eq!(of(&keywords, "1.a.host"), ["three", "new"]);
        keywords.replace(b"2.b.host", "");
        assert!(of(&keywords, "2.b.host").is_empty());
        for empty in ["", "\n", "one\ntwo", "one\n\n"] {
            assert!(Keywords::parse(empty.as_bytes()).is_empty(), "{empty:?}");
        }
    }

    #[test]
    fn it_is_bounded() {
        let list: String = (0..2 * KEYWORDS_MAX).map(|n| format!("k{n}\n")).collect();
        let last = KEYWORDS_MAX - 1;
        let mut keywords = Keywords::parse(format!("{list}\na:{last} {KEYWORDS_MAX}\n").as_bytes());
        assert!(keywords.is_cut());
        assert_eq!(of(&keywords, "a"), [format!("k{last}")]);
        keywords.replace(b"a", "another\nk7\n");
        assert_eq!(of(&keywords, "a"), ["k7"]);
        let mut keywords = Keywords::of_messages(2);
        keywords.read(b"k\n\na:0\nb:\nc:0\na:0\nd:0\n");
        assert!(keywords.is_cut() && of(&keywords, "c") == ["k"]);
        assert!(of(&keywords, "d").is_empty());
        assert!(!Keywords::parse(b"k\n\na:0\n").is_cut());
    }

    #[test]
    fn names_of_changes() {
        let check = |name: &str, expected: Option<(&str, u64)>| {
            let found = Keywords::change(name.as_bytes());
            let found = found.map(|of| (str::from_utf8(of.base).unwrap(), of.age));
            assert_eq!(found, expected, "{name}");
        };
        check(":list", None);
        check("1.a.host", Some(("1.a.host", u64::MAX)));
        check(".12.1.a.host", Some(("1.a.host", 12)));
        check(".tmp.12.x", None);
        check(".x", None);
    }

    #[test]
    fn what_is_written_is_read() {
        let mut keywords = Keywords::default();
        keywords.add(b"1.a", "x");
        keywords.add(b"1.a", "y");
        keywords.add(b"1.a", "x");
        keywords.add(b"2.b", "y");
        assert_eq!(keywords.to_text(), b"x\ny\n\n1.a:0 1\n2.b:1\n");
        assert_eq!(Keywords::parse(&keywords.to_text()), keywords);
    }
}
