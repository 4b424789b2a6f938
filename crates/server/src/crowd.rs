//! Who has to go when all places are taken: the oldest of the network that holds most.
//!
//! Strangers come in any number and say nothing. If the next to come were refused, whoever holds all places would keep everybody else out; so the next to come
//! has the place of one that the greatest holder has. A network that holds few loses none while another holds more.
//!
//! Everything takes the logarithm of the number that is held: a flood must not cost more than its connections. The cluster's port does the same for its few
//! places (`whimbrel_cluster::places`), where it counts how many members are linked from a network.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Notify;

/// Those that may have to go.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// By the order in which they came.
    held: BTreeMap<u64, Connections>,
    /// Of each network, in the same order.
    networks: BTreeMap<IpAddr, BTreeSet<u64>>,
    /// The networks by how many they hold, and of equal ones the one whose oldest came last, first.
    sizes: BTreeSet<(usize, Reverse<u64>, IpAddr)>,
    /// Those that have shown nothing yet.
    silent: BTreeSet<u64>,
    next: u64,
}

#[derive(Debug)]
struct Connections {
    of: IpAddr,
    since: Instant,
    end: Ending,
}

/// Comes when its holder has to go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending(Arc<Notify>);

impl Ending {
    /// Waits for it.
    pub(crate) async fn comes(&self) {
        self.0.notified().await;
    }

    #[cfg(test)]
    pub(crate) fn has_come(&self) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::pin!(self.comes()).poll(&mut context).is_ready()
    }
}

impl Crowd {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// How many a network holds.
    pub(crate) fn of(&self, network: IpAddr) -> usize {
        self.networks.get(&network).map_or(0, BTreeSet::len)
    }

    /// Another one, of this network; its number.
    pub(crate) fn enter(&mut self, now: Instant, network: IpAddr, end: Ending) -> u64 {
        let number = self.next;
        self.next += 1;
        let held = Connections {
            of: network,
            since: now,
            end,
        };
        self.held.insert(number, held);
        self.silent.insert(number);
        self.change(network, |numbers| numbers.insert(number));
        number
    }

    /// It goes by itself, or may stay for good. Whether it was there still.
    pub(crate) fn leave(&mut self, number: u64) -> bool {
        self.take(number).is_some()
    }

    /// It has shown that it has something to do here: it is not among those that go for having said nothing.
    pub(crate) fn has_spoken(&mut self, number: u64) {
        self.silent.remove(&number);
    }

    /// The oldest of the network that holds most has to go. Whether there is one.
    pub(crate) fn displace(&mut self) -> bool {
        let Some((_, Reverse(oldest), _)) = self.sizes.last().copied() else {
            return false;
        };
        self.end(oldest);
        true
    }

    /// Of those that have said nothing for so long, the oldest two have to go: with each that comes, so that they are fewer soon. How many have to.
    pub(crate) fn displace_silent(&mut self, now: Instant, for_long: Duration) -> usize {
        for gone in 0..2 {
            let oldest = self.silent.first().copied();
            let held = oldest.and_then(|number| Some((number, self.held.get(&number)?)));
            let Some((number, _)) =
                held.filter(|(_, held)| now.saturating_duration_since(held.since) >= for_long)
            else {
                return gone;
            };
            self.end(number);
        }
        2
    }

    fn end(&mut self, number: u64) {
        if let Some(held) = self.take(number) {
            held.end.0.notify_one();
        }
    }

    fn take(&mut self, number: u64) -> Option<Connections> {
        let held = self.held.remove(&number)?;
        self.silent.remove(&number);
        self.change(held.of, |numbers| numbers.remove(&number));
        Some(held)
    }

    fn change(&mut self, network: IpAddr, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let numbers = self.networks.entry(network).or_default();
        let size = |numbers: &BTreeSet<u64>| {
            let oldest = numbers.first()?;
            Some((numbers.len(), Reverse(*oldest), network))
        };
        if let Some(before) = size(numbers) {
            self.sizes.remove(&before);
        }
        change(numbers);
        match size(numbers) {
            Some(after) => _ = self.sizes.insert(after),
            None => _ = self.networks.remove(&network),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(crowd: &mut Crowd, network: u8) -> (u64, Ending) {
        let ending = Ending::default();
        (
            crowd.enter(Instant::now(), ip(network), ending.clone()),
            ending,
        )
    }

    fn ip(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    #[test]
    fn the_oldest_of_the_greatest_goes() {
        let mut crowd = Crowd::default();
        assert!(!crowd.displace());
        let held: Vec<_> = [1, 2, 2, 3, 3, 3]
            .map(|network| enter(&mut crowd, network))
            .into();
        let gone = |crowd: &mut Crowd| {
            assert!(crowd.displace());
            let gone: Vec<usize> = (0..held.len())
                .filter(|at| held[*at].1.has_come())
                .collect();
            gone
        };
        assert_eq!(gone(&mut crowd), [3]);
        // Of equal ones the one whose oldest is the oldest.
        assert_eq!(gone(&mut crowd), [1]);
        assert_eq!(gone(&mut crowd), [4]);
        assert_eq!(gone(&mut crowd), [0]);
        assert_eq!((crowd.len(), crowd.of(ip(2)), crowd.of(ip(1))), (2, 1, 0));
        assert!(crowd.leave(held[2].0) && !crowd.leave(held[2].0));
        assert!(crowd.displace() && !crowd.displace());
        assert!(crowd.sizes.is_empty() && crowd.networks.is_empty() && crowd.silent.is_empty());
    }

    #[test]
    fn who_says_nothing_goes_two_by_two() {
        const LONG: Duration = Duration::from_secs(10);
        let mut crowd = Crowd::default();
        let held: Vec<_> = (0..5).map(|network| enter(&mut crowd, network)).collect();
        crowd.has_spoken(held[1].0);
        let now = Instant::now();
        crowd.displace_silent(now, LONG);
        assert_eq!(crowd.len(), 5);
        crowd.displace_silent(now + LONG, LONG);
        let gone: Vec<bool> = held.iter().map(|(_, ending)| ending.has_come()).collect();
        assert_eq!(gone, [true, false, true, false, false]);
    }
}
