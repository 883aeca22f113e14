//! Error numbers of WASI preview 1.

use core::num::TryFromIntError;

use wasmtime::Error;

use crate::failure::RunEnd;
use crate::files::FileError;

/// An error number; only those that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Errno {
    /// The descriptor is not open.
    Badf = 8,
    /// The object is in use.
    Busy = 10,
    /// The object exists already.
    Exist = 20,
    /// A pointer leads outside of memory.
    Fault = 21,
    /// A file would be too large.
    Fbig = 22,
    /// A path is not UTF-8.
    Ilseq = 25,
    /// An argument has no meaning.
    Inval = 28,
    /// The object is a directory.
    Isdir = 31,
    /// The path has too many links.
    Loop = 32,
    /// Too many descriptors are open.
    Mfile = 33,
    /// A name is too long.
    Nametoolong = 37,
    /// The object does not exist.
    Noent = 44,
    /// No memory is left.
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
    /// The operation is not permitted.
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

impl From<TryFromIntError> for Errno {
    fn from(_: TryFromIntError) -> Self {
        Self::Overflow
    }
}

/// The reason why a call did not succeed.
#[derive(Debug)]
pub(super) enum Halt {
    /// The caller receives the number.
    Errno(Errno),
    /// The run ends.
    End(Error),
}

impl<E> From<E> for Halt
where
    Errno: From<E>,
{
    fn from(error: E) -> Self {
        Self::Errno(error.into())
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::End(error)
    }
}

impl From<RunEnd> for Halt {
    fn from(ended: RunEnd) -> Self {
        Self::End(ended.into())
    }
}
