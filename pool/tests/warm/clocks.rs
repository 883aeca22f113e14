//! Time in an instance that was warm.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use faasw_pool::{FreezePolicy, Served};

use crate::support::{Bench, call, slowness, spec};
use crate::{PROBE, probe};

/// How long a seed and its warm instances rest: long enough to reveal a clock that stood still.
const REST: Duration = Duration::from_millis(1500);
/// The largest error that a guest's clock may have.
const OFF: Duration = Duration::from_millis(200);

struct ClockReadings {
    wall: Duration,
    monotonic: Duration,
}

fn readings(text: &[u8]) -> ClockReadings {
    let text = std::str::from_utf8(text).unwrap();
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().to_owned()
    };
    let wall = of("wall ");
    let (seconds, nanoseconds) = wall.split_once('.').unwrap();
    ClockReadings {
        wall: Duration::new(seconds.parse().unwrap(), nanoseconds.parse().unwrap()),
        monotonic: Duration::from_nanos(of("monotonic ").parse().unwrap()),
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

pub async fn clocks_are_right_after_resting(bench: &Bench) {
    let compiled = bench.compile(PROBE).await;
    let freeze = spec(FreezePolicy::Auto);
    let made = bench.pool.make_seed(&freeze, &compiled).await.unwrap();
    let (seed, report) = (made.version, made.report);
    let mut first: Option<(Duration, Duration)> = None;
    let mut warm = 0;
    for number in 1..=50 {
        // First the seed rests, and later its warm instance.
        if [1, 3, 50].contains(&number) {
            tokio::time::sleep(REST).await;
        }
        let (before, started) = (now(), Instant::now());
        let (text, timing, _) = bench.through(&seed, call("/clock")).await;
        let (after, took) = (now(), started.elapsed());
        // The next request is to find the instance warm.
        bench.settles("it is over", |stats| stats.busy == 0).await;
        warm += u32::from(timing.served == Served::Warm);
        let ClockReadings { wall, monotonic } = readings(&text);
        assert!(
            before.saturating_sub(OFF) <= wall && wall <= after + OFF,
            "request {number}: {wall:?} between {before:?} and {after:?}"
        );
        // The seed's clock began when its guest booted, and each request continues from the moment
        // of the freeze. So the clock advances by no more than the request takes.
        assert!(
            monotonic >= report.instantiation,
            "{monotonic:?} {report:?}"
        );
        let (first, first_took) = *first.get_or_insert((monotonic, took));
        assert!(
            first <= monotonic + first_took && monotonic <= first + took,
            "request {number}: {monotonic:?} after {took:?}, the first {first:?} after \
             {first_took:?}"
        );
    }
    assert!(warm >= 45, "{warm}");
}

/// Seconds that the clock of [`injected`] is ahead of the host's.
static AHEAD: AtomicU64 = AtomicU64::new(0);
const HOUR: u64 = 3600;

/// Returns a time of day that a test can advance without waiting.
pub fn injected() -> SystemTime {
    SystemTime::now() + Duration::from_secs(AHEAD.load(Ordering::Relaxed))
}

fn injected_now() -> Duration {
    injected().duration_since(UNIX_EPOCH).unwrap()
}

pub async fn clocks_and_timers_are_right_after_an_hour_at_rest(bench: &Bench) {
    /// The short timer of the fixture.
    const MOMENT: u64 = 20_000_000;
    // Far longer than a busy machine takes. A wrong clock would be ahead by an hour.
    let limit = Duration::from_secs(600);
    let compiled = bench.compile("tests/fixtures/wat/timers.wasm").await;
    let making = injected_now();
    let freeze = spec(FreezePolicy::Auto);
    let made = bench.pool.make_seed(&freeze, &compiled).await;
    let seed = made.unwrap().version;
    let made = injected_now();
    let mut warm = 0;
    for _ in 0..6 {
        // First the seed rests, later its warm instance.
        AHEAD.fetch_add(HOUR, Ordering::Relaxed);
        let before = injected_now();
        let (body, timing, _) = bench.through(&seed, call("/")).await;
        let after = injected_now();
        // The next request is to find the instance warm.
        bench.settles("it is over", |stats| stats.busy == 0).await;
        warm += u32::from(timing.served == Served::Warm);
        let numbers: Vec<u64> = body
            .chunks_exact(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
            .collect();
        let [armed, armed_wall, now, now_wall, hour_is_ready, blocked] = numbers[..] else {
            panic!("{body:?}")
        };
        assert!(
            making.as_secs() <= armed_wall && armed_wall <= made.as_secs(),
            "frozen: {armed_wall} between {making:?} and {made:?}"
        );
        // Truncation to whole seconds may yield the second before.
        assert!(
            (before.saturating_sub(OFF).as_secs()..=(after + OFF).as_secs()).contains(&now_wall),
            "wall: {now_wall} between {before:?} and {after:?}"
        );
        let since_armed = Duration::from_nanos(now.checked_sub(armed).unwrap());
        assert!(since_armed < limit, "monotonic: {since_armed:?}");
        assert_eq!(hour_is_ready, 0, "a timer fired while its seed rested");
        let blocked = blocked.checked_sub(armed).unwrap();
        assert!(blocked >= MOMENT, "a timer fired early: {blocked}");
        assert!(Duration::from_nanos(blocked) < limit, "{blocked}");
    }
    assert!(warm >= 3, "{warm}");
}

pub async fn timers_are_right_in_reset_instances(bench: &Bench) {
    let seed = probe(bench).await;
    bench.warm_one(&seed, "/hello").await;
    let rounds = (20 / slowness()).max(3);
    let is_over = || bench.settles("it is over", |stats| stats.busy == 0);
    let mut least_late = Duration::MAX;
    for round in 0..rounds {
        let wanted = 15 + 10 * (round % 3);
        let started = Instant::now();
        let (text, timing, _) = bench
            .through(&seed, call(&format!("/sleep/{wanted}")))
            .await;
        let took = started.elapsed();
        is_over().await;
        assert_eq!(timing.served, Served::Warm);
        let slept: u32 = std::str::from_utf8(&text).unwrap().trim().parse().unwrap();
        let slept = Duration::from_millis(slept.into());
        let wanted = Duration::from_millis(wanted.into());
        assert!(wanted <= slept && slept <= took + OFF, "{slept:?} {took:?}");
        assert!(took >= wanted, "{took:?}");
        least_late = least_late.min(took - wanted);

        let (text, timing, _) = bench.through(&seed, call("/poll")).await;
        is_over().await;
        assert_eq!(timing.served, Served::Warm);
        // If the machine hangs for long enough, both are ready.
        assert!(text == b"ready 1\n" || text == b"ready 0 1\n", "{text:?}");
    }
    // A busy machine delays some of the timers. A wrong clock delays all.
    let limit = Duration::from_secs(1) * slowness();
    assert!(least_late < limit, "{least_late:?}");
}
