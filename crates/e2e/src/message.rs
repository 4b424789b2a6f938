//! Messages that know what they must look like: the bytes follow from the name, so a checker needs to keep the name alone.

use crate::random::Random;

/// The header field that carries the name.
pub const NAME_FIELD: &str = "X-Name";

/// The bytes of the message of this name: a header, and text lines of about this many bytes in all.
#[must_use]
pub fn bytes(name: &str, size: usize) -> Vec<u8> {
    let mut random = Random::new(name.bytes().fold(size as u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    }));
    let mut text = format!(
        "From: Carl <carl@example.net>\r\nTo: anne@example.org\r\nSubject: subject of {name}\r\nDate: Mon, 02 Nov 2026 10:00:00 +0000\r\n\
         Message-ID: <{name}@example.net>\r\n{NAME_FIELD}: {name}\r\n\r\n"
    )
    .into_bytes();
    while text.len() < size {
        // A dot at the start of some lines: to be stuffed by SMTP, and not to be seen by IMAP.
        if random.one_in(5) {
            text.push(b'.');
        }
        for _ in 0..random.below(12) {
            text.extend(format!("{:x} ", random.bits() >> random.below(50)).bytes());
        }
        text.extend(b"\r\n");
    }
    text.extend(format!("end of {name}\r\n").bytes());
    text
}

/// The name that stands in a message's header.
#[must_use]
pub fn name_of(message: &[u8]) -> Option<String> {
    let head = message
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .map_or(message, |end| &message[..end]);
    let head = String::from_utf8_lossy(head);
    let prefix = format!("{NAME_FIELD}: ");
    head.lines()
        .find_map(|line| line.strip_prefix(&prefix))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_makes_the_same_bytes() {
        let one = bytes("a-1", 3000);
        assert_eq!(one, bytes("a-1", 3000));
        assert_ne!(one, bytes("a-2", 3000));
        assert_eq!(name_of(&one).as_deref(), Some("a-1"));
        assert!(one.len() >= 3000 && one.ends_with(b"end of a-1\r\n"));
        assert!(
            one.windows(3)
                .any(|window| window == b"\n.."[..3].as_ref() || window[..2] == *b"\n.")
        );
    }
}
