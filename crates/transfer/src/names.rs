//! Names of folders, from those of elsewhere to those that are possible here, such that two never become one.

use std::{borrow::Cow, collections::BTreeMap};

use unicode_normalization::UnicodeNormalization as _;

/// Gives each folder of a source its name.
#[derive(Debug)]
pub struct Mapper {
    level_bytes_max: usize,
    depth_max: usize,
    name_bytes_max: usize,
    /// Names that are taken, and the last number that was tried behind each: so the next that would have it is found at once.
    taken: BTreeMap<String, u64>,
}

/// A name, and why it is not simply the source's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// `/` between levels.
    pub name: String,
    /// For people.
    pub changed: Option<&'static str>,
}

impl Mapper {
    /// With limits: of a level in bytes, of levels, and of a whole name in bytes. A name must have room for a few bytes of each level.
    #[must_use]
    pub fn new(level_bytes_max: usize, depth_max: usize, name_bytes_max: usize) -> Self {
        assert!(name_bytes_max / depth_max > LEVEL_BYTES_MIN);
        Mapper {
            level_bytes_max,
            depth_max,
            name_bytes_max,
            taken: BTreeMap::new(),
        }
    }

    /// The name of a folder, from its levels. Each call is for another folder, and gives another name.
    pub fn map(&mut self, levels: &[String]) -> Mapped {
        let mut changed = None;
        let mut good: Vec<String> = Vec::new();
        for level in levels {
            if level.is_empty() {
                changed = Some("it has an empty level");
                good.push("_".to_owned());
                continue;
            }
            // Names of mailboxes are Net-Unicode (RFC 9051, 5.1), in normal form C (RFC 5198, 3): what macOS has made is not.
            let composed: String = level.nfc().collect();
            if composed != *level {
                changed = Some("it is not in Unicode's normal form C");
            }
            let mut text: String = composed
                .chars()
                .map(|c| if is_good(c) { c } else { '_' })
                .collect();
            if text != composed {
                changed = Some("it has characters that are not possible here");
            }
            if text.len() > self.level_bytes_max {
                changed = Some("it is too long");
                cut(&mut text, self.level_bytes_max);
            }
            good.push(text);
        }
        if good.len() > self.depth_max {
            changed = Some("it is too deep");
            let mut last = good.split_off(self.depth_max - 1).join("-");
            cut(&mut last, self.level_bytes_max);
            good.push(last);
        }
        // Of each level and what stands before it; before the first stands nothing.
        let bytes: usize = good.iter().map(|level| level.len() + 1).sum();
        if bytes > self.name_bytes_max + 1 {
            changed = Some("it is too long");
            let share = (self.name_bytes_max + 1) / good.len() - 1;
            good.iter_mut().for_each(|level| cut(level, share));
        }
        match good.first_mut() {
            None => good.push("INBOX".to_owned()),
            Some(first) if first.eq_ignore_ascii_case("INBOX") => *first = "INBOX".to_owned(),
            Some(_) => {}
        }
        let base = good.join("/");
        let mut name = base.clone();
        let mut number = self.taken.get(&base).copied().unwrap_or(1);
        while self.taken.contains_key(&name) {
            number += 1;
            changed = Some("another folder has that name here");
            let end = format!(" ({number})");
            name = base.clone();
            cut(&mut name, self.name_bytes_max.saturating_sub(end.len()));
            name.push_str(&end);
        }
        self.taken.insert(name.clone(), 1);
        self.taken.insert(base, number);
        Mapped { name, changed }
    }
}

/// The text of a file's name. One that is no UTF-8 is read as Latin-1: so two names stay two.
#[must_use]
pub fn text(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(name.iter().copied().map(char::from).collect()),
    }
}

/// Of a level that is cut: one character of any kind.
const LEVEL_BYTES_MIN: usize = 4;

fn is_good(c: char) -> bool {
    !c.is_control()
        && !matches!(
            c,
            '/' | '*' | '%' | '\u{2028}' | '\u{2029}' | '\u{FFFE}' | '\u{FFFF}'
        )
}

fn cut(text: &mut String, bytes_max: usize) {
    text.truncate(text.floor_char_boundary(bytes_max));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let mut mapper = Mapper::new(10, 3, 33);
        let mut check = |levels: &[&str], name: &str, is_changed: bool| {
            let levels: Vec<String> = levels.iter().map(|level| (*level).to_owned()).collect();
            let mapped = mapper.map(&levels);
            assert_eq!(
                (mapped.name.as_str(), mapped.changed.is_some()),
                (name, is_changed)
            );
        };
        check(&["INBOX"], "INBOX", false);
        check(&["A", "B"], "A/B", false);
        check(&["A", "B"], "A/B (2)", true);
        check(&["A/B"], "A_B", true);
        check(&["A_B"], "A_B (2)", true);
        check(&["A*B"], "A_B (3)", true);
        check(&["inbox", "x"], "INBOX/x", false);
        check(&["a\nb"], "a_b", true);
        check(&["", "c"], "_/c", true);
        check(&["d", ""], "d/_", true);
        check(&["d"], "d", false);
        check(&["ééééééé"], "ééééé", true);
        check(&["1", "2", "3", "4"], "1/2/3-4", true);
        check(&["Inbox"], "INBOX (2)", true);
        // Two spellings of one name.
        check(&["Fu\u{308}r"], "F\u{fc}r", true);
        check(&["F\u{fc}r"], "F\u{fc}r (2)", true);
        // It is measured as it is here.
        check(
            &["u\u{308}u\u{308}u\u{308}u\u{308}u\u{308}"],
            "\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}",
            true,
        );
    }

    /// Each level is within its limit, and all of them together are more than a name may have.
    #[test]
    fn a_name_that_is_too_long_as_a_whole() {
        let mut mapper = Mapper::new(200, 30, 900);
        let mut check = |letter: &str, depth: usize, bytes: usize| {
            let levels = vec![letter.repeat(100); depth];
            let mapped = mapper.map(&levels);
            assert_eq!(mapped.name.len(), bytes, "{letter} {depth}");
            assert_eq!(mapped.name.split('/').count(), depth.min(30));
            assert_eq!(mapped.changed.is_some(), bytes != 101 * depth - 1);
        };
        check("x", 8, 807);
        // 99 for each of nine levels, and what divides them.
        check("x", 9, 899);
        check("x", 30, 899);
        check("y", 40, 899);
        // No letter is cut in two.
        check("日", 30, 27 * 30 + 29);
    }

    /// The number that tells two folders apart is a part of the name, and counts.
    #[test]
    fn a_number_behind_a_name_that_is_as_long_as_it_may_be() {
        let mut mapper = Mapper::new(40, 2, 40);
        let levels = ["x".repeat(40)];
        assert_eq!(mapper.map(&levels).name, "x".repeat(40));
        for number in 2..12 {
            let name = mapper.map(&levels).name;
            assert!(name.ends_with(&format!("x ({number})")), "{name}");
            assert_eq!(name.len(), 40);
        }
        let levels = ["\u{fc}".repeat(19)];
        assert_eq!(mapper.map(&levels).name.len(), 38);
        assert_eq!(mapper.map(&levels).name, "\u{fc}".repeat(18) + " (2)");
    }

    #[test]
    fn names_of_files_that_are_no_text() {
        assert_eq!(text("Entw\u{fc}rfe".as_bytes()), "Entw\u{fc}rfe");
        assert_eq!(text(b"Entw\xfcrfe"), "Entw\u{fc}rfe");
        assert_ne!(text(b"\xff"), text(b"\xfe"));
    }

    /// A list of folders may hold as many names that become one here as fit into a file.
    #[test]
    fn many_folders_that_would_have_one_name() {
        let mut mapper = Mapper::new(200, 30, 900);
        let mut letters = ('\0'..).filter(|c| c.is_control());
        let letters: Vec<char> = letters.by_ref().take(32).collect();
        let mut number = 0;
        for a in &letters {
            for b in &letters {
                for c in &letters {
                    let mapped = mapper.map(&[format!("{a}{b}{c}")]);
                    number += 1;
                    if number > 1 {
                        assert_eq!(mapped.name, format!("___ ({number})"));
                    }
                }
            }
        }
        assert_eq!(number, 32 * 32 * 32);
        // One that has such a name of its own.
        assert_eq!(mapper.map(&["___ (7)".to_owned()]).name, "___ (7) (2)");
    }
}
