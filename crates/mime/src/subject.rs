//! The base subject (RFC 5256, 2.1): a subject without what replying and forwarding put around it, which SORT and THREAD go by.
//!
//! "All servers and disconnected clients MUST use exactly this algorithm", so what it does to odd subjects is not improved upon. It is
//! carried out in one walk: no text is looked at more often than the depth of `[fwd: ...]` demands, and that takes six bytes a level.

use crate::header;

/// What is left of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseSubject<'a> {
    /// The base subject; may be empty.
    pub text: &'a str,
    /// "A message is considered to be a reply or forward if the base subject extraction rules, applied to the original subject, remove
    /// any of the following: a subj-refwd, a "(fwd)" subj-trailer, or a subj-fwd-hdr and subj-fwd-trl" (RFC 5256, 3, THREAD).
    pub is_reply: bool,
}

/// The base subject of a Subject field's raw value; `scratch` is overwritten.
///
/// ```
/// let mut scratch = String::new();
/// let base = whimbrel_mime::subject::base(b" Re: [list] Fwd:  dinner \r\n (fwd)", &mut scratch);
/// assert_eq!((base.text, base.is_reply), ("dinner", true));
/// ```
pub fn base<'a>(raw: &[u8], scratch: &'a mut String) -> BaseSubject<'a> {
    *scratch = header::decode(raw);
    squeeze(scratch);
    extract(scratch)
}

/// Step 1, for a text whose encoded words and folds are undone already: "Convert all tabs and continuations to space. Convert all multiple
/// spaces to a single space."
pub fn squeeze(text: &mut String) {
    let bytes = text.as_bytes();
    let plain = !bytes.contains(&b'\t') && !bytes.windows(2).any(|pair| pair == b"  ");
    if plain {
        return;
    }
    let mut space = false;
    text.retain(|character| {
        let is_space = matches!(character, ' ' | '\t');
        let keep = !(is_space && space);
        space = is_space;
        keep
    });
    if text.as_bytes().contains(&b'\t') {
        *text = text.replace('\t', " ");
    }
}

/// Steps 2 to 7.
fn extract(text: &str) -> BaseSubject<'_> {
    let mut rest = text;
    let mut is_reply = false;
    loop {
        // Step 2: trailers, `subj-trailer = "(fwd)" / WSP`.
        loop {
            let trimmed = rest.trim_end_matches(' ');
            match strip_suffix(trimmed, "(fwd)") {
                Some(shorter) => {
                    is_reply = true;
                    rest = shorter;
                }
                None => {
                    rest = trimmed;
                    break;
                }
            }
        }
        // Steps 3 to 5.
        rest = leaders(rest, &mut is_reply);
        // Step 6: "If the resulting text begins with the subj-fwd-hdr ABNF and ends with the subj-fwd-trl ABNF, remove the subj-fwd-hdr
        // and subj-fwd-trl and repeat from step (2)."
        match strip_prefix(rest, "[fwd:").and_then(|inner| inner.strip_suffix(']')) {
            Some(inner) => {
                is_reply = true;
                rest = inner;
            }
            None => {
                return BaseSubject {
                    text: rest,
                    is_reply,
                };
            }
        }
    }
}

/// Steps 3 to 5: `subj-leader = (*subj-blob subj-refwd) / WSP`, and blobs that something is left behind.
fn leaders<'a>(mut rest: &'a str, is_reply: &mut bool) -> &'a str {
    loop {
        rest = rest.trim_start_matches(' ');
        // Blobs at the begin: a reply mark behind them takes them along (step 3); without one they go one by one, as long as
        // something is left (step 4). What follows them is the same in both cases, so they are walked over once.
        let mut behind = rest;
        let mut last = None;
        while let Some(next) = blob(behind) {
            last = Some(behind);
            behind = next;
        }
        if let Some(next) = reply_mark(behind) {
            *is_reply = true;
            rest = next;
            continue;
        }
        return match last {
            Some(last) if behind.is_empty() => last,
            _ => behind,
        };
    }
}

/// What follows a `subj-blob = "[" *BLOBCHAR "]" *WSP`, if the text begins with one.
fn blob(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('[')?;
    let end = memchr::memchr2(b'[', b']', inner.as_bytes())?;
    let behind = inner[end..].strip_prefix(']')?;
    // "any CHAR8 except '[' and ']'": NUL is none, but no decoded text has one.
    Some(behind.trim_start_matches(' '))
}

/// What follows a `subj-refwd = ("re" / ("fw" ["d"])) *WSP [subj-blob] ":"`, if the text begins with one.
fn reply_mark(text: &str) -> Option<&str> {
    let word = strip_prefix(text, "re")
        .or_else(|| strip_prefix(text, "fwd"))
        .or_else(|| strip_prefix(text, "fw"))?;
    let word = word.trim_start_matches(' ');
    blob(word).unwrap_or(word).strip_prefix(':')
}

/// Without a prefix in ASCII, whatever its case.
fn strip_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.as_bytes().get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix.as_bytes())
        .then(|| &text[prefix.len()..])
}

/// Without a suffix in ASCII, whatever its case.
fn strip_suffix<'a>(text: &'a str, suffix: &str) -> Option<&'a str> {
    let at = text.len().checked_sub(suffix.len())?;
    text.as_bytes()[at..]
        .eq_ignore_ascii_case(suffix.as_bytes())
        .then(|| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(subject: &str, expected: &str, is_reply: bool) {
        let mut scratch = String::new();
        let found = base(subject.as_bytes(), &mut scratch);
        assert_eq!(
            (found.text, found.is_reply),
            (expected, is_reply),
            "{subject:?}"
        );
    }

    #[test]
    fn replies_and_forwards() {
        check("dinner", "dinner", false);
        check("Re: dinner", "dinner", true);
        check("RE : dinner", "dinner", true);
        check("re:dinner", "dinner", true);
        check("fw: dinner", "dinner", true);
        check("FWD: dinner", "dinner", true);
        check("Re: fwd: Re: dinner", "dinner", true);
        check("Re[2]: dinner", "dinner", true);
        check("Re [list] : dinner", "dinner", true);
        check("Re [list]: dinner", "dinner", true);
        check("Fwd [a]: Re[3]: [b] x", "x", true);
        check("dinner (fwd)", "dinner", true);
        check("dinner (FWD) (fwd)  ", "dinner", true);
        check("dinner (fwd) yes", "dinner (fwd) yes", false);
        check("[fwd: dinner]", "dinner", true);
        check("[Fwd: Re: [fwd: dinner (fwd)] ]", "dinner", true);
        check("Re: [fwd: [list] dinner]", "dinner", true);
        // No marks of their own.
        check("AW: dinner", "AW: dinner", false);
        check("regarding: dinner", "regarding: dinner", false);
        check("re dinner", "re dinner", false);
        check("Re", "Re", false);
        check("Re:", "", true);
        check("(fwd)", "", true);
        check("", "", false);
        check("  \t ", "", false);
    }

    #[test]
    fn blobs() {
        check("[list] dinner", "dinner", false);
        check("[list][other] [] dinner", "dinner", false);
        check("[list]", "[list]", false);
        check("[list][other]", "[other]", false);
        check("[list] [other]  ", "[other]", false);
        check("Re: [list]", "[list]", true);
        check("[list] Re: [other]", "[other]", true);
        check("[a] [b] Re: [c] [d] Re: x", "x", true);
        check("[a[b] x", "[a[b] x", false);
        check("[a] [b", "[b", false);
        check("[a]]", "]", false);
        check("x [a]", "x [a]", false);
        // A forward without anything in it is a blob by itself, so it is one only when something follows.
        check("[fwd: x] y", "y", false);
        check("[fwd:]", "", true);
    }

    #[test]
    fn white_space_and_encoded_words() {
        check(" Re:\t dinner \r\n  at\t \teight ", "dinner at eight", true);
        check("=?utf-8?q?Re=3A_Z=C3=BCrich?= (fwd)", "Zürich", true);
        check("=?utf-8?q?Re=3A=20=20a=20=20b?=", "a b", true);
        check("Re: ÄÖ [x]", "ÄÖ [x]", true);
    }

    /// The steps as the RFC writes them, one removal at a time.
    fn by_the_letter(text: &str) -> (String, bool) {
        let mut rest = text.to_owned();
        let mut is_reply = false;
        loop {
            loop {
                if rest.ends_with(' ') {
                    rest.pop();
                } else if strip_suffix(&rest, "(fwd)").is_some() {
                    is_reply = true;
                    rest.truncate(rest.len() - 5);
                } else {
                    break;
                }
            }
            loop {
                if rest.starts_with(' ') {
                    rest.remove(0);
                    continue;
                }
                let mut behind = &rest[..];
                while let Some(next) = blob(behind) {
                    behind = next;
                }
                if let Some(next) = reply_mark(behind) {
                    is_reply = true;
                    rest = next.to_owned();
                    continue;
                }
                match blob(&rest) {
                    Some(next) if !next.is_empty() => rest = next.to_owned(),
                    _ => break,
                }
            }
            match strip_prefix(&rest, "[fwd:").and_then(|inner| inner.strip_suffix(']')) {
                Some(inner) => {
                    is_reply = true;
                    rest = inner.to_owned();
                }
                None => return (rest, is_reply),
            }
        }
    }

    proptest! {
        #[test]
        fn like_the_steps_of_the_rfc(parts in proptest::collection::vec(
            proptest::sample::select(&["re", "fw", "fwd", "d", ":", "[", "]", " ", "\t", "(fwd)", "[fwd:", "x", "é", "[list]"][..]),
            0..24,
        )) {
            let subject = parts.concat();
            let mut scratch = String::new();
            let found = base(subject.as_bytes(), &mut scratch);
            let squeezed: Vec<&str> = subject.split([' ', '\t']).collect();
            let mut text = String::new();
            for (n, word) in squeezed.iter().enumerate() {
                if n > 0 && !text.ends_with(' ') {
                    text.push(' ');
                }
                text.push_str(word);
            }
            prop_assert_eq!((found.text.to_owned(), found.is_reply), by_the_letter(&text));
        }
    }

    /// Nested as deep as a header goes: each level is looked at once, so that this ends at all.
    #[test]
    fn hostile_subjects() {
        let deep = 40_000;
        check(
            &format!("{}x{}", "[fwd:".repeat(deep), "]".repeat(deep)),
            "x",
            true,
        );
        check(&format!("{}x", "Re: ".repeat(deep)), "x", true);
        check(&format!("{}x", "[a]".repeat(deep)), "x", false);
        check(&"[a]".repeat(deep), "[a]", false);
        check(&"[".repeat(deep), &"[".repeat(deep), false);
        check(&format!("x{}", "(fwd)".repeat(deep)), "x", true);
        let open = format!("{}re[", "[fwd:".repeat(deep));
        check(&open, &open, false);
    }
}
