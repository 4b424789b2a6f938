//! Counts the syncs of processes by strace: it slows them, so nothing is timed meanwhile.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use crate::{
    error::{Result, Trouble, io_at, wrong},
    process::Tree,
};

/// Calls that make data durable.
const CALLS: &str = "fsync,fdatasync,sync_file_range,syncfs,msync";

/// A strace that is attached.
pub struct Counter {
    child: Child,
    report: tempfile::NamedTempFile,
}

impl Counter {
    /// Attaches to all processes of a tree, and to those they fork from now on.
    pub fn attach(tree: Tree) -> Result<Counter> {
        let report = tempfile::NamedTempFile::new().map_err(io_at("a temporary file"))?;
        let pids = tree.pids();
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-U", "name,calls", "-e"]);
        command.arg(format!("trace={CALLS}"));
        command.arg("-o").arg(report.path());
        for pid in &pids {
            command.arg("-p").arg(pid.to_string());
        }
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(io_at("strace"))?;
        let Some(stderr) = child.stderr.take() else {
            return wrong("strace without standard error");
        };
        let mut lines = BufReader::new(stderr).lines();
        let mut attached = 0;
        while attached < pids.len() {
            match lines.next() {
                Some(Ok(line)) if line.contains("attached") => attached += 1,
                Some(Ok(line)) if line.contains("attach: ") => {
                    // It may have ended meanwhile.
                    attached += 1;
                }
                Some(Ok(_)) => {}
                _ => return wrong("strace did not attach"),
            }
        }
        // Else it stops at a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Counter { child, report })
    }

    /// Detaches; the syncs meanwhile.
    pub fn detach(mut self) -> Result<u64> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT)
            .map_err(|error| Trouble::Wrong(format!("strace: {error}")))?;
        self.child.wait().map_err(io_at("strace"))?;
        let text =
            std::fs::read_to_string(self.report.path()).map_err(io_at("report of strace"))?;
        Ok(sum(&text))
    }
}

fn sum(report: &str) -> u64 {
    report
        .lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let name = words.next()?;
            let calls = words.next()?.parse::<u64>().ok()?;
            CALLS.split(',').any(|call| call == name).then_some(calls)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_summed() {
        let report = "syscall              calls\n---------------- ---------\nfdatasync               31\nfsync                    2\n---------------- ---------\ntotal                   33\n";
        assert_eq!(sum(report), 33);
        assert_eq!(sum(""), 0);
    }
}
