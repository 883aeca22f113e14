//! Entries that root has not sealed in this form, or that are for another pod. The pod reports
//! this, and makes its function itself.

use std::{fs, path::Path, sync::Arc};

use faasw::{FunctionOptions, Node, shared};

use crate::{
    HELLO, TestStore, USED,
    e2e::{self, Bench},
    entry::{
        Entry, device, flip, flip_first, flip_last, give_away, grow, link, open_up, pipe, truncate,
    },
    get, serve,
};

/// Asserts that a pod serves without the entry, and reports the reason.
#[track_caller]
fn does_without(what: &str, file: &str, entry: &Entry, options: &[&str], why: &str) {
    let (pod, said) = serve(file, entry, options);
    assert!(!said.contains(USED), "{what}: {said}");
    assert!(said.contains("made here"), "{what}: {said}");
    assert!(said.contains(why), "{what}: no {why:?} in {said}");
    for _ in 0..2 {
        let answer = get(pod.address, "/");
        assert_eq!(answer.body, "hello from wat\n", "{what}: {answer:?}");
    }
    assert_eq!(pod.node.stop("TERM"), Some(0), "{what}");
}

pub fn an_entry_of_another_function_is_not_used() {
    let test_store = TestStore::empty();
    let entry = test_store.add(HELLO, &[]);
    let not_its = |options: &[&str], why: &str| does_without(why, HELLO, &entry, options, why);
    not_its(&["-e", "A=b"], "other options");
    not_its(&["--memory", "16"], "other options");
    not_its(&["--name", "other"], "another name");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hello.wat");
    let module = fs::read(e2e::root().join("tests/fixtures/wat/hello.wat")).unwrap();
    fs::write(&file, module).unwrap();
    let file = file.to_str().unwrap();
    does_without("its text", file, &entry, &[], "another module");
}

/// A pod with the key of one entry and the directory of another reads nothing of the latter.
pub fn a_key_opens_only_its_own_entry() {
    let test_store = TestStore::empty();
    let own = test_store.add(HELLO, &[]);
    let other = test_store.add(HELLO, &["-e", "SECRET=of-another"]);
    let crossed = Entry {
        folder: other.folder.clone(),
        key: own.key.clone(),
    };
    does_without(
        "a key",
        HELLO,
        &crossed,
        &["-e", "SECRET=of-another"],
        "sealed with another",
    );
    // No part of the entry is readable without its key.
    for file in other.images().iter().chain([&other.note()]) {
        let bytes = fs::read(file).unwrap();
        let is_there = bytes.windows(10).any(|part| part == b"of-another");
        assert!(!is_there, "{file:?}");
    }
    // Parts of different entries cannot be mixed, because each belongs to its own entry.
    let folder = tempfile::tempdir().unwrap();
    let mixed = own.copied_to(folder.path());
    fs::copy(other.note(), mixed.note()).unwrap();
    does_without("a note", HELLO, &mixed, &[], "sealed with another");
    let key = mixed.key.clone();
    let spoil = |spoil: fn(&Path), why: &str| {
        fs::copy(&own.key, &key).unwrap();
        spoil(&key);
        does_without(
            "its key",
            HELLO,
            &Entry {
                key: key.clone(),
                ..own.clone()
            },
            &[],
            why,
        );
        fs::remove_file(&key).unwrap();
    };
    spoil(flip, "sealed with another");
    spoil(truncate, "does not have 32 bytes");
    spoil(grow, "does not have 32 bytes");
    spoil(pipe, "is not a file");
    spoil(device, "is not a file");
    spoil(give_away, "belongs to user 1000");
    spoil(open_up, "users other than its owner");
    spoil(
        |path| fs::write(path, "").unwrap(),
        "does not have 32 bytes",
    );
    let gone = Entry { key, ..own };
    does_without("no key", HELLO, &gone, &[], "No such file");
}

/// A way to damage an entry, and what a pod reports about it.
type Spoilt = (&'static str, fn(&Entry), &'static str);

const SPOILT: &[Spoilt] = &[
    ("note damaged", |entry| flip(&entry.note()), "damaged"),
    (
        "note's beginning damaged",
        |entry| flip_first(&entry.note()),
        "sealed with another",
    ),
    ("note cut off", |entry| truncate(&entry.note()), "cut off"),
    (
        "note grown",
        |entry| grow(&entry.note()),
        "bytes follow its end",
    ),
    (
        "note empty",
        |entry| fs::write(entry.note(), "").unwrap(),
        "cut off",
    ),
    (
        "note gone",
        |entry| fs::remove_file(entry.note()).unwrap(),
        "No such file",
    ),
    ("note a pipe", |entry| pipe(&entry.note()), "is not a file"),
    (
        "note a device",
        |entry| device(&entry.note()),
        "is not a file",
    ),
    ("note a link", |entry| link(&entry.note()), "symbolic link"),
    (
        "note another's",
        |entry| give_away(&entry.note()),
        "belongs to user 1000",
    ),
    (
        "note open",
        |entry| open_up(&entry.note()),
        "users other than its owner",
    ),
    (
        "folder another's",
        |entry| give_away(&entry.folder),
        "belongs to user 1000",
    ),
    (
        "folder open",
        |entry| open_up(&entry.folder),
        "users other than its owner",
    ),
    ("folder a link", |entry| link(&entry.folder), "entry"),
    (
        "folder gone",
        |entry| fs::remove_dir_all(&entry.folder).unwrap(),
        "No such file",
    ),
    (
        "images a link",
        |entry| link(&entry.folder.join("images")),
        "images",
    ),
    (
        "images open",
        |entry| open_up(&entry.folder.join("images")),
        "users other than its owner",
    ),
    (
        "images gone",
        |entry| fs::remove_dir_all(entry.folder.join("images")).unwrap(),
        "images",
    ),
    (
        "artifacts a link",
        |entry| link(&entry.folder.join("artifacts")),
        "artifacts",
    ),
    (
        "code damaged",
        |entry| flip(&entry.code()),
        "stored code is not used",
    ),
    (
        "code cut off",
        |entry| truncate(&entry.code()),
        "stored code is not used",
    ),
    (
        "code gone",
        |entry| fs::remove_file(entry.code()).unwrap(),
        "stored code is missing",
    ),
    ("code a pipe", |entry| pipe(&entry.code()), "is not a file"),
    (
        "code a device",
        |entry| device(&entry.code()),
        "is not a file",
    ),
    ("code a link", |entry| link(&entry.code()), "symbolic link"),
    (
        "code another's",
        |entry| give_away(&entry.code()),
        "belongs to user 1000",
    ),
];

/// A function that damages a file.
type Spoil = fn(&Path);

/// Ways to damage each image. A pod can do without any image.
const SPOILT_IMAGES: &[(&str, Spoil)] = &[
    ("damaged", flip_last),
    ("header damaged", flip_first),
    ("cut off", truncate),
    ("gone", |path| fs::remove_file(path).unwrap()),
    ("a pipe", pipe),
    ("another's", give_away),
];

pub fn changed_or_foreign_entries_are_not_used() {
    let test_store = TestStore::empty();
    let entry = test_store.add(HELLO, &[]);
    let spoilt = |what: &str, spoil: &dyn Fn(&Entry), why: &str| {
        let folder = tempfile::tempdir().unwrap();
        let copy = entry.copied_to(folder.path());
        spoil(&copy);
        does_without(what, HELLO, &copy, &[], why);
    };
    for (what, spoil, why) in SPOILT {
        spoilt(what, spoil, why);
    }
    let images = entry.images().len();
    assert_eq!(images, 3, "level 0, level 1 and the function");
    for (what, spoil) in SPOILT_IMAGES {
        for at in 0..images {
            let spoil = |entry: &Entry| spoil(&entry.images()[at]);
            spoilt(
                &format!("image {at} {what}"),
                &spoil,
                "func-image is invalid",
            );
        }
    }
    // Each of the two images has the other's name.
    let swap = |entry: &Entry| {
        let images = entry.images();
        let (first, last) = (&images[0], &images[2]);
        let aside = entry.folder.join("aside");
        fs::rename(first, &aside).unwrap();
        fs::rename(last, first).unwrap();
        fs::rename(aside, last).unwrap();
    };
    spoilt("images swapped", &swap, "func-image is invalid");
}

/// The entry is complete when it is opened, and parts are missing when they are read.
pub fn a_folder_removed_during_a_start_is_harmless() {
    let test_store = TestStore::empty();
    for left in ["", "images", "artifacts"] {
        let entry = test_store.add(HELLO, &[]);
        let folder = tempfile::tempdir().unwrap();
        let copy = entry.copied_to(folder.path());
        let key = fs::read(&copy.key).unwrap().try_into().unwrap();
        let opened = shared::Entry::open(&copy.folder, &key).unwrap();
        for gone in ["images", "artifacts", "note"]
            .iter()
            .filter(|name| **name != left)
        {
            let path = copy.folder.join(gone);
            if path.is_dir() {
                fs::remove_dir_all(path).unwrap()
            } else {
                fs::remove_file(path).unwrap()
            }
        }
        let bench = Arc::new(Bench::start(Node::builder().shared(opened), e2e::limits()));
        let module = e2e::file(HELLO);
        bench.deploy("hello", &module, FunctionOptions::default());
        assert_eq!(bench.text("/hello/"), "hello from wat\n", "{left}");
        bench.end();
    }
}
