//! The owner of some partitions: the mail of the accounts in them.
//!
//! One owner takes one input at a time and holds the loaded accounts of its partitions. A call finds its account in memory or has it
//! loaded; a write is planned by `mailbox`, sealed into a batch, applied by the same `apply` that foreign batches take, and handed out as one
//! commit with the rows it changed; the answer waits in the partition's gate.
//!
//! Invariants:
//! - Commits of a partition are handed out in the order of their numbers, those with batches of other nodes among them as they come.
//! - An answer leaves at the earliest when the newest commit of its account that it saw is durable; UIDs and UIDNEXTs are announced in that commit. It may
//!   wait longer: for readers on other nodes ([`held_answers`]), and for other nodes to confirm ([`confirming`]).
//! - When a commit fails (full disk) all accounts of the partition are dropped and read again: memory is never ahead of the store.
//! - Accounts that no session watches are evicted, the longest unused first, when the budget is passed.
//!
//! **Who owns what, and who calls whom.** Modules call downward only, as a test below says; what one has to say to a higher one it returns, or notes in
//! the agenda. From the bottom:
//!
//! 1. *Machines*, each with private fields and without a look at the others. Of the owner: [`outbox`] (outputs, tickets, commits under way),
//!    [`store_reads`] (what the store was asked), [`agenda`] (what is to be looked at again, and when), [`accounts`], [`sessions`], [`quota`] and
//!    [`memory`], [`bodies`], [`links`], [`deliveries`] (entries of the queue). Of each partition ([`partition`]): [`missing_blobs`], [`parting`] (who
//!    leaves it), [`released`] (it goes), [`states`] (snapshots that come and are given), `Confirming` in [`confirming`], and those of other modules
//!    and crates: log, gate, `peers::Shipping`, readers.
//! 2. [`mail`] owns all of these: the accounts and partitions in memory. What everybody does with them: [`writing`], [`split_commits`], [`showing`],
//!    [`requests`] (ask for what is not in memory, drop what is).
//! 3. What is done with `mail`:
//!    - *Accounts come into memory*: [`building`], [`joining`] (with a snapshot), [`stalled_accounts`], [`loading`]; [`deferred_loads`],
//!      [`blob_arrivals`].
//!    - *Calls*: [`calls`] owns the search for second copies ([`sent_copies`]); [`looking`], [`imports`], [`failover`] (clients that come from another
//!      node), [`confirming`] and [`held_answers`]; [`delivering`] for the queue.
//!    - *Replication*: [`replication`] (what a partition's machine wants), [`remote_batches`], [`reading`] (who looks at accounts elsewhere);
//!      [`replication_budget`] owns the windows.
//!    - *Snapshots*: [`snapshot`] gives and takes; [`joining`].
//!    - *Partitions that are gained or released*: [`opening`], [`syncing`], [`placement`], [`leaving`], [`releasing`]; [`waiting`] after a refused
//!      commit.
//!    - *Removal*: [`collect`] owns removals of accounts that wait for a commit.
//! 4. The owner gives each input to those whose it is, and does for several of them what follows: this file, [`store_answers`], [`peer_inputs`]. It alone
//!    handles inputs that have waited.
//!
//! Below all: [`config`], [`keys`], [`rows`], [`answers`].
//!
//! Reading order: this file, [`mail`], [`partition`], [`accounts`], [`calls`], [`writing`], [`replication`], [`remote_batches`]; then what you look for.

mod accounts;
mod agenda;
mod answers;
mod blob_arrivals;
mod bodies;
mod building;
mod calls;
mod collect;
mod config;
mod confirming;
mod deferred_loads;
mod deliveries;
mod delivering;
mod failover;
mod held_answers;
mod imports;
mod joining;
pub mod keys;
mod leaving;
mod links;
mod loading;
mod looking;
mod mail;
mod memory;
mod missing_blobs;
mod opening;
mod outbox;
mod parting;
mod partition;
mod peer_inputs;
mod pending_merge;
mod placement;
mod quota;
mod reading;
mod released;
mod releasing;
mod remote_batches;
mod replication;
mod replication_budget;
mod requests;
mod rows;
mod sent_copies;
mod sessions;
mod showing;
mod snapshot;
mod split_commits;
mod stalled_accounts;
mod states;
mod store_answers;
mod store_reads;
mod syncing;
mod waiting;
mod writing;

pub use memory::LoadedAccounts;

use std::collections::BTreeSet;

pub use whimbrel_crdt::Incarnation;
use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::AccountId;
pub use whimbrel_replication::waits;

use self::{
    accounts::{Account, Phase},
    calls::Calls,
    collect::Collection,
    mail::Mail,
    partition::{Own, Partition},
    replication_budget::Windows,
    store_reads::Load,
};
pub use self::{config::Config, imports::import_upload, rows::blob_name};
pub(crate) use self::{
    rows::{blob_of_batch, holder},
    stalled_accounts::held_blobs,
};
use crate::{
    api::Call,
    figures::Figures,
    machine::{Input, Machine, Now, Output},
    peers::{LeftReport, PartitionReport},
};

/// The owner of some partitions.
pub struct PartitionOwner {
    /// What is in memory, and what is asked and told.
    mail: Mail,
    calls: Calls,
    /// What goes.
    collection: Collection,
    /// What may wait to be sent to other nodes, and what of theirs for the disk.
    windows: Windows,
}

impl PartitionOwner {
    /// An owner that has loaded nothing yet. It owns whatever is routed to it.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::beside(config, LoadedAccounts::default())
    }

    /// One of several owners of a node, which share the memory for accounts.
    #[must_use]
    pub fn beside(config: Config, loaded: LoadedAccounts) -> Self {
        PartitionOwner {
            windows: Windows::new(config.windows),
            mail: Mail::new(config, loaded),
            calls: Calls::default(),
            collection: Collection::default(),
        }
    }

    // --- What has waited -----------------------------------------------------------------------------------------------

    /// Handles what need not wait any more.
    fn again(&mut self, now: Now) {
        for input in self.mail.agenda.take_again() {
            self.handle_again(now, input);
        }
    }

    /// What has waited. A delivery may have waited for so long that another node has made it, and its entry let go of the body: it is not made
    /// without. If it is to be made all the same the queue asks again.
    fn handle_again(&mut self, now: Now, input: Input) {
        match input {
            Input::Deliver { ticket, entry, .. }
                if !self.mail.deliveries.is_open(entry.id.tag()) =>
            {
                self.mail.out.push(Output::NotDelivered(ticket));
            }
            input => self.handle(now, input),
        }
    }

    /// Does with what waits for accounts of a partition what can be done with it now.
    fn take_up(&mut self, now: Now, partition: PartitionId) {
        let waits = |entry: &Account| !entry.waiting.is_empty();
        for account in self.mail.accounts.find(partition, waits) {
            let waiting = self
                .mail
                .accounts
                .get_mut(&account)
                .map(|of| std::mem::take(&mut of.waiting));
            for input in waiting.into_iter().flatten() {
                self.handle_again(now, input);
            }
        }
    }

    /// How a partition stands, if it is open, or being opened.
    #[must_use]
    pub fn report_on(&self, partition: PartitionId) -> Option<PartitionReport> {
        let of = self.mail.partitions.get(&partition)?;
        Some(self.report_of(partition, of))
    }

    fn report_of(&self, partition: PartitionId, state: &Partition) -> PartitionReport {
        let own = match state {
            Partition::Running(own) => Some(own),
            _ => None,
        };
        let count = |of: fn(&Own) -> usize| own.map_or(0, |own| of(own) as u64);
        PartitionReport {
            partition,
            open: own
                .filter(|own| !own.failed)
                .map(|own| own.shipping.report()),
            blobs_missing: count(|own| own.missing_blobs.len()),
            accounts_stalled: count(|own| own.stalled.len()),
            uids_reassigned: self.mail.claims.get(&partition).copied().unwrap_or(0),
            syncing: own.map_or(self.mail.config.syncing, |own| own.is_syncing()),
            complete_at: own
                .map_or_else(BTreeSet::new, |own| placement::complete_at(&self.mail, own)),
            left: match state {
                Partition::Released(left) => Some(LeftReport {
                    end: left.end(),
                    is_gone: left.is_gone(),
                }),
                _ => None,
            },
        }
    }
}

impl Machine for PartitionOwner {
    fn handle(&mut self, now: Now, input: Input) {
        self.mail.stamps.look(now);
        match input {
            Input::Call(request, call @ Call::Mailbox { account, .. }) => {
                self.calls
                    .mailbox_call(&mut self.mail, now, request, account, call)
            }
            Input::Call(..)
            | Input::Admin(..)
            | Input::AskBirth(_)
            | Input::UidValidity(..)
            | Input::Full(..)
            | Input::Delivered(_)
            | Input::NotDelivered(_)
            | Input::NotHere(_)
            | Input::Closed(_)
            | Input::Leaving(_)
            | Input::Verified(..) => {
                self.mail.out.push(Output::Fatal(
                    "an input that is not a partition owner's was routed to one".into(),
                ));
            }
            Input::Loaded { ticket, rows, done } => self.loaded_page(now, ticket, rows, done),
            Input::Built(ticket, built) => {
                building::built(&mut self.mail, now, ticket, built);
                self.again(now);
            }
            Input::LoadFailed(ticket, cause) => self.load_failed(now, ticket, &cause),
            Input::Committed(ticket) => self.committed(now, ticket, true),
            Input::CommitFailed(ticket) => self.committed(now, ticket, false),
            Input::AccountOrigin(account, birth) => {
                if !joining::born_joining(&mut self.mail, now, account, birth) {
                    loading::born(&mut self.mail, now, account, birth);
                }
                self.again(now);
            }
            Input::LeastUidValidity(account, least) => {
                calls::raise(&mut self.mail, now, account, least)
            }
            Input::Quota(account, quota) => self.mail.set_quota(account, quota),
            Input::Deliver {
                ticket,
                entry,
                index,
                others,
            } => {
                self.mail.deliveries.came(entry.id.tag());
                self.calls
                    .deliver(&mut self.mail, now, ticket, entry, index, others);
            }
            Input::Closing(entry) => {
                self.mail.deliveries.close(entry);
                self.mail.out.push(Output::Closed(entry));
            }
            Input::Swept { began, least } => self.mail.deliveries.swept(began, least),
            Input::Hangup(session) => self.mail.hangup(session),
            Input::Purge(account) => self.collection.purge(&mut self.mail, account),
            Input::Peer(input) => self.peer(now, input),
            Input::Time => {
                collect::collect_due(&mut self.mail, now);
                self.peers_due(now);
                self.windows.divide_windows(&mut self.mail, now);
                reading::waits_due(&mut self.mail, now);
            }
        }
        self.work_on(now);
        joining::join_all(&mut self.mail);
        reading::tell_of_readers(&mut self.mail, now);
        held_answers::answer_all_held(&mut self.mail, now);
        self.mail.evict();
    }

    fn poll(&mut self) -> Option<Output> {
        self.mail.out.poll()
    }

    fn figures(&self, _now: Now) -> Figures {
        let running =
            |(_, entry): &(&AccountId, &Account)| matches!(entry.phase, Phase::Running(_));
        let open = self.mail.partitions.iter().filter_map(|(_, of)| match of {
            Partition::Running(own) => Some(own),
            Partition::Loading(_) | Partition::Released(_) => None,
        });
        let logs = open.clone().map(|own| own.log.next() - 1);
        let hidden_ops = |own: &Own| {
            let members = self.mail.config.peers.keys().copied();
            let members = members.filter(|id| self.mail.config.has(*id, own.log.partition()));
            own.announced.hidden_ops(own.log.applied(), members)
        };
        Figures {
            accounts_loaded: self.mail.accounts.iter().filter(running).count() as u64,
            accounts_bytes: self.mail.limits.memory.own() as u64,
            accounts_stalled: open.clone().map(|own| own.stalled.len() as u64).sum(),
            watchers: self.mail.sessions.len() as u64,
            log_partitions: logs.clone().count() as u64,
            log_operations: logs.sum(),
            hidden_ops: open.clone().map(|own| hidden_ops(own)).sum(),
            answers_confirming: open.clone().map(|own| own.confirming.waiting()).sum(),
            snapshots_waiting: open.filter(|own| own.has_waiting_state()).count() as u64,
            partitions_syncing: syncing::partitions_syncing(&self.mail),
            ..self.mail.counted.clone()
        }
    }

    fn reports(&self) -> Vec<PartitionReport> {
        let all = self.mail.partitions.iter();
        all.map(|(partition, of)| self.report_of(*partition, of))
            .collect()
    }

    fn deadline(&self) -> Option<u64> {
        let all = [self.mail.agenda.deadline(), self.windows.deadline()];
        all.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    macro_rules! modules {
        ($($name:ident),* $(,)?) => {
            [$((stringify!($name), include_str!(concat!(stringify!($name), ".rs")))),*]
        };
    }

    /// All modules, the lowest first, and their texts.
    #[rustfmt::skip]
    const MODULES: &[(&str, &str)] = &modules![
        // Helpers and machines.
        keys, memory, outbox, agenda, links, bodies, deliveries, pending_merge, answers, rows, config, sessions, store_reads,
        missing_blobs, parting, states, accounts, partition,
        // Accounts and partitions in memory.
        mail, quota, writing, split_commits, showing, requests,
        // What is done with them.
        blob_arrivals, deferred_loads, syncing, loading, stalled_accounts, confirming, held_answers, failover, snapshot, joining, building,
        released, releasing, replication, replication_budget, remote_batches, reading, leaving, placement, waiting, opening, collect,
        looking, imports, sent_copies, calls, delivering,
        // Routes.
        store_answers, peer_inputs,
    ];

    /// The code of a module without comments, tests and what it takes from elsewhere in the crate.
    fn code(text: &str) -> String {
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = text.lines().map(str::trim_start);
        let lines: Vec<&str> = lines.filter(|line| !line.starts_with("//")).collect();
        let code = lines.join(" ");
        let statements = code.split(';').map(str::trim_start);
        let statements = statements.filter(|of| !of.starts_with("use crate::"));
        statements.collect::<Vec<_>>().join(";")
    }

    /// Whether code names a function of a module. Types may be of higher ones.
    fn calls(code: &str, module: &str) -> bool {
        let path = format!("{module}::");
        code.match_indices(&path).any(|(at, _)| {
            let is_whole = !code[..at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c));
            let rest = &code[at + path.len()..];
            let mut names = match rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
                Some((names, _)) => names.split(','),
                None => rest.split(' '),
            };
            let is_function =
                |name: &str| name != "self" && name.starts_with(|c: char| c.is_lowercase());
            is_whole
                && match rest.starts_with('{') {
                    true => names.any(|name| is_function(name.trim())),
                    false => names.next().is_some_and(is_function),
                }
        })
    }

    #[test]
    fn modules_call_downward_only() {
        let declared = include_str!("mod.rs").lines().filter_map(|line| {
            let line = line.strip_prefix("pub ").unwrap_or(line);
            line.strip_prefix("mod ")?.strip_suffix(';')
        });
        let mut declared: Vec<&str> = declared.collect();
        let mut named: Vec<&str> = MODULES.iter().map(|(name, _)| *name).collect();
        declared.sort_unstable();
        named.sort_unstable();
        assert_eq!(declared, named);
        for (at, (lower, text)) in MODULES.iter().enumerate() {
            let code = code(text);
            for (higher, _) in &MODULES[at + 1..] {
                assert!(!calls(&code, higher), "{lower} calls {higher}");
            }
        }
    }
}
