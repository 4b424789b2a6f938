//! What a client of POP3 may make a session hold, and for how long.

/// Limits of a session. Those of the syntax are in [`whimbrel_pop3::Limits`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of the decoder: sizes of lines.
    pub syntax: whimbrel_pop3::Limits,
    /// How many other nodes must have what QUIT removes before it is answered. No limit, but it comes the same way: `pop3.other_nodes`.
    pub other_nodes: usize,
    /// Whether SCRAM is offered. No limit, but it comes the same way: `auth.scram_iterations` is not 0.
    pub scram: bool,
    /// From the connection to the login, whatever is sent meanwhile: strangers must not fill the table of connections. Deviation: RFC 1939,
    /// section 3 has ten minutes for all states; nobody types a password into a connection that is open already.
    pub login_seconds_max: u64,
    /// Without a whole command from the client, once logged in. "Such a timer MUST be of at least 10 minutes' duration. The receipt of any
    /// command from the client during that interval should suffice to reset the autologout timer" (RFC 1939, 3). Octets that are
    /// no command do not: a client that sends one a minute is gone after as long.
    pub idle_seconds_max: u64,
    /// For the client to take one chunk of output. Who has stopped reading has gone.
    pub stall_seconds_max: u64,
    /// Wrong logins on one connection; then it is closed. Who guesses must connect again, and is counted by the directory.
    pub login_failures_max: u32,
    /// Lines that are no commands, one after another: what speaks another protocol is cut off.
    pub bad_commands_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            syntax: whimbrel_pop3::Limits::default(),
            other_nodes: 0,
            scram: true,
            login_seconds_max: 120,
            idle_seconds_max: 10 * 60,
            stall_seconds_max: 5 * 60,
            login_failures_max: 3,
            bad_commands_max: 20,
        }
    }
}

/// Output that is gathered before it is sent: what a session makes at a time for a client that reads slowly or not at all.
pub(super) const OUTPUT_BYTES: usize = 64 * 1024;

/// Messages that are looked up at once for a client that does not wait for each answer: of each the place of its octets and the header fields in
/// front of them are held until it is sent.
pub(super) const AHEAD_MESSAGES_MAX: usize = 16;
