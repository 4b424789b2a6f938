//! Rows in place of a log.

use bytes::Bytes;
use whimbrel_mailbox::{Content, RowKey};
use whimbrel_service::{
    api::{AccountId, Call, EntryId, Failure, MailboxCall, MailboxName, Reply, SessionId},
    log::JOINING_KEY,
    machine::{Input, Machine as _},
    owner::{Config, blob_name, import_upload, keys},
    peers, verify,
};

use super::{
    pair::{Pair, appending, importing},
    world::{ANNE, name},
};

/// Bytes of rows in a chunk, which one row may surpass.
const CHUNK_BYTES: usize = 512;

/// Logs are cut as soon as they may be.
fn config() -> Config {
    let mut shipping = peers::Config {
        kept: 0,
        cut_step: 1,
        ..peers::Config::default()
    };
    shipping.state.chunk_bytes = CHUNK_BYTES;
    // A snapshot of which nobody asks is dropped while the test looks on.
    shipping.state.send_timeout_micros = 5_000_000;
    shipping.state.window_bytes = 2 * CHUNK_BYTES as u64;
    Config {
        shipping,
        collect_after_seconds: 1,
        ..Config::default()
    }
}

/// An account in the partition of ANNE.
fn bea() -> AccountId {
    let ids = (2..=u64::MAX).map(|n| AccountId(u128::from(n).to_be_bytes()));
    let mut beside = ids.filter(|id| keys::partition_of(*id) == keys::partition_of(ANNE));
    beside.next().expect("a partition has many accounts")
}

/// Both have heard of a box with ten messages; then node 1 is alone, and node 0 goes on, so that its log is cut. Node 1 writes, too.
fn apart() -> Pair {
    let mut pair = Pair::with(config());
    pair.create(0, "box");
    pair.append(0, "box", 10);
    let reply = pair.append_for(0, bea(), "INBOX", 1);
    assert!(matches!(reply, Reply::Appended { .. }), "{reply:?}");
    pair.settle();
    assert_eq!(pair.uids(1, "box").len(), 10);
    pair.unlink();
    pair.append(1, "box", 1);
    pair.remove(0, "box");
    for _ in 0..6 {
        pair.append(0, "box", 5);
    }
    pair.create(0, "more");
    // What the other lacks is kept no longer: it is cut at once, without another write.
    pair.give_up(0);
    let low = pair.nodes[0].low.values().max().copied();
    assert!(low.is_some_and(|low| low > 20), "{low:?}");
    pair
}

/// What both show in the end.
#[track_caller]
fn alike(pair: &mut Pair) {
    for _ in 0..4 {
        pair.settle();
    }
    assert_eq!((pair.nodes[0].coming(), pair.nodes[1].coming()), (0, 0));
    assert!(pair.nodes[0].fixed.is_empty(), "the snapshot was released");
    for account in [ANNE, bea()] {
        let list = |pair: &mut Pair, node| match pair.try_call(node, account, MailboxCall::list()) {
            Some(Reply::Mailboxes {
                names: mailboxes, ..
            }) => mailboxes
                .into_iter()
                .filter(|mailbox| mailbox.exists)
                .map(|mailbox| mailbox.name)
                .collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        let names = list(pair, 0);
        assert_eq!(names, list(pair, 1));
        for name in names {
            let uids = pair.uids_of(0, account, &name);
            assert_eq!(uids, pair.uids_of(1, account, &name), "{name:?}");
        }
    }
    assert_eq!(pair.uids(1, "box").len(), 31, "what was removed is gone");
    let contents = |row: &RowKey| matches!(row, RowKey::Content(_));
    for node in &pair.nodes {
        let rows = node.rows_of(contents);
        assert!(rows.len() >= 32);
        assert_eq!(node.held.len(), rows.len(), "each holds its body");
    }
}

fn taken(pair: &Pair, node: usize) -> u64 {
    pair.nodes[node].owner.figures(pair.now).snapshots_received
}

#[test]
fn who_was_away_for_long_gets_rows_in_place_of_a_log() {
    let mut pair = apart();
    pair.link();
    alike(&mut pair);
    assert_eq!((taken(&pair, 0), taken(&pair, 1)), (0, 1));
    let chunk = pair.nodes[1].largest_chunk;
    assert!((1..CHUNK_BYTES + 512).contains(&chunk), "{chunk} bytes");
    // The logs go on from there.
    pair.create(0, "later");
    pair.create(1, "latest");
    alike(&mut pair);
    assert_eq!((taken(&pair, 0), taken(&pair, 1)), (0, 1));
}

/// An entry of the queue, whose delivery was in the state, held the body alone; it was finished when the state was taken over, and the body was gone
/// before its account was joined.
#[test]
fn what_comes_holds_the_bodies_that_it_names() {
    let mut held = 0;
    for frames in (1..200).step_by(3) {
        let mut pair = apart();
        pair.link();
        pair.travel_some(frames);
        let node = &pair.nodes[1];
        for (key, value) in node.rows.iter().filter(|(key, _)| keys::is_coming(key)) {
            for blob in verify::named(&key[9..], value) {
                let holder = Bytes::from(key.clone());
                assert!(node.held.contains(&(blob_name(&blob), holder)), "{frames}");
                held += 1;
            }
        }
    }
    assert!(held > 100, "{held} rows");
}

/// The link goes and the receiver dies after each number of frames.
#[test]
fn a_state_goes_on_after_a_crash_of_the_receiver() {
    let mut resumed = 0;
    for frames in (1..200).step_by(3) {
        let mut pair = apart();
        pair.link();
        pair.travel_some(frames);
        let begun = pair.nodes[1].coming() > 0;
        pair.restart(1);
        alike(&mut pair);
        resumed +=
            usize::from(begun && pair.nodes[1].owner.figures(pair.now).snapshots_received == 1);
    }
    assert!(resumed > 5, "{resumed}");
}

/// And the donor: it knows nothing of what it gave.
#[test]
fn a_state_is_begun_anew_after_a_crash_of_the_donor() {
    for frames in (1..200).step_by(7) {
        let mut pair = apart();
        pair.link();
        pair.travel_some(frames);
        pair.nodes[0].fixed.clear();
        pair.restart(0);
        alike(&mut pair);
    }
}

/// Calls are answered while rows come, and what is written is there when they are joined.
#[test]
fn the_receiver_serves_and_writes_meanwhile() {
    for frames in (1..120).step_by(5) {
        let mut pair = apart();
        pair.link();
        pair.travel_some(frames);
        pair.create(1, "mine");
        assert!(pair.uids(1, "mine").is_empty());
        alike(&mut pair);
    }
}

/// A state is here, and an account cannot go on: the state waits, with what comes behind it, and nothing of either is lost.
#[test]
fn a_state_waits_while_an_account_is_stalled() {
    let mut pair = apart();
    let is_mailbox = |row: &RowKey| matches!(row, RowKey::Mailbox(_));
    let mut rows = pair.nodes[1].rows_of(is_mailbox).into_keys();
    let row = rows.find(|key| key[1..17] == ANNE.0).unwrap();
    let damaged = Bytes::from_static(&[9]);
    let good = pair.nodes[1].rows.insert(row.clone(), damaged).unwrap();
    pair.restart(1);
    pair.unlink();
    let reply = pair.try_call(1, ANNE, MailboxCall::list());
    assert!(!matches!(reply, Some(Reply::Mailboxes { .. })), "{reply:?}");
    assert_eq!(pair.stalled(), 1);
    pair.link();
    for _ in 0..4 {
        pair.settle();
    }
    let waiting = |pair: &Pair| pair.nodes[1].owner.figures(pair.now).snapshots_waiting;
    assert_eq!((taken(&pair, 1), waiting(&pair)), (0, 1));
    assert!(pair.nodes[1].coming() > 0);
    let told = |text: &&String| text.contains("waits until no account of it is stalled");
    assert_eq!(pair.nodes[1].warnings.iter().filter(told).count(), 1);
    // Others are served as before, and what comes waits on disk.
    let before = pair.uids_of(1, bea(), &MailboxName::inbox()).len();
    pair.append_for(0, bea(), "INBOX", 1);
    pair.settle();
    assert_eq!(pair.uids_of(1, bea(), &MailboxName::inbox()).len(), before);
    pair.nodes[1].rows.insert(row, good);
    pair.restart(1);
    alike(&mut pair);
    assert_eq!((taken(&pair, 1), waiting(&pair)), (1, 0));
}

/// What is written for it is refused, again and again.
#[test]
fn accounts_are_joined_when_the_disk_has_room_again() {
    let mut pair = apart();
    // Nothing that came can be read until the state is taken over.
    pair.nodes[1].fails = Some(b"h".to_vec());
    pair.link();
    pair.settle();
    assert!(taken(&pair, 1) == 1 && pair.nodes[1].coming() > 0);
    // A client waits for one of the accounts.
    let request = pair.ask(1, ANNE, MailboxCall::list(), 0);
    pair.nodes[1].full = true;
    pair.nodes[1].fails = None;
    let begin = pair.now.mono_micros;
    pair.settle();
    let seconds = (pair.now.mono_micros - begin) / 1_000_000;
    let refused = pair.nodes[1].refused as u64;
    assert!(
        (1..=2 * seconds + 2).contains(&refused),
        "{refused} in {seconds} s"
    );
    assert!(pair.answer(1, request).is_none());
    pair.nodes[1].full = false;
    alike(&mut pair);
    assert!(pair.answer(1, request).is_some());
}

/// What was given of an account cannot be joined: before its bodies were copied, or after that. Of those that it alone may name nothing is known
/// then; others are confirmed.
#[test]
fn an_account_that_cannot_be_joined_keeps_back_its_own_bodies() {
    for copied in [false, true] {
        let mut pair = apart();
        let row = match copied {
            true => {
                let is_mailbox = |row: &RowKey| matches!(row, RowKey::Mailbox(_));
                let mut rows = pair.nodes[0].rows_of(is_mailbox).into_keys();
                rows.find(|key| key[1..17] == bea().0).unwrap()
            }
            // No row has such a key.
            false => [b"a", &bea().0[..], &[7, 1]].concat(),
        };
        // It is in memory there.
        let damaged = Bytes::from_static(&[9]);
        let good = pair.nodes[0].rows.insert(row.clone(), damaged);
        pair.link();
        for _ in 0..4 {
            pair.settle();
        }
        match good {
            Some(good) => pair.nodes[0].rows.insert(row, good),
            None => pair.nodes[0].rows.remove(&row),
        };
        assert_eq!((taken(&pair, 1), pair.stalled()), (1, 1));
        assert!(pair.nodes[1].coming() > 0);

        let inbox = MailboxName::inbox();
        let copy = MailboxCall::Copy {
            session: SessionId(1),
            name: inbox.clone(),
            uids: pair.uids_of(0, bea(), &inbox),
            to: inbox,
            remove: false,
        };
        let of_bea = pair.ask(0, bea(), copy, 1);
        // One of its own: all others have one name.
        let mut append = appending("box", 1);
        if let MailboxCall::Append { messages, .. } = &mut append {
            messages[0].blob.upload = [8; 16];
        }
        let of_anne = pair.ask(0, ANNE, append, 1);
        pair.settle();
        let reply = pair.answer(0, of_anne);
        assert!(matches!(reply, Some(Reply::Appended { .. })), "{reply:?}");
        let reply = pair.answer(0, of_bea);
        match copied {
            true => assert!(matches!(reply, Some(Reply::Copied { .. })), "{reply:?}"),
            false => assert!(reply.is_none(), "{reply:?}"),
        }
    }
}

/// Of a page of which one row cannot be read nothing is done: a body that is missing in memory alone would never be looked for.
#[test]
fn what_cannot_be_read_leaves_nothing_behind() {
    let mut pair = apart();
    let is_content = |row: &RowKey| matches!(row, RowKey::Content(_));
    let mut rows = pair.nodes[0].rows_of(is_content).into_keys();
    let row = rows.rfind(|key| key[1..17] == ANNE.0).unwrap();
    pair.nodes[0].rows.insert(row, Bytes::from_static(&[9]));
    pair.link();
    for _ in 0..4 {
        pair.settle();
    }
    assert_eq!((taken(&pair, 1), pair.stalled()), (1, 1));
    let reports = pair.nodes[1].owner.reports();
    let missing: u64 = reports.iter().map(|report| report.blobs_missing).sum();
    assert_eq!(missing, 0);
}

/// What came of it goes with it, and the state is joined.
#[test]
pub(crate) fn an_account_that_cannot_be_joined_can_be_removed() {
    let mut pair = apart();
    let is_mailbox = |row: &RowKey| matches!(row, RowKey::Mailbox(_));
    let mut rows = pair.nodes[0].rows_of(is_mailbox).into_keys();
    let row = rows.find(|key| key[1..17] == bea().0).unwrap();
    pair.nodes[0].rows.insert(row, Bytes::from_static(&[9]));
    pair.link();
    for _ in 0..4 {
        pair.settle();
    }
    assert_eq!((taken(&pair, 1), pair.stalled()), (1, 1));
    assert!(pair.nodes[1].coming() > 0);
    pair.nodes[1].removed.insert(bea());
    pair.input(1, Input::Purge(bea()));
    pair.settle();
    assert_eq!((pair.nodes[1].coming(), pair.stalled()), (0, 0));
    assert!(!pair.nodes[1].rows.contains_key(JOINING_KEY));
}

/// Rows of an account that the directory has removed do not come back.
#[test]
pub(crate) fn a_removed_account_does_not_come_back_with_a_state() {
    let mut pair = apart();
    pair.nodes[1].removed.insert(bea());
    let of_bea = |key: &Vec<u8>| key.get(1..17) == Some(&bea().0[..]);
    pair.nodes[1].rows.retain(|key, _| !of_bea(key));
    pair.restart(1);
    pair.settle();
    pair.settle();
    assert_eq!((taken(&pair, 1), pair.nodes[1].coming()), (1, 0));
    assert!(!pair.nodes[1].rows.keys().any(of_bea));
    let reply = pair.try_call(1, bea(), MailboxCall::list());
    assert!(
        matches!(reply, Some(Reply::Failed(Failure::NoSuchAccount))),
        "{reply:?}"
    );
    assert_eq!(pair.uids(1, "box").len(), 31);
}

/// Both have imported it, from a source that gives other bytes at each time: each keeps its own, in the record, in the content row, and in what is held.
#[test]
fn a_message_that_is_here_keeps_its_body() {
    let mut pair = Pair::with(config());
    pair.create(0, "box");
    pair.settle();
    pair.unlink();
    for (node, hash) in [(0, [4; 32]), (1, [5; 32])] {
        let entry = EntryId([3; 16]);
        let mut import = importing(entry, import_upload(entry, ANNE, &hash));
        let MailboxCall::Import { messages, .. } = &mut import else {
            unreachable!("it imports");
        };
        messages[0].1.blob.hash = hash;
        let reply = pair.call(node, import);
        assert!(matches!(reply, Reply::Appended { .. }), "{reply:?}");
    }
    pair.append(0, "box", 20);
    pair.give_up(0);
    pair.link();
    for _ in 0..4 {
        pair.settle();
    }
    assert_eq!(taken(&pair, 1), 1);
    let uids = pair.uids(1, "INBOX");
    let rows = pair.call(
        1,
        MailboxCall::Rows {
            name: name("INBOX"),
            uids,
        },
    );
    let Reply::Rows(rows) = rows else {
        panic!("{rows:?}");
    };
    let [row] = &rows[..] else {
        panic!("one message: {rows:?}");
    };
    assert_eq!(row.blob.hash, [5; 32]);
    let node = &pair.nodes[1];
    let content = &node.rows[&keys::content_key(ANNE, row.origin)[..]];
    let content = Content::decode(content).expect("a content row");
    assert_eq!(content.blob, row.blob);
    let holder = [ANNE.0, row.origin.0].concat();
    let of_it = node.held.iter().filter(|(_, by)| *by == holder[..]);
    let held: Vec<_> = of_it.map(|(blob, _)| *blob).collect();
    assert_eq!(held, [blob_name(&row.blob)]);
}

/// The clock of a server was a day ahead once, while it was alone; the second node, which took its state, took nothing more of it for a day.
#[test]
fn a_log_that_runs_ahead_goes_on_where_its_state_was_taken() {
    const DAY_MICROS: u64 = 86_400_000_000;
    let mut pair = apart();
    pair.now.wall_micros += DAY_MICROS;
    pair.append(0, "box", 1);
    pair.now.wall_micros -= DAY_MICROS;
    pair.give_up(0);
    pair.link();
    let alike = |pair: &mut Pair| {
        for _ in 0..4 {
            pair.settle();
        }
        let uids = pair.uids(0, "box");
        assert_eq!(pair.uids(1, "box"), uids);
        uids.len()
    };
    let there = alike(&mut pair);
    assert_eq!(taken(&pair, 1), 1);
    for node in [0, 1] {
        let call = Call::Mailbox {
            account: ANNE,
            call: appending("box", 1),
            uid_validity: None,
            other_nodes: 0,
        };
        let request = pair.ask_of(node, call);
        assert_eq!(alike(&mut pair), there + 1 + node);
        let reply = pair.answer(node, request);
        assert!(matches!(reply, Some(Reply::Appended { .. })), "{reply:?}");
    }
}
