//! What a server offers: the reply to EHLO or LHLO.

use crate::reply::Reply;

/// Mechanisms of AUTH that are looked at: no server has so many.
const MECHANISMS_MAX: usize = 64;

/// What the server offers, from the reply to EHLO or LHLO; nothing after HELO.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offers {
    /// PIPELINING (RFC 2920).
    pub pipelining: bool,
    /// 8BITMIME (RFC 6152).
    pub eight_bit_mime: bool,
    /// SMTPUTF8 (RFC 6531).
    pub utf8: bool,
    /// CHUNKING (RFC 3030).
    pub chunking: bool,
    /// STARTTLS (RFC 3207).
    pub starttls: bool,
    /// ENHANCEDSTATUSCODES (RFC 2034).
    pub enhanced_status_codes: bool,
    /// DSN (RFC 3461).
    pub dsn: bool,
    /// REQUIRETLS (RFC 8689).
    pub require_tls: bool,
    /// SIZE in octets (RFC 1870); `Some(0)`: offered without a limit.
    pub size: Option<u64>,
    /// Mechanisms of AUTH in upper case, also from the old form `AUTH=`.
    pub auth: Vec<String>,
    /// LIMITS.
    pub limits: OfferedLimits,
}

/// LIMITS (RFC 9422): what the server takes in one session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OfferedLimits {
    /// MAILMAX: transactions of a session.
    pub mail_max: Option<u32>,
    /// RCPTMAX: recipients of a transaction.
    pub rcpt_max: Option<u32>,
    /// RCPTDOMAINMAX: different domains of a transaction's recipients.
    pub rcpt_domain_max: Option<u32>,
}

impl Offers {
    /// From the reply to EHLO or LHLO: an extension a line, after the first. What is unknown or malformed is passed over.
    pub(super) fn parse(reply: &Reply) -> Offers {
        let mut offers = Offers::default();
        for line in reply.lines().iter().skip(1) {
            let upper = line.to_ascii_uppercase();
            let mut words = upper.split_ascii_whitespace();
            match words.next().unwrap_or_default() {
                "PIPELINING" => offers.pipelining = true,
                "8BITMIME" => offers.eight_bit_mime = true,
                "SMTPUTF8" => offers.utf8 = true,
                "CHUNKING" => offers.chunking = true,
                "STARTTLS" => offers.starttls = true,
                "ENHANCEDSTATUSCODES" => offers.enhanced_status_codes = true,
                "DSN" => offers.dsn = true,
                "REQUIRETLS" => offers.require_tls = true,
                "SIZE" => {
                    let size = words.next().and_then(|size| size.parse().ok());
                    offers.size = Some(size.unwrap_or(0));
                }
                "AUTH" => words.for_each(|name| offers.mechanism(name)),
                "LIMITS" => words.for_each(|limit| offers.limits.set(limit)),
                // The form before RFC 2554, which servers still send beside the other.
                first => {
                    if let Some(first) = first.strip_prefix("AUTH=") {
                        [first]
                            .into_iter()
                            .chain(words)
                            .for_each(|name| offers.mechanism(name));
                    }
                }
            }
        }
        offers
    }

    fn mechanism(&mut self, name: &str) {
        if !name.is_empty()
            && self.auth.len() < MECHANISMS_MAX
            && !self.auth.iter().any(|known| known == name)
        {
            self.auth.push(name.to_owned());
        }
    }
}

impl OfferedLimits {
    /// `limit-name "=" limit-value`. RFC 9422: these limits have values of one to six digits without a zero in front. Others, and
    /// names that are unknown, are passed over.
    fn set(&mut self, limit: &str) {
        let Some((name, value)) = limit.split_once('=') else {
            return;
        };
        let valid = matches!(value.len(), 1..=6)
            && value.bytes().all(|b| b.is_ascii_digit())
            && !value.starts_with('0');
        let value = value.parse().ok().filter(|_| valid);
        match name {
            "MAILMAX" => self.mail_max = value,
            "RCPTMAX" => self.rcpt_max = value,
            "RCPTDOMAINMAX" => self.rcpt_domain_max = value,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers() {
        let check = |lines: &[&str], expected: Offers| {
            let lines = [&["mx PIPELINING"], lines].concat();
            let reply = Reply::multi(250, None, lines.iter().copied());
            assert_eq!(Offers::parse(&reply), expected, "{lines:?}");
        };
        let none = Offers::default;
        check(&[], none());
        check(
            &[
                "pipelining",
                "8BITMIME",
                "SMTPUTF8",
                "chunking",
                "STARTTLS",
                "EnhancedStatusCodes",
                "DSN",
                "REQUIRETLS",
                "XFOO bar",
                "",
            ],
            Offers {
                pipelining: true,
                eight_bit_mime: true,
                utf8: true,
                chunking: true,
                starttls: true,
                enhanced_status_codes: true,
                dsn: true,
                require_tls: true,
                ..none()
            },
        );
        for (line, size) in [
            ("SIZE", 0),
            ("SIZE 0", 0),
            ("SIZE 1000", 1_000),
            ("SIZE  1000 ", 1_000),
            ("SIZE x", 0),
            ("SIZE 18446744073709551616", 0),
        ] {
            check(
                &[line],
                Offers {
                    size: Some(size),
                    ..none()
                },
            );
        }
        let auth = vec!["PLAIN".to_owned(), "LOGIN".to_owned()];
        check(
            &["AUTH plain LOGIN"],
            Offers {
                auth: auth.clone(),
                ..none()
            },
        );
        check(
            &["AUTH=plain LOGIN"],
            Offers {
                auth: auth.clone(),
                ..none()
            },
        );
        check(
            &["AUTH PLAIN", "AUTH=PLAIN LOGIN", "AUTH", "AUTH="],
            Offers { auth, ..none() },
        );
        let limits = OfferedLimits {
            mail_max: Some(10),
            rcpt_max: Some(999_999),
            rcpt_domain_max: Some(1),
        };
        check(
            &["LIMITS MAILMAX=10 XMAX=3 rcptmax=999999 RCPTDOMAINMAX=1 X"],
            Offers { limits, ..none() },
        );
        check(
            &["LIMITS MAILMAX=0 RCPTMAX=1000000 RCPTDOMAINMAX=-1"],
            none(),
        );
        check(&["LIMITS MAILMAX= RCPTMAX=01 RCPTDOMAINMAX=+1"], none());
        let many: Vec<_> = (0..100).map(|i| format!("M{i}")).collect();
        let line = format!("AUTH {}", many.join(" "));
        let reply = Reply::multi(250, None, ["mx", &line]);
        assert_eq!(Offers::parse(&reply).auth.len(), MECHANISMS_MAX);
    }
}
