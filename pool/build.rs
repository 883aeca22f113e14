//! Computes a digest of the sources that determine how seeds are made, in addition to the digest of
//! the bundled executables. An image of a seed is not used once these sources have changed.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use sha2::{Digest, Sha256};

/// From this package's folder.
const SOURCES: [&str; 5] = [
    "src",
    "fri/src",
    "../seedtree/src",
    "../guest-vm/abi/src",
    "../Cargo.lock",
];

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let mut hash = Sha256::new();
    for source in SOURCES {
        let path = here.join(source);
        println!("cargo:rerun-if-changed={}", path.display());
        take(&path, &mut hash)?;
    }
    let digest: String = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    println!("cargo:rustc-env=FAASW_SOURCES_DIGEST={digest}");
    Ok(())
}

/// Files in the order of their names, each with its length.
fn take(path: &Path, hash: &mut Sha256) -> Result<(), Box<dyn Error>> {
    if !path.is_dir() {
        // Where it is built from elsewhere there may be no lock file.
        let content = fs::read(path).unwrap_or_default();
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(content);
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    entries.sort();
    entries.iter().try_for_each(|entry| take(entry, hash))
}
