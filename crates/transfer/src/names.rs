//! Names of folders, from those of elsewhere to those that are possible here, such that two never become one.

use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization as _;

/// Gives each folder of a source its name.
#[derive(Debug)]
pub struct Mapper {
    level_bytes_max: usize,
    depth_max: usize,
    /// Names that are given, and whose they are.
    given: BTreeMap<String, Vec<String>>,
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
    /// With limits: of a level in bytes, and of levels.
    #[must_use]
    pub fn new(level_bytes_max: usize, depth_max: usize) -> Self {
        Mapper {
            level_bytes_max,
            depth_max,
            given: BTreeMap::new(),
        }
    }

    /// The name of a folder, from its levels. The same for the same folder; another for any other.
    pub fn map(&mut self, levels: &[String]) -> Mapped {
        let mut changed = None;
        let mut good: Vec<String> = Vec::new();
        for level in levels {
            if level.is_empty() {
                changed = Some("it has an empty level");
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
                text = cut(&text, self.level_bytes_max).to_owned();
            }
            good.push(text);
        }
        if good.len() > self.depth_max {
            changed = Some("it is too deep");
            let last = good.split_off(self.depth_max - 1).join("-");
            good.push(cut(&last, self.level_bytes_max).to_owned());
        }
        match good.first_mut() {
            None => good.push("INBOX".to_owned()),
            Some(first) if first.eq_ignore_ascii_case("INBOX") => *first = "INBOX".to_owned(),
            Some(_) => {}
        }
        let base = good.join("/");
        let mut name = base.clone();
        let mut number = 1;
        while self.given.get(&name).is_some_and(|of| of != levels) {
            number += 1;
            changed = Some("another folder has that name here");
            name = format!("{base} ({number})");
        }
        self.given.insert(name.clone(), levels.to_vec());
        Mapped { name, changed }
    }
}

fn is_good(c: char) -> bool {
    !c.is_control()
        && !matches!(
            c,
            '/' | '*' | '%' | '\u{2028}' | '\u{2029}' | '\u{FFFE}' | '\u{FFFF}'
        )
}

fn cut(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev();
    let mut end = end.filter(|at| text.is_char_boundary(*at));
    &text[..end.next().unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let mut mapper = Mapper::new(10, 3);
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
        check(&["A", "B"], "A/B", false);
        check(&["A/B"], "A_B", true);
        check(&["A_B"], "A_B (2)", true);
        check(&["A*B"], "A_B (3)", true);
        check(&["A_B"], "A_B (2)", true);
        check(&["inbox", "x"], "INBOX/x", false);
        check(&["a\nb"], "a_b", true);
        check(&["", "c"], "c", true);
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
}
