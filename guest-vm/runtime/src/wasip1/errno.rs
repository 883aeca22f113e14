//! Error numbers of WASI preview 1, and how a call ends with one.

use wasmtime::{Error, Result};

use crate::failure::Ended;
use crate::files::FileError;

/// An error number; only those that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Errno {
    /// No such open descriptor.
    Badf = 8,
    /// It is in use.
    Busy = 10,
    /// It is there already.
    Exist = 20,
    /// A pointer leads outside of memory.
    Fault = 21,
    /// A file would be too large.
    Fbig = 22,
    /// A path is no text.
    Ilseq = 25,
    /// An argument has no meaning.
    Inval = 28,
    /// It is a directory.
    Isdir = 31,
    /// Too many links on the way.
    Loop = 32,
    /// Too many descriptors are open.
    Mfile = 33,
    /// A name is too long.
    Nametoolong = 37,
    /// There is nothing.
    Noent = 44,
    /// No memory is left for it.
    Nospc = 51,
    /// The system has no such function.
    Nosys = 52,
    /// The descriptor is no directory.
    Notdir = 54,
    /// The directory is not empty.
    Notempty = 55,
    /// The descriptor is no socket.
    Notsock = 57,
    /// Not supported for this descriptor.
    Notsup = 58,
    /// A number does not fit.
    Overflow = 61,
    /// It is not allowed.
    Perm = 63,
    /// The descriptor has no position.
    Spipe = 70,
}

impl From<FileError> for Errno {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Exists => Self::Exist,
            FileError::NoEntry => Self::Noent,
            FileError::NotFolder => Self::Notdir,
            FileError::IsFolder => Self::Isdir,
            FileError::NotEmpty => Self::Notempty,
            FileError::Loop => Self::Loop,
            FileError::NameTooLong => Self::Nametoolong,
            FileError::LeadsOut | FileError::NotPermitted => Self::Perm,
            FileError::Invalid => Self::Inval,
            FileError::NoSpace => Self::Nospc,
            FileError::TooLarge => Self::Fbig,
            FileError::Busy => Self::Busy,
        }
    }
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

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::End(error)
    }
}

impl From<FileError> for Halt {
    fn from(error: FileError) -> Self {
        Self::Errno(error.into())
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
