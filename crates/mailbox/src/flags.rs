//! Flags and keywords (RFC 9051, 2.3.2): each is a register of its own; a [`Flags`] is a value, a set of them.
//!
//! Spellings of a keyword that differ in case are one flag, so a set has one of them. Which one is a part of its value: nodes must show the same.

use std::cmp::Ordering;
use std::sync::Arc;

/// Most keywords on one message.
pub const KEYWORDS_MAX: usize = 100;

/// Longest keyword.
pub const KEYWORD_BYTES_MAX: usize = 255;

/// A keyword: an IMAP atom that does not begin with a backslash.
///
/// Equality is exact. Whether two spellings are one flag says [`Keyword::same`]; in the order of keywords they are neighbours.
#[derive(Clone, PartialEq, Eq)]
pub struct Keyword(Arc<str>);

impl Keyword {
    /// Checks and builds: `atom` of RFC 9051, 9, at most [`KEYWORD_BYTES_MAX`] bytes.
    pub fn new(text: &str) -> Option<Self> {
        let special = |byte: u8| !byte.is_ascii_graphic() || b"(){%*\"\\]".contains(&byte);
        if text.is_empty() || text.len() > KEYWORD_BYTES_MAX || text.bytes().any(special) {
            return None;
        }
        Some(Self(text.into()))
    }

    /// As it is spelled.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether both are one flag: they differ in nothing but ASCII case.
    pub fn same(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }

    /// The order of flags: spellings of one flag are equal.
    pub fn cmp_as_flag(&self, other: &Self) -> Ordering {
        self.folded().cmp(other.folded())
    }

    fn folded(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.bytes().map(|byte| byte.to_ascii_lowercase())
    }
}

impl PartialOrd for Keyword {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Keyword {
    fn cmp(&self, other: &Self) -> Ordering {
        self.cmp_as_flag(other).then_with(|| self.0.cmp(&other.0))
    }
}

impl std::fmt::Debug for Keyword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// One flag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flag {
    /// `\Answered`
    Answered,
    /// `\Flagged`
    Flagged,
    /// `\Deleted`: the only one on which a concurrent unset wins.
    Deleted,
    /// `\Seen`
    Seen,
    /// `\Draft`
    Draft,
    /// A keyword.
    Keyword(Keyword),
}

impl Flag {
    /// The five system flags, in the order of their bits.
    pub const SYSTEM: [Self; 5] = [
        Self::Answered,
        Self::Flagged,
        Self::Deleted,
        Self::Seen,
        Self::Draft,
    ];

    fn bit(&self) -> Option<u8> {
        match self {
            Self::Answered => Some(1),
            Self::Flagged => Some(2),
            Self::Deleted => Some(4),
            Self::Seen => Some(8),
            Self::Draft => Some(16),
            Self::Keyword(_) => None,
        }
    }
}

/// A set of flags. At most [`KEYWORDS_MAX`] keywords come out of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flags {
    system: u8,
    /// Sorted, one spelling of each.
    keywords: Vec<Keyword>,
}

impl Flags {
    /// No flag.
    pub const fn none() -> Self {
        Self {
            system: 0,
            keywords: Vec::new(),
        }
    }

    /// Whether there is no flag.
    pub fn is_empty(&self) -> bool {
        self.system == 0 && self.keywords.is_empty()
    }

    /// Whether the flag is in the set.
    pub fn contains(&self, flag: &Flag) -> bool {
        match (flag.bit(), flag) {
            (Some(bit), _) => self.system & bit != 0,
            (None, Flag::Keyword(keyword)) => self.place(keyword).is_ok(),
            (None, _) => false,
        }
    }

    /// Adds a flag. A keyword that is there keeps its spelling.
    pub fn insert(&mut self, flag: Flag) {
        match (flag.bit(), flag) {
            (Some(bit), _) => self.system |= bit,
            (None, Flag::Keyword(keyword)) => {
                if let Err(at) = self.place(&keyword) {
                    self.keywords.insert(at, keyword);
                }
            }
            (None, _) => {}
        }
    }

    /// Removes a flag.
    pub fn remove(&mut self, flag: &Flag) {
        match (flag.bit(), flag) {
            (Some(bit), _) => self.system &= !bit,
            (None, Flag::Keyword(keyword)) => {
                if let Ok(at) = self.place(keyword) {
                    self.keywords.remove(at);
                }
            }
            (None, _) => {}
        }
    }

    /// All flags, system flags first.
    pub fn iter(&self) -> impl Iterator<Item = Flag> + '_ {
        let system = Flag::SYSTEM
            .into_iter()
            .filter(|flag| flag.bit().is_some_and(|bit| self.system & bit != 0));
        system.chain(self.keywords.iter().cloned().map(Flag::Keyword))
    }

    /// The keywords.
    pub fn keywords(&self) -> &[Keyword] {
        &self.keywords
    }

    /// What is in this set and not in the other.
    pub fn without(&self, other: &Self) -> Self {
        Self {
            system: self.system & !other.system,
            keywords: self
                .keywords
                .iter()
                .filter(|keyword| other.place(keyword).is_err())
                .cloned()
                .collect(),
        }
    }

    /// What is in either; keywords that are in both as they are spelled in this one.
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.system |= other.system;
        let more = other.without(self).keywords;
        all.keywords.extend(more);
        all.keywords.sort();
        all
    }

    /// The same flags; keywords that the other set has as they are spelled there.
    pub fn spelled_as(&self, other: &Self) -> Self {
        let spelled = |keyword: &Keyword| match other.place(keyword) {
            Ok(at) => other.keywords[at].clone(),
            Err(_) => keyword.clone(),
        };
        Self {
            system: self.system,
            keywords: self.keywords.iter().map(spelled).collect(),
        }
    }

    fn place(&self, keyword: &Keyword) -> Result<usize, usize> {
        self.keywords
            .binary_search_by(|other| other.cmp_as_flag(keyword))
    }
}

/// Sorted; of several spellings the first in the order of bytes, whatever order they come in.
fn one_of_each(mut keywords: Vec<Keyword>) -> Vec<Keyword> {
    keywords.sort();
    keywords.dedup_by(|later, first| later.same(first));
    keywords
}

impl FromIterator<Flag> for Flags {
    fn from_iter<I: IntoIterator<Item = Flag>>(flags: I) -> Self {
        let mut set = Self::none();
        for flag in flags {
            match flag.bit() {
                Some(bit) => set.system |= bit,
                None => {
                    if let Flag::Keyword(keyword) = flag {
                        set.keywords.push(keyword);
                    }
                }
            }
        }
        set.keywords = one_of_each(set.keywords);
        set
    }
}

impl<C> minicbor::Encode<C> for Keyword {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.str(&self.0)?;
        Ok(())
    }
}

impl<'b, C> minicbor::Decode<'b, C> for Keyword {
    fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        Self::new(d.str()?).ok_or_else(|| minicbor::decode::Error::message("not a keyword"))
    }
}

impl<C> minicbor::Encode<C> for Flags {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.array(1 + self.keywords.len() as u64)?.u8(self.system)?;
        for keyword in &self.keywords {
            e.encode_with(keyword, ctx)?;
        }
        Ok(())
    }
}

impl<'b, C> minicbor::Decode<'b, C> for Flags {
    fn decode(d: &mut minicbor::Decoder<'b>, ctx: &mut C) -> Result<Self, minicbor::decode::Error> {
        let malformed = || minicbor::decode::Error::message("not a set of flags");
        let length = d
            .array()?
            .filter(|n| (1..=u64::from(u16::MAX)).contains(n))
            .ok_or_else(malformed)?;
        let system = d.u8()?;
        if system >= 32 {
            return Err(malformed());
        }
        let mut keywords = Vec::new();
        for _ in 1..length {
            keywords.push(d.decode_with::<C, Keyword>(ctx)?);
        }
        let keywords = one_of_each(keywords);
        Ok(Self { system, keywords })
    }
}
