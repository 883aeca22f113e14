//! The path of a request through the node.
//!
//! The node looks the function up, checks the request, runs it in an instance of the function's
//! seed and checks the response. A failure before the response has begun becomes a problem
//! response; after that, the response is cut off. Both write a line to the function's log. So a
//! caller always receives an answer, and never takes a partial response for a complete one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use faasw_client::FunctionKind;
use faasw_common::text::{Indented, Line};
use faasw_pool::{
    Account, BudgetAccount, CallerPermit, ClientError, Effort, Fault, InvocationRequest,
    InvokeError, LogSink, LogStream, ReplyBody, RequestClient, Timing,
};
use http::{Method, Request, Response};
use http_body::Body as _;

use super::{
    core::Core,
    function::{Function, RequestSlot},
    outbound::OutboundContext,
    self_calls,
};
use crate::{
    backend::ServableVersion,
    failure::{Audience, Failure},
    message::{
        self, Body, BodyLimits, CallerContext, Connection, Correlation, FromOperator, GatherError,
        GatherGoal, GatheredBody, RequestRecorder, RequestRejection,
    },
    metrics::Metrics,
    services::outbound::Hops,
};

impl Core {
    /// Starts to follow a request to its end, if the observer receives requests.
    pub(super) fn follow<B>(
        &self,
        request: &Request<B>,
        correlation: &Correlation,
    ) -> Option<Box<RequestRecorder>> {
        let tell = self.tell_request.as_ref()?;
        Some(RequestRecorder::begin(tell, request, correlation))
    }

    /// Runs a request that has the ids `correlation`, and reports it to `follow`, if there is one.
    pub(super) async fn invoke<B>(
        &self,
        name: &str,
        request: Request<B>,
        correlation: &Correlation,
        mut follow: Option<Box<RequestRecorder>>,
    ) -> Response<Body>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let head_only = request.method() == Method::HEAD;
        let audience = self.audience(&request);
        let unknown = || {
            let problem = Failure::UnknownFunction(name.into()).problem(audience);
            let problem = problem.of_function(name);
            problem.response(correlation.request_id, head_only)
        };
        let Some(function) = self.function(name) else {
            Box::pin(message::refuse(request)).await;
            self.metrics.record_unknown_function();
            return Body::record(follow, unknown());
        };
        if let Some(follow) = &mut follow {
            follow.set_function(name);
        }
        let mut instance = None;
        let instance_cell = follow.as_ref().map(|follow| follow.instance());
        let result = self
            .run(
                &function,
                request,
                correlation,
                instance_cell,
                &mut instance,
            )
            .await;
        let instance = instance.and_then(|log: Arc<InvocationObserver>| log.instance());
        let response = match result {
            Ok(response) => {
                let timing = response.extensions().get();
                self.metrics
                    .record_answer(&function.name, response.status(), timing);
                response
            }
            // The function's code was not in memory, and the function was removed or replaced
            // before the code could be read. The result is the same as if the request had arrived
            // later.
            Err(failure) if failure.is_of_code() && self.was_replaced(&function).await => {
                self.metrics.record_unknown_function();
                unknown()
            }
            Err(failure) => {
                report(&function, &failure, instance.unwrap_or(0), correlation);
                let mut problem = failure.problem(audience).of_function(name);
                self.metrics
                    .record_failure(&function.name, &failure, &problem);
                problem.instance = instance;
                problem.response(correlation.request_id, head_only)
            }
        };
        Body::record(follow, response)
    }

    /// Returns who reads the problem body if the request fails.
    fn audience<B>(&self, request: &Request<B>) -> Audience {
        if self.verbose_errors || request.extensions().get::<FromOperator>().is_some() {
            Audience::Operator
        } else {
            Audience::Client
        }
    }

    /// Whether a function is no longer the current one of its name. First waits for a change of the
    /// functions under way: it removes a function's files before it changes the table.
    async fn was_replaced(&self, function: &Arc<Function>) -> bool {
        drop(self.committing.lock().await);
        !self.is_current(function)
    }

    async fn run<B>(
        &self,
        function: &Arc<Function>,
        request: Request<B>,
        correlation: &Correlation,
        instance_cell: Option<Arc<AtomicU64>>,
        instance: &mut Option<Arc<InvocationObserver>>,
    ) -> Result<Response<Body>, Failure>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let within = request.extensions().get::<CallerContext>().cloned();
        if let Err(failure) = self.check(&request, within.is_some()) {
            Box::pin(message::refuse(request)).await;
            return Err(failure);
        }
        let expects_continue = message::expects_continue(&request);
        let (parts, body) = request.into_parts();
        let length = body.size_hint().exact();
        let wanted = match function.record.kind {
            FunctionKind::CgiModule | FunctionKind::CliComponent if length.is_none() => {
                GatherGoal::Length
            }
            _ => GatherGoal::EnoughSigns,
        };
        let is_answered = Arc::<AtomicBool>::default();
        let body = message::limited(body, self.body_limits(is_answered.clone()));
        let account = self.account(function, &parts);
        // The invocation that makes a self call holds a permit already, so the self call does not
        // wait until other requests release theirs.
        let has_room = || {
            within.is_some()
                || function
                    .version_cell
                    .get()
                    .is_none_or(|made| made.has_free_slot())
        };
        let is_whole = body.is_end_stream();
        // The heads of waiting requests count as memory, like bodies.
        let head_room = account.try_lease(message::head_cost(&parts.headers));
        if !is_whole && (head_room.is_none() || expects_continue && !has_room()) {
            Box::pin(message::refuse(Request::from_parts(parts, body))).await;
            return Err(Failure::NoRoom);
        }
        let is_to_begin = expects_continue || within.is_some();
        let gathered = if is_whole || is_to_begin && wanted == GatherGoal::EnoughSigns {
            // Gathering the body would make a client that waits for `100 Continue` send it,
            // possibly in vain.
            GatheredBody {
                is_early: !is_whole,
                body,
                length,
            }
        } else {
            // Most requests have no body. The futures that they do not need are boxed, because each
            // future that is part of this one is moved with it.
            match Box::pin(message::gather(body, &account, wanted, has_room)).await {
                Ok(gathered) => gathered,
                Err(error) => return Err(Box::pin(gather_failure(error, within.is_some())).await),
            }
        };
        let GatheredBody {
            body,
            is_early,
            length: gathered,
        } = gathered;
        let length = match wanted {
            GatherGoal::Length => gathered,
            GatherGoal::EnoughSigns => length,
        };
        let AdmittedRequest { slot, made, waited } =
            match self.admit(function, within.is_some()).await {
                Ok(admission) => admission,
                Err(failure) => {
                    Box::pin(message::refuse(Request::from_parts(parts, body))).await;
                    return Err(failure);
                }
            };
        let (secrets, bound) = match self.secrets_for(function).await {
            Ok(Some(secrets)) => (Some(secrets.given), secrets.bound),
            Ok(None) => (None, None),
            Err(failure) => {
                Box::pin(message::refuse(Request::from_parts(parts, body))).await;
                return Err(failure);
            }
        };
        let mut asked = message::ResponseContext::of(&parts);
        asked.timing &= self.timing || parts.extensions.get::<FromOperator>().is_some();
        let limits = self.limits.of_request(&function.record.options);
        let makes_calls = function.outbound_grants.is_some();
        let budget = self_calls::account(within.as_ref(), makes_calls, &limits);
        let log = Arc::new(InvocationObserver {
            function: function.clone(),
            metrics: self.metrics.clone(),
            correlation: *correlation,
            instance: AtomicU64::new(0),
            instance_cell,
            budget: budget.clone(),
        });
        *instance = Some(log.clone());
        let call = InvocationRequest {
            head: message::request_head(function.name.as_str(), &parts, length, Some(correlation)),
            body,
            limits: self_calls::call_limits(&limits, within.as_ref()),
            outbound: budget.as_ref().and_then(|account| {
                self.outbound(function, &log, || OutboundContext {
                    hops: Hops::of(&parts.headers),
                    share: match &within {
                        Some(within) => within.share,
                        None => made.share(),
                    },
                    budget: account.budget().clone(),
                    bound,
                })
            }),
            log,
            client: RequestClient {
                account,
                is_early,
                calling_function: within.and_then(|within| within.share),
                budget,
            },
            store: function.store(),
            secrets,
            caller_permit: CallerPermit::with(slot),
        };
        let reply = made.invoke(call).await?;
        drop(head_room);
        is_answered.store(true, Ordering::Release);
        let is_whole = matches!(reply.body, ReplyBody::Whole { .. });
        let mut response = message::response(asked, &reply.head, reply.body)?;
        // A stream's timing is known only at its end.
        if is_whole {
            let mut timing = reply.timing;
            timing.queue += waited;
            if asked.timing {
                message::add_server_timing(response.headers_mut(), &timing);
            }
            response.extensions_mut().insert(timing);
        }
        Ok(response)
    }

    /// Validates a request before any resource is reserved for it. A self call is part of another
    /// invocation, so it continues while the node shuts down.
    fn check<B: http_body::Body>(
        &self,
        request: &Request<B>,
        is_within: bool,
    ) -> Result<(), Failure> {
        if self.has_ended() && !is_within {
            return Err(Failure::ShuttingDown);
        }
        message::check_size(request.headers(), &self.limits)?;
        let limit = self.limits.request_body;
        if request.body().size_hint().lower() > limit {
            return Err(InvokeError::from(ClientError::TooLarge(limit)).into());
        }
        Ok(())
    }

    fn body_limits(&self, is_answered: Arc<AtomicBool>) -> BodyLimits {
        BodyLimits {
            bytes: self.limits.request_body,
            rate: self.limits.body_rate,
            grace: self.limits.request_read,
            is_answered,
        }
    }

    /// Returns the account of a request and its response: its connection's, if it has one.
    fn account(&self, function: &Function, parts: &http::request::Parts) -> Account {
        let connection = match parts.extensions.get() {
            Some(Connection(connection)) => connection.clone(),
            None if parts.extensions.get::<CallerContext>().is_some() => self.backlog.call(),
            None => self.backlog.connection(),
        };
        Account::new(function.backlog.clone(), connection)
    }

    /// Admits a request. A self call is admitted only if it need not wait for a slot.
    async fn admit(
        &self,
        function: &Function,
        is_within: bool,
    ) -> Result<AdmittedRequest, Failure> {
        let begun = Instant::now();
        let slot = if is_within {
            function.try_acquire_slot()?
        } else {
            function.acquire_slot().await?
        };
        let made = match function.version_cell.get() {
            Some(made) => made,
            None => Box::pin(function.version_cell.get_or_wake(self.wake(function)))
                .await
                .map_err(Failure::NotReady)?,
        };
        Ok(AdmittedRequest {
            slot,
            made,
            waited: begun.elapsed(),
        })
    }
}

/// Returns the failure of a request whose body was not gathered, once its client has sent enough of
/// the rest to read the answer. A self call has no such client.
async fn gather_failure(error: GatherError, is_within: bool) -> Failure {
    let (failure, rest) = match error {
        GatherError::Client(error) => return InvokeError::from(error).into(),
        GatherError::LengthUnknown { limit, rest } => {
            (RequestRejection::LengthUnknown(limit).into(), rest)
        }
        GatherError::NoRoom { rest } => (Failure::NoRoom, rest),
    };
    if !is_within {
        message::discard(rest).await;
    }
    failure
}

/// The slot and the version that a request needs to run.
struct AdmittedRequest {
    /// The request's slot among those of its function, until its instance is free or gone.
    slot: RequestSlot,
    made: Arc<dyn ServableVersion>,
    /// How long it took to get both.
    waited: Duration,
}

/// Reports a failure in the function's log and in the node's log.
fn report(function: &Function, failure: &Failure, instance: u64, correlation: &Correlation) {
    // Each line of the message is a line of its own in the function's log. All but the first are
    // indented, so that none of them can be mistaken for a line that the node begins.
    let lines = Indented(failure).to_string();
    for line in lines.lines() {
        let line = line.as_bytes();
        function
            .log
            .add(instance, Some(correlation), LogStream::Node, line);
    }
    let text = Line(failure);
    let (function, request_id) = (function.name.as_str(), correlation.request_id.as_str());
    let trace = correlation.trace().map(tracing::field::display);
    let cause = failure.cause();
    macro_rules! say {
        ($event:ident, $what:literal) => {
            tracing::$event!(
                function,
                cause,
                instance,
                request_id,
                trace,
                "{}: {text}",
                $what
            )
        };
    }
    match failure.fault().0 {
        Fault::Platform => say!(error, "request failed"),
        Fault::Function => say!(warn, "request failed"),
        Fault::Caller => say!(debug, "request refused"),
    }
}

/// Follows one request's instance: its log, its number, and the outcome of a response that had
/// already begun.
#[derive(Debug)]
pub(super) struct InvocationObserver {
    pub(super) function: Arc<Function>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) correlation: Correlation,
    /// 0 until there is an instance.
    pub(super) instance: AtomicU64,
    /// Receives the instance's number for another follower of the request.
    instance_cell: Option<Arc<AtomicU64>>,
    /// The account in the budget of the client's request.
    budget: Option<Arc<BudgetAccount>>,
}

impl InvocationObserver {
    fn instance(&self) -> Option<u64> {
        Some(self.instance.load(Ordering::Relaxed)).filter(|number| *number != 0)
    }
}

impl LogSink for InvocationObserver {
    fn begins(&self, instance: u64) {
        self.instance.store(instance, Ordering::Relaxed);
        if let Some(instance_cell) = &self.instance_cell {
            instance_cell.store(instance, Ordering::Relaxed);
        }
    }

    fn line(&self, instance: u64, stream: LogStream, line: &[u8]) {
        let log = &self.function.log;
        log.add(instance, Some(&self.correlation), stream, line);
    }

    fn retired(&self, _: u64, effort: &Effort) {
        self.metrics.record_retirement(&self.function.name, effort);
    }

    fn charged(&self, _: u64, cpu: Duration) {
        self.metrics.record_cpu_time(&self.function.name, cpu);
        if let Some(account) = &self.budget {
            account.charge(cpu);
        }
    }

    fn stream_ended(&self, result: Result<&Timing, &InvokeError>) {
        let name = &self.function.name;
        match result {
            Ok(timing) => self.metrics.record_run(name, timing),
            Err(error) => {
                let failure = Failure::Invoke(error.clone());
                let instance = self.instance().unwrap_or(0);
                report(&self.function, &failure, instance, &self.correlation);
                self.metrics.record_cut_off(name, &failure);
            }
        }
    }
}
