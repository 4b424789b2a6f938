//! resolv.conf(5): which servers, and how long they are waited for.
//!
//! `search`, `domain` and `ndots` are not read, since names of mail are absolute.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

/// Servers that are used; further ones are ignored, as the C library does (MAXNS).
const NAMESERVERS_MAX: usize = 3;

/// "The value for this option is silently capped to 30".
const TIMEOUT_SECONDS_MAX: u64 = 30;

/// "The value for this option is silently capped to 5".
const ATTEMPTS_MAX: u32 = 5;

const PORT: u16 = 53;

/// What such a file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvConf {
    /// At least one: without any, the one of this machine.
    pub servers: Vec<SocketAddr>,
    /// `options timeout:`; 5 s by default.
    pub timeout: Duration,
    /// `options attempts:`; 2 by default.
    pub attempts: u32,
    /// `options trust-ad`: the way to the servers is trusted, and so is what they say of authenticity.
    pub trust_ad: bool,
}

impl ResolvConf {
    /// Reads the text of the file. What cannot be read is ignored, as the C library does.
    ///
    /// Of an address with a scope (`fe80::1%2`) a number is kept. The name of an interface is not: what stands behind it is no business of a text.
    ///
    /// ```
    /// let conf = whimbrel_dns::ResolvConf::read("nameserver 192.0.2.1\noptions timeout:2\n");
    /// assert_eq!(conf.servers, ["192.0.2.1:53".parse().unwrap()]);
    /// assert_eq!(conf.timeout.as_secs(), 2);
    /// ```
    #[must_use]
    pub fn read(text: &str) -> Self {
        let mut conf = ResolvConf {
            servers: Vec::new(),
            timeout: Duration::from_secs(5),
            attempts: 2,
            trust_ad: false,
        };
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") if conf.servers.len() < NAMESERVERS_MAX => {
                    conf.servers.extend(words.next().and_then(server));
                }
                Some("options") => words.for_each(|option| conf.option(option)),
                _ => {}
            }
        }
        if conf.servers.is_empty() {
            conf.servers.push((Ipv4Addr::LOCALHOST, PORT).into());
        }
        conf
    }

    fn option(&mut self, option: &str) {
        let (name, value) = option.split_once(':').unwrap_or((option, ""));
        match (name, value.parse::<u32>()) {
            ("timeout", Ok(seconds)) => {
                let seconds = u64::from(seconds).clamp(1, TIMEOUT_SECONDS_MAX);
                self.timeout = Duration::from_secs(seconds);
            }
            ("attempts", Ok(attempts)) => self.attempts = attempts.clamp(1, ATTEMPTS_MAX),
            ("trust-ad", _) => self.trust_ad = true,
            _ => {}
        }
    }
}

fn server(text: &str) -> Option<SocketAddr> {
    let (address, scope) = text.split_once('%').unwrap_or((text, ""));
    match address.parse().ok()? {
        IpAddr::V4(address) => Some((address, PORT).into()),
        IpAddr::V6(address) => {
            let scope = scope.parse().unwrap_or(0);
            Some(SocketAddrV6::new(address, PORT, 0, scope).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, servers: &[&str], timeout: u64, attempts: u32, trust_ad: bool) {
        let conf = ResolvConf::read(text);
        let shown: Vec<String> = conf.servers.iter().map(SocketAddr::to_string).collect();
        assert_eq!(shown, servers, "{text:?}");
        let rest = (conf.timeout.as_secs(), conf.attempts, conf.trust_ad);
        assert_eq!(rest, (timeout, attempts, trust_ad), "{text:?}");
    }

    #[test]
    fn files_are_read() {
        check("", &["127.0.0.1:53"], 5, 2, false);
        check(
            "# by hand\nsearch example.org\nnameserver 192.0.2.1\n\tnameserver\t2001:db8::1 ; second\r\nnameserver 192.0.2.3#third\nnameserver 192.0.2.4\n",
            &["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.3:53"],
            5,
            2,
            false,
        );
        check(
            "nameserver\nnameserver here\n;nameserver 192.0.2.1\nnameservers 192.0.2.2",
            &["127.0.0.1:53"],
            5,
            2,
            false,
        );
        check(
            "nameserver fe80::1%eth0\nnameserver fe80::1%2",
            &["[fe80::1]:53", "[fe80::1%2]:53"],
            5,
            2,
            false,
        );
    }

    #[test]
    fn options_are_read() {
        let local = &["127.0.0.1:53"];
        check(
            "options timeout:2 attempts:3 edns0 trust-ad rotate",
            local,
            2,
            3,
            true,
        );
        check("options timeout:0 attempts:0", local, 1, 1, false);
        check(
            "options timeout:4000000000 attempts:99",
            local,
            30,
            5,
            false,
        );
        check(
            "options timeout:99999999999 attempts:-1 timeout attempts:",
            local,
            5,
            2,
            false,
        );
        check("options attempts:1\noptions timeout:9", local, 9, 1, false);
    }
}
