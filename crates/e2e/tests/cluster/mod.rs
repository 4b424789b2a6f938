//! Three processes that hold the same accounts, over mutual TLS on loopback.
//!
//! Everything to and from the third node goes through a [`Proxy`], so that it can be cut off while its clients still reach it. A strict client looks
//! at every node each time: no UID denotes two messages, on any node, and none that is new lies below a UIDNEXT that this node has told.

mod alike;
mod apart;
mod clients;
mod confirmed;
mod directory;
mod entries;
mod fronts;
mod guide;
mod holders;
mod identity;
mod ledger;
mod lost;
mod mail;
mod members;
mod mesh;
mod moving;
mod positions;
mod proxy;
mod relays;
mod rolling;
mod senders;
mod slots;
mod snapshots;
mod syncing;
mod trouble;
mod work;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
    sync::Arc,
};

use proxy::Proxy;
use whimbrel_e2e::{
    device::Device,
    imap::{Imap, Response, Status},
    mail::Mail,
    message,
    process::{Done, wait_for},
    server::{ACCOUNTS, Builder, Message, Server, binary, free_port},
    strict::{self, Strict},
    uid_history::Witness,
};

thread_local! {
    /// What clients of the cluster of this test know: it begins anew with the node that founds one.
    static STRICT: RefCell<Arc<Strict>> = RefCell::default();
}

struct Node {
    server: Server,
    peers: u16,
}

impl Node {
    /// One that takes mail also when it is cut off.
    fn new(name: &str, listen: u16, told: u16, others: &[(&str, u16)], first: bool) -> Node {
        Node::among(name, listen, told, others, first, &[])
    }

    /// The same, with more in its configuration.
    fn among(
        name: &str,
        listen: u16,
        told: u16,
        others: &[(&str, u16)],
        first: bool,
        more: &[(&str, &str)],
    ) -> Node {
        let others: Vec<String> = others
            .iter()
            .map(|(name, port)| format!("\"{name}=127.0.0.1:{port}\""))
            .collect();
        let peers = format!("peers = [{}]", others.join(", "));
        let region = format!("region = \"{name}-land\"");
        let of_all = [
            ("cluster", region.as_str()),
            ("cluster", &peers),
            ("queue", "other_nodes = 0"),
        ];
        Node::with(name, listen, told, first, &[&of_all, more].concat())
    }

    fn with(name: &str, listen: u16, told: u16, first: bool, more: &[(&str, &str)]) -> Node {
        let mut builder = Builder::default()
            .set("cluster", &format!("name = \"{name}\""))
            .set("cluster", &format!("listen = [\"127.0.0.1:{listen}\"]"))
            .set("cluster", &format!("address = \"127.0.0.1:{told}\""))
            .set("queue", "takeover_after = \"5s\"");
        for (section, line) in more {
            builder = builder.set(section, line);
        }
        let builder = if first { builder } else { builder.empty() };
        let server = builder.build();
        // Clients of all nodes know the same. No test can do without: whoever connects to one of its nodes is such a client.
        STRICT.with_borrow_mut(|strict| {
            if first {
                *strict = Arc::default();
            }
            for port in [server.ports.imaps, server.ports.imap] {
                strict::watch(port, strict);
            }
        });
        Node {
            server,
            peers: listen,
        }
    }

    fn cluster(&self, arguments: &[&str]) -> Done {
        self.server.admin(&[&["cluster"], arguments].concat(), "")
    }

    fn token(&self) -> String {
        self.cluster(&["token"]).expect("cluster token")
    }

    fn join(&mut self, sponsor: &Node) {
        let _ = self
            .cluster(&["join", sponsor.token().trim()])
            .expect("cluster join");
        self.server.start(&[]);
        self.wait_complete();
    }

    /// Waits until it serves by itself: before that its clients are looking at other nodes.
    fn wait_complete(&self) {
        if self.server.program == binary() {
            wait_for("the new node to have all", || {
                // Behind its last start: another node may have been here before.
                let log = self.server.log();
                let last = log.rsplit("a member of a cluster").next()?;
                last.contains("this node has caught up with another node")
                    .then_some(())
            });
        }
    }

    /// Founds a cluster, or is let in by this one.
    fn begin(&mut self, sponsor: Option<&Node>) {
        match sponsor {
            None => {
                let _ = self.cluster(&["init"]).expect("cluster init");
                self.server.start(&[]);
            }
            Some(sponsor) => self.join(sponsor),
        }
    }

    /// All that it knows of the nodes.
    fn status(&self) -> String {
        self.status_with(&["--verbose"])
    }

    /// The status, whether all is well or not.
    fn status_with(&self, options: &[&str]) -> String {
        const NOT_WELL: i32 = 5;
        const USAGE: i32 = 2;
        let done = self.cluster(&[&["status"], options].concat());
        // An earlier version says all of it without being asked.
        let is_earlier = done.code == USAGE && options == ["--verbose"];
        let done = match is_earlier {
            true => self.cluster(&["status"]),
            false => done,
        };
        match done.code {
            NOT_WELL => done.stdout,
            _ => done.expect("cluster status"),
        }
    }

    /// One of its metrics.
    fn figure(&self, name: &str) -> u64 {
        wait_for("figures of this moment", || {
            let text = self.server.http("/metrics");
            let mut stale = text
                .lines()
                .filter(|line| line.starts_with("whimbrel_figures_stale{"));
            if !stale.all(|line| line.ends_with(" 0")) {
                return None;
            }
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse().ok()
        })
    }

    /// How many links it has.
    fn links(&self) -> usize {
        self.status().matches("  linked").count()
    }

    fn deliver(&self, name: &str) {
        let mut mail = Mail::lmtp(self.server.ports.lmtp).unwrap();
        let text = message::bytes(name, 3000);
        let replies = mail.deliver("carl@example.net", &[ACCOUNTS[0].0], &text, true);
        assert!(replies.unwrap()[0].is(2));
    }

    fn append(&self, name: &str) {
        let text = message::bytes(name, 3000);
        let reply = self.server.anne().append("INBOX", &[], &text);
        let _ = reply.unwrap().ok("APPEND");
    }

    fn store(&self, name: &str, flag: &str) {
        let mut imap = self.server.anne();
        let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
        let found = imap.command(&format!("SEARCH SUBJECT \"{name}\"")).unwrap();
        let found = found.ok("SEARCH").found();
        assert_eq!(found.len(), 1, "{name}");
        let command = format!("STORE {} +FLAGS ({flag})", found[0]);
        let _ = imap.command(&command).unwrap().ok("STORE");
    }
}

/// Names of messages and their flags.
type Shown = BTreeMap<String, BTreeSet<String>>;

struct Scene {
    nodes: Vec<Node>,
    /// What the client of each node knows, and one for what no node may do to another.
    witnesses: Vec<Witness>,
    all: Witness,
    expected: Shown,
    /// A client that goes from node to node.
    device: Option<Device>,
    /// Sessions are brought to other nodes, now to this one, now to that: what UIDNEXT one has told another one need not have reached (U2 is of one node).
    brought: bool,
}

impl Scene {
    fn new(nodes: Vec<Node>) -> Scene {
        Scene {
            witnesses: nodes.iter().map(|_| Witness::default()).collect(),
            nodes,
            all: Witness::default(),
            expected: Shown::new(),
            device: None,
            brought: false,
        }
    }

    /// Waits until all others have what was acknowledged at a node, bodies too: it may die.
    fn wait_for_copies_of(&self, node: usize) {
        wait_for("copies at all nodes", || {
            let lag = self.nodes[node].figure("whimbrel_cluster_lag_operations");
            let missing = |node: &Node| node.figure("whimbrel_cluster_blobs_missing");
            (lag + self.nodes.iter().map(missing).sum::<u64>() == 0).then_some(())
        });
    }

    fn look(&mut self, index: usize) -> Option<Vec<Message>> {
        let server = &self.nodes[index].server;
        let mut imap = server.login(ACCOUNTS[0]).ok()?;
        let contents = server.contents(&mut imap, "INBOX").ok()?;
        let names: Vec<(u32, String)> = contents
            .messages
            .iter()
            .map(|message| (message.uid, message::name_of(&message.bytes).unwrap()))
            .collect();
        self.all.forget_next();
        if self.brought {
            self.witnesses[index].forget_next();
        }
        for witness in [&mut self.witnesses[index], &mut self.all] {
            let looked = witness.look("INBOX", contents.validity, contents.next, &names);
            looked.unwrap_or_else(|breach| panic!("node {index}: {breach}"));
        }
        Some(contents.messages)
    }

    /// What a node shows: a look during which something comes is none.
    fn see(&mut self, index: usize) -> Vec<Message> {
        wait_for("a look at all of it", || self.look(index))
    }

    fn deliver(&mut self, node: usize, name: &str) {
        self.nodes[node].deliver(name);
        self.expected.insert(name.to_owned(), BTreeSet::new());
    }

    fn store(&mut self, node: usize, name: &str, flag: &str) {
        self.nodes[node].store(name, flag);
        self.expected.get_mut(name).unwrap().insert(flag.to_owned());
    }
}

/// What is there twice is there under another name, too, which nobody expects.
fn shown(messages: &[Message]) -> Shown {
    let mut shown = Shown::new();
    for message in messages {
        let flags = message.flags.iter().filter(|flag| *flag != "\\Recent");
        let mut name = message::name_of(&message.bytes).unwrap();
        while shown.contains_key(&name) {
            name.push_str(", doubled");
        }
        shown.insert(name, flags.cloned().collect());
    }
    shown
}

/// What an idling session is told next of how many messages there are.
fn told_exists(imap: &mut Imap) -> u32 {
    loop {
        // Others are of flags, or say that all is well.
        if let Response::Exists(count) = imap.response().unwrap() {
            return count;
        }
    }
}

#[test]
fn three_nodes_hold_the_same_accounts() {
    let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
    // To the third node, and from it to the others.
    let to_c = Proxy::start(ports[2]);
    let (to_a, to_b) = (Proxy::start(ports[0]), Proxy::start(ports[1]));
    let of_c = [("a", to_a.port), ("b", to_b.port)];
    let mut a = Node::new("a", ports[0], ports[0], &[], true);
    let mut b = Node::new("b", ports[1], ports[1], &[], false);
    let mut c = Node::new("c", ports[2], to_c.port, &of_c, false);

    let early = a.cluster(&["token"]);
    assert!(early.stderr.contains("whimbrel cluster init"), "{early:?}");
    let _ = a.cluster(&["init"]).expect("cluster init");
    a.server.start(&[]);
    b.join(&a);
    let token = b.token();
    // Any member lets others in.
    let _ = c.cluster(&["join", token.trim()]).expect("cluster join");
    let again = Node::new("d", free_port(), c.peers, &[], false);
    let refused = again.cluster(&["join", token.trim()]);
    assert!(
        !refused.success && refused.stderr.contains("used"),
        "{refused:?}"
    );
    c.server.start(&[]);
    c.wait_complete();

    let mut scene = Scene::new(vec![a, b, c]);
    for node in &scene.nodes {
        wait_for("links", || (node.links() == 2).then_some(()));
    }
    // Accounts are where they were not made.
    wait_for("the account", || {
        scene.nodes[2].server.login(ACCOUNTS[0]).ok()
    });

    // Delivered at one, seen at another by who waits for it.
    scene.deliver(0, "first");
    scene.wait_alike(&[0, 1, 2]);
    let mut idle = scene.nodes[1].server.anne();
    let selected = idle.command("SELECT INBOX").unwrap().ok("SELECT");
    assert_eq!(selected.exists(), Some(1));
    let tag = idle.send(b"IDLE").unwrap();
    let _ = idle.response().unwrap();
    scene.deliver(0, "second");
    assert_eq!(told_exists(&mut idle), 2);
    scene.deliver(2, "third");
    assert_eq!(told_exists(&mut idle), 3);
    idle.wire.send(b"DONE\r\n").unwrap();
    assert_eq!(idle.reply(&tag).unwrap().status, Status::Ok);

    // Flags set at two sides are both there.
    scene.store(0, "first", "\\Seen");
    scene.store(2, "first", "\\Flagged");
    scene.wait_alike(&[0, 1, 2]);

    // One is killed; the others go on; it catches up.
    scene.nodes[2].server.kill();
    for name in ["fourth", "fifth"] {
        scene.deliver(0, name);
        scene.store(1, "second", "\\Answered");
    }
    scene.wait_alike(&[0, 1]);
    scene.nodes[2].server.start(&[]);
    scene.wait_alike(&[0, 1, 2]);

    // One is cut off; both sides write; all show the same when it is over.
    let proxies = [&to_a, &to_b, &to_c];
    proxies.iter().for_each(|proxy| proxy.cut());
    wait_for("the cut to be noticed", || {
        let links: Vec<usize> = scene.nodes.iter().map(Node::links).collect();
        (links == [1, 1, 0]).then_some(())
    });
    scene.deliver(2, "alone");
    scene.store(2, "third", "\\Seen");
    scene.deliver(0, "together");
    scene.deliver(1, "together-too");
    scene.store(1, "third", "\\Flagged");
    let all = scene.expected.clone();
    // Neither side has what the other did.
    let at_c = shown(&scene.see(2));
    assert!(
        at_c.len() < all.len() && !at_c.contains_key("together"),
        "{at_c:?}"
    );
    proxies.iter().for_each(|proxy| proxy.heal());
    scene.wait_alike(&[0, 1, 2]);

    // A new account, made at the node that was cut off.
    let _ = scene.nodes[2]
        .server
        .admin(
            &["account", "add", "dora@example.org", "--password-stdin"],
            "dora's",
        )
        .expect("account add");
    wait_for("the new account", || {
        scene.nodes[0]
            .server
            .login(("dora@example.org", "dora's"))
            .ok()
    });

    let slots: BTreeSet<String> = scene.nodes[0]
        .status()
        .lines()
        .filter_map(|line| Some(line.split("slot ").nth(1)?.split(' ').next()?.to_owned()))
        .collect();
    assert_eq!(slots.len(), 3, "{}", scene.nodes[0].status());
    for node in &mut scene.nodes {
        node.server.stop();
        let checked = node.server.admin(&["check"], "");
        let _ = checked.expect("a member's store without damage");
    }
}

/// Two nodes that know the account, and what lies before each.
fn two_behind_proxies() -> (Scene, [Proxy; 2]) {
    let ports = [free_port(), free_port()];
    let proxies = [Proxy::start(ports[0]), Proxy::start(ports[1])];
    let of_b = [("a", proxies[0].port)];
    let mut a = Node::new("a", ports[0], ports[0], &[], true);
    let mut b = Node::new("b", ports[1], proxies[1].port, &of_b, false);
    a.begin(None);
    b.begin(Some(&a));
    let scene = Scene::new(vec![a, b]);
    wait_for("the account", || {
        scene.nodes[1].server.login(ACCOUNTS[0]).ok()
    });
    (scene, proxies)
}

/// Two nodes of which the second goes on from an older disk, put back so that the directory itself does not show it: as a snapshot of a volume.
struct Old {
    scene: Scene,
    /// Everything between the second node and the first.
    proxies: [Proxy; 2],
}

impl Old {
    fn new() -> Old {
        let (mut scene, proxies) = two_behind_proxies();
        scene.deliver(1, "before");
        scene.wait_alike(&[0, 1]);
        scene.nodes[1].server.stop();
        let data = scene.nodes[1].server.path("data");
        let (store, kept) = (data.join("store"), data.join("kept"));
        // The file itself, which the next start replaces by another: a copy of it would show.
        fs::hard_link(data.join("node.toml"), data.join("node.kept")).unwrap();
        copy(&store, &kept);
        scene.nodes[1].server.start(&[]);
        scene.deliver(1, "lost here");
        scene.wait_alike(&[0, 1]);
        scene.nodes[1].server.stop();
        fs::remove_dir_all(&store).unwrap();
        fs::rename(&kept, &store).unwrap();
        fs::rename(data.join("node.kept"), data.join("node.toml")).unwrap();
        Old { scene, proxies }
    }

    /// It has another incarnation and another slot, and all that was lost.
    fn goes_on(mut self) {
        self.scene.wait_alike(&[0, 1]);
        self.scene.deliver(1, "after");
        self.scene.wait_alike(&[0, 1]);
        let status = self.scene.nodes[0].status();
        assert_eq!(status.matches("\nb  ").count(), 2, "{status}");
        for node in &mut self.scene.nodes {
            node.server.stop();
        }
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.unwrap().success());
}

#[test]
fn an_older_disk_is_noticed_by_the_peers_before_anything_is_written() {
    let mut old = Old::new();
    old.scene.nodes[1].server.start(&[]);
    let log = old.scene.nodes[1].server.log();
    assert!(log.contains("older than what its peers remember"), "{log}");
    old.goes_on();
}

#[test]
fn an_older_disk_is_noticed_when_the_peers_are_met() {
    let mut old = Old::new();
    old.proxies.iter().for_each(Proxy::cut);
    old.scene.nodes[1].server.start(&[]);
    old.proxies.iter().for_each(Proxy::heal);
    let node = &mut old.scene.nodes[1].server;
    assert_eq!(node.wait_end(), 3, "{}", node.tail());
    assert!(
        node.log().contains("takes a new incarnation"),
        "{}",
        node.tail()
    );
    node.start(&[]);
    old.goes_on();
}

#[test]
fn an_older_disk_that_was_written_to_does_not_meet_what_was_lost() {
    let mut old = Old::new();
    old.proxies.iter().for_each(Proxy::cut);
    old.scene.nodes[1].server.start(&[]);
    let add = ["account", "add", "eve@example.org", "--password-stdin"];
    let added = old.scene.nodes[1].server.admin(&add, "eve's");
    let _ = added.expect("account add");
    old.proxies.iter().for_each(Proxy::heal);
    let node = &mut old.scene.nodes[1].server;
    assert_eq!(node.wait_end(), 3, "{}", node.tail());
    for _ in 0..2 {
        let refused = node.admin(&["serve"], "");
        let said = format!("{refused:?}");
        assert!(
            !refused.success && said.contains("Move DATA/store away"),
            "{said}"
        );
    }
    let data = node.path("data");
    // What was written to it is in the store, which a server of its own can read.
    let mut alone = Builder::default().empty().build();
    let _ = fs::create_dir(alone.path("data"));
    fs::rename(data.join("store"), alone.path("data/store")).unwrap();
    node.start(&[]);
    alone.start(&[]);
    let listed = alone.admin(&["account", "list"], "");
    assert!(listed.stdout.contains("eve@example.org"), "{listed:?}");
    alone.stop();
    old.goes_on();
}

/// A node that waits for its peers for long when it starts takes writes all the same: its clock is judged by the one that its machines have.
#[test]
fn a_start_that_asks_in_vain_takes_writes() {
    let ports = [free_port(), free_port()];
    let mut a = Node::new("a", ports[0], ports[0], &[], true);
    let patient = [("cluster", "startup_timeout = \"6s\"")];
    let mut b = Node::among("b", ports[1], ports[1], &[], false, &patient);
    a.begin(None);
    b.begin(Some(&a));
    let mut scene = Scene::new(vec![a, b]);
    scene.deliver(0, "before");
    scene.wait_alike(&[0, 1]);
    scene.nodes.iter_mut().for_each(|node| node.server.stop());
    let b = &mut scene.nodes[1].server;
    b.start(&[]);
    let log = b.log();
    assert!(
        log.contains("could not be asked what it remembers"),
        "{log}"
    );
    scene.store(1, "before", "\\Flagged");
    scene.nodes[0].server.start(&[]);
    scene.wait_alike(&[0, 1]);
    scene.nodes.iter_mut().for_each(|node| node.server.stop());
}
