//! The node's identity: `DATA/node.toml`, and the lock that keeps a second process out of the data directory.
//!
//! An older copy of a data directory does not know what the node reported after the copy was made, so it must not go on under the old incarnation
//! ([`whimbrel_mailbox::RestoreRecovery`]). At every start `node.toml` is written anew, as another file, and names this file. A copy of it (by cp,
//! rsync, tar, in place or elsewhere) names another file than itself. It also counts the starts, and so does the store: a store that was put back
//! without its `node.toml` is behind. A copy below the file system (a snapshot of a volume or of a machine) does not show here. In a cluster the
//! peers notice it (`cluster::startup_identity`); otherwise run `whimbrel node renew`.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{
        DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    },
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// The format of the data directory. A directory of another format is refused.
const FORMAT: u32 = 1;

/// The lock file in the data directory: the process that uses the directory has locked it.
const LOCK: &str = "lock";

/// Why the data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// There is no data directory.
    #[error(
        "there is no data directory {}: give the server's configuration by --config or WHIMBREL_CONFIG. `whimbrel serve` makes a new one, and so does \
         `whimbrel account add` with a configuration",
        path.display()
    )]
    None {
        /// The data directory.
        path: PathBuf,
    },
    /// An error of the system.
    #[error("server.data_dir: cannot use {}: {cause}{}", path.display(), hint(path, cause))]
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
    /// The directory belongs to another user, whose server could not open files of root in it.
    #[error(
        "{} belongs to {}, and the server could not open files that root writes there. Run this command as its user: `sudo -u {} whimbrel ...`",
        directory.display(),
        user(*owner, "user "),
        user(*owner, "\\#")
    )]
    Foreign {
        /// The data directory.
        directory: PathBuf,
        /// The user's number.
        owner: u32,
    },
    /// `node.toml` cannot be used.
    #[error("{}: {cause}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
}

/// Explains an error: the owner of a file that may not be used, or that the path is a file.
fn hint(path: &Path, cause: &io::Error) -> String {
    match (cause.kind(), fs::metadata(path)) {
        (io::ErrorKind::PermissionDenied, Ok(meta)) => {
            let own = rustix::process::geteuid().as_raw();
            format!(
                " (owned by {}, running as {})",
                user(meta.uid(), "user "),
                user(own, "user ")
            )
        }
        (io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists, Ok(meta))
            if meta.is_file() =>
        {
            " (it is a file)".to_owned()
        }
        _ => String::new(),
    }
}

fn pid(holder: &str) -> String {
    if holder.is_empty() {
        String::new()
    } else {
        format!(" (process {holder})")
    }
}

/// A user's name, or else `numbered` and the number.
fn user(uid: u32, numbered: &str) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("{numbered}{uid}"))
}

/// Refuses root in a directory of another user, for whom the server runs. The user is found by the owner of the lock file: root has always used a
/// directory that was made outside a container.
fn refuse_root(directory: &Path) -> io::Result<Result<(), NodeError>> {
    let owner = |path: &Path| match fs::metadata(path) {
        Ok(meta) => Ok(Some(meta.uid())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let owner = match owner(&directory.join(LOCK))? {
        None => owner(directory)?,
        owner => owner,
    };
    let root = rustix::process::geteuid();
    Ok(match owner.filter(|owner| *owner != root.as_raw()) {
        Some(owner) if root.is_root() => Err(NodeError::Foreign {
            directory: directory.to_owned(),
            owner,
        }),
        _ => Ok(()),
    })
}

/// The node's identity. It lives as long as its disk: a copied or restored directory gets a new incarnation and another slot.
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
    /// The node's region.
    pub region: String,
    /// Slots that no incarnation of this node has had since all were last used up.
    #[serde(default = "slots_but_first")]
    pub slots_free: Vec<u8>,
    /// How often the slots were used up: each time every account gets a new UIDVALIDITY.
    #[serde(default)]
    pub round: u32,
    /// How often the node was started; the store counts, too.
    #[serde(default)]
    pub starts: u64,
    /// Names the file itself. Absent in older files, which may be any.
    #[serde(default)]
    pub file: Option<Place>,
}

/// Slots: UIDs have six bits for them.
const SLOTS: u8 = 64;

fn slots_but_first() -> Vec<u8> {
    (1..SLOTS).collect()
}

/// Tells one file from a copy of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The inode of the file.
    pub inode: u64,
    /// When the file was made, in seconds and nanoseconds: inodes are used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<String>,
    /// The file system: its number changes with the order in which disks are found, so it counts only where the time of birth is not known.
    pub device: u64,
}

impl Place {
    fn of(file: &fs::File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let since_1970 =
            |time: std::time::SystemTime| time.duration_since(std::time::UNIX_EPOCH).ok();
        let born = metadata.created().ok().and_then(since_1970);
        Ok(Place {
            inode: metadata.ino(),
            born: born.map(|at| format!("{}.{:09}", at.as_secs(), at.subsec_nanos())),
            device: metadata.dev(),
        })
    }

    fn is(&self, other: &Self) -> bool {
        let same = match (&self.born, &other.born) {
            (Some(own), Some(other)) => own == other,
            _ => self.device == other.device,
        };
        same && self.inode == other.inode
    }
}

impl Identity {
    fn new() -> Self {
        Identity {
            format: FORMAT,
            incarnation: random_u64(),
            slot: 0,
            region: "local".to_owned(),
            slots_free: slots_but_first(),
            round: 0,
            starts: 0,
            file: None,
        }
    }

    /// Merges what the store knows.
    fn join(&mut self, store: &Starts) {
        let free = self.starts().join(store);
        self.round = free.round;
        self.slots_free = (0..SLOTS)
            .filter(|slot| free.slots_free & 1 << slot != 0)
            .collect();
    }

    fn starts(&self) -> Starts {
        Starts {
            count: self.starts,
            round: self.round,
            slots_free: self
                .slots_free
                .iter()
                .fold(0, |mask, slot| mask | 1 << slot),
        }
    }

    /// Takes another incarnation with another slot.
    ///
    /// The slot is drawn at random, so that a copy that is put back twice hardly draws the same one twice.
    fn renew(&mut self) {
        self.incarnation = random_u64();
        if self.slots_free.is_empty() {
            self.round += 1;
            self.slots_free = (0..SLOTS).collect();
        }
        let drawn = random_u64() % self.slots_free.len() as u64;
        self.slot = self
            .slots_free
            .remove(usize::try_from(drawn).unwrap_or_default());
    }
}

/// What the store knows of the node's starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starts {
    /// How many starts there were.
    count: u64,
    /// [`Identity::round`]
    round: u32,
    /// [`Identity::slots_free`], a bit each.
    slots_free: u64,
}

impl Starts {
    /// The stored bytes.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.count.to_be_bytes().to_vec();
        bytes.extend(self.round.to_be_bytes());
        bytes.extend(self.slots_free.to_be_bytes());
        bytes
    }

    /// From the stored bytes; `None` if they are damaged.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk()?;
        let (round, rest) = rest.split_first_chunk()?;
        Some(Starts {
            count: u64::from_be_bytes(*count),
            round: u32::from_be_bytes(*round),
            slots_free: u64::from_be_bytes(rest.try_into().ok()?),
        })
    }

    /// Merges two counts. A slot is free when both know it as free.
    fn join(self, other: &Self) -> Self {
        let slots_free = match self.round.cmp(&other.round) {
            std::cmp::Ordering::Less => other.slots_free,
            std::cmp::Ordering::Equal => self.slots_free & other.slots_free,
            std::cmp::Ordering::Greater => self.slots_free,
        };
        Starts {
            count: self.count.max(other.count),
            round: self.round.max(other.round),
            slots_free,
        }
    }
}

/// Why a data directory is taken for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// `node.toml` is another file than it says.
    File,
    /// The store was started less often than `node.toml`.
    Store,
    /// There is a store that was used, and no `node.toml`.
    Missing,
    /// The administrator says that it is one.
    Asked,
    /// Other nodes of the cluster have more of its log than the directory.
    Peers,
}

impl std::fmt::Display for Copy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Copy::File => "node.toml is a copy",
            Copy::Store => "the store is older than node.toml",
            Copy::Missing => "node.toml is missing",
            Copy::Asked => "asked for",
            Copy::Peers => "other nodes remember more",
        })
    }
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
    /// Why `node.toml` is known to be a copy.
    copied: Option<Copy>,
    /// The lock belongs to the file handle, so it cannot outlive the process.
    _lock: fs::File,
}

impl DataDir {
    /// Whether there is a data directory: a directory that was never used by a server is none.
    #[must_use]
    pub fn is_at(path: &Path) -> bool {
        path.join("node.toml").exists() || path.join("store").exists()
    }

    /// As [`DataDir::open`], but does not create the directory.
    ///
    /// # Errors
    /// If there is none, or as [`DataDir::open`].
    pub fn open_existing(path: &Path) -> Result<Self, NodeError> {
        match Self::is_at(path) {
            true => Self::open(path),
            false => Err(NodeError::None {
                path: path.to_owned(),
            }),
        }
    }

    /// Creates the directory if need be, locks it, and reads or makes the node's identity. Call [`DataDir::start`] before anything is written.
    pub fn open(path: &Path) -> Result<Self, NodeError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |cause| NodeError::Io { path, cause }
        };
        refuse_root(path).map_err(io(path))??;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(io(path))?;
        let mode = fs::metadata(path).map_err(io(path))?.permissions().mode();
        if mode & 0o777 != 0o700 {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(io(path))?;
        }
        let lock = lock(path)?;
        let file = path.join("node.toml");
        let (identity, copied) = match fs::File::open(&file) {
            Ok(mut opened) => {
                let mut text = String::new();
                let place = Place::of(&opened)
                    .and_then(|place| opened.read_to_string(&mut text).map(|_| place))
                    .map_err(io(&file))?;
                let identity = read_identity(&file, &text)?;
                let own = identity.file.as_ref().is_some_and(|known| known.is(&place));
                (identity, (!own).then_some(Copy::File))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (Identity::new(), Some(Copy::Missing))
            }
            Err(cause) => return Err(NodeError::Io { path: file, cause }),
        };
        Ok(DataDir {
            path: path.to_owned(),
            identity,
            copied,
            _lock: lock,
        })
    }

    /// The identity in a data directory, without taking it.
    pub fn read(path: &Path) -> Result<Identity, NodeError> {
        let path = path.join("node.toml");
        match fs::read_to_string(&path) {
            Ok(text) => read_identity(&path, &text),
            Err(cause) => Err(NodeError::Io { path, cause }),
        }
    }

    /// Begins a start of the node on a store that knows this of its starts: takes a new identity if the directory is a copy. Returns what the store
    /// has to know, durably, before [`DataDir::write`], so that the store is never behind by itself.
    pub fn start(&mut self, store: Option<Starts>) -> Starts {
        if let Some(store) = store {
            self.identity.join(&store);
        }
        let count = store.map_or(0, |store| store.count);
        match self.copied {
            Some(Copy::Missing) if store.is_none() => self.copied = None,
            Some(copy) => self.renew(copy),
            None if count < self.identity.starts => self.renew(Copy::Store),
            None => {}
        }
        self.identity.starts = self.identity.starts.max(count) + 1;
        self.identity.starts()
    }

    /// The fields that [`DataDir::start`] changes, to restore them when the store did not accept the start.
    pub(crate) fn known(&self) -> (Identity, Option<Copy>) {
        (self.identity.clone(), self.copied)
    }

    /// Undoes [`DataDir::start`].
    pub(crate) fn back_to(&mut self, (identity, copied): (Identity, Option<Copy>)) {
        self.identity = identity;
        self.copied = copied;
    }

    /// Takes a new incarnation and another slot; [`DataDir::write`] must follow.
    pub fn renew(&mut self, copy: Copy) {
        let before = self.identity.clone();
        self.identity.renew();
        self.copied = None;
        tracing::warn!(
            because = %copy,
            incarnation = format!("{:016x}", self.identity.incarnation),
            former_incarnation = format!("{:016x}", before.incarnation),
            slot = self.identity.slot,
            former_slot = before.slot,
            "an older copy of the data directory: this node goes on under a new incarnation, so that no UID is given twice"
        );
        if self.identity.round > before.round {
            tracing::warn!(
                "all slots have been used: every account gets a new UIDVALIDITY, and its clients load everything again"
            );
        }
    }

    /// Takes a slot that a member of the cluster has given; [`DataDir::write`] must follow. The slots that this node would choose itself are left
    /// alone: from now on the cluster gives slots.
    pub fn assign(&mut self, slot: u8) {
        self.identity.slot = slot;
    }

    /// Joins a cluster under this incarnation, with a slot that a member has given; [`DataDir::write`] must follow.
    pub fn join(&mut self, incarnation: u64, slot: u8) {
        self.identity.incarnation = incarnation;
        self.identity.slot = slot;
    }

    /// Writes the identity, as a new file that names itself.
    pub fn write(&mut self) -> Result<(), NodeError> {
        let path = self.path.join("node.toml");
        let wrong = |error: toml::ser::Error| NodeError::Identity {
            path: path.clone(),
            cause: error.to_string(),
        };
        let new = path.with_extension("new");
        let mut write = || -> io::Result<Result<(), toml::ser::Error>> {
            // A file that a crash left is not new.
            match fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&new)?;
            self.identity.file = Some(Place::of(&file)?);
            let text = match toml::to_string(&self.identity) {
                Ok(text) => text,
                Err(error) => return Ok(Err(error)),
            };
            file.write_all(format!("{SUM}{}\n{text}", sum(&text)).as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            fs::File::open(&self.path)?.sync_all()?;
            Ok(Ok(()))
        };
        write()
            .map_err(|cause| NodeError::Io {
                path: path.clone(),
                cause,
            })?
            .map_err(wrong)
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
    let path = directory.join(LOCK);
    let io = |cause| NodeError::Io {
        path: path.clone(),
        cause,
    };
    let opened = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path);
    let mut file = match opened {
        // A read-only file can be locked all the same.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => fs::File::open(&path),
        opened => opened,
    }
    .map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            const HOLDER_BYTES_MAX: u64 = 20;
            let mut holder = String::new();
            // The process that holds the lock is only a hint.
            let _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut holder);
            let holder = holder.trim().to_owned();
            return Err(NodeError::Locked {
                directory: directory.to_owned(),
                holder,
            });
        }
        Err(fs::TryLockError::Error(cause)) => return Err(io(cause)),
    }
    // The process is only a hint, and a full disk may not accept it.
    let _ = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// The first line of `node.toml`, before the checksum of the rest.
const SUM: &str = "# Written at every start; do not edit. Checksum: ";

fn sum(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}

fn read_identity(path: &Path, text: &str) -> Result<Identity, NodeError> {
    let wrong = |cause: String| NodeError::Identity {
        path: path.to_owned(),
        cause,
    };
    // Older files have no checksum.
    if let Some((first, rest)) = text.split_once('\n')
        && first.starts_with('#')
        && first.strip_prefix(SUM) != Some(&sum(rest))
    {
        return Err(wrong(
            "the checksum is wrong, so it is damaged. Remove it: the node then takes a new incarnation (see `whimbrel node`)"
                .to_owned(),
        ));
    }
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

    /// One start on a store that knows this. Returns the identity, and what the store knows after it.
    fn start(path: &Path, store: Option<Starts>) -> (Identity, Option<Starts>) {
        let mut data = DataDir::open(path).unwrap();
        let store = data.start(store);
        data.write().unwrap();
        let store = Starts::from_bytes(&store.to_bytes());
        assert!(store.is_some());
        (data.identity().clone(), store)
    }

    /// Copies the file as `cp` would.
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        let text = fs::read(from.join("node.toml")).unwrap();
        // Into the existing file, if there is one.
        fs::write(to.join("node.toml"), text).unwrap();
    }

    #[test]
    fn identity_is_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let (first, store) = start(&path, None);
        let (second, store) = start(&path, store);
        // A crash between the two writes.
        let ahead = DataDir::open(&path).unwrap().start(store);
        let (third, store) = start(&path, Some(ahead));
        for other in [second, third] {
            assert_eq!(first.incarnation, other.incarnation);
        }
        assert_eq!(
            (first.format, first.slot, first.region.as_str()),
            (1, 0, "local")
        );
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
        let (other, _) = start(&directory.path().join("other"), None);
        assert_ne!(first.incarnation, other.incarnation);
        // A directory may be moved.
        fs::rename(&path, directory.path().join("moved")).unwrap();
        let (moved, _) = start(&directory.path().join("moved"), store);
        assert_eq!(first.incarnation, moved.incarnation);
    }

    #[test]
    fn a_copy_takes_another_incarnation_and_slot() {
        let directory = tempfile::tempdir().unwrap();
        let (data, backup) = (
            directory.path().join("data"),
            directory.path().join("backup"),
        );
        let (first, store) = start(&data, None);
        copy(&data, &backup);
        let renewed = |path: &Path, store: Option<Starts>, because: &str| {
            let (now, store) = start(path, store);
            assert_ne!(first.incarnation, now.incarnation, "{because}");
            assert_ne!(first.slot, now.slot, "{because}");
            assert!(!now.slots_free.contains(&now.slot), "{because}");
            assert_eq!(now.slots_free.len(), 62, "{because}");
            // Once.
            let (again, _) = start(path, store);
            assert_eq!(again.incarnation, now.incarnation, "{because}");
        };
        renewed(&backup, store, "elsewhere");
        copy(&data, &backup);
        let (_, later) = start(&data, store);
        copy(&backup, &data);
        renewed(&data, store, "in place");
        assert_ne!(later, store);

        let data = directory.path().join("second");
        let (first, store) = start(&data, None);
        start(&data, store);
        let (now, store) = start(&data, store);
        assert_ne!(first.incarnation, now.incarnation, "the store alone");
        fs::remove_file(data.join("node.toml")).unwrap();
        let (last, _) = start(&data, store);
        assert_eq!(last.slots_free.len(), 61, "the store without node.toml");
        assert!(![first.slot, now.slot].contains(&last.slot));
    }

    #[test]
    fn what_does_not_say_which_file_it_is_is_a_copy() {
        let directory = tempfile::tempdir().unwrap();
        let text = "format = 1\nincarnation = 'f'\nslot = 0\nregion = 'local'\n";
        fs::write(directory.path().join("node.toml"), text).unwrap();
        let (now, _) = start(directory.path(), None);
        assert_ne!((now.incarnation, now.slot), (0xf, 0));
    }

    #[test]
    fn a_start_that_the_store_did_not_take_is_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let (first, store) = start(directory.path(), None);
        let mut data = DataDir::open(directory.path()).unwrap();
        let before = data.known();
        data.start(store);
        data.back_to(before);
        let count = data.start(store);
        assert_eq!(data.identity().incarnation, first.incarnation);
        assert_eq!(count.count, store.unwrap().count + 1);
        // Without going back, the store would be taken for an older one.
        data.start(store);
        assert_ne!(data.identity().incarnation, first.incarnation);
    }

    #[test]
    fn slots_begin_anew_when_they_are_used_up() {
        let mut identity = Identity::new();
        let mut had = vec![identity.slot];
        for _ in 1..SLOTS {
            identity.renew();
            assert!(!had.contains(&identity.slot));
            had.push(identity.slot);
        }
        assert_eq!((identity.round, identity.slots_free.len()), (0, 0));
        identity.renew();
        assert_eq!((identity.round, identity.slots_free.len()), (1, 63));
        assert!(!identity.slots_free.contains(&identity.slot));
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

    /// `whimbrel account add` as root left files that the server of another user could not open.
    #[test]
    fn root_leaves_nothing_in_the_directory_of_another_user() {
        if !rustix::process::geteuid().is_root() {
            // Only root can give directories away.
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let give = |path: &Path| std::os::unix::fs::chown(path, Some(4242), Some(4242)).unwrap();
        give(path);
        let refused = DataDir::open(path).unwrap_err();
        assert!(matches!(refused, NodeError::Foreign { owner: 4242, .. }));
        let text = refused.to_string();
        assert!(text.contains("belongs to user 4242"), "{text}");
        assert!(text.contains(r"`sudo -u \#4242 whimbrel"), "{text}");
        assert_eq!(fs::read_dir(path).unwrap().count(), 0);
        assert_eq!(user(0, "user "), "root");
        // As in a container whose directory was made outside: root has always been there.
        let lock = path.join(LOCK);
        fs::write(&lock, b"").unwrap();
        drop(DataDir::open(path).unwrap());
        give(&lock);
        assert!(DataDir::open(path).is_err());
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
