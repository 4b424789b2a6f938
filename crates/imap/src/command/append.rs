//! APPEND (RFC 9051, section 6.3.12): everything in front of the message.
