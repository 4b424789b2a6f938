//! `whimbrel demo`.

use crate::actor::Fatal;

/// Shows a server.
pub async fn run(
    _exit: bool,
    _fatal: Fatal,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    Err("not yet".into())
}
