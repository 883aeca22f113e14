//! Information about func-images: `faasw image inspect`, and where seeds are, by `tree` and
//! `inspect`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::{collections::BTreeMap, fs};

use e2e::{
    Bench, bundle,
    data_dir::{SCRIPT, SECRET, TestDataDir, count},
    limits, until,
};
use faasw::FunctionOptions;

fn image_inspect_reports_numbers() {
    let dir = TestDataDir::new();
    let bench = dir.start();
    dir.deploy(&bench);
    for name in ["probe", "script"] {
        let path = format!("/{name}/");
        // The working set is known after some requests, and the image is then written again.
        until("its working set is known", || {
            bench.get(&path);
            dir.json(&["image", "inspect", name])["working_set"].is_object()
        });
        let told = dir.json(&["image", "inspect", name]);
        let pages = &told["pages"];
        let parts = ["stored", "zero", "inherited"].map(|class| count(&pages[class]));
        assert_eq!(count(&pages["own"]), parts.iter().sum::<u64>(), "{told}");
        let file = count(&told["file_bytes"]);
        assert!(dir.images().values().any(|bytes| *bytes == file), "{told}");
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
        let text = dir.says(&["image", "inspect", name]);
        assert!(text.contains("intact"), "{text}");
        assert!(!text.contains(SECRET) && !told.to_string().contains(SECRET));
    }
    // The use of the working set is measured when instances are reset.
    until("how the set is used is known", || {
        bench.get("/probe/");
        dir.json(&["image", "inspect", "probe"])["reuse"].is_object()
    });
    bench.end();
}

fn seeds_are_in_memory_on_disk_or_both() {
    let dir = TestDataDir::new();
    let bench = dir.start();
    dir.deploy(&bench);
    let names = ["guest", "linkers", "js", "probe", "script"];
    // Every file is listed with its size.
    let told = |dir: &TestDataDir| -> BTreeMap<String, Option<u64>> {
        let tree = dir.tree().into_iter();
        tree.map(|(name, seed)| (name, seed["image_bytes"].as_u64()))
            .collect()
    };
    until("what is told is on disk", || {
        let mut seeds: Vec<u64> = told(&dir).into_values().flatten().collect();
        let mut files: Vec<u64> = dir.images().into_values().collect();
        seeds.sort_unstable();
        files.sort_unstable();
        seeds == files
    });
    assert!(names.iter().all(|name| told(&dir)[*name].is_some()));
    assert!(dir.says(&["tree"]).contains("DISK"));
    let both = dir.says(&["inspect", "probe"]);
    assert!(both.contains("in memory, and in a func-image of"), "{both}");
    bench.end();
    drop(bench);

    // After a start the images are known before any is read. Without memory for unused seeds, one
    // of the two is on disk only.
    let builder = dir.builder().seed_memory(0).max_warm(0);
    let bench = Bench::start(builder, limits());
    let mut on_disk = None;
    until("one is on disk only", || {
        let tree = dir.tree();
        let is_out = |name: &&str| {
            let seed = tree.get(*name);
            seed.is_some_and(|seed| seed["is_in_memory"] == false && seed["image_bytes"].is_u64())
        };
        on_disk = ["probe", "script"].into_iter().find(is_out);
        on_disk.is_some()
    });
    assert!(names.iter().all(|name| dir.tree().contains_key(*name)));
    let name = on_disk.unwrap();
    let details = dir.json(&["inspect", name]);
    assert!(details["function"]["image_bytes"].is_u64(), "{details}");
    bench.end();
    drop(bench);

    let bench = Bench::start(dir.builder().image_disk(0), limits());
    until("both are in memory", || {
        let tree = dir.tree();
        names.iter().all(|name| {
            tree.get(*name)
                .is_some_and(|seed| seed["is_in_memory"] == true)
        })
    });
    assert!(
        dir.tree()
            .values()
            .all(|seed| seed["image_bytes"].is_null())
    );
    let only = dir.says(&["inspect", "probe"]);
    assert!(only.contains("in memory, without a func-image"), "{only}");
    for command in ["inspect", "export"] {
        let file = dir.path("file");
        let words = ["image", command, "probe", "-o", file.to_str().unwrap()];
        let words = if command == "export" {
            &words[..]
        } else {
            &words[..3]
        };
        let why = dir.refused(words);
        assert!(why.contains("--image-disk"), "{why}");
        assert!(!file.exists());
    }
    bench.end();
}

fn removed_functions_are_not_listed() {
    let dir = TestDataDir::new();
    let bench = dir.start();
    dir.deploy(&bench);
    let before = dir.images();
    let probe = e2e::file("tests/fixtures/http-probe.wasm");
    bench.deploy("probe", &probe, FunctionOptions::default());
    until("it has another image", || {
        let now = dir.images();
        now.len() == before.len() && now.keys().any(|path| !before.contains_key(path))
    });
    until("only the version that serves has one", || {
        let details = dir.json(&["inspect", "probe"]);
        let versions = details["versions"].as_array().unwrap();
        versions[0]["image_bytes"].is_u64() && versions[1]["image_bytes"].is_null()
    });
    bench.end();
}

fn a_damaged_image_is_reported() {
    let dir = TestDataDir::new();
    let bench = dir.start();
    let script = bundle(&[("handler.js", SCRIPT)]);
    bench.deploy("script", &script, FunctionOptions::default());
    until("there are images", || dir.images().len() == 4);
    let before = dir.images();
    let probe = e2e::file("tests/fixtures/http-probe.wasm");
    bench.deploy("probe", &probe, FunctionOptions::default());
    until("there is one more", || dir.images().len() == 5);
    let images = dir.images();
    let new = images.keys().find(|path| !before.contains_key(*path));
    let path = new.unwrap();
    let whole = fs::read(path).unwrap();
    let mut bytes = whole.clone();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(path, &bytes).unwrap();
    let told = dir.json(&["image", "inspect", "probe"]);
    assert!(told["damage"].as_str().unwrap().contains("chunk"), "{told}");
    let text = dir.says(&["image", "inspect", "probe"]);
    assert!(text.contains("DAMAGED"), "{text}");
    let file = dir.path("probe.faasw");
    let export = ["image", "export", "probe", "-o", file.to_str().unwrap()];
    let why = dir.refused(&export);
    assert!(why.contains("damaged") && !file.exists(), "{why}");
    fs::write(path, &whole[..5000]).unwrap();
    let why = dir.refused(&["image", "inspect", "probe"]);
    assert!(
        why.contains("cut off") && why.contains("made again"),
        "{why}"
    );
    let why = dir.refused(&["image", "inspect", "nobody"]);
    assert!(why.contains("no function named"), "{why}");
    bench.end();
}

fn main() {
    e2e::main(tests![
        image_inspect_reports_numbers,
        seeds_are_in_memory_on_disk_or_both,
        removed_functions_are_not_listed,
        a_damaged_image_is_reported,
    ]);
}
