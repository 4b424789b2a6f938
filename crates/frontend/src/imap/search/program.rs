//! The search program: the keys of a command, ready to be tried on many messages.
//!
//! A key is known at some stage: from the place of the message, from its row, from its summary, from its header or from its text. Trying the
//! program with what is known so far gives yes, no, or not yet; only then more is fetched. So what is cheap is tried first, in whatever
//! order the client wrote it.

use whimbrel_imap::{
    command::SearchKey,
    core::{Date as WireDate, DateTime},
    encode::Code,
};
use whimbrel_mime::{
    View, Wanted,
    charset::{Charset, CharsetDecoder},
    search::Needle,
};
use whimbrel_service::api::{Flag, Flags, Keyword, MessageId, Row};

use super::super::{objectid, ranges::Ranges, task::Outcome, view::View as Mailbox};

/// A program.
pub(super) struct Program {
    root: Node,
    /// HEADER and its kin: field name and text.
    pub(super) fields: Vec<(String, Needle)>,
    /// BODY.
    pub(super) bodies: Vec<Needle>,
    /// TEXT.
    pub(super) texts: Vec<Needle>,
    /// What MODSEQ keys name, ascending.
    pub(super) modseqs: Vec<u64>,
    /// Flags that each message has that is found.
    pub(super) set: Flags,
    /// Flags that none has that is found.
    pub(super) unset: Flags,
    /// The date of the header is looked at.
    sent: bool,
    /// The time of the command, in seconds since 1970: what OLDER and YOUNGER go by.
    now: i64,
}

enum Node {
    Known(bool),
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Places(Ranges),
    Flag(Flag),
    Keyword(Keyword),
    Larger(u64),
    Smaller(u64),
    Received(Compare, WireDate),
    Saved(Compare, WireDate),
    Origin(MessageId),
    /// Received at this second or before it.
    Older(i64),
    /// Received at this second or after it.
    Younger(i64),
    ModSeq(u64),
    Sent(Compare, WireDate),
    Field(usize),
    Body(usize),
    Text(usize),
}

#[derive(Clone, Copy)]
enum Compare {
    Before,
    On,
    Since,
}

impl Compare {
    fn holds<T: Ord>(self, found: &T, wanted: &T) -> bool {
        match self {
            Compare::Before => found < wanted,
            Compare::On => found == wanted,
            Compare::Since => found >= wanted,
        }
    }
}

/// What is known of a message.
#[derive(Default)]
pub(super) struct Facts<'a> {
    pub(super) place: u32,
    pub(super) row: Option<&'a Row>,
    /// The day on which its header says it was sent, if it does.
    pub(super) sent: Option<Option<WireDate>>,
    /// Of each field key; empty as long as nothing is known of any.
    pub(super) fields: &'a [Option<bool>],
    pub(super) bodies: &'a [Option<bool>],
    pub(super) texts: &'a [Option<bool>],
}

/// What a summary tells.
#[derive(Default)]
pub(super) struct Known {
    /// As in [`Facts`]; `None`: it was not asked.
    pub(super) sent: Option<Option<WireDate>>,
    /// Of each field key.
    pub(super) fields: Vec<Option<bool>>,
}

/// Charsets that the answer BADCHARSET names: all others of the WHATWG standard are known, too.
const CHARSETS: &[&str] = &["UTF-8", "US-ASCII"];

impl Program {
    pub(super) fn new(
        view: &Mailbox,
        key: SearchKey,
        charset: Option<&str>,
        now: i64,
    ) -> Result<Program, Outcome> {
        let charset = match charset {
            None | Some("UTF-8") => None,
            Some(label) => match Charset::by_label(label.as_bytes()) {
                Charset::Mixed if !matches!(label, "US-ASCII" | "ASCII") => {
                    return Err(bad_charset());
                }
                charset => Some(charset),
            },
        };
        let mut program = Program {
            root: Node::Known(true),
            fields: Vec::new(),
            bodies: Vec::new(),
            texts: Vec::new(),
            modseqs: Vec::new(),
            set: Flags::none(),
            unset: Flags::none(),
            sent: false,
            now,
        };
        program.root = program.node(view, key, charset)?;
        program.modseqs.sort_unstable();
        program.modseqs.dedup();
        program.require_flags();
        Ok(program)
    }

    /// What the keys of the program that all have to hold say of flags.
    fn require_flags(&mut self) {
        let keys = match &self.root {
            Node::And(nodes) => &nodes[..],
            node => std::slice::from_ref(node),
        };
        for key in keys {
            if let Some(flag) = key.flag() {
                self.set.insert(flag);
            } else if let Node::Not(node) = key
                && let Some(flag) = node.flag()
            {
                self.unset.insert(flag);
            }
        }
    }

    /// The places outside of which no message matches.
    pub(super) fn bounds(&self, count: u32) -> Ranges {
        let all = Ranges::one(0, count);
        match &self.root {
            Node::Places(places) => places.and(&all),
            Node::And(nodes) => nodes.iter().fold(all, |bounds, node| match node {
                Node::Places(places) => bounds.and(places),
                _ => bounds,
            }),
            _ => all,
        }
    }

    /// Whether a MODSEQ key was used.
    pub(super) fn with_modseq(&self) -> bool {
        !self.modseqs.is_empty()
    }

    /// Of MODSEQs that are not among these it is not known what the client has seen: every message may have changed since.
    pub(super) fn believe(&mut self, modseqs: &[u64]) {
        self.root.believe(modseqs);
    }

    /// Yes, no, or not yet known.
    pub(super) fn holds(&self, facts: &Facts<'_>) -> Option<bool> {
        self.root.holds(facts)
    }

    /// What a message whose summary does not decide needs of it.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
            envelope: false,
            fields: false,
            parts: !self.bodies.is_empty() || !self.texts.is_empty(),
        }
    }

    /// What the summary tells. `None`: what is asked of it cannot be read.
    pub(super) fn known(&self, view: &View<'_>) -> Option<Known> {
        let mut known = Known::default();
        if self.sent {
            let field = view.envelope().ok()?.date;
            let sent = field.and_then(whimbrel_mime::date::parse);
            known.sent = Some(sent.and_then(|sent| WireDate::new(sent.year, sent.month, sent.day)));
        }
        if self.fields.is_empty() {
            return Some(known);
        }
        let fields = view.fields().ok()?;
        let of_key = |(name, needle): &(String, Needle)| {
            let name = name.as_bytes();
            let mut named = fields.list.clone();
            let found = named.any(|field| {
                field.name().eq_ignore_ascii_case(name) && needle.in_header(field.value())
            });
            (found || fields.is_complete(name)).then_some(found)
        };
        known.fields = self.fields.iter().map(of_key).collect();
        Some(known)
    }

    fn node(
        &mut self,
        view: &Mailbox,
        key: SearchKey,
        charset: Option<Charset>,
    ) -> Result<Node, Outcome> {
        use SearchKey as K;
        let not = |node| Node::Not(Box::new(node));
        Ok(match key {
            K::And(keys) => Node::And(self.nodes(view, keys, charset)?),
            K::Or(keys) => Node::Or(self.nodes(view, keys, charset)?),
            K::Not(key) => not(self.node(view, *key, charset)?),
            K::Sequence(set) => Node::Places(view.places_clipped(&set, false)),
            K::Uid(set) => Node::Places(view.places_clipped(&set, true)),
            // No message is recent (RFC 9051, 2.3.2, took \Recent away).
            K::All | K::Old => Node::Known(true),
            K::New | K::Recent => Node::Known(false),
            K::Answered => Node::Flag(Flag::Answered),
            K::Deleted => Node::Flag(Flag::Deleted),
            K::Draft => Node::Flag(Flag::Draft),
            K::Flagged => Node::Flag(Flag::Flagged),
            K::Seen => Node::Flag(Flag::Seen),
            K::Unanswered => not(Node::Flag(Flag::Answered)),
            K::Undeleted => not(Node::Flag(Flag::Deleted)),
            K::Undraft => not(Node::Flag(Flag::Draft)),
            K::Unflagged => not(Node::Flag(Flag::Flagged)),
            K::Unseen => not(Node::Flag(Flag::Seen)),
            K::Keyword(keyword) => keyword_node(keyword.as_str()),
            K::Unkeyword(keyword) => not(keyword_node(keyword.as_str())),
            K::Larger(size) => Node::Larger(size),
            K::Smaller(size) => Node::Smaller(size),
            K::Before(date) => Node::Received(Compare::Before, date),
            K::On(date) => Node::Received(Compare::On, date),
            K::Since(date) => Node::Received(Compare::Since, date),
            // RFC 8514, 4.3: there is a save date in every mailbox.
            K::SaveDateSupported => Node::Known(true),
            K::SavedBefore(date) => Node::Saved(Compare::Before, date),
            K::SavedOn(date) => Node::Saved(Compare::On, date),
            K::SavedSince(date) => Node::Saved(Compare::Since, date),
            K::EmailId(id) => objectid::origin_of(&id).map_or(Node::Known(false), Node::Origin),
            K::ThreadId(_) => Node::Known(false),
            K::SentBefore(date) => self.sent(Compare::Before, date),
            K::SentOn(date) => self.sent(Compare::On, date),
            K::SentSince(date) => self.sent(Compare::Since, date),
            K::Older(seconds) => Node::Older(self.now - i64::from(seconds)),
            K::Younger(seconds) => Node::Younger(self.now - i64::from(seconds)),
            K::ModSeq(modseq) => {
                self.modseqs.push(modseq);
                Node::ModSeq(modseq)
            }
            K::Bcc(text) => self.field("bcc", &text, charset)?,
            K::Cc(text) => self.field("cc", &text, charset)?,
            K::From(text) => self.field("from", &text, charset)?,
            K::Subject(text) => self.field("subject", &text, charset)?,
            K::To(text) => self.field("to", &text, charset)?,
            K::Header(name, text) => self.field(&name, &text, charset)?,
            K::Body(text) => {
                self.bodies.push(needle(&text, charset)?);
                Node::Body(self.bodies.len() - 1)
            }
            K::Text(text) => {
                self.texts.push(needle(&text, charset)?);
                Node::Text(self.texts.len() - 1)
            }
            _ => return Err(Outcome::bad("Search key is not supported")),
        })
    }

    fn sent(&mut self, compare: Compare, date: WireDate) -> Node {
        self.sent = true;
        Node::Sent(compare, date)
    }

    fn nodes(
        &mut self,
        view: &Mailbox,
        keys: Vec<SearchKey>,
        charset: Option<Charset>,
    ) -> Result<Vec<Node>, Outcome> {
        keys.into_iter()
            .map(|key| self.node(view, key, charset))
            .collect()
    }

    fn field(
        &mut self,
        name: &str,
        text: &[u8],
        charset: Option<Charset>,
    ) -> Result<Node, Outcome> {
        self.fields.push((name.to_owned(), needle(text, charset)?));
        Ok(Node::Field(self.fields.len() - 1))
    }
}

fn keyword_node(keyword: &str) -> Node {
    Keyword::new(keyword).map_or(Node::Known(false), Node::Keyword)
}

fn needle(text: &[u8], charset: Option<Charset>) -> Result<Needle, Outcome> {
    let Some(charset) = charset else {
        return std::str::from_utf8(text)
            .map(Needle::new)
            .map_err(|_| bad_charset());
    };
    let mut decoded = String::new();
    let mut decoder = CharsetDecoder::new(charset);
    decoder.push(text, &mut decoded);
    decoder.finish(&mut decoded);
    Ok(Needle::new(&decoded))
}

fn bad_charset() -> Outcome {
    Outcome::no(Code::BadCharset(CHARSETS), "Text is in no known charset")
}

impl Node {
    fn flag(&self) -> Option<Flag> {
        match self {
            Node::Flag(flag) => Some(flag.clone()),
            Node::Keyword(keyword) => Some(Flag::Keyword(keyword.clone())),
            _ => None,
        }
    }

    /// As deep as [`Self::holds`].
    fn believe(&mut self, modseqs: &[u64]) {
        match self {
            Node::And(nodes) | Node::Or(nodes) => {
                nodes.iter_mut().for_each(|node| node.believe(modseqs));
            }
            Node::Not(node) => node.believe(modseqs),
            Node::ModSeq(modseq) if modseqs.binary_search(modseq).is_err() => {
                *self = Node::Known(true);
            }
            _ => {}
        }
    }

    /// Recursion is as deep as the keys are nested, which the parser limits (`nesting_depth_max`).
    fn holds(&self, facts: &Facts<'_>) -> Option<bool> {
        match self {
            Node::Known(known) => Some(*known),
            Node::And(nodes) => all(nodes.iter().map(|node| node.holds(facts))),
            Node::Or(nodes) => all(nodes
                .iter()
                .map(|node| node.holds(facts).map(|holds| !holds)))
            .map(|none| !none),
            Node::Not(node) => node.holds(facts).map(|holds| !holds),
            Node::Places(places) => Some(places.contains(facts.place)),
            Node::Flag(flag) => facts.row.map(|row| row.flags.contains(flag)),
            Node::Keyword(keyword) => facts
                .row
                .map(|row| row.flags.keywords().binary_search(keyword).is_ok()),
            Node::Larger(size) => facts.row.map(|row| u64::from(row.size) > *size),
            Node::Smaller(size) => facts.row.map(|row| u64::from(row.size) < *size),
            // "disregarding time and timezone" (RFC 9051, 6.4.4).
            Node::Received(compare, date) => facts.row.map(|row| {
                let received =
                    DateTime::with_zone(row.date.seconds, row.date.zone_minutes).local_date();
                compare.holds(&received, date)
            }),
            // "For OLDER, messages match if the INTERNALDATE is less recent than or equal to the target time. For YOUNGER, messages
            // match if the INTERNALDATE is more recent than or equal to the target time" (RFC 5032, 2).
            Node::Older(target) => facts.row.map(|row| row.date.seconds <= *target),
            Node::Younger(target) => facts.row.map(|row| row.date.seconds >= *target),
            // "disregarding time and timezone" (RFC 8514, 4.3): it is told in Greenwich time.
            Node::Saved(compare, date) => facts.row.map(|row| {
                let saved = DateTime::with_zone(row.saved, 0).local_date();
                compare.holds(&saved, date)
            }),
            Node::Origin(origin) => facts.row.map(|row| row.origin == *origin),
            Node::ModSeq(modseq) => facts.row.map(|row| row.modseq >= *modseq),
            Node::Sent(compare, date) => facts
                .sent
                .map(|sent| sent.is_some_and(|sent| compare.holds(&sent, date))),
            Node::Field(n) => facts.fields.get(*n).copied().flatten(),
            Node::Body(n) => facts.bodies.get(*n).copied().flatten(),
            Node::Text(n) => facts.texts.get(*n).copied().flatten(),
        }
    }
}

/// No as soon as one says no; yes when all say yes.
fn all(answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut known = Some(true);
    for answer in answers {
        match answer {
            Some(false) => return Some(false),
            Some(true) => {}
            None => known = None,
        }
    }
    known
}
