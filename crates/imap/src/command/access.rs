//! ID, ENABLE, LOGIN, AUTHENTICATE.

/// Fields of ID (RFC 2971): name and value, in order. At most 30 fields, names of at most 30 bytes, values of at most 1024.
pub type IdFields = Vec<(String, Option<String>)>;
