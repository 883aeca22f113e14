//! The programs that a spawner starts, as launcher and spawner receive them from the node: the
//! compile helper, and the program of connector and workers.
//!
//! Each program is in a file of its own. Or that file is empty until the first start, and an
//! argument says where in another file the program lies. The node has closed both before any
//! tenant's data arrives.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use faasw_jail::embedded_program::EmbeddedProgram;
use faasw_jail::{Program, dup_to_high_fd};
use rustix::io::Errno;

/// The descriptor numbers of a program, and its argument.
#[derive(Clone, Copy, Debug)]
pub struct ProgramDescriptors {
    /// The program, or a file in memory for it.
    pub file: RawFd,
    /// The file in which the program lies until its first start, if it is passed that way.
    pub carrier: RawFd,
    /// The prefix of the argument that says where in the carrier the program lies. Behind the
    /// prefix are offset and size in bytes, with a comma between them.
    pub argument: &'static str,
    /// All processes of the program are started from one file.
    pub is_shared: bool,
}

/// The numbers of the compile helper.
pub const COMPILER: ProgramDescriptors = ProgramDescriptors {
    file: 4,
    carrier: 5,
    argument: "--helper-at=",
    // The compile helper is large and seldom started.
    is_shared: false,
};

/// The numbers of the program of connector and workers.
pub const EGRESS: ProgramDescriptors = ProgramDescriptors {
    file: 6,
    carrier: 7,
    argument: "--egress-at=",
    is_shared: true,
};

/// The first number after all of them.
pub const END: RawFd = 8;

/// The place of a program that is to be copied to its own file.
struct EmbeddedLocation {
    by: OwnedFd,
    offset: u64,
    bytes: u64,
}

/// A program that the node has passed.
pub struct PassedProgram {
    numbers: ProgramDescriptors,
    file: OwnedFd,
    location: Option<EmbeddedLocation>,
}

/// All programs that a spawner starts.
pub struct Programs {
    /// The compile helper.
    pub compiler: PassedProgram,
    /// Connector and workers.
    pub egress: PassedProgram,
}

/// Parses offset and size from an argument with the prefix `begin`.
fn read(begin: &str, argument: &str) -> Option<(u64, u64)> {
    let (offset, bytes) = argument.strip_prefix(begin)?.split_once(',')?;
    Some((offset.parse().ok()?, bytes.parse().ok()?))
}

impl PassedProgram {
    fn inherited(numbers: ProgramDescriptors) -> io::Result<Self> {
        let begin = numbers.argument;
        let argument = std::env::args().find(|word| word.starts_with(begin));
        let location = match argument {
            Some(argument) => {
                let senseless = || io::Error::other(format!("{argument} makes no sense"));
                let (offset, bytes) = read(begin, &argument).ok_or_else(senseless)?;
                // SAFETY: the descriptor is open if the argument is there, and nothing else owns
                // it.
                let by = unsafe { OwnedFd::from_raw_fd(numbers.carrier) };
                Some(EmbeddedLocation { by, offset, bytes })
            }
            None => {
                // A launcher's own descriptor of that number is not for its spawners.
                // SAFETY: nothing in this process owns that number.
                unsafe { libc::close(numbers.carrier) };
                None
            }
        };
        Ok(Self {
            numbers,
            // SAFETY: the node starts this program with this descriptor, and nothing else owns it.
            file: unsafe { OwnedFd::from_raw_fd(numbers.file) },
            location,
        })
    }

    /// Returns the program's descriptors, with the numbers at which another process expects them.
    fn descriptors(&self) -> impl Iterator<Item = (RawFd, BorrowedFd<'_>)> {
        let by = self.location.as_ref().map(|location| location.by.as_fd());
        let file = (self.numbers.file, self.file.as_fd());
        let carrier = self.numbers.carrier;
        [file].into_iter().chain(by.map(move |by| (carrier, by)))
    }

    fn dup_to_high_fd(self) -> Result<Self, Errno> {
        let location = match self.location {
            Some(location) => Some(EmbeddedLocation {
                by: dup_to_high_fd(location.by)?,
                ..location
            }),
            None => None,
        };
        let file = dup_to_high_fd(self.file)?;
        Ok(Self {
            file,
            location,
            ..self
        })
    }

    /// Returns the program in the form in which it is started.
    pub fn program(&self) -> Program<'_> {
        let carried = self.location.as_ref().map(|location| EmbeddedProgram {
            by: location.by.as_fd(),
            offset: location.offset,
            bytes: location.bytes,
            is_shared: self.numbers.is_shared,
        });
        Program {
            file: self.file.as_fd(),
            carried,
            variables: &[],
        }
    }
}

impl Programs {
    /// Takes the programs that this process was started with. Nothing else in it may own the
    /// descriptors.
    ///
    /// # Errors
    /// Returns an error if an argument cannot be parsed.
    pub fn inherited() -> io::Result<Self> {
        Ok(Self {
            compiler: PassedProgram::inherited(COMPILER)?,
            egress: PassedProgram::inherited(EGRESS)?,
        })
    }

    /// Returns all descriptors, with the numbers at which another process expects them.
    pub fn descriptors(&self) -> impl Iterator<Item = (RawFd, BorrowedFd<'_>)> {
        let compiler = self.compiler.descriptors();
        compiler.chain(self.egress.descriptors())
    }

    /// Moves all descriptors to numbers that no jail uses.
    ///
    /// # Errors
    /// Returns the error of duplicating a descriptor.
    pub fn dup_to_high_fd(self) -> Result<Self, Errno> {
        Ok(Self {
            compiler: self.compiler.dup_to_high_fd()?,
            egress: self.egress.dup_to_high_fd()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_two_numbers_or_nothing() {
        let read = |argument| read(COMPILER.argument, argument);
        assert_eq!(read("--helper-at=4096,20"), Some((4096, 20)));
        let wrong = [
            "",
            "4096,20",
            "--helper-at=",
            "--helper-at=1",
            "--helper-at=1,",
            "--egress-at=4096,20",
        ];
        for argument in wrong {
            assert_eq!(read(argument), None, "{argument}");
        }
        assert_eq!(read("--helper-at=-1,2"), None);
        assert_eq!(read("--helper-at=1,99999999999999999999"), None);
    }
}
