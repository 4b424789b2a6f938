//! How long a client waits for its server (RFC 5321 4.5.3.2).

use core::time::Duration;

/// The longest wait for each reply, from the moment its command was given to send or the reply before it was complete: an octet now and
/// then does not prolong it. "Timeouts SHOULD be easily reconfigurable": a route or a test can have shorter ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// The greeting. RFC 5321 4.5.3.2.1: 5 minutes.
    pub greeting: Duration,
    /// EHLO, HELO and LHLO, for which the RFC has no figure. Servers look the client up before they answer, as for the greeting: 5 minutes.
    pub hello: Duration,
    /// STARTTLS. Nothing has to be looked up for its reply: 1 minute, so that a host that filters TLS does not hold up others.
    pub starttls: Duration,
    /// The TLS handshake, some packets each way: 1 minute.
    pub handshake: Duration,
    /// Each message of AUTH. Passwords are slow on purpose, and some servers ask others: 2 minutes.
    pub auth: Duration,
    /// MAIL. RFC 5321 4.5.3.2.2: 5 minutes.
    pub mail: Duration,
    /// RCPT. RFC 5321 4.5.3.2.3: 5 minutes, since mailing lists and aliases may be expanded.
    pub rcpt: Duration,
    /// DATA, up to the 354. RFC 5321 4.5.3.2.4: 2 minutes.
    pub data: Duration,
    /// The sending of a piece of the body. RFC 5321 4.5.3.2.5: 3 minutes.
    pub block: Duration,
    /// The end of the message. RFC 5321 4.5.3.2.6: 10 minutes; a shorter one "would typically result in delivery of multiple copies".
    pub end: Duration,
    /// RSET. The message before it has been decided, and nothing has to be looked up: 1 minute.
    pub reset: Duration,
    /// QUIT. Nothing depends on its reply, which is polite to wait for (RFC 5321 4.1.1.10): 5 seconds.
    pub quit: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        Timeouts {
            greeting: minutes(5),
            hello: minutes(5),
            starttls: minutes(1),
            handshake: minutes(1),
            auth: minutes(2),
            mail: minutes(5),
            rcpt: minutes(5),
            data: minutes(2),
            block: minutes(3),
            end: minutes(10),
            reset: minutes(1),
            quit: Duration::from_secs(5),
        }
    }
}
