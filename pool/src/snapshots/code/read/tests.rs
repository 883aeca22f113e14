//! Reading artifacts, completely and in two parts.

use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;

use super::*;

/// An artifact without a disk.
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

/// A disk that records reads, and fails from some byte on.
#[derive(Debug)]
struct Watched {
    artifact: InMemory,
    fails_at: u64,
    reads: Arc<Mutex<Vec<(u64, usize)>>>,
}

impl Source for Watched {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.reads.lock().unwrap().push((offset, out.len()));
        if offset + out.len() as u64 > self.fails_at {
            Err(io::Error::other("a bad block"))
        } else {
            self.artifact.read_at(out, offset)
        }
    }
}

fn pages(start: u64, end: u64) -> PageRange {
    PageRange::of_bytes(start * PAGE, end * PAGE)
}

type Reads = Arc<Mutex<Vec<(u64, usize)>>>;

fn watched(artifact: &[u8], fails_at: u64) -> (StoredCode, Reads) {
    let reads = Reads::default();
    let source = Watched {
        artifact: InMemory(artifact.to_vec()),
        fails_at,
        reads: reads.clone(),
    };
    let (bytes, pieces) = (artifact.len() as u64, Pieces::of(artifact));
    (
        StoredCode::new(Box::new(source), bytes, pieces).unwrap(),
        reads,
    )
}

fn artifact(bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(bytes as u64);
    (0..bytes).map(|_| random.u8(..)).collect()
}

#[test]
fn code_of_any_size_is_read_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("code");
    for size in [1, 4095, 4096, 4097, PIECE, PIECE + 1, 75 * PIECE + 12345] {
        let artifact = artifact(size);
        fs::write(&path, &artifact).unwrap();
        let file = crate::opening::open_file(&path).unwrap();
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
fn damaged_or_truncated_code_is_rejected() {
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
fn used_pieces_are_read_first_in_long_runs_and_the_rest_in_order() {
    let artifact = artifact(64 * PIECE + 100);
    let (stored, reads) = watched(&artifact, u64::MAX);
    // Pages of one piece; of two adjacent pieces; of 18 adjacent pieces; and of the last piece.
    let first: PageSet = [
        pages(3, 4),
        pages(40, 50),
        pages(256, 256 + 18 * 16),
        pages(1024, 1025),
    ]
    .into_iter()
    .collect();
    let LoadedCode { code, rest } = stored.load(Some(&first)).unwrap();
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
    // A guest requests a page that is present, one that is not, and one without code.
    let page = |number: u64| pages(number, number + 1).start;
    assert!(rest.fill_page(page(3)).unwrap() && reads.lock().unwrap().is_empty());
    assert!(rest.fill_page(page(1000)).unwrap());
    assert_eq!(*reads.lock().unwrap(), [(62 * piece, PIECE)]);
    assert!(!rest.fill_page(page(1025)).unwrap());
    assert_eq!(rest.requested(), 1);
    assert_eq!(rest.late().ranges(), [pages(992, 1008)]);
    assert!(rest.finish().is_err() && !code.progress().is_fully_loaded());
    while rest.fill_next().unwrap() {}
    let read = reads.lock().unwrap();
    assert_eq!(read[1..3], [(piece, PIECE), (4 * piece, 4 * PIECE)]);
    assert!(read.iter().all(|(_, length)| *length <= 4 * PIECE));
    assert!(rest.missing().is_empty() && !code.progress().is_fully_loaded());
    rest.finish().unwrap();
    drop(rest);
    assert!(code.progress().is_fully_loaded() && !code.progress().has_failed());
    assert!(code.read().unwrap() == artifact);
    code.gather();
    assert!(code.is_gathered() && code.read().unwrap() == artifact);
}

#[test]
fn pieces_requested_in_any_order_give_the_same_code() {
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
        let LoadedCode { code, rest } = stored.load(Some(&first)).unwrap();
        let Some(rest) = rest else {
            assert!(code.read().unwrap() == artifact);
            continue;
        };
        // Only the pieces that were read are present.
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
fn several_threads_fill_code_and_read_each_piece_once() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..10 {
        let artifact = artifact(random.usize(3 << 20..6 << 20));
        let all = PageRange::around(0, artifact.len() as u64);
        let (stored, reads) = watched(&artifact, u64::MAX);
        let first = PageSet::from(pages(0, 1));
        let LoadedCode { code, rest } = stored.load(Some(&first)).unwrap();
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
        assert_eq!(rest.requested(), 0);
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
fn all_waiters_for_a_piece_get_its_read_error() {
    let whole = artifact(40 * PIECE);
    let (stored, _) = watched(&whole, 20 * PIECE as u64);
    let first = PageSet::from(pages(0, 1));
    let LoadedCode { code, rest } = stored.load(Some(&first)).unwrap();
    let rest = rest.unwrap();
    let damaged = PageSet::from(pages(30 * 16, 36 * 16));
    thread::scope(|scope| {
        let fill = || rest.fill_set(&damaged);
        let all: Vec<_> = (0..3).map(|_| scope.spawn(fill)).collect();
        for one in all {
            assert!(matches!(one.join().unwrap(), Err(CodeError::Read(_))));
        }
    });
    // Reading the rest in order tries the failed pieces first, before all earlier ones, and fails.
    assert!(rest.fill_next().is_err());
    assert_eq!(rest.missing().count(), 39 * 16);
    drop(rest);
    assert!(code.progress().has_failed());
}

fn blocks_of(code: &Code) -> u64 {
    faasw_seedtree::held_bytes(&code.file).unwrap()
}

#[test]
fn code_with_an_unreadable_or_damaged_rest_is_never_fully_loaded() {
    let whole = artifact(40 * PIECE);
    let first = PageSet::from(pages(0, 16));
    let (stored, _) = watched(&whole, 20 * PIECE as u64);
    let LoadedCode { code, rest } = stored.load(Some(&first)).unwrap();
    let rest = rest.unwrap();
    let failed = loop {
        if let Err(error) = rest.fill_next() {
            break error;
        }
    };
    assert!(matches!(failed, CodeError::Read(_)), "{failed}");
    assert!(rest.finish().is_err());
    drop(rest);
    assert!(code.progress().has_failed() && !code.progress().is_fully_loaded());

    let mut damaged = whole.clone();
    damaged[30 * PIECE + 5] ^= 1;
    let source = Box::new(InMemory(damaged));
    let stored = StoredCode::new(source, whole.len() as u64, Pieces::of(&whole)).unwrap();
    let LoadedCode { code, rest } = stored.load(Some(&first)).unwrap();
    let rest = rest.unwrap();
    let asked = pages(30 * 16 + 3, 30 * 16 + 4).start;
    let error = rest.fill_page(asked).unwrap_err();
    assert!(matches!(error, CodeError::Damaged(30)), "{error}");
    // None of the piece is present.
    assert!(rest.missing().contains(asked));
    assert_eq!(blocks_of(&code), PIECE as u64);
}
