//! Images that are sent from one folder to another: piece by piece, within the available space, and
//! without leaving files if they do not arrive completely.

use std::os::unix::fs::PermissionsExt as _;

use faasw_seedtree::image::ParcelError;

use super::super::transfer::ImageImport;
use super::faults::{Calls, Fault, Faulty};
use super::*;

const ID: ImageId = [1; 32];

fn of() -> ImageIdentity {
    ImageIdentity::function(&ID, &[])
}

fn shared(folder: &tempfile::TempDir, budget: u64) -> Arc<Images> {
    Arc::new(images(folder, budget))
}

fn module() -> (u64, Box<dyn io::Read + Send + Sync>) {
    (6, Box::new(&b"module"[..]))
}

/// Returns the pieces of an export.
fn pieces(images: &Images, note: &[u8]) -> Result<Vec<Vec<u8>>, ExportError> {
    let mut export = images.export(&ID, note, module())?;
    let mut pieces = Vec::new();
    while let Some(piece) = export.next_piece()? {
        pieces.push(piece);
    }
    let bytes: usize = pieces.iter().map(Vec::len).sum();
    assert_eq!(export.bytes(), bytes as u64);
    Ok(pieces)
}

/// Returns an image of this size, as a file.
fn image_of(folder: &tempfile::TempDir, pages: usize) -> Vec<u8> {
    let images = images(folder, 1 << 40);
    let content: Vec<u8> = (0..pages * 4096).map(|at| (at % 251) as u8 + 1).collect();
    images
        .write_image(&of(), &frozen_with(&content))
        .bytes()
        .unwrap();
    fs::read(images.path(&of().kind)).unwrap()
}

/// Writes the image in pieces.
fn arrives(images: &Arc<Images>, image: &[u8]) -> Result<ImageImport, ImageError> {
    let mut arriving = images.receive(image.len() as u64)?;
    for piece in image.chunks(16 << 10) {
        arriving.write(piece)?;
    }
    Ok(arriving)
}

/// Returns the paths of incomplete files.
fn by_half(folder: &tempfile::TempDir) -> Vec<PathBuf> {
    let names = fs::read_dir(folder.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().path());
    let is_so = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with('.')
    };
    names.filter(is_so).collect()
}

#[test]
fn an_export_is_opened_where_the_key_is_the_same() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = images(&there, 1 << 30);
    let frozen = frozen();
    assert!(matches!(pieces(&from, b"note"), Err(ExportError::NoImage)));
    let bytes = from.write_image(&of(), &frozen).bytes().unwrap();
    let export = pieces(&from, b"note").unwrap();
    let to = shared(&here, 1 << 30);
    assert_eq!(to.origin(), from.origin());
    // The beginning of the export, then each piece of a part.
    let (begin, note) = export[0].split_at(faasw_seedtree::image::Opening::BEGIN);
    let opening = to.open_export(begin).unwrap();
    let (note, mut contents) = opening.open_note(note.to_vec()).unwrap();
    assert_eq!(&*note, b"note");
    assert_eq!(contents.parts(), [6, bytes]);
    let mut parts = [Vec::new(), Vec::new()];
    for piece in &export[1..] {
        let (part, length) = contents.next_piece().unwrap();
        assert_eq!(length, piece.len());
        parts[part].extend(contents.open(piece.clone()).unwrap());
    }
    assert_eq!(contents.next_piece(), None);
    let [module, image] = parts;
    assert_eq!(&*module, b"module");
    // Even if the version was removed before.
    to.serve(None, &[ID]);
    arrives(&to, &image).unwrap().place(&ID).unwrap();
    assert_eq!(to.known_bytes_of(&ID), Some(bytes));
    let again = restored(&to, &of()).unwrap();
    assert_eq!(again.content(), frozen.content());
    assert_eq!(to.write_image(&of(), &frozen).bytes(), Some(bytes));
    assert_eq!(names(&here), 1);
    let stranger = Images::new(here.path().into(), &[4; Images::SECRET], 1 << 30);
    let error = stranger.open_export(begin).unwrap_err();
    assert!(matches!(error, ParcelError::Key), "{error}");
    // A damaged image is not exported.
    let path = from.path(&of().kind);
    let mut damaged = fs::read(&path).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&path, &damaged).unwrap();
    let error = pieces(&from, b"").unwrap_err();
    assert!(matches!(error, ExportError::Image(_)), "{error}");
}

#[test]
fn an_incomplete_import_leaves_no_file() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let image = image_of(&there, 8);
    let to = shared(&here, 1 << 30);
    let mut one = to.receive(image.len() as u64).unwrap();
    let other = arrives(&to, &image).unwrap();
    one.write(&image[..5000]).unwrap();
    let files = by_half(&here);
    assert_eq!(files.len(), 2);
    for file in &files {
        let mode = fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(to.bytes_left(), (1 << 30) - 5000 - image.len() as u64);
    drop(one);
    assert_eq!(by_half(&here).len(), 1);
    assert_eq!(to.bytes_left(), (1 << 30) - image.len() as u64);
    drop(other);
    assert_eq!((names(&here), to.bytes_left()), (0, 1 << 30));
    // A different program has removed the file.
    let gone = arrives(&to, &image).unwrap();
    fs::remove_file(&by_half(&here)[0]).unwrap();
    assert!(gone.place(&ID).is_err());
    assert_eq!((to.bytes_left(), to.bytes_of(&ID)), (1 << 30, None));
}

/// The threads of the runtime serve other tasks meanwhile.
#[test]
fn a_runtime_does_not_wait_for_a_file_to_be_removed() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let image = image_of(&there, 8);
    let to = shared(&here, 1 << 30);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.max_blocking_threads(2).build().unwrap();
    // All blocking threads are busy.
    let (go, going) = std::sync::mpsc::channel::<()>();
    let going = Arc::new(Lock::new(going));
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let going = going.clone();
            runtime.spawn_blocking(move || going.lock().recv().unwrap())
        })
        .collect();
    let arriving = arrives(&to, &image).unwrap();
    runtime.block_on(async { drop(arriving) });
    assert_eq!(by_half(&here).len(), 1);
    assert_eq!(to.bytes_left(), (1 << 30) - image.len() as u64);
    for waiting in waiting {
        go.send(()).unwrap();
        runtime.block_on(waiting).unwrap();
    }
    // A removal that was started is completed.
    drop(runtime);
    assert_eq!((names(&here), to.bytes_left()), (0, 1 << 30));
    let ended = tokio::runtime::Runtime::new().unwrap();
    let handle = ended.handle().clone();
    drop(ended);
    let arriving = arrives(&to, &image).unwrap();
    let _entered = handle.enter();
    drop(arriving);
    assert_eq!((names(&here), to.bytes_left()), (0, 1 << 30));
}

/// The files that a killed process has left.
#[test]
fn partial_files_are_removed_at_the_start_and_running_imports_stay() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let image = image_of(&there, 2);
    let killed = shared(&here, 1 << 30);
    std::mem::forget(arrives(&killed, &image).unwrap());
    assert_eq!(by_half(&here).len(), 1);
    let next = shared(&here, 1 << 30);
    // The folder is read before the first write, and again only if that failed.
    next.retain([]);
    let arriving = arrives(&next, &image).unwrap();
    assert_eq!(by_half(&here).len(), 1, "its own");
    *next.account.lock() = ImageAccount::new(SHARED.map(str::to_owned));
    next.retain([]);
    next.tidy();
    assert_eq!(by_half(&here).len(), 1, "its own");
    arriving.place(&ID).unwrap();
    assert!(by_half(&here).is_empty());
    assert_eq!(next.bytes_of(&ID), Some(image.len() as u64));
}

#[test]
fn images_are_evicted_for_received_bytes_not_for_announced_ones() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let image = image_of(&there, 32);
    let bytes = image.len() as u64;
    // Room for eight images of that size.
    let to = shared(&here, bytes * SHARE);
    for number in 2..10 {
        arrives(&to, &image).unwrap().place(&[number; 32]).unwrap();
    }
    assert_eq!((names(&here), to.bytes_left()), (8, 0));
    let mut arriving = to.receive(bytes).unwrap();
    assert_eq!(names(&here), 9, "nothing has come yet");
    arriving.write(&image[..1]).unwrap();
    assert_eq!((names(&here), to.bytes_of(&[2; 32])), (8, None));
    arriving.write(&image[1..]).unwrap();
    assert_eq!(names(&here), 8, "that was room for all of it");
    arriving.place(&ID).unwrap();
    assert_eq!((names(&here), to.bytes_left()), (8, 0));
    // An image above the limit for one image is rejected at once. So is one without room while
    // others are being received.
    assert!(to.receive(bytes + 1).is_err());
    let all: Vec<ImageImport> = (0..8).map(|_| arrives(&to, &image).unwrap()).collect();
    assert!(to.receive(bytes).is_err());
    assert_eq!(by_half(&here).len(), 8);
    drop(all);
    assert_eq!((names(&here), to.bytes_left()), (0, bytes * SHARE));
}

/// Each call of the disk fails in turn: the image is complete, or none of it is left.
#[test]
fn a_failed_import_leaves_a_complete_image_or_none() {
    let there = tempfile::tempdir().unwrap();
    let image = image_of(&there, 8);
    const ENOSPC: i32 = 28;
    const EIO: i32 = 5;
    let mut happened = HashSet::new();
    for fault in [Fault::Fails(ENOSPC), Fault::Fails(EIO), Fault::Short] {
        for at in 0.. {
            let here = tempfile::tempdir().unwrap();
            let calls = Calls::new(fault, at);
            let disk = Box::new(Faulty(calls.clone()));
            let secret = [3; Images::SECRET];
            let to = Arc::new(Images::on(disk, here.path().into(), &secret, 1 << 30));
            let arrived = arrives(&to, &image).and_then(|arriving| arriving.place(&ID));
            let Some(call) = calls.happened_to() else {
                assert!(arrived.is_ok());
                break;
            };
            happened.insert(call);
            let what = format!("{fault:?} {at}: {call}, {arrived:?}");
            let is_there = arrived.is_ok();
            assert_eq!(
                is_there,
                fault == Fault::Short || call == "sync_folder",
                "{what}"
            );
            let found = fs::read(to.path(&of().kind)).ok();
            assert_eq!(found.as_ref() == Some(&image), is_there, "{what}");
            assert_eq!(names(&here), usize::from(is_there), "{what}");
            let taken = if is_there { image.len() as u64 } else { 0 };
            assert_eq!(to.bytes_left(), (1 << 30) - taken, "{what}");
        }
    }
    for call in [
        "names",
        "room",
        "create",
        "write",
        "sync",
        "replace",
        "sync_folder",
    ] {
        assert!(happened.remove(call), "{call}");
    }
    assert!(happened.is_empty(), "{happened:?}");
}
