//! The programs that a spawner starts, as launcher and spawner have them from the node: the compile
//! helper's, and that of connector and workers.
//!
//! Each is in a file of its own; or that is empty until the program is started first, and it lies
//! in another file, where an argument says. The node has let go of both by the time that anything
//! of a tenant's comes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use faasw_jail::carried::Carried;
use faasw_jail::{Program, out_of_the_way};
use rustix::io::Errno;

/// Where a program is given.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// The program, or a file in memory for it.
    pub file: RawFd,
    /// The file that it lies in until it is started first, if it was given like that.
    pub carrier: RawFd,
    /// What the argument begins with that says where it lies there: behind it are offset and size
    /// in bytes, with a comma between them.
    pub argument: &'static str,
    /// Whether all that is started of it is started from one file.
    pub is_shared: bool,
}

/// The compile helper's.
pub const COMPILER: Numbers = Numbers {
    file: 4,
    carrier: 5,
    argument: "--helper-at=",
    // It is seldom wanted, and large.
    is_shared: false,
};

/// That of connector and workers.
pub const EGRESS: Numbers = Numbers {
    file: 6,
    carrier: 7,
    argument: "--egress-at=",
    is_shared: true,
};

/// The first number behind all of them.
pub const END: RawFd = 8;

/// Where a program lies that is to be put into its own file.
struct Place {
    by: OwnedFd,
    offset: u64,
    bytes: u64,
}

/// A program that was given.
pub struct Given {
    numbers: Numbers,
    file: OwnedFd,
    place: Option<Place>,
}

/// All of them.
pub struct Programs {
    /// The compile helper.
    pub compiler: Given,
    /// Connector and workers.
    pub egress: Given,
}

/// Offset and size out of the argument that begins like that.
fn read(begin: &str, argument: &str) -> Option<(u64, u64)> {
    let (offset, bytes) = argument.strip_prefix(begin)?.split_once(',')?;
    Some((offset.parse().ok()?, bytes.parse().ok()?))
}

impl Given {
    fn inherited(numbers: Numbers) -> io::Result<Self> {
        let begin = numbers.argument;
        let argument = std::env::args().find(|word| word.starts_with(begin));
        let place = match argument {
            Some(argument) => {
                let senseless = || io::Error::other(format!("{argument} makes no sense"));
                let (offset, bytes) = read(begin, &argument).ok_or_else(senseless)?;
                // SAFETY: it is there where the argument is, and nobody else's.
                let by = unsafe { OwnedFd::from_raw_fd(numbers.carrier) };
                Some(Place { by, offset, bytes })
            }
            None => {
                // What a launcher has there itself is not for its spawners.
                // SAFETY: nothing in this process owns that number.
                unsafe { libc::close(numbers.carrier) };
                None
            }
        };
        Ok(Self {
            numbers,
            // SAFETY: the node starts this program with it, and it is nobody else's.
            file: unsafe { OwnedFd::from_raw_fd(numbers.file) },
            place,
        })
    }

    /// Its descriptors, with the numbers that another process is to find them at.
    fn descriptors(&self) -> impl Iterator<Item = (RawFd, BorrowedFd<'_>)> {
        let by = self.place.as_ref().map(|place| place.by.as_fd());
        let file = (self.numbers.file, self.file.as_fd());
        let carrier = self.numbers.carrier;
        [file].into_iter().chain(by.map(move |by| (carrier, by)))
    }

    fn out_of_the_way(self) -> Result<Self, Errno> {
        let place = match self.place {
            Some(place) => Some(Place {
                by: out_of_the_way(place.by)?,
                ..place
            }),
            None => None,
        };
        let file = out_of_the_way(self.file)?;
        Ok(Self {
            file,
            place,
            ..self
        })
    }

    /// As it is started.
    pub fn program(&self) -> Program<'_> {
        let carried = self.place.as_ref().map(|place| Carried {
            by: place.by.as_fd(),
            offset: place.offset,
            bytes: place.bytes,
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
    /// What this process was started with. Nothing else in it may own the descriptors.
    ///
    /// # Errors
    /// When an argument makes no sense.
    pub fn inherited() -> io::Result<Self> {
        Ok(Self {
            compiler: Given::inherited(COMPILER)?,
            egress: Given::inherited(EGRESS)?,
        })
    }

    /// Their descriptors, with the numbers that another process is to find them at.
    pub fn descriptors(&self) -> impl Iterator<Item = (RawFd, BorrowedFd<'_>)> {
        let compiler = self.compiler.descriptors();
        compiler.chain(self.egress.descriptors())
    }

    /// The same, with numbers that no jail uses.
    ///
    /// # Errors
    /// The system's.
    pub fn out_of_the_way(self) -> Result<Self, Errno> {
        Ok(Self {
            compiler: self.compiler.out_of_the_way()?,
            egress: self.egress.out_of_the_way()?,
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
