//! The log-and-record store and blob store traits, group commit, a memory model with crash semantics, one conformance suite
