//! How the bytes of a summary are shared out, so that its encoding never exceeds `summary_bytes_max` and no part of a
//! message can starve another: a giant To leaves room for From, a thousand parts leave room for the envelope.

use crate::Limits;
use crate::summary::{Address, Octets, Param};

/// Bytes that a part takes at most in the encoding apart from texts that are charged: its numbers, its default texts, and
/// the placeholder that an unopened multipart or message holds.
pub(crate) const NODE_BYTES: usize = 240;
/// Bytes of a summary apart from nodes, texts and fields.
const FRAME_BYTES: usize = 112 + crate::preview::PREVIEW_BYTES;
/// Bytes of the length that stands before a text.
const TEXT_HEAD_BYTES: usize = 5;

/// The shares.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    /// Parts that may be made.
    pub(crate) parts: usize,
    /// Texts of parts and of embedded envelopes.
    pub(crate) part_texts: usize,
    /// Texts of the envelope.
    pub(crate) envelope: usize,
    /// Usual fields.
    pub(crate) fields: usize,
}

impl Shares {
    pub(crate) fn new(limits: &Limits) -> Shares {
        let all = limits.summary_bytes_max.max(Limits::SUMMARY_BYTES_MIN) - FRAME_BYTES;
        let eighth = all / 8;
        Shares {
            parts: (3 * eighth / NODE_BYTES).min(limits.parts_max).max(1),
            part_texts: eighth,
            envelope: 2 * eighth,
            fields: 2 * eighth,
        }
    }
}

/// A share of texts that is being used up.
#[derive(Clone, Debug)]
pub(crate) struct Texts {
    left: usize,
}

impl Texts {
    pub(crate) fn new(bytes: usize) -> Texts {
        Texts { left: bytes }
    }

    /// Takes `bytes`, or nothing and says no.
    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// Takes a quarter of what is left as a share of its own; give back the rest of it with [`Texts::give_back`]. So
    /// whoever draws leaves the most to those who come after.
    pub(crate) fn quarter(&mut self) -> Texts {
        let quarter = self.left / 4;
        self.left -= quarter;
        Texts { left: quarter }
    }

    pub(crate) fn give_back(&mut self, rest: Texts) {
        self.left += rest.left;
    }

    /// A text, cut to what is left; nothing when not even an empty one can be paid.
    pub(crate) fn text(&mut self, mut bytes: Vec<u8>) -> Option<Octets> {
        let room = self.left.checked_sub(TEXT_HEAD_BYTES)?;
        bytes.truncate(room);
        self.left -= TEXT_HEAD_BYTES + bytes.len();
        Some(bytes.into())
    }

    /// Puts a text in the place of another, whose bytes are free again.
    pub(crate) fn replace(&mut self, member: &mut Option<Octets>, bytes: Vec<u8>) {
        if let Some(old) = member.take() {
            self.left += TEXT_HEAD_BYTES + old.len();
        }
        *member = self.text(bytes);
    }

    /// As [`Texts::replace`], for message ids: where there is no room for all of them, whole ones at the end are left out, as a part of one would name
    /// another message. `cut`: the last may be such a part already.
    pub(crate) fn replace_ids(
        &mut self,
        member: &mut Option<Octets>,
        mut bytes: Vec<u8>,
        cut: bool,
    ) {
        self.replace(member, Vec::new());
        let Some(room) = member.as_ref().map(|_| self.left) else {
            return;
        };
        if cut || bytes.len() > room {
            let ids = |at: &usize| {
                let behind = bytes.get(at + 1);
                bytes[*at] == b'>' && behind.is_none_or(|b| b" \t<(,".contains(b))
            };
            let last = (0..bytes.len().min(room)).rev().find(ids);
            bytes.truncate(last.map_or(0, |last| last + 1));
            if bytes.is_empty() {
                self.left += TEXT_HEAD_BYTES;
                *member = None;
                return;
            }
        }
        self.replace(member, bytes);
    }

    /// The parameters that can be paid.
    pub(crate) fn params(&mut self, params: Vec<Param>) -> Vec<Param> {
        params
            .into_iter()
            .filter(|p| self.reserve(1 + 2 * TEXT_HEAD_BYTES + p.name.len() + p.value.len()))
            .collect()
    }

    pub(crate) fn address_cost(address: &Address) -> usize {
        let texts = [
            &address.name,
            &address.route,
            &address.mailbox,
            &address.host,
        ];
        1 + texts
            .iter()
            .map(|t| t.as_ref().map_or(1, |t| TEXT_HEAD_BYTES + t.len()))
            .sum::<usize>()
    }

    /// Of a field: its raw bytes, the length of its name, and the two lengths before them.
    pub(crate) fn field_cost(raw_len: usize) -> usize {
        1 + 2 * TEXT_HEAD_BYTES + raw_len
    }
}

/// The share of an envelope, dealt out to its members.
pub(crate) struct Members {
    /// Date, Subject, Message-ID, In-Reply-To.
    pub(crate) date: Texts,
    pub(crate) subject: Texts,
    pub(crate) message_id: Texts,
    pub(crate) in_reply_to: Texts,
    /// From, Sender, Reply-To, Bcc; To and Cc, which are long in honest mail.
    pub(crate) from: Texts,
    pub(crate) sender: Texts,
    pub(crate) reply_to: Texts,
    pub(crate) bcc: Texts,
    pub(crate) to: Texts,
    pub(crate) cc: Texts,
}

impl Members {
    pub(crate) fn new(share: Texts) -> Members {
        let of_32 = |parts: usize| Texts {
            left: share.left / 32 * parts,
        };
        Members {
            date: of_32(1),
            subject: of_32(1),
            message_id: of_32(1),
            in_reply_to: of_32(1),
            from: of_32(2),
            sender: of_32(2),
            reply_to: of_32(2),
            bcc: of_32(2),
            to: of_32(10),
            cc: of_32(10),
        }
    }

    /// What nobody took.
    pub(crate) fn rest(self) -> Texts {
        let members = [
            self.date,
            self.subject,
            self.message_id,
            self.in_reply_to,
            self.from,
            self.sender,
            self.reply_to,
            self.bcc,
            self.to,
            self.cc,
        ];
        Texts {
            left: members.iter().map(|m| m.left).sum(),
        }
    }
}
