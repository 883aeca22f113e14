//! Follows one instance through its one invocation.
//!
//! [`Invocation::start`] runs inside the caller: most functions are done within a few milliseconds,
//! and their response leaves as one message. If a function takes longer, [`Invocation::go_on`]
//! follows it in a task of its own and hands the body out part by part. `start` starts the guest,
//! `feed` gives it what the client sends, `timeline` determines when a phase takes too long, and
//! `drain` and `end` handle the end. See `docs/decisions/0009-streaming.md`.

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

use super::admission::{Holder, RunPermit, Wait, Waits, permit_request};
use super::backlog::{Account, Lease};
use super::body::{self, Incoming, PART_BYTES, Part, PartSender, ReplyBody};
use super::call::{Client, Reply, Share};
use super::calls::{self, Calls};
use super::end::{Ended, Left, begin_stream, response_trailers};
use super::limits::CallLimits;
use super::outbound::Outbound;
use super::pump::Pump;
use super::relay::{Relay, RelaySlots};
use super::retire::{Place, Retiring};
use super::secrets::Secrets;
use super::store::{self, StoreChannel, StoreService};
use super::timeline::{Limit, Phase, Timeline};
use crate::error::{InvokeError, PlatformError};
use crate::instances::{Instance, Settling, UnderWay};
use crate::mailbox::{LogLines, RateLimit, fatal, meaningless};
use crate::sandboxes::{RingReport, SandboxEvent};
use crate::seeds::FunctionVersion;
use crate::sink::{Served, Timing};

/// How an invocation went on after its start.
pub enum Begun {
    /// The function is done.
    Done(Done),
    /// The head is there, and more of the body follows.
    Streams(ResponseHead),
}

/// How the node learnt that the function is done.
pub enum Done {
    /// The guest has stopped.
    Stopped(RingReport),
    /// The guest has reported the end, and stops in a moment.
    Told,
}

/// The terms of an invocation: its limits, its client and its services.
pub struct Terms {
    /// How long the invocation may take.
    pub limits: CallLimits,
    /// The client that sends the request.
    pub client: Client,
    /// The registry in which the invocation reports that it waits for its client.
    pub waits: Arc<Waits>,
    /// The slots for moving the response.
    pub relay: Arc<RelaySlots>,
    /// Counts the invocation among the requests under way.
    pub under_way: UnderWay,
    /// The service for the store channel, which is open only if this is set.
    pub store: Option<Arc<dyn StoreService>>,
    /// The contents of the secrets channel, which is open only if this is set.
    pub secrets: Option<Secrets>,
    /// Makes the function's outbound calls, whose channels are open only if this is set.
    pub outbound: Option<Arc<dyn Outbound>>,
    /// The guest does not ring at its end: the node polls for the end.
    pub looks: bool,
}

/// An instance at work, and both ends of its bodies.
pub struct Invocation {
    pub(super) instance: Instance,
    pub(super) version: FunctionVersion,
    pub(super) log: LogLines,
    pub(super) incoming: Incoming,
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
    pub(super) timeline: Timeline,
    pub(super) place: Place,
    /// The right to run before other requests.
    pub(super) turn: Option<RunPermit>,
    pub(super) client: Client,
    pub(super) waits: Arc<Waits>,
    pub(super) relay: Relay,
    /// The entry among invocations that wait for their clients; `None` until this one first waits.
    pub(super) wait: Option<Wait>,
    pub(super) under_way: UnderWay,
    pub(super) looks: bool,
    /// The guest found the request by polling.
    pub(super) was_hot: bool,
}

impl Invocation {
    /// Creates an invocation that is about to begin in `instance`.
    pub fn new(
        instance: Instance,
        version: FunctionVersion,
        log: LogLines,
        incoming: Incoming,
        terms: Terms,
        timing: Timing,
        place: Place,
    ) -> Self {
        let Terms {
            limits,
            client,
            waits,
            relay,
            under_way,
            store,
            secrets,
            outbound,
            looks,
        } = terms;
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
            timeline: Timeline::new(limits),
            place,
            turn: None,
            client,
            waits,
            relay,
            wait: None,
            under_way,
            looks,
            was_hot: false,
        }
    }

    /// Gives the invocation its run permit, which it holds until it is done or has run for long
    /// enough.
    pub fn give_turn(&mut self, turn: RunPermit) {
        self.turn = Some(turn);
    }

    /// Follows the instance until it is done or its response has begun.
    pub(super) async fn begin(&mut self) -> Result<Begun, InvokeError> {
        loop {
            let phase = match self.timeline.head {
                None => Phase::Head,
                Some(_) => Phase::Grace,
            };
            let (deadline, limit) = self.deadline(phase);
            let wants_more = self.wants_more();
            let rest = self.rate_limit.limited_until();
            let mut streams = false;
            self.note_wait(self.client_owes());
            tokio::select! {
                biased;
                event = self.instance.sandbox.next_event(rest) => {
                    if let Some(done) = self.happened(event)? {
                        return Ok(Begun::Done(done));
                    }
                }
                answer = store::answer(&mut self.store) => self.answered(answer)?,
                received = self.incoming.next(), if wants_more => {
                    self.receive(received)?;
                    self.wake_if_served()?;
                }
                () = until_cut(&self.wait) => return Err(InvokeError::Evicted),
                () = sleep_until(deadline) => match limit {
                    Limit::Grace => streams = true,
                    limit => self.expired(limit)?,
                },
                // Last: calls with events all the time must not delay the other branches.
                news = calls::next(&mut self.calls) => self.called(news)?,
            }
            if self.told().head == 0 {
                continue;
            }
            self.timeline.head.get_or_insert_with(Instant::now);
            // A guest that waits for room does not end before it has some.
            streams |= self.pump.waits_for_room();
            if streams && let Some(head) = begin_stream(&mut self.instance.mailbox, &self.guest)? {
                return Ok(Begun::Streams(head));
            }
        }
    }

    /// Continues in a task of its own, which hands the body out part by part.
    pub fn go_on(self, head: ResponseHead, done: Option<Done>) -> Reply {
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
    async fn stream(mut self, client: PartSender, done: Option<Done>) {
        let limit = self.timeline.limits.idle_client;
        let mut client = Some(client);
        let followed = match done {
            Some(done) => Ok(done),
            None => self.follow(&mut client).await,
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
        let told = result.as_ref().map(|()| &ended.timing);
        ended.log.sink().stream_ended(told);
    }

    /// Hands out the body until the function is done.
    async fn follow(&mut self, client: &mut Option<PartSender>) -> Result<Done, InvokeError> {
        let mut end_is_due = false;
        loop {
            let mailbox = &self.instance.mailbox;
            let waiting = mailbox.waiting(Channel::INVOCATION, &self.guest)?;
            let is_whole = self.told().end != 0 && waiting == 0;
            let phase = match client {
                None => Phase::Afterwards,
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
                Phase::Guest => self.client_owes(),
                _ => false,
            });
            tokio::select! {
                biased;
                event = self.instance.sandbox.next_event(rest) => {
                    if let Some(done) = self.happened(event)? {
                        return Ok(done);
                    }
                }
                answer = store::answer(&mut self.store) => self.answered(answer)?,
                place = place(client, &mut self.relay, &self.client.account, part_bytes) => {
                    let (place, lease) = place.ok_or(InvokeError::ClientGone)?;
                    self.timeline.client = Instant::now();
                    if waiting > 0 {
                        let mailbox = &mut self.instance.mailbox;
                        let part = mailbox.take(Channel::INVOCATION, &self.guest, PART_BYTES)?;
                        place.send(Ok(Part::Data(lease.hold(part))));
                        self.relay.moved();
                        self.wake_if_served()?;
                    } else {
                        let mailbox = &self.instance.mailbox;
                        let tail = mailbox.tail(Channel::INVOCATION, &self.guest)?;
                        place.send(Ok(Part::End {
                            trailers: response_trailers(&tail.unwrap_or_default())?,
                            timing: self.timing_so_far(),
                        }));
                        end_is_passed = true;
                    }
                }
                () = until_cut(&self.wait) => return Err(InvokeError::Evicted),
                () = gone(client), if phase != Phase::Client => return Err(InvokeError::ClientGone),
                received = self.incoming.next(), if wants_more => {
                    self.receive(received)?;
                    self.wake_if_served()?;
                }
                () = sleep_until(deadline) => match limit {
                    Limit::Return => end_is_due = true,
                    limit => self.expired(limit)?,
                },
                news = calls::next(&mut self.calls) => self.called(news)?,
            }
            if end_is_passed {
                *client = None;
            }
        }
    }

    /// Ends the invocation of a finished function whose response has room. Returns what is left of
    /// the response. If `followed` is an error, ends the sandbox and returns that error as the
    /// result.
    pub async fn finish(mut self, followed: Result<(Done, Lease), InvokeError>) -> Ended {
        // Answers of the store and of outbound calls have no receiver any more, and no other guest
        // needs the secrets.
        (self.store, self.calls, self.secrets) = (None, None, None);
        self.relay.reset();
        let (done, room) = match followed {
            Ok(done) => done,
            Err(error) => {
                // Only a guest that has stopped leaves a complete log.
                self.instance.sandbox.destroy().await;
                drop(self.place);
                if let Ok(guest) = self.instance.mailbox.guest()
                    && let Ok(records) = self.instance.mailbox.take_log(&guest)
                {
                    self.log.take(&records);
                }
                return Ended {
                    rest: None,
                    result: Err(error),
                    timing: self.timing,
                    log: self.log,
                };
            }
        };
        let took = if self.was_hot {
            self.timeline.age()
        } else {
            Duration::from_nanos(self.guest.exec_nanoseconds).min(self.timeline.age())
        };
        let arrivals = self.version.warm_instances().arrivals();
        arrivals.note_answer(took, self.was_hot);
        // The last words were read when room was requested.
        let guest = self.guest;
        let Left {
            guest,
            rest,
            result,
        } = Left::in_mailbox(&mut self.instance.mailbox, guest, &mut self.log, room);
        let report = match done {
            Done::Stopped(report) => Some(report),
            Done::Told => None,
        };
        let run = report.map_or_else(|| self.timeline.age(), |report| report.run);
        let timing = Timing {
            fork: report.map_or(Duration::ZERO, |report| report.fork),
            init: Duration::from_nanos(guest.init_nanoseconds).min(run),
            exec: Duration::from_nanos(guest.exec_nanoseconds).min(run),
            run,
            ..self.timing
        };
        // The request is over before its instance polls for another.
        drop(self.under_way);
        Retiring {
            instance: self.instance,
            version: self.version,
            report,
            settling: Settling::new(
                self.rate_limit,
                self.timeline.limits.cpu,
                self.timeline.cpu,
                report.is_some(),
            ),
            is_good: result.is_ok(),
            sink: self.log.sink().clone(),
            number: self.timing.instance,
            place: self.place,
        }
        .start();
        Ended {
            rest,
            result,
            timing,
            log: self.log,
        }
    }

    /// Returns where the time went, before the sandbox has reported it.
    fn timing_so_far(&self) -> Timing {
        let run = self.timeline.age();
        let init = Duration::from_nanos(self.guest.init_nanoseconds).min(run);
        Timing {
            init,
            exec: run.saturating_sub(init),
            run,
            ..self.timing
        }
    }

    /// Handles an event of the sandbox. Returns how the function ended, if it did.
    fn happened(
        &mut self,
        event: Result<SandboxEvent, PlatformError>,
    ) -> Result<Option<Done>, InvokeError> {
        let report = match event? {
            SandboxEvent::Progress => {
                self.look()?;
                if self.guest.wait_for != 0 {
                    self.turn = None;
                }
                // The end counts at once only for a warm instance whose guest had to ring for it.
                // From a forked instance, the report with the time that forking took is still to
                // come.
                let is_told = self.guest.outcome != 0
                    && self.timing.served == Served::Warm
                    && self.instance.mailbox.has_asked_for_end();
                return Ok(is_told.then_some(Done::Told));
            }
            SandboxEvent::Rang(report) => report,
            SandboxEvent::Failed(why) => return Err(InvokeError::GuestFailed(why)),
        };
        match report.doorbell {
            Some(Doorbell::Done) => Ok(Some(Done::Stopped(report))),
            Some(Doorbell::Fatal) => Err(fatal(&self.instance.mailbox)),
            Some(ring) => Err(InvokeError::GuestFailed(format!(
                "it rang {ring:?} in the middle of a request"
            ))),
            None => Err(meaningless()),
        }
    }

    /// Returns the guest's words about its response.
    fn told(&self) -> &ChannelWords {
        &self.guest.channels[Channel::INVOCATION]
    }

    /// Returns whether the guest waits for a part of the request.
    pub(super) fn client_owes(&self) -> bool {
        self.pump.is_owed()
    }

    /// Reports whether this invocation waits for its client, or has waited too long for answers to
    /// its function's outbound calls.
    pub(super) fn note_wait(&mut self, waits: bool) {
        let since = if waits {
            Some(self.timeline.client.max(self.timeline.fed))
        } else {
            self.timeline.idle_upstream()
        };
        if since.is_some() && self.wait.is_none() {
            let request = permit_request(&self.version);
            let share = self.client.within.map_or(request.function, Share::number);
            self.wait = Some(self.waits.add(Holder {
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

/// Waits for a place for a part of so many bytes, for room for them, and for a slot to move them.
/// Returns `None` when the client is gone. Without a part to move, it releases the slot and pends.
pub(super) async fn place<'a>(
    client: &'a Option<PartSender>,
    relay: &mut Relay,
    account: &Account,
    bytes: Option<u64>,
) -> Option<(Permit<'a, Result<Part, InvokeError>>, Lease)> {
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
pub(super) async fn until_cut(wait: &Option<Wait>) {
    match wait {
        Some(wait) => wait.evicted().await,
        None => pending().await,
    }
}

/// Waits until the client is gone. Pends for ever without a client.
async fn gone(client: &Option<PartSender>) {
    match client {
        Some(client) => client.closed().await,
        None => pending().await,
    }
}
