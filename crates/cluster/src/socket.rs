//! What each stream is set to, between nodes and of clients.

use std::{io, time::Duration};

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// A stream between nodes on which nothing comes for so long is probed: a firewall between the nodes keeps it, and who is gone without a word is
/// noticed. A session in IDLE says nothing for minutes.
pub(crate) const PROBED_AFTER: Duration = Duration::from_secs(60);
/// Between two probes.
const PROBED_EVERY: Duration = Duration::from_secs(15);
/// After so many without an answer the stream is over. How long what was sent may wait for a peer that does not take it is not for the socket to say:
/// a client that reads slowly is one.
const PROBES_MAX: u32 = 4;

/// Small frames go at once, and who is gone is noticed: a stream on which nothing comes for so long is probed.
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
