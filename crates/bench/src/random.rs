//! Random numbers from a seed: the same seed is the same load.

use whimbrel_testkit::Rng;

/// What loads draw from.
#[derive(Clone, Debug)]
pub struct Random(Rng);

impl Random {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(Rng::new(seed))
    }

    /// Another one for a part of the load, which depends on this one's seed and not on how much was drawn from others.
    #[must_use]
    pub fn part(seed: u64, part: u64) -> Random {
        let mut random = Random::new(seed ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93));
        // Neighbouring parts begin far from each other.
        Random::new(random.bits())
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.number()
    }

    /// Below `bound`, which is not 0. The bias is below 2^-32 for any bound used here.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// From 0 up to 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An index by weights.
    pub fn weighted(&mut self, weights: &[f64]) -> usize {
        let mut left = self.unit() * weights.iter().sum::<f64>();
        for (at, weight) in weights.iter().enumerate() {
            if left < *weight {
                return at;
            }
            left -= weight;
        }
        weights.len() - 1
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// In another order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_repeatable_and_within_bounds() {
        let mut one = Random::new(7);
        let mut other = Random::new(7);
        for _ in 0..1000 {
            assert_eq!(one.bits(), other.bits());
            assert!(one.below(3) < 3);
            assert!((5..=9).contains(&other.between(5, 9)));
        }
        assert_ne!(Random::part(7, 0).bits(), Random::part(7, 1).bits());
    }

    #[test]
    fn weights_are_kept() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 3];
        for _ in 0..10_000 {
            counts[random.weighted(&[0.5, 0.0, 1.5])] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!((2300..2700).contains(&counts[0]), "{counts:?}");
    }
}
