//! Bounded memory: what is in a node on its way to and from others, while it is.

use super::World;

/// Steps of a node between two looks.
const LOOK_STEPS: u64 = 256;

/// What comes on top of each bound: a batch, a row or a frame is taken whatever its size, if nothing else is under way.
const LARGEST_BYTES: usize = 4 << 10;

impl World {
    /// Whether a node has more in memory than it may, looked at now and then.
    pub(super) fn is_bounded(&self, index: usize) -> Result<(), String> {
        let node = &self.members[index].node;
        if !node.steps.is_multiple_of(LOOK_STEPS) {
            return Ok(());
        }
        let shipping = &self.config.shipping;
        // Whoever was a peer once may have something on its way to the disk.
        let peers = self.members.len();
        let window = shipping.window_bytes as usize + LARGEST_BYTES;
        let page = shipping.read_bytes_max + LARGEST_BYTES;
        let states = shipping.state.window_bytes as usize
            + (shipping.state.gives_max + 1) * (shipping.state.chunk_bytes + LARGEST_BYTES);
        let most = 2 * window * peers + shipping.applying_bytes_max + page * peers + states;
        for report in node.reports() {
            let (partition, open) = (report.partition, report.open.unwrap_or_default());
            let queued = open.peers.values().map(|peer| peer.queued_bytes as usize);
            let queued = queued.max().unwrap_or(0);
            if open.memory_bytes > most || queued > window {
                let bytes = open.memory_bytes;
                return Err(format!(
                    "memory: node {index} has {bytes} bytes of batches of {partition:?}, and may have {most}; {queued} for one peer, and may have {window}"
                ));
            }
        }
        let bodies = self.plan.bodies();
        let most = bodies.fetches_max as u64 * bodies.window_bytes + 2 * bodies.ahead_bytes_max;
        let bytes = node.bodies_bytes();
        if bytes > most {
            return Err(format!(
                "memory: node {index} has {bytes} bytes of bodies, and may have {most}"
            ));
        }
        Ok(())
    }
}
