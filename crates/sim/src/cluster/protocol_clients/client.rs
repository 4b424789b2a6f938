//! A strict IMAP client: one command at a time, by bytes, and what it is answered is held against what it knows.
//!
//! Reading order: [`Mind`], `connected` to `answered` (what it is told), then [`super::workload`] (what it asks).

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_imap::{
    client::{Client, FetchData, ListItem, ReplyCode, Response},
    command::StatusItem,
    core::{Flag, SequenceSet, StoreOperation, Tag},
    encode::Kind,
};
use whimbrel_service::api::AccountId;

use super::{
    super::blobs::text,
    announced::Told,
    cache::{self, Cache, Place, Resync, View},
};
use whimbrel_testkit::Rng;

use crate::client::{FLAGS_COUNT, KEYWORDS};

/// How much a client can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ability {
    Plain,
    Condstore,
    Qresync,
}

/// What it has asked for.
#[derive(Clone, Debug)]
pub(super) enum Doing {
    Login,
    Enable,
    Select,
    /// What changed since it was here.
    Since,
    /// `FETCH 1:*`
    Read,
    /// What is new.
    New,
    /// Something of some messages, perhaps by their numbers.
    Fetch {
        by_numbers: bool,
    },
    Store {
        uids: BTreeSet<u32>,
        operation: StoreOperation,
        flags: BTreeSet<u8>,
        unchanged_since: Option<u64>,
        /// Messages that it was told of within it.
        told: BTreeSet<u32>,
    },
    Copy {
        uids: BTreeSet<u32>,
        to: String,
    },
    Expunge,
    Append {
        name: String,
        body: u32,
    },
    Search {
        found: Option<BTreeSet<u32>>,
    },
    List {
        told: Vec<String>,
    },
    Status {
        name: String,
    },
    Idle(Idling),
    /// Whatever changes no message.
    Other,
}

/// Where an IDLE is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idling {
    /// Not answered yet.
    Asked,
    /// Changes are told as they come.
    Waiting,
    /// DONE was sent.
    Done,
}

/// What the world has to do or to know.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    /// It is at rest: it does something next after a while.
    Rest,
    /// It is told what changes, and ends that after a while.
    Idling,
    /// A message was acknowledged.
    Appended(u32),
    /// Flags were, on these messages.
    Flagged(Vec<u32>, BTreeSet<u8>),
    /// Something was drawn.
    Note(&'static str),
    /// It has read INBOX for the first time after SELECT, and was never told of these, with their sizes.
    Overlooked(Vec<(u32, u64)>),
}

/// What a client is told with, and by whom.
pub(super) struct Hearing<'a> {
    pub(super) account: AccountId,
    pub(super) place: Place,
    pub(super) now: u64,
    pub(super) told: &'a mut Told,
    pub(super) effects: &'a mut Vec<Effect>,
}

/// The client, over all its connections.
pub(super) struct Mind {
    pub(super) rng: Rng,
    pub(super) ability: Ability,
    /// Nothing is removed in its account.
    pub(super) keeping: bool,
    pub(super) login: String,
    pub(super) password: String,
    pub(super) wire: Client,
    pub(super) greeted: bool,
    pub(super) logged_in: bool,
    pub(super) enabled: bool,
    /// CONDSTORE or QRESYNC was asked for on this connection.
    pub(super) condstore: bool,
    pub(super) doing: Option<(Tag, Doing)>,
    /// When that was.
    pub(super) asked_at: u64,
    pub(super) view: Option<View>,
    pub(super) caches: BTreeMap<String, Cache>,
    /// Mailboxes that it still looks at before it is done, in the end.
    pub(super) rounds: Vec<String>,
    /// It was told BYE.
    pub(super) ended: bool,
}

impl Mind {
    pub(super) fn new(
        rng: Rng,
        ability: Ability,
        keeping: bool,
        login: String,
        password: String,
    ) -> Mind {
        Mind {
            rng,
            ability,
            keeping,
            login,
            password,
            wire: Client::new(),
            greeted: false,
            logged_in: false,
            enabled: false,
            condstore: false,
            doing: None,
            asked_at: 0,
            view: None,
            caches: BTreeMap::new(),
            rounds: Vec::new(),
            ended: false,
        }
    }

    /// It looks at all that it knows once more.
    pub(super) fn comes_again(&mut self) {
        self.rounds = self.caches.keys().cloned().collect();
    }

    /// Whether it has.
    pub(super) fn is_done(&self) -> bool {
        self.rounds.is_empty()
    }

    /// These had left INBOX where it is.
    pub(super) fn left_inbox(&mut self, uids: &BTreeSet<u32>) {
        let view = self.view.as_mut().filter(|view| view.name == "INBOX");
        let view = view.map(|view| &mut view.cache);
        let caches = self.caches.get_mut("INBOX").into_iter().chain(view);
        caches.for_each(|cache| cache.left.extend(uids));
    }

    /// A connection is made.
    pub(super) fn connected(&mut self) {
        self.wire = Client::new();
        self.greeted = false;
        self.logged_in = false;
        self.enabled = false;
        self.condstore = false;
        self.doing = None;
        self.view = None;
        self.ended = false;
    }

    /// Whether it waits for an answer.
    pub(super) fn waits(&self) -> bool {
        !self.greeted || !matches!(self.doing, None | Some((_, Doing::Idle(Idling::Waiting))))
    }

    /// Bytes have come.
    pub(super) fn hear(&mut self, bytes: &[u8], h: &mut Hearing<'_>) -> Result<(), String> {
        self.wire.push(bytes);
        while let Some(response) = self.wire.next().map_err(|bad| bad.to_string())? {
            self.response(response, h)?;
        }
        Ok(())
    }

    fn response(&mut self, response: Response, h: &mut Hearing<'_>) -> Result<(), String> {
        if self.ended {
            return Err(format!("after BYE: {response:?}"));
        }
        match response {
            Response::Status { kind, code, text } => self.status(kind, code, &text, h),
            Response::Tagged {
                tag,
                kind,
                code,
                text,
            } => self.tagged(&tag, kind, code, &text, h),
            Response::Capability(_) | Response::Enabled(_) | Response::Flags(_) => Ok(()),
            Response::Continuation { .. } => match &mut self.doing {
                Some((_, Doing::Idle(idling @ Idling::Asked))) => {
                    *idling = Idling::Waiting;
                    h.effects.push(Effect::Idling);
                    Ok(())
                }
                _ => Err("a continuation that nothing waits for".into()),
            },
            Response::Exists(count) => self.view()?.exists(count),
            Response::Recent(_) => self.view().map(|_| ()),
            Response::Expunge(number) => {
                let by_numbers = self.by_numbers();
                self.view()?.expunge(number, by_numbers)
            }
            Response::Vanished { earlier, uids } => {
                let by_numbers = self.by_numbers();
                let view = self.view()?;
                match earlier {
                    true => view.vanished_earlier(uids.ranges()),
                    false => view.vanished(uids.ranges(), by_numbers),
                }
            }
            Response::Fetch { sequence, items } => self.fetched(sequence, items, h),
            Response::Search { numbers, .. } => self.found(numbers.into_iter().collect()),
            Response::ESearch { all, .. } => {
                let numbers = |set: SequenceSet| {
                    let ranges = set.ranges().to_vec().into_iter();
                    ranges.flat_map(|(first, last)| first..=last).collect()
                };
                self.found(all.map(numbers).unwrap_or_default())
            }
            Response::List(item) => self.listed(&item),
            Response::MailboxStatus { mailbox, items, .. } => {
                self.mailbox_status(&mailbox, &items, h)
            }
            other => Err(format!("nobody asked for {other:?}")),
        }
    }

    fn view(&mut self) -> Result<&mut View, String> {
        let view = self.view.as_mut();
        view.ok_or_else(|| "told of a mailbox, and none is selected".into())
    }

    /// "An EXPUNGE response MUST NOT be sent when no command is in progress, nor while responding to a FETCH, STORE, or SEARCH command" (RFC 9051,
    /// 7.5.1): those by numbers.
    fn by_numbers(&self) -> bool {
        matches!(
            self.doing,
            None | Some((_, Doing::Fetch { by_numbers: true }))
        )
    }

    fn status(
        &mut self,
        kind: Kind,
        code: Option<ReplyCode>,
        text: &str,
        h: &mut Hearing<'_>,
    ) -> Result<(), String> {
        match kind {
            Kind::Bye => {
                self.ended = true;
                let known = [
                    "deleted or renamed",
                    "shutting down",
                    "idle for too long",
                    "log in in time",
                    "Closing the connection",
                    "No node serves",
                ];
                match known.iter().any(|words| text.contains(words)) {
                    true => Ok(()),
                    false => Err(format!("BYE {text}")),
                }
            }
            Kind::Ok if !self.greeted => {
                self.greeted = true;
                h.effects.push(Effect::Rest);
                Ok(())
            }
            Kind::Ok => self.code(code, h),
            other => Err(format!("{other:?} {code:?} {text}")),
        }
    }

    fn code(&mut self, code: Option<ReplyCode>, h: &mut Hearing<'_>) -> Result<(), String> {
        let asked_at = self.asked_at;
        match code {
            Some(ReplyCode::UidValidity(validity)) => {
                h.told.validity(h.account, validity)?;
                let view = self.view()?;
                view.cache.validity = validity;
                if let Some(before) = view.before.as_ref().filter(|of| of.validity == validity) {
                    view.cache.messages.clone_from(&before.messages);
                    view.cache.left.clone_from(&before.left);
                } else {
                    view.resync = Resync::None;
                }
            }
            Some(ReplyCode::UidNext(next)) => {
                let view = self.view()?;
                let key = (h.place, h.account, view.name.clone());
                let least = h.told.next.as_of(&key, asked_at);
                if u64::from(next) < least {
                    return Err(format!(
                        "U4: UIDNEXT of {} is told to be {next}, and was {least}",
                        view.name
                    ));
                }
                if view.resync == Resync::All && next < view.named {
                    return Err(format!(
                        "U4: UIDNEXT of {} falls from {}, below which the client knows UIDs, to {next}",
                        view.name, view.named
                    ));
                }
                view.below = next - 1;
                h.told.next.told(key, h.now, u64::from(next));
            }
            Some(ReplyCode::HighestModSeq(highest)) => {
                let view = self.view()?;
                match view.opening {
                    true => view.selected_modseq = highest,
                    false => view.told_highest = Some(highest),
                }
            }
            Some(ReplyCode::MailboxId(id)) => {
                let view = self.view()?;
                view.cache.id = id.as_str().to_owned();
                let key = (h.place, h.account, view.cache.id.clone());
                let least = h.told.modseq.as_of(&key, asked_at);
                if view.selected_modseq < least {
                    return Err(format!(
                        "HIGHESTMODSEQ of {} is {}, and {least} was told there",
                        view.name, view.selected_modseq
                    ));
                }
                h.told.modseq.told(key, h.now, view.selected_modseq);
            }
            // What it had selected is gone, by its own doing. SELECT tells the same of what was selected before.
            Some(ReplyCode::Plain(code)) if code == "CLOSED" => {
                self.view.take_if(|view| !view.opening);
            }
            // MOVE tells it before the messages are gone.
            Some(ReplyCode::CopyUid(validity, pairs)) => self.copied(validity, &pairs, h)?,
            _ => {}
        }
        Ok(())
    }

    fn fetched(
        &mut self,
        sequence: u32,
        items: Vec<FetchData>,
        h: &mut Hearing<'_>,
    ) -> Result<(), String> {
        let told = cache::Told::of(items)?;
        let view = self.view()?;
        let uid = view.fetch(sequence, &told)?;
        if let (Some(modseq), false) = (told.modseq, view.cache.id.is_empty()) {
            let key = (h.place, h.account, view.cache.id.clone());
            h.told.modseq.told(key, h.now, modseq);
        }
        let Some(uid) = uid else {
            return Ok(());
        };
        let validity = view.cache.validity;
        if let (Some(size), email) = (told.size, told.email.as_deref()) {
            h.told.message(h.account, (validity, uid), size, email)?;
        }
        if let Some(body) = &told.body {
            let size = u32::try_from(body.len()).unwrap_or(u32::MAX);
            h.told
                .message(h.account, (validity, uid), u64::from(size), None)?;
            if text(size) != body[..] {
                return Err(format!("UID {uid} has a body that nobody sent"));
            }
        }
        if let Some((
            _,
            Doing::Store {
                told: by_then,
                uids,
                ..
            },
        )) = &mut self.doing
            && uids.contains(&uid)
        {
            by_then.insert(uid);
        }
        Ok(())
    }

    fn found(&mut self, numbers: BTreeSet<u32>) -> Result<(), String> {
        if let Some(view) = self.view.as_ref().filter(|view| view.is_read) {
            // What it has not read is above.
            let old = numbers.range(..=view.below);
            let known: BTreeSet<u32> = view.uids.iter().flatten().copied().collect();
            if let Some(uid) = old.into_iter().find(|uid| !known.contains(uid)) {
                return Err(format!("SEARCH ALL found {uid}, which is not there"));
            }
        }
        match &mut self.doing {
            Some((_, Doing::Search { found })) if found.is_none() => {
                *found = Some(numbers);
                Ok(())
            }
            _ => Err("nobody searches".into()),
        }
    }

    fn listed(&mut self, item: &ListItem) -> Result<(), String> {
        match &mut self.doing {
            Some((_, Doing::List { told })) if !told.contains(&item.name) => {
                told.push(item.name.clone());
                Ok(())
            }
            other => Err(format!("{} is listed within {other:?}", item.name)),
        }
    }

    fn mailbox_status(
        &mut self,
        name: &str,
        items: &[(StatusItem, u64)],
        h: &mut Hearing<'_>,
    ) -> Result<(), String> {
        match &self.doing {
            Some((_, Doing::Status { name: asked })) if asked == name => {}
            Some((_, Doing::List { told })) if told.iter().any(|listed| listed == name) => {}
            other => return Err(format!("STATUS of {name} within {other:?}")),
        }
        for (item, value) in items {
            match item {
                StatusItem::UidNext => {
                    let key = (h.place, h.account, name.to_owned());
                    let least = h.told.next.as_of(&key, self.asked_at);
                    if *value < least {
                        return Err(format!(
                            "U4: UIDNEXT of {name} is told to be {value}, and was {least}"
                        ));
                    }
                    h.told.next.told(key, h.now, *value);
                }
                StatusItem::UidValidity => {
                    let validity = u32::try_from(*value).unwrap_or(u32::MAX);
                    h.told.validity(h.account, validity)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn copied(
        &mut self,
        validity: u32,
        pairs: &[(u32, u32)],
        h: &mut Hearing<'_>,
    ) -> Result<(), String> {
        let Some((_, Doing::Copy { uids, to })) = &self.doing else {
            return Err("COPYUID, and nothing was copied".into());
        };
        let (uids, to) = (uids.clone(), to.clone());
        h.told.validity(h.account, validity)?;
        // In the order of what was copied (RFC 4315, 3), which need not be that of the UIDs: a copy may have been claimed again before it was told.
        let mut told = BTreeSet::new();
        for (from, new) in pairs {
            if !told.insert(*new) || !uids.contains(from) {
                return Err(format!("COPYUID {pairs:?} of {uids:?}"));
            }
            let known = self
                .view
                .as_ref()
                .and_then(|of| of.cache.messages.get(from));
            if let Some(known) = known {
                let email = Some(known.email.as_str());
                h.told
                    .message(h.account, (validity, *new), known.size, email)?;
            }
        }
        let key = (h.place, h.account, to);
        let last = told.last().copied().unwrap_or(0);
        h.told.next.told(key, h.now, u64::from(last) + 1);
        Ok(())
    }

    /// A command has ended.
    fn tagged(
        &mut self,
        tag: &Tag,
        kind: Kind,
        code: Option<ReplyCode>,
        text: &str,
        h: &mut Hearing<'_>,
    ) -> Result<(), String> {
        let doing = self.doing.take_if(|(asked, _)| asked == tag);
        let Some((_, doing)) = doing else {
            return Err(format!("{tag:?} is no command under way"));
        };
        if kind == Kind::Bad {
            return Err(format!("{doing:?} is answered by BAD {text}"));
        }
        let is_ok = kind == Kind::Ok;
        let corrupt = matches!(&code, Some(ReplyCode::Plain(code)) if code == "CORRUPTION" || code == "SERVERBUG");
        if corrupt {
            return Err(format!("{doing:?} is answered by {code:?} {text}"));
        }
        match &doing {
            Doing::Login => self.logged_in = is_ok,
            Doing::Enable => {
                self.enabled = is_ok;
                self.condstore |= is_ok;
            }
            Doing::Since if is_ok => self.view()?.is_since = true,
            Doing::Select => self.selected(is_ok, code.as_ref()),
            Doing::Read if is_ok => self.was_read(h)?,
            Doing::Store { .. } => self.stored(&doing, is_ok, code.as_ref(), h)?,
            Doing::Copy { .. } if is_ok => {
                // COPY tells it with its end. The code must not be taken for another command's.
                if let Some(ReplyCode::CopyUid(validity, pairs)) = &code {
                    self.doing = Some((tag.clone(), doing.clone()));
                    let copied = self.copied(*validity, pairs, h);
                    self.doing = None;
                    copied?;
                }
            }
            Doing::Append { name, body } if is_ok => {
                self.appended(name, *body, code.as_ref(), h)?
            }
            Doing::Search { found } if is_ok => self.searched(found.as_ref())?,
            Doing::Expunge => {
                if let (Some(ReplyCode::HighestModSeq(highest)), Some(view)) =
                    (&code, &mut self.view)
                {
                    view.told_highest = Some(*highest);
                }
            }
            _ => {}
        }
        if let Some(view) = &mut self.view {
            if view.silent.is_some() {
                view.conclude_all(&BTreeSet::new());
            }
            view.ended();
            if let Some(cache) = view.kept() {
                self.caches.insert(view.name.clone(), cache);
            }
        }
        h.effects.push(Effect::Rest);
        Ok(())
    }

    fn selected(&mut self, is_ok: bool, code: Option<&ReplyCode>) {
        let Some(view) = &mut self.view else {
            return;
        };
        if is_ok {
            view.opening = false;
            view.selected_count = view.uids.len();
            view.cache.modseq = view.selected_modseq;
            view.told_modseq = 0;
            return;
        }
        if matches!(code, Some(ReplyCode::Plain(code)) if code == "NONEXISTENT") {
            self.caches.remove(&view.name);
            if self.rounds.last() == Some(&view.name) {
                self.rounds.pop();
            }
        }
        self.view = None;
    }

    fn was_read(&mut self, h: &mut Hearing<'_>) -> Result<(), String> {
        let view = self.view()?;
        let first = !view.is_read;
        view.read()?;
        if first && view.is_read {
            if view.name == "INBOX" {
                let overlooked = std::mem::take(&mut view.overlooked);
                h.effects.push(Effect::Overlooked(overlooked));
            }
            h.effects.push(Effect::Note(match view.resync {
                Resync::None => "client: mailbox read",
                Resync::Flags => "client: flags resynchronised",
                Resync::All => "client: mailbox resynchronised",
            }));
        }
        Ok(())
    }

    fn stored(
        &mut self,
        doing: &Doing,
        is_ok: bool,
        code: Option<&ReplyCode>,
        h: &mut Hearing<'_>,
    ) -> Result<(), String> {
        let Doing::Store {
            uids,
            operation,
            flags,
            unchanged_since,
            told,
        } = doing
        else {
            return Ok(());
        };
        let mut modified = BTreeSet::new();
        if let Some(ReplyCode::Modified(set)) = code {
            let ranges = set.ranges().iter();
            modified.extend(ranges.flat_map(|(first, last)| *first..=*last));
            if unchanged_since.is_none() || !modified.is_subset(uids) {
                return Err(format!("MODIFIED {modified:?} of {doing:?}"));
            }
            h.effects.push(Effect::Note("client: MODIFIED"));
        }
        let Some(view) = &mut self.view else {
            return Ok(());
        };
        if !is_ok {
            view.silent = None;
        }
        view.conclude_all(&modified);
        let adds = is_ok && unchanged_since.is_none() && *operation == StoreOperation::Add;
        let mut told_now = told
            .iter()
            .filter_map(|uid| view.cache.messages.get_key_value(uid));
        let lost = told_now.find(|(_, known)| !numbers(&known.flags).is_superset(flags));
        // Where nothing is ever taken away, what was set is there.
        if let Some((uid, known)) = lost.filter(|_| adds && self.keeping) {
            return Err(format!("UID {uid} was to have {flags:?}: {known:?}"));
        }
        if is_ok && *operation == StoreOperation::Add {
            let done = told.difference(&modified).copied().collect();
            h.effects.push(Effect::Flagged(done, flags.clone()));
        }
        Ok(())
    }

    fn appended(
        &mut self,
        name: &str,
        body: u32,
        code: Option<&ReplyCode>,
        h: &mut Hearing<'_>,
    ) -> Result<(), String> {
        h.effects.push(Effect::Appended(body));
        let Some(ReplyCode::AppendUid(validity, uids)) = code else {
            return Err(format!("APPEND is answered by {code:?}"));
        };
        let [(uid, last)] = uids.ranges() else {
            return Err(format!("APPENDUID of one message: {uids:?}"));
        };
        if uid != last {
            return Err(format!("APPENDUID of one message: {uids:?}"));
        }
        h.told.validity(h.account, *validity)?;
        let size = u64::from(body);
        h.told.message(h.account, (*validity, *uid), size, None)?;
        let key = (h.place, h.account, name.to_owned());
        h.told.next.told(key, h.now, u64::from(*uid) + 1);
        Ok(())
    }

    fn searched(&mut self, found: Option<&BTreeSet<u32>>) -> Result<(), String> {
        let Some(view) = &self.view else {
            return Ok(());
        };
        let found = found.ok_or("SEARCH found neither something nor nothing")?;
        // What was expunged within it is not found, and was told with its end.
        let mut known = view.uids.iter().flatten();
        match known.find(|uid| !found.contains(uid)) {
            Some(uid) => Err(format!("SEARCH ALL does not find {uid}")),
            None => Ok(()),
        }
    }
}

/// The flags that clients set, by their numbers.
pub(super) fn numbers(flags: &cache::Flags) -> BTreeSet<u8> {
    let all = (0..FLAGS_COUNT).zip(spelled(0));
    let has = all.filter(|(_, flag)| flags.contains(&cache::folded(flag.as_str())));
    has.map(|(number, _)| number).collect()
}

/// All flags that clients set, as they are spelled at times.
pub(super) fn spelled(spelling: usize) -> impl Iterator<Item = Flag> {
    let system = [Flag::Deleted, Flag::Seen, Flag::Flagged, Flag::Answered];
    let keywords = KEYWORDS[spelling].iter();
    let keywords = keywords.filter_map(|text| Flag::new(text.as_bytes()));
    system.into_iter().chain(keywords)
}
