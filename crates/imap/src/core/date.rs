//! Dates of SEARCH and date-times of APPEND and INTERNALDATE (RFC 9051, `date`, `date-time`).

use whimbrel_mime::date::days_since_1970;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const SECONDS_PER_DAY: i64 = 86_400;
/// 1 January 1, 00:00:00, and 31 December 9999, 23:59:59: local times that four digits can say.
const FIRST_SECOND: i64 = -62_135_596_800;
const LAST_SECOND: i64 = 253_402_300_799;

/// A day of the Gregorian calendar between the years 1 and 9999, without a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

impl Date {
    /// A day that exists.
    pub fn new(year: u16, month: u8, day: u8) -> Option<Self> {
        let good = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && day >= 1
            && day <= days_in(year, month);
        good.then_some(Self { year, month, day })
    }

    /// `1*2DIGIT "-" date-month "-" 4DIGIT`, without quotes.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (day, rest) = text.split_at_checked(text.iter().position(|&b| b == b'-')?)?;
        if !(1..=2).contains(&day.len()) {
            return None;
        }
        Self::from_parts(number(day)?, &rest[1..])
    }

    /// `date-month "-" date-year` after the day.
    fn from_parts(day: u32, rest: &[u8]) -> Option<Self> {
        if rest.len() != 8 || rest[3] != b'-' {
            return None;
        }
        let month = MONTHS
            .iter()
            .position(|m| m.as_bytes().eq_ignore_ascii_case(&rest[..3]))?
            + 1;
        Self::new(number(&rest[4..])? as u16, month as u8, day as u8)
    }

    /// Year, 1 to 9999.
    pub fn year(self) -> u16 {
        self.year
    }

    /// Month, 1 to 12.
    pub fn month(self) -> u8 {
        self.month
    }

    /// Day of the month, 1 to 31.
    pub fn day(self) -> u8 {
        self.day
    }

    /// Days since 1970-01-01.
    pub fn days_since_epoch(self) -> i64 {
        days_since_1970(self.year.into(), self.month.into(), self.day.into())
    }

    /// The day that lies `days` after 1970-01-01; the nearest day there is when that is beyond the years 1 to 9999.
    pub fn from_days_since_epoch(days: i64) -> Self {
        let days = days.clamp(-719_162, 2_932_896) + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 {
            shifted + 3
        } else {
            shifted - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Self {
            year: year as u16,
            month: month as u8,
            day: day as u8,
        }
    }

    /// The month as the protocol spells it.
    pub fn month_name(self) -> &'static str {
        MONTHS[usize::from(self.month) - 1]
    }
}

fn days_in(year: u16, month: u8) -> u8 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => {
            29
        }
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    let good = !digits.is_empty() && digits.len() <= 4 && digits.iter().all(u8::is_ascii_digit);
    good.then(|| {
        digits
            .iter()
            .fold(0, |sum, &d| sum * 10 + u32::from(d - b'0'))
    })
}

/// An instant with the zone it was written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DateTime {
    unix_seconds: i64,
    zone_minutes: i16,
}

impl DateTime {
    /// `unix_seconds` seen in UTC.
    pub fn utc(unix_seconds: i64) -> Self {
        Self::with_zone(unix_seconds, 0)
    }

    /// `unix_seconds` seen in a zone `zone_minutes` east of Greenwich; both are brought into what the syntax can say.
    pub fn with_zone(unix_seconds: i64, zone_minutes: i16) -> Self {
        let zone_minutes = zone_minutes.clamp(-5_999, 5_999);
        let east = i64::from(zone_minutes) * 60;
        let local = unix_seconds.saturating_add(east);
        Self {
            unix_seconds: local.clamp(FIRST_SECOND, LAST_SECOND) - east,
            zone_minutes,
        }
    }

    /// The inside of the quotes: `dd-Mon-yyyy hh:mm:ss +zzzz`, the day with a space or a zero in front.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != 26 || text[2] != b'-' || text[11] != b' ' || text[20] != b' ' {
            return None;
        }
        let day = if text[0] == b' ' {
            number(&text[1..2])?
        } else {
            number(&text[..2])?
        };
        let date = Date::from_parts(day, &text[3..11])?;
        let (hour, minute, second) = (
            number(&text[12..14])?,
            number(&text[15..17])?,
            number(&text[18..20])?,
        );
        // 60 is a leap second (RFC 5322, section 3.3).
        if text[14] != b':' || text[17] != b':' || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let (zone_hours, zone_rest) = (number(&text[22..24])?, number(&text[24..26])?);
        if zone_rest > 59 {
            return None;
        }
        let east = (zone_hours * 60 + zone_rest) as i16;
        let zone_minutes = match text[21] {
            b'+' => east,
            b'-' => -east,
            _ => return None,
        };
        let local = date.days_since_epoch() * SECONDS_PER_DAY
            + i64::from(hour * 3600 + minute * 60 + second);
        Some(Self::with_zone(
            local - i64::from(zone_minutes) * 60,
            zone_minutes,
        ))
    }

    /// Seconds since 1970-01-01T00:00:00Z.
    pub fn unix_seconds(self) -> i64 {
        self.unix_seconds
    }

    /// Minutes east of Greenwich.
    pub fn zone_minutes(self) -> i16 {
        self.zone_minutes
    }

    /// The day in the zone it was written in.
    pub fn local_date(self) -> Date {
        Date::from_days_since_epoch(self.local_seconds().div_euclid(SECONDS_PER_DAY))
    }

    /// Seconds since midnight in the zone it was written in.
    pub fn local_seconds_of_day(self) -> u32 {
        self.local_seconds().rem_euclid(SECONDS_PER_DAY) as u32
    }

    /// Appends `dd-Mon-yyyy hh:mm:ss +zzzz`, without quotes.
    pub fn encode(self, out: &mut Vec<u8>) {
        let two = |out: &mut Vec<u8>, n: u32| {
            out.extend_from_slice(&[b'0' + (n / 10 % 10) as u8, b'0' + (n % 10) as u8])
        };
        let date = self.local_date();
        let seconds = self.local_seconds_of_day();
        let zone = u32::from(self.zone_minutes.unsigned_abs());
        two(out, u32::from(date.day));
        out.push(b'-');
        out.extend_from_slice(date.month_name().as_bytes());
        out.push(b'-');
        two(out, u32::from(date.year) / 100);
        two(out, u32::from(date.year));
        out.push(b' ');
        two(out, seconds / 3600);
        out.push(b':');
        two(out, seconds / 60 % 60);
        out.push(b':');
        two(out, seconds % 60);
        out.extend_from_slice(if self.zone_minutes < 0 { b" -" } else { b" +" });
        two(out, zone / 60);
        two(out, zone % 60);
    }

    fn local_seconds(self) -> i64 {
        self.unix_seconds + i64::from(self.zone_minutes) * 60
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_date(input: &str, expected: Option<(u16, u8, u8)>) {
        assert_eq!(
            Date::parse(input.as_bytes()).map(|d| (d.year, d.month, d.day)),
            expected,
            "{input}"
        );
    }

    #[test]
    fn dates() {
        check_date("1-Feb-1994", Some((1994, 2, 1)));
        check_date("01-feb-1994", Some((1994, 2, 1)));
        check_date("29-Feb-2000", Some((2000, 2, 29)));
        check_date("29-Feb-1900", None);
        check_date("31-Apr-2020", None);
        check_date("0-Jan-2020", None);
        check_date("001-Jan-2020", None);
        check_date("1-Foo-2020", None);
        check_date("1-Jan-20", None);
        check_date("1-Jan-0000", None);
        check_date("1-Jan-20200", None);
        check_date("-Jan-2020", None);
        check_date("", None);
    }

    #[track_caller]
    fn check_time(input: &str, expected: Option<i64>) {
        assert_eq!(
            DateTime::parse(input.as_bytes()).map(DateTime::unix_seconds),
            expected,
            "{input}"
        );
    }

    #[test]
    fn date_times() {
        check_time("17-Jul-1996 02:44:25 -0700", Some(837_596_665));
        check_time(" 7-Feb-1994 21:52:25 -0800", Some(760_686_745));
        check_time("01-Jan-1970 00:00:00 +0000", Some(0));
        check_time("01-Jan-1970 00:00:00 +0130", Some(-5_400));
        check_time("31-Dec-2016 23:59:60 +0000", Some(1_483_228_800));
        check_time("7-Feb-1994 21:52:25 -0800", None);
        check_time("07-Feb-1994 24:00:00 -0800", None);
        check_time("07-Feb-1994 21:60:25 -0800", None);
        check_time("07-Feb-1994 21:52:25 0800 ", None);
        check_time("07-Feb-1994 21:52:25 -0860", None);
        check_time("07-Feb-1994 21-52:25 -0800", None);
        check_time("+7-Feb-1994 21:52:25 -0800", None);
    }

    #[test]
    fn days_go_there_and_back() {
        for days in (-719_162..2_932_896).step_by(37) {
            assert_eq!(Date::from_days_since_epoch(days).days_since_epoch(), days);
        }
        assert_eq!(
            Date::from_days_since_epoch(i64::MAX),
            Date::new(9999, 12, 31).unwrap()
        );
        assert_eq!(
            Date::from_days_since_epoch(i64::MIN),
            Date::new(1, 1, 1).unwrap()
        );
    }

    #[test]
    fn date_times_go_there_and_back() {
        for seconds in (-70_000_000_000..100_000_000_000).step_by(998_877_665) {
            for zone in [-5_999, -90, 0, 1, 330, 5_999] {
                let date = DateTime::with_zone(seconds, zone);
                let mut out = Vec::new();
                date.encode(&mut out);
                assert_eq!(DateTime::parse(&out), Some(date));
            }
        }
    }

    /// .NET's DateTime.MinValue and MaxValue are sent by clients.
    #[test]
    fn the_first_and_the_last_year_are_exact() {
        for text in [
            "01-Jan-0001 00:00:00 +0000",
            "01-Jan-0001 00:00:00 +1400",
            "01-Jan-0001 00:00:00 -1200",
            "05-Jan-0001 03:59:59 +0000",
            "31-Dec-9999 23:59:59 +0000",
            "31-Dec-9999 23:59:59 +1400",
            "31-Dec-9999 23:59:59 -1200",
            "01-Jan-1601 00:00:00 +0000",
        ] {
            let date = DateTime::parse(text.as_bytes()).unwrap();
            // As it is stored, and read again.
            let again = DateTime::with_zone(date.unix_seconds(), date.zone_minutes());
            let mut out = Vec::new();
            again.encode(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn every_instant_has_a_local_date() {
        for seconds in [i64::MIN, i64::MAX] {
            for zone in [i16::MIN, i16::MAX] {
                let year = DateTime::with_zone(seconds, zone).local_date().year();
                assert!((1..=9999).contains(&year));
            }
        }
    }
}
