//! Dovecot, as Debian packages it: sdbox, `mail_fsync=always`, processes of login reused.
//!
//! It gets what it needs to do well: processes are reused (`service_count=0`), passwords are compared in clear, limits are out of the way.
//! It must be started by root; mail is written under the user `nobody`.

use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
    process::{Command, Stdio},
};

use super::{Running, address, free_port, users};
use crate::error::{Result, io_at};

/// `nobody` and `nogroup` on Debian.
const NOBODY: u32 = 65_534;

/// Watches of files that one user may have: below some thousands Dovecot polls, and does not hibernate.
const INOTIFY_INSTANCES: &str = "65536";

/// How it is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// For speed.
    Fast,
    /// Idle sessions are moved out of their processes after 5 s.
    Hibernating,
}

/// One of two that hold the same accounts: dsync, set off by each change (the `replication` plugin), over TCP.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Its name: two on one machine must differ by that.
    pub name: &'static str,
    /// Where its doveadm listens.
    pub doveadm: u16,
    /// Where the other one's is reached.
    pub other: u16,
}

/// Starts it on a directory, which has `certificate.pem` and `key.pem`.
pub fn start(directory: &Path, manner: Manner) -> Result<Running> {
    run(directory, manner, None)
}

/// Starts one of two.
pub fn start_replica(directory: &Path, replica: &Replica) -> Result<Running> {
    run(directory, Manner::Fast, Some(replica))
}

fn run(directory: &Path, manner: Manner, replica: Option<&Replica>) -> Result<Running> {
    let mut address = address("Dovecot")?;
    let pop3s = Path::new("/usr/lib/dovecot/pop3").exists();
    address.pop3s = if pop3s { Some(free_port()?) } else { None };
    // The process that serves a connection is not root.
    let open = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(io_at(path.display()))
    };
    open(directory, 0o755)?;
    let mail = directory.join("mail");
    fs::create_dir_all(&mail).map_err(io_at(mail.display()))?;
    chown(&mail, Some(NOBODY), Some(NOBODY)).map_err(io_at(mail.display()))?;
    let mut passwords = String::new();
    for (user, password) in users(&address) {
        passwords += &format!("{user}:{{PLAIN}}{password}\n");
    }
    let users = directory.join("users");
    fs::write(&users, passwords).map_err(io_at(users.display()))?;
    open(&users, 0o644)?;
    // Where this is not allowed Dovecot still works, with more memory for idle sessions.
    let _ = fs::write("/proc/sys/fs/inotify/max_user_instances", INOTIFY_INSTANCES);
    let _ = fs::write("/proc/sys/fs/inotify/max_user_watches", "1000000");
    let config = directory.join(match manner {
        Manner::Fast => "dovecot.conf",
        Manner::Hibernating => "dovecot-hibernating.conf",
    });
    let mut text = configuration(
        directory,
        manner,
        address.imaps,
        address.lmtp,
        address.pop3s,
    );
    if let Some(replica) = replica {
        text += &replication(directory, replica);
    }
    fs::write(&config, text).map_err(io_at(config.display()))?;
    let log = File::create(directory.join("dovecot.out")).map_err(io_at("a log"))?;
    let mut command = Command::new("dovecot");
    command.arg("-F").arg("-c").arg(&config);
    command.stdin(Stdio::null());
    command.stdout(log.try_clone().map_err(io_at("a log"))?);
    command.stderr(log);
    if let Some(replica) = replica {
        command.env("DOVECOT_HOSTDOMAIN", replica.name);
    }
    let words = match manner {
        Manner::Fast if replica.is_some() => {
            "sdbox, mail_fsync=always, service_count=0, PLAIN passwords; two, dsync over TCP by the replication plugin, replication_max_conns=10"
        }
        Manner::Fast => "sdbox, mail_fsync=always, service_count=0, PLAIN passwords",
        Manner::Hibernating => {
            "sdbox, mail_fsync=always, service_count=0 for logins, imap_hibernate_timeout=5s, PLAIN passwords"
        }
    };
    Running::start(command, address, words.to_owned())
}

/// As the documentation of the replication plugin has it.
fn replication(directory: &Path, replica: &Replica) -> String {
    let at = directory.display();
    let Replica {
        name,
        doveadm,
        other,
    } = replica;
    format!(
        "import_environment = $import_environment DOVECOT_HOSTDOMAIN={name}\n\
         mail_plugins = $mail_plugins notify replication\n\
         doveadm_password = secret\nreplication_max_conns = 10\n\
         userdb {{\n  driver = passwd-file\n  args = username_format=%u {at}/users\n\
         \x20 override_fields = uid={NOBODY} gid={NOBODY} home={at}/mail/%u\n}}\n\
         service replicator {{\n  process_min_avail = 1\n  unix_listener replicator-doveadm {{\n    mode = 0666\n  }}\n}}\n\
         service aggregator {{\n  fifo_listener replication-notify-fifo {{\n    mode = 0666\n  }}\n\
         \x20 unix_listener replication-notify {{\n    mode = 0666\n  }}\n}}\n\
         service doveadm {{\n  inet_listener {{\n    port = {doveadm}\n  }}\n}}\n\
         plugin {{\n  mail_replica = tcp:127.0.0.1:{other}\n}}\n"
    )
}

fn configuration(
    directory: &Path,
    manner: Manner,
    imaps: Option<u16>,
    lmtp: Option<u16>,
    pop3s: Option<u16>,
) -> String {
    let at = directory.display();
    let port = |port: Option<u16>| port.unwrap_or(0);
    let pop3 = if pop3s.is_some() {
        format!(
            "service pop3-login {{\n  inet_listener pop3 {{\n    port = 0\n  }}\n  inet_listener pop3s {{\n    port = {}\n    ssl = yes\n  }}\n  service_count = 0\n}}\n\
             service pop3 {{\n  service_count = 0\n}}\n",
            port(pop3s)
        )
    } else {
        String::new()
    };
    let hibernate = match manner {
        Manner::Fast => String::new(),
        // An imap process that has hibernated ends; reused, it would keep its memory.
        Manner::Hibernating => "imap_hibernate_timeout = 5s\n\
             service imap {\n  service_count = 1\n  unix_listener imap-master {\n    user = $default_internal_user\n  }\n}\n"
            .to_owned(),
    };
    format!(
        "base_dir = {at}/run\nstate_dir = {at}/state\nlog_path = {at}/dovecot.log\n\
         protocols = imap lmtp{}\nlisten = 127.0.0.1\n\
         ssl = required\nssl_cert = <{at}/certificate.pem\nssl_key = <{at}/key.pem\n\
         mail_location = sdbox:{at}/mail/%u\nmail_uid = {NOBODY}\nmail_gid = {NOBODY}\nfirst_valid_uid = 1\n\
         mail_fsync = always\nmail_max_userip_connections = 100000\n\
         auth_mechanisms = plain login\npostmaster_address = postmaster@example.org\nhostname = localhost\n\
         default_vsz_limit = 2G\ndefault_process_limit = 20000\ndefault_client_limit = 60000\n\
         passdb {{\n  driver = passwd-file\n  args = scheme=PLAIN username_format=%u {at}/users\n}}\n\
         userdb {{\n  driver = static\n  args = uid={NOBODY} gid={NOBODY} home={at}/mail/%u\n}}\n\
         namespace inbox {{\n  inbox = yes\n  separator = /\n\
         \x20 mailbox Drafts {{\n    auto = create\n    special_use = \\Drafts\n  }}\n\
         \x20 mailbox Sent {{\n    auto = create\n    special_use = \\Sent\n  }}\n\
         \x20 mailbox Archive {{\n    auto = create\n    special_use = \\Archive\n  }}\n\
         \x20 mailbox Junk {{\n    auto = create\n    special_use = \\Junk\n  }}\n\
         \x20 mailbox Trash {{\n    auto = create\n    special_use = \\Trash\n  }}\n}}\n\
         service imap-login {{\n  inet_listener imap {{\n    port = 0\n  }}\n  inet_listener imaps {{\n    port = {}\n    ssl = yes\n  }}\n\
         \x20 service_count = 0\n  process_min_avail = 2\n}}\n\
         service imap {{\n  service_count = 0\n}}\n\
         service lmtp {{\n  inet_listener lmtp {{\n    port = {}\n  }}\n  process_min_avail = 2\n}}\n\
         {pop3}{hibernate}",
        if pop3s.is_some() { " pop3" } else { "" },
        port(imaps),
        port(lmtp),
    )
}
