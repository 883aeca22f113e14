//! Digests and sizes of the built components, which `built.sh` writes here.

/// SHA-256 of JavaScript's component.
pub(crate) const JS_SHA256: &str =
    "51f5fdb3d30eb8382a8c529130a8e5f7646530bc7ee41795748c4cd11f46e39c";

/// Size of JavaScript's component in bytes.
pub(crate) const JS_BYTES: u64 = 4614307;

/// SHA-256 of Python's component.
pub(crate) const PYTHON_SHA256: &str =
    "19d158681d8c853c00096e77b8c35d59c687c2f092b150c16b6d4879f91ccded";

/// Size of Python's component in bytes.
pub(crate) const PYTHON_BYTES: u64 = 31824184;
