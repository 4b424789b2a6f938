//! Nodes whose links are slower than they are waited for: claims end all the same (docs/design.md#rule-5).
//!
//! A world of events in virtual time: operations and counters arrive after the delay of their link, in order; a reader looks all the time at each node.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{Dot, Incarnation, VersionVector};
use whimbrel_mailbox::*;
use whimbrel_testkit::Rng;

use crate::message::{BLOB, message};

const ACCOUNT: AccountId = AccountId([9; 16]);
const START: u64 = 1_700_000_100_000_000;
const SECOND: u64 = 1_000_000;
/// A node waits for another so long at first, as where nothing was measured.
const TIMEOUT_MICROS: u64 = 2 * SECOND;

/// Who made it, number and time of the first, what it depends on, the counter it carries.
#[derive(Clone)]
struct Sent {
    origin: Incarnation,
    first: u64,
    hlc: u64,
    deps: VersionVector,
    counter: u32,
    ops: Vec<Op>,
}

enum Event {
    Batch(Sent),
    /// A counter of a peer, and the number of its own log at which it was announced.
    Counter(usize, u64, u32),
    Append,
    /// Something may have waited long enough.
    Time,
}

struct Node {
    replica: Replica,
    applied: VersionVector,
    /// What depends on something that is not here.
    early: Vec<Sent>,
    /// Of each peer the greatest counter that counts, and those that wait for its log.
    heard: BTreeMap<usize, u32>,
    counters: Vec<(usize, u64, u32)>,
    announced: u32,
    /// When it looks whether something has waited long enough.
    times: BTreeSet<u64>,
}

struct World {
    now: u64,
    /// From node to node.
    delays: Vec<Vec<u64>>,
    /// Whether claims made again go in blocks by rank.
    by_rank: bool,
    nodes: Vec<Node>,
    events: BTreeMap<(u64, u64), (usize, Event)>,
    count: u64,
    uids_reassigned: BTreeMap<(usize, MessageId), usize>,
    waited_micros: u64,
}

fn maker(node: usize) -> Incarnation {
    Incarnation::new(node as u64 + 1).expect("not zero")
}

fn inbox() -> MailboxName {
    MailboxName::inbox()
}

impl World {
    fn new(delays: Vec<Vec<u64>>, by_rank: bool) -> World {
        let node = |i: usize| Node {
            replica: Replica::new(ACCOUNT, i as u8 + 1),
            applied: VersionVector::new(),
            early: Vec::new(),
            heard: BTreeMap::new(),
            counters: Vec::new(),
            announced: 0,
            times: BTreeSet::new(),
        };
        let mut world = World {
            now: 0,
            nodes: (0..delays.len()).map(node).collect(),
            delays,
            by_rank,
            events: BTreeMap::new(),
            count: 0,
            uids_reassigned: BTreeMap::new(),
            waited_micros: 0,
        };
        let open = world.nodes[0].replica.plan_open(1_700_000_000, 3, &[]).ops;
        world.make(0, open);
        // Known everywhere before it is read.
        while let Some(((_, _), (node, event))) = world.events.pop_first() {
            world.happens(node, event);
        }
        world
    }

    fn after(&mut self, micros: u64, node: usize, event: Event) {
        self.count += 1;
        self.events
            .insert((self.now + micros, self.count), (node, event));
    }

    fn tell_others(&mut self, from: usize, event: impl Fn() -> Event) {
        for to in (0..self.nodes.len()).filter(|to| *to != from) {
            self.after(self.delays[from][to], to, event());
        }
    }

    fn peers(&self, i: usize) -> Peers {
        let others = (0..self.nodes.len()).filter(|other| *other != i);
        let peers = others.map(|other| Peer {
            slot: other as u8 + 1,
            heard: self.nodes[i].heard.get(&other).copied().unwrap_or(0),
            timeout_micros: TIMEOUT_MICROS,
        });
        Peers::new(self.now, peers.collect())
    }

    fn at(&self, i: usize) -> At {
        let origin = maker(i);
        At {
            now_micros: START + self.now,
            next: Dot::new(origin, self.nodes[i].applied.get(origin) + 1),
        }
    }

    fn apply(&mut self, i: usize, sent: &Sent) -> bool {
        let peers = self.peers(i);
        let node = &mut self.nodes[i];
        let last = sent.first - 1 + sent.ops.len() as u64;
        node.applied.advance(sent.origin, last);
        let step = Step {
            origin: sent.origin,
            first: sent.first,
            hlc: sent.hlc,
            deps: &sent.deps,
            applied: &node.applied,
            now_micros: START + self.now,
            peers: &peers,
        };
        let effects = node.replica.apply(&step, sent.ops.clone());
        effects.expect("in order").late
    }

    /// Applied here, and sent.
    fn make(&mut self, i: usize, ops: Vec<Op>) {
        let node = &self.nodes[i];
        let mut sent = Sent {
            origin: maker(i),
            first: node.applied.get(maker(i)) + 1,
            hlc: START + self.now,
            deps: node.applied.clone(),
            counter: 0,
            ops,
        };
        self.apply(i, &sent);
        sent.counter = self.nodes[i].replica.counter();
        self.tell_others(i, || Event::Batch(sent.clone()));
    }

    fn happens(&mut self, i: usize, event: Event) {
        match event {
            Event::Batch(sent) => self.nodes[i].early.push(sent),
            Event::Counter(peer, upto, counter) => {
                self.nodes[i].counters.push((peer, upto, counter));
            }
            Event::Append => {
                let at = self.at(i);
                let plan = self.nodes[i]
                    .replica
                    .plan_append(&at, &inbox(), vec![message(BLOB)]);
                self.make(i, plan.expect("INBOX is there").ops);
            }
            Event::Time => {}
        }
        let depends = |node: &Node, sent: &Sent| {
            sent.deps
                .iter()
                .all(|(of, number)| node.applied.get(of) >= number)
                && node.applied.get(sent.origin) + 1 == sent.first
        };
        while let Some(at) =
            (self.nodes[i].early.iter()).position(|sent| depends(&self.nodes[i], sent))
        {
            let sent = self.nodes[i].early.remove(at);
            self.apply(i, &sent);
            let origin = sent.origin.get() as usize - 1;
            self.nodes[i].counters.push((origin, 0, sent.counter));
        }
        let node = &mut self.nodes[i];
        for (peer, upto, counter) in &node.counters {
            if *upto <= node.applied.get(maker(*peer)) {
                let heard = node.heard.entry(*peer).or_default();
                *heard = (*counter).max(*heard);
            }
        }
        let applied = &node.applied;
        (node.counters).retain(|(peer, upto, _)| *upto > applied.get(maker(*peer)));
        self.show(i);
    }

    /// What was heard releases what waits; then a reader looks, what is late is claimed again, and all others get this node's counter.
    fn show(&mut self, i: usize) {
        loop {
            let peers = self.peers(i);
            let now = START + self.now;
            let effects = self.nodes[i].replica.release(now, &peers);
            self.nodes[i].replica.announce(&inbox());
            if let Some(until) = effects.wait_until {
                self.waited_micros = self.waited_micros.max(until - self.now);
                if self.nodes[i].times.insert(until) {
                    self.after(until - self.now, i, Event::Time);
                }
            }
            let rank = match self.by_rank {
                true => peers,
                false => Peers::none(),
            };
            let late = self.nodes[i].replica.plan_late(&self.at(i), &rank).ops;
            if late.is_empty() {
                break;
            }
            for op in &late {
                if let Op::Claim { claims, .. } = op {
                    for claim in claims {
                        *self.uids_reassigned.entry((i, claim.message)).or_default() += 1;
                    }
                }
            }
            self.make(i, late);
        }
        self.nodes[i].replica.take_dirty();
        let counter = self.nodes[i].replica.counter();
        if counter > self.nodes[i].announced {
            self.nodes[i].announced = counter;
            let upto = self.nodes[i].applied.get(maker(i));
            self.tell_others(i, || Event::Counter(i, upto, counter));
        }
    }

    /// Each appends when it is said, then nobody writes any more. Whether claims end.
    fn ends(&mut self, appends: &[(u64, usize)], events_max: u64) -> bool {
        for (time, node) in appends {
            self.after(*time, *node, Event::Append);
        }
        let end = self.count + events_max;
        while let Some(((time, _), (node, event))) = self.events.pop_first() {
            self.now = time;
            self.happens(node, event);
            if self.count > end {
                return false;
            }
        }
        let all: BTreeSet<Vec<u32>> = (self.nodes.iter())
            .map(|node| node.replica.uids(&inbox()))
            .collect();
        assert_eq!(all.len(), 1, "all show the same: {all:?}");
        assert_eq!(all.first().map(Vec::len), Some(appends.len()));
        assert!(self.nodes.iter().all(|node| node.replica.is_clean()));
        assert!(self.waited_micros <= TIMEOUT_MICROS_MAX);
        true
    }

    fn most_claims(&self) -> usize {
        self.uids_reassigned.values().copied().max().unwrap_or(0)
    }
}

fn alike(nodes: usize, micros: u64) -> Vec<Vec<u64>> {
    vec![vec![micros; nodes]; nodes]
}

/// Two nodes, three messages, each visible before the other node has heard of it: two claims are always on their way, and each arrives below what was
/// announced there (`proofs/proof/Restless.v`, `bouncing`).
#[test]
fn bouncing_ends() {
    let mut random = Rng::new(1);
    for history in 0..400 {
        let delay = 1_100_000 + random.below(11 * SECOND);
        let appends = [0, 1, 0].map(|node| (random.below(6 * SECOND), node));
        let mut world = World::new(alike(2, delay), history % 2 == 0);
        assert!(world.ends(&appends, 2_000), "{delay} {appends:?}");
        assert!(world.most_claims() <= 9, "{:?}", world.uids_reassigned);
    }
}

/// On such a link the mail of a node that writes all the time becomes visible all the same: what is new waits for what is claimed
/// again, and does not overtake it.
#[test]
fn what_is_new_does_not_overtake() {
    for delay in [1_100_000, 3 * SECOND, 6 * SECOND] {
        let appends: Vec<(u64, usize)> =
            (0..240).map(|n| (n * SECOND / 2, n as usize % 2)).collect();
        let mut world = World::new(alike(2, delay), true);
        assert!(world.ends(&appends, 40_000));
        let claims: usize = world.uids_reassigned.values().sum();
        assert!(claims <= appends.len() && world.most_claims() <= 2);
    }
}

/// Random bursts, on links of which each way has a delay of its own.
#[test]
fn bursts_end() {
    let mut random = Rng::new(1);
    let mut below = |bound| random.below(bound);
    for nodes in [2, 3] {
        for burst in 0..60 {
            let delays = if burst % 2 == 0 {
                alike(nodes, SECOND + below(11 * SECOND))
            } else {
                let mut row = || (0..nodes).map(|_| SECOND + below(11 * SECOND)).collect();
                (0..nodes).map(|_| row()).collect()
            };
            let appends: Vec<(u64, usize)> = (0..15)
                .map(|_| (below(6 * SECOND), below(nodes as u64) as usize))
                .collect();
            let mut world = World::new(delays.clone(), burst % 4 < 2);
            assert!(world.ends(&appends, 40_000), "{delays:?} {appends:?}");
        }
    }
}
