//! Programs that are carried inside this one, made startable.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;

/// A descriptor from which `program` can be executed.
///
/// It is a sealed file in memory; where the host forbids executing those
/// (`vm.memfd_noexec=2`) it is a private file that has no name any more.
///
/// # Errors
/// The system's.
pub fn prepare(name: &str, program: &[u8]) -> io::Result<OwnedFd> {
    match in_memory(name, program) {
        Ok(file) => Ok(file),
        Err(Errno::ACCESS | Errno::PERM) => without_name(program),
        Err(errno) => Err(errno.into()),
    }
}

fn in_memory(name: &str, program: &[u8]) -> Result<OwnedFd, Errno> {
    const EXEC: MemfdFlags = MemfdFlags::from_bits_retain(0x10);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match rustix::fs::memfd_create(name, flags | EXEC) {
        // A kernel before 6.3 does not know the flag, and needs none.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }?;
    write_all(&file, program)?;
    faasw_seedtree::seal(&file)?;
    Ok(file)
}

fn without_name(program: &[u8]) -> io::Result<OwnedFd> {
    let writer = rustix::fs::open(
        std::env::temp_dir(),
        OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
        Mode::RWXU,
    )?;
    write_all(&writer, program)?;
    // A file that is open for writing cannot be executed.
    let reader = rustix::fs::open(
        format!("/proc/self/fd/{}", writer.as_raw_fd()),
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    Ok(reader)
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = rustix::io::write(file, bytes)?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}
