//! SORT and THREAD (RFC 5256; RFC 5957 for DISPLAYFROM and DISPLAYTO; RFC 5267, section 3, for `RETURN`).

use super::search::{SearchKey, SearchReturn, keys, options};
use crate::decode::cursor::{Cursor, Refusal};

/// SORT and UID SORT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sort {
    /// Answer with UIDs.
    pub uid: bool,
    /// `RETURN (...)` (ESORT; PARTIAL as RFC 5267, section 4.4, has it; SAVE); `None` without it. `RETURN ()` is `ALL`.
    pub returns: Option<SearchReturn>,
    /// By what, the first one first; at least one, each key once: a key has no say after itself.
    pub criteria: Vec<SortCriterion>,
    /// In upper case. Strings are as sent, in this charset.
    pub charset: String,
    /// What to sort; an `And` when several keys were given.
    pub key: SearchKey,
}

/// One criterion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortCriterion {
    /// `REVERSE`: descending.
    pub reverse: bool,
    /// By what.
    pub key: SortKey,
}

/// What messages are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// `ARRIVAL`: internal date and time.
    Arrival,
    /// `CC`: addr-mailbox of the first Cc address.
    Cc,
    /// `DATE`: sent date and time.
    Date,
    /// `DISPLAYFROM`: what is shown of the first From address.
    DisplayFrom,
    /// `DISPLAYTO`: what is shown of the first To address.
    DisplayTo,
    /// `FROM`: addr-mailbox of the first From address.
    From,
    /// `SIZE`
    Size,
    /// `SUBJECT`: base subject.
    Subject,
    /// `TO`: addr-mailbox of the first To address.
    To,
}

impl SortKey {
    /// All of them, by name.
    const NAMES: [(&'static str, SortKey); 9] = [
        ("ARRIVAL", SortKey::Arrival),
        ("CC", SortKey::Cc),
        ("DATE", SortKey::Date),
        ("DISPLAYFROM", SortKey::DisplayFrom),
        ("DISPLAYTO", SortKey::DisplayTo),
        ("FROM", SortKey::From),
        ("SIZE", SortKey::Size),
        ("SUBJECT", SortKey::Subject),
        ("TO", SortKey::To),
    ];

    pub(crate) fn name(self) -> &'static str {
        SortKey::NAMES
            .iter()
            .find(|(_, key)| *key == self)
            .map_or("", |(name, _)| name)
    }
}

/// THREAD and UID THREAD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Answer with UIDs.
    pub uid: bool,
    /// How.
    pub algorithm: ThreadAlgorithm,
    /// In upper case. Strings are as sent, in this charset.
    pub charset: String,
    /// What to thread; an `And` when several keys were given.
    pub key: SearchKey,
}

/// How messages are threaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadAlgorithm {
    /// `ORDEREDSUBJECT`
    OrderedSubject,
    /// `REFERENCES`
    References,
}

/// `"SORT" [SP "RETURN" SP "(" [option *(SP option)] ")"] SP "(" sort-criterion *(SP sort-criterion) ")" SP charset 1*(SP search-key)`
pub(crate) fn sort(c: &mut Cursor<'_>, uid: bool) -> Result<Sort, Refusal> {
    c.space()?;
    let returns = if c.skip_word(b"RETURN") {
        c.space()?;
        let options = options(c)?;
        c.space()?;
        Some(options)
    } else {
        None
    };
    let criteria = criteria(c)?;
    let (charset, key) = program(c)?;
    Ok(Sort {
        uid,
        returns,
        criteria,
        charset,
        key,
    })
}

/// `"THREAD" SP thread-alg SP charset 1*(SP search-key)`
pub(crate) fn thread(c: &mut Cursor<'_>, uid: bool) -> Result<Thread, Refusal> {
    c.space()?;
    let algorithm = if c.skip_word(b"REFERENCES") {
        ThreadAlgorithm::References
    } else if c.skip_word(b"ORDEREDSUBJECT") {
        ThreadAlgorithm::OrderedSubject
    } else {
        return Err("unknown threading algorithm");
    };
    let (charset, key) = program(c)?;
    Ok(Thread {
        uid,
        algorithm,
        charset,
        key,
    })
}

fn criteria(c: &mut Cursor<'_>) -> Result<Vec<SortCriterion>, Refusal> {
    c.open()?;
    let mut criteria: Vec<SortCriterion> = Vec::new();
    loop {
        let reverse = c.skip_word(b"REVERSE");
        if reverse {
            c.space()?;
        }
        let found = SortKey::NAMES
            .iter()
            .find(|(name, _)| c.skip_word(name.as_bytes()));
        let Some(&(_, key)) = found else {
            return Err("unknown sort criterion");
        };
        if criteria.iter().all(|criterion| criterion.key != key) {
            criteria.push(SortCriterion { reverse, key });
        }
        if !c.more()? {
            return Ok(criteria);
        }
    }
}

/// `SP charset 1*(SP search-key)`
fn program(c: &mut Cursor<'_>) -> Result<(String, SearchKey), Refusal> {
    c.space()?;
    let charset = c.astring_text()?.to_ascii_uppercase();
    c.space()?;
    Ok((charset, keys(c)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CommandBody;
    use crate::testing::{check, refuse};

    fn by(key: SortKey) -> SortCriterion {
        SortCriterion {
            reverse: false,
            key,
        }
    }

    fn reverse(key: SortKey) -> SortCriterion {
        SortCriterion { reverse: true, key }
    }

    #[test]
    fn sorts() {
        let sort = |uid, returns, criteria: &[SortCriterion], charset: &str, key| {
            CommandBody::Sort(Sort {
                uid,
                returns,
                criteria: criteria.to_vec(),
                charset: charset.into(),
                key,
            })
        };
        check(
            "SORT (SUBJECT) utf-8 ALL",
            sort(
                false,
                None,
                &[by(SortKey::Subject)],
                "UTF-8",
                SearchKey::All,
            ),
        );
        check(
            "UID SORT (reverse date SUBJECT Reverse ARRIVAL) US-ASCII UNSEEN DELETED",
            sort(
                true,
                None,
                &[
                    reverse(SortKey::Date),
                    by(SortKey::Subject),
                    reverse(SortKey::Arrival),
                ],
                "US-ASCII",
                SearchKey::And(vec![SearchKey::Unseen, SearchKey::Deleted]),
            ),
        );
        for (name, key) in SortKey::NAMES {
            check(
                &format!("SORT ({name}) \"UTF-8\" ALL"),
                sort(false, None, &[by(key)], "UTF-8", SearchKey::All),
            );
        }
        let returns = SearchReturn {
            min: true,
            count: true,
            ..SearchReturn::default()
        };
        check(
            "SORT RETURN (MIN COUNT) (SIZE) UTF-8 TEXT x",
            sort(
                false,
                Some(returns),
                &[by(SortKey::Size)],
                "UTF-8",
                SearchKey::Text(b"x".to_vec()),
            ),
        );
        let save = SearchReturn {
            save: true,
            max: true,
            ..SearchReturn::default()
        };
        check(
            "SORT RETURN (save MAX) (SIZE) UTF-8 ALL",
            sort(
                false,
                Some(save),
                &[by(SortKey::Size)],
                "UTF-8",
                SearchKey::All,
            ),
        );
        let all = SearchReturn {
            all: true,
            ..SearchReturn::default()
        };
        check(
            "UID SORT RETURN () (SIZE) UTF-8 ALL",
            sort(
                true,
                Some(all),
                &[by(SortKey::Size)],
                "UTF-8",
                SearchKey::All,
            ),
        );
    }

    #[test]
    fn a_key_counts_once() {
        let CommandBody::Sort(sort) = crate::testing::parse(
            format!(
                "SORT ({}SIZE) UTF-8 ALL",
                "DATE REVERSE DATE ".repeat(5_000)
            )
            .as_bytes(),
            false,
        )
        .unwrap() else {
            panic!()
        };
        assert_eq!(sort.criteria, [by(SortKey::Date), by(SortKey::Size)]);
    }

    #[test]
    fn threads() {
        let thread = |uid, algorithm, charset: &str, key| {
            CommandBody::Thread(Thread {
                uid,
                algorithm,
                charset: charset.into(),
                key,
            })
        };
        check(
            "THREAD REFERENCES UTF-8 ALL",
            thread(false, ThreadAlgorithm::References, "UTF-8", SearchKey::All),
        );
        check(
            "uid thread orderedsubject {5}\r\nutf-8 NOT SEEN",
            thread(
                true,
                ThreadAlgorithm::OrderedSubject,
                "UTF-8",
                SearchKey::Not(Box::new(SearchKey::Seen)),
            ),
        );
    }

    #[test]
    fn refused() {
        refuse("SORT", "expected a space");
        refuse("SORT ALL", "expected (");
        refuse("SORT () UTF-8 ALL", "unknown sort criterion");
        refuse("SORT (REVERSE) UTF-8 ALL", "expected a space");
        refuse(
            "SORT (REVERSE REVERSE DATE) UTF-8 ALL",
            "unknown sort criterion",
        );
        refuse("SORT (BCC) UTF-8 ALL", "unknown sort criterion");
        refuse("SORT (DATE) ALL", "expected a space");
        refuse("SORT (DATE) UTF-8", "expected a space");
        refuse("SORT (DATE UTF-8 ALL", "unknown sort criterion");
        refuse("THREAD", "expected a space");
        refuse("THREAD REFS UTF-8 ALL", "unknown threading algorithm");
        refuse("THREAD REFERENCES UTF-8", "expected a space");
        refuse("THREAD REFERENCES UTF-8 FOO", "unknown search key");
    }
}
