//! What was measured on real mail and real clients, published with the memory study of Aerogramme (2024).

/// Quantiles of the sizes of messages in bytes.
pub type Quantiles = &'static [(f64, u32)];

/// 2,327 messages of one personal inbox.
pub const PERSONAL: Quantiles = &[
    (0.0, 723),
    (0.05, 1_870),
    (0.1, 2_970),
    (0.15, 3_889),
    (0.2, 4_688),
    (0.25, 5_224),
    (0.3, 5_766),
    (0.35, 6_763),
    (0.4, 8_708),
    (0.45, 11_435),
    (0.5, 15_037),
    (0.55, 18_027),
    (0.6, 22_837),
    (0.65, 29_035),
    (0.7, 35_491),
    (0.75, 47_047),
    (0.8, 62_668),
    (0.85, 92_040),
    (0.9, 148_283),
    (0.95, 312_418),
    (0.96, 416_953),
    (0.97, 582_301),
    (0.98, 869_721),
    (0.99, 1_463_982),
    (0.995, 4_331_191),
    (1.0, 20_584_130),
];

/// 100 messages made by many clients for that study: what its accounts were filled with, 23 MB together.
pub const MIXED: Quantiles = &[
    (0.0, 669),
    (0.05, 1_391),
    (0.1, 3_007),
    (0.15, 3_927),
    (0.2, 4_102),
    (0.25, 4_352),
    (0.3, 6_302),
    (0.35, 11_538),
    (0.4, 17_277),
    (0.45, 19_581),
    (0.5, 20_966),
    (0.55, 23_653),
    (0.6, 28_181),
    (0.65, 32_629),
    (0.7, 36_454),
    (0.75, 42_271),
    (0.8, 47_047),
    (0.85, 62_307),
    (0.9, 137_595),
    (0.95, 2_006_073),
    (0.96, 2_446_863),
    (0.97, 3_383_940),
    (0.98, 5_502_023),
    (0.99, 6_361_558),
    (1.0, 6_361_558),
];

/// The size at a quantile, between two known ones in proportion.
#[must_use]
pub fn size_at(quantiles: Quantiles, at: f64) -> usize {
    let above = quantiles.partition_point(|(quantile, _)| *quantile < at);
    let Some(&(high_at, high)) = quantiles.get(above) else {
        return quantiles.last().map_or(0, |(_, size)| *size as usize);
    };
    let Some(&(low_at, low)) = above.checked_sub(1).and_then(|below| quantiles.get(below)) else {
        return high as usize;
    };
    let share = (at - low_at) / (high_at - low_at);
    (f64::from(low) + share * f64::from(high - low)) as usize
}

/// How often each command came from real clients (Thunderbird, Geary, Outlook, Gmail, Mailspring, K-9 and others), of 4,619.
pub const COMMANDS: &[(&str, u32)] = &[
    ("APPEND", 6),
    ("CAPABILITY", 33),
    ("CHECK", 96),
    ("CLOSE", 6),
    ("CREATE", 3),
    ("ENABLE", 9),
    ("EXAMINE", 26),
    ("EXPUNGE", 1),
    ("FETCH", 1187),
    ("IDLE", 248),
    ("LIST", 132),
    ("LOGIN", 244),
    ("LOGOUT", 169),
    ("LSUB", 14),
    ("MOVE", 2),
    ("NOOP", 295),
    ("SEARCH", 658),
    ("SELECT", 746),
    ("STATUS", 203),
    ("STORE", 23),
    ("SUBSCRIBE", 3),
    ("UNSELECT", 515),
];

/// A figure that another system's authors published for a scenario that is repeated here.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// The scenario.
    pub scenario: &'static str,
    /// Resident memory at its peak, in MB; 0: not stated.
    pub peak_mb: f64,
    /// In words.
    pub words: &'static str,
}

/// Aerogramme's memory study: AMD Ryzen 7 1700, release build, a local Garage beside it (whose memory is not counted).
pub const AEROGRAMME: &[Published] = &[
    Published {
        scenario: "fill in turn",
        peak_mb: 50.0,
        words: "16 spikes of about 50 MB, 25 MB between them, 18 MB at the end",
    },
    Published {
        scenario: "fill in parallel",
        peak_mb: 400.0,
        words: "400 MB while the large messages go in",
    },
    Published {
        scenario: "copy and move",
        peak_mb: 25.0,
        words: "below 25 MB, a whole core for 40 s",
    },
    Published {
        scenario: "flags",
        peak_mb: 0.0,
        words: "stable; the 1,000 changes at once cost by far the most CPU",
    },
    Published {
        scenario: "refresh",
        peak_mb: 0.0,
        words: "stable, short spikes of CPU",
    },
    Published {
        scenario: "idle",
        peak_mb: 0.0,
        words: "linear: 2 MB a user",
    },
    Published {
        scenario: "fetch all",
        peak_mb: 0.0,
        words: "low, a short spike of CPU",
    },
    Published {
        scenario: "fetch full",
        peak_mb: 300.0,
        words: "300 MB: the whole mailbox is read first",
    },
    Published {
        scenario: "search metadata",
        peak_mb: 10.0,
        words: "about 10 MB for the request",
    },
    Published {
        scenario: "search text",
        peak_mb: 300.0,
        words: "as FETCH FULL",
    },
    Published {
        scenario: "list",
        peak_mb: 0.0,
        words: "nothing to see: the list is read at login",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_quantiles() {
        let check = |quantiles, at, expected| assert_eq!(size_at(quantiles, at), expected, "{at}");
        check(PERSONAL, 0.0, 723);
        check(PERSONAL, 0.5, 15_037);
        check(PERSONAL, 0.475, 13_235);
        check(PERSONAL, 1.0, 20_584_130);
        check(MIXED, 0.9949, 6_361_558);
    }

    #[test]
    fn all_commands_are_there() {
        let sum: u32 = COMMANDS.iter().map(|(_, count)| count).sum();
        assert_eq!(sum, 4_619);
    }
}
