//! Files in memory.

use std::os::fd::OwnedFd;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;

/// `MFD_NOEXEC_SEAL` (memfd_create(2)).
const NOEXEC_SEAL: MemfdFlags = MemfdFlags::from_bits_retain(8);

/// An empty file in memory that can be sealed, and that nobody can execute: whoever has
/// its descriptor may be under attack. Systems before Linux 6.3 cannot forbid that.
///
/// # Errors
/// The system's, when it has no memory or descriptors.
pub fn memory_file(name: &str) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_in_memory_is_not_executed() {
        let forbids = rustix::fs::memfd_create("probe", NOEXEC_SEAL).is_ok();
        let file = memory_file("program").unwrap();
        let mode = rustix::fs::fstat(&file).unwrap().st_mode;
        assert_eq!(mode & 0o111 == 0, forbids);
        let program = std::fs::read("/bin/true").unwrap();
        assert_eq!(rustix::io::write(&file, &program), Ok(program.len()));
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let again = Command::new("chmod").args(["755", &path]).output().unwrap();
        assert_eq!(again.status.success(), !forbids, "{again:?}");
        assert_eq!(Command::new(path).spawn().is_ok(), !forbids);
    }
}
