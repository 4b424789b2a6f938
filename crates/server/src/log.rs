//! The log: one line for each event on standard error, as text or JSON.
//!
//! Passwords and message content must never reach it. Names given by clients are cut and cleaned with [`printable`].

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tracing_subscriber::{filter::LevelFilter, fmt, prelude::*};

use crate::config::{LogFormat, LogLevel, LogSection};

/// Longest piece of a client's text in a log line.
const CLIENT_TEXT_CHARS_MAX: usize = 120;
/// Longest line for people at a terminal: names of a folder here and elsewhere, and a server's reason.
const LINE_CHARS_MAX: usize = 3000;

/// Lines of one kind in [`WINDOW`]: a full disk, or strangers, cause thousands of equal lines, which hide all others and fill the rest of the disk.
const LINES_MAX: u32 = 60;
/// See [`LINES_MAX`].
const WINDOW: Duration = Duration::from_secs(60);
/// Kinds that are counted separately; kinds are words of the program, and few.
const KINDS_MAX: usize = 256;

/// How many lines of each kind were written.
#[derive(Debug, Default)]
struct Kinds(BTreeMap<String, Kind>);

#[derive(Debug)]
struct Kind {
    since: Instant,
    lines: u32,
    left_out: u64,
}

impl Kinds {
    /// Whether one more line may be written; if so, how many were left out before it.
    fn may_write(&mut self, now: Instant, kind: &str) -> Option<u64> {
        let kind = match self.0.len() >= KINDS_MAX && !self.0.contains_key(kind) {
            true => "others",
            false => kind,
        };
        let new = Kind {
            since: now,
            lines: 0,
            left_out: 0,
        };
        let of = self.0.entry(kind.to_owned()).or_insert(new);
        if now.saturating_duration_since(of.since) >= WINDOW {
            (of.since, of.lines) = (now, 0);
        }
        if of.lines >= LINES_MAX {
            of.left_out += 1;
            return None;
        }
        of.lines += 1;
        Some(std::mem::take(&mut of.left_out))
    }
}

/// Whether to write a line of a frequent kind. Logs how many were left out before.
pub fn may_write(kind: &str) -> bool {
    static KINDS: Mutex<Kinds> = Mutex::new(Kinds(BTreeMap::new()));
    let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    let written = kinds.may_write(Instant::now(), kind);
    drop(kinds);
    if let Some(lines) = written.filter(|lines| *lines > 0) {
        tracing::warn!(kind, lines, "lines of this kind were left out of the log");
    }
    written.is_some()
}

/// Starts logging for the whole process; a second call changes nothing.
pub fn start(config: &LogSection) {
    let level = match config.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // Libraries print anything at debug and trace, frames included; below warnings the log has only our own lines.
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

/// A text for a terminal, parts of which others may have written: it keeps its lines, and nothing in it controls the terminal or hides.
pub fn shown(text: &str) -> String {
    let lines = text
        .split('\n')
        .map(|line| whimbrel_service::printable::printable(line, LINE_CHARS_MAX));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full disk caused thousands of lines a minute.
    #[test]
    fn lines_of_a_kind_are_bounded() {
        let (mut kinds, now) = (Kinds::default(), Instant::now());
        for _ in 0..LINES_MAX {
            assert_eq!(kinds.may_write(now, "full"), Some(0));
        }
        assert_eq!(kinds.may_write(now, "full"), None);
        assert_eq!(kinds.may_write(now, "full"), None);
        assert_eq!(kinds.may_write(now, "other"), Some(0));
        let later = now + WINDOW;
        assert_eq!(kinds.may_write(later, "full"), Some(2));
        assert_eq!(kinds.may_write(later, "full"), Some(0));
        for kind in 0..2 * KINDS_MAX {
            kinds.may_write(later, &kind.to_string());
        }
        assert!(kinds.0.len() <= KINDS_MAX + 1);
    }

    #[test]
    fn what_is_shown_drives_no_terminal() {
        let check = |input: &str, expected: &str| assert_eq!(shown(input), expected);
        check("one\ntwo", "one\ntwo");
        check(
            "a\rb\u{1b}]0;x\u{7}\nc\u{202e}d",
            "a\u{fffd}b\u{fffd}]0;x\u{fffd}\nc\u{fffd}d",
        );
        check(&"x".repeat(5_000), &("x".repeat(3_000) + "…"));
    }

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
