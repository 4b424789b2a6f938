//! Which addresses of the hosts are tried, in which order (RFC 8305, RFC 5321 5.1).

use core::time::Duration;
use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{ADDRESSES_MAX, AddressAnswer, Answer, Hosts, Key, NoRoute, Own, leave_out_own};
use crate::draw::Draw;

/// The families of addresses that this node can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Families {
    /// IPv6.
    pub v6: bool,
    /// IPv4.
    pub v4: bool,
}

/// A host, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedHost {
    pub(super) name: String,
    pub(super) addresses: Vec<IpAddr>,
}

impl PlannedHost {
    /// Its name: what TLS is asked for, and what a notification tells.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its addresses in the order in which they are to be tried: the families in turn, IPv6 first. At least one, at most [`ADDRESSES_MAX`].
    #[must_use]
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }
}

/// Where mail for a destination is sent, the best host first; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) key: Key,
    pub(super) hosts: Vec<PlannedHost>,
    pub(super) unresolved: bool,
}

impl Plan {
    /// RFC 8305 5, Connection Attempt Delay: an address of a host is tried when the one before has not answered for so long.
    pub const CONNECT_DELAY: Duration = Duration::from_millis(250);

    /// Names the destination.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    /// The hosts.
    #[must_use]
    pub fn hosts(&self) -> &[PlannedHost] {
        &self.hosts
    }

    /// Whether the addresses of a host could not be looked up. That host might take what all others refuse.
    #[must_use]
    pub fn is_unresolved(&self) -> bool {
        self.unresolved
    }
}

impl Hosts {
    /// The plan by the answers about the addresses of [`Hosts::hosts`], in the same order; a host that is an address, or has no answer in the list, needs
    /// none. An address that several hosts have is tried once.
    ///
    /// # Errors
    /// When no host has an address, or all are this server. Where an answer failed that is temporary.
    pub fn plan(
        &self,
        answers: &[AddressAnswer],
        own: &Own,
        families: Families,
        seed: u64,
    ) -> Result<Plan, NoRoute> {
        let mut found = Vec::new();
        for (at, host) in self.hosts.iter().enumerate() {
            let answer = answers.get(at);
            let mut addresses = match (host.address, answer) {
                (Some(address), _) => vec![address],
                (None, Some(answer)) => {
                    of_both(&answer.v6, &answer.v4, seed.wrapping_add(at as u64))
                }
                (None, None) => Vec::new(),
            };
            addresses.retain(|address| is_host(*address));
            let canonical = answer.and_then(|answer| answer.canonical.as_deref());
            let canonical = canonical.map(|name| name.trim_end_matches('.').to_ascii_lowercase());
            let is_own = canonical.is_some_and(|name| own.is_name(&name))
                || addresses.iter().any(|address| own.is_address(*address));
            let failed = answer
                .is_none_or(|answer| answer.v6 == Answer::Failed || answer.v4 == Answer::Failed);
            let is_unresolved = addresses.is_empty() && host.address.is_none() && failed;
            found.push((host, addresses, is_own, is_unresolved));
        }
        let mut left = self.hosts.clone();
        leave_out_own(&mut left, |host| {
            found
                .iter()
                .any(|(other, _, is_own, _)| *is_own && other.name == host.name)
        })?;
        let mut planned = Vec::new();
        let mut seen = BTreeSet::new();
        let (mut unresolved, mut out_of_reach) = (false, false);
        for (host, mut addresses, _, is_unresolved) in found {
            if !left.contains(host) {
                continue;
            }
            unresolved |= is_unresolved;
            let all = addresses.len();
            addresses.retain(|address| {
                if address.is_ipv4() {
                    families.v4
                } else {
                    families.v6
                }
            });
            out_of_reach |= addresses.len() < all;
            addresses.retain(|address| seen.insert(*address));
            addresses.truncate(ADDRESSES_MAX);
            if !addresses.is_empty() {
                planned.push(PlannedHost {
                    name: host.name.clone(),
                    addresses,
                });
            }
        }
        if planned.is_empty() {
            return Err(match (unresolved, out_of_reach, self.implicit) {
                (true, _, _) => NoRoute::Resolver,
                (false, true, _) => NoRoute::Family,
                (false, false, true) => NoRoute::NoDomain,
                (false, false, false) => NoRoute::NoHost,
            });
        }
        Ok(Plan {
            key: self.key,
            hosts: planned,
            unresolved,
        })
    }
}

/// RFC 8305 4: the families in turn, IPv6 first. Within a family in an order of the seed's, so that all addresses get their share.
fn of_both(
    v6: &Answer<std::net::Ipv6Addr>,
    v4: &Answer<std::net::Ipv4Addr>,
    seed: u64,
) -> Vec<IpAddr> {
    let mut six: Vec<IpAddr> = match v6 {
        Answer::Found(found) => found.iter().map(|address| address.to_canonical()).collect(),
        _ => Vec::new(),
    };
    let mut four: Vec<IpAddr> = match v4 {
        Answer::Found(found) => found.iter().copied().map(IpAddr::V4).collect(),
        _ => Vec::new(),
    };
    let mut draw = Draw::new(b"", seed);
    for family in [&mut six, &mut four] {
        family.sort_unstable();
        family.dedup();
        draw.shuffle(family);
        // More are never tried, and the other family is to have its turns.
        family.truncate(ADDRESSES_MAX);
    }
    let mut all = Vec::new();
    for turn in 0..ADDRESSES_MAX {
        all.extend(six.get(turn));
        all.extend(four.get(turn));
    }
    all
}

/// Whether there can be a host at this address.
pub(super) fn is_host(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || broadcast)
}
