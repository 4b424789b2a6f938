//! Dovecot's IMAP, without its login processes: one process that speaks over a socket and is logged in from the start.
//!
//! It listens nowhere, and serves one mailbox in a directory of its own.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, chown},
        net::UnixStream,
        process::CommandExt as _,
    },
    path::Path,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;
use whimbrel_e2e::{imap::Imap, process, wire::Wire};

/// Where Debian has it.
const PROGRAM: &str = "/usr/lib/dovecot/imap";

/// `nobody` and `nogroup` on Debian: Dovecot refuses to serve root.
const NOBODY: u32 = 65_534;

/// The process.
pub(crate) struct Dovecot {
    child: Child,
    directory: TempDir,
}

impl Dovecot {
    /// Starts it; the session.
    pub(crate) fn start() -> (Dovecot, Imap) {
        let directory = tempfile::Builder::new()
            .prefix("whimbrel-dovecot-")
            .tempdir()
            .unwrap();
        let at = directory.path();
        let created = fs::metadata(at).unwrap();
        let mut owner = (created.uid(), created.gid());
        let mut command = Command::new(PROGRAM);
        if owner.0 == 0 {
            owner = (NOBODY, NOBODY);
            chown(at, Some(NOBODY), Some(NOBODY)).unwrap();
            command.uid(NOBODY).gid(NOBODY);
        }
        fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
        let config = at.join("dovecot.conf");
        fs::write(&config, configuration(at, owner)).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let child = command
            .arg("-c")
            .arg(&config)
            .env_clear()
            .env("USER", "anne")
            .env("HOME", at)
            .env("LOG_STDERR_TIMESTAMP", "")
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(
                theirs.try_clone().unwrap(),
            )))
            .stdout(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stderr(fs::File::create(at.join("stderr")).unwrap())
            .spawn()
            .expect("Debian's dovecot-imapd is installed");
        drop(command);
        let dovecot = Dovecot { child, directory };
        let imap = Imap::preauthenticated(Wire::local(ours).unwrap());
        let imap = imap.unwrap_or_else(|error| panic!("Dovecot: {error:?}: {}", dovecot.log()));
        (dovecot, imap)
    }

    /// What it complained of.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default()
    }

    /// Waits for its end, when its client has gone.
    pub(crate) fn ended(mut self) {
        let code = process::ended(&mut self.child, "Dovecot");
        assert_eq!(code, 0, "{}", self.log());
    }
}

/// Messages keep the line ends that they came with, as far as Dovecot allows it.
fn configuration(at: &Path, (user, group): (u32, u32)) -> String {
    let at = at.display();
    format!(
        "base_dir = {at}/run\nstate_dir = {at}/state\nprotocols = imap\nssl = no\nmail_location = sdbox:{at}/mail\n\
         mail_uid = {user}\nmail_gid = {group}\nfirst_valid_uid = 1\nmail_save_crlf = yes\nauth_mechanisms = plain\n"
    )
}
