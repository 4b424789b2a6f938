//! Address lists (RFC 5322 3.4 and 4.4) as ENVELOPE wants them (RFC 9051 7.5.2).
//!
//! One pass, no recursion, one address in memory beside the result. Where the syntax is broken:
//! - what lacks a mailbox or a host has `MISSING_MAILBOX` or `MISSING_DOMAIN` there, as in Dovecot, since NIL marks groups;
//! - of several words before an at sign the last is the mailbox and the others are the name;
//! - what stands behind a complete address, up to the comma, is left out.

use super::budget::Texts;
use super::text::{is_wsp, quoted, skip_cfws, skip_comment, unfold};
use crate::header::decode;
use crate::summary::{Address, Octets};

const MISSING_MAILBOX: &[u8] = b"MISSING_MAILBOX";
const MISSING_DOMAIN: &[u8] = b"MISSING_DOMAIN";

/// Appends the addresses of an unfolded field to `list`, until it holds `max` of them or `texts` is used up. A group that
/// is begun is always closed. `cut`: the end of `value` is missing; then what stands behind its last comma is left out, as it may be a part of an
/// address.
pub(super) fn parse(
    value: &[u8],
    cut: bool,
    max: usize,
    texts: &mut Texts,
    list: &mut Vec<Address>,
) {
    let mut reader = Reader {
        list,
        texts,
        max,
        in_group: false,
        full: false,
    };
    let mut current = Current::default();
    let mut at = 0;
    while at < value.len() && !reader.full {
        at = match value[at] {
            b',' => {
                reader.finish(&mut current);
                at + 1
            }
            b';' => {
                reader.finish(&mut current);
                reader.end_group();
                at + 1
            }
            b':' if current.host.is_none() && !current.angle => {
                if reader.in_group {
                    // Groups do not nest (RFC 5322 3.4): the inner name is dropped.
                    current = Current::default();
                } else {
                    reader.start_group(&mut current);
                }
                at + 1
            }
            b'<' if current.host.is_none() && !current.angle => {
                current.angle_address(value, at + 1)
            }
            b'@' if current.host.is_none() && !current.angle => current.domain(value, at + 1),
            _ => current.word(value, at),
        };
    }
    if !cut {
        reader.finish(&mut current);
    }
    reader.end_group();
}

/// What the addresses of a raw field say, for SEARCH FROM and its kin, which search the envelope: names without encoded words, addresses without
/// white space and comments. As long as the field.
pub(crate) fn text(raw: &[u8]) -> String {
    let mut list = Vec::new();
    let value = unfold(raw);
    // As much as addresses of so many bytes can cost: four texts for each comma.
    let mut texts = Texts::new(64 * (value.len() + 1));
    parse(&value, false, usize::MAX, &mut texts, &mut list);
    let mut text = String::new();
    for address in &list {
        if !text.is_empty() && address.mailbox.is_some() && !text.ends_with(": ") {
            text.push_str(", ");
        }
        let name = address.name.as_deref().map(decode).unwrap_or_default();
        let mailbox = address.mailbox.as_deref().unwrap_or_default();
        match address.host.as_deref() {
            None if address.mailbox.is_some() => {
                text.push_str(&decode(mailbox));
                text.push_str(": ");
            }
            None => text.push(';'),
            Some(host) => {
                let mut spec = String::new();
                if mailbox != MISSING_MAILBOX {
                    spec.push_str(&String::from_utf8_lossy(mailbox));
                }
                if host != MISSING_DOMAIN {
                    spec.push('@');
                    spec.push_str(&String::from_utf8_lossy(host));
                }
                match name.is_empty() {
                    true => text.push_str(&spec),
                    false => text.push_str(&format!("{name} <{spec}>")),
                }
            }
        }
    }
    text
}

struct Reader<'a> {
    list: &'a mut Vec<Address>,
    texts: &'a mut Texts,
    max: usize,
    in_group: bool,
    full: bool,
}

impl Reader<'_> {
    fn finish(&mut self, current: &mut Current) {
        let current = std::mem::take(current);
        if let Some(address) = current.address() {
            // One place is kept for the end of an open group.
            self.add(address, usize::from(self.in_group));
        }
    }

    fn start_group(&mut self, current: &mut Current) {
        let current = std::mem::take(current);
        let mut name = current.phrase;
        if !name.is_empty() && !current.last.is_empty() {
            name.push(b' ');
        }
        name.extend_from_slice(&current.last);
        let before = self.list.len();
        let room = self.texts.reserve(Texts::address_cost(&Address::default()));
        if room {
            self.add(
                Address {
                    mailbox: Some(name.into()),
                    ..Address::default()
                },
                1,
            );
            self.in_group = self.list.len() > before;
        } else {
            self.full = true;
        }
    }

    fn end_group(&mut self) {
        if self.in_group {
            // Its place and its cost were kept when the group began.
            self.list.push(Address::default());
            self.in_group = false;
        }
    }

    fn add(&mut self, address: Address, keep: usize) {
        if self.full
            || self.list.len() + 1 + keep > self.max
            || !self.texts.reserve(Texts::address_cost(&address))
        {
            self.full = true;
        } else {
            self.list.push(address);
        }
    }
}

/// The address that is being read.
#[derive(Default)]
struct Current {
    /// Words before the last one, with one space between.
    phrase: Vec<u8>,
    /// The last word, or dot-atom.
    last: Vec<u8>,
    /// Whether a word was seen: a quoted one may be empty.
    seen: bool,
    /// Whether white space or a comment came since the last word.
    gap: bool,
    angle: bool,
    route: Option<Vec<u8>>,
    mailbox: Option<Vec<u8>>,
    host: Option<Vec<u8>>,
    comment: Option<Vec<u8>>,
}

impl Current {
    /// Takes a word, white space or comment, and gives the position behind it.
    fn word(&mut self, value: &[u8], at: usize) -> usize {
        let byte = value[at];
        if is_wsp(byte) {
            self.gap = true;
            return at + 1;
        }
        if byte == b'(' {
            let end = skip_comment(value, at);
            // RFC 5322 3.4: the old way to name somebody is a comment behind the address; one before it names nobody.
            if self.seen {
                self.comment = Some(comment_text(&value[at..end]));
            }
            self.gap = true;
            return end;
        }
        let mut word = Vec::new();
        let end = if byte == b'"' {
            quoted(value, at, &mut word)
        } else {
            let len = value[at..]
                .iter()
                .position(|&b| {
                    is_wsp(b) || matches!(b, b'(' | b'"' | b'<' | b'@' | b',' | b':' | b';')
                })
                .unwrap_or(value.len() - at)
                .max(1);
            word.extend_from_slice(&value[at..at + len]);
            at + len
        };
        if self.host.is_some() || self.angle {
            return end;
        }
        // White space around the dots of a local part is obsolete syntax (RFC 5322 4.4), but in a name "John Q. Public" it
        // parts words. Which it is shows when the at sign comes: see `local`.
        if self.seen && self.gap {
            if !self.phrase.is_empty() {
                self.phrase.push(b' ');
            }
            self.phrase.append(&mut self.last);
        }
        self.last.append(&mut word);
        self.seen = true;
        self.gap = false;
        end
    }

    /// The words so far are a local part: the last of them, or those that dots join.
    fn local(&mut self) -> Vec<u8> {
        let mut local = std::mem::take(&mut self.last);
        while let Some(space) = memchr::memrchr(b' ', &self.phrase)
            .map(|s| s + 1)
            .or(Some(0))
        {
            let word = &self.phrase[space..];
            if word.is_empty() || !(word.ends_with(b".") || local.starts_with(b".")) {
                break;
            }
            let mut joined = word.to_vec();
            joined.extend_from_slice(&local);
            local = joined;
            self.phrase.truncate(space.saturating_sub(1));
            if local.len() > LOCAL_BYTES_MAX {
                break;
            }
        }
        local
    }

    /// Reads `domain` behind a bare at sign.
    fn domain(&mut self, value: &[u8], at: usize) -> usize {
        let local = self.local();
        self.mailbox = if self.seen { Some(local) } else { None };
        let (host, end) = domain(value, at);
        self.host = Some(host);
        end
    }

    /// Reads `[route ":"] local "@" domain ">"` behind an angle bracket.
    fn angle_address(&mut self, value: &[u8], at: usize) -> usize {
        self.angle = true;
        if self.seen {
            if !self.phrase.is_empty() {
                self.phrase.push(b' ');
            }
            self.phrase.append(&mut self.last);
        }
        let mut at = skip_space(value, at);
        if value.get(at) == Some(&b'@') {
            // Bounded, since a route may hold commas: else each `<@` would be searched to the end of the field.
            let stop = value[at..]
                .iter()
                .take(ROUTE_BYTES_MAX)
                .position(|&b| matches!(b, b':' | b'>'));
            if let Some(stop) = stop
                && value[at + stop] == b':'
            {
                self.route = Some(
                    value[at..at + stop]
                        .iter()
                        .copied()
                        .filter(|&b| !is_wsp(b))
                        .collect(),
                );
                at += stop + 1;
            }
        }
        let mut local = Vec::new();
        let mut any = false;
        while let Some(&byte) = value.get(at) {
            match byte {
                b'>' | b'@' | b',' | b';' => break,
                b'"' => at = quoted(value, at, &mut local),
                b'(' => {
                    at = skip_comment(value, at);
                    continue;
                }
                _ if is_wsp(byte) => {
                    at += 1;
                    continue;
                }
                _ => {
                    local.push(byte);
                    at += 1;
                }
            }
            any = true;
        }
        self.mailbox = any.then_some(local);
        if value.get(at) == Some(&b'@') {
            let (host, end) = domain(value, at + 1);
            self.host = Some(host);
            at = end;
        }
        // The rest up to the closing bracket, but an unclosed one must not swallow the other addresses.
        let stop = value[at..]
            .iter()
            .position(|&b| matches!(b, b'>' | b',' | b';'))
            .map_or(value.len(), |s| at + s);
        if value.get(stop) == Some(&b'>') {
            stop + 1
        } else {
            stop
        }
    }

    fn address(mut self) -> Option<Address> {
        if !self.angle && self.host.is_none() {
            if !self.seen {
                return None;
            }
            if self.phrase.is_empty() {
                self.mailbox = Some(std::mem::take(&mut self.last));
            } else {
                self.phrase.push(b' ');
                self.phrase.append(&mut self.last);
            }
        }
        let name = if self.phrase.is_empty() {
            self.comment.filter(|_| !self.angle)
        } else {
            Some(self.phrase)
        };
        let or = |text: Option<Vec<u8>>, missing: &[u8]| -> Octets {
            text.filter(|t| !t.is_empty())
                .map_or_else(|| missing.into(), Octets::from)
        };
        Some(Address {
            name: name.filter(|n| !n.is_empty()).map(Octets::from),
            route: self.route.map(Octets::from),
            mailbox: Some(or(self.mailbox, MISSING_MAILBOX)),
            host: Some(or(self.host, MISSING_DOMAIN)),
        })
    }
}

/// A local part that is spread over words is put together only up to this length, so that joining stays linear: RFC 5321
/// 4.5.3.1.1 allows 64 octets.
const LOCAL_BYTES_MAX: usize = 256;
/// RFC 5321 4.5.3.1.3 allows a path of 256 octets, route included.
const ROUTE_BYTES_MAX: usize = 256;

fn skip_space(value: &[u8], mut at: usize) -> usize {
    while value.get(at).is_some_and(|&b| is_wsp(b)) {
        at += 1;
    }
    at
}

/// A domain, from `at`: atoms and dots, white space and comments around dots left out, or a literal in brackets.
fn domain(value: &[u8], at: usize) -> (Vec<u8>, usize) {
    let mut host = Vec::new();
    let mut at = skip_cfws(value, at);
    if value.get(at) == Some(&b'[') {
        let len = value[at..]
            .iter()
            .position(|&b| matches!(b, b']' | b',' | b'>' | b';' | b'<'))
            .unwrap_or(0);
        if len > 0 && value[at + len] == b']' {
            host.extend_from_slice(&value[at..=at + len]);
            return (host, at + len + 1);
        }
    }
    while let Some(&byte) = value.get(at) {
        match byte {
            b',' | b';' | b':' | b'<' | b'>' | b'@' | b'"' | b'[' => break,
            // One behind the domain is kept: it may be a name.
            _ if is_wsp(byte) || byte == b'(' => {
                let next = skip_cfws(value, at);
                let dotted = host.ends_with(b".") || value.get(next) == Some(&b'.');
                if !dotted {
                    break;
                }
                at = next;
            }
            _ => {
                host.push(byte);
                at += 1;
            }
        }
    }
    (host, at)
}

/// The text of a comment, without its parentheses and with quoted pairs undone.
fn comment_text(comment: &[u8]) -> Vec<u8> {
    let inner = comment.strip_prefix(b"(").unwrap_or(comment);
    let inner = inner.strip_suffix(b")").unwrap_or(inner);
    let mut out = Vec::with_capacity(inner.len());
    let mut escaped = false;
    for &byte in inner {
        if byte == b'\\' && !escaped {
            escaped = true;
        } else {
            out.push(byte);
            escaped = false;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(list: &[Address]) -> String {
        let text = |t: &Option<Octets>| {
            t.as_ref()
                .map_or("~".into(), |t| String::from_utf8_lossy(t).into_owned())
        };
        list.iter()
            .map(|a| {
                format!(
                    "{}|{}|{}|{}",
                    text(&a.name),
                    text(&a.route),
                    text(&a.mailbox),
                    text(&a.host)
                )
            })
            .collect::<Vec<_>>()
            .join(" / ")
    }

    fn check(value: &str, expected: &str) {
        let mut list = Vec::new();
        parse(
            value.as_bytes(),
            false,
            100,
            &mut Texts::new(10_000),
            &mut list,
        );
        assert_eq!(show(&list), expected, "{value}");
    }

    #[test]
    fn texts_for_search() {
        let check = |raw: &str, expected: &str| assert_eq!(text(raw.as_bytes()), expected, "{raw}");
        check(" a@b.c\r\n", "a@b.c");
        check(
            " <user-from (comment)@ (comment) domain.org>",
            "user-from@domain.org",
        );
        check(" a@b (Ann)", "Ann <a@b>");
        check(" \"Doe, J.\"\r\n <a@\r\n b>, c@d", "Doe, J. <a@b>, c@d");
        check(
            " =?utf-8?q?J=C3=B6rg?= =?utf-8?q?_X?= <j@x>",
            "Jörg X <j@x>",
        );
        check(" team: a@b, Cy <c@d>;, e@f", "team: a@b, Cy <c@d>;, e@f");
        check(" none:;", "none: ;");
        check(" nobody", "nobody");
        check(" @x", "@x");
        check("", "");
        check("\r\n", "");
        let many = "a@b,".repeat(5000);
        assert_eq!(text(many.as_bytes()).matches("a@b").count(), 5000);
    }

    #[test]
    fn addresses() {
        check("a@x", "~|~|a|x");
        check("\"B C\" <b@y>", "B C|~|b|y");
        check("John Q. Public <j@x>", "John Q. Public|~|j|x");
        check(
            "=?utf-8?q?a?= =?utf-8?q?b?= <k@k>",
            "=?utf-8?q?a?= =?utf-8?q?b?=|~|k|k",
        );
        check("d@e (Dee)", "Dee|~|d|e");
        check("a@b (c1) (c2)", "c2|~|a|b");
        check("(c1) a@b", "~|~|a|b");
        check("a (c1) @ (c2) b (c3) . (c4) c (c5)", "c5|~|a|b.c");
        check("A <(c1) a (c2) @ (c3) b(c4).c (c5)> (c6)", "A|~|a|b.c");
        check("A (c1) B <a@b> (c2)", "A B|~|a|b");
        check("Name <@r1,@r2:u@h>", "Name|@r1,@r2|u|h");
        check("a@[1.2.3.4], b@c", "~|~|a|[1.2.3.4] / ~|~|b|c");
        check("a . b @ c . d", "~|~|a.b|c.d");
        check("\"q q\"@z", "~|~|q q|z");
        check("N <\"q\\\"q\"@c>", "N|~|q\"q|c");
        check("N<a@b>", "N|~|a|b");
        check("\"\" <a@b>", "~|~|a|b");
        check("\"a,b\" <c@d>", "a,b|~|c|d");
        check("", "");
        check("(only comment)", "");
        check(",,a@b,,c@d,", "~|~|a|b / ~|~|c|d");
    }

    #[test]
    fn groups() {
        check("g:;", "~|~|g|~ / ~|~|~|~");
        check(
            "my g: a@b, <z@w>;, c@d",
            "~|~|my g|~ / ~|~|a|b / ~|~|z|w / ~|~|~|~ / ~|~|c|d",
        );
        check("g: a@b", "~|~|g|~ / ~|~|a|b / ~|~|~|~");
        check("g1: g2: a@b;;", "~|~|g1|~ / ~|~|a|b / ~|~|~|~");
        check(":a@b", "~|~||~ / ~|~|a|b / ~|~|~|~");
    }

    #[test]
    fn broken() {
        check("foo", "~|~|foo|MISSING_DOMAIN");
        check("foo bar", "foo bar|~|MISSING_MAILBOX|MISSING_DOMAIN");
        check("Name <noat>", "Name|~|noat|MISSING_DOMAIN");
        check("N <>", "N|~|MISSING_MAILBOX|MISSING_DOMAIN");
        check("@b", "~|~|MISSING_MAILBOX|b");
        check("a@", "~|~|a|MISSING_DOMAIN");
        check("a@x y@z", "~|~|a|x");
        check("bad ad@x y", "bad|~|ad|x");
        check("Name <unclosed@x, c@d", "Name|~|unclosed|x / ~|~|c|d");
        check("a <b@c> d <e@f>", "a|~|b|c");
        check("a@b>,c@d", "~|~|a|b / ~|~|c|d");
        check("N <a@b@c>", "N|~|a|b");
        check(
            "\"unclosed <a@b>, c@d",
            "~|~|unclosed <a@b>, c@d|MISSING_DOMAIN",
        );
        check("(unclosed c@d", "");
        check("a@[unclosed, c@d", "~|~|a|MISSING_DOMAIN / ~|~|c|d");
        check("[x] c@d", "[x]|~|c|d");
        check("a@b; c@d", "~|~|a|b / ~|~|c|d");
        check("<@r:", "~|@r|MISSING_MAILBOX|MISSING_DOMAIN");
        let far = format!("<@{}:u@h>", "r".repeat(ROUTE_BYTES_MAX));
        check(
            &far,
            &format!("~|~|MISSING_MAILBOX|{}", "r".repeat(ROUTE_BYTES_MAX)),
        );
    }

    #[test]
    fn cut_at_the_limit_with_the_group_closed() {
        let many = format!("g: {};", vec!["a@b"; 1000].join(","));
        let mut list = Vec::new();
        parse(
            many.as_bytes(),
            false,
            5,
            &mut Texts::new(10_000),
            &mut list,
        );
        assert_eq!(
            show(&list),
            "~|~|g|~ / ~|~|a|b / ~|~|a|b / ~|~|a|b / ~|~|~|~"
        );
        for budget in 0..200 {
            let mut list = Vec::new();
            let mut texts = Texts::new(budget);
            parse(many.as_bytes(), false, 100, &mut texts, &mut list);
            let cost: usize = list.iter().map(Texts::address_cost).sum();
            assert!(cost <= budget);
            assert!(list.is_empty() || list.last() == Some(&Address::default()));
        }
    }
}
