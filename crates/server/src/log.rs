//! The log: one line an event on standard error, as text or JSON.
//!
//! What must never reach it: passwords, message content. Names given by clients are cut and cleaned with [`printable`].

use tracing_subscriber::{filter::LevelFilter, fmt, prelude::*};

use crate::config::{LogFormat, LogLevel, LogSection};

/// Longest piece of a client's text in a log line.
const CLIENT_TEXT_CHARS_MAX: usize = 120;

/// Starts logging for the whole process; a second call changes nothing.
pub fn start(config: &LogSection) {
    let level = match config.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // Libraries below us print what they like at debug and trace, frames included; the log is ours alone below warnings.
    let ours = tracing_subscriber::filter::filter_fn(move |meta| {
        meta.target().starts_with("whimbrel") || *meta.level() <= tracing::Level::WARN
    });
    let registry = tracing_subscriber::registry().with(level);
    let layer = fmt::layer().with_writer(std::io::stderr).with_target(false);
    let _ = match config.format {
        LogFormat::Text => registry
            .with(layer.with_ansi(false).with_filter(ours))
            .try_init(),
        LogFormat::Json => registry
            .with(layer.json().flatten_event(true).with_filter(ours))
            .try_init(),
    };
}

/// A client's text as it may stand in a log line.
pub fn printable(text: &str) -> String {
    whimbrel_service::printable::printable(text, CLIENT_TEXT_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_text_cannot_forge_lines() {
        let check = |input: &str, expected: &str| assert_eq!(printable(input), expected);
        check("anne@example.org", "anne@example.org");
        check("a\r\nINFO login", "a\u{fffd}\u{fffd}INFO login");
        check("\u{1b}[2J", "\u{fffd}[2J");
        check("a\u{202e}b\u{2066}c", "a\u{fffd}b\u{fffd}c");
        check(&"x".repeat(1_000), &("x".repeat(120) + "…"));
        check(&"ü".repeat(120), &"ü".repeat(120));
    }
}
