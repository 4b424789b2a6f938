//! One session, as its client understands it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use super::{Before, Known, Listing, PORTS, Strict, is_of, locked};
use crate::imap::{
    parse::{Fetched, Node, Response, Status, modseq, ranges},
    reply::Reply,
};

/// What was asked, as far as it matters for what may be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Command {
    Login(String),
    Select(String),
    Close,
    Enable,
    /// "An EXPUNGE response MUST NOT be sent" (RFC 9051, 7.5.1).
    ByNumber,
    /// Puts messages into a mailbox, and tells their UIDs.
    Into(String),
    /// Another mailbox may have these names afterwards, and those below them.
    Renames(Vec<String>),
    Other,
}

impl Command {
    /// Of its first line, without tag.
    fn of(line: &str) -> Command {
        let words = words(line);
        let word = |at: usize| words.get(at).map(String::as_str).unwrap_or_default();
        let last = || mailbox(words.last().map(String::as_str).unwrap_or_default());
        match (
            word(0).to_ascii_uppercase().as_str(),
            word(1).to_ascii_uppercase().as_str(),
        ) {
            ("LOGIN", _) => Command::Login(word(1).to_owned()),
            ("SELECT" | "EXAMINE", _) => Command::Select(mailbox(word(1))),
            ("CLOSE" | "UNSELECT", _) => Command::Close,
            ("ENABLE", "QRESYNC") => Command::Enable,
            ("FETCH" | "STORE" | "SEARCH", _) => Command::ByNumber,
            ("APPEND", _) => Command::Into(mailbox(word(1))),
            ("REPLACE", _) => Command::Into(mailbox(word(2))),
            ("UID", "REPLACE") => Command::Into(mailbox(word(3))),
            ("COPY" | "MOVE", _) | ("UID", "COPY" | "MOVE") => Command::Into(last()),
            ("DELETE", _) => Command::Renames(vec![mailbox(word(1))]),
            ("RENAME", _) => Command::Renames(vec![mailbox(word(1)), mailbox(word(2))]),
            _ => Command::Other,
        }
    }
}

/// INBOX is INBOX in any case.
fn mailbox(name: &str) -> String {
    if name.eq_ignore_ascii_case("INBOX") {
        "INBOX".to_owned()
    } else {
        name.to_owned()
    }
}

/// Words and quoted strings.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut quoted, mut escaped) = (false, false);
    for letter in line.chars() {
        match letter {
            _ if escaped => {
                escaped = false;
                words.last_mut().expect("never empty").push(letter);
            }
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().expect("never empty").push(letter),
        }
    }
    words
}

/// A message as its number stands for it.
#[derive(Clone, Copy, Debug)]
struct Place {
    uid: Option<u32>,
    /// It came when this UIDNEXT had been told.
    floor: u32,
}

#[derive(Debug)]
struct Selected {
    mailbox: String,
    before: Before,
    places: Vec<Place>,
    /// While SELECT is not answered.
    opening: bool,
    validity: Option<u32>,
    next: Option<u32>,
    modseq: Option<u64>,
    /// It is to be listed.
    unlisted: bool,
    /// What stays selected if the command is not understood.
    instead_of: Option<Box<Selected>>,
}

/// A session of a client that keeps everything.
#[derive(Debug)]
pub struct Session {
    strict: Arc<Strict>,
    user: Option<String>,
    qresync: bool,
    commands: VecDeque<(String, Command)>,
    selected: Option<Selected>,
    /// By mailbox, the least UIDNEXT that it can be told after the UIDs that it was.
    least: BTreeMap<String, u32>,
}

impl Session {
    /// Of who connects to this port, if it is watched.
    #[must_use]
    pub fn at(port: u16) -> Option<Session> {
        let strict = locked(&PORTS).get(&port).map(Arc::clone)?;
        Some(Session::new(strict))
    }

    pub(super) fn new(strict: Arc<Strict>) -> Session {
        Session {
            strict,
            user: None,
            qresync: false,
            commands: VecDeque::new(),
            selected: None,
            least: BTreeMap::new(),
        }
    }

    fn known<T>(&self, mailbox: &str, then: impl FnOnce(&mut Known) -> T) -> Option<T> {
        let user = self.user.as_ref()?;
        Some(self.strict.with(user, mailbox, then))
    }

    fn knows(
        &self,
        mailbox: &str,
        then: impl FnOnce(&mut Known) -> Result<(), String>,
    ) -> Result<(), String> {
        let judged = self.known(mailbox, then).unwrap_or(Ok(()));
        judged.map_err(|breach| format!("{mailbox}: {breach}"))
    }

    /// A command goes out: its tag, and its first line.
    pub fn sent(&mut self, tag: &str, command: &[u8]) {
        let line = command.split(|byte| *byte == b'\r').next();
        let line = String::from_utf8_lossy(line.unwrap_or_default());
        self.commands
            .push_back((tag.to_owned(), Command::of(&line)));
        if self.commands.len() == 1 {
            self.begin();
        }
    }

    /// The next command is the one that is answered now.
    fn begin(&mut self) {
        if let Some((_, Command::Select(mailbox))) = self.commands.front() {
            let user = self.user.clone().unwrap_or_default();
            self.selected = Some(Selected {
                mailbox: mailbox.clone(),
                before: self.strict.before(&user, mailbox),
                places: Vec::new(),
                opening: true,
                validity: None,
                next: None,
                modseq: None,
                unlisted: false,
                instead_of: self.selected.take().map(Box::new),
            });
        }
    }

    /// A response comes in.
    ///
    /// # Errors
    /// What a client that keeps everything objects to.
    pub fn heard(&mut self, response: &Response) -> Result<(), String> {
        match response {
            Response::Exists(count) => self.exists(*count as usize),
            Response::Expunge(number) => self.expunge(*number),
            Response::Fetch(number, items) => self.fetch(*number, items),
            Response::Data(name, nodes) if name == "VANISHED" => match nodes.as_slice() {
                [Node::List(_), set] => self.vanished_earlier(&set.text()),
                [set] => self.vanished(&set.text()),
                _ => Err(format!("VANISHED {nodes:?}")),
            },
            Response::Data(name, nodes) if name == "STATUS" => self.status(nodes),
            Response::State(_, code, _) => self.code(code),
            Response::Tagged(tag, status, code, _) => self.tagged(tag, *status, code),
            Response::Data(..) | Response::Recent(_) | Response::Continue(_) => Ok(()),
        }
    }

    fn current(&self) -> Option<&Command> {
        self.commands.front().map(|(_, command)| command)
    }

    fn tagged(&mut self, tag: &str, status: Status, code: &str) -> Result<(), String> {
        let Some((of, command)) = self.commands.pop_front() else {
            return Err(format!("tag {tag}, and nothing was asked"));
        };
        if of != tag {
            return Err(format!("tag {tag} instead of {of}"));
        }
        self.commands.push_front((of, command.clone()));
        let judged = self.code(code);
        self.commands.pop_front();
        judged?;
        let done = status == Status::Ok;
        let outcome = match command {
            Command::Login(user) if done => {
                self.user = Some(user);
                Ok(())
            }
            Command::Enable if done => {
                self.qresync = true;
                Ok(())
            }
            Command::Select(_) if done => self.opened(),
            Command::Select(_) if status == Status::Bad => {
                let selected = self.selected.take();
                self.selected = selected.and_then(|of| of.instead_of).map(|of| *of);
                Ok(())
            }
            Command::Select(_) => {
                self.selected = None;
                Ok(())
            }
            Command::Close if done => {
                self.selected = None;
                Ok(())
            }
            Command::Renames(names) if done => {
                if let Some(user) = &self.user {
                    self.strict.forget_mailboxes(user, &names);
                }
                let is_meant = |name: &String| names.iter().any(|of| is_of(name, of));
                self.least.retain(|name, _| !is_meant(name));
                Ok(())
            }
            _ => Ok(()),
        };
        self.begin();
        outcome
    }

    /// A response code.
    fn code(&mut self, code: &str) -> Result<(), String> {
        let mut words = code.split(' ');
        let name = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
        let opening = self.selected.as_mut().filter(|selected| selected.opening);
        match (name, opening) {
            ("UIDVALIDITY", Some(selected)) => selected.validity = small(number()),
            ("UIDNEXT", Some(selected)) => selected.next = small(number()),
            ("HIGHESTMODSEQ", Some(selected)) => selected.modseq = number(),
            ("APPENDUID" | "COPYUID", _) => {
                let Some(Command::Into(mailbox)) = self.current().cloned() else {
                    return Err(format!("{code}, and nothing was put anywhere"));
                };
                let validity = small(number()).ok_or_else(|| format!("[{code}]"))?;
                self.knows(&mailbox, |known| known.validity(validity))?;
                let set = code.rsplit(' ').next().unwrap_or_default();
                let last = ranges(set).iter().map(|(_, last)| *last).max();
                let last = last.ok_or_else(|| format!("[{code}]"))?;
                let least = self.least.entry(mailbox).or_default();
                *least = (*least).max(last + 1);
            }
            _ => {}
        }
        Ok(())
    }

    fn told_next(&mut self, mailbox: &str, next: u32) -> Result<(), String> {
        let least = self.least.entry(mailbox.to_owned()).or_default();
        if next < *least {
            return Err(format!(
                "{mailbox}: UIDNEXT {next}, and {least} is the least it can be"
            ));
        }
        *least = next;
        Ok(())
    }

    fn status(&mut self, nodes: &[Node]) -> Result<(), String> {
        let [name, Node::List(list)] = nodes else {
            return Err(format!("STATUS {nodes:?}"));
        };
        let name = mailbox(&name.text());
        for pair in list.chunks_exact(2) {
            let value = pair[1].text().parse::<u32>();
            match (pair[0].text().as_str(), value) {
                ("UIDVALIDITY", Ok(told)) => self.knows(&name, |known| known.validity(told))?,
                ("UIDNEXT", Ok(told)) => self.told_next(&name, told)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn opened(&mut self) -> Result<(), String> {
        let Some(selected) = &mut self.selected else {
            return Ok(());
        };
        selected.opening = false;
        selected.instead_of = None;
        let (Some(validity), Some(next)) = (selected.validity, selected.next) else {
            return Err(format!("{}: no UIDVALIDITY or UIDNEXT", selected.mailbox));
        };
        let mailbox = selected.mailbox.clone();
        selected.unlisted = true;
        let (modseq, before) = (selected.modseq, selected.before.clone());
        let places = selected.places.clone();
        for place in places {
            if place.uid.is_some_and(|uid| uid >= next) {
                return Err(format!("{mailbox}: {place:?} is not below UIDNEXT {next}"));
            }
        }
        self.told_next(&mailbox, next)?;
        self.knows(&mailbox, |known| {
            known.validity(validity)?;
            known.opened(next, modseq, &before)
        })
    }

    fn exists(&mut self, count: usize) -> Result<(), String> {
        let Some(selected) = &mut self.selected else {
            return Err(format!("EXISTS {count}, and nothing is selected"));
        };
        if count < selected.places.len() {
            return Err(format!(
                "EXISTS went from {} to {count} without EXPUNGE",
                selected.places.len()
            ));
        }
        let floor = selected.next.filter(|_| !selected.opening).unwrap_or(0);
        selected.places.resize(count, Place { uid: None, floor });
        Ok(())
    }

    fn expunge(&mut self, number: u32) -> Result<(), String> {
        if self.qresync {
            return Err(format!("EXPUNGE {number}, and QRESYNC is enabled"));
        }
        if self.current() == Some(&Command::ByNumber) {
            return Err(format!(
                "EXPUNGE {number} within a command by sequence numbers"
            ));
        }
        let at = self.place(number)?;
        if let Some(selected) = &mut self.selected {
            selected.places.remove(at);
        }
        Ok(())
    }

    fn place(&self, number: u32) -> Result<usize, String> {
        let count = self
            .selected
            .as_ref()
            .map_or(0, |selected| selected.places.len());
        match usize::try_from(number) {
            Ok(number) if (1..=count).contains(&number) => Ok(number - 1),
            _ => Err(format!("number {number} of {count}")),
        }
    }

    fn vanished(&mut self, set: &str) -> Result<(), String> {
        if !self.qresync {
            return Err(format!("VANISHED {set}, and QRESYNC is not enabled"));
        }
        if self.current() == Some(&Command::ByNumber) {
            return Err(format!(
                "VANISHED {set} within a command by sequence numbers"
            ));
        }
        let Some(selected) = &mut self.selected else {
            return Err(format!("VANISHED {set}, and nothing is selected"));
        };
        for uid in ranges(set)
            .into_iter()
            .flat_map(|(first, last)| first..=last)
        {
            let places = selected.places.iter();
            let known = places.clone().position(|place| place.uid == Some(uid));
            // Of what came meanwhile it was not told the UID: it is between those of its neighbours.
            let is_below = |place: &Place| place.uid.is_some_and(|known| known < uid);
            let from = places.clone().rposition(is_below).map_or(0, |at| at + 1);
            let mut between = places.skip(from);
            let unknown = between.next().filter(|place| place.uid.is_none());
            let at = known.or(unknown.map(|_| from));
            let at = at.ok_or_else(|| format!("VANISHED {set}, and UID {uid} was not seen"))?;
            selected.places.remove(at);
        }
        Ok(())
    }

    /// Of what was known before: nothing of it may be there.
    fn vanished_earlier(&mut self, set: &str) -> Result<(), String> {
        let places = self.selected.iter().flat_map(|selected| &selected.places);
        let mut there = places.filter_map(|place| place.uid);
        match there.find(|uid| {
            let mut ranges = ranges(set).into_iter();
            ranges.any(|(first, last)| (first..=last).contains(uid))
        }) {
            Some(uid) => Err(format!("VANISHED (EARLIER) {set}, and UID {uid} is there")),
            None => Ok(()),
        }
    }

    fn fetch(&mut self, number: u32, items: &Fetched) -> Result<(), String> {
        let at = self.place(number)?;
        let Some(selected) = &mut self.selected else {
            return Ok(());
        };
        let place = selected.places[at];
        let Some(uid) = items.uid().or(place.uid) else {
            return Ok(());
        };
        if place.uid.is_some_and(|known| known != uid) {
            return Err(format!("number {number} was {place:?} and is UID {uid}"));
        }
        if uid < place.floor {
            return Err(format!(
                "U2: UID {uid} came after UIDNEXT {} was told",
                place.floor
            ));
        }
        let uids = |places: &[Place]| -> Vec<u32> {
            let known = places.iter().filter_map(|place| place.uid);
            known.collect()
        };
        let (below, above) = (
            uids(&selected.places[..at]),
            uids(&selected.places[at + 1..]),
        );
        if below.last().is_some_and(|last| *last >= uid)
            || above.first().is_some_and(|first| *first <= uid)
        {
            return Err(format!("UIDs do not ascend at number {number}, UID {uid}"));
        }
        selected.places[at].uid = Some(uid);
        let mailbox = selected.mailbox.clone();
        self.knows(&mailbox, |known| known.fetched(uid, items))
    }

    /// What the client asks behind a SELECT: for what has changed, and for all.
    pub fn questions(&mut self) -> Option<(Option<String>, String)> {
        let selected = self.selected.as_mut()?;
        if !std::mem::take(&mut selected.unlisted) || selected.places.is_empty() {
            return None;
        }
        let cache = selected.before.cache.as_ref();
        let changed = cache.filter(|cache| cache.modseq > 0).map(|cache| {
            let since = cache.modseq;
            format!("FETCH 1:* (UID FLAGS) (CHANGEDSINCE {since})")
        });
        Some((changed, "FETCH 1:* (UID FLAGS MODSEQ EMAILID)".to_owned()))
    }

    /// What was answered.
    ///
    /// # Errors
    /// What a client that keeps everything objects to.
    pub fn listed(&mut self, changed: Option<&Reply>, all: &Reply) -> Result<(), String> {
        for reply in changed.into_iter().chain([all]) {
            if reply.status == Status::Bad {
                return Err(format!("{reply:?}"));
            }
        }
        let Some(selected) = &self.selected else {
            return Ok(());
        };
        let (Some(validity), Some(next), Some(told)) =
            (selected.validity, selected.next, selected.modseq)
        else {
            return Ok(());
        };
        let mut listing = Listing {
            validity,
            next,
            modseq: told,
            flags: BTreeMap::new(),
            later: BTreeSet::new(),
        };
        for (_, items) in all.fetched() {
            let (Some(uid), Some(flags)) = (items.uid(), items.flags()) else {
                continue;
            };
            // What came meanwhile is of the next look.
            if uid >= next {
                continue;
            }
            let under = items.get("MODSEQ").and_then(modseq);
            if under.is_none_or(|under| under > told) {
                listing.later.insert(uid);
            }
            listing.flags.insert(uid, flags.into_iter().collect());
        }
        // Somebody removed some meanwhile, or the node cannot tell now: it is no look at all of it.
        let opened = selected.places.iter().filter(|place| place.floor == 0);
        if all.status != Status::Ok || listing.flags.len() != opened.count() {
            return Ok(());
        }
        let changed = changed.filter(|reply| reply.status == Status::Ok);
        let changed: Option<BTreeMap<u32, BTreeSet<String>>> = changed.map(|reply| {
            let told = reply.fetched();
            told.filter_map(|(_, items)| Some((items.uid()?, items.flags()?.into_iter().collect())))
                .collect()
        });
        let before = selected.before.clone();
        let mailbox = selected.mailbox.clone();
        self.knows(&mailbox, |known| {
            known.listed(listing, changed.as_ref(), &before)
        })
    }
}
