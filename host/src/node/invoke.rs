//! A request's way through the node.
//!
//! Look the function up, check the request, have its seed run it, check the
//! response. Whatever fails before the response has begun becomes a problem
//! response; a response that has begun is cut off. Either is a line in the
//! function's log: a caller always gets an answer, and never half of one for a
//! whole.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use faasw_pool::{
    Call, CallLimits, ClientError, Effort, InvokeError, LogSink, LogStream, ReplyBody, Timing,
};
use http::{HeaderMap, Method, Request, Response};

use super::{
    core::Core,
    function::{Function, Place},
};
use crate::{
    engine::Seed,
    failure::{Failure, Fault},
    message::{self, Body},
    metrics::Metrics,
};

impl Core {
    pub(super) async fn invoke<B>(&self, name: &str, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let head_only = request.method() == Method::HEAD;
        let Some(function) = self.function(name) else {
            message::refuse(request).await;
            self.metrics.unknown();
            return Failure::UnknownFunction(name.into())
                .problem()
                .of_function(name)
                .response(head_only);
        };
        let mut instance = None;
        match self.run(&function, request, &mut instance).await {
            Ok(response) => {
                let timing = response.extensions().get();
                self.metrics
                    .answered(&function.name, response.status(), timing);
                response
            }
            Err(failure) => {
                let instance = instance.and_then(|log: Arc<Follower>| log.instance());
                report(&function, &failure, instance.unwrap_or(0));
                let mut problem = failure.problem().of_function(name);
                self.metrics.failed(&function.name, &failure, &problem);
                problem.instance = instance;
                problem.response(head_only)
            }
        }
    }

    async fn run<B>(
        &self,
        function: &Arc<Function>,
        request: Request<B>,
        instance: &mut Option<Arc<Follower>>,
    ) -> Result<Response<Body>, Failure>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let announced = request.body().size_hint().lower();
        let (place, seed, waited) = match self.admit(function, request.headers(), announced).await {
            Ok(admitted) => admitted,
            Err(failure) => {
                message::refuse(request).await;
                return Err(failure);
            }
        };
        let (parts, body) = request.into_parts();
        let asked = message::Asked::of(&parts);
        let limits = function.record.options.request_limits(&self.limits);
        let log = Arc::new(Follower {
            function: function.clone(),
            metrics: self.metrics.clone(),
            instance: AtomicU64::new(0),
            _place: place,
        });
        *instance = Some(log.clone());
        let call = Call {
            head: message::request_head(function.name.as_str(), &parts, body.size_hint().exact()),
            body: message::limited(body, self.limits.request_body),
            limits: CallLimits {
                cpu: limits.cpu_time,
                first_byte: limits.first_byte,
                idle_client: limits.idle_client,
                idle_guest: limits.idle_guest,
                total: limits.total_time,
            },
            log,
        };
        let reply = seed.invoke(call).await?;
        let is_whole = matches!(reply.body, ReplyBody::Whole { .. });
        let mut response = message::response(asked, &reply.head, reply.body)?;
        // A stream's time is known at its end only.
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

    /// Lets a request in whose body is at least `announced` bytes: a place, a
    /// seed, and how long that took to be there.
    async fn admit(
        &self,
        function: &Function,
        headers: &HeaderMap,
        announced: u64,
    ) -> Result<(Place, Arc<dyn Seed>, Duration), Failure> {
        if self.has_ended() {
            return Err(Failure::ShuttingDown);
        }
        message::check_size(headers, &self.limits)?;
        let limit = self.limits.request_body;
        if announced > limit {
            return Err(InvokeError::from(ClientError::TooLarge(limit)).into());
        }
        let place = function.place()?;
        let begun = Instant::now();
        let seed = function
            .seed
            .get_or_try_init(|| self.wake(function))
            .await
            .map_err(Failure::NotReady)?;
        Ok((place, seed.clone(), begun.elapsed()))
    }
}

/// Says in the function's log and in the node's own what happened.
fn report(function: &Function, failure: &Failure, instance: u64) {
    let text = failure.to_string();
    for line in text.lines() {
        function.log.add(instance, LogStream::Node, line.as_bytes());
    }
    let name = function.name.as_str();
    match failure.fault() {
        Fault::Platform => tracing::error!(function = name, instance, "request failed: {text}"),
        Fault::Function => tracing::warn!(function = name, instance, "request failed: {text}"),
        Fault::Caller => tracing::debug!(function = name, instance, "request refused: {text}"),
    }
}

/// Follows one request's instance: its log, its number, and how it ended when
/// its response had begun before. Lives as long as the instance.
#[derive(Debug)]
struct Follower {
    function: Arc<Function>,
    metrics: Arc<Metrics>,
    /// 0 until there is an instance.
    instance: AtomicU64,
    _place: Place,
}

impl Follower {
    fn instance(&self) -> Option<u64> {
        Some(self.instance.load(Ordering::Relaxed)).filter(|number| *number != 0)
    }
}

impl LogSink for Follower {
    fn begins(&self, instance: u64) {
        self.instance.store(instance, Ordering::Relaxed);
    }

    fn line(&self, instance: u64, stream: LogStream, line: &[u8]) {
        self.function.log.add(instance, stream, line);
    }

    fn retired(&self, _: u64, effort: &Effort) {
        self.metrics.retired(&self.function.name, effort);
    }

    fn stream_ended(&self, result: Result<&Timing, &InvokeError>) {
        let name = &self.function.name;
        match result {
            Ok(timing) => self.metrics.ran(name, timing),
            Err(error) => {
                let failure = Failure::Invoke(error.clone());
                report(&self.function, &failure, self.instance().unwrap_or(0));
                self.metrics.cut_off(name, &failure);
            }
        }
    }
}
