//! The operator's guide (docs/cluster.md) as it is written: each command that it names is taken from it and run, and what it promises of them is held.

use std::collections::BTreeSet;

use super::*;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cluster.md");

/// Commands that other tests run, which need more than a few nodes on one machine.
const ELSEWHERE: [&str; 2] = [
    // On a node alone: `restore.rs`.
    "whimbrel node renew",
    // An older disk is put back: `an_older_disk_is_noticed_by_the_peers_before_anything_is_written`, and `admin.rs`.
    "whimbrel cluster remove NAME --earlier",
];

pub(crate) struct Guide {
    commands: BTreeSet<String>,
    run: BTreeSet<String>,
}

impl Guide {
    pub(crate) fn open() -> Guide {
        let text = fs::read_to_string(GUIDE).unwrap();
        let spans = text.split('`').skip(1).step_by(2);
        let commands = spans.filter(|span| span.starts_with("whimbrel "));
        Guide {
            commands: commands.map(str::to_owned).collect(),
            run: BTreeSet::new(),
        }
    }

    /// A command of the guide, with what its words in capitals stand for.
    fn words(&mut self, command: &str, words: &[(&str, &str)]) -> Vec<String> {
        assert!(
            self.commands.contains(command),
            "the guide does not say `{command}`"
        );
        self.run.insert(command.to_owned());
        let stands = |word: &str| {
            let known = words.iter().find(|(name, _)| *name == word);
            known.map_or(word, |(_, value)| *value).to_owned()
        };
        command.split(' ').skip(1).map(stands).collect()
    }

    fn try_on(&mut self, node: &Node, command: &str, words: &[(&str, &str)]) -> Done {
        let words = self.words(command, words);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        node.server.admin(&words, "")
    }

    pub(crate) fn on(&mut self, node: &Node, command: &str, words: &[(&str, &str)]) -> String {
        self.try_on(node, command, words).expect(command)
    }

    pub(crate) fn serve(&mut self, node: &mut Node) {
        let _ = self.words("whimbrel serve", &[]);
        node.server.start(&[]);
    }

    /// Waits until a node says this of another one.
    pub(crate) fn wait_for(&mut self, at: &Node, name: &str, says: &str) {
        wait_for(&format!("{name} to be {says}"), || {
            let status = self.on(at, "whimbrel cluster status --verbose", &[]);
            let mut of = status
                .lines()
                .filter(|line| line.starts_with(&format!("{name}  ")));
            of.any(|line| line.contains(says)).then_some(())
        });
    }
}

#[test]
#[ignore = "long: clusters beyond the promises"]
fn the_guide_is_followed_word_by_word() {
    let mut guide = Guide::open();
    let node = |name: &str, first: bool| {
        let port = free_port();
        Node::new(name, port, port, &[], first)
    };
    // Three regions.
    let (mut a, mut b, mut c) = (node("a", true), node("b", false), node("c", false));
    let _ = guide.on(&a, "whimbrel cluster init", &[]);
    guide.serve(&mut a);
    for joins in [&mut b, &mut c] {
        let token = guide.on(&a, "whimbrel cluster token", &[]);
        let _ = guide.on(
            joins,
            "whimbrel cluster join TOKEN",
            &[("TOKEN", token.trim())],
        );
        guide.serve(joins);
    }
    for name in ["b", "c"] {
        guide.wait_for(&a, name, "linked for ");
        guide.wait_for(&a, name, "clock ");
        guide.wait_for(&a, name, "  in sync");
    }
    wait_for("a table that says that all is in sync", || {
        let table = guide.try_on(&a, "whimbrel cluster status", &[]).stdout;
        table.starts_with("in sync\nNODE").then_some(())
    });
    let mut words = guide.words(
        "whimbrel account add ADDRESS",
        &[("ADDRESS", "dora@example.org")],
    );
    words.push("--password-stdin".into());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let _ = b.server.admin(&words, "dora's").expect("account add");
    let dora = ("dora@example.org", "dora's");
    for node in [&a, &b, &c] {
        wait_for("the account", || node.server.login(dora).ok());
    }
    let list = guide.on(&a, "whimbrel account list", &[]);
    assert!(list.contains(dora.0), "{list}");
    c.deliver("by c");
    let partitions = guide.on(&a, "whimbrel cluster status --partitions", &[]);
    assert!(partitions.contains("256  "), "{partitions}");

    // Take a node out for good: asked of another one, taken back, and on the node itself.
    let safe = guide.on(&a, "whimbrel cluster drain NAME", &[("NAME", "c")]);
    assert!(safe.contains("It is safe to stop c."), "{safe}");
    guide.wait_for(&c, "c", "this node, drained");
    let _ = guide.on(&a, "whimbrel cluster drain NAME --cancel", &[("NAME", "c")]);
    assert!(!c.status().contains("drained"));
    let nobody = guide.try_on(&a, "whimbrel cluster drain NAME", &[("NAME", "x")]);
    assert!(
        !nobody.success && nobody.stderr.contains("no node x"),
        "{nobody:?}"
    );
    let safe = guide.on(&c, "whimbrel cluster drain", &[]);
    assert!(safe.contains("It is safe to stop this node."), "{safe}");
    c.server.stop();
    let asks = guide.try_on(&a, "whimbrel cluster remove NAME", &[("NAME", "c")]);
    assert!(
        !asks.success && asks.stdout.contains("cannot be undone"),
        "{asks:?}"
    );
    let _ = guide.on(&a, "whimbrel cluster remove NAME --yes", &[("NAME", "c")]);
    guide.wait_for(&a, "c", "its slot is free");

    // Upgrade, node by node.
    let _ = guide.on(&b, "whimbrel cluster drain --of 1", &[]);
    b.server.stop();
    guide.serve(&mut b);
    guide.wait_for(&a, "b", "  in sync");

    // Replace a dead node, under its name.
    b.server.kill();
    let _ = guide.on(&a, "whimbrel cluster remove NAME --yes", &[("NAME", "b")]);
    let token = guide.on(&a, "whimbrel cluster token", &[]);
    let mut new = node("b", false);
    let _ = guide.on(
        &new,
        "whimbrel cluster join TOKEN",
        &[("TOKEN", token.trim())],
    );
    guide.serve(&mut new);
    wait_for("the account", || new.server.login(dora).ok());

    // A node that was removed does not start; its mail is brought out of a copy.
    let refused = c.server.admin(&["serve"], "");
    assert!(
        !refused.success && refused.stderr.contains("A node that was removed"),
        "{refused:?}"
    );
    let mut alone = Builder::default().empty().build();
    let _ = fs::remove_dir_all(alone.path("data"));
    copy(&c.server.path("data"), &alone.path("data"));
    fs::remove_dir_all(alone.path("data/cluster")).unwrap();
    alone.start(&[]);
    let out = alone.path("out");
    let words = guide.words(
        "whimbrel export ADDRESS maildir DIRECTORY",
        &[
            ("ADDRESS", ACCOUNTS[0].0),
            ("DIRECTORY", out.to_str().unwrap()),
        ],
    );
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let _ = alone.admin(&words, "").expect("export");
    let found = Command::new("grep")
        .args(["-rl", "by c"])
        .arg(&out)
        .output();
    assert!(found.unwrap().status.success());

    let run = guide.run.iter().map(String::as_str).chain(ELSEWHERE);
    let run: BTreeSet<&str> = run.collect();
    let said: BTreeSet<&str> = guide.commands.iter().map(String::as_str).collect();
    assert_eq!(run, said, "what is run, and what the guide says");
    for mut server in [a.server, new.server, alone] {
        server.stop();
    }
}
