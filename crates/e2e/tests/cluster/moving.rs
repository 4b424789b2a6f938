//! A client that keeps a copy of its mailbox (QRESYNC) goes on at the second node when the first is killed: it overlooks nothing, and loads nothing again that
//! it has.

use std::collections::BTreeSet;

use whimbrel_e2e::{
    device::{Device, News},
    process::wait_for,
};

use super::{Scene, proxy::Proxy, two_behind_proxies};

/// This is new, and nothing else is loaded.
fn only(name: &str) -> News {
    News {
        new: BTreeSet::from([name.to_owned()]),
        again: BTreeSet::new(),
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
            (self.scene.nodes[1].figure("whimbrel_cluster_hidden_operations") == 0).then_some(())
        });
    }
}

#[test]
fn a_client_of_a_node_that_died_keeps_every_uid() {
    let mut two = Two::new();
    let mut device = Device::of(&two.scene.nodes[0].server, "INBOX");
    let before = device.names();
    two.scene.nodes[0].server.kill();
    two.scene.nodes[1].append("after");
    let news = device.goes_on_at(&two.scene.nodes[1].server);
    assert_eq!(news, only("after"));
    let mut there = device.names();
    there.remove("after");
    assert_eq!(there, before);
    assert_eq!(two.scene.nodes[1].figure("whimbrel_takeover_uids_total"), 0);
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
    let mut device = Device::of(&two.scene.nodes[0].server, "INBOX");
    two.scene.nodes[0].server.kill();
    let mut before = Device::of(&two.scene.nodes[1].server, "INBOX").names();
    let unseen = before.remove("unseen").unwrap();
    assert!(unseen < device.next, "the client would overlook it");
    let news = device.goes_on_at(&two.scene.nodes[1].server);
    assert_eq!(news, only("unseen"));
    let mut there = device.names();
    assert_ne!(there.remove("unseen"), Some(unseen));
    assert_eq!(there, before);
    assert_eq!(two.scene.nodes[1].figure("whimbrel_takeover_uids_total"), 1);
}
