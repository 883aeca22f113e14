//! Runs requests.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use faasw_pool::{
    Account, CallerPermit, ClientError, InvocationRequest, InvokeError, Reply, ReplyBody,
    RequestClient,
};
use http::{Extensions, Method, Request, Response};

use super::{incoming::IncomingRequest, observer::InvocationObserver, self_calls};
use crate::{
    backend::ServableVersion,
    failure::{Audience, Failure},
    limits::Limits,
    message::{
        self, Body, BodyLimits, CallerContext, Connection, Correlation, FromOperator,
        RequestCallback, RequestRecorder, ResponseContext,
    },
    metrics::Metrics,
    node::{
        functions::{Function, FunctionTable, OpenedSecrets, RequestSlot},
        secrets::SecretStore,
        state::NodeState,
        versions::VersionFactory,
    },
};

/// Which reports clients and the observer receive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReportOptions {
    /// Clients may request the timing of their requests.
    pub(crate) timing: bool,
    /// Clients receive the complete reason of a function's failure.
    pub(crate) verbose_errors: bool,
    /// The observer receives an event for each request.
    pub(crate) requests: bool,
}

/// Runs requests in instances of the functions that they are for.
pub(crate) struct Dispatcher {
    pub(crate) functions: Arc<FunctionTable>,
    pub(crate) versions: Arc<VersionFactory>,
    pub(crate) secrets: Arc<SecretStore>,
    pub(crate) state: Arc<NodeState>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) backlog: Arc<faasw_pool::Backlog>,
    pub(crate) report_options: ReportOptions,
    /// Receives a report of each request.
    pub(crate) observer: Option<Arc<RequestCallback>>,
}

/// The slot and the version that a request needs to run.
struct AdmittedRequest {
    /// The request's slot among those of its function, until its instance is free or gone.
    slot: RequestSlot,
    version: Arc<dyn ServableVersion>,
    /// How long it took to get both.
    waited: Duration,
    secrets: Option<OpenedSecrets>,
}

impl Dispatcher {
    /// Starts to follow a request to its end, if the observer receives requests.
    pub(crate) fn follow<B>(
        &self,
        request: &Request<B>,
        correlation: &Correlation,
    ) -> Option<Box<RequestRecorder>> {
        let observer = self.observer.as_ref()?;
        Some(RequestRecorder::begin(observer, request, correlation))
    }

    /// Runs a request that has the ids `correlation`, and reports it to `follow`, if there is one.
    pub(crate) async fn invoke<B>(
        self: &Arc<Self>,
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
            self.metrics.record_unknown_function();
            let problem = Failure::UnknownFunction(name.into()).problem(audience);
            let problem = problem.of_function(name);
            problem.response(correlation.request_id, head_only)
        };
        let Some(function) = self.functions.get(name) else {
            Box::pin(message::refuse(request)).await;
            return Body::record(follow, unknown());
        };
        if let Some(follow) = &mut follow {
            follow.set_function(name);
        }
        let instance_cell = follow.as_ref().map(|follow| follow.instance());
        let metrics = self.metrics.clone();
        let observer = InvocationObserver::new(function, metrics, *correlation, instance_cell);
        let observer = Arc::new(observer);
        let function = &observer.function;
        let response = match self.run(&observer, request).await {
            Ok(response) => {
                let timing = response.extensions().get();
                self.metrics
                    .record_answer(&function.name, response.status(), timing);
                response
            }
            // The function's code was not in memory, and the function was removed or replaced
            // before the code could be read. The result is the same as if the request had arrived
            // later.
            Err(failure) if failure.is_of_code() && self.was_replaced(function).await => unknown(),
            Err(failure) => {
                observer.report(&failure);
                let mut problem = failure.problem(audience).of_function(name);
                self.metrics
                    .record_failure(&function.name, &failure, &problem);
                problem.instance = observer.instance();
                problem.response(correlation.request_id, head_only)
            }
        };
        Body::record(follow, response)
    }

    /// Returns who reads the problem body if the request fails.
    fn audience<B>(&self, request: &Request<B>) -> Audience {
        let is_from_operator = request.extensions().get::<FromOperator>().is_some();
        if self.report_options.verbose_errors || is_from_operator {
            Audience::Operator
        } else {
            Audience::Client
        }
    }

    /// Whether a function is no longer the current one of its name. First waits for a change of the
    /// functions under way: it removes a function's files before it changes the table.
    async fn was_replaced(&self, function: &Arc<Function>) -> bool {
        drop(self.functions.lock_changes().await);
        !self.functions.is_current(function)
    }

    /// Runs a request: checks it, receives as much of its body as it needs to start, admits it, and
    /// sends it to the backend.
    ///
    /// The futures that most requests do not need are boxed, because each future that is part of
    /// this one is moved with it.
    async fn run<B>(
        self: &Arc<Self>,
        observer: &Arc<InvocationObserver>,
        request: Request<B>,
    ) -> Result<Response<Body>, Failure>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let function = &observer.function;
        let caller = request.extensions().get::<CallerContext>().cloned();
        if let Err(failure) = self.check(&request, caller.is_some()) {
            Box::pin(message::refuse(request)).await;
            return Err(failure);
        }
        let account = self.account(function, request.extensions());
        let body_limits = self.body_limits();
        let mut request = IncomingRequest::new(function, request, caller, account, body_limits);
        if request.lacks_room(function) {
            return Err(Box::pin(request.refuse(Failure::NoRoom)).await);
        }
        if !request.starts_at_once() {
            request = Box::pin(request.gather(function)).await?;
        }
        let admitted = match self.admit(function, request.caller.is_some()).await {
            Ok(admitted) => admitted,
            Err(failure) => return Err(Box::pin(request.refuse(failure)).await),
        };
        let context = self.response_context(&request.parts);
        let (version, waited) = (admitted.version.clone(), admitted.waited);
        let (head_lease, is_answered) = (request.head_lease.take(), request.is_answered.clone());
        let invocation = self.invocation(observer, request, admitted);
        let reply = version.invoke(invocation).await?;
        drop(head_lease);
        is_answered.store(true, Ordering::Release);
        respond(context, reply, waited)
    }

    /// Validates a request before any resource is reserved for it. A self call is part of another
    /// invocation, so it continues while the node shuts down.
    fn check<B: http_body::Body>(
        &self,
        request: &Request<B>,
        is_self_call: bool,
    ) -> Result<(), Failure> {
        if self.state.has_ended() && !is_self_call {
            return Err(Failure::ShuttingDown);
        }
        message::check_size(request.headers(), &self.limits)?;
        let limit = self.limits.request_body;
        if request.body().size_hint().lower() > limit {
            return Err(InvokeError::from(ClientError::TooLarge(limit)).into());
        }
        Ok(())
    }

    fn body_limits(&self) -> BodyLimits {
        BodyLimits {
            bytes: self.limits.request_body,
            rate: self.limits.body_rate,
            grace: self.limits.request_read,
            is_answered: Arc::default(),
        }
    }

    /// Returns the account of a request and its response: its connection's, if it has one.
    fn account(&self, function: &Function, extensions: &Extensions) -> Account {
        let connection = match extensions.get() {
            Some(Connection(connection)) => connection.clone(),
            None if extensions.get::<CallerContext>().is_some() => self.backlog.call(),
            None => self.backlog.connection(),
        };
        Account::new(function.backlog.clone(), connection)
    }

    /// Admits a request. A self call is admitted only if it need not wait for a slot.
    async fn admit(
        &self,
        function: &Arc<Function>,
        is_self_call: bool,
    ) -> Result<AdmittedRequest, Failure> {
        let begun = Instant::now();
        let slot = if is_self_call {
            function.try_acquire_slot()?
        } else {
            function.acquire_slot().await?
        };
        let version = match function.version_cell.get() {
            Some(version) => version,
            None => {
                let waking = self.versions.wake(function);
                Box::pin(function.version_cell.get_or_wake(waking))
                    .await
                    .map_err(Failure::NotReady)?
            }
        };
        let waited = begun.elapsed();
        Ok(AdmittedRequest {
            slot,
            version,
            waited,
            secrets: self.secrets.of_request(function).await?,
        })
    }

    /// Returns how the client wants its response.
    fn response_context(&self, parts: &http::request::Parts) -> ResponseContext {
        let mut context = ResponseContext::of(parts);
        context.timing &=
            self.report_options.timing || parts.extensions.get::<FromOperator>().is_some();
        context
    }

    /// Returns an admitted request in the form that the backend takes.
    fn invocation(
        self: &Arc<Self>,
        observer: &Arc<InvocationObserver>,
        request: IncomingRequest,
        admitted: AdmittedRequest,
    ) -> InvocationRequest {
        let (function, caller) = (&observer.function, request.caller.as_ref());
        let limits = self.limits.of_request(&function.record.options);
        let budget = self_calls::account(caller, function.outbound_grants.is_some(), &limits);
        if let Some(account) = &budget {
            observer.charge_to(account.clone());
        }
        let (secrets, bound) = match admitted.secrets {
            Some(secrets) => (Some(secrets.given), secrets.bound),
            None => (None, None),
        };
        let outbound = budget.as_ref().and_then(|account| {
            let budget = account.budget().clone();
            self.outbound(observer, &request, &*admitted.version, budget, bound)
        });
        let (name, length) = (function.name.as_str(), request.body.length);
        let correlation = Some(&observer.correlation);
        InvocationRequest {
            head: message::request_head(name, &request.parts, length, correlation),
            body: request.body.body,
            limits: self_calls::call_limits(&limits, caller),
            outbound,
            log: observer.clone(),
            client: RequestClient {
                account: request.account,
                is_early: request.body.is_early,
                calling_function: caller.and_then(|caller| caller.share),
                budget,
            },
            store: function.store(),
            secrets,
            caller_permit: CallerPermit::with(admitted.slot),
        }
    }
}

/// Returns the client's response. `waited` is how long the request waited for its slot.
fn respond(
    context: ResponseContext,
    reply: Reply,
    waited: Duration,
) -> Result<Response<Body>, Failure> {
    let is_whole = matches!(reply.body, ReplyBody::Whole { .. });
    let mut response = message::response(context, &reply.head, reply.body)?;
    // A stream's timing is known only at its end.
    if is_whole {
        let mut timing = reply.timing;
        timing.queue += waited;
        if context.timing {
            message::add_server_timing(response.headers_mut(), &timing);
        }
        response.extensions_mut().insert(timing);
    }
    Ok(response)
}
