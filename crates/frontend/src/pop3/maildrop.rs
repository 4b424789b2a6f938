//! What a session knows of the maildrop: one UID a message, and which of them it has marked as deleted.
//!
//! A message number, which is given when the maildrop is opened (RFC 1939, 4), is a place in [`Maildrop::uids`] plus one, and never changes. There is
//! no lock (a deviation from RFC 1939, 4: on a node that is cut off there is nobody to ask for one): what others do meanwhile is not seen, except
//! that a message which they removed can be had no more.

use whimbrel_service::api::{
    AccountId, MailboxCall, MailboxName, ROWS_PER_CALL_MAX, Row, Selected, Uids,
};

/// The maildrop of a session.
pub(super) struct Maildrop {
    pub(super) account: AccountId,
    name: MailboxName,
    pub(super) uid_validity: u32,
    /// UIDs, ascending.
    uids: Uids,
    /// Octets of all.
    octets: u64,
    /// A bit for each message that DELE has marked; empty as long as there is none.
    deleted: Vec<u64>,
    deleted_count: u32,
}

/// Octets that a message which does not end with CRLF gets behind it: "." must stand on a line of its own (RFC 1939, 3).
const FINAL_LINE_END: u64 = 2;

/// How many octets of a message are sent, dots that are stuffed apart: "the exact size of the message in octets" (RFC 1939, 5) is
/// its size at the client.
pub(super) fn octets(row: &Row) -> u64 {
    u64::from(row.size) + FINAL_LINE_END * u64::from(row.open_end)
}

/// Why a number names no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoMessage {
    /// It is marked as deleted.
    Deleted,
    /// There never was one.
    Unknown,
}

impl Maildrop {
    pub(super) fn new(account: AccountId, name: MailboxName, selected: Selected) -> Maildrop {
        Maildrop {
            account,
            name,
            uid_validity: selected.status.uid_validity,
            octets: selected.status.size + FINAL_LINE_END * u64::from(selected.status.open_ends),
            uids: selected.uids,
            deleted: Vec::new(),
            deleted_count: 0,
        }
    }

    /// How many there are, those that are marked apart.
    pub(super) fn count(&self) -> u32 {
        self.uids.len() as u32 - self.deleted_count
    }

    /// Octets of all that there were at the beginning.
    pub(super) fn octets(&self) -> u64 {
        self.octets
    }

    /// Whether DELE was of any effect so far.
    pub(super) fn has_deleted(&self) -> bool {
        self.deleted_count > 0
    }

    pub(super) fn uid(&self, place: u32) -> u32 {
        self.uids
            .get(place as usize)
            .expect("places are of messages that are there")
    }

    /// The place of the message of this number.
    pub(super) fn place(&self, number: u32) -> Result<u32, NoMessage> {
        match number.checked_sub(1) {
            Some(place) if (place as usize) < self.uids.len() => {
                if self.is_deleted(place) {
                    Err(NoMessage::Deleted)
                } else {
                    Ok(place)
                }
            }
            _ => Err(NoMessage::Unknown),
        }
    }

    fn is_deleted(&self, place: u32) -> bool {
        let word = self.deleted.get(place as usize / 64);
        word.is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    /// DELE.
    pub(super) fn delete(&mut self, place: u32) {
        if self.deleted.is_empty() {
            self.deleted = vec![0; self.uids.len().div_ceil(64)];
        }
        if !self.is_deleted(place) {
            self.deleted[place as usize / 64] |= 1 << (place % 64);
            self.deleted_count += 1;
        }
    }

    /// RSET.
    pub(super) fn reset(&mut self) {
        self.deleted = Vec::new();
        self.deleted_count = 0;
    }

    /// At most so many places from `from` on that are marked, or that are not; and where to go on.
    pub(super) fn places(&self, from: u32, deleted: bool, most: usize) -> (Vec<u32>, u32) {
        let end = self.uids.len() as u32;
        let mut places = Vec::new();
        let mut at = from;
        while at < end && places.len() < most.min(ROWS_PER_CALL_MAX) {
            if self.is_deleted(at) == deleted {
                places.push(at);
            }
            at += 1;
        }
        (places, at)
    }

    /// Asks for the rows of the messages at these places.
    pub(super) fn rows(&self, places: &[u32]) -> MailboxCall {
        MailboxCall::Rows {
            name: self.name.clone(),
            uids: places.iter().map(|place| self.uid(*place)).collect(),
        }
    }

    /// What QUIT does with those from a place on that are marked, some at a time, and where to go on; `None` if none is.
    pub(super) fn remove(&self, from: u32) -> Option<(MailboxCall, u32)> {
        if !self.has_deleted() {
            return None;
        }
        let (places, next) = self.places(from, true, ROWS_PER_CALL_MAX);
        let call = MailboxCall::Remove {
            name: self.name.clone(),
            uids: places.iter().map(|place| self.uid(*place)).collect(),
        };
        (!places.is_empty()).then_some((call, next))
    }

    /// Memory that depends on the mailbox.
    pub(super) fn bytes(&self) -> usize {
        self.uids.bytes() + self.deleted.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_service::api::{MailboxId, Status};

    fn maildrop(count: u32) -> Maildrop {
        let uids: Uids = (1..=count).map(|n| n * 64 + 7).collect();
        let status = Status {
            id: MailboxId::inbox(),
            uid_validity: 5,
            uid_next: 64 * count + 8,
            messages: count,
            unseen: 0,
            deleted: 0,
            size: 1000,
            deleted_size: 0,
            open_ends: 0,
            highest_modseq: 1,
        };
        let selected = Selected {
            status,
            uids,
            first_unseen: None,
            keywords: Vec::new(),
            as_of: 0,
            told: 1,
        };
        Maildrop::new(AccountId([1; 16]), MailboxName::inbox(), selected)
    }

    #[test]
    fn numbers_stay_and_marks_hide() {
        let mut drop = maildrop(130);
        assert_eq!(drop.place(0), Err(NoMessage::Unknown));
        assert_eq!(drop.place(131), Err(NoMessage::Unknown));
        assert_eq!(drop.place(u32::MAX), Err(NoMessage::Unknown));
        for number in [1, 64, 65, 130, 130] {
            drop.delete(number - 1);
        }
        assert_eq!(drop.place(65), Err(NoMessage::Deleted));
        assert_eq!(drop.place(66), Ok(65));
        assert_eq!(drop.count(), 126);
        assert_eq!(drop.places(0, true, 100).0, [0, 63, 64, 129]);
        assert_eq!(drop.places(0, false, 2), (vec![1, 2], 3));
        assert_eq!(drop.places(128, false, 9), (vec![128], 130));
        let Some((MailboxCall::Remove { uids, .. }, next)) = drop.remove(0) else {
            panic!("nothing is removed");
        };
        assert_eq!(uids, vec![71, 64 * 64 + 7, 65 * 64 + 7, 130 * 64 + 7]);
        assert!(drop.remove(next).is_none());
        drop.reset();
        assert!(drop.remove(0).is_none());
        let mut large = maildrop(3000);
        (0..3000).for_each(|place| large.delete(place));
        let (mut from, mut sizes) = (0, Vec::new());
        while let Some((MailboxCall::Remove { uids, .. }, next)) = large.remove(from) {
            sizes.push(uids.len());
            from = next;
        }
        assert_eq!(sizes, [1024, 1024, 952]);
        assert_eq!(drop.count(), 130);
        assert!(drop.bytes() < 520, "{}", drop.bytes());
    }
}
