//! Socket options of all streams, between nodes and to clients.

use std::{io, time::Duration};

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// A stream between nodes on which nothing comes for so long is probed. So a firewall between the nodes keeps it, and a peer that vanishes is
/// noticed. A session in IDLE is silent for minutes.
pub(crate) const PROBED_AFTER: Duration = Duration::from_secs(60);
/// Between two probes.
const PROBED_EVERY: Duration = Duration::from_secs(15);
/// After so many probes without an answer the stream ends. The socket sets no time limit for bytes that a peer does not read: the peer may be a
/// client that reads slowly.
const PROBES_MAX: u32 = 4;

/// Sets the options: small frames are sent at once, and a stream on which nothing comes for `probed_after` is probed, so that a peer that vanishes is
/// noticed.
///
/// # Errors
/// If the system does not know such settings.
pub fn prepare(stream: &TcpStream, probed_after: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, probed_after)?;
    sockopt::set_tcp_keepintvl(stream, PROBED_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES_MAX)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_stream_is_probed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let stream = TcpStream::connect(at).await.unwrap();
        prepare(&stream, PROBED_AFTER).unwrap();
        assert!(stream.nodelay().unwrap());
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), PROBED_AFTER);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), PROBED_EVERY);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), PROBES_MAX);
    }
}
