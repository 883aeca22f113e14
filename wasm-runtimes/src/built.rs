//! What was built, as the recipes write it here.

/// SHA-256 of JavaScript's component.
pub(crate) const JS_SHA256: &str =
    "1c5b8cd5f0d50888447d42c0683b08f4d65ce5e194d9093914f586cd5f85e956";

/// Its size in bytes.
pub(crate) const JS_BYTES: u64 = 2193462;

/// SHA-256 of Python's component.
pub(crate) const PYTHON_SHA256: &str =
    "92f70810212a69201f25021103dc9cac725ad0078f0e36e273d93ee64b250488";

/// Its size in bytes.
pub(crate) const PYTHON_BYTES: u64 = 31320016;
