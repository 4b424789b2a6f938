//! What nodes have told to all clients together, and what must stay true of it whoever asks.

use std::collections::BTreeMap;

use whimbrel_service::api::AccountId;

use super::cache::Place;
use crate::checkers::monotonic::Monotonic;

/// What was told.
#[derive(Default)]
pub(super) struct Told {
    /// U1 over all nodes and names: what a UID means, its size and, if it was told, its EMAILID. By account and UIDVALIDITY.
    messages: BTreeMap<(AccountId, u32, u32), (u64, Option<String>)>,
    /// U4: UIDNEXT of a name, at one node. A UID that was given is below it.
    pub(super) next: Monotonic<(Place, AccountId, String)>,
    /// HIGHESTMODSEQ of a mailbox (by MAILBOXID) at one node. No MODSEQ of a message in it is greater.
    pub(super) modseq: Monotonic<(Place, AccountId, String)>,
    validity: BTreeMap<AccountId, u32>,
}

impl Told {
    /// U1
    pub(super) fn message(
        &mut self,
        account: AccountId,
        (validity, uid): (u32, u32),
        size: u64,
        email: Option<&str>,
    ) -> Result<(), String> {
        let key = (account, validity, uid);
        let known = self.messages.entry(key).or_insert((size, None));
        let other = match (&known.1, email) {
            (Some(known), Some(told)) => known != told,
            _ => false,
        };
        if known.0 != size || other {
            return Err(format!(
                "U1: UID {uid} of {account} denoted {known:?}, and now {size} bytes of {email:?}"
            ));
        }
        if let Some(email) = email {
            known.1 = Some(email.to_owned());
        }
        Ok(())
    }

    /// U4: all mailboxes of an account have one UIDVALIDITY, which stays.
    pub(super) fn validity(&mut self, account: AccountId, told: u32) -> Result<(), String> {
        match self.validity.insert(account, told) {
            Some(before) if before != told => Err(format!(
                "U4: UIDVALIDITY of {account} was told to be {before}, and now {told}"
            )),
            _ => Ok(()),
        }
    }
}
