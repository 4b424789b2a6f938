//! `whimbrel cluster status --partitions --json`: what it says of lag and of the positions of logs is what the nodes have, and who it says holds and serves a
//! partition does.

use serde_json::Value;

use super::{mesh::Mesh, relays::region, *};

const THREE: [&str; 3] = ["a", "b", "c"];

/// The last numbers of each log, by partition and writer: stored, applied.
type Logs = BTreeMap<(u64, String), (u64, u64)>;

/// What one node says.
struct Told(Value);

impl Told {
    fn by(node: &Node) -> Told {
        let json = node.status_with(&["--partitions", "--json"]);
        Told(serde_json::from_str(&json).unwrap())
    }

    fn partitions(&self) -> &[Value] {
        self.0["partitions"].as_array().unwrap()
    }

    fn node(&self, name: &str) -> &Value {
        let mut nodes = self.0["nodes"].as_array().unwrap().iter();
        nodes.find(|node| node["name"] == name).unwrap()
    }

    fn logs(&self) -> Logs {
        let mut all = Logs::new();
        for partition in self.partitions() {
            let number = partition["partition"].as_u64().unwrap();
            let logs = partition["logs"].as_object().unwrap();
            let [mut stored, mut applied] = [0, 0];
            for (writer, log) in logs {
                let at = |what: &str| log[what].as_u64().unwrap();
                stored += at("stored");
                applied += at("applied");
                all.insert((number, writer.clone()), (at("stored"), at("applied")));
            }
            assert_eq!(partition["operations"], stored, "{partition}");
            assert_eq!(partition["applied"], applied, "{partition}");
        }
        all
    }

    /// Claims made again, of all partitions together.
    fn claims(&self) -> u64 {
        let of = |value: &Value| value["uids_reassigned"].as_u64().unwrap();
        let here = of(&self.0["here"]);
        assert_eq!(self.partitions().iter().map(of).sum::<u64>(), here);
        here
    }

    /// Nobody leaves anything, and nobody serves more than others.
    fn is_held_by_all(&self) {
        assert!(!self.partitions().is_empty());
        for partition in self.partitions() {
            assert_eq!(names_in(partition, "held_by"), THREE, "{partition}");
            for none in ["comes_back", "leaves", "served_by"] {
                assert!(names_in(partition, none).is_empty(), "{partition}");
            }
        }
    }

    /// How many operations this member lacks, by partition.
    fn lacks(&self, name: &str) -> BTreeMap<u64, u64> {
        let incarnation = self.node(name)["incarnation"].as_str().unwrap();
        let lacks = |partition: &Value| {
            let lag = partition["lag"].get(incarnation)?;
            let operations = lag["operations"].as_u64().unwrap();
            assert!(operations > 0 && lag["seconds"].is_u64());
            Some((partition["partition"].as_u64().unwrap(), operations))
        };
        self.partitions().iter().filter_map(lacks).collect()
    }
}

fn names_in(partition: &Value, what: &str) -> Vec<String> {
    let names = partition[what].as_array().unwrap().iter();
    names
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}

/// What the second does not have of what the first has, by partition.
fn difference(one: &Logs, other: &Logs) -> BTreeMap<u64, u64> {
    let mut lacks = BTreeMap::new();
    for (log, (stored, _)) in one {
        let there = other.get(log).map_or(0, |(stored, _)| *stored);
        if *stored > there {
            *lacks.entry(log.0).or_default() += stored - there;
        }
    }
    lacks
}

fn sum(of: &BTreeMap<u64, u64>) -> u64 {
    of.values().sum()
}

/// All have all, as each says of itself and of the others.
fn wait_level(mesh: &Mesh) -> Logs {
    wait_for("all to be level", || {
        let told: Vec<Told> = mesh.scene.nodes.iter().map(Told::by).collect();
        let logs: Vec<Logs> = told.iter().map(Told::logs).collect();
        let same = logs.iter().all(|of| *of == logs[0]);
        let applied = logs[0].values().all(|(stored, applied)| stored == applied);
        let of_peers = told.iter().zip(THREE).all(|(told, me)| {
            THREE.iter().filter(|name| **name != me).all(|name| {
                let node = told.node(name);
                let none = |what: &str| node[what] == 0;
                node["linked"] == true
                    && ["lag_operations", "lag_bytes", "lag_seconds", "has_more"]
                        .into_iter()
                        .all(none)
                    && node["lag_at_least"] == false
                    && told.lacks(name).is_empty()
            })
        });
        (same && applied && of_peers).then(|| logs[0].clone())
    })
}

#[test]
#[ignore = "long: clusters beyond the promises"]
fn status_tells_what_a_node_that_is_cut_off_lacks() {
    let mut mesh = Mesh::new(3);
    mesh.scene.deliver(0, "before");
    mesh.alike();
    let before = wait_level(&mesh);
    let writers: BTreeSet<&String> = before.keys().map(|(_, writer)| writer).collect();
    assert!(!writers.is_empty() && sum(&difference(&before, &Logs::new())) > 0);
    mesh.scene
        .nodes
        .iter()
        .for_each(|node| Told::by(node).is_held_by_all());

    mesh.cut_off(2);
    mesh.wait_links(&[1, 1, 0]);
    // Behind these the UID of what the other side takes is late.
    for name in ["together", "together too", "together still"] {
        mesh.scene.deliver(0, name);
    }
    mesh.scene.wait_alike(&[0]);
    mesh.scene.store(1, "before", "\\Flagged");
    mesh.scene.put(2, "alone");
    let alone = mesh.scene.expected.remove("alone").unwrap();
    mesh.scene.wait_alike(&[0, 1]);
    let of = |node: usize| Told::by(&mesh.scene.nodes[node]);
    let at_c = wait_for("what was written to be at its end", || {
        let [at_a, at_b, at_c] = [of(0), of(1), of(2)];
        let [a, b, c] = [&at_a, &at_b, &at_c].map(Told::logs);
        // What others have said is known a moment later.
        let is_known = a == b && at_a.lacks("b").is_empty() && at_b.lacks("a").is_empty();
        if !is_known || of(2).logs() != c || of(0).logs() != a {
            return None;
        }
        for (told, here) in [(&at_a, &a), (&at_b, &b)] {
            let lacks = told.lacks("c");
            assert_eq!(lacks, difference(here, &c));
            let node = told.node("c");
            assert_eq!(node["linked"], false);
            assert_eq!(node["lag_operations"], sum(&lacks));
            assert!(node["lag_bytes"].as_u64().unwrap() > 0, "{node}");
        }
        // Over there it is the other way round, for both.
        for name in ["a", "b"] {
            let lacks = at_c.lacks(name);
            assert_eq!(lacks, difference(&c, &a));
            assert_eq!(at_c.node(name)["lag_operations"], sum(&lacks));
        }
        Some(at_c)
    });
    let own = at_c.node("c")["incarnation"].as_str().unwrap();
    let at_a = of(0).logs();
    let lacks = difference(&at_c.logs(), &at_a);
    assert!(sum(&lacks) > 0 && sum(&difference(&at_a, &at_c.logs())) > 0);
    // Only what it wrote itself.
    for ((partition, writer), (stored, _)) in at_c.logs() {
        let there = at_a.get(&(partition, writer.clone()));
        assert!(writer == own || there.is_some_and(|there| there.0 >= stored));
    }
    // In words, too.
    let words = mesh.scene.nodes[0].status_with(&["--verbose", "--partitions"]);
    assert!(
        words.contains("; c lacks ") && words.contains("; logs: "),
        "{words}"
    );
    let here = words.lines().find(|line| line.starts_with("here: "));
    assert!(here.unwrap().ends_with(" reassigned"), "{words}");
    assert!(!words.contains("; held by ") && !words.contains("; served by "));

    mesh.heal_all();
    mesh.scene.expected.insert("alone".to_owned(), alone);
    mesh.alike();
    let after = wait_level(&mesh);
    assert!(difference(&before, &after).is_empty());
    assert!(difference(&at_a, &after).is_empty() && difference(&at_c.logs(), &after).is_empty());
    let claims = mesh.scene.nodes.iter().map(|node| {
        let told = Told::by(node);
        told.is_held_by_all();
        assert_eq!(told.claims(), node.figure("whimbrel_uids_reassigned_total"));
        told.claims()
    });
    assert!(claims.sum::<u64>() > 0, "what was late has a new UID");
    mesh.stop();
}

/// Who serves each partition of accounts, when each is held by two, as all three of them say.
fn servers(scene: &Scene) -> Option<BTreeMap<u64, String>> {
    let mut servers: BTreeMap<u64, String> = BTreeMap::new();
    for (node, me) in scene.nodes.iter().zip(THREE) {
        let told = Told::by(node);
        let holds = THREE.map(|name| told.node(name)["holds"].as_u64().unwrap());
        if holds.iter().sum::<u64>() != 512 {
            return None;
        }
        for partition in told.partitions() {
            let number = partition["partition"].as_u64().unwrap();
            let held = names_in(partition, "held_by");
            let served = names_in(partition, "served_by");
            if number > 255 {
                // The directory and the queue are with all.
                assert_eq!(held, THREE);
                assert!(served.is_empty(), "{partition}");
                continue;
            }
            let moves = ["comes_back", "leaves"].map(|what| names_in(partition, what));
            let rests = moves.iter().all(Vec::is_empty);
            let is_here = held.iter().any(|name| name == me);
            let [server] = &served[..] else {
                return None;
            };
            if held.len() != 2 || !is_here || !rests || !held.contains(server) {
                return None;
            }
            let said = servers.entry(number).or_insert_with(|| server.clone());
            if *said != *server {
                return None;
            }
        }
    }
    Some(servers)
}

/// How many operations partitions of accounts have.
fn operations(scene: &Scene) -> BTreeMap<u64, u64> {
    let mut most = BTreeMap::new();
    for node in &scene.nodes {
        for partition in Told::by(node).partitions() {
            let of = |what: &str| partition[what].as_u64().unwrap();
            if of("partition") < 256 {
                let most = most.entry(of("partition")).or_insert(0);
                *most = of("operations").max(*most);
            }
        }
    }
    most
}

#[test]
#[ignore = "long: clusters beyond the promises"]
fn status_tells_who_holds_and_who_serves_an_account() {
    let two = [
        ("cluster", "holders_per_region = 2"),
        ("queue", "other_nodes = 1"),
    ];
    let mut scene = region(&THREE.map(|name| (name, "worker")), 1, &two);
    scene.deliver(0, "first");
    scene.wait_alike(&[0, 1, 2]);
    let servers = wait_for("two holders of each partition", || servers(&scene));
    let words = scene.nodes[0].status_with(&["--partitions"]);
    assert!(
        words.contains("; held by a b; served by ") || words.contains("; held by a c; served by "),
        "{words}"
    );

    let before = operations(&scene);
    scene.deliver(1, "second");
    scene.wait_alike(&[0, 1, 2]);
    let mut grown = operations(&scene);
    grown.retain(|number, of| before.get(number).is_none_or(|before| before < of));
    let [of_account] = grown.into_keys().collect::<Vec<_>>()[..] else {
        panic!("mail for one account");
    };
    let server = &servers[&of_account];
    for (node, me) in scene.nodes.iter().zip(THREE) {
        let before = node.brought_to().len();
        let session = node.server.anne();
        let brought = || node.brought_to().split_off(before);
        if server == me {
            assert!(brought().is_empty(), "it serves it");
        } else {
            let to = wait_for("the session to be brought", || brought().pop());
            assert_eq!(to, *server);
        }
        drop(session);
    }
    for node in &mut scene.nodes {
        node.server.stop();
    }
}
