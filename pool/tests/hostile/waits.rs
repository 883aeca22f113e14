//! Time limits while the guest waits, or claims to wait.

use std::time::{Duration, Instant};

use faasw_abi::channel::{Channel, Waits};
use faasw_abi::doorbell::Doorbell;
use faasw_pool::{InvocationLimits, InvocationRequest, InvokeError, SeedError};

use crate::carrier::Carrier;
use crate::script::{Script, word};
use crate::support::{Bench, arriving, call, slowness};
use crate::{Battlefield, far_limits, good, short_limits};

/// Waits again and again, each time for `nanoseconds`.
fn waits(before: Script, wait_for: u64, nanoseconds: u64) -> Script {
    let script = before
        .store(word!(wait_for), wait_for)
        .store(word!(wait_nanoseconds), nanoseconds)
        .progress();
    let from = script.here();
    script.ring(Doorbell::Wait).for_ever_from(from)
}

pub async fn an_endless_wait_ends_in_time(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    for nanoseconds in [0, 1_000_000, u64::MAX] {
        for wait_for in [
            0,
            Waits::of(Channel::INVOCATION).word(),
            Waits::LOG.word(),
            !Waits::LOG.word(),
            u64::MAX,
        ] {
            for before in [Script::new(), Script::new().head()] {
                let began = Instant::now();
                let script = waits(before, wait_for, nanoseconds);
                let answered = field.attack(&script).await;
                let took = began.elapsed();
                assert!(
                    matches!(
                        answered,
                        Err(InvokeError::TimedOut(_)
                            | InvokeError::IdleGuest(_)
                            | InvokeError::CpuLimit(_)
                            | InvokeError::TotalTime(_))
                    ),
                    "{nanoseconds} {wait_for}: {answered:?} after {took:?}"
                );
                assert!(!field.is_warm());
            }
        }
        field.other_functions_are_unaffected().await;
    }
    field.nothing_is_left().await;
}

pub async fn repeated_waits_do_not_extend_the_timeout(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    // The guest waits for more of the request, takes that back, and waits again; the client sends
    // nothing more.
    let asks = |script: Script, wait_for| {
        script
            .store(word!(wait_for), wait_for)
            .store(word!(wait_nanoseconds), 20_000_000)
            .progress()
            .ring(Doorbell::Wait)
    };
    let script = Script::new().head();
    let from = script.here();
    let script =
        asks(asks(script, Waits::bytes(Channel::INVOCATION).word()), 0).for_ever_from(from);
    let (client, body) = arriving();
    let bytes = script.bytes();
    client
        .send(Ok(http_body::Frame::data(bytes.into())))
        .await
        .unwrap();
    let limits = InvocationLimits {
        cpu: far_limits().cpu,
        first_byte: far_limits().first_byte,
        // An idle time that the guest could extend would end at this limit.
        total: Some(Duration::from_secs(20) * slowness()),
        ..short_limits()
    };
    let order = InvocationRequest {
        body,
        limits,
        ..call("/")
    };
    let answered = field.send(order).await;
    assert!(
        matches!(
            answered,
            Err(InvokeError::IdleGuest(_) | InvokeError::IdleClient(_))
        ),
        "{answered:?}"
    );
    drop(client);
    field.nothing_is_left().await;
}

pub async fn waking_a_guest_that_never_waits_does_not_delay_the_node(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    for before in [Script::new(), Script::new().head()] {
        let script = before.store(word!(wait_for), Waits::LOG.word());
        let from = script.here();
        let script = script.progress().for_ever_from(from);
        let limits = InvocationLimits {
            // Long enough to fill any socket.
            cpu: Duration::from_millis(700) * slowness(),
            ..far_limits()
        };
        let answered = field.attack_within(&script, limits).await;
        assert!(
            matches!(answered, Err(InvokeError::CpuLimit(_))),
            "{answered:?}"
        );
    }
    field.nothing_is_left().await;
}

pub async fn instantiation_has_a_time_limit(bench: &Bench) {
    let good = good(bench).await;
    let storm = Script::new().store(word!(wait_for), Waits::LOG.word());
    let from = storm.here();
    let storm = storm.progress().for_ever_from(from);
    let spin = Script::new().for_ever_from(0);
    let waits = waits(Script::new(), 0, u64::MAX);
    for (what, script) in [("storms", storm), ("spins", spin), ("waits", waits)] {
        let carrier = Carrier::of_instantiation(bench, &script).await;
        let made = carrier.seed(bench).await;
        assert!(
            matches!(made, Err(SeedError::Function(InvokeError::TimedOut(_)))),
            "{what}: {made:?}"
        );
        assert_eq!(bench.text(&good, "/hello").await.trim(), "hello");
    }
    for ring in [
        Doorbell::Done,
        Doorbell::Fatal,
        Doorbell::Booted,
        Doorbell::Loaded,
        Doorbell::Ready,
        Doorbell::Rewritten,
        Doorbell::Entry,
    ] {
        let script = Script::new().store(word!(report_len), u64::MAX).ring(ring);
        let carrier = Carrier::of_instantiation(bench, &script).await;
        let made = carrier.seed(bench).await;
        assert!(
            matches!(made, Err(SeedError::Function(InvokeError::GuestFailed(_)))),
            "{ring:?}: {made:?}"
        );
    }
    bench
        .settles("guests that were to become seeds end", |stats| {
            crate::sandboxes().len() == stats.zygotes + stats.warm
        })
        .await;
}
