//! Answers that wait until another node has what was written.

use std::collections::VecDeque;

use whimbrel_crdt::Incarnation;
use whimbrel_replication::waits;
use whimbrel_service::{
    api::{EntryId, Failure, Flag, FlagChange, Flags, MailboxCall, Replaced, Reply, SessionId},
    machine::{Input, Machine, MinUidValidity, RequestId},
    owner::{Config, import_upload},
    peers::{Frame, PeerInput, blobs::FEATURE_PUSH},
};

use super::{
    pair::{Pair, appending, importing},
    world::{ANNE, name},
};

/// Longer than an answer waits.
const TIMEOUT_SECONDS: u64 = 11;

/// Both know the account.
fn pair() -> Pair {
    let mut pair = Pair::new();
    pair.create(0, "a");
    pair.create(0, "b");
    pair.settle();
    pair
}

fn ask(pair: &mut Pair, call: MailboxCall) -> RequestId {
    pair.ask(0, ANNE, call, 1)
}

fn append(pair: &mut Pair, mailbox: &str) -> RequestId {
    ask(pair, appending(mailbox, 1))
}

fn copy(uids: Vec<u32>, remove: bool) -> MailboxCall {
    MailboxCall::Copy {
        session: SessionId(1),
        name: name("a"),
        uids,
        to: name("b"),
        remove,
    }
}

fn seen(uids: Vec<u32>) -> MailboxCall {
    MailboxCall::Store {
        session: SessionId(1),
        name: name("a"),
        uids,
        change: FlagChange::Add,
        flags: Flags::from_iter([Flag::Seen]),
        unchanged_since: None,
    }
}

/// What another node has moved on meanwhile is in the mailbox no more: the claim that was made for it there is told, and UIDNEXT is above that.
#[test]
fn what_was_moved_on_meanwhile_is_told_by_its_claim() {
    let mut pair = pair();
    pair.create(0, "c");
    pair.append(0, "a", 1);
    pair.settle();
    let uids = pair.uids(0, "a");
    let moved = ask(&mut pair, copy(uids.clone(), true));
    let on = MailboxCall::Copy {
        session: SessionId(1),
        name: name("a"),
        uids: uids.clone(),
        to: name("c"),
        remove: true,
    };
    assert!(matches!(pair.call(1, on), Reply::Copied { .. }));
    pair.settle();
    let Some(Reply::Copied { uids: told, .. }) = pair.answer(0, moved) else {
        panic!("no answer");
    };
    assert_eq!((told.len(), told[0].0), (1, uids[0]));
    let on = pair.uids(0, "c");
    assert_eq!(on.len(), 1, "the later one wins");
    assert_ne!(told[0].1, on[0]);
    let select = MailboxCall::Select {
        session: SessionId(2),
        name: name("b"),
        read_only: true,
    };
    let Reply::Selected(selected) = pair.call(0, select) else {
        panic!("not selected");
    };
    assert!(selected.uids.is_empty() && selected.status.uid_next > told[0].1);
}

/// UIDVALIDITY rises while an answer waits: it tells what it was made with. In the new epoch nothing is told by it, where its UIDs may be greater
/// than any that come for years.
#[test]
fn what_waited_in_an_epoch_that_is_over_says_nothing_of_the_next_one() {
    let mut pair = pair();
    pair.create(0, "c");
    pair.append(0, "a", 1);
    pair.settle();
    let uids = pair.uids(0, "a");
    let of = pair.selected(0, ANNE, &name("b")).0;
    let moved = ask(&mut pair, copy(uids.clone(), true));
    let on = MailboxCall::Copy {
        session: SessionId(1),
        name: name("a"),
        uids,
        to: name("c"),
        remove: true,
    };
    assert!(matches!(pair.call(1, on), Reply::Copied { .. }));
    let least = MinUidValidity {
        least: of + 1000,
        next: of + 1000,
    };
    pair.input(0, Input::LeastUidValidity(ANNE, least));
    pair.settle();
    let reply = pair.answer(0, moved);
    assert!(
        matches!(&reply, Some(Reply::Copied { uid_validity, uids, .. }) if *uid_validity == of && uids.len() == 1),
        "{reply:?}"
    );
    let select = MailboxCall::Select {
        session: SessionId(2),
        name: name("b"),
        read_only: true,
    };
    let Reply::Selected(selected) = pair.call(0, select) else {
        panic!("not selected");
    };
    assert!(selected.status.uid_validity > of);
    assert_eq!(selected.status.uid_next, 1, "nothing was there");
}

/// Operations in the log of node 0.
fn written(pair: &Pair) -> u64 {
    pair.nodes[0].owner.figures(pair.now).log_operations
}

#[track_caller]
fn is_refused(reply: Option<Reply>, with: Failure) {
    assert!(
        matches!(&reply, Some(Reply::Failed(failure)) if *failure == with),
        "{reply:?}"
    );
}

/// How often node 0 has asked for a body.
fn asked(pair: &Pair) -> usize {
    let asks = |frame: &&Frame| matches!(frame, Frame::BlobHave(have) if have.ask);
    pair.sent.iter().filter(asks).count()
}

/// Answers that wait; that came when others had it, that were refused at once, and too late.
fn counted(pair: &Pair) -> [u64; 4] {
    let figures = pair.nodes[0].owner.figures(pair.now);
    [
        figures.answers_confirming,
        figures.answers_confirmed,
        figures.answers_too_few,
        figures.answers_unconfirmed,
    ]
}

#[test]
fn a_write_is_answered_when_another_node_has_it() {
    let mut pair = pair();
    let request = append(&mut pair, "a");
    assert!(pair.answer(0, request).is_none(), "nobody has it yet");
    assert_eq!(counted(&pair), [1, 0, 0, 0]);
    // Others see it meanwhile.
    assert_eq!(pair.uids(0, "a").len(), 1);
    pair.travel();
    let reply = pair.answer(0, request);
    let Some(Reply::Appended { uids, .. }) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(uids, pair.uids(1, "a"));
    assert_eq!(asked(&pair), 1);
    for call in [
        copy(uids.clone(), false),
        seen(uids.clone()),
        copy(uids, true),
    ] {
        let request = ask(&mut pair, call);
        assert!(pair.answer(0, request).is_none(), "nobody has it yet");
        pair.travel();
        let reply = pair.answer(0, request);
        assert!(
            matches!(reply, Some(Reply::Copied { .. } | Reply::Stored { .. })),
            "{reply:?}"
        );
    }
    // The body of the copy, which may be older than what is waited for.
    assert_eq!(asked(&pair), 2);
    assert_eq!(counted(&pair), [0, 4, 0, 0]);
    // Nothing is written.
    let request = ask(&mut pair, seen(Vec::new()));
    assert!(matches!(
        pair.answer(0, request),
        Some(Reply::Stored { .. })
    ));
}

/// Node 0 is given what comes, but frames of one kind.
fn travel_without(pair: &mut Pair, kept: fn(&Frame) -> bool) -> VecDeque<(Incarnation, Frame)> {
    let mut aside = VecDeque::new();
    while pair.nodes.iter().any(|node| !node.inbox.is_empty()) {
        let inbox = &mut pair.nodes[0].inbox;
        let (held, rest) = inbox.drain(..).partition(|(_, frame)| kept(frame));
        *inbox = rest;
        let held: VecDeque<_> = held;
        aside.extend(held);
        pair.travel_some(1);
    }
    aside
}

/// A UID that others must be heard about first (docs/design.md#rule-5), of a message that they must have: the answer waits for both, whichever is first.
#[test]
fn an_answer_waits_for_confirmation_and_for_readers() {
    let kinds: [fn(&Frame) -> bool; 2] = [
        |frame| matches!(frame, Frame::Readers(_)),
        |frame| matches!(frame, Frame::Ack(_) | Frame::BlobHave(_)),
    ];
    for (round, kind) in kinds.into_iter().enumerate() {
        let mut pair = pair();
        let _ = pair.uids(1, "a");
        pair.settle();
        let request = append(&mut pair, "a");
        let aside = travel_without(&mut pair, kind);
        assert!(!aside.is_empty());
        let waiting = 1 - round as u64;
        assert_eq!(counted(&pair), [1 - waiting, waiting, 0, 0]);
        assert_eq!(
            pair.uids(0, "a").len(),
            round,
            "who reads elsewhere is waited for"
        );
        assert!(pair.answer(0, request).is_none(), "not both");
        pair.nodes[0].inbox = aside;
        pair.travel();
        let reply = pair.answer(0, request);
        let Some(Reply::Appended { uids, .. }) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!((pair.uids(0, "a"), pair.uids(1, "a")), (uids.clone(), uids));
        assert_eq!(counted(&pair), [0, 1, 0, 0]);
    }
}

#[test]
fn with_too_few_nodes_nothing_is_written() {
    let mut pair = pair();
    pair.append(0, "a", 1);
    let uids = pair.uids(0, "a");
    pair.unlink();
    let before = written(&pair);
    let calls = [
        appending("a", 1),
        copy(uids.clone(), false),
        copy(uids.clone(), true),
        seen(uids.clone()),
        MailboxCall::Remove {
            name: name("a"),
            uids,
        },
        MailboxCall::Delete { name: name("b") },
    ];
    for call in calls {
        let request = ask(&mut pair, call);
        is_refused(pair.answer(0, request), Failure::TooFewNodes);
    }
    assert_eq!(written(&pair), before);
    assert_eq!(counted(&pair), [0, 0, 6, 0]);
    // Reading goes on, and so does who does not wait.
    let request = ask(&mut pair, MailboxCall::list());
    assert!(matches!(
        pair.answer(0, request),
        Some(Reply::Mailboxes { .. })
    ));
    pair.append(0, "a", 1);
    // It need not have said yet where it stands.
    pair.link();
    let request = append(&mut pair, "a");
    assert!(pair.answer(0, request).is_none(), "nobody has it yet");
    pair.settle();
    assert!(matches!(
        pair.answer(0, request),
        Some(Reply::Appended { .. })
    ));
}

/// Nobody has it twice who does again what was refused.
#[test]
fn what_was_added_and_not_confirmed_is_taken_back() {
    let mut pair = pair();
    pair.append(0, "a", 1);
    pair.settle();
    let before = pair.uids(0, "a");
    let added = append(&mut pair, "a");
    let copied = ask(&mut pair, copy(before.clone(), false));
    assert_eq!((pair.uids(0, "a").len(), pair.uids(0, "b").len()), (2, 1));
    // It is found whatever it is called.
    pair.rename(0, "b", "c");
    pair.pass(0, TIMEOUT_SECONDS);
    is_refused(pair.answer(0, added), Failure::NotConfirmed);
    is_refused(pair.answer(0, copied), Failure::NotConfirmed);
    for node in 0..2 {
        assert_eq!(pair.uids(node, "a"), before);
        if node == 0 {
            pair.settle();
        }
        assert!(pair.uids(node, "c").is_empty());
    }
    assert_eq!(counted(&pair), [0, 0, 0, 2]);
    let again = append(&mut pair, "a");
    pair.travel();
    let reply = pair.answer(0, again);
    assert!(matches!(reply, Some(Reply::Appended { .. })), "{reply:?}");
    assert_eq!(pair.uids(1, "a").len(), 2);
    assert_eq!(counted(&pair), [0, 1, 0, 2]);
}

#[test]
fn what_somebody_moved_is_not_taken_back() {
    let mut pair = pair();
    let added = append(&mut pair, "a");
    let uids = pair.uids(0, "a");
    let reply = pair.call(0, copy(uids, true));
    assert!(matches!(reply, Reply::Copied { .. }), "{reply:?}");
    pair.pass(0, TIMEOUT_SECONDS);
    is_refused(pair.answer(0, added), Failure::NotConfirmed);
    assert_eq!(pair.uids(0, "b").len(), 1);
}

/// To do it again changes nothing.
#[test]
fn what_changed_something_and_is_not_confirmed_stays() {
    let mut pair = pair();
    pair.append(0, "a", 3);
    pair.settle();
    let uids = pair.uids(0, "a");
    let replaced = MailboxCall::Append {
        session: SessionId(1),
        name: name("b"),
        messages: match appending("b", 1) {
            MailboxCall::Append { messages, .. } => messages,
            _ => Vec::new(),
        },
        replaces: Some(Replaced {
            name: name("a"),
            uid: uids[2],
        }),
    };
    for call in [
        seen(uids[..1].to_vec()),
        copy(uids[1..2].to_vec(), true),
        replaced,
    ] {
        let request = ask(&mut pair, call);
        pair.pass(0, TIMEOUT_SECONDS);
        is_refused(pair.answer(0, request), Failure::DoneHere);
    }
    pair.settle();
    for node in 0..2 {
        assert_eq!(
            (pair.uids(node, "a").len(), pair.uids(node, "b").len()),
            (1, 2)
        );
        let rows = pair.call(
            node,
            MailboxCall::Rows {
                name: name("a"),
                uids: uids.clone(),
            },
        );
        let Reply::Rows(rows) = rows else {
            panic!("{rows:?}");
        };
        assert!(rows[0].flags.contains(&Flag::Seen));
    }
}

/// What a client was refused and does again is done already: it is answered when the other node has it, and not before.
#[test]
fn what_is_found_done_is_confirmed_too() {
    let mut pair = pair();
    pair.append(0, "a", 2);
    pair.settle();
    let uids = pair.uids(0, "a");
    let replace = || MailboxCall::Store {
        session: SessionId(1),
        name: name("a"),
        uids: uids[..1].to_vec(),
        change: FlagChange::Replace,
        flags: Flags::from_iter([Flag::Seen]),
        unchanged_since: None,
    };
    let first = ask(&mut pair, replace());
    pair.pass(0, TIMEOUT_SECONDS);
    is_refused(pair.answer(0, first), Failure::DoneHere);
    let again = ask(&mut pair, replace());
    assert!(pair.answer(0, again).is_none(), "nobody has it yet");
    pair.settle();
    let is_stored = |reply: Option<Reply>| matches!(reply, Some(Reply::Stored { .. }));
    assert!(is_stored(pair.answer(0, again)));
    // All is there now: nothing has to be written for this one.
    let before = written(&pair);
    let once_more = ask(&mut pair, replace());
    assert!(is_stored(pair.answer(0, once_more)));
    assert_eq!(written(&pair), before);
}

#[test]
fn a_body_that_is_not_there_is_waited_for() {
    for again in [false, true] {
        let mut pair = pair();
        pair.late = true;
        let request = append(&mut pair, "a");
        pair.settle();
        assert!(pair.answer(0, request).is_none(), "its body is not there");
        assert_eq!(asked(&pair), 1);
        let body = pair.coming[1][0];
        if again {
            // What was asked is forgotten with the stream.
            pair.unlink();
            pair.link();
            pair.settle();
            assert_eq!(asked(&pair), 2);
        }
        pair.peer(1, PeerInput::Body(body, u64::MAX));
        pair.travel();
        let reply = pair.answer(0, request);
        assert!(matches!(reply, Some(Reply::Appended { .. })), "{reply:?}");
    }
}

/// An import, too, whose message stays if nobody has it in time: what was imported and removed would never come again.
#[test]
fn the_body_of_an_import_is_waited_for() {
    for comes in [true, false] {
        let mut pair = pair();
        pair.late = true;
        let entry = EntryId([3; 16]);
        let request = ask(
            &mut pair,
            importing(entry, import_upload(entry, ANNE, &[9; 32])),
        );
        pair.settle();
        assert!(pair.answer(0, request).is_none(), "its body is not there");
        if comes {
            let body = pair.coming[1][0];
            pair.peer(1, PeerInput::Body(body, u64::MAX));
            pair.travel();
            let reply = pair.answer(0, request);
            assert!(matches!(reply, Some(Reply::Appended { .. })), "{reply:?}");
        } else {
            pair.pass(0, TIMEOUT_SECONDS);
            is_refused(pair.answer(0, request), Failure::DoneHere);
        }
        assert_eq!(pair.uids(0, "INBOX").len(), 1);
    }
}

/// The other node has written it, and would lose it with its power.
#[test]
fn a_body_counts_when_it_is_durable() {
    for early in [false, true] {
        let mut pair = pair();
        pair.late = true;
        let request = append(&mut pair, "a");
        if early {
            // It comes, and is being made durable when the question comes.
            while pair.coming[1].is_empty() {
                pair.travel_some(1);
            }
        } else {
            pair.settle();
        }
        let body = pair.coming[1][0];
        pair.nodes[1].slow = Some(VecDeque::new());
        pair.peer(1, PeerInput::Body(body, u64::MAX));
        pair.travel();
        assert!(pair.answer(0, request).is_none(), "it is not durable there");
        for ticket in pair.nodes[1].slow.take().unwrap() {
            pair.input(1, Input::Committed(ticket));
        }
        pair.travel();
        let reply = pair.answer(0, request);
        assert!(matches!(reply, Some(Reply::Appended { .. })), "{reply:?}");
    }
}

/// The disk of node 0 has no room from now on, if `scant` for what removes neither: an APPEND there is refused.
fn fill_the_disk(pair: &mut Pair, mailbox: &str, scant: bool) {
    pair.nodes[0].full = true;
    pair.nodes[0].scant = scant;
    let reply = pair.append_for(0, ANNE, mailbox, 1);
    assert!(
        matches!(reply, Reply::Failed(Failure::Storage)),
        "{reply:?}"
    );
}

/// It is not known any more whether it is confirmed: it is taken back, on a disk that is still full, and the client is told so then.
#[test]
fn a_commit_that_fails_takes_back_what_waits() {
    // Without room for what removes, too.
    for scant in [false, true] {
        let mut pair = pair();
        let request = append(&mut pair, "a");
        fill_the_disk(&mut pair, "a", scant);
        assert!(pair.answer(0, request).is_none(), "it is there");
        pair.pass(0, 2);
        is_refused(pair.answer(0, request), Failure::NotConfirmed);
        assert!(pair.uids(0, "a").is_empty());
        pair.nodes[0].full = false;
        pair.nodes[0].scant = false;
        pair.settle();
        assert!(pair.uids(1, "a").is_empty());
        assert!(pair.answer(0, request).is_none(), "there is one answer");
        let request = append(&mut pair, "a");
        pair.travel();
        assert!(matches!(
            pair.answer(0, request),
            Some(Reply::Appended { .. })
        ));
    }
}

/// What waits only for its UID is durable, and stays: so it is not refused.
#[test]
pub(crate) fn a_commit_that_fails_refuses_nothing_that_is_there() {
    let mut pair = pair();
    let _ = pair.uids(1, "a");
    pair.settle();
    let request = pair.ask(0, ANNE, appending("a", 1), 0);
    assert!(pair.answer(0, request).is_none(), "node 1 was not heard");
    fill_the_disk(&mut pair, "b", false);
    assert!(pair.answer(0, request).is_none(), "it is there");
    pair.nodes[0].full = false;
    pair.pass(0, 2);
    pair.settle();
    let reply = pair.answer(0, request);
    let Some(Reply::Appended { uids, .. }) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!((pair.uids(0, "a"), pair.uids(1, "a")), (uids.clone(), uids));
}

#[test]
fn an_account_that_is_removed_refuses_what_waits() {
    let mut pair = pair();
    let request = append(&mut pair, "a");
    pair.nodes[0].removed.insert(ANNE);
    pair.input(0, Input::Purge(ANNE));
    is_refused(pair.answer(0, request), Failure::NoSuchAccount);
    pair.settle();
    pair.pass(0, TIMEOUT_SECONDS);
    assert!(pair.answer(0, request).is_none(), "there is one answer");
}

#[test]
fn so_many_wait_at_once() {
    let mut pair = Pair::with(Config {
        waits: waits::Config {
            waiting_max: 1,
            ..waits::Config::default()
        },
        ..Config::default()
    });
    pair.create(0, "a");
    pair.settle();
    let first = append(&mut pair, "a");
    let second = append(&mut pair, "a");
    is_refused(pair.answer(0, second), Failure::Temporary);
    pair.travel();
    assert!(matches!(
        pair.answer(0, first),
        Some(Reply::Appended { .. })
    ));
    let third = append(&mut pair, "a");
    pair.travel();
    assert!(matches!(
        pair.answer(0, third),
        Some(Reply::Appended { .. })
    ));
}

/// It would not answer for bodies.
#[test]
fn an_older_node_does_not_count() {
    let mut pair = pair();
    pair.unlink();
    pair.features = FEATURE_PUSH;
    pair.link();
    pair.settle();
    let before = written(&pair);
    let request = append(&mut pair, "a");
    is_refused(pair.answer(0, request), Failure::TooFewNodes);
    assert_eq!(written(&pair), before);
    // Who does not wait is served, and it is not asked anything.
    pair.append(0, "a", 1);
    pair.settle();
    assert_eq!((pair.uids(1, "a").len(), asked(&pair)), (1, 0));
}
