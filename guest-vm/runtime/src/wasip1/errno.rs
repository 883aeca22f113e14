//! Error numbers of WASI preview 1, and how a call ends with one.

use wasmtime::{Error, Result};

use crate::failure::Ended;

/// An error number; only those that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Errno {
    /// No such open descriptor.
    Badf = 8,
    /// A pointer leads outside of memory.
    Fault = 21,
    /// An argument has no meaning.
    Inval = 28,
    /// The system has no such function.
    Nosys = 52,
    /// The descriptor is no directory.
    Notdir = 54,
    /// The descriptor is no socket.
    Notsock = 57,
    /// Not supported for this descriptor.
    Notsup = 58,
    /// A number does not fit.
    Overflow = 61,
    /// The descriptor has no position.
    Spipe = 70,
}

/// Why a call did not succeed.
#[derive(Debug)]
pub(super) enum Halt {
    /// The caller gets the number.
    Errno(Errno),
    /// The run ends.
    End(Error),
}

impl From<Errno> for Halt {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<Ended> for Halt {
    fn from(ended: Ended) -> Self {
        Self::End(ended.into())
    }
}

/// What the call returns to Wasm.
pub(super) fn status(result: Result<(), Halt>) -> Result<i32> {
    match result {
        Ok(()) => Ok(0),
        Err(Halt::Errno(errno)) => Ok(errno as i32),
        Err(Halt::End(error)) => Err(error),
    }
}
