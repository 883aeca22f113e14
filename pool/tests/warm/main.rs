//! Instances that are reset and warm: that no state passes from one request to the next, which
//! instances are warm again and which never are, and what they cost.
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod ahead;
mod clocks;
mod comeback;
mod costs;
mod crowd;
mod gone;
mod habits;
mod hot;
mod secrets;
mod sequences;
mod state;
#[path = "../support/mod.rs"]
mod support;
mod uniqueness;

use faasw_pool::{FreezePolicy, FunctionVersion, PoolOptions};

use support::Bench;

use ahead::{
    a_function_that_fails_has_none_made_for_nothing, a_function_that_goes_leaves_no_process,
    a_function_that_is_called_is_provided_for, a_making_that_hangs_is_given_up,
    one_that_ends_is_made_again, seeds_are_made_for_them_as_far_as_all_their_memory_has_room,
    the_first_requests_find_their_instances, those_at_work_count,
    those_that_do_not_fit_are_not_made_in_turn, those_that_would_not_come_back_are_replaced,
    what_a_function_may_not_hold_is_told, what_does_not_fit_is_not_made, what_is_beyond_goes_first,
    what_is_not_missing_any_more_is_not_made,
    who_waits_for_instances_is_let_go_where_requests_wait,
};
use clocks::{
    clocks_and_timers_are_right_after_an_hour_at_rest, clocks_are_right_after_resting,
    timers_are_right_in_reset_instances,
};
use comeback::{
    a_killed_warm_sandbox_is_not_handed_out, a_seed_that_goes_takes_its_warm_instances_along,
    an_instance_of_one_request_never_comes_back, an_instance_serves_as_often_as_it_may,
    an_instance_that_did_not_end_well_is_never_warm, one_request_after_the_other_needs_one_place,
    the_oldest_ends_where_too_many_are_warm, what_nobody_takes_is_ended,
};
use costs::{
    cpu_time_is_limited_per_request, memory_comes_back_after_a_large_request,
    warm_instances_take_no_cpu_time,
};
use crowd::{
    a_pool_that_is_full_says_so_soon, what_a_client_does_not_take_stays_in_its_instance,
    who_waits_for_its_client_is_evicted,
};
use gone::{
    a_warm_sandbox_that_ends_before_its_guest_runs_loses_nothing,
    a_warm_sandbox_that_has_just_ended_fails_no_request,
    sandboxes_of_the_stock_that_have_ended_fail_no_request,
};
use habits::a_working_set_that_goes_unused_shrinks;
use hot::{
    a_function_does_not_look_where_others_do, a_function_looks_where_others_do_not,
    bodies_pass_hot_or_cold, hot_instances_are_as_their_seed, no_two_hot_requests_draw_the_same,
    who_looks_in_vain_rests_as_others, with_every_processor_at_work_nobody_waits_for_a_hot_one,
};
use secrets::{
    a_request_that_begins_again_has_its_secrets, what_comes_with_a_request_goes_with_it,
};
use sequences::{
    a_pool_that_is_shut_down_at_work_leaves_nothing, whatever_happens_nothing_is_left,
};
use state::{nothing_passes_from_one_request_to_the_next, one_count_after_the_other};
use uniqueness::{no_initialisation_draws_what_another_drew, no_two_requests_draw_the_same};

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
            a_warm_sandbox_that_ends_before_its_guest_runs_loses_nothing in only_instances(),
            a_request_that_begins_again_has_its_secrets in only_instances(),
            what_comes_with_a_request_goes_with_it in hot::often(),
            sandboxes_of_the_stock_that_have_ended_fail_no_request in PoolOptions {
                zygotes: 2,
                ..PoolOptions::default()
            },
            one_that_ends_is_made_again in ahead::three(),
            those_that_would_not_come_back_are_replaced in ahead::three(),
            a_making_that_hangs_is_given_up in ahead::three(),
            what_is_not_missing_any_more_is_not_made in PoolOptions {
                min_warm: 1,
                zygotes: 2,
                ..PoolOptions::default()
            },
            a_function_that_goes_leaves_no_process in ahead::three(),
            cpu_time_is_limited_per_request in only_instances(),
            memory_comes_back_after_a_large_request in only_instances(),
            a_working_set_that_goes_unused_shrinks in only_instances(),
            no_two_hot_requests_draw_the_same in hot::often(),
            hot_instances_are_as_their_seed in hot::often(),
            bodies_pass_hot_or_cold in hot::often(),
            a_function_looks_where_others_do_not in only_instances(),
            a_function_does_not_look_where_others_do in hot::often(),
            who_looks_in_vain_rests_as_others in hot::often(),
            with_every_processor_at_work_nobody_waits_for_a_hot_one in hot::often(),
            whatever_happens_nothing_is_left in PoolOptions {
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
                one_count_after_the_other,
                nothing_passes_from_one_request_to_the_next in only_instances(),
                an_instance_of_one_request_never_comes_back in PoolOptions {
                    max_reuse: 1,
                    ..only_instances()
                },
                an_instance_serves_as_often_as_it_may in PoolOptions {
                    max_reuse: 3,
                    ..only_instances()
                },
                what_nobody_takes_is_ended in PoolOptions {
                    keep_alive: comeback::keep_alive(),
                    ..only_instances()
                },
                the_oldest_ends_where_too_many_are_warm in PoolOptions {
                    max_warm: 2,
                    ..only_instances()
                },
                one_request_after_the_other_needs_one_place in PoolOptions {
                    max_instances: 1,
                    ..only_instances()
                },
                a_pool_that_is_full_says_so_soon in PoolOptions {
                    max_instances: 1,
                    ..only_instances()
                },
                who_waits_for_its_client_is_evicted in PoolOptions {
                    max_instances: 1,
                    ..only_instances()
                },
                what_a_client_does_not_take_stays_in_its_instance in PoolOptions {
                    max_instances: 1,
                    ..only_instances()
                },
                a_seed_that_goes_takes_its_warm_instances_along in only_instances(),
                warm_instances_take_no_cpu_time in only_instances(),
                clocks_are_right_after_resting in only_instances(),
                clocks_and_timers_are_right_after_an_hour_at_rest in PoolOptions {
                    wall_clock: clocks::injected,
                    ..only_instances()
                },
                timers_are_right_in_reset_instances in only_instances(),
                a_pool_that_is_shut_down_at_work_leaves_nothing,
                the_first_requests_find_their_instances in ahead::three(),
                those_at_work_count in ahead::three(),
                a_function_that_is_called_is_provided_for in ahead::three(),
                a_function_that_fails_has_none_made_for_nothing in ahead::three(),
                what_does_not_fit_is_not_made in ahead::three(),
                seeds_are_made_for_them_as_far_as_all_their_memory_has_room in ahead::three(),
                what_a_function_may_not_hold_is_told in ahead::three(),
                what_is_beyond_goes_first in PoolOptions {
                    max_warm: 8,
                    ..ahead::three()
                },
                those_that_do_not_fit_are_not_made_in_turn in PoolOptions {
                    min_warm: 1,
                    max_warm: 3,
                    ..only_instances()
                },
                who_waits_for_instances_is_let_go_where_requests_wait in PoolOptions {
                    max_instances: 1,
                    ..ahead::three()
                },
            ]);
        }
        all
    });
}
