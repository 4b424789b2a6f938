//! Two nodes that are linked compare what each may hold of the other's tuples, and find the differences in a few round trips.
//!
//! The node with the lower number asks. It sends sums over parts of the ids; the other answers with sums of its own for the parts that differ, cut smaller;
//! and so on, until a part has so few ids that both name them. (Range-based set reconciliation: Meyer, 2022.) What an ended link lost is made good by
//! this alone.

use std::collections::VecDeque;

use super::{Queue, peers::Statement, say::Say};
use crate::{
    api::{Close, Output},
    frame::{Frame, Part, Shown, Split},
    mutants::broken,
    table::{Flag, Row},
    types::{Id, Node, Nodes},
};

/// Parts of a range.
const PARTS: usize = 16;

/// A range with so few ids at both nodes is not cut any more.
const NAMED_MAX: u32 = 64;

/// Questions under way to one peer.
const OPEN_MAX: usize = 4;

/// More than so many payloads that are to be sent again hold up the comparison.
const LOADS_MAX: usize = 256;

/// Where the comparison with a peer is.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Comparing {
    /// This node asks, and has not said that it is over.
    asks: bool,
    /// Ranges that are to be cut and sent.
    ranges: Vec<(Id, Id)>,
    /// Ranges that are to be named.
    named: Vec<(Id, Id)>,
    /// Questions that are not answered.
    open: usize,
    /// Questions of the other node.
    questions: VecDeque<Vec<Split>>,
    /// The other node has said that it is over.
    ended: bool,
    over: bool,
}

impl Comparing {
    /// Whether both have said what the other did not know.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }
}

/// Two words as one, in a way that spreads all bits.
fn mix(one: u64, other: u64) -> u64 {
    let product =
        u128::from(one ^ 0x9e37_79b9_7f4a_7c15) * u128::from(other ^ 0xd6e8_feb8_6659_fd93);
    #[allow(clippy::cast_possible_truncation)] // Both halves.
    let folded = (product >> 64) as u64 ^ product as u64;
    folded ^ one.rotate_left(32) ^ other
}

fn sum_of_bytes(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(sum, u64::from_le_bytes(word))
    })
}

impl Queue {
    /// A sum of what was done of a tuple: 0 for nothing.
    pub(super) fn progress_sum(&self, id: Id) -> u64 {
        let progress = self.progress.get(&id);
        let progress = progress.filter(|_| !broken("progress-not-compared"));
        progress.map_or(0, |progress| sum_of_bytes(progress))
    }

    fn shown_row(&self, row: &Row) -> Shown {
        Shown::Tuple {
            version: row.version(),
            doubt: row.has(Flag::DOUBT) && !broken("doubt-vouches"),
            progress: if row.has(Flag::PROGRESS) {
                self.progress_sum(row.id)
            } else {
                0
            },
        }
    }

    /// Whether this node waits for another one's word that it holds a tuple: they must not look the same, or none would come. Nor must two copies in
    /// doubt: each node is to hear that the other's is no better.
    fn wants_word(&self, row: &Row, node: Node) -> bool {
        if row.has(Flag::DOUBT) && !broken("doubts-look-the-same") {
            return true;
        }
        let waits = row.has(Flag::WAITING) || row.holders != row.owners.set();
        waits && row.owners.first() == self.me && !row.is_confirmed(node)
    }

    fn sum_of(&self, id: Id, shown: Shown, wants_word: bool) -> u64 {
        let (order, unique) = id.words();
        let word = mix(order, unique);
        let word = if wants_word {
            mix(word, !u64::from(self.me.number()))
        } else {
            word
        };
        match shown {
            Shown::Tuple {
                version,
                doubt,
                progress,
            } => {
                let version = u64::from(version.term) << 8 | u64::from(version.first.number());
                mix(mix(word, version << 1 | u64::from(doubt)), progress)
            }
            Shown::Tombstone { .. } => word,
        }
    }

    /// What another node may hold, too. What is being written is not said: the node hears of it when that is durable.
    fn shared(&self, node: Node, from: Id, to: Id, mut each: impl FnMut(Id, Shown, bool)) {
        let rows = self
            .tracked
            .range(from, to)
            .chain(self.untracked.range(from, to));
        for row in rows {
            if row.holders.contains(node) && (self.busy.is_empty() || !self.is_busy(row.id)) {
                each(row.id, self.shown_row(row), self.wants_word(row, node));
            }
        }
        for (id, tomb) in self.tombs.range(from..=to) {
            if tomb.unconfirmed.contains(node) {
                let (version, holders) = (tomb.version, tomb.holders);
                // Two tombstones are never the same: each node is to hear of the other's.
                let differs = !broken("tombstones-look-the-same");
                each(*id, Shown::Tombstone { version, holders }, differs);
            }
        }
    }

    /// Sums over the parts that end with these ids.
    fn sums(&self, node: Node, from: Id, ends: &[Id]) -> Vec<Part> {
        let mut parts: Vec<Part> = ends
            .iter()
            .map(|to| Part {
                to: *to,
                count: 0,
                sum: 0,
            })
            .collect();
        let Some(to) = ends.last() else {
            return parts;
        };
        let mut place = 0;
        self.shared(node, from, *to, |id, shown, wants_word| {
            // Ids come in order, but for three times from the beginning.
            let is_here = |place: usize| id <= ends[place] && (place == 0 || id > ends[place - 1]);
            if !is_here(place) {
                place = ends.partition_point(|end| *end < id);
            }
            let part = &mut parts[place];
            part.count += 1;
            part.sum = part.sum.wrapping_add(self.sum_of(id, shown, wants_word));
        });
        parts
    }

    /// A range in parts of about as many ids each.
    fn split(&self, node: Node, from: Id, to: Id) -> Split {
        let mut count = 0;
        self.shared(node, from, to, |_, _, _| count += 1);
        let mut ends: Vec<Id> = Vec::new();
        if count > NAMED_MAX as usize {
            let every = count.div_ceil(PARTS);
            let mut seen = 0;
            self.shared(node, from, to, |id, _, _| {
                seen += 1;
                if seen % every == 0 {
                    ends.push(id);
                }
            });
            ends.sort_unstable();
            ends.dedup();
        }
        if ends.last() != Some(&to) {
            ends.push(to);
        }
        Split {
            from,
            parts: self.sums(node, from, &ends),
        }
    }

    pub(super) fn begin_comparing(&mut self, node: Node) {
        let asks = self.me < node;
        if let Some(peer) = self.peers.get_mut(&node) {
            self.comparing.insert(node);
            peer.comparing.asks = asks;
            if asks && !broken("no-comparison") {
                peer.comparing.ranges.push((Id::MIN, Id::MAX));
            }
        }
    }

    /// Has what is being written said when it is durable, since a comparison leaves it out.
    fn say_busy(&mut self, node: Node, from: Id, to: Id) {
        let busy = self.busy.range(from..=to).map(|(id, _)| *id);
        let busy = busy.filter_map(|id| self.row(id));
        let shared = busy.filter(|row| row.holders.contains(node));
        let says: Vec<(Id, Say)> = shared
            .map(|row| {
                let owner = row.owners.set().contains(node);
                let wants_word = row.owners.first() == self.me && owner && !row.is_confirmed(node);
                (row.id, if wants_word { Say::Store } else { Say::Know(0) })
            })
            .collect();
        for (id, say) in says {
            self.say(node, id, say);
        }
    }

    /// Goes on with all comparisons.
    pub(super) fn compare_on(&mut self) {
        for node in self.comparing.iter() {
            self.compare_with(node);
        }
    }

    fn compare_with(&mut self, node: Node) {
        loop {
            let full = self.loads.len() > LOADS_MAX;
            let Some(peer) = self.peers.get_mut(&node).filter(|_| !full) else {
                return;
            };
            let comparing = &mut peer.comparing;
            if let Some(splits) = comparing.questions.pop_front() {
                self.answer_comparison(node, &splits);
            } else if comparing.open < OPEN_MAX
                && let Some((from, to)) = comparing.named.pop()
            {
                comparing.open += 1;
                self.send_ids(node, from, to, true);
            } else if comparing.open < OPEN_MAX
                && let Some((from, to)) = comparing.ranges.pop()
            {
                comparing.open += 1;
                self.say_busy(node, from, to);
                let split = self.split(node, from, to);
                self.send(node, Statement::Frame(Frame::Compare(vec![split])));
            } else {
                break;
            }
        }
        let waits = |say: &(Node, Say)| say.0 == node;
        let said = !self.busy.values().any(|busy| busy.say.iter().any(waits));
        let Some(peer) = self.peers.get_mut(&node) else {
            return;
        };
        let comparing = &mut peer.comparing;
        if comparing.asks && comparing.open == 0 && said {
            comparing.asks = false;
            self.send(node, Statement::Frame(Frame::Compares));
        } else if comparing.ended && said {
            comparing.over = true;
            self.comparing.remove(node);
            // The node that asks has heard the end before; the other one echoes it.
            if self.me > node {
                self.send(node, Statement::Frame(Frame::Compares));
            }
        }
    }

    pub(super) fn on_compare(&mut self, node: Node, splits: Vec<Split>) {
        if let Some(peer) = self.peers.get_mut(&node) {
            let too_many = splits.len() > 2 * PARTS || peer.comparing.questions.len() >= OPEN_MAX;
            if too_many || self.me < node {
                self.out.push_back(Output::Close(node, Close::Senseless));
                return;
            }
            peer.comparing.questions.push_back(splits);
        }
    }

    /// The parts in which another node's sums are not this node's: from where, and both.
    fn differing(&mut self, node: Node, splits: &[Split]) -> Option<Vec<(Id, Part, Part)>> {
        let mut differing = Vec::new();
        for split in splits {
            let Some(ends) = ends_of(split) else {
                self.out.push_back(Output::Close(node, Close::Senseless));
                return None;
            };
            self.say_busy(node, split.from, *ends.last().unwrap_or(&split.from));
            let mut from = split.from;
            for (mine, theirs) in self.sums(node, split.from, &ends).iter().zip(&split.parts) {
                if mine != theirs {
                    differing.push((from, *mine, *theirs));
                }
                from = after(theirs.to);
            }
        }
        Some(differing)
    }

    fn answer_comparison(&mut self, node: Node, splits: &[Split]) {
        if let Some(parts) = self.differing(node, splits) {
            let cut = |(from, _, theirs): &(Id, Part, Part)| self.split(node, *from, theirs.to);
            let answer = parts.iter().map(cut).collect();
            self.send(node, Statement::Frame(Frame::Compared(answer)));
        }
    }

    pub(super) fn on_compared(&mut self, node: Node, splits: &[Split]) {
        let Some(parts) = self.differing(node, splits) else {
            return;
        };
        let Some(peer) = self.peers.get_mut(&node) else {
            return;
        };
        let comparing = &mut peer.comparing;
        comparing.open = comparing.open.saturating_sub(1);
        // The youngest differ most: they are taken first.
        for (from, mine, theirs) in parts {
            let few = mine.count <= NAMED_MAX && theirs.count <= NAMED_MAX;
            let list = if few {
                &mut comparing.named
            } else {
                &mut comparing.ranges
            };
            list.push((from, theirs.to));
        }
    }

    fn send_ids(&mut self, node: Node, from: Id, to: Id, answer: bool) {
        self.say_busy(node, from, to);
        let mut shown = Vec::new();
        self.shared(node, from, to, |id, is, _| shown.push((id, is)));
        let ids = Frame::Ids {
            from,
            to,
            shown,
            answer,
        };
        self.send(node, Statement::Frame(ids));
    }

    pub(super) fn on_ids(
        &mut self,
        node: Node,
        range: (Id, Id),
        shown: Vec<(Id, Shown)>,
        answer: bool,
    ) {
        let theirs: Vec<Id> = shown.iter().map(|(id, _)| *id).collect();
        if range.0 > range.1 {
            self.out.push_back(Output::Close(node, Close::Senseless));
            return;
        }
        if answer {
            self.send_ids(node, range.0, range.1, false);
        } else if let Some(peer) = self.peers.get_mut(&node) {
            peer.comparing.open = peer.comparing.open.saturating_sub(1);
        }
        for (id, shown) in shown {
            match shown {
                Shown::Tuple {
                    version,
                    doubt,
                    progress,
                } => self.on_shown(node, id, version, doubt, progress),
                Shown::Tombstone { version, holders } => {
                    self.on_finished(node, id, version, holders);
                }
            }
        }
        if broken("deletes-what-another-has-not") {
            let mut gone = Vec::new();
            self.shared(node, range.0, range.1, |id, shown, _| {
                if matches!(shown, Shown::Tuple { .. }) && !theirs.contains(&id) {
                    gone.push(id);
                }
            });
            gone.into_iter().for_each(|id| self.drop_copy(id));
        }
    }

    pub(super) fn on_compares(&mut self, node: Node) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.comparing.ended = true;
        }
    }

    /// Members that this node has compared with over the present link.
    #[must_use]
    pub fn compared(&self) -> Nodes {
        let peers = self.peers.iter().filter(|(_, peer)| peer.comparing.over);
        peers.map(|(node, _)| *node).collect()
    }
}

/// Where the parts end, if they are parts of a range.
fn ends_of(split: &Split) -> Option<Vec<Id>> {
    let ends: Vec<Id> = split.parts.iter().map(|part| part.to).collect();
    let in_order = ends.is_sorted() && ends.first().is_some_and(|first| *first >= split.from);
    (in_order && ends.len() <= 2 * PARTS).then_some(ends)
}

/// The next id.
fn after(id: Id) -> Id {
    let next = u128::from_be_bytes(id.0).saturating_add(1);
    Id(next.to_be_bytes())
}
