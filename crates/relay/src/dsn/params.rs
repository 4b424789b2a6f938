//! What a sender asks for: RET and ENVID of MAIL, NOTIFY and ORCPT of RCPT (RFC 3461 4, RFC 6533 3). Each is kept so that it can be passed on as it came
//! (RFC 3461 5.2.1), and is written by `Display`.

use core::fmt::{self, Write};

use whimbrel_smtp::Mailbox;

/// Characters of ENVID that are taken (RFC 3461 5.4).
pub const ENVELOPE_ID_CHARS_MAX: usize = 100;
/// Octets of ORCPT that are taken (RFC 3461 5.4).
pub const ORIGINAL_RECIPIENT_BYTES_MAX: usize = 500;

/// Not of the grammar, or too long. To the client: 501 5.5.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid parameter for notifications")]
pub struct ParamError;

/// RET: what of the message a notification of failure returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Return {
    /// All of it.
    Full,
    /// Its header.
    Headers,
}

impl Return {
    /// Parses the value.
    ///
    /// # Errors
    /// When it is neither FULL nor HDRS.
    pub fn parse(text: &str) -> Result<Return, ParamError> {
        match text {
            text if text.eq_ignore_ascii_case("FULL") => Ok(Return::Full),
            text if text.eq_ignore_ascii_case("HDRS") => Ok(Return::Headers),
            _ => Err(ParamError),
        }
    }
}

impl fmt::Display for Return {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Return::Full => "FULL",
            Return::Headers => "HDRS",
        })
    }
}

/// NOTIFY: of what the sender wants to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Notify {
    /// Not given: failures and delays. It is not passed on either.
    #[default]
    Default,
    /// NEVER.
    Never,
    /// These, at least one.
    On {
        /// SUCCESS.
        success: bool,
        /// FAILURE.
        failure: bool,
        /// DELAY.
        delay: bool,
    },
}

impl Notify {
    /// Parses the value: `"NEVER" / 1#( "SUCCESS" / "FAILURE" / "DELAY" )`.
    ///
    /// # Errors
    /// When it is another, or NEVER with others.
    pub fn parse(text: &str) -> Result<Notify, ParamError> {
        if text.eq_ignore_ascii_case("NEVER") {
            return Ok(Notify::Never);
        }
        let (mut success, mut failure, mut delay) = (false, false, false);
        for word in text.split(',') {
            let flag = match word {
                word if word.eq_ignore_ascii_case("SUCCESS") => &mut success,
                word if word.eq_ignore_ascii_case("FAILURE") => &mut failure,
                word if word.eq_ignore_ascii_case("DELAY") => &mut delay,
                _ => return Err(ParamError),
            };
            if core::mem::replace(flag, true) {
                return Err(ParamError);
            }
        }
        Ok(Notify::On {
            success,
            failure,
            delay,
        })
    }

    /// What the addresses of an alias get: success was told when it was expanded (RFC 3461 5.2.7.3).
    #[must_use]
    pub fn without_success(self) -> Notify {
        match self {
            Notify::On {
                failure: false,
                delay: false,
                ..
            } => Notify::Never,
            Notify::On { failure, delay, .. } => Notify::On {
                success: false,
                failure,
                delay,
            },
            other => other,
        }
    }
}

impl fmt::Display for Notify {
    /// The value; nothing for [`Notify::Default`], which has no parameter.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notify::Default => Ok(()),
            Notify::Never => f.write_str("NEVER"),
            Notify::On {
                success,
                failure,
                delay,
            } => {
                let words = [("SUCCESS", success), ("FAILURE", failure), ("DELAY", delay)];
                let mut words = words.iter().filter(|(_, is_on)| **is_on);
                if let Some((first, _)) = words.next() {
                    f.write_str(first)?;
                }
                words.try_for_each(|(word, _)| write!(f, ",{word}"))
            }
        }
    }
}

/// ENVID: the sender's name for the transaction, in xtext.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EnvelopeId(String);

impl EnvelopeId {
    /// Parses the value.
    ///
    /// # Errors
    /// When it is no xtext, or has no character, or more than [`ENVELOPE_ID_CHARS_MAX`].
    pub fn parse(text: &str) -> Result<EnvelopeId, ParamError> {
        if text.is_empty() || text.len() > ENVELOPE_ID_CHARS_MAX || xtext_decoded(text).is_none() {
            return Err(ParamError);
        }
        Ok(EnvelopeId(text.to_owned()))
    }

    /// What it means (RFC 3461 6.3: "the MTA must decode the xtext").
    #[must_use]
    pub fn decoded(&self) -> String {
        xtext_decoded(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for EnvelopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// ORCPT: the recipient as the sender named it, before aliases.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginalRecipient(String);

impl OriginalRecipient {
    /// Parses the value: `atom ";" xtext`, or `"utf-8;" utf-8-enc-addr`.
    ///
    /// # Errors
    /// When it is none, or has more than [`ORIGINAL_RECIPIENT_BYTES_MAX`] octets.
    pub fn parse(text: &str) -> Result<OriginalRecipient, ParamError> {
        let (kind, address) = text.split_once(';').ok_or(ParamError)?;
        // RFC 3464 2.1.2: an atom; those that are registered have letters, digits and hyphens.
        let atom = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&b);
        let good = match is_utf8(kind) {
            true => unitext_decoded(address).is_some(),
            false => xtext_decoded(address).is_some(),
        };
        if text.len() > ORIGINAL_RECIPIENT_BYTES_MAX
            || kind.is_empty()
            || !kind.bytes().all(atom)
            || address.is_empty()
            || !good
        {
            return Err(ParamError);
        }
        Ok(OriginalRecipient(text.to_owned()))
    }

    /// Whether it can be passed on to a server without SMTPUTF8 as it is. RFC 6533 3: else it must be in the form of [`OriginalRecipient::in_ascii`].
    #[must_use]
    pub fn is_ascii(&self) -> bool {
        self.0.is_ascii()
    }

    /// The same in ASCII: letters beyond it as `\x{...}`.
    #[must_use]
    pub fn in_ascii(&self) -> String {
        let mut out = String::new();
        self.0.chars().for_each(|c| match c.is_ascii() {
            true => out.push(c),
            false => embed(c, &mut out),
        });
        out
    }

    /// The value of Original-Recipient. RFC 6533 3: of the type utf-8 it is decoded if that gives an address, else it stays as it is; where the field must
    /// be ASCII it is encoded.
    pub(super) fn field(&self, utf8: bool) -> String {
        let (kind, address) = self.0.split_once(';').unwrap_or_default();
        if !is_utf8(kind) {
            return format!("{kind};{}", xtext_decoded(address).unwrap_or_default());
        }
        let decoded = unitext_decoded(address).filter(|address| Mailbox::parse(address).is_ok());
        match (decoded, utf8) {
            (Some(address), true) => format!("{kind};{address}"),
            (Some(address), false) => format!("{kind};{}", unitext(&address)),
            (None, true) => self.0.clone(),
            (None, false) => self.in_ascii(),
        }
    }
}

impl fmt::Display for OriginalRecipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_utf8(kind: &str) -> bool {
    kind.eq_ignore_ascii_case("utf-8")
}

/// The value of Final-Recipient.
pub(super) fn address(mailbox: &Mailbox, utf8: bool) -> String {
    match (mailbox.is_ascii(), utf8) {
        (true, _) => format!("rfc822; {mailbox}"),
        (false, true) => format!("utf-8; {mailbox}"),
        (false, false) => format!("utf-8; {}", unitext(&mailbox.to_string())),
    }
}

/// utf-8-addr-xtext of RFC 6533 3: what is not ASCII, and what is special in parameters, as `\x{...}`.
fn unitext(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' | '+' | '=' => embed(c, &mut out),
            '!'..='~' => out.push(c),
            c => embed(c, &mut out),
        }
    }
    out
}

fn embed(c: char, out: &mut String) {
    // RFC 6533: two digits at least. Writing to a String cannot fail.
    let _ = write!(out, "\\x{{{:02X}}}", u32::from(c));
}

/// `None` when it is neither utf-8-addr-xtext, utf-8-addr-unitext nor utf-8-address without ASCII characters that a parameter cannot have.
fn unitext_decoded(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => {
                let (digits, after) = rest.strip_prefix("x{")?.split_once('}')?;
                let good = (2..=6).contains(&digits.len())
                    && digits.bytes().all(|b| b.is_ascii_hexdigit());
                let code = u32::from_str_radix(digits, 16).ok().filter(|_| good)?;
                out.push(char::from_u32(code)?);
                rest = after;
            }
            '+' | '=' => return None,
            c if c.is_control() || c.is_whitespace() => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

/// RFC 3461 4: `xtext = *( xchar / hexchar )`, `hexchar = "+" 2(%x30-39 / %x41-46)`. `None` when it is none; RFC 3461 4.2 has only printable ASCII in it
/// before it is encoded, and other octets have no business here.
fn xtext_decoded(text: &str) -> Option<String> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'A'..=b'F' => Some(b - b'A' + 10),
        _ => None,
    };
    let mut out = String::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'+' => digit(bytes.next()?)? * 16 + digit(bytes.next()?)?,
            b'!'..=b'~' if byte != b'=' => byte,
            _ => return None,
        };
        if !matches!(byte, b' '..=b'~') {
            return None;
        }
        out.push(char::from(byte));
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notify() {
        let check = |text: &str, expected: Option<&str>| {
            let got = Notify::parse(text).ok();
            assert_eq!(
                got.map(|notify| notify.to_string()).as_deref(),
                expected,
                "{text}"
            );
        };
        check("never", Some("NEVER"));
        check("DELAY,failure,SUCCESS", Some("SUCCESS,FAILURE,DELAY"));
        check("FAILURE", Some("FAILURE"));
        for none in [
            "",
            "NEVER,FAILURE",
            "FAILURE,",
            "FAILURE,FAILURE",
            "ALWAYS",
            "SUCCESS, DELAY",
        ] {
            check(none, None);
        }
        assert_eq!(Notify::Default.to_string(), "");
        let without = |text| Notify::parse(text).unwrap().without_success().to_string();
        assert_eq!(without("SUCCESS,DELAY"), "DELAY");
        assert_eq!(without("SUCCESS"), "NEVER");
        assert_eq!(Notify::Default.without_success(), Notify::Default);
        assert_eq!(Return::parse("hdrs").unwrap().to_string(), "HDRS");
        assert_eq!(Return::parse("FULL").unwrap().to_string(), "FULL");
        assert_eq!(Return::parse("ALL"), Err(ParamError));
    }

    #[test]
    fn envelope_ids() {
        let check = |text: &str, expected: Option<&str>| {
            let got = EnvelopeId::parse(text).ok();
            assert_eq!(
                got.as_ref().map(EnvelopeId::decoded).as_deref(),
                expected,
                "{text}"
            );
            assert!(got.is_none_or(|id| id.to_string() == text));
        };
        check("QQ+2B314159", Some("QQ+314159"));
        check("a+3Db+20c", Some("a=b c"));
        check(
            &"x".repeat(ENVELOPE_ID_CHARS_MAX),
            Some(&"x".repeat(ENVELOPE_ID_CHARS_MAX)),
        );
        for none in [
            "",
            "a=b",
            "a b",
            "+2",
            "+2b",
            "+0D+0A",
            "é",
            &"x".repeat(ENVELOPE_ID_CHARS_MAX + 1),
        ] {
            check(none, None);
        }
    }

    /// `expected`: the field in UTF-8, then in ASCII.
    #[test]
    fn original_recipients() {
        let check = |text: &str, expected: Option<(&str, &str)>| {
            let got = OriginalRecipient::parse(text).ok();
            let fields = got.as_ref().map(|got| (got.field(true), got.field(false)));
            assert_eq!(
                fields
                    .as_ref()
                    .map(|(one, two)| (one.as_str(), two.as_str())),
                expected,
                "{text}"
            );
            assert!(got.is_none_or(|got| got.to_string() == text));
        };
        let both = |text: &str, expected| check(text, Some((expected, expected)));
        both(
            "rfc822;Bob+2Btag@remote.example",
            "rfc822;Bob+tag@remote.example",
        );
        both("RFC822;a@b", "RFC822;a@b");
        both("x400;+20odd", "x400; odd");
        check(
            "utf-8;\\x{3B4}oki@remote.example",
            Some((
                "utf-8;δoki@remote.example",
                "utf-8;\\x{3B4}oki@remote.example",
            )),
        );
        check(
            "utf-8;δoki@remote.example",
            Some((
                "utf-8;δoki@remote.example",
                "utf-8;\\x{3B4}oki@remote.example",
            )),
        );
        check(
            "utf-8;a\\x{2B}é@b",
            Some(("utf-8;a+é@b", "utf-8;a\\x{2B}\\x{E9}@b")),
        );
        // No address: as it is.
        check(
            "utf-8;\\x{3B4}é",
            Some(("utf-8;\\x{3B4}é", "utf-8;\\x{3B4}\\x{E9}")),
        );
        let long = format!("rfc822;{}", "x".repeat(ORIGINAL_RECIPIENT_BYTES_MAX - 7));
        both(&long, &long);
        for none in [
            "",
            "rfc822",
            "rfc822;",
            ";a@b",
            "rfc 822;a@b",
            "rfc822;a b",
            "rfc822;a+0Ab",
            "rfc822;é@b",
            "utf-8;a+2Bb@c",
            "utf-8;a\\x{D800}@c",
            "utf-8;a\\x{1}@c",
            "utf-8;a\\y",
            &format!("{long}x"),
        ] {
            check(none, None);
        }
        let greek = OriginalRecipient::parse("utf-8;δ@b").unwrap();
        assert_eq!(
            (greek.is_ascii(), greek.in_ascii().as_str()),
            (false, "utf-8;\\x{3B4}@b")
        );
    }
}
