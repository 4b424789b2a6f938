//! Reading what strace saw, and judging whether each acknowledgement was sent after its bytes were on disk.
//!
//! The rule, for a write whose bytes carry a mark and whose OK a client has received: some file of the data directory was written with
//! the mark, and every file so written before the OK was sent was then synced: by an `fsync` or `fdatasync` that **began after** the
//! write had ended, ended with 0, and ended before the call that sent the OK began. A sync that was under way while the bytes were written
//! may have missed them.
//!
//! Order is that of the lines: strace prints a call in one line only if it saw nothing else between its entry and its exit, and in
//! two lines, `<unfinished ...>` and `<... resumed>`, otherwise.

use std::collections::BTreeMap;

/// What a system call is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write,
    Sync,
    /// Something that gives a file another name; its old descriptors still count.
    Other,
}

/// One system call.
#[derive(Clone, Debug)]
struct Call {
    kind: Kind,
    /// Path of a file, or `TCP:[127.0.0.1:1->127.0.0.1:2]`.
    target: String,
    /// The arguments as printed.
    text: String,
    /// Seconds since 1970 at which it began.
    time: f64,
    /// Line on which it began.
    start: usize,
    /// Line on which it ended; `None` when the trace ends first.
    end: Option<usize>,
    /// Whether it ended well. A call that strace kept from the kernel did not.
    done: bool,
}

/// A trace, read.
#[derive(Debug, Default)]
pub struct Trace {
    calls: Vec<Call>,
}

/// A write whose OK a client has received.
#[derive(Clone, Debug)]
pub struct Acknowledged {
    /// Text that stands in the bytes written. Empty when the write carries none: then some file that was written since must have been synced
    /// after its last write.
    pub mark: String,
    /// How many writes that carry the mark are consequences of it rather than itself, and may be made before or after the OK: the delivery of
    /// what was accepted into the queue.
    pub consequences: usize,
    /// When the client sent it, in seconds since 1970.
    pub since: f64,
    /// The client's port.
    pub port: u16,
    /// When the client had the OK, in seconds since 1970: after the server began to send it.
    pub time: f64,
}

/// Seconds since 1970, by the clock that strace prints.
#[must_use]
pub fn now() -> f64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

/// The arguments of strace that give what [`Trace::read`] understands, without `-o`.
pub const STRACE: &[&str] = &[
    "strace",
    "-f",
    "-yy",
    "-ttt",
    "-s",
    "65536",
    "-e",
    "trace=write,writev,pwrite64,pwritev,sendto,sendmsg,fsync,fdatasync,sync_file_range,msync",
];

impl Trace {
    /// Reads the output of strace.
    #[must_use]
    pub fn read(text: &str) -> Trace {
        let mut trace = Trace::default();
        let mut open: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let Some((thread, time, rest)) = head(line) else {
                continue;
            };
            if rest.starts_with("<... ") {
                if let Some(call) = open
                    .remove(thread)
                    .and_then(|index| trace.calls.get_mut(index))
                {
                    call.end = Some(at);
                    call.done = well(rest);
                    call.text.push_str(rest);
                }
                continue;
            }
            let Some((name, arguments)) = rest.split_once('(') else {
                continue;
            };
            let kind = match name {
                "write" | "writev" | "pwrite64" | "pwritev" | "sendto" | "sendmsg" => Kind::Write,
                "fsync" | "fdatasync" => Kind::Sync,
                _ => Kind::Other,
            };
            let finished = !rest.ends_with("<unfinished ...>");
            if !finished {
                open.insert(thread, trace.calls.len());
            }
            trace.calls.push(Call {
                kind,
                target: target(arguments).to_owned(),
                text: arguments.to_owned(),
                time,
                start: at,
                end: finished.then_some(at),
                done: finished && well(rest),
            });
        }
        trace
    }

    /// Judges one acknowledgement; files count if their path begins with `data`.
    ///
    /// # Errors
    /// What is wrong.
    pub fn judge(&self, acknowledged: &Acknowledged, data: &str) -> Result<(), String> {
        let mark = &acknowledged.mark;
        let sent = self
            .calls
            .iter()
            .rfind(|call| {
                call.kind == Kind::Write
                    && is_client(&call.target, acknowledged.port)
                    && call.time <= acknowledged.time
            })
            .ok_or_else(|| format!("{mark}: nothing was sent to port {}", acknowledged.port))?;
        let ours = |write: &&Call| {
            write.kind == Kind::Write
                && write.target.starts_with(data)
                && if mark.is_empty() {
                    write.time >= acknowledged.since
                } else {
                    write.text.contains(mark.as_str())
                }
        };
        let all: Vec<&Call> = self.calls.iter().filter(ours).collect();
        let (before, after): (Vec<&Call>, Vec<&Call>) =
            all.into_iter().partition(|write| write.start < sent.start);
        let unsynced: Vec<&Call> = before
            .iter()
            .copied()
            .filter(|write| !self.is_synced(write, sent.start))
            .collect();
        let Some(first) = unsynced.first() else {
            return if before.is_empty() {
                Err(format!("{mark}: not written before the OK"))
            } else {
                Ok(())
            };
        };
        // Files that hold no mail are written, too; without a mark they cannot be told apart.
        if mark.is_empty() && self.is_some_file_synced(&before, sent.start) {
            return Ok(());
        }
        // Consequences are the last writes of all. Tables made of the journal later lie in files of their own.
        let later = after
            .iter()
            .filter(|write| before.iter().any(|earlier| earlier.target == write.target))
            .count();
        if !mark.is_empty()
            && unsynced.len() < before.len()
            && unsynced.len() + later <= acknowledged.consequences
        {
            return Ok(());
        }
        Err(format!(
            "{mark}: written to {} and not synced before the OK",
            first.target
        ))
    }

    /// Whether of one of these files every write is synced.
    fn is_some_file_synced(&self, writes: &[&Call], before: usize) -> bool {
        writes.iter().any(|one| {
            writes
                .iter()
                .filter(|other| other.target == one.target)
                .all(|write| self.is_synced(write, before))
        })
    }

    /// Whether a sync that began after this write had ended well before the line.
    fn is_synced(&self, write: &Call, before: usize) -> bool {
        let Some(end) = write.end else { return false };
        self.calls.iter().any(|call| {
            call.kind == Kind::Sync
                && call.target == write.target
                && call.done
                && call.start >= end
                && call.end.is_some_and(|end| end < before)
        })
    }

    /// How many syncs ended well.
    #[must_use]
    pub fn syncs(&self) -> usize {
        self.calls
            .iter()
            .filter(|call| call.kind == Kind::Sync && call.done)
            .count()
    }
}

/// Thread, time and the rest of a line: `4711 1790000000.123456 write(...`
fn head(line: &str) -> Option<(&str, f64, &str)> {
    let (thread, rest) = line.trim_start().split_once(' ')?;
    let (time, rest) = rest.trim_start().split_once(' ')?;
    Some((thread, time.parse().ok()?, rest))
}

/// Whether a finished call ended with 0 or more, and was really made.
fn well(rest: &str) -> bool {
    let Some((_, result)) = rest.rsplit_once(" = ") else {
        return false;
    };
    !result.contains("(INJECTED)")
        && result
            .split_ascii_whitespace()
            .next()
            .is_some_and(|word| !word.starts_with('-') && word != "?")
}

/// What stands in the angle brackets behind the descriptor: `7</data/x>`, `9<TCP:[127.0.0.1:1->127.0.0.1:2]>`.
fn target(arguments: &str) -> &str {
    let digits = arguments.bytes().take_while(u8::is_ascii_digit).count();
    let Some(rest) = arguments
        .get(digits..)
        .and_then(|rest| rest.strip_prefix('<'))
    else {
        return "";
    };
    // The arrow of a connection has an angle bracket of its own.
    let end = rest
        .find("]>")
        .map(|at| at + 1)
        .filter(|_| rest.starts_with("TCP"))
        .or_else(|| rest.find('>'));
    rest.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// Whether a descriptor's target is the connection of the client at this port.
fn is_client(target: &str, port: u16) -> bool {
    target.starts_with("TCP") && target.ends_with(&format!(":{port}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as strace prints them, for a client at port 4000 that had its OK at 105.
    fn check(lines: &[&str], expected: Result<(), &str>) {
        check_marked("mark-1", lines, expected);
    }

    fn check_marked(mark: &str, lines: &[&str], expected: Result<(), &str>) {
        check_all(mark, 0, lines, expected);
    }

    fn check_all(mark: &str, consequences: usize, lines: &[&str], expected: Result<(), &str>) {
        let trace = Trace::read(&lines.join("\n"));
        let acknowledged = Acknowledged {
            mark: mark.to_owned(),
            consequences,
            since: 100.0,
            port: 4000,
            time: 105.0,
        };
        assert_eq!(
            trace.judge(&acknowledged, "/data/"),
            expected.map_err(str::to_owned),
            "{lines:#?}"
        );
    }

    const WRITE: &str = r#"11 100.1 write(7</data/journal>, "..mark-1..", 10) = 10"#;
    const SYNC: &str = "11 100.2 fdatasync(7</data/journal>) = 0";
    const SEND: &str = r#"12 100.9 sendto(9<TCP:[127.0.0.1:24->127.0.0.1:4000]>, "250 ok\r\n", 8, MSG_NOSIGNAL, NULL, 0) = 8"#;

    #[test]
    fn good_traces() {
        check(&[WRITE, SYNC, SEND], Ok(()));
        check(
            &[
                WRITE,
                "11 100.2 fdatasync(7</data/journal> <unfinished ...>",
                r#"12 100.3 write(9<TCP:[127.0.0.1:24->127.0.0.1:4001]>, "for another", 11) = 11"#,
                "11 100.4 <... fdatasync resumed>)       = 0",
                SEND,
            ],
            Ok(()),
        );
        // What another client waits for, and what is written later, is none of ours.
        check(
            &[
                WRITE,
                SYNC,
                r#"11 100.3 write(7</data/journal>, "mark-2", 6) = 6"#,
                SEND,
                WRITE,
            ],
            Ok(()),
        );
        // A later answer on the same connection is not the one.
        check(
            &[
                WRITE,
                SYNC,
                SEND,
                r#"12 106.0 write(9<TCP:[127.0.0.1:24->127.0.0.1:4000]>, "221", 3) = 3"#,
            ],
            Ok(()),
        );
    }

    #[test]
    fn bad_traces() {
        let unsynced = Err("mark-1: written to /data/journal and not synced before the OK");
        check(&[WRITE, SEND], unsynced);
        check(&[WRITE, SEND, SYNC], unsynced);
        check(&[SYNC, WRITE, SEND], unsynced);
        check(
            &[WRITE, "11 100.2 fdatasync(8</data/other>) = 0", SEND],
            unsynced,
        );
        check(
            &[
                WRITE,
                "11 100.2 fdatasync(7</data/journal>) = -1 EIO (Input/output error)",
                SEND,
            ],
            unsynced,
        );
        check(
            &[
                WRITE,
                "11 100.2 fdatasync(7</data/journal>) = 0 (INJECTED)",
                SEND,
            ],
            unsynced,
        );
        // Begun before the bytes were written.
        check(
            &[
                "13 100.0 fdatasync(7</data/journal> <unfinished ...>",
                WRITE,
                "13 100.3 <... fdatasync resumed>) = 0",
                SEND,
            ],
            unsynced,
        );
        // Not ended when the OK went out.
        check(
            &[
                WRITE,
                "13 100.2 fdatasync(7</data/journal> <unfinished ...>",
                SEND,
                "13 101.0 <... fdatasync resumed>) = 0",
            ],
            unsynced,
        );
        // One of two files synced.
        check(
            &[
                WRITE,
                r#"11 100.1 pwrite64(8</data/blob>, "mark-1", 6, 0) = 6"#,
                SYNC,
                SEND,
            ],
            Err("mark-1: written to /data/blob and not synced before the OK"),
        );
        check(&[SYNC, SEND], Err("mark-1: not written before the OK"));
        check(
            &[r#"11 100.1 write(7</elsewhere>, "mark-1", 6) = 6"#, SEND],
            Err("mark-1: not written before the OK"),
        );
        check(&[WRITE, SYNC], Err("mark-1: nothing was sent to port 4000"));
        check(
            &[
                r#"11 100.1 write(7</data/journal>, "mark-1", 6 <unfinished ...>"#,
                SEND,
                "11 101.0 <... write resumed>) = 6",
            ],
            unsynced,
        );
    }

    #[test]
    fn without_a_mark() {
        let old = r#"11 99.1 write(7</data/journal>, "old", 3) = 3"#;
        check_marked("", &[old, WRITE, SYNC, SEND], Ok(()));
        check_marked(
            "",
            &[WRITE, SYNC, WRITE, SEND],
            Err(": written to /data/journal and not synced before the OK"),
        );
        check_marked("", &[old, SYNC, SEND], Err(": not written before the OK"));
    }

    #[test]
    fn consequences_are_told_apart() {
        let unsynced = Err("mark-1: written to /data/journal and not synced before the OK");
        // Accepted, synced, delivered before or after the OK.
        check_all("mark-1", 1, &[WRITE, SYNC, WRITE, SEND, SYNC], Ok(()));
        check_all("mark-1", 1, &[WRITE, SYNC, SEND, WRITE, SYNC], Ok(()));
        // The body synced, the acceptance not; the delivery comes later.
        check_all(
            "mark-1",
            1,
            &[WRITE, SYNC, WRITE, SEND, SYNC, WRITE, SYNC],
            unsynced,
        );
        check_all("mark-1", 1, &[WRITE, SEND, SYNC, WRITE, SYNC], unsynced);
        check_all("mark-1", 0, &[WRITE, SYNC, WRITE, SEND, SYNC], unsynced);
    }
}
