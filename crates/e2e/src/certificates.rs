//! Certificates for the tests: an authority, and leaves for `localhost` and 127.0.0.1. Clients verify against the authority, as real
//! ones do.

use std::{fs, path::Path, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer};

/// An authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}

impl Authority {
    /// A new one.
    #[must_use]
    pub fn new() -> Authority {
        let key = KeyPair::generate().expect("key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "Authority of the tests");
        let certificate = params.self_signed(&key).expect("self-signed");
        Authority {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Writes `certificate.pem` and `key.pem` of a new leaf with this common name, and `authority.pem`; returns the leaf's bytes.
    pub fn write_leaf(&self, directory: &Path, common_name: &str) -> Vec<u8> {
        let key = KeyPair::generate().expect("key");
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("names");
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        let leaf = params.signed_by(&key, &self.issuer).expect("signed");
        // The key first: who watches the certificate must find the pair complete.
        replace(&directory.join("key.pem"), &key.serialize_pem());
        replace(&directory.join("certificate.pem"), &leaf.pem());
        replace(&directory.join("authority.pem"), &self.pem);
        leaf.der().to_vec()
    }

    /// What a client needs that trusts this authority alone.
    #[must_use]
    pub fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).expect("own certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring knows TLS 1.2 and 1.3");
        Arc::new(config.with_root_certificates(roots).with_no_client_auth())
    }
}

/// Whole files only, as a careful administrator does it.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).expect("certificate written");
    fs::rename(&beside, path).expect("certificate in place");
}
