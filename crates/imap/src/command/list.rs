//! LIST and LSUB (RFC 9051, section 6.3.9; RFC 5258, 5819, 6154), and the matcher of their patterns.

use super::{CommandBody, StatusItem, status};
use crate::core::{is_astring_char, mailbox};
use crate::decode::cursor::{Cursor, Refusal};
use std::collections::BTreeMap;

/// LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Selection options.
    pub select: ListSelect,
    /// Reference, decoded, may be empty.
    pub reference: String,
    /// Patterns as sent, without the reference; at least one. One empty pattern of a basic LIST asks for the delimiter.
    pub patterns: Vec<ListPattern>,
    /// Return options; implied ones (SUBSCRIBED by the selection of it) included.
    pub returns: ListReturn,
    /// Whether anything of the extended syntax was used (RFC 5258, section 3).
    pub extended: bool,
}

/// Selection options (RFC 5258, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ListSelect {
    /// `SUBSCRIBED`
    pub subscribed: bool,
    /// `REMOTE`
    pub remote: bool,
    /// `RECURSIVEMATCH`; only with `subscribed`.
    pub recursive_match: bool,
    /// `SPECIAL-USE` (RFC 6154)
    pub special_use: bool,
}

/// Return options (RFC 5258, section 3.2).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ListReturn {
    /// `SUBSCRIBED`
    pub subscribed: bool,
    /// `CHILDREN`
    pub children: bool,
    /// `SPECIAL-USE` (RFC 6154)
    pub special_use: bool,
    /// `STATUS (...)` (RFC 5819); empty without it.
    pub status: Vec<StatusItem>,
}

/// A decoded pattern: text, `*`, `%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPattern(String);

impl ListPattern {
    /// Text that was decoded and checked.
    pub(crate) fn from_decoded(text: String) -> Self {
        Self(text)
    }

    /// A pattern that no name has: none holds NUL.
    pub(crate) fn nothing() -> Self {
        Self("\0".to_owned())
    }

    /// Whether it is the empty pattern.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pattern as decoded text, wildcards included.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The pattern below a reference: the two simply joined.
    pub fn under(&self, reference: &str) -> Self {
        Self(format!("{reference}{}", self.0))
    }

    /// Makes it ready to be tried on many names, where levels end in `delimiter`.
    pub fn matcher(&self, delimiter: char) -> Matcher {
        Matcher::new(&self.0, delimiter)
    }
}

/// Matches names against one pattern: `*` stands for any text, `%` for any text without the delimiter.
///
/// It follows all readings of the pattern at once, one bit each, so that a character of a name costs (characters of the
/// pattern / 64) operations, whatever the pattern is; nothing is tried again.
#[derive(Clone, Debug)]
pub struct Matcher {
    /// Characters and wildcards; a reading that has come to this step is at the end.
    steps: usize,
    /// The steps that are `*`, one bit each.
    stars: Vec<u64>,
    /// The steps that are `%`.
    percents: Vec<u64>,
    /// The steps that are this character.
    characters: BTreeMap<char, Vec<u64>>,
    delimiter: char,
}

/// Which of the names with one beginning are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// All.
    All,
    /// Perhaps some.
    Some,
    /// None.
    None,
}

impl Matcher {
    fn new(pattern: &str, delimiter: char) -> Self {
        // Runs of wildcards are one, so that wildcards are never neighbours: `*` if there is one among them, else `%`.
        let mut steps: Vec<char> = Vec::new();
        for c in pattern.chars() {
            match (c, steps.last()) {
                ('*' | '%', Some('*')) | ('%', Some('%')) => {}
                ('*', Some('%')) => {
                    steps.pop();
                    steps.push('*');
                }
                (c, _) => steps.push(c),
            }
        }
        let words = steps.len() / 64 + 1;
        let mut matcher = Self {
            steps: steps.len(),
            stars: vec![0; words],
            percents: vec![0; words],
            characters: BTreeMap::new(),
            delimiter,
        };
        for (n, c) in steps.into_iter().enumerate() {
            let bits = match c {
                '*' => &mut matcher.stars,
                '%' => &mut matcher.percents,
                c => matcher
                    .characters
                    .entry(c)
                    .or_insert_with(|| vec![0; words]),
            };
            bits[n / 64] |= 1 << (n % 64);
        }
        matcher
    }

    /// How many words of readings are looked at for a name at the most: the work of [`Matcher::matches`].
    pub fn work_max(&self, name: &str) -> usize {
        self.stars.len() * name.len()
    }

    /// Which of the names that begin with `prefix` are matched, as far as that can be said without them.
    pub fn share_of(&self, prefix: &str) -> Share {
        let readings = self.walk(prefix).0;
        let is_at_last_star = (self.steps.checked_sub(1))
            .is_some_and(|n| is_set(&self.stars, n) && is_set(&readings, n));
        if is_at_last_star {
            Share::All
        } else if readings.iter().all(|reading| *reading == 0) {
            Share::None
        } else {
            Share::Some
        }
    }

    /// Whether the whole of `name` is matched. INBOX is matched in any case, and so is INBOX in front of a delimiter, as clients
    /// ask for `Inbox/%` (RFC 9051, section 5.1: "INBOX ... is case-insensitive").
    pub fn matches(&self, name: &str) -> bool {
        if self.steps == 1 && self.stars[0] == 1 {
            return true;
        }
        if self.steps == 1 && self.percents[0] == 1 {
            return !name.contains(self.delimiter);
        }
        is_set(&self.walk(name).0, self.steps)
    }

    /// Where all readings are at the end of `name`, and how many words of them were looked at to see it.
    fn walk(&self, name: &str) -> (Vec<u64>, usize) {
        let mut looked_at = 0;
        let inbox = name
            .get(..5)
            .is_some_and(|head| head.eq_ignore_ascii_case("INBOX"))
            && name[5..].chars().next().is_none_or(|c| c == self.delimiter);
        let mut readings = vec![0u64; self.stars.len()];
        readings[0] = 1;
        self.pass_wildcards(&mut readings);
        for (at, c) in name.char_indices() {
            let any_case = inbox && at < 5;
            let here = self.characters.get(&c).filter(|_| !any_case);
            let upper = self
                .characters
                .get(&c.to_ascii_uppercase())
                .filter(|_| any_case);
            let lower = self
                .characters
                .get(&c.to_ascii_lowercase())
                .filter(|_| any_case);
            let mut carry = 0;
            let mut alive = 0;
            looked_at += readings.len();
            for (n, reading) in readings.iter_mut().enumerate() {
                let character = [here, upper, lower]
                    .into_iter()
                    .flatten()
                    .fold(0, |all, bits| all | bits[n]);
                let step = *reading & character;
                let percent = if c == self.delimiter {
                    0
                } else {
                    self.percents[n]
                };
                *reading = (*reading & (self.stars[n] | percent)) | (step << 1) | carry;
                carry = step >> 63;
                alive |= *reading;
            }
            if alive == 0 {
                return (readings, looked_at);
            }
            self.pass_wildcards(&mut readings);
        }
        (readings, looked_at)
    }

    /// A wildcard may stand for nothing: who has come to it has come behind it.
    fn pass_wildcards(&self, readings: &mut [u64]) {
        let mut carry = 0;
        for (n, reading) in readings.iter_mut().enumerate() {
            let wild = *reading & (self.stars[n] | self.percents[n]);
            *reading |= (wild << 1) | carry;
            carry = wild >> 63;
        }
    }
}

fn is_set(bits: &[u64], n: usize) -> bool {
    bits[n / 64] & (1 << (n % 64)) != 0
}

/// `"LIST" [SP list-select-opts] SP mailbox SP mbox-or-pat [SP list-return-opts]`
pub(crate) fn list(c: &mut Cursor<'_>) -> Result<CommandBody, Refusal> {
    let mut list = List {
        select: ListSelect::default(),
        reference: String::new(),
        patterns: Vec::new(),
        returns: ListReturn::default(),
        extended: false,
    };
    c.space()?;
    if c.skip(b'(') {
        list.extended = true;
        selection(c, &mut list.select)?;
        c.space()?;
    }
    list.reference = c.reference()?;
    c.space()?;
    if c.skip(b'(') {
        list.extended = true;
        let mut text_left = c.limits.list_pattern_bytes_max;
        loop {
            if list.patterns.len() == c.limits.list_patterns_max {
                return Err("too many patterns");
            }
            let pattern = pattern(c)?;
            text_left = text_left
                .checked_sub(list.reference.len() + pattern.as_str().len())
                .ok_or("patterns are too long")?;
            list.patterns.push(pattern);
            if !c.more()? {
                break;
            }
        }
    } else {
        list.patterns.push(pattern(c)?);
    }
    if c.skip(b' ') {
        list.extended = true;
        if !c.skip_word(b"RETURN") {
            return Err("expected RETURN");
        }
        c.space()?;
        returns(c, &mut list.returns)?;
    }
    // RFC 5258, section 3.1, and RFC 6154, section 2: the selection option implies the return option.
    list.returns.subscribed |= list.select.subscribed;
    list.returns.special_use |= list.select.special_use;
    Ok(CommandBody::List(list))
}

/// `list-mailbox`
fn pattern(c: &mut Cursor<'_>) -> Result<ListPattern, Refusal> {
    let bytes = if c.string_is_next() {
        c.string()?
    } else {
        let word = c.run(|b| is_astring_char(b) || matches!(b, b'*' | b'%'));
        if word.is_empty() {
            return Err("expected a pattern");
        }
        word.to_vec()
    };
    // "Any syntactically valid pattern that is not accepted by a server for any reason MUST be silently ignored, i.e., it
    // results in no LIST responses, and the LIST command still returns a tagged OK response" (RFC 9051, section 6.3.9).
    Ok(mailbox::decode_text(&bytes, c.utf8)
        .map_or_else(|_| ListPattern::nothing(), ListPattern::from_decoded))
}

fn selection(c: &mut Cursor<'_>, select: &mut ListSelect) -> Result<(), Refusal> {
    if c.skip(b')') {
        return Ok(());
    }
    loop {
        if c.skip_word(b"SUBSCRIBED") {
            select.subscribed = true;
        } else if c.skip_word(b"REMOTE") {
            select.remote = true;
        } else if c.skip_word(b"RECURSIVEMATCH") {
            select.recursive_match = true;
        } else if c.skip_word(b"SPECIAL-USE") {
            select.special_use = true;
        } else {
            return Err("unknown LIST selection option");
        }
        if !c.more()? {
            break;
        }
    }
    // "The syntax ... does NOT allow (RECURSIVEMATCH), (REMOTE RECURSIVEMATCH)": BAD (RFC 5258, section 3.1).
    if select.recursive_match && !select.subscribed {
        return Err("RECURSIVEMATCH wants SUBSCRIBED");
    }
    Ok(())
}

fn returns(c: &mut Cursor<'_>, returns: &mut ListReturn) -> Result<(), Refusal> {
    c.open()?;
    if c.skip(b')') {
        return Ok(());
    }
    loop {
        if c.skip_word(b"SUBSCRIBED") {
            returns.subscribed = true;
        } else if c.skip_word(b"CHILDREN") {
            returns.children = true;
        } else if c.skip_word(b"SPECIAL-USE") {
            returns.special_use = true;
        } else if c.skip_word(b"STATUS") {
            c.space()?;
            returns.status = status::items(c)?;
        } else {
            return Err("unknown LIST return option");
        }
        if !c.more()? {
            return Ok(());
        }
    }
}

/// `"LSUB" SP mailbox SP list-mailbox` (RFC 3501)
pub(crate) fn lsub(c: &mut Cursor<'_>) -> Result<CommandBody, Refusal> {
    c.space()?;
    let reference = c.reference()?;
    c.space()?;
    let pattern = pattern(c)?;
    Ok(CommandBody::Lsub { reference, pattern })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, parse, refuse};
    use proptest::prelude::*;

    fn basic(reference: &str, patterns: &[&str]) -> List {
        List {
            select: ListSelect::default(),
            reference: reference.into(),
            patterns: patterns.iter().map(|&p| ListPattern(p.into())).collect(),
            returns: ListReturn::default(),
            extended: false,
        }
    }

    #[track_caller]
    fn check_list(input: &str, list: List) {
        check(input, CommandBody::List(list));
    }

    #[test]
    fn lists() {
        check_list("LIST \"\" \"\"", basic("", &[""]));
        check_list("LIST \"\" *", basic("", &["*"]));
        check_list("LIST ~/Mail/ %", basic("~/Mail/", &["%"]));
        check_list("LIST \"\" Entw&APw-*", basic("", &["Entwü*"]));
        check_list("LIST \"\" {1+}\r\n%", basic("", &["%"]));
        check(
            "LSUB \"#news.\" \"comp.mail.*\"",
            CommandBody::Lsub {
                reference: "#news.".into(),
                pattern: ListPattern("comp.mail.*".into()),
            },
        );
        refuse("LIST", "expected a space");
        refuse("LIST \"\"", "expected a space");
        refuse("LIST \"\" ", "expected a pattern");
        refuse("LIST * *", "expected a word or a string");
        refuse("LIST \"\" * FOO", "expected RETURN");
        refuse("LSUB \"\" (a)", "expected a pattern");
        // "Any syntactically valid pattern that is not accepted by a server for any reason MUST be silently ignored".
        check_list("LIST \"\" &", basic("", &["\0"]));
        check_list("LIST \"\" \"a\tb\"", basic("", &["\0"]));
        check_list(
            &format!("LIST \"\" (b {})", "a".repeat(1025)),
            List {
                extended: true,
                ..basic("", &["b", "\0"])
            },
        );
        assert!(!ListPattern::nothing().matcher('/').matches("a"));
        assert!(!ListPattern::nothing().under("").is_empty());
        refuse("LIST & *", "mailbox name is not valid modified UTF-7");
    }

    #[test]
    fn extended() {
        // RFC 5258, section 5; RFC 5819, section 4; RFC 6154, section 5.2.
        let x = |list: List| List {
            extended: true,
            ..list
        };
        let subscribed = ListReturn {
            subscribed: true,
            ..ListReturn::default()
        };
        let select = ListSelect {
            subscribed: true,
            ..ListSelect::default()
        };
        check_list(
            "LIST (SUBSCRIBED) \"\" \"*\"",
            x(List {
                select,
                returns: subscribed.clone(),
                ..basic("", &["*"])
            }),
        );
        check_list(
            "LIST () \"\" \"%\" RETURN (CHILDREN)",
            x(List {
                returns: ListReturn {
                    children: true,
                    ..ListReturn::default()
                },
                ..basic("", &["%"])
            }),
        );
        check_list(
            "LIST (SUBSCRIBED REMOTE RECURSIVEMATCH) \"\" %",
            x(List {
                select: ListSelect {
                    remote: true,
                    recursive_match: true,
                    ..select
                },
                returns: subscribed,
                ..basic("", &["%"])
            }),
        );
        check_list(
            "LIST \"\" (\"INBOX\" \"Drafts\" Sent/%)",
            x(basic("", &["INBOX", "Drafts", "Sent/%"])),
        );
        check_list(
            "LIST \"\" % RETURN (STATUS (MESSAGES UNSEEN) SPECIAL-USE)",
            x(List {
                returns: ListReturn {
                    status: vec![StatusItem::Messages, StatusItem::Unseen],
                    special_use: true,
                    ..ListReturn::default()
                },
                ..basic("", &["%"])
            }),
        );
        check_list(
            "LIST (SPECIAL-USE) \"\" *",
            x(List {
                select: ListSelect {
                    special_use: true,
                    ..ListSelect::default()
                },
                returns: ListReturn {
                    special_use: true,
                    ..ListReturn::default()
                },
                ..basic("", &["*"])
            }),
        );
        check_list("LIST \"\" % RETURN ()", x(basic("", &["%"])));
        refuse(
            "LIST (RECURSIVEMATCH) \"\" %",
            "RECURSIVEMATCH wants SUBSCRIBED",
        );
        refuse(
            "LIST (REMOTE RECURSIVEMATCH) \"\" %",
            "RECURSIVEMATCH wants SUBSCRIBED",
        );
        refuse("LIST (FOO) \"\" %", "unknown LIST selection option");
        refuse("LIST \"\" % RETURN (FOO)", "unknown LIST return option");
        refuse("LIST \"\" % RETURN (STATUS)", "expected a space");
        refuse("LIST \"\" % RETURN", "expected a space");
        refuse("LIST \"\" ()", "expected a pattern");
        refuse(
            &format!("LIST \"\" ({}a)", "a ".repeat(32)),
            "too many patterns",
        );
        let long = "a".repeat(1_000);
        let list = |count: usize| format!("LIST {long} ({})", vec!["%"; count].join(" "));
        assert!(parse(list(4).as_bytes(), false).is_ok());
        refuse(&list(5), "patterns are too long");
        // One by itself is as long as a name may be, whatever the limit is.
        assert!(parse(format!("LIST {long} {long}").as_bytes(), false).is_ok());
    }

    #[track_caller]
    fn check_match(pattern: &str, name: &str, expected: bool) {
        assert_eq!(
            Matcher::new(pattern, '/').matches(name),
            expected,
            "{pattern} {name}"
        );
    }

    #[track_caller]
    fn check_share(pattern: &str, prefix: &str, expected: Share) {
        assert_eq!(Matcher::new(pattern, '/').share_of(prefix), expected);
    }

    #[test]
    fn what_is_below_is_known_for_the_usual_patterns() {
        check_share("*", "a/", Share::All);
        check_share("a*", "a/", Share::All);
        check_share("a/*", "a/", Share::All);
        check_share("%", "a/", Share::None);
        check_share("b/*", "a/", Share::None);
        check_share("%/%", "a/", Share::Some);
        check_share("*b", "a/", Share::Some);
        check_share("", "a/", Share::None);
    }

    #[test]
    fn matches() {
        check_match("*", "a/b", true);
        check_match("%", "a", true);
        check_match("%", "a/b", false);
        check_match("%/%", "a/b", true);
        check_match("a*", "a", true);
        check_match("a%", "a/b", false);
        check_match("*b", "a/b", true);
        check_match("a/%/c", "a/b/c", true);
        check_match("a/%/c", "a/b/b/c", false);
        check_match("a/*%/c", "a/b/b/c", true);
        check_match("%*", "a/b", true);
        check_match("*%*%", "a/b", true);
        check_match("", "", true);
        check_match("", "a", false);
        check_match("inbox", "INBOX", true);
        check_match("InB%", "INBOX", true);
        check_match("inbox/%", "INBOX/x", true);
        check_match("inbox/X", "INBOX/x", false);
        check_match("inboxes", "INBOXES", false);
        check_match("ä%", "äö", true);
        for n in 60..70 {
            // Readings that cross the border of a word.
            let (a, star) = ("a".repeat(n), format!("{}*b", "a".repeat(n)));
            check_match(&a, &a, true);
            check_match(&a, &"a".repeat(n + 1), false);
            check_match(&star, &format!("{a}/b"), true);
            check_match(&star, &a, false);
        }
        assert_eq!(
            ListPattern("%".into()).under("a/"),
            ListPattern("a/%".into())
        );
    }

    /// BAD_INPUTS, row 18. The work is known beforehand: characters of the name times words of the pattern.
    #[test]
    fn the_work_of_a_pattern_is_bounded() {
        for pattern in [
            "*%".repeat(500) + "b",
            "*a".repeat(500) + "b",
            "%a".repeat(500) + "b",
            "*a%".repeat(300) + "b",
            "%/".repeat(500) + "b",
            "*".repeat(1_000) + "b",
        ] {
            let matcher = ListPattern(pattern.clone()).matcher('/');
            for name in ["a".repeat(1_000), "a/".repeat(500), "ab".repeat(500) + "a"] {
                let looked_at = matcher.walk(&name).1;
                assert!(!matcher.matches(&name), "{pattern} {name}");
                assert!(
                    looked_at <= matcher.work_max(&name)
                        && matcher.work_max(&name) <= name.len() * (pattern.len() / 64 + 1),
                    "{looked_at} words for {pattern}"
                );
            }
        }
    }

    #[test]
    fn patterns_do_not_back_track() {
        // With back-tracking this never ends.
        check_match(&"*a".repeat(500), &"a".repeat(499), false);
        check_match(
            &format!("{}b", "%a%".repeat(300)),
            &"a".repeat(1_000),
            false,
        );
    }

    /// The definition, word by word.
    fn naive(pattern: &[char], name: &[char]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some(('*', rest)) => (0..=name.len()).any(|n| naive(rest, &name[n..])),
            Some(('%', rest)) => {
                let end = name.iter().position(|&c| c == '/').unwrap_or(name.len());
                (0..=end).any(|n| naive(rest, &name[n..]))
            }
            Some((p, rest)) => name
                .split_first()
                .is_some_and(|(c, tail)| p == c && naive(rest, tail)),
        }
    }

    proptest! {
        #[test]
        fn like_a_naive_matcher(pattern in "[ab/*%]{0,9}", name in "[ab/]{0,9}") {
            let chars = |s: &str| s.chars().collect::<Vec<_>>();
            prop_assert_eq!(Matcher::new(&pattern, '/').matches(&name), naive(&chars(&pattern), &chars(&name)));
        }

        #[test]
        fn the_share_of_a_prefix_is_true(pattern in "[ab/*%]{0,9}", prefix in "[ab]{1,2}/", rest in "[ab/]{0,5}") {
            let matcher = Matcher::new(&pattern, '/');
            let matches = matcher.matches(&format!("{prefix}{rest}"));
            match matcher.share_of(&prefix) {
                Share::All => prop_assert!(matches),
                Share::None => prop_assert!(!matches),
                Share::Some => {}
            }
        }
    }
}
