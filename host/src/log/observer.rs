//! Telling the embedding program what happens, as it happens.

use faasw_control::{FunctionName, LogLine};
use std::{fmt, sync::Arc};

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

    pub(crate) fn log(&self, function: &FunctionName, line: &LogLine) {
        self.tell(Event::Log { function, line });
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
