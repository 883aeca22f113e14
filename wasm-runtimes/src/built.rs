//! What was built, as the recipes write it here.

/// SHA-256 of JavaScript's component.
pub(crate) const JS_SHA256: &str =
    "90dea94e33edb771bed590301a262a337eadc773f7bee33f2a0e8cd8b2b8a1e0";

/// Its size in bytes.
pub(crate) const JS_BYTES: u64 = 2277373;

/// SHA-256 of Python's component.
pub(crate) const PYTHON_SHA256: &str =
    "92f70810212a69201f25021103dc9cac725ad0078f0e36e273d93ee64b250488";

/// Its size in bytes.
pub(crate) const PYTHON_BYTES: u64 = 31320016;
