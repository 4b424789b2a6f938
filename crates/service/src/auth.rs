//! Password checks: cache, throttle, and at most so many verifications at a time.
//!
//! An argon2id verification costs tens of milliseconds and megabytes by design. Three things keep that from being turned
//! against the server:
//!
//! - *Rate limit before work.* A peer with too many failures is refused before anything is computed.
//! - *Bounded work.* At most [`Limits::verifications_max`] run at once, at most [`Limits::waiting_max`] wait, of one
//!   peer [`Limits::waiting_per_peer_max`]; more are told to come back. Those that wait are served in turns by network, and in it by peer; who has logged in to
//!   the account from there before comes first. So many addresses keep nobody out.
//! - *Cache.* A client that repeats a login that succeeded (mail clients open many connections) does not pay again. What is stored stays
//!   argon2id; the cache lives in memory only, for minutes, and its key is a BLAKE3 keyed hash, under a key made at start, of name, password
//!   and peer address, each with its length, so that no two logins share a key. A hit counts only if the name still leads to the same
//!   account with the same verifier. It counts for a peer that is refused otherwise, too: one bad client behind an address must not keep out the others, whose
//!   password is right. How often such a peer may try is bounded ([`UNHEARD_FACTOR`]): the lookup costs less than a verification, by design.
//!
//! A name that does not exist costs a verification, too, with the parameters of some account, so that time does not tell which names do.
//!
//! SCRAM (RFC 5802) is checked here and now: a proof costs a few hashes. A name without keys is given a salt that is made up, always the same, and
//! fails at the end. The rate limit holds as for passwords.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use subtle::ConstantTimeEq;
use whimbrel_directory::DecoySecret;
use whimbrel_mailbox::AccountId;
use zeroize::Zeroizing;

use crate::printable::printable;
use crate::{
    api::{Authenticate, Failure, Reply, ScramFinish},
    machine::{Note, Now, Output, RequestId, Ticket},
    scram::{self, ITERATIONS_MIN, KEY_BYTES, SALT_BYTES, ScramKeys},
    tally::{Tally, peer_key, site_key},
    turns::Turns,
};

/// A peer that has so many times as many failures as it may have is not even looked up in the cache: guessing costs too little there.
const UNHEARD_FACTOR: u32 = 50;
/// Made-up salts did not depend on the iterations before; for these, which were the only ones that names of nobody had by default, they still do not.
const ITERATIONS_BEFORE: u32 = 60_000;

/// What bounds authentication. All have config keys in `[auth]`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Verifications at once: each costs argon2's memory. `auth.verifications_max`.
    pub verifications_max: usize,
    /// Logins that wait for one: beyond, clients are told to try later. `auth.waiting_max`.
    pub waiting_max: usize,
    /// Of these, logins of one peer: nobody takes all places. `auth.waiting_per_peer_max`.
    pub waiting_per_peer_max: usize,
    /// Failures of one peer (an IPv4 address or an IPv6 /64) within the window before it is refused unheard. `auth.failures_max`.
    pub failures_max: u32,
    /// How long failures count, in seconds. `auth.failure_window`.
    pub failure_window_seconds: u64,
    /// Peers whose failures are remembered; the oldest are forgotten first. `auth.peers_max`.
    pub peers_max: usize,
    /// Logins remembered. `auth.cache_entries_max`.
    pub cache_entries_max: usize,
    /// For how long, in seconds; 0 turns the cache off. `auth.cache_time`.
    pub cache_seconds: u64,
    /// Iterations that are told with a made-up salt: those of new passwords. `auth.scram_iterations`.
    pub scram_iterations: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            verifications_max: 2,
            waiting_max: 256,
            waiting_per_peer_max: 64,
            failures_max: 20,
            failure_window_seconds: 60,
            peers_max: 16 * 1024,
            cache_entries_max: 16 * 1024,
            cache_seconds: 300,
            scram_iterations: 60_000,
        }
    }
}

/// What the directory knows of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The account.
    pub account: AccountId,
    /// Its address as the directory spells it.
    pub login: String,
    /// argon2id PHC string.
    pub verifier: String,
    /// The keys of SCRAM, if there are any.
    pub scram: Option<ScramKeys>,
}

/// What the directory says of a name that logs in by a password.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// Whose it is.
    pub known: Option<Credentials>,
    /// Nobody's: the verifier of some account, so that it costs as much; `None`: there are no accounts.
    pub decoy: Option<String>,
}

/// From what a salt is made up for a name that has no keys.
pub struct MadeUp {
    /// The name, folded.
    pub name: String,
    /// The directory's secret; until it has one, [`Authenticator::decoy_secret`] stands for it.
    pub secret: Option<DecoySecret>,
    /// The iterations of some account's keys; `None`: there are none.
    pub iterations: Option<u32>,
}

/// The server's part of a nonce, before base64.
const NONCE_BYTES: usize = 18;

/// Keys to compute with where there are none.
const NOBODY: ScramKeys = ScramKeys {
    salt: [0; SALT_BYTES],
    iterations: 0,
    stored_key: [0; KEY_BYTES],
    server_key: [0; KEY_BYTES],
};

struct Attempt {
    request: RequestId,
    login: String,
    peer: IpAddr,
    key: CacheKey,
    known: Option<Credentials>,
    decoy: Option<String>,
}

type Waits = (Attempt, Zeroizing<Vec<u8>>);

/// Logins that wait, in turns by network, and in each network by peer.
#[derive(Default)]
struct Lane {
    sites: Turns<IpAddr, ()>,
    peers: BTreeMap<IpAddr, Turns<IpAddr, Waits>>,
}

impl Lane {
    fn of(&self, peer: IpAddr) -> usize {
        let site = self.peers.get(&site_key(peer));
        site.map_or(0, |site| site.of(peer_key(peer)))
    }

    fn push(&mut self, waits: Waits) {
        let (peer, site) = (peer_key(waits.0.peer), site_key(waits.0.peer));
        self.sites.push(site, ());
        self.peers.entry(site).or_default().push(peer, waits);
    }

    fn pop(&mut self) -> Option<Waits> {
        let (site, ()) = self.sites.pop()?;
        let (_, waits) = self.peers.get_mut(&site)?.pop()?;
        self.tidy(site);
        Some(waits)
    }

    /// Takes the last of the network that has most waiting, if that is more than `site` would have with one more.
    fn pop_last_of_longest(&mut self, site: IpAddr) -> Option<Waits> {
        let longest = self.sites.longest()?;
        if self.sites.of(longest) <= self.sites.of(site) + 1 {
            return None;
        }
        self.sites.pop_last_of(longest)?;
        let peers = self.peers.get_mut(&longest)?;
        let peer = peers.longest()?;
        let waits = peers.pop_last_of(peer);
        self.tidy(longest);
        waits
    }

    fn tidy(&mut self, site: IpAddr) {
        if self.peers.get(&site).is_some_and(|peers| peers.is_empty()) {
            self.peers.remove(&site);
        }
    }
}

type CacheKey = [u8; 32];

struct Cached {
    known: Credentials,
    expires: u64,
}

/// The machine inside the directory owner that checks passwords.
pub struct Authenticator {
    limits: Limits,
    /// Under which cache keys are made; random, from the driver, gone with the process.
    secret: [u8; 32],
    /// Checked against when a name does not exist.
    decoy_verifier: String,
    cache: BTreeMap<CacheKey, Cached>,
    /// Nonces given.
    nonces: u64,
    /// Cache keys in the order in which they expire.
    cache_order: VecDeque<(u64, CacheKey)>,
    failures: Tally,
    running: BTreeMap<Ticket, Attempt>,
    /// Those that have logged in to the account from there before.
    returning: Lane,
    /// The others.
    strangers: Lane,
    /// Who has logged in to which account, and in which order.
    succeeded: BTreeSet<(IpAddr, AccountId)>,
    success_order: VecDeque<(IpAddr, AccountId)>,
}

impl Authenticator {
    /// `secret` is random; `decoy_verifier` a valid verifier of a password that nobody knows, with the parameters in force.
    #[must_use]
    pub fn new(limits: Limits, secret: [u8; 32], decoy_verifier: String) -> Self {
        Authenticator {
            failures: Tally::new(limits.peers_max, limits.failure_window_seconds),
            limits,
            secret,
            decoy_verifier,
            nonces: 0,
            cache: BTreeMap::new(),
            cache_order: VecDeque::new(),
            running: BTreeMap::new(),
            returning: Lane::default(),
            strangers: Lane::default(),
            succeeded: BTreeSet::new(),
            success_order: VecDeque::new(),
        }
    }

    /// How many logins are remembered.
    #[must_use]
    pub fn cached(&self) -> usize {
        self.cache.len()
    }

    /// Begins a check of `ask` against what the directory knows under that name. Tickets come from `next_ticket`.
    pub fn begin(
        &mut self,
        now: Now,
        request: RequestId,
        ask: Authenticate,
        looked: Looked,
        next_ticket: &mut impl FnMut() -> Ticket,
        out: &mut VecDeque<Output>,
    ) {
        let seconds = now.mono_micros / 1_000_000;
        self.forget(seconds);
        let unheard = self.limits.failures_max.saturating_mul(UNHEARD_FACTOR);
        if self.failures.of(ask.peer) >= unheard {
            out.push_back(Output::Reply(request, Reply::Failed(Failure::Throttled)));
            return;
        }
        let Looked { known, decoy } = looked;
        let key = self.cache_key(&ask);
        if let (Some(cached), Some(known)) = (self.cache.get(&key), &known)
            && cached.known.account == known.account
            && bool::from(
                cached
                    .known
                    .verifier
                    .as_bytes()
                    .ct_eq(known.verifier.as_bytes()),
            )
        {
            out.push_back(Output::Log(Note::LoggedIn {
                login: known.login.clone(),
                cached: true,
            }));
            out.push_back(authenticated(request, known));
            return;
        }
        if self.is_throttled(ask.peer) {
            self.failures.count(seconds, ask.peer);
            out.push_back(Output::Reply(request, Reply::Failed(Failure::Throttled)));
            return;
        }
        let attempt = Attempt {
            request,
            login: ask.login,
            peer: ask.peer,
            key,
            known,
            decoy,
        };
        if self.running.len() < self.limits.verifications_max {
            self.verify(attempt, ask.password, next_ticket, out);
        } else if let Some(request) = self.wait(attempt, ask.password) {
            out.push_back(Output::Reply(request, Reply::Failed(Failure::Throttled)));
        }
    }

    /// Lets an attempt wait for its turn. Whose attempt has to come back later: there is no place for it, or it had to make place for one of a network that has
    /// fewer waiting.
    fn wait(&mut self, attempt: Attempt, password: Zeroizing<Vec<u8>>) -> Option<RequestId> {
        let (peer, request) = (attempt.peer, attempt.request);
        let of_peer = self.returning.of(peer) + self.strangers.of(peer);
        if of_peer >= self.limits.waiting_per_peer_max {
            return Some(request);
        }
        let waiting = self.returning.sites.len() + self.strangers.sites.len();
        let mut displaced = None;
        if waiting >= self.limits.waiting_max {
            let Some((other, _)) = self.strangers.pop_last_of_longest(site_key(peer)) else {
                return Some(request);
            };
            displaced = Some(other.request);
        }
        let known = attempt.known.as_ref();
        let returns = known.is_some_and(|known| {
            let place = (peer_key(peer), known.account);
            self.succeeded.contains(&place)
        });
        let lane = match returns {
            true => &mut self.returning,
            false => &mut self.strangers,
        };
        lane.push((attempt, password));
        displaced
    }

    fn next_waiting(&mut self) -> Option<Waits> {
        self.returning.pop().or_else(|| self.strangers.pop())
    }

    /// Somebody has logged in from there.
    fn succeeds(&mut self, peer: IpAddr, account: AccountId) {
        let place = (peer_key(peer), account);
        if self.limits.peers_max == 0 || !self.succeeded.insert(place) {
            return;
        }
        self.success_order.push_back(place);
        if self.success_order.len() > self.limits.peers_max
            && let Some(oldest) = self.success_order.pop_front()
        {
            self.succeeded.remove(&oldest);
        }
    }

    /// A verification is done. `still` is what the directory knows under that name now: an account that was removed or got
    /// a new password meanwhile does not come in. Returns whether the ticket was ours.
    pub fn verified(
        &mut self,
        now: Now,
        ticket: Ticket,
        matches: bool,
        still: impl FnOnce(&str) -> Option<Credentials>,
        next_ticket: &mut impl FnMut() -> Ticket,
        out: &mut VecDeque<Output>,
    ) -> bool {
        let Some(attempt) = self.running.remove(&ticket) else {
            return false;
        };
        let seconds = now.mono_micros / 1_000_000;
        let known = attempt
            .known
            .filter(|known| matches && still(&attempt.login).as_ref() == Some(known));
        match known {
            Some(known) => {
                out.push_back(Output::Log(Note::LoggedIn {
                    login: known.login.clone(),
                    cached: false,
                }));
                out.push_back(authenticated(attempt.request, &known));
                self.succeeds(attempt.peer, known.account);
                self.remember(seconds, attempt.key, known);
            }
            None => self.failed(seconds, attempt.request, &attempt.login, attempt.peer, out),
        }
        // Those who waited are looked at again: their peer may have used up its failures by now.
        while self.running.len() < self.limits.verifications_max {
            let Some((attempt, password)) = self.next_waiting() else {
                break;
            };
            if self.is_throttled(attempt.peer) {
                out.push_back(Output::Reply(
                    attempt.request,
                    Reply::Failed(Failure::Throttled),
                ));
                continue;
            }
            self.verify(attempt, password, next_ticket, out);
        }
        true
    }

    fn verify(
        &mut self,
        attempt: Attempt,
        password: Zeroizing<Vec<u8>>,
        next_ticket: &mut impl FnMut() -> Ticket,
        out: &mut VecDeque<Output>,
    ) {
        let ticket = next_ticket();
        let known = attempt.known.as_ref().map(|known| &known.verifier);
        let verifier = known.or(attempt.decoy.as_ref());
        let verifier = verifier.unwrap_or(&self.decoy_verifier).clone();
        self.running.insert(ticket, attempt);
        out.push_back(Output::Verify {
            ticket,
            verifier,
            password,
        });
    }

    /// The secret behind made-up salts of a directory that has none yet: random, because ours is.
    #[must_use]
    pub fn decoy_secret(&self) -> DecoySecret {
        DecoySecret(blake3::derive_key("whimbrel scram decoy v1", &self.secret))
    }

    /// The answer to [`crate::api::Call::ScramBegin`].
    pub fn scram_begin(
        &mut self,
        now: Now,
        request: RequestId,
        peer: IpAddr,
        known: Option<Credentials>,
        made_up: &MadeUp,
    ) -> Output {
        self.forget(now.mono_micros / 1_000_000);
        if self.is_throttled(peer) {
            return Output::Reply(request, Reply::Failed(Failure::Throttled));
        }
        let secret = made_up.secret.unwrap_or_else(|| self.decoy_secret());
        // Made whether it is wanted or not: neither the time nor the answer tells which names there are.
        let configured = self.limits.scram_iterations.max(ITERATIONS_MIN);
        let mut iterations = made_up.iterations.unwrap_or(configured);
        let mut hasher = blake3::Hasher::new_keyed(&secret.0);
        hasher.update(made_up.name.as_bytes());
        // An account's iterations never change without its salt.
        if iterations != ITERATIONS_BEFORE {
            hasher.update(&[0]).update(&iterations.to_le_bytes());
        }
        let mut salt = [0; SALT_BYTES];
        salt.copy_from_slice(&hasher.finalize().as_bytes()[..SALT_BYTES]);
        if let Some(keys) = known.and_then(|known| known.scram) {
            (salt, iterations) = (keys.salt, keys.iterations);
        }
        let nonce = self.nonce();
        Output::Reply(
            request,
            Reply::ScramChallenge {
                salt,
                iterations,
                nonce,
            },
        )
    }

    /// Unique in this run by its number, and in all others because the secret is random; who does not have that cannot guess the next one.
    fn nonce(&mut self) -> String {
        self.nonces += 1;
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher
            .update(b"scram nonce")
            .update(&self.nonces.to_le_bytes());
        let mut bytes = [0; NONCE_BYTES];
        hasher.finalize_xof().fill(&mut bytes);
        STANDARD.encode(bytes)
    }

    /// The answer to [`crate::api::Call::ScramFinish`].
    pub fn scram_finish(
        &mut self,
        now: Now,
        request: RequestId,
        ask: &ScramFinish,
        known: Option<Credentials>,
        out: &mut VecDeque<Output>,
    ) {
        let seconds = now.mono_micros / 1_000_000;
        self.forget(seconds);
        if self.is_throttled(ask.peer) {
            out.push_back(Output::Reply(request, Reply::Failed(Failure::Throttled)));
            return;
        }
        let keys = known.as_ref().and_then(|known| known.scram.as_ref());
        let signature = scram::check(keys.unwrap_or(&NOBODY), &ask.auth_message, &ask.proof);
        match (known, signature) {
            (Some(known), Some(signature)) if known.scram.is_some() => {
                self.succeeds(ask.peer, known.account);
                out.push_back(Output::Log(Note::LoggedIn {
                    login: known.login.clone(),
                    cached: false,
                }));
                out.push_back(Output::Reply(
                    request,
                    Reply::ScramAuthenticated {
                        account: known.account,
                        login: known.login,
                        signature,
                    },
                ));
            }
            _ => self.failed(seconds, request, &ask.login, ask.peer, out),
        }
    }

    fn is_throttled(&self, peer: IpAddr) -> bool {
        self.failures.of(peer) >= self.limits.failures_max
    }

    /// Counts and tells a wrong login.
    fn failed(
        &mut self,
        seconds: u64,
        request: RequestId,
        login: &str,
        peer: IpAddr,
        out: &mut VecDeque<Output>,
    ) {
        self.failures.count(seconds, peer);
        out.push_back(Output::Log(Note::LoginFailed {
            login: printable(login, LOGGED_CHARS_MAX),
            peer,
        }));
        out.push_back(Output::Reply(request, Reply::Failed(Failure::Credentials)));
    }

    fn cache_key(&self, ask: &Authenticate) -> CacheKey {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        let peer = ask.peer.to_string();
        for part in [ask.login.as_bytes(), &ask.password, peer.as_bytes()] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    fn remember(&mut self, seconds: u64, key: CacheKey, known: Credentials) {
        if self.limits.cache_seconds == 0 || self.limits.cache_entries_max == 0 {
            return;
        }
        while self.cache_order.len() >= self.limits.cache_entries_max {
            self.drop_oldest_cached();
        }
        let expires = seconds + self.limits.cache_seconds;
        self.cache.insert(key, Cached { known, expires });
        self.cache_order.push_back((expires, key));
    }

    fn drop_oldest_cached(&mut self) {
        if let Some((expires, key)) = self.cache_order.pop_front()
            && self
                .cache
                .get(&key)
                .is_some_and(|cached| cached.expires <= expires)
        {
            self.cache.remove(&key);
        }
    }

    /// Drops what has expired. Cheap: both queues are in order of time.
    fn forget(&mut self, seconds: u64) {
        while self
            .cache_order
            .front()
            .is_some_and(|(expires, _)| *expires <= seconds)
        {
            self.drop_oldest_cached();
        }
        self.failures.forget(seconds);
    }
}

fn authenticated(request: RequestId, known: &Credentials) -> Output {
    Output::Reply(
        request,
        Reply::Authenticated {
            account: known.account,
            login: known.login.clone(),
        },
    )
}

/// Longest part of a client's login name that the log shows.
const LOGGED_CHARS_MAX: usize = 128;
