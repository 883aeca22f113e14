//! Functions that a host has prepared once: `faasw share`, and pods that use an entry.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../e2e/mod.rs"]
mod e2e;

mod entry;
mod hostile;
mod store;

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use e2e::{
    pod::{self, HELLO, Pod, as_user, words},
    process::{faasw, get},
};
use entry::Entry;
use hostile::{
    a_folder_removed_during_a_start_is_harmless, a_key_opens_only_its_own_entry,
    an_entry_of_another_function_is_not_used, changed_or_foreign_entries_are_not_used,
};
use store::{
    concurrent_additions_make_one_entry, damaged_entries_are_rebuilt,
    entries_are_listed_and_removed, every_difference_makes_another_entry,
    only_root_can_read_a_store,
};
use tempfile::TempDir;

/// A store and its location.
#[derive(Debug)]
pub struct TestStore {
    folder: TempDir,
}

impl TestStore {
    /// Makes a folder without a store.
    pub fn empty() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Returns the store's path.
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Runs a command on the store.
    pub fn share(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Returns a command on the store, not yet started.
    pub fn command(&self, words: &[&str]) -> Command {
        let store = self.store();
        let own = ["--store", store.to_str().unwrap()];
        let (first, rest) = words.split_first().unwrap();
        faasw(&[&["share", first], &own[..], rest].concat())
    }

    /// Returns the output of a command that succeeds.
    pub fn says(&self, words: &[&str]) -> String {
        let output = self.share(words);
        assert!(output.status.success(), "{words:?} {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Makes an entry for the namespace `n`.
    pub fn add(&self, file: &str, options: &[&str]) -> Entry {
        let words = [&["add", file, "--namespace", "n"], options].concat();
        Entry::parse(&self.says(&words))
    }
}

/// Starts a pod with an entry. Returns its log up to the moment at which it serves, too.
pub fn serve(file: &str, entry: &Entry, options: &[&str]) -> (Pod, String) {
    let (folder, key) = (entry.folder.to_str().unwrap(), entry.key.to_str().unwrap());
    let given = [
        "--shared",
        folder,
        "--shared-key",
        key,
        "--drain-delay",
        "0",
    ];
    let (pod, _) = Pod::start(faasw(&words(file, &[&given[..], options].concat())));
    let said = pod.node.stderr();
    (pod, said)
}

/// The log message of a pod that has used all of an entry.
pub const USED: &str = "the shared entry is used";

/// Asserts that a function is not compiled and initialised again in a pod with its entry, and that
/// it gives the same answer.
#[track_caller]
fn is_taken_up(file: &str, options: &[&str], path: &str) {
    let test_store = TestStore::empty();
    let entry = test_store.add(file, options);
    let (shared, said) = serve(file, &entry, options);
    assert!(said.contains(USED), "{file}: {said}");
    assert!(!said.contains("WARN"), "{file}: {said}");
    let alone = Pod::of(file, &[options, &["--drain-delay", "0"]].concat());
    let expected = get(alone.address, path);
    assert_eq!(expected.status, 200, "{file}: {expected:?}");
    // The first instance comes from the seed, later ones may be reset. No random value is drawn
    // twice.
    let mut drawn = HashSet::from([drawn_in(&expected.body)]);
    for _ in 0..3 {
        let answer = get(shared.address, path);
        assert_eq!(answer.status, 200, "{file}: {answer:?}");
        assert_eq!(
            without_draws(&answer.body),
            without_draws(&expected.body),
            "{file}"
        );
        let draws = drawn_in(&answer.body);
        assert!(
            draws.is_empty() || drawn.insert(draws),
            "{file}: {answer:?}"
        );
    }
    assert_eq!(shared.node.stop("TERM"), Some(0));
}

/// The prefix of the line with random numbers of `examples/go-http`.
const DRAWN: &str = "random ";

fn without_draws(body: &str) -> Vec<&str> {
    body.lines()
        .filter(|line| !line.starts_with(DRAWN))
        .collect()
}

fn drawn_in(body: &str) -> String {
    body.lines()
        .filter(|line| line.starts_with(DRAWN))
        .collect()
}

fn a_command_is_started_from_its_entry() {
    is_taken_up(HELLO, &["--memory", "16"], "/");
}

/// This component takes seconds to compile.
fn a_large_component_is_started_from_its_entry() {
    is_taken_up("examples/go-http/go-http.wasm", &[], "/");
}

fn a_script_is_started_from_its_entry_with_its_engine() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script.js");
    fs::write(
        &file,
        "export default { fetch() { return new Response(`${6 * 7}\n`) } }",
    )
    .unwrap();
    is_taken_up(file.to_str().unwrap(), &[], "/");
}

/// The entry has the module that Wizer has initialised, and the pod has the uploaded one.
fn a_module_initialised_by_wizer_is_started_from_its_entry() {
    is_taken_up("host/cli/tests/e2e/wizened.wat", &["-e", "A=b"], "/");
}

fn files_are_part_of_an_entry() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("greeting"), "hello").unwrap();
    let files = format!("{}:/data", folder.path().display());
    is_taken_up(
        "tests/fixtures/files-probe.wasm",
        &["--files", &files],
        "/read/data/greeting",
    );
}

/// Returns modes, contents and times of everything below a directory.
fn state_of(folder: &Path) -> BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let status = fs::symlink_metadata(&path).unwrap();
        let content = if status.is_dir() {
            all.extend(state_of(&path));
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        let of = (status.mode(), status.mtime(), status.mtime_nsec(), content);
        all.insert(path, of);
    }
    all
}

/// This holds even for root, whom no permission would prevent from writing.
fn a_pod_changes_nothing_of_an_entry() {
    let test_store = TestStore::empty();
    let entry = test_store.add(HELLO, &[]);
    let before = state_of(&test_store.store());
    let modes: Vec<_> = before.values().map(|of| of.0 & 0o222).collect();
    assert!(modes.len() > 6);
    let (pod, said) = serve(HELLO, &entry, &[]);
    assert!(said.contains(USED), "{said}");
    for _ in 0..3 {
        assert_eq!(get(pod.address, "/").status, 200);
    }
    assert_eq!(pod.node.stop("TERM"), Some(0));
    assert!(
        state_of(&test_store.store()) == before,
        "something has changed"
    );
}

/// The user can read the directory and the key, as by a mount, and nothing else.
fn an_unprivileged_user_reads_its_entry() {
    let test_store = TestStore::empty();
    let entry = test_store.add(HELLO, &[]);
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let given = entry.copied_to(folder.path());
    let more = [
        "--shared",
        given.folder.to_str().unwrap(),
        "--shared-key",
        given.key.to_str().unwrap(),
        "--drain-delay",
        "0",
    ];
    let (pod, _) = Pod::start(as_user(&words(HELLO, &more)));
    let said = pod.node.stderr();
    assert!(said.contains(USED), "{said}");
    assert_eq!(get(pod.address, "/").body, "hello from wat\n");
    assert_eq!(pod.node.stop("TERM"), Some(0));
    // The store itself is closed to other users.
    let store = test_store.store();
    let mode = fs::metadata(&store).unwrap().mode() & 0o777;
    assert_eq!(mode, 0o700);
}

fn incomplete_or_conflicting_shared_options_are_usage_errors() {
    for words in [
        &["pod", HELLO, "--shared", "/tmp"][..],
        &["pod", HELLO, "--shared-key", "/tmp/key"],
        &[
            "pod",
            HELLO,
            "--shared",
            "/a",
            "--shared-key",
            "/b",
            "--data-dir",
            "/c",
        ],
    ] {
        let output = faasw(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

fn main() {
    let everywhere = tests![incomplete_or_conflicting_shared_options_are_usage_errors];
    let as_root = tests![
        a_command_is_started_from_its_entry,
        a_large_component_is_started_from_its_entry,
        a_script_is_started_from_its_entry_with_its_engine,
        a_module_initialised_by_wizer_is_started_from_its_entry,
        files_are_part_of_an_entry,
        a_pod_changes_nothing_of_an_entry,
        an_unprivileged_user_reads_its_entry,
        every_difference_makes_another_entry,
        concurrent_additions_make_one_entry,
        damaged_entries_are_rebuilt,
        entries_are_listed_and_removed,
        only_root_can_read_a_store,
        an_entry_of_another_function_is_not_used,
        a_key_opens_only_its_own_entry,
        changed_or_foreign_entries_are_not_used,
        a_folder_removed_during_a_start_is_harmless,
    ];
    e2e::main_of(&[(everywhere, None), (as_root, pod::no_user())]);
}
