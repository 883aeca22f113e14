//! README.md and the list of examples name what exists.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{fs, path::Path};

const README: &str = include_str!("../../README.md");
const EXAMPLES: &str = include_str!("../../examples/README.md");

#[test]
fn every_example_is_in_the_table() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut folders = 0;
    for entry in fs::read_dir(examples).unwrap() {
        let entry = entry.unwrap();
        // Builds may have left folders of their own.
        if entry.path().join("README.md").exists() {
            let name = entry.file_name().into_string().unwrap();
            let link = format!("[`{name}`]({name}/README.md)");
            assert!(EXAMPLES.contains(&link), "{name}");
            folders += 1;
        }
    }
    let links = EXAMPLES.matches("/README.md)").count();
    assert_eq!(folders, links, "some are named that are not there");
}

#[test]
fn the_first_example_is_the_script_of_the_examples() {
    let hello = include_str!("../../examples/js/hello.js");
    let (_, first) = README.split_once("```js\n").unwrap();
    let (first, _) = first.split_once("```").unwrap();
    assert!(hello.ends_with(first), "{first}");
}
