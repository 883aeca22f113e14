//! The contents of an image, and the distribution in it of the pages that requests use: for one
//! image, what REAP (§4) measures of guests' memory.
//!
//! All of it is numbers and digests. The contents of pages and of the vCPU are not part of it.

use faasw_abi::memory_map::PAGE;
use faasw_abi::pages::PageSet;

use super::error::ImageError;
use super::format::{CHUNK, FORMAT};
use super::read::Image;
use super::source::Source;
use crate::content::Content;

/// The contents of an image, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anatomy {
    /// Version of the format.
    pub format: u32,
    /// Digest of the snapshot's memory.
    pub content: Content,
    /// Digest of the parent's memory.
    pub parent: Option<Content>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes before the first page.
    pub header_bytes: u64,
    /// Number of chunks of pages.
    pub chunks: u64,
    /// Bytes of each chunk but the last.
    pub chunk_bytes: u64,
    /// Bytes of the guest's memory.
    pub ram_bytes: u64,
    /// Number of pages that an instance maps of the layer.
    pub own: u64,
    /// Own pages that are in the file.
    pub stored: u64,
    /// Own pages that are empty.
    pub zero: u64,
    /// Own pages that are equal to the parent's.
    pub inherited: u64,
    /// The pages that requests use, if they were known when the image was written.
    pub used: Option<Use>,
}

/// Numbers of pages that requests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Written pages.
    pub written: u64,
    /// Written pages that differed afterwards.
    pub changed: u64,
    /// Pages that are only read.
    pub read: u64,
    /// Written and read pages together.
    pub all: u64,
    /// Number of contiguous runs that these pages form in memory (fig. 3).
    pub runs: u64,
    /// Pages of the longest run.
    pub longest_run: u64,
    /// Used pages that are in the file.
    pub stored: u64,
    /// Used pages that are the image's own, and empty.
    pub zero: u64,
    /// Used pages of its parent or an earlier ancestor.
    pub ancestors: u64,
}

impl<F: Source> Image<F> {
    /// Returns the contents, as the header states them.
    #[must_use]
    pub fn anatomy(&self) -> Anatomy {
        let header = &self.header;
        let stored: PageSet = header.stored.iter().copied().collect();
        let zero = header.own.without(&stored).without(&header.inherited);
        let all = header.sets.written.union(&header.sets.read);
        let both = |set: &PageSet| all.intersection(set).count();
        let used = Use {
            written: header.sets.written.count(),
            changed: header.changed.min(header.sets.written.count()),
            read: header.sets.read.count(),
            all: all.count(),
            runs: all.ranges().len() as u64,
            longest_run: all.iter().map(|run| run.count()).max().unwrap_or(0),
            stored: both(&stored),
            zero: both(&zero),
            ancestors: all.without(&stored).without(&zero).count(),
        };
        Anatomy {
            format: FORMAT,
            content: header.content,
            parent: header.parent,
            file_bytes: self.pages.at() + stored.bytes(),
            header_bytes: self.pages.at(),
            chunks: header.tags.len() as u64,
            chunk_bytes: CHUNK as u64,
            ram_bytes: header.ram_bytes,
            own: header.own.count(),
            stored: stored.count(),
            zero: zero.count(),
            inherited: header.inherited.count(),
            used: (used.all > 0).then_some(used),
        }
    }

    /// Reads and verifies the whole image, and keeps nothing.
    ///
    /// # Errors
    /// Returns [`ImageError::Damaged`] if a part is not what was sealed, [`ImageError::CutOff`] if
    /// a part is missing, and [`ImageError::Io`] if the disk fails.
    pub fn verify(&self) -> Result<(), ImageError> {
        self.pages.verify()
    }
}

const _: () = assert!((CHUNK as u64).is_multiple_of(PAGE));

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use faasw_abi::memory_map::HEAP;
    use faasw_abi::pages::PageRange;

    use super::*;
    use crate::image::{ImageKey, Part, Purpose};
    use crate::key::Owner;
    use crate::layer::LayerBuilder;
    use crate::snapshot::Snapshot;
    use crate::working_set::UsedPages;

    const RAM: u64 = 64 << 20;
    const FIRST: u64 = HEAP / PAGE;

    /// Pages of the heap, by their numbers in it.
    fn pages(start: u64, end: u64) -> PageRange {
        PageRange::of_bytes((FIRST + start) * PAGE, (FIRST + end) * PAGE)
    }

    fn key() -> ImageKey {
        ImageKey::new(&[5; ImageKey::BYTES])
    }

    fn image_of(snapshot: &Snapshot<Vec<u8>>) -> File {
        let file = File::from(crate::file::memory_file("image").unwrap());
        let purpose = Purpose::of(&[]);
        let written = snapshot.write_image(snapshot.state(), purpose, &key(), &file);
        snapshot.set_content(written.unwrap());
        file
    }

    /// Returns a parent of 10 pages, and a child of 100: the first 10 are equal to the parent's, 10
    /// are empty, and 80 are the child's own.
    fn parent_and_child() -> [Arc<Snapshot<Vec<u8>>>; 2] {
        let layer = LayerBuilder::new("parent", RAM).unwrap();
        layer.write(HEAP, &[1; 10 * PAGE as usize]).unwrap();
        let layer = layer.freeze_at(pages(0, 10).into()).unwrap();
        let parent = Arc::new(Snapshot::new(None, layer, vec![], 0).unwrap());
        let layer = LayerBuilder::new("child", RAM).unwrap();
        layer.write(HEAP, &[1; 10 * PAGE as usize]).unwrap();
        let own = vec![2; 80 * PAGE as usize];
        layer.write((FIRST + 20) * PAGE, &own).unwrap();
        let layer = layer.freeze_at(pages(0, 100).into()).unwrap();
        let child = Snapshot::new(Some(parent.clone()), layer, vec![7; 50], 0).unwrap();
        [parent, Arc::new(child.owned_by(Owner::Function(1)))]
    }

    #[test]
    fn every_page_is_of_one_class() {
        let [parent, child] = parent_and_child();
        let parent = Image::open(image_of(&parent), &key()).unwrap().anatomy();
        assert_eq!((parent.parent, parent.used), (None, None));
        assert_eq!((parent.own, parent.stored, parent.chunks), (10, 10, 1));
        let file = image_of(&child);
        let length = file.metadata().unwrap().len();
        let told = Image::open(file, &key()).unwrap().anatomy();
        assert_eq!((told.own, told.stored), (100, 80));
        assert_eq!((told.zero, told.inherited), (10, 10));
        assert_eq!((told.chunks, told.chunk_bytes), (5, 64 << 10));
        assert_eq!(told.parent, Some(parent.content));
        assert_eq!((told.file_bytes, told.ram_bytes), (length, RAM));
        assert_eq!(told.file_bytes - told.header_bytes, 80 * PAGE);
    }

    #[test]
    fn used_pages_are_counted_by_their_origin() {
        let [parent, child] = parent_and_child();
        image_of(&parent);
        let used = UsedPages {
            // Two pages of the parent's, empty ones, the child's own, and one that it does not map.
            written: vec![pages(8, 12), pages(40, 43)],
            changed: 5,
            read: vec![pages(43, 50), pages(200, 201)],
            code: vec![],
        };
        assert!(child.working_set().learn(0, &used, RAM));
        let told = Image::open(image_of(&child), &key()).unwrap().anatomy();
        let expected = Use {
            written: 7,
            changed: 5,
            read: 8,
            all: 15,
            runs: 3,
            longest_run: 10,
            stored: 10,
            zero: 2,
            ancestors: 3,
        };
        assert_eq!(told.used, Some(expected));
    }

    #[test]
    fn an_image_damaged_anywhere_fails_verification() {
        let [parent, child] = parent_and_child();
        image_of(&parent);
        let file = image_of(&child);
        let verified = |file: &File| {
            let image = Image::open(file.try_clone().unwrap(), &key()).unwrap();
            image.verify()
        };
        verified(&file).unwrap();
        let chunks_at = Image::open(file.try_clone().unwrap(), &key())
            .unwrap()
            .anatomy()
            .header_bytes;
        for (at, chunk) in [
            (0, 0),
            ((64 << 10) - 1, 0),
            (64 << 10, 1),
            (80 * PAGE - 1, 4),
        ] {
            let mut byte = [0];
            FileExt::read_exact_at(&file, &mut byte, chunks_at + at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], chunks_at + at).unwrap();
            let told = verified(&file);
            assert!(
                matches!(told, Err(ImageError::Damaged(Part::Chunk(number))) if number == chunk),
                "{at} {told:?}"
            );
            file.write_all_at(&byte, chunks_at + at).unwrap();
        }
        file.set_len(chunks_at + 70 * PAGE).unwrap();
        assert!(matches!(verified(&file), Err(ImageError::CutOff)));
    }
}
