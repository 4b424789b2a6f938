//! Places for streams whose peers have not proved who they are.
//!
//! A member proves that in milliseconds, a stranger never does. When all places are taken, the oldest stream ends and the new one gets its place.
//! Invariants:
//! - A stream of a peer that has proved to be a member is not ended for another one.
//! - Strangers of one network end no stream of another network that has fewer streams per linked member.
//! - Streams that come at once from one network do not end each other for ever.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

/// Streams of unknown peers at once. A cluster has some dozens of nodes.
pub(crate) const HANDSHAKES_MAX: usize = 256;
/// The same from one address (of IPv6 from one /64), so that strangers of one network cannot keep members out. For each member that is linked from
/// there, the bound is as much higher: one member opens fewer at once ([`crate::Relays`]).
const HANDSHAKES_PER_ADDRESS_MAX: usize = 8;
/// No stream is ended sooner than this for another one of its own network: nodes behind one address that start at once would end each other's
/// handshakes.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Clone, Default)]
pub(crate) struct Places(Arc<Mutex<Taken>>);

#[derive(Default)]
struct Taken {
    /// In the order in which they came.
    held: BTreeMap<u64, Connections>,
    next: u64,
}

struct Connections {
    of: IpAddr,
    /// Peers that were linked from that network.
    linked: usize,
    since: Instant,
    /// `None`: the peer has proved who it is.
    end: Option<oneshot::Sender<()>>,
}

/// A place, which is free again when this is dropped.
pub struct Place {
    places: Places,
    number: u64,
}

/// Completes when the stream has to end.
pub(crate) struct Ending(oneshot::Receiver<()>);

impl Places {
    /// A place for a stream from this address, where so many peers are linked. `None`: no place is free, and no stream may be ended for this one.
    pub(crate) fn take(&self, from: IpAddr, linked: usize) -> Option<(Place, Ending)> {
        let of = network(from);
        let mut taken = self.lock();
        let of_network = taken.held.values().filter(|held| held.of == of).count();
        if of_network >= HANDSHAKES_PER_ADDRESS_MAX.saturating_mul(1 + linked) {
            let oldest = taken.oldest(|held| held.of == of)?;
            if taken.held.get(&oldest)?.since.elapsed() < GRACE {
                return None;
            }
            taken.end(oldest);
        } else if taken.held.len() >= HANDSHAKES_MAX {
            let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
            for held in taken.held.values() {
                *counts.entry(held.of).or_default() += 1;
            }
            let share = |held: &Connections| {
                let count = counts.get(&held.of).copied().unwrap_or(0);
                count.div_ceil(1 + held.linked)
            };
            let strangers = taken.held.values().filter(|held| held.end.is_some());
            let most = strangers.map(share).max()?;
            let oldest = taken.oldest(|held| share(held) == most)?;
            taken.end(oldest);
        }
        let (end, ending) = oneshot::channel();
        let number = taken.next;
        taken.next += 1;
        let held = Connections {
            of,
            linked,
            since: Instant::now(),
            end: Some(end),
        };
        taken.held.insert(number, held);
        let places = self.clone();
        Some((Place { places, number }, Ending(ending)))
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // A panic leaves no change half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// The oldest stream of those that may be ended.
    fn oldest(&self, is: impl Fn(&Connections) -> bool) -> Option<u64> {
        let mut held = self.held.iter();
        let oldest = held.find(|(_, held)| held.end.is_some() && is(held));
        oldest.map(|(number, _)| *number)
    }

    fn end(&mut self, number: u64) {
        if let Some(held) = self.held.remove(&number)
            && let Some(end) = held.end
        {
            // The stream may have ended already.
            let _ = end.send(());
        }
    }
}

impl Place {
    /// The peer has proved to be a member: the place stays taken, and no other stream ends this one.
    pub fn is_known(&self) {
        if let Some(held) = self.places.lock().held.get_mut(&self.number) {
            held.end = None;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().held.remove(&self.number);
    }
}

impl Ending {
    /// Completes when the stream has to end, and never otherwise.
    pub(crate) async fn comes(self) {
        if self.0.await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The network of an address: for IPv6 its /64, since its owner has all of it.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn has_ended((_, ending): &mut (Place, Ending)) -> bool {
        ending.0.try_recv().is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_of_one_network_end_their_own() {
        let places = Places::default();
        let take = |text: &str| places.take(ip(text), 0);
        let mut kept = Vec::new();
        for host in 0..HANDSHAKES_PER_ADDRESS_MAX {
            kept.push(take(&format!("2001:db8::{host:x}")).unwrap());
        }
        // A stream that has just come is not ended.
        assert!(take("2001:db8::ffff").is_none());
        kept.push(take("2001:db8:0:1::1").unwrap());
        kept.push(take("192.0.2.1").unwrap());
        advance(GRACE).await;
        kept.push(take("2001:db8::ffff").unwrap());
        kept.push(take("2001:db8::fffe").unwrap());
        let ended: Vec<bool> = kept.iter_mut().map(has_ended).collect();
        assert_eq!(ended[..3], [true, true, false]);
        assert_eq!(ended.iter().filter(|ended| **ended).count(), 2);
        // A place that is given back is there for the next one.
        kept.pop();
        kept.push(take("2001:db8::fffd").unwrap());
        assert!(!has_ended(&mut kept[2]));
        drop(kept);
        assert!(places.lock().held.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn members_of_one_network_have_places_each() {
        let places = Places::default();
        let mut kept = Vec::new();
        for _ in 0..3 * HANDSHAKES_PER_ADDRESS_MAX {
            kept.push(places.take(ip("192.0.2.1"), 2).unwrap());
        }
        assert!(places.take(ip("192.0.2.1"), 2).is_none());
        assert!(!kept.iter_mut().any(has_ended));
    }

    /// All places were taken by silent streams, and new streams were dropped.
    #[tokio::test(start_paused = true)]
    async fn a_new_stream_gets_a_place_when_all_are_taken() {
        let places = Places::default();
        let mut strangers = Vec::new();
        for at in 0..HANDSHAKES_MAX {
            let (network, host) = (at / HANDSHAKES_PER_ADDRESS_MAX, at);
            let from = format!("2001:db8:0:{network:x}::{host:x}");
            strangers.push(places.take(ip(&from), 0).unwrap());
        }
        // Of three behind one address.
        let mut members: Vec<_> = (0..2 * HANDSHAKES_PER_ADDRESS_MAX)
            .map(|_| places.take(ip("192.0.2.1"), 2).unwrap())
            .collect();
        let ended = strangers
            .iter_mut()
            .filter_map(|s| has_ended(s).then_some(()));
        assert_eq!(ended.count(), members.len());
        assert_eq!(places.lock().held.len(), HANDSHAKES_MAX);
        // Strangers end streams of strangers, who are more.
        for host in 0..HANDSHAKES_MAX {
            drop(places.take(ip(&format!("198.51.100.{}", host % 250)), 0));
        }
        assert!(!members.iter_mut().any(has_ended));
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_shown_who_it_is_ends_for_nobody() {
        let places = Places::default();
        let take = || places.take(ip("192.0.2.1"), 0);
        let mut kept: Vec<_> = (0..HANDSHAKES_PER_ADDRESS_MAX)
            .map(|_| take().unwrap())
            .collect();
        kept[0].0.is_known();
        advance(GRACE).await;
        kept.push(take().unwrap());
        let ended: Vec<bool> = kept.iter_mut().map(has_ended).collect();
        assert_eq!(ended[..3], [false, true, false]);
        for (place, _) in &kept {
            place.is_known();
        }
        advance(GRACE).await;
        assert!(take().is_none(), "their places are taken all the same");
    }
}
