//! Images of every format so far, a parent's and its child's, made when the format was new. Those
//! of the current format are loaded to exactly their origin; all others are refused.

use std::fs;
use std::path::PathBuf;

use super::super::format::FORMAT;
use super::*;

/// All formats. A new one needs one line here, and
/// `cargo test -p faasw-seedtree -- --ignored writes_golden_images`.
const FORMATS: &[u32] = &[1, 2];

const PARTS: [&str; 2] = ["parent", "child"];

fn path(format: u32, part: &str) -> PathBuf {
    let folder = format!("tests/golden/format-{format}");
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join(folder).join(part).with_extension("image")
}

fn golden_key() -> ImageKey {
    ImageKey::new(b"the key of images that stay 4eve")
}

/// Returns the snapshots that the images are made of, equal each time.
fn made() -> [Node; 2] {
    let at = HEAP / PAGE;
    let content = |byte: u8| -> Vec<u8> { (0..PAGE).map(|place| place as u8 ^ byte).collect() };
    let own = |end| [page(BOOT_PAGE / PAGE), PageRange::of_bytes(HEAP, end)].into_iter();
    let parent = LayerBuilder::new("golden", RAM).unwrap();
    parent.write(BOOT_PAGE, b"where a guest begins").unwrap();
    for number in 0..4 {
        parent
            .write((at + number) * PAGE, &content(number as u8))
            .unwrap();
    }
    let parent = parent.freeze_at(own(HEAP + 8 * PAGE).collect()).unwrap();
    let parent = Snapshot::new(None, parent, vec![1; 100], 11).unwrap();
    let parent = Arc::new(parent.owned_by(OWNER));

    let child = LayerBuilder::new("golden", RAM).unwrap();
    child.write(BOOT_PAGE, b"where a guest goes on").unwrap();
    // Equal to the parent's; emptied; changed; new.
    child.write(at * PAGE, &content(0)).unwrap();
    child.write((at + 2) * PAGE, &content(77)).unwrap();
    // Fills a chunk, and a page of the next.
    for number in 20..35 {
        child
            .write((at + number) * PAGE, &content(number as u8))
            .unwrap();
    }
    let child = child.freeze_at(own(HEAP + 50 * PAGE).collect()).unwrap();
    let child = Snapshot::new(Some(parent.clone()), child, vec![2; 100], 12).unwrap();
    let child = child.owned_by(OWNER);
    let used = UsedPages {
        written: vec![page(at + 22)],
        changed: 1,
        read: vec![page(at + 2), page(at + 30)],
        code: vec![page(0), PageRange::of_bytes(64 * PAGE, 96 * PAGE)],
    };
    child.working_set().learn(0, &used, RAM);
    [parent, Arc::new(child)]
}

fn purpose() -> Purpose {
    Purpose::of(&[b"golden"])
}

/// Returns a file of these bytes.
fn file_of(bytes: &[u8]) -> File {
    let file = tempfile();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn bytes(format: u32, part: &str) -> Vec<u8> {
    let path = path(format, part);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Asserts that an image of this other format is refused.
#[track_caller]
fn assert_refused(bytes: &[u8], format: u32) {
    let error = Image::open(file_of(bytes), &golden_key()).expect_err("it was opened");
    assert!(
        matches!(error, ImageError::Format(told) if told == format),
        "{error}"
    );
    // The file is deleted, and made anew.
    assert!(error.is_of_the_file());
    let told = error.to_string();
    let reason = format!("of format {format}, and this faasw reads format {FORMAT}");
    assert!(told.contains(&reason), "{told}");
}

#[test]
fn images_of_this_format_load_and_others_are_refused() {
    assert!(
        FORMATS.contains(&FORMAT),
        "there are no golden images of format {FORMAT}: add it to FORMATS, and run \
         cargo test -p faasw-seedtree -- --ignored writes_golden_images"
    );
    for format in FORMATS {
        if *format != FORMAT {
            for part in PARTS {
                assert_refused(&bytes(*format, part), *format);
            }
            continue;
        }
        let mut parent: Option<Node> = None;
        for (part, made) in PARTS.into_iter().zip(made()) {
            let image = Image::open(file_of(&bytes(FORMAT, part)), &golden_key()).unwrap();
            assert_eq!(image.purpose(), purpose());
            let content = image.content();
            let told = parent.as_ref().and_then(|parent| parent.content());
            assert_eq!(image.parent(), told);
            let again = restored(image, parent.as_ref()).unwrap();
            assert_eq!(again.content(), Some(content));
            assert!(memory_of(&made) == memory_of(&again), "{part}");
            assert_eq!(made.layer().own(), again.layer().own());
            assert_eq!(made.windows(), again.windows());
            assert_eq!(made.state(), again.state());
            let times = [&made, &again].map(|node| node.monotonic_nanoseconds());
            assert_eq!(times[0], times[1]);
            let [before, now] = [&made, &again].map(|node| node.working_set().current());
            assert_eq!((&before.written, &before.read), (&now.written, &now.read));
            assert_eq!(before.code, now.code);
            parent = Some(again);
        }
    }
}

#[test]
fn an_image_with_another_formats_number_is_refused() {
    for part in PARTS {
        for format in [0, FORMAT - 1, FORMAT + 1, u32::MAX] {
            let mut bytes = bytes(FORMAT, part);
            bytes[8..12].copy_from_slice(&format.to_le_bytes());
            assert_refused(&bytes, format);
        }
    }
}

/// Writes the golden images of the current format. It is run once per format, when the format is
/// new.
#[test]
#[ignore = "it replaces what other tests are held against"]
fn writes_golden_images() {
    for (part, snapshot) in PARTS.into_iter().zip(made()) {
        let path = path(FORMAT, part);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = File::create(path).unwrap();
        let content = snapshot
            .write_image(snapshot.state(), purpose(), &golden_key(), &file)
            .unwrap();
        snapshot.set_content(content);
    }
}
