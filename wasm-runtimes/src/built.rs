//! Digests and sizes of the built components, which `built.sh` writes here.

/// SHA-256 of JavaScript's component.
pub(crate) const JS_SHA256: &str =
    "a6c7bc4dc3ad3f852c4ccb7e5b985ba1fcdc5682fc5b39c474d526f7ff8a3acd";

/// Size of JavaScript's component in bytes.
pub(crate) const JS_BYTES: u64 = 4379309;

/// SHA-256 of Python's component.
pub(crate) const PYTHON_SHA256: &str =
    "19d158681d8c853c00096e77b8c35d59c687c2f092b150c16b6d4879f91ccded";

/// Size of Python's component in bytes.
pub(crate) const PYTHON_BYTES: u64 = 31824184;
