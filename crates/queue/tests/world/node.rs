//! One node: the machine, its disk, and the application on it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_queue::{Change, Id, Input, Node, Output, Owners, Queue, Record};
use whimbrel_testkit::Rng;

use super::{Message, World, node};

/// What is durable.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq)]
pub struct Disk {
    pub records: BTreeMap<Id, Record>,
    pub payloads: BTreeMap<Id, Bytes>,
    pub away: BTreeMap<Node, u64>,
    pub life: u32,
}

/// One node, and what is around it.
#[derive(Clone, Default, Hash)]
pub struct Site {
    pub queue: Option<Queue>,
    pub disk: Disk,
    pub writes: VecDeque<(Id, Change)>,
    /// How often it has adopted.
    pub adopted: u64,
    /// The number of its start, and when that was.
    pub started: (u64, u64),
    /// What its disk held then.
    pub found: BTreeSet<Id>,
    /// What it knows as done.
    pub progress: BTreeMap<Id, Bytes>,
    /// What it holds as a tombstone.
    pub tombs: BTreeSet<Id>,
    /// What it is to act on.
    pub mine: BTreeSet<Id>,
    /// Deliveries that others have asked for and that have not begun.
    pub requests: Vec<(usize, Id)>,
    /// Who owns what it holds, and whether it acts.
    pub seen: BTreeMap<Id, (Owners, bool)>,
    /// An older copy of the disk.
    pub copy: Option<Disk>,
}

impl World {
    pub(super) fn application(&mut self, at: usize, output: Output) {
        match output {
            Output::Accepted(ticket) => self.accepted(at, ticket),
            Output::Refused(ticket, why) => self.refused(at, ticket, why),
            Output::Mine(id, _) => {
                self.say(|| format!("{at} is to act on {id:?}"));
                self.check_mine(at, id);
                self.sites[at].mine.insert(id);
            }
            Output::NotMine(id) => {
                self.sites[at].mine.remove(&id);
            }
            Output::Cancel(id) => self.drop_requests(at, None, Some(id)),
            Output::Stale(id) => {
                self.say(|| format!("{id:?} is stale at {at}"));
                // The operator has it delivered: an older disk may double, and never loses.
                self.input(at, Input::Stale(id, true));
            }
            Output::Swept { wave, least, .. } => self.swept(at, wave, least),
            _ => {}
        }
    }

    /// A peer has asked for a delivery.
    pub(super) fn asked(&mut self, from: usize, at: usize, id: Id) {
        self.sites[at].requests.push((from, id));
        self.input(at, Input::Holding(id));
    }

    /// What has not begun is not done: of a peer, or of a tuple.
    pub(super) fn drop_requests(&mut self, at: usize, of: Option<usize>, id: Option<Id>) {
        let wanted = |request: &(usize, Id)| {
            of.is_none_or(|of| of == request.0) && id.is_none_or(|id| id == request.1)
        };
        let requests = std::mem::take(&mut self.sites[at].requests);
        let (gone, stay) = requests.into_iter().partition(wanted);
        self.sites[at].requests = stay;
        let gone: Vec<(usize, Id)> = gone;
        for (_, id) in gone {
            self.input(at, Input::Released(id));
        }
    }

    /// The application of a node goes on.
    pub fn work(&mut self, rng: &mut Rng, at: usize) {
        if self.sites[at].queue.is_none() {
            return;
        }
        let mine: Vec<Id> = self.sites[at].mine.iter().copied().collect();
        for id in mine {
            if !self.sites[at].mine.contains(&id)
                || self.tuples.get(&id).is_none_or(|tuple| tuple.held_back)
            {
                continue;
            }
            match rng.below(6) {
                0 => {
                    self.consume(at, id);
                    self.done(at, id);
                }
                // It dies between the two, or others act meanwhile.
                1 => self.consume_slowly(at, id),
                2 if self.tuples.get(&id).is_some_and(|tuple| tuple.tracked) => {
                    let to = rng.below(self.sites.len() as u64) as usize;
                    if to != at && self.is_linked(at, to) {
                        self.input(at, Input::Asked(id, node(to)));
                        self.send(at, to, Message::Deliver(id));
                    }
                }
                3 if rng.one_in(4) => {
                    self.sites[at].mine.remove(&id);
                    self.input(at, Input::Later(id, self.now + super::SECOND));
                }
                4 if rng.one_in(4) => {
                    let part = Bytes::copy_from_slice(&[1 << rng.below(8)]);
                    self.input(at, Input::Progress(id, part));
                }
                _ => {}
            }
        }
        while rng.one_in(3)
            && let Some((from, id)) = self.sites[at].requests.pop()
        {
            self.consume(at, id);
            self.input(at, Input::Released(id));
            self.send(at, from, Message::Delivered(id));
        }
        // What the consumer has answered slowly.
        for id in self.answers_for(at) {
            if rng.one_in(4) {
                self.answer(at, id);
                self.done(at, id);
            }
        }
    }

    /// The application is done with a tuple.
    pub fn done(&mut self, at: usize, id: Id) {
        self.sites[at].mine.remove(&id);
        self.input(at, Input::Done(id));
    }
}
