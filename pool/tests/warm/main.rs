//! Instances that are reset and kept warm: that no state passes from one request to the next, which
//! instances are warm again and which never are, and what they cost.
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod admission;
mod clocks;
mod costs;
mod hot;
mod killed;
mod provisioned;
mod reuse;
mod secrets;
mod sequences;
mod state;
#[path = "../support/mod.rs"]
mod support;
mod uniqueness;
mod working_set;

use faasw_pool::{FreezePolicy, FunctionVersion, PoolOptions};

use support::Bench;

use admission::{
    a_full_pool_rejects_requests_soon, an_invocation_that_waits_for_its_client_is_evicted,
    unread_response_bytes_stay_in_the_mailbox,
};
use clocks::{
    clocks_and_timers_are_right_after_an_hour_at_rest, clocks_are_right_after_resting,
    timers_are_right_in_reset_instances,
};
use costs::{
    cpu_time_is_limited_per_request, memory_comes_back_after_a_large_request,
    warm_instances_take_no_cpu_time,
};
use hot::{
    a_function_can_be_excluded_from_polling, a_function_can_poll_where_others_do_not,
    an_instance_that_polled_in_vain_stays_warm, bodies_pass_hot_or_cold,
    hot_instances_are_as_their_seed, no_request_waits_for_a_hot_instance_while_all_processors_work,
    no_two_hot_requests_draw_the_same,
};
use killed::{
    a_request_survives_a_warm_sandbox_that_ends_before_its_guest_runs,
    a_warm_sandbox_that_has_just_ended_fails_no_request,
    sandboxes_of_the_stock_that_have_ended_fail_no_request,
};
use provisioned::{
    a_function_that_is_called_gets_warm_instances, a_removed_function_leaves_no_process,
    an_instance_that_ends_is_replaced, an_instance_that_is_no_longer_missing_is_not_made,
    failing_requests_cause_no_needless_instances,
    functions_do_not_take_each_others_instances_in_turn, instances_at_work_count_as_present,
    instances_beyond_the_functions_memory_are_reported, instances_beyond_the_minimum_end_first,
    instances_that_do_not_fit_are_not_made, making_an_instance_times_out,
    outdated_instances_are_replaced, seeds_for_warm_instances_fit_the_memory_for_seeds,
    the_first_requests_find_warm_instances, waiting_for_instances_ends_while_requests_wait,
};
use reuse::{
    a_killed_warm_sandbox_is_not_handed_out, a_removed_seed_ends_its_warm_instances,
    an_instance_limited_to_one_request_is_never_warm,
    an_instance_serves_as_many_requests_as_allowed,
    an_instance_that_did_not_end_well_is_never_warm,
    an_unused_warm_instance_ends_after_the_keep_alive_time, requests_in_sequence_need_one_permit,
    the_oldest_instance_ends_when_too_many_are_warm,
};
use secrets::{
    a_request_that_begins_again_has_its_secrets, secrets_of_a_request_are_gone_after_it,
};
use sequences::{
    a_pool_that_is_shut_down_at_work_leaves_nothing, random_sequences_leave_nothing_behind,
};
use state::{
    every_request_sees_the_state_of_the_seed, nothing_passes_from_one_request_to_the_next,
};
use uniqueness::{no_initialisation_draws_what_another_drew, no_two_requests_draw_the_same};
use working_set::a_working_set_that_goes_unused_shrinks;

const PROBE: &str = "tests/fixtures/http-probe.wasm";

/// Options without zygotes: each process is an instance.
fn only_instances() -> PoolOptions {
    PoolOptions {
        zygotes: 0,
        ..PoolOptions::default()
    }
}

async fn probe(bench: &Bench) -> FunctionVersion {
    bench.seed(PROBE, FreezePolicy::Auto).await.unwrap()
}

fn main() {
    support::main(|skip| {
        // These tests kill processes from outside, or measure them one by one.
        let mut all = trials![skip;
            an_instance_that_did_not_end_well_is_never_warm in only_instances(),
            a_killed_warm_sandbox_is_not_handed_out in only_instances(),
            a_warm_sandbox_that_has_just_ended_fails_no_request in only_instances(),
            a_request_survives_a_warm_sandbox_that_ends_before_its_guest_runs in only_instances(),
            a_request_that_begins_again_has_its_secrets in only_instances(),
            secrets_of_a_request_are_gone_after_it in hot::often(),
            sandboxes_of_the_stock_that_have_ended_fail_no_request in PoolOptions {
                zygotes: 2,
                ..PoolOptions::default()
            },
            an_instance_that_ends_is_replaced in provisioned::three(),
            outdated_instances_are_replaced in provisioned::three(),
            making_an_instance_times_out in provisioned::three(),
            an_instance_that_is_no_longer_missing_is_not_made in PoolOptions {
                min_warm: 1,
                zygotes: 2,
                ..PoolOptions::default()
            },
            a_removed_function_leaves_no_process in provisioned::three(),
            cpu_time_is_limited_per_request in only_instances(),
            memory_comes_back_after_a_large_request in only_instances(),
            a_working_set_that_goes_unused_shrinks in only_instances(),
            no_two_hot_requests_draw_the_same in hot::often(),
            hot_instances_are_as_their_seed in hot::often(),
            bodies_pass_hot_or_cold in hot::often(),
            a_function_can_poll_where_others_do_not in only_instances(),
            a_function_can_be_excluded_from_polling in hot::often(),
            an_instance_that_polled_in_vain_stays_warm in hot::often(),
            no_request_waits_for_a_hot_instance_while_all_processors_work in hot::often(),
            random_sequences_leave_nothing_behind in PoolOptions {
                max_warm: sequences::MAX_WARM,
                max_reuse: 7,
                ..support::usual()
            },
        ];
        for confinement in support::EACH {
            all.extend(trials![skip, confinement;
                no_two_requests_draw_the_same in PoolOptions {
                    zygotes: 2,
                    max_reuse: 12,
                    ..PoolOptions::default()
                },
                no_initialisation_draws_what_another_drew,
                every_request_sees_the_state_of_the_seed,
                nothing_passes_from_one_request_to_the_next in only_instances(),
                an_instance_limited_to_one_request_is_never_warm in PoolOptions {
                    max_reuse: 1,
                    ..only_instances()
                },
                an_instance_serves_as_many_requests_as_allowed in PoolOptions {
                    max_reuse: 3,
                    ..only_instances()
                },
                an_unused_warm_instance_ends_after_the_keep_alive_time in PoolOptions {
                    keep_alive: reuse::keep_alive(),
                    ..only_instances()
                },
                the_oldest_instance_ends_when_too_many_are_warm in PoolOptions {
                    max_warm: 2,
                    ..only_instances()
                },
                requests_in_sequence_need_one_permit in PoolOptions {
                    max_instances: 1,
                    ..only_instances()
                },
                a_full_pool_rejects_requests_soon in PoolOptions {
                    max_instances: 1,
                    ..only_instances()
                },
                an_invocation_that_waits_for_its_client_is_evicted in PoolOptions {
                    max_instances: 1,
                    ..only_instances()
                },
                unread_response_bytes_stay_in_the_mailbox in PoolOptions {
                    max_instances: 1,
                    ..only_instances()
                },
                a_removed_seed_ends_its_warm_instances in only_instances(),
                warm_instances_take_no_cpu_time in only_instances(),
                clocks_are_right_after_resting in only_instances(),
                clocks_and_timers_are_right_after_an_hour_at_rest in PoolOptions {
                    wall_clock: clocks::injected,
                    ..only_instances()
                },
                timers_are_right_in_reset_instances in only_instances(),
                a_pool_that_is_shut_down_at_work_leaves_nothing,
                the_first_requests_find_warm_instances in provisioned::three(),
                instances_at_work_count_as_present in provisioned::three(),
                a_function_that_is_called_gets_warm_instances in provisioned::three(),
                failing_requests_cause_no_needless_instances in provisioned::three(),
                instances_that_do_not_fit_are_not_made in provisioned::three(),
                seeds_for_warm_instances_fit_the_memory_for_seeds in provisioned::three(),
                instances_beyond_the_functions_memory_are_reported in provisioned::three(),
                instances_beyond_the_minimum_end_first in PoolOptions {
                    max_warm: 8,
                    ..provisioned::three()
                },
                functions_do_not_take_each_others_instances_in_turn in PoolOptions {
                    min_warm: 1,
                    max_warm: 3,
                    ..only_instances()
                },
                waiting_for_instances_ends_while_requests_wait in PoolOptions {
                    max_instances: 1,
                    ..provisioned::three()
                },
            ]);
        }
        all
    });
}
