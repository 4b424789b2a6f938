//! `whimbrel cluster status`: a table, in detail (`--verbose`), and as JSON.

mod table;

use std::time::Duration;

use tokio::time::timeout;
use whimbrel_crdt::Incarnation;

use super::Failure;
use crate::{
    admin::{
        client,
        protocol::{Answer, Question},
    },
    cli::run::print,
    cluster::{LogLine, NodeLine, PartitionLine, Status, files::Files},
    config::Config,
    node::DataDir,
    transfer::counted,
};

/// The line above the members where only the files could be read.
const OFFLINE: &str = "no server runs here: these are the members that its files list\n";

/// Time limit for a running server. One that does not answer in this time is stopped, or hangs.
const STATUS_WAIT_MAX: Duration = Duration::from_secs(10);

/// The form of the output.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// A line for each node.
    Table,
    /// All that is known, a line for each incarnation.
    Verbose,
    Json,
}

/// Prints the status; returns whether all is well.
pub(super) async fn status(config: &Config, partitions: bool, form: Form) -> Result<bool, Failure> {
    let asking = client::ask_running(config, &Question::ClusterStatus {});
    let Ok(answer) = timeout(STATUS_WAIT_MAX, asking).await else {
        let seconds = STATUS_WAIT_MAX.as_secs();
        return Err(format!("the server does not answer within {seconds} s: it hangs, or is stopped. Look at its process and its log").into());
    };
    let (status, runs) = match answer? {
        Some(Answer::Cluster { status, .. }) => (status, true),
        Some(Answer::Refused { reason }) => return Err(reason.into()),
        Some(other) => return Err(format!("the server answered {other:?}").into()),
        None => (offline(config)?, false),
    };
    let is_well = runs && is_well(&status);
    print(&text(status, runs, partitions, form)?)?;
    Ok(is_well)
}

/// Whether the node that was asked makes ops, all that is here is in its place, and every member is linked.
fn is_well(status: &Status) -> bool {
    let mut members = status.nodes.iter();
    let are_linked = members.all(|node| !node.is_member() || node.this || node.linked);
    let here = status.here.as_ref();
    let is_whole = here.is_some_and(|here| here.accounts_stalled == 0);
    are_linked && is_whole && status.clock.is_none()
}

/// The text of the status. `runs`: a server was asked, and not its files.
fn text(
    mut status: Status,
    runs: bool,
    partitions: bool,
    form: Form,
) -> serde_json::Result<String> {
    if !partitions {
        status.partitions.clear();
    }
    let by_name = |node: &NodeLine| (node.name.clone(), node.incarnation.clone());
    status.nodes.sort_by_key(by_name);
    let mut out = match form {
        // The field `here` says whether a server runs.
        Form::Json => return Ok(serde_json::to_string_pretty(&status)? + "\n"),
        Form::Table => table::table(&status, runs),
        Form::Verbose => details(&status),
    };
    for partition in &status.partitions {
        out.push_str(&partition_line(&status, partition));
    }
    match runs {
        true => Ok(out),
        false => Ok(format!("{OFFLINE}{out}")),
    }
}

/// How many other members could hold what a node has; without a name, the one that was asked.
pub(super) fn others_than(status: &Status, node: Option<&str>) -> u64 {
    let members = status.nodes.iter();
    let members = members.filter(|of| of.is_member());
    let others = members.filter(|of| node.map_or(!of.this, |node| of.name != node));
    others.count() as u64
}

fn offline(config: &Config) -> Result<Status, Failure> {
    let files = Files::of(&config.server.data_dir);
    let kept = files
        .open()?
        .ok_or("this node is not a member of a cluster")?;
    let me = DataDir::read(&config.server.data_dir)?.incarnation;
    Ok(Status::of(
        kept.credentials.cluster(),
        &kept.roster,
        Some(Incarnation::from_hash(me)),
        &[],
    ))
}

/// All that is known.
fn details(status: &Status) -> String {
    let mut out = format!("cluster {}\n", status.cluster);
    for node in &status.nodes {
        out.push_str(&line(node, status.here.is_some()));
    }
    out.push_str(&slots(status));
    if let Some(clock) = &status.clock {
        out.push_str(&format!("{clock}: this node writes nothing\n"));
    }
    if let Some(here) = &status.here {
        out.push_str(&format!(
            "here: {} in {}, {} applied, {} stable; {} missing, {} stalled, {} reassigned\n",
            counted(here.operations, "operation"),
            counted(here.partitions, "partition"),
            here.applied,
            here.stable,
            counted(here.blobs_missing, "blob"),
            counted(here.accounts_stalled, "account"),
            counted(here.uids_reassigned, "UID")
        ));
        if here.opening > 0 {
            let opening = counted(here.opening, "partition");
            out.push_str(&format!("{opening} being opened\n"));
        }
    }
    out
}

fn partition_line(status: &Status, line: &PartitionLine) -> String {
    if !line.open {
        return format!("{:3}  being opened\n", line.partition);
    }
    let mut out = format!(
        "{:3}  {}, {} applied, {} stable",
        line.partition,
        counted(line.operations, "operation"),
        line.applied,
        line.stable
    );
    out.push_str(&holder_state(status, line));
    for (incarnation, lacks) in &line.lag {
        let mut nodes = status.nodes.iter().filter(|node| !node.closed);
        if let Some(node) = nodes.find(|node| node.incarnation == *incarnation) {
            let size = size_of(lacks.bytes, lacks.seconds, lacks.has_no_size());
            out.push_str(&format!(
                "; {} lacks {} ({size})",
                node.name, lacks.operations
            ));
        }
    }
    if line.syncing {
        out.push_str("; syncing");
    }
    if line.uids_reassigned > 0 {
        let reassigned = counted(line.uids_reassigned, "UID");
        out.push_str(&format!("; {reassigned} reassigned"));
    }
    if line.blobs_missing + line.accounts_stalled > 0 {
        out.push_str(&format!(
            "; {} missing, {} stalled",
            counted(line.blobs_missing, "blob"),
            counted(line.accounts_stalled, "account")
        ));
    }
    let logs: Vec<String> = line.logs.iter().map(|log| log_of(status, log)).collect();
    if !logs.is_empty() {
        out.push_str(&format!("; logs: {}", logs.join(", ")));
    }
    out.push('\n');
    out
}

/// The holders of a partition, if not all members hold it or it is about to change, and the nodes that serve it, if not all holders do.
fn holder_state(status: &Status, line: &PartitionLine) -> String {
    let mut out = String::new();
    let members = status.nodes.iter();
    let members = members.filter(|node| node.is_member());
    // An earlier version does not report it.
    let is_told = !line.held_by.is_empty();
    if is_told && (line.held_by.len() < members.count() || !line.comes_back.is_empty()) {
        let held = line.held_by.iter();
        let held = held.filter(|name| !line.comes_back.contains(name));
        let held: Vec<&str> = held.map(String::as_str).collect();
        if !held.is_empty() {
            out.push_str(&format!("; held by {}", held.join(" ")));
        }
        for (names, what) in [(&line.leaves, "leaves"), (&line.comes_back, "comes back")] {
            for name in names {
                out.push_str(&format!("; {name} {what}"));
            }
        }
    }
    if !line.served_by.is_empty() {
        out.push_str(&format!("; served by {}", line.served_by.join(" ")));
    }
    out
}

/// Size and age of a lag, as far as known.
fn size_of(bytes: u64, seconds: u64, at_least: bool) -> String {
    match (at_least, bytes) {
        (false, _) => format!("{bytes} bytes, for {seconds} s"),
        (true, 0) => format!("size not known, for at least {seconds} s"),
        (true, _) => format!("at least {bytes} bytes, for at least {seconds} s"),
    }
}

/// The end of a writer's log. The name alone is not enough where several incarnations have it.
fn log_of(status: &Status, (incarnation, log): (&String, &LogLine)) -> String {
    let nodes = &status.nodes;
    let known = nodes.iter().find(|node| node.incarnation == *incarnation);
    let writer = match known {
        None => incarnation.clone(),
        Some(known) if nodes.iter().filter(|node| node.name == known.name).count() > 1 => {
            format!("{} ({incarnation})", known.name)
        }
        Some(known) => known.name.clone(),
    };
    match log.applied == log.stored {
        true => format!("{writer} {}", log.stored),
        false => format!("{writer} {} ({} applied)", log.stored, log.applied),
    }
}

/// Free slots for new nodes, and their owners; an earlier version does not report them.
fn slots(status: &Status) -> String {
    let known = status.nodes.iter();
    let known = known.filter_map(|node| Some((node, node.slots_free?)));
    let known: Vec<(&NodeLine, u32)> = known.collect();
    if known.is_empty() {
        return String::new();
    }
    let mut at: Vec<String> = known
        .iter()
        .filter(|(node, _)| node.is_member())
        .map(|(node, free)| format!("{free} at {}", node.name))
        .collect();
    let gone = known.iter().filter(|(node, _)| !node.is_member());
    let gone: u32 = gone.map(|(_, free)| free).sum();
    if gone > 0 {
        at.push(format!(
            "{gone} of nodes that are gone, until they are removed and their logs are closed"
        ));
    }
    let all: u32 = known.iter().map(|(_, free)| free).sum();
    format!("slots: {all} of 64 are free: {}\n", at.join(", "))
}

/// The difference of its clock and ours.
fn clock_of(node: &NodeLine) -> String {
    match node.clock_ahead_micros {
        None => String::new(),
        Some(micros) => {
            let (sign, micros) = (if micros < 0 { '-' } else { '+' }, micros.unsigned_abs());
            format!(
                "  clock {sign}{}.{:03} s",
                micros / 1_000_000,
                micros / 1000 % 1000
            )
        }
    }
}

fn unlinked(node: &NodeLine) -> String {
    match node.seconds {
        Some(seconds) => format!("unreachable for {seconds} s"),
        None => "no link".to_owned(),
    }
}

/// `runs`: the server that was asked runs.
fn line(node: &NodeLine, runs: bool) -> String {
    let place = match (&node.region, &node.address) {
        _ if node.closed => "removed, its slot is free".to_owned(),
        _ if node.removed => "removed, its operations are being collected".to_owned(),
        (Some(region), Some(address)) => {
            let role = node.role.as_deref().unwrap_or("worker");
            format!("{region}  {role}  {address}")
        }
        _ if node.this && !runs => "stopped".to_owned(),
        _ => "an earlier incarnation, or no address known yet".to_owned(),
    };
    let link = match (node.this, node.linked, node.round_trip_micros) {
        (true, ..) if node.drained => "this node, drained".to_owned(),
        (true, ..) => "this node".to_owned(),
        (_, false, _) => unlinked(node),
        (_, true, None) => "linked".to_owned(),
        (_, true, Some(micros)) => format!(
            "linked{}  {}.{:03} ms{}  {} bytes in  {} bytes out",
            node.seconds
                .map_or(String::new(), |seconds| format!(" for {seconds} s")),
            micros / 1000,
            micros % 1000,
            clock_of(node),
            node.received,
            node.sent
        ),
    };
    let lag = match (node.lag_operations, node.has_more) {
        _ if node.this || node.closed => String::new(),
        (Some(lacks), Some(more)) if lacks + more > 0 => format!(
            "  lacks {} ({}), this node lacks {more}, {} bytes queued",
            counted(lacks, "operation"),
            size_of(node.lag_bytes, node.lag_seconds, node.lag_at_least),
            node.queued_bytes
        ),
        (Some(_), _) if node.linked => "  in sync".to_owned(),
        (Some(_), _) => "  in sync when last heard".to_owned(),
        (None, _) => String::new(),
    };
    let syncing = match node.syncing {
        0 => String::new(),
        partitions => format!("  syncing {}", counted(partitions, "partition")),
    };
    let holds = match (node.holds, node.leaves) {
        _ if node.closed || node.removed => String::new(),
        (256, _) => String::new(),
        (holds, 0) => format!("  holds {holds} of 256 partitions"),
        (holds, leaves) => format!("  holds {holds} of 256 partitions, leaves {leaves}"),
    };
    format!(
        "{}  {}  slot {}  {place}  {link}{syncing}{holds}{lag}\n",
        node.name, node.incarnation, node.slot
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Here, Lag};

    pub(super) fn node(name: &str, incarnation: &str) -> NodeLine {
        NodeLine {
            name: name.into(),
            incarnation: incarnation.into(),
            slot: 3,
            slots_free: None,
            removed: false,
            closed: false,
            region: Some("eu".into()),
            role: Some("worker".into()),
            address: Some("host:10700".into()),
            this: false,
            linked: true,
            round_trip_micros: Some(41_210),
            clock_ahead_micros: Some(-12_000),
            received: 10,
            sent: 20,
            seconds: Some(3600),
            lag_operations: Some(0),
            lag_bytes: 0,
            lag_seconds: 0,
            lag_at_least: false,
            holds: 256,
            leaves: 0,
            drained: false,
            has_more: Some(0),
            queued_bytes: 0,
            syncing: 0,
        }
    }

    fn partition(number: u16) -> PartitionLine {
        PartitionLine {
            partition: number,
            held_by: vec!["a".into(), "b".into()],
            comes_back: Vec::new(),
            leaves: Vec::new(),
            served_by: Vec::new(),
            open: true,
            operations: 17,
            applied: 14,
            stable: 9,
            lag: Default::default(),
            uids_reassigned: 0,
            blobs_missing: 0,
            accounts_stalled: 0,
            syncing: false,
            logs: Default::default(),
        }
    }

    fn log(stored: u64, applied: u64) -> LogLine {
        LogLine { stored, applied }
    }

    /// The command always ended with 0.
    #[test]
    fn what_is_well() {
        let check = |change: fn(&mut Status), expected: bool| {
            let mut status = Status {
                cluster: "c".into(),
                nodes: vec![node("a", "0a"), node("b", "0b"), node("b", "0c")],
                clock: None,
                here: Some(Here::default()),
                partitions: Vec::new(),
            };
            status.nodes[0].this = true;
            status.nodes[0].linked = false;
            // An incarnation before the present one.
            status.nodes[2].linked = false;
            status.nodes[2].address = None;
            change(&mut status);
            assert_eq!(is_well(&status), expected);
        };
        check(|_| {}, true);
        check(|status| status.nodes[1].linked = false, false);
        check(
            |status| (status.nodes[1].linked, status.nodes[1].removed) = (false, true),
            true,
        );
        check(|status| status.clock = Some("wrong".into()), false);
        check(|status| status.here = None, false);
        let stalled = |status: &mut Status| {
            if let Some(here) = &mut status.here {
                here.accounts_stalled = 1;
            }
        };
        check(stalled, false);
    }

    #[test]
    fn a_node_is_a_line() {
        let check = |change: fn(&mut NodeLine), expected: &str| {
            let mut node = node("b", "0b");
            change(&mut node);
            assert_eq!(line(&node, true), format!("b  0b  slot 3  {expected}\n"));
        };
        let linked = "linked for 3600 s  41.210 ms  clock -0.012 s  10 bytes in  20 bytes out";
        check(
            |_| {},
            &format!("eu  worker  host:10700  {linked}  in sync"),
        );
        check(
            |node| node.role = Some("storage".into()),
            &format!("eu  storage  host:10700  {linked}  in sync"),
        );
        // As reported before there were roles.
        check(
            |node| node.role = None,
            &format!("eu  worker  host:10700  {linked}  in sync"),
        );
        check(
            |node| {
                (node.lag_operations, node.lag_bytes, node.lag_seconds) = (Some(12), 3140, 2);
                node.queued_bytes = 700;
            },
            &format!(
                "eu  worker  host:10700  {linked}  lacks 12 operations (3140 bytes, for 2 s), this node lacks 0, 700 bytes queued"
            ),
        );
        // The sizes of some ops are unknown, or of all.
        check(
            |node| {
                (node.lag_operations, node.lag_bytes, node.lag_seconds) = (Some(12), 3140, 2);
                node.lag_at_least = true;
            },
            &format!(
                "eu  worker  host:10700  {linked}  lacks 12 operations (at least 3140 bytes, for at least 2 s), this node lacks 0, 0 bytes queued"
            ),
        );
        check(
            |node| (node.lag_operations, node.lag_at_least) = (Some(12), true),
            &format!(
                "eu  worker  host:10700  {linked}  lacks 12 operations (size not known, for at least 0 s), this node lacks 0, 0 bytes queued"
            ),
        );
        check(
            |node| node.has_more = Some(4),
            &format!(
                "eu  worker  host:10700  {linked}  lacks 0 operations (0 bytes, for 0 s), this node lacks 4, 0 bytes queued"
            ),
        );
        check(
            |node| (node.linked, node.lag_operations, node.seconds) = (false, Some(1), Some(12)),
            "eu  worker  host:10700  unreachable for 12 s  lacks 1 operation (0 bytes, for 0 s), this node lacks 0, 0 bytes queued",
        );
        // Nothing is known of it.
        check(
            |node| (node.linked, node.lag_operations, node.seconds) = (false, None, None),
            "eu  worker  host:10700  no link",
        );
        check(
            |node| (node.this, node.drained, node.syncing) = (true, true, 40),
            "eu  worker  host:10700  this node, drained  syncing 40 partitions",
        );
        check(
            |node| (node.holds, node.leaves) = (128, 3),
            &format!(
                "eu  worker  host:10700  {linked}  holds 128 of 256 partitions, leaves 3  in sync"
            ),
        );
        check(
            |node| (node.removed, node.linked) = (true, false),
            "removed, its operations are being collected  unreachable for 3600 s  in sync when last heard",
        );
        check(
            |node| (node.closed, node.linked, node.seconds) = (true, false, None),
            "removed, its slot is free  no link",
        );
    }

    #[test]
    fn who_holds_a_partition_is_said_where_not_all_do() {
        let check = |change: fn(&mut PartitionLine), expected: &str| {
            let mut status = status();
            // Only one incarnation of each node counts.
            status.nodes = ["a", "b", "c"].map(|name| node(name, name)).into();
            let mut former = node("b", "0b");
            former.address = None;
            status.nodes.push(former);
            let mut line = partition(7);
            line.held_by = ["a", "b", "c"].map(String::from).into();
            change(&mut line);
            assert_eq!(holder_state(&status, &line), expected);
        };
        check(|_| {}, "");
        check(|line| line.held_by.clear(), "");
        check(|line| line.held_by.truncate(2), "; held by a b");
        check(
            |line| line.leaves.extend(line.held_by.pop()),
            "; held by a b; c leaves",
        );
        check(
            |line| line.comes_back.push("b".into()),
            "; held by a c; b comes back",
        );
        check(
            |line| line.served_by = ["b", "a"].map(String::from).into(),
            "; served by b a",
        );
        check(
            |line| {
                line.held_by.truncate(1);
                line.leaves = ["b", "c"].map(String::from).into();
                line.served_by.push("a".into());
            },
            "; held by a; b leaves; c leaves; served by a",
        );
    }

    /// Two incarnations of one node, another node, and an incarnation that is not known any more.
    pub(super) fn status() -> Status {
        let mut busy = partition(7);
        let lag = Lag {
            operations: 5,
            bytes: 700,
            seconds: 3,
        };
        let without_size = Lag { bytes: 0, ..lag };
        busy.lag = [("0a".into(), without_size), ("0c".into(), lag)].into();
        busy.held_by.truncate(1);
        busy.leaves.push("b".into());
        busy.served_by.push("a".into());
        (busy.uids_reassigned, busy.blobs_missing) = (2, 1);
        busy.logs = [
            ("0a".into(), log(10, 10)),
            ("0b".into(), log(7, 4)),
            ("0c".into(), log(2, 2)),
            ("0d".into(), log(1, 1)),
        ]
        .into();
        let mut opening = partition(8);
        opening.open = false;
        Status {
            cluster: "07".into(),
            nodes: vec![node("a", "0a"), node("b", "0b"), node("b", "0c")],
            clock: Some("the clock is an hour ahead".into()),
            here: Some(Here {
                partitions: 2,
                opening: 1,
                operations: 17,
                applied: 14,
                stable: 9,
                blobs_missing: 1,
                uids_reassigned: 2,
                ..Here::default()
            }),
            partitions: vec![busy, opening],
        }
    }

    #[test]
    fn it_is_told_in_words() {
        let offline = text(status(), false, false, Form::Verbose).unwrap();
        let verbose = |partitions| text(status(), true, partitions, Form::Verbose).unwrap();
        let (short, long) = (verbose(false), verbose(true));
        assert_eq!(offline, format!("{OFFLINE}{short}"));
        let rest = long.strip_prefix(&short).expect("the same, and more");
        let nodes = status();
        let nodes = nodes.nodes.iter().map(|node| line(node, true));
        let nodes = nodes.collect::<String>();
        let rest_of_short = short.strip_prefix(&format!("cluster 07\n{nodes}"));
        assert_eq!(
            rest_of_short.unwrap(),
            "the clock is an hour ahead: this node writes nothing\n\
             here: 17 operations in 2 partitions, 14 applied, 9 stable; 1 blob missing, 0 accounts stalled, 2 UIDs reassigned\n\
             1 partition being opened\n"
        );
        assert_eq!(
            rest,
            "  7  17 operations, 14 applied, 9 stable; held by a; b leaves; served by a; a lacks 5 (size not known, for at least 3 s); \
             b lacks 5 (700 bytes, for 3 s); 2 UIDs reassigned; 1 blob missing, 0 accounts stalled; logs: a 10, b (0b) 7 (4 applied), b (0c) 2, 0d 1\n  8  being opened\n"
        );
    }

    #[test]
    fn free_slots_are_told_with_who_has_them() {
        let mut status = status();
        status.nodes = ["a", "b"].map(|name| node(name, name)).into();
        assert_eq!(slots(&status), "");
        status.nodes[0].slots_free = Some(20);
        status.nodes[1].slots_free = Some(0);
        assert_eq!(
            slots(&status),
            "slots: 20 of 64 are free: 20 at a, 0 at b\n"
        );
        assert!(details(&status).contains(&slots(&status)));
        let mut former = node("b", "0b");
        (former.address, former.slots_free) = (None, Some(7));
        let mut removed = node("c", "0c");
        (removed.removed, removed.slots_free) = (true, Some(5));
        status.nodes.extend([former, removed]);
        assert_eq!(
            slots(&status),
            "slots: 32 of 64 are free: 20 at a, 0 at b, 12 of nodes that are gone, until they are removed and their logs are closed\n"
        );
    }

    #[test]
    fn others_are_members_that_are_there() {
        let mut status = status();
        status.nodes = ["a", "b", "c"].map(|name| node(name, name)).into();
        status.nodes[0].this = true;
        let (mut former, mut removed) = (node("b", "0b"), node("d", "0d"));
        former.address = None;
        removed.removed = true;
        status.nodes.extend([former, removed]);
        for of in [None, Some("a"), Some("b")] {
            assert_eq!(others_than(&status, of), 2, "{of:?}");
        }
        status.nodes.truncate(1);
        assert_eq!(others_than(&status, None), 0);
    }

    /// Programs read these names: none may change.
    #[test]
    fn it_is_told_as_json() {
        let told = |partitions| -> serde_json::Value {
            serde_json::from_str(&text(status(), true, partitions, Form::Json).unwrap()).unwrap()
        };
        let all = told(true);
        let of = &all["partitions"][0];
        assert_eq!(of["partition"], 7);
        assert_eq!(
            of["lag"]["0c"],
            serde_json::json!({"operations": 5, "bytes": 700, "seconds": 3})
        );
        assert_eq!(
            of["logs"]["0b"],
            serde_json::json!({"stored": 7, "applied": 4})
        );
        assert_eq!(
            (&of["uids_reassigned"], &of["stable"]),
            (&2.into(), &9.into())
        );
        for (field, names) in [
            ("held_by", serde_json::json!(["a"])),
            ("leaves", serde_json::json!(["b"])),
            ("comes_back", serde_json::json!([])),
            ("served_by", serde_json::json!(["a"])),
        ] {
            assert_eq!(of[field], names, "{field}");
        }
        let node = &all["nodes"][1];
        for (field, value) in [
            ("role", serde_json::json!("worker")),
            ("linked", true.into()),
            ("lag_operations", 0.into()),
            ("lag_bytes", 0.into()),
            ("lag_seconds", 0.into()),
            ("lag_at_least", false.into()),
            ("has_more", 0.into()),
            ("clock_ahead_micros", (-12_000).into()),
        ] {
            assert_eq!(node[field], value, "{field}");
        }
        assert_eq!(all["here"]["applied"], 14);
        assert_eq!(all["here"]["uids_reassigned"], 2);
        assert_eq!(told(false)["partitions"], serde_json::json!([]));
        // The status of an earlier version is understood, too.
        let mut earlier = all.clone();
        let partition = earlier["partitions"][0].as_object_mut().unwrap();
        for field in ["logs", "held_by", "comes_back", "leaves", "served_by"] {
            let _ = partition.remove(field).unwrap();
        }
        let here = earlier["here"].as_object_mut().unwrap();
        let _ = here.remove("uids_reassigned").unwrap();
        let earlier: Status = serde_json::from_value(earlier).unwrap();
        assert!(earlier.partitions[0].logs.is_empty());
        assert_eq!(holder_state(&earlier, &earlier.partitions[0]), "");
        assert_eq!(serde_json::from_value::<Status>(all).unwrap(), status());
    }
}
