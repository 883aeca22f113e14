//! Key-value stores on a real Redis server, with nodes without microVMs. Without `redis-server`,
//! the tests print a notice and are ignored.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../common/mod.rs"]
mod common;

mod asking;
mod faults;
mod operations;
mod server;
mod sharing;

use common::trials::{Test, trials};
use libtest_mimic::Arguments;

fn main() {
    let arguments = Arguments::from_args();
    let missing = server::is_missing().err();
    let tests: &[Test] = async_tests![
        operations::values_are_set_read_and_removed,
        operations::numbers_are_exact_and_spelled_alike,
        operations::swaps_take_what_was_seen,
        operations::what_passes_a_quota_leaves_nothing,
        operations::the_largest_of_all_passes,
        operations::chance_finds_no_difference,
        sharing::what_one_node_writes_another_reads,
        sharing::databases_and_what_others_keep_there_are_apart,
        sharing::counts_and_swaps_of_many_on_two_nodes_are_exact,
        faults::what_was_acknowledged_survives_a_server_that_is_killed,
        faults::a_server_that_hangs_is_not_waited_for_and_comes_back,
        faults::connections_that_are_cut_and_scripts_that_are_forgotten_are_made_again,
        faults::a_full_server_refuses_writes_whole_and_takes_removals,
        faults::a_server_that_becomes_a_replica_is_read,
        faults::what_others_did_to_its_keys_is_no_answer,
        faults::who_does_not_log_in_is_refused_without_a_word_of_the_password,
        faults::a_user_of_these_rights_is_enough,
        faults::tls_is_for_the_name_and_the_authority,
    ];
    if let Some(why) = missing
        && !arguments.list
    {
        eprintln!("{why} (Debian's redis-server): nothing is tested");
    }
    let trials = trials(&arguments, [(tests, missing)]);
    libtest_mimic::run(&arguments, trials).exit();
}
