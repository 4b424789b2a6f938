//! Membership while running: a dead node is removed and replaced; one that was removed comes back, and one that lives is told.

use std::collections::BTreeSet;

use whimbrel_e2e::{
    process::{signal, wait_for},
    server::{ACCOUNTS, free_port},
};

use super::{Node, Scene, proxy::Proxy, two_behind_proxies};

impl Scene {
    /// Another node is there in place of the second of two, and shows what the first one does; all stop.
    fn comes_for_the_second(&mut self, node: Node) {
        self.nodes[1] = node;
        self.witnesses[1] = Default::default();
        wait_for("the account", || {
            self.nodes[1].server.login(ACCOUNTS[0]).ok()
        });
        self.wait_alike(&[0, 1]);
        for node in &mut self.nodes {
            node.server.stop();
        }
    }
}

impl Node {
    /// What all members have applied, and what is here.
    pub(crate) fn stable(&self) -> (u64, u64) {
        let status = self.status();
        let here = status.lines().find(|line| line.starts_with("here: "));
        let numbers: Vec<u64> = here
            .unwrap()
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        let [operations, _partitions, _applied, stable, ..] = numbers[..] else {
            panic!("{status}");
        };
        (stable, operations)
    }

    /// Whether the logs of a node of this name are closed.
    fn has_closed(&self, name: &str) -> bool {
        let status = self.status();
        let mut of = status
            .lines()
            .filter(|line| line.starts_with(&format!("{name}  ")));
        of.any(|line| line.contains("its slot is free"))
    }

    fn slots(&self) -> Vec<String> {
        let status = self.status();
        let open = status
            .lines()
            .filter(|line| !line.contains("its slot is free"));
        open.filter_map(|line| Some(line.split("slot ").nth(1)?.split(' ').next()?.to_owned()))
            .collect()
    }
}

/// Everything is stable: no member holds it up.
fn wait_stable(scene: &Scene, of: &[usize]) {
    for &index in of {
        wait_for(&format!("all to be stable at {index}"), || {
            let (stable, operations) = scene.nodes[index].stable();
            (stable == operations && stable > 0).then_some(())
        });
    }
}

#[test]
#[ignore = "long: clusters beyond the promises"]
fn a_dead_node_is_replaced() {
    let ports: Vec<u16> = (0..4).map(|_| free_port()).collect();
    let mut a = Node::new("a", ports[0], ports[0], &[], true);
    let mut b = Node::new("b", ports[1], ports[1], &[], false);
    let mut c = Node::new("c", ports[2], ports[2], &[], false);
    let _ = a.cluster(&["init"]).expect("cluster init");
    a.server.start(&[]);
    b.join(&a);
    c.join(&b);
    let mut scene = Scene::new(vec![a, b, c]);
    wait_for("the account", || {
        scene.nodes[2].server.login(ACCOUNTS[0]).ok()
    });
    for node in 0..3 {
        scene.deliver(node, &format!("before-{node}"));
    }
    scene.wait_alike(&[0, 1, 2]);
    wait_stable(&scene, &[0, 1, 2]);

    // One is drained: others serve its clients, and it is safe to stop; taken back, it serves.
    let drained = scene.nodes[2].cluster(&["drain"]).expect("cluster drain");
    assert!(drained.contains("safe to stop"), "{drained}");
    assert!(
        drained.contains("a holds all") && drained.contains("b holds all"),
        "{drained}"
    );
    let before = scene.nodes[2].brought_to().len();
    let _ = scene.nodes[2].server.anne();
    assert_eq!(scene.nodes[2].brought_to().len(), before + 1);
    let _ = scene.nodes[2]
        .cluster(&["drain", "--cancel"])
        .expect("cancelled");
    scene.wait_alike(&[0, 1, 2]);

    // One dies: the others go on, and nothing is forgotten while it may come back.
    scene.nodes[2].server.kill();
    scene.deliver(0, "without-0");
    scene.deliver(1, "without-1");
    scene.wait_alike(&[0, 1]);
    for node in &scene.nodes[..2] {
        let (stable, operations) = node.stable();
        assert!(stable < operations, "{stable} of {operations}");
    }
    let asked = scene.nodes[0].cluster(&["remove", "c"]);
    assert!(
        !asked.success && asked.stderr.contains("--yes"),
        "{asked:?}"
    );
    assert!(asked.stdout.contains("not linked"), "{asked:?}");
    let wrong = scene.nodes[0].cluster(&["remove", "x", "--yes"]);
    assert!(wrong.stderr.contains("no node x"), "{wrong:?}");
    let own = scene.nodes[0].cluster(&["remove", "a", "--yes"]);
    assert!(own.stderr.contains("this node itself"), "{own:?}");
    let _ = scene.nodes[0]
        .cluster(&["remove", "c", "--yes"])
        .expect("cluster remove");
    for node in &scene.nodes[..2] {
        wait_for("the logs of c to be closed", || {
            node.has_closed("c").then_some(())
        });
    }
    wait_stable(&scene, &[0, 1]);

    // Another one comes under its name.
    let mut new = Node::new("c", ports[3], ports[3], &[], false);
    new.join(&scene.nodes[1]);
    let dead = std::mem::replace(&mut scene.nodes[2], new);
    scene.witnesses[2] = Default::default();
    wait_for("the account", || {
        scene.nodes[2].server.login(ACCOUNTS[0]).ok()
    });
    scene.wait_alike(&[0, 1, 2]);
    scene.deliver(2, "after");
    scene.wait_alike(&[0, 1, 2]);
    wait_stable(&scene, &[0, 1, 2]);
    for node in &scene.nodes {
        let slots = node.slots();
        let different: BTreeSet<&String> = slots.iter().collect();
        assert_eq!((slots.len(), different.len()), (3, 3), "{}", node.status());
    }

    // The dead one comes back with its disk: it is told, and does not serve.
    scene.nodes[2].server.stop();
    let refused = dead.server.admin(&["serve"], "");
    assert!(
        !refused.success
            && refused
                .stderr
                .contains("was removed from the cluster (by a)"),
        "{refused:?}"
    );
    assert!(
        refused.stderr.contains("have all that was written here"),
        "{refused:?}"
    );
    scene.nodes[2].server.start(&[]);
    scene.wait_alike(&[0, 1, 2]);
    for node in &mut scene.nodes {
        node.server.stop();
    }
}

#[test]
#[ignore = "long: clusters beyond the promises"]
fn a_node_that_is_cut_off_is_removed_and_comes_back() {
    let (mut scene, proxies) = two_behind_proxies();
    scene.deliver(1, "before");
    scene.wait_alike(&[0, 1]);
    proxies.iter().for_each(Proxy::cut);
    wait_for("the cut to be noticed", || {
        (scene.nodes[0].links() == 0).then_some(())
    });
    // It goes on, and nobody else has this.
    scene.nodes[1].deliver("refused");
    let _ = scene.nodes[0]
        .cluster(&["remove", "b", "--yes"])
        .expect("cluster remove");
    scene.deliver(0, "alone");
    wait_for("the logs of b to be closed", || {
        scene.nodes[0].has_closed("b").then_some(())
    });
    wait_stable(&scene, &[0]);
    // It hears of it while it runs, and stops; the next start says how much is on its disk alone.
    proxies.iter().for_each(Proxy::heal);
    let b = &mut scene.nodes[1].server;
    assert_eq!(b.wait_end(), 3, "{}", b.tail());
    let log = b.log();
    assert!(log.contains("was removed from the cluster (by a)"), "{log}");
    let refused = b.admin(&["serve"], "");
    assert!(
        !refused.success && refused.stderr.contains("3 operations in 2 partitions"),
        "{refused:?}"
    );
    scene.wait_alike(&[0]);
    // A start of a cluster of one: logs of who was removed are read, too.
    scene.nodes[0].server.stop();
    scene.nodes[0].server.start(&[]);
    scene.wait_alike(&[0]);
    let port = free_port();
    let mut c = Node::new("c", port, port, &[], false);
    c.join(&scene.nodes[0]);
    scene.comes_for_the_second(c);
}

/// Its machine stood still while it was removed, and another one has its name when it goes on: it hears of it all the same, and stops. Else its
/// clients went on writing what nobody takes.
#[test]
#[ignore = "long: clusters beyond the promises"]
fn a_node_that_was_replaced_while_it_stood_still_hears_of_it() {
    let (mut scene, _proxies) = two_behind_proxies();
    scene.deliver(1, "before");
    scene.wait_alike(&[0, 1]);
    let pid = scene.nodes[1].server.pid();
    signal(pid, "STOP");
    wait_for("the link to be gone", || {
        (scene.nodes[0].links() == 0).then_some(())
    });
    let _ = scene.nodes[0]
        .cluster(&["remove", "b", "--yes"])
        .expect("cluster remove");
    let port = free_port();
    let mut b = Node::new("b", port, port, &[], false);
    b.join(&scene.nodes[0]);
    wait_for("the new one to be linked", || {
        (scene.nodes[0].links() == 1).then_some(())
    });
    signal(pid, "CONT");
    let former = &mut scene.nodes[1].server;
    assert_eq!(former.wait_end(), 3, "{}", former.tail());
    assert!(
        former.log().contains("was removed from the cluster (by a)"),
        "{}",
        former.log()
    );
    scene.comes_for_the_second(b);
}
