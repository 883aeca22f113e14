//! Guests that are hostile from their first instruction, against a real node. They lie in every
//! word of the mailbox, ring any doorbell as often as they like, change words while the node reads
//! them, and enter ring 0. Whatever they do, their caller receives a result in time, and no other
//! function is affected: a good function of the same pool answers, no process or descriptor
//! remains, and memory does not grow.
//!
//! - `carrier`: how hostile code gets into a guest. `script`: its possible steps.
//! - `lies`, `stores`, `calls`, `rings`, `memory`, `waits`, `storms`, `ends`: the attacks;
//!   `strays`: attacks while the guest is to poll for its next request.
//! - `chance`: all of that at random. `FAASW_TEST_SEED` repeats a run,
//!   `FAASW_HOSTILE_RUNS` makes it long:
//!
//! ```sh
//! FAASW_HOSTILE_RUNS=100000 cargo test -p faasw-pool --test hostile -- chance
//! ```
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod calls;
mod carrier;
mod chance;
mod ends;
mod lies;
mod memory;
mod rings;
mod script;
mod stores;
mod storms;
mod strays;
#[path = "../support/mod.rs"]
mod support;
mod waits;

use std::time::Duration;

use faasw_pool::{
    FreezePolicy, FunctionVersion, InvocationLimits, InvocationRequest, InvokeError, PoolOptions,
};

use calls::{
    a_body_without_a_head_is_ignored, a_flood_of_dropped_calls_leaves_none_behind,
    channels_of_absent_services_are_ignored, every_invalid_outbound_call_ends_the_guest,
};
use carrier::Carrier;
use chance::{by_chance_at_rest, by_chance_while_the_node_reads};
use ends::{
    a_guest_that_spins_after_its_end_has_little_time_and_pays,
    a_storm_after_the_end_costs_the_node_little, an_unrequested_early_end_is_not_believed,
    failed_and_abandoned_requests_are_charged,
};
use lies::{
    a_head_cannot_be_taken_back, a_response_that_was_ended_cannot_go_on,
    every_invalid_word_in_the_mailbox_is_rejected, no_more_of_a_request_is_read_than_was_written,
};
use memory::{
    absurd_memory_requests_are_ignored, an_instance_that_entered_ring_0_is_not_used_again,
    invalid_page_tables_end_the_guest,
};
use rings::{a_guest_that_goes_on_after_its_end_is_ended, every_ring_out_of_order_ends_the_guest};
use script::Script;
use stores::{
    an_answer_that_is_late_is_dropped_with_its_invocation, every_invalid_record_ends_the_guest,
    without_a_store_its_channel_is_ignored,
};
use storms::{a_storm_of_log_costs_the_node_little, a_storm_of_progress_costs_the_node_little};
use strays::{
    a_guest_that_strays_ends_and_only_its_function_is_not_hot,
    words_that_a_polling_guest_writes_early_affect_only_itself,
};
use support::hot::can_be_hot;
use support::processes::{descriptors, descriptors_of_a_sandbox, sandboxes};
use support::{Bench, bytes_of, call, give_up, slowness, whole};
use waits::{
    an_endless_wait_ends_in_time, instantiation_has_a_time_limit,
    repeated_waits_do_not_extend_the_timeout,
    waking_a_guest_that_never_waits_does_not_delay_the_node,
};

/// A hostile function, and a good one beside it.
struct Battlefield<'a> {
    bench: &'a Bench,
    carrier: Carrier,
    hostile: FunctionVersion,
    good: FunctionVersion,
    descriptors: usize,
}

impl<'a> Battlefield<'a> {
    async fn new(bench: &'a Bench) -> Self {
        let carrier = Carrier::of_requests(bench).await;
        let hostile = carrier.seed(bench).await.unwrap();
        let good = good(bench).await;
        let field = Self {
            bench,
            carrier,
            hostile,
            good,
            descriptors: 0,
        };
        // The first answers make the node allocate its one-time resources before the measurement.
        field.answers().await;
        field.other_functions_are_unaffected().await;
        Self {
            descriptors: descriptors(),
            ..field
        }
    }

    /// Makes the hostile function answer a request as a good one does.
    async fn answers(&self) {
        let answered = self.ends(&Script::new().head().end().done()).await;
        assert_eq!(answered.unwrap(), b"");
    }

    /// Runs a script that ends by itself. No limit of time is near, so the outcome is the same on
    /// a busy machine. Returns what its caller receives.
    async fn ends(&self, script: &Script) -> Result<Vec<u8>, InvokeError> {
        self.attack_within(script, far_limits()).await
    }

    /// Runs a script as a request with short limits. Returns what its caller receives.
    async fn attack(&self, script: &Script) -> Result<Vec<u8>, InvokeError> {
        self.attack_within(script, short_limits()).await
    }

    async fn attack_within(
        &self,
        script: &Script,
        limits: InvocationLimits,
    ) -> Result<Vec<u8>, InvokeError> {
        let order = InvocationRequest {
            body: whole(&script.bytes()),
            limits,
            ..call("/")
        };
        self.send(order).await
    }

    async fn send(&self, order: InvocationRequest) -> Result<Vec<u8>, InvokeError> {
        // The total limit, and time for the node to end the guest. Without a timeout, a failure
        // would hang the test.
        let limit = order.limits.total.unwrap() + give_up();
        let invocation = async {
            let reply = self.bench.pool.invoke(&self.hostile, order).await?;
            bytes_of(reply.body).await
        };
        tokio::time::timeout(limit, invocation)
            .await
            .expect("a request is over when its time is")
    }

    /// Whether instances of the hostile function are warm.
    fn is_warm(&self) -> bool {
        let tree = self.bench.pool.tree();
        tree.iter().any(|seed| {
            // The good function has another name.
            seed.name == HOSTILE && seed.warm > 0
        })
    }

    /// Waits until nothing of a request remains but what is meant to stay, and checks that the good
    /// function answers.
    async fn other_functions_are_unaffected(&self) {
        self.bench
            .settles("what was made for a request ends", |stats| {
                stats.busy == 0 && sandboxes().len() == stats.zygotes + stats.warm
            })
            .await;
        // If the response takes longer than the good function's 10 s for a first byte, this fails.
        let text = self.bench.text(&self.good, "/hello").await;
        assert_eq!(text.trim(), "hello");
    }

    /// Checks that no descriptor was left behind since the beginning, except those of instances.
    async fn nothing_is_left(&self) {
        self.other_functions_are_unaffected().await;
        self.bench
            .settles("descriptors are closed", |stats| {
                let of_instances = descriptors_of_a_sandbox() * (stats.zygotes + stats.warm + 1);
                descriptors() <= self.descriptors + of_instances
            })
            .await;
    }
}

/// Name of the hostile function.
const HOSTILE: &str = "hostile";

async fn good(bench: &Bench) -> FunctionVersion {
    let path = "tests/fixtures/http-probe.wasm";
    bench.seed(path, FreezePolicy::Auto).await.unwrap()
}

/// Returns limits so short that a script that runs for ever is ended soon.
fn short_limits() -> InvocationLimits {
    let short = |milliseconds| Duration::from_millis(milliseconds) * slowness();
    InvocationLimits {
        cpu: short(200),
        first_byte: short(300),
        idle_client: short(300),
        idle_guest: short(300),
        total: Some(short(2000)),
        idle_call: short(300),
        ..InvocationLimits::default()
    }
}

/// Returns limits that a request does not approach, not even on a busy machine.
fn far_limits() -> InvocationLimits {
    let far = Duration::from_secs(300) * slowness();
    InvocationLimits {
        cpu: far,
        first_byte: far,
        idle_client: far,
        idle_guest: far,
        total: Some(far),
        idle_call: far,
        ..InvocationLimits::default()
    }
}

/// Limits an initialisation to 3 s; honest ones take milliseconds.
fn options() -> PoolOptions {
    PoolOptions {
        instantiation_time: Duration::from_secs(3) * slowness(),
        ..support::usual()
    }
}

/// Options under which guests poll for requests as long as they may.
fn hot() -> PoolOptions {
    PoolOptions {
        poll: Duration::from_millis(10),
        ..support::usual()
    }
}

fn main() {
    support::main(|skip| {
        let never_hot = !can_be_hot();
        if never_hot {
            eprintln!(
                "WITHOUT GROUPS TO STEP ASIDE: tests of guests that look for requests are ignored."
            );
        }
        let mut all = trials![skip || never_hot;
            a_guest_that_strays_ends_and_only_its_function_is_not_hot in hot(),
            words_that_a_polling_guest_writes_early_affect_only_itself in hot(),
        ];
        all.extend(trials![skip;
            every_invalid_word_in_the_mailbox_is_rejected,
            no_more_of_a_request_is_read_than_was_written,
            a_response_that_was_ended_cannot_go_on,
            a_head_cannot_be_taken_back,
            every_ring_out_of_order_ends_the_guest,
            a_guest_that_goes_on_after_its_end_is_ended,
            invalid_page_tables_end_the_guest,
            an_instance_that_entered_ring_0_is_not_used_again,
            absurd_memory_requests_are_ignored,
            an_endless_wait_ends_in_time,
            repeated_waits_do_not_extend_the_timeout,
            waking_a_guest_that_never_waits_does_not_delay_the_node,
            instantiation_has_a_time_limit in options(),
            a_storm_of_progress_costs_the_node_little,
            a_storm_of_log_costs_the_node_little,
            a_guest_that_spins_after_its_end_has_little_time_and_pays,
            a_storm_after_the_end_costs_the_node_little,
            an_unrequested_early_end_is_not_believed,
            failed_and_abandoned_requests_are_charged,
            every_invalid_record_ends_the_guest,
            an_answer_that_is_late_is_dropped_with_its_invocation,
            without_a_store_its_channel_is_ignored,
            every_invalid_outbound_call_ends_the_guest,
            a_body_without_a_head_is_ignored,
            a_flood_of_dropped_calls_leaves_none_behind,
            channels_of_absent_services_are_ignored,
            by_chance_at_rest,
            by_chance_while_the_node_reads,
        ]);
        all
    });
}
