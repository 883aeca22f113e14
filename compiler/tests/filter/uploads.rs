//! Files of the repository that can be uploaded, by their paths.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Functions whose compilation uses every rule: a small component, text, and a component of
/// megabytes, whose memory is moved.
pub const BUSY: [&str; 3] = [
    "examples/hello/hello.wasm",
    "examples/hello-wat/hello.wat",
    "examples/go-cgi/cgi.wasm",
];

/// Returns the content of a file.
pub fn read(path: &str) -> Vec<u8> {
    let path = root().join(path);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns all files in `tests/fixtures/` and `tests/fixtures/wat/`, whether functions or not.
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
