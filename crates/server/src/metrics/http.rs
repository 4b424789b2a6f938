//! The small HTTP responder for metrics.
//!
//! It reads one request of bounded size within bounded time, answers `GET /metrics`, `/healthz` and `/readyz`, and closes. Silent connections keep
//! nobody out: when all places are taken, the oldest connection of the network that has most ends.

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
};

use super::{ALL, Fault, family, fault, gather::Sources};
use crate::{
    crowd::{Crowd, Ending},
    listen::client,
};

/// Longest request line and header fields: a scraper sends a few hundred bytes.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// Time limit from the connection to the end of the answer.
const REQUEST_WAIT_MAX: Duration = Duration::from_secs(10);
/// Requests at once; usually there are one or two scrapers.
const REQUESTS_MAX: usize = 16;
/// Pause after a failed accept, so that a full table of descriptors does not make a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Whether clients are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not yet.
    Starting,
    /// Clients are served.
    Serving,
    /// Clients are not served any more.
    Stopping,
}

/// The state of the server, which the server reports.
#[derive(Default)]
pub struct Readiness {
    state: AtomicU8,
    sources: Mutex<Option<Sources>>,
}

impl Readiness {
    /// Starting.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Clients are served, and these sources can be asked.
    pub fn serving(&self, sources: Sources) {
        *self.lock() = Some(sources);
        self.state.store(1, Ordering::SeqCst);
    }

    /// The server was told to stop.
    pub fn stopping(&self) {
        self.state.store(2, Ordering::SeqCst);
        // The store closes when nothing refers to it any more.
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Sources>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present state.
    #[must_use]
    pub fn state(&self) -> State {
        match self.state.load(Ordering::SeqCst) {
            0 => State::Starting,
            1 => State::Serving,
            _ => State::Stopping,
        }
    }
}

/// Serves until the listener's task is dropped.
pub async fn serve(listener: TcpListener, readiness: Arc<Readiness>) {
    let places = Arc::new(Places::default());
    loop {
        let (mut stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                fault(Fault::Accept);
                tracing::warn!(%error, "metrics: cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let readiness = Arc::clone(&readiness);
        let place = Places::enter(&places, client(from.ip()));
        tokio::spawn(async move {
            let answering = respond(&mut stream, &readiness);
            tokio::select! {
                // A connection that does not finish in time is closed without a report.
                _ = tokio::time::timeout(REQUEST_WAIT_MAX, answering) => {}
                () = place.ending.comes() => {}
            }
        });
        // Connections that have to go end first, before more come.
        tokio::task::yield_now().await;
    }
}

/// Places for requests, taken by address.
#[derive(Default)]
struct Places(Mutex<Crowd>);

impl Places {
    fn enter(places: &Arc<Places>, address: IpAddr) -> Place {
        let mut crowd = places.lock();
        if crowd.len() >= REQUESTS_MAX {
            crowd.displace();
        }
        let ending = Ending::default();
        let number = crowd.enter(Instant::now(), address, ending.clone());
        drop(crowd);
        let places = Arc::clone(places);
        Place {
            places,
            number,
            ending,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Crowd> {
        // A panic leaves no change half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, given back when dropped.
struct Place {
    places: Arc<Places>,
    number: u64,
    ending: Ending,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().leave(self.number);
    }
}

/// Reads one request and answers it. It ends without an answer if the stream ends, or the request is too long.
pub(crate) async fn respond(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    readiness: &Readiness,
) -> std::io::Result<()> {
    let mut request = Vec::with_capacity(512);
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        if request.len() >= REQUEST_BYTES_MAX || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let line = request
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let (status, body) = match line {
        b"GET /metrics HTTP/1.1" | b"GET /metrics HTTP/1.0" => {
            let sources = readiness.lock().clone();
            if let Some(sources) = sources {
                sources.refresh().await;
            }
            ("200 OK", family::page(ALL))
        }
        b"GET /healthz HTTP/1.1" | b"GET /healthz HTTP/1.0" => ("200 OK", "ok\n".to_owned()),
        b"GET /readyz HTTP/1.1" | b"GET /readyz HTTP/1.0" => match readiness.state() {
            State::Serving => ("200 OK", "ready\n".to_owned()),
            State::Starting => ("503 Service Unavailable", "starting\n".to_owned()),
            State::Stopping => ("503 Service Unavailable", "stopping\n".to_owned()),
        },
        line if line.starts_with(b"GET ") => ("404 Not Found", "not found\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;
    use crate::{metrics, router::Router};

    async fn ask(address: std::net::SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    #[tokio::test]
    async fn figures_are_shown_and_nothing_else() {
        metrics::start();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let readiness = Readiness::new();
        let task = tokio::spawn(serve(listener, Arc::clone(&readiness)));
        let check = async |request: &[u8], expected: &str| {
            let answer = ask(address, request).await;
            assert!(answer.starts_with(expected), "{answer}");
        };
        let ready = b"GET /readyz HTTP/1.1\r\n\r\n";
        check(ready, "HTTP/1.1 503 ").await;
        // Metrics that do not need the server are shown before it runs.
        check(b"GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n").await;

        // Machines that do not answer delay the page only for a while.
        let (board, _inboxes) = Router::new(1);
        readiness.serving(Sources {
            cluster: None,
            board,
            store: Arc::new(|| whimbrel_storage_embedded::Totals {
                groups: 3,
                commits: 45,
                waiting_bytes: 6,
                waits: 7,
            }),
            store_path: "/nowhere".into(),
            cache_bytes: 7,
        });
        check(ready, "HTTP/1.1 200 OK\r\n").await;
        metrics::command("http-test", "NOOP", Duration::from_millis(2));
        let figures = ask(address, b"GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n").await;
        for line in [
            "whimbrel_command_seconds_count{protocol=\"http-test\",command=\"NOOP\"} 1\n",
            "whimbrel_store_syncs_total 3\n",
            "whimbrel_store_commits_total 45\n",
            "whimbrel_store_waiting_bytes 6\n",
            "whimbrel_store_waits_total 7\n",
            "whimbrel_errors_total{kind=\"commit\"} ",
            "whimbrel_connections_refused_total{reason=\"write timeout\"} ",
            "whimbrel_resident_bytes ",
        ] {
            assert!(figures.contains(line), "{line} is not in {figures}");
        }
        readiness.stopping();
        check(ready, "HTTP/1.1 503 ").await;

        check(b"GET /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n").await;
        check(b"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 ").await;
        check(b"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 ").await;
        // Silent connections took all places.
        let mut silent = Vec::new();
        for _ in 0..3 * REQUESTS_MAX {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        check(b"GET /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n").await;
        assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0, "it had to go");

        // A request that never ends is cut at its limit.
        assert_eq!(ask(address, &[b'x'; REQUEST_BYTES_MAX + 1]).await, "");
        task.abort();
    }
}
