//! Names of mailboxes: what a client calls them. Invalid names cannot be built.

use std::sync::Arc;

/// Longest name, in bytes of UTF-8: far above what people type, low enough for a row's key.
pub const NAME_BYTES_MAX: usize = 1000;

/// Deepest hierarchy: RENAME and LIST cost at least this much a mailbox.
pub const NAME_DEPTH_MAX: usize = 32;

/// A mailbox name: UTF-8, `/` between levels, `INBOX` in capitals however it was written (RFC 9051, 5.1).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MailboxName(Arc<str>);

/// Why a text is no mailbox name. The client gets NO with CANNOT; permanent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty, or an empty level (`a//b`, `/a`, `a/`).
    #[error("mailbox name with an empty level")]
    Empty,
    /// Longer than [`NAME_BYTES_MAX`].
    #[error("mailbox name longer than {NAME_BYTES_MAX} bytes")]
    TooLong,
    /// Deeper than [`NAME_DEPTH_MAX`].
    #[error("mailbox name deeper than {NAME_DEPTH_MAX} levels")]
    TooDeep,
    /// Control characters, line separators, or the wildcards of LIST.
    #[error("mailbox name with the character {0:?}")]
    Character(char),
    /// Not UTF-8 (only from stored or received bytes).
    #[error("mailbox name that is not UTF-8")]
    Encoding,
}

impl MailboxName {
    /// The separator of levels.
    pub const SEPARATOR: char = '/';

    /// Checks and builds.
    pub fn new(name: &str) -> Result<Self, NameError> {
        if name.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong);
        }
        // RFC 9051, 5.1: wildcards in names "are not recommended"; a name with one could not be listed alone.
        let forbidden = |c: char| {
            c.is_control()
                || matches!(
                    c,
                    '\u{2028}' | '\u{2029}' | '*' | '%' | '\u{FFFE}' | '\u{FFFF}'
                )
        };
        if let Some(character) = name.chars().find(|c| forbidden(*c)) {
            return Err(NameError::Character(character));
        }
        let mut depth = 0;
        for level in name.split(Self::SEPARATOR) {
            if level.is_empty() {
                return Err(NameError::Empty);
            }
            depth += 1;
        }
        if depth > NAME_DEPTH_MAX {
            return Err(NameError::TooDeep);
        }
        let first = name.split(Self::SEPARATOR).next().unwrap_or(name);
        if first.eq_ignore_ascii_case("INBOX") && first != "INBOX" {
            return Ok(Self(format!("INBOX{}", &name[first.len()..]).into()));
        }
        Ok(Self(name.into()))
    }

    /// INBOX.
    pub fn inbox() -> Self {
        Self("INBOX".into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is INBOX itself.
    pub fn is_inbox(&self) -> bool {
        &*self.0 == "INBOX"
    }

    /// The name one level up.
    pub fn parent(&self) -> Option<Self> {
        self.0
            .rsplit_once(Self::SEPARATOR)
            .map(|(parent, _)| Self(parent.into()))
    }

    /// The names above this one, the highest first.
    pub fn parents(&self) -> impl Iterator<Item = Self> {
        let ends = self.0.match_indices(Self::SEPARATOR);
        ends.map(|(at, _)| Self(self.0[..at].into()))
    }

    /// Whether this lies below `other`, at any depth.
    pub fn is_below(&self, other: &Self) -> bool {
        self.0
            .strip_prefix(&*other.0)
            .is_some_and(|rest| rest.starts_with(Self::SEPARATOR))
    }

    /// This name with the prefix `from` replaced by `to`: what a child is called when its parent is renamed.
    pub fn rebased(&self, from: &Self, to: &Self) -> Result<Self, NameError> {
        match self.0.strip_prefix(&*from.0) {
            Some(rest) if rest.is_empty() || rest.starts_with(Self::SEPARATOR) => {
                Self::new(&format!("{to}{rest}"))
            }
            _ => Ok(self.clone()),
        }
    }
}

/// Ordered as the text is.
impl std::borrow::Borrow<str> for MailboxName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for MailboxName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::fmt::Debug for MailboxName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

impl std::str::FromStr for MailboxName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        Self::new(name)
    }
}

impl<C> minicbor::Encode<C> for MailboxName {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.str(&self.0)?;
        Ok(())
    }
}

impl<'b, C> minicbor::Decode<'b, C> for MailboxName {
    fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        Self::new(d.str()?).map_err(|error| minicbor::decode::Error::message(error.to_string()))
    }
}
