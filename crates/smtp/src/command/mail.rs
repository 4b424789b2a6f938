//! MAIL and RCPT with their parameters: SIZE (RFC 1870), BODY (RFC 6152), SMTPUTF8 (RFC 6531), AUTH (RFC 4954 5).

use core::fmt;

use super::{CommandError, number};
use crate::address::{ForwardPath, Mailbox, ReversePath};
use crate::session::{Body, MailFrom};

/// What follows `MAIL `.
pub(super) fn parse_mail(arguments: &str) -> Result<MailFrom, CommandError> {
    let path = after_keyword(arguments, "FROM:")?;
    let (from, rest) = ReversePath::parse_prefix(path).map_err(CommandError::Sender)?;
    let mut mail = MailFrom {
        from,
        size: None,
        utf8: false,
        body: Body::SevenBit,
    };
    let (mut body_given, mut auth_given) = (false, false);
    for (keyword, value) in parameters(rest) {
        let keyword = keyword.to_ascii_uppercase();
        let again = match (keyword.as_str(), value) {
            ("SIZE", Some(value)) => mail
                .size
                .replace(number(value).ok_or(CommandError::Arguments)?)
                .is_some(),
            ("BODY", Some(value)) => {
                mail.body = if value.eq_ignore_ascii_case("7BIT") {
                    Body::SevenBit
                } else if value.eq_ignore_ascii_case("8BITMIME") {
                    Body::EightBitMime
                } else {
                    // BINARYMIME is not offered: the text is checked for bare line ends.
                    return Err(CommandError::Parameter);
                };
                core::mem::replace(&mut body_given, true)
            }
            ("SMTPUTF8", None) => core::mem::replace(&mut mail.utf8, true),
            // RFC 4954 5: a server that does not trust the client treats any value as `<>`: it is checked and dropped.
            ("AUTH", Some(value)) if is_auth_value(value) => {
                core::mem::replace(&mut auth_given, true)
            }
            ("SIZE" | "BODY" | "SMTPUTF8" | "AUTH" | "", _) => return Err(CommandError::Arguments),
            _ => return Err(CommandError::Parameter),
        };
        if again {
            return Err(CommandError::Arguments);
        }
    }
    if !mail.utf8
        && mail
            .from
            .mailbox()
            .is_some_and(|mailbox| !mailbox.is_ascii())
    {
        return Err(CommandError::NeedsUtf8);
    }
    Ok(mail)
}

/// What follows `MAIL `. AUTH is not kept.
impl fmt::Display for MailFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FROM:{}", self.from)?;
        if let Some(size) = self.size {
            write!(f, " SIZE={size}")?;
        }
        if self.body == Body::EightBitMime {
            f.write_str(" BODY=8BITMIME")?;
        }
        if self.utf8 {
            f.write_str(" SMTPUTF8")?;
        }
        Ok(())
    }
}

/// What follows `RCPT `. No extension offered here has a parameter for it.
pub(super) fn parse_rcpt(arguments: &str) -> Result<ForwardPath, CommandError> {
    let path = after_keyword(arguments, "TO:")?;
    let (to, rest) = ForwardPath::parse_prefix(path).map_err(CommandError::Recipient)?;
    match parameters(rest).next() {
        None => Ok(to),
        Some(("", _)) => Err(CommandError::Arguments),
        Some(_) => Err(CommandError::Parameter),
    }
}

/// See the module head of `command` for the spaces.
fn after_keyword<'a>(arguments: &'a str, keyword: &str) -> Result<&'a str, CommandError> {
    match arguments.split_at_checked(keyword.len()) {
        Some((head, path)) if head.eq_ignore_ascii_case(keyword) => {
            Ok(path.trim_start_matches(' '))
        }
        _ => Err(CommandError::Arguments),
    }
}

/// `SP esmtp-keyword ["=" esmtp-value]`, any number; what is not of that form comes out with an empty keyword.
fn parameters(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let malformed = !text.is_empty() && !text.starts_with(' ');
    let keyword =
        |k: &str| k.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') && !k.starts_with('-');
    // esmtp-value = 1*(%d33-60 / %d62-126), and non-ASCII (RFC 6531 3.3)
    let value = |v: &str| !v.is_empty() && !v.contains('=');
    let list = text
        .split(' ')
        .skip(usize::from(!malformed))
        .filter(|p| !p.is_empty());
    list.map(move |parameter| match parameter.split_once('=') {
        _ if malformed => ("", None),
        Some((k, v)) if keyword(k) && value(v) => (k, Some(v)),
        None if keyword(parameter) => (parameter, None),
        _ => ("", None),
    })
}

/// `<>` or a mailbox, in xtext (RFC 3461 4).
fn is_auth_value(text: &str) -> bool {
    let mut decoded = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'+' {
            decoded.push(byte);
            continue;
        }
        let digit = |b: Option<u8>| {
            b.filter(|b| !b.is_ascii_lowercase())
                .and_then(|b| char::from(b).to_digit(16))
        };
        let (Some(high), Some(low)) = (digit(bytes.next()), digit(bytes.next())) else {
            return false;
        };
        decoded.push((high * 16 + low) as u8);
    }
    decoded == b"<>"
        || core::str::from_utf8(&decoded).is_ok_and(|text| Mailbox::parse(text).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::AddressError;
    use crate::command::Command;

    /// `expected`: path, size, utf8, 8bitmime.
    fn check(line: &str, expected: Result<(&str, Option<u64>, bool, bool), CommandError>) {
        let got = Command::parse(line.as_bytes()).map(|command| match command {
            Command::Mail(mail) => {
                assert_eq!(parse_mail(&mail.to_string()), Ok(mail.clone()));
                (
                    mail.from.to_string(),
                    mail.size,
                    mail.utf8,
                    mail.body == Body::EightBitMime,
                )
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(
            got,
            expected.map(|(path, size, utf8, eight)| (path.to_owned(), size, utf8, eight)),
            "{line:?}"
        );
    }

    #[test]
    fn mail() {
        use CommandError::{Arguments, NeedsUtf8, Parameter, Sender};
        check("MAIL FROM:<>", Ok(("<>", None, false, false)));
        check(
            "mail from:<a@B.example> size=1000 body=8bitmime",
            Ok(("<a@b.example>", Some(1000), false, true)),
        );
        check(
            "MAIL FROM: <a@b>  SMTPUTF8 BODY=7BIT",
            Ok(("<a@b>", None, true, false)),
        );
        check("MAIL FROM:<é@b> SMTPUTF8", Ok(("<é@b>", None, true, false)));
        check("MAIL FROM:<a@b> AUTH=<>", Ok(("<a@b>", None, false, false)));
        check(
            "MAIL FROM:<a@b> AUTH=e+2Bf@example.com",
            Ok(("<a@b>", None, false, false)),
        );
        check(
            "MAIL FROM:<a@b> SIZE=99999999999999999999",
            Ok(("<a@b>", Some(u64::MAX), false, false)),
        );
        check("MAIL FROM:<é@b>", Err(NeedsUtf8));
        check("MAIL FROM:<a@é>", Err(NeedsUtf8));
        check("MAIL FROM:a@b", Err(Sender(AddressError::Syntax)));
        check("MAIL FROM:<postmaster>", Err(Sender(AddressError::Syntax)));
        check("MAIL FROM <a@b>", Err(Arguments));
        check("MAIL FROM", Err(Arguments));
        check("MAIL <a@b>", Err(Arguments));
        check("MAIL", Err(Arguments));
        check("MAIL FROM:<a@b>SIZE=1", Err(Arguments));
        check("MAIL FROM:<a@b> SIZE", Err(Arguments));
        check("MAIL FROM:<a@b> SIZE=", Err(Arguments));
        check("MAIL FROM:<a@b> SIZE=1x", Err(Arguments));
        check("MAIL FROM:<a@b> SIZE=1 SIZE=1", Err(Arguments));
        check("MAIL FROM:<a@b> SMTPUTF8=1", Err(Arguments));
        check("MAIL FROM:<a@b> =1", Err(Arguments));
        check("MAIL FROM:<a@b> AUTH=+", Err(Arguments));
        check("MAIL FROM:<a@b> AUTH=nobody", Err(Arguments));
        check("MAIL FROM:<a@b> BODY=BINARYMIME", Err(Parameter));
        check("MAIL FROM:<a@b> RET=FULL", Err(Parameter));
    }

    #[test]
    fn rcpt() {
        let check = |line: &str, expected: Result<&str, CommandError>| {
            let got = Command::parse(line.as_bytes()).map(|command| match command {
                Command::Rcpt(path) => path.to_string(),
                other => panic!("{other:?}"),
            });
            assert_eq!(got, expected.map(str::to_owned), "{line:?}");
        };
        check("RCPT TO:<a@b>", Ok("<a@b>"));
        check("rcpt to:<@x:a@b> ", Ok("<a@b>"));
        check("RCPT TO:<Postmaster>", Ok("<Postmaster>"));
        check("RCPT TO:<é@b>", Ok("<é@b>"));
        check(
            "RCPT TO:<>",
            Err(CommandError::Recipient(AddressError::Syntax)),
        );
        check("RCPT TO:<a@b> NOTIFY=NEVER", Err(CommandError::Parameter));
        check("RCPT TO:<a@b>x", Err(CommandError::Arguments));
    }
}
