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

mod faults;
mod operations;
mod server;
mod sharing;
mod store_node;

use common::trials::{Test, trials};
use libtest_mimic::Arguments;

fn main() {
    let arguments = Arguments::from_args();
    let missing = server::is_missing().err();
    let tests: &[Test] = async_tests![
        operations::values_are_set_read_and_removed,
        operations::numbers_are_exact_and_spelled_alike,
        operations::swaps_succeed_only_with_the_expected_value,
        operations::a_change_beyond_the_quota_changes_nothing,
        operations::the_largest_of_all_passes,
        operations::random_operations_agree_on_both_stores,
        sharing::writes_of_one_node_are_read_by_another,
        sharing::databases_and_foreign_keys_are_separate,
        sharing::concurrent_counts_and_swaps_on_two_nodes_are_exact,
        faults::acknowledged_changes_survive_a_killed_server,
        faults::a_hanging_server_times_out_and_is_used_again,
        faults::cut_connections_and_lost_scripts_are_restored,
        faults::a_full_server_rejects_writes_and_accepts_removals,
        faults::a_server_that_becomes_a_replica_is_read,
        faults::foreign_values_at_our_keys_are_errors,
        faults::a_failed_login_is_reported_without_the_password,
        faults::a_user_with_the_documented_rights_suffices,
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
