//! The web-platform-tests of JavaScript's features for scripts, natively: exactly those pass that
//! the list of expectations names.
//!
//! `FAASW_WPT=url/` runs those whose path begins with that text, and prints the failures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

use faasw_runtime::failure::Failure;
use serde_json::json;

use support::archives;
use support::fixture;
use support::scripts::{JAVASCRIPT, asked};

const FOLDER: &str = "tests/fixtures/web-platform-tests";

/// The script between the harness and the test.
const SETUP: &str = "setup({ output: false }); add_completion_callback(completed);";

type Files = BTreeMap<String, String>;

/// Returns every file of the archive.
fn unpack() -> Files {
    let files = archives::unpack(&format!("{FOLDER}/tests.tar.zst")).into_iter();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    files.map(|(path, bytes)| (path, text(bytes))).collect()
}

/// Returns the path of a file that a test names.
fn named(test: &str, name: &str) -> String {
    let path = match name.strip_prefix('/') {
        Some(path) => PathBuf::from(path),
        None => Path::new(test).parent().unwrap().join(name),
    };
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            part => parts.push(part.as_os_str().to_str().unwrap()),
        }
    }
    parts.join("/")
}

/// Returns the texts between each occurrence of `before` and the next `behind`.
fn between<'a>(text: &'a str, before: &'a str, behind: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(before)
        .skip(1)
        .filter_map(move |rest| Some(rest.split_once(behind)?.0))
}

/// Runs a test, and returns a line for each of its parts, or the reason why there are none.
fn run(path: &str, files: &Files) -> Result<Vec<String>, String> {
    let test = &files[path];
    let mut scripts = vec![files["resources/testharness.js"].as_str(), SETUP];
    let helpers: Vec<_> = between(test, "// META: script=", "\n")
        .filter_map(|name| files.get(&named(path, name)))
        .collect();
    scripts.extend(helpers.iter().map(|text| text.as_str()));
    scripts.push(test);
    let mut data = BTreeMap::new();
    for text in helpers.iter().copied().chain([test]) {
        let calls = [
            ("fetch(\"", "\""),
            ("fetch('", "'"),
            ("fetch_json(\"", "\""),
        ];
        for name in calls
            .into_iter()
            .flat_map(|(before, behind)| between(text, before, behind))
        {
            data.extend(files.get(&named(path, name)).map(|text| (name, text)));
        }
    }
    let driver = fixture(&format!("{FOLDER}/driver.js"));
    let mut call = asked("/").memory(512 << 20);
    let body = json!({ "files": data, "scripts": scripts }).to_string();
    call.body = body.into_bytes();
    call.ring = 64 << 20;
    call.request.method = b"POST".to_vec();
    let files = [("driver.js", driver.as_slice())];
    let told = |failure: Failure| failure.to_string();
    let mut ready = JAVASCRIPT.init(&files, &call).map_err(told)?;
    ready.handle(call.request).map_err(told)?;
    let body = String::from_utf8_lossy(&ready.platform().response_body).into_owned();
    Ok(body.lines().map(ToOwned::to_owned).collect())
}

#[test]
fn as_many_pass_as_are_expected_to() {
    let files = unpack();
    let only = std::env::var("FAASW_WPT").ok();
    let asked = |path: &&String| {
        let is_asked = only.as_ref().is_none_or(|only| path.starts_with(only));
        path.ends_with(".any.js") && is_asked
    };
    let mut found = String::new();
    let mut areas = BTreeMap::<&str, (usize, usize)>::new();
    for path in files.keys().filter(asked) {
        let (passed, all) = match run(path, &files) {
            Ok(lines) => {
                let failed: Vec<_> = lines
                    .iter()
                    .filter(|line| line.starts_with("fail"))
                    .collect();
                if only.is_some() {
                    println!("{path}: {failed:#?}");
                }
                (lines.len() - failed.len(), lines.len())
            }
            Err(why) => {
                if only.is_some() {
                    println!("{path}: {why}");
                }
                (0, 1)
            }
        };
        let area = areas.entry(path.split('/').next().unwrap()).or_default();
        *area = (area.0 + passed, area.1 + all);
        writeln!(found, "{passed}/{all} {path}").unwrap();
    }
    for (area, (passed, all)) in &areas {
        println!("{area}: {passed} of {all}");
    }
    if only.is_none() {
        let expected = String::from_utf8(fixture(&format!("{FOLDER}/expected.txt"))).unwrap();
        let found_file = std::env::temp_dir().join("web-platform-tests.txt");
        if found != expected {
            std::fs::write(&found_file, &found).unwrap();
        }
        assert!(
            found == expected,
            "other than expected: {}",
            found_file.display()
        );
    }
}
