//! Where an accepted message is while it waits in the queue: at the node that took it, and at f others. No further node has anything of it.
//!
//! A delivery brings the message to all nodes that hold the account, which here are all. So it is looked for before its delivery is on the disk of the
//! node that took it: that disk stops behind the commit with which the message is accepted.

use std::{
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use serde_json::Value;
use whimbrel_e2e::{mail::MailReply, process::run};

use super::{mesh::NAMES, *};

/// Below and above the size up to which a body goes unasked to whoever gets an entry (64 KiB).
const SIZES: [usize; 2] = [3_000, 100_000];
/// Longer than a node waits for others (`queue.confirm_timeout`).
const STUCK_AFTER: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Node {
    fn json(&self, command: &[&str]) -> Value {
        let said = self.server.admin(command, "").expect("JSON");
        serde_json::from_str(&said).unwrap()
    }

    /// The entries that it has.
    fn entries(&self) -> Vec<Value> {
        let list = self.json(&["queue", "list", "--json"]);
        assert_eq!(list["complete"], true);
        list["entries"].as_array().unwrap().clone()
    }

    /// Whether nothing is left of entries, here and in what others are to be told.
    pub(crate) fn has_no_entries(&self) -> bool {
        let of = |what: &str| self.figure(&format!("whimbrel_queue_{what} "));
        of("entries") + of("tombstones") == 0
    }

    /// How many of these are on its disk, which is whole.
    pub(crate) fn on_disk(&self, what: &str) -> u64 {
        let report = self.json(&["check", "--json"]);
        assert_eq!(report["found"].as_array().unwrap().len(), 0, "{report}");
        report["summary"][what].as_u64().unwrap()
    }

    /// Whether its disk had nothing to do for a moment.
    fn is_quiet(&self) -> bool {
        let syncs = || self.figure("whimbrel_store_syncs_total ");
        let before = syncs();
        sleep(10 * LOOK_EVERY);
        syncs() == before
    }

    /// Whether a file of its data directory has this text. The store keeps rows and bodies as they are.
    fn has_in_files(&self, text: &str) -> bool {
        let mut grep = Command::new("grep");
        grep.args(["--recursive", "--text", "--quiet", "--fixed-strings", text]);
        let done = run(grep.arg(self.server.path("data")), b"");
        assert!(done.code <= 1, "{done:?}");
        done.success
    }
}

/// A message that one node has taken and cannot deliver.
struct Waiting {
    name: String,
    id: String,
    taker: usize,
    /// The other node that has it.
    other: usize,
}

impl Waiting {
    fn at(scene: &mut Scene, taker: usize, size: usize) -> Waiting {
        let mut turn = 0;
        let (name, id) = wait_for("a message that waits", || {
            let node = &scene.nodes[taker];
            wait_for("a disk to be quiet", || node.is_quiet().then_some(()));
            turn += 1;
            let name = format!("taken-by-{}-{turn}-", NAMES[taker]);
            let text = message::bytes(&name, size);
            node.server.tell_preloaded(turn);
            let (reply, was_stuck) = deliver(node, &text);
            match (reply.is(2), was_stuck) {
                (true, false) => {
                    let id = reply.lines[0].split(' ').nth(1).unwrap();
                    return Some((name, id.to_owned()));
                }
                (true, true) => _ = scene.expected.insert(name, BTreeSet::new()),
                (false, _) => assert_eq!(reply.code, 451, "{reply:?}"),
            }
            node.server.tell_preloaded(0);
            None
        });
        let node = &scene.nodes[taker];
        let entry = entry_of(node, &id);
        assert_eq!(entry["state"], "delivering", "{entry}");
        assert_eq!(entry["recipients"][0]["open"], true, "{entry}");
        let copies = entry["copies"].as_array().unwrap();
        assert_eq!(copies.len(), 1, "{entry}");
        let other = NAMES.iter().position(|name| copies[0] == *name).unwrap();
        Waiting {
            name,
            id,
            taker,
            other,
        }
    }

    /// Looks at all nodes; those that have nothing of it.
    fn strangers(&self, scene: &Scene) -> Vec<usize> {
        let is_owner = |of: &usize| [self.taker, self.other].contains(of);
        let (owners, strangers): (Vec<usize>, Vec<usize>) =
            (0..scene.nodes.len()).partition(is_owner);
        assert_eq!((owners.len(), strangers.len()), (2, 2));
        for of in owners {
            let node = &scene.nodes[of];
            let entry = entry_of(node, &self.id);
            assert_eq!(entry["delivered_by"], NAMES[self.taker], "{entry}");
            // If it could not be found here, what others have not would say nothing.
            assert!(node.has_in_files(&self.name), "{}", NAMES[of]);
        }
        for of in &strangers {
            let node = &scene.nodes[*of];
            assert_eq!(node.entries(), Vec::<Value>::new(), "{}", NAMES[*of]);
            assert_eq!(node.figure("whimbrel_queue_entries "), 0);
            let shown = node.server.admin(&["queue", "show", &self.id], "");
            assert!(
                !shown.success && shown.stderr.contains("no queue entry"),
                "{shown:?}"
            );
            assert!(!node.has_in_files(&self.name), "{}", NAMES[*of]);
        }
        strangers
    }
}

/// Brings a message to a node whose disk stops behind the next sync. If that is one of something else, nobody hears anything from this disk: then it
/// goes on, and whatever became of the message, it does not wait.
fn deliver(node: &Node, text: &[u8]) -> (MailReply, bool) {
    scope(|scope| {
        let sender = scope.spawn(|| {
            let mut mail = Mail::lmtp(node.server.ports.lmtp).unwrap();
            let replies = mail.deliver("carl@example.net", &[ACCOUNTS[0].0], text, true);
            replies.unwrap().remove(0)
        });
        let started = Instant::now();
        while !sender.is_finished() && started.elapsed() < STUCK_AFTER {
            sleep(LOOK_EVERY);
        }
        let is_stuck = !sender.is_finished();
        if is_stuck {
            node.server.tell_preloaded(0);
        }
        (sender.join().unwrap(), is_stuck)
    })
}

/// The only entry that a node has.
fn entry_of(node: &Node, id: &str) -> Value {
    let mut entries = node.entries();
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0]["id"], id, "{entries:?}");
    entries.remove(0)
}

#[test]
fn an_entry_is_at_the_node_that_took_it_and_at_f_others_alone() {
    let mut nodes: Vec<Node> = Vec::new();
    for name in NAMES {
        let port = free_port();
        let f = ("queue", "other_nodes = 1");
        let mut node = Node::with(name, port, port, nodes.is_empty(), &[f]);
        node.server.preload("holdsync", "HOLD_SYNC");
        node.begin(nodes.first());
        nodes.push(node);
    }
    for node in &nodes {
        wait_for("links", || (node.links() == 3).then_some(()));
        wait_for("the account", || node.server.login(ACCOUNTS[0]).ok());
    }
    let all = [0, 1, 2, 3];
    let mut scene = Scene::new(nodes);
    for taker in all {
        // Nothing else is to be written there.
        all.iter().for_each(|of| scene.wait_for_copies_of(*of));
        let waiting = Waiting::at(&mut scene, taker, SIZES[taker % SIZES.len()]);
        let strangers = waiting.strangers(&scene);
        if taker == all[3] {
            // What they had in memory alone would be on their disks now.
            for of in strangers {
                let node = &mut scene.nodes[of];
                node.server.stop();
                assert_eq!(node.on_disk("queued"), 0, "{}", NAMES[of]);
                assert!(!node.has_in_files(&waiting.name), "{}", NAMES[of]);
                node.server.start(&[]);
            }
        }
        scene.nodes[taker].server.tell_preloaded(0);
        // Delivered, it is at all nodes, and the entry at none.
        scene.expected.insert(waiting.name, BTreeSet::new());
        scene.wait_alike(&all);
        for node in &scene.nodes {
            wait_for("no entries", || node.has_no_entries().then_some(()));
            assert_eq!(node.entries(), Vec::<Value>::new());
        }
    }
    // When the mailbox is gone, too, nothing holds the bodies any more.
    let remove = ["account", "remove", ACCOUNTS[0].0, "--yes"];
    let _ = scene.nodes[0].server.admin(&remove, "").expect("remove");
    for node in &scene.nodes {
        wait_for("the account to be gone", || {
            node.server.login(ACCOUNTS[0]).is_err().then_some(())
        });
    }
    wait_for("the bodies to be gone", || {
        scene.nodes.iter_mut().for_each(|node| node.server.stop());
        let on_disk = |what: &str| scene.nodes.iter().map(|of| of.on_disk(what)).sum::<u64>();
        assert_eq!(on_disk("queued"), 0);
        let are_gone = on_disk("blobs") == 0;
        if !are_gone {
            let nodes = scene.nodes.iter_mut();
            nodes.for_each(|node| node.server.start(&[]));
        }
        are_gone.then_some(())
    });
}
