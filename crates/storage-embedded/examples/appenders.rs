//! How many commits a second the store takes, beside what the disk can do: `cargo run --release --example appenders [DIR]`.
//!
//! Each appender waits for its commit before it sends the next. "mail" uploads a blob of 10 KB before each commit, as a
//! delivery does. Disks vary from minute to minute: the rate of bare syncs is measured before and after.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use whimbrel_storage::{
    BlobReader, BlobStore, BlobWriter, Commit, Hash, LogEntry, LogStore, Mutation, Origin,
    PartitionId, UploadId,
};
use whimbrel_storage_embedded::{Config, Embedded};

const SPAN: Duration = Duration::from_secs(3);

/// Appends of 4 KiB, each synced, a second.
fn bare_syncs(directory: &Path) -> f64 {
    let path = directory.join("bare");
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .expect("opens");
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < Duration::from_secs(1) {
        file.write_all(&[7; 4096])
            .and_then(|()| file.sync_data())
            .expect("syncs");
        count += 1;
    }
    let rate = f64::from(count) / start.elapsed().as_secs_f64();
    std::fs::remove_file(path).expect("removes");
    rate
}

struct Appender {
    engine: Embedded,
    number: u64,
    next: u64,
    hash: Hash,
    body: Option<Bytes>,
}

impl Appender {
    async fn once(&mut self) {
        let mut mutations = vec![Mutation::Put {
            key: self.next.to_be_bytes().to_vec().into(),
            value: Bytes::from_static(&[1; 200]),
        }];
        if let Some(body) = &self.body {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&self.number.to_be_bytes());
            id[8..].copy_from_slice(&self.next.to_be_bytes());
            let mut writer = self.engine.create(UploadId(id)).await.expect("begins");
            writer.write(body.clone()).await.expect("writes");
            let blob = writer.finish().await.expect("finishes").name;
            mutations.push(Mutation::Reference {
                blob,
                holder: self.next.to_be_bytes().to_vec().into(),
            });
        }
        let mut bytes = vec![0; 500];
        bytes[..8].copy_from_slice(&self.next.to_be_bytes());
        let entry = LogEntry {
            origin: Origin(1),
            first: self.next,
            count: 1,
            previous: self.hash,
            bytes: bytes.into(),
        };
        self.hash = entry.hash();
        self.next += 1;
        let commit = Commit {
            entry: Some(entry),
            mutations,
            ..Commit::new(PartitionId(self.number))
        };
        self.engine.commit(commit).await.expect("is taken");
    }
}

async fn run(directory: &Path, what: &str, appenders: u64, body: Option<Bytes>) {
    let path = directory.join(format!("{what}-{appenders}"));
    let engine = Embedded::open(Config::new(&path)).expect("opens");
    let before = bare_syncs(directory);
    let start = Instant::now();
    let tasks: Vec<_> = (0..appenders)
        .map(|number| {
            let mut appender = Appender {
                engine: engine.clone(),
                number,
                next: 1,
                hash: Hash::ZERO,
                body: body.clone(),
            };
            tokio::spawn(async move {
                let mut slowest = Duration::ZERO;
                while start.elapsed() < SPAN {
                    let began = Instant::now();
                    appender.once().await;
                    slowest = slowest.max(began.elapsed());
                }
                slowest
            })
        })
        .collect();
    let mut slowest = Duration::ZERO;
    for task in tasks {
        slowest = slowest.max(task.await.expect("runs"));
    }
    let seconds = start.elapsed().as_secs_f64();
    let totals = engine.totals();
    let after = bare_syncs(directory);
    println!(
        "{what:>6} {appenders:>3} appenders: {:>8.0} commits/s {:>6.0} syncs/s {:>6.1} commits/sync, slowest {:>6.1} ms; bare {before:.0} and {after:.0} syncs/s; peak memory {} MiB",
        totals.commits as f64 / seconds,
        totals.groups as f64 / seconds,
        totals.commits as f64 / totals.groups as f64,
        slowest.as_secs_f64() * 1000.0,
        peak_memory_mib(),
    );
    engine.close().await;
    std::fs::remove_dir_all(path).expect("removes");
}

/// Half text, half an attachment in base64, as letters are.
fn letter(bytes: usize) -> Bytes {
    let mut letter = Vec::with_capacity(bytes);
    let mut random = 1u64;
    let mut next = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize
    };
    let words = [
        "curlew", "of", "the", "ocean", "and", "wind", "regards", "tomorrow", "in", "letter",
        "storm", "a", "shore",
    ];
    while letter.len() < bytes / 2 {
        letter.extend(words[next() % words.len()].bytes());
        letter.extend(if next() % 11 == 0 { "\r\n" } else { " " }.bytes());
    }
    while letter.len() < bytes {
        letter
            .push(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[next() % 64]);
    }
    letter.truncate(bytes);
    letter.into()
}

fn disk_bytes(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path)
        .expect("lists")
        .map(|entry| entry.expect("lists"));
    entries
        .map(|entry| {
            let metadata = entry.metadata().expect("looks");
            if metadata.is_dir() {
                disk_bytes(&entry.path())
            } else {
                metadata.len()
            }
        })
        .sum()
}

/// CPU time of this process, all threads.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    // User and system time in ticks of 10 ms, the 14th and 15th field.
    fields
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

/// One large blob in and out, by size of chunks.
async fn stream(directory: &Path, chunk_bytes: usize, blobs_compressed: bool) {
    let path = directory.join("stream");
    let engine = Embedded::open(Config {
        chunk_bytes,
        blobs_compressed,
        ..Config::new(&path)
    })
    .expect("opens");
    let piece = letter(1 << 20);
    let pieces = 256;
    let cpu = cpu_seconds();
    let start = Instant::now();
    let mut writer = engine.create(UploadId([9; 16])).await.expect("begins");
    for _ in 0..pieces {
        let mut piece = piece.clone();
        while !piece.is_empty() {
            // As it comes from a socket.
            writer
                .write(piece.split_to(piece.len().min(16 << 10)))
                .await
                .expect("writes");
        }
    }
    let name = writer.finish().await.expect("finishes").name;
    engine
        .commit(Commit {
            mutations: vec![Mutation::Reference {
                blob: name,
                holder: "h".into(),
            }],
            ..Commit::new(PartitionId(1))
        })
        .await
        .expect("is taken");
    let write = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut reader = engine.read(name, 0, u64::MAX);
    let mut read_bytes = 0;
    while let Some(chunk) = reader.next().await.expect("reads") {
        read_bytes += chunk.len();
    }
    let read = start.elapsed().as_secs_f64();
    let mib = (read_bytes >> 20) as f64;
    drop(reader);
    engine.close().await;
    println!(
        "stream chunks of {:>4} KiB{}: in {:>5.0} MiB/s, out {:>5.0} MiB/s, CPU {:.2} s, {} MiB on disk without journals; peak memory {} MiB",
        chunk_bytes >> 10,
        if blobs_compressed { " LZ4" } else { "" },
        mib / write,
        mib / read,
        cpu_seconds() - cpu,
        disk_bytes(&path.join("lsm/keyspaces")) >> 20,
        peak_memory_mib()
    );
    std::fs::remove_dir_all(path).expect("removes");
}

fn peak_memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0)
        / 1024
}

fn main() {
    let directory = std::env::args_os()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join("whimbrel-appenders");
    std::fs::create_dir_all(&directory).expect("makes the directory");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_time()
        .build()
        .expect("starts");
    runtime.block_on(async {
        for (what, body) in [
            ("batch", None),
            ("mail", Some(Bytes::from(vec![0x61; 10_000]))),
        ] {
            for appenders in [1, 20, 64] {
                run(&directory, what, appenders, body.clone()).await;
            }
        }
        for chunk_kib in [32, 64, 128, 256] {
            stream(&directory, chunk_kib << 10, false).await;
            stream(&directory, chunk_kib << 10, true).await;
        }
    });
    std::fs::remove_dir_all(directory).expect("removes the directory");
}
