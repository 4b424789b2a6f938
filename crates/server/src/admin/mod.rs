//! The administrator's commands: sent through `DATA/admin.sock` while a server runs, otherwise carried out on the store itself.
//!
//! Invariants: only the user who runs the server (and root) gets answers; a password never crosses the socket, only its verifier.
//!
//! Reading order: [`protocol`] (messages), [`server`], [`queue`], [`session`] (IMAP of any account), [`client`].

pub mod client;
pub mod protocol;
pub mod queue;
pub mod server;
pub mod session;

use std::path::{Path, PathBuf};

/// The socket's name in the data directory.
pub const SOCKET: &str = "admin.sock";

/// Longest path of a socket, without its final zero (`sun_path` of Linux).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A path to the socket that is short enough, also if its directory's path is too long, and the handle that must stay open for it.
fn short_path(directory: &Path) -> std::io::Result<(PathBuf, Option<std::fs::File>)> {
    use std::os::{fd::AsRawFd as _, unix::ffi::OsStrExt as _};
    let path = directory.join(SOCKET);
    if path.as_os_str().as_bytes().len() <= SOCKET_PATH_BYTES_MAX {
        return Ok((path, None));
    }
    let open = std::fs::File::open(directory)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", open.as_raw_fd()));
    Ok((path, Some(open)))
}

#[cfg(test)]
mod tests;
