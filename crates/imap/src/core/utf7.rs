//! Modified UTF-7, the spelling of mailbox names in IMAP4rev1 (RFC 3501, section 5.1.3).
//!
//! Decoding accepts only what [`encode`] would write, so that one name has one spelling: RFC 3501 forbids encoded printable
//! ASCII and "superfluous shifts", and a second spelling of a name would be a second door to the same mailbox.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::IMAP_MUTF7,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::RequireNone),
);

/// Appends the modified UTF-7 spelling of `name` to `out`.
pub fn encode(name: &str, out: &mut Vec<u8>) {
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        if is_direct(first) {
            out.push(first as u8);
            if first == '&' {
                out.push(b'-');
            }
            rest = &rest[1..];
            continue;
        }
        let end = rest.find(is_direct).unwrap_or(rest.len());
        let units: Vec<u8> = rest[..end]
            .encode_utf16()
            .flat_map(u16::to_be_bytes)
            .collect();
        out.push(b'&');
        out.extend_from_slice(ENGINE.encode(units).as_bytes());
        out.push(b'-');
        rest = &rest[end..];
    }
}

fn is_direct(c: char) -> bool {
    matches!(c, ' '..='~')
}

/// The name that `bytes` spell, or `None` where they are not the spelling that [`encode`] writes.
pub fn decode(bytes: &[u8]) -> Option<String> {
    let mut name = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        if first != b'&' {
            if !is_direct(char::from(first)) {
                return None;
            }
            name.push(char::from(first));
            rest = tail;
            continue;
        }
        let end = tail.iter().position(|&b| b == b'-')?;
        if end == 0 {
            name.push('&');
        } else {
            let units = ENGINE.decode(&tail[..end]).ok()?;
            if units.len() % 2 != 0 {
                return None;
            }
            let units = units
                .chunks_exact(2)
                .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            for unit in char::decode_utf16(units) {
                name.push(unit.ok()?);
            }
        }
        rest = &tail[end + 1..];
    }
    let mut again = Vec::with_capacity(bytes.len());
    encode(&name, &mut again);
    (again == bytes).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(input: &str, expected: Option<&str>) {
        assert_eq!(decode(input.as_bytes()).as_deref(), expected, "{input}");
    }

    #[test]
    fn names() {
        check("INBOX", Some("INBOX"));
        check("a b", Some("a b"));
        check("", Some(""));
        // RFC 3501, section 5.1.3.
        check(
            "~peter/mail/&U,BTFw-/&ZeVnLIqe-",
            Some("~peter/mail/台北/日本語"),
        );
        check("Hi&-Lo", Some("Hi&Lo"));
        check("&2D3eAA-", Some("😀"));
        // "&Jjo!" does not shift back; "&U,BTFw-&ZeVnLIqe-" has a superfluous shift.
        check("&Jjo!", None);
        check("&U,BTFw-&ZeVnLIqe-", None);
        check("&AGE-", None);
        check("&", None);
        check("a&", None);
        check("&A-", None);
        check("&AA-", None);
        check("&2D0-", None);
        check("&3gA-", None);
        check("&U,BTFx-", None);
        check("&U/BTFw-", None);
        check("é", None);
        check("a\u{7f}", None);
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes(name in "\\PC{0,20}") {
            let mut out = Vec::new();
            encode(&name, &mut out);
            prop_assert!(out.is_ascii());
            prop_assert_eq!(decode(&out), Some(name));
        }

        #[test]
        fn what_decodes_is_the_only_spelling(bytes in proptest::collection::vec(prop_oneof![Just(b'&'), Just(b'-'), any::<u8>(), b'A'..=b'Z'], 0..12)) {
            if let Some(name) = decode(&bytes) {
                let mut out = Vec::new();
                encode(&name, &mut out);
                prop_assert_eq!(out, bytes);
            }
        }
    }
}
