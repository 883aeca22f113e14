//! The deadlines of an invocation, for all of its channels: they determine when a party takes too
//! long.

use std::time::Duration;

use tokio::time::Instant;

use super::limits::InvocationLimits;

/// How long the node waits for the end alone, before it asks the guest to ring for what it flushes.
/// Most functions are done by then, with one exit.
const LISTEN_AFTER: Duration = Duration::from_millis(5);

/// How long a request keeps its run permit while others wait for one, and how long its guest may
/// run at the lowest priority. Requests that take longer share the processors with others.
const RUN_PERMIT_TIME: Duration = Duration::from_millis(1);

/// How long the end may take after the response has begun, if the response is still to leave as one
/// message with a length. The delay of a longer response's first chunk is too short to be noticed.
const GRACE: Duration = Duration::from_millis(5);

/// How long the end of a body is held back for the handler to return, so that the timing of the
/// invocation can follow it.
const RETURN_WAIT: Duration = Duration::from_millis(5);

/// The times of the last events of an invocation, and how long each phase may take.
pub struct Deadlines {
    /// How long the invocation may take.
    pub limits: InvocationLimits,
    activated: Instant,
    /// When the guest last received a part of the request.
    pub fed: Instant,
    /// When the client last sent or took something.
    pub client: Instant,
    /// When the guest last sent something.
    pub guest: Instant,
    /// When the CPU time is checked next: this guest alone cannot use it up before.
    pub cpu: Instant,
    /// When the head of the response was first there.
    pub head: Option<Instant>,
    /// The guest rings for what it flushes, as the node has requested.
    pub is_listening: bool,
    /// All other processes have priority over the guest, whose instance was to be hot.
    pub is_background: bool,
    /// Since when the guest has waited for answers to outbound calls and nothing else, if it does.
    upstream: Option<Instant>,
    /// How long it has waited so before.
    upstream_before: Duration,
    /// How long the clock of [`Limit::FirstByte`] stood still for that.
    first_byte: PausedTime,
    /// How long the clock of [`Limit::IdleGuest`] stood still for that.
    idle_guest: PausedTime,
}

/// How long a clock stood still since it was last set.
#[derive(Clone, Copy, Default)]
struct PausedTime {
    /// When the clock was set.
    set: Option<Instant>,
    time: Duration,
}

impl PausedTime {
    /// Notes that the clock that was last `set` at this time stood still from `since` until `now`.
    fn add(&mut self, set: Instant, since: Instant, now: Instant) {
        *self = Self {
            set: Some(set),
            time: self.of(set) + now.saturating_duration_since(since.max(set)),
        };
    }

    /// Returns how long the clock that was last `set` at this time has stood still.
    fn of(&self, set: Instant) -> Duration {
        if self.set == Some(set) {
            self.time
        } else {
            Duration::ZERO
        }
    }
}

/// The limit that a deadline belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The invocation has had its run permit for long enough.
    RunPermit,
    /// The node has waited for the end alone for long enough.
    StartListening,
    /// The guest has run at the lowest priority for long enough.
    Background,
    /// The response should have begun.
    FirstByte,
    /// The response was held back for its end long enough.
    Grace,
    /// The client should have sent or taken something.
    IdleClient,
    /// The guest should have sent something.
    IdleGuest,
    /// The handler had its time to return.
    HandlerReturn,
    /// The CPU time may be used up.
    Cpu,
    /// Something should have moved on an outbound call.
    IdleCall,
    /// The guest may have sent more outbound calls than one look has begun.
    LookAgain,
    /// The function does not wait for outbound calls any more, or has used its time for that.
    Upstream,
    /// The invocation should be over.
    Total,
}

/// The time of an invocation's next deadline, and the limit that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// When the limit expires.
    pub at: Instant,
    /// The limit.
    pub limit: Limit,
}

impl Deadline {
    /// Returns the earlier of two deadlines; this one if they are equal.
    pub fn or_earlier(self, other: Self) -> Self {
        if other.at < self.at { other } else { self }
    }
}

/// The party that must act next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The head is not there.
    Head,
    /// The head is there, and the end may be near.
    Grace,
    /// The client should take what waits for it.
    Client,
    /// The guest should send more.
    Guest,
    /// Outbound calls should be answered: the guest can do nothing else meanwhile.
    Upstream,
    /// The body is complete; the handler should return.
    Return,
    /// The end was passed on; the handler should return some time.
    AfterResponse,
}

impl Deadlines {
    /// Returns the deadlines of an invocation in which everything happens now.
    pub fn new(limits: InvocationLimits) -> Self {
        let now = Instant::now();
        Self {
            activated: now,
            fed: now,
            client: now,
            guest: now,
            cpu: now + limits.cpu.min(limits.cpu_check),
            head: None,
            is_listening: false,
            is_background: false,
            upstream: None,
            upstream_before: Duration::ZERO,
            first_byte: PausedTime::default(),
            idle_guest: PausedTime::default(),
            limits,
        }
    }

    /// Notes that the guest runs from now on.
    pub fn begin(&mut self) {
        *self = Self::new(self.limits);
    }

    /// Notes whether the guest waits for answers to outbound calls and nothing else. Returns
    /// whether [`Limit::FirstByte`] and [`Limit::IdleGuest`] stand still for that: they do so for
    /// at most [`InvocationLimits::upstream`] in total.
    pub fn note_upstream(&mut self, waits: bool) -> bool {
        let now = Instant::now();
        if let Some(since) = self.upstream.take() {
            let until = now.min(since + self.upstream_left());
            self.first_byte.add(self.fed, since, until);
            self.idle_guest
                .add(self.guest.max(self.client), since, until);
            self.upstream_before += now - since;
        }
        self.upstream = waits.then_some(now);
        waits && !self.upstream_left().is_zero()
    }

    /// Returns how long the guest may still wait for outbound calls while its limits stand still.
    fn upstream_left(&self) -> Duration {
        self.limits.upstream.saturating_sub(self.upstream_before)
    }

    /// Returns when a guest that waits for outbound calls has waited so for as long, in total, as a
    /// response may take to begin. From then on it counts as idle, like one that waits for its
    /// client. Returns `None` if it does not wait.
    pub fn idle_upstream(&self) -> Option<Instant> {
        let within = self.limits.first_byte;
        self.upstream
            .map(|since| since + within.saturating_sub(self.upstream_before))
    }

    /// Returns the time since the guest began to run.
    pub fn age(&self) -> Duration {
        self.activated.elapsed()
    }

    /// Returns the next deadline. `awaits_request` means that the guest waits for a part of the
    /// request. `run_permit` is set while the invocation has a run permit, and says whether other
    /// requests wait for one. If none does, the permit is returned at the time of
    /// [`Limit::StartListening`]: an earlier timer of its own would wake a thread for nothing.
    pub fn deadline(
        &self,
        phase: Phase,
        awaits_request: bool,
        run_permit: Option<bool>,
    ) -> Deadline {
        let limits = &self.limits;
        let of_client = self.client.max(self.fed) + limits.idle_client;
        let guest = self.guest.max(self.client);
        let of_guest = guest + self.idle_guest.of(guest) + limits.idle_guest;
        let of_head = self.fed + self.first_byte.of(self.fed) + limits.first_byte;
        let (at, limit) = match phase {
            Phase::Head | Phase::Guest if awaits_request => (of_client, Limit::IdleClient),
            Phase::Head => (of_head, Limit::FirstByte),
            Phase::Grace => (self.head.unwrap_or(self.guest) + GRACE, Limit::Grace),
            Phase::Client => (of_client, Limit::IdleClient),
            Phase::Guest | Phase::AfterResponse => (of_guest, Limit::IdleGuest),
            Phase::Return => (self.guest + RETURN_WAIT, Limit::HandlerReturn),
            Phase::Upstream => {
                let since = self.upstream.unwrap_or(self.guest);
                (since + self.upstream_left(), Limit::Upstream)
            }
        };
        let mut earliest = Deadline { at, limit };
        let mut consider = |at, limit| earliest = earliest.or_earlier(Deadline { at, limit });
        if let Some(is_wanted) = run_permit {
            let time = if is_wanted {
                RUN_PERMIT_TIME
            } else {
                LISTEN_AFTER
            };
            consider(self.activated + time, Limit::RunPermit);
        }
        if self.is_background {
            consider(self.activated + RUN_PERMIT_TIME, Limit::Background);
        }
        if !self.is_listening {
            consider(self.activated + LISTEN_AFTER, Limit::StartListening);
        }
        consider(self.cpu, Limit::Cpu);
        if let Some(total) = limits.total {
            consider(self.activated + total, Limit::Total);
        }
        earliest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn after(deadlines: &Deadlines, phase: Phase, awaits_request: bool) -> (u64, Limit) {
        let Deadline { at, limit } = deadlines.deadline(phase, awaits_request, None);
        ((at - deadlines.activated).as_secs(), limit)
    }

    #[tokio::test]
    async fn each_phase_has_the_timeout_of_the_party_that_must_act() {
        let limits = InvocationLimits {
            cpu: Duration::from_secs(1000),
            ..InvocationLimits::default()
        };
        let mut deadlines = Deadlines::new(limits);
        deadlines.is_listening = true;
        let start = deadlines.activated;
        assert_eq!(
            after(&deadlines, Phase::Head, false),
            (10, Limit::FirstByte)
        );
        assert_eq!(
            after(&deadlines, Phase::Head, true),
            (30, Limit::IdleClient)
        );
        // Each part of the request gives the guest its whole time again.
        deadlines.fed = start + Duration::from_secs(25);
        assert_eq!(
            after(&deadlines, Phase::Head, false),
            (35, Limit::FirstByte)
        );
        assert_eq!(
            after(&deadlines, Phase::Guest, false),
            (60, Limit::IdleGuest)
        );
        deadlines.client = start + Duration::from_secs(40);
        assert_eq!(
            after(&deadlines, Phase::Client, false),
            (70, Limit::IdleClient)
        );
        // A client that takes its bytes slowly does not make the guest count as silent.
        assert_eq!(
            after(&deadlines, Phase::Guest, false),
            (100, Limit::IdleGuest)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn upstream_waits_pause_the_timeouts_of_the_guest() {
        let limits = InvocationLimits {
            cpu: Duration::from_secs(1000),
            total: Some(Duration::from_secs(500)),
            ..InvocationLimits::default()
        };
        let mut deadlines = Deadlines::new(limits);
        deadlines.is_listening = true;
        deadlines.note_upstream(true);
        assert_eq!(
            after(&deadlines, Phase::Upstream, false),
            (500, Limit::Total)
        );
        tokio::time::advance(Duration::from_secs(100)).await;
        // Noted as often as anything happens.
        deadlines.note_upstream(true);
        deadlines.note_upstream(false);
        assert_eq!(
            after(&deadlines, Phase::Head, false),
            (110, Limit::FirstByte)
        );
        assert_eq!(
            after(&deadlines, Phase::Guest, false),
            (160, Limit::IdleGuest)
        );
        // A part of the request that arrived meanwhile counts from its arrival.
        deadlines.note_upstream(true);
        tokio::time::advance(Duration::from_secs(50)).await;
        deadlines.fed = Instant::now();
        deadlines.note_upstream(false);
        assert_eq!(
            after(&deadlines, Phase::Head, false),
            (160, Limit::FirstByte)
        );
    }

    /// Waiting for outbound calls neither uses nor extends the time of the client.
    #[tokio::test(start_paused = true)]
    async fn upstream_waits_do_not_pause_the_timeout_of_the_client() {
        let mut deadlines = Deadlines::new(InvocationLimits::default());
        deadlines.is_listening = true;
        deadlines.cpu += Duration::from_secs(1000);
        deadlines.note_upstream(true);
        tokio::time::advance(Duration::from_secs(20)).await;
        deadlines.note_upstream(false);
        assert_eq!(
            after(&deadlines, Phase::Head, true),
            (30, Limit::IdleClient)
        );
        let of_client = after(&deadlines, Phase::Client, false);
        assert_eq!(of_client, (30, Limit::IdleClient));
        assert_eq!(deadlines.fed, deadlines.activated);
    }

    #[tokio::test(start_paused = true)]
    async fn upstream_waits_are_limited_in_total() {
        let limits = InvocationLimits {
            cpu: Duration::from_secs(1000),
            upstream: Duration::from_secs(100),
            ..InvocationLimits::default()
        };
        let mut deadlines = Deadlines::new(limits);
        deadlines.is_listening = true;
        assert_eq!(deadlines.idle_upstream(), None);
        // Whatever moves meanwhile, only the sum counts.
        for round in 0..10 {
            assert!(deadlines.note_upstream(true));
            assert_eq!(after(&deadlines, Phase::Upstream, false).1, Limit::Upstream);
            let idle_at = deadlines.idle_upstream().unwrap();
            assert_eq!(
                idle_at,
                deadlines.activated + Duration::from_secs(10).max(10 * round * SECOND)
            );
            tokio::time::advance(9 * SECOND).await;
            assert!(deadlines.note_upstream(true));
            tokio::time::advance(SECOND).await;
            deadlines.note_upstream(false);
        }
        assert!(!deadlines.note_upstream(true));
        // The guest is as idle as before, and its own time goes on.
        assert_eq!(deadlines.idle_upstream(), Some(Instant::now()));
        tokio::time::advance(5 * SECOND).await;
        assert!(!deadlines.note_upstream(true));
        assert_eq!(
            after(&deadlines, Phase::Head, false),
            (110, Limit::FirstByte)
        );
        let of_guest = after(&deadlines, Phase::Guest, false);
        assert_eq!(of_guest, (160, Limit::IdleGuest));
    }

    #[tokio::test]
    async fn the_earliest_limit_counts() {
        let limits = InvocationLimits {
            total: Some(Duration::from_secs(3)),
            ..InvocationLimits::default()
        };
        let mut deadlines = Deadlines::new(limits);
        deadlines.is_listening = true;
        assert_eq!(after(&deadlines, Phase::Head, false), (3, Limit::Total));
        deadlines.cpu = deadlines.activated + Duration::from_secs(2);
        assert_eq!(after(&deadlines, Phase::Head, false), (2, Limit::Cpu));
        deadlines.is_listening = false;
        let first = |run_permit| deadlines.deadline(Phase::Head, false, run_permit);
        assert_eq!(first(None).limit, Limit::StartListening);
        let limit = Limit::RunPermit;
        let at = deadlines.activated + RUN_PERMIT_TIME;
        assert_eq!(first(Some(true)), Deadline { at, limit });
        let at = deadlines.activated + LISTEN_AFTER;
        assert_eq!(first(Some(false)), Deadline { at, limit });
    }
}
