//! U1, U2 and U4 as clients see them, over all crashes.
//!
//! - U1: a (mailbox name, UIDVALIDITY, UID) never denotes two messages.
//! - U2: what came under a name after a UIDNEXT was told for it has a UID of at least that.
//! - U4: on one node a message that stays under its name keeps its UID. (A RENAME lets it enter another name.)

use std::collections::{BTreeMap, BTreeSet};

use crate::model::Number;

/// Everything that was told of one account.
#[derive(Debug, Default)]
pub struct Uids {
    uid_validity: Option<u32>,
    /// What a UID denotes, by name.
    owners: BTreeMap<(String, u32), Number>,
    /// The UID of what entered a name.
    uids: BTreeMap<(String, Number), u32>,
    /// UIDNEXTs told for a name, by when: only those that are greater than all told before.
    told: BTreeMap<String, BTreeMap<Number, u32>>,
    /// Names that were asked about, whether or not the answer arrived.
    asked: BTreeSet<String>,
}

impl Uids {
    /// The account's UIDVALIDITY was told.
    pub fn validity(&mut self, told: u32) -> Result<(), String> {
        match self.uid_validity.replace(told) {
            Some(before) if before != told => Err(format!("UIDVALIDITY was {before}, is {told}")),
            _ => Ok(()),
        }
    }

    /// An operation with this number told a UIDNEXT.
    pub fn next(&mut self, name: &str, at: Number, uid_next: u32) {
        let told = self.told.entry(name.to_owned()).or_default();
        if told
            .range(..=at)
            .next_back()
            .is_none_or(|(_, before)| *before < uid_next)
        {
            told.insert(at, uid_next);
        }
    }

    /// Something was asked about a name: the node may have announced a UIDNEXT for it, even if nobody heard.
    pub fn asked(&mut self, name: &str) {
        self.asked.insert(name.to_owned());
    }

    /// Whether something may have been told of this name.
    #[must_use]
    pub fn was_told(&self, name: &str) -> bool {
        self.asked.contains(name)
    }

    /// Under `name` the message `key`, which came there by the `entered`-th making, was told to have this UID.
    pub fn seen(
        &mut self,
        name: &str,
        key: Number,
        entered: Number,
        uid: u32,
    ) -> Result<(), String> {
        self.consistent(name, key, entered, uid)?;
        self.owners.insert((name.to_owned(), uid), key);
        self.uids.insert((name.to_owned(), entered), uid);
        Ok(())
    }

    /// Whether all of these could be seen.
    pub fn all_consistent(&self, seen: &[(String, Number, Number, u32)]) -> Result<(), String> {
        seen.iter()
            .try_for_each(|(name, key, entered, uid)| self.consistent(name, *key, *entered, *uid))
    }

    fn consistent(&self, name: &str, key: Number, entered: Number, uid: u32) -> Result<(), String> {
        match self.owners.get(&(name.to_owned(), uid)) {
            Some(owner) if *owner != key => {
                return Err(format!(
                    "U1: UID {uid} of {name} denoted message {owner:x} and now {key:x}"
                ));
            }
            _ => {}
        }
        match self.uids.get(&(name.to_owned(), entered)) {
            Some(before) if *before != uid => {
                return Err(format!(
                    "U4: message {key:x} in {name} had UID {before} and now {uid}"
                ));
            }
            _ => {}
        }
        // An operation's number is the high part of what it makes.
        let number = entered >> 20;
        let told = self
            .told
            .get(name)
            .and_then(|told| told.range(..number).next_back());
        match told {
            Some((_, uid_next)) if uid < *uid_next => Err(format!(
                "U2: new message {key:x} in {name} has UID {uid}, but UIDNEXT was told to be {uid_next}"
            )),
            _ => Ok(()),
        }
    }
}
