//! What another node's batch changes is more than a commit has room for: it is applied in several, and a crash between any two of them is sound.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_crdt::{Batch, VersionVector};
use whimbrel_mailbox::RowKey;
use whimbrel_service::{
    api::{Flag, FlagChange, Flags, Keyword, MailboxCall, Reply, Row, SessionId},
    log::{POSITION_KEY, Position},
    owner::Config,
    verify::{self, Replay},
};

use super::{
    node::Node,
    pair::Pair,
    world::{ANNE, name},
};

const MESSAGES: usize = 6;

/// A row with these has some five kilobytes.
fn keywords(count: usize, bytes: usize) -> Flags {
    let text = |n: usize| format!("k{n:03}{}", "x".repeat(bytes - 4));
    let keyword = |n| Keyword::new(&text(n)).map(Flag::Keyword);
    (0..count).filter_map(keyword).collect()
}

fn store(uids: Vec<u32>, change: FlagChange, flags: Flags) -> MailboxCall {
    MailboxCall::Store {
        session: SessionId(1),
        name: name("INBOX"),
        uids,
        change,
        flags,
        unchanged_since: None,
    }
}

fn transfer(uids: Vec<u32>, remove: bool) -> MailboxCall {
    MailboxCall::Copy {
        session: SessionId(1),
        name: name("INBOX"),
        uids,
        to: name("new"),
        remove,
    }
}

/// Both nodes have the messages; while they are apart node 1 gives each of them many keywords, and node 0 makes one operation.
fn apart(config: Config, messages: usize, keywords: &Flags, change: Change) -> Pair {
    let mut pair = Pair::with(config);
    pair.create(0, "new");
    pair.append(0, "INBOX", messages);
    pair.settle();
    let uids = pair.uids(1, "INBOX");
    assert_eq!(uids.len(), messages);
    pair.unlink();
    for some in uids.chunks(50) {
        let reply = pair.call(1, store(some.to_vec(), FlagChange::Add, keywords.clone()));
        assert!(matches!(reply, Reply::Stored { .. }), "{reply:?}");
    }
    let reply = pair.call(0, change(uids));
    assert!(!matches!(reply, Reply::Failed(_)), "{reply:?}");
    pair
}

type Change = fn(Vec<u32>) -> MailboxCall;

const CHANGES: [(&str, Change); 6] = [
    ("+FLAGS", |uids| {
        store(uids, FlagChange::Add, Flags::from_iter([Flag::Seen]))
    }),
    ("-FLAGS (\\Deleted)", |uids| {
        store(uids, FlagChange::Remove, Flags::from_iter([Flag::Deleted]))
    }),
    ("MOVE", |uids| transfer(uids, true)),
    ("COPY", |uids| transfer(uids, false)),
    ("EXPUNGE", |uids| MailboxCall::Remove {
        name: name("INBOX"),
        uids,
    }),
    ("RENAME", |_| MailboxCall::Rename {
        from: name("new"),
        to: name("newer"),
        rest: None,
    }),
];

/// All that a node shows of its mailboxes.
fn shown(pair: &mut Pair, node: usize) -> BTreeMap<String, Vec<String>> {
    let Reply::Mailboxes {
        names: mailboxes, ..
    } = pair.call(node, MailboxCall::list())
    else {
        panic!("it is served");
    };
    let mut all = BTreeMap::new();
    for mailbox in mailboxes {
        let uids = pair.uids_of(node, ANNE, &mailbox.name);
        let call = MailboxCall::Rows {
            name: mailbox.name.clone(),
            uids,
        };
        let Reply::Rows(rows) = pair.call(node, call) else {
            panic!("{:?} has rows", mailbox.name);
        };
        let rows = rows.into_iter().map(|row| {
            let of_both = Row { modseq: 0, ..row };
            format!("{of_both:?}")
        });
        all.insert(mailbox.name.to_string(), rows.collect());
    }
    all
}

/// What a node has stored is what its logs say.
#[track_caller]
fn is_sound(node: &Node) {
    let position = node.rows.get(POSITION_KEY).expect("a position");
    let position: Position = minicbor::decode(position).expect("a position");
    let applied: VersionVector = position.applied;
    let logs = node.logs.values().flatten();
    let batches = logs.map(|entry| Batch::decode(&entry.bytes).expect("a batch"));
    let is_applied = |batch: &Batch| applied.get(batch.origin) >= batch.last();
    let mut replay = Replay::new(ANNE);
    for batch in verify::ordered(batches.filter(is_applied).collect()) {
        replay.take(&batch).expect("causal");
    }
    let rows = node.rows.iter();
    let rows = rows.filter(|(key, _)| verify::account_of(key) == Some(ANNE));
    let rows: Vec<(Vec<u8>, Bytes)> = rows.map(|(k, v)| (k.clone(), v.clone())).collect();
    let (faults, _) = verify::account(ANNE, rows, &applied, Some(replay));
    assert_eq!(faults, []);
}

#[track_caller]
fn both_have_all(pair: &mut Pair, what: &str) {
    pair.settle();
    assert_eq!((pair.stalled(), pair.held_parts()), (0, 0), "{what}");
    let (here, there) = (shown(pair, 0), shown(pair, 1));
    assert_eq!(here, there, "{what}");
    is_sound(&pair.nodes[1]);
    // A node that comes is given what is here.
    assert!(pair.nodes[1].fix().is_some(), "{what}");
    let stalled = |text: &&String| text.contains("stalled");
    assert_eq!(pair.nodes[1].warnings.iter().find(stalled), None, "{what}");
}

/// Killed after each number of commits, until none is left to make.
#[test]
fn a_batch_is_applied_in_as_many_commits_as_it_needs_whenever_it_is_killed() {
    let few = Config {
        foreign_bytes_max: 4 << 10,
        ..Config::default()
    };
    for (what, change) in CHANGES {
        let mut killed = 0;
        loop {
            let mut pair = apart(few.clone(), MESSAGES, &keywords(20, 200), change);
            pair.nodes[1].commits_left = Some(killed);
            pair.link();
            pair.travel();
            let was_killed = pair.nodes[1].commits_left == Some(0);
            pair.nodes[1].commits_left = None;
            if was_killed {
                pair.restart(1);
            }
            both_have_all(&mut pair, what);
            if !was_killed {
                break;
            }
            killed += 1;
        }
        let is_cut = !matches!(what, "COPY" | "RENAME");
        assert_eq!(killed > MESSAGES, is_cut, "{what}: {killed} commits");
    }
}

/// Sessions stay, are answered when all is applied, and are told.
#[test]
fn who_looks_at_the_account_meanwhile_stays() {
    let few = Config {
        foreign_bytes_max: 4 << 10,
        ..Config::default()
    };
    let (_, change) = CHANGES[0];
    let mut pair = apart(few, MESSAGES, &keywords(20, 200), change);
    let uids = pair.uids(1, "INBOX");
    pair.nodes[1].slow = Some([].into());
    pair.link();
    pair.travel();
    assert_eq!(pair.held_parts(), 1, "its commit is not durable");
    let call = MailboxCall::Rows {
        name: name("INBOX"),
        uids,
    };
    let asked = pair.ask(1, ANNE, call, 0);
    assert!(pair.answer(1, asked).is_none());
    let slow = pair.nodes[1].slow.take().unwrap_or_default();
    for ticket in slow {
        pair.input(1, whimbrel_service::machine::Input::Committed(ticket));
    }
    pair.settle();
    let Some(Reply::Rows(rows)) = pair.answer(1, asked) else {
        panic!("no rows");
    };
    assert_eq!(rows.len(), MESSAGES);
    assert!(rows.iter().all(|row| row.flags.contains(&Flag::Seen)));
    both_have_all(&mut pair, "with a session");
}

/// "Give 600 messages 100 keywords of 255 bytes each; STORE 1:600 +FLAGS (\Seen)" at another node, with the bounds of a real store.
#[test]
fn a_store_of_messages_with_a_hundred_long_keywords_each() {
    let (what, change) = CHANGES[0];
    let mut pair = apart(Config::default(), 600, &keywords(100, 255), change);
    pair.link();
    both_have_all(&mut pair, what);
    let rows = pair.nodes[1].rows_of(|row| matches!(row, RowKey::Message(_)));
    let bytes: usize = rows.values().map(Bytes::len).sum();
    let room = whimbrel_storage::COMMIT_BYTES_MAX - (1 << 20);
    assert!(bytes > room, "{bytes} bytes");
}

/// Node 1 has readers, and reads the account again for a batch that does not fit into one commit: it tells how high its counter is then, and node 0 shows
/// what it claimed before its patience ends.
#[test]
pub(crate) fn a_counter_is_told_when_the_account_was_read_again() {
    let few = Config {
        foreign_bytes_max: 4 << 10,
        ..Config::default()
    };
    let mut pair = Pair::with(few);
    pair.create(0, "new");
    pair.append(0, "INBOX", MESSAGES);
    pair.settle();
    let uids = pair.uids(1, "INBOX");
    let large = store(uids.clone(), FlagChange::Add, keywords(20, 200));
    let reply = pair.call(1, large);
    assert!(matches!(reply, Reply::Stored { .. }), "{reply:?}");
    pair.settle();
    let loads = pair.nodes[1].loads;
    let moved = pair.ask(0, ANNE, transfer(uids, true), 0);
    assert!(pair.answer(0, moved).is_none(), "node 1 has readers");
    // No time passes.
    pair.travel();
    assert!(pair.nodes[1].loads > loads, "it reads the account again");
    let reply = pair.answer(0, moved);
    assert!(matches!(reply, Some(Reply::Copied { .. })), "{reply:?}");
}
