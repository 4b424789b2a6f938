//! Questions that wait for a machine, taken account by account.
//!
//! Many sessions of one account may ask at once. In the order of coming the others would wait for all of them; here they wait for one question
//! of each account at most. Within an account the order stays.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Things that wait, each under a key; keys take turns.
pub(crate) struct Turns<K, T> {
    /// Never iterated. A key that is here has something.
    waiting: HashMap<K, VecDeque<T>>,
    /// The keys of `waiting`, each once: the first is next.
    order: VecDeque<K>,
    len: usize,
}

impl<K: Hash + Eq + Copy, T> Turns<K, T> {
    pub(crate) fn new() -> Self {
        Turns {
            waiting: HashMap::new(),
            order: VecDeque::new(),
            len: 0,
        }
    }

    /// How many things wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One more waits under `key`, behind those that wait under it.
    pub(crate) fn push(&mut self, key: K, thing: T) {
        self.len += 1;
        let queue = self.waiting.entry(key).or_default();
        if queue.is_empty() {
            self.order.push_back(key);
        }
        queue.push_back(thing);
    }

    /// The next one; its key goes to the end of the order.
    pub(crate) fn next(&mut self) -> Option<T> {
        let key = self.order.pop_front()?;
        let queue = self.waiting.get_mut(&key)?;
        let thing = queue.pop_front()?;
        self.len -= 1;
        if queue.is_empty() {
            self.waiting.remove(&key);
        } else {
            self.order.push_back(key);
        }
        Some(thing)
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    #[track_caller]
    fn check(pushed: &[(u8, &str)], expected: &[&str]) {
        let mut turns = Turns::new();
        for (key, thing) in pushed {
            turns.push(*key, *thing);
        }
        assert_eq!(turns.len(), pushed.len());
        let taken: Vec<&str> = std::iter::from_fn(|| turns.next()).collect();
        assert_eq!(taken, expected);
        assert!(turns.is_empty() && turns.waiting.is_empty() && turns.order.is_empty());
    }

    #[test]
    fn keys_take_turns() {
        check(&[], &[]);
        check(&[(1, "a"), (1, "b"), (1, "c")], &["a", "b", "c"]);
        check(
            &[(1, "a"), (1, "b"), (1, "c"), (2, "d"), (3, "e"), (2, "f")],
            &["a", "d", "e", "b", "f", "c"],
        );
    }

    #[test]
    fn one_that_comes_again_waits_for_the_others() {
        let mut turns = Turns::new();
        for thing in ["a1", "a2", "a3"] {
            turns.push('a', thing);
        }
        assert_eq!(turns.next(), Some("a1"));
        turns.push('b', "b1");
        turns.push('a', "a4");
        assert_eq!(turns.next(), Some("a2"));
        assert_eq!(turns.next(), Some("b1"));
        assert_eq!(turns.next(), Some("a3"));
        assert_eq!(turns.next(), Some("a4"));
        assert_eq!(turns.next(), None);
    }
}
