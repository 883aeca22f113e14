//! What was built, as the recipes write it here.

/// SHA-256 of JavaScript's component.
pub(crate) const JS_SHA256: &str =
    "44b56bde0bdc534954cb73b2564b40517c215073f521e2da684a13a2731416c7";

/// Its size in bytes.
pub(crate) const JS_BYTES: u64 = 2180140;

/// SHA-256 of Python's component.
pub(crate) const PYTHON_SHA256: &str =
    "c6ca5529b75994b2b5f7ba1462445069ec0cc2c699bfdf61d6f1c3ba47b2562d";

/// Its size in bytes.
pub(crate) const PYTHON_BYTES: u64 = 30672969;
