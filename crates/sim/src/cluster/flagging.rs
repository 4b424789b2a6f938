//! Flags that are taken away where messages are not: what each must be in the end.
//!
//! Of two changes neither of which knew of the other the one that sets wins. So a flag of a message is judged only if all that was asked of it was
//! asked of one node, one after the other: what was acknowledged last holds. Flags that nobody ever wanted to clear are judged by what was set,
//! wherever that was ([`super::checks::Kept`]).

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::Incarnation;
use whimbrel_service::{
    api::{AccountId, FlagChange, MailboxCall, MessageId, Reply},
    machine::RequestId,
};

use super::{checks::Looks, is_keeping};
use crate::client;

/// A message.
type Place = (AccountId, MessageId);

/// One flag of one message.
#[derive(Default)]
struct Register {
    /// Who was asked to change it.
    at: BTreeSet<Incarnation>,
    /// Somebody wanted it cleared.
    cleared: bool,
    /// Changes that were not answered, and whether one of those came while another was under way.
    under_way: u32,
    crossed: bool,
    /// What it was set to last, if that was acknowledged.
    is_set: Option<bool>,
}

/// A STORE that is under way.
struct Asked {
    account: AccountId,
    ids: BTreeMap<u32, MessageId>,
    /// To what it sets which flags.
    sets: BTreeMap<u8, bool>,
}

/// What clients asked for.
#[derive(Default)]
pub(super) struct Flagging {
    of: BTreeMap<Place, BTreeMap<u8, Register>>,
    under_way: BTreeMap<RequestId, Asked>,
}

impl Flagging {
    /// A client asks this of a node.
    pub(super) fn asked(
        &mut self,
        request: RequestId,
        by: Incarnation,
        account: AccountId,
        call: &MailboxCall,
        looks: &Looks,
    ) {
        let MailboxCall::Store {
            uids,
            change,
            flags,
            ..
        } = call
        else {
            return;
        };
        if !is_keeping(account) {
            return;
        }
        let named = client::numbers(flags);
        let all = 0..client::FLAGS_COUNT;
        let touched = all.filter(|flag| named.contains(flag) || *change == FlagChange::Replace);
        let value = |flag: u8| *change != FlagChange::Remove && named.contains(&flag);
        let asked = Asked {
            account,
            ids: (uids.iter())
                .filter_map(|uid| Some((*uid, looks.owner(account, *uid)?)))
                .collect(),
            sets: touched.map(|flag| (flag, value(flag))).collect(),
        };
        for id in asked.ids.values() {
            let of = self.of.entry((account, *id)).or_default();
            for (flag, sets) in &asked.sets {
                let register = of.entry(*flag).or_default();
                register.at.insert(by);
                register.cleared |= !sets;
                register.crossed = register.under_way > 0;
                register.under_way += 1;
                register.is_set = None;
            }
        }
        self.under_way.insert(request, asked);
    }

    /// It is answered; `counts`: what was acknowledged holds.
    pub(super) fn answered(&mut self, request: RequestId, reply: &Reply, counts: bool) {
        let Some(asked) = self.under_way.remove(&request) else {
            return;
        };
        let told: BTreeSet<MessageId> = match reply {
            Reply::Stored { rows, .. } if counts => rows.iter().map(|row| row.id).collect(),
            _ => BTreeSet::new(),
        };
        for id in asked.ids.values() {
            let of = self.of.entry((asked.account, *id)).or_default();
            for (flag, sets) in &asked.sets {
                let register = of.entry(*flag).or_default();
                register.under_way -= 1;
                let is_last = register.under_way == 0 && !register.crossed;
                register.is_set = (is_last && told.contains(id)).then_some(*sets);
            }
        }
    }

    /// What was acknowledged of a message may be gone.
    pub(super) fn forget(&mut self, account: AccountId, id: MessageId) {
        let of = self.of.get_mut(&(account, id));
        let registers = of.into_iter().flat_map(BTreeMap::values_mut);
        registers.for_each(|register| register.is_set = None);
    }

    /// Whether somebody wanted to clear it.
    pub(super) fn may_be_cleared(&self, place: Place, flag: u8) -> bool {
        let register = self.of.get(&place).and_then(|of| of.get(&flag));
        register.is_some_and(|register| register.cleared)
    }

    /// What each flag of a message must be, where that is known.
    fn known(&self, place: Place) -> impl Iterator<Item = (u8, bool)> {
        let of = self.of.get(&place).into_iter().flatten();
        let of = of.filter(|(_, register)| register.at.len() == 1);
        of.filter_map(|(flag, register)| Some((*flag, register.is_set?)))
    }

    /// A flag that is not as it must be, and how it must be.
    pub(super) fn wrong(&self, place: Place, flags: &BTreeSet<u8>) -> Option<(u8, bool)> {
        let mut known = self.known(place);
        known.find(|(flag, is_set)| flags.contains(flag) != *is_set)
    }

    /// How many flags must not be set.
    pub(super) fn cleared_of(&self, account: AccountId) -> u64 {
        let places = self.of.keys().filter(|(of, _)| *of == account);
        let known = places.flat_map(|place| self.known(*place));
        known.filter(|(_, is_set)| !is_set).count() as u64
    }
}
