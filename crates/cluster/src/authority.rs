//! The cluster's own certificate authority, and the certificate of a node.
//!
//! Every node holds the authority's key, so any member can let another node in, and no particular one is needed for it. A thief of a node's disk has
//! the mail of its users anyway. A removed node is excluded by membership, which all nodes look up, not by a list of revoked certificates.

use std::{sync::Arc, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::{Resumption, WebPkiServerVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    time_provider::TimeProvider,
};
use zeroize::Zeroizing;

use crate::{ClusterId, NodeName};

/// ALPN of streams between members.
pub(crate) const ALPN_NODE: &[u8] = b"whimbrel-node/1";
/// ALPN of a node that wants to join: it has no certificate.
pub(crate) const ALPN_JOIN: &[u8] = b"whimbrel-join/1";

/// ALPN of a member that asks a question, with its certificate.
pub(crate) const ALPN_ASK: &[u8] = b"whimbrel-ask/1";
/// ALPN of a member that relays a client's session.
pub(crate) const ALPN_RELAY: &[u8] = b"whimbrel-relay/1";

/// Certificates or keys that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the cluster's certificates cannot be used: {0}")]
pub struct AuthorityError(String);

fn wrong(error: impl std::fmt::Display) -> AuthorityError {
    AuthorityError(error.to_string())
}

/// The only cryptography that is used.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Certificates of the cluster are verified as of this moment, the beginning of 2025, at which all that were ever made are valid. Trust depends on
/// the authority, on names and on membership (`docs/decisions/0014`), not on dates. With the wall clock, a node whose clock is wrong could neither
/// start nor link with the peers that would tell it so (`docs/decisions/0039`). Without a link it would believe its clock.
const JUDGED_AT: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_735_689_600));

/// A clock that always shows [`JUDGED_AT`].
#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(JUDGED_AT)
    }
}

/// The cryptography and the clock of both sides' configuration.
pub(crate) fn details() -> (Arc<CryptoProvider>, Arc<dyn TimeProvider>) {
    (provider(), Arc::new(NoClock))
}

/// Makes certificates for the nodes of one cluster.
pub struct Authority {
    cluster: ClusterId,
    certificate: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

impl Authority {
    /// Makes a new one.
    ///
    /// # Errors
    /// If the system gives no randomness.
    pub fn found(cluster: ClusterId) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate().map_err(wrong)?;
        let certificate = root(cluster).self_signed(&key).map_err(wrong)?;
        Ok(Authority {
            cluster,
            pem: certificate.pem(),
            certificate: certificate.der().clone(),
            key,
        })
    }

    /// An authority from its [`Authority::certificate_pem`] and [`Authority::key_pem`].
    ///
    /// If the two are damaged, or do not belong to each other and to this cluster.
    pub fn from_pem(
        cluster: ClusterId,
        certificate: &str,
        key: &str,
    ) -> Result<Self, AuthorityError> {
        let authority = Authority {
            cluster,
            certificate: CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(wrong)?,
            pem: certificate.to_owned(),
            key: KeyPair::from_pem(key).map_err(wrong)?,
        };
        // A certificate that they sign is valid only if they are.
        authority.certify(&NodeName::new("probe").map_err(wrong)?)?;
        Ok(authority)
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The authority's certificate.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// The authority's secret.
    pub fn key_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.key.serialize_pem())
    }

    /// BLAKE3 of the certificate. A token has it, so that a node that joins can verify the member.
    pub fn fingerprint(&self) -> [u8; 32] {
        fingerprint(&self.certificate)
    }

    /// Makes a certificate and its key for a node.
    ///
    /// # Errors
    /// If the system gives no randomness, or this authority is incomplete.
    pub fn certify(&self, name: &NodeName) -> Result<Credentials, AuthorityError> {
        self.sign(&leaf(name)?)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Credentials, AuthorityError> {
        let key = KeyPair::generate().map_err(wrong)?;
        let issued = root(self.cluster);
        let issuer = Issuer::from_params(&issued, &self.key);
        let certificate = params.signed_by(&key, &issuer).map_err(wrong)?;
        Credentials::from_pem(
            self.cluster,
            &self.pem,
            &certificate.pem(),
            &Zeroizing::new(key.serialize_pem()),
        )
    }
}

/// A node's certificate.
fn leaf(name: &NodeName) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::new(vec![name.to_string()]).map_err(wrong)?;
    params
        .distinguished_name
        .push(DnType::CommonName, name.as_str());
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    forever(&mut params);
    Ok(params)
}

/// The authority's own certificate. It depends on the cluster alone, so an issuer can be made from it at any time.
fn root(cluster: ClusterId) -> CertificateParams {
    let mut params = CertificateParams::default();
    let id: String = cluster.iter().map(|byte| format!("{byte:02x}")).collect();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("Whimbrel cluster {id}"));
    // It signs certificates of nodes, not of further authorities.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    forever(&mut params);
    params
}

/// Certificates do not expire: a cluster must not stop because nobody renewed a file, and nodes are excluded by membership. 2049 is the last year of
/// UTCTime (RFC 5280, 4.1.2.5). The begin lies in the past, since clocks differ; nodes verify certificates without a clock ([`JUDGED_AT`]).
fn forever(params: &mut CertificateParams) {
    params.not_before = rcgen::date_time_ymd(2024, 1, 1);
    params.not_after = rcgen::date_time_ymd(2049, 12, 31);
}

pub(crate) fn fingerprint(der: &[u8]) -> [u8; 32] {
    *blake3::hash(der).as_bytes()
}

/// A node's certificate and key, and the authority that it trusts.
pub struct Credentials {
    name: NodeName,
    cluster: ClusterId,
    authority: CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    key_pem: Zeroizing<String>,
    roots: Arc<RootCertStore>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Credentials from the authority's certificate, [`Credentials::certificate_pem`] and [`Credentials::key_pem`].
    ///
    /// If these are damaged, or do not belong to each other.
    pub fn from_pem(
        cluster: ClusterId,
        authority: &str,
        certificate: &str,
        key: &str,
    ) -> Result<Self, AuthorityError> {
        let authority = CertificateDer::from_pem_slice(authority.as_bytes()).map_err(wrong)?;
        let certificate_pem = certificate.to_owned();
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(wrong)?;
        let roots = Arc::new(roots(authority.clone())?);
        let name = name_in(&certificate)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider())
            .build()
            .map_err(wrong)?;
        verifier
            .verify_client_cert(&certificate, &[], JUDGED_AT)
            .map_err(wrong)?;
        let credentials = Credentials {
            name,
            cluster,
            authority,
            certificate,
            certificate_pem,
            key_pem: Zeroizing::new(key.to_owned()),
            roots,
        };
        // Refuses a key that is not the certificate's.
        credentials.client_config()?;
        Ok(credentials)
    }

    /// The node.
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// Its cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The node's certificate.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The node's secret.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, AuthorityError> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(wrong)
    }

    /// The configuration of the side that accepts. A node without a certificate gets as far as ALPN: see `transport`.
    pub(crate) fn server_config(&self) -> Result<Arc<ServerConfig>, AuthorityError> {
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), provider())
                .allow_unauthenticated()
                .build()
                .map_err(wrong)?;
        // A node that joins knows only the authority's fingerprint, so the chain contains the authority's certificate.
        let chain = vec![self.certificate.clone(), self.authority.clone()];
        let (provider, clock) = details();
        let mut config = ServerConfig::builder_with_details(provider, clock)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, self.key()?)
            .map_err(wrong)?;
        let known = [ALPN_NODE, ALPN_JOIN, ALPN_ASK, ALPN_RELAY];
        config.alpn_protocols = known.map(<[u8]>::to_vec).into();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// The configuration of the side that connects, for a link.
    pub(crate) fn client_config(&self) -> Result<Arc<ClientConfig>, AuthorityError> {
        self.client_for(ALPN_NODE)
    }

    /// The configuration of the side that connects, for this ALPN.
    pub(crate) fn client_for(&self, alpn: &[u8]) -> Result<Arc<ClientConfig>, AuthorityError> {
        let (provider, clock) = details();
        let mut config = ClientConfig::builder_with_details(provider, clock)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_client_auth_cert(vec![self.certificate.clone()], self.key()?)
            .map_err(wrong)?;
        config.alpn_protocols = vec![alpn.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

fn roots(authority: CertificateDer<'static>) -> Result<RootCertStore, AuthorityError> {
    let mut roots = RootCertStore::empty();
    roots.add(authority).map_err(wrong)?;
    Ok(roots)
}

/// A verifier that trusts this authority.
pub(crate) fn verifier(
    authority: CertificateDer<'static>,
) -> Result<Arc<WebPkiServerVerifier>, AuthorityError> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots(authority)?), provider())
        .build()
        .map_err(wrong)
}

/// The one name in a node's certificate.
pub(crate) fn name_in(certificate: &CertificateDer<'_>) -> Result<NodeName, AuthorityError> {
    let certificate = webpki::EndEntityCert::try_from(certificate).map_err(wrong)?;
    let mut names = certificate.valid_dns_names();
    match (names.next(), names.next()) {
        (Some(name), None) => NodeName::new(name).map_err(wrong),
        _ => Err(AuthorityError("not one name in a certificate".into())),
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;
    use tokio::io::duplex;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;
    use crate::join::joining;

    /// By this clock the certificate has expired, as at a node whose clock is years off.
    #[tokio::test]
    async fn no_clock_keeps_members_apart() {
        let authority = Authority::found([7; 16]).unwrap();
        let node = |name: &str| {
            let mut params = leaf(&NodeName::new(name).unwrap()).unwrap();
            params.not_after = rcgen::date_time_ymd(2025, 6, 1);
            authority.sign(&params).unwrap()
        };
        let (one, other) = (node("eu-1"), node("eu-2"));
        let member = other.client_config().unwrap();
        let newcomer = joining(authority.fingerprint()).unwrap();
        for (config, shows) in [(member, true), (newcomer, false)] {
            let (near, far) = duplex(64 * 1024);
            let server = ServerName::try_from("eu-1").unwrap();
            let connector = TlsConnector::from(config);
            let acceptor = TlsAcceptor::from(one.server_config().unwrap());
            let (connected, accepted) =
                tokio::join!(connector.connect(server, near), acceptor.accept(far));
            connected.unwrap();
            let (_, session) = accepted.unwrap().into_inner();
            assert_eq!(session.peer_certificates().is_some(), shows);
        }
    }

    #[test]
    fn certificates_are_kept_and_read_again() {
        let authority = Authority::found([7; 16]).unwrap();
        let again = Authority::from_pem([7; 16], authority.certificate_pem(), &authority.key_pem())
            .unwrap();
        assert_eq!(authority.fingerprint(), again.fingerprint());
        let node = again.certify(&NodeName::new("eu-1").unwrap()).unwrap();
        let read = Credentials::from_pem(
            [7; 16],
            authority.certificate_pem(),
            node.certificate_pem(),
            node.key_pem(),
        )
        .unwrap();
        assert_eq!(read.name().as_str(), "eu-1");
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let ours = Authority::found([1; 16]).unwrap();
        let theirs = Authority::found([2; 16]).unwrap();
        let name = NodeName::new("eu-1").unwrap();
        let (a, b) = (ours.certify(&name).unwrap(), theirs.certify(&name).unwrap());
        let check = |authority: &Authority, certificate: &str, key: &str| {
            let read =
                Credentials::from_pem([1; 16], authority.certificate_pem(), certificate, key);
            assert!(read.is_err(), "{read:?}");
        };
        check(&ours, b.certificate_pem(), b.key_pem());
        check(&ours, a.certificate_pem(), b.key_pem());
        check(&ours, "", a.key_pem());
        check(&ours, a.certificate_pem(), "");
        for (cluster, certificate, key) in [
            ([1; 16], ours.certificate_pem(), theirs.key_pem()),
            ([2; 16], ours.certificate_pem(), ours.key_pem()),
            ([1; 16], "", ours.key_pem()),
        ] {
            assert!(Authority::from_pem(cluster, certificate, &key).is_err());
        }
    }
}
