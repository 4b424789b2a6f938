//! Copies that leave, and the end of a tuple (2.2 of the specification: rules B, D, E).

use whimbrel_queue::{Delete, Deleted, Frame, Id, Input, Know, Knowledge, Nodes, Version};

use super::Play;
use crate::world::{Message, SECOND, node};

/// Owners 0 and 1, of which 1 was late: it has its copy, and is to leave. The word is on its way to it.
fn one_is_to_leave() -> (Play, Id) {
    let mut play = Play::new(4, 1);
    play.lag.insert((1, 0));
    let id = play.world.put(0, true);
    play.flow();
    play.lag.insert((0, 1));
    play.run(SECOND / 2);
    assert_eq!(play.owners(0, id), [0, 2]);
    assert!(play.holds(1, id));
    assert!(play.channel(0, 1).any(is_leave));
    (play, id)
}

fn is_leave(message: &Message) -> bool {
    match message {
        Message::Frame(Frame::Delete(list)) => !list[0].finished,
        _ => false,
    }
}

/// Node 3 has asked meanwhile, which node 0 does not know: it may hold a copy.
pub fn a_copy_stays_while_the_acting_owner_does_not_name_all() {
    let (mut play, id) = one_is_to_leave();
    let ids = vec![id];
    play.hears(1, 3, Frame::Ask { round: 1, ids });
    play.flow();
    play.arrive(0, 1);
    assert!(play.holds(1, id));
    play.lag.clear();
    play.run(SECOND);
    assert!(!play.holds(1, id));
    assert_eq!(play.end(), [1]);
}

/// Node 1 was down for long, and is back before node 2 has its copy.
pub fn a_copy_stays_until_all_owners_have_theirs() {
    let mut play = Play::new(3, 1);
    let id = play.put(0);
    play.world.crash(1);
    play.lag.insert((0, 2));
    play.run(12 * SECOND);
    assert_eq!(play.owners(0, id), [0, 2]);
    assert!(!play.holds(2, id));
    play.world.start(1);
    play.world.link_all();
    play.run(SECOND);
    assert!(play.holds(1, id));
    play.lag.clear();
    play.run(SECOND);
    assert!(play.holds(2, id) && !play.holds(1, id));
    assert_eq!(play.end(), [1]);
}

/// Owners 1 and 2 cannot hear each other. 2 adopts and entrusts the tuple to 0, and 1 entrusts it to 3, where it does not arrive for now.
fn two_act() -> (Play, Id) {
    let mut play = Play::new(4, 1);
    play.entrusts(1, &[2]);
    let id = play.put(1);
    play.entrusts(1, &[3]);
    play.entrusts(2, &[0]);
    play.world.unlink(1, 2);
    play.lag.insert((1, 3));
    play.run(11 * SECOND);
    assert_eq!(play.owners(1, id), [1, 3]);
    assert_eq!(play.owners(2, id), [2, 0]);
    assert!(!play.holds(3, id));
    (play, id)
}

pub fn a_copy_stays_while_its_own_store_is_under_way() {
    let (mut play, id) = two_act();
    play.world.link(1, 2);
    play.flow();
    assert_eq!(play.acting(id), [2]);
    assert!(play.holds(1, id));
    play.forward(2, id);
    assert_eq!(play.end(), [1]);
}

pub fn what_was_sent_is_followed_by_the_end() {
    let (mut play, id) = two_act();
    play.world.link(1, 2);
    play.flow();
    play.forward(2, id);
    play.flow();
    assert!(!play.holds(1, id) && play.waits_for(1, id, 3));
    assert_eq!(play.end(), [1]);
}

pub fn a_copy_stays_while_a_peer_delivers_for_it() {
    let (mut play, id) = two_act();
    play.lag.clear();
    play.flow();
    play.lag.insert((1, 3));
    play.world.input(1, Input::Asked(id, node(3)));
    play.world.send(1, 3, Message::Deliver(id));
    play.world.link(1, 2);
    play.flow();
    assert_eq!(play.acting(id), [2]);
    assert!(play.holds(1, id));
    assert!(play.end().iter().all(|times| *times >= 1));
}

pub fn a_copy_stays_when_the_word_is_old() {
    let mut play = Play::new(2, 1);
    let id = play.put(0);
    let leave = Delete {
        id,
        finished: false,
        version: play.queue(0).get(id).unwrap().version(),
        holders: Nodes::only(node(0)).with(node(1)),
    };
    play.hears(1, 0, Frame::Delete(vec![leave]));
    assert!(play.holds(1, id));
    assert_eq!(play.end(), [1]);
}

pub fn a_holder_is_let_go_by_its_word_of_this_list() {
    let (mut play, id) = one_is_to_leave();
    let first = Version {
        term: 1,
        first: node(0),
    };
    assert!(first < play.queue(0).get(id).unwrap().version());
    let deleted = Deleted {
        id,
        finished: false,
        version: first,
    };
    play.hears(0, 1, Frame::Deleted(vec![deleted]));
    assert!(play.holders(0, id).contains(node(1)));
    play.lag.clear();
    play.run(SECOND);
    assert!(!play.holders(0, id).contains(node(1)));
    assert_eq!(play.end(), [1]);
}

fn unknown(id: Id) -> Frame {
    Frame::Know(vec![Know {
        id,
        round: 0,
        knowledge: Knowledge::Unknown,
    }])
}

pub fn an_unknown_lets_nobody_go() {
    let (mut play, id) = one_is_to_leave();
    play.hears(0, 1, unknown(id));
    assert!(play.holders(0, id).contains(node(1)));
    assert_eq!(play.end(), [1]);
}

/// Node 1 answers a Store that node 0 does not know of any more.
pub fn what_is_not_here_is_no_copy() {
    let mut play = Play::new(2, 1);
    let id = Id::new(5, 5);
    let version = Version {
        term: 1,
        first: node(0),
    };
    play.hears(0, 1, Frame::Stored(vec![(id, version)]));
    let is_answer = |message: &Message| match message {
        Message::Frame(Frame::Know(list)) => list[0].knowledge == Knowledge::Unknown,
        _ => false,
    };
    assert!(play.channel(0, 1).any(is_answer));
}

/// Owners 0 and 1, who cannot hear each other any more; 1 adopts, and entrusts the tuple to 2.
fn one_has_adopted(count: usize) -> (Play, Id) {
    let mut play = Play::new(count, 1);
    let id = play.put(0);
    play.entrusts(1, &[2]);
    play.isolate(0);
    play.run(12 * SECOND);
    assert_eq!(play.owners(1, id), [1, 2]);
    (play, id)
}

/// Node 2 is no owner any more when 0 hears of it, but may hold a copy.
pub fn holders_are_joined() {
    let (mut play, id) = one_has_adopted(4);
    play.entrusts(1, &[3]);
    play.world.crash(2);
    play.run(12 * SECOND);
    assert_eq!(play.owners(1, id), [1, 3]);
    play.world.link(0, 1);
    assert_eq!(play.until(is_leave), (1, 0));
    assert!(play.holders(0, id).contains(node(2)));
    assert_eq!(play.end(), [1]);
}

pub fn the_end_is_told_to_holders_outside_the_list() {
    let (mut play, id) = one_is_to_leave();
    play.world.unlink(0, 1);
    play.forward(0, id);
    play.run(SECOND);
    assert!(play.waits_for(0, id, 1) && !play.waits_for(0, id, 2));
    assert_eq!(play.end(), [1]);
}

pub fn new_owners_are_holders() {
    let (mut play, id) = one_is_to_leave();
    play.lag.clear();
    play.run(SECOND);
    play.forward(0, id);
    play.run(SECOND);
    assert_eq!(play.world.leftover(), None);
}

/// Node 0 is done and has met nobody.
fn done_apart() -> (Play, Id) {
    let (mut play, id) = one_has_adopted(3);
    play.forward(0, id);
    play.run(SECOND);
    assert!(play.waits_for(0, id, 1) && !play.waits_for(0, id, 2));
    (play, id)
}

fn is_end(message: &Message) -> bool {
    match message {
        Message::Frame(Frame::Delete(list)) => list[0].finished,
        _ => false,
    }
}

pub fn the_end_is_told_to_holders_the_sender_does_not_know() {
    let (mut play, id) = done_apart();
    play.world.unlink(1, 2);
    play.world.link(0, 1);
    play.run(SECOND);
    assert!(!play.holds(1, id) && play.waits_for(1, id, 2));
    assert_eq!(play.end(), [1]);
}

pub fn a_tombstone_learns_of_holders() {
    let (mut play, id) = done_apart();
    play.world.link(0, 2);
    assert_eq!(play.until(is_end), (0, 2));
    assert!(play.waits_for(0, id, 2));
    assert_eq!(play.end(), [1]);
}

/// Node 1 has lost its disk and says so; a copy is about to be sent to it when the tuple is done.
pub fn an_unknown_confirms_no_end() {
    let mut play = Play::new(2, 1);
    let id = play.put(0);
    play.world.lose_disk(1);
    play.world.start(1);
    play.world.link(0, 1);
    let is_know = |message: &Message| matches!(message, Message::Frame(Frame::Know(_)));
    assert_eq!(play.until(is_know), (1, 0));
    play.forward(0, id);
    play.world.deliver(1, 0);
    assert!(play.waits_for(0, id, 1));
    assert_eq!(play.end(), [1]);
}

/// Both have acted, and both are done.
fn both_are_done() -> (Play, Id) {
    let mut play = Play::new(2, 1);
    let id = play.put(0);
    play.world.unlink(0, 1);
    play.run(8 * SECOND);
    assert_eq!(play.acting(id), [0, 1]);
    play.forward(0, id);
    play.forward(1, id);
    play.run(SECOND);
    assert!(play.waits_for(0, id, 1) && play.waits_for(1, id, 0));
    (play, id)
}

pub fn another_tombstone_confirms_no_end() {
    let (mut play, id) = both_are_done();
    play.world.link(0, 1);
    let finished = Delete {
        id,
        finished: true,
        version: Version {
            term: 2,
            first: node(1),
        },
        holders: Nodes::only(node(0)).with(node(1)),
    };
    play.hears(0, 1, Frame::Delete(vec![finished]));
    assert!(play.waits_for(0, id, 1));
    assert_eq!(play.end(), [2]);
}

pub fn two_tombstones_find_each_other() {
    let (mut play, _) = both_are_done();
    play.world.link(0, 1);
    play.run(SECOND);
    assert_eq!(play.world.leftover(), None);
}

pub fn leaving_confirms_no_end() {
    let mut play = Play::new(2, 1);
    let id = play.put(0);
    play.lag.insert((0, 1));
    play.forward(0, id);
    let deleted = Deleted {
        id,
        finished: false,
        version: Version {
            term: 1,
            first: node(0),
        },
    };
    play.hears(0, 1, Frame::Deleted(vec![deleted]));
    assert!(play.waits_for(0, id, 1));
    assert_eq!(play.end(), [1]);
}

pub fn a_tombstone_outlives_a_crash() {
    let mut play = Play::new(2, 1);
    let id = play.put(0);
    play.world.unlink(0, 1);
    play.forward(0, id);
    play.run(SECOND);
    play.world.crash(0);
    assert_eq!(play.end(), [1]);
}

pub fn the_end_waits_for_members_alone() {
    let mut play = Play::new(3, 1);
    let id = play.put(0);
    play.isolate(1);
    play.forward(0, id);
    play.run(SECOND);
    play.world.remove(1);
    play.run(SECOND);
    assert_eq!(play.world.leftover(), None);
}
