//! One connection of a client: TCP, TLS, or a socket to a child process; blocking, read by line and by count.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    sync::Arc,
};

use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};

use crate::process::DEADLINE;

/// Most bytes of one line of a server: longer is a mistake of it.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Why a conversation ended.
#[derive(Debug)]
pub enum Trouble {
    /// The server closed, or was killed.
    Closed,
    /// Nothing came within the deadline: a hang.
    Silent,
    /// The server broke the protocol.
    Protocol(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Trouble::Silent,
            io::ErrorKind::InvalidData => Trouble::Protocol(format!("TLS: {error}")),
            _ => Trouble::Closed,
        }
    }
}

/// What a conversation gives.
pub type Result<T> = std::result::Result<T, Trouble>;

enum Stream {
    Clear(TcpStream),
    Local(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    /// Between the two, or after an upgrade that failed.
    None,
}

/// A connection.
pub struct Wire {
    stream: Stream,
    buffer: Vec<u8>,
    /// How much of the buffer has been given out.
    taken: usize,
}

impl Wire {
    /// Connects in clear.
    pub fn clear(port: u16) -> Result<Wire> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let tcp = TcpStream::connect_timeout(&address, DEADLINE)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(DEADLINE))?;
        tcp.set_write_timeout(Some(DEADLINE))?;
        Ok(Wire {
            stream: Stream::Clear(tcp),
            buffer: Vec::new(),
            taken: 0,
        })
    }

    /// Speaks over a socket that a child process has at its other end.
    pub fn local(stream: UnixStream) -> Result<Wire> {
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        Ok(Wire {
            stream: Stream::Local(stream),
            buffer: Vec::new(),
            taken: 0,
        })
    }

    /// Connects by TLS.
    pub fn tls(port: u16, config: &Arc<ClientConfig>) -> Result<Wire> {
        let mut wire = Wire::clear(port)?;
        wire.start_tls(config)?;
        Ok(wire)
    }

    /// Goes on by TLS. What came in clear and was not read is a mistake of the server.
    pub fn start_tls(&mut self, config: &Arc<ClientConfig>) -> Result<()> {
        if self.taken < self.buffer.len() {
            return Err(Trouble::Protocol(
                "bytes in clear behind the answer to STARTTLS".to_owned(),
            ));
        }
        let Stream::Clear(tcp) = std::mem::replace(&mut self.stream, Stream::None) else {
            return Err(Trouble::Protocol("TLS within TLS".to_owned()));
        };
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(Arc::clone(config), name).expect("a client");
        let mut stream = StreamOwned::new(connection, tcp);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        self.stream = Stream::Tls(Box::new(stream));
        Ok(())
    }

    /// The certificate that the server showed.
    #[must_use]
    pub fn server_certificate(&self) -> Option<Vec<u8>> {
        match &self.stream {
            Stream::Tls(stream) => stream
                .conn
                .peer_certificates()
                .and_then(|chain| chain.first())
                .map(|leaf| leaf.to_vec()),
            _ => None,
        }
    }

    /// Key material of this connection (RFC 5705), without context; empty without TLS.
    #[must_use]
    pub fn export(&self, label: &[u8]) -> Vec<u8> {
        match &self.stream {
            Stream::Tls(stream) => stream
                .conn
                .export_keying_material(vec![0; 32], label, Some(&[]))
                .unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match &self.stream {
            Stream::Clear(tcp) => Some(tcp),
            Stream::Tls(stream) => Some(&stream.sock),
            Stream::Local(_) | Stream::None => None,
        }
    }

    /// The port on our side: how the connection is called in a trace of the server.
    #[must_use]
    pub fn local_port(&self) -> u16 {
        self.tcp()
            .and_then(|tcp| tcp.local_addr().ok())
            .map_or(0, |address| address.port())
    }

    /// Sends.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.stream {
            Stream::Clear(tcp) => tcp.write_all(bytes)?,
            Stream::Local(socket) => socket.write_all(bytes)?,
            Stream::Tls(stream) => {
                stream.write_all(bytes)?;
                stream.flush()?;
            }
            Stream::None => return Err(Trouble::Closed),
        }
        Ok(())
    }

    /// Says that nothing more will be sent, without a TLS alert: a cut line as the server sees it.
    pub fn half_close(&mut self) {
        if let Some(tcp) = self.tcp() {
            let _ = tcp.shutdown(Shutdown::Write);
        }
    }

    /// Reads until the server has closed; what came.
    pub fn drain(&mut self) -> Result<Vec<u8>> {
        let mut all = self.buffer.split_off(self.taken);
        loop {
            match self.fill() {
                Ok(()) => all.append(&mut self.buffer.split_off(self.taken)),
                Err(Trouble::Closed) => return Ok(all),
                Err(other) => return Err(other),
            }
        }
    }

    fn fill(&mut self) -> Result<()> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let before = self.buffer.len();
        self.buffer.resize(before + (64 << 10), 0);
        let read = match &mut self.stream {
            Stream::Clear(tcp) => tcp.read(&mut self.buffer[before..]),
            Stream::Local(socket) => socket.read(&mut self.buffer[before..]),
            Stream::Tls(stream) => stream.read(&mut self.buffer[before..]),
            Stream::None => Ok(0),
        };
        self.buffer.truncate(before + *read.as_ref().unwrap_or(&0));
        if read? == 0 {
            Err(Trouble::Closed)
        } else {
            Ok(())
        }
    }

    /// One line without its CRLF.
    pub fn line(&mut self) -> Result<Vec<u8>> {
        let mut looked = 0;
        loop {
            let rest = &self.buffer[self.taken..];
            if let Some(end) = rest[looked..]
                .iter()
                .position(|byte| *byte == b'\n')
                .map(|at| at + looked)
            {
                let line = rest[..end].to_vec();
                self.taken += end + 1;
                return match line.split_last() {
                    Some((b'\r', line)) if !line.contains(&b'\r') => Ok(line.to_vec()),
                    _ => Err(Trouble::Protocol(format!(
                        "line end that is not CRLF after {:?}",
                        String::from_utf8_lossy(&line)
                    ))),
                };
            }
            looked = rest.len();
            if looked > LINE_BYTES_MAX {
                return Err(Trouble::Protocol("a line without end".to_owned()));
            }
            self.fill()?;
        }
    }

    /// That many bytes.
    pub fn bytes(&mut self, count: usize) -> Result<Vec<u8>> {
        while self.buffer.len() - self.taken < count {
            self.fill()?;
        }
        let bytes = self.buffer[self.taken..self.taken + count].to_vec();
        self.taken += count;
        Ok(bytes)
    }

    /// What has come already, without waiting for it longer than this.
    pub fn within<T>(
        &mut self,
        wait: std::time::Duration,
        then: impl FnOnce(&mut Wire) -> Result<T>,
    ) -> Result<T> {
        if let Some(tcp) = self.tcp() {
            tcp.set_read_timeout(Some(wait))?;
        }
        let outcome = then(self);
        if let Some(tcp) = self.tcp() {
            tcp.set_read_timeout(Some(DEADLINE))?;
        }
        outcome
    }
}
