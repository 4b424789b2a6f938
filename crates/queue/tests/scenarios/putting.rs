//! Putting, lists that are rewritten, and what two nodes say when they meet (2.2 and 2.3 of the specification: rules A, B, C, F).

use bytes::Bytes;
use whimbrel_queue::{Frame, Id, Input, Tuple};

use super::Play;
use crate::world::{self, MILLI, Message, SECOND, World, node};

pub fn fewer_peers_than_f_take_nothing() {
    let mut play = Play::new(3, 2);
    play.world.unlink(0, 2);
    let id = play.world.put(0, true);
    play.flow();
    assert!(play.world.tuples[&id].refused);
}

pub fn what_is_given_up_goes() {
    let mut play = Play::new(2, 1);
    play.stuck.insert(1);
    let id = play.world.put(0, true);
    let ticket = play.world.tuples[&id].ticket;
    play.run(SECOND);
    play.world.input(0, Input::GiveUp(ticket));
    assert!(play.world.tuples[&id].refused);
    assert_eq!(play.end(), [0]);
}

pub fn acceptance_waits_for_the_own_disk() {
    let mut play = Play::new(2, 1);
    play.stuck.insert(0);
    let id = play.world.put(0, true);
    play.flow();
    assert!(play.holds(1, id) && !play.world.tuples[&id].accepted);
    assert_eq!(play.end(), [1]);
}

pub fn the_tuples_of_a_ticket_are_accepted_together() {
    for given_up in [false, true] {
        let mut play = Play::new(2, 1);
        let ids = [Id::new(1, 7), Id::new(2, 7)];
        for id in ids {
            let tuple = world::Tuple {
                ticket: 9,
                tracked: true,
                start: play.world.sites[0].started.0,
                ..world::Tuple::default()
            };
            play.world.tuples.insert(id, tuple);
        }
        let tuples = ids.map(|id| Tuple {
            tracked: true,
            ..Tuple::new(id, World::payload(id))
        });
        play.stuck.insert(1);
        let put = Input::Put {
            ticket: 9,
            tuples: tuples.to_vec(),
        };
        play.world.input(0, put);
        play.flow();
        // The other owner has one of them on its disk, and not the other.
        play.world.sync(1);
        play.flow();
        assert!(ids.iter().all(|id| !play.world.tuples[id].accepted));
        assert!(play.world.sites[0].mine.is_empty());
        if given_up {
            play.world.input(0, Input::GiveUp(9));
            assert_eq!(play.end(), [0, 0]);
        } else {
            play.world.sync(1);
            play.flow();
            assert!(ids.iter().all(|id| play.world.tuples[id].accepted));
            assert_eq!(play.counters(0).accepted, 2);
            assert_eq!(play.end(), [1, 1]);
        }
    }
}

pub fn a_slow_peer_is_replaced() {
    let mut play = Play::new(3, 1);
    play.lag.insert((0, 1));
    let id = play.world.put(0, true);
    play.run(SECOND);
    assert!(play.world.tuples[&id].accepted);
    assert_eq!(play.owners(0, id), [0, 2]);
    play.lag.clear();
    play.run(SECOND);
    assert!(!play.holds(1, id));
    assert_eq!(play.end(), [1]);
}

pub fn an_excluded_peer_gets_nothing() {
    let mut play = Play::new(3, 1);
    play.entrusts(0, &[2]);
    let id = play.put(0);
    assert_eq!(play.owners(0, id), [0, 2]);
}

/// Two peers are late; one of them stays in the list, for want of others. What it has said of the list before is no word of this one.
pub fn an_answer_counts_for_its_list_alone() {
    let mut play = Play::new(4, 2);
    play.lag.extend([(1, 0), (2, 0)]);
    let id = play.world.put(0, true);
    play.flow();
    play.lag.insert((0, 1));
    play.run(300 * MILLI);
    assert_eq!(play.owners(0, id), [0, 3, 1]);
    play.arrive(1, 0);
    assert!(!play.world.tuples[&id].accepted);
    play.lag.clear();
    play.run(SECOND);
    assert!(play.world.tuples[&id].accepted);
    assert_eq!(play.end(), [1]);
}

/// The node that adopts has the lower number: only the term makes its list the newer one.
pub fn a_rewritten_list_is_newer() {
    let mut play = Play::new(3, 1);
    play.entrusts(1, &[0]);
    let id = play.put(1);
    play.isolate(1);
    play.run(8 * SECOND);
    assert_eq!(play.acting(id), [0, 1]);
    play.world.link_all();
    play.run(SECOND);
    assert_eq!(play.acting(id), [0]);
}

/// Another node asks, and becomes a holder by that: the answer waits for the disk.
pub fn what_is_known_is_durable() {
    let mut play = Play::new(3, 1);
    let id = play.put(0);
    play.stuck.insert(1);
    play.lag.insert((1, 2));
    let ids = vec![id];
    play.hears(1, 2, Frame::Ask { round: 1, ids });
    play.flow();
    let said = |play: &Play| {
        let is_it = |message: &&Message| matches!(message, Message::Frame(Frame::Know(_)));
        play.channel(1, 2).filter(is_it).count()
    };
    assert_eq!(said(&play), 0);
    play.stuck.clear();
    play.flow();
    assert_eq!(said(&play), 1);
    assert_eq!(play.world.breach, None);
}

pub fn to_whom_it_was_sent_is_durable() {
    let mut play = Play::new(2, 1);
    let id = play.put(0);
    play.world.lose_disk(1);
    play.world.start(1);
    play.world.link(0, 1);
    play.run(SECOND);
    assert!(play.holds(1, id));
    assert_eq!(play.end(), [1]);
}

/// One end has not noticed that the link was over: what was on its way is lost, and the other end's new link makes it good.
pub fn a_second_link_ends_the_first() {
    let mut play = Play::new(2, 1);
    let id = play.put(0);
    let part = Bytes::from_static(&[1]);
    play.lag.insert((0, 1));
    play.world.input(0, Input::Progress(id, part.clone()));
    play.flow();
    play.world.channels.clear();
    play.lag.clear();
    play.world.input(0, Input::Linked(node(1)));
    play.world.input(1, Input::Linked(node(0)));
    play.run(SECOND);
    assert_eq!(play.queue(1).get(id).unwrap().progress, part);
    assert_eq!(play.end(), [1]);
}

pub fn progress_that_was_lost_on_the_way_is_made_good() {
    let mut play = Play::new(2, 1);
    let id = play.put(0);
    play.world.unlink(0, 1);
    let part = Bytes::from_static(&[4]);
    play.world.input(0, Input::Progress(id, part.clone()));
    play.flow();
    play.world.link(0, 1);
    play.run(SECOND);
    assert_eq!(play.queue(1).get(id).unwrap().progress, part);
    assert_eq!(play.end(), [1]);
}

/// Both have acted, and each has done a part.
pub fn progresses_are_joined() {
    let mut play = Play::new(2, 1);
    let id = play.put(0);
    play.world.unlink(0, 1);
    play.run(8 * SECOND);
    for at in [0, 1] {
        let part = Bytes::copy_from_slice(&[1 << at]);
        play.world.input(at, Input::Progress(id, part));
    }
    play.flow();
    play.world.link(0, 1);
    play.run(SECOND);
    for at in [0, 1] {
        assert_eq!(play.queue(at).get(id).unwrap().progress, &[3][..]);
    }
    assert_eq!(play.end(), [1]);
}
