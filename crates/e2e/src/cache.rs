//! What a client that uses QRESYNC keeps of a mailbox, and the judgement of what it is told when it comes back (RFC 7162, 3.2.5).

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    imap::{Reply, Resync},
    model::Account,
};

/// A mailbox as it was at some MODSEQ.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Its name then.
    pub mailbox: String,
    validity: u32,
    modseq: u64,
    flags: BTreeMap<u32, BTreeSet<String>>,
}

impl Cache {
    /// What a client that has just been told everything knows.
    #[must_use]
    pub fn of(account: &Account, mailbox: &str, validity: u32, modseq: u64) -> Cache {
        let mails = account.mailbox(mailbox).mails.iter();
        Cache {
            mailbox: mailbox.to_owned(),
            validity,
            modseq,
            flags: mails
                .map(|(uid, mail)| (*uid, mail.flags.clone()))
                .collect(),
        }
    }

    /// The parameter of SELECT; with `known`, the client says which messages it knows.
    #[must_use]
    pub fn parameter(&self, known: bool) -> String {
        let uids: Vec<u32> = self.flags.keys().copied().filter(|_| known).collect();
        Resync::parameter(self.validity, self.modseq, &uids)
    }

    /// What SELECT told, applied: the cache must then be the mailbox, as far as it reached.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub fn resync(mut self, reply: &Reply, account: &Account) -> Result<(), String> {
        let mails = &account.mailbox(&self.mailbox).mails;
        if reply.code_number("UIDVALIDITY") != Some(self.validity) {
            return Ok(());
        }
        let last = self.flags.keys().next_back().copied().unwrap_or(0);
        let told = Resync::of(reply)?;
        for (first, last) in told.vanished {
            if let Some((uid, _)) = mails.range(first..=last).next() {
                return Err(format!("UID {uid} is said to have vanished, and is there"));
            }
            self.flags.retain(|uid, _| !(first..=last).contains(uid));
        }
        let changed = told.changed.into_iter();
        self.flags.extend(changed.filter(|(uid, _)| *uid <= last));
        let truth: BTreeMap<u32, BTreeSet<String>> = mails
            .range(..=last)
            .map(|(uid, mail)| (*uid, mail.flags.clone()))
            .collect();
        if self.flags == truth {
            Ok(())
        } else {
            Err(format!(
                "the client believes {:?}, and it is {truth:?}",
                self.flags
            ))
        }
    }
}
