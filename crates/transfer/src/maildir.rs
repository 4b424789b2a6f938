//! Maildir: one file a message, its flags in the file's name; folders as in Maildir++ (`.Archive.2024`) or as directories in directories.
//!
//! A file's name is `BASE:2,FLAGS`. Capital letters are flags everywhere; small ones are keywords, which `dovecot-keywords` beside `cur`
//! gives names: lines of a number and a keyword, 0 being `a`. Courier keeps keywords in files of their own ([`crate::courier`]).

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
    /// What never changes. Programs write any bytes here: a host's name in Latin-1, for example.
    pub base: &'a [u8],
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
        let digits = self.base.iter().take_while(|byte| byte.is_ascii_digit());
        let digits = std::str::from_utf8(&self.base[..digits.count()]);
        digits.ok().and_then(|of| of.parse().ok()).unwrap_or(0)
    }

    /// When the message came, in seconds since 1970, if [`file_name`] has said it. It counts before the file's own time, which some file systems cannot
    /// hold, and which is lost when a file is copied.
    #[must_use]
    pub fn came(&self) -> Option<i64> {
        let digits = self.base.split(|byte| *byte == b'.').next()?;
        let seconds = str::from_utf8(digits).ok()?.parse().ok()?;
        (self.as_it_is && seconds > 0).then_some(seconds)
    }
}

/// What stands between base and flags. File systems of Windows know no colon: programs write `!` or `;` there.
const INFO: [&[u8]; 3] = [b":2,", b"!2,", b";2,"];

/// Divides a file's name into base and flags.
fn divide(name: &[u8]) -> (&[u8], &[u8]) {
    for info in INFO {
        if let Some(at) = memchr::memmem::find(name, info) {
            return (&name[..at], &name[at + info.len()..]);
        }
    }
    (name, b"")
}

/// Reads a file's name. Names that begin with a dot are no messages.
#[must_use]
pub fn parse_name<'a>(name: &'a [u8], keywords: &Keywords) -> Option<Name<'a>> {
    if name.starts_with(b".") {
        return None;
    }
    let (base, letters) = divide(name);
    let (mut flags, mut unknown) = (Vec::new(), Vec::new());
    for letter in letters.iter().copied().map(char::from) {
        let known = LETTERS.iter().find(|(of, _)| *of == letter);
        match letter {
            _ if known.is_some() => flags.extend(known.map(|(_, flag)| (*flag).to_owned())),
            'a'..='z' => match keywords.get(letter) {
                Some(keyword) => flags.push(keyword.to_owned()),
                None => unknown.push(letter),
            },
            // A flag of one program alone.
            'A'..='Z' => {}
            // Whatever programs append with a comma (`:2,S,xyz`).
            _ => break,
        }
    }
    flags.sort();
    flags.dedup();
    let unique = base.split(|byte| *byte == b',').next()?;
    Some(Name {
        base,
        flags,
        unknown,
        as_it_is: unique.ends_with(OURS.as_bytes()),
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

/// The levels of a folder of Maildir++, from the name of its directory (`.A.B`); `None` if it is none. A level may be empty (`.A..B`).
#[must_use]
pub fn levels(directory: &str) -> Option<Vec<String>> {
    let rest = directory.strip_prefix('.')?;
    (!rest.is_empty()).then(|| rest.split('.').map(level).collect())
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

/// One level, such that [`level`] reads it, and that it does not hold what stands between levels.
fn written(level: &str, separator: char) -> String {
    let mut text = level.replace('\\', "\\5c");
    if separator == '.' {
        text = text.replace('.', "\\2e");
    }
    let mut out = Vec::new();
    utf7::encode(&text.replace('/', "\\2f"), &mut out);
    // Modified UTF-7 is ASCII.
    String::from_utf8(out).unwrap_or_default()
}

/// The directory of a folder of Maildir++; of none: INBOX itself.
#[must_use]
pub fn directory(levels: &[&str]) -> String {
    let levels = levels.iter().map(|level| written(level, '.'));
    levels.map(|level| format!(".{level}")).collect()
}

/// A line of a list of subscriptions, with this separator between levels, as [`subscriptions`] reads it.
#[must_use]
pub fn subscription(levels: &[&str], separator: char) -> String {
    let levels: Vec<String> = levels.iter().map(|of| written(of, separator)).collect();
    levels.join(&separator.to_string())
}

/// Reads the names of folders in `subscriptions` (Dovecot, both versions) or `courierimapsubscribed`. A line may mean several folders, as levels: it
/// does not say what separates them, and Courier names all folders below INBOX. What the file most likely means comes first. `separator`: between
/// levels in lines that are not of Dovecot's second version.
#[must_use]
pub fn subscriptions(text: &str, separator: char, is_courier: bool) -> Vec<Vec<Vec<String>>> {
    let second = text.starts_with("V\t2");
    let lines = text.lines().skip(usize::from(second));
    let mut found = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let mut meanings: Vec<Vec<String>> = Vec::new();
        if second {
            let levels = line.split('\t').map(|part| level(&unescape(part)));
            meanings.push(levels.collect());
        } else {
            let other = if separator == '.' { '/' } else { '.' };
            for separator in [separator, other] {
                meanings.push(line.split(separator).map(level).collect());
            }
        }
        for (at, whole) in meanings.clone().iter().enumerate().rev() {
            if whole.len() > 1 && whole[0] == "INBOX" {
                let below = whole[1..].to_vec();
                meanings.insert(at + usize::from(!is_courier), below);
            }
        }
        found.push(meanings);
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
            let found = parse_name(name.as_bytes(), &keywords).unwrap();
            let found_base = std::str::from_utf8(found.base).unwrap();
            assert_eq!((found_base, found.flags), (base, words(flags)), "{name}");
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
        // A flag that nobody knows costs no other; nor does a file system without colons.
        check("1:2,XS", "1", &["\\Seen"], "");
        check("1!2,FS", "1", &["\\Flagged", "\\Seen"], "");
        check("1;2,S", "1", &["\\Seen"], "");
        check("1!x:2,S", "1!x", &["\\Seen"], "");
        let latin = parse_name(b"1.h\xf6st:2,S", &keywords).unwrap();
        assert_eq!((latin.base, latin.seconds()), (&b"1.h\xf6st"[..], 1));
        assert_eq!(latin.flags, ["\\Seen"]);
        assert_eq!(parse_name(b".hidden", &keywords), None);
        for (name, seconds) in [
            ("1700000000.M1P2.host:2,S", 1_700_000_000),
            ("x.1", 0),
            ("99999999999.1", 0),
        ] {
            assert_eq!(
                parse_name(name.as_bytes(), &keywords).unwrap().seconds(),
                seconds
            );
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
        let found = parse_name(name.as_bytes(), &keywords).unwrap();
        assert!(found.as_it_is && found.flags == flags, "{found:?}");
        assert_eq!(found.came(), Some(12));
        let came = |seconds| {
            let (name, _) = file_name(seconds, "M", 1, &[], &mut Keywords::default());
            parse_name(name.as_bytes(), &keywords).unwrap().came()
        };
        assert_eq!(
            (came(253_402_300_799), came(0), came(-1)),
            (Some(253_402_300_799), None, None)
        );
        assert_eq!(parse_name(b"12.x:2,", &keywords).unwrap().came(), None);
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
        check("..", Some(&["", ""]));
        check(".a..b", Some(&["a", "", "b"]));
        check(".a.", Some(&["a", ""]));
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
        let check = |text: &str, separator, is_courier, expected: &[&[&[&str]]]| {
            let of = |meanings: &&[&[&str]]| meanings.iter().map(|of| words(of)).collect();
            let expected: Vec<Vec<_>> = expected.iter().map(of).collect();
            let found = subscriptions(text, separator, is_courier);
            assert_eq!(found, expected, "{text}");
        };
        check(
            "A\nA.B\n",
            '.',
            false,
            &[&[&["A"], &["A"]], &[&["A", "B"], &["A.B"]]],
        );
        check("A/B\n", '/', false, &[&[&["A", "B"], &["A/B"]]]);
        let below = "INBOX.Sent\n";
        check(
            below,
            '.',
            true,
            &[&[&["Sent"], &["INBOX", "Sent"], &["INBOX.Sent"]]],
        );
        check(
            below,
            '.',
            false,
            &[&[&["INBOX", "Sent"], &["Sent"], &["INBOX.Sent"]]],
        );
        check(
            "V\t2\n\nA\tB.c\nEntw&APw-rfe\n",
            '.',
            false,
            &[&[&["A", "B.c"]], &[&["Entwürfe"]]],
        );
        check("", '.', false, &[]);
        check(".\n", '.', false, &[&[&["", ""], &["."]]]);
    }

    #[test]
    fn subscriptions_that_are_written_are_read() {
        let names: [&[&str]; 5] = [
            &["A"],
            &["INBOX", "Entwürfe"],
            &["a.b", "c\\2ed"],
            &["R&D", "&APw-"],
            &[".x", "."],
        ];
        for levels in names {
            for separator in ['.', '/'] {
                let line = subscription(levels, separator);
                let found = subscriptions(&line, separator, false);
                assert_eq!(found[0][0], words(levels), "{line}");
            }
        }
    }
}
