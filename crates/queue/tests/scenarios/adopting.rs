//! Adoption, return, repair, states of peers, and older disks (2.4 and 2.5 of the specification).

use whimbrel_queue::{Config, Frame, Id, Input, Know, Knowledge, Nodes, Owners, Ownership};

use super::Play;
use crate::world::{Message, SECOND, node};

fn is_ask(message: &Message) -> bool {
    matches!(message, Message::Frame(Frame::Ask { .. }))
}

/// Of three owners the first is gone, and the second has an older disk when the third one asks.
pub fn a_copy_in_doubt_bars_an_adoption() {
    let mut play = Play::new(3, 2);
    let id = play.put(0);
    let older = play.world.sites[1].disk.clone();
    play.world.crash(0);
    play.run(5 * SECOND);
    play.world.put_back(1, older);
    play.lag.extend([(1, 2), (2, 1)]);
    play.world.link(1, 2);
    for _ in 0..30 {
        if !play.channel(2, 1).any(is_ask) {
            play.run(SECOND / 10);
        }
    }
    assert!(play.channel(2, 1).any(is_ask));
    play.arrive(2, 1);
    play.arrive(1, 2);
    assert_eq!(play.counters(2).adopted, 0);
    play.lag.clear();
    play.run(8 * SECOND);
    assert_eq!(play.acting(id), [1]);
    assert_eq!(play.end(), [1]);
}

/// Two older disks hold what was done and forgotten.
pub fn copies_in_doubt_do_not_vouch() {
    let mut play = Play::new(3, 2);
    let (_, disks) = play.forgotten(0);
    play.world.put_back(1, disks[1].clone());
    play.world.put_back(2, disks[2].clone());
    play.world.link_all();
    play.run(10 * SECOND);
    assert!(play.world.sites.iter().all(|site| site.mine.is_empty()));
    assert_eq!(play.end(), [1]);
}

/// Owners 1 and 2, of something that is forgotten. Node 1 has an older disk, and 2 is down.
fn older_disk_at_the_first() -> (Play, Id) {
    let mut play = Play::new(3, 1);
    play.entrusts(1, &[2]);
    let (id, disks) = play.forgotten(1);
    play.world.crash(2);
    play.world.put_back(1, disks[1].clone());
    play.world.link(0, 1);
    (play, id)
}

/// It waits for the word of the owner that is away.
pub fn an_older_disk_does_not_act() {
    let (mut play, id) = older_disk_at_the_first();
    play.run(6 * SECOND);
    assert!(play.holds(1, id) && !play.is_handed_out(1, id));
    assert_eq!(play.end(), [1]);
}

pub fn doubt_outlives_a_crash() {
    let (mut play, id) = older_disk_at_the_first();
    // The record is written once more while it is in doubt.
    let ids = vec![id];
    play.hears(1, 0, Frame::Ask { round: 1, ids });
    play.run(SECOND);
    play.world.crash(1);
    play.world.start(1);
    play.world.link(0, 1);
    play.run(6 * SECOND);
    assert!(play.holds(1, id) && !play.is_handed_out(1, id));
    assert_eq!(play.end(), [1]);
}

pub fn an_older_disk_does_not_adopt() {
    let mut play = Play::new(3, 1);
    play.entrusts(1, &[2]);
    let (id, disks) = play.forgotten(1);
    play.world.crash(1);
    play.world.put_back(2, disks[2].clone());
    play.world.link(0, 2);
    play.run(9 * SECOND);
    assert_eq!(play.owners(2, id), [1, 2]);
    assert_eq!(play.counters(2).adopted, 0);
    assert_eq!(play.end(), [1]);
}

pub fn a_word_of_another_clears_doubt() {
    let mut play = Play::new(2, 1);
    let id = play.put(0);
    let older = play.world.sites[1].disk.clone();
    play.world.put_back(1, older);
    play.world.link(0, 1);
    play.run(SECOND);
    play.world.crash(0);
    play.run(8 * SECOND);
    assert!(play.is_handed_out(1, id));
    play.forward(1, id);
    assert_eq!(play.end(), [1]);
}

/// The world's operator says that it is to be acted on.
pub fn what_is_stale_is_for_the_operator() {
    let mut play = Play::new(2, 1);
    let id = play.world.put(0, false);
    play.flow();
    let older = play.world.sites[0].disk.clone();
    play.forward(0, id);
    play.run(SECOND);
    play.world.put_back(0, older);
    play.world.link(0, 1);
    play.run(5 * SECOND);
    assert!(play.is_handed_out(0, id));
    assert_eq!(play.end(), [2]);
}

pub fn a_single_node_trusts_its_older_disk() {
    let mut play = Play::new(1, 1);
    let id = play.world.put(0, false);
    play.flow();
    let older = play.world.sites[0].disk.clone();
    play.world.log = Some(Vec::new());
    play.world.put_back(0, older);
    play.run(5 * SECOND);
    let log = play.world.log.take().unwrap();
    assert!(!log.iter().any(|line| line.contains("stale")), "{log:?}");
    assert!(play.is_handed_out(0, id));
    assert_eq!(play.end(), [1]);
}

/// Node 1 has lost its disk and says so to node 2, slowly. It gets its copy again, and the first owner is gone, before that arrives.
pub fn an_answer_from_before_the_question_does_not_count() {
    let mut play = Play::new(3, 2);
    let id = play.put(0);
    play.world.lose_disk(1);
    play.world.start(1);
    play.world.link(1, 2);
    let is_know = |message: &Message| matches!(message, Message::Frame(Frame::Know(_)));
    assert_eq!(play.until(is_know), (1, 2));
    play.lag.insert((1, 2));
    play.world.link(0, 1);
    play.flow();
    assert!(play.holds(1, id));
    play.world.crash(0);
    play.lag.insert((2, 1));
    for _ in 0..80 {
        if !play.channel(2, 1).any(is_ask) {
            play.run(SECOND / 10);
        }
    }
    assert!(play.channel(2, 1).any(is_ask));
    play.world.deliver(1, 2);
    assert_eq!(play.counters(2).adopted, 0);
    play.lag.clear();
    play.run(3 * SECOND);
    assert_eq!(play.acting(id), [1]);
    assert_eq!(play.end(), [1]);
}

/// Node 1 says that it has no copy, then node 3 knows of a list in which it acts: that answer was about another list.
pub fn a_list_that_has_changed_is_asked_about_anew() {
    let mut play = Play::new(4, 2);
    let id = play.put(0);
    play.world.crash(0);
    play.world.lose_disk(1);
    play.world.start(1);
    play.world.link_all();
    play.lag.insert((3, 2));
    play.run(5 * SECOND);
    assert_eq!(play.until(is_ask).0, 2);
    let asks = play.channel(2, 1).chain(play.channel(2, 3));
    let rounds = asks.filter_map(|message| match message {
        Message::Frame(Frame::Ask { round, .. }) => Some(*round),
        _ => None,
    });
    let round = rounds.max().unwrap();
    play.flow();
    let owners: Owners = [1, 2, 3].map(node).into_iter().collect();
    let newer = Ownership {
        owners,
        term: 2,
        holders: owners.set().with(node(0)),
        ..play.queue(2).get(id).unwrap()
    };
    let know = Know {
        id,
        round,
        knowledge: Knowledge::Holds(newer),
    };
    play.hears(2, 3, Frame::Know(vec![know]));
    assert_eq!(play.owners(2, id), [1, 2, 3]);
    assert_eq!(play.counters(2).adopted, 0);
}

/// The second owner was down when the third one asked, and comes back without its disk.
pub fn the_question_is_asked_again() {
    let mut play = Play::with(
        3,
        Config {
            repair_after: 1000 * SECOND,
            ..super::config(2)
        },
    );
    let id = play.put(0);
    play.world.crash(0);
    play.run(5 * SECOND);
    play.world.crash(1);
    play.run(3 * SECOND);
    assert!(play.acting(id).is_empty());
    play.world.lose_disk(1);
    play.world.start(1);
    play.world.link(1, 2);
    play.run(6 * SECOND);
    assert_eq!(play.acting(id), [2]);
    assert_eq!(play.end(), [1]);
}

/// Node 2 answers nothing. It is waited for when node 0 is gone, and not when node 3 is.
pub fn a_silent_peer_is_waited_for_once() {
    let mut play = Play::with(
        4,
        Config {
            ask_wait: 3 * SECOND,
            ..super::config(1)
        },
    );
    play.entrusts(0, &[1]);
    play.entrusts(3, &[1]);
    let ids = [play.put(0), play.put(3)];
    play.lag.insert((2, 1));
    play.world.crash(0);
    play.run(5 * SECOND);
    play.world.crash(3);
    play.run(3 * SECOND);
    assert!(play.acting(ids[0]).is_empty());
    play.run(2 * SECOND);
    assert_eq!(play.acting(ids[0]), [1]);
    assert!(play.acting(ids[1]).is_empty());
    play.run(2 * SECOND);
    assert_eq!(play.acting(ids[1]), [1]);
    assert_eq!(play.end(), [1, 1]);
}

pub fn who_acted_gives_way_to_the_newer_list() {
    let mut play = Play::new(2, 1);
    let id = play.put(0);
    play.world.unlink(0, 1);
    play.run(8 * SECOND);
    assert_eq!(play.acting(id), [0, 1]);
    play.world.link(0, 1);
    play.run(SECOND);
    assert_eq!(play.acting(id), [1]);
    assert!(!play.is_handed_out(0, id));
    assert_eq!(play.end(), [1]);
}

/// Node 1 has adopted, and an older disk of it does not know that. It hears so from node 2, long after its start.
pub fn a_lost_adoption_is_acted_on() {
    let mut play = Play::new(3, 1);
    let id = play.put(0);
    let older = play.world.sites[1].disk.clone();
    play.world.crash(0);
    play.run(12 * SECOND);
    assert_eq!(play.owners(2, id), [1, 2]);
    play.world.put_back(1, older);
    play.run(4 * SECOND);
    play.world.link(1, 2);
    play.run(SECOND);
    assert!(play.is_handed_out(1, id));
    assert_eq!(play.end(), [1]);
}

pub fn nobody_is_dead_right_after_a_start() {
    let mut play = Play::new(2, 1);
    play.put(0);
    play.run(10 * SECOND);
    play.world.crash(1);
    play.world.start(1);
    play.run(5 * SECOND);
    assert_eq!(play.counters(1).adopted, 0);
    assert_eq!(play.end(), [1]);
}

fn says_goodbye(play: &mut Play, at: usize) {
    play.world.input(at, Input::Leaving(30 * SECOND));
    play.flow();
    play.world.crash(at);
}

pub fn who_said_goodbye_is_not_dead() {
    let mut play = Play::new(2, 1);
    play.put(0);
    says_goodbye(&mut play, 0);
    play.run(25 * SECOND);
    assert_eq!(play.counters(1).adopted, 0);
    play.run(10 * SECOND);
    assert_eq!(play.counters(1).adopted, 1);
}

pub fn a_goodbye_outlives_a_crash() {
    let mut play = Play::new(2, 1);
    play.put(0);
    says_goodbye(&mut play, 0);
    play.world.crash(1);
    play.world.start(1);
    play.run(25 * SECOND);
    assert_eq!(play.counters(1).adopted, 0);
}

pub fn who_said_goodbye_is_not_replaced() {
    let mut play = Play::new(3, 1);
    let id = play.put(0);
    says_goodbye(&mut play, 1);
    play.run(25 * SECOND);
    assert_eq!(play.owners(0, id), [0, 1]);
    play.run(20 * SECOND);
    assert_eq!(play.owners(0, id), [0, 2]);
}

pub fn who_is_back_is_back() {
    let mut play = Play::new(2, 1);
    says_goodbye(&mut play, 1);
    play.world.start(1);
    play.world.link(0, 1);
    play.run(SECOND);
    let id = play.put(0);
    assert_eq!(play.owners(0, id), [0, 1]);
}

pub fn after_a_start_others_are_waited_for_some_time() {
    let mut play = Play::new(2, 1);
    let id = play.put(0);
    play.world.crash(0);
    play.world.crash(1);
    play.world.start(0);
    play.run(2 * SECOND);
    assert!(!play.is_handed_out(0, id));
    play.run(2 * SECOND);
    assert!(play.is_handed_out(0, id));
}

pub fn repair_keeps_to_its_rate() {
    let mut play = Play::with(
        3,
        Config {
            repair_rate: 1000,
            ..super::config(1)
        },
    );
    let ids: Vec<Id> = (0..30).map(|_| play.put(0)).collect();
    play.world.crash(1);
    while play.counters(0).repaired == 0 {
        play.run(SECOND / 10);
    }
    assert!(play.counters(0).repaired < 10);
    play.run(60 * SECOND);
    assert_eq!(play.counters(0).repaired, 30);
    let two: Nodes = [0, 2].map(node).into_iter().collect();
    let owners = |id: &Id| play.queue(0).get(*id).unwrap().owners.set();
    assert!(ids.iter().all(|id| owners(id) == two && play.holds(2, *id)));
}
