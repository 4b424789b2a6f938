//! Password checks: cache, throttle, and at most so many verifications at a time.
//!
//! An argon2id verification costs tens of milliseconds and megabytes by design. Three things keep that from being turned
//! against the server:
//!
//! - *Rate limit before work.* A peer with too many failures is refused before anything is computed.
//! - *Bounded work.* At most [`Limits::verifications_max`] run at once, at most [`Limits::waiting_max`] wait, of one
//!   peer [`Limits::waiting_per_peer_max`]; more are told to come back.
//! - *Cache.* A client that repeats a login that succeeded (mail clients open many connections) does not pay again. What is stored stays
//!   argon2id; the cache lives in memory only, for minutes, and its key is a BLAKE3 keyed hash, under a key made at start, of name, password
//!   and peer address, each with its length, so that no two logins share a key. A hit counts only if the name still leads to the same
//!   account with the same verifier.
//!
//! A name that does not exist costs a verification, too, so that time does not tell which names do.
//!
//! SCRAM (RFC 5802) is checked here and now: a proof costs a few hashes. A name without keys is given a salt that is made up, always the same, and
//! fails at the end. The rate limit holds as for passwords.

use std::{
    collections::{BTreeMap, VecDeque},
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
};

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
pub struct Known {
    /// The account.
    pub account: AccountId,
    /// Its address as the directory spells it.
    pub login: String,
    /// argon2id PHC string.
    pub verifier: String,
    /// The keys of SCRAM, if there are any.
    pub scram: Option<ScramKeys>,
}

/// From what a salt is made up for a name that has no keys.
pub struct MadeUp {
    /// The name, folded.
    pub name: String,
    /// The directory's secret; until it has one, [`Authenticator::decoy_secret`] stands for it.
    pub secret: Option<DecoySecret>,
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
    known: Option<Known>,
}

type CacheKey = [u8; 32];

struct Cached {
    known: Known,
    expires: u64,
}

struct Failures {
    count: u32,
    since: u64,
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
    failures: BTreeMap<IpAddr, Failures>,
    failure_order: VecDeque<(u64, IpAddr)>,
    running: BTreeMap<Ticket, Attempt>,
    waiting: VecDeque<(Attempt, Zeroizing<Vec<u8>>)>,
    /// How many of each peer wait.
    waiting_of: BTreeMap<IpAddr, usize>,
}

impl Authenticator {
    /// `secret` is random; `decoy_verifier` a valid verifier of a password that nobody knows, with the parameters in force.
    #[must_use]
    pub fn new(limits: Limits, secret: [u8; 32], decoy_verifier: String) -> Self {
        Authenticator {
            limits,
            secret,
            decoy_verifier,
            nonces: 0,
            cache: BTreeMap::new(),
            cache_order: VecDeque::new(),
            failures: BTreeMap::new(),
            failure_order: VecDeque::new(),
            running: BTreeMap::new(),
            waiting: VecDeque::new(),
            waiting_of: BTreeMap::new(),
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
        known: Option<Known>,
        next_ticket: &mut impl FnMut() -> Ticket,
        out: &mut VecDeque<Output>,
    ) {
        let seconds = now.mono_micros / 1_000_000;
        self.forget(seconds);
        if self.is_throttled(ask.peer) {
            out.push_back(Output::Reply(request, Reply::Failed(Failure::Throttled)));
            return;
        }
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
        let attempt = Attempt {
            request,
            login: ask.login,
            peer: ask.peer,
            key,
            known,
        };
        if self.running.len() < self.limits.verifications_max {
            self.verify(attempt, ask.password, next_ticket, out);
        } else if !self.wait(attempt, ask.password) {
            out.push_back(Output::Reply(request, Reply::Failed(Failure::Throttled)));
        }
    }

    /// Puts an attempt behind those that wait; false: there is no place for it.
    fn wait(&mut self, attempt: Attempt, password: Zeroizing<Vec<u8>>) -> bool {
        let peer = peer_key(attempt.peer);
        let of_peer = self.waiting_of.get(&peer).copied().unwrap_or(0);
        if self.waiting.len() >= self.limits.waiting_max
            || of_peer >= self.limits.waiting_per_peer_max
        {
            return false;
        }
        self.waiting_of.insert(peer, of_peer + 1);
        self.waiting.push_back((attempt, password));
        true
    }

    fn next_waiting(&mut self) -> Option<(Attempt, Zeroizing<Vec<u8>>)> {
        let next = self.waiting.pop_front()?;
        let peer = peer_key(next.0.peer);
        if let Some(of_peer) = self.waiting_of.get_mut(&peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                self.waiting_of.remove(&peer);
            }
        }
        Some(next)
    }

    /// A verification is done. `still` is what the directory knows under that name now: an account that was removed or got
    /// a new password meanwhile does not come in. Returns whether the ticket was ours.
    pub fn verified(
        &mut self,
        now: Now,
        ticket: Ticket,
        matches: bool,
        still: impl FnOnce(&str) -> Option<Known>,
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
        let verifier = attempt
            .known
            .as_ref()
            .map_or(&self.decoy_verifier, |known| &known.verifier)
            .clone();
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
        known: Option<Known>,
        made_up: &MadeUp,
    ) -> Output {
        self.forget(now.mono_micros / 1_000_000);
        if self.is_throttled(peer) {
            return Output::Reply(request, Reply::Failed(Failure::Throttled));
        }
        let secret = made_up.secret.unwrap_or_else(|| self.decoy_secret());
        // Made whether it is wanted or not: neither the time nor the answer tells which names there are.
        let made_up = blake3::keyed_hash(&secret.0, made_up.name.as_bytes());
        let mut salt = [0; SALT_BYTES];
        salt.copy_from_slice(&made_up.as_bytes()[..SALT_BYTES]);
        let mut iterations = self.limits.scram_iterations.max(ITERATIONS_MIN);
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
        known: Option<Known>,
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
        self.failures
            .get(&peer_key(peer))
            .is_some_and(|f| f.count >= self.limits.failures_max)
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
        self.count_failure(seconds, peer);
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

    fn remember(&mut self, seconds: u64, key: CacheKey, known: Known) {
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

    fn count_failure(&mut self, seconds: u64, peer: IpAddr) {
        let peer = peer_key(peer);
        if let Some(failures) = self.failures.get_mut(&peer) {
            failures.count = failures.count.saturating_add(1);
            return;
        }
        if self.limits.peers_max == 0 {
            return;
        }
        // Only who is new takes another's place: else the last to come would forget its own failures.
        while self.failure_order.len() >= self.limits.peers_max {
            if let Some((_, oldest)) = self.failure_order.pop_front() {
                self.failures.remove(&oldest);
            }
        }
        let since = seconds;
        self.failures.insert(peer, Failures { count: 1, since });
        self.failure_order.push_back((since, peer));
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
        while let Some((since, peer)) = self.failure_order.front() {
            if since + self.limits.failure_window_seconds > seconds {
                break;
            }
            debug_assert!(self.failures.get(peer).is_none_or(|f| f.since == *since));
            self.failures.remove(peer);
            self.failure_order.pop_front();
        }
    }
}

fn authenticated(request: RequestId, known: &Known) -> Output {
    Output::Reply(
        request,
        Reply::Authenticated {
            account: known.account,
            login: known.login.clone(),
        },
    )
}

/// One customer's IPv6 network is usually a /64: counting single addresses would count nothing.
fn peer_key(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::V6([a, b, c, d, 0, 0, 0, 0].into())
            }
        },
    }
}

/// Longest part of a client's login name that the log shows.
const LOGGED_CHARS_MAX: usize = 128;
