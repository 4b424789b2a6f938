//! SEARCH (RFC 9051, section 6.4.4; RFC 4731, 5032, 5182, 7162, 8474, 8514, 9394).

use crate::core::{Date, Keyword, MessageSet, ModSeq, ObjectId, PartialRange};
use crate::decode::cursor::{Cursor, Refusal};

/// SEARCH and UID SEARCH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// Answer with UIDs.
    pub uid: bool,
    /// `RETURN (...)`; `None` without it. `RETURN ()` is `ALL` (RFC 4731, section 3.1).
    pub returns: Option<SearchReturn>,
    /// `CHARSET`, in upper case. Strings are as sent, in this charset; without it in UTF-8.
    pub charset: Option<String>,
    /// What to find; an `And` when several keys were given.
    pub key: SearchKey,
}

/// What SEARCH answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SearchReturn {
    /// `MIN`
    pub min: bool,
    /// `MAX`
    pub max: bool,
    /// `ALL`
    pub all: bool,
    /// `COUNT`
    pub count: bool,
    /// `SAVE` (RFC 5182)
    pub save: bool,
    /// `PARTIAL` (RFC 9394): never together with `all`.
    pub partial: Option<PartialRange>,
}

/// One search key. The depth of the tree is at most `Limits::nesting_depth_max`: chains of OR and lists in lists are flattened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SearchKey {
    /// All of these; never empty.
    And(Vec<SearchKey>),
    /// Any of these; at least two.
    Or(Vec<SearchKey>),
    /// Not this.
    Not(Box<SearchKey>),
    /// Sequence numbers.
    Sequence(MessageSet),
    /// `UID`
    Uid(MessageSet),
    /// `ALL`
    All,
    /// `ANSWERED`
    Answered,
    /// `BCC`
    Bcc(Vec<u8>),
    /// `BEFORE`
    Before(Date),
    /// `BODY`
    Body(Vec<u8>),
    /// `CC`
    Cc(Vec<u8>),
    /// `DELETED`
    Deleted,
    /// `DRAFT`
    Draft,
    /// `FLAGGED`
    Flagged,
    /// `EMAILID` (RFC 8474)
    EmailId(ObjectId),
    /// `FROM`
    From(Vec<u8>),
    /// `HEADER`: field name and text (empty: the field is there).
    Header(String, Vec<u8>),
    /// `KEYWORD`
    Keyword(Keyword),
    /// `LARGER`
    Larger(u64),
    /// `MODSEQ` (RFC 7162, section 3.1.5); the entry it may name has no meaning here, as all metadata have one.
    ModSeq(ModSeq),
    /// `NEW` (rev1): recent and unseen.
    New,
    /// `OLD` (rev1): not recent.
    Old,
    /// `OLDER` (RFC 5032): received at least so many seconds ago.
    Older(u32),
    /// `ON`
    On(Date),
    /// `RECENT` (rev1)
    Recent,
    /// `SAVEDATESUPPORTED` (RFC 8514)
    SaveDateSupported,
    /// `SAVEDBEFORE` (RFC 8514)
    SavedBefore(Date),
    /// `SAVEDON` (RFC 8514)
    SavedOn(Date),
    /// `SAVEDSINCE` (RFC 8514)
    SavedSince(Date),
    /// `SEEN`
    Seen,
    /// `SENTBEFORE`
    SentBefore(Date),
    /// `SENTON`
    SentOn(Date),
    /// `SENTSINCE`
    SentSince(Date),
    /// `SINCE`
    Since(Date),
    /// `SMALLER`
    Smaller(u64),
    /// `SUBJECT`
    Subject(Vec<u8>),
    /// `TEXT`
    Text(Vec<u8>),
    /// `THREADID` (RFC 8474)
    ThreadId(ObjectId),
    /// `TO`
    To(Vec<u8>),
    /// `UNANSWERED`
    Unanswered,
    /// `UNDELETED`
    Undeleted,
    /// `UNDRAFT`
    Undraft,
    /// `UNFLAGGED`
    Unflagged,
    /// `UNKEYWORD`
    Unkeyword(Keyword),
    /// `UNSEEN`
    Unseen,
    /// `YOUNGER` (RFC 5032): received at most so many seconds ago.
    Younger(u32),
}

impl SearchKey {
    /// Whether a key names messages by sequence number. Recursion is as deep as the tree, which the parser limits.
    pub fn has_numbers(&self) -> bool {
        match self {
            Self::Sequence(set) => set.numbers().is_some(),
            Self::And(keys) | Self::Or(keys) => keys.iter().any(Self::has_numbers),
            Self::Not(key) => key.has_numbers(),
            _ => false,
        }
    }

    /// Has `*` in every set of UIDs mean `largest` ([`SequenceSet::pin`]). Recursion as there.
    pub fn pin_uids(&mut self, largest: u32) {
        match self {
            Self::Uid(set) => set.pin(largest),
            Self::And(keys) | Self::Or(keys) => {
                keys.iter_mut().for_each(|key| key.pin_uids(largest));
            }
            Self::Not(key) => key.pin_uids(largest),
            _ => {}
        }
    }
}

/// `"SEARCH" [SP "RETURN" SP "(" [option *(SP option)] ")"] SP ["CHARSET" SP charset SP] search-key *(SP search-key)`
pub(crate) fn parse(c: &mut Cursor<'_>, uid: bool) -> Result<Search, Refusal> {
    c.space()?;
    let returns = if c.skip_word(b"RETURN") {
        c.space()?;
        let options = options(c)?;
        c.space()?;
        Some(options)
    } else {
        None
    };
    let charset = if c.skip_word(b"CHARSET") {
        c.space()?;
        let charset = c.astring_text()?.to_ascii_uppercase();
        c.space()?;
        Some(charset)
    } else {
        None
    };
    Ok(Search {
        uid,
        returns,
        charset,
        key: keys(c)?,
    })
}

pub(super) fn options(c: &mut Cursor<'_>) -> Result<SearchReturn, Refusal> {
    c.open()?;
    let mut options = SearchReturn::default();
    if c.skip(b')') {
        // "an empty list of result options ... is equivalent to ALL" (RFC 4731, section 3.1).
        return Ok(SearchReturn {
            all: true,
            ..options
        });
    }
    loop {
        if options.partial.is_none() && c.skip_word(b"PARTIAL") {
            c.space()?;
            options.partial = Some(c.partial_range()?);
            if c.more()? {
                continue;
            }
            break;
        }
        let option = match () {
            () if c.skip_word(b"MIN") => &mut options.min,
            () if c.skip_word(b"MAX") => &mut options.max,
            () if c.skip_word(b"ALL") => &mut options.all,
            () if c.skip_word(b"COUNT") => &mut options.count,
            () if c.skip_word(b"SAVE") => &mut options.save,
            () => return Err("unknown SEARCH return option"),
        };
        *option = true;
        if !c.more()? {
            break;
        }
    }
    // "A single command MUST NOT contain more than one PARTIAL or ALL search return option" (RFC 9394, section 3.1).
    if options.all && options.partial.is_some() {
        return Err("either ALL or PARTIAL");
    }
    Ok(options)
}

/// What is open while keys are read. Depth is that of the tree, not of the text: an OR within an OR asks the same one for one
/// more key, NOT NOT is nothing.
enum Open {
    /// The whole program.
    Program(Vec<SearchKey>),
    List(Vec<SearchKey>),
    Or {
        keys: Vec<SearchKey>,
        wanted: usize,
    },
    Not,
}

/// The keys up to the end of the command.
pub(super) fn keys(c: &mut Cursor<'_>) -> Result<SearchKey, Refusal> {
    let mut open = vec![Open::Program(Vec::new())];
    let mut count = 0;
    loop {
        if open.len() > c.limits.nesting_depth_max {
            return Err("SEARCH is nested too deep");
        }
        if c.skip(b'(') {
            open.push(Open::List(Vec::new()));
            continue;
        }
        if c.skip_word(b"OR") {
            match open.last_mut() {
                Some(Open::Or { wanted, .. }) => *wanted += 1,
                _ => open.push(Open::Or {
                    keys: Vec::new(),
                    wanted: 2,
                }),
            }
            c.space()?;
            continue;
        }
        if c.skip_word(b"NOT") {
            match open.last() {
                Some(Open::Not) => drop(open.pop()),
                _ => open.push(Open::Not),
            }
            c.space()?;
            continue;
        }
        count += 1;
        if count > c.limits.search_keys_max {
            return Err("too many search keys");
        }
        let key = simple(c)?;
        if let Some(program) = close(c, &mut open, key)? {
            return Ok(program);
        }
    }
}

/// Puts a key where it belongs and ends what ends with it; gives the program at the end of the command.
fn close(
    c: &mut Cursor<'_>,
    open: &mut Vec<Open>,
    mut key: SearchKey,
) -> Result<Option<SearchKey>, Refusal> {
    loop {
        match open.pop() {
            Some(Open::Not) => {
                key = match key {
                    SearchKey::Not(inner) => *inner,
                    key => SearchKey::Not(Box::new(key)),
                };
            }
            Some(Open::Or { mut keys, wanted }) => {
                match key {
                    SearchKey::Or(inner) => keys.extend(inner),
                    key => keys.push(key),
                }
                if wanted == 1 {
                    key = SearchKey::Or(keys);
                } else {
                    open.push(Open::Or {
                        keys,
                        wanted: wanted - 1,
                    });
                    c.space()?;
                    return Ok(None);
                }
            }
            Some(Open::List(mut keys)) => {
                add(&mut keys, key);
                if c.more()? {
                    open.push(Open::List(keys));
                    return Ok(None);
                }
                key = all_of(keys);
            }
            Some(Open::Program(mut keys)) => {
                add(&mut keys, key);
                if c.is_at_end() {
                    return Ok(Some(all_of(keys)));
                }
                c.space()?;
                open.push(Open::Program(keys));
                return Ok(None);
            }
            None => return Err("unexpected text after the command"),
        }
    }
}

fn add(keys: &mut Vec<SearchKey>, key: SearchKey) {
    match key {
        SearchKey::And(inner) => keys.extend(inner),
        key => keys.push(key),
    }
}

fn all_of(mut keys: Vec<SearchKey>) -> SearchKey {
    match keys.len() {
        1 => keys.remove(0),
        _ => SearchKey::And(keys),
    }
}

/// A key that holds no other.
fn simple(c: &mut Cursor<'_>) -> Result<SearchKey, Refusal> {
    if c.set_is_next() {
        return c.message_set().map(SearchKey::Sequence);
    }
    // The longest is SAVEDATESUPPORTED.
    let mut upper = [0; 17];
    let word = c.atom().map_err(|_| "expected a search key")?;
    let upper = upper.get_mut(..word.len()).ok_or("unknown search key")?;
    upper.copy_from_slice(word);
    upper.make_ascii_uppercase();
    let text = |c: &mut Cursor<'_>| c.space().and_then(|()| c.astring());
    let date = |c: &mut Cursor<'_>| c.space().and_then(|()| c.date());
    let number = |c: &mut Cursor<'_>| c.space().and_then(|()| c.number64());
    let interval = |c: &mut Cursor<'_>| c.space().and_then(|()| c.nz_number());
    let object_id = |c: &mut Cursor<'_>| c.space().and_then(|()| c.object_id());
    let keyword = |c: &mut Cursor<'_>| {
        c.space()?;
        Keyword::new(c.atom()?).ok_or("keyword is too long")
    };
    Ok(match &*upper {
        b"ALL" => SearchKey::All,
        b"ANSWERED" => SearchKey::Answered,
        b"BCC" => SearchKey::Bcc(text(c)?),
        b"BEFORE" => SearchKey::Before(date(c)?),
        b"BODY" => SearchKey::Body(text(c)?),
        b"CC" => SearchKey::Cc(text(c)?),
        b"DELETED" => SearchKey::Deleted,
        b"DRAFT" => SearchKey::Draft,
        b"FLAGGED" => SearchKey::Flagged,
        b"EMAILID" => SearchKey::EmailId(object_id(c)?),
        b"FROM" => SearchKey::From(text(c)?),
        b"HEADER" => {
            c.space()?;
            let name = c.field_name()?;
            SearchKey::Header(name, text(c)?)
        }
        b"KEYWORD" => SearchKey::Keyword(keyword(c)?),
        b"LARGER" => SearchKey::Larger(number(c)?),
        b"MODSEQ" => SearchKey::ModSeq(mod_seq(c)?),
        b"NEW" => SearchKey::New,
        b"OLD" => SearchKey::Old,
        b"OLDER" => SearchKey::Older(interval(c)?),
        b"ON" => SearchKey::On(date(c)?),
        b"RECENT" => SearchKey::Recent,
        b"SAVEDATESUPPORTED" => SearchKey::SaveDateSupported,
        b"SAVEDBEFORE" => SearchKey::SavedBefore(date(c)?),
        b"SAVEDON" => SearchKey::SavedOn(date(c)?),
        b"SAVEDSINCE" => SearchKey::SavedSince(date(c)?),
        b"SEEN" => SearchKey::Seen,
        b"SENTBEFORE" => SearchKey::SentBefore(date(c)?),
        b"SENTON" => SearchKey::SentOn(date(c)?),
        b"SENTSINCE" => SearchKey::SentSince(date(c)?),
        b"SINCE" => SearchKey::Since(date(c)?),
        b"SMALLER" => SearchKey::Smaller(number(c)?),
        b"SUBJECT" => SearchKey::Subject(text(c)?),
        b"TEXT" => SearchKey::Text(text(c)?),
        b"THREADID" => SearchKey::ThreadId(object_id(c)?),
        b"TO" => SearchKey::To(text(c)?),
        b"UID" => {
            c.space()?;
            SearchKey::Uid(c.message_set()?)
        }
        b"UNANSWERED" => SearchKey::Unanswered,
        b"UNDELETED" => SearchKey::Undeleted,
        b"UNDRAFT" => SearchKey::Undraft,
        b"UNFLAGGED" => SearchKey::Unflagged,
        b"UNKEYWORD" => SearchKey::Unkeyword(keyword(c)?),
        b"UNSEEN" => SearchKey::Unseen,
        b"YOUNGER" => SearchKey::Younger(interval(c)?),
        _ => return Err("unknown search key"),
    })
}

/// `[SP entry-name SP entry-type-req] SP mod-sequence-valzer` (RFC 7162, section 3.1.5)
fn mod_seq(c: &mut Cursor<'_>) -> Result<ModSeq, Refusal> {
    c.space()?;
    if c.peek() == Some(b'"') {
        if !c.string()?.to_ascii_lowercase().starts_with(b"/flags/") {
            return Err("unknown metadata entry");
        }
        c.space()?;
        if !(c.skip_word(b"PRIV") || c.skip_word(b"SHARED") || c.skip_word(b"ALL")) {
            return Err("expected priv, shared or all");
        }
        c.space()?;
    }
    c.mod_seq(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CommandBody;
    use crate::core::SequenceSet;
    use crate::testing::{check, parse, refuse};
    use SearchKey::{And, Deleted, Flagged, Not, Or, Seen};

    #[track_caller]
    fn check_key(input: &str, key: SearchKey) {
        check(
            &format!("SEARCH {input}"),
            CommandBody::Search(Search {
                uid: false,
                returns: None,
                charset: None,
                key,
            }),
        );
    }

    #[track_caller]
    fn refuse_key(input: &str, text: &str) {
        refuse(&format!("SEARCH {input}"), text);
    }

    fn numbers(text: &str) -> MessageSet {
        MessageSet::Numbers(SequenceSet::parse(text.as_bytes(), 99).unwrap())
    }

    #[test]
    fn simple_keys() {
        let date = Date::new(1994, 2, 1).unwrap();
        check_key("ALL", SearchKey::All);
        check_key("unseen", SearchKey::Unseen);
        check_key("NEW", SearchKey::New);
        check_key("2:4,*", SearchKey::Sequence(numbers("2:4,*")));
        check_key("$", SearchKey::Sequence(MessageSet::Saved));
        check_key("UID $", SearchKey::Uid(MessageSet::Saved));
        check_key("UID 1:5", SearchKey::Uid(numbers("1:5")));
        check_key("SINCE 1-Feb-1994", SearchKey::Since(date));
        check_key("SENTON \"01-feb-1994\"", SearchKey::SentOn(date));
        check_key("FROM Smith", SearchKey::From(b"Smith".to_vec()));
        check_key("TEXT \"a \\\"b\"", SearchKey::Text(b"a \"b".to_vec()));
        check_key(
            "SUBJECT {2}\r\n\u{fc}",
            SearchKey::Subject("ü".as_bytes().to_vec()),
        );
        check_key("BODY \"\"", SearchKey::Body(vec![]));
        check_key(
            "HEADER Message-ID <a@b>",
            SearchKey::Header("Message-ID".into(), b"<a@b>".to_vec()),
        );
        check_key("HEADER X-A \"\"", SearchKey::Header("X-A".into(), vec![]));
        check_key(
            "KEYWORD $Junk",
            SearchKey::Keyword(Keyword::new(b"$Junk").unwrap()),
        );
        check_key(
            "UNKEYWORD a",
            SearchKey::Unkeyword(Keyword::new(b"a").unwrap()),
        );
        check_key("LARGER 0", SearchKey::Larger(0));
        check_key(
            "SMALLER 9223372036854775807",
            SearchKey::Smaller(i64::MAX as u64),
        );
        // RFC 7162, section 3.1.5.
        check_key(
            "MODSEQ \"/flags/\\\\draft\" all 620162338",
            SearchKey::ModSeq(620_162_338),
        );
        check_key("MODSEQ 0", SearchKey::ModSeq(0));
        // RFC 8474, section 6; RFC 8514, section 4.3.
        let id = |text: &str| ObjectId::new(text.as_bytes()).unwrap();
        check_key("EMAILID M6d99-a_C", SearchKey::EmailId(id("M6d99-a_C")));
        check_key("threadid T64", SearchKey::ThreadId(id("T64")));
        check_key("SAVEDON 1-Feb-1994", SearchKey::SavedOn(date));
        check_key("SAVEDBEFORE 1-Feb-1994", SearchKey::SavedBefore(date));
        check_key("SAVEDSINCE 1-Feb-1994", SearchKey::SavedSince(date));
        check_key("SaveDateSupported", SearchKey::SaveDateSupported);
        refuse_key("EMAILID", "expected a space");
        refuse_key("EMAILID )", "invalid object identifier");
        refuse_key("EMAILID a.b", "expected a space");
        check_key("OLDER 1", SearchKey::Older(1));
        check_key("younger 4294967295", SearchKey::Younger(u32::MAX));
        refuse_key("", "expected a search key");
        refuse_key("FOO", "unknown search key");
        refuse_key("FOOFOOFOOFOOFOOFOO", "unknown search key");
        refuse_key("FROM", "expected a space");
        refuse_key("SINCE 30-Feb-1994", "invalid date");
        refuse_key("SINCE \"1-Feb-1994", "invalid date");
        refuse_key("KEYWORD \\Seen", "expected an atom");
        refuse_key("LARGER x", "expected a number");
        refuse_key("MODSEQ \"/x/y\" all 1", "unknown metadata entry");
        refuse_key("MODSEQ \"/flags/x\" foo 1", "expected priv, shared or all");
        refuse_key("OLDER 0", "number must not be zero");
        refuse_key("YOUNGER 4294967296", "number is too large");
        refuse_key("YOUNGER", "expected a space");
        refuse_key("UID", "expected a space");
        refuse_key("UID x", "invalid sequence set");
        refuse_key("HEADER a:b c", "invalid name of a header field");
    }

    #[test]
    fn trees() {
        check_key("SEEN DELETED", And(vec![Seen, Deleted]));
        check_key("(SEEN DELETED) FLAGGED", And(vec![Seen, Deleted, Flagged]));
        check_key("((SEEN))", Seen);
        check_key("NOT SEEN", Not(Box::new(Seen)));
        check_key("NOT NOT SEEN", Seen);
        check_key("NOT (NOT SEEN)", Seen);
        check_key(
            "NOT (SEEN DELETED)",
            Not(Box::new(And(vec![Seen, Deleted]))),
        );
        check_key("OR SEEN DELETED", Or(vec![Seen, Deleted]));
        check_key(
            "OR OR SEEN DELETED FLAGGED",
            Or(vec![Seen, Deleted, Flagged]),
        );
        check_key(
            "OR SEEN OR DELETED FLAGGED",
            Or(vec![Seen, Deleted, Flagged]),
        );
        check_key(
            "OR (OR SEEN DELETED) FLAGGED",
            Or(vec![Seen, Deleted, Flagged]),
        );
        check_key(
            "OR SEEN (DELETED FLAGGED)",
            Or(vec![Seen, And(vec![Deleted, Flagged])]),
        );
        check_key(
            "OR NOT SEEN DELETED FLAGGED",
            And(vec![Or(vec![Not(Box::new(Seen)), Deleted]), Flagged]),
        );
        check_key(
            "OR SEEN NOT OR DELETED FLAGGED",
            Or(vec![Seen, Not(Box::new(Or(vec![Deleted, Flagged])))]),
        );
        refuse_key("OR SEEN", "expected a space");
        refuse_key("NOT", "expected a space");
        refuse_key("NOT ", "expected a search key");
        refuse_key("(SEEN", "expected )");
        refuse_key("()", "expected a search key");
        refuse_key("SEEN)", "expected a space");
        refuse_key("(SEEN))", "expected a space");
    }

    #[test]
    fn numbers_are_found() {
        let check = |input: &str, expected| {
            let Ok(CommandBody::Search(search)) =
                parse(format!("SEARCH {input}").as_bytes(), false)
            else {
                panic!("{input}")
            };
            assert_eq!(search.key.has_numbers(), expected, "{input}");
        };
        check("SEEN UID 1:5 $", false);
        check("1:5", true);
        check("SEEN OR SEEN NOT (DELETED 1)", true);
    }

    #[test]
    fn long_chains_are_shallow_and_depth_is_bounded() {
        let chain = format!("{}DELETED", "OR SEEN ".repeat(4_000));
        let Ok(CommandBody::Search(search)) = parse(format!("SEARCH {chain}").as_bytes(), false)
        else {
            panic!()
        };
        assert!(matches!(search.key, Or(keys) if keys.len() == 4_001));
        check_key(&format!("{}SEEN", "NOT ".repeat(40_000)), Seen);
        refuse_key(
            &format!("{}SEEN", "SEEN ".repeat(4_096)),
            "too many search keys",
        );
        check_key(&format!("{}SEEN{}", "(".repeat(31), ")".repeat(31)), Seen);
        refuse_key(
            &format!("{}SEEN{}", "(".repeat(32), ")".repeat(32)),
            "SEARCH is nested too deep",
        );
        refuse_key(&"(".repeat(200_000), "SEARCH is nested too deep");
        refuse_key(&"OR NOT ".repeat(10_000), "SEARCH is nested too deep");
    }

    #[test]
    fn options() {
        let search = |returns: Option<SearchReturn>, charset: Option<&str>| {
            CommandBody::Search(Search {
                uid: true,
                returns,
                charset: charset.map(Into::into),
                key: Seen,
            })
        };
        let none = SearchReturn::default();
        check("UID SEARCH SEEN", search(None, None));
        check(
            "UID SEARCH RETURN () SEEN",
            search(Some(SearchReturn { all: true, ..none }), None),
        );
        check(
            "UID SEARCH RETURN (SAVE) SEEN",
            search(Some(SearchReturn { save: true, ..none }), None),
        );
        check(
            "UID SEARCH RETURN (MIN MAX all COUNT) CHARSET utf-8 SEEN",
            search(
                Some(SearchReturn {
                    min: true,
                    max: true,
                    all: true,
                    count: true,
                    save: false,
                    partial: None,
                }),
                Some("UTF-8"),
            ),
        );
        check(
            "UID SEARCH CHARSET \"KOI8-R\" SEEN",
            search(None, Some("KOI8-R")),
        );
        let partial = |first, last, from_end| SearchReturn {
            partial: Some(PartialRange {
                first,
                last,
                from_end,
            }),
            ..none
        };
        // RFC 9394, section 3.1.
        check(
            "UID SEARCH RETURN (PARTIAL -1:-100) SEEN",
            search(Some(partial(1, 100, true)), None),
        );
        check(
            "UID SEARCH RETURN (partial 500:400 SAVE) SEEN",
            search(
                Some(SearchReturn {
                    save: true,
                    ..partial(500, 400, false)
                }),
                None,
            ),
        );
        for bad in ["1:-5", "-1:5", "1", "1:", "*:5"] {
            let text = format!("SEARCH RETURN (PARTIAL {bad}) SEEN");
            let Err(text) = parse(text.as_bytes(), false) else {
                panic!("{bad}")
            };
            assert!(
                text.contains("PARTIAL") || text.contains("number"),
                "{bad}: {text}"
            );
        }
        refuse(
            "SEARCH RETURN (PARTIAL 0:5) SEEN",
            "number must not be zero",
        );
        refuse(
            "SEARCH RETURN (ALL PARTIAL 1:5) SEEN",
            "either ALL or PARTIAL",
        );
        refuse(
            "SEARCH RETURN (PARTIAL 1:5 PARTIAL 1:5) SEEN",
            "unknown SEARCH return option",
        );
        refuse("SEARCH RETURN (FOO) SEEN", "unknown SEARCH return option");
        refuse("SEARCH RETURN SEEN", "expected (");
        refuse("SEARCH CHARSET UTF-8", "expected a space");
        refuse("SEARCH", "expected a space");
    }
}
