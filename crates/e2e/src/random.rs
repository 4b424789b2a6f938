//! Random numbers that a seed repeats.

use whimbrel_testkit::Rng;

/// A generator.
#[derive(Clone, Debug)]
pub struct Random {
    rng: Rng,
}

impl Random {
    /// The generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random {
            rng: Rng::new(seed),
        }
    }

    /// The seed of the environment variable, or one of the clock; told on the terminal, so that a failing run can be repeated.
    #[must_use]
    pub fn seed_from(variable: &str) -> u64 {
        let seed = std::env::var(variable)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| {
                let now = std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .unwrap_or_default();
                u64::try_from(now.as_nanos() % 1_000_000_000).unwrap_or_default()
            });
        println!("seed: {variable}={seed}");
        seed
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.rng.number()
    }

    /// Below the bound, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.bits() % u64::try_from(bound.max(1)).unwrap_or(1)).unwrap_or(0)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of them; `None` when there is none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() {
            None
        } else {
            of.get(self.below(of.len()))
        }
    }
}
