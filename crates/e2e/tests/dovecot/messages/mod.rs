//! Odd messages, all made for these tests.
//!
//! Reading order: [`addresses`], [`fields`], [`content`], [`multiparts`]; what is made by code, and line ends, are here.

mod addresses;
mod content;
mod fields;
mod multiparts;

/// A message with a name.
pub(crate) struct Odd {
    /// What is odd about it.
    pub(crate) name: String,
    /// Its octets.
    pub(crate) text: Vec<u8>,
}

/// All of them.
pub(crate) fn all() -> Vec<Odd> {
    let tables = [
        ("address", addresses::ADDRESSES),
        ("field", fields::FIELDS),
        ("content", content::CONTENT),
        ("multipart", multiparts::MULTIPARTS),
    ];
    let mut all = Vec::new();
    for (table, rows) in tables {
        for (name, text) in rows {
            let mime = matches!(table, "content" | "multipart") && !name.ends_with("MIME-Version");
            let version: &[u8] = if mime { b"MIME-Version: 1.0\n" } else { b"" };
            all.push(Odd {
                name: format!("{table}: {name}"),
                text: with_crlf(&[version, text].concat()),
            });
        }
    }
    all.extend(LINES.iter().map(|(name, text)| Odd {
        name: format!("line: {name}"),
        text: text.to_vec(),
    }));
    all.extend(made());
    all
}

/// Line ends of LF become CRLF; a bar at the end takes the last one away.
fn with_crlf(text: &[u8]) -> Vec<u8> {
    let text = text.strip_suffix(b"|").unwrap_or(text);
    let mut out = Vec::new();
    for &byte in text {
        if byte == b'\n' {
            out.push(b'\r');
        }
        out.push(byte);
    }
    out
}

/// Line ends as they stand.
const LINES: &[(&str, &[u8])] = &[
    ("no line end at the end", b"Subject: s\r\n\r\none\r\ntwo"),
    ("no line end behind a field", b"Subject: s"),
    ("no line end behind the header", b"Subject: s\r\nFrom: anne@example.org"),
    ("LF alone", b"Subject: s\nFrom: anne@example.org\n\none\ntwo\n"),
    ("LF in the body", b"Subject: s\r\n\r\none\ntwo\r\nthree\n"),
    ("LF in a multipart", b"Content-Type: multipart/mixed; boundary=a\n\n--a\n\none\n--a--\n"),
    ("CR alone in the body", b"Subject: s\r\n\r\none\rtwo\r\nthree\r\r\n"),
    ("CR alone in a field", b"Subject: one\rtwo\r\nFrom: anne@example.org\r\n\r\nx\r\n"),
    ("CR for line ends", b"Subject: s\rFrom: anne@example.org\r\rone\r"),
    ("NUL in the body", b"Subject: s\r\n\r\none\0two\r\n"),
    ("NUL in a field", b"Subject: a\0b\r\n\r\nx\r\n"),
    ("octets of every kind", b"Content-Type: application/octet-stream\r\nContent-Transfer-Encoding: binary\r\n\r\n\x01\x02\x7f\x80\x81\xfe\xff\r\n"),
    ("LF between multipart and header", b"Content-Type: multipart/mixed; boundary=a\r\n\n--a\r\n\r\none\r\n--a--\r\n"),
];

/// What is too long to be written down.
fn made() -> Vec<Odd> {
    let odd = |name: &str, text: String| Odd {
        name: format!("made: {name}"),
        text: with_crlf(text.as_bytes()),
    };
    let list: Vec<String> = (0..60)
        .map(|n| format!("Name {n} <user{n}@example.org>"))
        .collect();
    let parameters: String = (0..40).map(|n| format!(";\n p{n}=v{n}")).collect();
    let pieces: String = (0..40).map(|n| format!(";\n name*{n}=piece{n}-")).collect();
    let parts: String = (0..80)
        .map(|n| format!("--a\nContent-ID: <{n}@x>\n\npart {n}\n"))
        .collect();
    vec![
        odd("60 addresses", format!("To: {}\n\nx\n", list.join(",\n "))),
        odd(
            "40 parameters",
            format!("Content-Type: application/x{parameters}\n\nx\n"),
        ),
        odd(
            "40 pieces of a parameter",
            format!("Content-Type: application/x{pieces}\n\nx\n"),
        ),
        odd(
            "80 parts",
            format!("Content-Type: multipart/mixed; boundary=a\n\n{parts}--a--\n"),
        ),
        odd(
            "200 fields",
            format!("{}Subject: s\n\nx\n", "X-Field: value\n".repeat(200)),
        ),
        odd(
            "long field",
            format!(
                "Subject: {}\nFrom: anne@example.org\n\nx\n",
                "word ".repeat(2000)
            ),
        ),
        odd(
            "long line",
            format!("Subject: s\n\n{}\n", "x".repeat(20_000)),
        ),
        odd("multiparts 30 deep", nested(30)),
        odd(
            "messages 30 deep",
            format!(
                "{}Subject: innermost\n\nx\n",
                "Content-Type: message/rfc822\n\n".repeat(30)
            ),
        ),
        odd("multiparts 60 deep", nested(60)),
        odd(
            "messages 60 deep",
            format!(
                "{}Subject: innermost\n\nx\n",
                "Content-Type: message/rfc822\n\n".repeat(60)
            ),
        ),
    ]
}

/// Multiparts within multiparts, with a text in the innermost.
fn nested(depth: usize) -> String {
    let mut text = String::new();
    for level in 0..depth {
        text.push_str(&format!(
            "Content-Type: multipart/mixed; boundary=level{level}x\n\n--level{level}x\n"
        ));
    }
    text.push_str("\ninnermost\n");
    for level in (0..depth).rev() {
        text.push_str(&format!("--level{level}x--\n"));
    }
    text
}
