//! What of a client's text a log line may hold: it must forge no line, steer no terminal, and be read in the order in which it stands.

/// A client's text for the log: at most so many characters (`…` behind what was cut), and U+FFFD for each that is not to be seen.
#[must_use]
pub fn printable(text: &str, chars_max: usize) -> String {
    let mut out: String = text
        .chars()
        .take(chars_max)
        .map(|c| if is_unseen(c) { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(chars_max).is_some() {
        out.push('…');
    }
    out
}

/// Controls, and what Unicode calls format characters (Cf), line and paragraph separators, fillers, tags and variation selectors: they show
/// nothing themselves, and some change what is shown around them ("Trojan Source", CVE-2021-42574).
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{8e2}'
            | '\u{600}'..='\u{605}' | '\u{890}'..='\u{891}'
            | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            // Zero width, marks of direction, separators, overrides, isolates, invisible operators.
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_to_be_seen_is_not_there() {
        let check = |input: &str, expected: &str| assert_eq!(printable(input, 120), expected);
        check("anne@example.org", "anne@example.org");
        check("ánne@exämple.org 邮件 א", "ánne@exämple.org 邮件 א");
        check("a\r\nINFO login", "a\u{fffd}\u{fffd}INFO login");
        check("\u{1b}[2J\u{9b}x\u{7f}", "\u{fffd}[2J\u{fffd}x\u{fffd}");
        // Overrides and isolates: all of them.
        for unseen in ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}') {
            check(&format!("a{unseen}b"), "a\u{fffd}b");
        }
        for unseen in [
            '\0',
            '\u{85}',
            '\u{ad}',
            '\u{61c}',
            '\u{180e}',
            '\u{200b}',
            '\u{200d}',
            '\u{200e}',
            '\u{200f}',
            '\u{2028}',
            '\u{2029}',
            '\u{2060}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{fff9}',
            '\u{e0001}',
            '\u{e0041}',
        ] {
            check(&format!("a{unseen}b"), "a\u{fffd}b");
        }
        check(&"x".repeat(1_000), &("x".repeat(120) + "…"));
        check(&"ü".repeat(120), &"ü".repeat(120));
    }
}
