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

/// The keywords of the messages of one folder, by the base of a file's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keywords {
    names: Vec<String>,
    messages: BTreeMap<Vec<u8>, Vec<u32>>,
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
    /// Reads [`LIST`]. Lines that make no sense are left out.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let mut lines = text.split(|byte| *byte == b'\n');
        let mut keywords = Keywords::default();
        for line in lines.by_ref() {
            if line.trim_ascii().is_empty() {
                break;
            }
            // Numbers count all lines: one that is no text has a number, too.
            let name = str::from_utf8(line.trim_ascii()).unwrap_or_default();
            keywords.names.push(name.to_owned());
        }
        for line in lines {
            let Some(at) = memchr::memrchr(b':', line) else {
                continue;
            };
            let numbers = str::from_utf8(&line[at + 1..]).unwrap_or_default();
            let numbers = numbers.split_ascii_whitespace();
            let numbers = numbers.filter_map(|of| of.parse::<u32>().ok());
            let known = |number: &u32| (*number as usize) < keywords.names.len();
            keywords
                .messages
                .insert(line[..at].to_vec(), numbers.filter(known).collect());
        }
        keywords
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
        let numbers = words.map(|word| self.number(word)).collect();
        self.messages.insert(base.to_vec(), numbers);
    }

    /// A message has this keyword, too.
    pub fn add(&mut self, base: &[u8], keyword: &str) {
        let number = self.number(keyword);
        let numbers = self.messages.entry(base.to_vec()).or_default();
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }

    fn number(&mut self, keyword: &str) -> u32 {
        let known = self.names.iter().position(|name| name == keyword);
        let number = known.unwrap_or_else(|| {
            self.names.push(keyword.to_owned());
            self.names.len() - 1
        });
        // There is one for each line of a file that is read whole.
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// The keywords of a message.
    pub fn of(&self, base: &[u8]) -> impl Iterator<Item = &str> {
        let numbers = self.messages.get(base).into_iter().flatten();
        let names = numbers.filter_map(|number| self.names.get(*number as usize));
        names.map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Whether no message has any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.values().all(Vec::is_empty)
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
        for (base, numbers) in self.messages.iter().filter(|(_, of)| !of.is_empty()) {
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
