//! Submission (RFC 6409): the header of a message from a user is looked at before anything of it is stored.
//!
//! - From must be there, once, and From and Sender are read strictly: whoever they name must be the account's own. RFC 6409 (6.1) lets a server ask;
//!   others ask for
//!   the envelope alone, and a reader shows these fields.
//! - A message that is resent keeps the From of its author (RFC 5322, 3.6.6: "Resent fields are used to identify a message as having been reintroduced into the
//!   transport system by a user"). There it is Resent-From and Resent-Sender of the first block that are read strictly and must be the account's own:
//!   each block is
//!   put before the earlier ones.
//! - Date and Message-ID are added where they are missing (RFC 6409, 8.2 and 8.3), before the client's fields.
//! - Bcc and Resent-Bcc are taken out of what the recipients get (RFC 5322, 3.6.3: its first way), as other submission servers do. The sender's own copy
//!   keeps them: they are in front of it, with the Received field.
//!
//! A header that is no header is refused: who reads it otherwise would see another sender. The header is held whole, and bounded.

use whimbrel_smtp::{Domain, Enhanced, Refusal, trace::WallTime};

use super::mailboxes::{Parts, mailboxes};

/// Addresses of all these fields: each is asked for.
const SENDERS_MAX: usize = 100;

/// The header so far.
pub(super) struct Header {
    bytes: Vec<u8>,
    bytes_max: usize,
}

/// A header that is complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Prepared {
    /// What is stored in its place, the empty line included.
    pub(super) header: Vec<u8>,
    /// The fields that only the sender keeps.
    pub(super) blind: Vec<u8>,
    /// Who the message says sends it.
    pub(super) senders: Vec<Parts>,
    /// It is another's message, sent again.
    pub(super) is_resent: bool,
}

/// What is added where it is missing.
pub(super) struct Additions<'a> {
    pub(super) time: WallTime,
    /// Unique: the queue's id.
    pub(super) id: &'a str,
    pub(super) host: &'a Domain,
}

fn malformed(text: &str) -> Refusal {
    Refusal::new(554, Enhanced(6, 0), text)
}

impl Header {
    pub(super) fn new(bytes_max: usize) -> Self {
        Header {
            bytes: Vec::new(),
            bytes_max,
        }
    }

    /// Takes the next bytes of the message; when the header is complete, those that follow it.
    ///
    /// # Errors
    /// When it is too long.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
        // The end may lie across the seam.
        let from = self.bytes.len().saturating_sub(3);
        self.bytes.extend_from_slice(bytes);
        let end = if self.bytes.starts_with(b"\r\n") {
            Some(2)
        } else {
            let found = self.bytes[from..]
                .windows(4)
                .position(|four| four == b"\r\n\r\n");
            found.map(|at| from + at + 4)
        };
        if end.unwrap_or(self.bytes.len()) > self.bytes_max {
            return Err(Refusal::new(552, Enhanced(3, 4), "Message header too long"));
        }
        Ok(end.map(|end| self.bytes.split_off(end)))
    }

    /// The header is complete, or the message has ended within it.
    ///
    /// # Errors
    /// When it is no header, or does not say plainly from whom it is.
    pub(super) fn finish(self, additions: &Additions<'_>) -> Result<Prepared, Refusal> {
        let (mut kept, mut blind) = (Vec::with_capacity(self.bytes.len() + 256), Vec::new());
        let (mut from, mut sender, mut date, mut message_id) = (None, None, false, false);
        let mut resent = Resent::default();
        let mut rest = self.bytes.as_slice();
        while !rest.is_empty() && rest != b"\r\n" {
            let length = field_length(rest);
            let (field, after) = rest.split_at(length);
            rest = after;
            let (name, value) = split(field).ok_or_else(|| malformed("Malformed header field"))?;
            let is = |wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
            if is(b"Bcc") || is(b"Resent-Bcc") {
                blind.extend_from_slice(field);
                if !field.ends_with(b"\r\n") {
                    blind.extend_from_slice(b"\r\n");
                }
                continue;
            }
            kept.extend_from_slice(field);
            if is(b"From") && from.replace(value).is_some() {
                return Err(malformed("More than one From field"));
            }
            if is(b"Sender") && sender.replace(value).is_some() {
                return Err(malformed("More than one Sender field"));
            }
            if is(b"Resent-From") {
                resent.from(value);
            }
            if is(b"Resent-Sender") {
                resent.sender(value);
            }
            date |= is(b"Date");
            message_id |= is(b"Message-ID");
        }
        let from = from.ok_or_else(|| malformed("No From field"))?;
        let mut senders = Vec::new();
        let mut read = |value, text| {
            let found = mailboxes(value, SENDERS_MAX - senders.len());
            senders.extend(found.ok_or_else(|| malformed(text))?);
            Ok(())
        };
        const UNREAD: &str = "Resent-From or Resent-Sender field cannot be read";
        let is_resent = resent.from.is_some();
        if let Some(from) = resent.from {
            read(from, UNREAD)?;
        } else {
            read(from, "From field cannot be read")?;
            if let Some(sender) = sender {
                read(sender, "Sender field cannot be read")?;
            }
        }
        if let Some(sender) = resent.sender {
            read(sender, UNREAD)?;
        }
        senders.sort();
        senders.dedup();
        let mut header = Vec::with_capacity(kept.len() + 256);
        if !date {
            header.extend_from_slice(format!("Date: {}\r\n", additions.time).as_bytes());
        }
        if !message_id {
            let field = format!("Message-ID: <{}@{}>\r\n", additions.id, additions.host);
            header.extend_from_slice(field.as_bytes());
        }
        header.extend_from_slice(&kept);
        header.extend_from_slice(rest);
        Ok(Prepared {
            header,
            blind,
            senders,
            is_resent,
        })
    }
}

/// The first block of Resent fields, by which the account sends the message again.
#[derive(Default)]
struct Resent<'h> {
    from: Option<&'h [u8]>,
    sender: Option<&'h [u8]>,
    /// A further block has begun.
    is_over: bool,
}

impl<'h> Resent<'h> {
    fn from(&mut self, value: &'h [u8]) {
        self.is_over |= self.from.is_some();
        self.from.get_or_insert(value);
    }

    fn sender(&mut self, value: &'h [u8]) {
        self.is_over |= self.sender.is_some();
        if !self.is_over {
            self.sender = Some(value);
        }
    }
}

/// The length of the first field, folded lines and the line end included.
fn field_length(header: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let Some(line) = memchr::memchr(b'\n', &header[at..]) else {
            return header.len();
        };
        at += line + 1;
        if !matches!(header.get(at), Some(b' ' | b'\t')) {
            return at;
        }
    }
}

/// Name and value of a field. RFC 5322, 2.2: a name is printable ASCII without a colon; the obsolete form has white space behind it.
fn split(field: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', field)?;
    let name = field[..colon].trim_ascii_end();
    let is_name = !name.is_empty() && name.iter().all(|byte| (33..=126).contains(byte));
    is_name.then(|| (name, &field[colon + 1..]))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn finish(header: Header) -> Result<Prepared, Refusal> {
        header.finish(&Additions {
            time: WallTime::new(1_700_000_000, 0),
            id: "abc",
            host: &Domain::new("mx.example.org").unwrap(),
        })
    }

    /// The header that comes of `text`, in pieces of every size, what is taken out, and from whom it is; or the refusal.
    fn check(text: &str, expected: Result<(&str, &str, &[&str]), &str>) {
        let text = text.replace('\n', "\r\n");
        let mut sizes: Vec<usize> = (1..=text.len()).collect();
        sizes.truncate(80);
        sizes.push(text.len().max(1));
        for size in sizes {
            let mut header = Header::new(10_000);
            let mut behind = None;
            for piece in text.as_bytes().chunks(size) {
                match &mut behind {
                    None => behind = header.push(piece).unwrap(),
                    Some(behind) => behind.extend_from_slice(piece),
                }
            }
            let body = String::from_utf8(behind.unwrap_or_default()).unwrap();
            let found = finish(header).map(|prepared| {
                let stored = String::from_utf8(prepared.header).unwrap() + &body;
                let senders: Vec<String> = prepared
                    .senders
                    .iter()
                    .map(|(local, domain)| format!("{local}@{domain}"))
                    .collect();
                let blind = String::from_utf8(prepared.blind).unwrap();
                (
                    stored.replace("\r\n", "\n"),
                    blind.replace("\r\n", "\n"),
                    senders,
                )
            });
            match (&found, &expected) {
                (Ok((stored, blind, senders)), Ok((a, b, c))) => {
                    assert_eq!(
                        (stored.as_str(), blind.as_str()),
                        (*a, *b),
                        "{text} by {size}"
                    );
                    assert_eq!(senders, c, "{text}");
                }
                (Err(refusal), Err(text)) => {
                    assert!(refusal.reply().to_string().contains(text), "{refusal:?}")
                }
                _ => panic!("{text} by {size}: {found:?}"),
            }
        }
    }

    const DATED: &str = "Date: Tue, 14 Nov 2023 22:13:20 +0000\n";
    const NAMED: &str = "Message-ID: <abc@mx.example.org>\n";

    #[test]
    fn what_is_missing_is_added_and_what_is_blind_taken_out() {
        let whole = "Date: x\nMessage-ID: <y>\nFrom: anne@x.org\nSubject: z\n\nBcc: body\n";
        check(whole, Ok((whole, "", &["anne@x.org"])));
        check(
            "From: Anne <anne@x.org>\n\nbody",
            Ok((
                &format!("{DATED}{NAMED}From: Anne <anne@x.org>\n\nbody"),
                "",
                &["anne@x.org"],
            )),
        );
        check(
            "date : x\nfrom : a@x\nMESSAGE-ID: y\n\n",
            Ok(("date : x\nfrom : a@x\nMESSAGE-ID: y\n\n", "", &["a@x"])),
        );
        check(
            "Bcc: b@x,\n c@x\nDate: x\nBCC:\nMessage-ID: y\nresent-bcc: d@x\nFrom: a@x\nBcc: e@x\n\nz",
            Ok((
                "Date: x\nMessage-ID: y\nFrom: a@x\n\nz",
                "Bcc: b@x,\n c@x\nBCC:\nresent-bcc: d@x\nBcc: e@x\n",
                &["a@x"],
            )),
        );
        // The last line of a chunk need not end.
        check(
            "Date: x\nMessage-ID: y\nFrom: a@x\nBcc: b@x",
            Ok((
                "Date: x\nMessage-ID: y\nFrom: a@x\n",
                "Bcc: b@x\n",
                &["a@x"],
            )),
        );
        // Folded From; Sender beside it; each once.
        check(
            "Date: x\nMessage-ID: y\nSender: c@x\nFrom: a@x,\n\t\"B\" <b@x>, a@x\n\n",
            Ok((
                "Date: x\nMessage-ID: y\nSender: c@x\nFrom: a@x,\n\t\"B\" <b@x>, a@x\n\n",
                "",
                &["a@x", "b@x", "c@x"],
            )),
        );
        // Resent, once and again: whoever it was from before.
        let resent = "Resent-From: d@x\nRESENT-SENDER: e@x\nResent-To: z@x\nResent-From: f@x, a@x\nResent-Sender: g@x\n";
        for from in ["a@x", "team: a@x;", "a@x <b@x>", ""] {
            let whole = format!("{resent}Date: x\nMessage-ID: y\nSender: <>\nFrom: {from}\n\n");
            check(&whole, Ok((whole.as_str(), "", &["d@x", "e@x"])));
        }
        // No body, and not even its empty line.
        check(
            "Date: x\nMessage-ID: y\nFrom: a@x\n",
            Ok(("Date: x\nMessage-ID: y\nFrom: a@x\n", "", &["a@x"])),
        );
        check(
            "Date: x\nMessage-ID: y\nFrom: a@x",
            Ok(("Date: x\nMessage-ID: y\nFrom: a@x", "", &["a@x"])),
        );
    }

    #[test]
    fn headers_that_do_not_say_plainly_from_whom_they_are() {
        check("", Err("554 5.6.0 No From field"));
        check("\nFrom: a@x\n", Err("No From field"));
        check("Subject: x\n\nFrom: a@x\n", Err("No From field"));
        check("X-From: a@x\n\n", Err("No From field"));
        check("From: a@x\nFrom: a@x\n\n", Err("More than one From field"));
        check("From: a@x\nfrom : b@x\n\n", Err("More than one From field"));
        check(
            "From: a@x\nSender: a@x\nSENDER: b@x\n\n",
            Err("More than one Sender field"),
        );
        check("From:\n\n", Err("From field cannot be read"));
        check("From: a@x <b@x>\n\n", Err("From field cannot be read"));
        check(
            "From: a@x\nSender: \n\n",
            Err("Sender field cannot be read"),
        );
        check(
            "From: a@x\nResent-From: \n\n",
            Err("Resent-From or Resent-Sender field cannot be read"),
        );
        check(
            "From: a@x\nResent-Sender: a@x <b@x>\n\n",
            Err("Resent-From or Resent-Sender field cannot be read"),
        );
        check("Resent-From: a@x\n\n", Err("No From field"));
        // So many are asked about, in whatever fields.
        let senders = vec!["a@x"; SENDERS_MAX].join(",\n ");
        let most = format!("Date: x\nMessage-ID: y\nFrom: {senders}\n\n");
        check(&most, Ok((most.as_str(), "", &["a@x"])));
        check(&format!("Sender: a@x\n{most}"), Err("cannot be read"));
        // Lines of which one reader says that they are fields, and another that the body has begun.
        check("no field\nFrom: a@x\n\n", Err("Malformed header field"));
        check(" folded\nFrom: a@x\n\n", Err("Malformed header field"));
        check("Fr om: b@x\nFrom: a@x\n\n", Err("Malformed header field"));
        check(": b@x\nFrom: a@x\n\n", Err("Malformed header field"));
        check("From anne\nFrom: a@x\n\n", Err("Malformed header field"));
        check(
            "From\u{a0}: b@x\nFrom: a@x\n\n",
            Err("Malformed header field"),
        );
    }

    #[test]
    fn a_header_has_an_end() {
        let long = format!("From: a@x\r\nX: {}\r\n\r\n", "x".repeat(100));
        let fits = |bytes_max: usize, size: usize| {
            let mut header = Header::new(bytes_max);
            long.as_bytes()
                .chunks(size)
                .map(|piece| header.push(piece))
                .all(|pushed| pushed.is_ok())
        };
        for size in [1, 7, long.len()] {
            assert!(fits(long.len(), size));
            assert!(!fits(long.len() - 1, size));
        }
        // What follows is no header, however long.
        let mut header = Header::new(20);
        let behind = header.push(format!("From: a@x\r\n\r\n{long}").as_bytes());
        assert_eq!(behind, Ok(Some(long.into_bytes())));
    }
}
