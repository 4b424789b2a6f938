//! The short form of `whimbrel cluster status`.

use super::{size_of, unlinked};
use crate::{
    cluster::{NodeLine, Status},
    transfer::counted,
};

/// A summary, a line for each member with titles above, and further notes.
pub(super) fn table(status: &Status, runs: bool) -> String {
    let mut rows = vec![["NODE", "REGION", "ROLE", "LINK", "STATE"].map(str::to_owned)];
    for node in status.nodes.iter().filter(|node| node.is_member()) {
        rows.push([
            node.name.clone(),
            node.region.clone().unwrap_or_default(),
            node.role.clone().unwrap_or_else(|| "worker".to_owned()),
            link_of(node, runs),
            state_of(node),
        ]);
    }
    let widths: [usize; 5] = std::array::from_fn(|column| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    });
    let mut out = match status.here {
        Some(_) => summary(status) + "\n",
        None => String::new(),
    };
    for row in &rows {
        let cells = row.iter().zip(widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        out.push_str(line.join("  ").trim_end());
        out.push('\n');
    }
    let former = status.nodes.iter().filter(|node| !node.is_member());
    let (closed, open): (Vec<_>, Vec<_>) = former.partition(|node| node.closed);
    if !open.is_empty() {
        let removed = open.iter().filter(|node| node.removed).count();
        out.push_str(&format!(
            "{}: {removed} removed, {} not yet (see --verbose)\n",
            counted(open.len() as u64, "former incarnation"),
            open.len() - removed
        ));
    }
    if !closed.is_empty() {
        let closed = counted(closed.len() as u64, "former incarnation");
        out.push_str(&format!("{closed}: removed, slots free again\n"));
    }
    let free = status.nodes.iter().filter_map(|node| node.slots_free);
    if let Some(free) = free.reduce(|one, other| one + other) {
        out.push_str(&format!("{free} of 64 slots are free\n"));
    }
    out
}

/// Whether all nodes are in sync; if not, which ones are behind and what is wrong.
fn summary(status: &Status) -> String {
    let mut parts = Vec::new();
    if let Some(clock) = &status.clock {
        parts.push(format!("{clock}: this node writes nothing"));
    }
    for node in status.nodes.iter().filter(|node| node.is_member()) {
        let name = &node.name;
        if node.syncing > 0 {
            let partitions = counted(node.syncing, "partition");
            parts.push(format!("{name} is syncing {partitions}"));
        }
        if node.this {
            continue;
        }
        match (node.linked, node.seconds) {
            (true, _) => {}
            (false, Some(seconds)) => parts.push(format!("{name} is unreachable for {seconds} s")),
            (false, None) => parts.push(format!("no link to {name}")),
        }
        match node.lag_operations {
            Some(0) => {}
            Some(behind) => {
                parts.push(format!("{name} is {} behind", counted(behind, "change")));
            }
            None if node.linked => parts.push(format!("nothing is known of {name} yet")),
            None => {}
        }
        if let Some(behind) = node.has_more.filter(|more| *more > 0) {
            parts.push(format!(
                "this node is {} behind {name}",
                counted(behind, "change")
            ));
        }
    }
    if let Some(here) = &status.here {
        for (count, what, state) in [
            (here.opening, "partition", "being opened"),
            (here.blobs_missing, "blob", "missing"),
            (here.accounts_stalled, "account", "stalled"),
        ] {
            if count > 0 {
                parts.push(format!("{} {state}", counted(count, what)));
            }
        }
    }
    match parts.is_empty() {
        true => "in sync".to_owned(),
        false => parts.join("; "),
    }
}

fn link_of(node: &NodeLine, runs: bool) -> String {
    match (node.this, node.linked, node.round_trip_micros) {
        (true, ..) if !runs => "stopped".to_owned(),
        (true, ..) if node.drained => "this node, drained".to_owned(),
        (true, ..) => "this node".to_owned(),
        (_, true, None) => "linked".to_owned(),
        (_, true, Some(micros)) => {
            format!("{}.{} ms", micros / 1000, micros % 1000 / 100)
        }
        (_, false, _) => unlinked(node),
    }
}

fn state_of(node: &NodeLine) -> String {
    let mut parts = Vec::new();
    if node.syncing > 0 {
        parts.push(format!("syncing {}", counted(node.syncing, "partition")));
    }
    match (node.lag_operations, node.has_more) {
        _ if node.this => {}
        (Some(behind), _) if behind > 0 => parts.push(format!(
            "{} behind ({})",
            counted(behind, "change"),
            size_of(node.lag_bytes, node.lag_seconds, node.lag_at_least)
        )),
        (Some(_), Some(more)) if more > 0 => {
            parts.push(format!("{} ahead", counted(more, "change")));
        }
        (Some(_), _) if node.linked => parts.push("in sync".to_owned()),
        (Some(_), _) => parts.push("in sync when last heard".to_owned()),
        (None, _) => {}
    }
    if node.holds < 256 {
        parts.push(format!("holds {} of 256 partitions", node.holds));
    }
    if node.leaves > 0 {
        parts.push(format!("leaves {}", node.leaves));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Form, OFFLINE,
            tests::{node, status},
            text,
        },
        *,
    };
    use crate::cluster::Here;

    #[test]
    fn the_table_has_a_line_for_each_member_by_name() {
        let mut status = status();
        let mut far = node("ap-1", "0e");
        (far.linked, far.seconds) = (false, Some(41));
        (far.lag_operations, far.lag_bytes, far.lag_seconds) = (Some(12), 3140, 40);
        let mut removed = node("old", "0f");
        (removed.removed, removed.closed, removed.slots_free) = (true, true, Some(4));
        let mut former = node("a", "0g");
        former.address = None;
        status.nodes = vec![node("us", "0b"), node("a", "0a"), far, removed, former];
        status.nodes[1].this = true;
        status.nodes[0].slots_free = Some(20);
        status.clock = None;
        status.here = Some(Here::default());
        let printed = |status: &Status| text(status.clone(), true, false, Form::Table).unwrap();
        assert_eq!(
            printed(&status),
            "ap-1 is unreachable for 41 s; ap-1 is 12 changes behind\n\
             NODE  REGION  ROLE    LINK                  STATE\n\
             a     eu      worker  this node\n\
             ap-1  eu      worker  unreachable for 41 s  12 changes behind (3140 bytes, for 40 s)\n\
             us    eu      worker  41.2 ms               in sync\n\
             1 former incarnation: 0 removed, 1 not yet (see --verbose)\n\
             1 former incarnation: removed, slots free again\n\
             24 of 64 slots are free\n"
        );
        status.nodes.truncate(2);
        assert_eq!(printed(&status).lines().next(), Some("in sync"));
        (status.nodes[0].lag_operations, status.nodes[1].syncing) = (None, 2);
        assert_eq!(
            printed(&status).lines().next().unwrap(),
            "a is syncing 2 partitions; nothing is known of us yet"
        );
        (status.nodes[0].lag_operations, status.nodes[1].syncing) = (Some(0), 0);
        status.nodes[0].has_more = Some(1);
        status.clock = Some("the clock is an hour ahead".into());
        let here = status.here.as_mut().unwrap();
        (here.blobs_missing, here.accounts_stalled) = (1, 2);
        assert_eq!(
            printed(&status).lines().next().unwrap(),
            "the clock is an hour ahead: this node writes nothing; this node is 1 change behind us; 1 blob missing; 2 accounts stalled"
        );
        let offline = text(status, false, false, Form::Table).unwrap();
        assert!(offline.starts_with(OFFLINE), "{offline}");
    }
}
