//! A request's way through the node.
//!
//! Look the function up, check and collect the request, have its seed run it,
//! check the response. Whatever fails on the way becomes a problem response, a
//! line in the function's log and an event: a caller always gets an answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use faasw_pool::{Call, LogSink, LogStream};
use http::{HeaderMap, Method, Request, Response, header};

use super::{core::Core, function::Function};
use crate::{
    failure::{Failure, Fault},
    log::FunctionLog,
    message::{self, Body},
};

impl Core {
    pub(super) async fn invoke<B>(&self, name: &str, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body,
        B::Error: std::fmt::Display,
    {
        let head_only = request.method() == Method::HEAD;
        let Some(function) = self.function(name) else {
            if !asks_first(request.headers()) {
                message::discard(request.into_body()).await;
            }
            self.metrics.unknown();
            return Failure::UnknownFunction(name.into())
                .problem()
                .of_function(name)
                .response(head_only);
        };
        let log = Arc::new(InstanceLog::of(&function));
        match self.run(&function, request, log.clone()).await {
            Ok(response) => {
                let timing = response.extensions().get();
                self.metrics
                    .answered(&function.name, response.status(), timing);
                response
            }
            Err(failure) => {
                let instance = log.instance();
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
        function: &Function,
        request: Request<B>,
        log: Arc<InstanceLog>,
    ) -> Result<Response<Body>, Failure>
    where
        B: http_body::Body,
        B::Error: std::fmt::Display,
    {
        if self.has_ended() {
            return Err(Failure::ShuttingDown);
        }
        let limits = &self.limits;
        let (parts, body) = request.into_parts();
        let body = message::collect(
            body,
            limits.request_body,
            limits.request_read,
            asks_first(&parts.headers),
        )
        .await?;
        // After the body, so that the client is ready to listen.
        message::check_size(&parts.headers, limits)?;

        let _place = function.place()?;
        let begun = Instant::now();
        let seed = function
            .seed
            .get_or_try_init(|| self.wake(function))
            .await
            .map_err(Failure::NotReady)?;
        let waited = begun.elapsed();

        let call = Call {
            head: message::request_head(function.name.as_str(), &parts, body.len()),
            body,
            time_limit: function.record.options.request_limits(limits).first_byte,
            log,
        };
        let reply = seed.invoke(call).await?;
        let mut response =
            message::response(&parts.method, &reply.head, reply.body, limits.response_body)?;
        let mut timing = reply.timing;
        timing.queue += waited;
        if message::wants_timing(&parts.headers) {
            message::add_server_timing(response.headers_mut(), &timing);
        }
        response.extensions_mut().insert(timing);
        Ok(response)
    }
}

/// Whether the client waits for a word before it sends the body.
fn asks_first(headers: &HeaderMap) -> bool {
    headers.contains_key(header::EXPECT)
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

/// The log as one request's instance writes it. It remembers the instance's
/// number, so that a failure can name it.
#[derive(Debug)]
struct InstanceLog {
    log: Arc<FunctionLog>,
    /// 0 until there is an instance.
    instance: AtomicU64,
}

impl InstanceLog {
    fn of(function: &Function) -> Self {
        Self {
            log: function.log.clone(),
            instance: AtomicU64::new(0),
        }
    }

    fn instance(&self) -> Option<u64> {
        Some(self.instance.load(Ordering::Relaxed)).filter(|number| *number != 0)
    }
}

impl LogSink for InstanceLog {
    fn begins(&self, instance: u64) {
        self.instance.store(instance, Ordering::Relaxed);
    }

    fn line(&self, instance: u64, stream: LogStream, line: &[u8]) {
        self.log.add(instance, stream, line);
    }
}
