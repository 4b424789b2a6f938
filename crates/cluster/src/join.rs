//! Joining: a new node sends its token and gets the cluster's authority, with which it makes its own certificate.
//!
//! The stream is TLS to the member that the token names: its certificate must come from the authority whose fingerprint is in the token. So only that
//! member sees the secret, and nobody else can answer. One question and one answer: four bytes of length and a CBOR array each. Members ask each
//! other questions in the same way, with their certificates in place of a token ([`ask_member`]).

use std::{io, sync::Arc, time::Duration};

use minicbor::{Decode, Encode};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use crate::{
    Authority, AuthorityError, ClusterId, Credentials, NodeName, Token,
    authority::{ALPN_ASK, ALPN_JOIN, details, fingerprint, verifier},
};

/// Longest question or answer: certificates, and what the node above adds (its list of members).
pub(crate) const JOIN_BYTES_MAX: u32 = 256 * 1024;
/// Time limit for question and answer: the member syncs a file, and does nothing else that takes time.
pub(crate) const JOIN_TIME_MAX: Duration = Duration::from_secs(20);

/// Why a node was not let in.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The member cannot be reached, or the stream broke.
    #[error("{address}: {cause}")]
    Io {
        /// The address in the token.
        address: String,
        /// The error of the system.
        cause: io::Error,
    },
    /// The member refused the node.
    #[error("refused: {0}")]
    Refused(String),
    /// The authority in the answer cannot be used.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

/// The question of a new node or a member.
#[derive(Clone, Encode, Decode)]
pub(crate) struct Question {
    #[n(0)]
    pub(crate) id: u64,
    #[cbor(n(1), with = "minicbor::bytes")]
    pub(crate) secret: [u8; 32],
    #[n(2)]
    pub(crate) name: String,
    #[cbor(n(3), with = "minicbor::bytes")]
    pub(crate) detail: Vec<u8>,
}

#[derive(Encode, Decode)]
pub(crate) enum Answer {
    #[n(0)]
    Come {
        #[cbor(n(0), with = "minicbor::bytes")]
        cluster: ClusterId,
        #[n(1)]
        certificate: String,
        #[n(2)]
        key: String,
        #[cbor(n(3), with = "minicbor::bytes")]
        detail: Vec<u8>,
    },
    #[n(1)]
    No {
        #[n(0)]
        why: String,
    },
    #[n(2)]
    Told {
        #[cbor(n(0), with = "minicbor::bytes")]
        detail: Vec<u8>,
    },
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Answer::Come { key, .. } = self {
            zeroize::Zeroize::zeroize(key);
        }
    }
}

/// What a node gets when it is let in.
pub struct Admission {
    /// The cluster's authority.
    pub authority: Authority,
    /// What the member adds to the answer.
    pub detail: Vec<u8>,
}

/// Why a member refuses a node. The node gets the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

/// Asks a member to be let in under this name. `detail` is passed to the member.
///
/// # Errors
/// If it does not answer, or says no.
pub async fn ask(token: &Token, name: &NodeName, detail: Vec<u8>) -> Result<Admission, JoinError> {
    let other = |error| failed(&token.address, io::Error::other(error));
    let config = joining(token.fingerprint).map_err(other)?;
    let question = Question {
        id: token.id,
        secret: token.secret,
        name: name.to_string(),
        detail,
    };
    let answer = exchange(&token.address, token.sponsor.clone(), config, &question).await;
    let mut answer = answer.map_err(|cause| failed(&token.address, cause))?;
    match &mut answer {
        Answer::Told { .. } => Err(failed(&token.address, io::ErrorKind::InvalidData.into())),
        Answer::Come {
            cluster,
            certificate,
            key,
            detail,
        } => Ok(Admission {
            authority: Authority::from_pem(*cluster, certificate, key)?,
            detail: std::mem::take(detail),
        }),
        Answer::No { why } => Err(refused(why)),
    }
}

/// One question and its answer, on a stream of their own.
async fn exchange(
    address: &str,
    server: String,
    config: Arc<ClientConfig>,
    question: &Question,
) -> io::Result<Answer> {
    let asked = timeout(JOIN_TIME_MAX, async {
        let tcp = TcpStream::connect(address).await?;
        let server = ServerName::try_from(server).map_err(io::Error::other)?;
        let mut stream = TlsConnector::from(config).connect(server, tcp).await?;
        send(&mut stream, question).await?;
        receive::<Answer, _>(&mut stream).await
    });
    asked.await.map_err(|_| io::ErrorKind::TimedOut)?
}

fn failed(address: &str, cause: io::Error) -> JoinError {
    JoinError::Io {
        address: address.to_owned(),
        cause,
    }
}

/// The member is authenticated, but its text goes to a terminal.
fn refused(why: &str) -> JoinError {
    let plain = why.chars().filter(|letter| !letter.is_control());
    JoinError::Refused(plain.take(500).collect())
}

/// Asks a member a question, as a member. Returns the answer.
///
/// # Errors
/// If it does not answer, or says no.
pub async fn ask_member(
    credentials: &Credentials,
    name: &NodeName,
    address: &str,
    detail: Vec<u8>,
) -> Result<Vec<u8>, JoinError> {
    let other = |error| failed(address, io::Error::other(error));
    let config = credentials.client_for(ALPN_ASK).map_err(other)?;
    let question = Question {
        id: 0,
        secret: [0; 32],
        name: credentials.name().to_string(),
        detail,
    };
    let answer = exchange(address, name.to_string(), config, &question).await;
    let mut answer = answer.map_err(|cause| failed(address, cause))?;
    match &mut answer {
        Answer::Told { detail } => Ok(std::mem::take(detail)),
        Answer::No { why } => Err(refused(why)),
        Answer::Come { .. } => Err(failed(address, io::ErrorKind::InvalidData.into())),
    }
}

/// The member's side, after the handshake: reads the question, lets `decide` judge it, and answers.
pub(crate) async fn answer<S, F>(
    stream: &mut S,
    authority: &Authority,
    decide: impl FnOnce(Question) -> F,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Result<Vec<u8>, Refused>>,
{
    let answered = timeout(JOIN_TIME_MAX, async {
        let question = receive::<Question, _>(stream).await?;
        let answer = match decide(question).await {
            Ok(detail) => Answer::Come {
                cluster: authority.cluster(),
                certificate: authority.certificate_pem().to_owned(),
                key: authority.key_pem().to_string(),
                detail,
            },
            Err(Refused(why)) => Answer::No { why },
        };
        send(stream, &answer).await?;
        stream.shutdown().await
    });
    answered.await?
}

/// The answering side of [`ask_member`].
pub(crate) async fn tell<S, F>(stream: &mut S, decide: impl FnOnce(Question) -> F) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Result<Vec<u8>, Refused>>,
{
    let told = timeout(JOIN_TIME_MAX, async {
        let question = receive::<Question, _>(stream).await?;
        let answer = match decide(question).await {
            Ok(detail) => Answer::Told { detail },
            Err(Refused(why)) => Answer::No { why },
        };
        send(stream, &answer).await?;
        stream.shutdown().await
    });
    told.await?
}

pub(crate) async fn send<T: Encode<()>>(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> io::Result<()> {
    let bytes = Zeroizing::new(minicbor::to_vec(message).map_err(io::Error::other)?);
    let length = u32::try_from(bytes.len()).ok();
    let length = length
        .filter(|length| *length <= JOIN_BYTES_MAX)
        .ok_or_else(|| io::Error::other("too long to be sent"))?;
    stream.write_u32(length).await?;
    stream.write_all(&bytes).await?;
    stream.flush().await
}

pub(crate) async fn receive<T, S>(stream: &mut S) -> io::Result<T>
where
    T: for<'b> Decode<'b, ()>,
    S: AsyncRead + Unpin,
{
    let length = stream.read_u32().await?;
    if length > JOIN_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too long"));
    }
    // Memory is taken for bytes that have come, not for the length that was announced.
    let mut bytes = Zeroizing::new(Vec::new());
    stream.take(length.into()).read_to_end(&mut bytes).await?;
    if bytes.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    minicbor::decode(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

pub(crate) fn joining(authority: [u8; 32]) -> Result<Arc<ClientConfig>, rustls::Error> {
    let (provider, clock) = details();
    let verifier = PinnedAuthority {
        authority,
        provider: Arc::clone(&provider),
    };
    let mut config = ClientConfig::builder_with_details(provider, clock)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN_JOIN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Trusts only the authority with this fingerprint, which the member sends after its own certificate.
#[derive(Debug)]
struct PinnedAuthority {
    authority: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let known = intermediates
            .iter()
            .find(|shown| fingerprint(shown) == self.authority)
            .ok_or_else(|| {
                rustls::Error::General("not the cluster that the token was made for".into())
            })?;
        let verifier = verifier(known.clone().into_owned())
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        // Never used: see `joining`.
        Err(rustls::Error::General("TLS 1.2".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Questions and answers of a newcomer and of a member, as the first version wrote them.
    #[test]
    fn questions_of_version_1_are_kept() {
        fn is_kept<T: Encode<()> + for<'b> Decode<'b, ()>>(file: &str, now: &[T]) {
            let path = format!("{}/fixtures/{file}", env!("CARGO_MANIFEST_DIR"));
            let written = minicbor::to_vec(now).unwrap();
            if std::env::var_os("WHIMBREL_WRITE_FIXTURES").is_some() {
                std::fs::write(&path, &written).unwrap();
            }
            assert_eq!(std::fs::read(&path).unwrap(), written, "{file}");
            let read: Vec<T> = minicbor::decode(&written).unwrap();
            assert_eq!(minicbor::to_vec(read).unwrap(), written, "{file}");
        }
        let question = Question {
            id: 7,
            secret: [5; 32],
            name: "north-1".into(),
            detail: b"opaque".into(),
        };
        is_kept("join-questions-v1.cbor", &[question]);
        let come = Answer::Come {
            cluster: [9; 16],
            certificate: "a certificate".into(),
            key: "its key".into(),
            detail: b"opaque".into(),
        };
        let no = Answer::No {
            why: "it is no member".into(),
        };
        let told = Answer::Told {
            detail: b"opaque".into(),
        };
        is_kept("join-answers-v1.cbor", &[come, no, told]);
    }
}
