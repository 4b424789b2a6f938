//! Delimiter lines of multiparts (RFC 2046 5.1.1).

use super::text::is_wsp;
use crate::summary::Octets;

/// Bytes of a boundary that count. RFC 2046 5.1.1 allows 70; of a longer one the first bytes are compared, since a delimiter
/// is a prefix of its line in any case.
const BOUNDARY_BYTES_MAX: usize = 256;

/// Bytes of a line by which it is decided whether it is a delimiter: the hyphens before and behind, the boundary, and some
/// white space behind it.
pub(super) const HEAD_BYTES_MAX: usize = BOUNDARY_BYTES_MAX + 64;

/// A delimiter line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delimiter {
    /// Which frame it belongs to.
    pub(super) frame: usize,
    /// Whether it is the last one of the multipart.
    pub(super) closing: bool,
}

/// The boundary as it is compared: not ending in white space, which the grammar forbids and transport may remove.
pub(super) fn usable(boundary: &[u8]) -> Octets {
    let boundary = &boundary[..boundary.len().min(BOUNDARY_BYTES_MAX)];
    let end = boundary
        .iter()
        .rposition(|&b| !is_wsp(b))
        .map_or(0, |last| last + 1);
    boundary[..end].into()
}

/// The delimiter that a line is which begins with two hyphens: `open` gives frames and boundaries, innermost first. `work`
/// is raised by the bytes compared.
pub(super) fn find<'a>(
    line: &[u8],
    open: impl Iterator<Item = (usize, &'a [u8])>,
    work: &mut u64,
) -> Option<Delimiter> {
    let content = &line[2..];
    let end = content
        .iter()
        .rposition(|&b| !is_wsp(b) && b != b'\r')
        .map_or(0, |last| last + 1);
    let content = &content[..end];
    let mut best: Option<(usize, usize)> = None;
    for (frame, boundary) in open {
        *work += boundary.len().min(content.len()) as u64;
        let Some(rest) = content.strip_prefix(boundary) else {
            continue;
        };
        if rest.is_empty() || rest == b"--" {
            return Some(Delimiter {
                frame,
                closing: !rest.is_empty(),
            });
        }
        if best.is_none_or(|(_, len)| boundary.len() > len) {
            best = Some((frame, boundary.len()));
        }
    }
    best.map(|(frame, len)| Delimiter {
        frame,
        closing: content[len..].starts_with(b"--"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, boundaries: &[&str], expected: Option<(usize, bool)>) {
        let open = boundaries
            .iter()
            .enumerate()
            .rev()
            .map(|(at, b)| (at, b.as_bytes()));
        let found = find(line.as_bytes(), open, &mut 0).map(|d| (d.frame, d.closing));
        assert_eq!(found, expected, "{line} {boundaries:?}");
    }

    #[test]
    fn delimiters() {
        check("--a", &["a"], Some((0, false)));
        check("--a--", &["a"], Some((0, true)));
        check("--a-- \t", &["a"], Some((0, true)));
        check("--a \r", &["a"], Some((0, false)));
        check("--ab", &["a"], Some((0, false)));
        check("--a--junk", &["a"], Some((0, true)));
        check("--b", &["a"], None);
        check("--", &["a"], None);
    }

    #[test]
    fn exact_before_longer_before_inner() {
        check("--ab", &["ab", "a"], Some((0, false)));
        check("--ab--", &["ab", "a"], Some((0, true)));
        check("--a", &["ab", "a"], Some((1, false)));
        check("--abc", &["ab", "a"], Some((0, false)));
        check("--a", &["a", "a"], Some((1, false)));
        check("--a--", &["a", "a--"], Some((1, false)));
        check("--a----", &["a", "a--"], Some((1, true)));
        check("--a--", &["a-", "a"], Some((1, true)));
    }

    #[test]
    fn boundaries_are_cut_and_trimmed() {
        assert_eq!(&*usable(b"a b \t"), b"a b");
        assert_eq!(&*usable(b"  "), b"");
        assert_eq!(usable(&[b'x'; 1000]).len(), BOUNDARY_BYTES_MAX);
    }
}
