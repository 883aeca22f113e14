//! Packages of other projects that are stored in archives.

use std::io::Read as _;

use super::fixture;

/// Returns the files of an archive of the repository, by their paths.
pub fn unpack(archive: &str) -> Vec<(String, Vec<u8>)> {
    let packed = fixture(archive);
    let decoder = ruzstd::decoding::StreamingDecoder::new(packed.as_slice()).unwrap();
    let mut files = Vec::new();
    for entry in tar::Archive::new(decoder).entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.header().entry_type().is_file() {
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.push((path.trim_start_matches("./").to_owned(), content));
        }
    }
    files
}
