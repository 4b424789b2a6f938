//! What of a server a client takes: who connects to servers that are not its own must not let them decide about its memory.

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
        }
    }
}
