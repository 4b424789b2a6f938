//! Nodes of which any two can be cut apart.

use super::{
    proxy::{Proxy, Side},
    *,
};

/// Nodes with a way of its own from each to each other one.
pub(crate) struct Mesh {
    pub(crate) scene: Scene,
    /// From, to.
    pub(crate) ways: Vec<([usize; 2], Proxy)>,
    /// UIDVALIDITY, which nothing here may change.
    validity: u32,
}

pub(crate) const NAMES: [&str; 4] = ["a", "b", "c", "d"];

impl Mesh {
    pub(crate) fn new(count: usize) -> Mesh {
        Mesh::of(count, binary())
    }

    /// Of nodes that run this program.
    pub(crate) fn of(count: usize, program: &Path) -> Mesh {
        Mesh::with(count, program, &[])
    }

    /// The same, with more in the configuration of each.
    pub(crate) fn with(count: usize, program: &Path, more: &[(&str, &str)]) -> Mesh {
        let names = &NAMES[..count];
        let ports: Vec<u16> = names.iter().map(|_| free_port()).collect();
        let mut ways = Vec::new();
        let mut nodes: Vec<Node> = Vec::new();
        for (from, name) in names.iter().enumerate() {
            let mut others = Vec::new();
            for (to, other) in names.iter().enumerate().filter(|(to, _)| *to != from) {
                let way = Proxy::start(ports[to]);
                others.push((*other, way.port));
                ways.push(([from, to], way));
            }
            let mut node = Node::among(name, ports[from], ports[from], &others, from == 0, more);
            node.server.program = program.to_owned();
            node.begin(nodes.first());
            nodes.push(node);
        }
        let mut mesh = Mesh {
            scene: Scene::new(nodes),
            ways,
            validity: 0,
        };
        mesh.wait_links(&vec![count - 1; count]);
        for node in 1..count {
            wait_for("the account", || {
                mesh.scene.nodes[node].server.login(ACCOUNTS[0]).ok()
            });
        }
        mesh.validity = mesh.validity_at(0);
        mesh
    }

    fn validity_at(&self, node: usize) -> u32 {
        let server = &self.scene.nodes[node].server;
        let mut imap = server.anne();
        server.contents(&mut imap, "INBOX").unwrap().validity
    }

    pub(crate) fn wait_links(&self, expected: &[usize]) {
        wait_for(&format!("links {expected:?}"), || {
            let links: Vec<usize> = self.scene.nodes.iter().map(Node::links).collect();
            (links == expected).then_some(())
        });
    }

    /// Ways between these two, in both directions.
    fn between(&self, ends: [usize; 2]) -> impl Iterator<Item = &([usize; 2], Proxy)> {
        let [one, other] = ends;
        self.ways
            .iter()
            .filter(move |(of, _)| *of == [one, other] || *of == [other, one])
    }

    pub(crate) fn cut(&self, ends: [usize; 2]) {
        self.between(ends).for_each(|(_, way)| way.cut());
    }

    pub(crate) fn heal(&self, ends: [usize; 2]) {
        self.between(ends).for_each(|(_, way)| way.heal());
    }

    pub(crate) fn cut_off(&self, node: usize) {
        (0..self.scene.nodes.len())
            .filter(|other| *other != node)
            .for_each(|other| self.cut([node, other]));
    }

    pub(crate) fn heal_all(&self) {
        for (_, way) in &self.ways {
            way.heal();
            way.hold(Side::Dialer, false);
            way.hold(Side::Dialed, false);
        }
    }

    /// As [`Self::cut`], but that nobody is told: what is sent does not arrive, in neither direction, and no stream ends.
    pub(crate) fn silence(&self, ends: [usize; 2]) {
        for (_, way) in self.between(ends) {
            way.hold(Side::Dialer, true);
            way.hold(Side::Dialed, true);
        }
    }

    /// Nothing comes from these to any other node, or the other way round.
    pub(crate) fn silence_around(&self, of: &[usize]) {
        let others = (0..self.scene.nodes.len()).filter(|node| !of.contains(node));
        for other in others {
            of.iter().for_each(|node| self.silence([*node, other]));
        }
    }

    /// All show what is expected, under the same UIDs, and the UIDVALIDITY of the beginning.
    pub(crate) fn alike(&mut self) {
        let all: Vec<usize> = (0..self.scene.nodes.len()).collect();
        self.scene.wait_alike(&all);
        for node in 0..self.scene.nodes.len() {
            assert_eq!(self.validity_at(node), self.validity, "node {node}");
        }
    }

    pub(crate) fn stop(mut self) {
        for node in &mut self.scene.nodes {
            node.server.stop();
        }
    }
}
