//! Support for the tests of initialised functions.

use faasw::{FunctionOptions, Node};

use super::{Bench, file, limits};
use crate::common::time_limit;

/// A command that runs to its end only if `prepare` initialised it.
pub const COMPONENT: &str = "host/cli/tests/e2e/initialised-component.wat";

/// A part of a module because of which Wizer cannot initialise it, so that it is initialised in
/// memory.
pub const TABLE_SET: &str = "(table 1 funcref) (func (table.set (i32.const 0) (ref.null func)))";

pub fn init_by(export: &str) -> FunctionOptions {
    FunctionOptions::default().init(export)
}

/// Returns the text of a module with `more` inserted before `place`.
pub fn with_inserted(path: &str, place: &str, more: &str) -> Vec<u8> {
    let text = String::from_utf8(file(path)).unwrap();
    assert_eq!(text.matches(place).count(), 1, "{path}: {place}");
    text.replace(place, &format!("{more}\n{place}"))
        .into_bytes()
}

/// Runs a test with a node of its own, which the test may break.
pub fn with_node(test: impl FnOnce(&Bench)) {
    let mut limits = limits();
    limits.instantiation = time_limit(2);
    let bench = Bench::start(Node::builder(), limits);
    test(&bench);
    bench.end();
}

/// Asserts that [`COMPONENT`], deployed as `f`, runs to its end, where it sends no response.
pub fn assert_runs_to_its_end(bench: &Bench) {
    let answer = bench.get("/f/");
    assert_eq!(answer.status, 502, "{answer:?}");
    assert!(answer.body.contains("no-response"), "{answer:?}");
}
