//! `faasw image export` and `import`: functions that move between nodes with their seeds, and
//! imports that fail.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::Duration,
};

use e2e::{
    Bench,
    data_dir::{SCRIPT, SECRET, TestDataDir, count, share_images},
    filled, limits,
    process::{Running, faasw, get},
    start_import, until,
};
use faasw::FunctionOptions;
use http_body_util::BodyExt as _;

/// The best case: nothing is initialised on the other node, not even the engine.
fn an_import_reuses_the_seed_on_a_node_with_the_same_images() {
    let (there, here) = (TestDataDir::new(), TestDataDir::new());
    let bench = there.start();
    there.deploy(&bench);
    let born = bench.text("/script/");
    let exports = ["script", "probe"].map(|name| there.export(name));
    for export in &exports {
        assert_eq!(fs::metadata(export).unwrap().mode() & 0o777, 0o600);
        let bytes = fs::read(export).unwrap();
        let has = |text: &str| {
            bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes())
        };
        assert!(!has(SECRET) && !has("born") && !has("probe"));
    }
    bench.end();
    share_images(&there, &here);
    let bench = here.start();
    for export in &exports {
        let imported = here.json(&["image", "import", export.to_str().unwrap()]);
        assert!(imported["rebuilt"].is_null(), "{imported}");
        assert_eq!(imported["deployed"]["function"]["version"], 1);
    }
    assert_eq!(bench.text("/script/"), born);
    assert_eq!(bench.text("/probe/count"), "1\n");
    assert_eq!(bench.text("/probe/count"), "1\n");
    for shared in ["guest", "linkers", "js"] {
        let seed = &here.tree()[shared];
        assert_eq!(seed["forks"], 0, "{seed}");
    }
    let environment = here.json(&["inspect", "probe"])["function"]["environment"].clone();
    assert_eq!(environment, serde_json::json!(["SECRET"]));
    // The second import makes another version of the same seed, and a rollback goes back to the
    // first.
    let said = here.says(&["image", "import", exports[0].to_str().unwrap()]);
    assert!(
        said.starts_with("script: version 2, seed read from"),
        "{said}"
    );
    assert_eq!(bench.text("/script/"), born);
    bench
        .block_on(bench.node.rollback("script", Some(1)))
        .unwrap();
    assert_eq!(bench.text("/script/"), born);
    bench.end();
    drop(bench);
    let bench = here.start();
    assert_eq!(bench.text("/script/"), born);
    // The imported function can be exported again.
    until("there is an image of it", || {
        here.tree()["script"]["image_bytes"].is_u64()
    });
    let again = here.export("script");
    let mut last = here.json(&["image", "import", again.to_str().unwrap()]);
    assert!(last["rebuilt"].take().is_null(), "{last}");
    assert_eq!(bench.text("/script/"), born);
    bench.end();
}

fn an_import_on_another_node_deploys_the_module() {
    let (there, here) = (TestDataDir::new(), TestDataDir::new());
    let bench = there.start();
    there.deploy(&bench);
    let wizened = e2e::file("host/cli/tests/e2e/wizened.wat");
    bench.deploy("wizened", &wizened, FunctionOptions::default());
    let born = bench.text("/script/");
    until("there is one more image", || there.images().len() == 6);
    let exports = ["script", "probe", "wizened"].map(|name| there.export(name));
    bench.end();
    // The nodes share only the key; each makes the seeds that all functions share.
    fs::copy(there.path("image.key"), here.path("image.key")).unwrap();
    let bench = here.start();
    for export in &exports {
        let said = here.says(&["image", "import", export.to_str().unwrap()]);
        assert!(said.contains("docs/func-image.md"), "{said}");
        assert!(said.contains("version 1, "), "{said}");
    }
    assert_ne!(bench.text("/script/"), born);
    assert_eq!(bench.text("/probe/count"), "1\n");
    // The module in the export is the one that Wizer has initialised, and it is not initialised
    // again.
    assert_eq!(bench.text("/wizened/"), "111\n");
    let init = &here.json(&["inspect", "wizened"])["function"]["init"];
    assert!(init["as-module"]["export"].is_string(), "{init}");
    // The functions have images of their own by now.
    until("there are images", || here.images().len() == 6);
    let renamed = [
        "image",
        "import",
        exports[1].to_str().unwrap(),
        "--name",
        "other",
    ];
    let imported = here.json(&renamed);
    let why = imported["rebuilt"].as_str().unwrap();
    assert!(why.contains("is of probe"), "{why}");
    assert_eq!(bench.text("/other/count"), "1\n");
    bench.end();
}

fn an_export_of_another_key_is_rejected() {
    let (there, here) = (TestDataDir::new(), TestDataDir::new());
    let bench = there.start();
    there.deploy(&bench);
    let export = there.export("probe");
    bench.end();
    let bench = here.start();
    let import = |file: &Path| here.refused(&["image", "import", file.to_str().unwrap()]);
    let why = import(&export);
    assert!(
        why.contains("another image key") && why.contains("--image-key"),
        "{why}"
    );
    let bytes = fs::read(&export).unwrap();
    let file = here.path("file");
    fs::write(&file, b"\0asm").unwrap();
    let why = import(&file);
    assert!(why.contains("not an export of faasw"), "{why}");
    bench.end();
    drop(bench);
    // With the right key the error names the other faults.
    fs::copy(there.path("image.key"), here.path("image.key")).unwrap();
    let bench = here.start();
    for (damage, said) in [
        (bytes[..bytes.len() / 2].to_vec(), "cut off"),
        ([&bytes[..], b"more"].concat(), "bytes follow its end"),
        (
            {
                let mut bytes = bytes.clone();
                let at = bytes.len() / 2;
                bytes[at] ^= 1;
                bytes
            },
            "damaged",
        ),
    ] {
        fs::write(&file, damage).unwrap();
        let why = import(&file);
        assert!(why.contains(said) && why.contains("copy the file"), "{why}");
    }
    assert!(bench.node.list().is_empty());
    assert!(here.images().is_empty(), "{:?}", here.images());
    bench.end();
}

/// The length of a piped export is not known in advance.
fn an_export_can_be_imported_from_a_pipe() {
    let dir = TestDataDir::new();
    let bench = dir.start();
    bench.deploy("filled", &filled(3), FunctionOptions::default());
    until("there is an image of it", || {
        dir.tree()["filled"]["image_bytes"].is_u64()
    });
    let export = fs::read(dir.export("filled")).unwrap();
    let fifo = dir.fifo();
    let words = ["image", "import", fifo.to_str().unwrap()];
    let written = |bytes: &[u8]| {
        let (fifo, bytes) = (fifo.clone(), bytes.to_vec());
        thread::spawn(move || fs::write(fifo, bytes))
    };
    let whole = written(&export);
    let said = dir.says(&words);
    assert!(said.contains("version 2, seed read from"), "{said}");
    whole.join().unwrap().unwrap();
    let cut_off = written(&export[..export.len() - 1]);
    let why = dir.refused(&words);
    assert!(why.contains("cut off"), "{why}");
    cut_off.join().unwrap().unwrap();
    let mut command = faasw(&["image", "import", "/dev/stdin", "--json"]);
    command.env("FAASW_DATA_DIR", dir.folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(&export).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let imported: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(imported["rebuilt"].is_null(), "{imported}");
    assert_eq!(imported["deployed"]["function"]["version"], 3);
    assert_eq!(bench.text("/filled/"), "filled\n");
    let why = dir.refused(&["image", "import", dir.path("images").to_str().unwrap()]);
    assert!(why.contains("cannot be read"), "{why}");
    bench.end();
}

/// Two exports to the same file do not mix, either.
fn an_export_follows_no_existing_link() {
    let dir = TestDataDir::new();
    let bench = dir.start();
    bench.deploy("filled", &filled(3), FunctionOptions::default());
    until("there is an image of it", || {
        dir.tree()["filled"]["image_bytes"].is_u64()
    });
    let (folder, kept) = (tempfile::tempdir().unwrap(), dir.path("kept"));
    let file = folder.path().join("filled.faasw");
    fs::write(&kept, "kept").unwrap();
    for name in ["filled.faasw", "filled.faasw.unfinished"] {
        symlink(&kept, folder.path().join(name)).unwrap();
    }
    let words = ["image", "export", "filled", "-o", file.to_str().unwrap()];
    thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| dir.says(&words)));
        for one in both {
            one.join().unwrap();
        }
    });
    assert_eq!(fs::read(&kept).unwrap(), b"kept");
    let about = fs::symlink_metadata(&file).unwrap();
    assert!(about.is_file() && about.mode() & 0o777 == 0o600);
    dir.says(&["image", "import", file.to_str().unwrap()]);
    assert_eq!(bench.text("/filled/"), "filled\n");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let why = dir.refused(&words);
    assert!(why.contains("cannot be written"), "{why}");
    // The directory contains what was there before, and nothing else.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    bench.end();
}

/// Tests the program with a key file of the operator.
fn a_key_of_the_operator_replaces_the_nodes_own() {
    let (there, here) = (TestDataDir::new(), TestDataDir::new());
    let keys = tempfile::tempdir().unwrap();
    let key = keys.path().join("key");
    fs::write(&key, [9; 32]).unwrap();
    let start = |dir: &TestDataDir| dir.serve(&["--image-key", key.to_str().unwrap()]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let mut open_to_all = start(&there);
    open_to_all.said("chmod 600");
    assert_eq!(open_to_all.child.wait().unwrap().code(), Some(1));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let mut node = start(&there);
    let address = node.address();
    let script = there.path("script.js");
    fs::write(&script, SCRIPT).unwrap();
    there.says(&["deploy", script.to_str().unwrap()]);
    until("there is an image of it", || {
        there.tree()["script"]["image_bytes"].is_u64()
    });
    let born = get(address, "/script/").body;
    let export = there.export("script");
    assert_eq!(node.stop("TERM"), Some(0));
    assert!(!there.path("image.key").exists());
    fs::create_dir(here.path("images")).unwrap();
    for image in there.images().keys() {
        let name = image.file_name().unwrap();
        fs::copy(image, here.path("images").join(name)).unwrap();
    }
    let mut node = start(&here);
    let address = node.address();
    let said = here.says(&["image", "import", export.to_str().unwrap()]);
    assert!(said.contains("nothing was initialised"), "{said}");
    assert_eq!(get(address, "/script/").body, born);
    assert_eq!(node.stop("TERM"), Some(0));
}

/// Returns how many bytes of memory a process has, and its peak.
fn memory(process: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let bytes = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let kibibytes = line.unwrap().trim().trim_end_matches(" kB");
        kibibytes.parse::<u64>().unwrap() << 10
    };
    (bytes("VmRSS:"), bytes("VmHWM:"))
}

/// Runs `work`, and asserts that the node's memory grows by no more than a few pieces of an image
/// of `image` bytes.
fn in_little_memory<T>(node: &Running, image: u64, what: &str, work: impl FnOnce() -> T) -> T {
    const LITTLE: u64 = 32 << 20;
    let (now, before) = memory(node.child.id());
    // An earlier peak must not be high enough to hide that the node holds the whole image.
    assert!(before < now + image / 2, "{before} {now}");
    let done = work();
    let (_, peak) = memory(node.child.id());
    println!(
        "{what}: {} MiB more of {}",
        peak.saturating_sub(now) >> 20,
        image >> 20
    );
    assert!(
        peak <= before.max(now + LITTLE),
        "{what}: {now} {before} {peak}"
    );
    done
}

/// `FAASW_TEST_EXPORT_MIB` sets the function's size.
fn large_exports_and_imports_use_little_memory() {
    let mebibytes = std::env::var("FAASW_TEST_EXPORT_MIB");
    let mebibytes: u32 = mebibytes.map_or(96, |text| text.parse().unwrap());
    let (there, here, apart) = (TestDataDir::new(), TestDataDir::new(), TestDataDir::new());
    let mut node = there.serve(&[]);
    let address = node.address();
    let module = there.path("filled.wat");
    fs::write(&module, filled(mebibytes)).unwrap();
    let memory = (mebibytes + 1).to_string();
    there.says(&["deploy", module.to_str().unwrap(), "--memory", &memory]);
    assert_eq!(get(address, "/filled/").body, "filled\n");
    until("there is an image of it", || {
        there.tree()["filled"]["image_bytes"].is_u64()
    });
    let image = count(&there.tree()["filled"]["image_bytes"]);
    assert!(image > u64::from(mebibytes) << 20, "{image}");
    let export = in_little_memory(&node, image, "export", || there.export("filled"));
    let bytes = fs::metadata(&export).unwrap().len();
    assert!(bytes > image && bytes < image + (1 << 20), "{bytes}");
    // An export that is damaged near its start is refused at once, and a client that sends all of
    // it receives the reason.
    let damaged = there.path("damaged");
    let mut content = fs::read(&export).unwrap();
    content[200] ^= 1;
    fs::write(&damaged, &content).unwrap();
    drop(content);
    let why = there.refused(&["image", "import", damaged.to_str().unwrap()]);
    assert!(why.contains("damaged"), "{why}");
    assert!(there.partial_images().is_empty());
    assert_eq!(node.stop("TERM"), Some(0));

    share_images(&there, &here);
    fs::copy(there.path("image.key"), apart.path("image.key")).unwrap();
    for (dir, is_used) in [(&here, true), (&apart, false)] {
        let mut node = dir.serve(&[]);
        let address = node.address();
        let words = ["image", "import", export.to_str().unwrap()];
        let import = || dir.json(&words);
        let imported = if is_used {
            in_little_memory(&node, image, "import", import)
        } else {
            // The function is initialised here, and its image is written.
            import()
        };
        assert_eq!(imported["rebuilt"].is_null(), is_used, "{imported}");
        assert_eq!(get(address, "/filled/").body, "filled\n");
        until("there is an image of it", || {
            dir.tree()["filled"]["image_bytes"].is_u64()
        });
        until("nothing is left by half", || {
            dir.partial_images().is_empty()
        });
        assert_eq!(node.stop("TERM"), Some(0));
    }
}

/// An import may end early because of its client, at either end, or because the node ends.
fn an_aborted_import_leaves_nothing() {
    let dir = TestDataDir::new();
    let bench = dir.start();
    bench.deploy("filled", &filled(6), FunctionOptions::default());
    until("there is an image of it", || {
        dir.tree()["filled"]["image_bytes"].is_u64()
    });
    let file = dir.export("filled");
    let export = fs::read(&file).unwrap();
    let half = export.len() / 2;
    let data_dir = dir.folder.path();
    let images: Vec<PathBuf> = dir.images().into_keys().collect();
    // A stalled import does not block others.
    let stalled = start_import(data_dir, &export, half);
    let has_come = || {
        let files = dir.partial_images();
        let sizes = files
            .iter()
            .map(|file| fs::metadata(file).map_or(0, |file| file.len()));
        sizes.sum::<u64>() > 1 << 20
    };
    until("some of it has come", has_come);
    for file in dir.partial_images() {
        assert_eq!(fs::metadata(file).unwrap().mode() & 0o777, 0o600);
    }
    // Neither does an export whose client reads nothing, or not all of it.
    let unread: Vec<_> = (0..6)
        .map(|read| {
            let mut body = bench.block_on(bench.node.export("filled")).unwrap();
            for _ in 0..read {
                let piece = bench.block_on(body.frame()).unwrap();
                assert!(piece.unwrap().is_data());
            }
            body
        })
        .collect();
    let again = fs::read(dir.export("filled")).unwrap();
    assert_eq!(again.len(), export.len());
    drop(unread);
    let imported = dir.json(&["image", "import", file.to_str().unwrap()]);
    assert!(imported["rebuilt"].is_null(), "{imported}");
    drop(stalled);
    until("nothing is left of it", || dir.partial_images().is_empty());
    assert!(dir.images().into_keys().eq(images.iter().cloned()));
    assert_eq!(bench.text("/filled/"), "filled\n");
    bench.end();
    drop(bench);

    let mut soon = limits();
    soon.idle_client = Duration::from_millis(500);
    let bench = Bench::start(dir.builder(), soon);
    // The program reads a pipe whose writer pauses.
    let fifo = dir.fifo();
    let slow = thread::spawn({
        // No more than fits into a pipe.
        let (fifo, some) = (fifo.clone(), export[..50_000].to_vec());
        move || {
            let mut fifo = fs::File::create(fifo).unwrap();
            fifo.write_all(&some).unwrap();
            fifo
        }
    });
    let why = dir.refused(&["image", "import", fifo.to_str().unwrap()]);
    assert!(why.contains("did not arrive"), "{why}");
    drop(slow.join().unwrap());
    let mut stalled = start_import(data_dir, &export, half);
    let mut answer = String::new();
    stalled.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("did not arrive"), "{answer}");
    until("nothing is left of it", || dir.partial_images().is_empty());
    bench.end();
    drop(bench);

    let mut node = dir.serve(&[]);
    node.address();
    let _stalled = start_import(data_dir, &export, half);
    until("some of it has come", has_come);
    node.child.kill().unwrap();
    node.child.wait().unwrap();
    assert!(!dir.partial_images().is_empty());
    let bench = dir.start();
    until("nothing is left of it", || dir.partial_images().is_empty());
    assert_eq!(bench.text("/filled/"), "filled\n");
    assert!(dir.images().into_keys().eq(images.iter().cloned()));
    bench.end();
}

fn main() {
    e2e::main(tests![
        an_import_reuses_the_seed_on_a_node_with_the_same_images,
        an_import_on_another_node_deploys_the_module,
        an_export_of_another_key_is_rejected,
        an_export_can_be_imported_from_a_pipe,
        an_export_follows_no_existing_link,
        a_key_of_the_operator_replaces_the_nodes_own,
        large_exports_and_imports_use_little_memory,
        an_aborted_import_leaves_nothing,
    ]);
}
