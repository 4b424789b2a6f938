//! IMAP types, resumable parser, encoder and client machine: no I/O
