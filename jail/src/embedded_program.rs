//! A program that lies in another program's file. The process that is about to run it copies it to
//! a file of its own: most nodes that restart have nothing to compile, and the compiler is 20 MB.
//!
//! The file is in memory. It is sealed once it is complete, and not executed before. A shared file
//! is empty at first. Several processes may find it unsealed at once, and one may be ended in the
//! middle. Each writes the same bytes to the same places, so no process has to wait for another.
//! The first to finish seals the file. A file that is not shared is made by the process that runs
//! the program, and is released with it: 20 MB must not stay for good because something was
//! compiled once.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

/// Bytes that are copied at once.
const PIECE: usize = 256 << 10;

/// How often sealing is tried while a process holds pages: the kernel itself waits some 150 ms each
/// time.
const TRIES: usize = 20;

/// No process can write to the file, change its size, or remove the seals.
const SEALED: SealFlags = SealFlags::WRITE
    .union(SealFlags::GROW)
    .union(SealFlags::SHRINK)
    .union(SealFlags::SEAL);

/// The place of a program in another file.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedProgram<'a> {
    /// The file that contains it. Its contents must not change: those of a running program's file
    /// do not, because the kernel refuses to write to it (`ETXTBSY`, execve(2)).
    pub by: BorrowedFd<'a>,
    /// The offset in that file, in bytes.
    pub offset: u64,
    /// The program's size in bytes.
    pub bytes: u64,
    /// Whether it is copied to a file from which others run it as well; otherwise each process has
    /// its own.
    pub is_shared: bool,
}

/// Creates an empty file in memory that may be executed.
///
/// # Errors
/// Returns the error of `memfd_create`.
pub fn create_executable_memfd(name: &CStr) -> Result<OwnedFd, Errno> {
    /// `MFD_EXEC` of memfd_create(2).
    const EXEC: MemfdFlags = MemfdFlags::from_bits_retain(0x10);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | EXEC) {
        // A kernel before 6.3 does not know the flag, and needs none.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }
}

impl EmbeddedProgram<'_> {
    /// Copies the program to a new sealed file in memory.
    ///
    /// # Errors
    /// As [`EmbeddedProgram::seal_copy_into`], and the error of creating the file.
    pub fn sealed_copy(&self, name: &CStr) -> Result<OwnedFd, Errno> {
        let file = create_executable_memfd(name)?;
        self.copy_to(file.as_fd())?;
        seal(file.as_fd())?;
        Ok(file)
    }

    /// Makes `file` a sealed copy of the program, or returns at once if it is one. `file` must be
    /// in memory, and contain nothing but the program or a part of it.
    ///
    /// # Errors
    /// Returns `NOEXEC` if the other file ends before the program does; otherwise the error of a
    /// system call, for example if there is no memory. Bytes that were written stay, and the next
    /// attempt starts again.
    pub fn seal_copy_into(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        if is_sealed(file)? {
            return Ok(());
        }
        match self.copy_to(file).and_then(|()| seal(file)) {
            // A different process has sealed the file before.
            Err(Errno::PERM) if is_sealed(file)? => Ok(()),
            done => done,
        }
    }

    fn copy_to(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut buffer = vec![0; PIECE];
        let mut copied = 0;
        while copied < self.bytes {
            let rest = usize::try_from(self.bytes - copied).unwrap_or(PIECE);
            let piece = buffer.get_mut(..rest.min(PIECE)).unwrap_or_default();
            let from = self.offset.checked_add(copied).ok_or(Errno::OVERFLOW)?;
            let read = match rustix::io::pread(self.by, &mut *piece, from)? {
                0 => return Err(Errno::NOEXEC),
                read => read,
            };
            let mut left = piece.get(..read).unwrap_or_default();
            while !left.is_empty() {
                let written = rustix::io::pwrite(file, left, copied)?;
                left = left.get(written..).unwrap_or_default();
                copied += written as u64;
            }
        }
        Ok(())
    }
}

fn is_sealed(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(rustix::fs::fcntl_get_seals(file)?.contains(SEALED))
}

fn seal(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut left = TRIES;
    loop {
        left -= 1;
        match rustix::fs::fcntl_add_seals(file, SEALED) {
            Err(Errno::BUSY) if left > 0 => {}
            sealed => return sealed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    /// The bytes before the program.
    const BEFORE: u64 = 4097;

    fn in_memory() -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        rustix::fs::memfd_create("carried", flags).unwrap()
    }

    /// A file that contains this program, with other bytes before and after it.
    fn carrying(program: &[u8]) -> File {
        let mut file = File::from(in_memory());
        file.write_all(&[7; BEFORE as usize]).unwrap();
        file.write_all(program).unwrap();
        file.write_all(&[9; 333]).unwrap();
        file
    }

    /// No piece equals another.
    fn program() -> Vec<u8> {
        let words = 0..(3 * PIECE as u32 / 4 + 5);
        words.flat_map(u32::to_le_bytes).collect()
    }

    /// The program in the file that contains it.
    fn carried<'a>(by: &'a File, program: &[u8], is_shared: bool) -> EmbeddedProgram<'a> {
        EmbeddedProgram {
            by: by.as_fd(),
            offset: BEFORE,
            bytes: program.len() as u64,
            is_shared,
        }
    }

    fn contents(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn a_shared_copy_is_written_once_and_sealed() {
        let program = program();
        let by = carrying(&program);
        let carried = carried(&by, &program, true);
        let file = File::from(in_memory());
        carried.seal_copy_into(file.as_fd()).unwrap();
        assert!(contents(&file) == program);
        assert_eq!(rustix::fs::fcntl_get_seals(&file).unwrap(), SEALED);
        // The other file is not read any more.
        let nowhere = EmbeddedProgram {
            offset: u64::MAX,
            ..carried
        };
        nowhere.seal_copy_into(file.as_fd()).unwrap();
        assert!(file.write_at(&[0], 0).is_err() && file.set_len(0).is_err());
    }

    #[test]
    fn concurrent_copies_give_one_sealed_file() {
        let program = program();
        let by = carrying(&program);
        for _ in 0..50 {
            let file = File::from(in_memory());
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let carried = carried(&by, &program, true);
                        carried.seal_copy_into(file.as_fd()).unwrap();
                        // A process that has completed it may execute it.
                        assert!(contents(&file) == program);
                    });
                }
            });
        }
    }

    #[test]
    fn an_interrupted_copy_is_not_sealed_and_is_completed_later() {
        let program = program();
        let by = carrying(&program);
        let whole = carried(&by, &program, true);
        let cut_off = EmbeddedProgram {
            bytes: program.len() as u64 + 1000,
            ..whole
        };
        let file = File::from(in_memory());
        assert_eq!(cut_off.seal_copy_into(file.as_fd()), Err(Errno::NOEXEC));
        assert_eq!(
            rustix::fs::fcntl_get_seals(&file).unwrap(),
            SealFlags::empty()
        );
        assert!(
            cut_off
                .seal_copy_into(File::from(in_memory()).as_fd())
                .is_err()
        );
        // The state in which a process leaves it that is ended in the middle.
        let file = File::from(in_memory());
        file.write_all_at(program.get(..PIECE + 1).unwrap(), 0)
            .unwrap();
        whole.seal_copy_into(file.as_fd()).unwrap();
        assert!(contents(&file) == program);
    }

    #[test]
    fn an_unshared_copy_is_complete_and_sealed() {
        let program = program();
        let by = carrying(&program);
        let carried = carried(&by, &program, false);
        let files = [(); 2].map(|()| File::from(carried.sealed_copy(c"alone").unwrap()));
        let inodes = files.each_ref().map(|file| {
            assert!(contents(file) == program);
            assert_eq!(rustix::fs::fcntl_get_seals(file).unwrap(), SEALED);
            rustix::fs::fstat(file).unwrap().st_ino
        });
        assert_ne!(inodes[0], inodes[1]);
        let cut_off = EmbeddedProgram {
            bytes: program.len() as u64 + 1000,
            ..carried
        };
        assert!(cut_off.sealed_copy(c"alone").is_err());
    }
}
