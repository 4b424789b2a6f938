//! Cuts of which nobody is told: packets are lost in both directions and no stream ends, as when a router forgets a way. And cuts through the middle
//! of four nodes.

use std::thread::scope;

use super::{alike::converge, mesh::Mesh, *};

/// What both sides of a cut do to a mailbox that has `kept`, `gone here` and `gone there`.
fn both_sides_write(mesh: &mut Mesh, here: usize, there: usize, turn: &str) {
    for node in [here, there] {
        mesh.scene.deliver(node, &format!("{turn}: by {node}"));
        mesh.scene.put(node, &format!("{turn}: put at {node}"));
        mesh.scene.store(node, "kept", &format!("${turn}{node}"));
    }
}

/// This side shows what it wrote, the same at all of its nodes, and nothing that the other wrote.
fn side_shows(mesh: &mut Mesh, side: &[usize], has: &str, lacks: &str) {
    let _ = converge(
        side,
        |node| mesh.scene.look(node),
        |messages| {
            let names = shown(messages);
            assert!(!names.contains_key(lacks), "{lacks} came through the cut");
            (!names.contains_key(has)).then(|| format!("{has} is not there"))
        },
    );
}

#[test]
fn a_node_that_silence_parts_from_the_rest_writes_on() {
    let mut mesh = Mesh::new(3);
    for (node, name) in ["gone here", "gone there", "kept"].into_iter().enumerate() {
        mesh.scene.deliver(node, name);
    }
    mesh.alike();
    let mut idle = mesh.scene.nodes[2].server.anne();
    let selected = idle.command("SELECT INBOX").unwrap().ok("SELECT");
    assert_eq!(selected.exists(), Some(3));

    mesh.silence_around(&[2]);
    // Before anybody can know, and after it was noticed.
    both_sides_write(&mut mesh, 0, 2, "unnoticed");
    mesh.scene.expunge(0, "gone here");
    mesh.scene.expunge(2, "gone there");
    mesh.wait_links(&[1, 1, 0]);
    both_sides_write(&mut mesh, 1, 2, "noticed");
    side_shows(&mut mesh, &[0, 1], "noticed: by 1", "noticed: by 2");
    side_shows(&mut mesh, &[2], "noticed: by 2", "noticed: by 1");

    mesh.heal_all();
    mesh.alike();
    // Who was there all the time is told all of it.
    let _ = idle.command("NOOP").unwrap().ok("NOOP");
    let told = idle.command("UID SEARCH ALL").unwrap().ok("SEARCH").found();
    assert_eq!(told.len(), mesh.scene.expected.len());
    mesh.stop();
}

/// Two that have no link reach a third node, which passes on: clients that stay where they are see their messages keep their UIDs.
#[test]
fn one_link_of_three_is_down() {
    const EACH: u64 = 40;
    let mut mesh = Mesh::new(3);
    mesh.alike();
    let again = |mesh: &Mesh| -> u64 {
        let nodes = mesh.scene.nodes.iter();
        nodes
            .map(|node| node.figure("whimbrel_uids_reassigned_total"))
            .sum()
    };
    mesh.cut([0, 2]);
    mesh.wait_links(&[1, 2, 1]);
    let mut clients: Vec<_> = (0..3)
        .map(|node| mesh.scene.nodes[node].server.anne())
        .collect();
    for client in &mut clients {
        let _ = client.command("SELECT INBOX").unwrap().ok("SELECT");
    }
    // Each is known to be looked at.
    mesh.scene.deliver(1, "first");
    let _ = converge(
        &[0, 1, 2],
        |node| mesh.scene.look(node),
        |messages| (messages.len() != 1).then(|| "the first message is not there".to_owned()),
    );
    let before = again(&mesh);
    scope(|scope| {
        for (node, mut client) in clients.into_iter().enumerate() {
            scope.spawn(move || {
                for number in 0..EACH {
                    let text = message::bytes(&format!("{node}: {number}"), 500);
                    let _ = client.append("INBOX", &[], &text).unwrap().ok("APPEND");
                    let _ = client.command("NOOP").unwrap().ok("NOOP");
                }
            });
        }
    });
    let claimed = again(&mesh) - before;
    assert!(
        claimed * 20 <= 3 * EACH,
        "{claimed} claims again of {} messages",
        3 * EACH
    );
    mesh.heal_all();
    mesh.wait_links(&[2, 2, 2]);
    mesh.stop();
}

#[test]
fn four_nodes_are_cut_in_halves_one_way_and_the_other() {
    let mut mesh = Mesh::new(4);
    mesh.scene.deliver(3, "kept");
    mesh.alike();
    // Silently, then with all streams ended; each pair of nodes is parted in one of them at least.
    for (turn, [here, there]) in [("first", [[0, 1], [2, 3]]), ("second", [[0, 2], [1, 3]])] {
        match turn {
            "first" => mesh.silence_around(&here),
            _ => (0..4).for_each(|pair| mesh.cut([here[pair / 2], there[pair % 2]])),
        }
        mesh.wait_links(&[1, 1, 1, 1]);
        both_sides_write(&mut mesh, here[0], there[0], &format!("{turn}0"));
        both_sides_write(&mut mesh, here[1], there[1], &format!("{turn}1"));
        for (side, other) in [(here, there), (there, here)] {
            let by = |node: usize| format!("{turn}1: put at {node}");
            side_shows(&mut mesh, &side, &by(side[1]), &by(other[1]));
        }
        mesh.heal_all();
        mesh.alike();
    }
    mesh.stop();
}
