//! A disk that fails at each of its calls in turn. No wrong image is accepted, the existing image
//! stays valid until there is another, no files are left behind, and failures are logged.

use std::io::ErrorKind;
use std::sync::atomic::AtomicUsize;

use faasw_seedtree::image::{Sink, Source};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::super::disk::{DiskSpace, Names};
use super::*;

/// The fault of a disk in one of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The call fails with this error number.
    Fails(i32),
    /// All calls fail from then on: the process or the machine has stopped.
    Stops,
    /// The call writes or reads a part, and reports that.
    Short,
    /// The call reports success, but flips one bit of the data that it read.
    Flips,
    /// The disk is large, and has this number of free bytes from then on.
    HasFree(u64),
    Never,
}

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const EROFS: i32 = 30;

/// The calls of a disk, and the fault of one of them.
#[derive(Debug)]
pub(super) struct Calls {
    fault: Fault,
    at: usize,
    made: Lock<Vec<&'static str>>,
}

impl Calls {
    pub fn new(fault: Fault, at: usize) -> Arc<Self> {
        Arc::new(Self {
            fault,
            at,
            made: Lock::default(),
        })
    }

    pub fn made(&self) -> Vec<&'static str> {
        self.made.lock().clone()
    }

    pub fn forget(&self) {
        self.made.lock().clear();
    }

    /// Returns the name of the call that had the fault.
    pub fn happened_to(&self) -> Option<&'static str> {
        self.made().get(self.at).copied()
    }

    fn next(&self, name: &'static str) -> io::Result<Option<Fault>> {
        let mut made = self.made.lock();
        let call = made.len();
        made.push(name);
        match self.fault {
            Fault::Fails(error) if call == self.at => Err(io::Error::from_raw_os_error(error)),
            Fault::Stops if call >= self.at => Err(io::Error::from_raw_os_error(EIO)),
            fault @ Fault::HasFree(_) => Ok((call >= self.at).then_some(fault)),
            fault => Ok((call == self.at).then_some(fault)),
        }
    }
}

/// The real disk with that fault.
#[derive(Debug)]
pub(super) struct Faulty(pub Arc<Calls>);

#[derive(Debug)]
struct FaultyFile(Arc<dyn DiskFile>, Arc<Calls>);

impl Faulty {
    fn file(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FaultyFile(file, self.0.clone()))
    }
}

impl Source for FaultyFile {
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        let fault = self.1.next("read")?;
        self.0.read_exact_at(out, offset)?;
        match fault {
            Some(Fault::Short) => Err(ErrorKind::UnexpectedEof.into()),
            Some(Fault::Flips) => {
                out[out.len() / 2] ^= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Sink for FaultyFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match self.1.next("write")? {
            Some(Fault::Short) => self.0.write_at(&bytes[..bytes.len().div_ceil(2)], offset),
            _ => self.0.write_at(bytes, offset),
        }
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.1.next("set_len")?;
        self.0.set_len(bytes)
    }
}

impl DiskFile for FaultyFile {
    fn status(&self) -> io::Result<Status> {
        self.1.next("status of a file")?;
        self.0.status()
    }

    fn note_use(&self, now: SystemTime) -> io::Result<()> {
        self.1.next("note_use")?;
        self.0.note_use(now)
    }

    fn sync(&self) -> io::Result<()> {
        self.1.next("sync")?;
        self.0.sync()
    }
}

impl Disk for Faulty {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.0.next("open")?;
        Ok(self.file(SystemDisk.open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.0.next("create")?;
        Ok(self.file(SystemDisk.create(path)?))
    }

    fn status(&self, path: &Path) -> io::Result<Status> {
        self.0.next("status")?;
        SystemDisk.status(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.next("remove")?;
        SystemDisk.remove(path)
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.next("replace")?;
        SystemDisk.replace(from, to)
    }

    fn names(&self, folder: &Path) -> io::Result<Names> {
        self.0.next("names")?;
        let calls = self.0.clone();
        let names = SystemDisk.names(folder)?;
        Ok(Box::new(names.map(move |name| {
            calls.next("name")?;
            name
        })))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.0.next("sync_folder")?;
        SystemDisk.sync_folder(folder)
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        self.0.next("make_folder")?;
        SystemDisk.make_folder(folder)
    }

    fn space(&self, folder: &Path) -> io::Result<DiskSpace> {
        match self.0.next("room")? {
            Some(Fault::HasFree(free)) => Ok(DiskSpace { free, all: 1 << 40 }),
            _ => SystemDisk.space(folder),
        }
    }
}

/// Counts the warnings for the operator.
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, told: &Metadata<'_>) -> bool {
        *told.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns the result of `work`, and the number of its warnings.
fn warned<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let count = Arc::new(AtomicUsize::new(0));
    let given = tracing::subscriber::with_default(Warnings(count.clone()), work);
    (given, count.load(Ordering::Relaxed))
}

fn faulty(folder: &tempfile::TempDir, calls: &Arc<Calls>) -> Images {
    let disk = Box::new(Faulty(calls.clone()));
    Images::on(disk, folder.path().into(), &[3; Images::SECRET], 1 << 30)
}

const ID: ImageId = [1; 32];
const OTHER: ImageId = [2; 32];

fn restored(images: &Images, of: &ImageIdentity) -> Option<String> {
    let frozen = super::restored(images, of);
    frozen.map(|frozen| text(&frozen))
}

#[test]
fn a_failed_write_leaves_the_old_image_in_place() {
    let of = ImageIdentity::function(&ID, &[]);
    let other = ImageIdentity::function(&OTHER, &[]);
    let mut happened = HashSet::new();
    for fault in [
        Fault::Fails(ENOSPC),
        Fault::Fails(EIO),
        Fault::Fails(EROFS),
        Fault::Stops,
        Fault::Short,
    ] {
        for at in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let healthy = images(&folder, 1 << 30);
            assert!(
                healthy
                    .write_image(&of, &frozen_with(b"old"))
                    .bytes()
                    .is_some()
            );
            assert!(
                healthy
                    .write_image(&other, &frozen_with(b"stray"))
                    .bytes()
                    .is_some()
            );
            let calls = Calls::new(fault, at);
            let node = faulty(&folder, &calls);
            node.retain([&ID]);
            let new = frozen_with(b"new");
            let (outcome, warnings) = warned(|| node.write_image(&of, &new));
            assert_ne!(outcome, ImageWrite::NotTried);
            let kept = outcome.bytes();
            let Some(call) = calls.happened_to() else {
                assert!(kept.is_some() && warnings == 0);
                break;
            };
            happened.insert(call);
            let what = format!("{fault:?} {at}: {call}, {kept:?}");
            assert_eq!(kept.is_some(), new.content().is_some(), "{what}");
            // Removing a file that is already gone logs nothing.
            let is_told = warnings > 0;
            match fault {
                Fault::Short => assert!(kept.is_some() && !is_told, "{what}"),
                _ => assert!(is_told || (kept.is_some() && call == "remove"), "{what}"),
            }
            // Whatever is left, another process finds one of the two images, complete.
            let again = images(&folder, 1 << 30);
            let expected = if kept.is_some() { "new" } else { "old" };
            let (found, warnings) = warned(|| restored(&again, &of));
            assert_eq!((found.as_deref(), warnings), (Some(expected), 0), "{what}");
            let unfinished = || {
                let names = fs::read_dir(folder.path()).unwrap();
                let names = names.map(|entry| entry.unwrap().file_name());
                let is_so = |name: &std::ffi::OsString| name.to_string_lossy().starts_with('.');
                names.filter(is_so).count()
            };
            assert!(fault == Fault::Stops || unfinished() == 0, "{what}");
            again.retain([&ID]);
            again.tidy();
            assert_eq!(names(&folder), 1, "{what}");
            // The node that met the fault continues to work.
            if fault != Fault::Stops {
                assert!(
                    node.write_image(&of, &frozen_with(b"newer"))
                        .bytes()
                        .is_some(),
                    "{what}"
                );
                assert_eq!(restored(&again, &of).as_deref(), Some("newer"));
                assert_eq!(names(&folder), 1, "{what}");
            }
        }
    }
    // The fault has happened in every call.
    for call in [
        "names",
        "name",
        "status",
        "remove",
        "room",
        "create",
        "write",
        "set_len",
        "sync",
        "status of a file",
        "replace",
        "sync_folder",
    ] {
        assert!(happened.remove(call), "{call}");
    }
    assert!(happened.is_empty(), "{happened:?}");
}

#[test]
fn an_image_is_durable_before_it_gets_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let calls = Calls::new(Fault::Never, 0);
    let node = faulty(&folder, &calls);
    assert!(
        node.write_image(&ImageIdentity::function(&ID, &[]), &frozen())
            .bytes()
            .is_some()
    );
    let made = calls.made();
    let place = |name| made.iter().rposition(|call| *call == name).unwrap();
    assert!(place("write") < place("set_len"));
    assert!(place("set_len") < place("sync"));
    assert!(place("sync") < place("replace"));
    assert!(place("replace") < place("sync_folder"));
}

#[test]
fn a_failed_read_gives_the_original_snapshot_or_none() {
    let of = ImageIdentity::function(&ID, &[]);
    let mut happened = HashSet::new();
    for fault in [Fault::Fails(EIO), Fault::Stops, Fault::Short, Fault::Flips] {
        for at in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let healthy = images(&folder, 1 << 30);
            assert!(
                healthy
                    .write_image(&of, &frozen_with(b"old"))
                    .bytes()
                    .is_some()
            );
            let calls = Calls::new(fault, at);
            let node = faulty(&folder, &calls);
            let (found, warnings) = warned(|| restored(&node, &of));
            let Some(call) = calls.happened_to() else {
                assert_eq!((found.as_deref(), warnings), (Some("old"), 0));
                break;
            };
            happened.insert(call);
            let what = format!("{fault:?} {at}: {call}, {found:?}");
            assert!(found.is_none() || found.as_deref() == Some("old"), "{what}");
            let is_none = match call {
                "read" => true,
                "open" => matches!(fault, Fault::Fails(_) | Fault::Stops),
                "status of a file" => fault == Fault::Stops,
                _ => false,
            };
            assert_eq!(found.is_none(), is_none, "{what}");
            assert_eq!(warnings > 0, found.is_none(), "{what}");
            // A failing disk may recover; content that differs from what was written never does.
            let is_gone = matches!(fault, Fault::Short | Fault::Flips) && call == "read";
            assert_eq!(names(&folder), usize::from(!is_gone), "{what}");
            let now = restored(&healthy, &of);
            assert_eq!(now.is_none(), is_gone, "{what}");
            assert!(
                healthy
                    .write_image(&of, &frozen_with(b"new"))
                    .bytes()
                    .is_some()
            );
            assert_eq!(restored(&healthy, &of).as_deref(), Some("new"));
        }
    }
    for call in ["open", "read", "note_use", "status", "status of a file"] {
        assert!(happened.remove(call), "{call}");
    }
    assert!(happened.is_empty(), "{happened:?}");
}

/// A version that is removed while its file cannot be.
#[test]
fn an_image_that_cannot_be_removed_is_logged_and_removed_at_the_next_start() {
    let of = ImageIdentity::function(&ID, &[]);
    let folder = tempfile::tempdir().unwrap();
    assert!(
        images(&folder, 1 << 30)
            .write_image(&of, &frozen())
            .bytes()
            .is_some()
    );
    let calls = Calls::new(Fault::Fails(EROFS), 0);
    let node = faulty(&folder, &calls);
    let ((), warnings) = warned(|| node.serve(None, &[ID]));
    assert_eq!((warnings, names(&folder)), (1, 1));
    assert_eq!(node.write_image(&of, &frozen()).bytes(), None);
    let again = images(&folder, 1 << 30);
    again.retain([]);
    again.tidy();
    assert_eq!(names(&folder), 0);
}

#[test]
fn an_image_that_cannot_be_removed_does_not_block_the_removal_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let of = |number| ImageIdentity::function(&[number; 32], &[]);
    for number in 0..3 {
        assert!(
            images(&folder, 1 << 30)
                .write_image(&of(number), &frozen())
                .bytes()
                .is_some()
        );
    }
    let calls = Calls::new(Fault::Never, 0);
    faulty(&folder, &calls).tidy();
    // The first call after those.
    let calls = Calls::new(Fault::Fails(EIO), calls.made().len());
    let node = faulty(&folder, &calls);
    node.tidy();
    let (fits, warnings) = warned(|| node.evict_to(1, ""));
    assert_eq!((fits, warnings, names(&folder)), (false, 1, 1));
    assert!(node.evict_to(0, "") && names(&folder) == 0);
}

/// A twentieth of a large disk is more than the space that images leave free: 4 GiB are enough.
#[test]
fn a_short_disk_is_logged_once_until_it_has_more_space() {
    let of = ImageIdentity::function(&ID, &[]);
    let folder = tempfile::tempdir().unwrap();
    let enough = Calls::new(Fault::HasFree(5 << 30), 0);
    let (kept, warnings) = warned(|| {
        faulty(&folder, &enough)
            .write_image(&of, &frozen_with(b"a"))
            .bytes()
    });
    assert!(kept.is_some() && warnings == 0, "{kept:?}, {warnings}");

    let before = names(&folder);
    let node = faulty(&folder, &Calls::new(Fault::HasFree(4 << 30), 0));
    let (kept, warnings) = warned(|| node.write_image(&of, &frozen_with(b"b")).bytes());
    assert!(kept.is_none() && warnings == 1, "{kept:?}, {warnings}");
    let (kept, warnings) = warned(|| node.write_image(&of, &frozen_with(b"b")).bytes());
    assert!(kept.is_none() && warnings == 0, "{kept:?}, {warnings}");
    assert_eq!(names(&folder), before);
    assert_eq!(restored(&node, &of).as_deref(), Some("a"));
}
