//! `whimbrel check`: finds one changed byte and one cut in each kind of file of the data directory, says where, and changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use whimbrel_e2e::{
    mail::Mail,
    message,
    process::{Done, wait_for},
    server::{ACCOUNTS, Builder, Server},
};

/// A server with its own certificate and enough mail that every kind of file is there; stopped.
fn filled() -> Server {
    let mut server = Builder::default()
        .set("tls", "cert = \"\"")
        .set("tls", "key = \"\"")
        .set("storage", "write_buffer_bytes = \"1MiB\"")
        .build();
    for round in 0..2 {
        server.launch(&[]);
        let mut mail = wait_for("LMTP", || Mail::lmtp(server.ports.lmtp).ok());
        let _ = mail.command("LHLO client.example.net").unwrap();
        for number in 0..60 {
            let bytes = message::bytes(&format!("m{round}-{number}"), 30_000);
            let replies = mail.deliver("carl@example.net", &[ACCOUNTS[0].0], &bytes, true);
            assert!(replies.unwrap().iter().all(|reply| reply.is(2)));
        }
        drop(mail);
        server.stop();
    }
    server
}

/// All files below a directory: content, permissions and time of the last change.
fn state(path: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32, i64, i64)> {
    let mut found = BTreeMap::new();
    let mut open = vec![path.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            // A killed server leaves its socket, which holds nothing.
            if path.extension().is_some_and(|of| of == "sock") {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else {
                let meta = fs::metadata(&path).unwrap();
                let bytes = fs::read(&path).unwrap();
                found.insert(path, (bytes, meta.mode(), meta.mtime(), meta.mtime_nsec()));
            }
        }
    }
    found
}

fn check(server: &Server) -> Done {
    let before = state(&server.path("data"));
    let done = server.admin(&["check"], "");
    assert!(
        before == state(&server.path("data")),
        "check changes nothing"
    );
    done
}

/// What kind of file this is; `None` for those that say nothing: locks, and lists that `current` names no more.
fn kind(data: &Path, file: &Path) -> Option<String> {
    let name = file.file_name().unwrap().to_str().unwrap();
    let folder = file.parent().unwrap();
    Some(match folder.file_name().unwrap().to_str().unwrap() {
        _ if name.eq_ignore_ascii_case("lock") => return None,
        "tables" => "table".into(),
        "blobs" => "values".into(),
        _ if name.ends_with(".jnl") => "journal".into(),
        _ if folder.parent().unwrap().ends_with("keyspaces") => match name.strip_prefix('v') {
            Some(number) => {
                let current = fs::read(folder.join("current")).unwrap();
                let named = u64::from_le_bytes(current[..8].try_into().unwrap());
                if named.to_string() != number {
                    return None;
                }
                "list".into()
            }
            None => name.into(),
        },
        _ => file.strip_prefix(data).unwrap().display().to_string(),
    })
}

#[test]
fn every_kind_of_file() {
    let server = filled();
    let whole = check(&server);
    assert!(whole.success, "{whole:?}");
    assert!(
        whole
            .stdout
            .contains("1 account with mail (1 compared with the whole log)"),
        "{whole:?}"
    );
    let data = server.path("data");
    let mut kinds = BTreeSet::new();
    for (file, (bytes, ..)) in state(&data) {
        let Some(kind) = kind(&data, &file) else {
            continue;
        };
        // Of each kind the first and, of what there is more of, a few.
        if !kinds.insert(kind.clone()) && (kind != "list" && kind != "current") {
            continue;
        }
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let mut damaged = vec![bytes[..used / 2].to_vec()];
        for at in [0, used / 3, used / 2, used - 1] {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            damaged.push(changed);
        }
        for (number, bytes) in damaged.iter().enumerate() {
            fs::write(&file, bytes).unwrap();
            let found = check(&server);
            let what = format!("{} damaged in way {number}: {found:?}", file.display());
            assert!(!found.success, "{what}");
            let named = found.stdout.lines().any(|line| {
                line.starts_with("damage: ") && line.contains(&*file.to_string_lossy())
            });
            assert!(named, "{what}");
            let placed = found.stdout.lines().any(|line| line.contains(": byte "));
            assert!(placed, "{what}");
        }
        fs::write(&file, &bytes).unwrap();
        // Without it nothing is known of certificate and key: they may come from elsewhere.
        if kind == "tls/sums" {
            continue;
        }
        fs::remove_file(&file).unwrap();
        let missing = check(&server);
        assert!(
            !missing.success,
            "{} is missing: {missing:?}",
            file.display()
        );
        fs::write(&file, &bytes).unwrap();
    }
    let expected = [
        "current",
        "journal",
        "list",
        "node.toml",
        "store/FORMAT",
        "store/SYNCED",
        "store/lsm/version",
        "table",
        "tls/cert.pem",
        "tls/key.pem",
        "tls/sums",
        "values",
    ];
    assert_eq!(
        kinds.iter().map(String::as_str).collect::<Vec<_>>(),
        expected
    );
    assert!(check(&server).success, "all is as it was");
}

#[test]
fn a_running_server_is_left_alone() {
    let server = Server::start_plain();
    let refused = server.admin(&["check"], "");
    assert!(
        !refused.success && refused.stderr.contains("locked"),
        "{refused:?}"
    );
    assert!(server.anne().command("NOOP").is_ok());
}

/// What a killed server leaves is no damage: at most the torn end of a write that was never acknowledged.
#[test]
fn a_killed_server() {
    let mut server = filled();
    for round in 0..3 {
        server.launch(&[]);
        let mut mail = wait_for("LMTP", || Mail::lmtp(server.ports.lmtp).ok());
        let _ = mail.command("LHLO client.example.net").unwrap();
        for number in 0..10 {
            let bytes = message::bytes(&format!("k{round}-{number}"), 20_000);
            let replies = mail.deliver("carl@example.net", &[ACCOUNTS[0].0], &bytes, true);
            assert!(replies.unwrap().iter().all(|reply| reply.is(2)));
        }
        server.kill();
        let found = check(&server);
        assert!(found.success, "round {round}: {found:?}");
        assert!(!found.stdout.contains("damage: "), "{found:?}");
    }
}

#[test]
fn the_report_as_json() {
    let mut server = Server::start_plain();
    server.stop();
    let path = server.path("data").join("store/SYNCED");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, [&bytes[..7], &[bytes[7] ^ 1], &bytes[8..]].concat()).unwrap();
    let found = server.admin(&["check", "--json"], "");
    assert!(!found.success);
    for part in [
        "\"found\"",
        "SYNCED",
        "\"offset\": 0",
        "\"damage\": true",
        "\"complete\": false",
    ] {
        assert!(found.stdout.contains(part), "{part}: {found:?}");
    }
}
