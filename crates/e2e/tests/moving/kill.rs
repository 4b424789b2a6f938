//! An import that is killed, and a server that is killed under it: begun again, everything is there once.

use std::{
    fs,
    process::{Command, Stdio},
};

use whimbrel_e2e::{
    message,
    process::{self, wait_for},
    server::{Server, binary},
};

use super::{ANNE, account, lf, write};

const MESSAGES: u32 = 1500;

fn count(imap: &mut whimbrel_e2e::imap::Imap) -> u64 {
    let status = imap.command("STATUS INBOX (MESSAGES)").unwrap();
    status.status_figures()["MESSAGES"]
}

#[test]
fn killed_at_any_moment() {
    let mut server = Server::start_plain();
    let root = server.path("Maildir");
    fs::create_dir_all(root.join("cur")).unwrap();
    for number in 0..MESSAGES {
        let path = root.join(format!("new/{}.x", 1_000_000_000 + number));
        write(
            &path,
            &lf(&message::bytes(&format!("k{number}"), 2_000)),
            1_000_000_000,
        );
    }
    let mut cut = 0;
    for round in 0..4 {
        let mut imap = server.anne();
        let before = count(&mut imap);
        let mut command = Command::new(binary());
        command.args(["import", "maildir", ANNE]).arg(&root);
        command
            .arg("--config")
            .arg(server.path("whimbrel.toml"))
            .current_dir(server.path(""));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let pid = child.id();
        wait_for("some messages", || {
            (count(&mut imap) > before || child.try_wait().unwrap().is_some()).then_some(())
        });
        if round % 2 == 0 {
            if child.try_wait().unwrap().is_none() {
                process::signal(pid, "KILL");
            }
        } else {
            server.kill();
        }
        process::ended(&mut child, "the import");
        if round % 2 == 1 {
            server.start(&[]);
        }
        cut += u32::from(count(&mut server.anne()) < u64::from(MESSAGES));
    }
    assert!(cut > 0, "no import was cut short");
    let done = server.admin(&["import", "maildir", ANNE, root.to_str().unwrap()], "");
    assert!(done.success, "{done:?}");
    let found = account(&mut server.anne());
    let mut names: Vec<_> = found.folders["INBOX"]
        .iter()
        .map(|(_, _, bytes)| message::name_of(bytes).unwrap())
        .collect();
    names.sort();
    let mut expected: Vec<_> = (0..MESSAGES).map(|number| format!("k{number}")).collect();
    expected.sort();
    assert_eq!(names, expected);
}

/// An mbox is written anew by each run: one that was cut short doubles nothing, and leaves nothing behind.
#[test]
fn an_export_to_mbox_that_is_killed() {
    let server = Server::start_plain();
    let mut mail = String::new();
    for number in 0..MESSAGES {
        let text = lf(&message::bytes(&format!("k{number}"), 4_000));
        mail += "From a@b Sun Sep  9 01:46:41 2001\n";
        mail += &String::from_utf8(text).unwrap();
        mail += "\n";
    }
    let source = server.path("source/inbox");
    write(&source, mail.as_bytes(), 1_000_000_000);
    let done = server.admin(&["import", "mbox", ANNE, source.to_str().unwrap()], "");
    assert!(done.success, "{done:?}");
    let out = server.path("out");
    let (part, whole) = (out.join(".whimbrel-part"), out.join("INBOX.mbox"));
    let export = ["export", ANNE, "mbox", out.to_str().unwrap()];
    let mut cut = 0;
    for _ in 0..4 {
        let mut command = Command::new(binary());
        command
            .args(export)
            .arg("--config")
            .arg(server.path("whimbrel.toml"))
            .current_dir(server.path(""));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        wait_for("some bytes", || {
            let has_some = fs::metadata(&part).is_ok_and(|meta| meta.len() > 0);
            (has_some || child.try_wait().unwrap().is_some()).then_some(())
        });
        if child.try_wait().unwrap().is_none() {
            process::signal(child.id(), "KILL");
        }
        process::ended(&mut child, "the export");
        cut += u32::from(part.exists());
    }
    assert!(cut > 0, "no export was cut short");
    for _ in 0..2 {
        let done = server.admin(&export, "");
        let expected = format!("{MESSAGES} messages written");
        assert!(done.success && done.stdout.contains(&expected), "{done:?}");
        let text = fs::read_to_string(&whole).unwrap();
        let mut names: Vec<&str> = text
            .split("\nFrom whimbrel@localhost ")
            .map(|message| {
                let name = message.split("X-Name: ").nth(1);
                name.and_then(|rest| rest.lines().next()).unwrap()
            })
            .collect();
        assert_eq!(names.len(), MESSAGES as usize);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), MESSAGES as usize);
        assert!(!part.exists());
    }
}
