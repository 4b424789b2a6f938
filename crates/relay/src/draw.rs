//! Numbers that look random and follow from their arguments alone: two nodes that know the same draw the same.

/// A stream of numbers (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    /// The stream of these bytes and this number.
    pub(crate) fn new(bytes: &[u8], number: u64) -> Draw {
        let mut draw = Draw(number);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            // Each word is mixed in before the next one comes: ids that differ in one bit have nothing in common.
            draw.0 = draw.number() ^ u64::from_le_bytes(word);
        }
        draw
    }

    /// The next number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product: even, without a division.
        let product = u128::from(self.number()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// Puts the items in an order of its own (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap_or(last);
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_from_their_arguments() {
        let first = |bytes: &[u8], number| Draw::new(bytes, number).number();
        assert_eq!(first(b"0123456789abcdef", 1), first(b"0123456789abcdef", 1));
        assert_ne!(first(b"0123456789abcdef", 1), first(b"0123456789abcdee", 1));
        assert_ne!(first(b"0123456789abcdef", 1), first(b"0123456789abcdef", 2));
        let mut draw = Draw::new(b"", 7);
        assert_eq!(draw.below(0), 0);
        let mut seen = [0; 5];
        for _ in 0..5_000 {
            seen[usize::try_from(draw.below(5)).unwrap()] += 1;
        }
        assert!(
            seen.iter().all(|count| (850..1_150).contains(count)),
            "{seen:?}"
        );
    }

    #[test]
    fn shuffles_reach_every_order() {
        let mut orders = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut items = [1, 2, 3];
            Draw::new(b"", seed).shuffle(&mut items);
            orders.insert(items);
        }
        assert_eq!(orders.len(), 6);
    }
}
