//! The client machine, for tests, the simulator and the benchmark.

mod types;

pub use types::*;

/// One connection's client.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
}

impl Client {
    /// A client on a fresh connection; it waits for the greeting.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Client { config }
    }

    /// Next output; `None`: nothing before the next call.
    pub fn poll(&mut self) -> Option<ClientOutput> {
        None
    }

    /// Bytes from the server, in any split.
    pub fn input(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }

    /// The connection ended.
    pub fn on_eof(&mut self) {}

    /// Answer to [`ClientOutput::StartTls`].
    pub fn tls_started(&mut self) {}

    /// Begins a message. Only after [`ClientOutput::Ready`].
    pub fn send(&mut self, message: Outgoing) {
        let _ = message;
    }

    /// Part of the body, after [`ClientOutput::WantBody`]; dots are stuffed here.
    pub fn body(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }

    /// The body is complete.
    pub fn body_end(&mut self) {}

    /// Ends the session. Only after [`ClientOutput::Ready`].
    pub fn quit(&mut self) {}

    /// How it behaves.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }
}
