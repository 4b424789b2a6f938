//! How large the commit of planned operations may become: an upper bound, from what is known before they are applied.
//!
//! A commit holds the operations as a batch and the rows that they change. A row of a message is of the order of two hundred bytes, unless it
//! has many keywords; so what makes a commit large is how many messages an operation names, and their keywords.

use super::*;

/// Bytes of one message in a commit beside its dots and keywords: its row with its key (some 350), the operation's entry (some 50), its UID
/// in the history of vanished messages, and what the store counts for a record.
const MESSAGE_BYTES: usize = 480;

/// An encoded dot, in a register of a flag or of existence.
const DOT_BYTES: usize = 32;

/// The frame of a batch and the row of the account, with the counters of 64 slots.
const BATCH_BYTES: usize = 2048;

/// A point in the row of the account: slot, origin, number, counter.
const POINT_BYTES: usize = 28;

/// The frame of one operation, its ids, and what the rows of one mailbox and its mark are beside its name.
const OP_BYTES: usize = 512;

/// How often the name of a mailbox may stand in a commit: in the operation, in its row, in the keys of its marks (old and new) and in the history of
/// what vanished under it.
const NAMES: usize = 6;

impl Replica {
    /// At most how many bytes a commit of these operations has, as the store counts them.
    pub fn commit_bytes_max(&self, ops: &[Op]) -> usize {
        self.batch_bytes()
            + ops
                .iter()
                .map(|op| OP_BYTES + self.op_bytes(op))
                .sum::<usize>()
    }

    /// Every slot may get one more point.
    fn batch_bytes(&self) -> usize {
        let points: usize = self.points.values().map(|points| points.len() + 1).sum();
        BATCH_BYTES + points * POINT_BYTES
    }

    /// Of these messages, the first ones whose claims make a commit of at most so many bytes; at least one.
    pub(crate) fn first_within(&self, indices: &[u32], bytes_max: usize) -> usize {
        let mut bytes = self.batch_bytes() + OP_BYTES;
        let fits = |index: &&u32| {
            bytes += self.index_bytes(**index);
            bytes <= bytes_max
        };
        indices
            .iter()
            .take_while(fits)
            .count()
            .max(1)
            .min(indices.len())
    }

    /// Cuts operations of another node where what they change would be too much for one commit: gives the first ones, and the rest. One that names
    /// many messages is cut between two of them, and is then in both parts, with one dot; to apply the parts, one after the other, is to apply it. At
    /// least one message is in the first part.
    ///
    /// An operation that makes messages is not cut. What it changes is as great where it was made, where it had room.
    pub fn cut(&self, mut ops: Vec<Op>, bytes_max: usize) -> Cut {
        let mut left = bytes_max.saturating_sub(self.batch_bytes());
        let bytes = |op: &Op| OP_BYTES + self.op_bytes(op);
        let mut whole = 0;
        for op in &ops {
            let Some(rest) = left.checked_sub(bytes(op)) else {
                break;
            };
            (left, whole) = (rest, whole + 1);
        }
        let mut rest = ops.split_off(whole);
        let mut part = None;
        if let Some(first) = rest.first_mut() {
            part = self.cut_op(first, left.saturating_sub(OP_BYTES), ops.is_empty());
        }
        if ops.is_empty() && part.is_none() && !rest.is_empty() {
            ops.push(rest.remove(0));
        }
        let done = ops.len();
        ops.extend(part);
        Cut { ops, done, rest }
    }

    /// Takes as many messages as have room out of an operation; `one`: at least one. `None` if it has none, or cannot be cut.
    fn cut_op(&self, op: &mut Op, bytes_max: usize, one: bool) -> Option<Op> {
        let within = |sizes: &mut dyn Iterator<Item = usize>| {
            let mut bytes = 0;
            let fits = |size: &usize| {
                bytes += size;
                bytes <= bytes_max
            };
            let count = sizes.take_while(fits).count();
            count.max(usize::from(one))
        };
        let removal = |of: &Removal| self.row_bytes(of.message) + of.dots.len() * DOT_BYTES;
        match op {
            Op::Store {
                messages,
                set,
                clear,
                rescue,
            } => {
                let new = flags_bytes(set);
                let sizes = messages.iter().map(|of| self.row_bytes(*of) + new);
                let frame = new + flags_bytes(clear);
                let count = within(&mut [frame].into_iter().chain(sizes));
                let messages = head(messages, count.saturating_sub(1).max(usize::from(one)))?;
                Some(Op::Store {
                    messages,
                    set: set.clone(),
                    clear: clear.clone(),
                    rescue: *rescue,
                })
            }
            Op::Move {
                mailbox,
                entries,
                epoch,
            } => {
                let count = within(&mut entries.iter().map(|of| self.row_bytes(of.message)));
                Some(Op::Move {
                    mailbox: *mailbox,
                    entries: head(entries, count)?,
                    epoch: *epoch,
                })
            }
            Op::Claim { claims, epoch } => {
                let count = within(&mut claims.iter().map(|of| self.row_bytes(of.message)));
                Some(Op::Claim {
                    claims: head(claims, count)?,
                    epoch: *epoch,
                })
            }
            Op::Expunge { messages } => {
                let count = within(&mut messages.iter().map(removal));
                Some(Op::Expunge {
                    messages: head(messages, count)?,
                })
            }
            Op::DeleteMailbox { messages, .. } => {
                let count = within(&mut messages.iter().map(removal));
                // The mailboxes go with the last of them.
                Some(Op::DeleteMailbox {
                    mailboxes: Vec::new(),
                    messages: head(messages, count)?,
                })
            }
            _ => None,
        }
    }

    fn op_bytes(&self, op: &Op) -> usize {
        match op {
            Op::Append(append) => {
                MESSAGE_BYTES + 2 * (append.content.len() + flags_bytes(&append.flags))
            }
            Op::Deliver(deliver) => MESSAGE_BYTES + 2 * deliver.content.len(),
            Op::Copy { entries, .. } => {
                let entry = |entry: &CopyEntry| MESSAGE_BYTES + 2 * flags_bytes(&entry.flags);
                entries.iter().map(entry).sum()
            }
            Op::Move { entries, .. } => {
                let entry = |entry: &MoveEntry| self.row_bytes(entry.message);
                entries.iter().map(entry).sum()
            }
            Op::Store {
                messages,
                set,
                clear,
                ..
            } => {
                let new = flags_bytes(set);
                let row = |message: &MessageId| self.row_bytes(*message) + new;
                new + flags_bytes(clear) + messages.iter().map(row).sum::<usize>()
            }
            Op::Expunge { messages } => self.removals_bytes(messages),
            Op::DeleteMailbox {
                mailboxes,
                messages,
            } => {
                let mailbox = |removal: &BoxRemoval| {
                    OP_BYTES + self.name_bytes(removal.mailbox) + removal.dots.len() * DOT_BYTES
                };
                mailboxes.iter().map(mailbox).sum::<usize>() + self.removals_bytes(messages)
            }
            Op::Claim { claims, .. } => {
                let claim = |claim: &Claim| self.row_bytes(claim.message);
                claims.iter().map(claim).sum()
            }
            Op::RenameMailbox { mailboxes, to } => {
                let new = NAMES * to.as_str().len();
                let mailbox = |id: &MailboxId| OP_BYTES + new + self.name_bytes(*id);
                mailboxes.iter().map(mailbox).sum()
            }
            Op::CreateMailbox(create) => OP_BYTES + NAMES * create.name.as_str().len(),
            Op::Subscribe { name } => NAMES * name.as_str().len(),
            Op::Unsubscribe { name, dots } => NAMES * name.as_str().len() + dots.len() * DOT_BYTES,
            Op::Open { .. } | Op::Bump { .. } | Op::Epoch { .. } => 0,
        }
    }

    fn name_bytes(&self, id: MailboxId) -> usize {
        let name = self
            .box_number(id)
            .map(|number| self.boxes[number].name.value.as_str().len());
        NAMES * name.unwrap_or(0)
    }

    fn removals_bytes(&self, messages: &[Removal]) -> usize {
        let removal =
            |removal: &Removal| self.row_bytes(removal.message) + removal.dots.len() * DOT_BYTES;
        messages.iter().map(removal).sum()
    }

    /// The row of a message that is there, one dot more included.
    fn row_bytes(&self, message: MessageId) -> usize {
        self.index_of(message)
            .map_or(MESSAGE_BYTES, |index| self.index_bytes(index))
    }

    fn index_bytes(&self, index: u32) -> usize {
        let record = &self.records[index];
        let flag = |entry: &crate::record::FlagDot| {
            let text = match self.flag(entry.flag, entry.spelling) {
                Flag::Keyword(keyword) => keyword.as_str().len(),
                _ => 0,
            };
            DOT_BYTES + text
        };
        let flags: usize = record.flags.iter().map(flag).sum();
        let dots = record.exist.as_slice().len() + 2;
        MESSAGE_BYTES + flags + dots * DOT_BYTES + 5 * record.older().len()
    }
}

/// Takes so many out of the first; `None` if that is none, or all.
fn head<T>(all: &mut Vec<T>, count: usize) -> Option<Vec<T>> {
    if count == 0 || count >= all.len() {
        return None;
    }
    let rest = all.split_off(count);
    Some(std::mem::replace(all, rest))
}

/// Operations of another node, cut in two: [`Replica::cut`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// To apply first.
    pub ops: Vec<Op>,
    /// How many of them are whole: the number of the first of the rest is greater by so many.
    pub done: usize,
    /// To apply later; the first of them may be the rest of the last of the others.
    pub rest: Vec<Op>,
}

/// Flags with a dot for each, in a row or an operation.
fn flags_bytes(flags: &Flags) -> usize {
    let keywords: usize = flags
        .keywords()
        .iter()
        .map(|keyword| keyword.as_str().len())
        .sum();
    keywords + flags.iter().count() * DOT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccountId, Keyword, Step, StoreMode};
    use whimbrel_crdt::{Incarnation, VersionVector};

    /// What the store counts for a row beside key and value, and the account in the key.
    const RECORD_BYTES: usize = 32 + 16;

    struct World {
        replica: Replica,
        applied: VersionVector,
        next: u64,
    }

    fn origin() -> Incarnation {
        // As long as it can be in the encoding.
        Incarnation::from_hash(u64::MAX - 1)
    }

    impl World {
        fn at(&self) -> At {
            At {
                now_micros: 1_700_000_000_000_000,
                next: Dot::new(origin(), self.next),
            }
        }

        /// Applies, and holds the bound against what the commit has.
        #[track_caller]
        fn write(&mut self, ops: Vec<Op>) {
            let bound = self.replica.commit_bytes_max(&ops);
            let batch = 200 + Op::encode_all(&ops).len();
            let count = ops.len() as u64;
            self.applied.advance(origin(), self.next + count - 1);
            let step = Step {
                origin: origin(),
                first: self.next,
                hlc: 1_700_000_000_000_000 * 64 + self.next,
                deps: &VersionVector::new(),
                applied: &self.applied,
                now_micros: 1_700_000_000_000_000,
                peers: &Peers::none(),
            };
            self.replica.apply(&step, ops).unwrap();
            self.next += count;
            let row = |(key, value): (crate::RowKey, Option<Vec<u8>>)| {
                RECORD_BYTES + key.to_bytes().len() + value.map_or(0, |value| value.len())
            };
            let rows: usize = self.replica.take_dirty().into_iter().map(row).sum();
            let bytes = batch + rows;
            assert!(bytes <= bound, "{bytes} bytes, the bound was {bound}");
            // Nor is the bound much greater, but where keywords are cleared, which counts as if they stayed.
            assert!(
                bound <= 16 * bytes + 2 * BATCH_BYTES + 2 * OP_BYTES,
                "{bytes} bytes, the bound was {bound}"
            );
        }

        fn uids(&self, name: &str) -> Vec<u32> {
            self.replica.uids(&MailboxName::new(name).unwrap())
        }
    }

    fn world() -> World {
        let replica = Replica::new(AccountId([1; 16]), 63);
        let mut world = World {
            replica,
            applied: VersionVector::new(),
            next: u64::from(u32::MAX) * 9,
        };
        let ops = world.replica.plan_open(7, 7, &[]).ops;
        world.write(ops);
        world
    }

    fn flags(keywords: usize) -> Flags {
        let keyword = |n| Keyword::new(&format!("keyword-number-{n}")).unwrap();
        let keywords = (0..keywords).map(|n| Flag::Keyword(keyword(n)));
        [Flag::Seen, Flag::Answered]
            .into_iter()
            .chain(keywords)
            .collect()
    }

    fn append(world: &mut World, name: &MailboxName, count: usize, flags: &Flags) {
        let message = NewMessage {
            flags: flags.clone(),
            blob: BlobName {
                hash: [0xff; 32],
                upload: [0xff; 16],
            },
            size: u32::MAX,
            open_end: true,
            date: Date {
                seconds: i64::MAX,
                zone_minutes: i16::MAX,
            },
            content: vec![0xff; 300],
        };
        let plan = world
            .replica
            .plan_append(&world.at(), name, vec![message; count]);
        world.write(plan.unwrap().ops);
    }

    #[test]
    fn no_commit_is_greater_than_its_bound() {
        let inbox = MailboxName::inbox();
        let other = MailboxName::new("other").unwrap();
        for (keywords, count) in [(0, 1), (0, 500), (90, 200)] {
            let mut world = world();
            let plan = world.replica.plan_create(&world.at(), &other, None);
            world.write(plan.unwrap().ops);
            append(&mut world, &inbox, count, &flags(keywords));
            let (at, uids) = (world.at(), world.uids("INBOX"));
            let plan = world.replica.plan_copy(&at, &inbox, &uids, &other).unwrap();
            world.write(plan.ops);
            let (at, copies) = (world.at(), world.uids("other"));
            let plan = world
                .replica
                .plan_move(&at, &other, &copies, &inbox)
                .unwrap();
            world.write(plan.ops);
            let uids = world.uids("INBOX");
            assert_eq!(uids.len(), 2 * count);
            for (mode, flags) in [
                (
                    StoreMode::Add,
                    Flags::from_iter([Flag::Deleted, Flag::Flagged]),
                ),
                (StoreMode::Remove, Flags::from_iter([Flag::Deleted])),
                (StoreMode::Add, flags(99)),
                (StoreMode::Replace, flags(3)),
            ] {
                let plan = world
                    .replica
                    .plan_store(&inbox, &uids, mode, &flags, &|_| None);
                world.write(plan.unwrap().ops);
            }
            // Claims made again keep the older ones.
            for _ in 0..10 {
                let (at, slots) = (world.at(), world.replica.uids(&inbox));
                let slots = slots
                    .iter()
                    .map(|uid| world.replica.resolve_index(&inbox, *uid).unwrap());
                let op = world
                    .replica
                    .claim_again(&mut world.replica.claims(&at), slots);
                world.write(op.unwrap().into_iter().collect());
            }
            let plan = world
                .replica
                .plan_expunge(&inbox, &world.uids("INBOX")[..count])
                .unwrap();
            world.write(plan.ops);
            let (at, uids) = (world.at(), world.uids("INBOX"));
            let plan = world.replica.plan_move(&at, &inbox, &uids, &other).unwrap();
            world.write(plan.ops);
            let to = MailboxName::new(&format!("new/{}", "x".repeat(200))).unwrap();
            let plan = world.replica.plan_rename(&world.at(), &other, &to).unwrap();
            world.write(plan.ops);
            world.write(world.replica.plan_delete(&to).unwrap().ops);
        }
    }

    #[test]
    fn as_many_are_claimed_again_as_fit() {
        let mut world = world();
        append(&mut world, &MailboxName::inbox(), 100, &flags(0));
        let uids = world.uids("INBOX");
        let indices: Vec<u32> = uids
            .iter()
            .map(|uid| {
                world
                    .replica
                    .resolve_index(&MailboxName::inbox(), *uid)
                    .unwrap()
            })
            .collect();
        let one = world.replica.index_bytes(indices[0]);
        let frame = BATCH_BYTES + OP_BYTES;
        let check =
            |bytes, expected| assert_eq!(world.replica.first_within(&indices, bytes), expected);
        check(0, 1);
        check(frame + one, 1);
        check(frame + 7 * one + 1, 7);
        check(usize::MAX, 100);
        assert_eq!(world.replica.first_within(&[], 0), 0);
    }
}
