//! What a service manager is told (sd_notify(3)): datagrams to the socket that `NOTIFY_SOCKET` names.
//!
//! Without that variable nothing is told. A datagram that does not arrive is logged once; the server goes on.
//!
//! The crate `sd-notify` 0.5 does not replace this: it takes abstract names (`@`) for paths, and waits when the manager does not read.

use std::{
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{ffi::OsStrExt as _, net},
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::MissedTickBehavior;

use crate::router::Router;

/// Where to tell, and how often it must hear that we live.
pub struct Notifier {
    target: Option<(net::UnixDatagram, net::SocketAddr)>,
    watchdog: Option<Duration>,
    failed: AtomicBool,
}

impl Notifier {
    /// As the environment says.
    #[must_use]
    pub fn from_environment() -> Arc<Self> {
        let variable = |name| std::env::var_os(name);
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        let target = variable("NOTIFY_SOCKET").and_then(|path| match target(path.as_bytes()) {
            Ok(target) => Some(target),
            Err(error) => {
                tracing::warn!(%error, "NOTIFY_SOCKET cannot be used");
                None
            }
        });
        // "WATCHDOG_PID= [...] the PID of the process that shall do this" (sd_watchdog_enabled(3)).
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|micros| ours && *micros > 0);
        Arc::new(Notifier {
            target,
            watchdog: watchdog.map(Duration::from_micros),
            failed: AtomicBool::new(false),
        })
    }

    fn tell(&self, message: &str) {
        let Some((socket, address)) = &self.target else {
            return;
        };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address)
            && !self.failed.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%error, "the service manager cannot be told");
        }
    }

    /// Clients are served.
    pub fn ready(&self) {
        self.tell("READY=1\nSTATUS=Serving");
    }

    /// The start waits for its disk, and clients are told so: not ready, but not failed, and nothing that a start anew would mend.
    pub fn waiting(&self) {
        self.tell("READY=1\nSTATUS=Waiting for the disk to take writes");
    }

    /// It lives, while there are no machines that could answer.
    pub fn alive(&self) {
        if self.watchdog.is_some() {
            self.tell("WATCHDOG=1");
        }
    }

    /// Certificates are read again; [`Notifier::ready`] ends it.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.tell(&format!(
            "RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=Reading certificates"
        ));
    }

    /// The server was told to stop.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=Stopping");
    }

    /// Tells that the server lives, twice in the time that the manager has set, as long as all machines answer: whoever hangs is
    /// started again.
    pub async fn keep_alive(self: Arc<Self>, board: Arc<Router>) {
        let Some(patience) = self.watchdog.filter(|_| self.target.is_some()) else {
            return;
        };
        let mut ticks = tokio::time::interval(patience / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match tokio::time::timeout(patience, board.figures()).await {
                Ok(Some(_)) => self.tell("WATCHDOG=1"),
                // Too many ask already, or a machine has ended, which stops the node.
                Ok(None) => {}
                Err(_) => tracing::error!("the state machines do not answer"),
            }
        }
    }
}

/// The socket of a path, or of a name behind `@` that is in no file system.
fn target(name: &[u8]) -> io::Result<(net::UnixDatagram, net::SocketAddr)> {
    let address = match name {
        [b'@', name @ ..] => net::SocketAddr::from_abstract_name(name),
        [b'/', ..] => net::SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "neither a path nor an abstract name",
        )),
    }?;
    let socket = net::UnixDatagram::unbound()?;
    // A manager that does not read must not stop the server.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_by_path_and_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("whimbrel-notify-{}", std::process::id());
        let of_name = net::SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let check = |socket: net::UnixDatagram, given: &[u8]| {
            let notifier = Notifier {
                target: Some(target(given).unwrap()),
                watchdog: None,
                failed: AtomicBool::new(false),
            };
            notifier.ready();
            let mut buffer = [0; 100];
            let length = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"READY=1\nSTATUS=Serving");
        };
        check(
            net::UnixDatagram::bind(&path).unwrap(),
            path.as_os_str().as_bytes(),
        );
        check(
            net::UnixDatagram::bind_addr(&of_name).unwrap(),
            format!("@{name}").as_bytes(),
        );
        assert!(target(b"").is_err());
        assert!(target(b"relative").is_err());
        assert!(target(&[b'/'; 200]).is_err());
        // A socket that is gone is no reason to fail.
        let notifier = Notifier {
            target: Some(target(path.as_os_str().as_bytes()).unwrap()),
            watchdog: None,
            failed: AtomicBool::new(false),
        };
        notifier.stopping();
        assert!(notifier.failed.load(Ordering::Relaxed));
    }
}
