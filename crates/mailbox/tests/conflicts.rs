//! The conflict table and the rules of the UIDs, one named test each.

use crate::world;

macro_rules! scenarios {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )*

        #[test]
        fn all_are_run() {
            let names = [$(stringify!($name)),*];
            let listed: Vec<&str> = world::scenarios::SCENARIOS.iter().map(|(name, _)| *name).collect();
            assert_eq!(names.as_slice(), listed.as_slice());
        }
    };
}

fn run(name: &str) {
    let (_, scenario) = world::scenarios::SCENARIOS
        .iter()
        .find(|(other, _)| *other == name)
        .expect("listed");
    if let Err(error) = scenario() {
        panic!("{error}");
    }
}

scenarios! {
    append_and_delete
    copy_and_delete
    move_and_delete
    delivery_and_delete
    rename_and_delete
    rename_and_create
    create_and_delete
    default_folder_and_delete
    flag_set_and_unset
    deleted_set_and_unset
    rescue_and_expunge
    move_and_expunge
    store_and_expunge
    move_and_move
    copy_and_expunge
    rename_and_rename
    subscribe_and_unsubscribe
    delivered_by_two_nodes
    delivery_after_expunge
    delivered_into_two_mailboxes
    saved_when_placed
    rename_inbox
    rename_carries_children
    rename_below_a_deleted_name
    late_is_claimed_again
    superseded_uid_is_resolved
    visible_when_peers_are_heard
    rename_onto_announced_name
    rename_writes_no_rows_of_messages
    renamed_again_before_it_is_claimed
    renamed_while_a_claim_is_late
    copy_writes_no_row_of_its_source
    mark_outlives_its_name
    takeover_claims_what_was_unknown
    implausible_uid_is_not_believed
    epoch_voids_claims
    replacing_store_spares_what_was_not_seen
    missing_record_is_named
    content_goes_with_the_last_copy
    blocks_by_rank_do_not_interleave
    vanished_history_is_bounded
    parents_are_created
    refusals
    join_restarts_hidden_time
    leaving_restarts_hidden_time_of_mailbox
}
