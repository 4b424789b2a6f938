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
    /// The process as a whole.
    server: Server {
        /// Where everything is kept: mail, accounts, keys. Created with mode 0700.
        data_dir: PathBuf = "\"./whimbrel-data\"";
        /// The name in greetings, Received fields and the first certificate. Empty: the machine's name.
        hostname: String = "\"\"";
        /// Partition owners: how many accounts can be worked on at once. 0: one a core.
        owners: usize = "0", "0" ..= "256";
        /// How long a stopping server waits for sessions to end and for what they started to reach the disk.
        shutdown_wait: Duration = "\"10s\"", "\"0s\"" ..= "\"10m\"";
        /// Whether the allocator may take pages of 2 MiB (transparent huge pages): flags of accounts with hundreds of thousands of messages are
        /// read a quarter faster, and the process takes up to a fifth more memory.
        huge_pages: bool = "false";
    }

    /// TLS 1.2 and 1.3. Without a certificate of your own, one is made and signed by itself at the first start, in DATA/tls.
    tls: TlsSection {
        /// The certificate chain, PEM. Read again when it changes, and on SIGHUP; a broken new one is logged and the old one stays.
        cert: PathBuf = "\"\"";
        /// Its private key, PEM.
        key: PathBuf = "\"\"";
        /// How often to look whether the files have changed.
        reload_interval: Duration = "\"5s\"", "\"1s\"" ..= "\"1h\"";
        /// How long a client may take for a handshake: a half-open connection costs memory and a place.
        handshake_timeout: Duration = "\"15s\"", "\"1s\"" ..= "\"5m\"";
        /// Handshakes under way at once; further ones wait for a place within the same time. A handshake is costly for us and cheap for a client.
        /// Of one client address (IPv6: of a /64) an eighth of them.
        handshakes_max: usize = "128", "1" ..= "100000";
    }

    /// IMAP4rev2 and IMAP4rev1.
    imap: ImapSection {
        /// Addresses for IMAP that becomes TLS by STARTTLS (the usual port is 143).
        listen: Vec<SocketAddr> = "[\"127.0.0.1:10143\"]";
        /// Addresses for IMAP over TLS from the first byte (the usual port is 993).
        listen_tls: Vec<SocketAddr> = "[\"127.0.0.1:10993\"]";
        /// How long a client may be silent after login; RFC 9051, 5.4 asks for at least 30 minutes.
        idle_timeout: Duration = "\"31m\"", "\"30m\"" ..= "\"7d\"";
        /// How long a client may take until it has logged in: a stranger's connection costs a place.
        login_timeout: Duration = "\"2m\"", "\"1s\"" ..= "\"30m\"";
        /// Wrong logins on one connection, after which it is closed: who guesses must connect again.
        login_failures_max: u32 = "3", "1" ..= "1000";
        /// Lines that are no commands, one after another, after which the connection is closed: such a client speaks another protocol.
        bad_commands_max: u32 = "20", "1" ..= "100000";
        /// How many other nodes of the cluster must have on disk what a client writes, bodies included, before it hears OK (never more than there are): what was
        /// acknowledged survives the loss of so many disks. When too few can be reached, what writes is refused for a while (NO), also on a node that is cut off;
        /// when they do not answer within `cluster.write_patience`, too: what was to be added is taken back then, anything else is done on this node and may be
        /// asked again. 0: what is on this node's disk is acknowledged, and is lost with it if no other has it yet. Of a session that is brought to another node, that one's key counts.
        other_nodes: usize = "0", "0" ..= "63";
        /// Keywords of a mailbox that are told in FLAGS; further ones are told with their messages only.
        keywords_max: usize = "1000", "10" ..= "100000";
        /// Separate ranges in a saved search result (SEARCH RETURN (SAVE), RFC 5182); a more scattered one is refused (NOTSAVED). Each costs
        /// eight bytes for as long as the mailbox is selected.
        saved_ranges_max: usize = "16384", "1000" ..= "5000000";
        /// Messages sorted or threaded by one command: each costs some ten bytes, in a thread some hundred, for as long as that takes.
        sort_messages_max: usize = "500000", "1000" ..= "10000000";
        /// Memory for the texts of one SORT; beyond, texts are compared by their beginning.
        sort_key_bytes_max: Size = "\"16MiB\"", "\"64KiB\"" ..= "\"1GiB\"";
        /// SORT and THREAD at work at once; the others wait. Each holds what the two keys above allow.
        sorts_at_once_max: usize = "2", "1" ..= "1000";
        /// Message ids of one References field that THREAD looks at, the last ones.
        thread_references_max: usize = "100", "10" ..= "10000";
        /// Whether a client may log out and in again on the same connection (UNAUTHENTICATE, RFC 8437): turn it off behind a proxy that looks
        /// only at the first login.
        unauthenticate: bool = "true";
        /// Whether clients may have both directions compressed (COMPRESS=DEFLATE): it saves their bandwidth and costs processor time here. What
        /// lengths then betray to whoever watches the line is told in hostile.md; false where that matters more.
        compress: bool = "true";
        /// How many bytes a byte of compressed input may stand for, messages apart: deflate could make a thousand of one.
        inflate_ratio_max: u64 = "100", "20" ..= "2000";
        /// What may be inflated beyond that before the connection is closed.
        inflate_slack_bytes: Size = "\"1MiB\"", "\"64KiB\"" ..= "\"1GiB\"";
        /// A command before login, literals included: a stranger has nothing longer to say than a bearer token.
        command_bytes_max_before_login: Size = "\"16KiB\"", "\"1KiB\"" ..= "\"1MiB\"";
        /// A command after login, sequence sets apart, literals included: it is held in memory. RFC 7162, section 4 asks for 8192 octets.
        command_bytes_max: Size = "\"256KiB\"", "\"8KiB\"" ..= "\"16MiB\"";
        /// The sequence sets of one command, as text: a million UIDs with their commas fit.
        sequence_set_bytes_max: Size = "\"16MiB\"", "\"8KiB\"" ..= "\"64MiB\"";
        /// Separate ranges in one sequence set: each costs eight bytes of memory.
        sequence_set_ranges_max: usize = "1100000", "1000" ..= "5000000";
        /// A literal before login: names and passwords are short.
        literal_bytes_max_before_login: Size = "\"4KiB\"", "\"256B\"" ..= "\"64KiB\"";
        /// A literal after login, the message of APPEND excepted: it is held in memory.
        literal_bytes_max: Size = "\"64KiB\"", "\"4KiB\"" ..= "\"4MiB\"";
        /// Literals in one command: SEARCH may have one for each key.
        literal_count_max: usize = "1000", "10" ..= "10000";
        /// The message of APPEND.
        append_bytes_max: Size = "\"64MiB\"", "\"1MiB\"" ..= "\"1GiB\"";
        /// Messages of one APPEND (MULTIAPPEND): all of them become visible in one commit.
        append_messages_max: usize = "1000", "1" ..= "10000";
        /// What the messages of one APPEND are to the server until they are stored: their summaries, together.
        append_summary_bytes_max: Size = "\"4MiB\"", "\"64KiB\"" ..= "\"6MiB\"";
        /// Whether APPEND refuses header fields that are not ASCII of clients that have not enabled UTF8=ACCEPT, as RFC 6855, section 4 asks.
        /// Then a client without it cannot put back what it was given, old mail above all.
        append_ascii_headers_only: bool = "false";
        /// What of a refused literal is still read and dropped so that the connection can go on.
        skip_bytes_max: Size = "\"128MiB\"", "\"0B\"" ..= "\"1GiB\"";
        /// Depth of one SEARCH, as a tree: a list in a list, an OR in an OR and NOT NOT add nothing. Deeper nesting costs stack and serves nobody.
        nesting_depth_max: usize = "32", "8" ..= "200";
        /// Keys of one SEARCH: each is tried on each message.
        search_keys_max: usize = "4096", "16" ..= "100000";
        /// Items of one FETCH: each is answered for each message.
        fetch_items_max: usize = "256", "16" ..= "10000";
        /// Names in one HEADER.FIELDS: each is looked for in each message.
        header_fields_max: usize = "512", "16" ..= "10000";
        /// Numbers in a section such as 1.2.3: no message is nested deeper than it is read.
        section_depth_max: usize = "64", "8" ..= "100";
        /// Flags in one list: each becomes part of each message named.
        flags_max: usize = "256", "16" ..= "10000";
        /// Patterns in one LIST: each is tried on each mailbox.
        list_patterns_max: usize = "32", "1" ..= "1000";
        /// Their text together, the reference counted with each: a pattern costs its length on each mailbox.
        list_pattern_bytes_max: Size = "\"4KiB\"", "\"2KiB\"" ..= "\"1MiB\"";
    }

    /// POP3. A password is never accepted in the clear.
    pop3: Pop3Section {
        /// Addresses for POP3 that becomes TLS by STLS (the usual port is 110).
        listen: Vec<SocketAddr> = "[\"127.0.0.1:10110\"]";
        /// Addresses for POP3 over TLS from the first byte (the usual port is 995).
        listen_tls: Vec<SocketAddr> = "[\"127.0.0.1:10995\"]";
        /// How long a client may give no command after login; RFC 1939, 3 asks for at least 10 minutes. Then nothing is removed.
        idle_timeout: Duration = "\"10m\"", "\"10m\"" ..= "\"7d\"";
        /// How long a client may take until it has logged in: a stranger's connection costs a place.
        login_timeout: Duration = "\"2m\"", "\"1s\"" ..= "\"30m\"";
        /// Wrong logins on one connection, after which it is closed: who guesses must connect again.
        login_failures_max: u32 = "3", "1" ..= "1000";
        /// Lines that are no commands, one after another, after which the connection is closed: such a client speaks another protocol.
        bad_commands_max: u32 = "20", "1" ..= "100000";
        /// As `imap.other_nodes`, of what QUIT removes: if too few have that on disk it fails for a while (-ERR).
        other_nodes: usize = "0", "0" ..= "63";
        /// A command line with its line end; RFC 2449, 4 asks for 255, a user name with a mailbox behind it may be longer.
        command_line_bytes_max: Size = "\"2KiB\"", "\"255B\"" ..= "\"64KiB\"";
        /// A line of AUTH.
        auth_line_bytes_max: Size = "\"12KiB\"", "\"1KiB\"" ..= "\"64KiB\"";
    }

    /// SMTP for incoming mail; the limits hold for LMTP, too.
    smtp: SmtpSection {
        /// Addresses for SMTP (the usual port is 25). STARTTLS is offered.
        listen: Vec<SocketAddr> = "[\"127.0.0.1:10025\"]";
        /// A command line with its line end; RFC 5321, 4.5.3.1.4 has 512, extensions add to it.
        command_line_bytes_max: Size = "\"2KiB\"", "\"1KiB\"" ..= "\"64KiB\"";
        /// A line of AUTH; RFC 4954, 4 asks for 12,288.
        auth_line_bytes_max: Size = "\"12KiB\"", "\"12KiB\"" ..= "\"64KiB\"";
        /// Pipelined commands that wait unread: they are held in memory.
        input_buffer_bytes_max: Size = "\"64KiB\"", "\"16KiB\"" ..= "\"1MiB\"";
        /// Recipients of one message; RFC 5321, 4.5.3.1.8 wants at least 100.
        recipients_max: usize = "1000", "100" ..= "10000";
        /// Refused recipients of one message, after which the connection ends: such a client is not delivering mail.
        recipients_refused_max: usize = "1000", "10" ..= "100000";
        /// A message; announced as SIZE.
        message_bytes_max: Size = "\"64MiB\"", "\"64KiB\"" ..= "\"1GiB\"";
        /// What of a refused message is still read and dropped so that the client gets its answer.
        discard_bytes_max: Size = "\"64MiB\"", "\"0B\"" ..= "\"1GiB\"";
        /// A line in a message; RFC 5321, 4.5.3.1.6 has 1000 octets, real mail has more.
        text_line_bytes_max: Size = "\"64KiB\"", "\"1KiB\"" ..= "\"1MiB\"";
        /// One BDAT chunk.
        bdat_chunk_bytes_max: Size = "\"64MiB\"", "\"64KiB\"" ..= "\"1GiB\"";
        /// Received fields in a message: more is a mail loop.
        received_hops_max: usize = "50", "10" ..= "1000";
        /// Commands of one connection.
        commands_max: u32 = "100000", "100" ..= "100000000";
        /// NOOP, RSET, VRFY, HELP and hellos of one connection since its last accepted message: a client that asks so much delivers no mail.
        idle_commands_max: u32 = "100", "10" ..= "1000000";
        /// Commands with errors of one connection: such a client is broken, or looking for holes.
        errors_max: u32 = "20", "1" ..= "10000";
        /// Messages of one connection.
        transactions_max: u32 = "10000", "1" ..= "100000000";
        /// Unknown recipients of one connection: more is harvesting of addresses.
        unknown_recipients_max: u32 = "50", "1" ..= "100000";
        /// Unknown recipients of one client address (IPv6: of a /64) within the window, over all its connections: beyond, it is told to try later (450), whoever it
        /// names. `auth.peers_max` addresses are remembered.
        unknown_recipients_per_address_max: u32 = "200", "1" ..= "1000000";
        /// How long an unknown recipient counts.
        unknown_recipients_window: Duration = "\"1h\"", "\"1s\"" ..= "\"7d\"";
        /// How long to wait for a command; RFC 5321, 4.5.3.2.7 asks for 5 minutes.
        command_wait_max: Duration = "\"5m\"", "\"5s\"" ..= "\"1h\"";
        /// How long a started command line may take: a client that sends an octet a minute is not served.
        command_line_wait_max: Duration = "\"60s\"", "\"5s\"" ..= "\"1h\"";
        /// How long to wait for the next part of a message; RFC 5321, 4.5.3.2.5 asks for 3 minutes.
        data_block_wait_max: Duration = "\"3m\"", "\"5s\"" ..= "\"1h\"";
        /// How long a message may take, beside what its least rate allows.
        data_wait_max: Duration = "\"10m\"", "\"5s\"" ..= "\"1d\"";
        /// The least mean rate of a message, in bytes a second; 0: any.
        data_rate_bytes_per_second_min: u32 = "64", "0" ..= "1000000";
        /// Accounts that the recipients of one message lead to, aliases followed: each gets its own summary, in one entry of the queue.
        targets_max: usize = "1000", "1" ..= "10000";
    }

    /// Submission: SMTP from users, who log in and send as themselves. The limits of SMTP hold, and these.
    submission: SubmissionSection {
        /// Addresses for submission that becomes TLS by STARTTLS (the usual port is 587).
        listen: Vec<SocketAddr> = "[\"127.0.0.1:10587\"]";
        /// Addresses for submission over TLS from the first byte (the usual port is 465).
        listen_tls: Vec<SocketAddr> = "[\"127.0.0.1:10465\"]";
        /// Whether a copy of what is sent goes into the sender's mailbox for sent mail. A client's own copy takes its place.
        save_sent: bool = "true";
        /// How long a client may take until it has logged in: a stranger's connection costs a place.
        login_timeout: Duration = "\"2m\"", "\"1s\"" ..= "\"30m\"";
        /// Wrong logins on one connection, after which it is closed: who guesses must connect again.
        login_failures_max: u32 = "3", "1" ..= "1000";
        /// The header of a message: it is held in memory until it is known from whom it is.
        header_bytes_max: Size = "\"256KiB\"", "\"16KiB\"" ..= "\"4MiB\"";
        /// Messages that one account may send within the window: a stolen password must not flood the world.
        messages_max: u32 = "1000", "1" ..= "100000000";
        /// Recipients that one account may name within the window, of all its messages together.
        recipients_max: u32 = "5000", "1" ..= "100000000";
        /// How long a message and its recipients count.
        messages_window: Duration = "\"1h\"", "\"1s\"" ..= "\"7d\"";
    }

    /// LMTP, for a mail server in front of this one. There is no authentication: keep it on addresses that only that server reaches.
    lmtp: LmtpSection {
        /// Addresses for LMTP (the usual port is 24).
        listen: Vec<SocketAddr> = "[\"127.0.0.1:10024\"]";
    }

    /// How passwords are kept (argon2id) and how guessing is slowed down.
    auth: AuthSection {
        /// Memory of one argon2 computation. New passwords only: a stored one keeps what it was made with.
        argon2_memory: Size = "\"19MiB\"", "\"1MiB\"" ..= "\"1GiB\"";
        /// Passes of argon2 over its memory.
        argon2_passes: u32 = "2", "1" ..= "100";
        /// Lanes of argon2.
        argon2_lanes: u32 = "1", "1" ..= "16";
        /// Iterations of the keys that are kept for SCRAM-SHA-256, of new passwords only; at least 4096. More make a stolen store harder to
        /// use, and each login slower on the client; clients on Cyrus SASL, mbsync among them, give up above 65536. They are weaker than
        /// argon2: 0 keeps none and offers no SCRAM.
        scram_iterations: u32 = "60000", "0" ..= "65536";
        /// Passwords checked at once: each costs argon2's memory and a core.
        verifications_max: usize = "2", "1" ..= "64";
        /// Logins that wait for such a check; beyond, clients are told to try later. They are served in turns by network (IPv4 /24, IPv6 /48), those first that have
        /// logged in to the account from there before; when all places are taken the last of the network that has most has to try later.
        waiting_max: usize = "256", "1" ..= "100000";
        /// Of these, logins of one client address (IPv6: of a /64): nobody takes all places.
        waiting_per_peer_max: usize = "64", "1" ..= "100000";
        /// Failures of one client address (IPv6: of a /64) within the window before it is refused unheard, but for passwords that were right from there within `cache_time`.
        failures_max: u32 = "20", "1" ..= "1000000";
        /// How long a failure counts.
        failure_window: Duration = "\"60s\"", "\"1s\"" ..= "\"1d\"";
        /// Client addresses whose failures are remembered.
        peers_max: usize = "16384", "16" ..= "10000000";
        /// Logins remembered, so that a client's further connections do not pay argon2 again.
        cache_entries_max: usize = "16384", "1" ..= "10000000";
        /// For how long; 0s turns it off. Only in memory, as a keyed hash; a changed password ends it at once.
        cache_time: Duration = "\"5m\"", "\"0s\"" ..= "\"1d\"";
    }

    /// What is taken from a message for its summary. Beyond a limit the summary knows less; no message is refused for it.
    mime: MimeSection {
        /// Nested multiparts and messages that are looked into; deeper ones are opaque.
        nesting_max: usize = "50", "10" ..= "100";
        /// Parts of a message, at all depths together.
        parts_max: usize = "1000", "10" ..= "100000";
        /// Bytes of one header in which fields are looked for.
        header_bytes_max: Size = "\"256KiB\"", "\"16KiB\"" ..= "\"4MiB\"";
        /// Fields of one header that are looked at.
        header_fields_max: usize = "2000", "100" ..= "100000";
        /// Addresses taken from the fields of one name.
        addresses_max: usize = "2000", "100" ..= "100000";
        /// Parameters of one field.
        params_max: usize = "100", "10" ..= "1000";
        /// A summary: it is read and held in memory whole.
        summary_bytes_max: Size = "\"256KiB\"", "\"4KiB\"" ..= "\"1MiB\"";
        /// Bytes of a message's text in which its preview is looked for; styles may stand before the text of HTML.
        preview_bytes_max: Size = "\"64KiB\"", "\"1KiB\"" ..= "\"1MiB\"";
    }

    /// Accepted messages on their way into mailboxes.
    queue: QueueSection {
        /// Messages not delivered yet: beyond, senders are told to come back (452).
        entries_max: usize = "10000", "1" ..= "10000000";
        /// Their envelopes and summaries in memory.
        bytes_max: Size = "\"64MiB\"", "\"1MiB\"" ..= "\"16GiB\"";
        /// After how long a delivery that could not be made (a full disk) is tried again.
        retry_after: Duration = "\"10s\"", "\"1s\"" ..= "\"1h\"";
        /// How many other nodes of the cluster must have a message on disk, its body included, before whoever brings it is told that it is accepted
        /// (never more than there are): what was accepted survives the loss of so many disks. When too few can be reached, mail is refused for a while
        /// (451), which senders are made for. 0: a node accepts mail alone, and what only it has is lost with its disk.
        other_nodes: usize = "1", "0" ..= "63";
        /// How long they are waited for; then mail is refused for a while (451).
        patience: Duration = "\"10s\"", "\"1s\"" ..= "\"25s\"";
        /// After how long without the node that accepted a message another one delivers it.
        takeover_after: Duration = "\"60s\"", "\"5s\"" ..= "\"1d\"";
    }

    /// What an account may hold (RFC 9208). Beyond, its own clients are refused with OVERQUOTA. Mail that was accepted is delivered in any case.
    /// Nodes that are apart may together let an account have more: then nothing is removed, and nothing more is taken.
    quota: QuotaSection {
        /// Bytes of its messages; each copy counts. 0B: as much as the disk has room for.
        bytes_max: Size = "\"20GiB\"", "\"0B\"" ..= "\"1024TiB\"";
        /// Its messages: some two hundred bytes of memory each while the account is in use. 0: no limit.
        messages_max: usize = "1000000", "0" ..= "100000000";
        /// Its mailboxes. 0: 10,000, which is the most in any case.
        mailboxes_max: usize = "0", "0" ..= "10000";
    }

    /// What storage may use.
    storage: StorageSection {
        /// Account state held in memory, all owners together; what was not used longest is evicted.
        accounts_bytes_max: Size = "\"256MiB\"", "\"16MiB\"" ..= "\"1TiB\"";
        /// How long the bytes of a removed message stay, so that a session that is reading them can end.
        collect_after: Duration = "\"60s\"", "\"0s\"" ..= "\"1d\"";
        /// The engine's cache of blocks.
        cache_bytes: Size = "\"16MiB\"", "\"1MiB\"" ..= "\"1TiB\"";
        /// What is written is gathered in memory up to this size, then moved into files: bodies; records and logs up to half of it each, the rest up to a quarter.
        write_buffer_bytes: Size = "\"8MiB\"", "\"1MiB\"" ..= "\"1GiB\"";
        /// Of each of these kinds, full buffers that are not in files yet while the disk is behind; with so many, what comes to be written waits.
        full_buffers_max: usize = "1", "1" ..= "3";
        /// All journals together: bounds disk space and the time of a start.
        journal_bytes_max: Size = "\"128MiB\"", "\"64MiB\"" ..= "\"64GiB\"";
        /// Free room on the disk below which nothing is added or changed (452, NO); reading goes on, and so does what makes room.
        free_bytes_min: Size = "\"512MiB\"", "\"0B\"" ..= "\"1TiB\"";
        /// Free room below which nothing can be removed either (EXPUNGE, DELETE, marking as deleted): the store needs so much to put itself in order. Never more than `free_bytes_min`.
        removal_free_bytes_min: Size = "\"128MiB\"", "\"0B\"" ..= "\"1TiB\"";
        /// Reads of the disk at once; further ones wait.
        readers_max: usize = "8", "1" ..= "256";
        /// Scans of the store under way at once: each holds a page in memory.
        loads_max: usize = "16", "1" ..= "1024";
    }

    /// Other nodes that hold the same accounts. Without a name this node is alone, and nothing here matters. How nodes are set up: cluster.md.
    cluster: ClusterSection {
        /// This node's name in its cluster: letters a to z, digits and inner hyphens, at most 63. No two nodes have one name.
        name: String = "\"\"";
        /// Where it stands: a word of your own.
        region: String = "\"local\"";
        /// What it is there for. `worker`: it serves clients. `storage`: it holds everything, and brings its clients' sessions to a worker; it serves them itself
        /// when no worker of its region can be reached.
        role: NodeRole = "\"worker\"";
        /// How many workers of a region serve an account, so that its sessions meet at one node: those that come to other nodes are brought to the first
        /// of these that can be reached, and if there is none to the next. 0: all workers, each what comes to it. Which nodes hold the mail says `holders_per_region`. To be
        /// the same on all nodes of a region.
        workers_per_partition: usize = "0", "0" ..= "63";
        /// How many workers of a region hold the mail of an account; 0: all. Those that do not drop it when those that do have all of it. Each node of role `storage` holds
        /// all mail in any case, and at least as many nodes hold an account's mail as have to have what is accepted (`queue.other_nodes`, `imap.other_nodes`, `pop3.other_nodes`, and
        /// one). To be the same on all nodes of the cluster.
        holders_per_region: usize = "0", "0" ..= "63";
        /// Sessions that came here and are served by other nodes; beyond, clients are told to try later.
        relays_max: usize = "10000", "1" ..= "1000000";
        /// Sessions that came to other nodes and are served here; beyond, those nodes ask the next.
        relayed_max: usize = "10000", "1" ..= "1000000";
        /// Addresses for the other nodes, by TLS with certificates of the cluster's own.
        listen: Vec<SocketAddr> = "[\"127.0.0.1:10700\"]";
        /// Host and port under which the others reach this node; it tells them. Empty: the first of `listen`, if it is one address.
        address: String = "\"\"";
        /// Other nodes whose addresses are not those that they tell, such as "eu-1=10.0.0.1:10700".
        peers: Vec<String> = "[]";
        /// How long a start waits for peers that do not answer. They are asked what they remember of this node: whether its disk is an older one.
        patience: Duration = "\"2s\"", "\"0s\"" ..= "\"5m\"";
        /// How long an IMAP or POP3 client waits for the nodes of `imap.other_nodes` and `pop3.other_nodes`.
        write_patience: Duration = "\"10s\"", "\"1s\"" ..= "\"5m\"";
        /// Bytes that all logs together may have. They keep what a member lacks, however long it is away, until they have more: then the longest partitions are cut, and the member
        /// gets these as states, which is more to send than what it lacks. In any case 4096 operations of each log stay, and what a linked member has not got yet.
        kept_bytes: Size = "\"8GiB\"", "\"1MiB\"" ..= "\"1024TiB\"";
        /// Memory for small bodies that another node has sent before they are needed here, and again as much for those that the disk has not taken yet. All members have the same share
        /// of it. What finds no place is asked for when it is needed, two ways later.
        ahead_bytes: Size = "\"16MiB\"", "\"0B\"" ..= "\"4GiB\"";
        /// Memory for operations that wait to be sent to other nodes, and again as much for theirs that wait for the disk. Partitions that are busy share it; each may have 16 KiB for each
        /// node in any case.
        windows_bytes_max: Size = "\"64MiB\"", "\"1MiB\"" ..= "\"64GiB\"";
    }

    /// Connections.
    limits: LimitsSection {
        /// Connections, all protocols together: each costs memory and a file descriptor. Never so many that fewer than 256 descriptors (or half of them all) are left, in a cluster
        /// with `cluster.relays_max` and `cluster.relayed_max`: all three get the same part then.
        connections_max: usize = "20000", "10" ..= "1000000";
        /// Of these, SMTP, which has places of its own: mail cannot take those of users, nor users those of mail. 0: a quarter. Never more than half of those for which
        /// there are descriptors. LMTP has an eighth.
        smtp_connections_max: usize = "0", "0" ..= "1000000";
        /// Connections of one client address (IPv6: of a /64), so that one client cannot take all places.
        connections_per_address_max: usize = "2000", "1" ..= "1000000";
        /// IMAP, POP3 and submission connections that have not logged in: strangers cannot take all places. When all of theirs are taken, who comes has the place of
        /// the oldest of the network that has most. When half of them are, those go that have not logged in after 10 s. So it is with SMTP, where all are strangers.
        unauthenticated_max: usize = "2000", "1" ..= "1000000";
        /// Of these, and of those of SMTP, connections of one client address (IPv6: of a /64). 0: an eighth of them, and at least 8. Of a /48: two of these, or a quarter.
        unauthenticated_per_address_max: usize = "0", "0" ..= "1000000";
        /// IMAP, POP3 and submission connections of one account.
        connections_per_account_max: usize = "200", "1" ..= "100000";
        /// How long a client may take none of what it is sent: one that never reads holds memory.
        write_timeout: Duration = "\"60s\"", "\"1s\"" ..= "\"1h\"";
        /// Memory for what is read for clients and not yet sent, of all sessions together: rows, content rows, bodies. Half a megabyte is a session's
        /// share; who finds none waits for its turn, and who does not read what it is sent holds none while others wait.
        answers_bytes_max: Size = "\"16MiB\"", "\"512KiB\"" ..= "\"1TiB\"";
        /// Calls that wait for one account to be read from disk; beyond, clients are told to try later.
        waiting_calls_max: usize = "1024", "1" ..= "1000000";
        /// Uploads one connection may have open; those of an APPEND that are whole and wait for the others do not count.
        uploads_max: usize = "4", "1" ..= "64";
    }

    /// The log, on standard error. It never holds passwords or mail.
    log: LogSection {
        /// How much.
        level: LogLevel = "\"info\"";
        /// How it looks.
        format: LogFormat = "\"text\"";
    }

    /// Figures for Prometheus at /metrics, and /healthz.
    metrics: MetricsSection {
        /// Addresses for HTTP; empty: none.
        listen: Vec<SocketAddr> = "[\"127.0.0.1:10900\"]";
    }
}
