//! The checked-in functions.

use std::{fs, path::Path};

/// Reads a file of `tests/fixtures/`.
pub fn fixture(path: &str) -> Vec<u8> {
    read("tests/fixtures", path)
}

/// Reads a file of `examples/`.
pub fn example(path: &str) -> Vec<u8> {
    read("examples", path)
}

fn read(folder: &str, path: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(folder)
        .join(path);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
