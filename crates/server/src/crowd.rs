//! Chooses the connection that has to go when all places are taken: the oldest of the network that holds most.
//!
//! Strangers come in any number and are silent. If a new connection were refused, the holder of all places would keep everybody else out. So a new
//! connection gets a place of the network that holds most. A network that holds few loses none while another one holds more.
//!
//! Everything takes the logarithm of the number of connections: a flood must not cost more than its connections. The cluster's port does the same for
//! its few places (`whimbrel_cluster::places`), where the linked members of a network count, too.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Notify;

/// The connections that may have to go.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// In the order in which they came.
    held: BTreeMap<u64, Connections>,
    /// Those of each network, in the same order.
    networks: BTreeMap<IpAddr, BTreeSet<u64>>,
    /// The networks by how many connections they hold; of equal ones, the network whose oldest came last is first.
    sizes: BTreeSet<(usize, Reverse<u64>, IpAddr)>,
    /// Connections that have been silent until now.
    silent: BTreeSet<u64>,
    next: u64,
}

#[derive(Debug)]
struct Connections {
    of: IpAddr,
    since: Instant,
    end: Ending,
}

/// Completes when the connection has to go.
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
    /// The number of connections.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// The number of connections of a network.
    pub(crate) fn of(&self, network: IpAddr) -> usize {
        self.networks.get(&network).map_or(0, BTreeSet::len)
    }

    /// Enters a connection of this network. Returns its number.
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

    /// The connection ends by itself, or may stay for good. Whether it was still entered.
    pub(crate) fn leave(&mut self, number: u64) -> bool {
        self.take(number).is_some()
    }

    /// The connection is not silent any more: [`Crowd::displace_silent`] leaves it.
    pub(crate) fn has_spoken(&mut self, number: u64) {
        self.silent.remove(&number);
    }

    /// Ends the oldest connection of the network that holds most. Whether there is one.
    pub(crate) fn displace(&mut self) -> bool {
        let Some((_, Reverse(oldest), _)) = self.sizes.last().copied() else {
            return false;
        };
        self.end(oldest);
        true
    }

    /// Ends the oldest two connections that have been silent for so long. This is called for each new connection, so that they become fewer soon. How
    /// many it ended.
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
        // Of equal networks, the one whose oldest connection is the oldest.
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
