//! What was hidden in an account is shown: rows are written, sessions are told, and what is late by it is claimed again.

use whimbrel_mailbox::{AccountId, Effects, Peers, Replica};
use whimbrel_storage::{Mutation, Room};

use super::{
    Mail, Partition, Phase,
    rows::{push_row, take_visible},
};
use crate::machine::Now;

impl Mail {
    /// While it is so nothing waits for other nodes (docs/design.md#rule-5): what is claimed is shown at once.
    pub(super) fn nobody_waits(&mut self, account: AccountId, nobody: bool) {
        if let Some(entry) = self.accounts.get(&account)
            && let Some(super::Partition::Running(own)) = self.partitions.get_mut(&entry.partition)
        {
            own.nobody_waits = nobody;
        }
    }

    /// Shows what need wait no longer.
    pub(super) fn release(&mut self, now: Now, account: AccountId) {
        let Some(entry) = self.accounts.get(&account) else {
            return;
        };
        let Some(Partition::Running(own)) = self.partitions.get(&entry.partition) else {
            return;
        };
        if entry.wait_until.is_none() || own.failed {
            return;
        }
        // What is shown was accepted before.
        self.show_anew(now, account, Room::Vital, Replica::release);
    }

    /// A step that adds nothing and shows what was not shown: its rows are written, and sessions are told.
    pub(super) fn show_anew(
        &mut self,
        now: Now,
        account: AccountId,
        room: Room,
        step: impl FnOnce(&mut Replica, u64, &Peers) -> Effects,
    ) {
        self.show(now, account, (room, None), step);
    }

    /// The same of what was accepted before, and writes a row of the partition before what is shown, in the same commit. The account must be running.
    pub(super) fn show_with(
        &mut self,
        now: Now,
        account: AccountId,
        row: Option<Mutation>,
        step: impl FnOnce(&mut Replica, u64, &Peers) -> Effects,
    ) {
        self.show(now, account, (Room::Vital, row), step);
    }

    pub(super) fn show(
        &mut self,
        now: Now,
        account: AccountId,
        (room, row): (Room, Option<Mutation>),
        step: impl FnOnce(&mut Replica, u64, &Peers) -> Effects,
    ) {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        let (Phase::Running(replica), Some(Partition::Running(own))) =
            (&mut entry.phase, self.partitions.get(&entry.partition))
        else {
            return;
        };
        let peers = own.peers(now, account, &self.config.peers);
        let effects = step(replica, own.log.hlc().last(), &peers);
        entry.wait_until = effects.wait_until;
        self.agenda.show_at(effects.wait_until, account);
        let shown = take_visible(replica, account);
        let shown = row.into_iter().chain(shown);
        let mut rows: Vec<Vec<Mutation>> = shown.map(|row| vec![row]).collect();
        let mut last = Vec::new();
        for (row, value) in replica.take_dirty_state() {
            push_row(&mut last, account, &row, value);
        }
        rows.push(last);
        let measured = self.limits.measure(&mut entry.measured, replica);
        self.out.extend(measured);
        self.sessions
            .changed(&mut self.out, account, &mut entry.watchers, &effects, None);
        self.write_rows(account, room, rows);
        if effects.late {
            self.claim_late(now, account);
        }
    }
}
