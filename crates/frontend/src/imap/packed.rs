//! UIDs at rest: what a session in IDLE keeps of its mailbox instead of an index.
//!
//! UIDs ascend, and most lie at equal distances: those that one node gives out, and nobody removed. So distances are kept with the
//! number of times that each comes in a row, as numbers of seven bits a byte. A mailbox from which nothing was removed takes a few bytes,
//! however large it is; one with gaps some three bytes a gap.

use std::iter;

/// Ascending UIDs as bytes.
pub(super) fn pack(uids: impl Iterator<Item = u32>) -> Box<[u8]> {
    let mut bytes = Vec::new();
    let mut last = 0;
    let mut run = (0, 0);
    for uid in uids {
        let distance = uid - last;
        last = uid;
        if distance == run.0 {
            run.1 += 1;
        } else {
            push_run(&mut bytes, run);
            run = (distance, 1);
        }
    }
    push_run(&mut bytes, run);
    bytes.into_boxed_slice()
}

/// What [`pack`] was given.
pub(super) fn unpack(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let mut numbers = Numbers(bytes);
    let mut last = 0;
    iter::from_fn(move || numbers.next().zip(numbers.next()))
        .flat_map(|(distance, times)| iter::repeat_n(distance, times as usize))
        .map(move |distance| {
            last += distance;
            last
        })
}

fn push_run(bytes: &mut Vec<u8>, (distance, times): (u32, u32)) {
    if times > 0 {
        push(bytes, distance);
        push(bytes, times);
    }
}

fn push(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> Option<u32> {
        let mut number = 0;
        let mut shift = 0;
        while let Some((&byte, rest)) = self.0.split_first() {
            self.0 = rest;
            number |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_is_lost(uids in proptest::collection::btree_set(1u32.., 0..200)) {
            let uids: Vec<u32> = uids.into_iter().collect();
            prop_assert!(unpack(&pack(uids.iter().copied())).eq(uids));
        }
    }

    #[test]
    fn a_mailbox_without_gaps_takes_a_few_bytes() {
        #[track_caller]
        fn check(uids: impl Iterator<Item = u32>, bytes_max: usize) {
            let uids: Vec<u32> = uids.collect();
            let packed = pack(uids.iter().copied());
            assert!(packed.len() <= bytes_max, "{}", packed.len());
            assert!(unpack(&packed).eq(uids));
        }
        check(0..0, 0);
        check(1..200_001, 4);
        check((1..200_001).map(|number| number * 64), 5);
        // Every tenth is gone: two distances for each.
        check((1..200_001).filter(|number| number % 10 != 0), 20_000 * 4);
        check([u32::MAX].into_iter(), 6);
    }
}
