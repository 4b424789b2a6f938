//! The registers of flags, and the keywords that an account's records have: which registers they are, and how each is spelled.
//!
//! All spellings of a keyword are one register. Each dot of a register has the spelling that its operation named, and a message is shown with that of its least
//! dot: so what is shown hangs on what was done, not on the order in which a replica heard of it (docs/decisions/0090).
//!
//! The numbers of registers and spellings are of this replica, for this run: rows have the text.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::mutants::broken;

use crate::Keyword;

/// The register of `\Flagged` among a record's flags.
pub(crate) const FLAGGED: u32 = 1;
/// The register of `\Deleted`.
pub(crate) const DELETED: u32 = 2;
/// The register of `\Seen`.
pub(crate) const SEEN: u32 = 3;
/// Registers from here on are keywords.
pub(crate) const FIRST_KEYWORD: u32 = 5;

/// Spellings of keywords that an account's messages have together: far more than people and their programs make, and few enough that they cost little.
pub const KEYWORDS_OF_ACCOUNT_MAX: usize = 4096;

/// What a spelling takes beside its text, twice, in a vector and a B-tree.
const SPELLED_BYTES: usize = 96;

/// How a dot of a keyword is spelled, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spelling(u32);

impl Spelling {
    /// Of flags that are no keywords.
    pub(crate) const NONE: Self = Self(0);
    /// A row of an earlier version says so, which kept for all dots of a keyword the spelling that this replica had heard first.
    const AS_HEARD: u32 = 1 << 31;

    /// Whether it is what the dot's operation named.
    pub(crate) fn is_exact(self) -> bool {
        self.0 & Self::AS_HEARD == 0
    }

    /// The number of the text.
    pub(crate) fn text(self) -> u32 {
        self.0 & !Self::AS_HEARD
    }

    fn index(self) -> usize {
        self.text() as usize
    }
}

/// The register of a flag, and its spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    pub(crate) flag: u32,
    pub(crate) spelling: Spelling,
}

/// All of an account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keywords {
    /// By the number of the spelling, with the register.
    spelled: Vec<(Keyword, u32)>,
    /// Spellings of one register are neighbours.
    numbers: BTreeMap<Keyword, u32>,
    registers: u32,
    /// Numbers of spellings that no record had when it was looked at last.
    free: Vec<u32>,
    /// Of the texts.
    text_bytes: usize,
    /// Records that were changed since then.
    changed: usize,
}

impl Keywords {
    /// The register of a keyword, and of this spelling; given numbers if it has none.
    pub(crate) fn add(&mut self, keyword: &Keyword, is_exact: bool) -> Register {
        let known = self.numbers.get(keyword).copied();
        let as_first = broken("first-spelling-stays").then(|| self.near(keyword));
        let number = match as_first.flatten().or(known) {
            Some(number) => number,
            None => {
                let flag = self.find(keyword).unwrap_or_else(|| {
                    self.registers += 1;
                    FIRST_KEYWORD + self.registers - 1
                });
                let spelled = (keyword.clone(), flag);
                let number = match self.free.pop() {
                    Some(number) => {
                        self.spelled[number as usize] = spelled;
                        number
                    }
                    None => {
                        self.spelled.push(spelled);
                        self.spelled.len() as u32 - 1
                    }
                };
                self.text_bytes += keyword.as_str().len();
                self.numbers.insert(keyword.clone(), number);
                number
            }
        };
        let heard = if is_exact { 0 } else { Spelling::AS_HEARD };
        Register {
            flag: self.spelled[number as usize].1,
            spelling: Spelling(number | heard),
        }
    }

    /// The register of a keyword, however it is spelled.
    pub(crate) fn find(&self, keyword: &Keyword) -> Option<u32> {
        let number = self.near(keyword)?;
        Some(self.spelled[number as usize].1)
    }

    /// A known spelling of the keyword. They are neighbours on either side: this one may be before those that are known, between them, or behind.
    fn near(&self, keyword: &Keyword) -> Option<u32> {
        let behind = self.numbers.range(keyword..).next();
        let before = self.numbers.range(..keyword).next_back();
        let mut near = [behind, before].into_iter().flatten();
        let (_, number) = near.find(|(known, _)| known.same(keyword))?;
        Some(*number)
    }

    /// Whether this spelling is known.
    pub(crate) fn contains(&self, keyword: &Keyword) -> bool {
        self.numbers.contains_key(keyword)
    }

    /// Records whose keywords may have changed since spellings were forgotten last.
    pub(crate) fn changed_records(&self) -> usize {
        self.changed
    }

    /// How many spellings there are.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// An estimate of the memory that they take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.text_bytes + self.spelled.len() * SPELLED_BYTES
    }

    /// So many records may have other keywords than before.
    pub(crate) fn changed(&mut self, records: usize) {
        self.changed += records;
    }

    /// Forgets the spellings that are not in `used`; their numbers are given again.
    pub(crate) fn retain(&mut self, used: &BTreeSet<u32>) {
        let (free, text_bytes) = (&mut self.free, &mut self.text_bytes);
        self.numbers.retain(|keyword, number| {
            let stays = used.contains(number);
            if !stays {
                *text_bytes -= keyword.as_str().len();
                free.push(*number);
            }
            stays
        });
        self.changed = 0;
    }

    /// The text.
    pub(crate) fn keyword(&self, spelling: Spelling) -> &Keyword {
        &self.spelled[spelling.index()].0
    }

    /// What another replica's spellings are here: to be asked with [`Translation::of`].
    pub(crate) fn translate(&mut self, other: &Self) -> Translation {
        let spelled = other.spelled.iter();
        Translation(
            spelled
                .map(|(keyword, _)| self.add(keyword, true))
                .collect(),
        )
    }
}

/// Another replica's spellings.
pub(crate) struct Translation(Vec<Register>);

impl Translation {
    /// The register and the spelling here; whether it is exact is said by the other's.
    pub(crate) fn of(&self, spelling: Spelling) -> Register {
        let here = self.0[spelling.index()];
        Register {
            spelling: Spelling(here.spelling.0 | (spelling.0 & Spelling::AS_HEARD)),
            ..here
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_keyword_are_one_register() {
        let mut keywords = Keywords::default();
        let mut add = |text| keywords.add(&Keyword::new(text).unwrap(), true);
        let all = ["junk", "Junk", "JUNK", "jUNK", "Junk2", "JUN", "$Junk"].map(&mut add);
        let flags = all.map(|register| register.flag - FIRST_KEYWORD);
        assert_eq!(flags, [0, 0, 0, 0, 1, 2, 3]);
        let find = |text| keywords.find(&Keyword::new(text).unwrap());
        assert_eq!(find("jUnK"), Some(FIRST_KEYWORD));
        assert_eq!(find("junk3"), None);
        let texts = all.map(|register| keywords.keyword(register.spelling).as_str().to_owned());
        assert_eq!(
            texts,
            ["junk", "Junk", "JUNK", "jUNK", "Junk2", "JUN", "$Junk"]
        );
    }
}
