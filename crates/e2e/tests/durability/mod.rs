//! OK means on disk: under strace, each acknowledgement follows a successful sync that began after its bytes were written; with the sync
//! taken out the same check fails; and when a sync fails, the server stops and nobody is told OK.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use whimbrel_e2e::{
    imap::{Imap, Status},
    mail::Mail,
    message,
    process::{ended, run, wait_for},
    server::{ACCOUNTS, Builder, Server},
    trace::{Acknowledged, STRACE, Trace, now},
    wire::Trouble,
};

/// Writes of every kind, one after the other, each acknowledged; what the client may count on then.
fn write(server: &Server) -> Vec<Acknowledged> {
    let mut all = Vec::new();
    let mut lmtp = Mail::lmtp(server.ports.lmtp).unwrap();
    let mut smtp = Mail::smtp(server.ports.smtp).unwrap();
    let mut imap = server.anne();
    let mut count = 0;
    for n in 0..10 {
        for (mail, lmtp) in [(&mut lmtp, true), (&mut smtp, false)] {
            let mark = format!("mark-mail-{n}-{lmtp}.");
            let since = now();
            let replies = mail
                .deliver(
                    "carl@example.net",
                    &[ACCOUNTS[0].0],
                    &message::bytes(&mark, 600),
                    lmtp,
                )
                .unwrap();
            assert!(replies.iter().all(|reply| reply.is(2)), "{replies:?}");
            all.push(Acknowledged {
                mark,
                // Its delivery: one write, as soon as it is accepted.
                consequences: 1,
                since,
                port: mail.wire.local_port(),
                time: now(),
            });
            count += 1;
        }
        // Deliveries are writes of their own; they must not be taken for those that follow.
        server.wait_count(&mut imap, "INBOX", count);
        let mark = format!("mark-append-{n}.");
        let since = now();
        let reply = imap
            .append("INBOX", &[], &message::bytes(&mark, 600))
            .unwrap();
        count += 1;
        all.push(acknowledged(&imap, mark, since, &reply));
    }
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    let commands: &[(&str, &str)] = &[
        ("CREATE mark-created", "mark-created"),
        ("RENAME mark-created mark-renamed", "mark-renamed"),
        ("SUBSCRIBE mark-subscribed", "mark-subscribed"),
        ("STORE 1:3 +FLAGS (mark-keyword)", "mark-keyword"),
        ("STORE 4 +FLAGS.SILENT (\\Flagged)", ""),
        ("COPY 1:2 mark-renamed", ""),
        ("MOVE 3 mark-renamed", ""),
        ("STORE 1 +FLAGS (\\Deleted)", ""),
        ("EXPUNGE", ""),
        ("DELETE mark-renamed", ""),
    ];
    for (command, mark) in commands {
        let since = now();
        let reply = imap.command(command).unwrap();
        all.push(acknowledged(&imap, (*mark).to_owned(), since, &reply));
    }
    all
}

fn acknowledged(
    imap: &Imap,
    mark: String,
    since: f64,
    reply: &whimbrel_e2e::imap::Reply,
) -> Acknowledged {
    assert_eq!(reply.status, Status::Ok, "{reply:?}");
    Acknowledged {
        mark,
        consequences: 0,
        since,
        port: imap.wire.local_port(),
        time: now(),
    }
}

/// Runs the writes under strace; the judgements on all of them, and the trace.
fn traced(more: &[&str]) -> (Vec<Result<(), String>>, Trace) {
    let mut server = Builder::default().build();
    let output = server.path("trace").to_str().unwrap().to_owned();
    let mut wrapper = STRACE.to_vec();
    wrapper.extend_from_slice(more);
    wrapper.extend_from_slice(&["-o", &output]);
    server.start(&wrapper);
    let writes = write(&server);
    server.stop();
    let trace = Trace::read(&String::from_utf8_lossy(&fs::read(&output).unwrap()));
    let data = server
        .path("data")
        .canonicalize()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let judged = writes
        .iter()
        .map(|write| trace.judge(write, &data))
        .collect();
    (judged, trace)
}

#[test]
fn ok_follows_the_sync() {
    let (judged, trace) = traced(&[]);
    let wrong: Vec<&String> = judged
        .iter()
        .filter_map(|judgement| judgement.as_ref().err())
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(judged.len() == 40 && trace.syncs() > 0);
}

#[test]
fn without_the_sync_the_check_fails() {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("nosync.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/nosync.c");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-fno-builtin", "-o"])
        .arg(&library)
        .arg(source);
    let _ = run(&mut compiler, b"").expect("cc");
    let (judged, trace) = traced(&["-E", &format!("LD_PRELOAD={}", library.display())]);
    assert_eq!(trace.syncs(), 0, "the library takes every sync out");
    assert!(judged.iter().all(Result::is_err), "{judged:?}");
}

/// Attaches strace to a server and lets every sync fail from now on; gone with its value.
struct Failing(Child);

impl Failing {
    fn attach(server: &Server) -> Failing {
        let pid = server.pid();
        let mut strace = Command::new("strace");
        strace.args([
            "-f",
            "-e",
            "trace=fsync,fdatasync",
            "-e",
            "inject=fsync,fdatasync:error=EIO",
            "-p",
            &pid.to_string(),
        ]);
        let child = strace
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("strace on every thread", || {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
            tasks
                .map(|task| fs::read_to_string(task.path().join("status")).unwrap_or_default())
                .all(|status| status.contains(&format!("TracerPid:\t{}\n", child.id())))
                .then_some(())
        });
        Failing(child)
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server with one message, lets its syncs fail, and writes: the server must end, and the writer must not be told OK.
fn failing(write: impl FnOnce(&Server, &mut Imap) -> Result<bool, Trouble>) {
    let mut server = Server::start_plain();
    let mut imap = server.anne();
    let _ = imap
        .append("INBOX", &[], &message::bytes("before", 500))
        .unwrap()
        .ok("APPEND");
    let mut failing = Failing::attach(&server);
    let told_ok = write(&server, &mut imap);
    assert!(!matches!(told_ok, Ok(true)), "OK for what is not on disk");
    assert!(
        !matches!(told_ok, Err(Trouble::Silent | Trouble::Protocol(_))),
        "{told_ok:?}"
    );
    let code = server.wait_end();
    assert_ne!(code, 0, "a failed sync is no orderly end");
    ended(&mut failing.0, "strace");
    let log = server.tail();
    assert!(
        log.contains("sync") && log.contains("os error 5"),
        "the log must say what failed:\n{log}"
    );
    server.assert_no_panic();

    // The disk is well again: what was acknowledged is there, the other whole or not at all.
    server.start(&[]);
    let mut imap = server.anne();
    let names: Vec<String> = server
        .contents(&mut imap, "INBOX")
        .unwrap()
        .messages
        .iter()
        .map(|at| {
            let name = message::name_of(&at.bytes).expect("no half message");
            assert!(at.bytes.ends_with(&message::bytes(&name, 500)));
            name
        })
        .collect();
    assert!(
        names == ["before"] || names == ["before", "after"],
        "{names:?}"
    );
}

#[test]
fn a_failed_sync_stops_the_server_at_append() {
    failing(|_, imap| {
        Ok(imap
            .append("INBOX", &[], &message::bytes("after", 500))?
            .status
            == Status::Ok)
    });
}

#[test]
fn a_failed_sync_stops_the_server_at_lmtp() {
    failing(|server, _| {
        let mut lmtp = Mail::lmtp(server.ports.lmtp)?;
        Ok(lmtp
            .deliver(
                "carl@example.net",
                &[ACCOUNTS[0].0],
                &message::bytes("after", 500),
                true,
            )?
            .iter()
            .any(|reply| reply.is(2)))
    });
}
