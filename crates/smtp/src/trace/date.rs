//! The date-time of RFC 5322 3.3 from a count of seconds.

use core::fmt;

/// A moment on the wall clock, with the offset it is to be shown in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallTime {
    unix_seconds: i64,
    offset_minutes: i16,
}

/// 9999-12-31T23:59:59Z: RFC 5322 has four-digit years.
const UNIX_SECONDS_MAX: i64 = 253_402_300_799;

impl WallTime {
    /// Clamped to the years 1970 to 9999 and to offsets below a day, which is what the format can express.
    #[must_use]
    pub fn new(unix_seconds: i64, offset_minutes: i16) -> Self {
        WallTime {
            unix_seconds: unix_seconds.clamp(86_400, UNIX_SECONDS_MAX - 86_400),
            offset_minutes: offset_minutes.clamp(-1_439, 1_439),
        }
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        let local = self.unix_seconds + i64::from(self.offset_minutes) * 60;
        let (days, second) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let sign = if self.offset_minutes < 0 { '-' } else { '+' };
        let offset = self.offset_minutes.unsigned_abs();
        write!(
            f,
            "{}, {day} {} {year:04} {:02}:{:02}:{:02} {sign}{:02}{:02}",
            DAYS[usize::try_from(days.rem_euclid(7)).unwrap_or(0)],
            MONTHS[month - 1],
            second / 3_600,
            second / 60 % 60,
            second % 60,
            offset / 60,
            offset % 60,
        )
    }
}

/// Year, month (1..=12), day (1..=31) of a day counted from 1970-01-01, by whole eras of 400 years that begin in March: leap days
/// then come last in their year.
fn civil(days: i64) -> (i64, usize, i64) {
    const ERA_DAYS: i64 = 146_097;
    // 0000-03-01 is 719,468 days before the epoch.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, usize::try_from(month).unwrap_or(1), day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(unix_seconds: i64, offset_minutes: i16, expected: &str) {
        assert_eq!(
            WallTime::new(unix_seconds, offset_minutes).to_string(),
            expected
        );
    }

    /// Expected values from `date -R -d @N`.
    #[test]
    fn dates() {
        check(86_400, 0, "Fri, 2 Jan 1970 00:00:00 +0000");
        check(951_782_400, 0, "Tue, 29 Feb 2000 00:00:00 +0000");
        check(951_868_799, 0, "Tue, 29 Feb 2000 23:59:59 +0000");
        check(1_709_164_800, 0, "Thu, 29 Feb 2024 00:00:00 +0000");
        check(1_795_190_400, 60, "Fri, 20 Nov 2026 17:00:00 +0100");
        check(1_795_190_400, -570, "Fri, 20 Nov 2026 06:30:00 -0930");
        check(4_107_542_400, 0, "Mon, 1 Mar 2100 00:00:00 +0000");
        check(i64::MAX, 0, "Thu, 30 Dec 9999 23:59:59 +0000");
        check(i64::MIN, i16::MIN, "Thu, 1 Jan 1970 00:01:00 -2359");
    }
}
