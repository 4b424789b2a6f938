//! What IMAP asks of a message: envelope, body structure, sections and searchable text, all streaming
