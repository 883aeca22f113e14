//! A program that lies in another one's file, and is copied to a file of its own by whoever is to
//! run it: most nodes that start again have nothing to compile, and the compiler is 20 MB.
//!
//! The file is in memory, and sealed when it is whole; nothing is executed before. One that is
//! shared is empty at first. Several may find it unsealed at once, or one may be ended in the
//! middle: each writes the same bytes to the same places, so nobody has to wait for anybody, and
//! who is first seals it. One that is not shared is made by whoever runs the program, and goes with
//! it: 20 MB are not to stay for good because something was compiled once.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

/// Bytes that are copied at once.
const PIECE: usize = 256 << 10;

/// How often sealing is tried while somebody holds pages: the system waits itself, some 150 ms.
const TRIES: usize = 20;

/// Nobody writes to it, nor makes it longer or shorter, nor takes that back.
const SEALED: SealFlags = SealFlags::WRITE
    .union(SealFlags::GROW)
    .union(SealFlags::SHRINK)
    .union(SealFlags::SEAL);

/// Where a program is.
#[derive(Clone, Copy, Debug)]
pub struct Carried<'a> {
    /// The file that it lies in. Its content must not change: that of a program that runs does
    /// not, as the system refuses to write to it (`ETXTBSY`, execve(2)).
    pub by: BorrowedFd<'a>,
    /// Where it begins there, in bytes.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether it is put into a file that others run it from, too; else each has one of its own.
    pub is_shared: bool,
}

/// An empty file in memory that may be executed.
///
/// # Errors
/// The system's.
pub fn executable(name: &CStr) -> Result<OwnedFd, Errno> {
    /// `MFD_EXEC` of memfd_create(2).
    const EXEC: MemfdFlags = MemfdFlags::from_bits_retain(0x10);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | EXEC) {
        // A kernel before 6.3 does not know the flag, and needs none.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }
}

impl Carried<'_> {
    /// The program in a sealed file in memory of its own.
    ///
    /// # Errors
    /// As [`Carried::put_into`].
    pub fn alone(&self, name: &CStr) -> Result<OwnedFd, Errno> {
        let file = executable(name)?;
        self.copy_to(file.as_fd())?;
        seal(file.as_fd())?;
        Ok(file)
    }

    /// Has `file`, which is in memory and is nothing but this program or a part of it, be the
    /// program, sealed; at once where it is.
    ///
    /// # Errors
    /// `NOEXEC` where the other file ends before the program does; the system's, as when there is
    /// no memory. What was written stays, and the next one begins anew.
    pub fn put_into(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        if is_sealed(file)? {
            return Ok(());
        }
        match self.copy_to(file).and_then(|()| seal(file)) {
            // Somebody else was first.
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

    /// What a program lies behind.
    const BEFORE: u64 = 4097;

    fn in_memory() -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        rustix::fs::memfd_create("carried", flags).unwrap()
    }

    /// A file that carries this, with something before and behind it.
    fn carrying(program: &[u8]) -> File {
        let mut file = File::from(in_memory());
        file.write_all(&[7; BEFORE as usize]).unwrap();
        file.write_all(program).unwrap();
        file.write_all(&[9; 333]).unwrap();
        file
    }

    /// No piece is like another.
    fn program() -> Vec<u8> {
        let words = 0..(3 * PIECE as u32 / 4 + 5);
        words.flat_map(u32::to_le_bytes).collect()
    }

    /// It, in the file that it lies in.
    fn carried<'a>(by: &'a File, program: &[u8], is_shared: bool) -> Carried<'a> {
        Carried {
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
    fn the_first_copies_it_and_nobody_writes_to_it_from_then_on() {
        let program = program();
        let by = carrying(&program);
        let carried = carried(&by, &program, true);
        let file = File::from(in_memory());
        carried.put_into(file.as_fd()).unwrap();
        assert!(contents(&file) == program);
        assert_eq!(rustix::fs::fcntl_get_seals(&file).unwrap(), SEALED);
        // It is not looked for any more.
        let nowhere = Carried {
            offset: u64::MAX,
            ..carried
        };
        nowhere.put_into(file.as_fd()).unwrap();
        assert!(file.write_at(&[0], 0).is_err() && file.set_len(0).is_err());
    }

    #[test]
    fn many_at_once_are_as_one() {
        let program = program();
        let by = carrying(&program);
        for _ in 0..50 {
            let file = File::from(in_memory());
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let carried = carried(&by, &program, true);
                        carried.put_into(file.as_fd()).unwrap();
                        // Whoever has it done may execute it.
                        assert!(contents(&file) == program);
                    });
                }
            });
        }
    }

    #[test]
    fn what_is_cut_off_is_not_sealed_and_the_next_one_makes_it_whole() {
        let program = program();
        let by = carrying(&program);
        let whole = carried(&by, &program, true);
        let cut_off = Carried {
            bytes: program.len() as u64 + 1000,
            ..whole
        };
        let file = File::from(in_memory());
        assert_eq!(cut_off.put_into(file.as_fd()), Err(Errno::NOEXEC));
        assert_eq!(
            rustix::fs::fcntl_get_seals(&file).unwrap(),
            SealFlags::empty()
        );
        assert!(cut_off.put_into(File::from(in_memory()).as_fd()).is_err());
        // As somebody leaves it who is ended in the middle.
        let file = File::from(in_memory());
        file.write_all_at(program.get(..PIECE + 1).unwrap(), 0)
            .unwrap();
        whole.put_into(file.as_fd()).unwrap();
        assert!(contents(&file) == program);
    }

    #[test]
    fn who_has_it_alone_has_a_whole_sealed_file() {
        let program = program();
        let by = carrying(&program);
        let carried = carried(&by, &program, false);
        let files = [(); 2].map(|()| File::from(carried.alone(c"alone").unwrap()));
        let inodes = files.each_ref().map(|file| {
            assert!(contents(file) == program);
            assert_eq!(rustix::fs::fcntl_get_seals(file).unwrap(), SEALED);
            rustix::fs::fstat(file).unwrap().st_ino
        });
        assert_ne!(inodes[0], inodes[1]);
        let cut_off = Carried {
            bytes: program.len() as u64 + 1000,
            ..carried
        };
        assert!(cut_off.alone(c"alone").is_err());
    }
}
