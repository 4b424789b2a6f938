//! A queue in which those who wait for one key, such as the logins from one address, are served in turns with those who wait for others: who has much
//! waiting makes nobody else wait longer than a round.

use std::collections::BTreeMap;

/// See the module.
#[derive(Debug)]
pub struct Turns<K, T> {
    /// By round, and in a round by the order in which they came.
    queue: BTreeMap<(u64, u64), (K, T)>,
    /// Of each key that waits: the round of its last, and how many there are.
    keys: BTreeMap<K, (u64, usize)>,
    /// Of what was served last.
    round: u64,
    next: u64,
}

impl<K, T> Default for Turns<K, T> {
    fn default() -> Self {
        Turns {
            queue: BTreeMap::new(),
            keys: BTreeMap::new(),
            round: 0,
            next: 0,
        }
    }
}

impl<K: Copy + Ord, T> Turns<K, T> {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many wait for a key.
    pub fn of(&self, key: K) -> usize {
        self.keys.get(&key).map_or(0, |(_, count)| *count)
    }

    /// The key for which most wait.
    pub fn longest(&self) -> Option<K> {
        let longest = self.keys.iter().max_by_key(|(_, (_, count))| *count);
        longest.map(|(key, _)| *key)
    }

    /// Waits behind those of its key.
    pub fn push(&mut self, key: K, item: T) {
        let before = self.keys.get(&key);
        let round = before.map_or(self.round, |(last, _)| *last) + 1;
        let count = before.map_or(0, |(_, count)| *count);
        self.keys.insert(key, (round, count + 1));
        self.queue.insert((round, self.next), (key, item));
        self.next += 1;
    }

    /// Whose turn it is.
    pub fn pop(&mut self) -> Option<(K, T)> {
        self.pop_of(|_| true)
    }

    /// Whose turn it is among some keys.
    pub fn pop_of(&mut self, takes_part: impl Fn(K) -> bool) -> Option<(K, T)> {
        let place = *self.first_of(takes_part)?;
        let (key, item) = self.queue.remove(&place)?;
        self.round = place.0;
        self.left(key);
        Some((key, item))
    }

    /// Whether anybody waits for some keys.
    pub fn waits_for(&self, takes_part: impl Fn(K) -> bool) -> bool {
        self.first_of(takes_part).is_some()
    }

    fn first_of(&self, takes_part: impl Fn(K) -> bool) -> Option<&(u64, u64)> {
        let mut places = self.queue.iter();
        let first = places.find(|(_, (key, _))| takes_part(*key));
        first.map(|(place, _)| place)
    }

    /// Takes the last that waits for a key.
    pub fn pop_last_of(&mut self, key: K) -> Option<T> {
        let mut last = self.queue.iter().rev();
        let place = *last.find(|(_, (of, _))| *of == key)?.0;
        let (_, item) = self.queue.remove(&place)?;
        if let Some((last, _)) = self.keys.get_mut(&key) {
            *last -= 1;
        }
        self.left(key);
        Some(item)
    }

    fn left(&mut self, key: K) {
        if let Some((_, count)) = self.keys.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.keys.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_served_in_turns() {
        let mut turns = Turns::default();
        for item in ["a1", "a2", "a3", "b1"] {
            turns.push(item.as_bytes()[0], item);
        }
        let next = |turns: &mut Turns<u8, &'static str>| turns.pop().map(|(_, item)| item);
        assert_eq!(next(&mut turns), Some("a1"));
        // Who comes now waits for none of those that have more waiting, but for one each.
        turns.push(b'c', "c1");
        turns.push(b'c', "c2");
        assert_eq!((turns.of(b'a'), turns.of(b'c'), turns.len()), (2, 2, 5));
        let rest: Vec<_> = std::iter::from_fn(|| next(&mut turns)).collect();
        assert_eq!(rest, ["b1", "a2", "c1", "a3", "c2"]);
        assert!(turns.keys.is_empty());
    }

    #[test]
    fn some_keys_can_be_passed_over() {
        let mut turns = Turns::default();
        for item in ["a1", "a2", "b1", "b2"] {
            turns.push(item.as_bytes()[0], item);
        }
        let others = |key| key != b'a';
        assert_eq!(turns.pop_of(others), Some((b'b', "b1")));
        assert_eq!(turns.pop_of(others), Some((b'b', "b2")));
        assert!(!turns.waits_for(others) && turns.waits_for(|_| true));
        assert_eq!(turns.pop_of(others), None);
        // Who comes now is behind one of those that were passed over, not behind all.
        assert_eq!(turns.pop(), Some((b'a', "a1")));
        turns.push(b'c', "c1");
        let rest: Vec<_> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(rest, [(b'a', "a2"), (b'c', "c1")]);
    }

    #[test]
    fn the_last_of_the_longest_can_be_taken_back() {
        let mut turns = Turns::default();
        for item in ["a1", "b1", "a2", "a3"] {
            turns.push(item.as_bytes()[0], item);
        }
        assert_eq!(turns.longest(), Some(b'a'));
        assert_eq!(turns.pop_last_of(b'a'), Some("a3"));
        assert_eq!(turns.pop_last_of(b'c'), None);
        turns.push(b'a', "a4");
        let rest: Vec<_> = std::iter::from_fn(|| turns.pop())
            .map(|(_, item)| item)
            .collect();
        assert_eq!(rest, ["a1", "b1", "a2", "a4"]);
        assert_eq!((turns.longest(), turns.len()), (None, 0));
    }
}
