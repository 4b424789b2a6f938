//! Whatever is read from a disk or from another node: batches, operations, rows, the queue, the engine's own values, seals and journals.
//! The first byte chooses which.

use std::{path::PathBuf, sync::OnceLock};

use whimbrel_directory::{Directory, op};
use whimbrel_storage::BlobName;

/// Any input.
pub fn run(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else {
        return;
    };
    match which % 13 {
        0 => whimbrel_mailbox::fuzz::batch(data),
        1 | 2 => whimbrel_mailbox::fuzz::operations(data),
        3 | 4 => whimbrel_mailbox::fuzz::rows(data),
        5 => directory(data),
        6 => whimbrel_service::fuzz::content(data),
        7 => whimbrel_service::fuzz::queue_entry(data),
        8 => whimbrel_service::fuzz::position(data),
        9 => whimbrel_storage_embedded::fuzz::values(data),
        10 => whimbrel_storage_embedded::fuzz::journals(own_directory(), data),
        12 => {
            whimbrel_replication::fuzz::stream(data);
            whimbrel_replication::fuzz::peer(data);
        }
        _ => {
            if let Some(name) = BlobName::from_bytes(data) {
                assert_eq!(name.to_bytes(), data);
            }
        }
    }
}

/// Operations of the directory, and its rows: a key and a value, the key's length before them.
fn directory(data: &[u8]) {
    if let Ok(ops) = op::decode(data) {
        assert_eq!(op::decode(&op::encode(&ops)), Ok(ops));
    }
    let Some((&length, rest)) = data.split_first() else {
        return;
    };
    if let Some((key, value)) = rest.split_at_checked(usize::from(length)) {
        let _ = Directory::default().load(key, value);
    }
}

/// A directory of this process, in memory where there is such a place.
fn own_directory() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() {
            memory
        } else {
            std::env::temp_dir()
        };
        let directory = base.join(format!("whimbrel-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory of our own");
        directory
    })
}
