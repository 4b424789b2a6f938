//! Messages to send: of any size, alike in form to real mail, different in every byte that a server could share.

use crate::random::Random;

/// In the text of the messages whose number [`has_needle`]: what a search for text finds.
pub const NEEDLE: &str = "quetzalcoatlus";

/// How many messages pass from one with the needle to the next.
pub const NEEDLE_EVERY: usize = 1_000;

/// Bytes before encoding in a line of base64 with 76 characters.
const BASE64_LINE_BYTES: usize = 57;

/// From here on a message has an attachment.
const ATTACHMENT_FROM_BYTES: usize = 8_192;

/// What is written besides an attachment.
const TEXT_BYTES: usize = 1_500;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const WORDS: &[&str] = &[
    "about",
    "after",
    "answer",
    "before",
    "budget",
    "draft",
    "evening",
    "figures",
    "friday",
    "garden",
    "hello",
    "house",
    "letter",
    "meeting",
    "monday",
    "morning",
    "number",
    "office",
    "order",
    "paper",
    "please",
    "question",
    "regards",
    "report",
    "room",
    "school",
    "server",
    "station",
    "summer",
    "table",
    "thanks",
    "ticket",
    "tomorrow",
    "train",
    "version",
    "water",
    "week",
    "winter",
    "write",
    "yesterday",
];

/// Whether the message of this number has the needle.
#[must_use]
pub fn has_needle(number: usize) -> bool {
    number % NEEDLE_EVERY == NEEDLE_EVERY / 2
}

/// A message of about `bytes` bytes of which compression leaves next to nothing.
#[must_use]
pub fn uniform(bytes: usize) -> Vec<u8> {
    const LINE: &[u8] = b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n";
    let mut message = b"Subject: uniform\r\n\r\n".to_vec();
    message.extend(LINE.repeat(bytes / LINE.len()));
    message
}

/// A message of `bytes` bytes (a little more if that is too few for a header), the `number`th of its kind.
#[must_use]
pub fn sized(random: &mut Random, number: usize, bytes: usize) -> Vec<u8> {
    let mut message = Vec::with_capacity(bytes + 128);
    let (from, subject) = (random.pick(WORDS), random.pick(WORDS));
    let day = number / 1440 % 28 + 1;
    let head = format!(
        "Return-Path: <{from}@sender.example>\r\n\
         Received: from mx{}.sender.example (mx.sender.example [192.0.2.{}])\r\n\tby mail.example.org with ESMTPS id {:x};\r\n\
         \tMon, {day:02} Jan 2024 {:02}:{:02}:00 +0000\r\n\
         Message-ID: <{:x}.{number}@sender.example>\r\n\
         Date: Mon, {day:02} Jan 2024 {:02}:{:02}:00 +0000\r\n\
         From: {from} {} <{from}@sender.example>\r\n\
         To: User <user@example.org>, other <{}@example.net>\r\n\
         Subject: {subject} {} {number}\r\n\
         MIME-Version: 1.0\r\n",
        random.below(9),
        random.below(250),
        random.bits(),
        number / 60 % 24,
        number % 60,
        random.bits(),
        number / 60 % 24,
        number % 60,
        random.pick(WORDS),
        random.pick(WORDS),
        random.pick(WORDS),
    );
    message.extend_from_slice(head.as_bytes());
    if bytes < ATTACHMENT_FROM_BYTES {
        message.extend_from_slice(b"Content-Type: text/plain; charset=utf-8\r\n\r\n");
        needle(&mut message, number);
        text(&mut message, random, bytes);
    } else {
        let boundary = format!("=_{:016x}", random.bits());
        let end = format!("\r\n--{boundary}--\r\n");
        message.extend_from_slice(
            format!(
                "Content-Type: multipart/mixed; boundary=\"{boundary}\"\r\n\r\n\
                 --{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
            )
            .as_bytes(),
        );
        needle(&mut message, number);
        let until = message.len() + TEXT_BYTES;
        text(&mut message, random, until);
        message.extend_from_slice(
            format!(
                "\r\n--{boundary}\r\nContent-Type: application/octet-stream; name=\"{subject}.bin\"\r\n\
                 Content-Transfer-Encoding: base64\r\nContent-Disposition: attachment; filename=\"{subject}.bin\"\r\n\r\n"
            )
            .as_bytes(),
        );
        base64_lines(&mut message, random, bytes.saturating_sub(end.len()));
        message.extend_from_slice(end.as_bytes());
    }
    message
}

fn needle(message: &mut Vec<u8>, number: usize) {
    if has_needle(number) {
        message.extend_from_slice(NEEDLE.as_bytes());
        message.extend_from_slice(b"\r\n");
    }
}

/// Words in lines, up to exactly `until` bytes if there is room for a line end.
fn text(message: &mut Vec<u8>, random: &mut Random, until: usize) {
    let mut line = 0;
    while message.len() + 16 < until {
        let word = random.pick(WORDS);
        message.extend_from_slice(word.as_bytes());
        line += word.len() + 1;
        if line > 66 {
            message.extend_from_slice(b"\r\n");
            line = 0;
        } else {
            message.push(b' ');
        }
    }
    while message.len() + 2 < until {
        message.push(b'.');
    }
    message.extend_from_slice(b"\r\n");
}

/// Lines of 76 random characters of base64, up to `until` bytes, give or take three.
fn base64_lines(message: &mut Vec<u8>, random: &mut Random, until: usize) {
    while message.len() + 6 <= until {
        let quads = ((until - message.len() - 2) / 4).min(BASE64_LINE_BYTES / 3);
        characters(message, random, quads * 4);
        message.extend_from_slice(b"\r\n");
    }
}

fn characters(message: &mut Vec<u8>, random: &mut Random, count: usize) {
    let mut left = count;
    while left > 0 {
        let mut bits = random.bits();
        let here = left.min(10);
        for _ in 0..here {
            message.push(ALPHABET[(bits & 63) as usize]);
            bits >>= 6;
        }
        left -= here;
    }
}

/// As pluto's benchmark writes them: one of five headers, then 10 to 512 lines of 64 random characters; 0.9 to 34 KB.
#[must_use]
pub fn of_pluto(random: &mut Random) -> Vec<u8> {
    let writer = random.below(5) + 1;
    let mut message = format!(
        "Date: Tue, {writer:02} Mar 2016 09:10:11 +0100\r\nFrom: Writer {writer} <writer{writer}@sender.example>\r\n\
         Subject: letter of writer {writer}\r\nTo: reader@example.org\r\nMessage-Id: <{writer}@sender.example>\r\n\
         MIME-Version: 1.0\r\nContent-Type: text/plain; charset=us-ascii\r\n\r\n"
    )
    .into_bytes();
    for _ in 0..random.between(10, 512) {
        characters(&mut message, random, 64);
        message.extend_from_slice(b"\r\n");
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_as_asked() {
        let check = |bytes: usize, number: usize| {
            let message = sized(&mut Random::new(3), number, bytes);
            assert!(
                message.len().abs_diff(bytes) <= 8,
                "{} instead of {bytes}",
                message.len()
            );
            let text = String::from_utf8(message).unwrap();
            assert_eq!(text.contains(NEEDLE), has_needle(number));
            assert!(!text.replace("\r\n", "").contains(['\r', '\n']));
            assert!(text.lines().all(|line| line.len() < 1000 && line != "."));
        };
        for bytes in [
            1_000, 2_345, 4_096, 8_191, 8_192, 10_240, 204_800, 2_000_001,
        ] {
            check(bytes, 499);
            check(bytes, 500);
        }
        // Too small for its header: as small as it can be.
        assert!(sized(&mut Random::new(3), 0, 10).len() < 1_000);
    }

    #[test]
    fn messages_of_pluto() {
        let mut random = Random::new(1);
        let sizes: Vec<usize> = (0..500).map(|_| of_pluto(&mut random).len()).collect();
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!((16_000..19_000).contains(&mean), "{mean}");
        assert!(sizes.iter().all(|size| (850..35_000).contains(size)));
    }
}
