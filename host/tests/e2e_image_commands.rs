//! `faasw image`, and where `tree` and `inspect` say that seeds are: what is told of func-images,
//! and how functions move between nodes with them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod common;
mod e2e;

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use e2e::{
    Bench, begins_import, bundle, filled, limits,
    process::{Running, faasw, get},
    until,
};
use faasw::{FunctionOptions, Node, NodeBuilder};
use serde_json::Value;
use tempfile::TempDir;

/// Tells what it drew when it was initialised, which no other initialisation draws.
const SCRIPT: &str = "const born = Math.random();
    export default { fetch() { return new Response(`${born}`) } }";

const SECRET: &str = "a secret of forty bytes that stands alone";

/// A data directory, and the node that has it.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn builder(&self) -> NodeBuilder {
        Node::builder().data_dir(self.folder.path()).admin(true)
    }

    fn start(&self) -> Bench {
        Bench::start(self.builder(), limits())
    }

    /// A command at its node.
    fn run(&self, words: &[&str]) -> Output {
        let mut command = faasw(words);
        command.env("FAASW_DATA_DIR", self.folder.path());
        command.output().unwrap()
    }

    /// What a command that works prints.
    fn says(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?} {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let text = self.says(&[words, &["--json"]].concat());
        serde_json::from_str(&text).unwrap()
    }

    /// What a command that does not work says.
    fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?} {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Images and their sizes.
    fn images(&self) -> BTreeMap<PathBuf, u64> {
        let files = fs::read_dir(self.path("images")).into_iter().flatten();
        files
            .flatten()
            .filter(|file| !file.file_name().to_string_lossy().starts_with('.'))
            .map(|file| (file.path(), file.metadata().unwrap().len()))
            .collect()
    }

    /// Files that have no name of an image, or not yet.
    fn by_half(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.path("images")).into_iter().flatten();
        files
            .flatten()
            .filter(|file| file.file_name().to_string_lossy().starts_with('.'))
            .map(|file| file.path())
            .collect()
    }

    /// The program, serving.
    fn serve(&self, more: &[&str]) -> Running {
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

    /// Seeds by name.
    fn tree(&self) -> BTreeMap<String, Value> {
        let tree = self.json(&["tree"]);
        let seeds = tree.as_array().unwrap().iter();
        seeds
            .map(|seed| (seed["name"].as_str().unwrap().to_owned(), seed.clone()))
            .collect()
    }

    /// Deploys a script and a component with a secret, and waits for their images.
    fn deploy(&self, bench: &Bench) {
        let script = bundle(&[("handler.js", SCRIPT)]);
        bench.deploy("script", &script, FunctionOptions::default());
        let probe = e2e::file("fixtures/http-probe.wasm");
        let options = FunctionOptions::default().env("SECRET", SECRET);
        bench.deploy("probe", &probe, options);
        // What all functions share, the engine, and both.
        until("there is an image of each", || self.images().len() == 5);
    }

    fn export(&self, name: &str) -> PathBuf {
        let file = self.path(&format!("{name}.faasw"));
        self.says(&["image", "export", name, "-o", file.to_str().unwrap()]);
        file
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// Copies all that two nodes have to share, to be of use to each other's images.
fn share_images(from: &Place, to: &Place) {
    fs::copy(from.path("image.key"), to.path("image.key")).unwrap();
    fs::create_dir(to.path("images")).unwrap();
    for image in from.images().keys() {
        let name = image.file_name().unwrap();
        fs::copy(image, to.path("images").join(name)).unwrap();
    }
}

fn an_image_is_told_in_numbers() {
    let place = Place::new();
    let bench = place.start();
    place.deploy(&bench);
    for name in ["probe", "script"] {
        let path = format!("/{name}/");
        // What requests use is known after some, and the image is written again.
        until("its working set is known", || {
            bench.get(&path);
            place.json(&["image", "inspect", name])["working_set"].is_object()
        });
        let told = place.json(&["image", "inspect", name]);
        let pages = &told["pages"];
        let parts = ["stored", "zero", "inherited"].map(|class| count(&pages[class]));
        assert_eq!(count(&pages["own"]), parts.iter().sum::<u64>(), "{told}");
        let file = count(&told["file_bytes"]);
        assert!(
            place.images().values().any(|bytes| *bytes == file),
            "{told}"
        );
        assert_eq!(file, count(&told["header_bytes"]) + parts[0] * 4096);
        assert_eq!(
            count(&told["chunks"]),
            (parts[0] * 4096).div_ceil(count(&told["chunk_bytes"]))
        );
        assert!(count(&told["dump_bytes"]) > file, "{told}");
        let set = &told["working_set"];
        let [used, runs, longest] = ["used", "runs", "longest_run"].map(|key| count(&set[key]));
        let classes = ["stored", "zero", "ancestors"].map(|class| count(&set[class]));
        assert_eq!(used, classes.iter().sum::<u64>(), "{told}");
        assert!(
            runs > 0 && longest >= used / runs && longest <= used,
            "{told}"
        );
        assert!(
            told["damage"].is_null() && told["unfit"].is_null(),
            "{told}"
        );
        let text = place.says(&["image", "inspect", name]);
        assert!(text.contains("all parts are what was sealed"), "{text}");
        assert!(!text.contains(SECRET) && !told.to_string().contains(SECRET));
    }
    // Requests are looked at when their instances are reset.
    until("how the set is used is known", || {
        bench.get("/probe/");
        place.json(&["image", "inspect", "probe"])["reuse"].is_object()
    });
    bench.end();
}

fn seeds_are_in_memory_on_disk_or_both() {
    let place = Place::new();
    let bench = place.start();
    place.deploy(&bench);
    let names = ["guest", "linkers", "js", "probe", "script"];
    // Every file is told, with its size.
    let told = |place: &Place| -> BTreeMap<String, Option<u64>> {
        let tree = place.tree().into_iter();
        tree.map(|(name, seed)| (name, seed["image_bytes"].as_u64()))
            .collect()
    };
    until("what is told is on disk", || {
        let mut seeds: Vec<u64> = told(&place).into_values().flatten().collect();
        let mut files: Vec<u64> = place.images().into_values().collect();
        seeds.sort_unstable();
        files.sort_unstable();
        seeds == files
    });
    assert!(names.iter().all(|name| told(&place)[*name].is_some()));
    assert!(place.says(&["tree"]).contains("DISK"));
    let both = place.says(&["inspect", "probe"]);
    assert!(both.contains("in memory, and in an image of"), "{both}");
    bench.end();
    drop(bench);

    // After a start it is known before anything was read; and with room for nothing that nobody
    // has, one of both is on disk only.
    let builder = place.builder().seed_memory(0).max_parked(0);
    let bench = Bench::start(builder, limits());
    let mut on_disk = None;
    until("one is on disk only", || {
        let tree = place.tree();
        let is_out = |name: &&str| {
            let seed = tree.get(*name);
            seed.is_some_and(|seed| seed["is_in_memory"] == false && seed["image_bytes"].is_u64())
        };
        on_disk = ["probe", "script"].into_iter().find(is_out);
        on_disk.is_some()
    });
    assert!(names.iter().all(|name| place.tree().contains_key(*name)));
    let name = on_disk.unwrap();
    let details = place.json(&["inspect", name]);
    assert!(details["function"]["image_bytes"].is_u64(), "{details}");
    bench.end();
    drop(bench);

    let bench = Bench::start(place.builder().image_disk(0), limits());
    until("both are in memory", || {
        let tree = place.tree();
        names.iter().all(|name| {
            tree.get(*name)
                .is_some_and(|seed| seed["is_in_memory"] == true)
        })
    });
    assert!(
        place
            .tree()
            .values()
            .all(|seed| seed["image_bytes"].is_null())
    );
    let only = place.says(&["inspect", "probe"]);
    assert!(
        only.contains("in memory; there is no image of it"),
        "{only}"
    );
    for command in ["inspect", "export"] {
        let file = place.path("file");
        let words = ["image", command, "probe", "-o", file.to_str().unwrap()];
        let words = if command == "export" {
            &words[..]
        } else {
            &words[..3]
        };
        let why = place.refused(words);
        assert!(why.contains("--image-disk"), "{why}");
        assert!(!file.exists());
    }
    bench.end();
}

fn what_is_removed_is_not_told() {
    let place = Place::new();
    let bench = place.start();
    place.deploy(&bench);
    let before = place.images();
    let probe = e2e::file("fixtures/http-probe.wasm");
    bench.deploy("probe", &probe, FunctionOptions::default());
    until("it has another image", || {
        let now = place.images();
        now.len() == before.len() && now.keys().any(|path| !before.contains_key(path))
    });
    until("only the version that serves has one", || {
        let details = place.json(&["inspect", "probe"]);
        let versions = details["versions"].as_array().unwrap();
        versions[0]["image_bytes"].is_u64() && versions[1]["image_bytes"].is_null()
    });
    bench.end();
}

fn a_damaged_image_is_told() {
    let place = Place::new();
    let bench = place.start();
    let script = bundle(&[("handler.js", SCRIPT)]);
    bench.deploy("script", &script, FunctionOptions::default());
    until("there are images", || place.images().len() == 4);
    let before = place.images();
    let probe = e2e::file("fixtures/http-probe.wasm");
    bench.deploy("probe", &probe, FunctionOptions::default());
    until("there is one more", || place.images().len() == 5);
    let images = place.images();
    let new = images.keys().find(|path| !before.contains_key(*path));
    let path = new.unwrap();
    let whole = fs::read(path).unwrap();
    let mut bytes = whole.clone();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(path, &bytes).unwrap();
    let told = place.json(&["image", "inspect", "probe"]);
    assert!(told["damage"].as_str().unwrap().contains("chunk"), "{told}");
    let text = place.says(&["image", "inspect", "probe"]);
    assert!(text.contains("DAMAGED"), "{text}");
    let file = place.path("probe.faasw");
    let export = ["image", "export", "probe", "-o", file.to_str().unwrap()];
    let why = place.refused(&export);
    assert!(why.contains("damaged") && !file.exists(), "{why}");
    fs::write(path, &whole[..5000]).unwrap();
    let why = place.refused(&["image", "inspect", "probe"]);
    assert!(
        why.contains("cut off") && why.contains("made anew"),
        "{why}"
    );
    let why = place.refused(&["image", "inspect", "nobody"]);
    assert!(why.contains("no function named"), "{why}");
    bench.end();
}

/// The whole way: nothing is initialised on the other node, not even the engine.
fn a_function_moves_with_its_seed_to_a_node_with_the_same_images() {
    let (there, here) = (Place::new(), Place::new());
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
    // Once more: another version of the same seed; and back again.
    let said = here.says(&["image", "import", exports[0].to_str().unwrap()]);
    assert!(
        said.starts_with("script: version 2, its seed read from"),
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
    // It goes on from there as it came.
    until("there is an image of it", || {
        here.tree()["script"]["image_bytes"].is_u64()
    });
    let again = here.export("script");
    let mut last = here.json(&["image", "import", again.to_str().unwrap()]);
    assert!(last["rebuilt"].take().is_null(), "{last}");
    assert_eq!(bench.text("/script/"), born);
    bench.end();
}

fn elsewhere_it_is_deployed_from_the_module_inside() {
    let (there, here) = (Place::new(), Place::new());
    let bench = there.start();
    there.deploy(&bench);
    let wizened = e2e::file("host/tests/e2e/wizened.wat");
    bench.deploy("wizened", &wizened, FunctionOptions::default());
    let born = bench.text("/script/");
    until("there is one more image", || there.images().len() == 6);
    let exports = ["script", "probe", "wizened"].map(|name| there.export(name));
    bench.end();
    // The key alone: what all functions share is made apart.
    fs::copy(there.path("image.key"), here.path("image.key")).unwrap();
    let bench = here.start();
    for export in &exports {
        let said = here.says(&["image", "import", export.to_str().unwrap()]);
        assert!(said.contains("docs/func-image.md"), "{said}");
        assert!(said.contains("version 1, "), "{said}");
    }
    assert_ne!(bench.text("/script/"), born);
    assert_eq!(bench.text("/probe/count"), "1\n");
    // What Wizer has made of it is the module; it is not initialised once more.
    assert_eq!(bench.text("/wizened/"), "111\n");
    let init = &here.json(&["inspect", "wizened"])["function"]["init"];
    assert!(init["as-module"]["export"].is_string(), "{init}");
    // They have images of their own by now.
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

fn a_strangers_export_is_refused() {
    let (there, here) = (Place::new(), Place::new());
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
    assert!(why.contains("no export of faasw"), "{why}");
    bench.end();
    drop(bench);
    // With the key it is told what else is wrong.
    fs::copy(there.path("image.key"), here.path("image.key")).unwrap();
    let bench = here.start();
    for (damage, said) in [
        (bytes[..bytes.len() / 2].to_vec(), "cut off"),
        ([&bytes[..], b"more"].concat(), "behind its end"),
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

/// The program, with a key that the operator has put somewhere.
fn a_key_of_the_operators_is_used_instead_of_its_own() {
    let (there, here) = (Place::new(), Place::new());
    let keys = tempfile::tempdir().unwrap();
    let key = keys.path().join("key");
    fs::write(&key, [9; 32]).unwrap();
    let start = |place: &Place| place.serve(&["--image-key", key.to_str().unwrap()]);
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

/// Bytes of memory that a process has, and had at most.
fn memory(process: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let bytes = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let kibibytes = line.unwrap().trim().trim_end_matches(" kB");
        kibibytes.parse::<u64>().unwrap() << 10
    };
    (bytes("VmRSS:"), bytes("VmHWM:"))
}

/// Does something, by which a node is not to come to have more memory than for a few pieces of an image
/// of so many bytes.
fn in_little_memory<T>(node: &Running, image: u64, what: &str, work: impl FnOnce() -> T) -> T {
    const LITTLE: u64 = 32 << 20;
    let (now, before) = memory(node.child.id());
    // What it had at most before must not hide that it has the image.
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

/// `FAASW_TEST_EXPORT_MIB` says how large it is.
fn a_large_function_moves_in_little_memory() {
    let mebibytes = std::env::var("FAASW_TEST_EXPORT_MIB");
    let mebibytes: u32 = mebibytes.map_or(96, |text| text.parse().unwrap());
    let (there, here, apart) = (Place::new(), Place::new(), Place::new());
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
    // One that is damaged in front is refused at once, and whoever sends all of it hears why.
    let damaged = there.path("damaged");
    let mut content = fs::read(&export).unwrap();
    content[200] ^= 1;
    fs::write(&damaged, &content).unwrap();
    drop(content);
    let why = there.refused(&["image", "import", damaged.to_str().unwrap()]);
    assert!(why.contains("damaged"), "{why}");
    assert!(there.by_half().is_empty());
    assert_eq!(node.stop("TERM"), Some(0));

    share_images(&there, &here);
    fs::copy(there.path("image.key"), apart.path("image.key")).unwrap();
    for (place, is_used) in [(&here, true), (&apart, false)] {
        let mut node = place.serve(&[]);
        let address = node.address();
        let words = ["image", "import", export.to_str().unwrap()];
        let import = || place.json(&words);
        let imported = match is_used {
            true => in_little_memory(&node, image, "import", import),
            // It is initialised here, and its image is written.
            false => import(),
        };
        assert_eq!(imported["rebuilt"].is_null(), is_used, "{imported}");
        assert_eq!(get(address, "/filled/").body, "filled\n");
        until("there is an image of it", || {
            place.tree()["filled"]["image_bytes"].is_u64()
        });
        until("nothing is left by half", || place.by_half().is_empty());
        assert_eq!(node.stop("TERM"), Some(0));
    }
}

/// By whoever sends it, at the one end or the other, and by the end of the node.
fn an_import_that_does_not_come_to_its_end_leaves_nothing() {
    let place = Place::new();
    let bench = place.start();
    bench.deploy("filled", &filled(6), FunctionOptions::default());
    until("there is an image of it", || {
        place.tree()["filled"]["image_bytes"].is_u64()
    });
    let file = place.export("filled");
    let export = fs::read(&file).unwrap();
    let half = export.len() / 2;
    let data_dir = place.folder.path();
    let images: Vec<PathBuf> = place.images().into_keys().collect();
    // While one waits for the rest others go on.
    let stalled = begins_import(data_dir, &export, half);
    let has_come = || {
        let files = place.by_half();
        let sizes = files
            .iter()
            .map(|file| fs::metadata(file).map_or(0, |file| file.len()));
        sizes.sum::<u64>() > 1 << 20
    };
    until("some of it has come", has_come);
    for file in place.by_half() {
        assert_eq!(fs::metadata(file).unwrap().mode() & 0o777, 0o600);
    }
    let imported = place.json(&["image", "import", file.to_str().unwrap()]);
    assert!(imported["rebuilt"].is_null(), "{imported}");
    drop(stalled);
    until("nothing is left of it", || place.by_half().is_empty());
    assert!(place.images().into_keys().eq(images.iter().cloned()));
    assert_eq!(bench.text("/filled/"), "filled\n");
    bench.end();
    drop(bench);

    let mut soon = limits();
    soon.idle_client = Duration::from_millis(500);
    let bench = Bench::start(place.builder(), soon);
    let mut stalled = begins_import(data_dir, &export, half);
    let mut answer = String::new();
    stalled.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("did not arrive"), "{answer}");
    until("nothing is left of it", || place.by_half().is_empty());
    bench.end();
    drop(bench);

    let mut node = place.serve(&[]);
    node.address();
    let _stalled = begins_import(data_dir, &export, half);
    until("some of it has come", has_come);
    node.child.kill().unwrap();
    node.child.wait().unwrap();
    assert!(!place.by_half().is_empty());
    let bench = place.start();
    until("nothing is left of it", || place.by_half().is_empty());
    assert_eq!(bench.text("/filled/"), "filled\n");
    assert!(place.images().into_keys().eq(images.iter().cloned()));
    bench.end();
}

fn main() {
    e2e::main(tests![
        an_image_is_told_in_numbers,
        seeds_are_in_memory_on_disk_or_both,
        what_is_removed_is_not_told,
        a_damaged_image_is_told,
        a_function_moves_with_its_seed_to_a_node_with_the_same_images,
        elsewhere_it_is_deployed_from_the_module_inside,
        a_strangers_export_is_refused,
        a_key_of_the_operators_is_used_instead_of_its_own,
        a_large_function_moves_in_little_memory,
        an_import_that_does_not_come_to_its_end_leaves_nothing,
    ]);
}
