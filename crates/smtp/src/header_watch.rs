//! Counts Received fields and finds Delivered-To values in the header of a message that streams by.

/// See the module.
#[derive(Debug, Clone)]
pub struct HeaderWatch {
    received: usize,
    delivered_to: Vec<String>,
}

impl HeaderWatch {
    /// Looks at no more than the first `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        let _ = bytes_max;
        HeaderWatch {
            received: 0,
            delivered_to: Vec::new(),
        }
    }

    /// The next bytes of the message.
    pub fn feed(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }

    /// Received fields so far.
    #[must_use]
    pub fn received(&self) -> usize {
        self.received
    }

    /// Values of Delivered-To fields so far, trimmed, at most 100.
    #[must_use]
    pub fn delivered_to(&self) -> &[String] {
        &self.delivered_to
    }
}
