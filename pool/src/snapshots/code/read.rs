//! Reading an artifact from a disk into memory, piece by piece, each verified before it is in
//! there. It blocks.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use faasw_abi::memory_map::{CODE_MAX, PAGE};
use faasw_abi::pages::{PageRange, PageSet};
use faasw_seedtree::limits::CODE_UNIT;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::filling::CodeFilling;
use super::pieces::{PIECE, Pieces, digest};
use super::progress::Progress;
use super::{Code, give_room};
use crate::ablation::Mechanism;

/// Who reads, verifies and copies pieces at once at most: while one waits for the disk others verify,
/// and pieces that are used lie apart, so that a disk takes more time to answer than to read.
const READERS: usize = 4;

/// For so many reads there is one.
const READS_EACH: usize = 2;

/// Pages that are read at once at most: 1 MiB. With more a disk is no quicker.
const READ: u32 = 256;

/// Code may run before so many bytes of it are there that requests have not used so far: less is
/// read in the time that it takes to have guests wait for them.
const FILLED_LATER: u64 = 1 << 20;

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

/// Where an artifact is read from: a file, or in tests a disk that fails.
pub trait Source: fmt::Debug + Send + Sync {
    /// Fills the beginning of `out` from `offset` on; says how much.
    ///
    /// # Errors
    /// The disk's.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Source for File {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, out, offset)
    }
}

/// Code that was read, and what brings the rest of it, if some is missing.
#[derive(Debug)]
pub struct ReadCode {
    /// The code.
    pub code: Code,
    /// What brings the rest.
    pub rest: Option<CodeFilling>,
}

impl From<Code> for ReadCode {
    fn from(code: Code) -> Self {
        Self { code, rest: None }
    }
}

/// Room that a disk can write to without a copy.
pub struct Room(Vec<u8>);

impl Room {
    /// Room for what is read at once.
    pub fn new() -> Self {
        Self(vec![0; READ as usize * PAGE as usize + ALIGNED])
    }

    fn first(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let skip = self.0.as_ptr().align_offset(ALIGNED).min(ALIGNED);
        self.0.get_mut(skip..skip.checked_add(bytes)?)
    }
}

/// An artifact on a disk, and by what each piece of it is verified.
#[derive(Debug)]
pub struct Stored {
    source: Box<dyn Source>,
    bytes: u64,
    pieces: Pieces,
}

impl Stored {
    /// That which has so many bytes, and these pieces.
    ///
    /// # Errors
    /// When it cannot have.
    pub fn new(source: Box<dyn Source>, bytes: u64, pieces: Pieces) -> Result<Self, CodeError> {
        match pieces.are_of(bytes) && (1..=CODE_MAX).contains(&bytes) {
            true => Ok(Self {
                source,
                bytes,
                pieces,
            }),
            false => Err(CodeError::Size),
        }
    }

    /// All pages that it has something in.
    pub fn pages(&self) -> PageRange {
        PageRange::around(0, self.bytes)
    }

    /// Those of these pages that are its own, and what is read with them.
    pub fn whole_pieces(&self, pages: &PageSet) -> PageSet {
        let pieces = pages.coalesced(CODE_UNIT, usize::MAX - 1);
        pieces.intersection(&self.pages().into())
    }

    /// Reads pages at once that are whole pieces, verifies each piece, and puts them where they
    /// belong: whole pages, whoever looks at them.
    ///
    /// # Errors
    /// When one is not what was stored, and then none is put anywhere; the disk's and the system's.
    pub fn bring(
        &self,
        pages: PageRange,
        memory: &OwnedFd,
        room: &mut Room,
    ) -> Result<(), CodeError> {
        let at = pages.start.address().get();
        let length = self.bytes.saturating_sub(at).min(pages.bytes());
        let (all, length) = (pages.bytes() as usize, length as usize);
        let part = room.first(all).ok_or(CodeError::Size)?;
        self.read(part, length, at)?;
        let (content, behind) = part.split_at_mut_checked(length).ok_or(CodeError::Size)?;
        let first = (at / PIECE as u64) as usize;
        for (number, piece) in (first..).zip(content.chunks(PIECE)) {
            if self.pieces.digests().get(number) != Some(&digest(piece)) {
                return Err(CodeError::Damaged(number));
            }
        }
        behind.fill(0);
        write(memory, part, at)?;
        Ok(())
    }

    /// Brings all of these pages, which are whole pieces, by several threads where there are many.
    ///
    /// # Errors
    /// As [`Stored::bring`].
    fn bring_all(&self, pages: &PageSet, memory: &OwnedFd) -> Result<(), CodeError> {
        let rooms = Mutex::new(Vec::new());
        in_turns(pages, |run| {
            let rooms = || rooms.lock().unwrap_or_else(PoisonError::into_inner);
            let mut room = rooms().pop().unwrap_or_else(Room::new);
            let brought = self.bring(run, memory, &mut room);
            rooms().push(room);
            brought
        })
    }

    /// Fills the first `length` bytes of `room` from `at`. The last piece is asked for in whole
    /// pages, too: direct reads are of whole blocks, and end where the file does.
    fn read(&self, room: &mut [u8], length: usize, at: u64) -> Result<(), CodeError> {
        let mut read = 0;
        while read < length {
            let rest = room.get_mut(read..).unwrap_or_default();
            match self.source.read_at(rest, at + read as u64) {
                Ok(0) => return Err(CodeError::Size),
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// All of it, or where some is used `first` and there is much besides, that, and what brings
    /// the rest. It blocks for as long as the disk takes.
    ///
    /// # Errors
    /// When it is not what was stored; the system's.
    pub fn load(self, first: Option<&PageSet>) -> Result<ReadCode, CodeError> {
        let memory = Code::writable()?;
        give_room(&memory, self.bytes)?;
        let all = PageSet::from(self.pages());
        let first = first.map(|first| self.whole_pieces(first));
        let first = first.filter(|first| !first.is_empty());
        let later = first.as_ref().map(|first| all.without(first));
        let is_much = |later: &PageSet| later.bytes() >= FILLED_LATER;
        let later = later.filter(|later| is_much(later) && !Mechanism::CodeParts.is_off());
        let (Some(first), Some(later)) = (first, later) else {
            self.bring_all(&all, &memory)?;
            faasw_seedtree::seal(&memory)?;
            let code = Code::of(&memory, self.bytes, None)?;
            // Nobody else has it yet.
            let _ = code.pieces.set(self.pieces);
            return Ok(code.into());
        };
        self.bring_all(&first, &memory)?;
        let progress = Arc::new(Progress::default());
        let code = Code::of(&memory, self.bytes, Some(progress.clone()))?;
        let _ = code.pieces.set(self.pieces.clone());
        Ok(ReadCode {
            code,
            rest: Some(CodeFilling::new(self, memory, later, progress)),
        })
    }
}

impl Code {
    /// The artifact in a file, which has so many bytes and these pieces: all of it, or with `first`
    /// only what is used, where there is much besides. It blocks for as long as the disk takes.
    ///
    /// # Errors
    /// When it is not what was stored; the system's.
    pub fn read_from(
        file: File,
        bytes: u64,
        pieces: Pieces,
        first: Option<&PageSet>,
    ) -> Result<ReadCode, CodeError> {
        if file.metadata()?.len() != bytes {
            return Err(CodeError::Size);
        }
        Stored::new(Box::new(file), bytes, pieces)?.load(first)
    }
}

/// Has each run of these pages brought, by several threads where there are many.
///
/// # Errors
/// The first one's that could not be.
pub(super) fn in_turns(
    pages: &PageSet,
    bring: impl Fn(PageRange) -> Result<(), CodeError> + Sync,
) -> Result<(), CodeError> {
    let runs: Vec<PageRange> = pages.iter().flat_map(|range| runs(range, READ)).collect();
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), CodeError> {
        while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            bring(*run).inspect_err(|_| {
                // Nobody goes on.
                next.store(runs.len(), Ordering::Relaxed);
            })?;
        }
        Ok(())
    };
    let readers = READERS.min(runs.len().div_ceil(READS_EACH));
    thread::scope(|scope| {
        let others: Vec<_> = (1..readers).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            let other = other.join().unwrap_or_else(|_| {
                let what = "whoever read it has panicked";
                Err(io::Error::other(what).into())
            });
            done = done.and(other);
        }
        done
    })
}

/// Pages that follow each other, so many at once.
fn runs(pages: PageRange, most: u32) -> impl Iterator<Item = PageRange> {
    let mut rest = pages;
    std::iter::from_fn(move || {
        let (run, behind) = rest.split_at(most);
        rest = behind;
        (!run.is_empty()).then_some(run)
    })
}

fn write(memory: &OwnedFd, mut part: &[u8], mut at: u64) -> Result<(), Errno> {
    while !part.is_empty() {
        let written = rustix::io::pwrite(memory, part, at)?;
        part = part.get(written..).unwrap_or_default();
        at += written as u64;
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::sync::Mutex;

    use super::*;

    /// An artifact where no disk has a part in it.
    #[derive(Debug)]
    pub struct InMemory(pub Vec<u8>);

    impl Source for InMemory {
        fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
            let rest = self.0.get(offset as usize..).unwrap_or_default();
            let length = rest.len().min(out.len());
            out[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        }
    }

    /// A disk that notes what is read of it, and fails from some byte on.
    #[derive(Debug)]
    struct Watched {
        artifact: InMemory,
        fails_at: u64,
        reads: Arc<Mutex<Vec<(u64, usize)>>>,
    }

    impl Source for Watched {
        fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
            self.reads.lock().unwrap().push((offset, out.len()));
            match offset + out.len() as u64 > self.fails_at {
                true => Err(io::Error::other("a bad block")),
                false => self.artifact.read_at(out, offset),
            }
        }
    }

    fn pages(start: u64, end: u64) -> PageRange {
        PageRange::of_bytes(start * PAGE, end * PAGE)
    }

    type Reads = Arc<Mutex<Vec<(u64, usize)>>>;

    fn watched(artifact: &[u8], fails_at: u64) -> (Stored, Reads) {
        let reads = Reads::default();
        let source = Watched {
            artifact: InMemory(artifact.to_vec()),
            fails_at,
            reads: reads.clone(),
        };
        let (bytes, pieces) = (artifact.len() as u64, Pieces::of(artifact));
        (Stored::new(Box::new(source), bytes, pieces).unwrap(), reads)
    }

    fn artifact(bytes: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(bytes as u64);
        (0..bytes).map(|_| random.u8(..)).collect()
    }

    #[test]
    fn what_is_on_disk_is_in_memory_whatever_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("code");
        for size in [1, 4095, 4096, 4097, PIECE, PIECE + 1, 75 * PIECE + 12345] {
            let artifact = artifact(size);
            fs::write(&path, &artifact).unwrap();
            let file = open_code(&path).unwrap();
            let read = Code::read_from(file, size as u64, Pieces::of(&artifact), None).unwrap();
            assert!(read.rest.is_none());
            let code = read.code;
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
            Code::read_from(
                File::open(&path).unwrap(),
                bytes as u64,
                pieces.clone(),
                None,
            )
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

    #[test]
    fn what_is_used_is_read_first_in_long_runs_and_the_rest_in_its_order() {
        let artifact = artifact(64 * PIECE + 100);
        let (stored, reads) = watched(&artifact, u64::MAX);
        // Of one piece; of one and the next; of 18 that follow each other; and the last.
        let first: PageSet = [
            pages(3, 4),
            pages(40, 50),
            pages(256, 256 + 18 * 16),
            pages(1024, 1025),
        ]
        .into_iter()
        .collect();
        let ReadCode { code, rest } = stored.load(Some(&first)).unwrap();
        let rest = rest.unwrap();
        let mut read = std::mem::take(&mut *reads.lock().unwrap());
        read.sort_unstable();
        let piece = PIECE as u64;
        assert_eq!(
            read,
            [
                (0, PIECE),
                (2 * piece, 2 * PIECE),
                (16 * piece, 16 * PIECE),
                (32 * piece, 2 * PIECE),
                (64 * piece, PAGE as usize),
            ]
        );
        let missing = rest.missing();
        assert_eq!(
            missing.ranges(),
            [pages(16, 32), pages(64, 256), pages(544, 1024)]
        );
        // A guest asks for one that is there, one that is not, and one that no code has.
        let page = |number: u64| pages(number, number + 1).start;
        assert!(rest.fill_page(page(3)).unwrap() && reads.lock().unwrap().is_empty());
        assert!(rest.fill_page(page(1000)).unwrap());
        assert_eq!(*reads.lock().unwrap(), [(62 * piece, PIECE)]);
        assert!(!rest.fill_page(page(1025)).unwrap());
        assert_eq!(rest.asked(), 1);
        assert_eq!(rest.late().ranges(), [pages(992, 1008)]);
        assert!(rest.finish().is_err() && !code.is_whole());
        while rest.fill_next().unwrap() {}
        let read = reads.lock().unwrap();
        assert_eq!(read[1..3], [(piece, PIECE), (4 * piece, 4 * PIECE)]);
        assert!(read.iter().all(|(_, length)| *length <= 4 * PIECE));
        assert!(rest.missing().is_empty() && !code.is_whole());
        rest.finish().unwrap();
        drop(rest);
        assert!(code.is_whole() && !code.has_failed());
        assert!(code.read().unwrap() == artifact);
        code.gather();
        assert!(code.is_gathered() && code.read().unwrap() == artifact);
    }

    #[test]
    fn any_order_in_which_pieces_are_asked_for_gives_the_same_code() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..20 {
            let size = random.usize(2 << 20..5 << 20);
            let artifact = artifact(size);
            let all = PageRange::around(0, size as u64);
            let some = |random: &mut fastrand::Rng| {
                let start = random.u64(..all.count());
                pages(start, (start + random.u64(1..40)).min(all.count()))
            };
            let first: PageSet = (0..random.usize(1..12))
                .map(|_| some(&mut random))
                .collect();
            let (stored, _) = watched(&artifact, u64::MAX);
            let ReadCode { code, rest } = stored.load(Some(&first)).unwrap();
            let Some(rest) = rest else {
                assert!(code.read().unwrap() == artifact);
                continue;
            };
            // What was read is there, and nothing else.
            let there = PageSet::from(all).without(&rest.missing());
            assert!(first.without(&there).is_empty());
            assert_eq!(blocks_of(&code), there.bytes());
            let mut more = true;
            while more {
                let asked = some(&mut random).start;
                assert!(rest.fill_page(asked).unwrap());
                assert!(!rest.missing().contains(asked));
                more = rest.fill_next().unwrap();
            }
            rest.finish().unwrap();
            assert!(code.read().unwrap() == artifact);
            let known = Code::copy_of(&artifact).unwrap().digest().unwrap();
            assert_eq!(code.digest().unwrap(), known);
        }
    }

    #[test]
    fn several_fill_code_at_once_and_read_each_piece_once() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..10 {
            let artifact = artifact(random.usize(3 << 20..6 << 20));
            let all = PageRange::around(0, artifact.len() as u64);
            let (stored, reads) = watched(&artifact, u64::MAX);
            let first = PageSet::from(pages(0, 1));
            let ReadCode { code, rest } = stored.load(Some(&first)).unwrap();
            let rest = rest.unwrap();
            let wanted: Vec<PageSet> = (0..3)
                .map(|_| {
                    let starts = (0..random.u64(1..20)).map(|_| random.u64(..all.count()));
                    starts
                        .map(|start| pages(start, (start + 3).min(all.count())))
                        .collect()
                })
                .collect();
            thread::scope(|scope| {
                for wanted in &wanted {
                    let rest = &rest;
                    scope.spawn(move || {
                        rest.fill_set(wanted).unwrap();
                        assert!(rest.missing().intersection(wanted).is_empty());
                    });
                }
                for _ in 0..2 {
                    scope.spawn(|| while rest.fill_next().unwrap() {});
                }
            });
            assert_eq!(rest.asked(), 0);
            rest.finish().unwrap();
            assert!(code.read().unwrap() == artifact);
            let mut reads = std::mem::take(&mut *reads.lock().unwrap());
            reads.sort_unstable();
            let follow = reads
                .windows(2)
                .all(|two| two[0].0 + two[0].1 as u64 == two[1].0);
            assert!(follow, "{reads:?}");
        }
    }

    #[test]
    fn whoever_waits_for_a_piece_that_another_cannot_read_hears_of_it_too() {
        let whole = artifact(40 * PIECE);
        let (stored, _) = watched(&whole, 20 * PIECE as u64);
        let first = PageSet::from(pages(0, 1));
        let ReadCode { code, rest } = stored.load(Some(&first)).unwrap();
        let rest = rest.unwrap();
        let damaged = PageSet::from(pages(30 * 16, 36 * 16));
        thread::scope(|scope| {
            let fill = || rest.fill_set(&damaged);
            let all: Vec<_> = (0..3).map(|_| scope.spawn(fill)).collect();
            for one in all {
                assert!(matches!(one.join().unwrap(), Err(CodeError::Read(_))));
            }
        });
        // And whoever brings the rest in order, before all of that.
        assert!(rest.fill_next().is_err());
        assert_eq!(rest.missing().count(), 39 * 16);
        drop(rest);
        assert!(code.has_failed());
    }

    fn blocks_of(code: &Code) -> u64 {
        super::super::blocks(&code.file).unwrap()
    }

    #[test]
    fn code_whose_rest_cannot_be_read_or_is_damaged_is_never_whole() {
        let whole = artifact(40 * PIECE);
        let first = PageSet::from(pages(0, 16));
        let (stored, _) = watched(&whole, 20 * PIECE as u64);
        let ReadCode { code, rest } = stored.load(Some(&first)).unwrap();
        let rest = rest.unwrap();
        let failed = loop {
            if let Err(error) = rest.fill_next() {
                break error;
            }
        };
        assert!(matches!(failed, CodeError::Read(_)), "{failed}");
        assert!(rest.finish().is_err());
        drop(rest);
        assert!(code.has_failed() && !code.is_whole());

        let mut damaged = whole.clone();
        damaged[30 * PIECE + 5] ^= 1;
        let source = Box::new(InMemory(damaged));
        let stored = Stored::new(source, whole.len() as u64, Pieces::of(&whole)).unwrap();
        let ReadCode { code, rest } = stored.load(Some(&first)).unwrap();
        let rest = rest.unwrap();
        let asked = pages(30 * 16 + 3, 30 * 16 + 4).start;
        let error = rest.fill_page(asked).unwrap_err();
        assert!(matches!(error, CodeError::Damaged(30)), "{error}");
        // Nothing of it is there.
        assert!(rest.missing().contains(asked));
        assert_eq!(blocks_of(&code), PIECE as u64);
    }
}
