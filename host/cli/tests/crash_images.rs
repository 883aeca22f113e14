//! A node that is killed while it writes images has complete images, or none. Whatever it was
//! doing, the next node answers correctly, and partial files are removed.
//!
//! The test uses real processes, real KVM, and SIGKILL at random moments after deployments and
//! starts, half of them once a file is being written. `FAASW_TEST_SEED` repeats the choices of a
//! run, `FAASW_CRASH_ROUNDS` sets the number of kills.

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
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use common::time_limit;
use e2e::process::{Running, get};
use e2e::random::{self, number, up_to};
use e2e::{bundle, until};
use faasw::{FunctionName, FunctionOptions, admin::Client};
use fastrand::Rng;

fn start(data_dir: &Path) -> Running {
    Running::serving(data_dir, &["--zygotes", "2"])
}

/// Returns the files of images: complete ones, as far as their names tell, and partial ones.
fn images(data_dir: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let entries = fs::read_dir(data_dir.join("images")).unwrap().flatten();
    let is_whole = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        !name.starts_with('.')
    };
    entries.map(|entry| entry.path()).partition(is_whole)
}

/// A script and a module, whose answers contain the version.
struct Functions {
    client: Client,
    runtime: tokio::runtime::Runtime,
    version: u32,
}

impl Functions {
    fn deploy(&mut self) {
        self.version += 1;
        let script = format!(
            "export default {{ fetch() {{ return new Response('script {}') }} }}",
            self.version
        );
        let text = String::from_utf8(e2e::file("tests/fixtures/wat/hello.wat")).unwrap();
        let answer = format!("version {:06}\\n", self.version);
        let module = text.replace("hello from wat\\n", &answer);
        assert_ne!(module, text);
        self.put("script", bundle(&[("handler.js", &script)]).into());
        self.put("module", module.into());
    }

    fn put(&self, name: &str, module: Bytes) {
        let (name, options) = (FunctionName::new(name).unwrap(), FunctionOptions::default());
        let deployed = self.client.deploy(&name, module, &options);
        self.runtime.block_on(deployed).unwrap();
    }

    fn answer(&self, address: SocketAddr) {
        for (path, expected) in [
            ("/script/", format!("script {}", self.version)),
            ("/module/", format!("version {:06}\n", self.version)),
        ] {
            let answer = get(address, path);
            assert_eq!((answer.status, answer.body), (200, expected), "{path}");
        }
    }
}

fn a_node_killed_while_it_writes_images_leaves_no_partial_image() {
    let slow = time_limit(1) > Duration::from_secs(1);
    let rounds = number("FAASW_CRASH_ROUNDS").unwrap_or(if slow { 6 } else { 40 });
    let seed = random::seed();
    println!("FAASW_TEST_SEED={seed} FAASW_CRASH_ROUNDS={rounds}");
    let mut rng = Rng::with_seed(seed);
    let folder = tempfile::tempdir().unwrap();
    let mut functions = Functions {
        client: Client::new(folder.path()),
        runtime: tokio::runtime::Runtime::new().unwrap(),
        version: 0,
    };
    {
        let mut node = start(folder.path());
        let address = node.address();
        functions.deploy();
        functions.answer(address);
        until("there is an image of each", || {
            images(folder.path()).0.len() == 5
        });
        node.stop("TERM");
    }
    let (begun, mut kills, mut halves) = (Instant::now(), 0, 0);
    // The rounds go on if the node was never killed while it wrote.
    while kills < rounds || (halves == 0 && kills < 10 * rounds) {
        // The node writes these again when a request needs their seeds.
        for path in images(folder.path()).0 {
            if rng.bool() {
                fs::remove_file(path).unwrap();
            }
        }
        let mut node = start(folder.path());
        // The node may also be killed while it starts.
        if rng.u8(..3) > 0 {
            let address = node.address();
            if rng.bool() {
                functions.deploy();
            }
            if rng.bool() {
                functions.answer(address);
            }
        }
        let mut wait = up_to(&mut rng, time_limit(1) / 5);
        if rng.bool() {
            let deadline = Instant::now() + time_limit(1) / 2;
            while images(folder.path()).1.is_empty() && Instant::now() < deadline {
                std::hint::spin_loop();
            }
            // Enough time to write a chunk or a few.
            wait /= 200;
        }
        std::thread::sleep(wait);
        node.child.kill().unwrap();
        node.child.wait().unwrap();
        let (whole, half) = images(folder.path());
        kills += 1;
        halves += half.len();
        assert!(half.len() <= 1, "{half:?}");

        let mut node = start(folder.path());
        let address = node.address();
        functions.answer(address);
        // The new node's own partial file exists only while it is written, and older ones are
        // removed.
        until("what was left by half is gone", || {
            half.iter().all(|path| !path.exists())
        });
        let said = node.stderr();
        assert!(!said.contains("is not used"), "{kills}: {said}");
        let sealed: Vec<_> = whole.iter().map(fs::metadata).collect();
        assert!(sealed.iter().flatten().all(|file| file.len() > 8192));
        node.stop("TERM");
    }
    let mut node = start(folder.path());
    let address = node.address();
    functions.answer(address);
    until("there is an image of each", || {
        images(folder.path()).0.len() == 5
    });
    until("nothing is left", || images(folder.path()).1.is_empty());
    println!(
        "{halves} files by half in {kills} kills, {:?}",
        begun.elapsed()
    );
    assert!(halves > 0, "it was never killed while it wrote");
}

/// An image that is in use is not the first to be removed after the next start, in a confined node
/// as well.
fn a_confined_node_records_the_use_of_images() {
    let folder = tempfile::tempdir().unwrap();
    let mut functions = Functions {
        client: Client::new(folder.path()),
        runtime: tokio::runtime::Runtime::new().unwrap(),
        version: 0,
    };
    let mut node = start(folder.path());
    let address = node.address();
    functions.deploy();
    functions.answer(address);
    until("there is an image of each", || {
        images(folder.path()).0.len() == 5
    });
    node.stop("TERM");
    let before = SystemTime::now() - Duration::from_secs(24 * 3600);
    for path in images(folder.path()).0 {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(before).unwrap();
    }
    let mut node = start(folder.path());
    functions.answer(node.address());
    until("all were used", || {
        let all = images(folder.path()).0;
        let mut used = all.iter().map(|path| fs::metadata(path)?.modified());
        used.all(|used| used.is_ok_and(|used| used > before + Duration::from_secs(3600)))
    });
    node.stop("TERM");
}

fn main() {
    e2e::main(tests![
        a_node_killed_while_it_writes_images_leaves_no_partial_image,
        a_confined_node_records_the_use_of_images,
    ]);
}
