//! Needles in a text that comes in pieces.

use std::sync::Arc;

use memchr::memmem::Finder;

use super::Needle;

/// Folded bytes that are gathered before they are searched.
const WINDOW_BYTES: usize = 16 * 1024;

/// Appends `text`, folded.
pub(super) fn fold(text: &str, out: &mut Vec<u8>) {
    let mut rest = text;
    while !rest.is_empty() {
        let ascii = rest
            .as_bytes()
            .iter()
            .position(|&b| b >= 0x80)
            .unwrap_or(rest.len());
        let from = out.len();
        out.extend_from_slice(&rest.as_bytes()[..ascii]);
        out[from..].make_ascii_lowercase();
        rest = &rest[ascii..];
        let mut chars = rest.chars();
        while let Some(character) = chars.as_str().chars().next().filter(|c| !c.is_ascii()) {
            chars.next();
            out.extend_from_slice(fold_char(character).encode_utf8(&mut [0; 4]).as_bytes());
        }
        rest = chars.as_str();
    }
}

/// Simple case folding: characters are equal when their upper cases are, as far as the mapping is one character to one.
fn fold_char(character: char) -> char {
    let upper = single(character.to_uppercase()).unwrap_or(character);
    single(upper.to_lowercase()).unwrap_or(upper)
}

fn single(mut mapping: impl Iterator<Item = char>) -> Option<char> {
    mapping.next().filter(|_| mapping.next().is_none())
}

/// Finds needles in units of text: a match never spans two units.
pub(super) struct Matcher {
    finders: Vec<Arc<Finder<'static>>>,
    matched: Vec<bool>,
    /// Folded text that is not searched yet, and before it what a match may begin in.
    window: Vec<u8>,
    /// The longest needle is one byte longer.
    overlap: usize,
}

impl Matcher {
    pub(super) fn new(needles: &[Needle]) -> Matcher {
        Matcher {
            finders: needles.iter().map(|n| Arc::clone(&n.finder)).collect(),
            matched: needles.iter().map(Needle::is_empty).collect(),
            window: Vec::new(),
            overlap: needles
                .iter()
                .map(|n| n.folded().len())
                .max()
                .unwrap_or(0)
                .saturating_sub(1),
        }
    }

    /// Whether every needle was found.
    pub(super) fn is_done(&self) -> bool {
        self.matched.iter().all(|&matched| matched)
    }

    pub(super) fn matched(&self) -> &[bool] {
        &self.matched
    }

    /// The next text of the unit.
    pub(super) fn push(&mut self, text: &str) {
        if self.is_done() {
            return;
        }
        fold(text, &mut self.window);
        if self.window.len() >= WINDOW_BYTES.max(2 * self.overlap) {
            self.search();
            let keep = self.window.len() - self.overlap;
            self.window.drain(..keep);
        }
    }

    /// The unit is at its end.
    pub(super) fn end_unit(&mut self) {
        self.search();
        self.window.clear();
    }

    fn search(&mut self) {
        for (finder, matched) in self.finders.iter().zip(&mut self.matched) {
            *matched = *matched || finder.find(&self.window).is_some();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding() {
        let check = |a: &str, b: &str| {
            let (mut fa, mut fb) = (Vec::new(), Vec::new());
            fold(a, &mut fa);
            fold(b, &mut fb);
            assert_eq!(fa, fb, "{a} {b}");
        };
        check("Hello", "hELLO");
        check("ÄÖÜé", "äöüÉ");
        check("ΣΑΣ", "σας");
        check("ПРИВЕТ", "привет");
        check("K", "k");
        check("µ", "μ");
        check("ẞ", "ß");
    }

    #[test]
    fn matches_at_every_place_of_a_window() {
        for before in WINDOW_BYTES - 12..WINDOW_BYTES + 2 {
            let mut matcher = Matcher::new(&[Needle::new("needle")]);
            matcher.push(&"x".repeat(before));
            "needle".chars().for_each(|c| matcher.push(&c.to_string()));
            matcher.push(&"x".repeat(2 * WINDOW_BYTES));
            matcher.end_unit();
            assert!(matcher.is_done(), "{before}");
        }
    }

    #[test]
    fn matches_across_windows_and_not_across_units() {
        let long = Needle::new(&"ab".repeat(WINDOW_BYTES));
        let short = Needle::new("xY");
        let never = Needle::new("yz");
        let mut matcher = Matcher::new(&[long, short, never]);
        for _ in 0..WINDOW_BYTES {
            matcher.push("a");
            matcher.push("B");
        }
        matcher.push("x");
        matcher.push("Y");
        matcher.end_unit();
        matcher.push("z");
        matcher.end_unit();
        assert_eq!(matcher.matched(), [true, true, false]);
        assert!(matcher.window.capacity() < 8 * WINDOW_BYTES);
    }
}
