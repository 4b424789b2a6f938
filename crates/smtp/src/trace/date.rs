//! The date-time of RFC 5322 3.3 from a count of seconds; that of RFC 3339 both ways, for HOLDUNTIL.

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

    /// Seconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn unix_seconds(&self) -> i64 {
        self.unix_seconds
    }

    /// A `date-time` of RFC 3339 5.6, to be shown in UTC. Fractions of a second are dropped, a leap second is the next second.
    #[must_use]
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let (date, rest) = text.split_at_checked(10)?;
        let (time, rest) = rest.strip_prefix(['T', 't'])?.split_at_checked(8)?;
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        let zone = match rest.strip_prefix('.') {
            Some(fraction) => {
                let zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
                (zone.len() < fraction.len()).then_some(zone)?
            }
            None => rest,
        };
        let offset = match (zone, zone.get(..1)?) {
            ("Z" | "z", _) => 0,
            (_, sign @ ("+" | "-")) => {
                let [hours, minutes] = numbers(&zone[1..], ':', [2, 2])?;
                let offset = hours * 60 + minutes;
                (hours < 24 && minutes < 60).then_some(if sign == "-" {
                    -offset
                } else {
                    offset
                })?
            }
            _ => return None,
        };
        let month = usize::try_from(month)
            .ok()
            .filter(|m| (1..=12).contains(m))?;
        let days = days(year, month, day);
        // What is no day of its month is a day of the next.
        (civil(days) == (year, month, day) && hour < 24 && minute < 60 && second <= 60).then(|| {
            WallTime::new(
                days * 86_400 + hour * 3_600 + (minute - offset) * 60 + second,
                0,
            )
        })
    }

    /// In the form of RFC 3339, in UTC.
    #[must_use]
    pub fn rfc3339(&self) -> String {
        let (days, second) = (
            self.unix_seconds.div_euclid(86_400),
            self.unix_seconds.rem_euclid(86_400),
        );
        let (year, month, day) = civil(days);
        let (hour, minute) = (second / 3_600, second / 60 % 60);
        let second = second % 60;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Numbers of so many digits each, between separators.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut out = [0; N];
    for (number, digits) in out.iter_mut().zip(digits) {
        let part = parts.next()?;
        if part.len() != digits || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(out)
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

/// The opposite of [`civil`]; `month` is 1 to 12.
fn days(year: i64, month: usize, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = i64::try_from((month + 9) % 12).unwrap_or(0);
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
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

    /// Expected values from `date -d DATE +%s`.
    #[test]
    fn rfc3339() {
        let check = |text: &str, expected: Option<i64>| {
            let got = WallTime::parse_rfc3339(text);
            assert_eq!(got.map(|time| time.unix_seconds()), expected, "{text:?}");
            if let Some(time) = got {
                assert_eq!(WallTime::parse_rfc3339(&time.rfc3339()), Some(time));
            }
        };
        check("2026-11-20T16:00:00Z", Some(1_795_190_400));
        check("2026-11-20t16:00:00z", Some(1_795_190_400));
        check("2026-11-20T17:00:00.999+01:00", Some(1_795_190_400));
        check("2026-11-20T06:30:00-09:30", Some(1_795_190_400));
        check("2024-02-29T00:00:00Z", Some(1_709_164_800));
        check("2100-03-01T00:00:00Z", Some(4_107_542_400));
        check("2016-12-31T23:59:60Z", Some(1_483_228_800));
        check("0000-01-01T00:00:00Z", Some(86_400));
        for bad in [
            "",
            "2026-11-20",
            "2026-11-20T16:00:00",
            "2026-11-20 16:00:00Z",
            "2026-11-20T16:00:00.Z",
            "2026-11-20T16:00:00ZZ",
            "2026-11-20T16:00:00+0100",
            "2026-11-20T16:00:00+24:00",
            "2026-11-20T16:00:00+01:60",
            "2026-11-20T16:00Z",
            "2026-11-20T24:00:00Z",
            "2026-11-20T16:60:00Z",
            "2026-11-20T16:00:61Z",
            "2026-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "26-11-20T16:00:00Z",
            "+026-11-20T16:00:00Z",
            "2026-11-2éT16:00:00Z",
            "2026-11-20T16:00:00é",
        ] {
            check(bad, None);
        }
        assert_eq!(
            WallTime::new(1_795_190_400, 60).rfc3339(),
            "2026-11-20T16:00:00Z"
        );
    }
}
