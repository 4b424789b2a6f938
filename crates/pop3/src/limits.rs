//! Every limit on what a client can send.

/// Limits of a decoder. All fields are public so that a configuration can fill them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Octets of a command with its line end. "Servers which support the CAPA command MUST support commands up to 255 octets" (RFC 2449,
    /// section 4); user names in UTF-8 with a mailbox behind them are longer. A longer line ends the connection.
    pub command_line_bytes_max: usize,
    /// Octets of a client's line within AUTH, with its line end: a token may be long, as RFC 4954, section 4 has it for SMTP. A longer one
    /// ends the connection.
    pub auth_line_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            command_line_bytes_max: 2 * 1024,
            auth_line_bytes_max: 12 * 1024,
        }
    }
}
