//! Logs that are gone: who lacks what was in them is given the rows themselves, by a node that has them.
//!
//! A log keeps 4096 operations, and what a member lacks; a command that changes flags is one. So a few seconds outlast a log.

use super::*;

/// Messages that are there all the time.
const MESSAGES: usize = 20;
/// What a log keeps in any case.
const KEPT: usize = 4096;
/// More than that, and than it has in excess of it before it is cut.
const COMMANDS: usize = KEPT + 1400;
/// Commands that are sent at once: what is answered meanwhile finds room in sockets.
const AT_ONCE: usize = 200;

impl Scene {
    /// Fills INBOX at a node.
    fn fill(&mut self, node: usize) {
        for number in 0..MESSAGES {
            self.put(node, &format!("message {number:02}"));
        }
    }

    /// Sets and clears keywords, long ones, until no log keeps what was there before; a flag is left at each message.
    fn outlast_a_log(&mut self, node: usize) {
        let mut imap = self.nodes[node].server.anne();
        let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
        let keywords = ["$One", "$Other"].map(|name| name.to_owned() + &"x".repeat(110));
        let keywords = keywords.join(" ");
        let count = self.expected.len();
        let commands: Vec<(String, String)> = (0..COMMANDS.next_multiple_of(2 * count))
            .map(|index| {
                let (number, sign) = (index % count + 1, ["+", "-"][index / count % 2]);
                let command = format!("STORE {number} {sign}FLAGS.SILENT ({keywords})");
                (format!("s{index}"), command)
            })
            .collect();
        for commands in commands.chunks(AT_ONCE) {
            let of: Vec<(&str, &str)> = commands
                .iter()
                .map(|(tag, command)| (tag.as_str(), command.as_str()))
                .collect();
            imap.pipeline(&of).unwrap();
            for (tag, _) in of {
                let _ = imap.reply(tag).unwrap().ok("STORE");
            }
        }
        let last = "STORE 1:* +FLAGS.SILENT (\\Answered)";
        let _ = imap.command(last).unwrap().ok("STORE");
        for flags in self.expected.values_mut() {
            flags.insert("\\Answered".to_owned());
        }
    }

    fn states(&self, node: usize) -> [u64; 2] {
        ["sent", "received"].map(|what| {
            let name = format!("whimbrel_snapshots_{what}_total");
            self.nodes[node].figure(&name)
        })
    }

    /// Each stops, and its store is without damage.
    fn end(mut self) {
        for node in &mut self.nodes {
            node.server.stop();
            let checked = node.server.admin(&["check"], "");
            let _ = checked.expect("a store without damage");
        }
    }
}

/// A node works alone until its log is cut. Who joins then cannot be given that log.
#[test]
#[ignore = "long: clusters beyond the promises"]
fn who_joins_is_given_what_no_log_has() {
    let ports = [free_port(), free_port()];
    let mut a = Node::new("a", ports[0], ports[0], &[], true);
    let b = Node::new("b", ports[1], ports[1], &[], false);
    a.begin(None);
    let mut scene = Scene::new(vec![a, b]);
    scene.fill(0);
    scene.expunge(0, "message 07");
    scene.outlast_a_log(0);
    scene.expunge(0, "message 08");
    scene.store(0, "message 09", "\\Flagged");
    scene.wait_alike(&[0]);
    let (stable, operations) = scene.nodes[0].stable();
    assert!(operations as usize > KEPT && stable == operations);

    let [a, b] = &mut scene.nodes[..] else {
        unreachable!("two nodes");
    };
    b.join(a);
    scene.wait_alike(&[0, 1]);
    let ([given, _], [_, taken]) = (scene.states(0), scene.states(1));
    assert!(given > 0 && taken > 0, "{given} given, {taken} taken");
    // What follows the state comes by the log, in both directions.
    scene.expunge(1, "message 10");
    scene.deliver(1, "at the new one");
    scene.store(0, "message 11", "\\Seen");
    scene.wait_alike(&[0, 1]);
    scene.wait_for_copies_of(0);
    assert_eq!(scene.states(1), [0, taken]);
    scene.end();
}

/// Two nodes are cut apart, and both go on. One writes more than its logs may have: it keeps them no longer for the other one, whose own changes are
/// joined with what it is given then.
#[test]
#[ignore = "long: clusters beyond the promises"]
fn who_was_away_for_long_is_given_what_the_logs_lost() {
    let less = [("cluster", "log_retention_bytes = \"1MiB\"")];
    let mut mesh = mesh::Mesh::with(2, binary(), &less);
    let scene = &mut mesh.scene;
    scene.fill(0);
    scene.wait_alike(&[0, 1]);
    scene.wait_for_copies_of(0);
    mesh.cut_off(1);
    mesh.wait_links(&[0, 0]);

    let scene = &mut mesh.scene;
    scene.nodes[1].store("message 07", "\\Flagged");
    scene.store(1, "message 09", "\\Flagged");
    scene.expunge(1, "message 10");
    scene.put(1, "written there");
    let there = scene.expected.remove("written there").unwrap();
    // What the other side removes is flagged over there, and was there before the cut.
    scene.expunge(0, "message 07");
    scene.expunge(0, "message 08");
    scene.outlast_a_log(0);
    scene.put(0, "written here");
    scene.expected.insert("written there".to_owned(), there);
    let a = &scene.nodes[0];
    // The other one lacks it, and it is cut. It may have been looked at in the middle, when no log was so long that anything of it could go; what
    // stays of it is more than it may have, so that it is looked at and said again.
    let looks = || {
        let log = a.server.log();
        log.matches("logs exceed cluster.log_retention_bytes")
            .count()
    };
    let before = looks();
    wait_for("the logs to be given up", || {
        (looks() > before).then_some(())
    });
    let [before, _] = scene.states(0);
    let [_, had] = scene.states(1);
    mesh.heal_all();
    mesh.alike();
    let ([given, _], [_, taken]) = (mesh.scene.states(0), mesh.scene.states(1));
    assert!(
        given > before && taken > had,
        "{given} given, {taken} taken"
    );
    mesh.scene.expunge(1, "message 12");
    mesh.scene.deliver(1, "afterwards");
    mesh.scene.store(0, "written there", "\\Seen");
    mesh.alike();
    mesh.scene.wait_for_copies_of(0);
    mesh.scene.end();
}
