//! One connection of a client: TCP or TLS, blocking, read by line and by count.
//!
//! It is lean on purpose: the clients share the machine with the server they measure. That is also why this crate has clients of its own
//! and does not use the machines of `imap` and `smtp`, which check and keep everything they read.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use crate::error::{Result, Trouble, io_at, wrong};

/// A server that says nothing for so long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// Read at once.
const READ_BYTES: usize = 64 << 10;

/// Accepts any certificate: nothing secret is sent, and the server under test has one that nobody signed.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A client that trusts any certificate and resumes no session: each connection pays for its whole handshake.
///
/// # Panics
/// Never: ring has the default versions of TLS.
#[must_use]
pub fn tls_config() -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("ring has TLS 1.2 and 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

enum Stream {
    Clear(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// A connection.
pub struct Wire {
    stream: Stream,
    /// Whole [`READ_BYTES`] or more while in use, empty while idle.
    buffer: Vec<u8>,
    /// What of the buffer is filled and not given out.
    unread: Range<usize>,
    received: u64,
}

impl Wire {
    /// Connects; by TLS from the first byte if asked.
    pub fn connect(address: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> Result<Wire> {
        let at = |what: &'static str| move || format!("{what} {address}");
        let tcp = TcpStream::connect_timeout(&address, SILENCE_MAX)
            .map_err(|cause| io_at(at("connect to")())(cause))?;
        // Else the kernel waits for the acknowledgement of what was sent before.
        tcp.set_nodelay(true).map_err(io_at("TCP_NODELAY"))?;
        tcp.set_read_timeout(Some(SILENCE_MAX))
            .map_err(io_at("time-out"))?;
        tcp.set_write_timeout(Some(SILENCE_MAX))
            .map_err(io_at("time-out"))?;
        let stream = match tls {
            None => Stream::Clear(tcp),
            Some(config) => {
                let name = ServerName::from(address.ip());
                let connection = ClientConnection::new(Arc::clone(config), name)
                    .map_err(|error| Trouble::Wrong(format!("TLS: {error}")))?;
                let mut stream = StreamOwned::new(connection, tcp);
                while stream.conn.is_handshaking() {
                    stream
                        .conn
                        .complete_io(&mut stream.sock)
                        .map_err(|cause| io_at(at("handshake with")())(cause))?;
                }
                Stream::Tls(Box::new(stream))
            }
        };
        Ok(Wire {
            stream,
            buffer: Vec::new(),
            unread: 0..0,
            received: 0,
        })
    }

    /// Sends.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.write(bytes).map_err(io_at("send"))
    }

    /// Sends what the server may refuse by closing the connection: whether it did not.
    pub fn send_unless_closed(&mut self, bytes: &[u8]) -> Result<bool> {
        match self.write(bytes) {
            Ok(()) => Ok(true),
            Err(cause) if is_closed(&cause) => Ok(false),
            Err(cause) => Err(io_at("send")(cause)),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut self.stream {
            Stream::Clear(tcp) => tcp.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    /// A second handle of the socket, by which another thread can close the connection.
    pub fn handle(&self) -> Result<TcpStream> {
        let tcp = match &self.stream {
            Stream::Clear(tcp) => tcp,
            Stream::Tls(stream) => &stream.sock,
        };
        tcp.try_clone().map_err(io_at("a second handle"))
    }

    /// Bytes read so far, what is not given out yet included.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Gives the buffer back until something is read again: a client with thousands of idle connections needs no megabytes for them.
    pub fn rest(&mut self) {
        if self.unread.is_empty() {
            self.unread = 0..0;
            self.buffer = Vec::new();
        }
    }

    /// All that comes until the server closes the connection.
    pub fn drain(&mut self) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            all.extend_from_slice(&self.buffer[self.unread.clone()]);
            self.unread = 0..0;
            if !self.read()? {
                return Ok(all);
            }
        }
    }

    fn fill(&mut self) -> Result<()> {
        if self.read()? {
            Ok(())
        } else {
            wrong("the server closed the connection")
        }
    }

    /// Reads more; `false` when the server has closed the connection.
    fn read(&mut self) -> Result<bool> {
        if self.unread.is_empty() {
            self.unread = 0..0;
        } else if self.unread.start > 0 && self.buffer.len() - self.unread.end < READ_BYTES / 4 {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        if self.buffer.len() - self.unread.end < READ_BYTES / 4 {
            let more = self.buffer.len().max(READ_BYTES);
            self.buffer.resize(self.buffer.len() + more, 0);
        }
        let room = &mut self.buffer[self.unread.end..];
        let read = match &mut self.stream {
            Stream::Clear(tcp) => tcp.read(room),
            Stream::Tls(stream) => stream.read(room),
        };
        let read = match read {
            Ok(read) => read,
            Err(cause) if is_closed(&cause) => 0,
            Err(cause) => return Err(io_at("receive")(cause)),
        };
        self.unread.end += read;
        self.received += read as u64;
        Ok(read > 0)
    }

    /// Appends one line, its CRLF cut off, to `line`.
    pub fn line(&mut self, line: &mut Vec<u8>) -> Result<()> {
        let mut looked = 0;
        loop {
            let rest = &self.buffer[self.unread.clone()];
            if let Some(at) = rest[looked..].iter().position(|byte| *byte == b'\n') {
                let end = looked + at;
                let Some(text) = rest[..end].strip_suffix(b"\r") else {
                    return wrong(format!("line without CRLF: {}", shown(&rest[..end])));
                };
                line.extend_from_slice(text);
                self.unread.start += end + 1;
                return Ok(());
            }
            looked = rest.len();
            self.fill()?;
        }
    }

    /// Reads that many bytes and drops them.
    pub fn skip(&mut self, count: usize) -> Result<()> {
        let mut left = count;
        loop {
            let here = left.min(self.unread.len());
            self.unread.start += here;
            left -= here;
            if left == 0 {
                return Ok(());
            }
            self.fill()?;
        }
    }
}

/// The server has closed the connection, with what was sent unread or not.
fn is_closed(cause: &std::io::Error) -> bool {
    use std::io::ErrorKind as Kind;
    matches!(
        cause.kind(),
        Kind::BrokenPipe | Kind::ConnectionReset | Kind::ConnectionAborted | Kind::UnexpectedEof
    )
}

/// The beginning of some bytes, for a message.
#[must_use]
pub fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned()
}
