//! The rows that say that bodies are missing go with the last records that name them: nobody may have these bodies any more. What a session finds
//! missing gets one.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_mailbox::{BlobName, RowKey};
use whimbrel_service::{
    api::{AccountId, EntryId, Failure, MailboxCall, Reply, SessionId},
    log::missing_blob_of_key,
    machine::{Input, Machine},
    owner::{Config, import_upload},
    peers::PeerInput,
};

use super::{
    pair::{Pair, appending, importing},
    world::{ANNE, bea, name},
};

/// Node 1 gets no body from anybody.
fn pair() -> Pair {
    let mut pair = Pair::with(Config {
        collect_after_seconds: 1,
        ..Config::default()
    });
    pair.nowhere = true;
    recovered(pair)
}

fn recovered(mut pair: Pair) -> Pair {
    for node in 0..2 {
        pair.input(
            node,
            Input::Swept {
                began: u64::MAX,
                least: None,
            },
        );
    }
    pair
}

fn append(pair: &mut Pair, account: AccountId, mailbox: &str) {
    let reply = pair.append_for(0, account, mailbox, 1);
    assert!(matches!(reply, Reply::Appended { .. }), "{reply:?}");
    pair.settle();
}

/// All of a mailbox, at node 0; then what is removed is collected, once vectors are told.
fn remove(pair: &mut Pair, account: AccountId, mailbox: &str) {
    let uids = pair.uids_of(0, account, &name(mailbox));
    assert_eq!(uids.len(), 1);
    let call = MailboxCall::Remove {
        name: name(mailbox),
        uids,
    };
    let reply = pair.try_call(0, account, call);
    assert!(matches!(reply, Some(Reply::Done)), "{reply:?}");
    pass(pair);
}

fn pass(pair: &mut Pair) {
    for _ in 0..40 {
        pair.settle();
        pair.now.mono_micros += 1_000_000;
        pair.now.wall_micros += 1_000_000;
        for node in 0..2 {
            pair.input(node, Input::Time);
        }
    }
}

/// What node 1 says is missing, and for whom.
fn missing_blobs(pair: &Pair) -> Vec<Bytes> {
    let rows = pair.nodes[1].rows.iter();
    rows.filter(|(key, _)| missing_blob_of_key(key).is_some())
        .map(|(_, row)| row.clone())
        .collect()
}

fn missing(pair: &Pair) -> u64 {
    let reports = pair.nodes[1].owner.reports();
    reports.iter().map(|report| report.blobs_missing).sum()
}

/// What node 1 looks for after a start.
fn wanted_after_start(pair: &mut Pair) -> usize {
    pair.wanted[1].clear();
    pair.restart(1);
    pair.input(
        1,
        Input::Swept {
            began: u64::MAX,
            least: None,
        },
    );
    pair.settle();
    pair.wanted[1].len()
}

/// What node 1 looks for when nobody had the body a while ago.
fn wanted_again(pair: &mut Pair, blob: BlobName) -> Vec<BlobName> {
    pair.wanted[1].clear();
    pair.peer(1, PeerInput::WantAgain(blob));
    pair.settle();
    std::mem::take(&mut pair.wanted[1])
}

fn of(accounts: &[AccountId]) -> Bytes {
    let mut accounts = accounts.to_vec();
    accounts.sort_unstable();
    accounts
        .iter()
        .flat_map(|account| account.0)
        .collect::<Vec<u8>>()
        .into()
}

#[test]
fn a_body_of_a_message_that_is_gone_is_not_looked_for_any_more() {
    let mut pair = pair();
    append(&mut pair, ANNE, "INBOX");
    assert_eq!(missing_blobs(&pair), [of(&[ANNE])]);
    assert_eq!(wanted_after_start(&mut pair), 1);
    let blob = pair.wanted[1][0];
    assert_eq!(wanted_again(&mut pair, blob), [blob]);
    remove(&mut pair, ANNE, "INBOX");
    assert_eq!(wanted_again(&mut pair, blob), []);
    let contents = |row: &RowKey| matches!(row, RowKey::Content(_));
    assert_eq!(pair.nodes[1].rows_of(contents), BTreeMap::new());
    assert_eq!(missing_blobs(&pair), Vec::<Bytes>::new());
    assert_eq!((wanted_after_start(&mut pair), missing(&pair)), (0, 0));
}

#[test]
fn it_is_as_long_as_another_message_names_it() {
    let mut pair = pair();
    for mailbox in ["INBOX", "Archive"] {
        append(&mut pair, ANNE, mailbox);
    }
    remove(&mut pair, ANNE, "INBOX");
    assert_eq!(missing_blobs(&pair), [of(&[ANNE])]);
    // Of an account that is not in memory, too.
    append(&mut pair, bea(), "INBOX");
    assert_eq!(missing_blobs(&pair), [of(&[ANNE, bea()])]);
    assert_eq!(wanted_after_start(&mut pair), 1);
    remove(&mut pair, ANNE, "Archive");
    assert_eq!(missing_blobs(&pair), [of(&[bea()])]);
    assert_eq!((wanted_after_start(&mut pair), missing(&pair)), (1, 1));
    remove(&mut pair, bea(), "INBOX");
    assert_eq!(missing_blobs(&pair), Vec::<Bytes>::new());
    assert_eq!((wanted_after_start(&mut pair), missing(&pair)), (0, 0));
}

#[test]
fn it_goes_with_the_account() {
    let mut pair = pair();
    for account in [ANNE, bea()] {
        append(&mut pair, account, "INBOX");
    }
    pair.nodes[1].removed.insert(ANNE);
    pair.input(1, Input::Purge(ANNE));
    pair.settle();
    assert_eq!(missing_blobs(&pair), [of(&[bea()])]);
    // What comes for her is for nobody.
    append(&mut pair, ANNE, "INBOX");
    assert_eq!(missing_blobs(&pair), [of(&[bea()])]);
    pair.nodes[1].removed.insert(bea());
    pair.input(1, Input::Purge(bea()));
    pair.settle();
    assert_eq!(missing_blobs(&pair), Vec::<Bytes>::new());
    assert_eq!((wanted_after_start(&mut pair), missing(&pair)), (0, 0));
}

/// A row from before accounts were kept in it: of nobody is it known that he was the last one.
#[test]
fn a_row_that_does_not_say_whose_it_is_stays_until_the_body_is_here() {
    for row in [&b""[..], b"\x01"] {
        let mut pair = pair();
        for account in [ANNE, bea()] {
            append(&mut pair, account, "INBOX");
        }
        let rows = pair.nodes[1].rows.iter_mut();
        let mut rows = rows.filter(|(key, _)| missing_blob_of_key(key).is_some());
        let (key, value) = rows.next().unwrap();
        let blob = missing_blob_of_key(key).unwrap();
        *value = Bytes::from_static(row);
        assert_eq!(wanted_after_start(&mut pair), 1);
        append(&mut pair, bea(), "INBOX");
        remove(&mut pair, ANNE, "INBOX");
        assert_eq!(missing_blobs(&pair), [Bytes::from_static(row)]);
        pair.peer(1, PeerInput::Body(blob, u64::MAX));
        pair.settle();
        assert_eq!((missing_blobs(&pair).len(), missing(&pair)), (0, 0));
        assert_eq!(pair.uids_of(1, bea(), &name("INBOX")).len(), 2);
    }
}

/// Two accounts name it, and there is room in memory for neither: each is read once for it, whichever goes first.
#[test]
fn a_body_of_two_accounts_comes_to_one_after_the_other() {
    let mut pair = Pair::with(Config {
        accounts_bytes_max: 1,
        ..Config::default()
    });
    pair.nowhere = true;
    let mut pair = recovered(pair);
    for account in [ANNE, bea()] {
        append(&mut pair, account, "INBOX");
    }
    let rows = pair.nodes[1].rows.keys();
    let blob = rows
        .filter_map(|key| missing_blob_of_key(key))
        .next()
        .unwrap();
    pair.peer(1, PeerInput::Body(blob, u64::MAX));
    pair.settle();
    assert_eq!((missing_blobs(&pair).len(), missing(&pair)), (0, 0));
    for account in [ANNE, bea()] {
        assert_eq!(pair.uids_of(1, account, &name("INBOX")).len(), 1);
    }
}

/// What has a greater UID waits two seconds for a body (docs/decisions/0019), unless it is known that nobody has it.
#[test]
fn nothing_waits_for_a_body_that_nobody_has() {
    let mut pair = pair();
    pair.create(0, "box");
    pair.settle();
    assert_eq!(pair.uids(1, "box"), []);
    pair.append(0, "INBOX", 1);
    pair.travel();
    let missing = pair.coming[1].last().copied().expect("a body");
    pair.nowhere = false;
    let entry = EntryId([3; 16]);
    let import = importing(entry, import_upload(entry, ANNE, &[9; 32]));
    assert!(matches!(pair.call(0, import), Reply::Appended { .. }));
    pair.travel();
    assert_eq!(pair.uids(1, "INBOX"), []);
    pair.peer(1, PeerInput::NoBody(missing));
    let uids = pair.uids(1, "INBOX");
    assert_eq!(uids.len(), 1);
    // It is shown when it comes all the same, above what was told.
    let now = pair.now.mono_micros;
    pair.peer(1, PeerInput::Body(missing, now));
    pair.settle();
    let all = pair.uids(1, "INBOX");
    assert!(all.len() == 2 && all[0] == uids[0], "{all:?}");
}

/// Node 1 had the body, and has lost it; so has nobody else by now, but for what the test tells.
fn without_body() -> (Pair, BlobName) {
    let mut pair = recovered(Pair::with(Config {
        collect_after_seconds: 1,
        ..Config::default()
    }));
    append(&mut pair, ANNE, "INBOX");
    assert_eq!((missing_blobs(&pair).len(), missing(&pair)), (0, 0));
    let blob = pair.coming[1][0];
    pair.nowhere = true;
    (pair, blob)
}

/// A session of the account at node 1 could not read it. What is looked for then.
fn missed(pair: &mut Pair, account: AccountId, blob: BlobName) -> Vec<BlobName> {
    pair.wanted[1].clear();
    pair.peer(1, PeerInput::Missed(account, blob));
    pair.settle();
    std::mem::take(&mut pair.wanted[1])
}

fn found_missing(pair: &Pair) -> u64 {
    pair.nodes[1].owner.figures(pair.now).blobs_missed
}

#[test]
fn a_body_that_a_session_finds_missing_is_got_from_other_nodes() {
    let (mut pair, blob) = without_body();
    let inbox = name("INBOX");
    assert_eq!(pair.uids_of(1, ANNE, &inbox).len(), 1);
    let warned = pair.nodes[1].warnings.len();
    assert_eq!(missed(&mut pair, ANNE, blob), [blob]);
    assert_eq!(missing_blobs(&pair), [of(&[ANNE])]);
    // Each one who wants to read it asks again, and it is said and counted once.
    assert_eq!(missed(&mut pair, ANNE, blob), [blob]);
    assert_eq!(pair.nodes[1].warnings.len(), warned + 1);
    assert_eq!((missing(&pair), found_missing(&pair)), (1, 1));
    // What was shown stays.
    assert_eq!(pair.uids_of(1, ANNE, &inbox).len(), 1);
    // After a start, too, it is looked for.
    assert_eq!(wanted_after_start(&mut pair), 1);
    assert_eq!(pair.uids_of(1, ANNE, &inbox).len(), 1);
    pair.peer(1, PeerInput::Body(blob, u64::MAX));
    pair.settle();
    assert_eq!((missing_blobs(&pair).len(), missing(&pair)), (0, 0));
    assert_eq!((wanted_after_start(&mut pair), missing(&pair)), (0, 0));
    assert_eq!(pair.uids_of(1, ANNE, &inbox).len(), 1);
}

/// The answer that it is here was looked up before the row was durable: perhaps nothing held the body then.
#[test]
fn one_that_was_there_before_the_row_was_durable_is_looked_for_again() {
    let (mut pair, blob) = without_body();
    pair.nodes[1].slow = Some([].into());
    assert_eq!(missed(&mut pair, ANNE, blob), [blob]);
    pair.peer(1, PeerInput::Body(blob, u64::MAX));
    assert_eq!(missing(&pair), 1);
    for ticket in pair.nodes[1].slow.take().unwrap() {
        pair.input(1, Input::Committed(ticket));
    }
    assert_eq!(pair.wanted[1], [blob]);
}

#[test]
fn it_is_looked_for_as_long_as_a_message_of_the_account_names_it() {
    let (mut pair, blob) = without_body();
    append(&mut pair, bea(), "Archive");
    pair.peer(1, PeerInput::Body(blob, u64::MAX));
    pair.settle();
    let uids = pair.uids_of(1, bea(), &name("Archive"));
    assert_eq!((uids.len(), missing_blobs(&pair).len()), (1, 0));
    assert_eq!(missed(&mut pair, bea(), blob), [blob]);
    assert_eq!(missing_blobs(&pair), [of(&[bea()])]);
    // Anne's finds out later.
    assert_eq!(missed(&mut pair, ANNE, blob), [blob]);
    assert_eq!(missing_blobs(&pair), [of(&[ANNE, bea()])]);
    remove(&mut pair, bea(), "Archive");
    remove(&mut pair, ANNE, "INBOX");
    assert_eq!(missing_blobs(&pair), Vec::<Bytes>::new());
    // A session that still has the message in its view.
    assert_eq!(missed(&mut pair, ANNE, blob), []);
    assert_eq!((missing_blobs(&pair).len(), missing(&pair)), (0, 0));
}

#[test]
fn a_node_that_is_alone_looks_for_nothing() {
    let (mut pair, blob) = without_body();
    pair.close();
    pair.settle();
    assert_eq!(missed(&mut pair, ANNE, blob), []);
    assert_eq!((missing_blobs(&pair).len(), missing(&pair)), (0, 0));
}

/// Of a body that many batches name what was looked at before is told again and again: it is looked for once more, not once for each.
#[test]
fn one_that_was_looked_at_too_early_is_looked_for_once_more() {
    let (mut pair, blob) = without_body();
    assert_eq!(missed(&mut pair, ANNE, blob), [blob]);
    pair.wanted[1].clear();
    for _ in 0..3 {
        pair.peer(1, PeerInput::Body(blob, 0));
    }
    assert_eq!((pair.wanted[1].len(), missing(&pair)), (1, 1));
    pair.peer(1, PeerInput::Body(blob, u64::MAX));
    assert_eq!(missing(&pair), 0);
}

/// The row is from before she named it, or what said so was lost: she lies in memory, and is told all the same.
#[test]
fn who_lies_in_memory_is_told_whatever_the_row_says() {
    let mut pair = pair();
    for account in [ANNE, bea()] {
        append(&mut pair, account, "INBOX");
    }
    let rows = pair.nodes[1].rows.iter_mut();
    let mut rows = rows.filter(|(key, _)| missing_blob_of_key(key).is_some());
    let (key, value) = rows.next().unwrap();
    let blob = missing_blob_of_key(key).unwrap();
    *value = of(&[bea()]);
    assert_eq!(wanted_after_start(&mut pair), 1);
    assert_eq!(pair.uids_of(1, ANNE, &name("INBOX")), []);
    pair.peer(1, PeerInput::Body(blob, u64::MAX));
    pair.settle();
    assert_eq!((missing_blobs(&pair).len(), missing(&pair)), (0, 0));
    for account in [ANNE, bea()] {
        assert_eq!(pair.uids_of(1, account, &name("INBOX")).len(), 1);
    }
}

/// Node 0 waits for node 1 to have the body of what it wrote, and removes it meanwhile.
#[test]
fn who_waits_for_a_body_that_nothing_names_any_more_is_answered() {
    let mut pair = pair();
    append(&mut pair, bea(), "INBOX");
    remove(&mut pair, bea(), "INBOX");
    let request = pair.ask(0, bea(), appending("INBOX", 1), 1);
    pair.settle();
    assert!(pair.answer(0, request).is_none(), "node 1 has no body");
    assert_eq!(missing(&pair), 1);
    let uids = pair.uids_of(0, bea(), &name("INBOX"));
    let call = MailboxCall::Remove {
        name: name("INBOX"),
        uids,
    };
    let reply = pair.try_call(0, bea(), call);
    assert!(matches!(reply, Some(Reply::Done)), "{reply:?}");
    // Less than it is waited for.
    for _ in 0..8 {
        pair.settle();
        for node in 0..2 {
            pair.pass(node, 0);
        }
        pair.now.mono_micros += 1_000_000;
        pair.now.wall_micros += 1_000_000;
    }
    assert_eq!(missing(&pair), 0);
    let reply = pair.answer(0, request);
    assert!(matches!(reply, Some(Reply::Appended { .. })), "{reply:?}");
}

/// The body of ANNE's message, which node 1 lacks.
fn lacked(pair: &Pair) -> BlobName {
    let mut rows = pair.nodes[1].rows.keys();
    rows.find_map(|key| missing_blob_of_key(key))
        .expect("a row")
}

/// What shows a message that was accepted long ago takes of the room that is kept free.
#[test]
fn a_body_that_comes_to_a_full_disk_is_shown() {
    let mut pair = pair();
    append(&mut pair, ANNE, "INBOX");
    let blob = lacked(&pair);
    pair.nodes[1].full = true;
    pair.nowhere = false;
    pair.peer(1, PeerInput::Body(blob, u64::MAX));
    pair.settle();
    assert_eq!((pair.nodes[1].refused, missing_blobs(&pair).len()), (0, 0));
    assert_eq!(pair.uids_of(1, ANNE, &name("INBOX")).len(), 1);
}

/// It takes nothing at all for a while.
#[test]
fn a_body_that_comes_to_a_disk_that_takes_nothing_is_looked_for_each_second() {
    let mut pair = pair();
    append(&mut pair, ANNE, "INBOX");
    let blob = lacked(&pair);
    pair.nodes[1].away = true;
    pair.nowhere = false;
    pair.wanted[1].clear();
    pair.peer(1, PeerInput::Body(blob, u64::MAX));
    let begin = pair.now.mono_micros;
    pair.settle();
    let tries = (pair.now.mono_micros - begin) / 1_000_000;
    let looked = pair.wanted[1].len() as u64;
    assert!((1..=tries).contains(&looked), "{looked} in {tries} s");
    // Others are served meanwhile.
    let reply = pair.try_call(1, bea(), MailboxCall::list());
    assert!(reply.is_some());
    pair.nodes[1].away = false;
    pair.settle();
    assert_eq!((missing_blobs(&pair).len(), missing(&pair)), (0, 0));
    assert_eq!(pair.uids_of(1, ANNE, &name("INBOX")).len(), 1);
}

/// She was stalled when a body came that is lacked again for another's sake since: when she goes on she is told of it all the same.
#[test]
fn who_was_stalled_is_told_of_a_body_that_another_lacks() {
    let mut pair = recovered(Pair::new());
    append(&mut pair, ANNE, "INBOX");
    let is_mailbox = |row: &RowKey| matches!(row, RowKey::Mailbox(_));
    let mut rows = pair.nodes[1].rows_of(is_mailbox).into_keys();
    let row = rows.find(|key| key[1..17] == ANNE.0).unwrap();
    let damaged = Bytes::from_static(&[9]);
    let good = pair.nodes[1].rows.insert(row.clone(), damaged).unwrap();
    pair.restart(1);
    pair.settle();
    append(&mut pair, ANNE, "INBOX");
    assert_eq!((pair.stalled(), missing_blobs(&pair).len()), (1, 0));
    pair.nowhere = true;
    append(&mut pair, bea(), "INBOX");
    assert_eq!(missing_blobs(&pair), [of(&[bea()])]);
    pair.nodes[1].rows.insert(row, good);
    assert_eq!(wanted_after_start(&mut pair), 1);
    assert_eq!(pair.stalled(), 0);
    let blob = lacked(&pair);
    pair.peer(1, PeerInput::Body(blob, u64::MAX));
    pair.settle();
    assert_eq!(pair.uids_of(1, bea(), &name("INBOX")).len(), 1);
    assert_eq!(pair.uids_of(1, ANNE, &name("INBOX")).len(), 2);
}

/// A copy of what can still be seen waits for the body, which was lost. Its answer does not, since nobody may have the body. Who is told that others
/// do not have the copy makes another one: the first must not come to light with the body.
#[test]
fn a_copy_that_waits_for_its_body_is_taken_back() {
    let mut pair = recovered(Pair::new());
    append(&mut pair, ANNE, "INBOX");
    let blob = pair.coming[1][0];
    pair.nowhere = true;
    pair.create(1, "box");
    pair.settle();
    let (inbox, target) = (name("INBOX"), name("box"));
    let uids = pair.uids_of(1, ANNE, &inbox);
    let copy = || MailboxCall::Copy {
        session: SessionId(1),
        name: name("INBOX"),
        uids: uids.clone(),
        to: name("box"),
        remove: false,
    };
    assert!(matches!(pair.call(1, copy()), Reply::Copied { .. }));
    // It is not collected yet when all is read again: so what names that body is held back.
    let gone = MailboxCall::Remove {
        name: target.clone(),
        uids: pair.uids_of(1, ANNE, &target),
    };
    assert!(matches!(pair.call(1, gone), Reply::Done));
    missed(&mut pair, ANNE, blob);
    assert_eq!(wanted_after_start(&mut pair), 1);
    let Reply::Copied { uids: first, .. } = pair.call(1, copy()) else {
        panic!("it is not answered");
    };
    assert_eq!(pair.uids_of(1, ANNE, &target), []);
    // The UID was told: a client that remembers it looks for what is new above it.
    let told = first[0].1;
    let status = pair.call(1, MailboxCall::Status { name: name("box") });
    assert!(
        matches!(&status, Reply::Status(status) if status.uid_next > told),
        "{status:?}"
    );
    let second = pair.ask(1, ANNE, copy(), 1);
    pair.pass(1, 11);
    let reply = pair.answer(1, second);
    assert!(
        matches!(reply, Some(Reply::Failed(Failure::NotConfirmed))),
        "{reply:?}"
    );
    pair.peer(1, PeerInput::Body(blob, u64::MAX));
    pair.settle();
    let shown = pair.uids_of(1, ANNE, &target);
    assert!(shown.len() == 1 && shown[0] > told, "{shown:?}");
    assert_eq!(pair.uids_of(1, ANNE, &inbox), uids);
}
