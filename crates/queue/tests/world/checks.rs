//! What was promised, and whether it is kept.
//!
//! - D1: what was accepted is forwarded at least once, while no more than f disks were lost.
//! - Q1: it is forwarded again only when an owner that acted was down, or apart from another holder, since it was forwarded first.
//! - D2: what a wave has said to be nowhere never comes again.
//! - N1: nobody adopts while an earlier owner is alive, linked, and acts.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_queue::{Frame, Id, Input, Knowledge, Nodes, Ownership, Record, Refusal};

use super::{Message, World, node};

/// What the outside knows of a tuple.
#[derive(Clone, Debug, Default, Hash)]
pub struct Tuple {
    pub at: usize,
    pub ticket: u64,
    pub tracked: bool,
    pub accepted: bool,
    pub refused: bool,
    /// How often it was forwarded.
    pub forwarded: u32,
    /// More than one node acted on it at some time.
    pub two_acted: bool,
    /// Those that were to act on it.
    pub acted: BTreeSet<usize>,
    /// The start of its node at which it was put.
    pub start: u64,
    /// It may be forwarded again: a node was down or cut off since.
    pub excused: bool,
    /// Nobody acts on it yet, though it is due.
    pub held_back: bool,
    /// By whom the consumer has taken it; not answered yet.
    pub unanswered: Vec<usize>,
    /// The waves of the nodes when its removal was stable.
    pub stable: Option<BTreeMap<usize, u64>>,
    /// Nodes that have forgotten it.
    pub forgotten: bool,
}

impl World {
    pub fn put(&mut self, at: usize, tracked: bool) -> Id {
        let number = self.tuples.len() as u64 + 1;
        let id = Id::new(number, 7);
        let ticket = number;
        let tuple = Tuple {
            at,
            ticket,
            tracked,
            start: self.sites[at].started.0,
            ..Tuple::default()
        };
        self.tuples.insert(id, tuple);
        self.say(|| format!("put {id:?} at {at}, tracked: {tracked}"));
        let tuple = whimbrel_queue::Tuple {
            id,
            tracked,
            not_before: 0,
            priority: 0,
            attached: 0,
            payload: World::payload(id),
        };
        let tuples = vec![tuple];
        self.input(at, Input::Put { ticket, tuples });
        id
    }

    fn of_ticket(&mut self, at: usize, ticket: u64) -> impl Iterator<Item = (&Id, &mut Tuple)> {
        let tuples = self.tuples.iter_mut();
        tuples.filter(move |(_, tuple)| tuple.at == at && tuple.ticket == ticket)
    }

    pub(super) fn accepted(&mut self, at: usize, ticket: u64) {
        self.say(|| format!("{at} accepts {ticket}"));
        // This node and f others hold each tuple, durably.
        let needed = self.config.copies.min(self.members.len() - 1) + 1;
        let lossless = self.losses == 0;
        let mut accepted = Vec::new();
        for (id, tuple) in self.of_ticket(at, ticket) {
            tuple.accepted = true;
            if lossless && tuple.forwarded == 0 {
                accepted.push(*id);
            }
        }
        for id in accepted {
            let sites = self.sites.iter();
            let holds = sites.filter(|site| site.disk.payloads.contains_key(&id));
            let holds = holds.count();
            if holds < needed {
                self.fail(format!("D1: {id:?} is accepted with {holds} copies"));
            }
        }
    }

    pub(super) fn refused(&mut self, at: usize, ticket: u64, why: Refusal) {
        self.say(|| format!("{at} refuses {ticket}: {why}"));
        self.of_ticket(at, ticket)
            .for_each(|(_, tuple)| tuple.refused = true);
    }

    /// Whether two nodes cannot hear each other.
    pub fn apart(&self, one: usize, other: usize) -> bool {
        let pairs = [(one, other), (other, one)];
        let lost = |pair| self.cut.contains(pair) || self.broken.contains(pair);
        !self.is_linked(one, other) || pairs.iter().any(lost)
    }

    /// Notes which tuples may be forwarded again.
    pub fn excuse(&mut self) {
        let ids: Vec<Id> = self.tuples.keys().copied().collect();
        for id in ids {
            let holders: Vec<usize> = (0..self.sites.len())
                .filter(|at| {
                    let site = &self.sites[*at];
                    let queue = site.queue.as_ref();
                    site.disk.records.contains_key(&id)
                        || queue.is_some_and(|queue| queue.get(id).is_some())
                })
                .collect();
            // Also one that waits for acceptance: another may have adopted from it.
            let acting = |at: &&usize| {
                let queue = self.sites[**at].queue.as_ref();
                let tuple = queue.and_then(|queue| queue.get(id));
                tuple.is_some_and(|tuple| tuple.owners.first() == node(**at))
            };
            let many = holders.iter().filter(acting).count() > 1;
            if let Some(tuple) = self.tuples.get_mut(&id) {
                tuple.two_acted |= many;
            }
            let down = holders.iter().any(|at| self.sites[*at].queue.is_none());
            let apart = holders.iter().any(|one| {
                holders
                    .iter()
                    .any(|other| one != other && self.apart(*one, *other))
            });
            if let Some(tuple) = self.tuples.get_mut(&id).filter(|tuple| tuple.forwarded > 0) {
                tuple.excused |= many || down || apart;
            }
        }
    }

    /// The consumer takes a tuple from a node.
    pub fn consume(&mut self, at: usize, id: Id) {
        self.excuse();
        self.say(|| format!("{at} forwards {id:?}"));
        let losses = self.losses;
        let Some(tuple) = self.tuples.get_mut(&id) else {
            return;
        };
        tuple.forwarded += 1;
        if tuple.tracked {
            // The store knows what it has, until it has forgotten it.
            if tuple.forgotten {
                self.fail(format!(
                    "D2: {id:?} is delivered again by {at} after it was forgotten"
                ));
            }
        } else if tuple.forwarded > 1 && !tuple.excused && losses == 0 {
            self.fail(format!(
                "Q1: {id:?} is forwarded again by {at}, without any fault"
            ));
        }
        self.excuse();
    }

    pub fn consume_slowly(&mut self, at: usize, id: Id) {
        let tuple = self.tuples.get(&id);
        if tuple.is_some_and(|tuple| !tuple.unanswered.contains(&at)) {
            self.consume(at, id);
            if let Some(tuple) = self.tuples.get_mut(&id) {
                tuple.unanswered.push(at);
            }
            // Nobody takes it from this node twice at a time.
            self.sites[at].mine.remove(&id);
        }
    }

    pub fn answer(&mut self, at: usize, id: Id) {
        if let Some(tuple) = self.tuples.get_mut(&id) {
            tuple.unanswered.retain(|of| *of != at);
        }
    }

    pub fn answers_for(&self, at: usize) -> Vec<Id> {
        let tuples = self.tuples.iter();
        let ids = tuples.filter(|(_, tuple)| tuple.unanswered.contains(&at));
        ids.map(|(id, _)| *id).collect()
    }

    /// A node that has crashed gets no answer.
    pub fn forget_answers(&mut self, at: usize) {
        for tuple in self.tuples.values_mut() {
            tuple.unanswered.retain(|of| *of != at);
        }
    }

    /// The user has removed what was delivered, and all replicas of the store know it.
    pub fn make_stable(&mut self, id: Id) {
        let waves = self.sites.iter().enumerate().filter_map(|(at, site)| {
            let queue = site.queue.as_ref()?;
            Some((at, queue.wave()))
        });
        let waves: BTreeMap<usize, u64> = waves.collect();
        if let Some(tuple) = self.tuples.get_mut(&id)
            && tuple.tracked
            && tuple.forwarded > 0
            && tuple.stable.is_none()
        {
            tuple.stable = Some(waves);
        }
    }

    /// A wave is over: what was stable before it began is forgotten, if it is below all.
    pub(super) fn swept(&mut self, at: usize, wave: u64, least: Option<Id>) {
        let ids: Vec<Id> = self
            .tuples
            .iter()
            .filter(|(id, tuple)| {
                let stable = tuple.stable.as_ref().and_then(|waves| waves.get(&at));
                stable.is_some_and(|stable| wave > *stable)
                    && least.is_none_or(|least| **id < least)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            if let Some(tuple) = self.tuples.get_mut(&id) {
                tuple.forgotten = true;
            }
            let holder = (0..self.sites.len()).find(|other| {
                let site = &self.sites[*other];
                let queue = site.queue.as_ref();
                let held = queue.is_some_and(|queue| queue.acts_on(id));
                self.is_member(*other)
                    && (held || site.requests.iter().any(|request| request.1 == id))
            });
            if let Some(holder) = holder {
                self.fail(format!("D2: {at} forgets {id:?} while {holder} acts on it"));
            }
            let on_its_way = self.channels.iter().find(|(pair, channel)| {
                let is_it = |message: &Message| match message {
                    Message::Frame(Frame::Store(stores)) => stores
                        .iter()
                        .any(|store| store.id == id && store.payload.is_some()),
                    Message::Deliver(of) => *of == id,
                    _ => false,
                };
                self.is_linked(pair.0, pair.1) && channel.iter().any(is_it)
            });
            if let Some((pair, _)) = on_its_way {
                let pair = *pair;
                self.fail(format!(
                    "D2: {at} forgets {id:?} while it is on its way: {pair:?}"
                ));
            }
        }
    }

    /// What must hold in the end.
    pub fn check_end(&mut self) {
        let too_many = self.losses > self.config.copies;
        let lost = self
            .tuples
            .iter()
            .find(|(_, tuple)| tuple.accepted && tuple.forwarded == 0);
        if let Some((id, _)) = lost.filter(|_| !too_many) {
            let id = *id;
            self.fail(format!("D1: {id:?} was accepted and never forwarded"));
        }
        if let Some(left) = self.leftover() {
            self.fail(format!("quiet: {left}"));
        }
    }

    /// Rules A, B and C: what is said is durable.
    pub(super) fn check_said(&mut self, at: usize, to: usize, frame: &Frame) {
        let mut wrong = None;
        let disk = &self.sites[at].disk;
        let record = |id: Id| disk.records.get(&id);
        let tuple_at = |id: Id| match record(id) {
            Some(Record::Tuple {
                ownership, sent, ..
            }) => Some((ownership, *sent)),
            _ => None,
        };
        let covers = |id: Id, said: &Ownership| {
            tuple_at(id).is_some_and(|(ownership, _)| {
                ownership.version() == said.version()
                    && said.holders.minus(ownership.holders).is_empty()
            })
        };
        match frame {
            Frame::Stored(list) => {
                for (id, version) in list {
                    if tuple_at(*id).is_none_or(|(ownership, _)| ownership.version() != *version) {
                        wrong = Some(*id);
                    }
                }
            }
            Frame::Know(list) => {
                for know in list {
                    if let Knowledge::Holds(said) = &know.knowledge
                        && !covers(know.id, said)
                    {
                        wrong = Some(know.id);
                    }
                }
            }
            Frame::Store(list) => {
                for store in list {
                    let tuple = self.tuples.get(&store.id);
                    let first = tuple.is_some_and(|tuple| tuple.at == at && !tuple.accepted)
                        && store.ownership.term == 1;
                    let named = tuple_at(store.id).is_some_and(|(_, sent)| sent.contains(node(to)));
                    let durable = named && covers(store.id, &store.ownership);
                    if !first && !durable {
                        wrong = Some(store.id);
                    }
                }
            }
            Frame::Delete(list) => {
                for delete in list.iter().filter(|delete| !delete.finished) {
                    let durable = tuple_at(delete.id).is_some_and(|(ownership, _)| {
                        ownership.version() == delete.version
                            && delete.holders.minus(ownership.holders).is_empty()
                    });
                    if !durable {
                        wrong = Some(delete.id);
                    }
                }
            }
            Frame::Deleted(list) => {
                for deleted in list {
                    if tuple_at(deleted.id).is_some() {
                        wrong = Some(deleted.id);
                    }
                }
            }
            _ => {}
        }
        if let Some(id) = wrong {
            self.fail(format!(
                "A: {at} says what its disk does not, of {id:?}: {frame:?}"
            ));
        }
    }

    /// A tuple is acted on when it is accepted; what was found at a start, when the others were met.
    pub(super) fn check_mine(&mut self, at: usize, id: Id) {
        if let Some(tuple) = self.tuples.get_mut(&id) {
            tuple.acted.insert(at);
        }
        let site = &self.sites[at];
        let Some(queue) = &site.queue else {
            return;
        };
        let others = self.members.without(node(at));
        let linked: Nodes = others
            .iter()
            .filter(|other| self.is_linked(at, usize::from(other.number())))
            .collect();
        let compared = linked.minus(queue.compared()).is_empty();
        let in_time = self.now < site.started.1 + self.config.start_wait;
        let met = compared && (linked == others || !in_time);
        let tuple = &self.tuples[&id];
        let open =
            tuple.at == at && tuple.start == site.started.0 && !tuple.accepted && !tuple.refused;
        if open {
            self.fail(format!("{at} acts on {id:?} before it is accepted"));
        } else if site.found.contains(&id) && !met && in_time && tuple.start != site.started.0 {
            self.fail(format!(
                "{at} acts on {id:?}, found at its start, before it has met the others"
            ));
        }
        // Later on others may come and go.
        self.sites[at].found.remove(&id);
    }

    /// F: what is known as done stays so.
    pub(super) fn check_progress(&mut self, at: usize) {
        let ids: Vec<Id> = self.tuples.keys().copied().collect();
        for id in ids {
            let queue = self.sites[at].queue.as_ref();
            let Some(now) = queue.and_then(|queue| queue.get(id)) else {
                self.sites[at].progress.remove(&id);
                continue;
            };
            let before = self.sites[at].progress.insert(id, now.progress.clone());
            let before = before.unwrap_or_default();
            let has = |place: usize, bits: u8| {
                now.progress
                    .get(place)
                    .is_some_and(|byte| byte & bits == bits)
            };
            if !before
                .iter()
                .enumerate()
                .all(|(place, bits)| has(place, *bits))
            {
                self.fail(format!("F: {at} forgets what was done of {id:?}"));
            }
        }
    }

    /// D1, at every moment: what is accepted and not forwarded is on the disks of f + 1 nodes, but for those that were lost.
    pub(super) fn check_copies(&mut self) {
        let needed = self.config.copies.min(self.members.len() - 1) + 1;
        let holds = |id: Id| {
            let sites = self.sites.iter();
            sites
                .filter(|site| site.disk.payloads.contains_key(&id))
                .count()
        };
        let few = self.tuples.iter().find(|(id, tuple)| {
            tuple.accepted && tuple.forwarded == 0 && holds(**id) + self.losses < needed
        });
        if let Some((id, _)) = few {
            let id = *id;
            self.fail(format!("D1: {id:?} has {} copies", holds(id)));
        }
    }

    /// E: when the last tombstone goes, no copy is left, and none is on its way.
    pub(super) fn check_tombstones(&mut self, at: usize) {
        let ids: Vec<Id> = self.tuples.keys().copied().collect();
        for id in ids {
            let queue = self.sites[at].queue.as_ref();
            let has = queue.is_some_and(|queue| !queue.waits_for(id).is_empty());
            let had = if has {
                !self.sites[at].tombs.insert(id)
            } else {
                self.sites[at].tombs.remove(&id)
            };
            let is_up = self.sites[at].queue.is_some();
            if !had || has || !is_up || self.tuples[&id].two_acted || self.losses > 0 {
                continue;
            }
            let members = || (0..self.sites.len()).filter(|other| self.is_member(*other));
            let tomb = members().any(|other| {
                let site = &self.sites[other];
                let waits = site
                    .queue
                    .as_ref()
                    .is_some_and(|queue| !queue.waits_for(id).is_empty());
                waits || matches!(site.disk.records.get(&id), Some(Record::Tombstone { .. }))
            });
            let copy = members().find(|other| {
                let site = &self.sites[*other];
                let held = site
                    .queue
                    .as_ref()
                    .is_some_and(|queue| queue.get(id).is_some());
                held || site.disk.payloads.contains_key(&id) && *other != at
            });
            let sent = self.channels.iter().find(|(pair, channel)| {
                self.is_linked(pair.0, pair.1) && channel.iter().any(|message| carries(message, id))
            });
            if !tomb && let Some(other) = copy {
                self.fail(format!(
                    "E: the last tombstone of {id:?} is gone, and {other} has a copy"
                ));
            } else if !tomb && let Some((pair, _)) = sent {
                let pair = *pair;
                self.fail(format!(
                    "E: the last tombstone of {id:?} is gone, and a copy is on its way: {pair:?}"
                ));
            }
        }
    }

    /// Nobody adopts while an earlier owner is alive and heard, and acts.
    pub(super) fn check_adoptions(&mut self, at: usize) {
        let ids: Vec<Id> = self.tuples.keys().copied().collect();
        let queue = self.sites[at].queue.as_ref();
        let adopted = queue.map_or(0, |queue| queue.counters().adopted);
        let adopts = std::mem::replace(&mut self.sites[at].adopted, adopted) != adopted;
        for id in ids {
            let queue = self.sites[at].queue.as_ref();
            let now = queue.and_then(|queue| Some((queue.get(id)?.owners, queue.acts_on(id))));
            let before = match now {
                Some(now) => self.sites[at].seen.insert(id, now),
                None => self.sites[at].seen.remove(&id),
            };
            let (Some((_, true)), Some((owners, false)), true) = (now, before, adopts) else {
                continue;
            };
            let queue = self.sites[at].queue.as_ref();
            let before = owners
                .as_slice()
                .iter()
                .take_while(|owner| **owner != node(at));
            let alive = before.copied().find(|owner| {
                let site = &self.sites[usize::from(owner.number())];
                let acts = site.queue.as_ref().is_some_and(|queue| queue.acts_on(id));
                let heard = queue.is_some_and(|queue| {
                    queue.state_of(*owner) == whimbrel_queue::PeerState::Active
                });
                acts && heard && site.disk.payloads.contains_key(&id)
            });
            if let Some(owner) = alive {
                self.fail(format!(
                    "N1: {at} adopts {id:?} while {owner} is heard and acts"
                ));
            }
        }
    }
}

/// Whether a message brings a tuple to where it may not be.
fn carries(message: &Message, id: Id) -> bool {
    match message {
        Message::Frame(Frame::Store(stores)) => stores
            .iter()
            .any(|store| store.id == id && store.payload.is_some()),
        Message::Deliver(of) => *of == id,
        Message::Frame(_) | Message::Delivered(_) => false,
    }
}
