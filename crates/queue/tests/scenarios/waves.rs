//! When a delivery may be forgotten, and deliveries by others (2.6 and 2.7 of the specification).

use whimbrel_queue::{Frame, Id, Input};

use super::Play;
use crate::world::{Message, SECOND, node};

fn asks_for_a_delivery(play: &mut Play, at: usize, id: Id, peer: usize) {
    play.world.input(at, Input::Asked(id, node(peer)));
    play.world.send(at, peer, Message::Deliver(id));
}

fn is_forgotten(play: &Play, id: Id) -> bool {
    play.world.tuples[&id].forgotten
}

/// A node that is no holder was asked for the delivery, and what it was asked has not arrived when the tuple is done.
pub fn a_delivery_on_its_way_holds_the_tombstone() {
    let mut play = Play::new(3, 1);
    let id = play.put(0);
    play.lag.insert((0, 2));
    asks_for_a_delivery(&mut play, 0, id, 2);
    play.forward(0, id);
    play.world.make_stable(id);
    play.run(3 * SECOND);
    assert_eq!(play.world.breach, None);
    assert!(!is_forgotten(&play, id) && play.waits_for(0, id, 2));
    play.lag.clear();
    play.run(3 * SECOND);
    assert!(is_forgotten(&play, id));
    assert_eq!(play.end(), [1]);
}

/// While a wave of node 0 is under way, and it meets one node after the other, the tuple moves from those that it has not met to those that it has.
pub fn what_moves_during_a_wave_is_seen() {
    let mut play = Play::new(4, 1);
    play.entrusts(1, &[2]);
    let id = play.put(1);
    play.world.consume(1, id);
    play.run(SECOND);
    // A wave begins at which the removal is stable. Node 3 answers it.
    play.lag.extend([(1, 0), (2, 0), (3, 0)]);
    play.run(SECOND);
    play.world.make_stable(id);
    let before = play.queue(0).wave();
    for from in 1..4 {
        play.arrive(from, 0);
    }
    play.world.pass(SECOND / 5);
    assert_eq!(play.queue(0).wave(), before + 1);
    play.arrive(0, 3);
    play.arrive(3, 0);
    play.isolate(0);
    play.lag.clear();
    // From 1 and 2 to 1 and 3. Node 2 was down, and is told to leave; then it answers.
    play.entrusts(1, &[3]);
    play.world.crash(2);
    play.run(12 * SECOND);
    assert_eq!(play.owners(1, id), [1, 3]);
    play.world.start(2);
    play.world.link(1, 2);
    play.world.link(2, 3);
    play.run(SECOND);
    assert!(!play.holds(2, id));
    play.world.link(0, 2);
    play.flow();
    play.isolate(0);
    // From 1 and 3 to 3 and 2. Node 1 was down, and is told to leave; then it answers.
    play.entrusts(3, &[2]);
    play.world.crash(1);
    play.run(12 * SECOND);
    assert_eq!(play.owners(3, id), [3, 2]);
    play.world.start(1);
    play.world.link(1, 2);
    play.world.link(1, 3);
    play.run(SECOND);
    assert!(!play.holds(1, id));
    assert_eq!(play.queue(0).wave(), before + 1);
    play.world.link(0, 1);
    play.run(SECOND / 2);
    assert!(play.queue(0).wave() > before + 1);
    assert_eq!(play.world.breach, None);
    assert!(!is_forgotten(&play, id));
    assert_eq!(play.end(), [2]);
}

/// A copy is on its way to an owner that has lost its own, when the tuple is done.
pub fn a_tombstone_counts() {
    let mut play = Play::new(3, 1);
    play.entrusts(1, &[2]);
    let id = play.put(1);
    play.world.consume(1, id);
    play.world.lose_disk(2);
    play.world.start(2);
    play.world.link_all();
    let is_store = |message: &Message| match message {
        Message::Frame(Frame::Store(list)) => list[0].payload.is_some(),
        _ => false,
    };
    assert_eq!(play.until(is_store), (1, 2));
    play.lag.insert((1, 2));
    play.world.done(1, id);
    play.world.make_stable(id);
    play.run(4 * SECOND);
    assert_eq!(play.world.breach, None);
    assert!(!is_forgotten(&play, id));
    play.lag.clear();
    play.run(3 * SECOND);
    assert!(is_forgotten(&play, id));
    assert_eq!(play.end(), [1]);
}

pub fn a_removal_counts_until_it_is_durable() {
    for leaves in [false, true] {
        let mut play = Play::new(4, 1);
        // Node 1 is to drop its copy, since the tuple is done, or since it was late and another peer has it.
        play.lag.insert((1, 0));
        let id = play.world.put(0, true);
        play.flow();
        if leaves {
            play.lag.insert((0, 1));
            play.run(SECOND / 2);
            assert_eq!(play.owners(0, id), [0, 2]);
        }
        play.lag.clear();
        play.stuck.insert(1);
        if leaves {
            play.run(2 * SECOND);
        } else {
            play.flow();
            play.forward(0, id);
            play.run(2 * SECOND);
        }
        assert!(!play.holds(1, id));
        play.lag.insert((1, 3));
        play.run(SECOND / 2);
        let answers = play.channel(1, 3).filter_map(|message| match message {
            Message::Frame(Frame::Low { least, .. }) => Some(*least),
            _ => None,
        });
        assert_eq!(answers.last(), Some(Some(id)));
        assert_eq!(play.end(), [1]);
    }
}

/// The node that works on a delivery is the one whose waves are looked at, and another one.
pub fn a_delivery_under_way_counts() {
    let mut play = Play::new(3, 1);
    play.entrusts(1, &[2]);
    let id = play.put(1);
    play.world.input(0, Input::Holding(id));
    play.forward(1, id);
    play.run(SECOND);
    assert_eq!(play.world.leftover(), None);
    play.world.make_stable(id);
    play.run(3 * SECOND);
    assert!(!is_forgotten(&play, id));
    play.world.input(0, Input::Released(id));
    play.run(3 * SECOND);
    assert!(is_forgotten(&play, id));
}

/// A node that has started has not met node 2: what it sent to it before may still be on its way.
pub fn a_node_answers_when_it_has_met_all() {
    let mut play = Play::new(3, 1);
    play.world.crash(1);
    play.world.start(1);
    play.world.link(0, 1);
    play.run(SECOND);
    let wave = play.queue(0).wave();
    play.run(3 * SECOND);
    assert_eq!(play.queue(0).wave(), wave);
    play.world.link(1, 2);
    play.run(SECOND);
    assert!(play.queue(0).wave() > wave);
}

pub fn what_has_not_begun_is_dropped_at_the_end() {
    let mut play = Play::new(3, 1);
    let id = play.put(0);
    asks_for_a_delivery(&mut play, 0, id, 2);
    play.flow();
    assert_eq!(play.world.sites[2].requests, [(0, id)]);
    play.forward(0, id);
    play.flow();
    assert_eq!(play.world.sites[2].requests, []);
    assert_eq!(play.end(), [1]);
}

pub fn the_end_waits_for_a_delivery_that_has_begun() {
    let mut play = Play::new(3, 1);
    let id = play.put(0);
    play.world.input(0, Input::Asked(id, node(2)));
    play.world.input(2, Input::Holding(id));
    play.forward(0, id);
    play.run(SECOND);
    assert!(play.waits_for(0, id, 2) && !play.waits_for(0, id, 1));
    play.world.input(2, Input::Released(id));
    play.run(SECOND);
    assert_eq!(play.end(), [1]);
}
