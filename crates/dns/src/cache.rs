//! What is known: answers until they expire, and failures while they are held. Bounded in entries and bytes; what was used longest ago goes first.

use core::time::Duration;
use std::{collections::BTreeMap, sync::Arc};

use crate::{
    api::{Failure, Kind, Records},
    message::{End, Reading},
    mutants::broken,
    name::Name,
};

/// What a question asks.
pub(crate) type Key = (Name, Kind);

/// Bytes of an entry besides its names and data: two keys, the entry, and their places in two trees.
const ENTRY_BYTES: usize = 320;

/// Bytes of a name or an allocation besides its octets.
const ITEM_BYTES: usize = 40;

/// A single entry may have one part in so many of the cache: one answer must not drive out all others.
const SHARES: usize = 8;

/// What the cache says.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// It is so, for so long.
    Reading(Arc<Reading>, Duration),
    /// It has failed just now.
    Failure(Failure),
}

#[derive(Clone, Debug)]
enum Value {
    Reading(Arc<Reading>),
    /// It has failed so often in a row.
    Failure(Failure, u32),
}

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    expires: Duration,
    /// Its place in the order of use.
    used: u64,
    bytes: usize,
}

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) entries_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) hold: Duration,
    pub(crate) hold_max: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct Cache {
    limits: Limits,
    entries: BTreeMap<Key, Entry>,
    /// By use.
    order: BTreeMap<u64, Key>,
    uses: u64,
    bytes: usize,
}

impl Cache {
    pub(crate) fn new(limits: Limits) -> Self {
        Cache {
            limits,
            entries: BTreeMap::new(),
            order: BTreeMap::new(),
            uses: 0,
            bytes: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is known of a question, if it is still true.
    pub(crate) fn get(&mut self, key: &Key, now: Duration) -> Option<Known> {
        let entry = self.entries.get_mut(key)?;
        let left = entry.expires.saturating_sub(now);
        let known = match &entry.value {
            Value::Failure(..) if left.is_zero() => return None,
            Value::Failure(failure, _) => Known::Failure(*failure),
            Value::Reading(_) if left.is_zero() => {
                self.remove(key);
                return None;
            }
            Value::Reading(reading) => Known::Reading(reading.clone(), left),
        };
        self.uses += 1;
        let before = core::mem::replace(&mut entry.used, self.uses);
        if let Some(key) = self.order.remove(&before) {
            self.order.insert(self.uses, key);
        }
        Some(known)
    }

    /// Keeps an answer for so long.
    pub(crate) fn keep(&mut self, key: Key, reading: Arc<Reading>, ttl: Duration, now: Duration) {
        if ttl.is_zero() {
            // It must not be kept; what was known before is not true any more.
            self.remove(&key);
            return;
        }
        let bytes = bytes_of(&key, &reading);
        self.insert(key, Value::Reading(reading), now.saturating_add(ttl), bytes);
    }

    /// Holds a failure (RFC 9520 3.2).
    pub(crate) fn hold(&mut self, key: Key, failure: Failure, now: Duration) {
        if broken("failures-not-held") {
            return;
        }
        let times = match self.entries.get(&key) {
            // Silence is about the way to the servers. An outage here must not keep every name away for minutes after its end.
            _ if failure == Failure::Timeout => 0,
            Some(Entry {
                value: Value::Failure(_, times),
                expires,
                ..
            }) if now <= expires.saturating_add(self.limits.hold_max) => times.saturating_add(1),
            _ => 0,
        };
        let hold = self
            .limits
            .hold
            .saturating_mul(2_u32.saturating_pow(times))
            .min(self.limits.hold_max);
        let bytes = ENTRY_BYTES + 2 * (ITEM_BYTES + key.0.wire_bytes());
        self.insert(
            key,
            Value::Failure(failure, times),
            now.saturating_add(hold),
            bytes,
        );
    }

    fn insert(&mut self, key: Key, value: Value, expires: Duration, bytes: usize) {
        self.remove(&key);
        if bytes > self.limits.bytes_max / SHARES {
            return;
        }
        self.uses += 1;
        self.bytes += bytes;
        self.order.insert(self.uses, key.clone());
        let used = self.uses;
        self.entries.insert(
            key,
            Entry {
                value,
                expires,
                used,
                bytes,
            },
        );
        let is_full = |cache: &Cache| {
            cache.entries.len() > cache.limits.entries_max || cache.bytes > cache.limits.bytes_max
        };
        while is_full(self) && !broken("cache-unbounded") {
            let Some((_, oldest)) = self.order.pop_first() else {
                return;
            };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }
}

fn bytes_of(key: &Key, reading: &Reading) -> usize {
    let name = |name: &Name| ITEM_BYTES + name.wire_bytes();
    let data = match &reading.end {
        End::Records(records) => match &**records {
            Records::A(list) => ITEM_BYTES + 4 * list.len(),
            Records::Aaaa(list) => ITEM_BYTES + 16 * list.len(),
            Records::Cname(list) | Records::Ptr(list) => list.iter().map(name).sum(),
            Records::Mx(list) => list.iter().map(|mx| name(&mx.exchange)).sum(),
            Records::Tlsa(list) => list.iter().map(|tlsa| ITEM_BYTES + tlsa.data.len()).sum(),
            Records::Txt(list) => list.iter().map(|text| ITEM_BYTES + text.len()).sum(),
        },
        _ => 0,
    };
    let aliases: usize = reading.aliases.iter().map(name).sum();
    ENTRY_BYTES + 2 * name(&key.0) + aliases + data
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(number: usize) -> Key {
        (Name::new(&format!("n{number}.example")).unwrap(), Kind::Txt)
    }

    fn text(octets: usize) -> Arc<Reading> {
        Arc::new(Reading {
            aliases: Vec::new(),
            end: End::Records(Arc::new(Records::Txt(vec![vec![0; octets].into()]))),
            ttl: 1,
            authentic: false,
        })
    }

    fn cache(entries_max: usize, bytes_max: usize) -> Cache {
        Cache::new(Limits {
            entries_max,
            bytes_max,
            hold: 5 * SECOND,
            hold_max: 300 * SECOND,
        })
    }

    fn has(cache: &mut Cache, number: usize) -> bool {
        cache.get(&key(number), Duration::ZERO).is_some()
    }

    #[test]
    fn entries_are_bounded_and_the_least_recently_used_goes() {
        let mut cache = cache(3, 1 << 20);
        for number in 0..3 {
            cache.keep(key(number), text(1), SECOND, Duration::ZERO);
        }
        assert!(has(&mut cache, 0));
        cache.keep(key(3), text(1), SECOND, Duration::ZERO);
        assert_eq!(cache.len(), 3);
        assert!(
            has(&mut cache, 0) && !has(&mut cache, 1) && has(&mut cache, 2) && has(&mut cache, 3)
        );
    }

    #[test]
    fn bytes_are_bounded() {
        let mut cache = cache(1000, 20_000);
        for number in 0..100 {
            cache.keep(key(number), text(1500), SECOND, Duration::ZERO);
            assert!(cache.bytes() <= 20_000);
        }
        assert!((5..14).contains(&cache.len()), "{}", cache.len());
        // An eighth for one of them.
        cache.keep(key(100), text(2500), SECOND, Duration::ZERO);
        assert!(!has(&mut cache, 100) && has(&mut cache, 99));
    }

    #[test]
    fn all_goes_at_its_time() {
        let mut cache = cache(10, 1 << 20);
        cache.keep(key(0), text(1), 10 * SECOND, SECOND);
        let left = |cache: &mut Cache, at: Duration| match cache.get(&key(0), at) {
            Some(Known::Reading(_, left)) => Some(left),
            _ => None,
        };
        assert_eq!(left(&mut cache, 4 * SECOND), Some(7 * SECOND));
        assert_eq!(left(&mut cache, 11 * SECOND), None);
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
        cache.keep(key(0), text(1), SECOND, Duration::ZERO);
        cache.keep(key(0), text(1), Duration::ZERO, Duration::ZERO);
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn failures_are_held_longer_and_longer() {
        let mut cache = cache(10, 1 << 20);
        let mut now = Duration::ZERO;
        let mut hold = |failure| {
            cache.hold(key(0), failure, now);
            let begun = now;
            while cache.get(&key(0), now).is_some() {
                now += SECOND;
            }
            (now - begun).as_secs()
        };
        let holds: Vec<u64> = (0..8).map(|_| hold(Failure::ServFail)).collect();
        assert_eq!(holds, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!([hold(Failure::Timeout), hold(Failure::Timeout)], [5, 5]);
        assert_eq!(hold(Failure::Refused), 10);
        now += 301 * SECOND;
        cache.hold(key(0), Failure::Refused, now);
        assert!(cache.get(&key(0), now + 5 * SECOND).is_none());
    }
}
