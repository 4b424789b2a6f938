//! Domain names as they are asked for and answered.
//!
//! Invariant: a name is absolute and in lower case, its labels have 1 to 63 octets, and it has at most 255 (RFC 1035 2.3.4), so that it can always be
//! encoded, and equal names have equal bytes.

use core::fmt;
use std::net::IpAddr;

/// Octets of a name in a message, with the root's (RFC 1035 2.3.4).
pub const NAME_BYTES_MAX: usize = 255;

/// Octets of a label (RFC 1035 2.3.4).
pub const LABEL_BYTES_MAX: usize = 63;

/// Why a text is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Two dots, a dot at the beginning, or nothing at all.
    #[error("a label is empty")]
    EmptyLabel,
    /// A label above 63 octets, or a name above 255.
    #[error("a label has more than 63 octets, or the name more than 255")]
    TooLong,
    /// White space, a control character, a backslash, or what is not ASCII: the caller makes A-labels of U-labels.
    #[error("a character that cannot stand in a name")]
    Character,
}

/// An absolute name.
///
/// ```
/// use whimbrel_dns::Name;
///
/// let name = Name::new("Example.ORG.").unwrap();
/// assert_eq!(name.to_string(), "example.org");
/// assert_eq!(name.child("_25._tcp").unwrap().to_string(), "_25._tcp.example.org");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

impl Name {
    /// Reads a name; the dot at its end may be left out. `.` alone is the root.
    ///
    /// # Errors
    /// When it is none.
    pub fn new(text: &str) -> Result<Self, NameError> {
        Name::under(text.strip_suffix('.').unwrap_or(text), text == ".", &[0])
    }

    /// The root: the exchange of a null MX (RFC 7505).
    #[must_use]
    pub fn root() -> Self {
        Name(Box::new([0]))
    }

    /// This name below more labels, such as `_25._tcp`.
    ///
    /// # Errors
    /// When the labels are none, or all is too long.
    pub fn child(&self, labels: &str) -> Result<Self, NameError> {
        Name::under(labels, false, &self.0)
    }

    /// The name whose PTR records name the host of an address (RFC 1035 3.5, RFC 3596 2.5).
    #[must_use]
    pub fn reverse(address: IpAddr) -> Self {
        let (labels, zone): (Vec<String>, _) = match address {
            IpAddr::V4(address) => {
                let octets = address.octets();
                let labels = octets.iter().rev().map(u8::to_string);
                (labels.collect(), "in-addr.arpa")
            }
            IpAddr::V6(address) => {
                let octets = address.octets();
                let nibbles = octets
                    .iter()
                    .rev()
                    .flat_map(|octet| [octet & 15, octet >> 4]);
                (
                    nibbles.map(|nibble| format!("{nibble:x}")).collect(),
                    "ip6.arpa",
                )
            }
        };
        let text = format!("{}.{zone}", labels.join("."));
        Name::new(&text).expect("at most 34 labels of at most four characters")
    }

    /// A name of these labels.
    pub(crate) fn from_labels<'l>(
        labels: impl Iterator<Item = &'l [u8]>,
    ) -> Result<Self, NameError> {
        let mut wire = Vec::new();
        for label in labels {
            push(&mut wire, label)?;
        }
        Name::finish(wire, &[0])
    }

    fn under(labels: &str, is_root: bool, parent: &[u8]) -> Result<Self, NameError> {
        let mut wire = Vec::with_capacity(labels.len() + 1 + parent.len());
        if !is_root {
            for label in labels.split('.') {
                if !label
                    .bytes()
                    .all(|octet| octet.is_ascii_graphic() && octet != b'\\')
                {
                    return Err(NameError::Character);
                }
                push(&mut wire, label.as_bytes())?;
            }
        }
        Name::finish(wire, parent)
    }

    fn finish(mut wire: Vec<u8>, parent: &[u8]) -> Result<Self, NameError> {
        wire.extend_from_slice(parent);
        if wire.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong);
        }
        Ok(Name(wire.into_boxed_slice()))
    }

    /// Its labels, without the root's.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &*self.0;
        core::iter::from_fn(move || {
            let (length, behind) = rest.split_first()?;
            let (label, behind) = behind.split_at_checked(usize::from(*length))?;
            rest = behind;
            (!label.is_empty()).then_some(label)
        })
    }

    /// Whether it is the root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        *self.0 == [0]
    }

    /// Whether it is this name or stands below it.
    #[must_use]
    pub fn is_within(&self, zone: &Name) -> bool {
        let mut rest = &*self.0;
        loop {
            if rest == &*zone.0 {
                return true;
            }
            match rest.split_first() {
                Some((length, behind)) if *length > 0 => {
                    rest = behind.get(usize::from(*length)..).unwrap_or_default();
                }
                _ => return false,
            }
        }
    }

    /// Whether a host may have it: letters, digits and hyphens, no hyphen at the end of a label, no label of digits alone at the end (RFC 952, RFC
    /// 1123 2.1). What is no host name is no good target of an MX record; whether to try it all the same is the caller's choice.
    #[must_use]
    pub fn is_host_name(&self) -> bool {
        let is_label = |label: &[u8]| {
            label
                .iter()
                .all(|octet| octet.is_ascii_alphanumeric() || *octet == b'-')
                && label.first() != Some(&b'-')
                && label.last() != Some(&b'-')
        };
        // "192.0.2.1" is an address that somebody wrote where a name belongs.
        let is_number = |label: &[u8]| label.iter().all(u8::is_ascii_digit);
        self.labels().all(is_label) && self.labels().last().is_some_and(|last| !is_number(last))
    }

    /// Octets in a message.
    pub(crate) fn wire_bytes(&self) -> usize {
        self.0.len()
    }
}

fn push(wire: &mut Vec<u8>, label: &[u8]) -> Result<(), NameError> {
    match u8::try_from(label.len()) {
        Ok(0) => Err(NameError::EmptyLabel),
        Ok(length) if label.len() <= LABEL_BYTES_MAX => {
            wire.push(length);
            wire.extend(label.iter().map(u8::to_ascii_lowercase));
            Ok(())
        }
        _ => Err(NameError::TooLong),
    }
}

/// Without the dot at the end, but for the root. Octets that are no ASCII graphic are shown as `\DDD` (RFC 1035 5.1): it can go into a log.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        for (at, label) in self.labels().enumerate() {
            if at > 0 {
                f.write_str(".")?;
            }
            for octet in label {
                match octet {
                    b'.' | b'\\' => write!(f, "\\{}", char::from(*octet))?,
                    _ if octet.is_ascii_graphic() => write!(f, "{}", char::from(*octet))?,
                    _ => write!(f, "\\{octet:03}")?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl core::str::FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Name::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, NameError>) {
        let name = Name::new(text).map(|name| name.to_string());
        assert_eq!(
            name.as_deref(),
            expected.as_ref().map(|shown| *shown),
            "{text:?}"
        );
    }

    #[test]
    fn names_are_read() {
        check("example.org", Ok("example.org"));
        check("EXAMPLE.org.", Ok("example.org"));
        check("_25._tcp.mx", Ok("_25._tcp.mx"));
        check("xn--bcher-kva.example", Ok("xn--bcher-kva.example"));
        check(".", Ok("."));
        check("", Err(NameError::EmptyLabel));
        check("..", Err(NameError::EmptyLabel));
        check("a..b", Err(NameError::EmptyLabel));
        check(".a", Err(NameError::EmptyLabel));
        check("a b", Err(NameError::Character));
        check("a\\b", Err(NameError::Character));
        check("b\u{fc}cher.example", Err(NameError::Character));
    }

    #[test]
    fn a_label_has_at_most_63_octets() {
        assert!(Name::new(&"a".repeat(63)).is_ok());
        check(&"a".repeat(64), Err(NameError::TooLong));
        check(&"a".repeat(300), Err(NameError::TooLong));
    }

    #[test]
    fn a_name_has_at_most_255_octets() {
        // Three labels of 64 octets with their lengths, one of 62, and the root.
        let long = |last| format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(last));
        let name = Name::new(&long(61)).unwrap();
        assert_eq!(name.wire_bytes(), NAME_BYTES_MAX);
        check(&long(62), Err(NameError::TooLong));
        assert_eq!(name.child("c"), Err(NameError::TooLong));
    }

    #[test]
    fn any_octet_is_shown() {
        let name = Name::from_labels([&b"a.\\\n\xff"[..], b"B"].into_iter()).unwrap();
        assert_eq!(name.to_string(), "a\\.\\\\\\010\\255.b");
    }

    #[test]
    fn names_stand_within_others() {
        let is_within = |name: &str, zone: &str| {
            Name::new(name)
                .unwrap()
                .is_within(&Name::new(zone).unwrap())
        };
        assert!(is_within("a.example.org", "example.org"));
        assert!(is_within("example.org", "example.org"));
        assert!(is_within("example.org", "."));
        assert!(!is_within("org", "example.org"));
        assert!(!is_within("badexample.org", "example.org"));
        assert!(!is_within(".", "org"));
    }

    #[test]
    fn host_names() {
        let is_host = |name: &str| Name::new(name).unwrap().is_host_name();
        assert!(is_host("mx-1.example.org"));
        assert!(is_host("3com.com"));
        assert!(is_host("localhost"));
        assert!(!is_host("."));
        assert!(!is_host("192.0.2.1"));
        assert!(!is_host("_dmarc.example.org"));
        assert!(!is_host("-a.example.org"));
        assert!(!is_host("a-.example.org"));
        assert!(!is_host("a@b.example.org"));
    }

    #[test]
    fn addresses_have_names() {
        let check = |address: &str, expected: &str| {
            assert_eq!(
                Name::reverse(address.parse().unwrap()).to_string(),
                expected
            );
        };
        check("192.0.2.10", "10.2.0.192.in-addr.arpa");
        check(
            "4321:0:1:2:3:4:567:89ab",
            "b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.0.0.0.0.1.2.3.4.ip6.arpa",
        );
    }
}
