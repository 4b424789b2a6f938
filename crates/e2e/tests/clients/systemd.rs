//! The systemd unit: without mistakes, and hardened.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use whimbrel_e2e::{process::run, server::binary};

/// What `systemd-analyze security` may find, of 100: what is left is the network, unix sockets and the right to low ports.
const EXPOSURE_MAX: u32 = 20;

fn dist(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../dist/systemd")
        .join(name)
}

#[test]
#[ignore = "long: systemd"]
fn the_unit_is_sound_and_hardened() {
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join("whimbrel.service");
    let text = fs::read_to_string(dist("whimbrel.service")).unwrap();
    // The program has to be there to be found.
    let ours = text.replace("/usr/local/bin/whimbrel", binary().to_str().unwrap());
    assert_ne!(ours, text);
    fs::write(&unit, ours).unwrap();
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        run(command.args(arguments).arg(&unit), b"")
    };
    let verified = analyze(&["verify", "--man=no"]);
    assert!(
        verified.success && verified.stderr.is_empty(),
        "{verified:?}"
    );
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let judged = analyze(&["security", "--offline=true", "--no-pager", &threshold]);
    assert!(judged.success, "{}", judged.stdout);
    // And a unit without hardening would not pass.
    let bare = text
        .lines()
        .filter(|line| !line.starts_with("Protect") && !line.starts_with("System"));
    fs::write(&unit, bare.collect::<Vec<_>>().join("\n")).unwrap();
    assert!(!analyze(&["security", "--offline=true", "--no-pager", &threshold]).success);
}

#[test]
#[ignore = "long: systemd"]
fn users_and_files() {
    // Dry runs: what they would do is said, and nothing done.
    let mut command = Command::new("systemd-sysusers");
    let users = run(command.arg("--dry-run").arg(dist("whimbrel.sysusers")), b"");
    assert!(users.success, "{users:?}");
    let text = fs::read_to_string(dist("whimbrel.tmpfiles")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    assert!(lines.clone().count() > 1);
    for line in lines {
        assert_eq!(line.split_ascii_whitespace().count(), 6, "{line}");
    }
}
