//! Members that drop the partition: who is away is not waited for, and confirms nothing.

use whimbrel_service::{
    api::{Failure, Reply},
    owner::Incarnation,
    peers::{Holders, PeerInput},
};

use super::{
    pair::{Pair, appending, incarnation},
    world::ANNE,
};

/// How a member came to stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Says {
    Leaves,
    /// Its log ended so.
    Away(u64),
    Back,
}

/// What a member has said of the account's partition.
fn said(member: Incarnation, says: Says) -> PeerInput {
    let mut holders = Holders::default();
    let partition = whimbrel_service::owner::keys::partition_of(ANNE);
    let mut say = || {
        holders.leave(member, partition)?;
        let end = match says {
            Says::Leaves => return Ok(()),
            Says::Away(end) => end,
            Says::Back => 0,
        };
        holders.left(member, partition, end)?;
        match says {
            Says::Back => holders.come(member, partition),
            _ => Ok(()),
        }
    };
    say().expect("in turn");
    PeerInput::Holders(holders)
}

/// Node 1 has written as much, and node 0 has it.
fn written(pair: &Pair) -> u64 {
    let log = pair.nodes[0].logs.iter();
    let of = log.filter(|((_, origin), _)| *origin == incarnation(1));
    of.flat_map(|(_, log)| log)
        .map(|of| of.last)
        .max()
        .unwrap_or(0)
}

/// What was removed goes when all who hold the partition have heard of it. Who is away is not waited for, if all that it wrote is here.
#[test]
fn what_is_removed_waits_for_those_who_hold_the_partition() {
    for (beyond, starts) in [(0, false), (1, false), (0, true), (1, true)] {
        let mut pair = Pair::new();
        pair.append(0, "INBOX", 2);
        pair.append(1, "INBOX", 1);
        pair.settle();
        pair.unlink();
        let content = |pair: &Pair| pair.nodes[0].held.len();
        let before = content(&pair);
        pair.remove(0, "INBOX");
        pair.pass(0, 120);
        assert_eq!(content(&pair), before, "node 1 has not heard of it");
        let end = written(&pair) + beyond;
        assert!(end > 0);
        let said = said(incarnation(1), Says::Away(end));
        if let PeerInput::Holders(holders) = &said {
            pair.nodes[0].config.holders = holders.clone();
        }
        match starts {
            true => {
                pair.restart(0);
                pair.unlink();
                let _ = pair.uids(0, "INBOX");
            }
            false => pair.peer(0, said),
        }
        pair.pass(0, 120);
        let expected = if beyond > 0 { before } else { 0 };
        assert_eq!(content(&pair), expected, "{beyond} {starts}");
    }
}

/// One that leaves takes nothing, one that is away has nothing: neither can confirm a write. One that is back can.
#[test]
fn only_who_holds_the_partition_confirms() {
    for says in [Says::Leaves, Says::Away(0), Says::Back] {
        let mut pair = Pair::new();
        pair.create(0, "a");
        pair.settle();
        pair.peer(0, said(incarnation(1), says));
        let request = pair.ask(0, ANNE, appending("a", 1), 1);
        let reply = pair.answer(0, request);
        let refused = matches!(reply, Some(Reply::Failed(Failure::TooFewNodes)));
        assert_eq!(refused, says != Says::Back, "{says:?} {reply:?}");
    }
}

/// Node 1 has readers; when it is away nobody waits for what it would claim.
#[test]
fn who_is_away_has_no_readers() {
    for is_away in [false, true] {
        let mut pair = Pair::new();
        pair.append(0, "INBOX", 1);
        pair.settle();
        let _ = pair.uids(1, "INBOX");
        pair.settle();
        if is_away {
            let end = written(&pair);
            pair.peer(0, said(incarnation(1), Says::Away(end)));
        }
        let request = pair.ask(0, ANNE, appending("INBOX", 1), 0);
        let answered = pair.answer(0, request).is_some();
        assert_eq!(answered, is_away, "its UID is shown");
    }
}
