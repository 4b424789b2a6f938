//! Accounts that stall and go on, and what the node does by itself while its disk takes nothing.

use bytes::Bytes;
use whimbrel_mailbox::RowKey;
use whimbrel_service::{
    api::{Call, Failure, MailboxCall, Reply},
    machine::{Input, Machine as _, RequiredCopies, Ticket},
    peers::PeerInput,
};

use super::{
    pair::{Pair, appending, incarnation},
    remote_batches::{entry, two_accounts},
    world::{ANNE, bea, name},
};

/// A row of ANNE's cannot be read at node 1, which holds what comes for her; and what it was.
fn stalled_by_a_row(pair: &mut Pair) -> (Vec<u8>, Bytes) {
    let is_mailbox = |row: &RowKey| matches!(row, RowKey::Mailbox(_));
    let mut rows = pair.nodes[1].rows_of(is_mailbox).into_keys();
    let row = rows.find(|key| key[1..17] == ANNE.0).unwrap();
    let good = pair.nodes[1]
        .rows
        .insert(row.clone(), Bytes::from_static(&[9]));
    pair.restart(1);
    pair.settle();
    for _ in 0..3 {
        pair.append(0, "INBOX", 1);
    }
    pair.settle();
    assert_eq!((pair.stalled(), pair.held_parts()), (1, 3));
    (row, good.unwrap())
}

/// Node 1 goes on with all that came meanwhile.
#[track_caller]
fn goes_on(pair: &mut Pair) {
    assert_eq!((pair.stalled(), pair.held_parts()), (0, 0));
    let uids = pair.uids(0, "INBOX");
    assert_eq!(pair.uids(1, "INBOX"), uids);
    assert_eq!(uids.len(), 4);
    assert_eq!(pair.nodes[1].held, pair.nodes[0].held);
}

/// Frames travel and time passes. What node 1 tries of itself meanwhile, and is refused, it tries no more often than once a second; a try is so many commits.
#[track_caller]
fn tries_once_a_second(pair: &mut Pair, commits: u64) {
    let (begin, before) = (pair.now.mono_micros, pair.nodes[1].refused);
    pair.settle();
    let seconds = (pair.now.mono_micros - begin) / 1_000_000;
    let refused = (pair.nodes[1].refused - before) as u64;
    assert!(
        (1..=commits * (seconds + 1)).contains(&refused),
        "{refused} in {seconds} s"
    );
}

/// A row that cannot be read is repaired: the account goes on with all that came meanwhile.
#[test]
fn what_was_held_is_applied_when_it_can_be() {
    let mut pair = two_accounts();
    let (row, good) = stalled_by_a_row(&mut pair);
    // Its mail stays in the queue.
    let deliver = Input::Deliver {
        ticket: Ticket(7),
        entry: std::sync::Arc::new(entry()),
        index: 0,
        others: RequiredCopies::default(),
    };
    pair.input(1, deliver);
    assert_eq!(pair.nodes[1].delivered, [(Ticket(7), false)]);
    let of_bea = pair.append_for(0, bea(), "INBOX", 1);
    assert!(matches!(of_bea, Reply::Appended { .. }), "{of_bea:?}");
    pair.settle();
    assert_eq!(pair.uids_of(1, bea(), &name("INBOX")).len(), 2);
    pair.nodes[1].rows.insert(row, good);
    pair.restart(1);
    pair.settle();
    goes_on(&mut pair);
    // And it writes as before.
    pair.append(1, "INBOX", 1);
    pair.settle();
    assert_eq!(pair.uids(0, "INBOX").len(), 5);
}

/// Others are served meanwhile.
#[test]
fn what_was_held_is_applied_when_the_disk_has_room() {
    let mut pair = two_accounts();
    let (row, good) = stalled_by_a_row(&mut pair);
    pair.nodes[1].rows.insert(row, good);
    pair.nodes[1].full = true;
    pair.restart(1);
    let request = pair.ask(1, ANNE, MailboxCall::list(), 0);
    // Two for each part.
    tries_once_a_second(&mut pair, 6);
    let reply = pair.answer(1, request);
    assert!(matches!(reply, Some(Reply::Failed(_))), "{reply:?}");
    assert_eq!(pair.uids_of(1, bea(), &name("INBOX")).len(), 1);
    pair.nodes[1].full = false;
    pair.settle();
    goes_on(&mut pair);
}

/// Her rows, or what is held for her, cannot be read for a moment.
#[test]
fn a_stalled_account_is_tried_again_when_reading_has_failed() {
    for held in [false, true] {
        let mut pair = two_accounts();
        let (row, good) = stalled_by_a_row(&mut pair);
        pair.nodes[1].rows.insert(row, good);
        let mut fails = [b"a", &ANNE.0[..]].concat();
        fails.extend(held.then_some(0x90));
        pair.nodes[1].fails = Some(fails);
        pair.restart(1);
        pair.travel();
        assert_eq!((pair.stalled(), pair.held_parts()), (1, 3));
        pair.nodes[1].fails = None;
        pair.settle();
        goes_on(&mut pair);
    }
}

/// A message of node 0 lies below two that node 1 has shown: it is claimed again there, but the disk does not take that. Sessions may look on.
#[test]
fn what_is_late_is_claimed_again_when_the_disk_takes_it() {
    for watched in [false, true] {
        let mut pair = two_accounts();
        pair.unlink();
        pair.settle();
        if watched {
            pair.uids(1, "INBOX");
        }
        pair.append(1, "INBOX", 2);
        pair.append(0, "INBOX", 1);
        pair.nodes[1].refuses_own = true;
        pair.link();
        tries_once_a_second(&mut pair, 2);
        pair.nodes[1].refuses_own = false;
        // Nobody asks for it there.
        pair.settle();
        let uids = pair.uids(0, "INBOX");
        assert_eq!(uids.len(), 4);
        assert_eq!(pair.uids(1, "INBOX"), uids);
        let log = &pair.nodes[1].logs[&(pair.nodes[1].partition, incarnation(1))];
        assert_eq!(log.len(), 2, "one of what it wrote and one of the claim");
    }
}

/// A new node has all, but cannot write that down.
#[test]
fn a_new_node_tries_once_a_second_to_say_that_it_has_all() {
    let mut pair = Pair::new();
    pair.append(0, "INBOX", 1);
    pair.nodes[1].config.syncing = true;
    pair.nowhere = true;
    pair.restart(1);
    pair.settle();
    let syncing = |pair: &Pair| pair.nodes[1].owner.figures(pair.now).partitions_syncing;
    assert_eq!(syncing(&pair), 1);
    pair.nodes[1].full = true;
    pair.nowhere = false;
    let blob = pair.coming[1][0];
    pair.peer(1, PeerInput::Body(blob, u64::MAX));
    tries_once_a_second(&mut pair, 2);
    assert_eq!(syncing(&pair), 1);
    pair.nodes[1].full = false;
    pair.settle();
    assert_eq!(syncing(&pair), 0);
}

/// An account stalls at node 1 while a session looks at it there: it is not waited for from then on.
#[test]
fn who_looked_at_an_account_that_stalls_is_waited_for_no_more() {
    for stalls in [false, true] {
        let mut pair = two_accounts();
        pair.uids(1, "INBOX");
        pair.settle();
        if stalls {
            // What node 0 claims is of another slot than its own, as far as node 1 knows.
            let members = [(incarnation(0), 5), (incarnation(1), 1)];
            pair.peer(1, PeerInput::Members(members.into()));
            let request = pair.ask(0, ANNE, appending("INBOX", 1), 0);
            pair.settle();
            assert!(pair.answer(0, request).is_some());
            assert_eq!(pair.stalled(), 1);
        }
        pair.unlink();
        pair.link();
        pair.settle();
        let request = pair.ask(0, ANNE, appending("INBOX", 1), 0);
        assert_eq!(pair.answer(0, request).is_some(), stalls);
    }
}

/// What comes for others does not wait for an account whose rows are damaged.
#[test]
fn an_account_that_is_damaged_stalls_alone() {
    let mut pair = two_accounts();
    pair.nodes[1].fails = Some([b"a", &ANNE.0[..]].concat());
    pair.nodes[1].damaged = true;
    pair.restart(1);
    for account in [ANNE, bea()] {
        let reply = pair.append_for(0, account, "INBOX", 1);
        assert!(matches!(reply, Reply::Appended { .. }), "{reply:?}");
    }
    pair.settle();
    assert_eq!((pair.stalled(), pair.held_parts()), (1, 1));
    assert_eq!(pair.uids_of(1, bea(), &name("INBOX")).len(), 2);
}

/// Sessions look at an account before there is anybody who is to know of that.
#[test]
fn who_looks_at_an_account_of_a_node_that_was_alone_is_waited_for() {
    let mut pair = Pair::new();
    pair.append(0, "INBOX", 1);
    pair.settle();
    pair.unlink();
    pair.peer(1, PeerInput::Members([(incarnation(1), 1)].into()));
    pair.uids(1, "INBOX");
    let members = [(incarnation(0), 0), (incarnation(1), 1)];
    pair.peer(1, PeerInput::Members(members.into()));
    pair.link();
    pair.settle();
    let request = pair.ask(0, ANNE, appending("INBOX", 1), 0);
    assert!(pair.answer(0, request).is_none());
    pair.settle();
    assert!(pair.answer(0, request).is_some());
}

/// The clock of a node was ahead by two hours while nobody was there who knew. What it wrote waits elsewhere until it is time, and so would all that
/// follows in that log: clients were told OK for hours, and nobody else saw it.
#[test]
fn nothing_is_written_behind_what_waits_for_its_time() {
    const AHEAD_MICROS: u64 = 7_200_000_000;
    let mut pair = Pair::new();
    pair.append(0, "INBOX", 1);
    pair.settle();
    pair.unlink();
    pair.now.wall_micros += AHEAD_MICROS;
    pair.append(0, "INBOX", 1);
    pair.now.wall_micros -= AHEAD_MICROS;
    // Alone it goes on.
    pair.append(0, "INBOX", 1);
    pair.link();
    pair.settle();
    assert_eq!(pair.uids(0, "INBOX").len(), 3);
    assert_eq!(pair.uids(1, "INBOX").len(), 1);
    let reply = pair.append_for(0, ANNE, "INBOX", 1);
    assert!(matches!(reply, Reply::Failed(Failure::Clock)), "{reply:?}");
    // The other one is not held up, and is seen.
    pair.append(1, "INBOX", 1);
    pair.settle();
    // It is claimed again there, since more was shown, and waits for the other one, which cannot say that it has heard.
    pair.uids(0, "INBOX");
    pair.settle();
    assert_eq!(pair.uids(0, "INBOX").len(), 4);
    // Five minutes before it is time.
    pair.now.wall_micros += AHEAD_MICROS - 299_000_000;
    for _ in 0..4 {
        pair.settle();
    }
    assert_eq!(pair.uids(1, "INBOX").len(), 4);
    // It waits for those who have just looked at the other one.
    let call = Call::Mailbox {
        account: ANNE,
        call: appending("INBOX", 1),
        uid_validity: None,
        other_nodes: 0,
    };
    let request = pair.ask_of(0, call);
    pair.settle();
    let reply = pair.answer(0, request);
    assert!(matches!(reply, Some(Reply::Appended { .. })), "{reply:?}");
    assert_eq!(pair.uids(1, "INBOX").len(), 5);
}
