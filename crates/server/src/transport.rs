//! A client's byte stream, in clear or in TLS. While it is idle it has no buffer of ours.
//!
//! Invariants: STARTTLS consumes the clear stream ([`Transport::start_tls`]). No bytes that were read in clear are kept here, so none can appear
//! after the handshake.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Poll, ready},
    time::Duration,
};

use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWriteExt as _, ReadBuf},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use whimbrel_cluster::RelayStream;
use whimbrel_frontend::session::Tls;

use crate::cluster::relay::{AT_REST, framed};
use crate::tls::{ServedCertificate, negotiated};

/// Bytes of one read; a TLS record holds as much (RFC 8446, 5.1).
const READ_BYTES_MAX: usize = 16 * 1024;
/// Bytes that rustls holds while the socket accepts none.
const TLS_WRITE_BYTES_MAX: usize = 32 * 1024;
/// How long to read and drop what a client still sends after we have closed, so that a reset does not overtake our last words.
const LINGER: Duration = Duration::from_secs(1);
/// How many bytes of that.
const LINGER_BYTES_MAX: usize = 256 * 1024;

thread_local! {
    /// One read buffer a thread: an idle connection has none.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES_MAX].into_boxed_slice());
}

/// Waits for bytes of a stream and passes them to `take`; none at its end.
pub(crate) async fn read_some<S: AsyncRead + Unpin, R>(
    stream: &mut S,
    mut take: impl FnMut(&[u8]) -> R,
) -> io::Result<R> {
    poll_fn(|context| {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
            Poll::Ready(Ok(take(buffer.filled())))
        })
    })
    .await
}

/// The stream.
pub(crate) enum Transport {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// The administrator's.
    Local(UnixStream),
    /// A client's that another node relays.
    Relayed(Box<Brought>),
}

/// A client's stream that another node relays.
pub(crate) struct Brought {
    stream: RelayStream,
    /// Whether something was sent since the other node last heard that the session waits.
    said: bool,
}

impl Transport {
    /// Makes the handshake on a stream whose clear bytes must not be used any more.
    pub(crate) async fn start_tls(
        stream: TcpStream,
        config: Arc<ServerConfig>,
        shown: &ServedCertificate,
    ) -> io::Result<(Self, Tls)> {
        let certificate = shown.now();
        let accept = TlsAcceptor::from(config).accept_with(stream, |connection| {
            connection.set_buffer_limit(Some(TLS_WRITE_BYTES_MAX));
        });
        // Boxed: the handshake's state is not part of the connection's later size.
        let stream = Box::pin(accept).await?;
        let tls = negotiated(stream.get_ref().1, &certificate, shown);
        Ok((Transport::Tls(Box::new(stream)), tls))
    }

    /// Waits for bytes and passes them to `take`; none at the end of the stream. A TLS stream that ends without its closing alert is an error of the
    /// kind `UnexpectedEof`.
    pub(crate) async fn read<R>(&mut self, mut take: impl FnMut(&[u8]) -> R) -> io::Result<R> {
        poll_fn(|context| {
            SCRATCH.with_borrow_mut(|scratch| {
                let mut buffer = ReadBuf::new(scratch);
                ready!(match self {
                    Transport::Clear(stream) => Pin::new(stream).poll_read(context, &mut buffer),
                    Transport::Local(stream) => Pin::new(stream).poll_read(context, &mut buffer),
                    Transport::Tls(stream) =>
                        Pin::new(&mut **stream).poll_read(context, &mut buffer),
                    Transport::Relayed(brought) =>
                        Pin::new(&mut brought.stream).poll_read(context, &mut buffer),
                })?;
                Poll::Ready(Ok(take(buffer.filled())))
            })
        })
        .await
    }

    /// A stream that another node relays.
    pub(crate) fn relayed(stream: RelayStream) -> Self {
        Transport::Relayed(Box::new(Brought {
            stream,
            said: false,
        }))
    }

    /// Whether it is a client's own connection: neither relayed nor the administrator's.
    pub(crate) fn is_a_clients(&self) -> bool {
        matches!(self, Transport::Clear(_) | Transport::Tls(_))
    }

    /// The session waits for its client, with no answer half sent: a node in front is told.
    pub(crate) async fn at_rest(&mut self, patience: Duration) -> io::Result<()> {
        if let Transport::Relayed(brought) = self
            && std::mem::take(&mut brought.said)
        {
            timeout(patience, brought.stream.write_all(&AT_REST)).await??;
            timeout(patience, brought.stream.flush()).await??;
        }
        Ok(())
    }

    /// Writes all and flushes. Fails with `TimedOut` when the client takes nothing for `patience`.
    pub(crate) async fn write(&mut self, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
        let frames;
        if let Transport::Relayed(brought) = self {
            brought.said = true;
            frames = framed(bytes);
            bytes = &frames;
        }
        while !bytes.is_empty() {
            let written = match self {
                Transport::Clear(stream) => timeout(patience, stream.write(bytes)).await,
                Transport::Local(stream) => timeout(patience, stream.write(bytes)).await,
                Transport::Tls(stream) => timeout(patience, stream.write(bytes)).await,
                Transport::Relayed(brought) => timeout(patience, brought.stream.write(bytes)).await,
            }??;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = &bytes[written..];
        }
        match self {
            Transport::Clear(_) | Transport::Local(_) => Ok(()),
            Transport::Tls(stream) => timeout(patience, stream.flush()).await?,
            Transport::Relayed(brought) => timeout(patience, brought.stream.flush()).await?,
        }
    }

    /// Closes the sending side, and drops what the client still sends, for a moment.
    pub(crate) async fn close(mut self, patience: Duration, at_end: bool) {
        let said = match &mut self {
            Transport::Clear(stream) => timeout(patience, stream.shutdown()).await,
            Transport::Local(stream) => timeout(patience, stream.shutdown()).await,
            Transport::Tls(stream) => timeout(patience, stream.shutdown()).await,
            Transport::Relayed(brought) => timeout(patience, brought.stream.shutdown()).await,
        };
        if at_end || !matches!(said, Ok(Ok(()))) {
            return;
        }
        let (mut stream, linger) = match self {
            Transport::Local(_) => return,
            Transport::Clear(stream) => (stream, LINGER),
            Transport::Tls(stream) => (stream.into_inner().0, LINGER),
            // The node in front passes what was written to a client that may be slow, and ends when it has read all: a reset would lose what is not
            // sent yet.
            Transport::Relayed(brought) => match brought.stream {
                RelayStream::Server(stream) => (stream.into_inner().0, patience),
                RelayStream::Client(stream) => (stream.into_inner().0, patience),
            },
        };
        let drained = async {
            let mut left = LINGER_BYTES_MAX;
            while let Ok(read @ 1..) = read_some(&mut stream, <[u8]>::len).await {
                left = left.saturating_sub(read);
                if left == 0 {
                    break;
                }
            }
        };
        // It makes no difference whether the client was done in time.
        let _ = timeout(linger, drained).await;
    }
}
