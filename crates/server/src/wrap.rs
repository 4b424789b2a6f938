//! Breaks texts into lines: for the pages under `docs/` that the program writes, and for the example of a configuration.

/// Characters of a line of a page.
pub(crate) const PAGE_CHARS: usize = 150;

/// Appends `text` in lines of at most `chars` characters. The first line begins with `first`, all others with `next`.
///
/// Lines are broken at spaces outside code spans. A word or a code span that is longer than a line is not broken.
pub(crate) fn wrap(text: &str, chars: usize, first: &str, next: &str, out: &mut String) {
    let mut in_code = false;
    let words = text.split(|letter: char| {
        in_code ^= letter == '`';
        letter == ' ' && !in_code
    });
    let mut column = 0;
    for (at, word) in words.enumerate() {
        let width = word.chars().count();
        if at == 0 {
            out.push_str(first);
            column = first.chars().count();
        } else if column + 1 + width > chars {
            out.push('\n');
            out.push_str(next);
            column = next.chars().count();
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_spaces() {
        let check = |text: &str, chars: usize, expected: &str| {
            let mut out = String::new();
            wrap(text, chars, "- ", "  ", &mut out);
            assert_eq!(out, expected, "{text:?} {chars}");
        };
        check("", 10, "- \n");
        check("one", 10, "- one\n");
        check("one two three", 9, "- one two\n  three\n");
        check("one two three", 8, "- one\n  two\n  three\n");
        // Characters count, not bytes.
        check("äöü äöü", 9, "- äöü äöü\n");
        // A code span stays whole, also where it is longer than a line.
        check("see `a b c`, please", 9, "- see\n  `a b c`,\n  please\n");
        check("`a b c d e` f g", 9, "- `a b c d e`\n  f g\n");
        check("(`a b`; `c d`) e", 9, "- (`a b`;\n  `c d`)\n  e\n");
        check("too-long-for-it x", 9, "- too-long-for-it\n  x\n");
    }
}
