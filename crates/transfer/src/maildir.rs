//! Maildir: one file a message, its flags in the file's name; folders as in Maildir++ (`.Archive.2024`) or as directories in directories.
//!
//! A file's name is `BASE:2,FLAGS`. Capital letters are flags everywhere; small ones are keywords, which `dovecot-keywords` beside `cur`
//! gives names: lines of a number and a keyword, 0 being `a`.

use whimbrel_imap::core::utf7;

/// Keywords of one folder: a letter each.
pub const KEYWORDS_MAX: usize = 26;

/// In the base of the files that [`file_name`] makes: their bytes are the message's, whatever its line ends.
const OURS: &str = ".whimbrel";

/// Flags as letters. `P` (passed on) is the keyword `$Forwarded`.
const LETTERS: [(char, &str); 6] = [
    ('D', "\\Draft"),
    ('F', "\\Flagged"),
    ('P', "$Forwarded"),
    ('R', "\\Answered"),
    ('S', "\\Seen"),
    ('T', "\\Deleted"),
];

/// What a file's name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// What never changes.
    pub base: &'a str,
    /// Flags and keywords.
    pub flags: Vec<String>,
    /// Small letters that mean no keyword here.
    pub unknown: Vec<char>,
    /// The file was made by [`file_name`]: its line ends are the message's.
    pub as_it_is: bool,
}

impl Name<'_> {
    /// When the file was made, as names say it (they begin with the seconds since the epoch); 0 of one that says something else.
    #[must_use]
    pub fn seconds(&self) -> u32 {
        let digits = self.base.bytes().take_while(u8::is_ascii_digit).count();
        self.base[..digits].parse().unwrap_or(0)
    }
}

/// Reads a file's name. Names that begin with a dot are no messages.
#[must_use]
pub fn parse_name<'a>(name: &'a str, keywords: &Keywords) -> Option<Name<'a>> {
    if name.starts_with('.') {
        return None;
    }
    let (base, letters) = name.split_once(":2,").unwrap_or((name, ""));
    let (mut flags, mut unknown) = (Vec::new(), Vec::new());
    for letter in letters.chars() {
        let known = LETTERS.iter().find(|(of, _)| *of == letter);
        match letter {
            _ if known.is_some() => flags.extend(known.map(|(_, flag)| (*flag).to_owned())),
            'a'..='z' => match keywords.get(letter) {
                Some(keyword) => flags.push(keyword.to_owned()),
                None => unknown.push(letter),
            },
            // Whatever programs append with a comma (`:2,S,xyz`).
            _ => break,
        }
    }
    flags.sort();
    flags.dedup();
    Some(Name {
        base,
        flags,
        unknown,
        as_it_is: base.split(',').next()?.ends_with(OURS),
    })
}

/// The name of a message's file. `id` is the message's own, so that it has the same name whenever it is written.
///
/// Keywords beyond the letters are left out; they are given back.
pub fn file_name(
    seconds: i64,
    id: &str,
    bytes: u64,
    flags: &[String],
    keywords: &mut Keywords,
) -> (String, Vec<String>) {
    let (mut letters, mut left) = (Vec::new(), Vec::new());
    for flag in flags {
        // Dovecot does not know `P`, but every reader of keywords knows the name.
        let known = LETTERS
            .iter()
            .find(|(letter, of)| *letter != 'P' && of.eq_ignore_ascii_case(flag));
        match known {
            Some((letter, _)) => letters.push(*letter),
            None if flag.starts_with('\\') => {}
            None => match keywords.letter(flag) {
                Some(letter) => letters.push(letter),
                None => left.push(flag.clone()),
            },
        }
    }
    letters.sort_unstable();
    let letters: String = letters.into_iter().collect();
    let name = format!("{}.{id}{OURS},S={bytes}:2,{letters}", seconds.max(0));
    (name, left)
}

/// The keywords of one folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keywords(Vec<Option<String>>);

impl Keywords {
    /// Reads `dovecot-keywords`; lines that make no sense are left out.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut keywords = Vec::new();
        for line in text.lines() {
            let Some((number, keyword)) = line.split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<usize>() else {
                continue;
            };
            // A last line in CRLF may have lost its LF.
            let keyword = keyword.trim_ascii();
            if number < KEYWORDS_MAX && !keyword.is_empty() {
                if keywords.len() <= number {
                    keywords.resize(number + 1, None);
                }
                keywords[number] = Some(keyword.to_owned());
            }
        }
        Keywords(keywords)
    }

    /// As `dovecot-keywords` has them.
    #[must_use]
    pub fn to_text(&self) -> String {
        let lines = self.0.iter().enumerate();
        lines
            .filter_map(|(number, keyword)| Some(format!("{number} {}\n", keyword.as_ref()?)))
            .collect()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    fn get(&self, letter: char) -> Option<&str> {
        let number = usize::from(u8::try_from(letter).ok()?.checked_sub(b'a')?);
        self.0.get(number)?.as_deref()
    }

    /// The letter of a keyword, given to it now if need be.
    fn letter(&mut self, keyword: &str) -> Option<char> {
        let same = |of: &Option<String>| {
            of.as_ref()
                .is_some_and(|of| of.eq_ignore_ascii_case(keyword))
        };
        let number = match self.0.iter().position(same) {
            Some(number) => number,
            None if self.0.len() < KEYWORDS_MAX => {
                self.0.push(Some(keyword.to_owned()));
                self.0.len() - 1
            }
            None => return None,
        };
        Some(char::from(b'a' + u8::try_from(number).ok()?))
    }
}

/// The levels of a folder of Maildir++, from the name of its directory (`.A.B`); `None` if it is none.
#[must_use]
pub fn levels(directory: &str) -> Option<Vec<String>> {
    let rest = directory.strip_prefix('.')?;
    let levels: Vec<String> = rest.split('.').map(level).collect();
    (!rest.is_empty() && levels.iter().all(|level| !level.is_empty())).then_some(levels)
}

/// One level, from a directory's name: modified UTF-7 as Dovecot and Courier write it, or UTF-8; `\2e` is a dot within a level.
#[must_use]
pub fn level(name: &str) -> String {
    let text = utf7::decode(name.as_bytes()).unwrap_or_else(|| name.to_owned());
    let (mut out, mut rest) = (String::new(), text.as_str());
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let (escaped, length) = match after.get(..2) {
            Some("2e") => ('.', 2),
            Some("2f") => ('/', 2),
            Some("5c") => ('\\', 2),
            _ => ('\\', 0),
        };
        out.push(escaped);
        rest = &after[length..];
    }
    out + rest
}

/// The directory of a folder of Maildir++; of none: INBOX itself.
#[must_use]
pub fn directory(levels: &[&str]) -> String {
    let mut out = Vec::new();
    for level in levels {
        out.push(b'.');
        utf7::encode(
            &level
                .replace('\\', "\\5c")
                .replace('.', "\\2e")
                .replace('/', "\\2f"),
            &mut out,
        );
    }
    // Modified UTF-7 is ASCII.
    String::from_utf8(out).unwrap_or_default()
}

/// Reads the names of folders in `subscriptions` (Dovecot, both versions) or `courierimapsubscribed`, as levels. `separator`: between levels
/// in lines that are not of Dovecot's second version.
#[must_use]
pub fn subscriptions(text: &str, separator: char) -> Vec<Vec<String>> {
    let second = text.starts_with("V\t2");
    let lines = text.lines().skip(usize::from(second));
    let mut found = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let mut levels: Vec<String> = if second {
            line.split('\t')
                .map(|part| level(&unescape(part)))
                .collect()
        } else {
            line.split(separator).map(level).collect()
        };
        // Courier names all folders below INBOX.
        if levels.len() > 1 && levels[0] == "INBOX" {
            levels.remove(0);
        }
        if levels.iter().all(|level| !level.is_empty()) {
            found.push(levels);
        }
    }
    found
}

/// `\x01` and a letter or digit stand for what separates.
fn unescape(text: &str) -> String {
    text.replace("\u{1}t", "\t")
        .replace("\u{1}n", "\n")
        .replace("\u{1}r", "\r")
        .replace("\u{1}1", "\u{1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn names_of_files() {
        let keywords = Keywords::parse("0 $Label1\n1 NonJunk\nx y\n99 no\n3 late\n4 \n");
        let check = |name: &str, base: &str, flags: &[&str], unknown: &str| {
            let found = parse_name(name, &keywords).unwrap();
            assert_eq!((found.base, found.flags), (base, words(flags)), "{name}");
            assert_eq!(found.unknown.into_iter().collect::<String>(), unknown);
        };
        check("1.2.host", "1.2.host", &[], "");
        check("1.2.host,S=7:2,", "1.2.host,S=7", &[], "");
        check(
            "1:2,DFPRST",
            "1",
            &[
                "$Forwarded",
                "\\Answered",
                "\\Deleted",
                "\\Draft",
                "\\Flagged",
                "\\Seen",
            ],
            "",
        );
        check(
            "1:2,Sabd",
            "1",
            &["$Label1", "NonJunk", "\\Seen", "late"],
            "",
        );
        check("1:2,Scz", "1", &["\\Seen"], "cz");
        check("1:2,S,xab", "1", &["\\Seen"], "");
        assert_eq!(parse_name(".hidden", &keywords), None);
        for (name, seconds) in [
            ("1700000000.M1P2.host:2,S", 1_700_000_000),
            ("x.1", 0),
            ("99999999999.1", 0),
        ] {
            assert_eq!(parse_name(name, &keywords).unwrap().seconds(), seconds);
        }
        assert_eq!(keywords.to_text(), "0 $Label1\n1 NonJunk\n3 late\n");
    }

    #[test]
    fn white_space_is_no_part_of_a_keyword() {
        let keywords = Keywords::parse("0  one \r\n1 two\t\n2 three\r");
        assert_eq!(keywords.to_text(), "0 one\n1 two\n2 three\n");
    }

    #[test]
    fn names_that_are_written_are_read() {
        let mut keywords = Keywords::default();
        let flags = words(&["$Forwarded", "Blue", "\\Seen", "red"]);
        let (name, left) = file_name(12, "Mab", 7, &flags, &mut keywords);
        assert_eq!(
            (name.as_str(), left),
            ("12.Mab.whimbrel,S=7:2,Sabc", vec![])
        );
        let keywords = Keywords::parse(&keywords.to_text());
        let found = parse_name(&name, &keywords).unwrap();
        assert!(found.as_it_is && found.flags == flags, "{found:?}");
        let mut full = Keywords::default();
        let many: Vec<String> = (0..28).map(|n| format!("k{n:02}")).collect();
        assert_eq!(file_name(1, "x", 1, &many, &mut full).1, many[26..]);
    }

    #[test]
    fn folders() {
        let check = |name: &str, expected: Option<&[&str]>| {
            assert_eq!(levels(name), expected.map(words), "{name}");
        };
        check(".A", Some(&["A"]));
        check(".A.B c", Some(&["A", "B c"]));
        check(".Entw&APw-rfe", Some(&["Entwürfe"]));
        check(".Entwürfe", Some(&["Entwürfe"]));
        check(".a\\2eb.c\\5cd", Some(&["a.b", "c\\d"]));
        check(".a\\", Some(&["a\\"]));
        check(".", None);
        check("..", None);
        check(".a..b", None);
        check("cur", None);
        for of in [
            &["A"][..],
            &["Entwürfe", "a.b"],
            &["c\\d", "e\\2ef", "日本"],
        ] {
            let name = directory(of);
            assert!(name.is_ascii());
            assert_eq!(levels(&name), Some(words(of)), "{name}");
        }
        assert_eq!(directory(&[]), "");
    }

    #[test]
    fn subscribed() {
        let check = |text: &str, separator, expected: &[&[&str]]| {
            let expected: Vec<_> = expected.iter().map(|of| words(of)).collect();
            assert_eq!(subscriptions(text, separator), expected, "{text}");
        };
        check("A\nA.B\nINBOX\n", '.', &[&["A"], &["A", "B"], &["INBOX"]]);
        check("A/B\n", '/', &[&["A", "B"]]);
        check("INBOX.Sent\n", '.', &[&["Sent"]]);
        check(
            "V\t2\n\nA\tB.c\nEntw&APw-rfe\n",
            '.',
            &[&["A", "B.c"], &["Entwürfe"]],
        );
        check("", '.', &[]);
        check(".\n", '.', &[]);
    }
}
