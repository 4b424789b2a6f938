//! What a client of IMAP may make a session hold, and for how long.

/// Limits of a session. Those of the syntax are in [`whimbrel_imap::Limits`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of the decoder: sizes and counts of what a client may send.
    pub syntax: whimbrel_imap::Limits,
    /// Of the parser of messages that are appended.
    pub mime: whimbrel_mime::Limits,
    /// From the connection to the login, whatever is sent meanwhile: strangers must not fill the table of connections. A person
    /// who has to type a password does so before his client connects. RFC 9051, section 5.4, sets no least time here.
    pub login_seconds_max: u64,
    /// Without a byte from the client, once logged in. "The duration of that timer MUST be at least 30 minutes" (RFC 9051,
    /// section 5.4); a minute more, as clients in IDLE come back "at least every 29 minutes" (RFC 2177) by clocks of their own.
    pub idle_seconds_max: u64,
    /// For the client to take one chunk of output. Who has stopped reading has gone.
    pub stall_seconds_max: u64,
    /// Wrong logins on one connection; then it is closed. A person mistypes twice. Who guesses must connect again, and is counted
    /// by the directory.
    pub login_failures_max: u32,
    /// How many other nodes must have what a client writes before it is answered. No limit, but it comes the same way: `imap.other_nodes`.
    pub other_nodes: usize,
    /// Whether SCRAM is offered. No limit, but it comes the same way: `auth.scram_iterations` is not 0.
    pub scram: bool,
    /// Whether UNAUTHENTICATE is offered. No limit, but it comes the same way: "IMAP server implementations of this extension MUST provide a way
    /// to disable it when it is not needed" (RFC 8437, 8), for the sake of proxies that look only at the first login.
    pub unauthenticate: bool,
    /// Whether COMPRESS is offered.
    pub compress: bool,
    /// How many bytes one byte of compressed input may stand for, beyond the slack below and messages apart. Deflate could make a thousand of
    /// one, and each is looked at; commands that differ in their tags and numbers only come to some twenty.
    pub inflate_ratio_max: u64,
    /// So many bytes may be inflated beyond that before the connection is closed: a short burst of what repeats itself harms nobody.
    pub inflate_slack_bytes: u64,
    /// Commands that are no commands, one after another: what speaks another protocol is cut off.
    pub bad_commands_max: u32,
    /// Keywords of a mailbox that a session remembers having told in FLAGS; further ones are told with their messages only.
    pub keywords_max: usize,
    /// Ranges of UIDs in `$` (RFC 5182): eight bytes each, kept as long as the mailbox is selected, in IDLE too. What SEARCH finds in mail as it
    /// is lies together, or is little.
    pub saved_ranges_max: usize,
    /// Messages that are sorted or threaded by one command: each costs some ten bytes, in a thread some hundred, for as long as that takes.
    pub sort_messages_max: usize,
    /// Memory for the texts that one SORT goes by: some eighty bytes for each of two hundred thousand messages. When it is full longer texts are
    /// compared by their beginning.
    pub sort_key_bytes_max: usize,
    /// Message ids of one References field that THREAD looks at, the last ones. Real threads are deeper, but each of their messages has
    /// a References field of its own.
    pub thread_references_max: usize,
    /// Messages of one APPEND (RFC 3502). All of them become visible in one commit, which has a greatest size; what an upload leaves of
    /// each is kept until then.
    pub append_messages_max: usize,
    /// What the messages of one APPEND leave in memory, and twice in the commit: their summaries, together. A first message is taken in
    /// any case.
    pub append_summary_bytes_max: usize,
    /// Whether APPEND refuses header fields that are not ASCII of who has not enabled UTF8=ACCEPT (RFC 6855, 4).
    pub ascii_headers: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            syntax: whimbrel_imap::Limits::default(),
            mime: whimbrel_mime::Limits::default(),
            login_seconds_max: 120,
            idle_seconds_max: 31 * 60,
            stall_seconds_max: 5 * 60,
            login_failures_max: 3,
            other_nodes: 0,
            scram: true,
            unauthenticate: true,
            compress: true,
            inflate_ratio_max: 100,
            inflate_slack_bytes: 1 << 20,
            bad_commands_max: 20,
            keywords_max: 1000,
            saved_ranges_max: 16_384,
            sort_messages_max: 500_000,
            sort_key_bytes_max: 16 << 20,
            thread_references_max: 100,
            append_messages_max: 1000,
            append_summary_bytes_max: 4 << 20,
            ascii_headers: false,
        }
    }
}

/// Output that is gathered before it is sent: what a session makes at a time for a client that reads slowly or not at all.
pub const OUTPUT_BYTES: usize = 64 * 1024;

/// How long a session in IDLE that was refused what has changed waits before it asks again. Where the disk is full each try reads the account anew, and
/// many sessions wait; a client that is told two seconds late does not notice.
pub const IDLE_PAUSE_MICROS: u64 = 2_000_000;
