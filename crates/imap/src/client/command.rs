//! Commands as bytes, cut where the client has to wait for a continuation.

use super::NonSynchronising;
use crate::command::{
    Fetch, FetchItem, List, Partial, Search, SearchKey, SearchReturn, Select, Sort, StatusItem,
    Store, Thread, ThreadAlgorithm,
};
use crate::core::set::push_decimal;
use crate::core::{
    Date, DateTime, Flag, MailboxName, MessageSet, PartialRange, SequenceSet, StoreOperation, Tag,
    is_atom_char, utf7,
};
use crate::{CommandBody, Import};
use base64::Engine as _;

/// An APPEND to send.
#[derive(Clone, Copy, Debug)]
pub struct Append<'a> {
    /// Into which mailbox.
    pub mailbox: &'a MailboxName,
    /// With these flags.
    pub flags: &'a [Flag],
    /// With this internal date.
    pub date: Option<DateTime>,
    /// The message.
    pub message: &'a [u8],
}

/// What stands before a message of an import in APPEND, up to the line end of the literal: for who sends the bytes himself.
pub fn append_message_head(
    flags: &[Flag],
    date: Option<DateTime>,
    import: &Import,
    bytes: u64,
) -> Vec<u8> {
    let mut out = b" ".to_vec();
    crate::encode::strings::flag_list(&mut out, flags, None);
    if let Some(date) = date {
        out.extend_from_slice(b" \"");
        date.encode(&mut out);
        out.extend_from_slice(b"\"");
    }
    out.extend_from_slice(b" X-WHIMBREL-IMPORT ");
    for (bytes, behind) in [(&import.id[..], " "), (&import.hash[..], "")] {
        for byte in bytes {
            out.extend_from_slice(format!("{byte:02x}").as_bytes());
        }
        out.extend_from_slice(behind.as_bytes());
    }
    out.extend_from_slice(format!(" {{{bytes}+}}").as_bytes());
    out
}

/// Writes one command.
pub(super) struct Writer {
    parts: Vec<Vec<u8>>,
    out: Vec<u8>,
    literals: NonSynchronising,
    utf8: bool,
}

impl Writer {
    pub(super) fn new(tag: &Tag, literals: NonSynchronising, utf8: bool) -> Self {
        let out = tag.as_str().as_bytes().to_vec();
        Self {
            parts: Vec::new(),
            out,
            literals,
            utf8,
        }
    }

    fn end(mut self) -> Vec<Vec<u8>> {
        self.out.extend_from_slice(b"\r\n");
        self.parts.push(self.out);
        self.parts
    }

    /// A space and a word.
    fn word(&mut self, word: &str) -> &mut Self {
        self.out.push(b' ');
        self.text(word)
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.out.extend_from_slice(text.as_bytes());
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        push_decimal(&mut self.out, number);
        self
    }

    /// A space and an astring.
    fn string(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.push(b' ');
        self.bare_string(bytes)
    }

    fn bare_string(&mut self, bytes: &[u8]) -> &mut Self {
        // NIL is an atom that means something else in some places.
        if !bytes.is_empty()
            && bytes.iter().all(|&b| is_atom_char(b))
            && !bytes.eq_ignore_ascii_case(b"NIL")
        {
            self.out.extend_from_slice(bytes);
        } else {
            self.real_string(bytes);
        }
        self
    }

    /// A string that is no atom.
    fn real_string(&mut self, bytes: &[u8]) -> &mut Self {
        let controls = bytes.iter().any(|&b| matches!(b, 0 | b'\r' | b'\n'));
        let text = bytes.is_ascii() || (self.utf8 && std::str::from_utf8(bytes).is_ok());
        if text && !controls {
            crate::encode::strings::quoted(&mut self.out, bytes);
        } else {
            self.literal(bytes);
        }
        self
    }

    fn literal(&mut self, bytes: &[u8]) -> &mut Self {
        let plus = match self.literals {
            NonSynchronising::Never => false,
            NonSynchronising::Small => bytes.len() <= 4096,
            NonSynchronising::Always => true,
        };
        self.text("{")
            .number(bytes.len() as u64)
            .text(if plus { "+}\r\n" } else { "}\r\n" });
        if !plus {
            self.parts.push(std::mem::take(&mut self.out));
        }
        self.out.extend_from_slice(bytes);
        self
    }

    fn name(&self, name: &str) -> Vec<u8> {
        let mut wire = Vec::new();
        if self.utf8 {
            wire.extend_from_slice(name.as_bytes());
        } else {
            utf7::encode(name, &mut wire);
        }
        wire
    }

    fn mailbox(&mut self, name: &MailboxName) -> &mut Self {
        let wire = self.name(name.as_str());
        self.string(&wire)
    }

    /// A space and a pattern or a reference.
    fn pattern(&mut self, pattern: &str) -> &mut Self {
        let wire = self.name(pattern);
        self.out.push(b' ');
        self.real_string(&wire)
    }

    fn set(&mut self, set: &MessageSet) -> &mut Self {
        self.out.push(b' ');
        set.encode(&mut self.out);
        self
    }

    fn numbers(&mut self, set: &SequenceSet) -> &mut Self {
        self.out.push(b' ');
        set.encode(&mut self.out);
        self
    }

    fn flags(&mut self, flags: &[Flag]) -> &mut Self {
        self.out.push(b' ');
        crate::encode::strings::flag_list(&mut self.out, flags, None);
        self
    }

    /// `1.2.3`
    fn part(&mut self, part: &[u32]) -> &mut Self {
        for (n, &number) in part.iter().enumerate() {
            self.text(if n == 0 { "" } else { "." })
                .number(u64::from(number));
        }
        self
    }

    fn partial(&mut self, partial: Option<Partial>) -> &mut Self {
        match partial {
            None => self,
            Some(partial) => self
                .text("<")
                .number(partial.offset)
                .text(".")
                .number(partial.length)
                .text(">"),
        }
    }

    fn status_items(&mut self, items: &[StatusItem]) -> &mut Self {
        self.list(items.iter().map(|item| item.as_str()))
    }

    /// ` (a b c)`
    fn list<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> &mut Self {
        let words: Vec<_> = words.collect();
        self.text(" (").text(&words.join(" ")).text(")")
    }
}

/// `APPEND`
pub(super) fn encode_append(append: &Append<'_>, mut w: Writer) -> Vec<Vec<u8>> {
    w.word("APPEND").mailbox(append.mailbox);
    if !append.flags.is_empty() {
        w.flags(append.flags);
    }
    if let Some(date) = append.date {
        w.text(" \"");
        date.encode(&mut w.out);
        w.text("\"");
    }
    w.text(" ").literal(append.message);
    w.end()
}

/// Any other command.
pub(super) fn encode(body: &CommandBody, mut w: Writer) -> Vec<Vec<u8>> {
    match body {
        CommandBody::Capability => w.word("CAPABILITY"),
        CommandBody::Noop => w.word("NOOP"),
        CommandBody::Logout => w.word("LOGOUT"),
        CommandBody::StartTls => w.word("STARTTLS"),
        CommandBody::Namespace => w.word("NAMESPACE"),
        CommandBody::Idle => w.word("IDLE"),
        CommandBody::Check => w.word("CHECK"),
        CommandBody::Close => w.word("CLOSE"),
        CommandBody::Compress(mechanism) => w.word("COMPRESS").word(mechanism),
        CommandBody::Unauthenticate => w.word("UNAUTHENTICATE"),
        CommandBody::Unselect => w.word("UNSELECT"),
        CommandBody::Id(None) => w.word("ID NIL"),
        CommandBody::Id(Some(fields)) => {
            w.word("ID (");
            for (n, (name, value)) in fields.iter().enumerate() {
                w.text(if n == 0 { "" } else { " " })
                    .real_string(name.as_bytes())
                    .text(" ");
                match value {
                    None => w.text("NIL"),
                    Some(value) => w.real_string(value.as_bytes()),
                };
            }
            w.text(")")
        }
        CommandBody::Authenticate { mechanism, initial } => {
            w.word("AUTHENTICATE").word(mechanism);
            match initial {
                None => &mut w,
                Some(bytes) if bytes.is_empty() => w.word("="),
                Some(bytes) => {
                    w.word(&base64::engine::general_purpose::STANDARD.encode(bytes.expose()))
                }
            }
        }
        CommandBody::Login { user, password } => w
            .word("LOGIN")
            .string(user.as_bytes())
            .string(password.expose()),
        CommandBody::Enable(names) => w.word("ENABLE").word(&names.join(" ")),
        CommandBody::Select(arguments) => select(w.word("SELECT"), arguments),
        CommandBody::Examine(arguments) => select(w.word("EXAMINE"), arguments),
        CommandBody::Create {
            mailbox,
            special_use,
            ..
        } => {
            w.word("CREATE").mailbox(mailbox);
            if !special_use.is_empty() {
                w.text(" (USE")
                    .list(special_use.iter().map(|u| u.as_str()))
                    .text(")");
            }
            &mut w
        }
        CommandBody::Delete(mailbox) => w.word("DELETE").mailbox(mailbox),
        CommandBody::Rename { from, to } => w.word("RENAME").mailbox(from).mailbox(to),
        CommandBody::Subscribe(mailbox) => w.word("SUBSCRIBE").mailbox(mailbox),
        CommandBody::Unsubscribe(mailbox) => w.word("UNSUBSCRIBE").mailbox(mailbox),
        CommandBody::GetQuota(root) => w.word("GETQUOTA").string(root),
        CommandBody::GetQuotaRoot(mailbox) => w.word("GETQUOTAROOT").mailbox(mailbox),
        CommandBody::List(arguments) => list(&mut w, arguments),
        CommandBody::Lsub { reference, pattern } => {
            w.word("LSUB").pattern(reference).pattern(pattern.as_str())
        }
        CommandBody::Status { mailbox, items } => {
            w.word("STATUS").mailbox(mailbox).status_items(items)
        }
        CommandBody::Expunge { uids: None } => w.word("EXPUNGE"),
        CommandBody::Expunge { uids: Some(set) } => w.word("UID EXPUNGE").set(set),
        CommandBody::Search(arguments) => search(&mut w, arguments),
        CommandBody::Sort(arguments) => sort(&mut w, arguments),
        CommandBody::Thread(arguments) => thread(&mut w, arguments),
        CommandBody::Fetch(arguments) => fetch(&mut w, arguments),
        CommandBody::Store(arguments) => store(&mut w, arguments),
        CommandBody::Copy { uid, set, mailbox } => w
            .word(by(*uid, "COPY", "UID COPY"))
            .set(set)
            .mailbox(mailbox),
        CommandBody::Move { uid, set, mailbox } => w
            .word(by(*uid, "MOVE", "UID MOVE"))
            .set(set)
            .mailbox(mailbox),
    };
    w.end()
}

fn by(uid: bool, plain: &'static str, with_uid: &'static str) -> &'static str {
    if uid { with_uid } else { plain }
}

fn select<'a>(w: &'a mut Writer, select: &Select) -> &'a mut Writer {
    w.mailbox(&select.mailbox);
    match (&select.qresync, select.condstore) {
        (None, false) => return w,
        (None, true) => return w.text(" (CONDSTORE)"),
        (Some(_), true) => w.text(" (CONDSTORE QRESYNC ("),
        (Some(_), false) => w.text(" (QRESYNC ("),
    };
    if let Some(known) = &select.qresync {
        w.number(u64::from(known.uid_validity))
            .text(" ")
            .number(known.mod_seq);
        if let Some(uids) = &known.known_uids {
            w.numbers(uids);
        }
        if let Some((sequences, uids)) = &known.sequence_match {
            w.text(" (");
            sequences.encode(&mut w.out);
            w.numbers(uids).text(")");
        }
    }
    w.text("))")
}

fn list<'a>(w: &'a mut Writer, list: &List) -> &'a mut Writer {
    let select = &list.select;
    let returns = &list.returns;
    w.word("LIST");
    if list.extended {
        w.list(chosen([
            (select.subscribed, "SUBSCRIBED"),
            (select.remote, "REMOTE"),
            (select.recursive_match, "RECURSIVEMATCH"),
            (select.special_use, "SPECIAL-USE"),
        ]));
    }
    w.pattern(&list.reference);
    if let [pattern] = list.patterns.as_slice() {
        w.pattern(pattern.as_str());
    } else {
        w.text(" (");
        for (n, pattern) in list.patterns.iter().enumerate() {
            let wire = w.name(pattern.as_str());
            w.text(if n == 0 { "" } else { " " }).real_string(&wire);
        }
        w.text(")");
    }
    if list.extended {
        w.word("RETURN").list(chosen([
            (returns.subscribed, "SUBSCRIBED"),
            (returns.children, "CHILDREN"),
            (returns.special_use, "SPECIAL-USE"),
        ]));
        if !returns.status.is_empty() {
            // Into the parentheses just closed.
            w.out.pop();
            let first = w.out.last() == Some(&b'(');
            w.text(if first { "STATUS" } else { " STATUS" })
                .status_items(&returns.status)
                .text(")");
        }
    }
    w
}

fn chosen<const N: usize>(options: [(bool, &str); N]) -> impl Iterator<Item = &str> {
    options
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .map(|(_, name)| name)
}

fn store<'a>(w: &'a mut Writer, store: &Store) -> &'a mut Writer {
    w.word(by(store.uid, "STORE", "UID STORE")).set(&store.set);
    if let Some(mod_seq) = store.unchanged_since {
        w.text(" (UNCHANGEDSINCE ").number(mod_seq).text(")");
    }
    w.word(match store.operation {
        StoreOperation::Replace => "FLAGS",
        StoreOperation::Add => "+FLAGS",
        StoreOperation::Remove => "-FLAGS",
    });
    w.text(if store.silent { ".SILENT" } else { "" })
        .flags(&store.flags)
}

fn fetch<'a>(w: &'a mut Writer, fetch: &Fetch) -> &'a mut Writer {
    w.word(by(fetch.uid, "FETCH", "UID FETCH"))
        .set(&fetch.set)
        .text(" (");
    for (n, item) in fetch.items.iter().enumerate() {
        w.text(if n == 0 { "" } else { " " });
        match item {
            FetchItem::Body => w.text("BODY"),
            FetchItem::BodyStructure => w.text("BODYSTRUCTURE"),
            FetchItem::EmailId => w.text("EMAILID"),
            FetchItem::Envelope => w.text("ENVELOPE"),
            FetchItem::Flags => w.text("FLAGS"),
            FetchItem::InternalDate => w.text("INTERNALDATE"),
            FetchItem::ModSeq => w.text("MODSEQ"),
            FetchItem::Preview { lazy } => w.text(by(*lazy, "PREVIEW", "PREVIEW (LAZY)")),
            FetchItem::Rfc822 => w.text("RFC822"),
            FetchItem::Rfc822Header => w.text("RFC822.HEADER"),
            FetchItem::Rfc822Size => w.text("RFC822.SIZE"),
            FetchItem::Rfc822Text => w.text("RFC822.TEXT"),
            FetchItem::SaveDate => w.text("SAVEDATE"),
            FetchItem::ThreadId => w.text("THREADID"),
            FetchItem::Uid => w.text("UID"),
            FetchItem::Section {
                section,
                partial,
                peek,
            } => {
                w.text(if *peek { "BODY.PEEK[" } else { "BODY[" });
                section.encode(&mut w.out);
                w.text("]").partial(*partial)
            }
            FetchItem::Binary {
                part,
                partial,
                peek,
            } => w
                .text(if *peek { "BINARY.PEEK[" } else { "BINARY[" })
                .part(part)
                .text("]")
                .partial(*partial),
            FetchItem::BinarySize { part } => w.text("BINARY.SIZE[").part(part).text("]"),
        };
    }
    w.text(")");
    let mut modifiers = Vec::new();
    if let Some(mod_seq) = fetch.changed_since {
        modifiers.push(format!("CHANGEDSINCE {mod_seq}"));
    }
    if fetch.vanished {
        modifiers.push("VANISHED".into());
    }
    if let Some(range) = fetch.partial {
        modifiers.push(partial_range(range));
    }
    if !modifiers.is_empty() {
        w.list(modifiers.iter().map(String::as_str));
    }
    w
}

fn search<'a>(w: &'a mut Writer, search: &Search) -> &'a mut Writer {
    w.word(by(search.uid, "SEARCH", "UID SEARCH"));
    returns(w, search.returns);
    if let Some(charset) = &search.charset {
        w.word("CHARSET").string(charset.as_bytes());
    }
    w.text(" ");
    key(w, &search.key);
    w
}

fn returns(w: &mut Writer, returns: Option<SearchReturn>) {
    if let Some(returns) = returns {
        let partial = returns.partial.map(partial_range);
        w.word("RETURN").list(chosen([
            (returns.min, "MIN"),
            (returns.max, "MAX"),
            (returns.all, "ALL"),
            (returns.count, "COUNT"),
            (returns.save, "SAVE"),
            (partial.is_some(), partial.as_deref().unwrap_or_default()),
        ]));
    }
}

/// `PARTIAL range`
fn partial_range(range: PartialRange) -> String {
    let mut text = b"PARTIAL ".to_vec();
    range.encode(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn sort<'a>(w: &'a mut Writer, sort: &Sort) -> &'a mut Writer {
    w.word(by(sort.uid, "SORT", "UID SORT"));
    returns(w, sort.returns);
    for (n, criterion) in sort.criteria.iter().enumerate() {
        w.text(if n == 0 { " (" } else { " " })
            .text(by(criterion.reverse, "", "REVERSE "))
            .text(criterion.key.name());
    }
    w.text(")").string(sort.charset.as_bytes()).text(" ");
    key(w, &sort.key);
    w
}

fn thread<'a>(w: &'a mut Writer, thread: &Thread) -> &'a mut Writer {
    w.word(by(thread.uid, "THREAD", "UID THREAD"));
    w.word(match thread.algorithm {
        ThreadAlgorithm::OrderedSubject => "ORDEREDSUBJECT",
        ThreadAlgorithm::References => "REFERENCES",
    });
    w.string(thread.charset.as_bytes()).text(" ");
    key(w, &thread.key);
    w
}

/// Recursion: the depth of the tree is what its builder made it.
fn key(w: &mut Writer, search_key: &SearchKey) {
    let text = |w: &mut Writer, name: &str, text: &[u8]| {
        w.text(name).string(text);
    };
    let date = |w: &mut Writer, name: &str, date: Date| {
        w.text(name)
            .text(" ")
            .number(u64::from(date.day()))
            .text("-")
            .text(date.month_name());
        w.text(&format!("-{:04}", date.year()));
    };
    match search_key {
        SearchKey::And(keys) => {
            for (n, inner) in keys.iter().enumerate() {
                w.text(if n == 0 { "(" } else { " " });
                key(w, inner);
            }
            w.text(")");
        }
        SearchKey::Or(keys) => {
            for (n, inner) in keys.iter().enumerate() {
                w.text(if n == 0 { "" } else { " " })
                    .text(if n + 1 < keys.len() { "OR " } else { "" });
                key(w, inner);
            }
        }
        SearchKey::Not(inner) => key(w.text("NOT "), inner),
        SearchKey::Sequence(set) => set.encode(&mut w.out),
        SearchKey::Uid(set) => _ = w.text("UID").set(set),
        SearchKey::All => _ = w.text("ALL"),
        SearchKey::Answered => _ = w.text("ANSWERED"),
        SearchKey::Bcc(t) => text(w, "BCC", t),
        SearchKey::Before(d) => date(w, "BEFORE", *d),
        SearchKey::Body(t) => text(w, "BODY", t),
        SearchKey::Cc(t) => text(w, "CC", t),
        SearchKey::Deleted => _ = w.text("DELETED"),
        SearchKey::Draft => _ = w.text("DRAFT"),
        SearchKey::Flagged => _ = w.text("FLAGGED"),
        SearchKey::EmailId(id) => _ = w.text("EMAILID").word(id.as_str()),
        SearchKey::From(t) => text(w, "FROM", t),
        SearchKey::Header(name, t) => _ = w.text("HEADER").string(name.as_bytes()).string(t),
        SearchKey::Keyword(k) => _ = w.text("KEYWORD").word(k.as_str()),
        SearchKey::Larger(n) => _ = w.text("LARGER ").number(*n),
        SearchKey::ModSeq(n) => _ = w.text("MODSEQ ").number(*n),
        SearchKey::New => _ = w.text("NEW"),
        SearchKey::Old => _ = w.text("OLD"),
        SearchKey::Older(n) => _ = w.text("OLDER ").number(u64::from(*n)),
        SearchKey::On(d) => date(w, "ON", *d),
        SearchKey::Recent => _ = w.text("RECENT"),
        SearchKey::SaveDateSupported => _ = w.text("SAVEDATESUPPORTED"),
        SearchKey::SavedBefore(d) => date(w, "SAVEDBEFORE", *d),
        SearchKey::SavedOn(d) => date(w, "SAVEDON", *d),
        SearchKey::SavedSince(d) => date(w, "SAVEDSINCE", *d),
        SearchKey::Seen => _ = w.text("SEEN"),
        SearchKey::SentBefore(d) => date(w, "SENTBEFORE", *d),
        SearchKey::SentOn(d) => date(w, "SENTON", *d),
        SearchKey::SentSince(d) => date(w, "SENTSINCE", *d),
        SearchKey::Since(d) => date(w, "SINCE", *d),
        SearchKey::Smaller(n) => _ = w.text("SMALLER ").number(*n),
        SearchKey::Subject(t) => text(w, "SUBJECT", t),
        SearchKey::Text(t) => text(w, "TEXT", t),
        SearchKey::ThreadId(id) => _ = w.text("THREADID").word(id.as_str()),
        SearchKey::To(t) => text(w, "TO", t),
        SearchKey::Unanswered => _ = w.text("UNANSWERED"),
        SearchKey::Undeleted => _ = w.text("UNDELETED"),
        SearchKey::Undraft => _ = w.text("UNDRAFT"),
        SearchKey::Unflagged => _ = w.text("UNFLAGGED"),
        SearchKey::Unkeyword(k) => _ = w.text("UNKEYWORD").word(k.as_str()),
        SearchKey::Unseen => _ = w.text("UNSEEN"),
        SearchKey::Younger(n) => _ = w.text("YOUNGER ").number(u64::from(*n)),
    }
}
