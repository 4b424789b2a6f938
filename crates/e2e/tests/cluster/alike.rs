//! Nodes that are healed show the same, within a bound; and a client that keeps what it has goes round all of them.

use std::{
    fmt::Debug,
    thread,
    time::{Duration, Instant},
};

use whimbrel_e2e::device::Device;

use super::*;

/// From the moment in which nothing is in the way any more until all nodes show the same. On a quiet machine it takes seconds: whoever was not
/// reached is dialed every two seconds (`DIAL_AFTER` in `cluster`), what was missed is sent at once, and a claim waits up to two seconds for the
/// readers of other nodes. A machine with ten times its load has to come below this, so it is no measurement: that a cluster converges at all, and by
/// itself, is what it holds.
pub(crate) const CONVERGENCE_MAX: Duration = Duration::from_secs(60);

/// How long members' reports are worth waiting for: ten times what they take.
const REPORTS_MAX: Duration = Duration::from_secs(2);

/// How often nodes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until all of these show the same, and it is right; what they show. A look of `None` is none, since something changed in the middle of it.
pub(crate) fn converge<T: PartialEq + Debug>(
    of: &[usize],
    mut look: impl FnMut(usize) -> Option<T>,
    mut wrong: impl FnMut(&T) -> Option<String>,
) -> T {
    let started = Instant::now();
    loop {
        let mut seen: Vec<T> = Vec::new();
        let mut why = String::new();
        for &index in of {
            let Some(shown) = look(index) else {
                why = format!("node {index} shows nothing");
                break;
            };
            if let Some(wrong) = wrong(&shown) {
                why = format!("node {index}: {wrong}");
                break;
            }
            if seen.last().is_some_and(|last| *last != shown) {
                why = format!("node {index} shows {shown:?}, another one {seen:?}");
                break;
            }
            seen.push(shown);
        }
        let took = started.elapsed();
        if let Some(shown) = seen.pop().filter(|_| why.is_empty()) {
            println!("nodes {of:?} are alike after {took:?}");
            return shown;
        }
        assert!(
            took < CONVERGENCE_MAX,
            "not alike after {CONVERGENCE_MAX:?}: {why}"
        );
        thread::sleep(LOOK_EVERY);
    }
}

/// What is there and must not be, and the other way round.
pub(crate) fn differs(shown: &Shown, expected: &Shown) -> Option<String> {
    let only = |of: &Shown, other: &Shown| -> Shown {
        let of = of.iter();
        of.filter(|(name, flags)| other.get(*name) != Some(flags))
            .map(|(name, flags)| (name.clone(), flags.clone()))
            .collect()
    };
    (shown != expected).then(|| {
        let (more, less) = (only(shown, expected), only(expected, shown));
        format!("shown is {more:?}, expected {less:?}")
    })
}

impl Scene {
    /// Waits until all of these nodes show what is expected, under the same UIDs.
    pub(crate) fn wait_alike(&mut self, of: &[usize]) {
        let expected = self.expected.clone();
        let _ = converge(
            of,
            |index| self.look(index),
            |messages| differs(&shown(messages), &expected),
        );
        self.go_round(of);
    }

    /// A client that keeps what it has comes to each of these nodes, one after the other, from where it was last.
    fn go_round(&mut self, of: &[usize]) {
        if of.len() == self.nodes.len() {
            self.wait_for_reports();
        }
        for &index in of {
            let server = &self.nodes[index].server;
            match &mut self.device {
                Some(device) => drop(device.goes_on_at(server)),
                None => self.device = Some(Device::of(server, "INBOX")),
            }
        }
    }

    /// What a member has shown it tells the others a fifth of a second later: until then they give what came a new UID when a client of that member comes to
    /// them. That is right, too, and all that happens while a former life of a node is waited for, which tells nothing any more.
    fn wait_for_reports(&self) {
        let started = Instant::now();
        let unshown = |node: &Node| node.figure("whimbrel_cluster_hidden_operations");
        while self.nodes.iter().map(unshown).sum::<u64>() > 0 && started.elapsed() < REPORTS_MAX {
            thread::sleep(LOOK_EVERY);
        }
    }
}
