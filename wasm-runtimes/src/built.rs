//! What was built, as the recipes write it here.

/// SHA-256 of JavaScript's component.
pub(crate) const JS_SHA256: &str =
    "44b56bde0bdc534954cb73b2564b40517c215073f521e2da684a13a2731416c7";

/// Its size in bytes.
pub(crate) const JS_BYTES: u64 = 2180140;

/// SHA-256 of Python's component.
pub(crate) const PYTHON_SHA256: &str =
    "3f2db6cbaae22fbe70c8b634d956bba571eed1ce40c3d29358167926f806ac55";

/// Its size in bytes.
pub(crate) const PYTHON_BYTES: u64 = 30668382;
