//! The disk of a node is lost, and a new node comes under its name, as the operator's guide has it ("Replace a dead node"). Clients of the dead one notice nothing: they
//! come to the same address with what they keep, and nothing of it is void. They come while the new node brings them to others, and when it serves them.
//!
//! Two kinds of client: [`Cache`] keeps all that it may and believes all that it is told (QRESYNC, CONDSTORE, UIDL), and mbsync, whose files show what it has loaded.

use std::path::PathBuf;

use whimbrel_e2e::imap::{
    Node as Value, Reply,
    parse::{modseq, ranges},
    quoted, set_of,
};

use super::{clients::Near, guide::Guide, *};

const BOXES: [&str; 3] = ["INBOX", "Work", "Lists/rust"];
const SIZE: usize = 2000;

type Flags = BTreeMap<u32, BTreeSet<String>>;

/// What a client keeps of a mailbox, and believes until it is told otherwise.
#[derive(Clone)]
struct Cache {
    mailbox: &'static str,
    validity: u32,
    next: u32,
    modseq: u64,
    flags: Flags,
    bodies: BTreeMap<u32, Vec<u8>>,
}

impl Cache {
    fn of(server: &Server, mailbox: &'static str) -> Cache {
        let mut imap = server.anne();
        let _ = imap.command("ENABLE QRESYNC").unwrap().ok("ENABLE");
        let select = format!("SELECT {}", quoted(mailbox));
        let selected = imap.command(&select).unwrap().ok("SELECT");
        Cache::told(server, &mut imap, mailbox, &selected)
    }

    /// All there is, behind this SELECT.
    fn told(server: &Server, imap: &mut Imap, mailbox: &'static str, selected: &Reply) -> Cache {
        let contents = server.contents(imap, mailbox).unwrap();
        let messages = contents.messages.into_iter();
        let (flags, bodies) = messages
            .map(|of| ((of.uid, flags(of.flags)), (of.uid, of.bytes)))
            .unzip();
        Cache {
            mailbox,
            validity: contents.validity,
            next: contents.next,
            modseq: selected.code("HIGHESTMODSEQ").unwrap().parse().unwrap(),
            flags,
            bodies,
        }
    }

    fn names(&self) -> BTreeMap<String, u32> {
        let names = self.bodies.iter();
        names
            .map(|(uid, bytes)| (message::name_of(bytes).unwrap(), *uid))
            .collect()
    }

    fn uid(&self, name: &str) -> u32 {
        self.names()[name]
    }

    /// What it takes from FETCH and VANISHED.
    fn believe(&mut self, reply: &Reply) {
        for (_, items) in reply.fetched() {
            let told = items.flags().unwrap();
            assert!(items.get("MODSEQ").and_then(modseq).is_some(), "{items:?}");
            self.flags.insert(items.uid().unwrap(), flags(told));
        }
        for told in reply.data("VANISHED") {
            let [Value::List(_), set] = told else {
                panic!("not (EARLIER): {told:?}");
            };
            for (first, last) in ranges(&set.text()) {
                self.flags.retain(|uid, _| !(first..=last).contains(uid));
            }
        }
    }

    /// It goes on at a server: what it believes then must be so, and what is new must be so. The names of that.
    fn goes_on_at(&mut self, server: &Server) -> BTreeSet<String> {
        let uids: Vec<u32> = self.flags.keys().copied().collect();
        let known = match uids.is_empty() {
            true => String::new(),
            false => format!(" {}", set_of(&uids)),
        };
        let since = self.modseq;
        let mailbox = quoted(self.mailbox);
        let mut imap = server.anne();
        let _ = imap.command("ENABLE QRESYNC").unwrap().ok("ENABLE");
        let select = format!(
            "SELECT {mailbox} (QRESYNC ({} {since}{known}))",
            self.validity
        );
        let selected = imap.command(&select).unwrap().ok("SELECT");
        let now = Cache::told(server, &mut imap, self.mailbox, &selected);
        assert_eq!(now.validity, self.validity, "UIDVALIDITY of {mailbox}");
        assert!(now.next >= self.next && now.modseq >= self.modseq);
        // One without QRESYNC asks for flags that have changed, and which messages are there still.
        let mut other = Cache {
            flags: self.flags.clone(),
            bodies: BTreeMap::new(),
            ..*self
        };
        self.believe(&selected);
        let mut imap = server.anne();
        let select = format!("SELECT {mailbox} (CONDSTORE)");
        let _ = imap.command(&select).unwrap().ok("SELECT");
        let changed = format!("UID FETCH 1:* (FLAGS) (CHANGEDSINCE {since})");
        other.believe(&imap.command(&changed).unwrap().ok("FETCH"));
        let there = imap.command("UID SEARCH ALL").unwrap().ok("SEARCH").found();
        other.flags.retain(|uid, _| there.contains(uid));
        for believes in [&*self, &other] {
            let below = |flags: &Flags| -> Flags {
                let known = flags.range(..self.next);
                known.map(|(uid, flags)| (*uid, flags.clone())).collect()
            };
            assert_eq!(below(&believes.flags), below(&now.flags), "{mailbox}");
        }
        let names = self.names();
        let mut new = BTreeSet::new();
        for (uid, bytes) in &now.bodies {
            if *uid < self.next {
                assert_eq!(self.bodies.get(uid), Some(bytes), "{mailbox}: UID {uid}");
            } else {
                let name = message::name_of(bytes).unwrap();
                assert!(!names.contains_key(&name), "{name} has a new UID");
                new.insert(name);
            }
        }
        *self = now;
        new
    }
}

fn flags(of: Vec<String>) -> BTreeSet<String> {
    let flags = of.into_iter().filter(|flag| flag != "\\Recent");
    flags.collect()
}

fn names(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
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
    for mailbox in BOXES {
        wait_for("the same at all nodes", || {
            let look = |node: &&Node| {
                let mut imap = node.server.login(ACCOUNTS[0]).ok()?;
                let contents = node.server.contents(&mut imap, mailbox).ok()?;
                Some((contents.validity, contents.messages))
            };
            let looks: Option<Vec<_>> = nodes.iter().map(look).collect();
            let looks = looks?;
            looks.windows(2).all(|two| two[0] == two[1]).then_some(())
        });
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
            (node.figure("whimbrel_cluster_unshown_operations") == 0).then_some(())
        });
    }

    // What clients of c have.
    let c = &scene.nodes[2];
    let near = Near::new();
    near.synchronize(c);
    let mut caches = BOXES.map(|mailbox| Cache::of(&c.server, mailbox));
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
    let new = others.each_mut().map(|cache| cache.goes_on_at(&c.server));
    assert_eq!(new[1], names(&["meanwhile at work"]));
    // Again, as they were: the new one serves them.
    c.wait_whole();
    let new = caches.each_mut().map(|cache| cache.goes_on_at(&c.server));
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
        caches[0].goes_on_at(&b.server),
        names(&["delivered by the new one"])
    );
    assert_eq!(caches[1].goes_on_at(&a.server), names(&["by the new one"]));
    guide.wait_for(a, "c", "its slot is free");
    guide.wait_for(a, "c", "  level");
    c.wait_whole();
    assert_eq!(c.figure("whimbrel_partitions_young"), 0);
    scene.wait_for_copies_of(2);
    for node in &mut scene.nodes {
        node.server.stop();
    }
    let c = &mut scene.nodes[2];
    guide.serve(c);
    assert!(c.serves().is_some(), "alone, and no more young");
    c.server.stop();
}
