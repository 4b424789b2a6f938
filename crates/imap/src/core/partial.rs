//! Which of many results are wanted (RFC 9394).

use super::set::push_decimal;

/// `partial-range = nz-number ":" nz-number / "-" nz-number ":" "-" nz-number`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialRange {
    /// As sent, at least 1. "A range 500:400 is the same as 400:500."
    pub first: u32,
    /// As sent, at least 1.
    pub last: u32,
    /// Counted from the last result back: both numbers have a minus sign.
    pub from_end: bool,
}

impl PartialRange {
    /// Which of `count` results these are: the half-open range of their places from 0, maybe empty.
    pub fn places(&self, count: u32) -> (u32, u32) {
        let (low, high) = (self.first.min(self.last), self.first.max(self.last));
        if self.from_end {
            (count.saturating_sub(high), count.saturating_sub(low - 1))
        } else {
            ((low - 1).min(count), high.min(count))
        }
    }

    /// How many results, from the begin or from the end, decide it.
    pub fn results_max(&self) -> u32 {
        self.first.max(self.last)
    }

    /// Appends it as it was sent.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for (separator, number) in [("", self.first), (":", self.last)] {
            out.extend_from_slice(separator.as_bytes());
            if self.from_end {
                out.push(b'-');
            }
            push_decimal(out, u64::from(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        #[track_caller]
        fn check(first: u32, last: u32, from_end: bool, count: u32, expected: &[u32], text: &str) {
            let range = PartialRange {
                first,
                last,
                from_end,
            };
            let (from, to) = range.places(count);
            assert_eq!((from..to).map(|n| n + 1).collect::<Vec<_>>(), expected);
            let mut out = Vec::new();
            range.encode(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
        check(1, 3, false, 9, &[1, 2, 3], "1:3");
        check(3, 1, false, 9, &[1, 2, 3], "3:1");
        check(8, 12, false, 9, &[8, 9], "8:12");
        check(10, 12, false, 9, &[], "10:12");
        check(1, u32::MAX, false, 2, &[1, 2], "1:4294967295");
        check(1, 3, true, 9, &[7, 8, 9], "-1:-3");
        check(3, 2, true, 9, &[7, 8], "-3:-2");
        check(8, 12, true, 9, &[1, 2], "-8:-12");
        check(10, 12, true, 9, &[], "-10:-12");
        check(1, 1, true, 0, &[], "-1:-1");
    }
}
