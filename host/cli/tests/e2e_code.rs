//! Compiled code on disk: it is in memory while seeds or instances use it, and is loaded again on
//! demand. If the file is damaged or from another faasw, the code is compiled again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use common::raw;
use e2e::{Bench, bundle, chance, limits, until};
use faasw::{Event, FunctionOptions, Isa, Node, NodeBuilder};
use tempfile::TempDir;

const SCRIPT: &str = "export default { fetch() { return new Response('script') } }";

/// Number of seeds that all functions share.
const SHARED: usize = 2;

/// A data directory, and the number of compilations.
struct Disk {
    folder: TempDir,
    compiled: Arc<AtomicUsize>,
}

impl Disk {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            compiled: Arc::default(),
        }
    }

    /// Makes a data directory with these functions.
    fn with(functions: &[(&str, &[u8])]) -> Self {
        let disk = Self::new();
        let bench = disk.start(|builder| builder);
        for (name, module) in functions {
            bench.deploy(name, module, FunctionOptions::default());
        }
        until("each has an image", || {
            disk.files("images").len() >= SHARED + functions.len()
        });
        stop(bench);
        disk
    }

    fn start(&self, with: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Bench {
        let compiled = self.compiled.clone();
        let builder = Node::builder()
            .data_dir(self.folder.path())
            .observe(move |event| {
                if let Event::Compiling { .. } | Event::CompilingEngine { .. } = event {
                    compiled.fetch_add(1, Ordering::Relaxed);
                }
            });
        Bench::start(with(builder), limits())
    }

    /// Starts a node that keeps nothing unused in memory.
    fn start_with_no_memory(&self) -> Bench {
        self.start(|builder| builder.seed_memory(0).max_warm(0))
    }

    /// Returns how many modules were compiled since the last call.
    fn compiled(&self) -> usize {
        self.compiled.swap(0, Ordering::Relaxed)
    }

    /// Returns the complete files of a directory, with what distinguishes each from another file of
    /// the same name.
    fn files(&self, folder: &str) -> BTreeMap<PathBuf, (u64, Option<SystemTime>)> {
        let files = fs::read_dir(self.folder.path().join(folder)).unwrap();
        let files = files.flatten().filter_map(|file| {
            let is_whole = !file.file_name().to_string_lossy().starts_with('.');
            let metadata = file.metadata().ok()?;
            let told = (metadata.ino(), metadata.created().ok());
            is_whole.then(|| (file.path(), told))
        });
        files.collect()
    }
}

/// Returns a function whose answer contains a number and always has the same size.
fn numbered(number: usize) -> Vec<u8> {
    let hello = String::from_utf8(e2e::file("tests/fixtures/wat/hello.wat")).unwrap();
    let text = "hello from wat";
    assert!(hello.contains(text) && number < 1000);
    hello
        .replace(text, &format!("hello from {number:03}"))
        .into()
}

fn answer(number: usize) -> String {
    format!("hello from {number:03}\n")
}

/// Stops a node, so that its data directory is free again.
fn stop(bench: Bench) {
    bench.end();
}

/// Sends a request to another function on a node that keeps nothing. Then both functions have left
/// memory.
fn have_leave(bench: &Bench, name: &str, other: &str) {
    bench.text(other);
    until("its seed has left", || {
        !code_bytes(bench).contains_key(name)
    });
    until("all code has left", || in_memory() == 0);
}

/// Returns how many artifacts this process has in memory. The node runs in this process.
fn in_memory() -> usize {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = descriptors.filter_map(|one| fs::read_link(one.path()).ok());
    targets
        .filter(|target| target.to_string_lossy().contains("faasw-code"))
        .count()
}

/// Returns the seeds in memory, with the bytes of code that are loaded for each.
fn code_bytes(bench: &Bench) -> BTreeMap<String, u64> {
    let seeds = bench.node.tree().into_iter();
    let seeds = seeds.filter(|seed| seed.is_in_memory);
    seeds.map(|seed| (seed.name, seed.code_bytes)).collect()
}

fn code_leaves_memory_with_its_seed_and_comes_back_with_it() {
    let script = bundle(&[("handler.js", SCRIPT)]);
    let functions: [(&str, &[u8]); 3] = [
        ("one", &numbered(1)),
        ("two", &numbered(2)),
        ("script", &script),
    ];
    let disk = Disk::with(&functions);
    disk.compiled();
    assert_eq!(in_memory(), 0);
    let bench = disk.start_with_no_memory();
    for _ in 0..5 {
        assert_eq!(bench.text("/one/"), answer(1));
        have_leave(&bench, "one", "/script/");
        assert_eq!(bench.text("/script/"), "script");
        have_leave(&bench, "script", "/two/");
        assert_eq!(bench.text("/two/"), answer(2));
        have_leave(&bench, "two", "/one/");
    }
    stop(bench);
    // With enough memory all code stays, and the scripts' engine has its code once.
    let bench = disk.start(|builder| builder);
    for path in ["/one/", "/two/", "/script/", "/one/"] {
        bench.text(path);
    }
    // While an engine's code is being loaded, the loader also holds it open for writing.
    until("all of it is there", || in_memory() == 3);
    let told = code_bytes(&bench);
    assert!(
        told["one"] > 0 && told["two"] > 0 && told["js"] > 1 << 20,
        "{told:?}"
    );
    assert_eq!((told["script"], told["linkers"]), (0, 0));
    stop(bench);
    assert_eq!(disk.compiled(), 0);
}

fn code_counts_for_what_seeds_may_take() {
    let disk = Disk::with(&[("one", &numbered(1)), ("two", &numbered(2))]);
    let all = |bench: &Bench| {
        let seeds = bench.node.tree().into_iter();
        let own = seeds.filter(|seed| !seed.is_shared);
        own.map(|seed| seed.layer_bytes + seed.code_bytes)
            .sum::<u64>()
    };
    let bench = disk.start(|builder| builder);
    assert_eq!(
        (bench.text("/one/"), bench.text("/two/")),
        (answer(1), answer(2))
    );
    let taken = all(&bench);
    stop(bench);
    for (budget, stay) in [(taken + (1 << 20), 2), (taken - (64 << 10), 1)] {
        let bench = disk.start(|builder| builder.seed_memory(budget).max_warm(0));
        for _ in 0..4 {
            assert_eq!(bench.text("/one/"), answer(1));
            assert_eq!(bench.text("/two/"), answer(2));
        }
        until("what does not fit has left", || in_memory() <= stay);
        stop(bench);
    }
    // Code counts towards a function's own budget, too: code beyond it stays only while the
    // function works.
    let bench = disk.start(|builder| builder.function_memory(1 << 10).max_warm(0));
    for _ in 0..3 {
        assert_eq!(bench.text("/one/"), answer(1));
        until("its code has left", || {
            !code_bytes(&bench).contains_key("one")
        });
    }
    stop(bench);
}

/// Code leaves memory as it should, even while other threads list the seeds.
fn looking_at_seeds_keeps_none_in_memory() {
    let disk = Disk::with(&[("one", &numbered(1))]);
    let bench = disk.start(|builder| builder.function_memory(1 << 10).max_warm(0));
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&ends);
        for _ in 0..2 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    let _ = bench.node.tree();
                }
            });
        }
        for _ in 0..100 {
            assert_eq!(bench.text("/one/"), answer(1));
            until("its code has left", || in_memory() == 0);
        }
    });
    stop(bench);
}

/// A node that starts makes seeds ahead of requests, one after the other. Seeds of functions that
/// may hold none leave memory again, though no request comes.
fn what_is_made_ahead_leaves_memory_where_it_may_not_stay() {
    let module = r#"(module
        (import "wasi_snapshot_preview1" "fd_write"
            (func $fd_write (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (data (i32.const 0) "\20\00\00\00\05\00\00\00")
        (data (i32.const 32) "made\n")
        (func $tell
            (drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 16))))
        (start $tell)
        (func (export "_start")))"#;
    let names = ["one", "two", "three", "four", "five"];
    let disk = Disk::with(&names.map(|name| (name, module.as_bytes())));
    let bench = disk.start(|builder| {
        // Without images, each making runs the initialisation, which writes a log line.
        let builder = builder.image_disk(0);
        builder.function_memory(1 << 10).max_warm(0)
    });
    let made = |name: &str| {
        bench
            .log(name)
            .iter()
            .filter(|line| *line == "made")
            .count()
    };
    // The first line is from the deployment. Seeds are made one after the other, so all but the
    // last making have ended.
    until("all were made", || names.iter().all(|name| made(name) > 1));
    until("all code has left", || in_memory() == 0);
    stop(bench);
}

/// Sets a flag when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Code that is gathered into large pages, during a request or after it, is counted with its new
/// size, though no further request comes.
fn code_counts_as_it_is_when_it_is_gathered_late() {
    let names: Vec<String> = (0..12).map(|number| format!("f{number:02}")).collect();
    let modules: Vec<Vec<u8>> = (0..12).map(numbered).collect();
    let functions: Vec<(&str, &[u8])> = names
        .iter()
        .zip(&modules)
        .map(|(name, module)| (name.as_str(), module.as_slice()))
        .collect();
    let disk = Disk::with(&functions);
    for _ in 0..3 {
        let bench = disk.start(|builder| builder);
        for (number, name) in names.iter().enumerate() {
            assert_eq!(bench.text(&format!("/{name}/")), answer(number));
        }
        until("all that is held counts", || {
            let own = bench.node.tree().into_iter();
            let own = own.filter(|seed| !seed.is_shared && seed.is_in_memory);
            let held: u64 = own.map(|seed| seed.layer_bytes + seed.code_bytes).sum();
            held > 0 && bench.node.stats().memory["seeds"] == held
        });
        stop(bench);
    }
}

/// A seed is in use while its image is written. It leaves memory afterwards, though no request
/// comes.
fn what_was_in_use_for_its_image_leaves_memory_after_it() {
    let large = e2e::filled(64);
    // The shared seeds have their images, so the writer has no other work.
    let disk = Disk::with(&[("one", &numbered(1))]);
    let bench = disk.start_with_no_memory();
    for number in 0..3 {
        let options = FunctionOptions::default().env("NUMBER", number.to_string());
        bench.deploy(&format!("large-{number}"), &large, options);
        until("it has left memory", || in_memory() == 0);
    }
    // A seed that left memory before its image was written has none, which is rare.
    assert!(disk.files("images").len() > SHARED + 1);
    stop(bench);
}

fn a_restart_reads_no_module() {
    let disk = Disk::with(&[("one", &numbered(1)), ("two", &numbered(2))]);
    disk.compiled();
    for path in disk.files("modules").keys() {
        fs::write(path, "not what it was").unwrap();
    }
    let bench = disk.start(|builder| builder);
    assert_eq!(
        (bench.text("/one/"), bench.text("/two/")),
        (answer(1), answer(2))
    );
    stop(bench);
    assert_eq!(disk.compiled(), 0);
}

fn damaged_code_is_compiled_again() {
    let disk = Disk::with(&[("one", &numbered(1))]);
    let path = disk.files("artifacts").into_keys().next().unwrap();
    let whole = fs::read(&path).unwrap();
    disk.compiled();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let longer = [whole.as_slice(), b"x"].concat();
    for damaged in [
        flipped(0),
        flipped(whole.len() / 2),
        flipped(whole.len() - 1),
        whole[..whole.len() / 2].to_vec(),
        Vec::new(),
        vec![0; whole.len()],
        longer,
    ] {
        fs::write(&path, &damaged).unwrap();
        let bench = disk.start(|builder| builder);
        assert_eq!(bench.text("/one/"), answer(1));
        stop(bench);
        assert_eq!(disk.compiled(), 1);
        assert_eq!(fs::metadata(&path).unwrap().len(), whole.len() as u64);
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    for _ in 0..2 {
        // The artifact cannot be stored, and the function serves all the same.
        let bench = disk.start(|builder| builder);
        assert_eq!(bench.text("/one/"), answer(1));
        stop(bench);
        assert_eq!(disk.compiled(), 1);
    }
    fs::remove_dir(&path).unwrap();
    let bench = disk.start(|builder| builder);
    assert_eq!(bench.text("/one/"), answer(1));
    stop(bench);
    let bench = disk.start(|builder| builder);
    assert_eq!(bench.text("/one/"), answer(1));
    stop(bench);
    assert_eq!(disk.compiled(), 1);
}

/// The code disappears from disk while the node does not have it in memory.
fn code_that_is_damaged_while_it_is_not_in_memory_is_compiled_again() {
    let disk = Disk::with(&[("one", &numbered(1)), ("two", &numbered(2))]);
    disk.compiled();
    let bench = disk.start_with_no_memory();
    for round in 1..4 {
        assert_eq!(bench.text("/one/"), answer(1));
        have_leave(&bench, "one", "/two/");
        for path in disk.files("artifacts").keys() {
            match round {
                1 => fs::write(path, "damaged").unwrap(),
                _ => fs::remove_file(path).unwrap(),
            }
        }
        assert_eq!(bench.text("/one/"), answer(1));
        // Code that the node loads at its start, ahead of requests, may have been compiled for the
        // other function, too.
        let compiled = disk.compiled();
        assert!(compiled == 1 || compiled == 2, "{compiled}");
        have_leave(&bench, "two", "/one/");
        assert_eq!(bench.text("/two/"), answer(2));
        assert_eq!(compiled + disk.compiled(), 2);
    }
    stop(bench);
}

/// Requests arrive without a pause at a function whose code never stays, while it is deployed anew,
/// rolled back and removed.
fn no_request_is_lost_while_code_comes_and_goes() {
    let mut chance = chance::rng();
    let disk = Disk::with(&[("f", &numbered(0))]);
    let bench = disk.start_with_no_memory();
    let address = bench.address;
    let has_ended = Arc::<AtomicBool>::default();
    // Odd while the function may be missing.
    let removals = Arc::<AtomicUsize>::default();
    let newest = Arc::<AtomicUsize>::default();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (has_ended, newest) = (has_ended.clone(), newest.clone());
            let removals = removals.clone();
            bench.runtime().spawn(async move {
                let mut answers = 0;
                while !has_ended.load(Ordering::SeqCst) {
                    let before = removals.load(Ordering::SeqCst);
                    let response = raw::get(address, "/f/").await;
                    let after = removals.load(Ordering::SeqCst);
                    match response.status {
                        404 => assert!(before % 2 == 1 || after > before, "{response:?}"),
                        status => {
                            assert_eq!(status, 200, "{response:?}");
                            let number = response.body["hello from ".len()..].trim();
                            let number: usize = number.parse().unwrap();
                            assert!(number <= newest.load(Ordering::SeqCst));
                            answers += 1;
                        }
                    }
                }
                answers
            })
        })
        .collect();
    for number in 1..40 {
        let pause = chance::up_to(&mut chance, Duration::from_millis(40));
        std::thread::sleep(pause);
        match chance.u8(..10) {
            0..5 => {
                newest.store(number, Ordering::SeqCst);
                bench.deploy("f", &numbered(number), FunctionOptions::default());
            }
            5..8 => {
                // Without a version before this one, the rollback is refused.
                let _ = bench.block_on(bench.node.rollback("f", None));
            }
            _ => {
                newest.store(number, Ordering::SeqCst);
                removals.fetch_add(1, Ordering::SeqCst);
                bench.block_on(bench.node.remove("f")).unwrap();
                bench.deploy("f", &numbered(number), FunctionOptions::default());
                removals.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    has_ended.store(true, Ordering::SeqCst);
    for client in clients {
        assert!(bench.block_on(client).unwrap() > 0);
    }
    stop(bench);
}

/// More functions than are made ready at the start.
const MANY: usize = 70;

fn many() -> Disk {
    let disk = Disk::new();
    let bench = disk.start(|builder| builder.isa(Isa::V2));
    for number in 0..MANY {
        let options = FunctionOptions::default().env("NUMBER", number.to_string());
        bench.deploy(&format!("f{number:02}"), &numbered(number), options);
    }
    until("each has an image", || {
        disk.files("images").len() == SHARED + MANY
    });
    stop(bench);
    disk.compiled();
    disk
}

/// Asserts that all functions answer, and that their seeds come from disk.
fn all_are_good(disk: &Disk, isa: Isa) {
    let bench = disk.start(|builder| builder.isa(isa));
    for number in 0..MANY {
        assert_eq!(bench.text(&format!("/f{number:02}/")), answer(number));
    }
    let forks = |name: &str| {
        let seeds = bench.node.tree().into_iter();
        let mut forks = seeds
            .filter(|seed| seed.name == name)
            .map(|seed| seed.forks);
        forks.next().unwrap()
    };
    assert_eq!((forks("guest"), forks("linkers")), (0, 0));
    stop(bench);
    assert_eq!(disk.compiled(), 0);
}

fn after_an_upgrade_code_and_images_are_made_again_unasked() {
    let disk = many();
    let of = |isa: &str| {
        let files = disk.files("artifacts");
        let names = files.keys().map(|path| path.to_string_lossy().into_owned());
        names.filter(|name| name.contains(isa)).count()
    };
    assert_eq!((of("-x86-64-v2-"), of("-x86-64-v3-")), (MANY, 0));
    let before = disk.files("images");
    let bench = disk.start(|builder| builder.isa(Isa::V3));
    // Requests are answered in the meantime.
    assert_eq!(bench.text("/f69/"), answer(69));
    until("all are compiled and have images again", || {
        let now = disk.files("images");
        // Images of shared seeds do not depend on the instruction set.
        let renewed = now
            .iter()
            .filter(|(path, file)| before.get(*path) != Some(file));
        of("-x86-64-v3-") == MANY && renewed.count() >= MANY
    });
    assert_eq!((of("-x86-64-v2-"), disk.compiled()), (0, MANY));
    // Code without requests does not stay in memory because it was compiled.
    until("most are at rest", || in_memory() <= 65);
    stop(bench);
    all_are_good(&disk, Isa::V3);
}

fn images_that_are_damaged_or_gone_are_made_again_unasked() {
    let disk = many();
    let images = disk.files("images");
    for (number, path) in images.keys().enumerate() {
        match number % 3 {
            0 => fs::remove_file(path).unwrap(),
            _ => fs::write(path, "damaged").unwrap(),
        }
    }
    let bench = disk.start(|builder| builder.isa(Isa::V2));
    until("each has an image again", || {
        let whole = images.keys().filter(|path| {
            let file = fs::metadata(path);
            file.is_ok_and(|file| file.len() > 8192)
        });
        whole.count() == SHARED + MANY
    });
    stop(bench);
    all_are_good(&disk, Isa::V2);
}

fn main() {
    e2e::main(tests![
        code_leaves_memory_with_its_seed_and_comes_back_with_it,
        code_counts_for_what_seeds_may_take,
        looking_at_seeds_keeps_none_in_memory,
        what_is_made_ahead_leaves_memory_where_it_may_not_stay,
        code_counts_as_it_is_when_it_is_gathered_late,
        what_was_in_use_for_its_image_leaves_memory_after_it,
        a_restart_reads_no_module,
        damaged_code_is_compiled_again,
        code_that_is_damaged_while_it_is_not_in_memory_is_compiled_again,
        no_request_is_lost_while_code_comes_and_goes,
        after_an_upgrade_code_and_images_are_made_again_unasked,
        images_that_are_damaged_or_gone_are_made_again_unasked,
    ]);
}
