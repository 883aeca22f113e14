//! Making programs executable that are carried inside this one: at once, or later by the process
//! that starts them.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;

use faasw_jail::embedded_program::create_executable_memfd;
use faasw_seedtree::{reopen_read_only, write_at};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::own_file::{self, FileRange};

/// Returns a descriptor from which `program` can be executed.
///
/// The file is a sealed one in memory. If the host forbids executing those (`vm.memfd_noexec=2`),
/// it is a private file without a name.
///
/// # Errors
/// Returns the error of the system if no file can be made.
pub fn prepare(name: &CStr, program: &[u8]) -> io::Result<OwnedFd> {
    match in_memory(name, program) {
        Ok(file) => Ok(file),
        Err(Errno::ACCESS | Errno::PERM) => without_name(program),
        Err(errno) => Err(errno.into()),
    }
}

/// A program that may be started later.
#[derive(Debug)]
pub struct DeferredProgram {
    /// The program, or an empty file in memory for it.
    pub file: OwnedFd,
    /// The position of the program in a file, if it has to be written to the file before it is
    /// started.
    pub range: Option<FileRange>,
}

/// Returns an empty file and the position of `program` in this process's own file, if it can be
/// found there: the program need not be read before it is started. Otherwise as [`prepare`].
///
/// # Errors
/// Returns the error of the system if no file can be made.
pub fn prepare_deferred(name: &CStr, program: &'static [u8]) -> io::Result<DeferredProgram> {
    if let Some(range) = own_file::locate(program)
        && let Ok(file) = create_executable_memfd(name)
    {
        let range = Some(range);
        return Ok(DeferredProgram { file, range });
    }
    let file = prepare(name, program)?;
    Ok(DeferredProgram { file, range: None })
}

fn in_memory(name: &CStr, program: &[u8]) -> Result<OwnedFd, Errno> {
    let file = create_executable_memfd(name)?;
    write_at(&file, 0, program)?;
    faasw_seedtree::seal(&file)?;
    Ok(file)
}

fn without_name(program: &[u8]) -> io::Result<OwnedFd> {
    let writer = rustix::fs::open(
        std::env::temp_dir(),
        OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
        Mode::RWXU,
    )?;
    write_at(&writer, 0, program)?;
    // A file that is open for writing cannot be executed.
    Ok(reopen_read_only(&writer)?)
}
