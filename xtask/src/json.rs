//! A reader of JSON (RFC 8259), as much as `cargo metadata` needs.
//!
//! Numbers are kept as text: nothing here counts with them.

use std::collections::BTreeMap;

/// Deepest nesting read; cargo's own is below ten.
const DEPTH_MAX: usize = 64;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Value>),
    Map(BTreeMap<String, Value>),
}

impl Value {
    /// The member of that name; `Null` when there is none.
    pub(crate) fn get(&self, name: &str) -> &Value {
        match self {
            Value::Map(map) => map.get(name).unwrap_or(&Value::Null),
            _ => &Value::Null,
        }
    }

    /// The elements; none when this is no list.
    pub(crate) fn list(&self) -> &[Value] {
        match self {
            Value::List(list) => list,
            _ => &[],
        }
    }

    /// The text, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Reads one value; the error says at which byte reading ended.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let mut reader = Reader {
        bytes: text.as_bytes(),
        at: 0,
    };
    let value = reader.value(0)?;
    reader.space();
    if reader.at == reader.bytes.len() {
        Ok(value)
    } else {
        Err(reader.error("more after the value"))
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn error(&self, what: &str) -> String {
        format!("{what} at byte {}", self.at)
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err(self.error("too deep"));
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.map(depth),
            Some(b'[') => self.elements(depth),
            Some(b'"') => self.text().map(Value::Text),
            Some(_) => self.word(),
            None => Err(self.error("no value")),
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, String> {
        self.at += 1;
        let mut map = BTreeMap::new();
        if self.eat(b'}') {
            return Ok(Value::Map(map));
        }
        loop {
            self.space();
            let name = self.text()?;
            if !self.eat(b':') {
                return Err(self.error("no colon"));
            }
            map.insert(name, self.value(depth + 1)?);
            if self.eat(b'}') {
                return Ok(Value::Map(map));
            }
            if !self.eat(b',') {
                return Err(self.error("no comma"));
            }
        }
    }

    fn elements(&mut self, depth: usize) -> Result<Value, String> {
        self.at += 1;
        let mut list = Vec::new();
        if self.eat(b']') {
            return Ok(Value::List(list));
        }
        loop {
            list.push(self.value(depth + 1)?);
            if self.eat(b']') {
                return Ok(Value::List(list));
            }
            if !self.eat(b',') {
                return Err(self.error("no comma"));
            }
        }
    }

    fn text(&mut self) -> Result<String, String> {
        if !self.eat(b'"') {
            return Err(self.error("no text"));
        }
        let mut out = Vec::new();
        loop {
            let byte = self.peek().ok_or_else(|| self.error("text without end"))?;
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(out).map_err(|_| self.error("not UTF-8")),
                b'\\' => self.escape(&mut out)?,
                _ => out.push(byte),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let byte = self.peek().ok_or_else(|| self.error("text without end"))?;
        self.at += 1;
        match byte {
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'u' => {
                let digits = self
                    .bytes
                    .get(self.at..self.at + 4)
                    .and_then(|hex| std::str::from_utf8(hex).ok());
                let code = digits
                    .and_then(|hex| u32::from_str_radix(hex, 16).ok())
                    .ok_or_else(|| self.error("bad escape"))?;
                self.at += 4;
                // Halves of a pair stand for nothing we look for.
                let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => out.push(other),
        }
        Ok(())
    }

    fn word(&mut self) -> Result<Value, String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest
            .iter()
            .position(|byte| b",]} \t\r\n".contains(byte))
            .unwrap_or(rest.len());
        let word = rest
            .get(..end)
            .and_then(|word| std::str::from_utf8(word).ok())
            .unwrap_or_default();
        let value = match word {
            "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ if word.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
                Value::Number(word.to_owned())
            }
            _ => return Err(self.error("no value")),
        };
        self.at += end;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<Value, &str>) {
        assert_eq!(parse(text), expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn values() {
        let text = |text: &str| Value::Text(text.to_owned());
        check(" null ", Ok(Value::Null));
        check(
            "[true, -1.5e3]",
            Ok(Value::List(vec![
                Value::Bool(true),
                Value::Number("-1.5e3".to_owned()),
            ])),
        );
        check(r#""a\"\\\n\u00e9""#, Ok(text("a\"\\\n\u{e9}")));
        check(
            r#"{"a":{},"b":[]}"#,
            Ok(Value::Map(
                [
                    ("a".to_owned(), Value::Map(BTreeMap::new())),
                    ("b".to_owned(), Value::List(vec![])),
                ]
                .into(),
            )),
        );
        check("[1", Err("no comma at byte 2"));
        check("\"a", Err("text without end at byte 2"));
        check("{} x", Err("more after the value at byte 3"));
        check("nul", Err("no value at byte 0"));
        check(&"[".repeat(100), Err("too deep at byte 65"));
    }
}
