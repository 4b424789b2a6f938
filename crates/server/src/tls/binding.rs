//! Channel bindings of a finished connection: what SCRAM-SHA-256-PLUS is bound to.

use std::sync::Arc;

use rustls::crypto::hash::Hash;
use whimbrel_frontend::session::Binding;

/// RFC 9266, 2.
const EXPORTER_LABEL: &[u8] = b"EXPORTER-Channel-Binding";

/// The bindings of a connection on which `end_point` was shown (see [`end_point`]).
pub(super) fn of(connection: &rustls::ServerConnection, end_point: Option<Arc<[u8]>>) -> Binding {
    // TLS 1.2 has an exporter, too, but it is bound to the connection only with the extended master secret (RFC 9266, 4.2), and rustls does not
    // tell whether that was used.
    let is_1_3 = connection.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3);
    let exporter = is_1_3
        .then(|| connection.export_keying_material([0; 32], EXPORTER_LABEL, Some(&[])))
        .and_then(Result::ok);
    Binding {
        exporter: exporter.map(Box::new),
        end_point,
    }
}

/// "tls-server-end-point" (RFC 5929, 4.1): the certificate hashed by the function of its own signature, SHA-256 in place of MD5 and SHA-1. `None`
/// where that has none or several: "then this channel binding type's channel bindings are undefined".
pub(super) fn end_point(certificate: &[u8]) -> Option<Arc<[u8]>> {
    use rustls::crypto::ring::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384};
    let hash_of = |suite| match suite {
        rustls::SupportedCipherSuite::Tls13(suite) => Some(suite.common.hash_provider),
        rustls::SupportedCipherSuite::Tls12(_) => None,
    };
    let hash: &dyn Hash = match signature_algorithm(certificate)? {
        // 1.2.840.113549.1.1: md5, sha1, sha256 with RSA; 1.2.840.10045.4: ECDSA with SHA-1, SHA-256.
        [
            0x2a,
            0x86,
            0x48,
            0x86,
            0xf7,
            0x0d,
            0x01,
            0x01,
            0x04 | 0x05 | 0x0b,
        ]
        | [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01]
        | [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02] => hash_of(TLS13_AES_128_GCM_SHA256)?,
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c]
        | [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03] => hash_of(TLS13_AES_256_GCM_SHA384)?,
        // SHA-512, RSASSA-PSS and EdDSA: the first is not in our cryptography, the others are undefined or not worth it.
        _ => return None,
    };
    Some(hash.hash(certificate).as_ref().into())
}

/// The object identifier of `signatureAlgorithm` (RFC 5280, 4.1): the second member of the outermost sequence.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const OBJECT: u8 = 0x06;
    let (certificate, _) = value(certificate, SEQUENCE)?;
    let (_, rest) = value(certificate, SEQUENCE)?;
    let (algorithm, _) = value(rest, SEQUENCE)?;
    value(algorithm, OBJECT).map(|(object, _)| object)
}

/// The content of a DER value of this tag, and the rest after it.
fn value(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = der.split_first_chunk::<2>()?;
    if found != tag {
        return None;
    }
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = length
                .iter()
                .fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(algorithm: &'static rcgen::SignatureAlgorithm) -> Vec<u8> {
        let pair = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.self_signed(&pair).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_is_hashed_by_its_own_hash() {
        let check = |algorithm, expected: Option<usize>| {
            let certificate = made(algorithm);
            let found = end_point(&certificate);
            assert_eq!(found.as_ref().map(|hash| hash.len()), expected);
            if let Some(hash) = found.filter(|hash| hash.len() == 32) {
                let pairs: Vec<String> = hash.iter().map(|byte| format!("{byte:02X}")).collect();
                assert_eq!(pairs.join(":"), crate::tls::fingerprint(&certificate));
            }
            for len in 0..certificate.len() {
                // Bytes that are cut anywhere are no certificate; nothing panics.
                assert_eq!(end_point(&certificate[..len]), None);
            }
        };
        check(&rcgen::PKCS_ECDSA_P256_SHA256, Some(32));
        check(&rcgen::PKCS_ECDSA_P384_SHA384, Some(48));
        check(&rcgen::PKCS_ED25519, None);
    }

    #[test]
    fn lengths() {
        let check = |der: &[u8], expected: Option<(&[u8], &[u8])>| {
            assert_eq!(value(der, 0x30), expected);
        };
        check(&[0x30, 0x01, 7, 8], Some((&[7], &[8])));
        check(&[0x30, 0x81, 0x01, 7], Some((&[7], &[])));
        check(&[0x30, 0x00], Some((&[], &[])));
        check(&[0x31, 0x00], None);
        check(&[0x30, 0x80], None);
        check(&[0x30, 0x85, 0, 0, 0, 0, 1, 7], None);
        check(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], None);
        check(&[0x30], None);
    }
}
