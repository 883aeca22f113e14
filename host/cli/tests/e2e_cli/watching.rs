//! `up --watch`: a file that changes is deployed again.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write as _},
    os::{
        fd::{AsFd, AsRawFd as _},
        unix::fs::OpenOptionsExt as _,
    },
    path::Path,
};

use rustix::fs::OFlags;

use crate::e2e::{
    self,
    process::{Running, get},
};

/// Replaces a file as editors do: it renames a new file onto the old one.
fn save(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, file).unwrap();
}

pub fn up_deploys_a_file_again_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hello.wat");
    let text = String::from_utf8(e2e::file("tests/fixtures/wat/hello.wat")).unwrap();
    let write = |text: &str| save(&file, text);
    write(&text);
    let path = file.to_str().unwrap();
    let mut up = Running::start(&["up", path, "--watch", "--listen", "127.0.0.1:0", "--json"]);
    let address = up.address();
    assert_eq!(get(address, "/hello/").body, "hello from wat\n");
    write(
        &text
            .replace("hello from wat", "hello once more")
            .replace("\\0f\\00", "\\10\\00"),
    );
    let redeployed: serde_json::Value = serde_json::from_str(&up.line()).unwrap();
    assert_eq!(redeployed["function"]["version"], 2);
    up.said("hello: redeployed");
    assert_eq!(get(address, "/hello/").body, "hello once more\n");
    // A file that is not a module changes nothing, and the next change is noticed.
    write("(module $half");
    up.said("hello was not redeployed; the previous version still serves: ");
    assert_eq!(get(address, "/hello/").body, "hello once more\n");
    write(&text);
    up.line();
    assert_eq!(get(address, "/hello/").body, "hello from wat\n");
    assert_eq!(up.stop("INT"), Some(0));
}

/// Fills a pipe, so that it is like one whose reader stopped long ago.
fn fill(pipe: impl AsFd) {
    let mut pipe = File::options()
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(format!("/proc/self/fd/{}", pipe.as_fd().as_raw_fd()))
        .unwrap();
    // Single bytes fill the pipe completely.
    let full = loop {
        if let Err(full) = pipe.write_all(b"\n") {
            break full;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
}

pub fn up_continues_without_a_reader_of_its_output() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hello.wat");
    let text = String::from_utf8(e2e::file("tests/fixtures/wat/hello.wat")).unwrap();
    let save = |word: &str| save(&file, &text.replace("hello from wat", word));
    save("version no. 1x");
    let path = file.to_str().unwrap();
    let mut up = Running::start(&["up", path, "--watch", "--listen", "127.0.0.1:0", "--json"]);
    let address = up.address();
    fill(up.stdout.get_ref());
    for version in 2..=4 {
        // The new text has the length of the text that it replaces.
        let word = format!("version no. {version}x");
        save(&word);
        up.said(&format!("hello: version {version}, "));
        assert_eq!(get(address, "/hello/").body, format!("{word}\n"));
    }
    // A reader that starts to read again finds all lines.
    let mut versions = Vec::new();
    while versions.last() != Some(&4) {
        let line = up.line();
        if line != "\n" {
            let deployed: serde_json::Value = serde_json::from_str(&line).unwrap();
            versions.push(deployed["function"]["version"].as_u64().unwrap());
        }
    }
    assert_eq!(versions, [2, 3, 4]);
    // A full pipe does not keep the program from ending.
    fill(up.stdout.get_ref());
    save("version no. 5x");
    up.said("hello: version 5, ");
    assert_eq!(up.stop("TERM"), Some(0));
}
