//! Dates of header fields (RFC 5322 3.3, with the obsolete forms of 4.3).

use crate::parser::text::{skip_cfws, unfold};

/// A date as a header field has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// Year as written, in four digits.
    pub year: u16,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// The moment, in seconds since 1970 UTC. Without a time it is midnight; without a zone that is known, UTC.
    pub utc_seconds: i64,
}

/// Bytes of a field that are looked at: a date with all comments that honest mail has fits.
const DATE_BYTES_MAX: usize = 512;

/// Reads the raw value of a Date field. SENTSINCE and its kin go by the "Date: header field (disregarding time and
/// timezone)" (RFC 9051 6.4.4), so they want `year`, `month`, `day`.
///
/// Also read, because mail has them: dates joined by hyphens, the order of C's `ctime`, times without seconds. A day that
/// its month does not have is no date.
pub fn parse(raw: &[u8]) -> Option<Date> {
    let value = unfold(&raw[..raw.len().min(DATE_BYTES_MAX)]);
    let mut tokens = Tokens {
        value: &value,
        at: 0,
    };
    let mut token = tokens.next()?;
    // A day of the week, which is not checked.
    if token[0].is_ascii_alphabetic() && month_of(token).is_none() {
        token = tokens.next()?;
    }
    if let Some(month) = month_of(token) {
        // ctime: "Jul 17 02:23:25 1996", perhaps with a zone before or behind the year.
        let day = number(tokens.next()?, 2)?;
        let seconds = time(&mut tokens)?;
        let mut token = tokens.next()?;
        let mut zone = None;
        if !token[0].is_ascii_digit() {
            zone = Some(token);
            token = tokens.next()?;
        }
        let year = year(token)?;
        let zone = zone.or_else(|| tokens.next()).map_or(0, zone_seconds);
        return date(year, month, day, seconds, zone);
    }
    let day = number(token, 2)?;
    let month = month_of(tokens.next()?)?;
    let year = year(tokens.next()?)?;
    let seconds = time(&mut tokens).unwrap_or(0);
    let zone = tokens.next().map_or(0, zone_seconds);
    date(year, month, day, seconds, zone)
}

/// Words and numbers; a sign belongs to what follows it where a zone may come.
struct Tokens<'a> {
    value: &'a [u8],
    at: usize,
}

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let value = self.value;
        loop {
            self.at = skip_cfws(value, self.at);
            let &byte = value.get(self.at)?;
            // A hyphen joins day, month and year; before a digit that follows white space it is the sign of a zone.
            let sign = matches!(byte, b'+' | b'-')
                && value.get(self.at + 1).is_some_and(u8::is_ascii_digit)
                && (byte == b'+'
                    || self.at == 0
                    || matches!(value[self.at - 1], b' ' | b'\t' | b')'));
            if byte.is_ascii_alphanumeric() || sign {
                break;
            }
            self.at += 1;
        }
        let start = self.at;
        let class = |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_alphabetic());
        self.at += 1;
        let first = if matches!(value[start], b'+' | b'-') {
            (true, false)
        } else {
            class(value[start])
        };
        while value.get(self.at).is_some_and(|&byte| class(byte) == first) {
            self.at += 1;
        }
        Some(&value[start..self.at])
    }

    /// Whether the next byte, behind white space and comments, is this one, which is then taken.
    fn takes(&mut self, byte: u8) -> bool {
        self.at = skip_cfws(self.value, self.at);
        let takes = self.value.get(self.at) == Some(&byte);
        self.at += usize::from(takes);
        takes
    }
}

fn number(token: &[u8], digits_max: usize) -> Option<u32> {
    if token.is_empty() || token.len() > digits_max || !token.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(token.iter().fold(0, |n, d| n * 10 + u32::from(d - b'0')))
}

fn month_of(token: &[u8]) -> Option<u32> {
    const MONTHS: [&[u8]; 12] = [
        b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov",
        b"dec",
    ];
    let name = token.get(..3)?.to_ascii_lowercase();
    MONTHS
        .iter()
        .position(|month| *month == name)
        .map(|at| at as u32 + 1)
}

/// RFC 5322 4.3: "If a two digit year is encountered whose value is between 00 and 49, the year is interpreted by adding
/// 2000 ... If a two digit year is encountered with a value between 50 and 99, or any three digit year is encountered, the
/// year is interpreted by adding 1900."
fn year(token: &[u8]) -> Option<u32> {
    let number = number(token, 4)?;
    Some(match token.len() {
        1 | 2 if number < 50 => number + 2000,
        1..=3 => number + 1900,
        _ => number,
    })
}

/// A time of day, in seconds; nothing is taken if there is none.
fn time(tokens: &mut Tokens<'_>) -> Option<i64> {
    let before = tokens.at;
    let mut parts = [0; 3];
    let hours = tokens.next().and_then(|token| number(token, 2));
    if hours.is_none() || !(tokens.takes(b':') || tokens.takes(b'.')) {
        tokens.at = before;
        return None;
    }
    parts[0] = hours?;
    parts[1] = number(tokens.next()?, 2)?;
    if tokens.takes(b':') || tokens.takes(b'.') {
        parts[2] = number(tokens.next()?, 2)?;
    }
    let [hours, minutes, seconds] = parts;
    // 60 is a leap second.
    (hours < 24 && minutes < 60 && seconds <= 60)
        .then(|| i64::from(hours * 3600 + minutes * 60 + seconds))
}

/// What a zone is ahead of UTC, in seconds. RFC 5322 4.3: the military zones "SHOULD all be considered equivalent to
/// "-0000" unless there is out-of-band information confirming their meaning", and so all other names.
fn zone_seconds(token: &[u8]) -> i64 {
    if let Some((sign @ (b'+' | b'-'), digits)) = token.split_first() {
        let Some(number) = number(digits, 4) else {
            return 0;
        };
        let seconds = i64::from(number / 100 * 3600 + number % 100 * 60);
        return if *sign == b'-' { -seconds } else { seconds };
    }
    let hours = match token.to_ascii_uppercase().as_slice() {
        b"EDT" => -4,
        b"EST" | b"CDT" => -5,
        b"CST" | b"MDT" => -6,
        b"MST" | b"PDT" => -7,
        b"PST" => -8,
        _ => 0,
    };
    hours * 3600
}

fn date(year: u32, month: u32, day: u32, seconds: i64, zone: i64) -> Option<Date> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if day == 0 || day > days {
        return None;
    }
    let days = days_since_1970(i64::from(year), i64::from(month), i64::from(day));
    Some(Date {
        year: u16::try_from(year).ok()?,
        month: u8::try_from(month).ok()?,
        day: u8::try_from(day).ok()?,
        utc_seconds: days * 86_400 + seconds - zone,
    })
}

/// Days from 1970-01-01 to a day of the Gregorian calendar; months count from 1. Years begin in March here, so that the leap day is the last of its year.
pub fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let shifted = year - i64::from(month <= 2);
    let (era, year_of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, expected: Option<(u16, u8, u8, i64)>) {
        let found = parse(value.as_bytes()).map(|d| (d.year, d.month, d.day, d.utc_seconds));
        assert_eq!(found, expected, "{value}");
    }

    #[test]
    fn dates() {
        check("Thu, 1 Jan 1970 00:00:00 +0000", Some((1970, 1, 1, 0)));
        check(
            "Wed, 17 Jul 1996 02:23:25 -0700 (PDT)",
            Some((1996, 7, 17, 837_595_405)),
        );
        check(
            " Fri, 21 Nov 1997 09:55:06 -0600\r\n",
            Some((1997, 11, 21, 880_127_706)),
        );
        check(
            "Thu,\r\n 13\r\n Feb\r\n 1969\r\n 23:32\r\n -0330 (Newfoundland Time)",
            Some((1969, 2, 13, -27_723_480)),
        );
        check(
            "Fri, 21 Nov 1997 09(comment): 55 : 06 -0600",
            Some((1997, 11, 21, 880_127_706)),
        );
        check("29 Feb 2000 12:00 EST", Some((2000, 2, 29, 951_843_600)));
        check("21 Nov 97 09:55:06 GMT", Some((1997, 11, 21, 880_106_106)));
        check("21 Nov 03 09:55:06 Z", Some((2003, 11, 21, 1_069_408_506)));
        check(
            "21 Nov 103 09:55:06 UT",
            Some((2003, 11, 21, 1_069_408_506)),
        );
        check("1 December 2020", Some((2020, 12, 1, 1_606_780_800)));
        check(
            "01-Dec-2020 00:00:01 +0000",
            Some((2020, 12, 1, 1_606_780_801)),
        );
        check(
            "Tue Dec  1 00:00:01 2020",
            Some((2020, 12, 1, 1_606_780_801)),
        );
        check(
            "Tue Dec  1 00:00:01 MST 2020",
            Some((2020, 12, 1, 1_606_780_801 + 7 * 3600)),
        );
        check(
            "31 Dec 9999 23:59:60 -9999",
            Some((9999, 12, 31, 253_402_300_800 + 99 * 3600 + 99 * 60)),
        );
    }

    #[test]
    fn no_dates() {
        for value in [
            "",
            "x",
            "Mon",
            "Mon,",
            "32 Jan 2000",
            "30 Feb 2000",
            "29 Feb 1900",
            "0 Jan 2000",
            "1 Foo 2000",
            "1 Jan",
            "1 Jan 20000",
            "1",
            "99999999999 Jan 2000",
            "(((((",
            "Jan",
            "Jan 1",
            "-",
            "+",
            "\u{e9}",
        ] {
            check(value, None);
        }
    }
}
