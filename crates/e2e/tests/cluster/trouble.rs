//! What two-way synchronizers of mailboxes are known to get wrong (dsync's list: mail doubled, deleted mail back, a new UIDVALIDITY, a flag lost), and worse
//! lines between nodes: cuts that go round, loss in one direction, one mailbox written from everywhere.
//!
//! Clients are judged as in the other tests: each look at a node is a strict client's, who keeps what he was told ([`Witness`]).

use super::*;
use crate::proxy::Side;

/// Three nodes with a way of its own from each to each other one.
pub(crate) struct Triangle {
    pub(crate) scene: Scene,
    /// From, to.
    ways: Vec<([usize; 2], Proxy)>,
    /// UIDVALIDITY, which nothing here may change.
    validity: u32,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Triangle {
    pub(crate) fn new() -> Triangle {
        Triangle::of(binary())
    }

    /// Of nodes that run this program.
    pub(crate) fn of(program: &Path) -> Triangle {
        let ports: Vec<u16> = NAMES.iter().map(|_| free_port()).collect();
        let mut ways = Vec::new();
        let mut nodes: Vec<Node> = Vec::new();
        for (from, name) in NAMES.into_iter().enumerate() {
            let mut others = Vec::new();
            for (to, other) in NAMES.into_iter().enumerate().filter(|(to, _)| *to != from) {
                let way = Proxy::start(ports[to]);
                others.push((other, way.port));
                ways.push(([from, to], way));
            }
            let mut node = Node::new(name, ports[from], ports[from], &others, from == 0);
            node.server.program = program.to_owned();
            node.begin(nodes.first());
            nodes.push(node);
        }
        let mut triangle = Triangle {
            scene: Scene::new(nodes),
            ways,
            validity: 0,
        };
        triangle.wait_links([2, 2, 2]);
        for node in [1, 2] {
            wait_for("the account", || {
                triangle.scene.nodes[node].server.login(ACCOUNTS[0]).ok()
            });
        }
        triangle.validity = triangle.validity_at(0);
        triangle
    }

    /// A node whose clock is wrong takes no writes, by whatever protocol, says why, and can be read.
    fn refuses(&self, node: usize) {
        let node = &self.scene.nodes[node];
        let text = message::bytes("refused", 3000);
        let mut imap = node.server.anne();
        let put = imap.append("INBOX", &[], &text).unwrap();
        let said = format!("{put:?}");
        assert_eq!(put.status, Status::No, "{said}");
        assert!(
            said.contains("UNAVAILABLE") && said.contains("clock"),
            "{said}"
        );
        let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
        let set = imap.command("STORE 1 +FLAGS (\\Answered)").unwrap();
        assert_eq!(set.status, Status::No, "{set:?}");
        let _ = imap.command("FETCH 1 (FLAGS BODY[])").unwrap().ok("FETCH");
        let mut mail = Mail::lmtp(node.server.ports.lmtp).unwrap();
        let replies = mail.deliver("carl@example.net", &[ACCOUNTS[0].0], &text, true);
        let reply = &replies.unwrap()[0];
        assert!(reply.is(4), "{reply:?}");
        assert!(
            node.server
                .log()
                .contains("nothing is written while that is so")
        );
    }

    /// It takes a message, once it has found out that its clock is right.
    fn writes_again(&mut self, node: usize, name: &str) {
        let text = message::bytes(name, 3000);
        wait_for("the node to write again", || {
            let mut imap = self.scene.nodes[node].server.anne();
            let put = imap.append("INBOX", &[], &text).unwrap();
            (put.status == Status::Ok).then_some(())
        });
        self.scene.expected.insert(name.to_owned(), BTreeSet::new());
    }

    fn validity_at(&self, node: usize) -> u32 {
        let server = &self.scene.nodes[node].server;
        let mut imap = server.anne();
        server.contents(&mut imap, "INBOX").unwrap().validity
    }

    pub(crate) fn wait_links(&self, expected: [usize; 3]) {
        wait_for(&format!("links {expected:?}"), || {
            let links: Vec<usize> = self.scene.nodes.iter().map(Node::links).collect();
            (links == expected).then_some(())
        });
    }

    /// Ways between these two, in both directions.
    fn between(&self, ends: [usize; 2]) -> impl Iterator<Item = &([usize; 2], Proxy)> {
        let [one, other] = ends;
        self.ways
            .iter()
            .filter(move |(of, _)| *of == [one, other] || *of == [other, one])
    }

    pub(crate) fn cut(&self, ends: [usize; 2]) {
        self.between(ends).for_each(|(_, way)| way.cut());
    }

    pub(crate) fn heal(&self, ends: [usize; 2]) {
        self.between(ends).for_each(|(_, way)| way.heal());
    }

    pub(crate) fn cut_off(&self, node: usize) {
        (0..3)
            .filter(|other| *other != node)
            .for_each(|other| self.cut([node, other]));
    }

    pub(crate) fn heal_all(&self) {
        self.ways.iter().for_each(|(_, way)| way.heal());
    }

    /// All show what is expected, under the same UIDs, and the UIDVALIDITY of the beginning.
    pub(crate) fn alike(&mut self) {
        self.scene.wait_alike(&[0, 1, 2]);
        for node in 0..3 {
            assert_eq!(self.validity_at(node), self.validity, "node {node}");
        }
    }

    pub(crate) fn stop(mut self) {
        for node in &mut self.scene.nodes {
            node.server.stop();
        }
    }
}

impl Scene {
    /// As a user does it who puts a message there: that takes no other node.
    pub(crate) fn put(&mut self, node: usize, name: &str) {
        let text = message::bytes(name, 3000);
        let mut imap = self.nodes[node].server.anne();
        let _ = imap.append("INBOX", &[], &text).unwrap().ok("APPEND");
        self.expected.insert(name.to_owned(), BTreeSet::new());
    }

    /// Removes a message for good.
    pub(crate) fn expunge(&mut self, node: usize, name: &str) {
        self.nodes[node].store(name, "\\Deleted");
        let mut imap = self.nodes[node].server.anne();
        let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
        let _ = imap.command("EXPUNGE").unwrap().ok("EXPUNGE");
        self.expected.remove(name);
    }
}

#[test]
fn mail_that_both_sides_have_is_not_doubled_and_deleted_mail_does_not_come_back() {
    let mut triangle = Triangle::new();
    let names = ["kept", "deleted here", "deleted there", "deleted on both"];
    for (index, name) in names.into_iter().enumerate() {
        triangle.scene.deliver(index % 3, name);
    }
    triangle.alike();

    triangle.cut_off(2);
    triangle.wait_links([1, 1, 0]);
    triangle.scene.expunge(0, "deleted here");
    triangle.scene.expunge(2, "deleted there");
    // The same is done to one message on both sides, and what the other side deletes is still flagged here.
    triangle.scene.nodes[2].store("deleted on both", "\\Flagged");
    triangle.scene.expunge(1, "deleted on both");
    triangle.scene.nodes[2].store("deleted here", "\\Seen");
    // Looked at on both sides, as by clients that synchronize what they see.
    for node in 0..3 {
        let _ = triangle.scene.look(node);
    }
    triangle.scene.put(2, "new there");
    triangle.scene.deliver(0, "new here");
    triangle.heal_all();
    triangle.alike();

    // A node that was down while others deleted brings nothing back either.
    triangle.scene.nodes[2].server.kill();
    triangle.scene.expunge(0, "new there");
    triangle.scene.nodes[2].server.start(&[]);
    triangle.alike();
    triangle.stop();
}

#[test]
fn different_flags_of_two_sides_are_both_kept() {
    let mut triangle = Triangle::new();
    for name in ["one", "two", "three"] {
        triangle.scene.deliver(0, name);
    }
    triangle.alike();
    triangle.cut_off(1);
    triangle.wait_links([1, 0, 1]);
    for (node, flags) in [
        (0, ["\\Seen", "\\Answered", "$Work"]),
        (1, ["\\Flagged", "\\Draft", "$Home"]),
        (2, ["\\Answered", "\\Seen", "$Later"]),
    ] {
        for (name, flag) in ["one", "two", "three"].into_iter().zip(flags) {
            triangle.scene.store(node, name, flag);
        }
    }
    triangle.heal_all();
    triangle.alike();

    // Taken away on one side and untouched on the other: it is gone. Set anew on the other side meanwhile: it is there.
    triangle.cut_off(1);
    triangle.wait_links([1, 0, 1]);
    for (node, name) in [(0, "one"), (0, "two")] {
        let mut imap = triangle.scene.nodes[node].server.anne();
        let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
        let found = imap.command(&format!("SEARCH SUBJECT \"{name}\"")).unwrap();
        let number = found.ok("SEARCH").found()[0];
        let command = format!("STORE {number} -FLAGS (\\Seen \\Answered)");
        let _ = imap.command(&command).unwrap().ok("STORE");
        let flags = triangle.scene.expected.get_mut(name).unwrap();
        flags.remove("\\Seen");
        flags.remove("\\Answered");
    }
    triangle.heal_all();
    triangle.alike();
    triangle.stop();
}

#[test]
fn a_ring_of_cuts_doubles_and_loses_nothing() {
    let mut triangle = Triangle::new();
    triangle.scene.deliver(0, "at the beginning");
    triangle.alike();
    // There is always a way round, and what goes round meets what comes straight when a cut is healed.
    let ring = [[0, 1], [1, 2], [2, 0]];
    for (turn, ends) in ring.into_iter().cycle().take(6).enumerate() {
        triangle.cut(ends);
        let mut links = [2, 2, 2];
        ends.iter().for_each(|end| links[*end] -= 1);
        triangle.wait_links(links);
        for node in ends {
            triangle
                .scene
                .deliver(node, &format!("turn {turn} at {node}"));
        }
        triangle
            .scene
            .store(ends[turn % 2], "at the beginning", &format!("$Turn{turn}"));
        triangle.heal(ends);
    }
    triangle.alike();

    // All apart at once, and back one by one.
    ring.iter().for_each(|ends| triangle.cut(*ends));
    triangle.wait_links([0, 0, 0]);
    for node in 0..3 {
        triangle.scene.put(node, &format!("alone at {node}"));
        triangle
            .scene
            .store(node, "at the beginning", &format!("$Alone{node}"));
    }
    ring.iter().for_each(|ends| triangle.heal(*ends));
    triangle.alike();
    triangle.stop();
}

#[test]
fn bytes_that_go_in_one_direction_only_hurt_nobody() {
    let mut triangle = Triangle::new();
    triangle.scene.deliver(0, "before");
    triangle.alike();
    // Nothing of what the third node says arrives; what others say to it does.
    let muted = |muted: bool| {
        for ([from, to], way) in &triangle.ways {
            match 2 {
                node if node == *from => way.hold(Side::Dialer, muted),
                node if node == *to => way.hold(Side::Dialed, muted),
                _ => {}
            }
        }
    };
    muted(true);
    triangle.scene.put(2, "said by who is not heard");
    triangle.scene.store(2, "before", "\\Flagged");
    triangle.scene.deliver(0, "said by who is heard");
    triangle.scene.store(0, "before", "\\Seen");
    triangle.scene.deliver(1, "said by who hears both");
    let heard = triangle.scene.see(0);
    assert!(!shown(&heard).contains_key("said by who is not heard"));
    // The others agree meanwhile.
    wait_for("the two to agree", || {
        let looks = [0, 1].map(|node| shown(&triangle.scene.see(node)));
        (looks[0] == looks[1] && looks[0].len() == 3).then_some(())
    });
    // And it is noticed: who is not heard is not linked.
    triangle.wait_links([1, 1, 0]);
    let muted = |muted: bool| {
        for (_, way) in &triangle.ways {
            way.hold(Side::Dialer, muted);
            way.hold(Side::Dialed, muted);
        }
    };
    muted(false);
    triangle.alike();
    triangle.stop();
}

#[test]
fn one_mailbox_is_written_from_all_nodes_at_once() {
    const EACH: usize = 15;
    let mut triangle = Triangle::new();
    triangle.scene.deliver(0, "shared");
    triangle.alike();
    // Every node has its own writers; all of them are at one mailbox, and one node comes and goes.
    std::thread::scope(|scope| {
        for (node, server) in triangle.scene.nodes.iter().enumerate() {
            scope.spawn(move || {
                for turn in 0..EACH {
                    server.deliver(&format!("load {turn} of {node}"));
                }
            });
            scope.spawn(move || {
                for turn in 0..EACH {
                    server.store("shared", &format!("$Load{node}x{turn}"));
                }
            });
        }
        for _ in 0..3 {
            triangle.cut_off(1);
            triangle.wait_links([1, 0, 1]);
            triangle.heal_all();
            triangle.wait_links([2, 2, 2]);
        }
    });
    for node in 0..3 {
        for turn in 0..EACH {
            let name = format!("load {turn} of {node}");
            triangle.scene.expected.insert(name, BTreeSet::new());
            let flags = triangle.scene.expected.get_mut("shared").unwrap();
            flags.insert(format!("$Load{node}x{turn}"));
        }
    }
    triangle.alike();
    triangle.stop();
}

#[test]
fn a_node_whose_clock_is_set_writes_nothing_until_it_is_right() {
    const HOUR: i64 = 3600;
    let mut triangle = Triangle::new();
    triangle.scene.deliver(2, "before");
    triangle.alike();
    triangle.scene.store(2, "before", "\\Flagged");
    triangle.alike();
    triangle.scene.nodes[2].server.stop();
    triangle.scene.nodes[2]
        .server
        .preload("clockshift", "CLOCK_SHIFT");
    triangle.scene.nodes[2].server.tell_preloaded(-HOUR);
    triangle.scene.nodes[2].server.start(&[]);
    triangle.wait_links([2, 2, 2]);
    // It was told so by the others before it served anybody.
    triangle.refuses(2);
    // What others write is of the future there: it is stored, and shown when its time has come.
    triangle.scene.deliver(0, "meanwhile");
    triangle.scene.wait_alike(&[0, 1]);
    let _ = triangle.scene.look(2);
    wait_for("the distance to be told", || {
        let status = triangle.scene.nodes[2].status();
        assert!(status.contains("this node writes nothing"), "{status}");
        status.contains("clock +3600.").then_some(())
    });
    // The others see it, and go on.
    let figure = |node: usize, of: &str| {
        let name = format!("whimbrel_cluster_clock_{of} ");
        triangle.scene.nodes[node].figure(&name)
    };
    assert_eq!([0, 1, 2].map(|node| figure(node, "wrong")), [0, 0, 1]);
    wait_for("the distance to be measured", || {
        let off = figure(0, "off_seconds");
        (off.abs_diff(3600) < 60).then_some(())
    });
    // Mended while it runs.
    triangle.scene.nodes[2].server.tell_preloaded(0);
    triangle.writes_again(2, "after");
    triangle.alike();
    triangle.scene.store(1, "after", "\\Seen");
    // Set ahead while it runs and clients write: nothing is stamped in the future, where others would not take it.
    triangle.scene.nodes[2].server.tell_preloaded(HOUR);
    triangle.refuses(2);
    triangle.scene.nodes[2].server.tell_preloaded(0);
    triangle.writes_again(2, "last");
    triangle.alike();
    triangle.stop();
}
