use alloc::string::ToString as _;
use alloc::vec;
use alloc::vec::Vec;

use faasw_abi::files::upload::{Files as Upload, pack};

use super::*;

/// A memory budget, with the number of taken bytes.
struct Budget {
    taken: usize,
    most: usize,
}

impl MemoryBudget for Budget {
    fn take(&mut self, bytes: usize) -> Result<(), FileError> {
        if self.taken + bytes > self.most {
            return Err(FileError::NoSpace);
        }
        self.taken += bytes;
        Ok(())
    }

    fn release(&mut self, bytes: usize) {
        self.taken -= bytes;
    }
}

const NOW: Duration = Duration::from_secs(9);

const LARGE: [u8; 10_000] = [7; 10_000];

fn files() -> (Files, Budget) {
    let mut upload = Upload::default();
    for (kind, path, content) in [
        (Kind::File, "index.html", &b"<p>"[..]),
        (Kind::File, "lib/large", &LARGE),
        (Kind::File, "lib/deep/er", b"x"),
        (Kind::Folder, "empty", b""),
        (Kind::Link, "home", b"index.html"),
        (Kind::Link, "lib/up", b"../home"),
        (Kind::Link, "round", b"round"),
    ] {
        upload.add(kind, path, content);
    }
    let bundle = pack(&upload.into_bytes()).unwrap();
    let files = Files::new(bundle.leak(), "/".into()).unwrap();
    let budget = Budget {
        taken: 0,
        most: 1 << 20,
    };
    (files, budget)
}

const WRITE: Opening = Opening {
    create: true,
    exclusive: false,
    folder: false,
    truncate: false,
    write: true,
    follow: true,
};

fn content(files: &Files, path: &str) -> Result<Vec<u8>, FileError> {
    let node = files.find(ROOT, path, true)?;
    let mut out = vec![0; files.stat(node)?.size as usize];
    let read = files.read(node, 0, &mut out)?;
    assert_eq!(read, out.len());
    Ok(out)
}

fn names(files: &Files, path: &str) -> Vec<String> {
    let folder = files.find(ROOT, path, true).unwrap();
    let listed = files.list(folder, 0, usize::MAX).unwrap();
    let numbers: Vec<u64> = listed.iter().map(|entry| entry.number).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next));
    listed.iter().map(|entry| entry.name.to_string()).collect()
}

#[test]
fn a_bundle_is_read_where_it_lies() {
    let (files, budget) = files();
    assert_eq!(content(&files, "lib/large"), Ok(LARGE.to_vec()));
    assert_eq!(content(&files, "./lib//deep/../up"), Ok(b"<p>".to_vec()));
    assert_eq!(names(&files, "lib"), ["deep", "large", "up"]);
    assert_eq!(
        names(&files, "."),
        ["empty", "home", "index.html", "lib", "round"]
    );
    let large = files.find(ROOT, "lib/large", true).unwrap();
    let mut some = [0; 9];
    assert_eq!(files.read(large, 9_995, &mut some), Ok(5));
    assert_eq!(files.read(large, u64::MAX, &mut some), Ok(0));
    assert!(files.are_untouched());
    assert_eq!(budget.taken, 0);
}

#[test]
fn no_path_leads_out() {
    let (mut files, mut room) = files();
    let mut files = files.with(&mut room, NOW);
    let lib = files.find(ROOT, "lib", true).unwrap();
    for (base, path) in [
        (ROOT, ".."),
        (ROOT, "/index.html"),
        (ROOT, "lib/../../x"),
        (lib, "../index.html"),
        (lib, "deep/../.."),
        // A link that leads within the files, but out of the open folder.
        (lib, "up"),
    ] {
        assert_eq!(
            files.find(base, path, true),
            Err(FileError::LeadsOut),
            "{path}"
        );
    }
    assert_eq!(files.find(lib, "up", false).map(|_| ()), Ok(()));
    for target in ["/etc/passwd", "/"] {
        let made = files.create_link(target, ROOT, "out");
        assert_eq!(made, Err(FileError::LeadsOut));
    }
    files.create_link("../../x", ROOT, "out").unwrap();
    assert_eq!(files.find(ROOT, "out", true), Err(FileError::LeadsOut));
    assert_eq!(files.find(ROOT, "round", true), Err(FileError::Loop));
    assert_eq!(files.find(ROOT, "round/x", true), Err(FileError::Loop));
    assert_eq!(
        files.find(ROOT, "index.html/", true),
        Err(FileError::NotFolder)
    );
    assert_eq!(
        files.find(ROOT, "index.html/x", true),
        Err(FileError::NotFolder)
    );
    assert_eq!(files.find(ROOT, "", true), Err(FileError::NoEntry));
    assert_eq!(files.find(ROOT, "a\0", true), Err(FileError::Invalid));
    let long = "a".repeat(256);
    assert_eq!(files.find(ROOT, &long, true), Err(FileError::NameTooLong));
    let long = "a/".repeat(2049);
    assert_eq!(files.find(ROOT, &long, true), Err(FileError::NameTooLong));
}

/// Links that each lead through two others would double the path with each of them.
#[test]
fn links_that_multiply_end() {
    let (mut files, mut room) = files();
    let mut files = files.with(&mut room, NOW);
    let name = |number: u32| alloc::format!("l{number}");
    for number in 0..60 {
        let next = name(number + 1);
        let target = alloc::format!("empty/../{next}/../{next}");
        files.create_link(&target, ROOT, &name(number)).unwrap();
    }
    assert_eq!(files.find(ROOT, "l0", true), Err(FileError::Loop));
}

#[test]
fn writes_lie_over_the_bundle_page_by_page() {
    let (mut bare, mut room) = files();
    let mut files = bare.with(&mut room, NOW);
    let node = files.open(ROOT, "lib/large", WRITE).unwrap();
    assert_eq!(files.write(node, 5_000, b"abc"), Ok(3));
    let mut expected = LARGE.to_vec();
    expected[5_000..5_003].copy_from_slice(b"abc");
    assert_eq!(content(&files, "lib/large").unwrap(), expected);
    // Memory for one of the three pages.
    assert!(room.taken < 8192, "{}", room.taken);
    let mut files = bare.with(&mut room, NOW);
    // A write behind the end leaves zeroes between.
    assert_eq!(files.write(node, 10_100, b"z"), Ok(1));
    expected.resize(10_100, 0);
    expected.push(b'z');
    assert_eq!(content(&files, "lib/large").unwrap(), expected);
    // Truncated bytes do not reappear, neither written ones nor those of the bundle.
    files.set_size(node, 5_001).unwrap();
    files.set_size(node, 12_000).unwrap();
    expected.truncate(5_001);
    expected.resize(12_000, 0);
    assert_eq!(content(&files, "lib/large").unwrap(), expected);
    files.set_size(node, 4_096).unwrap();
    files.set_size(node, 4_097).unwrap();
    assert_eq!(content(&files, "lib/large").unwrap()[4_096], 0);
    assert_eq!(files.set_size(node, u64::MAX), Err(FileError::TooLarge));
    assert_eq!(files.write(node, u64::MAX, b"x"), Err(FileError::TooLarge));
    assert_eq!(files.stat(node).unwrap().times.modified, NOW);
}

#[test]
fn memory_is_taken_and_given_back() {
    let (mut files, mut room) = files();
    let before = {
        // The memory of the folder itself once it has changed.
        files.with(&mut room, NOW).open(ROOT, "a", WRITE).unwrap();
        room.taken
    };
    let node = files.with(&mut room, NOW).open(ROOT, "b", WRITE).unwrap();
    let bytes = vec![1; 2 << 20];
    let written = files.with(&mut room, NOW).write(node, 0, &bytes).unwrap();
    assert!(written > 900 << 10 && written < 1 << 20, "{written}");
    assert_eq!(
        files.with(&mut room, NOW).write(node, 2 << 20, b"x"),
        Err(FileError::NoSpace)
    );
    let no_space = files
        .with(&mut room, NOW)
        .create_folder(ROOT, &"n".repeat(250));
    if no_space.is_err() {
        assert_eq!(no_space, Err(FileError::NoSpace));
    }
    files.with(&mut room, NOW).unlink(ROOT, "b").unwrap();
    // The file is still open.
    assert!(room.taken > 900 << 10);
    assert_eq!(files.stat(node).unwrap().links, 0);
    files.with(&mut room, NOW).close(node);
    files
        .with(&mut room, NOW)
        .remove_folder(ROOT, &"n".repeat(250))
        .ok();
    assert_eq!(room.taken, before);
    assert_eq!(files.stat(node), Err(FileError::NoEntry));
}

#[test]
fn a_write_beyond_the_budget_changes_nothing() {
    let (mut files, _) = files();
    let mut none = Budget { taken: 0, most: 0 };
    let mut files = files.with(&mut none, NOW);
    let full = |result: Result<(), FileError>| assert_eq!(result, Err(FileError::NoSpace));
    full(files.open(ROOT, "new", WRITE).map(drop));
    full(files.create_folder(ROOT, "new"));
    full(files.create_link("a", ROOT, "new"));
    full(files.unlink(ROOT, "index.html"));
    full(files.remove_folder(ROOT, "empty"));
    full(files.rename((ROOT, "index.html"), (ROOT, "new")));
    full(files.link((ROOT, "index.html"), (ROOT, "new")));
    let node = files.find(ROOT, "index.html", true).unwrap();
    full(files.write(node, 0, b"x").map(drop));
    full(files.set_size(node, 0));
    assert!(files.are_untouched());
    assert_eq!(content(&files, "index.html"), Ok(b"<p>".to_vec()));
}

#[test]
fn folders_are_changed_as_names() {
    let (mut files, mut room) = files();
    let mut files = files.with(&mut room, NOW);
    files.unlink(ROOT, "index.html").unwrap();
    assert_eq!(content(&files, "home"), Err(FileError::NoEntry));
    assert_eq!(files.remove_folder(ROOT, "lib"), Err(FileError::NotEmpty));
    assert_eq!(files.unlink(ROOT, "lib"), Err(FileError::IsFolder));
    assert_eq!(files.remove_folder(ROOT, "."), Err(FileError::NotEmpty));
    assert_eq!(files.create_folder(ROOT, "lib"), Err(FileError::Exists));
    files.create_folder(ROOT, "new").unwrap();
    files.rename((ROOT, "lib"), (ROOT, "new/lib")).unwrap();
    assert_eq!(content(&files, "new/lib/deep/er"), Ok(b"x".to_vec()));
    let lib = files.find(ROOT, "new/lib", true).unwrap();
    assert_eq!(files.parent(lib), files.find(ROOT, "new", true).unwrap());
    // No folder can be moved into itself, whichever path names it.
    let deep = files.find(ROOT, "new/lib/deep", true).unwrap();
    for to in [(ROOT, "new/lib/deep/new"), (deep, "new")] {
        let moved = files.rename((ROOT, "new"), to);
        assert_eq!(moved, Err(FileError::Invalid));
    }
    assert_eq!(
        files.rename((ROOT, "new"), (ROOT, "home")),
        Err(FileError::NotFolder)
    );
    assert_eq!(
        files.rename((ROOT, "home"), (ROOT, "empty")),
        Err(FileError::IsFolder)
    );
    files.rename((ROOT, "new"), (ROOT, "empty")).unwrap();
    assert_eq!(content(&files, "empty/lib/deep/er"), Ok(b"x".to_vec()));
    assert_eq!(names(&files, "."), ["empty", "home", "round"]);
}

#[test]
fn a_listing_continues_after_removals() {
    let (mut files, mut room) = files();
    let mut files = files.with(&mut room, NOW);
    let mut seen = Vec::new();
    let mut behind = 0;
    loop {
        let one = files.list(ROOT, behind, 1).unwrap();
        let Some(entry) = one.first() else { break };
        let (name, number) = (entry.name.to_string(), entry.number);
        if name != "lib" && name != "empty" {
            files.unlink(ROOT, &name).unwrap();
        }
        seen.push(name);
        behind = number;
    }
    assert_eq!(seen, ["empty", "home", "index.html", "lib", "round"]);
    assert_eq!(names(&files, "."), ["empty", "lib"]);
}

#[test]
fn nothing_can_be_created_in_a_removed_open_folder() {
    let (mut files, mut room) = files();
    let mut files = files.with(&mut room, NOW);
    let empty = files.find(ROOT, "empty", true).unwrap();
    files.hold(empty);
    files.remove_folder(ROOT, "empty").unwrap();
    let made = files.open(empty, "x", WRITE);
    assert_eq!(made, Err(FileError::NoEntry));
    assert_eq!(files.find(ROOT, "empty", true), Err(FileError::NoEntry));
    files.close(empty);
}

#[test]
fn one_file_can_be_in_two_folders() {
    let (mut files, mut room) = files();
    let mut files = files.with(&mut room, NOW);
    files
        .link((ROOT, "index.html"), (ROOT, "lib/again"))
        .unwrap();
    let node = files.open(ROOT, "lib/again", WRITE).unwrap();
    files.write(node, 0, b"<b").unwrap();
    assert_eq!(content(&files, "index.html"), Ok(b"<b>".to_vec()));
    assert_eq!(files.stat(node).unwrap().links, 2);
    files.unlink(ROOT, "index.html").unwrap();
    assert_eq!(content(&files, "lib/again"), Ok(b"<b>".to_vec()));
    let folder = files.link((ROOT, "lib"), (ROOT, "more"));
    assert_eq!(folder, Err(FileError::NotPermitted));
}

#[test]
fn how_something_is_opened_is_held_to() {
    let (mut files, mut room) = files();
    let mut files = files.with(&mut room, NOW);
    let mut open = |path: &str, how: Opening| files.open(ROOT, path, how).map(drop);
    let read = Opening {
        follow: true,
        ..Opening::default()
    };
    let nofollow = Opening::default();
    let exclusive = Opening {
        exclusive: true,
        ..WRITE
    };
    let folder = Opening {
        folder: true,
        ..read
    };
    for (path, how, expected) in [
        ("nothing", read, Err(FileError::NoEntry)),
        ("home", read, Ok(())),
        ("home", nofollow, Err(FileError::Loop)),
        ("home", exclusive, Err(FileError::Exists)),
        ("lib", WRITE, Err(FileError::IsFolder)),
        ("lib", folder, Ok(())),
        ("index.html", folder, Err(FileError::NotFolder)),
        ("new/", WRITE, Err(FileError::IsFolder)),
        ("no/thing", WRITE, Err(FileError::NoEntry)),
        ("new", WRITE, Ok(())),
    ] {
        assert_eq!(open(path, how), expected, "{path} {how:?}");
    }
    let truncate = Opening {
        truncate: true,
        ..read
    };
    open("home", truncate).unwrap();
    assert_eq!(content(&files, "index.html"), Ok(Vec::new()));
}
