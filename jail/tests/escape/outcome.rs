//! The outcome of an attack, as the testbed reports it.

use std::fmt;

/// The outcome of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A signal ended the process.
    Signal(i32),
    /// The kernel returned this error number.
    Refused(i32),
    /// The attack succeeded.
    Succeeded,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Refused(errno) => write!(f, "errno {errno}"),
            Self::Succeeded => write!(f, "succeeded 0"),
        }
    }
}

impl Outcome {
    /// Returns the outcome of a process that exits with zero or an error number.
    pub fn of(status: rustix::process::WaitStatus) -> Self {
        match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => Self::Signal(signal),
            (None, Some(0)) => Self::Succeeded,
            (None, code) => Self::Refused(code.unwrap()),
        }
    }

    /// Parses the output of [`fmt::Display`].
    pub fn read(text: &str) -> Option<Self> {
        let (what, number) = text.split_once(' ')?;
        let number = number.parse().ok()?;
        match what {
            "signal" => Some(Self::Signal(number)),
            "errno" => Some(Self::Refused(number)),
            "succeeded" => Some(Self::Succeeded),
            _ => None,
        }
    }
}
