//! What the kernel knows about a process and its descendants: CPU, memory, bytes for the disk.

use std::{collections::BTreeSet, fs};

/// Ticks of a second in /proc/PID/stat: on Linux 100 for every program, whatever the kernel's own.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process and all that descend from it.
#[derive(Clone, Copy, Debug)]
pub struct Tree(u32);

/// Fields of /proc/PID/stat behind the name in its parentheses, the state being number 0.
fn stat(pid: u32) -> Option<Vec<u64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(
        fields
            .split_ascii_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect(),
    )
}

/// CPU of a process and of its children that have ended, in seconds.
fn cpu(pid: u32) -> f64 {
    // utime, stime, cutime, cstime.
    stat(pid).map_or(0, |fields| fields.iter().skip(11).take(4).sum()) as f64 / TICKS_PER_SECOND
}

/// A number behind a name in a file of /proc.
fn field(pid: u32, file: &str, name: &str) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/{file}"))
        .ok()
        .and_then(|text| {
            text.lines()
                .find_map(|line| line.strip_prefix(name))?
                .split_ascii_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or(0)
}

impl Tree {
    /// Of a process.
    #[must_use]
    pub fn new(pid: u32) -> Tree {
        Tree(pid)
    }

    /// All its processes that live now.
    #[must_use]
    pub fn pids(self) -> Vec<u32> {
        let mut parents: Vec<(u32, u32)> = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if let Some(parent) = stat(pid).and_then(|fields| fields.get(1).copied()) {
                parents.push((u32::try_from(parent).unwrap_or(0), pid));
            }
        }
        let mut found = BTreeSet::from([self.0]);
        // Trees of servers are two or three deep.
        loop {
            let before = found.len();
            for (parent, pid) in &parents {
                if found.contains(parent) {
                    found.insert(*pid);
                }
            }
            if found.len() == before {
                return found.into_iter().collect();
            }
        }
    }

    fn sum(self, of: impl Fn(u32) -> u64) -> u64 {
        self.pids().into_iter().map(of).sum()
    }

    /// User and system time so far, in seconds. What ended counts with who waited for it.
    #[must_use]
    pub fn cpu_seconds(self) -> f64 {
        self.pids().into_iter().map(cpu).sum()
    }

    /// Bytes it caused to be written to disks so far.
    #[must_use]
    pub fn written_bytes(self) -> u64 {
        self.sum(|pid| field(pid, "io", "write_bytes:"))
    }

    /// Proportional set size in KiB: pages shared by several processes count once, and those shared with others in part.
    #[must_use]
    pub fn pss_kib(self) -> u64 {
        self.sum(|pid| field(pid, "smaps_rollup", "Pss:"))
    }

    /// Proportional set size without files, in KiB: heaps and stacks.
    #[must_use]
    pub fn pss_anonymous_kib(self) -> u64 {
        self.sum(|pid| field(pid, "smaps_rollup", "Pss_Anon:"))
    }

    /// The sum of the resident sets, in KiB.
    #[must_use]
    pub fn resident_kib(self) -> u64 {
        self.sum(|pid| field(pid, "status", "VmRSS:"))
    }

    /// The sum of the greatest resident sets since [`Tree::forget_peak`], in KiB.
    #[must_use]
    pub fn peak_kib(self) -> u64 {
        self.sum(|pid| field(pid, "status", "VmHWM:"))
    }

    /// Lets the peaks begin again from now; `false` where that is not allowed.
    #[must_use]
    pub fn forget_peak(self) -> bool {
        self.pids()
            .into_iter()
            .all(|pid| fs::write(format!("/proc/{pid}/clear_refs"), "5").is_ok())
    }

    /// How many processes.
    #[must_use]
    pub fn count(self) -> usize {
        self.pids().len()
    }
}

/// CPU of this process, in seconds.
#[must_use]
pub fn own_cpu_seconds() -> f64 {
    // Children of this one are servers: not its own.
    stat(std::process::id()).map_or(0, |fields| fields.iter().skip(11).take(2).sum()) as f64
        / TICKS_PER_SECOND
}

/// Whose connection on loopback this is: which of these processes has the end with this port.
#[must_use]
pub fn owner_of_port(port: u16, pids: &[u32]) -> Option<usize> {
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let address = format!("0100007F:{port:04X}");
    // Number, own address, other address, state, and so on; the inode is the tenth.
    let inode = table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let own = fields.nth(1)?;
        let state = fields.nth(1)?;
        (own == address && state != "0A").then(|| fields.nth(5))?
    })?;
    let socket = format!("socket:[{inode}]");
    pids.iter().position(|pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|file| file.to_str() == Some(&socket))
    })
}

/// CPU so far of this process's threads whose names begin so, in seconds. Those that have ended are not seen.
#[must_use]
pub fn threads_cpu_seconds(names: &str) -> f64 {
    let mut nanos = 0;
    for task in fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
    {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if read("comm").starts_with(names) {
            let run = read("schedstat");
            let run = run.split(' ').next().and_then(|run| run.parse().ok());
            nanos += run.unwrap_or(0u64);
        }
    }
    nanos as f64 / 1e9
}

/// The machine: cores, model, kernel, memory.
#[must_use]
pub fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let memory = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            text.lines()
                .find_map(|line| line.strip_prefix("MemTotal:"))?
                .split_ascii_whitespace()
                .next()?
                .parse::<u64>()
                .ok()
        })
        .unwrap_or(0)
        / (1 << 20);
    format!(
        "{cores} cores, {model}, {memory} GiB, Linux {}",
        kernel.trim()
    )
}

/// How busy others keep the machine: processes that run or want to, over the last minute.
#[must_use]
pub fn load() -> f64 {
    fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_uses_is_seen() {
        let own = Tree::new(std::process::id());
        assert!(own.pids().contains(&std::process::id()));
        let before = own.cpu_seconds();
        let mut sum = 0u64;
        while own.cpu_seconds() < before + 0.05 {
            for number in 0..1_000_000u64 {
                sum = std::hint::black_box(sum ^ number);
            }
        }
        assert!(own_cpu_seconds() >= 0.05);
        let resident = own.resident_kib();
        // Twice as much as is asked for: other tests of this process give back what they had.
        let large = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(own.resident_kib() > resident + 30_000);
        assert!(own.pss_anonymous_kib() > 30_000 && own.pss_kib() > 30_000);
        drop(large);
    }

    #[test]
    fn connections_have_owners() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = near.local_addr().unwrap().port();
        let own = std::process::id();
        assert_eq!(owner_of_port(port, &[1, own]), Some(1));
        assert_eq!(owner_of_port(port, &[]), None);
    }

    #[test]
    fn threads_are_told_apart_by_their_names() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let spin = move || {
            let mut sum = 0u64;
            while threads_cpu_seconds("spinner-") < 0.02 {
                sum = std::hint::black_box(sum + 1);
            }
            let _ = receiver.recv();
        };
        let named = std::thread::Builder::new().name("spinner-1".to_owned());
        let thread = named.spawn(spin).unwrap();
        while threads_cpu_seconds("spinner-") < 0.02 {
            std::thread::yield_now();
        }
        assert_eq!(threads_cpu_seconds("spinner-2"), 0.0);
        drop(sender);
        thread.join().unwrap();
    }

    #[test]
    fn children_are_of_the_tree() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert!(Tree::new(std::process::id()).pids().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
