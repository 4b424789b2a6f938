//! Figures for Prometheus, and the small HTTP responder that shows them.
//!
//! The responder reads one request of bounded size within bounded time, answers `GET /metrics` and `GET /healthz`, and closes.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

/// A request line and header fields: a scraper sends a few hundred bytes.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// From the connection to the end of the answer.
const REQUEST_WAIT_MAX: Duration = Duration::from_secs(10);
/// Requests at once; there is one scraper, or two.
const REQUESTS_MAX: usize = 16;
/// After an accept that failed, so that a full table of descriptors does not make a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Starts counting, for the whole process.
pub fn start() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let recorder = PrometheusBuilder::new().build_recorder();
            let handle = recorder.handle();
            // Fails only if another recorder is there already; then ours stays empty.
            let _ = metrics::set_global_recorder(recorder);
            describe();
            handle
        })
        .clone()
}

fn describe() {
    describe_gauge!("whimbrel_sessions", "Open connections by protocol");
    describe_counter!(
        "whimbrel_connections_total",
        "Connections accepted by protocol"
    );
    describe_counter!(
        "whimbrel_connections_refused_total",
        "Connections refused by reason"
    );
    describe_counter!("whimbrel_commands_total", "Commands by protocol and name");
    describe_counter!(
        "whimbrel_protocol_errors_total",
        "Breaches of a protocol by clients, by protocol and kind"
    );
    describe_counter!("whimbrel_logins_total", "Logins by result");
    describe_counter!(
        "whimbrel_transactions_total",
        "Messages accepted by SMTP and LMTP"
    );
    describe_counter!(
        "whimbrel_transaction_bytes_total",
        "Bytes of messages accepted by SMTP and LMTP"
    );
    describe_counter!("whimbrel_deliveries_total", "Messages put into mailboxes");
    describe_counter!(
        "whimbrel_uidvalidities_total",
        "Accounts whose UIDVALIDITY had to change: their clients load everything again"
    );
    describe_counter!("whimbrel_store_syncs_total", "Syncs of the store's log");
    describe_counter!(
        "whimbrel_store_commits_total",
        "Commits made durable; divided by the syncs: commits a sync"
    );
    describe_gauge!("whimbrel_resident_bytes", "Resident memory of the process");
}

/// Counts a login.
pub fn login(ok: bool) {
    counter!("whimbrel_logins_total", "result" => if ok { "ok" } else { "failed" }).increment(1);
}

/// Counts a delivery.
pub fn delivery() {
    counter!("whimbrel_deliveries_total").increment(1);
}

/// Counts a new UIDVALIDITY.
pub fn epoch() {
    counter!("whimbrel_uidvalidities_total").increment(1);
}

/// Counts an accepted transaction.
pub fn accepted(bytes: u64) {
    counter!("whimbrel_transactions_total").increment(1);
    counter!("whimbrel_transaction_bytes_total").increment(bytes);
}

/// Counts a command. Names come from the protocol crates, so there are only so many.
pub fn command(protocol: &'static str, name: &'static str) {
    counter!("whimbrel_commands_total", "protocol" => protocol, "command" => name).increment(1);
}

/// Counts a breach of the protocol.
pub fn protocol_error(protocol: &'static str, kind: &'static str) {
    counter!("whimbrel_protocol_errors_total", "protocol" => protocol, "kind" => kind).increment(1);
}

/// Counts a connection that was refused.
pub fn refused(reason: &'static str) {
    counter!("whimbrel_connections_refused_total", "reason" => reason).increment(1);
}

/// An open connection, counted until it is dropped.
pub struct Open(&'static str);

/// Counts a connection.
#[must_use]
pub fn open(protocol: &'static str) -> Open {
    counter!("whimbrel_connections_total", "protocol" => protocol).increment(1);
    gauge!("whimbrel_sessions", "protocol" => protocol).increment(1.0);
    Open(protocol)
}

impl Drop for Open {
    fn drop(&mut self) {
        gauge!("whimbrel_sessions", "protocol" => self.0).decrement(1.0);
    }
}

/// What the store counted.
pub fn store(syncs: u64, commits: u64) {
    counter!("whimbrel_store_syncs_total").absolute(syncs);
    counter!("whimbrel_store_commits_total").absolute(commits);
}

/// Resident memory in bytes, from /proc; `None` elsewhere.
pub fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Asks whoever keeps figures of its own to bring them up to date before they are shown.
pub type Refresh = Arc<dyn Fn() + Send + Sync>;

/// Serves until the listener's task is dropped.
pub async fn serve(listener: TcpListener, handle: PrometheusHandle, refresh: Refresh) {
    let places = Arc::new(Semaphore::new(REQUESTS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "metrics: cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (handle, refresh) = (handle.clone(), Arc::clone(&refresh));
        tokio::spawn(async move {
            // Whoever does not finish in time is cut; nobody is told.
            let _ =
                tokio::time::timeout(REQUEST_WAIT_MAX, respond(stream, &handle, &refresh)).await;
            drop(place);
        });
    }
}

async fn respond(
    mut stream: TcpStream,
    handle: &PrometheusHandle,
    refresh: &Refresh,
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
            refresh();
            if let Some(bytes) = resident_bytes() {
                gauge!("whimbrel_resident_bytes").set(bytes as f64);
            }
            handle.run_upkeep();
            ("200 OK", handle.render())
        }
        b"GET /healthz HTTP/1.1" | b"GET /healthz HTTP/1.0" => ("200 OK", "ok\n".to_owned()),
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
    use super::*;

    async fn ask(address: std::net::SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    #[tokio::test]
    async fn figures_are_shown_and_nothing_else() {
        let handle = start();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(serve(listener, handle, Arc::new(|| store(3, 45))));
        command("imap", "NOOP");
        let open = open("imap");
        let figures = ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        for line in [
            "whimbrel_commands_total{protocol=\"imap\",command=\"NOOP\"} 1",
            "whimbrel_sessions{protocol=\"imap\"} 1",
            "whimbrel_store_syncs_total 3",
            "whimbrel_store_commits_total 45",
            "whimbrel_resident_bytes ",
        ] {
            assert!(figures.contains(line), "{line} is not in {figures}");
        }
        drop(open);
        let figures = ask(address, b"GET /metrics HTTP/1.0\r\n\r\n").await;
        assert!(
            figures.contains("whimbrel_sessions{protocol=\"imap\"} 0"),
            "{figures}"
        );

        let check = async |request: &[u8], expected: &str| {
            let answer = ask(address, request).await;
            assert!(answer.starts_with(expected), "{answer}");
        };
        check(b"GET /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n").await;
        check(b"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 ").await;
        check(b"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 ").await;
        // A request that never ends is cut at its limit.
        assert_eq!(ask(address, &[b'x'; REQUEST_BYTES_MAX + 1]).await, "");
        task.abort();
    }
}
