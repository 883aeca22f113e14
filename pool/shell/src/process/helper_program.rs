//! The compile helper's program, as launcher and spawner have it from the node.
//!
//! It is in a file of its own at [`HELPER_FD`]; or that is empty until the first helper is started, and
//! the program lies in the file at [`CARRIER_FD`], where the argument that begins with [`ARGUMENT`]
//! says. The node has let go of both by the time that anything of a tenant's comes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use faasw_cell::carried::Carried;
use faasw_cell::{helper, out_of_the_way};
use rustix::io::Errno;

use crate::{CARRIER_FD, HELPER_FD};

/// What the argument begins with; behind it are offset and size of the program in bytes, with a
/// comma between them.
pub const ARGUMENT: &str = "--helper-at=";

/// Where the program lies that is to be put into its own file.
struct Place {
    by: OwnedFd,
    offset: u64,
    bytes: u64,
}

/// The program.
pub struct HelperProgram {
    file: OwnedFd,
    place: Option<Place>,
}

/// Offset and size out of such an argument.
fn read(argument: &str) -> Option<(u64, u64)> {
    let (offset, bytes) = argument.strip_prefix(ARGUMENT)?.split_once(',')?;
    Some((offset.parse().ok()?, bytes.parse().ok()?))
}

impl HelperProgram {
    /// What this process was started with. Nothing else in it may own the descriptors.
    ///
    /// # Errors
    /// When the argument makes no sense.
    pub fn inherited() -> io::Result<Self> {
        let argument = std::env::args().find(|word| word.starts_with(ARGUMENT));
        let place = match argument {
            Some(argument) => {
                let senseless = || io::Error::other(format!("{argument} makes no sense"));
                let (offset, bytes) = read(&argument).ok_or_else(senseless)?;
                // SAFETY: it is there where the argument is, and nobody else's.
                let by = unsafe { OwnedFd::from_raw_fd(CARRIER_FD) };
                Some(Place { by, offset, bytes })
            }
            None => None,
        };
        Ok(Self {
            // SAFETY: the node starts this program with it, and it is nobody else's.
            file: unsafe { OwnedFd::from_raw_fd(HELPER_FD) },
            place,
        })
    }

    /// The first number behind those of its descriptors.
    pub fn end(&self) -> i32 {
        match self.place {
            Some(_) => CARRIER_FD + 1,
            None => HELPER_FD + 1,
        }
    }

    /// Its descriptors, with the numbers that another process is to find them at.
    pub fn descriptors(&self) -> impl Iterator<Item = (i32, BorrowedFd<'_>)> {
        let by = self.place.as_ref().map(|place| place.by.as_fd());
        let file = (HELPER_FD, self.file.as_fd());
        [file].into_iter().chain(by.map(|by| (CARRIER_FD, by)))
    }

    /// The same, with numbers that no cell uses.
    ///
    /// # Errors
    /// The system's.
    pub fn out_of_the_way(self) -> Result<Self, Errno> {
        let place = match self.place {
            Some(place) => Some(Place {
                by: out_of_the_way(place.by)?,
                ..place
            }),
            None => None,
        };
        let file = out_of_the_way(self.file)?;
        Ok(Self { file, place })
    }

    /// As it is started.
    pub fn program(&self) -> helper::Program<'_> {
        let carried = self.place.as_ref().map(|place| Carried {
            by: place.by.as_fd(),
            offset: place.offset,
            bytes: place.bytes,
        });
        helper::Program {
            file: self.file.as_fd(),
            carried,
            variables: &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_two_numbers_or_nothing() {
        assert_eq!(read("--helper-at=4096,20"), Some((4096, 20)));
        let wrong = [
            "",
            "4096,20",
            "--helper-at=",
            "--helper-at=1",
            "--helper-at=1,",
        ];
        for argument in wrong {
            assert_eq!(read(argument), None, "{argument}");
        }
        assert_eq!(read("--helper-at=-1,2"), None);
        assert_eq!(read("--helper-at=1,99999999999999999999"), None);
    }
}
