//! Telling the embedding program what happens, as it happens.

use std::{fmt, sync::Arc};

use faasw_client::{FunctionName, LogLine};

use crate::message::{AccessRecord, TellRequest};

/// Something that happened to a function.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Its module is being compiled.
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
    /// It does what it does before its first request.
    Initialising {
        /// The function.
        function: &'a FunctionName,
    },
    /// Its seed is being made.
    MakingSeed {
        /// The function.
        function: &'a FunctionName,
    },
    /// Its log has a new line.
    Log {
        /// The function.
        function: &'a FunctionName,
        /// The line.
        line: &'a LogLine,
    },
    /// A request is over, whoever answered it. Only where that was asked for
    /// ([`NodeBuilder::observe_requests`](crate::NodeBuilder::observe_requests)).
    Request {
        /// What there is to say of it.
        record: &'a AccessRecord,
    },
}

/// Whom to tell, if anybody.
#[derive(Clone, Default)]
pub(crate) struct Observer(Option<Arc<Tell>>);

type Tell = dyn Fn(Event<'_>) + Send + Sync;

impl Observer {
    pub(crate) fn new(tell: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    pub(crate) fn tell(&self, event: Event<'_>) {
        if let Some(tell) = &self.0 {
            tell(event);
        }
    }

    /// Whom to tell of requests, if anybody.
    pub(crate) fn of_requests(&self) -> Option<Arc<TellRequest>> {
        let tell = self.0.clone()?;
        Some(Arc::new(move |record: &AccessRecord| {
            tell(Event::Request { record });
        }))
    }

    pub(crate) fn log(&self, function: &FunctionName, line: &LogLine) {
        self.tell(Event::Log { function, line });
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
