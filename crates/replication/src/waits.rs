//! Clients that wait for other nodes: a client is answered when `f` other nodes have applied its batch durably, with the blobs. A batch that is only
//! stored may depend on batches that nobody else has.
//!
//! On [`Outcome::Enough`] the client is answered; on [`Outcome::Abort`] it gets its protocol's temporary error. An outcome is given once and is
//! final: later acknowledgements change nothing.
//!
//! A batch that waits is applied and visible as any other; what an abort takes back is the owner's matter (`docs/decisions/0038`). After a crash nothing
//! waits here any more: what is found counts. The queue waits by itself (crate `queue`).

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use whimbrel_crdt::Incarnation;

use crate::{Now, broken, wire::BlobName};

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// After so long the batch is aborted, before the SMTP client's own time-out (RFC 5321, section 4.5.3.2: minutes).
    pub timeout_micros: u64,
    /// Batches that wait at once.
    pub waiting_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            timeout_micros: 10_000_000,
            waiting_max: 4096,
        }
    }
}

/// Why no batch may be made: temporary; the client gets the error at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Fewer nodes are reachable than have to confirm.
    #[error("{reachable} nodes are reachable, {needed} have to answer")]
    TooFew {
        /// How many are reachable.
        reachable: usize,
        /// How many have to confirm.
        needed: usize,
    },
    /// Too many batches wait.
    #[error("too many batches wait")]
    TooMany,
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Enough nodes have the batch that ends with this number: answer the client.
    Enough(u64),
    /// Too few nodes confirmed the batch in time: tell the client.
    Abort(u64),
}

struct Wait {
    needed: usize,
    until: u64,
    blobs: BTreeSet<BlobName>,
    /// Nodes that have the batch, and which of its blobs.
    has: BTreeMap<Incarnation, BTreeSet<BlobName>>,
}

impl Wait {
    fn is_enough(&self) -> bool {
        let blobs = self.blobs.len();
        let complete =
            |has: &&BTreeSet<BlobName>| has.len() >= blobs || broken("wait-without-blobs");
        self.has.values().filter(complete).count() >= self.needed
    }
}

/// The batches of one log that wait, by the number of their last operation.
pub struct Waits {
    config: Config,
    waits: BTreeMap<u64, Wait>,
    /// Batches that had enough when their wait began: reported with the next outcome.
    complete: BTreeSet<u64>,
    /// When each wait ends.
    untils: BTreeSet<(u64, u64)>,
    /// Up to which number each peer has applied our log.
    applied: BTreeMap<Incarnation, u64>,
    /// The blobs of waiting batches.
    blobs: BTreeMap<BlobName, Named>,
}

/// A blob of waiting batches.
#[derive(Default)]
struct Named {
    /// The batches that name the blob.
    by: BTreeSet<u64>,
    /// Nodes that have the blob, perhaps without the batch.
    at: BTreeSet<Incarnation>,
}

impl Waits {
    /// Nothing waits.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            waits: BTreeMap::new(),
            complete: BTreeSet::new(),
            untils: BTreeSet::new(),
            applied: BTreeMap::new(),
            blobs: BTreeMap::new(),
        }
    }

    /// Whether a batch may be made: call this before.
    ///
    /// # Errors
    /// The client gets the temporary error now.
    pub fn check(&self, needed: usize, reachable: usize) -> Result<(), Refused> {
        if reachable < needed {
            return Err(Refused::TooFew { reachable, needed });
        }
        if self.waits.len() >= self.config.waiting_max {
            return Err(Refused::TooMany);
        }
        Ok(())
    }

    /// The batch that ends with `number` is in our log: `needed` other nodes must have it and these blobs. If a batch with this number waits already,
    /// its commit has failed: this one takes its place.
    pub fn begin(&mut self, now: Now, number: u64, needed: usize, blobs: BTreeSet<BlobName>) {
        self.end(number);
        let mut wait = Wait {
            needed,
            until: now.mono_micros + self.config.timeout_micros,
            blobs,
            has: BTreeMap::new(),
        };
        for blob in &wait.blobs {
            self.blobs.entry(*blob).or_default().by.insert(number);
        }
        for (peer, applied) in &self.applied {
            if *applied >= number {
                let has = has(&self.blobs, &wait.blobs, *peer);
                wait.has.insert(*peer, has);
            }
        }
        if wait.is_enough() {
            self.complete.insert(number);
        }
        self.untils.insert((wait.until, number));
        self.waits.insert(number, wait);
    }

    /// A peer has applied our log up to this number, durably; our log ends with `own`. Returns outcomes by number.
    ///
    /// A peer that has more of our log than we have remembers batches that this disk has lost ([`crate::identity`]). It takes our new batches under
    /// these numbers for those it has, so its report does not count.
    pub fn applied(&mut self, peer: Incarnation, number: u64, own: u64) -> Vec<Outcome> {
        if number > own && !broken("wait-counts-who-remembers-more") {
            return Vec::new();
        }
        let before = self.applied.get(&peer).copied().unwrap_or(0);
        let number = number.max(before);
        self.applied.insert(peer, number);
        let mut touched = Vec::new();
        // Earlier batches were counted before.
        let fresh = (Bound::Excluded(before), Bound::Unbounded);
        for (of, wait) in self.waits.range_mut(fresh) {
            if *of > number {
                break;
            }
            let has = has(&self.blobs, &wait.blobs, peer);
            wait.has.insert(peer, has);
            touched.push(*of);
        }
        self.enough(touched)
    }

    /// A peer has a blob on disk.
    pub fn has_blob(&mut self, peer: Incarnation, blob: BlobName) -> Vec<Outcome> {
        // A blob that no batch waits for is not noted.
        let Some(named) = self.blobs.get_mut(&blob) else {
            return Vec::new();
        };
        named.at.insert(peer);
        let by: Vec<u64> = named.by.iter().copied().collect();
        for number in &by {
            let wait = self.waits.get_mut(number);
            if let Some(has) = wait.and_then(|wait| wait.has.get_mut(&peer)) {
                has.insert(blob);
            }
        }
        self.enough(by)
    }

    /// Time has passed.
    pub fn time(&mut self, now: Now) -> Vec<Outcome> {
        let mut aborted = Vec::new();
        while let Some((until, number)) = self.untils.first().copied()
            && until <= now.mono_micros
        {
            self.end(number);
            aborted.push(Outcome::Abort(number));
        }
        aborted
    }

    /// When [`Waits::time`] is wanted.
    pub fn deadline(&self) -> Option<u64> {
        self.untils.first().map(|(until, _)| *until)
    }

    /// Ends those of these waits that have enough.
    fn enough(&mut self, mut touched: Vec<u64>) -> Vec<Outcome> {
        touched.extend(&self.complete);
        touched.sort_unstable();
        touched.dedup();
        touched.retain(|number| self.waits.get(number).is_some_and(Wait::is_enough));
        for number in &touched {
            self.end(*number);
        }
        touched.into_iter().map(Outcome::Enough).collect()
    }

    fn end(&mut self, number: u64) {
        let Some(wait) = self.waits.remove(&number) else {
            return;
        };
        self.complete.remove(&number);
        self.untils.remove(&(wait.until, number));
        for blob in wait.blobs {
            if let Some(named) = self.blobs.get_mut(&blob) {
                named.by.remove(&number);
                if named.by.is_empty() {
                    self.blobs.remove(&blob);
                }
            }
        }
    }
}

/// Which of these blobs the peer has.
fn has(
    known: &BTreeMap<BlobName, Named>,
    blobs: &BTreeSet<BlobName>,
    peer: Incarnation,
) -> BTreeSet<BlobName> {
    let is_at = |blob: &&BlobName| known.get(blob).is_some_and(|of| of.at.contains(&peer));
    blobs.iter().filter(is_at).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64) -> Incarnation {
        Incarnation::new(id).unwrap()
    }

    fn at(seconds: u64) -> Now {
        Now {
            wall_micros: 0,
            mono_micros: seconds * 1_000_000,
        }
    }

    const BLOB: BlobName = BlobName([1; 48]);

    fn waits(f: usize, blobs: &[BlobName]) -> Waits {
        let mut waits = Waits::new(Config::default());
        waits.begin(at(0), 5, f, blobs.iter().copied().collect());
        waits
    }

    #[test]
    fn enough_are_different_nodes() {
        let mut waits = waits(2, &[]);
        assert_eq!(waits.applied(node(2), 4, 9), []);
        assert_eq!(waits.applied(node(2), 5, 9), []);
        assert_eq!(waits.applied(node(2), 9, 9), []);
        assert_eq!(waits.applied(node(3), 5, 9), [Outcome::Enough(5)]);
        assert_eq!(waits.applied(node(4), 5, 9), []);
        assert_eq!(waits.time(at(100)), []);
    }

    #[test]
    fn blobs_count_in_either_order() {
        let mut early = waits(1, &[BLOB]);
        assert_eq!(early.has_blob(node(2), BLOB), []);
        assert_eq!(early.has_blob(node(3), BLOB), []);
        assert_eq!(early.applied(node(2), 5, 9), [Outcome::Enough(5)]);
        assert!(early.blobs.is_empty());
        let mut late = waits(1, &[BLOB]);
        assert_eq!(late.applied(node(2), 5, 9), []);
        assert_eq!(late.has_blob(node(3), BLOB), []);
        assert_eq!(late.has_blob(node(2), BLOB), [Outcome::Enough(5)]);
    }

    #[test]
    fn a_peer_with_more_of_our_log_does_not_count() {
        let mut waits = waits(1, &[]);
        assert_eq!(waits.applied(node(2), 7, 5), []);
        assert_eq!(waits.applied(node(3), 5, 5), [Outcome::Enough(5)]);
    }

    #[test]
    fn of_many_waits_those_that_have_enough_end() {
        let mut waits = Waits::new(Config::default());
        let other = BlobName([2; 48]);
        for (number, blob) in [(1, BLOB), (2, other), (3, BLOB)] {
            waits.begin(at(number), number, 1, BTreeSet::from([blob]));
        }
        assert_eq!(waits.applied(node(2), 2, 9), []);
        assert_eq!(waits.has_blob(node(2), BLOB), [Outcome::Enough(1)]);
        // The wait begins when the peer has everything.
        assert_eq!(waits.applied(node(3), 4, 9), []);
        waits.begin(at(4), 4, 1, BTreeSet::new());
        assert_eq!(
            waits.applied(node(2), 3, 9),
            [Outcome::Enough(3), Outcome::Enough(4)]
        );
        assert_eq!(waits.deadline(), Some(12_000_000));
        assert_eq!(waits.time(at(12)), [Outcome::Abort(2)]);
        assert!(waits.blobs.is_empty() && waits.untils.is_empty());
    }

    #[test]
    fn a_number_that_is_taken_again_waits_anew() {
        let mut waits = waits(1, &[BLOB]);
        let other = BlobName([2; 48]);
        waits.begin(at(3), 5, 1, BTreeSet::from([other]));
        assert_eq!(waits.applied(node(2), 5, 9), []);
        assert_eq!(waits.has_blob(node(2), BLOB), []);
        assert_eq!(waits.time(at(10)), []);
        assert_eq!(waits.deadline(), Some(13_000_000));
        assert_eq!(waits.has_blob(node(2), other), [Outcome::Enough(5)]);
        assert!(waits.blobs.is_empty() && waits.untils.is_empty());
    }

    #[test]
    fn an_outcome_is_final() {
        let mut waits = waits(1, &[]);
        assert_eq!(waits.deadline(), Some(10_000_000));
        assert_eq!(waits.time(at(9)), []);
        assert_eq!(waits.time(at(10)), [Outcome::Abort(5)]);
        assert_eq!(waits.applied(node(2), 5, 9), []);
        assert_eq!(waits.deadline(), None);
    }

    #[test]
    fn too_few_nodes_are_refused_at_once() {
        let mut waits = Waits::new(Config {
            waiting_max: 1,
            ..Config::default()
        });
        let refused = Refused::TooFew {
            reachable: 1,
            needed: 2,
        };
        assert_eq!(waits.check(2, 1), Err(refused));
        assert_eq!(waits.check(2, 2), Ok(()));
        waits.begin(at(0), 1, 2, BTreeSet::new());
        assert_eq!(waits.check(2, 2), Err(Refused::TooMany));
    }
}
