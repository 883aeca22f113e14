//! The files of the repository that can be uploaded, by their paths in it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Functions whose compilation comes to every rule: a small component, text, and one of
/// megabytes, whose memory is moved about.
pub const BUSY: [&str; 3] = [
    "examples/hello/hello.wasm",
    "examples/hello-wat/hello.wat",
    "examples/go-cgi/cgi.wasm",
];

/// What is in a file.
pub fn read(path: &str) -> Vec<u8> {
    let path = root().join(path);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All in `tests/fixtures/` and `tests/fixtures/wat/`, functions and others.
pub fn fixtures() -> Vec<String> {
    let mut paths = Vec::new();
    for folder in ["tests/fixtures", "tests/fixtures/wat"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".wasm") || name.ends_with(".wat") {
                paths.push(format!("{folder}/{name}"));
            }
        }
    }
    assert!(!paths.is_empty(), "the fixtures are gone");
    paths
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
