//! A whole server: store, machines, sockets; started, and stopped in good order.
//!
//! Order of a start: data directory (lock), configuration of TLS, sockets, store (and with it the node's identity), the cluster (which may change the
//! identity), machines, links to other nodes; clients are let in last. Order of a stop: no more clients; sessions are told; when they have gone or
//! their time is over, their work reaches the disk; no more links; the store is closed.

use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use rustix::process::{Resource, getrlimit};
use tokio::{
    net::{TcpListener, UnixListener},
    sync::{Notify, Semaphore},
    task::JoinSet,
};
use whimbrel_storage::{Commit, LogStore as _, Mutation, PartitionId, StoreError};
use whimbrel_storage_embedded::{Embedded, OpenError, passes};

use crate::{
    actor::Fatal,
    admin,
    answer_budget::Answers,
    clock::Clock,
    cluster::{Cluster, NOT_FILLED, Running, files::FilesError},
    config::Config,
    driver::Context,
    handshakes::Handshakes,
    listen::{self, Listener, Pools, Protocol, Room},
    metrics::{self, Readiness},
    node::{DataDir, NodeError, Starts},
    password::PasswordError,
    router::Router,
    service::Service,
    sessions,
    tls::{Certificates, Fault, Reload, TlsError},
    waiting::{AcceptGate, Waits},
};

/// How often a stop looks whether the sessions have gone.
const STOP_PAUSE: Duration = Duration::from_millis(5);

/// For the queue to say goodbye to the other nodes,
const GOODBYE_WAIT_MAX: Duration = Duration::from_secs(1);

/// and for that to leave.
const GOODBYE_PAUSE: Duration = Duration::from_millis(50);
/// How long a request to read certificates again waits.
const RELOAD_WAIT_MAX: Duration = Duration::from_secs(10);

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The store.
    #[error("the store cannot be opened: {0}")]
    Store(String),
    /// The store, for a cause that can pass, such as a full disk.
    #[error("the store cannot be opened: {0}")]
    Lack(String),
    /// It was stopped before it served.
    #[error("asked to stop")]
    Stopped,
    /// A socket.
    #[error("cannot listen on {address} ({what}): {cause}{}", listen_hint(cause))]
    Listen {
        /// The purpose of the socket.
        what: &'static str,
        /// Its address.
        address: String,
        /// What the system said.
        cause: io::Error,
    },
    /// Parameters of argon2.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// The files of the cluster.
    #[error(transparent)]
    ClusterFiles(#[from] FilesError),
    /// The node cannot take its place among others.
    #[error("{0}")]
    Cluster(String),
}

/// What an administrator can do about a socket that the system refuses.
fn listen_hint(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => {
            "; a port below 1024 needs CAP_NET_BIND_SERVICE (the systemd unit gives it)"
        }
        io::ErrorKind::AddrNotAvailable => "; this machine does not have this address",
        _ => "",
    }
}

impl StartError {
    /// Whether a start may succeed later, when the disk has room again.
    fn passes(&self) -> bool {
        match self {
            StartError::Lack(_) => true,
            StartError::Node(NodeError::Io { cause, .. }) | StartError::Listen { cause, .. } => {
                passes(cause)
            }
            _ => false,
        }
    }
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        let text = error.to_string();
        match error.passes() {
            true => StartError::Lack(text),
            false => StartError::Store(text),
        }
    }
}

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A mail protocol; TLS from the first byte?
    Mail(Protocol, bool),
    /// Prometheus.
    Metrics,
    /// Other nodes.
    Peers,
}

impl Kind {
    /// The name for logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mail(Protocol::Imap, true) => "IMAPS",
            Kind::Mail(Protocol::Imap, false) => "IMAP",
            Kind::Mail(Protocol::Pop3, true) => "POP3S",
            Kind::Mail(Protocol::Pop3, false) => "POP3",
            Kind::Mail(Protocol::Smtp, _) => "SMTP",
            Kind::Mail(Protocol::Submission, true) => "SUBMISSIONS",
            Kind::Mail(Protocol::Submission, false) => "SUBMISSION",
            Kind::Mail(Protocol::Lmtp, _) => "LMTP",
            Kind::Metrics => "metrics",
            Kind::Peers => "peers",
        }
    }
}

/// Sockets that are open but not yet served.
pub struct Sockets(Vec<(Kind, TcpListener, SocketAddr)>);

impl Sockets {
    /// Opens the sockets of the configuration. `or_free`: a port in use is replaced by a free one.
    ///
    /// With the address that cannot be opened.
    pub fn open(config: &Config, or_free: bool) -> Result<Self, StartError> {
        let peers = match config.cluster.name.as_str() {
            "" => &Vec::new(),
            _ => &config.cluster.listen,
        };
        let wanted = [
            (Kind::Peers, peers),
            (Kind::Mail(Protocol::Imap, true), &config.imap.listen_tls),
            (Kind::Mail(Protocol::Imap, false), &config.imap.listen),
            (Kind::Mail(Protocol::Pop3, true), &config.pop3.listen_tls),
            (Kind::Mail(Protocol::Pop3, false), &config.pop3.listen),
            (Kind::Mail(Protocol::Smtp, false), &config.smtp.listen),
            (
                Kind::Mail(Protocol::Submission, true),
                &config.submission.listen_tls,
            ),
            (
                Kind::Mail(Protocol::Submission, false),
                &config.submission.listen,
            ),
            (Kind::Mail(Protocol::Lmtp, false), &config.lmtp.listen),
            (Kind::Metrics, &config.metrics.listen),
        ];
        let mut sockets = Vec::new();
        for (kind, addresses) in wanted {
            for address in addresses {
                let failed = |cause| StartError::Listen {
                    what: kind.name(),
                    address: address.to_string(),
                    cause,
                };
                let socket = match listen::bind(*address) {
                    Err(error) if or_free && error.kind() == io::ErrorKind::AddrInUse => {
                        listen::bind(SocketAddr::new(address.ip(), 0))
                    }
                    other => other,
                };
                let socket = socket.map_err(failed)?;
                let bound = socket.local_addr().map_err(failed)?;
                sockets.push((kind, socket, bound));
            }
        }
        Ok(Sockets(sockets))
    }

    /// No sockets: a server that only its own process reaches, and users of its admin socket.
    pub fn none() -> Self {
        Sockets(Vec::new())
    }

    /// The open sockets and their addresses.
    pub fn addresses(&self) -> Vec<(Kind, SocketAddr)> {
        self.0
            .iter()
            .map(|(kind, _, address)| (*kind, *address))
            .collect()
    }
}

/// The row for the node's starts ([`DataDir::start`]), in a partition of the node's own: accounts and the directory have lower numbers.
const STARTS: (PartitionId, &[u8]) = (PartitionId(1 << 32), b"starts");

/// Opens the store of a data directory, on a thread of its own: it reads the journals first. Then the node has its identity.
///
/// # Errors
/// When it is damaged, or of another version.
pub async fn open_store(config: &Config, data: &mut DataDir) -> Result<Embedded, StartError> {
    Opening::default().go_on(config, data).await
}

/// The progress of opening a store, so that a start that waits does nothing twice.
#[derive(Default)]
struct Opening {
    store: Option<Embedded>,
    /// The start is counted in the store, and not yet in `node.toml`.
    counted: bool,
}

impl Opening {
    async fn go_on(&mut self, config: &Config, data: &mut DataDir) -> Result<Embedded, StartError> {
        let store = match &self.store {
            Some(store) => store.clone(),
            None => open_copy(config, &data.path().join("store")).await?,
        };
        self.store = Some(store.clone());
        if !self.counted {
            let before = data.known();
            let counted = count_start(&store, data).await;
            if counted.is_err() {
                data.back_to(before);
            }
            counted?;
            self.counted = true;
        }
        data.write()?;
        Ok(store)
    }
}

/// Opens a store alone, without a node.
///
/// # Errors
/// As [`open_store`].
pub async fn open_copy(config: &Config, path: &Path) -> Result<Embedded, StartError> {
    let opened = try_open(config, path).await?;
    Ok(opened?)
}

/// As [`open_copy`]; the inner error is the store's own.
pub(crate) async fn try_open(
    config: &Config,
    path: &Path,
) -> Result<Result<Embedded, OpenError>, StartError> {
    let of = &config.storage;
    let mut store = whimbrel_storage_embedded::Config::new(path);
    store.cache_bytes = of.cache_bytes.0;
    store.write_buffer_bytes = of.write_buffer_bytes.0;
    store.full_buffers_max = of.full_buffers_max;
    store.journal_bytes_max = of.journal_bytes_max.0;
    store.free_bytes_min = of.free_bytes_min.0;
    store.removal_free_bytes_min = of.removal_free_bytes_min.0;
    store.readers_max = of.readers_max;
    store.files_open_max = listen::files_open_max(getrlimit(Resource::Nofile).current);
    let opened = tokio::task::spawn_blocking(move || Embedded::open(store)).await;
    opened.map_err(|panic| StartError::Store(panic.to_string()))
}

/// Counts a start in the store. [`DataDir::write`] must follow; then the identity in `node.toml` is the node's.
async fn count_start(store: &Embedded, data: &mut DataDir) -> Result<(), StartError> {
    let failed = |cause: &dyn std::fmt::Display| StartError::Store(cause.to_string());
    let refused = |error: StoreError| match error.is_temporary() {
        true => StartError::Lack(error.to_string()),
        false => failed(&error),
    };
    let (partition, key) = (STARTS.0, Bytes::from_static(STARTS.1));
    let rows = store.get(partition, vec![key.clone()]).await;
    let row = rows.map_err(refused)?.pop().flatten();
    let before = match row.as_deref().map(Starts::from_bytes) {
        None => None,
        Some(Some(starts)) => Some(starts),
        Some(None) => return Err(failed(&"the count of starts is damaged")),
    };
    let starts = data.start(before);
    let mut commit = Commit::new(partition);
    // A node also starts on a full disk: its mail can be read.
    commit.room = whimbrel_storage::Room::Vital;
    commit.mutations.push(Mutation::Put {
        key,
        value: starts.to_bytes().into(),
    });
    store.commit(commit).await.map_err(refused)
}

/// A server that serves.
pub struct Server {
    addresses: Vec<(Kind, SocketAddr)>,
    certificates: Arc<Certificates>,
    reload: Arc<Notify>,
    reloaded: Arc<Notify>,
    service: Service<Embedded>,
    shutdown_wait: Duration,
    /// For so long the other nodes wait for it.
    absence_micros: u64,
    cluster: Option<Running<Embedded>>,
    /// Loops that accept or watch; dropped first.
    loops: JoinSet<()>,
    /// Answers questions for figures while the server starts and stops.
    figures: JoinSet<()>,
    readiness: Arc<Readiness>,
    /// Last: the lock is released when all else is closed.
    data: DataDir,
}

impl Server {
    /// Starts; when it returns, clients are served. With `waits`, it waits for a disk that accepts no writes.
    ///
    /// When something that it needs is missing; then nothing runs.
    pub async fn start(
        config: &Config,
        mut data: DataDir,
        sockets: Sockets,
        fatal: Fatal,
        waits: Option<Waits<'_>>,
    ) -> Result<Self, StartError> {
        metrics::start();
        // Before any socket is reported as open.
        let certificates = Arc::new(Certificates::open(config)?);
        let tls = certificates.server_config()?;
        let addresses = sockets.addresses();
        let readiness = Readiness::new();
        let mut figures = JoinSet::new();
        let (mut mail, mut peers) = (Vec::new(), Vec::new());
        for (kind, socket, address) in sockets.0 {
            tracing::info!(protocol = kind.name(), %address, "listening");
            match kind {
                Kind::Metrics => {
                    figures.spawn(metrics::serve(socket, Arc::clone(&readiness)));
                }
                Kind::Mail(protocol, tls) => mail.push((protocol, tls, Arc::new(socket))),
                Kind::Peers => peers.push(socket),
            }
        }
        let room = Room::within(config, getrlimit(Resource::Nofile).current);
        let pools = Pools::new(&config.limits, room.connections);
        let door = AcceptGate::new(
            config,
            pools.clone(),
            Arc::clone(&tls),
            certificates.served(),
        );
        let (store, admin_socket) = open_waiting(config, &mut data, waits, &door, &mail).await?;
        // One clock for all machines: clock reports refer to it.
        let clock = Clock::start();
        let cluster = Cluster::open(config, &mut data, peers, store.clone(), clock).await?;
        let service = Service::start(
            config,
            data.identity(),
            store.clone(),
            cluster.as_ref().map(Cluster::membership),
            clock,
            Arc::clone(&fatal),
        )?;
        let cluster = match cluster {
            None => None,
            Some(cluster) => {
                let board = Arc::clone(&service.board);
                open_partitions(&store, &board).await?;
                if cluster.membership().syncing {
                    // So that each is known to have everything, or no missing blob, before a client comes.
                    let all = (0..=u8::MAX).map(whimbrel_crdt::PartitionId::accounts);
                    all.for_each(|partition| board.open_partition(partition));
                }
                Some(cluster.run(board, Arc::clone(&fatal)).await)
            }
        };
        let mut server = Server {
            addresses,
            certificates,
            reload: Arc::default(),
            reloaded: Arc::default(),
            service,
            shutdown_wait: config.server.shutdown_wait,
            absence_micros: crate::service::duration_micros(config.queue.planned_absence),
            cluster,
            loops: JoinSet::new(),
            figures,
            readiness,
            data,
        };
        server.loops.spawn({
            let (failed, fatal) = (store.failed(), Arc::clone(&fatal));
            async move { fatal(&format!("the store failed: {}", failed.await)) }
        });
        server.loops.spawn(watch_certificates(
            Arc::clone(&server.certificates),
            Arc::clone(&server.reload),
            Arc::clone(&server.reloaded),
            config.tls.reload_interval,
        ));
        let registry = &server.service.registry;
        let relays = match &server.cluster {
            Some(cluster) => Some(cluster.relays(config, room.relays, Arc::clone(registry))?),
            None => None,
        };
        let context = Arc::new(Context {
            clock: server.service.clock,
            board: Arc::clone(&server.service.board),
            store: store.clone(),
            fatal,
            tls,
            shown: server.certificates.served(),
            handshakes: Handshakes::new(&config.tls),
            write_timeout: config.limits.write_timeout,
            uploads_max: config.limits.uploads_max,
            turns: Arc::new(Semaphore::new(config.imap.sorts_at_once_max)),
            answers: Answers::new(config.limits.answers_bytes_max.bytes()),
            finished_max: config.imap.append_messages_max,
            resume: sessions::resumed(config, server.service.clock),
            relays,
        });
        let administrators = admin::session::sessions(
            Arc::clone(&context),
            Arc::clone(&pools.users),
            Arc::clone(&server.service.registry),
            sessions::of_administrators(config, server.service.clock),
        );
        let filled = server.cluster.as_ref().map(Running::filled);
        server.loops.spawn(admin::server::serve(
            admin_socket,
            Arc::clone(&server.service.board),
            administrators,
            server.cluster.as_ref().map(Running::told),
        ));
        // The node must not claim a UID before: connections wait.
        let filled = filled.filter(|filled| !*filled.borrow());
        if filled.is_some() && mail.is_empty() {
            return Err(StartError::Cluster(NOT_FILLED.into()));
        } else if filled.is_some() {
            tracing::info!(NOT_FILLED);
        }
        if let Some(cluster) = &server.cluster {
            let registry = Arc::clone(&server.service.registry);
            let serve = cluster.serve(Arc::clone(&context), registry, room.relayed);
            let filled = filled.clone();
            server.loops.spawn(async move {
                if let Some(mut filled) = filled {
                    // As below.
                    let _ = filled.wait_for(|filled| *filled).await;
                }
                serve.await;
            });
        }
        for (protocol, tls, socket) in mail {
            let listener = Listener {
                protocol,
                tls,
                socket,
                make: sessions::factory(config, server.service.clock, protocol),
                places: Arc::clone(pools.of(protocol)),
                registry: Arc::clone(&server.service.registry),
                context: Arc::clone(&context),
            };
            let filled = filled.clone();
            server.loops.spawn(async move {
                if let Some(mut filled) = filled {
                    // The other end goes with the node.
                    let _ = filled.wait_for(|filled| *filled).await;
                }
                listener.run().await;
            });
        }
        server.readiness.serving(metrics::Sources {
            board: Arc::clone(&server.service.board),
            store: Arc::new(move || store.totals()),
            store_path: server.data.path().join("store"),
            cache_bytes: config.storage.cache_bytes.0,
            cluster: server.cluster.as_ref().map(Running::told),
        });
        tracing::info!(
            data = %server.data.path().display(),
            incarnation = format!("{:016x}", server.data.identity().incarnation),
            fingerprint = server.certificates.fingerprint(),
            "serving"
        );
        Ok(server)
    }

    /// Its sockets and their addresses.
    pub fn addresses(&self) -> &[(Kind, SocketAddr)] {
        &self.addresses
    }

    /// Its certificate.
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// The machines, for commands within the process.
    pub fn service(&self) -> &Service<Embedded> {
        &self.service
    }

    /// Looks at the certificate's files now (SIGHUP); returns when they were looked at.
    pub async fn reload(&self) {
        let looked = self.reloaded.notified();
        self.reload.notify_one();
        // A disk that hangs must not keep signals from being heard.
        let _ = tokio::time::timeout(RELOAD_WAIT_MAX, looked).await;
    }

    /// Stops in good order; whether everything ended in time.
    pub async fn stop(mut self) -> bool {
        tracing::info!(sessions = self.service.registry.len(), "stopping");
        self.readiness.stopping();
        self.loops.shutdown().await;
        let until = Instant::now() + self.shutdown_wait;
        self.service.registry.shutdown();
        while !self.service.registry.is_empty() && Instant::now() < until {
            tokio::time::sleep(STOP_PAUSE).await;
        }
        let left = self.service.registry.len();
        // After the sessions: their last writes wait for other nodes, too.
        if let Some(cluster) = self.cluster.take() {
            self.service.board.leave_queue(self.absence_micros);
            self.service.settle(GOODBYE_WAIT_MAX).await;
            tokio::time::sleep(GOODBYE_PAUSE).await;
            cluster.stop().await;
        }
        // Work of the sessions is finished even if they took all the time themselves.
        let settled = self
            .service
            .settle(self.shutdown_wait.max(Duration::from_secs(1)))
            .await;
        if left > 0 || !settled {
            tracing::warn!(sessions = left, settled, "stopping before all work is done");
        }
        self.figures.shutdown().await;
        self.service.stop().await.close().await;
        let socket = self.data.path().join(admin::SOCKET);
        // A socket file that stays is replaced at the next start.
        let _ = std::fs::remove_file(socket);
        tracing::info!("stopped");
        left == 0 && settled
    }
}

/// Opens what needs a disk that accepts writes; with `waits`, as soon as it does.
async fn open_waiting(
    config: &Config,
    data: &mut DataDir,
    mut waits: Option<Waits<'_>>,
    door: &Arc<AcceptGate>,
    mail: &[(Protocol, bool, Arc<TcpListener>)],
) -> Result<(Embedded, UnixListener), StartError> {
    let mut opening = Opening::default();
    let mut turning_away: Option<JoinSet<()>> = None;
    let mut told = String::new();
    loop {
        let opened = match opening.go_on(config, data).await {
            Ok(store) => admin_socket(data).map(|socket| (store, socket)),
            Err(error) => Err(error),
        };
        let (error, waits) = match (opened, &mut waits) {
            (Err(error), Some(waits)) if error.passes() => (error.to_string(), waits),
            (Ok(opened), _) => {
                if let Some(mut tasks) = turning_away {
                    tasks.shutdown().await;
                    tracing::info!("the disk takes writes");
                }
                return Ok(opened);
            }
            (Err(error), _) => return Err(error),
        };
        if error != told {
            tracing::warn!(
                error,
                "nothing is served until the disk takes writes; the server checks each second"
            );
            told = error;
        }
        if turning_away.is_none() {
            turning_away = Some(door.keep(mail));
            waits.notifier.waiting();
        }
        if !waits.for_disk(data.path()).await {
            return Err(StartError::Stopped);
        }
    }
}

/// Other nodes may lack what is in the logs.
async fn open_partitions(store: &Embedded, board: &Router) -> Result<(), StartError> {
    let partitions = store.partitions().await;
    for partition in partitions.map_err(|error| StartError::Store(error.to_string()))? {
        if let Ok(number) = u16::try_from(partition.0)
            && let partition = whimbrel_crdt::PartitionId(number)
            && partition.bucket().is_some()
        {
            board.open_partition(partition);
        }
    }
    Ok(())
}

fn admin_socket(data: &DataDir) -> Result<UnixListener, StartError> {
    admin::server::bind(data.path()).map_err(|cause| StartError::Listen {
        what: "admin",
        address: data.path().join(admin::SOCKET).display().to_string(),
        cause,
    })
}

/// What was logged about the certificate in use.
#[derive(Default)]
struct Told {
    faults: Vec<Fault>,
    at: Option<Instant>,
}

impl Told {
    /// Logs why clients will refuse the certificate, when that changes and once a day.
    fn look(&mut self, certificates: &Certificates) {
        const AGAIN_AFTER: Duration = Duration::from_secs(86_400);
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = since_1970.map_or(0, |of| i64::try_from(of.as_secs()).unwrap_or(i64::MAX));
        let (ends, faults) = certificates.faults(now);
        metrics::certificate(ends, &faults);
        let is_due = self.at.is_none_or(|at| at.elapsed() >= AGAIN_AFTER);
        if faults == self.faults && !is_due {
            return;
        }
        for fault in &faults {
            let certificate = certificates.path().display();
            tracing::warn!(%certificate, fault = fault.label(), "{}", fault.text());
        }
        (self.faults, self.at) = (faults, Some(Instant::now()));
    }
}

async fn watch_certificates(
    certificates: Arc<Certificates>,
    asked: Arc<Notify>,
    answered: Arc<Notify>,
    interval: Duration,
) {
    // A fault that stays is logged once.
    let mut told = String::new();
    let mut faults = Told::default();
    loop {
        faults.look(&certificates);
        let forced = tokio::select! {
            () = tokio::time::sleep(interval) => false,
            () = asked.notified() => true,
        };
        let looked = {
            let certificates = Arc::clone(&certificates);
            tokio::task::spawn_blocking(move || certificates.reload(forced)).await
        };
        if forced {
            answered.notify_waiters();
        }
        match looked {
            Ok(Ok(Reload::Replaced(fingerprint))) => {
                tracing::info!(fingerprint, "a new certificate is in use")
            }
            Ok(Ok(Reload::Unchanged)) if forced => {
                tracing::info!("the certificate has not changed")
            }
            Ok(Ok(Reload::Unchanged)) => {}
            Ok(Err(error)) => {
                let error = error.to_string();
                if forced || error != told {
                    tracing::error!(
                        error,
                        "the new certificate cannot be used, the old one stays"
                    );
                }
                told = error;
                continue;
            }
            Err(panic) => tracing::error!(%panic, "cannot check the certificate"),
        }
        told.clear();
    }
}
