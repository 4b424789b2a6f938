//! The machines of the service over a store, without sockets: for the server and for offline commands.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::Semaphore, task::JoinSet};
use whimbrel_crdt::Incarnation;
use whimbrel_mailbox::MAILBOXES_MAX;
use whimbrel_service::{
    api::Quota,
    auth::{self, Authenticator},
    directory::{self, DirectoryOwner},
    machine::{Input, Machine},
    owner::{self, PartitionOwner},
    peers::{self, PeerInput},
    queue::{self, QueueOwner},
    senders,
};

use crate::{
    actor::{Actor, Fatal, Shared},
    clock::Clock,
    cluster::{Membership, least},
    config::Config,
    node::{Identity, random},
    password::{self, PasswordError, Verifier},
    registry::Registry,
    router::{Inboxes, Router},
    store_calls::Store,
};

/// How often a stopping service checks whether it is idle.
const SETTLE_PAUSE: Duration = Duration::from_millis(2);

/// The running machines.
pub struct Service<S> {
    /// The clocks of all machines.
    pub clock: Clock,
    /// Their addresses.
    pub board: Arc<Router>,
    /// The sessions that get their events.
    pub registry: Arc<Registry>,
    /// Their store.
    pub store: S,
    actors: JoinSet<()>,
}

impl<S: Store> Service<S> {
    /// Starts the machines on tokio. They first read what is stored; questions wait for that.
    ///
    /// # Errors
    /// When the parameters of argon2 are not possible.
    pub fn start(
        config: &Config,
        identity: &Identity,
        store: S,
        membership: Option<Membership>,
        clock: Clock,
        fatal: Fatal,
    ) -> Result<Self, PasswordError> {
        let origin = Incarnation::from_hash(identity.incarnation);
        let owners = config.owners();
        let (
            board,
            Inboxes {
                directory,
                queue,
                owners: owner_inboxes,
            },
        ) = Router::new(owners);
        let registry = Registry::new(config.limits.connections_per_account_max);
        let shared = Arc::new(Shared {
            clock,
            store: store.clone(),
            board: Arc::clone(&board),
            registry: Arc::clone(&registry),
            verifier: Verifier::new(&config.auth),
            loads: Arc::new(Semaphore::new(config.storage.loads_max)),
            fatal,
            wants: membership.as_ref().map(|of| of.wants.clone()),
        });
        let in_cluster = membership.is_some();
        let shipping = peers::Config::default();
        let syncing = membership.as_ref().is_some_and(|of| of.syncing);
        // Before a machine reads anything: it may write as soon as it has.
        let told = membership.as_ref().and_then(|of| of.clock);
        let (peers, holders, former) = membership.map_or_else(Default::default, |of| {
            let Membership {
                peers,
                holders,
                former,
                ..
            } = of;
            (peers, holders, former)
        });
        let mut actors = JoinSet::new();
        // Logins under unknown names are compared with this.
        let decoy = password::decoy(&config.auth)?;
        let authenticator = Authenticator::new(auth_limits(config), random(), decoy);
        let directory_config = directory::Config {
            peers: peers.keys().copied().collect(),
            holders: holders.clone(),
            in_cluster,
            syncing,
            shipping,
            ..directory::Config::alone(origin, identity.slot)
        };
        let mut machine = DirectoryOwner::new(directory_config, authenticator)
            .with_senders(sender_limits(config))
            .with_probes(&probe_limits(config));
        tell_clock(&mut machine, clock, told);
        actors.spawn(Actor::new("directory", machine, directory, Arc::clone(&shared)).run());
        let min_round_trip = config.queue.min_round_trip;
        let queue_config = queue::Config {
            origin,
            slot: identity.slot,
            peers: peers.clone(),
            holders: holders.clone(),
            owners,
            other_nodes: config.queue.other_nodes,
            takeover_after_seconds: config.queue.takeover_after.as_secs(),
            repair_after_seconds: config.queue.repair_after.as_secs(),
            min_round_trip_micros: (!min_round_trip.is_zero())
                .then(|| duration_micros(min_round_trip)),
            limits: queue_limits(config),
            confirm_micros: duration_micros(config.queue.confirm_timeout),
            seed: u64::from_le_bytes(random()),
        };
        let mut machine = QueueOwner::new(queue_config);
        tell_clock(&mut machine, clock, told);
        actors.spawn(Actor::new("queue", machine, queue, Arc::clone(&shared)).run());
        let owner_config = owner::Config {
            origin,
            slot: identity.slot,
            round: identity.round,
            accounts_bytes_max: config.storage.accounts_bytes_max.bytes(),
            owners,
            quota: quota(config),
            waiting_calls_max: config.limits.waiting_calls_max,
            collect_after_seconds: config.storage.collect_after.as_secs(),
            peers,
            holders,
            holders_min: least(config),
            former,
            in_cluster,
            syncing,
            shipping,
            windows: peers::budget::Config {
                total_bytes_max: config.cluster.replication_buffer_bytes_max.0 / owners as u64,
                ..peers::budget::Config::default()
            },
            waits: owner::waits::Config {
                timeout_micros: duration_micros(config.cluster.write_timeout),
                ..owner::waits::Config::default()
            },
            ..owner::Config::default()
        };
        let loaded = owner::LoadedAccounts::default();
        for inbox in owner_inboxes {
            let mut machine = PartitionOwner::beside(owner_config.clone(), loaded.clone());
            tell_clock(&mut machine, clock, told);
            actors.spawn(Actor::new("owner", machine, inbox, Arc::clone(&shared)).run());
        }
        Ok(Service {
            clock,
            board,
            registry,
            store,
            actors,
        })
    }

    /// Ends the machines at any point: what they had not made durable they have not acknowledged.
    pub async fn stop(mut self) -> S {
        self.actors.shutdown().await;
        self.store
    }

    /// Waits until nothing is under way, at most `patience`; whether it came to that. Entries that are then still in the queue are on disk, and are
    /// delivered after the next start.
    pub async fn settle(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            // The router itself keeps one.
            if self.board.work().is_idle(1) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(SETTLE_PAUSE).await;
        }
    }
}

fn tell_clock(machine: &mut impl Machine, clock: Clock, told: Option<peers::Clock>) {
    if let Some(told) = told {
        machine.handle(clock.now(), Input::Peer(PeerInput::Clock(told)));
    }
}

/// What each account may hold.
fn quota(config: &Config) -> Quota {
    let limit = |of: u64| (of > 0).then_some(of);
    let of = &config.quota;
    Quota {
        bytes_max: limit(of.bytes_max.0),
        messages_max: limit(of.messages_max as u64),
        mailboxes_max: limit(of.mailboxes_max as u64).or(Some(MAILBOXES_MAX as u64)),
    }
}

fn auth_limits(config: &Config) -> auth::Limits {
    let auth = &config.auth;
    auth::Limits {
        verifications_max: auth.verifications_max,
        waiting_max: auth.waiting_max,
        waiting_per_peer_max: auth.waiting_per_peer_max,
        failures_max: auth.failures_max,
        failure_window_seconds: auth.failure_window.as_secs(),
        peers_max: auth.peers_max,
        cache_entries_max: auth.cache_entries_max,
        cache_seconds: auth.cache_time.as_secs(),
        scram_iterations: auth.scram_iterations,
    }
}

fn sender_limits(config: &Config) -> senders::Limits {
    senders::Limits {
        messages_max: config.submission.messages_max,
        recipients_max: config.submission.recipients_max,
        window_seconds: config.submission.messages_window.as_secs(),
    }
}

fn probe_limits(config: &Config) -> directory::ProbeLimits {
    directory::ProbeLimits {
        unknown_max: config.smtp.unknown_recipients_per_address_max,
        window_seconds: config.smtp.unknown_recipients_window.as_secs(),
        peers_max: config.auth.peers_max,
    }
}

pub(crate) fn duration_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn queue_limits(config: &Config) -> queue::Limits {
    queue::Limits {
        entries_max: config.queue.entries_max,
        bytes_max: config.queue.bytes_max.bytes(),
        retry_after_seconds: config.queue.retry_after.as_secs(),
    }
}
