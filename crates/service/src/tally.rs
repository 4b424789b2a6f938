//! How often something happened from each address within a window of time: wrong logins, recipients that nobody knows.
//!
//! An address stands for what one customer gets: an IPv4 address, or an IPv6 /64, of which counting single addresses would count nothing. Bounded:
//! when too many are remembered the oldest is forgotten.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

/// Counts by address.
#[derive(Debug)]
pub(crate) struct Tally {
    peers_max: usize,
    window_seconds: u64,
    counts: BTreeMap<IpAddr, Count>,
    /// In the order of time.
    order: VecDeque<(u64, IpAddr)>,
}

#[derive(Debug)]
struct Count {
    count: u32,
    since: u64,
}

impl Tally {
    /// Nothing happened yet. A window begins with the first count of an address.
    #[must_use]
    pub(crate) fn new(peers_max: usize, window_seconds: u64) -> Self {
        Tally {
            peers_max,
            window_seconds,
            counts: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// How often it happened.
    #[must_use]
    pub(crate) fn of(&self, peer: IpAddr) -> u32 {
        self.counts.get(&peer_key(peer)).map_or(0, |of| of.count)
    }

    /// It happened.
    pub(crate) fn count(&mut self, seconds: u64, peer: IpAddr) {
        let peer = peer_key(peer);
        if let Some(of) = self.counts.get_mut(&peer) {
            of.count = of.count.saturating_add(1);
            return;
        }
        if self.peers_max == 0 {
            return;
        }
        // Only who is new takes another's place: else the last to come would forget its own.
        while self.order.len() >= self.peers_max {
            if let Some((_, oldest)) = self.order.pop_front() {
                self.counts.remove(&oldest);
            }
        }
        let since = seconds;
        self.counts.insert(peer, Count { count: 1, since });
        self.order.push_back((since, peer));
    }

    /// Drops what is over. Cheap: the queue is in order of time.
    pub(crate) fn forget(&mut self, seconds: u64) {
        while let Some((since, peer)) = self.order.front() {
            if since + self.window_seconds > seconds {
                break;
            }
            debug_assert!(self.counts.get(peer).is_none_or(|of| of.since == *since));
            self.counts.remove(peer);
            self.order.pop_front();
        }
    }
}

/// What counts as one address.
#[must_use]
pub(crate) fn peer_key(peer: IpAddr) -> IpAddr {
    masked(peer, 32, 64)
}

/// The neighbourhood that an address is of: IPv4 /24, IPv6 /48. Who has one address of it may have many.
#[must_use]
pub(crate) fn site_key(peer: IpAddr) -> IpAddr {
    masked(peer, 24, 48)
}

fn masked(peer: IpAddr, of_v4: u32, of_v6: u32) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - of_v4).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - of_v6).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_as_one() {
        let check = |address: &str, one: &str, site: &str| {
            let address = address.parse().unwrap();
            let found = [peer_key(address), site_key(address)];
            assert_eq!(found.map(|of| of.to_string()), [one, site], "{address}");
        };
        check("192.0.2.77", "192.0.2.77", "192.0.2.0");
        check("::ffff:192.0.2.77", "192.0.2.77", "192.0.2.0");
        check("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::", "2001:db8:1::");
    }
}
