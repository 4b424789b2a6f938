//! Figures for Prometheus: the one list of them, and who counts what.
//!
//! Invariants: whatever is shown is in [`ALL`], with its unit and meaning, and `docs/metrics.md` is made of that; labels hold words of the
//! program alone (see [`family`]); nothing here can fail what it counts.
//!
//! Reading order: this file, [`family`], [`gather`] (what is asked for when somebody looks), [`http`].

pub mod family;
mod gather;
mod http;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use family::{About, Counter, Family, Gauge, Histogram};
pub use gather::Sources;
pub(crate) use http::respond;
pub use http::{Readiness, State, serve};

use crate::{
    tls,
    wrap::{PAGE_CHARS, wrap},
};

macro_rules! figures {
    ($( $ident:ident: $type:ident<$count:literal> = $name:literal, [$($label:literal),*], $unit:literal, $meaning:literal; )+) => {
        $(
            #[doc = $meaning]
            static $ident: $type<$count> = $type::new($name, &[$($label),*], $unit, $meaning);
        )+
        /// All families, in the order in which they are shown.
        pub static ALL: &[&dyn Family] = &[$( &$ident ),+];
    };
}

figures! {
    SESSIONS: Gauge<2> = "whimbrel_sessions", ["protocol", "state"], "connections",
        "Open connections. State: handshake, unauthenticated (SMTP and LMTP connections stay so) or authenticated.";
    CONNECTIONS: Counter<1> = "whimbrel_connections_total", ["protocol"], "connections",
        "Connections that the server accepted.";
    REFUSED: Counter<1> = "whimbrel_connections_refused_total", ["reason"], "connections",
        "Connections that the server refused or closed. Reasons for a limit: total, unauthenticated, address, unauthenticated address, account, \
         relay. Others: displaced (a connection without login gave its place to a new one), handshake, write timeout, disk (the start waits for its \
         disk).";
    RECEIVED: Counter<1> = "whimbrel_received_bytes_total", ["protocol"], "bytes",
        "Bytes that clients sent, inside TLS.";
    SENT: Counter<1> = "whimbrel_sent_bytes_total", ["protocol"], "bytes",
        "Bytes that the server sent to clients, inside TLS.";
    COMMANDS: Histogram<2> = "whimbrel_command_seconds", ["protocol", "command"], "seconds",
        "Duration of commands, from the complete command to the complete answer. It includes the time in which the client reads a long answer, or \
         sends data for IDLE, AUTHENTICATE and APPEND. SMTP: MAIL, RCPT, DATA (from its end) and AUTH.";
    PROTOCOL_ERRORS: Counter<2> = "whimbrel_protocol_errors_total", ["protocol", "kind"], "errors",
        "Protocol errors of clients.";
    LOGINS: Counter<3> = "whimbrel_logins_total", ["protocol", "mechanism", "result"], "logins",
        "Logins. Mechanism: the SASL mechanism, or PASSWORD for LOGIN of IMAP and USER and PASS of POP3. Result: ok, credentials, throttled, in \
         use, binding, acts for another, malformed or failure.";
    LOGIN_CHECKS: Counter<1> = "whimbrel_login_checks_total", ["source"], "logins",
        "Correct passwords. Source: computed (with argon2id) or cache.";
    MAIL_REFUSED: Counter<2> = "whimbrel_mail_refused_total", ["protocol", "what"], "refusals",
        "Refusals to senders, each with a line in the log. What: sender, recipient or message.";
    TRANSACTIONS: Counter<1> = "whimbrel_transactions_total", ["protocol"], "messages",
        "Messages accepted from senders.";
    TRANSACTION_BYTES: Counter<1> = "whimbrel_transaction_bytes_total", ["protocol"], "bytes",
        "Bytes of messages accepted from senders.";
    DELIVERIES: Counter<0> = "whimbrel_deliveries_total", [], "messages",
        "Messages that the queue put into mailboxes, one for each recipient.";
    DELIVERY_SECONDS: Histogram<0> = "whimbrel_delivery_seconds", [], "seconds",
        "Time from accepting a message until it is in a recipient's mailbox, on disk and on as many other nodes as had to accept it.";
    QUEUE_ENTRIES: Gauge<0> = "whimbrel_queue_entries", [], "messages",
        "Accepted messages that are not in all their mailboxes yet.";
    QUEUE_BYTES: Gauge<0> = "whimbrel_queue_bytes", [], "bytes",
        "Memory for the envelopes and summaries of messages in the queue.";
    QUEUE_OLDEST: Gauge<0> = "whimbrel_queue_oldest_seconds", [], "seconds",
        "Time since the oldest message in the queue was accepted; 0 if the queue is empty.";
    QUEUE_TOMBSTONES: Gauge<0> = "whimbrel_queue_tombstones", [], "messages",
        "Delivered messages of which some node has not said yet that its copy in the queue is gone.";
    QUEUE_FORGETTING_WAITS: Gauge<0> = "whimbrel_queue_forgetting_waits_seconds", [], "seconds",
        "Time since this node last learned which finished deliveries it can forget: a few seconds. It grows while a member is away.";
    QUEUE_ADOPTED: Counter<0> = "whimbrel_queue_adopted_total", [], "messages",
        "Messages that this node delivers in place of a node that was away for too long.";
    QUEUE_REPAIRED: Counter<0> = "whimbrel_queue_repaired_total", [], "messages",
        "Messages of which this node gave a copy to another node, because a node that had one was away for too long.";
    QUEUE_REPLACED: Counter<0> = "whimbrel_queue_replaced_total", [], "messages",
        "Messages that another node got before they were accepted, because a chosen node was late.";
    QUEUE_BOTH_ACTED: Counter<0> = "whimbrel_queue_both_acted_total", [], "messages",
        "Messages that this node was delivering when it heard that another node delivers them, too. In mailboxes they are there once.";
    DELIVERIES_FORWARDED: Counter<0> = "whimbrel_deliveries_forwarded_total", [], "deliveries",
        "Deliveries of this node's queue that other nodes made, because this node lacks data of the account's partition, or does not hold it.";
    COMMIT_SECONDS: Histogram<1> = "whimbrel_commit_seconds", ["machine"], "seconds",
        "Time from a machine's commit (directory, queue, owner) until it is on disk. Only commits that somebody waits for are counted.";
    STORE_SYNCS: Counter<0> = "whimbrel_store_syncs_total", [], "syncs",
        "Syncs of the store's journal.";
    STORE_COMMITS: Counter<0> = "whimbrel_store_commits_total", [], "commits",
        "Durable commits (batches, and deletions of blobs). Divided by the syncs, this gives commits for each sync.";
    STORE_WAITING: Gauge<0> = "whimbrel_store_waiting_bytes", [], "bytes",
        "Size of commits that wait for the disk.";
    STORE_WAITS: Counter<0> = "whimbrel_store_waits_total", [], "writes",
        "Writes that waited for room because the disk was behind (storage.full_buffers_max).";
    ANSWER_WAITS: Counter<0> = "whimbrel_answer_waits_total", [], "reads",
        "Reads for clients that waited for memory (limits.answers_bytes_max).";
    STORE_BYTES: Gauge<0> = "whimbrel_store_bytes", [], "bytes",
        "Size of the store's files.";
    STORE_FREE: Gauge<0> = "whimbrel_store_free_bytes", [], "bytes",
        "Free space on the store's disk.";
    STORE_CACHE: Gauge<0> = "whimbrel_store_cache_bytes", [], "bytes",
        "Capacity of the engine's block cache (storage.cache_bytes).";
    ACCOUNTS_LOADED: Gauge<0> = "whimbrel_accounts_loaded", [], "accounts",
        "Accounts whose state is in memory.";
    ACCOUNTS_BYTES: Gauge<0> = "whimbrel_accounts_loaded_bytes", [], "bytes",
        "Memory for the state of loaded accounts.";
    ACCOUNTS_LOADS: Counter<0> = "whimbrel_accounts_loads_total", [], "accounts",
        "Account states read from the store.";
    ACCOUNTS_STALLED: Gauge<0> = "whimbrel_accounts_stalled", [], "accounts",
        "Accounts that have stalled since the start, and are not served. A row cannot be read, or an op cannot be applied. The log gives the \
         reason.";
    ACCOUNTS_EVICTED: Counter<0> = "whimbrel_accounts_evicted_total", [], "accounts",
        "Account states evicted to keep storage.accounts_bytes_max.";
    WATCHERS: Gauge<0> = "whimbrel_watchers", [], "sessions",
        "Readers: sessions with a selected mailbox.";
    LOG_PARTITIONS: Gauge<0> = "whimbrel_log_partitions", [], "partitions",
        "Partitions whose log was opened since the start.";
    PARTITIONS_HELD: Gauge<0> = "whimbrel_partitions_held", [], "partitions",
        "Partitions of accounts that this node holds, or is getting back; 256 if all nodes hold all mail.";
    PARTITIONS_SYNCING: Gauge<0> = "whimbrel_partitions_syncing", [], "partitions",
        "Partitions that are syncing, and are not served; the directory counts, too. This node is new, and lacks data that another node had when \
         they linked.";
    LOG_OPERATIONS: Gauge<0> = "whimbrel_log_operations", [], "operations",
        "Position of the opened logs: the sum of their last sequence numbers. It is one series, not one for each partition.";
    CLUSTER_MEMBERS: Gauge<1> = "whimbrel_cluster_members", ["state"], "members",
        "Members in the roster, by incarnation. State: open; removed (other members still collect its ops); closed (it no longer counts). None \
         without a cluster.";
    CLUSTER_LINKS: Gauge<0> = "whimbrel_cluster_links", [], "links",
        "Links to other nodes.";
    CLUSTER_LAG: Gauge<0> = "whimbrel_cluster_lag_operations", [], "operations",
        "Ops on this disk that a member has not confirmed to have on its disk, for the member that lacks most. `whimbrel cluster status` names the \
         member. Whether a member has applied the ops and made them visible is not counted: see whimbrel_cluster_hidden_operations here, and \
         whimbrel_accounts_stalled and whimbrel_cluster_blobs_missing on that member. Removed members do not count. Valid only while \
         whimbrel_figures_stale is 0.";
    CLUSTER_LAG_BYTES: Gauge<0> = "whimbrel_cluster_lag_bytes", [], "bytes",
        "Size of the ops that a member lacks (whimbrel_cluster_lag_operations), for the member that lacks most bytes, which may be another member. \
         Ops from before the start are not counted.";
    CLUSTER_LAG_SECONDS: Gauge<0> = "whimbrel_cluster_lag_seconds", [], "seconds",
        "Age of the oldest op here that any member lacks, at most the time since the start; 0 if no member lacks any.";
    CLUSTER_BEHIND: Gauge<0> = "whimbrel_cluster_behind_operations", [], "operations",
        "Ops that a member has reported and this disk does not have, for the member that has most: how far this node is known to \
         lag.";
    CLUSTER_QUEUED: Gauge<0> = "whimbrel_cluster_queued_bytes", [], "bytes",
        "Size of batches that wait to be sent to members, or to be acknowledged by them.";
    CLUSTER_STABLE: Gauge<0> = "whimbrel_cluster_stable_operations", [], "operations",
        "Ops that all members have applied. The value stands still while a member is away.";
    CLUSTER_MISSING: Gauge<0> = "whimbrel_cluster_blobs_missing", [], "bodies",
        "Blobs that messages on this node refer to and that this node has yet to get from other nodes. Until then these messages are not visible \
         here.";
    CLUSTER_MISSED: Counter<0> = "whimbrel_cluster_blobs_missed_total", [], "bodies",
        "Blobs of visible messages that a client wanted to read and that were not here. The node fetches them from other nodes. Each is a defect \
         of this node or of its disk.";
    CLUSTER_CLOCK_WRONG: Gauge<0> = "whimbrel_cluster_clock_wrong", [], "nodes",
        "1 while this node writes nothing because of its clock. The clock is more than a minute off those of the other nodes, or has jumped and no \
         node has confirmed the jump.";
    CLUSTER_CLOCK_OFF: Gauge<0> = "whimbrel_cluster_clock_off_seconds", [], "seconds",
        "Difference between this clock and that of a linked node, for the node that is furthest off, in either direction; whole seconds.";
    CLUSTER_UNSHOWN: Gauge<0> = "whimbrel_cluster_hidden_operations", [], "operations",
        "Ops of open partitions, applied here, that some member has not reported to have made visible. A client that moves from that member to \
         this node may cause reassigned UIDs.";
    UIDS_REASSIGNED: Counter<0> = "whimbrel_uids_reassigned_total", [], "claims",
        "UIDs reassigned by this node: new UIDs for messages that had one, for any cause (docs/design.md#why-a-uid-changes).";
    TAKEOVERS: Counter<0> = "whimbrel_takeovers_total", [], "takeovers",
        "Clients that came from another node, for which this node reassigned UIDs or raised a counter before it answered.";
    TAKEOVER_UIDS: Counter<0> = "whimbrel_takeover_uids_total", [], "claims",
        "Those of whimbrel_uids_reassigned_total that takeovers caused: the other node may not have made the messages visible.";
    TAKEOVERS_REFUSED: Counter<0> = "whimbrel_takeovers_refused_total", [], "takeovers",
        "Takeovers refused because the client named numbers beyond what the account may still believe.";
    CONFIRMING: Gauge<0> = "whimbrel_answers_confirming", [], "answers",
        "IMAP and POP3 answers that wait until other nodes have the write (imap.other_nodes, pop3.other_nodes).";
    CONFIRMED: Counter<0> = "whimbrel_answers_confirmed_total", [], "answers",
        "IMAP and POP3 answers that were sent when enough other nodes had the write.";
    UNCONFIRMED: Counter<1> = "whimbrel_answers_unconfirmed_total", ["cause"], "answers",
        "IMAP and POP3 answers that were refusals for lack of other nodes. Cause: too_few (too few were reachable, and nothing was written) or \
         late (too few had the write within cluster.write_timeout).";
    LOG_BYTES: Gauge<0> = "whimbrel_cluster_log_bytes", [], "bytes",
        "Size of all logs, which keep what absent members lack (cluster.log_retention_bytes). It is measured every 10 s, and estimated after a cut.";
    SNAPSHOTS_SENT: Counter<0> = "whimbrel_snapshots_sent_total", [], "states",
        "Snapshots of partitions sent, or begun to be sent, to nodes that asked for them because all logs had been cut.";
    SNAPSHOTS_RECEIVED: Counter<0> = "whimbrel_snapshots_received_total", [], "states",
        "Snapshots of partitions received from other nodes in place of logs.";
    SNAPSHOTS_WAITING: Gauge<0> = "whimbrel_snapshots_waiting", [], "states",
        "Received snapshots of partitions that wait until none of their accounts is stalled (whimbrel_accounts_stalled). Later batches of these \
         partitions wait as well.";
    ACCOUNTS_JOINED: Counter<0> = "whimbrel_accounts_joined_total", [], "accounts",
        "Accounts whose state was joined with that of a received snapshot.";
    UID_VALIDITIES: Counter<0> = "whimbrel_uidvalidities_total", [], "accounts",
        "Accounts whose UIDVALIDITY had to change (a new epoch). Their clients download everything again.";
    ACCOUNTS: Gauge<0> = "whimbrel_accounts", [], "accounts",
        "Accounts in the directory.";
    DOMAINS: Gauge<0> = "whimbrel_domains", [], "domains",
        "Domains in the directory.";
    LOGINS_CACHED: Gauge<0> = "whimbrel_logins_cached", [], "logins",
        "Logins that the server remembers, so that they do not cost argon2id again.";
    ERRORS: Counter<1> = "whimbrel_errors_total", ["kind"], "errors",
        "Errors of the server. Kind: commit (the disk takes no writes), load, store, content (a damaged row), accept, warning (something \
         unexpected that did no harm; the log says more).";
    STALE: Gauge<1> = "whimbrel_figures_stale", ["of"], "figures",
        "1 if the owners of mailboxes (machines) or the cluster (cluster) were too busy to answer within a second. Their gauges then keep earlier \
         values: do not rely on them.";
    CERTIFICATE_ENDS: Gauge<0> = "whimbrel_certificate_ends_seconds", [], "seconds",
        "When the certificate that clients get expires, in seconds since 1970.";
    CERTIFICATE_FAULTS: Gauge<1> = "whimbrel_certificate_faults", ["fault"], "faults",
        "1 if clients refuse the certificate, or soon will. Fault: early (not valid yet), expired, ends soon (within a week), other host (not for \
         server.hostname).";
    RESIDENT: Gauge<0> = "whimbrel_resident_bytes", [], "bytes",
        "Resident memory of the process.";
    DESCRIPTORS: Gauge<0> = "whimbrel_open_descriptors", [], "descriptors",
        "Open file descriptors.";
    START: Gauge<0> = "whimbrel_start_time_seconds", [], "seconds",
        "When the process began to serve, in seconds since 1970.";
    BUILD: Gauge<1> = "whimbrel_build_info", ["version"], "no unit",
        "Always 1. The version is a label.";
}

/// Reasons for which a connection is refused or cut.
const REASONS: [&str; 10] = [
    "total",
    "unauthenticated",
    "address",
    "unauthenticated address",
    "account",
    "handshake",
    "write timeout",
    "disk",
    "relay",
    "displaced",
];

/// Kinds of errors on our side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A commit was not made: the disk takes no writes.
    Commit,
    /// An account could not be read.
    Load,
    /// The store did not answer a session.
    Store,
    /// A content row is damaged.
    Content,
    /// A connection could not be accepted.
    Accept,
    /// A machine found something odd.
    Warning,
}

impl Fault {
    const ALL: [Fault; 6] = [
        Fault::Commit,
        Fault::Load,
        Fault::Store,
        Fault::Content,
        Fault::Accept,
        Fault::Warning,
    ];

    fn label(self) -> &'static str {
        match self {
            Fault::Commit => "commit",
            Fault::Load => "load",
            Fault::Store => "store",
            Fault::Content => "content",
            Fault::Accept => "accept",
            Fault::Warning => "warning",
        }
    }
}

/// Shows what has not happened yet as 0, where it is known beforehand: an alarm on a figure that is not there never rings.
pub fn start() {
    for reason in REASONS {
        REFUSED.add([reason], 0);
    }
    for fault in Fault::ALL {
        ERRORS.add([fault.label()], 0);
    }
    BUILD.set([env!("CARGO_PKG_VERSION")], 1);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    START.set([], now.map_or(0, |now| now.as_secs()));
}

/// Counts something that went wrong on our side.
pub fn fault(fault: Fault) {
    ERRORS.add([fault.label()], 1);
}

/// Counts a right password.
pub fn login_check(cached: bool) {
    LOGIN_CHECKS.add([if cached { "cache" } else { "computed" }], 1);
}

/// Counts a login of a session, or the refusal of one.
pub fn login(protocol: &'static str, mechanism: &'static str, result: &'static str) {
    LOGINS.add([protocol, mechanism, result], 1);
}

/// Counts what a sender was refused.
pub fn mail_refused(protocol: &'static str, what: &'static str) {
    MAIL_REFUSED.add([protocol, what], 1);
}

/// How the certificate is that clients are shown.
pub fn certificate(ends: i64, faults: &[tls::Fault]) {
    CERTIFICATE_ENDS.set([], u64::try_from(ends).unwrap_or(0));
    for fault in tls::Fault::ALL {
        CERTIFICATE_FAULTS.set([fault.label()], u64::from(faults.contains(&fault)));
    }
}

/// All logs together have so many bytes.
pub fn log_bytes(bytes: u64) {
    LOG_BYTES.set([], bytes);
}

/// Counts a read that waits for memory.
pub fn answer_waits() {
    ANSWER_WAITS.add([], 1);
}

/// Counts a delivery.
pub fn delivery() {
    DELIVERIES.add([], 1);
}

/// Counts a new UIDVALIDITY.
pub fn epoch() {
    UID_VALIDITIES.add([], 1);
}

/// Counts how long one took.
pub fn delivery_took(took: Duration) {
    DELIVERY_SECONDS.observe([], took);
}

/// Counts an accepted transaction.
pub fn accepted(protocol: &'static str, bytes: u64) {
    TRANSACTIONS.add([protocol], 1);
    TRANSACTION_BYTES.add([protocol], bytes);
}

/// Counts a command. Names come from the protocol crates, so there are only so many.
pub fn command(protocol: &'static str, name: &'static str, took: Duration) {
    COMMANDS.observe([protocol, name], took);
}

/// Counts a breach of the protocol.
pub fn protocol_error(protocol: &'static str, kind: &'static str) {
    PROTOCOL_ERRORS.add([protocol, kind], 1);
}

/// Counts a connection that was refused.
pub fn refused(reason: &'static str) {
    debug_assert!(REASONS.contains(&reason), "{reason} is not in the list");
    REFUSED.add([reason], 1);
}

/// Counts a commit that has become durable.
pub fn commit(machine: &'static str, took: Duration) {
    COMMIT_SECONDS.observe([machine], took);
}

/// What a connection has received and sent.
pub struct Traffic {
    /// Bytes from the client.
    pub received: Arc<AtomicU64>,
    /// Bytes to it.
    pub sent: Arc<AtomicU64>,
}

/// The counters of a protocol, to be kept by a connection.
#[must_use]
pub fn traffic(protocol: &'static str) -> Traffic {
    Traffic {
        received: RECEIVED.of([protocol]),
        sent: SENT.of([protocol]),
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// TLS is being negotiated, before anything else.
    Handshake,
    /// Nobody has logged in.
    Unauthenticated,
    /// Somebody has.
    Authenticated,
}

impl Stage {
    fn label(self) -> &'static str {
        match self {
            Stage::Handshake => "handshake",
            Stage::Unauthenticated => "unauthenticated",
            Stage::Authenticated => "authenticated",
        }
    }
}

/// An open connection, counted until it is dropped.
pub struct Open {
    protocol: &'static str,
    stage: Stage,
}

/// Counts a connection.
#[must_use]
pub fn open(protocol: &'static str, stage: Stage) -> Open {
    CONNECTIONS.add([protocol], 1);
    SESSIONS.add([protocol, stage.label()], 1);
    Open { protocol, stage }
}

impl Open {
    /// It is further now.
    pub fn is_now(&mut self, stage: Stage) {
        SESSIONS.add([self.protocol, self.stage.label()], -1);
        SESSIONS.add([self.protocol, stage.label()], 1);
        self.stage = stage;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        SESSIONS.add([self.protocol, self.stage.label()], -1);
    }
}

/// `docs/metrics.md`.
#[must_use]
pub fn documentation() -> String {
    let mut out = String::from(HEAD);
    for family in ALL {
        let About {
            name,
            labels,
            unit,
            meaning,
        } = family.about();
        let kind = family.kind();
        let names: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = match names.len() {
            0 => String::new(),
            1 => format!("label {}; ", names[0]),
            _ => format!("labels {}; ", names.join(", ")),
        };
        let item = format!("`{name}` ({kind}; {labels}{unit}): {meaning}");
        wrap(&item, PAGE_CHARS, "- ", "  ", &mut out);
    }
    out
}

/// What stands above the list.
const HEAD: &str = "\
# Metrics

`http://127.0.0.1:10900/metrics` (`metrics.listen`) has these metrics, in the text format of Prometheus. This page is generated from the source
(`crates/server/src/metrics/mod.rs`); tests compare it with the source and with the output of a running server.

Labels are words of the program: protocols, names of commands, mechanisms, kinds. They never contain an address, a name, an account or anything else
that a client sent. So the number of series has a limit, whatever the number of clients and accounts is: about 3,000, nearly all of them buckets of
`whimbrel_command_seconds`. Counters begin at 0 with the process. Histograms have buckets from 0.0001 to 30 seconds.

`/healthz` answers 200 as long as the process answers at all. `/readyz` answers 200 while clients are served. It answers 503 before that, and from the
moment when the server is told to stop.

**Which node lags, and by how much?** `whimbrel cluster status` says it for each member. From metrics alone: read
`whimbrel_cluster_behind_operations` on each node. A node that is cut off does not hear what it lacks: its `whimbrel_cluster_links` falls, and
`whimbrel_cluster_lag_operations` rises on the others. All these gauges are old while `whimbrel_figures_stale` is 1.

";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Written again with `WHIMBREL_WRITE_DOCS=1`.
    #[test]
    fn the_page_is_in_step() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        if std::env::var_os("WHIMBREL_WRITE_DOCS").is_some() {
            std::fs::write(&path, documentation()).unwrap();
        }
        for line in documentation().lines() {
            assert!(line.chars().count() <= 160, "{line}");
        }
        assert!(
            std::fs::read_to_string(path).is_ok_and(|page| page == documentation()),
            "docs/metrics.md is out of step: WHIMBREL_WRITE_DOCS=1 cargo test -p whimbrel --lib metrics"
        );
    }

    #[test]
    fn names_are_as_prometheus_wants_them() {
        let mut names: Vec<&str> = ALL.iter().map(|family| family.about().name).collect();
        for family in ALL {
            let about = family.about();
            assert!(about.name.starts_with("whimbrel_"), "{}", about.name);
            assert_eq!(
                about.name.ends_with("_total"),
                family.kind() == "counter",
                "{}",
                about.name
            );
            for unit in ["seconds", "bytes"] {
                let name = about.name.trim_end_matches("_total");
                assert_eq!(about.unit == unit, name.ends_with(unit), "{}", about.name);
            }
            assert!(!about.meaning.contains(['\n', '\\', '|']), "{}", about.name);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn a_connection_is_in_one_state() {
        let shown = |state: &str| {
            let page = family::page(ALL);
            let start = format!("whimbrel_sessions{{protocol=\"test\",state=\"{state}\"}} ");
            page.lines()
                .find_map(|line| line.strip_prefix(&start).map(str::to_owned))
        };
        let mut connection = open("test", Stage::Handshake);
        assert_eq!(shown("handshake").as_deref(), Some("1"));
        connection.is_now(Stage::Authenticated);
        assert_eq!(shown("handshake").as_deref(), Some("0"));
        assert_eq!(shown("authenticated").as_deref(), Some("1"));
        drop(connection);
        assert_eq!(shown("authenticated").as_deref(), Some("0"));
    }
}
