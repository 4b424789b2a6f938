//! Nodes that leave the account's partition and come back, at any moment: what was acknowledged is there, once, and who was a client of one that has
//! left overlooks nothing anywhere.

use whimbrel_service::peers::{Holders, LeftReport, PartitionReport, Phase};
use whimbrel_testkit::Rng;

use super::*;

const NODES: usize = 4;
/// So many hold the partition, at least.
const LEAST: usize = 2;
const STEPS: u64 = 150;

/// In `service::owner`.
#[cfg(feature = "mutants")]
const RULES: &[&str] = &["left-before-told-is-stable", "left-unasked"];

/// What a client knows of INBOX: UIDNEXT, and what it was shown.
struct Knows {
    uid_next: u32,
    bodies: BTreeSet<u32>,
}

/// What each node says of itself, and what it has heard of the others.
struct Placed {
    cluster: Cluster,
    rng: Rng,
    holders: Vec<Holders>,
    /// Nobody is linked.
    cut: bool,
    acknowledged: BTreeSet<u32>,
    sent: BTreeSet<u32>,
    /// Clients of the nodes, as they hold the partition now, and of those that have left it.
    clients: Vec<Option<Knows>>,
    former: Vec<Knows>,
    left: usize,
    returned: usize,
}

impl Placed {
    fn new(seed: u64) -> Placed {
        let mut cluster = Cluster::new(NODES as u64);
        for (_, node) in &mut cluster.nodes {
            node.hold_at_least(LEAST);
        }
        cluster.link(true);
        Placed {
            cluster,
            rng: Rng::new(seed),
            holders: vec![Holders::default(); NODES],
            cut: false,
            acknowledged: BTreeSet::new(),
            sent: BTreeSet::new(),
            clients: (0..NODES).map(|_| None).collect(),
            former: Vec::new(),
            left: 0,
            returned: 0,
        }
    }

    fn partition() -> PartitionId {
        owner::keys::partition_of(ANNE)
    }

    fn phase(&self, node: usize) -> Phase {
        let id = self.cluster.nodes[node].0;
        self.holders[node].holder_state(id, Self::partition()).phase
    }

    fn report(&self, node: usize) -> Option<PartitionReport> {
        let reports = self.cluster.nodes[node].1.reports().into_iter();
        reports
            .into_iter()
            .find(|of| of.partition == Self::partition())
    }

    fn left(&self, node: usize) -> Option<LeftReport> {
        self.report(node)?.left
    }

    fn is_complete(&self, node: usize) -> bool {
        let report = self.report(node).filter(|of| of.open.is_some());
        self.phase(node) == Phase::Holds && report.is_none_or(|of| !of.syncing)
    }

    /// A node says how it stands: it keeps that, and its machines and peers hear it.
    fn say(&mut self, node: usize, phase: Phase) {
        let (id, partition) = (self.cluster.nodes[node].0, Self::partition());
        let end = self.left(node).map_or(0, |left| left.end);
        let holders = &mut self.holders[node];
        let before = holders.holder_state(id, partition).phase;
        let said = match (before, phase) {
            (_, Phase::Leaves) => holders.leave(id, partition),
            (_, Phase::Away) => holders.left(id, partition, end),
            (Phase::Away, Phase::Holds) => holders.come(id, partition),
            (_, Phase::Holds) => holders.stay(id, partition),
        };
        said.expect("in turn");
        self.heard(node);
    }

    /// Its machines are told, and then its peers.
    fn heard(&mut self, node: usize) {
        let holders = self.holders[node].clone();
        self.cluster.nodes[node]
            .1
            .placed(&holders, Self::partition());
        self.cluster.carry();
        if self.cut {
            return;
        }
        for other in 0..NODES {
            if other != node && self.holders[other].join(&holders) {
                self.heard(other);
            }
        }
    }

    fn link(&mut self, up: bool) {
        self.cut = !up;
        if up {
            // What they know comes before anything else.
            for node in 0..NODES {
                self.heard(node);
            }
        }
        self.cluster.link(up);
    }

    fn crash(&mut self, node: usize) {
        let id = self.cluster.nodes[node].0;
        let seed = self.rng.number();
        for other in (0..NODES).filter(|other| *other != node) {
            self.cluster.nodes[other].1.link(id, false);
        }
        self.cluster
            .awake
            .retain(|(from, to, _)| *from != node && *to != node);
        self.cluster.nodes[node].1.crash(seed);
        let holders = self.holders[node].clone();
        self.cluster.nodes[node]
            .1
            .placed(&holders, Self::partition());
        if !self.cut {
            for other in (0..NODES).filter(|other| *other != node) {
                let peer = self.cluster.nodes[other].0;
                self.cluster.nodes[node].1.link(peer, true);
                self.cluster.nodes[other].1.link(id, true);
            }
        }
    }

    /// What a node does of itself: it goes on with what it has begun, and begins another.
    fn move_on(&mut self, node: usize, calm: bool) {
        match (self.phase(node), self.left(node)) {
            (Phase::Leaves, Some(_)) => {
                self.left += 1;
                self.former.extend(self.clients[node].take());
                self.say(node, Phase::Away);
            }
            (Phase::Leaves, None) if calm || self.rng.one_in(6) => self.say(node, Phase::Holds),
            (Phase::Away, Some(left)) if left.is_gone && (calm || self.rng.one_in(2)) => {
                self.returned += 1;
                self.say(node, Phase::Holds);
            }
            (Phase::Holds, None) if !calm && self.is_complete(node) && self.rng.one_in(2) => {
                self.say(node, Phase::Leaves);
            }
            _ => {}
        }
    }

    fn step(&mut self, body: u32) {
        let node = self.rng.below(NODES as u64) as usize;
        match self.rng.below(13) {
            0..=2 if self.is_complete(node) => {
                self.sent.insert(body);
                if self.appended(node, body) {
                    self.acknowledged.insert(body);
                }
            }
            3..=5 => {
                self.sent.insert(body);
                let request = self.cluster.mail(node, body);
                if matches!(self.cluster.await_answer(request), Reply::Done) {
                    self.acknowledged.insert(body);
                }
            }
            6..=8 => self.move_on(node, false),
            9 => self.crash(node),
            10 if self.rng.one_in(3) => {
                let up = self.cut;
                self.link(up);
            }
            11 if self.is_complete(node) => self.look(node),
            _ => {
                let seconds = self.rng.below(4);
                self.cluster.pass(seconds);
            }
        }
        self.cluster.carry();
    }

    /// A client looks at what a node shows. So do those of nodes that have left: they ask only for what is above their UIDNEXT, and name nothing.
    fn look(&mut self, node: usize) {
        let call = MailboxCall::Select {
            session: SESSION,
            name: inbox(),
            read_only: true,
        };
        // It may be syncing, and has not said so yet.
        let Reply::Selected(selected) = self.cluster.call(node, call) else {
            return;
        };
        let uid_next = selected.status.uid_next;
        let shown = self.cluster.shown(node);
        for knows in &self.former {
            let new =
                |(body, uid): &&(u32, u32)| *uid < knows.uid_next && !knows.bodies.contains(body);
            let overlooked: Vec<_> = shown.iter().filter(new).collect();
            let from = knows.uid_next;
            assert!(
                overlooked.is_empty(),
                "who asks node {node} from {from} overlooks {overlooked:?}"
            );
        }
        let bodies = shown.iter().filter(|(_, uid)| *uid < uid_next);
        let bodies = bodies.map(|(body, _)| *body).collect();
        self.clients[node] = Some(Knows { uid_next, bodies });
    }

    /// Whether a client was told that its message is there.
    fn appended(&mut self, node: usize, body: u32) -> bool {
        let text = format!("message {body}");
        let Some(blob) = self.cluster.nodes[node].1.upload(text.clone().into()) else {
            return false;
        };
        let content = Content {
            prefix: bytes::Bytes::new(),
            summary: text.into(),
        };
        let call = MailboxCall::Append {
            session: SESSION,
            name: inbox(),
            messages: vec![NewMail {
                flags: Flags::none(),
                date: Date {
                    seconds: 1,
                    zone_minutes: 0,
                },
                size: body,
                open_end: false,
                blob,
                content: content.encode(),
            }],
            replaces: None,
        };
        matches!(self.cluster.call(node, call), Reply::Appended { .. })
    }

    /// All is healed, and all nodes hold the partition: each shows all that was acknowledged, and nothing twice.
    fn check(&mut self, seed: u64) {
        if self.cut {
            self.link(true);
        }
        for _ in 0..60 {
            for node in 0..NODES {
                self.move_on(node, true);
            }
            self.cluster.pass(5);
            let queued = self.cluster.nodes.iter().map(|(_, node)| node.queue_len());
            let whole = (0..NODES).all(|node| self.is_complete(node));
            if whole && queued.sum::<usize>() == 0 {
                break;
            }
        }
        for node in 0..NODES {
            let queued = self.cluster.nodes[node].1.queue_len();
            assert!(
                self.is_complete(node) && queued == 0,
                "{seed}: node {node} waits with {queued}"
            );
            self.look(node);
            let bodies = self.cluster.bodies_of(node);
            let once: BTreeSet<u32> = bodies.iter().copied().collect();
            assert_eq!(once.len(), bodies.len(), "{seed}: D2 at node {node}");
            let lost: Vec<_> = self.acknowledged.difference(&once).collect();
            assert!(lost.is_empty(), "{seed}: D1 at node {node}: {lost:?}");
            assert!(once.is_subset(&self.sent), "{seed}");
        }
        let first = self.cluster.shown(0);
        for node in 1..NODES {
            assert_eq!(self.cluster.shown(node), first, "{seed}: U3 at node {node}");
        }
    }
}

/// One history. How often nodes have left, and come back, and deliveries that others have made.
fn play(seed: u64) -> [u64; 3] {
    let mut placed = Placed::new(seed);
    for body in 1..=STEPS as u32 {
        placed.step(body);
    }
    placed.check(seed);
    let figures = placed.cluster.nodes.iter().map(|(_, node)| node.figures());
    let handed = figures.map(|of| of.deliveries_forwarded).sum::<u64>();
    [placed.left as u64, placed.returned as u64, handed]
}

#[test]
fn what_was_acknowledged_stays_where_nodes_leave_and_come_back() {
    let seeds = std::env::var("WHIMBREL_SEEDS");
    let seeds = seeds.ok().and_then(|seeds| seeds.parse().ok());
    let seeds = seeds.unwrap_or(30);
    let mut sums = [0; 3];
    for seed in 0..seeds {
        let counted = play(seed);
        sums = std::array::from_fn(|index| sums[index] + counted[index]);
    }
    assert!(sums.iter().all(|sum| *sum >= seeds), "{sums:?}");
}

/// Each of these, broken on purpose, is noticed.
#[cfg(feature = "mutants")]
#[test]
fn rules_of_leaving_are_missed_when_they_are_broken() {
    use whimbrel_crdt::mutants::break_rule;
    std::panic::set_hook(Box::new(|_| {}));
    let survives = |rule: &&&'static str| {
        break_rule(Some(rule));
        let noticed = (0..300).any(|seed| std::panic::catch_unwind(|| play(seed)).is_err());
        break_rule(None);
        !noticed
    };
    let survivors: Vec<_> = RULES.iter().filter(survives).collect();
    let _ = std::panic::take_hook();
    assert!(survivors.is_empty(), "{survivors:?}");
}
