//! Any snapshot is restored exactly, or not at all.

mod faults;
mod filling;
mod golden;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use faasw_abi::memory_map::{BOOT_PAGE, HEAP, PAGE};
use faasw_abi::pages::{GuestAddress, PageRange, PageSet};

use super::format::PREFIX;
use super::header::Header;
use super::*;
use crate::key::Owner;
use crate::layer::LayerBuilder;
use crate::snapshot::Snapshot;
use crate::working_set::UsedPages;

const RAM: u64 = 64 << 20;
const OWNER: Owner = Owner::Function(7);

type Node = Arc<Snapshot<Vec<u8>>>;

fn key() -> ImageKey {
    ImageKey::new(&[5; ImageKey::BYTES])
}

fn page(number: u64) -> PageRange {
    PageRange::of_bytes(number * PAGE, (number + 1) * PAGE)
}

/// Returns a child of `parent` with random pages of its own, some of them empty, and some equal to
/// the parent's.
fn random_child(random: &mut fastrand::Rng, parent: Option<&Node>) -> Node {
    let layer = LayerBuilder::new("test", RAM).unwrap();
    let mut own = vec![page(BOOT_PAGE / PAGE)];
    layer.write(BOOT_PAGE, &[random.u8(1..); 100]).unwrap();
    for _ in 0..random.u32(0..12) {
        let start = HEAP / PAGE + random.u64(0..2000);
        for number in start..start + random.u64(1..40) {
            own.push(page(number));
            let address = number * PAGE;
            let mut content = vec![0; PAGE as usize];
            match (random.u8(0..4), parent) {
                (0, _) => continue,
                (1, Some(parent)) => {
                    let address = GuestAddress::new(address);
                    parent.view().read(address, &mut content).unwrap();
                }
                _ => random.fill(&mut content),
            }
            layer.write(address, &content).unwrap();
        }
    }
    let layer = layer.freeze_at(own.into_iter().collect()).unwrap();
    let state = std::iter::repeat_with(|| random.u8(..)).take(100).collect();
    let time = random.u64(..);
    let snapshot = Snapshot::new(parent.cloned(), layer, state, time).unwrap();
    let snapshot = snapshot.owned_by(OWNER);
    if random.bool() {
        let used = random_pages(random);
        let told = UsedPages {
            changed: used[0].len() as u64,
            written: used[0].clone(),
            read: used[1].clone(),
            code: random_pages(random)[0].clone(),
        };
        snapshot.working_set().learn(0, &told, RAM);
    }
    Arc::new(snapshot)
}

/// Returns two lists of pages of the heap, in order.
fn random_pages(random: &mut fastrand::Rng) -> [Vec<PageRange>; 2] {
    [(); 2].map(|()| {
        let pages = (0..random.u64(1..60)).map(|_| page(HEAP / PAGE + random.u64(0..2000)));
        let set: PageSet = pages.collect();
        set.ranges().to_vec()
    })
}

fn image_of(snapshot: &Node) -> File {
    let file = tempfile();
    snapshot
        .write_image(snapshot.state(), Purpose::of(&[b"a", b"b"]), &key(), &file)
        .map(|content| snapshot.set_content(content))
        .unwrap();
    file
}

/// A file without a name.
fn tempfile() -> File {
    let file = crate::file::memory_file("image").unwrap();
    File::from(file)
}

fn restored(image: Image<File>, parent: Option<&Node>) -> Result<Node, ImageError> {
    let layer = image.read_layer("restored", parent.map(|parent| &**parent))?;
    let state = image.state().to_vec();
    let snapshot = image.restore(layer, parent.cloned(), state, OWNER)?;
    Ok(Arc::new(snapshot))
}

fn memory_of(snapshot: &Node) -> Vec<u8> {
    let mut memory = vec![0; (16 << 20) + HEAP as usize];
    memory.truncate(RAM as usize);
    snapshot
        .view()
        .read(GuestAddress::new(0), &mut memory)
        .unwrap();
    memory
}

#[track_caller]
fn assert_same(one: &Node, other: &Node) {
    assert!(memory_of(one) == memory_of(other));
    assert_eq!(one.layer().own(), other.layer().own());
    assert_eq!(one.windows(), other.windows());
    assert_eq!(one.difference(), other.difference());
    assert_eq!(one.state(), other.state());
    assert_eq!(one.monotonic_nanoseconds(), other.monotonic_nanoseconds());
    assert_eq!((one.depth(), one.owner()), (other.depth(), other.owner()));
    assert!(other.layer().data_bytes() <= one.layer().data_bytes());
    let [before, now] = [one, other].map(|snapshot| snapshot.working_set().current());
    assert_eq!((&before.written, &before.read), (&now.written, &now.read));
    assert_eq!(before.code, now.code);
    assert_eq!(one.prepared().unwrap(), other.prepared().unwrap());
    let wants = |snapshot: &Node| snapshot.working_set().is_wanted();
    assert_eq!(wants(one), wants(other));
}

#[test]
fn any_chain_of_snapshots_is_restored_unchanged() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..12 {
        let (mut made, mut read): (Option<Node>, Option<Node>) = (None, None);
        for _ in 0..4 {
            let next = random_child(&mut random, made.as_ref());
            let file = image_of(&next);
            let parent = next.parent().and_then(|parent| parent.content());
            let length = file.metadata().unwrap().len();
            assert!(length.is_multiple_of(PAGE));
            let image = Image::open(file, &key()).unwrap();
            assert_eq!(
                (Some(image.content()), image.parent()),
                (next.content(), parent)
            );
            assert_eq!(parent.is_some(), made.is_some());
            assert_eq!(image.ram_bytes(), RAM);
            assert_eq!(image.purpose(), Purpose::of(&[b"a", b"b"]));
            assert_ne!(image.purpose(), Purpose::of(&[b"ab"]));
            assert!(length - image.stored_bytes() <= 3 * PREFIX as u64);
            let again = restored(image, read.as_ref()).unwrap();
            assert_same(&next, &again);
            assert_eq!(again.content(), next.content());
            (made, read) = (Some(next), Some(again));
        }
    }
}

#[test]
fn empty_pages_and_the_parents_pages_are_not_stored() {
    let parent = LayerBuilder::new("parent", RAM).unwrap();
    let at = HEAP / PAGE;
    for number in at..at + 40 {
        parent.write(number * PAGE, &[1; 4096]).unwrap();
    }
    let all: PageSet = PageRange::of_bytes(HEAP, HEAP + 40 * PAGE).into();
    let parent = Snapshot::new(None, parent.freeze_at(all.clone()).unwrap(), vec![], 0).unwrap();
    let parent = Arc::new(parent);
    let child = LayerBuilder::new("child", RAM).unwrap();
    child.write(HEAP, &[1; 30 * 4096]).unwrap();
    child.write(HEAP + 8 * PAGE, &[2; 4096]).unwrap();
    let child = child.freeze_at(all).unwrap();
    let child = Arc::new(Snapshot::new(Some(parent.clone()), child, vec![], 0).unwrap());
    let child = Arc::new(Arc::into_inner(child).unwrap().owned_by(OWNER));
    let error = child.write_image(child.state(), Purpose::of(&[]), &key(), &tempfile());
    assert!(matches!(error, Err(ImageError::Parent)), "{error:?}");
    image_of(&parent);
    let file = image_of(&child);
    let image = Image::open(file, &key()).unwrap();
    assert_eq!(image.stored_bytes(), PAGE);
    let again = restored(image, Some(&parent)).unwrap();
    assert_same(&child, &again);
}

#[test]
fn every_arrangement_is_restored_unchanged() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let parent = random_child(&mut random, None);
    image_of(&parent);
    for _ in 0..6 {
        let child = random_child(&mut random, Some(&parent));
        let own = child.layer().own();
        for (is_by_use, leaves_out) in [(false, true), (true, false), (false, false)] {
            let arrangement = Arrangement {
                is_by_use,
                leaves_out,
            };
            let file = tempfile();
            let content = child
                .write_image_as(arrangement, child.state(), Purpose::of(&[]), &key(), &file)
                .unwrap();
            let image = Image::open(file, &key()).unwrap();
            // There may be nothing to leave out.
            assert!(image.stored_bytes() <= own.bytes());
            assert!(leaves_out || image.stored_bytes() == own.bytes());
            if !is_by_use {
                assert!(image.order().is_sorted_by_key(|range| range.start));
            }
            let again = restored(image, Some(&parent)).unwrap();
            assert_eq!(memory_of(&child), memory_of(&again));
            assert_eq!(again.content(), Some(content));
        }
    }
}

#[test]
fn an_image_is_restored_over_its_own_parent_only() {
    let mut random = fastrand::Rng::with_seed(4);
    let parent = random_child(&mut random, None);
    image_of(&parent);
    let child = random_child(&mut random, Some(&parent));
    let file = image_of(&child);
    let another = random_child(&mut random, None);
    for has_image in [false, true] {
        if has_image {
            image_of(&another);
        }
        for other in [Some(&another), None] {
            let image = Image::open(file.try_clone().unwrap(), &key()).unwrap();
            let error = restored(image, other).expect_err("it came back");
            assert!(matches!(error, ImageError::Parent), "{error}");
        }
    }
    let image = Image::open(file, &key()).unwrap();
    assert_same(&child, &restored(image, Some(&parent)).unwrap());
}

#[test]
fn requests_pages_come_first() {
    let layer = LayerBuilder::new("test", RAM).unwrap();
    layer.write(HEAP, &[3; 100 * 4096]).unwrap();
    let own = PageRange::of_bytes(HEAP, HEAP + 100 * PAGE);
    let layer = layer.freeze_at(own.into()).unwrap();
    let snapshot = Snapshot::new(None, layer, vec![], 0).unwrap();
    let snapshot = snapshot.owned_by(OWNER);
    let at = HEAP / PAGE;
    let told = UsedPages {
        written: vec![page(at + 50)],
        changed: 1,
        read: vec![page(at + 20), page(at + 70)],
        code: vec![],
    };
    let snapshot = Arc::new(snapshot);
    let content = Image::open(image_of(&snapshot), &key()).unwrap().content();
    snapshot.working_set().learn(0, &told, RAM);
    let file = image_of(&snapshot);
    let image = Image::open(file, &key()).unwrap();
    // The memory is the same.
    assert_eq!(image.content(), content);
    let first: Vec<u32> = image
        .order()
        .iter()
        .map(|range| range.start.number())
        .collect();
    let at = at as u32;
    assert_eq!(
        first,
        [at + 50, at + 20, at + 70, at, at + 21, at + 51, at + 71]
    );
}

/// Returns a snapshot without a parent, and its image.
fn sample(random: &mut fastrand::Rng) -> (Node, File) {
    loop {
        let snapshot = random_child(random, None);
        let file = image_of(&snapshot);
        let image = Image::open(file.try_clone().unwrap(), &key()).unwrap();
        if image.stored_bytes() > 3 * CHUNK as u64 {
            return (snapshot, file);
        }
    }
}

fn copy_of(file: &File) -> (File, Vec<u8>) {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    FileExt::read_exact_at(file, &mut bytes, 0).unwrap();
    let copy = tempfile();
    copy.write_all_at(&bytes, 0).unwrap();
    (copy, bytes)
}

fn reads(file: File) -> Result<Node, ImageError> {
    restored(Image::open(file, &key())?, None)
}

#[test]
fn no_byte_may_change_and_none_be_missing() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (snapshot, file) = sample(&mut random);
    let (copy, bytes) = copy_of(&file);
    assert_same(&snapshot, &reads(copy).unwrap());
    let header = u32::from_le_bytes(*bytes[12..].first_chunk().unwrap()) as usize;
    let chunks = Header::chunks_at(header) as usize;
    let places = [0..PREFIX, PREFIX..PREFIX + header, chunks..bytes.len()];
    for place in places.iter().flat_map(|place| vec![place.clone(); 60]) {
        let at = random.usize(place);
        let (copy, _) = copy_of(&file);
        let changed = bytes[at] ^ (1 << random.u8(0..8));
        copy.write_all_at(&[changed], at as u64).unwrap();
        let error = reads(copy).expect_err("it was read");
        assert!(error.is_of_the_file(), "{at}: {error}");
    }
    for _ in 0..60 {
        let (copy, _) = copy_of(&file);
        let length = random.usize(..bytes.len());
        copy.set_len(length as u64).unwrap();
        let error = reads(copy).expect_err("it was read");
        assert!(matches!(error, ImageError::CutOff), "{length}: {error}");
    }
}

#[test]
fn a_part_of_another_image_or_place_is_refused() {
    let mut random = fastrand::Rng::with_seed(1);
    let ((_, one), (snapshot, _)) = (sample(&mut random), sample(&mut random));
    // Two images have the same content.
    let (other, third) = (image_of(&snapshot), image_of(&snapshot));
    let (_, other_bytes) = copy_of(&other);
    let header = u32::from_le_bytes(*other_bytes[12..].first_chunk().unwrap()) as usize;
    let chunks = Header::chunks_at(header) as usize;
    let moved = |from: &[u8], range: std::ops::Range<usize>, to: usize| {
        let (copy, _) = copy_of(&third);
        copy.write_all_at(&from[range], to as u64).unwrap();
        reads(copy).expect_err("it was read").to_string()
    };
    let (_, own) = copy_of(&third);
    let second = chunks + CHUNK;
    let swapped = moved(&own, chunks..second, second);
    assert_eq!(swapped, "chunk 1 of an image is damaged");
    let foreign = moved(&other_bytes, chunks..second, chunks);
    assert_eq!(foreign, "chunk 0 of an image is damaged");
    let header_of = moved(&other_bytes, PREFIX..PREFIX + header, PREFIX);
    assert_eq!(header_of, "the header of an image is damaged");
    let beginning = moved(&copy_of(&one).1, 0..PREFIX, 0);
    assert!(
        beginning.contains("damaged") || beginning.contains("cut off"),
        "{beginning}"
    );
    // The whole is an image again; its content digest tells which one.
    let (whole, _) = copy_of(&other);
    assert_same(&snapshot, &reads(whole).unwrap());
}

#[test]
fn a_wrong_image_is_rejected_with_a_reason() {
    let (_, file) = sample(&mut fastrand::Rng::with_seed(2));
    let of = |change: &[u8], at: u64| {
        let (copy, _) = copy_of(&file);
        copy.write_all_at(change, at).unwrap();
        Image::open(copy, &key()).expect_err("it was opened")
    };
    assert!(matches!(of(b"ELF", 0), ImageError::Foreign));
    assert!(matches!(of(&[9, 0, 0, 0], 8), ImageError::Format(9)));
    assert!(matches!(of(&[255; 4], 12), ImageError::Senseless(_)));
    assert!(matches!(of(&[1], 4095), ImageError::Senseless(_)));
    let another = ImageKey::new(&[6; 32]);
    let (copy, _) = copy_of(&file);
    let error = Image::open(copy, &another).expect_err("it was opened");
    assert!(matches!(error, ImageError::Key));
    assert!(matches!(reads(tempfile()), Err(ImageError::CutOff)));
}

/// A holder of the key may still write arbitrary contents.
#[test]
fn a_header_that_makes_no_sense_is_refused() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (_, file) = sample(&mut random);
    let image = Image::open(file, &key()).unwrap();
    let sound = image.header().encode().unwrap();
    assert_eq!(Header::decode(&sound).unwrap().encode().unwrap(), sound);
    let mut refused = 0;
    for _ in 0..3000 {
        let mut bytes = sound.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len().min(400));
            bytes[at] = random.u8(..);
        }
        bytes.truncate(random.usize(bytes.len().saturating_sub(50)..=bytes.len()));
        match Header::decode(&bytes) {
            Err(_) => refused += 1,
            Ok(header) => {
                let within = |set: &PageSet| set.without(&header.own).is_empty();
                let stored: PageSet = header.stored.iter().copied().collect();
                assert!(within(&stored) && within(&header.inherited));
                assert!(header.ram_bytes <= faasw_abi::memory_map::RAM_MAX);
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}

/// A disk that fails at some offset.
#[derive(Debug)]
struct Failing(File, u64);

impl Source for Failing {
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        if offset + out.len() as u64 > self.1 {
            Err(io::Error::from_raw_os_error(5))
        } else {
            FileExt::read_exact_at(&self.0, out, offset)
        }
    }
}

#[test]
fn a_disk_that_fails_is_not_the_files_fault() {
    let (_, file) = sample(&mut fastrand::Rng::with_seed(3));
    let length = file.metadata().unwrap().len();
    for fails_at in [0, 4096, 5000, length - 1] {
        let source = Failing(file.try_clone().unwrap(), fails_at);
        let read = Image::open(source, &key())
            .and_then(|image| image.read_layer::<Vec<u8>>("restored", None));
        let error = read.expect_err("it was read");
        assert!(matches!(error, ImageError::Io(_)) && !error.is_of_the_file());
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (snapshot, _) = sample(&mut fastrand::Rng::with_seed(3));
    let error = snapshot.write_image(&[], Purpose::of(&[]), &key(), &full);
    assert!(matches!(error, Err(ImageError::Io(_))), "{error:?}");
}
