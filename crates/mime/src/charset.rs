//! Charsets by name, as a stream.
