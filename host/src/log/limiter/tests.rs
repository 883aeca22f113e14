use tracing::{
    Subscriber,
    span::{Attributes, Id, Record},
    subscriber::with_default,
};

use super::*;
use std::sync::LazyLock;

/// A subscriber that records what a limiter admits.
struct Log {
    limiter: Arc<EventLimiter>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event_enabled(&self, event: &Event<'_>) -> bool {
        self.limiter.admits(event)
    }
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields {
            wants_message: true,
            ..Fields::default()
        };
        event.record(&mut fields);
        let function = fields.function.unwrap_or_default();
        let message = fields.message.unwrap_or_default();
        let mut lines = self.lines.lock().unwrap();
        lines.push(format!("{function}: {message}"));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Returns a fixed time.
fn start() -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    *START
}

fn logged(work: impl FnOnce(&EventLimiter)) -> Vec<String> {
    let (limiter, lines) = (
        EventLimiter::with_clock(start),
        Arc::<Mutex<Vec<String>>>::default(),
    );
    let log = Log {
        limiter: limiter.clone(),
        lines: lines.clone(),
    };
    with_default(log, || work(&limiter));
    std::mem::take(&mut *lines.lock().unwrap())
}

fn fail(function: &str, cause: &str) {
    tracing::warn!(function, cause, "request failed: {cause}");
}

#[test]
fn repeated_failures_are_summarised_and_other_functions_still_logged() {
    let before = suppressed();
    let lines = logged(|limiter| {
        for _ in 0..1000 {
            fail("noisy", "trap");
        }
        fail("noisy", "memory");
        fail("quiet", "trap");
        limiter.report_rest();
        fail("noisy", "trap");
    });
    let each = EACH as usize;
    assert_eq!(lines.len(), each + 4, "{lines:?}");
    assert!(
        lines[..each]
            .iter()
            .all(|line| line == "noisy: request failed: trap")
    );
    assert_eq!(lines[each], "noisy: request failed: memory");
    assert_eq!(lines[each + 1], "quiet: request failed: trap");
    let count = 1000 - each;
    let summary = format!("noisy: {count} more suppressed: request failed: trap");
    assert_eq!(lines[each + 2], summary);
    assert_eq!(lines[each + 3], "noisy: request failed: trap");
    // Other tests may suppress some events, too.
    assert!(suppressed() - before >= count as u64);
}

#[test]
fn events_of_many_functions_together_are_limited() {
    let lines = logged(|limiter| {
        for function in 0..2 * CAUSES {
            fail(&function.to_string(), "trap");
        }
        assert!(limiter.causes().len() <= CAUSES + 1);
    });
    assert_eq!(lines.len(), PLACE as usize);
}

#[test]
fn debug_events_and_function_lines_are_never_suppressed() {
    let lines = logged(|_| {
        for _ in 0..2 * PLACE {
            tracing::debug!("all");
            tracing::info!(target: PROGRESS, "all");
        }
    });
    assert_eq!(lines.len(), 4 * PLACE as usize);
}

#[test]
fn suppressed_events_are_reported_once_when_their_period_ends() {
    struct TestPlace;
    impl tracing::callsite::Callsite for TestPlace {
        fn set_interest(&self, _: tracing::subscriber::Interest) {}
        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("nobody asks")
        }
    }
    static PLACE_OF_TEST: TestPlace = TestPlace;
    let cause = || Cause {
        place: Identifier(&PLACE_OF_TEST),
        function: Some("f".into()),
        cause: None,
    };
    let limiter = EventLimiter::with_clock(start);
    let start = start();
    let take = |now| limiter.take(cause(), now, || "m".into());
    assert!((0..EACH).all(|_| take(start)));
    assert!(!take(start) && !take(start));
    let early = start + PERIOD - Duration::from_nanos(1);
    assert_eq!(limiter.take_summaries(Some(early)), []);
    // A flood without pauses is summarised all the same.
    let over = start + PERIOD;
    assert!(take(over));
    let summary = Summary {
        function: Some("f".into()),
        cause: None,
        count: 2,
        example: "m".into(),
    };
    assert_eq!(limiter.take_summaries(Some(over)), [summary]);
    assert_eq!(limiter.take_summaries(Some(over)), []);
    assert!(!limiter.causes().is_empty());
    assert_eq!(limiter.take_summaries(Some(over + PERIOD)), []);
    assert!(limiter.causes().is_empty());
}
