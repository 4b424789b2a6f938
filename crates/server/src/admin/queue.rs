//! The administrator's view of the queue: what of an entry is told, which entries a list has, and frames that hold them.
//!
//! Invariants: nothing here changes an entry. A question looks at a bounded number of entries, and the answer says where the next one goes on, so
//! that a long queue neither exceeds the time of a question nor keeps others from asking.

use std::{collections::BTreeMap, io};

use serde::{Deserialize, Serialize};
use tokio::io::AsyncWrite;
use whimbrel_mailbox::{AccountId, EntryId, MailboxName};
use whimbrel_service::{
    admin::{AdminCall, AdminReply},
    api::{Failure, QueueCall, QueueEntry, QueuePage, QueueState, Reply, sent_target},
};

use super::{
    protocol::{self, ANSWER_BYTES_MAX, Answer},
    server::refused,
};
use crate::{cluster::NodeNames, router::Router};

/// Recipients of an entry that a list names; `show` names all. A message to thousands must not push a hundred others out of a frame.
pub const RECIPIENTS_LISTED_MAX: usize = 100;
/// Entries that the queue is asked for at once; between two such pages it does other work.
const PAGE_ENTRIES: usize = 100;
/// Pages of one question: far less than the time limit of a question allows.
const PAGES_MAX: usize = 100;

/// Which entries a list has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// The first id that is wanted, hexadecimal; `None`: from the beginning.
    pub from: Option<String>,
    /// At most so many entries.
    pub limit: u64,
    /// Those of this sender: an address, `@domain`, or `<>` for the empty one.
    pub sender: Option<String>,
    /// Those with this recipient: an address, or `@domain`.
    pub recipient: Option<String>,
    /// Those that were accepted until then: seconds since 1970.
    pub until: Option<i64>,
    /// Those in this state.
    pub state: Option<State>,
}

/// What the node that was asked does with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Its client still waits for other nodes.
    Accepting,
    /// Deliveries are under way.
    Delivering,
    /// It is delivered later.
    Waiting,
    /// Another node delivers it.
    Copy,
}

impl State {
    /// As in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Accepting => "accepting",
            State::Delivering => "delivering",
            State::Waiting => "waiting",
            State::Copy => "copy",
        }
    }
}

impl From<&QueueState> for State {
    fn from(state: &QueueState) -> Self {
        match state {
            QueueState::Accepting => State::Accepting,
            QueueState::Delivering { .. } => State::Delivering,
            QueueState::Waiting { .. } => State::Waiting,
            QueueState::Copy => State::Copy,
        }
    }
}

/// An entry, without its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its id, hexadecimal.
    pub id: String,
    /// When it was accepted: seconds since 1970.
    pub accepted: i64,
    /// Bytes of the message.
    pub size: u32,
    /// The envelope sender; empty for `<>`.
    pub sender: String,
    /// What the node that was asked does with it.
    pub state: State,
    /// When a waiting entry is delivered: seconds since 1970; `None`: as soon as there is room.
    pub due: Option<u64>,
    /// The node that delivers it; `None`: it is not known here.
    pub delivered_by: Option<String>,
    /// The other nodes that have it.
    pub copies: Vec<String>,
    /// How many recipients it has.
    pub recipient_count: u64,
    /// The recipients; a list has the first hundred.
    pub recipients: Vec<Recipient>,
    /// The sender's own copy, if it gets one.
    pub sender_copy: Option<Recipient>,
}

/// Who gets an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipient {
    /// The address of the account; `None`: there is no such account any more.
    pub address: Option<String>,
    /// The account's id, hexadecimal.
    pub account: String,
    /// The mailbox wished for.
    pub mailbox: String,
    /// Whether the delivery is open; `None`: the node that was asked does not deliver the entry now, and cannot say.
    pub open: Option<bool>,
}

/// Addresses of accounts.
type Addresses = BTreeMap<AccountId, String>;

/// The id from its 32 hexadecimal digits.
#[must_use]
pub fn entry_id(text: &str) -> Option<EntryId> {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok();
    number
        .filter(|_| digits)
        .map(|number| EntryId(number.to_be_bytes()))
}

/// Whether an address is one that was asked for: as a whole, or by `@domain`, in any case.
fn is_asked(asked: &str, address: &str) -> bool {
    let (asked, address) = (asked.to_lowercase(), address.to_lowercase());
    match asked.as_str() {
        "<>" => address.is_empty(),
        domain if domain.starts_with('@') => address
            .rfind('@')
            .is_some_and(|at| address.get(at..) == Some(domain)),
        whole => address == whole,
    }
}

impl Filter {
    fn matches(&self, entry: &QueueEntry, addresses: &Addresses) -> bool {
        let is_recipient = |asked: &String| {
            let recipients = entry.deliveries.iter();
            let mut recipients = recipients.filter(|(_, target)| *target != sent_target());
            recipients.any(|(account, _)| {
                let address = addresses.get(account);
                address.is_some_and(|address| is_asked(asked, address))
            })
        };
        let sender = self.sender.as_ref();
        sender.is_none_or(|asked| is_asked(asked, &entry.sender))
            && self.until.is_none_or(|until| entry.date.seconds <= until)
            && self.state.is_none_or(|of| of == State::from(&entry.state))
            && self.recipient.as_ref().is_none_or(is_recipient)
    }
}

/// What is told of an entry, with so many recipients.
fn told(
    entry: &QueueEntry,
    addresses: &Addresses,
    names: &NodeNames,
    recipients_max: usize,
) -> Entry {
    let open = |place: usize| match &entry.state {
        QueueState::Delivering { open } => Some(open.contains(&place)),
        QueueState::Accepting => Some(true),
        QueueState::Waiting { .. } | QueueState::Copy => None,
    };
    let recipient = |(place, (account, target)): (usize, &(AccountId, MailboxName))| Recipient {
        address: addresses.get(account).cloned(),
        account: account.to_string(),
        mailbox: target.as_str().to_owned(),
        open: open(place),
    };
    let (copy, recipients): (Vec<_>, Vec<_>) = (entry.deliveries.iter().enumerate())
        .partition(|(_, (_, target))| *target == sent_target());
    // A node that delivers knows it by itself. A copy's first owner is missing in the list if this node has no name for it.
    let first = entry.owners.first().copied();
    let delivered_by = match entry.state {
        QueueState::Copy => first.filter(|of| !names.is_own(*of)),
        _ => None,
    };
    let is_here = entry.state != QueueState::Copy;
    let others = entry.owners.iter().filter(|of| match is_here {
        true => !names.is_own(**of),
        false => Some(**of) != delivered_by,
    });
    Entry {
        id: entry.id.to_string(),
        accepted: entry.date.seconds,
        size: entry.size,
        sender: entry.sender.clone(),
        state: State::from(&entry.state),
        due: match entry.state {
            QueueState::Waiting {
                not_before_micros: due,
            } if due > 0 => Some(due.div_ceil(1_000_000)),
            _ => None,
        },
        delivered_by: match is_here {
            true => Some(names.own()),
            false => delivered_by.map(|of| names.name(of)),
        },
        copies: others.map(|of| names.name(*of)).collect(),
        recipient_count: recipients.len() as u64,
        recipients: recipients
            .into_iter()
            .take(recipients_max)
            .map(recipient)
            .collect(),
        sender_copy: copy.into_iter().next().map(recipient),
    }
}

/// Frames, as they become full.
#[derive(Default)]
struct Frames {
    entries: Vec<Entry>,
    bytes: usize,
    full: Vec<Answer>,
}

impl Frames {
    /// Bytes around an entry or a recipient, and around a frame.
    const ROOM: usize = 256;

    fn push(&mut self, mut entry: Entry) {
        let recipients = std::mem::take(&mut entry.recipients);
        let further = Entry {
            sender_copy: None,
            ..entry.clone()
        };
        self.push_part(entry);
        for recipient in recipients {
            let needs = bytes(&recipient);
            if self.bytes + needs > ANSWER_BYTES_MAX {
                self.push_part_alone(further.clone());
            }
            self.bytes += needs;
            if let Some(last) = self.entries.last_mut() {
                last.recipients.push(recipient);
            }
        }
    }

    fn push_part(&mut self, part: Entry) {
        let needs = bytes(&part);
        if self.bytes + needs > ANSWER_BYTES_MAX {
            return self.push_part_alone(part);
        }
        self.bytes = self.bytes.max(Self::ROOM) + needs;
        self.entries.push(part);
    }

    fn push_part_alone(&mut self, part: Entry) {
        self.full.push(Answer::Queue {
            entries: std::mem::take(&mut self.entries),
            next: None,
            more: true,
        });
        self.bytes = Self::ROOM + bytes(&part);
        self.entries.push(part);
    }

    /// The frames that are full.
    fn full(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.full)
    }

    /// The last frame.
    fn last(self, next: Option<EntryId>) -> Answer {
        Answer::Queue {
            entries: self.entries,
            next: next.map(|id| id.to_string()),
            more: false,
        }
    }
}

fn bytes(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len()) + Frames::ROOM
}

/// Adds the entries of the next frame, the first of which may be the rest of the last one.
pub(super) fn join(entries: &mut Vec<Entry>, further: Vec<Entry>) {
    let mut further = further.into_iter().peekable();
    if let Some(last) = entries.last_mut()
        && let Some(rest) = further.next_if(|rest| rest.id == last.id)
    {
        last.recipients.extend(rest.recipients);
    }
    entries.extend(further);
}

/// Answers with the entries that match.
pub(super) async fn list(
    stream: &mut (impl AsyncWrite + Unpin),
    board: &Router,
    names: &NodeNames,
    filter: &Filter,
) -> io::Result<()> {
    let mut from = filter.from.as_deref().and_then(entry_id);
    if from.is_none() && filter.from.is_some() {
        return protocol::write(stream, &refused("this is not the id of a queue entry")).await;
    }
    let addresses = match addresses(board).await {
        Ok(addresses) => addresses,
        Err(reason) => return protocol::write(stream, &refused(&reason)).await,
    };
    let mut frames = Frames::default();
    let mut left = filter.limit;
    'pages: for number in 0..PAGES_MAX {
        let limit = PAGE_ENTRIES;
        let page = match page(board, QueueCall::List { from, limit }).await {
            Ok(page) => page,
            Err(reason) if number == 0 => {
                return protocol::write(stream, &refused(&reason)).await;
            }
            // Frames may have gone out: the next question gets the reason.
            Err(_) => break,
        };
        from = page.next;
        for entry in &page.entries {
            if !filter.matches(entry, &addresses) {
                continue;
            }
            if left == 0 {
                from = Some(entry.id);
                break 'pages;
            }
            left -= 1;
            frames.push(told(entry, &addresses, names, RECIPIENTS_LISTED_MAX));
        }
        for frame in frames.full() {
            protocol::write(stream, &frame).await?;
        }
        if from.is_none() || left == 0 {
            break;
        }
    }
    for frame in frames.full() {
        protocol::write(stream, &frame).await?;
    }
    protocol::write(stream, &frames.last(from)).await
}

/// Answers with one entry.
pub(super) async fn show(
    stream: &mut (impl AsyncWrite + Unpin),
    board: &Router,
    names: &NodeNames,
    id: &str,
) -> io::Result<()> {
    let frames = match shown(board, names, id).await {
        Ok(entry) => {
            let mut frames = Frames::default();
            frames.push(entry);
            let mut all = frames.full();
            all.push(frames.last(None));
            all
        }
        Err(reason) => vec![refused(&reason)],
    };
    for frame in &frames {
        protocol::write(stream, frame).await?;
    }
    Ok(())
}

async fn shown(board: &Router, names: &NodeNames, id: &str) -> Result<Entry, String> {
    let Some(entry) = entry_id(id) else {
        return Err("this is not the id of a queue entry".to_owned());
    };
    let page = page(board, QueueCall::Show(entry)).await?;
    let Some(entry) = page.entries.first() else {
        return Err(format!("this node has no queue entry {entry}"));
    };
    let addresses = addresses(board).await?;
    Ok(told(entry, &addresses, names, usize::MAX))
}

async fn page(board: &Router, call: QueueCall) -> Result<QueuePage, String> {
    match board.queue(call).await {
        Ok(Reply::Queue(page)) => Ok(page),
        Ok(Reply::Failed(Failure::Throttled)) => {
            Err("too many others look at the queue: try again in a moment".to_owned())
        }
        Ok(_) => Err("the queue cannot be read now: try again in a moment".to_owned()),
        Err(stopped) => Err(stopped.to_string()),
    }
}

async fn addresses(board: &Router) -> Result<Addresses, String> {
    match board.admin(AdminCall::ListAccounts).await {
        Ok(AdminReply::Accounts(accounts)) => Ok(accounts
            .into_iter()
            .map(|line| (line.account, line.address))
            .collect()),
        Ok(AdminReply::Refused(reason)) => Err(reason),
        Ok(_) => Err("the accounts cannot be listed".to_owned()),
        Err(stopped) => Err(stopped.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_crdt::Incarnation;
    use whimbrel_mailbox::Date;
    use whimbrel_replication::roster::Roster;

    use super::*;

    fn node(number: u64) -> Incarnation {
        Incarnation::new(number).unwrap()
    }

    /// Three nodes, of which the first is asked.
    fn names() -> NodeNames {
        let mut roster = Roster::found(node(1), "eu-1", 0, !1);
        for (number, name) in [(2, "eu-2"), (3, "us-1")] {
            let _ = roster.sponsor(node(1), node(number), name).unwrap();
        }
        NodeNames::of(&roster, Some(node(1)))
    }

    fn addresses() -> Addresses {
        let all = [(1, "anne@example.org"), (2, "Bob@Example.net")];
        all.map(|(number, address)| (AccountId([number; 16]), address.to_owned()))
            .into()
    }

    /// To Anne and Bob, and to an account that is gone.
    fn entry(state: QueueState, owners: &[u64]) -> QueueEntry {
        let inbox = MailboxName::new("INBOX").unwrap();
        QueueEntry {
            id: EntryId([7; 16]),
            sender: "carol@example.com".to_owned(),
            size: 1234,
            date: Date {
                seconds: 1000,
                zone_minutes: 60,
            },
            deliveries: (1..=3)
                .map(|number| (AccountId([number; 16]), inbox.clone()))
                .collect(),
            owners: owners.iter().map(|number| node(*number)).collect(),
            state,
        }
    }

    #[test]
    fn ids() {
        let check = |text: &str, expected: Option<EntryId>| assert_eq!(entry_id(text), expected);
        check(&"07".repeat(16), Some(EntryId([7; 16])));
        check(&"AB".repeat(16), Some(EntryId([0xab; 16])));
        check(&"07".repeat(15), None);
        check(&"07".repeat(17), None);
        check(&format!("+{}", "7".repeat(31)), None);
        check(&"é".repeat(16), None);
        check("", None);
    }

    #[test]
    fn addresses_that_are_asked_for() {
        let check = |asked: &str, address: &str, expected: bool| {
            assert_eq!(is_asked(asked, address), expected, "{asked} {address}");
        };
        check("anne@example.org", "Anne@Example.ORG", true);
        check("ÄNNE@example.org", "änne@example.org", true);
        check("anne@example.org", "xanne@example.org", false);
        check("@example.org", "anne@EXAMPLE.org", true);
        check("@example.org", "anne@sub.example.org", false);
        check("@example.org", "anne@example.org.net", false);
        check("@b", "\"a@b\"@c", false);
        check("@example.org", "", false);
        check("<>", "", true);
        check("<>", "anne@example.org", false);
    }

    #[test]
    fn filters() {
        let of = || Filter::default();
        let check = |filter: Filter, expected: bool| {
            let entry = entry(QueueState::Copy, &[2, 1]);
            let matches = filter.matches(&entry, &addresses());
            assert_eq!(matches, expected, "{filter:?}");
        };
        let text = |text: &str| Some(text.to_owned());
        check(of(), true);
        for (asked, expected) in [("CAROL@example.com", true), ("@example.org", false)] {
            let sender = text(asked);
            check(Filter { sender, ..of() }, expected);
        }
        for (asked, expected) in [
            ("bob@example.net", true),
            ("@example.ORG", true),
            ("carol@example.com", false),
        ] {
            let recipient = text(asked);
            check(Filter { recipient, ..of() }, expected);
        }
        for (until, expected) in [(999, false), (1000, true)] {
            let until = Some(until);
            check(Filter { until, ..of() }, expected);
        }
        for (state, expected) in [(State::Copy, true), (State::Waiting, false)] {
            let state = Some(state);
            check(Filter { state, ..of() }, expected);
        }
        let both = Filter {
            recipient: text("anne@example.org"),
            state: Some(State::Accepting),
            ..of()
        };
        check(both, false);
    }

    /// The copy that a sender gets of his own mail is not mail to him.
    #[test]
    fn a_senders_copy_is_no_recipient() {
        let mut sent = entry(QueueState::Delivering { open: vec![1] }, &[1]);
        sent.deliveries.swap(0, 2);
        sent.deliveries[2].1 = sent_target();
        let told = told(&sent, &addresses(), &names(), usize::MAX);
        assert_eq!(told.recipient_count, 2);
        let open: Vec<_> = told.recipients.iter().map(|of| of.open).collect();
        assert_eq!(open, [Some(false), Some(true)]);
        let copy = told.sender_copy.unwrap();
        assert_eq!(copy.address.as_deref(), Some("anne@example.org"));
        assert_eq!(copy.open, Some(false));
        let recipient = Some("anne@example.org".to_owned());
        let filter = Filter {
            recipient,
            ..Filter::default()
        };
        assert!(!filter.matches(&sent, &addresses()));
    }

    #[test]
    fn which_node_delivers() {
        let check = |state: QueueState, owners: &[u64], by: Option<&str>, copies: &[&str]| {
            let told = told(&entry(state, owners), &addresses(), &names(), usize::MAX);
            assert_eq!(told.delivered_by.as_deref(), by, "{told:?}");
            assert_eq!(told.copies, copies, "{told:?}");
        };
        let delivering = || QueueState::Delivering { open: vec![] };
        check(delivering(), &[1, 2, 3], Some("eu-1"), &["eu-2", "us-1"]);
        check(QueueState::Accepting, &[1, 2], Some("eu-1"), &["eu-2"]);
        check(QueueState::Copy, &[2, 1], Some("eu-2"), &["eu-1"]);
        // The first owner has no name here.
        check(QueueState::Copy, &[1, 3], None, &["eu-1", "us-1"]);
        check(
            QueueState::Copy,
            &[9, 1],
            Some("0000000000000009"),
            &["eu-1"],
        );
        let alone = entry(delivering(), &[5]);
        let alone = told(&alone, &addresses(), &NodeNames::default(), usize::MAX);
        assert_eq!(alone.delivered_by.as_deref(), Some("this node"));
        assert!(alone.copies.is_empty());
    }

    #[test]
    fn what_is_told_of_deliveries() {
        let check = |state: QueueState, open: Option<bool>, due: Option<u64>| {
            let told = told(&entry(state, &[1]), &addresses(), &names(), 2);
            assert_eq!((told.recipients[0].open, told.due), (open, due));
            assert_eq!((told.recipients.len(), told.recipient_count), (2, 3));
        };
        check(QueueState::Accepting, Some(true), None);
        check(QueueState::Delivering { open: vec![0] }, Some(true), None);
        check(
            QueueState::Delivering { open: vec![1, 2] },
            Some(false),
            None,
        );
        check(QueueState::Copy, None, None);
        for (not_before_micros, due) in [(0, None), (1, Some(1)), (2_000_000, Some(2))] {
            check(QueueState::Waiting { not_before_micros }, None, due);
        }
        let told = told(
            &entry(QueueState::Copy, &[1]),
            &addresses(),
            &names(),
            usize::MAX,
        );
        assert_eq!(told.recipients[2].address, None);
        assert_eq!(told.recipients[2].account, "03".repeat(16));
    }
}
