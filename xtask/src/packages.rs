//! The programs that end-to-end tests drive and those that check proofs, and where Debian has them.

use std::process::{Command, Stdio};

use crate::step::{self, Count, Counting};

/// How to see that it is there (program and arguments), and the package that brings it.
type Package = (&'static [&'static str], &'static str);

/// What `cargo xtask proofs` needs.
const FOR_PROOFS: &[Package] = &[
    (&["coqc", "--version"], "coq"),
    (
        &[
            "sh",
            "-c",
            "test -e \"$(coqc -where)/user-contrib/stdpp/gmap.vo\"",
        ],
        "libcoq-stdpp",
    ),
    (&["ocamlopt", "-version"], "ocaml"),
];

/// What the end-to-end tests of the default tier need.
const FOR_TESTS: &[Package] = &[
    (&["curl", "--version"], "curl"),
    (&["mbsync", "--version"], "isync"),
    (&["neomutt", "-v"], "neomutt"),
    (&["strace", "--version"], "strace"),
    (&["swaks", "--version"], "swaks"),
    // Without it swaks has no STARTTLS, and Debian only recommends it.
    (&["perl", "-MNet::SSLeay", "-e", "1"], "libnet-ssleay-perl"),
    (&["tmux", "-V"], "tmux"),
];

/// What those of the long tier need besides.
const FOR_LONG_TESTS: &[Package] = &[
    (&["test", "-x", "/usr/lib/dovecot/imap"], "dovecot-imapd"),
    (&["mkfs.ext4", "-V"], "e2fsprogs"),
    (&["fetchmail", "--version"], "fetchmail"),
    (&["gsasl", "--version"], "gsasl"),
    (&["mount", "--version"], "mount"),
    (&["offlineimap", "--version"], "offlineimap3"),
    (&["python3", "--version"], "python3"),
    (&["systemd-analyze", "--version"], "systemd"),
];

/// Installs what the tests of a tier lack. Counts as one.
pub(crate) fn install(long: bool) -> Count {
    let more = if long { FOR_LONG_TESTS } else { &[] };
    install_all(&[FOR_TESTS, more].concat())
}

/// Installs what the proofs lack. Counts as one.
pub(crate) fn install_for_proofs() -> Count {
    install_all(FOR_PROOFS)
}

fn install_all(needed: &[Package]) -> Count {
    let missing = missing(needed);
    if missing.is_empty() {
        println!("packages: all there");
        return Count::PASSED;
    }
    println!("packages: {} missing", missing.join(" "));
    // The lists of a fresh machine are empty or old; of another they may do, and reading them again takes its time.
    let installed = apt("install", &missing).failed == 0
        || (apt("update", &[]).failed == 0 && apt("install", &missing).failed == 0);
    if installed && self::missing(needed).is_empty() {
        Count::PASSED
    } else {
        Count::FAILED
    }
}

fn missing(needed: &[Package]) -> Vec<&'static str> {
    needed
        .iter()
        .filter(|(command, _)| !works(command))
        .map(|(_, package)| *package)
        .collect()
}

fn works(command: &[&str]) -> bool {
    let Some((program, arguments)) = command.split_first() else {
        return false;
    };
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn apt(action: &str, packages: &[&str]) -> Count {
    let root = works(&["sh", "-c", "test \"$(id -u)\" = 0"]);
    let mut command = if root {
        Command::new("apt-get")
    } else {
        let mut command = Command::new("sudo");
        command.args([
            "--non-interactive",
            "--preserve-env=DEBIAN_FRONTEND",
            "apt-get",
        ]);
        command
    };
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["--yes", "--no-install-recommends", action])
        .args(packages);
    step::run(&mut command, Counting::Status)
}
