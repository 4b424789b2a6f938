//! The directory and the queue where logs keep next to nothing: states in their place.

use super::*;

/// Logs keep nothing for who is away; rows travel one or two at a time.
fn cut_early(count: u64) -> Cluster {
    let mut shipping = peers::Config {
        kept: 0,
        cut_step: 1,
        ..peers::Config::default()
    };
    shipping.state.chunk_bytes = 256;
    shipping.state.window_bytes = 512;
    let mut cluster = Cluster::with(count, shipping);
    for (_, node) in &mut cluster.nodes {
        node.log_retention_bytes = Some(0);
    }
    cluster.link(true);
    cluster
}

impl Cluster {
    /// A node has no stream to any other from now on, or to all that are there.
    fn reach(&mut self, node: usize, up: bool) {
        let id = self.nodes[node].0;
        for other in 0..self.nodes.len() {
            if other != node && !self.lost.contains(&other) {
                let peer = self.nodes[other].0;
                self.nodes[node].1.link(peer, up);
                self.nodes[other].1.link(id, up);
            }
        }
    }

    fn snapshots_received(&self, node: usize) -> u64 {
        self.nodes[node].1.figures().snapshots_received
    }

    fn remove_account(&mut self, node: usize, address: &str) {
        let address = address.into();
        self.admin(node, AdminCall::RemoveAccount { address });
    }

    /// Rows of the directory, or of the queue, and those beside them.
    fn all_rows(&self, node: usize, partition: PartitionId) -> Vec<Vec<u8>> {
        let partition = whimbrel_service::log::store_partition(partition);
        let disk = &self.nodes[node].1.disk;
        let all = whimbrel_storage::KeyRange::all();
        let page = disk.scan(partition, &all, whimbrel_storage::ScanLimit::default());
        page.rows.into_iter().map(|(key, _)| key.to_vec()).collect()
    }

    fn steps(&mut self, count: u64) {
        for _ in 0..count {
            self.carry();
            let next = self.nodes.iter().enumerate();
            let next = next.filter(|(index, _)| !self.lost.contains(index));
            let next = next.filter_map(|(index, (_, node))| Some((node.next_time()?, index)));
            if let Some((_, index)) = next.min() {
                self.nodes[index].1.step();
            }
        }
    }
}

/// Node 1 was away while node 0 did more than its log keeps; both did something.
fn directories_apart() -> Cluster {
    let mut cluster = cut_early(2);
    cluster.add(0, "bob@example.org", BOB);
    cluster.link(false);
    for number in 3..20u8 {
        let address = format!("user{number}@example.org");
        cluster.add(0, &address, AccountId([number; 16]));
    }
    cluster.remove_account(0, "bob@example.org");
    cluster.add(1, "cora@example.org", AccountId([30; 16]));
    cluster
}

fn directories_are_alike(cluster: &mut Cluster) {
    let addresses = |list: Vec<AccountLine>| -> Vec<String> {
        list.into_iter().map(|line| line.address).collect()
    };
    let here = addresses(cluster.list(0));
    assert_eq!(here.len(), 19, "{here:?}");
    assert_eq!(here, addresses(cluster.list(1)));
    for node in 0..2 {
        assert_eq!(cluster.logs_in(node, "bob@example.org", "x"), None);
        let cora = cluster.logs_in(node, "cora@example.org", "x");
        assert_eq!(cora, Some(AccountId([30; 16])), "node {node}");
    }
    let rows = cluster.all_rows(1, DIRECTORY);
    assert_eq!(rows, cluster.all_rows(0, DIRECTORY), "no row is left over");
}

#[test]
fn who_was_away_gets_the_directory_in_place_of_its_log() {
    let mut cluster = directories_apart();
    cluster.link(true);
    cluster.pass(30);
    assert_eq!(cluster.snapshots_received(1), 1);
    directories_are_alike(&mut cluster);
    // What is on the disk says the same, and the logs go on.
    cluster.link(false);
    cluster.nodes[1].1.crash(7);
    cluster.link(true);
    directories_are_alike(&mut cluster);
    cluster.add(0, "dan@example.org", AccountId([31; 16]));
    cluster.add(1, "eve@example.org", AccountId([32; 16]));
    for node in 0..2 {
        for address in ["dan@example.org", "eve@example.org"] {
            assert!(cluster.logs_in(node, address, "x").is_some(), "{address}");
        }
    }
    assert_eq!(cluster.snapshots_received(1), 0, "since the crash");
}

/// Either node crashes at some moment of the transfer, or somebody does something.
#[test]
fn a_directory_that_comes_outlives_crashes() {
    let mut halves = 0;
    for moment in 1..400 {
        let mut cluster = directories_apart();
        cluster.linked = true;
        cluster.reach(1, true);
        cluster.steps(moment);
        let joining = whimbrel_service::log::JOINING_KEY.to_vec();
        let crashed = usize::from(moment % 6 < 4);
        cluster.reach(1, false);
        cluster.awake.clear();
        cluster.nodes[crashed].1.crash(moment);
        halves += usize::from(cluster.all_rows(1, DIRECTORY).contains(&joining));
        cluster.linked = false;
        let user = "user4@example.org";
        let is_known = cluster.list(1).iter().any(|line| line.address == user);
        if is_known {
            cluster.remove_account(1, user);
        }
        cluster.link(true);
        cluster.pass(60);
        if is_known {
            assert_eq!(cluster.logs_in(0, user, "x"), None);
            cluster.add(0, user, AccountId([33; 16]));
        }
        directories_are_alike(&mut cluster);
    }
    assert!(halves > 0, "no crash left a join unfinished");
}

/// However much is written while a member is away, the logs have no more bytes than they may; until then they keep what it lacks.
#[test]
fn logs_are_bounded_while_a_member_is_away() {
    const BYTES_MAX: u64 = 20_000;
    let mut cluster = cut_early(2);
    for (_, node) in &mut cluster.nodes {
        node.log_retention_bytes = Some(BYTES_MAX);
    }
    let bytes = |cluster: &Cluster| -> u64 {
        let lengths = cluster.nodes[0].1.disk.log_lengths();
        lengths.iter().map(|log| log.bytes).sum()
    };
    for (count, is_state) in [(10, false), (150, true)] {
        cluster.link(false);
        let taken = cluster.snapshots_received(1);
        let mut most = 0;
        for body in 0..count {
            cluster.append(0, body);
            most = most.max(bytes(&cluster));
        }
        assert_eq!(most > BYTES_MAX / 2, is_state, "{most} bytes");
        assert!(most < BYTES_MAX + 2_000, "{most} bytes, with one batch");
        cluster.link(true);
        cluster.pass(60);
        assert_eq!(cluster.snapshots_received(1) > taken, is_state);
        assert_eq!(cluster.shown(0), cluster.shown(1));
    }
}
