//! LOGIN and AUTHENTICATE (RFC 9051, section 6.2; RFC 4959), ENABLE (RFC 5161), ID (RFC 2971).

use super::CommandBody;
use crate::core::Secret;
use crate::decode::cursor::{Cursor, Refusal};
use base64::Engine as _;

/// Fields of ID (RFC 2971): name and value, in order. At most 30 fields, names of at most 30 bytes, values of at most 1024.
pub type IdFields = Vec<(String, Option<String>)>;

/// RFC 2971, section 3.3: "Implementations MUST NOT send more than 30 field-value pairs", and the sizes of names and values.
const ID_FIELDS_MAX: usize = 30;
const ID_NAME_BYTES_MAX: usize = 30;
const ID_VALUE_BYTES_MAX: usize = 1024;

/// Names in one ENABLE: more than there are extensions that can be enabled.
const ENABLE_NAMES_MAX: usize = 64;

/// `"LOGIN" SP userid SP password`
pub(crate) fn login(c: &mut Cursor<'_>) -> Result<CommandBody, Refusal> {
    c.space()?;
    let user = c.astring_text()?;
    c.space()?;
    let password = Secret::new(c.astring()?);
    Ok(CommandBody::Login { user, password })
}

/// `"AUTHENTICATE" SP auth-type [SP initial-resp]`
pub(crate) fn authenticate(c: &mut Cursor<'_>) -> Result<CommandBody, Refusal> {
    c.space()?;
    let mechanism = upper(c.atom()?);
    let initial = match c.is_at_end() {
        true => None,
        false => {
            c.space()?;
            Some(match c.run(|b| b != b' ') {
                b"" => return Err("expected an initial response"),
                // "=" is an empty initial response, apart from none (RFC 4959, section 3).
                b"=" => Secret::default(),
                text => {
                    let bytes = base64::engine::general_purpose::STANDARD.decode(text);
                    Secret::new(bytes.map_err(|_| "invalid base64")?)
                }
            })
        }
    };
    Ok(CommandBody::Authenticate { mechanism, initial })
}

/// `"COMPRESS" SP algorithm` (RFC 4978)
pub(crate) fn compress(c: &mut Cursor<'_>) -> Result<CommandBody, Refusal> {
    c.space()?;
    let mechanism = String::from_utf8_lossy(c.atom()?).to_ascii_uppercase();
    Ok(CommandBody::Compress(mechanism))
}

/// `"ENABLE" 1*(SP capability)`
pub(crate) fn enable(c: &mut Cursor<'_>) -> Result<CommandBody, Refusal> {
    let mut names = Vec::new();
    c.space()?;
    loop {
        if names.len() == ENABLE_NAMES_MAX {
            return Err("too many capabilities");
        }
        names.push(upper(c.atom()?));
        if !c.skip(b' ') {
            return Ok(CommandBody::Enable(names));
        }
    }
}

/// `"ID" SP ("(" [string SP nstring *(SP string SP nstring)] ")" / nil)`. Where a space may stand there may be several, and they may stand
/// beside parentheses, too: clients write `ID ( "name" "x" )`.
pub(crate) fn id(c: &mut Cursor<'_>) -> Result<CommandBody, Refusal> {
    c.space()?;
    c.spaces();
    let fields = id_fields(c)?;
    c.spaces();
    Ok(CommandBody::Id(fields))
}

fn id_fields(c: &mut Cursor<'_>) -> Result<Option<IdFields>, Refusal> {
    if c.skip_word(b"NIL") {
        return Ok(None);
    }
    c.open()?;
    c.spaces();
    let mut fields = IdFields::new();
    if c.skip(b')') {
        return Ok(Some(fields));
    }
    loop {
        let name = c.string()?;
        let name = String::from_utf8(name).map_err(|_| "string is not UTF-8")?;
        c.space()?;
        c.spaces();
        let value = c.nstring_text()?;
        let long = name.len() > ID_NAME_BYTES_MAX
            || value.as_ref().is_some_and(|v| v.len() > ID_VALUE_BYTES_MAX);
        if long || fields.len() == ID_FIELDS_MAX {
            return Err("too much in ID");
        }
        fields.push((name, value));
        let apart = c.spaces();
        if c.skip(b')') {
            return Ok(Some(fields));
        }
        if !apart {
            return Err("expected )");
        }
    }
}

fn upper(atom: &[u8]) -> String {
    String::from_utf8_lossy(atom).to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, refuse};

    fn login(user: &str, password: &[u8]) -> CommandBody {
        CommandBody::Login {
            user: user.into(),
            password: Secret::new(password.to_vec()),
        }
    }

    #[test]
    fn logins() {
        check("LOGIN anne secret", login("anne", b"secret"));
        check("login \"anne\" \"a \\\"b\\\\\"", login("anne", b"a \"b\\"));
        check(
            "LOGIN {4}\r\nanne {3+}\r\n\u{fc}\r",
            login("anne", "\u{fc}\r".as_bytes()),
        );
        check("LOGIN \"\" \"\"", login("", b""));
        check("LOGIN a]b c", login("a]b", b"c"));
        refuse("LOGIN", "expected a space");
        refuse("LOGIN anne", "expected a space");
        refuse("LOGIN anne ", "expected a word or a string");
        refuse("LOGIN anne a b", "unexpected text after the command");
        refuse("LOGIN  anne b", "expected a word or a string");
        refuse("LOGIN anne \"b", "quoted string is not closed");
        refuse(
            "LOGIN anne \"\\n\"",
            "only \" and \\ are escaped in a quoted string",
        );
        refuse(
            "LOGIN anne \"\u{fc}\"",
            "8-bit text in a quoted string before ENABLE",
        );
        refuse("LOGIN anne {1+}\r\n\0", "NUL in literal");
        refuse("LOGIN \"a\0b\" c", "NUL in a line");
        refuse("LOGIN anne pass*word", "unexpected text after the command");
    }

    #[test]
    fn authentications() {
        let authenticate = |mechanism: &str, initial: Option<&[u8]>| CommandBody::Authenticate {
            mechanism: mechanism.into(),
            initial: initial.map(|bytes| Secret::new(bytes.to_vec())),
        };
        check("AUTHENTICATE plain", authenticate("PLAIN", None));
        check("AUTHENTICATE PLAIN =", authenticate("PLAIN", Some(b"")));
        check(
            "AUTHENTICATE PLAIN AGEAYg==",
            authenticate("PLAIN", Some(b"\0a\0b")),
        );
        refuse("AUTHENTICATE", "expected a space");
        refuse("AUTHENTICATE PLAIN ", "expected an initial response");
        refuse("AUTHENTICATE PLAIN AGEAYg", "invalid base64");
        refuse(
            "AUTHENTICATE PLAIN AGE= x",
            "unexpected text after the command",
        );
        refuse("AUTHENTICATE \"PLAIN\"", "expected an atom");
    }

    #[test]
    fn enables() {
        check(
            "ENABLE condstore",
            CommandBody::Enable(vec!["CONDSTORE".into()]),
        );
        check(
            "ENABLE CONDSTORE UTF8=ACCEPT",
            CommandBody::Enable(vec!["CONDSTORE".into(), "UTF8=ACCEPT".into()]),
        );
        refuse("ENABLE", "expected a space");
        refuse("ENABLE A ", "expected an atom");
        refuse(
            &format!("ENABLE{}", " X".repeat(65)),
            "too many capabilities",
        );
    }

    #[test]
    fn ids() {
        check("ID NIL", CommandBody::Id(None));
        check("ID ()", CommandBody::Id(Some(vec![])));
        check(
            r#"ID ("name" "sodr" "version" NIL)"#,
            CommandBody::Id(Some(vec![
                ("name".into(), Some("sodr".into())),
                ("version".into(), None),
            ])),
        );
        let one = || CommandBody::Id(Some(vec![("name".into(), Some("x".into()))]));
        for spaced in [
            "ID ( \"name\" \"x\" )",
            "ID  (\"name\"  \"x\" ) ",
            "ID (  \"name\" {1+}\r\nx  )",
        ] {
            check(spaced, one());
        }
        check("ID ( )", CommandBody::Id(Some(vec![])));
        check("ID  NIL ", CommandBody::Id(None));
        refuse("ID", "expected a space");
        refuse("ID(\"name\" \"x\")", "unknown command");
        refuse("ID (\"name\" \"x\"\"version\" \"1\")", "expected )");
        refuse("ID (\"name\"\"x\")", "expected a space");
        refuse("ID (\"name\")", "expected a space");
        refuse("ID (name \"x\")", "expected a string");
        refuse(
            &format!("ID ({}\"a\" NIL)", "\"a\" NIL ".repeat(30)),
            "too much in ID",
        );
        refuse(
            &format!("ID (\"{}\" NIL)", "a".repeat(31)),
            "too much in ID",
        );
    }

    #[test]
    fn bare_words() {
        check("capability", CommandBody::Capability);
        check("NOOP", CommandBody::Noop);
        check("LOGOUT", CommandBody::Logout);
        check("STARTTLS", CommandBody::StartTls);
        check("NAMESPACE", CommandBody::Namespace);
        check("IDLE", CommandBody::Idle);
        check("CHECK", CommandBody::Check);
        check("CLOSE", CommandBody::Close);
        check("UNSELECT", CommandBody::Unselect);
        check("unauthenticate", CommandBody::Unauthenticate);
        check("compress deflate", CommandBody::Compress("DEFLATE".into()));
        refuse("COMPRESS", "expected a space");
        refuse("COMPRESS \"DEFLATE\"", "expected an atom");
        check("EXPUNGE", CommandBody::Expunge { uids: None });
        refuse("NOOP ", "unexpected text after the command");
        refuse("NOOP x", "unexpected text after the command");
        refuse("NOOP (((", "unexpected text after the command");
        refuse("", "expected a command");
        refuse("X", "unknown command");
        refuse("NOOPNOOPNOOPNOOPNOOP", "unknown command");
        refuse("UID NOOP", "unknown command after UID");
        refuse("UID", "expected a space");
    }
}
