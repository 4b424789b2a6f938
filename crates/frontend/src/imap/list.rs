//! LIST with all its extensions, and LSUB (RFC 9051, 6.3.9; RFC 5258; RFC 5819; RFC 6154; RFC 3501, 6.3.9).

use whimbrel_imap::{
    command::{List as Arguments, ListPattern, ListReturn, ListSelect, Matcher, Share},
    encode::{self, ListData, ListResponse},
};
use whimbrel_service::api::{
    Failure, Mailbox, MailboxCall, MailboxName, Reply, STATUSES_PER_CALL_MAX, Status,
};

use super::{
    context::Context,
    mailboxes::{wire_use, write_status},
    outcome::Outcome,
    task::{Step, Task, Wake},
};

/// Words of readings (see [`Matcher`]) that are looked at before others have their chance: some tenths of a millisecond.
const WORK_PER_SLICE: usize = 64 * 1024;

/// LIST or LSUB.
///
/// It walks along the names page by page. Who does not read the answer is given one page; it is dropped when others need the memory.
pub(super) struct List {
    lsub: bool,
    select: ListSelect,
    returns: ListReturn,
    extended: bool,
    /// Each pattern, and whether it ends in `%`.
    patterns: Vec<(Matcher, bool)>,
    /// Only the hierarchy delimiter is asked for.
    delimiter: bool,
    /// Names that were not looked at yet.
    page: std::vec::IntoIter<Mailbox>,
    /// Whether others follow them.
    more: bool,
    /// The last name that was looked at and exists or is subscribed.
    after: Option<MailboxName>,
    /// The last name that was looked at.
    last: Option<MailboxName>,
    /// Lines of which some need figures.
    lines: Vec<ListLine>,
    state: State,
}

enum State {
    Begin,
    /// A page is asked for.
    Asked,
    Tell,
    /// Whether a name that is below this one meets the selection and is not listed itself is looked for.
    Looking(Box<Looking>),
    /// The figures of some names of the lines are asked for.
    Asking,
    /// They came, in the order of the lines.
    Lines(
        std::vec::IntoIter<ListLine>,
        std::vec::IntoIter<Result<Status, Failure>>,
    ),
}

struct Looking {
    mailbox: Mailbox,
    level: bool,
    page: std::vec::IntoIter<Mailbox>,
    more: bool,
    after: Option<MailboxName>,
}

/// A name, what is told of it, and whether its figures are.
type ListLine = (Mailbox, Line, bool);

/// A pattern made ready, once for all names.
fn matcher(reference: &str, pattern: &ListPattern) -> (Matcher, bool) {
    let pattern = pattern.under(reference);
    let level = pattern.as_str().ends_with('%');
    (pattern.matcher(MailboxName::SEPARATOR), level)
}

/// What is told of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Line {
    /// CHILDINFO ("SUBSCRIBED").
    child_info: bool,
    /// It is told for its own sake, not for what stands below it.
    meets: bool,
    /// It was deleted while the answer was made.
    lost: bool,
}

/// What is known of the names below one.
enum Child {
    Known(bool),
    /// They have to be looked at.
    Look,
}

impl List {
    fn build(select: ListSelect, patterns: Vec<(Matcher, bool)>) -> List {
        List {
            lsub: false,
            select,
            returns: ListReturn::default(),
            extended: false,
            patterns,
            delimiter: false,
            page: Vec::new().into_iter(),
            more: true,
            after: None,
            last: None,
            lines: Vec::new(),
            state: State::Begin,
        }
    }

    pub(super) fn new(arguments: Arguments) -> List {
        let delimiter = !arguments.extended && arguments.patterns.iter().all(ListPattern::is_empty);
        let patterns = arguments.patterns.iter();
        let patterns = patterns.map(|pattern| matcher(&arguments.reference, pattern));
        List {
            returns: arguments.returns,
            extended: arguments.extended,
            delimiter,
            ..List::build(arguments.select, patterns.collect())
        }
    }

    pub(super) fn lsub(reference: &str, pattern: &ListPattern) -> List {
        let select = ListSelect {
            subscribed: true,
            ..ListSelect::default()
        };
        List {
            lsub: true,
            ..List::build(select, vec![matcher(reference, pattern)])
        }
    }

    /// Asks for names: below `top`, behind `after`.
    fn ask(&self, cx: &Context, top: Option<&MailboxName>, after: Option<&MailboxName>) -> Step {
        Step::Call(cx.call(MailboxCall::List {
            top: top.cloned(),
            after: after.cloned(),
            uses: self.select.special_use && self.select.recursive_match && top.is_none(),
        }))
    }

    /// The next name that was not looked at.
    fn next(&mut self) -> Option<Mailbox> {
        for mailbox in self.page.by_ref() {
            let name = &mailbox.name;
            let is_listed = mailbox.exists || mailbox.subscribed;
            // A page that was dropped begins again with what stands above its first name.
            let last = self.last.as_ref();
            if !is_listed && last.is_some_and(|last| last == name || last.is_below(name)) {
                continue;
            }
            if is_listed {
                self.after = Some(name.clone());
            }
            self.last = Some(name.clone());
            return Some(mailbox);
        }
        None
    }

    /// Whether a pattern matches the name, and one that ends in `%`.
    fn matches(&self, name: &str) -> (bool, bool) {
        let (mut matched, mut level) = (false, false);
        for (matcher, ends_in_level) in &self.patterns {
            if (!matched || (*ends_in_level && !level)) && matcher.matches(name) {
                matched = true;
                level |= ends_in_level;
            }
        }
        (matched, level)
    }

    /// How much work that is.
    fn work(&self, name: &str) -> usize {
        let patterns = self.patterns.iter();
        1 + patterns.map(|(of, _)| of.work_max(name)).sum::<usize>()
    }

    fn meets(&self, mailbox: &Mailbox) -> bool {
        (!self.select.subscribed || mailbox.subscribed)
            && (!self.select.special_use || mailbox.special_use.is_some())
    }

    /// Whether a name below this one meets the selection.
    fn meets_below(&self, mailbox: &Mailbox) -> bool {
        let below = &mailbox.below;
        match (self.select.subscribed, self.select.special_use) {
            (true, true) => below.both,
            (true, false) => below.subscribed,
            _ => below.special_use,
        }
    }

    /// Whether a name below this one meets the selection and is not listed itself: "servers SHOULD ONLY return a non-matching mailbox name
    /// along with CHILDINFO if at least one matching child is not also being returned" (RFC 5258, 3.5).
    fn child(&self, mailbox: &Mailbox) -> Child {
        if !self.select.recursive_match || !self.meets_below(mailbox) {
            return Child::Known(false);
        }
        let prefix = format!("{}{}", mailbox.name, MailboxName::SEPARATOR);
        let patterns = self.patterns.iter();
        let shares = patterns.map(|(matcher, _)| matcher.share_of(&prefix));
        let (mut all, mut some) = (false, false);
        for share in shares {
            all |= share == Share::All;
            some |= share == Share::Some;
        }
        match (all, some) {
            (true, _) => Child::Known(false),
            (false, false) => Child::Known(true),
            (false, true) => Child::Look,
        }
    }

    /// Whether and how a name whose pattern matches is told. `level`: it matches a pattern that ends in `%`; `child`: as [`List::child`].
    fn line(&self, mailbox: &Mailbox, level: bool, child: bool) -> Option<Line> {
        if !self.select.subscribed && !self.select.special_use {
            // "If the "%" wildcard is the last character of a mailbox name argument, matching levels of hierarchy are also returned"
            // (RFC 9051, 6.3.9).
            return (mailbox.exists || (level && mailbox.below.exists)).then_some(Line {
                meets: mailbox.exists,
                ..Line::default()
            });
        }
        let meets = self.meets(mailbox);
        // RFC 3501, 6.3.9: LSUB with `%` tells a name above a subscribed one.
        let level = self.lsub && level && mailbox.below.subscribed;
        (meets || child || level).then_some(Line {
            child_info: child && self.select.subscribed,
            meets,
            lost: false,
        })
    }

    /// Goes on telling.
    fn respond(&mut self, cx: &mut Context) -> Step {
        let mut work = WORK_PER_SLICE;
        while self.lines.len() < STATUSES_PER_CALL_MAX {
            let Some(mailbox) = self.next() else {
                if !self.more {
                    break;
                }
                self.state = State::Asked;
                return self.ask(cx, None, self.after.as_ref());
            };
            work = work.saturating_sub(self.work(mailbox.name.as_str()));
            let (matched, level) = self.matches(mailbox.name.as_str());
            if matched {
                match self.child(&mailbox) {
                    Child::Known(child) => self.tell_one(cx, mailbox, level, child),
                    Child::Look => {
                        self.state = State::Looking(Box::new(Looking {
                            mailbox,
                            level,
                            page: Vec::new().into_iter(),
                            more: true,
                            after: None,
                        }));
                        return self.look(cx);
                    }
                }
            }
            if cx.is_full() {
                return Step::Again;
            }
            if work == 0 {
                return Step::Yield;
            }
        }
        if self.lines.is_empty() {
            let text = match self.lsub {
                true => "LSUB completed",
                false => "LIST completed",
            };
            return Step::Done(Outcome::ok(text));
        }
        // Of many at once: each answer waits for a sync if it tells anything new.
        let asked = self.lines.iter().filter(|(.., asked)| *asked);
        let names: Vec<MailboxName> = asked.map(|(mailbox, ..)| mailbox.name.clone()).collect();
        if names.is_empty() {
            let lines = std::mem::take(&mut self.lines);
            self.state = State::Lines(lines.into_iter(), Vec::new().into_iter());
            return Step::Again;
        }
        self.state = State::Asking;
        Step::Call(cx.call(MailboxCall::Statuses { names }))
    }

    /// Tells a name whose pattern matches, or keeps it until its figures are here.
    fn tell_one(&mut self, cx: &mut Context, mailbox: Mailbox, level: bool, child: bool) {
        let Some(line) = self.line(&mailbox, level, child) else {
            return;
        };
        // "For each selectable mailbox matching the list pattern and selection options, the server MUST return an untagged LIST response
        // followed by an untagged STATUS response" (RFC 9051, 6.3.9.2): not for one that is told for its children's sake (example 11).
        if self.returns.status.is_empty() {
            self.write(cx, &mailbox, line);
        } else {
            let asked = mailbox.exists && line.meets;
            self.lines.push((mailbox, line, asked));
        }
    }

    /// Goes on looking for a child.
    fn look(&mut self, cx: &mut Context) -> Step {
        let State::Looking(mut looking) = std::mem::replace(&mut self.state, State::Tell) else {
            return Step::Done(Outcome::bug());
        };
        let mut work = WORK_PER_SLICE;
        let mut found = false;
        while !found {
            let Some(child) = looking.page.next() else {
                if !looking.more {
                    break;
                }
                let step = self.ask(cx, Some(&looking.mailbox.name), looking.after.as_ref());
                self.state = State::Looking(looking);
                return step;
            };
            work = work.saturating_sub(self.work(child.name.as_str()));
            found = self.meets(&child) && !self.matches(child.name.as_str()).0;
            if child.exists || child.subscribed {
                looking.after = Some(child.name);
            }
            if work == 0 && !found {
                self.state = State::Looking(looking);
                return Step::Yield;
            }
        }
        self.tell_one(cx, looking.mailbox, looking.level, found);
        Step::Yield
    }

    /// Tells what figures were asked for, and goes on.
    fn tell_lines(&mut self, cx: &mut Context) -> Step {
        let State::Lines(mut lines, mut figures) = std::mem::replace(&mut self.state, State::Tell)
        else {
            return Step::Done(Outcome::bug());
        };
        while let Some((mailbox, mut line, asked)) = lines.next() {
            let status = asked.then(|| figures.next()).flatten();
            // "If an attempted STATUS for a listed mailbox fails because the mailbox can't be selected (e.g., [...] due to a race
            // condition between LIST and STATUS changing the mailbox to \NoSelect), the STATUS response MUST NOT be returned, and the
            // LIST response MUST include the \NoSelect attribute" (RFC 9051, 6.3.9.2). On other failures only STATUS is left out.
            line.lost = matches!(&status, Some(Err(Failure::NoSuchMailbox)));
            self.write(cx, &mailbox, line);
            if let Some(Ok(status)) = status {
                write_status(cx, &mailbox.name, &self.returns.status, &status);
            }
            if cx.is_full() {
                self.state = State::Lines(lines, figures);
                return Step::Again;
            }
        }
        self.respond(cx)
    }

    fn write(&self, cx: &mut Context, mailbox: &Mailbox, line: Line) {
        let special_use: Vec<_> = (mailbox.special_use.iter())
            .map(|&special| wire_use(special))
            .collect();
        let data = if self.lsub {
            ListData {
                no_select: !mailbox.subscribed,
                ..ListData::default()
            }
        } else {
            ListData {
                // Clients that do not know of \NonExistent must not try to select it.
                no_select: line.lost || (!mailbox.exists && !self.extended),
                non_existent: line.lost || !mailbox.exists,
                has_children: Some(mailbox.below.exists),
                subscribed: self.returns.subscribed && mailbox.subscribed,
                special_use: &special_use,
                ..ListData::default()
            }
        };
        let response = ListResponse {
            name: mailbox.name.as_str(),
            delimiter: Some(MailboxName::SEPARATOR),
            data,
            child_info_subscribed: line.child_info,
            old_name: None,
        };
        if self.lsub {
            encode::lsub(&mut cx.out, &response, cx.utf8);
        } else {
            encode::list(&mut cx.out, &response, cx.utf8);
        }
    }
}

impl Task for List {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match (&mut self.state, wake) {
            (State::Begin, Wake::Go) if self.delimiter => {
                let response = ListResponse {
                    name: "",
                    delimiter: Some(MailboxName::SEPARATOR),
                    data: ListData {
                        no_select: true,
                        ..ListData::default()
                    },
                    child_info_subscribed: false,
                    old_name: None,
                };
                encode::list(&mut cx.out, &response, cx.utf8);
                Step::Done(Outcome::ok("LIST completed"))
            }
            (State::Begin | State::Tell, Wake::Go) => {
                self.state = State::Tell;
                self.respond(cx)
            }
            (State::Asked, Wake::Reply(Reply::Mailboxes { names, more })) => {
                self.page = names.into_iter();
                self.more = more;
                self.state = State::Tell;
                self.respond(cx)
            }
            (State::Looking(looking), Wake::Reply(Reply::Mailboxes { names, more })) => {
                looking.page = names.into_iter();
                looking.more = more;
                self.look(cx)
            }
            (State::Asked | State::Looking(_), Wake::Reply(reply)) => {
                Step::Done(Outcome::of_reply(reply))
            }
            (State::Looking(_), Wake::Go) => self.look(cx),
            (State::Lines(..), Wake::Go) => self.tell_lines(cx),
            (State::Asking, Wake::Reply(reply)) => {
                let figures = match reply {
                    Reply::Statuses(figures) => figures,
                    // Without any figures, but all names.
                    _ => Vec::new(),
                };
                let lines = std::mem::take(&mut self.lines);
                self.state = State::Lines(lines.into_iter(), figures.into_iter());
                self.tell_lines(cx)
            }
            _ => Step::Done(Outcome::bug()),
        }
    }

    /// The page is asked for again, from where it was left.
    fn shed(&mut self) {
        if !self.page.as_slice().is_empty() {
            self.page = Vec::new().into_iter();
            self.more = true;
        }
    }
}
