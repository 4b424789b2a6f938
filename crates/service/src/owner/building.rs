//! From the rows of an account to the account in memory, which is made elsewhere: a large one takes seconds.

use bytes::Bytes;
use whimbrel_mailbox::{AccountId, LoadError, Replica};

use super::{Partition, PartitionOwner, Phase, keys};
use crate::{
    api::Failure,
    machine::{Building, Now, Output, Ticket},
};

impl PartitionOwner {
    pub(super) fn rows_loaded(
        &mut self,
        now: Now,
        account: AccountId,
        page: Vec<(Vec<u8>, Bytes)>,
        done: bool,
    ) {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        let Phase::Loading { rows, building } = &mut entry.phase else {
            return;
        };
        for (key, value) in page {
            match keys::row_of_key(&key) {
                Ok(row) => rows.push((row, value.to_vec())),
                Err(error) => return self.broken(account, &error.to_string()),
            }
        }
        if !done {
            return;
        }
        let rows = std::mem::take(rows);
        let Some(Partition::Running(own)) = self.partitions.get(&entry.partition) else {
            return;
        };
        if rows.is_empty() {
            if let Err(replica) = self.join_loaded(account, None) {
                self.loaded(now, account, replica);
            }
            return;
        }
        let ticket = self.out.ticket();
        *building = Some(ticket);
        let work = Building {
            account,
            slot: self.config.slot,
            rows,
            applied: own.log.applied().clone(),
        };
        self.out.push(Output::Build(ticket, work));
    }

    /// What was read is an account. One that was dropped meanwhile is not taken.
    pub(super) fn built(
        &mut self,
        now: Now,
        ticket: Ticket,
        built: Result<Box<Replica>, (AccountId, LoadError)>,
    ) {
        let account = match &built {
            Ok(replica) => replica.account(),
            Err((account, _)) => *account,
        };
        let entry = self.accounts.get(&account);
        let is_awaited = entry.is_some_and(|entry| {
            matches!(entry.phase, Phase::Loading { building: Some(of), .. } if of == ticket)
        });
        match built {
            Ok(replica) if is_awaited => {
                if let Err(replica) = self.join_loaded(account, Some(replica)) {
                    self.loaded(now, account, replica);
                }
            }
            Ok(replica) => self.out.push(Output::Discard(replica)),
            Err((_, error)) if is_awaited => self.broken(account, &error.to_string()),
            Err(_) => {}
        }
    }

    /// An account of which nothing was stored is open now, or is gone: what waited for it is taken up.
    pub(super) fn woken(&mut self, account: AccountId) {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        if !matches!(entry.phase, Phase::Running(_)) {
            return self.drop_account(account, Failure::NoSuchAccount);
        }
        self.agenda.handle_again(std::mem::take(&mut entry.waiting));
    }
}
