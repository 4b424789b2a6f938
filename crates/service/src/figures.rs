//! What a machine can tell of itself to whoever watches the node: numbers only, of nobody.

/// Figures of one machine. Those that a kind of machine does not have are 0; the sums over all machines are those of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Accounts whose state is in memory.
    pub accounts_loaded: u64,
    /// Bytes of it.
    pub accounts_bytes: u64,
    /// Account states read from the store since the start.
    pub accounts_loads: u64,
    /// Account states dropped since the start to keep the budget.
    pub accounts_evicted: u64,
    /// Accounts that cannot go on: not served, while what other nodes did is held for them.
    pub accounts_stalled: u64,
    /// Sessions that watch a mailbox.
    pub watchers: u64,
    /// Partitions whose log was opened since the start.
    pub log_partitions: u64,
    /// Partitions, the directory among them, in which this node is new and has not yet what another one had: nobody is served from them.
    pub partitions_syncing: u64,
    /// Operations in these logs, ever: the sum of their last numbers.
    pub log_operations: u64,
    /// Claims made again since the start (docs/design.md#rule-4, docs/design.md#rule-6).
    pub uids_reassigned: u64,
    /// Bodies that sessions found missing since the start, although nothing said that they are.
    pub blobs_missed: u64,
    /// Takeovers that changed something: clients came from other nodes (docs/design.md#rule-6).
    pub takeovers: u64,
    /// Claims among `uids_reassigned` that they made.
    pub takeover_uids: u64,
    /// Takeovers for which an account had no room left.
    pub takeovers_refused: u64,
    /// Answers that wait until other nodes have what was written (`f = n`).
    pub answers_confirming: u64,
    /// Answers that were given when enough other nodes had it.
    pub answers_confirmed: u64,
    /// Writes that were refused, since too few other nodes could be reached.
    pub answers_too_few: u64,
    /// Answers that said that too few other nodes had it in time.
    pub answers_unconfirmed: u64,
    /// Operations applied here of which some member is not known to have shown all that they brought: a client that comes from it may cost claims of them.
    pub hidden_ops: u64,
    /// States of partitions that were given to other nodes since the start, or begun to be.
    pub snapshots_sent: u64,
    /// States of partitions that were taken from other nodes since the start.
    pub snapshots_received: u64,
    /// States of partitions that are here and wait until no account of theirs is stalled.
    pub snapshots_waiting: u64,
    /// Accounts that became the join of what was here and what came with a state, since the start.
    pub accounts_joined: u64,
    /// Entries in the queue.
    pub queue_entries: u64,
    /// Bytes of their envelopes and summaries.
    pub queue_bytes: u64,
    /// Seconds since the oldest of them was accepted.
    pub queue_oldest_seconds: u64,
    /// Entries that are done, while some node has not said that its copy is gone.
    pub queue_tombstones: u64,
    /// Seconds for which nothing was forgotten of deliveries, since some member has not answered.
    pub queue_forgetting_waits_seconds: u64,
    /// Entries of nodes that were away, which this one has taken over since the start.
    pub queue_adopted: u64,
    /// Entries that were given to other nodes since the start, as some that had them were away.
    pub queue_repaired: u64,
    /// Entries that were given to other nodes before they were accepted since the start, as chosen ones were late.
    pub queue_replaced: u64,
    /// Entries that another node has delivered, too, since the start.
    pub queue_both_acted: u64,
    /// Deliveries that other nodes made for this one, since the start.
    pub deliveries_forwarded: u64,
    /// Accounts in the directory.
    pub directory_accounts: u64,
    /// Domains in the directory.
    pub directory_domains: u64,
    /// Logins remembered.
    pub logins_cached: u64,
}

impl Figures {
    /// Those of both machines.
    #[must_use]
    pub fn plus(self, other: Figures) -> Figures {
        Figures {
            accounts_loaded: self.accounts_loaded + other.accounts_loaded,
            accounts_bytes: self.accounts_bytes + other.accounts_bytes,
            accounts_loads: self.accounts_loads + other.accounts_loads,
            accounts_evicted: self.accounts_evicted + other.accounts_evicted,
            accounts_stalled: self.accounts_stalled + other.accounts_stalled,
            watchers: self.watchers + other.watchers,
            log_partitions: self.log_partitions + other.log_partitions,
            partitions_syncing: self.partitions_syncing + other.partitions_syncing,
            log_operations: self.log_operations + other.log_operations,
            uids_reassigned: self.uids_reassigned + other.uids_reassigned,
            blobs_missed: self.blobs_missed + other.blobs_missed,
            takeovers: self.takeovers + other.takeovers,
            takeover_uids: self.takeover_uids + other.takeover_uids,
            takeovers_refused: self.takeovers_refused + other.takeovers_refused,
            answers_confirming: self.answers_confirming + other.answers_confirming,
            answers_confirmed: self.answers_confirmed + other.answers_confirmed,
            answers_too_few: self.answers_too_few + other.answers_too_few,
            answers_unconfirmed: self.answers_unconfirmed + other.answers_unconfirmed,
            hidden_ops: self.hidden_ops + other.hidden_ops,
            snapshots_sent: self.snapshots_sent + other.snapshots_sent,
            snapshots_received: self.snapshots_received + other.snapshots_received,
            snapshots_waiting: self.snapshots_waiting + other.snapshots_waiting,
            accounts_joined: self.accounts_joined + other.accounts_joined,
            queue_entries: self.queue_entries + other.queue_entries,
            queue_bytes: self.queue_bytes + other.queue_bytes,
            queue_oldest_seconds: self.queue_oldest_seconds + other.queue_oldest_seconds,
            queue_tombstones: self.queue_tombstones + other.queue_tombstones,
            queue_forgetting_waits_seconds: self.queue_forgetting_waits_seconds
                + other.queue_forgetting_waits_seconds,
            queue_adopted: self.queue_adopted + other.queue_adopted,
            queue_repaired: self.queue_repaired + other.queue_repaired,
            queue_replaced: self.queue_replaced + other.queue_replaced,
            queue_both_acted: self.queue_both_acted + other.queue_both_acted,
            deliveries_forwarded: self.deliveries_forwarded + other.deliveries_forwarded,
            directory_accounts: self.directory_accounts + other.directory_accounts,
            directory_domains: self.directory_domains + other.directory_domains,
            logins_cached: self.logins_cached + other.logins_cached,
        }
    }
}
