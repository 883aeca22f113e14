//! Limits how often the node's own log reports one cause.
//!
//! A client or a function that fails a thousand times a second must not fill the disk of the log,
//! nor hide other events. A cause is a place in the code, a function and the event's field `cause`.
//! Some events of each cause pass in a period; the others are counted, and a summary follows.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use faasw_common::text::Line;
use tokio::sync::Notify;
use tracing::{
    Event, Level, Metadata,
    callsite::Identifier,
    field::{Field, Visit},
};

/// Time for which events are counted together. A summary follows one to two periods after the first
/// suppressed event.
const PERIOD: Duration = Duration::from_secs(10);

/// Events of one cause that pass in a period: enough to see what fails, and how requests differ.
const EACH: u32 = 20;

/// Events of one place in the code that pass in a period, of all functions: enough for ten noisy
/// functions.
const PLACE: u32 = 200;

/// Maximum number of causes that are counted separately. Beyond it, all causes of a place count
/// together.
const CAUSES: usize = 4096;

/// Bytes of an event's message that its summary quotes.
const QUOTED: usize = 160;

/// The target of summaries, which are never suppressed.
const SUMMARY: &str = "faasw::suppressed";

/// The target of progress and functions' own lines, which have a limit of their own.
const PROGRESS: &str = "faasw::progress";

/// Number of events that were suppressed in this process. It is global, as the subscriber is.
static SUPPRESSED: AtomicU64 = AtomicU64::new(0);

/// Decides which events a subscriber of `tracing` accepts, so that no client and no function floods
/// the node's own log.
///
/// Events of the levels `DEBUG` and `TRACE` are never suppressed, because an operator has requested
/// them. A layer of the subscriber calls [`EventLimiter::admits`] from its `event_enabled`;
/// [`EventLimiter::run`] reports what was suppressed.
#[derive(Debug)]
pub struct EventLimiter {
    /// The clock, which tests replace.
    now: fn() -> Instant,
    causes: Mutex<HashMap<Cause, Count>>,
    suppressed: Notify,
}

/// The key that events are counted by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cause {
    place: Identifier,
    function: Option<String>,
    cause: Option<String>,
}

/// Events of one cause in its current period.
#[derive(Debug)]
struct Count {
    since: Instant,
    passed: u32,
    /// Events that were suppressed since the last summary, and the time of the first of them.
    suppressed: u64,
    suppressed_since: Instant,
    /// The message of the first suppressed event.
    example: String,
}

/// A line of the log about the suppressed events of a cause.
#[derive(Debug, PartialEq, Eq)]
struct Summary {
    function: Option<String>,
    cause: Option<String>,
    count: u64,
    example: String,
}

/// Extracts fields from an event.
#[derive(Default)]
struct Fields {
    function: Option<String>,
    cause: Option<String>,
    /// Formatted only if it is wanted: it may be long.
    message: Option<String>,
    wants_message: bool,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "function" => self.function = Some(value.to_owned()),
            "cause" => self.cause = Some(value.to_owned()),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "function" => self.function = Some(format!("{value:?}")),
            "cause" => self.cause = Some(format!("{value:?}")),
            "message" if self.wants_message => self.message = Some(format!("{value:?}")),
            _ => {}
        }
    }
}

/// Whether events like this are never suppressed.
fn is_exempt(metadata: &Metadata<'_>) -> bool {
    *metadata.level() > Level::INFO || [SUMMARY, PROGRESS].contains(&metadata.target())
}

impl EventLimiter {
    /// Returns a limiter without counts.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::with_clock(Instant::now)
    }

    fn with_clock(now: fn() -> Instant) -> Arc<Self> {
        Arc::new(Self {
            now,
            causes: Mutex::default(),
            suppressed: Notify::new(),
        })
    }

    /// Returns whether the log accepts an event.
    pub fn admits(&self, event: &Event<'_>) -> bool {
        let metadata = event.metadata();
        if is_exempt(metadata) {
            return true;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let cause = Cause {
            place: metadata.callsite(),
            function: fields.function,
            cause: fields.cause,
        };
        let message = || {
            let mut fields = Fields {
                wants_message: true,
                ..Fields::default()
            };
            event.record(&mut fields);
            let mut message = fields.message.unwrap_or_default();
            message.truncate(message.floor_char_boundary(QUOTED));
            message
        };
        let is_admitted = self.take(cause, (self.now)(), message);
        if !is_admitted {
            SUPPRESSED.fetch_add(1, Ordering::Relaxed);
            self.suppressed.notify_one();
        }
        is_admitted
    }

    /// Counts an event. Returns whether it passes.
    fn take(&self, cause: Cause, now: Instant, message: impl Fn() -> String) -> bool {
        let mut causes = self.causes();
        let whole = Cause {
            function: None,
            cause: None,
            ..cause.clone()
        };
        let is_whole = cause == whole;
        let is_full = causes.len() >= CAUSES && !causes.contains_key(&cause);
        if !is_whole && !is_full {
            let count = causes.entry(cause).or_insert_with(|| Count::new(now));
            if !count.take(now, EACH, &message) {
                return false;
            }
        }
        // A place gets its entry even beyond the bound, because there are few places.
        let most = if is_whole { EACH } else { PLACE };
        let count = causes.entry(whole).or_insert_with(|| Count::new(now));
        count.take(now, most, &message)
    }

    /// Returns the summaries that are due at `now`, or all of them, and removes causes without
    /// recent events.
    fn take_summaries(&self, now: Option<Instant>) -> Vec<Summary> {
        let is_past =
            |since: Instant| now.is_none_or(|now| now.saturating_duration_since(since) >= PERIOD);
        let mut summaries = Vec::new();
        self.causes().retain(|cause, count| {
            if count.suppressed > 0 && is_past(count.suppressed_since) {
                summaries.push(Summary {
                    function: cause.function.clone(),
                    cause: cause.cause.clone(),
                    count: std::mem::take(&mut count.suppressed),
                    example: std::mem::take(&mut count.example),
                });
            }
            count.suppressed > 0 || !is_past(count.since)
        });
        summaries
    }

    /// Reports suppressed events whenever a period is over, for as long as the future is polled.
    pub async fn run(self: Arc<Self>) {
        loop {
            self.suppressed.notified().await;
            tokio::time::sleep(PERIOD).await;
            report(self.take_summaries(Some((self.now)())));
            // Events that were suppressed later are reported later.
            if self.causes().values().any(|count| count.suppressed > 0) {
                self.suppressed.notify_one();
            }
        }
    }

    /// Reports everything that was suppressed and not reported yet, when a program ends.
    pub fn report_rest(&self) {
        report(self.take_summaries(None));
    }

    fn causes(&self) -> MutexGuard<'_, HashMap<Cause, Count>> {
        // The map is consistent between any two statements.
        self.causes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn report(summaries: Vec<Summary>) {
    for Summary {
        function,
        cause,
        count,
        example,
    } in summaries
    {
        tracing::warn!(
            target: SUMMARY,
            function,
            cause,
            count,
            "{count} more suppressed: {}",
            Line(example)
        );
    }
}

/// Returns the number of events that were suppressed in this process.
pub(crate) fn suppressed() -> u64 {
    SUPPRESSED.load(Ordering::Relaxed)
}

impl Count {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            passed: 0,
            suppressed: 0,
            suppressed_since: now,
            example: String::new(),
        }
    }

    fn take(&mut self, now: Instant, most: u32, message: impl Fn() -> String) -> bool {
        if now.saturating_duration_since(self.since) >= PERIOD {
            self.since = now;
            self.passed = 0;
        }
        if self.passed < most {
            self.passed += 1;
            return true;
        }
        if self.suppressed == 0 {
            self.suppressed_since = now;
            self.example = message();
        }
        self.suppressed += 1;
        false
    }
}

#[cfg(test)]
mod tests;
