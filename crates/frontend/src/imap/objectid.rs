//! MAILBOXID, EMAILID and THREADID (RFC 8474).
//!
//! An id is a letter and 32 hexadecimal digits: "A good solution to these issues is to prefix every ID with a single alphabetical character"
//! (8.1). A message has the EMAILID of the message it is a copy of. There are no threads: "if the server doesn't support THREADID [...], it
//! MUST return NIL to all FETCH responses for the THREADID data item, and a SEARCH for THREADID MUST NOT match any messages" (5.2).
//!
//! UIDVALIDITY is the account's and survives DELETE, so that a mailbox that is made again under its name has another MAILBOXID under the same
//! UIDVALIDITY; section 4 wants the same one there, but also that two mailboxes never have the same one, and RENAME takes the old one along.

use whimbrel_imap::core::ObjectId;
use whimbrel_service::api::{MailboxId, MessageId};

const MAILBOX: char = 'F';
const EMAIL: char = 'M';

/// MAILBOXID.
pub(super) fn mailbox_id(id: MailboxId) -> ObjectId {
    object_id(MAILBOX, id)
}

/// EMAILID of a message with this origin.
pub(super) fn email_id(origin: MessageId) -> ObjectId {
    object_id(EMAIL, origin)
}

fn object_id(kind: char, id: impl std::fmt::Display) -> ObjectId {
    ObjectId::new(format!("{kind}{id}").as_bytes()).expect("a letter and hexadecimal digits")
}

/// The origin that an EMAILID names, if we could have given it out. "ObjectID values are case sensitive."
pub(super) fn origin_of(id: &ObjectId) -> Option<MessageId> {
    let digits = id.as_str().strip_prefix(EMAIL)?.as_bytes();
    let mut bytes = [0; 16];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for &digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *byte = *byte << 4 | value;
        }
    }
    Some(MessageId(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_there_and_back() {
        let mut bytes = [0x5a; 16];
        bytes[0] = 0x0f;
        let id = email_id(MessageId(bytes));
        assert_eq!(id.as_str(), "M0f5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a");
        assert_eq!(origin_of(&id), Some(MessageId(bytes)));
        assert_eq!(&mailbox_id(MailboxId(bytes)).as_str()[..3], "F0f");
        for other in [
            "M0f",
            "F0f5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a",
            "M0F5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a",
            "T",
        ] {
            assert_eq!(
                origin_of(&ObjectId::new(other.as_bytes()).unwrap()),
                None,
                "{other}"
            );
        }
    }
}
