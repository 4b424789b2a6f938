//! From answers of the DNS to the hosts that take mail for a domain, and the order in which their addresses are tried (RFC 5321 5.1).
//!
//! Three steps, between which the caller asks its resolver:
//! 1. [`Hosts::of_domain`] with the answer about MX: which hosts, in which order; or [`Hosts::of_literal`], [`Hosts::of_host`] without asking.
//! 2. [`Hosts::plan`] with the answers about the addresses of each host.
//! 3. [`Walk`] over the plan, which is told what became of each address, and says when it is final.
//!
//! Invariants: what may be better later never fails for good: a resolver that does not answer is no answer. Mail never goes to a host that is this
//! server, nor to one that is no better than this server. The order depends on the answers as sets and on the seed, not on the order in them.
//!
//! Names are ASCII: whoever has a domain in other letters gives its A-labels (RFC 5890).

mod plan;
mod walk;

pub use plan::{Families, Plan, PlannedHost};
pub use walk::{Failure, Step, Walk};

use core::fmt;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ring::digest;

use crate::{Status, draw::Draw, mutants::broken};

/// Hosts of a domain that are tried. Large providers have ten.
pub const HOSTS_MAX: usize = 20;
/// Addresses of a host that are tried.
pub const ADDRESSES_MAX: usize = 5;
/// Octets of a name without its last dot (RFC 1035 2.3.4).
const NAME_BYTES_MAX: usize = 253;
/// Octets of a label (RFC 1035 2.3.4).
const LABEL_BYTES_MAX: usize = 63;

/// What the DNS says to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// Records; none is the same as [`Answer::NoData`].
    Found(Vec<T>),
    /// The name does not exist (NXDOMAIN).
    NoName,
    /// The name has no such records (NODATA).
    NoData,
    /// No answer, or none that can be trusted: SERVFAIL, REFUSED, a timeout, a bogus signature.
    Failed,
}

/// A record of type MX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mx {
    /// The lower, the better.
    pub preference: u16,
    /// The host's name, with or without its last dot; `.` is a null MX (RFC 7505).
    pub target: String,
}

/// The answer about a domain's MX. RFC 5321 5.1: "If a CNAME record is found, the resulting name is processed as if it were the initial name."
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MxAnswer {
    /// Where the CNAMEs led, if the domain is an alias.
    pub canonical: Option<String>,
    /// The records of that name.
    pub records: Answer<Mx>,
}

/// The answers about a host's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressAnswer {
    /// Where the CNAMEs led, if the host is an alias. RFC 5321 5.1 forbids that for the target of an MX; it is met, and harmless.
    pub canonical: Option<String>,
    /// AAAA.
    pub v6: Answer<Ipv6Addr>,
    /// A.
    pub v4: Answer<Ipv4Addr>,
}

/// What is this server: mail must not go there, or it comes back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Names in lower case, without the last dot.
    pub names: BTreeSet<String>,
    /// Addresses on which it takes mail.
    pub addresses: BTreeSet<IpAddr>,
    /// All loopback addresses, too. Only tests have other servers there.
    pub loopback: bool,
}

impl Own {
    fn is_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    fn is_address(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address) || (self.loopback && address.is_loopback())
    }
}

/// Why there is nowhere to send mail. [`NoRoute::status`] says whether it may be better later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoute {
    /// RFC 7505: the domain says that it takes no mail.
    #[error("the domain accepts no mail")]
    NullMx,
    /// No such domain, or one with neither MX nor address.
    #[error("the domain does not exist, or has no mail server")]
    NoDomain,
    /// It has MX records, and none of the hosts has an address.
    #[error("none of the domain's mail servers exists")]
    NoHost,
    /// The best host is this server, which does not know the domain.
    #[error("mail for the domain would come back to this server")]
    Loop,
    /// An address literal of a kind that this server does not know.
    #[error("unknown kind of address literal")]
    Literal,
    /// The DNS does not answer.
    #[error("the domain's mail servers cannot be looked up")]
    Resolver,
    /// All hosts have addresses of a family that this node has not.
    #[error("the domain's mail servers have no address that can be reached from here")]
    Family,
}

impl NoRoute {
    /// What a sender is told. Permanent for all but [`NoRoute::Resolver`] and [`NoRoute::Family`].
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            NoRoute::NullMx => Status::permanent(1, 10),
            NoRoute::NoDomain => Status::permanent(1, 2),
            NoRoute::NoHost => Status::permanent(4, 4),
            NoRoute::Loop => Status::permanent(4, 6),
            NoRoute::Literal => Status::permanent(1, 3),
            NoRoute::Resolver => Status::temporary(4, 3),
            NoRoute::Family => Status::temporary(4, 4),
        }
    }
}

/// Names a destination: the set of hosts that take its mail. Thousands of domains have the same hosts, and "too many connections" is said by a host, so
/// limits and back-off belong to this and not to the domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 16]);

impl Key {
    /// The key of this set of hosts, in any order. They do not choose it: the first half of SHA-256 over all names.
    #[must_use]
    pub fn of<'a>(hosts: impl IntoIterator<Item = &'a str>) -> Key {
        let hosts: Vec<&str> = if broken("key-by-order") {
            hosts.into_iter().collect()
        } else {
            let set: BTreeSet<&str> = hosts.into_iter().collect();
            set.into_iter().collect()
        };
        let mut hash = digest::Context::new(&digest::SHA256);
        for host in hosts {
            hash.update(host.as_bytes());
            // In no name.
            hash.update(b"\n");
        }
        let mut key = [0; 16];
        key.copy_from_slice(&hash.finish().as_ref()[..16]);
        Key(key)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Key({:02x}{:02x}{:02x}{:02x})",
            self.0[0], self.0[1], self.0[2], self.0[3]
        )
    }
}

/// A host that takes mail: its name is to be looked up, or it is an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    preference: u16,
    name: String,
    address: Option<IpAddr>,
}

impl Host {
    /// The lower, the better; 0 where there is no MX.
    #[must_use]
    pub fn preference(&self) -> u16 {
        self.preference
    }

    /// Its name in lower case without the last dot; of an address the literal, in brackets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address, if it is one. Then there is nothing to look up.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }
}

/// The hosts of a destination, the best first; at least one, at most [`HOSTS_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    key: Key,
    hosts: Vec<Host>,
    implicit: bool,
}

impl Hosts {
    /// The hosts of a domain by the answer about its MX.
    ///
    /// Only where there is no MX record at all the domain itself is the host (RFC 5321 5.1). Targets that are no host name are left out. If this server is
    /// one of the hosts, so are all that are no better. Hosts of one preference are put in an order of the seed's.
    ///
    /// # Errors
    /// When there is none, or no answer.
    pub fn of_domain(
        domain: &str,
        answer: &MxAnswer,
        own: &Own,
        seed: u64,
    ) -> Result<Hosts, NoRoute> {
        let domain = host_name(domain).ok_or(NoRoute::NoDomain)?;
        let records = match &answer.records {
            Answer::Found(records) => &records[..],
            Answer::NoData => &[],
            Answer::NoName => return Err(NoRoute::NoDomain),
            Answer::Failed if broken("failed-is-no-data") => &[],
            Answer::Failed => return Err(NoRoute::Resolver),
        };
        if records.is_empty() {
            let canonical = answer.canonical.as_deref().and_then(host_name);
            let name = canonical.unwrap_or(domain);
            return Hosts::new(
                vec![Host {
                    preference: 0,
                    name,
                    address: None,
                }],
                true,
                own,
                seed,
            );
        }
        // RFC 7505 3: one that takes no mail "MUST NOT advertise any other MX RR"; one that does is not meant so.
        if let [only] = records
            && only.target == "."
        {
            return Err(NoRoute::NullMx);
        }
        let mut hosts = Vec::new();
        for record in records {
            if let Some(name) = host_name(&record.target) {
                hosts.push(Host {
                    preference: record.preference,
                    name,
                    address: None,
                });
            }
        }
        // A host that is named twice counts where it is better.
        hosts.sort_by(|one, other| {
            (&one.name, one.preference).cmp(&(&other.name, other.preference))
        });
        hosts.dedup_by(|one, other| one.name == other.name);
        Hosts::new(hosts, false, own, seed)
    }

    /// The host of an address literal: `[192.0.2.1]`, `[IPv6:2001:db8::1]` (RFC 5321 4.1.3).
    ///
    /// # Errors
    /// When it is of another kind, or this server.
    pub fn of_literal(literal: &str, own: &Own) -> Result<Hosts, NoRoute> {
        let inside = literal
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'));
        let inside = inside.ok_or(NoRoute::Literal)?;
        let v6 = match inside.split_at_checked(5) {
            Some((tag, address)) if tag.eq_ignore_ascii_case("IPv6:") => {
                address.parse::<Ipv6Addr>().ok()
            }
            _ => None,
        };
        let v4 = || inside.parse::<Ipv4Addr>().ok();
        let address = v6
            .map(IpAddr::V6)
            .or_else(|| v4().map(IpAddr::V4))
            .ok_or(NoRoute::Literal)?;
        Hosts::of_address(address, own)
    }

    /// A host that is named by the configuration: a smarthost. It has no MX.
    ///
    /// # Errors
    /// When it is no name of a host, or this server.
    pub fn of_host(name: &str, own: &Own) -> Result<Hosts, NoRoute> {
        let name = host_name(name).ok_or(NoRoute::NoHost)?;
        Hosts::new(
            vec![Host {
                preference: 0,
                name,
                address: None,
            }],
            false,
            own,
            0,
        )
    }

    /// A host that is named by its address.
    ///
    /// # Errors
    /// When it is this server, or the address of no host.
    pub fn of_address(address: IpAddr, own: &Own) -> Result<Hosts, NoRoute> {
        let address = address.to_canonical();
        if !plan::is_host(address) {
            return Err(NoRoute::NoHost);
        }
        if own.is_address(address) {
            return Err(NoRoute::Loop);
        }
        let name = match address {
            IpAddr::V4(address) => format!("[{address}]"),
            IpAddr::V6(address) => format!("[ipv6:{address}]"),
        };
        let host = Host {
            preference: 0,
            name,
            address: Some(address),
        };
        Hosts::new(vec![host], false, own, 0)
    }

    fn new(mut hosts: Vec<Host>, implicit: bool, own: &Own, seed: u64) -> Result<Hosts, NoRoute> {
        if hosts.is_empty() {
            return Err(NoRoute::NoHost);
        }
        leave_out_own(&mut hosts, |host| own.is_name(&host.name))?;
        // Of all: which of them are within the limit is the seed's choice.
        let key = Key::of(hosts.iter().map(Host::name));
        let mut draw = Draw::new(b"", seed);
        hosts.sort_by(|one, other| {
            (one.preference, &one.name).cmp(&(other.preference, &other.name))
        });
        for equals in hosts.chunk_by_mut(|one, other| one.preference == other.preference) {
            draw.shuffle(equals);
        }
        hosts.truncate(HOSTS_MAX);
        Ok(Hosts {
            key,
            hosts,
            implicit,
        })
    }

    /// Names the destination.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    /// The hosts in order. For each the caller looks up the addresses, in this order.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Whether the domain itself is the host because it has no MX.
    #[must_use]
    pub fn is_implicit(&self) -> bool {
        self.implicit
    }
}

/// RFC 5321 5.1: "all records at that preference level and higher-numbered ones MUST be discarded": they would send the mail back.
fn leave_out_own(hosts: &mut Vec<Host>, is_own: impl Fn(&Host) -> bool) -> Result<(), NoRoute> {
    let own = hosts
        .iter()
        .filter(|host| is_own(host))
        .map(Host::preference)
        .min();
    if let Some(own) = own {
        if broken("own-alone-left-out") {
            hosts.retain(|host| !is_own(host));
        } else {
            hosts.retain(|host| host.preference < own);
        }
    }
    if hosts.is_empty() {
        Err(NoRoute::Loop)
    } else {
        Ok(())
    }
}

/// The name of a host in lower case, without its last dot; `None` when it is none: empty labels, other characters, too long, or an address. Underscores
/// are met in names of hosts, and harmless.
fn host_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= LABEL_BYTES_MAX
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    // No top-level domain is a number (RFC 3696 2): it is an address without brackets.
    let address = last.bytes().all(|b| b.is_ascii_digit());
    (name.len() <= NAME_BYTES_MAX && name.split('.').all(label) && !address)
        .then(|| name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(host_name(text).as_deref(), expected, "{text:?}");
    }

    #[test]
    fn names_of_hosts() {
        check("MX.Example.org.", Some("mx.example.org"));
        check("mail_1.example.org", Some("mail_1.example.org"));
        check("localhost", Some("localhost"));
        check("4.example", Some("4.example"));
        let longest = vec!["a".repeat(61); 4].join(".");
        check(&longest, Some(&longest));
        for none in [
            "",
            ".",
            "..",
            "a..b",
            "a.b..",
            "192.0.2.1",
            "192.0.2.1.",
            "[192.0.2.1]",
            "2001:db8::1",
            "-a.b",
            "a-.b",
            "a b.c",
            "bücher.example",
            &"a".repeat(64),
            &vec!["a".repeat(62); 5].join("."),
        ] {
            check(none, None);
        }
    }
}
