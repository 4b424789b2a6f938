//! What another node did, in commits that the store takes.

use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_mailbox::{
    Append, CreateMailbox, MailboxId, Message, MessageId, NewId, OPS_VERSION, Op, Removal, RowKey,
};
use whimbrel_service::{
    api::{BlobName, Date, Delivery, Entry, EntryId, Failure, Flags, MailboxCall, Reply},
    log::{POSITION_KEY, Position},
    machine::{Input, MinUidValidity, RequiredCopies, Ticket},
    owner::Config,
    peers::{Frame, PeerInput},
};

use super::{
    pair::Pair,
    world::{ANNE, bea, name},
};

pub(crate) fn entry() -> Entry {
    let delivery = Delivery {
        account: ANNE,
        target: name("INBOX"),
        content: Bytes::new(),
        size: 1,
        open_end: false,
        sent: false,
    };
    Entry {
        id: EntryId([5; 16]),
        sender: String::new(),
        deliveries: vec![delivery],
        blob: BlobName {
            hash: [8; 32],
            upload: [8; 16],
        },
        date: Date {
            seconds: 1,
            zone_minutes: 0,
        },
    }
}

pub(crate) fn create(mailbox: &str) -> Vec<u8> {
    Op::encode_all(&[Op::CreateMailbox(CreateMailbox {
        id: NewId::Fresh,
        name: name(mailbox),
        special_use: None,
    })])
}

/// Two accounts with a message each, known at both nodes.
pub(crate) fn two_accounts() -> Pair {
    let mut pair = Pair::new();
    for account in [ANNE, bea()] {
        let reply = pair.append_for(0, account, "INBOX", 1);
        assert!(matches!(reply, Reply::Appended { .. }), "{reply:?}");
    }
    pair.settle();
    assert_eq!(pair.uids(1, "INBOX").len(), 1);
    pair
}

/// Node 1 does not serve ANNE and holds so many parts of batches for her; the other account is served, and gets what comes.
#[track_caller]
fn only_anne_is_stalled(pair: &mut Pair, held: usize) {
    let reply = pair.call(1, MailboxCall::list());
    assert!(
        matches!(reply, Reply::Failed(Failure::Temporary)),
        "{reply:?}"
    );
    assert_eq!((pair.stalled(), pair.held_parts()), (1, held));
    let told = |text: &String| text.contains(&format!("account {ANNE} is stalled"));
    assert_eq!(
        pair.nodes[1]
            .warnings
            .iter()
            .filter(|text| told(text))
            .count(),
        1
    );
    pair.nodes[1].warnings.clear();
    let reply = pair.try_call(1, bea(), MailboxCall::list());
    let Some(Reply::Mailboxes {
        names: mailboxes, ..
    }) = reply
    else {
        panic!("{reply:?}");
    };
    assert!(mailboxes.iter().any(|mailbox| mailbox.name == name("new")));
}

/// When it was looked for, another one held the body, which may have let go before the batch that names it was durable.
#[test]
fn a_body_that_was_here_before_its_batch_was_is_looked_for_again() {
    for (looked, wanted) in [(0, 1), (u64::MAX, 0)] {
        let mut pair = Pair::new();
        pair.late = true;
        pair.append(0, "INBOX", 1);
        pair.settle();
        assert!(pair.uids(1, "INBOX").is_empty(), "its body is not here");
        let blob = pair.coming[1][0];
        pair.wanted[1].clear();
        pair.peer(1, PeerInput::Body(blob, looked));
        pair.settle();
        assert_eq!(pair.wanted[1].len(), wanted);
        assert_eq!(pair.uids(1, "INBOX").len(), 1);
        // Said once more, it changes nothing.
        pair.peer(1, PeerInput::Body(blob, looked));
        pair.settle();
        assert_eq!(pair.wanted[1].len(), wanted);
    }
}

/// Node 1 has told a UIDNEXT of the new name that is above all of the messages: they go from view there, and come again under new UIDs.
#[test]
fn a_foreign_rename_of_many_messages_is_no_great_commit() {
    const MESSAGES: usize = 5_000;
    let mut pair = Pair::new();
    pair.create(0, "old");
    for _ in 0..MESSAGES / 1000 {
        pair.append(0, "old", 1000);
    }
    pair.settle();
    pair.unlink();
    pair.create(1, "new");
    pair.append(1, "new", 1);
    let told = pair.uids(1, "new");
    pair.rename(0, "old", "new");
    pair.nodes[1].largest_foreign = 0;
    pair.link();
    pair.settle();
    // However many they are: their rows alone would be a megabyte.
    let bytes = pair.nodes[1].largest_foreign;
    assert!((1..4096).contains(&bytes), "{bytes} bytes");
    let uids = pair.uids(1, "new");
    assert_eq!(uids.len(), MESSAGES + 1);
    assert!(uids.iter().all(|uid| *uid >= told[0]));
    assert_eq!(pair.uids(0, "new"), uids);
    pair.restart(1);
    pair.settle();
    assert_eq!(pair.uids(1, "new"), uids);
    let rows = pair.nodes[1].rows_of(|row| matches!(row, RowKey::Message(_)));
    assert_eq!(rows.len(), MESSAGES + 1);
}

/// An op of an unknown kind is stored and stalls its account (docs/design.md#batches).
#[test]
fn an_unknown_operation_stalls_its_account_and_nothing_else() {
    let mut pair = two_accounts();
    // An operation of a later version: an array that begins with its kind.
    pair.forge(ANNE, vec![0x82, OPS_VERSION as u8, 0x81, 0x18, 200]);
    pair.forge(ANNE, create("behind"));
    pair.forge(bea(), create("new"));
    only_anne_is_stalled(&mut pair, 2);
    pair.restart(1);
    pair.settle();
    only_anne_is_stalled(&mut pair, 2);
}

/// It hears late that others remember more of it than its disk does: it would give their numbers again.
#[test]
fn who_is_told_of_own_operations_that_its_disk_does_not_have_ends() {
    let mut pair = two_accounts();
    pair.forge(ANNE, create("made in a time that was lost"));
    let ended = |pair: &Pair| pair.nodes[0].warnings.len();
    assert_eq!(ended(&pair), 0);
    pair.restart(1);
    pair.settle();
    assert!(ended(&pair) > 0);
}

/// A UID of a slot that is another's could be given twice.
#[test]
fn an_operation_of_another_slot_stalls_its_account_and_nothing_else() {
    let mut pair = two_accounts();
    let append = |slot: u32| {
        let entry = entry();
        let append = Append {
            mailbox: MailboxId::inbox(),
            // Above all that were given.
            uid: 60_000_000 * 64 + slot,
            flags: Flags::none(),
            message: Message {
                blob: entry.blob,
                size: 1,
                date: entry.date,
                open_end: false,
            },
            content: Vec::new(),
            epoch: 0,
        };
        Op::encode_all(&[Op::Append(append)])
    };
    // Node 0 has slot 0.
    pair.forge(bea(), append(0));
    pair.forge(ANNE, append(5));
    pair.forge(bea(), create("new"));
    only_anne_is_stalled(&mut pair, 1);
    pair.restart(1);
    pair.settle();
    only_anne_is_stalled(&mut pair, 1);
}

#[test]
fn an_operation_that_cannot_be_applied_stalls_its_account_and_nothing_else() {
    let mut pair = two_accounts();
    let nobodys = Removal {
        message: MessageId([7; 16]),
        dots: Vec::new(),
    };
    let messages = vec![nobodys];
    pair.forge(ANNE, Op::encode_all(&[Op::Expunge { messages }]));
    pair.forge(bea(), create("new"));
    only_anne_is_stalled(&mut pair, 1);
    pair.restart(1);
    pair.settle();
    only_anne_is_stalled(&mut pair, 1);
}

/// The queue has mail for an account sooner than the directory has heard of it: it is not thrown away. That of one that was removed is.
#[test]
fn mail_waits_for_the_news_of_its_account() {
    let mut pair = Pair::new();
    pair.nodes[1].unknown.insert(ANNE);
    let deliver = |pair: &mut Pair, ticket| {
        let deliver = Input::Deliver {
            ticket: Ticket(ticket),
            entry: std::sync::Arc::new(entry()),
            index: 0,
            others: RequiredCopies::default(),
        };
        pair.input(1, deliver);
        pair.settle();
        std::mem::take(&mut pair.nodes[1].delivered)
    };
    assert_eq!(deliver(&mut pair, 7), [(Ticket(7), false)]);
    pair.nodes[1].unknown.clear();
    assert_eq!(deliver(&mut pair, 8), [(Ticket(8), true)]);
    assert_eq!(pair.uids(1, "INBOX").len(), 1);
    let mut pair = Pair::new();
    pair.nodes[1].removed.insert(ANNE);
    assert_eq!(deliver(&mut pair, 9), [(Ticket(9), true)]);
}

/// A node knows from the directory that UIDVALIDITY has risen, and has not got the epoch: it opens the account in that epoch. Otherwise what it shows
/// would be claimed anew when it comes, under the same UIDVALIDITY.
#[test]
fn an_account_that_is_opened_after_an_epoch_is_in_it() {
    let mut pair = Pair::new();
    pair.append(0, "INBOX", 2);
    let least = MinUidValidity {
        least: 1_900_000_000,
        next: 1_900_000_000,
    };
    pair.input(0, Input::LeastUidValidity(ANNE, least));
    let risen = pair.nodes[0].risen;
    assert!(risen >= 1_900_000_000);
    pair.nodes[1].risen = risen;
    pair.append(1, "INBOX", 5);
    let before = pair.selected(1, ANNE, &name("INBOX"));
    assert_eq!(before.0, risen);
    pair.link();
    pair.settle();
    let after = pair.selected(1, ANNE, &name("INBOX"));
    assert_eq!((after.0, after.1.len()), (risen, 7));
    assert!(
        before.1.iter().all(|uid| after.1.contains(uid)),
        "{before:?}, {after:?}"
    );
}

/// Two nodes are asked to raise it, one after the other: it rises once.
#[test]
fn what_another_node_has_raised_is_not_raised_again() {
    let mut pair = Pair::new();
    pair.append(0, "INBOX", 1);
    pair.link();
    pair.settle();
    let least = |node: u32| MinUidValidity {
        least: 1_900_000_000,
        next: 1_900_000_000 + node,
    };
    pair.input(0, Input::LeastUidValidity(ANNE, least(0)));
    pair.settle();
    let risen = pair.selected(0, ANNE, &name("INBOX")).0;
    assert!(risen >= 1_900_000_000);
    // The directory there had not heard of it, and does now.
    pair.nodes[1].risen = 0;
    pair.input(1, Input::LeastUidValidity(ANNE, least(1000)));
    assert_eq!(pair.nodes[1].risen, risen);
    pair.settle();
    for node in 0..2 {
        assert_eq!(pair.selected(node, ANNE, &name("INBOX")).0, risen, "{node}");
    }
}

/// LIST RETURN (STATUS) of many mailboxes that others have filled: what is told of all of them is on disk by one commit, and the answer waits for that only.
#[test]
fn figures_of_many_mailboxes_wait_for_one_commit() {
    let mut pair = Pair::new();
    let names: Vec<_> = (0..5).map(|n| format!("m{n}")).collect();
    for mailbox in &names {
        pair.create(1, mailbox);
        pair.append(1, mailbox, 2);
    }
    pair.settle();
    let mut names: Vec<_> = names.iter().map(|of| name(of)).collect();
    names.insert(2, name("nowhere"));
    pair.nodes[0].slow = Some(VecDeque::new());
    let statuses = MailboxCall::Statuses {
        names: names.clone(),
    };
    let request = pair.ask(0, ANNE, statuses, 0);
    assert!(pair.answer(0, request).is_none(), "it is not on disk");
    let commits = pair.nodes[0].slow.take().unwrap();
    assert_eq!(commits.len(), 1);
    for ticket in commits {
        pair.input(0, Input::Committed(ticket));
    }
    let reply = pair.answer(0, request);
    let Some(Reply::Statuses(figures)) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(figures.len(), names.len());
    for (name, of) in names.into_iter().zip(figures) {
        match pair.call(0, MailboxCall::Status { name }) {
            Reply::Status(status) => assert_eq!((status.messages, Ok(status)), (2, of)),
            Reply::Failed(failure) => assert_eq!(of, Err(failure)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn mail_that_is_removed_elsewhere_makes_room_on_a_full_disk() {
    let mut pair = two_accounts();
    pair.nodes[1].full = true;
    pair.remove(0, "INBOX");
    pair.settle();
    assert_eq!(pair.uids(1, "INBOX"), []);
    assert_eq!(pair.unlinked, 0);
}

/// No stream ends; both sides say all again on the one that is there. Each try costs one small batch and a second, and when there is room all comes.
#[test]
fn what_a_full_disk_refuses_comes_again_on_the_same_stream() {
    let mut pair = two_accounts();
    pair.unlink();
    // Until nobody waits for the other's readers.
    pair.settle();
    for _ in 0..30 {
        pair.append(0, "INBOX", 1);
    }
    pair.link();
    pair.nodes[1].full = true;
    pair.travel_some(2);
    pair.sent.clear();
    let begin = pair.now.mono_micros;
    pair.settle();
    let begun = |of: &Frame| matches!(of, Frame::Readers(told) if told.anew == Some(true));
    assert!(pair.sent.iter().any(begun), "who reads is told again");
    let announced = |of: &Frame| matches!(of, Frame::Announced(_));
    assert!(pair.sent.iter().any(announced));
    pair.settle();
    let seconds = (pair.now.mono_micros - begin) / 1_000_000;
    let refused = pair.nodes[1].refused as u64;
    // Those that were on their way when the first was refused, and then one for each try.
    assert!(
        (32..=30 + seconds + 1).contains(&refused),
        "{refused} in {seconds} s"
    );
    // While it waits for the next try nothing is sent to it, then one batch.
    pair.sent.clear();
    let (before, begin) = (refused, pair.now.mono_micros);
    pair.settle();
    let tries = pair.nodes[1].refused as u64 - before;
    assert!(tries > 0 && pair.now.mono_micros > begin);
    let sent = pair.sent.iter().map(|of| match of {
        Frame::Batches(batches) => batches.batches.len() as u64,
        _ => 0,
    });
    assert!(sent.sum::<u64>() <= tries + 1, "{tries} tries");
    // Reads go on.
    assert_eq!(pair.uids(1, "INBOX").len(), 1);
    pair.nodes[1].full = false;
    pair.settle();
    assert_eq!(pair.uids(1, "INBOX"), pair.uids(0, "INBOX"));
    assert_eq!(pair.uids(1, "INBOX").len(), 31);
    assert_eq!(pair.unlinked, 0);
}

/// It would say nothing again.
#[test]
fn a_stream_to_an_older_program_is_made_anew() {
    let mut pair = two_accounts();
    pair.unlink();
    pair.old = true;
    pair.settle();
    pair.append(0, "INBOX", 1);
    pair.nodes[1].full = true;
    pair.link();
    pair.travel();
    assert!(pair.unlinked > 0);
    pair.nodes[1].full = false;
    pair.unlink();
    pair.link();
    pair.settle();
    assert_eq!(pair.uids(1, "INBOX"), pair.uids(0, "INBOX"));
}

/// What was stable may be collected: a state from before its removal would bring it back, after a crash, too.
#[test]
fn what_was_collected_is_known_after_a_start() {
    let mut pair = Pair::with(Config {
        collect_after_seconds: 1,
        ..Config::default()
    });
    pair.append(0, "INBOX", 1);
    pair.settle();
    pair.remove(0, "INBOX");
    pair.input(
        1,
        Input::Swept {
            began: u64::MAX,
            least: None,
        },
    );
    let is_message = |row: &RowKey| matches!(row, RowKey::Message(_));
    let position =
        |pair: &Pair| -> Position { minicbor::decode(&pair.nodes[1].rows[POSITION_KEY]).unwrap() };
    pair.travel();
    assert_eq!(position(&pair).collected, None);
    // Vectors are told now and then.
    for _ in 0..40 {
        pair.settle();
        pair.now.mono_micros += 1_000_000;
        pair.now.wall_micros += 1_000_000;
        pair.input(1, Input::Time);
    }
    assert_eq!(pair.nodes[1].rows_of(is_message).len(), 0);
    let known = position(&pair);
    assert_eq!(known.collected, Some(known.applied));
}

/// Asked for it would be here two ways later.
#[test]
fn a_body_goes_behind_its_batch_and_is_expected_so() {
    let mut pair = Pair::new();
    pair.append(0, "INBOX", 2);
    pair.settle();
    // One body, which both name.
    assert_eq!(pair.pushed[0], [pair.coming[1][0]; 2]);
    assert_eq!((pair.pushed[1].len(), pair.coming[0].len()), (0, 0));
    // What is read from the log for who was away, too.
    let before = pair.pushed[0].len();
    pair.unlink();
    pair.append(0, "INBOX", 1);
    assert_eq!(pair.pushed[0].len(), before);
    pair.link();
    pair.settle();
    assert!(pair.pushed[0].len() > before);
    assert_eq!(pair.coming[1], [pair.pushed[0][before]; 2]);
}
