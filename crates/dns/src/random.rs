//! Numbers that nobody can guess: BLAKE3 with the seed as its key, whose output goes on for ever. The same seed gives the same numbers.

use core::fmt;

/// A stream of numbers.
#[derive(Clone)]
pub(crate) struct Random(blake3::OutputReader);

impl Random {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Random(blake3::Hasher::new_keyed(&seed).finalize_xof())
    }

    /// The next number.
    pub(crate) fn number(&mut self) -> u16 {
        let mut octets = [0; 2];
        self.0.fill(&mut octets);
        u16::from_le_bytes(octets)
    }

    /// One bit for each octet of a name.
    pub(crate) fn bits(&mut self) -> [u8; 32] {
        let mut octets = [0; 32];
        self.0.fill(&mut octets);
        octets
    }
}

/// It does not show what comes next.
impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides() {
        let numbers = |seed: u8| {
            let mut random = Random::new([seed; 32]);
            (0..100).map(|_| random.number()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        let mut different = numbers(1);
        different.sort_unstable();
        different.dedup();
        assert!(
            different.len() > 90,
            "numbers of 16 bits seldom repeat among a hundred"
        );
    }
}
