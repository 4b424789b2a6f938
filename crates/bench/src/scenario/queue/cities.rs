//! Where the nodes stand: the paper's seven cities, in the order in which its Table 7 adds them.

use std::time::Duration;

use crate::lag::way::Ways;

/// The cities.
pub const CITIES: [&str; 7] = [
    "Amsterdam",
    "New York",
    "San Francisco",
    "Bangalore",
    "Singapore",
    "London",
    "Toronto",
];

/// Round trips in milliseconds, each city with those before it.
///
/// The paper draws its own (Fig. 12) and gives two means: 105 ms for three nodes, 138 ms for seven. These are usual ones between the cities with the same
/// means.
const ROUND_TRIP_MS: [&[u16]; 7] = [
    &[],
    &[84],
    &[152, 78],
    &[160, 226, 241],
    &[173, 244, 185, 38],
    &[9, 76, 147, 152, 179],
    &[98, 13, 76, 229, 241, 92],
];

/// Between two nodes of one city, where there are more nodes than cities.
const SAME_CITY: Duration = Duration::from_millis(1);

/// The round trip between two nodes. Nodes above the seventh stand in the same cities again.
#[must_use]
pub fn round_trip(one: usize, other: usize) -> Duration {
    let (one, other) = (one % CITIES.len(), other % CITIES.len());
    let row = ROUND_TRIP_MS[one.max(other)];
    let millis = row.get(one.min(other)).copied();
    millis.map_or(SAME_CITY, |millis| Duration::from_millis(millis.into()))
}

/// Gives the ways between so many nodes the delays of their cities.
pub fn delay(ways: &Ways, nodes: usize) {
    for one in 0..nodes {
        for other in 0..one {
            ways.set_delay_between([one, other], round_trip(one, other) / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_means_are_those_of_the_paper() {
        let check = |nodes: usize, expected: u128| {
            let pairs = (0..nodes).flat_map(|one| (0..one).map(move |other| (one, other)));
            let all: Vec<u128> = pairs
                .map(|(one, other)| round_trip(one, other).as_millis())
                .collect();
            let count = all.len() as u128;
            assert_eq!((all.iter().sum::<u128>() + count / 2) / count, expected);
        };
        check(3, 105);
        check(7, 138);
        assert_eq!(round_trip(7, 0), SAME_CITY);
        assert_eq!(round_trip(8, 0), round_trip(0, 1));
    }
}
