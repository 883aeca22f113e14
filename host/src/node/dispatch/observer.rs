//! Follows the instance that serves a request.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use faasw_common::text::{Indented, Line};
use faasw_pool::{BudgetAccount, Effort, Fault, InvokeError, LogSink, LogStream, Timing};

use crate::{
    failure::Failure, message::Correlation, metrics::Metrics, node::functions::Function,
    services::outbound::OutboundObserver,
};

/// Follows one request's instance: its log, its number, and the outcome of a response that had
/// already begun.
#[derive(Debug)]
pub(super) struct InvocationObserver {
    pub(super) function: Arc<Function>,
    metrics: Arc<Metrics>,
    pub(super) correlation: Correlation,
    /// 0 until there is an instance.
    instance: AtomicU64,
    /// Receives the instance's number for another follower of the request.
    instance_cell: Option<Arc<AtomicU64>>,
    /// The account in the budget of the client's request, once the invocation starts.
    budget: OnceLock<Arc<BudgetAccount>>,
}

impl InvocationObserver {
    /// Creates the observer of a request with these ids. `instance_cell` receives the number of
    /// its instance, too.
    pub(super) fn new(
        function: Arc<Function>,
        metrics: Arc<Metrics>,
        correlation: Correlation,
        instance_cell: Option<Arc<AtomicU64>>,
    ) -> Self {
        Self {
            function,
            metrics,
            correlation,
            instance: AtomicU64::new(0),
            instance_cell,
            budget: OnceLock::new(),
        }
    }

    /// Charges the CPU time from now on to this account.
    pub(super) fn charge_to(&self, account: Arc<BudgetAccount>) {
        // Each request is charged to one account only.
        let _ = self.budget.set(account);
    }

    /// Returns the number of the instance, if there is one.
    pub(super) fn instance(&self) -> Option<u64> {
        Some(self.instance.load(Ordering::Relaxed)).filter(|number| *number != 0)
    }

    /// Reports a failure in the function's log and in the node's log.
    pub(super) fn report(&self, failure: &Failure) {
        let instance = self.instance.load(Ordering::Relaxed);
        // Each line of the message is a line of its own in the function's log. All but the first
        // are indented, so that none of them can be mistaken for a line that the node begins.
        for line in Indented(failure).to_string().lines() {
            self.add_log_line(line.as_bytes());
        }
        let text = Line(failure);
        let function = self.function.name.as_str();
        let request_id = self.correlation.request_id.as_str();
        let trace = self.correlation.trace().map(tracing::field::display);
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

    /// Adds a line of the node to the function's log.
    fn add_log_line(&self, line: &[u8]) {
        let instance = self.instance.load(Ordering::Relaxed);
        let (log, correlation) = (&self.function.log, Some(&self.correlation));
        log.add(instance, correlation, LogStream::Node, line);
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
        if let Some(account) = self.budget.get() {
            account.charge(cpu);
        }
    }

    fn stream_ended(&self, result: Result<&Timing, &InvokeError>) {
        let name = &self.function.name;
        match result {
            Ok(timing) => self.metrics.record_run(name, timing),
            Err(error) => {
                let failure = Failure::Invoke(error.clone());
                self.report(&failure);
                self.metrics.record_cut_off(name, &failure);
            }
        }
    }
}

impl OutboundObserver for InvocationObserver {
    fn is_function_present(&self) -> bool {
        !self.function.is_removed()
    }

    fn call_made(&self) {
        self.metrics.record_outbound_call(&self.function.name, true);
    }

    fn call_refused(&self, why: &str) {
        self.refusal_repeated();
        self.add_note(why);
    }

    fn refusal_repeated(&self) {
        self.metrics
            .record_outbound_call(&self.function.name, false);
    }

    fn add_note(&self, what: &str) {
        self.add_log_line(what.as_bytes());
    }
}
