//! Real clients against the real server, over TLS. What each of them did is looked up by another client.

mod curl;
mod fetchmail;
mod gsasl;
mod imaplib;
mod mbsync;
mod neomutt;
mod offlineimap;
mod poplib;
mod qresync;
mod submission;
mod swaks;
mod systemd;

use std::{path::PathBuf, process::Command};

use whimbrel_e2e::server::{ACCOUNTS, Server};

/// The first account.
const ANNE: &str = ACCOUNTS[0].0;
/// Its password.
const PASSWORD: &str = ACCOUNTS[0].1;

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("scripts")
        .join(name)
}

/// Flags as the name of a file in a maildir has them.
fn maildir_flags(flags: &[String]) -> String {
    let mut letters: Vec<char> = flags
        .iter()
        .filter_map(|flag| match flag.as_str() {
            "\\Flagged" => Some('F'),
            "\\Answered" => Some('R'),
            "\\Seen" => Some('S'),
            "\\Deleted" => Some('T'),
            _ => None,
        })
        .collect();
    letters.sort_unstable();
    letters.into_iter().collect()
}

/// A program that finds no configuration but ours.
fn program(server: &Server, name: &str) -> Command {
    let mut command = Command::new(name);
    command
        .env("HOME", server.path(""))
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .current_dir(server.path(""));
    command
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("http_proxy")
        .env_remove("https_proxy")
        .env_remove("all_proxy");
    command
        .env_remove("HTTP_PROXY")
        .env_remove("HTTPS_PROXY")
        .env_remove("ALL_PROXY")
        .env_remove("SSL_CERT_FILE");
    command
}
