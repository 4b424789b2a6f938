//! Commands (RFC 5321 4.1): one complete line to one value.
