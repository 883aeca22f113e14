//! Reports of runs that did not end with a response.
//!
//! Host functions end a run with an `RunEnd`; Wasmtime ends it with a trap. Both become a
//! [`Failure`], whose report is for the function's owner.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::{self, Write};
use core::mem;

use faasw_abi::mailbox::REPORT;
use faasw_abi::outcome::Outcome;
use faasw_abi::trap::TrapKind;
use wasmtime::component::ResourceTableError;
use wasmtime::{Error, FrameInfo, Trap, WasmBacktrace};

use crate::memory::{MemoryLimit, StartMemoryTooLarge};
use crate::platform::SendError;

/// Maximum bytes of one function name in a report; mangled names can be very long.
const MAX_NAME: usize = 200;

/// A run that did not end with a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The outcome, for the client.
    pub outcome: Outcome,
    /// The kind of the trap, if the outcome is one.
    pub trap: Option<TrapKind>,
    /// The exit code of the function; 0 if it did not exit.
    pub exit_code: u32,
    /// Description for the owner of the function, at most as long as the mailbox's report area.
    pub report: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.report)
    }
}

impl core::error::Error for Failure {}

/// A failure before the function was ready, with the platform, so that the caller can report the
/// failure through it.
#[derive(Debug)]
pub struct PreparationFailure<P> {
    /// The platform that the function was to use.
    pub platform: P,
    /// The failure.
    pub failure: Failure,
}

/// A host function's way to end the run; it passes through Wasm as an error.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunEnd {
    /// The function exited.
    Exit(u32),
    /// The platform refused a part of the response.
    Refused(SendError),
}

impl fmt::Display for RunEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exited with code {code}"),
            Self::Refused(SendError::HeadTooLarge) => {
                f.write_str("the response's head is larger than the limit")
            }
            Self::Refused(SendError::TailTooLarge) => {
                f.write_str("the response's trailers are larger than the limit")
            }
        }
    }
}

impl core::error::Error for RunEnd {}

/// The reason why a host function failed.
#[derive(Debug)]
pub enum HostFailure<C> {
    /// The function receives this code.
    Code(C),
    /// The function broke the rules.
    Trap(Error),
}

impl<C> HostFailure<C> {
    /// Returns the code for the function; a trap otherwise.
    pub(crate) fn into_code(self) -> Result<C, Error> {
        match self {
            Self::Code(code) => Ok(code),
            Self::Trap(error) => Err(error),
        }
    }
}

impl<C> From<Error> for HostFailure<C> {
    fn from(error: Error) -> Self {
        Self::Trap(error)
    }
}

impl<C> From<ResourceTableError> for HostFailure<C> {
    fn from(error: ResourceTableError) -> Self {
        Self::Trap(error.into())
    }
}

impl Failure {
    /// Returns a failure with a report and without an exit code.
    pub(crate) fn new(outcome: Outcome, report: impl Into<String>) -> Self {
        Self {
            outcome,
            trap: None,
            exit_code: 0,
            report: bounded(report.into()),
        }
    }

    /// Returns the failure of a function that could not be loaded, linked or instantiated.
    pub(crate) fn load(error: &Error, memory: Option<&MemoryLimit>) -> Self {
        let mut report = describe(error);
        if !error.is::<StartMemoryTooLarge>() {
            note_memory(&mut report, memory);
        }
        Self::new(Outcome::LoadFailed, report)
    }

    /// Returns the failure of a call that ended with `error`, which is no exit with code 0.
    pub(crate) fn run(error: &Error, memory: &MemoryLimit) -> Self {
        if let Some(ended) = error.downcast_ref::<RunEnd>() {
            return match *ended {
                RunEnd::Exit(code) => Self::exit(code),
                RunEnd::Refused(refusal) => Self::refused(refusal),
            };
        }
        let mut report = describe(error);
        note_memory(&mut report, Some(memory));
        Self {
            trap: Some(if memory.denied() {
                TrapKind::MemoryLimit
            } else {
                kind_of(error)
            }),
            ..Self::new(Outcome::Trap, report)
        }
    }

    /// Adds a note about the memory limit if that may be the reason of the failure.
    pub(crate) fn noting(mut self, memory: &MemoryLimit) -> Self {
        note_memory(&mut self.report, Some(memory));
        self.report = bounded(self.report);
        self
    }

    /// Returns the failure of a function that exited.
    pub(crate) fn exit(code: u32) -> Self {
        Self {
            exit_code: code,
            ..Self::new(Outcome::Exit, RunEnd::Exit(code).to_string())
        }
    }

    /// Returns the failure for a part of the response that the platform refused.
    pub(crate) fn refused(refusal: SendError) -> Self {
        Self::new(
            Outcome::ResponseTooLarge,
            RunEnd::Refused(refusal).to_string(),
        )
    }
}

/// Returns the kind of the trap that Wasmtime reports.
fn kind_of(error: &Error) -> TrapKind {
    let Some(trap) = error.downcast_ref::<Trap>() else {
        return TrapKind::Other;
    };
    match trap {
        Trap::UnreachableCodeReached => TrapKind::Unreachable,
        Trap::MemoryOutOfBounds => TrapKind::MemoryOutOfBounds,
        Trap::TableOutOfBounds => TrapKind::TableOutOfBounds,
        Trap::IndirectCallToNull => TrapKind::NullElement,
        Trap::BadSignature => TrapKind::SignatureMismatch,
        Trap::IntegerDivisionByZero => TrapKind::DivideByZero,
        Trap::IntegerOverflow => TrapKind::IntegerOverflow,
        Trap::BadConversionToInteger => TrapKind::BadConversion,
        Trap::StackOverflow => TrapKind::StackExhausted,
        _ => TrapKind::Other,
    }
}

/// Returns the error as text, with the innermost frames if it occurred in Wasm code.
fn describe(error: &Error) -> String {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else {
        return format!("{error:#}");
    };
    let mut report = match error.downcast_ref() {
        Some(ResourceTableError::Full) => "the function holds too many resources".to_string(),
        Some(ResourceTableError::HasChildren) => {
            "the function dropped a resource before its children".to_string()
        }
        _ => error.root_cause().to_string(),
    };
    // Writing to a string cannot fail.
    let mut frames = backtrace
        .frames()
        .iter()
        .map(|frame| Frame(frame).to_string());
    let Some(mut function) = frames.next() else {
        return report;
    };
    let _ = write!(report, " in function '{function}'");
    let mut repeated = 0;
    for caller in frames {
        if caller == function {
            // Endless recursion is reported once.
            repeated += 1;
            continue;
        }
        note_repeated(&mut report, mem::take(&mut repeated));
        let _ = write!(report, "\n  called by '{caller}'");
        function = caller;
    }
    note_repeated(&mut report, repeated);
    report
}

fn note_repeated(report: &mut String, times: usize) {
    if times > 0 {
        let _ = write!(report, "\n  called by itself, {times} times or more");
    }
}

/// Adds a note if a refused growth may be the reason of the failure.
fn note_memory(report: &mut String, memory: Option<&MemoryLimit>) {
    if let Some(memory) = memory.filter(|memory| memory.denied()) {
        // The note comes first, because a long backtrace must not push it out of the report.
        report.insert_str(
            0,
            &format!("memory limit of {} was reached\n", memory.limit_text()),
        );
    }
}

/// A frame, displayed as its function's name, or as its number if names were stripped.
struct Frame<'a>(&'a FrameInfo);

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.func_name() {
            Some(name) => f.write_str(prefix(name, MAX_NAME)),
            None => write!(f, "#{}", self.0.func_index()),
        }
    }
}

/// Cuts the report to the size of the mailbox's report area.
fn bounded(report: String) -> String {
    let most = usize::try_from(REPORT.size).unwrap_or(usize::MAX);
    if report.len() <= most {
        report
    } else {
        prefix(&report, most).to_string()
    }
}

/// Returns the longest prefix of at most `most` bytes that ends between characters.
fn prefix(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasmtime::error::Context as _;

    #[test]
    fn reports_are_cut_between_characters() {
        assert_eq!(prefix("abc", 2), "ab");
        assert_eq!(prefix("aé", 2), "a");
        assert_eq!(prefix("aé", 9), "aé");
        let failure = Failure::new(Outcome::Trap, "é".repeat(4000));
        assert_eq!(failure.report.len(), 4096);
    }

    #[test]
    fn an_exit_keeps_its_code() {
        let error = Error::from(RunEnd::Exit(7));
        let failure = Failure::run(&error, &MemoryLimit::new(0));
        assert_eq!((failure.outcome, failure.exit_code), (Outcome::Exit, 7));
        assert_eq!(failure.trap, None);
        assert_eq!(failure.report, "exited with code 7");
    }

    #[test]
    fn a_refused_growth_is_named_before_the_trap() {
        use wasmtime::ResourceLimiter;
        let mut memory = MemoryLimit::new(1 << 20);
        memory.started();
        assert!(!memory.memory_growing(0, 2 << 20, None).unwrap());
        let failure = Failure::run(&Error::msg("boom"), &memory);
        assert_eq!(failure.report, "memory limit of 1 MiB was reached\nboom");
        assert_eq!(failure.trap, Some(TrapKind::MemoryLimit));
    }

    #[test]
    fn each_trap_that_has_a_kind_has_its_own() {
        let memory = MemoryLimit::new(0);
        let kind = |error: Error| Failure::run(&error, &memory).trap;
        for (trap, expected) in [
            (Trap::UnreachableCodeReached, TrapKind::Unreachable),
            (Trap::MemoryOutOfBounds, TrapKind::MemoryOutOfBounds),
            (Trap::TableOutOfBounds, TrapKind::TableOutOfBounds),
            (Trap::IndirectCallToNull, TrapKind::NullElement),
            (Trap::BadSignature, TrapKind::SignatureMismatch),
            (Trap::IntegerDivisionByZero, TrapKind::DivideByZero),
            (Trap::IntegerOverflow, TrapKind::IntegerOverflow),
            (Trap::BadConversionToInteger, TrapKind::BadConversion),
            (Trap::StackOverflow, TrapKind::StackExhausted),
            (Trap::NullReference, TrapKind::Other),
        ] {
            assert_eq!(kind(trap.into()), Some(expected), "{trap}");
            let told: Result<(), Error> = Err(trap.into());
            let in_context = told.context("in a host function").unwrap_err();
            assert_eq!(kind(in_context), Some(expected), "{trap}");
        }
        // A text has no kind.
        assert_eq!(kind(Error::msg("integer overflow")), Some(TrapKind::Other));
    }
}
