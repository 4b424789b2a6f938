//! The mailboxes of a From or Sender field, read strictly (RFC 5322, 3.4 and 3.6.2).
//!
//! Elsewhere we read addresses generously. Here it is decided whether the sender may use them, and what one reader takes for a name and another for
//! the address would let one user write as another: `From: anne@example.org <bob@example.org>`. So whatever is not plainly the syntax of the RFC is
//! refused. Groups, which RFC 6854 allows in From, are, too; and what the RFC allows and readers take in two ways: line ends and other control
//! characters within quotes and comments, and comments that may show an address. One pass, no recursion.

/// Local part without its quotes, and domain.
pub(super) type Parts = (String, String);

/// A piece of the field.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// Atoms with the dots between them.
    Atom(String),
    Quoted(String),
    /// A domain literal with its brackets.
    Literal(String),
    Special(u8),
}

/// The addresses of an unfolded field; `None` if it has none, more than `max`, or is no list of mailboxes.
pub(super) fn mailboxes(value: &[u8], max: usize) -> Option<Vec<Parts>> {
    let mut tokens = Tokens { rest: value };
    let mut found = Vec::new();
    loop {
        let (address, end) = mailbox(&mut tokens)?;
        found.push(address);
        if found.len() > max {
            return None;
        }
        if end {
            return Some(found);
        }
    }
}

/// `mailbox = [display-name] "<" addr-spec ">" / addr-spec`; whether the list ends behind it.
fn mailbox(tokens: &mut Tokens<'_>) -> Option<(Parts, bool)> {
    let mut words = Vec::new();
    let address = loop {
        match tokens.next()? {
            Some(Token::Special(b'<')) => {
                let local = word(tokens.next()??)?;
                if tokens.next()?? != Token::Special(b'@') {
                    return None;
                }
                let address = (local, domain(tokens.next()??)?);
                if tokens.next()?? != Token::Special(b'>') {
                    return None;
                }
                break address;
            }
            // Without a name there is one word before the at sign.
            Some(Token::Special(b'@')) if words.len() == 1 => {
                break (words.pop()?, domain(tokens.next()??)?);
            }
            Some(token @ (Token::Atom(_) | Token::Quoted(_))) => words.push(word(token)?),
            _ => return None,
        }
    };
    match tokens.next()? {
        None => Some((address, true)),
        Some(Token::Special(b',')) => Some((address, false)),
        _ => None,
    }
}

fn word(token: Token) -> Option<String> {
    match token {
        Token::Atom(text) | Token::Quoted(text) => Some(text),
        // In a name, other readers may find an address between the brackets: `[<bob@x.org>] <anne@x.org>`.
        Token::Literal(_) | Token::Special(_) => None,
    }
}

fn domain(token: Token) -> Option<String> {
    match token {
        Token::Atom(text) | Token::Literal(text) => Some(text),
        _ => None,
    }
}

struct Tokens<'a> {
    rest: &'a [u8],
}

impl Tokens<'_> {
    /// The next one; `Some(None)` at the end, `None` for what is none.
    fn next(&mut self) -> Option<Option<Token>> {
        self.skip_space()?;
        let Some((&first, rest)) = self.rest.split_first() else {
            return Some(None);
        };
        if first == b'"' {
            self.rest = rest;
            return self.quoted().map(Some);
        }
        if b"<>,@;:".contains(&first) {
            self.rest = rest;
            return Some(Some(Token::Special(first)));
        }
        let is_atom =
            |byte: &u8| *byte > b' ' && *byte != 0x7f && !b"()<>[]:;@\\,\"".contains(byte);
        if first == b'[' {
            return self.literal().map(Some);
        }
        let length = self.rest.iter().take_while(|byte| is_atom(byte)).count();
        let (atom, rest) = self.rest.split_at(length);
        self.rest = rest;
        let text = std::str::from_utf8(atom).ok()?;
        (length > 0).then(|| Some(Token::Atom(text.to_owned())))
    }

    /// `"[" *dtext "]"`, of what addresses of hosts are written with (RFC 5321, 4.1.3) and nothing else.
    fn literal(&mut self) -> Option<Token> {
        let length = self.rest.iter().position(|byte| *byte == b']')? + 1;
        let (literal, rest) = self.rest.split_at(length);
        self.rest = rest;
        let text = std::str::from_utf8(literal).ok()?;
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".:-".contains(&byte);
        let inside = text.get(1..length - 1)?;
        inside
            .bytes()
            .all(is_host)
            .then(|| Token::Literal(text.to_owned()))
    }

    fn quoted(&mut self) -> Option<Token> {
        let mut text = Vec::new();
        loop {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            match byte {
                b'"' => return Some(Token::Quoted(String::from_utf8(text).ok()?)),
                b'\\' => {
                    let (&escaped, rest) = self.rest.split_first()?;
                    self.rest = rest;
                    text.push(plain(escaped)?);
                }
                _ => text.push(plain(byte)?),
            }
        }
    }

    /// White space and comments; `None` for a comment that does not end, or that readers may take for more than one: with a sign that addresses have,
    /// encoded (RFC 2047) or not, or with a control character.
    fn skip_space(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            let inside = if depth > 0 { self.rest } else { &[] };
            match *inside {
                [byte, ..] if plain(byte).is_none() || b"@<>".contains(&byte) => return None,
                [b'=', b'?', ..] => return None,
                _ => {}
            }
            match self.rest {
                [b'(', rest @ ..] => {
                    depth += 1;
                    self.rest = rest;
                }
                [b')', rest @ ..] if depth > 0 => {
                    depth -= 1;
                    self.rest = rest;
                }
                // What is escaped is looked at, too.
                [b'\\', b'(' | b')' | b'\\', rest @ ..] if depth > 0 => self.rest = rest,
                [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] => self.rest = rest,
                [_, rest @ ..] if depth > 0 => self.rest = rest,
                _ => return (depth == 0).then_some(()),
            }
        }
    }
}

/// No control character, of which some readers make a line end, and others nothing; a tab is a space.
fn plain(byte: u8) -> Option<u8> {
    (byte == b'\t' || !byte.is_ascii_control()).then_some(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, expected: Option<&[&str]>) {
        let found = mailboxes(value.as_bytes(), 3).map(|found| {
            let text = |(local, domain): &Parts| format!("{local}@{domain}");
            found.iter().map(text).collect::<Vec<_>>()
        });
        let expected = expected.map(|list| list.iter().map(|s| (*s).to_owned()).collect());
        assert_eq!(found, expected, "{value}");
    }

    #[test]
    fn fields_as_clients_write_them() {
        check("anne@x.org", Some(&["anne@x.org"]));
        check(" Anne <anne@x.org> ", Some(&["anne@x.org"]));
        check("<anne@x.org>", Some(&["anne@x.org"]));
        check("\"Anne B.\" <anne@x.org>", Some(&["anne@x.org"]));
        check("Anne B. Miller <anne@x.org>", Some(&["anne@x.org"]));
        check("\"a@b.c\" <anne@x.org>", Some(&["anne@x.org"]));
        check("\"a \\\" <b@c>\" <anne@x.org>", Some(&["anne@x.org"]));
        check("=?utf-8?Q?Z=C3=B6e?= <zoe@x.org>", Some(&["zoe@x.org"]));
        check("Zöe <zöe@bücher.example>", Some(&["zöe@bücher.example"]));
        check("anne@x.org (Anne)", Some(&["anne@x.org"]));
        check("Anne (at (home) \\) ) <anne@x.org>", Some(&["anne@x.org"]));
        check("Anne\r\n <anne@x.org>", Some(&["anne@x.org"]));
        check("a@x, B <b@y>, c@z", Some(&["a@x", "b@y", "c@z"]));
        check("\"a..b\"@x.org", Some(&["a..b@x.org"]));
        check("anne @ x.org", Some(&["anne@x.org"]));
        check("a@[192.0.2.1]", Some(&["a@[192.0.2.1]"]));
        check("<a@[IPv6:2001:db8::1]>", Some(&["a@[IPv6:2001:db8::1]"]));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        check("anne@x.org <bob@x.org>", None);
        check("anne@x.org bob@x.org", None);
        check("[<bob@x.org>] <anne@x.org>", None);
        check("Anne [<bob@x.org>] <anne@x.org>", None);
        check("Anne [x] <anne@x.org>", None);
        check("[x]@x.org", None);
        check("a@[<bob@x.org>]", None);
        check("a@[x y]", None);
        check("Anne anne@x.org", None);
        check("<anne@x.org> <bob@x.org>", None);
        check("<anne@x.org> bob", None);
        check("<anne@x.org", None);
        check("anne@x.org>", None);
        check("<anne@x.org,bob@x.org>", None);
        check("<@a,@b:anne@x.org>", None);
        check("team: anne@x.org;", None);
        check("undisclosed:;", None);
        check("anne@x.org,", None);
        check(",anne@x.org", None);
        check("anne@x.org,,bob@x.org", None);
        check("anne", None);
        check("anne@", None);
        check("@x.org", None);
        check("<>", None);
        check("", None);
        check(" ", None);
        check("(anne@x.org)", None);
        check("anne@x.org (unclosed", None);
        check("\"anne@x.org", None);
        check("anne@x.org)", None);
        check("an\\ne@x.org", None);
        check("anne@\"x.org\"", None);
        check("anne@x.org;", None);
        check("anne@x.org\u{7f}", None);
        check("anne@x.org\0<bob@x.org>", None);
        check("a@x@y", None);
        // Line ends and control characters in quotes, escaped or not.
        for between in ["\r\n ", "\n", "\r", "\\\r", "\\\n", "\0", "\u{b}", "\u{7f}"] {
            check(&format!("\"a{between}<bob@x.org>\" <anne@x.org>"), None);
            check(&format!("\"a{between}b\"@x.org"), None);
            check(&format!("anne@x.org (a{between}b)"), None);
        }
        // An address in a comment.
        check("(bob@x.org) anne@x.org", None);
        check("anne@x.org (bob@x.org)", None);
        check("anne (a (b\\@c)) <anne@x.org>", None);
        check("anne@x.org (<bob>)", None);
        check("(\\) bob@x.org, (\\() anne@x.org", None);
        check("(=?utf-8?q?bob=40x.org?=) anne@x.org", None);
        check("anne@x.org (=?utf-8?q?x?=)", None);
        check("a(b)c@x.org", None);
        // More than are allowed.
        check("a@x, b@x, c@x, d@x", None);
        assert_eq!(mailboxes(b"a@x\xff", 3), None);
    }
}
