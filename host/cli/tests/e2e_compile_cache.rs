//! The next version of a large function is compiled with the cache of the previous version. The
//! result is the same as without the cache, whatever state the cache is in.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::{fs, path::PathBuf};

use e2e::{Bench, limits};
use faasw::{Digest, FunctionOptions, Node};
use tempfile::TempDir;

/// Returns a component with a custom section so large that its compilation leaves a cache.
fn large(told: u8) -> Vec<u8> {
    let mut module = e2e::file("tests/fixtures/http-probe.wasm");
    let content = [&[3][..], b"pad", &vec![told; 1 << 20]].concat();
    let length = u32::try_from(content.len()).unwrap();
    module.push(0);
    module.extend((0..4).map(|part| (length >> (7 * part)) as u8 | 0x80));
    module.push((length >> 28) as u8);
    module.extend(content);
    module
}

struct Deployments {
    folder: TempDir,
    bench: Bench,
}

impl Deployments {
    fn begin() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::start(Node::builder().data_dir(folder.path()), limits());
        Self { folder, bench }
    }

    /// Deploys the next version of a name, and checks that it answers.
    fn deploy(&self, name: &str, module: &[u8]) {
        let deployed = self.bench.deploy(name, module, FunctionOptions::default());
        assert!(deployed.compile_time.is_some());
        assert_eq!(self.bench.text(&format!("/{name}/poll")), "ready 1\n");
    }

    /// Returns the number of cache files, and those of a name.
    fn kept(&self, name: &str) -> (usize, Vec<PathBuf>) {
        let folder = fs::read_dir(self.folder.path().join("compiled")).unwrap();
        let mut files: Vec<_> = folder.map(|file| file.unwrap().path()).collect();
        let all = files.len();
        files.retain(|file| {
            let file = file.file_name().unwrap().to_str().unwrap();
            file.starts_with(&format!("{name}@"))
        });
        (all, files)
    }

    fn kept_of(&self, name: &str) -> PathBuf {
        self.kept(name).1.remove(0)
    }
}

/// Returns content in the form in which the node stores it.
fn sealed(content: &[u8]) -> Vec<u8> {
    [Digest::of(content).to_string().as_bytes(), content].concat()
}

fn each_function_has_its_own_compile_cache_until_removal() {
    let node = Deployments::begin();
    node.deploy("small", &e2e::file("tests/fixtures/http-probe.wasm"));
    assert_eq!(node.kept("small").0, 0);
    node.deploy("a", &large(1));
    node.deploy("b", &large(2));
    assert_eq!((node.kept("a").1.len(), node.kept("b").0), (1, 2));
    // The second compilation uses the kept cache. A cache made from nothing would also be as large.
    let first = fs::read(node.kept_of("a")).unwrap();
    node.deploy("a", &large(3));
    let second = fs::read(node.kept_of("a")).unwrap();
    assert!(second.len().abs_diff(first.len()) < first.len() / 4);
    // Code that was compiled with a function's cache is not shared with others, and `deploy` checks
    // that it is compiled again.
    node.deploy("b", &large(3));
    node.bench.block_on(node.bench.node.remove("a")).unwrap();
    assert_eq!((node.kept("a").1.len(), node.kept("b").0), (0, 1));
    node.bench.end();
}

fn a_damaged_compile_cache_is_ignored() {
    let node = Deployments::begin();
    node.deploy("a", &large(0));
    node.deploy("other", &large(100));
    let file = node.kept_of("a");
    let whole = fs::read(&file).unwrap();
    let content = whole[64..].to_vec();
    let torn = content[..content.len() / 2].to_vec();
    let values_cut = content[3..].to_vec();
    for (told, spoilt) in (1..).zip([
        whole[..whole.len() - 1].to_vec(),
        whole[..10].to_vec(),
        vec![],
        // An earlier helper under an attacker's control may have left the following.
        sealed(b""),
        sealed(&torn),
        sealed(&values_cut),
        sealed(&vec![0xFF; 1 << 20]),
        sealed(&vec![0; 1 << 20]),
    ]) {
        fs::write(&file, &spoilt).unwrap();
        node.deploy("a", &large(told));
        let mended = fs::read(&file).unwrap();
        assert!(mended.len() > whole.len() / 2, "{told}");
    }
    assert_eq!(node.bench.text("/other/poll"), "ready 1\n");
    node.bench.end();
}

fn caches_that_are_too_large_or_no_files_are_ignored() {
    let node = Deployments::begin();
    node.deploy("a", &large(0));
    let file = node.kept_of("a");
    fs::write(&file, sealed(&vec![0; (64 << 20) + 1])).unwrap();
    node.deploy("a", &large(1));
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    node.deploy("a", &large(2));
    node.bench.end();
}

fn main() {
    e2e::main(tests![
        each_function_has_its_own_compile_cache_until_removal,
        a_damaged_compile_cache_is_ignored,
        caches_that_are_too_large_or_no_files_are_ignored,
    ]);
}
