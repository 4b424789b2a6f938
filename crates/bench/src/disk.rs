//! How quickly the disk under a directory syncs now: on virtual machines this changes tenfold within minutes.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use crate::error::{Result, io_at};

/// For how long.
const FOR: Duration = Duration::from_millis(1_000);

/// A block of a usual file system.
const BLOCK: [u8; 4096] = [0x5a; 4096];

/// Appends of 4 KiB with an fdatasync each, a second.
pub fn syncs_per_second(directory: &Path) -> Result<f64> {
    let mut file = tempfile::tempfile_in(directory).map_err(io_at(directory.display()))?;
    let started = Instant::now();
    let mut count = 0u32;
    while started.elapsed() < FOR {
        append(&mut file)?;
        count += 1;
    }
    Ok(f64::from(count) / started.elapsed().as_secs_f64())
}

fn append(file: &mut File) -> Result<()> {
    file.write_all(&BLOCK)
        .and_then(|()| file.sync_data())
        .map_err(io_at("append and sync"))
}
