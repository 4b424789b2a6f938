//! Reading what a server sends: RFC 9051, section 9, as far as a client must understand it to judge it.

/// Deepest parentheses believed: a body structure of a hostile message is deep, an endless one is a mistake.
const DEPTH_MAX: usize = 2000;

/// OK, NO, BAD, BYE or PREAUTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// `OK`
    Ok,
    /// `NO`
    No,
    /// `BAD`
    Bad,
    /// `BYE`
    Bye,
    /// `PREAUTH`
    Preauth,
}

impl Status {
    fn of(word: &str) -> Option<Status> {
        Some(match word {
            "OK" => Status::Ok,
            "NO" => Status::No,
            "BAD" => Status::Bad,
            "BYE" => Status::Bye,
            "PREAUTH" => Status::Preauth,
            _ => return None,
        })
    }

    /// As on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "OK",
            Status::No => "NO",
            Status::Bad => "BAD",
            Status::Bye => "BYE",
            Status::Preauth => "PREAUTH",
        }
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A word, with its brackets: `BODY[HEADER.FIELDS (FROM)]<0>`.
    Atom(Vec<u8>),
    /// A quoted string or literal.
    Text(Vec<u8>),
    /// `NIL`
    Nil,
    /// `(...)`
    List(Vec<Node>),
}

impl Node {
    /// Its text; empty for NIL and lists.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Node::Atom(bytes) | Node::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Node::Nil | Node::List(_) => String::new(),
        }
    }

    /// Whether it is this word, in any case.
    #[must_use]
    pub fn is(&self, word: &str) -> bool {
        matches!(self, Node::Atom(atom) if atom.eq_ignore_ascii_case(word.as_bytes()))
    }
}

/// The items of one FETCH response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Name in capitals and value, in order.
    pub items: Vec<(String, Node)>,
}

impl Fetched {
    /// The value of an item.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.items
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    }

    /// The UID, if told.
    #[must_use]
    pub fn uid(&self) -> Option<u32> {
        self.get("UID")?.text().parse().ok()
    }

    /// The flags, if told: sorted, without `\Recent`.
    #[must_use]
    pub fn flags(&self) -> Option<Vec<String>> {
        let Some(Node::List(list)) = self.get("FLAGS") else {
            return None;
        };
        let mut flags: Vec<String> = list
            .iter()
            .map(Node::text)
            .filter(|flag| !flag.eq_ignore_ascii_case("\\recent"))
            .collect();
        flags.sort();
        Some(flags)
    }

    /// The bytes of an item.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        match self.get(name)? {
            Node::Text(bytes) | Node::Atom(bytes) => Some(bytes),
            Node::Nil => Some(b""),
            Node::List(_) => None,
        }
    }
}

/// One response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// `t1 OK [CODE] text`
    Tagged(String, Status, String, String),
    /// `* OK [CODE] text`
    State(Status, String, String),
    /// `* 3 EXISTS`
    Exists(u32),
    /// `* 3 EXPUNGE`
    Expunge(u32),
    /// `* 3 RECENT`
    Recent(u32),
    /// `* 3 FETCH (...)`
    Fetch(u32, Fetched),
    /// `* NAME ...`
    Data(String, Vec<Node>),
    /// `+ text`
    Continue(String),
}

/// Part of a response: literals stand between lines.
#[derive(Debug)]
pub enum Piece {
    /// A line, without CRLF.
    Text(Vec<u8>),
    /// A literal.
    Literal(Vec<u8>),
}

impl Piece {
    /// The size of the literal that a line announces at its end.
    #[must_use]
    pub fn literal(&self) -> Option<usize> {
        let Piece::Text(line) = self else { return None };
        // A status response has no literal: its text may end in anything.
        let line = line.strip_suffix(b"}")?;
        let open = line.iter().rposition(|byte| *byte == b'{')?;
        let text = std::str::from_utf8(line.get(open + 1..)?).ok()?;
        text.parse().ok()
    }
}

/// Reads one response.
///
/// # Errors
/// What of it is not IMAP.
pub fn response(pieces: &[Piece]) -> Result<Response, String> {
    let mut reader = Reader {
        pieces,
        piece: 0,
        at: 0,
    };
    let shown = || {
        pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(line) => String::from_utf8_lossy(line).into_owned(),
                Piece::Literal(bytes) => format!("<{} bytes>", bytes.len()),
            })
            .collect::<String>()
    };
    whole(&mut reader).map_err(|error| format!("{error}: {}", shown()))
}

fn whole(reader: &mut Reader<'_>) -> Result<Response, String> {
    let first = reader.word()?;
    if first == "+" {
        return Ok(Response::Continue(reader.rest()));
    }
    reader.space()?;
    let second = reader.word()?;
    if first != "*" {
        let status = Status::of(&second)
            .filter(|status| matches!(status, Status::Ok | Status::No | Status::Bad));
        let status = status.ok_or_else(|| format!("neither OK, NO nor BAD: {second}"))?;
        let (code, text) = reader.state()?;
        return Ok(Response::Tagged(first, status, code, text));
    }
    if let Some(status) = Status::of(&second) {
        let (code, text) = reader.state()?;
        return Ok(Response::State(status, code, text));
    }
    if let Ok(number) = second.parse::<u32>() {
        reader.space()?;
        let response = match reader.word()?.as_str() {
            "EXISTS" => Response::Exists(number),
            "EXPUNGE" => Response::Expunge(number),
            "RECENT" => Response::Recent(number),
            "FETCH" => {
                reader.space()?;
                Response::Fetch(number, fetched(reader.node(0)?)?)
            }
            other => return Err(format!("unknown response {other}")),
        };
        reader.end()?;
        return Ok(response);
    }
    let mut nodes = Vec::new();
    while !reader.at_end() {
        reader.space()?;
        if !reader.at_end() {
            nodes.push(reader.node(0)?);
        }
    }
    let known = [
        "CAPABILITY",
        "ENABLED",
        "ESEARCH",
        "FLAGS",
        "ID",
        "LIST",
        "LSUB",
        "NAMESPACE",
        "SEARCH",
        "STATUS",
        "VANISHED",
    ];
    if known.contains(&second.as_str()) {
        Ok(Response::Data(second, nodes))
    } else {
        Err(format!("unknown response {second}"))
    }
}

fn fetched(node: Node) -> Result<Fetched, String> {
    let Node::List(list) = node else {
        return Err("FETCH without a list".to_owned());
    };
    let mut items = Vec::new();
    let mut list = list.into_iter();
    while let Some(name) = list.next() {
        let Node::Atom(name) = name else {
            return Err(format!("FETCH item without a name: {name:?}"));
        };
        let value = list.next().ok_or("FETCH item without a value")?;
        items.push((String::from_utf8_lossy(&name).to_ascii_uppercase(), value));
    }
    Ok(Fetched { items })
}

struct Reader<'a> {
    pieces: &'a [Piece],
    piece: usize,
    at: usize,
}

impl Reader<'_> {
    fn line(&self) -> &[u8] {
        match self.pieces.get(self.piece) {
            Some(Piece::Text(line)) => &line[self.at.min(line.len())..],
            _ => b"",
        }
    }

    fn at_end(&self) -> bool {
        self.line().is_empty() && self.piece + 1 >= self.pieces.len()
    }

    fn end(&self) -> Result<(), String> {
        if self.at_end() {
            Ok(())
        } else {
            Err(format!(
                "more than expected: {}",
                String::from_utf8_lossy(self.line())
            ))
        }
    }

    fn space(&mut self) -> Result<(), String> {
        if self.line().first() == Some(&b' ') {
            self.at += 1;
            Ok(())
        } else {
            Err(format!(
                "no space before {}",
                String::from_utf8_lossy(self.line())
            ))
        }
    }

    fn word(&mut self) -> Result<String, String> {
        let line = self.line();
        let end = line
            .iter()
            .position(|byte| *byte == b' ')
            .unwrap_or(line.len());
        let word = std::str::from_utf8(&line[..end])
            .map_err(|_| "a word that is not UTF-8")?
            .to_owned();
        self.at += end;
        if word.is_empty() {
            Err("no word".to_owned())
        } else {
            Ok(word)
        }
    }

    fn rest(&mut self) -> String {
        let text = String::from_utf8_lossy(self.line()).into_owned();
        self.at += self.line().len();
        text.trim_start().to_owned()
    }

    /// Code and text behind OK, NO or BAD.
    fn state(&mut self) -> Result<(String, String), String> {
        self.space()?;
        let rest = self.rest();
        if self.pieces.len() > 1 {
            return Err("a literal in a status response".to_owned());
        }
        match rest.strip_prefix('[') {
            Some(inside) => {
                let (code, text) = inside
                    .split_once(']')
                    .ok_or("a response code without end")?;
                let text = text
                    .strip_prefix(' ')
                    .ok_or("no space behind a response code")?;
                Ok((code.to_owned(), text.to_owned()))
            }
            None => Ok((String::new(), rest)),
        }
    }

    fn node(&mut self, depth: usize) -> Result<Node, String> {
        if depth > DEPTH_MAX {
            return Err("too deep".to_owned());
        }
        match self.line().first() {
            Some(b'(') => self.list(depth),
            Some(b'"') => self.quoted(),
            Some(b'{') => self.literal(),
            // literal8, RFC 9051, 9
            Some(b'~') if self.line().starts_with(b"~{") => self.literal(),
            Some(b')' | b' ') | None => Err("a value is missing".to_owned()),
            Some(_) => self.atom(),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Node, String> {
        self.at += 1;
        let mut list = Vec::new();
        loop {
            match self.line().first() {
                Some(b')') => {
                    self.at += 1;
                    return Ok(Node::List(list));
                }
                None => return Err("a list without end".to_owned()),
                // body-type-mpart: several bodies stand one behind the other without a space.
                Some(b'(') if matches!(list.last(), Some(Node::List(_))) => {}
                Some(_) if list.is_empty() => {}
                Some(_) => self.space()?,
            }
            list.push(self.node(depth + 1)?);
        }
    }

    fn quoted(&mut self) -> Result<Node, String> {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let (byte, next) = match self.line() {
                [byte, next @ ..] => (*byte, next.first().copied()),
                [] => return Err("a quoted string without end".to_owned()),
            };
            self.at += 1;
            match (byte, next) {
                (b'"', _) => return Ok(Node::Text(text)),
                (b'\\', Some(escaped @ (b'"' | b'\\'))) => {
                    text.push(escaped);
                    self.at += 1;
                }
                (b'\\', _) => return Err("a backslash before another character".to_owned()),
                (0, _) => return Err("NUL in a quoted string".to_owned()),
                _ => text.push(byte),
            }
        }
    }

    fn literal(&mut self) -> Result<Node, String> {
        match self.pieces.get(self.piece + 1) {
            Some(Piece::Literal(bytes)) if self.line().ends_with(b"}") => {
                let bytes = bytes.clone();
                self.piece += 2;
                self.at = 0;
                Ok(Node::Text(bytes))
            }
            _ => Err("a brace that begins no literal".to_owned()),
        }
    }

    /// A word; what stands in brackets belongs to it.
    fn atom(&mut self) -> Result<Node, String> {
        let line = self.line();
        // Within brackets there may be a list of field names, quoted or not; a name may have a bracket (astring, RFC 9051, 9).
        let (mut brackets, mut list, mut quoted, mut escaped) = (false, false, false, false);
        let mut end = 0;
        for byte in line {
            match byte {
                0..=31 | 127 => return Err("a control character in a word".to_owned()),
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' if brackets => quoted = !quoted,
                _ if quoted => {}
                b'(' if brackets => list = true,
                b')' if list => list = false,
                _ if list => {}
                b'[' => brackets = true,
                b']' => brackets = false,
                b' ' | b'(' | b')' | b'"' if !brackets => break,
                _ => {}
            }
            end += 1;
        }
        let atom = line[..end].to_vec();
        if atom.is_empty() {
            return Err("a value is missing".to_owned());
        }
        self.at += end;
        Ok(if atom.eq_ignore_ascii_case(b"NIL") {
            Node::Nil
        } else {
            Node::Atom(atom)
        })
    }
}

/// The numbers of a sequence set without `*`.
#[must_use]
pub fn set(text: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once(':').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>()) {
            numbers.extend(from.min(to)..=from.max(to));
        }
    }
    numbers
}

/// The numbers of a set, as ranges.
#[must_use]
pub fn ranges(text: &str) -> Vec<(u32, u32)> {
    let range = |part: &str| {
        let (from, to) = part.split_once(':').unwrap_or((part, part));
        let (from, to) = (from.parse::<u32>().ok()?, to.parse::<u32>().ok()?);
        Some((from.min(to), from.max(to)))
    };
    text.split(',').filter_map(range).collect()
}

/// `(n)`: the value of MODSEQ.
#[must_use]
pub fn modseq(value: &Node) -> Option<u64> {
    let Node::List(list) = value else { return None };
    list.first()?.text().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<Piece> {
        // `{3}|abc|` stands for a literal.
        let mut pieces = Vec::new();
        for (at, part) in text.split('|').enumerate() {
            pieces.push(if at % 2 == 0 {
                Piece::Text(part.into())
            } else {
                Piece::Literal(part.into())
            });
        }
        pieces
    }

    fn check(text: &str, expected: Result<Response, &str>) {
        let got = response(&pieces(text)).map_err(|error| {
            error
                .rsplit_once(&format!(": {}", &text[..text.len().min(4)]))
                .unwrap_or_default()
                .0
                .to_owned()
        });
        assert_eq!(got, expected.map_err(str::to_owned), "{text}");
    }

    fn atom(text: &str) -> Node {
        Node::Atom(text.into())
    }

    #[test]
    fn responses() {
        let text = |text: &str| text.to_owned();
        check(
            "t1 OK [UIDNEXT 7] done",
            Ok(Response::Tagged(
                text("t1"),
                Status::Ok,
                text("UIDNEXT 7"),
                text("done"),
            )),
        );
        check("* BYE", Err("no space before "));
        check(
            "* BYE now",
            Ok(Response::State(Status::Bye, text(""), text("now"))),
        );
        check("* 3 EXISTS", Ok(Response::Exists(3)));
        check("* 3 EXISTS now", Err("more than expected:  now"));
        check("* 3 EXIST", Err("unknown response EXIST"));
        check("+ ", Ok(Response::Continue(text(""))));
        check("t1 MAYBE done", Err("neither OK, NO nor BAD: MAYBE"));
        let items = |items: &[(&str, Node)]| Fetched {
            items: items
                .iter()
                .map(|(name, node)| (text(name), node.clone()))
                .collect(),
        };
        check(
            "* 2 FETCH (UID 7 BODY[HEADER.FIELDS (A B)]<0> {3}|a\"c| FLAGS (\\Seen x))",
            Ok(Response::Fetch(
                2,
                items(&[
                    ("UID", atom("7")),
                    ("BODY[HEADER.FIELDS (A B)]<0>", Node::Text("a\"c".into())),
                    ("FLAGS", Node::List(vec![atom("\\Seen"), atom("x")])),
                ]),
            )),
        );
        check(
            "* 2 FETCH (BODY[HEADER.FIELDS (A]B \"C)]\")] NIL)",
            Ok(Response::Fetch(
                2,
                items(&[("BODY[HEADER.FIELDS (A]B \"C)]\")]", Node::Nil)]),
            )),
        );
        check("* 2 FETCH (UID)", Err("FETCH item without a value"));
        check(
            "* LIST (\\Noselect) \"/\" \"a\\\"b\"",
            Ok(Response::Data(
                text("LIST"),
                vec![
                    Node::List(vec![atom("\\Noselect")]),
                    Node::Text("/".into()),
                    Node::Text("a\"b".into()),
                ],
            )),
        );
        check(
            "* LIST () NIL x",
            Ok(Response::Data(
                text("LIST"),
                vec![Node::List(vec![]), Node::Nil, atom("x")],
            )),
        );
        check("* LIST (a", Err("a list without end"));
        check("* LIST \"a\u{0}b\"", Err("NUL in a quoted string"));
        check("* SEARCH", Ok(Response::Data(text("SEARCH"), vec![])));
    }

    #[test]
    fn sets() {
        assert_eq!(set("1,3:5,9"), [1, 3, 4, 5, 9]);
        assert_eq!(set("5:3"), [3, 4, 5]);
        assert_eq!(ranges("1,3:4294967295"), [(1, 1), (3, u32::MAX)]);
    }
}
