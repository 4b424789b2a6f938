//! LIST with all its extensions, and LSUB (RFC 9051, 6.3.9; RFC 5258; RFC 5819; RFC 6154; RFC 3501, 6.3.9).

use std::collections::BTreeMap;

use whimbrel_imap::{
    command::{List as Arguments, ListPattern, ListReturn, ListSelect, Matcher},
    encode::{self, ListData, ListResponse},
};
use whimbrel_service::api::{
    Failure, Mailbox, MailboxCall, MailboxName, Reply, STATUSES_PER_CALL_MAX, SpecialUse, Status,
};

use super::{
    context::Context,
    mailboxes::{wire_use, write_status},
    task::{Outcome, Step, Task, Wake},
};

/// LIST or LSUB.
pub(super) struct List {
    lsub: bool,
    select: ListSelect,
    returns: ListReturn,
    extended: bool,
    /// Each pattern, and whether it ends in `%`.
    patterns: Vec<(Matcher, bool)>,
    /// Only the hierarchy delimiter is asked for.
    delimiter: bool,
    nodes: std::collections::btree_map::IntoIter<String, Node>,
    state: State,
}

enum State {
    Begin,
    Asked,
    Tell,
    /// The figures of some names of these lines are asked for.
    Asking(Vec<Told>),
    /// They came, in the order of the lines.
    Lines(
        std::vec::IntoIter<Told>,
        std::vec::IntoIter<Result<Status, Failure>>,
    ),
}

/// A name, and what is told of it; with its figures, or not.
type Told = (String, Node, Line, Option<MailboxName>);

/// A name: a mailbox, a subscription, or what stands above one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    exists: bool,
    subscribed: bool,
    special_use: Option<SpecialUse>,
    /// Whether names below it exist; and whether some that are not listed for their own sake are subscribed, have a special use, have both.
    below: Below,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Below {
    exists: bool,
    subscribed: bool,
    special_use: bool,
    both: bool,
}

/// A pattern made ready, once for all names.
fn matcher(reference: &str, pattern: &ListPattern) -> (Matcher, bool) {
    let pattern = pattern.under(reference);
    let level = pattern.as_str().ends_with('%');
    (pattern.matcher(MailboxName::SEPARATOR), level)
}

/// All names with those above them. Costs the depth of the names, which is limited (`NAME_DEPTH_MAX`). `listed`: whether a name that meets the
/// selection is told by a line of its own: "servers SHOULD ONLY return a non-matching mailbox name along with CHILDINFO if at least one
/// matching child is not also being returned" (RFC 5258, 3.5).
fn nodes(mailboxes: Vec<Mailbox>, listed: impl Fn(&str) -> bool) -> BTreeMap<String, Node> {
    let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
    for mailbox in mailboxes {
        let name = mailbox.name.as_str();
        let special = mailbox.special_use.is_some();
        let alone = (special || mailbox.subscribed) && !listed(name);
        for (at, _) in name.match_indices(MailboxName::SEPARATOR) {
            let below = match nodes.get_mut(&name[..at]) {
                Some(node) => &mut node.below,
                None => &mut nodes.entry(name[..at].to_owned()).or_default().below,
            };
            below.exists |= mailbox.exists;
            below.subscribed |= mailbox.subscribed && alone;
            below.special_use |= special && alone;
            below.both |= special && mailbox.subscribed && alone;
        }
        let node = nodes.entry(name.to_owned()).or_default();
        node.exists = mailbox.exists;
        node.subscribed = mailbox.subscribed;
        node.special_use = mailbox.special_use;
    }
    nodes
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

impl List {
    pub(super) fn new(arguments: Arguments) -> List {
        let delimiter = !arguments.extended && arguments.patterns.iter().all(ListPattern::is_empty);
        List {
            lsub: false,
            select: arguments.select,
            returns: arguments.returns,
            extended: arguments.extended,
            patterns: arguments
                .patterns
                .iter()
                .map(|pattern| matcher(&arguments.reference, pattern))
                .collect(),
            delimiter,
            nodes: BTreeMap::new().into_iter(),
            state: State::Begin,
        }
    }

    pub(super) fn lsub(reference: &str, pattern: &ListPattern) -> List {
        List {
            lsub: true,
            select: ListSelect {
                subscribed: true,
                ..ListSelect::default()
            },
            returns: ListReturn::default(),
            extended: false,
            patterns: vec![matcher(reference, pattern)],
            delimiter: false,
            nodes: BTreeMap::new().into_iter(),
            state: State::Begin,
        }
    }

    /// Whether and how a name whose pattern matches is told. `level`: it matches a pattern that ends in `%`.
    fn line(&self, node: &Node, level: bool) -> Option<Line> {
        let (by_subscription, by_use) = (self.select.subscribed, self.select.special_use);
        if !by_subscription && !by_use {
            // "If the "%" wildcard is the last character of a mailbox name argument, matching levels of hierarchy are also returned"
            // (RFC 9051, 6.3.9).
            return (node.exists || (level && node.below.exists)).then_some(Line {
                meets: node.exists,
                ..Line::default()
            });
        }
        let meets =
            (!by_subscription || node.subscribed) && (!by_use || node.special_use.is_some());
        let below = match (by_subscription, by_use) {
            (true, true) => node.below.both,
            (true, false) => node.below.subscribed,
            _ => node.below.special_use,
        };
        let child = below && self.select.recursive_match;
        // RFC 3501, 6.3.9: LSUB with `%` tells a name above a subscribed one.
        let level = self.lsub && level && below;
        (meets || child || level).then_some(Line {
            child_info: child && by_subscription,
            meets,
            lost: false,
        })
    }

    /// Goes on telling.
    fn tell(&mut self, cx: &mut Context) -> Step {
        let mut lines: Vec<Told> = Vec::new();
        while lines.len() < STATUSES_PER_CALL_MAX
            && let Some((name, node)) = self.nodes.next()
        {
            let mut matched = false;
            let mut level = false;
            for (matcher, ends_in_level) in &self.patterns {
                if (!matched || (*ends_in_level && !level)) && matcher.matches(&name) {
                    matched = true;
                    level |= ends_in_level;
                }
            }
            let Some(line) = matched.then(|| self.line(&node, level)).flatten() else {
                continue;
            };
            // "For each selectable mailbox matching the list pattern and selection options, the server MUST return an untagged LIST response
            // followed by an untagged STATUS response" (RFC 9051, 6.3.9.2): not for one that is told for its children's sake (example 11).
            if !self.returns.status.is_empty() {
                let selectable = node.exists && line.meets;
                let asked = selectable.then(|| MailboxName::new(&name).ok()).flatten();
                lines.push((name, node, line, asked));
                continue;
            }
            self.write(cx, &name, &node, line);
            if cx.is_full() {
                return Step::Again;
            }
        }
        if lines.is_empty() {
            return Step::Done(Outcome::ok("That is all"));
        }
        // Of many at once: each answer waits for a sync if it tells anything new.
        let names = lines.iter().filter_map(|(.., asked)| asked.clone());
        let names: Vec<MailboxName> = names.collect();
        if names.is_empty() {
            self.state = State::Lines(lines.into_iter(), Vec::new().into_iter());
            return Step::Again;
        }
        self.state = State::Asking(lines);
        Step::Call(cx.call(MailboxCall::Statuses { names }))
    }

    /// Tells what figures were asked for, and goes on.
    fn tell_lines(&mut self, cx: &mut Context) -> Step {
        let State::Lines(mut lines, mut figures) = std::mem::replace(&mut self.state, State::Tell)
        else {
            return Step::Done(Outcome::bug());
        };
        while let Some((name, node, mut line, asked)) = lines.next() {
            let status = asked.and_then(|name| Some((name, figures.next()?)));
            // "If an attempted STATUS for a listed mailbox fails because the mailbox can't be selected (e.g., [...] due to a race
            // condition between LIST and STATUS changing the mailbox to \NoSelect), the STATUS response MUST NOT be returned, and the
            // LIST response MUST include the \NoSelect attribute" (RFC 9051, 6.3.9.2). On other failures only STATUS is left out.
            line.lost = matches!(&status, Some((_, Err(Failure::NoSuchMailbox))));
            self.write(cx, &name, &node, line);
            if let Some((name, Ok(status))) = status {
                write_status(cx, &name, &self.returns.status, &status);
            }
            if cx.is_full() {
                self.state = State::Lines(lines, figures);
                return Step::Again;
            }
        }
        self.tell(cx)
    }

    fn write(&self, cx: &mut Context, name: &str, node: &Node, line: Line) {
        let special_use: Vec<_> = node
            .special_use
            .iter()
            .map(|&special| wire_use(special))
            .collect();
        let data = if self.lsub {
            ListData {
                no_select: !node.subscribed,
                ..ListData::default()
            }
        } else {
            ListData {
                // Clients that do not know of \NonExistent must not try to select it.
                no_select: line.lost || (!node.exists && !self.extended),
                non_existent: line.lost || !node.exists,
                has_children: Some(node.below.exists),
                subscribed: self.returns.subscribed && node.subscribed,
                special_use: &special_use,
                ..ListData::default()
            }
        };
        let response = ListResponse {
            name,
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
        match (&self.state, wake) {
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
                Step::Done(Outcome::ok("That is all"))
            }
            (State::Begin, Wake::Go) => {
                self.state = State::Asked;
                Step::Call(cx.call(MailboxCall::List))
            }
            (State::Asked, Wake::Reply(Reply::Mailboxes(mailboxes))) => {
                let listed = |name: &str| {
                    self.select.recursive_match
                        && self
                            .patterns
                            .iter()
                            .any(|(matcher, _)| matcher.matches(name))
                };
                self.nodes = nodes(mailboxes, listed).into_iter();
                self.state = State::Tell;
                self.tell(cx)
            }
            (State::Asked, Wake::Reply(reply)) => Step::Done(Outcome::of_reply(reply)),
            (State::Tell, Wake::Go) => self.tell(cx),
            (State::Lines(..), Wake::Go) => self.tell_lines(cx),
            (State::Asking(_), Wake::Reply(reply)) => {
                let State::Asking(lines) = std::mem::replace(&mut self.state, State::Tell) else {
                    return Step::Done(Outcome::bug());
                };
                let figures = match reply {
                    Reply::Statuses(figures) => figures,
                    // Without any figures, but all names.
                    _ => Vec::new(),
                };
                self.state = State::Lines(lines.into_iter(), figures.into_iter());
                self.tell_lines(cx)
            }
            _ => Step::Done(Outcome::bug()),
        }
    }
}
