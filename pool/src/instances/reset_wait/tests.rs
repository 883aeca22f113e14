//! How the node handles a sandbox's messages, valid or not, while an instance is reset.

use std::sync::Arc;

use faasw_abi::memory_map::RODATA_END;
use faasw_fri::control::{Control, Offer};
use faasw_fri::messages::{Answer, Failed, Failure, Rang, WarmReport};
use faasw_fri::{Message, send};
use faasw_seedtree::LayerBuilder;
use rustix::net::SendFlags;
use rustix::time::{ClockId, clock_gettime};
use zerocopy::FromZeros;

use super::*;
use crate::instances::{Keeper, WarmInstances, WarmRules};
use crate::mailbox::Mailbox;
use crate::sandboxes::{FakeSandbox, Sandbox, Zygote};
use crate::snapshots::SeedSnapshot;

const POLL: Duration = Duration::from_millis(10);

/// An instance, a stand-in for its process, and the warm instances that it joins.
struct Field {
    instance: Instance,
    sandbox: FakeSandbox,
    /// The page that both share, as the sandbox maps it.
    control: Control,
    warm_instances: Arc<WarmInstances>,
}

fn reset_wait(is_still: bool) -> ResetWait {
    let long = Duration::from_secs(60);
    ResetWait::new(RateLimit::new(), long, Instant::now() + long, is_still)
}

fn order(instance: &Instance) -> ResetOrder {
    ResetOrder::issue(instance, false, POLL)
}

fn now() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

impl Field {
    fn new() -> Self {
        let layer = LayerBuilder::new("test", 64 << 20).unwrap();
        layer.write(RODATA_END, b"here").unwrap();
        let layer = layer.freeze(1).unwrap();
        let state = Box::new(faasw_fri::messages::VcpuState::new_zeroed()).into();
        let frozen = SeedSnapshot::new(None, layer, state, 5).unwrap();
        let mut mailbox = Mailbox::new().unwrap();
        mailbox.map().unwrap();
        let control = Control::map(&mailbox).unwrap();
        let (sandbox, stand_in) = Sandbox::fake();
        let keeper = Keeper::of_tests(WarmRules::of_tests(), POLL);
        Self {
            instance: Instance::new(Zygote { sandbox, mailbox }, Arc::new(frozen), true, None),
            sandbox: stand_in,
            control,
            warm_instances: keeper.warm_instances(None),
        }
    }

    fn pending(&self) -> PendingInstance {
        let mut pending = self.warm_instances.announce(1).unwrap();
        pending.list_as_hot();
        pending
    }

    fn says<M: Message>(&self, message: &M) {
        send(&self.sandbox.socket, message, &[], SendFlags::empty()).unwrap();
    }

    fn fails(&self, failure: Failure) {
        self.says(&Failed {
            failure,
            detail: 0,
            instruction: 0,
        });
    }
}

fn rang() -> Rang {
    Rang {
        doorbell: Doorbell::Done as u64,
        fork_nanoseconds: 0,
        run_nanoseconds: 0,
        exits: 0,
        page_faults: 0,
    }
}

fn warm() -> WarmReport {
    WarmReport {
        filled: 1,
        outside: 0,
        counted: Answer::No,
        unused: 0,
        exits: 0,
        page_faults: 0,
        nanoseconds: 0,
        polled_nanoseconds: 0,
        is_offered: Answer::No,
    }
}

/// However fast a sandbox reports that its guest stands still, the report counts once.
#[tokio::test]
async fn a_sandbox_that_sends_endless_messages_is_ended() {
    let mut field = Field::new();
    let pending = field.pending();
    for is_still in [false, true] {
        let socket = field.sandbox.socket.try_clone().unwrap();
        let talks = std::thread::spawn(move || {
            // Until the socket is full of messages that are not read any more.
            while send(&socket, &rang(), &[], SendFlags::DONTWAIT).is_ok() {}
        });
        let mut reset_wait = reset_wait(is_still);
        let reset = reset_wait.reset(order(&field.instance), &mut field.instance, &pending);
        let reset = tokio::time::timeout(Duration::from_secs(30), reset).await;
        assert!(
            matches!(
                reset,
                Ok(Err(ResetError::Failed(PlatformError::Protocol(_))))
            ),
            "{reset:?}"
        );
        talks.join().unwrap();
    }
}

#[tokio::test]
async fn a_guest_may_stop_before_the_reset_order() {
    let mut field = Field::new();
    let pending = field.pending();
    field.says(&rang());
    field.says(&warm());
    let mut reset_wait = reset_wait(false);
    let back = reset_wait
        .reset(order(&field.instance), &mut field.instance, &pending)
        .await;
    let Ok(ResetOutcome::Warm { polled, .. }) = back else {
        panic!("{back:?}");
    };
    assert_eq!(polled, Duration::ZERO);
    assert!(!reset_wait.was_late());
}

#[tokio::test]
async fn only_failures_of_an_offered_guest_count_as_straying() {
    for (failure, is_offered, strayed) in [
        (Failure::Strayed, true, true),
        (Failure::Shutdown, true, true),
        (Failure::Exit, true, true),
        (Failure::Broken, true, true),
        (Failure::Run, true, false),
        (Failure::Reset, true, false),
        (Failure::Message, true, false),
        (Failure::Shutdown, false, false),
        (Failure::Exit, false, false),
        (Failure::Broken, false, false),
    ] {
        let mut field = Field::new();
        let pending = field.pending();
        if is_offered {
            field.control.offer(now());
        }
        field.fails(failure);
        let mut reset_wait = reset_wait(true);
        let reset = reset_wait.reset(order(&field.instance), &mut field.instance, &pending);
        let error = reset.await.unwrap_err();
        let has_strayed = matches!(error, ResetError::Strayed(_));
        assert_eq!(has_strayed, strayed, "{failure:?}, {is_offered}: {error}");
    }
    // A sandbox that is killed from outside sends nothing.
    let mut field = Field::new();
    let pending = field.pending();
    field.control.offer(now());
    let Field {
        instance, sandbox, ..
    } = &mut field;
    drop(std::mem::replace(sandbox, Sandbox::fake().1));
    let reset = reset_wait(true)
        .reset(order(instance), instance, &pending)
        .await;
    assert!(matches!(reset, Err(ResetError::Failed(_))), "{reset:?}");
}

/// The actions of a guest before its offer belong to its last request.
#[tokio::test]
async fn only_time_since_the_offer_counts_as_polling() {
    let looked = |offered_at| async move {
        let mut field = Field::new();
        let pending = field.pending();
        let mut taken = field.warm_instances.wait_for_hot().unwrap();
        field.control.report(&warm());
        assert_eq!(field.control.offer(offered_at), Offer::Made);
        let mut reset_wait = reset_wait(true);
        let reset = reset_wait.reset(order(&field.instance), &mut field.instance, &pending);
        let back = reset.await.unwrap();
        let ResetOutcome::Claimed(claimed) = back else {
            panic!("{back:?}");
        };
        assert_eq!(claimed.effort.reset.unwrap().filled, 1);
        assert!(field.instance.is_claimed);
        pending.hand_over(claimed.request, field.instance);
        assert!(taken.try_recv().is_ok());
        claimed.polled
    };
    // By the sandbox's word, the guest has not begun to poll yet.
    assert_eq!(looked(u64::MAX).await, Duration::ZERO);
    // By the sandbox's word, the guest has always polled. But the order is recent, and limits the
    // time.
    let looked = looked(0).await;
    assert!(!looked.is_zero() && looked <= POLL, "{looked:?}");
}

/// A reset at the lowest priority could take for ever. A guest that polls must not disturb others.
#[tokio::test(start_paused = true)]
async fn a_slow_reset_restores_the_priority_and_cancels_polling() {
    let mut field = Field::new();
    let pending = field.pending();
    let Field {
        instance,
        sandbox,
        control,
        ..
    } = &mut field;
    let mut reset_wait = reset_wait(true);
    let begun = Instant::now();
    let works = async {
        tokio::time::sleep(BACKGROUND_MAX - Duration::from_millis(1)).await;
        assert!(sandbox.is_in_background_group());
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(!sandbox.is_in_background_group());
        assert_eq!(control.offer(now()), Offer::Refused);
        send(&sandbox.socket, &warm(), &[], SendFlags::empty()).unwrap();
    };
    let (back, ()) = tokio::join!(reset_wait.reset(order(instance), instance, &pending), works);
    assert!(matches!(back, Ok(ResetOutcome::Warm { .. })), "{back:?}");
    assert!(reset_wait.was_late() && begun.elapsed() < STOP_TIMEOUT);
}

/// A sandbox sends nothing about a refused offer. The next time, the node does not wait for that.
#[tokio::test]
async fn an_instance_that_was_refused_is_claimed_the_next_time() {
    let mut field = Field::new();
    let pending = field.pending();
    let wanted = field.warm_instances.wait_for_hot().unwrap();
    let Field {
        instance,
        sandbox,
        control,
        ..
    } = &mut field;
    let mut first = reset_wait(true);
    let works = async {
        while sandbox.is_in_background_group() {
            tokio::task::yield_now().await;
        }
        assert_eq!(control.offer(now()), Offer::Refused);
        send(&sandbox.socket, &warm(), &[], SendFlags::empty()).unwrap();
    };
    let (back, ()) = tokio::join!(first.reset(order(instance), instance, &pending), works);
    assert!(matches!(back, Ok(ResetOutcome::Warm { .. })), "{back:?}");
    drop((pending, wanted));
    let pending = field.pending();
    let _wanted = field.warm_instances.wait_for_hot().unwrap();
    field.control.report(&warm());
    assert_eq!(field.control.offer(now()), Offer::Made);
    let mut second = reset_wait(true);
    let reset = second.reset(order(&field.instance), &mut field.instance, &pending);
    let back = reset.await;
    assert!(matches!(back, Ok(ResetOutcome::Claimed(..))), "{back:?}");
}

#[tokio::test(start_paused = true)]
async fn a_polling_guest_stays_in_the_background_within_its_time() {
    let mut field = Field::new();
    let pending = field.pending();
    let Field {
        instance,
        sandbox,
        control,
        ..
    } = &mut field;
    let mut reset_wait = reset_wait(true);
    let works = async {
        // By the sandbox's word, the guest has all of its time left.
        assert_eq!(control.offer(u64::MAX), Offer::Made);
        tokio::time::sleep(BACKGROUND_MAX + POLL / 2).await;
        assert!(sandbox.is_in_background_group());
        // Moves the offer back, as if the polling time and the time to stop polling had passed.
        let passed = u64::try_from((POLL + BACKGROUND_MAX).as_nanos()).unwrap();
        control.offer(now() - passed);
        tokio::time::sleep(2 * POLL).await;
        assert!(!sandbox.is_in_background_group());
        assert!(control.withdraw_offer());
        control.left();
        send(&sandbox.socket, &warm(), &[], SendFlags::empty()).unwrap();
    };
    let (back, ()) = tokio::join!(reset_wait.reset(order(instance), instance, &pending), works);
    assert!(matches!(back, Ok(ResetOutcome::Warm { .. })), "{back:?}");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_polled_in_vain_is_idle_since_it_began_to_poll() {
    let field = Field::new();
    let order = order(&field.instance);
    tokio::time::advance(3 * POLL).await;
    assert_eq!(order.idle_since(Duration::ZERO), Instant::now());
    // The reset took as long before the poll as after it.
    assert_eq!(order.idle_since(POLL), order.since + POLL);
}

/// A request that meets an instance that has just stopped polling notes that the poll was too
/// short, or in vain.
#[tokio::test]
async fn a_request_after_a_vain_poll_counts_as_not_found() {
    // A second is far longer than a busy machine delays this test between two steps.
    for (rested, expected) in [(Duration::ZERO, 40), (Duration::from_secs(1), 20)] {
        let field = Field::new();
        let (warm_instances, pending) = (field.warm_instances.clone(), field.pending());
        let arrivals = warm_instances.arrivals();
        arrivals.note(Duration::from_micros(1));
        let bound = || warm_instances.polling().bound(arrivals);
        assert_eq!(bound(), Some(Duration::from_micros(20)));
        let mut waits = warm_instances.wait().unwrap();
        let since = std::time::Instant::now() + Duration::from_millis(1);
        pending.keep_warm(field.instance, 0, since.checked_sub(rested).unwrap());
        waits.try_recv().unwrap();
        arrivals.note(Duration::from_micros(11));
        let bound = bound().map_or(0, |bound| bound.as_micros());
        assert_eq!(bound, expected, "{rested:?}");
    }
}
