//! What a sender asks of delivery status notifications: NOTIFY, ORCPT, RET and ENVID (RFC 3461), also with addresses in UTF-8 (RFC 6533).
//!
//! A value of these types is valid: it holds no control character, and what it writes parses back to the same value.

use core::fmt::{self, Write as _};

/// Octets of the value of ENVID as written. RFC 3461 4.4: "MAY be up to 100 characters in length".
pub const ENVID_BYTES_MAX: usize = 100;
/// Octets of the value of ORCPT as written. RFC 3461 4.2: "MAY be up to 500 characters in length".
pub const ORCPT_BYTES_MAX: usize = 500;

/// When a sender wants a notification about a recipient (RFC 3461 4.1). All false: NEVER.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notify {
    /// It was delivered.
    pub success: bool,
    /// It failed.
    pub failure: bool,
    /// It is late.
    pub delay: bool,
}

impl Notify {
    /// `"NEVER" / 1#("SUCCESS" / "FAILURE" / "DELAY")`, in any case. `None`: something else; "the NEVER keyword MUST appear by itself".
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut notify = Notify::default();
        if text.eq_ignore_ascii_case("NEVER") {
            return Some(notify);
        }
        for word in text.split(',') {
            let flag = match word.to_ascii_uppercase().as_str() {
                "SUCCESS" => &mut notify.success,
                "FAILURE" => &mut notify.failure,
                "DELAY" => &mut notify.delay,
                _ => return None,
            };
            *flag = true;
        }
        Some(notify)
    }

    /// Whether no notification is wanted, whatever happens.
    #[must_use]
    pub fn is_never(self) -> bool {
        self == Notify::default()
    }
}

/// The value of NOTIFY.
impl fmt::Display for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            (self.success, "SUCCESS"),
            (self.failure, "FAILURE"),
            (self.delay, "DELAY"),
        ];
        let words: Vec<_> = words
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, w)| *w)
            .collect();
        f.write_str(&if words.is_empty() {
            "NEVER".to_owned()
        } else {
            words.join(",")
        })
    }
}

/// How much of a message a notification of failure returns (RFC 3461 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ret {
    /// All of it.
    Full,
    /// Its header.
    Headers,
}

impl Ret {
    /// `"FULL" / "HDRS"`, in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("FULL") {
            Some(Ret::Full)
        } else if text.eq_ignore_ascii_case("HDRS") {
            Some(Ret::Headers)
        } else {
            None
        }
    }
}

/// The value of RET.
impl fmt::Display for Ret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ret::Full => "FULL",
            Ret::Headers => "HDRS",
        })
    }
}

/// By what the sender recognizes the transaction in a notification (RFC 3461 4.4): printable ASCII and white space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvelopeId(String);

impl EnvelopeId {
    /// From the plain text. `None`: it is empty, has other characters, or more than [`ENVID_BYTES_MAX`] octets as xtext.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty() && is_text(text) && xtext(text).len() <= ENVID_BYTES_MAX)
            .then(|| EnvelopeId(text.to_owned()))
    }

    /// From the value of ENVID. `None`: it is no xtext, longer than [`ENVID_BYTES_MAX`], or its text has other characters.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        if value.len() > ENVID_BYTES_MAX {
            return None;
        }
        EnvelopeId::new(&from_xtext(value)?)
    }

    /// The plain text, as a notification shows it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The value of ENVID.
impl fmt::Display for EnvelopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&xtext(&self.0))
    }
}

/// The recipient as the sender wrote it (RFC 3461 4.2): an address type and an address, which need not be one of the type's grammar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginalRecipient {
    kind: String,
    address: String,
}

/// The type of ordinary addresses.
const RFC822: &str = "rfc822";
/// The type of addresses in UTF-8 (RFC 6533 3).
const UTF_8: &str = "utf-8";

impl OriginalRecipient {
    /// Of the type `rfc822`, or `utf-8` if it is not ASCII. `None`: it is empty, has a control character, or more than
    /// [`ORCPT_BYTES_MAX`] octets as written.
    #[must_use]
    pub fn new(address: &str) -> Option<Self> {
        let kind = if address.is_ascii() { RFC822 } else { UTF_8 };
        OriginalRecipient::of(kind, address.to_owned())
    }

    /// From the value of ORCPT: `addr-type ";" xtext`, or `"utf-8;" utf-8-enc-addr`. `None`: something else, or longer than
    /// [`ORCPT_BYTES_MAX`].
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        if value.len() > ORCPT_BYTES_MAX {
            return None;
        }
        let (kind, encoded) = value.split_once(';')?;
        let kind = kind.to_ascii_lowercase();
        let address = if kind == UTF_8 {
            from_unitext(encoded)?
        } else {
            from_xtext(encoded)?
        };
        OriginalRecipient::of(&kind, address)
    }

    fn of(kind: &str, address: String) -> Option<Self> {
        // atom = 1*<any CHAR except specials, SPACE and CTLs> (RFC 822 3.3); `=` and `+` cannot stand in an esmtp-value's type, either.
        let atom = |b: u8| b.is_ascii_graphic() && !br#"()<>@,;:\".[]+="#.contains(&b);
        let text = if kind == UTF_8 {
            // RFC 6533 3: "MUST follow utf-8-address ABNF when dequoted", which has no control characters.
            !address.chars().any(|c| c.is_control() || is_separator(c))
        } else {
            is_text(&address)
        };
        let recipient = OriginalRecipient {
            kind: kind.to_owned(),
            address,
        };
        (!kind.is_empty()
            && kind.bytes().all(atom)
            && text
            && !recipient.address.is_empty()
            && recipient.encode(true).len() <= ORCPT_BYTES_MAX)
            .then_some(recipient)
    }

    /// The address type in lower case: `rfc822`, `utf-8`, or another of IANA's list, which is not checked.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The address, decoded.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The value of ORCPT. RFC 6533 3: UTF-8 goes only to a server that offers SMTPUTF8 (`utf8`); another gets `\x{...}`, which can be
    /// longer than [`ORCPT_BYTES_MAX`].
    #[must_use]
    pub fn encode(&self, utf8: bool) -> String {
        let address = if self.kind == UTF_8 {
            unitext(&self.address, utf8)
        } else {
            xtext(&self.address)
        };
        format!("{};{address}", self.kind)
    }
}

/// RFC 3461 4.2, 4.4: "printable (graphic and white space) characters from the US-ASCII repertoire".
fn is_text(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'\t' | b' '..=b'~'))
}

/// What some programs take for the end of a line.
fn is_separator(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}')
}

/// RFC 3461 4: `xtext = *( xchar / hexchar )`.
fn xtext(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b'!'..=b'~') && byte != b'+' && byte != b'=' {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "+{byte:02X}");
        }
    }
    out
}

/// "ASCII `+` immediately followed by two upper case hexadecimal digits": nothing else is decoded.
fn from_xtext(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => {
                let mut digit = || {
                    let byte = bytes.next().filter(|b| !b.is_ascii_lowercase())?;
                    char::from(byte).to_digit(16)
                };
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            b'!'..=b'~' if byte != b'=' => byte,
            _ => return None,
        });
    }
    String::from_utf8(out).ok()
}

/// QCHAR of RFC 6533 3: printable ASCII "except CTLs, SP, '\', '+', '='".
fn is_qchar(c: char) -> bool {
    c.is_ascii_graphic() && !matches!(c, '\\' | '+' | '=')
}

fn unitext(text: &str, utf8: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_qchar(c) || (utf8 && !c.is_ascii()) {
            out.push(c);
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\x{{{:02X}}}", u32::from(c));
        }
    }
    out
}

/// `1*(QUCHAR / EmbeddedUnicodeChar)`; an embedded character is one that cannot stand for itself.
fn from_unitext(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if is_qchar(c) || !c.is_ascii() {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let (digits, after) = rest.strip_prefix("\\x{")?.split_once('}')?;
        let valid = (2..=6).contains(&digits.len())
            && digits.bytes().all(|b| b.is_ascii_hexdigit())
            && (digits.len() == 2 || !digits.starts_with('0'));
        let embedded = char::from_u32(u32::from_str_radix(digits, 16).ok().filter(|_| valid)?)?;
        if is_qchar(embedded) {
            return None;
        }
        out.push(embedded);
        rest = after;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn notify() {
        let check = |text: &str, expected: Option<&str>| {
            let got = Notify::parse(text).map(|notify| notify.to_string());
            assert_eq!(got.as_deref(), expected, "{text:?}");
        };
        check("never", Some("NEVER"));
        check("Success", Some("SUCCESS"));
        check("delay,FAILURE", Some("FAILURE,DELAY"));
        check("SUCCESS,FAILURE,DELAY", Some("SUCCESS,FAILURE,DELAY"));
        check("NEVER,SUCCESS", None);
        check("SUCCESS,NEVER", None);
        check("SUCCESS,", None);
        check(",", None);
        check("", None);
        check("SUCCESS DELAY", None);
        assert!(Notify::default().is_never());
    }

    #[test]
    fn envelope_ids() {
        let check = |value: &str, expected: Option<&str>| {
            let got = EnvelopeId::parse(value);
            assert_eq!(got.as_ref().map(EnvelopeId::as_str), expected, "{value:?}");
            if let Some(id) = got {
                assert_eq!(EnvelopeId::parse(&id.to_string()), Some(id));
            }
        };
        check("QQ314159", Some("QQ314159"));
        check("a+20b+2B+3D+7E", Some("a b+=~"));
        check("a+09b", Some("a\tb"));
        check("a+", None);
        check("a+2", None);
        check("a+2b", None);
        check("a+0D+0A", None);
        check("a+00", None);
        check("a+7F", None);
        check("a+C3+A9", None);
        check("é", None);
        check("a b", None);
        check("a=b", None);
        check("", None);
        check(&"a".repeat(100), Some(&"a".repeat(100)));
        check(&"a".repeat(101), None);
        assert_eq!(EnvelopeId::new(&"=".repeat(34)), None);
        assert_eq!(EnvelopeId::new("a\r\nb"), None);
    }

    #[test]
    fn original_recipients() {
        let check = |value: &str, expected: Option<(&str, &str, &str)>| {
            let got = OriginalRecipient::parse(value);
            let parts = got
                .as_ref()
                .map(|r| (r.kind(), r.address(), r.encode(false)));
            let expected = expected.map(|(kind, address, seven)| (kind, address, seven.to_owned()));
            assert_eq!(parts, expected, "{value:?}");
            if let Some(recipient) = got {
                for utf8 in [false, true] {
                    let again = OriginalRecipient::parse(&recipient.encode(utf8));
                    assert_eq!(again.as_ref(), Some(&recipient), "{utf8}");
                }
            }
        };
        check(
            "rfc822;Bob+2B1@Example.ORG",
            Some(("rfc822", "Bob+1@Example.ORG", "rfc822;Bob+2B1@Example.ORG")),
        );
        check(
            "RFC822;not+20an+20address",
            Some(("rfc822", "not an address", "rfc822;not+20an+20address")),
        );
        check("x400;/S=b/", None);
        check("x400;/S+3Db/", Some(("x400", "/S=b/", "x400;/S+3Db/")));
        check(
            "utf-8;é\\x{20}\\x{2B}\\x{5c}@x",
            Some(("utf-8", "é +\\@x", "utf-8;\\x{E9}\\x{20}\\x{2B}\\x{5C}@x")),
        );
        check(
            "utf-8;\\x{1F600}@x",
            Some(("utf-8", "😀@x", "utf-8;\\x{1F600}@x")),
        );
        for bad in [
            "bob@example.org",
            ";bob@x",
            "rfc822;",
            "rfc 822;bob@x",
            "rfc822;é@x",
            "rfc822;a+0Ab",
            "utf-8;a+2Bb@x",
            "utf-8;a\\x{0A}b@x",
            "utf-8;a\\x{85}b@x",
            "utf-8;a\u{2028}b@x",
            "utf-8;\\x{41}@x",
            "utf-8;\\x{D800}@x",
            "utf-8;\\x{0E9}@x",
            "utf-8;\\x{110000}@x",
            "utf-8;\\x{+9}@x",
            "utf-8;\\x{20@x",
            "utf-8;a\\b@x",
        ] {
            check(bad, None);
        }
        let long = format!("rfc822;{}", "a".repeat(493));
        assert!(OriginalRecipient::parse(&long).is_some());
        check(&format!("{long}a"), None);
        assert_eq!(OriginalRecipient::new("é@x").unwrap().kind(), "utf-8");
        assert_eq!(OriginalRecipient::new("a@x\r\n"), None);
    }

    proptest! {
        #[test]
        fn any_value_comes_back_or_is_refused(value in "(rfc822;|utf-8;)?(\\PC|[+=\\\\]|\\+[0-9A-F]{2}|\\\\x\\{[0-9A-F]{1,6}\\}|\r|\n){0,12}") {
            if let Some(recipient) = OriginalRecipient::parse(&value) {
                prop_assert!(!recipient.address().contains(['\r', '\n', '\0']));
                let written = recipient.encode(true);
                prop_assert!(written.len() <= value.len(), "{}", written);
                prop_assert_eq!(OriginalRecipient::parse(&written), Some(recipient));
            }
            if let Some(id) = EnvelopeId::parse(&value) {
                prop_assert!(!id.as_str().contains(['\r', '\n', '\0']));
                prop_assert_eq!(EnvelopeId::parse(&id.to_string()), Some(id));
            }
        }
    }
}
