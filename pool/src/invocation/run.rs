//! Runs one invocation in its instance.
//!
//! [`Invocation::start`] runs inside the caller: most functions are done within a few milliseconds,
//! and their response leaves as one message. If a function takes longer, a task of its own
//! continues ([`Invocation::into_streaming_reply`]) and hands the body out part by part. `start`
//! starts the guest, `feed` gives it what the client sends, `deadlines` determines when a phase
//! takes too long, and `drain` and `finished` handle the end. See
//! `docs/decisions/0009-streaming.md`.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use faasw_abi::channel::{Channel, ChannelWords};
use faasw_abi::doorbell::Doorbell;
use faasw_abi::mailbox::GuestWords;
use faasw_abi::wire::ResponseHead;
use tokio::sync::mpsc::Permit;
use tokio::time::{Instant, sleep_until};
use zerocopy::FromZeros;

use super::admission::{ClientWait, ClientWaits, PermitHolder, RunPermit, permit_request};
use super::backlog::{Account, Lease};
use super::body::{self, IncomingBody, PART_BYTES, PartSender, ReplyBody, ResponsePart};
use super::call::{PermitShare, Reply, RequestClient};
use super::calls::{self, Calls};
use super::deadlines::{Deadlines, Limit, Phase};
use super::finished::{FinishedInvocation, MailboxContents, begin_stream, response_trailers};
use super::limits::InvocationLimits;
use super::outbound::Outbound;
use super::pump::Pump;
use super::recycler::{InvocationPermits, Recycler};
use super::relay::{Relay, RelaySlots};
use super::secrets::Secrets;
use super::store::{self, StoreChannel, StoreService};
use crate::error::{InvokeError, PlatformError};
use crate::instances::{ActiveRequest, Instance, ResetWait};
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

/// The configuration of an invocation: its limits, its client and its services.
pub struct InvocationConfig {
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
    /// Creates an invocation that is about to begin in `instance`.
    pub fn new(
        instance: Instance,
        version: FunctionVersion,
        log: LogLines,
        incoming: IncomingBody,
        config: InvocationConfig,
        timing: Timing,
        permits: InvocationPermits,
    ) -> Self {
        let InvocationConfig {
            limits,
            client,
            waits,
            relay,
            active_request,
            store,
            secrets,
            outbound,
            polls_for_end,
        } = config;
        let is_whole = incoming.has_ended();
        let relay = Relay::new(relay, permit_request(&version).function);
        Self {
            instance,
            version,
            log,
            incoming,
            // A request without a body was announced as complete together with its head.
            pump: Pump::new(Channel::INVOCATION, is_whole),
            store: store.map(StoreChannel::new),
            secrets,
            calls: outbound.map(|outbound| Calls::new(outbound, limits.calls)),
            guest: GuestWords::new_zeroed(),
            waits_for_log: false,
            rate_limit: RateLimit::new(),
            is_over: false,
            is_activated: false,
            timing,
            deadlines: Deadlines::new(limits),
            permits,
            run_permit: None,
            client,
            waits,
            relay,
            wait: None,
            active_request,
            polls_for_end,
            was_hot: false,
        }
    }

    /// Sets the run permit, which the invocation holds until it is done or has run for long enough.
    pub fn set_run_permit(&mut self, permit: RunPermit) {
        self.run_permit = Some(permit);
    }

    /// Follows the instance until it is done or its response has begun.
    pub(super) async fn run_to_response(&mut self) -> Result<StartOutcome, InvokeError> {
        loop {
            let phase = match self.deadlines.head {
                None => Phase::Head,
                Some(_) => Phase::Grace,
            };
            let (deadline, limit) = self.deadline(phase);
            let wants_more = self.wants_more();
            let rest = self.rate_limit.limited_until();
            let mut streams = false;
            self.note_wait(self.awaits_request());
            tokio::select! {
                biased;
                event = self.instance.sandbox.next_event(rest) => {
                    if let Some(done) = self.handle_event(event)? {
                        return Ok(StartOutcome::Finished(done));
                    }
                }
                answer = store::answer(&mut self.store) => self.handle_store_answer(answer)?,
                received = self.incoming.next(), if wants_more => {
                    self.receive(received)?;
                    self.wake_if_served()?;
                }
                () = until_evicted(&self.wait) => return Err(InvokeError::Evicted),
                () = sleep_until(deadline) => match limit {
                    Limit::Grace => streams = true,
                    limit => self.handle_expiry(limit)?,
                },
                // Last: calls with events all the time must not delay the other branches.
                news = calls::next(&mut self.calls) => self.handle_call_events(news)?,
            }
            if self.response_words().head == 0 {
                continue;
            }
            self.deadlines.head.get_or_insert_with(Instant::now);
            // A guest that waits for room does not end before it has some.
            streams |= self.pump.waits_for_room();
            if streams && let Some(head) = begin_stream(&mut self.instance.mailbox, &self.guest)? {
                return Ok(StartOutcome::Streaming(head));
            }
        }
    }

    /// Continues in a task of its own, which hands the body out part by part.
    pub fn into_streaming_reply(self, head: ResponseHead, done: Option<RunOutcome>) -> Reply {
        let (sender, stream) = body::channel();
        let timing = self.timing;
        tokio::spawn(self.stream(sender, done));
        Reply {
            head,
            body: ReplyBody::Stream(stream),
            timing,
        }
    }

    /// Follows the instance to its end, if it is not `done` yet, and hands out the body.
    async fn stream(mut self, client: PartSender, done: Option<RunOutcome>) {
        let limit = self.deadlines.limits.idle_client;
        let mut client = Some(client);
        let followed = match done {
            Some(done) => Ok(done),
            None => self.run_to_end(&mut client).await,
        };
        let followed = match followed {
            Ok(done) => self.drain(done, &client).await,
            Err(error) => Err(error),
        };
        let ended = self.finish(followed).await;
        let delivered = match client {
            Some(client) => ended.deliver(client, limit).await,
            None => Ok(()),
        };
        let result = ended.result.and(delivered);
        let timing = result.as_ref().map(|()| &ended.timing);
        ended.log.sink().stream_ended(timing);
    }

    /// Hands out the body until the function is done.
    async fn run_to_end(
        &mut self,
        client: &mut Option<PartSender>,
    ) -> Result<RunOutcome, InvokeError> {
        let mut end_is_due = false;
        loop {
            let mailbox = &self.instance.mailbox;
            let waiting = mailbox.waiting(Channel::INVOCATION, &self.guest)?;
            let is_whole = self.response_words().end != 0 && waiting == 0;
            let phase = match client {
                None => Phase::AfterResponse,
                Some(_) if waiting > 0 || end_is_due => Phase::Client,
                Some(_) if is_whole => Phase::Return,
                Some(_) => Phase::Guest,
            };
            let (deadline, limit) = self.deadline(phase);
            let wants_more = self.wants_more();
            let rest = self.rate_limit.limited_until();
            let mut end_is_passed = false;
            let bytes = waiting.min(PART_BYTES as u64);
            let part_bytes = (phase == Phase::Client).then_some(bytes);
            self.note_wait(match phase {
                Phase::Client => self.waits_to_send(client, bytes),
                Phase::Guest => self.awaits_request(),
                _ => false,
            });
            tokio::select! {
                biased;
                event = self.instance.sandbox.next_event(rest) => {
                    if let Some(done) = self.handle_event(event)? {
                        return Ok(done);
                    }
                }
                answer = store::answer(&mut self.store) => self.handle_store_answer(answer)?,
                slot = reserve_part(client, &mut self.relay, &self.client.account, part_bytes) => {
                    let (permit, lease) = slot.ok_or(InvokeError::ClientGone)?;
                    self.deadlines.client = Instant::now();
                    if waiting > 0 {
                        let mailbox = &mut self.instance.mailbox;
                        let part = mailbox.take(Channel::INVOCATION, &self.guest, PART_BYTES)?;
                        permit.send(Ok(ResponsePart::Data(lease.hold(part))));
                        self.relay.moved();
                        self.wake_if_served()?;
                    } else {
                        let mailbox = &self.instance.mailbox;
                        let tail = mailbox.tail(Channel::INVOCATION, &self.guest)?;
                        permit.send(Ok(ResponsePart::End {
                            trailers: response_trailers(&tail.unwrap_or_default())?,
                            timing: self.timing_so_far(),
                        }));
                        end_is_passed = true;
                    }
                }
                () = until_evicted(&self.wait) => return Err(InvokeError::Evicted),
                () = client_gone(client), if phase != Phase::Client => {
                    return Err(InvokeError::ClientGone);
                }
                received = self.incoming.next(), if wants_more => {
                    self.receive(received)?;
                    self.wake_if_served()?;
                }
                () = sleep_until(deadline) => match limit {
                    Limit::HandlerReturn => end_is_due = true,
                    limit => self.handle_expiry(limit)?,
                },
                news = calls::next(&mut self.calls) => self.handle_call_events(news)?,
            }
            if end_is_passed {
                *client = None;
            }
        }
    }

    /// Ends the invocation of a finished function whose response has room. Returns what is left of
    /// the response. If `followed` is an error, ends the sandbox and returns that error as the
    /// result.
    pub async fn finish(
        mut self,
        followed: Result<(RunOutcome, Lease), InvokeError>,
    ) -> FinishedInvocation {
        // Answers of the store and of outbound calls have no receiver any more, and no other guest
        // needs the secrets.
        (self.store, self.calls, self.secrets) = (None, None, None);
        self.relay.reset();
        let (done, room) = match followed {
            Ok(done) => done,
            Err(error) => {
                // Only a guest that has stopped leaves a complete log.
                self.instance.sandbox.destroy().await;
                drop(self.permits);
                if let Ok(guest) = self.instance.mailbox.guest()
                    && let Ok(records) = self.instance.mailbox.take_log(&guest)
                {
                    self.log.take(&records);
                }
                return FinishedInvocation {
                    rest: None,
                    result: Err(error),
                    timing: self.timing,
                    log: self.log,
                };
            }
        };
        let took = if self.was_hot {
            self.deadlines.age()
        } else {
            Duration::from_nanos(self.guest.exec_nanoseconds).min(self.deadlines.age())
        };
        let arrivals = self.version.warm_instances().arrivals();
        arrivals.note_answer(took, self.was_hot);
        // The last words were read when room was requested.
        let guest = self.guest;
        let MailboxContents {
            guest,
            rest,
            result,
        } = MailboxContents::read(&mut self.instance.mailbox, guest, &mut self.log, room);
        let report = match done {
            RunOutcome::Stopped(report) => Some(report),
            RunOutcome::Reported => None,
        };
        let run = report.map_or_else(|| self.deadlines.age(), |report| report.run);
        let timing = Timing {
            fork: report.map_or(Duration::ZERO, |report| report.fork),
            init: Duration::from_nanos(guest.init_nanoseconds).min(run),
            exec: Duration::from_nanos(guest.exec_nanoseconds).min(run),
            run,
            ..self.timing
        };
        // The request is over before its instance polls for another.
        drop(self.active_request);
        Recycler {
            instance: self.instance,
            version: self.version,
            report,
            reset_wait: ResetWait::new(
                self.rate_limit,
                self.deadlines.limits.cpu,
                self.deadlines.cpu,
                report.is_some(),
            ),
            is_good: result.is_ok(),
            sink: self.log.sink().clone(),
            number: self.timing.instance,
            permits: self.permits,
        }
        .start();
        FinishedInvocation {
            rest,
            result,
            timing,
            log: self.log,
        }
    }

    /// Returns where the time went, before the sandbox has reported it.
    fn timing_so_far(&self) -> Timing {
        let run = self.deadlines.age();
        let init = Duration::from_nanos(self.guest.init_nanoseconds).min(run);
        Timing {
            init,
            exec: run.saturating_sub(init),
            run,
            ..self.timing
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
    fn response_words(&self) -> &ChannelWords {
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

/// Waits for a place in the client's queue for a part of so many bytes, for room for them, and for
/// a slot to move them. Returns `None` when the client is gone. Without a part to move, it releases
/// the slot and pends.
pub(super) async fn reserve_part<'a>(
    client: &'a Option<PartSender>,
    relay: &mut Relay,
    account: &Account,
    bytes: Option<u64>,
) -> Option<(Permit<'a, Result<ResponsePart, InvokeError>>, Lease)> {
    let Some(client) = client else {
        relay.reset();
        return pending().await;
    };
    let Some(bytes) = bytes else {
        relay.release(client).await;
        return pending().await;
    };
    relay.release_used(client).await;
    // A stream holds no slot while it waits for its client or for room in the backlog.
    if client.capacity() == 0 {
        relay.release(client).await;
        drop(client.reserve().await.ok()?);
    }
    let moves = async {
        // The end of a body is no work.
        if bytes > 0 {
            relay.acquire().await;
        }
        if let Some(lease) = account.try_lease(bytes) {
            return lease;
        }
        relay.release(client).await;
        let lease = account.lease(bytes).await;
        relay.acquire().await;
        lease
    };
    let lease = tokio::select! {
        lease = moves => lease,
        () = client.closed() => return None,
    };
    // This task alone sends, so there is still a place.
    Some((client.try_reserve().ok()?, lease))
}

/// Waits until the invocation is evicted.
pub(super) async fn until_evicted(wait: &Option<ClientWait>) {
    match wait {
        Some(wait) => wait.evicted().await,
        None => pending().await,
    }
}

/// Waits until the client is gone. Pends for ever without a client.
async fn client_gone(client: &Option<PartSender>) {
    match client {
        Some(client) => client.closed().await,
        None => pending().await,
    }
}
