//! Digests and sizes of the built components, which `built.sh` writes here.

/// SHA-256 of JavaScript's component.
pub(crate) const JS_SHA256: &str =
    "ccb7206af244e83747073ed6e9db6e6dd56395cca46a2e4368469d26b547ecb3";

/// Size of JavaScript's component in bytes.
pub(crate) const JS_BYTES: u64 = 4365992;

/// SHA-256 of Python's component.
pub(crate) const PYTHON_SHA256: &str =
    "4cb6e0ff655a836018a3dc952018a4bb1b66d58758e0e808f8e3b9ed68931a9c";

/// Size of Python's component in bytes.
pub(crate) const PYTHON_BYTES: u64 = 31811235;
