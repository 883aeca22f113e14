//! A disk that fails, at each of its calls in turn: the image that is read is what was written, or
//! is rejected.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// The behaviour of a disk in one call, instead of the requested operation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The call returns an error: `ENOSPC`, `EIO`.
    Fails(i32),
    /// All calls fail from then on: the process or the machine has stopped.
    Stops,
    /// The disk writes or reads a part, and reports that.
    Short,
    /// The call is interrupted.
    Interrupted,
    /// The disk writes nothing, or has nothing more to read.
    Nothing,
    /// The disk reports success, and has done nothing.
    Lies,
    /// The disk reports success, and has done a part.
    Torn,
    /// The disk reads or writes one page further.
    Elsewhere,
    /// From then on the disk reads old data: those of another image.
    Changes,
    /// The disk inverts one bit.
    Flips,
}

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

fn os(error: i32) -> io::Error {
    io::Error::from_raw_os_error(error)
}

/// A disk that counts calls, and has a fault at one of them.
#[derive(Debug)]
struct Faulty<'a> {
    file: File,
    fault: Fault,
    at: usize,
    calls: AtomicUsize,
    /// An image with other contents.
    other: &'a File,
}

impl<'a> Faulty<'a> {
    fn new(file: File, fault: Fault, at: usize, other: &'a File) -> Self {
        Self {
            file,
            fault,
            at,
            calls: AtomicUsize::new(0),
            other,
        }
    }

    /// Returns the fault of this call.
    fn next(&self) -> Option<Fault> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let lasts = matches!(self.fault, Fault::Stops | Fault::Changes);
        (call == self.at || (lasts && call > self.at)).then_some(self.fault)
    }

    fn has_happened(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > self.at
    }
}

impl Sink for Faulty<'_> {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let part = &bytes[..bytes.len().div_ceil(2)];
        match self.next() {
            None => FileExt::write_at(&self.file, bytes, offset),
            Some(Fault::Fails(error)) => Err(os(error)),
            Some(Fault::Stops) => Err(os(EIO)),
            Some(Fault::Short) => FileExt::write_at(&self.file, part, offset),
            Some(Fault::Interrupted) => Err(ErrorKind::Interrupted.into()),
            Some(Fault::Nothing) => Ok(0),
            Some(Fault::Lies) => Ok(bytes.len()),
            Some(Fault::Torn) => FileExt::write_at(&self.file, part, offset).map(|_| bytes.len()),
            Some(Fault::Elsewhere) => FileExt::write_at(&self.file, bytes, offset + PAGE),
            Some(Fault::Changes) => FileExt::write_at(&self.file, &vec![0; bytes.len()], offset),
            Some(Fault::Flips) => {
                let mut bytes = bytes.to_vec();
                bytes[0] ^= 1;
                FileExt::write_at(&self.file, &bytes, offset)
            }
        }
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        match self.next() {
            Some(Fault::Fails(error)) => Err(os(error)),
            Some(Fault::Stops) => Err(os(EIO)),
            Some(Fault::Lies) => Ok(()),
            Some(Fault::Torn) => self.file.set_len(bytes / 2),
            _ => self.file.set_len(bytes),
        }
    }
}

impl Source for Faulty<'_> {
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        let read = |file: &File, out: &mut [u8], offset| FileExt::read_exact_at(file, out, offset);
        let half = out.len() / 2;
        match self.next() {
            None | Some(Fault::Interrupted) => read(&self.file, out, offset),
            Some(Fault::Fails(error)) => Err(os(error)),
            Some(Fault::Stops) => Err(os(EIO)),
            Some(Fault::Short) => {
                read(&self.file, &mut out[..half], offset)?;
                Err(ErrorKind::UnexpectedEof.into())
            }
            Some(Fault::Nothing) => Err(ErrorKind::UnexpectedEof.into()),
            Some(Fault::Lies) => Ok(()),
            Some(Fault::Torn) => {
                out[half..].fill(0xaa);
                read(&self.file, &mut out[..half], offset)
            }
            Some(Fault::Elsewhere) => {
                // Reads the bytes that exist there.
                let _ = FileExt::read_at(&self.file, out, offset + PAGE)?;
                Ok(())
            }
            Some(Fault::Changes) => {
                let _ = FileExt::read_at(self.other, out, offset)?;
                Ok(())
            }
            Some(Fault::Flips) => {
                read(&self.file, out, offset)?;
                out[half] ^= 1;
                Ok(())
            }
        }
    }
}

/// Returns a snapshot of some chunks, and another one.
fn two() -> [Node; 2] {
    [3, 4].map(|byte: u8| {
        let layer = LayerBuilder::new("test", RAM).unwrap();
        // More than is read at once.
        for number in 0..300 {
            let content = [byte.wrapping_add(number as u8) | 1; PAGE as usize];
            layer.write(HEAP + number * PAGE, &content).unwrap();
        }
        let own = PageRange::of_bytes(HEAP, HEAP + 300 * PAGE);
        let layer = layer.freeze_at(own.into()).unwrap();
        let snapshot = Snapshot::new(None, layer, vec![byte; 100], 9).unwrap();
        Arc::new(snapshot.owned_by(OWNER))
    })
}

#[test]
fn write_faults_never_leave_a_usable_wrong_image() {
    let [snapshot, other] = two();
    let other = image_of(&other);
    let mut told = [0; 2];
    for fault in [
        Fault::Fails(ENOSPC),
        Fault::Fails(EIO),
        Fault::Stops,
        Fault::Short,
        Fault::Interrupted,
        Fault::Nothing,
        Fault::Lies,
        Fault::Torn,
        Fault::Elsewhere,
        Fault::Changes,
        Fault::Flips,
    ] {
        let mut at = 0;
        loop {
            let disk = Faulty::new(tempfile(), fault, at, &other);
            let purpose = Purpose::of(&[b"a", b"b"]);
            let written = snapshot.write_image(snapshot.state(), purpose, &key(), &disk);
            if !disk.has_happened() {
                assert!(written.is_ok());
                break;
            }
            // Only writes report `Nothing`: the disk sets the length in spite of it.
            let is_told = matches!(fault, Fault::Fails(_) | Fault::Stops)
                || (fault == Fault::Nothing && written.is_err());
            assert_eq!(written.is_err(), is_told, "{fault:?} {at}: {written:?}");
            if let Err(error) = &written {
                assert!(matches!(error, ImageError::Io(_)), "{error}");
                told[0] += 1;
            }
            match reads(disk.file) {
                Ok(again) => assert_same(&snapshot, &again),
                Err(error) => {
                    assert!(error.is_of_the_file(), "{fault:?} {at}: {error}");
                    let is_harmless = matches!(fault, Fault::Short | Fault::Interrupted);
                    assert!(!is_harmless, "{fault:?} {at}: {error}");
                    told[1] += 1;
                }
            }
            at += 1;
        }
        // Prefix, header, length, and chunks.
        assert!(at >= 3 + 300 / 16, "{fault:?}: {at}");
    }
    assert!(told[0] > 60 && told[1] > 100, "{told:?}");
}

#[test]
fn read_faults_give_the_original_or_an_error() {
    let [snapshot, other] = two();
    let (file, other) = (image_of(&snapshot), image_of(&other));
    for fault in [
        Fault::Fails(EIO),
        Fault::Stops,
        Fault::Short,
        Fault::Interrupted,
        Fault::Nothing,
        Fault::Lies,
        Fault::Torn,
        Fault::Elsewhere,
        Fault::Changes,
        Fault::Flips,
    ] {
        let mut at = 0;
        loop {
            let disk = Faulty::new(file.try_clone().unwrap(), fault, at, &other);
            let image = Image::open(&disk, &key());
            let read = image.and_then(|image| {
                let layer = image.read_layer::<Vec<u8>>("restored", None)?;
                let state = image.state().to_vec();
                image.restore(layer, None, state, OWNER)
            });
            if !disk.has_happened() {
                assert_same(&snapshot, &Arc::new(read.unwrap()));
                break;
            }
            match read {
                Ok(again) if fault == Fault::Interrupted => {
                    assert_same(&snapshot, &Arc::new(again));
                }
                // All of it is the other image.
                Ok(again) if fault == Fault::Changes && at == 0 => {
                    assert_eq!(again.state(), &[4; 100]);
                }
                Ok(_) => panic!("{fault:?} {at}"),
                Err(error) => {
                    let is_disk = matches!(fault, Fault::Fails(_) | Fault::Stops);
                    assert_eq!(!error.is_of_the_file(), is_disk, "{fault:?} {at}: {error}");
                }
            }
            at += 1;
        }
        // Prefix, header, and MiB of pages.
        assert_eq!(at, 4, "{fault:?}");
    }
}
