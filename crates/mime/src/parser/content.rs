//! Content-Type, Content-Disposition and their kin (RFC 2045 5, RFC 2183, RFC 2231, RFC 3282).
//!
//! Parameters are read as generously as senders write them: an unquoted value reaches to white space or semicolon, what
//! is no parameter is skipped up to the next semicolon or comma, and a parameter may stand where the semicolon before it was forgotten.

use super::text::{is_wsp, quoted, skip_cfws};
use crate::summary::{Octets, Param};

/// Longest type, subtype or transfer encoding that is believed (RFC 6838 4.2 allows 127 characters for a name).
const TOKEN_BYTES_MAX: usize = 127;

/// A Content-Type: type, subtype, and the parameters as they stand. `None` when it is broken, whereupon RFC 2045 5.2 has
/// "text/plain; charset=us-ascii".
pub(super) fn content_type(value: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (media_type, at) = token(value, 0);
    let at = skip_cfws(value, at);
    if media_type.is_empty() || value.get(at) != Some(&b'/') {
        return None;
    }
    let (subtype, at) = token(value, at + 1);
    if subtype.is_empty() || media_type.len() > TOKEN_BYTES_MAX || subtype.len() > TOKEN_BYTES_MAX {
        return None;
    }
    Some((media_type, subtype, &value[at..]))
}

/// A value that begins with one token: Content-Transfer-Encoding, or the type of Content-Disposition. The token, and the
/// rest.
pub(super) fn leading_token(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let (token, at) = token(value, 0);
    (!token.is_empty() && token.len() <= TOKEN_BYTES_MAX).then(|| (token, &value[at..]))
}

/// The tags of a Content-Language.
pub(super) fn languages(value: &[u8], max: usize) -> Vec<Vec<u8>> {
    let mut tags = Vec::new();
    let mut at = 0;
    while at < value.len() && tags.len() < max {
        let (tag, end) = token(value, at);
        if !tag.is_empty() && tag.len() <= TOKEN_BYTES_MAX {
            tags.push(tag.to_vec());
        }
        at = end;
        while at < value.len() && value[at] != b',' {
            at += 1;
        }
        at += 1;
    }
    tags
}

/// RFC 2045 5.1 `token`, white space and comments before it skipped, and the position behind it.
fn token(value: &[u8], at: usize) -> (&[u8], usize) {
    let start = skip_cfws(value, at);
    let mut end = start;
    while end < value.len() && is_token(value[end]) {
        end += 1;
    }
    (&value[start..end], end)
}

fn is_token(byte: u8) -> bool {
    !matches!(
        byte,
        0..=b' '
            | 0x7F
            | b'('
            | b')'
            | b'<'
            | b'>'
            | b'@'
            | b','
            | b';'
            | b':'
            | b'\\'
            | b'"'
            | b'/'
            | b'['
            | b']'
            | b'?'
            | b'='
    )
}

/// Parameters, from behind the token that they belong to: at most `max` pieces are looked at.
pub(super) fn params(rest: &[u8], max: usize) -> Vec<Param> {
    let mut gathered = Gathered::default();
    let mut at = 0;
    let mut pieces = 0;
    while pieces < max && at < rest.len() {
        let (name, end) = token(rest, at);
        let equals = skip_cfws(rest, end);
        if name.is_empty() || rest.get(equals) != Some(&b'=') {
            // To behind the next semicolon; quoted strings on the way may hold semicolons.
            at = end;
            while at < rest.len() && !matches!(rest[at], b';' | b',') {
                at = match rest[at] {
                    b'"' => quoted(rest, at, &mut Vec::new()),
                    b'(' => skip_cfws(rest, at),
                    _ => at + 1,
                };
            }
            at += 1;
            continue;
        }
        at = skip_cfws(rest, equals + 1);
        let mut value = Vec::new();
        let is_quoted = rest.get(at) == Some(&b'"');
        if is_quoted {
            at = quoted(rest, at, &mut value);
        } else {
            let start = at;
            while at < rest.len() && rest[at] != b';' && !is_wsp(rest[at]) {
                at += 1;
            }
            value.extend_from_slice(&rest[start..at]);
        }
        pieces += 1;
        // A value is a token or a quoted string (RFC 2045 5.1), and a token is not empty.
        if !value.is_empty() || is_quoted {
            gathered.piece(name, value);
        }
    }
    gathered.finish()
}

/// Parameters and the pieces of continued ones (RFC 2231 3), in the order in which the names first came.
#[derive(Default)]
struct Gathered {
    list: Vec<Gathering>,
}

struct Gathering {
    name: Vec<u8>,
    /// One value, or pieces with their number and whether they are percent-encoded.
    pieces: Vec<(u32, bool, Vec<u8>)>,
    continued: bool,
}

impl Gathered {
    fn piece(&mut self, name: &[u8], value: Vec<u8>) {
        if let Some((base, number, encoded)) = continuation(name) {
            let same = |g: &&mut Gathering| g.continued && g.name.eq_ignore_ascii_case(base);
            // The list is short: `params_max` bounds it.
            match self.list.iter_mut().find(same) {
                Some(gathering) => gathering.pieces.push((number, encoded, value)),
                None => {
                    let pieces = vec![(number, encoded, value)];
                    self.list.push(Gathering {
                        name: base.to_vec(),
                        pieces,
                        continued: true,
                    });
                }
            }
        } else {
            self.list.push(Gathering {
                name: name.to_vec(),
                pieces: vec![(0, false, value)],
                continued: false,
            });
        }
    }

    fn finish(self) -> Vec<Param> {
        let mut params = Vec::with_capacity(self.list.len());
        let mut add = |name: Vec<u8>, value: Vec<u8>| {
            params.push(Param {
                name: Octets::from(name),
                value: Octets::from(value),
            });
        };
        for mut gathering in self.list {
            if !gathering.continued {
                for (_, _, value) in gathering.pieces {
                    add(gathering.name.clone(), value);
                }
                continue;
            }
            gathering.pieces.sort_by_key(|&(number, _, _)| number);
            let whole = gathering
                .pieces
                .iter()
                .enumerate()
                .all(|(at, piece)| piece.0 as usize == at);
            if !whole {
                // Pieces are missing: they are shown as they are, as Dovecot does.
                for (number, encoded, value) in gathering.pieces {
                    let mut name = gathering.name.clone();
                    name.extend_from_slice(
                        format!("*{number}{}", if encoded { "*" } else { "" }).as_bytes(),
                    );
                    add(name, value);
                }
                continue;
            }
            let mut name = gathering.name;
            let mut joined = Vec::new();
            if gathering.pieces.iter().any(|piece| piece.1) {
                // RFC 9051 7.5.2 wants the name "foo*". The value keeps its charset and percent encoding, as in
                // Dovecot, because that is how clients read a name with an asterisk; so plain pieces are encoded.
                name.push(b'*');
                // RFC 2231 4.1: charset and language are of the first piece, and "the single quote delimiters MUST be present".
                if gathering.pieces.first().is_some_and(|first| !first.1) {
                    joined.extend_from_slice(b"''");
                }
                for (_, encoded, value) in gathering.pieces {
                    if encoded {
                        joined.extend_from_slice(&value)
                    } else {
                        percent_encode(&value, &mut joined)
                    }
                }
            } else {
                gathering
                    .pieces
                    .iter()
                    .for_each(|(_, _, value)| joined.extend_from_slice(value));
            }
            add(name, joined);
        }
        params
    }
}

/// `name*3` or `name*3*` of RFC 2231: name, number, and whether the piece is percent-encoded.
fn continuation(name: &[u8]) -> Option<(&[u8], u32, bool)> {
    let (inner, encoded) = name
        .strip_suffix(b"*")
        .map_or((name, false), |inner| (inner, true));
    let star = memchr::memrchr(b'*', inner)?;
    let digits = &inner[star + 1..];
    // Nine digits fit a u32.
    if star == 0 || digits.is_empty() || digits.len() > 9 || !digits.iter().all(u8::is_ascii_digit)
    {
        return None;
    }
    let number = digits
        .iter()
        .fold(0, |n: u32, d| n * 10 + u32::from(d - b'0'));
    Some((&inner[..star], number, encoded))
}

/// Encodes what is no `attribute-char` of RFC 2231 7.
fn percent_encode(value: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in value {
        if is_token(byte) && byte < 0x80 && !matches!(byte, b'*' | b'\'' | b'%') {
            out.push(byte);
        } else {
            out.extend_from_slice(&[
                b'%',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(value: &str) -> String {
        let Some((media_type, subtype, rest)) = content_type(value.as_bytes()) else {
            return "broken".into();
        };
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        let params = params(rest, 100);
        let params: Vec<_> = params
            .iter()
            .map(|p| format!(" {}={}", text(&p.name), text(&p.value)))
            .collect();
        format!("{}/{}{}", text(media_type), text(subtype), params.concat())
    }

    fn check(value: &str, expected: &str) {
        assert_eq!(show(value), expected, "{value}");
    }

    #[test]
    fn types() {
        check("TEXT/html", "TEXT/html");
        check("text / plain", "text/plain");
        check("(c)text/plain;(c)a(c)=(c)b(c)", "text/plain a=b(c)");
        check("text/plain x; a=b", "text/plain a=b");
        check("text/plain x y=z; a=b", "text/plain a=b");
        check("text/plain, text/html", "text/plain");
        for broken in [
            "",
            "text",
            "text/",
            "/plain",
            "text;charset=x",
            "\"text\"/plain",
            "garbage",
        ] {
            check(broken, "broken");
        }
        check(&format!("{}/x", "a".repeat(128)), "broken");
    }

    #[test]
    fn parameters() {
        check(
            "a/b; charset=utf-8; format=flowed",
            "a/b charset=utf-8 format=flowed",
        );
        check(
            "a/b; charset = \"utf-8\" ; a=b c; d=e",
            "a/b charset=utf-8 a=b d=e",
        );
        check("a/b; a=\"x\\\"y;z\";b=c", "a/b a=x\"y;z b=c");
        check("a/b; a=b/c;;bare;=x; d=; e=\"\"", "a/b a=b/c e=");
        check("a/b; name==?utf-8?q?a?=", "a/b name==?utf-8?q?a?=");
        check("a/b; a=\"unclosed; b=c", "a/b a=unclosed; b=c");
        check("a/b; a=b; a=c", "a/b a=b a=c");
    }

    /// RFC 2045 5.1 has a semicolon before each parameter. Where it was forgotten nothing else can be meant.
    #[test]
    fn parameters_without_semicolons() {
        check("a/b boundary=x", "a/b boundary=x");
        check("a/b boundary=\"x y\"; c=d", "a/b boundary=x y c=d");
        check("a/b\tboundary = x", "a/b boundary=x");
        check("a/b (c) boundary=x", "a/b boundary=x");
        check("a/b, boundary=x, c=d", "a/b boundary=x, c=d");
        check("a/b; c=d boundary=x", "a/b c=d boundary=x");
        check("a/b; c=\"d\" boundary=x", "a/b c=d boundary=x");
        check("a/b; c=\"d\"boundary=x", "a/b c=d boundary=x");
        check("a/b; name=my file.txt; c=d", "a/b name=my c=d");
        check("a/b x", "a/b");
        check("a/b = x; c=d", "a/b c=d");
    }

    #[test]
    fn continuations() {
        check("a/b; n*0=ab; n*1=cd", "a/b n=abcd");
        check("a/b; n*1=cd; x=y; N*00=ab", "a/b n=abcd x=y");
        check("a/b; f*=utf-8''%41", "a/b f*=utf-8''%41");
        check(
            "a/b; f*0*=utf-8''%20x; f*1=y%z; f*2*=%41",
            "a/b f*=utf-8''%20xy%25z%41",
        );
        check("a/b; f*0=a; f*1*=%20b", "a/b f*=''a%20b");
        check("a/b; f*0=a; f*2*=c", "a/b f*0=a f*2*=c");
        check("a/b; f*0=a; f*0=b", "a/b f*0=a f*0=b");
        check(
            "a/b; *0=a; f*x=b; f*99999999999=c",
            "a/b *0=a f*x=b f*99999999999=c",
        );
    }

    #[test]
    fn pieces_beyond_the_limit_are_not_read() {
        let many: String = (0..1000).map(|n| format!("; n*{n}=x")).collect();
        let params = params(many.as_bytes(), 7);
        assert_eq!(
            params,
            [Param {
                name: "n".into(),
                value: "xxxxxxx".into()
            }]
        );
    }

    #[test]
    fn language_tags() {
        let show = |v: &str| {
            languages(v.as_bytes(), 3)
                .iter()
                .map(|t| String::from_utf8_lossy(t) + ";")
                .collect::<String>()
        };
        assert_eq!(show("en"), "en;");
        assert_eq!(show("en, (c) de ,"), "en;de;");
        assert_eq!(show("a,b,c,d"), "a;b;c;");
    }
}
