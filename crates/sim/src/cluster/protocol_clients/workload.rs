//! What a client asks: first for what it needs to know all of its mailbox, then for anything.

use std::collections::BTreeSet;

use whimbrel_imap::{
    CommandBody,
    client::{Append, NonSynchronising},
    command::{
        Fetch, FetchItem, Qresync, Search, SearchKey, SearchReturn, Section, Select, StatusItem,
        Store,
    },
    core::{DateTime, Flag, MailboxName, MessageSet, Secret, SequenceSet, StoreOperation},
};

use super::{
    super::blobs::{date, text},
    cache::{Cache, Place, Resync, View, folded},
    client::{self, Ability, Doing, Effect, Idling, Mind},
};
use crate::client::{FLAGS_COUNT, NAMES, spelling};

/// What a client may draw from.
pub(super) struct Workload<'a> {
    pub(super) now: u64,
    pub(super) place: Place,
    /// A message that nobody has sent yet; taken or not.
    pub(super) body: u32,
    pub(super) takes_body: bool,
    /// It begins nothing but what it needs to know all.
    pub(super) rests: bool,
    pub(super) effects: &'a mut Vec<Effect>,
}

/// STATUS and LIST ask for these.
const STATUS: [StatusItem; 4] = [
    StatusItem::Messages,
    StatusItem::UidNext,
    StatusItem::UidValidity,
    StatusItem::HighestModSeq,
];

fn mailbox(name: &str) -> MailboxName {
    MailboxName::new(name).expect("the names of clients are valid")
}

fn numbers(numbers: impl IntoIterator<Item = u32>) -> MessageSet {
    MessageSet::Numbers(SequenceSet::from_numbers(numbers))
}

fn from_on(first: u32) -> MessageSet {
    let text = format!("{first}:*");
    let set = SequenceSet::parse(text.as_bytes(), 1);
    MessageSet::Numbers(set.expect("n:* is a set"))
}

fn spelled(flags: &BTreeSet<u8>) -> Vec<Flag> {
    let chosen = (0u8..)
        .zip(client::spelled(spelling(flags)))
        .filter(|(number, _)| flags.contains(number));
    chosen.map(|(_, flag)| flag).collect()
}

impl Mind {
    fn ask(
        &mut self,
        wish: &mut Workload<'_>,
        note: &'static str,
        body: &CommandBody,
        doing: Doing,
    ) {
        let tag = self.wire.command(body);
        wish.effects.push(Effect::Note(note));
        self.asked_at = wish.now;
        self.doing = Some((tag, doing));
    }

    /// Asks for the next thing; whether there is something to ask for.
    pub(super) fn turn(&mut self, wish: &mut Workload<'_>) -> bool {
        if let Some((_, Doing::Idle(idling @ Idling::Waiting))) = &mut self.doing {
            *idling = Idling::Done;
            self.asked_at = wish.now;
            self.wire.line(b"DONE");
            return true;
        }
        if self.waits() || self.ended {
            return false;
        }
        if !self.logged_in {
            let body = CommandBody::Login {
                user: self.login.clone(),
                password: Secret::new(self.password.clone().into_bytes()),
            };
            if self.rng.one_in(2) {
                self.wire.set_literals(NonSynchronising::Always);
            }
            self.ask(wish, "client: LOGIN", &body, Doing::Login);
            return true;
        }
        if !self.enabled && self.ability != Ability::Plain {
            let name = match self.ability {
                Ability::Qresync => "QRESYNC",
                _ => "CONDSTORE",
            };
            // SELECT (CONDSTORE) does the same.
            if self.ability == Ability::Condstore && self.rng.one_in(2) {
                self.enabled = true;
            } else {
                let body = CommandBody::Enable(vec![name.to_owned()]);
                self.ask(wish, "client: ENABLE", &body, Doing::Enable);
                return true;
            }
        }
        if self.gathers(wish) {
            return true;
        }
        match self.rounds.last() {
            Some(name) if self.view.as_ref().is_some_and(|view| view.name == *name) => {
                self.rounds.pop();
                self.view = None;
                return self.turn(wish);
            }
            Some(name) => {
                let name = name.clone();
                self.select(wish, &name);
                return true;
            }
            None if wish.rests => return false,
            None => {}
        }
        if self.view.is_none() {
            let name = match self.rng.one_in(2) {
                true => "INBOX",
                false => self.any(),
            };
            self.select(wish, name);
            return true;
        }
        self.wishes(wish);
        true
    }

    fn any(&mut self) -> &'static str {
        match self.rng.one_in(3) {
            true => "INBOX",
            false => self.rng.pick::<&'static str>(&NAMES),
        }
    }

    /// What it must read to know its mailbox.
    fn gathers(&mut self, wish: &mut Workload<'_>) -> bool {
        let Some(view) = &self.view else {
            return false;
        };
        if !view.is_read {
            if view.resync == Resync::Flags && !view.is_since {
                let modseq = view.before.as_ref().map_or(1, |before| before.modseq);
                let fetch = Fetch {
                    uid: true,
                    set: from_on(1),
                    items: vec![FetchItem::Uid, FetchItem::Flags, FetchItem::ModSeq],
                    changed_since: Some(modseq),
                    vanished: false,
                    partial: None,
                };
                self.ask(
                    wish,
                    "client: FETCH CHANGEDSINCE",
                    &CommandBody::Fetch(fetch),
                    Doing::Since,
                );
                return true;
            }
            if view.left_out > view.noops {
                self.view.iter_mut().for_each(|view| view.noops += 1);
                self.ask(wish, "client: NOOP", &CommandBody::Noop, Doing::Other);
                return true;
            }
            self.fetch(
                wish,
                "client: FETCH 1:*",
                from_on(1),
                true,
                false,
                Doing::Read,
            );
            return true;
        }
        if view.lacks() {
            let (last, known) = (view.last(), view.cache.messages.len());
            let news = view.uids.iter().flatten().count() == known;
            let doing = if news { Doing::New } else { Doing::Read };
            let set = from_on(if news { last + 1 } else { 1 });
            self.fetch(
                wish,
                "client: FETCH of what is new",
                set,
                true,
                false,
                doing,
            );
            return true;
        }
        false
    }

    fn fetch(
        &mut self,
        wish: &mut Workload<'_>,
        note: &'static str,
        set: MessageSet,
        uid: bool,
        body: bool,
        doing: Doing,
    ) {
        let mut items = vec![
            FetchItem::Uid,
            FetchItem::Flags,
            FetchItem::Rfc822Size,
            FetchItem::EmailId,
        ];
        if self.condstore {
            items.push(FetchItem::ModSeq);
        }
        if body {
            items.push(FetchItem::Section {
                section: Section::default(),
                partial: None,
                peek: true,
            });
        }
        let fetch = Fetch {
            uid,
            set,
            items,
            changed_since: None,
            vanished: false,
            partial: None,
        };
        self.ask(wish, note, &CommandBody::Fetch(fetch), doing);
    }

    fn select(&mut self, wish: &mut Workload<'_>, name: &str) {
        let before = self.caches.get(name).cloned();
        let usable = before.as_ref().filter(|of| of.modseq > 0);
        let (mut resync, mut named) = (Resync::None, 0);
        let mut qresync = None;
        match (self.ability, usable) {
            (Ability::Qresync, Some(cache)) => {
                resync = Resync::All;
                let known;
                (known, named) = self.known(cache);
                qresync = Some(self.qresync(cache, known));
            }
            (Ability::Condstore, Some(_)) => resync = Resync::Flags,
            _ => {}
        }
        let condstore = self.ability == Ability::Condstore && !self.condstore;
        self.condstore |= condstore;
        let read_only = self.rng.one_in(6);
        let note = match (&qresync, condstore, read_only) {
            (Some(_), ..) => "client: SELECT QRESYNC",
            (None, true, _) => "client: SELECT CONDSTORE",
            (None, false, true) => "client: EXAMINE",
            (None, false, false) => "client: SELECT",
        };
        if before.as_ref().is_some_and(|of| of.place != wish.place) {
            wish.effects.push(Effect::Note(match qresync {
                Some(_) => "client: moved with QRESYNC",
                None => "client: moved",
            }));
        }
        let select = Select {
            mailbox: mailbox(name),
            condstore,
            qresync,
        };
        let body = match read_only {
            true => CommandBody::Examine(select),
            false => CommandBody::Select(select),
        };
        self.ask(wish, note, &body, Doing::Select);
        self.view = Some(View {
            name: name.to_owned(),
            read_only,
            condstore: self.condstore,
            qresync: self.ability == Ability::Qresync,
            resync,
            cache: Cache::empty(wish.place),
            uids: Vec::new(),
            below: 0,
            before,
            named,
            selected_modseq: 0,
            is_since: false,
            left_out: 0,
            noops: 0,
            is_read: false,
            opening: true,
            told_modseq: 0,
            told_highest: None,
            silent: None,
            selected_count: 0,
            heard: BTreeSet::new(),
            overlooked: Vec::new(),
        });
    }

    /// Which UIDs it says to know: all below UIDNEXT, or those that it knows; and below which it has named all that it knows.
    fn known(&mut self, cache: &Cache) -> (Option<SequenceSet>, u32) {
        let range = self.rng.one_in(2);
        if range && cache.uid_next > 1 {
            let all = SequenceSet::from_ranges([(1, cache.uid_next - 1)]);
            return (Some(all), cache.uid_next);
        }
        match cache.messages.keys().next_back() {
            Some(last) => {
                let all = SequenceSet::from_numbers(cache.messages.keys().copied());
                (Some(all), last + 1)
            }
            None => (None, 0),
        }
    }

    fn qresync(&mut self, cache: &Cache, known_uids: Option<SequenceSet>) -> Qresync {
        let mut some: Vec<(u32, u32)> = (1..).zip(cache.messages.keys().copied()).collect();
        some.retain(|_| self.rng.one_in(3));
        let matched = self.rng.one_in(3) && !some.is_empty() && known_uids.is_some();
        Qresync {
            uid_validity: cache.validity,
            mod_seq: cache.modseq,
            known_uids,
            sequence_match: matched.then(|| {
                let numbers = some.iter().map(|(number, _)| *number);
                let uids = some.iter().map(|(_, uid)| *uid);
                (
                    SequenceSet::from_numbers(numbers),
                    SequenceSet::from_numbers(uids),
                )
            }),
        }
    }

    /// Anything.
    fn wishes(&mut self, wish: &mut Workload<'_>) {
        let Some(view) = &self.view else {
            return;
        };
        let (writes, count) = (!view.read_only, view.uids.len());
        let all: Vec<u32> = view.uids.iter().flatten().copied().collect();
        let uids: BTreeSet<u32> = all.into_iter().filter(|_| self.rng.one_in(3)).collect();
        match self.rng.below(26) {
            0..=1 if !uids.is_empty() => {
                let body = self.rng.one_in(3);
                let by_numbers = self.rng.one_in(2);
                let set = match by_numbers {
                    false => numbers(uids),
                    true => numbers((1u32..).zip(0..count).map(|(number, _)| number)),
                };
                let note = match body {
                    true => "client: FETCH BODY",
                    false => "client: FETCH",
                };
                self.fetch(
                    wish,
                    note,
                    set,
                    !by_numbers,
                    body,
                    Doing::Fetch { by_numbers },
                );
            }
            2..=6 if writes && !uids.is_empty() => self.store(wish, uids),
            7..=8 if writes && !uids.is_empty() => {
                let to = self.any().to_owned();
                let set = numbers(uids.clone());
                let mailbox = mailbox(&to);
                let moves = self.keeping || self.rng.one_in(2);
                let (note, body) = match moves {
                    true => (
                        "client: MOVE",
                        CommandBody::Move {
                            uid: true,
                            set,
                            mailbox,
                        },
                    ),
                    false => (
                        "client: COPY",
                        CommandBody::Copy {
                            uid: true,
                            set,
                            mailbox,
                        },
                    ),
                };
                self.ask(wish, note, &body, Doing::Copy { uids, to });
            }
            9..=10 if writes && !self.keeping && !uids.is_empty() => {
                let uids = Some(numbers(uids));
                let body = CommandBody::Expunge { uids };
                self.ask(wish, "client: EXPUNGE", &body, Doing::Expunge);
            }
            11..=13 => self.append(wish),
            14 => {
                let returns = self.rng.one_in(2).then_some(SearchReturn {
                    all: true,
                    ..SearchReturn::default()
                });
                let body = CommandBody::Search(Search {
                    uid: true,
                    returns,
                    charset: None,
                    key: SearchKey::All,
                });
                self.ask(wish, "client: SEARCH", &body, Doing::Search { found: None });
            }
            15 => {
                let words: Vec<&str> = STATUS.iter().map(|item| item.as_str()).collect();
                let line = format!("LIST \"\" \"*\" RETURN (STATUS ({}))", words.join(" "));
                let tag = self.wire.raw(line.as_bytes());
                wish.effects.push(Effect::Note("client: LIST"));
                self.asked_at = wish.now;
                self.doing = Some((tag, Doing::List { told: Vec::new() }));
            }
            16 => {
                let name = self.any().to_owned();
                let body = CommandBody::Status {
                    mailbox: mailbox(&name),
                    items: STATUS.to_vec(),
                };
                self.ask(wish, "client: STATUS", &body, Doing::Status { name });
            }
            17 => {
                let body = CommandBody::Create {
                    mailbox: mailbox(self.any()),
                    special_use: Vec::new(),
                    unknown_use: false,
                };
                self.ask(wish, "client: CREATE", &body, Doing::Other);
            }
            18 => {
                let (from, to) = (mailbox(self.any()), mailbox(self.any()));
                let body = CommandBody::Rename { from, to };
                self.ask(wish, "client: RENAME", &body, Doing::Other);
            }
            19..=20 => {
                let name = self.any();
                self.select(wish, name);
            }
            21..=22 => self.ask(
                wish,
                "client: IDLE",
                &CommandBody::Idle,
                Doing::Idle(Idling::Asked),
            ),
            23 => self.fetch(
                wish,
                "client: FETCH 1:*",
                from_on(1),
                true,
                false,
                Doing::Read,
            ),
            _ => self.ask(wish, "client: NOOP", &CommandBody::Noop, Doing::Other),
        }
    }

    fn store(&mut self, wish: &mut Workload<'_>, uids: BTreeSet<u32>) {
        let keeping = self.keeping;
        let least = u8::from(keeping);
        let flags: BTreeSet<u8> = (least..FLAGS_COUNT)
            .filter(|_| self.rng.one_in(2))
            .collect();
        let operation = match keeping {
            true => StoreOperation::Add,
            false => *self.rng.pick(&[
                StoreOperation::Add,
                StoreOperation::Add,
                StoreOperation::Remove,
                StoreOperation::Replace,
            ]),
        };
        let silent = self.rng.one_in(3);
        let modseq = self.view.as_ref().map_or(0, |view| view.cache.modseq);
        let conditional = self.condstore && modseq > 0 && self.rng.one_in(3);
        let unchanged_since = conditional.then(|| match self.rng.one_in(4) {
            true => modseq / 2,
            false => modseq,
        });
        let body = CommandBody::Store(Store {
            uid: true,
            set: numbers(uids.iter().copied()),
            unchanged_since,
            operation,
            silent,
            flags: spelled(&flags),
        });
        if let Some(view) = self.view.as_mut().filter(|_| silent) {
            let words = spelled(&flags)
                .iter()
                .map(|flag| folded(flag.as_str()))
                .collect();
            view.silent = Some((uids.clone(), operation, words));
        }
        let note = match (silent, conditional) {
            (_, true) => "client: STORE UNCHANGEDSINCE",
            (true, false) => "client: STORE, silent",
            (false, false) => "client: STORE",
        };
        let doing = Doing::Store {
            uids,
            operation,
            flags,
            unchanged_since,
            told: BTreeSet::new(),
        };
        self.ask(wish, note, &body, doing);
    }

    fn append(&mut self, wish: &mut Workload<'_>) {
        let index = usize::try_from(self.rng.below(4)).unwrap_or(0);
        let name = NAMES[index].to_owned();
        let flags = if self.rng.one_in(3) {
            vec![Flag::Seen]
        } else {
            Vec::new()
        };
        self.wire.set_literals(match self.rng.one_in(2) {
            true => NonSynchronising::Always,
            false => NonSynchronising::Never,
        });
        let body = wish.body;
        wish.takes_body = true;
        let date = date(body);
        let tag = self.wire.append(&Append {
            mailbox: &mailbox(&name),
            flags: &flags,
            date: Some(DateTime::with_zone(date.seconds, date.zone_minutes)),
            message: &text(body),
        });
        wish.effects.push(Effect::Note("client: APPEND"));
        self.asked_at = wish.now;
        self.doing = Some((tag, Doing::Append { name, body }));
    }
}
