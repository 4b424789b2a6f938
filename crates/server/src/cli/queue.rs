//! `whimbrel queue`: entries of the queue, as lines and as JSON.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use whimbrel_imap::core::Date;
use whimbrel_service::printable::printable;

use super::{
    ConfigFile,
    run::{load, print, runtime},
};
use crate::{
    admin::{
        client::ask_running,
        protocol::{Answer, NO_QUEUE, Question},
        queue::{Entry, Filter, Recipient, State, entry_id},
    },
    clock::wall_micros,
    config::{self, Config, LogFormat, LogLevel, LogSection},
    log,
    transfer::counted,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Characters of an address or a mailbox on the terminal; the longest address has 320 bytes.
const TEXT_CHARS_MAX: usize = 1000;

/// `whimbrel queue`.
#[derive(Debug, Subcommand)]
pub enum Queue {
    /// List the entries that this node holds, the oldest first
    #[command(
        after_help = "A line for each entry: id, time of acceptance (UTC), bytes, sender (<> if empty), first recipient and how many others, state, the node \
                      that delivers it, the nodes that have copies. Recipients are accounts, also where the mail was sent to an alias. If more entries \
                      match than --limit allows, the oldest are listed.\n\n\
                      States:\n  \
                      accepting   the client still waits until enough nodes have the message\n  \
                      delivering  this node puts it into mailboxes now\n  \
                      waiting     this node delivers it later: a delivery has failed, or there is no room now\n  \
                      copy        another node delivers it; this one takes over if that node is away\n\n\
                      Each node shows what it holds: list the queue of every node of a cluster to see all.\n\n\
                      Examples:\n  \
                      whimbrel queue list\n  \
                      whimbrel queue list --older-than 1h --state waiting\n  \
                      whimbrel queue list --sender news@example.net --recipient @example.org\n  \
                      whimbrel queue list --sender '<>' --limit 100000 --json"
    )]
    List {
        /// Only entries of this sender: an address, @domain, or <> for the empty sender
        #[arg(long, value_name = "ADDRESS", value_parser = sender)]
        sender: Option<String>,
        /// Only entries with this recipient: the address of an account, or @domain
        #[arg(long, value_name = "ADDRESS", value_parser = recipient)]
        recipient: Option<String>,
        /// Only entries that were accepted this long ago or earlier, such as 30m, 12h or 2d
        #[arg(long, value_name = "DURATION", value_parser = config::duration)]
        older_than: Option<Duration>,
        /// Only entries in this state
        #[arg(long, value_enum)]
        state: Option<StateName>,
        /// At most N entries
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
        limit: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Show one entry with every recipient
    #[command(
        after_help = "A line for each recipient says whether its delivery is `open` or `done`, or `-` if this node cannot say: it knows that only while it \
                      delivers the entry.\n\n\
                      Each node shows what it holds. An entry of another node is found here only if this node has a copy: ask the node that delivers it for \
                      the progress. An entry is gone when all recipients have it.\n\n\
                      Examples:\n  \
                      whimbrel queue show 5f0c3a9de1b24c7788a1d2f3e4b5c697\n  \
                      whimbrel queue show 5f0c3a9de1b24c7788a1d2f3e4b5c697 --json"
    )]
    Show {
        /// The id, as `whimbrel queue list` prints it
        #[arg(value_parser = id)]
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
}

/// States of entries.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum StateName {
    /// Its client still waits for other nodes
    Accepting,
    /// This node delivers it now
    Delivering,
    /// This node delivers it later
    Waiting,
    /// Another node delivers it
    Copy,
}

impl From<StateName> for State {
    fn from(name: StateName) -> Self {
        match name {
            StateName::Accepting => State::Accepting,
            StateName::Delivering => State::Delivering,
            StateName::Waiting => State::Waiting,
            StateName::Copy => State::Copy,
        }
    }
}

/// The value of `--sender`.
fn sender(text: &str) -> Result<String, String> {
    match text {
        "<>" => Ok(text.to_owned()),
        text => recipient(text).map_err(|error| format!("{error}, or \"<>\"")),
    }
}

/// The value of `--recipient`.
fn recipient(text: &str) -> Result<String, String> {
    match text.rsplit_once('@') {
        Some((_, domain)) if !domain.is_empty() => Ok(text.to_owned()),
        _ => Err(format!(
            "{text:?} is not an address such as \"anne@example.org\" or \"@example.org\""
        )),
    }
}

fn id(text: &str) -> Result<String, String> {
    entry_id(text)
        .map(|id| id.to_string())
        .ok_or_else(|| "an id has 32 hexadecimal digits".to_owned())
}

pub(super) fn queue(command: Queue) -> Result<(), Failure> {
    match command {
        Queue::List {
            sender,
            recipient,
            older_than,
            state,
            limit,
            json,
            config,
        } => {
            let config = open(&config)?;
            let now = wall_micros() / 1_000_000;
            let until = older_than.map(|age| i64::try_from(now.saturating_sub(age.as_secs())));
            let filter = Filter {
                from: None,
                limit,
                sender,
                recipient,
                until: until.transpose()?,
                state: state.map(State::from),
            };
            let list = runtime()?.block_on(list(&config, filter))?;
            if list.entries.is_empty() && !json {
                eprintln!("no entries");
            } else if !list.complete {
                eprintln!("note: more than {limit} match: see --limit");
            }
            print(&match json {
                true => serde_json::to_string_pretty(&list)? + "\n",
                false => list.entries.iter().map(line).collect(),
            })
        }
        Queue::Show { id, json, config } => {
            let config = open(&config)?;
            let entry = runtime()?.block_on(show(&config, id))?;
            print(&match json {
                true => serde_json::to_string_pretty(&entry)? + "\n",
                false => block(&entry),
            })
        }
    }
}

fn open(file: &ConfigFile) -> Result<Config, Failure> {
    let config = load(file)?;
    log::start(&LogSection {
        level: LogLevel::Warn,
        format: LogFormat::Text,
    });
    Ok(config)
}

/// The entries of a list.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct List {
    entries: Vec<Entry>,
    /// Whether these are all that match.
    complete: bool,
}

async fn list(config: &Config, mut filter: Filter) -> Result<List, Failure> {
    let limit = filter.limit;
    let mut entries = Vec::new();
    loop {
        // One more, to know whether these are all.
        filter.limit = (limit + 1).saturating_sub(entries.len() as u64);
        let (further, next) = ask(config, Question::QueueList(filter.clone())).await?;
        entries.extend(further);
        if next.is_none() || entries.len() as u64 > limit {
            break;
        }
        filter.from = next;
    }
    Ok(first(entries, limit))
}

/// So many of the entries, by age.
fn first(mut entries: Vec<Entry>, limit: u64) -> List {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let complete = entries.len() <= limit;
    entries.truncate(limit);
    entries.sort_by(|a, b| (a.accepted, &a.id).cmp(&(b.accepted, &b.id)));
    List { entries, complete }
}

async fn show(config: &Config, id: String) -> Result<Entry, Failure> {
    let (entries, _) = ask(config, Question::QueueShow { id }).await?;
    let entry = entries.into_iter().next();
    entry.ok_or_else(|| "the server gave an empty answer".into())
}

async fn ask(config: &Config, question: Question) -> Result<(Vec<Entry>, Option<String>), Failure> {
    match ask_running(config, &question).await? {
        Some(Answer::Queue { entries, next, .. }) => Ok((entries, next)),
        Some(Answer::Refused { reason }) => Err(reason.into()),
        Some(other) => Err(format!("the server answered {other:?}").into()),
        None => Err(NO_QUEUE.into()),
    }
}

/// An entry of a list.
fn line(entry: &Entry) -> String {
    let others = match (entry.recipient_count, entry.recipients.first()) {
        (0, _) | (_, None) => "-".to_owned(),
        (1, Some(first)) => who(first),
        (count, Some(first)) => format!("{} +{}", who(first), count - 1),
    };
    let by = entry.delivered_by.as_deref().unwrap_or("-");
    let copies = match entry.copies.is_empty() {
        true => String::new(),
        false => format!("  copies {}", entry.copies.join(", ")),
    };
    format!(
        "{}  {}  {}  {}  {others}  {}  by {by}{copies}\n",
        entry.id,
        time(entry.accepted),
        entry.size,
        sender_of(entry),
        entry.state.name(),
    )
}

/// An entry with all of its recipients.
fn block(entry: &Entry) -> String {
    let state = match (entry.state, entry.due) {
        (State::Waiting, Some(due)) => {
            let due = i64::try_from(due).unwrap_or(i64::MAX);
            format!("waiting, due {}", time(due))
        }
        (State::Waiting, None) => "waiting, due as soon as there is room".to_owned(),
        (State::Delivering, _) => {
            let all = entry.recipients.iter().chain(&entry.sender_copy);
            let open = all.filter(|of| of.open == Some(true)).count();
            format!("delivering, {open} open")
        }
        (state, _) => state.name().to_owned(),
    };
    let copies = match entry.copies.is_empty() {
        true => "-".to_owned(),
        false => entry.copies.join(", "),
    };
    let head = [
        ("id", entry.id.clone()),
        ("accepted", time(entry.accepted)),
        ("size", counted(entry.size.into(), "byte")),
        ("sender", sender_of(entry)),
        ("state", state),
        (
            "delivers",
            entry.delivered_by.clone().unwrap_or_else(|| "-".to_owned()),
        ),
        ("copies", copies),
        ("recipients", entry.recipient_count.to_string()),
    ];
    let head = head.map(|(name, value)| format!("{name:<11} {value}\n"));
    let recipients = entry.recipients.iter().map(|of| {
        let mailbox = match of.mailbox.as_str() {
            "INBOX" => String::new(),
            mailbox => format!("  into {}", printable(mailbox, TEXT_CHARS_MAX)),
        };
        format!("  {:<4}  {}{mailbox}\n", open_of(of), who(of))
    });
    let copy = entry.sender_copy.iter();
    let copy = copy.map(|of| format!("  {:<4}  {}  its own copy\n", open_of(of), who(of)));
    head.into_iter().chain(recipients).chain(copy).collect()
}

fn open_of(recipient: &Recipient) -> &'static str {
    match recipient.open {
        Some(true) => "open",
        Some(false) => "done",
        None => "-",
    }
}

fn who(recipient: &Recipient) -> String {
    match &recipient.address {
        Some(address) => printable(address, TEXT_CHARS_MAX),
        None => format!("removed account {}", recipient.account),
    }
}

fn sender_of(entry: &Entry) -> String {
    match entry.sender.as_str() {
        "" => "<>".to_owned(),
        // Whoever sent the message has written it.
        sender => printable(sender, TEXT_CHARS_MAX),
    }
}

/// `2026-11-20T08:15:30Z`.
fn time(seconds: i64) -> String {
    let date = Date::from_days_since_epoch(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z",
        date.year(),
        date.month(),
        date.day()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipient(address: Option<&str>, mailbox: &str, open: Option<bool>) -> Recipient {
        Recipient {
            address: address.map(str::to_owned),
            account: "07".repeat(16),
            mailbox: mailbox.to_owned(),
            open,
        }
    }

    /// A node of three delivers it.
    fn entry() -> Entry {
        Entry {
            id: "5f".repeat(16),
            accepted: 1_795_680_930,
            size: 2048,
            sender: "news@example.net".to_owned(),
            state: State::Delivering,
            due: None,
            delivered_by: Some("eu-1".to_owned()),
            copies: vec!["eu-2".to_owned(), "us-1".to_owned()],
            recipient_count: 3,
            recipients: vec![
                recipient(Some("anne@example.org"), "INBOX", Some(true)),
                recipient(Some("bob@example.org"), "lists/rust", Some(false)),
                recipient(None, "INBOX", Some(false)),
            ],
            sender_copy: None,
        }
    }

    #[test]
    fn lines() {
        let check = |entry: Entry, expected: &str| {
            let id = "5f".repeat(16);
            assert_eq!(line(&entry), format!("{id}  {expected}\n"));
        };
        check(
            entry(),
            "2026-11-26T08:15:30Z  2048  news@example.net  anne@example.org +2  delivering  by eu-1  copies eu-2, us-1",
        );
        let mut bounce = Entry {
            sender: String::new(),
            recipient_count: 1,
            state: State::Copy,
            delivered_by: None,
            copies: vec![],
            ..entry()
        };
        check(
            bounce.clone(),
            "2026-11-26T08:15:30Z  2048  <>  anne@example.org  copy  by -",
        );
        (bounce.recipients, bounce.recipient_count) = (vec![], 0);
        check(bounce, "2026-11-26T08:15:30Z  2048  <>  -  copy  by -");
        // A sender must not steer the terminal.
        let evil = Entry {
            sender: "a\u{1b}[2J@b".to_owned(),
            ..entry()
        };
        check(
            evil,
            "2026-11-26T08:15:30Z  2048  a\u{fffd}[2J@b  anne@example.org +2  delivering  by eu-1  copies eu-2, us-1",
        );
    }

    #[test]
    fn blocks() {
        let mut entry = entry();
        entry.sender_copy = Some(recipient(Some("news@example.net"), "Sent", Some(true)));
        let expected = [
            "id          5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f",
            "accepted    2026-11-26T08:15:30Z",
            "size        2048 bytes",
            "sender      news@example.net",
            "state       delivering, 2 open",
            "delivers    eu-1",
            "copies      eu-2, us-1",
            "recipients  3",
            "  open  anne@example.org",
            "  done  bob@example.org  into lists/rust",
            "  done  removed account 07070707070707070707070707070707",
            "  open  news@example.net  its own copy",
            "",
        ];
        assert_eq!(block(&entry), expected.join("\n"));
        let check = |state, due, open, expected: [&str; 2]| {
            let mut entry = Entry {
                state,
                due,
                ..self::entry()
            };
            entry.recipients[0].open = open;
            let text = block(&entry);
            for expected in expected {
                assert!(text.lines().any(|line| line == expected), "{text}");
            }
        };
        check(
            State::Waiting,
            Some(86_400),
            None,
            [
                "state       waiting, due 1970-01-02T00:00:00Z",
                "  -     anne@example.org",
            ],
        );
        check(
            State::Waiting,
            None,
            None,
            [
                "state       waiting, due as soon as there is room",
                "  -     anne@example.org",
            ],
        );
        check(
            State::Accepting,
            None,
            Some(true),
            ["state       accepting", "  open  anne@example.org"],
        );
    }

    /// What programs read.
    #[test]
    fn json() {
        let list = first(vec![entry()], 1);
        let expected = serde_json::json!({
            "entries": [{
                "id": "5f".repeat(16),
                "accepted": 1_795_680_930,
                "size": 2048,
                "sender": "news@example.net",
                "state": "delivering",
                "due": null,
                "delivered_by": "eu-1",
                "copies": ["eu-2", "us-1"],
                "recipient_count": 3,
                "recipients": [
                    { "address": "anne@example.org", "account": "07".repeat(16), "mailbox": "INBOX", "open": true },
                    { "address": "bob@example.org", "account": "07".repeat(16), "mailbox": "lists/rust", "open": false },
                    { "address": null, "account": "07".repeat(16), "mailbox": "INBOX", "open": false },
                ],
                "sender_copy": null,
            }],
            "complete": true,
        });
        assert_eq!(serde_json::to_value(&list).unwrap(), expected);
        for state in StateName::value_variants() {
            let name = state.to_possible_value().unwrap().get_name().to_owned();
            assert_eq!(State::from(*state).name(), name);
            assert_eq!(serde_json::to_value(State::from(*state)).unwrap(), name);
        }
    }

    #[test]
    fn the_oldest_come_first() {
        let of = |accepted: i64| Entry {
            accepted,
            ..entry()
        };
        let check = |limit: u64, expected: &[i64], complete: bool| {
            let list = first(vec![of(3), of(1), of(2)], limit);
            let accepted: Vec<i64> = list.entries.iter().map(|of| of.accepted).collect();
            assert_eq!((&accepted[..], list.complete), (expected, complete));
        };
        check(3, &[1, 2, 3], true);
        check(1000, &[1, 2, 3], true);
        check(2, &[1, 3], false);
    }

    #[test]
    fn times() {
        let check = |seconds: i64, expected: &str| assert_eq!(time(seconds), expected);
        check(0, "1970-01-01T00:00:00Z");
        check(-1, "1969-12-31T23:59:59Z");
        check(1_767_225_599, "2025-12-31T23:59:59Z");
        check(i64::MAX, "9999-12-31T15:30:07Z");
    }
}
