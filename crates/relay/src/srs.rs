//! The Sender Rewriting Scheme: a sender's address of another domain as one of ours, and back (Mengwong Weng Wong and Shevek, "The Sender Rewriting
//! Scheme", 2004).
//!
//! Mail that an alias leads to another server would come from a host that the sender's SPF record does not name. So its sender becomes
//! `SRS0=hash=day=domain=local@ours`: bounces come to us, and go on to the sender. If the sender was rewritten by another server before, it becomes
//! `SRS1=hash=first-host==hash=day=domain=local@ours`: however many servers forward, a bounce goes from us to the first of them.
//!
//! The hash, an HMAC, shows that the address was made here; the day lets it expire. Without them anybody could send mail to anybody through us. The form
//! and the hash (HMAC-SHA1, base64, cut) are those of libsrs2 and postsrsd, so that a server can be replaced by another with its key. Like theirs the hash
//! does not mark where the domain ends and the local part begins, and does not cover an outer SRS1's age.
//!
//! Case: servers change it on the way. So the hash is over the lower case, and is compared without case.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use subtle::{Choice, ConstantTimeEq};
use whimbrel_smtp::address::LOCAL_BYTES_MAX;
use whimbrel_smtp::{Domain, LocalPart, Mailbox, ReversePath};

use crate::mutants::broken;

/// Keys of an [`Srs`]: one that signs, and those whose addresses are still under way.
pub const KEYS_MAX: usize = 8;
/// A shorter key can be guessed.
pub const KEY_BYTES_MIN: usize = 16;
/// A longer one is a mistake.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Shorter hashes are guessed by trying.
pub const HASH_CHARS_MIN: usize = 4;
/// All of HMAC-SHA1 in base64, without its padding.
pub const HASH_CHARS_MAX: usize = 27;
/// Days are counted modulo 1,024: two characters.
const DAYS: u64 = 1_024;
/// Base 32 (RFC 4648 6).
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// What stands behind `SRS0` and `SRS1`. Sites use `+` or `-` where their server cuts it off as a detail of the address. All are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Separator {
    /// `=`.
    #[default]
    Equals,
    /// `+`.
    Plus,
    /// `-`.
    Minus,
}

impl Separator {
    fn text(self) -> &'static str {
        match self {
            Separator::Equals => "=",
            Separator::Plus => "+",
            Separator::Minus => "-",
        }
    }
}

/// How addresses are made and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// See there.
    pub separator: Separator,
    /// Characters of the hash in addresses that are made. Without case each is worth five bits: 8 are 2^40 tries. Who tries 1,000 addresses a second meets
    /// one in 35 years, and each address dies in a week; 4, which others use, are met in 17 minutes. Each more takes from the 64 octets of a local part.
    pub hash_chars: usize,
    /// Characters of the hash that are asked for. Less than `hash_chars` only while addresses of another program are under way.
    pub hash_chars_min: usize,
    /// Days for which an address is valid: bounces come within the five days for which servers try.
    pub valid_days: u64,
    /// Octets of the local part. RFC 5321 4.5.3.1.1 has 64, and `domain` and `local` get 46 of them. Nearly all servers take longer ones, as those who
    /// encode recipients in their senders know; mail from a sender that is not rewritten fails SPF. So the default is what our own parser takes back.
    pub local_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            separator: Separator::Equals,
            hash_chars: 8,
            hash_chars_min: 8,
            valid_days: 7,
            local_bytes_max: LOCAL_BYTES_MAX,
        }
    }
}

/// What is wrong with a configuration or an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SrsError {
    /// No key, or more than [`KEYS_MAX`], or one of another length than [`KEY_BYTES_MIN`] to [`KEY_BYTES_MAX`].
    #[error("SRS needs 1 to {KEYS_MAX} keys of {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes")]
    Keys,
    /// A number of the configuration is beyond its limit.
    #[error("a length or a number of days is beyond its limit")]
    Config,
    /// The rewritten address would be too long: the sender stays as it is.
    #[error("the address is too long to be rewritten")]
    TooLong,
    /// It cannot be rewritten so that it comes back: the sender stays as it is.
    #[error("the address cannot be rewritten")]
    Unsuitable,
    /// It is an ordinary address: a mailbox may have it.
    #[error("not an SRS address")]
    NotSrs,
    /// Parts are missing. To the client: no such address.
    #[error("malformed SRS address")]
    Malformed,
    /// Not made here, or by a key that is gone. To the client: no such address.
    #[error("SRS address with a wrong hash")]
    Hash,
    /// Made too long ago. To the client: no such address.
    #[error("expired SRS address")]
    Expired,
}

/// Rewrites senders, and reads what was rewritten.
#[derive(Clone, Debug)]
pub struct Srs {
    config: Config,
    domain: Domain,
    keys: Vec<hmac::Key>,
}

impl Srs {
    /// Addresses are made at `domain`. The first key signs, all verify: to change keys put a new one first, and take the last one away a week later.
    ///
    /// # Errors
    /// [`SrsError::Keys`], [`SrsError::Config`].
    pub fn new<K: AsRef<[u8]>>(
        config: Config,
        domain: Domain,
        keys: &[K],
    ) -> Result<Srs, SrsError> {
        let good = |key: &K| (KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.as_ref().len());
        if keys.is_empty() || keys.len() > KEYS_MAX || !keys.iter().all(good) {
            return Err(SrsError::Keys);
        }
        let lengths = HASH_CHARS_MIN..=HASH_CHARS_MAX;
        let good = lengths.contains(&config.hash_chars)
            && (HASH_CHARS_MIN..=config.hash_chars).contains(&config.hash_chars_min)
            && config.valid_days < DAYS / 2
            && config.local_bytes_max <= LOCAL_BYTES_MAX;
        if !good {
            return Err(SrsError::Config);
        }
        let keys = keys
            .iter()
            .map(|key| hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key.as_ref()));
        Ok(Srs {
            config,
            domain,
            keys: keys.collect(),
        })
    }

    /// The sender with which a message is forwarded on this day (days since 1970-01-01, UTC); `None`: as it is, because it is null or of a domain of ours.
    ///
    /// # Errors
    /// [`SrsError::TooLong`], [`SrsError::Unsuitable`]: the message is forwarded with its sender as it is, or not at all.
    pub fn forward(
        &self,
        sender: &ReversePath,
        today: u64,
        is_ours: impl Fn(&Domain) -> bool,
    ) -> Result<Option<Mailbox>, SrsError> {
        let Some(sender) = sender.mailbox() else {
            return Ok(None);
        };
        if is_ours(sender.domain()) && !broken("own-senders-rewritten") {
            return Ok(None);
        }
        let (local, domain) = (sender.local().as_str(), sender.domain().as_str());
        // Only an address literal has it, and it would not come back.
        if domain.contains('=') {
            return Err(SrsError::Unsuitable);
        }
        let separator = self.config.separator.text();
        let rewritten = match outer(local) {
            Some((Outer::Srs0, rest)) => self.guarded(domain, rest),
            Some((Outer::Srs1, rest)) if let Some((_, host, rest)) = parts1(rest) => {
                self.guarded(host, rest)
            }
            _ => {
                let day = day(today);
                let hash = self.hash(&self.keys[0], &[&day, domain, local]);
                format!(
                    "SRS0{separator}{}={day}={domain}={local}",
                    &hash[..self.config.hash_chars]
                )
            }
        };
        if rewritten.len() > self.config.local_bytes_max {
            return Err(SrsError::TooLong);
        }
        let local = LocalPart::new(&rewritten).map_err(|_| SrsError::TooLong)?;
        let rewritten = Mailbox::new(local, self.domain.clone()).map_err(|_| SrsError::TooLong)?;
        Ok(Some(rewritten))
    }

    /// The address that a rewritten one stands for, on this day (days since 1970-01-01, UTC). One that was made tomorrow is valid: clocks differ.
    ///
    /// # Errors
    /// All but [`SrsError::NotSrs`] mean that there is no such address.
    pub fn reverse(&self, local: &LocalPart, today: u64) -> Result<Mailbox, SrsError> {
        match outer(local.as_str()).ok_or(SrsError::NotSrs)? {
            (Outer::Srs0, rest) => {
                let mut parts = rest[1..].splitn(4, '=');
                let mut part = || parts.next().ok_or(SrsError::Malformed);
                let (hash, day, domain, user) = (part()?, part()?, part()?, part()?);
                self.verify(hash, &[day, domain, user])?;
                self.is_valid(day, today)?;
                mailbox(user, domain)
            }
            (Outer::Srs1, rest) => {
                let (hash, host, rest) = parts1(rest).ok_or(SrsError::Malformed)?;
                self.verify(hash, &[host, rest])?;
                mailbox(&format!("SRS0{rest}"), host)
            }
        }
    }

    /// `SRS1=hash=host=rest`; `rest` begins with the separator of the first host.
    fn guarded(&self, host: &str, rest: &str) -> String {
        let hash = self.hash(&self.keys[0], &[host, rest]);
        let separator = self.config.separator.text();
        format!(
            "SRS1{separator}{}={host}={rest}",
            &hash[..self.config.hash_chars]
        )
    }

    /// All of it, in base64.
    fn hash(&self, key: &hmac::Key, parts: &[&str]) -> String {
        let mut context = hmac::Context::with_key(key);
        for part in parts {
            context.update(part.to_ascii_lowercase().as_bytes());
        }
        STANDARD.encode(context.sign())
    }

    /// In a time that does not tell which key, nor how much of the hash, is right.
    fn verify(&self, hash: &str, parts: &[&str]) -> Result<(), SrsError> {
        let least = if broken("short-hash-counts") {
            1
        } else {
            self.config.hash_chars_min
        };
        if !(least..=HASH_CHARS_MAX).contains(&hash.len()) {
            return Err(SrsError::Hash);
        }
        let lower = |text: &str| match broken("case-counts") {
            true => text.to_owned(),
            false => text.to_ascii_lowercase(),
        };
        let given = lower(hash);
        let keys = if broken("first-key-alone") {
            &self.keys[..1]
        } else {
            &self.keys[..]
        };
        let mut good = Choice::from(0);
        for key in keys {
            let right = lower(&self.hash(key, parts)[..hash.len()]);
            good |= right.as_bytes().ct_eq(given.as_bytes());
        }
        if bool::from(good) || broken("any-hash") {
            Ok(())
        } else {
            Err(SrsError::Hash)
        }
    }

    fn is_valid(&self, day: &str, today: u64) -> Result<(), SrsError> {
        let mut made = 0;
        for character in day.bytes() {
            let digit = BASE32
                .iter()
                .position(|digit| *digit == character.to_ascii_uppercase());
            made = made * 32 + digit.ok_or(SrsError::Malformed)? as u64;
        }
        if day.len() != 2 {
            return Err(SrsError::Malformed);
        }
        let age = (today + DAYS - made) % DAYS;
        let is_valid = age <= self.config.valid_days || age == DAYS - 1;
        if is_valid || broken("valid-for-ever") {
            Ok(())
        } else {
            Err(SrsError::Expired)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outer {
    Srs0,
    Srs1,
}

/// Which scheme, and what follows, from its separator on.
fn outer(local: &str) -> Option<(Outer, &str)> {
    let (scheme, rest) = local.split_at_checked(4)?;
    let outer = match scheme {
        scheme if scheme.eq_ignore_ascii_case("SRS0") => Outer::Srs0,
        scheme if scheme.eq_ignore_ascii_case("SRS1") => Outer::Srs1,
        _ => return None,
    };
    rest.starts_with(['=', '+', '-']).then_some((outer, rest))
}

/// Hash, host, and the rest of an SRS0 address from its separator on.
fn parts1(rest: &str) -> Option<(&str, &str, &str)> {
    let (hash, rest) = rest.get(1..)?.split_once('=')?;
    let (host, rest) = rest.split_once('=')?;
    (!host.is_empty() && rest.starts_with(['=', '+', '-'])).then_some((hash, host, rest))
}

fn day(today: u64) -> String {
    let digit = |number: u64| char::from(BASE32[usize::try_from(number % 32).unwrap_or(0)]);
    [digit(today / 32), digit(today)].iter().collect()
}

fn mailbox(local: &str, domain: &str) -> Result<Mailbox, SrsError> {
    let local = LocalPart::new(local).map_err(|_| SrsError::Malformed)?;
    let domain = Domain::new(domain).map_err(|_| SrsError::Malformed)?;
    Mailbox::new(local, domain).map_err(|_| SrsError::Malformed)
}
