//! Whether clients will accept the served certificate: when it is valid, and for which names.

use rustls::{
    client::verify_server_name,
    pki_types::{CertificateDer, ServerName},
    server::ParsedCertificate,
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

/// A certificate should have been renewed so long before its end: most are renewed a third of 90 days before.
const ENDS_SOON_SECONDS: i64 = 7 * 86_400;

/// A fault of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It is not valid yet: usually a clock is wrong.
    Early,
    /// It has expired.
    Expired,
    /// It expires within a week.
    EndsSoon,
    /// It is not for this host's name.
    OtherHost,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 4] = [
        Fault::Early,
        Fault::Expired,
        Fault::EndsSoon,
        Fault::OtherHost,
    ];

    /// For metrics.
    pub fn label(self) -> &'static str {
        match self {
            Fault::Early => "early",
            Fault::Expired => "expired",
            Fault::EndsSoon => "ends soon",
            Fault::OtherHost => "other host",
        }
    }

    /// For the log.
    pub fn text(self) -> &'static str {
        match self {
            Fault::Early => {
                "the certificate is not valid yet: clients refuse it. Is this machine's clock right?"
            }
            Fault::Expired => {
                "the certificate has expired: clients refuse it. Renew it; the new files are noticed"
            }
            Fault::EndsSoon => {
                "the certificate expires within a week. Renew it; the new files are noticed"
            }
            Fault::OtherHost => {
                "the certificate is not for server.hostname: clients and servers that use this name refuse it"
            }
        }
    }
}

/// The version of X.509, from 1; `None`: it cannot be read.
pub(super) fn version(der: &CertificateDer<'_>) -> Option<u32> {
    let (_, parsed) = X509Certificate::from_der(der).ok()?;
    Some(parsed.version().0 + 1)
}

/// The end of a certificate's validity, in seconds since 1970, and its faults at this time (likewise) on this host.
pub(super) fn check(der: &CertificateDer<'_>, now: i64, host: &str) -> (i64, Vec<Fault>) {
    let Ok((_, parsed)) = X509Certificate::from_der(der) else {
        return (0, Vec::new());
    };
    let validity = parsed.validity();
    let (begins, ends) = (
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    );
    let in_time = match () {
        () if now < begins => Some(Fault::Early),
        () if now > ends => Some(Fault::Expired),
        () if now > ends - ENDS_SOON_SECONDS => Some(Fault::EndsSoon),
        () => None,
    };
    let names_host = || {
        let certificate = ParsedCertificate::try_from(der).ok()?;
        let name = ServerName::try_from(host).ok()?;
        verify_server_name(&certificate, &name).ok()
    };
    let for_host = names_host().is_none().then_some(Fault::OtherHost);
    (ends, in_time.into_iter().chain(for_host).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_refuse_is_found() {
        let mut params =
            rcgen::CertificateParams::new(vec!["mail.example.org".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 4, 1);
        let pair = rcgen::KeyPair::generate().unwrap();
        let made = params.self_signed(&pair).unwrap();
        let (begins, ends) = (1_767_225_600, 1_775_001_600);
        let check = |now: i64, host: &str, expected: &[Fault]| {
            assert_eq!(
                super::check(made.der(), now, host),
                (ends, expected.to_vec())
            );
        };
        check(begins, "mail.example.org", &[]);
        check(begins - 1, "mail.example.org", &[Fault::Early]);
        check(ends - ENDS_SOON_SECONDS, "MAIL.example.org", &[]);
        check(ends - 1, "mail.example.org", &[Fault::EndsSoon]);
        check(ends + 1, "mail.example.org", &[Fault::Expired]);
        check(begins, "example.org", &[Fault::OtherHost]);
        check(ends + 1, "", &[Fault::Expired, Fault::OtherHost]);
    }

    #[test]
    fn what_is_no_certificate_is_not_judged() {
        let der = CertificateDer::from_slice(b"no");
        assert_eq!(check(&der, 0, "example.org"), (0, Vec::new()));
    }
}
