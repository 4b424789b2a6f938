//! The mailbox CRDT: operations, apply, join, collection, UID claims and what clients are shown
