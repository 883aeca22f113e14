//! The files of images, and which of them are accepted.

mod faults;
mod folder;
mod many;
mod transfer;

use std::fs::{self, File};

use faasw_abi::pages::GuestAddress;
use faasw_seedtree::LayerBuilder;
use zerocopy::FromZeros;

use super::*;

#[test]
fn only_state_that_ring_3_changes_may_differ() {
    let before = VcpuState::new_zeroed();
    let changed = |change: fn(&mut VcpuState)| {
        let mut after = before;
        change(&mut after);
        is_next(&before, &after)
    };
    assert!(changed(|_| ()));
    assert!(changed(|state| state.regs = [1; _]));
    assert!(changed(|state| state.xsave = [1; _]));
    assert!(changed(|state| state.sregs[232..240].fill(1)));
    for at in [0, 224, 231, 240, 248, 264, 311] {
        let mut after = before;
        after.sregs[at] = 1;
        assert!(!is_next(&before, &after), "{at}");
    }
    assert!(!changed(|state| state.xcrs[0] = 1));
}

fn images(folder: &tempfile::TempDir, budget: u64) -> Images {
    Images::new(folder.path().into(), &[3; Images::SECRET], budget)
}

/// Returns a root with one page of its own.
fn frozen() -> SeedSnapshot {
    frozen_with(b"here")
}

/// Returns a root with these bytes in that page.
fn frozen_with(bytes: &[u8]) -> SeedSnapshot {
    let layer = LayerBuilder::new("test", 64 << 20).unwrap();
    layer.write(RODATA_END, bytes).unwrap();
    let layer = layer.freeze(1).unwrap();
    SeedSnapshot::new(None, layer, Box::new(VcpuState::new_zeroed()).into(), 5).unwrap()
}

fn restored(images: &Images, of: &ImageIdentity) -> Option<SeedSnapshot> {
    let label = LayerLabel {
        layer: "test",
        owner: Owner::Shared,
    };
    let restored = images.restore(of, None, label, || false, |_| true)?;
    assert!(restored.filling.is_none());
    Some(restored.frozen)
}

/// Returns the content of that page.
fn text(frozen: &SeedSnapshot) -> String {
    let mut bytes = [0; 32];
    let address = GuestAddress::new(RODATA_END);
    frozen.view().read(address, &mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    text.trim_end_matches('\0').to_owned()
}

fn names(folder: &tempfile::TempDir) -> usize {
    fs::read_dir(folder.path()).unwrap().count()
}

#[test]
fn an_image_of_a_removed_version_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(&folder, 1 << 30);
    let (id, frozen) = ([1; 32], frozen());
    let of = ImageIdentity::function(&id, &[b"code"]);
    assert!(images.write_image(&of, &frozen).bytes().is_some() && frozen.content().is_some());
    assert_eq!(
        images.bytes_of(&id),
        images.write_image(&of, &frozen).bytes()
    );
    images.serve(None, &[id]);
    assert_eq!((images.bytes_of(&id), names(&folder)), (None, 0));
    assert_eq!(images.write_image(&of, &frozen).bytes(), None);
    assert_eq!(names(&folder), 0);
    // The version was rolled back to.
    images.serve(Some(id), &[[2; 32]]);
    assert!(images.write_image(&of, &frozen).bytes().is_some());
    let again = restored(&images, &of).unwrap();
    assert_eq!(again.content(), frozen.content());
    let other = ImageIdentity::function(&id, &[b"other code"]);
    assert!(restored(&images, &other).is_none());
    assert_eq!(images.bytes_of(&id), None, "it will not be good again");
}

#[test]
fn an_oversized_image_evicts_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let frozen = frozen();
    let of = |number| ImageIdentity::function(&[number; 32], &[]);
    let kept = images(&folder, 1 << 30)
        .write_image(&of(1), &frozen)
        .bytes()
        .unwrap();
    let small = images(&folder, frozen.layer().data_bytes() * SHARE - 1);
    assert_eq!(small.write_image(&of(2), &frozen).bytes(), None);
    assert_eq!(small.bytes_of(&[1; 32]), Some(kept));
    // Without room for two images, the first one is evicted.
    let room = images(&folder, frozen.layer().data_bytes() * SHARE);
    for number in 2..20 {
        assert!(room.write_image(&of(number), &frozen).bytes().is_some());
    }
    assert!(room.bytes_of(&[19; 32]).is_some() && room.bytes_of(&[1; 32]).is_none());
}

#[test]
fn a_fifo_in_an_images_place_blocks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(&folder, 1 << 30);
    let (id, frozen) = ([1; 32], frozen());
    let of = ImageIdentity::function(&id, &[]);
    let path = images.path(&of.kind);
    let fifo = |path: &Path| {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
    };
    fifo(&path);
    fifo(&images.unfinished);
    assert!(restored(&images, &of).is_none());
    assert!(images.write_image(&of, &frozen).bytes().is_some());
    assert!(restored(&images, &of).is_some());
    fs::remove_file(&path).unwrap();
    let aside = folder.path().join("aside");
    fs::write(&aside, "mine").unwrap();
    std::os::unix::fs::symlink(&aside, &path).unwrap();
    std::os::unix::fs::symlink(&aside, &images.unfinished).unwrap();
    assert!(restored(&images, &of).is_none());
    assert!(images.write_image(&of, &frozen).bytes().is_some());
    assert_eq!(fs::read(aside).unwrap(), b"mine");
}

#[test]
fn sizes_are_known_without_disk_access() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(&folder, 1 << 30);
    let (id, frozen) = ([1; 32], frozen());
    let of = ImageIdentity::function(&id, &[]);
    assert_eq!(images.known_bytes_of(&id), None);
    let bytes = images.write_image(&of, &frozen).bytes();
    assert!(bytes.is_some());
    assert_eq!(images.known_bytes_of(&id), bytes);
    let path = images.path(&of.kind);
    let content = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(images.known_bytes_of(&id), bytes);
    // Until the image is needed.
    assert!(restored(&images, &of).is_none());
    assert_eq!(images.known_bytes_of(&id), None);
    fs::write(&path, &content).unwrap();
    assert!(restored(&images, &of).is_some());
    assert_eq!(images.known_bytes_of(&id), bytes);
    fs::write(&path, &content[..5000]).unwrap();
    assert!(restored(&images, &of).is_none());
    assert_eq!(images.known_bytes_of(&id), None);
    // The account of the next start.
    assert_eq!(images.write_image(&of, &frozen).bytes(), bytes);
    let next = self::images(&folder, 1 << 30);
    next.retain([&id]);
    next.tidy();
    assert_eq!(next.known_bytes_of(&id), bytes);
    next.serve(None, &[id]);
    assert_eq!(next.known_bytes_of(&id), None);
    let of = ImageIdentity::function(&[2; 32], &[]);
    assert!(next.write_image(&of, &frozen).bytes().is_some());
    next.clear();
    assert_eq!(next.known_bytes_of(&[2; 32]), None);
}

#[test]
fn an_image_is_valid_over_its_own_parent_only() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(&folder, 1 << 30);
    let (parent, other) = (Arc::new(frozen()), Arc::new(frozen()));
    let shared = ImageIdentity::shared("linkers");
    images.write_image(&shared, &parent).bytes().unwrap();
    let layer = LayerBuilder::new("test", 64 << 20).unwrap();
    layer.write(RODATA_END + 4096, b"more").unwrap();
    let layer = layer.freeze(1).unwrap();
    let child = SeedSnapshot::new(
        Some(parent.clone()),
        layer,
        Box::new(VcpuState::new_zeroed()).into(),
        5,
    );
    let child = child.unwrap();
    let id = [1; 32];
    let of = ImageIdentity::function(&id, &[b"code"]);
    assert!(matches!(images.check(&of, &parent), Err(ImageError::Io(_))));
    images.write_image(&of, &child).bytes().unwrap();
    images.check(&of, &parent).unwrap();
    assert!(matches!(images.check(&of, &other), Err(ImageError::Parent)));
    let changed = ImageIdentity::function(&id, &[b"other code"]);
    assert!(matches!(
        images.check(&changed, &parent),
        Err(ImageError::Purpose)
    ));
    let told = images.describe(&of, parent.content(), Some(&child));
    let told = told.unwrap().unwrap();
    assert_eq!(
        (&told.damage, &told.unfit, &told.reuse),
        (&None, &None, &None)
    );
    assert_eq!((told.pages.stored, told.pages.inherited), (1, 0));
    let told = images.describe(&changed, None, None).unwrap().unwrap();
    assert!(told.unfit.unwrap().contains("another build"));
    // An image without a parent is not a function's.
    assert!(matches!(
        images.check(&shared, &parent),
        Err(ImageError::Parent)
    ));
    // Checks and descriptions do not act on an image: nothing was removed.
    assert_eq!(names(&folder), 2);
}
