//! What was built, as the recipes write it here.

/// SHA-256 of JavaScript's component.
pub(crate) const JS_SHA256: &str =
    "44b56bde0bdc534954cb73b2564b40517c215073f521e2da684a13a2731416c7";

/// Its size in bytes.
pub(crate) const JS_BYTES: u64 = 2180140;

/// SHA-256 of Python's component.
pub(crate) const PYTHON_SHA256: &str =
    "92f70810212a69201f25021103dc9cac725ad0078f0e36e273d93ee64b250488";

/// Its size in bytes.
pub(crate) const PYTHON_BYTES: u64 = 31320016;
