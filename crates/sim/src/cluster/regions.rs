//! Where nodes stand, in seeds whose latencies are as between regions of the world.

use super::MS;
use whimbrel_testkit::Rng;

/// One way between regions of public clouds in milliseconds: half of the round trips that their operators and others who measure them publish,
/// rounded. Each row ends with the region itself: between two of its data centres. In this order: Virginia, Oregon, São Paulo, Ireland, Frankfurt,
/// Stockholm, Cape Town, Dubai, Mumbai, Singapore, Tokyo, Sydney. What a node meets on its way is up to an eighth longer.
const ONE_WAY_MILLIS: [&[u64]; 12] = [
    &[1],
    &[33, 1],
    &[57, 88, 1],
    &[34, 62, 89, 1],
    &[46, 71, 101, 13, 1],
    &[56, 79, 109, 20, 11, 1],
    &[113, 140, 170, 80, 78, 88, 1],
    &[100, 125, 150, 65, 56, 66, 90, 1],
    &[97, 109, 150, 61, 60, 69, 135, 18, 1],
    &[110, 81, 163, 88, 80, 90, 160, 45, 31, 1],
    &[74, 49, 128, 101, 113, 122, 180, 80, 63, 35, 1],
    &[99, 70, 155, 128, 123, 135, 200, 93, 74, 46, 53, 1],
];

/// The least and the most that it takes one way between two nodes, in microseconds.
pub(super) fn one_way_micros(seed: u64, a: usize, b: usize) -> (u64, u64) {
    let (a, b) = (region(seed, a), region(seed, b));
    let micros = ONE_WAY_MILLIS[a.max(b)][a.min(b)] * MS;
    (micros, micros + micros / 8)
}

/// Some nodes have one region.
fn region(seed: u64, node: usize) -> usize {
    let mut rng = Rng::new(seed ^ (node as u64) << 32 ^ 0x0004_e610_0000);
    usize::try_from(rng.below(ONE_WAY_MILLIS.len() as u64)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_regions_has_a_latency() {
        for (region, row) in ONE_WAY_MILLIS.iter().enumerate() {
            assert_eq!(row.len(), region + 1);
            assert!(row.iter().all(|millis| (1..=200).contains(millis)));
        }
        for (a, b) in [(0, 1), (3, 2), (5, 4)] {
            assert_eq!(one_way_micros(7, a, b), one_way_micros(7, b, a));
        }
    }
}
