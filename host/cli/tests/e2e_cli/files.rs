//! Files and arguments from the command line: a directory, where functions find it, and entries
//! that are no files.

use std::fs;
use std::os::unix::fs::symlink;

use crate::{
    e2e::process::{Running, get},
    good, run,
};

const PROBE: &str = "tests/fixtures/files-probe.wasm";

pub fn a_folder_is_deployed_with_its_function() {
    let data = tempfile::tempdir().unwrap();
    let state = data.path().join("state");
    let folder = data.path().join("folder");
    fs::create_dir_all(folder.join("lib")).unwrap();
    fs::write(folder.join("lib/a.txt"), "from the folder").unwrap();
    symlink("lib/a.txt", folder.join("a")).unwrap();
    let node = Running::start(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        state.to_str().unwrap(),
    ]);
    node.said("ready on ");
    let at = format!("{}:/srv", folder.to_str().unwrap());
    let deploy = |more: &[&str]| {
        let words = ["deploy", PROBE, "--name", "f", "--files", &at];
        run(&[&words, more].concat(), &state)
    };
    good(deploy(&["--args", "-x", "--args", "y z"]));
    let invoke = |path: &str| good(run(&["invoke", "f", "--path", path], &state));
    assert_eq!(invoke("/read/srv/a"), "from the folder");
    assert_eq!(invoke("/arguments"), "f|-x|y z");
    let inspected = good(run(&["inspect", "f"], &state));
    for line in [
        "arg            -x\n                 y z\n",
        "3 with 15 B at /srv",
    ] {
        assert!(inspected.contains(line), "{inspected}");
    }
    // The packer refuses links that lead out, and before that entries that are no files. The
    // deployed function is unaffected.
    for (name, why) in [
        ("out", "the link \"out\" leads out"),
        ("socket", "\"socket\" is neither"),
    ] {
        let there = folder.join(name);
        match name {
            "out" => symlink("/etc/passwd", &there).unwrap(),
            _ => drop(std::os::unix::net::UnixListener::bind(&there).unwrap()),
        }
        let refused = deploy(&[]);
        let told = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && told.contains(why), "{told}");
        fs::remove_file(&there).unwrap();
    }
    assert_eq!(invoke("/read/srv/a"), "from the folder");
}

pub fn up_watches_the_folder_of_its_function() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), "one").unwrap();
    let files = folder.path().to_str().unwrap();
    let words = [
        "up",
        PROBE,
        "--watch",
        "--listen",
        "127.0.0.1:0",
        "--json",
        "--files",
        files,
    ];
    let mut up = Running::start(&words);
    let address = up.address();
    assert_eq!(get(address, "/files-probe/read/a.txt").body, "one");
    fs::write(folder.path().join("a.txt"), "two, and longer").unwrap();
    let redeployed: serde_json::Value = serde_json::from_str(&up.line()).unwrap();
    assert_eq!(redeployed["function"]["version"], 2);
    assert_eq!(
        get(address, "/files-probe/read/a.txt").body,
        "two, and longer"
    );
    assert_eq!(up.stop("INT"), Some(0));
}
