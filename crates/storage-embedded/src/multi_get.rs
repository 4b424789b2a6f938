//! The values of many keys: found by walking along the rows where the keys lie close together, else one by one.
//!
//! A step along the rows costs a tenth of a search for a key. Whoever asks for a whole mailbox asks for rows that lie side by side, since their
//! keys are in the order in which the messages came; whoever asks for one message in a hundred must not pay for the others. So a walk that
//! passes too many rows in vain is given up, and the next one begins later each time.

use std::cmp::Ordering;

use bytes::Bytes;
use whimbrel_storage::StoreError;

/// Rows in order, as one moment shows them.
pub(crate) trait Rows {
    /// A row that a walk comes by.
    type Key: AsRef<[u8]>;

    /// The value of a key.
    fn find(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// The rows from one key to another, both included.
    fn walk(
        &self,
        from: &[u8],
        to: &[u8],
    ) -> impl Iterator<Item = Result<(Self::Key, Bytes), StoreError>>;
}

/// Keys that a walk is begun for: its begin costs as much as some searches.
const WALK_KEYS_MIN: usize = 8;

/// Rows passed on the way to one key: then it would have been cheaper to search for it.
const PASSED_MAX: usize = 8;

/// Keys that are searched for after a walk was given up; twice as many after the next, until one has come some way.
const PAUSE_KEYS_MIN: usize = 8;

/// The values of the first `keys`, in their order: of one at least, of no further one when the values have `bytes_max`.
pub(crate) fn values(
    rows: &impl Rows,
    keys: &[Vec<u8>],
    bytes_max: usize,
) -> Result<Vec<Option<Bytes>>, StoreError> {
    // What was met; the inner `None`: there is no such row.
    let mut met: Vec<Option<Option<Bytes>>> = vec![None; keys.len()];
    if keys.len() >= WALK_KEYS_MIN {
        meet(rows, keys, bytes_max, &mut met)?;
    }
    let mut values = Vec::with_capacity(keys.len());
    let mut bytes = 0usize;
    for (key, met) in keys.iter().zip(met) {
        let value = match met {
            Some(value) => value,
            None => rows.find(key)?,
        };
        bytes = bytes.saturating_add(value.as_ref().map_or(0, Bytes::len));
        values.push(value);
        if bytes >= bytes_max {
            break;
        }
    }
    Ok(values)
}

/// Walks to as many of the keys as it is worth, and no further than values of `bytes_max`.
fn meet(
    rows: &impl Rows,
    keys: &[Vec<u8>],
    bytes_max: usize,
    met: &mut [Option<Option<Bytes>>],
) -> Result<(), StoreError> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by(|&a, &b| keys[a].cmp(&keys[b]));
    let Some(&last) = order.last() else {
        return Ok(());
    };
    let (mut at, mut pause, mut bytes) = (0, PAUSE_KEYS_MIN, 0usize);
    while order.len().saturating_sub(at) >= WALK_KEYS_MIN {
        let mut walk = rows.walk(&keys[order[at]], &keys[last]);
        let mut row = walk.next().transpose()?;
        let begin = at;
        'walk: while let Some(&next) = order.get(at) {
            let mut passed = 0;
            let value = loop {
                match row.as_ref().map(|(key, _)| key.as_ref().cmp(&keys[next])) {
                    Some(Ordering::Less) if passed == PASSED_MAX => break 'walk,
                    Some(Ordering::Less) => {
                        passed += 1;
                        row = walk.next().transpose()?;
                    }
                    Some(Ordering::Equal) => break row.as_ref().map(|(_, value)| value.clone()),
                    Some(Ordering::Greater) | None => break None,
                }
            };
            bytes = bytes.saturating_add(value.as_ref().map_or(0, Bytes::len));
            met[next] = Some(value);
            if bytes >= bytes_max {
                return Ok(());
            }
            at += 1;
        }
        if at - begin >= WALK_KEYS_MIN {
            pause = PAUSE_KEYS_MIN;
        }
        at += pause;
        pause *= 2;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use super::*;

    /// Rows that count what is done with them.
    #[derive(Default)]
    struct Counted {
        rows: BTreeMap<Vec<u8>, Bytes>,
        found: Cell<usize>,
        begun: Cell<usize>,
        steps: Cell<usize>,
    }

    impl Counted {
        /// Every even number below twice `count`, each with a value of two bytes.
        fn new(count: u16) -> Self {
            let row = |number: u16| {
                let bytes = (2 * number).to_be_bytes().to_vec();
                (bytes.clone(), bytes.into())
            };
            Counted {
                rows: (0..count).map(row).collect(),
                ..Counted::default()
            }
        }
    }

    impl Rows for Counted {
        type Key = Vec<u8>;

        fn find(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
            self.found.set(self.found.get() + 1);
            Ok(self.rows.get(key).cloned())
        }

        fn walk(
            &self,
            from: &[u8],
            to: &[u8],
        ) -> impl Iterator<Item = Result<(Vec<u8>, Bytes), StoreError>> {
            self.begun.set(self.begun.get() + 1);
            let rows = self.rows.range(from.to_vec()..=to.to_vec());
            rows.map(|(key, value)| {
                self.steps.set(self.steps.get() + 1);
                Ok((key.clone(), value.clone()))
            })
        }
    }

    fn check(
        numbers: &[u16],
        bytes_max: usize,
        expected: usize,
        (found, begun, steps): (usize, usize, usize),
    ) {
        let rows = Counted::new(10_000);
        let keys: Vec<Vec<u8>> = numbers.iter().map(|n| n.to_be_bytes().to_vec()).collect();
        let values = values(&rows, &keys, bytes_max).unwrap();
        let right: Vec<Option<Bytes>> =
            keys.iter().map(|key| rows.rows.get(key).cloned()).collect();
        assert_eq!(values, right[..expected], "{numbers:?}");
        let cost = (rows.found.get(), rows.begun.get(), rows.steps.get());
        let within = cost.0 <= found && cost.1 <= begun && cost.2 <= steps;
        assert!(
            within,
            "searches, walks, steps: {cost:?}, not {:?}",
            (found, begun, steps)
        );
    }

    fn every(step: u16, count: u16) -> Vec<u16> {
        (0..count).map(|number| number * step).collect()
    }

    #[test]
    fn what_lies_side_by_side_is_walked_along() {
        let dense = every(2, 256);
        check(&dense, usize::MAX, 256, (0, 1, 256));
        let backwards: Vec<u16> = dense.iter().rev().copied().collect();
        check(&backwards, usize::MAX, 256, (0, 1, 256));
        let twice = [dense.clone(), dense.clone()].concat();
        check(&twice, usize::MAX, 512, (0, 1, 256));
        // Odd ones are not there.
        check(&every(1, 256), usize::MAX, 256, (0, 1, 128));
        // One in five.
        check(&every(10, 256), usize::MAX, 256, (0, 1, 5 * 256));
        // Two groups far apart.
        let groups = [
            every(2, 128),
            every(2, 128).iter().map(|n| n + 9_000).collect(),
        ]
        .concat();
        check(
            &groups,
            usize::MAX,
            256,
            (PAUSE_KEYS_MIN, 2, 256 + PASSED_MAX),
        );
    }

    #[test]
    fn what_lies_apart_costs_what_is_asked_for() {
        check(&[], usize::MAX, 0, (0, 0, 0));
        check(&every(2, 7), usize::MAX, 7, (7, 0, 0));
        for count in [8, 16, 32, 64, 128, 256] {
            let apart: Vec<u16> = every(60, count);
            // As many walks as a number can be doubled, each of which meets the key that it begins with.
            let walks = (count / 8).ilog2() as usize + 1;
            let all = usize::from(count);
            check(
                &apart,
                usize::MAX,
                all,
                (all, walks, walks * (PASSED_MAX + 2)),
            );
        }
    }

    #[test]
    fn bytes_bound_what_is_read() {
        let dense = every(2, 256);
        check(&dense, 0, 1, (0, 1, 1));
        check(&dense, 1, 1, (0, 1, 1));
        check(&dense, 20, 10, (0, 1, 10));
        // In another order than theirs the first ones are wanted all the same, and not much more is read.
        let backwards: Vec<u16> = dense.iter().rev().copied().collect();
        check(&backwards, 20, 10, (10, 1, 10));
    }
}
