//! The directory CRDT: domains, accounts, aliases and credentials
