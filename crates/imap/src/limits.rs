//! What a client may make a decoder hold or skip.

/// Limits of a [`Decoder`](crate::Decoder). Sizes are in bytes; every buffer of the decoder counts against one of these in every
/// state, and nothing is allocated by a size that was only declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Text of a command before login, literals included: the longest is AUTHENTICATE with a bearer token. Beyond it the
    /// connection is closed, since a stranger has nothing to say that is longer; of an ID the text is dropped instead. Lines of SASL have this
    /// limit, too.
    pub command_bytes_max_before_login: usize,
    /// Text of a command after login, sequence sets apart, literals included: RFC 7162, section 4, asks for lines of at least
    /// 8192 octets; SEARCH with a long OR of Message-IDs and FETCH with long lists of fields need more.
    pub command_bytes_max: usize,
    /// Text of all sequence sets of one command: a million UIDs of ten digits and their commas, with room.
    pub sequence_set_bytes_max: usize,
    /// Disjoint ranges of all sequence sets of one command: eight bytes of memory each, a quarter more while a set is read.
    pub sequence_set_ranges_max: usize,
    /// One literal before login.
    pub literal_bytes_max_before_login: usize,
    /// One literal after login that is held in memory (all but the messages of APPEND): no name, string or header field is longer.
    pub literal_bytes_max: usize,
    /// Literals of one command. RFC 3501 needs one an argument; SEARCH may have one for each key.
    pub literal_count_max: usize,
    /// A literal of a message of APPEND, as declared. A greater one is still announced, so that the session can say TOOBIG.
    pub append_bytes_max: u64,
    /// Bytes of a refused command (its line, its non-synchronising literals) that are read and dropped to keep the connection
    /// after login; beyond it is closed. Before login the limit is `command_bytes_max_before_login`.
    pub skip_bytes_max: u64,
    /// Depth of the tree that one SEARCH is kept as: trees are walked by recursion. What adds no node to the tree does not count, however
    /// long it is in the text: a list in a list, an OR in an OR, NOT NOT.
    pub nesting_depth_max: usize,
    /// Keys of one SEARCH: each is tried on each message.
    pub search_keys_max: usize,
    /// Items of one FETCH: each is answered for each message.
    pub fetch_items_max: usize,
    /// Field names of one HEADER.FIELDS.
    pub header_fields_max: usize,
    /// Numbers in the part of a section (`1.2.3`): no message is nested deeper than the parser of messages goes.
    pub section_depth_max: usize,
    /// Flags in one list.
    pub flags_max: usize,
    /// Patterns of one LIST: each is tried on each mailbox.
    pub list_patterns_max: usize,
    /// Text of the patterns in one list of them, the reference counted with each: trying a pattern on a name costs the product of their
    /// lengths (over 64), and there may be ten thousand names.
    pub list_pattern_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            command_bytes_max_before_login: 16 << 10,
            command_bytes_max: 256 << 10,
            sequence_set_bytes_max: 16 << 20,
            sequence_set_ranges_max: 1_100_000,
            literal_bytes_max_before_login: 4 << 10,
            literal_bytes_max: 64 << 10,
            literal_count_max: 1_000,
            append_bytes_max: 64 << 20,
            skip_bytes_max: 128 << 20,
            nesting_depth_max: 32,
            search_keys_max: 4_096,
            fetch_items_max: 256,
            header_fields_max: 512,
            section_depth_max: 64,
            flags_max: 256,
            list_patterns_max: 32,
            list_pattern_bytes_max: 4 << 10,
        }
    }
}
