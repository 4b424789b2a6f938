//! MODSEQ (RFC 7162, 3.1) as each node tells it: of a message it never falls and rises with each change that is shown, and so does HIGHESTMODSEQ of a mailbox.
//!
//! Answers may cross: what was asked before another session was answered may have been read before, too (an answer waits for a sync, or for other
//! nodes). Of such ones nothing is said.
//!
//! MODSEQs are a node's own (docs/design.md#modseq): everything here is of one incarnation, and of one life of it in a partition.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::Incarnation;
use whimbrel_service::api::{AccountId, MessageId, Row};

use crate::client;

/// A node and an account.
pub type At = (Incarnation, AccountId);

/// When something was asked and when it was answered.
#[derive(Clone, Copy, Debug)]
pub struct When {
    /// Asked.
    pub asked: u64,
    /// Answered.
    pub answered: u64,
}

/// A message as it was shown last.
#[derive(Debug)]
struct Shown {
    modseq: u64,
    answered: u64,
    flags: BTreeSet<u8>,
}

/// A mailbox as it was shown last.
#[derive(Debug)]
struct Looked {
    highest: u64,
    answered: u64,
    uids: BTreeSet<u32>,
}

/// What was told.
#[derive(Debug, Default)]
pub struct Modseqs {
    messages: BTreeMap<(At, MessageId), Shown>,
    mailboxes: BTreeMap<(At, String), Looked>,
}

impl Modseqs {
    /// A message was shown.
    ///
    /// # Errors
    /// Its MODSEQ is less than before, or the same although it has changed.
    pub fn seen(&mut self, at: At, row: &Row, when: When) -> Result<(), String> {
        let now = Shown {
            modseq: row.modseq,
            answered: when.answered,
            flags: client::numbers(&row.flags),
        };
        if let Some(before) = self.messages.get(&(at, row.id)) {
            if before.answered >= when.asked {
                if before.modseq < now.modseq {
                    self.messages.insert((at, row.id), now);
                }
                return Ok(());
            }
            // A session that knows an earlier UID of it is shown it under that, so a UID is no change of the message; of the mailbox it is.
            let changed = before.flags != now.flags;
            if now.modseq < before.modseq || (now.modseq == before.modseq && changed) {
                return Err(format!("message {} was {before:?} and is {now:?}", row.id));
            }
        }
        self.messages.insert((at, row.id), now);
        Ok(())
    }

    /// The MODSEQ that a message was shown with before that was asked.
    pub fn known(&self, at: At, id: MessageId, asked: u64) -> Option<u64> {
        let shown = self.messages.get(&(at, id))?;
        (shown.answered < asked).then_some(shown.modseq)
    }

    /// A mailbox was shown as a whole.
    ///
    /// # Errors
    /// Its HIGHESTMODSEQ is less than before, or the same although there are other messages.
    pub fn looked(
        &mut self,
        at: At,
        name: &str,
        uids: impl Iterator<Item = u32>,
        highest: u64,
        when: When,
    ) -> Result<(), String> {
        let now = Looked {
            highest,
            answered: when.answered,
            uids: uids.collect(),
        };
        let before = self.mailboxes.get(&(at, name.to_owned()));
        if let Some(before) = before
            && before.answered >= when.asked
        {
            if before.highest < now.highest {
                self.mailboxes.insert((at, name.to_owned()), now);
            }
            return Ok(());
        }
        if let Some(before) = before
            && (now.highest < before.highest
                || (now.highest == before.highest && now.uids != before.uids))
        {
            return Err(format!("{name} was {before:?} and is {now:?}"));
        }
        self.mailboxes.insert((at, name.to_owned()), now);
        Ok(())
    }

    /// A node begins anew with an account.
    pub fn forget(&mut self, at: At) {
        self.messages.retain(|(of, _), _| *of != at);
        self.mailboxes.retain(|(of, _), _| *of != at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(looks: &[(&[u32], u64)], fails: bool) {
        let at = (Incarnation::from_hash(1), AccountId([1; 16]));
        let mut modseqs = Modseqs::default();
        let mut all = looks.iter();
        let mut time = 0;
        let result = all.try_for_each(|(uids, highest)| {
            time += 2;
            let when = When {
                asked: time,
                answered: time + 1,
            };
            modseqs.looked(at, "INBOX", uids.iter().copied(), *highest, when)
        });
        assert_eq!(result.is_err(), fails, "{looks:?}: {result:?}");
    }

    #[test]
    fn each_change_raises_it() {
        check(&[(&[1], 5), (&[1], 5), (&[1, 2], 6)], false);
        check(&[(&[1], 5), (&[1], 4)], true);
        check(&[(&[1], 5), (&[1, 2], 5)], true);
        check(&[(&[1], 5), (&[], 5)], true);
    }
}
