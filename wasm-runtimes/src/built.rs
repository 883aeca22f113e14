//! What was built, as the recipes write it here.

/// SHA-256 of JavaScript's component.
pub(crate) const JS_SHA256: &str =
    "31f4142fab622e2110e53df29955b08ec7dde70f46f512ae063ea625c6f15232";

/// Its size in bytes.
pub(crate) const JS_BYTES: u64 = 2184428;

/// SHA-256 of Python's component.
pub(crate) const PYTHON_SHA256: &str =
    "92f70810212a69201f25021103dc9cac725ad0078f0e36e273d93ee64b250488";

/// Its size in bytes.
pub(crate) const PYTHON_BYTES: u64 = 31320016;
