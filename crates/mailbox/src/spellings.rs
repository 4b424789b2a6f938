//! What a replica does with the spellings of its keywords: it counts new ones, forgets unused ones, and takes over those that rows of an earlier
//! version do not have exactly.

use std::collections::{BTreeMap, BTreeSet};

use crate::keywords::{FIRST_KEYWORD, KEYWORDS_OF_ACCOUNT_MAX, Keywords};
use crate::{Flags, KEYWORDS_MAX, Keyword, MessageId, Op, Plan, PlanError, Replica};

/// More than this part of the records has changed before all are looked at again.
const CHANGED_PART: usize = 64;

/// Messages whose keywords are said anew at a time: it is done once, beside all else.
const SPELLED_PER_OP_MAX: usize = 256;
/// Bytes of what that changes, at a time.
const SPELLED_BYTES_MAX: usize = 1 << 20;

/// Keywords that operations being planned would bring.
pub(crate) struct New<'a> {
    known: &'a Keywords,
    new: BTreeSet<Keyword>,
}

impl New<'_> {
    /// A message is to have these flags.
    pub(crate) fn add(&mut self, flags: &Flags) -> Result<(), PlanError> {
        let keywords = flags.keywords();
        if keywords.len() > KEYWORDS_MAX {
            return Err(PlanError::TooManyKeywords);
        }
        let new = keywords.iter().filter(|of| !self.known.contains(of));
        self.new.extend(new.cloned());
        if !self.new.is_empty() && self.known.len() + self.new.len() > KEYWORDS_OF_ACCOUNT_MAX {
            return Err(PlanError::TooManyKeywords);
        }
        Ok(())
    }
}

impl Replica {
    /// Counts keywords of operations being planned.
    pub(crate) fn new_keywords(&self) -> New<'_> {
        New {
            known: &self.keywords,
            new: BTreeSet::new(),
        }
    }

    /// Forgets keywords that no message has, if there are nearly as many as there may be. Looks at all records, but not before a part of them has changed.
    pub fn forget_keywords(&mut self) {
        let crowded = self.keywords.len() + KEYWORDS_MAX > KEYWORDS_OF_ACCOUNT_MAX;
        if !crowded || self.keywords.changed_records() <= self.records.len() / CHANGED_PART {
            return;
        }
        let flags = self.records.iter().flat_map(|(_, record)| &record.flags);
        let keywords = flags.filter(|of| of.flag >= FIRST_KEYWORD);
        let used: BTreeSet<u32> = keywords.map(|of| of.spelling.text()).collect();
        self.keywords.retain(&used);
        let numbers: Vec<u32> = self.boxes.iter().map(|(number, _)| number).collect();
        for number in numbers {
            let listed = &mut self.boxes[number].keywords;
            listed.retain(|(_, spelling)| used.contains(&spelling.text()));
        }
    }

    /// Remembers whether a row of an earlier version has said how a keyword of the record is spelled.
    pub(crate) fn note_spelling(&mut self, index: u32) {
        if self.records[index].is_spelled_as_heard() {
            self.as_heard.insert(index);
        } else if !self.as_heard.is_empty() {
            self.as_heard.remove(&index);
        }
    }

    /// Takes what rows of an earlier version say by the order in which this replica had heard of it from one that has carried out the same log. For
    /// the check of a store.
    pub fn spell_as(&mut self, other: &Self) {
        let here = self.keywords.translate(&other.keywords);
        for index in std::mem::take(&mut self.as_heard) {
            let Some(record) = self.records.get_mut(index) else {
                continue;
            };
            let theirs = other
                .by_id
                .get(&record.id)
                .map(|index| &other.records[*index]);
            for entry in &mut record.flags {
                let flag = self.keywords.keyword(entry.spelling);
                let said = theirs.into_iter().flat_map(|record| &record.flags);
                let mut said = said.filter(|of| of.dot == entry.dot && of.flag >= FIRST_KEYWORD);
                let same = said.find(|of| other.keywords.keyword(of.spelling).same(flag));
                if let (false, Some(of)) = (entry.spelling.is_exact(), same) {
                    entry.spelling = here.of(of.spelling).spelling;
                }
            }
            self.note_spelling(index);
        }
    }

    /// Whether a message that is shown is among those of [`Self::plan_spellings`].
    pub fn spells_as_heard(&self) -> bool {
        let mut indices = self.as_heard.iter();
        indices.any(|index| self.records[*index].shown != 0)
    }

    /// STORE of what rows of an earlier version say of keywords, as it is shown: each replica had kept the spelling that it heard first. Once every
    /// one that shows something has said it anew, all show the same. A part of it: apply, and plan again, until it is empty.
    pub fn plan_spellings(&self) -> Plan<()> {
        let shown = |index: &&u32| {
            let record = &self.records[**index];
            record.alive() && record.shown != 0
        };
        let indices = self.as_heard.iter().filter(shown).copied();
        let mut indices: Vec<u32> = indices.take(SPELLED_PER_OP_MAX).collect();
        indices.truncate(self.first_within(&indices, SPELLED_BYTES_MAX));
        let mut groups: BTreeMap<Flags, Vec<MessageId>> = BTreeMap::new();
        for index in indices {
            let record = &self.records[index];
            let heard = record.flags.iter().filter(|of| !of.spelling.is_exact());
            let shown = heard.filter_map(|of| Some((of.flag, record.spelling(of.flag)?)));
            let set: Flags = shown
                .map(|(flag, spelling)| self.flag(flag, spelling))
                .collect();
            groups.entry(set).or_default().push(record.id);
        }
        let op = |(set, messages)| Op::Store {
            messages,
            set,
            clear: Flags::none(),
            rescue: false,
        };
        Plan {
            ops: groups.into_iter().map(op).collect(),
            outcome: (),
        }
    }
}
