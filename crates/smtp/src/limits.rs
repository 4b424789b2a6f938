//! Every limit on what a client can send: name (unit last), reason, default.
//!
//! A limit that a client meets is answered by a reply that says so; those that guard the session as a whole end it with 421.

use core::time::Duration;

/// Limits of one session. All fields are public so that a configuration can fill them; [`Limits::default`] is what a server
/// on the open Internet wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Octets of a command line with its CRLF. RFC 5321 4.5.3.1.4 has 512; SIZE, BODY, SMTPUTF8 and AUTH add to it (RFC 1870,
    /// 6152, 6531, 4954: together 579 more), and UTF-8 paths are longer. Reply 500.
    pub command_line_bytes_max: usize,
    /// Octets of a line while AUTH is allowed, with its CRLF. RFC 4954 4 asks for 12,288. Reply 500 or cancelled exchange.
    pub auth_line_bytes_max: usize,
    /// Bytes that wait unread by the machine: pipelined commands behind an open question. Never below a line's limit.
    pub input_buffer_bytes_max: usize,
    /// Replies held back to share one write; when passed they go out before the next command is read.
    pub output_buffer_bytes_max: usize,
    /// Accepted recipients of one transaction; RFC 5321 4.5.3.1.8 wants at least 100. Reply 452 4.5.3.
    pub recipients_max: usize,
    /// Refused recipients of one transaction: a client that goes on after so many refusals is not delivering mail. 421.
    pub recipients_refused_max: usize,
    /// Octets of a message after dots are taken out; announced as SIZE (RFC 1870). Reply 552 5.3.4.
    pub message_bytes_max: u64,
    /// Octets that are still read and thrown away so that the client gets its reply: of one refused message in DATA, of all refused
    /// chunks of a session in BDAT. Beyond: 421, close.
    pub discard_bytes_max: u64,
    /// Octets of a line in a message, without CRLF. RFC 5321 4.5.3.1.6 has 998; real mail has more. Reply 554 5.6.0.
    pub text_line_bytes_max: usize,
    /// Declared size of one BDAT chunk. A larger one cannot be skipped cheaply: 552 5.3.4 and close. Never allocated.
    pub bdat_chunk_bytes_max: u64,
    /// Chunk bytes given to the owner and not yet acknowledged: beyond, the machine gives no more and reads no more.
    pub data_unacknowledged_bytes_max: usize,
    /// Received fields in a message: more is a mail loop. Deviation: RFC 5321 6.3 has "normally at least 100"; no sound path has 50,
    /// and a loop costs its whole length. Reply 554 5.4.6.
    pub received_hops_max: usize,
    /// Bytes at the head of a message that are searched for Received and Delivered-To fields.
    pub header_watch_bytes_max: usize,
    /// Commands of a session. 421.
    pub commands_max: u32,
    /// Commands that bring no message nearer (NOOP, RSET, VRFY, HELP, a further hello), since the last message was accepted: a client that
    /// asks so many delivers no mail. 421.
    pub idle_commands_max: u32,
    /// Commands answered by a syntax or sequence error, or a failed policy of the protocol. 421.
    pub errors_max: u32,
    /// Transactions (accepted MAIL) of a session. 421 before the next.
    pub transactions_max: u32,
    /// Recipients refused as unknown (5.1.1) in a session: the guard against harvesting. 421.
    pub unknown_recipients_max: u32,
    /// Failed AUTH attempts of a session. 421.
    pub auth_failures_max: u32,
    /// From the connection to the login in submission, whatever is sent meanwhile: strangers must not fill the places. Time in which the
    /// server itself is asked counts, but ends nothing. 421.
    pub login_wait_max: Duration,
    /// Wait for a complete command. RFC 5321 4.5.3.2.7: at least 5 minutes. 421.
    pub command_wait_max: Duration,
    /// From the first octet of a command line to its CRLF: a client that sends an octet a minute is not served. 421.
    pub command_line_wait_max: Duration,
    /// Wait for the next octets of a message. RFC 5321 4.5.3.2.5: 3 minutes. 421.
    pub data_block_wait_max: Duration,
    /// Time a message may take beside what `data_rate_bytes_per_second_min` allows.
    pub data_wait_max: Duration,
    /// Least mean rate of a message, counted while the machine waits for the client. 0: no such guard.
    pub data_rate_bytes_per_second_min: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            command_line_bytes_max: 2_048,
            auth_line_bytes_max: 12_288,
            input_buffer_bytes_max: 64 * 1024,
            output_buffer_bytes_max: 16 * 1024,
            recipients_max: 1_000,
            recipients_refused_max: 1_000,
            message_bytes_max: 64 * 1024 * 1024,
            discard_bytes_max: 64 * 1024 * 1024,
            text_line_bytes_max: 64 * 1024,
            bdat_chunk_bytes_max: 64 * 1024 * 1024,
            data_unacknowledged_bytes_max: 256 * 1024,
            received_hops_max: 50,
            header_watch_bytes_max: 256 * 1024,
            commands_max: 100_000,
            idle_commands_max: 100,
            errors_max: 20,
            transactions_max: 10_000,
            unknown_recipients_max: 50,
            auth_failures_max: 3,
            login_wait_max: Duration::from_secs(120),
            command_wait_max: Duration::from_secs(5 * 60),
            command_line_wait_max: Duration::from_secs(60),
            data_block_wait_max: Duration::from_secs(3 * 60),
            data_wait_max: Duration::from_secs(10 * 60),
            data_rate_bytes_per_second_min: 64,
        }
    }
}
