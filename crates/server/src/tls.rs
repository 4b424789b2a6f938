//! Certificates and handshakes: TLS 1.2 and 1.3 by rustls.
//!
//! Invariants: a certificate in use is complete (chain and matching key were read together); a broken new file never replaces a working one; private
//! keys are created with mode 0600 and never logged.

mod binding;
mod validity;

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use whimbrel_frontend::session::Tls;

pub use validity::Fault;

use crate::config::Config;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("{of}: {}: {cause}", path.display())]
    File {
        /// The key of the configuration, or what the file is for.
        of: &'static str,
        /// Which.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A file holds no PEM of the kind wanted.
    #[error("{of}: {}: {cause}", path.display())]
    Pem {
        /// The key of the configuration.
        of: &'static str,
        /// Which.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// Chain and key do not make a certificate.
    #[error("the certificate cannot be used: {0}")]
    Unusable(String),
}

/// The certificate files and what was last read from them.
pub struct Certificates {
    cert: PathBuf,
    key: PathBuf,
    host: String,
    in_use: Arc<InUse>,
    stamp: Mutex<Option<[Stamp; 2]>>,
}

/// Shows that a file was replaced, or may be readable now: times of modification and of the last change of any kind, in seconds and nanoseconds;
/// size, inode.
type Stamp = ([i64; 4], u64, u64);

#[derive(Debug)]
struct InUse(RwLock<Arc<Loaded>>);

/// A certificate, and the channel binding for it.
#[derive(Debug)]
pub struct Loaded {
    certified: Arc<CertifiedKey>,
    end_point: Option<Arc<[u8]>>,
}

impl Loaded {
    fn new(certified: CertifiedKey) -> Arc<Self> {
        let end_point = certified.cert.first();
        Arc::new(Loaded {
            end_point: end_point.and_then(|der| binding::end_point(der)),
            certified: Arc::new(certified),
        })
    }
}

/// The certificate that clients get, for channel bindings.
#[derive(Clone, Debug)]
pub struct ServedCertificate(Arc<InUse>);

impl ServedCertificate {
    /// The certificate in use now.
    pub fn now(&self) -> Arc<Loaded> {
        Arc::clone(&self.0.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for InUse {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let loaded = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&loaded.certified))
    }
}

/// The result of a look at the files.
#[derive(Debug, PartialEq, Eq)]
pub enum Reload {
    /// The files are as before.
    Unchanged,
    /// A new certificate is in use; its fingerprint.
    Replaced(String),
}

impl Certificates {
    /// Reads the configured certificate, or the self-signed one in the data directory, which is made if it is not there.
    pub fn open(config: &Config) -> Result<Self, TlsError> {
        let (cert, key) = if config.tls.cert.as_os_str().is_empty() {
            let directory = config.server.data_dir.join("tls");
            let paths = (directory.join("cert.pem"), directory.join("key.pem"));
            if !paths.0.exists() || !paths.1.exists() {
                make_self_signed(&directory, &paths.0, &paths.1, &config.hostname())?;
            }
            paths
        } else {
            (config.tls.cert.clone(), config.tls.key.clone())
        };
        let stamp = stamp(&cert, &key).ok();
        let certified = read(&cert, &key)?;
        Ok(Certificates {
            cert,
            key,
            host: config.hostname(),
            in_use: Arc::new(InUse(RwLock::new(Loaded::new(certified)))),
            stamp: Mutex::new(stamp),
        })
    }

    /// Looks whether the files have changed (or, if `forced`, reads them anyway) and uses them if they are complete. After an error the old
    /// certificate stays, and the same files are not read again until they change, unless they could not be read at all.
    pub fn reload(&self, forced: bool) -> Result<Reload, TlsError> {
        let now = stamp(&self.cert, &self.key)?;
        let mut last = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        if !forced && *last == Some(now) {
            return Ok(Reload::Unchanged);
        }
        let read = read(&self.cert, &self.key);
        // A file that was not read may be complete, and not change: it is read again.
        if !matches!(read, Err(TlsError::File { .. })) {
            *last = Some(now);
        }
        let loaded = Loaded::new(read?);
        let mut in_use = self
            .in_use
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let unchanged = in_use.certified.cert == loaded.certified.cert;
        *in_use = loaded;
        drop(in_use);
        Ok(if unchanged {
            Reload::Unchanged
        } else {
            Reload::Replaced(self.fingerprint())
        })
    }

    /// SHA-256 of the certificate, in the notation of clients.
    pub fn fingerprint(&self) -> String {
        let in_use = self.in_use.0.read().unwrap_or_else(PoisonError::into_inner);
        in_use
            .certified
            .cert
            .first()
            .map_or_else(String::new, |der| fingerprint(der))
    }

    /// When the certificate's time ends, in seconds since 1970, and what is wrong with it now, likewise.
    pub fn faults(&self, now: i64) -> (i64, Vec<Fault>) {
        let shown = self.served().now();
        let first = shown.certified.cert.first();
        first.map_or_else(
            || (0, Vec::new()),
            |der| validity::check(der, now, &self.host),
        )
    }

    /// The certificate that clients get.
    pub fn served(&self) -> ServedCertificate {
        ServedCertificate(Arc::clone(&self.in_use))
    }

    /// The certificate's file, for clients that want to trust it.
    pub fn path(&self) -> &Path {
        &self.cert
    }

    /// The configuration of the server's side.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let unusable = |error: rustls::Error| TlsError::Unusable(error.to_string());
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(unusable)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.in_use) as Arc<dyn ResolvesServerCert>);
        // Tickets are kept by clients, so that resumption costs the server no memory.
        config.ticketer = ring::Ticketer::new().map_err(unusable)?;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Ok(Arc::new(config))
    }
}

/// The only cryptography that is used.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: std::sync::OnceLock<Arc<CryptoProvider>> = std::sync::OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(ring::default_provider())))
}

/// SHA-256 of a certificate in the usual notation, `AB:CD:...`.
pub fn fingerprint(der: &[u8]) -> String {
    let rustls::SupportedCipherSuite::Tls13(suite) = ring::cipher_suite::TLS13_AES_128_GCM_SHA256
    else {
        return String::new();
    };
    let hash = suite.common.hash_provider.hash(der);
    let pairs: Vec<String> = hash
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02X}"))
        .collect();
    pairs.join(":")
}

/// The parameters of a finished handshake. `before` is the certificate in use when the handshake began. If another one has come into use since, it is
/// not known which one this client got, and nothing is bound to it.
pub fn negotiated(
    connection: &rustls::ServerConnection,
    before: &Arc<Loaded>,
    shown: &ServedCertificate,
) -> Tls {
    let same = Arc::ptr_eq(before, &shown.now());
    let end_point = before.end_point.clone().filter(|_| same);
    Tls {
        binding: binding::of(connection, end_point),
        version: match connection.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLS",
        },
        // `TLS13_AES_256_GCM_SHA384` is rustls' name for what RFC 8446 calls `TLS_AES_256_GCM_SHA384`.
        cipher: connection
            .negotiated_cipher_suite()
            .and_then(|suite| suite.suite().as_str())
            .map_or_else(
                || "unknown".to_owned(),
                |name| name.replacen("TLS13_", "TLS_", 1),
            ),
    }
}

/// The purposes of files, for errors.
const CERT: &str = "tls.cert";
const KEY: &str = "tls.key";
const SELF_SIGNED: &str = "cannot make a self-signed certificate";

fn file(of: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TlsError {
    move |cause| TlsError::File {
        of,
        path: path.to_owned(),
        cause,
    }
}

fn stamp(cert: &Path, key: &Path) -> Result<[Stamp; 2], TlsError> {
    let of = |of, path: &Path| {
        let meta = fs::metadata(path).map_err(file(of, path))?;
        let (modified, changed) = (meta.mtime_nsec(), meta.ctime_nsec());
        let times = [meta.mtime(), modified, meta.ctime(), changed];
        Ok((times, meta.size(), meta.ino()))
    };
    Ok([of(CERT, cert)?, of(KEY, key)?])
}

fn read(cert: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let pem = |of, path: &Path, cause: String| TlsError::Pem {
        of,
        path: path.to_owned(),
        cause,
    };
    let text = fs::read(cert).map_err(file(CERT, cert))?;
    let chain = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| pem(CERT, cert, error.to_string()))?;
    let Some(first) = chain.first() else {
        let nothing = "the file contains no certificate (PEM)";
        return Err(pem(CERT, cert, nothing.to_owned()));
    };
    let version = validity::version(first);
    let text = zeroize::Zeroizing::new(fs::read(key).map_err(file(KEY, key))?);
    let key =
        PrivateKeyDer::from_pem_slice(&text).map_err(|error| pem(KEY, key, error.to_string()))?;
    // Refuses a key that is not the certificate's.
    CertifiedKey::from_der(chain, key, &provider()).map_err(|error| {
        TlsError::Unusable(match (error, version) {
            (rustls::Error::InconsistentKeys(_), _) => "tls.key does not belong to tls.cert".into(),
            (_, Some(version @ 1..=2)) => {
                format!("tls.cert is X.509 version {version}; version 3 is needed")
            }
            (error, _) => error.to_string(),
        })
    })
}

fn make_self_signed(
    directory: &Path,
    cert: &Path,
    key: &Path,
    hostname: &str,
) -> Result<(), TlsError> {
    let unusable = |error: rcgen::Error| TlsError::Unusable(error.to_string());
    let mut names = vec![
        hostname.to_owned(),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    names.dedup();
    let mut params = rcgen::CertificateParams::new(names).map_err(unusable)?;
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, hostname);
    // This certificate is never renewed: an administrator who wants an expiry configures another one. 2049 is the last year of UTCTime (RFC 5280,
    // 4.1.2.5).
    params.not_before = rcgen::date_time_ymd(2024, 1, 1);
    params.not_after = rcgen::date_time_ymd(2049, 12, 31);
    let pair = rcgen::KeyPair::generate().map_err(unusable)?;
    let made = params.self_signed(&pair).map_err(unusable)?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(file(SELF_SIGNED, directory))?;
    let secret = zeroize::Zeroizing::new(pair.serialize_pem());
    write_private(key, secret.as_bytes()).map_err(file(SELF_SIGNED, key))?;
    write_private(cert, made.pem().as_bytes()).map_err(file(SELF_SIGNED, cert))?;
    let sums = directory.join(SUMS);
    let text = sums_of(&[(cert, made.pem().as_bytes()), (key, secret.as_bytes())]);
    write_private(&sums, text.as_bytes()).map_err(file(SELF_SIGNED, &sums))
}

/// The file beside a certificate that was made here: checksums of it and its key, so that `whimbrel check` can tell whether they are unchanged.
pub(crate) const SUMS: &str = "sums";

/// A line with the checksum of all others, and for each file one with its checksum and name.
fn sums_of(files: &[(&Path, &[u8])]) -> String {
    let line = |(path, bytes): &(&Path, &[u8])| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        format!("{} {name}\n", blake3::hash(bytes).to_hex())
    };
    let lines: String = files.iter().map(line).collect();
    format!("{}\n{lines}", blake3::hash(lines.as_bytes()).to_hex())
}

/// The names and checksums in such a file; `None` if it is damaged.
pub(crate) fn parse_sums(text: &str) -> Option<Vec<(String, String)>> {
    let (sum, lines) = text.split_once('\n')?;
    if blake3::hash(lines.as_bytes()).to_hex().as_str() != sum {
        return None;
    }
    let pair = |line: &str| {
        let (sum, name) = line.split_once(' ')?;
        Some((name.to_owned(), sum.to_owned()))
    };
    lines.lines().map(pair).collect()
}

/// Writes a file of mode 0600 so that it is either complete or not there.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => {
            fs::File::open(directory)?.sync_all()
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn config(directory: &Path) -> Config {
        let mut config = Config::default();
        config.server.data_dir = directory.to_owned();
        config
    }

    #[test]
    fn the_first_start_makes_a_certificate_and_the_second_keeps_it() {
        let directory = tempfile::tempdir().unwrap();
        let first = Certificates::open(&config(directory.path())).unwrap();
        let second = Certificates::open(&config(directory.path())).unwrap();
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert_eq!(first.fingerprint().len(), 32 * 3 - 1);
        let mode = |path: &str| {
            fs::metadata(directory.path().join(path))
                .unwrap()
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!((mode("tls"), mode("tls/key.pem")), (0o700, 0o600));
        first.server_config().unwrap();
    }

    #[test]
    fn a_fingerprint_is_sha_256() {
        // FIPS 180-2, B.1: SHA-256 of "abc".
        assert!(fingerprint(b"abc").starts_with("BA:78:16:BF:8F:01:CF:EA:41:41:40:DE:5D:AE"));
    }

    #[test]
    fn changed_files_are_taken_and_broken_ones_are_not() {
        let a = tempfile::tempdir().unwrap();
        let b = tempfile::tempdir().unwrap();
        let certificates = Certificates::open(&config(a.path())).unwrap();
        let other = Certificates::open(&config(b.path())).unwrap();
        let before = certificates.fingerprint();
        assert_eq!(certificates.reload(false).unwrap(), Reload::Unchanged);

        // A certificate without its key: as if the reload fell between two copies.
        let copy = |name: &str| {
            let text = fs::read(b.path().join("tls").join(name)).unwrap();
            write_private(&a.path().join("tls").join(name), &text).unwrap();
        };
        copy("cert.pem");
        assert!(matches!(
            certificates.reload(false),
            Err(TlsError::Unusable(why)) if why == "tls.key does not belong to tls.cert"
        ));
        assert_eq!(certificates.fingerprint(), before);
        // The same broken files are reported once.
        assert_eq!(certificates.reload(false).unwrap(), Reload::Unchanged);

        copy("key.pem");
        assert_eq!(
            certificates.reload(false).unwrap(),
            Reload::Replaced(other.fingerprint())
        );
        assert_eq!(certificates.fingerprint(), other.fingerprint());

        fs::write(a.path().join("tls/cert.pem"), "no certificate").unwrap();
        assert!(matches!(
            certificates.reload(true),
            Err(TlsError::Pem { .. })
        ));
        fs::remove_file(a.path().join("tls/cert.pem")).unwrap();
        assert!(matches!(
            certificates.reload(false),
            Err(TlsError::File { .. })
        ));
        assert_eq!(certificates.fingerprint(), other.fingerprint());
    }

    /// As when no descriptor was left: the certificate was not used until the next renewal.
    #[test]
    fn files_that_could_not_be_read_are_read_again() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let certificates = Certificates::open(&config(a.path())).unwrap();
        let other = Certificates::open(&config(b.path())).unwrap();
        let at = |directory: &Path, name: &str| directory.join("tls").join(name);
        let cert = fs::read(at(b.path(), "cert.pem")).unwrap();
        write_private(&at(a.path(), "cert.pem"), &cert).unwrap();
        // Nobody can read that, not even root.
        let key = at(a.path(), "key.pem");
        fs::remove_file(&key).unwrap();
        fs::create_dir(&key).unwrap();
        for _ in 0..2 {
            let failed = certificates.reload(false);
            assert!(matches!(failed, Err(TlsError::File { .. })), "{failed:?}");
        }
        fs::remove_dir(&key).unwrap();
        fs::copy(at(b.path(), "key.pem"), &key).unwrap();
        let replaced = Reload::Replaced(other.fingerprint());
        assert_eq!(certificates.reload(false).unwrap(), replaced);
    }

    #[test]
    fn a_file_that_may_be_read_now_is_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        fs::write(&path, "key").unwrap();
        let before = stamp(&path, &path).unwrap();
        // Longer than the resolution of file times.
        std::thread::sleep(std::time::Duration::from_millis(50));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_ne!(stamp(&path, &path).unwrap(), before);
    }
}
