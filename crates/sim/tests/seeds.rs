//! A bounded number of seeds with every run of the tests; `cargo xtask sim` runs more.

use whimbrel_sim::{
    cluster,
    world::{self, Plan},
};

#[test]
fn seeds_hold() {
    for seed in 1..=150 {
        if let Err(breach) = world::run(&Plan::new(seed), false) {
            panic!(
                "seed {seed}: {}\nreplay with: cargo xtask sim --node-seed {seed}",
                breach.0
            );
        }
    }
}

#[test]
fn clusters_hold() {
    for seed in 1..=30 {
        if let Err(breach) = cluster::run_seed(seed, false) {
            panic!(
                "seed {seed}: {}\nreplay with: cargo xtask sim --seed {seed}",
                breach.0
            );
        }
    }
}

/// Nothing but the seed decides: neither the order in which seeds run, nor the thread, nor what a hash map draws for itself.
#[test]
fn a_seed_gives_the_same_report_again() {
    for seed in [2, 5, 7, 11, 13] {
        let run = move || {
            let report = cluster::run_seed(seed, false);
            report.unwrap_or_else(|breach| panic!("seed {seed}: {}", breach.0))
        };
        let node = move || {
            let report = world::run(&Plan::new(seed), false);
            report.unwrap_or_else(|breach| panic!("node seed {seed}: {}", breach.0))
        };
        let other = std::thread::spawn(move || (run(), node()));
        let here = (run(), node());
        assert!(here.0.steps > 0 && here.0.virtual_micros > 0);
        match other.join() {
            Ok(there) => assert_eq!(here, there, "seed {seed}"),
            Err(_) => panic!("seed {seed} panicked"),
        }
    }
}

/// The history of a seed from before clients waited for other nodes, some came by bytes, and accounts shared partitions.
fn as_ever(seed: u64) -> cluster::Plan {
    cluster::Plan {
        partitions: None,
        other_nodes: 0,
        protocol_clients: 0,
        ..cluster::Plan::new(seed)
    }
}

/// A client was at a node that was removed, and had UIDs of it that nobody else knew; when its logs were closed, the client went to another node with them.
#[test]
fn who_was_at_a_node_that_is_gone_overlooks_nothing() {
    for seed in [150, 195, 227, 367] {
        match cluster::run(&as_ever(seed), false) {
            Ok(report) => {
                let overlooked = report.coverage.keys();
                let mut overlooked =
                    overlooked.filter(|what| what.starts_with("cluster: overlooked, "));
                assert_eq!(overlooked.next(), None, "cluster seed {seed}");
            }
            Err(breach) => panic!("cluster seed {seed}: {}", breach.0),
        }
    }
}

/// A message was removed where a client looked next; then the client went to a node that had not heard of that, and was shown it there below what it
/// knew. So it was in these before nodes that came for a lost disk turned clients away; their histories are others since.
#[test]
fn what_was_gone_is_not_overlooked() {
    for seed in [312, 389, 446] {
        if let Err(breach) = cluster::run(&as_ever(seed), false) {
            panic!("cluster seed {seed}: {}", breach.0);
        }
    }
}

/// A client was at a node before it left the partition, and knows a UID of it; when the node was back it went to a third one, which took for shown
/// what that node had not known in its former life.
#[test]
fn who_was_at_a_node_in_an_earlier_life_overlooks_nothing() {
    let plan = cluster::Plan {
        protocol_clients: 0,
        partitions: None,
        ..cluster::Plan::new(1403)
    };
    if let Err(breach) = cluster::run(&plan, false) {
        panic!("cluster seed 1403: {}", breach.0);
    }
}

/// Nodes that clients looked at took a batch in many commits, for which they read the account again, and did not tell how high their counters were then:
/// another node showed its claims seconds later than all others.
#[test]
fn a_counter_is_told_when_the_account_was_read_again() {
    holds(1403);
}

/// A client subscribed to a name that was subscribed as far as its node knew, and was answered; what another node had heard before undid it.
#[test]
fn what_is_subscribed_again_stays_so() {
    holds(834);
}

/// An import was refused, and its upload kept the name that the message's body was to have: the next one had another name than all others gave it.
#[test]
fn what_is_refused_leaves_no_name_behind() {
    holds(205);
}

/// A disk hung while the queue had commits under way, and was full then: the first that was refused left the queue to a time that was over, again and again,
/// until the last one was answered.
#[test]
fn a_refused_commit_leaves_nothing_to_do_for_ever() {
    holds(14249);
}

/// The name of an import's upload was in use, by the body of the same import at another node, which came: it had another name then, under which
/// nobody asked for it when all disks were lost but one.
#[test]
fn an_import_has_one_body_whoever_brings_it() {
    holds(20095);
}

/// A node of which two disks were lost around it had claimed all again; a client with QRESYNC that named what it knew by these claims went to one
/// that had not heard of them, and was not told of what lies there under the old ones.
#[test]
fn what_was_claimed_again_elsewhere_is_told() {
    holds(26815);
}

/// A second state was joined to an account while a message in it waited, and the message's body was missing then, for another account's sake alone:
/// when it came nobody told the account.
#[test]
fn a_body_that_came_is_told_to_accounts_that_were_joined() {
    holds(40016);
}

/// A node that came for a lost disk had all, and served; one message still waited for other nodes there, as if it had just been made.
#[test]
fn a_new_node_shows_what_all_others_show() {
    holds(30571);
}

/// A disk was full between a batch that made a message late and the claim that followed: the partition was read again, and told that all was shown.
#[test]
fn a_claim_that_was_refused_is_not_reported_as_shown() {
    holds(51300);
}

/// An older disk was put back, and what its node had written since came to it again from another, stamped ahead: at the next start all that was there
/// was dropped, the lead over the UIDs of the lost time with it.
#[test]
fn what_waits_to_be_applied_on_an_older_disk_drops_nothing() {
    holds(72083);
}

/// A node came back to a partition, a body did not come with the state, and it was gone before it had reported what it showed: what it had shown in
/// the life before counted for a client that came from it.
#[test]
fn a_new_life_is_not_taken_to_have_shown_what_the_last_one_had() {
    holds(74483);
}

/// An account was done away with, opened again by what one node had written, and named by another one in an epoch of which nothing was known any
/// more: what was late could not be claimed, and the node stopped.
#[test]
fn an_account_that_is_opened_again_follows_others_into_their_epoch() {
    holds(99783);
}

/// An APPEND was refused, since too few nodes had it, and both disks that knew of that were lost: the message is there again at the others, and a
/// client that looked after the refusal is told of it.
#[test]
fn what_was_refused_on_disks_that_are_lost_is_told_to_who_comes_from_there() {
    holds(93763);
}

/// Mail was handed on; three nodes had the delivery, where two had to, and all three were removed. Who had accepted it stayed, had let go of it, and
/// nothing of it was to be held against him. In the second history his disk hangs meanwhile, and the entry is on it still.
#[test]
pub(crate) fn mail_that_was_handed_on_may_be_gone_with_all_who_had_it() {
    holds(113554);
    holds(133505);
}

/// A message was replaced at another node before anybody looked where a client was; then the client went to a node that had not heard of that, and
/// was shown it below what it knew.
#[test]
fn what_was_replaced_before_a_client_looked_is_nothing_new() {
    holds(114291);
}

/// A node had not shown a message when a client was there, and heard of it together with the claim of a third one; what it said to have shown counted
/// where that claim was not known, and the client overlooked the message there, under its old UID.
#[test]
fn what_was_shown_counts_when_all_that_it_rests_on_is_here() {
    holds(130345);
}

/// A node came for a lost disk, and removed the two that were left within a second: something of theirs rests on what was in a log that is closed,
/// and which nobody has any more. The removal did not end.
#[test]
fn of_a_closed_log_too_nobody_may_have_all() {
    holds(136705);
}

/// MOVE was answered when the message had lost its body, which another import of it had named anew: its UID was told, and a UIDNEXT below it behind that.
#[test]
fn what_is_told_of_a_message_without_its_body_counts_as_told() {
    holds(140703);
}

/// A batch was handed on beyond the end of its log, which was closed behind it: it is never acknowledged, and what was sent behind it kept its room
/// until the peer had been silent for long. A message was claimed again in a whole network for that.
#[test]
fn what_is_on_its_way_beyond_the_end_of_a_log_keeps_no_room() {
    holds(145237);
}

/// Entries of the queue had come with a part of a state, whose donor lost its disk then: nobody else had heard of them, and nobody delivered them.
#[test]
fn what_came_with_a_part_of_a_state_is_delivered_when_its_donor_is_lost() {
    holds(146535);
}

/// A sync had failed when all was healed, and the node had not said yet that it stops for that.
#[test]
fn a_node_stops_for_a_sync_that_failed_before_its_disk_was_mended() {
    holds(150947);
}

fn holds(seed: u64) {
    if let Err(breach) = cluster::run_seed(seed, false) {
        panic!("cluster seed {seed}: {}", breach.0);
    }
}
