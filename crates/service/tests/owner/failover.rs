//! A client that comes from another node (docs/design.md#rule-6): what it may not have been shown there is claimed again, and nothing else.

use whimbrel_crdt::VersionVector;
use whimbrel_replication::wire::{Announced, Hello, Room};
use whimbrel_service::{
    api::{Failure, Flag, FlagChange, Flags, MailboxCall, Reply, SessionId},
    machine::{Input, Machine},
    peers::{Frame, PeerInput, blobs::FEATURE_CONFIRM},
};

use super::{
    pair::{Pair, incarnation},
    world::{ANNE, name},
};

/// What a client knows: UIDNEXT of INBOX, and HIGHESTMODSEQ.
#[derive(Clone, Copy)]
pub(crate) struct SessionView {
    pub(crate) uid_next: u32,
    pub(crate) modseq: u64,
}

pub(crate) fn look(pair: &mut Pair, node: usize) -> SessionView {
    let select = MailboxCall::Select {
        session: SessionId(3),
        name: name("INBOX"),
        read_only: false,
    };
    match pair.call(node, select) {
        Reply::Selected(selected) => SessionView {
            uid_next: selected.status.uid_next,
            modseq: selected.status.highest_modseq,
        },
        other => panic!("{other:?}"),
    }
}

/// A client says what it knows; whether that is from elsewhere.
pub(crate) fn names(pair: &mut Pair, node: usize, number: u32, modseq: Option<u64>) -> bool {
    let call = MailboxCall::Named {
        name: name("INBOX"),
        uid_validity: 7,
        numbers: vec![number],
        told: None,
        modseq,
    };
    let reply = pair.call(node, call);
    match reply {
        Reply::Named { elsewhere } => elsewhere,
        other => panic!("{other:?}"),
    }
}

/// Takeovers at node 1, the claims that they made, and how many were refused.
pub(crate) fn taken_over(pair: &Pair) -> (u64, u64, u64) {
    let figures = pair.nodes[1].owner.figures(pair.now);
    (
        figures.takeovers,
        figures.takeover_uids,
        figures.takeovers_refused,
    )
}

/// Both nodes have made mail, and know what the other has shown.
fn two_with_mail() -> Pair {
    let mut pair = Pair::new();
    for _ in 0..6 {
        pair.append(0, "INBOX", 3);
        pair.settle();
        pair.append(1, "INBOX", 2);
        pair.settle();
    }
    pair
}

#[test]
fn who_comes_from_a_node_that_died_with_nothing_of_its_own_keeps_every_uid() {
    for (looked, starts) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut pair = two_with_mail();
        let knows = look(&mut pair, 0);
        let before = pair.uids(0, "INBOX");
        pair.unlink();
        // Whatever comes now lies above what node 0 told.
        pair.append(1, "INBOX", 1);
        if starts {
            // What node 0 said last is known to who has not heard it since its start.
            pair.restart(1);
            pair.unlink();
        }
        if looked {
            pair.uids(1, "INBOX");
        }
        names(&mut pair, 1, knows.uid_next, None);
        names(&mut pair, 1, knows.uid_next, Some(knows.modseq));
        assert_eq!(taken_over(&pair), (0, 0, 0));
        let after = pair.uids(1, "INBOX");
        assert_eq!(after[..before.len()], before);
        assert_eq!(after.len(), before.len() + 1);
        assert!(after[before.len()] >= knows.uid_next);
    }
}

#[test]
fn what_the_dead_node_did_not_know_is_claimed_again() {
    for looked in [false, true] {
        let mut pair = two_with_mail();
        let known = pair.uids(0, "INBOX");
        pair.unlink();
        pair.append(1, "INBOX", 1);
        // The tail that goes with node 0: the client has been told of it.
        pair.append(0, "INBOX", 4);
        let knows = look(&mut pair, 0);
        if looked {
            // Somebody else is told of it here.
            pair.uids(1, "INBOX");
        }
        // With a MODSEQ it is known where it was, whatever was told here; else by what it names.
        names(&mut pair, 1, knows.uid_next, looked.then_some(knows.modseq));
        assert_eq!(taken_over(&pair), (1, 1, 0), "{looked}");
        let after = pair.uids(1, "INBOX");
        assert_eq!(after[..known.len()], known, "no other UID has changed");
        assert_eq!(after.len(), known.len() + 1);
        assert!(after[known.len()] >= knows.uid_next);
        // Once is enough.
        names(&mut pair, 1, knows.uid_next, looked.then_some(knows.modseq));
        assert_eq!(taken_over(&pair), (1, 1, 0));
        pair.append(1, "INBOX", 1);
        assert!(pair.uids(1, "INBOX")[known.len() + 1] >= knows.uid_next);
        // The node was not dead: both show the same, and nothing twice.
        pair.link();
        pair.settle();
        let (left, right) = (pair.uids(0, "INBOX"), pair.uids(1, "INBOX"));
        assert_eq!(left, right);
        assert_eq!(left.len(), known.len() + 6);
    }
}

/// A client that was here last has put a message into the mailbox at a node that is cut off, and names its UID beside the MODSEQ that it has from here.
#[test]
fn what_was_put_elsewhere_meanwhile_is_no_uid_of_here() {
    let mut pair = two_with_mail();
    let knows = look(&mut pair, 1);
    assert!(!names(&mut pair, 1, knows.uid_next - 1, Some(knows.modseq)));
    pair.unlink();
    pair.append(0, "INBOX", 40);
    let put = look(&mut pair, 0).uid_next - 1;
    assert!(names(&mut pair, 1, put, Some(knows.modseq)));
    pair.append(1, "INBOX", 1);
    let last = *pair.uids(1, "INBOX").last().expect("mail");
    assert!(last > put, "{last} is not above {put}");
}

/// It has left something of which nobody else knows: its slot is no member's any more, and the client names a UID of it.
#[test]
fn who_was_at_a_node_whose_logs_are_closed_overlooks_nothing() {
    for (with_modseq, starts) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut pair = two_with_mail();
        let known = pair.uids(0, "INBOX");
        pair.unlink();
        pair.append(1, "INBOX", 1);
        pair.append(0, "INBOX", 4);
        let knows = look(&mut pair, 0);
        pair.close();
        pair.append(1, "INBOX", 1);
        if starts {
            pair.restart(1);
            pair.unlink();
        }
        let modseq = with_modseq.then_some(knows.modseq);
        names(&mut pair, 1, knows.uid_next, modseq);
        assert_eq!(taken_over(&pair), (1, 2, 0), "{with_modseq} {starts}");
        let after = pair.uids(1, "INBOX");
        assert_eq!(after[..known.len()], known, "no other UID has changed");
        let new = &after[known.len()..];
        assert!(new.len() == 2 && new.iter().all(|uid| *uid >= knows.uid_next));
        // What comes later is above, and nothing is claimed again for the next of them.
        pair.append(1, "INBOX", 1);
        names(&mut pair, 1, knows.uid_next, modseq);
        assert_eq!(taken_over(&pair), (1, 2, 0));
    }
}

/// Who is new has the logs of a node that is gone from others, and is told by them what it had shown: what its clients name costs no claim of what it made.
#[test]
fn who_was_at_a_node_that_is_gone_keeps_every_uid_at_a_new_one() {
    for hidden_ops in [0, 1] {
        let mut pair = Pair::new();
        pair.unlink();
        for _ in 0..5 {
            pair.append(0, "INBOX", 1);
        }
        let knows = look(&mut pair, 0);
        let uids = pair.uids(0, "INBOX");
        pair.bring(hidden_ops);
        assert_eq!(pair.uids(1, "INBOX"), uids);
        names(&mut pair, 1, knows.uid_next, Some(knows.modseq));
        let (_, made, refused) = taken_over(&pair);
        assert_eq!((made, refused), (hidden_ops, 0));
    }
}

/// A client that was at no node which is gone names a UID that is known, or a UIDNEXT behind one: what that node had not shown is no concern of it.
#[test]
fn a_node_that_is_gone_counts_for_those_alone_who_were_there() {
    let mut pair = two_with_mail();
    pair.unlink();
    pair.append(1, "INBOX", 1);
    pair.close();
    let last = *pair.uids(1, "INBOX").last().expect("mail");
    names(&mut pair, 1, last, None);
    names(&mut pair, 1, last + 1, None);
    assert_eq!(taken_over(&pair), (0, 0, 0));
}

/// A member that has said nothing, because it runs an older program, may have shown nothing.
#[test]
fn of_a_silent_member_nothing_is_believed() {
    let mut pair = Pair::new();
    pair.silent = true;
    pair.append(1, "INBOX", 3);
    pair.settle();
    let knows = look(&mut pair, 0);
    pair.unlink();
    names(&mut pair, 1, knows.uid_next, Some(knows.modseq));
    assert_eq!(taken_over(&pair), (1, 3, 0));
    assert!(pair.uids(1, "INBOX")[0] >= knows.uid_next);
}

/// A member that is new serves nobody yet, and has shown nothing: the whole mailbox had other UIDs at each move between the others while it took its state.
#[test]
fn a_new_member_does_not_count_for_who_moves_between_the_others() {
    for syncing in [true, false] {
        let mut pair = two_with_mail();
        let third = incarnation(2);
        pair.nodes[1].config.peers.insert(third, 5);
        pair.restart(1);
        pair.settle();
        pair.peer(1, PeerInput::Linked(third, FEATURE_CONFIRM));
        let hello = Hello {
            partition: pair.nodes[1].partition,
            durable: VersionVector::default(),
            applied: VersionVector::default(),
            heads: Vec::new(),
            room: Room {
                bytes: 1 << 20,
                batches: 64,
            },
            yours: None,
            anew: Some(false),
            syncing: syncing.then_some(true),
            lives: None,
        };
        pair.peer(1, PeerInput::Frame(third, Frame::Hello(hello)));
        pair.settle();
        let known = pair.uids(1, "INBOX");
        pair.unlink();
        pair.append(0, "INBOX", 4);
        let knows = look(&mut pair, 0);
        names(&mut pair, 1, knows.uid_next, None);
        let claims = if syncing { 0 } else { known.len() as u64 };
        assert_eq!(taken_over(&pair), (1, claims, 0));
        assert_eq!(pair.uids(1, "INBOX") == known, syncing);
    }
}

#[test]
fn what_no_node_can_have_told_changes_nothing() {
    let mut pair = two_with_mail();
    let before = pair.uids(1, "INBOX");
    let next = before.last().expect("mail") + 1;
    let (counter, slot_of_nobody) = (next / 64, 40);
    for nonsense in [
        u32::MAX,
        (counter + (1 << 21)) * 64,
        (counter + 5) * 64 + slot_of_nobody,
        // Ours, and beyond what we gave.
        (counter + 5) * 64 + 2,
        0,
    ] {
        names(&mut pair, 1, nonsense, None);
    }
    for nonsense in [u32::MAX, (counter + (1 << 21)) * 64, 0] {
        names(&mut pair, 1, nonsense, Some(64 * 5));
    }
    assert_eq!(taken_over(&pair), (0, 0, 0));
    assert_eq!(pair.uids(1, "INBOX"), before);
    pair.append(1, "INBOX", 1);
    assert!(*pair.uids(1, "INBOX").last().expect("mail") < next + 64 * 100);
}

/// A UIDNEXT need not be one more than a UID of anybody: another node may have told one that it drew ahead, or knows of slots that are not known here.
#[test]
fn who_comes_from_another_member_is_believed_whatever_slot_it_names() {
    for slot in [40, 2] {
        let mut pair = two_with_mail();
        let next = pair.uids(1, "INBOX").last().expect("mail") + 1;
        let named = (next / 64 + 5) * 64 + slot;
        names(&mut pair, 1, named, Some(64 * 5));
        pair.append(1, "INBOX", 1);
        assert!(*pair.uids(1, "INBOX").last().expect("mail") > named);
    }
}

#[test]
fn a_client_cannot_raise_uids_again_and_again() {
    let mut pair = two_with_mail();
    for _ in 0..10 {
        let next = pair.uids(1, "INBOX").last().expect("mail") / 64;
        // A million ahead, in the slot of node 0.
        names(&mut pair, 1, (next + 1_000_000) * 64, None);
        pair.append(1, "INBOX", 1);
    }
    let (takeovers, _, refused) = taken_over(&pair);
    assert_eq!((takeovers, refused), (1, 9));
    // It comes back with time.
    pair.now.mono_micros += 2 * 86_400 * 1_000_000;
    let next = pair.uids(1, "INBOX").last().expect("mail") / 64;
    names(&mut pair, 1, (next + 1_000_000) * 64, None);
    assert_eq!(taken_over(&pair).0, 2);
}

/// SEARCH MODSEQ: what another node told, or is one more than what it told, says nothing of what was told here.
#[test]
fn conditions_believe_what_was_told_here() {
    let mut pair = two_with_mail();
    let before = look(&mut pair, 0).modseq;
    // Shown there, and not here yet.
    pair.append(1, "INBOX", 3);
    let told = [before, look(&mut pair, 1).modseq];
    assert_eq!(told.map(|modseq| modseq % 64), [0, 1]);
    let believed = |pair: &mut Pair, modseq: u64| {
        let call = MailboxCall::Believed {
            modseqs: vec![modseq],
        };
        match pair.call(0, call) {
            Reply::Believed(modseqs) => !modseqs.is_empty(),
            other => panic!("{other:?}"),
        }
    };
    for (modseq, expected) in [
        (0, true),
        (1, true),
        // The slots are neighbours: one more than what the first told may be of the second.
        (told[0], true),
        (told[0] + 1, false),
        (told[1], false),
        (told[1] + 1, false),
        // Of nobody: neither of the slots 0 and 1, nor one more.
        (told[0] + 9, true),
        // One of a time before anything was told here.
        (64_001, false),
        // One of a time that nobody can have told.
        (1 << 62, true),
    ] {
        assert_eq!(believed(&mut pair, modseq), expected, "{modseq}, {told:?}");
    }
}

/// The UIDs of a call are of the UIDVALIDITY that it names, or the call does nothing.
#[test]
fn uids_of_another_uidvalidity_mean_nothing() {
    let mut pair = two_with_mail();
    let uids = pair.uids(0, "INBOX");
    let session = SessionId(9);
    let calls = || {
        let name = name("INBOX");
        let (store, rows) = (uids.clone(), uids.clone());
        [
            MailboxCall::Store {
                session,
                name: name.clone(),
                uids: store,
                change: FlagChange::Add,
                flags: Flags::from_iter([Flag::Seen]),
                unchanged_since: None,
            },
            MailboxCall::Rows { name, uids: rows },
        ]
    };
    for (told, refused) in [(6, true), (8, true), (7, false)] {
        for call in calls() {
            let reply = pair.call_under(0, call, told);
            let gone = matches!(reply, Reply::Failed(Failure::Gone));
            assert_eq!(gone, refused, "{told}: {reply:?}");
        }
    }
}

/// What node 0 has said last of what it has shown.
fn said(pair: &Pair) -> Option<Announced> {
    let of = pair.sent.iter().rev();
    let mut of = of.filter_map(|frame| match frame {
        Frame::Announced(said) => Some(said.clone()),
        _ => None,
    });
    of.next()
}

/// A message without its body is not shown: its account is excepted until the body is here.
#[test]
pub(crate) fn what_is_hidden_is_not_said_to_be_shown() {
    let mut pair = Pair::new();
    pair.append(1, "INBOX", 1);
    pair.settle();
    let except = |pair: &Pair| said(pair).map(|said| said.except);
    assert_eq!(except(&pair), Some(Vec::new()));
    pair.nowhere = true;
    pair.append(1, "INBOX", 1);
    pair.settle();
    assert_eq!(except(&pair), Some(vec![ANNE.0]));
    let blob = pair.coming[0].last().copied().expect("a body");
    let now = pair.now.mono_micros;
    pair.peer(0, PeerInput::Body(blob, now));
    pair.settle();
    assert_eq!(except(&pair), Some(Vec::new()));
}

/// What is shown and not durable may be gone after a crash.
#[test]
pub(crate) fn what_is_not_durable_is_not_said_to_be_shown() {
    let mut pair = Pair::new();
    pair.append(1, "INBOX", 1);
    pair.settle();
    let of_other = |pair: &Pair| said(pair).map(|said| said.vector.get(incarnation(1)));
    let before = of_other(&pair);
    assert!(before.is_some());
    pair.nodes[0].slow = Some([].into());
    pair.append(1, "INBOX", 1);
    pair.settle();
    assert_eq!(of_other(&pair), before);
    for ticket in pair.nodes[0].slow.take().unwrap_or_default() {
        pair.input(0, Input::Committed(ticket));
    }
    pair.settle();
    assert!(of_other(&pair) > before);
}
