//! Events for the embedding program, reported as they happen.

use std::{fmt, sync::Arc};

use faasw_client::{FunctionName, LogLine};

use crate::message::{AccessRecord, RequestCallback};

/// Something that happened to a function.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The function's module is being compiled.
    Compiling {
        /// The function.
        function: &'a FunctionName,
        /// Size of the module in bytes.
        module_bytes: usize,
    },
    /// A language engine is being compiled.
    CompilingEngine {
        /// The engine.
        engine: &'a FunctionName,
        /// Size of its component in bytes.
        module_bytes: usize,
    },
    /// The function is being initialised, before its first request.
    Initialising {
        /// The function.
        function: &'a FunctionName,
    },
    /// The function's seed is being made.
    MakingSeed {
        /// The function.
        function: &'a FunctionName,
    },
    /// The function's log has a new line.
    Log {
        /// The function.
        function: &'a FunctionName,
        /// The line.
        line: &'a LogLine,
    },
    /// A request has finished, whether a function or the node answered it. Reported only with
    /// [`NodeBuilder::observe_requests`](crate::NodeBuilder::observe_requests).
    Request {
        /// The record of the request.
        record: &'a AccessRecord,
    },
}

/// The callback for events, if one is set.
#[derive(Clone, Default)]
pub(crate) struct Observer(Option<Arc<EventCallback>>);

type EventCallback = dyn Fn(Event<'_>) + Send + Sync;

impl Observer {
    pub(crate) fn new(tell: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    pub(crate) fn notify(&self, event: Event<'_>) {
        if let Some(tell) = &self.0 {
            tell(event);
        }
    }

    /// Returns the callback for finished requests, if one is set.
    pub(crate) fn of_requests(&self) -> Option<Arc<RequestCallback>> {
        let tell = self.0.clone()?;
        Some(Arc::new(move |record: &AccessRecord| {
            tell(Event::Request { record });
        }))
    }

    pub(crate) fn log(&self, function: &FunctionName, line: &LogLine) {
        self.notify(Event::Log { function, line });
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
