//! Sessions that come to one node and are served by another: of a node that is drained, and where the accounts of a region are shared out.

use whimbrel_e2e::process::run;
use whimbrel_e2e::{pop3::Pop3, process::signal, wire::Trouble};

use super::{fronts::letter, *};

const ANNE: (&str, &str) = ACCOUNTS[0];

/// Nodes of one region, by name and role, the first of which has founded the cluster, that all know the account and are linked. `more`: of all of them.
pub(crate) fn region(of: &[(&str, &str)], workers: usize, more: &[(&str, &str)]) -> Scene {
    let of = of.iter().map(|(name, role)| (*name, *role, "land"));
    regions(&of.collect::<Vec<_>>(), workers, more)
}

/// The same, with the region of each behind its role.
fn regions(of: &[(&str, &str, &str)], workers: usize, more: &[(&str, &str)]) -> Scene {
    let mut nodes: Vec<Node> = Vec::new();
    for (name, role, region) in of {
        let role = format!("role = \"{role}\"");
        let region = format!("region = \"{region}\"");
        let workers = format!("workers_per_partition = {workers}");
        let mut all = vec![
            ("cluster", region.as_str()),
            ("cluster", role.as_str()),
            ("cluster", &workers),
        ];
        all.extend(more);
        if !more.iter().any(|(section, _)| *section == "queue") {
            all.push(("queue", "other_nodes = 0"));
        }
        let port = free_port();
        let mut new = Node::with(name, port, port, nodes.is_empty(), &all);
        new.begin(nodes.first());
        nodes.push(new);
    }
    for node in &nodes {
        wait_for("links", || (node.links() + 1 == of.len()).then_some(()));
        wait_for("the account", || node.server.login(ANNE).ok());
    }
    let mut scene = Scene::new(nodes);
    scene.brought = true;
    scene
}

impl Node {
    fn pop3(&self) -> whimbrel_e2e::wire::Result<Pop3> {
        let ports = self.server.ports;
        Pop3::login(ports.pop3s, &self.server.tls, ANNE.0, ANNE.1)
    }

    /// To which node it has brought sessions, one after the other.
    pub(crate) fn brought_to(&self) -> Vec<String> {
        let log = self.server.log();
        let lines = log.lines().filter(|line| line.contains("is served there"));
        let name = |line: &str| {
            let after = line.split("node=").nth(1)?;
            Some(
                after
                    .split_whitespace()
                    .next()?
                    .trim_matches('"')
                    .to_owned(),
            )
        };
        lines.map(|line| name(line).unwrap()).collect()
    }

    /// How many sessions others have brought.
    pub(crate) fn was_brought(&self) -> usize {
        let log = self.server.log();
        log.matches("a session that was brought").count()
    }
}

#[test]
#[ignore = "long: clusters beyond the promises"]
fn a_drained_node_brings_sessions_to_another() {
    let mut scene = region(&[("a", "worker"), ("b", "worker")], 0, &[]);
    let large = message::bytes("large", 3_000_000);
    let _ = scene.nodes[0]
        .server
        .anne()
        .append("INBOX", &[], &large)
        .unwrap()
        .ok("APPEND");
    scene.expected.insert("large".into(), BTreeSet::new());
    scene.deliver(1, "before");
    scene.wait_alike(&[0, 1]);
    assert!(scene.nodes.iter().all(|node| node.brought_to().is_empty()));

    let drained = scene.nodes[1].cluster(&["drain"]).expect("cluster drain");
    assert!(drained.contains("safe to stop"), "{drained}");
    // All that a session can do: writes, long answers, what comes by itself.
    scene.wait_alike(&[0, 1]);
    scene.nodes[1].append("through");
    scene.expected.insert("through".into(), BTreeSet::new());
    scene.store(1, "before", "\\Flagged");
    scene.wait_alike(&[0, 1]);
    let mut idle = scene.nodes[1].server.anne();
    let selected = idle.command("SELECT INBOX").unwrap().ok("SELECT");
    assert_eq!(selected.exists(), Some(3));
    let tag = idle.send(b"IDLE").unwrap();
    let _ = idle.response().unwrap();
    scene.deliver(0, "while idle");
    assert_eq!(told_exists(&mut idle), 4);
    idle.wire.send(b"DONE\r\n").unwrap();
    assert_eq!(idle.reply(&tag).unwrap().status, Status::Ok);
    // What is sent behind the login without waiting for its answer is carried out, in its order, by who goes on.
    let tls = &scene.nodes[1].server.tls;
    let mut eager = Imap::connect(scene.nodes[1].server.ports.imaps, tls).unwrap();
    let (user, password) = ANNE;
    let login = format!("LOGIN {user} \"{password}\"");
    let commands = [
        ("x1", login.as_str()),
        ("x2", "SELECT INBOX"),
        ("x3", "FETCH 1:* BODY.PEEK[]"),
    ];
    eager.pipeline(&commands).unwrap();
    for tag in ["x1", "x2"] {
        assert_eq!(eager.reply(tag).unwrap().status, Status::Ok);
    }
    let all = eager.reply("x3").unwrap();
    let bodies: BTreeSet<Vec<u8>> = all
        .fetched()
        .map(|(_, fetched)| fetched.bytes("BODY[]").unwrap().to_vec())
        .collect();
    assert_eq!(bodies.len(), 4);
    assert!(bodies.contains(&large));
    // A client that closes its side hears the end of what it asked for.
    eager.wire.send(b"x4 NOOP\r\n").unwrap();
    eager.wire.half_close();
    assert!(String::from_utf8_lossy(&eager.wire.drain().unwrap()).contains("x4 OK"));
    // One that reads slowly does so, too, though the other node has ended the session and left unread what follows: that took from it what was
    // written and not sent. How much lies on the way depends on the system: the end is to lie at the node that has ended.
    for count in 1..=4 {
        let mut slow = scene.nodes[1].server.anne();
        let _ = slow.command("SELECT INBOX").unwrap().ok("SELECT");
        let all = "s FETCH 1:* BODY.PEEK[]\r\n".repeat(count) + "s LOGOUT\r\n";
        let all = all + &"s NOOP\r\n".repeat(8000);
        slow.wire.send(all.as_bytes()).unwrap();
        std::thread::sleep(std::time::Duration::from_secs(1));
        let said = slow.wire.drain().unwrap();
        let end = said[said.len().saturating_sub(80)..].escape_ascii();
        assert!(said.len() > count * large.len(), "{} bytes", said.len());
        assert!(said.ends_with(b"s OK Logged out\r\n"), "{end}");
    }

    let mut pop3 = scene.nodes[1].server.anne_pop3();
    let list = pop3.lines("LIST").unwrap();
    assert_eq!(list.len(), 4);
    let got: BTreeSet<Vec<u8>> = (1..=4)
        .map(|number| pop3.fetch(&format!("RETR {number}")).unwrap())
        .collect();
    assert!(got.contains(&large));

    // A wrong password is refused at the front door.
    let before = scene.nodes[0].was_brought();
    assert!(scene.nodes[1].server.login((ANNE.0, "wrong")).is_err());
    assert_eq!(scene.nodes[0].was_brought(), before);
    let brought = scene.nodes[1].brought_to();
    assert!(
        brought.len() >= 7 && brought.iter().all(|name| name == "a"),
        "{brought:?}"
    );
    assert_eq!(before, brought.len());

    // The sessions that it has brought do not keep it from being stopped; without the other one it says why it serves nobody.
    let drained = scene.nodes[1].cluster(&["drain"]).expect("cluster drain");
    assert!(drained.contains("safe to stop"), "{drained}");
    drop((idle, pop3));
    scene.nodes[0].server.kill();
    wait_for("the link to go", || {
        (scene.nodes[1].links() == 0).then_some(())
    });
    let tls = &scene.nodes[1].server.tls;
    let mut refused = Imap::connect(scene.nodes[1].server.ports.imaps, tls).unwrap();
    let line = format!("x LOGIN {user} \"{password}\"\r\n");
    refused.wire.send(line.as_bytes()).unwrap();
    let said = String::from_utf8_lossy(&refused.wire.drain().unwrap()).into_owned();
    assert!(said.starts_with("* BYE [UNAVAILABLE] No node"), "{said:?}");
    let _ = scene.nodes[1]
        .cluster(&["drain", "--cancel"])
        .expect("cancelled");
    let count = scene.nodes[1].brought_to().len();
    let _ = scene.nodes[1].server.anne();
    assert_eq!(scene.nodes[1].brought_to().len(), count);
    scene.nodes[0].server.start(&[]);
    scene.expected.insert("while idle".into(), BTreeSet::new());
    scene.wait_alike(&[0, 1]);
    for node in &mut scene.nodes {
        node.server.stop();
    }
}

/// The sessions of an account meet at one node; when that is killed, they go on at the next, from the same front door, with the same UIDs.
#[test]
#[ignore = "long: clusters beyond the promises"]
fn the_sessions_of_an_account_meet_and_go_on_at_the_next_node() {
    let of = [("a", "worker"), ("b", "worker"), ("s", "storage")];
    let mut scene = region(&of, 1, &[]);
    scene.deliver(0, "first");
    scene.wait_alike(&[0, 1, 2]);
    let status = scene.nodes[0].status();
    assert!(
        status.contains("land  storage") && status.contains("land  worker"),
        "{status}"
    );
    let index = |name: &str| of.iter().position(|(known, _)| *known == name).unwrap();
    let served = scene.nodes[2].brought_to();
    let there = index(&served[0]);
    assert!(served.iter().all(|name| *name == served[0]), "{served:?}");
    let next = 1 - there;
    assert!(scene.nodes[there].brought_to().is_empty());
    assert!(
        scene.nodes[next]
            .brought_to()
            .iter()
            .all(|name| *name == served[0])
    );

    // One that waits, and one that is in the middle of a body.
    let mut idle = scene.nodes[2].server.anne();
    let _ = idle.command("SELECT INBOX").unwrap().ok("SELECT");
    let large = message::bytes("large", 20_000_000);
    // Not where all is looked at again and again.
    let _ = idle.command("CREATE Large").unwrap().ok("CREATE");
    let _ = idle.append("Large", &[], &large).unwrap().ok("APPEND");
    scene.wait_for_copies_of(there);
    let mut busy = scene.nodes[2].server.anne();
    let _ = busy.command("SELECT Large").unwrap().ok("SELECT");
    busy.wire.send(b"x FETCH 1:* BODY.PEEK[]\r\n").unwrap();
    let _ = busy.wire.line().unwrap();
    scene.nodes[there].server.kill();
    let said = String::from_utf8_lossy(&idle.wire.drain().unwrap()).into_owned();
    assert!(said.starts_with("* BYE [UNAVAILABLE]"), "{said:?}");
    // Nothing is put into a body that is cut.
    let rest = match busy.wire.drain() {
        Ok(rest) => rest,
        Err(Trouble::Closed) => Vec::new(),
        Err(other) => panic!("{other:?}"),
    };
    assert!(!String::from_utf8_lossy(&rest).contains("BYE"));

    // The same front door; mail that comes and flags that are set meanwhile are there when the other returns.
    wait_for("the next node", || scene.nodes[2].server.login(ANNE).ok());
    assert_eq!(scene.nodes[2].brought_to().last().unwrap(), of[next].0);
    scene.deliver(2, "second");
    scene.wait_alike(&[next, 2]);
    scene.store(2, "first", "\\Seen");
    scene.wait_alike(&[next, 2]);
    // And when no worker is left, the storage node serves by itself.
    scene.nodes[next].server.kill();
    wait_for("no link", || (scene.nodes[2].links() == 0).then_some(()));
    let count = scene.nodes[2].brought_to().len();
    // What came from there it may have held back for the reader that was there.
    scene.wait_alike(&[2]);
    scene.store(2, "second", "\\Seen");
    scene.wait_alike(&[2]);
    assert_eq!(scene.nodes[2].brought_to().len(), count);
    for node in [there, next] {
        scene.nodes[node].server.start(&[]);
    }
    scene.wait_alike(&[0, 1, 2]);
    assert_eq!(*scene.nodes[2].brought_to().last().unwrap(), served[0]);
    for node in &mut scene.nodes {
        node.server.stop();
    }
}

/// POP3 and submission, too, when the node that serves is killed, and when it stands still: its system takes streams then, and nobody answers.
#[test]
#[ignore = "long: clusters beyond the promises"]
fn pop3_and_submission_go_on_at_the_next_node() {
    let of = [("a", "worker"), ("b", "worker"), ("s", "storage")];
    let mut scene = region(&of, 1, &[]);
    let index = |name: &str| of.iter().position(|(known, _)| *known == name).unwrap();
    scene.deliver(0, "first");
    scene.wait_alike(&[0, 1, 2]);
    let there = index(&scene.nodes[2].brought_to()[0]);
    let next = 1 - there;

    // One has asked for something to be removed, one is in the middle of a message.
    let mut pop3 = scene.nodes[2].server.anne_pop3();
    assert!(pop3.command("DELE 1").unwrap().ok);
    let mut user = scene.nodes[2].submission();
    for (line, digit) in [("MAIL FROM", 2), ("RCPT TO", 2), ("DATA", 3)] {
        let line = match line {
            "DATA" => line.to_owned(),
            _ => format!("{line}:<{}>", ANNE.0),
        };
        let reply = user.command(&line).unwrap();
        assert!(reply.is(digit), "{reply:?}");
    }
    let brought = scene.nodes[2].brought_to();
    assert!(brought.len() > 2 && brought.iter().all(|name| name == of[there].0));
    scene.nodes[there].server.kill();
    let said = pop3.wire.drain().unwrap_or_default();
    assert!(!String::from_utf8_lossy(&said).contains("+OK"), "{said:?}");
    let _ = user.wire.send(&letter("cut", 3000));
    let _ = user.wire.send(b".\r\n");
    let said = user.reply().unwrap();
    assert_eq!(said.code, 421, "{said:?}");

    let pass_by = |scene: &mut Scene, name: &str| {
        let front = &scene.nodes[2];
        let count = front.brought_to().len();
        let mut pop3 = wait_for("the next node, by POP3", || front.pop3().ok());
        // What nobody has confirmed by QUIT was not removed.
        assert!(pop3.fetch("RETR 1").unwrap().ends_with(b"end of first\r\n"));
        wait_for("the next node, by submission", || {
            let sent = front
                .submission()
                .deliver(ANNE.0, &[ANNE.0], &letter(name, 3000), false);
            sent.ok()?[0].is(2).then_some(())
        });
        let brought = front.brought_to().split_off(count);
        assert!(brought.len() >= 2 && brought.iter().all(|name| name == of[next].0));
        scene.expected.insert(name.to_owned(), BTreeSet::new());
    };
    pass_by(&mut scene, "sent while one is dead");
    scene.wait_alike(&[next, 2]);
    scene.nodes[there].server.start(&[]);
    scene.wait_alike(&[0, 1, 2]);
    wait_for("the first node", || {
        let _ = scene.nodes[2].pop3().ok()?;
        (*scene.nodes[2].brought_to().last()? == of[there].0).then_some(())
    });

    let pid = scene.nodes[there].server.pid();
    signal(pid, "STOP");
    pass_by(&mut scene, "sent while one stands still");
    scene.wait_alike(&[next, 2]);
    signal(pid, "CONT");
    scene.wait_alike(&[0, 1, 2]);
    for node in &mut scene.nodes {
        node.server.stop();
    }
}

/// As long as one of its own region is left, a node brings no session to another region: of no account, whatever the protocol.
#[test]
#[ignore = "long: clusters beyond the promises"]
fn another_region_serves_when_none_of_the_own_is_left() {
    let of = [
        ("a", "worker", "land"),
        ("b", "worker", "land"),
        ("f", "worker", "far"),
        ("door", "worker", "land"),
    ];
    let mut scene = regions(&of, 1, &[]);
    // Where they fall to is a matter of chance.
    let password = "a secret of many";
    let addresses: Vec<String> = (0..8)
        .map(|number| format!("one{number}@example.org"))
        .collect();
    for address in &addresses {
        let add = ["account", "add", address, "--password-stdin"];
        let added = scene.nodes[0].server.admin(&add, password);
        let _ = added.expect("account add");
    }
    scene.deliver(0, "first");
    scene.wait_alike(&[0, 1, 2, 3]);
    for address in &addresses {
        wait_for("the account", || {
            scene.nodes[3].server.login((address, password)).ok()
        });
    }
    let drained = scene.nodes[3].cluster(&["drain"]).expect("cluster drain");
    assert!(drained.contains("safe to stop"), "{drained}");

    let served = |scene: &mut Scene, name: &str| -> BTreeSet<String> {
        let front = &scene.nodes[3];
        let count = front.brought_to().len();
        for address in &addresses {
            wait_for("a session", || front.server.login((address, password)).ok());
        }
        let _ = wait_for("a session of POP3", || front.pop3().ok());
        wait_for("a submission", || {
            let text = letter(name, 3000);
            let sent = front.submission().deliver(ANNE.0, &[ANNE.0], &text, false);
            sent.ok()?[0].is(2).then_some(())
        });
        scene.expected.insert(name.to_owned(), BTreeSet::new());
        let too = format!("{name}, by lmtp");
        wait_for("a delivery", || {
            let mut mail = Mail::lmtp(front.server.ports.lmtp).ok()?;
            let text = message::bytes(&too, 3000);
            let replies = mail.deliver("carl@example.net", &[ANNE.0], &text, true);
            replies.ok()?[0].is(2).then_some(())
        });
        scene.expected.insert(too, BTreeSet::new());
        front.brought_to().split_off(count).into_iter().collect()
    };
    let names =
        |of: &[&str]| -> BTreeSet<String> { of.iter().map(|name| (*name).to_owned()).collect() };
    let by = served(&mut scene, "with both");
    assert!(by.is_subset(&names(&["a", "b"])), "{by:?}");
    scene.wait_alike(&[0, 1, 2, 3]);
    let links = |scene: &Scene, count: usize| {
        wait_for("links", || (scene.nodes[3].links() == count).then_some(()));
    };
    for (gone, left, by) in [(0, 2, "b"), (1, 1, "f")] {
        scene.nodes[gone].server.kill();
        links(&scene, left);
        assert_eq!(served(&mut scene, &format!("by {by}")), names(&[by]));
        scene.wait_alike(&[2, 3]);
    }
    // One is enough to be asked before the other region.
    scene.nodes[0].server.start(&[]);
    links(&scene, 2);
    scene.wait_alike(&[0, 2, 3]);
    assert_eq!(served(&mut scene, "by a again"), names(&["a"]));
    scene.nodes[1].server.start(&[]);
    scene.wait_alike(&[0, 1, 2, 3]);
    for node in &mut scene.nodes {
        node.server.stop();
    }
}

/// As many as this are served elsewhere, or for others; who comes beyond that is told, and let in when another has gone.
#[test]
#[ignore = "long: clusters beyond the promises"]
fn sessions_that_are_brought_are_counted() {
    for (bound, what) in [
        ("relays_max = 1", "Too many sessions are served elsewhere"),
        ("relayed_max = 1", "No node that serves this can be reached"),
    ] {
        let of = [("a", "worker"), ("b", "worker")];
        let mut scene = region(&of, 0, &[("cluster", bound)]);
        let _ = scene.nodes[1].cluster(&["drain"]).expect("cluster drain");
        let server = &scene.nodes[1].server;
        let first = server.anne();
        let mut second = Imap::connect(server.ports.imaps, &server.tls).unwrap();
        let line = format!("x LOGIN {} \"{}\"\r\n", ANNE.0, ANNE.1);
        second.wire.send(line.as_bytes()).unwrap();
        let said = String::from_utf8_lossy(&second.wire.drain().unwrap()).into_owned();
        assert!(
            said.starts_with("* BYE [UNAVAILABLE]") && said.contains(what),
            "{said:?}"
        );
        let mut mail = Mail::lmtp(server.ports.lmtp).unwrap();
        let refused = mail.command("MAIL FROM:<>").unwrap();
        assert!(
            refused.code == 421 && refused.lines[0].contains(what),
            "{refused:?}"
        );
        drop(first);
        wait_for("the place", || server.login(ANNE).ok());
        wait_for("the place", || {
            let mut mail = Mail::lmtp(server.ports.lmtp).unwrap();
            mail.command("MAIL FROM:<>").unwrap().is(2).then_some(())
        });
        for node in &mut scene.nodes {
            node.server.stop();
        }
    }
}

/// Python's imaplib and poplib, and curl, at a front door that serves nobody by itself.
#[test]
#[ignore = "long: clusters beyond the promises"]
fn real_clients_use_a_front_door() {
    let mut scene = region(&[("a", "worker"), ("s", "storage")], 0, &[]);
    scene.deliver(0, "first");
    scene.wait_alike(&[0, 1]);
    let count = scene.nodes[1].brought_to().len();
    let server = &scene.nodes[1].server;
    let script = r#"
import imaplib, poplib, ssl, sys
imaps, pop3s, authority, user, password = sys.argv[1:]
tls = ssl.create_default_context(cafile=authority)
imap = imaplib.IMAP4_SSL("localhost", int(imaps), ssl_context=tls)
imap.login(user, password)
assert b"IDLE" in imap.capability()[1][0]
assert imap.select("INBOX")[1] == [b"1"]
imap.append("INBOX", None, None, b"Subject: of imaplib\r\n\r\n" + (b"x" * 70 + b"\r\n") * 1500)
assert imap.noop()[0] == "OK"
assert len(imap.fetch("2", "(RFC822)")[1][0][1]) == 108023
imap.logout()
imap = imaplib.IMAP4_SSL("localhost", int(imaps), ssl_context=tls)
imap.authenticate("PLAIN", lambda _: ("\0%s\0%s" % (user, password)).encode())
assert imap.select("INBOX")[1] == [b"2"]
imap.logout()
# One that sends and reads at the same time: what it sends waits while it is answered at length, and neither way stops the other for good.
import select
wire = tls.wrap_socket(__import__("socket").create_connection(("localhost", int(imaps))), server_hostname="localhost")
lines = ["L LOGIN %s \"%s\"" % (user, password), "S SELECT INBOX"]
lines += ["F%d FETCH 2 BODY.PEEK[]" % number for number in range(400)]
lines += ["A APPEND INBOX {8000000+}", "x" * 8000000, "X LOGOUT", ""]
out = memoryview("\r\n".join(lines).encode())
wire.setblocking(False)
tail, heard = b"", 0
while True:
    readable, writable, _ = select.select([wire], [wire] if out else [], [], 50)
    assert readable or writable, "stuck after %d bytes, %d to send" % (heard, len(out))
    try:
        if writable:
            out = out[wire.send(out[:65536]):]
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        pass
    try:
        data = wire.recv(1 << 20)
        if not data:
            break
        heard += len(data)
        tail = (tail + data)[-200:]
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        pass
assert heard > 400 * 108023 and b"A OK" in tail and b"X OK" in tail, (heard, tail)
pop3 = poplib.POP3_SSL("localhost", int(pop3s), context=tls)
pop3.user(user); pop3.pass_(password)
assert pop3.stat()[0] == 3
assert b"Subject: of imaplib" in pop3.retr(2)[1]
pop3.dele(2); pop3.dele(3)
pop3.quit()
"#;
    let ports = [server.ports.imaps, server.ports.pop3s].map(|port| port.to_string());
    let mut python = Command::new("python3");
    python.args(["-c", script, &ports[0], &ports[1]]);
    python
        .arg(server.path("authority.pem"))
        .args([ANNE.0, ANNE.1]);
    let _ = run(&mut python, b"").expect("imaplib and poplib");
    scene.wait_alike(&[0, 1]);
    let mut curl = Command::new("curl");
    let url = format!("imaps://localhost:{}/INBOX;MAILINDEX=1", ports[0]);
    curl.args(["--silent", "--show-error", "--user"]);
    curl.arg(format!("{}:{}", ANNE.0, ANNE.1)).arg("--cacert");
    curl.arg(scene.nodes[1].server.path("authority.pem"))
        .arg(url);
    assert!(run(&mut curl, b"").expect("curl").contains("first"));
    assert!(scene.nodes[1].brought_to().len() >= count + 4);
    for node in &mut scene.nodes {
        node.server.stop();
    }
}
