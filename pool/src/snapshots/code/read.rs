//! Reading an artifact from a disk into sealed memory, piece by piece, each verified before it
//! is in there. It blocks.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Code;
use super::pieces::{PIECE, Pieces, digest};

/// Who reads, verifies and copies pieces at once: while one does the one, the other does the
/// other. More do not make a disk quicker, and a request that waits has others beside it.
const READERS: usize = 2;

/// What direct reads are aligned to, in memory and in the file.
const ALIGNED: usize = 4096;

/// Why an artifact on disk is not used.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// The file ends too early, or goes on, or there are not as many digests as pieces.
    #[error("it has not the size that it had")]
    Size,
    /// A piece is not what was stored.
    #[error("piece {0} of it is damaged")]
    Damaged(usize),
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
    /// There is no memory for it, or guests cannot have so much.
    #[error("it cannot be in memory: {0}")]
    Memory(#[from] Errno),
}

/// Opens an artifact to be read as it is on the disk, past the system's cache, where the file
/// system allows that: what is in sealed memory then is not to be in memory twice.
///
/// # Errors
/// The system's.
pub fn open_code(path: &Path) -> io::Result<File> {
    let open = |flags: OFlags| {
        let flags = (flags | OFlags::NOFOLLOW).bits().cast_signed();
        File::options().read(true).custom_flags(flags).open(path)
    };
    match open(OFlags::DIRECT) {
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            open(OFlags::empty())
        }
        opened => opened,
    }
}

impl Code {
    /// The artifact in a file, which has so many bytes and these pieces. It blocks for as long
    /// as the disk takes.
    ///
    /// # Errors
    /// When it is not what was stored; the system's.
    pub fn read_from(file: &File, bytes: u64, pieces: Pieces) -> Result<Self, CodeError> {
        if !pieces.are_of(bytes) || file.metadata()?.len() != bytes {
            return Err(CodeError::Size);
        }
        let memory = Self::writable()?;
        let next = AtomicUsize::new(0);
        let all = pieces.digests();
        let read = || -> Result<(), CodeError> {
            let mut room = vec![0; PIECE + ALIGNED];
            let skip = room.as_ptr().align_offset(ALIGNED).min(ALIGNED);
            let room = room.get_mut(skip..skip + PIECE).unwrap_or_default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(expected) = all.get(number) else {
                    return Ok(());
                };
                let at = number as u64 * PIECE as u64;
                let length = usize::try_from(bytes - at).unwrap_or(PIECE).min(PIECE);
                read_piece(file, room, length, at)?;
                let piece = room.get(..length).unwrap_or_default();
                if digest(piece) != *expected {
                    return Err(CodeError::Damaged(number));
                }
                write(&memory, piece, at)?;
            }
        };
        let readers = READERS.min(all.len());
        thread::scope(|scope| {
            let others: Vec<_> = (1..readers).map(|_| scope.spawn(read)).collect();
            let mut done = read();
            for other in others {
                let other = other.join().unwrap_or_else(|_| {
                    let what = "whoever read it has panicked";
                    Err(io::Error::other(what).into())
                });
                done = done.and(other);
            }
            done
        })?;
        let code = Self::seal(memory)?;
        // Nobody else has it yet.
        let _ = code.pieces.set(pieces);
        Ok(code)
    }
}

/// Fills the first `length` bytes of `room` from `at`. The last piece is asked for whole, too:
/// direct reads are of whole blocks, and end where the file does.
fn read_piece(file: &File, room: &mut [u8], length: usize, at: u64) -> Result<(), CodeError> {
    let mut read = 0;
    while read < length {
        let rest = room.get_mut(read..).unwrap_or_default();
        match file.read_at(rest, at + read as u64) {
            Ok(0) => return Err(CodeError::Size),
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn write(memory: &impl std::os::fd::AsFd, mut piece: &[u8], mut at: u64) -> Result<(), Errno> {
    while !piece.is_empty() {
        let written = rustix::io::pwrite(memory, piece, at)?;
        piece = piece.get(written..).unwrap_or_default();
        at += written as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn artifact(bytes: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(bytes as u64);
        (0..bytes).map(|_| random.u8(..)).collect()
    }

    #[test]
    fn what_is_on_disk_is_in_memory_whatever_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("code");
        for size in [1, 4095, 4096, 4097, PIECE, PIECE + 1, 5 * PIECE + 12345] {
            let artifact = artifact(size);
            fs::write(&path, &artifact).unwrap();
            let file = open_code(&path).unwrap();
            let code = Code::read_from(&file, size as u64, Pieces::of(&artifact)).unwrap();
            assert_eq!(code.read().unwrap(), artifact);
            let copy = Code::copy_of(&artifact).unwrap();
            assert_eq!(code.digest().unwrap(), copy.digest().unwrap());
            assert!(code.held_bytes() >= code.bytes());
        }
    }

    #[test]
    fn what_is_damaged_or_cut_off_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("code");
        let whole = artifact(3 * PIECE + 100);
        let read = |content: &[u8], bytes: usize, pieces: &Pieces| {
            fs::write(&path, content).unwrap();
            Code::read_from(&File::open(&path).unwrap(), bytes as u64, pieces.clone())
        };
        let pieces = Pieces::of(&whole);
        for at in [0, PIECE, 2 * PIECE + 7, 3 * PIECE + 99] {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            let refused = read(&damaged, whole.len(), &pieces).unwrap_err();
            assert!(matches!(refused, CodeError::Damaged(piece) if piece == at / PIECE));
        }
        let longer = [whole.as_slice(), b"x"].concat();
        for content in [&whole[..PIECE], &whole[..0], &longer] {
            let refused = read(content, whole.len(), &pieces).unwrap_err();
            assert!(matches!(refused, CodeError::Size), "{refused}");
        }
        let fewer = Pieces::known(pieces.digests()[1..].to_vec());
        assert!(read(&whole, whole.len(), &fewer).is_err());
        assert!(read(&[], 0, &Pieces::default()).is_err());
        assert!(read(&whole, whole.len(), &pieces).is_ok());
    }
}
