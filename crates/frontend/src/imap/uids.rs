//! The UIDs of a selected mailbox, in their order, in little memory.
//!
//! Fifty clients at a mailbox of 200,000 messages would hold as many lists of 800 KB. But most UIDs lie at equal distances, those that one node
//! gives out and nobody removed; so they are kept in blocks of 256, of which such a one is two numbers. Where there are gaps a block has two bytes
//! a message, and four where they are wide: as many as in a list.

/// Messages of a block: its head is a tenth of what the worst of them takes, and what is written anew when one is removed is little.
const BLOCK: usize = 256;

/// Ascending UIDs.
#[derive(Default)]
pub(super) struct Uids(Vec<Block>);

/// [`BLOCK`] UIDs; only the last block may have fewer, and is of the last kind then.
enum Block {
    /// The first, and the distance of each from the one before.
    Even(u32, u32),
    /// The first, and the distance of each from it.
    Near(u32, Box<[u16]>),
    Far(Box<[u32]>),
    Begun(Vec<u32>),
}

impl Block {
    fn new(uids: &[u32]) -> Block {
        let (first, step) = (uids[0], uids[1] - uids[0]);
        if uids.windows(2).all(|pair| pair[1] - pair[0] == step) {
            return Block::Even(first, step);
        }
        let near = uids.iter().map(|uid| u16::try_from(uid - first));
        match near.collect() {
            Ok(near) => Block::Near(first, near),
            Err(_) => Block::Far(uids.into()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Block::Begun(uids) => uids.len(),
            _ => BLOCK,
        }
    }

    fn get(&self, at: usize) -> Option<u32> {
        match self {
            Block::Even(first, step) => Some(first + step * at as u32),
            Block::Near(first, near) => Some(first + u32::from(near[at])),
            Block::Far(uids) => Some(uids[at]),
            Block::Begun(uids) => uids.get(at).copied(),
        }
    }
}

impl Uids {
    pub(super) fn len(&self) -> usize {
        let before = self.0.len().saturating_sub(1);
        before * BLOCK + self.0.last().map_or(0, Block::len)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, place: usize) -> Option<u32> {
        self.0.get(place / BLOCK)?.get(place % BLOCK)
    }

    pub(super) fn last(&self) -> Option<u32> {
        self.get(self.len().checked_sub(1)?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let blocks = self.0.iter();
        blocks.flat_map(|block| (0..block.len()).filter_map(|at| block.get(at)))
    }

    /// The place of a UID.
    pub(super) fn place(&self, uid: u32) -> Option<usize> {
        let place = self.gallop(0, |other| other < uid);
        (self.get(place) == Some(uid)).then_some(place)
    }

    /// The first place at or after `from` whose UID is not `below`. Its cost grows with how far that is.
    pub(super) fn gallop(&self, from: usize, below: impl Fn(u32) -> bool) -> usize {
        let is_below = |place| self.get(place).is_some_and(&below);
        let mut step = 1;
        while is_below(from + step) {
            step *= 2;
        }
        let (mut low, mut high) = (from + step / 2, self.len().min(from + step));
        while low < high {
            let middle = low.midpoint(high);
            if is_below(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Adds one that is greater than all.
    fn push(&mut self, uid: u32) {
        match self.0.last_mut() {
            Some(Block::Begun(uids)) => {
                uids.push(uid);
                if uids.len() == BLOCK {
                    let whole = Block::new(uids);
                    self.0.pop();
                    self.0.push(whole);
                }
            }
            _ => self.0.push(Block::Begun(vec![uid])),
        }
    }

    /// Removes these (ascending; unknown ones do not matter); of each that was there, `told` learns the place that it had before, and the UID.
    pub(super) fn remove(&mut self, uids: &[u32], mut told: impl FnMut(usize, u32)) {
        let Some(first) = uids.iter().find_map(|&uid| self.place(uid)) else {
            return;
        };
        // What lies before stays as it is.
        let stays = first / BLOCK;
        let rest = Uids(self.0.split_off(stays));
        let mut gone = uids.iter().copied().peekable();
        for (at, uid) in rest.iter().enumerate() {
            while gone.next_if(|&other| other < uid).is_some() {}
            if gone.next_if_eq(&uid).is_some() {
                told(stays * BLOCK + at, uid);
            } else {
                self.push(uid);
            }
        }
        self.0.shrink_to_fit();
    }
}

impl Extend<u32> for Uids {
    /// With what is greater than all, ascending.
    fn extend<T: IntoIterator<Item = u32>>(&mut self, uids: T) {
        uids.into_iter().for_each(|uid| self.push(uid));
    }
}

impl From<&[u32]> for Uids {
    fn from(uids: &[u32]) -> Uids {
        let (whole, rest) = uids.as_chunks::<BLOCK>();
        let begun = (!rest.is_empty()).then(|| Block::Begun(rest.to_vec()));
        let whole = whole.iter().map(|uids| Block::new(uids));
        Uids(whole.chain(begun).collect())
    }
}

impl FromIterator<u32> for Uids {
    fn from_iter<T: IntoIterator<Item = u32>>(uids: T) -> Uids {
        let mut all = Uids::default();
        all.extend(uids);
        all.0.shrink_to_fit();
        if let Some(Block::Begun(uids)) = all.0.last_mut() {
            uids.shrink_to_fit();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(uids: &Uids) -> usize {
        let of = |block: &Block| match block {
            Block::Even(..) => 0,
            Block::Near(_, near) => size_of_val(&**near),
            Block::Far(uids) => size_of_val(&**uids),
            Block::Begun(uids) => uids.capacity() * 4,
        };
        uids.0.capacity() * size_of::<Block>() + uids.0.iter().map(of).sum::<usize>()
    }

    #[test]
    fn a_mailbox_takes_little_and_never_more_than_a_list() {
        #[track_caller]
        fn check(uids: impl Iterator<Item = u32>, bytes_max: usize) {
            let uids: Vec<u32> = uids.collect();
            let uids = Uids::from(&*uids);
            assert!(bytes(&uids) <= bytes_max, "{} bytes", bytes(&uids));
        }
        const N: usize = 200_000;
        check(0..0, 0);
        check(1..=N as u32, N / 7);
        check((1..=N as u32).map(|number| number * 64), N / 7);
        let gaps = |apart: u32| {
            (1u32..)
                .filter(|n| n % 3 != 0)
                .take(N)
                .map(move |n| n * apart)
        };
        check(gaps(64), N * 9 / 4);
        check(gaps(8_000), N * 17 / 4);
    }

    proptest! {
        #[test]
        fn like_a_list(
            // Three kinds of blocks, and some of each.
            parts in proptest::collection::vec((1u32..3, 1u32..70_000, 0usize..600), 0..5),
            gone in proptest::collection::btree_set(0usize..2_000, 0..40),
            unknown in proptest::collection::vec(1u32..1_000_000, 0..9),
        ) {
            let mut list = Vec::new();
            let mut last = 0;
            for (uneven, step, len) in parts {
                for at in 0..len as u32 {
                    last += step + at % uneven;
                    list.push(last);
                }
            }
            let mut uids: Uids = list.iter().copied().collect();
            let mut named: Vec<u32> = gone.iter().filter_map(|&at| list.get(at).copied()).collect();
            named.extend(&unknown);
            named.sort_unstable();
            named.dedup();
            for _ in 0..2 {
                prop_assert_eq!(uids.iter().collect::<Vec<_>>(), list.clone());
                prop_assert!(Uids::from(&*list).iter().eq(uids.iter()));
                prop_assert_eq!((uids.len(), uids.last()), (list.len(), list.last().copied()));
                for place in [0, 1, 255, 256, 257, list.len().saturating_sub(1), list.len()] {
                    prop_assert_eq!(uids.get(place), list.get(place).copied());
                }
                for &uid in &named {
                    prop_assert_eq!(uids.place(uid), list.binary_search(&uid).ok());
                    let from = list.len() / 3;
                    let expected = from + list[from..].partition_point(|&other| other < uid);
                    prop_assert_eq!(uids.gallop(from, |other| other < uid), expected);
                }
                let mut told = Vec::new();
                uids.remove(&named, |place, uid| told.push((place, uid)));
                let there = list.iter().copied().enumerate();
                let expected: Vec<_> = there.filter(|(_, uid)| named.contains(uid)).collect();
                prop_assert_eq!(told, expected);
                list.retain(|uid| !named.contains(uid));
                let more = list.last().copied().unwrap_or(0) + 5;
                list.extend([more, more + 1]);
                uids.extend([more, more + 1]);
            }
        }
    }
}
