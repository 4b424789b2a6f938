//! Rust source with what is not code blanked out, line by line: comments, texts, and what only tests see.
//!
//! Not a parser: it knows comments, string and character literals and braces, which is enough to say on which line a word of code stands.

/// The code of a file: as many lines as the file, with comments and literals replaced by spaces.
pub(crate) fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = bytes.get(at..).unwrap_or_default();
        let end = match byte {
            b'/' if rest.starts_with(b"//") => rest
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(rest.len()),
            b'/' if rest.starts_with(b"/*") => comment(rest),
            b'"' => quoted(rest),
            b'r' if !inside_word(bytes, at) => raw(rest),
            b'\'' => character(rest),
            _ => 0,
        };
        if end == 0 {
            out.push(byte);
            at += 1;
            continue;
        }
        let gone = rest.get(..end).unwrap_or(rest);
        out.extend(
            gone.iter()
                .map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }),
        );
        at += end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The same without items under `#[cfg(test)]` and under features: the product is built without any.
pub(crate) fn product(text: &str) -> String {
    let mut code = code(text);
    // The feature's name was a text and is blank.
    for mark in ["#[cfg(test)]", "#[cfg(feature = "] {
        while let Some(start) = code.find(mark) {
            let after = start + mark.len();
            let end = after + item(code.get(after..).unwrap_or_default());
            let blank: String = code
                .get(start..end)
                .unwrap_or_default()
                .chars()
                .map(|c| if c == '\n' { '\n' } else { ' ' })
                .collect();
            code.replace_range(start..end, &blank);
        }
    }
    code
}

/// Bytes of the item that begins here: up to its closing brace, or to a semicolon before any brace.
fn item(code: &str) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return at + 1,
            b'}' => depth -= 1,
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

fn comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        let here = rest.get(at..).unwrap_or_default();
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while let Some(&byte) = rest.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r"..."` and `r##"..."##`; 0 when it is no such literal.
fn raw(rest: &[u8]) -> usize {
    let hashes = rest
        .iter()
        .skip(1)
        .take_while(|byte| **byte == b'#')
        .count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let body = 2 + hashes;
    rest.get(body..)
        .and_then(|rest| rest.windows(end.len()).position(|window| window == end))
        .map_or(rest.len(), |at| body + at + end.len())
}

/// A character literal; 0 for a lifetime.
fn character(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return rest
            .iter()
            .skip(3)
            .position(|byte| *byte == b'\'')
            .map_or(rest.len(), |at| at + 4);
    }
    // One character of up to four bytes, then the quote.
    (2..=5)
        .find(|at| rest.get(*at) == Some(&b'\''))
        .filter(|at| {
            std::str::from_utf8(rest.get(1..*at).unwrap_or_default())
                .is_ok_and(|text| text.chars().count() == 1)
        })
        .map_or(0, |at| at + 1)
}

fn inside_word(bytes: &[u8], at: usize) -> bool {
    at.checked_sub(1)
        .and_then(|before| bytes.get(before))
        .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(function: fn(&str) -> String, text: &str, expected: &str) {
        let words: Vec<String> = function(text)
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect();
        assert_eq!(words.join(" "), expected, "{text}");
        assert_eq!(function(text).lines().count(), text.lines().count());
    }

    #[test]
    fn only_code_stays() {
        check(code, "a // b\nc", "a c");
        check(code, "a /* b /* c */ d */ e", "a e");
        check(code, r#"a("b\"// c") d"#, "a( ) d");
        check(code, "a r#\"b \" c\"# d", "a d");
        check(code, "a '\"' b '\\'' c", "a b c");
        check(code, "fn a<'b>(c: &'b str) {}", "fn a<'b>(c: &'b str) {}");
        check(code, "var\"text\" or", "var or");
    }

    #[test]
    fn tests_go() {
        check(
            product,
            "a #[cfg(test)] mod tests { fn b() { c } } d",
            "a d",
        );
        check(product, "a #[cfg(test)] use b; c", "a c");
        check(product, "a #[cfg(feature = \"x\")] mod b { c } d", "a d");
        check(product, "#[cfg(test)]\nmod tests {\n b \"}\"\n}\nc", "c");
    }
}
