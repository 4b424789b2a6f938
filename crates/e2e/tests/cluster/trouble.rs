//! What two-way synchronizers of mailboxes are known to get wrong (dsync's list: mail doubled, deleted mail back, a new UIDVALIDITY, a flag lost), and worse
//! lines between nodes: cuts that go round, loss in one direction, one mailbox written from everywhere.
//!
//! Clients are judged as in the other tests: each look at a node is a strict client's, who keeps what he was told ([`Witness`]).

use super::proxy::Side;
use super::{alike::converge, mesh::Mesh, *};

impl Mesh {
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
    let mut mesh = Mesh::new(3);
    let names = ["kept", "deleted here", "deleted there", "deleted on both"];
    for (index, name) in names.into_iter().enumerate() {
        mesh.scene.deliver(index % 3, name);
    }
    mesh.alike();

    mesh.cut_off(2);
    mesh.wait_links(&[1, 1, 0]);
    mesh.scene.expunge(0, "deleted here");
    mesh.scene.expunge(2, "deleted there");
    // The same is done to one message on both sides, and what the other side deletes is still flagged here.
    mesh.scene.nodes[2].store("deleted on both", "\\Flagged");
    mesh.scene.expunge(1, "deleted on both");
    mesh.scene.nodes[2].store("deleted here", "\\Seen");
    // Looked at on both sides, as by clients that synchronize what they see.
    for node in 0..3 {
        let _ = mesh.scene.look(node);
    }
    mesh.scene.put(2, "new there");
    mesh.scene.deliver(0, "new here");
    mesh.heal_all();
    mesh.alike();

    // A node that was down while others deleted brings nothing back either.
    mesh.scene.nodes[2].server.kill();
    mesh.scene.expunge(0, "new there");
    mesh.scene.nodes[2].server.start(&[]);
    mesh.alike();
    mesh.stop();
}

#[test]
fn different_flags_of_two_sides_are_both_kept() {
    let mut mesh = Mesh::new(3);
    for name in ["one", "two", "three"] {
        mesh.scene.deliver(0, name);
    }
    mesh.alike();
    mesh.cut_off(1);
    mesh.wait_links(&[1, 0, 1]);
    for (node, flags) in [
        (0, ["\\Seen", "\\Answered", "$Work"]),
        (1, ["\\Flagged", "\\Draft", "$Home"]),
        (2, ["\\Answered", "\\Seen", "$Later"]),
    ] {
        for (name, flag) in ["one", "two", "three"].into_iter().zip(flags) {
            mesh.scene.store(node, name, flag);
        }
    }
    mesh.heal_all();
    mesh.alike();

    // Taken away on one side and untouched on the other: it is gone. Set anew on the other side meanwhile: it is there.
    mesh.cut_off(1);
    mesh.wait_links(&[1, 0, 1]);
    for (node, name) in [(0, "one"), (0, "two")] {
        let mut imap = mesh.scene.nodes[node].server.anne();
        let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
        let found = imap.command(&format!("SEARCH SUBJECT \"{name}\"")).unwrap();
        let number = found.ok("SEARCH").found()[0];
        let command = format!("STORE {number} -FLAGS (\\Seen \\Answered)");
        let _ = imap.command(&command).unwrap().ok("STORE");
        let flags = mesh.scene.expected.get_mut(name).unwrap();
        flags.remove("\\Seen");
        flags.remove("\\Answered");
    }
    mesh.heal_all();
    mesh.alike();
    mesh.stop();
}

#[test]
fn a_ring_of_cuts_doubles_and_loses_nothing() {
    let mut mesh = Mesh::new(3);
    mesh.scene.deliver(0, "at the beginning");
    mesh.alike();
    // There is always a way round, and what goes round meets what comes straight when a cut is healed.
    let ring = [[0, 1], [1, 2], [2, 0]];
    for (turn, ends) in ring.into_iter().cycle().take(6).enumerate() {
        mesh.cut(ends);
        let mut links = [2, 2, 2];
        ends.iter().for_each(|end| links[*end] -= 1);
        mesh.wait_links(&links);
        for node in ends {
            mesh.scene.deliver(node, &format!("turn {turn} at {node}"));
        }
        mesh.scene
            .store(ends[turn % 2], "at the beginning", &format!("$Turn{turn}"));
        mesh.heal(ends);
    }
    mesh.alike();

    // All apart at once, and back one by one.
    ring.iter().for_each(|ends| mesh.cut(*ends));
    mesh.wait_links(&[0, 0, 0]);
    for node in 0..3 {
        mesh.scene.put(node, &format!("alone at {node}"));
        mesh.scene
            .store(node, "at the beginning", &format!("$Alone{node}"));
    }
    ring.iter().for_each(|ends| mesh.heal(*ends));
    mesh.alike();
    mesh.stop();
}

#[test]
fn bytes_that_go_in_one_direction_only_hurt_nobody() {
    let mut mesh = Mesh::new(3);
    mesh.scene.deliver(0, "before");
    mesh.alike();
    // Nothing of what the third node says arrives; what others say to it does.
    let muted = |muted: bool| {
        for ([from, to], way) in &mesh.ways {
            match 2 {
                node if node == *from => way.hold(Side::Dialer, muted),
                node if node == *to => way.hold(Side::Dialed, muted),
                _ => {}
            }
        }
    };
    muted(true);
    mesh.scene.put(2, "said by who is not heard");
    mesh.scene.store(2, "before", "\\Flagged");
    mesh.scene.deliver(0, "said by who is heard");
    mesh.scene.store(0, "before", "\\Seen");
    mesh.scene.deliver(1, "said by who hears both");
    let heard = mesh.scene.see(0);
    assert!(!shown(&heard).contains_key("said by who is not heard"));
    // The others agree meanwhile.
    let _ = converge(
        &[0, 1],
        |node| mesh.scene.look(node),
        |messages| (messages.len() != 3).then(|| format!("{} messages", messages.len())),
    );
    // And it is noticed: who is not heard is not linked.
    mesh.wait_links(&[1, 1, 0]);
    mesh.heal_all();
    mesh.alike();
    mesh.stop();
}

#[test]
fn one_mailbox_is_written_from_all_nodes_at_once() {
    const EACH: usize = 15;
    let mut mesh = Mesh::new(3);
    mesh.scene.deliver(0, "shared");
    mesh.alike();
    // Every node has its own writers; all of them are at one mailbox, and one node comes and goes.
    std::thread::scope(|scope| {
        for (node, server) in mesh.scene.nodes.iter().enumerate() {
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
            mesh.cut_off(1);
            mesh.wait_links(&[1, 0, 1]);
            mesh.heal_all();
            mesh.wait_links(&[2, 2, 2]);
        }
    });
    for node in 0..3 {
        for turn in 0..EACH {
            let name = format!("load {turn} of {node}");
            mesh.scene.expected.insert(name, BTreeSet::new());
            let flags = mesh.scene.expected.get_mut("shared").unwrap();
            flags.insert(format!("$Load{node}x{turn}"));
        }
    }
    mesh.alike();
    mesh.stop();
}

#[test]
fn a_node_whose_clock_is_set_writes_nothing_until_it_is_right() {
    const HOUR: i64 = 3600;
    let mut mesh = Mesh::new(3);
    mesh.scene.deliver(2, "before");
    mesh.alike();
    mesh.scene.store(2, "before", "\\Flagged");
    mesh.alike();
    mesh.scene.nodes[2].server.stop();
    mesh.scene.nodes[2]
        .server
        .preload("clockshift", "CLOCK_SHIFT");
    mesh.scene.nodes[2].server.tell_preloaded(-HOUR);
    mesh.scene.nodes[2].server.start(&[]);
    mesh.wait_links(&[2, 2, 2]);
    // It was told so by the others before it served anybody.
    mesh.refuses(2);
    // What others write is of the future there: it is stored, and shown when its time has come.
    mesh.scene.deliver(0, "meanwhile");
    mesh.scene.wait_alike(&[0, 1]);
    let _ = mesh.scene.look(2);
    wait_for("the distance to be told", || {
        let status = mesh.scene.nodes[2].status();
        assert!(status.contains("this node writes nothing"), "{status}");
        status.contains("clock +3600.").then_some(())
    });
    // The others see it, and go on.
    let figure = |node: usize, of: &str| {
        let name = format!("whimbrel_cluster_clock_{of} ");
        mesh.scene.nodes[node].figure(&name)
    };
    assert_eq!([0, 1, 2].map(|node| figure(node, "wrong")), [0, 0, 1]);
    wait_for("the distance to be measured", || {
        let off = figure(0, "off_seconds");
        (off.abs_diff(3600) < 60).then_some(())
    });
    // Mended while it runs.
    mesh.scene.nodes[2].server.tell_preloaded(0);
    mesh.writes_again(2, "after");
    mesh.alike();
    mesh.scene.store(1, "after", "\\Seen");
    // Set ahead while it runs and clients write: nothing is stamped in the future, where others would not take it.
    mesh.scene.nodes[2].server.tell_preloaded(HOUR);
    mesh.refuses(2);
    mesh.scene.nodes[2].server.tell_preloaded(0);
    mesh.writes_again(2, "last");
    mesh.alike();
    mesh.stop();
}
