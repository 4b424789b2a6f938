//! A client that keeps a copy of its mailbox (QRESYNC) goes on at the second node when the first is killed: it overlooks nothing, and loads nothing again that
//! it has.

use std::collections::BTreeMap;

use whimbrel_e2e::{
    imap::set_of,
    message,
    process::wait_for,
    server::{ACCOUNTS, Server},
};

use crate::{Scene, proxy::Proxy, two_behind_proxies};

/// What the client has of INBOX.
struct Copy {
    validity: u32,
    next: u32,
    modseq: String,
    names: BTreeMap<u32, String>,
}

impl Copy {
    fn of(server: &Server) -> Copy {
        let mut imap = server.anne();
        let _ = imap.command("ENABLE QRESYNC").unwrap().ok("ENABLE");
        let selected = imap.command("SELECT INBOX").unwrap().ok("SELECT");
        let modseq = selected.code("HIGHESTMODSEQ").unwrap();
        Copy {
            modseq,
            ..Copy::at(server, &mut imap)
        }
    }

    fn at(server: &Server, imap: &mut whimbrel_e2e::imap::Imap) -> Copy {
        let contents = server.contents(imap, "INBOX").unwrap();
        let name = |bytes: &[u8]| message::name_of(bytes).unwrap();
        let names = contents.messages.iter();
        Copy {
            validity: contents.validity,
            next: contents.next,
            modseq: String::new(),
            names: names.map(|of| (of.uid, name(&of.bytes))).collect(),
        }
    }

    /// The client connects to another server and asks for what is new: how many bodies it loads that it has under another UID.
    fn goes_on_at(&self, server: &Server) -> usize {
        let mut imap = server.login(ACCOUNTS[0]).unwrap();
        let _ = imap.command("ENABLE QRESYNC").unwrap().ok("ENABLE");
        let known: Vec<u32> = self.names.keys().copied().collect();
        let select = format!(
            "SELECT INBOX (QRESYNC ({} {} {}))",
            self.validity,
            self.modseq,
            set_of(&known)
        );
        let selected = imap.command(&select).unwrap().ok("SELECT");
        assert_eq!(selected.code_number("UIDVALIDITY"), Some(self.validity));
        let search = format!("UID SEARCH UID {}:*", self.next);
        let new = imap.command(&search).unwrap().ok("SEARCH").found();
        let there = Copy::at(server, &mut imap).names;
        let mut again = 0;
        for (uid, name) in &there {
            if *uid < self.next {
                assert_eq!(self.names.get(uid), Some(name), "it overlooks {uid}");
            } else {
                assert!(new.contains(uid), "{name} is not told as new");
                again += usize::from(self.names.values().any(|known| known == name));
            }
        }
        again
    }
}

struct Two {
    scene: Scene,
    proxies: [Proxy; 2],
}

impl Two {
    /// Two nodes at which mail came in turns.
    fn new() -> Two {
        let (mut scene, proxies) = two_behind_proxies();
        for number in 0..8 {
            scene.deliver(number % 2, &format!("mail-{number}"));
            scene.wait_alike(&[0, 1]);
        }
        let two = Two { scene, proxies };
        two.all_shown();
        two
    }

    /// Waits until the second knows that the first has shown all.
    fn all_shown(&self) {
        wait_for("the reports", || {
            (self.scene.nodes[1].figure("whimbrel_cluster_unshown_operations") == 0).then_some(())
        });
    }
}

#[test]
fn a_client_of_a_node_that_died_keeps_every_uid() {
    let mut two = Two::new();
    let copy = Copy::of(&two.scene.nodes[0].server);
    two.scene.nodes[0].server.kill();
    two.scene.nodes[1].append("after");
    assert_eq!(copy.goes_on_at(&two.scene.nodes[1].server), 0);
    let there = Copy::of(&two.scene.nodes[1].server).names;
    assert_eq!(there.len(), copy.names.len() + 1);
    assert!(
        copy.names
            .iter()
            .all(|(uid, name)| there.get(uid) == Some(name))
    );
    assert_eq!(
        two.scene.nodes[1].figure("whimbrel_takeover_claims_total"),
        0
    );
}

#[test]
fn what_came_while_the_dead_node_was_alone_is_claimed_again_and_nothing_else() {
    let mut two = Two::new();
    two.proxies.iter().for_each(Proxy::cut);
    wait_for("the cut to be noticed", || {
        (two.scene.nodes[1].links() == 0).then_some(())
    });
    two.scene.nodes[1].append("unseen");
    // These go with the first node.
    for number in 0..4 {
        two.scene.nodes[0].append(&format!("tail-{number}"));
    }
    let copy = Copy::of(&two.scene.nodes[0].server);
    two.scene.nodes[0].server.kill();
    let before = Copy::of(&two.scene.nodes[1].server).names;
    let (unseen, _) = before.iter().find(|(_, name)| *name == "unseen").unwrap();
    assert!(*unseen < copy.next, "the client would overlook it");
    assert_eq!(copy.goes_on_at(&two.scene.nodes[1].server), 0);
    let there = Copy::of(&two.scene.nodes[1].server).names;
    assert_eq!(there.len(), before.len());
    let moved = before
        .iter()
        .filter(|(uid, name)| there.get(uid) != Some(name));
    assert_eq!(moved.count(), 1);
    assert_eq!(
        two.scene.nodes[1].figure("whimbrel_takeover_claims_total"),
        1
    );
}
