//! From the rows of an account to the account in memory, which is made on another thread: a large one takes seconds. If its partition is being joined with
//! a snapshot the account is joined then, else it is [loaded](super::loading).

use bytes::Bytes;
use whimbrel_mailbox::{AccountId, LoadError, Replica};

use super::{Mail, Partition, Phase, joining, keys, loading};
use crate::{
    api::Failure,
    machine::{Building, Now, Output, Ticket},
};

pub(super) fn rows_loaded(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    page: Vec<(Vec<u8>, Bytes)>,
    done: bool,
) {
    let Some(entry) = mail.accounts.get_mut(&account) else {
        return;
    };
    let Phase::Loading { rows, building } = &mut entry.phase else {
        return;
    };
    for (key, value) in page {
        match keys::row_of_key(&key) {
            Ok(row) => rows.push((row, value.to_vec())),
            Err(error) => return mail.broken(account, &error.to_string()),
        }
    }
    if !done {
        return;
    }
    let rows = std::mem::take(rows);
    let Some(Partition::Running(own)) = mail.partitions.get(&entry.partition) else {
        return;
    };
    if rows.is_empty() {
        if let Err(replica) = joining::join_loaded(mail, account, None) {
            loading::loaded(mail, now, account, replica);
        }
        return;
    }
    let ticket = mail.out.ticket();
    *building = Some(ticket);
    let work = Building {
        account,
        slot: mail.config.slot,
        rows,
        applied: own.log.applied().clone(),
    };
    mail.out.push(Output::Build(ticket, work));
}

/// What was read is an account. One that was dropped meanwhile is not taken.
pub(super) fn built(
    mail: &mut Mail,
    now: Now,
    ticket: Ticket,
    built: Result<Box<Replica>, (AccountId, LoadError)>,
) {
    let account = match &built {
        Ok(replica) => replica.account(),
        Err((account, _)) => *account,
    };
    let entry = mail.accounts.get(&account);
    let is_awaited = entry.is_some_and(
        |entry| matches!(entry.phase, Phase::Loading { building: Some(of), .. } if of == ticket),
    );
    match built {
        Ok(replica) if is_awaited => {
            if let Err(replica) = joining::join_loaded(mail, account, Some(replica)) {
                loading::loaded(mail, now, account, replica);
            }
        }
        Ok(replica) => mail.out.push(Output::Discard(replica)),
        Err((_, error)) if is_awaited => mail.broken(account, &error.to_string()),
        Err(_) => {}
    }
}

/// An account of which nothing was stored is open now, or is gone: what waited for it is taken up.
pub(super) fn woken(mail: &mut Mail, account: AccountId) {
    let Some(entry) = mail.accounts.get_mut(&account) else {
        return;
    };
    if !matches!(entry.phase, Phase::Running(_)) {
        return mail.drop_account(account, Failure::NoSuchAccount);
    }
    mail.agenda.handle_again(std::mem::take(&mut entry.waiting));
}
