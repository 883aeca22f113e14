//! Func-images: a node that starts again reads its seeds from disk, and makes those seeds anew
//! whose images are not as it wrote them.

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
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use common::give_up;
use e2e::{Bench, bundle, limits};
use faasw::{FunctionOptions, Limits, Node};
use tempfile::TempDir;

const SCRIPT: &str = "const born = Math.random();
    export default { fetch() { return new Response(`${born} ${Math.random()}`) } }";

/// Number of images: two of seeds that all functions share, and those of the probe, of the scripts'
/// engine and of the script.
const ALL: usize = 5;

struct Restarts {
    folder: TempDir,
}

impl Restarts {
    /// Makes a data directory with a component and a script that have images.
    fn deployed() -> Self {
        let restarts = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let bench = restarts.start();
        let script = bundle(&[("handler.js", SCRIPT)]);
        bench.deploy("script", &script, FunctionOptions::default());
        bench.deploy(
            "probe",
            &e2e::file("tests/fixtures/http-probe.wasm"),
            FunctionOptions::default(),
        );
        until("there is an image of each", || {
            restarts.images().len() == ALL
        });
        restarts.serves(&bench);
        stop(bench);
        restarts
    }

    fn start_with(&self, limits: Limits) -> Bench {
        Bench::start(Node::builder().data_dir(self.folder.path()), limits)
    }

    fn start(&self) -> Bench {
        self.start_with(limits())
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("images")
    }

    /// Returns complete images, and when they were written.
    fn images(&self) -> BTreeMap<PathBuf, SystemTime> {
        let files = fs::read_dir(self.path()).into_iter().flatten().flatten();
        files
            .filter(|file| !file.file_name().to_string_lossy().starts_with('.'))
            .filter_map(|file| {
                let written = file.metadata().ok()?.modified().ok()?;
                Some((file.path(), written))
            })
            .collect()
    }

    /// Asserts that both functions answer correctly. Returns what the script drew during its
    /// initialisation.
    fn serves(&self, bench: &Bench) -> String {
        let mut seen = Vec::new();
        for _ in 0..4 {
            assert_eq!(bench.text("/probe/count"), "1\n");
            let text = bench.text("/script/");
            let (born, drawn) = text.split_once(' ').unwrap();
            assert!(!seen.contains(&drawn.to_owned()), "{seen:?} {drawn}");
            seen.push(drawn.to_owned());
            seen.push(born.to_owned());
        }
        assert!(seen.iter().skip(1).step_by(2).all(|born| *born == seen[1]));
        seen[1].clone()
    }
}

/// Stops a node, so that its data directory is free again.
fn stop(bench: Bench) {
    bench.end();
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + give_up();
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the seeds in memory by name, with the number of their forks and the number of pages that
/// their instances are known to write.
fn seeds(bench: &Bench) -> BTreeMap<String, (u64, u64)> {
    let tree = bench.node.tree();
    let told = tree.into_iter().filter(|seed| seed.is_in_memory);
    told.map(|seed| (seed.name, (seed.forks, seed.written_pages)))
        .collect()
}

/// Returns how many seeds were made from these since the node started: 0 if all were read.
fn made(bench: &Bench) -> u64 {
    let seeds = seeds(bench);
    ["guest", "linkers", "js"]
        .iter()
        .map(|name| seeds.get(*name).map_or(0, |(forks, _)| *forks))
        .sum()
}

fn a_node_that_starts_again_makes_no_seed() {
    let restarts = Restarts::deployed();
    let mut born = None;
    for _ in 0..3 {
        let bench = restarts.start();
        let now = restarts.serves(&bench);
        assert_eq!(made(&bench), 0, "{:?}", seeds(&bench));
        // The seed contains what was drawn before it was frozen.
        assert_eq!(*born.get_or_insert(now.clone()), now);
        stop(bench);
    }
}

fn what_requests_use_is_known_after_a_restart() {
    let restarts = Restarts::deployed();
    let bench = restarts.start();
    let before = restarts.images();
    // A working set that was known before is not recorded again.
    let is_known = |bench: &Bench| {
        let seeds = seeds(bench);
        ["probe", "script"].iter().all(|name| seeds[*name].1 > 0)
    };
    restarts.serves(&bench);
    until("what they use is learnt", || is_known(&bench));
    let was_known = restarts.images() == before;
    stop(bench);
    let bench = restarts.start();
    until("both are in memory", || seeds(&bench).len() == ALL);
    assert!(is_known(&bench), "{was_known} {:?}", seeds(&bench));
    stop(bench);
}

/// Returns damaged versions of an image: with a changed bit near the start, in the header or in the
/// pages, cut off, empty, or replaced by another image.
fn damages(path: &Path, other: &Path) -> Vec<Vec<u8>> {
    let whole = fs::read(path).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        bytes
    };
    vec![
        flipped(3),
        flipped(9),
        flipped(30),
        flipped(4100),
        flipped(whole.len() - 5000),
        whole[..whole.len() / 2].to_vec(),
        whole[..100].to_vec(),
        Vec::new(),
        fs::read(other).unwrap(),
        vec![0; whole.len()],
    ]
}

fn what_is_spoilt_is_made_anew() {
    let restarts = Restarts::deployed();
    let count = damages(
        restarts.images().keys().next().unwrap(),
        restarts.images().keys().last().unwrap(),
    );
    for damage in 0..count.len() {
        let images: Vec<PathBuf> = restarts.images().into_keys().collect();
        let contents: Vec<Vec<u8>> = (0..images.len())
            .map(|at| {
                let other = &images[(at + 1) % images.len()];
                damages(&images[at], other).swap_remove(damage)
            })
            .collect();
        // Damages one image, or all of them.
        let spoilt = match damage % 2 {
            0 => 0..images.len(),
            _ => damage % images.len()..damage % images.len() + 1,
        };
        for at in spoilt {
            fs::write(&images[at], &contents[at]).unwrap();
        }
        let bench = restarts.start();
        restarts.serves(&bench);
        until("all are written again", || {
            let all = restarts.images();
            all.len() == ALL
                && all
                    .keys()
                    .all(|path| fs::metadata(path).unwrap().len() > 8192)
        });
        stop(bench);
    }
    let bench = restarts.start();
    restarts.serves(&bench);
    stop(bench);
}

fn what_is_not_a_file_or_gone_is_made_anew() {
    let restarts = Restarts::deployed();
    for path in restarts.images().keys() {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    }
    let bench = restarts.start();
    restarts.serves(&bench);
    // The directory disappears under a running node, in one step, because the node may be writing
    // there.
    fs::rename(restarts.path(), restarts.folder.path().join("aside")).unwrap();
    let script = bundle(&[("handler.js", SCRIPT)]);
    bench.deploy("script", &script, FunctionOptions::default());
    restarts.serves(&bench);
    // The node creates it again for the next image.
    until("there is an image", || !restarts.images().is_empty());
    stop(bench);
    let bench = restarts.start();
    restarts.serves(&bench);
    until("there are images again", || restarts.images().len() == ALL);
    stop(bench);
}

/// Images of another version of faasw. The tests of `faasw-seedtree` refuse golden images of
/// earlier versions.
fn an_image_of_another_format_is_replaced() {
    let restarts = Restarts::deployed();
    let format_of = |path: &PathBuf| -> Option<u32> {
        let bytes = fs::read(path).ok()?;
        Some(u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?))
    };
    let all = restarts.images();
    let ours = format_of(all.keys().next().unwrap()).unwrap();
    for format in [0, ours + 1, u32::MAX] {
        for path in restarts.images().keys() {
            let mut bytes = fs::read(path).unwrap();
            bytes[8..12].copy_from_slice(&format.to_le_bytes());
            fs::write(path, bytes).unwrap();
        }
        let bench = restarts.start();
        restarts.serves(&bench);
        assert!(made(&bench) > 0);
        until("all are of our format again", || {
            let now = restarts.images();
            now.len() == ALL && now.keys().all(|path| format_of(path) == Some(ours))
        });
        stop(bench);
    }
    let bench = restarts.start();
    restarts.serves(&bench);
    assert_eq!(made(&bench), 0, "{:?}", seeds(&bench));
    stop(bench);
}

/// The node reads the key once: images sealed with it stay valid while the node runs, and the new
/// file is used after the next start.
fn a_key_that_is_swapped_under_a_node_counts_after_the_next_start() {
    let restarts = Restarts::deployed();
    let bench = restarts.start();
    fs::write(restarts.folder.path().join("image.key"), [9; 32]).unwrap();
    let before = restarts.images();
    let script = bundle(&[("handler.js", SCRIPT)]);
    bench.deploy("script", &script, FunctionOptions::default());
    restarts.serves(&bench);
    until("there is one of the new version", || {
        let new = restarts.images();
        new.keys().any(|path| !before.contains_key(path))
    });
    stop(bench);
    let bench = restarts.start();
    restarts.serves(&bench);
    assert!(made(&bench) > 0);
    // The engine's earlier image stays until it has been unused for a long time.
    until("there are images again", || {
        restarts.images().len() == ALL + 1
    });
    stop(bench);
}

/// Images are useless without the key, and other limits make another seed.
fn another_key_or_limit_is_another_image() {
    let restarts = Restarts::deployed();
    let key = restarts.folder.path().join("image.key");
    assert_eq!(fs::metadata(&key).unwrap().len(), 32);
    fs::write(&key, [7; 32]).unwrap();
    let bench = restarts.start();
    restarts.serves(&bench);
    assert!(made(&bench) > 0);
    // The engine's earlier image stays until it has been unused for a long time.
    until("there are images again", || {
        restarts.images().len() == ALL + 1
    });
    stop(bench);
    let mut less = limits();
    less.memory = 64 << 20;
    let bench = restarts.start_with(less);
    restarts.serves(&bench);
    assert!(seeds(&bench)["linkers"].0 > 0, "the probe has less memory");
    stop(bench);
    fs::write(&key, [7; 31]).unwrap();
    let bench = restarts.start();
    restarts.serves(&bench);
    stop(bench);
    assert_eq!(fs::metadata(&key).unwrap().len(), 32);
}

fn what_is_removed_leaves_nothing() {
    let restarts = Restarts::deployed();
    let bench = restarts.start();
    bench.block_on(bench.node.remove("probe")).unwrap();
    assert_eq!(restarts.images().len(), ALL - 1);
    stop(bench);
    // Files that a crash left belong to no seed.
    fs::write(restarts.path().join(".unfinished"), "half").unwrap();
    fs::write(restarts.path().join("0".repeat(64)), "of nobody").unwrap();
    let bench = restarts.start();
    until("nothing is left", || {
        fs::read_dir(restarts.path()).unwrap().count() == ALL - 1
    });
    stop(bench);
}

/// A valid image under the name of another valid image.
fn what_was_renamed_is_not_taken_for_another() {
    let restarts = Restarts::deployed();
    let bench = restarts.start();
    let before = restarts.images();
    let of_before = |restarts: &Restarts| {
        let now = restarts.images();
        let gone: Vec<PathBuf> = before
            .keys()
            .filter(|one| !now.contains_key(*one))
            .cloned()
            .collect();
        let new: Vec<PathBuf> = now
            .into_keys()
            .filter(|one| !before.contains_key(one))
            .collect();
        (gone, new)
    };
    let contents: BTreeMap<PathBuf, Vec<u8>> = before
        .keys()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    let another = SCRIPT.replace("${born} ", "another ");
    let script = bundle(&[("handler.js", &another)]);
    bench.deploy("script", &script, FunctionOptions::default());
    until("it has an image, and its first version none", || {
        let (gone, new) = of_before(&restarts);
        gone.len() == 1 && new.len() == 1
    });
    stop(bench);
    let (gone, new) = of_before(&restarts);
    fs::write(&new[0], &contents[&gone[0]]).unwrap();
    let bench = restarts.start();
    assert!(bench.text("/script/").starts_with("another "));
    stop(bench);
}

/// Without disk space for images there are none, and with little space the oldest are removed.
fn the_disk_has_as_many_as_it_may() {
    let restarts = Restarts::deployed();
    let all: u64 = restarts
        .images()
        .keys()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    let start = |bytes| {
        let builder = Node::builder().data_dir(restarts.folder.path());
        Bench::start(builder.image_disk(bytes), limits())
    };
    let bench = start(all);
    let mut last = None;
    for number in 0..4 {
        let options = FunctionOptions::default();
        bench.deploy(
            &format!("f{number}"),
            &e2e::file("tests/fixtures/http-probe.wasm"),
            options,
        );
        until("the new one is there, and not all of the others", || {
            let images = restarts.images();
            let newest = images
                .iter()
                .max_by_key(|(_, written)| **written)
                .map(|(path, _)| path.clone());
            let total: u64 = images
                .keys()
                .filter_map(|path| fs::metadata(path).ok())
                .map(|file| file.len())
                .sum();
            total <= all && newest != last && {
                last.clone_from(&newest);
                true
            }
        });
    }
    restarts.serves(&bench);
    stop(bench);
    let bench = start(0);
    restarts.serves(&bench);
    assert!(made(&bench) > 0);
    stop(bench);
    let bench = restarts.start();
    restarts.serves(&bench);
    stop(bench);
}

fn what_was_evicted_comes_from_its_image() {
    let restarts = Restarts::deployed();
    let builder = Node::builder().data_dir(restarts.folder.path());
    // No memory for unused seeds.
    let builder = builder.seed_memory(0).max_warm(0);
    let bench = Bench::start(builder, limits());
    let is_evicted = |name: &str| !seeds(&bench).contains_key(name);
    until("one is evicted", || {
        is_evicted("probe") || is_evicted("script")
    });
    for _ in 0..10 {
        let (asked, other) = if is_evicted("probe") {
            ("/probe/count", "script")
        } else {
            ("/script/", "probe")
        };
        bench.text(asked);
        until("the other one is evicted", || is_evicted(other));
    }
    assert_eq!(made(&bench), 0, "{:?}", seeds(&bench));
    stop(bench);
}

/// Only the version that serves has an image.
fn a_new_version_has_an_image_of_its_own() {
    let restarts = Restarts::deployed();
    let bench = restarts.start();
    let before = restarts.images();
    let module = e2e::file("tests/fixtures/http-probe.wasm");
    bench.deploy("probe", &module, FunctionOptions::default().env("A", "B"));
    until("it has an image", || {
        let now = restarts.images();
        let gone = before.keys().filter(|path| !now.contains_key(*path));
        now.len() == ALL && gone.count() == 1
    });
    bench
        .block_on(bench.node.rollback("probe", Some(1)))
        .unwrap();
    restarts.serves(&bench);
    stop(bench);
    let bench = restarts.start();
    restarts.serves(&bench);
    stop(bench);
}

/// The disk does not reveal the values that a function was configured with.
fn images_tell_nothing() {
    let restarts = Restarts::deployed();
    let bench = restarts.start();
    let secret = "a secret of forty bytes that stands alone";
    let options = FunctionOptions::default().env("SECRET", secret);
    let before = restarts.images();
    bench.deploy(
        "probe",
        &e2e::file("tests/fixtures/http-probe.wasm"),
        options,
    );
    until("it has an image", || {
        restarts
            .images()
            .keys()
            .any(|path| !before.contains_key(path))
    });
    stop(bench);
    for path in restarts.images().keys() {
        let bytes = fs::read(path).unwrap();
        let shows = |text: &str| {
            let text = text.as_bytes();
            bytes.windows(text.len()).any(|window| window == text)
        };
        assert!(!shows(secret) && !shows("probe") && !shows("SECRET"));
    }
}

fn main() {
    e2e::main(tests![
        a_node_that_starts_again_makes_no_seed,
        what_requests_use_is_known_after_a_restart,
        what_is_spoilt_is_made_anew,
        what_is_not_a_file_or_gone_is_made_anew,
        an_image_of_another_format_is_replaced,
        a_key_that_is_swapped_under_a_node_counts_after_the_next_start,
        another_key_or_limit_is_another_image,
        what_is_removed_leaves_nothing,
        images_tell_nothing,
        what_was_evicted_comes_from_its_image,
        what_was_renamed_is_not_taken_for_another,
        the_disk_has_as_many_as_it_may,
        a_new_version_has_an_image_of_its_own,
    ]);
}
