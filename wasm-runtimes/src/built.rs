//! What was built, as the recipes write it here.

/// SHA-256 of JavaScript's component.
pub(crate) const JS_SHA256: &str =
    "674942526788e11799713c9d81499d83e1930efe9f38b3201b1df1c9eb81a3aa";

/// Its size in bytes.
pub(crate) const JS_BYTES: u64 = 2185068;

/// SHA-256 of Python's component.
pub(crate) const PYTHON_SHA256: &str =
    "92f70810212a69201f25021103dc9cac725ad0078f0e36e273d93ee64b250488";

/// Its size in bytes.
pub(crate) const PYTHON_BYTES: u64 = 31320016;
