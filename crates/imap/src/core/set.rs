//! Sets of sequence numbers or UIDs (RFC 9051, `sequence-set`; RFC 5182, `$`).
//!
//! Whimbrel's UIDs lie 64 apart, so a client that names a million messages names a million single numbers. A set is held as
//! ranges of eight bytes, sorted and merged; it is built number by number, so that its text need not be held.

/// What stands where the syntax says `sequence-set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageSet {
    /// `$`: the result of the last SEARCH with SAVE (RFC 5182).
    Saved,
    /// Numbers.
    Numbers(SequenceSet),
    /// `2,$`: these numbers and the saved result. "$" is one of the forms of `sequence-set`, and a set may end in another set (RFC 5182, 3).
    NumbersAndSaved(SequenceSet),
}

impl MessageSet {
    /// The numbers in it.
    pub fn numbers(&self) -> Option<&SequenceSet> {
        match self {
            Self::Saved => None,
            Self::Numbers(set) | Self::NumbersAndSaved(set) => Some(set),
        }
    }

    /// Has `*` mean `largest` ([`SequenceSet::pin`]).
    pub fn pin(&mut self, largest: u32) {
        match self {
            Self::Saved => {}
            Self::Numbers(set) | Self::NumbersAndSaved(set) => set.pin(largest),
        }
    }

    /// Appends the text of the set to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Some(set) = self.numbers() {
            set.encode(out);
        }
        match self {
            Self::Saved => out.push(b'$'),
            Self::Numbers(_) => {}
            Self::NumbersAndSaved(_) => out.extend_from_slice(b",$"),
        }
    }
}

/// Numbers from 1 to 2^32 - 1 as sorted, disjoint, non-adjacent ranges; and at most one range that ends in `*`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Hash)]
pub struct SequenceSet {
    ranges: Vec<(u32, u32)>,
    /// `n` of `n:*`. A lone `*` is `4294967295:*`, which means the same.
    star: Option<u32>,
}

impl SequenceSet {
    /// The set that `text` spells, with at most `ranges_max` disjoint ranges.
    pub fn parse(text: &[u8], ranges_max: usize) -> Result<Self, SetError> {
        let mut builder = SetBuilder::new(ranges_max);
        for &byte in text {
            builder.push(byte)?;
        }
        match builder.finish()? {
            MessageSet::Numbers(set) => Ok(set),
            MessageSet::Saved | MessageSet::NumbersAndSaved(_) => Err(SetError::Syntax),
        }
    }

    /// The set of these numbers; zeros are left out.
    pub fn from_numbers(numbers: impl IntoIterator<Item = u32>) -> Self {
        let mut set = Self::default();
        for number in numbers {
            set.push_range(number, number);
        }
        set.normalise();
        set
    }

    /// The set of the numbers of these inclusive ranges; zeros are left out.
    pub fn from_ranges(ranges: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let mut set = Self::default();
        for (first, last) in ranges {
            set.push_range(first.min(last).max(1), first.max(last));
        }
        set.normalise();
        set
    }

    /// Whether no number can be in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.star.is_none()
    }

    /// The ranges without `*`, ascending and disjoint.
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }

    /// `n` of `n:*`; 4294967295 for a lone `*`.
    pub fn star(&self) -> Option<u32> {
        self.star
    }

    /// Has `*` mean `largest` from now on, whatever comes later; a range from a number above that stays open.
    pub fn pin(&mut self, largest: u32) {
        let pinned = match self.star {
            Some(u32::MAX) => (largest, largest),
            Some(n) if n <= largest => (n, largest),
            _ => return,
        };
        self.star = None;
        self.push_range(pinned.0, pinned.1);
        self.normalise();
    }

    /// The greatest number that is named as such, `*` apart.
    pub fn greatest_named(&self) -> Option<u32> {
        let star = self.star.filter(|&n| n != u32::MAX);
        self.ranges.last().map(|r| r.1).max(star)
    }

    /// The inclusive ranges, ascending and disjoint, where `*` is `largest` ("regardless of order": `9:*` with 3 is `3:9`).
    pub fn resolve(&self, largest: u32) -> Resolved<'_> {
        let star = self.star.map(|n| (n.min(largest), n.max(largest)));
        Resolved {
            ranges: self.ranges.iter(),
            pending: None,
            star,
        }
    }

    /// Whether `number` is in the set, where `*` is `largest`.
    pub fn contains(&self, number: u32, largest: u32) -> bool {
        let in_star = self
            .star
            .is_some_and(|n| (n.min(largest)..=n.max(largest)).contains(&number));
        in_star || {
            let at = self.ranges.partition_point(|r| r.1 < number);
            self.ranges.get(at).is_some_and(|r| r.0 <= number)
        }
    }

    /// Appends the text of the set to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        for &(first, last) in &self.ranges {
            if out.len() > start {
                out.push(b',');
            }
            push_decimal(out, u64::from(first));
            if first != last {
                out.push(b':');
                push_decimal(out, u64::from(last));
            }
        }
        if let Some(from) = self.star {
            if out.len() > start {
                out.push(b',');
            }
            if from != u32::MAX {
                push_decimal(out, u64::from(from));
                out.push(b':');
            }
            out.push(b'*');
        }
    }

    /// Bytes of memory the ranges take.
    pub fn memory_bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<(u32, u32)>()
    }

    /// Adds a range, merged with the last one when it goes on from there.
    fn push_range(&mut self, first: u32, last: u32) {
        if first == 0 {
            return;
        }
        match self.ranges.last_mut() {
            Some(end) if first >= end.0 && first <= end.1.saturating_add(1) => {
                end.1 = end.1.max(last)
            }
            _ => self.ranges.push((first, last)),
        }
    }

    fn normalise(&mut self) {
        if !self
            .ranges
            .windows(2)
            .all(|w| w[0].1 < u32::MAX && w[0].1 + 1 < w[1].0)
        {
            self.ranges.sort_unstable();
            self.ranges.dedup_by(|next, kept| {
                let joined = next.0 <= kept.1.saturating_add(1);
                if joined {
                    kept.1 = kept.1.max(next.1);
                }
                joined
            });
        }
    }
}

/// Iterator over the ranges of a set whose `*` is known: see [`SequenceSet::resolve`].
#[derive(Debug)]
pub struct Resolved<'a> {
    ranges: std::slice::Iter<'a, (u32, u32)>,
    pending: Option<(u32, u32)>,
    star: Option<(u32, u32)>,
}

impl Iterator for Resolved<'_> {
    type Item = (u32, u32);

    fn next(&mut self) -> Option<(u32, u32)> {
        loop {
            let Some(range) = self.pending.take().or_else(|| self.ranges.next().copied()) else {
                return self.star.take();
            };
            match &mut self.star {
                Some(star) if star.1.saturating_add(1) < range.0 => {
                    self.pending = Some(range);
                    return self.star.take();
                }
                Some(star) if star.0 <= range.1.saturating_add(1) => {
                    *star = (star.0.min(range.0), star.1.max(range.1));
                }
                _ => return Some(range),
            }
        }
    }
}

/// Why a text is no set, or none that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub enum SetError {
    /// Not of the syntax.
    Syntax,
    /// 0, or more than 2^32 - 1.
    Range,
    /// More disjoint ranges than permitted.
    TooMany,
}

impl SetError {
    /// What the client is told.
    pub fn text(self) -> &'static str {
        match self {
            Self::Syntax => "invalid sequence set",
            Self::Range => "number in sequence set is out of range",
            Self::TooMany => "too many ranges in sequence set",
        }
    }
}

/// Builds a set from its text, byte by byte.
#[derive(Clone, Debug)]
pub struct SetBuilder {
    set: SequenceSet,
    ranges_max: usize,
    /// First half of a range, `None` inside for `*`.
    first: Option<Option<u32>>,
    current: Current,
    /// `$` is in it.
    saved: bool,
}

#[derive(Clone, Copy, Debug)]
enum Current {
    Nothing,
    Number(u32),
    Star,
    Saved,
}

impl SetBuilder {
    /// A builder that accepts at most `ranges_max` disjoint ranges, and holds at most a quarter more while it works.
    pub fn new(ranges_max: usize) -> Self {
        Self {
            set: SequenceSet::default(),
            ranges_max,
            first: None,
            current: Current::Nothing,
            saved: false,
        }
    }

    /// Whether `byte` may stand in the text of a set.
    pub fn is_set_byte(byte: u8) -> bool {
        matches!(byte, b'0'..=b'9' | b'*' | b':' | b',' | b'$')
    }

    /// Takes the next byte of the text.
    pub fn push(&mut self, byte: u8) -> Result<(), SetError> {
        match (byte, self.current) {
            (b'0'..=b'9', Current::Nothing) => {
                self.current = Current::Number(u32::from(byte - b'0'))
            }
            (b'0'..=b'9', Current::Number(number)) => {
                let number = number
                    .checked_mul(10)
                    .and_then(|n| n.checked_add(u32::from(byte - b'0')));
                self.current = Current::Number(number.ok_or(SetError::Range)?);
            }
            (b'*', Current::Nothing) => self.current = Current::Star,
            (b'$', Current::Nothing) if self.first.is_none() => self.current = Current::Saved,
            (b':', Current::Number(_) | Current::Star) if self.first.is_none() => {
                self.first = Some(self.take_number()?);
            }
            (b',', Current::Number(_) | Current::Star | Current::Saved) => self.end_range()?,
            _ => return Err(SetError::Syntax),
        }
        // `0` alone is refused when it ends; `01` is refused here (`nz-number = digit-nz *DIGIT`).
        match self.current {
            Current::Number(0) => Err(SetError::Range),
            _ => Ok(()),
        }
    }

    /// The set, when the text is at its end.
    pub fn finish(mut self) -> Result<MessageSet, SetError> {
        self.end_range()?;
        self.set.normalise();
        if self.set.ranges.len() > self.ranges_max {
            return Err(SetError::TooMany);
        }
        self.set.ranges.shrink_to_fit();
        Ok(match (self.saved, self.set.is_empty()) {
            (false, _) => MessageSet::Numbers(self.set),
            (true, true) => MessageSet::Saved,
            (true, false) => MessageSet::NumbersAndSaved(self.set),
        })
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.set.memory_bytes()
    }

    fn take_number(&mut self) -> Result<Option<u32>, SetError> {
        match std::mem::replace(&mut self.current, Current::Nothing) {
            Current::Nothing | Current::Saved => Err(SetError::Syntax),
            Current::Number(number) => Ok(Some(number)),
            Current::Star => Ok(None),
        }
    }

    fn end_range(&mut self) -> Result<(), SetError> {
        if let Current::Saved = self.current {
            self.current = Current::Nothing;
            self.saved = true;
            return Ok(());
        }
        let last = self.take_number()?;
        match (self.first.take().unwrap_or(last), last) {
            (Some(a), Some(b)) => self.set.push_range(a.min(b), a.max(b)),
            (Some(n), None) | (None, Some(n)) => {
                self.set.star = Some(self.set.star.map_or(n, |s| s.min(n)))
            }
            (None, None) => self.set.star = Some(self.set.star.unwrap_or(u32::MAX)),
        }
        // Sorting only when a quarter more has come keeps the work n log n.
        if self.set.ranges.len() > self.ranges_max.saturating_add(self.ranges_max / 4 + 16) {
            self.set.normalise();
            if self.set.ranges.len() > self.ranges_max {
                return Err(SetError::TooMany);
            }
        }
        Ok(())
    }
}

/// Appends `number` in decimal.
pub(crate) fn push_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[track_caller]
    fn check(input: &str, expected: Result<&str, SetError>) {
        let set = SequenceSet::parse(input.as_bytes(), 5);
        let text = set.map(|set| {
            let mut out = Vec::new();
            set.encode(&mut out);
            String::from_utf8(out).unwrap()
        });
        assert_eq!(text.as_deref().map_err(|&e| e), expected, "{input}");
    }

    #[test]
    fn texts() {
        check("1", Ok("1"));
        check("2:4", Ok("2:4"));
        check("4:2", Ok("2:4"));
        check("1,2,3", Ok("1:3"));
        check("5,1,3", Ok("1,3,5"));
        check("*", Ok("*"));
        check("*:*", Ok("*"));
        check("*:4,5:7", Ok("5:7,4:*"));
        check("9:*,3:*", Ok("3:*"));
        check("*,3:*", Ok("3:*"));
        check("4294967295", Ok("4294967295"));
        check("1:4294967295", Ok("1:4294967295"));
        check("4294967294,4294967295,1", Ok("1,4294967294:4294967295"));
        check("4294967296", Err(SetError::Range));
        check("0", Err(SetError::Range));
        check("0:3", Err(SetError::Range));
        check("01", Err(SetError::Range));
        check("", Err(SetError::Syntax));
        check("1,", Err(SetError::Syntax));
        check(",1", Err(SetError::Syntax));
        check("1::2", Err(SetError::Syntax));
        check("1:2:3", Err(SetError::Syntax));
        check("1:", Err(SetError::Syntax));
        check("**", Err(SetError::Syntax));
        check("*1", Err(SetError::Syntax));
        check("1*", Err(SetError::Syntax));
        check("1 ", Err(SetError::Syntax));
        check("1,3,5,7,9", Ok("1,3,5,7,9"));
        check("1,3,5,7,9,11", Err(SetError::TooMany));
        check("1,3,5,7,9,1,3,5,7,9,1,3,5,7,9,1,3,5", Ok("1,3,5,7,9"));
    }

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 9051, `sequence-set`: "2,4:7,9,12:* for a mailbox with 15 messages".
        let set = SequenceSet::parse(b"2,4:7,9,12:*", 100).unwrap();
        let all: Vec<u32> = set.resolve(15).flat_map(|(a, b)| a..=b).collect();
        assert_eq!(all, [2, 4, 5, 6, 7, 9, 12, 13, 14, 15]);
    }

    #[test]
    fn a_million_single_uids() {
        let set = SequenceSet::from_numbers((1..=1_000_000).map(|n| n * 64));
        let mut text = Vec::new();
        set.encode(&mut text);
        let again = SequenceSet::parse(&text, 1_000_000).unwrap();
        assert_eq!(again, set);
        assert_eq!(again.ranges().len(), 1_000_000);
        assert!(again.memory_bytes() <= 8_000_000);
        assert_eq!(SequenceSet::parse(&text, 999_999), Err(SetError::TooMany));
    }

    #[test]
    fn saved_results_in_sets() {
        let check = |input: &str, expected: Option<&str>| {
            let mut builder = SetBuilder::new(5);
            let set = input.bytes().try_for_each(|byte| builder.push(byte));
            let set = set.and_then(|()| builder.finish());
            let text = set.map(|set| {
                let mut out = Vec::new();
                set.encode(&mut out);
                String::from_utf8(out).unwrap()
            });
            assert_eq!(text.ok().as_deref(), expected, "{input}");
        };
        check("$", Some("$"));
        check("2,$", Some("2,$"));
        check("$,2", Some("2,$"));
        check("1,$,3:5", Some("1,3:5,$"));
        check("$,$", Some("$"));
        check("7:*,$", Some("7:*,$"));
        for bad in ["$:3", "3:$", "$2", "2$", "$$", ",$", "$,", "$*"] {
            check(bad, None);
        }
        assert_eq!(SequenceSet::parse(b"2,$", 5), Err(SetError::Syntax));
    }

    proptest! {
        #[test]
        fn like_a_naive_set(
            parts in proptest::collection::vec((prop::option::weighted(0.9, 1u32..40), prop::option::of(prop::option::weighted(0.9, 1u32..40))), 1..12),
            largest in 0u32..45,
        ) {
            let show = |n: Option<u32>| n.map_or("*".to_owned(), |n| n.to_string());
            let mut text = Vec::new();
            let mut naive = BTreeSet::new();
            for &(first, last) in &parts {
                text.push(match last { None => show(first), Some(last) => format!("{}:{}", show(first), show(last)) });
                let a = first.unwrap_or(largest);
                let b = last.map_or(a, |last| last.unwrap_or(largest));
                naive.extend(a.min(b)..=a.max(b));
            }
            let set = SequenceSet::parse(text.join(",").as_bytes(), 100).unwrap();
            let ranges: Vec<_> = set.resolve(largest).collect();
            prop_assert!(ranges.windows(2).all(|w| w[0].1 < w[1].0), "{:?}", ranges);
            // A lone `*` is held as 4294967295:*; numbers beyond every message do not count.
            let mine: BTreeSet<u32> = ranges.into_iter().flat_map(|(a, b)| a..=b.min(100)).filter(|&n| n <= largest.max(45)).collect();
            for number in 0..=largest {
                prop_assert_eq!(mine.contains(&number), naive.contains(&number), "{}", number);
                prop_assert_eq!(set.contains(number, largest), naive.contains(&number), "{}", number);
            }
        }
    }
}
