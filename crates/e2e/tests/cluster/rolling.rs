//! An upgrade, node by node, and back: nodes of two versions serve together, clients go on.
//!
//! The older version is the program that `WHIMBREL_OLDER` names, built from an earlier commit by `cargo xtask test --long` (`xtask/src/older.rs`). It
//! has to be there then, and another one. Without the variable each node is restarted with the same program, which shows that a restart loses
//! nothing, and of versions nothing.

use std::{
    io::Write as _,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use whimbrel_e2e::server::binary;

use super::{alike::converge, mesh::Mesh, *};

fn older() -> PathBuf {
    let Some(named) = std::env::var_os("WHIMBREL_OLDER").map(PathBuf::from) else {
        return binary().to_owned();
    };
    let older = fs::read(&named).unwrap_or_else(|error| panic!("{}: {error}", named.display()));
    assert!(
        older != fs::read(binary()).unwrap(),
        "{} is the program under test",
        named.display()
    );
    named
}

/// Says which versions there were, past what the test runner keeps to itself: a run that had one only does not look like one that had two.
fn say(older: &Path) {
    let which = match older == binary() {
        true => "one program, as WHIMBREL_OLDER names no older one".to_owned(),
        false => format!("from {} and back", older.display()),
    };
    let _ = writeln!(std::io::stderr(), "rolling: {which}");
}

/// Clients that write at any node, and go to the next when theirs does not answer.
struct AtWork {
    over: AtomicBool,
    /// What was acknowledged.
    acknowledged: Mutex<Vec<String>>,
}

/// Ends the clients when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl AtWork {
    fn delivers(&self, servers: &[(u16, u16)], tls: &std::sync::Arc<rustls::ClientConfig>) {
        for turn in 0.. {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let (lmtp, imaps) = servers[turn % servers.len()];
            let name = format!("at work {turn}");
            let text = message::bytes(&name, 2000);
            let done = match turn % 2 {
                0 => Mail::lmtp(lmtp)
                    .and_then(|mut mail| {
                        mail.deliver("carl@example.net", &[ACCOUNTS[0].0], &text, true)
                    })
                    .is_ok_and(|replies| replies.iter().all(|reply| reply.is(2))),
                _ => Imap::login(imaps, tls, ACCOUNTS[0].0, ACCOUNTS[0].1)
                    .and_then(|mut imap| imap.append("INBOX", &[], &text))
                    .is_ok_and(|put| put.status == Status::Ok),
            };
            if done {
                self.acknowledged.lock().unwrap().push(name);
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

impl Mesh {
    /// Restarts one node as the guide says, with this program.
    fn restart_as(&mut self, node: usize, program: PathBuf) {
        let of = &mut self.scene.nodes[node];
        let drained = of.cluster(&["drain", "--of", "1"]);
        assert!(drained.success, "{drained:?}");
        of.server.stop();
        of.server.program = program;
        of.server.start(&[]);
        self.wait_links(&[2, 2, 2]);
        let name = ["a", "b", "c"][node];
        wait_for("the node to be in sync", || {
            let at = (0..3).filter(|at| *at != node);
            let mut lines = at.map(|at| {
                let status = self.scene.nodes[at].status();
                let line = status
                    .lines()
                    .find(|line| line.starts_with(&format!("{name}  ")));
                line.unwrap().to_owned()
            });
            // An earlier version says `level`.
            let is_in_sync =
                |line: String| line.ends_with("  in sync") || line.ends_with("  level");
            lines.all(is_in_sync).then_some(())
        });
    }
}

#[test]
#[ignore = "long: clusters beyond the promises"]
fn nodes_are_restarted_one_by_one_from_version_to_version() {
    let older = older();
    say(&older);
    let mut mesh = Mesh::of(3, &older);
    let servers: Vec<(u16, u16)> = mesh
        .scene
        .nodes
        .iter()
        .map(|node| (node.server.ports.lmtp, node.server.ports.imaps))
        .collect();
    let tls = mesh.scene.nodes[0].server.tls.clone();
    let work = AtWork {
        over: AtomicBool::new(false),
        acknowledged: Mutex::default(),
    };
    let acknowledged = || work.acknowledged.lock().unwrap().len();
    std::thread::scope(|scope| {
        scope.spawn(|| work.delivers(&servers, &tls));
        // Also when this panics: the scope waits for the client.
        let _over = Over(&work.over);
        for program in [binary().to_owned(), older.clone(), binary().to_owned()] {
            for node in 0..3 {
                mesh.restart_as(node, program.clone());
                let before = acknowledged();
                wait_for("clients to go on", || {
                    (acknowledged() > before + 2).then_some(())
                });
            }
        }
    });
    let acknowledged = work.acknowledged.into_inner().unwrap();
    // What was not acknowledged may be there, too: who asked went away with the node.
    mesh.scene.expected = converge(
        &[0, 1, 2],
        |node| Some(shown(&mesh.scene.look(node)?)),
        |look| {
            let mut lost = acknowledged.iter().filter(|name| !look.contains_key(*name));
            lost.next().map(|name| format!("{name} was acknowledged"))
        },
    );
    mesh.alike();
    mesh.stop();
}
