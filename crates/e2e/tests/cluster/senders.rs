//! swaks sends thousands of messages to three nodes. Every two seconds the node that takes them is killed, and the next one is sent to; once the disk
//! of the killed one is lost, too. A busy machine has more time: a node is killed when it has taken a message, and when the one before is up again. In
//! the end each message is once in each mailbox that it was sent to, at each node.
//!
//! A sender sends again what was not taken, until it hears 250. If the connection ends between the final dot and the reply, it cannot know. It has
//! to send again, and what was taken is there twice: that is the sender's doing (RFC 1047, RFC 5321, 4.5.3.2.6), and would hide what the servers do.
//! So here such messages are put aside. When all nodes are up and the queue is empty, they are looked for, and those that no node has are sent again.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{panicking, scope, sleep},
    time::{Duration, Instant},
};

use whimbrel_e2e::process::{number, run};

use super::{alike::converge, mesh::NAMES, *};

const MESSAGES: usize = 5_000;
const NODES: usize = 3;
/// Side by side: enough that the kill of a node cuts off some of them.
const SENDERS: usize = 4;
const KILL_EVERY: Duration = Duration::from_secs(2);
/// Before a message is sent again.
const PAUSE: Duration = Duration::from_millis(100);
/// One of so many messages has two recipients, one of so many a body that is not sent unasked to the other node (64 KiB).
const TO_TWO_EVERY: usize = 10;
const LARGE_EVERY: usize = 50;
/// Those that each server of a test has, and two more.
const USERS: [(&str, &str); 4] = [
    ACCOUNTS[0],
    ACCOUNTS[1],
    ("dora@example.org", "dora's"),
    ("emil@example.org", "emil's"),
];

struct Letter {
    name: String,
    text: Vec<u8>,
    /// Among the users.
    to: Vec<usize>,
}

impl Letter {
    fn new(number: usize) -> Letter {
        let name = format!("m{number}");
        let is = |every: usize| number % every == every - 1;
        let size = if is(LARGE_EVERY) { 100_000 } else { 1_500 };
        let first = number % USERS.len();
        let second = (first + 1) % USERS.len();
        Letter {
            text: message::bytes(&name, size),
            name,
            to: [first, second][..1 + usize::from(is(TO_TWO_EVERY))].to_vec(),
        }
    }
}

/// How a run of swaks ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Accepted,
    /// Nothing was taken: the final dot was not sent, or was answered with what says so.
    NotTaken,
    /// Nobody knows.
    Unclear,
}

impl End {
    /// By what swaks has said. It says what it sends before it sends it.
    fn of(said: &str) -> End {
        // Nothing here may be refused for ever.
        assert!(!said.contains("<** 5"), "{said}");
        let Some((_, reply)) = said.split_once(" -> .\n") else {
            return End::NotTaken;
        };
        if reply.starts_with("<-  250 ") {
            End::Accepted
        } else if reply.starts_with("<** 451 4.3.2 ") {
            // Too few other nodes: nothing was written.
            End::NotTaken
        } else {
            End::Unclear
        }
    }
}

fn send(port: u16, letter: &Letter) -> End {
    let to = letter.to.iter().map(|user| USERS[*user].0);
    let to = to.collect::<Vec<_>>().join(",");
    let mut swaks = Command::new("swaks");
    swaks.args(["--server", "127.0.0.1", "--port", &port.to_string()]);
    swaks.args(["--helo", "client.example.net"]);
    swaks.args(["--from", "carl@example.net", "--to", &to, "--data", "-"]);
    // swaks makes CRLF of line ends, stuffs dots, and ends the last line.
    let text = String::from_utf8(letter.text.clone()).unwrap();
    let text = text.replace("\r\n", "\n");
    End::of(&run(&mut swaks, text.trim_end().as_bytes()).stdout)
}

#[derive(Default)]
struct Work {
    ports: Vec<u16>,
    letters: Vec<Letter>,
    next: AtomicUsize,
    /// Letters that senders are done with.
    ended: AtomicUsize,
    /// The node that mail is sent to.
    taker: AtomicUsize,
    /// How many it has accepted, of each node.
    accepted: [AtomicUsize; NODES],
    again: AtomicUsize,
    unclear: Mutex<Vec<usize>>,
    failed: AtomicBool,
}

/// Ends the others when whoever has it fails, or nobody would hear why.
struct Failing<'a>(&'a Work);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if panicking() {
            self.0.failed.store(true, Ordering::SeqCst);
        }
    }
}

impl Work {
    fn sends(&self) {
        let _failing = Failing(self);
        loop {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            if number >= self.letters.len() {
                return;
            }
            let end = wait_for("a message to be taken", || {
                let end = self.try_one(number);
                if end == End::NotTaken {
                    self.again.fetch_add(1, Ordering::SeqCst);
                    sleep(PAUSE);
                }
                (end != End::NotTaken || self.has_failed()).then_some(end)
            });
            if self.has_failed() {
                return;
            }
            if end == End::Unclear {
                self.unclear.lock().unwrap().push(number);
            }
            self.ended.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn try_one(&self, number: usize) -> End {
        let node = self.taker.load(Ordering::SeqCst);
        let end = send(self.ports[node], &self.letters[number]);
        if end == End::Accepted {
            self.accepted[node].fetch_add(1, Ordering::SeqCst);
        }
        end
    }

    fn accepted_by_taker(&self) -> usize {
        self.accepted[self.taker.load(Ordering::SeqCst)].load(Ordering::SeqCst)
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }

    /// Which messages a mailbox has to have.
    fn expected(&self, user: usize) -> BTreeMap<&str, &[u8]> {
        let letters = self.letters.iter();
        let of_user = letters.filter(|letter| letter.to.contains(&user));
        of_user
            .map(|letter| (letter.name.as_str(), letter.text.as_slice()))
            .collect()
    }

    /// What is wrong with what a node shows to all users.
    fn wrong(&self, seen: &Seen) -> Option<String> {
        for (user, messages) in seen.iter().enumerate() {
            let expected = self.expected(user);
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for name in messages.values() {
                *counts.entry(name).or_default() += 1;
            }
            let not_once =
                |name: &&str| counts.get(*name) != Some(&1) || !expected.contains_key(*name);
            let names: BTreeSet<&str> = counts.keys().chain(expected.keys()).copied().collect();
            let wrong: Vec<&str> = names.into_iter().filter(not_once).collect();
            if let Some(first) = wrong.first() {
                let times = counts.get(first).copied().unwrap_or_default();
                return Some(format!(
                    "{} has {first} {times} times, and {} others that are not there once",
                    USERS[user].0,
                    wrong.len() - 1
                ));
            }
        }
        None
    }
}

/// Of each user, UID and name of each message.
type Seen = Vec<BTreeMap<u32, String>>;

fn see(work: &Work, node: &Node) -> Option<Seen> {
    let mut seen = Seen::new();
    for (user, login) in USERS.iter().enumerate() {
        let mut imap = node.server.login(*login).ok()?;
        let contents = node.server.contents(&mut imap, "INBOX").ok()?;
        let expected = work.expected(user);
        let names = contents.messages.into_iter().map(|message| {
            let name = message::name_of(&message.bytes).unwrap();
            let text = expected.get(name.as_str()).copied().unwrap_or_default();
            assert!(message.bytes.ends_with(text), "{name} has other bytes");
            (message.uid, name)
        });
        seen.push(names.collect());
    }
    Some(seen)
}

impl Scene {
    /// Waits until the nodes are linked and have nothing to do for each other: whatever entry was anywhere is delivered, or was dropped, since its
    /// sender was refused.
    fn settle(&self) {
        for node in &self.nodes {
            wait_for("links", || (node.links() == NODES - 1).then_some(()));
        }
        wait_for("the queue to be empty everywhere", || {
            self.nodes.iter().all(Node::has_no_entries).then_some(())
        });
        (0..NODES).for_each(|node| self.wait_for_copies_of(node));
    }

    /// The node that mail is sent to is killed, and the next one takes its place.
    fn kill(&mut self, work: &Work) -> usize {
        let victim = work.taker.load(Ordering::SeqCst);
        self.nodes[victim].server.kill();
        work.taker.store((victim + 1) % NODES, Ordering::SeqCst);
        victim
    }

    /// A disk is lost, and a new node comes in its place, as the guide has it.
    ///
    /// The other two stay up meanwhile. With f = 1 one disk may be lost at a time: what the lost node had accepted is on the disk of one of them. Were
    /// that one killed, too, this mail would wait for it, the third could accept nothing, as nobody could confirm it, and the new node, which serves
    /// when it has all that the others have, would have nobody to get it from.
    fn lose_disk_of(&mut self, victim: usize) {
        fs::remove_dir_all(self.nodes[victim].server.path("data")).unwrap();
        let living = &self.nodes[(victim + 1) % NODES];
        let _ = living
            .cluster(&["remove", NAMES[victim], "--yes"])
            .expect("cluster remove");
        let token = living.token();
        let new = &mut self.nodes[victim];
        let _ = new.cluster(&["join", token.trim()]).expect("cluster join");
        new.server.start(&[]);
        new.wait_complete();
    }
}

/// Whether the selected mailbox has a message.
fn has(imap: &mut Imap, letter: &Letter) -> bool {
    let id = format!("<{}@example.net>", letter.name);
    let search = format!("SEARCH HEADER Message-ID \"{id}\"");
    let reply = imap.command(&search).unwrap();
    !reply.ok("SEARCH").found().is_empty()
}

#[test]
#[ignore = "long: thousands of runs of swaks"]
fn each_message_is_there_once_though_who_takes_it_is_killed() {
    let begun = Instant::now();
    let mut nodes: Vec<Node> = Vec::new();
    for name in &NAMES[..NODES] {
        let port = free_port();
        let region = format!("region = \"{name}-land\"");
        // As long as it may be: a slow machine takes its time.
        let patience = "confirm_timeout = \"25s\"";
        let f = "other_nodes = 1";
        let more = [("cluster", &*region), ("queue", f), ("queue", patience)];
        let mut node = Node::with(name, port, port, nodes.is_empty(), &more);
        node.begin(nodes.first());
        nodes.push(node);
    }
    for (address, password) in &USERS[ACCOUNTS.len()..] {
        let add = ["account", "add", address, "--password-stdin"];
        let _ = nodes[0].server.admin(&add, password).expect("account add");
    }
    for node in &nodes {
        for user in USERS {
            wait_for("the account", || node.server.login(user).ok());
        }
    }
    let mut scene = Scene::new(nodes);
    scene.settle();
    let messages = number("WHIMBREL_E2E_MESSAGES", MESSAGES);
    let work = Work {
        ports: scene.nodes.iter().map(|of| of.server.ports.smtp).collect(),
        letters: (0..messages).map(Letter::new).collect(),
        ..Work::default()
    };

    let mut kills = [0; NODES];
    let mut lost = None;
    let killing = Instant::now();
    scope(|scope| {
        let _failing = Failing(&work);
        for _ in 0..SENDERS {
            scope.spawn(|| work.sends());
        }
        let mut at = Instant::now() + KILL_EVERY;
        let mut before = 0;
        while work.ended() < messages {
            assert!(!work.has_failed(), "a sender has failed");
            // On a machine that is too busy no node would live long enough to take anything.
            let takes = work.accepted_by_taker() > before;
            if Instant::now() < at || !takes {
                sleep(Duration::from_millis(10));
                continue;
            }
            at += KILL_EVERY;
            let victim = scene.kill(&work);
            kills[victim] += 1;
            before = work.accepted_by_taker();
            if lost.is_none() && work.ended() >= messages / 2 {
                scene.lose_disk_of(victim);
                lost = Some(victim);
            } else {
                // The next one is killed when this one is up again: two are left to take mail at any time.
                scene.nodes[victim].server.start(&[]);
            }
            at = at.max(Instant::now());
        }
    });
    let took = killing.elapsed();
    let accepted = work.accepted.each_ref().map(|of| of.load(Ordering::SeqCst));
    scene.settle();

    let mut unclear = std::mem::take(&mut *work.unclear.lock().unwrap());
    let count = unclear.len();
    for node in &scene.nodes {
        for (user, login) in USERS.iter().enumerate() {
            let mut imap = node.server.login(*login).unwrap();
            let _ = imap.command("EXAMINE INBOX").unwrap().ok("EXAMINE");
            let here = |number: &usize| work.letters[*number].to.contains(&user);
            unclear.retain(|number| !here(number) || !has(&mut imap, &work.letters[*number]));
        }
    }
    for number in &unclear {
        wait_for("what nobody has to be taken", || {
            let end = work.try_one(*number);
            assert_ne!(end, End::Unclear, "{}", work.letters[*number].name);
            (end == End::Accepted).then_some(())
        });
    }
    scene.settle();
    let _ = converge(
        &[0, 1, 2],
        |node| see(&work, &scene.nodes[node]),
        |seen| work.wrong(seen),
    );
    println!(
        "{messages} messages in {took:?} ({:?} in all): accepted by node {accepted:?}, kills {kills:?}, sent again after a clear end {}, unclear {count}, \
         of these {} were nowhere and were sent again; the disk of node {lost:?} was lost",
        begun.elapsed(),
        work.again.load(Ordering::SeqCst),
        unclear.len(),
    );
    assert!(kills.iter().all(|count| *count > 0), "{kills:?}");
    assert!(accepted.iter().all(|count| *count > 0), "{accepted:?}");
    assert!(lost.is_some(), "no disk was lost");
    for node in &mut scene.nodes {
        node.server.stop();
        assert_eq!(node.on_disk("queued"), 0);
    }
}
