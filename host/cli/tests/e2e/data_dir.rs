//! Data directories with images of functions, and the output of commands about them.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use faasw::{FunctionOptions, Node, NodeBuilder};
use serde_json::Value;
use tempfile::TempDir;

use super::{
    Bench, bundle, limits,
    process::{Running, faasw},
    until,
};

/// A script that returns a number which it drew during its initialisation. Each initialisation
/// draws another one.
pub const SCRIPT: &str = "const born = Math.random();
    export default { fetch() { return new Response(`${born}`) } }";

pub const SECRET: &str = "a secret of forty bytes that stands alone";

/// A data directory, and the node that uses it.
pub struct TestDataDir {
    pub folder: TempDir,
}

impl TestDataDir {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub fn builder(&self) -> NodeBuilder {
        Node::builder().data_dir(self.folder.path()).admin(true)
    }

    pub fn start(&self) -> Bench {
        Bench::start(self.builder(), limits())
    }

    /// Runs a command at the node.
    pub fn run(&self, words: &[&str]) -> Output {
        let mut command = faasw(words);
        command.env("FAASW_DATA_DIR", self.folder.path());
        command.output().unwrap()
    }

    /// Returns the output of a command that succeeds.
    pub fn says(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?} {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn json(&self, words: &[&str]) -> Value {
        let text = self.says(&[words, &["--json"]].concat());
        serde_json::from_str(&text).unwrap()
    }

    /// Returns the error message of a command that fails.
    pub fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?} {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Returns the image files and their sizes.
    pub fn images(&self) -> BTreeMap<PathBuf, u64> {
        let files = fs::read_dir(self.path("images")).into_iter().flatten();
        files
            .flatten()
            .filter(|file| !file.file_name().to_string_lossy().starts_with('.'))
            .map(|file| (file.path(), file.metadata().unwrap().len()))
            .collect()
    }

    /// Returns files without a name of an image, for example partial ones.
    pub fn partial_images(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.path("images")).into_iter().flatten();
        files
            .flatten()
            .filter(|file| file.file_name().to_string_lossy().starts_with('.'))
            .map(|file| file.path())
            .collect()
    }

    /// Starts the program as a server.
    pub fn serve(&self, more: &[&str]) -> Running {
        let data_dir = self.folder.path().to_str().unwrap();
        let words = [
            "serve",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            data_dir,
        ];
        Running::start(&[&words[..], more].concat())
    }

    /// Returns the seeds by name.
    pub fn tree(&self) -> BTreeMap<String, Value> {
        let tree = self.json(&["tree"]);
        let seeds = tree.as_array().unwrap().iter();
        seeds
            .map(|seed| (seed["name"].as_str().unwrap().to_owned(), seed.clone()))
            .collect()
    }

    /// Deploys a script and a component with a secret, and waits for their images.
    pub fn deploy(&self, bench: &Bench) {
        let script = bundle(&[("handler.js", SCRIPT)]);
        bench.deploy("script", &script, FunctionOptions::default());
        let probe = super::file("tests/fixtures/http-probe.wasm");
        let options = FunctionOptions::default().env("SECRET", SECRET);
        bench.deploy("probe", &probe, options);
        // The two seeds that all functions share, the engine, and both functions.
        until("there is an image of each", || self.images().len() == 5);
    }

    /// Makes a named pipe.
    pub fn fifo(&self) -> PathBuf {
        let fifo = self.path("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        fifo
    }

    pub fn export(&self, name: &str) -> PathBuf {
        let file = self.path(&format!("{name}.faasw"));
        self.says(&["image", "export", name, "-o", file.to_str().unwrap()]);
        file
    }
}

pub fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// Copies all that a node at `to` needs to use the images of `from`.
pub fn share_images(from: &TestDataDir, to: &TestDataDir) {
    fs::copy(from.path("image.key"), to.path("image.key")).unwrap();
    fs::create_dir(to.path("images")).unwrap();
    for image in from.images().keys() {
        let name = image.file_name().unwrap();
        fs::copy(image, to.path("images").join(name)).unwrap();
    }
}
