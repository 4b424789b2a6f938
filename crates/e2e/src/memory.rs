//! How much memory a process holds, as the kernel counts it.

use std::fs;

/// Resident now, in KiB.
#[must_use]
pub fn resident_kib(pid: u32) -> u64 {
    field(pid, "VmRSS:")
}

/// The most that was resident since [`forget_peak`], in KiB.
#[must_use]
pub fn peak_kib(pid: u32) -> u64 {
    field(pid, "VmHWM:")
}

/// Private memory that may be written, touched or not, in KiB: what was allocated, whether used or not.
#[must_use]
pub fn private_kib(pid: u32) -> u64 {
    field(pid, "VmData:")
}

/// Lets the peak start again from what is resident now (proc(5), `clear_refs`).
pub fn forget_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("clear_refs of a process of ours");
}

fn field(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .unwrap_or_else(|error| panic!("process {pid}: {error}"));
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_ascii_whitespace().next());
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no {name} of process {pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_allocation_is_seen() {
        let pid = std::process::id();
        forget_peak(pid);
        let before = peak_kib(pid);
        // Twice as much as is asked for: other tests of this process give back what they had.
        let large = std::hint::black_box(vec![1u8; 128 << 20]);
        assert!(
            peak_kib(pid) >= before + (60 << 10),
            "{before} {}",
            peak_kib(pid)
        );
        let reserved = private_kib(pid);
        let untouched = std::hint::black_box(Vec::<u8>::with_capacity(128 << 20));
        assert!(
            private_kib(pid) >= reserved + (60 << 10),
            "{reserved} {}",
            private_kib(pid)
        );
        drop((large, untouched));
        assert!(resident_kib(pid) > 0);
    }
}
