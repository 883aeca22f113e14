//! Runs one invocation in its instance.
//!
//! [`Invocation::start`] runs inside the caller: most functions are done within a few milliseconds,
//! and their response leaves as one message. If a function takes longer, a task of its own
//! continues ([`Invocation::into_streaming_reply`]) and hands the body out part by part. In both
//! cases `handle_next` waits for one event after the other. `start` starts the guest, `feed` gives
//! it what the client sends, `deadlines` determines when a phase takes too long, `delivery` hands
//! the response out, and `finished` handles the end. See `docs/decisions/0009-streaming.md`.

use std::future::pending;
use std::sync::Arc;

use faasw_abi::channel::{Channel, ChannelWords};
use faasw_abi::doorbell::Doorbell;
use faasw_abi::mailbox::GuestWords;
use faasw_abi::wire::ResponseHead;
use tokio::time::{Instant, sleep_until};
use zerocopy::FromZeros;

use super::admission::{ClientWait, ClientWaits, PermitHolder, RunPermit, permit_request};
use super::body::{IncomingBody, PART_BYTES};
use super::call::{PermitShare, RequestClient};
use super::calls::{self, Calls};
use super::deadlines::{Deadline, Deadlines, Limit, Phase};
use super::delivery::Delivery;
use super::finished::begin_stream;
use super::limits::InvocationLimits;
use super::outbound::Outbound;
use super::pump::Pump;
use super::recycler::InvocationPermits;
use super::relay::{Relay, RelaySlots};
use super::secrets::Secrets;
use super::store::{self, StoreChannel, StoreService};
use crate::error::{InvokeError, PlatformError};
use crate::instances::{ActiveRequest, Instance};
use crate::mailbox::{LogLines, RateLimit, fatal, meaningless};
use crate::sandboxes::{RingReport, SandboxEvent};
use crate::seeds::FunctionVersion;
use crate::sink::{Served, Timing};

/// The state of an invocation after its start.
pub enum StartOutcome {
    /// The function is done.
    Finished(RunOutcome),
    /// The head is there, and more of the body follows.
    Streaming(ResponseHead),
}

/// How the node learnt that the function is done.
pub enum RunOutcome {
    /// The guest has stopped.
    Stopped(RingReport),
    /// The guest has reported the end, and stops in a moment.
    Reported,
}

/// The parts that an invocation is made of.
pub struct InvocationParts {
    /// The instance, whose mailbox has the head of the request.
    pub instance: Instance,
    /// The function version of the instance.
    pub version: FunctionVersion,
    /// The log of the invocation.
    pub log: LogLines,
    /// The body of the request.
    pub incoming: IncomingBody,
    /// Where the time went before the invocation begins.
    pub timing: Timing,
    /// The permits that are held until the instance is free or gone.
    pub permits: InvocationPermits,
    /// The right to run before other requests, which is held until the invocation is done or has
    /// run for long enough.
    pub run_permit: Option<RunPermit>,
    /// How long the invocation may take.
    pub limits: InvocationLimits,
    /// The client that sends the request.
    pub client: RequestClient,
    /// The registry in which the invocation reports that it waits for its client.
    pub waits: Arc<ClientWaits>,
    /// The slots for moving the response.
    pub relay: Arc<RelaySlots>,
    /// Counts the invocation among the active requests.
    pub active_request: ActiveRequest,
    /// The service for the store channel, which is open only if this is set.
    pub store: Option<Arc<dyn StoreService>>,
    /// The contents of the secrets channel, which is open only if this is set.
    pub secrets: Option<Secrets>,
    /// Makes the function's outbound calls, whose channels are open only if this is set.
    pub outbound: Option<Arc<dyn Outbound>>,
    /// The guest does not ring at its end: the node polls for the end.
    pub polls_for_end: bool,
}

/// An instance at work, and both ends of its bodies.
pub struct Invocation {
    pub(super) instance: Instance,
    pub(super) version: FunctionVersion,
    pub(super) log: LogLines,
    pub(super) incoming: IncomingBody,
    /// The channel that request and response pass through.
    pub(super) pump: Pump,
    /// The channel of the function's store, if it has one.
    pub(super) store: Option<StoreChannel>,
    /// The secrets, kept for another guest in case the request begins again.
    pub(super) secrets: Option<Secrets>,
    /// The channels of the function's outbound calls, if it may make any.
    pub(super) calls: Option<Calls>,
    /// The guest's words as of the last look.
    pub(super) guest: GuestWords,
    /// The guest waits for room in its log, and was not woken for that yet.
    pub(super) waits_for_log: bool,
    /// How often the node looks at the guest.
    pub(super) rate_limit: RateLimit,
    /// The guest has reported that it is done.
    pub(super) is_over: bool,
    /// The guest was started.
    pub(super) is_activated: bool,
    pub(super) timing: Timing,
    pub(super) deadlines: Deadlines,
    pub(super) permits: InvocationPermits,
    /// The right to run before other requests.
    pub(super) run_permit: Option<RunPermit>,
    pub(super) client: RequestClient,
    pub(super) waits: Arc<ClientWaits>,
    pub(super) relay: Relay,
    /// The entry among invocations that wait for their clients; `None` until this one first waits.
    pub(super) wait: Option<ClientWait>,
    pub(super) active_request: ActiveRequest,
    pub(super) polls_for_end: bool,
    /// The guest found the request by polling.
    pub(super) was_hot: bool,
}

impl Invocation {
    /// Creates an invocation that is about to begin.
    pub fn new(parts: InvocationParts) -> Self {
        let limits = parts.limits;
        let calls = |outbound| Calls::new(outbound, limits.calls);
        let function = permit_request(&parts.version).function;
        Self {
            // A request without a body was announced as complete together with its head.
            pump: Pump::new(Channel::INVOCATION, parts.incoming.has_ended()),
            relay: Relay::new(parts.relay, function),
            instance: parts.instance,
            version: parts.version,
            log: parts.log,
            incoming: parts.incoming,
            store: parts.store.map(StoreChannel::new),
            secrets: parts.secrets,
            calls: parts.outbound.map(calls),
            guest: GuestWords::new_zeroed(),
            waits_for_log: false,
            rate_limit: RateLimit::new(),
            is_over: false,
            is_activated: false,
            timing: parts.timing,
            deadlines: Deadlines::new(limits),
            permits: parts.permits,
            run_permit: parts.run_permit,
            client: parts.client,
            waits: parts.waits,
            wait: None,
            active_request: parts.active_request,
            polls_for_end: parts.polls_for_end,
            was_hot: false,
        }
    }

    /// Follows the instance until it is done or its response has begun.
    pub(super) async fn run_to_response(&mut self) -> Result<StartOutcome, InvokeError> {
        let mut delivery = Delivery::Held { is_due: false };
        loop {
            if let Some(done) = self.handle_next(&mut delivery).await? {
                return Ok(StartOutcome::Finished(done));
            }
            if self.response_words().head == 0 {
                continue;
            }
            self.deadlines.head.get_or_insert_with(Instant::now);
            // A guest that waits for room does not end before it has some.
            let is_due = matches!(delivery, Delivery::Held { is_due: true });
            if (is_due || self.pump.waits_for_room())
                && let Some(head) = begin_stream(&mut self.instance.mailbox, &self.guest)?
            {
                return Ok(StartOutcome::Streaming(head));
            }
        }
    }

    /// Hands out the body until the function is done.
    pub(super) async fn run_to_end(
        &mut self,
        delivery: &mut Delivery,
    ) -> Result<RunOutcome, InvokeError> {
        loop {
            if let Some(done) = self.handle_next(delivery).await? {
                return Ok(done);
            }
        }
    }

    /// Waits for the next event of the invocation and handles it. Returns how the function ended,
    /// if it did.
    async fn handle_next(
        &mut self,
        delivery: &mut Delivery,
    ) -> Result<Option<RunOutcome>, InvokeError> {
        let waiting = match delivery {
            Delivery::Held { .. } => 0,
            Delivery::Streaming { .. } | Delivery::Complete => {
                let mailbox = &self.instance.mailbox;
                mailbox.waiting(Channel::INVOCATION, &self.guest)?
            }
        };
        let phase = self.phase(delivery, waiting);
        let Deadline { at, limit } = self.deadline(phase);
        let wants_more = self.wants_more();
        let rest = self.rate_limit.limited_until();
        let bytes = waiting.min(PART_BYTES as u64);
        let part_bytes = (phase == Phase::Client).then_some(bytes);
        self.note_wait(match phase {
            Phase::Client => self.waits_to_send(delivery, bytes),
            Phase::Head | Phase::Grace | Phase::Guest => self.awaits_request(),
            Phase::Upstream | Phase::Return | Phase::AfterResponse => false,
        });
        let (mut is_due, mut is_complete) = (false, false);
        let account = &self.client.account;
        tokio::select! {
            biased;
            event = self.instance.sandbox.next_event(rest) => return self.handle_event(event),
            answer = store::answer(&mut self.store) => self.handle_store_answer(answer)?,
            reserved = delivery.reserve_part(&mut self.relay, account, part_bytes) => {
                let reserved = reserved.ok_or(InvokeError::ClientGone)?;
                is_complete = self.send_part(reserved, waiting)?;
            }
            () = until_evicted(&self.wait) => return Err(InvokeError::Evicted),
            () = delivery.client_gone(), if phase != Phase::Client => {
                return Err(InvokeError::ClientGone);
            }
            received = self.incoming.next(), if wants_more => {
                self.receive(received)?;
                self.wake_if_served()?;
            }
            () = sleep_until(at) => match limit {
                Limit::Grace | Limit::HandlerReturn => is_due = true,
                limit => self.handle_expiry(limit)?,
            },
            // Last: calls with events all the time must not delay the other branches.
            update = calls::next(&mut self.calls) => self.handle_call_events(update)?,
        }
        if is_due {
            delivery.set_due();
        }
        if is_complete {
            *delivery = Delivery::Complete;
        }
        Ok(None)
    }

    /// Returns the party that must act next. `waiting` is how many bytes of a response that has
    /// begun are in the mailbox.
    fn phase(&self, delivery: &Delivery, waiting: u64) -> Phase {
        match delivery {
            Delivery::Held { .. } if self.deadlines.head.is_none() => Phase::Head,
            Delivery::Held { .. } => Phase::Grace,
            Delivery::Streaming { is_end_due, .. } if waiting > 0 || *is_end_due => Phase::Client,
            Delivery::Streaming { .. } if self.response_words().end != 0 => Phase::Return,
            Delivery::Streaming { .. } => Phase::Guest,
            Delivery::Complete => Phase::AfterResponse,
        }
    }

    /// Handles an event of the sandbox. Returns how the function ended, if it did.
    fn handle_event(
        &mut self,
        event: Result<SandboxEvent, PlatformError>,
    ) -> Result<Option<RunOutcome>, InvokeError> {
        let report = match event? {
            SandboxEvent::Progress => {
                self.look()?;
                if self.guest.wait_for != 0 {
                    self.run_permit = None;
                }
                // The end counts at once only for a warm instance whose guest had to ring for it.
                // From a forked instance, the report with the time that forking took is still to
                // come.
                let is_told = self.guest.outcome != 0
                    && self.timing.served == Served::Warm
                    && self.instance.mailbox.has_requested_end_ring();
                return Ok(is_told.then_some(RunOutcome::Reported));
            }
            SandboxEvent::Rang(report) => report,
            SandboxEvent::Failed(why) => return Err(InvokeError::GuestFailed(why)),
        };
        match report.doorbell {
            Some(Doorbell::Done) => Ok(Some(RunOutcome::Stopped(report))),
            Some(Doorbell::Fatal) => Err(fatal(&self.instance.mailbox)),
            Some(ring) => Err(InvokeError::GuestFailed(format!(
                "it rang {ring:?} in the middle of a request"
            ))),
            None => Err(meaningless()),
        }
    }

    /// Returns the guest's words about its response.
    pub(super) fn response_words(&self) -> &ChannelWords {
        &self.guest.channels[Channel::INVOCATION]
    }

    /// Returns whether the guest waits for a part of the request.
    pub(super) fn awaits_request(&self) -> bool {
        self.pump.awaits_input()
    }

    /// Reports whether this invocation waits for its client, or has waited too long for answers to
    /// its function's outbound calls.
    pub(super) fn note_wait(&mut self, waits: bool) {
        let since = if waits {
            Some(self.deadlines.client.max(self.deadlines.fed))
        } else {
            self.deadlines.idle_upstream()
        };
        if since.is_some() && self.wait.is_none() {
            let request = permit_request(&self.version);
            let share = self
                .client
                .calling_function
                .map_or(request.function, PermitShare::number);
            self.wait = Some(self.waits.add(PermitHolder {
                function: request.function,
                share,
                memory: request.memory,
            }));
        }
        if let Some(wait) = &self.wait {
            wait.set(since, waits && self.client.is_early && !self.pump.has_end());
        }
    }
}

/// Waits until the invocation is evicted.
pub(super) async fn until_evicted(wait: &Option<ClientWait>) {
    match wait {
        Some(wait) => wait.evicted().await,
        None => pending().await,
    }
}
