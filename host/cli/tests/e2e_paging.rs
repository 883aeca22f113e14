//! A seed's memory is read from disk while its guests run. A guest that touches a page which is not
//! loaded yet waits for it, and finds the frozen content. Otherwise the request is answered without
//! the image.

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
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use common::give_up;
use e2e::{Bench, bundle, limits};
use faasw::{FunctionOptions, Node};
use faasw_pool::trial::PagerHold;
use tempfile::TempDir;

/// Pages of a table that is made when the script is deployed. Each has different content.
const PAGES: usize = 12_288;

const SCRIPT: &str = r#"
    const PAGES = 12288;
    const table = new Uint8Array(PAGES * 4096);
    for (let i = 0; i < PAGES; i++) table[i * 4096 + i % 4096] = 1 + i % 251;
    let count = 0;
    export default {
      fetch(request) {
        const asked = new URL(request.url).searchParams.get("pages").split(",");
        const found = asked.map((i) => table[i * 4096 + i % 4096]);
        const before = asked.map((i) => table[i * 4096 + 4095]).every((byte) => byte < 252);
        for (const i of asked) table[i * 4096 + 4095] = 255;
        return new Response(`${++count} ${before} ${found}`);
      },
    };"#;

struct Large {
    folder: TempDir,
}

impl Large {
    /// Makes a data directory with an image of the script's seed, in which the working set of
    /// requests for the first page is recorded.
    fn deployed() -> Self {
        let large = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let bench = large.start();
        let script = bundle(&[("handler.js", SCRIPT)]);
        let options = FunctionOptions::default().memory(256 << 20);
        bench.deploy("large", &script, options);
        for _ in 0..6 {
            assert_answer(&bench, &[0]);
        }
        until("what requests use is in the image", || {
            let seeds = bench.node.tree();
            let known = seeds.iter().find(|seed| seed.name == "large");
            known.is_some_and(|seed| seed.written_pages > 0)
        });
        // The image that is written last contains it.
        until("there is an image of it", || large.image().is_some());
        bench.end();
        large
    }

    fn start(&self) -> Bench {
        Bench::start(Node::builder().data_dir(self.folder.path()), limits())
    }

    /// Returns the largest image.
    fn image(&self) -> Option<PathBuf> {
        let files = fs::read_dir(self.folder.path().join("images")).ok()?;
        let sized = files.flatten().filter_map(|file| {
            let is_whole = !file.file_name().to_string_lossy().starts_with('.');
            let bytes = file.metadata().ok()?.len();
            (is_whole && bytes > (PAGES * 4096) as u64).then(|| (bytes, file.path()))
        });
        sized.max().map(|(_, path)| path)
    }
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + give_up();
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Requests pages of the table, and asserts that they have their original content and that the
/// guest is fresh.
#[track_caller]
fn assert_answer(bench: &Bench, pages: &[usize]) {
    let words = |of: &dyn Fn(usize) -> usize| {
        let words: Vec<String> = pages.iter().map(|page| of(*page).to_string()).collect();
        words.join(",")
    };
    let path = format!("/large/?pages={}", words(&|page| page));
    let expected = format!("1 true {}", words(&|page| 1 + page % 251));
    assert_eq!(bench.text(&path), expected);
}

/// Returns how many pages guests had to wait for since the seed was read.
fn late(bench: &Bench) -> u64 {
    let seeds = bench.node.tree();
    let large = seeds.into_iter().find(|seed| seed.name == "large");
    large.map_or(0, |seed| seed.late_pages)
}

fn is_fully_loaded(bench: &Bench) -> bool {
    let mut seeds = bench.node.tree().into_iter();
    seeds.any(|seed| seed.name == "large" && seed.is_whole)
}

fn random_pages(random: &mut fastrand::Rng) -> Vec<usize> {
    (0..random.usize(1..30))
        .map(|_| random.usize(..PAGES))
        .collect()
}

fn guests_wait_for_pages_that_are_not_loaded() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let large = Large::deployed();
    let mut seen = 0;
    for start in 0..5 {
        // The first guests find only the working set of requests for the first page.
        let held = (start == 0).then(PagerHold::new);
        let bench = large.start();
        // Many guests at once share one reading of the image.
        std::thread::scope(|scope| {
            for _ in 0..12 {
                let pages = random_pages(&mut random);
                scope.spawn(|| {
                    let mut last = pages;
                    last.push(PAGES - 1);
                    assert_answer(&bench, &last);
                });
            }
        });
        drop(held);
        for _ in 0..40 {
            assert_answer(&bench, &random_pages(&mut random));
        }
        until("its seed is whole", || is_fully_loaded(&bench));
        seen += late(&bench);
        bench.end();
    }
    assert!(seen > 0, "no guest had to wait");
}

fn a_truncated_image_is_rebuilt() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let large = Large::deployed();
    for damage in 0..4 {
        let path = large.image().unwrap();
        let mut image = fs::read(&path).unwrap();
        let length = image.len();
        match damage {
            0 => image[length - 100] ^= 1,
            1 => image[length / 2] ^= 1,
            2 => image.truncate(length - 4096),
            _ => image.truncate(length / 2),
        }
        fs::write(&path, &image).unwrap();
        let bench = large.start();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let pages = random_pages(&mut random);
                let bench = &bench;
                scope.spawn(move || assert_answer(bench, &pages));
            }
        });
        for _ in 0..10 {
            assert_answer(&bench, &random_pages(&mut random));
        }
        until("there is another image", || {
            let another = large.image().map(|path| fs::read(path).unwrap());
            another.is_some_and(|another| another != image)
        });
        bench.end();
    }
    let bench = large.start();
    assert_answer(&bench, &[PAGES - 1]);
    bench.end();
}

/// A client that disconnects ends a guest that waits, and affects no other request.
fn disconnected_clients_do_not_delay_other_requests() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let large = Large::deployed();
    for _ in 0..3 {
        let bench = large.start();
        let address = bench.address;
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let pages = random_pages(&mut random);
                let wait = Duration::from_micros(random.u64(..40_000));
                scope.spawn(move || {
                    let mut client = std::net::TcpStream::connect(address).unwrap();
                    let pages: Vec<String> = pages.iter().map(usize::to_string).collect();
                    let request = format!(
                        "GET /large/?pages={} HTTP/1.1\r\nHost: a\r\n\r\n",
                        pages.join(",")
                    );
                    std::io::Write::write_all(&mut client, request.as_bytes()).unwrap();
                    std::thread::sleep(wait);
                });
            }
            for _ in 0..4 {
                let pages = random_pages(&mut random);
                let bench = &bench;
                scope.spawn(move || assert_answer(bench, &pages));
            }
        });
        assert_answer(&bench, &random_pages(&mut random));
        // A node that is stopped in the middle of reading ends.
        bench.end();
    }
}

/// Requests pages so far apart that each is in another piece of the image, those of the last pieces
/// first.
fn request_the_last_pages(bench: &Bench) {
    let pages: Vec<usize> = (0..100).map(|at| PAGES - 1 - at * 32).collect();
    assert_answer(bench, &pages);
}

/// Starts a node, requests pages from the last pieces of the image while the rest is held back, and
/// returns the node and how many pages its guest had to wait for.
fn start_and_wait(large: &Large) -> (Bench, u64) {
    let held = PagerHold::new();
    let bench = large.start();
    request_the_last_pages(&bench);
    drop(held);
    until("its seed is whole", || is_fully_loaded(&bench));
    let late = late(&bench);
    (bench, late)
}

/// A function begins to use another part of its memory.
fn pages_that_requests_waited_for_are_loaded_first_next_time() {
    let large = Large::deployed();
    let image = fs::read(large.image().unwrap()).unwrap();
    let (bench, late_before) = start_and_wait(&large);
    assert!(late_before >= 100, "one for each page: {late_before}");
    until("another image is there", || {
        large
            .image()
            .is_some_and(|path| fs::read(path).is_ok_and(|now| now != image))
    });
    bench.end();
    drop(bench);
    let (bench, late_now) = start_and_wait(&large);
    bench.end();
    println!("{late_before} pages waited for, and then {late_now}");
    assert!(late_now < late_before / 4, "{late_before}, then {late_now}");
}

fn main() {
    e2e::main(tests![
        guests_wait_for_pages_that_are_not_loaded,
        pages_that_requests_waited_for_are_loaded_first_next_time,
        a_truncated_image_is_rebuilt,
        disconnected_clients_do_not_delay_other_requests,
    ]);
}
