//! Packages of other projects that are stored in archives.

use std::{collections::BTreeMap, io::Read as _};

/// Returns the files of an archive of the repository by their paths. All are texts.
pub fn unpack(archive: &str) -> BTreeMap<String, String> {
    let packed = super::file(archive);
    let decoder = ruzstd::decoding::StreamingDecoder::new(packed.as_slice()).unwrap();
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(decoder).entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.header().entry_type().is_file() {
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            files.insert(path.trim_start_matches("./").to_owned(), text);
        }
    }
    files
}
