//! Every key: its type, default, range and reason. The comments here are the documentation that users read.
//!
//! A limit that a client can meet is named with its unit or `max` last and says why it exists.
//!
//! size: it is the list of all keys, a line each.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::{
    read::Source,
    value::{LogFormat, LogLevel, NodeRole, Size, Value},
};

/// A section, for the documentation.
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) doc: &'static [&'static str],
    pub(super) keys: &'static [Key],
}

/// A key, for the documentation.
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) doc: &'static [&'static str],
    pub(super) default: &'static str,
    pub(super) range: Option<(&'static str, &'static str)>,
    pub(super) kind: &'static str,
}

macro_rules! range {
    () => {
        None
    };
    ($least:literal $most:literal) => {
        Some(($least, $most))
    };
}

macro_rules! schema {
    ($(
        $(#[doc = $section_doc:literal])+
        $section:ident: $name:ident {
            $( $(#[doc = $doc:literal])+ $key:ident: $type:ty = $default:literal $(, $least:literal ..= $most:literal)?; )+
        }
    )+) => {
        /// The configuration of a server.
        #[derive(Clone, Debug)]
        pub struct Config {
            $( $(#[doc = $section_doc])+ pub $section: $name, )+
        }

        $(
            $(#[doc = $section_doc])+
            #[derive(Clone, Debug)]
            pub struct $name {
                $( $(#[doc = $doc])+ pub $key: $type, )+
            }
        )+

        pub(super) const SECTIONS: &[Section] = &[$(
            Section {
                name: stringify!($section),
                doc: &[$($section_doc),+],
                keys: &[$(
                    Key {
                        name: stringify!($key),
                        doc: &[$($doc),+],
                        default: $default,
                        range: range!($($least $most)?),
                        kind: <$type as Value>::KIND,
                    },
                )+],
            },
        )+];

        impl Config {
            pub(super) fn build(source: &mut Source<'_>) -> Config {
                Config {
                    $( $section: $name {
                        $( $key: source.take(
                            stringify!($section),
                            stringify!($key),
                            $default,
                            range!($($least $most)?),
                        ), )+
                    }, )+
                }
            }
        }
    };
}

schema! {
    /// The process.
    server: Server {
        /// Directory for all data: mail, accounts, keys. The server creates it with mode 0700.
        data_dir: PathBuf = "\"./whimbrel-data\"";
        /// Host name in greetings, in Received fields and in the self-signed certificate. Empty: the name of the machine.
        hostname: String = "\"\"";
        /// Number of owners. Each account belongs to one, which works on one account at a time. 0: one for each core.
        owners: usize = "0", "0" ..= "256";
        /// How long a stopping server waits for sessions to end and for their writes to reach the disk.
        shutdown_wait: Duration = "\"10s\"", "\"0s\"" ..= "\"10m\"";
        /// Whether the allocator may use pages of 2 MiB. Flags of accounts with hundreds of thousands of messages are read a quarter faster, for up
        /// to a fifth more memory.
        huge_pages: bool = "false";
    }

    /// TLS 1.2 and 1.3. Without a certificate of your own, the server makes a self-signed one at its first start, in DATA/tls.
    tls: TlsSection {
        /// Certificate chain, PEM. It is read again when the file changes, and on SIGHUP. A new file that is invalid is logged, and the old
        /// certificate kept.
        cert: PathBuf = "\"\"";
        /// Private key of the certificate, PEM.
        key: PathBuf = "\"\"";
        /// How often the server checks whether the files have changed.
        reload_interval: Duration = "\"5s\"", "\"1s\"" ..= "\"1h\"";
        /// Time limit for a TLS handshake.
        handshake_timeout: Duration = "\"15s\"", "\"1s\"" ..= "\"5m\"";
        /// TLS handshakes in progress at once. Further ones wait within the same time limit. One client address (IPv6: one /64) may have an eighth
        /// of them.
        handshakes_max: usize = "128", "1" ..= "100000";
    }

    /// IMAP4rev2 and IMAP4rev1.
    imap: ImapSection {
        /// Addresses for IMAP with STARTTLS (the usual port is 143).
        listen: Vec<SocketAddr> = "[\"127.0.0.1:10143\"]";
        /// Addresses for IMAP over TLS from the first byte (the usual port is 993).
        listen_tls: Vec<SocketAddr> = "[\"127.0.0.1:10993\"]";
        /// How long a client may be silent after login. RFC 9051, section 5.4 requires 30 minutes.
        idle_timeout: Duration = "\"31m\"", "\"30m\"" ..= "\"7d\"";
        /// Time limit for logging in.
        login_timeout: Duration = "\"2m\"", "\"1s\"" ..= "\"30m\"";
        /// Failed logins on one connection before the server closes it.
        login_failures_max: u32 = "3", "1" ..= "1000";
        /// Invalid lines in a row before the server closes the connection.
        bad_commands_max: u32 = "20", "1" ..= "100000";
        /// How many other nodes must have a client's write on disk, blobs included, before OK (at most as many as there are). If too few are
        /// reachable, or do not confirm within `cluster.write_timeout`, the client gets a temporary NO. 0: its own disk is enough
        /// (docs/cluster.md).
        other_nodes: usize = "0", "0" ..= "63";
        /// Keywords of a mailbox that FLAGS lists. Further ones appear only with their messages.
        keywords_max: usize = "1000", "10" ..= "100000";
        /// Separate ranges in a saved search result (RFC 5182), eight bytes each while the mailbox is selected. A result with more is refused
        /// (NOTSAVED).
        saved_ranges_max: usize = "16384", "1000" ..= "5000000";
        /// Messages that one SORT or THREAD may process. Each takes about ten bytes (in THREAD a hundred).
        sort_messages_max: usize = "500000", "1000" ..= "10000000";
        /// Memory for the texts of one SORT. Beyond it only the beginning of each text is compared.
        sort_key_bytes_max: Size = "\"16MiB\"", "\"64KiB\"" ..= "\"1GiB\"";
        /// SORT and THREAD commands that run at once, each within the two keys above. Others wait.
        sorts_at_once_max: usize = "2", "1" ..= "1000";
        /// Message IDs that THREAD reads from one References field, from its end.
        thread_references_max: usize = "100", "10" ..= "10000";
        /// Whether a client may log out and in again on one connection (RFC 8437). Set false behind a proxy that checks only the first login.
        unauthenticate: bool = "true";
        /// Whether clients may compress (COMPRESS=DEFLATE). It saves bandwidth, costs CPU time, and lets an observer learn from lengths
        /// (docs/hostile.md).
        compress: bool = "true";
        /// Largest ratio of inflated to compressed input, messages excluded. DEFLATE allows about a thousand to one.
        inflate_ratio_max: u64 = "100", "20" ..= "2000";
        /// Inflated bytes beyond this ratio before the server closes the connection.
        inflate_slack_bytes: Size = "\"1MiB\"", "\"64KiB\"" ..= "\"1GiB\"";
        /// Size of a command before login, literals included.
        command_bytes_max_before_login: Size = "\"16KiB\"", "\"1KiB\"" ..= "\"1MiB\"";
        /// Size of a command after login, literals included, sequence sets excluded. RFC 7162, section 4 requires 8192 octets.
        command_bytes_max: Size = "\"256KiB\"", "\"8KiB\"" ..= "\"16MiB\"";
        /// Size of the sequence sets of one command, as text. A million UIDs with commas fit.
        sequence_set_bytes_max: Size = "\"16MiB\"", "\"8KiB\"" ..= "\"64MiB\"";
        /// Separate ranges in one sequence set. Each takes eight bytes of memory.
        sequence_set_ranges_max: usize = "1100000", "1000" ..= "5000000";
        /// Size of a literal before login.
        literal_bytes_max_before_login: Size = "\"4KiB\"", "\"256B\"" ..= "\"64KiB\"";
        /// Size of a literal after login, except for the message of APPEND.
        literal_bytes_max: Size = "\"64KiB\"", "\"4KiB\"" ..= "\"4MiB\"";
        /// Literals in one command. SEARCH may have one for each key.
        literal_count_max: usize = "1000", "10" ..= "10000";
        /// Size of a message in APPEND.
        append_bytes_max: Size = "\"64MiB\"", "\"1MiB\"" ..= "\"1GiB\"";
        /// Messages in one APPEND (MULTIAPPEND), which is one commit.
        append_messages_max: usize = "1000", "1" ..= "10000";
        /// Total size of the summaries of the messages in one APPEND, in memory until they are stored.
        append_summary_bytes_max: Size = "\"4MiB\"", "\"64KiB\"" ..= "\"6MiB\"";
        /// Whether APPEND refuses non-ASCII header fields from clients without UTF8=ACCEPT, as RFC 6855, section 4 requires. With true, such a
        /// client cannot put back old mail that the server gave to it.
        append_ascii_headers_only: bool = "false";
        /// Bytes of a refused literal that the server reads and discards.
        skip_bytes_max: Size = "\"128MiB\"", "\"0B\"" ..= "\"1GiB\"";
        /// Depth of the keys of one SEARCH, as a tree. A list in a list, an OR in an OR and NOT NOT add none.
        nesting_depth_max: usize = "32", "8" ..= "200";
        /// Keys in one SEARCH. Each is tested on each message.
        search_keys_max: usize = "4096", "16" ..= "100000";
        /// Items in one FETCH.
        fetch_items_max: usize = "256", "16" ..= "10000";
        /// Names in one HEADER.FIELDS.
        header_fields_max: usize = "512", "16" ..= "10000";
        /// Numbers in a section such as 1.2.3.
        section_depth_max: usize = "64", "8" ..= "100";
        /// Flags in one list.
        flags_max: usize = "256", "16" ..= "10000";
        /// Patterns in one LIST.
        list_patterns_max: usize = "32", "1" ..= "1000";
        /// Total length of the patterns of one LIST, each counted with the reference.
        list_pattern_bytes_max: Size = "\"4KiB\"", "\"2KiB\"" ..= "\"1MiB\"";
    }

    /// POP3. The server accepts no password without TLS.
    pop3: Pop3Section {
        /// Addresses for POP3 with STLS (the usual port is 110).
        listen: Vec<SocketAddr> = "[\"127.0.0.1:10110\"]";
        /// Addresses for POP3 over TLS from the first byte (the usual port is 995).
        listen_tls: Vec<SocketAddr> = "[\"127.0.0.1:10995\"]";
        /// How long a client may send no command after login; then nothing is removed. RFC 1939, section 3 requires 10 minutes.
        idle_timeout: Duration = "\"10m\"", "\"10m\"" ..= "\"7d\"";
        /// Time limit for logging in.
        login_timeout: Duration = "\"2m\"", "\"1s\"" ..= "\"30m\"";
        /// Failed logins on one connection before the server closes it.
        login_failures_max: u32 = "3", "1" ..= "1000";
        /// Invalid lines in a row before the server closes the connection.
        bad_commands_max: u32 = "20", "1" ..= "100000";
        /// As `imap.other_nodes`, for the removals of QUIT (-ERR).
        other_nodes: usize = "0", "0" ..= "63";
        /// Length of a command line with its line end. RFC 2449, section 4 requires 255.
        command_line_bytes_max: Size = "\"2KiB\"", "\"255B\"" ..= "\"64KiB\"";
        /// Length of a line of AUTH.
        auth_line_bytes_max: Size = "\"12KiB\"", "\"1KiB\"" ..= "\"64KiB\"";
    }

    /// SMTP for incoming mail. The limits apply to LMTP, too.
    smtp: SmtpSection {
        /// Addresses for SMTP (the usual port is 25). The server offers STARTTLS.
        listen: Vec<SocketAddr> = "[\"127.0.0.1:10025\"]";
        /// Length of a command line with its line end. RFC 5321, section 4.5.3.1.4 has 512.
        command_line_bytes_max: Size = "\"2KiB\"", "\"1KiB\"" ..= "\"64KiB\"";
        /// Length of a line of AUTH. RFC 4954, section 4 requires 12,288.
        auth_line_bytes_max: Size = "\"12KiB\"", "\"12KiB\"" ..= "\"64KiB\"";
        /// Size of pipelined commands that wait.
        input_buffer_bytes_max: Size = "\"64KiB\"", "\"16KiB\"" ..= "\"1MiB\"";
        /// Recipients of one message. RFC 5321, section 4.5.3.1.8 requires at least 100.
        recipients_max: usize = "1000", "100" ..= "10000";
        /// Refused recipients of one message before the server closes the connection.
        recipients_refused_max: usize = "1000", "10" ..= "100000";
        /// Size of a message. The server announces it as SIZE.
        message_bytes_max: Size = "\"64MiB\"", "\"64KiB\"" ..= "\"1GiB\"";
        /// Bytes of a refused message that the server reads and discards.
        discard_bytes_max: Size = "\"64MiB\"", "\"0B\"" ..= "\"1GiB\"";
        /// Length of a line in a message. RFC 5321, section 4.5.3.1.6 has 1000 octets; real mail has longer lines.
        text_line_bytes_max: Size = "\"64KiB\"", "\"1KiB\"" ..= "\"1MiB\"";
        /// Size of one BDAT chunk.
        bdat_chunk_bytes_max: Size = "\"64MiB\"", "\"64KiB\"" ..= "\"1GiB\"";
        /// Received fields in a message. A message with more is in a mail loop.
        received_hops_max: usize = "50", "10" ..= "1000";
        /// Commands on one connection.
        commands_max: u32 = "100000", "100" ..= "100000000";
        /// NOOP, RSET, VRFY, HELP and greetings on one connection since its last accepted message.
        idle_commands_max: u32 = "100", "10" ..= "1000000";
        /// Commands with errors on one connection.
        errors_max: u32 = "20", "1" ..= "10000";
        /// Messages on one connection.
        transactions_max: u32 = "10000", "1" ..= "100000000";
        /// Unknown recipients on one connection.
        unknown_recipients_max: u32 = "50", "1" ..= "100000";
        /// Unknown recipients of one client address (IPv6: one /64) within `unknown_recipients_window`. Beyond it every recipient from there gets
        /// 450. `auth.peers_max` addresses are remembered.
        unknown_recipients_per_address_max: u32 = "200", "1" ..= "1000000";
        /// How long an unknown recipient counts.
        unknown_recipients_window: Duration = "\"1h\"", "\"1s\"" ..= "\"7d\"";
        /// How long the server waits for a command. RFC 5321, section 4.5.3.2.7 requires 5 minutes.
        command_wait_max: Duration = "\"5m\"", "\"5s\"" ..= "\"1h\"";
        /// Time limit for a command line from its first octet.
        command_line_wait_max: Duration = "\"60s\"", "\"5s\"" ..= "\"1h\"";
        /// How long the server waits for the next part of a message. RFC 5321, section 4.5.3.2.5 requires 3 minutes.
        data_block_wait_max: Duration = "\"3m\"", "\"5s\"" ..= "\"1h\"";
        /// Time limit for a message, in addition to the time that `data_rate_bytes_per_second_min` allows.
        data_wait_max: Duration = "\"10m\"", "\"5s\"" ..= "\"1d\"";
        /// Least mean rate of a message, in bytes a second. 0: any.
        data_rate_bytes_per_second_min: u32 = "64", "0" ..= "1000000";
        /// Accounts to which the recipients of one message lead, aliases followed.
        targets_max: usize = "1000", "1" ..= "10000";
    }

    /// Submission: SMTP for users, who log in and send under their own addresses. The limits of SMTP apply, and these.
    submission: SubmissionSection {
        /// Addresses for submission with STARTTLS (the usual port is 587).
        listen: Vec<SocketAddr> = "[\"127.0.0.1:10587\"]";
        /// Addresses for submission over TLS from the first byte (the usual port is 465).
        listen_tls: Vec<SocketAddr> = "[\"127.0.0.1:10465\"]";
        /// Whether a copy of each sent message goes into the sender's mailbox for sent mail. A copy that the client stores replaces it.
        save_sent: bool = "true";
        /// Time limit for logging in.
        login_timeout: Duration = "\"2m\"", "\"1s\"" ..= "\"30m\"";
        /// Failed logins on one connection before the server closes it.
        login_failures_max: u32 = "3", "1" ..= "1000";
        /// Size of the header of a message, in memory until the sender is checked.
        header_bytes_max: Size = "\"256KiB\"", "\"16KiB\"" ..= "\"4MiB\"";
        /// Messages that one account may send within `messages_window`.
        messages_max: u32 = "1000", "1" ..= "100000000";
        /// Recipients that one account may name within `messages_window`.
        recipients_max: u32 = "5000", "1" ..= "100000000";
        /// How long a message and its recipients count.
        messages_window: Duration = "\"1h\"", "\"1s\"" ..= "\"7d\"";
    }

    /// LMTP, for a mail server in front of this one. LMTP has no authentication: use addresses that only that server reaches.
    lmtp: LmtpSection {
        /// Addresses for LMTP (the usual port is 24).
        listen: Vec<SocketAddr> = "[\"127.0.0.1:10024\"]";
    }

    /// Password hashing (argon2id) and limits against guessing.
    auth: AuthSection {
        /// Memory of one argon2 computation for new passwords; a stored hash keeps its parameters.
        argon2_memory: Size = "\"19MiB\"", "\"1MiB\"" ..= "\"1GiB\"";
        /// Passes of argon2 over its memory.
        argon2_passes: u32 = "2", "1" ..= "100";
        /// Lanes of argon2.
        argon2_lanes: u32 = "1", "1" ..= "16";
        /// Iterations of the SCRAM-SHA-256 keys of new passwords; at least 4096. Clients with Cyrus SASL, such as mbsync, give up above 65536. 0:
        /// no keys, which are weaker than argon2, and no SCRAM.
        scram_iterations: u32 = "60000", "0" ..= "65536";
        /// Passwords that the server checks at once. Each check takes argon2's memory and a core.
        verifications_max: usize = "2", "1" ..= "64";
        /// Logins that wait for such a check; beyond it the last login of the network with most of them must try later. Networks (IPv4 /24, IPv6
        /// /48) take turns, those from which somebody has logged in to the account before first.
        waiting_max: usize = "256", "1" ..= "100000";
        /// Waiting logins of one client address (IPv6: one /64).
        waiting_per_peer_max: usize = "64", "1" ..= "100000";
        /// Failed logins of one client address (IPv6: one /64) within `failure_window`. Beyond it logins from there are refused without a check,
        /// except for passwords that were right from there within `cache_time`.
        failures_max: u32 = "20", "1" ..= "1000000";
        /// How long a failure counts.
        failure_window: Duration = "\"60s\"", "\"1s\"" ..= "\"1d\"";
        /// Client addresses whose failures the server remembers.
        peers_max: usize = "16384", "16" ..= "10000000";
        /// Logins that the server remembers, so that they do not cost argon2 again.
        cache_entries_max: usize = "16384", "1" ..= "10000000";
        /// How long a login is remembered, in memory only, as a keyed hash. 0s: not at all. A new password ends it.
        cache_time: Duration = "\"5m\"", "\"0s\"" ..= "\"1d\"";
    }

    /// What the server takes from a message for its summary. Beyond a limit the summary has less; no message is refused for it.
    mime: MimeSection {
        /// Depth of nested multiparts and messages that the server parses. Deeper ones are opaque.
        nesting_max: usize = "50", "10" ..= "100";
        /// Parts of a message, over all depths.
        parts_max: usize = "1000", "10" ..= "100000";
        /// Bytes of one header that the server searches for fields.
        header_bytes_max: Size = "\"256KiB\"", "\"16KiB\"" ..= "\"4MiB\"";
        /// Fields of one header that the server reads.
        header_fields_max: usize = "2000", "100" ..= "100000";
        /// Addresses that the server takes from the fields of one name.
        addresses_max: usize = "2000", "100" ..= "100000";
        /// Parameters of one field.
        params_max: usize = "100", "10" ..= "1000";
        /// Size of a summary. The server reads it as a whole and holds it in memory.
        summary_bytes_max: Size = "\"256KiB\"", "\"4KiB\"" ..= "\"1MiB\"";
        /// Bytes of a message's text that the server searches for the preview.
        preview_bytes_max: Size = "\"64KiB\"", "\"1KiB\"" ..= "\"1MiB\"";
    }

    /// Accepted messages on their way into mailboxes.
    queue: QueueSection {
        /// Messages that this node holds and that are not delivered yet, copies for other nodes included. Beyond it senders are told to try later (452).
        entries_max: usize = "1000000", "1" ..= "10000000";
        /// Memory for the envelopes and summaries of messages that are being accepted, and as much for those that are being delivered.
        bytes_max: Size = "\"64MiB\"", "\"1MiB\"" ..= "\"16GiB\"";
        /// How long the server waits before it repeats a delivery that failed; longer if many have failed.
        retry_after: Duration = "\"10s\"", "\"1s\"" ..= "\"1h\"";
        /// f: how many other nodes must have a message on disk, its blob included, before it is accepted (at most as many as there are). So many disks may
        /// be lost at once without loss of accepted mail. No further node stores anything of the message before it is delivered. If too few are
        /// reachable, senders are told to try later (451). 0: the node accepts mail alone.
        other_nodes: usize = "1", "0" ..= "6";
        /// How long the server waits for these nodes; then the message is refused for now (451).
        confirm_timeout: Duration = "\"10s\"", "\"1s\"" ..= "\"25s\"";
        /// How long the node that accepted a message must be away before another node delivers it.
        takeover_after: Duration = "\"60s\"", "\"5s\"" ..= "\"1d\"";
        /// How long a node that was stopped in good order is waited for instead: it tells the others when it stops.
        planned_absence: Duration = "\"5m\"", "\"0s\"" ..= "\"1d\"";
        /// How long one of the nodes that have a message must be away before another one gets a copy in its place.
        repair_after: Duration = "\"5m\"", "\"5s\"" ..= "\"7d\"";
        /// Messages are given to the nearest nodes that are at least so far away, there and back: far enough that one fire does not take all copies.
        /// 0: to any nodes.
        min_round_trip: Duration = "\"0s\"", "\"0s\"" ..= "\"1s\"";
    }

    /// Limits of an account (RFC 9208). Beyond them, the account's own clients get OVERQUOTA. Accepted mail is delivered in any case. Nodes that
    /// cannot reach each other may together let an account have more. Then nothing is removed, and nothing more is accepted.
    quota: QuotaSection {
        /// Bytes of an account's messages. Each copy counts. 0B: as much as the disk has room for.
        bytes_max: Size = "\"20GiB\"", "\"0B\"" ..= "\"1024TiB\"";
        /// Messages of an account. Each takes about 320 bytes of memory while the account is in use (see `storage.accounts_bytes_max`). 0: no
        /// limit.
        messages_max: usize = "1000000", "0" ..= "100000000";
        /// Mailboxes of an account. 0: 10,000, which is the maximum in any case.
        mailboxes_max: usize = "0", "0" ..= "10000";
    }

    /// The storage engine.
    storage: StorageSection {
        /// Memory for the state of accounts, over all owners. The least recently used are evicted; those with open sessions stay. An account may
        /// not grow beyond what is left of twice this size: one that is alone, beyond this size.
        accounts_bytes_max: Size = "\"192MiB\"", "\"16MiB\"" ..= "\"1TiB\"";
        /// How long the bytes of a removed message stay, for sessions that read them.
        collect_after: Duration = "\"60s\"", "\"0s\"" ..= "\"1d\"";
        /// Size of the engine's block cache.
        cache_bytes: Size = "\"16MiB\"", "\"1MiB\"" ..= "\"1TiB\"";
        /// Size of the write buffer for blobs. Records and logs have up to half of it each, other data up to a quarter.
        write_buffer_bytes: Size = "\"8MiB\"", "\"1MiB\"" ..= "\"1GiB\"";
        /// Full write buffers of each of these kinds that wait for the disk. With so many, further writes wait.
        full_buffers_max: usize = "1", "1" ..= "3";
        /// Size of all journals together. It bounds the time of a start.
        journal_bytes_max: Size = "\"128MiB\"", "\"64MiB\"" ..= "\"64GiB\"";
        /// Free disk space below which the server adds and changes nothing (452, NO).
        free_bytes_min: Size = "\"512MiB\"", "\"0B\"" ..= "\"1TiB\"";
        /// Free disk space below which the server removes nothing either, because the engine needs it to reorganize its files. At most
        /// `free_bytes_min`.
        removal_free_bytes_min: Size = "\"128MiB\"", "\"0B\"" ..= "\"1TiB\"";
        /// Disk reads at once. Further ones wait.
        readers_max: usize = "8", "1" ..= "256";
        /// Scans of the store at once. Each holds a page in memory.
        loads_max: usize = "16", "1" ..= "1024";
    }

    /// Other nodes that hold the same accounts. Without a name, this node is alone and the other keys have no effect. The guide is docs/cluster.md.
    cluster: ClusterSection {
        /// Name of this node, unique in its cluster: letters a to z, digits and inner hyphens, at most 63.
        name: String = "\"\"";
        /// Region of this node: a word of your choice.
        region: String = "\"local\"";
        /// `worker`: this node serves clients. `storage`: it holds everything, relays its clients' sessions to a worker, and serves them itself if
        /// no worker of its region is reachable.
        role: NodeRole = "\"worker\"";
        /// How many workers of a region serve an account, so that its sessions meet on one node; others relay to them. 0: all workers. Set the same
        /// value on all nodes of a region.
        workers_per_partition: usize = "0", "0" ..= "63";
        /// How many workers of a region hold the mail of an account, at least one more than the greatest `other_nodes`. 0: all. Set the same value
        /// on all nodes of the cluster.
        holders_per_region: usize = "0", "0" ..= "63";
        /// Sessions that came to this node and that other nodes serve. Beyond it clients are told to try later.
        relays_max: usize = "10000", "1" ..= "1000000";
        /// Sessions that came to other nodes and that this node serves. Beyond it those nodes ask the next node.
        relayed_max: usize = "10000", "1" ..= "1000000";
        /// Addresses for the other nodes, by TLS with certificates of the cluster's own authority.
        listen: Vec<SocketAddr> = "[\"127.0.0.1:10700\"]";
        /// Host and port that this node announces to the others. Empty: the first address of `listen`, unless that is every address of the machine.
        address: String = "\"\"";
        /// Addresses of other nodes, where they differ from those that the nodes announce, such as `"eu-1=10.0.0.1:10700"`.
        peers: Vec<String> = "[]";
        /// How long a start waits for peers, which are asked whether this disk is an older copy.
        startup_timeout: Duration = "\"2s\"", "\"0s\"" ..= "\"5m\"";
        /// How long an IMAP or POP3 client waits for the nodes of `imap.other_nodes` and `pop3.other_nodes`.
        write_timeout: Duration = "\"10s\"", "\"1s\"" ..= "\"5m\"";
        /// Size of all logs together, which keep the batches that an absent member lacks. Beyond it the longest are cut, and the member gets
        /// snapshots later. In any case each log keeps 4096 ops and all that a linked member has not received yet.
        log_retention_bytes: Size = "\"8GiB\"", "\"1MiB\"" ..= "\"1024TiB\"";
        /// Memory for small blobs that other nodes sent before they are needed, and again as much for blobs that wait for the disk. What has no
        /// room is requested when it is needed.
        ahead_bytes: Size = "\"16MiB\"", "\"0B\"" ..= "\"4GiB\"";
        /// Memory for ops that wait to be sent to other nodes, and again as much for ops that wait for the disk. Each partition may have 16 KiB for
        /// each node in any case.
        replication_buffer_bytes_max: Size = "\"64MiB\"", "\"1MiB\"" ..= "\"64GiB\"";
    }

    /// Connections.
    limits: LimitsSection {
        /// Connections of all protocols together. The server keeps 256 file descriptors free, or half of all, and lowers this limit,
        /// `cluster.relays_max` and `cluster.relayed_max` if necessary.
        connections_max: usize = "20000", "10" ..= "1000000";
        /// SMTP connections among these, set apart, so that mail and users do not take each other's places. 0: a quarter. At most half of the
        /// connections for which there are descriptors. LMTP has an eighth.
        smtp_connections_max: usize = "0", "0" ..= "1000000";
        /// Connections of one client address (IPv6: one /64).
        connections_per_address_max: usize = "2000", "1" ..= "1000000";
        /// IMAP, POP3 and submission connections that have not logged in. At this limit a new connection replaces the oldest of the network that
        /// has most; at half of it, those that have not logged in after 10 s are closed. The same applies to SMTP, where no client logs in.
        unauthenticated_max: usize = "2000", "1" ..= "1000000";
        /// Connections of one client address (IPv6: one /64) among these. 0: an eighth of them, and at least 8. A /48 may have twice as many, or a
        /// quarter of them if that is more.
        unauthenticated_per_address_max: usize = "0", "0" ..= "1000000";
        /// IMAP, POP3 and submission connections of one account.
        connections_per_account_max: usize = "200", "1" ..= "100000";
        /// How long a client may read nothing of what the server sends.
        write_timeout: Duration = "\"60s\"", "\"1s\"" ..= "\"1h\"";
        /// Memory for data that was read for clients and is not sent yet, over all sessions. The share of a session is half a megabyte; without one
        /// it waits. A client that does not read holds none while others wait.
        answers_bytes_max: Size = "\"16MiB\"", "\"512KiB\"" ..= "\"1TiB\"";
        /// Calls that wait until one account is read from disk. Beyond it clients are told to try later.
        waiting_calls_max: usize = "1024", "1" ..= "1000000";
        /// Open uploads of one connection.
        uploads_max: usize = "4", "1" ..= "64";
    }

    /// The log, on standard error. It never contains passwords or mail.
    log: LogSection {
        /// Level of detail.
        level: LogLevel = "\"info\"";
        /// Format of a line.
        format: LogFormat = "\"text\"";
    }

    /// HTTP for Prometheus (/metrics) and for health checks (/healthz, /readyz).
    metrics: MetricsSection {
        /// Addresses for HTTP. Empty: none.
        listen: Vec<SocketAddr> = "[\"127.0.0.1:10900\"]";
    }
}
