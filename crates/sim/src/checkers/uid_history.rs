//! U1, U2 and U4 as clients see them, over all crashes.
//!
//! - U1: a (mailbox name, UIDVALIDITY, UID) never denotes two messages.
//! - U2: what came under a name after a UIDNEXT was told for it has a UID of at least that.
//! - U4: on one node a message that stays under its name keeps its UID. (A RENAME lets it enter another name.)

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use crate::model::Number;

/// Everything that was told of one account.
#[derive(Debug, Default)]
pub struct Uids {
    uid_validity: Option<u32>,
    /// Those of before.
    validities: BTreeSet<u32>,
    /// What a UID denotes, by name.
    owners: BTreeMap<(String, u32), Number>,
    /// The UID of what entered a name.
    uids: BTreeMap<(String, Number), u32>,
    /// UIDNEXTs told for a name, by when: only those that are greater than all told before.
    told: BTreeMap<String, BTreeMap<Number, u32>>,
    /// Names that were asked about, whether or not the answer arrived.
    asked: BTreeSet<String>,
    /// An older disk was put back: whatever name there is may have been told of.
    lost: bool,
    /// After an older disk was put back whose lead was too short: the names for which a client has said what it was told, and when.
    said: Option<BTreeMap<String, Number>>,
    /// New messages below a UIDNEXT of the lost time.
    overlooked: Cell<u64>,
}

impl Uids {
    /// The account's UIDVALIDITY was told.
    pub fn validity(&mut self, told: u32) -> Result<(), String> {
        match self.uid_validity.replace(told) {
            Some(before) if before != told => Err(format!("UIDVALIDITY was {before}, is {told}")),
            Some(_) => Ok(()),
            None if !self.validities.insert(told) => Err(format!("UIDVALIDITY is {told} again")),
            None => Ok(()),
        }
    }

    /// The account's present UIDVALIDITY, if it was told.
    #[must_use]
    pub fn uid_validity(&self) -> Option<u32> {
        self.uid_validity
    }

    /// An operation with this number told a UIDNEXT.
    pub fn next(&mut self, name: &str, at: Number, uid_next: u32) -> Result<(), String> {
        let before = self
            .told
            .get(name)
            .and_then(|told| told.range(..at).next_back());
        if let Some((_, before)) = before
            && *before > uid_next
            && !self.is_lenient(name, at)
        {
            return Err(format!(
                "U2: UIDNEXT of {name} was {before} and is {uid_next}"
            ));
        }
        let told = self.told.entry(name.to_owned()).or_default();
        if told
            .range(..=at)
            .next_back()
            .is_none_or(|(_, before)| *before < uid_next)
        {
            told.insert(at, uid_next);
        }
        Ok(())
    }

    /// Whether U2 is not promised for what has this number: it came after an older disk was put back, and before a client said what it was told.
    fn is_lenient(&self, name: &str, number: Number) -> bool {
        let said = self.said.as_ref().map(|said| said.get(name));
        said.is_some_and(|said| said.is_none_or(|said| number < *said))
    }

    /// Something was asked about a name: the node may have announced a UIDNEXT for it, even if nobody heard.
    pub fn asked(&mut self, name: &str) {
        self.asked.insert(name.to_owned());
    }

    /// Whether something may have been told of this name.
    #[must_use]
    pub fn was_told(&self, name: &str) -> bool {
        self.lost || self.asked.contains(name)
    }

    /// An older disk was put back. U1 holds as ever; so does U2 if the lead of the new incarnation is long enough, else for a name
    /// only from when a client has named what it was told. With all slots used up UIDVALIDITY rises.
    pub fn put_back(&mut self, lead_is_enough: bool, epoch: bool) {
        if epoch {
            // All is told anew under another UIDVALIDITY.
            *self = Uids {
                validities: std::mem::take(&mut self.validities),
                ..Uids::default()
            };
            return;
        }
        self.lost = true;
        if !lead_is_enough {
            self.said = Some(BTreeMap::new());
        }
    }

    /// What a client that was told all there was could name: the greatest UIDNEXT, if nobody has named it yet.
    #[must_use]
    pub fn to_be_said(&self, name: &str) -> Option<u32> {
        if self.said.as_ref()?.contains_key(name) {
            return None;
        }
        self.told.get(name)?.values().next_back().copied()
    }

    /// Whether messages may get new UIDs because a client names what it was told.
    #[must_use]
    pub fn may_be_taken_over(&self) -> bool {
        self.said.is_some()
    }

    /// A client has named that, by an operation with this number: messages that came since the disk was put back have new UIDs.
    pub fn said(&mut self, name: &str, at: Number, uid_next: u32) {
        if let Some(said) = &mut self.said {
            said.insert(name.to_owned(), at);
            self.uids
                .retain(|(of, _), uid| of != name || *uid >= uid_next);
        }
    }

    /// How many new messages a client that asks from its old UIDNEXT would overlook.
    #[must_use]
    pub fn overlooked(&self) -> u64 {
        self.overlooked.get()
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
            Some((_, uid_next)) if uid < *uid_next && self.is_lenient(name, number) => {
                self.overlooked.update(|count| count + 1);
                Ok(())
            }
            Some((_, uid_next)) if uid < *uid_next => Err(format!(
                "U2: new message {key:x} in {name} has UID {uid}, but UIDNEXT was told to be {uid_next}"
            )),
            _ => Ok(()),
        }
    }
}
