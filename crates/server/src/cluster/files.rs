//! What a node keeps of its cluster: `DATA/cluster/`.
//!
//! | file | what |
//! |---|---|
//! | `authority.pem`, `authority.key` | the cluster's own authority, which every node holds (`docs/decisions/0014`) |
//! | `node.pem`, `node.key` | this node's certificate |
//! | `sum` | a checksum of these four: a certificate that is damaged may still be one |
//! | `roster` | the cluster's id and its members; written last, so that a node that has it has all |
//! | `tokens` | of the tokens that this node has given, hashes; `tokens.lock` keeps two writers apart |
//! | `joining` | under which incarnation this node has shown which token: it may ask again, and nobody else may |
//! | `life` | the incarnation under which this disk takes part, or did last: who finds that one removed is not let in again under the name of a node that has replaced it |
//! | `filled` | this incarnation knows all that was written under its slot before it joined |
//! | `young` | this node came with an empty disk, or goes on under a new incarnation: of each partition it serves nothing before it has what another node had. It goes when all have it |
//! | `unasked` | where the own logs ended at a start at which not all peers could be asked what they remember, or before a command wrote without a server, which asks nobody; it goes when all have answered |
//! | `renew` | the peers know more of this node than its disk: at the next start it takes a new incarnation |
//!
//! Each is written as a new file and synced before it takes the place of the old one; those that are no PEM begin with their checksum. What a command
//! writes as root belongs to whom the directory belongs to: the server, which may run as another user, has to read it.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown},
    path::{Path, PathBuf},
};

use minicbor::{Decode, Encode};
use rustix::{fs::OFlags, process::geteuid};
use whimbrel_cluster::{Authority, AuthorityError, ClusterId, Credentials, Tokens};
use whimbrel_crdt::Incarnation;
use whimbrel_replication::roster::Roster;
use whimbrel_service::cluster::startup::UnverifiedPeers;
use zeroize::Zeroizing;

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The system refuses.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// It is not as it was written.
    #[error(
        "{}: it is damaged. Move the data directory away, and do not delete it: it may have what no other node has. Run `whimbrel cluster remove NAME` on \
         another member, and join with a new token (docs/cluster.md, \"A file of the cluster that is damaged\")",
        path.display()
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
    },
    /// Certificates that do not fit.
    #[error("{}: {cause}", path.display())]
    Certificates {
        /// The directory.
        path: PathBuf,
        /// Why.
        cause: AuthorityError,
    },
}

/// The directory.
#[derive(Clone, Debug)]
pub struct Files(PathBuf);

/// While this node is syncing. Names of files are a format: they stay as they were.
const SYNCING_FILE: &str = "young";

/// See [`UnverifiedPeers`].
const UNVERIFIED_FILE: &str = "unasked";

/// What a member has.
pub struct Kept {
    /// Of the cluster.
    pub authority: Authority,
    /// Of the node.
    pub credentials: Credentials,
    /// The members.
    pub roster: Roster,
}

#[derive(Encode, Decode)]
struct StoredMember {
    #[cbor(n(0), with = "minicbor::bytes")]
    cluster: ClusterId,
    #[n(1)]
    roster: Roster,
}

/// A token that was shown, and the answer has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Joining {
    /// Which.
    #[n(0)]
    pub token: u64,
    /// Under which incarnation.
    #[n(1)]
    pub incarnation: u64,
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

const SUM_BYTES: usize = 32;

/// What `sum` is made of, in this order.
const PEMS: [&str; 4] = ["authority.pem", "authority.key", "node.pem", "node.key"];

fn sum(texts: [&str; 4]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for text in texts {
        hasher.update(&(text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize()
}

impl Files {
    /// Of this data directory. There may be none.
    pub fn of(data: &Path) -> Self {
        Files(data.join("cluster"))
    }

    /// Whether the node belongs to a cluster.
    pub fn exist(&self) -> bool {
        self.0.join("roster").exists()
    }

    /// Makes the directory, and sees to it that it is there after a power loss: what is synced in it is lost with its name.
    ///
    /// # Errors
    /// [`FilesError::Io`]
    pub fn make(&self) -> Result<(), FilesError> {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0);
        let data = self.0.parent().filter(|data| !data.as_os_str().is_empty());
        let data = data.unwrap_or(Path::new("."));
        // It may have been made by a command that was cut off before this.
        let made = made.and_then(|()| fs::File::open(data)?.sync_all());
        made.map_err(self.io(""))
    }

    /// Remembers that clients may know more than this node's disk: before the node is a member ([`Files::keep`]), or goes on under a new incarnation.
    ///
    /// # Errors
    /// [`FilesError::Io`]
    pub fn keep_syncing(&self) -> Result<(), FilesError> {
        self.write(SYNCING_FILE, b"")
    }

    /// Whether it came so. What it has got since then is written in each partition.
    pub fn is_syncing(&self) -> bool {
        self.0.join(SYNCING_FILE).exists()
    }

    /// Of each partition a row says that it has all. If this is not durable, the next start finds out by the rows.
    ///
    /// # Errors
    /// [`FilesError::Io`]
    pub fn forget_syncing(&self) -> Result<(), FilesError> {
        fs::remove_file(self.0.join(SYNCING_FILE)).map_err(self.io(SYNCING_FILE))
    }

    /// Keeps what a new member has.
    ///
    /// # Errors
    /// [`FilesError::Io`]
    pub fn keep(&self, kept: &Kept) -> Result<(), FilesError> {
        self.make()?;
        let (authority, credentials) = (&kept.authority, &kept.credentials);
        let key = authority.key_pem();
        let texts = [
            authority.certificate_pem(),
            &key,
            credentials.certificate_pem(),
            credentials.key_pem(),
        ];
        for (name, text) in PEMS.iter().zip(texts) {
            self.write(name, text.as_bytes())?;
        }
        self.write("sum", sum(texts).as_bytes())?;
        self.keep_roster(authority.cluster(), &kept.roster)
    }

    /// Keeps the members.
    ///
    /// # Errors
    /// [`FilesError::Io`]
    pub fn keep_roster(&self, cluster: ClusterId, roster: &Roster) -> Result<(), FilesError> {
        let roster = roster.clone();
        self.write_checked("roster", &StoredMember { cluster, roster })
    }

    /// What the node has; `None` if it belongs to no cluster.
    ///
    /// # Errors
    /// [`FilesError`]
    pub fn open(&self) -> Result<Option<Kept>, FilesError> {
        let Some(known) = self.read_checked::<StoredMember>("roster")? else {
            return Ok(None);
        };
        let text = |name: &str| -> Result<Zeroizing<String>, FilesError> {
            let bytes = self.read(name)?.ok_or_else(|| self.damaged(name))?;
            let text = String::from_utf8(bytes.to_vec()).map_err(|_| self.damaged(name))?;
            Ok(Zeroizing::new(text))
        };
        let wrong = |cause| FilesError::Certificates {
            path: self.0.clone(),
            cause,
        };
        let [authority, key, certificate, own_key] = PEMS.map(text);
        let (authority, key) = (authority?, key?);
        let (certificate, own_key) = (certificate?, own_key?);
        let sum = sum([&authority, &key, &certificate, &own_key]);
        if self
            .read("sum")?
            .is_none_or(|kept| **kept != *sum.as_bytes())
        {
            return Err(self.damaged("sum"));
        }
        let credentials = Credentials::from_pem(known.cluster, &authority, &certificate, &own_key);
        Ok(Some(Kept {
            authority: Authority::from_pem(known.cluster, &authority, &key).map_err(wrong)?,
            credentials: credentials.map_err(wrong)?,
            roster: known.roster,
        }))
    }

    /// Whether a token is one, as the file stands; [`Self::tokens`] decides.
    ///
    /// # Errors
    /// [`FilesError`]
    pub fn is_token(&self, now: u64, id: u64, secret: &[u8; 32]) -> Result<bool, FilesError> {
        let tokens = self.read_checked::<Tokens>("tokens")?.unwrap_or_default();
        Ok(tokens.judge(now, id, secret).is_ok())
    }

    /// Reads the tokens, lets them be changed, and keeps them if that says so; nobody else does so meanwhile.
    ///
    /// # Errors
    /// [`FilesError`]; or what the change says.
    pub fn tokens<E: From<FilesError>>(
        &self,
        change: impl FnOnce(&mut Tokens) -> Result<(), E>,
    ) -> Result<(), E> {
        let path = self.0.join("tokens.lock");
        let mut open = fs::OpenOptions::new();
        let open = open.write(true).create(true).truncate(false).mode(0o600);
        // Root must not be led to another file by whom the directory belongs to.
        open.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let lock = open.open(&path).and_then(|lock| {
            self.hand_over(&lock);
            lock.lock().map(|()| lock)
        });
        let lock = lock.map_err(self.io("tokens.lock"))?;
        let mut tokens = self.read_checked::<Tokens>("tokens")?.unwrap_or_default();
        change(&mut tokens)?;
        self.write_checked("tokens", &tokens)?;
        drop(lock);
        Ok(())
    }

    /// What was asked before, if the answer has not come.
    ///
    /// # Errors
    /// [`FilesError`]
    pub fn joining(&self) -> Result<Option<Joining>, FilesError> {
        self.read_checked("joining")
    }

    /// Remembers what is about to be asked.
    ///
    /// # Errors
    /// [`FilesError::Io`]
    pub fn keep_joining(&self, joining: &Joining) -> Result<(), FilesError> {
        self.write_checked("joining", joining)
    }

    /// Whether the next start has to take a new incarnation.
    pub fn must_renew(&self) -> bool {
        self.0.join("renew").exists()
    }

    /// The next start has to take a new incarnation; why, for whoever reads it.
    ///
    /// # Errors
    /// [`FilesError::Io`]
    pub fn keep_renew(&self, because: &str) -> Result<(), FilesError> {
        self.write("renew", because.as_bytes())
    }

    /// It has been taken.
    ///
    /// # Errors
    /// [`FilesError::Io`]
    pub fn renewed(&self) -> Result<(), FilesError> {
        self.remove("renew")
    }

    /// Where the own logs ended when not all could be asked.
    ///
    /// # Errors
    /// [`FilesError`]
    pub fn unverified(&self) -> Result<Option<UnverifiedPeers>, FilesError> {
        self.read_checked(UNVERIFIED_FILE)
    }

    /// Keeps it, before anything is written to these logs.
    ///
    /// # Errors
    /// [`FilesError::Io`]
    pub fn keep_unverified(&self, unverified: &UnverifiedPeers) -> Result<(), FilesError> {
        self.write_checked(UNVERIFIED_FILE, unverified)
    }

    /// All have answered.
    ///
    /// # Errors
    /// [`FilesError::Io`]
    pub fn all_asked(&self) -> Result<(), FilesError> {
        self.remove(UNVERIFIED_FILE)
    }

    /// Under which incarnation this disk took part last; none before this was kept.
    ///
    /// # Errors
    /// [`FilesError`]
    pub fn life(&self) -> Result<Option<Incarnation>, FilesError> {
        self.read_checked("life")
    }

    /// It takes part under this one.
    ///
    /// # Errors
    /// [`FilesError`]
    pub fn keep_life(&self, me: Incarnation) -> Result<(), FilesError> {
        match self.life()? == Some(me) {
            true => Ok(()),
            false => self.write_checked("life", &me),
        }
    }

    /// A member will be asked for a slot for this one, which is on disk: who is asked so may give it though no answer comes.
    ///
    /// # Errors
    /// [`FilesError`]
    pub fn asks_for_slot(&self, me: Incarnation) -> Result<(), FilesError> {
        self.write_checked("asked", &me)
    }

    /// Whether a member was asked for one by an earlier start, and may have given it. Another one must not be asked then: one incarnation has one slot.
    ///
    /// # Errors
    /// [`FilesError`]
    pub fn may_have_slot(&self, me: Incarnation) -> Result<bool, FilesError> {
        Ok(self.read_checked::<Incarnation>("asked")? == Some(me))
    }

    /// Whether this incarnation has all that was written under its slot before it joined.
    pub fn is_filled(&self, me: Incarnation) -> bool {
        let kept = self.read_checked::<u64>("filled");
        kept.is_ok_and(|kept| kept == Some(me.get()))
    }

    /// It has.
    ///
    /// # Errors
    /// [`FilesError::Io`]
    pub fn keep_filled(&self, me: Incarnation) -> Result<(), FilesError> {
        self.write_checked("filled", &me.get())
    }

    fn io(&self, name: &str) -> impl FnOnce(io::Error) -> FilesError {
        let path = self.0.join(name);
        move |cause| FilesError::Io { path, cause }
    }

    fn damaged(&self, name: &str) -> FilesError {
        let path = self.0.join(name);
        FilesError::Damaged { path }
    }

    fn write_checked<T: Encode<()>>(&self, name: &str, value: &T) -> Result<(), FilesError> {
        let bytes = match minicbor::to_vec(value) {
            Ok(bytes) => bytes,
            Err(error) => unreachable!("writing to memory cannot fail: {error}"),
        };
        self.write(
            name,
            &[blake3::hash(&bytes).as_bytes(), &bytes[..]].concat(),
        )
    }

    fn read_checked<T: for<'b> Decode<'b, ()>>(&self, name: &str) -> Result<Option<T>, FilesError> {
        let Some(bytes) = self.read(name)? else {
            return Ok(None);
        };
        let whole = bytes.split_first_chunk::<SUM_BYTES>();
        let whole = whole.filter(|(sum, rest)| blake3::hash(rest) == **sum);
        let read = whole.and_then(|(_, rest)| minicbor::decode(rest).ok());
        read.ok_or_else(|| self.damaged(name)).map(Some)
    }

    fn remove(&self, name: &str) -> Result<(), FilesError> {
        remove_if_there(&self.0.join(name)).map_err(self.io(name))
    }

    /// Root's files become those of the directory's owner.
    fn hand_over(&self, file: &fs::File) {
        let handed = || -> io::Result<()> {
            let (owner, is) = (fs::metadata(&self.0)?, file.metadata()?);
            let is_owners = (is.uid(), is.gid()) == (owner.uid(), owner.gid());
            // A file with a second name may be any.
            if is_owners || is.nlink() > 1 {
                return Ok(());
            }
            fchown(file, Some(owner.uid()), Some(owner.gid()))
        };
        if geteuid().is_root()
            && let Err(error) = handed()
        {
            // Root itself can read it.
            tracing::warn!(path = %self.0.display(), %error, "cannot give a file to the owner of this directory");
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), FilesError> {
        let path = self.0.join(name);
        let new = self.0.join(format!("{name}.new"));
        let write = || -> io::Result<()> {
            // What a crash has left. The file is a new one, and no link to another.
            remove_if_there(&new)?;
            let mut open = fs::OpenOptions::new();
            let mut file = open.write(true).create_new(true).mode(0o600).open(&new)?;
            self.hand_over(&file);
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            fs::File::open(&self.0)?.sync_all()
        };
        write().map_err(self.io(name))
    }

    fn read(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, FilesError> {
        let mut bytes = Zeroizing::new(Vec::new());
        match fs::File::open(self.0.join(name)).and_then(|mut file| file.read_to_end(&mut bytes)) {
            Ok(_) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.io(name)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use whimbrel_cluster::{NodeName, Token};

    use super::*;

    fn kept() -> Kept {
        let authority = Authority::found([7; 16]).unwrap();
        let credentials = authority.certify(&NodeName::new("eu-1").unwrap()).unwrap();
        Kept {
            authority,
            credentials,
            roster: Roster::found(Incarnation::new(5).unwrap(), "eu-1", 0, !1),
        }
    }

    #[test]
    fn what_is_kept_is_read_again_and_is_nobody_elses() {
        let data = tempfile::tempdir().unwrap();
        let files = Files::of(data.path());
        assert!(!files.exist() && files.open().unwrap().is_none());
        files.keep(&kept()).unwrap();
        let read = files.open().unwrap().unwrap();
        assert_eq!(read.roster, kept().roster);
        assert_eq!(read.credentials.name().as_str(), "eu-1");
        for entry in fs::read_dir(&files.0).unwrap() {
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let mode = fs::metadata(&files.0).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn damage_is_named() {
        let check = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
            let data = tempfile::tempdir().unwrap();
            let files = Files::of(data.path());
            files.keep(&kept()).unwrap();
            let path = files.0.join(name);
            let mut bytes = fs::read(&path).unwrap();
            change(&mut bytes);
            fs::write(&path, bytes).unwrap();
            let error = files.open().err().unwrap().to_string();
            assert!(error.contains("/cluster"), "{error}");
        };
        check("roster", &|bytes| bytes[40] ^= 1);
        check("roster", &Vec::clear);
        check("node.key", &Vec::clear);
        check("sum", &Vec::clear);
        check("authority.pem", &|bytes| bytes[100] ^= 1);
    }

    #[test]
    fn tokens_are_kept_when_they_are_changed() {
        let data = tempfile::tempdir().unwrap();
        let files = Files::of(data.path());
        files.make().unwrap();
        let token = Token {
            address: "a:1".into(),
            sponsor: "a".into(),
            fingerprint: [0; 32],
            id: 1,
            secret: [2; 32],
        };
        let give = |tokens: &mut Tokens| {
            tokens.give(0, &token, 100).unwrap();
            Ok::<_, FilesError>(())
        };
        files.tokens(give).unwrap();
        let take = |tokens: &mut Tokens| {
            tokens.take(1, 1, &[2; 32], 7).unwrap();
            Ok::<_, FilesError>(())
        };
        files.tokens(take).unwrap();
        let other = |tokens: &mut Tokens| {
            assert!(tokens.take(1, 1, &[2; 32], 8).is_err());
            Ok::<_, FilesError>(())
        };
        files.tokens(other).unwrap();
    }

    /// `whimbrel cluster token` as root, beside a server of another user.
    #[test]
    fn what_root_writes_belongs_to_the_server() {
        if !geteuid().is_root() {
            // Nobody else can write there for another user.
            return;
        }
        let data = tempfile::tempdir().unwrap();
        let files = Files::of(data.path());
        files.make().unwrap();
        let other = Some(4242);
        std::os::unix::fs::chown(&files.0, other, other).unwrap();
        let keep = |_: &mut Tokens| Ok::<_, FilesError>(());
        // A name that leads elsewhere is not followed.
        let elsewhere = data.path().join("elsewhere");
        fs::write(&elsewhere, b"root's").unwrap();
        std::os::unix::fs::symlink(&elsewhere, files.0.join("tokens.new")).unwrap();
        // As an earlier command has left it: root's.
        fs::write(files.0.join("tokens.lock"), b"").unwrap();
        files.tokens(keep).unwrap();
        for name in ["tokens", "tokens.lock"] {
            let is = fs::symlink_metadata(files.0.join(name)).unwrap();
            assert_eq!((is.uid(), is.gid()), (4242, 4242), "{name}");
            assert!(is.is_file(), "{name}");
        }
        fs::remove_file(files.0.join("tokens.lock")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, files.0.join("tokens.lock")).unwrap();
        assert!(files.tokens(keep).is_err());
        let is = fs::metadata(&elsewhere).unwrap();
        assert_eq!(is.uid(), 0);
        assert_eq!(fs::read(&elsewhere).unwrap(), b"root's");
    }

    #[test]
    fn a_node_is_renewed_once() {
        let data = tempfile::tempdir().unwrap();
        let files = Files::of(data.path());
        files.make().unwrap();
        files.keep_renew("eu-2 has more").unwrap();
        assert!(files.must_renew());
        files.renewed().unwrap();
        files.renewed().unwrap();
        assert!(!files.must_renew());
        assert_eq!(files.joining().unwrap(), None);
        let me = |id| Incarnation::new(id).unwrap();
        assert!(!files.is_filled(me(5)));
        files.keep_filled(me(5)).unwrap();
        assert!(files.is_filled(me(5)) && !files.is_filled(me(6)));
        let joining = Joining {
            token: 1,
            incarnation: 2,
        };
        files.keep_joining(&joining).unwrap();
        assert_eq!(files.joining().unwrap(), Some(joining));
    }
}
