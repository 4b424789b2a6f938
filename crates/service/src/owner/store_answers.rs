//! What the store has answered: rows and pages that were read, snapshots, commits that are durable or were refused. Each answer goes to the machine that
//! asked; what follows from it for others is done here.

use bytes::Bytes;
use whimbrel_crdt::mutants::broken;
use whimbrel_mailbox::AccountId;
use whimbrel_storage::StoreError;

use super::{
    Load, Partition, PartitionOwner, Phase, keys,
    snapshot::{PageOfState, Paging},
    store_reads::{self, Failed, Fix},
};
use crate::{
    machine::{Note, Now, Output, Ticket},
    peers::{Page, PeerOutput, Snapshot},
};

impl PartitionOwner {
    pub(super) fn loaded_page(
        &mut self,
        now: Now,
        ticket: Ticket,
        page: Vec<(Vec<u8>, Bytes)>,
        done: bool,
    ) {
        match self.reads.loaded(ticket, done) {
            None => {}
            Some(Load::Position(partition)) => {
                if let Some(Partition::Released(_)) = self.partitions.get(&partition) {
                    return self.left_rows(partition, page, done);
                }
                if let Some(Partition::Loading(opening)) = self.partitions.get_mut(&partition) {
                    opening.rows.extend(page);
                    opening.read = done;
                }
                self.opened(now, partition);
            }
            // Answered otherwise.
            Some(Load::Logs(_)) => {}
            Some(Load::Rows(account)) => {
                self.rows_loaded(now, account, page, done);
                self.again(now);
            }
            Some(Load::Held(account)) => {
                self.held_page(now, account, page, done);
                self.again(now);
            }
            Some(Load::Purge(account)) => self.purge_page(account, page, done),
            Some(Load::Twin) => {
                self.reads.end(ticket);
                self.twin_loaded(now, ticket, &page);
            }
        }
    }

    pub(super) fn load_failed(&mut self, now: Now, ticket: Ticket, cause: &StoreError) {
        let load = match self.reads.failed(ticket) {
            None => return,
            Some(Failed::Load(load)) => load,
            Some(Failed::Fix(fix)) => return self.snapshot_fixed(now, Some(fix), None),
            Some(Failed::Page(page)) => {
                self.page_failed(now, page, cause);
                let text = format!("reading from the store failed: {cause}");
                return self.out.warn(text);
            }
            Some(Failed::Log(partition)) => {
                self.out
                    .warn(format!("reading a log from the store failed: {cause}"));
                return self.wait_with_work(now, partition);
            }
        };
        let accounts: Vec<AccountId> = match load {
            // Nothing else of its partition waits for that.
            Load::Rows(account) | Load::Held(account) if !cause.is_temporary() => {
                return self.broken(account, &cause.to_string());
            }
            Load::Rows(account) | Load::Held(account) | Load::Purge(account) => {
                self.wait_with_work(now, keys::partition_of(account));
                vec![account]
            }
            // Both copies stay.
            Load::Twin => {
                self.searches.cannot_look(ticket);
                Vec::new()
            }
            Load::Position(partition) | Load::Logs(partition)
                if matches!(
                    self.partitions.get(&partition),
                    Some(Partition::Released(_))
                ) =>
            {
                self.left_failed(now, partition);
                Vec::new()
            }
            Load::Position(partition) | Load::Logs(partition) => {
                self.forget(partition);
                // Not at once again: new streams take their time, and open it.
                let unlink = |(peer, _)| Output::Peer(PeerOutput::Unlink(peer));
                self.out.extend(self.links.iter().map(unlink));
                self.accounts.find(partition, |_| true)
            }
        };
        self.out.push(Output::Log(Note::Warning(format!(
            "reading from the store failed: {cause}"
        ))));
        for account in accounts {
            match self.accounts.get(&account).map(|entry| &entry.phase) {
                Some(Phase::Purging) => self.purge_later(now, account),
                _ => self.unload(account),
            }
        }
    }

    /// The store has answered about a snapshot.
    pub(super) fn snapshot_fixed(
        &mut self,
        now: Now,
        fix: Option<Fix>,
        snapshot: Option<Snapshot>,
    ) {
        let partition = fix.as_ref().map(|fix| fix.partition);
        self.fixed(now, fix, snapshot);
        if let Some(partition) = partition {
            self.ship(now, partition);
        }
    }

    pub(super) fn paged(&mut self, now: Now, ticket: Ticket, page: Page) {
        let Some(asked) = self.reads.page_came(ticket) else {
            return;
        };
        let partition = asked.partition;
        match asked.of {
            Paging::Give { asked, after } => {
                let asked = PageOfState {
                    partition,
                    asked,
                    after,
                };
                self.given(now, asked, page);
            }
            Paging::Leave => self.left_page(now, partition, page),
            Paging::Sweep { state } => self.sweep_page(partition, state, page),
            Paging::Join(of) => {
                self.join_page(now, partition, ticket, of, page);
                self.again(now);
            }
        }
        self.ship(now, partition);
    }

    /// Reading has failed: it is tried again after a while, or the peer asks again.
    fn page_failed(&mut self, now: Now, page: store_reads::Page, cause: &StoreError) {
        let partition = page.partition;
        match page.of {
            Paging::Give { asked, .. } => {
                if let Some(own) = self.partitions.running(partition) {
                    own.shipping.rows_lost(now, asked);
                }
                return self.ship(now, partition);
            }
            Paging::Leave => return self.left_failed(now, partition),
            Paging::Sweep { .. } => {
                if let Some(own) = self.partitions.running(partition) {
                    own.states.sweep_again();
                }
            }
            Paging::Join(of) => self.join_page_failed(partition, &of, cause),
        }
        self.wait_with_work(now, partition);
    }

    pub(super) fn committed(&mut self, now: Now, ticket: Ticket, done: bool) {
        let Some(partition) = self.out.committed(ticket) else {
            return;
        };
        self.left_committed(now, partition, ticket, done);
        let Some(Partition::Running(own)) = self.partitions.get_mut(&partition) else {
            return;
        };
        let mut told = false;
        if done {
            own.gate.committed(ticket, &mut self.out);
            if own.gate.is_idle() {
                own.claiming.clear();
            }
            if !own.failed {
                told = own.confirming.durable(ticket);
                own.shipping.committed(now, ticket);
                own.counted(self.config.origin, ticket);
                own.report_durable(ticket);
            }
        } else {
            own.failed = true;
            own.first_failed.get_or_insert(ticket);
            own.late.append(&mut own.claiming);
            own.gate.failed(ticket, &mut self.out);
        }
        let reset = own.failed && own.gate.is_idle();
        if done {
            self.held(now, partition, ticket);
        }
        self.search_twins(ticket, done);
        self.purge_after(ticket, done);
        if !done && !broken("unannounced-is-known") {
            self.sessions.unannounced(partition, ticket);
        }
        if done && !reset {
            self.swept_to(partition, ticket);
            for (account, copied) in self.join_committed(partition, ticket) {
                self.copy_on(now, account, copied);
                self.again(now);
            }
            self.join_on(partition);
            if self.grown_durable(now, partition, ticket) {
                self.take_up(now, partition);
            }
        }
        if told {
            self.confirm_on(partition);
        }
        if done && !reset {
            self.acknowledge(partition);
            self.resume_on(partition);
        }
        if reset {
            self.reset(now, partition);
        } else {
            self.ship(now, partition);
            self.leave_on(now, partition);
        }
    }
}
