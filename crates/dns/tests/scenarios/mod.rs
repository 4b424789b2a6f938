//! A scenario for each rule.

mod forged;
mod keeping;
mod limits;
mod lookups;
mod servers;

macro_rules! scenarios {
    ($($of:ident: $($name:ident),+;)+) => {
        /// All of them, by name.
        #[cfg(feature = "mutants")]
        pub const ALL: &[(&str, fn())] = &[$($((stringify!($name), $of::$name as fn())),+),+];

        mod run {
            $($(#[test]
            fn $name() {
                super::$of::$name();
            })+)+
        }
    };
}

scenarios! {
    lookups:
        every_kind_of_records_is_read,
        what_is_not_there_is_told_apart,
        aliases_are_followed_within_an_answer,
        aliases_are_asked_for,
        an_alias_itself_can_be_asked_for,
        aliases_that_lead_in_a_circle_end,
        at_most_eight_aliases_are_followed,
        authenticity_is_that_of_all_answers,
        authenticity_is_asked_for_if_wanted,
        what_nobody_waits_for_is_given_up,
        a_ticket_that_is_used_again_begins_anew,
        a_lookup_ends_in_time,
        nobody_can_be_asked;
    keeping:
        identical_questions_are_one,
        answers_are_kept_for_their_ttl,
        the_ttl_is_the_shortest_of_all,
        ttls_are_bounded,
        what_has_no_ttl_is_not_kept,
        negative_answers_are_kept_as_the_soa_says,
        negative_answers_are_kept_for_a_bounded_time,
        a_soa_of_another_zone_counts_for_nothing,
        failures_are_held_and_say_nothing_of_the_name,
        silence_is_held_for_the_shortest_time;
    servers:
        the_next_server_is_asked_when_one_is_silent,
        each_round_waits_longer,
        the_server_that_answered_is_asked_first,
        a_server_that_failed_is_not_asked_again,
        every_failure_has_its_name,
        an_unreachable_server_costs_no_time,
        what_is_truncated_is_asked_by_tcp,
        truncated_answers_of_two_slow_servers_come_one_by_one,
        tcp_that_fails_goes_on_to_the_next_server,
        a_server_without_edns_is_asked_without,
        the_upper_part_of_the_code_counts,
        a_server_that_loses_case_is_found_out;
    forged:
        each_question_is_different,
        an_answer_must_match,
        late_answers_are_ignored,
        who_guesses_is_answered_by_tcp,
        records_of_other_names_are_left_out,
        an_answer_by_tcp_must_match;
    limits:
        lookups_are_bounded,
        questions_are_bounded,
        questions_that_are_given_up_leave_no_place_in_the_queue,
        connections_are_bounded,
        the_cache_is_bounded,
        records_are_bounded,
        datagrams_are_bounded,
        servers_are_bounded;
}

/// A zone that most scenarios use.
pub const ZONE: &str = "
example.org 300 SOA ns.example.org host.example.org 1 1 1 1 60
example.org 300 MX 10 mx1.example.org
example.org 300 MX 20 mx2.example.org
mx1.example.org 300 A 198.51.100.1
mx1.example.org 300 A 198.51.100.2
mx1.example.org 300 AAAA 2001:db8::1
_25._tcp.mx1.example.org 300 TLSA 3 1 1 00112233
www.example.org 100 CNAME web.example.org
web.example.org 200 CNAME host.example.net
nowhere.example.org 100 CNAME gone.example.net
example.net 300 SOA ns.example.net host.example.net 1 1 1 1 30
host.example.net 150 A 198.51.100.3
";
