//! What bounds the work and the memory that one message can cost.

/// The limits of a parse. Beyond a limit the parse goes on, and the summary knows less; no message is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nested multiparts and embedded messages that are looked into; deeper ones are opaque parts (RFC 2046 sets no
    /// bound; honest mail stays below ten). At most [`Limits::NESTING_MAX`], because trees are walked by recursion.
    pub nesting_max: usize,
    /// Parts of a message, at all depths together. When they are used up, further delimiter lines are content of the part
    /// they stand in. Digests of some hundred messages are real, and each message of one is two parts. Three eighths of
    /// `summary_bytes_max`, at 240 bytes a part, bound this, too.
    pub parts_max: usize,
    /// Bytes of one header block in which fields are looked at; the end of the block is found in any case. Real headers
    /// reach some ten KiB, with many recipients some hundred.
    pub header_bytes_max: usize,
    /// Fields of one header block that are looked at. Long relays leave about a hundred.
    pub header_fields_max: usize,
    /// Addresses taken from the fields of one name of one header; the others are cut.
    pub addresses_max: usize,
    /// Parameters of one Content-Type or Content-Disposition field, each RFC 2231 piece counted.
    pub params_max: usize,
    /// Bytes of an encoded summary, which is read and kept in memory whole.
    pub summary_bytes_max: usize,
    /// Bytes of text parts, as they are encoded, in which a preview is looked for: styles may stand before the text of HTML. 0: no preview
    /// is made.
    pub preview_bytes_max: usize,
}

impl Limits {
    /// Nesting beyond which no configuration goes: trees are encoded, decoded and dropped by recursion, and this depth is
    /// what the smallest thread stack carries with room to spare.
    pub const NESTING_MAX: usize = 100;
    /// The smallest summary that can hold the fixed fields of a message whose every text was cut.
    pub const SUMMARY_BYTES_MIN: usize = 4096;
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            nesting_max: 50,
            parts_max: 400,
            header_bytes_max: 256 * 1024,
            header_fields_max: 2000,
            addresses_max: 2000,
            params_max: 100,
            summary_bytes_max: 256 * 1024,
            preview_bytes_max: 64 * 1024,
        }
    }
}
