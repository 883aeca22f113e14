//! Files in memory.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;

/// `MFD_NOEXEC_SEAL` (memfd_create(2)).
const NOEXEC_SEAL: MemfdFlags = MemfdFlags::from_bits_retain(8);

/// Returns an empty memory file that can be sealed and cannot be executed, because a process with
/// its descriptor may be compromised. Systems before Linux 6.3 cannot forbid execution.
///
/// # Errors
/// Returns the error of `memfd_create`, if the system has no memory or descriptors left.
pub fn memory_file(name: &str) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }
}

/// Seals a memory file permanently: it cannot be written, nor become longer or shorter.
///
/// The kernel or another process may pin some of its pages for a moment, for example to migrate
/// them or to write them out. The system waits for that, but only for some 150 ms
/// (`memfd_wait_for_pins` in `mm/memfd.c`), so sealing is retried.
///
/// # Errors
/// Returns `BUSY` if the file is mapped for writing or its pages are pinned for seconds, and other
/// errors of `fcntl`.
pub fn seal(file: &OwnedFd) -> Result<(), Errno> {
    const TRIES: usize = 20;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    let mut left = TRIES;
    loop {
        left -= 1;
        match rustix::fs::fcntl_add_seals(file, seals) {
            Err(Errno::BUSY) if left > 0 => {}
            sealed => return sealed,
        }
    }
}

/// Opens the same file by a descriptor that cannot write.
///
/// # Errors
/// Returns the error of `open`.
pub fn reopen_read_only(file: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::fs::open(
        format!("/proc/self/fd/{}", file.as_raw_fd()),
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Writes `content` at `offset`.
///
/// # Errors
/// Returns the error of `pwrite`, for example `FBIG` beyond the end of a sealed size.
pub fn write_at(file: impl AsFd, mut offset: u64, mut content: &[u8]) -> Result<(), Errno> {
    while !content.is_empty() {
        let written = rustix::io::pwrite(&file, content, offset)?;
        content = content.get(written..).unwrap_or_default();
        offset += written as u64;
    }
    Ok(())
}

/// Fills `out` from `offset` on.
///
/// # Errors
/// Returns `IO` if the file ends too early, and the errors of `pread`.
pub fn read_at(file: impl AsFd, mut offset: u64, mut out: &mut [u8]) -> Result<(), Errno> {
    while !out.is_empty() {
        let count = rustix::io::pread(&file, &mut *out, offset)?;
        if count == 0 {
            return Err(Errno::IO);
        }
        out = out.get_mut(count..).unwrap_or_default();
        offset += count as u64;
    }
    Ok(())
}

/// Returns the bytes of memory that a file takes.
///
/// # Errors
/// Returns the error of `fstat`.
pub fn held_bytes(file: &OwnedFd) -> Result<u64, Errno> {
    /// The unit of stat(2), whatever the file's own block size.
    const BLOCK: u64 = 512;
    let blocks = rustix::fs::fstat(file)?.st_blocks;
    Ok(u64::try_from(blocks).unwrap_or(0).saturating_mul(BLOCK))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn sealing_waits_for_pages_that_are_briefly_held() {
        let file = memory_file("held").unwrap();
        rustix::io::write(&file, &[1; 4096]).unwrap();
        // A pipe that holds pages by reference pins them.
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut at = 0;
        let put = rustix::fs::sendfile(&writer, &file, Some(&mut at), 4096);
        assert_eq!(put, Ok(4096));
        let held = rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE);
        assert_eq!(held, Err(Errno::BUSY));
        std::thread::scope(|scope| {
            let sealing = scope.spawn(|| seal(&file));
            // The pages are released once sealing has begun, and after the time that the system
            // waits.
            std::thread::sleep(std::time::Duration::from_millis(400));
            std::io::Read::read_exact(&mut reader, &mut [0; 4096]).unwrap();
            assert_eq!(sealing.join().unwrap(), Ok(()));
        });
        assert_eq!(rustix::io::write(&file, &[1]), Err(Errno::PERM));
    }

    #[test]
    fn memory_files_cannot_be_executed() {
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
