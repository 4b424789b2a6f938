//! SMTP and LMTP types, strict codec, server session machine and client machine: no I/O
