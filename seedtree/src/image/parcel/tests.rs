//! Sealed parcels can be opened with the right key, and nothing else can.

use std::io::{self, Read};

use super::super::crypt::ImageKey;
use super::seal::{Part, seal_as_told};
use super::*;

fn key() -> ImageKey {
    ImageKey::new(&[5; ImageKey::BYTES])
}

fn part(bytes: &[u8]) -> Part {
    (
        bytes.len() as u64,
        Box::new(io::Cursor::new(bytes.to_vec())),
    )
}

fn sealed(note: &[u8], parts: [&[u8]; PARTS]) -> Vec<u8> {
    let mut sealing = Sealing::new(&key(), note, parts.map(part)).unwrap();
    let mut parcel = Vec::new();
    while let Some(piece) = sealing.next_piece().unwrap() {
        assert!(piece.len() <= NOTE_MAX + PREFIX);
        parcel.extend(piece);
    }
    assert_eq!(parcel.len() as u64, sealing.bytes());
    parcel
}

/// The note and the parts.
type Opened = (Vec<u8>, [Vec<u8>; PARTS]);

fn opened(key: &ImageKey, parcel: &[u8]) -> Result<Opened, ParcelError> {
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    open_all(key, parcel, |part, bytes| all[part].extend(bytes))?;
    let [first, second, note] = all;
    Ok((note, [first, second]))
}

fn refused(parcel: &[u8]) -> ParcelError {
    opened(&key(), parcel).unwrap_err()
}

#[test]
fn a_sealed_parcel_opens_again() {
    let long: Vec<u8> = (0..PIECE + 5).map(|at| at as u8).collect();
    let whole = &long[..PIECE];
    let cases: [(&[u8], [&[u8]; PARTS]); 4] = [
        (b"note", [b"module", &long]),
        (b"", [b"", b""]),
        (b"note", [whole, b""]),
        (&long, [&long, whole]),
    ];
    for (note, parts) in cases {
        let (read, there) = opened(&key(), &sealed(note, parts)).unwrap();
        assert!(read == note && there == parts);
    }
    assert!(
        !sealed(b"secret note", [b"", b""])
            .windows(6)
            .any(|part| part == b"secret")
    );
}

#[test]
fn a_foreign_file_is_recognised() {
    let parcel = sealed(b"note", [b"module", b"image"]);
    let another = ImageKey::new(&[6; ImageKey::BYTES]);
    let error = opened(&another, &parcel).unwrap_err();
    assert!(matches!(error, ParcelError::Key), "{error}");
    assert!(matches!(refused(b"\0asm"), ParcelError::Foreign));
    assert!(matches!(refused(b""), ParcelError::Foreign));
    assert!(matches!(refused(&[0; 4096]), ParcelError::Foreign));
    assert!(matches!(refused(&parcel[..50]), ParcelError::CutOff));
    let mut newer = parcel.clone();
    newer[8] = 9;
    assert!(matches!(refused(&newer), ParcelError::Format(9)));
    let mut longer = parcel.clone();
    longer.push(0);
    assert!(matches!(refused(&longer), ParcelError::TooLong));
}

#[test]
fn no_byte_may_change_and_none_be_missing() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let part: Vec<u8> = (0..PIECE + 100).map(|_| random.u8(..)).collect();
    let parcel = sealed(b"what it is", [&part, &part[..200]]);
    let begin = 0..PREFIX + 10;
    let places: Vec<usize> = begin
        .chain((0..60).map(|_| random.usize(..parcel.len())))
        .collect();
    for at in places {
        let mut changed = parcel.clone();
        changed[at] ^= 1 << random.u8(..8);
        // The pieces that were passed on before are what was sealed.
        let mut given = Vec::new();
        let result = open_all(&key(), &changed, |number, bytes| {
            if number < PARTS {
                given.extend_from_slice(bytes);
            }
        });
        assert!(result.is_err(), "{at}");
        assert!([&part[..], &part[..200]].concat().starts_with(&given));
    }
    for _ in 0..60 {
        let length = random.usize(MAGIC.len()..parcel.len());
        let error = refused(&parcel[..length]);
        assert!(matches!(error, ParcelError::CutOff), "{length}: {error}");
    }
}

#[test]
fn pieces_keep_their_places() {
    let (one, other) = (vec![1; PIECE], vec![2; PIECE]);
    let parcel = sealed(b"", [&one, &other]);
    let second = PREFIX + PIECE + TAG;
    let swapped = [
        &parcel[..PREFIX],
        &parcel[second..],
        &parcel[PREFIX..second],
    ]
    .concat();
    let error = refused(&swapped);
    assert!(matches!(error, ParcelError::Damaged), "{error}");
}

/// Checks of an announced length, before anything is read by it.
#[test]
fn a_wrong_length_is_reported() {
    let parcel = sealed(b"note", [b"module", b"image"]);
    let opening = Opening::new(&key(), &parcel[..Opening::BEGIN]).unwrap();
    assert_eq!(opening.note_bytes(), 4);
    let note = parcel[PREFIX..PREFIX + 4].to_vec();
    let (note, contents) = opening.open_note(note).unwrap();
    assert_eq!((&*note, contents.parts()), (&b"note"[..], [6, 5]));
    let length = parcel.len() as u64;
    contents.check_length(length).unwrap();
    let of = |length| contents.check_length(length).unwrap_err();
    assert!(matches!(of(length - 1), ParcelError::CutOff));
    assert!(matches!(of(length + 1), ParcelError::TooLong));
    // Parts are distinguished even if they have equally many bytes.
    assert_eq!(contents.next_piece(), Some((0, 6 + TAG)));
}

/// Lengths that can only be sealed with the key.
#[test]
fn a_length_that_cannot_be_costs_nothing() {
    for parts in [
        [u64::MAX, 1],
        [1, u64::MAX],
        [u64::MAX - 200, 0],
        [u64::MAX / 2, u64::MAX / 2],
    ] {
        let parcel = seal_as_told(&key(), b"note", parts, b"").unwrap();
        let error = refused(&parcel);
        assert!(matches!(error, ParcelError::TooLarge), "{error}");
    }
    let parcel = seal_as_told(&key(), b"note", [1 << 62, 1 << 62], b"content").unwrap();
    let error = refused(&parcel);
    assert!(matches!(error, ParcelError::CutOff), "{error}");
    let parcel = seal_as_told(&key(), b"note", [1, 2], b"content").unwrap();
    let error = refused(&parcel);
    assert!(matches!(error, ParcelError::TooLong), "{error}");
}

#[test]
fn a_part_that_is_shorter_than_it_was_is_no_part() {
    let short: Part = (6, Box::new(&b"short"[..]));
    let mut sealing = Sealing::new(&key(), b"", [short, part(b"")]).unwrap();
    assert!(sealing.next_piece().unwrap().is_some());
    let error = sealing.next_piece().unwrap_err();
    assert!(matches!(error, ParcelError::Io(_)), "{error}");
}

/// Nothing is read ahead of demand.
#[test]
fn reads_are_limited_to_the_declared_length() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Counted(Arc<AtomicU64>);
    impl Read for Counted {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.0.fetch_add(out.len() as u64, Ordering::Relaxed);
            out.fill(7);
            Ok(out.len())
        }
    }
    let read = Arc::new(AtomicU64::new(0));
    // More than there is memory for.
    let endless: Part = (1 << 50, Box::new(Counted(read.clone())));
    let mut sealing = Sealing::new(&key(), b"", [part(b""), endless]).unwrap();
    for pieces in 0..4 {
        let piece = sealing.next_piece().unwrap().unwrap();
        assert!(piece.len() <= PIECE + TAG);
        assert_eq!(read.load(Ordering::Relaxed), pieces * PIECE as u64);
    }
}
