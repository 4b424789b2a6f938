//! The servers of an experiment: Whimbrel as a cluster of any size, or Dovecot as a pair, with ways between them.

use std::{fs, path::Path, time::Duration};

use super::way::Ways;
use crate::{
    error::{Result, io_at, wrong},
    process::Tree,
    servers::{
        Running, certificate,
        dovecot::{self, Replica},
        free_port,
        whimbrel::Prepared,
    },
    target::{Target, USERS},
};

/// For accounts to be at all nodes.
const ACCOUNTS_WAIT_MAX: Duration = Duration::from_secs(60);

/// Nodes that run.
pub struct Nodes {
    /// What they are.
    pub name: &'static str,
    /// How they are set up.
    pub configuration: String,
    /// Each as its clients see it.
    pub targets: Vec<Target>,
    /// Between them.
    pub ways: Ways,
    running: Vec<Running>,
}

impl Nodes {
    /// Whimbrel; one node is no cluster.
    pub fn whimbrel(
        binary: &Path,
        directory: &Path,
        count: usize,
        more: &[(&str, &str)],
    ) -> Result<Nodes> {
        let ways = Ways::default();
        let listens: Vec<u16> = (0..count).map(|_| free_port()).collect::<Result<_>>()?;
        let mut running: Vec<Running> = Vec::new();
        let mut first: Option<Prepared> = None;
        for (node, listen) in listens.iter().enumerate() {
            let at = node_directory(directory, node)?;
            let mut lines: Vec<(&str, String)> = Vec::new();
            if count > 1 {
                let mut peers = Vec::new();
                for (other, port) in listens
                    .iter()
                    .enumerate()
                    .filter(|(other, _)| *other != node)
                {
                    let way = ways.open(node, other, *port)?;
                    peers.push(format!("\"node-{other}=127.0.0.1:{way}\""));
                }
                lines.push(("cluster", format!("name = \"node-{node}\"")));
                lines.push(("cluster", format!("listen = [\"127.0.0.1:{listen}\"]")));
                lines.push(("cluster", format!("peers = [{}]", peers.join(", "))));
            }
            let lines: Vec<(&str, &str)> = lines
                .iter()
                .map(|(section, line)| (*section, line.as_str()))
                .chain(more.iter().copied())
                .collect();
            let prepared = Prepared::new(binary, &at, &lines)?;
            match &first {
                Some(first) => {
                    let token = first.administer(&["cluster", "token"])?;
                    prepared.administer(&["cluster", "join", &token])?;
                }
                None => {
                    prepared.make_accounts()?;
                    if count > 1 {
                        prepared.administer(&["cluster", "init"])?;
                    }
                }
            }
            running.push(prepared.serve()?);
            first.get_or_insert(prepared);
        }
        let nodes = Nodes::of("Whimbrel", running, ways);
        nodes.wait_for_accounts()?;
        Ok(nodes)
    }

    /// Dovecot: two.
    pub fn dovecot(directory: &Path) -> Result<Nodes> {
        let ways = Ways::default();
        let doveadm = [free_port()?, free_port()?];
        let mut running = Vec::new();
        for (node, name) in ["one.example.org", "two.example.org"]
            .into_iter()
            .enumerate()
        {
            let at = node_directory(directory, node)?;
            let replica = Replica {
                name,
                doveadm: doveadm[node],
                other: ways.open(node, 1 - node, doveadm[1 - node])?,
            };
            running.push(dovecot::start_replica(&at, &replica)?);
        }
        Ok(Nodes::of("Dovecot with dsync", running, ways))
    }

    fn of(name: &'static str, running: Vec<Running>, ways: Ways) -> Nodes {
        let targets = running
            .iter()
            .map(|node| Target::new(node.address.clone()))
            .collect();
        Nodes {
            name,
            configuration: running
                .first()
                .map_or_else(String::new, |node| node.configuration.clone()),
            targets,
            ways,
            running,
        }
    }

    /// The last account is known everywhere, and so are those before it.
    fn wait_for_accounts(&self) -> Result<()> {
        let started = std::time::Instant::now();
        for target in &self.targets {
            // Wrong logins are counted: not too many of them.
            while target.login(USERS).is_err() {
                if started.elapsed() > ACCOUNTS_WAIT_MAX {
                    return wrong("the accounts are not at all nodes");
                }
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        Ok(())
    }

    /// CPU of each node so far, in seconds.
    #[must_use]
    pub fn cpu_seconds(&self) -> Vec<f64> {
        self.targets
            .iter()
            .map(|target| target.tree().map_or(0.0, Tree::cpu_seconds))
            .collect()
    }

    /// Ends them.
    pub fn stop(self) -> Result<()> {
        self.running.into_iter().try_for_each(Running::stop)
    }
}

fn node_directory(directory: &Path, node: usize) -> Result<std::path::PathBuf> {
    let at = directory.join(format!("node-{node}"));
    fs::create_dir_all(&at).map_err(io_at(at.display()))?;
    certificate(&at)?;
    Ok(at)
}
