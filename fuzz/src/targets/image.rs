//! Func-images that an attacker with access to the disk writes, and ones that an attacker with the
//! key writes.
//!
//! Input: how it is to be read; then a whole file, or the length of a header, the header, and
//! pages. Header and pages are sealed here, so that their content is parsed.

use std::io;
use std::sync::{Arc, LazyLock};

use faasw_abi::memory_map::{CODE_MAX, PAGE, RAM_MAX};
use faasw_abi::pages::{PageRange, PageSet};
use faasw_seedtree::image::{Image, ImageError, ImageKey, Source, fuzzing};
use faasw_seedtree::limits::{FILLED_MAX, MAPPED_MAX, SET_MAX, SET_PAGES_MAX, WINDOWS_MAX};
use faasw_seedtree::{Layer, Owner, Snapshot};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::Target;
use crate::input::Input;

/// A page needs a range of 8 bytes in the header; pages are read by the MiB. The size of a layer is
/// compared with the input below.
pub const TARGET: Target = Target {
    name: "image",
    read,
    memory: 2 << 20,
    per_byte: 32,
    executions: 30_000,
};

/// Flag: a header and pages follow, which are to be sealed here.
pub const IS_SEALED_HERE: u8 = 1;
/// Flag: the image is read over the golden parent.
pub const HAS_PARENT: u8 = 2;

/// Golden images of the present format.
pub const PARENT: &[u8] = include_bytes!("../../../seedtree/tests/golden/format-2/parent.image");
/// See [`PARENT`].
pub const CHILD: &[u8] = include_bytes!("../../../seedtree/tests/golden/format-2/child.image");

/// The key with which the golden images were sealed.
pub static KEY: LazyLock<ImageKey> =
    LazyLock::new(|| ImageKey::new(b"the key of images that stay 4eve"));

static OVER: LazyLock<Option<Node>> = LazyLock::new(|| restored(Bytes(PARENT), None).ok());

type Node = Arc<Snapshot<Vec<u8>>>;

/// A disk with these bytes.
#[derive(Debug)]
struct Bytes<'a>(&'a [u8]);

impl Source for Bytes<'_> {
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        let there = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.0.get(offset..))
            .and_then(|there| there.get(..out.len()));
        let there = there.ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(there);
        Ok(())
    }
}

/// Returns header and pages of an image that was sealed with the golden images' key. Both are empty
/// if the file cannot be opened with that key.
#[must_use]
pub fn split(file: &[u8]) -> (Vec<u8>, Vec<u8>) {
    fuzzing::opened(&Bytes(file), &KEY).unwrap_or_default()
}

fn read(bytes: &[u8]) -> bool {
    let mut input = Input::new(bytes);
    let how = input.byte();
    let file = match how & IS_SEALED_HERE {
        0 => input.rest().to_vec(),
        _ => {
            let length = u32::from_le_bytes(input.array());
            let header = input.take(usize::try_from(length).unwrap_or(usize::MAX));
            let Ok(file) = fuzzing::sealed(header, input.rest(), &KEY) else {
                return false;
            };
            file
        }
    };
    is_read(&file, how & HAS_PARENT != 0)
}

/// Reads a file as a node reads an image, over the golden parent or nothing. Returns whether it is
/// an image.
pub fn is_read(file: &[u8], has_parent: bool) -> bool {
    let parent = OVER.as_ref().filter(|_| has_parent);
    let Ok(snapshot) = restored(Bytes(file), parent) else {
        return false;
    };
    let layer = snapshot.layer();
    let from_parent = parent.map_or(0, |parent| parent.layer().data_bytes());
    assert!(layer.data_bytes() <= file.len() as u64 + from_parent);
    is_within(layer);
    is_forked_in_bounds(&snapshot);
    true
}

/// Reads the image as a node does.
fn restored(file: Bytes<'_>, parent: Option<&Node>) -> Result<Node, ImageError> {
    let image = Image::open(file, &KEY)?;
    assert!(image.ram_bytes() <= RAM_MAX && image.ram_bytes().is_multiple_of(PAGE));
    let ram = PageRange::around(0, image.ram_bytes());
    let stored: PageSet = image.order().iter().copied().collect();
    assert!(image.own().iter().all(|range| ram.holds(range)));
    assert!(stored.without(image.own()).is_empty());
    assert_eq!(stored.bytes(), image.stored_bytes());
    // A node checks this as well before it reads the whole image.
    let content = parent.and_then(|parent| parent.content());
    if image.parent() != content {
        return Err(ImageError::Parent);
    }
    let layer = image.read_layer("image", parent.map(|parent| &**parent))?;
    assert_eq!(layer.bytes(), ram.bytes());
    let state = image.state().to_vec();
    let snapshot = image.restore(layer, parent.cloned(), state, Owner::Function(1))?;
    Ok(Arc::new(snapshot))
}

/// Checks that a layer has pages only among its own, and that those are in its memory.
fn is_within(layer: &Layer) {
    let ram = PageRange::around(0, layer.bytes());
    assert!(layer.own().iter().all(|range| ram.holds(range)));
    let mut at = 0;
    while at < layer.bytes() {
        let start = match rustix::fs::seek(layer, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(error) => panic!("{error}"),
        };
        let end = rustix::fs::seek(layer, SeekFrom::Hole(start));
        at = end.unwrap_or(layer.bytes());
        let there = PageSet::from(PageRange::around(start, at));
        assert!(there.without(layer.own()).is_empty(), "{there:?}");
    }
}

/// Checks that what a sandbox receives of the snapshot is bounded and in its memory.
fn is_forked_in_bounds(snapshot: &Node) {
    let layer = snapshot.layer();
    let ram = PageRange::around(0, layer.bytes());
    let windows = snapshot.windows();
    assert!(windows.len() <= WINDOWS_MAX);
    for window in windows {
        assert!(ram.holds(window.range) && window.layer <= snapshot.depth());
    }
    let difference = snapshot.difference();
    assert!(difference.filled.ranges().len() <= FILLED_MAX);
    assert!(difference.mapped.ranges().len() <= MAPPED_MAX);
    let sets = snapshot.working_set().current();
    for pages in [&sets.written, &sets.read] {
        assert!(pages.ranges().len() <= SET_MAX && pages.count() <= SET_PAGES_MAX);
    }
    let code = PageRange::of_bytes(0, CODE_MAX);
    assert!(sets.code.ranges().len() <= SET_MAX);
    assert!(sets.code.iter().all(|range| code.holds(range)));
    let told = [&difference.filled, &difference.mapped];
    assert!(told.iter().all(|set| set.without(layer.own()).is_empty()));
    let told = [&sets.written, &sets.read];
    let mut told = told.iter().flat_map(|set| set.iter());
    assert!(told.all(|range| ram.holds(range)));
}
