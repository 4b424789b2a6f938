//! The search program: the keys of a command, ready to be tried on many messages.
//!
//! A key is known at some stage: from the place of the message, from its row, from its summary, from its header or from its text. Trying the
//! program with what is known so far gives yes, no, or not yet; only then more is fetched. So what is cheap is tried first, in whatever
//! order the client wrote it.

use whimbrel_imap::{
    command::SearchKey,
    core::{Date as WireDate, DateTime, MessageSet},
    encode::Code,
};
use whimbrel_mime::{
    View, Wanted,
    charset::{Charset, CharsetDecoder},
    search::{FieldKeys, FieldSearcher, Look, Needle, Slice},
};
use whimbrel_service::api::{Flag, Flags, Keyword, MessageId, Row};

use super::super::{objectid, outcome::Outcome, ranges::Ranges, view::View as Mailbox};

/// A program.
pub(super) struct Program {
    root: Node,
    /// How many keys are tried on each message.
    keys: usize,
    /// `$`, if it is used: however often, it is held once.
    saved: Option<Ranges>,
    /// HEADER and its kin: names of fields and what to look for in them.
    pub(super) fields: FieldKeys,
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
    SummaryKeys(bool),
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Places(Ranges),
    /// `$`
    Result,
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
pub(super) struct SummaryKeys {
    /// As in [`Facts`]; `None`: it was not asked.
    pub(super) sent: Option<Option<WireDate>>,
    /// Of each field key.
    pub(super) fields: Vec<Option<bool>>,
}

/// A summary that is being looked through.
pub(super) struct Summary {
    sent: Option<Option<WireDate>>,
    /// Of each field key: whether the summary has all fields of its name; and what looks through these.
    fields: Option<(Vec<bool>, Box<FieldSearcher>)>,
}

impl Summary {
    /// False: the slice is used up before all is known.
    pub(super) fn settle(&mut self, slice: &mut Slice) -> bool {
        let fields = self.fields.as_mut();
        fields.is_none_or(|(_, searcher)| searcher.settle(slice))
    }

    /// What it tells; and what has looked through it, for the next one.
    pub(super) fn finish(self) -> (SummaryKeys, Option<Box<FieldSearcher>>) {
        let mut known = SummaryKeys {
            sent: self.sent,
            fields: Vec::new(),
        };
        let searcher = self.fields.map(|(complete, mut searcher)| {
            let of_key = |(found, complete)| (found || complete).then_some(found);
            let keys = searcher.finish().into_iter().zip(complete);
            known.fields = keys.map(of_key).collect();
            searcher
        });
        (known, searcher)
    }
}

/// What it costs to try a key on a message, in the unit of [`Slice`]: a set of numbers is a search in a list.
const KEY_WORK: usize = 32;
/// Ranges that are looked at to find out outside of which places no message matches: more than one set of the usual limit has. What is left
/// is found message by message.
const BOUNDS_WORK_MAX: usize = 4 * 1024 * 1024;
/// Flags that an owner is asked for: it looks at each of them on each message. The others are looked at here.
const REQUIRED_MAX: usize = 8;
/// What it costs to open a summary.
const SUMMARY_WORK: usize = 4096;

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
        let mut fields = Vec::new();
        let mut program = Program {
            root: Node::SummaryKeys(true),
            keys: 0,
            saved: None,
            fields: FieldKeys::new(&fields),
            bodies: Vec::new(),
            texts: Vec::new(),
            modseqs: Vec::new(),
            set: Flags::none(),
            unset: Flags::none(),
            sent: false,
            now,
        };
        program.root = program.node(view, key, charset, &mut fields)?;
        program.fields = FieldKeys::new(&fields);
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
        let mut left = REQUIRED_MAX;
        for key in keys {
            if left == 0 {
                return;
            }
            if let Some(flag) = key.flag() {
                self.set.insert(flag);
            } else if let Node::Not(node) = key
                && let Some(flag) = node.flag()
            {
                self.unset.insert(flag);
            } else {
                continue;
            }
            left -= 1;
        }
    }

    /// Places outside of which no message matches.
    pub(super) fn bounds(&self, count: u32) -> Ranges {
        let all = Ranges::one(0, count);
        let keys = match &self.root {
            Node::And(nodes) => &nodes[..],
            node => std::slice::from_ref(node),
        };
        let saved = keys.iter().any(|key| matches!(key, Node::Result));
        let saved = self.saved.as_ref().filter(|_| saved);
        let named = keys.iter().filter_map(|key| match key {
            Node::Places(places) => Some(places),
            _ => None,
        });
        let mut left = BOUNDS_WORK_MAX;
        saved.into_iter().chain(named).fold(all, |bounds, places| {
            let work = bounds.as_slice().len() + places.as_slice().len();
            match left.checked_sub(work) {
                Some(rest) => {
                    left = rest;
                    bounds.and(places)
                }
                None => bounds,
            }
        })
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
        let saved = self.saved.as_ref();
        let saved = saved.is_some_and(|saved| saved.contains(facts.place));
        self.root.holds(facts, saved)
    }

    /// What it costs to ask [`Self::holds`].
    pub(super) fn work(&self) -> usize {
        KEY_WORK * self.keys
    }

    /// What a message whose summary does not decide needs of it.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
            envelope: false,
            fields: false,
            parts: !self.bodies.is_empty() || !self.texts.is_empty(),
        }
    }

    /// Begins to look at a summary, with what has looked through another, if there is any. `None`: what is asked of it cannot be read.
    pub(super) fn summary(
        &self,
        view: &View<'_>,
        searcher: Option<Box<FieldSearcher>>,
        slice: &mut Slice,
    ) -> Option<Summary> {
        slice.take(SUMMARY_WORK + self.work());
        let mut summary = Summary {
            sent: None,
            fields: None,
        };
        if self.sent {
            let field = view.envelope().ok()?.date;
            let sent = field.and_then(whimbrel_mime::date::parse);
            summary.sent = Some(sent.and_then(|s| WireDate::new(s.year, s.month, s.day)));
        }
        if !self.fields.is_empty() {
            let fields = view.fields().ok()?;
            let mut searcher = match searcher {
                Some(mut searcher) => {
                    searcher.clear();
                    searcher
                }
                None => Box::new(FieldSearcher::new(&self.fields)),
            };
            for field in fields.list.clone() {
                searcher.field(field.name(), field.value());
            }
            let complete = self.fields.by_name(|name| fields.is_complete(name));
            summary.fields = Some((complete, searcher));
        }
        Some(summary)
    }

    fn node(
        &mut self,
        view: &Mailbox,
        key: SearchKey,
        charset: Option<Charset>,
        fields: &mut Vec<(String, Look, Needle)>,
    ) -> Result<Node, Outcome> {
        use SearchKey as K;
        self.keys += 1;
        let not = |node| Node::Not(Box::new(node));
        let mut field = |name: &str, look: Look, text: &[u8]| {
            fields.push((name.to_owned(), look, needle(text, charset)?));
            Ok(Node::Field(fields.len() - 1))
        };
        Ok(match key {
            K::And(keys) => Node::And(self.nodes(view, keys, charset, fields)?),
            K::Or(keys) => Node::Or(self.nodes(view, keys, charset, fields)?),
            K::Not(key) => not(self.node(view, *key, charset, fields)?),
            K::Sequence(MessageSet::Saved) | K::Uid(MessageSet::Saved) => {
                let places = || view.places_clipped(&MessageSet::Saved, true);
                self.saved.get_or_insert_with(places);
                Node::Result
            }
            K::Sequence(MessageSet::NumbersAndSaved(set)) => Node::Or(vec![
                self.node(view, K::Sequence(MessageSet::Saved), charset, fields)?,
                Node::Places(view.places_clipped(&MessageSet::Numbers(set), false)),
            ]),
            K::Uid(MessageSet::NumbersAndSaved(set)) => Node::Or(vec![
                self.node(view, K::Uid(MessageSet::Saved), charset, fields)?,
                Node::Places(view.places_clipped(&MessageSet::Numbers(set), true)),
            ]),
            K::Sequence(set) => Node::Places(view.places_clipped(&set, false)),
            K::Uid(set) => Node::Places(view.places_clipped(&set, true)),
            // No message is recent (RFC 9051, 2.3.2, took \Recent away).
            K::All | K::Old => Node::SummaryKeys(true),
            K::New | K::Recent => Node::SummaryKeys(false),
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
            K::SaveDateSupported => Node::SummaryKeys(true),
            K::SavedBefore(date) => Node::Saved(Compare::Before, date),
            K::SavedOn(date) => Node::Saved(Compare::On, date),
            K::SavedSince(date) => Node::Saved(Compare::Since, date),
            K::EmailId(id) => {
                objectid::origin_of(&id).map_or(Node::SummaryKeys(false), Node::Origin)
            }
            K::ThreadId(_) => Node::SummaryKeys(false),
            K::SentBefore(date) => self.sent(Compare::Before, date),
            K::SentOn(date) => self.sent(Compare::On, date),
            K::SentSince(date) => self.sent(Compare::Since, date),
            K::Older(seconds) => Node::Older(self.now - i64::from(seconds)),
            K::Younger(seconds) => Node::Younger(self.now - i64::from(seconds)),
            K::ModSeq(modseq) => {
                self.modseqs.push(modseq);
                Node::ModSeq(modseq)
            }
            // "in the envelope structure's BCC field" (RFC 9051, 6.4.4), and so on.
            K::Bcc(text) => field("bcc", Look::Addresses, &text)?,
            K::Cc(text) => field("cc", Look::Addresses, &text)?,
            K::From(text) => field("from", Look::Addresses, &text)?,
            K::Subject(text) => field("subject", Look::Value, &text)?,
            K::To(text) => field("to", Look::Addresses, &text)?,
            K::Header(name, text) => field(&name, Look::Value, &text)?,
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
        fields: &mut Vec<(String, Look, Needle)>,
    ) -> Result<Vec<Node>, Outcome> {
        keys.into_iter()
            .map(|key| self.node(view, key, charset, fields))
            .collect()
    }
}

fn keyword_node(keyword: &str) -> Node {
    Keyword::new(keyword).map_or(Node::SummaryKeys(false), Node::Keyword)
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
                *self = Node::SummaryKeys(true);
            }
            _ => {}
        }
    }

    /// Recursion is as deep as the keys are nested, which the parser limits (`nesting_depth_max`).
    /// `saved`: whether the message is one of `$`.
    fn holds(&self, facts: &Facts<'_>, saved: bool) -> Option<bool> {
        match self {
            Node::SummaryKeys(known) => Some(*known),
            Node::And(nodes) => all(nodes.iter().map(|node| node.holds(facts, saved))),
            Node::Or(nodes) => all(nodes
                .iter()
                .map(|node| node.holds(facts, saved).map(|holds| !holds)))
            .map(|none| !none),
            Node::Not(node) => node.holds(facts, saved).map(|holds| !holds),
            Node::Places(places) => Some(places.contains(facts.place)),
            Node::Result => Some(saved),
            Node::Flag(flag) => facts.row.map(|row| row.flags.contains(flag)),
            Node::Keyword(keyword) => facts
                .row
                .map(|row| row.flags.contains(&Flag::Keyword(keyword.clone()))),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::imap::view;
    use whimbrel_imap::core::SequenceSet;

    /// A mailbox of so many messages; every other one is saved.
    fn mailbox(messages: u32) -> Mailbox {
        let uids: Vec<u32> = (1..=messages).collect();
        let mut view = view::tests::view(uids);
        view.saved = (1..=messages).step_by(2).map(|uid| (uid, uid)).collect();
        view
    }

    fn program(view: &Mailbox, key: SearchKey) -> Program {
        Program::new(view, key, None, 0).ok().unwrap()
    }

    fn set(text: &str) -> MessageSet {
        MessageSet::Numbers(SequenceSet::parse(text.as_bytes(), 10_000).unwrap())
    }

    /// Ranges that a program holds.
    fn ranges(node: &Node) -> usize {
        match node {
            Node::And(nodes) | Node::Or(nodes) => nodes.iter().map(ranges).sum(),
            Node::Not(node) => ranges(node),
            Node::Places(places) => places.as_slice().len(),
            _ => 0,
        }
    }

    #[track_caller]
    fn check(key: SearchKey, bounds: &[u32], found: &[u32]) -> Program {
        let view = mailbox(10);
        let program = program(&view, key);
        let narrowed: Vec<u32> = program.bounds(10).iter().collect();
        assert_eq!(narrowed, bounds);
        let holds = |place: &u32| {
            let place = *place;
            let facts = Facts {
                place,
                ..Facts::default()
            };
            program.holds(&facts).unwrap()
        };
        assert_eq!((0..10).filter(holds).collect::<Vec<_>>(), found);
        program
    }

    #[test]
    fn a_saved_result_is_held_once() {
        let saved = || SearchKey::Sequence(MessageSet::Saved);
        let uids = || SearchKey::Uid(MessageSet::Saved);
        let all: Vec<u32> = (0..10).collect();
        check(saved(), &[0, 2, 4, 6, 8], &[0, 2, 4, 6, 8]);
        let and = SearchKey::And(vec![saved(), uids(), SearchKey::Sequence(set("2:5"))]);
        check(and, &[2, 4], &[2, 4]);
        let not = SearchKey::Not(Box::new(saved()));
        check(not, &all, &[1, 3, 5, 7, 9]);
        let or = SearchKey::Or(vec![uids(), SearchKey::Sequence(set("2"))]);
        check(or, &all, &[0, 1, 2, 4, 6, 8]);

        let view = mailbox(10_000);
        let program = program(&view, SearchKey::And((0..4096).map(|_| saved()).collect()));
        assert_eq!(program.bounds(10_000).count(), 5000);
        let held = ranges(&program.root) + program.saved.map_or(0, |saved| saved.as_slice().len());
        assert_eq!(held, 5000);
    }

    /// What many long sets say is not worked out before the first message is looked at.
    #[test]
    fn bounds_cost_little() {
        let view = mailbox(20_000);
        let odd = (0..10_000).map(|n| format!("{}", 2 * n + 1));
        let odd = odd.collect::<Vec<_>>().join(",");
        let mut keys = vec![SearchKey::Sequence(set(&odd))];
        keys.extend((0..4000).map(|_| SearchKey::Sequence(set("1:19000"))));
        keys.push(SearchKey::Sequence(set("1:5")));
        let program = program(&view, SearchKey::And(keys));
        // The last set is not regarded.
        assert_eq!(program.bounds(20_000).count(), 9500);
    }
}
