//! The project's own client machines on real sockets: for the demo and for tests.

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Instant};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use whimbrel_imap::{client as imap, client::Response, encode::Kind};
use whimbrel_smtp::{
    client as smtp,
    client::{ClientConfig as SmtpConfig, ClientOutput, Decision, Outgoing},
};

use crate::tls::provider;

/// Read at once.
const READ_BYTES: usize = 16 * 1024;

/// Why a client gives up.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server's IMAP is not IMAP.
    #[error(transparent)]
    Imap(#[from] imap::BadResponse),
    /// The server said no.
    #[error("the server refused: {0}")]
    Refused(String),
    /// SMTP failed.
    #[error(transparent)]
    Smtp(#[from] Box<smtp::Failure>),
    /// The certificate cannot be read.
    #[error("the certificate: {0}")]
    Certificate(String),
}

/// A client that trusts the certificate in this file and no other.
///
/// # Errors
/// When the file holds none.
pub fn trusting(certificate: &Path) -> Result<Arc<ClientConfig>, ClientError> {
    let bad = |error: &dyn std::fmt::Display| ClientError::Certificate(error.to_string());
    let mut roots = RootCertStore::empty();
    for der in CertificateDer::pem_file_iter(certificate).map_err(|error| bad(&error))? {
        roots
            .add(der.map_err(|error| bad(&error))?)
            .map_err(|error| bad(&error))?;
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// TLS on a connection, with the address for the server's name.
///
/// # Errors
/// What ended the handshake.
pub async fn handshake(
    stream: TcpStream,
    tls: &Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::from(stream.peer_addr()?.ip());
    TlsConnector::from(Arc::clone(tls))
        .connect(name, stream)
        .await
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An IMAP connection over TLS.
pub struct Imap {
    stream: TlsStream<TcpStream>,
    machine: imap::Client,
}

impl Imap {
    /// Connects, and hears the greeting.
    ///
    /// # Errors
    /// When there is no server, or none that can be trusted.
    pub async fn connect(
        address: SocketAddr,
        tls: &Arc<ClientConfig>,
    ) -> Result<Self, ClientError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = handshake(stream, tls).await?;
        let mut connection = Imap {
            stream,
            machine: imap::Client::new(),
        };
        match connection.next().await? {
            Response::Status { kind: Kind::Ok, .. } => Ok(connection),
            other => Err(ClientError::Refused(format!("{other:?}"))),
        }
    }

    /// What TLS was negotiated.
    pub fn tls_version(&self) -> String {
        let version = self.stream.get_ref().1.protocol_version();
        version.map_or_else(String::new, |version| {
            format!("{version:?}").replace('_', ".")
        })
    }

    /// Sends a command and gives what was said up to its tagged OK.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn command(&mut self, line: &str) -> Result<Vec<Response>, ClientError> {
        self.begin(line).await?;
        self.end().await
    }

    /// Sends a command.
    ///
    /// # Errors
    /// When the connection is gone.
    pub async fn begin(&mut self, line: &str) -> Result<(), ClientError> {
        self.machine.raw(line.as_bytes());
        self.send().await
    }

    /// Sends a line without a tag (DONE).
    ///
    /// # Errors
    /// When the connection is gone.
    pub async fn line(&mut self, line: &str) -> Result<(), ClientError> {
        self.machine.line(line.as_bytes());
        self.send().await
    }

    /// What is said up to the tagged OK.
    ///
    /// # Errors
    /// When it is no OK.
    pub async fn end(&mut self) -> Result<Vec<Response>, ClientError> {
        let mut responses = Vec::new();
        loop {
            match self.next().await? {
                Response::Tagged { kind: Kind::Ok, .. } => return Ok(responses),
                Response::Tagged { text, .. } => return Err(ClientError::Refused(text)),
                other => responses.push(other),
            }
        }
    }

    /// The next thing the server says.
    ///
    /// # Errors
    /// When it ends, or what it says is not IMAP.
    pub async fn next(&mut self) -> Result<Response, ClientError> {
        loop {
            if let Some(response) = self.machine.next()? {
                return Ok(response);
            }
            // An answer to a continuation.
            self.send().await?;
            let mut buffer = [0; READ_BYTES];
            let read = self.stream.read(&mut buffer).await?;
            if read == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            self.machine.push(&buffer[..read]);
        }
    }

    async fn send(&mut self) -> Result<(), ClientError> {
        let bytes = self.machine.take_output();
        if !bytes.is_empty() {
            self.stream.write_all(&bytes).await?;
            self.stream.flush().await?;
        }
        Ok(())
    }
}

/// A message to send: its envelope, and its text with CRLF.
pub struct Mail {
    /// The envelope.
    pub envelope: Outgoing,
    /// The text.
    pub text: Vec<u8>,
}

/// Sends messages over one connection, by STARTTLS where `config` says so. Gives the last reply to each message.
///
/// # Errors
/// At the first recipient that is refused.
pub async fn send(
    address: SocketAddr,
    config: SmtpConfig,
    tls: &Arc<ClientConfig>,
    mails: Vec<Mail>,
) -> Result<Vec<String>, ClientError> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut clear = Some(stream);
    let mut secret = None;
    let begun = Instant::now();
    let mut machine = smtp::Client::new(config, begun.elapsed());
    let mut waiting = mails.into_iter();
    let mut current = Vec::new();
    let mut replies = Vec::new();
    loop {
        let stream: &mut dyn Stream = match (&mut secret, &mut clear) {
            (Some(secret), _) => secret,
            (None, Some(clear)) => clear,
            (None, None) => return Err(io::Error::from(io::ErrorKind::NotConnected).into()),
        };
        match machine.poll() {
            Some(ClientOutput::Send(bytes)) => {
                stream.write_all(&bytes).await?;
                stream.flush().await?;
            }
            Some(ClientOutput::StartTls) => {
                if let Some(stream) = clear.take() {
                    secret = Some(handshake(stream, tls).await?);
                }
                machine.tls_started(begun.elapsed());
            }
            Some(ClientOutput::StartTlsRefused(refusal)) => {
                return Err(ClientError::Refused(refusal.to_string()));
            }
            Some(ClientOutput::Ready(_)) => match waiting.next() {
                Some(mail) => {
                    current = mail.text;
                    machine.send(begun.elapsed(), mail.envelope);
                }
                None => machine.quit(begun.elapsed()),
            },
            Some(ClientOutput::WantBody) => {
                machine.body(begun.elapsed(), &current);
                machine.body_end(begun.elapsed());
            }
            Some(ClientOutput::Done(outcome)) => {
                for decided in outcome.recipients {
                    match decided {
                        Decision::Accepted(reply) => {
                            replies.push(reply.to_string().trim_end().to_owned());
                        }
                        other => return Err(ClientError::Refused(other.to_string())),
                    }
                }
            }
            Some(ClientOutput::Close(ended)) => {
                return ended.map(|()| replies).map_err(ClientError::from);
            }
            None => {
                let mut buffer = [0; READ_BYTES];
                match stream.read(&mut buffer).await? {
                    0 => machine.on_eof(),
                    read => machine.input(begun.elapsed(), &buffer[..read]),
                }
            }
        }
    }
}
