//! The disk of a node is lost, and a new node comes under its name, as the operator's guide has it ("Replace a dead node"). Clients of the dead one
//! notice nothing: they come to the same address with what they keep, and nothing of it is void. They come while the new node brings them to others,
//! and when it serves them.
//!
//! Two kinds of client: [`Device`] keeps all that it may and believes all that it is told, and mbsync, whose files show what it has loaded.

use std::path::PathBuf;

use whimbrel_e2e::imap::quoted;

use super::{alike::converge, clients::Near, guide::Guide, *};

const BOXES: [&str; 3] = ["INBOX", "Work", "Lists/rust"];
const SIZE: usize = 2000;

fn names(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
}

/// The names of what is new there. What it has it does not load again.
fn goes_on_at(device: &mut Device, node: &Node) -> BTreeSet<String> {
    let news = device.goes_on_at(&node.server);
    assert_eq!(news.again, BTreeSet::new());
    news.new
}

/// Number and unique-id of each message.
fn uidl(server: &Server) -> Vec<String> {
    server.anne_pop3().lines("UIDL").unwrap()
}

impl Node {
    fn puts(&self, mailbox: &str, name: &str) {
        let text = message::bytes(name, SIZE);
        let _ = self
            .server
            .anne()
            .append(mailbox, &[], &text)
            .unwrap()
            .ok("APPEND");
    }

    /// A command on this message, in its mailbox.
    fn does(&self, mailbox: &str, command: &str) {
        let mut imap = self.server.anne();
        let select = format!("SELECT {}", quoted(mailbox));
        let _ = imap.command(&select).unwrap().ok("SELECT");
        let _ = imap.command(command).unwrap().ok(command);
    }

    /// Whether it serves the account: who is told to come later has heard nothing else.
    fn serves(&self) -> Option<()> {
        let mut imap = match self.server.login(ACCOUNTS[0]) {
            Ok(imap) => imap,
            Err(refused) => {
                assert!(
                    format!("{refused:?}").contains("UNAVAILABLE"),
                    "{refused:?}"
                );
                return None;
            }
        };
        let status = imap.command("STATUS INBOX (UIDNEXT)").unwrap();
        let later = status.status == Status::No && status.code == "UNAVAILABLE";
        assert!(later || status.status == Status::Ok, "{status:?}");
        (!later).then_some(())
    }
}

/// Waits until nodes show the same of each mailbox.
fn alike(nodes: &[&Node]) {
    let of: Vec<usize> = (0..nodes.len()).collect();
    for mailbox in BOXES {
        let look = |index: usize| {
            let server = &nodes[index].server;
            let mut imap = server.login(ACCOUNTS[0]).ok()?;
            let contents = server.contents(&mut imap, mailbox).ok()?;
            Some((contents.validity, contents.messages))
        };
        let _ = converge(&of, look, |_| None);
    }
}

#[test]
fn clients_notice_nothing_of_a_lost_disk() {
    let mut guide = Guide::open();
    let mut nodes: Vec<Node> = Vec::new();
    for name in ["a", "b", "c"] {
        let port = free_port();
        let region = format!("region = \"{name}-land\"");
        let mut node = Node::with(name, port, port, nodes.is_empty(), &[("cluster", &region)]);
        node.begin(nodes.first());
        nodes.push(node);
    }
    for node in &nodes {
        wait_for("links", || (node.links() == 2).then_some(()));
        wait_for("the account", || node.serves());
    }
    // Mail comes by all nodes.
    for mailbox in &BOXES[1..] {
        let create = format!("CREATE {}", quoted(mailbox));
        let _ = nodes[0]
            .server
            .anne()
            .command(&create)
            .unwrap()
            .ok("CREATE");
    }
    alike(&nodes.iter().collect::<Vec<_>>());
    for number in 0..24 {
        let name = format!("m{number}");
        match number % 4 {
            0 => nodes[number % 3].deliver(&name),
            _ => nodes[number % 3].puts(BOXES[number / 4 % 3], &name),
        }
    }
    let mut scene = Scene::new(nodes);
    let count = |imap: &mut Imap| {
        let status = imap
            .command("STATUS INBOX (MESSAGES)")
            .unwrap()
            .ok("STATUS");
        status.status_figures()["MESSAGES"]
    };
    for node in &scene.nodes {
        // 6 deliveries, 6 of the others.
        wait_for("mail", || {
            (count(&mut node.server.anne()) == 12).then_some(())
        });
    }
    let (a, b, c) = (&scene.nodes[0], &scene.nodes[1], &scene.nodes[2]);
    alike(&[a, b, c]);
    c.does("INBOX", "STORE 1:3 +FLAGS (\\Seen)");
    b.does("INBOX", "STORE 2:4 +FLAGS (\\Flagged)");
    a.does("INBOX", "MOVE 5 Work");
    c.does("Work", "COPY 2 Lists/rust");
    c.does("Work", "STORE 1 +FLAGS (\\Deleted)");
    c.does("Work", "EXPUNGE");
    alike(&[a, b, c]);
    scene.wait_for_copies_of(2);
    for node in &scene.nodes[..2] {
        // What a member has shown it tells a fifth of a second later, and so far its clients keep their UIDs.
        wait_for("the reports", || {
            (node.figure("whimbrel_cluster_hidden_operations") == 0).then_some(())
        });
    }

    // What clients of c have.
    let c = &scene.nodes[2];
    let near = Near::new();
    near.synchronize(c);
    let mut caches = BOXES.map(|mailbox| Device::of(&c.server, mailbox));
    let listed = uidl(&c.server);
    let loaded = near.loaded();
    let total: usize = caches.iter().map(|cache| cache.bodies.len()).sum();
    assert_eq!((loaded.len(), total), (total, 24));

    // Its disk is lost. The others go on.
    scene.nodes[2].server.kill();
    fs::remove_dir_all(scene.nodes[2].server.path("data")).unwrap();
    let (a, b) = (&scene.nodes[0], &scene.nodes[1]);
    a.deliver("meanwhile");
    b.puts("Work", "meanwhile at work");
    let flagged = caches[0].names();
    let (gone, flagged) = (flagged["m0"], flagged["m8"]);
    b.does("INBOX", &format!("UID STORE {flagged} +FLAGS ($Forwarded)"));
    a.does("INBOX", &format!("UID STORE {gone} +FLAGS (\\Deleted)"));
    a.does("INBOX", "EXPUNGE");
    let moved = caches[2].names().keys().next().unwrap().clone();
    let uid = caches[2].uid(&moved);
    b.does("Lists/rust", &format!("UID MOVE {uid} INBOX"));
    alike(&[a, b]);

    // The guide's way.
    let _ = guide.on(a, "whimbrel cluster remove NAME --yes", &[("NAME", "c")]);
    let token = guide.on(a, "whimbrel cluster token", &[]);
    let c = &mut scene.nodes[2];
    let word = ("TOKEN", token.trim());
    let _ = guide.on(c, "whimbrel cluster join TOKEN", &[word]);
    guide.serve(c);

    // The same clients, at once. mbsync may be told to come later; what it has stays.
    let c = &scene.nodes[2];
    let _ = near.tries(c);
    let at_once = near.loaded();
    let all_there = |of: &BTreeSet<PathBuf>, there: &BTreeSet<PathBuf>| {
        let lacking: Vec<&PathBuf> = of.difference(there).collect();
        assert!(lacking.len() <= 2, "{lacking:?}");
    };
    all_there(&loaded, &at_once);
    wait_for("the new node to serve", || c.serves());
    // Whoever serves them.
    let mut others = caches.clone();
    let new = others.each_mut().map(|cache| goes_on_at(cache, c));
    assert_eq!(new[1], names(&["meanwhile at work"]));
    // Again, as they were: the new one serves them.
    c.wait_complete();
    let new = caches.each_mut().map(|cache| goes_on_at(cache, c));
    assert_eq!(new[0], names(&["meanwhile", &moved]));
    assert_eq!(new[1], names(&["meanwhile at work"]));
    assert_eq!(new[2], names(&[]));
    assert_eq!(caches[0].flags[&flagged], names(&["$Forwarded"]));
    assert!(!caches[0].flags.contains_key(&gone) && !caches[2].flags.contains_key(&uid));
    // Of what mbsync has, two files went with their messages, and three came.
    near.synchronize(c);
    let now = near.loaded();
    all_there(&loaded, &now);
    assert_eq!(loaded.difference(&now).count(), 2, "{loaded:?}\n{now:?}");
    assert_eq!(now.difference(&loaded).count(), 3, "{loaded:?}\n{now:?}");
    // POP3: the unique-ids of what stayed, in its order; numbers follow the place.
    let ids = |of: &[String]| -> Vec<String> {
        let words = of.iter().map(|line| line.split(' ').nth(1).unwrap());
        words.map(str::to_owned).collect()
    };
    let (before, after) = (ids(&listed), ids(&uidl(&c.server)));
    let stayed = before.iter().filter(|id| after.contains(id));
    assert_eq!(stayed.count() + 1, before.len());
    assert_eq!(
        after[..before.len() - 1],
        before
            .into_iter()
            .filter(|id| after.contains(id))
            .collect::<Vec<_>>()
    );

    // It is a member as others are: it writes, it is level, and a later start needs nobody.
    c.puts("Work", "by the new one");
    c.deliver("delivered by the new one");
    let (a, b) = (&scene.nodes[0], &scene.nodes[1]);
    for node in [a, b] {
        wait_for("mail", || {
            (count(&mut node.server.anne()) == 13).then_some(())
        });
    }
    alike(&[a, b, c]);
    assert_eq!(
        goes_on_at(&mut caches[0], b),
        names(&["delivered by the new one"])
    );
    assert_eq!(goes_on_at(&mut caches[1], a), names(&["by the new one"]));
    guide.wait_for(a, "c", "its slot is free");
    guide.wait_for(a, "c", "  in sync");
    c.wait_complete();
    assert_eq!(c.figure("whimbrel_partitions_syncing"), 0);
    scene.wait_for_copies_of(2);
    for node in &mut scene.nodes {
        node.server.stop();
    }
    let c = &mut scene.nodes[2];
    guide.serve(c);
    assert!(c.serves().is_some(), "alone, and no more syncing");
    c.server.stop();
}
