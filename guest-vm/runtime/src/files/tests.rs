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

fn bundle(entries: &[(Kind, &str, &[u8])]) -> &'static [u8] {
    let mut upload = Upload::default();
    for (kind, path, content) in entries {
        upload.add(*kind, path, content);
    }
    pack(&upload.into_bytes()).unwrap().leak()
}

fn files() -> (Files, Budget) {
    let bundle = bundle(&[
        (Kind::File, "index.html", &b"<p>"[..]),
        (Kind::File, "lib/large", &LARGE),
        (Kind::File, "lib/deep/er", b"x"),
        (Kind::Folder, "empty", b""),
        (Kind::Link, "home", b"index.html"),
        (Kind::Link, "lib/up", b"../home"),
        (Kind::Link, "round", b"round"),
    ]);
    (Files::new(bundle, "/files".into()).unwrap(), budget())
}

fn budget() -> Budget {
    Budget {
        taken: 0,
        most: 1 << 20,
    }
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

fn preopened(files: &Files) -> Vec<(Node, &str)> {
    files.preopened().collect()
}

#[test]
fn temporary_files_take_memory_only_while_they_exist() {
    let (mut files, mut room) = (Files::default(), budget());
    assert_eq!(preopened(&files), [(TEMPORARY, "/tmp")]);
    assert_eq!(files.kind(ROOT), Err(FileError::NoEntry));
    let mut files = files.with(&mut room, NOW);
    assert_eq!(files.kind(TEMPORARY), Ok(Kind::Folder));
    assert_eq!(files.list(TEMPORARY, 0, 9), Ok(Vec::new()));
    assert_eq!(files.find(TEMPORARY, "..", true), Err(FileError::LeadsOut));
    assert_eq!(files.find(TEMPORARY, "x", true), Err(FileError::NoEntry));
    assert!(files.are_untouched());
    let node = files.open(TEMPORARY, "x", WRITE).unwrap();
    assert_eq!(files.write(node, 0, b"some"), Ok(4));
    let mut some = [0; 9];
    assert_eq!(files.read(node, 0, &mut some), Ok(4));
    assert_eq!(files.find(TEMPORARY, "x", true), Ok(node));
    files.close(node);
    files.unlink(TEMPORARY, "x").unwrap();
    assert_eq!(files.stat(node), Err(FileError::NoEntry));
    // The folder's own memory stays.
    assert_eq!(room.taken, NODE);
}

#[test]
fn a_bundle_at_the_root_contains_the_temporary_folder() {
    let some = bundle(&[(Kind::File, "a", b"a"), (Kind::File, "z", b"z")]);
    let (mut files, mut room) = (Files::new(some, "/".into()).unwrap(), budget());
    assert_eq!(preopened(&files), [(ROOT, "/")]);
    assert_eq!(names(&files, "."), ["a", "z", "tmp"]);
    assert_eq!(files.list(ROOT, 2, 1).unwrap().len(), 1);
    assert_eq!(files.list(ROOT, 3, 1).unwrap().len(), 0);
    assert_eq!(
        files.find(ROOT, "tmp/../a", true),
        files.find(ROOT, "a", true)
    );
    assert!(files.are_untouched() && room.taken == 0);
    let mut files = files.with(&mut room, NOW);
    let node = files.open(ROOT, "tmp/x", WRITE).unwrap();
    files.write(node, 0, b"some").unwrap();
    assert_eq!(names(&files, "tmp"), ["x"]);
    files.rename((ROOT, "tmp/x"), (ROOT, "y")).unwrap();
    assert_eq!(content(&files, "y"), Ok(b"some".to_vec()));
    assert_eq!(names(&files, "."), ["a", "z", "tmp", "y"]);
    assert_eq!(
        files.rename((ROOT, "tmp"), (ROOT, "tmp/tmp")),
        Err(FileError::Invalid)
    );
    files.remove_folder(ROOT, "tmp").unwrap();
    assert_eq!(names(&files, "."), ["a", "z", "y"]);
    assert_eq!(files.find(ROOT, "tmp", true), Err(FileError::NoEntry));
}

#[test]
fn deployed_files_at_the_path_of_the_temporary_folder_replace_it() {
    let own = bundle(&[(Kind::File, "tmp/deployed", b"x")]);
    let mut files = Files::new(own, "/".into()).unwrap();
    assert_eq!(preopened(&files), [(ROOT, "/")]);
    assert_eq!(names(&files, "."), ["tmp"]);
    assert_eq!(names(&files, "tmp"), ["deployed"]);
    assert_eq!(files.kind(TEMPORARY), Err(FileError::NoEntry));
    let mut room = budget();
    files
        .with(&mut room, NOW)
        .open(ROOT, "tmp/x", WRITE)
        .unwrap();
    assert_eq!(names(&files, "tmp"), ["deployed", "x"]);
    let at = Files::new(own, "/tmp".into()).unwrap();
    assert_eq!(preopened(&at), [(ROOT, "/tmp")]);
    for beside in ["/data", "/tmp/data"] {
        let files = Files::new(own, beside.into()).unwrap();
        let expected = [(ROOT, beside), (TEMPORARY, "/tmp")];
        assert_eq!(preopened(&files), expected);
    }
}

fn engine(bundle: &'static [u8], mount: &str, room: &mut Budget) -> Files {
    let mut files = Files::of_engine();
    assert_eq!(preopened(&files), [(ENGINE_ROOT, "/")]);
    assert_eq!(files.list(ENGINE_ROOT, 0, 9).unwrap().len(), 1);
    files.mount(bundle, mount.into()).unwrap();
    files.with(room, NOW).attach().unwrap();
    files
}

#[test]
fn an_engines_folder_contains_the_files_of_its_script_at_their_path() {
    let some = bundle(&[(Kind::File, "a", b"deployed"), (Kind::File, "tmp/b", b"c")]);
    for mount in ["/", "/a", "/srv/data", "/tmp", "/tmp/data"] {
        let mut room = budget();
        let files = engine(some, mount, &mut room);
        assert_eq!(preopened(&files), [(ENGINE_ROOT, "/")]);
        let path = alloc::format!("{}/a", mount.trim_end_matches('/'));
        let node = files.find(ENGINE_ROOT, &path[1..], true).unwrap();
        let mut out = [0; 8];
        assert_eq!(files.read(node, 0, &mut out), Ok(8));
        let mut room = budget();
        let mut files = engine(some, mount, &mut room);
        let mut files = files.with(&mut room, NOW);
        files.open(ENGINE_ROOT, "tmp/x", WRITE).unwrap();
        files.open(ENGINE_ROOT, "new", WRITE).unwrap();
        assert!(files.find(ENGINE_ROOT, &path[1..], true).is_ok(), "{mount}");
        assert_eq!(
            files.find(ENGINE_ROOT, "../x", true),
            Err(FileError::LeadsOut)
        );
    }
    let mut room = budget();
    let mut deep = engine(some, "/srv/data", &mut room);
    assert_eq!(
        deep.with(&mut room, NOW)
            .rename((ENGINE_ROOT, "srv"), (ENGINE_ROOT, "srv/data/srv")),
        Err(FileError::Invalid)
    );
    let listed = |mount: &str| {
        let files = engine(some, mount, &mut budget());
        let names = files.list(ENGINE_ROOT, 0, 9).unwrap();
        let names: Vec<String> = names.iter().map(|entry| entry.name.to_string()).collect();
        names.join(" ")
    };
    assert_eq!(listed("/"), "a tmp");
    assert_eq!(listed("/srv/data"), "tmp srv");
    assert_eq!(listed("/tmp"), "tmp");
}

#[test]
fn files_that_an_engine_opened_before_its_script_stay_open() {
    let (mut files, mut room) = (Files::of_engine(), budget());
    let opened = files.with(&mut room, NOW).open(ENGINE_ROOT, "tmp/x", WRITE);
    let node = opened.unwrap();
    let some = bundle(&[(Kind::File, "a", b"deployed")]);
    files.mount(some, "/".into()).unwrap();
    let mut files = files.with(&mut room, NOW);
    files.attach().unwrap();
    assert!(files.find(ENGINE_ROOT, "a", true).is_ok());
    assert_eq!(files.write(node, 0, b"y"), Ok(1));
    assert_eq!(files.find(ENGINE_ROOT, "tmp/x", true), Ok(node));
}
