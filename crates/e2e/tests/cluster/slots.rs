//! Older copies of disks are put back again and again, and each time the node finds a slot, although nobody removes what it was before.

use super::*;

/// Rounds in which each of the three nodes goes on from an older copy: more than shares would last that nobody gives back.
const ROUNDS: usize = 5;

#[test]
#[ignore = "long: clusters beyond the promises"]
fn older_copies_that_are_put_back_use_up_no_slots() {
    let mut nodes: Vec<Node> = Vec::new();
    for name in ["a", "b", "c"] {
        let port = free_port();
        let mut node = Node::new(name, port, port, &[], nodes.is_empty());
        node.begin(nodes.first());
        nodes.push(node);
    }
    for node in &nodes {
        wait_for("links", || (node.links() == 2).then_some(()));
        wait_for("the account", || node.server.login(ACCOUNTS[0]).ok());
    }
    let mut scene = Scene::new(nodes);
    for round in 0..ROUNDS {
        for at in 0..3 {
            let data = scene.nodes[at].server.path("data");
            let kept = scene.nodes[at].server.path("kept");
            scene.nodes[at].server.stop();
            copy(&data, &kept);
            scene.nodes[at].server.start(&[]);
            scene.deliver(at, &format!("lost at {at} in round {round}"));
            scene.wait_alike(&[0, 1, 2]);
            scene.nodes[at].server.kill();
            fs::remove_dir_all(&data).unwrap();
            fs::rename(&kept, &data).unwrap();
            scene.nodes[at].server.start(&[]);
            scene.wait_alike(&[0, 1, 2]);
        }
    }
    // Nobody is left of those that were, and what they had is there for who comes.
    let status = wait_for("all slots to come back", || {
        let status = scene.nodes[0].status();
        (status.contains("slots: 61 of 64 are free: ")
            && !status.contains(" of nodes that are gone"))
        .then_some(status)
    });
    assert_eq!(
        status.matches("removed, its slot is free").count(),
        3 * ROUNDS,
        "{status}"
    );
    let port = free_port();
    let mut fourth = Node::new("d", port, port, &[], false);
    fourth.begin(Some(&scene.nodes[2]));
    wait_for("the fourth node", || (fourth.links() == 3).then_some(()));
    fourth.server.stop();
    for node in &mut scene.nodes {
        node.server.stop();
    }
}
