//! Who this node is: `DATA/node.toml`, and the lock that keeps a second process out of the data directory.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::tls::write_private;

/// What the data directory is laid out by. A directory of another format is refused.
const FORMAT: u32 = 1;

/// Why the data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The system refuses.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Another process has it.
    #[error("{} is in use by another process{}", directory.display(), pid(holder))]
    Locked {
        /// The data directory.
        directory: PathBuf,
        /// What the holder wrote into the lock file.
        holder: String,
    },
    /// `node.toml` is not ours.
    #[error("{}: {cause}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
}

fn pid(holder: &str) -> String {
    if holder.is_empty() {
        String::new()
    } else {
        format!(" (process {holder})")
    }
}

/// The node's identity. It lives as long as its disk: a copied or restored directory must get a new incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Layout of the data directory.
    pub format: u32,
    /// Random; names this node's logs. Hexadecimal in the file, because TOML numbers have a sign.
    #[serde(with = "hexadecimal")]
    pub incarnation: u64,
    /// The slot of this node's UID claims, 0 to 63.
    pub slot: u8,
    /// Where the node stands.
    pub region: String,
}

mod hexadecimal {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{value:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}

/// A data directory that belongs to this process until it is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    identity: Identity,
    /// The lock goes with the file handle, so it cannot outlive the process.
    _lock: fs::File,
}

impl DataDir {
    /// Creates the directory if need be, locks it, and reads or makes the node's identity.
    pub fn open(path: &Path) -> Result<Self, NodeError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |cause| NodeError::Io { path, cause }
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(io(path))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(io(path))?;
        let lock = lock(path)?;
        let file = path.join("node.toml");
        let identity = match fs::read_to_string(&file) {
            Ok(text) => read_identity(&file, &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let identity = Identity {
                    format: FORMAT,
                    incarnation: random_u64(),
                    slot: 0,
                    region: "local".to_owned(),
                };
                let text = toml::to_string(&identity).map_err(|error| NodeError::Identity {
                    path: file.clone(),
                    cause: error.to_string(),
                })?;
                write_private(&file, text.as_bytes()).map_err(io(&file))?;
                identity
            }
            Err(cause) => return Err(NodeError::Io { path: file, cause }),
        };
        Ok(DataDir {
            path: path.to_owned(),
            identity,
            _lock: lock,
        })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The node's identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

fn lock(directory: &Path) -> Result<fs::File, NodeError> {
    let path = directory.join("lock");
    let io = |cause| NodeError::Io {
        path: path.clone(),
        cause,
    };
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            const HOLDER_BYTES_MAX: u64 = 20;
            let mut holder = String::new();
            // Who holds it is only a hint.
            let _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut holder);
            let holder = holder.trim().to_owned();
            return Err(NodeError::Locked {
                directory: directory.to_owned(),
                holder,
            });
        }
        Err(fs::TryLockError::Error(cause)) => return Err(io(cause)),
    }
    file.set_len(0).map_err(io)?;
    writeln!(file, "{}", std::process::id()).map_err(io)?;
    Ok(file)
}

fn read_identity(path: &Path, text: &str) -> Result<Identity, NodeError> {
    let wrong = |cause: String| NodeError::Identity {
        path: path.to_owned(),
        cause,
    };
    let identity: Identity =
        toml::from_str(text).map_err(|error| wrong(error.message().to_owned()))?;
    if identity.format != FORMAT {
        return Err(wrong(format!(
            "format {} is not known to this version (it knows {FORMAT})",
            identity.format
        )));
    }
    Ok(identity)
}

/// Random bytes from the system.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system's random source never fails once it is seeded");
    bytes
}

fn random_u64() -> u64 {
    u64::from_le_bytes(random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let first = DataDir::open(&path).unwrap().identity().clone();
        let second = DataDir::open(&path).unwrap().identity().clone();
        assert_eq!(first, second);
        assert_eq!(
            (first.format, first.slot, first.region.as_str()),
            (1, 0, "local")
        );
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
        let other = DataDir::open(&directory.path().join("other"))
            .unwrap()
            .identity()
            .incarnation;
        assert_ne!(first.incarnation, other);
    }

    #[test]
    fn a_second_process_is_kept_out() {
        let directory = tempfile::tempdir().unwrap();
        let held = DataDir::open(directory.path()).unwrap();
        let refused = DataDir::open(directory.path()).unwrap_err();
        let NodeError::Locked { holder, .. } = &refused else {
            panic!("{refused}")
        };
        assert_eq!(*holder, std::process::id().to_string());
        drop(held);
        DataDir::open(directory.path()).unwrap();
    }

    #[test]
    fn a_foreign_format_is_refused() {
        let check = |text: &str, expected: &str| {
            let error = read_identity(Path::new("node.toml"), text)
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(
            "format = 2\nincarnation = 'f'\nslot = 0\nregion = 'local'\n",
            "format 2 is not known",
        );
        check("format = 1\n", "missing field");
        check(
            "format = 1\nincarnation = 'x'\nslot = 0\nregion = 'local'\n",
            "invalid digit",
        );
    }
}
