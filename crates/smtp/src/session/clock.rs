//! How long the client has kept the machine waiting. Time in which the machine does not want input (a question is open, chunks are
//! unacknowledged) is the server's own and is not counted.

use core::time::Duration;

use crate::{Limits, Time};

/// What is being waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The server's own work, or nothing any more.
    Not,
    /// A command line (or the end of a handshake) of which nothing has come.
    Command,
    /// The rest of a command line.
    Line,
    /// The message.
    Message,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Clock {
    pub(super) now: Time,
    command: Duration,
    line: Duration,
    block: Duration,
    message: Duration,
    message_bytes: u64,
}

impl Clock {
    pub(super) fn new(now: Time) -> Self {
        let zero = Duration::ZERO;
        Clock {
            now,
            command: zero,
            line: zero,
            block: zero,
            message: zero,
            message_bytes: 0,
        }
    }

    /// Time has passed, during which the machine was `waiting`.
    pub(super) fn advance(&mut self, now: Time, waiting: Waiting) {
        let passed = now.saturating_sub(self.now);
        self.now = self.now.max(now);
        match waiting {
            Waiting::Not => {}
            Waiting::Command => self.command += passed,
            Waiting::Line => {
                self.command += passed;
                self.line += passed;
            }
            Waiting::Message => {
                self.block += passed;
                self.message += passed;
            }
        }
    }

    /// A command line is complete, or the session begins again.
    pub(super) fn command_done(&mut self) {
        self.command = Duration::ZERO;
        self.line = Duration::ZERO;
    }

    /// A message, or its next chunk after a command, begins.
    pub(super) fn message_begins(&mut self, first: bool) {
        self.block = Duration::ZERO;
        if first {
            self.message = Duration::ZERO;
            self.message_bytes = 0;
        }
    }

    /// Bytes of the message have come.
    pub(super) fn message_bytes(&mut self, count: usize) {
        self.block = Duration::ZERO;
        self.message_bytes = self.message_bytes.saturating_add(count as u64);
    }

    /// How much longer may be waited.
    pub(super) fn left(&self, waiting: Waiting, limits: &Limits) -> Option<Duration> {
        let command = limits.command_wait_max.saturating_sub(self.command);
        let block = limits.data_block_wait_max.saturating_sub(self.block);
        match (waiting, u64::from(limits.data_rate_bytes_per_second_min)) {
            (Waiting::Not, _) => None,
            (Waiting::Command, _) => Some(command),
            (Waiting::Line, _) => {
                Some(command.min(limits.command_line_wait_max.saturating_sub(self.line)))
            }
            (Waiting::Message, 0) => Some(block),
            (Waiting::Message, rate) => {
                let earned = Duration::from_secs(self.message_bytes / rate);
                Some(block.min((limits.data_wait_max + earned).saturating_sub(self.message)))
            }
        }
    }
}
