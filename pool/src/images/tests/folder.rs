//! A folder that other programs change at will.

use std::os::unix::fs::symlink;
use std::thread;
use std::time::Duration;

use super::*;

const ID: ImageId = [1; 32];

fn of(number: u8) -> ImageIdentity {
    ImageIdentity::function(&[number; 32], &[])
}

fn restored(images: &Images, of: &ImageIdentity) -> Option<String> {
    let frozen = super::restored(images, of);
    frozen.map(|frozen| text(&frozen))
}

#[test]
fn a_removed_folder_is_created_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("images");
    fs::create_dir(&path).unwrap();
    let images = Images::new(path.clone(), &[3; Images::SECRET], 1 << 30);
    let bytes = images.write_image(&of(1), &frozen()).bytes().unwrap();
    fs::remove_dir_all(&path).unwrap();
    assert_eq!(restored(&images, &of(1)), None);
    assert_eq!(images.write_image(&of(2), &frozen()).bytes(), Some(bytes));
    assert_eq!(restored(&images, &of(2)).as_deref(), Some("here"));
    assert_eq!(images.account.lock().bytes_beside(""), bytes);
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    // A different folder in its place, or a link to one, is refused.
    let aside = folder.path().join("aside");
    fs::rename(&path, &aside).unwrap();
    symlink(&aside, &path).unwrap();
    assert_eq!(restored(&images, &of(2)).as_deref(), Some("here"));
    assert!(images.write_image(&of(3), &frozen()).bytes().is_some());
    // A file in its place: no image can be written, and the file is not touched.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    assert_eq!(images.write_image(&of(4), &frozen()).bytes(), None);
    assert_eq!(restored(&images, &of(2)), None);
    images.serve(None, &[ID]);
    assert!(!images.clear());
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    // Without its parent folder: writing fails, and nothing else happens.
    fs::remove_file(&path).unwrap();
    let nowhere = folder.path().join("nowhere/images");
    let images = Images::new(nowhere, &[3; Images::SECRET], 1 << 30);
    assert_eq!(images.write_image(&of(4), &frozen()).bytes(), None);
}

#[test]
fn files_of_other_programs_stay() {
    let folder = tempfile::tempdir().unwrap();
    let theirs = ["README", "notes.txt", "0123", "x.image"].map(|name| folder.path().join(name));
    for path in &theirs {
        fs::write(path, "theirs").unwrap();
    }
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("target");
    fs::write(&target, "theirs").unwrap();
    let strays = ["a", "b", "c", "d"].map(|digit| folder.path().join(digit.repeat(64)));
    fs::write(&strays[0], "of nobody").unwrap();
    symlink(&target, &strays[1]).unwrap();
    fs::hard_link(&target, &strays[2]).unwrap();
    fs::create_dir(&strays[3]).unwrap();
    fs::write(folder.path().join(".unfinished-1-2"), "half").unwrap();
    let images = images(&folder, 1 << 30);
    images.retain([]);
    images.tidy();
    images.remove_all();
    assert!(!images.clear());
    assert!(
        theirs
            .iter()
            .all(|path| fs::read(path).unwrap() == b"theirs")
    );
    assert_eq!(fs::read(&target).unwrap(), b"theirs");
    // The node must not empty a folder of that name.
    assert_eq!(names(&folder), theirs.len() + 1);
}

#[test]
fn a_folder_in_an_images_place_is_no_image() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(&folder, 1 << 30);
    let path = images.path(&of(1).kind);
    fs::create_dir(&path).unwrap();
    assert_eq!(images.bytes_of(&[1; 32]), None);
    assert_eq!(restored(&images, &of(1)), None);
    fs::write(path.join("mine"), "mine").unwrap();
    assert_eq!(images.write_image(&of(1), &frozen()).bytes(), None);
    assert_eq!(
        (names(&folder), fs::read(path.join("mine")).unwrap()),
        (1, b"mine".to_vec())
    );
    fs::remove_file(path.join("mine")).unwrap();
    assert!(images.write_image(&of(1), &frozen()).bytes().is_some());
    assert_eq!(restored(&images, &of(1)).as_deref(), Some("here"));
}

/// A file with two names is the image of its own name only.
#[test]
fn an_image_under_another_name_is_rejected_and_the_original_stays_valid() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(&folder, 1 << 30);
    assert!(images.write_image(&of(1), &frozen()).bytes().is_some());
    let [own, other] = [1, 2].map(|number| images.path(&of(number).kind));
    fs::hard_link(&own, &other).unwrap();
    assert_eq!(restored(&images, &of(2)), None);
    assert!(!other.exists());
    assert_eq!(restored(&images, &of(1)).as_deref(), Some("here"));
    // A new image does not overwrite the file of the old name, either.
    fs::hard_link(&own, &other).unwrap();
    assert!(
        images
            .write_image(&of(2), &frozen_with(b"another"))
            .bytes()
            .is_some()
    );
    assert_eq!(restored(&images, &of(1)).as_deref(), Some("here"));
    assert_eq!(restored(&images, &of(2)).as_deref(), Some("another"));
}

#[test]
fn two_nodes_in_one_folder_never_read_partial_images() {
    const TIMES: usize = 60;
    let folder = tempfile::tempdir().unwrap();
    let nodes = [images(&folder, 1 << 30), images(&folder, 1 << 30)];
    assert_ne!(nodes[0].unfinished, nodes[1].unfinished);
    let read = thread::scope(|scope| {
        let writers: Vec<_> = nodes
            .iter()
            .zip(["one", "other"])
            .map(|(node, text)| {
                scope.spawn(move || {
                    let frozen = frozen_with(text.as_bytes());
                    (0..TIMES)
                        .filter(|_| node.write_image(&of(1), &frozen).bytes().is_some())
                        .count()
                })
            })
            .collect();
        let third = images(&folder, 1 << 30);
        let mut read = 0;
        while !writers.iter().all(|writer| writer.is_finished()) {
            if let Some(text) = restored(&third, &of(1)) {
                assert!(text == "one" || text == "other", "{text:?}");
                read += 1;
            }
        }
        // Neither node removes the file that the other one writes.
        let kept: Vec<usize> = writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect();
        assert_eq!(kept, [TIMES, TIMES]);
        read
    });
    println!("{read} read meanwhile");
    assert_eq!(names(&folder), 1);
    assert!(restored(&nodes[0], &of(1)).is_some());
}

#[test]
fn images_of_another_key_are_neither_read_nor_retained() {
    let folder = tempfile::tempdir().unwrap();
    let before = images(&folder, 1 << 30);
    assert!(before.write_image(&of(1), &frozen()).bytes().is_some());
    let after = Images::new(folder.path().into(), &[4; Images::SECRET], 1 << 30);
    assert_eq!(
        (after.bytes_of(&[1; 32]), restored(&after, &of(1))),
        (None, None)
    );
    // The file gets the name that the image would have with the other key.
    fs::rename(before.path(&of(1).kind), after.path(&of(1).kind)).unwrap();
    assert!(after.bytes_of(&[1; 32]).is_some());
    assert_eq!(restored(&after, &of(1)), None);
    assert_eq!(names(&folder), 0);
    assert!(before.write_image(&of(1), &frozen()).bytes().is_some());
    after.retain([&ID]);
    after.tidy();
    assert_eq!(names(&folder), 0);
}

#[test]
fn an_image_that_is_not_written_evicts_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let frozen = frozen();
    let images = images(&folder, SHARE * frozen.layer().data_bytes());
    assert!(images.write_image(&of(1), &frozen).bytes().is_some());
    // The shared seeds' images take the whole budget.
    let shared = ImageKind::Shared(SHARED[0].to_owned()).file_name(&images.key);
    images.account.lock().note(&shared, images.budget);
    assert_eq!(images.write_image(&of(2), &frozen), ImageWrite::NotTried);
    assert_eq!(restored(&images, &of(1)).as_deref(), Some("here"));
    // An image without a parent on the disk, or of a removed version, displaces none, either.
    let child = LayerBuilder::new("child", 64 << 20).unwrap();
    let child = child.freeze(1).unwrap();
    let parent = Some(Arc::new(frozen_with(b"without an image")));
    let child =
        SeedSnapshot::new(parent, child, Box::new(VcpuState::new_zeroed()).into(), 5).unwrap();
    images.account.lock().forget(&shared);
    assert_eq!(images.write_image(&of(3), &child), ImageWrite::NotTried);
    images.serve(None, &[[4; 32]]);
    images.account.lock().note("of another", images.budget - 1);
    assert_eq!(images.write_image(&of(4), &frozen), ImageWrite::NotTried);
    assert_eq!(restored(&images, &of(1)).as_deref(), Some("here"));
}

#[test]
fn clock_jumps_do_not_change_the_order_of_eviction() {
    let folder = tempfile::tempdir().unwrap();
    let years = |count: u64| Duration::from_secs(count * 365 * 24 * 3600);
    let now = SystemTime::now();
    let first = images(&folder, 1 << 30);
    let used = |of: &ImageIdentity, when| {
        let file = File::options()
            .write(true)
            .open(first.path(&of.kind))
            .unwrap();
        file.set_modified(when).unwrap();
    };
    let engines = [1, 2, 3].map(|code| ImageIdentity::engine(&[code; 32], b"commands"));
    let times = [now + years(20), now, now - years(1)];
    for (engine, when) in engines.iter().zip(times) {
        assert!(first.write_image(engine, &frozen()).bytes().is_some());
        used(engine, when);
    }
    let bytes = first.write_image(&of(1), &frozen()).bytes().unwrap();
    assert!(first.write_image(&of(2), &frozen()).bytes().is_some());
    used(&of(1), now + years(20));
    used(&of(2), now - years(1));
    let images = images(&folder, 4 * bytes);
    images.retain([&[1; 32], &[2; 32]]);
    images.tidy();
    // The engine that was used a year ago is gone; all others fit.
    assert_eq!(names(&folder), 4);
    assert!(images.path(&engines[0].kind).exists());
    assert!(!images.path(&engines[2].kind).exists());
    // A use by this node counts as later than any time of another clock.
    assert!(restored(&images, &of(2)).is_some());
    assert!(images.evict_to(3 * bytes, ""));
    assert_eq!(
        (images.bytes_of(&[1; 32]), images.bytes_of(&[2; 32])),
        (None, Some(bytes))
    );
}
