//! Clients write at every node, by IMAP and by LMTP, into one account, while a node is cut off, one is killed, and one loses its disk. What was
//! acknowledged to them is in a [`Ledger`], which judges what there is in the end.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{scope, sleep},
    time::Duration,
};

use rustls::ClientConfig;
use whimbrel_e2e::{
    imap::Reply,
    wire::{Result, Trouble},
};

use super::{
    alike::converge,
    ledger::{LIVES, Ledger, Life, Places},
    mesh::Mesh,
    *,
};

const NODES: usize = 3;
/// Steps by IMAP of each node that a fault must see: two messages of each life, most of them whole.
const STEPS: usize = 16;
/// Between two messages of one writer: the cluster is not to be measured.
const PAUSE: Duration = Duration::from_millis(15);
/// A message of which all set flags.
const SHARED: &str = "shared";

/// Where the clients of a node come to.
struct Door {
    imaps: u16,
    lmtp: u16,
    tls: Arc<ClientConfig>,
    /// Its writer by IMAP and its sender by LMTP are to wait.
    paused: AtomicBool,
    /// The writer waits.
    waits: AtomicBool,
    /// The sender waits.
    sender_waits: AtomicBool,
}

/// Keywords of the shared message.
#[derive(Default)]
struct Keywords {
    sent: BTreeSet<String>,
    /// By the node that has acknowledged them.
    acknowledged: BTreeMap<String, usize>,
}

#[derive(Default)]
struct Work {
    doors: Vec<Door>,
    over: AtomicBool,
    ledger: Ledger,
    keywords: Mutex<Keywords>,
}

/// Ends the work when whoever has it ends, be it by a failure, or nobody would hear why the test fails.
struct Over<'a>(&'a Work);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
    }
}

impl Work {
    fn of(mesh: &Mesh) -> Work {
        let door = |node: &Node| Door {
            imaps: node.server.ports.imaps,
            lmtp: node.server.ports.lmtp,
            tls: node.server.tls.clone(),
            paused: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            sender_waits: AtomicBool::new(false),
        };
        Work {
            doors: mesh.scene.nodes.iter().map(door).collect(),
            ..Work::default()
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// The writer by IMAP at a node.
    fn writes(&self, node: usize) {
        let _over = Over(self);
        let door = &self.doors[node];
        let mut session = None;
        for turn in 0.. {
            while door.paused.load(Ordering::SeqCst) && !self.is_over() {
                door.waits.store(true, Ordering::SeqCst);
                sleep(PAUSE);
            }
            door.waits.store(false, Ordering::SeqCst);
            if self.is_over() {
                return;
            }
            sleep(PAUSE);
            session = session.or_else(|| Writer::at(self, node).ok());
            if let Some(writer) = &mut session {
                let name = format!("by {node}, {turn}");
                let life = LIVES[turn % LIVES.len()];
                let mut lived = writer.lives(&name, life);
                if turn % LIVES.len() == 0 && lived.is_ok() {
                    lived = writer.marks(&format!("$By{node}x{turn}"));
                }
                if lived.is_err() {
                    session = None;
                }
            }
        }
    }

    /// The sender of mail at a node.
    fn delivers(&self, node: usize) {
        let _over = Over(self);
        let door = &self.doors[node];
        for turn in 0.. {
            while door.paused.load(Ordering::SeqCst) && !self.is_over() {
                door.sender_waits.store(true, Ordering::SeqCst);
                sleep(PAUSE);
            }
            door.sender_waits.store(false, Ordering::SeqCst);
            sleep(2 * PAUSE);
            if self.is_over() {
                return;
            }
            let name = format!("to {node}, {turn}");
            let text = message::bytes(&name, 1500);
            let Ok(mut mail) = Mail::lmtp(door.lmtp) else {
                continue;
            };
            self.ledger.sends(&name, Life::Delivered, node);
            let replies = mail.deliver("carl@example.net", &[ACCOUNTS[0].0], &text, true);
            match replies {
                // What was refused because others did not say in time that they have it may be found after a crash.
                Ok(replies) if replies.iter().all(|reply| reply.is(2)) => {
                    self.ledger.acknowledged(&name);
                }
                Ok(replies) => assert!(replies[0].is(4) || replies[0].code == 503, "{replies:?}"),
                Err(Trouble::Closed) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    /// Waits until the writers of these nodes have done so much more.
    fn go_on(&self, nodes: &[usize]) {
        let before: Vec<usize> = nodes.iter().map(|node| self.ledger.count(*node)).collect();
        wait_for("clients to go on", || {
            assert!(!self.is_over(), "a client has failed");
            let mut counts = nodes.iter().zip(&before);
            counts
                .all(|(node, before)| self.ledger.count(*node) >= before + STEPS)
                .then_some(())
        });
    }

    fn pause(&self, node: usize, paused: bool) {
        let door = &self.doors[node];
        door.paused.store(paused, Ordering::SeqCst);
        wait_for("the writer and the sender", || {
            let wait = [&door.waits, &door.sender_waits];
            let wait = wait.iter().all(|of| of.load(Ordering::SeqCst));
            (wait || !paused).then_some(())
        });
    }

    /// What is wrong with what a node shows.
    fn wrong(&self, seen: &Seen) -> Option<String> {
        let mut places: BTreeMap<String, Places> = BTreeMap::new();
        for (mailbox, name, flags) in seen.values() {
            if name == SHARED {
                let keywords = self.keywords.lock().unwrap();
                let mut lost = keywords.acknowledged.keys();
                if let Some(lost) = lost.find(|keyword| !flags.contains(*keyword)) {
                    return Some(format!("{lost} was acknowledged, and is not set"));
                }
                if !flags.is_subset(&keywords.sent) {
                    return Some(format!("{flags:?}: nobody set some of these"));
                }
                continue;
            }
            let place = places.entry(name.clone()).or_default();
            if place.insert(mailbox, flags.clone()).is_some() {
                return Some(format!("{name} is doubled in {mailbox}"));
            }
        }
        self.ledger.wrong(&places)
    }
}

/// All messages by mailbox and UID: mailbox, name, flags.
type Seen = BTreeMap<(&'static str, u32), (&'static str, String, BTreeSet<String>)>;

fn see(node: &Node) -> Option<Seen> {
    let mut seen = Seen::new();
    let mut imap = node.server.login(ACCOUNTS[0]).ok()?;
    for mailbox in ["INBOX", "Work"] {
        for of in node.server.contents(&mut imap, mailbox).ok()?.messages {
            let name = message::name_of(&of.bytes).unwrap();
            let flags = of.flags.into_iter().collect();
            seen.insert((mailbox, of.uid), (mailbox, name, flags));
        }
    }
    Some(seen)
}

/// Whether a reply to STORE shows this message with this flag. It may also show messages that others changed.
fn is_set(reply: &Reply, uid: u32, flag: &str) -> bool {
    let mut fetched = reply.fetched();
    fetched.any(|(_, items)| {
        let flags = items.flags().unwrap_or_default();
        items.uid() == Some(uid) && flags.iter().any(|shown| shown == flag)
    })
}

/// A session that writes.
struct Writer<'a> {
    work: &'a Work,
    node: usize,
    imap: Imap,
    shared: u32,
}

impl<'a> Writer<'a> {
    fn at(work: &'a Work, node: usize) -> Result<Writer<'a>> {
        let door = &work.doors[node];
        let (user, password) = ACCOUNTS[0];
        let mut imap = Imap::login(door.imaps, &door.tls, user, password)?;
        let refused = |reply: Reply| Trouble::Protocol(format!("{reply:?}"));
        let selected = imap.command("SELECT INBOX")?;
        if selected.status != Status::Ok {
            return Err(refused(selected));
        }
        let found = imap.command("UID SEARCH SUBJECT \"of shared\"")?;
        let shared = *found.found().first().ok_or_else(|| refused(found))?;
        Ok(Writer {
            work,
            node,
            imap,
            shared,
        })
    }

    /// One step; whether it was done.
    fn step(
        &mut self,
        name: &str,
        life: Life,
        command: &[u8],
        did: impl Fn(&Reply) -> bool,
    ) -> Result<Option<Reply>> {
        let ledger = &self.work.ledger;
        ledger.sends(name, life, self.node);
        let reply = self.imap.raw_command(command)?;
        match reply.status {
            Status::Ok if did(&reply) => ledger.acknowledged(name),
            // It is not shown for a moment, while it gets another UID: what was done to it is left open.
            Status::Ok => return Ok(None),
            _ => {
                assert_eq!(reply.code, "UNAVAILABLE", "{name}: {reply:?}");
                ledger.refused(name);
                return Ok(None);
            }
        }
        Ok(Some(reply))
    }

    /// All that happens to a message.
    fn lives(&mut self, name: &str, life: Life) -> Result<()> {
        let text = message::bytes(name, 1500);
        let append = whimbrel_e2e::imap::append_command("INBOX", &[], &text);
        let Some(put) = self.step(name, life, &append, |_| true)? else {
            return Ok(());
        };
        let uid = put.code("APPENDUID").expect("APPENDUID");
        let uid: u32 = uid.split(' ').nth(1).expect("a UID").parse().unwrap();
        let copied = |reply: &Reply| reply.code("COPYUID").is_some();
        let has = |flag: &'static str| move |reply: &Reply| is_set(reply, uid, flag);
        // An untagged EXPUNGE does not say so: it may tell that the message got another UID.
        let expunged = |reply: &Reply| reply.text == "Expunged";
        let mut step = |command: String, did: &dyn Fn(&Reply) -> bool| {
            self.step(name, life, command.as_bytes(), did)
        };
        match life {
            Life::Delivered => {}
            Life::Flagged => drop(step(
                format!("UID STORE {uid} +FLAGS ($Set)"),
                &has("$Set"),
            )?),
            Life::Copied => drop(step(format!("UID COPY {uid} Work"), &copied)?),
            Life::Moved => drop(step(format!("UID MOVE {uid} Work"), &copied)?),
            Life::Expunged => {
                let deleted = step(
                    format!("UID STORE {uid} +FLAGS (\\Deleted)"),
                    &has("\\Deleted"),
                )?;
                if deleted.is_some() {
                    drop(step(format!("UID EXPUNGE {uid}"), &expunged)?);
                }
            }
        }
        Ok(())
    }

    /// A keyword of the message that all have.
    fn marks(&mut self, keyword: &str) -> Result<()> {
        let keywords = &self.work.keywords;
        keywords.lock().unwrap().sent.insert(keyword.to_owned());
        let store = format!("UID STORE {} +FLAGS ({keyword})", self.shared);
        let reply = self.imap.command(&store)?;
        if reply.status == Status::Ok && is_set(&reply, self.shared, keyword) {
            let mut keywords = keywords.lock().unwrap();
            keywords.acknowledged.insert(keyword.to_owned(), self.node);
        }
        Ok(())
    }
}

#[test]
fn what_is_acknowledged_during_faults_is_there_once_and_nothing_else() {
    // Mail is accepted when another node has it; IMAP answers when the own disk has it.
    let mut mesh = Mesh::with(NODES, binary(), &[("queue", "other_nodes = 1")]);
    let _ = mesh.scene.nodes[0]
        .server
        .anne()
        .command("CREATE Work")
        .unwrap()
        .ok("CREATE");
    mesh.scene.put(0, SHARED);
    mesh.alike();
    let work = Work::of(&mesh);
    scope(|scope| {
        let _over = Over(&work);
        for node in 0..NODES {
            let work = &work;
            scope.spawn(move || work.writes(node));
            scope.spawn(move || work.delivers(node));
        }
        work.go_on(&[0, 1, 2]);

        // One is cut off, and nobody is told.
        mesh.silence_around(&[2]);
        mesh.wait_links(&[1, 1, 0]);
        work.go_on(&[0, 1, 2]);
        mesh.heal_all();
        mesh.wait_links(&[2, 2, 2]);

        // One is killed.
        mesh.scene.nodes[1].server.kill();
        work.go_on(&[0, 2]);
        mesh.scene.nodes[1].server.start(&[]);
        work.go_on(&[1]);

        // One loses its disk, and had been cut off before. What others had of it by then is not lost; nor is mail that it accepted since, if it accepted any.
        mesh.wait_links(&[2, 2, 2]);
        // Nobody writes meanwhile: on a slow machine something would be on its way at any moment.
        let pause_all = |is_paused| (0..NODES).for_each(|node| work.pause(node, is_paused));
        pause_all(true);
        let others_have = work.ledger.at(2);
        wait_for("copies", || {
            let lag = mesh.scene.nodes[2].figure("whimbrel_cluster_lag_operations");
            let missing = |node: &Node| node.figure("whimbrel_cluster_blobs_missing");
            let missing: u64 = mesh.scene.nodes[..2].iter().map(missing).sum();
            (lag + missing == 0).then_some(())
        });
        mesh.silence_around(&[2]);
        pause_all(false);
        work.go_on(&[2]);
        mesh.scene.nodes[2].server.kill();
        fs::remove_dir_all(mesh.scene.nodes[2].server.path("data")).unwrap();
        mesh.heal_all();
        work.pause(2, true);
        let may = work.ledger.lost(2, &others_have);
        println!("{may} steps may be lost with the disk");
        assert!(may > 0);
        let mut keywords = work.keywords.lock().unwrap();
        keywords.acknowledged.retain(|_, node| *node != 2);
        drop(keywords);
        work.go_on(&[0, 1]);
        let first = &mesh.scene.nodes[0];
        let _ = first
            .cluster(&["remove", "c", "--yes"])
            .expect("cluster remove");
        let token = first.token();
        let third = &mut mesh.scene.nodes[2];
        let _ = third
            .cluster(&["join", token.trim()])
            .expect("cluster join");
        third.server.start(&[]);
        third.wait_complete();
        mesh.scene.witnesses[2] = Witness::default();
        work.pause(2, false);
        work.go_on(&[0, 1, 2]);
    });
    let seen = converge(
        &[0, 1, 2],
        |node| see(&mesh.scene.nodes[node]),
        |seen| work.wrong(seen),
    );
    let whole = work.ledger.whole();
    println!("{} messages; of each life whole: {whole:?}", seen.len());
    // Each kind of step was acknowledged often enough to be missed.
    assert!(LIVES.iter().all(|life| whole[life] > NODES), "{whole:?}");
    assert!(whole[&Life::Delivered] > NODES, "{whole:?}");
    mesh.stop();
}
