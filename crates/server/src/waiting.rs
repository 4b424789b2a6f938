//! A start that waits for its disk: clients get the temporary error of their protocol in place of a greeting, and no session begins.
//!
//! Clients that speak TLS from the first byte get it within TLS.

use std::{io, net::IpAddr, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};
use whimbrel_storage_embedded::{Disk as _, RealDisk};

use crate::{
    config::Config,
    handshakes::Handshakes,
    listen::{Pools, Protocol, displaced},
    metrics::{self, Fault},
    notify::Notifier,
    tls::ServedCertificate,
    transport::Transport,
};

/// Time between two looks at the disk.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The text for clients.
const WHY: &str = "The server cannot write to its disk";

/// Hears of a start that waits, and may end it.
pub struct Waits<'a> {
    /// The service manager: a start that waits is no start that hangs.
    pub notifier: &'a Notifier,
    /// Completes when the server has to stop.
    pub stopped: Pin<&'a mut (dyn Future<Output = ()> + Send)>,
}

impl Waits<'_> {
    /// Waits until the file system of `directory` accepts a file, one pause at least; false: the server has to stop.
    pub(crate) async fn for_disk(&mut self, directory: &std::path::Path) -> bool {
        loop {
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = &mut self.stopped => return false,
            }
            self.notifier.alive();
            let directory: PathBuf = directory.to_owned();
            let looked = tokio::task::spawn_blocking(move || {
                RealDisk.free_bytes(&directory)?;
                RealDisk.probe(&directory)
            });
            if matches!(looked.await, Ok(Ok(()))) {
                return true;
            }
        }
    }
}

/// What is needed to turn clients away.
pub(crate) struct AcceptGate {
    pools: Pools,
    pub(crate) tls: Arc<ServerConfig>,
    pub(crate) shown: ServedCertificate,
    handshakes: Handshakes,
    write_timeout: Duration,
}

impl AcceptGate {
    pub(crate) fn new(
        config: &Config,
        pools: Pools,
        tls: Arc<ServerConfig>,
        shown: ServedCertificate,
    ) -> Arc<AcceptGate> {
        Arc::new(AcceptGate {
            pools,
            tls,
            shown,
            handshakes: Handshakes::new(&config.tls),
            write_timeout: config.limits.write_timeout,
        })
    }

    /// Turns clients away until the tasks are dropped.
    pub(crate) fn keep(
        self: &Arc<Self>,
        sockets: &[(Protocol, bool, Arc<TcpListener>)],
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for (protocol, tls, socket) in sockets {
            let (gate, socket) = (Arc::clone(self), Arc::clone(socket));
            let (protocol, tls) = (*protocol, *tls);
            tasks.spawn(async move {
                loop {
                    match socket.accept().await {
                        Ok((stream, address)) => {
                            let gate = Arc::clone(&gate);
                            tokio::spawn(async move {
                                // A client that is gone, or does not read, is not told.
                                let _ = gate.turn_away(stream, address.ip(), protocol, tls).await;
                            });
                        }
                        Err(error) => {
                            metrics::fault(Fault::Accept);
                            tracing::warn!(protocol = protocol.name(), %error, "cannot accept");
                            sleep(ACCEPT_PAUSE).await;
                        }
                    }
                }
            });
        }
        tasks
    }

    async fn turn_away(
        &self,
        stream: TcpStream,
        address: IpAddr,
        protocol: Protocol,
        tls: bool,
    ) -> io::Result<()> {
        metrics::refused("disk");
        let Ok(place) = self.pools.of(protocol).enter(address, true) else {
            return Ok(());
        };
        let ending = place.ending();
        tokio::select! {
            told = self.tell_why(stream, protocol, tls) => told,
            () = ending.comes() => {
                displaced(protocol, address);
                Ok(())
            }
        }
    }

    async fn tell_why(&self, stream: TcpStream, protocol: Protocol, tls: bool) -> io::Result<()> {
        let mut transport = Transport::Clear(stream);
        if tls && let Transport::Clear(stream) = transport {
            let shaken = self.handshakes.shake(stream, &self.tls, &self.shown);
            transport = shaken.await?.0;
        }
        let word = protocol.refusal(WHY);
        transport.write(word.as_bytes(), self.write_timeout).await?;
        transport.close(self.write_timeout, false).await;
        Ok(())
    }
}
