//! What the tests of initialised functions share.

use faasw::{FunctionOptions, Node};

use super::{Bench, file, limits};
use crate::common::time_limit;

/// A command that gets to its end only where it was initialised by `prepare`.
pub const COMPONENT: &str = "host/cli/tests/e2e/initialised-component.wat";

/// What a module is not initialised by Wizer for, but in memory.
pub const TABLE_SET: &str = "(table 1 funcref) (func (table.set (i32.const 0) (ref.null func)))";

pub fn by(export: &str) -> FunctionOptions {
    FunctionOptions::default().init(export)
}

/// The text of a module with one more thing in it, before a place.
pub fn with(path: &str, place: &str, more: &str) -> Vec<u8> {
    let text = String::from_utf8(file(path)).unwrap();
    assert_eq!(text.matches(place).count(), 1, "{path}: {place}");
    text.replace(place, &format!("{more}\n{place}"))
        .into_bytes()
}

/// A node of one test, which it may break.
pub fn with_node(test: impl FnOnce(&Bench)) {
    let mut limits = limits();
    limits.instantiation = time_limit(2);
    let bench = Bench::start(Node::builder(), limits);
    test(&bench);
    bench.end();
}

/// [`COMPONENT`], deployed as `f`, comes to its end, where it has nothing to say.
pub fn assert_got_there(bench: &Bench) {
    let answer = bench.get("/f/");
    assert_eq!(answer.status, 502, "{answer:?}");
    assert!(answer.body.contains("no-response"), "{answer:?}");
}
