//! Whimbrel: the binary that is given, or that lies beside this one.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{Running, address, free_port, users};
use crate::{
    error::{Result, Trouble, io_at, wrong},
    target::Address,
};

/// The binary: what is given, or `whimbrel` beside this program.
pub fn binary(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let own = std::env::current_exe().map_err(io_at("the path of this program"))?;
    let beside = own.with_file_name("whimbrel");
    if beside.exists() {
        Ok(beside)
    } else {
        wrong(format!(
            "{} is not there: build it (cargo build --release -p whimbrel), or name one by --whimbrel",
            beside.display()
        ))
    }
}

/// Starts it on a directory, which has `certificate.pem` and `key.pem`; accounts are made the first time.
///
/// `more`: lines of configuration, each a section and a key.
pub fn start(binary: &Path, directory: &Path, more: &[(&str, &str)]) -> Result<Running> {
    let prepared = Prepared::new(binary, directory, more)?;
    if !directory.join("data").exists() {
        prepared.make_accounts()?;
    }
    prepared.serve()
}

/// A directory with its configuration; nothing serves it yet.
pub struct Prepared {
    binary: PathBuf,
    directory: PathBuf,
    address: Address,
    configuration: String,
}

impl Prepared {
    /// On a directory, which has `certificate.pem` and `key.pem`.
    pub fn new(binary: &Path, directory: &Path, more: &[(&str, &str)]) -> Result<Prepared> {
        let mut address = address("Whimbrel")?;
        address.metrics = Some(free_port()?);
        address.smtp = Some(free_port()?);
        let pop3s = free_port()?;
        let with_pop3 = knows(binary, "[pop3]")?;
        let port = |port: Option<u16>| format!("[\"127.0.0.1:{}\"]", port.unwrap_or(0));
        let mut lines = vec![
            ("server", "data_dir = \"data\"".to_owned()),
            ("server", "hostname = \"localhost\"".to_owned()),
            ("tls", "cert = \"certificate.pem\"".to_owned()),
            ("tls", "key = \"key.pem\"".to_owned()),
            ("imap", format!("listen_tls = {}", port(address.imaps))),
            ("imap", "listen = []".to_owned()),
            ("lmtp", format!("listen = {}", port(address.lmtp))),
            ("smtp", format!("listen = {}", port(address.smtp))),
            ("metrics", format!("listen = {}", port(address.metrics))),
            // The clients all come from one address, which has an eighth of the places for handshakes.
            ("tls", "handshakes_max = 1024".to_owned()),
            ("limits", "connections_max = 50000".to_owned()),
            ("limits", "connections_per_address_max = 50000".to_owned()),
            ("limits", "connections_per_account_max = 5000".to_owned()),
            ("log", "level = \"warn\"".to_owned()),
        ];
        if knows(binary, "#unauthenticated_per_address_max ")? {
            let all = "unauthenticated_per_address_max = 2000";
            lines.push(("limits", all.to_owned()));
        }
        if with_pop3 {
            address.pop3s = Some(pop3s);
            lines.push(("pop3", format!("listen_tls = [\"127.0.0.1:{pop3s}\"]")));
            lines.push(("pop3", "listen = []".to_owned()));
        }
        if knows(binary, "[submission]")? {
            lines.push(("submission", "listen_tls = []".to_owned()));
            lines.push(("submission", "listen = []".to_owned()));
        }
        for (section, line) in more {
            let key = |line: &str| line.split('=').next().map(|key| key.trim().to_owned());
            lines.retain(|(of, there)| of != section || key(there) != key(line));
            lines.push((section, (*line).to_owned()));
        }
        lines.sort_by_key(|(section, _)| *section);
        let mut text = String::new();
        let mut current = "";
        for (section, line) in &lines {
            if *section != current {
                text += &format!("[{section}]\n");
                current = section;
            }
            text += &format!("{line}\n");
        }
        let configuration = if more.is_empty() {
            "defaults".to_owned()
        } else {
            more.iter()
                .map(|(section, line)| format!("{section}.{line}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let prepared = Prepared {
            binary: binary.to_owned(),
            directory: directory.to_owned(),
            address,
            configuration,
        };
        let config = prepared.config();
        fs::write(&config, text).map_err(io_at(config.display()))?;
        Ok(prepared)
    }

    fn config(&self) -> PathBuf {
        self.directory.join("whimbrel.toml")
    }

    /// All users of a run.
    pub fn make_accounts(&self) -> Result<()> {
        for (user, password) in users(&self.address) {
            add_account(&self.binary, &self.config(), &user, &password)?;
        }
        Ok(())
    }

    /// Runs one of the administrator's commands, which must succeed; what it said.
    pub fn administer(&self, arguments: &[&str]) -> Result<String> {
        let done = Command::new(&self.binary)
            .args(arguments)
            .arg("--config")
            .arg(self.config())
            .output()
            .map_err(io_at(self.binary.display()))?;
        if done.status.success() {
            Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
        } else {
            let said = String::from_utf8_lossy(&done.stderr);
            wrong(format!("whimbrel {}: {said}", arguments.join(" ")))
        }
    }

    /// Starts it.
    pub fn serve(&self) -> Result<Running> {
        let path = self.directory.join("whimbrel.log");
        let log = File::create(&path).map_err(io_at(path.display()))?;
        let mut command = Command::new(&self.binary);
        command.arg("serve").arg("--config").arg(self.config());
        command.stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(io_at("a log"))?);
        command.stderr(log);
        Running::start(command, self.address.clone(), self.configuration.clone())
    }
}

/// Whether a line of this version's example of a configuration begins so: a section, or a key behind `#`.
fn knows(binary: &Path, begin: &str) -> Result<bool> {
    let done = Command::new(binary)
        .arg("config")
        .output()
        .map_err(io_at(binary.display()))?;
    Ok(String::from_utf8_lossy(&done.stdout)
        .lines()
        .any(|line| line.starts_with(begin)))
}

fn add_account(binary: &Path, config: &Path, user: &str, password: &str) -> Result<()> {
    let mut child = Command::new(binary)
        .args(["account", "add", user, "--password-stdin", "--config"])
        .arg(config)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(io_at(binary.display()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If it ends without reading, its exit code tells.
        let _ = stdin.write_all(format!("{password}\n").as_bytes());
    }
    let status = child.wait().map_err(io_at("account add"))?;
    if status.success() {
        Ok(())
    } else {
        Err(Trouble::Wrong(format!("account add {user}: {status}")))
    }
}
