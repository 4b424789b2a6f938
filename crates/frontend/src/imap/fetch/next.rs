//! How far the writing of a body item has come.

use whimbrel_service::api::Call;

/// What a body item wants next.
pub(super) enum Next {
    /// Nothing: it is written.
    Done,
    /// More octets of the message.
    Wants(Call),
    /// That the client takes what is written.
    Full,
    /// Nothing: it cannot be read.
    Failed,
}
