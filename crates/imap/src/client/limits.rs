//! What of a server a client takes, and how much: who connects to servers that are not its own must not let them decide about its memory.

/// Limits of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A line, and what follows a literal up to the next. SEARCH names all it has found in one.
    pub line_bytes_max: usize,
    /// A literal: a message, or what was asked for of one.
    pub literal_bytes_max: usize,
    /// A response, lines and literals.
    pub response_bytes_max: usize,
    /// Elements of lists: flags, items of FETCH, parts, addresses, capabilities. Each takes far more memory than the three bytes that it is
    /// written with.
    pub elements_max: usize,
    /// Numbers of SEARCH, ranges of a set, and UIDs that ranges of COPYUID stand for: `1:4294967295` is short.
    pub numbers_max: usize,
    /// Whether what a client can do without need not be as the RFCs want it: response codes, responses that it does not know, texts for humans and dates
    /// of arrival. A server of one's own has no excuse; those of others are as they are, and "clients MUST ignore" the codes that they do not
    /// know (RFC 9051, 7.1).
    pub lenient: bool,
}

impl Default for Limits {
    /// For a server of one's own: as many numbers as a mailbox may have messages, and what is large on purpose.
    fn default() -> Self {
        Limits {
            line_bytes_max: 1 << 30,
            literal_bytes_max: 1 << 30,
            response_bytes_max: 1 << 31,
            elements_max: 1 << 26,
            numbers_max: 1 << 26,
            lenient: false,
        }
    }
}
