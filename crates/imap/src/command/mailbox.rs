//! CREATE, DELETE, RENAME, SUBSCRIBE, UNSUBSCRIBE (RFC 9051, sections 6.3.4 to 6.3.8; RFC 6154).

use super::CommandBody;
use crate::core::MailboxName;
use crate::decode::cursor::{Cursor, Refusal};

/// Special uses (RFC 6154, section 2; `\Important`, RFC 8457).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpecialUse {
    /// `\All`
    All,
    /// `\Archive`
    Archive,
    /// `\Drafts`
    Drafts,
    /// `\Flagged`
    Flagged,
    /// `\Important`
    Important,
    /// `\Junk`
    Junk,
    /// `\Sent`
    Sent,
    /// `\Trash`
    Trash,
}

impl SpecialUse {
    /// All there are.
    pub const ALL: [Self; 8] = [
        Self::All,
        Self::Archive,
        Self::Drafts,
        Self::Flagged,
        Self::Important,
        Self::Junk,
        Self::Sent,
        Self::Trash,
    ];

    /// The attribute as the protocol spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "\\All",
            Self::Archive => "\\Archive",
            Self::Drafts => "\\Drafts",
            Self::Flagged => "\\Flagged",
            Self::Important => "\\Important",
            Self::Junk => "\\Junk",
            Self::Sent => "\\Sent",
            Self::Trash => "\\Trash",
        }
    }

    /// The use that `text` spells, in any case.
    pub fn new(text: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|u| u.as_str().as_bytes().eq_ignore_ascii_case(text))
    }
}

/// `SP mailbox`
pub(crate) fn one(c: &mut Cursor<'_>) -> Result<MailboxName, Refusal> {
    c.space()?;
    c.mailbox()
}

/// `"RENAME" SP mailbox SP mailbox`
pub(crate) fn rename(c: &mut Cursor<'_>) -> Result<CommandBody, Refusal> {
    let from = one(c)?;
    let to = one(c)?;
    Ok(CommandBody::Rename { from, to })
}

/// `"CREATE" SP mailbox [SP "(" "USE" SP "(" [use-attr *(SP use-attr)] ")" ")"]`
pub(crate) fn create(c: &mut Cursor<'_>) -> Result<CommandBody, Refusal> {
    let mailbox = one(c)?;
    let mut special_use = Vec::new();
    let mut unknown_use = false;
    if c.skip(b' ') {
        c.open()?;
        if !c.skip_word(b"USE") {
            return Err("unknown CREATE parameter");
        }
        c.space()?;
        c.open()?;
        let mut more = !c.skip(b')');
        while more {
            if !c.skip(b'\\') {
                return Err("expected a special use");
            }
            match SpecialUse::ALL
                .into_iter()
                .find(|u| c.skip_word(&u.as_str().as_bytes()[1..].to_ascii_uppercase()))
            {
                Some(known) if special_use.contains(&known) => {}
                Some(known) => special_use.push(known),
                None => {
                    c.atom()?;
                    unknown_use = true;
                }
            }
            more = c.more()?;
        }
        c.close()?;
    }
    Ok(CommandBody::Create {
        mailbox,
        special_use,
        unknown_use,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, parse, refuse};

    fn name(name: &str) -> MailboxName {
        MailboxName::new(name).unwrap()
    }

    #[test]
    fn names() {
        check(
            "DELETE blurdybloop",
            CommandBody::Delete(name("blurdybloop")),
        );
        check("DELETE inbox", CommandBody::Delete(name("INBOX")));
        check("SUBSCRIBE \"a b\"", CommandBody::Subscribe(name("a b")));
        check(
            "UNSUBSCRIBE {3+}\r\nfoo",
            CommandBody::Unsubscribe(name("foo")),
        );
        check(
            "RENAME Entw&APw-rfe \"x/y\"",
            CommandBody::Rename {
                from: name("Entwürfe"),
                to: name("x/y"),
            },
        );
        refuse("DELETE", "expected a space");
        refuse("DELETE a b", "unexpected text after the command");
        let nowhere = || CommandBody::Delete(MailboxName::nowhere());
        check("DELETE &Jjo!", nowhere());
        check("DELETE {1+}\r\n\x01", nowhere());
        refuse("RENAME a", "expected a space");
        assert_eq!(
            parse("DELETE \"Entwürfe\"".as_bytes(), true),
            Ok(CommandBody::Delete(name("Entwürfe")))
        );
        assert_eq!(parse(b"DELETE \"a\x01\"", true), Ok(nowhere()));
        assert_eq!(
            parse(b"DELETE \"\xff\"", true),
            Err("quoted string is not UTF-8")
        );
        assert_eq!(
            parse("DELETE ü".as_bytes(), true),
            Err("expected a word or a string")
        );
    }

    #[test]
    fn creates() {
        let create = |special_use: &[SpecialUse], unknown_use| CommandBody::Create {
            mailbox: name("Everything"),
            special_use: special_use.to_vec(),
            unknown_use,
        };
        check("CREATE Everything", create(&[], false));
        // RFC 6154, section 5.3.
        check(
            "CREATE Everything (USE (\\All))",
            create(&[SpecialUse::All], false),
        );
        check(
            "CREATE Everything (USE (\\sent \\Drafts \\Sent))",
            create(&[SpecialUse::Sent, SpecialUse::Drafts], false),
        );
        check(
            "CREATE Everything (USE (\\Foo \\All))",
            create(&[SpecialUse::All], true),
        );
        check("CREATE Everything (USE ())", create(&[], false));
        refuse("CREATE Everything (USE (All))", "expected a special use");
        refuse("CREATE Everything (USE (\\All)", "expected )");
        refuse("CREATE Everything (FOO 1)", "unknown CREATE parameter");
        refuse("CREATE Everything ()", "unknown CREATE parameter");
        refuse("CREATE \"\"", "mailbox name is empty");
        for used in SpecialUse::ALL {
            assert_eq!(
                SpecialUse::new(used.as_str().to_ascii_lowercase().as_bytes()),
                Some(used)
            );
        }
    }
}
