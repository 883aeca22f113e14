//! Which files there are of seeds, and what is taken for one.

use faasw_seedtree::LayerBuilder;
use zerocopy::FromZeros;

use super::*;

#[test]
fn only_what_ring_3_changes_may_change() {
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

/// A root with one page of its own.
fn frozen() -> Frozen {
    let layer = LayerBuilder::new("test", 64 << 20).unwrap();
    layer.write(RODATA_END, b"here").unwrap();
    let layer = layer.freeze(1).unwrap();
    Frozen::new(None, layer, Box::new(VcpuState::new_zeroed()).into(), 5).unwrap()
}

fn names(folder: &tempfile::TempDir) -> usize {
    fs::read_dir(folder.path()).unwrap().count()
}

#[test]
fn what_is_gone_meanwhile_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(&folder, 1 << 30);
    let (id, frozen) = ([1; 32], frozen());
    let of = ImageOf::function(&id, &[b"code"]);
    assert!(images.keep(&of, &frozen).is_some() && frozen.content().is_some());
    assert_eq!(images.bytes_of(&id), images.keep(&of, &frozen));
    images.serve(None, &[id]);
    assert_eq!((images.bytes_of(&id), names(&folder)), (None, 0));
    assert_eq!(images.keep(&of, &frozen), None);
    assert_eq!(names(&folder), 0);
    // It was rolled back to.
    images.serve(Some(id), &[[2; 32]]);
    assert!(images.keep(&of, &frozen).is_some());
    let again = images.restore(&of, "test", None, Owner::Shared).unwrap();
    assert_eq!(again.content(), frozen.content());
    let other = ImageOf::function(&id, &[b"other code"]);
    assert!(
        images
            .restore(&other, "test", None, Owner::Shared)
            .is_none()
    );
    assert_eq!(images.bytes_of(&id), None, "it will not be good again");
}

#[test]
fn one_that_is_too_large_costs_the_others_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let frozen = frozen();
    let of = |number| ImageOf::function(&[number; 32], &[]);
    let kept = images(&folder, 1 << 30).keep(&of(1), &frozen).unwrap();
    let small = images(&folder, frozen.layer().data_bytes() * SHARE - 1);
    assert_eq!(small.keep(&of(2), &frozen), None);
    assert_eq!(small.bytes_of(&[1; 32]), Some(kept));
    // Without room for two the first one goes.
    let room = images(&folder, frozen.layer().data_bytes() * SHARE);
    for number in 2..20 {
        assert!(room.keep(&of(number), &frozen).is_some());
    }
    assert!(room.bytes_of(&[19; 32]).is_some() && room.bytes_of(&[1; 32]).is_none());
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(&folder, 1 << 30);
    let (id, frozen) = ([1; 32], frozen());
    let of = ImageOf::function(&id, &[]);
    let path = images.path(&of.what);
    let fifo = |path: &Path| {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
    };
    fifo(&path);
    fifo(&images.unfinished);
    assert!(images.restore(&of, "test", None, Owner::Shared).is_none());
    assert!(images.keep(&of, &frozen).is_some());
    assert!(images.restore(&of, "test", None, Owner::Shared).is_some());
    fs::remove_file(&path).unwrap();
    let aside = folder.path().join("aside");
    fs::write(&aside, "mine").unwrap();
    std::os::unix::fs::symlink(&aside, &path).unwrap();
    std::os::unix::fs::symlink(&aside, &images.unfinished).unwrap();
    assert!(images.restore(&of, "test", None, Owner::Shared).is_none());
    assert!(images.keep(&of, &frozen).is_some());
    assert_eq!(fs::read(aside).unwrap(), b"mine");
}
