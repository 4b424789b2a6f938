//! Dates, as programs write them into the lines between messages, and into headers.

use whimbrel_imap::core::Date;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The date behind the sender: `Thu Jan  1 00:00[:00] 1970`, with a zone before or after the year. Zones in letters are taken as UTC.
pub(super) fn date(rest: &[u8]) -> Option<i64> {
    dates(rest).find_map(|words| date_at(&words))
}

/// A date in one of the other forms that programs write: as in a header (RFC 5322, 3.3), and as in ISO 8601.
pub(super) fn loose_date(rest: &[u8]) -> Option<i64> {
    date(rest).or_else(|| {
        dates(rest).find_map(|words| header_date_at(&words).or_else(|| iso_date_at(&words)))
    })
}

/// Where in a line a date may be, from the end: a sender may hold anything.
fn dates(rest: &[u8]) -> impl Iterator<Item = Vec<&str>> {
    let text = str::from_utf8(rest).unwrap_or_default();
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    (0..words.len())
        .rev()
        .map(move |at| words[at..words.len().min(at + DATE_WORDS)].to_vec())
}

/// Of the longest form.
const DATE_WORDS: usize = 6;

fn date_at(words: &[&str]) -> Option<i64> {
    let [name, day, time, rest @ ..] = words else {
        return None;
    };
    let (year, zone) = match rest {
        [of, zone, ..] if is_year(of) => (of, Some(*zone)),
        [of] => (of, None),
        [zone, of, ..] => (of, Some(*zone)),
        [] => return None,
    };
    seconds(year, month(name)?, day, time, zone)
}

fn header_date_at(words: &[&str]) -> Option<i64> {
    let [day, name, year, time, rest @ ..] = words else {
        return None;
    };
    seconds(year, month(name)?, day, time, rest.first().copied())
}

fn iso_date_at(words: &[&str]) -> Option<i64> {
    let [date, rest @ ..] = words else {
        return None;
    };
    let (date, time, zone) = match date.split_once('T') {
        Some((date, time)) => (date, time, None),
        None => (*date, *rest.first()?, rest.get(1).copied()),
    };
    // `12:00:00.123Z`, `12:00:00+01:00`.
    let end = time.find(|c: char| !c.is_ascii_digit() && c != ':');
    let (time, after) = time.split_at(end.unwrap_or(time.len()));
    let zone = match after.find(['+', '-']) {
        Some(at) => Some(after[at..].replace(':', "")),
        None => zone.map(str::to_owned),
    };
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    seconds(year, month.parse().ok()?, day, time, zone.as_deref())
}

fn month(name: &str) -> Option<u8> {
    let at = MONTHS.iter().position(|of| name.eq_ignore_ascii_case(of))?;
    u8::try_from(at + 1).ok()
}

fn is_year(word: &str) -> bool {
    word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn seconds(year: &str, month: u8, day: &str, time: &str, zone: Option<&str>) -> Option<i64> {
    if !is_year(year) {
        return None;
    }
    let mut parts = time.split(':').map(str::parse::<u32>);
    let (hour, minute) = (parts.next()?.ok()?, parts.next()?.ok()?);
    let second = parts.next().unwrap_or(Ok(0)).ok()?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = Date::new(year.parse().ok()?, month, day.parse().ok()?)?.days_since_epoch();
    let seconds = days * 86_400 + i64::from(hour * 3600 + minute * 60 + second);
    Some(seconds - zone.and_then(offset).unwrap_or(0))
}

/// `+0130` in seconds.
fn offset(zone: &str) -> Option<i64> {
    let (sign, digits) = match zone.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    if digits.len() != 4 {
        return None;
    }
    let number: i64 = digits.parse().ok()?;
    Some(sign * (number / 100 * 3600 + number % 100 * 60))
}
