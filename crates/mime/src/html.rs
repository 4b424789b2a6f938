//! Text out of HTML, as a stream: for previews.
//!
//! No tree is built and nothing nests: one character moves one small machine, so that memory is some bytes and work is linear, whatever
//! is opened and never closed. What an unclosed tag, quote or comment swallows is lost, as in browsers.

/// Takes markup out of HTML.
#[derive(Default)]
pub(crate) struct Stripper {
    state: StripperState,
    /// The present tag's or entity's name, as far as it matters.
    name: String,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum StripperState {
    #[default]
    Text,
    /// Behind `&`.
    Entity,
    /// Behind `<`.
    Open,
    /// Behind `</`.
    Close,
    /// In the name of a tag; `true`: of a closing one.
    Name(bool),
    /// Behind the name.
    Attributes,
    /// In a quoted value.
    Quoted(char),
    /// Behind `<!` and so many hyphens.
    Declaration(u8),
    /// Behind `<!--`, and so many hyphens before this.
    Comment(u8),
    /// In an element whose text is none: its number, and how much of its closing tag has been seen.
    Hidden(u8, u8),
}

/// Elements whose content is no text for readers, or not for a preview.
const HIDDEN: [&str; 6] = ["script", "style", "title", "template", "noscript", "svg"];

/// Elements that stand within a line: no space is put where they begin or end.
const INLINE: [&str; 24] = [
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "em", "font", "i", "kbd",
    "mark", "s", "small", "span", "strike", "strong", "sub", "sup", "tt", "u", "wbr",
];

/// The longest name that is known; what is longer is not known.
const NAME_BYTES_MAX: usize = 12;

impl Stripper {
    /// The next characters; their text goes to `out`.
    pub(crate) fn push(&mut self, text: &str, out: &mut impl FnMut(char)) {
        text.chars().for_each(|character| self.next(character, out));
    }

    fn next(&mut self, character: char, out: &mut impl FnMut(char)) {
        self.state = match (self.state, character) {
            (StripperState::Text, '<') => StripperState::Open,
            (StripperState::Text, '&') => {
                self.name.clear();
                StripperState::Entity
            }
            (StripperState::Text, _) => {
                out(character);
                StripperState::Text
            }
            (StripperState::Entity, 'a'..='z' | 'A'..='Z' | '0'..='9' | '#')
                if self.name.len() < NAME_BYTES_MAX =>
            {
                self.name.push(character);
                StripperState::Entity
            }
            (StripperState::Entity, _) => {
                let semicolon = character == ';';
                match entity(&self.name) {
                    Some(meant) => out(meant),
                    None => {
                        out('&');
                        self.name.chars().for_each(&mut *out);
                        if semicolon {
                            out(';');
                        }
                    }
                }
                self.state = StripperState::Text;
                if !semicolon {
                    self.next(character, out);
                }
                return;
            }
            (StripperState::Open, '/') => StripperState::Close,
            (StripperState::Open, '!') => StripperState::Declaration(0),
            (StripperState::Open, '?') => self.nameless(),
            (StripperState::Open | StripperState::Close, 'a'..='z' | 'A'..='Z') => {
                self.name.clear();
                self.name.push(character.to_ascii_lowercase());
                StripperState::Name(self.state == StripperState::Close)
            }
            (StripperState::Open, _) => {
                // No tag.
                out('<');
                self.state = StripperState::Text;
                return self.next(character, out);
            }
            (StripperState::Close, '>') => StripperState::Text,
            (StripperState::Close, _) => self.nameless(),
            (StripperState::Name(_), 'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | ':' | '_') => {
                if self.name.len() <= NAME_BYTES_MAX {
                    self.name.push(character.to_ascii_lowercase());
                }
                self.state
            }
            (StripperState::Name(closing), _) => {
                if !INLINE.contains(&self.name.as_str()) {
                    out(' ');
                }
                if closing {
                    // It hides nothing.
                    self.name.clear();
                }
                self.state = StripperState::Attributes;
                return self.next(character, out);
            }
            (StripperState::Attributes, '>') => {
                let hidden = HIDDEN.iter().position(|name| *name == self.name);
                self.name.clear();
                hidden.map_or(StripperState::Text, |number| {
                    StripperState::Hidden(number as u8, 0)
                })
            }
            (StripperState::Attributes, '"' | '\'') => StripperState::Quoted(character),
            (StripperState::Quoted(quote), _) if character == quote => StripperState::Attributes,
            (StripperState::Declaration(0), '-') => StripperState::Declaration(1),
            // `<!-->` is a whole comment.
            (StripperState::Declaration(1), '-') => StripperState::Comment(2),
            (StripperState::Declaration(_), '>') => StripperState::Text,
            (StripperState::Declaration(_), _) => StripperState::Declaration(2),
            (StripperState::Comment(2..), '>') => StripperState::Text,
            (StripperState::Comment(hyphens), '-') => {
                StripperState::Comment(hyphens.saturating_add(1))
            }
            (StripperState::Comment(_), _) => StripperState::Comment(0),
            (StripperState::Hidden(number, seen), _) => hidden(number, seen, character),
            (state @ (StripperState::Attributes | StripperState::Quoted(_)), _) => state,
        };
    }

    /// A tag that means nothing, up to its end.
    fn nameless(&mut self) -> StripperState {
        self.name.clear();
        StripperState::Attributes
    }
}

/// In the content of a hidden element: its closing tag ends it.
fn hidden(number: u8, seen: u8, character: char) -> StripperState {
    let name = HIDDEN[usize::from(number)].as_bytes();
    let expected = match seen {
        0 => b'<',
        1 => b'/',
        _ => name[usize::from(seen) - 2],
    };
    let matches = character.to_ascii_lowercase() == char::from(expected);
    match (matches, character) {
        (true, _) if usize::from(seen) == name.len() + 1 => StripperState::Attributes,
        (true, _) => StripperState::Hidden(number, seen + 1),
        (false, '<') => StripperState::Hidden(number, 1),
        (false, _) => StripperState::Hidden(number, 0),
    }
}

/// What an entity without its `&` and `;` stands for: numbers, and names that mail has.
fn entity(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let value = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => number.parse(),
        };
        return value.ok().and_then(char::from_u32);
    }
    let at = NAMES.binary_search_by_key(&name, |(name, _)| name).ok()?;
    Some(NAMES[at].1)
}

const NAMES: [(&str, char); 68] = [
    ("AMP", '&'),
    ("Aring", 'Å'),
    ("Auml", 'Ä'),
    ("Ccedil", 'Ç'),
    ("Eacute", 'É'),
    ("GT", '>'),
    ("LT", '<'),
    ("Ntilde", 'Ñ'),
    ("Oslash", 'Ø'),
    ("Ouml", 'Ö'),
    ("QUOT", '"'),
    ("Uuml", 'Ü'),
    ("aacute", 'á'),
    ("acirc", 'â'),
    ("aelig", 'æ'),
    ("agrave", 'à'),
    ("amp", '&'),
    ("apos", '\''),
    ("aring", 'å'),
    ("atilde", 'ã'),
    ("auml", 'ä'),
    ("bdquo", '„'),
    ("bull", '•'),
    ("ccedil", 'ç'),
    ("cent", '¢'),
    ("copy", '©'),
    ("deg", '°'),
    ("eacute", 'é'),
    ("ecirc", 'ê'),
    ("egrave", 'è'),
    ("emsp", '\u{2003}'),
    ("ensp", '\u{2002}'),
    ("euml", 'ë'),
    ("euro", '€'),
    ("gt", '>'),
    ("hellip", '…'),
    ("iacute", 'í'),
    ("icirc", 'î'),
    ("iexcl", '¡'),
    ("iquest", '¿'),
    ("laquo", '«'),
    ("larr", '←'),
    ("ldquo", '“'),
    ("lsquo", '‘'),
    ("lt", '<'),
    ("mdash", '—'),
    ("middot", '·'),
    ("nbsp", '\u{a0}'),
    ("ndash", '–'),
    ("ntilde", 'ñ'),
    ("oacute", 'ó'),
    ("ocirc", 'ô'),
    ("oslash", 'ø'),
    ("ouml", 'ö'),
    ("pound", '£'),
    ("quot", '"'),
    ("raquo", '»'),
    ("rarr", '→'),
    ("rdquo", '”'),
    ("reg", '®'),
    ("rsquo", '’'),
    ("shy", '\u{ad}'),
    ("szlig", 'ß'),
    ("times", '×'),
    ("trade", '™'),
    ("uuml", 'ü'),
    ("zwj", '\u{200d}'),
    ("zwnj", '\u{200c}'),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn strip(html: &str, step: usize) -> String {
        let mut stripper = Stripper::default();
        let mut text = String::new();
        let characters: Vec<char> = html.chars().collect();
        for piece in characters.chunks(step) {
            let piece: String = piece.iter().collect();
            stripper.push(&piece, &mut |character| text.push(character));
        }
        text
    }

    #[track_caller]
    fn check(html: &str, expected: &str) {
        for step in [1, 2, 3, 1000] {
            let text = strip(html, step);
            let words: Vec<&str> = text.split_ascii_whitespace().collect();
            assert_eq!(words.join(" "), expected, "{html:?} by {step}");
        }
    }

    #[test]
    fn text_of_html() {
        assert!(NAMES.is_sorted());
        check("<p>Hello, <b>wor</b>ld</p><p>!</p>", "Hello, world !");
        check("a<br>b<BR/>c<div\nclass='x>y'>d</div >e", "a b c d e");
        check(
            "<!DOCTYPE html><?xml x?><html><head><title>no</title></head>yes",
            "yes",
        );
        check(
            "<style>a{b:\"</p>\"}</style>x<SCRIPT a=\"b\">if (a<b) \"</scrip\"</Script >y",
            "x y",
        );
        check(
            "a<!-- <p>b --> c<!--->d<!----->e<!-- -- > -->f<!-->g",
            "a cdefg",
        );
        check("<a href=\"x\">link</a>, <img alt='>'>end", "link, end");
        check("a < b <3 <", "a < b <3");
        check(
            "a & b &amp; c&lt;d&gt;&nbsp;&eacute;&#233;&#xE9;&unknown;&",
            "a & b & c<d>\u{a0}ééé&unknown;",
        );
        check("&amp &#x110000; &#0;&;", "& &#x110000; \0&;");
        check("</>a</ x>b", "ab");
        check("<![CDATA[x]]>y", "y");
        check("<unclosed a='", "");
        check("x<!-- y", "x");
        check("<script>x</script>", "");
        check("<script><script></script>a</script>b", "a b");
    }

    #[test]
    fn hostile_html() {
        let many = 200_000;
        assert_eq!(strip(&"<".repeat(many), 999).len(), many - 1);
        assert_eq!(strip(&"<a".repeat(many), 999), "");
        assert_eq!(strip(&"&".repeat(many), 999).len(), many - 1);
        assert_eq!(strip(&"<div><style>".repeat(many), 999).trim(), "");
        assert_eq!(
            strip(&format!("&{};", "x".repeat(many)), 999).len(),
            many + 2
        );
        assert_eq!(strip(&"<!--".repeat(many), 999), "");
        let mut stripper = Stripper::default();
        stripper.push(&format!("<{}", "x".repeat(many)), &mut |_| {});
        assert!(stripper.name.len() <= NAME_BYTES_MAX + 1);
    }
}
