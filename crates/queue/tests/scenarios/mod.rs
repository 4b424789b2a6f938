//! A scenario for each rule: the one order of events in which breaking it shows. Random histories come upon most of these too seldom.
//!
//! Where what follows would need a second fault to do harm, what the machine says or keeps is looked at instead.

mod adopting;
mod ending;
mod putting;
mod waves;

use std::collections::BTreeSet;

use whimbrel_queue::{Choice, Config, Counters, Frame, Id, Input, Nodes, Queue};

use crate::world::{self, MILLI, Message, SECOND, World, node};

macro_rules! scenarios {
    ($($of:ident: $($name:ident),+;)+) => {
        /// All of them, by name.
        #[cfg(feature = "mutants")]
        pub const ALL: &[(&str, fn())] = &[$($((stringify!($name), $of::$name as fn())),+),+];

        mod run {
            $($(#[test]
            fn $name() {
                super::$of::$name();
            })+)+
        }
    };
}

scenarios! {
    putting:
        fewer_peers_than_f_take_nothing,
        what_is_given_up_goes,
        acceptance_waits_for_the_own_disk,
        the_tuples_of_a_ticket_are_accepted_together,
        a_slow_peer_is_replaced,
        an_excluded_peer_gets_nothing,
        an_answer_counts_for_its_list_alone,
        a_rewritten_list_is_newer,
        what_is_known_is_durable,
        to_whom_it_was_sent_is_durable,
        a_second_link_ends_the_first,
        progress_that_was_lost_on_the_way_is_made_good,
        progresses_are_joined;
    ending:
        a_copy_stays_until_all_owners_have_theirs,
        a_copy_stays_while_the_acting_owner_does_not_name_all,
        a_copy_stays_while_its_own_store_is_under_way,
        a_copy_stays_while_a_peer_delivers_for_it,
        a_copy_stays_when_the_word_is_old,
        a_holder_is_let_go_by_its_word_of_this_list,
        an_unknown_lets_nobody_go,
        what_is_not_here_is_no_copy,
        holders_are_joined,
        new_owners_are_holders,
        the_end_is_told_to_holders_outside_the_list,
        what_was_sent_is_followed_by_the_end,
        the_end_is_told_to_holders_the_sender_does_not_know,
        a_tombstone_learns_of_holders,
        an_unknown_confirms_no_end,
        another_tombstone_confirms_no_end,
        leaving_confirms_no_end,
        a_tombstone_outlives_a_crash,
        two_tombstones_find_each_other,
        the_end_waits_for_members_alone;
    adopting:
        a_copy_in_doubt_bars_an_adoption,
        copies_in_doubt_do_not_vouch,
        an_older_disk_does_not_act,
        an_older_disk_does_not_adopt,
        doubt_outlives_a_crash,
        a_word_of_another_clears_doubt,
        what_is_stale_is_for_the_operator,
        a_single_node_trusts_its_older_disk,
        an_answer_from_before_the_question_does_not_count,
        a_list_that_has_changed_is_asked_about_anew,
        the_question_is_asked_again,
        a_silent_peer_is_waited_for_once,
        who_acted_gives_way_to_the_newer_list,
        a_lost_adoption_is_acted_on,
        nobody_is_dead_right_after_a_start,
        who_said_goodbye_is_not_dead,
        who_said_goodbye_is_not_replaced,
        who_is_back_is_back,
        a_goodbye_outlives_a_crash,
        after_a_start_others_are_waited_for_some_time,
        repair_keeps_to_its_rate;
    waves:
        a_delivery_on_its_way_holds_the_tombstone,
        what_moves_during_a_wave_is_seen,
        a_tombstone_counts,
        a_removal_counts_until_it_is_durable,
        a_delivery_under_way_counts,
        a_node_answers_when_it_has_met_all,
        what_has_not_begun_is_dropped_at_the_end,
        the_end_waits_for_a_delivery_that_has_begun;
}

/// A cluster in which nothing happens but what is asked for.
pub struct Play {
    pub world: World,
    /// Directions of links that bring nothing for now.
    pub lag: BTreeSet<(usize, usize)>,
    /// Nodes whose disks are slow.
    pub stuck: BTreeSet<usize>,
}

/// Links may be slow for long without being closed; peers are chosen by number.
pub fn config(copies: usize) -> Config {
    Config {
        choice: Choice::Nearest(0),
        silent_after: 20 * SECOND,
        wave_every: SECOND / 5,
        ..world::config(copies)
    }
}

impl Play {
    pub fn new(count: usize, copies: usize) -> Play {
        Play::with(count, config(copies))
    }

    pub fn with(count: usize, config: Config) -> Play {
        let mut play = Play {
            world: World::new(count, config),
            lag: BTreeSet::new(),
            stuck: BTreeSet::new(),
        };
        play.world.link_all();
        for at in 0..count {
            for other in 0..count {
                let micros = 1000 * other as u64;
                play.world.input(at, Input::RoundTrip(node(other), micros));
            }
        }
        play.run(MILLI * 1000);
        play
    }

    pub fn queue(&self, at: usize) -> &Queue {
        self.world.sites[at].queue.as_ref().unwrap()
    }

    pub fn counters(&self, at: usize) -> Counters {
        self.queue(at).counters()
    }

    pub fn holds(&self, at: usize, id: Id) -> bool {
        self.queue(at).get(id).is_some()
    }

    pub fn is_handed_out(&self, at: usize, id: Id) -> bool {
        self.world.sites[at].mine.contains(&id)
    }

    /// Its list of owners at a node.
    pub fn owners(&self, at: usize, id: Id) -> Vec<usize> {
        let owners = self.queue(at).get(id).unwrap().owners;
        let numbers = owners.as_slice().iter();
        numbers.map(|node| usize::from(node.number())).collect()
    }

    pub fn holders(&self, at: usize, id: Id) -> Nodes {
        self.queue(at).get(id).unwrap().holders
    }

    /// Whether a node's tombstone waits for another node.
    pub fn waits_for(&self, at: usize, id: Id, other: usize) -> bool {
        self.queue(at).waits_for(id).contains(node(other))
    }

    pub fn acting(&self, id: Id) -> Vec<usize> {
        let up = |at: &usize| self.world.sites[*at].queue.is_some();
        let nodes = (0..self.world.sites.len()).filter(up);
        nodes.filter(|at| self.queue(*at).acts_on(id)).collect()
    }

    /// From now on a node entrusts tuples to these alone.
    pub fn entrusts(&mut self, at: usize, to: &[usize]) {
        let count = self.world.sites.len();
        let others = (0..count).filter(|other| !to.contains(other));
        let excluded = Input::Excluded(others.map(node).collect());
        self.world.input(at, excluded);
    }

    /// What can arrive arrives, and what can be written is written, until nothing can.
    pub fn flow(&mut self) {
        let count = self.world.sites.len();
        let pairs: Vec<(usize, usize)> = (0..count)
            .flat_map(|from| (0..count).map(move |to| (from, to)))
            .filter(|pair| !self.lag.contains(pair))
            .collect();
        let mut messages = 0;
        while messages < 10_000 {
            let mut is_over = true;
            for (from, to) in pairs.iter().copied() {
                let count = self.arrive(from, to);
                messages += count;
                is_over &= count == 0;
            }
            for at in 0..count {
                let stuck = self.stuck.contains(&at);
                while !stuck && !self.world.sites[at].writes.is_empty() {
                    self.world.sync(at);
                    is_over = false;
                }
            }
            self.world.excuse();
            if is_over {
                return;
            }
        }
        panic!("nodes talk for ever");
    }

    /// All that is on the way in this direction arrives; how much it was.
    pub fn arrive(&mut self, from: usize, to: usize) -> usize {
        let count = self.channel(from, to).count();
        for _ in 0..count {
            self.world.deliver(from, to);
        }
        count
    }

    /// Time passes, and what can happen does.
    pub fn run(&mut self, micros: u64) {
        let end = self.world.now + micros;
        self.flow();
        while self.world.now < end {
            self.world.pass(100 * MILLI);
            self.flow();
        }
    }

    /// Everything happens, message by message, until one like this is the next one in some direction.
    pub fn until(&mut self, wanted: impl Fn(&Message) -> bool) -> (usize, usize) {
        let count = self.world.sites.len();
        for _ in 0..10_000 {
            let mut is_idle = true;
            for from in 0..count {
                for to in 0..count {
                    let Some(next) = self.channel(from, to).next() else {
                        continue;
                    };
                    if wanted(next) {
                        return (from, to);
                    }
                    if !self.lag.contains(&(from, to)) {
                        self.world.deliver(from, to);
                        is_idle = false;
                    }
                }
                while !self.stuck.contains(&from) && !self.world.sites[from].writes.is_empty() {
                    self.world.sync(from);
                    is_idle = false;
                }
            }
            if is_idle {
                self.world.pass(100 * MILLI);
            }
        }
        panic!("no such message");
    }

    pub fn channel(&self, from: usize, to: usize) -> impl Iterator<Item = &Message> {
        self.world.channels.get(&(from, to)).into_iter().flatten()
    }

    /// A frame arrives at a node as if another one had sent it.
    pub fn hears(&mut self, at: usize, from: usize, frame: Frame) {
        self.world.input(at, Input::Frame(node(from), frame));
    }

    pub fn isolate(&mut self, at: usize) {
        for other in 0..self.world.sites.len() {
            self.world.unlink(at, other);
        }
    }

    /// A tuple that is accepted.
    pub fn put(&mut self, at: usize) -> Id {
        let id = self.world.put(at, true);
        self.flow();
        assert!(self.world.tuples[&id].accepted);
        id
    }

    /// The application is done with a tuple.
    pub fn forward(&mut self, at: usize, id: Id) {
        self.world.consume(at, id);
        self.world.done(at, id);
    }

    /// A tuple that was put, delivered, removed, and forgotten, and the disks of the time when it was there.
    pub fn forgotten(&mut self, at: usize) -> (Id, Vec<world::Disk>) {
        let id = self.put(at);
        let disks = self.world.sites.iter().map(|site| site.disk.clone());
        let disks = disks.collect();
        self.forward(at, id);
        self.run(SECOND);
        self.world.make_stable(id);
        self.run(3 * SECOND);
        assert!(self.world.tuples[&id].forgotten);
        (id, disks)
    }

    /// Whoever acts on something forwards it, until nothing is left; how often each tuple was forwarded in all.
    pub fn end(&mut self) -> Vec<u32> {
        self.lag.clear();
        self.stuck.clear();
        let count = self.world.sites.len();
        (0..count).for_each(|at| self.world.start(at));
        self.world.link_all();
        for _ in 0..60 {
            self.run(SECOND / 2);
            for at in 0..count {
                let mine = self.world.sites[at].mine.clone();
                mine.into_iter().for_each(|id| self.forward(at, id));
            }
            if self.world.leftover().is_none() {
                break;
            }
        }
        assert_eq!(self.world.leftover(), None);
        assert_eq!(self.world.breach, None);
        let tuples = self.world.tuples.values();
        tuples.map(|tuple| tuple.forwarded).collect()
    }
}
