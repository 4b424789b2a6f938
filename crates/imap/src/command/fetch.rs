//! FETCH (RFC 9051, section 6.4.5; RFC 3516 for BINARY; RFC 7162 for its modifiers; RFC 8474, 8514, 9394).

use crate::core::{MessageSet, ModSeq, PartialRange};
use crate::decode::cursor::{Cursor, Refusal};

/// FETCH and UID FETCH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Numbers are UIDs. The UID item is then among the items, asked for or not (section 6.4.9).
    pub uid: bool,
    /// Which messages.
    pub set: MessageSet,
    /// What is asked, macros expanded, without repetitions; at least one.
    pub items: Vec<FetchItem>,
    /// `(CHANGEDSINCE n)`. The MODSEQ item is then among the items (RFC 7162, section 3.1.4.1).
    pub changed_since: Option<ModSeq>,
    /// `VANISHED` (RFC 7162, section 3.2.6); only with `uid` and `changed_since`.
    pub vanished: bool,
    /// `PARTIAL` (RFC 9394, section 3.3); only with `uid`: only these of the messages that the set names.
    pub partial: Option<PartialRange>,
}

/// One data item.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FetchItem {
    /// `BINARY[...]` and `BINARY.PEEK[...]`: the octets of a part, its transfer encoding undone.
    Binary {
        /// Part numbers, each at least 1; empty for the message itself.
        part: Vec<u32>,
        /// `<offset.length>`, counted in decoded octets.
        partial: Option<Partial>,
        /// `.PEEK`: `\Seen` is not set.
        peek: bool,
    },
    /// `BINARY.SIZE[...]`: how many octets BINARY has.
    BinarySize {
        /// As in BINARY.
        part: Vec<u32>,
    },
    /// `BODY`: BODYSTRUCTURE without extension data.
    Body,
    /// `BODYSTRUCTURE`
    BodyStructure,
    /// `EMAILID` (RFC 8474)
    EmailId,
    /// `ENVELOPE`
    Envelope,
    /// `FLAGS`
    Flags,
    /// `INTERNALDATE`
    InternalDate,
    /// `MODSEQ` (RFC 7162)
    ModSeq,
    /// `PREVIEW` (RFC 8970)
    Preview {
        /// `(LAZY)`: only if it is at hand.
        lazy: bool,
    },
    /// `RFC822` (rev1): BODY[] under another name; sets `\Seen`.
    Rfc822,
    /// `RFC822.HEADER` (rev1): does not set `\Seen`.
    Rfc822Header,
    /// `RFC822.SIZE`
    Rfc822Size,
    /// `RFC822.TEXT` (rev1); sets `\Seen`.
    Rfc822Text,
    /// `SAVEDATE` (RFC 8514)
    SaveDate,
    /// `BODY[...]` and `BODY.PEEK[...]`
    Section {
        /// Which bytes.
        section: Section,
        /// `<offset.length>`
        partial: Option<Partial>,
        /// `.PEEK`: `\Seen` is not set.
        peek: bool,
    },
    /// `THREADID` (RFC 8474)
    ThreadId,
    /// `UID`
    Uid,
}

impl FetchItem {
    /// Whether answering it sets `\Seen`.
    pub fn sets_seen(&self) -> bool {
        match self {
            Self::Section { peek, .. } | Self::Binary { peek, .. } => !peek,
            Self::Rfc822 | Self::Rfc822Text => true,
            _ => false,
        }
    }
}

/// What stands in the brackets of `BODY[...]`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Section {
    /// Part numbers, each at least 1; empty for the message itself.
    pub part: Vec<u32>,
    /// What of the part; `None` for all of it.
    pub text: Option<SectionText>,
}

/// What of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SectionText {
    /// `HEADER`
    Header,
    /// `HEADER.FIELDS` and `HEADER.FIELDS.NOT`
    HeaderFields(HeaderFields),
    /// `TEXT`
    Text,
    /// `MIME`; only with a part.
    Mime,
}

/// A list of field names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderFields {
    /// `.NOT`: all fields but these.
    pub not: bool,
    /// As sent (the answer repeats them); printable ASCII without colon and space, at least one.
    pub names: Vec<String>,
}

/// `<offset.length>`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// First byte, from 0.
    pub offset: u64,
    /// Bytes at most, at least 1.
    pub length: u64,
}

/// `"FETCH" SP sequence-set SP ("ALL" / "FULL" / "FAST" / fetch-att / "(" fetch-att *(SP fetch-att) ")") [fetch-modifiers]`
pub(crate) fn parse(c: &mut Cursor<'_>, uid: bool) -> Result<Fetch, Refusal> {
    c.space()?;
    let set = c.message_set()?;
    c.space()?;
    let mut fetch = Fetch {
        uid,
        set,
        items: Vec::new(),
        changed_since: None,
        vanished: false,
        partial: None,
    };
    if c.skip(b'(') {
        loop {
            let item = item(c)?;
            add(c, &mut fetch.items, item)?;
            if !c.more()? {
                break;
            }
        }
    } else if !macros(c, &mut fetch.items) {
        fetch.items.push(item(c)?);
    }
    if c.skip(b' ') {
        modifiers(c, &mut fetch)?;
    }
    if uid {
        add(c, &mut fetch.items, FetchItem::Uid)?;
    }
    if fetch.changed_since.is_some() {
        add(c, &mut fetch.items, FetchItem::ModSeq)?;
    }
    Ok(fetch)
}

fn add(c: &Cursor<'_>, items: &mut Vec<FetchItem>, item: FetchItem) -> Result<(), Refusal> {
    if items.contains(&item) {
        return Ok(());
    }
    // Two more have room: the implied ones.
    if items.len() == c.limits.fetch_items_max + 2 {
        return Err("too many FETCH items");
    }
    items.push(item);
    Ok(())
}

/// "ALL, FAST, FULL ... must be used by themselves" (section 6.4.5).
fn macros(c: &mut Cursor<'_>, items: &mut Vec<FetchItem>) -> bool {
    use FetchItem::{Body, Envelope, Flags, InternalDate, Rfc822Size};
    let found: &[FetchItem] = if c.skip_word(b"ALL") {
        &[Flags, InternalDate, Rfc822Size, Envelope]
    } else if c.skip_word(b"FAST") {
        &[Flags, InternalDate, Rfc822Size]
    } else if c.skip_word(b"FULL") {
        &[Flags, InternalDate, Rfc822Size, Envelope, Body]
    } else {
        return false;
    };
    items.extend_from_slice(found);
    true
}

fn item(c: &mut Cursor<'_>) -> Result<FetchItem, Refusal> {
    let mut upper = [0; 16];
    let word = c.run(|b| b.is_ascii_alphanumeric() || b == b'.');
    let upper = upper.get_mut(..word.len()).ok_or("unknown FETCH item")?;
    upper.copy_from_slice(word);
    upper.make_ascii_uppercase();
    let section_is_next = c.peek() == Some(b'[');
    Ok(match (&*upper, section_is_next) {
        (b"BODY", true) => section_item(c, false)?,
        (b"BODY.PEEK", true) => section_item(c, true)?,
        (b"BODY", false) => FetchItem::Body,
        (b"BODYSTRUCTURE", false) => FetchItem::BodyStructure,
        (b"EMAILID", false) => FetchItem::EmailId,
        (b"ENVELOPE", false) => FetchItem::Envelope,
        (b"FLAGS", false) => FetchItem::Flags,
        (b"INTERNALDATE", false) => FetchItem::InternalDate,
        (b"MODSEQ", false) => FetchItem::ModSeq,
        (b"PREVIEW", false) => FetchItem::Preview { lazy: lazy(c)? },
        (b"RFC822", false) => FetchItem::Rfc822,
        (b"RFC822.HEADER", false) => FetchItem::Rfc822Header,
        (b"RFC822.SIZE", false) => FetchItem::Rfc822Size,
        (b"RFC822.TEXT", false) => FetchItem::Rfc822Text,
        (b"SAVEDATE", false) => FetchItem::SaveDate,
        (b"THREADID", false) => FetchItem::ThreadId,
        (b"UID", false) => FetchItem::Uid,
        (b"BINARY", true) => binary_item(c, false)?,
        (b"BINARY.PEEK", true) => binary_item(c, true)?,
        (b"BINARY.SIZE", true) => FetchItem::BinarySize {
            part: section_binary(c)?,
        },
        _ => return Err("unknown FETCH item"),
    })
}

/// `[SP "(" "LAZY" *(SP "LAZY") ")"]` (RFC 8970, section 6), if it is there: behind an item by itself FETCH modifiers look alike.
fn lazy(c: &mut Cursor<'_>) -> Result<bool, Refusal> {
    if !c.skip_ahead(b" (LAZY") {
        return Ok(false);
    }
    while c.more()? {
        if !c.skip_word(b"LAZY") {
            return Err("unknown PREVIEW modifier");
        }
    }
    Ok(true)
}

/// `section [partial]`
fn section_item(c: &mut Cursor<'_>, peek: bool) -> Result<FetchItem, Refusal> {
    Ok(FetchItem::Section {
        section: section(c)?,
        partial: partial(c)?,
        peek,
    })
}

/// `section-binary [partial]`
fn binary_item(c: &mut Cursor<'_>, peek: bool) -> Result<FetchItem, Refusal> {
    Ok(FetchItem::Binary {
        part: section_binary(c)?,
        partial: partial(c)?,
        peek,
    })
}

/// `section-binary = "[" [section-part] "]"`
fn section_binary(c: &mut Cursor<'_>) -> Result<Vec<u32>, Refusal> {
    c.skip(b'[');
    let (part, word_follows) = c.section_part()?;
    if word_follows && !part.is_empty() {
        return Err("invalid section");
    }
    if c.skip(b']') {
        Ok(part)
    } else {
        Err("BINARY wants numbers of a part")
    }
}

/// `partial = "<" number64 "." nz-number64 ">"`, if it is there.
fn partial(c: &mut Cursor<'_>) -> Result<Option<Partial>, Refusal> {
    let partial = if c.skip(b'<') {
        let offset = c.number64()?;
        if !c.skip(b'.') {
            return Err("expected . in partial");
        }
        let length = c.number64()?;
        if length == 0 {
            return Err("partial of no bytes");
        }
        if !c.skip(b'>') {
            return Err("expected > after partial");
        }
        Some(Partial { offset, length })
    } else {
        None
    };
    Ok(partial)
}

/// `section = "[" [section-spec] "]"`
fn section(c: &mut Cursor<'_>) -> Result<Section, Refusal> {
    c.skip(b'[');
    if c.skip(b']') {
        return Ok(Section::default());
    }
    let section = section_spec(c)?;
    if c.skip(b']') {
        Ok(section)
    } else {
        Err("expected ] after section")
    }
}

/// `section-spec`
pub(super) fn section_spec(c: &mut Cursor<'_>) -> Result<Section, Refusal> {
    let (part, word_follows) = c.section_part()?;
    let mut section = Section { part, text: None };
    if word_follows {
        let word = c
            .run(|b| b.is_ascii_alphabetic() || b == b'.')
            .to_ascii_uppercase();
        section.text = Some(match &*word {
            b"HEADER" => SectionText::Header,
            b"TEXT" => SectionText::Text,
            b"MIME" if !section.part.is_empty() => SectionText::Mime,
            b"HEADER.FIELDS" => SectionText::HeaderFields(header_fields(c, false)?),
            b"HEADER.FIELDS.NOT" => SectionText::HeaderFields(header_fields(c, true)?),
            _ => return Err("invalid section"),
        });
    }
    Ok(section)
}

/// `SP "(" header-fld-name *(SP header-fld-name) ")"`
fn header_fields(c: &mut Cursor<'_>, not: bool) -> Result<HeaderFields, Refusal> {
    c.space()?;
    c.open()?;
    let mut names = Vec::new();
    loop {
        if names.len() == c.limits.header_fields_max {
            return Err("too many header fields");
        }
        names.push(c.field_name()?);
        if !c.more()? {
            return Ok(HeaderFields { not, names });
        }
    }
}

/// `"(" "CHANGEDSINCE" SP n / "VANISHED" / "PARTIAL" SP range ... ")"` (RFC 7162, sections 3.1.4.1 and 3.2.6; RFC 9394)
fn modifiers(c: &mut Cursor<'_>, fetch: &mut Fetch) -> Result<(), Refusal> {
    c.open()?;
    loop {
        if fetch.changed_since.is_none() && c.skip_word(b"CHANGEDSINCE") {
            c.space()?;
            fetch.changed_since = Some(c.mod_seq(false)?);
        } else if !fetch.vanished && c.skip_word(b"VANISHED") {
            fetch.vanished = true;
        } else if fetch.partial.is_none() && c.skip_word(b"PARTIAL") {
            c.space()?;
            fetch.partial = Some(c.partial_range()?);
        } else {
            return Err("unknown FETCH modifier");
        }
        if !c.more()? {
            break;
        }
    }
    // "The VANISHED UID FETCH modifier MUST only be specified together with the CHANGEDSINCE UID FETCH modifier."
    if fetch.vanished && !(fetch.uid && fetch.changed_since.is_some()) {
        return Err("VANISHED wants UID FETCH and CHANGEDSINCE");
    }
    if fetch.partial.is_some() && !fetch.uid {
        return Err("PARTIAL wants UID FETCH");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CommandBody;
    use crate::core::SequenceSet;
    use crate::testing::{check, refuse};

    fn fetch(items: Vec<FetchItem>) -> Fetch {
        let set = MessageSet::Numbers(SequenceSet::from_ranges([(1, 3)]));
        Fetch {
            uid: false,
            set,
            items,
            changed_since: None,
            vanished: false,
            partial: None,
        }
    }

    fn section(part: &[u32], text: Option<SectionText>) -> FetchItem {
        FetchItem::Section {
            section: Section {
                part: part.to_vec(),
                text,
            },
            partial: None,
            peek: false,
        }
    }

    #[track_caller]
    fn check_items(input: &str, items: Vec<FetchItem>) {
        check(
            &format!("FETCH 1:3 {input}"),
            CommandBody::Fetch(fetch(items)),
        );
    }

    #[track_caller]
    fn refuse_items(input: &str, text: &str) {
        refuse(&format!("FETCH 1:3 {input}"), text);
    }

    #[test]
    fn items() {
        use FetchItem::{
            Body, BodyStructure, Envelope, Flags, InternalDate, ModSeq, Rfc822Size, Uid,
        };
        check_items("FLAGS", vec![Flags]);
        check_items("(FLAGS)", vec![Flags]);
        check_items("(flags uid FLAGS)", vec![Flags, Uid]);
        check_items("ALL", vec![Flags, InternalDate, Rfc822Size, Envelope]);
        check_items("fast", vec![Flags, InternalDate, Rfc822Size]);
        check_items(
            "FULL",
            vec![Flags, InternalDate, Rfc822Size, Envelope, Body],
        );
        check_items(
            "(BODY BODYSTRUCTURE MODSEQ)",
            vec![Body, BodyStructure, ModSeq],
        );
        check_items("RFC822", vec![FetchItem::Rfc822]);
        check_items(
            "(RFC822.HEADER RFC822.TEXT)",
            vec![FetchItem::Rfc822Header, FetchItem::Rfc822Text],
        );
        // RFC 8970, section 6.
        let preview = |lazy| FetchItem::Preview { lazy };
        check_items("PREVIEW", vec![preview(false)]);
        check_items("preview (lazy)", vec![preview(true)]);
        check_items("(PREVIEW (LAZY LAZY) UID)", vec![preview(true), Uid]);
        check_items("(UID PREVIEW)", vec![Uid, preview(false)]);
        refuse_items("PREVIEW (LAZY", "expected )");
        refuse_items("PREVIEW (LAZY EAGER)", "unknown PREVIEW modifier");
        refuse_items("PREVIEW (LAZYX)", "unknown FETCH modifier");
        refuse_items("(PREVIEW (EAGER))", "unknown FETCH item");
        refuse_items("", "unknown FETCH item");
        refuse_items("()", "unknown FETCH item");
        refuse_items("(ALL)", "unknown FETCH item");
        refuse_items("(FLAGS  UID)", "unknown FETCH item");
        refuse_items("(FLAGS UID", "expected )");
        refuse_items("FLAGS UID", "expected (");
        refuse_items("ENVELOPE[]", "unknown FETCH item");
        refuse_items("XYZZYXYZZYXYZZYXYZZY", "unknown FETCH item");
        let many: Vec<_> = (1..=259).map(|n| format!("BODY[{n}]")).collect();
        refuse_items(&format!("({})", many.join(" ")), "too many FETCH items");
    }

    #[test]
    fn sections() {
        check_items("BODY[]", vec![section(&[], None)]);
        check_items("body[1.2.3]", vec![section(&[1, 2, 3], None)]);
        check_items(
            "BODY[HEADER]",
            vec![section(&[], Some(SectionText::Header))],
        );
        check_items(
            "BODY[4.1.MIME]",
            vec![section(&[4, 1], Some(SectionText::Mime))],
        );
        check_items("BODY[1.text]", vec![section(&[1], Some(SectionText::Text))]);
        check_items(
            "BODY[1.HEADER]",
            vec![section(&[1], Some(SectionText::Header))],
        );
        let names = |not, names: &[&str]| {
            let names = names.iter().map(|&n| n.to_owned()).collect();
            Some(SectionText::HeaderFields(HeaderFields { not, names }))
        };
        check_items(
            "BODY[HEADER.FIELDS (Date From)]",
            vec![section(&[], names(false, &["Date", "From"]))],
        );
        check_items(
            "BODY[2.HEADER.FIELDS.NOT (\"X-a\")]",
            vec![section(&[2], names(true, &["X-a"]))],
        );
        check_items(
            "BODY[HEADER.FIELDS ({4}\r\nDate)]",
            vec![section(&[], names(false, &["Date"]))],
        );
        let partial = |offset, length| FetchItem::Section {
            section: Section::default(),
            partial: Some(Partial { offset, length }),
            peek: true,
        };
        check_items("BODY.PEEK[]<0.2048>", vec![partial(0, 2048)]);
        check_items(
            "BODY.PEEK[]<9223372036854775807.1>",
            vec![partial(i64::MAX as u64, 1)],
        );
        refuse_items("BODY[", "invalid section");
        refuse_items("BODY[1", "expected ] after section");
        refuse_items("BODY[1.]", "invalid section");
        refuse_items("BODY[0]", "number must not be zero");
        refuse_items("BODY[1..2]", "invalid section");
        refuse_items("BODY[MIME]", "invalid section");
        refuse_items("BODY[TEXT.1]", "invalid section");
        refuse_items("BODY[FOO]", "invalid section");
        refuse_items("BODY[4294967296]", "number is too large");
        refuse_items("BODY[HEADER.FIELDS ()]", "expected a word or a string");
        refuse_items(
            "BODY[HEADER.FIELDS (a:b)]",
            "invalid name of a header field",
        );
        refuse_items(
            "BODY[HEADER.FIELDS (\"a b\")]",
            "invalid name of a header field",
        );
        refuse_items("BODY[HEADER.FIELDS Date]", "expected (");
        refuse_items("BODY[]<0.0>", "partial of no bytes");
        refuse_items("BODY[]<0>", "expected . in partial");
        refuse_items("BODY[]<9223372036854775808.1>", "number is too large");
        refuse_items("BODY[]<0.5", "expected > after partial");
        refuse_items(
            &format!("BODY[{}1]", "1.".repeat(64)),
            "section is too deep",
        );
        refuse_items(
            &format!("BODY[HEADER.FIELDS ({}a)]", "a ".repeat(512)),
            "too many header fields",
        );
    }

    #[test]
    fn binaries() {
        let binary = |part: &[u32], partial: Option<(u64, u64)>, peek| FetchItem::Binary {
            part: part.to_vec(),
            partial: partial.map(|(offset, length)| Partial { offset, length }),
            peek,
        };
        check_items("BINARY[1]", vec![binary(&[1], None, false)]);
        check_items("binary[]", vec![binary(&[], None, false)]);
        check_items(
            "(BINARY.PEEK[1.2]<5.7> BINARY.SIZE[1.2])",
            vec![
                binary(&[1, 2], Some((5, 7)), true),
                FetchItem::BinarySize { part: vec![1, 2] },
            ],
        );
        check_items(
            "BINARY.SIZE[]",
            vec![FetchItem::BinarySize { part: vec![] }],
        );
        refuse_items("BINARY", "unknown FETCH item");
        refuse_items("BINARY.SIZE", "unknown FETCH item");
        refuse_items("BINARY[TEXT]", "BINARY wants numbers of a part");
        refuse_items("BINARY[1.MIME]", "invalid section");
        refuse_items("BINARY[1.]", "invalid section");
        refuse_items("BINARY[0]", "number must not be zero");
        refuse_items("BINARY[1", "BINARY wants numbers of a part");
        refuse_items("BINARY[1]<0.0>", "partial of no bytes");
        refuse_items("BINARY.SIZE[1]<0.1>", "unexpected text after the command");
        refuse_items(
            &format!("BINARY[{}1]", "1.".repeat(64)),
            "section is too deep",
        );
    }

    #[test]
    fn modifiers() {
        // RFC 7162, sections 3.1.4.1 and 3.2.6.
        let all = MessageSet::Numbers(SequenceSet::parse(b"1:*", 9).unwrap());
        let base = Fetch {
            uid: true,
            set: all,
            items: vec![FetchItem::Flags, FetchItem::Uid, FetchItem::ModSeq],
            changed_since: Some(12345),
            vanished: false,
            partial: None,
        };
        check(
            "UID FETCH 1:* (FLAGS) (CHANGEDSINCE 12345)",
            CommandBody::Fetch(base.clone()),
        );
        check(
            "UID FETCH 1:* (FLAGS) (CHANGEDSINCE 12345 VANISHED)",
            CommandBody::Fetch(Fetch {
                vanished: true,
                ..base.clone()
            }),
        );
        check(
            "UID FETCH 1:* FLAGS (VANISHED CHANGEDSINCE 12345)",
            CommandBody::Fetch(Fetch {
                vanished: true,
                ..base.clone()
            }),
        );
        // RFC 9394, section 3.4.
        let partial = Some(PartialRange {
            first: 1,
            last: 30,
            from_end: true,
        });
        check(
            "UID FETCH 1:* (FLAGS) (PARTIAL -1:-30 CHANGEDSINCE 12345)",
            CommandBody::Fetch(Fetch { partial, ..base }),
        );
        refuse_items("FLAGS (PARTIAL 1:2)", "PARTIAL wants UID FETCH");
        refuse(
            "UID FETCH 1 FLAGS (PARTIAL 1:2 PARTIAL 1:2)",
            "unknown FETCH modifier",
        );
        refuse_items(
            "FLAGS (CHANGEDSINCE 0)",
            "modification sequence must not be zero",
        );
        refuse_items(
            "FLAGS (CHANGEDSINCE 9223372036854775808)",
            "number is too large",
        );
        refuse_items(
            "FLAGS (CHANGEDSINCE 1 CHANGEDSINCE 2)",
            "unknown FETCH modifier",
        );
        refuse_items(
            "FLAGS (CHANGEDSINCE 1 VANISHED)",
            "VANISHED wants UID FETCH and CHANGEDSINCE",
        );
        refuse(
            "UID FETCH 1 FLAGS (VANISHED)",
            "VANISHED wants UID FETCH and CHANGEDSINCE",
        );
        refuse_items("FLAGS ()", "unknown FETCH modifier");
    }

    #[test]
    fn what_sets_seen() {
        assert!(section(&[1], None).sets_seen());
        assert!(FetchItem::Rfc822.sets_seen() && FetchItem::Rfc822Text.sets_seen());
        assert!(!FetchItem::Rfc822Header.sets_seen() && !FetchItem::Envelope.sets_seen());
        let peek = FetchItem::Section {
            section: Section::default(),
            partial: None,
            peek: true,
        };
        assert!(!peek.sets_seen());
        let binary = |peek| FetchItem::Binary {
            part: vec![1],
            partial: None,
            peek,
        };
        assert!(binary(false).sets_seen() && !binary(true).sets_seen());
        assert!(!FetchItem::BinarySize { part: vec![1] }.sets_seen());
    }
}
