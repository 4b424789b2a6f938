//! What the store has answered: rows and pages that were read, snapshots, commits that are durable or were refused. Each answer goes to the machine that
//! asked; what follows from it for others is done here.

use bytes::Bytes;
use whimbrel_crdt::mutants::broken;
use whimbrel_mailbox::AccountId;
use whimbrel_storage::StoreError;

use super::{
    Load, Partition, PartitionOwner, Phase, blob_arrivals, building, confirming, deferred_loads,
    joining, keys, leaving, releasing, replication,
    snapshot::{self, PageOfState, Paging},
    stalled_accounts,
    store_reads::{self, Failed, Fix},
    syncing,
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
        match self.mail.reads.loaded(ticket, done) {
            None => {}
            Some(Load::Position(partition)) => {
                if let Some(Partition::Released(_)) = self.mail.partitions.get(&partition) {
                    return releasing::rows_came(&mut self.mail, partition, page, done);
                }
                if let Some(Partition::Loading(opening)) = self.mail.partitions.get_mut(&partition)
                {
                    opening.rows.extend(page);
                    opening.read = done;
                }
                self.opened(now, partition);
            }
            // Answered otherwise.
            Some(Load::Logs(_)) => {}
            Some(Load::Rows(account)) => {
                building::rows_loaded(&mut self.mail, now, account, page, done);
                self.again(now);
            }
            Some(Load::Held(account)) => {
                stalled_accounts::held_page(&mut self.mail, now, account, page, done);
                self.again(now);
            }
            Some(Load::Purge(account)) => {
                self.collection
                    .purge_page(&mut self.mail, account, page, done)
            }
            Some(Load::Twin) => {
                self.mail.reads.end(ticket);
                self.calls.sent.loaded(&mut self.mail, now, ticket, &page);
            }
        }
    }

    pub(super) fn load_failed(&mut self, now: Now, ticket: Ticket, cause: &StoreError) {
        let load = match self.mail.reads.failed(ticket) {
            None => return,
            Some(Failed::Load(load)) => load,
            Some(Failed::Fix(fix)) => return self.snapshot_fixed(now, Some(fix), None),
            Some(Failed::Page(page)) => {
                self.page_failed(now, page, cause);
                let text = format!("reading from the store failed: {cause}");
                return self.mail.out.warn(text);
            }
            Some(Failed::Log(partition)) => {
                self.mail
                    .out
                    .warn(format!("reading a log from the store failed: {cause}"));
                return self.mail.wait_with_work(now, partition);
            }
        };
        let accounts: Vec<AccountId> = match load {
            // Nothing else of its partition waits for that.
            Load::Rows(account) | Load::Held(account) if !cause.is_temporary() => {
                return self.mail.broken(account, &cause.to_string());
            }
            Load::Rows(account) | Load::Held(account) | Load::Purge(account) => {
                self.mail.wait_with_work(now, keys::partition_of(account));
                vec![account]
            }
            // Both copies stay.
            Load::Twin => {
                self.calls.sent.load_failed(ticket);
                Vec::new()
            }
            Load::Position(partition) | Load::Logs(partition)
                if matches!(
                    self.mail.partitions.get(&partition),
                    Some(Partition::Released(_))
                ) =>
            {
                releasing::failed(&mut self.mail, now, partition);
                Vec::new()
            }
            Load::Position(partition) | Load::Logs(partition) => {
                self.mail.forget(partition);
                // Not at once again: new streams take their time, and open it.
                let unlink = |(peer, _)| Output::Peer(PeerOutput::Unlink(peer));
                self.mail.out.extend(self.mail.links.iter().map(unlink));
                self.mail.accounts.find(partition, |_| true)
            }
        };
        self.mail.out.push(Output::Log(Note::Warning(format!(
            "reading from the store failed: {cause}"
        ))));
        for account in accounts {
            match self.mail.accounts.get(&account).map(|entry| &entry.phase) {
                Some(Phase::Purging) => self.mail.purge_later(now, account),
                _ => self.mail.unload(account),
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
        snapshot::fixed(&mut self.mail, now, fix, snapshot);
        if let Some(partition) = partition {
            replication::ship(&mut self.mail, now, partition);
        }
    }

    pub(super) fn paged(&mut self, now: Now, ticket: Ticket, page: Page) {
        let Some(asked) = self.mail.reads.page_came(ticket) else {
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
                snapshot::given(&mut self.mail, now, asked, page);
            }
            Paging::Leave => releasing::page_came(&mut self.mail, now, partition, page),
            Paging::Sweep { state } => snapshot::sweep_page(&mut self.mail, partition, state, page),
            Paging::Join(of) => {
                joining::join_page(&mut self.mail, now, partition, ticket, of, page);
                self.again(now);
            }
        }
        replication::ship(&mut self.mail, now, partition);
    }

    /// Reading has failed: it is tried again after a while, or the peer asks again.
    fn page_failed(&mut self, now: Now, page: store_reads::Page, cause: &StoreError) {
        let partition = page.partition;
        match page.of {
            Paging::Give { asked, .. } => {
                if let Some(own) = self.mail.partitions.running(partition) {
                    own.shipping.rows_lost(now, asked);
                }
                return replication::ship(&mut self.mail, now, partition);
            }
            Paging::Leave => return releasing::failed(&mut self.mail, now, partition),
            Paging::Sweep { .. } => {
                if let Some(own) = self.mail.partitions.running(partition) {
                    own.states.sweep_again();
                }
            }
            Paging::Join(of) => joining::join_page_failed(&mut self.mail, partition, &of, cause),
        }
        self.mail.wait_with_work(now, partition);
    }

    pub(super) fn committed(&mut self, now: Now, ticket: Ticket, done: bool) {
        let Some(partition) = self.mail.out.committed(ticket) else {
            return;
        };
        releasing::committed(&mut self.mail, now, partition, ticket, done);
        let Some(Partition::Running(own)) = self.mail.partitions.get_mut(&partition) else {
            return;
        };
        let mut told = false;
        if done {
            own.gate.committed(ticket, &mut self.mail.out);
            if own.gate.is_idle() {
                own.claiming.clear();
            }
            if !own.failed {
                told = own.confirming.durable(ticket);
                own.shipping.committed(now, ticket);
                own.counted(self.mail.config.origin, ticket);
                own.report_durable(ticket);
            }
        } else {
            own.failed = true;
            own.first_failed.get_or_insert(ticket);
            own.late.append(&mut own.claiming);
            own.gate.failed(ticket, &mut self.mail.out);
        }
        let reset = own.failed && own.gate.is_idle();
        if done {
            blob_arrivals::held(&mut self.mail, now, partition, ticket);
        }
        self.calls.sent.committed(&mut self.mail, ticket, done);
        self.collection.purge_after(&mut self.mail, ticket, done);
        if !done && !broken("unannounced-is-known") {
            self.mail.sessions.unannounced(partition, ticket);
        }
        if done && !reset {
            snapshot::swept_to(&mut self.mail, partition, ticket);
            for (account, copied) in joining::join_committed(&mut self.mail, partition, ticket) {
                joining::copy_on(&mut self.mail, now, account, copied);
                self.again(now);
            }
            joining::join_on(&mut self.mail, partition);
            if syncing::grown_durable(&mut self.mail, now, partition, ticket) {
                self.take_up(now, partition);
            }
        }
        if told {
            confirming::confirm_on(&mut self.mail, partition);
        }
        if done && !reset {
            self.mail.acknowledge(partition);
            deferred_loads::resume_on(&mut self.mail, partition);
        }
        if reset {
            self.mail.reset(now, partition);
        } else {
            replication::ship(&mut self.mail, now, partition);
            leaving::leave_on(&mut self.mail, now, partition);
        }
    }
}
