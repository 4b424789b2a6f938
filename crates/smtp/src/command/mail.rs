//! MAIL and RCPT with their parameters: SIZE (RFC 1870), BODY (RFC 6152), SMTPUTF8 (RFC 6531), AUTH (RFC 4954 5). Where offered: RET, ENVID,
//! NOTIFY and ORCPT (RFC 3461), REQUIRETLS (RFC 8689), HOLDFOR and HOLDUNTIL (RFC 4865).

use core::fmt;

use super::{CommandError, Extensions, number};
use crate::address::{ForwardPath, Mailbox, ReversePath};
use crate::dsn::{EnvelopeId, Notify, OriginalRecipient, Ret};
use crate::session::{Body, Hold, MailFrom, RcptTo};
use crate::trace::WallTime;

/// What follows `MAIL `.
pub(super) fn parse_mail(
    arguments: &str,
    extensions: Extensions,
) -> Result<MailFrom, CommandError> {
    let path = after_keyword(arguments, "FROM:")?;
    let (from, rest) = ReversePath::parse_prefix(path).map_err(CommandError::Sender)?;
    let mut mail = MailFrom::new(from);
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
            ("RET", Some(value)) if extensions.dsn => {
                let ret = Ret::parse(value).ok_or(CommandError::Arguments)?;
                mail.ret.replace(ret).is_some()
            }
            ("ENVID", Some(value)) if extensions.dsn => {
                let envid = EnvelopeId::parse(value).ok_or(CommandError::Arguments)?;
                mail.envid.replace(envid).is_some()
            }
            ("REQUIRETLS", None) if extensions.require_tls => {
                core::mem::replace(&mut mail.require_tls, true)
            }
            // Both at once are one too many, too.
            ("HOLDFOR" | "HOLDUNTIL", Some(value)) if extensions.future_release => {
                let hold = match keyword.as_str() {
                    "HOLDFOR" => hold_for(value),
                    _ => WallTime::parse_rfc3339(value).map(Hold::Until),
                };
                let hold = hold.ok_or(CommandError::Arguments)?;
                mail.hold.replace(hold).is_some()
            }
            ("SIZE" | "BODY" | "SMTPUTF8" | "AUTH" | "", _) => return Err(CommandError::Arguments),
            (word, _) if extensions.has_mail_parameter(word) => {
                return Err(CommandError::Arguments);
            }
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
        if let Some(ret) = self.ret {
            write!(f, " RET={ret}")?;
        }
        if let Some(envid) = &self.envid {
            write!(f, " ENVID={envid}")?;
        }
        if self.require_tls {
            f.write_str(" REQUIRETLS")?;
        }
        match self.hold {
            Some(Hold::For(seconds)) => write!(f, " HOLDFOR={seconds}"),
            Some(Hold::Until(time)) => write!(f, " HOLDUNTIL={}", time.rfc3339()),
            None => Ok(()),
        }
    }
}

/// RFC 4865: nine digits at most, and no zero in front.
fn hold_for(value: &str) -> Option<Hold> {
    let digits = matches!(value.len(), 1..=9) && value.bytes().all(|b| b.is_ascii_digit());
    (digits && !value.starts_with('0'))
        .then(|| value.parse().ok().map(Hold::For))
        .flatten()
}

/// What follows `RCPT `.
pub(super) fn parse_rcpt(arguments: &str, extensions: Extensions) -> Result<RcptTo, CommandError> {
    let path = after_keyword(arguments, "TO:")?;
    let (path, rest) = ForwardPath::parse_prefix(path).map_err(CommandError::Recipient)?;
    let mut rcpt = RcptTo::from(path);
    for (keyword, value) in parameters(rest) {
        let again = match (keyword.to_ascii_uppercase().as_str(), value) {
            ("NOTIFY", Some(value)) if extensions.dsn => {
                let notify = Notify::parse(value).ok_or(CommandError::Arguments)?;
                rcpt.notify.replace(notify).is_some()
            }
            ("ORCPT", Some(value)) if extensions.dsn => {
                let orcpt = OriginalRecipient::parse(value).ok_or(CommandError::Arguments)?;
                rcpt.orcpt.replace(orcpt).is_some()
            }
            ("NOTIFY" | "ORCPT", _) if extensions.dsn => return Err(CommandError::Arguments),
            ("", _) => return Err(CommandError::Arguments),
            _ => return Err(CommandError::Parameter),
        };
        // RFC 3461 4.5: more than one of a parameter is "501 syntax error in parameters or arguments".
        if again {
            return Err(CommandError::Arguments);
        }
    }
    Ok(rcpt)
}

/// What follows `RCPT `, for a server that offers SMTPUTF8.
impl fmt::Display for RcptTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TO:{}", self.path)?;
        if let Some(notify) = self.notify {
            write!(f, " NOTIFY={notify}")?;
        }
        if let Some(orcpt) = &self.orcpt {
            write!(f, " ORCPT={}", orcpt.encode(true))?;
        }
        Ok(())
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

    const NONE: Extensions = Extensions {
        dsn: false,
        require_tls: false,
        future_release: false,
    };
    const ALL: Extensions = Extensions {
        dsn: true,
        require_tls: true,
        future_release: true,
    };

    /// `expected`: path, size, utf8, 8bitmime.
    fn check(line: &str, expected: Result<(&str, Option<u64>, bool, bool), CommandError>) {
        let got = Command::parse(line.as_bytes(), NONE).map(|command| match command {
            Command::Mail(mail) => {
                assert_eq!(parse_mail(&mail.to_string(), NONE), Ok(mail.clone()));
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
            let got = Command::parse(line.as_bytes(), NONE).map(|command| match command {
                Command::Rcpt(rcpt) => rcpt.path.to_string(),
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

    /// `expected`: the command as it is written again. Without the extensions each of these parameters is unknown.
    #[test]
    fn parameters_of_extensions() {
        use CommandError::{Arguments, Parameter};
        let check = |line: &str, expected: Result<&str, CommandError>| {
            let got = Command::parse(line.as_bytes(), ALL).map(|command| match command {
                Command::Mail(mail) => format!("MAIL {mail}"),
                Command::Rcpt(rcpt) => format!("RCPT {rcpt}"),
                other => panic!("{other:?}"),
            });
            assert_eq!(got, expected.map(str::to_owned), "{line:?}");
            if let Ok(written) = &got {
                let again = Command::parse(written.as_bytes(), ALL);
                assert_eq!(again, Command::parse(line.as_bytes(), ALL));
            }
            let off = Command::parse(line.as_bytes(), NONE);
            assert_eq!(off, Err(Parameter), "{line:?}");
        };
        check(
            "MAIL FROM:<a@b> ret=hdrs EnvID=QQ+3D1",
            Ok("MAIL FROM:<a@b> RET=HDRS ENVID=QQ+3D1"),
        );
        check("MAIL FROM:<> RET=FULL", Ok("MAIL FROM:<> RET=FULL"));
        check("MAIL FROM:<> REQUIRETLS", Ok("MAIL FROM:<> REQUIRETLS"));
        check("MAIL FROM:<> HOLDFOR=60", Ok("MAIL FROM:<> HOLDFOR=60"));
        check(
            "MAIL FROM:<> HOLDUNTIL=2026-11-20T17:00:00+01:00",
            Ok("MAIL FROM:<> HOLDUNTIL=2026-11-20T16:00:00Z"),
        );
        check(
            "RCPT TO:<a@b> notify=success,delay ORCPT=rfc822;a+2Bc@b",
            Ok("RCPT TO:<a@b> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;a+2Bc@b"),
        );
        check(
            "RCPT TO:<Postmaster> NOTIFY=NEVER",
            Ok("RCPT TO:<Postmaster> NOTIFY=NEVER"),
        );
        check(
            "RCPT TO:<a@b> ORCPT=utf-8;é@b",
            Ok("RCPT TO:<a@b> ORCPT=utf-8;é@b"),
        );
        for bad in [
            "MAIL FROM:<a@b> RET=SOME",
            "MAIL FROM:<a@b> RET",
            "MAIL FROM:<a@b> RET=FULL RET=FULL",
            "MAIL FROM:<a@b> ENVID=+0A",
            "MAIL FROM:<a@b> ENVID",
            "MAIL FROM:<a@b> ENVID=a ENVID=b",
            "MAIL FROM:<a@b> REQUIRETLS=1",
            "MAIL FROM:<a@b> REQUIRETLS REQUIRETLS",
            "MAIL FROM:<a@b> HOLDFOR=0",
            "MAIL FROM:<a@b> HOLDFOR=01",
            "MAIL FROM:<a@b> HOLDFOR=1234567890",
            "MAIL FROM:<a@b> HOLDFOR=-1",
            "MAIL FROM:<a@b> HOLDFOR",
            "MAIL FROM:<a@b> HOLDUNTIL=tomorrow",
            "MAIL FROM:<a@b> HOLDFOR=1 HOLDUNTIL=2026-11-20T17:00:00Z",
            "RCPT TO:<a@b> NOTIFY=NEVER,DELAY",
            "RCPT TO:<a@b> NOTIFY",
            "RCPT TO:<a@b> NOTIFY=DELAY NOTIFY=DELAY",
            "RCPT TO:<a@b> ORCPT=a@b",
            "RCPT TO:<a@b> ORCPT",
            "RCPT TO:<a@b> ORCPT=rfc822;a@b ORCPT=rfc822;a@b",
        ] {
            check(bad, Err(Arguments));
        }
        // Each belongs to one command.
        check("MAIL FROM:<a@b> NOTIFY=NEVER", Err(Parameter));
        check("RCPT TO:<a@b> RET=FULL", Err(Parameter));
        check("RCPT TO:<a@b> REQUIRETLS", Err(Parameter));
        check("RCPT TO:<a@b> HOLDFOR=1", Err(Parameter));
    }
}
